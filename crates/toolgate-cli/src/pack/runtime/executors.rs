//! Builtins about the async runtime and the HTTP listener.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::health::{HealthReport, Issue, Severity};
use super::procfs::{self, unavailable};
use super::{Builtin, find_by_name, list_json};
use crate::pack::runtime_state::{Heartbeat, RuntimeState};

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "http_get_executor" | "executor_get_all" => {
            Builtin::Sync(|context, _| Ok(list_json("executors", executors(&context.state))))
        }
        "executor_get_names" => Builtin::Sync(|_, _| Ok(json!({ "names": ["tokio", "blocking"] }))),
        "executor_get_info" => Builtin::Sync(|context, arguments| {
            let name = arguments.require("name")?;
            find_by_name("executor", name, executors(&context.state), |executor| {
                executor["name"].as_str().unwrap_or_default()
            })
        }),
        "executor_get_stats" => Builtin::Sync(|context, arguments| match arguments.text("name") {
            Some(name) => find_by_name("executor", name, executors(&context.state), |executor| {
                executor["name"].as_str().unwrap_or_default()
            }),
            None => Ok(list_json("executors", executors(&context.state))),
        }),
        "executor_get_health" => {
            Builtin::Sync(|context, _| Ok(executor_report(context.state.heartbeat()).to_json()))
        }
        "executor_get_health_summary" => Builtin::Sync(|context, _| {
            let report = executor_report(context.state.heartbeat());
            Ok(json!({ "status": report.status(), "score": report.score(), "issues": report.issues.len() }))
        }),
        "webserver_get_stats" => Builtin::Sync(|context, _| Ok(webserver_stats(&context.state))),
        "webserver_get_health" => Builtin::Sync(|context, _| Ok(web_report(&context.state).to_json())),
        _ => return None,
    })
}

pub(super) fn executor_report(heartbeat: Heartbeat) -> HealthReport {
    let mut issues = Vec::new();
    let (lag, load) = (heartbeat.lag, heartbeat.load);
    let metrics =
        json!({ "lagMs": lag.as_secs_f64() * 1000.0, "loadPercent": (load * 1000.0).round() / 10.0 });
    let action = "see `process_get_hot_threads`: a task computes or blocks on a worker thread";
    if lag >= Duration::from_secs(1) {
        let message = format!("tasks wait {lag:.1?} for a worker");
        issues.push(Issue::new(Severity::Critical, "EXECUTOR_UNHEALTHY", "tokio", message, action, metrics));
    } else if lag >= Duration::from_millis(200) || load >= 0.9 {
        let message = format!("tasks wait {lag:.1?}, and workers are busy {:.0} % of the time", load * 100.0);
        issues.push(Issue::new(Severity::Warning, "EXECUTOR_DEGRADED", "tokio", message, action, metrics));
    } else if load >= 0.8 {
        let message = format!("workers are busy {:.0} % of the time", load * 100.0);
        issues.push(Issue::new(
            Severity::Warning,
            "EXECUTOR_NEAR_SATURATION",
            "tokio",
            message,
            action,
            metrics,
        ));
    }
    HealthReport::new(issues, 1)
}

pub(super) fn web_report(state: &RuntimeState) -> HealthReport {
    let snapshot = state.snapshot();
    let open = snapshot.connections.as_ref().map_or(0, toolgate::http::Connections::open);
    let queue =
        tokio::runtime::Handle::try_current().map_or(0, |runtime| runtime.metrics().global_queue_depth());
    let mut issues = web_issues(state.heartbeat().load, queue, open, snapshot.max_connections);
    let servers = state.servers.names().into_iter().filter_map(|name| state.servers.get(&name));
    let mut checked = 3;
    for server in servers {
        let stats = server.stats();
        // Errors of clients do not count, only failures here or in a backend.
        let n_failed: u64 =
            ["-32603", "isError"].iter().filter_map(|code| stats.errors.by_code.get(*code)).sum();
        issues.extend(error_rate_issue(&server.name(), n_failed, stats.requests.total));
        checked += 1;
    }
    HealthReport::new(issues, checked)
}

fn web_issues(load: f64, queue: usize, open: u64, max: usize) -> Vec<Issue> {
    let mut issues = Vec::new();
    let action = "add CPUs or reduce the load: `routes_get_all` shows the requests";
    let metrics = json!({ "loadPercent": (load * 1000.0).round() / 10.0, "queue": queue });
    let message = format!("workers are busy {:.0} % of the time", load * 100.0);
    if load >= 0.95 {
        issues.push(Issue::new(
            Severity::Critical,
            "WEB_WORKER_SATURATED",
            "workers",
            message,
            action,
            metrics.clone(),
        ));
    } else if load >= 0.8 {
        issues.push(Issue::new(
            Severity::Warning,
            "WEB_WORKER_HIGH_LOAD",
            "workers",
            message,
            action,
            metrics.clone(),
        ));
    }
    if queue > 1000 {
        let message = format!("{queue} tasks wait for a worker");
        issues.push(Issue::new(Severity::Critical, "WEB_QUEUE_HIGH", "workers", message, action, metrics));
    }
    if max > 0 && open as f64 / max as f64 >= 0.8 {
        let message = format!("{open} of {max} connections are open");
        let action = "raise `listen.max_connections`, or find out which clients hold them";
        let metrics = json!({ "open": open, "max": max });
        issues.push(Issue::new(
            Severity::Info,
            "WEB_HIGH_CONNECTION_RATIO",
            "listener",
            message,
            action,
            metrics,
        ));
    }
    issues
}

/// Reports an error rate above 5 %, if there were at least 20 requests.
fn error_rate_issue(server: &str, n_failed: u64, total: u64) -> Option<Issue> {
    let rate = if total >= 20 { n_failed as f64 / total as f64 } else { 0.0 };
    (rate > 0.05).then(|| {
        let message = format!("{:.1} % of the requests to `{server}` failed", rate * 100.0);
        let action = "`routes_get_all` ordered by errorRate shows which, `logging_search_entries` why; `mcp_reset_stats` resets the counters";
        let metrics = json!({ "failed": n_failed, "requests": total });
        Issue::new(Severity::Warning, "WEB_LISTENER_HIGH_ERROR_RATE", server, message, action, metrics)
    })
}

pub(super) fn executors(state: &RuntimeState) -> Vec<Value> {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return vec![unavailable("there is no async runtime")];
    };
    let (metrics, heartbeat) = (runtime.metrics(), state.heartbeat());
    let busy: Duration =
        (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
    let blocking = procfs::threads().map(|threads| {
        let n_threads = threads.iter().filter(|thread| thread.name.starts_with("tokio")).count();
        n_threads.saturating_sub(metrics.num_workers())
    });
    vec![
        json!({
            "name": "tokio",
            "type": "work-stealing",
            "workers": metrics.num_workers(),
            "aliveTasks": metrics.num_alive_tasks(),
            "queued": metrics.global_queue_depth(),
            "busyMs": busy.as_secs_f64() * 1000.0,
            "loadPercent": (heartbeat.load * 1000.0).round() / 10.0,
            "lagMs": heartbeat.lag.as_secs_f64() * 1000.0,
        }),
        json!({ "name": "blocking", "type": "threads", "threads": blocking, "maxThreads": 512 }),
    ]
}

pub(super) fn webserver_stats(state: &RuntimeState) -> Value {
    let snapshot = state.snapshot();
    let servers: Vec<_> =
        state.servers.names().into_iter().filter_map(|name| state.servers.get(&name)).collect();
    let mut total = Map::new();
    let mut add = |key: &str, more: u64| {
        let before = total.get(key).and_then(Value::as_u64).unwrap_or(0);
        total.insert(key.to_owned(), (before + more).into());
    };
    for server in &servers {
        let summary = server.stats_summary();
        let security = &summary.security;
        add("requests", summary.total_requests);
        add("errors", summary.total_errors);
        add("active", summary.active_requests);
        add("perMinute", summary.requests_per_minute);
        add(
            "refused",
            security.auth_failures
                + security.api_key_failures
                + security.body_size_violations
                + security.ip_filter_failures
                + security.origin_failures
                + security.rate_limited,
        );
    }
    json!({
        "address": snapshot.address,
        "tls": false,
        "connections": snapshot.connections.as_ref().map(|connections| json!({
            "open": connections.open(),
            "accepted": connections.accepted(),
            "refused": connections.rejected(),
            "max": snapshot.max_connections,
        })),
        "requests": total,
        "servers": servers.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(issues: &[Issue]) -> Vec<&str> {
        issues.iter().map(|issue| issue.code.as_str()).collect()
    }

    #[test]
    fn executor_health_depends_on_lag_and_load() {
        let codes = |lag, load| {
            let report = executor_report(Heartbeat::new(Duration::from_millis(lag), load));
            report.issues.iter().map(|issue| issue.code.clone()).collect::<Vec<_>>()
        };
        assert!(codes(10, 0.5).is_empty());
        assert_eq!(codes(10, 0.85), ["EXECUTOR_NEAR_SATURATION"]);
        assert_eq!(codes(300, 0.1), ["EXECUTOR_DEGRADED"]);
        assert_eq!(codes(1500, 0.1), ["EXECUTOR_UNHEALTHY"]);
    }

    #[test]
    fn web_health_depends_on_load_queue_and_errors() {
        assert!(web_issues(0.7, 10, 10, 100).is_empty());
        assert_eq!(
            codes(&web_issues(0.85, 2000, 80, 100)),
            ["WEB_WORKER_HIGH_LOAD", "WEB_QUEUE_HIGH", "WEB_HIGH_CONNECTION_RATIO"]
        );
        assert_eq!(codes(&web_issues(0.99, 0, 0, 0)), ["WEB_WORKER_SATURATED"]);
        assert!(error_rate_issue("shop", 5, 19).is_none(), "too few requests");
        assert!(error_rate_issue("shop", 5, 100).is_none());
        assert_eq!(error_rate_issue("shop", 6, 100).unwrap().code, "WEB_LISTENER_HIGH_ERROR_RATE");
    }
}
