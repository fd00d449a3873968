//! F: concurrency, slow readers and broken connections. Y: handlers that panic or hang.

use std::task::Poll;
use std::time::Instant;

use super::*;

#[tokio::test]
async fn f01_one_id_for_everyone() {
    let server = TestServer::open().await;
    let clients = (0..24).map(|client| {
        let server = &server;
        async move {
            let session = if client % 2 == 0 { Some(server.initialize().await) } else { None };
            for n in 0..15 {
                let expected = format!("client {client} call {n}");
                let arguments = format!(r#"{{"message":"{expected}"}}"#);
                let post = match &session {
                    Some(session) => RawRequest::in_session(session, call("1", "tell", &arguments)),
                    None => RawRequest::tool_call("tell", &arguments),
                };
                assert_eq!(server.post(&post).await.text(), expected, "F01");
            }
        }
    });
    join_all(clients).await;
    server.check_alive("F01").await;
}

#[tokio::test]
async fn f02_one_id_in_one_session() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    let calls = (0..30).map(|n| {
        let (server, session) = (&server, &session);
        async move {
            let post = RawRequest::in_session(session, call("1", "slow", &format!(r#"{{"n":{}}}"#, 20 + n)));
            let reply = server.post(&post).await;
            let own = reply.text() == format!("slept {}", 20 + n);
            let refused = reply.status == 400 && reply.json()["error"]["code"] == json!(-32600);
            assert!(own || refused, "F02: {reply:?}");
            assert_eq!(reply.json()["id"], json!(1), "F02: {reply:?}");
        }
    });
    join_all(calls).await;
    server.check_alive("F02").await;
}

#[tokio::test]
async fn f03_f04_results_cannot_write_events_or_headers() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    for text in [
        "a\n\nevent: evil\ndata: {}\n\n",
        "a\r\n\r\nHTTP/1.1 200 OK\r\nX-Evil: 1\r\n\r\n",
        "a\r\rdata: x\r\r",
        "\u{2028}\u{2029}\u{85}",
        ": comment\nid: 9\nretry: 1\n",
    ] {
        let arguments = json!({ "message": text }).to_string();
        let meta = format!(
            r#""_meta":{{"progressToken":"t","io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{{}}}}"#
        );
        let modern = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"tell","arguments":{arguments},{meta}}}}}"#
        );
        let legacy = call("1", "tell", &arguments).replacen(
            "\"name\"",
            "\"_meta\":{\"progressToken\":\"t\"},\"name\"",
            1,
        );
        for post in [
            RawRequest::modern_raw("tools/call", Some("tell"), modern),
            RawRequest::in_session(&session, legacy),
        ] {
            let reply = server.check("F03 F04", &post, 200, 0).await;
            assert_eq!(reply.header("content-type").as_deref(), Some("text/event-stream"), "{reply:?}");
            assert_eq!(reply.text(), text, "F03: the text is whole");
            assert!(reply.header("x-evil").is_none(), "F04: {reply:?}");
            let body = String::from_utf8(reply.body).unwrap();
            let events = body.split("\n\n").filter(|event| event.contains("data: ")).count();
            assert_eq!(events, 2, "F03: progress and result: {body:?}");
            for line in body.split(['\n', '\r']) {
                let known = ["", "event: message", "data:"].contains(&line)
                    || ["data: {", "id: ", "retry: 1000", ": still"]
                        .iter()
                        .any(|start| line.starts_with(start));
                assert!(known && line != "id: 9", "F03: {line:?}");
            }
        }
    }
}

#[tokio::test]
async fn f05_unread_responses() {
    let server = TestServer::open().await;
    let before = resident_mib();
    let mut unread = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        stream.write_all(&RawRequest::tool_call("big", r#"{"n":1048576}"#).bytes()).await.unwrap();
        unread.push(stream);
    }
    let begin = Instant::now();
    server.check_alive("F05").await;
    assert!(begin.elapsed() < Duration::from_secs(4), "F05: {:?}", begin.elapsed());
    assert!(resident_mib() < before + 320, "F05: {} MiB", resident_mib() - before);
    drop(unread);
    server.check_alive("F05").await;
}

#[tokio::test]
async fn f06_to_f08_resets_idlers_and_streams() {
    let server = TestServer::open().await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(server.connect().await);
    }
    for n in 0..100 {
        let mut stream = server.connect().await;
        let post = if n % 2 == 0 {
            RawRequest::tool_call("slow", r#"{"n":5000}"#)
        } else {
            RawRequest::new(call("1", "slow", r#"{"n":50}"#))
        };
        stream.write_all(&post.bytes()).await.unwrap();
        stream.set_zero_linger().unwrap();
    }
    let session = server.initialize().await;
    let mut streams = Vec::new();
    for n in 0..100 {
        let mut stream = server.connect().await;
        let post = match n % 2 {
            0 => RawRequest::modern(
                "subscriptions/listen",
                None,
                r#""notifications":{"toolsListChanged":true}"#,
            ),
            _ => {
                RawRequest::empty("GET").with("Mcp-Session-Id", &session).with("MCP-Protocol-Version", LEGACY)
            }
        };
        stream.write_all(&post.without("Connection").bytes()).await.unwrap();
        streams.push(stream);
    }
    server.check_alive("F06 to F08").await;
    drop(streams);
    // Idle connections are closed.
    for mut stream in idle {
        assert!(read_to_end(&mut stream).await.is_empty(), "F07");
    }
    server.check_alive("F06 to F08").await;
}

#[tokio::test]
async fn f09_heavy_bodies_do_not_starve_a_good_call() {
    let server = TestServer::open().await;
    let heavy = RawRequest::new(format!("[{}", "[".repeat(1 << 20)));
    let good = async {
        let mut worst = Duration::ZERO;
        for _ in 0..20 {
            let begin = Instant::now();
            server.check_alive("F09").await;
            worst = worst.max(begin.elapsed());
        }
        worst
    };
    let attack = async {
        loop {
            join_all((0..4).map(|_| server.post(&heavy))).await;
        }
    };
    let worst = tokio::select! { worst = good => worst, () = attack => Duration::MAX };
    assert!(worst < SHORT_TIMEOUT, "F09: {worst:?}");
}

/// A call is cancelled when its client disconnects, in versions that define it so.
#[tokio::test]
async fn f06_a_disconnected_call_is_cancelled() {
    let left = Arc::new(AtomicUsize::new(0));
    let server = {
        let left = Arc::clone(&left);
        Server::new("left", "1.0.0")
            .tool("echo", |args: Message| async move { args.message })
            .tool("wait", move |cx: Context| {
                let left = Arc::clone(&left);
                async move {
                    let gone = DropCounter(left);
                    cx.progress(0.0, None).await;
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    drop(gone);
                    "done"
                }
            })
            .shutdown_timeout(ms(100))
            .build()
            .unwrap()
    };
    let server = TestServer::serve(server, Arc::default()).await;
    for _ in 0..10 {
        let mut stream = server.connect().await;
        stream.write_all(&RawRequest::tool_call("wait", "{}").bytes()).await.unwrap();
        tokio::time::sleep(ms(10)).await;
        stream.set_zero_linger().unwrap();
    }
    eventually("F06: ten calls are dropped", || left.load(Ordering::SeqCst) == 10).await;
    server.check_alive("F06").await;
}

struct DropCounter(Arc<AtomicUsize>);

impl Drop for DropCounter {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn y01_handlers_that_panic() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    join_all((0..100).map(|n| {
        let (server, session) = (&server, &session);
        async move {
            let post = match n % 3 {
                0 => RawRequest::tool_call("panic", r#"{"n":1}"#),
                1 => RawRequest::in_session(session, call("1", "panic", r#"{"n":1}"#)),
                _ => RawRequest::new(call("1", "panic", r#"{"n":1}"#)),
            };
            let reply = server.post(&post).await;
            assert!(reply.status == 200 && reply.is_error(), "Y01: {reply:?}");
            assert!(!clip(&reply.body).contains("secret"), "Y01: {reply:?}");
            reply.check_common("Y01");
        }
    }))
    .await;
    let reply = server.check("Y01", &RawRequest::tool_call("panic", r#"{"n":0}"#), 200, 0).await;
    assert_eq!(reply.text(), "stood", "Y01");
}

#[tokio::test]
async fn y02_handlers_that_hang() {
    let server = TestServer::open().await;
    let hanging = join_all((0..100).map(|_| server.post(&HANG_CALL)));
    let meanwhile = async {
        tokio::time::sleep(ms(20)).await;
        let begin = Instant::now();
        server.check_alive("Y02").await;
        assert!(begin.elapsed() < SHORT_TIMEOUT, "Y02: {:?}", begin.elapsed());
    };
    let (replies, ()) = tokio::join!(hanging, meanwhile);
    for reply in replies {
        assert!(reply.is_error() && reply.text().contains("timeout"), "Y02: {reply:?}");
    }
    server.check_alive("Y02").await;
}

/// The timeout also applies to a handler that never awaits for long.
#[tokio::test]
async fn y02_handlers_that_never_yield() {
    let server = Server::new("restless", "1.0.0")
        .tool("echo", |args: Message| async move { args.message })
        .tool("spin", || async {
            loop {
                tokio::task::consume_budget().await;
            }
            #[allow(unreachable_code)]
            ""
        })
        .timeout(ms(100))
        .shutdown_timeout(ms(100))
        .build()
        .unwrap();
    let server = TestServer::serve(server, Arc::default()).await;
    let reply = server.check("Y02", &RawRequest::tool_call("spin", "{}"), 200, 0).await;
    assert!(reply.is_error() && reply.text().contains("timeout"), "Y02: {reply:?}");
}

static HANG_CALL: std::sync::LazyLock<RawRequest> =
    std::sync::LazyLock::new(|| RawRequest::tool_call("hang", "{}"));

/// Y05, as far as one process can: calls in flight finish, streams end, the port is closed.
#[tokio::test]
async fn y05_draining() {
    let mut server = TestServer::open().await;
    let mut listening = server.connect().await;
    let listen =
        RawRequest::modern("subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    listening.write_all(&listen.bytes()).await.unwrap();
    read_until(&mut listening, "acknowledged").await;
    let slow = RawRequest::tool_call("slow", r#"{"n":200}"#);
    let slow = join_all((0..50).map(|_| server.post(&slow)));
    let end = async {
        eventually("all calls are under way", || server.n_calls() == 50).await;
        server.server.shutdown();
    };
    let (replies, ()) = tokio::join!(slow, end);
    for reply in replies {
        assert_eq!(reply.text(), "slept 200", "Y05: {reply:?}");
    }
    let ended = String::from_utf8_lossy(&read_to_end(&mut listening).await).into_owned();
    assert!(ended.contains("\"result\""), "Y05: the stream ends with its response: {ended}");
    tokio::time::timeout(RESPONSE_TIMEOUT, &mut server.task).await.expect("Y05: it ends").unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "Y05: the port is closed");
}

async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
