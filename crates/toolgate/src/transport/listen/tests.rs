//! The listener over real sockets, with the bytes of a hostile peer.
//!
//! The service echoes bodies; its paths wait, ignore the body, or send a long response. The names of tests begin with
//! their rows in the catalogue of attacks.

mod http2;
mod threads;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::http2::{HEADERS, Http2Client};
use super::accept::AcceptBackoff;
use super::*;

/// Echoes request bodies, and counts the requests it is handling.
#[derive(Clone, Default)]
pub(super) struct Echo {
    running: Arc<AtomicUsize>,
    seen: Arc<AtomicUsize>,
    remote: Option<SocketAddr>,
}

struct RunningGuard(Arc<AtomicUsize>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Serve for Echo {
    type Body = Full<Bytes>;

    fn with_remote_addr(&self, remote: SocketAddr) -> Echo {
        Echo { remote: Some(remote), ..self.clone() }
    }

    fn respond(&self, head: RequestHead, body: RequestBody) -> BoxFuture<'static, Response<Full<Bytes>>> {
        self.running.fetch_add(1, Ordering::SeqCst);
        self.seen.fetch_add(1, Ordering::SeqCst);
        let (running, remote) = (RunningGuard(Arc::clone(&self.running)), self.remote);
        Box::pin(async move {
            assert!(remote.is_some());
            let path = head.uri.path().to_owned();
            let body = match path.as_str() {
                "/wait" => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Bytes::from_static(b"waited")
                }
                "/hang" => std::future::pending().await,
                // Responds with its thread, and leaves a task running there.
                "/thread" => {
                    tokio::spawn(async move {
                        let _running = running;
                        std::future::pending::<()>().await;
                    });
                    return Response::new(Full::new(Bytes::from(format!(
                        "{:?}.",
                        std::thread::current().id()
                    ))));
                }
                "/refuse" => Bytes::from_static(b"unread"),
                "/big" => Bytes::from(vec![b'x'; 16 << 20]),
                _ => match body.collect().await {
                    Ok(body) => body.to_bytes(),
                    Err(_) => return status(StatusCode::BAD_REQUEST),
                },
            };
            Response::new(Full::new(body))
        })
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

pub(super) struct TestServer {
    address: SocketAddr,
    echo: Echo,
    connections: Connections,
    shutdown: CancellationToken,
    task: JoinHandle<io::Result<()>>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn start(options: Options) -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = Echo::default();
    let shutdown = CancellationToken::new();
    let (workers, connections) = (Workers::new(options.n_threads()).unwrap(), options.connections());
    let task = tokio::spawn({
        let (echo, shutdown) = (echo.clone(), shutdown.clone());
        async move {
            let served = serve(listener, echo, options, &workers, shutdown).await;
            workers.shutdown().await;
            served
        }
    });
    TestServer { address, echo, connections, shutdown, task }
}

impl TestServer {
    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes and reads until the server closes.
    async fn send(&self, bytes: &[u8]) -> String {
        let (mut read, mut write) = self.connect().await.into_split();
        let bytes = bytes.to_vec();
        // A peer that is rejected while it sends sees an error there, and the response.
        let sent = tokio::spawn(async move {
            let _ = write.write_all(&bytes).await;
            write
        });
        let response = read_to_close(&mut read).await;
        sent.abort();
        response
    }

    /// Checks that bytes are rejected with this status, once, and that the connection is closed.
    async fn check(&self, status: u16, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let response = self.send(bytes).await;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
        let wanted = format!("HTTP/1.1 {status} ");
        assert!(response.starts_with(&wanted), "{shown:?} got {response:?}");
        assert_eq!(response.matches("HTTP/1.").count(), 1, "{shown:?}: {response:?}");
    }
}

pub(super) async fn read_to_close(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut response = Vec::new();
    let read = async {
        let mut chunk = [0; 4096];
        while let Ok(n) = stream.read(&mut chunk).await {
            if n == 0 {
                break;
            }
            response.extend_from_slice(&chunk[..n]);
        }
    };
    tokio::time::timeout(Duration::from_secs(5), read).await.expect("the server closes in time");
    String::from_utf8_lossy(&response).into_owned()
}

/// Reads until this text has arrived, for connections that stay open.
pub(super) async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut response = String::new();
    let read = async {
        let mut chunk = [0; 4096];
        while !response.contains(text) {
            let n = stream.read(&mut chunk).await.unwrap();
            assert!(n > 0, "closed after {response:?}");
            response.push_str(&String::from_utf8_lossy(&chunk[..n]));
        }
    };
    tokio::time::timeout(Duration::from_secs(5), read).await.expect("an response in time");
    response
}

pub(super) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..400 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

pub(super) fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n{body}")
}

pub(super) fn close(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test]
async fn a_good_request_is_served() {
    let server = start(Options::default()).await;
    let response = server.send(post("Content-Length: 5\r\n", "hello").as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nhello"), "{response}");
    let chunked = post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n");
    assert!(server.send(chunked.as_bytes()).await.ends_with("hello"));
}

#[tokio::test]
async fn a01_a05_two_lengths_and_bad_lengths() {
    let server = start(Options::default()).await;
    let hidden = "0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: identity, chunked, x\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: chunked;q=1x\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 a\r\n",
        "Content-Length: 1e2\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999999\r\n",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{hidden}");
        server.check(400, request).await;
    }
    assert_eq!(server.echo.seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a06_a07_bad_chunks_are_errors_of_the_body() {
    let server = start(Options::default()).await;
    let extension = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(1 << 20));
    for body in [
        "11111111111111111\r\n",
        "-1\r\n",
        "\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "g\r\n",
        "5\nhello\n0\n\n",
        extension.as_str(),
    ] {
        server.check(400, post("Transfer-Encoding: chunked\r\n", body)).await;
    }
}

#[tokio::test]
async fn a08_a09_broken_lines() {
    let server = start(Options::default()).await;
    server.check(400, "GET / HTTP/1.1\nHost: a\n\n").await;
    server.check(400, "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n").await;
    server.check(400, "GET / HTTP/1.1\r\nHost: a\r\n\n").await;
    for line in ["X-A : 1", "X-A: \0", "X-A: a\rb", "X A: 1", ": 1", "X: 1\r\n Transfer-Encoding: chunked"] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
        server.check(400, head).await;
    }
    server.check(400, b"GET / HTTP/1.1\r\nHost: a\r\nX\xff: 1\r\n\r\n").await;
}

#[tokio::test]
async fn a10_hosts() {
    let server = start(Options::default()).await;
    server.check(400, "GET / HTTP/1.1\r\n\r\n").await;
    server.check(400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n").await;
    for host in ["a b", "a:99999999", ":99999999", "a:port", "[::1", "", "/..", "user@", "user@a"] {
        server.check(400, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    }
    assert_eq!(server.echo.seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a11_a13_large_heads() {
    let server = start(Options::default()).await;
    let line = "a".repeat(1 << 20);
    server.check(431, format!("GET / HTTP/1.1\r\nHost: a\r\nX: {line}\r\n\r\n")).await;
    let lines = "X: 1\r\n".repeat(5000);
    server.check(431, format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")).await;
    for length in [9 << 10, 60 << 10, 200 << 10] {
        let target = "a".repeat(length);
        server.check(414, format!("GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
    }
}

#[tokio::test]
async fn a17_a18_versions() {
    let server = start(Options::default()).await;
    for version in ["HTTP/1.2", "HTTP/9.9", "HTTP/2.0", "http/1.1", "HTTP/1.1x"] {
        server.check(400, format!("GET / {version}\r\nHost: a\r\n\r\n")).await;
    }
    let old = server.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    assert!(old.starts_with("HTTP/1.0 200 OK"), "{old}");
    assert!(!old.contains("chunked"), "{old}");
    server.check(400, "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn a19_a20_a26_bodies_cut_short_and_garbage() {
    let server = start(Options::default()).await;
    let mut stream = server.connect().await;
    stream.write_all(post("Content-Length: 50\r\n", "short").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert!(read_to_close(&mut stream).await.starts_with("HTTP/1.1 400 "));

    let garbage = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nokgarbage\r\n\r\n";
    let response = server.send(garbage.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.contains("HTTP/1.1 400 "), "{response}");

    let good = close("/");
    server.check(400, format!("GET / HTTP/1.1\r\nHost: a b\r\n\r\n{good}")).await;
}

#[tokio::test]
async fn a21_continue_is_sent_only_if_the_body_is_read() {
    let server = start(Options::default()).await;
    let mut stream = server.connect().await;
    let head = "Content-Length: 2\r\nExpect: 100-continue\r\n";
    stream.write_all(post(head, "").as_bytes()).await.unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 100 "));
    stream.write_all(b"ok").await.unwrap();
    assert!(read_until(&mut stream, "ok").await.contains("HTTP/1.1 200 OK"));

    let refused = post(head, "").replace("POST /", "POST /refuse");
    let response = server.send(refused.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(!response.contains("100 Continue"), "{response}");
}

#[tokio::test]
async fn a25_pipelined_requests_are_answered_in_order() {
    let server = start(Options::default()).await;
    let mut all = String::new();
    for n in 0..4 {
        all += &format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n<\n\nnumber{n}");
    }
    all += &post("Content-Length: 10\r\n", "<\n\nnumber4");
    let response = server.send(all.as_bytes()).await;
    let order: Vec<_> = response.match_indices("number").map(|(at, _)| &response[at + 6..=at + 6]).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4"], "{response}");
}

#[tokio::test]
async fn a28_other_protocols() {
    let server = start(Options::default()).await;
    server.check(400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    server.check(400, "*1\r\n$4\r\nPING\r\n").await;
    server.check(400, "EHLO example.com\r\n").await;
}

#[tokio::test]
async fn a29_a_half_closed_client_gets_its_response() {
    let server = start(Options::default()).await;
    let mut stream = server.connect().await;
    let request = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert!(read_to_close(&mut stream).await.ends_with("waited"));
}

#[tokio::test]
async fn a_disconnected_client_cancels_its_request() {
    let server = start(Options::default().linger(ms(100))).await;
    for reset in [false, true] {
        let mut stream = server.connect().await;
        if reset {
            stream.set_zero_linger().unwrap();
        }
        stream.write_all(close("/hang").as_bytes()).await.unwrap();
        let running = Arc::clone(&server.echo.running);
        eventually("running", || running.load(Ordering::SeqCst) == 1).await;
        drop(stream);
        eventually("freed", || running.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn an_unread_body_is_not_parsed_as_the_next_request() {
    let server = start(Options::default()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n").await.unwrap();
    read_until(&mut stream, "unread").await;
    // hyper may close here instead; the second request must not be answered with 400.
    let _ = stream.write_all(format!("{{\n\n\n\n}}{}", close("/")).as_bytes()).await;
    let response = read_to_close(&mut stream).await;
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 200 OK"), "{response}");
}

#[tokio::test]
async fn z01_slow_heads_are_closed_even_if_they_make_progress() {
    let server = start(Options::default().head_timeout(ms(300))).await;
    let begin = Instant::now();
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HT").await.unwrap();
    let (mut read, mut write) = server.connect().await.into_split();
    let drip = tokio::spawn(async move {
        for byte in b"GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" {
            if write.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(ms(50)).await;
        }
    });
    assert_eq!(read_to_close(&mut slow).await, "");
    assert_eq!(read_to_close(&mut read).await, "");
    drip.abort();
    let took = begin.elapsed();
    assert!(took > ms(250) && took < ms(1500), "{took:?}");
}

#[tokio::test]
async fn z03_idle_connections_live_longer_than_slow_heads_and_end() {
    let options = Options::default().head_timeout(ms(100)).idle_timeout(ms(400));
    let server = start(options).await;
    let mut stream = server.connect().await;
    let mut silent = server.connect().await;
    for _ in 0..2 {
        // Longer than a head may take, and not as long as silence may.
        tokio::time::sleep(ms(250)).await;
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request).await.unwrap();
        read_until(&mut stream, "\r\n\r\n").await;
    }
    let begin = Instant::now();
    assert_eq!(read_to_close(&mut stream).await, "");
    let took = begin.elapsed();
    assert!(took > ms(300) && took < ms(1500), "{took:?}");
    assert_eq!(read_to_close(&mut silent).await, "");
}

#[tokio::test]
async fn f05_a_peer_that_does_not_read_is_dropped() {
    let server = start(Options::default().write_timeout(ms(200))).await;
    let mut stream = server.connect().await;
    stream.write_all(close("/big").as_bytes()).await.unwrap();
    tokio::time::sleep(ms(700)).await;
    assert!(read_to_close(&mut stream).await.len() < 16 << 20);
}

#[tokio::test]
async fn connection_limits_hold_and_permits_are_released() {
    let server = start(Options::default().max_connections_per_ip(2)).await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    for stream in [&mut first, &mut second] {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request).await.unwrap();
        read_until(stream, "\r\n\r\n").await;
    }
    assert_eq!(read_to_close(&mut server.connect().await).await, "");
    drop(first);
    let mut served = String::new();
    for _ in 0..100 {
        served = server.send(close("/").as_bytes()).await;
        if !served.is_empty() {
            break;
        }
    }
    assert!(served.starts_with("HTTP/1.1 200 OK"), "{served}");
}

#[tokio::test]
async fn y05_drain_finishes_what_is_in_flight() {
    let mut server = start(Options::default()).await;
    let mut idle = server.connect().await;
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    idle.write_all(request).await.unwrap();
    read_until(&mut idle, "\r\n\r\n").await;
    let mut busy = server.connect().await;
    let request = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n";
    busy.write_all(request).await.unwrap();
    let running = Arc::clone(&server.echo.running);
    eventually("running", || running.load(Ordering::SeqCst) == 1).await;

    server.shutdown.cancel();
    assert_eq!(read_to_close(&mut idle).await, "");
    let response = read_to_close(&mut busy).await;
    assert!(response.ends_with("waited"), "{response}");
    assert!(response.contains("connection: close"), "{response}");
    (&mut server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn y05_drain_drops_what_does_not_finish() {
    let mut server = start(Options::default().shutdown_timeout(ms(200))).await;
    let mut one = server.connect().await;
    one.write_all(close("/hang").as_bytes()).await.unwrap();
    let mut two = Http2Client::connect(&server).await;
    two.request(1, "/hang", &[]).await;
    let running = Arc::clone(&server.echo.running);
    eventually("running", || running.load(Ordering::SeqCst) == 2).await;

    let begin = Instant::now();
    server.shutdown.cancel();
    (&mut server.task).await.unwrap().unwrap();
    let took = begin.elapsed();
    assert!(took > ms(150) && took < ms(1000), "{took:?}");
    assert_eq!(running.load(Ordering::SeqCst), 0);
    assert!(two.next(HEADERS).await.is_none());
}

#[tokio::test]
async fn many_connections_end_clean() {
    let mut server = start(Options::default()).await;
    for _ in 0..200 {
        let response = server.send(close("/").as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 200 OK"));
    }
    server.shutdown.cancel();
    let task = &mut server.task;
    tokio::time::timeout(Duration::from_secs(1), task).await.unwrap().unwrap().unwrap();
}

#[test]
fn the_delay_after_failed_accepts_grows_to_a_second() {
    let mut backoff = AcceptBackoff::default();
    let all: Vec<_> = (0..9).map(|_| backoff.next_delay().as_millis()).collect();
    assert_eq!(all, [16, 32, 64, 128, 256, 512, 1000, 1000, 1000]);
}
