//! Builtins about the program: version, build, configuration and log level.

use serde_json::{Value, json};

use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, caches, procfs};
use crate::clock::{format_iso8601, process_start};
use crate::config;
use crate::log;
use crate::observe::collectors;
use crate::pack::PACKS;

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "runtime_get_info" => Builtin::Sync(|context, _| Ok(program_info(context))),
        "runtime_get_build_info" => Builtin::Sync(|_, _| Ok(build_info())),
        "runtime_get_config" => Builtin::Sync(|context, _| Ok(context.state.snapshot().config.clone())),
        "runtime_get_config_value" => Builtin::Sync(config_value),
        "runtime_config_diff" => Builtin::Sync(config_diff),
        "runtime_get_global_services" => Builtin::Sync(|context, _| Ok(global_services(context))),
        "runtime_get_feature_flags" => Builtin::Sync(|_, _| Ok(features())),
        "runtime_toggle_debug_mode" => Builtin::Sync(toggle_debug),
        "runtime_clear_system_cache" | "runtime_release_memory" => Builtin::Sync(|_, _| {
            caches::shrink_buffers();
            Ok(json!({ "cleared": true, "what": ["unused buffer memory"] }))
        }),
        _ => return None,
    })
}

pub(super) fn program_info(context: &BuiltinContext) -> Value {
    let start = process_start();
    // The version of the server, or of the program if there is no server.
    let server = context.state.servers.get(&context.server);
    let version = server.map_or_else(|| env!("CARGO_PKG_VERSION").to_owned(), |server| server.version());
    json!({
        // The key that clients of BoxLang servers expect.
        "boxlangVersion": version,
        "version": version,
        "program": { "name": "toolgate", "version": env!("CARGO_PKG_VERSION") },
        "runtime": { "language": "Rust", "compiler": env!("TOOLGATE_RUSTC"), "profile": env!("TOOLGATE_PROFILE") },
        "os": { "name": std::env::consts::OS, "arch": std::env::consts::ARCH },
        "pid": std::process::id(),
        "server": context.server,
        "servers": context.state.servers.names(),
        "startedAt": format_iso8601(start.unix_millis),
        "uptimeMs": u64::try_from(start.uptime().as_millis()).unwrap_or(u64::MAX),
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

/// Returns the configuration at a dotted path: `servers.shop.tools`, `listen.http`.
fn config_value(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let path = arguments.require("path")?;
    let snapshot = context.state.snapshot();
    let mut value_at_path = Some(&snapshot.config);
    for part in path.split('.').filter(|part| !part.is_empty()) {
        value_at_path = value_at_path.and_then(|value| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            value => value.get(part),
        });
    }
    Ok(match value_at_path {
        Some(value) => json!({ "path": path, "found": true, "value": value }),
        None => {
            json!({ "path": path, "found": false, "hint": "defaults are not included, only values of the file" })
        }
    })
}

/// Compares the configuration file with the running configuration.
fn config_diff(context: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let snapshot = context.state.snapshot();
    if snapshot.config_file.as_os_str().is_empty() {
        return Ok(procfs::unavailable("there is no configuration file"));
    }
    let loaded = config::load(&snapshot.config_file);
    let mut changes = Vec::new();
    diff_values("", &snapshot.config, &loaded.config.redacted, &mut changes);
    Ok(json!({
        "same": changes.is_empty() && loaded.diagnostics.is_empty(),
        "fileIsValid": loaded.diagnostics.is_empty(),
        "changes": changes,
    }))
}

fn diff_values(path: &str, live: &Value, file: &Value, changes: &mut Vec<Value>) {
    if live == file || changes.len() >= 200 {
        return;
    }
    if let (Value::Object(before), Value::Object(after)) = (live, file) {
        let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            diff_values(
                &path,
                before.get(key).unwrap_or(&Value::Null),
                after.get(key).unwrap_or(&Value::Null),
                changes,
            );
        }
        return;
    }
    changes.push(json!({ "path": path, "live": live, "file": file }));
}

fn global_services(context: &BuiltinContext) -> Value {
    let snapshot = context.state.snapshot();
    json!({
        "servers": context.state.servers.names(),
        "databases": snapshot.databases.iter().map(|store| store.name.clone()).collect::<Vec<_>>(),
        "apis": snapshot.apis.iter().map(|api| api.name.clone()).collect::<Vec<_>>(),
        "jobs": context.state.jobs().iter().map(|job| job.name).collect::<Vec<_>>(),
        "watchers": context.state.watchers().iter().map(|watcher| watcher.name.clone()).collect::<Vec<_>>(),
        "collectors": {
            "requests": collectors().requests.config(),
            "slowHttp": collectors().http.config(),
            "sql": collectors().sql.config(),
            "routes": collectors().routes.config(),
        },
    })
}

fn toggle_debug(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let wanted = arguments.flag("enabled").unwrap_or(!log::is_debug());
    if !log::set_debug(wanted) {
        return Ok(procfs::unavailable("the log level cannot be changed"));
    }
    let level = log::level();
    tracing::warn!(level, "log level changed by a tool");
    Ok(json!({ "debugMode": log::is_debug(), "level": log::level() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_reported_by_path() {
        let live = json!({ "a": { "b": 1, "c": [1] }, "d": 1 });
        let file = json!({ "a": { "b": 2, "c": [1] }, "e": true });
        let mut changes = Vec::new();
        diff_values("", &live, &file, &mut changes);
        let paths: Vec<&str> = changes.iter().map(|one| one["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["a.b", "d", "e"]);
        assert_eq!(changes[0], json!({ "path": "a.b", "live": 1, "file": 2 }));
    }
}
