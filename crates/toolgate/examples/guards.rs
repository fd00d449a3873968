//! Use this when not everyone may call. Each server here has one guard, so that you can try them separately; on a server
//! of yours they form one chain. `docs/guide/guards.md` has a command to try for each.
//!
//! `cargo run --example guards -- --http :8080`

use toolgate::guard::{ApiKeys, KeyError, KeyRequest, Rate, Token};
use toolgate::prelude::*;
use toolgate::{App, Builder, Mount, Servers};

/// Who is calling, as far as it was proven
#[tool(read_only)]
fn whoami(who: Principal) -> String {
    let name = who.id().unwrap_or("nobody in particular");
    match who.attribute("tenant") {
        Some(tenant) => format!("{name} of tenant {tenant}"),
        None => name.to_owned(),
    }
}

/// Called for every request. A real one would query a database.
async fn check_key(key: String, request: KeyRequest) -> Result<bool, KeyError> {
    if key.starts_with("old-") {
        return Err(KeyError::new("this key expired in May"));
    }
    request.set("tenant", 7);
    Ok(key == "k-123")
}

fn app() -> App {
    let servers = Servers::new();
    let add = |name: &str, guard: fn(Builder) -> Builder| {
        servers.server_with(name, |server| guard(server.add(items![whoami])));
    };
    add("small", |server| server.body_limit(200));
    add("inside", |server| server.allow_ips(["10.0.0.0/8", "fd00::/8"]));
    add("web", |server| server.cors(["https://app.example.com", "*.example.org"]));
    add("slow", |server| server.rate_per_ip(Rate::per_minute(6).burst(2)));
    add("basic", |server| server.basic_auth("ada", "tiger").basic_auth("bob", "lion"));
    add("tokens", |server| server.tokens([Token::new("t-admin").subject("ops"), Token::new("t-guest")]));
    add("keys", |server| server.api_keys(ApiKeys::provider(check_key)));
    add("both", |server| server.basic_auth("ada", "tiger").api_keys(ApiKeys::list(["k-123"])));
    add("either", |server| token_or_password(server).any_credential());

    App::new(&servers).mount("/mcp", Mount::select()).mount(
        "/gated",
        // Checked from the request head, before any guard of the server.
        Mount::fixed("small").guard(|head| head.headers.contains_key("x-inside")),
    )
}

/// Guards that belong together can be a function.
fn token_or_password(server: Builder) -> Builder {
    server.basic_auth("ada", "tiger").tokens(["t-admin"])
}

toolgate::main!(app());
