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
            Builtin::Sync(|here, _| Ok(list_json("executors", executors(&here.state))))
        }
        "executor_get_names" => Builtin::Sync(|_, _| Ok(json!({ "names": ["tokio", "blocking"] }))),
        "executor_get_info" => Builtin::Sync(|here, given| {
            let name = given.require("name")?;
            find_by_name("executor", name, executors(&here.state), |one| {
                one["name"].as_str().unwrap_or_default()
            })
        }),
        "executor_get_stats" => Builtin::Sync(|here, given| match given.text("name") {
            Some(name) => find_by_name("executor", name, executors(&here.state), |one| {
                one["name"].as_str().unwrap_or_default()
            }),
            None => Ok(list_json("executors", executors(&here.state))),
        }),
        "executor_get_health" => {
            Builtin::Sync(|here, _| Ok(executor_report(here.state.heartbeat()).to_json()))
        }
        "executor_get_health_summary" => Builtin::Sync(|here, _| {
            let report = executor_report(here.state.heartbeat());
            Ok(json!({ "status": report.status(), "score": report.score(), "issues": report.issues.len() }))
        }),
        "webserver_get_stats" => Builtin::Sync(|here, _| Ok(webserver_stats(&here.state))),
        "webserver_get_health" => Builtin::Sync(|here, _| Ok(web_report(&here.state).to_json())),
        _ => return None,
    })
}

pub(super) fn executor_report(pulse: Heartbeat) -> HealthReport {
    let mut issues = Vec::new();
    let (lag, load) = (pulse.lag, pulse.load);
    let metrics =
        json!({ "lagMs": lag.as_secs_f64() * 1000.0, "loadPercent": (load * 1000.0).round() / 10.0 });
    let action = "look at `process_get_hot_threads`: something computes or blocks where others wait";
    if lag >= Duration::from_secs(1) {
        let message = format!("work waits {lag:.1?} until somebody has time for it");
        issues.push(Issue::new(Severity::Critical, "EXECUTOR_UNHEALTHY", "tokio", message, action, metrics));
    } else if lag >= Duration::from_millis(200) || load >= 0.9 {
        let message = format!("work waits {lag:.1?}, and workers are busy {:.0} % of the time", load * 100.0);
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

pub(super) fn web_report(world: &RuntimeState) -> HealthReport {
    let seen = world.snapshot();
    let open = seen.connections.as_ref().map_or(0, toolgate::http::Connections::open);
    let queue =
        tokio::runtime::Handle::try_current().map_or(0, |runtime| runtime.metrics().global_queue_depth());
    let mut issues = web_issues(world.heartbeat().load, queue, open, seen.max_connections);
    let servers = world.servers.names().into_iter().filter_map(|name| world.servers.get(&name));
    let mut checked = 3;
    for server in servers {
        let stats = server.stats();
        // What a client did wrong is no fault of ours; what failed here or behind us is.
        let wrong: u64 =
            ["-32603", "isError"].iter().filter_map(|code| stats.errors.by_code.get(*code)).sum();
        issues.extend(error_rate_issue(&server.name(), wrong, stats.requests.total));
        checked += 1;
    }
    HealthReport::new(issues, checked)
}

fn web_issues(load: f64, queue: usize, open: u64, most: usize) -> Vec<Issue> {
    let mut issues = Vec::new();
    let action = "give it more processors, or fewer requests: `routes_get_all` shows who asks for what";
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
        let message = format!("{queue} pieces of work wait for a worker");
        issues.push(Issue::new(Severity::Critical, "WEB_QUEUE_HIGH", "workers", message, action, metrics));
    }
    if most > 0 && open as f64 / most as f64 >= 0.8 {
        let message = format!("{open} of {most} connections are open");
        let action = "raise `listen.max_connections`, or look who holds them";
        let metrics = json!({ "open": open, "max": most });
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

/// Few requests prove nothing.
fn error_rate_issue(server: &str, wrong: u64, total: u64) -> Option<Issue> {
    let rate = if total >= 20 { wrong as f64 / total as f64 } else { 0.0 };
    (rate > 0.05).then(|| {
        let message = format!("{:.1} % of the requests to `{server}` failed", rate * 100.0);
        let action = "`routes_get_all` ordered by errorRate shows which, `logging_search_entries` why; `mcp_reset_stats` counts anew";
        let metrics = json!({ "failed": wrong, "requests": total });
        Issue::new(Severity::Warning, "WEB_LISTENER_HIGH_ERROR_RATE", server, message, action, metrics)
    })
}

pub(super) fn executors(world: &RuntimeState) -> Vec<Value> {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return vec![unavailable("there is no runtime here")];
    };
    let (metrics, pulse) = (runtime.metrics(), world.heartbeat());
    let busy: Duration =
        (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
    let blocking = procfs::threads().map(|threads| {
        let own = threads.iter().filter(|thread| thread.name.starts_with("tokio")).count();
        own.saturating_sub(metrics.num_workers())
    });
    vec![
        json!({
            "name": "tokio",
            "type": "work-stealing",
            "workers": metrics.num_workers(),
            "aliveTasks": metrics.num_alive_tasks(),
            "queued": metrics.global_queue_depth(),
            "busyMs": busy.as_secs_f64() * 1000.0,
            "loadPercent": (pulse.load * 1000.0).round() / 10.0,
            "lagMs": pulse.lag.as_secs_f64() * 1000.0,
        }),
        json!({ "name": "blocking", "type": "threads", "threads": blocking, "maxThreads": 512 }),
    ]
}

pub(super) fn webserver_stats(world: &RuntimeState) -> Value {
    let seen = world.snapshot();
    let servers: Vec<_> =
        world.servers.names().into_iter().filter_map(|name| world.servers.get(&name)).collect();
    let mut total = Map::new();
    let mut add = |key: &str, more: u64| {
        let before = total.get(key).and_then(Value::as_u64).unwrap_or(0);
        total.insert(key.to_owned(), (before + more).into());
    };
    for server in &servers {
        let summary = server.stats_summary();
        let refused = &summary.security;
        add("requests", summary.total_requests);
        add("errors", summary.total_errors);
        add("active", summary.active_requests);
        add("perMinute", summary.requests_per_minute);
        add(
            "refused",
            refused.auth_failures
                + refused.api_key_failures
                + refused.body_size_violations
                + refused.ip_filter_failures
                + refused.origin_failures
                + refused.rate_limited,
        );
    }
    json!({
        "address": seen.address,
        "tls": false,
        "connections": seen.connections.as_ref().map(|connections| json!({
            "open": connections.open(),
            "accepted": connections.accepted(),
            "refused": connections.rejected(),
            "max": seen.max_connections,
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
    fn the_runtime_is_judged_by_how_late_it_is() {
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
    fn the_listener_is_judged_by_load_queue_and_errors() {
        assert!(web_issues(0.7, 10, 10, 100).is_empty());
        assert_eq!(
            codes(&web_issues(0.85, 2000, 80, 100)),
            ["WEB_WORKER_HIGH_LOAD", "WEB_QUEUE_HIGH", "WEB_HIGH_CONNECTION_RATIO"]
        );
        assert_eq!(codes(&web_issues(0.99, 0, 0, 0)), ["WEB_WORKER_SATURATED"]);
        assert!(error_rate_issue("shop", 5, 19).is_none(), "few prove nothing");
        assert!(error_rate_issue("shop", 5, 100).is_none());
        assert_eq!(error_rate_issue("shop", 6, 100).unwrap().code, "WEB_LISTENER_HIGH_ERROR_RATE");
    }
}
