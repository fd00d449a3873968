//! A test's client over HTTP: which headers a revision wants, and where its answers are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use toolgate_wire::{Frame, Message, ProtocolVersion, RequestId, Resumability, read_message};

use super::connection::{
    ClientReceiver, ConnectionSetup, RESPONSE_LIMITS, RawReply, TestConnection, TestRequestHead,
};
use super::exchange::{HttpExchange, ReceivedEvent, build_request};
use super::response::{ReceivedResponse, TestError};

type SendFn = dyn Fn(http::Request<String>) -> HttpExchange + Send + Sync;

/// A service, and the path it is called at.
#[derive(Clone)]
pub(super) struct HttpTarget {
    pub(super) send: Arc<SendFn>,
    pub(super) path: String,
}

impl std::fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpTarget").field("path", &self.path).finish_non_exhaustive()
    }
}

pub(super) struct TestHttpClient {
    target: HttpTarget,
    version: ProtocolVersion,
    /// Given by the server with its welcome.
    session_id: OnceLock<String>,
    /// The standing stream is open.
    has_get_stream: AtomicBool,
}

impl TestHttpClient {
    pub(super) fn new(target: HttpTarget, version: ProtocolVersion) -> TestHttpClient {
        TestHttpClient {
            target,
            version,
            session_id: OnceLock::new(),
            has_get_stream: AtomicBool::new(false),
        }
    }

    /// Sends a request as it is.
    pub(super) fn send_raw(&self, request: http::Request<String>) -> HttpExchange {
        (self.target.send)(request)
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn request(
        &self,
        setup: &ConnectionSetup,
        ear: &ClientReceiver,
        asked: &TestRequestHead<'_>,
        params: &[u8],
        sent: impl FnOnce(i64),
    ) -> RawReply {
        let mut exchange = self.post_request(setup, asked, params);
        sent(asked.id);
        let mut last = None;
        loop {
            match self.read_response(setup, ear, asked, &mut exchange, &mut last).await {
                StreamOutcome::Reply(reply) => return reply,
                // The server let the connection go: the rest is fetched from where it ended.
                StreamOutcome::Closed { retry, http_response: fetched } => match &last {
                    Some(last) if self.version.behavior().resumability != Resumability::Never => {
                        tokio::time::sleep(Duration::from_millis(retry)).await;
                        exchange = self.get(setup, Some(last));
                    }
                    _ => {
                        let status = Some(fetched.status);
                        let refusal = TestError::without_code("the stream ended without an answer", status);
                        return *RawReply::from_error(refusal, Some(fetched));
                    }
                },
            }
        }
    }

    /// Reads one answer to its end, or until the message that is the answer.
    async fn read_response(
        &self,
        setup: &ConnectionSetup,
        ear: &ClientReceiver,
        asked: &TestRequestHead<'_>,
        exchange: &mut HttpExchange,
        last: &mut Option<String>,
    ) -> StreamOutcome {
        let mut fetched = match exchange.head_timeout(setup.timeout).await {
            Ok(head) => ReceivedResponse {
                status: head.status.as_u16(),
                headers: head.headers.clone(),
                body: String::new(),
            },
            Err(why) => ear.panic_with(&format!("`{}`: {why}", asked.method)),
        };
        if let Some(id) = fetched.header("mcp-session-id") {
            self.session_id.get_or_init(|| id.to_owned());
        }
        if !fetched.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            fetched.body = exchange.body().await.unwrap_or_else(|why| ear.panic_with(&why));
            return StreamOutcome::Reply(parse_body(fetched));
        }
        let mut retry = 0;
        loop {
            let event = exchange.event_within(setup.timeout).await.unwrap_or_else(|why| ear.panic_with(&why));
            match event {
                Some(ReceivedEvent::Message(message)) => {
                    *last = message.id.or(last.take());
                    retry = message.retry.and_then(|retry| retry.parse().ok()).unwrap_or(retry);
                    if message.data.is_empty() {
                        continue;
                    }
                    if !fetched.body.is_empty() {
                        fetched.body.push('\n');
                    }
                    fetched.body.push_str(&message.data);
                    let text = Bytes::from(message.data);
                    if let Some(outcome) = parse_response(asked.id, &text) {
                        return StreamOutcome::Reply(RawReply::from_outcome(outcome, &text, Some(fetched)));
                    }
                    if let Some(answer) = ear.receive(&text) {
                        self.post(setup, answer.into()).await;
                    }
                    ear.resume_panic();
                }
                Some(ReceivedEvent::Retry(after)) => retry = after.parse().unwrap_or(retry),
                Some(ReceivedEvent::End) => return StreamOutcome::Closed { retry, http_response: fetched },
                Some(ReceivedEvent::Comment) => {}
                None => {
                    ear.panic_with(&format!("`{}` was not answered in {:?}", asked.method, setup.timeout))
                }
            }
        }
    }

    /// Sends what wants no answer: a notification, or the answer to a question.
    pub(super) async fn post(&self, setup: &ConnectionSetup, message: Vec<u8>) {
        let body = String::from_utf8_lossy(&message).into_owned();
        let mut exchange = self.send(setup, "POST", &[], &self.session_headers(), body);
        if let Err(why) = exchange.head_timeout(setup.timeout).await {
            panic!("a notification was not taken: {why}");
        }
    }

    /// Opens the session's standing stream, or takes up another where it ended.
    pub(super) fn get(&self, setup: &ConnectionSetup, last: Option<&String>) -> HttpExchange {
        let mut headers = self.session_headers();
        headers.extend(last.map(|last| ("last-event-id".to_owned(), last.clone())));
        self.send(setup, "GET", &[], &headers, String::new())
    }

    /// What the test says for one request counts first, then what it says for all, then the protocol.
    fn send(
        &self,
        setup: &ConnectionSetup,
        method: &str,
        own: &[(String, String)],
        usual: &[(String, String)],
        body: String,
    ) -> HttpExchange {
        let mut all: Vec<(String, String)> = own.to_vec();
        for more in [setup.headers.as_slice(), usual] {
            let is_new = |name: &str| !all.iter().any(|(said, _)| said.eq_ignore_ascii_case(name));
            let new: Vec<_> = more.iter().filter(|(name, _)| is_new(name)).cloned().collect();
            all.extend(new);
        }
        match build_request(method, &self.target.path, all, body) {
            Ok(mut request) => {
                *request.extensions_mut() = setup.extensions.clone();
                self.send_raw(request)
            }
            Err(error) => panic!("cannot {method} {}: {error}", self.target.path),
        }
    }

    fn session_headers(&self) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        if let Some(session) = self.session_id.get() {
            headers.push(("mcp-session-id".to_owned(), session.clone()));
        }
        if self.version.behavior().version_header {
            headers.push(("mcp-protocol-version".to_owned(), self.version.as_str().to_owned()));
        }
        headers
    }

    /// What a request repeats in headers.
    pub(super) fn request_headers(&self, asked: &TestRequestHead<'_>) -> Vec<(String, String)> {
        // A greeting has no session yet, and names its edition in the body.
        if self.version.has_handshake() && asked.method == "initialize" {
            return Vec::new();
        }
        let mut headers = self.session_headers();
        if self.version.behavior().mirror_headers {
            headers.push(("mcp-method".to_owned(), asked.method.to_owned()));
            headers
                .extend(asked.subject.map(|subject| ("mcp-name".to_owned(), encode_header_value(subject))));
        }
        headers
    }

    /// Sends one request whose answer is a stream to be listened to.
    pub(super) fn post_request(
        &self,
        setup: &ConnectionSetup,
        asked: &TestRequestHead<'_>,
        params: &[u8],
    ) -> HttpExchange {
        let body = String::from_utf8_lossy(&asked.encode(params)).into_owned();
        self.send(setup, "POST", asked.headers, &self.request_headers(asked), body)
    }

    /// Whether the standing stream is to be opened: true once.
    pub(super) fn claim_get_stream(&self) -> bool {
        !self.has_get_stream.swap(true, Ordering::Relaxed)
    }
}

/// Hears a stream to its end, or to that of the link.
pub(super) async fn receive_stream(
    link: Weak<TestConnection>,
    setup: ConnectionSetup,
    mut exchange: HttpExchange,
) {
    while let Ok(Some(event)) = exchange.event_within(Duration::from_secs(3600)).await {
        let message = match event {
            ReceivedEvent::Message(message) if !message.data.is_empty() => message,
            ReceivedEvent::End => return,
            _ => continue,
        };
        let Some(link) = link.upgrade() else { return };
        if let (Some(answer), Some(web)) =
            (link.receiver.receive(&Bytes::from(message.data)), link.http_client())
        {
            web.post(&setup, answer.into()).await;
        }
    }
}

enum StreamOutcome {
    Reply(RawReply),
    Closed { retry: u64, http_response: ReceivedResponse },
}

type ResponseOutcome = Result<toolgate_wire::RawJson, toolgate_wire::RemoteError>;

fn parse_response(asked: i64, text: &Bytes) -> Option<ResponseOutcome> {
    match read_message(text, &RESPONSE_LIMITS) {
        Ok(Message::Single(Frame::Response { id: RequestId::Number(id), outcome })) if id == asked => {
            Some(outcome)
        }
        _ => None,
    }
}

/// An answer that is one body, whatever is in it.
fn parse_body(fetched: ReceivedResponse) -> RawReply {
    let text = Bytes::from(fetched.body.clone());
    match read_message(&text, &RESPONSE_LIMITS) {
        Ok(Message::Single(Frame::Response { outcome, .. })) => {
            RawReply::from_outcome(outcome, &text, Some(fetched))
        }
        Ok(Message::Single(Frame::ErrorWithoutId { error })) => {
            RawReply::from_outcome(Err(error), &text, Some(fetched))
        }
        _ => {
            let refusal = TestError::without_code(fetched.body.clone(), Some(fetched.status));
            let message = serde_json::from_str(&fetched.body).unwrap_or_default();
            RawReply { message, ..*RawReply::from_error(refusal, Some(fetched)) }
        }
    }
}

/// A header value: as it is, or, if a header cannot hold it, in base64 between the protocol's markers.
fn encode_header_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && !text.starts_with("=?");
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

/// The headers that repeat the marked arguments of a call, by the tool's schema.
pub(super) fn param_headers(schema: &Value, arguments: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let Some(argument) = arguments.get(name).filter(|argument| !argument.is_null()) else { continue };
        if let Some(mark) = property.get("x-mcp-header").and_then(Value::as_str) {
            let text = argument.as_str().map_or_else(|| argument.to_string(), str::to_owned);
            found.push((format!("mcp-param-{mark}"), encode_header_value(&text)));
        }
        found.extend(param_headers(property, argument));
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::registry::decode_header_value;

    #[test]
    fn marked_arguments_are_found_however_deep() {
        let schema = json!({ "properties": {
            "region": { "x-mcp-header": "Region" },
            "deep": { "properties": { "n": { "x-mcp-header": "N" }, "flag": { "x-mcp-header": "F" } } },
            "plain": { "type": "string" },
        } });
        let arguments = json!({ "region": "north", "deep": { "n": 7, "flag": null }, "plain": "x" });
        let wanted = [("mcp-param-Region", "north"), ("mcp-param-N", "7")];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(param_headers(&schema, &arguments), wanted);
    }

    proptest! {
        /// What we put into a header is what the server takes out of it.
        #[test]
        fn every_text_goes_through_a_header(text in prop_oneof!["\\PC*", " *=?[?]?base64[?].*", "[ -~]*"]) {
            let encoded = encode_header_value(&text);
            prop_assert!(http::HeaderValue::from_str(&encoded).is_ok());
            prop_assert_eq!(decode_header_value(encoded.as_bytes()), Some(text.into()));
        }
    }
}
