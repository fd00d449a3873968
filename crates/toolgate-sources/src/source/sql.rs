//! SQL tools: SQLite, PostgreSQL, MySQL and MariaDB.
//!
//! An argument is always bound, never inserted into the statement. Unless both the connection and the tool allow
//! writing, the database itself rejects it. A query has limits for time, rows and bytes, and is cancelled on the
//! server when the caller stops waiting.

mod error;
#[cfg(feature = "mysql")]
mod mysql;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod query_job;
mod row_collector;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
#[cfg(all(test, feature = "full"))]
mod tests;
mod token;
mod value;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolgate::model::{Content, ToolOutput};
use toolgate::{Context, HandlerError};

use self::error::QueryError;
pub use self::pool::{PoolStats, SqlPool};
use self::query_job::{PlanCache, QueryJob};
use self::row_collector::{RowLimits, RowSet, unique_names};
use self::statement::{AccessMode, Statement};
use super::{BackendFuture, BackendReadFuture, Problem, ToolBackend, value_text};
use crate::clock::Stopwatch;
use crate::source::call_observer::{CallKind, ObservedCall};

/// Maximum number of completions.
const MAX_COMPLETIONS: usize = 100;

/// The database system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    Sqlite,
    Postgres,
    MySql,
}

impl Driver {
    /// The key of such a connection in the configuration.
    pub fn key(self) -> &'static str {
        match self {
            Driver::Sqlite => "sqlite",
            Driver::Postgres => "postgres",
            Driver::MySql => "mysql",
        }
    }
}

/// The description of a database. It contains a password, so there is no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SqlPoolSpec {
    /// The connection's name, for the log.
    pub name: String,
    pub driver: Driver,
    /// `file:/data/catalog.db`, `postgres://user:password@host:5432/database`, `mysql://…`.
    pub url: String,
    /// Maximum number of connections.
    pub max_connections: u32,
    /// Maximum number of queries waiting for a connection; further ones are rejected as busy.
    pub max_queued: usize,
    /// Idle connections are closed after this time.
    pub idle_timeout: Duration,
    /// How long a query waits for a connection.
    pub acquire_timeout: Duration,
    /// Enforced by the database. A tool that writes needs `false` here and `write` in its own description.
    pub read_only: bool,
}

impl SqlPoolSpec {
    pub fn new(name: impl Into<String>, driver: Driver, address: impl Into<String>) -> Self {
        SqlPoolSpec {
            name: name.into(),
            driver,
            url: address.into(),
            max_connections: 8,
            max_queued: 64,
            idle_timeout: Duration::from_secs(5 * 60),
            acquire_timeout: Duration::from_secs(2),
            read_only: true,
        }
    }
}

/// The origin of the statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuerySource {
    /// In the configuration, with `:name` or `$name` for arguments.
    Static(String),
    /// The client sends it as this argument. Read-only.
    FromArgument(String),
}

/// The form of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqlResultShape {
    /// `{ "rows": [ … ] }`
    #[default]
    Rows,
    /// The first row; an error if there is none.
    Row,
    /// `{ "value": … }`, the first column of the first row; an error if there is none.
    Value,
}

/// The description of a SQL tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlSpec {
    pub query: QuerySource,
    pub result_shape: SqlResultShape,
    /// The statement writes to the database.
    pub write: bool,
    pub timeout: Duration,
    pub max_rows: usize,
    pub max_bytes: usize,
    /// Include the database's error messages in results.
    pub expose_errors: bool,
}

impl SqlSpec {
    pub fn new(query: QuerySource) -> Self {
        SqlSpec {
            query,
            result_shape: SqlResultShape::Rows,
            write: false,
            timeout: Duration::from_secs(5),
            max_rows: 1000,
            max_bytes: 1024 * 1024,
            expose_errors: false,
        }
    }
}

/// A tool that runs a statement.
pub struct SqlBackend {
    spec: SqlSpec,
    pool: Arc<SqlPool>,
    /// The configured statement, or `None` if clients send it.
    statement: Option<Arc<Statement>>,
    plan_cache: Arc<PlanCache>,
    result_schema: OnceLock<Value>,
}

impl SqlBackend {
    /// Validates a description. `arguments` is the schema of all arguments, including those from the caller's
    /// identity.
    pub fn new(spec: SqlSpec, pool: Arc<SqlPool>, arguments: &Value) -> Result<SqlBackend, Vec<Problem>> {
        let problem = |path: &str, message: String| Problem { path: path.to_owned(), message };
        let mut problems = Vec::new();
        if spec.write && pool.read_only {
            let message = format!("connection {} is read-only; it needs read_only = false", pool.name);
            problems.push(problem("write", message));
        }
        if spec.timeout.is_zero() {
            problems.push(problem("timeout", "a timeout must be greater than zero".to_owned()));
        }
        let no_properties = Map::new();
        let properties = arguments.get("properties").and_then(Value::as_object).unwrap_or(&no_properties);
        let access = if spec.write { AccessMode::Write } else { AccessMode::Read };
        let statement = match &spec.query {
            QuerySource::Static(text) => {
                let parsed =
                    Statement::parse(pool.driver, text, access, |name| properties.contains_key(name));
                let report = |message: Vec<String>| {
                    problems.extend(message.into_iter().map(|message| problem("query", message)));
                };
                parsed.map_err(report).ok().map(Arc::new)
            }
            QuerySource::FromArgument(argument) => {
                if spec.write {
                    problems.push(problem("write", "a statement from a client can only read".to_owned()));
                }
                if !properties.contains_key(argument) {
                    let message = format!("{argument} is not an argument; add {argument} to args");
                    problems.push(problem("query_from", message));
                }
                None
            }
        };
        let plan = Arc::new(PlanCache::new(properties));
        match problems.is_empty() {
            true => {
                Ok(SqlBackend { spec, pool, statement, plan_cache: plan, result_schema: OnceLock::new() })
            }
            false => Err(problems),
        }
    }

    /// Asks the database for the columns of the statement, and derives the output schema from them. The error states
    /// why that is not possible yet, or what is wrong with the statement. The tool also works without a schema.
    pub async fn describe(&self) -> Result<(), String> {
        let schema = match &self.statement {
            None => self.build_result_schema(&json!({ "type": "object" }), &json!({})),
            Some(statement) => {
                let columns = self.pool.describe(statement, &self.plan_cache, self.access()).await?;
                let names = unique_names(columns.iter().map(|(name, _, _)| name.as_str()));
                let schemas = columns.iter().map(|(_, column_type, nullable)| column_type.schema(*nullable));
                let properties: Map<String, Value> = names.iter().cloned().zip(schemas).collect();
                let first = properties.values().next().cloned().unwrap_or_else(|| json!({}));
                let row = json!({ "type": "object", "properties": properties, "required": names });
                self.build_result_schema(&row, &first)
            }
        };
        // A second description is the same.
        let _ = self.result_schema.set(schema);
        Ok(())
    }

    fn build_result_schema(&self, row: &Value, first: &Value) -> Value {
        match self.spec.result_shape {
            SqlResultShape::Row => row.clone(),
            SqlResultShape::Value => {
                json!({ "type": "object", "properties": { "value": first }, "required": ["value"] })
            }
            SqlResultShape::Rows => {
                let mut properties = json!({
                    "rows": { "type": "array", "items": row },
                    "truncated": { "type": "boolean", "description": "There are more rows than are shown." },
                });
                if let (true, Some(properties)) = (self.spec.write, properties.as_object_mut()) {
                    properties.insert("affected".to_owned(), json!({ "type": "integer", "minimum": 0 }));
                }
                json!({ "type": "object", "properties": properties, "required": ["rows"] })
            }
        }
    }

    /// Runs the statement.
    ///
    /// Cancel safe: yes, see [`SqlPool::run`].
    pub async fn run(&self, arguments: &Map<String, Value>) -> Result<ToolOutput, HandlerError> {
        self.run_statement(arguments).await.map_err(|error| self.to_tool_error(error))
    }

    async fn run_statement(&self, arguments: &Map<String, Value>) -> Result<ToolOutput, QueryError> {
        let row_set = self.query_rows(arguments, self.limits()).await?;
        self.to_output(row_set)
    }

    /// Returns the first column as completions. The statement may have a `:prefix`.
    pub async fn complete(&self, arguments: &Map<String, Value>) -> Result<Vec<String>, HandlerError> {
        let limits = RowLimits { rows: MAX_COMPLETIONS, bytes: self.spec.max_bytes };
        let row_set = self.query_rows(arguments, limits).await.map_err(|error| self.to_tool_error(error))?;
        let first = row_set.rows.into_iter().filter_map(|row| row.into_iter().next());
        Ok(first.filter(|(_, value)| !value.is_null()).map(|(_, value)| value_text(&value)).collect())
    }

    fn to_tool_error(&self, error: QueryError) -> HandlerError {
        error.into_tool_error(&self.pool.name, self.spec.expose_errors)
    }

    fn access(&self) -> AccessMode {
        if self.spec.write { AccessMode::Write } else { AccessMode::Read }
    }

    fn limits(&self) -> RowLimits {
        let rows = if self.spec.result_shape == SqlResultShape::Rows { self.spec.max_rows } else { 1 };
        RowLimits { rows, bytes: self.spec.max_bytes }
    }

    async fn query_rows(
        &self,
        arguments: &Map<String, Value>,
        limits: RowLimits,
    ) -> Result<RowSet, QueryError> {
        let statement = match (&self.statement, &self.spec.query) {
            (Some(statement), _) => Arc::clone(statement),
            (None, QuerySource::FromArgument(argument)) => {
                let text = arguments.get(argument).and_then(Value::as_str).unwrap_or_default();
                let parsed = Statement::parse(self.pool.driver, text, AccessMode::Read, |_| false);
                Arc::new(parsed.map_err(|message| QueryError::Rejected(message.join("; ")))?)
            }
            (None, QuerySource::Static(_)) => {
                return Err(QueryError::Rejected("there is no statement".to_owned()));
            }
        };
        let name_with_nul =
            statement.parameter_names().iter().find(|name| arguments.get(*name).is_some_and(has_nul));
        if let Some(name) = name_with_nul {
            return Err(QueryError::InvalidArgument(format!("{name}: a NUL character cannot be in a text")));
        }
        let job = QueryJob {
            statement,
            arguments: arguments.clone(),
            access: self.access(),
            is_client_statement: self.statement.is_none(),
            limits,
            timeout: self.spec.timeout,
            plan_cache: Arc::clone(&self.plan_cache),
        };
        let Some(observer) = self.pool.observer() else {
            return self.pool.run(job).await;
        };
        let (stopwatch, text) = (Stopwatch::start(), Arc::clone(&job.statement));
        let row_set = self.pool.run(job).await;
        observer.record(&ObservedCall {
            kind: CallKind::Sql,
            duration: stopwatch.elapsed(),
            is_ok: row_set.is_ok(),
            details: &|captures| {
                json!({
                    "connection": self.pool.name,
                    "driver": self.pool.driver.key(),
                    // The statement with parameter names. Arguments and statements of clients are not recorded.
                    "statement": (captures && self.statement.is_some()).then(|| text.summary()),
                    "rows": row_set.as_ref().map(|row_set| row_set.rows.len()).ok(),
                    "ok": row_set.is_ok(),
                })
            },
        });
        row_set
    }

    fn to_output(&self, row_set: RowSet) -> Result<ToolOutput, QueryError> {
        let RowSet { rows, is_truncated, rows_affected, .. } = row_set;
        let output =
            |structured: Value, text: String| ToolOutput::text(text).with_structured_content(structured);
        if self.spec.result_shape == SqlResultShape::Rows {
            let n_rows = rows.len();
            let mut members = Map::new();
            members.insert("rows".to_owned(), rows.into_iter().map(Value::Object).collect());
            if is_truncated {
                members.insert("truncated".to_owned(), Value::Bool(true));
            }
            if self.spec.write {
                members.insert("affected".to_owned(), Value::from(rows_affected));
            }
            let structured = Value::Object(members);
            let text = structured.to_string();
            let mut output = output(structured, text);
            if is_truncated {
                output
                    .content
                    .push(Content::text(format!("truncated: only the first {n_rows} rows are shown")));
            }
            return Ok(output);
        }
        let row = match rows.into_iter().next() {
            Some(row) => row,
            None if is_truncated => {
                let message = format!("the row is larger than {} bytes", self.spec.max_bytes);
                return Err(QueryError::Rejected(message));
            }
            None => return Err(QueryError::NoRow),
        };
        if self.spec.result_shape == SqlResultShape::Row {
            let structured = Value::Object(row);
            let text = structured.to_string();
            return Ok(output(structured, text));
        }
        let value = row.into_iter().next().map_or(Value::Null, |(_, value)| value);
        let text = value_text(&value);
        Ok(output(json!({ "value": value }), text))
    }
}

impl ToolBackend for SqlBackend {
    fn execute<'a>(&'a self, _cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(self.run(arguments))
    }

    fn read<'a>(&'a self, _cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendReadFuture<'a> {
        Box::pin(async move {
            match self.run_statement(arguments).await {
                Ok(output) => Ok(Some(output)),
                Err(QueryError::NoRow) => Ok(None),
                Err(error) => Err(self.to_tool_error(error)),
            }
        })
    }

    fn output_schema(&self) -> Option<Value> {
        self.result_schema.get().cloned()
    }
}

/// Returns whether a value contains NUL. PostgreSQL rejects NUL in text, SQLite truncates the text there, and MySQL
/// stores it; none of this is ever intended.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}
