//! Use this when tools share something: a value whose methods are tools, resources and prompts, all in one impl block.
//!
//! `cargo run --example impl_block -- --http :8080`

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use toolgate::prelude::*;

/// All calls share the value, so it has its own lock. Hold it for a few lines, never across an `await`.
#[derive(Default)]
struct Stock(Mutex<BTreeMap<String, u32>>);

#[server(instructions = "A warehouse. Look at `stock://all` before you sell.")]
impl Stock {
    /// Put something in stock
    #[tool]
    fn put(
        &self,
        /// What
        #[arg(min_len = 1, max_len = 40)]
        name: String,
        /// How many
        #[arg(default = 1, range = 1..=1000)]
        count: u32,
        cx: Context,
    ) -> String {
        let left = self.with(|stock| {
            let there = stock.entry(name.clone()).or_default();
            *there = there.saturating_add(count);
            *there
        });
        // Notifies the subscribers of this resource.
        cx.notify().resource_updated("stock://all");
        format!("{left} {name} in stock")
    }

    /// Sell something out of stock
    #[tool(destructive)]
    async fn sell(&self, name: String, count: Option<u32>, cx: Context) -> Result<u32, HandlerError> {
        let count = count.unwrap_or(1);
        let left = self.with(|stock| {
            let there = stock.get_mut(&name).ok_or(HandlerError::new(format!("no {name} here")))?;
            *there =
                there.checked_sub(count).ok_or(HandlerError::new(format!("only {there} {name} left")))?;
            Ok::<u32, HandlerError>(*there)
        })?;
        cx.notify().resource_updated("stock://all");
        Ok(left)
    }

    /// Everything in stock
    #[resource("stock://all")]
    fn all(&self) -> BTreeMap<String, u32> {
        self.with(|stock| stock.clone())
    }

    /// How many there are of one thing
    #[template("stock://item/{name}")]
    fn one(&self, name: String) -> Option<String> {
        self.with(|stock| stock.get(&name).map(u32::to_string))
    }

    #[complete(one.name)]
    fn names(&self, prefix: String) -> Vec<String> {
        self.with(|stock| stock.keys().filter(|name| name.starts_with(&prefix)).cloned().collect())
    }
}

impl Stock {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<String, u32>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

toolgate::main!(Server::new("stock", env!("CARGO_PKG_VERSION")).add(Stock::default()));
