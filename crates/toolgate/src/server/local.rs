//! Requests to a server from the same process, without a transport.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::Server;
use crate::error::{Error, ErrorKind};
use crate::observe::Transport;
use crate::protocol::{Channel, DuplexConnection, Peer, Reply};
use crate::request::Principal;
use crate::stream::{Capacity, Stream};
use crate::util::stored_json;

/// Requests without a transport.
impl Server {
    /// Handles one JSON-RPC message from an anonymous client that names no protocol version. Returns `None` for messages
    /// without a response: notifications, and responses that match no request.
    ///
    /// Listeners are called and statistics are counted. Guards are not: they check HTTP requests.
    ///
    /// ```
    /// # use toolgate::Server;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("demo", "1.0.0").tool("hello", || async { "Hello!" }).build()?;
    /// let request = serde_json::json!({
    ///     "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "hello" }
    /// });
    /// let response = server.handle(request).await.unwrap();
    /// assert_eq!(response["result"]["content"][0]["text"], "Hello!");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn handle(&self, request: Value) -> Option<Value> {
        let response = self.handle_bytes(request.to_string().into()).await?;
        Some(stored_json::response_value(&response))
    }

    /// Handles one JSON-RPC message as [`Server::handle`] does, with JSON text for request and response. Invalid JSON gets
    /// error -32700.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = toolgate::Server::new("demo", "1.0.0").build()?;
    /// let response = server.handle_str(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    /// assert_eq!(response.as_deref(), Some(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn handle_str(&self, request: &str) -> Option<String> {
        let response = self.handle_bytes(Bytes::copy_from_slice(request.as_bytes())).await?;
        String::from_utf8(response.into()).ok()
    }

    async fn handle_bytes(&self, request: Bytes) -> Option<Bytes> {
        let engine = &self.0.engine;
        let out = Stream::new(Capacity::default());
        let peer = Peer {
            principal: Principal::anonymous(),
            headers: Arc::default(),
            extensions: None,
            remote_addr: None,
            via: Channel::Duplex(DuplexConnection::new(Arc::clone(&out), None)),
            dialect: engine.dialect.load(),
            transport: Transport::Memory,
        };
        match engine.handle_message(&request, &peer, &out).await {
            Reply::Body { body, .. } => Some(body.into_bytes()),
            Reply::Accepted | Reply::NoResponse => None,
        }
    }

    /// Returns all pages of `tools/list`, for a client that names no protocol version.
    pub async fn list_tools(&self) -> Vec<Value> {
        self.list_all("tools/list", "tools").await
    }

    /// Returns all pages of `resources/list`.
    pub async fn list_resources(&self) -> Vec<Value> {
        self.list_all("resources/list", "resources").await
    }

    /// Returns all pages of `prompts/list`.
    pub async fn list_prompts(&self) -> Vec<Value> {
        self.list_all("prompts/list", "prompts").await
    }

    /// Reads a resource. Returns the result of `resources/read`.
    ///
    /// # Errors
    /// If there is no resource with this URI, or reading it failed.
    pub async fn read_resource(&self, uri: &str) -> Result<Value, Error> {
        self.request("resources/read", json!({ "uri": uri })).await
    }

    /// Renders a prompt. Returns the result of `prompts/get`.
    ///
    /// # Errors
    /// If there is no prompt with this name, or an argument is missing.
    pub async fn get_prompt(&self, name: &str, arguments: Value) -> Result<Value, Error> {
        self.request("prompts/get", json!({ "name": name, "arguments": arguments })).await
    }

    /// Calls a tool. Returns the result of `tools/call`.
    ///
    /// # Errors
    /// If there is no tool with this name. A tool that fails returns a result with `isError`.
    pub async fn call_tool(&self, name: &str, arguments: Value) -> Result<Value, Error> {
        self.request("tools/call", json!({ "name": name, "arguments": arguments })).await
    }

    async fn request(&self, method: &str, params: Value) -> Result<Value, Error> {
        let request = json!({ "jsonrpc": "2.0", "id": 0, "method": method, "params": params });
        let mut response = self.handle(request).await.unwrap_or_default();
        match response.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => {
                let message = response["error"]["message"].as_str().unwrap_or("there is no answer");
                Err(Error::new(ErrorKind::Rejected, format!("{method}: {message}")))
            }
        }
    }

    async fn list_all(&self, method: &str, key: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut params = json!({});
        while let Ok(mut page) = self.request(method, params).await {
            if let Some(Value::Array(page)) = page.get_mut(key).map(Value::take) {
                items.extend(page);
            }
            match page.get_mut("nextCursor").map(Value::take) {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => break,
            }
        }
        items
    }
}
