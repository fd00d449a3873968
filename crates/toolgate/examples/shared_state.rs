//! Use this when handlers share something: a database pool, a cache, a counter. State is stored by type; a handler takes
//! the types it names.
//!
//! `cargo run --example shared_state -- 127.0.0.1:8080`

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::{HandlerError, Server, State};

/// Shared between threads, so it has its own lock. Hold it for a few lines, never across an `await`.
#[derive(Default)]
struct Stock(Mutex<HashMap<String, u32>>);

#[derive(Default)]
struct Sales(AtomicU64);

#[derive(Deserialize, JsonSchema)]
struct Item {
    /// What
    name: String,
    /// How many
    count: u32,
}

async fn put(item: Item, stock: State<Stock>) -> String {
    let mut stock = stock.0.lock().unwrap_or_else(PoisonError::into_inner);
    let there = stock.entry(item.name).or_default();
    *there = there.saturating_add(item.count);
    format!("{there} in stock")
}

async fn sell(item: Item, stock: State<Stock>, sales: State<Sales>) -> Result<String, HandlerError> {
    let left = {
        let mut stock = stock.0.lock().unwrap_or_else(PoisonError::into_inner);
        let there =
            stock.get_mut(&item.name).ok_or_else(|| HandlerError::new(format!("no {} here", item.name)))?;
        let left = there.checked_sub(item.count);
        *there = left.ok_or_else(|| HandlerError::new(format!("only {there} {} left", item.name)))?;
        *there
    };
    let number = sales.0.fetch_add(1, Ordering::Relaxed) + 1;
    Ok(format!("sale {number}: {left} left"))
}

#[tokio::main]
async fn main() -> Result<(), toolgate::Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    Server::new("shop", "1.0.0")
        .state(Stock::default())
        .state(Sales::default())
        .tool("put", put)
        .describe("Puts something in stock")
        .tool("sell", sell)
        .describe("Sells something out of stock")
        .destructive()
        .listen(address)
        .await
}
