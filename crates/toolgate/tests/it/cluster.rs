//! Several processes with one store: two servers on listeners of their own, and clients whose requests go to either of
//! them.

mod get_streams;
mod hostile;
mod resume;
mod session;
mod store;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use toolgate::model::TaskSupport;
use toolgate::store::MemoryStore;
use toolgate::{Context, ElicitOutcome, Field, Form, HandlerError, Server};

use super::fixture::NamedSemaphores;
use store::FaultyStore;

const LEGACY: &str = "2025-11-25";
/// The time limit for everything in these tests.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

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

/// The features of the servers under test. Handlers and tests synchronize with semaphores, which both nodes share.
fn server(store: Arc<FaultyStore>, stage: &NamedSemaphores, who: &'static str) -> Server {
    let (waits, steps, floods) = (stage.clone(), stage.clone(), stage.clone());
    Server::new("nodes", "1.0.0")
        .store(store)
        .shutdown_timeout(ms(200))
        .page_size(2)
        .stream_after(ms(200))
        .sse_keep_alive(ms(500))
        .handler_timeout(Duration::from_secs(60))
        .tool("echo", |args: Message| async move { args.message })
        .tool("where", move || async move { who })
        .tool("ask", |cx: Context| async move {
            let form = Form::new("What is your name?").field("name", Field::text());
            Ok::<_, HandlerError>(match cx.elicit("name", form).await? {
                ElicitOutcome::Accept(values) => format!("hello {}", values["name"].as_str().unwrap_or("?")),
                ElicitOutcome::Decline | ElicitOutcome::Cancel => "no name".into(),
            })
        })
        .tool("wait", move |cx: Context| {
            let stage = waits.clone();
            async move {
                let _fate = DropSignal(stage.clone());
                cx.progress(1.0, "waiting").await;
                stage.add_permit("waiting");
                stage.acquire("go on").await;
                "waited"
            }
        })
        .tool("steps", move |args: Count, cx: Context| {
            let stage = steps.clone();
            async move {
                for step in 1..=args.n {
                    cx.info(&format!("step {step}")).await;
                    stage.add_permit("stepped");
                    stage.acquire("step").await;
                }
                format!("{} steps", args.n)
            }
        })
        .tool("let_go", |cx: Context| async move {
            cx.info("before").await;
            cx.release_connection(ms(20));
            tokio::time::sleep(ms(300)).await;
            "after"
        })
        .tool("flood", move |args: Count, cx: Context| {
            let stage = floods.clone();
            async move {
                stage.acquire("flood").await;
                let text = "x".repeat(10_000);
                for _ in 0..args.n {
                    cx.info(text.as_str()).await;
                    tokio::task::yield_now().await;
                }
                "flooded"
            }
        })
        .tool("visit", |cx: Context| async move {
            let visits: u64 = cx.session().get("visits").await?.unwrap_or(0) + 1;
            cx.session().set("visits", &visits).await?;
            Ok::<_, HandlerError>(visits)
        })
        .tool("work", || async { "worked" })
        .task(TaskSupport::Optional)
        .resource("fx://one", || async { "1" })
        .resource("fx://two", || async { "2" })
        .build()
        .unwrap()
}

/// Adds a permit when a handler is dropped.
struct DropSignal(NamedSemaphores);

impl Drop for DropSignal {
    fn drop(&mut self) {
        self.0.add_permit("gone");
    }
}

/// A server on a port of its own.
struct Node {
    address: SocketAddr,
    server: Server,
    task: JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Node {
    async fn open(server: Server) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = server.clone();
        let serving = tokio::spawn(async move { serving.serve(listener).await.unwrap() });
        Node { address, server, task: serving }
    }
}

/// Two nodes with one store.
struct TwoNodes {
    a: Node,
    b: Node,
    semaphores: NamedSemaphores,
    store: Arc<FaultyStore>,
}

impl TwoNodes {
    async fn open() -> TwoNodes {
        TwoNodes::with(FaultyStore::new(Arc::new(MemoryStore::new()))).await
    }

    async fn with(store: FaultyStore) -> TwoNodes {
        let store = Arc::new(store);
        let stage = NamedSemaphores::default();
        let (a, b) = (server(store.clone(), &stage, "A"), server(store.clone(), &stage, "B"));
        TwoNodes { a: Node::open(a).await, b: Node::open(b).await, semaphores: stage, store }
    }

    /// Returns the node for request number `n`.
    fn node_for(&self, n: usize) -> SocketAddr {
        if n.is_multiple_of(2) { self.a.address } else { self.b.address }
    }
}

/// A complete response.
#[derive(Debug)]
struct NodeResponse {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl NodeResponse {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// Returns the text of a tool result.
    fn text(&self) -> String {
        let last = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        let json: Value = last.map_or_else(|| self.json(), |data| serde_json::from_str(data).unwrap());
        json["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }
}

/// An event of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
struct StreamEvent {
    id: Option<String>,
    retry: Option<u64>,
    data: Option<Value>,
}

/// An open stream.
struct EventStream {
    reader: BufReader<TcpStream>,
    status: u16,
}

impl EventStream {
    /// Returns the next event with data; `None` at the end.
    async fn next(&mut self) -> Option<StreamEvent> {
        let next = async {
            loop {
                let event = self.read_event().await?;
                if event.data.is_some() {
                    return Some(event);
                }
            }
        };
        tokio::time::timeout(EVENT_TIMEOUT, next).await.expect("an event, or the end, in time")
    }

    /// Returns the next event of any kind; `None` at the end.
    async fn next_any(&mut self) -> Option<StreamEvent> {
        tokio::time::timeout(EVENT_TIMEOUT, self.read_event()).await.expect("an event, or the end, in time")
    }

    async fn read_event(&mut self) -> Option<StreamEvent> {
        let mut event = StreamEvent::default();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).await.unwrap_or(0) == 0 {
                return None;
            }
            // Lines that frame chunks are skipped; events begin and end with their chunk.
            let line = line.trim_end();
            if let Some(id) = line.strip_prefix("id: ") {
                event.id = Some(id.to_owned());
            } else if let Some(retry) = line.strip_prefix("retry: ") {
                event.retry = Some(retry.parse().unwrap());
            } else if let Some(data) = line.strip_prefix("data: ") {
                event.data = Some(serde_json::from_str(data).unwrap());
            } else if line.is_empty() && event != StreamEvent::default() {
                return Some(event);
            } else if line == "0" {
                return None;
            }
        }
    }
}

/// A client with a session.
#[derive(Clone, Debug)]
struct ClusterClient {
    session: String,
}

fn http_request(verb: &str, session: Option<&str>, more: &[(&str, &str)], body: &str) -> String {
    let mut head = format!(
        "{verb} /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: application/json\r\n",
        body.len()
    );
    if !more.iter().any(|(name, _)| *name == "Accept") {
        head += if verb == "GET" {
            "Accept: text/event-stream\r\n"
        } else {
            "Accept: application/json, text/event-stream\r\n"
        };
    }
    if let Some(session) = session {
        head += &format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {LEGACY}\r\n");
    }
    for (name, value) in more {
        head += &format!("{name}: {value}\r\n");
    }
    head + "\r\n" + body
}

async fn send(to: SocketAddr, bytes: &str) -> NodeResponse {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(EVENT_TIMEOUT, stream.read_to_end(&mut answer))
        .await
        .expect("a response in time")
        .unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|n| n.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    NodeResponse { status: status.unwrap_or(0), headers, body: body.to_owned() }
}

/// Opens a stream and reads its head.
async fn open_stream(to: SocketAddr, bytes: &str) -> EventStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream);
    let mut status = 0;
    loop {
        let mut line = String::new();
        tokio::time::timeout(EVENT_TIMEOUT, lines.read_line(&mut line))
            .await
            .expect("a head in time")
            .unwrap();
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].parse().unwrap();
        }
        if line.trim_end().is_empty() {
            return EventStream { reader: lines, status };
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is made where it is given")]
fn request(id: impl Into<Value>, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}).to_string()
}

#[allow(clippy::needless_pass_by_value, reason = "it is made where it is given")]
fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> String {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}))
}

fn initialize_request() -> String {
    let params = json!({
        "protocolVersion": LEGACY,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "t", "version": "1"},
    });
    request(0, "initialize", params)
}

async fn initialize(to: SocketAddr) -> ClusterClient {
    let reply = send(to, &http_request("POST", None, &[], &initialize_request())).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    ClusterClient { session: reply.headers["mcp-session-id"].clone() }
}

impl ClusterClient {
    async fn post(&self, to: SocketAddr, body: &str) -> NodeResponse {
        send(to, &http_request("POST", Some(&self.session), &[], body)).await
    }

    async fn post_stream(&self, to: SocketAddr, body: &str) -> EventStream {
        open_stream(to, &http_request("POST", Some(&self.session), &[], body)).await
    }

    async fn get(&self, to: SocketAddr, last: Option<&str>) -> EventStream {
        let more: Vec<_> = last.iter().map(|last| ("Last-Event-ID", *last)).collect();
        open_stream(to, &http_request("GET", Some(&self.session), &more, "")).await
    }

    async fn delete(&self, to: SocketAddr) -> NodeResponse {
        send(to, &http_request("DELETE", Some(&self.session), &[], "")).await
    }

    async fn echo_status(&self, to: SocketAddr) -> u16 {
        self.post(to, &call(1, "echo", json!({"message": "hi"}))).await.status
    }
}
