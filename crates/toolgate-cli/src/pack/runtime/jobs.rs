//! Builtins about background jobs and folder watchers.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate::HandlerError;

use super::health::{HealthReport, Issue, Severity};
use super::{Builtin, BuiltinArguments, BuiltinContext, find_by_name, list_json};
use crate::pack::runtime_state::{FolderWatcher, RuntimeState, ScheduledJob};

/// The name of the only scheduler.
const SCHEDULER_NAME: &str = "toolgate";

const JOBS_NOT_PERSISTED: &str = "jobs are not persisted: the configuration defines them";

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "scheduler_get_all" => {
            Builtin::Sync(|context, _| Ok(list_json("schedulers", vec![scheduler_json(&context.state)])))
        }
        "scheduler_get_names" => Builtin::Sync(|_, _| Ok(json!({ "names": [SCHEDULER_NAME] }))),
        "scheduler_get" => Builtin::Sync(|context, arguments| {
            check_scheduler_name(arguments.require("name")?)?;
            Ok(scheduler_json(&context.state))
        }),
        "scheduler_has" => Builtin::Sync(|_, arguments| {
            Ok(json!({ "exists": arguments.require("name")? == SCHEDULER_NAME }))
        }),
        "scheduler_get_all_tasks" | "scheduler_get_all_task_stats" => Builtin::Sync(|context, _| {
            Ok(list_json("tasks", context.state.jobs().iter().map(|job| job.to_json()).collect()))
        }),
        "scheduler_get_task_info" | "scheduler_get_task_stats" => {
            Builtin::Sync(|context, arguments| Ok(find_job(context, arguments)?.to_json()))
        }
        "scheduler_get_persisted_tasks" => Builtin::Sync(|_, _| Ok(list_json("tasks", Vec::new()))),
        "scheduler_get_health" => {
            Builtin::Sync(|context, _| Ok(scheduler_report(&context.state.jobs()).to_json()))
        }
        "scheduler_run_task" => Builtin::Sync(|context, arguments| {
            let job = find_job(context, arguments)?;
            job.request_run();
            Ok(json!({ "task": job.name, "requested": true }))
        }),
        "scheduler_pause_task" => Builtin::Sync(|context, arguments| {
            let job = find_job(context, arguments)?;
            job.pause();
            Ok(job.to_json())
        }),
        "scheduler_resume_task" => Builtin::Sync(|context, arguments| {
            let job = find_job(context, arguments)?;
            job.resume();
            Ok(job.to_json())
        }),
        "scheduler_pause_persisted_task"
        | "scheduler_resume_persisted_task"
        | "scheduler_pause_all_persisted_tasks"
        | "scheduler_resume_all_persisted_tasks" => Builtin::Unavailable(JOBS_NOT_PERSISTED),
        "watcher_get_all" => Builtin::Sync(|context, _| {
            Ok(list_json(
                "watchers",
                context.state.watchers().iter().map(|watcher| watcher.to_json()).collect(),
            ))
        }),
        "watcher_get_names" => Builtin::Sync(|context, _| {
            let watchers = context.state.watchers();
            Ok(json!({ "names": watchers.iter().map(|watcher| &watcher.name).collect::<Vec<_>>() }))
        }),
        "watcher_get" => Builtin::Sync(|context, arguments| Ok(find_watcher(context, arguments)?.to_json())),
        "watcher_has" => Builtin::Sync(|context, arguments| {
            let name = arguments.require("name")?;
            Ok(json!({ "exists": context.state.watchers().iter().any(|watcher| watcher.name == name) }))
        }),
        "watcher_get_stats" => Builtin::Sync(|context, arguments| match arguments.text("name") {
            Some(_) => Ok(find_watcher(context, arguments)?.to_json()),
            None => Ok(list_json(
                "watchers",
                context.state.watchers().iter().map(|watcher| watcher.to_json()).collect(),
            )),
        }),
        "watcher_get_health" => {
            Builtin::Sync(|context, _| Ok(watchers_report(&context.state.watchers()).to_json()))
        }
        "watcher_start" | "watcher_restart" => Builtin::Sync(|context, arguments| {
            let watcher = find_watcher(context, arguments)?;
            watcher.start();
            Ok(watcher.to_json())
        }),
        "watcher_stop" => Builtin::Sync(|context, arguments| {
            let watcher = find_watcher(context, arguments)?;
            watcher.stop();
            Ok(watcher.to_json())
        }),
        "watcher_remove" => Builtin::Unavailable(
            "the configuration defines the watchers: remove the folder there, or stop the watcher",
        ),
        _ => return None,
    })
}

pub(super) fn scheduler_report(jobs: &[Arc<ScheduledJob>]) -> HealthReport {
    let active: Vec<&Arc<ScheduledJob>> = jobs.iter().filter(|job| job.interval().is_some()).collect();
    let mut issues = Vec::new();
    let metrics = json!({ "tasks": jobs.len(), "active": active.len() });
    if active.is_empty() {
        let message = "no job is active".to_owned();
        let action = "serve the configuration with `toolgate serve`, which starts the jobs";
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

pub(super) fn watchers_report(watchers: &[Arc<FolderWatcher>]) -> HealthReport {
    let mut issues = Vec::new();
    for watcher in watchers {
        let (name, errors) = (watcher.name.as_str(), watcher.n_errors());
        let metrics = json!({ "errors": errors, "running": !watcher.is_stopped() });
        if watcher.is_stopped() {
            let message = format!("the watcher `{name}` is stopped");
            issues.push(Issue::new(
                Severity::Warning,
                "WATCHER_STOPPED",
                name,
                message,
                "`watcher_start`",
                metrics.clone(),
            ));
        }
        let action = "see the log; does the folder still exist?";
        let message = format!("watching `{name}` failed {errors} times");
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

fn scheduler_json(state: &RuntimeState) -> Value {
    let jobs = state.jobs();
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
    Err(HandlerError::new(format!("unknown scheduler `{name}`; known: {SCHEDULER_NAME}")))
}

fn find_job(
    context: &BuiltinContext,
    arguments: BuiltinArguments<'_>,
) -> Result<Arc<ScheduledJob>, HandlerError> {
    check_scheduler_name(arguments.text("scheduler").unwrap_or(SCHEDULER_NAME))?;
    find_by_name("task", arguments.require("task")?, context.state.jobs(), |job| job.name)
}

fn find_watcher(
    context: &BuiltinContext,
    arguments: BuiltinArguments<'_>,
) -> Result<Arc<FolderWatcher>, HandlerError> {
    find_by_name("watcher", arguments.require("name")?, context.state.watchers(), |watcher| {
        watcher.name.as_str()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn codes(issues: &[Issue]) -> Vec<&str> {
        issues.iter().map(|issue| issue.code.as_str()).collect()
    }

    #[test]
    fn watcher_and_scheduler_health_depend_on_their_state() {
        let watcher = FolderWatcher::new("docs".into(), "", Vec::new());
        assert!(watchers_report(&[Arc::clone(&watcher)]).issues.is_empty());
        watcher.record_error();
        watcher.stop();
        assert_eq!(
            codes(&watchers_report(&[Arc::clone(&watcher)]).issues),
            ["WATCHER_STOPPED", "WATCHER_ERRORS"]
        );
        (0..9).for_each(|_| watcher.record_error());
        watcher.start();
        assert_eq!(codes(&watchers_report(&[watcher]).issues), ["WATCHER_HIGH_ERRORS"]);
        let state = RuntimeState::default();
        assert_eq!(codes(&scheduler_report(&state.jobs()).issues), ["SCHEDULER_NOT_STARTED"]);
        let job = state.job("x", "");
        job.set_interval(Some(Duration::from_secs(1)));
        assert!(scheduler_report(&state.jobs()).issues.is_empty());
        job.pause();
        assert_eq!(codes(&scheduler_report(&state.jobs()).issues), ["SCHEDULER_ALL_TASKS_PAUSED"]);
    }
}
