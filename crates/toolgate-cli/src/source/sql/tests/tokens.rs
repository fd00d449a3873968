//! The tokenizer and what is made of its tokens.

use proptest::prelude::*;

use super::*;
use crate::source::sql::statement::{AccessMode, Statement};
use crate::source::sql::token::{TokenKind, tokenize};

use Driver::{MySql, Postgres, Sqlite};

/// `{name}` marks where a parameter must be found.
fn check(drivers: &[Driver], statement: &str, written: &str) {
    for driver in drivers {
        let read = Statement::parse(*driver, statement, AccessMode::Read, |name| name != "unknown");
        let read = read.unwrap_or_else(|said| panic!("{driver:?} {statement}: {said:?}"));
        let names = read.parameter_names().to_vec();
        assert_eq!(read.render(|index| format!("{{{}}}", names[index])), written, "{driver:?}");
    }
}

#[test]
fn parameters_are_found_where_values_stand() {
    check(&DRIVERS, "SELECT :a, $b,:a;", "SELECT {a}, {b},{a} ");
    check(&DRIVERS, "SELECT ':a' || :a || '$b''$b'", "SELECT ':a' || {a} || '$b''$b'");
    check(&DRIVERS, "SELECT \":a\" -- :a\n, :b /* $c '*/, :c", "SELECT \":a\" -- :a\n, {b} /* $c '*/, {c}");
    check(&DRIVERS, "SELECT x.:a", "SELECT x.{a}");
    check(&[Postgres], "SELECT a::text, :b::int", "SELECT a::text, {b}::int");
    check(&[Postgres], "SELECT v[1:unknown], v[:a:unknown]", "SELECT v[1:unknown], v[{a}:unknown]");
    check(&[Postgres], "SELECT $$ :a $b $$, $x$ $$ :a $x$, :a", "SELECT $$ :a $b $$, $x$ $$ :a $x$, {a}");
    check(&[Postgres], "SELECT E'\\' :a', '\\', :b", "SELECT E'\\' :a', '\\', {b}");
    check(&[Postgres], "SELECT /* /* :a */ :a */ a$b, :b", "SELECT /* /* :a */ :a */ a$b, {b}");
    check(&[Postgres], "SELECT j ? 'k', j ?| :k", "SELECT j ? 'k', j ?| {k}");
    check(
        &[MySql],
        "SELECT '\\' :a', \"\\\" :a\", `:a`, :b # :c",
        "SELECT '\\' :a', \"\\\" :a\", `:a`, {b} # :c",
    );
    check(&[MySql], "SELECT 5--:a, @x := :b", "SELECT 5--{a}, @x := {b}");
    check(&[Sqlite], "SELECT [:a], `:a`, '\\', :b", "SELECT [:a], `:a`, '\\', {b}");
}

fn assert_rejected(drivers: &[Driver], may: AccessMode, statement: &str, why: &str) {
    for driver in drivers {
        let said = Statement::parse(*driver, statement, may, |name| name == "a").unwrap_err().join("; ");
        assert!(said.contains(why), "{driver:?} {statement}: {said}");
    }
}

#[test]
fn what_nobody_means_is_refused_with_a_reason() {
    let read = |drivers: &[Driver], statement: &str, why: &str| {
        assert_rejected(drivers, AccessMode::Read, statement, why)
    };
    read(&DRIVERS, " -- nothing\n;", "there is no statement");
    read(&DRIVERS, "SELECT 1; DROP TABLE users", "one statement only");
    read(&DRIVERS, "SELECT 1;;SELECT 2;", "one statement only");
    read(&DRIVERS, "SELECT ':a", "never closed");
    read(&DRIVERS, "SELECT 1 /* :a", "never closed");
    read(&DRIVERS, "SELECT :b", ":b is not an argument; add b to args");
    read(&DRIVERS, "SELECT '\0'", "NUL");
    read(&DRIVERS, "/**/dElEtE FROM users", "read-only: DELETE is not allowed");
    read(&DRIVERS, "COMMIT", "read-only: COMMIT");
    read(&[Postgres, Sqlite], "SELECT $1", "write parameters as :name, not as $1");
    read(&[MySql, Sqlite], "SELECT ?", "write parameters as :name, not as ?");
    read(&[Sqlite], "SELECT @a", "not as @a");
    read(&[Sqlite], "EXPLAIN PRAGMA query_only = OFF", "EXPLAIN PRAGMA is not allowed");
    read(&[Sqlite], "EXPLAIN QUERY PLAN ATTACH 'x' AS y", "EXPLAIN ATTACH is not allowed");
    read(&[MySql], "SELECT 1 /*!50000 INTO OUTFILE 'x' */", "comments that MySQL executes");
    read(&[MySql], "SELECT 1 INTO/**/OuTfIlE 'x'", "OUTFILE");
    // PostgreSQL reads on in the manner of the first quote.
    read(&[Postgres], "SELECT E'a' -- x\n '\\' ) '", "one string");
    read(&DRIVERS, "SELECT 1) AS x, (SELECT 2", "parentheses");
    read(&DRIVERS, "SELECT (1", "parentheses");
    assert_rejected(&DRIVERS, AccessMode::Write, "ROLLBACK", "a transaction of its own");
}

/// Pieces that are near to what means something.
fn any_fragments() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "'", "''", "\"", "`", "[", "]", "\\", "$", "$$", "$t$", "$1", "$a", ":a", "::", ":", ":=", "?", "?1",
        "@a", "--", "-- ", "#", "/*", "*/", "/*!", "/**/", "\n", " ", ";", "E'", "e", "x'", "SELECT", "é",
        "日", "\u{feff}", "1", "1.5e3", "a$b", "(", ")", "\0", "\u{b}",
    ]);
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
}

fn drivers() -> impl Strategy<Value = Driver> {
    prop::sample::select(DRIVERS.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn tokens_are_the_statement_again(driver in drivers(), statement in prop_oneof![any_fragments(), ".*"]) {
        let again: String = tokenize(driver, &statement).map(|token| token.text).collect();
        prop_assert_eq!(&again, &statement);
        prop_assert!(tokenize(driver, &statement).all(|token| !token.text.is_empty()));
        // Whatever comes of it, it comes without a panic.
        let _ = Statement::parse(driver, &statement, AccessMode::Read, |_| true);
    }

    /// Whatever is written into quotes in the right way is one token, and no parameter.
    #[test]
    fn nothing_is_found_in_quotes(driver in drivers(), inside in any_fragments()) {
        let inside = inside.replace('\0', "");
        let backslash = if driver == MySql { inside.replace('\\', "\\\\") } else { inside.clone() };
        let mut quoted = vec![
            format!("'{}'", backslash.replace('\'', "''")),
            format!("\"{}\"", backslash.replace('"', "\"\"")),
        ];
        if driver == Postgres {
            quoted.push(format!("$fence${inside}$fence$"));
            quoted.push(format!("E'{}'", inside.replace('\\', "\\\\").replace('\'', "\\'")));
        } else {
            quoted.push(format!("`{}`", inside.replace('`', "``")));
        }
        for quoted in quoted {
            let statement = format!("SELECT {quoted}, :b");
            let found: Vec<_> = tokenize(driver, &statement).collect();
            let text = found.get(2).map(|token| (token.kind, token.text));
            prop_assert_eq!(text, Some((TokenKind::Quoted, quoted.as_str())), "{}", &statement);
            let read = Statement::parse(driver, &statement, AccessMode::Read, |name| name == "b").unwrap();
            prop_assert_eq!(read.parameter_names(), ["b"]);
            let rendered = read.render(|_| ":b".to_owned());
            prop_assert_eq!(rendered, statement);
        }
    }

    /// Nor in comments.
    #[test]
    fn nothing_is_found_in_comments(driver in drivers(), inside in any_fragments()) {
        let inside = inside.replace(['\0', '*', '/', '!'], "");
        let line = inside.replace('\n', " ");
        for comment in [format!("/* {inside}*/"), format!("-- {line}\n")] {
            let statement = format!("SELECT {comment} :b");
            let read = Statement::parse(driver, &statement, AccessMode::Read, |name| name == "b").unwrap();
            prop_assert_eq!(read.parameter_names(), ["b"]);
        }
    }
}

/// What is taken for one statement is one for SQLite, which would run several.
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_sees_no_more_statements_than_the_tokenizer() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    use proptest::test_runner::TestRunner;

    let house = test_database(Sqlite).await.unwrap();
    let mut connection =
        sqlx::SqliteConnection::connect(&house.address.replace("file:", "sqlite:")).await.unwrap();
    let mut runner = TestRunner::deterministic();
    let mut n_ran = 0;
    for _ in 0..6000 {
        let soup = any_fragments().new_tree(&mut runner).unwrap().current();
        // If a quote ends earlier for SQLite than for us, the second statement leaves a table behind.
        let statement = format!("SELECT 1 {soup} ;CREATE TABLE IF NOT EXISTS trap (x)");
        let Ok(read) = Statement::parse(Sqlite, &statement, AccessMode::Read, |_| true) else { continue };
        let sql = read.render(|index| format!("?{}", index + 1));
        n_ran += usize::from(connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.is_ok());
        let traps: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name = 'trap'")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(traps, 0, "{statement:?}");
    }
    eprintln!("{n_ran} statements ran");
}
