//! Promises about counters and logs.

use std::collections::BTreeSet;

use super::{Backend, Expect, LONG_TTL, SHORT_TTL, TestSpace, eventually, run_concurrently};
use crate::store::LogPage;
use crate::util::clock::timer_now;

async fn read(room: &TestSpace, name: &str, after: u64, most: usize) -> LogPage {
    room.store.read(&room.key(name), after, most).await.expect("read")
}

fn numbers(page: &LogPage) -> Vec<u64> {
    page.entries.iter().map(|(number, _)| *number).collect()
}

pub(super) async fn counters_lose_nothing(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let counted = run_concurrently(16, |_| {
        let room = room.clone();
        async move {
            let mut counted = Vec::new();
            for _ in 0..20 {
                counted.push(room.count("a", 3, LONG_TTL).await);
            }
            assert!(counted.is_sorted(), "a counter only grows: {counted:?}");
            counted
        }
    });
    let counted: BTreeSet<u64> = counted.await.into_iter().flatten().collect();
    assert_eq!(counted, (1..=320).map(|number| number * 3).collect(), "each saw another sum");
    assert_eq!(room.count("a", 0, LONG_TTL).await, 960, "adding nothing tells what it is");
    assert_eq!(room.count("new", 0, LONG_TTL).await, 0);
    assert_eq!(room.count("large", 1 << 52, LONG_TTL).await, 1 << 52);
    assert_eq!(room.count("large", 1, LONG_TTL).await, (1 << 52) + 1);
}

pub(super) async fn a_counter_lives_from_its_beginning(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let begun = timer_now();
    let life = SHORT_TTL * 2;
    room.count("a", 5, life).await;
    // Counting on does not prolong it; that it begins anew shows that it had ended.
    eventually("it begins anew", || async { room.count("a", 1, life).await == 1 }).await;
    assert!(begun.elapsed() + std::time::Duration::from_millis(1) >= life, "it was gone early");
    room.count("b", 5, LONG_TTL).await;
    room.count("b", 5, SHORT_TTL).await;
    tokio::time::sleep(SHORT_TTL * 2).await;
    assert_eq!(room.count("b", 1, LONG_TTL).await, 11, "the life of the first counts");
}

pub(super) async fn a_log_is_numbered_without_holes(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let page = read(&room, "a", 0, 9).await;
    assert_eq!((page.oldest, page.newest, page.entries.len()), (1, 0, 0), "nothing was ever there");
    let appended = run_concurrently(12, |writer| {
        let room = room.clone();
        async move {
            let mut appended = Vec::new();
            for number in 0..20 {
                appended.push((room.append("a", format!("{writer}/{number}"), LONG_TTL, 1000).await, number));
            }
            assert!(appended.is_sorted(), "what is appended later has a higher number: {appended:?}");
            appended.into_iter().map(|(at, number)| (at, format!("{writer}/{number}"))).collect::<Vec<_>>()
        }
    });
    let mut appended: Vec<(u64, String)> = appended.await.into_iter().flatten().collect();
    appended.sort();
    let page = read(&room, "a", 0, 1000).await;
    assert_eq!((page.oldest, page.newest), (1, 240));
    let found: Vec<(u64, String)> =
        page.entries.iter().map(|(at, line)| (*at, String::from_utf8_lossy(line).into_owned())).collect();
    assert_eq!(found, appended, "each line stands where its writer was told");
    assert_eq!(numbers(&page), (1..=240).collect::<Vec<_>>());
}

pub(super) async fn a_log_keeps_the_newest(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    for number in 1..=25 {
        assert_eq!(room.append("a", format!("line {number}"), LONG_TTL, 10).await, number);
        let page = read(&room, "a", 0, 100).await;
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
    for (after, most, wanted) in rows {
        let page = read(&room, "a", after, most).await;
        assert_eq!((page.oldest, page.newest), (16, 25));
        let wanted: Vec<(u64, bytes::Bytes)> = wanted.map(|at| (at, format!("line {at}").into())).collect();
        assert_eq!(page.entries, wanted, "behind {after}, at most {most}");
    }
    for (after, most) in [(25, 9), (26, 9), (u64::MAX, 9), (0, 0)] {
        let page = read(&room, "a", after, most).await;
        assert_eq!((page.oldest, page.newest, page.entries.len()), (16, 25, 0));
    }
    assert_eq!(room.append("a", "", LONG_TTL, 2).await, 26, "a smaller bound trims at once");
    let page = read(&room, "a", 0, 9).await;
    assert_eq!((page.oldest, page.newest), (25, 26));
    assert_eq!(page.entries[1].1.len(), 0, "an empty line is a line");
    assert_eq!(room.append("a", "last", LONG_TTL, 0).await, 27);
    assert_eq!(numbers(&read(&room, "a", 0, 9).await), [27], "the last one is always kept");
    assert_eq!(room.append("a", "more", LONG_TTL, 9).await, 28, "a greater bound brings nothing back");
    assert_eq!(numbers(&read(&room, "a", 0, 9).await), [27, 28]);
}

pub(super) async fn a_log_expires_and_can_be_forgotten(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    room.append("short", "one", LONG_TTL, 9).await;
    let begun = timer_now();
    room.append("short", "two", SHORT_TTL, 9).await;
    room.append("long", "one", SHORT_TTL, 9).await;
    room.append("long", "two", LONG_TTL, 9).await;
    eventually("it expires", || async { read(&room, "short", 0, 9).await.entries.is_empty() }).await;
    assert!(begun.elapsed() + std::time::Duration::from_millis(1) >= SHORT_TTL, "it was gone early");
    let page = read(&room, "short", 0, 9).await;
    assert_eq!((page.oldest, page.newest), (1, 0), "nothing is left of it");
    assert_eq!(room.append("short", "anew", LONG_TTL, 9).await, 1);
    assert_eq!(numbers(&read(&room, "short", 0, 9).await), [1]);
    tokio::time::sleep(SHORT_TTL).await;
    assert_eq!(numbers(&read(&room, "long", 0, 9).await), [1, 2], "the life of the last append counts");
    assert!(room.delete("long", Expect::Anything).await, "something was there");
    let page = read(&room, "long", 0, 9).await;
    assert_eq!((page.oldest, page.newest, page.entries.len()), (1, 0, 0));
    assert!(!room.delete("long", Expect::Anything).await);
    assert_eq!(room.append("long", "anew", LONG_TTL, 9).await, 1);
    assert_eq!(read(&room, "long", 0, 9).await.entries, [(1, "anew".into())]);
}

pub(super) async fn entries_counters_and_logs_share_no_names(backend: Backend) {
    let room = TestSpace::new(&backend).await;
    let version = room.put("a", "entry", Expect::Absent).await.expect("nothing is there");
    assert_eq!(room.count("a", 7, LONG_TTL).await, 7);
    assert_eq!(room.append("a", "line", LONG_TTL, 9).await, 1);
    room.count("counter alone", 1, LONG_TTL).await;
    room.append("log alone", "line", LONG_TTL, 9).await;
    assert_eq!(room.get("counter alone").await, None);
    assert_eq!(room.get("log alone").await, None);
    assert_eq!(room.list_names(None, 9).await, ["a"], "only entries are listed");
    assert!(
        !room.store.touch(&room.key("log alone"), LONG_TTL).await.expect("touch"),
        "only entries are touched"
    );
    assert!(!room.delete("log alone", Expect::Is(version)).await, "a log has no version");
    assert!(!room.delete("counter alone", Expect::Anything).await, "a counter ends with its life");
    assert_eq!(room.count("counter alone", 1, LONG_TTL).await, 2);
    assert!(room.delete("a", Expect::Is(version)).await);
    assert_eq!(numbers(&read(&room, "a", 0, 9).await), [1], "a log stays where a certain entry is deleted");
    assert!(room.delete("a", Expect::Anything).await, "then the log alone is there");
    assert_eq!(room.count("a", 1, LONG_TTL).await, 8);
}
