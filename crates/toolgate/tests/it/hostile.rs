//! Rows of the catalog of hostile inputs, against the whole server.
//!
//! Each test names its rows. A row is input bytes and the expected response; after each row the server must still respond
//! to a valid call. Rows about the listener alone are in `transport/listen/tests.rs`; here they are only touched. Where the
//! security page and the protocol page disagree about a status, the protocol page wins: domain errors (unknown tool, bad
//! cursor) have status `200`.

mod credentials;
mod envelope;
mod framing;
mod header_mismatch;
mod json;
mod origin;
mod server_requests;
mod session;
mod stdio;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use toolgate::http::ListenOptions;
use toolgate::{Context, ElicitOutcome, Field, Form, HandlerError, Server};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
/// The time limit for responses.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);
/// Used where the catalog says one second, since the machine may be busy with other tests.
const SHORT_TIMEOUT: Duration = Duration::from_secs(4);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Message {
    message: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Count {
    n: u64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Named {
    name: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Path {
    path: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Region {
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: Option<String>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code)]
struct Ids {
    id: Vec<String>,
}

/// The server under attack; `ran` counts its tool calls.
fn fixture(ran: &Arc<AtomicUsize>) -> Server {
    let (echoed, notified, waited) = (Arc::clone(ran), Arc::clone(ran), Arc::clone(ran));
    let options = ListenOptions::default()
        .head_timeout(ms(600))
        .idle_timeout(ms(1000))
        .write_timeout(ms(900))
        .linger(ms(500));
    Server::new("hostile", "1.0.0")
        .listener(options)
        .shutdown_timeout(ms(500))
        .page_size(2)
        .stream_after(ms(300))
        .tool("echo", move |args: Message| {
            echoed.fetch_add(1, Ordering::SeqCst);
            async move { args.message }
        })
        .tool("tell", move |args: Message, cx: Context| {
            notified.fetch_add(1, Ordering::SeqCst);
            async move {
                cx.progress(1.0, args.message.as_str()).await;
                args.message
            }
        })
        .tool("slow", move |args: Count| {
            waited.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::time::sleep(ms(args.n)).await;
                format!("slept {}", args.n)
            }
        })
        .tool("big", |args: Count| async move { "x".repeat(usize::try_from(args.n).unwrap_or(0)) })
        .tool("panic", |args: Count| async move {
            assert!(args.n == 0, "a handler fell over at /secret/path.rs");
            "stood"
        })
        .tool("region", |args: Region| async move { args.region.unwrap_or_default() })
        .tool("hang", || async { std::future::pending::<String>().await })
        .timeout(ms(150))
        .tool("ask", |args: Message, cx: Context| async move {
            Ok::<_, HandlerError>(match cx.elicit("name", name_form()).await? {
                ElicitOutcome::Accept(values) => {
                    format!("{}, {}", args.message, values["name"].as_str().unwrap_or("?"))
                }
                ElicitOutcome::Decline | ElicitOutcome::Cancel => "no name".into(),
            })
        })
        .tool("ask_twice", |cx: Context| async move {
            cx.elicit("first", name_form()).await?;
            cx.elicit("second", name_form()).await?;
            Ok::<_, HandlerError>("asked twice")
        })
        .tool("ask_on", |cx: Context| async move {
            for round in 0..100 {
                cx.elicit(&format!("q{round}"), name_form()).await?;
            }
            Ok::<_, HandlerError>("never here")
        })
        .prompt("greet", |args: Named| async move { format!("Greet {}.", args.name) })
        .resource("fx://readme", || async { "Read me" })
        .template("fx://files/{+path}", |args: Path| async move {
            (args.path == "a.txt").then_some("A").ok_or_else(|| HandlerError::new("nothing there"))
        })
        .template("fx://users{/id*}/end", |args: Ids| async move { format!("{} ids", args.id.len()) })
        .build()
        .expect("the fixture is well described")
}

fn name_form() -> Form {
    Form::new("What is your name?").field("name", Field::text().max(1 << 20))
}

/// A server on a port of its own.
struct TestServer {
    address: SocketAddr,
    server: Server,
    n_calls: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestServer {
    async fn open() -> TestServer {
        let ran = Arc::new(AtomicUsize::new(0));
        let server = fixture(&ran);
        TestServer::serve(server, ran).await
    }

    async fn serve(server: Server, ran: Arc<AtomicUsize>) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let serving = server.clone();
        let serving = tokio::spawn(async move {
            serving.serve(listener).await.expect("it serves until it is dropped");
        });
        TestServer { address, server, n_calls: ran, task: serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the server listens")
    }

    /// Sends bytes and reads until the server closes the connection.
    async fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut read, mut write) = self.connect().await.into_split();
        let bytes = bytes.to_vec();
        // A client that is rejected while sending sees an error here, and the response below.
        let sending = tokio::spawn(async move {
            let _ = write.write_all(&bytes).await;
            write
        });
        let answer = read_to_end(&mut read).await;
        sending.abort();
        answer
    }

    async fn post(&self, post: &RawRequest) -> RawResponse {
        RawResponse::read(&self.send(&post.bytes()).await)
    }

    /// Returns how often a counting tool has run.
    fn n_calls(&self) -> usize {
        self.n_calls.load(Ordering::SeqCst)
    }

    /// Checks that a valid call works.
    async fn check_alive(&self, row: &str) {
        let reply = self.post(&RawRequest::tool_call("echo", r#"{"message":"still here"}"#)).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "still here"), "after {row}");
    }

    /// Checks one row: the request, the expected response, and that the server still works.
    async fn check(
        &self,
        row: &str,
        post: &RawRequest,
        status: impl Accepts<u16>,
        code: impl Accepts<i64>,
    ) -> RawResponse {
        let reply = self.post(post).await;
        let shown = String::from_utf8_lossy(&post.body[..post.body.len().min(160)]).into_owned();
        let body = reply.json();
        let at = format!(
            "{row}: {shown} with {:?} answered by {} {}",
            post.distinctive_lines(),
            reply.status,
            clip(&reply.body)
        );
        assert!(status.accepts(reply.status), "status of {at}");
        assert!(code.accepts(body["error"]["code"].as_i64().unwrap_or_default()), "code of {at}");
        reply.check_common(&at);
        self.check_alive(row).await;
        reply
    }

    /// Opens a 2025-11-25 session.
    async fn initialize(&self) -> String {
        self.initialize_with("{}").await
    }

    async fn initialize_with(&self, capabilities: &str) -> String {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{LEGACY}","capabilities":{capabilities},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
        );
        let reply = self.post(&RawRequest::new(body)).await;
        assert_eq!(reply.status, 200, "{}", clip(&reply.body));
        reply.header("mcp-session-id").expect("a session has an id")
    }
}

/// Expected values of a row: one value or any of several.
trait Accepts<T> {
    fn accepts(&self, value: T) -> bool;
}

impl<T: PartialEq> Accepts<T> for T {
    fn accepts(&self, value: T) -> bool {
        *self == value
    }
}

impl<T: PartialEq, const N: usize> Accepts<T> for [T; N] {
    fn accepts(&self, value: T) -> bool {
        self.contains(&value)
    }
}

/// A request that is sent as it is, valid or not.
#[derive(Clone)]
struct RawRequest {
    method: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl RawRequest {
    /// A POST without a protocol version.
    fn new(body: impl Into<Vec<u8>>) -> RawRequest {
        RawRequest { method: "POST".into(), target: "/mcp".into(), headers: Vec::new(), body: body.into() }
            .with("Host", "127.0.0.1")
            .with("Connection", "close")
            .with("Content-Type", "application/json")
            .with("Accept", "application/json, text/event-stream")
    }

    fn empty(verb: &str) -> RawRequest {
        let mut post = RawRequest::new("").without("Content-Type");
        post.method = verb.into();
        post
    }

    /// A 2026-07-28 request with valid headers; `params` are members without their braces.
    fn modern(method: &str, name: Option<&str>, params: &str) -> RawRequest {
        let comma = if params.is_empty() { "" } else { "," };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}{comma}{}}}}}"#,
            meta(MODERN, "{}")
        );
        RawRequest::modern_raw(method, name, body)
    }

    /// The same headers with any body.
    fn modern_raw(method: &str, name: Option<&str>, body: impl Into<Vec<u8>>) -> RawRequest {
        let post = RawRequest::new(body).with("MCP-Protocol-Version", MODERN).with("Mcp-Method", method);
        match name {
            Some(name) => post.with("Mcp-Name", name),
            None => post,
        }
    }

    /// A 2026-07-28 tool call.
    fn tool_call(tool: &str, arguments: &str) -> RawRequest {
        RawRequest::modern("tools/call", Some(tool), &format!(r#""name":"{tool}","arguments":{arguments}"#))
    }

    /// A 2026-07-28 tool call of a client that supports forms.
    fn tool_call_with_forms(tool: &str, params: &str) -> RawRequest {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}",{params},{}}}}}"#,
            meta(MODERN, r#"{"elicitation":{"form":{}}}"#)
        );
        RawRequest::modern_raw("tools/call", Some(tool), body)
    }

    /// A message in a session.
    fn in_session(session: &str, body: impl Into<Vec<u8>>) -> RawRequest {
        RawRequest::new(body).with("MCP-Protocol-Version", LEGACY).with("Mcp-Session-Id", session)
    }

    fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> RawRequest {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    fn without(mut self, name: &str) -> RawRequest {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Replaces all values of a header.
    fn set(self, name: &str, value: impl AsRef<[u8]>) -> RawRequest {
        self.without(name).with(name, value)
    }

    fn with_target(mut self, target: &str) -> RawRequest {
        self.target = target.into();
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        let framed = self.headers.iter().any(|(name, _)| {
            matches!(name.to_ascii_lowercase().as_str(), "content-length" | "transfer-encoding")
        });
        if !framed && (self.method == "POST" || !self.body.is_empty()) {
            bytes.extend(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }

    /// Returns the lines of the head that differ between rows.
    fn distinctive_lines(&self) -> Vec<String> {
        let ours = ["Host", "Connection", "Content-Type", "Accept"];
        let fields = self
            .headers
            .iter()
            .enumerate()
            .filter(|(at, (name, _))| *at > 3 || !ours.contains(&name.as_str()));
        fields.map(|(_, (name, value))| format!("{name}: {}", clip(value))).collect()
    }
}

fn meta(version: &str, capabilities: &str) -> String {
    format!(
        r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{capabilities}}}"#
    )
}

/// A tool call in the form that all versions share.
fn call(id: &str, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

/// A response.
#[derive(Debug)]
struct RawResponse {
    /// The status, or 0 if the connection was closed without a response.
    status: u16,
    head: String,
    body: Vec<u8>,
    /// The number of responses on the connection.
    n_responses: usize,
}

impl RawResponse {
    fn read(bytes: &[u8]) -> RawResponse {
        let n_responses =
            bytes.windows(9).filter(|window| window.starts_with(b"HTTP/1.") && window[8] == b' ').count();
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_default();
        let body = bytes.get(end + 4..).unwrap_or_default();
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        RawResponse {
            status,
            head,
            body: if is_chunked { decode_chunks(body) } else { body.to_vec() },
            n_responses,
        }
    }

    fn header(&self, name: &str) -> Option<String> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }

    /// Returns the response: the body, or the last message of a stream.
    fn json(&self) -> Value {
        let body = String::from_utf8_lossy(&self.body);
        let is_stream = self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let last = if is_stream {
            body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back()
        } else {
            Some(&*body)
        };
        last.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns the first text of a tool result.
    fn text(&self) -> String {
        self.json()["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }

    fn is_error(&self) -> bool {
        self.json()["result"]["isError"] == json!(true)
    }

    /// Checks what holds for every response: no server error, no sniffing or caching, valid UTF-8, no internal details.
    fn check_common(&self, at: &str) {
        assert!(self.status < 500, "{at}");
        let body = std::str::from_utf8(&self.body).unwrap_or_else(|_| panic!("not UTF-8: {at}"));
        assert!(self.header("server").is_none(), "a name of ours: {at}");
        for inside in
            ["/src/", ".rs:", "panicked", "serde", "tokio", "hyper", "toolgate_wire", "stack backtrace"]
        {
            assert!(!body.contains(inside), "{inside:?} in {at}");
        }
        if !self.body.is_empty() {
            assert_eq!(self.header("x-content-type-options").as_deref(), Some("nosniff"), "{at}");
            assert!(self.header("cache-control").is_some_and(|cache| cache.contains("no-store")), "{at}");
            assert!(self.header("content-type").is_some_and(|kind| !kind.contains("html")), "{at}");
        }
    }
}

/// Decodes a chunked body, as far as it was received.
fn decode_chunks(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunks.windows(2).position(|window| window == b"\r\n") {
        let size =
            std::str::from_utf8(&chunks[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let data = &chunks[end + 2..];
        let Some(size) = size.filter(|size| *size > 0 && *size + 2 <= data.len()) else {
            break;
        };
        body.extend(&data[..size]);
        chunks = &data[size + 2..];
    }
    body
}

fn clip(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}

async fn read_to_end(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut answer = Vec::new();
    let reading = async {
        let mut chunk = vec![0; 64 << 10];
        while let Ok(n @ 1..) = stream.read(&mut chunk).await {
            answer.extend_from_slice(&chunk[..n]);
        }
    };
    let ended = tokio::time::timeout(RESPONSE_TIMEOUT, reading).await;
    assert!(ended.is_ok(), "the connection stays open after {:?}", clip(&answer));
    answer
}

/// Reads until this text is received.
async fn read_until(stream: &mut (impl AsyncReadExt + Unpin), text: &str) -> String {
    let mut answer = Vec::new();
    let reading = async {
        let mut chunk = vec![0; 16 << 10];
        while !String::from_utf8_lossy(&answer).contains(text) {
            let n = stream.read(&mut chunk).await.expect("the connection holds");
            assert!(n > 0, "closed before {text:?} came: {:?}", clip(&answer));
            answer.extend_from_slice(&chunk[..n]);
        }
    };
    let ended = tokio::time::timeout(RESPONSE_TIMEOUT, reading).await;
    assert!(ended.is_ok(), "{text:?} never came, but {:?}", clip(&answer));
    String::from_utf8_lossy(&answer).into_owned()
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(ms(5)).await;
        }
    };
    assert!(tokio::time::timeout(RESPONSE_TIMEOUT, waiting).await.is_ok(), "never: {what}");
}

/// Returns the resident memory in MiB, where available. All tests share it: only a flood shows.
fn resident_mib() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|pages| pages.split(' ').nth(1)?.parse::<usize>().ok()).unwrap_or_default() * 4 / 1024
}
