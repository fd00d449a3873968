//! Builtins about background jobs and folder watchers.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate::HandlerError;

use super::health::{HealthReport, Issue, Severity};
use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, find_by_name, list_json};
use crate::pack::runtime_state::{FolderWatcher, RuntimeState, ScheduledJob};

/// The one scheduler that there is.
const SCHEDULER_NAME: &str = "toolgate";

const JOBS_NOT_PERSISTED: &str =
    "jobs are not written down: they are what the configuration needs, and begin with it";

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
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

pub(super) fn scheduler_report(jobs: &[Arc<ScheduledJob>]) -> HealthReport {
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

pub(super) fn watchers_report(watchers: &[Arc<FolderWatcher>]) -> HealthReport {
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
    use std::time::Duration;

    use super::*;

    fn codes(issues: &[Issue]) -> Vec<&str> {
        issues.iter().map(|issue| issue.code.as_str()).collect()
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
}
