//! Isolation of clients, on every node.

use http_body_util::{BodyExt, Full};
use toolgate::Principal;
use tower_service::Service as _;

use super::*;

/// Sends as a principal, which a layer in front sets on a request.
async fn send_as(
    server: &Server,
    who: &str,
    verb: &str,
    session: Option<&str>,
    body: &str,
) -> (u16, String, String) {
    let mut request = http::Request::builder().method(verb).uri("/").extension(Principal::new(who));
    request = request.header("host", "localhost").header("accept", "application/json, text/event-stream");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session).header("mcp-protocol-version", LEGACY);
    }
    let body = Full::new(bytes::Bytes::from(body.to_owned()));
    let request = request.header("content-type", "application/json").body(body).unwrap();
    let Ok(reply) = server.clone().into_service().call(request).await;
    let status = reply.status().as_u16();
    let id = reply.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let id = id.to_owned();
    if verb == "GET" && status == 200 {
        return (status, id, String::new());
    }
    let Ok(body) = reply.into_body().collect().await;
    (status, id, String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

#[tokio::test]
async fn a_session_belongs_to_its_principal_on_every_node() {
    let pair = TwoNodes::open().await;
    let (_, session, _) = send_as(&pair.a.server, "ada", "POST", None, &initialize_request()).await;
    let echo = call(1, "echo", json!({"message": "hi"}));
    for server in [&pair.b.server, &pair.a.server, &pair.b.server] {
        for verb in ["POST", "GET", "DELETE"] {
            let stolen = send_as(server, "eve", verb, Some(&session), &echo).await;
            let unknown = send_as(server, "eve", verb, Some("AAAAAAAAAAAAAAAAAAAAAAAAAAA"), &echo).await;
            assert_eq!(stolen.0, 404, "{verb}");
            assert_eq!(stolen, unknown, "as if it did not exist");
        }
        let (status, _, body) = send_as(server, "ada", "POST", Some(&session), &echo).await;
        assert_eq!(status, 200, "its owner is unharmed: {body}");
    }
}

#[tokio::test]
async fn invalid_ids_are_not_looked_up_in_the_store() {
    let pair = TwoNodes::open().await;
    let own = initialize(pair.a.address).await;
    own.echo_status(pair.b.address).await;
    let before = pair.store.n_operations();
    let long = "x".repeat(8000);
    for guess in ["guess", "0", "../../etc/passwd", "' OR '1'='1", "x y", &long, &format!("{}x", own.session)]
    {
        let guess = ClusterClient { session: guess.to_owned() };
        assert_eq!(guess.echo_status(pair.b.address).await, 404);
        assert_eq!(guess.delete(pair.b.address).await.status, 404);
        assert_eq!(guess.get(pair.b.address, None).await.status, 404);
    }
    assert!(
        pair.store.n_operations() - before < 10,
        "the store was asked {} times",
        pair.store.n_operations() - before
    );
    let guess = ClusterClient { session: "AAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned() };
    assert_eq!(guess.echo_status(pair.b.address).await, 404);
}

/// Eve knows everything but Ada's session: the id of the server request, its node, and the form of a response.
#[tokio::test]
async fn responses_do_not_reach_requests_of_other_sessions() {
    let pair = TwoNodes::open().await;
    let (ada, eve) = (initialize(pair.a.address).await, initialize(pair.b.address).await);
    eve.echo_status(pair.a.address).await;
    let mut asking = ada.post_stream(pair.a.address, &call(5, "ask", json!({}))).await;
    let question = asking.next().await.unwrap().data.unwrap();
    let id = question["id"].as_str().unwrap().to_owned();
    let answer = |id: &str, name: &str| {
        json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"name": name}}})
            .to_string()
    };
    let (node, token) = id.split_once('.').unwrap();
    for n in 0..2 {
        for guess in [id.as_str(), token, &format!("{node}."), &format!("{node}.{}", "A".repeat(27))] {
            eve.post(pair.node_for(n), &answer(guess, "Eve")).await;
        }
        // Invalid node names have no effect.
        for guess in ["../../all.x", "all.x", ".x", &format!("{}.{token}", "B".repeat(16))] {
            assert_eq!(eve.post(pair.node_for(n), &answer(guess, "Eve")).await.status, 202);
        }
    }
    // Nor does an invented session.
    let nobody = ClusterClient { session: "A".repeat(27) };
    assert_eq!(nobody.post(pair.b.address, &answer(&id, "Eve")).await.status, 404);
    assert_eq!(ada.post(pair.b.address, &answer(&id, "Ada")).await.status, 202);
    let result = asking.next().await.unwrap().data.unwrap();
    assert_eq!(result["result"]["content"][0]["text"], "hello Ada");
    // A repeated response does not match a later request of the same session.
    let mut asking = ada.post_stream(pair.a.address, &call(6, "ask", json!({}))).await;
    let second = asking.next().await.unwrap().data.unwrap()["id"].as_str().unwrap().to_owned();
    assert_ne!(second, id);
    for n in 0..2 {
        assert_eq!(ada.post(pair.node_for(n), &answer(&id, "again")).await.status, 202);
    }
    assert_eq!(ada.post(pair.b.address, &answer(&second, "Ada, once more")).await.status, 202);
    let result = asking.next().await.unwrap().data.unwrap();
    assert_eq!(result["result"]["content"][0]["text"], "hello Ada, once more");
}

#[tokio::test]
async fn a_request_is_cancelled_by_its_own_session_only() {
    let pair = TwoNodes::open().await;
    let (ada, eve) = (initialize(pair.a.address).await, initialize(pair.b.address).await);
    let mut waiting = ada.post_stream(pair.a.address, &call(7, "wait", json!({}))).await;
    pair.semaphores.acquire("waiting").await;
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    for n in 0..2 {
        assert_eq!(eve.post(pair.node_for(n), &cancelled.to_string()).await.status, 202);
    }
    pair.semaphores.add_permit("go on");
    let mut last = None;
    while let Some(event) = waiting.next().await {
        last = event.data;
    }
    assert_eq!(last.unwrap()["result"]["content"][0]["text"], "waited");
}

/// Many clients send and receive requests at once, on any node: each gets its own responses.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn concurrent_clients_get_their_own_responses() {
    let pair = Arc::new(TwoNodes::open().await);
    let crowd = (0..40).map(|who: usize| {
        let pair = Arc::clone(&pair);
        tokio::spawn(async move {
            let client = initialize(pair.node_for(who)).await;
            for round in 0..5 {
                // All clients use the same request ids.
                let mut asking =
                    client.post_stream(pair.node_for(who + round), &call(1, "ask", json!({}))).await;
                let question = asking.next().await.unwrap().data.unwrap();
                let name = format!("{who}/{round}");
                let answer = json!({"jsonrpc": "2.0", "id": question["id"],
                    "result": {"action": "accept", "content": {"name": name}}});
                let taken = client.post(pair.node_for(who + round + 1), &answer.to_string()).await;
                assert_eq!(taken.status, 202, "{taken:?}");
                let result = asking.next().await.unwrap().data.unwrap();
                assert_eq!(result["result"]["content"][0]["text"], format!("hello {name}"));
                let echo =
                    client.post(pair.node_for(round), &call(1, "echo", json!({"message": name}))).await;
                assert_eq!(echo.text(), name);
            }
            assert_eq!(client.delete(pair.node_for(who / 2)).await.status, 204);
        })
    });
    let crowd: Vec<_> = crowd.collect();
    for one in crowd {
        one.await.unwrap();
    }
}
