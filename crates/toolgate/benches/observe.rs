//! What counting costs: a request from its begin to its end with statistics on and off, and a look at the
//! summary. The room is taken in as source, since its doors are not public.
//!
//! `cargo bench -p toolgate --bench observe`. For instructions rather than time,
//! `valgrind --tool=callgrind <the binary> --calls 100000` with two counts, and the difference.

#![allow(unused, unreachable_pub)]

#[path = "../src/clock.rs"]
mod clock;
#[path = "../src/observe/names.rs"]
mod names;
#[path = "../src/observe/stats.rs"]
mod stats;
#[path = "../src/observe/timing.rs"]
mod timing;
#[path = "../src/observe/view.rs"]
mod view;

use std::hint::black_box;
use std::sync::Arc;

use clock::Clock;
use criterion::{Criterion, criterion_group};
use stats::{Finished, Stats, Subject, Verdict};

const TOOLS: usize = 50;

fn call(name: &str) -> Finished<'_> {
    Finished { method: "tools/call", subject: Some(Subject::Tool(name)), verdict: Verdict::Ok }
}

fn full() -> (Arc<Stats>, Vec<String>) {
    let stats = Stats::new(Clock::system());
    let names: Vec<String> = (0..TOOLS).map(|number| format!("some_tool_{number}")).collect();
    for name in names.iter().cycle().take(5000) {
        let _ = stats.begin().map(|began| began.end(&call(name)));
    }
    (stats, names)
}

#[inline(never)]
fn counted_call(stats: &Arc<Stats>, name: &str) {
    let began = stats.begin();
    if let Some(began) = began {
        began.end(&call(name));
    }
}

/// Calls and nothing else, for callgrind.
fn only_calls(count: usize) {
    let (stats, names) = full();
    for name in names.iter().cycle().take(count) {
        counted_call(black_box(&stats), black_box(name));
    }
}

fn observe(criterion: &mut Criterion) {
    let (stats, names) = full();
    let mut next = names.iter().cycle();
    criterion.bench_function("a call, counted", |bencher| {
        bencher.iter(|| counted_call(&stats, black_box(next.next().expect("a cycle"))));
    });
    criterion.bench_function("summary", |bencher| bencher.iter(|| black_box(stats.summary())));
    criterion.bench_function("detail", |bencher| bencher.iter(|| black_box(stats.detail())));
    stats.disable();
    criterion.bench_function("a call, not counted", |bencher| {
        bencher.iter(|| counted_call(&stats, black_box(&names[0])));
    });
}

criterion_group!(benches, observe);

fn main() {
    let mut args = std::env::args().skip_while(|arg| arg != "--calls").skip(1);
    match args.next().and_then(|count| count.parse().ok()) {
        Some(count) => only_calls(count),
        None => {
            benches();
            Criterion::default().configure_from_args().final_summary();
        }
    }
}
