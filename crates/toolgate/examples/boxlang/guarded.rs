//! Servers behind guards, one kind each, and `enterprise` with all of them. The guards of a server do not affect other
//! servers.

use toolgate::guard::{ApiKeys, KeyError};
use toolgate::prelude::*;
use toolgate::{Error, Servers, ToolSpec, items, registry};

use crate::plain;

pub(crate) fn register(servers: &Servers) -> Result<(), Error> {
    // Credentials come from the environment, if set.
    let user = std::env::var("MCP_ADMIN_USER").unwrap_or_else(|_| "admin".into());
    let password = std::env::var("MCP_ADMIN_PASS").unwrap_or_else(|_| "secretPassword123".into());
    servers
        .server("admin")
        .set_description("Admin MCP Server - Requires Authentication")
        .add_basic_auth(&user, &password)
        .add(items![servers_create, servers_remove])?;

    servers.server("corsx").set_cors(["*.example.com", "https://trusted.org"]).add(items![plain::echo])?;
    servers.server("corsany").set_cors("*").add(items![plain::echo])?;
    servers.server("limited").set_body_limit(100).add(items![plain::echo])?;

    // May query a database, inspect the request, and give its own reason for a rejection.
    servers
        .server("keyed")
        .set_api_keys(ApiKeys::provider(async |key: String, _| match key.as_str() {
            "my-secret-key-12345" => Ok(true),
            "throw-me" => Err(KeyError::new("Rate limit exceeded")),
            _ => Ok(false),
        }))
        .add(items![plain::echo])?;

    servers
        .server("enterprise")
        .set_cors(["https://app.example.com", "*.example.com"])
        .set_body_limit(1_048_576)
        .set_api_keys(ApiKeys::provider(|key, _| key == "k1"))
        .add_basic_auth("admin", "secret")
        .add(items![plain::echo])?;

    // A listener can reject too: it sees every request before it is processed.
    servers.server("gated").add_tool(
        ToolSpec::new("echo", || async { "nobody gets this far" }).describe("Says nothing to anybody"),
    )?;
    servers.events().on_request(|request| {
        if request.server() == "gated" && request.method() == "tools/call" {
            request.reject("Rate limit exceeded");
        }
    });
    Ok(())
}

/// Make a server, if there is none of that name
#[tool]
fn servers_create(name: String) -> Result<String, HandlerError> {
    registry().server(&name).add(items![plain::echo])?;
    Ok(format!("there is a server `{name}`"))
}

/// Remove a server; says whether there was one
#[tool(destructive)]
fn servers_remove(name: String) -> bool {
    registry().remove(&name)
}
