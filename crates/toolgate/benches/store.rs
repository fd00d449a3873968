//! What the stores can do: puts, changes of what was read, and appends per second, and how long one takes.
//!
//! `cargo bench -p toolgate --bench store --features redb,redis` prints a table. Redis is measured where
//! `TOOLGATE_TEST_REDIS` says that one is, for example `redis://127.0.0.1:6379`.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on says so")]

mod stores;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use toolgate::store::{Expect, Key, Store};

/// How long each row is measured.
const TIME: Duration = Duration::from_secs(2);
const LIFE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum Work {
    Get,
    Put,
    Change,
    Append,
}

fn main() {
    // Cargo runs benches as tests with this flag; there is nothing to prove here.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        println!(
            "{:<8} {:<8} {:>6} {:>12} {:>10} {:>10}",
            "store", "work", "tasks", "per second", "p50", "p99"
        );
        stores::each("store", measure).await;
    });
}

async fn measure(name: &'static str, store: Arc<dyn Store>) {
    for (work, title) in
        [(Work::Get, "get"), (Work::Put, "put"), (Work::Change, "change"), (Work::Append, "append")]
    {
        for n_tasks in [1, 32, 256] {
            let begun = Instant::now();
            let mut tasks = tokio::task::JoinSet::new();
            for task in 0..n_tasks {
                let store = Arc::clone(&store);
                tasks.spawn(async move { run(&*store, work, task, begun).await });
            }
            let mut times: Vec<Duration> = tasks.join_all().await.into_iter().flatten().collect();
            let took = begun.elapsed();
            times.sort_unstable();
            let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
            let rate = times.len() as f64 / took.as_secs_f64();
            println!("{name:<8} {title:<8} {n_tasks:>6} {rate:>12.0} {:>10.1?} {:>10.1?}", at(50), at(99));
        }
    }
}

/// Works until time is up, and tells how long each piece took. A task has names of its own: nobody loses a race.
async fn run(store: &dyn Store, work: Work, task: usize, begun: Instant) -> Vec<Duration> {
    let value = Bytes::from(vec![b'x'; 200]);
    let key = Key::new(format!("space {}", task % 16), format!("name {task}"));
    let mut version = store.put(&key, value.clone(), Some(LIFE), Expect::Anything).await.unwrap().unwrap();
    let mut times = Vec::new();
    while begun.elapsed() < TIME {
        let started = Instant::now();
        match work {
            Work::Get => drop(store.get(&key).await.unwrap()),
            Work::Put => {
                store.put(&key, value.clone(), Some(LIFE), Expect::Anything).await.unwrap();
            }
            Work::Change => {
                let changed = store.put(&key, value.clone(), Some(LIFE), Expect::Is(version)).await;
                version = changed.unwrap().unwrap();
            }
            Work::Append => {
                store.append(&key, value.clone(), LIFE, 1000).await.unwrap();
            }
        }
        times.push(started.elapsed());
    }
    times
}
