//! Builtins about the servers of the process: their tools, sessions, statistics, events and state.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolgate::{HandlerError, Server};

use super::modules::request_reload;
use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, find_by_name, list_json, procfs};
use crate::pack::runtime_state::{ServerSummary, redact_uri};

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "runtime_get_tool_summary" => Builtin::Sync(tool_summary),
        "runtime_get_tool_info" => Builtin::Sync(tool_info),
        "runtime_search_tools" => Builtin::Sync(search_tools),
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
        return Ok(procfs::unavailable("the server was not made by a configuration"));
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

/// What can be listened to, and how many do.
fn event_points(here: &BuiltinContext) -> Vec<Value> {
    let known = here.state.servers.events().listeners();
    known.into_iter().map(|(name, listeners)| json!({ "name": name, "listeners": listeners })).collect()
}
