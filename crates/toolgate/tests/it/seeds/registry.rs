//! Named servers: identity, registration, pausing.

use serde_json::json;
use toolgate::{App, Mount, Profile, Server, Servers};

use super::{PING, ask, call, echo_server, empty_server, fetch, post, tool};

#[tokio::test]
async fn s0_07_without_tokens_everybody_is_let_in() {
    let server = echo_server("boxlang").set_tokens([] as [&str; 0]);
    assert!(ask(&server, "tools/list", json!({})).await["result"]["tools"].is_array());
    // Also over HTTP, where tokens would be required.
    assert_eq!(post(&server, &[], PING).await.status, 200);
}

#[tokio::test]
async fn s0_08_one_token_is_full_access() {
    let server = echo_server("boxlang").set_tokens(["t1"]);
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let answer = post(&server, &[("authorization", "Bearer t1")], list).await;
    assert_eq!(answer.json()["result"]["tools"][0]["name"], "echo");
    assert_eq!(post(&server, &[("authorization", "Bearer t2")], list).await.status, 401);
    assert_eq!(post(&server, &[], list).await.status, 401);
}

#[test]
fn s0_11_profiles_that_are_built_in() {
    assert!(Profile::readonly_by_name().allows_tool("jvm_get_memory_info"));
    assert!(!Profile::readonly_by_name().allows_tool("jvm_trigger_gc"));
    assert!(Profile::admin().allows_tool("jvm_trigger_gc"));
    let custom = Profile::new("operator").include_tools(["cache_*"]);
    assert!(custom.allows_tool("cache_clear") && !custom.allows_tool("jvm_get_memory_info"));
}

#[test]
fn s0_12_what_is_not_included_or_is_excluded_is_hidden() {
    let cache = Profile::new("cache").include_tools(["cache_get*"]);
    assert!(cache.allows_tool("cache_get_stats") && !cache.allows_tool("cache_clear"));
    let fewer = cache.exclude_tools(["cache_get_keys"]);
    assert!(fewer.allows_tool("cache_get_stats") && !fewer.allows_tool("cache_get_keys"));
}

/// Code with access to the list of servers adds to one of them while it runs.
#[tokio::test]
async fn s0_47_anybody_adds_to_a_server_while_it_runs() {
    let servers = Servers::new();
    servers.server("boxlang").add_tool(toolgate::ToolSpec::new("x", || async { 1 })).unwrap();
    let list = ask(&servers.server("boxlang"), "tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"][0]["name"], "x");
    assert_eq!(call(&servers.server("boxlang"), "x", json!({})).await["result"]["content"][0]["text"], "1");
}

/// A server is enabled if it exists; statistics are on, and there is no body limit of this kind.
#[tokio::test]
async fn s0_16_a_server_that_is_not_there_is_not_found() {
    let servers = Servers::new();
    let app =
        || App::new(&servers).mount("/~bxmcp/boxlang.bxm", Mount::fixed("boxlang")).into_service().unwrap();
    let post = async || {
        let request =
            toolgate::testing::http_request("POST", "/~bxmcp/boxlang.bxm", [] as [(&str, &str); 0], PING);
        toolgate::testing::HttpExchange::start(app(), request).fetch().await.unwrap().status
    };
    assert_eq!(post().await, 404);
    let server = servers.server("boxlang");
    assert_eq!((server.body_limit(), server.is_stats_enabled()), (0, true));
    assert_eq!(post().await, 200);
}

#[test]
fn s1_036_the_same_name_is_the_same_server() {
    let registry = toolgate::registry();
    assert!(registry.server("s1-036").ptr_eq(&registry.server("s1-036")));
    assert!(!registry.server("s1-036").ptr_eq(&registry.server("s1-036-b")));
}

#[tokio::test]
async fn s1_037_other_names_are_other_servers() {
    let servers = Servers::new();
    servers.server("a").add_tool(tool("t")).unwrap().add_basic_auth("u", "p");
    let b = servers.server("b");
    assert!(servers.server("a").has_tool("t") && !b.has_tool("t"));
    assert!(!b.has_basic_auth());
    call(&servers.server("a"), "t", json!({})).await;
    assert_eq!(servers.server("a").stats_summary().total_requests, 1);
    assert_eq!(b.stats_summary().total_requests, 0);
}

#[test]
fn s1_038_the_default_is_called_default() {
    assert_eq!(Servers::new().default_server().name(), "default");
}

#[test]
fn s1_039_a_server_has_a_description() {
    assert_eq!(empty_server("n").set_description("d").description(), "d");
    assert_eq!(empty_server("n").description(), "");
}

#[test]
fn s1_040_a_server_has_a_version() {
    assert_eq!(empty_server("n").version(), "1.0.0");
    assert_eq!(empty_server("n").set_version("2.0.0").version(), "2.0.0");
}

#[test]
fn s1_041_server_info_is_name_and_version() {
    let info = empty_server("myApp").set_version("2.0.0").set_description("d").server_info();
    assert_eq!(info, json!({ "name": "myApp", "version": "2.0.0" }));
}

#[test]
fn s1_042_a_server_is_described_where_it_is_made() {
    let server = Servers::new()
        .server_with("p", |server| server.server_description("d").cors("https://a.com").statistics(false));
    assert!(!server.is_stats_enabled());
    assert_eq!((server.name(), server.description()), ("p".into(), "d".into()));
    assert!(server.is_cors_allowed("https://a.com"));
}

#[test]
fn s1_043_a_description_counts_when_a_server_is_made_or_replaced() {
    let servers = Servers::new();
    servers.server("p").add_tool(tool("t")).unwrap();
    assert!(servers.server_with("p", |server| server.statistics(false)).is_stats_enabled());
    let replaced = servers.replace_with("p", |server| server.statistics(false));
    assert!(!replaced.is_stats_enabled() && !replaced.has_tool("t"));
}

#[test]
fn s1_044_has() {
    let servers = Servers::new();
    servers.server("myApp");
    assert!(servers.has("myApp") && !servers.has("other"));
}

#[test]
fn s1_045_names() {
    let servers = Servers::new();
    servers.default_server();
    servers.server("api");
    assert_eq!(servers.names(), ["default", "api"]);
}

#[test]
fn s1_046_remove_says_whether_there_was_one() {
    let servers = Servers::new();
    servers.server("oldApp");
    assert!(servers.remove("oldApp") && !servers.remove("oldApp"));
}

#[test]
fn s1_048_clear_removes_all() {
    let servers = Servers::new();
    servers.server("a");
    servers.server("b");
    servers.clear();
    assert!(servers.names().is_empty());
}

#[test]
fn s1_049_get_makes_nothing() {
    let servers = Servers::new();
    assert!(servers.get("never").is_none() && !servers.has("never"));
}

#[test]
fn s1_051_a_summary() {
    let server = empty_server("s").set_description("d");
    server.add_tool(tool("a")).unwrap().add_tool(tool("b")).unwrap();
    let summary = server.summary();
    assert_eq!(summary["toolCount"], 2);
    assert_eq!(summary["tools"], json!(["a", "b"]));
    assert_eq!((&summary["description"], &summary["version"]), (&json!("d"), &json!("1.0.0")));
    assert_eq!(summary["paused"], false);
}

#[tokio::test]
async fn s1_052_paused_answers_nothing_but_ping() {
    let server = echo_server("s").pause();
    assert!(server.is_paused());
    assert_eq!(ask(&server, "tools/list", json!({})).await["error"]["code"], -32005);
    assert_eq!(ask(&server, "ping", json!({})).await["result"], json!({}));
    assert_eq!(server.stats().requests.failed, 1);
    server.resume();
    assert!(!server.is_paused());
    assert!(ask(&server, "tools/list", json!({})).await["result"]["tools"].is_array());
}

/// A removed server is unreachable on all transports; the row of the same id shows it over HTTP.
#[tokio::test]
async fn s1_047_what_is_removed_is_unreachable() {
    let servers = Servers::new();
    servers.server("oldApp");
    assert_eq!(fetch(&servers, "POST", "/mcp.bxm/oldApp", &[], PING).await.status, 200);
    servers.remove("oldApp");
    let answer = fetch(&servers, "POST", "/mcp.bxm/oldApp", &[], PING).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!(-32600)));
}

/// A mount is one call, and selects the servers it serves.
#[tokio::test]
async fn s1_006_a_mount_is_one_call() {
    let servers = Servers::new();
    servers.server("myApp").add_tool(tool("search")).unwrap();
    let app = App::new(&servers).mount("/api/mcp-endpoint.bxm", Mount::select());
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let path = "/api/mcp-endpoint.bxm?server=myApp";
    let request = toolgate::testing::http_request("POST", path, [] as [(&str, &str); 0], list);
    let answer =
        toolgate::testing::HttpExchange::start(app.into_service().unwrap(), request).fetch().await.unwrap();
    assert_eq!(answer.json()["result"]["tools"][0]["name"], "search");
}

#[test]
fn s1_253_public_and_admin_servers_stand_beside_each_other() {
    let servers = Servers::new();
    servers.server("admin").add_basic_auth("admin", "secret").add_tool(tool("wipe")).unwrap();
    servers.server("api").add_tool(tool("look")).unwrap();
    let (admin, api): (Server, Server) = (servers.server("admin"), servers.server("api"));
    assert!(admin.has_basic_auth() && !api.has_basic_auth());
    assert!(!api.has_tool("wipe") && !admin.has_tool("look"));
}
