//! Acts about the program: what it is, what it serves, how it is configured, who listens.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolgate::{HandlerError, Server};

use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, find_by_name, list_json};
use crate::clock::{format_iso8601, process_start};
use crate::config;
use crate::log;
use crate::observe::collectors;
use crate::pack::PACKS;
use crate::pack::runtime_state::{ServerSummary, redact_uri};

/// What the program was built with; the whole workspace is among it.
const CARGO_LOCK: &str = include_str!("../../../../../Cargo.lock");

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "runtime_get_info" => Builtin::Sync(|here, _| Ok(program_info(here))),
        "runtime_get_build_info" => Builtin::Sync(|_, _| Ok(build_info())),
        "runtime_get_config" => Builtin::Sync(|here, _| Ok(here.state.snapshot().config.clone())),
        "runtime_get_config_value" => Builtin::Sync(config_value),
        "runtime_config_diff" => Builtin::Sync(config_diff),
        "runtime_get_tool_summary" => Builtin::Sync(tool_summary),
        "runtime_get_tool_info" => Builtin::Sync(tool_info),
        "runtime_search_tools" => Builtin::Sync(search_tools),
        "runtime_get_crate_summary" => Builtin::Sync(|_, _| Ok(crate_summary())),
        "runtime_get_crate_info" => Builtin::Sync(crate_info),
        "runtime_search_crates" => Builtin::Sync(search_crates),
        "runtime_get_global_services" => Builtin::Sync(|here, _| Ok(global_services(here))),
        "runtime_get_feature_flags" => Builtin::Sync(|_, _| Ok(features())),
        "runtime_toggle_debug_mode" => Builtin::Sync(toggle_debug),
        "runtime_clear_system_cache" | "runtime_release_memory" => Builtin::Sync(|here, _| {
            super::subsystems::shrink_buffers(&here.state);
            Ok(json!({ "cleared": true, "what": ["room of buffers that they do not need"] }))
        }),
        "runtime_servers" | "mcp_get_servers" => {
            Builtin::Sync(|here, _| Ok(list_json("servers", servers_json(here))))
        }
        "runtime_tools" => Builtin::Sync(|here, _| Ok(list_json("tools", all_tools(here)))),
        "runtime_events" => Builtin::Sync(|here, _| {
            Ok(json!({ "points": event_points(here), "newest": here.state.events(200) }))
        }),
        "runtime_metrics" => Builtin::Sync(|here, _| Ok(here.state.servers.prometheus().into())),
        "runtime_server_stats" => Builtin::Sync(|here, given| {
            let name = given.text("name").unwrap_or_default();
            Ok(here.state.servers.get(name).map_or(Value::Null, |server| json!(server.stats())))
        }),
        "mcp_get_stats" => Builtin::Sync(server_stats),
        "mcp_get_sessions" => Builtin::Sync(list_sessions),
        "mcp_get_clients" => Builtin::Sync(|here, _| Ok(clients_json(here))),
        "mcp_get_tasks" => Builtin::Sync(list_tasks),
        "mcp_get_dialect" => Builtin::Sync(get_dialect),
        "mcp_reset_stats" => Builtin::Sync(reset_stats),
        "server_pause" => Builtin::Sync(pause_server),
        "server_resume" => Builtin::Sync(resume_server),
        "app_get_names" => Builtin::Sync(|here, _| Ok(json!({ "names": here.state.servers.names() }))),
        "app_get_all" => Builtin::Sync(|here, _| Ok(list_json("apps", servers_json(here)))),
        "app_get" => Builtin::Sync(get_app),
        "app_has" => Builtin::Sync(|here, given| {
            Ok(json!({ "exists": here.state.servers.has(given.require("name")?) }))
        }),
        "app_get_summary" => Builtin::Sync(|here, _| Ok(app_summary(here))),
        "app_restart" => Builtin::Sync(|here, given| {
            find_server(here, given, "name")?;
            Ok(request_reload(here))
        }),
        "app_stop" => Builtin::Sync(pause_server),
        "app_sessions_clear" => Builtin::Sync(|here, given| {
            Ok(json!({ "removed": find_server(here, given, "name")?.clear_sessions() }))
        }),
        "module_get_all" => Builtin::Sync(|here, _| Ok(list_json("modules", list_modules(here)))),
        "module_get_names" => Builtin::Sync(|here, _| {
            let names: Vec<Value> =
                list_modules(here).into_iter().map(|module| module["name"].clone()).collect();
            Ok(json!({ "names": names }))
        }),
        "module_get_info" => Builtin::Sync(find_module),
        "module_get_settings" => Builtin::Sync(|here, given| {
            Ok(json!({ "settings": find_module(here, given)?["usedBy"].clone() }))
        }),
        "module_get_paths" => Builtin::Sync(|here, _| {
            let seen = here.state.snapshot();
            let files: Vec<String> =
                seen.config_files.iter().map(|file| file.display().to_string()).collect();
            Ok(json!({ "configuration": seen.config_file.display().to_string(), "files": files }))
        }),
        "module_has" => Builtin::Sync(|here, given| {
            let name = given.require("name")?;
            Ok(json!({ "exists": list_modules(here).iter().any(|module| module["name"] == name) }))
        }),
        "module_get_stats" => Builtin::Sync(|here, _| {
            let seen = here.state.snapshot();
            Ok(json!({
                "modules": list_modules(here).len(),
                "files": seen.config_files.len(),
                "loads": seen.n_loads,
                "lastLoadedAt": format_iso8601(seen.loaded_at),
            }))
        }),
        "module_reload" => Builtin::Sync(|here, given| {
            find_module(here, given)?;
            Ok(request_reload(here))
        }),
        "module_reload_all" => Builtin::Sync(|here, _| Ok(request_reload(here))),
        "interceptor_get_points" => Builtin::Sync(|here, _| {
            let names: Vec<&str> =
                here.state.servers.events().listeners().into_iter().map(|(name, _)| name).collect();
            Ok(json!({ "points": names }))
        }),
        "interceptor_has_point" => Builtin::Sync(|here, given| {
            let name = given.require("name")?;
            let known = here.state.servers.events().listeners();
            Ok(json!({ "exists": known.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) }))
        }),
        "interceptor_get_states" => Builtin::Sync(|here, _| Ok(list_json("states", event_points(here)))),
        "interceptor_get_state" => Builtin::Sync(|here, given| {
            let name = given.require("name")?;
            find_by_name("point", name, event_points(here), |point| {
                point["name"].as_str().unwrap_or_default()
            })
        }),
        "interceptor_get_summary" => Builtin::Sync(|here, _| {
            let points = event_points(here);
            let listeners: u64 = points.iter().filter_map(|point| point["listeners"].as_u64()).sum();
            Ok(json!({
                "points": points.len(),
                "listeners": listeners,
                "notHeardInTime": here.state.servers.events().dropped(),
            }))
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
        return Ok(super::procfs::unavailable("no file is served"));
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

fn all_servers(here: &BuiltinContext) -> impl Iterator<Item = Server> + '_ {
    here.state.servers.names().into_iter().filter_map(|name| here.state.servers.get(&name))
}

/// The one server that an argument names.
fn find_server(
    here: &BuiltinContext,
    given: BuiltinArguments<'_>,
    argument: &str,
) -> Result<Server, HandlerError> {
    let name = given.require(argument)?;
    here.state.servers.get(name).ok_or_else(|| {
        let names = here.state.servers.names().join(", ");
        HandlerError::new(format!("there is no server `{name}`; there is {names}"))
    })
}

/// Those that an argument means: one, or all.
fn select_servers(here: &BuiltinContext, given: BuiltinArguments<'_>) -> Result<Vec<Server>, HandlerError> {
    match given.text("server") {
        Some(_) => Ok(vec![find_server(here, given, "server")?]),
        None => Ok(all_servers(here).collect()),
    }
}

fn server_summary(here: &BuiltinContext, name: &str) -> Option<ServerSummary> {
    here.state.snapshot().servers.iter().find(|server| server.name == name).cloned()
}

fn server_json(here: &BuiltinContext, server: &Server) -> Value {
    let name = server.name();
    let told = server_summary(here, &name);
    json!({
        "name": name,
        "version": server.version(),
        "description": server.description(),
        "path": told.as_ref().map(|told| told.path.clone()),
        "dialect": told.as_ref().map(|told| told.dialect.clone()),
        "packs": told.as_ref().map(|told| told.packs.clone()),
        "guarded": told.as_ref().map(|told| told.is_guarded),
        "paused": server.is_paused(),
        "tools": server.tool_count(),
        "resources": server.resource_count(),
        "templates": server.templates().len(),
        "prompts": server.prompt_count(),
        "sessions": server.sessions().len(),
        "summary": server.stats_summary(),
    })
}

fn servers_json(here: &BuiltinContext) -> Vec<Value> {
    all_servers(here).map(|server| server_json(here, &server)).collect()
}

fn get_app(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    Ok(server_json(here, &find_server(here, given, "name")?))
}

fn app_summary(here: &BuiltinContext) -> Value {
    let all: Vec<Server> = all_servers(here).collect();
    json!({
        "total": all.len(),
        "running": all.iter().filter(|server| !server.is_paused()).count(),
        "paused": all.iter().filter(|server| server.is_paused()).count(),
        "sessions": all.iter().map(|server| server.sessions().len()).sum::<usize>(),
        "activeRequests": all.iter().map(|server| server.stats_summary().active_requests).sum::<u64>(),
    })
}

fn all_tools(here: &BuiltinContext) -> Vec<Value> {
    let tools = all_servers(here).flat_map(|server| {
        let name = server.name();
        server
            .tools()
            .into_iter()
            .map(move |tool| json!({ "server": name, "name": tool.name, "description": tool.description }))
    });
    tools.collect()
}

fn tool_summary(here: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let mut domains: BTreeMap<String, usize> = BTreeMap::new();
    let tools = all_tools(here);
    for tool in &tools {
        let name = tool["name"].as_str().unwrap_or_default();
        *domains.entry(name.split('_').next().unwrap_or(name).to_owned()).or_default() += 1;
    }
    let by_server: BTreeMap<String, usize> =
        all_servers(here).map(|server| (server.name(), server.tool_count())).collect();
    Ok(json!({ "total": tools.len(), "byServer": by_server, "byPrefix": domains }))
}

fn tool_info(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let name = given.require("name")?;
    let found: Vec<Value> = all_servers(here)
        .filter_map(|server| {
            let tool = server.get_tool(name)?;
            let calls = server.stats().tools.by_tool.remove(name).unwrap_or_default();
            Some(json!({
                "server": server.name(),
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "inputSchema": serde_json::from_str::<Value>(tool.input_schema.as_str()).unwrap_or_default(),
                "calls": calls,
            }))
        })
        .collect();
    if found.is_empty() {
        return Err(HandlerError::new(format!(
            "there is no tool `{name}`; `runtime_search_tools` finds them by a word"
        )));
    }
    Ok(list_json("tools", found))
}

fn search_tools(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let keyword = given.require("keyword")?.to_lowercase();
    let is_meant = |tool: &Value| {
        let has = |key: &str| tool[key].as_str().is_some_and(|text| text.to_lowercase().contains(&keyword));
        has("name") || has("description")
    };
    let found: Vec<Value> = all_tools(here).into_iter().filter(is_meant).take(given.limit(100)).collect();
    Ok(list_json("tools", found))
}

/// A crate, as the lock file names it.
#[derive(Clone, Debug, Default)]
struct LockedPackage {
    name: String,
    version: String,
    /// Of this workspace.
    is_workspace_member: bool,
    /// `name`, or `name version` where there are several.
    dependencies: Vec<String>,
}

impl LockedPackage {
    fn to_json(&self) -> Value {
        json!({ "name": self.name, "version": self.version, "own": self.is_workspace_member, "dependencies": self.dependencies })
    }
}

/// Reads a lock file, which Cargo writes in one way only: a value a line.
fn parse_lock_file(text: &str) -> Vec<LockedPackage> {
    let tables = text.split("[[package]]").skip(1);
    let read = |table: &str| {
        let value = |key: &str| {
            let line = table.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim().trim_matches('"').to_owned())
        };
        let listed = table.lines().filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\","));
        LockedPackage {
            name: value("name").unwrap_or_default(),
            version: value("version").unwrap_or_default(),
            is_workspace_member: value("source").is_none(),
            dependencies: listed.map(str::to_owned).collect(),
        }
    };
    tables.map(read).collect()
}

/// Every crate that is in the program, and its releases.
fn linked_crates() -> BTreeMap<String, Vec<LockedPackage>> {
    let mut found: BTreeMap<String, Vec<LockedPackage>> = BTreeMap::new();
    let all = parse_lock_file(CARGO_LOCK);
    // What xtask and the tests of others need is in the same list: only what can be reached from here counts.
    let mut waiting = vec![env!("CARGO_PKG_NAME").to_owned()];
    while let Some(wanted) = waiting.pop() {
        let (name, version) = wanted.split_once(' ').unwrap_or((&wanted, ""));
        let is_meant =
            |one: &&LockedPackage| one.name == name && (version.is_empty() || one.version == version);
        for one in all.iter().filter(is_meant) {
            let known = found.entry(one.name.clone()).or_default();
            if known.iter().any(|known| known.version == one.version) {
                continue;
            }
            known.push(one.clone());
            waiting.extend(one.dependencies.iter().cloned());
        }
    }
    found
}

fn crate_summary() -> Value {
    let crates = linked_crates();
    let direct =
        crates.get(env!("CARGO_PKG_NAME")).and_then(|own| own.first()).map(|own| own.dependencies.clone());
    let several: Vec<&String> =
        crates.iter().filter(|(_, releases)| releases.len() > 1).map(|(name, _)| name).collect();
    json!({
        "total": crates.values().map(Vec::len).sum::<usize>(),
        "own": crates.values().flatten().filter(|one| one.is_workspace_member).count(),
        "direct": direct,
        "severalReleases": several,
        "note": "as locked when the program was built; crates that only tests or other systems need are among them",
    })
}

fn crate_info(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let name = given.require("name")?;
    match linked_crates().remove(name) {
        Some(releases) => Ok(list_json("releases", releases.iter().map(LockedPackage::to_json).collect())),
        None => Err(HandlerError::new(format!(
            "the crate `{name}` is not in this program; `runtime_search_crates` finds them by a word"
        ))),
    }
}

fn search_crates(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let keyword = given.require("keyword")?.to_lowercase();
    let found = linked_crates().into_iter().filter(|(name, _)| name.to_lowercase().contains(&keyword));
    let found: Vec<Value> = found
        .flat_map(|(_, releases)| releases)
        .map(|one| json!({ "name": one.name, "version": one.version }))
        .take(given.limit(100))
        .collect();
    Ok(list_json("crates", found))
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
        return Ok(super::procfs::unavailable("there is no log whose level could be changed"));
    }
    let level = log::level();
    tracing::warn!(level, "the level of the log was changed by a tool");
    Ok(json!({ "debugMode": log::is_debug(), "level": log::level() }))
}

fn server_stats(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let all = select_servers(here, given)?;
    let shown = all.iter().map(|server| {
        let mut stats = json!(server.stats());
        // A thousand samples each are more than anybody reads.
        for (part, samples) in [("requests", "responseTimes"), ("tools", "executionTimes")] {
            if let Some(part) = stats[part].as_object_mut() {
                part.remove(samples);
            }
        }
        // What went wrong may be told in the words of a caller, and a URI may be made of them.
        if let Some(last) = stats["errors"]["lastError"].as_object_mut() {
            last.remove("message");
        }
        let mut reads = serde_json::Map::new();
        for (uri, count) in stats["resources"]["byUri"].as_object().into_iter().flatten() {
            let sum = reads.entry(redact_uri(Some(server), uri)).or_insert(0.into());
            *sum = (sum.as_u64().unwrap_or(0) + count.as_u64().unwrap_or(0)).into();
        }
        stats["resources"]["byUri"] = reads.into();
        (server.name(), stats)
    });
    Ok(json!({ "servers": shown.collect::<serde_json::Map<_, _>>() }))
}

fn list_sessions(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let all = select_servers(here, given)?.into_iter().flat_map(|server| {
        let name = server.name();
        server.sessions().into_iter().map(move |session| {
            let mut shown = json!(session);
            shown["server"] = name.clone().into();
            shown
        })
    });
    Ok(list_json("sessions", all.take(given.limit(200)).collect()))
}

fn clients_json(here: &BuiltinContext) -> Value {
    let mut clients: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for session in all_servers(here).flat_map(|server| server.sessions()) {
        let name = session.client.unwrap_or_else(|| "(unnamed)".to_owned());
        let version = session.client_version.unwrap_or_default();
        *clients.entry((name, version, session.revision)).or_default() += 1;
    }
    let shown = clients.into_iter().map(|((name, version, revision), sessions)| {
        json!({ "client": name, "version": version, "revision": revision, "sessions": sessions })
    });
    list_json("clients", shown.collect())
}

fn list_tasks(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let all = select_servers(here, given)?;
    let shown = all.iter().map(|server| (server.name(), json!({ "running": server.running_tasks() })));
    Ok(json!({ "servers": shown.collect::<serde_json::Map<_, _>>() }))
}

fn get_dialect(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let name = find_server(here, given, "server")?.name();
    let Some(told) = server_summary(here, &name) else {
        return Ok(super::procfs::unavailable("the server was not made by a configuration"));
    };
    Ok(json!({ "server": name, "dialect": told.dialect, "sessions": told.has_sessions, "path": told.path }))
}

fn reset_stats(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let server = find_server(here, given, "server")?;
    server.reset_stats();
    Ok(json!({ "server": server.name(), "reset": true }))
}

fn pause_server(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let server = find_server(here, given, "name")?;
    let name = server.name();
    if name == here.server {
        return Err(HandlerError::new(format!(
            "`{name}` is the server that you are talking to: paused, it could not be told to resume"
        )));
    }
    server.pause();
    tracing::warn!(server = name, "paused by a tool");
    Ok(json!({ "name": name, "paused": true }))
}

fn resume_server(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let server = find_server(here, given, "name")?;
    server.resume();
    tracing::warn!(server = server.name(), "resumed by a tool");
    Ok(json!({ "name": server.name(), "paused": false }))
}

/// The file is read again, as if somebody had asked the process to.
fn request_reload(here: &BuiltinContext) -> Value {
    here.state.reload.notify_one();
    json!({
        "requested": true,
        "note": "the configuration is read again as a whole; a file that is wrong changes nothing, and the log says why",
    })
}

/// Packs, and files of the configuration.
fn list_modules(here: &BuiltinContext) -> Vec<Value> {
    let seen = here.state.snapshot();
    let packs = PACKS.iter().map(|pack| {
        let users: Vec<&String> = seen
            .servers
            .iter()
            .filter(|server| server.packs.iter().any(|used| used == pack.name))
            .map(|server| &server.name)
            .collect();
        json!({ "name": pack.name, "kind": "pack", "active": !users.is_empty(), "usedBy": users })
    });
    let files = seen.config_files.iter().map(|file| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        json!({ "name": name, "kind": "file", "active": true, "path": file.display().to_string() })
    });
    packs.chain(files).collect()
}

fn find_module(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let name = given.require("name")?;
    find_by_name("module", name, list_modules(here), |module| module["name"].as_str().unwrap_or_default())
}

/// What can be listened to, and how many do.
fn event_points(here: &BuiltinContext) -> Vec<Value> {
    let known = here.state.servers.events().listeners();
    known.into_iter().map(|(name, listeners)| json!({ "name": name, "listeners": listeners })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_is_made_of_is_known() {
        let crates = linked_crates();
        assert!(crates.contains_key("toolgate") && crates.contains_key("tokio"));
        assert!(!crates.contains_key("xtask"), "that is not in the program");
        assert!(crates["toolgate-cli"][0].is_workspace_member && !crates["tokio"][0].is_workspace_member);
        assert!(crates["toolgate-cli"][0].dependencies.iter().any(|need| need == "toolgate"));
        assert!(crates.values().flatten().all(|one| !one.version.is_empty()));
    }

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
