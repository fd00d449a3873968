//! A hand-written HTTP client, so that none of our code hides what is on the wire.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time limit for a response, after which the connection is considered broken.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The head of a response, and the connection that its body arrives on.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    is_chunked: bool,
    remaining_bytes: usize,
    buffer: Vec<u8>,
}

/// An event of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) data: String,
    pub(crate) retry: Option<u64>,
}

/// Sends a request and reads the head of the response.
pub(crate) async fn send(
    at: SocketAddr,
    method: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<HttpResponse> {
    timeout(RESPONSE_TIMEOUT, async {
        let mut stream = TcpStream::connect(at).await?;
        let mut head = format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(head.as_bytes()).await?;
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line).await?;
        let status =
            line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(connection_cut)?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).await? == 0 {
                return Err(connection_cut());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(connection_cut)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let find =
            |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let chunked = find("transfer-encoding") == Some("chunked");
        let left = find("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        Ok(HttpResponse {
            status,
            headers,
            reader: lines,
            is_chunked: chunked,
            remaining_bytes: left,
            buffer: Vec::new(),
        })
    })
    .await
    .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no response")))
}

fn connection_cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was cut")
}

impl HttpResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// Reads the rest of the body. A truncated body is an error.
    pub(crate) async fn read_body(mut self) -> io::Result<Vec<u8>> {
        timeout(RESPONSE_TIMEOUT, async {
            while self.read_more().await? {}
            Ok(std::mem::take(&mut self.buffer))
        })
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the body did not end")))
    }

    /// Reads a piece of the body. Returns false at its regular end.
    async fn read_more(&mut self) -> io::Result<bool> {
        if !self.is_chunked {
            if self.remaining_bytes == 0 {
                return Ok(false);
            }
            let mut piece = vec![0; self.remaining_bytes.min(1 << 16)];
            self.reader.read_exact(&mut piece).await?;
            self.remaining_bytes -= piece.len();
            self.buffer.extend_from_slice(&piece);
            return Ok(true);
        }
        let mut line = String::new();
        if self.reader.read_line(&mut line).await? == 0 {
            return Err(connection_cut());
        }
        let size = usize::from_str_radix(line.trim(), 16).map_err(|_| connection_cut())?;
        let mut piece = vec![0; size + 2];
        self.reader.read_exact(&mut piece).await?;
        piece.truncate(size);
        self.buffer.extend_from_slice(&piece);
        Ok(size > 0)
    }

    /// Returns the next event of a stream, `None` at its regular end, or an error if it was cut.
    pub(crate) async fn next_event(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                match parse_event(&String::from_utf8_lossy(&block)) {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            if !self.read_more().await? {
                return Ok(None);
            }
        }
    }
}

/// Returns `None` for a comment.
fn parse_event(block: &str) -> Option<Event> {
    let mut event = Event::default();
    let mut any = false;
    for line in block.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        any |= !name.is_empty();
        match name {
            "id" => event.id = Some(value.to_owned()),
            "data" => event.data.push_str(value),
            "retry" => event.retry = value.parse().ok(),
            _ => {}
        }
    }
    any.then_some(event)
}

/// A client of the last protocol version with sessions.
#[derive(Clone, Debug)]
pub(crate) struct SessionClient {
    pub(crate) address: SocketAddr,
    pub(crate) session: String,
}

const ACCEPT_HEADER: (&str, &str) = ("Accept", "application/json, text/event-stream");
const CONTENT_TYPE_HEADER: (&str, &str) = ("Content-Type", "application/json");
const VERSION_HEADER: (&str, &str) = ("MCP-Protocol-Version", "2025-11-25");

impl SessionClient {
    /// Sends `initialize`, repeatedly until it succeeds.
    pub(crate) async fn initialize(at: SocketAddr) -> SessionClient {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "guest", "version": "1"}}});
        for _ in 0..100 {
            if let Ok(answer) =
                send(at, "POST", &[ACCEPT_HEADER, CONTENT_TYPE_HEADER], &body.to_string()).await
                && answer.status == 200
                && let Some(session) = answer.header("mcp-session-id").map(str::to_owned)
            {
                return SessionClient { address: at, session };
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no response to `initialize` at {at}");
    }

    pub(crate) async fn post(&self, message: &Value) -> io::Result<HttpResponse> {
        let headers =
            [ACCEPT_HEADER, CONTENT_TYPE_HEADER, VERSION_HEADER, ("Mcp-Session-Id", self.session.as_str())];
        send(self.address, "POST", &headers, &message.to_string()).await
    }

    pub(crate) async fn get(&self, last: Option<&str>) -> io::Result<HttpResponse> {
        let mut headers =
            vec![("Accept", "text/event-stream"), VERSION_HEADER, ("Mcp-Session-Id", self.session.as_str())];
        headers.extend(last.map(|last| ("Last-Event-ID", last)));
        send(self.address, "GET", &headers, "").await
    }

    /// Sends a request until there is a response: a connection that was cut before is retried.
    pub(crate) async fn request(&self, id: u64, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        for _ in 0..200 {
            if let Ok(answer) = self.post(&message).await
                && answer.status != 503
            {
                let stream = answer.is_stream();
                if stream {
                    if let Some(received) = self.read_stream(answer, None).await.pop_back() {
                        return received;
                    }
                } else if let Ok(body) = answer.read_body().await {
                    return serde_json::from_slice(&body).unwrap_or(Value::Null);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{method} was never answered");
    }

    /// Returns all events of a stream until its regular end, the response of its call, however often it is cut.
    pub(crate) async fn read_stream(&self, first: HttpResponse, limit: Option<Duration>) -> VecDeque<Value> {
        let mut received = VecDeque::new();
        let mut last: Option<String> = None;
        let mut answer = Some(first);
        let deadline = tokio::time::Instant::now() + limit.unwrap_or(Duration::from_secs(90));
        while tokio::time::Instant::now() < deadline {
            let Some(mut reading) = answer.take() else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let Some(id) = &last else { return received };
                match self.get(Some(id)).await {
                    Ok(resumed) if resumed.status == 200 => answer = Some(resumed),
                    Ok(refused) if refused.status == 503 => {}
                    Ok(refused) => {
                        let (status, body) = (refused.status, refused.read_body().await.unwrap_or_default());
                        panic!("resuming at {id} was refused: {status} {}", String::from_utf8_lossy(&body));
                    }
                    Err(_) => {}
                }
                continue;
            };
            while let Ok(Ok(Some(event))) = timeout(RESPONSE_TIMEOUT, reading.next_event()).await {
                last = event.id.or(last);
                if let Ok(message) = serde_json::from_str::<Value>(&event.data) {
                    let is_answer = message.get("id").is_some() && message.get("method").is_none();
                    received.push_back(message);
                    if is_answer {
                        return received;
                    }
                }
            }
        }
        received
    }
}

/// Sends a request of the newest protocol version.
pub(crate) async fn request_stateless(
    at: SocketAddr,
    method: &str,
    name: &str,
    mut params: Value,
) -> Option<Value> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "guest", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let headers = [
        ACCEPT_HEADER,
        CONTENT_TYPE_HEADER,
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", method),
        ("Mcp-Name", name),
    ];
    let answer = send(at, "POST", &headers, &body).await.ok()?;
    if answer.status == 503 {
        return None;
    }
    if answer.is_stream() {
        let mut answer = answer;
        let mut last = None;
        while let Ok(Some(event)) = answer.next_event().await {
            last = serde_json::from_str(&event.data).ok().or(last);
        }
        return last;
    }
    serde_json::from_slice(&answer.read_body().await.ok()?).ok()
}

/// Sends a request of the newest protocol version until there is a response.
pub(crate) async fn request_stateless_retrying(
    at: SocketAddr,
    method: &str,
    name: &str,
    params: Value,
) -> Value {
    for _ in 0..200 {
        if let Some(answer) = request_stateless(at, method, name, params.clone()).await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{method} {name} was never answered");
}
