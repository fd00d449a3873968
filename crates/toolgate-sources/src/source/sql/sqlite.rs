//! SQLite: a file, opened for reading.
//!
//! Writes are prevented twice: the file is opened with `mode=ro`, and `query_only` rejects writes to attached
//! databases. A query is stopped from inside, by a progress handler that SQLite calls periodically.

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

/// The heap limit of SQLite in this process. It bounds the cost of a single value.
const HEAP_LIMIT_BYTES: &str = "268435456";

/// Virtual machine steps between two calls of the progress handler.
const PROGRESS_HANDLER_STEPS: i32 = 1000;

/// Parses `path`, `file:path` and `sqlite:path`, with `mode` and `immutable` as query parameters.
pub(super) fn parse_options(url: &str) -> Result<SqliteConnectOptions, String> {
    let without_scheme =
        ["sqlite://", "sqlite:", "file://", "file:"].iter().find_map(|prefix| url.strip_prefix(prefix));
    let (path, query) = match without_scheme.unwrap_or(url).split_once('?') {
        Some((path, query)) => (path, query),
        None => (without_scheme.unwrap_or(url), ""),
    };
    if path.is_empty() || path == ":memory:" {
        return Err("an SQLite database must be a file, for example \"file:/data/catalog.db\"".to_owned());
    }
    let mut options = SqliteConnectOptions::new().filename(Path::new(path)).create_if_missing(false);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        options = match pair {
            // `read_only` decides whether the database is writable.
            "mode=ro" | "mode=rw" => options,
            "immutable=1" | "immutable=true" => options.immutable(true),
            "mode=memory" => {
                return Err("an in-memory database is empty; use a file".to_owned());
            }
            _ => return Err(format!("{pair} is not supported; known are mode=ro, mode=rw and immutable=1")),
        };
    }
    Ok(options.disable_statement_logging())
}

pub(super) fn pool(
    pool: SqlitePoolOptions,
    options: SqliteConnectOptions,
    access: AccessMode,
    busy_timeout: Duration,
) -> SqlitePool {
    let is_read_only = access == AccessMode::Read;
    let options = options
        .read_only(is_read_only)
        .busy_timeout(busy_timeout)
        .row_buffer_size(16)
        .pragma("hard_heap_limit", HEAP_LIMIT_BYTES)
        .pragma("trusted_schema", "OFF")
        .pragma("query_only", if is_read_only { "ON" } else { "OFF" });
    pool.connect_lazy_with(options)
}

pub(super) async fn run(
    connection: &mut SqliteConnection,
    job: &QueryJob,
    stop: &Arc<AtomicBool>,
) -> Result<RowSet, CollectError> {
    let stop_flag = Arc::clone(stop);
    let should_continue = move || !stop_flag.load(Ordering::Relaxed);
    connection.lock_handle().await?.set_progress_handler(PROGRESS_HANDLER_STEPS, should_continue);
    let mut arguments = SqliteArguments::default();
    for (name, value) in job.parameter_values() {
        bind(&mut arguments, name, value).map_err(CollectError::Query)?;
    }
    let sql = job.statement.render(|index| format!("?{}", index + 1));
    let query = sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(false);
    // A statement is its own transaction. If it is interrupted, SQLite rolls it back.
    let row_set = collect_rows::<Sqlite>(connection.fetch_many(query), job.limits, job.access).await;
    // The handler stops the rest of the query, which frees the connection.
    stop.store(true, Ordering::Relaxed);
    row_set
}

fn bind(arguments: &mut SqliteArguments, name: &str, value: &Value) -> Result<(), QueryError> {
    let result = match value {
        Value::Null => arguments.add(None::<String>),
        Value::Bool(value) => arguments.add(*value),
        Value::Number(number) => match (number.as_i64(), number.is_u64()) {
            (Some(number), _) => arguments.add(number),
            (None, true) => {
                let message = format!("{name}: {number} is larger than the largest SQLite integer");
                return Err(QueryError::InvalidArgument(message));
            }
            (None, false) => arguments.add(number.as_f64()),
        },
        Value::String(text) => arguments.add(text.clone()),
        document => arguments.add(document.to_string()),
    };
    result.map_err(|error| QueryError::Database(error.to_string()))
}

impl DecodeRow for Sqlite {
    fn decode_value(row: &SqliteRow, index: usize) -> Result<Value, String> {
        let to_message = |error: sqlx::Error| error.to_string();
        let value = row.try_get_raw(index).map_err(to_message)?;
        if value.is_null() {
            return Ok(Value::Null);
        }
        let declared = row.column(index).type_info().name().to_owned();
        let stored = value.type_info().name().to_owned();
        let decoded = match stored.as_str() {
            "INTEGER" => value::integer(row.try_get_unchecked(index).map_err(to_message)?),
            "REAL" => value::float(row.try_get_unchecked(index).map_err(to_message)?),
            "TEXT" => value::text(row.try_get_unchecked(index).map_err(to_message)?),
            _ => value::bytes(row.try_get_unchecked(index).map_err(to_message)?),
        };
        Ok(coerce_to_declared(&declared, decoded))
    }

    fn rows_affected(result: &SqliteQueryResult) -> u64 {
        result.rows_affected()
    }
}

/// SQLite accepts any value in most columns. A value that does not fit the declared type becomes a string, so that
/// the output schema holds.
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

/// Returns the columns of a statement: name, type, and whether it may be NULL.
pub(super) async fn describe(
    connection: &mut SqliteConnection,
    statement: &Statement,
) -> Result<Vec<(String, ColumnType, bool)>, sqlx::Error> {
    let sql = statement.render(|index| format!("?{}", index + 1));
    let prepared = connection.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
    // A view may contain an outer join, and SQLite reports the joined tables.
    let n_views: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'view'")
        .fetch_one(&mut *connection)
        .await?;
    let may_be_null = statement.has_nullable_columns || n_views > 0;
    let mut columns = Vec::new();
    for column in prepared.columns() {
        let nullable = may_be_null || is_nullable(connection, column).await?;
        columns.push((column.name().to_owned(), column_type(column), nullable));
    }
    Ok(columns)
}

async fn is_nullable(connection: &mut SqliteConnection, column: &SqliteColumn) -> Result<bool, sqlx::Error> {
    let ColumnOrigin::Table(origin) = column.origin() else {
        return Ok(true);
    };
    let table = origin.table.rsplit('.').next().unwrap_or_default().to_owned();
    // Of the primary keys, only an alias of the rowid is never NULL.
    let never_null: Option<bool> = sqlx::query_scalar(
        "SELECT \"notnull\" OR (pk AND upper(type) = 'INTEGER' \
         AND (SELECT count(*) FROM pragma_table_info(?1) WHERE pk) = 1) FROM pragma_table_info(?1) WHERE name = ?2",
    )
    .bind(table)
    .bind(origin.name.to_string())
    .fetch_optional(connection)
    .await?;
    Ok(!never_null.unwrap_or(false))
}
