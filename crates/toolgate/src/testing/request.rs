//! A request of a test before it is made, and while it is under way.

use std::panic::resume_unwind;

use serde_json::{Value, json};
use tokio::sync::watch;
use toolgate_wire::model::{Call, LogLevel, Outcome, Retry};
use toolgate_wire::{Meta, ProgressToken, RawJson, codec};

use super::client::TestClient;
use super::connection::{RawReply, TestConnection};
use super::response::TestResponse;
use crate::request::BoxFuture;
use crate::util::spawn::AbortOnDrop;

/// More questions in one call than a server asks that is right in its mind.
const MAX_INPUT_ROUNDS: usize = 64;

/// A request that is about to be made: `.await` makes it.
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
/// assert_eq!(client.notice("progress").await.params()["message"], "half");
/// # Ok(())
/// # }
/// ```
#[must_use = "a request is made when it is awaited"]
#[derive(Debug)]
pub struct TestCall<T> {
    pub(super) client: TestClient,
    pub(super) call: Call,
    pub(super) meta: Meta,
    pub(super) extra_meta: serde_json::Map<String, Value>,
    pub(super) headers: Vec<(String, String)>,
    /// What the answer is made of.
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

    /// Wants to hear how far it is; the notices carry this token.
    pub fn progress(mut self, token: &str) -> TestCall<T> {
        self.meta.progress_token = Some(ProgressToken::from(token));
        self
    }

    /// Wants log messages from this level on. Older revisions choose for the whole session instead:
    /// [`TestClient::log`].
    pub fn log(mut self, level: LogLevel) -> TestCall<T> {
        self.meta.log_level = Some(level);
        self
    }

    /// Says something more in `_meta`.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> TestCall<T> {
        self.extra_meta.insert(key.into(), value.into());
        self
    }

    /// Sends a header with this request; over HTTP only. It stands for what the client would have said
    /// under this name; `-` says nothing.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> TestCall<T> {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// For a completion: what another argument is already.
    pub fn other_argument(mut self, name: impl Into<String>, value: impl Into<String>) -> TestCall<T> {
        if let Call::Complete(completing) = &mut self.call {
            completing.context.insert(name.into(), value.into());
        }
        self
    }

    /// Makes it and does not wait: to be cancelled, or awaited later. Needs a tokio runtime.
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
        let link = match self.client.connection().await {
            Ok(link) => link,
            Err(reply) => return error_response(*reply),
        };
        for _ in 0..MAX_INPUT_ROUNDS {
            let reply = self.send(&link, sent.as_ref()).await;
            #[cfg(feature = "http")]
            let reply = match self.header_params(&link, &reply).await {
                Some(headers) => {
                    self.headers.extend(headers);
                    self.send(&link, sent.as_ref()).await
                }
                None => reply,
            };
            let Ok(result) = &reply.outcome else { return error_response(reply) };
            let outcome = match codec::read_outcome(link.version, &self.call, result) {
                Ok(outcome) => outcome,
                Err(fault) => {
                    panic!("the answer is not of revision {}: {fault}\n{}", link.version, reply.message)
                }
            };
            let Outcome::InputRequired(required) = outcome else {
                let Some(given) = (self.parse_outcome)(outcome) else {
                    panic!("the answer to `{}` is of another kind: {}", self.call.method(), reply.message)
                };
                return TestResponse {
                    outcome: Ok(given),
                    message: reply.message,
                    http_response: reply.http_response,
                };
            };
            let answers = &self.client.setup.callbacks;
            let responses = required.input_requests.iter();
            let responses = responses.map(|(key, ask)| (key.clone(), answers.respond(link.version, ask)));
            let brought =
                Retry { input_responses: responses.collect(), request_state: required.request_state };
            match &mut self.call {
                Call::CallTool { retry, .. }
                | Call::ReadResource { retry, .. }
                | Call::GetPrompt { retry, .. } => {
                    *retry = brought;
                }
                other => panic!("`{}` was answered with a question", other.method()),
            }
        }
        panic!("`{}` asked {MAX_INPUT_ROUNDS} times and has not ended", self.call.method())
    }

    async fn send(&self, link: &TestConnection, sent: Option<&watch::Sender<Option<i64>>>) -> RawReply {
        let told = |id| {
            if let Some(sent) = sent {
                sent.send_replace(Some(id));
            }
        };
        let setup = &self.client.setup;
        link.call(setup, link.next_id(), &self.call, &self.meta, &self.headers, told).await
    }

    /// A tool may want arguments repeated in headers. Which, its schema tells: it is looked up when a call
    /// was refused for the lack of them.
    #[cfg(feature = "http")]
    async fn header_params(&self, link: &TestConnection, reply: &RawReply) -> Option<Vec<(String, String)>> {
        let (Err(refusal), Call::CallTool { name, arguments, .. }) = (&reply.outcome, &self.call) else {
            return None;
        };
        let fault = toolgate_wire::ProtocolError::new(toolgate_wire::ProtocolErrorKind::HeaderMismatch, "");
        let by_test = self.headers.iter().any(|(name, _)| name.to_ascii_lowercase().starts_with("mcp-"));
        if !link.version.behavior().mirror_headers || refusal.code != fault.code(link.version) || by_test {
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
    let RawReply { outcome, message, http_response: fetched } = reply;
    match outcome {
        Err(refusal) => TestResponse { outcome: Err(refusal), message, http_response: fetched },
        Ok(_) => unreachable!("only refusals are refused"),
    }
}

impl<T: Send + 'static> IntoFuture for TestCall<T> {
    type Output = TestResponse<T>;
    type IntoFuture = BoxFuture<'static, TestResponse<T>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run(None))
    }
}

/// A request that is under way. Dropping it stops waiting for the answer.
#[derive(Debug)]
pub struct RunningRequest<T> {
    client: TestClient,
    /// The id it was sent with last.
    sent_id: watch::Receiver<Option<i64>>,
    task: AbortOnDrop<TestResponse<T>>,
}

impl<T> RunningRequest<T> {
    /// Takes the request back, as clients of this revision do: by a notification, or by leaving.
    ///
    /// # Panics
    /// If it has been answered before.
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
            Ok(answer) if is_late => panic!("there is nothing to cancel; the answer was {}", answer.message),
            // It was ended just now, or ended by itself in this moment.
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
                Ok(answer) => answer,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    Err(_) => panic!("the runtime ended before the request did"),
                },
            }
        })
    }
}
