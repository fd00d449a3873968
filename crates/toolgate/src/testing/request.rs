//! Requests of a test client: [`TestCall`] before it is sent, [`RunningRequest`] while it is in flight.

use std::panic::resume_unwind;

use serde_json::{Value, json};
use tokio::sync::watch;
use toolgate_wire::model::{Call, LogLevel, Outcome, Retry};
use toolgate_wire::{Meta, ProgressToken, RawJson, codec};

use super::client::TestClient;
use super::connection::{RawReply, TestConnection};
use super::output_schema::check_output;
use super::response::TestResponse;
use crate::request::BoxFuture;
use crate::util::spawn::AbortOnDrop;

/// Upper bound of input rounds in one call, so that a server that never finishes fails the test.
const MAX_INPUT_ROUNDS: usize = 64;

/// A request that has not been sent yet: `.await` sends it and returns the response.
///
/// ```
/// # use serde_json::json;
/// # use toolgate::{Context, Server};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let count = |cx: Context| async move {
///     cx.progress_of(1.0, 2.0, "half").await;
///     "done"
/// };
/// let client = Server::new("demo", "1.0.0").tool("count", count).build()?.test();
/// assert_eq!(client.call("count", json!({})).progress("p").await.text(), "done");
/// assert_eq!(client.notification("progress").await.params()["message"], "half");
/// # Ok(())
/// # }
/// ```
#[must_use = "a request is sent when it is awaited"]
#[derive(Debug)]
pub struct TestCall<T> {
    pub(super) client: TestClient,
    pub(super) call: Call,
    pub(super) meta: Meta,
    pub(super) extra_meta: serde_json::Map<String, Value>,
    pub(super) headers: Vec<(String, String)>,
    /// Extracts the expected result; `None` if the outcome is of another kind.
    pub(super) parse_outcome: fn(Outcome) -> Option<T>,
}

impl<T: Send + 'static> TestCall<T> {
    pub(super) fn new(
        client: &TestClient,
        call: Call,
        parse_outcome: fn(Outcome) -> Option<T>,
    ) -> TestCall<T> {
        let meta = Meta { log_level: client.setup.log_level, ..Meta::default() };
        let (client, extra_meta) = (client.clone(), serde_json::Map::new());
        TestCall { client, call, meta, extra_meta, headers: Vec::new(), parse_outcome }
    }

    /// Requests progress notifications with this token.
    pub fn progress(mut self, token: &str) -> TestCall<T> {
        self.meta.progress_token = Some(ProgressToken::from(token));
        self
    }

    /// Requests log messages of this level and above. Older protocol versions set the level for the whole session:
    /// [`TestClient::log`].
    pub fn log(mut self, level: LogLevel) -> TestCall<T> {
        self.meta.log_level = Some(level);
        self
    }

    /// Adds an entry to `_meta`.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> TestCall<T> {
        self.extra_meta.insert(key.into(), value.into());
        self
    }

    /// Sends a header with this request; over HTTP only. It replaces the client's own header of this name; the value `-`
    /// removes the header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> TestCall<T> {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds the value of another argument to the context of a completion request.
    pub fn other_argument(mut self, name: impl Into<String>, value: impl Into<String>) -> TestCall<T> {
        if let Call::Complete(completing) = &mut self.call {
            completing.context.insert(name.into(), value.into());
        }
        self
    }

    /// Sends the request without waiting, so that it can be cancelled or awaited later. Needs a tokio runtime.
    pub fn start(self) -> RunningRequest<T> {
        let (sender, sent) = watch::channel(None);
        let client = self.client.clone();
        let task = tokio::spawn(self.run(Some(sender)));
        RunningRequest { client, sent_id: sent, task: AbortOnDrop::new(task) }
    }

    async fn run(mut self, sent: Option<watch::Sender<Option<i64>>>) -> TestResponse<T> {
        if !self.extra_meta.is_empty() {
            self.meta.raw = Some(RawJson::from(Value::Object(std::mem::take(&mut self.extra_meta))));
        }
        let connection = match self.client.connection().await {
            Ok(connection) => connection,
            Err(reply) => return error_response(*reply),
        };
        for _ in 0..MAX_INPUT_ROUNDS {
            let reply = self.send(&connection, sent.as_ref()).await;
            #[cfg(feature = "http")]
            let reply = match self.header_params(&connection, &reply).await {
                Some(headers) => {
                    self.headers.extend(headers);
                    self.send(&connection, sent.as_ref()).await
                }
                None => reply,
            };
            let Ok(result) = &reply.outcome else { return error_response(reply) };
            let outcome = match codec::read_outcome(connection.version, &self.call, result) {
                Ok(outcome) => outcome,
                Err(error) => {
                    panic!("the response does not follow {}: {error}\n{}", connection.version, reply.message)
                }
            };
            if let (Call::CallTool { name, .. }, Outcome::Tool(output)) = (&self.call, &outcome) {
                check_output(&self.client, name, output).await;
            }
            let Outcome::InputRequired(required) = outcome else {
                let Some(result) = (self.parse_outcome)(outcome) else {
                    panic!("the response to `{}` is of another kind: {}", self.call.method(), reply.message)
                };
                return TestResponse {
                    outcome: Ok(result),
                    message: reply.message,
                    http_response: reply.http_response,
                };
            };
            let callbacks = &self.client.setup.callbacks;
            let responses = required.input_requests.iter();
            let responses =
                responses.map(|(key, request)| (key.clone(), callbacks.respond(connection.version, request)));
            let retry_with =
                Retry { input_responses: responses.collect(), request_state: required.request_state };
            match &mut self.call {
                Call::CallTool { retry, .. }
                | Call::ReadResource { retry, .. }
                | Call::GetPrompt { retry, .. } => {
                    *retry = retry_with;
                }
                other => panic!("`{}` cannot be answered with input requests", other.method()),
            }
        }
        panic!("`{}` requested input {MAX_INPUT_ROUNDS} times without a result", self.call.method())
    }

    async fn send(&self, connection: &TestConnection, sent: Option<&watch::Sender<Option<i64>>>) -> RawReply {
        let on_sent = |id| {
            if let Some(sent) = sent {
                sent.send_replace(Some(id));
            }
        };
        let setup = &self.client.setup;
        connection.call(setup, connection.next_id(), &self.call, &self.meta, &self.headers, on_sent).await
    }

    /// Returns the header parameters of a tool whose schema asks for arguments to be repeated in headers.
    ///
    /// The schema is only looked up after a call was rejected for missing headers.
    #[cfg(feature = "http")]
    async fn header_params(
        &self,
        connection: &TestConnection,
        reply: &RawReply,
    ) -> Option<Vec<(String, String)>> {
        let (Err(error), Call::CallTool { name, arguments, .. }) = (&reply.outcome, &self.call) else {
            return None;
        };
        let mismatch =
            toolgate_wire::ProtocolError::new(toolgate_wire::ProtocolErrorKind::HeaderMismatch, "");
        let set_by_test = self.headers.iter().any(|(name, _)| name.to_ascii_lowercase().starts_with("mcp-"));
        if !connection.version.behavior().mirror_headers
            || error.code != mismatch.code(connection.version)
            || set_by_test
        {
            return None;
        }
        let tools = self.client.tools().await;
        let tool = tools.iter().find(|tool| tool.name == *name)?;
        let arguments = arguments.as_ref().map_or_else(|| json!({}), RawJson::to_value);
        let headers = super::http_client::param_headers(&tool.input_schema.to_value(), &arguments);
        (!headers.is_empty()).then_some(headers)
    }
}

fn error_response<T>(reply: RawReply) -> TestResponse<T> {
    let RawReply { outcome, message, http_response } = reply;
    match outcome {
        Err(error) => TestResponse { outcome: Err(error), message, http_response },
        Ok(_) => unreachable!("called for errors only"),
    }
}

impl<T: Send + 'static> IntoFuture for TestCall<T> {
    type Output = TestResponse<T>;
    type IntoFuture = BoxFuture<'static, TestResponse<T>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run(None))
    }
}

/// A request in flight. Dropping it stops waiting for the response.
#[derive(Debug)]
pub struct RunningRequest<T> {
    client: TestClient,
    /// The id of the last request that was sent for this call.
    sent_id: watch::Receiver<Option<i64>>,
    task: AbortOnDrop<TestResponse<T>>,
}

impl<T> RunningRequest<T> {
    /// Cancels the request as clients of this protocol version do: by a notification, or by disconnecting.
    ///
    /// # Panics
    /// If the response has already arrived.
    pub async fn cancel(mut self) {
        let id = match self.sent_id.wait_for(Option::is_some).await {
            Ok(id) => *id,
            Err(_) => None,
        };
        let is_late = self.task.is_finished();
        if !is_late {
            if let (false, Some(id)) = (self.client.disconnect_cancels(), id) {
                self.client.notify("notifications/cancelled", json!({ "requestId": id })).await;
            }
            self.task.abort();
        }
        match self.task.await {
            Ok(response) if is_late => {
                panic!("the request had already completed; its response was {}", response.message)
            }
            // The task completed between the check and the abort.
            Ok(_) => {}
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    resume_unwind(panic);
                }
            }
        }
    }
}

impl<T: Send + 'static> IntoFuture for RunningRequest<T> {
    type Output = TestResponse<T>;
    type IntoFuture = BoxFuture<'static, TestResponse<T>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.task.await {
                Ok(response) => response,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    Err(_) => panic!("the runtime shut down before the response arrived"),
                },
            }
        })
    }
}
