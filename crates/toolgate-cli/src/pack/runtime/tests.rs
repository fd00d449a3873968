//! The text of the pack and its acts fit together.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::pack::{pack_by_name, runtime_state::RuntimeState};

/// The text of the pack.
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
fn everything_that_the_text_names_can_be_done() {
    let world = Arc::new(RuntimeState::default());
    for name in builtin_names() {
        assert!(builtin(&name, "ops", &world).is_some(), "there is nothing built in as {name}");
    }
    assert!(builtin("nothing", "ops", &world).is_none());
}

#[test]
fn names_are_made_of_a_domain_an_action_and_a_subject() {
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
fn prompts_name_tools_that_are_there() {
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

/// What only looks can be done on any machine, with nothing served, and says something.
#[tokio::test]
async fn whoever_looks_at_nothing_gets_an_answer() {
    let text = pack_toml();
    let mut n_said = 0;
    for table in text.split("\n[").skip(1) {
        let Some(name) =
            table.strip_prefix("tools.").and_then(|table| table.split_once(']')).map(|(name, _)| name)
        else {
            continue;
        };
        if !table.contains("readOnlyHint = true") {
            continue;
        }
        let world = Arc::new(RuntimeState::default());
        let deed = BUILTINS.iter().find_map(|builtin| builtin(name));
        let doing = BuiltinBackend {
            context: BuiltinContext { state: world, server: "ops".into() },
            builtin: deed.unwrap(),
        };
        let said = match doing.run(&Map::new()).await {
            Err(error) if format!("{error:?}").contains("is missing") => continue,
            said => said.unwrap_or_else(|error| panic!("{name}: {error:?}")),
        };
        n_said += 1;
        assert!(
            said.is_object() || said.is_array() || said.is_null() && name == "runtime_get_config",
            "{name}: {said}"
        );
    }
    assert!(n_said > 60, "{n_said}");
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
    assert_eq!(shown["DATABASE_URL"], "***", "it is there, and nothing else is said of it");
}

#[test]
fn a_server_cannot_be_paused_through_itself() {
    let here = test_context();
    here.state.servers.server("ops");
    here.state.servers.server("shop");
    let Some(Builtin::Sync(pause)) = program::builtin("server_pause") else { panic!("it does not wait") };
    let named = |name: &str| Map::from_iter([("name".to_owned(), Value::from(name))]);
    assert!(pause(&here, BuiltinArguments(&named("ops"))).is_err());
    assert!(pause(&here, BuiltinArguments(&named("nobody"))).is_err());
    assert_eq!(
        pause(&here, BuiltinArguments(&named("shop"))).unwrap(),
        json!({ "name": "shop", "paused": true })
    );
    assert!(here.state.servers.server("shop").is_paused() && !here.state.servers.server("ops").is_paused());
}

/// What is asked of one server is noted for all, once somebody wants to know.
#[tokio::test]
async fn requests_are_noted_once_somebody_asks() {
    use crate::observe::collectors;
    use crate::pack::runtime_state::{ConfigSnapshot, ServerSummary};

    let world = RuntimeState::default();
    let shop = world.servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
    let key = "tools/call /shop/hours";
    shop.call_tool("hours", json!({})).await.unwrap();
    assert!(collectors().routes.get(key).is_none(), "nobody asked");

    let served = |packs: &[&str]| ConfigSnapshot {
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
    world.set_snapshot(served(&["runtime"]));
    collectors()
        .requests
        .update(&crate::observe::slow_log::SlowLogUpdate { threshold_millis: Some(0), ..Default::default() });
    shop.call_tool("hours", json!({})).await.unwrap();
    let _ = shop.call_tool("nothing", json!({})).await;
    assert_eq!(collectors().routes.get(key).unwrap()["count"], 1);
    let slow = collectors().requests.newest(9, 0);
    assert!(slow.iter().any(|one| one["subject"] == "hours" && one["server"] == "shop"), "{slow:?}");
    assert!(world.events(9).iter().any(|event| event["event"] == "onMCPError"));

    world.set_snapshot(served(&[]));
    shop.call_tool("hours", json!({})).await.unwrap();
    assert_eq!(collectors().routes.get(key).unwrap()["count"], 1, "nobody asks any more");
}

/// Nobody fills the memory with what they call a method, a tool or a resource.
#[tokio::test]
async fn what_a_caller_chooses_is_kept_briefly() {
    use crate::observe::collectors;
    use crate::pack::runtime_state::{ConfigSnapshot, ServerSummary};

    let world = RuntimeState::default();
    let shop = world.servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
    let served = ServerSummary {
        name: "ops".into(),
        path: "/ops".into(),
        dialect: "official".into(),
        packs: vec!["runtime".into()],
        has_sessions: true,
        is_guarded: false,
    };
    world.set_snapshot(ConfigSnapshot { servers: vec![served], ..ConfigSnapshot::default() });
    collectors()
        .requests
        .update(&crate::observe::slow_log::SlowLogUpdate { threshold_millis: Some(0), ..Default::default() });
    let long = "é".repeat(1 << 20);
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } });
    let asked = [
        json!({ "jsonrpc": "2.0", "id": 2, "method": long }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": long, "arguments": {} } }),
        json!({ "jsonrpc": "2.0", "id": 4, "method": "resources/read", "params": { "uri": format!("a://{long}") } }),
    ];
    let lines: String = std::iter::once(&hello).chain(&asked).map(|line| format!("{line}\n")).collect();
    shop.serve_io(std::io::Cursor::new(lines.into_bytes()), tokio::io::sink()).await.unwrap();

    let (slow, events) = (collectors().requests.newest(9, 0), world.events(9));
    let routes = collectors().routes.list(crate::observe::routes::RouteOrder::Count, 9);
    assert!(
        slow.iter().any(|one| one["method"].as_str().is_some_and(|method| method.starts_with("éé"))),
        "{}",
        slow.len()
    );
    assert!(events.iter().any(|one| one["data"]["method"] == "tools/call"), "{}", events.len());
    for kept in slow.iter().chain(&events).chain(&routes) {
        assert!(kept.to_string().chars().count() < 1000, "{} characters are kept", kept.to_string().len());
    }
}

/// What somebody reads of another server is not seen: only what it is like.
#[tokio::test]
async fn arguments_of_others_are_not_seen() {
    use crate::observe::collectors;
    use crate::pack::runtime_state::{ConfigSnapshot, ServerSummary};

    let here = test_context();
    let shop = here.state.servers.server_with("shop", |server| {
        server
            .resource("shop://hours", || async { "9 to 5" })
            .template("shop://users/{id}/tokens", |id: TestUriVariables| async move { id.0["id"].clone() })
    });
    let served = ServerSummary {
        name: "ops".into(),
        path: "/ops".into(),
        dialect: "official".into(),
        packs: vec!["runtime".into()],
        has_sessions: true,
        is_guarded: false,
    };
    here.state.set_snapshot(ConfigSnapshot { servers: vec![served], ..ConfigSnapshot::default() });
    collectors()
        .requests
        .update(&crate::observe::slow_log::SlowLogUpdate { threshold_millis: Some(0), ..Default::default() });
    collectors().routes.update(None, Some(false));
    for uri in ["shop://hours", "shop://users/s3cret/tokens", "other://s3cret?s3cret", "s3cret"] {
        let _ = shop.read_resource(uri).await;
    }
    let Some(Builtin::Sync(stats)) = program::builtin("mcp_get_stats") else { panic!("it does not wait") };
    let stats = stats(&here, BuiltinArguments(&Map::new())).unwrap();
    let all = json!([
        collectors().requests.newest(99, 0),
        collectors().routes.list(crate::observe::routes::RouteOrder::Count, 99),
        here.state.events(99),
        stats,
    ])
    .to_string();
    assert!(!all.contains("s3cret"), "{all}");
    for seen in ["shop://hours", "shop://users/{id}/tokens", "other://…"] {
        assert!(all.contains(seen), "{seen} in {all}");
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
struct TestUriVariables(std::collections::BTreeMap<String, String>);
