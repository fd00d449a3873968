//! Builtins about databases and HTTP backends.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate::HandlerError;
use toolgate_sources::source::sql::PoolStats;

use super::health::{HealthReport, Issue, Severity};
use super::{
    Builtin, BuiltinArguments, BuiltinContext, BuiltinFuture, BuiltinResult, find_by_name, list_json,
};
use crate::clock::Stopwatch;
use crate::config::redact_url;
use crate::observe::collectors;
use crate::pack::runtime_state::{ApiHandle, DatabaseHandle};

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "datasource_get_all" => Builtin::Sync(|context, _| {
            Ok(list_json(
                "datasources",
                context.state.snapshot().databases.iter().map(database_json).collect(),
            ))
        }),
        "datasource_get_names" => Builtin::Sync(|context, _| {
            let snapshot = context.state.snapshot();
            Ok(
                json!({ "names": snapshot.databases.iter().map(|database| &database.name).collect::<Vec<_>>() }),
            )
        }),
        "datasource_get" | "datasource_get_config" => {
            Builtin::Sync(|context, arguments| Ok(database_json(&find_database(context, arguments)?)))
        }
        "datasource_has" => Builtin::Sync(|context, arguments| {
            let name = arguments.require("dsn")?;
            Ok(
                json!({ "exists": context.state.snapshot().databases.iter().any(|database| database.name == name) }),
            )
        }),
        "datasource_get_pool_metrics" | "datasource_get_pool_latency" => Builtin::Sync(pool_metrics),
        "datasource_get_health" => {
            Builtin::Sync(|context, _| Ok(databases_report(&context.state.snapshot().databases).to_json()))
        }
        "datasource_test" => Builtin::Async(test_database),
        "http_get_client_count" => {
            Builtin::Sync(|context, _| Ok(json!({ "count": context.state.snapshot().apis.len() })))
        }
        "http_get_client_names" => Builtin::Sync(|context, _| {
            let snapshot = context.state.snapshot();
            Ok(json!({ "names": snapshot.apis.iter().map(|api| &api.name).collect::<Vec<_>>() }))
        }),
        "http_get_clients" => Builtin::Sync(|context, _| {
            Ok(list_json("clients", context.state.snapshot().apis.iter().map(api_json).collect()))
        }),
        "http_get_upstreams" => Builtin::Async(probe_upstreams),
        "http_get_service_summary" => Builtin::Sync(|context, _| {
            Ok(json!({ "clients": context.state.snapshot().apis.len(), "calls": collectors().http.stats() }))
        }),
        _ => return None,
    })
}

pub(super) fn databases_report(databases: &[DatabaseHandle]) -> HealthReport {
    let issues = databases.iter().flat_map(|database| pool_issues(&database.name, &database.pool.stats()));
    HealthReport::new(issues.collect(), databases.len())
}

fn pool_issues(name: &str, pool: &PoolStats) -> Vec<Issue> {
    let mut issues = Vec::new();
    let metrics =
        json!({ "working": pool.in_use, "max": pool.max, "waiting": pool.waiting, "open": pool.open });
    let mut report = |severity, code, message: String, action| {
        issues.push(Issue::new(severity, code, name, message, action, metrics.clone()));
    };
    let action = "raise `pool.max` of the connection, or see `sql_get_slow_queries`";
    if pool.is_closed {
        let message = format!("the connection pool of `{name}` is closed");
        let action = "reload the configuration with `module_reload_all`";
        report(Severity::Warning, "DS_POOL_NOT_STARTED", message, action);
    }
    let utilization = pool.in_use as f64 / pool.max.max(1) as f64;
    let message = format!("{} of {} connections of `{name}` are in use", pool.in_use, pool.max);
    if utilization >= 0.95 {
        report(Severity::Critical, "DS_POOL_SATURATED", message, action);
    } else if utilization > 0.8 {
        report(Severity::Warning, "DS_POOL_HIGH_UTILIZATION", message, action);
    }
    if pool.waiting > 0 {
        let message = format!("{} queries wait for a connection of `{name}`", pool.waiting);
        report(Severity::Warning, "DS_POOL_THREADS_AWAITING", message, action);
    }
    issues
}

fn find_database(
    context: &BuiltinContext,
    arguments: BuiltinArguments<'_>,
) -> Result<DatabaseHandle, HandlerError> {
    let name = arguments.require("dsn")?;
    find_by_name("database", name, context.state.snapshot().databases.clone(), |database| {
        database.name.as_str()
    })
}

fn database_json(database: &DatabaseHandle) -> Value {
    let pool = database.pool.stats();
    json!({
        "name": database.name,
        "driver": database.driver,
        "address": database.address,
        "readOnly": pool.read_only,
        "pool": pool_json(&pool),
    })
}

fn pool_json(pool: &PoolStats) -> Value {
    json!({
        "max": pool.max,
        "open": pool.open,
        "idle": pool.idle,
        "working": pool.in_use,
        "waiting": pool.waiting,
        "waitMs": u64::try_from(pool.acquire_timeout.as_millis()).unwrap_or(u64::MAX),
        "closed": pool.is_closed,
    })
}

fn pool_metrics(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let databases = match arguments.text("dsn") {
        Some(_) => vec![find_database(context, arguments)?],
        None => context.state.snapshot().databases.clone(),
    };
    let entries = databases.iter().map(|database| {
        let mut entry = pool_json(&database.pool.stats());
        entry["name"] = database.name.clone().into();
        entry
    });
    let mut result = list_json("pools", entries.collect());
    result["queries"] = collectors().sql.stats();
    Ok(result)
}

fn test_database<'a>(context: &'a BuiltinContext, arguments: BuiltinArguments<'a>) -> BuiltinFuture<'a> {
    Box::pin(async move {
        let database = find_database(context, arguments)?;
        let stopwatch = Stopwatch::start();
        let result = tokio::time::timeout(Duration::from_secs(10), database.pool.ping()).await;
        let result = result.unwrap_or_else(|_| Err("no response within ten seconds".to_owned()));
        let millis = stopwatch.elapsed().as_secs_f64() * 1000.0;
        // A driver's message may contain a URL with a password.
        let message = result.as_ref().err().map(|_| "the connection failed; see the log".to_owned());
        if let Err(error) = &result {
            tracing::warn!(connection = database.name, error = redact_url(error), "connection test failed");
        }
        Ok(json!({ "name": database.name, "ok": result.is_ok(), "ms": millis, "error": message }))
    })
}

fn api_json(api: &ApiHandle) -> Value {
    let timeout = u64::try_from(api.timeout.as_millis()).unwrap_or(u64::MAX);
    json!({ "name": api.name, "base": api.base_url, "timeoutMs": timeout })
}

/// Lists all HTTP backends and checks whether each accepts connections.
fn probe_upstreams<'a>(context: &'a BuiltinContext, _: BuiltinArguments<'a>) -> BuiltinFuture<'a> {
    Box::pin(async move {
        let mut entries = Vec::new();
        for api in &context.state.snapshot().apis {
            let stopwatch = Stopwatch::start();
            let result = tokio::time::timeout(Duration::from_secs(5), api.client.probe()).await;
            let mut entry = api_json(api);
            entry["reachable"] = matches!(result, Ok(Ok(()))).into();
            entry["connectMs"] = (stopwatch.elapsed().as_secs_f64() * 1000.0).into();
            entries.push(entry);
        }
        Ok(list_json("upstreams", entries))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(issues: &[Issue]) -> Vec<&str> {
        issues.iter().map(|issue| issue.code.as_str()).collect()
    }

    #[test]
    fn pools_are_judged_by_who_works_and_who_waits() {
        let pool = |working, waiting| PoolStats {
            max: 20,
            open: 20,
            idle: 0,
            in_use: working,
            waiting,
            acquire_timeout: Duration::from_secs(1),
            read_only: true,
            is_closed: false,
        };
        assert!(pool_issues("db", &pool(16, 0)).is_empty());
        assert_eq!(codes(&pool_issues("db", &pool(17, 0))), ["DS_POOL_HIGH_UTILIZATION"]);
        assert_eq!(
            codes(&pool_issues("db", &pool(19, 2))),
            ["DS_POOL_SATURATED", "DS_POOL_THREADS_AWAITING"]
        );
        let closed = PoolStats { is_closed: true, ..pool(0, 0) };
        assert_eq!(codes(&pool_issues("db", &closed)), ["DS_POOL_NOT_STARTED"]);
    }
}
