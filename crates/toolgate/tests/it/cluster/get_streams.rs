//! GET streams and change notifications across nodes.

use super::*;

fn event_uri(event: &StreamEvent) -> String {
    event.data.as_ref().unwrap()["params"]["uri"].as_str().unwrap_or("a list").to_owned()
}

fn event_method(event: &StreamEvent) -> String {
    event.data.as_ref().unwrap()["method"].as_str().unwrap().to_owned()
}

async fn subscribe(client: &ClusterClient, to: SocketAddr, uri: &str) {
    let reply = client.post(to, &request(1, "resources/subscribe", json!({"uri": uri}))).await;
    assert_eq!(reply.json()["result"], json!({}), "{reply:?}");
}

#[tokio::test]
async fn a_change_on_one_node_is_notified_on_the_other() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut standing = client.get(pair.a.address, None).await;
    // Subscribed on B, received on A, changed on either.
    subscribe(&client, pair.b.address, "fx://one").await;
    for changer in [&pair.b.server, &pair.a.server] {
        changer.notify().resource_updated("fx://two");
        changer.notify().resource_updated("fx://one");
        let event = standing.next().await.unwrap();
        assert_eq!(
            (event_method(&event).as_str(), event_uri(&event).as_str()),
            ("notifications/resources/updated", "fx://one")
        );
        assert!(event.id.unwrap().starts_with("0-"));
    }
    pair.b.server.notify().tools_changed();
    assert_eq!(event_method(&standing.next().await.unwrap()), "notifications/tools/list_changed");
    let leave = request(2, "resources/unsubscribe", json!({"uri": "fx://one"}));
    assert_eq!(client.post(pair.b.address, &leave).await.status, 200);
    pair.b.server.notify().resource_updated("fx://one");
    pair.b.server.notify().prompts_changed();
    pair.b.server.notify().tools_changed();
    let event = standing.next().await.unwrap();
    assert_eq!(
        event_method(&event),
        "notifications/tools/list_changed",
        "no more events of the unsubscribed resource"
    );
}

/// Every change after a subscription is reported, in whatever order nodes learn of changes and subscriptions.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_change_after_a_subscription_is_missed() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut standing = client.get(pair.a.address, None).await;
    for n in 0..100 {
        let name = format!("fx://some/{n}");
        subscribe(&client, pair.node_for(n), &name).await;
        if n % 3 == 0 { &pair.a } else { &pair.b }.server.notify().resource_updated(&name);
        assert_eq!(event_uri(&standing.next().await.unwrap()), name);
    }
}

/// A node learns of the change before the subscription, which another node accepted: it is reported, once.
#[tokio::test]
async fn a_late_subscription_is_caught_up() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut standing = client.get(pair.a.address, None).await;
    client.echo_status(pair.b.address).await;
    pair.store.set_delay(150);
    for n in 0..5 {
        let name = format!("fx://late/{n}");
        subscribe(&client, pair.b.address, &name).await;
        pair.b.server.notify().resource_updated(&name);
        pair.b.server.notify().resource_updated("fx://other");
        let event = standing.next().await.unwrap();
        assert_eq!((event_uri(&event), event.id), (name, None), "the stream is beyond its number");
        pair.b.server.notify().tools_changed();
        let event = standing.next().await.unwrap();
        assert_eq!(event_method(&event), "notifications/tools/list_changed");
        assert!(event.id.is_some());
    }
}

/// Nodes that were disconnected for a while catch up.
#[tokio::test]
async fn missed_changes_are_caught_up() {
    let pair = TwoNodes::open().await;
    let (client, ended) = (initialize(pair.a.address).await, initialize(pair.a.address).await);
    let mut standing = client.get(pair.a.address, None).await;
    let mut ending = ended.get(pair.a.address, None).await;
    pair.store.set_muted(true);
    subscribe(&client, pair.b.address, "fx://one").await;
    pair.b.server.notify().resource_updated("fx://one");
    assert_eq!(ended.delete(pair.b.address).await.status, 204);
    assert_eq!(ended.echo_status(pair.a.address).await, 200, "A cannot know it yet");
    pair.store.set_muted(false);
    assert_eq!(event_uri(&standing.next().await.unwrap()), "fx://one");
    assert_eq!(ending.next().await, None);
    assert_eq!(ended.echo_status(pair.a.address).await, 404);
    assert_eq!(client.echo_status(pair.a.address).await, 200);
}

#[tokio::test]
async fn a_subscription_of_the_newest_version_gets_changes_of_the_other_node() {
    let pair = TwoNodes::open().await;
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
        "notifications": {"toolsListChanged": true, "resourceSubscriptions": ["fx://one"]},
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}}});
    let more = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
    let mut listening =
        open_stream(pair.a.address, &http_request("POST", None, &more, &listen.to_string())).await;
    assert_eq!(event_method(&listening.next().await.unwrap()), "notifications/subscriptions/acknowledged");
    pair.b.server.notify().resource_updated("fx://one");
    let event = listening.next().await.unwrap();
    assert_eq!((event_uri(&event).as_str(), event.id), ("fx://one", None));
    let tool = toolgate::ToolSpec::new("more", || async { "more" });
    pair.b.server.add_tool(tool).unwrap();
    assert_eq!(event_method(&listening.next().await.unwrap()), "notifications/tools/list_changed");
}

/// Many changes on both nodes, a stream that is cut repeatedly and resumed on either: every change once, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_get_stream_resumes_on_any_node_without_loss_or_duplicates() {
    const N_CHANGES: usize = 400;
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let names: Vec<String> = (0..N_CHANGES).map(|n| format!("fx://many/{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        subscribe(&client, pair.node_for(n), name).await;
    }
    let (a, b, changed) = (pair.a.server.clone(), pair.b.server.clone(), names.clone());
    let changing = tokio::spawn(async move {
        for (n, name) in changed.iter().enumerate() {
            if n % 2 == 0 { &a } else { &b }.notify().resource_updated(name);
            if n % 7 == 0 {
                tokio::time::sleep(ms(2)).await;
            }
        }
    });
    let (mut received, mut last, mut cut) = (Vec::new(), None::<String>, 0);
    let mut ids = Vec::new();
    while received.len() < N_CHANGES {
        let mut standing = client.get(pair.node_for(cut), last.as_deref()).await;
        assert_eq!(standing.status, 200);
        cut += 1;
        // The number of events before the next cut: 1 to 13.
        for _ in 0..=(cut * 7 % 13) {
            if received.len() == N_CHANGES {
                break;
            }
            let event = standing.next().await.expect("the stream stands");
            received.push(event_uri(&event));
            ids.push(event.id.as_ref().unwrap().strip_prefix("0-").unwrap().parse::<u64>().unwrap());
            last = event.id;
        }
    }
    changing.await.unwrap();
    assert!(ids.is_sorted_by(|one, other| one < other), "numbers grow: {ids:?}");
    received.sort();
    let mut expected = names;
    expected.sort();
    assert_eq!(received, expected);
    assert!(cut > 20, "it was cut {cut} times");
    // And nothing more.
    let mut standing = client.get(pair.node_for(cut), last.as_deref()).await;
    pair.a.server.notify().tools_changed();
    assert_eq!(event_method(&standing.next().await.unwrap()), "notifications/tools/list_changed");
}

/// Task notifications are not part of the change log, so they must not move the position of a client in it.
#[tokio::test]
async fn tasks_between_changes_do_not_move_the_position_of_a_stream() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let names: Vec<String> = (0..24).map(|n| format!("fx://among/{n}")).collect();
    for name in &names {
        subscribe(&client, pair.a.address, name).await;
    }
    let (mut changed, mut received, mut last) = (names.iter(), Vec::new(), None::<String>);
    for round in 0..6 {
        let (here, there) = if round % 2 == 0 { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
        let mut standing = client.get(here.address, last.as_deref()).await;
        assert_eq!(standing.status, 200);
        let mut hear = async |expected: &str| {
            loop {
                let event = standing.next().await.expect("the stream stands");
                let (is_wanted, is_task) = (
                    event_uri(&event) == expected || event_method(&event) == expected,
                    event_method(&event) == "notifications/tasks/status",
                );
                if is_task {
                    assert_eq!(event.id, None);
                } else {
                    received.push(event_uri(&event));
                    last = event.id.or(last.take());
                }
                if is_wanted {
                    return;
                }
            }
        };
        for changer in [here, there, here] {
            let name = changed.next().unwrap();
            changer.server.notify().resource_updated(name);
            hear(name).await;
        }
        let work = json!({"name": "work", "arguments": {}, "task": {"ttl": 60_000}});
        let begun = client.post(here.address, &request(round, "tools/call", work)).await;
        assert!(begun.json()["result"]["task"]["taskId"].is_string(), "{begun:?}");
        hear("notifications/tasks/status").await;
        drop(standing);
        there.server.notify().resource_updated(changed.next().unwrap());
    }
    let mut standing = client.get(pair.a.address, last.as_deref()).await;
    received.push(event_uri(&standing.next().await.unwrap()));
    assert_eq!(received, names, "each once, and in order");
}

#[tokio::test]
async fn changes_without_a_reader_are_sent_to_the_next_one() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    subscribe(&client, pair.a.address, "fx://one").await;
    pair.b.server.notify().resource_updated("fx://one");
    tokio::time::sleep(ms(100)).await;
    let mut standing = client.get(pair.b.address, None).await;
    assert_eq!(event_uri(&standing.next().await.unwrap()), "fx://one");
    drop(standing);
    tokio::time::sleep(ms(700)).await;
    pair.a.server.notify().resource_updated("fx://one");
    pair.a.server.notify().tools_changed();
    // Sent before: the position is known on the other node too.
    let mut standing = client.get(pair.a.address, None).await;
    let mut both =
        [standing.next().await.unwrap(), standing.next().await.unwrap()].map(|event| event_method(&event));
    both.sort();
    assert_eq!(both, ["notifications/resources/updated", "notifications/tools/list_changed"]);
    pair.a.server.notify().prompts_changed();
    pair.a.server.notify().resource_updated("fx://one");
    assert_eq!(event_uri(&standing.next().await.unwrap()), "fx://one", "and nothing in between");
}

#[tokio::test]
async fn the_newest_get_stream_wins_on_any_node() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut streams = Vec::new();
    for n in [0, 1, 1, 0, 1] {
        let standing = client.get(pair.node_for(n), None).await;
        assert_eq!(standing.status, 200);
        streams.push(standing);
        tokio::time::sleep(ms(50)).await;
    }
    let mut newest = streams.pop().unwrap();
    for mut older in streams {
        assert_eq!(older.next().await, None, "the older one ends");
    }
    pair.a.server.notify().tools_changed();
    assert_eq!(event_method(&newest.next().await.unwrap()), "notifications/tools/list_changed");
    assert_eq!(client.echo_status(pair.a.address).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_streams_in_the_same_moment_leave_one() {
    let pair = TwoNodes::open().await;
    for _ in 0..10 {
        let client = initialize(pair.a.address).await;
        client.echo_status(pair.b.address).await;
        let (a, b) = tokio::join!(client.get(pair.a.address, None), client.get(pair.b.address, None));
        tokio::time::sleep(ms(50)).await;
        pair.a.server.notify().tools_changed();
        let mut received = 0;
        for mut standing in [a, b] {
            received += usize::from(standing.next().await.is_some());
            drop(standing);
        }
        assert_eq!(received, 1);
    }
}

#[tokio::test]
async fn unknown_positions_are_rejected() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    pair.a.server.notify().tools_changed();
    for place in
        ["0-99999", "garbage", "0-18446744073709551615", "7-0", "18446744073709551615-1", "-1-0", "0-"]
    {
        for n in 0..2 {
            assert_eq!(client.get(pair.node_for(n), Some(place)).await.status, 400, "{place}");
        }
    }
    assert_eq!(client.get(pair.b.address, Some("0-0")).await.status, 200);
}

/// A reader that does not read costs no memory: changes are in the store, once.
#[tokio::test]
async fn a_slow_reader_keeps_nothing_in_memory() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let long = format!("fx://{}", "x".repeat(900));
    for n in 0..20 {
        subscribe(&client, pair.a.address, &format!("{long}/{n}")).await;
    }
    let mut standing = client.get(pair.b.address, None).await;
    let before = pair.store.stored_bytes();
    for round in 0..200 {
        for n in 0..20 {
            pair.a.server.notify().resource_updated(&format!("{long}/{n}"));
        }
        if round % 20 == 0 {
            tokio::time::sleep(ms(10)).await;
        }
    }
    tokio::time::sleep(ms(300)).await;
    let held = pair.store.stored_bytes() - before;
    assert!(held < 4000 * 1100, "{held} bytes are in the store");
    // It receives each at least once when it reads again, and the last change last.
    pair.a.server.notify().tools_changed();
    let mut received = std::collections::BTreeSet::new();
    loop {
        let event = standing.next().await.unwrap();
        if event_method(&event) == "notifications/tools/list_changed" {
            break;
        }
        received.insert(event_uri(&event));
    }
    assert_eq!(received.len(), 20);
}

#[tokio::test]
async fn changes_wait_for_the_store_and_are_sent_when_it_is_back() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    let mut standing = client.get(pair.b.address, None).await;
    subscribe(&client, pair.a.address, "fx://one").await;
    pair.store.set_unavailable(true);
    for _ in 0..1000 {
        pair.a.server.notify().resource_updated("fx://one");
    }
    tokio::time::sleep(ms(500)).await;
    pair.store.set_unavailable(false);
    assert_eq!(event_uri(&standing.next().await.unwrap()), "fx://one");
    pair.a.server.notify().tools_changed();
    assert_eq!(
        event_method(&standing.next().await.unwrap()),
        "notifications/tools/list_changed",
        "once is enough"
    );
}

#[tokio::test]
async fn a_lost_log_is_replaced_by_notifying_everything_once() {
    let pair = TwoNodes::open().await;
    let client = initialize(pair.a.address).await;
    subscribe(&client, pair.b.address, "fx://one").await;
    let mut standing = client.get(pair.a.address, None).await;
    for _ in 0..5 {
        pair.b.server.notify().tools_changed();
        assert_eq!(event_method(&standing.next().await.unwrap()), "notifications/tools/list_changed");
    }
    pair.store.delete_change_log().await;
    pair.b.server.notify().resource_updated("fx://other");
    let mut received = Vec::new();
    for _ in 0..3 {
        received.push(event_method(&standing.next().await.unwrap()));
    }
    received.sort();
    let expected = ["resources/list_changed", "resources/updated", "tools/list_changed"];
    assert_eq!(received, expected.map(|what| format!("notifications/{what}")));
    // Numbers begin again, and so does the stream.
    pair.a.server.notify().resource_updated("fx://one");
    let event = standing.next().await.unwrap();
    assert_eq!((event_uri(&event).as_str(), event.id.as_deref()), ("fx://one", Some("0-2")));
}
