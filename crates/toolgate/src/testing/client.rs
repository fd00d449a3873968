//! The test client: one connection to one server in one protocol version.

mod settings;
mod subscriptions;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use toolgate_wire::model::{
    Call, CompleteParams, CompletionReference, Outcome, Page, Prompt, Resource, ResourceTemplate, Retry, Tool,
};
use toolgate_wire::{Meta, RawJson};

use super::TestVersion;
use super::connection::{
    ConnectTarget, ConnectionSetup, RawReply, ServerDetails, TestConnection, TestRequestHead,
};
use super::request::TestCall;
use super::response::ToolResponse;
use crate::server::Server;

/// An in-memory client of one protocol version, for tests.
///
/// It connects with its first request, performs the handshake of its protocol version, sends its client info, follows
/// pagination, responds to requests of the server with the callbacks of the test, and buffers notifications. It needs a
/// tokio runtime, which `#[toolgate::test]` provides. Clones share the connection. Failures are panics.
///
/// ```
/// use serde_json::json;
/// use toolgate::Server;
/// use toolgate::testing::{TestClient, TestVersion};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Greet { name: String }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), toolgate::Error> {
/// let server = Server::new("hello", "1.0.0")
///     .tool("greet", |args: Greet| async move { format!("Hello, {}!", args.name) })
///     .build()?;
///
/// for version in TestVersion::all() {
///     let client = TestClient::new(&server, version);
///     assert_eq!(client.call("greet", json!({ "name": "Ann" })).await.text(), "Hello, Ann!");
///     assert!(client.call("greet", json!({})).await.is_error());
///     assert_eq!(client.call("great", json!({})).await.error().code(), -32602);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "in-memory client")]
pub struct TestClient {
    pub(super) setup: ConnectionSetup,
    connection: Arc<OnceCell<Arc<TestConnection>>>,
}

impl std::fmt::Debug for TestClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestClient")
            .field("version", &self.protocol_version())
            .field("target", &self.setup.target)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Creates a test client of the newest protocol version for this server; see
    /// [`TestClient`].
    ///
    /// ```
    /// # use toolgate::Server;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("demo", "1.0.0").tool("hi", || async { "Hello!" }).build()?;
    /// assert_eq!(server.test().call("hi", serde_json::json!({})).await.text(), "Hello!");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn test(&self) -> TestClient {
        TestClient::new(self, TestVersion::newest())
    }
}

/// Requests.
impl TestClient {
    /// Returns the protocol version of this client.
    #[must_use]
    pub fn protocol_version(&self) -> TestVersion {
        TestVersion(self.setup.version)
    }

    /// Calls a tool. The arguments are a JSON object, or null for none.
    ///
    /// # Panics
    /// If the arguments are not an object. When awaited: if no response arrives, or it does not follow the protocol
    /// version, or its structured output does not match the output schema that the tool announces.
    #[track_caller]
    pub fn call(
        &self,
        name: impl Into<String>,
        arguments: Value,
    ) -> TestCall<toolgate_wire::model::ToolOutput> {
        let arguments = match arguments {
            Value::Null => None,
            object @ Value::Object(_) => Some(RawJson::from(object)),
            other => panic!("tool arguments must be an object or null, got {other}"),
        };
        let call = Call::CallTool { name: name.into(), arguments, retry: Retry::default(), task: None };
        TestCall::new(self, call, |outcome| match outcome {
            Outcome::Tool(output) => Some(output),
            _ => None,
        })
    }

    /// Calls a tool with additional headers; over HTTP only.
    ///
    /// # Panics
    /// As [`TestClient::call`].
    pub async fn call_with_headers<N: Into<String>, V: Into<String>>(
        &self,
        name: impl Into<String>,
        arguments: Value,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> ToolResponse {
        let call = self.call(name, arguments);
        headers.into_iter().fold(call, |call, (name, value)| call.header(name, value)).await
    }

    /// Reads a resource.
    pub fn read(&self, uri: impl Into<String>) -> TestCall<Vec<toolgate_wire::model::ResourceContents>> {
        let call = Call::ReadResource { uri: uri.into(), retry: Retry::default() };
        TestCall::new(self, call, |outcome| match outcome {
            Outcome::ReadResource { contents, .. } => Some(contents),
            _ => None,
        })
    }

    /// Gets a prompt. The arguments are a JSON object of strings, or null for none.
    ///
    /// # Panics
    /// If the arguments are not an object.
    #[track_caller]
    pub fn prompt(
        &self,
        name: impl Into<String>,
        arguments: Value,
    ) -> TestCall<toolgate_wire::model::PromptOutput> {
        let arguments: BTreeMap<String, String> = match arguments {
            Value::Null => BTreeMap::new(),
            Value::Object(arguments) => {
                let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                arguments.into_iter().map(|(name, value)| (name, text(value))).collect()
            }
            other => panic!("prompt arguments must be an object or null, got {other}"),
        };
        let call = Call::GetPrompt { name: name.into(), arguments, retry: Retry::default() };
        TestCall::new(self, call, |outcome| match outcome {
            Outcome::Prompt(output) => Some(output),
            _ => None,
        })
    }

    /// Requests completions for a partial argument value.
    pub fn complete(
        &self,
        reference: CompletionReference,
        argument: impl Into<String>,
        value: impl Into<String>,
    ) -> TestCall<toolgate_wire::model::Completion> {
        let (argument, value, context) = (argument.into(), value.into(), BTreeMap::new());
        let call = Call::Complete(CompleteParams { completion_ref: reference, argument, value, context });
        TestCall::new(self, call, |outcome| match outcome {
            Outcome::Completion(completion) => Some(completion),
            _ => None,
        })
    }

    /// Lists all tools, following pagination.
    ///
    /// # Panics
    /// If the server responds with an error.
    pub async fn tools(&self) -> Vec<Tool> {
        let read = |outcome| if let Outcome::Tools(page) = outcome { Some(page) } else { None };
        self.list(|cursor| Call::ListTools { cursor }, read).await
    }

    /// Lists all resources, following pagination.
    ///
    /// # Panics
    /// If the server responds with an error.
    pub async fn resources(&self) -> Vec<Resource> {
        let read = |outcome| if let Outcome::Resources(page) = outcome { Some(page) } else { None };
        self.list(|cursor| Call::ListResources { cursor }, read).await
    }

    /// Lists all resource templates, following pagination.
    ///
    /// # Panics
    /// If the server responds with an error.
    pub async fn templates(&self) -> Vec<ResourceTemplate> {
        let read = |outcome| if let Outcome::Templates(page) = outcome { Some(page) } else { None };
        self.list(|cursor| Call::ListTemplates { cursor }, read).await
    }

    /// Lists all prompts, following pagination.
    ///
    /// # Panics
    /// If the server responds with an error.
    pub async fn prompts(&self) -> Vec<Prompt> {
        let read = |outcome| if let Outcome::Prompts(page) = outcome { Some(page) } else { None };
        self.list(|cursor| Call::ListPrompts { cursor }, read).await
    }

    async fn list<T: Clone + Send + Sync + 'static>(
        &self,
        call: fn(Option<String>) -> Call,
        read: fn(Outcome) -> Option<Page<T>>,
    ) -> Vec<T> {
        let (mut items, mut cursor) = (Vec::new(), None);
        loop {
            let call = call(cursor.take());
            let method = call.method();
            let response = TestCall::new(self, call, read).await;
            let page = match response.outcome {
                Ok(page) => page,
                Err(error) => panic!("`{method}` failed: {error}"),
            };
            items.extend(page.items.into_iter().map(Arc::unwrap_or_clone));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return items;
            }
        }
    }

    /// Returns the server's name, capabilities and instructions, from `initialize` or `server/discover` as the protocol
    /// version has it.
    ///
    /// # Panics
    /// If the server responds with an error.
    pub async fn server_details(&self) -> ServerDetails {
        let connection = self.expect_connection().await;
        if let Some(result) = connection.initialize_result.clone() {
            let (capabilities, instructions) = (result.capabilities, result.instructions);
            return ServerDetails { server: Some(result.server_info), capabilities, instructions };
        }
        let discover = TestCall::new(self, Call::Discover, |outcome| match outcome {
            Outcome::Discover(discovery) => Some(discovery),
            _ => None,
        });
        match discover.await.outcome {
            Ok(result) => ServerDetails {
                server: result.server_info,
                capabilities: result.capabilities,
                instructions: result.instructions,
            },
            Err(error) => panic!("`server/discover` failed: {error}"),
        }
    }

    /// Sends any request and returns the whole response message, with `["result"]` or `["error"]`. Input requests in a
    /// result are not handled.
    ///
    /// The params are an object, or null. The `_meta` entries of this protocol version are added unless present.
    ///
    /// # Panics
    /// If no response message arrives.
    pub async fn request(&self, method: &str, params: Value) -> Value {
        let reply = self.raw_request(method, params).await;
        match (reply.message, reply.outcome) {
            (Value::Null, Err(error)) => panic!("the response to `{method}` is not a message: {error}"),
            (message, _) => message,
        }
    }

    async fn raw_request(&self, method: &str, params: Value) -> RawReply {
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(reply) => return *reply,
        };
        let mut params = if params.is_null() { json!({}) } else { params };
        let meta = Meta { log_level: self.setup.log_level, ..Meta::default() };
        let defaults: Value =
            serde_json::from_slice(&connection.params(&Call::Ping, &meta)).unwrap_or_default();
        if let (Some(defaults), Some(params)) = (defaults["_meta"].as_object(), params.as_object_mut()) {
            let meta = params.entry("_meta").or_insert_with(|| json!({}));
            for (key, value) in defaults {
                if let Some(meta) = meta.as_object_mut() {
                    meta.entry(key).or_insert_with(|| value.clone());
                }
            }
        }
        let subject = match method {
            "tools/call" | "prompts/get" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => None,
        };
        let request = TestRequestHead { id: connection.next_id(), method, subject, headers: &[] };
        connection.send(&self.setup, &request, params.to_string().as_bytes(), |_| {}).await
    }

    /// Sends a notification. The params are an object, or null.
    ///
    /// # Panics
    /// If the server has closed the connection.
    pub async fn notify(&self, method: &str, params: Value) {
        let params = Some(params).filter(|params| !params.is_null());
        self.expect_connection().await.notify(&self.setup, method, params.as_ref()).await;
    }

    /// Sends an HTTP request unchanged to the same service and returns the exchange: status, headers and body, or a
    /// stream. Only the client's extensions are added. [`http_request`](super::http_request) builds a request.
    ///
    /// # Panics
    /// If the client does not use HTTP.
    #[cfg(feature = "http")]
    pub fn send(&self, mut request: http::Request<String>) -> super::HttpExchange {
        let ConnectTarget::Http(target) = &self.setup.target else {
            panic!("`send` needs HTTP; call `over_http()` first")
        };
        let extensions = std::mem::replace(request.extensions_mut(), self.setup.extensions.clone());
        request.extensions_mut().extend(extensions);
        (target.send)(request)
    }
}

/// The connection.
impl TestClient {
    /// Returns the connection, opening it first if necessary.
    ///
    /// # Errors
    /// If the handshake fails, with the server's reply.
    pub(super) async fn connection(&self) -> Result<Arc<TestConnection>, Box<RawReply>> {
        self.connection.get_or_try_init(|| TestConnection::open(&self.setup)).await.cloned()
    }

    /// Returns the connection, opening it first if necessary. Panics if the handshake fails.
    async fn expect_connection(&self) -> Arc<TestConnection> {
        match self.connection().await {
            Ok(connection) => connection,
            Err(reply) => panic!("the handshake failed: {:?}", reply.outcome),
        }
    }

    /// Returns true if disconnecting cancels a request.
    pub(super) fn disconnect_cancels(&self) -> bool {
        match &self.setup.target {
            ConnectTarget::Stdio(_) => false,
            #[cfg(feature = "http")]
            ConnectTarget::Http(_) => self.setup.version.behavior().disconnect_cancels,
        }
    }
}
