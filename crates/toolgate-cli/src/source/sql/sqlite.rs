//! SQLite: a file, opened for reading.
//!
//! Two locks on the door: the file is opened with `mode=ro`, and `query_only` refuses every write to what else there
//! might be. A query is stopped from inside, by a handler that SQLite asks every so often.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use sqlx::sqlite::{
    SqliteArguments, SqliteColumn, SqliteConnectOptions, SqliteConnection, SqlitePool, SqlitePoolOptions,
    SqliteQueryResult, SqliteRow,
};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ColumnOrigin, ConnectOptions as _, Executor as _, Row as _,
    SqlSafeStr as _, Sqlite, Statement as _, TypeInfo as _, ValueRef as _,
};

use super::error::QueryError;
use super::query_job::QueryJob;
use super::row_collector::{CollectError, DecodeRow, RowSet, collect_rows};
use super::statement::{AccessMode, Statement};
use super::value::{self, ColumnType};

/// All of SQLite in this process may use so much. It bounds what one value can cost.
const HEAP_LIMIT_BYTES: &str = "268435456";

/// How many of its steps SQLite takes between two questions whether to go on.
const PROGRESS_HANDLER_STEPS: i32 = 1000;

/// Understands `path`, `file:path` and `sqlite:path`, with `mode` and `immutable` behind a question mark.
pub(super) fn parse_options(address: &str) -> Result<SqliteConnectOptions, String> {
    let bare =
        ["sqlite://", "sqlite:", "file://", "file:"].iter().find_map(|prefix| address.strip_prefix(prefix));
    let (path, query) = match bare.unwrap_or(address).split_once('?') {
        Some((path, query)) => (path, query),
        None => (bare.unwrap_or(address), ""),
    };
    if path.is_empty() || path == ":memory:" {
        return Err("an SQLite database is a file here, for example \"file:/data/catalog.db\"".to_owned());
    }
    let mut options = SqliteConnectOptions::new().filename(Path::new(path)).create_if_missing(false);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        options = match pair {
            // Whether it is written to is said by `read_only`.
            "mode=ro" | "mode=rw" => options,
            "immutable=1" | "immutable=true" => options.immutable(true),
            "mode=memory" => {
                return Err("a database in memory holds nothing to serve; name a file".to_owned());
            }
            _ => return Err(format!("{pair} is not understood; known are mode=ro, mode=rw and immutable=1")),
        };
    }
    Ok(options.disable_statement_logging())
}

pub(super) fn pool(
    pool: SqlitePoolOptions,
    options: SqliteConnectOptions,
    may: AccessMode,
    wait: Duration,
) -> SqlitePool {
    let reading = may == AccessMode::Read;
    let options = options
        .read_only(reading)
        .busy_timeout(wait)
        .row_buffer_size(16)
        .pragma("hard_heap_limit", HEAP_LIMIT_BYTES)
        .pragma("trusted_schema", "OFF")
        .pragma("query_only", if reading { "ON" } else { "OFF" });
    pool.connect_lazy_with(options)
}

pub(super) async fn run(
    connection: &mut SqliteConnection,
    job: &QueryJob,
    stop: &Arc<AtomicBool>,
) -> Result<RowSet, CollectError> {
    let asked = Arc::clone(stop);
    let goes_on = move || !asked.load(Ordering::Relaxed);
    connection.lock_handle().await?.set_progress_handler(PROGRESS_HANDLER_STEPS, goes_on);
    let mut arguments = SqliteArguments::default();
    for (name, value) in job.parameter_values() {
        bind(&mut arguments, name, value).map_err(CollectError::Query)?;
    }
    let sql = job.statement.render(|index| format!("?{}", index + 1));
    let query = sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(false);
    // One statement is one transaction. If it is stopped, SQLite takes it back.
    let found = collect_rows::<Sqlite>(connection.fetch_many(query), job.limits, job.access).await;
    // Whatever is left of it ends at the next question, and the connection is free.
    stop.store(true, Ordering::Relaxed);
    found
}

fn bind(arguments: &mut SqliteArguments, name: &str, value: &Value) -> Result<(), QueryError> {
    let added = match value {
        Value::Null => arguments.add(None::<String>),
        Value::Bool(value) => arguments.add(*value),
        Value::Number(number) => match (number.as_i64(), number.is_u64()) {
            (Some(number), _) => arguments.add(number),
            (None, true) => {
                let words = format!("{name}: {number} is larger than any whole number of SQLite");
                return Err(QueryError::InvalidArgument(words));
            }
            (None, false) => arguments.add(number.as_f64()),
        },
        Value::String(text) => arguments.add(text.clone()),
        document => arguments.add(document.to_string()),
    };
    added.map_err(|error| QueryError::Database(error.to_string()))
}

impl DecodeRow for Sqlite {
    fn decode_value(row: &SqliteRow, index: usize) -> Result<Value, String> {
        let wrong = |error: sqlx::Error| error.to_string();
        let value = row.try_get_raw(index).map_err(wrong)?;
        if value.is_null() {
            return Ok(Value::Null);
        }
        let declared = row.column(index).type_info().name().to_owned();
        let stored = value.type_info().name().to_owned();
        let got = match stored.as_str() {
            "INTEGER" => value::integer(row.try_get_unchecked(index).map_err(wrong)?),
            "REAL" => value::float(row.try_get_unchecked(index).map_err(wrong)?),
            "TEXT" => value::text(row.try_get_unchecked(index).map_err(wrong)?),
            _ => value::bytes(row.try_get_unchecked(index).map_err(wrong)?),
        };
        Ok(coerce_to_declared(&declared, got))
    }

    fn rows_affected(result: &SqliteQueryResult) -> u64 {
        result.rows_affected()
    }
}

/// SQLite lets any value into most columns. What the declared type does not promise becomes a text, so that the
/// schema of the output is kept.
fn coerce_to_declared(declared: &str, value: Value) -> Value {
    match (declared, &value) {
        ("BOOLEAN", Value::Number(number)) if number.as_i64() == Some(0) => Value::Bool(false),
        ("BOOLEAN", Value::Number(number)) if number.as_i64() == Some(1) => Value::Bool(true),
        ("INTEGER", Value::Number(number)) if number.is_f64() => Value::from(number.to_string()),
        ("TEXT", Value::Number(number)) => Value::from(number.to_string()),
        _ => value,
    }
}

fn column_type(column: &SqliteColumn) -> ColumnType {
    match column.type_info().name() {
        "INTEGER" => ColumnType::BigInteger,
        "REAL" => ColumnType::LooseFloat,
        "TEXT" => ColumnType::Text,
        _ => ColumnType::Any,
    }
}

/// The columns of a statement: name, what it holds, whether it may hold nothing.
pub(super) async fn describe(
    connection: &mut SqliteConnection,
    statement: &Statement,
) -> Result<Vec<(String, ColumnType, bool)>, sqlx::Error> {
    let sql = statement.render(|index| format!("?{}", index + 1));
    let prepared = connection.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
    // Behind a view there may be any join, and SQLite names the tables that are joined.
    let n_views: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'view'")
        .fetch_one(&mut *connection)
        .await?;
    let doubtful = statement.has_nullable_columns || n_views > 0;
    let mut columns = Vec::new();
    for column in prepared.columns() {
        let nullable = doubtful || is_nullable(connection, column).await?;
        columns.push((column.name().to_owned(), column_type(column), nullable));
    }
    Ok(columns)
}

async fn is_nullable(connection: &mut SqliteConnection, column: &SqliteColumn) -> Result<bool, sqlx::Error> {
    let ColumnOrigin::Table(origin) = column.origin() else {
        return Ok(true);
    };
    let table = origin.table.rsplit('.').next().unwrap_or_default().to_owned();
    // Of the primary keys, only one that is an alias of the row's number is never empty.
    let sure: Option<bool> = sqlx::query_scalar(
        "SELECT \"notnull\" OR (pk AND upper(type) = 'INTEGER' \
         AND (SELECT count(*) FROM pragma_table_info(?1) WHERE pk) = 1) FROM pragma_table_info(?1) WHERE name = ?2",
    )
    .bind(table)
    .bind(origin.name.to_string())
    .fetch_optional(connection)
    .await?;
    Ok(!sure.unwrap_or(false))
}
