//! Statements as tools: SQLite, PostgreSQL, MySQL and MariaDB.
//!
//! An argument is always bound, never written into a statement. Unless a connection and a tool both say that they
//! write, the database itself refuses to. A query has a time, a number of rows and a size, and is ended on the
//! server when nobody waits for it any more.

mod error;
mod mysql;
mod pool;
mod postgres;
mod query_job;
mod row_collector;
mod sqlite;
mod statement;
#[cfg(test)]
mod tests;
mod token;
mod value;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolgate::model::{Content, ToolOutput};
use toolgate::{Context, HandlerError, RawJson};

use self::error::QueryError;
pub(crate) use self::pool::{PoolStats, SqlPool};
use self::query_job::{PlanCache, QueryJob};
use self::row_collector::{RowLimits, RowSet, unique_names};
use self::statement::{AccessMode, Statement};
use super::{BackendFuture, BackendReadFuture, Problem, ToolBackend, value_text};
use crate::clock::Stopwatch;
use crate::observe;

/// How many completions a client is shown.
const MAX_COMPLETIONS: usize = 100;

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Sqlite,
    Postgres,
    MySql,
}

impl Driver {
    /// The key that a connection has in a file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Driver::Sqlite => "sqlite",
            Driver::Postgres => "postgres",
            Driver::MySql => "mysql",
        }
    }
}

/// A database, as it is described. It holds a password, so it cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SqlPoolSpec {
    /// The name that the log calls it by.
    pub(crate) name: String,
    pub(crate) driver: Driver,
    /// `file:/data/catalog.db`, `postgres://user:password@host:5432/database`, `mysql://…`.
    pub(crate) url: String,
    /// Connections at once.
    pub(crate) max_connections: u32,
    /// Queries that may wait for a connection; one more is told to come again.
    pub(crate) max_queued: usize,
    /// A connection that nobody used for so long is closed.
    pub(crate) idle_timeout: Duration,
    /// How long a query waits for a connection.
    pub(crate) acquire_timeout: Duration,
    /// Enforced by the database. A tool that writes needs `false` here and `write` there.
    pub(crate) read_only: bool,
}

impl SqlPoolSpec {
    pub(crate) fn new(name: impl Into<String>, driver: Driver, address: impl Into<String>) -> Self {
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

/// Where the statement comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuerySource {
    /// It is written in the file, with `:name` or `$name` for arguments.
    Static(String),
    /// The client gives it, as this argument. Only for reading.
    FromArgument(String),
}

/// What a tool makes of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SqlResultShape {
    /// `{ "rows": [ … ] }`
    #[default]
    Rows,
    /// The first row; an error if there is none.
    Row,
    /// `{ "value": … }`, the first column of the first row; an error if there is none.
    Value,
}

/// A statement, as it is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqlSpec {
    pub(crate) query: QuerySource,
    pub(crate) result_shape: SqlResultShape,
    /// The statement changes the database.
    pub(crate) write: bool,
    pub(crate) timeout: Duration,
    pub(crate) max_rows: usize,
    pub(crate) max_bytes: usize,
    /// Tell the client what the database said about a statement that failed.
    pub(crate) expose_errors: bool,
}

impl SqlSpec {
    pub(crate) fn new(query: QuerySource) -> Self {
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

/// A statement that can be run.
pub(crate) struct SqlBackend {
    spec: SqlSpec,
    pool: Arc<SqlPool>,
    /// What is written in the file; nothing if clients give it.
    statement: Option<Arc<Statement>>,
    plan_cache: Arc<PlanCache>,
    result_schema: OnceLock<Value>,
}

impl SqlBackend {
    /// Checks a description. `arguments` is the schema of all arguments, those from the caller among them.
    pub(crate) fn new(
        spec: SqlSpec,
        connection: Arc<SqlPool>,
        arguments: &Value,
    ) -> Result<SqlBackend, Vec<Problem>> {
        let problem = |at: &str, said: String| Problem { path: at.to_owned(), message: said };
        let mut problems = Vec::new();
        if spec.write && connection.read_only {
            let said = format!("connection {} is read-only; it needs read_only = false", connection.name);
            problems.push(problem("write", said));
        }
        if spec.timeout.is_zero() {
            problems.push(problem("timeout", "a query needs some time".to_owned()));
        }
        let nothing = Map::new();
        let properties = arguments.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
        let may = if spec.write { AccessMode::Write } else { AccessMode::Read };
        let statement = match &spec.query {
            QuerySource::Static(text) => {
                let read =
                    Statement::parse(connection.driver, text, may, |name| properties.contains_key(name));
                let complain = |said: Vec<String>| {
                    problems.extend(said.into_iter().map(|said| problem("query", said)));
                };
                read.map_err(complain).ok().map(Arc::new)
            }
            QuerySource::FromArgument(argument) => {
                if spec.write {
                    problems.push(problem("write", "a statement from a client can only read".to_owned()));
                }
                if !properties.contains_key(argument) {
                    let said = format!("{argument} is not an argument; add {argument} to args");
                    problems.push(problem("query_from", said));
                }
                None
            }
        };
        let plan = Arc::new(PlanCache::new(properties));
        match problems.is_empty() {
            true => Ok(SqlBackend {
                spec,
                pool: connection,
                statement,
                plan_cache: plan,
                result_schema: OnceLock::new(),
            }),
            false => Err(problems),
        }
    }

    /// Asks the database what the statement gives; afterwards the output has a schema. An error says why it cannot be
    /// known yet, or what is wrong with the statement. Without it, the tool works all the same.
    pub(crate) async fn describe(&self) -> Result<(), String> {
        let schema = match &self.statement {
            None => self.build_result_schema(&json!({ "type": "object" }), &json!({})),
            Some(statement) => {
                let columns = self.pool.describe(statement, &self.plan_cache, self.access()).await?;
                let names = unique_names(columns.iter().map(|(name, _, _)| name.as_str()));
                let schemas = columns.iter().map(|(_, holds, nullable)| holds.schema(*nullable));
                let properties: Map<String, Value> = names.iter().cloned().zip(schemas).collect();
                let first = properties.values().next().cloned().unwrap_or_else(|| json!({}));
                let row = json!({ "type": "object", "properties": properties, "required": names });
                self.build_result_schema(&row, &first)
            }
        };
        // Described twice, it says the same.
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

    /// Runs the statement with these arguments. Cancel safe: yes, see [`SqlConnection::run`].
    pub(crate) async fn run(&self, arguments: &Map<String, Value>) -> Result<ToolOutput, HandlerError> {
        self.run_statement(arguments).await.map_err(|failure| self.to_tool_error(failure))
    }

    async fn run_statement(&self, arguments: &Map<String, Value>) -> Result<ToolOutput, QueryError> {
        let found = self.query_rows(arguments, self.limits()).await?;
        self.to_output(found)
    }

    /// The first column as texts: what may be completed with, if the statement has a `:prefix`.
    pub(crate) async fn complete(&self, arguments: &Map<String, Value>) -> Result<Vec<String>, HandlerError> {
        let limits = RowLimits { rows: MAX_COMPLETIONS, bytes: self.spec.max_bytes };
        let found =
            self.query_rows(arguments, limits).await.map_err(|failure| self.to_tool_error(failure))?;
        let first = found.rows.into_iter().filter_map(|row| row.into_iter().next());
        Ok(first.filter(|(_, value)| !value.is_null()).map(|(_, value)| value_text(&value)).collect())
    }

    fn to_tool_error(&self, failure: QueryError) -> HandlerError {
        failure.into_tool_error(&self.pool.name, self.spec.expose_errors)
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
                let read = Statement::parse(self.pool.driver, text, AccessMode::Read, |_| false);
                Arc::new(read.map_err(|said| QueryError::Rejected(said.join("; ")))?)
            }
            (None, QuerySource::Static(_)) => {
                return Err(QueryError::Rejected("there is no statement".to_owned()));
            }
        };
        let with_nul =
            statement.parameter_names().iter().find(|name| arguments.get(*name).is_some_and(has_nul));
        if let Some(name) = with_nul {
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
        if !observe::is_enabled() {
            return self.pool.run(job).await;
        }
        let (watch, text) = (Stopwatch::start(), Arc::clone(&job.statement));
        let found = self.pool.run(job).await;
        observe::collectors().sql.record(watch.elapsed(), found.is_ok(), |captures| {
            json!({
                "connection": self.pool.name,
                "driver": self.pool.driver.key(),
                // With names where arguments are: those are not kept, and neither is what a client wrote itself.
                "statement": (captures && self.statement.is_some()).then(|| text.summary()),
                "rows": found.as_ref().map(|found| found.rows.len()).ok(),
                "ok": found.is_ok(),
            })
        });
        found
    }

    fn to_output(&self, found: RowSet) -> Result<ToolOutput, QueryError> {
        let RowSet { rows, is_truncated: truncated, rows_affected: affected, .. } = found;
        let output = |structured: Value, text: String| {
            let structured = Some(RawJson::from(&structured));
            ToolOutput { structured_content: structured, ..ToolOutput::text(text) }
        };
        if self.spec.result_shape == SqlResultShape::Rows {
            let n_rows = rows.len();
            let mut members = Map::new();
            members.insert("rows".to_owned(), rows.into_iter().map(Value::Object).collect());
            if truncated {
                members.insert("truncated".to_owned(), Value::Bool(true));
            }
            if self.spec.write {
                members.insert("affected".to_owned(), Value::from(affected));
            }
            let structured = Value::Object(members);
            let text = structured.to_string();
            let mut output = output(structured, text);
            if truncated {
                output
                    .content
                    .push(Content::text(format!("truncated: only the first {n_rows} rows are shown")));
            }
            return Ok(output);
        }
        let row = match rows.into_iter().next() {
            Some(row) => row,
            None if truncated => {
                let words = format!("the row is larger than {} bytes", self.spec.max_bytes);
                return Err(QueryError::Rejected(words));
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
                Err(failure) => Err(self.to_tool_error(failure)),
            }
        })
    }

    fn output_schema(&self) -> Option<Value> {
        self.result_schema.get().cloned()
    }
}

/// PostgreSQL takes no NUL in a text, SQLite stops reading there, MySQL keeps it: nobody means one.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}
