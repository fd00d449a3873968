//! Use this when code must run around every call: timing, transactions, feature flags, retries. A layer is middleware between
//! the protocol and your handlers, on every transport.
//!
//! `cargo run --example layers -- --http :8080`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use toolgate::layer::{Call, CallOutput, LayerError, Next};
use toolgate::prelude::*;

/// Represents a database: the number of committed and of rolled back transactions.
#[derive(Default)]
struct Database {
    committed: AtomicU64,
    rolled_back: AtomicU64,
}

/// Commits when it is told to, and rolls back otherwise, also if the call panics or is cancelled.
struct Transaction {
    database: Arc<Database>,
    is_committed: bool,
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let counter = if self.is_committed { &self.database.committed } else { &self.database.rolled_back };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Order something
#[tool]
fn order(pots: u32) -> Result<String, ToolError> {
    match pots {
        0 => Err(ToolError::new("order at least one pot")),
        _ => Ok(format!("{pots} pots of tea")),
    }
}

/// Pay by eye contact
#[tool]
async fn beta_pay() -> &'static str {
    "paid"
}

/// Writes how long each call took.
async fn measure(call: Call, next: Next) -> Result<CallOutput, LayerError> {
    let (method, subject, start) = (call.method(), call.subject().to_owned(), Instant::now());
    let result = next.run(call).await;
    eprintln!("{method} {subject} took {:?}", start.elapsed());
    result
}

/// Hides tools that are not ready from everybody who is not a tester.
async fn check_flags(call: Call, next: Next) -> Result<CallOutput, LayerError> {
    if call.subject().starts_with("beta_") && call.context().headers().get("x-tester").is_none() {
        return Err(LayerError::new("this tool is not available yet"));
    }
    next.run(call).await
}

/// Runs a failed read again, once.
async fn retry_reads(call: Call, next: Next) -> Result<CallOutput, LayerError> {
    match next.clone().run(call.clone()).await {
        Err(error) if call.method() == "resources/read" && !error.is_suspended() => next.run(call).await,
        result => result,
    }
}

fn server() -> toolgate::Builder {
    let database = Arc::new(Database::default());
    let read_counts = Arc::clone(&database);
    Server::new("tea", env!("CARGO_PKG_VERSION"))
        .collect()
        .resource("tea://transactions", move || {
            let committed = read_counts.committed.load(Ordering::Relaxed);
            let rolled_back = read_counts.rolled_back.load(Ordering::Relaxed);
            async move { Json(json!({ "committed": committed, "rolled back": rolled_back })) }
        })
        // The first is the outermost: what the others do is part of the measured time.
        .layer(measure)
        .layer(check_flags)
        .layer(retry_reads)
        .layer(move |call, next| {
            let database = Arc::clone(&database);
            async move {
                if call.method() != "tools/call" {
                    return next.run(call).await;
                }
                let mut transaction = Transaction { database, is_committed: false };
                let output = next.run(call).await?;
                transaction.is_committed = !output.is_error();
                Ok(output)
            }
        })
        .done()
}

toolgate::main!(server());
