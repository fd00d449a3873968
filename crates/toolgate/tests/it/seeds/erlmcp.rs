//! Document 002, the reference of erlmcp: checks that no command line can perform.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use toolgate::compat::{Dialect, ErlmcpError, Roots};
use toolgate::model::TaskSupport;
use toolgate::testing::{HttpExchange, ReceivedEvent, http_request};
use toolgate::{Principal, PromptSpec, ResourceSpec, Server, Servers};

use super::{ask, empty_server, tool};

fn erlmcp_server() -> Server {
    empty_server("erlmcp").set_dialect(Dialect::erlmcp())
}

/// An open stream without a session.
async fn listen(server: &Server) -> HttpExchange {
    let request = http_request("GET", "/", [("accept", "text/event-stream")], "");
    let mut stream = HttpExchange::start(server.clone().into_service(), request);
    let opened = stream.event_within(Duration::from_secs(5)).await.unwrap();
    assert!(matches!(opened, Some(ReceivedEvent::Retry(_))), "{opened:?}");
    stream
}

async fn next_message(stream: &mut HttpExchange) -> Value {
    serde_json::from_str(&stream.message().await.data).unwrap()
}

fn list_changed(what: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": format!("{what}/list_changed"), "params": {} })
}

#[tokio::test]
async fn s2_50_at_most_a_hundred_values() {
    let many = ResourceSpec::new("mcp://many", || async { "many" })
        .complete("which", |_, _| async { (0..300).map(|n| n.to_string()).collect::<Vec<_>>() });
    let server = erlmcp_server().add_resource(many).unwrap();
    let reference = json!({ "type": "resource", "uri": "mcp://many" });
    let params = json!({ "ref": reference, "argument": { "name": "which", "value": "" } });
    let answer = ask(&server, "completion/complete", params).await;
    let completion = &answer["result"]["completion"];
    assert_eq!(completion["items"].as_array().map(Vec::len), Some(100), "{answer}");
    assert_eq!(completion["values"].as_array().map(Vec::len), Some(100));
    assert_eq!((&completion["hasMore"], &completion["total"]), (&json!(true), &json!(300)));
}

#[tokio::test]
async fn s2_61_a_registered_resource_is_notified() {
    let server = erlmcp_server();
    let mut stream = listen(&server).await;
    server.add_resource(ResourceSpec::new("mcp://new", || async { "new" })).unwrap();
    assert_eq!(next_message(&mut stream).await, list_changed("resources"));
}

#[tokio::test]
async fn s2_62_a_registered_tool_is_notified() {
    let server = erlmcp_server();
    let mut stream = listen(&server).await;
    server.add_tool(tool("new")).unwrap();
    assert_eq!(next_message(&mut stream).await, list_changed("tools"));
}

#[tokio::test]
async fn s2_63_a_registered_prompt_is_notified() {
    let server = erlmcp_server();
    let mut stream = listen(&server).await;
    server.add_prompt(PromptSpec::new("new", || async { "new" })).unwrap();
    assert_eq!(next_message(&mut stream).await, list_changed("prompts"));
}

#[tokio::test]
async fn s2_64_a_root_of_the_operator_is_notified_too() {
    let server = erlmcp_server();
    let mut stream = listen(&server).await;
    server.add_root("file:///srv/notes").unwrap();
    assert_eq!(next_message(&mut stream).await, list_changed("roots"));
    assert!(server.remove_root("file:///srv/notes") && !server.remove_root("file:///srv/notes"));
    assert_eq!(next_message(&mut stream).await, list_changed("roots"));
}

#[tokio::test]
async fn s2_69_a_listener_may_refuse_in_the_terms_of_the_catalogue() {
    let server = erlmcp_server().add_tool(tool("admin")).unwrap();
    let error = ErlmcpError::AuthorizationFailed;
    let _listening = server.on_request(move |request| {
        if request.method() == "tools/call" {
            request.reject_with(200, error.code(), error.message());
        }
    });
    let answer = ask(&server, "tools/call", json!({ "name": "admin" })).await;
    assert_eq!(answer["error"]["code"], -32052, "{answer}");
    assert_eq!(ErlmcpError::from_code(-32052).map(ErlmcpError::family), Some("auth"));
}

#[tokio::test]
async fn s2_16_calls_from_within_the_program_need_no_initialize() {
    let servers = Servers::new();
    let server =
        servers.server_with("strict", |server| server.tool("a", || async { "b" }).require_initialize());
    assert!(server.call_tool("a", json!({})).await.is_ok());
}

/// A temporary directory, deleted on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        let path = std::env::temp_dir().join(format!("toolgate-roots-{}", std::process::id()));
        std::fs::create_dir_all(path.join("inside/deep")).unwrap();
        std::fs::create_dir_all(path.join("outside")).unwrap();
        std::fs::write(path.join("inside/deep/note"), "inside").unwrap();
        std::fs::write(path.join("outside/key"), "outside").unwrap();
        TempDir(path)
    }

    fn uri(&self, inside: &str) -> String {
        format!("file://{}/{inside}", self.0.display())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The template reads any file it is asked for: only the workspace protects files.
#[cfg(unix)]
#[tokio::test]
async fn s2_46_no_way_leads_out_of_the_workspace() {
    use std::os::unix::fs::symlink;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct File {
        path: String,
    }

    let scratch = TempDir::new();
    let link = |target: &str, name: &str| symlink(scratch.0.join(target), scratch.0.join(name)).unwrap();
    link("outside", "inside/way-out");
    link("outside/key", "inside/key");
    link("inside/deep", "inside/way-in");
    link("nowhere", "inside/dangling");
    symlink("loop", scratch.0.join("inside/loop")).unwrap();
    link("inside", "alias");
    let read = |file: File| async move { std::fs::read_to_string(format!("/{}", file.path)).ok() };
    let server = erlmcp_server().add_template(toolgate::TemplateSpec::new("file:///{+path}", read)).unwrap();
    let text = async |server: &Server, uri: &str| {
        let answer = ask(server, "resources/read", json!({ "uri": uri })).await;
        answer["result"]["contents"][0]["text"].as_str().map(str::to_owned)
    };
    // Without a workspace, files are not restricted.
    assert_eq!(text(&server, &scratch.uri("outside/key")).await.as_deref(), Some("outside"));
    let server =
        server.set_workspace_roots(Roots::new([scratch.uri("inside")]).writable_below(scratch.uri("inside")));
    for way in ["inside/deep/note", "inside/way-in/note", "alias/deep/note", "inside/./deep//note"] {
        assert_eq!(text(&server, &scratch.uri(way)).await.as_deref(), Some("inside"), "{way}");
    }
    for way in [
        "outside/key",
        "inside/../outside/key",
        "inside/%2e%2e/outside/key",
        "inside/..%2foutside/key",
        "inside/deep/../../outside/key",
        "inside/way-out/key",
        "inside/key",
        "inside/dangling",
        "inside/dangling/key",
        "inside/loop",
        "inside-not/key",
    ] {
        let answer = ask(&server, "resources/read", json!({ "uri": scratch.uri(way) })).await;
        assert_eq!(answer["error"]["code"], -32001, "{way}: {answer}");
    }
    // A client adds a link that leads outside: the root exists but gives no access.
    let add = ask(&server, "roots/add", json!({ "uri": scratch.uri("inside/way-out") })).await;
    assert_eq!(add["result"], json!({}));
    assert_eq!(text(&server, &scratch.uri("outside/key")).await, None);
    // Everyone is restricted, including clients that send a protocol version.
    let params = json!({ "uri": scratch.uri("outside/key") });
    let answer = server.test().request("resources/read", params).await;
    assert!(answer.get("error").is_some(), "{answer}");
}

#[test]
fn s2_45_an_invalid_root_is_reported_at_once() {
    let server = erlmcp_server().set_workspace_roots(Roots::new(["notes"]));
    assert_eq!(server.config_errors().len(), 1, "{:?}", server.config_errors());
}

/// Two tokens: one does not find the tasks of the other.
#[tokio::test]
async fn s2_58_tasks_belong_to_who_began_them() {
    let server = erlmcp_server().add_tool(tool("long_operation").task(TaskSupport::Optional)).unwrap();
    let ask = async |who: &'static str, method: &str, params: Value| -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let mut request = http_request("POST", "/", [("content-type", "application/json")], body);
        request.extensions_mut().insert(Principal::new(who));
        let body = HttpExchange::start(server.clone().into_service(), request).body().await.unwrap();
        serde_json::from_str(&body).unwrap()
    };
    let action = json!({ "type": "tool", "name": "long_operation" });
    let begun = ask("ada", "tasks/create", json!({ "task": { "action": action } })).await;
    let id = json!({ "taskId": begun["result"]["taskId"] });
    let own = ask("ada", "tasks/get", id.clone()).await;
    assert_eq!(own["result"]["taskId"], id["taskId"], "{begun} {own}");
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let foreign = ask("bob", method, id.clone()).await;
        assert_eq!(foreign["error"]["code"], -32081, "{method}: {foreign}");
    }
    let (all, none) = (ask("ada", "tasks/list", json!({})).await, ask("bob", "tasks/list", json!({})).await);
    assert_eq!(all["result"]["tasks"].as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(none["result"]["tasks"], json!([]));
}
