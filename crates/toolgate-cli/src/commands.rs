//! The commands that do one thing and end.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use clap::CommandFactory as _;
use serde_json::{Value, json};

use crate::CliError;
use crate::build::{BuiltServer, ServeMode, Upstreams, call_timeout};
use crate::cli::Cli;
use crate::config::{BackendConfig, Config, ConnectionKind, ServerSettings, SqlQuery, Tool};
use crate::serve::{PreparedServers, config_snapshot, prepare, prepare_with, select_server};

/// A file to begin with.
const STARTER_CONFIG: &str = include_str!("starter.toml");

pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    // Whoever reads may have read enough.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(())
}

/// Says everything that is wrong; nothing but a line if nothing is.
pub(crate) async fn check(file: &Path, live: bool) -> Result<(), CliError> {
    let backends = if live { Upstreams::default() } else { Upstreams::offline() };
    let PreparedServers { loaded, servers: composed, upstreams: backends, .. } =
        prepare_with(file, ServeMode::Http, backends).await?;
    let mut said = String::new();
    for made in &composed {
        let (name, server) = (&made.config.name, &made.server);
        let _ = writeln!(
            said,
            "{name}: {} tools, {} resources, {} templates, {} prompts, at {}",
            server.tool_count(),
            server.resource_count(),
            server.templates().len(),
            server.prompt_count(),
            made.config.path
        );
    }
    for made in &composed {
        for tool in made.config.tools.iter().filter(|tool| tool.description.is_none()) {
            let at = loaded.config.files.locate(tool.node.span);
            let _ = writeln!(
                said,
                "{at}: `{}` has no description; models choose tools by their descriptions",
                tool.name
            );
        }
        for note in &made.warnings {
            let _ = writeln!(said, "{}: {}", loaded.config.files.locate(note.span), note.message);
        }
    }
    if !live {
        return print(&said);
    }
    print(&said)?;
    probe_dependencies(&loaded.config, &backends).await?;
    print("all dependencies are available\n")
}

/// Whether what a configuration needs is there. Programs and folders were looked for already.
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
    let shown = file.display();
    print(&format!(
        "Wrote {shown}. Next steps:\n\n  toolgate check {shown}\n  toolgate call {shown} greet '{{\"name\":\"Ada\"}}'\n  toolgate serve {shown}\n"
    ))
}

/// `shop.find_product` as a server and a name, if there is such a server; else a name.
fn split_server_name<'a>(composed: &'a [BuiltServer], name: &'a str) -> (Option<&'a str>, &'a str) {
    match name.split_once('.') {
        Some((server, rest)) if composed.iter().any(|made| made.config.name == server) => {
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
    let PreparedServers { loaded, servers: composed, upstreams: backends, runtime_state: world } =
        prepare(file, ServeMode::Local).await?;
    let (server, tool) = split_server_name(&composed, name);
    let having = || composed.iter().filter(|made| made.server.has_tool(tool)).collect::<Vec<_>>();
    let made = match (server, having().as_slice()) {
        (None, [only]) => *only,
        (None, []) if composed.len() > 1 => {
            return Err(CliError::Usage(format!("no server has a tool `{tool}`")));
        }
        _ => select_server(&composed, server)?,
    };
    // What is built in looks for it there.
    for made in &composed {
        world.servers.replace(&made.server);
    }
    let config = &loaded.config;
    world.set_snapshot(config_snapshot(file, &config.files, &config.redacted, &composed, &backends));
    let result =
        request_result(&made.server, "tools/call", json!({ "name": tool, "arguments": arguments })).await?;
    backends.close().await;
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

/// Asks as a client of the newest revision does: what older ones are not shown is there.
async fn request_result(server: &toolgate::Server, method: &str, params: Value) -> Result<Value, CliError> {
    let newest = newest_protocol_version(server).await;
    let mut answer = send_request(server, method, params, newest.as_deref()).await;
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => {
            let said = answer["error"]["message"].as_str().unwrap_or("no response");
            Err(CliError::Run(format!("{method}: {said}")))
        }
    }
}

/// The newest revision that a server speaks: it tells whoever names one that nobody speaks.
async fn newest_protocol_version(server: &toolgate::Server) -> Option<String> {
    let refused = send_request(server, "tools/list", json!({}), Some("none")).await;
    let spoken = refused["error"]["data"]["supported"].as_array()?;
    spoken.iter().filter_map(Value::as_str).max().map(str::to_owned)
}

async fn send_request(
    server: &toolgate::Server,
    method: &str,
    mut params: Value,
    revision: Option<&str>,
) -> Value {
    if let Some(revision) = revision {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": revision,
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
    let PreparedServers { servers: composed, .. } = prepare(file, ServeMode::Local).await?;
    if let Some(name) = server {
        select_server(&composed, Some(name))?;
    }
    let mut shown = String::new();
    let mut listed = serde_json::Map::new();
    for made in composed.iter().filter(|made| server.is_none_or(|name| made.config.name == name)) {
        if json {
            listed.insert(made.config.name.clone(), list_all_tools(&made.server).await?.into());
            continue;
        }
        let mut row = |what: &str, key: &str, about: Option<&str>| {
            let about = about.and_then(|about| about.lines().next()).unwrap_or_default();
            let _ = writeln!(shown, "{:<9} {}.{key}  {about}", what, made.config.name);
        };
        for tool in made.server.tools() {
            row("tool", &tool.name, tool.description.as_deref());
        }
        for resource in made.server.resources() {
            row("resource", &resource.uri, resource.description.as_deref());
        }
        for template in made.server.templates() {
            row("template", &template.uri_template, template.description.as_deref());
        }
        for prompt in made.server.prompts() {
            row("prompt", &prompt.name, prompt.description.as_deref());
        }
    }
    if json { print(&format!("{:#}\n", Value::Object(listed))) } else { print(&shown) }
}

pub(crate) async fn explain(file: &Path, name: &str) -> Result<(), CliError> {
    let PreparedServers { loaded, servers: composed, .. } = prepare(file, ServeMode::Http).await?;
    let (server, wanted) = split_server_name(&composed, name);
    let mut said = String::new();
    for made in composed.iter().filter(|made| server.is_none_or(|name| made.config.name == name)) {
        explain_server(&loaded.config, made, wanted, &mut said);
    }
    if said.is_empty() {
        return Err(CliError::Usage(format!("there is no tool, resource, template or prompt `{name}`")));
    }
    print(&said)
}

/// How long a call of a tool takes at most.
fn effective_timeout(config: &Config, tool: &Tool, frame: &ServerSettings) -> Duration {
    let whole = call_timeout(tool, frame).unwrap_or(frame.timeout);
    let known = |on: &str| config.connections.iter().find(|known| known.name == *on).map(|known| &known.kind);
    let own = match &tool.backend {
        BackendConfig::Sql(sql) => match known(&sql.connection) {
            Some(ConnectionKind::Sql(connection)) => Some(sql.timeout.unwrap_or(connection.timeout)),
            _ => None,
        },
        BackendConfig::Http(http) => match known(&http.connection) {
            Some(ConnectionKind::Http(connection)) => {
                Some(http.timeout.unwrap_or(connection.timeout).min(connection.timeout))
            }
            _ => None,
        },
        // A call has some time to spare, so that the program is ended first.
        BackendConfig::Command(spec) => call_timeout(tool, frame).map(|_| spec.timeout),
        _ => None,
    };
    own.map_or(whole, |own| own.min(whole))
}

fn explain_server(config: &Config, made: &BuiltServer, wanted: &str, said: &mut String) {
    let about = &made.config;
    let site = about.settings.wordpress.as_ref().map(|site| format!("users of {}", site.url));
    let callers =
        match (about.settings.users.len(), about.settings.tokens.len(), about.settings.api_keys.len()) {
            (0, 0, 0) => site.unwrap_or_else(|| "everyone who can reach the server".to_owned()),
            (users, tokens, keys) => {
                let known = format!("{users} users, {tokens} tokens, {keys} API keys");
                site.map_or(known.clone(), |site| format!("{known}, {site}"))
            }
        };
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(said, "{name:<12} {}", value.replace('\n', "\n             "));
        }
    };
    for tool in about.tools.iter().filter(|tool| tool.name == wanted) {
        line("tool", &format!("{}.{}", about.name, tool.name));
        line("from", &config.files.locate(tool.node.span));
        line("title", tool.title.as_deref().unwrap_or_default());
        line("description", tool.description.as_deref().unwrap_or_default());
        line("backend", tool.backend.kind());
        if let BackendConfig::Command(spec) = &tool.backend
            && let Ok(act) =
                crate::source::command::CommandBackend::new((**spec).clone(), &tool.arguments.full_schema())
        {
            line("program", &act.program().display().to_string());
        }
        match &tool.backend {
            BackendConfig::Http(http) => {
                let target = http.path.as_ref().or(http.url.as_ref()).map_or("/", String::as_str);
                line("request", &format!("{} {target} on {}", http.method, http.connection));
            }
            BackendConfig::Sql(sql) => {
                line("connection", &sql.connection);
                match &sql.query {
                    SqlQuery::Text(text) => line("statement", text.trim()),
                    SqlQuery::Argument(argument) => {
                        line("statement", &format!("the argument `{argument}`"));
                    }
                }
            }
            _ => {}
        }
        line("timeout", &format!("{:?}", effective_timeout(config, tool, &about.settings)));
        if let Some(task) = tool.task {
            let kept = format!(", kept for {:?}", task.ttl);
            let when = if task.is_required { "always" } else { "if the client supports tasks" };
            let again = if task.is_resumable { ", restarted if its process ends" } else { "" };
            line("task", &format!("{when}{kept}{again}"));
        }
        if let Some(cache) = tool.cache_ttl {
            line("cache", &format!("results for {cache:?}"));
        }
        line("callers", &callers);
        line("scopes", &tool.scopes.join(", "));
        let hidden: Vec<String> = tool
            .arguments
            .list
            .iter()
            .filter_map(|argument| Some(format!("{} from {:?}", argument.name, argument.origin.as_ref()?)))
            .collect();
        line("hidden", &hidden.join(", "));
        line("arguments", &format!("{:#}", tool.arguments.visible_schema()));
        if let Some(schema) = made.server.get_tool(wanted).and_then(|tool| tool.output_schema.clone()) {
            line("output", &format!("{:#}", schema.to_value()));
        }
    }
    for foreign in made.api_tools.iter().filter(|foreign| foreign.name == wanted) {
        line("tool", &format!("{}.{}", about.name, foreign.name));
        line("from", &config.files.locate(foreign.span));
        line("backend", "openapi");
        line("request", &foreign.route);
        line("security", &foreign.security.join(", "));
        line("callers", &callers);
        if let Some(tool) = made.server.get_tool(wanted) {
            line("description", tool.description.as_deref().unwrap_or_default());
            line("arguments", &format!("{:#}", tool.input_schema.to_value()));
        }
    }
    for resource in about.resources.iter().filter(|known| known.name == wanted || known.uri == wanted) {
        line("resource", &resource.uri);
        line("from", &config.files.locate(resource.node.span));
        line("description", resource.description.as_deref().unwrap_or_default());
        line("media type", resource.mime.as_deref().unwrap_or_default());
        line("callers", &callers);
    }
    for template in about.templates.iter().filter(|known| known.name == wanted || known.uri == wanted) {
        line("template", &template.uri);
        line("from", &config.files.locate(template.node.span));
        line("description", template.description.as_deref().unwrap_or_default());
        line("backend", template.backend.kind());
        line("callers", &callers);
    }
    for prompt in about.prompts.iter().filter(|known| known.name == wanted) {
        line("prompt", &format!("{}.{}", about.name, prompt.name));
        line("from", &config.files.locate(prompt.node.span));
        line("description", prompt.description.as_deref().unwrap_or_default());
        line("callers", &callers);
        line("arguments", &format!("{:#}", prompt.arguments.visible_schema()));
    }
}

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "toolgate", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// The hash of a password that is read from standard input, so that it is in no history.
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
