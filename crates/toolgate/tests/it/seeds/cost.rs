//! Unused features cost nothing. The benches measure how little the rest costs; here two variants are compared, by the best
//! of many rounds each, so that only their difference can matter.

use std::time::{Duration, Instant};

use serde_json::json;
use toolgate::Server;

use super::{PING, ask, echo_server};

const ROUNDS: usize = 60;

/// Returns the shortest of many rounds of pings, taken in turns.
async fn best_times(servers: [&Server; 2], headers: &[(&str, &str)]) -> [Duration; 2] {
    let mut best = [Duration::MAX; 2];
    for round in 0..ROUNDS {
        // The order alternates between rounds.
        for place in [round % 2, 1 - round % 2] {
            let begun = Instant::now();
            for _ in 0..40 {
                assert_eq!(super::post(servers[place], headers, PING).await.status, 200);
            }
            best[place] = best[place].min(begun.elapsed());
        }
    }
    best
}

/// Without a password there is no check, which is not slower than a check.
#[tokio::test]
async fn s1_066_no_password_costs_nothing() {
    let asking = echo_server("s").add_basic_auth("u", "p");
    let [open, asked] = best_times([&echo_server("s"), &asking], &[("authorization", "Basic dTpw")]).await;
    assert!(open < asked + asked / 10, "{open:?} without a password, {asked:?} with one");
}

#[tokio::test]
async fn s1_239_not_counting_costs_nothing() {
    let [silent, counting] = best_times([&echo_server("s").disable_stats(), &echo_server("s")], &[]).await;
    assert!(silent < counting + counting / 10, "{silent:?} without statistics, {counting:?} with them");
}

/// A summary of many requests takes about as long as one of none.
#[tokio::test]
async fn s1_241_a_summary_is_cheap() {
    let (idle, busy) = (echo_server("s"), echo_server("s"));
    for _ in 0..1500 {
        ask(&busy, "ping", json!({})).await;
    }
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (best, server) in best.iter_mut().zip([&idle, &busy]) {
            let begun = Instant::now();
            for _ in 0..100 {
                std::hint::black_box(server.stats_summary());
            }
            *best = (*best).min(begun.elapsed() / 100);
        }
    }
    let [idle, busy] = best;
    println!("{busy:?} after 1500 requests, {idle:?} before any");
    // Not equal: the methods that were counted are part of the summary.
    assert!(busy < idle * 5, "{busy:?} after 1500 requests, {idle:?} before any");
}
