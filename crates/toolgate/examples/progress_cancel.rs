//! Use this when a call takes long: report progress to the client, and stop when the call is cancelled.
//!
//! `cargo run --example progress_cancel -- --http :8080`

use toolgate::prelude::*;

const CHUNK: u32 = 20_000;

/// Count prime numbers
// Longer than the default of one minute. Time spent waiting for the client does not count.
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
        // Long computations run on a thread of their own, or they would block other calls. Cancellation drops this future
        // at the `await`. The thread cannot be dropped, so it checks `cx`.
        let watch = cx.clone();
        found += tokio::task::spawn_blocking(move || count(from, to, &watch)).await?;
        from = to;
        // Sent only to clients that sent a progress token; free for others.
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
