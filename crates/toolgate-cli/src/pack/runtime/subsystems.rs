//! Acts about the parts of the program: databases, APIs, the runtime, the listener, jobs, watchers; and how well they are.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolgate::HandlerError;

use super::health::{HealthReport, Issue, Severity};
use super::procfs::unavailable;
use super::telemetry::count_recent;
use super::{
    Builtin, BuiltinArguments, BuiltinContext, BuiltinFuture, BuiltinResult, find_by_name, host, list_json,
    procfs,
};
use crate::clock::Stopwatch;
use crate::observe::collectors;
use crate::pack::runtime_state::{
    ApiHandle, DatabaseHandle, FolderWatcher, Heartbeat, RuntimeState, ScheduledJob,
};
use crate::source::sql::PoolStats;

/// The one scheduler that there is.
const SCHEDULER_NAME: &str = "toolgate";

const JOBS_NOT_PERSISTED: &str =
    "jobs are not written down: they are what the configuration needs, and begin with it";

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "system_get_health" => Builtin::Sync(|here, _| Ok(super::health(&here.state))),
        "performance_get_snapshot" => Builtin::Sync(|here, _| Ok(performance_snapshot(&here.state))),
        "cache_get_all" | "cache_get_stats" => Builtin::Sync(cache_stats),
        "cache_get_names" => Builtin::Sync(|here, _| {
            Ok(json!({ "names": caches(&here.state).iter().map(|cache| cache.name).collect::<Vec<_>>() }))
        }),
        "cache_get_keys" => Builtin::Sync(|here, given| {
            with_cache(here, given, |cache| {
                let keys: Vec<&String> = cache.keys.iter().take(given.limit(100)).collect();
                json!({ "cacheName": cache.name, "count": keys.len(), "keys": keys })
            })
        }),
        "cache_get_size" => Builtin::Sync(|here, given| {
            with_cache(here, given, |cache| json!({ "cacheName": cache.name, "size": cache.size }))
        }),
        "cache_has_key" => Builtin::Sync(|here, given| {
            let key = given.require("key")?.to_owned();
            with_cache(
                here,
                given,
                |cache| json!({ "cacheName": cache.name, "exists": cache.keys.contains(&key) }),
            )
        }),
        "cache_get_key_metadata" => Builtin::Sync(|here, given| {
            let key = given.require("key")?.to_owned();
            let seen = here.state.snapshot();
            with_cache(here, given, |cache| {
                let bytes = seen.documents.iter().find(|(url, _)| *url == key).map(|(_, bytes)| *bytes);
                json!({ "cacheName": cache.name, "key": key, "exists": cache.keys.contains(&key), "bytes": bytes })
            })
        }),
        "cache_get_store_metadata" => Builtin::Sync(|here, given| {
            with_cache(
                here,
                given,
                |cache| json!({ "cacheName": cache.name, "store": "memory", "about": cache.description }),
            )
        }),
        "cache_get_health" => Builtin::Sync(|here, _| Ok(cache_report(&caches(&here.state)).to_json())),
        "cache_reap" => Builtin::Sync(|here, given| {
            with_cache(
                here,
                given,
                |cache| json!({ "cacheName": cache.name, "reaped": 0, "note": "what is over is forgotten by itself" }),
            )
        }),
        "cache_reap_all" => Builtin::Sync(|here, _| {
            shrink_buffers(&here.state);
            Ok(json!({ "reaped": 0, "note": "what is over is forgotten by itself" }))
        }),
        "cache_clear_stats" => Builtin::Sync(|here, given| {
            with_cache(here, given, |cache| {
                unavailable(&format!("nothing is counted of `{}` but its size", cache.name))
            })
        }),
        "cache_clear" => Builtin::Sync(cache_clear),
        "cache_clear_item" => Builtin::Sync(|here, given| {
            with_cache(here, given, |_| {
                unavailable("single entries are not forgotten; `cache_clear` forgets all of them")
            })
        }),
        "cache_clear_all" => Builtin::Sync(|here, _| {
            let removed: usize =
                caches(&here.state).iter().map(|cache| clear_cache(&here.state, cache.name)).sum();
            Ok(json!({ "removed": removed }))
        }),
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
        "http_get_executor" | "executor_get_all" => {
            Builtin::Sync(|here, _| Ok(list_json("executors", executors(&here.state))))
        }
        "http_get_service_summary" => Builtin::Sync(|here, _| {
            Ok(json!({ "clients": here.state.snapshot().apis.len(), "calls": collectors().http.stats() }))
        }),
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
        "scheduler_get_all" => {
            Builtin::Sync(|here, _| Ok(list_json("schedulers", vec![scheduler_json(&here.state)])))
        }
        "scheduler_get_names" => Builtin::Sync(|_, _| Ok(json!({ "names": [SCHEDULER_NAME] }))),
        "scheduler_get" => Builtin::Sync(|here, given| {
            check_scheduler_name(given.require("name")?)?;
            Ok(scheduler_json(&here.state))
        }),
        "scheduler_has" => {
            Builtin::Sync(|_, given| Ok(json!({ "exists": given.require("name")? == SCHEDULER_NAME })))
        }
        "scheduler_get_all_tasks" | "scheduler_get_all_task_stats" => Builtin::Sync(|here, _| {
            Ok(list_json("tasks", here.state.jobs().iter().map(|job| job.to_json()).collect()))
        }),
        "scheduler_get_task_info" | "scheduler_get_task_stats" => {
            Builtin::Sync(|here, given| Ok(find_job(here, given)?.to_json()))
        }
        "scheduler_get_persisted_tasks" => Builtin::Sync(|_, _| Ok(list_json("tasks", Vec::new()))),
        "scheduler_get_health" => Builtin::Sync(|here, _| Ok(scheduler_report(&here.state.jobs()).to_json())),
        "scheduler_run_task" => Builtin::Sync(|here, given| {
            let job = find_job(here, given)?;
            job.request_run();
            Ok(json!({ "task": job.name, "requested": true }))
        }),
        "scheduler_pause_task" => Builtin::Sync(|here, given| pause_job(here, given, true)),
        "scheduler_resume_task" => Builtin::Sync(|here, given| pause_job(here, given, false)),
        "scheduler_pause_persisted_task"
        | "scheduler_resume_persisted_task"
        | "scheduler_pause_all_persisted_tasks"
        | "scheduler_resume_all_persisted_tasks" => Builtin::Unavailable(JOBS_NOT_PERSISTED),
        "watcher_get_all" => Builtin::Sync(|here, _| {
            Ok(list_json("watchers", here.state.watchers().iter().map(|watcher| watcher.to_json()).collect()))
        }),
        "watcher_get_names" => Builtin::Sync(|here, _| {
            let watchers = here.state.watchers();
            Ok(json!({ "names": watchers.iter().map(|watcher| &watcher.name).collect::<Vec<_>>() }))
        }),
        "watcher_get" => Builtin::Sync(|here, given| Ok(find_watcher(here, given)?.to_json())),
        "watcher_has" => Builtin::Sync(|here, given| {
            let name = given.require("name")?;
            Ok(json!({ "exists": here.state.watchers().iter().any(|watcher| watcher.name == name) }))
        }),
        "watcher_get_stats" => Builtin::Sync(|here, given| match given.text("name") {
            Some(_) => Ok(find_watcher(here, given)?.to_json()),
            None => Ok(list_json(
                "watchers",
                here.state.watchers().iter().map(|watcher| watcher.to_json()).collect(),
            )),
        }),
        "watcher_get_health" => {
            Builtin::Sync(|here, _| Ok(watchers_report(&here.state.watchers()).to_json()))
        }
        "watcher_start" | "watcher_restart" => Builtin::Sync(|here, given| stop_watcher(here, given, false)),
        "watcher_stop" => Builtin::Sync(|here, given| stop_watcher(here, given, true)),
        "watcher_remove" => Builtin::Unavailable(
            "watchers are what the configuration says: take the folder out of it, or stop the watcher",
        ),
        _ => return None,
    })
}

// How well everything is.

/// Every part, by name.
pub(super) fn health_reports(world: &RuntimeState) -> Vec<(&'static str, HealthReport)> {
    let seen = world.snapshot();
    vec![
        (
            "process",
            process_report(
                procfs::memory().map(|memory| memory.rss),
                host::memory_limit(),
                n_blocked_threads(),
            ),
        ),
        ("executor", executor_report(world.heartbeat())),
        ("webserver", web_report(world)),
        ("datasource", databases_report(&seen.databases)),
        ("cache", cache_report(&caches(world))),
        ("scheduler", scheduler_report(&world.jobs())),
        ("watcher", watchers_report(&world.watchers())),
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
        let message = format!("the process uses {percent} % of the memory that it may have");
        if percent > 95.0 {
            let action = "restart it or give it more memory; `process_get_memory_details` shows where it is";
            issues.push(Issue::new(
                Severity::Critical,
                "PROC_MEM_CRITICAL",
                "process",
                message,
                action,
                metrics,
            ));
        } else if percent > 85.0 {
            let action = "watch `process_get_memory_info`; give it more memory before it is ended";
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
        let message = format!("{blocked} threads wait for a disk or the kernel");
        let action = "look at `host_get_disk_usage` and `process_get_thread_dump`";
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

fn executor_report(pulse: Heartbeat) -> HealthReport {
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

fn web_report(world: &RuntimeState) -> HealthReport {
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

fn databases_report(stores: &[DatabaseHandle]) -> HealthReport {
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

fn cache_report(caches: &[CacheInfo]) -> HealthReport {
    HealthReport::new(caches.iter().flat_map(cache_issues).collect(), caches.len())
}

fn cache_issues(cache: &CacheInfo) -> Vec<Issue> {
    let name = cache.name;
    let metrics = json!({ "size": cache.size, "hits": cache.hits, "misses": cache.misses, "evictions": cache.evictions });
    let mut issues = Vec::new();
    let mut say = |code, message: String, action| {
        issues.push(Issue::new(Severity::Warning, code, name, message, action, metrics.clone()));
    };
    if !cache.is_enabled {
        say("CACHE_DISABLED", format!("`{name}` keeps nothing"), "turn it on, if that was not meant");
    }
    let asked = cache.hits.unwrap_or(0) + cache.misses.unwrap_or(0);
    if asked >= 100 && (cache.hits.unwrap_or(0) as f64 / asked as f64) < 0.3 {
        let message = format!("less than a third of what is looked for is in `{name}`");
        say("CACHE_LOW_HIT_RATE", message, "make it larger, or do without it");
    }
    if cache.evictions.is_some_and(|evictions| evictions > 1000 && evictions > cache.hits.unwrap_or(0)) {
        say("CACHE_HIGH_EVICTIONS", format!("`{name}` forgets more than it is asked for"), "make it larger");
    }
    issues
}

fn scheduler_report(jobs: &[Arc<ScheduledJob>]) -> HealthReport {
    let active: Vec<&Arc<ScheduledJob>> = jobs.iter().filter(|job| job.interval().is_some()).collect();
    let mut issues = Vec::new();
    let metrics = json!({ "tasks": jobs.len(), "active": active.len() });
    if active.is_empty() {
        let message = "nothing is done from time to time".to_owned();
        let action = "serve the configuration with `toolgate serve`: jobs begin with it";
        issues.push(Issue::new(
            Severity::Warning,
            "SCHEDULER_NOT_STARTED",
            SCHEDULER_NAME,
            message,
            action,
            metrics,
        ));
    } else if active.iter().all(|job| job.is_paused()) {
        let message = "all jobs are paused".to_owned();
        let action = "`scheduler_resume_task`";
        issues.push(Issue::new(
            Severity::Warning,
            "SCHEDULER_ALL_TASKS_PAUSED",
            SCHEDULER_NAME,
            message,
            action,
            metrics,
        ));
    }
    HealthReport::new(issues, jobs.len())
}

fn watchers_report(watchers: &[Arc<FolderWatcher>]) -> HealthReport {
    let mut issues = Vec::new();
    for watcher in watchers {
        let (name, errors) = (watcher.name.as_str(), watcher.n_errors());
        let metrics = json!({ "errors": errors, "running": !watcher.is_stopped() });
        if watcher.is_stopped() {
            let message = format!("nobody looks at changes of `{name}`");
            issues.push(Issue::new(
                Severity::Warning,
                "WATCHER_STOPPED",
                name,
                message,
                "`watcher_start`",
                metrics.clone(),
            ));
        }
        let action = "the log says why; is the folder still there?";
        let message = format!("changes of `{name}` could not be looked at {errors} times");
        if errors >= 10 {
            issues.push(Issue::new(
                Severity::Critical,
                "WATCHER_HIGH_ERRORS",
                name,
                message,
                action,
                metrics,
            ));
        } else if errors > 0 {
            issues.push(Issue::new(Severity::Warning, "WATCHER_ERRORS", name, message, action, metrics));
        }
    }
    HealthReport::new(issues, watchers.len())
}

fn performance_report() -> HealthReport {
    let all = collectors();
    let found = [
        ("PERF_SLOW_QUERIES", "sql", count_recent(&all.sql), "`sql_get_slow_queries`"),
        ("PERF_SLOW_REQUESTS", "requests", count_recent(&all.requests), "`requests_get_slow_requests`"),
        ("PERF_SLOW_HTTP", "slow_http", count_recent(&all.http), "`slow_http_get_calls`"),
    ];
    let issues =
        found.into_iter().filter(|(_, _, count, _)| *count > 0).map(|(code, entity, count, action)| {
            let message = format!("{count} were slow in the last five minutes");
            Issue::new(Severity::Info, code, entity, message, action, json!({ "count": count }))
        });
    HealthReport::new(issues.collect(), 3)
}

// What there is to look at.

fn performance_snapshot(world: &RuntimeState) -> Value {
    let (all, health) = (collectors(), super::health(world));
    json!({
        "health": { "status": health["status"], "score": health["score"], "weakest": health["weakest"] },
        "requests": all.requests.stats(),
        "slowHttp": all.http.stats(),
        "sql": all.sql.stats(),
        "routes": all.routes.summary(),
        "slowestRoutes": all.routes.list(crate::observe::routes::RouteOrder::P99, 5),
        "webserver": webserver_stats(world),
        "executors": executors(world),
        "memory": procfs::memory().map(|memory| json!({
            "rssBytes": memory.rss,
            "percentOfLimit": host::percent(Some(memory.rss), host::memory_limit()),
        })),
        "load": host::load(),
    })
}

fn executors(world: &RuntimeState) -> Vec<Value> {
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

fn webserver_stats(world: &RuntimeState) -> Value {
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

/// Something that is kept so that it need not be asked for again.
struct CacheInfo {
    name: &'static str,
    description: &'static str,
    is_enabled: bool,
    size: usize,
    keys: Vec<String>,
    hits: Option<u64>,
    misses: Option<u64>,
    evictions: Option<u64>,
}

fn caches(world: &RuntimeState) -> Vec<CacheInfo> {
    let seen = world.snapshot();
    let sessions: usize = world
        .servers
        .names()
        .into_iter()
        .filter_map(|name| world.servers.get(&name))
        .map(|server| server.sessions().len())
        .sum();
    let cache = |name, about, size, keys| CacheInfo {
        name,
        description: about,
        is_enabled: true,
        size,
        keys,
        hits: None,
        misses: None,
        evictions: None,
    };
    let documents: Vec<String> = seen.documents.iter().map(|(url, _)| url.clone()).collect();
    let all = collectors();
    let kept = |slow: &crate::observe::slow_log::SlowLog| slow.count_since(0);
    vec![
        cache("descriptions", "descriptions of APIs that were read from URLs", documents.len(), documents),
        cache("sessions", "clients that are remembered; ids are not shown", sessions, Vec::new()),
        cache("slow_requests", "what took too long", kept(&all.requests), Vec::new()),
        cache("slow_http", "calls of APIs that took too long", kept(&all.http), Vec::new()),
        cache("slow_sql", "statements that took too long", kept(&all.sql), Vec::new()),
    ]
}

impl CacheInfo {
    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "about": self.description,
            "enabled": self.is_enabled,
            "size": self.size,
            "hits": self.hits,
            "misses": self.misses,
            "evictions": self.evictions,
        })
    }
}

fn cache_stats(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    match given.text("cacheName") {
        Some(_) => with_cache(here, given, CacheInfo::to_json),
        None => Ok(list_json("caches", caches(&here.state).iter().map(CacheInfo::to_json).collect())),
    }
}

/// What becomes of a cache by its name; one that is not there is no failure.
fn with_cache(
    here: &BuiltinContext,
    given: BuiltinArguments<'_>,
    show: impl FnOnce(&CacheInfo) -> Value,
) -> BuiltinResult {
    let name = given.require("cacheName")?;
    let all = caches(&here.state);
    Ok(match all.iter().find(|cache| cache.name == name) {
        Some(cache) => show(cache),
        None => {
            let names: Vec<&str> = all.iter().map(|cache| cache.name).collect();
            unavailable(&format!("there is no cache `{name}`; there is {}", names.join(", ")))
        }
    })
}

fn cache_clear(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let world = Arc::clone(&here.state);
    with_cache(
        here,
        given,
        move |cache| json!({ "cacheName": cache.name, "cleared": true, "removed": clear_cache(&world, cache.name) }),
    )
}

fn clear_cache(world: &RuntimeState, name: &str) -> usize {
    let all = collectors();
    match name {
        "sessions" => {
            let servers = world.servers.names().into_iter().filter_map(|name| world.servers.get(&name));
            servers.map(|server| server.clear_sessions()).sum()
        }
        "slow_requests" => all.requests.clear(),
        "slow_http" => all.http.clear(),
        "slow_sql" => all.sql.clear(),
        // They are asked for again when the configuration is read again.
        "descriptions" => {
            world.reload.notify_one();
            world.snapshot().documents.len()
        }
        _ => 0,
    }
}

/// Gives back room that is not needed.
pub(super) fn shrink_buffers(_: &RuntimeState) {
    collectors().logs.shrink();
    for slow in [&collectors().requests, &collectors().http, &collectors().sql] {
        slow.shrink();
    }
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
            tracing::warn!(
                connection = store.name,
                error = crate::config::redact_url(error),
                "a test failed"
            );
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

fn scheduler_json(world: &RuntimeState) -> Value {
    let jobs = world.jobs();
    json!({
        "name": SCHEDULER_NAME,
        "started": jobs.iter().any(|job| job.interval().is_some()),
        "tasks": jobs.iter().map(|job| job.to_json()).collect::<Vec<_>>(),
    })
}

fn check_scheduler_name(name: &str) -> Result<(), HandlerError> {
    if name == SCHEDULER_NAME {
        return Ok(());
    }
    Err(HandlerError::new(format!("there is no scheduler `{name}`; there is {SCHEDULER_NAME}")))
}

fn find_job(here: &BuiltinContext, given: BuiltinArguments<'_>) -> Result<Arc<ScheduledJob>, HandlerError> {
    check_scheduler_name(given.text("scheduler").unwrap_or(SCHEDULER_NAME))?;
    find_by_name("task", given.require("task")?, here.state.jobs(), |job| job.name)
}

fn pause_job(here: &BuiltinContext, given: BuiltinArguments<'_>, is_paused: bool) -> BuiltinResult {
    let job = find_job(here, given)?;
    job.set_paused(is_paused);
    Ok(job.to_json())
}

fn find_watcher(
    here: &BuiltinContext,
    given: BuiltinArguments<'_>,
) -> Result<Arc<FolderWatcher>, HandlerError> {
    find_by_name("watcher", given.require("name")?, here.state.watchers(), |watcher| watcher.name.as_str())
}

fn stop_watcher(here: &BuiltinContext, given: BuiltinArguments<'_>, is_stopped: bool) -> BuiltinResult {
    let watcher = find_watcher(here, given)?;
    watcher.set_stopped(is_stopped);
    Ok(watcher.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(issues: &[Issue]) -> Vec<&str> {
        issues.iter().map(|issue| issue.code.as_str()).collect()
    }

    #[test]
    fn memory_is_judged_by_what_the_process_may_have() {
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

    #[test]
    fn caches_are_judged_by_what_they_find() {
        let cache = |is_enabled, hits, misses, evictions| CacheInfo {
            name: "c",
            description: "",
            is_enabled,
            size: 1,
            keys: Vec::new(),
            hits: Some(hits),
            misses: Some(misses),
            evictions: Some(evictions),
        };
        assert!(cache_issues(&cache(true, 40, 60, 0)).is_empty());
        assert_eq!(codes(&cache_issues(&cache(false, 0, 0, 0))), ["CACHE_DISABLED"]);
        assert_eq!(
            codes(&cache_issues(&cache(true, 29, 71, 2000))),
            ["CACHE_LOW_HIT_RATE", "CACHE_HIGH_EVICTIONS"]
        );
    }

    #[test]
    fn watchers_and_jobs_are_judged_by_whether_they_run() {
        let watcher = FolderWatcher::new("docs".into(), "", Vec::new());
        assert!(watchers_report(&[Arc::clone(&watcher)]).issues.is_empty());
        watcher.record_error();
        watcher.set_stopped(true);
        assert_eq!(
            codes(&watchers_report(&[Arc::clone(&watcher)]).issues),
            ["WATCHER_STOPPED", "WATCHER_ERRORS"]
        );
        (0..9).for_each(|_| watcher.record_error());
        watcher.set_stopped(false);
        assert_eq!(codes(&watchers_report(&[watcher]).issues), ["WATCHER_HIGH_ERRORS"]);
        let world = RuntimeState::default();
        assert_eq!(codes(&scheduler_report(&world.jobs()).issues), ["SCHEDULER_NOT_STARTED"]);
        let job = world.job("x", "");
        job.set_interval(Some(Duration::from_secs(1)));
        assert!(scheduler_report(&world.jobs()).issues.is_empty());
        job.set_paused(true);
        assert_eq!(codes(&scheduler_report(&world.jobs()).issues), ["SCHEDULER_ALL_TASKS_PAUSED"]);
    }

    #[test]
    fn the_whole_names_every_part() {
        let whole = super::super::health(&RuntimeState::default());
        let parts = whole["subsystems"].as_object().unwrap();
        for part in
            ["process", "executor", "webserver", "datasource", "cache", "scheduler", "watcher", "performance"]
        {
            assert!(parts.contains_key(part), "{part}");
        }
        let weakest = parts.values().map(|part| part["score"].as_u64().unwrap()).min();
        assert_eq!(whole["score"].as_u64(), weakest);
    }
}
