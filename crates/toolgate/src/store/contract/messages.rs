//! Promises about channels.

use std::time::Duration;

use bytes::Bytes;

use super::{Backend, CHECK_TIMEOUT, TestSpace, run_concurrently, with_timeout};
use crate::store::{ChannelEvent, Listener};

/// The next message; a gap is a failure.
async fn next_message(listener: &mut Listener) -> Bytes {
    match with_timeout(CHECK_TIMEOUT, listener.next()).await {
        Some(ChannelEvent::Message(message)) => message,
        other => panic!("a message was expected, not {other:?}"),
    }
}

/// The first that a listener must hear. What was on its way when it came may be heard before.
async fn expect_first(listener: &mut Listener, wanted: &str, early: impl Fn(&str) -> bool) {
    loop {
        let heard = next_message(listener).await;
        let heard = String::from_utf8_lossy(&heard).into_owned();
        if heard == wanted {
            return;
        }
        assert!(early(&heard), "`{wanted}` should have been heard, not `{heard}`");
    }
}

pub(super) async fn listeners_hear_everything_in_order(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    room.publish("a", "nobody listens yet").await;
    let mut early = vec![room.subscribe("a").await, room.subscribe("a").await];
    for number in 0..200 {
        room.publish("a", format!("{number}")).await;
        if number == 99 {
            early.push(room.subscribe("a").await);
        }
    }
    for (listener, first) in early.iter_mut().zip([0_u32, 0, 100]) {
        expect_first(listener, &first.to_string(), |heard| {
            heard == "nobody listens yet" || heard.parse().is_ok_and(|heard: u32| heard < first)
        })
        .await;
        for number in first + 1..200 {
            assert_eq!(next_message(listener).await, format!("{number}"));
        }
    }
    // Whoever listens anew each time misses nothing that is said after that.
    for number in 0..50_u32 {
        let channel = format!("fresh {}", number % 5);
        let mut listener = room.subscribe(&channel).await;
        room.publish(&channel, format!("{number}")).await;
        let early = |heard: &str| heard.parse().is_ok_and(|heard: u32| heard < number);
        expect_first(&mut listener, &number.to_string(), early).await;
    }
    // Many speakers: each one's words stay in order, and nothing is lost.
    let mut listener = room.subscribe("many").await;
    run_concurrently(8, |speaker| {
        let room = room.clone();
        async move {
            for number in 0..25 {
                room.publish("many", format!("{speaker} {number}")).await;
            }
        }
    })
    .await;
    let mut next = [0; 8];
    for _ in 0..200 {
        let heard = next_message(&mut listener).await;
        let heard = String::from_utf8_lossy(&heard).into_owned();
        let (speaker, number) = heard.split_once(' ').expect("two numbers");
        let speaker: usize = speaker.parse().expect("a speaker");
        assert_eq!(number, next[speaker].to_string(), "speaker {speaker}");
        next[speaker] += 1;
    }
}

pub(super) async fn a_slow_listener_knows_that_it_missed_something(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let mut slow = room.subscribe("a").await;
    let last = 5000_u64;
    for number in 1..=last {
        room.publish("a", number.to_string()).await;
    }
    let (mut newest, mut is_gap, mut n_heard) = (0, false, 0);
    while newest < last {
        match with_timeout(CHECK_TIMEOUT, slow.next()).await.expect("the store is open") {
            ChannelEvent::Lagged => is_gap = true,
            ChannelEvent::Message(message) => {
                let number: u64 = String::from_utf8_lossy(&message).parse().expect("a number");
                assert!(number > newest, "{number} came after {newest}");
                assert!(number == newest + 1 || is_gap, "between {newest} and {number} something is missing");
                (newest, is_gap) = (number, false);
                n_heard += 1;
            }
        }
    }
    assert!(n_heard > 0);
    // Once it has caught up, it hears as before.
    room.publish("a", "again").await;
    assert_eq!(next_message(&mut slow).await, "again");
}

pub(super) async fn channels_do_not_mix(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let names = ["a", "ab", "a*", "?", "[ab]", "A", "b"];
    let mut listeners = Vec::new();
    for name in names {
        listeners.push(room.subscribe(name).await);
    }
    for name in names {
        room.publish(name, name).await;
    }
    for (listener, name) in listeners.iter_mut().zip(names) {
        assert_eq!(next_message(listener).await, name);
        let more = tokio::time::timeout(Duration::from_millis(30), listener.next()).await;
        assert!(more.is_err(), "`{name}` heard {more:?} too");
    }
}

pub(super) async fn whoever_leaves_is_not_missed(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let mut stays = room.subscribe("a").await;
    for number in 0..40 {
        let leaves = room.subscribe("a").await;
        drop(leaves);
        room.publish("a", format!("{number}")).await;
        // Dropped in the middle of waiting.
        let mut waits = room.subscribe("a").await;
        let _ = tokio::time::timeout(Duration::from_micros(100), waits.next()).await;
    }
    for number in 0..40 {
        assert_eq!(next_message(&mut stays).await, format!("{number}"));
    }
    drop(stays);
    room.publish("a", "to an empty room").await;
    let mut back = room.subscribe("a").await;
    room.publish("a", "welcome back").await;
    expect_first(&mut back, "welcome back", |heard| heard == "to an empty room" || heard == "39").await;
}
