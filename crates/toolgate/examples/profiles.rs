//! Use this when callers may see different parts of one server: each token has a profile, and items that a profile hides are
//! neither listed nor callable.
//!
//! `cargo run --example profiles -- --http :8080`

use toolgate::Profile;
use toolgate::guard::Token;
use toolgate::prelude::*;

/// What is in the cache
#[tool(read_only)]
fn cache_get_stats() -> &'static str {
    "12 entries"
}

/// Empty the cache
#[tool(destructive)]
fn cache_clear() -> &'static str {
    "emptied"
}

/// Stop the application
#[tool(destructive)]
fn app_stop() -> &'static str {
    "stopped"
}

/// Passwords and addresses
#[resource("internal://settings")]
fn settings() -> &'static str {
    "…"
}

fn server() -> toolgate::Builder {
    // Callers other than administrators see less. A profile without patterns for a kind of item shows all of them.
    let operator = Profile::new("operator").exclude_tools(["app_*"]).exclude_resources(["internal://*"]);
    let reader = Profile::readonly().exclude_resources(["*"]);
    Server::new("cache", env!("CARGO_PKG_VERSION")).collect().tokens([
        Token::new("t-admin").subject("root").profile(Profile::admin()),
        Token::new("t-operator").subject("olga").profile(operator),
        // The SHA-256 of a token is enough: `printf %s t-reader | sha256sum`.
        Token::new("sha256:1a40613ceb553d39dc0f3c203efb7e533e04f69bb23ae76c09de79bf760b600c").profile(reader),
    ])
}

toolgate::main!(server());
