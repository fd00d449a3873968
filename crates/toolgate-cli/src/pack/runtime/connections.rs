//! Builtins about databases and HTTP backends.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate::HandlerError;

use super::health::{HealthReport, Issue, Severity};
use super::{
    Builtin, BuiltinArguments, BuiltinContext, BuiltinFuture, BuiltinResult, find_by_name, list_json,
};
use crate::clock::Stopwatch;
use crate::config::redact_url;
use crate::observe::collectors;
use crate::pack::runtime_state::{ApiHandle, DatabaseHandle};
use crate::source::sql::PoolStats;

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "datasource_get_all" => Builtin::Sync(|here, _| {
            Ok(list_json("datasources", here.state.snapshot().databases.iter().map(database_json).collect()))
        }),
        "datasource_get_names" => Builtin::Sync(|here, _| {
            let seen = here.state.snapshot();
            Ok(json!({ "names": seen.databases.iter().map(|store| &store.name).collect::<Vec<_>>() }))
        }),
        "datasource_get" | "datasource_get_config" => {
            Builtin::Sync(|here, given| Ok(database_json(&find_database(here, given)?)))
        }
        "datasource_has" => Builtin::Sync(|here, given| {
            let name = given.require("dsn")?;
            Ok(json!({ "exists": here.state.snapshot().databases.iter().any(|store| store.name == name) }))
        }),
        "datasource_get_pool_metrics" | "datasource_get_pool_latency" => Builtin::Sync(pool_metrics),
        "datasource_get_health" => {
            Builtin::Sync(|here, _| Ok(databases_report(&here.state.snapshot().databases).to_json()))
        }
        "datasource_test" => Builtin::Async(test_database),
        "http_get_client_count" => {
            Builtin::Sync(|here, _| Ok(json!({ "count": here.state.snapshot().apis.len() })))
        }
        "http_get_client_names" => Builtin::Sync(|here, _| {
            let seen = here.state.snapshot();
            Ok(json!({ "names": seen.apis.iter().map(|api| &api.name).collect::<Vec<_>>() }))
        }),
        "http_get_clients" => Builtin::Sync(|here, _| {
            Ok(list_json("clients", here.state.snapshot().apis.iter().map(api_json).collect()))
        }),
        "http_get_upstreams" => Builtin::Async(probe_upstreams),
        "http_get_service_summary" => Builtin::Sync(|here, _| {
            Ok(json!({ "clients": here.state.snapshot().apis.len(), "calls": collectors().http.stats() }))
        }),
        _ => return None,
    })
}

pub(super) fn databases_report(stores: &[DatabaseHandle]) -> HealthReport {
    let issues = stores.iter().flat_map(|store| pool_issues(&store.name, &store.pool.stats()));
    HealthReport::new(issues.collect(), stores.len())
}

fn pool_issues(name: &str, pool: &PoolStats) -> Vec<Issue> {
    let mut issues = Vec::new();
    let metrics =
        json!({ "working": pool.in_use, "max": pool.max, "waiting": pool.waiting, "open": pool.open });
    let mut say = |severity, code, message: String, action| {
        issues.push(Issue::new(severity, code, name, message, action, metrics.clone()));
    };
    let action = "raise `pool.max` of the connection, or look at `sql_get_slow_queries`";
    if pool.is_closed {
        let message = format!("the connections of `{name}` are closed");
        let action = "read the configuration again: `module_reload_all`";
        say(Severity::Warning, "DS_POOL_NOT_STARTED", message, action);
    }
    let part = pool.in_use as f64 / pool.max.max(1) as f64;
    let message = format!("{} of {} connections of `{name}` are in use", pool.in_use, pool.max);
    if part >= 0.95 {
        say(Severity::Critical, "DS_POOL_SATURATED", message, action);
    } else if part > 0.8 {
        say(Severity::Warning, "DS_POOL_HIGH_UTILIZATION", message, action);
    }
    if pool.waiting > 0 {
        let message = format!("{} queries wait for a connection of `{name}`", pool.waiting);
        say(Severity::Warning, "DS_POOL_THREADS_AWAITING", message, action);
    }
    issues
}

fn find_database(here: &BuiltinContext, given: BuiltinArguments<'_>) -> Result<DatabaseHandle, HandlerError> {
    let name = given.require("dsn")?;
    find_by_name("database", name, here.state.snapshot().databases.clone(), |store| store.name.as_str())
}

fn database_json(store: &DatabaseHandle) -> Value {
    let pool = store.pool.stats();
    json!({
        "name": store.name,
        "driver": store.driver,
        "address": store.address,
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

fn pool_metrics(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let stores = match given.text("dsn") {
        Some(_) => vec![find_database(here, given)?],
        None => here.state.snapshot().databases.clone(),
    };
    let shown = stores.iter().map(|store| {
        let mut shown = pool_json(&store.pool.stats());
        shown["name"] = store.name.clone().into();
        shown
    });
    let mut answer = list_json("pools", shown.collect());
    answer["queries"] = collectors().sql.stats();
    Ok(answer)
}

fn test_database<'a>(here: &'a BuiltinContext, given: BuiltinArguments<'a>) -> BuiltinFuture<'a> {
    Box::pin(async move {
        let store = find_database(here, given)?;
        let watch = Stopwatch::start();
        let tried = tokio::time::timeout(Duration::from_secs(10), store.pool.ping()).await;
        let tried = tried.unwrap_or_else(|_| Err("it did not answer within ten seconds".to_owned()));
        let took = watch.elapsed().as_secs_f64() * 1000.0;
        // What a driver says may hold an address with a password.
        let said = tried.as_ref().err().map(|_| "it does not answer; the log says more".to_owned());
        if let Err(error) = &tried {
            tracing::warn!(connection = store.name, error = redact_url(error), "a test failed");
        }
        Ok(json!({ "name": store.name, "ok": tried.is_ok(), "ms": took, "error": said }))
    })
}

fn api_json(api: &ApiHandle) -> Value {
    let timeout = u64::try_from(api.timeout.as_millis()).unwrap_or(u64::MAX);
    json!({ "name": api.name, "base": api.base_url, "timeoutMs": timeout })
}

/// Every API, and whether somebody is there.
fn probe_upstreams<'a>(here: &'a BuiltinContext, _: BuiltinArguments<'a>) -> BuiltinFuture<'a> {
    Box::pin(async move {
        let mut shown = Vec::new();
        for api in &here.state.snapshot().apis {
            let watch = Stopwatch::start();
            let reached = tokio::time::timeout(Duration::from_secs(5), api.client.probe()).await;
            let mut one = api_json(api);
            one["reachable"] = matches!(reached, Ok(Ok(()))).into();
            one["connectMs"] = (watch.elapsed().as_secs_f64() * 1000.0).into();
            shown.push(one);
        }
        Ok(list_json("upstreams", shown))
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
