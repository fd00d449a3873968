//! Commands that do not serve: `check`, `init`, `call`, `tools`, `explain` and others.

mod explain;

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use serde_json::{Value, json};

pub(crate) use explain::explain;

use crate::CliError;
use crate::build::{BuiltServer, ServeMode, Upstreams};
use crate::cli::Cli;
use crate::config::Config;
use crate::serve::{PreparedServers, config_snapshot, prepare, prepare_with, select_server};

/// The file that `init` writes.
const STARTER_CONFIG: &str = include_str!("starter.toml");

pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    // The reader may have closed the pipe.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(())
}

/// Checks a configuration, and prints a summary and warnings if it is valid.
pub(crate) async fn check(file: &Path, live: bool) -> Result<(), CliError> {
    let upstreams = if live { Upstreams::default() } else { Upstreams::offline() };
    let PreparedServers { loaded, servers, upstreams, .. } =
        prepare_with(file, ServeMode::Http, upstreams).await?;
    let mut output = String::new();
    for built in &servers {
        let (name, server) = (&built.config.name, &built.server);
        let _ = writeln!(
            output,
            "{name}: {} tools, {} resources, {} templates, {} prompts, at {}",
            server.tool_count(),
            server.resource_count(),
            server.templates().len(),
            server.prompt_count(),
            built.config.path
        );
    }
    for built in &servers {
        for tool in built.config.tools.iter().filter(|tool| tool.description.is_none()) {
            let at = loaded.config.files.locate(tool.node.span);
            let _ = writeln!(
                output,
                "{at}: `{}` has no description; models choose tools by their descriptions",
                tool.name
            );
        }
        for warning in &built.warnings {
            let _ = writeln!(output, "{}: {}", loaded.config.files.locate(warning.span), warning.message);
        }
    }
    if !live {
        return print(&output);
    }
    print(&output)?;
    probe_dependencies(&loaded.config, &upstreams).await?;
    print("all dependencies are available\n")
}

/// Checks that the address and all upstreams are available. Programs and folders have been checked before.
async fn probe_dependencies(config: &Config, upstreams: &Upstreams) -> Result<(), CliError> {
    let mut report = upstreams.probe(config).await;
    match tokio::net::TcpListener::bind(&config.listen.http).await {
        Ok(_) => {}
        // The process that listens there may well be the one that serves this configuration.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            report
                .notes
                .push(format!("{} is in use, perhaps by a running `toolgate serve`", config.listen.http));
        }
        Err(error) => report.failures.push(crate::bind_error_message(&config.listen.http, &error)),
    }
    upstreams.close().await;
    for note in report.notes {
        print(&format!("{note}\n"))?;
    }
    match report.failures.as_slice() {
        [] => Ok(()),
        failures => Err(CliError::Run(failures.join("\ntoolgate: "))),
    }
}

pub(crate) fn init(file: &Path) -> Result<(), CliError> {
    let cannot = |error: io::Error| CliError::Run(format!("cannot write {}: {error}", file.display()));
    let mut opened = std::fs::OpenOptions::new().write(true).create_new(true).open(file).map_err(cannot)?;
    opened.write_all(STARTER_CONFIG.as_bytes()).map_err(cannot)?;
    let path = file.display();
    print(&format!(
        "Wrote {path}. Next steps:\n\n  toolgate check {path}\n  toolgate call {path} greet '{{\"name\":\"Ada\"}}'\n  toolgate serve {path}\n"
    ))
}

/// Splits `shop.find_product` into a server and a name, if there is such a server.
fn split_server_name<'a>(servers: &'a [BuiltServer], name: &'a str) -> (Option<&'a str>, &'a str) {
    match name.split_once('.') {
        Some((server, rest)) if servers.iter().any(|built| built.config.name == server) => {
            (Some(server), rest)
        }
        _ => (None, name),
    }
}

pub(crate) async fn call(file: &Path, name: &str, arguments: &str, json: bool) -> Result<(), CliError> {
    let arguments: Value = serde_json::from_str(arguments)
        .map_err(|error| CliError::Usage(format!("the arguments are not valid JSON: {error}")))?;
    if !arguments.is_object() {
        return Err(CliError::Usage(
            "the arguments must be a JSON object, such as '{\"name\": \"Ada\"}'".into(),
        ));
    }
    let PreparedServers { loaded, servers, upstreams, runtime_state } =
        prepare(file, ServeMode::Local).await?;
    let (server, tool) = split_server_name(&servers, name);
    let with_tool = || servers.iter().filter(|built| built.server.has_tool(tool)).collect::<Vec<_>>();
    let built = match (server, with_tool().as_slice()) {
        (None, [only]) => *only,
        (None, []) if servers.len() > 1 => {
            return Err(CliError::Usage(format!("no server has a tool `{tool}`")));
        }
        _ => select_server(&servers, server)?,
    };
    // Built-in tools find the servers in the runtime state.
    for built in &servers {
        runtime_state.servers.replace(&built.server);
    }
    let config = &loaded.config;
    runtime_state.set_snapshot(config_snapshot(file, &config.files, &config.redacted, &servers, &upstreams));
    let result =
        request_result(&built.server, "tools/call", json!({ "name": tool, "arguments": arguments })).await?;
    upstreams.close().await;
    if json {
        print(&format!("{result:#}\n"))?;
    } else {
        for content in result["content"].as_array().into_iter().flatten() {
            match content["text"].as_str() {
                Some(text) => print(&format!("{text}\n"))?,
                None => print(&format!("[{}]\n", content["type"].as_str().unwrap_or("content")))?,
            }
        }
    }
    if result["isError"] == json!(true) { Err(CliError::Tool) } else { Ok(()) }
}

/// Sends a request as a client of the newest protocol version, to which everything is visible.
async fn request_result(server: &toolgate::Server, method: &str, params: Value) -> Result<Value, CliError> {
    let newest = newest_protocol_version(server).await;
    let mut response = send_request(server, method, params, newest.as_deref()).await;
    match response.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => {
            let message = response["error"]["message"].as_str().unwrap_or("no response");
            Err(CliError::Run(format!("{method}: {message}")))
        }
    }
}

/// The newest protocol version of a server, which it names in the error about an unknown version.
async fn newest_protocol_version(server: &toolgate::Server) -> Option<String> {
    let response = send_request(server, "tools/list", json!({}), Some("none")).await;
    let supported = response["error"]["data"]["supported"].as_array()?;
    supported.iter().filter_map(Value::as_str).max().map(str::to_owned)
}

async fn send_request(
    server: &toolgate::Server,
    method: &str,
    mut params: Value,
    protocol_version: Option<&str>,
) -> Value {
    if let Some(protocol_version) = protocol_version {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": protocol_version,
            "io.modelcontextprotocol/clientInfo": { "name": "toolgate", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    let request = json!({ "jsonrpc": "2.0", "id": 0, "method": method, "params": params });
    server.handle(request).await.unwrap_or_default()
}

async fn list_all_tools(server: &toolgate::Server) -> Result<Vec<Value>, CliError> {
    let (mut all, mut params) = (Vec::new(), json!({}));
    loop {
        let mut page = request_result(server, "tools/list", params).await?;
        if let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) {
            all.extend(tools);
        }
        match page.get_mut("nextCursor").map(Value::take) {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return Ok(all),
        }
    }
}

pub(crate) async fn tools(file: &Path, json: bool, server: Option<&str>) -> Result<(), CliError> {
    let PreparedServers { servers, .. } = prepare(file, ServeMode::Local).await?;
    if let Some(name) = server {
        select_server(&servers, Some(name))?;
    }
    let mut listing = String::new();
    let mut listed = serde_json::Map::new();
    for built in servers.iter().filter(|built| server.is_none_or(|name| built.config.name == name)) {
        if json {
            listed.insert(built.config.name.clone(), list_all_tools(&built.server).await?.into());
            continue;
        }
        let mut row = |kind: &str, name: &str, description: Option<&str>| {
            let summary = description.and_then(|text| text.lines().next()).unwrap_or_default();
            let _ = writeln!(listing, "{kind:<9} {}.{name}  {summary}", built.config.name);
        };
        for tool in built.server.tools() {
            row("tool", &tool.name, tool.description.as_deref());
        }
        for resource in built.server.resources() {
            row("resource", &resource.uri, resource.description.as_deref());
        }
        for template in built.server.templates() {
            row("template", &template.uri_template, template.description.as_deref());
        }
        for prompt in built.server.prompts() {
            row("prompt", &prompt.name, prompt.description.as_deref());
        }
    }
    if json { print(&format!("{:#}\n", Value::Object(listed))) } else { print(&listing) }
}

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "toolgate", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Hashes a password, which is read from standard input so that it does not appear in the shell history.
pub(crate) fn hash_password() -> Result<(), CliError> {
    use argon2::password_hash::PasswordHasher as _;

    let mut password = String::new();
    let read = io::stdin().lock().take(4096).read_to_string(&mut password);
    read.map_err(|error| CliError::Run(format!("cannot read the password: {error}")))?;
    let password = password.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return Err(CliError::Usage(
            "the password is read from standard input: `printf %s PASSWORD | toolgate hash-password`".into(),
        ));
    }
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| CliError::Run(format!("cannot get random bytes: {error}")))?;
    let hash = argon2::Argon2::default()
        .hash_password_with_salt(password.as_bytes(), &salt)
        .map_err(|error| CliError::Run(format!("cannot hash the password: {error}")))?;
    print(&format!("{hash}\n"))
}
