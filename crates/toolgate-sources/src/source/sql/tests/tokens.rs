//! The tokenizer and the statement parser.

use proptest::prelude::*;

use super::*;
use crate::source::sql::statement::{AccessMode, Statement};
use crate::source::sql::token::{TokenKind, tokenize};

use Driver::{MySql, Postgres, Sqlite};

/// `{name}` marks the expected parameters.
fn check(drivers: &[Driver], statement: &str, written: &str) {
    for driver in drivers {
        let parsed = Statement::parse(*driver, statement, AccessMode::Read, |name| name != "unknown");
        let parsed = parsed.unwrap_or_else(|messages| panic!("{driver:?} {statement}: {messages:?}"));
        let names = parsed.parameter_names().to_vec();
        assert_eq!(parsed.render(|index| format!("{{{}}}", names[index])), written, "{driver:?}");
    }
}

#[test]
fn parameters_are_found_where_values_are_expected() {
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

fn assert_rejected(drivers: &[Driver], access: AccessMode, statement: &str, reason: &str) {
    for driver in drivers {
        let messages =
            Statement::parse(*driver, statement, access, |name| name == "a").unwrap_err().join("; ");
        assert!(messages.contains(reason), "{driver:?} {statement}: {messages}");
    }
}

#[test]
fn invalid_statements_are_rejected_with_a_reason() {
    let reject_read = |drivers: &[Driver], statement: &str, reason: &str| {
        assert_rejected(drivers, AccessMode::Read, statement, reason)
    };
    reject_read(&DRIVERS, " -- nothing\n;", "there is no statement");
    reject_read(&DRIVERS, "SELECT 1; DROP TABLE users", "one statement only");
    reject_read(&DRIVERS, "SELECT 1;;SELECT 2;", "one statement only");
    reject_read(&DRIVERS, "SELECT ':a", "never closed");
    reject_read(&DRIVERS, "SELECT 1 /* :a", "never closed");
    reject_read(&DRIVERS, "SELECT :b", ":b is not an argument; add b to args");
    reject_read(&DRIVERS, "SELECT '\0'", "NUL");
    reject_read(&DRIVERS, "/**/dElEtE FROM users", "read-only: DELETE is not allowed");
    reject_read(&DRIVERS, "COMMIT", "read-only: COMMIT");
    reject_read(&[Postgres, Sqlite], "SELECT $1", "write parameters as :name, not as $1");
    reject_read(&[MySql, Sqlite], "SELECT ?", "write parameters as :name, not as ?");
    reject_read(&[Sqlite], "SELECT @a", "not as @a");
    reject_read(&[Sqlite], "EXPLAIN PRAGMA query_only = OFF", "EXPLAIN PRAGMA is not allowed");
    reject_read(&[Sqlite], "EXPLAIN QUERY PLAN ATTACH 'x' AS y", "EXPLAIN ATTACH is not allowed");
    reject_read(&[MySql], "SELECT 1 /*!50000 INTO OUTFILE 'x' */", "comments that MySQL executes");
    reject_read(&[MySql], "SELECT 1 INTO/**/OuTfIlE 'x'", "OUTFILE");
    // PostgreSQL continues a string with the escapes of its first part.
    reject_read(&[Postgres], "SELECT E'a' -- x\n '\\' ) '", "one string");
    reject_read(&DRIVERS, "SELECT 1) AS x, (SELECT 2", "parentheses");
    reject_read(&DRIVERS, "SELECT (1", "parentheses");
    assert_rejected(&DRIVERS, AccessMode::Write, "ROLLBACK", "its own transaction");
}

/// Fragments that resemble syntax.
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
    fn tokens_concatenate_to_the_statement(driver in drivers(), statement in prop_oneof![any_fragments(), ".*"]) {
        let again: String = tokenize(driver, &statement).map(|token| token.text).collect();
        prop_assert_eq!(&again, &statement);
        prop_assert!(tokenize(driver, &statement).all(|token| !token.text.is_empty()));
        // Whatever the result is, there is no panic.
        let _ = Statement::parse(driver, &statement, AccessMode::Read, |_| true);
    }

    /// Correctly quoted text is one token and contains no parameter.
    #[test]
    fn quotes_contain_no_parameters(driver in drivers(), inside in any_fragments()) {
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
            let parsed = Statement::parse(driver, &statement, AccessMode::Read, |name| name == "b").unwrap();
            prop_assert_eq!(parsed.parameter_names(), ["b"]);
            let rendered = parsed.render(|_| ":b".to_owned());
            prop_assert_eq!(rendered, statement);
        }
    }

    /// Comments contain no parameters either.
    #[test]
    fn comments_contain_no_parameters(driver in drivers(), inside in any_fragments()) {
        let inside = inside.replace(['\0', '*', '/', '!'], "");
        let line = inside.replace('\n', " ");
        for comment in [format!("/* {inside}*/"), format!("-- {line}\n")] {
            let statement = format!("SELECT {comment} :b");
            let parsed = Statement::parse(driver, &statement, AccessMode::Read, |name| name == "b").unwrap();
            prop_assert_eq!(parsed.parameter_names(), ["b"]);
        }
    }
}

/// A text that we parse as one statement is one for SQLite too, which would run several.
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_sees_no_more_statements_than_the_tokenizer() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    use proptest::test_runner::TestRunner;

    let database = test_database(Sqlite).await.unwrap();
    let mut connection =
        sqlx::SqliteConnection::connect(&database.address.replace("file:", "sqlite:")).await.unwrap();
    let mut runner = TestRunner::deterministic();
    let mut n_ran = 0;
    for _ in 0..6000 {
        let soup = any_fragments().new_tree(&mut runner).unwrap().current();
        // If a quote ended earlier for SQLite than for us, the second statement would create a table.
        let statement = format!("SELECT 1 {soup} ;CREATE TABLE IF NOT EXISTS trap (x)");
        let Ok(parsed) = Statement::parse(Sqlite, &statement, AccessMode::Read, |_| true) else {
            continue;
        };
        let sql = parsed.render(|index| format!("?{}", index + 1));
        n_ran += usize::from(connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.is_ok());
        let traps: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name = 'trap'")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(traps, 0, "{statement:?}");
    }
    eprintln!("{n_ran} statements ran");
}
