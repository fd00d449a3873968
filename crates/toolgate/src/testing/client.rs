//! The client of a test: one connection to one server, in the words of one revision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use toolgate_wire::model::{
    Call, CompleteParams, CompletionReference, Implementation, LogLevel, Outcome, Page, Prompt, Resource,
    ResourceTemplate, Retry, SamplingRequest, SubscriptionFilter, Tool,
};
use toolgate_wire::{ChangeDelivery, Meta, RawJson, meta_key};

use super::callbacks::{ClientCallbacks, IntoElicitOutcome, IntoSamplingResult, ReceivedElicitation};
use super::connection::{
    ConnectTarget, ConnectionSetup, RawReply, ServerDetails, TestConnection, TestRequestHead,
};
use super::request::TestCall;
use super::response::{ReceivedNotification, ToolResponse};
use super::{IntoServer, RECEIVE_TIMEOUT, TestVersion};
use crate::server::Server;

/// A client for tests: in memory, without sockets, of one protocol revision.
///
/// It connects when it makes its first request, greets as its revision does, says who it is where that is
/// wanted, turns pages, answers the server's questions with the closures it was given, and keeps what the
/// server says meanwhile. It needs a tokio runtime, which `#[toolgate::test]` brings along. Clones share
/// the connection. What goes wrong is a panic.
///
/// ```
/// use serde_json::json;
/// use toolgate::Server;
/// use toolgate::testing::{Revision, TestClient};
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
/// for revision in Revision::all() {
///     let client = TestClient::new(&server, revision);
///     assert_eq!(client.call("greet", json!({ "name": "Ann" })).await.text(), "Hello, Ann!");
///     assert!(client.call("greet", json!({})).await.is_error());
///     assert_eq!(client.call("great", json!({})).await.error().code(), -32602);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TestClient {
    pub(super) setup: ConnectionSetup,
    connection: Arc<OnceCell<Arc<TestConnection>>>,
}

impl std::fmt::Debug for TestClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestClient")
            .field("revision", &self.protocol_version())
            .field("way", &self.setup.target)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A client of the newest revision for a test of this server; see
    /// [`TestClient`](crate::testing::TestClient).
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

/// How a client comes to be, and what it can be told before it connects.
impl TestClient {
    /// A client of this revision, over a pair of pipes, one message a line.
    ///
    /// # Panics
    /// If the server cannot be built.
    #[track_caller]
    pub fn new(server: impl IntoServer, revision: TestVersion) -> TestClient {
        TestClient::with_target(ConnectTarget::Stdio(server.into_server()), revision)
    }

    /// A client of the newest revision that has connected.
    ///
    /// # Panics
    /// If the server cannot be built, or does not want it.
    pub async fn connect(server: impl IntoServer) -> TestClient {
        let client = TestClient::new(server, TestVersion::newest());
        client.server_details().await;
        client
    }

    /// A client of the newest revision, over HTTP in memory.
    ///
    /// # Panics
    /// If the server cannot be built.
    #[cfg(feature = "http")]
    #[track_caller]
    pub fn http(server: impl IntoServer) -> TestClient {
        TestClient::new(server, TestVersion::newest()).over_http()
    }

    /// A client of this revision, over HTTP in memory, of any service: a router with several servers, a
    /// server behind layers. It calls the path `/mcp`, unless [`TestClient::at`] says another.
    ///
    /// ```
    /// # use toolgate::testing::{Revision, TestClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = toolgate::Server::new("demo", "1.0.0").tool("hi", || async { "Hello!" }).build()?;
    /// let app = axum::Router::new().nest_service("/tools", server.into_service());
    /// let client = TestClient::service(app, Revision::newest()).at("/tools");
    /// assert_eq!(client.call("hi", serde_json::json!({})).await.text(), "Hello!");
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "http")]
    pub fn service<S, B>(service: S, revision: TestVersion) -> TestClient
    where
        S: tower_service::Service<
                http::Request<String>,
                Response = http::Response<B>,
                Error = std::convert::Infallible,
            > + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Send,
    {
        let knock = move |request| super::exchange::HttpExchange::start(service.clone(), request);
        let door = super::http_client::HttpTarget { send: Arc::new(knock), path: "/mcp".into() };
        TestClient::with_target(ConnectTarget::Http(door), revision)
    }

    fn with_target(way: ConnectTarget, revision: TestVersion) -> TestClient {
        let setup = ConnectionSetup {
            version: revision.0,
            target: way,
            callbacks: ClientCallbacks::default(),
            info: Implementation { name: "test".into(), version: "0".into(), ..Implementation::default() },
            log_level: None,
            timeout: RECEIVE_TIMEOUT,
            headers: Vec::new(),
            extensions: http::Extensions::new(),
        };
        TestClient { setup, connection: Arc::default() }
    }

    /// The same over HTTP in memory: with headers, statuses and principals.
    ///
    /// # Panics
    /// If it has connected before.
    #[cfg(feature = "http")]
    #[must_use]
    #[track_caller]
    pub fn over_http(self) -> TestClient {
        self.assert_not_connected("over_http");
        let ConnectTarget::Stdio(server) = &self.setup.target else { return self };
        let client = TestClient::service(server.clone().into_service(), self.protocol_version());
        TestClient {
            setup: ConnectionSetup { target: client.setup.target, ..self.setup },
            connection: Arc::default(),
        }
    }

    /// Calls this path instead of `/mcp`; over HTTP only.
    ///
    /// # Panics
    /// If it has connected before.
    #[cfg(feature = "http")]
    #[must_use]
    #[track_caller]
    pub fn at(mut self, path: impl Into<String>) -> TestClient {
        self.assert_not_connected("at");
        match &mut self.setup.target {
            ConnectTarget::Http(door) => door.path = path.into(),
            ConnectTarget::Stdio(_) => panic!("there are no paths without HTTP; `over_http()` first"),
        }
        self
    }

    /// Answers forms and links: JSON fills in the form, [`ElicitOutcome`](crate::Elicited) can also decline.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use toolgate::{Context, Field, Form, Server, ToolError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// async fn deploy(cx: Context) -> Result<String, ToolError> {
    ///     let form = Form::new("Why?").field("reason", Field::text());
    ///     let answer = cx.elicit("why", form).await?.accepted().unwrap_or_default();
    ///     Ok(format!("deployed, because {}", answer["reason"]))
    /// }
    /// let server = Server::new("ops", "1.0.0").tool("deploy", deploy).build()?;
    /// let client = server.test().on_elicit(|form| {
    ///     assert_eq!(form.message(), "Why?");
    ///     json!({ "reason": "friday" })
    /// });
    /// assert_eq!(client.call("deploy", json!({})).await.text(), "deployed, because \"friday\"");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it has connected before: then it has said what it can do.
    #[must_use]
    #[track_caller]
    pub fn on_elicit<R: IntoElicitOutcome>(
        mut self,
        answer: impl Fn(&ReceivedElicitation) -> R + Send + Sync + 'static,
    ) -> TestClient {
        self.assert_not_connected("on_elicit");
        self.setup.callbacks.elicit = Some(Arc::new(move |form| answer(form).into_elicit_outcome()));
        self
    }

    /// Answers for the client's model: with a text, or with everything a model can say.
    ///
    /// # Panics
    /// If it has connected before: then it has said what it can do.
    #[must_use]
    #[track_caller]
    pub fn on_sample<R: IntoSamplingResult>(
        mut self,
        answer: impl Fn(&SamplingRequest) -> R + Send + Sync + 'static,
    ) -> TestClient {
        self.assert_not_connected("on_sample");
        self.setup.callbacks.sample = Some(Arc::new(move |sample| answer(sample).into_sampling_result()));
        self
    }

    /// Tells which folders are open, by their URIs.
    ///
    /// # Panics
    /// If it has connected before: then it has said what it can do.
    #[must_use]
    #[track_caller]
    pub fn on_roots<I>(mut self, answer: impl Fn() -> I + Send + Sync + 'static) -> TestClient
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.assert_not_connected("on_roots");
        self.setup.callbacks.roots = Some(Arc::new(move |()| answer().into_iter().map(Into::into).collect()));
        self
    }

    /// Says that it is this client. `test`, version 0, unless told.
    ///
    /// # Panics
    /// If it has connected before.
    #[must_use]
    #[track_caller]
    pub fn client_info(mut self, name: impl Into<String>, version: impl Into<String>) -> TestClient {
        self.assert_not_connected("named");
        self.setup.info =
            Implementation { name: name.into(), version: version.into(), ..Implementation::default() };
        self
    }

    /// Wants log messages from this level on, in every request.
    ///
    /// # Panics
    /// If it has connected before.
    #[must_use]
    #[track_caller]
    pub fn log(mut self, level: LogLevel) -> TestClient {
        self.assert_not_connected("log");
        self.setup.log_level = Some(level);
        self
    }

    /// How long to wait for anything. Ten seconds unless told.
    #[must_use]
    pub fn timeout(mut self, patience: Duration) -> TestClient {
        self.setup.timeout = patience;
        self
    }

    /// Sends this header with every request from here on; over HTTP only. It stands for what the client
    /// would have said under this name; `-` says nothing.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> TestClient {
        self.setup.headers.push((name.into(), value.into()));
        self
    }

    /// Comes as this principal from here on, as if a layer had put it into the request; over HTTP only.
    ///
    /// A clone shares the session: `client.clone().with_principal(eve)` is somebody else in Ada's session.
    #[must_use]
    pub fn with_principal(self, principal: crate::request::Principal) -> TestClient {
        self.with_extension(principal)
    }

    /// Puts this into the extensions of every request from here on; over HTTP only.
    #[must_use]
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self, extension: T) -> TestClient {
        self.setup.extensions.insert(extension);
        self
    }

    #[track_caller]
    fn assert_not_connected(&self, method: &str) {
        assert!(self.connection.get().is_none(), "`{method}` comes too late: the client has connected");
    }
}

/// Requests.
impl TestClient {
    /// The revision it speaks.
    #[must_use]
    pub fn protocol_version(&self) -> TestVersion {
        TestVersion(self.setup.version)
    }

    /// Calls a tool. Arguments are a JSON object; null is the same as none.
    ///
    /// # Panics
    /// When awaited: if there is no answer, or one that is not of this revision.
    #[track_caller]
    pub fn call(
        &self,
        name: impl Into<String>,
        arguments: Value,
    ) -> TestCall<toolgate_wire::model::ToolOutput> {
        let arguments = match arguments {
            Value::Null => None,
            object @ Value::Object(_) => Some(RawJson::from(object)),
            other => panic!("the arguments of a tool are an object, not {other}"),
        };
        let call = Call::CallTool { name: name.into(), arguments, retry: Retry::default(), task: None };
        TestCall::new(self, call, |outcome| match outcome {
            Outcome::Tool(output) => Some(output),
            _ => None,
        })
    }

    /// Calls a tool with headers of its own; over HTTP only.
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

    /// Fills in a prompt. Arguments are a JSON object of texts; null is the same as none.
    ///
    /// # Panics
    /// If the arguments are no object.
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
            other => panic!("the arguments of a prompt are an object, not {other}"),
        };
        let call = Call::GetPrompt { name: name.into(), arguments, retry: Retry::default() };
        TestCall::new(self, call, |outcome| match outcome {
            Outcome::Prompt(output) => Some(output),
            _ => None,
        })
    }

    /// Asks how a value could go on.
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

    /// All tools, whatever the number of pages.
    ///
    /// # Panics
    /// If the list is refused.
    pub async fn tools(&self) -> Vec<Tool> {
        let read = |outcome| if let Outcome::Tools(page) = outcome { Some(page) } else { None };
        self.list(|cursor| Call::ListTools { cursor }, read).await
    }

    /// All resources, whatever the number of pages.
    ///
    /// # Panics
    /// If the list is refused.
    pub async fn resources(&self) -> Vec<Resource> {
        let read = |outcome| if let Outcome::Resources(page) = outcome { Some(page) } else { None };
        self.list(|cursor| Call::ListResources { cursor }, read).await
    }

    /// All resource templates, whatever the number of pages.
    ///
    /// # Panics
    /// If the list is refused.
    pub async fn templates(&self) -> Vec<ResourceTemplate> {
        let read = |outcome| if let Outcome::Templates(page) = outcome { Some(page) } else { None };
        self.list(|cursor| Call::ListTemplates { cursor }, read).await
    }

    /// All prompts, whatever the number of pages.
    ///
    /// # Panics
    /// If the list is refused.
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
            let answer = TestCall::new(self, call, read).await;
            let page = match answer.outcome {
                Ok(page) => page,
                Err(refusal) => panic!("`{method}` was refused: {refusal}"),
            };
            items.extend(page.items.into_iter().map(Arc::unwrap_or_clone));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return items;
            }
        }
    }

    /// What the server says of itself, however this revision asks for it.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn server_details(&self) -> ServerDetails {
        let link = match self.connection().await {
            Ok(link) => link,
            Err(reply) => panic!("the greeting was refused: {:?}", reply.outcome),
        };
        if let Some(welcome) = link.initialize_result.clone() {
            let (capabilities, instructions) = (welcome.capabilities, welcome.instructions);
            return ServerDetails { server: Some(welcome.server_info), capabilities, instructions };
        }
        let discovered = TestCall::new(self, Call::Discover, |outcome| match outcome {
            Outcome::Discover(discovery) => Some(discovery),
            _ => None,
        });
        match discovered.await.outcome {
            Ok(found) => ServerDetails {
                server: found.server_info,
                capabilities: found.capabilities,
                instructions: found.instructions,
            },
            Err(refusal) => panic!("`server/discover` was refused: {refusal}"),
        }
    }

    /// Any request, and the whole message that answers it: `["result"]` or `["error"]`. Questions that come
    /// as a result are not answered.
    ///
    /// The params are an object, or null; the `_meta` that this revision wants is added, except for what is
    /// there already.
    ///
    /// # Panics
    /// If there is no answer.
    pub async fn request(&self, method: &str, params: Value) -> Value {
        let reply = self.raw_request(method, params).await;
        match (reply.message, reply.outcome) {
            (Value::Null, Err(refusal)) => panic!("`{method}` was answered with no message: {refusal}"),
            (message, _) => message,
        }
    }

    async fn raw_request(&self, method: &str, params: Value) -> RawReply {
        let link = match self.connection().await {
            Ok(link) => link,
            Err(reply) => return *reply,
        };
        let mut params = if params.is_null() { json!({}) } else { params };
        let meta = Meta { log_level: self.setup.log_level, ..Meta::default() };
        let own: Value = serde_json::from_slice(&link.params(&Call::Ping, &meta)).unwrap_or_default();
        if let (Some(own), Some(params)) = (own["_meta"].as_object(), params.as_object_mut()) {
            let said = params.entry("_meta").or_insert_with(|| json!({}));
            for (key, value) in own {
                if let Some(said) = said.as_object_mut() {
                    said.entry(key).or_insert_with(|| value.clone());
                }
            }
        }
        let subject = match method {
            "tools/call" | "prompts/get" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => None,
        };
        let asked = TestRequestHead { id: link.next_id(), method, subject, headers: &[] };
        link.send(&self.setup, &asked, params.to_string().as_bytes(), |_| {}).await
    }

    /// Tells the server something that wants no answer. Params are an object, or null.
    ///
    /// # Panics
    /// If the server is gone.
    pub async fn notify(&self, method: &str, params: Value) {
        let params = Some(params).filter(|params| !params.is_null());
        match self.connection().await {
            Ok(link) => link.notify(&self.setup, method, params.as_ref()).await,
            Err(reply) => panic!("the greeting was refused: {:?}", reply.outcome),
        }
    }

    /// Sends an HTTP request as it is, to the same service, and gives what comes back: status, headers and
    /// body, or a stream. Only the client's extensions are added. [`http_request`](super::http_request)
    /// makes one.
    ///
    /// # Panics
    /// If the client does not speak HTTP.
    #[cfg(feature = "http")]
    pub fn send(&self, mut request: http::Request<String>) -> super::HttpExchange {
        let ConnectTarget::Http(door) = &self.setup.target else {
            panic!("there are no requests to send without HTTP; `over_http()` first")
        };
        let own = std::mem::replace(request.extensions_mut(), self.setup.extensions.clone());
        request.extensions_mut().extend(own);
        (door.send)(request)
    }
}

/// What the server says by itself.
impl TestClient {
    /// Everything the server said by itself so far: progress, log messages, changes. It is told once.
    pub fn notifications(&self) -> Vec<ReceivedNotification> {
        self.connection.get().map(|link| link.receiver.take_notifications()).unwrap_or_default()
    }

    /// The first notice of this method that was not looked at yet, or the next to come. `notifications/` may
    /// be left out: `progress`, `message`, `tools/list_changed`.
    ///
    /// # Panics
    /// If none comes in time.
    pub async fn notification(&self, method: &str) -> ReceivedNotification {
        let Some(link) = self.connection.get() else { panic!("nothing is heard before the first request") };
        match link.receiver.wait_notification(self.setup.timeout, |notice| notice.is_method(method)).await {
            Some(notice) => notice,
            None => {
                link.receiver.resume_panic();
                let hint = if method.ends_with("_changed") || method.ends_with("updated") {
                    "; changes are heard after `listen()` or `subscribe()`"
                } else {
                    ""
                };
                panic!(
                    "no `{method}` came in {:?}, but {}{hint}",
                    self.setup.timeout,
                    link.receiver.buffered_methods()
                )
            }
        }
    }

    /// Wants to hear when the lists of tools, resources and prompts change, and returns when the server
    /// knows it.
    ///
    /// # Panics
    /// If the server does not want it.
    pub async fn listen(&self) {
        self.subscribe_filter(SubscriptionFilter {
            tools: true,
            prompts: true,
            resources: true,
            ..SubscriptionFilter::default()
        })
        .await;
    }

    /// Wants to hear when this resource changes, and returns when the server knows it.
    ///
    /// # Panics
    /// If the server does not want it.
    pub async fn subscribe(&self, uri: impl Into<String>) {
        self.subscribe_filter(SubscriptionFilter { uris: vec![uri.into()], ..SubscriptionFilter::default() })
            .await;
    }

    async fn subscribe_filter(&self, filter: SubscriptionFilter) {
        let link = match self.connection().await {
            Ok(link) => link,
            Err(reply) => panic!("the greeting was refused: {:?}", reply.outcome),
        };
        match self.setup.version.behavior().change_delivery {
            ChangeDelivery::Session => {
                #[cfg(feature = "http")]
                self.open_stream(&link).await;
                // Without a URI: whatever is answered now, the greeting was read before it.
                let call = filter.uris.into_iter().next().map_or(Call::Ping, |uri| Call::Subscribe { uri });
                let answer = TestCall::new(self, call, |_| Some(())).await;
                answer.outcome.unwrap_or_else(|refusal| panic!("the subscription was refused: {refusal}"));
            }
            ChangeDelivery::Listen => self.send_listen(&link, filter).await,
        }
    }

    async fn send_listen(&self, link: &Arc<TestConnection>, filter: SubscriptionFilter) {
        let (call, id) = (Call::Listen(filter), link.next_id());
        let asked = TestRequestHead { id, method: call.method(), subject: None, headers: &[] };
        let params = link.params(&call, &Meta::default());
        let tag = json!(id);
        let is_it = |notice: &ReceivedNotification| {
            notice.is_method("subscriptions/acknowledged")
                && notice.params["_meta"][meta_key::SUBSCRIPTION_ID] == tag
        };
        let acknowledged = link.receiver.wait_notification(self.setup.timeout, is_it);
        #[cfg(feature = "http")]
        if let Some(web) = link.http_client() {
            let mut exchange = web.post_request(&self.setup, &asked, &params);
            let status = exchange.head().await.map(|head| head.status.as_u16());
            assert_eq!(status, Ok(200), "listening was refused: {:?}", exchange.body().await);
            self.spawn_receiver(link, exchange);
            assert!(acknowledged.await.is_some(), "listening was not acknowledged");
            return;
        }
        let refused = link.expect_response(id);
        link.write(asked.encode(&params)).await;
        tokio::select! {
            biased;
            heard = acknowledged => assert!(heard.is_some(), "listening was not acknowledged"),
            reply = refused.wait(asked.method) => panic!("listening was refused: {:?}", reply.outcome),
        }
    }

    /// Opens the standing stream of a session.
    #[cfg(feature = "http")]
    async fn open_stream(&self, link: &Arc<TestConnection>) {
        let Some(web) = link.http_client() else { return };
        if !web.claim_get_stream() {
            return;
        }
        let mut exchange = web.get(&self.setup, None);
        let status = exchange.head().await.map(|head| head.status.as_u16());
        assert_eq!(status, Ok(200), "listening was refused: {:?}", exchange.body().await);
        self.spawn_receiver(link, exchange);
    }

    #[cfg(feature = "http")]
    fn spawn_receiver(&self, link: &Arc<TestConnection>, exchange: super::exchange::HttpExchange) {
        let (weak, setup) = (Arc::downgrade(link), self.setup.clone());
        link.own_task(tokio::spawn(super::http_client::receive_stream(weak, setup, exchange)));
    }

    pub(super) async fn connection(&self) -> Result<Arc<TestConnection>, Box<RawReply>> {
        self.connection.get_or_try_init(|| TestConnection::open(&self.setup)).await.cloned()
    }

    /// Whether leaving takes a request back.
    pub(super) fn disconnect_cancels(&self) -> bool {
        match &self.setup.target {
            ConnectTarget::Stdio(_) => false,
            #[cfg(feature = "http")]
            ConnectTarget::Http(_) => self.setup.version.behavior().disconnect_cancels,
        }
    }
}
