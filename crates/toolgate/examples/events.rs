//! Use this when something must happen in addition to the response: an audit log, a check of your own, an alert when a call
//! fails. Listeners receive the same events on every transport.
//!
//! `cargo run --example events -- --http :8080`; the log is `audit.jsonl`, or what `AUDIT_LOG` names.

use toolgate::Error;
use toolgate::events::AuditLog;
use toolgate::prelude::*;

/// Divide two numbers
#[tool(read_only)]
fn divide(a: i64, b: i64) -> Result<i64, &'static str> {
    a.checked_div(b).ok_or("cannot divide by zero")
}

/// Represents a request to another service.
async fn is_blocked(client: Option<&str>) -> bool {
    client == Some("flood")
}

fn server() -> Result<Server, Error> {
    let server = Server::new("calculator", env!("CARGO_PKG_VERSION")).collect().build()?;
    let events = server.events();

    // A plain listener runs synchronously. It may inspect, change or reject the request; it must not block.
    events.on_request(|request| {
        if request.method() == "tools/call" {
            let arguments = &mut request.params_mut()["arguments"];
            if arguments["b"].is_null() {
                arguments["b"] = json!(1);
            }
        }
    });
    // A listener that has to wait is async. Requests wait for it, at most five seconds.
    events.on_request_async(|mut request| async move {
        if is_blocked(request.header("x-client-id")).await {
            request.reject_with(429, -32000, "come back tomorrow");
        }
        request
    });
    // For all other events an async listener runs in the background: no response waits for it.
    events.on_response_async(|response| async move {
        eprintln!("{} took {:.3} ms", response.request().method(), response.time_ms());
    });
    events.on_error(|error| eprintln!("{}: {}", error.context(), error.message()));
    events.on_tool(|tool| eprintln!("{} {}", tool.tool(), if tool.is_end() { "ended" } else { "begins" }));

    // Writes one line of JSON for each response and each rejection. Arguments are only included on request.
    let path = std::env::var("AUDIT_LOG").unwrap_or_else(|_| "audit.jsonl".into());
    AuditLog::file(path)?.with_arguments().attach(events);
    Ok(server)
}

toolgate::main!(server());
