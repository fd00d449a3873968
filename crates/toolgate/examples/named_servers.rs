//! Use this when one process serves different things to different users: each server has its own name, tools and guards,
//! and the path selects it.
//!
//! `cargo run --example named_servers -- --http :8080` serves all of them, at `/shop/mcp`, `/admin/mcp` and
//! `/mcp/NAME`. A client that starts the program itself gets one: `cargo run --example named_servers -- --server shop`.

use toolgate::prelude::*;
use toolgate::{App, Mount, Servers};

/// When the shop is open
#[tool(read_only)]
fn hours() -> &'static str {
    "9 to 5"
}

/// Close the shop
#[tool(destructive)]
fn close(
    /// For how many days
    #[arg(default = 1, range = 1..=14)]
    days: u32,
) -> String {
    format!("closed for {days} days")
}

fn app() -> App {
    let servers = Servers::new();
    servers.server_with("shop", |server| server.add(items![hours]).server_description("For customers"));
    servers.server_with("admin", |server| server.add(items![close]).basic_auth("ops", "secret"));
    // The same name is the same server everywhere, also while it is served.
    servers.server("shop").set_instructions("Ask for the hours before you promise anything.");

    App::new(&servers)
        .mount("/shop/mcp", Mount::fixed("shop"))
        .mount("/admin/mcp", Mount::fixed("admin").header("X-Robots-Tag", "none"))
        // `/mcp/admin` and `/mcp?server=admin` select a server; `/mcp` alone is the shop.
        .mount("/mcp", Mount::select().or("shop"))
}

toolgate::main!(app());
