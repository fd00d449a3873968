//! Benchmark of the stores: gets, puts, conditional puts and appends per second, with latencies.
//!
//! `cargo bench -p toolgate --bench store --features redb,redis` prints a table. Redis is measured if
//! `TOOLGATE_TEST_REDIS` is set to its URL, for example `redis://127.0.0.1:6379`.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

mod stores;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use toolgate::store::{Expect, Key, Store};

/// Duration of each measurement.
const MEASURE_TIME: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum Operation {
    Get,
    Put,
    Change,
    Append,
}

fn main() {
    // `cargo test` runs benchmarks with this flag; there is nothing to test here.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        println!(
            "{:<8} {:<8} {:>6} {:>12} {:>10} {:>10}",
            "store", "op", "tasks", "per second", "p50", "p99"
        );
        stores::each("store", measure).await;
    });
}

async fn measure(name: &'static str, store: Arc<dyn Store>) {
    for (operation, title) in [
        (Operation::Get, "get"),
        (Operation::Put, "put"),
        (Operation::Change, "change"),
        (Operation::Append, "append"),
    ] {
        for n_tasks in [1, 32, 256] {
            let started = Instant::now();
            let mut tasks = tokio::task::JoinSet::new();
            for task in 0..n_tasks {
                let store = Arc::clone(&store);
                tasks.spawn(async move { run(&*store, operation, task, started).await });
            }
            let mut times: Vec<Duration> = tasks.join_all().await.into_iter().flatten().collect();
            let elapsed = started.elapsed();
            times.sort_unstable();
            let percentile = |p: usize| times[(times.len() * p / 100).min(times.len() - 1)];
            let rate = times.len() as f64 / elapsed.as_secs_f64();
            println!(
                "{name:<8} {title:<8} {n_tasks:>6} {rate:>12.0} {:>10.1?} {:>10.1?}",
                percentile(50),
                percentile(99)
            );
        }
    }
}

/// Runs operations until the time is up and returns the latency of each. Each task has its own key, so that no
/// conditional put fails.
async fn run(store: &dyn Store, operation: Operation, task: usize, started: Instant) -> Vec<Duration> {
    let value = Bytes::from(vec![b'x'; 200]);
    let key = Key::new(format!("space {}", task % 16), format!("name {task}"));
    let mut version = store.put(&key, value.clone(), Some(TTL), Expect::Anything).await.unwrap().unwrap();
    let mut times = Vec::new();
    while started.elapsed() < MEASURE_TIME {
        let operation_started = Instant::now();
        match operation {
            Operation::Get => drop(store.get(&key).await.unwrap()),
            Operation::Put => {
                store.put(&key, value.clone(), Some(TTL), Expect::Anything).await.unwrap();
            }
            Operation::Change => {
                let changed = store.put(&key, value.clone(), Some(TTL), Expect::Is(version)).await;
                version = changed.unwrap().unwrap();
            }
            Operation::Append => {
                store.append(&key, value.clone(), TTL, 1000).await.unwrap();
            }
        }
        times.push(operation_started.elapsed());
    }
    times
}
