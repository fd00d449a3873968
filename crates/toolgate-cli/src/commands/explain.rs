//! `explain`: shows the definition of a tool, resource, template or prompt.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use toolgate_sources::source::command::CommandBackend;

use super::{print, split_server_name};
use crate::CliError;
use crate::build::{BuiltServer, ServeMode, call_timeout};
use crate::config::{
    BackendConfig, Config, ConnectionKind, Prompt, Resource, ResourceTemplate, ServerSettings, SqlQuery, Tool,
};
use crate::serve::{PreparedServers, prepare};

pub(crate) async fn explain(file: &Path, name: &str) -> Result<(), CliError> {
    let PreparedServers { loaded, servers, .. } = prepare(file, ServeMode::Http).await?;
    let (server, item) = split_server_name(&servers, name);
    let mut text = String::new();
    for built in servers.iter().filter(|built| server.is_none_or(|name| built.config.name == name)) {
        let callers = callers(&built.config.settings);
        Explanation { config: &loaded.config, built, callers, text: &mut text }.write(item);
    }
    if text.is_empty() {
        return Err(CliError::Usage(format!("there is no tool, resource, template or prompt `{name}`")));
    }
    print(&text)
}

/// The credentials that callers of a server need.
fn callers(settings: &ServerSettings) -> String {
    let site = settings.wordpress.as_ref().map(|site| format!("users of {}", site.url));
    match (settings.users.len(), settings.tokens.len(), settings.api_keys.len()) {
        (0, 0, 0) => site.unwrap_or_else(|| "everyone who can reach the server".to_owned()),
        (users, tokens, keys) => {
            let known = format!("{users} users, {tokens} tokens, {keys} API keys");
            site.map_or(known.clone(), |site| format!("{known}, {site}"))
        }
    }
}

/// Writes the definitions of items of one server.
struct Explanation<'a> {
    config: &'a Config,
    built: &'a BuiltServer,
    callers: String,
    text: &'a mut String,
}

impl Explanation<'_> {
    /// Writes all items with this name or URI.
    fn write(&mut self, name: &str) {
        let built = self.built;
        for tool in built.config.tools.iter().filter(|tool| tool.name == name) {
            self.tool(tool);
        }
        for tool in built.api_tools.iter().filter(|tool| tool.name == name) {
            self.api_tool(tool);
        }
        for resource in built.config.resources.iter().filter(|item| item.name == name || item.uri == name) {
            self.resource(resource);
        }
        for template in built.config.templates.iter().filter(|item| item.name == name || item.uri == name) {
            self.template(template);
        }
        for prompt in built.config.prompts.iter().filter(|item| item.name == name) {
            self.prompt(prompt);
        }
    }

    /// Writes a line, or nothing if the value is empty.
    fn line(&mut self, label: &str, value: &str) {
        if !value.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "{label:<12} {}", value.replace('\n', "\n             "));
        }
    }

    fn tool(&mut self, tool: &Tool) {
        self.line("tool", &format!("{}.{}", self.built.config.name, tool.name));
        self.line("from", &self.config.files.locate(tool.node.span));
        self.line("title", tool.title.as_deref().unwrap_or_default());
        self.line("description", tool.description.as_deref().unwrap_or_default());
        self.backend(tool);
        let timeout = effective_timeout(self.config, tool, &self.built.config.settings);
        self.line("timeout", &format!("{timeout:?}"));
        if let Some(task) = tool.task {
            let when = if task.is_required { "always" } else { "if the client supports tasks" };
            let restart = if task.is_resumable { ", restarted if its process ends" } else { "" };
            self.line("task", &format!("{when}, kept for {:?}{restart}", task.ttl));
        }
        if let Some(cache) = tool.cache_ttl {
            self.line("cache", &format!("results for {cache:?}"));
        }
        self.line("callers", &self.callers.clone());
        self.line("scopes", &tool.scopes.join(", "));
        let hidden: Vec<String> = tool
            .arguments
            .list
            .iter()
            .filter_map(|argument| Some(format!("{} from {:?}", argument.name, argument.origin.as_ref()?)))
            .collect();
        self.line("hidden", &hidden.join(", "));
        self.line("arguments", &format!("{:#}", tool.arguments.visible_schema()));
        let schema = self.built.server.get_tool(&tool.name).and_then(|tool| tool.output_schema.clone());
        if let Some(schema) = schema {
            self.line("output", &format!("{:#}", schema.to_value()));
        }
    }

    fn backend(&mut self, tool: &Tool) {
        self.line("backend", tool.backend.kind());
        match &tool.backend {
            BackendConfig::Command(spec) => {
                let schema = tool.arguments.full_schema();
                if let Ok(backend) = CommandBackend::new((**spec).clone(), &schema) {
                    self.line("program", &backend.program().display().to_string());
                }
            }
            BackendConfig::Http(http) => {
                let target = http.path.as_ref().or(http.url.as_ref()).map_or("/", String::as_str);
                self.line("request", &format!("{} {target} on {}", http.method, http.connection));
            }
            BackendConfig::Sql(sql) => {
                self.line("connection", &sql.connection);
                match &sql.query {
                    SqlQuery::Text(text) => self.line("statement", text.trim()),
                    SqlQuery::Argument(name) => self.line("statement", &format!("the argument `{name}`")),
                }
            }
            BackendConfig::Text(_) | BackendConfig::Template(_) | BackendConfig::Builtin(_) => {}
        }
    }

    fn api_tool(&mut self, api_tool: &crate::build::ApiTool) {
        self.line("tool", &format!("{}.{}", self.built.config.name, api_tool.name));
        self.line("from", &self.config.files.locate(api_tool.span));
        self.line("backend", "openapi");
        self.line("request", &api_tool.route);
        self.line("security", &api_tool.security.join(", "));
        self.line("callers", &self.callers.clone());
        if let Some(tool) = self.built.server.get_tool(&api_tool.name) {
            self.line("description", tool.description.as_deref().unwrap_or_default());
            self.line("arguments", &format!("{:#}", tool.input_schema.to_value()));
        }
    }

    fn resource(&mut self, resource: &Resource) {
        self.line("resource", &resource.uri);
        self.line("from", &self.config.files.locate(resource.node.span));
        self.line("description", resource.description.as_deref().unwrap_or_default());
        self.line("media type", resource.mime.as_deref().unwrap_or_default());
        self.line("callers", &self.callers.clone());
    }

    fn template(&mut self, template: &ResourceTemplate) {
        self.line("template", &template.uri);
        self.line("from", &self.config.files.locate(template.node.span));
        self.line("description", template.description.as_deref().unwrap_or_default());
        self.line("backend", template.backend.kind());
        self.line("callers", &self.callers.clone());
    }

    fn prompt(&mut self, prompt: &Prompt) {
        self.line("prompt", &format!("{}.{}", self.built.config.name, prompt.name));
        self.line("from", &self.config.files.locate(prompt.node.span));
        self.line("description", prompt.description.as_deref().unwrap_or_default());
        self.line("callers", &self.callers.clone());
        self.line("arguments", &format!("{:#}", prompt.arguments.visible_schema()));
    }
}

/// The shortest timeout that applies to calls of a tool.
fn effective_timeout(config: &Config, tool: &Tool, settings: &ServerSettings) -> Duration {
    let call = call_timeout(tool, settings).unwrap_or(settings.timeout);
    let connection =
        |name: &str| config.connections.iter().find(|known| known.name == *name).map(|known| &known.kind);
    let backend = match &tool.backend {
        BackendConfig::Sql(sql) => match connection(&sql.connection) {
            Some(ConnectionKind::Sql(connection)) => Some(sql.timeout.unwrap_or(connection.timeout)),
            _ => None,
        },
        BackendConfig::Http(http) => match connection(&http.connection) {
            Some(ConnectionKind::Http(connection)) => {
                Some(http.timeout.unwrap_or(connection.timeout).min(connection.timeout))
            }
            _ => None,
        },
        // The timeout of the call is longer, so that the program is stopped first.
        BackendConfig::Command(spec) => call_timeout(tool, settings).map(|_| spec.timeout),
        _ => None,
    };
    backend.map_or(call, |backend| backend.min(call))
}
