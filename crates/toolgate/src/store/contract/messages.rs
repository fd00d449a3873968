//! Checks of channels.

use std::time::Duration;

use bytes::Bytes;

use super::{Backend, CHECK_TIMEOUT, TestSpace, expect_within, run_concurrently};
use crate::store::{ChannelEvent, Listener};

/// Returns the next message. A lag event fails the test.
async fn next_message(listener: &mut Listener) -> Bytes {
    match expect_within(CHECK_TIMEOUT, listener.next()).await {
        Some(ChannelEvent::Message(message)) => message,
        other => panic!("expected a message, got {other:?}"),
    }
}

/// Waits for the message `expected`. Messages before it must be `early`: published shortly before the subscription.
async fn expect_first(listener: &mut Listener, expected: &str, early: impl Fn(&str) -> bool) {
    loop {
        let message = next_message(listener).await;
        let message = String::from_utf8_lossy(&message).into_owned();
        if message == expected {
            return;
        }
        assert!(early(&message), "expected `{expected}`, got `{message}`");
    }
}

pub(super) async fn listeners_receive_messages_in_order(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    test.publish("a", "before any subscription").await;
    let mut listeners = vec![test.subscribe("a").await, test.subscribe("a").await];
    for number in 0..200 {
        test.publish("a", format!("{number}")).await;
        if number == 99 {
            listeners.push(test.subscribe("a").await);
        }
    }
    for (listener, first) in listeners.iter_mut().zip([0_u32, 0, 100]) {
        expect_first(listener, &first.to_string(), |message| {
            message == "before any subscription" || message.parse().is_ok_and(|message: u32| message < first)
        })
        .await;
        for number in first + 1..200 {
            assert_eq!(next_message(listener).await, format!("{number}"));
        }
    }
    // A new subscription misses nothing that is published after it.
    for number in 0..50_u32 {
        let channel = format!("fresh {}", number % 5);
        let mut listener = test.subscribe(&channel).await;
        test.publish(&channel, format!("{number}")).await;
        let early = |message: &str| message.parse().is_ok_and(|message: u32| message < number);
        expect_first(&mut listener, &number.to_string(), early).await;
    }
    // Many publishers: the messages of each stay in order, and none is lost.
    let mut listener = test.subscribe("many").await;
    run_concurrently(8, |publisher| {
        let test = test.clone();
        async move {
            for number in 0..25 {
                test.publish("many", format!("{publisher} {number}")).await;
            }
        }
    })
    .await;
    let mut next = [0; 8];
    for _ in 0..200 {
        let message = next_message(&mut listener).await;
        let message = String::from_utf8_lossy(&message).into_owned();
        let (publisher, number) = message.split_once(' ').expect("two numbers");
        let publisher: usize = publisher.parse().expect("a publisher");
        assert_eq!(number, next[publisher].to_string(), "publisher {publisher}");
        next[publisher] += 1;
    }
}

pub(super) async fn a_slow_listener_is_told_that_it_lagged(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let mut slow = test.subscribe("a").await;
    let last = 5000_u64;
    for number in 1..=last {
        test.publish("a", number.to_string()).await;
    }
    let (mut newest, mut is_lagged, mut n_messages) = (0, false, 0);
    while newest < last {
        match expect_within(CHECK_TIMEOUT, slow.next()).await.expect("the store is open") {
            ChannelEvent::Lagged => is_lagged = true,
            ChannelEvent::Message(message) => {
                let number: u64 = String::from_utf8_lossy(&message).parse().expect("a number");
                assert!(number > newest, "{number} came after {newest}");
                assert!(
                    number == newest + 1 || is_lagged,
                    "messages between {newest} and {number} are missing"
                );
                (newest, is_lagged) = (number, false);
                n_messages += 1;
            }
        }
    }
    assert!(n_messages > 0);
    // Once it has caught up, it receives messages as before.
    test.publish("a", "again").await;
    assert_eq!(next_message(&mut slow).await, "again");
}

pub(super) async fn channels_are_separate(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let names = ["a", "ab", "a*", "?", "[ab]", "A", "b"];
    let mut listeners = Vec::new();
    for name in names {
        listeners.push(test.subscribe(name).await);
    }
    for name in names {
        test.publish(name, name).await;
    }
    for (listener, name) in listeners.iter_mut().zip(names) {
        assert_eq!(next_message(listener).await, name);
        let more = tokio::time::timeout(Duration::from_millis(30), listener.next()).await;
        assert!(more.is_err(), "`{name}` received {more:?} too");
    }
}

pub(super) async fn dropped_listeners_do_not_affect_others(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let mut remaining = test.subscribe("a").await;
    for number in 0..40 {
        drop(test.subscribe("a").await);
        test.publish("a", format!("{number}")).await;
        // Dropped while waiting.
        let mut waiting = test.subscribe("a").await;
        let _ = tokio::time::timeout(Duration::from_micros(100), waiting.next()).await;
    }
    for number in 0..40 {
        assert_eq!(next_message(&mut remaining).await, format!("{number}"));
    }
    drop(remaining);
    test.publish("a", "without listeners").await;
    let mut returning = test.subscribe("a").await;
    test.publish("a", "with a listener").await;
    let early = |message: &str| message == "without listeners" || message == "39";
    expect_first(&mut returning, "with a listener", early).await;
}
