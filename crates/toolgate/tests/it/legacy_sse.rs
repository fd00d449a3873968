//! The legacy HTTP+SSE transport of the first protocol version.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service;

use crate::fixture::{self, Options};
use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("duplex").await;
}

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// Reads until `end` is received.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(end) {
        let mut buffer = [0; 4096];
        let read = tokio::time::timeout(std::time::Duration::from_secs(5), stream.read(&mut buffer)).await;
        let read = read.unwrap_or_else(|_| panic!("expected {end:?} in {seen:?}")).unwrap();
        assert_ne!(read, 0, "expected {end:?} in {seen:?}");
        seen.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    seen
}

#[tokio::test]
async fn on_its_own_listener_the_endpoint_is_absolute() {
    let (server, _) = fixture::serve(&Options::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener).await }
    });
    let mut stream = TcpStream::connect(address).await.unwrap();
    let get = "GET /sse HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
    stream.write_all(get.as_bytes()).await.unwrap();
    let opening = read_until(&mut stream, "session=").await;
    let opening =
        if opening.contains("\n\n") { opening } else { opening + &read_until(&mut stream, "\n").await };
    let path = opening.split("data: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    assert!(path.starts_with("/messages?session="), "{opening}");

    let mut post = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{PING}",
        PING.len()
    );
    post.write_all(request.as_bytes()).await.unwrap();
    assert!(transcript_player::read_to_end(post).await.starts_with("HTTP/1.1 202 "));
    read_until(&mut stream, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;

    // There is nothing else.
    let mut lost = TcpStream::connect(address).await.unwrap();
    lost.write_all(request.replace(&path, "/other").as_bytes()).await.unwrap();
    assert!(transcript_player::read_to_end(lost).await.starts_with("HTTP/1.1 404 "));
    server.shutdown();
    transcript_player::read_to_end(stream).await;
    serving.await.unwrap().unwrap();
}

/// Behind a router the service does not know its own path: the endpoint it announces is relative.
#[tokio::test]
async fn mounted_in_a_router_the_endpoint_is_relative() {
    let (server, _) = fixture::serve(&Options::default());
    let mut app: axum::Router = axum::Router::new().nest_service("/api/mcp", server.clone().into_service());
    let mut send = async |method: &str, path: &str, body: &str| {
        let request = transcript_player::build_request(method, path, &[], None, body.into()).unwrap();
        Service::call(&mut app, request).await.unwrap()
    };
    assert_eq!(send("POST", "/api/mcp", PING).await.status(), 200);
    assert_eq!(send("POST", "/elsewhere", PING).await.status(), 404);
    let stream = send("GET", "/api/mcp/sse", "").await;
    assert_eq!(stream.status(), 200);
    let mut body = Box::pin(stream.into_body());
    let mut next = async || {
        let frame = std::future::poll_fn(|cx| http_body::Body::poll_frame(body.as_mut(), cx)).await;
        String::from_utf8(frame.unwrap().unwrap().into_data().unwrap().to_vec()).unwrap()
    };
    let opening = next().await;
    let relative = opening.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned();
    assert!(relative.starts_with("messages?session="), "{opening}");
    // Resolved as a client does, against `/api/mcp/sse`.
    assert_eq!(send("POST", &format!("/api/mcp/{relative}"), PING).await.status(), 202);
    assert_eq!(next().await, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n");
}
