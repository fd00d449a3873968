//! Promises about entries: finding, changing, expiring, listing.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;

use super::{
    Backend, EntryVersion, Expect, LONG_TTL, SHORT_TTL, TestSpace, Visibility, eventually, random,
    run_concurrently,
};
use crate::util::clock::timer_now;

/// As long as a name that is short may be.
const LONG_NAME: &str = "a name of two hundred bytes, which is longer than anything that a server makes up by itself but \
    not longer than what somebody may think of who writes whole sentences where others would write a single word ..";

pub(super) async fn what_is_put_is_found_until_it_is_deleted(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    assert_eq!(room.get("a").await, None);
    assert!(!room.delete("a", Expect::Anything).await, "nothing was there");
    let first = room.put("a", "one", Expect::Anything).await.expect("anything goes");
    let found = room.get("a").await.expect("it was put");
    assert_eq!((found.value, found.version), ("one".into(), first));
    let second = room.put("a", "", Expect::Anything).await.expect("anything goes");
    let found = room.get("a").await.expect("an empty value is a value");
    assert_eq!((found.value, found.version), (Bytes::new(), second));
    assert!(room.delete("a", Expect::Anything).await);
    assert_eq!(room.get("a").await, None);
    assert!(!room.delete("a", Expect::Anything).await, "it is gone");
    let binary: Vec<u8> = (0..=255).collect();
    room.put("b", binary.clone(), Expect::Anything).await;
    assert_eq!(room.value("b").await, Some(binary.into()), "bytes are not text");
}

pub(super) async fn a_change_happens_only_to_what_was_expected(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    assert_eq!(room.put("a", "x", Expect::Is(EntryVersion(1))).await, None, "nothing is there to be that");
    assert_eq!(room.get("a").await, None);
    let first = room.put("a", "one", Expect::Absent).await.expect("nothing is there");
    assert_eq!(room.put("a", "x", Expect::Absent).await, None);
    let second = room.put("a", "two", Expect::Is(first)).await.expect("that is there");
    assert_eq!(room.put("a", "x", Expect::Is(first)).await, None, "another is there now");
    assert_eq!(room.value("a").await, Some("two".into()), "nothing has changed");
    assert!(!room.delete("a", Expect::Is(first)).await);
    assert!(!room.delete("a", Expect::Absent).await);
    assert_eq!(room.value("a").await, Some("two".into()), "nothing has changed");
    assert!(room.delete("a", Expect::Is(second)).await);
    assert_eq!(room.put("a", "x", Expect::Is(second)).await, None);
    assert!(room.put("a", "three", Expect::Absent).await.is_some());
    // A failed change does not prolong a life either.
    room.put_with_ttl("b", "short", Some(SHORT_TTL), Expect::Absent).await;
    assert_eq!(room.put_with_ttl("b", "x", Some(LONG_TTL), Expect::Is(first)).await, None);
    eventually("it expires as it would have", || async { room.get("b").await.is_none() }).await;
}

pub(super) async fn one_of_many_writers_wins(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    for round in 0..4 {
        let name = format!("prize {round}");
        let won = run_concurrently(32, |writer| {
            let (room, name) = (room.clone(), name.clone());
            async move { room.put(&name, writer.to_string(), Expect::Absent).await.map(|_| writer) }
        });
        let winners: Vec<u64> = won.await.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "exactly one found nothing there");
        assert_eq!(room.value(&name).await, Some(winners[0].to_string().into()));
        let there = room.get(&name).await.expect("the winner's").version;
        let won = run_concurrently(32, |_| {
            let (room, name) = (room.clone(), name.clone());
            async move { room.put(&name, "changed", Expect::Is(there)).await.is_some() }
        });
        assert_eq!(won.await.into_iter().filter(|won| *won).count(), 1, "exactly one changed what it knew");
        let gone = run_concurrently(16, |_| {
            let (room, name) = (room.clone(), name.clone());
            async move { room.delete(&name, Expect::Anything).await }
        });
        assert_eq!(gone.await.into_iter().filter(|gone| *gone).count(), 1, "exactly one deleted it");
    }
}

pub(super) async fn no_update_is_lost(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    room.put("sum", "0", Expect::Absent).await;
    run_concurrently(8, |_| {
        let room = room.clone();
        async move {
            for _ in 0..25 {
                loop {
                    let there = room.get("sum").await.expect("it stays");
                    let sum: u64 =
                        std::str::from_utf8(&there.value).expect("digits").parse().expect("a number");
                    if room.put("sum", (sum + 1).to_string(), Expect::Is(there.version)).await.is_some() {
                        break;
                    }
                }
            }
        }
    })
    .await;
    assert_eq!(room.value("sum").await, Some("200".into()));
}

pub(super) async fn versions_never_come_back(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let mut seen = HashSet::new();
    for round in 0..40 {
        let life = (round % 4 == 3).then_some(Duration::from_millis(10));
        let version = room.put_with_ttl("a", "same", life, Expect::Anything).await.expect("anything goes");
        assert!(seen.insert(version), "{version:?} came back");
        if round % 4 == 1 {
            assert!(room.delete("a", Expect::Is(version)).await);
        }
        if life.is_some() {
            eventually("it expires", || async { room.get("a").await.is_none() }).await;
        }
    }
    let versions = run_concurrently(32, |_| {
        let room = room.clone();
        async move { room.put("a", "same", Expect::Anything).await.expect("anything goes") }
    });
    for version in versions.await {
        assert!(seen.insert(version), "{version:?} came back");
    }
}

pub(super) async fn what_expires_is_gone_and_never_early(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    room.put("stays", "for ever", Expect::Absent).await;
    for life in [Duration::ZERO, Duration::from_millis(30), SHORT_TTL, SHORT_TTL * 4] {
        let begun = timer_now();
        let version =
            room.put_with_ttl("a", "soon", Some(life), Expect::Absent).await.expect("nothing is there");
        eventually("it expires", || async { room.get("a").await.is_none() }).await;
        // A store may count in whole milliseconds.
        assert!(begun.elapsed() + Duration::from_millis(1) >= life, "it was gone early");
        assert_eq!(room.list_names(None, 9).await, ["stays"], "what has expired is not listed");
        assert!(
            !room.store.touch(&room.key("a"), LONG_TTL).await.expect("touch"),
            "it cannot be brought back"
        );
        assert!(!room.delete("a", Expect::Anything).await);
        assert_eq!(room.put("a", "x", Expect::Is(version)).await, None);
    }
    // A new life replaces the old one: a longer, a shorter, none.
    room.put_with_ttl("a", "soon", Some(SHORT_TTL), Expect::Absent).await.expect("nothing is there");
    room.put_with_ttl("b", "soon", Some(SHORT_TTL), Expect::Absent).await;
    room.put_with_ttl("c", "later", Some(LONG_TTL), Expect::Absent).await;
    room.put_with_ttl("a", "later", Some(LONG_TTL), Expect::Anything).await;
    room.put_with_ttl("b", "never", None, Expect::Anything).await;
    room.put_with_ttl("c", "soon", Some(SHORT_TTL), Expect::Anything).await;
    tokio::time::sleep(SHORT_TTL * 2).await;
    assert_eq!(room.value("a").await, Some("later".into()));
    assert_eq!(room.value("b").await, Some("never".into()));
    assert_eq!(room.value("c").await, None);
    assert_eq!(room.list_names(None, 9).await, ["a", "b", "stays"]);
}

pub(super) async fn a_touch_prolongs_a_life(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let touch = |name: &'static str, life| {
        let room = &room;
        async move { room.store.touch(&room.key(name), life).await.expect("touch") }
    };
    assert!(!touch("a", LONG_TTL).await, "nothing is there");
    assert_eq!(room.get("a").await, None, "a touch makes nothing");
    let life = Duration::from_millis(1200);
    let version = room.put_with_ttl("a", "kept", Some(life), Expect::Absent).await.expect("nothing is there");
    assert!(touch("a", LONG_TTL).await);
    room.put_with_ttl("b", "short", Some(LONG_TTL), Expect::Absent).await;
    assert!(touch("b", SHORT_TTL).await, "a touch may shorten");
    room.put("c", "for ever", Expect::Absent).await;
    assert!(touch("c", SHORT_TTL).await, "also what had no end");
    tokio::time::sleep(life + SHORT_TTL).await;
    let found = room.get("a").await.expect("it was touched");
    assert_eq!((found.value, found.version), ("kept".into(), version), "a touch changes nothing else");
    assert_eq!(room.list_names(None, 9).await, ["a"]);
}

pub(super) async fn a_listing_is_in_order_and_in_pages(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    assert!(room.list_names(None, 9).await.is_empty());
    let mut names: Vec<String> = (0..60).map(|number| format!("n{:02}", number * 7 % 60)).collect();
    for name in &names {
        room.put(name, format!("value of {name}"), Expect::Absent).await;
    }
    // Neighbours with similar names are other spaces.
    for other in [format!("{}/", room.space), format!("{}0", room.space)] {
        let other = TestSpace { space: other, ..room.clone() };
        other.put("n00", "elsewhere", Expect::Absent).await;
    }
    names.sort();
    assert_eq!(room.list_names(None, 1000).await, names);
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map(String::as_str);
        let page = room.list_names(after, 7).await;
        assert!(page.len() <= 7);
        let is_last = page.len() < 7;
        paged.extend(page);
        if is_last {
            break;
        }
    }
    assert_eq!(paged, names);
    assert_eq!(room.list_names(Some("n30x"), 2).await, ["n31", "n32"], "`after` need not be there");
    assert!(room.list_names(Some("n59"), 2).await.is_empty());
    assert!(room.list_names(None, 0).await.is_empty());
    for (name, entry) in room.store.list(&room.space, None, 5).await.expect("list") {
        assert_eq!(entry.value, format!("value of {name}"));
        assert_eq!(room.get(&name).await, Some(entry), "what is listed is what is found");
    }
    for name in &names[..30] {
        assert!(room.delete(name, Expect::Anything).await);
    }
    assert_eq!(room.list_names(None, 1000).await, names[30..]);
    // Many that have expired in front of the rest do not make a page short.
    let names: Vec<String> = (0..40).map(|number| format!("a{number:02}")).collect();
    for name in &names {
        room.put_with_ttl(name, "soon", Some(Duration::from_millis(10)), Expect::Absent).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(room.list_names(None, 2).await, ["n30", "n31"]);
}

pub(super) async fn large_values_come_back_whole(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let mut seed = random();
    let large: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed.to_be_bytes()[0]
    })
    .take(1 << 20)
    .collect();
    let large = Bytes::from(large);
    room.put("a", large.clone(), Expect::Absent).await;
    assert!(room.value("a").await == Some(large.clone()), "an entry of 1 MiB");
    assert_eq!(room.append("log", large.clone(), LONG_TTL, 3).await, 1);
    let page = room.store.read(&room.key("log"), 0, 9).await.expect("read");
    assert!(page.entries == [(1, large.clone())], "a log of 1 MiB");
    let mut listener = room.subscribe("channel").await;
    room.publish("channel", large.clone()).await;
    let heard = super::with_timeout(super::CHECK_TIMEOUT, listener.next()).await;
    assert!(heard == Some(crate::store::ChannelEvent::Message(large)), "a message of 1 MiB");
}

pub(super) async fn names_may_be_odd(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let mut names = [
        " ",
        "*",
        "?",
        "[a-z]",
        "a b",
        "a:b",
        "a/b",
        "a%2fb",
        "\\",
        "\"",
        "'",
        "--",
        "0",
        "-1",
        "inf",
        "(",
        "[",
        "+",
        "-",
        "é",
        "e\u{301}",
        "日本語",
        "🦀",
        ".",
        "..",
        "$1",
        "KEYS[1]",
        LONG_NAME,
    ];
    for name in &names {
        assert!(room.put(name, *name, Expect::Absent).await.is_some(), "{name:?} is a name of its own");
        assert_eq!(room.append(name, *name, LONG_TTL, 9).await, 1, "{name:?} is a name of its own");
        assert_eq!(room.count(name, 1, LONG_TTL).await, 1, "{name:?} is a name of its own");
    }
    for name in &names {
        assert_eq!(room.value(name).await, Some(Bytes::copy_from_slice(name.as_bytes())), "{name:?}");
    }
    // The order of the bytes, whatever the language.
    names.sort_unstable();
    assert_eq!(room.list_names(None, 100).await, names);
    for pair in names.windows(2) {
        assert_eq!(room.list_names(Some(pair[0]), 1).await, [pair[1]], "behind {:?}", pair[0]);
    }
    for space in names.iter().take(6) {
        let other = TestSpace { space: format!("{}{space}", room.space), ..room.clone() };
        assert!(other.put("a", "x", Expect::Absent).await.is_some());
        assert_eq!(other.list_names(None, 9).await, ["a"]);
        let mut listener = other.subscribe(space).await;
        other.publish(space, "hello").await;
        let heard = super::with_timeout(super::CHECK_TIMEOUT, listener.next()).await;
        assert_eq!(heard, Some(crate::store::ChannelEvent::Message("hello".into())));
    }
}

pub(super) async fn an_abandoned_operation_harms_nobody(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    for number in 0..60_u64 {
        let room = room.clone();
        let task = tokio::spawn(async move {
            room.count("count", 1, LONG_TTL).await;
            room.append("log", "line", LONG_TTL, 1000).await;
            let _ = room.get("a").await;
            room.put("a", number.to_string(), Expect::Anything).await;
        });
        tokio::time::sleep(Duration::from_micros(number * 20)).await;
        task.abort();
    }
    let count = room.count("count", 1, LONG_TTL).await;
    assert!((1..=61).contains(&count), "each counted once or not at all: {count}");
    let number = room.append("log", "last", LONG_TTL, 1000).await;
    let page = room.store.read(&room.key("log"), 0, 1000).await.expect("read");
    let numbers: Vec<u64> = page.entries.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=number).collect::<Vec<_>>(), "no holes");
    let version = room.put("a", "mine", Expect::Anything).await.expect("anything goes");
    // What was abandoned may still be under way for a moment; then it is over.
    tokio::time::sleep(SHORT_TTL).await;
    if let Some(found) = room.get("a").await {
        assert!(found.version == version || found.value != "mine");
    }
}

pub(super) async fn another_handle_sees_the_same(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    if room.store.visibility() == Visibility::Process {
        return;
    }
    let mut versions = HashSet::new();
    versions.extend(room.put("a", "entry", Expect::Absent).await);
    room.put_with_ttl("b", "expires", Some(LONG_TTL), Expect::Absent).await;
    let begun = timer_now();
    room.put_with_ttl("c", "expires soon", Some(SHORT_TTL * 4), Expect::Absent).await;
    room.count("a", 41, LONG_TTL).await;
    for number in 1..=5 {
        assert_eq!(room.append("a", format!("line {number}"), LONG_TTL, 3).await, number);
    }
    let gone = room.put("gone", "x", Expect::Absent).await.expect("nothing is there");
    assert!(room.delete("gone", Expect::Is(gone)).await);
    versions.insert(gone);
    let space = room.space.clone();
    let first = (room.store.visibility() == Visibility::Cluster).then(|| room.clone());
    drop(room);
    let room = TestSpace { store: backend.store().await, space };
    assert_eq!(room.value("a").await, Some("entry".into()));
    assert_eq!(room.value("b").await, Some("expires".into()));
    assert_eq!(room.count("a", 1, LONG_TTL).await, 42);
    assert_eq!(room.append("a", "line 6", LONG_TTL, 3).await, 6);
    let page = room.store.read(&room.key("a"), 0, 9).await.expect("read");
    assert_eq!((page.oldest, page.newest), (4, 6));
    eventually("it expires here too", || async { room.get("c").await.is_none() }).await;
    assert!(begun.elapsed() + Duration::from_millis(1) >= SHORT_TTL * 4, "it was gone early");
    assert_eq!(room.list_names(None, 9).await, ["a", "b"]);
    let there = room.get("a").await.expect("it was put").version;
    versions.extend([there]);
    for name in ["a", "gone"] {
        let version = room.put(name, "new", Expect::Anything).await.expect("anything goes");
        assert!(versions.insert(version), "{version:?} came back");
    }
    let Some(first) = first else { return };
    assert_eq!(first.value("a").await, Some("new".into()));
    assert_eq!(first.put("a", "x", Expect::Is(there)).await, None, "another handle has changed it");
    let mut listener = first.subscribe("channel").await;
    room.publish("channel", "from the other").await;
    let heard = super::with_timeout(super::CHECK_TIMEOUT, listener.next()).await;
    assert_eq!(heard, Some(crate::store::ChannelEvent::Message("from the other".into())));
    let won = run_concurrently(20, |number| {
        let room = if number % 2 == 0 { room.clone() } else { first.clone() };
        async move { room.put("prize", "mine", Expect::Absent).await.is_some() }
    });
    assert_eq!(won.await.into_iter().filter(|won| *won).count(), 1);
}
