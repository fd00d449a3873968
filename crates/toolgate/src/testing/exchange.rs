//! One in-memory HTTP exchange: the request, and the response as a whole or event by event.
//!
//! A task reads the response as a connection would. There is no socket, and nothing is added to the request except
//! the headers that every client sends.

use std::convert::Infallible;
use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tower_service::Service;

use super::RECEIVE_TIMEOUT;
use super::response::ReceivedResponse;
use crate::util::spawn::AbortOnDrop;

/// Builds an HTTP request as clients send it: with `host`, `accept` and, for POST, `content-type`, unless `headers` has
/// others. A header with the value `-` is not sent.
///
/// ```
/// let request = toolgate::testing::http_request("POST", "/mcp", [("accept", "-")], "{}");
/// assert_eq!(request.headers()["host"], "localhost");
/// assert!(!request.headers().contains_key("accept"));
/// ```
///
/// # Panics
/// If the path or a header is not valid.
#[track_caller]
pub fn http_request<N, V>(
    method: &str,
    path: &str,
    headers: impl IntoIterator<Item = (N, V)>,
    body: impl Into<String>,
) -> http::Request<String>
where
    N: AsRef<str>,
    V: AsRef<str>,
{
    match build_request(method, path, headers, body.into()) {
        Ok(request) => request,
        Err(error) => panic!("invalid request {method} {path}: {error}"),
    }
}

pub(super) fn build_request<N, V>(
    method: &str,
    path: &str,
    headers: impl IntoIterator<Item = (N, V)>,
    body: String,
) -> Result<http::Request<String>, http::Error>
where
    N: AsRef<str>,
    V: AsRef<str>,
{
    let headers: Vec<(N, V)> = headers.into_iter().collect();
    let defaults: &[(&str, &str)] = match method {
        "POST" => &[
            ("host", "localhost"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ],
        _ => &[("host", "localhost"), ("accept", "text/event-stream")],
    };
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in defaults {
        if !headers.iter().any(|(given, _)| given.as_ref().eq_ignore_ascii_case(name)) {
            request = request.header(*name, *value);
        }
    }
    for (name, value) in headers.iter().filter(|(_, value)| value.as_ref() != "-") {
        request = request.header(name.as_ref(), value.as_ref());
    }
    request.body(body)
}

enum ExchangePart {
    Head(Box<http::response::Parts>),
    Data(Bytes),
}

/// One item of an event stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReceivedEvent {
    /// A message.
    Message(EventMessage),
    /// A comment, sent to keep the connection alive.
    Comment,
    /// An event with a reconnection time in milliseconds and no data.
    Retry(String),
    /// The end of the stream.
    End,
}

/// An event with data.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EventMessage {
    /// The `event:` field.
    pub name: Option<String>,
    /// The `id:` field.
    pub id: Option<String>,
    /// The `retry:` field.
    pub retry: Option<String>,
    /// The `data:` field.
    pub data: String,
}

/// One HTTP request to a service, and its response. Dropping it closes the connection.
///
/// ```
/// # use toolgate::testing::{HttpExchange, http_request};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = toolgate::Server::new("demo", "1.0.0").build()?;
/// let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
/// let request = http_request("POST", "/mcp", [("origin", "https://evil.example")], ping);
/// let mut exchange = HttpExchange::start(server.into_service(), request);
/// assert_eq!(exchange.head().await?.status, 403);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HttpExchange {
    parts: mpsc::Receiver<ExchangePart>,
    task: AbortOnDrop<()>,
    head: Option<http::response::Parts>,
    buffer: Vec<u8>,
    is_ended: bool,
}

impl std::fmt::Debug for ExchangePart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExchangePart")
    }
}

impl HttpExchange {
    /// Sends the request. Needs a tokio runtime.
    pub fn start<S, B>(mut service: S, request: http::Request<String>) -> HttpExchange
    where
        S: Service<http::Request<String>, Response = http::Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
    {
        // Bounded: when it is full the task waits, as it would on a slow connection.
        let (sender, parts) = mpsc::channel(1024);
        let task = tokio::spawn(async move {
            let Ok(()) = poll_fn(|cx| service.poll_ready(cx)).await;
            let Ok(response) = service.call(request).await;
            let (parts, body) = response.into_parts();
            let mut body = Box::pin(body);
            let _ = sender.send(ExchangePart::Head(Box::new(parts))).await;
            while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                if let Ok(data) = frame.into_data() {
                    let _ = sender.send(ExchangePart::Data(data)).await;
                }
            }
        });
        let task = AbortOnDrop::new(task);
        HttpExchange { parts, task, head: None, buffer: Vec::new(), is_ended: false }
    }

    /// Closes the connection and waits until the service's response is dropped.
    pub async fn disconnect(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Closes the exchange. Fails if it has output that the test did not read.
    pub(super) fn finish(mut self) -> Result<(), String> {
        self.task.abort();
        while let Ok(part) = self.parts.try_recv() {
            match part {
                ExchangePart::Head(head) => return Err(format!("expected no response\n  got      {head:?}")),
                ExchangePart::Data(data) => self.buffer.extend_from_slice(&data),
            }
        }
        let left = String::from_utf8_lossy(&self.buffer);
        if left.lines().any(|line| !line.is_empty() && !line.starts_with(':')) {
            return Err(format!("expected nothing more\n  got      {left}"));
        }
        Ok(())
    }

    /// Returns status and headers.
    ///
    /// # Errors
    /// If no response arrives in time.
    pub async fn head(&mut self) -> Result<&http::response::Parts, String> {
        self.head_timeout(RECEIVE_TIMEOUT).await
    }

    pub(super) async fn head_timeout(&mut self, timeout: Duration) -> Result<&http::response::Parts, String> {
        if self.head.is_none() {
            let part = tokio::time::timeout(timeout, self.parts.recv()).await;
            match part.map_err(|_| "no response in time")? {
                Some(ExchangePart::Head(head)) => self.head = Some(*head),
                _ => return Err("the server did not respond".into()),
            }
        }
        self.head.as_ref().ok_or_else(|| "the server did not respond".into())
    }

    /// Returns the rest of the body.
    ///
    /// # Errors
    /// If the body does not end in time, or is not UTF-8.
    pub async fn body(&mut self) -> Result<String, String> {
        self.head().await?;
        while let Some(part) = tokio::time::timeout(RECEIVE_TIMEOUT, self.parts.recv())
            .await
            .map_err(|_| "the body did not end in time")?
        {
            if let ExchangePart::Data(data) = part {
                self.buffer.extend_from_slice(&data);
            }
        }
        String::from_utf8(std::mem::take(&mut self.buffer)).map_err(|error| error.to_string())
    }

    /// Returns status, headers and body.
    ///
    /// # Errors
    /// If no response arrives in time, or the body does not end.
    pub async fn fetch(mut self) -> Result<ReceivedResponse, String> {
        let body = self.body().await?;
        let head = self.head().await?;
        Ok(ReceivedResponse { status: head.status.as_u16(), headers: head.headers.clone(), body })
    }

    /// Returns the next event of the stream, without comments; `None` if none arrives within `timeout`.
    ///
    /// # Errors
    /// If the stream sends something that is not an event.
    pub async fn event_within(&mut self, timeout: Duration) -> Result<Option<ReceivedEvent>, String> {
        loop {
            match self.raw_event(timeout).await? {
                Some(ReceivedEvent::Comment) => {}
                other => return Ok(other),
            }
        }
    }

    /// Returns the next event of the stream, including comments; `None` if none arrives within `timeout`.
    ///
    /// # Errors
    /// If the stream sends something that is not an event.
    pub async fn raw_event(&mut self, timeout: Duration) -> Result<Option<ReceivedEvent>, String> {
        self.head().await?;
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return parse_event(&String::from_utf8(block).map_err(|error| error.to_string())?).map(Some);
            }
            if self.is_ended {
                return Ok(Some(ReceivedEvent::End));
            }
            match tokio::time::timeout(timeout, self.parts.recv()).await {
                Err(_) => return Ok(None),
                Ok(None) if self.buffer.is_empty() => self.is_ended = true,
                Ok(None) => {
                    return Err(format!("incomplete event: {:?}", String::from_utf8_lossy(&self.buffer)));
                }
                Ok(Some(ExchangePart::Data(data))) => self.buffer.extend_from_slice(&data),
                Ok(Some(ExchangePart::Head(_))) => return Err("two response heads".into()),
            }
        }
    }

    /// Returns the next message of the stream.
    ///
    /// # Panics
    /// If no message arrives in time.
    pub async fn message(&mut self) -> EventMessage {
        match self.event_within(RECEIVE_TIMEOUT).await {
            Ok(Some(ReceivedEvent::Message(message))) => message,
            other => panic!("expected a message, got {other:?}"),
        }
    }
}

fn parse_event(block: &str) -> Result<ReceivedEvent, String> {
    let (mut message, mut data, mut retry) = (EventMessage::default(), None, None);
    for line in block.lines().filter(|line| !line.is_empty()) {
        let (field, value) = line.split_once(':').ok_or_else(|| format!("not a field: {line}"))?;
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "" => return Ok(ReceivedEvent::Comment),
            "event" => message.name = Some(value),
            "id" => message.id = Some(value),
            "retry" => retry = Some(value),
            "data" if data.is_none() => data = Some(value),
            _ => return Err(format!("unexpected in an event: {line}")),
        }
    }
    match (data, retry) {
        (Some(data), retry) => Ok(ReceivedEvent::Message(EventMessage { data, retry, ..message })),
        (None, Some(retry)) => Ok(ReceivedEvent::Retry(retry)),
        (None, None) => Err(format!("neither data nor retry: {block:?}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_are_parsed_and_malformed_blocks_are_errors() {
        let read = |block: &str| parse_event(block).map(|event| format!("{event:?}"));
        assert!(matches!(parse_event(": hi\n\n"), Ok(ReceivedEvent::Comment)));
        assert!(matches!(parse_event("retry: 7\n\n"), Ok(ReceivedEvent::Retry(after)) if after == "7"));
        let Ok(ReceivedEvent::Message(message)) = parse_event("event: message\nid: 1\ndata: a:b\n\n") else {
            panic!("no message")
        };
        assert_eq!((message.name.as_deref(), message.id.as_deref()), (Some("message"), Some("1")));
        assert_eq!(message.data, "a:b");
        for (block, wanted) in [
            ("data: a\ndata: b\n\n", "unexpected in an event"),
            ("id: 1\n\n", "neither data nor retry"),
            ("data\n\n", "not a field"),
        ] {
            assert!(read(block).expect_err(block).contains(wanted), "{block:?}");
        }
    }

    proptest! {
        #[test]
        fn no_block_panics_the_parser(block in "(\\PC{0,8}:?\n?){0,6}") {
            let _ = parse_event(&block);
        }
    }
}
