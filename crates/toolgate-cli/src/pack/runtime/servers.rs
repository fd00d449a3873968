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
            Builtin::Sync(|context, _| Ok(list_json("servers", servers_json(context))))
        }
        "runtime_tools" => Builtin::Sync(|context, _| Ok(list_json("tools", all_tools(context)))),
        "runtime_events" => Builtin::Sync(|context, _| {
            Ok(json!({ "points": event_points(context), "newest": context.state.events(200) }))
        }),
        "runtime_metrics" => Builtin::Sync(|context, _| Ok(context.state.servers.prometheus().into())),
        "runtime_server_stats" => Builtin::Sync(|context, arguments| {
            let name = arguments.text("name").unwrap_or_default();
            Ok(context.state.servers.get(name).map_or(Value::Null, |server| json!(server.stats())))
        }),
        "mcp_get_stats" => Builtin::Sync(server_stats),
        "mcp_get_sessions" => Builtin::Sync(list_sessions),
        "mcp_get_clients" => Builtin::Sync(|context, _| Ok(clients_json(context))),
        "mcp_get_tasks" => Builtin::Sync(list_tasks),
        "mcp_get_dialect" => Builtin::Sync(get_dialect),
        "mcp_reset_stats" => Builtin::Sync(reset_stats),
        "server_pause" => Builtin::Sync(pause_server),
        "server_resume" => Builtin::Sync(resume_server),
        "app_get_names" => Builtin::Sync(|context, _| Ok(json!({ "names": context.state.servers.names() }))),
        "app_get_all" => Builtin::Sync(|context, _| Ok(list_json("apps", servers_json(context)))),
        "app_get" => Builtin::Sync(get_app),
        "app_has" => Builtin::Sync(|context, arguments| {
            Ok(json!({ "exists": context.state.servers.has(arguments.require("name")?) }))
        }),
        "app_get_summary" => Builtin::Sync(|context, _| Ok(app_summary(context))),
        "app_restart" => Builtin::Sync(|context, arguments| {
            find_server(context, arguments, "name")?;
            Ok(request_reload(context))
        }),
        "app_stop" => Builtin::Sync(pause_server),
        "app_sessions_clear" => Builtin::Sync(|context, arguments| {
            Ok(json!({ "removed": find_server(context, arguments, "name")?.clear_sessions() }))
        }),
        "interceptor_get_points" => Builtin::Sync(|context, _| {
            let names: Vec<&str> =
                context.state.servers.events().listeners().into_iter().map(|(name, _)| name).collect();
            Ok(json!({ "points": names }))
        }),
        "interceptor_has_point" => Builtin::Sync(|context, arguments| {
            let name = arguments.require("name")?;
            let known = context.state.servers.events().listeners();
            Ok(json!({ "exists": known.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) }))
        }),
        "interceptor_get_states" => {
            Builtin::Sync(|context, _| Ok(list_json("states", event_points(context))))
        }
        "interceptor_get_state" => Builtin::Sync(|context, arguments| {
            let name = arguments.require("name")?;
            find_by_name("point", name, event_points(context), |point| {
                point["name"].as_str().unwrap_or_default()
            })
        }),
        "interceptor_get_summary" => Builtin::Sync(|context, _| {
            let points = event_points(context);
            let listeners: u64 = points.iter().filter_map(|point| point["listeners"].as_u64()).sum();
            Ok(json!({
                "points": points.len(),
                "listeners": listeners,
                "notHeardInTime": context.state.servers.events().dropped(),
            }))
        }),
        _ => return None,
    })
}

fn all_servers(context: &BuiltinContext) -> impl Iterator<Item = Server> + '_ {
    context.state.servers.names().into_iter().filter_map(|name| context.state.servers.get(&name))
}

/// Returns the server that an argument names.
fn find_server(
    context: &BuiltinContext,
    arguments: BuiltinArguments<'_>,
    argument: &str,
) -> Result<Server, HandlerError> {
    let name = arguments.require(argument)?;
    context.state.servers.get(name).ok_or_else(|| {
        let names = context.state.servers.names().join(", ");
        HandlerError::new(format!("unknown server `{name}`; known: {names}"))
    })
}

/// Returns the server that the argument `server` names, or all servers.
fn select_servers(
    context: &BuiltinContext,
    arguments: BuiltinArguments<'_>,
) -> Result<Vec<Server>, HandlerError> {
    match arguments.text("server") {
        Some(_) => Ok(vec![find_server(context, arguments, "server")?]),
        None => Ok(all_servers(context).collect()),
    }
}

fn server_summary(context: &BuiltinContext, name: &str) -> Option<ServerSummary> {
    context.state.snapshot().servers.iter().find(|server| server.name == name).cloned()
}

fn server_json(context: &BuiltinContext, server: &Server) -> Value {
    let name = server.name();
    let summary = server_summary(context, &name);
    json!({
        "name": name,
        "version": server.version(),
        "description": server.description(),
        "path": summary.as_ref().map(|summary| summary.path.clone()),
        "dialect": summary.as_ref().map(|summary| summary.dialect.clone()),
        "packs": summary.as_ref().map(|summary| summary.packs.clone()),
        "guarded": summary.as_ref().map(|summary| summary.is_guarded),
        "paused": server.is_paused(),
        "tools": server.tool_count(),
        "resources": server.resource_count(),
        "templates": server.templates().len(),
        "prompts": server.prompt_count(),
        "sessions": server.sessions().len(),
        "summary": server.stats_summary(),
    })
}

fn servers_json(context: &BuiltinContext) -> Vec<Value> {
    all_servers(context).map(|server| server_json(context, &server)).collect()
}

fn get_app(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    Ok(server_json(context, &find_server(context, arguments, "name")?))
}

fn app_summary(context: &BuiltinContext) -> Value {
    let all: Vec<Server> = all_servers(context).collect();
    json!({
        "total": all.len(),
        "running": all.iter().filter(|server| !server.is_paused()).count(),
        "paused": all.iter().filter(|server| server.is_paused()).count(),
        "sessions": all.iter().map(|server| server.sessions().len()).sum::<usize>(),
        "activeRequests": all.iter().map(|server| server.stats_summary().active_requests).sum::<u64>(),
    })
}

fn all_tools(context: &BuiltinContext) -> Vec<Value> {
    let tools = all_servers(context).flat_map(|server| {
        let name = server.name();
        server
            .tools()
            .into_iter()
            .map(move |tool| json!({ "server": name, "name": tool.name, "description": tool.description }))
    });
    tools.collect()
}

fn tool_summary(context: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let mut by_prefix: BTreeMap<String, usize> = BTreeMap::new();
    let tools = all_tools(context);
    for tool in &tools {
        let name = tool["name"].as_str().unwrap_or_default();
        *by_prefix.entry(name.split('_').next().unwrap_or(name).to_owned()).or_default() += 1;
    }
    let by_server: BTreeMap<String, usize> =
        all_servers(context).map(|server| (server.name(), server.tool_count())).collect();
    Ok(json!({ "total": tools.len(), "byServer": by_server, "byPrefix": by_prefix }))
}

fn tool_info(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let name = arguments.require("name")?;
    let matching: Vec<Value> = all_servers(context)
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
    if matching.is_empty() {
        return Err(HandlerError::new(format!("unknown tool `{name}`; search with `runtime_search_tools`")));
    }
    Ok(list_json("tools", matching))
}

fn search_tools(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let keyword = arguments.require("keyword")?.to_lowercase();
    let matches = |tool: &Value| {
        let has = |key: &str| tool[key].as_str().is_some_and(|text| text.to_lowercase().contains(&keyword));
        has("name") || has("description")
    };
    let matching: Vec<Value> =
        all_tools(context).into_iter().filter(matches).take(arguments.limit(100)).collect();
    Ok(list_json("tools", matching))
}

fn server_stats(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let all = select_servers(context, arguments)?;
    let entries = all.iter().map(|server| {
        let mut stats = json!(server.stats());
        // Leave out the samples, up to a thousand each.
        for (part, samples) in [("requests", "responseTimes"), ("tools", "executionTimes")] {
            if let Some(part) = stats[part].as_object_mut() {
                part.remove(samples);
            }
        }
        // Error messages and URIs may contain values of callers.
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
    Ok(json!({ "servers": entries.collect::<serde_json::Map<_, _>>() }))
}

fn list_sessions(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let all = select_servers(context, arguments)?.into_iter().flat_map(|server| {
        let name = server.name();
        server.sessions().into_iter().map(move |session| {
            let mut entries = json!(session);
            entries["server"] = name.clone().into();
            entries
        })
    });
    Ok(list_json("sessions", all.take(arguments.limit(200)).collect()))
}

fn clients_json(context: &BuiltinContext) -> Value {
    let mut clients: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for session in all_servers(context).flat_map(|server| server.sessions()) {
        let name = session.client.unwrap_or_else(|| "(unnamed)".to_owned());
        let version = session.client_version.unwrap_or_default();
        *clients.entry((name, version, session.revision)).or_default() += 1;
    }
    let entries = clients.into_iter().map(|((name, version, revision), sessions)| {
        json!({ "client": name, "version": version, "revision": revision, "sessions": sessions })
    });
    list_json("clients", entries.collect())
}

fn list_tasks(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let all = select_servers(context, arguments)?;
    let entries = all.iter().map(|server| (server.name(), json!({ "running": server.running_tasks() })));
    Ok(json!({ "servers": entries.collect::<serde_json::Map<_, _>>() }))
}

fn get_dialect(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let name = find_server(context, arguments, "server")?.name();
    let Some(summary) = server_summary(context, &name) else {
        return Ok(procfs::unavailable("the server is not part of the configuration"));
    };
    Ok(
        json!({ "server": name, "dialect": summary.dialect, "sessions": summary.has_sessions, "path": summary.path }),
    )
}

fn reset_stats(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let server = find_server(context, arguments, "server")?;
    server.reset_stats();
    Ok(json!({ "server": server.name(), "reset": true }))
}

fn pause_server(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let server = find_server(context, arguments, "name")?;
    let name = server.name();
    if name == context.server {
        return Err(HandlerError::new(format!(
            "`{name}` is the server of this tool: once paused, it could not be resumed"
        )));
    }
    server.pause();
    tracing::warn!(server = name, "server paused by a tool");
    Ok(json!({ "name": name, "paused": true }))
}

fn resume_server(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let server = find_server(context, arguments, "name")?;
    server.resume();
    tracing::warn!(server = server.name(), "server resumed by a tool");
    Ok(json!({ "name": server.name(), "paused": false }))
}

/// Lists the event points and their number of listeners.
fn event_points(context: &BuiltinContext) -> Vec<Value> {
    let known = context.state.servers.events().listeners();
    known.into_iter().map(|(name, listeners)| json!({ "name": name, "listeners": listeners })).collect()
}
