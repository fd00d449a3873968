//! Checks of counters and logs.

use std::collections::BTreeSet;

use super::{Backend, Expect, LONG_TTL, SHORT_TTL, TestSpace, eventually, run_concurrently};
use crate::store::LogPage;
use crate::util::clock::timer_now;

async fn read(test: &TestSpace, name: &str, after: u64, limit: usize) -> LogPage {
    test.store.read(&test.key(name), after, limit).await.expect("read")
}

fn numbers(page: &LogPage) -> Vec<u64> {
    page.entries.iter().map(|(number, _)| *number).collect()
}

pub(super) async fn no_increment_is_lost(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let counted = run_concurrently(16, |_| {
        let test = test.clone();
        async move {
            let mut counted = Vec::new();
            for _ in 0..20 {
                counted.push(test.count("a", 3, LONG_TTL).await);
            }
            assert!(counted.is_sorted(), "a counter only grows: {counted:?}");
            counted
        }
    });
    let counted: BTreeSet<u64> = counted.await.into_iter().flatten().collect();
    assert_eq!(
        counted,
        (1..=320).map(|number| number * 3).collect(),
        "each increment returned a different sum"
    );
    assert_eq!(test.count("a", 0, LONG_TTL).await, 960, "adding zero returns the sum");
    assert_eq!(test.count("new", 0, LONG_TTL).await, 0);
    assert_eq!(test.count("large", 1 << 52, LONG_TTL).await, 1 << 52);
    assert_eq!(test.count("large", 1, LONG_TTL).await, (1 << 52) + 1);
}

pub(super) async fn a_counter_expires_after_its_first_increment(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let started = timer_now();
    let ttl = SHORT_TTL * 2;
    test.count("a", 5, ttl).await;
    // Increments do not prolong it: that it starts at zero again shows that it expired.
    eventually("it starts again", || async { test.count("a", 1, ttl).await == 1 }).await;
    assert!(started.elapsed() + std::time::Duration::from_millis(1) >= ttl, "it expired early");
    test.count("b", 5, LONG_TTL).await;
    test.count("b", 5, SHORT_TTL).await;
    tokio::time::sleep(SHORT_TTL * 2).await;
    assert_eq!(test.count("b", 1, LONG_TTL).await, 11, "the TTL of the first increment counts");
}

pub(super) async fn a_log_is_numbered_without_gaps(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let page = read(&test, "a", 0, 9).await;
    assert_eq!((page.oldest, page.newest, page.entries.len()), (1, 0, 0), "the log does not exist");
    let appended = run_concurrently(12, |writer| {
        let test = test.clone();
        async move {
            let mut appended = Vec::new();
            for number in 0..20 {
                appended.push((test.append("a", format!("{writer}/{number}"), LONG_TTL, 1000).await, number));
            }
            assert!(appended.is_sorted(), "later entries have higher numbers: {appended:?}");
            appended.into_iter().map(|(at, number)| (at, format!("{writer}/{number}"))).collect::<Vec<_>>()
        }
    });
    let mut appended: Vec<(u64, String)> = appended.await.into_iter().flatten().collect();
    appended.sort();
    let page = read(&test, "a", 0, 1000).await;
    assert_eq!((page.oldest, page.newest), (1, 240));
    let found: Vec<(u64, String)> =
        page.entries.iter().map(|(at, line)| (*at, String::from_utf8_lossy(line).into_owned())).collect();
    assert_eq!(found, appended, "each entry has the number that its writer received");
    assert_eq!(numbers(&page), (1..=240).collect::<Vec<_>>());
}

pub(super) async fn a_log_keeps_the_newest_entries(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    for number in 1..=25 {
        assert_eq!(test.append("a", format!("line {number}"), LONG_TTL, 10).await, number);
        let page = read(&test, "a", 0, 100).await;
        let oldest = number.saturating_sub(9).max(1);
        assert_eq!((page.oldest, page.newest), (oldest, number));
        assert_eq!(numbers(&page), (oldest..=number).collect::<Vec<_>>());
    }
    let rows = [
        (0, 100, 16..=25),
        (15, 100, 16..=25),
        (20, 100, 21..=25),
        (20, 2, 21..=22),
        (3, 4, 16..=19),
        (24, 9, 25..=25),
    ];
    for (after, limit, expected) in rows {
        let page = read(&test, "a", after, limit).await;
        assert_eq!((page.oldest, page.newest), (16, 25));
        let expected: Vec<(u64, bytes::Bytes)> =
            expected.map(|at| (at, format!("line {at}").into())).collect();
        assert_eq!(page.entries, expected, "after {after}, at limit {limit}");
    }
    for (after, limit) in [(25, 9), (26, 9), (u64::MAX, 9), (0, 0)] {
        let page = read(&test, "a", after, limit).await;
        assert_eq!((page.oldest, page.newest, page.entries.len()), (16, 25, 0));
    }
    assert_eq!(test.append("a", "", LONG_TTL, 2).await, 26, "a smaller limit trims at once");
    let page = read(&test, "a", 0, 9).await;
    assert_eq!((page.oldest, page.newest), (25, 26));
    assert_eq!(page.entries[1].1.len(), 0, "an empty entry is an entry");
    assert_eq!(test.append("a", "last", LONG_TTL, 0).await, 27);
    assert_eq!(numbers(&read(&test, "a", 0, 9).await), [27], "the last entry is always kept");
    assert_eq!(test.append("a", "more", LONG_TTL, 9).await, 28, "a greater limit restores nothing");
    assert_eq!(numbers(&read(&test, "a", 0, 9).await), [27, 28]);
}

pub(super) async fn a_log_expires_and_can_be_deleted(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    test.append("short", "one", LONG_TTL, 9).await;
    let started = timer_now();
    test.append("short", "two", SHORT_TTL, 9).await;
    test.append("long", "one", SHORT_TTL, 9).await;
    test.append("long", "two", LONG_TTL, 9).await;
    eventually("it expires", || async { read(&test, "short", 0, 9).await.entries.is_empty() }).await;
    assert!(started.elapsed() + std::time::Duration::from_millis(1) >= SHORT_TTL, "it expired early");
    let page = read(&test, "short", 0, 9).await;
    assert_eq!((page.oldest, page.newest), (1, 0), "the log does not exist");
    assert_eq!(test.append("short", "again", LONG_TTL, 9).await, 1);
    assert_eq!(numbers(&read(&test, "short", 0, 9).await), [1]);
    tokio::time::sleep(SHORT_TTL).await;
    assert_eq!(numbers(&read(&test, "long", 0, 9).await), [1, 2], "the TTL of the last append counts");
    assert!(test.delete("long", Expect::Anything).await, "there was a log");
    let page = read(&test, "long", 0, 9).await;
    assert_eq!((page.oldest, page.newest, page.entries.len()), (1, 0, 0));
    assert!(!test.delete("long", Expect::Anything).await);
    assert_eq!(test.append("long", "again", LONG_TTL, 9).await, 1);
    assert_eq!(read(&test, "long", 0, 9).await.entries, [(1, "again".into())]);
}

pub(super) async fn entries_counters_and_logs_have_separate_names(backend: Backend) {
    let test = TestSpace::new(&backend).await;
    let version = test.put("a", "entry", Expect::Absent).await.expect("there is no entry");
    assert_eq!(test.count("a", 7, LONG_TTL).await, 7);
    assert_eq!(test.append("a", "line", LONG_TTL, 9).await, 1);
    test.count("counter alone", 1, LONG_TTL).await;
    test.append("log alone", "line", LONG_TTL, 9).await;
    assert_eq!(test.get("counter alone").await, None);
    assert_eq!(test.get("log alone").await, None);
    assert_eq!(test.list_names(None, 9).await, ["a"], "only entries are listed");
    assert!(
        !test.store.touch(&test.key("log alone"), LONG_TTL).await.expect("touch"),
        "only entries are touched"
    );
    assert!(!test.delete("log alone", Expect::Is(version)).await, "a log has no version");
    assert!(!test.delete("counter alone", Expect::Anything).await, "a counter cannot be deleted");
    assert_eq!(test.count("counter alone", 1, LONG_TTL).await, 2);
    assert!(test.delete("a", Expect::Is(version)).await);
    assert_eq!(numbers(&read(&test, "a", 0, 9).await), [1], "deleting an entry by version keeps the log");
    assert!(test.delete("a", Expect::Anything).await, "the log was still there");
    assert_eq!(test.count("a", 1, LONG_TTL).await, 8);
}
