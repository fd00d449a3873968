//! The health of every subsystem, and one overview of the process.

use serde_json::{Value, json};

use super::caches::{cache_report, caches};
use super::connections::databases_report;
use super::executors::{executor_report, executors, web_report, webserver_stats};
use super::health::{HealthReport, Issue, Severity};
use super::jobs::{scheduler_report, watchers_report};
use super::telemetry::count_recent;
use super::{Builtin, host, procfs};
use crate::observe::collectors;
use crate::pack::runtime_state::RuntimeState;

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "system_get_health" => Builtin::Sync(|context, _| Ok(super::health(&context.state))),
        "performance_get_snapshot" => Builtin::Sync(|context, _| Ok(performance_snapshot(&context.state))),
        _ => return None,
    })
}

/// The health reports of all subsystems, by name.
pub(super) fn health_reports(state: &RuntimeState) -> Vec<(&'static str, HealthReport)> {
    let snapshot = state.snapshot();
    vec![
        (
            "process",
            process_report(
                procfs::memory().map(|memory| memory.rss),
                host::memory_limit(),
                n_blocked_threads(),
            ),
        ),
        ("executor", executor_report(state.heartbeat())),
        ("webserver", web_report(state)),
        ("datasource", databases_report(&snapshot.databases)),
        ("cache", cache_report(&caches(state))),
        ("scheduler", scheduler_report(&state.jobs())),
        ("watcher", watchers_report(&state.watchers())),
        ("performance", performance_report()),
    ]
}

fn n_blocked_threads() -> usize {
    procfs::threads().map_or(0, |threads| threads.iter().filter(|thread| thread.state == 'D').count())
}

fn process_report(rss: Option<u64>, limit: Option<u64>, blocked: usize) -> HealthReport {
    let mut issues = Vec::new();
    if let Some(percent) = host::percent(rss, limit) {
        let metrics = json!({ "rssBytes": rss, "limitBytes": limit, "percent": percent });
        let message = format!("the process uses {percent} % of its memory limit");
        if percent > 95.0 {
            let action = "restart it or raise the limit; `process_get_memory_details` shows the usage";
            issues.push(Issue::new(
                Severity::Critical,
                "PROC_MEM_CRITICAL",
                "process",
                message,
                action,
                metrics,
            ));
        } else if percent > 85.0 {
            let action = "watch `process_get_memory_info`; raise the limit before the process is killed";
            issues.push(Issue::new(
                Severity::Warning,
                "PROC_MEM_PRESSURE",
                "process",
                message,
                action,
                metrics,
            ));
        }
    }
    if blocked >= 4 {
        let message = format!("{blocked} threads are blocked in the kernel (disk I/O)");
        let action = "see `host_get_disk_usage` and `process_get_thread_dump`";
        let metrics = json!({ "blocked": blocked });
        issues.push(Issue::new(
            Severity::Warning,
            "PROC_BLOCKED_THREADS",
            "process",
            message,
            action,
            metrics,
        ));
    }
    HealthReport::new(issues, 2)
}

fn performance_report() -> HealthReport {
    let all = collectors();
    let checks = [
        ("PERF_SLOW_QUERIES", "sql", count_recent(&all.sql), "`sql_get_slow_queries`"),
        ("PERF_SLOW_REQUESTS", "requests", count_recent(&all.requests), "`requests_get_slow_requests`"),
        ("PERF_SLOW_HTTP", "slow_http", count_recent(&all.http), "`slow_http_get_calls`"),
    ];
    let issues =
        checks.into_iter().filter(|(_, _, count, _)| *count > 0).map(|(code, entity, count, action)| {
            let message = format!("{count} slow operations in the last five minutes");
            Issue::new(Severity::Info, code, entity, message, action, json!({ "count": count }))
        });
    HealthReport::new(issues.collect(), 3)
}

fn performance_snapshot(state: &RuntimeState) -> Value {
    let (all, health) = (collectors(), super::health(state));
    json!({
        "health": { "status": health["status"], "score": health["score"], "weakest": health["weakest"] },
        "requests": all.requests.stats(),
        "slowHttp": all.http.stats(),
        "sql": all.sql.stats(),
        "routes": all.routes.summary(),
        "slowestRoutes": all.routes.list(crate::observe::routes::RouteOrder::P99, 5),
        "webserver": webserver_stats(state),
        "executors": executors(state),
        "memory": procfs::memory().map(|memory| json!({
            "rssBytes": memory.rss,
            "percentOfLimit": host::percent(Some(memory.rss), host::memory_limit()),
        })),
        "load": host::load(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_health_depends_on_the_memory_limit() {
        let codes = |rss, limit, blocked| {
            let report = process_report(rss, limit, blocked);
            report.issues.iter().map(|issue| issue.code.clone()).collect::<Vec<_>>()
        };
        assert!(codes(Some(85), Some(100), 3).is_empty());
        assert_eq!(codes(Some(86), Some(100), 0), ["PROC_MEM_PRESSURE"]);
        assert_eq!(codes(Some(96), Some(100), 4), ["PROC_MEM_CRITICAL", "PROC_BLOCKED_THREADS"]);
        assert!(codes(None, Some(100), 0).is_empty(), "nothing is known");
    }

    #[test]
    fn overall_health_lists_every_subsystem() {
        let health = super::super::health(&RuntimeState::default());
        let subsystems = health["subsystems"].as_object().unwrap();
        for name in
            ["process", "executor", "webserver", "datasource", "cache", "scheduler", "watcher", "performance"]
        {
            assert!(subsystems.contains_key(name), "{name}");
        }
        let lowest_score = subsystems.values().map(|name| name["score"].as_u64().unwrap()).min();
        assert_eq!(health["score"].as_u64(), lowest_score);
    }
}
