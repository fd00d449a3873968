//! The HTTP transport of a test client: request headers per protocol version, and reading responses.

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

/// A service, and the path of its endpoint.
#[derive(Clone)]
pub(super) struct HttpTarget {
    pub(super) send: Arc<SendFn>,
    pub(super) path: String,
    /// The server, if the service is one.
    pub(super) server: Option<crate::server::Server>,
}

impl std::fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpTarget").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Sends the requests of one connection over HTTP.
pub(super) struct TestHttpClient {
    target: HttpTarget,
    version: ProtocolVersion,
    /// Session id from the server's response to `initialize`.
    session_id: OnceLock<String>,
    /// True once the GET stream was opened.
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

    /// Sends a request unchanged.
    pub(super) fn send_raw(&self, request: http::Request<String>) -> HttpExchange {
        (self.target.send)(request)
    }

    /// Sends one request and waits for its response, resuming the stream if the server closes it.
    pub(super) async fn request(
        &self,
        setup: &ConnectionSetup,
        receiver: &ClientReceiver,
        request: &TestRequestHead<'_>,
        params: &[u8],
        on_sent: impl FnOnce(i64),
    ) -> RawReply {
        let mut exchange = self.post_request(setup, request, params);
        on_sent(request.id);
        let mut last_event_id = None;
        loop {
            match self.read_response(setup, receiver, request, &mut exchange, &mut last_event_id).await {
                StreamOutcome::Reply(reply) => return reply,
                // The server closed the stream before the response: resume after the last event.
                StreamOutcome::Closed { retry, http_response } => match &last_event_id {
                    Some(last_event_id) if self.version.behavior().resumability != Resumability::Never => {
                        tokio::time::sleep(Duration::from_millis(retry)).await;
                        exchange = self.get(setup, Some(last_event_id));
                    }
                    _ => {
                        let status = Some(http_response.status);
                        let error = TestError::without_code("the stream ended without a response", status);
                        return *RawReply::from_error(error, Some(http_response));
                    }
                },
            }
        }
    }

    /// Reads one HTTP response to its end, or until the stream delivers the JSON-RPC response.
    async fn read_response(
        &self,
        setup: &ConnectionSetup,
        receiver: &ClientReceiver,
        request: &TestRequestHead<'_>,
        exchange: &mut HttpExchange,
        last_event_id: &mut Option<String>,
    ) -> StreamOutcome {
        let mut http_response = match exchange.head_timeout(setup.timeout).await {
            Ok(head) => ReceivedResponse {
                status: head.status.as_u16(),
                headers: head.headers.clone(),
                body: String::new(),
            },
            Err(error) => receiver.panic_with(&format!("`{}`: {error}", request.method)),
        };
        if let Some(id) = http_response.header("mcp-session-id") {
            self.session_id.get_or_init(|| id.to_owned());
        }
        if !http_response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            http_response.body = exchange.body().await.unwrap_or_else(|error| receiver.panic_with(&error));
            return StreamOutcome::Reply(parse_body(http_response));
        }
        let mut retry = 0;
        loop {
            let event = exchange
                .event_within(setup.timeout)
                .await
                .unwrap_or_else(|error| receiver.panic_with(&error));
            match event {
                Some(ReceivedEvent::Message(message)) => {
                    *last_event_id = message.id.or(last_event_id.take());
                    retry = message.retry.and_then(|retry| retry.parse().ok()).unwrap_or(retry);
                    if message.data.is_empty() {
                        continue;
                    }
                    if !http_response.body.is_empty() {
                        http_response.body.push('\n');
                    }
                    http_response.body.push_str(&message.data);
                    let text = Bytes::from(message.data);
                    if let Some(outcome) = parse_response(request.id, &text) {
                        return StreamOutcome::Reply(RawReply::from_outcome(
                            outcome,
                            &text,
                            Some(http_response),
                        ));
                    }
                    if let Some(response) = receiver.receive(&text) {
                        self.post(setup, response.into()).await;
                    }
                    receiver.resume_panic();
                }
                Some(ReceivedEvent::Retry(after)) => retry = after.parse().unwrap_or(retry),
                Some(ReceivedEvent::End) => return StreamOutcome::Closed { retry, http_response },
                Some(ReceivedEvent::Comment) => {}
                None => receiver
                    .panic_with(&format!("`{}` got no response within {:?}", request.method, setup.timeout)),
            }
        }
    }

    /// Posts a message that gets no response: a notification, or a response to a request of the server.
    pub(super) async fn post(&self, setup: &ConnectionSetup, message: Vec<u8>) {
        let body = String::from_utf8_lossy(&message).into_owned();
        let mut exchange = self.send(setup, "POST", &[], &self.session_headers(), body);
        if let Err(error) = exchange.head_timeout(setup.timeout).await {
            panic!("the server did not accept a notification: {error}");
        }
    }

    /// Opens the session's GET stream, or resumes a stream after `last_event_id`.
    pub(super) fn get(&self, setup: &ConnectionSetup, last_event_id: Option<&String>) -> HttpExchange {
        let mut headers = self.session_headers();
        headers.extend(last_event_id.map(|id| ("last-event-id".to_owned(), id.clone())));
        self.send(setup, "GET", &[], &headers, String::new())
    }

    /// Sends one request. Headers set for this request override headers set for the client, which override those of the
    /// protocol.
    fn send(
        &self,
        setup: &ConnectionSetup,
        method: &str,
        request_headers: &[(String, String)],
        protocol_headers: &[(String, String)],
        body: String,
    ) -> HttpExchange {
        let mut all: Vec<(String, String)> = request_headers.to_vec();
        for defaults in [setup.headers.as_slice(), protocol_headers] {
            let is_new = |name: &str| !all.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
            let new: Vec<_> = defaults.iter().filter(|(name, _)| is_new(name)).cloned().collect();
            all.extend(new);
        }
        match build_request(method, &self.target.path, all, body) {
            Ok(mut request) => {
                *request.extensions_mut() = setup.extensions.clone();
                self.send_raw(request)
            }
            Err(error) => panic!("invalid request {method} {}: {error}", self.target.path),
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

    /// Returns the protocol headers of a request.
    pub(super) fn request_headers(&self, request: &TestRequestHead<'_>) -> Vec<(String, String)> {
        // `initialize` has no session yet, and its protocol version is in the body.
        if self.version.has_handshake() && request.method == "initialize" {
            return Vec::new();
        }
        let mut headers = self.session_headers();
        if self.version.behavior().mirror_headers {
            headers.push(("mcp-method".to_owned(), request.method.to_owned()));
            headers
                .extend(request.subject.map(|subject| ("mcp-name".to_owned(), encode_header_value(subject))));
        }
        headers
    }

    /// Posts one request and returns the exchange.
    pub(super) fn post_request(
        &self,
        setup: &ConnectionSetup,
        request: &TestRequestHead<'_>,
        params: &[u8],
    ) -> HttpExchange {
        let body = String::from_utf8_lossy(&request.encode(params)).into_owned();
        self.send(setup, "POST", request.headers, &self.request_headers(request), body)
    }

    /// Returns true for the first caller, which then opens the GET stream.
    pub(super) fn claim_get_stream(&self) -> bool {
        !self.has_get_stream.swap(true, Ordering::Relaxed)
    }
}

/// Receives the messages of a stream until it ends or the connection is dropped.
pub(super) async fn receive_stream(
    connection: Weak<TestConnection>,
    setup: ConnectionSetup,
    mut exchange: HttpExchange,
) {
    while let Ok(Some(event)) = exchange.event_within(Duration::from_secs(3600)).await {
        let message = match event {
            ReceivedEvent::Message(message) if !message.data.is_empty() => message,
            ReceivedEvent::End => return,
            _ => continue,
        };
        let Some(connection) = connection.upgrade() else { return };
        if let (Some(response), Some(client)) =
            (connection.receiver.receive(&Bytes::from(message.data)), connection.http_client())
        {
            client.post(&setup, response.into()).await;
        }
    }
}

enum StreamOutcome {
    Reply(RawReply),
    Closed { retry: u64, http_response: ReceivedResponse },
}

type ResponseOutcome = Result<toolgate_wire::RawJson, toolgate_wire::RemoteError>;

fn parse_response(request_id: i64, text: &Bytes) -> Option<ResponseOutcome> {
    match read_message(text, &RESPONSE_LIMITS) {
        Ok(Message::Single(Frame::Response { id: RequestId::Number(id), outcome })) if id == request_id => {
            Some(outcome)
        }
        _ => None,
    }
}

/// Decodes a response that is not an event stream.
fn parse_body(response: ReceivedResponse) -> RawReply {
    let text = Bytes::from(response.body.clone());
    match read_message(&text, &RESPONSE_LIMITS) {
        Ok(Message::Single(Frame::Response { outcome, .. })) => {
            RawReply::from_outcome(outcome, &text, Some(response))
        }
        Ok(Message::Single(Frame::ErrorWithoutId { error })) => {
            RawReply::from_outcome(Err(error), &text, Some(response))
        }
        _ => {
            let error = TestError::without_code(response.body.clone(), Some(response.status));
            let message = serde_json::from_str(&response.body).unwrap_or_default();
            RawReply { message, ..*RawReply::from_error(error, Some(response)) }
        }
    }
}

/// Encodes a header value: unchanged, or in base64 between the protocol's markers if a header cannot hold the text.
fn encode_header_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && !text.starts_with("=?");
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

/// Returns the headers for the arguments that the tool's schema marks with `x-mcp-header`.
pub(super) fn param_headers(schema: &Value, arguments: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let Some(argument) = arguments.get(name).filter(|argument| !argument.is_null()) else { continue };
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str) {
            let text = argument.as_str().map_or_else(|| argument.to_string(), str::to_owned);
            found.push((format!("mcp-param-{header}"), encode_header_value(&text)));
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
    fn marked_arguments_are_found_at_any_depth() {
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
        /// The server decodes what the client encoded.
        #[test]
        fn every_text_round_trips_through_a_header(text in prop_oneof!["\\PC*", " *=?[?]?base64[?].*", "[ -~]*"]) {
            let encoded = encode_header_value(&text);
            prop_assert!(http::HeaderValue::from_str(&encoded).is_ok());
            prop_assert_eq!(decode_header_value(encoded.as_bytes()), Some(text.into()));
        }
    }
}
