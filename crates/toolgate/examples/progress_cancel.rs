//! Use this when a call takes long: tell the client how far it is, and stop when nobody waits any more.
//!
//! `cargo run --example progress_cancel -- 127.0.0.1:8080`

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::{Context, Server, ToolError};

#[derive(Deserialize, JsonSchema)]
struct Count {
    /// Count the primes below this number
    below: u32,
}

const CHUNK: u32 = 20_000;

async fn primes(args: Count, cx: Context) -> Result<String, ToolError> {
    let mut found = 0;
    let mut from = 2;
    while from < args.below {
        let to = args.below.min(from + CHUNK);
        // Long computing goes to a thread of its own, or it would hold up other calls. A cancelled call
        // drops this future at the `await`; the thread cannot be dropped, so it is told by `cx`.
        let watch = cx.clone();
        found += tokio::task::spawn_blocking(move || count(from, to, &watch)).await?;
        from = to;
        // Heard only by clients that sent a progress token; for others this costs nothing.
        cx.progress_of(f64::from(to), f64::from(args.below), "counting").await;
    }
    Ok(format!("{found} primes below {}", args.below))
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

#[tokio::main]
async fn main() -> Result<(), toolgate::Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    Server::new("primes", "1.0.0")
        .tool("primes", primes)
        .describe("Counts prime numbers")
        .read_only()
        // Longer than the minute a call has otherwise. Questions to the client do not count.
        .timeout(Duration::from_secs(300))
        .listen(address)
        .await
}
