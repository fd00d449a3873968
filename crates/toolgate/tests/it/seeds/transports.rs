//! The same server over HTTP, over stdio, and in process.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use toolgate::Server;
use toolgate::testing::{TestClient, TestVersion};

use super::{EventLog, PING, echo_server, post, tool};

#[tokio::test]
async fn s1_021_one_server_over_http_and_lines() {
    let server = echo_server("s");
    for version in TestVersion::all() {
        let lines = TestClient::new(&server, version);
        let http = TestClient::new(&server, version).over_http();
        let (before, after) = (lines.tools().await.len(), http.tools().await.len());
        assert_eq!(before, after);
        server.add_tool(tool(format!("later-{version}").leak())).unwrap();
        assert_eq!((lines.tools().await.len(), http.tools().await.len()), (before + 1, before + 1));
    }
}

/// One line in, one line out.
async fn send_line(server: &Server, request: &str) -> Value {
    let (output, answers) = tokio::io::duplex(1 << 16);
    let request = format!("{request}\n");
    let (served, line) = tokio::join!(server.serve_io(request.as_bytes(), output), async {
        let mut line = String::new();
        BufReader::new(answers).read_line(&mut line).await.unwrap();
        line
    });
    served.unwrap();
    serde_json::from_str(&line).unwrap()
}

async fn count_events(names: &str) -> (usize, usize) {
    let server = echo_server("s");
    let events = EventLog::default();
    server
        .events()
        .on(names, {
            let events = events.clone();
            move |event| events.push(event.name())
        })
        .unwrap();
    assert_eq!(post(&server, &[], PING).await.status, 200);
    let over_http = events.len();
    assert_eq!(send_line(&server, PING).await["result"], json!({}));
    (over_http, events.len() - over_http)
}

#[tokio::test]
async fn s1_034_stdio_and_http_emit_the_same_events() {
    assert_eq!(count_events("onMCPRequest").await, (1, 1));
}

#[tokio::test]
async fn s1_208_and_those_of_answers_too() {
    assert_eq!(count_events("onMCPRequest,onMCPResponse").await, (2, 2));
    assert_eq!(count_events("onMCPError").await, (0, 0));
}

#[tokio::test]
async fn s1_035_a_server_notifies_by_itself() {
    let server = echo_server("s");
    let (mut client, service) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(service);
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve_io(input, output).await }
    });
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" },
    } });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    client.write_all(format!("{initialize}\n{ready}\n{PING}\n").as_bytes()).await.unwrap();
    let (read, mut write) = tokio::io::split(client);
    let mut lines = BufReader::new(read).lines();
    let mut next = async || -> Value {
        let line = tokio::time::timeout(std::time::Duration::from_secs(10), lines.next_line()).await;
        serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap()
    };
    next().await;
    next().await;
    server.add_tool(tool("later")).unwrap();
    let notice = next().await;
    assert_eq!(notice["method"], "notifications/tools/list_changed");
    assert!(notice.get("id").is_none());
    write.shutdown().await.unwrap();
    serving.await.unwrap().unwrap();
}
