//! Acts about the program: what it is, what it serves, how it is configured, who listens.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolgate::{Server, HandlerError};

use super::{Deed, Given, Here, Said, listed, pick};
use crate::clock::{birth, iso8601};
use crate::config;
use crate::log;
use crate::observe::collectors;
use crate::pack::PACKS;
use crate::pack::world::{Served, shape};

/// What the program was built with; the whole workspace is among it.
const LOCK: &str = include_str!("../../../../../Cargo.lock");

pub(super) fn deed(name: &str) -> Option<Deed> {
    Some(match name {
        "runtime_get_info" => Deed::Now(|here, _| Ok(info(here))),
        "runtime_get_build_info" => Deed::Now(|_, _| Ok(build())),
        "runtime_get_config" => Deed::Now(|here, _| Ok(here.world.seen().config.clone())),
        "runtime_get_config_value" => Deed::Now(config_value),
        "runtime_config_diff" => Deed::Now(config_diff),
        "runtime_get_tool_summary" => Deed::Now(tool_summary),
        "runtime_get_tool_info" => Deed::Now(tool_info),
        "runtime_search_tools" => Deed::Now(search_tools),
        "runtime_get_crate_summary" => Deed::Now(|_, _| Ok(crate_summary())),
        "runtime_get_crate_info" => Deed::Now(crate_info),
        "runtime_search_crates" => Deed::Now(search_crates),
        "runtime_get_global_services" => Deed::Now(|here, _| Ok(services(here))),
        "runtime_get_feature_flags" => Deed::Now(|_, _| Ok(features())),
        "runtime_toggle_debug_mode" => Deed::Now(toggle_debug),
        "runtime_clear_system_cache" | "runtime_release_memory" => Deed::Now(|here, _| {
            super::parts::forget(&here.world);
            Ok(json!({ "cleared": true, "what": ["room of buffers that they do not need"] }))
        }),
        "runtime_servers" | "mcp_get_servers" => Deed::Now(|here, _| Ok(listed("servers", servers(here)))),
        "runtime_tools" => Deed::Now(|here, _| Ok(listed("tools", all_tools(here)))),
        "runtime_events" => {
            Deed::Now(|here, _| Ok(json!({ "points": points(here), "newest": here.world.events(200) })))
        }
        "runtime_metrics" => Deed::Now(|here, _| Ok(here.world.servers.prometheus().into())),
        "runtime_server_stats" => Deed::Now(|here, given| {
            let name = given.text("name").unwrap_or_default();
            Ok(here.world.servers.get(name).map_or(Value::Null, |server| json!(server.stats())))
        }),
        "mcp_get_stats" => Deed::Now(stats),
        "mcp_get_sessions" => Deed::Now(sessions),
        "mcp_get_clients" => Deed::Now(|here, _| Ok(clients(here))),
        "mcp_get_tasks" => Deed::Now(tasks),
        "mcp_get_dialect" => Deed::Now(dialect),
        "mcp_reset_stats" => Deed::Now(reset_stats),
        "server_pause" => Deed::Now(pause),
        "server_resume" => Deed::Now(resume),
        "app_get_names" => Deed::Now(|here, _| Ok(json!({ "names": here.world.servers.names() }))),
        "app_get_all" => Deed::Now(|here, _| Ok(listed("apps", servers(here)))),
        "app_get" => Deed::Now(app),
        "app_has" => {
            Deed::Now(|here, given| Ok(json!({ "exists": here.world.servers.has(given.need("name")?) })))
        }
        "app_get_summary" => Deed::Now(|here, _| Ok(app_summary(here))),
        "app_restart" => Deed::Now(|here, given| {
            named(here, given, "name")?;
            Ok(reloads(here))
        }),
        "app_stop" => Deed::Now(pause),
        "app_sessions_clear" => {
            Deed::Now(|here, given| Ok(json!({ "removed": named(here, given, "name")?.clear_sessions() })))
        }
        "module_get_all" => Deed::Now(|here, _| Ok(listed("modules", modules(here)))),
        "module_get_names" => Deed::Now(|here, _| {
            let names: Vec<Value> = modules(here).into_iter().map(|module| module["name"].clone()).collect();
            Ok(json!({ "names": names }))
        }),
        "module_get_info" => Deed::Now(module),
        "module_get_settings" => {
            Deed::Now(|here, given| Ok(json!({ "settings": module(here, given)?["usedBy"].clone() })))
        }
        "module_get_paths" => Deed::Now(|here, _| {
            let seen = here.world.seen();
            let files: Vec<String> = seen.files.iter().map(|file| file.display().to_string()).collect();
            Ok(json!({ "configuration": seen.file.display().to_string(), "files": files }))
        }),
        "module_has" => Deed::Now(|here, given| {
            let name = given.need("name")?;
            Ok(json!({ "exists": modules(here).iter().any(|module| module["name"] == name) }))
        }),
        "module_get_stats" => Deed::Now(|here, _| {
            let seen = here.world.seen();
            Ok(json!({
                "modules": modules(here).len(),
                "files": seen.files.len(),
                "loads": seen.n_loads,
                "lastLoadedAt": iso8601(seen.loaded_at),
            }))
        }),
        "module_reload" => Deed::Now(|here, given| {
            module(here, given)?;
            Ok(reloads(here))
        }),
        "module_reload_all" => Deed::Now(|here, _| Ok(reloads(here))),
        "interceptor_get_points" => Deed::Now(|here, _| {
            let names: Vec<&str> =
                here.world.servers.events().listeners().into_iter().map(|(name, _)| name).collect();
            Ok(json!({ "points": names }))
        }),
        "interceptor_has_point" => Deed::Now(|here, given| {
            let name = given.need("name")?;
            let known = here.world.servers.events().listeners();
            Ok(json!({ "exists": known.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) }))
        }),
        "interceptor_get_states" => Deed::Now(|here, _| Ok(listed("states", points(here)))),
        "interceptor_get_state" => Deed::Now(|here, given| {
            let name = given.need("name")?;
            pick("point", name, points(here), |point| point["name"].as_str().unwrap_or_default())
        }),
        "interceptor_get_summary" => Deed::Now(|here, _| {
            let points = points(here);
            let listeners: u64 = points.iter().filter_map(|point| point["listeners"].as_u64()).sum();
            Ok(json!({
                "points": points.len(),
                "listeners": listeners,
                "notHeardInTime": here.world.servers.events().dropped(),
            }))
        }),
        _ => return None,
    })
}

pub(super) fn info(here: &Here) -> Value {
    let birth = birth();
    // What is served has a version of its own; a program that serves nothing has only that.
    let server = here.world.servers.get(&here.server);
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
        "servers": here.world.servers.names(),
        "startedAt": iso8601(birth.unix_millis),
        "uptimeMs": u64::try_from(birth.age().as_millis()).unwrap_or(u64::MAX),
        "debugMode": log::is_debugging(),
    })
}

fn build() -> Value {
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
fn config_value(here: &Here, given: Given<'_>) -> Said {
    let path = given.need("path")?;
    let seen = here.world.seen();
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
fn config_diff(here: &Here, _: Given<'_>) -> Said {
    let seen = here.world.seen();
    if seen.file.as_os_str().is_empty() {
        return Ok(super::proc::unavailable("no file is served"));
    }
    let read = config::load(&seen.file);
    let mut changes = Vec::new();
    differences("", &seen.config, &read.config.told, &mut changes);
    Ok(json!({
        "same": changes.is_empty() && read.troubles.is_empty(),
        "fileIsValid": read.troubles.is_empty(),
        "changes": changes,
    }))
}

fn differences(at: &str, live: &Value, file: &Value, found: &mut Vec<Value>) {
    if live == file || found.len() >= 200 {
        return;
    }
    if let (Value::Object(before), Value::Object(after)) = (live, file) {
        let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            differences(
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

fn each_server(here: &Here) -> impl Iterator<Item = Server> + '_ {
    here.world.servers.names().into_iter().filter_map(|name| here.world.servers.get(&name))
}

/// The one server that an argument names.
fn named(here: &Here, given: Given<'_>, argument: &str) -> Result<Server, HandlerError> {
    let name = given.need(argument)?;
    here.world.servers.get(name).ok_or_else(|| {
        let names = here.world.servers.names().join(", ");
        HandlerError::new(format!("there is no server `{name}`; there is {names}"))
    })
}

/// Those that an argument means: one, or all.
fn meant(here: &Here, given: Given<'_>) -> Result<Vec<Server>, HandlerError> {
    match given.text("server") {
        Some(_) => Ok(vec![named(here, given, "server")?]),
        None => Ok(each_server(here).collect()),
    }
}

fn served(here: &Here, name: &str) -> Option<Served> {
    here.world.seen().servers.iter().find(|server| server.name == name).cloned()
}

fn about(here: &Here, server: &Server) -> Value {
    let name = server.name();
    let told = served(here, &name);
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

fn servers(here: &Here) -> Vec<Value> {
    each_server(here).map(|server| about(here, &server)).collect()
}

fn app(here: &Here, given: Given<'_>) -> Said {
    Ok(about(here, &named(here, given, "name")?))
}

fn app_summary(here: &Here) -> Value {
    let all: Vec<Server> = each_server(here).collect();
    json!({
        "total": all.len(),
        "running": all.iter().filter(|server| !server.is_paused()).count(),
        "paused": all.iter().filter(|server| server.is_paused()).count(),
        "sessions": all.iter().map(|server| server.sessions().len()).sum::<usize>(),
        "activeRequests": all.iter().map(|server| server.stats_summary().active_requests).sum::<u64>(),
    })
}

fn all_tools(here: &Here) -> Vec<Value> {
    let tools = each_server(here).flat_map(|server| {
        let name = server.name();
        server
            .tools()
            .into_iter()
            .map(move |tool| json!({ "server": name, "name": tool.name, "description": tool.description }))
    });
    tools.collect()
}

fn tool_summary(here: &Here, _: Given<'_>) -> Said {
    let mut domains: BTreeMap<String, usize> = BTreeMap::new();
    let tools = all_tools(here);
    for tool in &tools {
        let name = tool["name"].as_str().unwrap_or_default();
        *domains.entry(name.split('_').next().unwrap_or(name).to_owned()).or_default() += 1;
    }
    let by_server: BTreeMap<String, usize> =
        each_server(here).map(|server| (server.name(), server.tool_count())).collect();
    Ok(json!({ "total": tools.len(), "byServer": by_server, "byPrefix": domains }))
}

fn tool_info(here: &Here, given: Given<'_>) -> Said {
    let name = given.need("name")?;
    let found: Vec<Value> = each_server(here)
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
    Ok(listed("tools", found))
}

fn search_tools(here: &Here, given: Given<'_>) -> Said {
    let keyword = given.need("keyword")?.to_lowercase();
    let is_meant = |tool: &Value| {
        let has = |key: &str| tool[key].as_str().is_some_and(|text| text.to_lowercase().contains(&keyword));
        has("name") || has("description")
    };
    let found: Vec<Value> = all_tools(here).into_iter().filter(is_meant).take(given.limit(100)).collect();
    Ok(listed("tools", found))
}

/// A crate, as the lock file names it.
#[derive(Clone, Debug, Default)]
struct Locked {
    name: String,
    version: String,
    /// Of this workspace.
    is_own: bool,
    /// `name`, or `name version` where there are several.
    needs: Vec<String>,
}

impl Locked {
    fn shown(&self) -> Value {
        json!({ "name": self.name, "version": self.version, "own": self.is_own, "dependencies": self.needs })
    }
}

/// Reads a lock file, which Cargo writes in one way only: a value a line.
fn locked(text: &str) -> Vec<Locked> {
    let tables = text.split("[[package]]").skip(1);
    let read = |table: &str| {
        let value = |key: &str| {
            let line = table.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim().trim_matches('"').to_owned())
        };
        let listed = table.lines().filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\","));
        Locked {
            name: value("name").unwrap_or_default(),
            version: value("version").unwrap_or_default(),
            is_own: value("source").is_none(),
            needs: listed.map(str::to_owned).collect(),
        }
    };
    tables.map(read).collect()
}

/// Every crate that is in the program, and its releases.
fn crates() -> BTreeMap<String, Vec<Locked>> {
    let mut found: BTreeMap<String, Vec<Locked>> = BTreeMap::new();
    let all = locked(LOCK);
    // What xtask and the tests of others need is in the same list: only what can be reached from here counts.
    let mut waiting = vec![env!("CARGO_PKG_NAME").to_owned()];
    while let Some(wanted) = waiting.pop() {
        let (name, version) = wanted.split_once(' ').unwrap_or((&wanted, ""));
        let is_meant = |one: &&Locked| one.name == name && (version.is_empty() || one.version == version);
        for one in all.iter().filter(is_meant) {
            let known = found.entry(one.name.clone()).or_default();
            if known.iter().any(|known| known.version == one.version) {
                continue;
            }
            known.push(one.clone());
            waiting.extend(one.needs.iter().cloned());
        }
    }
    found
}

fn crate_summary() -> Value {
    let crates = crates();
    let direct = crates.get(env!("CARGO_PKG_NAME")).and_then(|own| own.first()).map(|own| own.needs.clone());
    let several: Vec<&String> =
        crates.iter().filter(|(_, releases)| releases.len() > 1).map(|(name, _)| name).collect();
    json!({
        "total": crates.values().map(Vec::len).sum::<usize>(),
        "own": crates.values().flatten().filter(|one| one.is_own).count(),
        "direct": direct,
        "severalReleases": several,
        "note": "as locked when the program was built; crates that only tests or other systems need are among them",
    })
}

fn crate_info(_: &Here, given: Given<'_>) -> Said {
    let name = given.need("name")?;
    match crates().remove(name) {
        Some(releases) => Ok(listed("releases", releases.iter().map(Locked::shown).collect())),
        None => Err(HandlerError::new(format!(
            "the crate `{name}` is not in this program; `runtime_search_crates` finds them by a word"
        ))),
    }
}

fn search_crates(_: &Here, given: Given<'_>) -> Said {
    let keyword = given.need("keyword")?.to_lowercase();
    let found = crates().into_iter().filter(|(name, _)| name.to_lowercase().contains(&keyword));
    let found: Vec<Value> = found
        .flat_map(|(_, releases)| releases)
        .map(|one| json!({ "name": one.name, "version": one.version }))
        .take(given.limit(100))
        .collect();
    Ok(listed("crates", found))
}

fn services(here: &Here) -> Value {
    let seen = here.world.seen();
    json!({
        "servers": here.world.servers.names(),
        "databases": seen.stores.iter().map(|store| store.name.clone()).collect::<Vec<_>>(),
        "apis": seen.apis.iter().map(|api| api.name.clone()).collect::<Vec<_>>(),
        "jobs": here.world.jobs().iter().map(|job| job.name).collect::<Vec<_>>(),
        "watchers": here.world.watchers().iter().map(|watcher| watcher.name.clone()).collect::<Vec<_>>(),
        "collectors": {
            "requests": collectors().requests.config(),
            "slowHttp": collectors().http.config(),
            "sql": collectors().sql.config(),
            "routes": collectors().routes.config(),
        },
    })
}

fn toggle_debug(_: &Here, given: Given<'_>) -> Said {
    let wanted = given.flag("enabled").unwrap_or(!log::is_debugging());
    if !log::debug(wanted) {
        return Ok(super::proc::unavailable("there is no log whose level could be changed"));
    }
    let level = log::level();
    tracing::warn!(level, "the level of the log was changed by a tool");
    Ok(json!({ "debugMode": log::is_debugging(), "level": log::level() }))
}

fn stats(here: &Here, given: Given<'_>) -> Said {
    let all = meant(here, given)?;
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
            let sum = reads.entry(shape(Some(server), uri)).or_insert(0.into());
            *sum = (sum.as_u64().unwrap_or(0) + count.as_u64().unwrap_or(0)).into();
        }
        stats["resources"]["byUri"] = reads.into();
        (server.name(), stats)
    });
    Ok(json!({ "servers": shown.collect::<serde_json::Map<_, _>>() }))
}

fn sessions(here: &Here, given: Given<'_>) -> Said {
    let all = meant(here, given)?.into_iter().flat_map(|server| {
        let name = server.name();
        server.sessions().into_iter().map(move |session| {
            let mut shown = json!(session);
            shown["server"] = name.clone().into();
            shown
        })
    });
    Ok(listed("sessions", all.take(given.limit(200)).collect()))
}

fn clients(here: &Here) -> Value {
    let mut clients: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for session in each_server(here).flat_map(|server| server.sessions()) {
        let name = session.client.unwrap_or_else(|| "(unnamed)".to_owned());
        let version = session.client_version.unwrap_or_default();
        *clients.entry((name, version, session.revision)).or_default() += 1;
    }
    let shown = clients.into_iter().map(|((name, version, revision), sessions)| {
        json!({ "client": name, "version": version, "revision": revision, "sessions": sessions })
    });
    listed("clients", shown.collect())
}

fn tasks(here: &Here, given: Given<'_>) -> Said {
    let all = meant(here, given)?;
    let shown = all.iter().map(|server| (server.name(), json!({ "running": server.running_tasks() })));
    Ok(json!({ "servers": shown.collect::<serde_json::Map<_, _>>() }))
}

fn dialect(here: &Here, given: Given<'_>) -> Said {
    let name = named(here, given, "server")?.name();
    let Some(told) = served(here, &name) else {
        return Ok(super::proc::unavailable("the server was not made by a configuration"));
    };
    Ok(json!({ "server": name, "dialect": told.dialect, "sessions": told.has_sessions, "path": told.path }))
}

fn reset_stats(here: &Here, given: Given<'_>) -> Said {
    let server = named(here, given, "server")?;
    server.reset_stats();
    Ok(json!({ "server": server.name(), "reset": true }))
}

fn pause(here: &Here, given: Given<'_>) -> Said {
    let server = named(here, given, "name")?;
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

fn resume(here: &Here, given: Given<'_>) -> Said {
    let server = named(here, given, "name")?;
    server.resume();
    tracing::warn!(server = server.name(), "resumed by a tool");
    Ok(json!({ "name": server.name(), "paused": false }))
}

/// The file is read again, as if somebody had asked the process to.
fn reloads(here: &Here) -> Value {
    here.world.reload.notify_one();
    json!({
        "requested": true,
        "note": "the configuration is read again as a whole; a file that is wrong changes nothing, and the log says why",
    })
}

/// Packs, and files of the configuration.
fn modules(here: &Here) -> Vec<Value> {
    let seen = here.world.seen();
    let packs = PACKS.iter().map(|pack| {
        let users: Vec<&String> = seen
            .servers
            .iter()
            .filter(|server| server.packs.iter().any(|used| used == pack.name))
            .map(|server| &server.name)
            .collect();
        json!({ "name": pack.name, "kind": "pack", "active": !users.is_empty(), "usedBy": users })
    });
    let files = seen.files.iter().map(|file| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        json!({ "name": name, "kind": "file", "active": true, "path": file.display().to_string() })
    });
    packs.chain(files).collect()
}

fn module(here: &Here, given: Given<'_>) -> Said {
    let name = given.need("name")?;
    pick("module", name, modules(here), |module| module["name"].as_str().unwrap_or_default())
}

/// What can be listened to, and how many do.
fn points(here: &Here) -> Vec<Value> {
    let known = here.world.servers.events().listeners();
    known.into_iter().map(|(name, listeners)| json!({ "name": name, "listeners": listeners })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_is_made_of_is_known() {
        let crates = crates();
        assert!(crates.contains_key("toolgate") && crates.contains_key("tokio"));
        assert!(!crates.contains_key("xtask"), "that is not in the program");
        assert!(crates["toolgate-cli"][0].is_own && !crates["tokio"][0].is_own);
        assert!(crates["toolgate-cli"][0].needs.iter().any(|need| need == "toolgate"));
        assert!(crates.values().flatten().all(|one| !one.version.is_empty()));
    }

    #[test]
    fn differences_are_told_by_path() {
        let live = json!({ "a": { "b": 1, "c": [1] }, "d": 1 });
        let file = json!({ "a": { "b": 2, "c": [1] }, "e": true });
        let mut found = Vec::new();
        differences("", &live, &file, &mut found);
        let paths: Vec<&str> = found.iter().map(|one| one["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["a.b", "d", "e"]);
        assert_eq!(found[0], json!({ "path": "a.b", "live": 1, "file": 2 }));
    }
}
