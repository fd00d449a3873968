//! G: origins, hosts and content types. I01: the same over HTTP/2.

use super::*;

fn echo() -> RawRequest {
    RawRequest::tool_call("echo", r#"{"message":"x"}"#)
}

#[tokio::test]
async fn g01_g02_g05_foreign_origins() {
    let server = TestServer::open().await;
    let long = format!("http://{}", "x".repeat(5 << 10));
    let mut origins: Vec<&[u8]> = [
        "null",
        "file://",
        "https://evil.example",
        "http://evil.example:80",
        "http://127.0.0.1.evil.example",
        "http://localhost.evil.example",
        "http://evil.example/127.0.0.1",
        "http://127.0.0.1@evil.example",
        "http://evil@127.0.0.1",
        "http://user:pass@localhost",
        "http://127.0.0.2",
        "http://127.1",
        "http://2130706433",
        "http://[::ffff:127.0.0.1]",
        "http://0.0.0.0",
        "http://xn--lcalhost-r4a.example",
        "http://locаlhost",
        "chrome-extension://abcdef",
        "ftp://localhost",
        "http://localhost:99999",
        "http://localhost:",
        "http://localhost/",
        "localhost",
        "",
        "*",
        "http://localhost http://evil.example",
        "http://localhost, http://evil.example",
        "http://%zz",
        "http://localhost#",
        "http://localhost?x",
    ]
    .map(str::as_bytes)
    .to_vec();
    origins.extend([b"http://\xff\xfe".as_slice(), long.as_bytes()]);
    for origin in &origins {
        let reply = server.check("G01 G02", &echo().with("Origin", origin), 403, -32600).await;
        assert!(reply.header("access-control-allow-origin").is_none(), "G01: {reply:?}");
        assert!(reply.body.len() < 1000, "G02: {} bytes", reply.body.len());
    }
    server
        .check(
            "G02 twice",
            &echo().with("Origin", "http://localhost").with("Origin", "http://localhost"),
            403,
            -32600,
        )
        .await;
    assert_eq!(server.n_calls(), origins.len() + 1, "only the good calls ran");
    for verb in ["GET", "DELETE", "OPTIONS", "PUT"] {
        let post = RawRequest::empty(verb)
            .with("Origin", "https://evil.example")
            .with("Access-Control-Request-Method", "POST");
        let reply = server.check("G05", &post, 403, -32600).await;
        assert!(!reply.head.to_ascii_lowercase().contains("access-control-allow"), "G05: {reply:?}");
    }
    for target in ["/sse", "/messages?session=x", "/nowhere"] {
        let reply = server
            .check(
                "G05",
                &RawRequest::empty("GET").with_target(target).with("Origin", "https://evil.example"),
                403,
                -32600,
            )
            .await;
        assert!(!reply.head.to_ascii_lowercase().contains("access-control-allow"), "G05: {reply:?}");
    }
    for own in ["http://localhost", "http://127.0.0.1:9999", "http://[::1]:1", "https://localhost:8443"] {
        server.check("G01 control", &echo().with("Origin", own), 200, 0).await;
    }
}

#[tokio::test]
async fn g03_g04_foreign_hosts() {
    let server = TestServer::open().await;
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.2",
        "0.0.0.0",
        "2130706433",
        "[::2]",
        "127.1",
    ] {
        server.check("G03", &echo().set("Host", host), 403, -32600).await;
        server
            .check("G03 SSE", &RawRequest::empty("GET").with_target("/sse").set("Host", host), 403, -32600)
            .await;
    }
    server
        .check("G04", &echo().set("Host", "evil.example").with("Origin", "http://evil.example"), 403, -32600)
        .await;
    let post = echo()
        .set("Host", "evil.example")
        .with("X-Forwarded-Host", "localhost")
        .with("Forwarded", "host=localhost");
    server.check("G04", &post, 403, -32600).await;
    let post = echo().with("X-Forwarded-Host", "evil.example").with("X-Original-Host", "evil.example");
    server.check("G04 ignored", &post, 200, 0).await;
    server.check("G03 control", &echo().set("Host", "LocalHost:1234"), 200, 0).await;
}

#[tokio::test]
async fn g06_to_g08_types() {
    let server = TestServer::open().await;
    for kind in [
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "*/*",
        "",
        "application/json-evil",
        "application/jsonp",
        "application/json; charset=utf-16",
        "application/json; charset=utf-8; charset=utf-16",
        "application/json, text/plain",
        "text/plain, application/json",
        "application/*",
        "text/json",
        "application/vnd.api+json",
        "application/json\u{b}",
    ] {
        server.check("G06 G07", &echo().set("Content-Type", kind), [415, 400], [-32600, 0]).await;
    }
    server.check("G06 none", &echo().without("Content-Type"), 415, -32600).await;
    server.check("G07 twice", &echo().with("Content-Type", "application/json"), 415, -32600).await;
    server.check("G07 twice", &echo().with("Content-Type", "text/plain"), 415, -32600).await;
    for accept in ["text/html", "image/png, text/html", "application/json;q=0, text/event-stream;q=0", ""] {
        server.check("G08", &echo().set("Accept", accept), 406, -32600).await;
    }
    assert_eq!(server.n_calls(), 23, "only the good calls ran");
}

#[tokio::test]
async fn g10_markup_is_never_markup() {
    let server = TestServer::open().await;
    let markup = "<script>alert(1)</script>";
    server.check("G10", &echo().with_target("/%3Cscript%3Ealert(1)%3C/script%3E"), 404, 0).await;
    let call = RawRequest::modern("tools/call", Some(markup), &format!(r#""name":"{markup}""#));
    let reply = server.check("G10", &call, 200, -32602).await;
    assert_eq!(reply.header("content-type").as_deref(), Some("application/json"), "G10");
    let reply = server
        .check(
            "G10",
            &echo().set("Host", "127.0.0.1").with("Origin", format!("http://{markup}")),
            403,
            -32600,
        )
        .await;
    assert_eq!(reply.header("content-type").as_deref(), Some("application/json"), "G10");
}

/// I01: hand-written frames, since hyper has no client here.
#[tokio::test]
async fn i01_the_authority_of_http2() {
    let server = TestServer::open().await;
    // As encoded by HPACK: indexed 200 and 400, and 403 in its Huffman code.
    let (ok, bad, forbidden): (&[u8], &[u8], &[u8]) = (&[0x88], &[0x8c], &[0x48, 0x82, 0x68, 0x0c, 0xff]);
    for (authority, host, expected) in [
        ("127.0.0.1", None, vec![ok]),
        ("127.0.0.1", Some("127.0.0.1"), vec![ok]),
        ("evil.example", None, vec![forbidden, &forbidden[..1]]),
        ("evil.example", Some("127.0.0.1"), vec![bad, forbidden]),
        ("127.0.0.1", Some("evil.example"), vec![bad, forbidden]),
        ("user@127.0.0.1", None, vec![bad]),
        ("127.0.0.1@evil.example", None, vec![bad]),
    ] {
        let before = server.n_calls();
        let status = http2(&server, authority, host).await;
        let row = format!("I01 {authority} {host:?}: {status:x?}");
        // `None`: the stream was reset, or the connection closed.
        assert!(
            status.as_ref().is_none_or(|status| expected.iter().any(|expected| status.starts_with(expected))),
            "{row}"
        );
        assert_eq!(status.is_some_and(|status| status.starts_with(ok)), expected[0] == ok, "{row}");
        assert_eq!(server.n_calls() - before, usize::from(expected[0] == ok), "{row}");
        server.check_alive("I01").await;
    }
}

/// Returns the header block of the response to one call.
async fn http2(server: &TestServer, authority: &str, host: Option<&str>) -> Option<Vec<u8>> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let field = |name: &str, value: &str| {
        let length = |text: &str| u8::try_from(text.len()).expect("a short text");
        [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
    };
    let post = echo();
    // `:method: POST`, `:scheme: http`.
    let mut block = vec![0x83, 0x86];
    block.extend(field(":authority", authority));
    block.extend(field(":path", "/mcp"));
    for (name, value) in
        post.headers.iter().filter(|(name, _)| !["Host", "Connection"].contains(&name.as_str()))
    {
        block.extend(field(&name.to_ascii_lowercase(), std::str::from_utf8(value).expect("a text")));
    }
    block.extend(host.map(|host| field("host", host)).unwrap_or_default());
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let bytes = [preface, frame(4, 0, 0, &[]), frame(1, 4, 1, &block), frame(0, 1, 1, &post.body)].concat();
    let mut stream = server.connect().await;
    stream.write_all(&bytes).await.expect("the server reads");
    let reading = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.ok()?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            stream.read_exact(&mut payload).await.ok()?;
            match head[3] {
                1 => return Some(payload),
                // RST_STREAM, GOAWAY.
                3 | 7 => return None,
                _ => {}
            }
        }
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, reading).await.expect("a response in time")
}
