//! Use this when one process serves many servers: each with its own tools, guards and statistics, all of them over HTTP at
//! paths of your choice, and any one of them over stdio.
//!
//! It rebuilds the servers that the manuals of BoxLang AI and bx-mcp describe; `cargo xtask seeds` runs the requests printed
//! there against it.
//!
//! `cargo run --example boxlang -- --http :8080`, then
//! `curl http://localhost:8080/~bxai/mcp.bxm/myApp -H 'Content-Type: application/json' \
//! -d '{"jsonrpc":"2.0","method":"tools/list","id":1}'`;
//! `cargo run --example boxlang -- --server myApp` serves the client that starts it.

mod annotated;
mod guarded;
mod plain;
mod runtime;

use toolgate::compat::Dialect;
use toolgate::events::ServerChange;
use toolgate::{App, Error, Mount, Servers};

/// Everything is registered at start and can be changed later: `registry` is shared by the whole process.
fn app() -> Result<App, Error> {
    let servers = toolgate::registry();
    log_events(servers);
    plain::register(servers)?;
    guarded::register(servers)?;
    annotated::register(servers)?;
    runtime::register(servers)?;

    for server in servers.names().iter().filter_map(|name| servers.get(name)) {
        // The dialect for stdio clients that send no protocol version. The mounts below set it for HTTP.
        server.set_dialect(Dialect::boxlang());
        // Only a proxy on this machine is trusted to report client addresses.
        server.set_trusted_proxies("127.0.0.1");
    }

    Ok(App::new(servers)
        // `…/mcp.bxm`, `…/mcp.bxm/myApp` and `…/mcp.bxm?server=myApp`.
        .mount("/~bxai/mcp.bxm", Mount::select().dialect(Dialect::boxlang()))
        .mount("/~bxmcp/boxlang.bxm", Mount::fixed("boxlang").dialect(Dialect::bxmcp()))
        // The same servers at other paths.
        .mount("/api/mcp-endpoint.bxm", Mount::select().dialect(Dialect::boxlang()))
        .mount(
            "/api/v2/ai/mcp.bxm",
            Mount::select().dialect(Dialect::boxlang()).header("X-API-Version", "2.0"),
        )
        // A real program would check for the session of an administrator here.
        .mount(
            "/admin/mcp-admin.bxm",
            Mount::select().dialect(Dialect::boxlang()).guard(|head| {
                head.headers.get("x-admin-session").is_some_and(|session| session == "letmein")
            }),
        )
        // Without a dialect: the rules of the protocol.
        .mount("/mcp", Mount::select().dialect(Dialect::official()))
        .stats_at("/_stats"))
}

/// Events are logged to standard error: on stdio, standard output is reserved for the protocol.
fn log_events(servers: &Servers) {
    servers.events().on_server(|event| {
        if event.change() == ServerChange::Removed {
            eprintln!("server removed: {}", event.name());
        }
    });
    servers.events().on_error(|error| {
        eprintln!("error at {} ({}): {}", error.server(), error.context(), error.message());
    });
}

toolgate::main!(app());
