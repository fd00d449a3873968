//! Checks of the documents that the framework is based on: those that no command line can perform.
//!
//! Each test is one check. Its name begins with the id of the check, which `cargo xtask seeds` reads; the other checks are
//! command lines in `xtask/seeds/`. Most express in Rust what the list of requirements says in a line.

mod buddyboss;
mod cost;
mod erlmcp;
mod events;
mod guards;
mod keys;
mod origins;
mod prompts;
mod registry;
mod resources;
mod scan;
mod stats;
mod tools;
mod transports;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolgate::compat::Dialect;
use toolgate::testing::{HttpExchange, ReceivedResponse, http_request};
use toolgate::{App, Mount, Server, Servers, ToolSpec};

pub(crate) const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// An empty server.
pub(crate) fn empty_server(name: &str) -> Server {
    Servers::new().server(name)
}

/// A tool that returns its name.
pub(crate) fn tool(name: &'static str) -> ToolSpec {
    ToolSpec::new(name, move || async move { name }).describe("Says its name")
}

/// A server with one tool, `echo`.
pub(crate) fn echo_server(name: &str) -> Server {
    empty_server(name).add_tool(tool("echo")).unwrap()
}

/// Sends a request without a protocol version; returns the whole response.
pub(crate) async fn ask(server: &Server, method: &str, params: Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    server.handle(request).await.unwrap()
}

pub(crate) async fn call(server: &Server, tool: &str, arguments: Value) -> Value {
    ask(server, "tools/call", json!({ "name": tool, "arguments": arguments })).await
}

/// Returns the text of a tool result.
pub(crate) async fn call_text(server: &Server, tool: &str, arguments: Value) -> String {
    let answer = call(server, tool, arguments).await;
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}")).to_owned()
}

/// Posts a body to a server, as a plain `curl` does.
pub(crate) async fn post(
    server: &Server,
    headers: &[(&str, &str)],
    body: impl Into<String>,
) -> ReceivedResponse {
    let request = http_request("POST", "/", headers.iter().copied(), body);
    HttpExchange::start(server.clone().into_service(), request).fetch().await.unwrap()
}

/// Sends a request to servers behind one mount with the dialect of document 001.
pub(crate) async fn fetch(
    servers: &Servers,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> ReceivedResponse {
    let app = App::new(servers).mount("/mcp.bxm", Mount::select().dialect(Dialect::boxlang()));
    let request = http_request(method, path, headers.iter().copied(), body);
    HttpExchange::start(app.into_service().unwrap(), request).fetch().await.unwrap()
}

/// Values that listeners recorded, in order.
#[derive(Clone, Default)]
pub(crate) struct EventLog(Arc<Mutex<Vec<Value>>>);

impl EventLog {
    pub(crate) fn push(&self, value: impl Into<Value>) {
        self.0.lock().unwrap().push(value.into());
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn only(&self) -> Value {
        let all = self.all();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}
