//! Slow queries, cancelled calls, and databases that go down and come back.

use std::time::Instant;

use super::*;

/// A long-running statement with a marker that identifies it in the server's list of queries.
fn long_running_statement(driver: Driver, marker: &str) -> String {
    match driver {
        Driver::Sqlite => {
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
                .to_owned()
        }
        Driver::Postgres => format!("SELECT pg_sleep(60) /* {marker} */"),
        Driver::MySql => format!("SELECT SLEEP(60) /* {marker} */"),
    }
}

/// How many queries with the marker the server is executing.
async fn n_active_queries(database: &TestDatabase, marker: &str) -> i64 {
    let statement = match database.driver {
        Driver::Sqlite => return 0,
        Driver::Postgres => format!(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%{marker}%' \
             AND pid <> pg_backend_pid()"
        ),
        Driver::MySql => format!(
            "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%{marker}%' AND id <> CONNECTION_ID()"
        ),
    };
    database.query_value(&statement).await.as_i64().unwrap()
}

/// Waits until the server executes this many, or panics.
async fn wait_for_active(database: &TestDatabase, marker: &str, n: i64) {
    let start = Instant::now();
    while n_active_queries(database, marker).await != n {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}: never {n} active", database.driver);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_ends_at_its_timeout() {
    for database in test_databases().await {
        let driver = database.driver;
        let tool = database.tool_with(&long_running_statement(driver, "in time"), |spec| {
            spec.timeout = Duration::from_millis(300)
        });
        let start = Instant::now();
        let message = error(&tool, json!({})).await;
        assert!(message.starts_with("timeout: the query was stopped after 300ms"), "{driver:?} {message}");
        assert!(start.elapsed() < Duration::from_secs(2), "{driver:?} {:?}", start.elapsed());
        wait_for_active(&database, "in time", 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_cancelled_when_its_caller_stops_waiting() {
    for database in test_databases().await {
        let driver = database.driver;
        let marker = format!("left {}", database.address.rsplit('/').next().unwrap());
        let mut spec = database.spec();
        spec.max_connections = 1;
        let connection = SqlPool::new(spec).unwrap();
        let mut query = SqlSpec::new(QuerySource::Static(long_running_statement(driver, &marker)));
        query.timeout = Duration::from_secs(60);
        let tool = SqlBackend::new(query, Arc::clone(&connection), &json!({})).unwrap();
        let task =
            tokio::spawn(async move { tool.run(&Map::new()).await.map(drop).map_err(|e| e.to_string()) });
        match driver {
            Driver::Sqlite => tokio::time::sleep(Duration::from_millis(200)).await,
            _ => wait_for_active(&database, &marker, 1).await,
        }
        let start = Instant::now();
        task.abort();
        wait_for_active(&database, &marker, 0).await;
        // The only connection is free again long before the 60 seconds are over.
        let quick = SqlSpec::new(QuerySource::Static("SELECT 1 AS one".to_owned()));
        let quick = SqlBackend::new(quick, connection, &json!({})).unwrap();
        assert_eq!(rows(&quick, json!({})).await, json!([{"one": 1}]), "{driver:?}");
        assert!(start.elapsed() < Duration::from_secs(3), "{driver:?} {:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_rejects_at_once() {
    for database in test_databases().await {
        let driver = database.driver;
        let mut spec = database.spec();
        (spec.max_connections, spec.max_queued, spec.acquire_timeout) = (2, 3, Duration::from_millis(400));
        let connection = SqlPool::new(spec).unwrap();
        let mut query = SqlSpec::new(QuerySource::Static(long_running_statement(driver, "busy")));
        query.timeout = Duration::from_millis(1500);
        let tool = Arc::new(SqlBackend::new(query, Arc::clone(&connection), &json!({})).unwrap());
        let start = Instant::now();
        let calls = (0..500).map(|_| {
            let tool = Arc::clone(&tool);
            tokio::spawn(async move {
                let message = tool.run(&Map::new()).await.err().unwrap().to_string();
                (message, start.elapsed())
            })
        });
        let calls: Vec<_> = calls.collect();
        let mut message = Vec::new();
        for call in calls {
            message.push(call.await.unwrap());
        }
        let busy = message.iter().filter(|(message, _)| message.starts_with("the database is busy"));
        let at_once = busy.clone().filter(|(_, after)| *after < Duration::from_millis(390)).count();
        // Two run, three wait until their timeout, and all others are rejected at once.
        assert_eq!(
            busy.count(),
            498,
            "{driver:?} {:?}",
            message.iter().find(|(message, _)| !message.contains("busy"))
        );
        assert_eq!(at_once, 495, "{driver:?}");
        let quick = SqlSpec::new(QuerySource::Static("SELECT 1 AS one".to_owned()));
        let quick = SqlBackend::new(quick, connection, &json!({})).unwrap();
        assert_eq!(rows(&quick, json!({})).await, json!([{"one": 1}]), "{driver:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_down_does_not_prevent_the_start() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (driver, address) in [
        (Driver::Sqlite, "file:/nowhere/at/all.db?mode=ro".to_owned()),
        (Driver::Postgres, format!("postgres://u:hush@127.0.0.1:{closed}/d")),
        (Driver::MySql, format!("mysql://u:hush@127.0.0.1:{closed}/d")),
    ] {
        let mut spec = SqlPoolSpec::new("orders", driver, address);
        spec.acquire_timeout = Duration::from_millis(300);
        let connection = SqlPool::new(spec).unwrap();
        let query = SqlSpec::new(QuerySource::Static("SELECT 1".to_owned()));
        let tool = SqlBackend::new(query, Arc::clone(&connection), &json!({})).unwrap();
        assert!(tool.describe().await.is_err());
        assert_eq!(tool.output_schema(), None);
        let message = error(&tool, json!({})).await;
        assert!(message.starts_with("the database cannot be reached, ref "), "{driver:?} {message}");
        let message = connection.ping().await.unwrap_err();
        assert!(message.starts_with("connection orders: ") && message.ends_with('?'), "{message}");
        assert!(!message.contains("hush"), "{message}");
    }
    for (driver, address, at) in [
        (Driver::Postgres, "postgres://:bad port/", "postgres"),
        (Driver::MySql, "not an address", "mysql"),
        (Driver::Sqlite, "file::memory:", "sqlite"),
        (Driver::Sqlite, "file:x.db?mod=ro", "sqlite"),
    ] {
        let problems = SqlPool::new(SqlPoolSpec::new("x", driver, address)).err().unwrap();
        assert_eq!(problems[0].path, at, "{problems:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_modes_are_honored() {
    let Some(database) = test_database(Driver::Postgres).await else { return };
    if database.query_value("SHOW ssl").await != json!("on") {
        eprintln!("SKIPPED: the server has no certificate");
        return;
    }
    let secret = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(database.query_value(secret).await, json!(true));
    // Its certificate is self-signed, so modes that verify it fail.
    for (mode, is_reached) in [("require", true), ("verify-full", false)] {
        let mut spec = database.spec();
        spec.url = format!("{}?sslmode={mode}", database.address);
        assert_eq!(SqlPool::new(spec).unwrap().ping().await.is_ok(), is_reached, "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_file_is_busy_after_the_timeout() {
    let database = test_database(Driver::Sqlite).await.unwrap();
    let mut spec = database.spec();
    spec.acquire_timeout = Duration::from_millis(300);
    let query = SqlSpec::new(QuerySource::Static("SELECT count(*) AS n FROM users".to_owned()));
    let tool = SqlBackend::new(query, SqlPool::new(spec).unwrap(), &json!({})).unwrap();
    assert_eq!(rows(&tool, json!({})).await, json!([{"n": 3}]));
    let options = sqlite::parse_options(&database.address).unwrap();
    let mut other = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    other.execute(sqlx::raw_sql("BEGIN EXCLUSIVE; DELETE FROM users WHERE id = 1")).await.unwrap();
    let start = Instant::now();
    assert_eq!(error(&tool, json!({})).await, "the database is busy; try again in a moment");
    assert!(start.elapsed() < Duration::from_secs(2));
    other.execute(sqlx::raw_sql("COMMIT")).await.unwrap();
    assert_eq!(rows(&tool, json!({})).await, json!([{"n": 2}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_write_ahead_log_is_read_while_others_write() {
    let database = test_database(Driver::Sqlite).await.unwrap();
    database.write("PRAGMA journal_mode = WAL").await;
    let tool = database.tool("SELECT count(*) AS n FROM users");
    assert_eq!(rows(&tool, json!({})).await, json!([{"n": 3}]));
    let options = sqlite::parse_options(&database.address).unwrap();
    let mut other = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    other.execute(sqlx::raw_sql("BEGIN IMMEDIATE; DELETE FROM users WHERE id = 1")).await.unwrap();
    assert_eq!(rows(&tool, json!({})).await, json!([{"n": 3}]));
    other.execute(sqlx::raw_sql("COMMIT")).await.unwrap();
    assert_eq!(rows(&tool, json!({})).await, json!([{"n": 2}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_is_used_again() {
    for (driver, variable) in
        [(Driver::Postgres, "TOOLGATE_TEST_POSTGRES_RESTART"), (Driver::MySql, "TOOLGATE_TEST_MYSQL_RESTART")]
    {
        let Ok(request) = std::env::var(variable) else {
            eprintln!("SKIPPED for {driver:?}: {variable} is not set; `cargo xtask databases` sets it");
            continue;
        };
        let Some(database) = test_database(driver).await else { continue };
        let connection = database.connection();
        let quick = SqlSpec::new(QuerySource::Static("SELECT 1 AS one".to_owned()));
        let quick = SqlBackend::new(quick, Arc::clone(&connection), &json!({})).unwrap();
        assert_eq!(rows(&quick, json!({})).await, json!([{"one": 1}]));
        let mut long = SqlSpec::new(QuerySource::Static(long_running_statement(driver, "killed")));
        long.timeout = Duration::from_secs(60);
        let long = SqlBackend::new(long, connection, &json!({})).unwrap();
        let interrupted =
            tokio::spawn(async move { long.run(&Map::new()).await.err().map(|error| error.to_string()) });
        wait_for_active(&database, "killed", 1).await;

        let start = Instant::now();
        std::fs::write(&request, "").unwrap();
        let message = interrupted.await.unwrap().unwrap();
        assert!(message.contains(", ref "), "{driver:?} {message}");
        while std::path::Path::new(&request).exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "{driver:?} does not come back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // A recovering server may report that for a moment.
        while let Err(error) = quick.run(&Map::new()).await {
            eprintln!("{driver:?}: {error}");
            assert!(start.elapsed() < Duration::from_secs(60), "{driver:?} {error}");
        }
        assert_eq!(rows(&quick, json!({})).await, json!([{"one": 1}]), "{driver:?}");
    }
}
