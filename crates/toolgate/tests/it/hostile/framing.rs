//! A: the framing of HTTP/1, through the whole server.

use super::*;

fn good_body() -> Vec<u8> {
    RawRequest::tool_call("echo", r#"{"message":"hidden"}"#).body
}

/// A request with these header lines and a valid call; the lines must contain its length.
fn raw_request(line: &str, lines: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{line}\r\nContent-Type: application/json\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n{lines}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Requests that hyper and the listener reject reach no tool, and one response closes the connection.
#[tokio::test]
async fn a01_to_a28_bad_framing_is_rejected_before_any_tool() {
    let server = TestServer::open().await;
    let body = good_body();
    let n = body.len();
    let post = "POST /mcp HTTP/1.1";
    let host = "Host: 127.0.0.1\r\n";
    let chunked = |size: &str| [size.as_bytes(), b"\r\n", &body, b"\r\n0\r\n\r\n"].concat();
    let hidden =
        [b"0\r\n\r\n".as_slice(), &raw_request(post, &format!("{host}Content-Length: {n}\r\n"), &body)]
            .concat();
    let rows: Vec<(&str, &[u16], Vec<u8>)> = vec![
        (
            "A01",
            &[400],
            raw_request(
                post,
                &format!("{host}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", hidden.len()),
                &hidden,
            ),
        ),
        (
            "A02",
            &[400],
            raw_request(post, &format!("{host}Transfer-Encoding: xchunked\r\n"), &chunked(&format!("{n:x}"))),
        ),
        (
            "A03",
            &[400],
            raw_request(
                post,
                &format!("{host}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
                &chunked(&format!("{n:x}")),
            ),
        ),
        (
            "A04",
            &[400],
            raw_request(post, &format!("{host}Content-Length: {n}\r\nContent-Length: 5\r\n"), &body),
        ),
        ("A05", &[400], raw_request(post, &format!("{host}Content-Length: +{n}\r\n"), &body)),
        ("A06", &[400], raw_request(post, &format!("{host}Transfer-Encoding: chunked\r\n"), &chunked("g"))),
        (
            "A06",
            &[400],
            raw_request(
                post,
                &format!("{host}Transfer-Encoding: chunked\r\n"),
                &chunked("fffffffffffffffff"),
            ),
        ),
        (
            "A07",
            &[400],
            raw_request(
                post,
                &format!("{host}Transfer-Encoding: chunked\r\n"),
                &chunked(&format!("{n:x};{}", "e".repeat(1 << 20))),
            ),
        ),
        ("A08", &[400], raw_request(post, "Host: 127.0.0.1\nX: y\r\n", &body)),
        ("A09", &[400], raw_request(post, &format!("{host}X-A : 1\r\nContent-Length: {n}\r\n"), &body)),
        ("A10", &[400], raw_request(post, &format!("Content-Length: {n}\r\n"), &body)),
        ("A10", &[400], raw_request(post, &format!("{host}{host}Content-Length: {n}\r\n"), &body)),
        ("A11", &[431], raw_request(post, &format!("{host}X: {}\r\n", "x".repeat(1 << 20)), &body)),
        ("A12", &[431], raw_request(post, &format!("{host}{}", "X: y\r\n".repeat(5000)), &body)),
        ("A13", &[414], raw_request(&format!("POST /{} HTTP/1.1", "x".repeat(200 << 10)), host, &body)),
        (
            "A17",
            &[400, 505],
            raw_request("POST /mcp HTTP/9.9", &format!("{host}Content-Length: {n}\r\n"), &body),
        ),
        (
            "A18",
            &[400],
            raw_request(
                "POST /mcp HTTP/1.0",
                &format!("{host}Transfer-Encoding: chunked\r\n"),
                &chunked(&format!("{n:x}")),
            ),
        ),
        (
            "A26",
            &[400],
            [
                b"POST /mcp HTTP/1.1\r\n\r\n".as_slice(),
                &raw_request(post, &format!("{host}Content-Length: {n}\r\n"), &body),
            ]
            .concat(),
        ),
        ("A28", &[0, 400], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("A28", &[0, 400], b"*1\r\n$4\r\nPING\r\n".to_vec()),
    ];
    for (row, statuses, bytes) in rows {
        let before = server.n_calls();
        let reply = RawResponse::read(&server.send(&bytes).await);
        let shown = clip(&bytes);
        assert!(statuses.contains(&reply.status), "{row}: {shown:?} answered by {reply:?}");
        assert!(reply.n_responses <= 1, "{row}: {reply:?}");
        assert_eq!(server.n_calls(), before, "{row}: a tool has run");
        reply.check_common(row);
        server.check_alive(row).await;
    }
}

#[tokio::test]
async fn a14_targets_in_other_forms() {
    let server = TestServer::open().await;
    let call = RawRequest::tool_call("echo", r#"{"message":"x"}"#);
    server.check("A14", &call.clone().with_target("http://evil.example/mcp"), 403, -32600).await;
    let reply = server.check("A14 own name", &call.clone().with_target("http://127.0.0.1/mcp"), 200, 0).await;
    assert_eq!(reply.text(), "x");
    for target in [
        "\0",
        "/mcp\0",
        "evil.example:80",
        "*",
        "/%00",
        "/mcp%00",
        "/%zz",
        "//mcp",
        "/mcp/../mcp",
        "/MCP",
        "/mcp2",
    ] {
        let before = server.n_calls();
        let reply = server.post(&call.clone().with_target(target)).await;
        assert!([400, 403, 404].contains(&reply.status), "A14 {target:?}: {reply:?}");
        assert_eq!(server.n_calls(), before, "A14 {target:?}: the tool has run");
        server.check_alive("A14").await;
    }
}

#[tokio::test]
async fn a15_other_methods() {
    let server = TestServer::open().await;
    let secret = "very-secret-value";
    for (verb, statuses) in [
        ("TRACE", &[405_u16][..]),
        ("PUT", &[405]),
        ("PATCH", &[405]),
        ("BREW", &[405]),
        ("OPTIONS", &[405]),
        ("HEAD", &[405]),
        ("CONNECT", &[400, 405]),
        ("post", &[400]),
    ] {
        let mut post = RawRequest::tool_call("echo", r#"{"message":"x"}"#).with("X-Secret", secret);
        post.method = verb.into();
        let before = server.n_calls();
        let reply = server.post(&post).await;
        assert!(statuses.contains(&reply.status), "A15 {verb}: {reply:?}");
        assert_eq!(reply.header("allow").is_some(), reply.status == 405, "A15 {verb}: {reply:?}");
        assert!(!format!("{reply:?}").contains(secret), "A15 {verb}: {reply:?}");
        assert_eq!(server.n_calls(), before, "A15 {verb}: the tool has run");
        server.check_alive("A15").await;
    }
}

#[tokio::test]
async fn a16_no_other_protocol_is_switched_to() {
    let server = TestServer::open().await;
    for (upgrade, more) in [
        ("websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
        ("h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
    ] {
        let (name, value) = more.split_once(": ").unwrap();
        let post = RawRequest::tool_call("echo", r#"{"message":"x"}"#)
            .set("Connection", "Upgrade, close")
            .with("Upgrade", upgrade)
            .with(name, value);
        let reply = server.check("A16", &post, 200, 0).await;
        assert_eq!((reply.text().as_str(), reply.n_responses), ("x", 1));
    }
}

#[tokio::test]
async fn a19_half_a_body_runs_nothing() {
    let server = TestServer::open().await;
    let post = RawRequest::tool_call("echo", r#"{"message":"x"}"#);
    for (row, bytes) in [
        ("A19", post.clone().with("Content-Length", (post.body.len() + 9).to_string()).bytes()),
        (
            "A19 chunked",
            [post.clone().with("Transfer-Encoding", "chunked").bytes(), b"40\r\n{\"half\"".to_vec()].concat(),
        ),
    ] {
        let mut stream = server.connect().await;
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let reply = RawResponse::read(&read_to_end(&mut stream).await);
        assert!([0, 400].contains(&reply.status), "{row}: {reply:?}");
        assert_eq!(server.n_calls(), 0, "{row}: the tool has run");
    }
    server.check_alive("A19").await;
}

#[tokio::test]
async fn a20_a25_a29_several_on_one_connection() {
    let server = TestServer::open().await;
    let open = |n: usize| {
        let body =
            RawRequest::tool_call("echo", &format!(r#"{{"message":"number {n}"}}"#)).without("Connection");
        body.bytes()
    };
    let last = RawRequest::tool_call("echo", r#"{"message":"last"}"#).bytes();
    let answers = server.send(&[open(0), open(1), open(2), open(3), last.clone()].concat()).await;
    let answers = String::from_utf8(answers).unwrap();
    let places: Vec<_> = ["number 0", "number 1", "number 2", "number 3", "last"]
        .iter()
        .map(|text| answers.find(text))
        .collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "A25: {answers}");

    let answers = server.send(&[open(0), b"garbage\r\n\r\n".to_vec()].concat()).await;
    let answers = String::from_utf8(answers).unwrap();
    assert!(answers.starts_with("HTTP/1.1 200") && answers.contains("HTTP/1.1 400"), "A20: {answers}");

    let mut stream = server.connect().await;
    stream.write_all(&last).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(RawResponse::read(&read_to_end(&mut stream).await).text(), "last", "A29");
    server.check_alive("A29").await;
}

#[tokio::test]
async fn a21_a22_a_long_body_is_rejected_by_its_announced_length() {
    let server = TestServer::open().await;
    let before = resident_mib();
    for expects in [false, true] {
        let mut post = RawRequest::tool_call("echo", "{}").with("Content-Length", (64_u64 << 20).to_string());
        if expects {
            post = post.with("Expect", "100-continue");
        }
        post.body.clear();
        let reply = server.check("A21 A22", &post, 413, -32600).await;
        assert_eq!(reply.n_responses, 1, "no `100 Continue`: {reply:?}");
    }
    assert!(resident_mib() < before + 160, "A22: {} MiB", resident_mib() - before);
}

#[tokio::test]
async fn a23_a_body_is_read_up_to_the_limit() {
    let server = TestServer::open().await;
    let limit = 4 << 20;
    let mut post = RawRequest::tool_call("echo", r#"{"message":"x"}"#);
    let blanks = |post: &mut RawRequest, length: usize| post.body.resize(length, b' ');
    blanks(&mut post, limit);
    assert_eq!(server.check("A23 at the limit", &post, 200, 0).await.text(), "x");
    blanks(&mut post, limit + 1);
    server.check("A23 one more", &post, 413, -32600).await;

    let before = resident_mib();
    let mut endless = RawRequest::tool_call("echo", "{}").with("Transfer-Encoding", "chunked").bytes();
    endless.truncate(endless.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4);
    let (mut read, mut write) = server.connect().await.into_split();
    let sending = tokio::spawn(async move {
        let chunk = [b"10000\r\n".as_slice(), &[b' '; 1 << 16], b"\r\n"].concat();
        let _ = write.write_all(&endless).await;
        while write.write_all(&chunk).await.is_ok() {}
    });
    let reply = RawResponse::read(&read_to_end(&mut read).await);
    assert_eq!(reply.status, 413, "A23 endless: {reply:?}");
    // Further input is discarded for a second, so that the response is not lost; then the connection closes.
    tokio::time::timeout(Duration::from_secs(3), sending)
        .await
        .expect("A23: the peer is hung up on")
        .unwrap();
    assert!(resident_mib() < before + 160, "A23: {} MiB", resident_mib() - before);
    server.check_alive("A23").await;
}

#[tokio::test]
async fn a24_nothing_is_inflated() {
    let server = TestServer::open().await;
    for coding in ["gzip", "identity", "br", "deflate, gzip", ""] {
        let post = RawRequest::tool_call("echo", r#"{"message":"x"}"#).with("Content-Encoding", coding);
        server.check("A24", &post, 415, -32600).await;
    }
    assert_eq!(server.n_calls(), 5, "only the good calls ran");
}

#[tokio::test]
async fn a27_the_body_of_a_get_is_ignored() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    for (post, statuses) in [
        (RawRequest::tool_call("echo", r#"{"message":"x"}"#), [405, 405]),
        (
            RawRequest::in_session(&session, call("1", "echo", r#"{"message":"x"}"#))
                .set("Accept", "application/json"),
            [406, 406],
        ),
        (RawRequest::in_session("nobody", call("1", "echo", r#"{"message":"x"}"#)), [404, 404]),
    ] {
        for verb in ["GET", "DELETE"] {
            let mut post = post.clone();
            post.method = verb.into();
            let before = server.n_calls();
            let reply = server.post(&post).await;
            assert!(statuses.contains(&reply.status) || verb == "DELETE", "A27 {verb}: {reply:?}");
            assert_eq!(reply.n_responses, 1, "A27 {verb}: {reply:?}");
            assert_eq!(server.n_calls(), before, "A27 {verb}: the tool has run");
            server.check_alive("A27").await;
        }
    }
}
