//! Statements as tools: SQLite, PostgreSQL, MySQL and MariaDB.
//!
//! An argument is always bound, never written into a statement. Unless a connection and a tool both say that they
//! write, the database itself refuses to. A query has a time, a number of rows and a size, and is ended on the
//! server when nobody waits for it any more.

mod connection;
mod fail;
mod gather;
mod mysql;
mod postgres;
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
use toolgate::{Context, RawJson, HandlerError};

use self::connection::{Job, Plans};
pub(crate) use self::connection::{Pooled, SqlConnection};
use self::fail::Failure;
use self::gather::{Found, Limits, distinct};
use self::statement::{May, Statement};
use super::{Act, Acting, Problem, Reading};
use crate::clock::Stopwatch;
use crate::observe;

/// How many completions a client is shown.
const COMPLETIONS: usize = 100;

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
pub(crate) struct SqlConnectionSpec {
    /// The name that the log calls it by.
    pub(crate) name: String,
    pub(crate) driver: Driver,
    /// `file:/data/catalog.db`, `postgres://user:password@host:5432/database`, `mysql://…`.
    pub(crate) address: String,
    /// Connections at once.
    pub(crate) max: u32,
    /// Queries that may wait for a connection; one more is told to come again.
    pub(crate) queue: usize,
    /// A connection that nobody used for so long is closed.
    pub(crate) idle: Duration,
    /// How long a query waits for a connection.
    pub(crate) wait: Duration,
    /// Enforced by the database. A tool that writes needs `false` here and `write` there.
    pub(crate) read_only: bool,
}

impl SqlConnectionSpec {
    pub(crate) fn new(name: impl Into<String>, driver: Driver, address: impl Into<String>) -> Self {
        SqlConnectionSpec {
            name: name.into(),
            driver,
            address: address.into(),
            max: 8,
            queue: 64,
            idle: Duration::from_secs(5 * 60),
            wait: Duration::from_secs(2),
            read_only: true,
        }
    }
}

/// Where the statement comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// It is written in the file, with `:name` or `$name` for arguments.
    Written(String),
    /// The client gives it, as this argument. Only for reading.
    From(String),
}

/// What a tool makes of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Output {
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
    pub(crate) query: Query,
    pub(crate) output: Output,
    /// The statement changes the database.
    pub(crate) write: bool,
    pub(crate) timeout: Duration,
    pub(crate) max_rows: usize,
    pub(crate) max_bytes: usize,
    /// Tell the client what the database said about a statement that failed.
    pub(crate) expose_errors: bool,
}

impl SqlSpec {
    pub(crate) fn new(query: Query) -> Self {
        SqlSpec {
            query,
            output: Output::Rows,
            write: false,
            timeout: Duration::from_secs(5),
            max_rows: 1000,
            max_bytes: 1024 * 1024,
            expose_errors: false,
        }
    }
}

/// A statement that can be run.
pub(crate) struct SqlAct {
    spec: SqlSpec,
    connection: Arc<SqlConnection>,
    /// What is written in the file; nothing if clients give it.
    statement: Option<Arc<Statement>>,
    plan: Arc<Plans>,
    schema: OnceLock<Value>,
}

impl SqlAct {
    /// Checks a description. `arguments` is the schema of all arguments, those from the caller among them.
    pub(crate) fn new(
        spec: SqlSpec,
        connection: Arc<SqlConnection>,
        arguments: &Value,
    ) -> Result<SqlAct, Vec<Problem>> {
        let problem = |at: &str, said: String| Problem { at: at.to_owned(), said };
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
        let may = if spec.write { May::Write } else { May::Read };
        let statement = match &spec.query {
            Query::Written(text) => {
                let read =
                    Statement::read(connection.driver, text, may, |name| properties.contains_key(name));
                let complain = |said: Vec<String>| {
                    problems.extend(said.into_iter().map(|said| problem("query", said)));
                };
                read.map_err(complain).ok().map(Arc::new)
            }
            Query::From(argument) => {
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
        let plan = Arc::new(Plans::new(properties));
        match problems.is_empty() {
            true => Ok(SqlAct { spec, connection, statement, plan, schema: OnceLock::new() }),
            false => Err(problems),
        }
    }

    /// Asks the database what the statement gives; afterwards the output has a schema. An error says why it cannot be
    /// known yet, or what is wrong with the statement. Without it, the tool works all the same.
    pub(crate) async fn describe(&self) -> Result<(), String> {
        let schema = match &self.statement {
            None => self.schema_of(&json!({ "type": "object" }), &json!({})),
            Some(statement) => {
                let columns = self.connection.describe(statement, &self.plan, self.may()).await?;
                let names = distinct(columns.iter().map(|(name, _, _)| name.as_str()));
                let schemas = columns.iter().map(|(_, holds, nullable)| holds.schema(*nullable));
                let properties: Map<String, Value> = names.iter().cloned().zip(schemas).collect();
                let first = properties.values().next().cloned().unwrap_or_else(|| json!({}));
                let row = json!({ "type": "object", "properties": properties, "required": names });
                self.schema_of(&row, &first)
            }
        };
        // Described twice, it says the same.
        let _ = self.schema.set(schema);
        Ok(())
    }

    fn schema_of(&self, row: &Value, first: &Value) -> Value {
        match self.spec.output {
            Output::Row => row.clone(),
            Output::Value => {
                json!({ "type": "object", "properties": { "value": first }, "required": ["value"] })
            }
            Output::Rows => {
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
        self.shaped(arguments).await.map_err(|failure| self.tell(failure))
    }

    async fn shaped(&self, arguments: &Map<String, Value>) -> Result<ToolOutput, Failure> {
        let found = self.found(arguments, self.limits()).await?;
        self.shape(found)
    }

    /// The first column as texts: what may be completed with, if the statement has a `:prefix`.
    pub(crate) async fn complete(&self, arguments: &Map<String, Value>) -> Result<Vec<String>, HandlerError> {
        let limits = Limits { rows: COMPLETIONS, bytes: self.spec.max_bytes };
        let found = self.found(arguments, limits).await.map_err(|failure| self.tell(failure))?;
        let first = found.rows.into_iter().filter_map(|row| row.into_iter().next());
        Ok(first.filter(|(_, value)| !value.is_null()).map(|(_, value)| plain(&value)).collect())
    }

    fn tell(&self, failure: Failure) -> HandlerError {
        failure.tell(&self.connection.name, self.spec.expose_errors)
    }

    fn may(&self) -> May {
        if self.spec.write { May::Write } else { May::Read }
    }

    fn limits(&self) -> Limits {
        let rows = if self.spec.output == Output::Rows { self.spec.max_rows } else { 1 };
        Limits { rows, bytes: self.spec.max_bytes }
    }

    async fn found(&self, arguments: &Map<String, Value>, limits: Limits) -> Result<Found, Failure> {
        let statement = match (&self.statement, &self.spec.query) {
            (Some(statement), _) => Arc::clone(statement),
            (None, Query::From(argument)) => {
                let text = arguments.get(argument).and_then(Value::as_str).unwrap_or_default();
                let read = Statement::read(self.connection.driver, text, May::Read, |_| false);
                Arc::new(read.map_err(|said| Failure::Refused(said.join("; ")))?)
            }
            (None, Query::Written(_)) => return Err(Failure::Refused("there is no statement".to_owned())),
        };
        let with_nul = statement.names().iter().find(|name| arguments.get(*name).is_some_and(has_nul));
        if let Some(name) = with_nul {
            return Err(Failure::Argument(format!("{name}: a NUL character cannot be in a text")));
        }
        let job = Job {
            statement,
            arguments: arguments.clone(),
            may: self.may(),
            free: self.statement.is_none(),
            limits,
            timeout: self.spec.timeout,
            plan: Arc::clone(&self.plan),
        };
        if !observe::is_on() {
            return self.connection.run(job).await;
        }
        let (watch, text) = (Stopwatch::start(), Arc::clone(&job.statement));
        let found = self.connection.run(job).await;
        observe::collectors().sql.note(watch.took(), found.is_ok(), |captures| {
            json!({
                "connection": self.connection.name,
                "driver": self.connection.driver.key(),
                // With names where arguments are: those are not kept, and neither is what a client wrote itself.
                "statement": (captures && self.statement.is_some()).then(|| text.brief()),
                "rows": found.as_ref().map(|found| found.rows.len()).ok(),
                "ok": found.is_ok(),
            })
        });
        found
    }

    fn shape(&self, found: Found) -> Result<ToolOutput, Failure> {
        let Found { rows, truncated, affected, .. } = found;
        let output = |structured: Value, text: String| {
            let structured = Some(RawJson::from(&structured));
            ToolOutput { structured_content: structured, ..ToolOutput::text(text) }
        };
        if self.spec.output == Output::Rows {
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
                return Err(Failure::Refused(words));
            }
            None => return Err(Failure::NoRow),
        };
        if self.spec.output == Output::Row {
            let structured = Value::Object(row);
            let text = structured.to_string();
            return Ok(output(structured, text));
        }
        let value = row.into_iter().next().map_or(Value::Null, |(_, value)| value);
        let text = plain(&value);
        Ok(output(json!({ "value": value }), text))
    }
}

impl Act for SqlAct {
    fn act<'a>(&'a self, _cx: &'a Context, arguments: &'a Map<String, Value>) -> Acting<'a> {
        Box::pin(self.run(arguments))
    }

    fn read<'a>(&'a self, _cx: &'a Context, arguments: &'a Map<String, Value>) -> Reading<'a> {
        Box::pin(async move {
            match self.shaped(arguments).await {
                Ok(output) => Ok(Some(output)),
                Err(Failure::NoRow) => Ok(None),
                Err(failure) => Err(self.tell(failure)),
            }
        })
    }

    fn output_schema(&self) -> Option<Value> {
        self.schema.get().cloned()
    }
}

/// A text as it is, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
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
