//! Named servers from outside: who tells whom, and what may not wait for what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use toolgate::testing::{Revision, TestClient};
use toolgate::{App, Events, Mount, Server, Servers};

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

/// A catalog is exchanged under a client that stays connected: calls under way end as they began, and of lists that look
/// the same nobody is told.
#[tokio::test]
async fn a_catalog_is_replaced_in_one_step() {
    for revision in Revision::all() {
        replace_catalog(revision).await;
    }
}

async fn replace_catalog(revision: Revision) {
    let (go, gate) = tokio::sync::watch::channel(false);
    let began = Arc::new(AtomicUsize::new(0));
    let begins = Arc::clone(&began);
    let shop = Server::new("shop", "1.0.0")
        .tool("slow", move || {
            let mut gate = gate.clone();
            begins.fetch_add(1, Ordering::SeqCst);
            async move {
                let _ = gate.wait_for(|open| *open).await;
                "old"
            }
        })
        .tool("hours", || async { "9 to 5" })
        .prompt("greet", || async { "Greet" })
        .build()
        .unwrap();
    let client = TestClient::new(shop.clone(), revision);
    client.listen().await;
    let calling = {
        let client = TestClient::new(shop.clone(), revision);
        tokio::spawn(async move { client.call("slow", json!({})).await.text() })
    };
    while began.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let next = Server::new("shop", "1.1.0")
        .tool("prices", || async { "low" })
        .tool("hours", || async { "always" })
        .prompt("greet", || async { "Greet" })
        .build()
        .unwrap();
    shop.replace_catalog(&next).unwrap();
    client.notice("notifications/tools/list_changed").await;
    let names: Vec<String> = client.tools().await.into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["prices", "hours"]);
    assert_eq!(client.call("hours", json!({})).await.text(), "always");
    assert_eq!(shop.version(), "1.1.0");
    let told: Vec<String> = client.notices().iter().map(|notice| notice.method().to_owned()).collect();
    assert!(
        !told.iter().any(|method| method.contains("prompts") || method.contains("resources")),
        "{told:?}"
    );
    go.send(true).unwrap();
    assert_eq!(calling.await.unwrap(), "old", "what was under way ends as it began");
}

#[tokio::test]
async fn a_catalog_that_needs_more_than_there_is_replaces_nothing() {
    let shop = Server::new("shop", "1.0.0").tool("hours", || async { "9 to 5" }).build().unwrap();
    let next = Server::new("shop", "2.0.0")
        .state(7_u32)
        .tool("seven", |seven: toolgate::State<u32>| async move { seven.to_string() })
        .build()
        .unwrap();
    assert!(shop.replace_catalog(&next).is_err());
    assert!(shop.has_tool("hours") && !shop.has_tool("seven") && shop.version() == "1.0.0");
}

#[tokio::test]
async fn mounts_are_replaced_while_they_are_served() {
    let servers = Servers::new();
    servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
    let app = App::new(&servers).mount("/a", Mount::fixed("shop")).health();
    let mounts = app.mounts();
    let mut service = app.into_service().unwrap();
    let mut status = async |method: &str, path: &str| {
        let body = http_body_util::Full::new(bytes::Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        ));
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        tower_service::Service::call(&mut service, request).await.unwrap().status().as_u16()
    };
    assert_eq!((status("POST", "/a").await, status("POST", "/b").await), (200, 404));
    mounts.replace([("/b", Mount::fixed("shop"))]).unwrap();
    assert_eq!((status("POST", "/a").await, status("POST", "/b").await), (404, 200));
    for wrong in [vec!["/b", "/b/"], vec!["b"]] {
        assert!(mounts.replace(wrong.into_iter().map(|path| (path, Mount::fixed("shop")))).is_err());
        assert_eq!(status("POST", "/b").await, 200, "nothing has changed");
    }
    assert_eq!((status("GET", "/health").await, status("GET", "/ready").await), (200, 200));
    assert_eq!(status("POST", "/health").await, 405);
}
