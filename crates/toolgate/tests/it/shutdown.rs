//! Shutdown of a server, and misbehaving handlers; over real sockets where they matter.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use toolgate::Server;

use crate::fixture::{self, NamedSemaphores, Options};
use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("shutdown").await;
}

const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

async fn listen() -> (Server, NamedSemaphores, std::net::SocketAddr, JoinHandle<Result<(), toolgate::Error>>)
{
    let (server, semaphores) = fixture::serve(&Options::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener).await }
    });
    (server, semaphores, address, serving)
}

fn post(headers: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn modern(tool: &str) -> String {
    let headers =
        format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n");
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}},"_meta":{META}}}}}"#
    );
    post(&headers, &body)
}

async fn within_timeout<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(5), wait).await {
        Ok(done) => done,
        Err(_) => panic!("in time: {what}"),
    }
}

#[tokio::test]
async fn a_call_in_flight_is_answered_before_the_server_ends() {
    let (server, semaphores, address, serving) = listen().await;
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(modern("wait").as_bytes()).await.unwrap();
    within_timeout("the call begins", semaphores.acquire("started")).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(modern("plain").as_bytes()).await.unwrap();
    let read = within_timeout("an answer on the idle connection", idle.read(&mut [0; 4096])).await.unwrap();
    assert_ne!(read, 0);

    server.shutdown();
    assert_eq!(
        within_timeout("an idle connection is closed", transcript_player::read_to_end(idle)).await,
        ""
    );
    assert_eq!(semaphores.available_permits("dropped"), 0);
    semaphores.add_permit("go");
    let answer =
        within_timeout("the answer comes and the connection ends", transcript_player::read_to_end(busy))
            .await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(r#""text":"went""#), "{answer}");
    within_timeout("the server ends", serving).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn a_stream_is_closed_before_the_server_ends() {
    let (server, _, address, serving) = listen().await;
    let headers = "mcp-protocol-version: 2026-07-28\r\nmcp-method: subscriptions/listen\r\n";
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{META}}}}}"#
    );
    let mut listening = TcpStream::connect(address).await.unwrap();
    listening.write_all(post(headers, &body).as_bytes()).await.unwrap();
    let mut seen = String::new();
    while !seen.contains("subscriptions/acknowledged") {
        let mut buffer = [0; 4096];
        let read = within_timeout("the acknowledgement", listening.read(&mut buffer)).await.unwrap();
        assert_ne!(read, 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    server.shutdown();
    let rest = transcript_player::read_to_end(listening).await;
    assert!(rest.contains(r#""id":"L","result":{"resultType":"complete""#), "{rest}");
    within_timeout("the server ends", serving).await.unwrap().unwrap();
}

/// Disconnects, on a connection that really breaks.
#[tokio::test]
async fn a_broken_connection_cancels_a_modern_call_and_no_other() {
    let (server, semaphores, address, serving) = listen().await;
    let mut leaving = TcpStream::connect(address).await.unwrap();
    leaving.write_all(modern("wait").as_bytes()).await.unwrap();
    within_timeout("the modern call begins", semaphores.acquire("started")).await;
    drop(leaving);
    within_timeout("the modern handler is dropped", semaphores.acquire("dropped")).await;

    let mut leaving = TcpStream::connect(address).await.unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}"#;
    leaving.write_all(post("", body).as_bytes()).await.unwrap();
    within_timeout("the older call begins", semaphores.acquire("started")).await;
    drop(leaving);
    // The server notices the disconnect after a while; another request gives it that time.
    let mut other = TcpStream::connect(address).await.unwrap();
    other
        .write_all(modern("plain").replace("\r\nhost", "\r\nconnection: close\r\nhost").as_bytes())
        .await
        .unwrap();
    assert!(transcript_player::read_to_end(other).await.contains(r#""text":"plain""#));
    assert_eq!(semaphores.available_permits("dropped"), 0);
    // Shutdown waits for calls of disconnected clients.
    server.shutdown();
    semaphores.add_permit("go");
    within_timeout("the server ends", serving).await.unwrap().unwrap();
    assert_eq!((semaphores.available_permits("finished"), semaphores.available_permits("dropped")), (1, 0));
}
