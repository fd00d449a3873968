//! A session that was opened on one node is served by all nodes.

use super::*;

#[tokio::test]
async fn any_node_answers_any_request_of_a_session() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    for n in 0..10 {
        let reply = client.post(pair.node_for(n), &call(1, "where", json!({}))).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, if n % 2 == 0 { "A" } else { "B" }));
    }
    // A cursor of one node is valid on the other.
    let first = client.post(pair.a.address, &request(2, "tools/list", json!({}))).await.json();
    let cursor = first["result"]["nextCursor"].clone();
    assert!(cursor.is_string(), "{first}");
    let second =
        client.post(pair.b.address, &request(3, "tools/list", json!({"cursor": cursor}))).await.json();
    assert_eq!(second["result"]["tools"].as_array().map(Vec::len), Some(2), "{second}");
    // A second `initialize` in the session is rejected on any node.
    let again = client.post(pair.b.address, &initialize_request()).await;
    assert_eq!(again.json()["error"]["code"], -32602, "{again:?}");
}

#[tokio::test]
async fn the_state_of_a_session_is_shared_by_all_nodes() {
    let pair = TwoNodes::open().await;
    let (client, other) = (initialize(pair.a.address).await, initialize(pair.a.address).await);
    for n in 0..6 {
        let reply = client.post(pair.node_for(n), &call(1, "visit", json!({}))).await;
        assert_eq!(reply.text(), (n + 1).to_string());
        // A change of the record by the protocol keeps the values of handlers.
        let level = request(2, "logging/setLevel", json!({ "level": "warning" }));
        assert_eq!(client.post(pair.node_for(n + 1), &level).await.status, 200);
    }
    let reply = other.post(pair.b.address, &call(1, "visit", json!({}))).await;
    assert_eq!(reply.text(), "1", "another session has its own");
    pair.store.set_unavailable(true);
    let failed = client.post(pair.a.address, &call(1, "visit", json!({}))).await;
    assert!(failed.text().starts_with("the session state is unavailable"), "{failed:?}");
    pair.store.set_unavailable(false);
    assert_eq!(client.delete(pair.b.address).await.status, 204);
    assert_eq!(client.post(pair.a.address, &call(1, "visit", json!({}))).await.status, 404);
}

#[tokio::test]
async fn known_sessions_need_no_store_access() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    client.echo_status(pair.a.address).await;
    let before = pair.store.n_operations();
    for _ in 0..50 {
        assert_eq!(client.echo_status(pair.a.address).await, 200);
    }
    // Nodes send a heartbeat every two seconds, and look for changes every five.
    assert!(pair.store.n_operations() - before < 10, "{} looks", pair.store.n_operations() - before);
}

#[tokio::test]
async fn a_session_ends_everywhere() {
    let pair = TwoNodes::open().await;
    let (client, other) = (initialize(pair.a.address).await, initialize(pair.b.address).await);
    let mut standing = client.get(pair.a.address, None).await;
    assert_eq!(standing.status, 200);
    let mut waiting = client.post_stream(pair.a.address, &call(7, "wait", json!({}))).await;
    assert!(waiting.next().await.is_some());
    pair.semaphores.acquire("waiting").await;
    assert_eq!(client.delete(pair.b.address).await.status, 204);
    tokio::time::timeout(EVENT_TIMEOUT, pair.semaphores.acquire("gone"))
        .await
        .expect("the call is cancelled");
    assert_eq!(standing.next().await, None, "its streams end");
    assert_eq!(waiting.next().await, None);
    for n in 0..4 {
        assert_eq!(client.echo_status(pair.node_for(n)).await, 404);
        assert_eq!(client.get(pair.node_for(n), None).await.status, 404);
        assert_eq!(client.delete(pair.node_for(n)).await.status, 404);
        assert_eq!(other.echo_status(pair.node_for(n)).await, 200, "others are unharmed");
    }
}

#[tokio::test]
async fn server_requests_are_answered_on_any_node() {
    let pair = TwoNodes::open().await;
    for n in 0..4 {
        let client = initialize(pair.node_for(n)).await;
        let mut asking = client.post_stream(pair.a.address, &call(5, "ask", json!({}))).await;
        let question = asking.next().await.unwrap().data.unwrap();
        assert_eq!(question["method"], "elicitation/create");
        let answer = json!({"jsonrpc": "2.0", "id": question["id"],
            "result": {"action": "accept", "content": {"name": format!("Ada {n}")}}});
        let taken = client.post(pair.node_for(n + 1), &answer.to_string()).await;
        assert_eq!(taken.status, 202, "{taken:?}");
        let result = asking.next().await.unwrap().data.unwrap();
        assert_eq!(result["result"]["content"][0]["text"], format!("hello Ada {n}"));
        // Repeating it changes nothing.
        assert_eq!(client.post(pair.node_for(n + 1), &answer.to_string()).await.status, 202);
        assert_eq!(client.echo_status(pair.node_for(n)).await, 200);
    }
}

#[tokio::test]
async fn a_request_is_cancelled_on_any_node() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    for (n, to) in [(1, pair.b.address), (2, pair.a.address)] {
        let mut waiting = client.post_stream(pair.a.address, &call(n, "wait", json!({}))).await;
        pair.semaphores.acquire("waiting").await;
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": n}});
        assert_eq!(client.post(to, &cancelled.to_string()).await.status, 202);
        tokio::time::timeout(EVENT_TIMEOUT, pair.semaphores.acquire("gone"))
            .await
            .expect("the call is dropped");
        assert!(waiting.next().await.is_some(), "the earlier event");
        assert_eq!(waiting.next().await, None, "and no response");
    }
}

#[tokio::test]
async fn a_log_level_applies_on_every_node() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    assert_eq!(client.echo_status(pair.b.address).await, 200);
    let quiet = request(1, "logging/setLevel", json!({"level": "error"}));
    assert_eq!(client.post(pair.b.address, &quiet).await.json()["result"], json!({}));
    // Node A learns of it asynchronously, so it may take a moment.
    for n in 0.. {
        pair.semaphores.add_permit("step");
        let reply = client.post(pair.a.address, &call(2, "steps", json!({"n": 1}))).await;
        if !reply.body.contains("step 1") {
            break;
        }
        assert!(n < 50, "{reply:?}");
    }
}

#[tokio::test]
async fn a_full_node_evicts_sessions_that_the_store_holds() {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    let small = |store: &Arc<FaultyStore>| {
        let server = Server::new("nodes", "1.0.0").store(store.clone()).max_sessions(20);
        server.tool("echo", |args: Message| async move { args.message }).build().unwrap()
    };
    let (a, b) = (Node::open(small(&store)).await, Node::open(small(&store)).await);
    let mut clients = Vec::new();
    for n in 0..40 {
        clients.push(initialize(if n % 2 == 0 { a.address } else { b.address }).await);
    }
    for client in &clients {
        assert_eq!(client.echo_status(b.address).await, 200);
        assert_eq!(client.echo_status(a.address).await, 200);
    }
}

/// Repeated `initialize` requests fill neither the process nor the store.
#[tokio::test]
async fn a_flood_of_initialize_requests_is_rejected() {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    let small = Server::new("nodes", "1.0.0").store(store.clone()).max_sessions(20);
    let small = small.tool("echo", |args: Message| async move { args.message }).build().unwrap();
    let node = Node::open(small).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(initialize(node.address).await);
    }
    let before = store.stored_bytes();
    for _ in 0..50 {
        let refused = send(node.address, &http_request("POST", None, &[], &initialize_request())).await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    }
    assert_eq!(store.stored_bytes(), before, "nothing was stored for them");
    assert_eq!(clients[0].delete(node.address).await.status, 204);
    let again = initialize(node.address).await;
    for client in clients[1..].iter().chain([&again]) {
        assert_eq!(client.echo_status(node.address).await, 200, "existing sessions still work");
    }
}

/// A session that is never used expires soon; a used one is kept for its idle time, plus the interval at which it is touched.
#[tokio::test]
async fn the_store_keeps_a_session_for_long_once_it_is_used() {
    const USED_SESSION_TTL: Duration = Duration::from_secs(30 * 60 + 30 * 60 / 8);
    let pair = TwoNodes::open().await;
    let (one, other) = (initialize(pair.a.address).await, initialize(pair.a.address).await);
    for client in [&one, &other] {
        assert_eq!(pair.store.ttl(&client.session), Some(Duration::from_secs(60)));
    }
    assert_eq!(one.echo_status(pair.b.address).await, 200);
    let has = async |client: &ClusterClient, life: Duration| {
        for _ in 0..100 {
            if pair.store.ttl(&client.session) == Some(life) {
                return;
            }
            tokio::time::sleep(ms(50)).await;
        }
        panic!("it has {:?}", pair.store.ttl(&client.session));
    };
    has(&one, USED_SESSION_TTL).await;
    // Used while the store is unavailable, and not afterwards: the use is recorded when it is back.
    pair.store.set_unavailable(true);
    assert_eq!(other.echo_status(pair.a.address).await, 200);
    tokio::time::sleep(ms(200)).await;
    assert_eq!(pair.store.ttl(&other.session), Some(Duration::from_secs(60)));
    pair.store.set_unavailable(false);
    has(&other, USED_SESSION_TTL).await;
}

#[tokio::test]
async fn idle_sessions_expire_on_every_node_and_used_ones_do_not() {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    let brief = |store: &Arc<FaultyStore>| {
        let server = Server::new("nodes", "1.0.0").store(store.clone()).session_idle_timeout(ms(1500));
        server.tool("echo", |args: Message| async move { args.message }).build().unwrap()
    };
    let (a, b) = (Node::open(brief(&store)).await, Node::open(brief(&store)).await);
    let (used, unused, listening) =
        (initialize(a.address).await, initialize(a.address).await, initialize(a.address).await);
    assert_eq!(unused.echo_status(b.address).await, 200);
    let _standing = listening.get(b.address, None).await;
    for _ in 0..12 {
        tokio::time::sleep(ms(250)).await;
        assert_eq!(used.echo_status(b.address).await, 200);
    }
    assert_eq!(used.echo_status(a.address).await, 200, "used on the other node only");
    assert_eq!(listening.echo_status(a.address).await, 200, "a stream is open");
    assert_eq!(unused.echo_status(a.address).await, 404);
    assert_eq!(unused.echo_status(b.address).await, 404);
}

#[tokio::test]
async fn without_the_store_sessions_are_rejected_quickly_and_recover() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let other = initialize(pair.b.address).await;
    pair.store.set_unavailable(true);
    let started = std::time::Instant::now();
    for reply in [
        send(pair.a.address, &http_request("POST", None, &[], &initialize_request())).await,
        client.post(pair.b.address, &call(1, "echo", json!({"message": "hi"}))).await,
        client.delete(pair.b.address).await,
    ] {
        assert_eq!(reply.status, 503, "{reply:?}");
        assert!(reply.headers.contains_key("retry-after"), "{reply:?}");
        assert!(reply.body.contains("try again"), "{reply:?}");
        assert!(!reply.headers.contains_key("mcp-session-id"));
    }
    let modern = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "echo", "arguments": {"message": "still here"}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}}});
    let more = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "echo")];
    let stateless = send(pair.b.address, &http_request("POST", None, &more, &modern.to_string())).await;
    assert_eq!((stateless.status, stateless.text().as_str()), (200, "still here"), "{stateless:?}");
    assert_eq!(client.echo_status(pair.a.address).await, 200, "sessions known to this node still work");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    pair.store.set_unavailable(false);
    assert_eq!(client.echo_status(pair.b.address).await, 200);
    assert_eq!(other.echo_status(pair.a.address).await, 200);
    assert_eq!(initialize(pair.a.address).await.echo_status(pair.b.address).await, 200);
}

#[tokio::test]
async fn a_node_that_starts_without_the_store_serves_when_it_is_there() {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    store.set_unavailable(true);
    let node = Node::open(server(store.clone(), &NamedSemaphores::default(), "A")).await;
    let reply = send(node.address, &http_request("POST", None, &[], &initialize_request())).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    store.set_unavailable(false);
    // The store is not contacted for a second.
    tokio::time::sleep(ms(1100)).await;
    assert_eq!(initialize(node.address).await.echo_status(node.address).await, 200);
}
