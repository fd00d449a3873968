//! The listener over real sockets, with bytes as a hostile peer writes them.
//!
//! The service echoes bodies; its paths wait, ignore the body, or answer with a lot. Rows of the
//! catalogue are named in the tests.

mod http2;

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
use super::*;

/// Answers, and counts those it is in the middle of.
#[derive(Clone, Default)]
struct Echo {
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

    fn respond(&self, asked: RequestHead, body: RequestBody) -> BoxFuture<'static, Response<Full<Bytes>>> {
        self.running.fetch_add(1, Ordering::SeqCst);
        self.seen.fetch_add(1, Ordering::SeqCst);
        let (running, remote) = (RunningGuard(Arc::clone(&self.running)), self.remote);
        Box::pin(async move {
            assert!(remote.is_some());
            let path = asked.uri.path().to_owned();
            let body = match path.as_str() {
                "/wait" => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Bytes::from_static(b"waited")
                }
                "/hang" => std::future::pending().await,
                // Says where it runs, and leaves something behind there.
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
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

struct TestServer {
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

async fn start(options: Options) -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = Echo::default();
    let shutdown = CancellationToken::new();
    let (cores, counted) = (Workers::new(options.n_threads()).unwrap(), options.connections());
    let task = tokio::spawn({
        let (echo, shutdown) = (echo.clone(), shutdown.clone());
        async move {
            let served = serve(listener, echo, options, &cores, shutdown).await;
            cores.shutdown().await;
            served
        }
    });
    TestServer { address, echo, connections: counted, shutdown, task }
}

impl TestServer {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes and reads until the server closes.
    async fn send(&self, bytes: &[u8]) -> String {
        let (mut read, mut write) = self.connect().await.into_split();
        let bytes = bytes.to_vec();
        // A peer that is refused in the middle of its sending sees an error there, and the answer.
        let sent = tokio::spawn(async move {
            let _ = write.write_all(&bytes).await;
            write
        });
        let answer = read_to_close(&mut read).await;
        sent.abort();
        answer
    }

    /// Checks that bytes are refused with this status, once, and the connection is closed.
    async fn check(&self, status: u16, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let answer = self.send(bytes).await;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
        let wanted = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&wanted), "{shown:?} answered by {answer:?}");
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{shown:?}: {answer:?}");
    }
}

async fn read_to_close(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut answer = Vec::new();
    let read = async {
        let mut chunk = [0; 4096];
        while let Ok(n) = stream.read(&mut chunk).await {
            if n == 0 {
                break;
            }
            answer.extend_from_slice(&chunk[..n]);
        }
    };
    tokio::time::timeout(Duration::from_secs(5), read).await.expect("the server closes in time");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads until this text has come, for connections that stay open.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut answer = String::new();
    let read = async {
        let mut chunk = [0; 4096];
        while !answer.contains(text) {
            let n = stream.read(&mut chunk).await.unwrap();
            assert!(n > 0, "closed after {answer:?}");
            answer.push_str(&String::from_utf8_lossy(&chunk[..n]));
        }
    };
    tokio::time::timeout(Duration::from_secs(5), read).await.expect("an answer in time");
    answer
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..400 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n{body}")
}

fn close(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test]
async fn a_good_request_is_served() {
    let server = start(Options::default()).await;
    let answer = server.send(post("Content-Length: 5\r\n", "hello").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
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
    let answer = server.send(garbage.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("HTTP/1.1 400 "), "{answer}");

    let good = close("/");
    server.check(400, format!("GET / HTTP/1.1\r\nHost: a b\r\n\r\n{good}")).await;
}

#[tokio::test]
async fn a21_continue_is_sent_only_to_those_whose_body_is_read() {
    let server = start(Options::default()).await;
    let mut stream = server.connect().await;
    let head = "Content-Length: 2\r\nExpect: 100-continue\r\n";
    stream.write_all(post(head, "").as_bytes()).await.unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 100 "));
    stream.write_all(b"ok").await.unwrap();
    assert!(read_until(&mut stream, "ok").await.contains("HTTP/1.1 200 OK"));

    let refused = post(head, "").replace("POST /", "POST /refuse");
    let answer = server.send(refused.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(!answer.contains("100 Continue"), "{answer}");
}

#[tokio::test]
async fn a25_pipelined_requests_are_answered_in_order() {
    let server = start(Options::default()).await;
    let mut all = String::new();
    for n in 0..4 {
        all += &format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n<\n\nnumber{n}");
    }
    all += &post("Content-Length: 10\r\n", "<\n\nnumber4");
    let answer = server.send(all.as_bytes()).await;
    let order: Vec<_> = answer.match_indices("number").map(|(at, _)| &answer[at + 6..=at + 6]).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4"], "{answer}");
}

#[tokio::test]
async fn a28_other_protocols() {
    let server = start(Options::default()).await;
    server.check(400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    server.check(400, "*1\r\n$4\r\nPING\r\n").await;
    server.check(400, "EHLO example.com\r\n").await;
}

#[tokio::test]
async fn a29_a_half_closed_client_gets_its_answer() {
    let server = start(Options::default()).await;
    let mut stream = server.connect().await;
    let request = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert!(read_to_close(&mut stream).await.ends_with("waited"));
}

#[tokio::test]
async fn a_client_that_went_away_frees_its_request() {
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
async fn a_body_that_was_not_read_does_not_spoil_the_next_request() {
    let server = start(Options::default()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n").await.unwrap();
    read_until(&mut stream, "unread").await;
    // hyper may close here instead; what it must not be is a 400 to the second request.
    let _ = stream.write_all(format!("{{\n\n\n\n}}{}", close("/")).as_bytes()).await;
    let answer = read_to_close(&mut stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn z01_slow_heads_are_closed_however_they_drip() {
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
async fn limits_of_connections_hold_and_permits_come_back() {
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
    let answer = read_to_close(&mut busy).await;
    assert!(answer.ends_with("waited"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
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
        let answer = server.send(close("/").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"));
    }
    server.shutdown.cancel();
    let task = &mut server.task;
    tokio::time::timeout(Duration::from_secs(1), task).await.unwrap().unwrap().unwrap();
}

/// What a client reads, without what is different each time: the date, the order of fields, and whether an answer after
/// which the connection is closed says so.
fn normalized_responses(answer: &str) -> Vec<String> {
    let mut told = Vec::new();
    for piece in answer.split("HTTP/1.").skip(1) {
        let (head, body) = piece.split_once("\r\n\r\n").unwrap_or((piece, ""));
        let is_told = |line: &&str| !line.starts_with("date: ") && !line.starts_with("connection: ");
        let mut lines: Vec<_> = head.lines().filter(is_told).collect();
        lines[1..].sort_unstable();
        told.push(format!("{}\n\n{body}", lines.join("\n")));
    }
    told
}

#[tokio::test]
async fn both_ways_answer_alike() {
    let [lane, hyper] =
        [false, true].map(|is_fast_path_disabled| Options { is_fast_path_disabled, ..Options::default() });
    let servers = [start(lane).await, start(hyper).await];
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let big = "b".repeat(100_000);
    let posts = |length: usize| format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    let rows = [
        close("/"),
        post("Content-Length: 5\r\n", "hello"),
        post("Content-Length: 0\r\n", ""),
        format!("{get}{get}{}", close("/wait")),
        format!("{}one{}two{}", posts(3), posts(3), post("Content-Length: 5\r\n", "three")),
        format!("{}one{}", posts(3), post("Transfer-Encoding: chunked\r\n", "3\r\ntwo\r\n0\r\n\r\n")),
        format!("{}{big}{}", posts(100_000), close("/refuse")),
        format!("{}one{}", posts(3), post(&format!("Content-Length: {}\r\n", big.len()), &big)),
        format!("{}one{}{big}{}two{}", posts(3), posts(100_000), posts(3), close("/")),
        format!("\r\n\r\n{}", close("/")),
        format!("{get}HEAD / HTTP/1.1\r\nHost: a\r\n\r\n{}", close("/")),
        format!("{get}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        format!("{get}GET / HTTP/1.0\r\nHost: a\r\n\r\n"),
        format!("{get}GET / HTTP/1.1\nHost: a\n\n"),
        format!("{get}{}", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")),
        format!("{get}{}", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")),
        format!("{get}GET http://b/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        format!("{get}garbage\r\n\r\n"),
        format!("{}short", posts(50)),
        format!("{get}GET / HT"),
    ];
    for row in rows {
        // Whole, and in pieces that end anywhere.
        for size in [usize::MAX, 4000, 37] {
            if row.len() / size > 1000 {
                continue;
            }
            let mut answers = Vec::new();
            for server in &servers {
                let (mut read, mut write) = server.connect().await.into_split();
                let sending = async {
                    for piece in row.as_bytes().chunks(size) {
                        if write.write_all(piece).await.is_err() {
                            break;
                        }
                        tokio::task::yield_now().await;
                        if size < 100 {
                            tokio::time::sleep(ms(1)).await;
                        }
                    }
                    let _ = write.shutdown().await;
                };
                let ((), answer) = tokio::join!(sending, read_to_close(&mut read));
                answers.push(normalized_responses(&answer));
            }
            let shown: String = row.chars().take(300).collect();
            assert_eq!(answers[0], answers[1], "{shown:?} in pieces of {size}");
        }
    }
}

#[tokio::test]
async fn a_head_that_comes_in_pieces_stays_on_the_fast_path() {
    let server = start(Options::default().head_timeout(ms(300))).await;
    let mut stream = server.connect().await;
    for _ in 0..2 {
        for piece in ["POST / HTTP/1.1\r\nHo", "st: a\r\nContent-Le", "ngth: 5\r\n\r\nhe", "llo"] {
            stream.write_all(piece.as_bytes()).await.unwrap();
            tokio::time::sleep(ms(20)).await;
        }
        read_until(&mut stream, "hello").await;
    }
    // And it must not drip for ever.
    let begin = Instant::now();
    stream.write_all(b"POST / HT").await.unwrap();
    assert_eq!(read_to_close(&mut stream).await, "");
    assert!(begin.elapsed() > ms(250) && begin.elapsed() < ms(1500), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn what_is_wrong_already_is_not_waited_for() {
    let server = start(Options::default().max_head(8192)).await;
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(10_000));
    let twice = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n";
    for (status, head) in [(431, long.as_str()), (400, twice), (400, "GET / HTTP/1.1\nHost: a\r\n")] {
        let mut stream = server.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        // Neither a blank line nor an end follows.
        assert!(read_to_close(&mut stream).await.starts_with(&format!("HTTP/1.1 {status} ")), "{status}");
    }
}

#[tokio::test]
async fn a_body_that_nobody_wanted_does_not_end_the_connection_if_it_is_short() {
    let server = start(Options::default()).await;
    let mut stream = server.connect().await;
    let head = "POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(ms(50)).await;
        stream.write_all(b"{}").await.unwrap();
        assert!(!read_until(&mut stream, "waited").await.contains("connection: close"));
    }
}

#[test]
fn pauses_grow_to_a_second_and_no_further() {
    let mut pause = AcceptBackoff::default();
    let all: Vec<_> = (0..9).map(|_| pause.next_delay().as_millis()).collect();
    assert_eq!(all, [16, 32, 64, 128, 256, 512, 1000, 1000, 1000]);
}

/// Each thread has its share of connections, and keeps them. What is left there ends with the listener.
#[tokio::test]
async fn connections_are_shared_out_among_threads() {
    let server = start(Options::default().threads(3)).await;
    let mut connections = Vec::new();
    for _ in 0..12 {
        let mut stream = server.connect().await;
        stream.write_all(b"GET /thread HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let answer = read_until(&mut stream, ").").await;
        let thread = answer.rsplit("\r\n").next().unwrap().to_owned();
        assert!(thread.starts_with("ThreadId("), "{answer:?}");
        connections.push((stream, thread));
    }
    let mut each = std::collections::BTreeMap::new();
    for (_, thread) in &connections {
        *each.entry(thread.as_str()).or_insert(0) += 1;
    }
    assert_eq!(each.values().collect::<Vec<_>>(), [&4; 3], "{each:?}");
    for (stream, thread) in &mut connections {
        stream.write_all(b"GET /thread HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(read_until(stream, ").").await.ends_with(&*thread));
    }
    // Those that are gone make room for others.
    let busy = format!("{:?}.", std::thread::current().id());
    connections.retain(|(_, thread)| *thread == busy);
    let counted = server.connections.clone();
    eventually("closed connections are noticed", || counted.open() == 4).await;
    for _ in 0..8 {
        let mut stream = server.connect().await;
        stream.write_all(b"GET /thread HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(!read_until(&mut stream, ").").await.ends_with(&busy));
        connections.push((stream, String::new()));
    }
    assert_eq!(server.echo.running.load(Ordering::SeqCst), 32, "all of it is still there");
    server.shutdown.cancel();
    let running = Arc::clone(&server.echo.running);
    eventually("what ran on other threads is gone", || running.load(Ordering::SeqCst) == 8).await;
    // Whoever does not wait for the end ends them as well.
    let again = start(Options::default().threads(2)).await;
    let mut stream = again.connect().await;
    stream.write_all(b"GET /thread HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(!read_until(&mut stream, ").").await.ends_with(&busy), "who accepts has the smallest share");
    let running = Arc::clone(&again.echo.running);
    drop(again);
    eventually("what ran there is gone", || running.load(Ordering::SeqCst) == 0).await;
}

/// Requests on all threads are let finish, and new connections are not taken.
#[tokio::test]
async fn threads_drain_together() {
    let mut server = start(Options::default().threads(2)).await;
    let mut waiting = Vec::new();
    for _ in 0..6 {
        let mut stream = server.connect().await;
        stream.write_all(close("/wait").as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    let running = Arc::clone(&server.echo.running);
    eventually("all are served", || running.load(Ordering::SeqCst) == 6).await;
    server.shutdown.cancel();
    for mut stream in waiting {
        assert!(read_to_close(&mut stream).await.ends_with("waited"));
    }
    tokio::time::timeout(Duration::from_secs(5), &mut server.task).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}
