//! Builds servers from a configuration, with the public API of the library.
//!
//! Problems are reported at the position in the file that caused them. Serving is the task of `serve`.

mod argument_resolver;
mod backend_cache;
mod backends;
mod completions;
mod limits;
mod openapi;
mod prompts;
mod requests;
mod resources;
mod result_cache;
mod settings;
mod storage;
mod tools;
mod upstreams;
mod wordpress;

#[cfg(all(test, unix))]
mod tests;

pub(crate) use openapi::ApiTool;
pub(crate) use resources::file_resource;
pub(crate) use tools::call_timeout;
pub(crate) use upstreams::Upstreams;

use std::collections::HashSet;
use std::sync::Arc;

use toolgate::compat::Dialect;
use toolgate::error::{BuildProblem, ProblemKind};
use toolgate::{Builder, Error, Server};

use crate::config::{self, Config, Diagnostics, FileStamp, Node, Span};
use crate::pack::runtime_state::RuntimeState;
use limits::CallLimits;
use resources::ServerResources;
use settings::apply_settings;
use toolgate_sources::source::Problem;
use toolgate_sources::source::files::Files;

/// Replaced by the number of tools in `instructions`.
const TOOL_COUNT_PLACEHOLDER: &str = "{tool_count}";

/// How a server is reached, which decides whether callers have to authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServeMode {
    /// Over HTTP: callers authenticate as configured.
    Http,
    /// By the user who started the program: callers do not authenticate.
    Local,
}

/// A server that was built from a configuration.
pub(crate) struct BuiltServer {
    pub(crate) server: Server,
    pub(crate) config: config::Server,
    /// Folders of file resources that are watched for changes.
    pub(crate) watched_folders: Vec<Arc<Files>>,
    pub(crate) warnings: Vec<BuildWarning>,
    /// Tools that are operations of imported APIs.
    pub(crate) api_tools: Vec<ApiTool>,
    /// Files that were read in addition to the configuration, with their state when they were read.
    pub(crate) file_stamps: Vec<FileStamp>,
    /// Whether the output schema of a statement is missing because its database did not answer.
    pub(crate) has_missing_schema: bool,
}

/// Something that is not served although the configuration is valid, or that is probably a mistake.
pub(crate) struct BuildWarning {
    pub(crate) span: Span,
    pub(crate) message: String,
}

/// Builds all servers of a configuration and reports their problems.
///
/// Blocks on databases and APIs, so it must be called from a blocking thread of a runtime.
pub(crate) fn build_servers(
    config: &Config,
    mode: ServeMode,
    runtime_state: &Arc<RuntimeState>,
    upstreams: &mut Upstreams,
    diagnostics: &mut Diagnostics,
) -> Vec<BuiltServer> {
    let mut servers = Vec::new();
    upstreams.update(config, diagnostics);
    // A configuration with problems is not served, so nothing needs to be opened or contacted.
    if diagnostics.is_empty() && !upstreams.is_offline() {
        upstreams.open_storage(config, diagnostics);
    }
    let was_offline = upstreams.set_offline(upstreams.is_offline() || !diagnostics.is_empty());
    let mut unresponsive_databases = HashSet::new();
    for server in &config.servers {
        let mut build = ServerBuild {
            config,
            server,
            mode,
            runtime_state,
            upstreams,
            unresponsive_databases: &mut unresponsive_databases,
            diagnostics,
            watched_folders: Vec::new(),
            warnings: Vec::new(),
            api_tools: Vec::new(),
            limits: CallLimits::default(),
            file_stamps: Vec::new(),
            has_missing_schema: false,
        };
        servers.extend(build.build());
    }
    upstreams.set_offline(was_offline);
    upstreams.finish_update();
    servers
}

/// The state of building one server. The submodules add methods for the kinds of items.
struct ServerBuild<'a> {
    config: &'a Config,
    server: &'a config::Server,
    mode: ServeMode,
    runtime_state: &'a Arc<RuntimeState>,
    upstreams: &'a mut Upstreams,
    /// Databases that did not answer in time; they are not asked again during this build.
    unresponsive_databases: &'a mut HashSet<String>,
    diagnostics: &'a mut Diagnostics,
    watched_folders: Vec<Arc<Files>>,
    warnings: Vec<BuildWarning>,
    api_tools: Vec<ApiTool>,
    limits: CallLimits,
    file_stamps: Vec<FileStamp>,
    has_missing_schema: bool,
}

impl ServerBuild<'_> {
    /// Returns `None` after reporting why the server cannot be built.
    fn build(&mut self) -> Option<BuiltServer> {
        let n_before = self.diagnostics.len();
        let builder = self.configured_builder()?;
        let builder = self.add_items(builder);
        if self.server.is_runtime_exposed() && self.mode == ServeMode::Http {
            let message = "the pack `runtime` shows the internals of the program to everyone who can reach this server; set `auth` to restrict access";
            self.warn(self.server.span, message);
        }
        let server = match builder.build() {
            Ok(server) => server,
            Err(error) => {
                self.report_build_error(&error);
                return None;
            }
        };
        if self.diagnostics.len() > n_before {
            return None;
        }
        if let Some(text) = &self.server.instructions
            && text.contains(TOOL_COUNT_PLACEHOLDER)
        {
            server.set_instructions(text.replace(TOOL_COUNT_PLACEHOLDER, &server.tool_count().to_string()));
        }
        Some(BuiltServer {
            server,
            config: self.server.clone(),
            watched_folders: std::mem::take(&mut self.watched_folders),
            warnings: std::mem::take(&mut self.warnings),
            api_tools: std::mem::take(&mut self.api_tools),
            file_stamps: std::mem::take(&mut self.file_stamps),
            has_missing_schema: self.has_missing_schema,
        })
    }

    /// A builder with everything but the items. Returns `None` if the connection of the WordPress site could not be
    /// made, which has been reported.
    fn configured_builder(&mut self) -> Option<Builder> {
        let config::Server { name, version, settings, .. } = self.server;
        let mut builder = Server::new(name, version);
        // Clients with a session keep the lists that they have read, so they have to be notified of changes. Other clients
        // read the lists again.
        if settings.sessions {
            builder = builder.announce_changes();
        }
        if let Some(title) = &self.server.title {
            builder = builder.server_title(title);
        }
        if let Some(description) = &self.server.description {
            builder = builder.server_description(description);
        }
        if let Some(instructions) = &self.server.instructions {
            builder = builder.instructions(instructions);
        }
        if let Some(website) = &self.server.website {
            builder = builder.website(website);
        }
        builder = apply_settings(builder, self.server, self.mode);
        if let Some(store) = self.upstreams.open_store() {
            builder = store.attach_to(builder);
        }
        if let (Some(site), ServeMode::Http) = (&settings.wordpress, self.mode) {
            let client = self.upstreams.wordpress_connection(site)?;
            builder = builder.basic_auth_provider(wordpress::basic_auth_provider(site, client));
        }
        if settings.dialect != "official"
            && let Some(dialect) = Dialect::from_name(&settings.dialect)
        {
            builder = builder.dialect(dialect);
        }
        if let Some(events) = self.upstreams.audit() {
            builder = builder.events(events);
        }
        self.limits = CallLimits {
            queue: settings.concurrency.map(|max_running| self.upstreams.call_queue(name, max_running)),
            response_limit: settings.response_limit,
        };
        Some(builder)
    }

    fn add_items(&mut self, mut builder: Builder) -> Builder {
        let server = self.server;
        let mut resources =
            ServerResources { profile: server.settings.profile.clone(), ..ServerResources::default() };
        for tool in &server.tools {
            if let Some(spec) = self.tool_spec(tool) {
                builder = builder.add_tool(spec).done();
            }
        }
        for resource in &server.resources {
            builder = self.add_resource(resource, builder, &mut resources);
        }
        for template in &server.templates {
            if let Some(spec) = self.template_spec(template, &mut resources) {
                builder = builder.add_template(spec).done();
            }
        }
        let mut taken: HashSet<String> = server.tools.iter().map(|tool| tool.name.clone()).collect();
        taken.extend(server.resources.iter().map(|resource| resource.uri.clone()));
        taken.extend(server.templates.iter().map(|template| template.uri.clone()));
        for api in &server.openapi {
            builder = self.add_openapi(api, builder, &mut resources, &mut taken);
        }
        let resources = Arc::new(resources);
        for prompt in &server.prompts {
            if let Some(spec) = self.prompt_spec(prompt, &resources) {
                builder = builder.add_prompt(spec).done();
            }
        }
        builder
    }

    fn warn(&mut self, span: Span, message: impl Into<String>) {
        self.warnings.push(BuildWarning { span, message: message.into() });
    }

    /// Reports each problem of the library at the position in the file that it is about.
    fn report_build_error(&mut self, error: &Error) {
        // The configuration reader has reported duplicates already, with both positions.
        for problem in error.problems().iter().filter(|problem| !problem.is_duplicate()) {
            match self.problem_span(problem) {
                Some(span) => self.diagnostics.report(span, problem.message()),
                None => self.diagnostics.report(self.server.span, problem.to_string()),
            }
        }
        if error.problems().is_empty() {
            self.diagnostics.report(self.server.span, error.to_string());
        }
    }

    fn problem_span(&self, problem: &BuildProblem) -> Option<Span> {
        let (server, name) = (self.server, problem.name());
        match problem.kind() {
            ProblemKind::Tool => Some(server.tools.iter().find(|tool| tool.name == name)?.node.span),
            ProblemKind::Prompt => Some(server.prompts.iter().find(|prompt| prompt.name == name)?.node.span),
            ProblemKind::Resource => {
                Some(server.resources.iter().find(|resource| resource.uri == name)?.node.span_at("uri"))
            }
            ProblemKind::Template => {
                Some(server.templates.iter().find(|template| template.uri == name)?.node.span_at("uri"))
            }
            ProblemKind::Setting => {
                self.config.setting_spans.iter().find(|(known, _)| *known == name).map(|(_, span)| *span)
            }
            _ => None,
        }
    }

    /// Reports the problems of a source. `key` is the key of its table in `node`.
    fn report_problems(&mut self, node: &Node, key: &str, problems: Vec<Problem>) {
        let placed = problems
            .into_iter()
            .map(|Problem { path, message }| (node.span_at(&format!("{key}.{path}")), message));
        // The checker may have reported the same value already.
        let new: Vec<_> = placed.filter(|(span, _)| !self.diagnostics.has_span(*span)).collect();
        for (span, message) in new {
            self.diagnostics.report(span, message);
        }
    }
}
