//! Streams that were cut, resumed on another node.

use super::*;

/// Returns a short text for an event.
fn event_text(event: &StreamEvent) -> String {
    let data = event.data.as_ref().unwrap();
    let notice = data["params"]["data"].as_str().or(data["params"]["message"].as_str());
    let result = data["result"]["content"][0]["text"].as_str().or(data["error"]["message"].as_str());
    notice.or(result).unwrap_or("?").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_cut_stream_is_resumed_on_any_node() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut cut = client.post_stream(pair.a.address, &call(9, "steps", json!({"n": 6}))).await;
    let mut received = Vec::new();
    let mut last;
    let first = cut.next().await.unwrap();
    received.push(event_text(&first));
    last = first.id.unwrap();
    drop(cut);
    for n in 1..6 {
        pair.semaphores.acquire("stepped").await;
        pair.semaphores.add_permit("step");
        pair.semaphores.acquire("stepped").await;
        pair.semaphores.add_permit("stepped");
        // From the log, then live; each time on another node.
        let mut resumed = client.get(pair.node_for(n), Some(&last)).await;
        assert_eq!(resumed.status, 200);
        let event = resumed.next().await.unwrap();
        received.push(event_text(&event));
        last = event.id.unwrap();
    }
    let mut resumed = client.get(pair.b.address, Some(&last)).await;
    pair.semaphores.add_permit("step");
    let answer = resumed.next().await.unwrap();
    assert_eq!(answer.data.as_ref().unwrap()["id"], 9);
    received.push(event_text(&answer));
    assert_eq!(received, ["step 1", "step 2", "step 3", "step 4", "step 5", "step 6", "6 steps"]);
    assert_eq!(resumed.next().await, None, "the end comes last");
    // It can be read again for a while, also from the middle.
    let mut again = client.get(pair.a.address, Some(&last)).await;
    assert_eq!(event_text(&again.next().await.unwrap()), "6 steps");
    assert_eq!(again.next().await, None);
}

#[tokio::test]
async fn a_reader_on_another_node_receives_new_events() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut cut = client.post_stream(pair.a.address, &call(9, "steps", json!({"n": 50}))).await;
    let first = cut.next().await.unwrap();
    // The first connection is not closed: the newer reader wins.
    let mut resumed = client.get(pair.b.address, first.id.as_deref()).await;
    for step in 2..=50 {
        pair.semaphores.add_permit("step");
        let started = std::time::Instant::now();
        assert_eq!(event_text(&resumed.next().await.unwrap()), format!("step {step}"));
        if step > 3 {
            assert!(
                started.elapsed() < ms(900),
                "it is told at once, not found later: {:?}",
                started.elapsed()
            );
        }
    }
    pair.semaphores.add_permit("step");
    assert_eq!(event_text(&resumed.next().await.unwrap()), "50 steps");
    assert_eq!(resumed.next().await, None);
    while let Some(event) = cut.next().await {
        assert_ne!(event_text(&event), "50 steps", "the response goes to one reader");
    }
}

#[tokio::test]
async fn a_released_client_reconnects_to_another_node() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    for n in 0..4 {
        let mut events = client.post_stream(pair.node_for(n), &call(3, "let_go", json!({}))).await;
        let mut last = None;
        let mut retry = None;
        while let Some(event) = events.next_any().await {
            retry = event.retry.or(retry);
            last = event.id.or(last);
        }
        assert_eq!(retry, Some(20), "it is sent away");
        let mut resumed = client.get(pair.node_for(n / 2), last.as_deref()).await;
        assert_eq!(event_text(&resumed.next().await.unwrap()), "after");
        assert_eq!(resumed.next().await, None);
    }
}

#[tokio::test]
async fn server_requests_are_received_and_answered_on_any_node() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut events = client.post_stream(pair.a.address, &call(3, "ask", json!({}))).await;
    // Cut before the request was read: it is in the log.
    let primed = events.next_any().await.unwrap();
    drop(events);
    let mut resumed = client.get(pair.b.address, primed.id.as_deref()).await;
    let question = resumed.next().await.unwrap().data.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {"name": "Bea"}}});
    assert_eq!(client.post(pair.b.address, &answer.to_string()).await.status, 202);
    assert_eq!(event_text(&resumed.next().await.unwrap()), "hello Bea");
}

#[tokio::test]
async fn a_stream_is_resumed_in_its_own_session_only() {
    let pair = TwoNodes::open().await;
    let (ada, eve) = (initialize(pair.a.address).await, initialize(pair.b.address).await);
    let mut events = ada.post_stream(pair.a.address, &call(3, "let_go", json!({}))).await;
    let id = events.next_any().await.unwrap().id.unwrap();
    drop(events);
    for n in 0..2 {
        assert_eq!(eve.get(pair.node_for(n), Some(&id)).await.status, 400);
    }
    let mut resumed = ada.get(pair.b.address, Some(&id)).await;
    assert_eq!(event_text(&resumed.next().await.unwrap()), "before");
}

/// A node is killed during a call: a client that reconnects gets an error, once.
#[test]
fn a_call_whose_process_was_killed_is_answered_by_another() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (doomed, living) = (runtime(), runtime());
    let memory = Arc::new(MemoryStore::new());
    let semaphores = NamedSemaphores::default();
    let open = |who| {
        let store = Arc::new(FaultyStore::new(memory.clone()));
        Node::open(server(store, &semaphores, who))
    };
    let a = doomed.block_on(open("A"));
    let b = living.block_on(open("B"));
    let (to_a, to_b) = (a.address, b.address);
    let (client, last, mut standing) = living.block_on(async {
        let client = initialize(to_b).await;
        let mut waiting = client.post_stream(to_a, &call("seven", "wait", json!({}))).await;
        let first = waiting.next().await.unwrap();
        (client.clone(), first.id.unwrap(), client.get(to_a, None).await)
    });
    doomed.shutdown_background();
    living.block_on(async {
        assert_eq!(standing.next().await, None, "its streams break");
        let started = std::time::Instant::now();
        let (one, other) = tokio::join!(
            async {
                let mut resumed = client.get(to_b, Some(&last)).await;
                let event = resumed.next().await.unwrap();
                assert_eq!(resumed.next().await, None);
                event
            },
            client.echo_status(to_b),
        );
        assert_eq!(other, 200, "the session lives");
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        let error = one.data.unwrap();
        assert_eq!(error["id"], "seven");
        assert!(error["error"]["message"].as_str().unwrap().contains("call again"), "{error}");
        // The same for repeated attempts, at once.
        let mut again = client.get(to_b, Some(&last)).await;
        assert_eq!(again.next().await.unwrap().data.unwrap(), error);
        assert_eq!(again.next().await, None);
        let mut standing = client.get(to_b, None).await;
        b.server.notify().tools_changed();
        assert!(standing.next().await.is_some());
    });
    drop(a);
}

#[tokio::test]
async fn a_store_failure_costs_event_ids_but_not_the_call() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut events = client.post_stream(pair.a.address, &call(3, "steps", json!({"n": 3}))).await;
    let first = events.next().await.unwrap();
    assert!(first.id.is_some());
    pair.store.set_unavailable(true);
    let mut received = Vec::new();
    for _ in 0..3 {
        pair.semaphores.add_permit("step");
        let event = events.next().await.unwrap();
        assert_eq!(event.id, None);
        received.push(event_text(&event));
    }
    assert_eq!(received, ["step 2", "step 3", "3 steps"]);
    assert_eq!(events.next().await, None);
    pair.store.set_unavailable(false);
    // The response is stored as soon as that is possible.
    let mut resumed = client.get(pair.b.address, first.id.as_deref()).await;
    assert_eq!(event_text(&resumed.next().await.unwrap()), "3 steps");
}

/// Unread output of a call does not fill the store, and its response is not lost.
#[tokio::test]
async fn unread_output_is_bounded_and_the_response_is_kept() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut events = client.post_stream(pair.a.address, &call(3, "flood", json!({"n": 2000}))).await;
    // There was no output for a while: the response became a stream anyway, and begins with its id.
    let primed = events.next_any().await.unwrap();
    drop(events);
    let before = pair.store.stored_bytes();
    pair.semaphores.add_permit("flood");
    tokio::time::sleep(ms(1500)).await;
    let held = pair.store.stored_bytes() - before;
    assert!(held < 6 << 20, "{held} bytes are kept");
    let mut resumed = client.get(pair.b.address, primed.id.as_deref()).await;
    let mut last = None;
    while let Some(event) = resumed.next().await {
        last = Some(event_text(&event));
    }
    assert_eq!(last.as_deref(), Some("flooded"));
}

/// The number of finished streams per session is limited.
#[tokio::test]
async fn finished_streams_are_bounded() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut ids = Vec::new();
    for n in 0..40 {
        pair.semaphores.add_permit("step");
        let reply = client.post(pair.a.address, &call(n, "steps", json!({"n": 1}))).await;
        assert_eq!(reply.text(), "1 steps");
        ids.push(reply.body.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned());
    }
    tokio::time::sleep(ms(200)).await;
    assert_eq!(client.get(pair.b.address, Some(&ids[0])).await.status, 400);
    assert_eq!(client.get(pair.b.address, Some(&ids[39])).await.status, 200);
    assert_eq!(client.delete(pair.b.address).await.status, 204);
}

/// Many concurrent calls, each cut after every event and resumed on a random node: every client receives every step of its own
/// call once, in order, and its response.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_streams_that_are_cut_at_random_lose_nothing() {
    let pair = Arc::new(TwoNodes::open().await);
    for _ in 0..20 * 12 {
        pair.semaphores.add_permit("step");
    }
    let calls = (0..20).map(|who: usize| {
        let pair = Arc::clone(&pair);
        tokio::spawn(async move {
            let client = initialize(pair.node_for(who)).await;
            let mut events =
                client.post_stream(pair.node_for(who / 2), &call(who, "steps", json!({"n": 12}))).await;
            let (mut received, mut last, mut dice) = (Vec::new(), None, who * 7919 + 13);
            loop {
                match events.next_any().await {
                    Some(event) => {
                        last = event.id.clone().or(last);
                        if event.data.is_some() {
                            received.push(event_text(&event));
                        }
                    }
                    None => break,
                }
                dice = dice.wrapping_mul(25_214_903_917).wrapping_add(11) >> 3;
                if received.last().is_some_and(|message| message.ends_with("steps")) {
                    break;
                }
                if dice.is_multiple_of(3) {
                    events = client.get(pair.node_for(dice >> 5), last.as_deref()).await;
                    assert_eq!(events.status, 200);
                }
            }
            let mut expected: Vec<String> = (1..=12).map(|step| format!("step {step}")).collect();
            expected.push("12 steps".into());
            assert_eq!(received, expected);
        })
    });
    let calls: Vec<_> = calls.collect();
    for call in calls {
        call.await.unwrap();
    }
}

/// A deployment: the node is shut down while a call runs. The client continues elsewhere.
#[tokio::test]
async fn a_node_that_shuts_down_leaves_its_responses_in_the_store() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut waiting = client.post_stream(pair.a.address, &call(3, "wait", json!({}))).await;
    let mut standing = client.get(pair.a.address, None).await;
    let mut last = waiting.next().await.unwrap().id;
    pair.a.server.shutdown();
    assert_eq!(standing.next().await, None, "streams that stand end");
    // Calls have 200 ms here. This one takes longer, so its connection is cut.
    while let Some(event) = waiting.next().await {
        last = event.id.or(last);
    }
    let mut standing = client.get(pair.b.address, None).await;
    let mut resumed = client.get(pair.b.address, last.as_deref()).await;
    pair.semaphores.add_permit("go on");
    assert_eq!(event_text(&resumed.next().await.unwrap()), "waited");
    assert_eq!(resumed.next().await, None);
    pair.b.server.notify().tools_changed();
    assert!(standing.next().await.is_some());
}
