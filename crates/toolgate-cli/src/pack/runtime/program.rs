//! Acts about the program: what it is, what it serves, how it is configured, who listens.

use serde_json::{Value, json};

use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, caches, procfs};
use crate::clock::{format_iso8601, process_start};
use crate::config;
use crate::log;
use crate::observe::collectors;
use crate::pack::PACKS;

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "runtime_get_info" => Builtin::Sync(|here, _| Ok(program_info(here))),
        "runtime_get_build_info" => Builtin::Sync(|_, _| Ok(build_info())),
        "runtime_get_config" => Builtin::Sync(|here, _| Ok(here.state.snapshot().config.clone())),
        "runtime_get_config_value" => Builtin::Sync(config_value),
        "runtime_config_diff" => Builtin::Sync(config_diff),
        "runtime_get_global_services" => Builtin::Sync(|here, _| Ok(global_services(here))),
        "runtime_get_feature_flags" => Builtin::Sync(|_, _| Ok(features())),
        "runtime_toggle_debug_mode" => Builtin::Sync(toggle_debug),
        "runtime_clear_system_cache" | "runtime_release_memory" => Builtin::Sync(|_, _| {
            caches::shrink_buffers();
            Ok(json!({ "cleared": true, "what": ["room of buffers that they do not need"] }))
        }),
        _ => return None,
    })
}

pub(super) fn program_info(here: &BuiltinContext) -> Value {
    let birth = process_start();
    // What is served has a version of its own; a program that serves nothing has only that.
    let server = here.state.servers.get(&here.server);
    let version = server.map_or_else(|| env!("CARGO_PKG_VERSION").to_owned(), |server| server.version());
    json!({
        // The name that clients of such servers look for.
        "boxlangVersion": version,
        "version": version,
        "program": { "name": "toolgate", "version": env!("CARGO_PKG_VERSION") },
        "runtime": { "language": "Rust", "compiler": env!("TOOLGATE_RUSTC"), "profile": env!("TOOLGATE_PROFILE") },
        "os": { "name": std::env::consts::OS, "arch": std::env::consts::ARCH },
        "pid": std::process::id(),
        "server": here.server,
        "servers": here.state.servers.names(),
        "startedAt": format_iso8601(birth.unix_millis),
        "uptimeMs": u64::try_from(birth.uptime().as_millis()).unwrap_or(u64::MAX),
        "debugMode": log::is_debug(),
    })
}

fn build_info() -> Value {
    json!({
        "name": env!("CARGO_PKG_NAME"),
        "version": env!("CARGO_PKG_VERSION"),
        "license": env!("CARGO_PKG_LICENSE"),
        "rustc": env!("TOOLGATE_RUSTC"),
        "target": env!("TOOLGATE_TARGET"),
        "profile": env!("TOOLGATE_PROFILE"),
        "commit": option_env!("TOOLGATE_COMMIT"),
        "features": features()["features"].clone(),
    })
}

fn features() -> Value {
    json!({
        "features": ["http", "stdio", "sqlite", "postgres", "mysql", "openapi", "files", "command", "templates", "packs"],
        "packs": PACKS.iter().map(|pack| pack.name).collect::<Vec<_>>(),
        "debugAssertions": cfg!(debug_assertions),
    })
}

/// What the configuration says at a dotted path: `servers.shop.tools`, `listen.http`.
fn config_value(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let path = given.require("path")?;
    let seen = here.state.snapshot();
    let mut found = Some(&seen.config);
    for part in path.split('.').filter(|part| !part.is_empty()) {
        found = found.and_then(|value| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            value => value.get(part),
        });
    }
    Ok(match found {
        Some(value) => json!({ "path": path, "found": true, "value": value }),
        None => {
            json!({ "path": path, "found": false, "hint": "defaults are not shown, only what the file says" })
        }
    })
}

/// What the file says by now, and is not served.
fn config_diff(here: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let seen = here.state.snapshot();
    if seen.config_file.as_os_str().is_empty() {
        return Ok(procfs::unavailable("no file is served"));
    }
    let read = config::load(&seen.config_file);
    let mut changes = Vec::new();
    diff_values("", &seen.config, &read.config.redacted, &mut changes);
    Ok(json!({
        "same": changes.is_empty() && read.diagnostics.is_empty(),
        "fileIsValid": read.diagnostics.is_empty(),
        "changes": changes,
    }))
}

fn diff_values(at: &str, live: &Value, file: &Value, found: &mut Vec<Value>) {
    if live == file || found.len() >= 200 {
        return;
    }
    if let (Value::Object(before), Value::Object(after)) = (live, file) {
        let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            diff_values(
                &at,
                before.get(key).unwrap_or(&Value::Null),
                after.get(key).unwrap_or(&Value::Null),
                found,
            );
        }
        return;
    }
    found.push(json!({ "path": at, "live": live, "file": file }));
}

fn global_services(here: &BuiltinContext) -> Value {
    let seen = here.state.snapshot();
    json!({
        "servers": here.state.servers.names(),
        "databases": seen.databases.iter().map(|store| store.name.clone()).collect::<Vec<_>>(),
        "apis": seen.apis.iter().map(|api| api.name.clone()).collect::<Vec<_>>(),
        "jobs": here.state.jobs().iter().map(|job| job.name).collect::<Vec<_>>(),
        "watchers": here.state.watchers().iter().map(|watcher| watcher.name.clone()).collect::<Vec<_>>(),
        "collectors": {
            "requests": collectors().requests.config(),
            "slowHttp": collectors().http.config(),
            "sql": collectors().sql.config(),
            "routes": collectors().routes.config(),
        },
    })
}

fn toggle_debug(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let wanted = given.flag("enabled").unwrap_or(!log::is_debug());
    if !log::set_debug(wanted) {
        return Ok(procfs::unavailable("there is no log whose level could be changed"));
    }
    let level = log::level();
    tracing::warn!(level, "the level of the log was changed by a tool");
    Ok(json!({ "debugMode": log::is_debug(), "level": log::level() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_by_path() {
        let live = json!({ "a": { "b": 1, "c": [1] }, "d": 1 });
        let file = json!({ "a": { "b": 2, "c": [1] }, "e": true });
        let mut found = Vec::new();
        diff_values("", &live, &file, &mut found);
        let paths: Vec<&str> = found.iter().map(|one| one["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["a.b", "d", "e"]);
        assert_eq!(found[0], json!({ "path": "a.b", "live": 1, "file": 2 }));
    }
}
