//! The smallest program: `hello` serves the client that started it, `hello --http :8080` serves HTTP.

use toolgate::prelude::*;

/// Greet someone
#[tool]
async fn greet(name: String) -> String {
    format!("Hello, {name}!")
}

toolgate::main!();
