//! Builds tools.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolgate::model::TaskSupport;
use toolgate::{Context, HandlerError, ToolSpec};
use toolgate_sources::source::ToolBackend;
use toolgate_sources::source::sanitize::sanitize_arguments;

use super::argument_resolver::{ArgumentResolver, require_scopes};
use super::result_cache::{ResultCache, VaryBy};
use super::{ServeMode, ServerBuild};
use crate::catalog;
use crate::config::{
    BackendConfig, Config, ConnectionKind, OutputConfig, ServerSettings, Task, Tool, UpstreamAuth,
};

/// Time that a command has to end, and its result to be returned, after it was stopped.
const KILL_GRACE: Duration = Duration::from_secs(5);

impl ServerBuild<'_> {
    /// Returns `None` after reporting why the tool cannot be built.
    pub(super) fn tool_spec(&mut self, tool: &Tool) -> Option<ToolSpec> {
        let backend = self.backend_for_tool(tool)?;
        let backend_schema = backend.output_schema();
        let mut spec = self.handled_spec(tool, backend);
        let to_clean = arguments_to_clean(tool);
        if !to_clean.is_empty() {
            spec = spec.prepare(move |arguments| sanitize_arguments(arguments, &to_clean));
        }
        if let Some(description) = &tool.description {
            spec = spec.describe(description);
        }
        if let Some(title) = &tool.title {
            spec = spec.title(title);
        }
        if let Some(meta) = catalog::meta(tool) {
            spec = spec.meta(meta);
        }
        for alias in &tool.aliases {
            spec = spec.alias(alias);
        }
        if let Some(schema) = self.output_schema(tool, backend_schema)? {
            spec = spec.output_schema(schema);
        }
        if let Some(timeout) = call_timeout(tool, &self.server.settings) {
            spec = spec.timeout(timeout);
        }
        Some(apply_task(spec, tool.task))
    }

    /// A spec whose handler checks scopes and price, resolves the arguments, and runs the backend within the limits.
    fn handled_spec(&self, tool: &Tool, backend: Arc<dyn ToolBackend>) -> ToolSpec {
        let scopes = if self.mode == ServeMode::Http { tool.scopes.clone() } else { Vec::new() };
        let resolver = Arc::new(ArgumentResolver::for_tool(&tool.arguments));
        let payment_error = catalog::payment_error(tool);
        let limits = if tool.task.is_some() { self.limits.for_tasks() } else { self.limits.clone() };
        let cache = tool.cache_ttl.map(|ttl| Arc::new(ResultCache::new(ttl, vary_by(tool, self.config))));
        let handler = move |arguments: Value, cx: Context| {
            let (backend, resolver, scopes) = (Arc::clone(&backend), Arc::clone(&resolver), scopes.clone());
            let (payment_error, limits, cache) = (payment_error.clone(), limits.clone(), cache.clone());
            async move {
                require_scopes(&cx, &scopes)?;
                if let Some(message) = payment_error {
                    return Err(HandlerError::new(&*message));
                }
                let arguments = resolver.resolve(arguments, &cx)?;
                let run = limits.run(backend.execute(&cx, &arguments));
                match &cache {
                    Some(cache) => cache.get_or_run(&cx, &arguments, run).await,
                    None => run.await,
                }
            }
        };
        ToolSpec::new(&tool.name, handler)
            .input_schema(tool.arguments.visible_schema())
            .hints(tool.hints.clone())
    }

    /// The output schema of a tool, which is that of the configuration or of the backend. The outer `None` is returned
    /// after reporting an `output` that the backend does not have.
    fn output_schema(&mut self, tool: &Tool, backend_schema: Option<Value>) -> Option<Option<Value>> {
        match &tool.output {
            OutputConfig::Named(name) => {
                let is_known = match &tool.backend {
                    BackendConfig::Sql(_) => matches!(name.as_str(), "rows" | "row" | "value"),
                    _ => name == "text" || (name == "json" && backend_schema.is_some()),
                };
                if !is_known {
                    let message = format!("`output` {name:?} cannot be used with `{}`", tool.backend.kind());
                    self.diagnostics.report(tool.node.span_at("output"), message);
                    return None;
                }
                Some(backend_schema.filter(|_| name != "text"))
            }
            OutputConfig::Schema(schema) => Some(Some(schema.clone())),
            OutputConfig::Unspecified => Some(backend_schema),
        }
    }
}

/// The timeout of calls of a tool, if it differs from that of the server. A command is stopped by its backend, so the
/// call gets some time more.
pub(crate) fn call_timeout(tool: &Tool, settings: &ServerSettings) -> Option<Duration> {
    match &tool.backend {
        // A task may run until its TTL ends; a caller that waits for it has the timeout of the server.
        BackendConfig::Command(_) if tool.task.is_some() && !has_own_timeout(tool) => None,
        BackendConfig::Command(spec) => Some(spec.timeout + KILL_GRACE),
        _ => tool.timeout.filter(|timeout| *timeout != settings.timeout),
    }
}

fn has_own_timeout(tool: &Tool) -> bool {
    tool.timeout.is_some() || tool.node.get("command").is_some_and(|command| command.get("timeout").is_some())
}

fn apply_task(spec: ToolSpec, task: Option<Task>) -> ToolSpec {
    let Some(task) = task else { return spec };
    let support = if task.is_required { TaskSupport::Required } else { TaskSupport::Optional };
    let spec = spec.task(support);
    let spec = if task.is_resumable { spec.resumable() } else { spec };
    spec.task_ttl(task.ttl)
}

/// The arguments that are sanitized before they are validated, with their schemas.
fn arguments_to_clean(tool: &Tool) -> Vec<(String, Value)> {
    let is_cleaned = |argument: &&crate::config::Argument| {
        argument.origin.is_none() && argument.clean.unwrap_or(tool.clean)
    };
    let arguments = tool.arguments.list.iter().filter(is_cleaned);
    arguments.map(|argument| (argument.name.clone(), argument.schema.clone())).collect()
}

/// The properties of the caller that the result of a tool depends on.
fn vary_by(tool: &Tool, config: &Config) -> VaryBy {
    let auth = match &tool.backend {
        BackendConfig::Text(_)
        | BackendConfig::Template(_)
        | BackendConfig::Command(_)
        | BackendConfig::Sql(_) => None,
        // A built-in may depend on anything. The configuration reader rejects `cache` for it.
        BackendConfig::Builtin(_) => return VaryBy::default(),
        BackendConfig::Http(http) => http.auth.as_ref().or_else(|| {
            let named = config.connections.iter().find(|known| known.name == http.connection)?;
            match &named.kind {
                ConnectionKind::Http(connection) => connection.auth.as_ref(),
                ConnectionKind::Sql(_) => None,
            }
        }),
    };
    let (headers, attributes) = match auth {
        Some(UpstreamAuth::Forward) => (vec!["authorization".to_owned()], Vec::new()),
        Some(UpstreamAuth::Headers(names)) => (names.clone(), Vec::new()),
        Some(UpstreamAuth::Attribute { attribute, .. }) => (Vec::new(), vec![attribute.clone()]),
        // Values of the caller are arguments, which are part of the key anyway. Adding the caller's id to the key is
        // harmless.
        None if tool.arguments.list.iter().any(|argument| argument.origin.is_some()) => {
            (Vec::new(), Vec::new())
        }
        None => return VaryBy::public(),
    };
    VaryBy { is_public: false, headers, attributes }
}
