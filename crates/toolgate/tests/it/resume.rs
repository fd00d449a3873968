//! Streams: when a response is one, and how it is resumed.

use toolgate::http::ServerService;

use crate::fixture::{self, Options};
use crate::transcript_player::{self, HttpExchange};

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("resume").await;
}

fn exchange(
    endpoint: &ServerService,
    method: &str,
    session: &str,
    last: Option<&str>,
    body: &str,
) -> HttpExchange {
    let mut headers = vec![("mcp-session-id".to_owned(), session.to_owned())];
    headers.extend(last.map(|last| ("last-event-id".to_owned(), last.to_owned())));
    let request = transcript_player::build_request(method, "/mcp", &headers, None, body.into()).unwrap();
    HttpExchange::start(endpoint.clone(), request)
}

/// A session keeps a bounded number of streams. Streams whose end was not delivered are kept longest.
#[tokio::test]
async fn finished_streams_are_removed_first() {
    let (server, semaphores) = fixture::serve(&Options::default());
    let endpoint = server.into_service();
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"cli","version":"0.1"}}}"#;
    let request = transcript_player::build_request("POST", "/mcp", &[], None, initialize.into()).unwrap();
    let mut welcome = HttpExchange::start(endpoint.clone(), request);
    let session = welcome.head().await.unwrap().headers["mcp-session-id"].to_str().unwrap().to_owned();

    let report = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"report","arguments":{"steps":1},"_meta":{"progressToken":1}}}"#;
    let mut long = exchange(&endpoint, "POST", &session, None, report);
    assert_eq!(long.message().await.id.as_deref(), Some("1-0"));
    assert_eq!(long.message().await.id.as_deref(), Some("1-1"));
    long.disconnect().await;

    let talk = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"talk"}}"#;
    for number in 2..=33 {
        let mut short = exchange(&endpoint, "POST", &session, None, talk);
        assert_eq!(short.message().await.id, Some(format!("{number}-0")));
        short.body().await.unwrap();
    }
    let mut forgotten = exchange(&endpoint, "GET", &session, Some("2-1"), "");
    assert_eq!(forgotten.head().await.unwrap().status, 400);
    let mut stored = exchange(&endpoint, "GET", &session, Some("3-2"), "");
    assert_eq!(stored.message().await.id.as_deref(), Some("3-3"));

    semaphores.add_permit("go");
    let mut resumed = exchange(&endpoint, "GET", &session, Some("1-1"), "");
    assert_eq!(resumed.head().await.unwrap().status, 200);
    let last = resumed.message().await;
    assert_eq!(last.id.as_deref(), Some("1-2"));
    assert!(last.data.contains("reported 1"), "{}", last.data);
}
