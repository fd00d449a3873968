//! Checks that the TOML of the pack and the builtins match.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::pack::{pack_by_name, runtime_state::RuntimeState};

/// The TOML of the pack.
fn pack_toml() -> String {
    pack_by_name("runtime").unwrap().toml.to_owned()
}

/// Names of tables like `[tools.NAME]`.
fn table_names(kind: &str) -> Vec<String> {
    let begin = format!("[{kind}.");
    let names = pack_toml();
    let names = names.lines().filter_map(|line| line.strip_prefix(&begin)?.strip_suffix(']'));
    names.filter(|name| !name.contains('.')).map(str::to_owned).collect()
}

fn builtin_names() -> BTreeSet<String> {
    let text = pack_toml();
    let found = text.lines().filter_map(|line| line.strip_prefix("builtin = \"")?.strip_suffix('"'));
    found.map(str::to_owned).collect()
}

fn test_context() -> BuiltinContext {
    BuiltinContext { state: Arc::new(RuntimeState::default()), server: "ops".to_owned() }
}

#[test]
fn every_builtin_of_the_pack_exists() {
    let state = Arc::new(RuntimeState::default());
    for name in builtin_names() {
        assert!(builtin(&name, "ops", &state).is_some(), "no builtin `{name}`");
    }
    assert!(builtin("nothing", "ops", &state).is_none());
}

#[test]
fn tool_names_have_at_least_two_lowercase_words() {
    let names = table_names("tools");
    assert!(names.len() > 150, "{}", names.len());
    for name in &names {
        let parts: Vec<&str> = name.split('_').collect();
        let is_plain = |part: &&str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        assert!(parts.len() >= 2 && parts.iter().all(is_plain), "{name}");
    }
}

#[test]
fn prompts_name_existing_tools() {
    let tools: BTreeSet<String> = table_names("tools").into_iter().collect();
    assert!(table_names("prompts").len() >= 32);
    let mut n_steps = 0;
    for line in pack_toml().lines() {
        // `1. `tool` with …`
        let Some((number, rest)) = line.split_once(". `") else { continue };
        let Some((tool, _)) = rest.split_once('`').filter(|_| number.parse::<u32>().is_ok()) else {
            continue;
        };
        assert!(tools.contains(tool), "a prompt names `{tool}`");
        n_steps += 1;
    }
    assert!(n_steps > 100, "{n_steps}");
}

/// Read-only tools work on any machine, also without a configuration, and return something.
#[tokio::test]
async fn read_only_tools_work_without_a_configuration() {
    let text = pack_toml();
    let mut n_called = 0;
    for table in text.split("\n[").skip(1) {
        let Some(name) =
            table.strip_prefix("tools.").and_then(|table| table.split_once(']')).map(|(name, _)| name)
        else {
            continue;
        };
        if !table.contains("readOnlyHint = true") {
            continue;
        }
        let state = Arc::new(RuntimeState::default());
        let builtin = BUILTINS.iter().find_map(|builtin| builtin(name));
        let backend = BuiltinBackend {
            context: BuiltinContext { state, server: "ops".into() },
            builtin: builtin.unwrap(),
        };
        let value = match backend.run(&Map::new()).await {
            Err(error) if format!("{error:?}").contains("is missing") => continue,
            value => value.unwrap_or_else(|error| panic!("{name}: {error:?}")),
        };
        n_called += 1;
        assert!(
            value.is_object() || value.is_array() || value.is_null() && name == "runtime_get_config",
            "{name}: {value}"
        );
    }
    assert!(n_called > 60, "{n_called}");
}

#[test]
fn secrets_of_the_environment_are_masked() {
    let found = [
        ("SECRET_KEY", "s3cret"),
        ("AWS_SESSION_TOKEN", "s3cret"),
        ("DATABASE_URL", "postgres://ada:s3cret@host/db?sslmode=off"),
        ("SIGNING_KEY", "s3cret"),
        ("SENTRY_DSN", "https://s3cret@host/1"),
        ("MYSQL_PWD", "s3cret"),
        ("HOME", "/home/ada"),
        ("GH_PAT", "s3cret"),
        ("SLACK_WEBHOOK_URL", "https://host/s3cret"),
    ];
    let shown =
        process::mask_environment(found.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert!(!shown.to_string().contains("s3cret"), "{shown}");
    assert_eq!(shown["HOME"], "/home/ada");
    assert_eq!(shown["DATABASE_URL"], "***", "only the name is shown");
}

#[test]
fn a_server_cannot_be_paused_through_itself() {
    let context = test_context();
    context.state.servers.server("ops");
    context.state.servers.server("shop");
    let Some(Builtin::Sync(pause)) = servers::builtin("server_pause") else { panic!("it is not async") };
    let named = |name: &str| Map::from_iter([("name".to_owned(), Value::from(name))]);
    assert!(pause(&context, BuiltinArguments(&named("ops"))).is_err());
    assert!(pause(&context, BuiltinArguments(&named("nobody"))).is_err());
    assert_eq!(
        pause(&context, BuiltinArguments(&named("shop"))).unwrap(),
        json!({ "name": "shop", "paused": true })
    );
    assert!(
        context.state.servers.server("shop").is_paused() && !context.state.servers.server("ops").is_paused()
    );
}

/// Requests to any server are recorded once a server uses the pack.
#[tokio::test]
async fn requests_are_recorded_once_a_server_uses_the_pack() {
    use crate::observe::collectors;
    use crate::pack::runtime_state::{ConfigSnapshot, ServerSummary};

    let state = RuntimeState::default();
    let shop = state.servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
    let key = "tools/call /shop/hours";
    shop.call_tool("hours", json!({})).await.unwrap();
    assert!(collectors().routes.get(key).is_none(), "recording is off");

    let snapshot = |packs: &[&str]| ConfigSnapshot {
        servers: vec![ServerSummary {
            name: "ops".into(),
            path: "/ops".into(),
            dialect: "official".into(),
            packs: packs.iter().map(|pack| (*pack).to_owned()).collect(),
            has_sessions: true,
            is_guarded: false,
        }],
        ..ConfigSnapshot::default()
    };
    state.set_snapshot(snapshot(&["runtime"]));
    collectors()
        .requests
        .update(&crate::observe::slow_log::SlowLogUpdate { threshold_millis: Some(0), ..Default::default() });
    shop.call_tool("hours", json!({})).await.unwrap();
    let _ = shop.call_tool("nothing", json!({})).await;
    assert_eq!(collectors().routes.get(key).unwrap()["count"], 1);
    let slow = collectors().requests.newest(9, 0);
    assert!(slow.iter().any(|sample| sample["subject"] == "hours" && sample["server"] == "shop"), "{slow:?}");
    assert!(state.events(9).iter().any(|event| event["event"] == "onMCPError"));

    state.set_snapshot(snapshot(&[]));
    shop.call_tool("hours", json!({})).await.unwrap();
    assert_eq!(collectors().routes.get(key).unwrap()["count"], 1, "recording is off again");
}

/// Long method, tool and resource names are truncated before they are recorded.
#[tokio::test]
async fn names_chosen_by_callers_are_truncated() {
    use crate::observe::collectors;
    use crate::pack::runtime_state::{ConfigSnapshot, ServerSummary};

    let state = RuntimeState::default();
    let shop = state.servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
    let snapshot = ServerSummary {
        name: "ops".into(),
        path: "/ops".into(),
        dialect: "official".into(),
        packs: vec!["runtime".into()],
        has_sessions: true,
        is_guarded: false,
    };
    state.set_snapshot(ConfigSnapshot { servers: vec![snapshot], ..ConfigSnapshot::default() });
    collectors()
        .requests
        .update(&crate::observe::slow_log::SlowLogUpdate { threshold_millis: Some(0), ..Default::default() });
    let long = "é".repeat(1 << 20);
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } });
    let requests = [
        json!({ "jsonrpc": "2.0", "id": 2, "method": long }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": long, "arguments": {} } }),
        json!({ "jsonrpc": "2.0", "id": 4, "method": "resources/read", "params": { "uri": format!("a://{long}") } }),
    ];
    let lines: String =
        std::iter::once(&initialize).chain(&requests).map(|line| format!("{line}\n")).collect();
    shop.serve_io(std::io::Cursor::new(lines.into_bytes()), tokio::io::sink()).await.unwrap();

    let (slow, events) = (collectors().requests.newest(9, 0), state.events(9));
    let routes = collectors().routes.list(crate::observe::routes::RouteOrder::Count, 9);
    assert!(
        slow.iter().any(|sample| sample["method"].as_str().is_some_and(|method| method.starts_with("éé"))),
        "{}",
        slow.len()
    );
    assert!(events.iter().any(|sample| sample["data"]["method"] == "tools/call"), "{}", events.len());
    for entry in slow.iter().chain(&events).chain(&routes) {
        assert!(entry.to_string().chars().count() < 1000, "{} characters are kept", entry.to_string().len());
    }
}

/// Recorded resource URIs contain no argument values.
#[tokio::test]
async fn recorded_uris_contain_no_arguments() {
    use crate::observe::collectors;
    use crate::pack::runtime_state::{ConfigSnapshot, ServerSummary};

    let context = test_context();
    let shop = context.state.servers.server_with("shop", |server| {
        server
            .resource("shop://hours", || async { "9 to 5" })
            .template("shop://users/{id}/tokens", |id: TestUriVariables| async move { id.0["id"].clone() })
    });
    let snapshot = ServerSummary {
        name: "ops".into(),
        path: "/ops".into(),
        dialect: "official".into(),
        packs: vec!["runtime".into()],
        has_sessions: true,
        is_guarded: false,
    };
    context.state.set_snapshot(ConfigSnapshot { servers: vec![snapshot], ..ConfigSnapshot::default() });
    collectors()
        .requests
        .update(&crate::observe::slow_log::SlowLogUpdate { threshold_millis: Some(0), ..Default::default() });
    collectors().routes.update(None, Some(false));
    for uri in ["shop://hours", "shop://users/s3cret/tokens", "other://s3cret?s3cret", "s3cret"] {
        let _ = shop.read_resource(uri).await;
    }
    let Some(Builtin::Sync(stats)) = servers::builtin("mcp_get_stats") else { panic!("it is not async") };
    let stats = stats(&context, BuiltinArguments(&Map::new())).unwrap();
    let all = json!([
        collectors().requests.newest(99, 0),
        collectors().routes.list(crate::observe::routes::RouteOrder::Count, 99),
        context.state.events(99),
        stats,
    ])
    .to_string();
    assert!(!all.contains("s3cret"), "{all}");
    for uri in ["shop://hours", "shop://users/{id}/tokens", "other://…"] {
        assert!(all.contains(uri), "{uri} in {all}");
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
struct TestUriVariables(std::collections::BTreeMap<String, String>);
