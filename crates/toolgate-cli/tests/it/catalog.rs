//! Catalogs: entries, prices, and that a priced tool never runs without payment.

use serde_json::{Value, json};

use crate::harness::{RunningServer, TempDir, parse_response, run, send, text, wait_until};

const SHOP_CONFIG: &str = r##"
[servers.shop]
path = "/api/mcp"
catalog = "/api/tools"
sessions = false
instructions = "A shop with {tool_count} tools"
[servers.shop.tools.blue_idea]
description = "An idea"
text = "# Idea"
category = "console"
price = "0.00"
aliases = ["blue-idea", "idea"]
[servers.shop.tools.honeypot_check]
description = "Detect rug pulls"
text = "worth money"
category = "security"
price = { usd = "0.050" }
aliases = ["honeypot-check"]
meta = { mine = 1 }
"##;

fn call_tool(served: &RunningServer, name: &str) -> Value {
    served.request("/api/mcp", &[], "tools/call", &json!({ "name": name, "arguments": {} })).1
}

fn get_catalog(served: &RunningServer, query: &str) -> (u16, Value) {
    parse_response(&send(&served.address, &format!("GET /api/tools{query}"), &[], ""))
}

/// A priced tool does not run, by any of its names and over any transport.
#[test]
fn a_priced_tool_does_not_run_without_payment() {
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, SHOP_CONFIG);
    for name in ["honeypot_check", "honeypot-check"] {
        let response = call_tool(&served, name);
        assert_eq!(response["result"]["isError"], true, "{response}");
        let message_text = response["result"]["content"][0]["text"].as_str().unwrap();
        assert!(
            message_text.contains("0.05 USD") && message_text.contains("payment is not set up"),
            "{message_text}"
        );
        assert!(!response.to_string().contains("worth money"), "{response}");
    }
    for name in ["blue_idea", "blue-idea", "idea"] {
        assert_eq!(call_tool(&served, name)["result"]["content"][0]["text"], "# Idea");
    }
    let called = run(folder.path(), &["call", "toolgate.toml", "honeypot_check", "{}"]);
    assert!(!called.status.success() && text(&called.stdout).contains("0.05 USD"), "{called:?}");
}

#[test]
fn a_catalog_is_served_and_follows_changes_of_the_file() {
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, SHOP_CONFIG);
    let (status, all) = get_catalog(&served, "");
    assert_eq!((status, &all["total"]), (200, &json!(2)));
    let entry = |all: &Value, slug: &str| {
        let found = all["tools"].as_array().unwrap().iter().find(|entry| entry["slug"] == slug);
        found.cloned().unwrap_or_default()
    };
    let check = entry(&all, "honeypot-check");
    assert_eq!(
        (&check["name"], &check["category"], &check["price"], &check["free"]),
        (&json!("honeypot_check"), &json!("security"), &json!({ "usd": "0.05" }), &json!(false))
    );
    assert_eq!(entry(&all, "blue-idea")["free"], true);
    assert_eq!(get_catalog(&served, "?category=security").1["tools"][0]["slug"], "honeypot-check");
    assert_eq!(get_catalog(&served, "?query=rug+detect").1["total"], 1);
    assert_eq!(get_catalog(&served, "?query=rug&category=console").1["total"], 0);
    let version = [("mcp-protocol-version", "2025-06-18")];
    let (_, listed) = served.request("/api/mcp", &version, "tools/list", &json!({}));
    let meta = &listed["result"]["tools"][1]["_meta"];
    assert_eq!((&meta["mine"], &meta["toolgate/catalog"]["price"]["usd"]), (&json!(1), &json!("0.05")));
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let (_, initialized) = served.request("/api/mcp", &[], "initialize", &initialize);
    assert_eq!(initialized["result"]["instructions"], "A shop with 2 tools");
    let wrong = send(&served.address, "POST /api/tools", &[], "{}");
    assert!(
        wrong.starts_with("HTTP/1.1 405") && wrong.to_lowercase().contains("allow: get, head"),
        "{wrong}"
    );
    assert!(send(&served.address, "HEAD /api/tools", &[], "").starts_with("HTTP/1.1 200"));
    let foreign = send(&served.address, "GET /api/tools", &[("origin", "https://evil.example")], "");
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");

    folder.write(
        "toolgate.toml",
        &SHOP_CONFIG.replace("\"0.050\"", "\"0\"").replace("= \"/api/tools\"", "= \"/list\""),
    );
    wait_until("the tool is free", || {
        call_tool(&served, "honeypot_check")["result"]["content"][0]["text"] == "worth money"
    });
    assert_eq!(get_catalog(&served, "").0, 404, "the catalog has moved");
    let (status, all) = parse_response(&send(&served.address, "GET /list", &[], ""));
    assert_eq!((status, &entry(&all, "honeypot-check")["free"]), (200, &json!(true)));
}

/// A caller that cannot list a tool does not see its price either.
#[test]
fn a_catalog_shows_only_tools_that_the_caller_can_list() {
    let text = SHOP_CONFIG.replace("instructions", "auth = \"all\"\ninstructions")
        + "[profiles.some]\ndeny = [\"honeypot*\"]\n[auth.all]\nbearer = [\"whole\", { token = \"part\", profile = \"some\" }]\n";
    let folder = TempDir::new();
    let served = RunningServer::new(&folder, &text);
    let get_as = |token: &str| {
        let header = format!("Bearer {token}");
        parse_response(&send(&served.address, "GET /api/tools", &[("authorization", &header)], ""))
    };
    assert_eq!(get_catalog(&served, "").0, 401);
    assert_eq!(get_as("whole").1["total"], 2);
    assert_eq!(get_as("part").1["total"], 1);
    assert!(!get_as("part").1.to_string().contains("honeypot"));
}

/// The example has all entries of the pack, with names, slugs and descriptions.
#[test]
fn the_hub_has_all_its_entries() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checked = run(&root, &["check", "examples/hub.toml"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let folder = TempDir::new();
    let hub = std::fs::read_to_string(root.join("examples/hub.toml")).unwrap();
    // Nothing listens on this port: only tools that need the upstream fail.
    let served = RunningServer::with(&folder, &hub, &[], &[("HUB_UPSTREAM", "http://127.0.0.1:9")]);
    let (_, all) = parse_response(&send(&served.address, "GET /api/hub/tools", &[], ""));
    let entries = all["tools"].as_array().unwrap();
    assert_eq!(entries.len(), 47, "46 of the pack and 1 of the example");
    let count = |category: &str| entries.iter().filter(|entry| entry["category"] == category).count();
    let counts =
        ["console", "extras", "security", "quantum", "research", "data", "earn", "alerts"].map(count);
    assert_eq!(counts, [8, 7, 8, 5, 9, 4, 3, 2]);
    let n_free = entries.iter().filter(|entry| entry["free"] == true).count();
    assert_eq!(n_free, 16);
    for entry in entries {
        let (slug, name) = (entry["slug"].as_str().unwrap(), entry["name"].as_str().unwrap());
        assert_eq!(slug.replace('-', "_"), name, "can be called by its slug");
        assert!(entry["description"].as_str().is_some_and(|text| text.len() > 10), "{name}");
    }
    for alias in ["quantum", "pnl", "riskcheck", "analyze", "honeypot-check"] {
        let response =
            served.request("/api/mcp", &[], "tools/call", &json!({ "name": alias, "arguments": {} })).1;
        let message = response["error"]["message"].as_str().unwrap_or_default();
        assert!(!message.starts_with("Unknown tool"), "{alias}: {response}");
    }
    let called = run(&root, &["call", "examples/hub.toml", "blue_registry", r#"{"query":"honeypot"}"#]);
    assert!(text(&called.stdout).contains(r#""slug":"honeypot-check""#), "{called:?}");
    let query = json!({ "name": "blue-registry", "arguments": { "category": "quantum" } });
    let (_, found) = served.request("/api/mcp", &[], "tools/call", &query);
    let found: Value = serde_json::from_str(found["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(found["total"], 5);
}
