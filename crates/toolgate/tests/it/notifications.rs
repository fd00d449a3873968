//! Change notifications, for sessions and subscriptions.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use http_body::Body as _;
use tower_service::Service;

use crate::fixture::{self, Options};
use crate::transcript_player::{self, HttpExchange};

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("feed").await;
}

/// A stalled connection is not read, so its body is not polled: it must not keep notifications from the stream that has
/// replaced it.
#[tokio::test]
async fn a_stalled_get_stream_does_not_block_its_successor() {
    let (server, _) = fixture::serve(&Options::default());
    let mut endpoint = server.clone().into_service();
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"cli","version":"0.1"}}}"#;
    let request = transcript_player::build_request("POST", "/mcp", &[], None, initialize.into()).unwrap();
    let mut welcome = HttpExchange::start(endpoint.clone(), request);
    let id = welcome.head().await.unwrap().headers["mcp-session-id"].to_str().unwrap().to_owned();
    let get = || {
        transcript_player::build_request(
            "GET",
            "/mcp",
            &[("mcp-session-id".into(), id.clone())],
            None,
            Vec::new(),
        )
        .unwrap()
    };

    let hanging = endpoint.call(get()).await.unwrap();
    let mut body = hanging.into_body();
    // Read once, so that it waits for changes; then never again.
    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending())).await;
    assert!(first, "nothing has changed yet");

    let mut second = HttpExchange::start(endpoint.clone(), get());
    assert_eq!(second.head().await.unwrap().status, 200);
    tokio::task::yield_now().await;
    server.notify().tools_changed();
    let notification = second.message().await;
    assert_eq!(notification.data, r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    assert_eq!(notification.id.as_deref(), Some("0-1"));
    drop(body);
}
