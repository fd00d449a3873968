//! E: sessions of the versions with a handshake.

use std::collections::HashSet;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use toolgate::Principal;
use tower_service::Service;

use super::*;

fn echo(session: &str) -> RawRequest {
    RawRequest::in_session(session, call("1", "echo", r#"{"message":"x"}"#))
}

fn with_method(mut post: RawRequest, verb: &str) -> RawRequest {
    post.method = verb.into();
    post
}

fn get(session: &str) -> RawRequest {
    RawRequest::empty("GET")
        .set("Accept", "text/event-stream")
        .with("Mcp-Session-Id", session)
        .with("MCP-Protocol-Version", LEGACY)
}

#[tokio::test]
async fn e01_ids_cannot_be_guessed() {
    let server = TestServer::open().await;
    let mut ids = HashSet::new();
    for _ in 0..16 {
        ids.insert(server.initialize().await);
    }
    assert_eq!(ids.len(), 16, "E01");
    for id in &ids {
        // 22 characters of base64 are 132 bits.
        assert!(id.len() >= 22 && id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "E01: {id}");
        let twins = ids.iter().filter(|other| other[..6] == id[..6]).count();
        assert_eq!(twins, 1, "E01: ids begin alike: {id}");
    }
    server.check_alive("E01").await;
}

#[tokio::test]
async fn e02_to_e07_invalid_ids() {
    let server = TestServer::open().await;
    let own = server.initialize().await;
    server.check("E02", &echo(&own).without("Mcp-Session-Id"), 400, -32600).await;
    let turned: String =
        own.chars()
            .map(|letter| {
                if letter.is_lowercase() { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
            })
            .collect();
    let list = format!("{own}, {own}");
    let long = "x".repeat(10 << 10);
    for guess in [
        "guess",
        "0",
        "../../etc/passwd",
        "' OR '1'='1",
        "",
        "x y",
        &own[1..],
        &format!("{own}x"),
        &turned,
        &list,
        &long,
    ] {
        server.check("E03", &echo(guess), 404, -32600).await;
        server.check("E03 GET", &get(guess), [404, 400], -32600).await;
        server.check("E03 DELETE", &with_method(get(guess), "DELETE"), [404, 400], -32600).await;
    }
    let mut bytes = echo("");
    bytes = bytes.set("Mcp-Session-Id", b"\xff\xfe\x80");
    server.check("E03", &bytes, [404, 400], -32600).await;
    server.check("E03 twice", &echo(&own).with("Mcp-Session-Id", &own), [404, 400], -32600).await;

    let initialize = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    );
    let reply = server
        .check("E04", &RawRequest::new(initialize).with("Mcp-Session-Id", "chosen-by-the-client"), 200, 0)
        .await;
    assert_ne!(reply.header("mcp-session-id").as_deref(), Some("chosen-by-the-client"), "E04");
    server.check("E04", &echo("chosen-by-the-client"), 404, -32600).await;

    let bare = echo(&own).without("Mcp-Session-Id");
    server
        .check(
            "E06 query",
            &bare.clone().with_target(&format!("/mcp?Mcp-Session-Id={own}&session={own}")),
            400,
            -32600,
        )
        .await;
    server.check("E06 cookie", &bare.with("Cookie", format!("Mcp-Session-Id={own}")), 400, -32600).await;

    for version in
        ["1999-01-01", "9999-99-99", "", "x", "2025-11-25, 2025-06-18", "\u{7f}", &"2".repeat(9 << 10)]
    {
        server.check("E07", &echo(&own).set("MCP-Protocol-Version", version), 400, [-32600, -32022, 0]).await;
    }
    server.check("E07 twice", &echo(&own).with("MCP-Protocol-Version", LEGACY), 400, [-32600, -32022]).await;
    server.check("the session is unharmed", &echo(&own), 200, 0).await;
}

#[tokio::test]
async fn e05_an_ended_session_is_over() {
    let server = TestServer::open().await;
    let (ended, other) = (server.initialize().await, server.initialize().await);
    server.check("E05", &with_method(get(&ended), "DELETE"), 204, 0).await;
    server.check("E05", &echo(&ended), 404, -32600).await;
    server.check("E05", &get(&ended), 404, -32600).await;
    server.check("E05", &with_method(get(&ended), "DELETE"), 404, -32600).await;
    server.check("E05", &with_method(get("unknown"), "DELETE"), 404, -32600).await;
    server.check("E05", &echo(&other), 200, 0).await;
    let reply = server.post(&echo(&ended)).await;
    assert_eq!(reply.body, server.post(&echo("unknown")).await.body, "E05: the same body for both");
}

#[tokio::test]
async fn e08_event_ids_of_other_sessions() {
    let server = TestServer::open().await;
    let (ours, theirs) = (server.initialize().await, server.initialize().await);
    // A stream of another session that could be resumed there.
    let body = call("7", "tell", r#"{"message":"for others"}"#).replacen(
        "\"name\"",
        "\"_meta\":{\"progressToken\":1},\"name\"",
        1,
    );
    let reply = server.post(&RawRequest::in_session(&theirs, body)).await;
    let id = clip(&reply.body)
        .lines()
        .find_map(|line| line.strip_prefix("id: "))
        .expect("it can be resumed")
        .to_owned();
    let long = "9".repeat(9 << 10);
    for place in [
        id.as_str(),
        "1-0",
        "garbage",
        "-1-0",
        "0-99999",
        "18446744073709551615-18446744073709551615",
        "99999999999999999999-1",
        "../../etc/passwd",
        "",
        &long,
    ] {
        let reply = server.check("E08", &get(&ours).with("Last-Event-ID", place), [400, 404], -32600).await;
        assert!(!clip(&reply.body).contains("for others"), "E08: {reply:?}");
    }
    let reply = server.check("E08 control", &get(&theirs).with("Last-Event-ID", id), 200, 0).await;
    assert!(clip(&reply.body).contains("for others"), "E08 control: {reply:?}");
    server.check("E08", &echo(&ours), 200, 0).await;
}

#[tokio::test]
async fn e09_many_get_streams() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    server.check("E09", &get(&session).set("Accept", "application/json"), 406, -32600).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        stream.write_all(&get(&session).without("Connection").bytes()).await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").await;
        assert!(
            ["HTTP/1.1 200", "HTTP/1.1 409", "HTTP/1.1 429"].iter().any(|line| head.starts_with(line)),
            "E09: {head}"
        );
        streams.push(stream);
    }
    server.check("E09", &echo(&session), 200, 0).await;
    // A change is sent on exactly one of them.
    server.server.notify().tools_changed();
    let mut n_told = 0;
    for stream in &mut streams {
        let mut chunk = [0; 4096];
        if let Ok(Ok(n @ 1..)) = tokio::time::timeout(ms(40), stream.read(&mut chunk)).await {
            n_told += usize::from(String::from_utf8_lossy(&chunk[..n]).contains("list_changed"));
        }
    }
    assert_eq!(n_told, 1, "E09");
    drop(streams);
    server.check("E09", &echo(&session), 200, 0).await;
}

#[tokio::test]
async fn e10_a_session_begins_once() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    let initialize = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    );
    server.check("E10", &RawRequest::in_session(&session, initialize), 200, -32602).await;
    server.check("E10", &echo(&session), 200, 0).await;
}

#[tokio::test]
async fn e11_abandoned_sessions() {
    let ran = Arc::new(AtomicUsize::new(0));
    let server = Server::new("few", "1.0.0")
        .tool("echo", |args: Message| async move { args.message })
        .max_sessions(50)
        .shutdown_timeout(ms(100))
        .build()
        .unwrap();
    let server = TestServer::serve(server, ran).await;
    let before = resident_mib();
    let first = server.initialize().await;
    server.check("E11", &echo(&first), 200, 0).await;
    for _ in 0..300 {
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let reply = server.post(&RawRequest::new(body)).await;
        assert_eq!(reply.status, 200, "E11: abandoned sessions make room: {reply:?}");
    }
    assert!(server.server.sessions().len() <= 50, "E11: the ceiling holds");
    assert!(resident_mib() < before + 160, "E11: {} MiB", resident_mib() - before);
    server.check("E11: a session in use goes on", &echo(&first), 200, 0).await;
}

/// Sends as a principal, which a layer in front sets on a request: no socket, the service itself.
pub(super) async fn send_as(
    server: &Server,
    who: &str,
    verb: &str,
    post: &RawRequest,
) -> (u16, Option<String>, Bytes) {
    let mut request = http::Request::builder().method(verb).uri("/").extension(Principal::new(who));
    for (name, value) in &post.headers {
        request = request.header(name, value.as_slice());
    }
    let request = request.body(Full::new(Bytes::from(post.body.clone()))).expect("a good request");
    let Ok(reply) = server.clone().into_service().call(request).await;
    let (status, session) = (reply.status().as_u16(), reply.headers().get("mcp-session-id").cloned());
    if status == 200 && verb == "GET" {
        return (status, None, Bytes::new());
    }
    let Ok(body) = reply.into_body().collect().await;
    (status, session.and_then(|id| id.to_str().map(str::to_owned).ok()), body.to_bytes())
}

#[tokio::test]
async fn e12_a_session_belongs_to_its_principal() {
    let server = fixture(&Arc::default());
    let initialize = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    );
    let (_, session, _) = send_as(&server, "ada", "POST", &RawRequest::new(initialize)).await;
    let session = session.expect("a session has an id");
    for verb in ["POST", "GET", "DELETE"] {
        let (status, _, stolen) = send_as(&server, "eve", verb, &echo(&session)).await;
        let (_, _, unknown) = send_as(&server, "eve", verb, &echo("unknown")).await;
        assert_eq!((status, stolen), (404, unknown), "E12 {verb}: as if it did not exist");
    }
    let (status, _, _) = send_as(&server, "ada", "POST", &echo(&session)).await;
    assert_eq!(status, 200, "E12: the owner is unharmed");
}

/// The legacy SSE transport has an id in its endpoint URL instead of a session id.
#[tokio::test]
async fn e03_legacy_sse_ids_cannot_be_guessed() {
    let server = TestServer::open().await;
    let mut stream = server.connect().await;
    let get = RawRequest::empty("GET").with_target("/sse").set("Accept", "text/event-stream");
    stream.write_all(&get.bytes()).await.unwrap();
    let opening = read_until(&mut stream, "\n\n").await;
    let address = opening.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().to_owned();
    assert!(address.len() >= "/messages?session=".len() + 22, "E01: {address}");
    let post = RawRequest::new(call("1", "echo", r#"{"message":"x"}"#));
    for guess in
        ["/messages", "/messages?", "/messages?session=", "/messages?session=guess", &format!("{address}x")]
    {
        server.check("E03", &post.clone().with_target(guess), 404, -32600).await;
    }
    let evil = post.clone().with_target(&address).with("Origin", "https://evil.example");
    server.check("G05", &evil, 403, -32600).await;
    server.check("control", &post.with_target(&address), 202, 0).await;
    drop(stream);
    server.check_alive("E03").await;
}
