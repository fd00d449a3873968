//! The builder that serves SQL statements of a database.

mod query;
mod query_backend;

use std::fmt;
#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toolgate::{Item, ToolSpec};

pub use query::Query;

use crate::error::{SourceError, SourceErrorKind, SourceProblem, setting_problems};
use crate::source::sql::{Driver, QuerySource, SqlPool, SqlPoolSpec};
use crate::source::{ToolBackend as _, backend_tool};
use query_backend::QueryBackend;

/// How long the database has to describe the columns of a statement.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves SQL statements as tools: SQLite, PostgreSQL, MySQL and MariaDB.
///
/// Arguments are always bound as parameters, never inserted into the statement, so there is no SQL injection. The
/// database itself rejects writes unless [`Database::allow_writes`] and [`Query::write`] permit them. Queries have limits
/// for time, rows and bytes, and are cancelled on the server when the caller stops waiting.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use serde_json::json;
/// use toolgate::Server;
/// use toolgate_sources::Database;
///
/// let shop = Database::sqlite("shop.db").query(
///     "find_customer",
///     "SELECT id, name FROM customer WHERE name LIKE :name || '%' LIMIT :limit",
///     |query| {
///         query
///             .describe("Finds customers by the beginning of their name")
///             .arg("name", json!({ "type": "string", "minLength": 2 }))
///             .arg("limit", json!({ "type": "integer", "maximum": 100, "default": 20 }))
///     },
/// );
/// let server = Server::new("shop", "1.0.0").add(shop.load().await?).build()?;
/// # assert_eq!(server.tools()[0].name, "find_customer");
/// # Ok(())
/// # }
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run()).unwrap();
/// ```
///
/// The result of a call is `{"rows": [{"id": 7, "name": "Ada"}]}`, with an output schema that the database describes.
/// Connections are opened by the first call, so that a server starts while its database is down.
#[derive(Clone)]
#[must_use = "call `load` and add its items to a server"]
pub struct Database {
    spec: SqlPoolSpec,
    queries: Vec<Query>,
}

impl Database {
    fn new(driver: Driver, url: impl Into<String>) -> Database {
        Database { spec: SqlPoolSpec::new(driver.key(), driver, url), queries: Vec::new() }
    }

    /// A SQLite file.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl AsRef<Path>) -> Database {
        Database::new(Driver::Sqlite, format!("file:{}", path.as_ref().display()))
    }

    /// A PostgreSQL database: `postgres://user:password@host:5432/database`. TLS is used if the server supports it;
    /// `?sslmode=verify-full` requires it.
    #[cfg(feature = "postgres")]
    pub fn postgres(url: impl Into<String>) -> Database {
        Database::new(Driver::Postgres, url)
    }

    /// A MySQL or MariaDB database: `mysql://user:password@host:3306/database`. TLS is used if the server supports it;
    /// `?ssl-mode=VERIFY_IDENTITY` requires it.
    #[cfg(feature = "mysql")]
    pub fn mysql(url: impl Into<String>) -> Database {
        Database::new(Driver::MySql, url)
    }

    /// Adds a tool that runs a statement, with `:name` or `$name` for arguments. The closure describes the tool and its
    /// arguments.
    ///
    /// A missing optional argument is `NULL`. Names in quotes, comments and casts (`a::text`) are not arguments.
    pub fn query(
        mut self,
        name: impl Into<String>,
        sql: impl Into<String>,
        configure: impl FnOnce(Query) -> Query,
    ) -> Database {
        self.queries.push(configure(Query::new(name.into(), QuerySource::Static(sql.into()))));
        self
    }

    /// Adds a tool that runs a statement which the client sends as the argument `sql`. The statement can only read, and
    /// has the same limits as others. Use a database user that may only read what clients may see.
    pub fn client_query(
        mut self,
        name: impl Into<String>,
        configure: impl FnOnce(Query) -> Query,
    ) -> Database {
        self.queries.push(configure(Query::from_client(name.into())));
        self
    }

    /// Opens the database for writing. Each statement that writes must also say so with [`Query::write`].
    pub fn allow_writes(mut self) -> Database {
        self.spec.read_only = false;
        self
    }

    /// Sets the name of the database in log messages.
    pub fn name(mut self, name: impl Into<String>) -> Database {
        self.spec.name = name.into();
        self
    }

    /// Limits the size of the connection pool; 8 connections by default.
    pub fn max_connections(mut self, connections: u32) -> Database {
        self.spec.max_connections = connections;
        self
    }

    /// Limits how many queries wait for a connection; 64 by default. Further ones fail as busy.
    pub fn max_queued(mut self, queries: usize) -> Database {
        self.spec.max_queued = queries;
        self
    }

    /// Limits how long a query waits for a connection; 2 seconds by default.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Database {
        self.spec.acquire_timeout = timeout;
        self
    }

    /// Closes connections that were idle for this time; 5 minutes by default.
    pub fn idle_timeout(mut self, timeout: Duration) -> Database {
        self.spec.idle_timeout = timeout;
        self
    }

    /// Validates the statements and returns their tools, for [`Builder::add`](toolgate::Builder::add).
    ///
    /// The database is asked for the columns of each statement. If it cannot be reached or rejects a statement, a
    /// warning is logged, and the tool is served without an output schema; [`Database::check`] makes that an error.
    ///
    /// # Errors
    /// If a setting, a statement or its arguments are invalid.
    pub async fn load(&self) -> Result<Vec<Item>, SourceError> {
        let pool = self.pool()?;
        let mut items = Vec::new();
        let mut is_responsive = true;
        for (query, backend) in self.backends(&pool)? {
            if is_responsive {
                match tokio::time::timeout(DESCRIBE_TIMEOUT, backend.sql().describe()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(reason)) => {
                        tracing::warn!(tool = query.name, reason, "the output schema is not known");
                    }
                    Err(_) => {
                        is_responsive = false;
                        tracing::warn!(
                            database = self.spec.name,
                            "the database did not describe its statements in time"
                        );
                    }
                }
            }
            items.push(tool_spec(query, backend).into());
        }
        Ok(items)
    }

    /// Connects to the database and has it prepare every statement, as a test or a readiness check does.
    ///
    /// # Errors
    /// As [`Database::load`], and if the database cannot be reached or rejects a statement.
    pub async fn check(&self) -> Result<(), SourceError> {
        let pool = self.pool()?;
        let reached = tokio::time::timeout(self.spec.acquire_timeout, pool.ping()).await;
        let reached =
            reached.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.spec.acquire_timeout)));
        if let Err(message) = reached {
            return Err(SourceError::new(SourceErrorKind::Unavailable, &self.spec.name, message));
        }
        let mut problems = Vec::new();
        for (query, backend) in self.backends(&pool)? {
            let described = tokio::time::timeout(DESCRIBE_TIMEOUT, backend.sql().describe()).await;
            let described =
                described.unwrap_or_else(|_| Err("the database did not describe it in time".to_owned()));
            if let Err(message) = described {
                problems.push(SourceProblem::new(&query.name, message));
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(SourceError::from_problems(SourceErrorKind::InvalidQuery, problems)),
        }
    }

    fn pool(&self) -> Result<Arc<SqlPool>, SourceError> {
        SqlPool::new(self.spec.clone()).map_err(|problems| {
            let method_of = |path: &str| match path {
                "pool.max" => "max_connections".to_owned(),
                other => other.to_owned(),
            };
            SourceError::from_problems(SourceErrorKind::InvalidSetting, setting_problems(problems, method_of))
        })
    }

    /// The queries and their backends, or the problems of all of them.
    fn backends(&self, pool: &Arc<SqlPool>) -> Result<Vec<(&Query, QueryBackend)>, SourceError> {
        let mut backends = Vec::new();
        let mut all_problems = Vec::new();
        for query in &self.queries {
            match QueryBackend::new(query, pool) {
                Ok(backend) => backends.push((query, backend)),
                Err(problems) => all_problems.extend(problems),
            }
        }
        match all_problems.is_empty() {
            true => Ok(backends),
            false => Err(SourceError::from_problems(SourceErrorKind::InvalidQuery, all_problems)),
        }
    }
}

impl fmt::Debug for Database {
    // Without the URL, which contains a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("name", &self.spec.name)
            .field("driver", &self.spec.driver)
            .field("queries", &self.queries)
            .finish_non_exhaustive()
    }
}

fn tool_spec(query: &Query, backend: QueryBackend) -> ToolSpec {
    let output_schema = backend.sql().output_schema();
    let mut spec = backend_tool(&query.name, Arc::new(backend)).input_schema(query.visible_schema());
    if let Some(schema) = output_schema {
        spec = spec.output_schema(schema);
    }
    if !query.spec.write {
        spec = spec.read_only();
    }
    query.apply(spec)
}
