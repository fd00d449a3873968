//! Checks of entries: finding, changing, expiring and listing them.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;

use super::{
    Backend, EntryVersion, Expect, LONG_TTL, SHORT_TTL, TestSpace, Visibility, eventually, random,
    run_concurrently,
};
use crate::util::clock::timer_now;

/// A name as long as names may be.
const LONG_NAME: &str = "a name of two hundred bytes, which is longer than any name that a server generates by itself, \
    but not longer than a name that a user may choose who writes whole sentences where others write one word";

pub(super) async fn entries_are_found_until_they_are_deleted(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    assert_eq!(test.get("a").await, None);
    assert!(!test.delete("a", Expect::Anything).await, "nothing was there");
    let first = test.put("a", "one", Expect::Anything).await.expect("no condition");
    let found = test.get("a").await.expect("it was put");
    assert_eq!((found.value, found.version), ("one".into(), first));
    let second = test.put("a", "", Expect::Anything).await.expect("no condition");
    let found = test.get("a").await.expect("an empty value is a value");
    assert_eq!((found.value, found.version), (Bytes::new(), second));
    assert!(test.delete("a", Expect::Anything).await);
    assert_eq!(test.get("a").await, None);
    assert!(!test.delete("a", Expect::Anything).await, "it was deleted");
    let binary: Vec<u8> = (0..=255).collect();
    test.put("b", binary.clone(), Expect::Anything).await;
    assert_eq!(test.value("b").await, Some(binary.into()), "values are bytes, not text");
}

pub(super) async fn changes_require_the_expected_version(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    assert_eq!(
        test.put("a", "x", Expect::Is(EntryVersion(1))).await,
        None,
        "there is no entry with that version"
    );
    assert_eq!(test.get("a").await, None);
    let first = test.put("a", "one", Expect::Absent).await.expect("there is no entry");
    assert_eq!(test.put("a", "x", Expect::Absent).await, None);
    let second = test.put("a", "two", Expect::Is(first)).await.expect("that is the current version");
    assert_eq!(test.put("a", "x", Expect::Is(first)).await, None, "the version has changed");
    assert_eq!(test.value("a").await, Some("two".into()), "nothing has changed");
    assert!(!test.delete("a", Expect::Is(first)).await);
    assert!(!test.delete("a", Expect::Absent).await);
    assert_eq!(test.value("a").await, Some("two".into()), "nothing has changed");
    assert!(test.delete("a", Expect::Is(second)).await);
    assert_eq!(test.put("a", "x", Expect::Is(second)).await, None);
    assert!(test.put("a", "three", Expect::Absent).await.is_some());
    // A failed change does not change the TTL either.
    test.put_with_ttl("b", "short", Some(SHORT_TTL), Expect::Absent).await;
    assert_eq!(test.put_with_ttl("b", "x", Some(LONG_TTL), Expect::Is(first)).await, None);
    eventually("it expires at the original time", || async { test.get("b").await.is_none() }).await;
}

pub(super) async fn exactly_one_concurrent_writer_wins(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    for round in 0..4 {
        let name = format!("prize {round}");
        let won = run_concurrently(32, |writer| {
            let (test, name) = (test.clone(), name.clone());
            async move { test.put(&name, writer.to_string(), Expect::Absent).await.map(|_| writer) }
        });
        let winners: Vec<u64> = won.await.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "exactly one writer found no entry");
        assert_eq!(test.value(&name).await, Some(winners[0].to_string().into()));
        let version = test.get(&name).await.expect("an entry of the winner").version;
        let won = run_concurrently(32, |_| {
            let (test, name) = (test.clone(), name.clone());
            async move { test.put(&name, "changed", Expect::Is(version)).await.is_some() }
        });
        assert_eq!(
            won.await.into_iter().filter(|won| *won).count(),
            1,
            "exactly one change had the expected version"
        );
        let deleted = run_concurrently(16, |_| {
            let (test, name) = (test.clone(), name.clone());
            async move { test.delete(&name, Expect::Anything).await }
        });
        assert_eq!(deleted.await.into_iter().filter(|deleted| *deleted).count(), 1, "exactly one deleted it");
    }
}

pub(super) async fn no_update_is_lost(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    test.put("sum", "0", Expect::Absent).await;
    run_concurrently(8, |_| {
        let test = test.clone();
        async move {
            for _ in 0..25 {
                loop {
                    let entry = test.get("sum").await.expect("it is not deleted");
                    let sum: u64 =
                        std::str::from_utf8(&entry.value).expect("digits").parse().expect("a number");
                    if test.put("sum", (sum + 1).to_string(), Expect::Is(entry.version)).await.is_some() {
                        break;
                    }
                }
            }
        }
    })
    .await;
    assert_eq!(test.value("sum").await, Some("200".into()));
}

pub(super) async fn versions_are_never_reused(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let mut seen = HashSet::new();
    for round in 0..40 {
        let ttl = (round % 4 == 3).then_some(Duration::from_millis(10));
        let version = test.put_with_ttl("a", "same", ttl, Expect::Anything).await.expect("no condition");
        assert!(seen.insert(version), "{version:?} was reused");
        if round % 4 == 1 {
            assert!(test.delete("a", Expect::Is(version)).await);
        }
        if ttl.is_some() {
            eventually("it expires", || async { test.get("a").await.is_none() }).await;
        }
    }
    let versions = run_concurrently(32, |_| {
        let test = test.clone();
        async move { test.put("a", "same", Expect::Anything).await.expect("no condition") }
    });
    for version in versions.await {
        assert!(seen.insert(version), "{version:?} was reused");
    }
}

pub(super) async fn entries_expire_and_never_early(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    test.put("stays", "forever", Expect::Absent).await;
    for ttl in [Duration::ZERO, Duration::from_millis(30), SHORT_TTL, SHORT_TTL * 4] {
        let started = timer_now();
        let version =
            test.put_with_ttl("a", "soon", Some(ttl), Expect::Absent).await.expect("there is no entry");
        eventually("it expires", || async { test.get("a").await.is_none() }).await;
        // A store may count in whole milliseconds.
        assert!(started.elapsed() + Duration::from_millis(1) >= ttl, "it expired early");
        assert_eq!(test.list_names(None, 9).await, ["stays"], "expired entries are not listed");
        assert!(
            !test.store.touch(&test.key("a"), LONG_TTL).await.expect("touch"),
            "an expired entry cannot be touched"
        );
        assert!(!test.delete("a", Expect::Anything).await);
        assert_eq!(test.put("a", "x", Expect::Is(version)).await, None);
    }
    // A new TTL replaces the old one: a longer one, a shorter one, none.
    test.put_with_ttl("a", "soon", Some(SHORT_TTL), Expect::Absent).await.expect("there is no entry");
    test.put_with_ttl("b", "soon", Some(SHORT_TTL), Expect::Absent).await;
    test.put_with_ttl("c", "later", Some(LONG_TTL), Expect::Absent).await;
    test.put_with_ttl("a", "later", Some(LONG_TTL), Expect::Anything).await;
    test.put_with_ttl("b", "never", None, Expect::Anything).await;
    test.put_with_ttl("c", "soon", Some(SHORT_TTL), Expect::Anything).await;
    tokio::time::sleep(SHORT_TTL * 2).await;
    assert_eq!(test.value("a").await, Some("later".into()));
    assert_eq!(test.value("b").await, Some("never".into()));
    assert_eq!(test.value("c").await, None);
    assert_eq!(test.list_names(None, 9).await, ["a", "b", "stays"]);
}

pub(super) async fn touch_sets_the_ttl(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let touch = |name: &'static str, ttl| {
        let test = &test;
        async move { test.store.touch(&test.key(name), ttl).await.expect("touch") }
    };
    assert!(!touch("a", LONG_TTL).await, "there is no entry");
    assert_eq!(test.get("a").await, None, "a touch creates nothing");
    let ttl = Duration::from_millis(1200);
    let version =
        test.put_with_ttl("a", "touched", Some(ttl), Expect::Absent).await.expect("there is no entry");
    assert!(touch("a", LONG_TTL).await);
    test.put_with_ttl("b", "short", Some(LONG_TTL), Expect::Absent).await;
    assert!(touch("b", SHORT_TTL).await, "a touch may shorten");
    test.put("c", "forever", Expect::Absent).await;
    assert!(touch("c", SHORT_TTL).await, "also an entry without a TTL");
    tokio::time::sleep(ttl + SHORT_TTL).await;
    let found = test.get("a").await.expect("it was touched");
    assert_eq!((found.value, found.version), ("touched".into(), version), "a touch changes nothing else");
    assert_eq!(test.list_names(None, 9).await, ["a"]);
}

pub(super) async fn list_is_ordered_and_paged(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    assert!(test.list_names(None, 9).await.is_empty());
    let mut names: Vec<String> = (0..60).map(|number| format!("n{:02}", number * 7 % 60)).collect();
    for name in &names {
        test.put(name, format!("value of {name}"), Expect::Absent).await;
    }
    // Spaces with similar names are separate.
    for other in [format!("{}/", test.space), format!("{}0", test.space)] {
        let other = TestSpace { space: other, ..test.clone() };
        other.put("n00", "elsewhere", Expect::Absent).await;
    }
    names.sort();
    assert_eq!(test.list_names(None, 1000).await, names);
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map(String::as_str);
        let page = test.list_names(after, 7).await;
        assert!(page.len() <= 7);
        let is_last = page.len() < 7;
        paged.extend(page);
        if is_last {
            break;
        }
    }
    assert_eq!(paged, names);
    assert_eq!(test.list_names(Some("n30x"), 2).await, ["n31", "n32"], "`after` need not exist");
    assert!(test.list_names(Some("n59"), 2).await.is_empty());
    assert!(test.list_names(None, 0).await.is_empty());
    for (name, entry) in test.store.list(&test.space, None, 5).await.expect("list") {
        assert_eq!(entry.value, format!("value of {name}"));
        assert_eq!(test.get(&name).await, Some(entry), "list and get return the same entry");
    }
    for name in &names[..30] {
        assert!(test.delete(name, Expect::Anything).await);
    }
    assert_eq!(test.list_names(None, 1000).await, names[30..]);
    // Many expired entries before the others do not make a page short.
    let names: Vec<String> = (0..40).map(|number| format!("a{number:02}")).collect();
    for name in &names {
        test.put_with_ttl(name, "soon", Some(Duration::from_millis(10)), Expect::Absent).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(test.list_names(None, 2).await, ["n30", "n31"]);
}

pub(super) async fn large_values_are_returned_unchanged(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let mut seed = random();
    let large: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed.to_be_bytes()[0]
    })
    .take(1 << 20)
    .collect();
    let large = Bytes::from(large);
    test.put("a", large.clone(), Expect::Absent).await;
    assert!(test.value("a").await == Some(large.clone()), "an entry of 1 MiB");
    assert_eq!(test.append("log", large.clone(), LONG_TTL, 3).await, 1);
    let page = test.store.read(&test.key("log"), 0, 9).await.expect("read");
    assert!(page.entries == [(1, large.clone())], "a log of 1 MiB");
    let mut listener = test.subscribe("channel").await;
    test.publish("channel", large.clone()).await;
    let event = super::expect_within(super::CHECK_TIMEOUT, listener.next()).await;
    assert!(event == Some(crate::store::ChannelEvent::Message(large)), "a message of 1 MiB");
}

pub(super) async fn unusual_names_are_distinct(backend: Backend) {
    let test = TestSpace::new(&backend).await;
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
        assert!(test.put(name, *name, Expect::Absent).await.is_some(), "{name:?} is a separate name");
        assert_eq!(test.append(name, *name, LONG_TTL, 9).await, 1, "{name:?} is a separate name");
        assert_eq!(test.count(name, 1, LONG_TTL).await, 1, "{name:?} is a separate name");
    }
    for name in &names {
        assert_eq!(test.value(name).await, Some(Bytes::copy_from_slice(name.as_bytes())), "{name:?}");
    }
    // Byte order, whatever the language.
    names.sort_unstable();
    assert_eq!(test.list_names(None, 100).await, names);
    for pair in names.windows(2) {
        assert_eq!(test.list_names(Some(pair[0]), 1).await, [pair[1]], "after {:?}", pair[0]);
    }
    for space in names.iter().take(6) {
        let other = TestSpace { space: format!("{}{space}", test.space), ..test.clone() };
        assert!(other.put("a", "x", Expect::Absent).await.is_some());
        assert_eq!(other.list_names(None, 9).await, ["a"]);
        let mut listener = other.subscribe(space).await;
        other.publish(space, "hello").await;
        let event = super::expect_within(super::CHECK_TIMEOUT, listener.next()).await;
        assert_eq!(event, Some(crate::store::ChannelEvent::Message("hello".into())));
    }
}

pub(super) async fn dropped_operations_leave_consistent_data(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    for number in 0..60_u64 {
        let test = test.clone();
        let task = tokio::spawn(async move {
            test.count("count", 1, LONG_TTL).await;
            test.append("log", "line", LONG_TTL, 1000).await;
            let _ = test.get("a").await;
            test.put("a", number.to_string(), Expect::Anything).await;
        });
        tokio::time::sleep(Duration::from_micros(number * 20)).await;
        task.abort();
    }
    let count = test.count("count", 1, LONG_TTL).await;
    assert!((1..=61).contains(&count), "each increment took effect once or not at all: {count}");
    let number = test.append("log", "last", LONG_TTL, 1000).await;
    let page = test.store.read(&test.key("log"), 0, 1000).await.expect("read");
    let numbers: Vec<u64> = page.entries.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=number).collect::<Vec<_>>(), "no gaps");
    let version = test.put("a", "last", Expect::Anything).await.expect("no condition");
    // Dropped operations may still be in progress for a moment.
    tokio::time::sleep(SHORT_TTL).await;
    if let Some(found) = test.get("a").await {
        assert!(found.version == version || found.value != "last");
    }
}

pub(super) async fn a_second_handle_sees_the_same_data(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    if test.store.visibility() == Visibility::Process {
        return;
    }
    let mut versions = HashSet::new();
    versions.extend(test.put("a", "entry", Expect::Absent).await);
    test.put_with_ttl("b", "expires", Some(LONG_TTL), Expect::Absent).await;
    let started = timer_now();
    test.put_with_ttl("c", "expires soon", Some(SHORT_TTL * 4), Expect::Absent).await;
    test.count("a", 41, LONG_TTL).await;
    for number in 1..=5 {
        assert_eq!(test.append("a", format!("line {number}"), LONG_TTL, 3).await, number);
    }
    let deleted = test.put("deleted", "x", Expect::Absent).await.expect("there is no entry");
    assert!(test.delete("deleted", Expect::Is(deleted)).await);
    versions.insert(deleted);
    let space = test.space.clone();
    let first = (test.store.visibility() == Visibility::Cluster).then(|| test.clone());
    drop(test);
    let test = TestSpace { store: backend.store().await, space };
    assert_eq!(test.value("a").await, Some("entry".into()));
    assert_eq!(test.value("b").await, Some("expires".into()));
    assert_eq!(test.count("a", 1, LONG_TTL).await, 42);
    assert_eq!(test.append("a", "line 6", LONG_TTL, 3).await, 6);
    let page = test.store.read(&test.key("a"), 0, 9).await.expect("read");
    assert_eq!((page.oldest, page.newest), (4, 6));
    eventually("it expires for this handle too", || async { test.get("c").await.is_none() }).await;
    assert!(started.elapsed() + Duration::from_millis(1) >= SHORT_TTL * 4, "it expired early");
    assert_eq!(test.list_names(None, 9).await, ["a", "b"]);
    let version_before = test.get("a").await.expect("it was put").version;
    versions.extend([version_before]);
    for name in ["a", "deleted"] {
        let version = test.put(name, "new", Expect::Anything).await.expect("no condition");
        assert!(versions.insert(version), "{version:?} was reused");
    }
    let Some(first) = first else { return };
    assert_eq!(first.value("a").await, Some("new".into()));
    assert_eq!(first.put("a", "x", Expect::Is(version_before)).await, None, "another handle has changed it");
    let mut listener = first.subscribe("channel").await;
    test.publish("channel", "from the other").await;
    let event = super::expect_within(super::CHECK_TIMEOUT, listener.next()).await;
    assert_eq!(event, Some(crate::store::ChannelEvent::Message("from the other".into())));
    let won = run_concurrently(20, |number| {
        let test = if number % 2 == 0 { test.clone() } else { first.clone() };
        async move { test.put("prize", "mine", Expect::Absent).await.is_some() }
    });
    assert_eq!(won.await.into_iter().filter(|won| *won).count(), 1);
}
