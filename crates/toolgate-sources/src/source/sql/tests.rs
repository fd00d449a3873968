//! Tests SQL tools against real databases: SQLite in this process, PostgreSQL and MariaDB where
//! `TOOLGATE_TEST_POSTGRES` and `TOOLGATE_TEST_MYSQL` are set, as `cargo xtask databases` does.

// Helpers panic too.
#![allow(clippy::unwrap_used)]

mod hostile;
mod lifecycle;
mod rows;
mod tokens;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::*;

/// The database of one test, with a table of users and one of a thousand numbers.
struct TestDatabase {
    driver: Driver,
    address: String,
    /// The directory of the SQLite file, where unwanted files would appear too.
    dir: PathBuf,
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

const DRIVERS: [Driver; 3] = [Driver::Sqlite, Driver::Postgres, Driver::MySql];

/// One test database for each available system.
async fn test_databases() -> Vec<TestDatabase> {
    let mut databases = Vec::new();
    for driver in DRIVERS {
        databases.extend(test_database(driver).await);
    }
    databases
}

fn env_variable(driver: Driver) -> Option<&'static str> {
    match driver {
        Driver::Sqlite => None,
        Driver::Postgres => Some("TOOLGATE_TEST_POSTGRES"),
        Driver::MySql => Some("TOOLGATE_TEST_MYSQL"),
    }
}

async fn test_database(driver: Driver) -> Option<TestDatabase> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("toolgate_{}_{n}", std::process::id());
    let dir = std::env::temp_dir().join(&name);
    std::fs::create_dir_all(&dir).unwrap();
    let address = match env_variable(driver) {
        None => format!("file:{}", dir.join("test.db").display()),
        Some(variable) => {
            let Ok(server) = std::env::var(variable) else {
                eprintln!("SKIPPED for {driver:?}: {variable} is not set; `cargo xtask databases` sets it");
                return None;
            };
            let base = server.rsplit_once('/').unwrap().0.to_owned();
            write(driver, &server, &format!("DROP DATABASE IF EXISTS {name}")).await;
            let encoding = if driver == Driver::MySql { " CHARACTER SET utf8mb4" } else { "" };
            write(driver, &server, &format!("CREATE DATABASE {name}{encoding}")).await;
            format!("{base}/{name}")
        }
    };
    let database = TestDatabase { driver, address, dir };
    let numbers = match driver {
        Driver::MySql => "INSERT INTO a SELECT seq FROM seq_1_to_1000",
        Driver::Postgres => "INSERT INTO a SELECT * FROM generate_series(1, 1000)",
        Driver::Sqlite => {
            "INSERT INTO a WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 1000) SELECT n FROM c"
        }
    };
    for statement in [
        "CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR(200) NOT NULL, note TEXT)",
        "INSERT INTO users VALUES (1, 'ann', 'first'), (2, 'bob', NULL), (3, 'O''Hara', 'third')",
        "CREATE TABLE a (n INTEGER NOT NULL)",
        numbers,
    ] {
        database.write(statement).await;
    }
    Some(database)
}

/// Writes to a database with a separate connection.
async fn write(driver: Driver, address: &str, statement: &str) {
    let sql = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
    let wrote = match driver {
        Driver::Sqlite => {
            let options = sqlite::parse_options(address).unwrap().create_if_missing(true);
            let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
            let wrote = connection.execute(sql).await.map(drop);
            connection.close().await.unwrap();
            wrote
        }
        Driver::Postgres => sqlx::PgConnection::connect(address).await.unwrap().execute(sql).await.map(drop),
        Driver::MySql => sqlx::MySqlConnection::connect(address).await.unwrap().execute(sql).await.map(drop),
    };
    if let Err(error) = wrote {
        panic!("{statement}: {error}");
    }
}

impl TestDatabase {
    async fn write(&self, statement: &str) {
        write(self.driver, &self.address, statement).await;
    }

    fn spec(&self) -> SqlPoolSpec {
        SqlPoolSpec::new("test", self.driver, &self.address)
    }

    fn connection(&self) -> Arc<SqlPool> {
        SqlPool::new(self.spec()).unwrap()
    }

    /// A tool with this statement. Its arguments are the names in it.
    fn tool(&self, statement: &str) -> SqlBackend {
        self.tool_with(statement, |_| {})
    }

    fn tool_with(&self, statement: &str, change: impl FnOnce(&mut SqlSpec)) -> SqlBackend {
        let mut spec = SqlSpec::new(QuerySource::Static(statement.to_owned()));
        spec.expose_errors = true;
        change(&mut spec);
        SqlBackend::new(spec, self.connection(), &arguments_of(self.driver, statement)).unwrap()
    }

    /// A tool that takes any statement as `sql` and exposes errors.
    fn client_statement_tool(&self) -> SqlBackend {
        let mut spec = SqlSpec::new(QuerySource::FromArgument("sql".to_owned()));
        spec.expose_errors = true;
        let arguments = json!({ "type": "object", "properties": { "sql": { "type": "string" } } });
        SqlBackend::new(spec, self.connection(), &arguments).unwrap()
    }

    /// Queries one value with a separate connection.
    async fn query_value(&self, statement: &str) -> Value {
        let tool = self.tool_with(statement, |spec| spec.result_shape = SqlResultShape::Value);
        match tool.run(&Map::new()).await {
            Ok(output) => structured(&output)["value"].clone(),
            Err(error) => panic!("{statement}: {error}"),
        }
    }
}

fn arguments_of(driver: Driver, statement: &str) -> Value {
    let parameters =
        token::tokenize(driver, statement).filter(|token| token.kind == token::TokenKind::Parameter);
    let properties: Map<String, Value> =
        parameters.map(|token| (token.name().to_owned(), json!({}))).collect();
    json!({ "type": "object", "properties": properties })
}

fn structured(output: &ToolOutput) -> Value {
    serde_json::from_str(output.structured_content.as_ref().unwrap().as_str()).unwrap()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn rows(tool: &SqlBackend, arguments: Value) -> Value {
    match tool.run(&object(&arguments)).await {
        Ok(output) => structured(&output)["rows"].clone(),
        Err(error) => panic!("{arguments}: {error}"),
    }
}

async fn error(tool: &SqlBackend, arguments: Value) -> String {
    match tool.run(&object(&arguments)).await {
        Ok(output) => panic!("{arguments}: {:?}", output.structured_content),
        Err(error) => error.to_string(),
    }
}
