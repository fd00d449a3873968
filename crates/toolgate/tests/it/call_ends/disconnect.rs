//! Clients that hang up: over HTTP/1, HTTP/2 and stdio.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use toolgate::testing::{TestClient, TestVersion, http_request};

use super::{Recorded, arguments};

#[tokio::test]
async fn a_client_with_a_session_may_hang_up_and_its_call_ends_later() {
    for version in TestVersion::all().filter(|version| version.has_handshake()) {
        let recorded = Recorded::new();
        let client = TestClient::new(&recorded.server, version).over_http();
        let call = client.call("act", arguments(7, "wait")).start();
        recorded.semaphores.acquire("started").await;
        drop(call);
        assert!(recorded.events.lock().unwrap().tool_ends.is_empty(), "{version}: it runs on");
        for id in 0..4 {
            client.notify("notifications/cancelled", json!({ "requestId": id })).await;
        }
        recorded.semaphores.acquire("dropped").await;
        recorded.wait_idle().await;
        assert_eq!(recorded.events.lock().unwrap().tool_ends[&7], ["cancelled"], "{version}");
        recorded.check();
    }
}

#[tokio::test]
async fn a_call_on_stdio_ends_when_the_client_goes_away() {
    for version in TestVersion::all() {
        let recorded = Recorded::new();
        let (mut client, server_io) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(server_io);
        let server = recorded.server.clone();
        let serving = tokio::spawn(async move { server.serve_io(input, output).await });
        let mut params = json!({ "name": "act", "arguments": arguments(1, "wait") });
        if version.has_handshake() {
            let hello = json!({
                "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                    "protocolVersion": version.date(), "capabilities": {},
                    "clientInfo": { "name": "t", "version": "0" },
                },
            });
            client.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
        } else {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": version.date(),
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        client.write_all(format!("{call}\n").as_bytes()).await.unwrap();
        recorded.semaphores.acquire("started").await;
        serving.abort();
        recorded.semaphores.acquire("dropped").await;
        recorded.wait_idle().await;
        assert_eq!(recorded.events.lock().unwrap().tool_ends[&1], ["cancelled"], "{version}");
        recorded.check();
    }
}

/// The body of a call of a client without a session: of the newest version, or of one that names none.
fn sessionless_call(version: Option<&str>) -> String {
    let mut params = json!({ "name": "act", "arguments": arguments(1, "wait") });
    if let Some(version) = version {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
}

fn sessionless_headers(version: Option<&'static str>) -> Vec<(&'static str, &'static str)> {
    let mut headers = Vec::new();
    if let Some(version) = version {
        headers.extend([
            ("mcp-protocol-version", version),
            ("mcp-method", "tools/call"),
            ("mcp-name", "act"),
        ]);
    }
    headers
}

#[tokio::test]
async fn a_call_without_a_session_ends_when_its_client_hangs_up() {
    for version in [Some("2026-07-28"), None] {
        for accept in ["application/json", "application/json, text/event-stream"] {
            let recorded = Recorded::new();
            let mut headers = sessionless_headers(version);
            headers.push(("accept", accept));
            let request = http_request("POST", "/mcp", headers, sessionless_call(version));
            let client = TestClient::new(&recorded.server, TestVersion::newest()).over_http();
            let exchange = client.send(request);
            recorded.semaphores.acquire("started").await;
            drop(exchange);
            recorded.semaphores.acquire("dropped").await;
            recorded.wait_idle().await;
            assert_eq!(recorded.events.lock().unwrap().tool_ends[&1], ["cancelled"], "{version:?}, {accept}");
            recorded.check();
        }
    }
}

/// Over a socket. `transfer-encoding` is not for the fast path: such a request is served by hyper.
#[tokio::test]
async fn a_closed_http1_connection_ends_a_call_without_a_session() {
    for version in [Some("2026-07-28"), None] {
        for is_chunked in [false, true] {
            let recorded = Recorded::new();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = recorded.server.clone();
            let serving = tokio::spawn(async move { server.serve(listener).await });
            let mut socket = TcpStream::connect(address).await.unwrap();
            let mut head = format!(
                "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
                 accept: application/json, text/event-stream\r\n"
            );
            for (name, value) in sessionless_headers(version) {
                head += &format!("{name}: {value}\r\n");
            }
            let body = sessionless_call(version);
            let request = match is_chunked {
                true => {
                    format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
                }
                false => format!("{head}content-length: {}\r\n\r\n{body}", body.len()),
            };
            socket.write_all(request.as_bytes()).await.unwrap();
            recorded.semaphores.acquire("started").await;
            drop(socket);
            recorded.semaphores.acquire("dropped").await;
            recorded.wait_idle().await;
            assert_eq!(
                recorded.events.lock().unwrap().tool_ends[&1],
                ["cancelled"],
                "{version:?}, {is_chunked}"
            );
            recorded.check();
            serving.abort();
        }
    }
}

/// HTTP/2 with prior knowledge, frame by frame. The stream is reset, the connection stays open.
#[tokio::test]
async fn a_reset_http2_stream_ends_a_call_without_a_session() {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }
    for version in [Some("2026-07-28"), None] {
        let recorded = Recorded::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = recorded.server.clone();
        let serving = tokio::spawn(async move { server.serve(listener).await });
        let mut socket = TcpStream::connect(address).await.unwrap();
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[]));
        // HPACK: `:method: POST`, `:scheme: http`, and literal fields that are not indexed.
        let mut block = vec![0x83, 0x86];
        let host = address.to_string();
        let mut fields = vec![
            (":authority", &*host),
            (":path", "/mcp"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        fields.extend(sessionless_headers(version));
        for (name, value) in fields {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend(text.as_bytes());
            }
        }
        bytes.extend(frame(HEADERS, 4, 1, &block));
        bytes.extend(frame(DATA, 1, 1, sessionless_call(version).as_bytes()));
        socket.write_all(&bytes).await.unwrap();
        recorded.semaphores.acquire("started").await;
        // CANCEL
        socket.write_all(&frame(RST_STREAM, 0, 1, &8u32.to_be_bytes())).await.unwrap();
        recorded.semaphores.acquire("dropped").await;
        recorded.wait_idle().await;
        assert_eq!(recorded.events.lock().unwrap().tool_ends[&1], ["cancelled"], "{version:?}");
        recorded.check();
        let mut settings = [0; 9];
        socket.read_exact(&mut settings).await.unwrap();
        assert_eq!(settings[3], SETTINGS, "the connection was served");
        serving.abort();
    }
}

/// The HTTP+SSE transport of the first version: the stream is the session.
#[tokio::test]
async fn a_call_of_the_first_version_ends_with_its_event_stream() {
    let recorded = Recorded::new();
    let client = TestClient::new(&recorded.server, TestVersion::known("2024-11-05")).over_http();
    let mut stream = client.send(http_request("GET", "/sse", [("accept", "text/event-stream")], ""));
    let opening = stream.message().await;
    let path = format!("/{}", opening.data.trim_start_matches('/'));
    let hello = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" },
        },
    });
    for message in [hello.to_string(), sessionless_call(None)] {
        let posted = client.send(http_request("POST", &path, [("accept", "*/*")], message));
        assert_eq!(posted.fetch().await.unwrap().status, 202);
    }
    recorded.semaphores.acquire("started").await;
    stream.disconnect().await;
    recorded.semaphores.acquire("dropped").await;
    recorded.wait_idle().await;
    assert_eq!(recorded.events.lock().unwrap().tool_ends[&1], ["cancelled"]);
    recorded.check();
}
