//! PostgreSQL. Every query runs in a transaction, which the server keeps read-only unless the tool writes.
//!
//! The server determines the type of each parameter. Values are sent as text and parsed by the server, so every type
//! with a text form can be an argument: UUIDs, dates, decimals with all their digits, arrays, enumerations. The
//! server stops a statement at its timeout; a statement whose caller stopped waiting is cancelled from a second
//! connection.

mod binary;
mod literal;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArguments, PgColumn, PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgQueryResult, PgRow,
    PgStatement, PgTypeInfo, PgTypeKind, Postgres,
};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Either, Executor as _,
    Row as _, SqlSafeStr as _, Statement as _, TypeInfo as _, ValueRef as _,
};

use self::literal::ParameterFormat;
use super::error::{QueryError, ROW_TOO_LARGE};
use super::query_job::QueryJob;
use super::row_collector::{CollectError, DecodeRow, RowSet, collect_rows};
use super::statement::{AccessMode, Statement};
use super::value::ColumnType;

/// A statement with casts for its parameters, whose types the server reported.
#[derive(Debug)]
pub(super) struct StatementPlan {
    sql: String,
    parameters: Vec<ParameterFormat>,
}

pub(super) fn parse_options(url: &str) -> Result<PgConnectOptions, String> {
    let options: PgConnectOptions = url.parse().map_err(|error: sqlx::Error| error.to_string())?;
    let has_name = options.get_application_name().is_some();
    let options = if has_name { options } else { options.application_name("toolgate") };
    Ok(options.disable_statement_logging())
}

pub(super) fn pool(pool: PgPoolOptions, options: PgConnectOptions, access: AccessMode) -> PgPool {
    let pool = pool.after_connect(move |connection, _| {
        Box::pin(async move {
            // Quotes then mean what the tokenizer assumes.
            connection.execute(sqlx::raw_sql("SET standard_conforming_strings = on")).await?;
            if access == AccessMode::Read {
                connection.execute(sqlx::raw_sql("SET default_transaction_read_only = on")).await?;
            }
            Ok(())
        })
    });
    pool.connect_lazy_with(options)
}

/// Runs a query. Stores the server's process id in `process` as soon as it is known.
pub(super) async fn run(
    connection: &mut PgConnection,
    job: &QueryJob,
    process: &AtomicU64,
) -> Result<RowSet, CollectError> {
    let has_plan = job.plan_cache.get().is_some();
    let row_set = run_once(connection, job, process).await;
    let Err(CollectError::Sqlx(error)) = &row_set else { return row_set };
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref() {
        // The tables changed, or the server dropped the prepared statement. Nothing has been executed yet, so it is
        // prepared again.
        Some("0A000" | "26000") => {}
        Some(code) if has_plan && code.starts_with("42") => {}
        _ => return row_set,
    }
    job.plan_cache.clear();
    connection.clear_cached_statements().await?;
    run_once(connection, job, process).await
}

async fn run_once(
    connection: &mut PgConnection,
    job: &QueryJob,
    process: &AtomicU64,
) -> Result<RowSet, CollectError> {
    let plan = load_plan(connection, job).await?;
    let mut arguments = PgArguments::default();
    for ((name, value), format) in job.parameter_values().zip(&plan.parameters) {
        let text = format.encode(value).map_err(|why| QueryError::InvalidArgument(format!("{name}: {why}")));
        let text = text.map_err(CollectError::Query)?;
        arguments.add(text).map_err(|error| CollectError::Query(QueryError::Database(error.to_string())))?;
    }
    let kind = match job.access {
        AccessMode::Read => "READ ONLY",
        AccessMode::Write => "READ WRITE",
    };
    let begin = format!(
        "BEGIN {kind}; SET LOCAL statement_timeout = {}; SELECT pg_backend_pid()",
        job.timeout.as_millis().clamp(1, i32::MAX.unsigned_abs().into())
    );
    let begin_result = sqlx::raw_sql(AssertSqlSafe(begin)).fetch_all(&mut *connection).await;
    let rows = match begin_result {
        Ok(rows) => rows,
        Err(error) => {
            // Part of it may have been executed.
            connection.execute(sqlx::raw_sql("ROLLBACK")).await?;
            return Err(error.into());
        }
    };
    let id = rows.first().and_then(|row| row.try_get::<i32, _>(0).ok()).unwrap_or_default();
    process.store(u64::from(id.unsigned_abs()), Ordering::Relaxed);

    // Uses a named prepared statement: an unnamed one is replaced when the driver looks up an unknown type.
    let query = sqlx::query_with(AssertSqlSafe(plan.sql.clone()), arguments);
    let row_set = collect_rows::<Postgres>(connection.fetch_many(query), job.limits, job.access).await;
    // Unread rows remain, so the connection is closed, which ends the transaction.
    if matches!(&row_set, Ok(RowSet { has_unread_rows: true, .. }) | Err(CollectError::Query(_))) {
        return row_set;
    }
    let end = match (job.access, row_set.is_ok()) {
        (AccessMode::Write, true) => "COMMIT",
        // Session locks would outlive the transaction.
        (AccessMode::Read, _) if job.is_client_statement => "ROLLBACK; SELECT pg_advisory_unlock_all()",
        _ => "ROLLBACK",
    };
    let end_result = connection.execute(sqlx::raw_sql(end)).await;
    let row_set = row_set?;
    end_result?;
    Ok(row_set)
}

pub(super) async fn kill(options: &PgConnectOptions, process: u64) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect_with(options).await?;
    let process = i32::try_from(process).unwrap_or_default();
    sqlx::query("SELECT pg_cancel_backend($1)").bind(process).execute(&mut connection).await?;
    connection.close().await
}

async fn load_plan(connection: &mut PgConnection, job: &QueryJob) -> Result<Arc<StatementPlan>, sqlx::Error> {
    if job.statement.parameter_names().is_empty() {
        let mut sql = job.statement.render(|_| String::new());
        if job.is_client_statement && job.statement.is_nestable {
            sql = limit_row_size(&sql, job.limits.bytes);
        }
        return Ok(Arc::new(StatementPlan { sql, parameters: Vec::new() }));
    }
    if let Some(plan) = job.plan_cache.get() {
        return Ok(plan);
    }
    let prepared = prepare(connection, &job.statement, |name| job.plan_cache.type_hint(name)).await?;
    let kinds: Vec<PgTypeInfo> = match prepared.parameters() {
        Some(Either::Left(kinds)) => kinds.to_vec(),
        _ => Vec::new(),
    };
    let oids: Vec<Oid> = kinds.iter().map(|kind| kind.oid().unwrap_or(Oid(25))).collect();
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT format_type(kind, NULL) FROM unnest($1) WITH ORDINALITY AS given(kind, place) ORDER BY place",
    )
    .bind(oids)
    .fetch_all(&mut *connection)
    .await?;
    let type_name = |index: usize| names.get(index).map_or("text", String::as_str);
    let sql = job.statement.render(|index| format!("(${}::text::{})", index + 1, type_name(index)));
    let plan =
        Arc::new(StatementPlan { sql, parameters: kinds.iter().map(ParameterFormat::from_type).collect() });
    job.plan_cache.store(&plan);
    Ok(plan)
}

/// Wraps a client's statement in one that measures its rows on the server: a single value may be a gigabyte, and
/// would be in memory before it could be measured here. A row that is too large is an error that contains
/// [`ROW_TOO_LARGE`].
fn limit_row_size(sql: &str, limit: usize) -> String {
    // OFFSET prevents the server from computing the row once for each reference. The cheap size check comes first,
    // since converting a large row to text is slow. The error expression depends on the row, or the server would
    // evaluate it while planning.
    let cheap_limit = limit.saturating_mul(8);
    let raise_error = format!("('{ROW_TOO_LARGE}' || left(pg_column_size(given)::text, 0))::boolean");
    format!(
        "SELECT * FROM (SELECT * FROM (\n{sql}\n) AS asked OFFSET 0) AS given WHERE CASE WHEN pg_column_size(given) > {cheap_limit} THEN {raise_error} \
         WHEN octet_length(given::text) > {limit} THEN {raise_error} ELSE true END"
    )
}

/// Prepares a statement. If the server cannot determine the type of a parameter, the argument's schema decides.
async fn prepare(
    connection: &mut PgConnection,
    statement: &Statement,
    hint: impl Fn(&str) -> &'static str,
) -> Result<PgStatement, sqlx::Error> {
    let mut use_hint = vec![false; statement.parameter_names().len()];
    loop {
        let write = |index: usize| match (use_hint.get(index), statement.parameter_names().get(index)) {
            (Some(true), Some(name)) => format!("(${}::{})", index + 1, hint(name)),
            _ => format!("${}", index + 1),
        };
        let sql = statement.render(write);
        let error = match connection.prepare(AssertSqlSafe(sql).into_sql_str()).await {
            Ok(prepared) => return Ok(prepared),
            Err(error) => error,
        };
        match undetermined_parameter(&error).and_then(|index| use_hint.get_mut(index)) {
            Some(use_hint) if !*use_hint => *use_hint = true,
            _ => return Err(error),
        }
    }
}

/// `could not determine data type of parameter $1`, `inconsistent types deduced for parameter $1`
fn undetermined_parameter(error: &sqlx::Error) -> Option<usize> {
    let error = error.as_database_error()?;
    error.code().filter(|code| matches!(code.as_ref(), "42P08" | "42P18"))?;
    let digits: String =
        error.message().split('$').nth(1)?.chars().take_while(char::is_ascii_digit).collect();
    digits.parse::<usize>().ok()?.checked_sub(1)
}

impl DecodeRow for Postgres {
    fn decode_value(row: &PgRow, index: usize) -> Result<Value, String> {
        let value = row.try_get_raw(index).map_err(|error| error.to_string())?;
        if value.is_null() {
            return Ok(Value::Null);
        }
        let bytes = value.as_bytes().map_err(|error| error.to_string())?;
        binary::decode(&value.type_info(), bytes)
    }

    fn rows_affected(result: &PgQueryResult) -> u64 {
        result.rows_affected()
    }
}

fn column_type(kind: &PgTypeInfo) -> ColumnType {
    match kind.kind() {
        PgTypeKind::Array(_) => return ColumnType::Array,
        PgTypeKind::Domain(inner) => return column_type(inner),
        PgTypeKind::Enum(_) | PgTypeKind::Range(_) => return ColumnType::Text,
        PgTypeKind::Composite(_) => return ColumnType::Any,
        _ => {}
    }
    match kind.name() {
        "BOOL" => ColumnType::Boolean,
        "INT2" | "INT4" | "OID" => ColumnType::Integer,
        "INT8" => ColumnType::BigInteger,
        "FLOAT4" | "FLOAT8" => ColumnType::Float,
        "NUMERIC" => ColumnType::Decimal,
        "UUID" => ColumnType::Uuid,
        "BYTEA" => ColumnType::Base64,
        "JSON" | "JSONB" | "VOID" => ColumnType::Any,
        // Dates and timestamps may be infinite, which `format: date` does not allow.
        _ => ColumnType::Text,
    }
}

pub(super) async fn describe(
    connection: &mut PgConnection,
    statement: &Statement,
    hint: impl Fn(&str) -> &'static str,
) -> Result<Vec<(String, ColumnType, bool)>, sqlx::Error> {
    let prepared = prepare(connection, statement, hint).await?;
    let origin = |column: &PgColumn| column.relation_id().zip(column.relation_attribute_no());
    let (tables, numbers): (Vec<Oid>, Vec<i16>) =
        prepared.columns().iter().map(|column| origin(column).unwrap_or((Oid(0), 0))).unzip();
    let not_null: Vec<Option<bool>> = sqlx::query_scalar(
        "SELECT attnotnull FROM unnest($1, $2) WITH ORDINALITY AS given(relation, number, place) \
         LEFT JOIN pg_catalog.pg_attribute ON attrelid = relation AND attnum = number ORDER BY place",
    )
    .bind(tables)
    .bind(numbers)
    .fetch_all(connection)
    .await?;
    let columns = prepared.columns().iter().enumerate().map(|(index, column)| {
        let not_null = not_null.get(index).copied().flatten().unwrap_or(false);
        (
            column.name().to_owned(),
            column_type(column.type_info()),
            statement.has_nullable_columns || !not_null,
        )
    });
    Ok(columns.collect())
}
