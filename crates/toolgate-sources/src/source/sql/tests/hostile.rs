//! Hostile input: arguments, statements and sizes.

use super::*;

const HOSTILE_INPUTS: &[&str] = &[
    "x' OR '1'='1",
    "'; DROP TABLE users; --",
    "\\' OR 1=1 -- ",
    "\\",
    "\" OR \"\"=\"",
    "` OR 1=1 #",
    "$$; DELETE FROM users; $$",
    "1); DELETE FROM users; --",
    "/* */ OR 1=1",
    ":name",
    "$1",
    "?",
    "%",
    "\u{202e}\u{feff}é日\u{1f600}",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_is_always_a_value() {
    for database in test_databases().await {
        let driver = database.driver;
        let by_name = database.tool("SELECT id, name FROM users WHERE name = :name");
        let echo = database.tool("SELECT :name AS said");
        for hostile in HOSTILE_INPUTS {
            assert_eq!(rows(&by_name, json!({"name": hostile})).await, json!([]), "{driver:?} {hostile}");
            assert_eq!(rows(&echo, json!({"name": hostile})).await, json!([{"said": hostile}]), "{driver:?}");
            // The same in a list, a member, and a member name.
            for nested in [json!([hostile]), json!({"k": hostile}), json!({*hostile: [[hostile]]})] {
                let text = nested.to_string();
                assert_eq!(rows(&echo, json!({"name": nested})).await, json!([{"said": text}]), "{driver:?}");
            }
        }
        // Where a number is expected, a text is an invalid number, never a condition.
        let by_id = database.tool("SELECT id FROM users WHERE id = :id LIMIT :limit");
        for hostile in HOSTILE_INPUTS.iter().chain(&["2 OR 1=1", "2; DELETE FROM users"]) {
            if let Ok(output) = by_id.run(&object(&json!({"id": hostile, "limit": 10}))).await {
                let n_rows = structured(&output)["rows"].as_array().unwrap().len();
                assert!(n_rows <= 1, "{driver:?} {hostile}");
            }
            let limit = by_id.run(&object(&json!({"id": 1, "limit": hostile}))).await;
            assert!(limit.is_err() || driver == Driver::MySql, "{driver:?} {hostile}");
        }
        for number in [json!(1e308), json!(-0.0), json!(u64::MAX), json!(i64::MIN), json!(true), json!(null)]
        {
            let _ = by_id.run(&object(&json!({"id": number, "limit": 1}))).await;
        }
        assert_eq!(database.query_value("SELECT count(*) FROM users").await, json!(3), "{driver:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_text_is_a_value_and_nul_is_rejected() {
    for database in test_databases().await {
        let length = database.tool(
            "SELECT CHAR_LENGTH(:t) AS n".replace("CHAR_", length_function_prefix(database.driver)).as_str(),
        );
        let megabyte = "é".repeat(512 * 1024);
        assert_eq!(rows(&length, json!({"t": megabyte})).await, json!([{"n": 512 * 1024}]));
        for nul in [json!("a\0b"), json!(["a\0b"]), json!({"a\0": 1})] {
            let message = error(&length, json!({"t": nul})).await;
            assert_eq!(message, "t: a NUL character cannot be in a text", "{:?}", database.driver);
        }
    }
}

fn length_function_prefix(driver: Driver) -> &'static str {
    if driver == Driver::Sqlite { "" } else { "CHAR_" }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_statement_is_run() {
    for database in test_databases().await {
        let any_statement = database.client_statement_tool();
        for hostile in [
            "SELECT 1; DROP TABLE users",
            "SELECT 1;\nDELETE FROM users",
            "SELECT 1 /* ; */ ; DELETE FROM users --",
            "SELECT ';' ; DELETE FROM users",
            "COMMIT; DELETE FROM users",
            "END; DELETE FROM users",
        ] {
            let message = error(&any_statement, json!({"sql": hostile})).await;
            assert!(message.contains("one statement only"), "{:?} {hostile}: {message}", database.driver);
        }
        for hostile in [
            "COMMIT",
            "END",
            "ROLLBACK AND CHAIN",
            "ROLLBACK",
            "BEGIN",
            "SET x = 1",
            ";",
            "",
            "\u{feff}DELETE",
        ] {
            error(&any_statement, json!({"sql": hostile})).await;
        }
        assert_eq!(
            rows(&any_statement, json!({"sql": "SELECT 1 AS one; -- that is all"})).await,
            json!([{"one": 1}])
        );
        let twice = rows(&any_statement, json!({"sql": "SELECT 1 AS a, 2 AS a"})).await;
        assert_eq!(twice, json!([{"a": 1, "a_2": 2}]), "{:?}", database.driver);
        let ordered = rows(&any_statement, json!({"sql": "SELECT id FROM users ORDER BY id DESC"})).await;
        assert_eq!(ordered, json!([{"id": 3}, {"id": 2}, {"id": 1}]), "{:?}", database.driver);
        assert_eq!(
            database.query_value("SELECT count(*) FROM users").await,
            json!(3),
            "{:?}",
            database.driver
        );
    }
}

/// Statements that would write. The database user may do everything; the transaction may not.
fn write_statements(driver: Driver, dir: &str) -> Vec<String> {
    let mut all = vec![
        "INSERT INTO users VALUES (9, 'x', NULL)".to_owned(),
        "/**/dElEtE FROM users".to_owned(),
        "UPDATE users SET name = 'x'".to_owned(),
        "DROP TABLE users".to_owned(),
        "CREATE TABLE made (x INTEGER)".to_owned(),
        "CREATE TEMPORARY TABLE made (x INTEGER)".to_owned(),
    ];
    let more: &[&str] = match driver {
        Driver::Sqlite => &[
            "WITH d AS (SELECT 1) DELETE FROM users",
            "WITH d AS (SELECT 1) INSERT INTO users SELECT 9, 'x', NULL",
            "REPLACE INTO users VALUES (1, 'x', NULL)",
            "ATTACH '{dir}/x.db' AS x",
            "VACUUM INTO '{dir}/x.db'",
            "VACUUM",
            "REINDEX",
            "ANALYZE",
            "PRAGMA query_only = OFF",
            "EXPLAIN PRAGMA query_only = OFF",
            "PRAGMA writable_schema = 1",
            "PRAGMA journal_mode = DELETE",
            "SELECT load_extension('{dir}/x')",
            "SELECT readfile('/etc/passwd')",
            "SELECT writefile('{dir}/x', 'y')",
            "SELECT edit('x')",
            "SELECT fts3_tokenizer('simple', X'00')",
            "SELECT * FROM pragma_query_only('OFF')",
            "SAVEPOINT x",
        ],
        Driver::Postgres => &[
            "WITH d AS (DELETE FROM users RETURNING *) SELECT * FROM d",
            "EXPLAIN ANALYZE DELETE FROM users",
            "EXPLAIN (ANALYZE) INSERT INTO users VALUES (9, 'x', NULL)",
            "SELECT * INTO made FROM users",
            "COPY users TO PROGRAM 'cat > {dir}/x'",
            "COPY users TO '{dir}/x'",
            "COPY users FROM '/etc/passwd'",
            "SELECT sneaky()",
            "SELECT nextval('counter')",
            "SELECT setval('counter', 100)",
            "SELECT * FROM users FOR UPDATE",
            "SELECT set_config('transaction_read_only', 'off', false)",
            "SELECT set_config('transaction_read_only', 'off', true), sneaky()",
            "WITH x AS (SELECT set_config('transaction_read_only', 'off', true)) INSERT INTO users SELECT 9, 'x' FROM x",
            "SELECT query_to_xml('DELETE FROM users', true, true, '')",
            "DO $$ BEGIN DELETE FROM users; END $$",
            "CALL gone()",
            "SET default_transaction_read_only = off",
            "SET TRANSACTION READ WRITE",
            "RESET ALL",
            "LOCK TABLE users",
            "NOTIFY x",
            "LISTEN x",
            "PREPARE p AS DELETE FROM users",
            "TRUNCATE users",
            "GRANT ALL ON users TO public",
            "LOAD 'x'",
        ],
        Driver::MySql => &[
            "REPLACE INTO users VALUES (1, 'x', NULL)",
            "WITH d AS (SELECT 1) DELETE FROM users",
            "SELECT * FROM users INTO OUTFILE '{dir}/x'",
            "SELECT 'x' INTO/**/DUMPFILE '{dir}/x'",
            "SELECT 1 /*!50000 INTO OUTFILE '{dir}/x' */",
            "SELECT 1 /*M!100000 INTO OUTFILE '{dir}/x' */",
            "SELECT LOAD_FILE('/etc/passwd')",
            "SELECT sneaky()",
            "SELECT NEXTVAL(counter)",
            "SELECT SETVAL(counter, 100)",
            "CALL gone()",
            "SET GLOBAL max_connections = 1",
            "SET SESSION TRANSACTION READ WRITE",
            "LOAD DATA INFILE '/etc/passwd' INTO TABLE users",
            "TRUNCATE users",
            "LOCK TABLES users WRITE",
            "FLUSH TABLES",
            "HANDLER users OPEN",
            "DO sneaky()",
            "PREPARE p FROM 'DELETE FROM users'",
            "EXECUTE IMMEDIATE 'DELETE FROM users'",
            "ANALYZE DELETE FROM users",
            "GRANT ALL ON *.* TO x",
        ],
    };
    all.extend(more.iter().map(|hostile| hostile.replace("{dir}", dir)));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_connection_writes_nothing() {
    for database in test_databases().await {
        let driver = database.driver;
        match driver {
            Driver::Sqlite => {}
            Driver::Postgres => {
                database.write("CREATE SEQUENCE counter").await;
                database
                    .write(
                        "CREATE FUNCTION sneaky() RETURNS int LANGUAGE plpgsql AS \
                         $$ BEGIN DELETE FROM users; RETURN 1; END $$",
                    )
                    .await;
                database.write("CREATE PROCEDURE gone() LANGUAGE sql AS 'DELETE FROM users'").await;
            }
            Driver::MySql => {
                database.write("CREATE SEQUENCE counter").await;
                database
                    .write("CREATE FUNCTION sneaky() RETURNS INT BEGIN DELETE FROM users; RETURN 1; END")
                    .await;
                database.write("CREATE PROCEDURE gone() DELETE FROM users").await;
            }
        }
        let elsewhere =
            std::env::temp_dir().join(format!("{}-made", database.dir.display()).replace('/', "_"));
        std::fs::create_dir_all(&elsewhere).unwrap();
        // Servers run as another user, who could create files there.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let any_statement = database.client_statement_tool();
        for hostile in write_statements(driver, &elsewhere.display().to_string()) {
            let message = error(&any_statement, json!({"sql": hostile})).await;
            eprintln!("{driver:?}: {hostile}: {message}");
            // The same statement in the configuration is rejected when it is parsed, or by the database.
            let spec = SqlSpec::new(QuerySource::Static(hostile.clone()));
            if let Ok(tool) = SqlBackend::new(spec, database.connection(), &json!({})) {
                error(&tool, json!({})).await;
            }
        }
        let names = json!(["ann", "bob", "O'Hara"]);
        let found = rows(&database.tool("SELECT name FROM users ORDER BY id"), json!({})).await;
        let found: Vec<Value> = found.as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
        assert_eq!(Value::from(found), names, "{driver:?}");
        match driver {
            Driver::Sqlite => {
                assert_eq!(database.query_value("SELECT count(*) FROM sqlite_schema").await, json!(2))
            }
            Driver::Postgres => {
                let tables = "SELECT count(*) FROM pg_class WHERE relname = 'made'";
                assert_eq!(database.query_value(tables).await, json!(0));
                assert_eq!(database.query_value("SELECT is_called FROM counter").await, json!(false));
                // Older servers allow creating a large object; it is rolled back.
                let _ = any_statement.run(&object(&json!({"sql": "SELECT lo_create(4711)"}))).await;
                assert_eq!(
                    database.query_value("SELECT count(*) FROM pg_largeobject_metadata").await,
                    json!(0)
                );
                // A session lock is not left behind.
                rows(&any_statement, json!({"sql": "SELECT pg_advisory_lock(1)"})).await;
                let locks = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                             WHERE locktype = 'advisory' AND datname = current_database()";
                assert_eq!(database.query_value(locks).await, json!(0));
            }
            Driver::MySql => {
                let made = "SELECT count(*) FROM information_schema.tables \
                            WHERE table_schema = DATABASE() AND table_name = 'made'";
                assert_eq!(database.query_value(made).await, json!(0));
                rows(&any_statement, json!({"sql": "SELECT GET_LOCK('toolgate', 1)"})).await;
                // The server notices with a delay that the session is closed.
                let start = std::time::Instant::now();
                while database.query_value("SELECT IS_FREE_LOCK('toolgate')").await != json!(1) {
                    assert!(start.elapsed() < Duration::from_secs(5), "the lock is still held");
                }
                // Nor is a session variable.
                rows(&any_statement, json!({"sql": "SELECT @left := 'behind' AS x"})).await;
                assert_eq!(
                    rows(&any_statement, json!({"sql": "SELECT @left AS x"})).await,
                    json!([{"x": null}])
                );
            }
        }
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "{driver:?} made a file");
        std::fs::remove_dir_all(&elsewhere).unwrap();
    }
}

/// Writes that pass the keyword check are rejected by the database.
#[tokio::test(flavor = "multi_thread")]
async fn reading_is_enforced_by_the_database() {
    for database in test_databases().await {
        let driver = database.driver;
        // A tool without `write` cannot write, even on a writable connection.
        for read_only in [true, false] {
            let mut spec = database.spec();
            spec.read_only = read_only;
            let connection = SqlPool::new(spec).unwrap();
            for hostile in [
                "INSERT INTO users VALUES (9, 'x', NULL)",
                "DELETE FROM users",
                "UPDATE users SET name = 'x'",
                "DROP TABLE users",
                "CREATE TABLE made (x INTEGER)",
                "CREATE INDEX made ON users (name)",
                "ALTER TABLE users ADD COLUMN made INTEGER",
            ] {
                let statement = Statement::parse(driver, hostile, AccessMode::Write, |_| false).unwrap();
                let job = QueryJob {
                    statement: Arc::new(statement),
                    arguments: Map::new(),
                    access: AccessMode::Read,
                    is_client_statement: false,
                    limits: RowLimits { rows: 10, bytes: 1000 },
                    timeout: Duration::from_secs(5),
                    plan_cache: Arc::default(),
                };
                let failure = connection.run(job).await.err();
                assert!(matches!(failure, Some(QueryError::ReadOnly)), "{driver:?} {hostile}: {failure:?}");
            }
        }
        assert_eq!(database.query_value("SELECT count(*) FROM users").await, json!(3), "{driver:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_needs_a_writable_connection_and_tool() {
    for database in test_databases().await {
        let driver = database.driver;
        let insert = "INSERT INTO users VALUES (:id, :name, NULL)";
        let arguments = arguments_of(driver, insert);
        let tool = |write: bool, read_only: bool, statement: &str| {
            let mut spec = SqlSpec::new(QuerySource::Static(statement.to_owned()));
            spec.write = write;
            let mut connection = database.spec();
            connection.read_only = read_only;
            SqlBackend::new(spec, SqlPool::new(connection).unwrap(), &arguments)
        };
        let rejection = |tool: Result<SqlBackend, Vec<Problem>>| tool.err().unwrap()[0].clone();
        let problem = rejection(tool(true, true, insert));
        assert_eq!((problem.path.as_str(), problem.message.contains("read_only = false")), ("write", true));
        assert_eq!(rejection(tool(false, false, insert)).path, "query");
        // A write that the leading keyword does not reveal is rejected by the database.
        if driver != Driver::MySql {
            let hidden_write = match driver {
                Driver::Sqlite => "WITH d AS (SELECT 1) DELETE FROM users",
                _ => "WITH d AS (DELETE FROM users RETURNING 1) SELECT count(*) FROM d",
            };
            let message = error(&tool(false, false, hidden_write).unwrap(), json!({})).await;
            assert!(message.starts_with("read-only"), "{driver:?} {message}");
        }
        let both = tool(true, false, insert).unwrap();
        let output =
            both.run(&object(&json!({"id": 7, "name": "x'); DELETE FROM users; --"}))).await.unwrap();
        assert_eq!(structured(&output), json!({"rows": [], "affected": 1}), "{driver:?}");
        // A second insert is a duplicate, and the database's message is hidden.
        let message = error(&both, json!({"id": 7, "name": "y"})).await;
        assert!(message.starts_with("query failed, ref "), "{driver:?} {message}");
        let returning = tool(true, false, "INSERT INTO users VALUES (:id, :name, NULL) RETURNING id, name");
        let returning = returning.unwrap();
        returning.describe().await.unwrap();
        let schema = returning.output_schema().unwrap();
        assert_eq!(schema["properties"]["affected"]["type"], json!("integer"), "{driver:?}");
        let output = returning.run(&object(&json!({"id": 8, "name": "z"}))).await.unwrap();
        assert_eq!(structured(&output)["rows"], json!([{"id": 8, "name": "z"}]), "{driver:?}");
        assert_eq!(database.query_value("SELECT count(*) FROM users").await, json!(5), "{driver:?}");
        let mut spec = SqlSpec::new(QuerySource::FromArgument("sql".to_owned()));
        spec.write = true;
        assert!(SqlBackend::new(spec, database.connection(), &json!({"properties": {"sql": {}}})).is_err());
    }
}

/// Peak memory of this process, in MiB.
fn peak_memory_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or(0) / 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_result_is_truncated() {
    for database in test_databases().await {
        let before = peak_memory_mib();
        let driver = database.driver;
        let any_statement = database.client_statement_tool();
        let output =
            any_statement.run(&object(&json!({"sql": "SELECT a.n FROM a, a b, a c"}))).await.unwrap();
        let found = structured(&output);
        assert_eq!(
            (found["rows"].as_array().unwrap().len(), &found["truncated"]),
            (1000, &json!(true)),
            "{driver:?}"
        );
        assert_eq!(output.content[1], Content::text("truncated: only the first 1000 rows are shown"));
        let long = match driver {
            Driver::Sqlite => "SELECT printf('%.*c', 100000, 'x') AS t FROM a",
            _ => "SELECT repeat('x', 100000) AS t FROM a, a b",
        };
        let output = any_statement.run(&object(&json!({"sql": long}))).await.unwrap();
        let found = structured(&output);
        assert_eq!(
            (found["rows"].as_array().unwrap().len(), &found["truncated"]),
            (10, &json!(true)),
            "{driver:?}"
        );
        assert!(output.structured_content.as_ref().unwrap().as_str().len() <= 1024 * 1024 + 100);
        assert!(peak_memory_mib() - before < 150, "{driver:?}: {} MiB", peak_memory_mib() - before);

        if driver == Driver::Postgres {
            for hostile in ["SELECT repeat(repeat('x', 1000000), 200)", "VALUES (repeat('x', 2000000))"] {
                let message = error(&any_statement, json!({"sql": hostile})).await;
                assert!(message.starts_with("a row is too large"), "{message}");
            }
            assert!(peak_memory_mib() - before < 150, "{} MiB", peak_memory_mib() - before);
        }
        if driver == Driver::Sqlite {
            for hostile in ["SELECT zeroblob(1000000000)", "SELECT printf('%.*c', 1000000000, 'x')"] {
                let output = any_statement.run(&object(&json!({"sql": hostile}))).await;
                assert!(output.is_err(), "{hostile}");
            }
            assert!(peak_memory_mib() - before < 600, "{} MiB", peak_memory_mib() - before);
        }
        assert_eq!(
            rows(&any_statement, json!({"sql": "SELECT 1 AS one"})).await,
            json!([{"one": 1}]),
            "{driver:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_exhaust_a_parser_are_errors() {
    for database in test_databases().await {
        let any_statement = database.client_statement_tool();
        for hostile in [
            format!("SELECT {}", "(".repeat(64 * 1024)),
            format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)),
            format!("SELECT 1{}", " UNION SELECT 1".repeat(10_000)),
            format!("SELECT {}", "?,".repeat(100_000)),
            format!("SELECT {}", "-".repeat(60_000)),
            "x".repeat(300_000),
        ] {
            // A server may also respond; it must not crash.
            let message = any_statement
                .run(&object(&json!({"sql": hostile})))
                .await
                .err()
                .map(|error| error.to_string());
            let message = message.unwrap_or_default();
            eprintln!("{:?}: {:.20}…: {message:.80}", database.driver, hostile);
        }
        assert_eq!(rows(&any_statement, json!({"sql": "SELECT 1 AS one"})).await, json!([{"one": 1}]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn database_errors_are_hidden_from_clients() {
    for database in test_databases().await {
        for statement in ["SELECT * FROM secret_table", "SELECT secret_column FROM users"] {
            let hidden = database.tool_with(statement, |spec| spec.expose_errors = false);
            let message = error(&hidden, json!({})).await;
            assert!(message.starts_with("query failed, ref ") && message.len() == 26, "{message}");
            let shown = error(&database.tool(statement), json!({})).await;
            assert!(shown.contains("secret_"), "{shown}");
        }
    }
}
