//! Named servers from outside: who tells whom, and what may not wait for what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use toolgate::{Events, Server, Servers};

#[tokio::test]
async fn describing_one_server_may_ask_for_others() {
    let servers = Servers::new();
    let inner = servers.clone();
    let made = tokio::task::spawn_blocking(move || {
        inner.server_with("a", |builder| {
            assert!(!inner.has("b"));
            inner.server("b");
            builder
        })
    });
    tokio::time::timeout(Duration::from_secs(5), made).await.expect("nobody waits for themselves").unwrap();
    assert_eq!(servers.names(), ["b", "a"]);
}

#[tokio::test]
async fn a_server_tells_all_that_were_promised_to_hear() {
    let (own, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mine = Events::new();
    let counted = Arc::clone(&own);
    mine.on_request(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let servers = Servers::new();
    let counted = Arc::clone(&all);
    servers.events().on_request(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let server = Server::new("both", "1").events(&mine).tool("x", || async { "x" }).build().unwrap();
    servers.add(&server).unwrap();
    server.handle(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await.unwrap();
    assert_eq!((own.load(Ordering::SeqCst), all.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn a_server_is_replaced_in_one_step() {
    let servers = Servers::new();
    let first = servers.server("a");
    let second = servers.replace_with("a", |builder| builder.tool("new", || async { "x" }));
    assert!(!first.ptr_eq(&second) && servers.server("a").ptr_eq(&second));
    assert!(servers.server("a").has_tool("new"));
}
