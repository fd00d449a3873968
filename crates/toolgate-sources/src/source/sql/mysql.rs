//! MySQL and MariaDB. Every query runs in a transaction, which the server keeps read-only unless the tool writes.
//!
//! The server stops a statement at its timeout. A statement whose caller stopped waiting is cancelled from a second
//! connection with `KILL QUERY`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use sqlx::mysql::{
    MySqlArguments, MySqlColumn, MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions,
    MySqlQueryResult, MySqlRow, MySqlTypeInfo,
};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ColumnOrigin, ConnectOptions as _, Connection as _,
    Executor as _, MySql, Row as _, SqlSafeStr as _, Statement as _, TypeInfo as _, ValueRef as _,
};

use super::error::QueryError;
use super::query_job::QueryJob;
use super::row_collector::{CollectError, DecodeRow, RowSet, collect_rows};
use super::statement::{AccessMode, Statement};
use super::value::{self, ColumnType};

/// The two servers have different variables for the statement timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavor {
    MariaDb,
    MySql,
}

pub(super) fn parse_options(url: &str) -> Result<MySqlConnectOptions, String> {
    let url = match url.strip_prefix("mariadb://") {
        Some(rest) => format!("mysql://{rest}"),
        None => url.to_owned(),
    };
    let options: MySqlConnectOptions = url.parse().map_err(|error: sqlx::Error| error.to_string())?;
    Ok(options.disable_statement_logging())
}

pub(super) fn pool(
    pool: MySqlPoolOptions,
    options: MySqlConnectOptions,
    access: AccessMode,
    flavor: &Arc<OnceLock<Flavor>>,
) -> MySqlPool {
    let flavor = Arc::clone(flavor);
    let pool = pool.after_connect(move |connection, _| {
        let flavor = Arc::clone(&flavor);
        Box::pin(async move {
            // A fixed SQL mode, in which quotes and backslashes mean what the tokenizer assumes.
            let mode = "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,\
                        NO_ENGINE_SUBSTITUTION,PIPES_AS_CONCAT'";
            connection.execute(sqlx::raw_sql(mode)).await?;
            if access == AccessMode::Read {
                connection.execute(sqlx::raw_sql("SET SESSION TRANSACTION READ ONLY")).await?;
            }
            let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut *connection).await?;
            let detected = if version.contains("MariaDB") { Flavor::MariaDb } else { Flavor::MySql };
            // All connections of a pool have the same flavor.
            let _ = flavor.set(detected);
            Ok(())
        })
    });
    pool.connect_lazy_with(options)
}

/// Runs a query. Stores the server's thread id in `thread` as soon as it is known.
pub(super) async fn run(
    connection: &mut MySqlConnection,
    job: &QueryJob,
    flavor: Flavor,
    thread: &AtomicU64,
) -> Result<RowSet, CollectError> {
    let mut arguments = MySqlArguments::default();
    for name in job.statement.parameters_in_order() {
        bind(&mut arguments, job.argument(name)).map_err(CollectError::Query)?;
    }
    let limit = match flavor {
        Flavor::MariaDb => format!("SET max_statement_time = {}", job.timeout.as_secs_f64()),
        Flavor::MySql => format!("SET max_execution_time = {}", job.timeout.as_millis().max(1)),
    };
    let kind = match job.access {
        AccessMode::Read => "READ ONLY",
        AccessMode::Write => "READ WRITE",
    };
    let begin = format!("{limit}; START TRANSACTION {kind}; SELECT CONNECTION_ID()");
    let rows = sqlx::raw_sql(AssertSqlSafe(begin)).fetch_all(&mut *connection).await?;
    let id = rows.first().and_then(|row| row.try_get::<u64, _>(0).ok()).unwrap_or_default();
    thread.store(id, Ordering::Relaxed);

    let sql = job.statement.render(|_| "?".to_owned());
    let query = sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(false);
    let row_set = collect_rows::<MySql>(connection.fetch_many(query), job.limits, job.access).await;
    // Unread rows remain, so the connection is closed, which ends the transaction.
    if matches!(&row_set, Ok(RowSet { has_unread_rows: true, .. }) | Err(CollectError::Query(_))) {
        return row_set;
    }
    let end = match (job.access, row_set.is_ok()) {
        (AccessMode::Write, true) => "COMMIT",
        _ => "ROLLBACK",
    };
    let end_result = connection.execute(sqlx::raw_sql(end)).await;
    let row_set = row_set?;
    end_result?;
    Ok(row_set)
}

pub(super) async fn kill(options: &MySqlConnectOptions, thread: u64) -> Result<(), sqlx::Error> {
    let mut connection = MySqlConnection::connect_with(options).await?;
    connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("KILL QUERY {thread}")))).await?;
    connection.close().await
}

/// Set by the first connection, which exists before any query runs.
pub(super) fn flavor_or_default(flavor: &OnceLock<Flavor>) -> Flavor {
    flavor.get().copied().unwrap_or(Flavor::MySql)
}

fn bind(arguments: &mut MySqlArguments, value: &Value) -> Result<(), QueryError> {
    let added = match value {
        Value::Null => arguments.add(None::<String>),
        Value::Bool(value) => arguments.add(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => arguments.add(number),
            (None, Some(number)) => arguments.add(number),
            _ => arguments.add(number.as_f64()),
        },
        Value::String(text) => arguments.add(text.clone()),
        document => arguments.add(document.to_string()),
    };
    added.map_err(|error| QueryError::Database(error.to_string()))
}

impl DecodeRow for MySql {
    fn decode_value(row: &MySqlRow, index: usize) -> Result<Value, String> {
        let value = row.try_get_raw(index).map_err(|error| error.to_string())?;
        if value.is_null() {
            return Ok(Value::Null);
        }
        let kind = value.type_info().into_owned();
        let bytes: &[u8] = row.try_get_unchecked(index).map_err(|error| error.to_string())?;
        Ok(decode(&kind, bytes))
    }

    fn rows_affected(result: &MySqlQueryResult) -> u64 {
        result.rows_affected()
    }
}

/// Decodes the binary protocol: little-endian numbers, dates with a length prefix.
fn decode(kind: &MySqlTypeInfo, bytes: &[u8]) -> Value {
    let name = kind.name();
    match name {
        "BOOLEAN" => Value::Bool(bytes.iter().any(|byte| *byte != 0)),
        "YEAR" => value::unsigned(u64_le(bytes)),
        "BIT" => value::unsigned(bytes.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))),
        "FLOAT" => bytes.try_into().map_or(Value::Null, |bytes| value::float4(f32::from_le_bytes(bytes))),
        "DOUBLE" => bytes.try_into().map_or(Value::Null, |bytes| value::float(f64::from_le_bytes(bytes))),
        "DATE" | "DATETIME" | "TIMESTAMP" => Value::from(format_datetime(name, bytes)),
        "TIME" => Value::from(format_time(bytes)),
        "JSON" => value::json_document(bytes),
        "DECIMAL" | "ENUM" | "SET" => value::text(bytes),
        _ if name.ends_with("INT UNSIGNED") => value::unsigned(u64_le(bytes)),
        _ if name.ends_with("INT") => value::integer(i64_le(bytes)),
        _ if is_text(kind) => value::text(bytes),
        _ => value::bytes(bytes),
    }
}

/// Text with a binary collation has the type name of a blob.
fn is_text(kind: &MySqlTypeInfo) -> bool {
    <String as sqlx::Type<MySql>>::compatible(kind)
}

fn u64_le(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn i64_le(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().clamp(1, 8);
    (u64_le(bytes) << unused).cast_signed() >> unused
}

fn int_at(bytes: &[u8], from: usize, length: usize) -> i64 {
    u64_le(bytes.get(from..from + length).unwrap_or_default()).cast_signed()
}

/// `length, year (2), month, day, hour, minute, second, microseconds (4)`; trailing zero fields are omitted.
fn format_datetime(name: &str, bytes: &[u8]) -> String {
    let day = value::ymd(int_at(bytes, 1, 2), int_at(bytes, 3, 1), int_at(bytes, 4, 1));
    if name == "DATE" {
        return day;
    }
    let time = value::hms(int_at(bytes, 5, 1), int_at(bytes, 6, 1), int_at(bytes, 7, 1), int_at(bytes, 8, 4));
    // Sessions use UTC, so a `TIMESTAMP` is in UTC; a `DATETIME` has no time zone.
    let zone = if name == "TIMESTAMP" { "Z" } else { "" };
    format!("{day}T{time}{zone}")
}

/// `length, negative, days (4), hours, minutes, seconds, microseconds (4)`.
fn format_time(bytes: &[u8]) -> String {
    let sign = if int_at(bytes, 1, 1) == 1 { "-" } else { "" };
    let hours = int_at(bytes, 2, 4) * 24 + int_at(bytes, 6, 1);
    let rest = value::hms(hours, int_at(bytes, 7, 1), int_at(bytes, 8, 1), int_at(bytes, 9, 4));
    format!("{sign}{rest}")
}

fn column_type(column: &MySqlColumn) -> ColumnType {
    let kind = column.type_info();
    match kind.name() {
        "BOOLEAN" => ColumnType::Boolean,
        "BIGINT" | "BIGINT UNSIGNED" | "BIT" => ColumnType::BigInteger,
        "FLOAT" | "DOUBLE" => ColumnType::Float,
        "DATE" => ColumnType::Date,
        "DATETIME" | "TIME" | "ENUM" | "SET" => ColumnType::Text,
        "TIMESTAMP" => ColumnType::DateTime,
        "DECIMAL" => ColumnType::Decimal,
        "JSON" | "NULL" => ColumnType::Any,
        name if name == "YEAR" || name.ends_with("INT") || name.ends_with("INT UNSIGNED") => {
            ColumnType::Integer
        }
        _ if is_text(kind) => ColumnType::Text,
        _ => ColumnType::Base64,
    }
}

pub(super) async fn describe(
    connection: &mut MySqlConnection,
    statement: &Statement,
) -> Result<Vec<(String, ColumnType, bool)>, sqlx::Error> {
    let sql = statement.render(|_| "?".to_owned());
    let prepared = connection.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
    // A view may contain an outer join.
    let n_views: i64 =
        sqlx::query_scalar("SELECT count(*) FROM information_schema.views WHERE table_schema = DATABASE()")
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

async fn is_nullable(connection: &mut MySqlConnection, column: &MySqlColumn) -> Result<bool, sqlx::Error> {
    let ColumnOrigin::Table(origin) = column.origin() else {
        return Ok(true);
    };
    // A zero date decodes to NULL, even in a NOT NULL column.
    if matches!(column.type_info().name(), "DATE" | "DATETIME" | "TIMESTAMP") {
        return Ok(true);
    }
    let table = origin.table.rsplit('.').next().unwrap_or_default().to_owned();
    let is_nullable_text: Option<String> = sqlx::query_scalar(
        "SELECT is_nullable FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name = ? AND column_name = ?",
    )
    .bind(table)
    .bind(origin.name.to_string())
    .fetch_optional(connection)
    .await?;
    Ok(is_nullable_text.as_deref() != Some("NO"))
}
