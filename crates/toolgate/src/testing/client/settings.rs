//! Constructors of the test client, and settings that are made before it connects.

use std::sync::Arc;
use std::time::Duration;

use toolgate_wire::model::{Implementation, LogLevel, SamplingRequest};

use super::TestClient;
use crate::testing::callbacks::{
    ClientCallbacks, IntoElicitOutcome, IntoSamplingResult, ReceivedElicitation,
};
use crate::testing::connection::{ConnectTarget, ConnectionSetup};
#[cfg(feature = "http")]
use crate::testing::exchange::HttpExchange;
#[cfg(feature = "http")]
use crate::testing::http_client::HttpTarget;
use crate::testing::{IntoServer, RECEIVE_TIMEOUT, TestVersion};

/// Constructors and settings.
impl TestClient {
    /// Creates a client of this protocol version that connects over in-memory pipes with stdio framing.
    ///
    /// # Panics
    /// If the server cannot be built.
    #[track_caller]
    pub fn new(server: impl IntoServer, version: TestVersion) -> TestClient {
        TestClient::with_target(ConnectTarget::Stdio(server.into_server()), version)
    }

    /// Creates a client of the newest protocol version and connects it.
    ///
    /// # Panics
    /// If the server cannot be built, or rejects the client.
    pub async fn connect(server: impl IntoServer) -> TestClient {
        let client = TestClient::new(server, TestVersion::newest());
        client.server_details().await;
        client
    }

    /// Creates a client of the newest protocol version over in-memory HTTP.
    ///
    /// # Panics
    /// If the server cannot be built.
    #[cfg(feature = "http")]
    #[track_caller]
    pub fn http(server: impl IntoServer) -> TestClient {
        TestClient::new(server, TestVersion::newest()).over_http()
    }

    /// Creates a client of this protocol version for any HTTP service, in memory: a router with several servers, a
    /// server behind layers. The path is `/mcp`; [`TestClient::at`] sets another.
    ///
    /// ```
    /// # use toolgate::testing::{TestClient, TestVersion};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = toolgate::Server::new("demo", "1.0.0").tool("hi", || async { "Hello!" }).build()?;
    /// let app = axum::Router::new().nest_service("/tools", server.into_service());
    /// let client = TestClient::service(app, TestVersion::newest()).at("/tools");
    /// assert_eq!(client.call("hi", serde_json::json!({})).await.text(), "Hello!");
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "http")]
    pub fn service<S, B>(service: S, version: TestVersion) -> TestClient
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
        let send = move |request| HttpExchange::start(service.clone(), request);
        let target = HttpTarget { send: Arc::new(send), path: "/mcp".into(), server: None };
        TestClient::with_target(ConnectTarget::Http(target), version)
    }

    fn with_target(target: ConnectTarget, version: TestVersion) -> TestClient {
        let setup = ConnectionSetup {
            version: version.0,
            target,
            callbacks: ClientCallbacks::default(),
            info: Implementation::new("test", "0"),
            log_level: None,
            timeout: RECEIVE_TIMEOUT,
            headers: Vec::new(),
            extensions: http::Extensions::new(),
        };
        TestClient { setup, connection: Arc::default() }
    }

    /// Switches the client to in-memory HTTP, with headers, status codes and principals.
    ///
    /// # Panics
    /// If the client has already connected.
    #[cfg(feature = "http")]
    #[must_use]
    #[track_caller]
    pub fn over_http(self) -> TestClient {
        self.assert_not_connected("over_http");
        let ConnectTarget::Stdio(server) = &self.setup.target else { return self };
        let mut client = TestClient::service(server.clone().into_service(), self.protocol_version());
        if let ConnectTarget::Http(target) = &mut client.setup.target {
            target.server = Some(server.clone());
        }
        TestClient {
            setup: ConnectionSetup { target: client.setup.target, ..self.setup },
            connection: Arc::default(),
        }
    }

    /// Sets the path of the endpoint instead of `/mcp`.
    ///
    /// # Panics
    /// If the client has already connected, or does not use HTTP.
    #[cfg(feature = "http")]
    #[must_use]
    #[track_caller]
    pub fn at(mut self, path: impl Into<String>) -> TestClient {
        self.assert_not_connected("at");
        match &mut self.setup.target {
            ConnectTarget::Http(target) => target.path = path.into(),
            ConnectTarget::Stdio(_) => panic!("a path needs HTTP; call `over_http()` first"),
        }
        self
    }

    /// Sets the callback for elicitation requests: JSON fills in the form, [`ElicitOutcome`](crate::ElicitOutcome) can
    /// also decline.
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
    /// If the client has already connected: its capabilities are then fixed.
    #[must_use]
    #[track_caller]
    pub fn on_elicit<R: IntoElicitOutcome>(
        mut self,
        callback: impl Fn(&ReceivedElicitation) -> R + Send + Sync + 'static,
    ) -> TestClient {
        self.assert_not_connected("on_elicit");
        self.setup.callbacks.elicit = Some(Arc::new(move |form| callback(form).into_elicit_outcome()));
        self
    }

    /// Sets the callback for sampling requests. It returns a text, or a full
    /// [`SamplingResult`](crate::model::SamplingResult).
    ///
    /// # Panics
    /// If the client has already connected: its capabilities are then fixed.
    #[must_use]
    #[track_caller]
    pub fn on_sample<R: IntoSamplingResult>(
        mut self,
        callback: impl Fn(&SamplingRequest) -> R + Send + Sync + 'static,
    ) -> TestClient {
        self.assert_not_connected("on_sample");
        self.setup.callbacks.sample = Some(Arc::new(move |sample| callback(sample).into_sampling_result()));
        self
    }

    /// Sets the callback for `roots/list`. It returns the URIs of the roots.
    ///
    /// # Panics
    /// If the client has already connected: its capabilities are then fixed.
    #[must_use]
    #[track_caller]
    pub fn on_roots<I>(mut self, callback: impl Fn() -> I + Send + Sync + 'static) -> TestClient
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.assert_not_connected("on_roots");
        self.setup.callbacks.roots =
            Some(Arc::new(move |()| callback().into_iter().map(Into::into).collect()));
        self
    }

    /// Sets the client's name and version. Default: `test`, version `0`.
    ///
    /// # Panics
    /// If the client has already connected.
    #[must_use]
    #[track_caller]
    pub fn client_info(mut self, name: impl Into<String>, version: impl Into<String>) -> TestClient {
        self.assert_not_connected("client_info");
        self.setup.info = Implementation::new(name, version);
        self
    }

    /// Requests log messages of this level and above with every request.
    ///
    /// # Panics
    /// If the client has already connected.
    #[must_use]
    #[track_caller]
    pub fn log(mut self, level: LogLevel) -> TestClient {
        self.assert_not_connected("log");
        self.setup.log_level = Some(level);
        self
    }

    /// Sets how long to wait for a message. Default: ten seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> TestClient {
        self.setup.timeout = timeout;
        self
    }

    /// Sends this header with every later request; over HTTP only. It replaces the client's own header of this name; the
    /// value `-` removes the header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> TestClient {
        self.setup.headers.push((name.into(), value.into()));
        self
    }

    /// Sends every later request as this principal, as if a layer had authenticated it; over HTTP only.
    ///
    /// A clone shares the session: `client.clone().with_principal(eve)` sends Eve's requests in Ada's session.
    #[must_use]
    pub fn with_principal(self, principal: crate::request::Principal) -> TestClient {
        self.with_extension(principal)
    }

    /// Adds this value to the extensions of every later request; over HTTP only.
    #[must_use]
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self, extension: T) -> TestClient {
        self.setup.extensions.insert(extension);
        self
    }

    #[track_caller]
    fn assert_not_connected(&self, method: &str) {
        assert!(self.connection.get().is_none(), "`{method}` must be called before the client connects");
    }
}
