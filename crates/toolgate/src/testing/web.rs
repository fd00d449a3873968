//! A test's client over HTTP: which headers a revision wants, and where its answers are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use toolgate_wire::{ProtocolVersion, Frame, Message, RequestId, Resumability, read_message};

use super::answer::{Fetched, Refusal};
use super::exchange::{Event, Exchange, request};
use super::link::{Asked, Ear, LIMITS, Link, Reply, Setup};

type Knock = dyn Fn(http::Request<String>) -> Exchange + Send + Sync;

/// A service, and the path it is called at.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) knock: Arc<Knock>,
    pub(super) path: String,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("path", &self.path).finish_non_exhaustive()
    }
}

pub(super) struct Web {
    door: Door,
    edition: ProtocolVersion,
    /// Given by the server with its welcome.
    session: OnceLock<String>,
    /// The standing stream is open.
    stands: AtomicBool,
}

impl Web {
    pub(super) fn new(door: Door, edition: ProtocolVersion) -> Web {
        Web { door, edition, session: OnceLock::new(), stands: AtomicBool::new(false) }
    }

    /// Sends a request as it is.
    pub(super) fn knock(&self, request: http::Request<String>) -> Exchange {
        (self.door.knock)(request)
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn ask(
        &self,
        setup: &Setup,
        ear: &Ear,
        asked: &Asked<'_>,
        params: &[u8],
        sent: impl FnOnce(i64),
    ) -> Reply {
        let mut exchange = self.open(setup, asked, params);
        sent(asked.id);
        let mut last = None;
        loop {
            match self.follow(setup, ear, asked, &mut exchange, &mut last).await {
                Followed::Reply(reply) => return reply,
                // The server let the connection go: the rest is fetched from where it ended.
                Followed::Cut { retry, fetched } => match &last {
                    Some(last) if self.edition.behavior().resumability != Resumability::Never => {
                        tokio::time::sleep(Duration::from_millis(retry)).await;
                        exchange = self.get(setup, Some(last));
                    }
                    _ => {
                        let status = Some(fetched.status);
                        let refusal = Refusal::bare("the stream ended without an answer", status);
                        return *Reply::refused(refusal, Some(fetched));
                    }
                },
            }
        }
    }

    /// Reads one answer to its end, or until the message that is the answer.
    async fn follow(
        &self,
        setup: &Setup,
        ear: &Ear,
        asked: &Asked<'_>,
        exchange: &mut Exchange,
        last: &mut Option<String>,
    ) -> Followed {
        let mut fetched = match exchange.head_within(setup.patience).await {
            Ok(head) => {
                Fetched { status: head.status.as_u16(), headers: head.headers.clone(), body: String::new() }
            }
            Err(why) => ear.fail(&format!("`{}`: {why}", asked.method)),
        };
        if let Some(id) = fetched.header("mcp-session-id") {
            self.session.get_or_init(|| id.to_owned());
        }
        if !fetched.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            fetched.body = exchange.body().await.unwrap_or_else(|why| ear.fail(&why));
            return Followed::Reply(whole(fetched));
        }
        let mut retry = 0;
        loop {
            let event = exchange.event_within(setup.patience).await.unwrap_or_else(|why| ear.fail(&why));
            match event {
                Some(Event::Message(message)) => {
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
                    if let Some(outcome) = answer_to(asked.id, &text) {
                        return Followed::Reply(Reply::of(outcome, &text, Some(fetched)));
                    }
                    if let Some(answer) = ear.hear(&text) {
                        self.tell(setup, answer.into()).await;
                    }
                    ear.check();
                }
                Some(Event::Retry(after)) => retry = after.parse().unwrap_or(retry),
                Some(Event::End) => return Followed::Cut { retry, fetched },
                Some(Event::Comment) => {}
                None => ear.fail(&format!("`{}` was not answered in {:?}", asked.method, setup.patience)),
            }
        }
    }

    /// Sends what wants no answer: a notification, or the answer to a question.
    pub(super) async fn tell(&self, setup: &Setup, message: Vec<u8>) {
        let body = String::from_utf8_lossy(&message).into_owned();
        let mut exchange = self.send(setup, "POST", &[], &self.session_headers(), body);
        if let Err(why) = exchange.head_within(setup.patience).await {
            panic!("a notification was not taken: {why}");
        }
    }

    /// Opens the session's standing stream, or takes up another where it ended.
    pub(super) fn get(&self, setup: &Setup, last: Option<&String>) -> Exchange {
        let mut headers = self.session_headers();
        headers.extend(last.map(|last| ("last-event-id".to_owned(), last.clone())));
        self.send(setup, "GET", &[], &headers, String::new())
    }

    /// What the test says for one request counts first, then what it says for all, then the protocol.
    fn send(
        &self,
        setup: &Setup,
        method: &str,
        own: &[(String, String)],
        usual: &[(String, String)],
        body: String,
    ) -> Exchange {
        let mut all: Vec<(String, String)> = own.to_vec();
        for more in [setup.headers.as_slice(), usual] {
            let is_new = |name: &str| !all.iter().any(|(said, _)| said.eq_ignore_ascii_case(name));
            let new: Vec<_> = more.iter().filter(|(name, _)| is_new(name)).cloned().collect();
            all.extend(new);
        }
        match request(method, &self.door.path, all, body) {
            Ok(mut request) => {
                *request.extensions_mut() = setup.extensions.clone();
                self.knock(request)
            }
            Err(error) => panic!("cannot {method} {}: {error}", self.door.path),
        }
    }

    fn session_headers(&self) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        if let Some(session) = self.session.get() {
            headers.push(("mcp-session-id".to_owned(), session.clone()));
        }
        if self.edition.behavior().version_header {
            headers.push(("mcp-protocol-version".to_owned(), self.edition.as_str().to_owned()));
        }
        headers
    }

    /// What a request repeats in headers.
    pub(super) fn mirrored(&self, asked: &Asked<'_>) -> Vec<(String, String)> {
        // A greeting has no session yet, and names its edition in the body.
        if self.edition.has_handshake() && asked.method == "initialize" {
            return Vec::new();
        }
        let mut headers = self.session_headers();
        if self.edition.behavior().mirror_headers {
            headers.push(("mcp-method".to_owned(), asked.method.to_owned()));
            headers.extend(asked.subject.map(|subject| ("mcp-name".to_owned(), encode(subject))));
        }
        headers
    }

    /// Sends one request whose answer is a stream to be listened to.
    pub(super) fn open(&self, setup: &Setup, asked: &Asked<'_>, params: &[u8]) -> Exchange {
        let body = String::from_utf8_lossy(&asked.request(params)).into_owned();
        self.send(setup, "POST", asked.headers, &self.mirrored(asked), body)
    }

    /// Whether the standing stream is to be opened: true once.
    pub(super) fn stands_now(&self) -> bool {
        !self.stands.swap(true, Ordering::Relaxed)
    }
}

/// Hears a stream to its end, or to that of the link.
pub(super) async fn listen(link: Weak<Link>, setup: Setup, mut exchange: Exchange) {
    while let Ok(Some(event)) = exchange.event_within(Duration::from_secs(3600)).await {
        let message = match event {
            Event::Message(message) if !message.data.is_empty() => message,
            Event::End => return,
            _ => continue,
        };
        let Some(link) = link.upgrade() else { return };
        if let (Some(answer), Some(web)) = (link.ear.hear(&Bytes::from(message.data)), link.web()) {
            web.tell(&setup, answer.into()).await;
        }
    }
}

enum Followed {
    Reply(Reply),
    Cut { retry: u64, fetched: Fetched },
}

type Outcome = Result<toolgate_wire::RawJson, toolgate_wire::RemoteError>;

fn answer_to(asked: i64, text: &Bytes) -> Option<Outcome> {
    match read_message(text, &LIMITS) {
        Ok(Message::Single(Frame::Response { id: RequestId::Number(id), outcome })) if id == asked => {
            Some(outcome)
        }
        _ => None,
    }
}

/// An answer that is one body, whatever is in it.
fn whole(fetched: Fetched) -> Reply {
    let text = Bytes::from(fetched.body.clone());
    match read_message(&text, &LIMITS) {
        Ok(Message::Single(Frame::Response { outcome, .. })) => Reply::of(outcome, &text, Some(fetched)),
        Ok(Message::Single(Frame::ErrorWithoutId { error })) => Reply::of(Err(error), &text, Some(fetched)),
        _ => {
            let refusal = Refusal::bare(fetched.body.clone(), Some(fetched.status));
            let message = serde_json::from_str(&fetched.body).unwrap_or_default();
            Reply { message, ..*Reply::refused(refusal, Some(fetched)) }
        }
    }
}

/// A header value: as it is, or, if a header cannot hold it, in base64 between the protocol's markers.
fn encode(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && !text.starts_with("=?");
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

/// The headers that repeat the marked arguments of a call, by the tool's schema.
pub(super) fn marked(schema: &Value, arguments: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let Some(argument) = arguments.get(name).filter(|argument| !argument.is_null()) else { continue };
        if let Some(mark) = property.get("x-mcp-header").and_then(Value::as_str) {
            let text = argument.as_str().map_or_else(|| argument.to_string(), str::to_owned);
            found.push((format!("mcp-param-{mark}"), encode(&text)));
        }
        found.extend(marked(property, argument));
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::registry::decode;

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
        assert_eq!(marked(&schema, &arguments), wanted);
    }

    proptest! {
        /// What we put into a header is what the server takes out of it.
        #[test]
        fn every_text_goes_through_a_header(text in prop_oneof!["\\PC*", " *=?[?]?base64[?].*", "[ -~]*"]) {
            let encoded = encode(&text);
            prop_assert!(http::HeaderValue::from_str(&encoded).is_ok());
            prop_assert_eq!(decode(encoded.as_bytes()), Some(text.into()));
        }
    }
}
