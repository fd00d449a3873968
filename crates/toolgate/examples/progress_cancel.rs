//! Use this when a call takes long: tell the client how far it is, and stop when nobody waits any more.
//!
//! `cargo run --example progress_cancel -- --http :8080`

use toolgate::prelude::*;

const CHUNK: u32 = 20_000;

/// Count prime numbers
// Longer than the minute a call has otherwise. Questions to the client do not count.
#[tool(read_only, timeout = "5m")]
async fn primes(
    /// Count the primes below this number
    below: u32,
    cx: Context,
) -> Result<String, HandlerError> {
    let mut found = 0;
    let mut from = 2;
    while from < below {
        let to = below.min(from + CHUNK);
        // Long computing goes to a thread of its own, or it would hold up other calls. A cancelled call
        // drops this future at the `await`; the thread cannot be dropped, so it is told by `cx`.
        let watch = cx.clone();
        found += tokio::task::spawn_blocking(move || count(from, to, &watch)).await?;
        from = to;
        // Heard only by clients that sent a progress token; for others this costs nothing.
        cx.progress_of(f64::from(to), f64::from(below), "counting").await;
    }
    Ok(format!("{found} primes below {below}"))
}

fn count(from: u32, to: u32, cx: &Context) -> u32 {
    let mut found = 0;
    for number in from..to {
        if cx.is_cancelled() {
            eprintln!("stopped at {number}: nobody waits any more");
            return found;
        }
        let is_prime =
            (2..).take_while(|divisor| divisor * divisor <= number).all(|divisor| number % divisor != 0);
        found += u32::from(is_prime);
    }
    found
}

toolgate::main!(Server::new("primes", "1.0.0").collect());
