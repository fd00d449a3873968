//! Configurations become servers, by the same calls that anybody can make.
//!
//! Whatever is wrong is told with the place in the file where it was said. What is served is not known here: `serve`
//! puts it there.

mod argument_resolver;
mod backend_cache;
mod limits;
mod openapi;
mod requests;
mod resources;
mod result_cache;
mod storage;
mod tools;
mod upstreams;
mod wordpress;

#[cfg(all(test, unix))]
mod tests;

pub(crate) use openapi::ApiTool;
pub(crate) use tools::call_timeout;
pub(crate) use upstreams::Upstreams;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use toolgate::compat::Dialect;
use toolgate::guard::{ApiKeys, SecurityHeaders, Token};
use toolgate::model::PromptArgument;
use toolgate::{
    Builder, Context, Error, HandlerError, PromptSpec, ResourceSpec, Server, TemplateSpec, ToolSpec,
};

use crate::catalog;
use crate::config::{
    self, Arguments, BackendConfig, Config, ConnectionKind, Diagnostics, FileStamp, Node, OutputConfig, Span,
};
use crate::pack::{self, runtime_state::RuntimeState};
use crate::source::command::CommandBackend;
use crate::source::files::{Files, ListedFile};
use crate::source::http::{ChainBackend, FIRST_RESULT_ARGUMENT, HttpBackend, HttpClient};
use crate::source::prompt::PromptTemplate;
use crate::source::sanitize::sanitize_arguments;
use crate::source::sql::SqlBackend;
use crate::source::text::{TemplateBackend, TextBackend};
use crate::source::{Problem, ToolBackend};
use argument_resolver::ArgumentResolver;
use backend_cache::BackendInputs;
use limits::CallLimits;
use resources::{BackendReader, ServerResources, TextArguments};
use result_cache::ResultCache;
use upstreams::{DESCRIBE_TIMEOUT, block_on};

/// What stands for a number in instructions.
const TOOL_COUNT_PLACEHOLDER: &str = "{tool_count}";

/// Whom a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServeMode {
    /// Callers that have to prove who they are.
    Http,
    /// Whoever started the program: nobody is asked for anything.
    Local,
}

/// A server that was made of a configuration.
pub(crate) struct BuiltServer {
    pub(crate) server: Server,
    pub(crate) config: config::Server,
    /// Folders whose files are among its resources, and that are to be watched.
    pub(crate) watched_folders: Vec<Arc<Files>>,
    /// What is not served, although nothing is wrong with the file.
    pub(crate) warnings: Vec<BuildWarning>,
    /// Tools that are operations of APIs.
    pub(crate) api_tools: Vec<ApiTool>,
    /// Files that were read beside the configuration, as they were.
    pub(crate) file_stamps: Vec<FileStamp>,
    /// What a statement gives is not known, because its database did not say.
    pub(crate) has_missing_schema: bool,
}

/// Something that whoever wrote the file may want to know.
pub(crate) struct BuildWarning {
    pub(crate) span: Span,
    pub(crate) message: String,
}

impl BuildWarning {
    fn new(span: Span, message: String) -> BuildWarning {
        BuildWarning { span, message }
    }
}

/// Makes all servers, or says everything that keeps them from being made. Blocks: it is called where that hurts nobody,
/// and where there is a runtime.
pub(crate) fn build_servers(
    config: &Config,
    road: ServeMode,
    world: &Arc<RuntimeState>,
    backends: &mut Upstreams,
    troubles: &mut Diagnostics,
) -> Vec<BuiltServer> {
    let mut composed = Vec::new();
    backends.update(config, troubles);
    // Where something is wrong nothing will be served, and nobody needs to be asked.
    if troubles.is_empty() && !backends.is_offline() {
        backends.open_storage(config, troubles);
    }
    let was_quiet = backends.set_offline(backends.is_offline() || !troubles.is_empty());
    let mut silent = HashSet::new();
    for server in &config.servers {
        let (watched, notes, foreign) = (Vec::new(), Vec::new(), Vec::new());
        let silent = &mut silent;
        let bounds = CallLimits::default();
        let mut making = ServerBuild {
            config,
            server,
            mode: road,
            runtime_state: world,
            upstreams: backends,
            unresponsive_databases: silent,
            diagnostics: troubles,
            watched_folders: watched,
            warnings: notes,
            api_tools: foreign,
            limits: bounds,
            file_stamps: Vec::new(),
            has_missing_schema: false,
        };
        if let Some(made) = making.build() {
            composed.push(made);
        }
    }
    backends.set_offline(was_quiet);
    backends.finish_update();
    composed
}

struct ServerBuild<'a> {
    config: &'a Config,
    server: &'a config::Server,
    mode: ServeMode,
    runtime_state: &'a Arc<RuntimeState>,
    upstreams: &'a mut Upstreams,
    /// Databases that did not answer in time: they are not asked again.
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
    fn build(&mut self) -> Option<BuiltServer> {
        let n_before = self.diagnostics.len();
        let about = self.server;
        let mut builder = Server::new(&about.name, &about.version);
        // Whoever is remembered was told what there is, and that must hold when the file says more. Others ask again.
        if about.settings.sessions {
            builder = builder.announce_changes();
        }
        if let Some(title) = &about.title {
            builder = builder.server_title(title);
        }
        if let Some(description) = &about.description {
            builder = builder.server_description(description);
        }
        if let Some(instructions) = &about.instructions {
            builder = builder.instructions(instructions);
        }
        if let Some(website) = &about.website {
            builder = builder.website(website);
        }
        let mut builder = apply_settings(builder, about, self.mode);
        if let Some(kept) = self.upstreams.open_store() {
            builder = kept.attach_to(builder);
        }
        if let (Some(site), ServeMode::Http) = (&about.settings.wordpress, self.mode) {
            builder = builder.basic_auth_provider(wordpress::basic_auth_provider(
                site,
                self.upstreams.wordpress_connection(site)?,
            ));
        }
        if let Some(dialect) =
            Dialect::from_name(&about.settings.dialect).filter(|_| about.settings.dialect != "official")
        {
            builder = builder.dialect(dialect);
        }
        if let Some(events) = self.upstreams.audit() {
            builder = builder.events(events);
        }
        let turns = about.settings.concurrency.map(|at_once| self.upstreams.call_queue(&about.name, at_once));
        self.limits = CallLimits { queue: turns, response_limit: about.settings.response_limit };
        let mut library =
            ServerResources { profile: about.settings.profile.clone(), ..ServerResources::default() };
        for tool in &about.tools {
            if let Some(spec) = self.tool_spec(tool) {
                builder = builder.add_tool(spec).done();
            }
        }
        for resource in &about.resources {
            builder = self.add_resource(resource, builder, &mut library);
        }
        for template in &about.templates {
            if let Some(spec) = self.template_spec(template, &mut library) {
                builder = builder.add_template(spec).done();
            }
        }
        let mut taken: HashSet<String> = about.tools.iter().map(|tool| tool.name.clone()).collect();
        taken.extend(about.resources.iter().map(|resource| resource.uri.clone()));
        taken.extend(about.templates.iter().map(|template| template.uri.clone()));
        for api in &about.openapi {
            builder = self.add_openapi(api, builder, &mut library, &mut taken);
        }
        let library = Arc::new(library);
        for prompt in &about.prompts {
            if let Some(spec) = self.prompt_spec(prompt, &library) {
                builder = builder.add_prompt(spec).done();
            }
        }
        if about.is_runtime_exposed() && self.mode == ServeMode::Http {
            let said = "whoever reaches this server sees the inside of the program (pack `runtime`): an `auth` would ask who they are";
            self.warnings.push(BuildWarning::new(about.span, said.to_owned()));
        }
        let built = builder.build();
        match built {
            Ok(server) if self.diagnostics.len() == n_before => {
                if let Some(text) =
                    about.instructions.as_ref().filter(|text| text.contains(TOOL_COUNT_PLACEHOLDER))
                {
                    server.set_instructions(
                        text.replace(TOOL_COUNT_PLACEHOLDER, &server.tool_count().to_string()),
                    );
                }
                let watched = std::mem::take(&mut self.watched_folders);
                let (notes, foreign) =
                    (std::mem::take(&mut self.warnings), std::mem::take(&mut self.api_tools));
                let (beside, is_blank) = (std::mem::take(&mut self.file_stamps), self.has_missing_schema);
                Some(BuiltServer {
                    server,
                    config: about.clone(),
                    watched_folders: watched,
                    warnings: notes,
                    api_tools: foreign,
                    file_stamps: beside,
                    has_missing_schema: is_blank,
                })
            }
            Ok(_) => None,
            Err(error) => {
                self.report_build_error(&error);
                None
            }
        }
    }

    /// What the builder says, at the place in the file that it is about.
    fn report_build_error(&mut self, error: &Error) {
        let said = error.to_string();
        for line in said.lines().skip(1).map(str::trim) {
            let about = self.server;
            let quoted = |what: &str| line.strip_prefix(what)?.strip_prefix(" `")?.split_once('`');
            let found = quoted("tool")
                .and_then(|(name, rest)| {
                    Some((about.tools.iter().find(|tool| tool.name == name)?.node.span, rest))
                })
                .or_else(|| {
                    let (name, rest) = quoted("prompt")?;
                    Some((about.prompts.iter().find(|prompt| prompt.name == name)?.node.span, rest))
                })
                .or_else(|| {
                    let (uri, rest) = quoted("resource")?;
                    Some((
                        about.resources.iter().find(|resource| resource.uri == uri)?.node.span_at("uri"),
                        rest,
                    ))
                })
                .or_else(|| {
                    let (uri, rest) = quoted("template")?;
                    Some((
                        about.templates.iter().find(|template| template.uri == uri)?.node.span_at("uri"),
                        rest,
                    ))
                });
            let setting = line.split_once(": ").and_then(|(name, rest)| {
                let known = self.config.setting_spans.iter().find(|(known, _)| *known == name)?;
                Some((known.1, rest))
            });
            match found.or(setting) {
                // Told already, with both places.
                Some((_, rest)) if rest.ends_with("there are two of them") => {}
                Some((at, rest)) => self.diagnostics.report(at, rest.trim_start_matches(':').trim()),
                None => self.diagnostics.report(about.span, line),
            }
        }
    }

    fn report_problems(&mut self, node: &Node, below: &str, problems: Vec<Problem>) {
        let placed = problems
            .into_iter()
            .map(|Problem { path: at, message: said }| (node.span_at(&format!("{below}.{at}")), said));
        // What the file itself was told to be wrong about is not told in other words.
        let new: Vec<_> = placed.filter(|(at, _)| !self.diagnostics.has_span(*at)).collect();
        for (at, said) in new {
            self.diagnostics.report(at, said);
        }
    }

    /// What a tool does. One that is described as it was is the one that it was.
    fn backend_for_tool(&mut self, tool: &config::Tool) -> Option<Arc<dyn ToolBackend>> {
        let connection = match &tool.backend {
            BackendConfig::Http(http) => {
                self.upstreams.http(&http.connection).map(|known| Arc::as_ptr(&known).addr())
            }
            BackendConfig::Sql(sql) => {
                self.upstreams.sql(&sql.connection).map(|known| Arc::as_ptr(&known).addr())
            }
            BackendConfig::Template(_) | BackendConfig::Command(_) => Some(0),
            BackendConfig::Text(_) | BackendConfig::Builtin(_) => None,
        };
        let Some(connection) = connection else {
            return self.build_backend(&tool.backend, &tool.arguments, &tool.output, &tool.node);
        };
        let spot = (self.server.name.clone(), tool.name.clone());
        let statement = match &tool.backend {
            BackendConfig::Sql(sql) => Some(requests::statement_spec(
                sql,
                self.sql_connection_config(&sql.connection)?,
                &tool.output,
            )),
            _ => None,
        };
        let (does, output) = (tool.backend.clone(), tool.output.clone());
        let recipe = BackendInputs {
            backend: does,
            schema: tool.arguments.full_schema(),
            output,
            statement,
            connection,
        };
        let act = match self.upstreams.backend_cache.get(&spot, &recipe) {
            // A statement that could not be asked about is asked about again.
            Some(act) if !matches!(tool.backend, BackendConfig::Sql(_)) || act.output_schema().is_some() => {
                act
            }
            _ => self.build_backend(&tool.backend, &tool.arguments, &tool.output, &tool.node)?,
        };
        self.upstreams.backend_cache.insert(spot, recipe, &act);
        Some(act)
    }

    /// What acts, made of what a table says.
    fn build_backend(
        &mut self,
        does: &BackendConfig,
        arguments: &Arguments,
        output: &OutputConfig,
        node: &Node,
    ) -> Option<Arc<dyn ToolBackend>> {
        let schema = arguments.full_schema();
        let made: Result<Arc<dyn ToolBackend>, Vec<Problem>> = match does {
            BackendConfig::Text(text) => Ok(Arc::new(TextBackend(text.clone()))),
            BackendConfig::Template(text) => {
                TemplateBackend::new(text, &schema).map(|act| Arc::new(act) as Arc<dyn ToolBackend>)
            }
            BackendConfig::Command(spec) => CommandBackend::new((**spec).clone(), &schema)
                .map(|act| Arc::new(act) as Arc<dyn ToolBackend>),
            BackendConfig::Http(http) => {
                let connection = self.upstreams.http(&http.connection)?;
                let first =
                    HttpBackend::new(requests::request_spec(http, output), Arc::clone(&connection), &schema);
                match &http.follow_up {
                    None => first.map(|act| Arc::new(act) as Arc<dyn ToolBackend>),
                    Some(then) => chain_requests(http, then, output, &schema, first, connection),
                }
            }
            BackendConfig::Sql(sql) => {
                return self
                    .build_sql_backend(sql, &schema, output, node)
                    .map(|act| act as Arc<dyn ToolBackend>);
            }
            BackendConfig::Builtin(name) => {
                pack::builtin(name, self.server, self.runtime_state).ok_or_else(|| {
                    vec![Problem {
                        path: String::new(),
                        message: format!("there is nothing built in as `{name}`"),
                    }]
                })
            }
        };
        match made {
            Ok(act) => Some(act),
            Err(problems) => {
                self.report_problems(node, does.kind(), problems);
                None
            }
        }
    }

    /// What is said of a database.
    fn sql_connection_config(&self, name: &str) -> Option<&config::SqlConnectionConfig> {
        self.config.connections.iter().find_map(|known| match &known.kind {
            ConnectionKind::Sql(about) if known.name == name => Some(about),
            _ => None,
        })
    }

    /// A statement. What it gives is known afterwards, if its database answers.
    fn build_sql_backend(
        &mut self,
        sql: &config::Sql,
        schema: &Value,
        output: &OutputConfig,
        node: &Node,
    ) -> Option<Arc<SqlBackend>> {
        let connection = self.upstreams.sql(&sql.connection)?;
        let about = self.sql_connection_config(&sql.connection)?;
        let act = match SqlBackend::new(requests::statement_spec(sql, about, output), connection, schema) {
            Ok(act) => Arc::new(act),
            Err(problems) => {
                self.report_problems(node, "sql", problems);
                return None;
            }
        };
        if self.upstreams.is_offline() || self.unresponsive_databases.contains(&sql.connection) {
            self.has_missing_schema = true;
            return Some(act);
        }
        let said = match block_on(async { tokio::time::timeout(DESCRIBE_TIMEOUT, act.describe()).await }) {
            Ok(Ok(())) => return Some(act),
            Ok(Err(said)) => said,
            Err(_) => {
                self.unresponsive_databases.insert(sql.connection.clone());
                format!("the database `{}` does not answer", sql.connection)
            }
        };
        self.has_missing_schema = true;
        self.warnings.push(BuildWarning::new(
            node.span_at("sql"),
            format!("what this gives is not known yet: {said}"),
        ));
        Some(act)
    }

    fn tool_spec(&mut self, tool: &config::Tool) -> Option<ToolSpec> {
        let act = self.backend_for_tool(tool)?;
        let promised = act.output_schema();
        let scopes = if self.mode == ServeMode::Http { tool.scopes.clone() } else { Vec::new() };
        let taking = Arc::new(ArgumentResolver::for_tool(&tool.arguments));
        let unpaid = catalog::payment_error(tool);
        let bounds = if tool.task.is_some() { self.limits.for_tasks() } else { self.limits.clone() };
        let memory =
            tool.cache_ttl.map(|life| Arc::new(ResultCache::new(life, tools::vary_by(tool, self.config))));
        let cleaned = tools::arguments_to_clean(tool);
        let handler = move |given: Value, cx: Context| {
            let (act, taking, scopes) = (Arc::clone(&act), Arc::clone(&taking), scopes.clone());
            let (unpaid, bounds, memory) = (unpaid.clone(), bounds.clone(), memory.clone());
            async move {
                argument_resolver::require_scopes(&cx, &scopes)?;
                if let Some(said) = unpaid {
                    return Err(HandlerError::new(&*said));
                }
                let arguments = taking.resolve(given, &cx)?;
                let run = bounds.run(act.execute(&cx, &arguments));
                match &memory {
                    Some(memory) => memory.get_or_run(&cx, &arguments, run).await,
                    None => run.await,
                }
            }
        };
        let mut spec = ToolSpec::new(&tool.name, handler)
            .input_schema(tool.arguments.visible_schema())
            .hints(tool.hints.clone());
        if !cleaned.is_empty() {
            spec = spec.prepare(move |given| sanitize_arguments(given, &cleaned));
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
        let takes = |word: &str| match &tool.backend {
            BackendConfig::Sql(_) => matches!(word, "rows" | "row" | "value"),
            _ => word == "text" || (word == "json" && promised.is_some()),
        };
        spec = match (&tool.output, &promised) {
            (OutputConfig::Named(word), _) if !takes(word) => {
                let said = format!("`{}` has no output {word:?}", tool.backend.kind());
                self.diagnostics.report(tool.node.span_at("output"), said);
                return None;
            }
            (OutputConfig::Named(word), _) if word == "text" => spec,
            (OutputConfig::Schema(schema), _) | (_, Some(schema)) => spec.output_schema(schema.clone()),
            (_, None) => spec,
        };
        if let Some(timeout) = tools::call_timeout(tool, &self.server.settings) {
            spec = spec.timeout(timeout);
        }
        Some(tools::apply_task(spec, tool.task))
    }

    fn add_resource(
        &mut self,
        about: &config::Resource,
        builder: Builder,
        library: &mut ServerResources,
    ) -> Builder {
        match &about.kind {
            config::ResourceKind::Backend(does) => {
                let Some(act) = self.build_backend(does, &about.arguments, &about.output, &about.node) else {
                    return builder;
                };
                let reader = Arc::new(BackendReader::new(act, &about.arguments, about.mime.clone()));
                library.resources.insert(about.uri.clone(), Arc::clone(&reader));
                let mut spec = ResourceSpec::new(&about.uri, move |cx: Context| {
                    let reader = Arc::clone(&reader);
                    async move { reader.read(&cx, Vec::new()).await }
                })
                .name(&about.name);
                for (set, value) in [
                    (ResourceSpec::title as fn(ResourceSpec, String) -> ResourceSpec, &about.title),
                    (ResourceSpec::describe, &about.description),
                    (ResourceSpec::mime, &about.mime),
                ] {
                    if let Some(value) = value {
                        spec = set(spec, value.clone());
                    }
                }
                builder.add_resource(spec).done()
            }
            config::ResourceKind::Files { spec, watch } => {
                let below = if about.node.get("files").is_some() { "files" } else { "file" };
                match Files::new((**spec).clone()) {
                    Ok(files) => self.add_files(about, Arc::new(files), *watch, builder, library),
                    Err(problems) => {
                        self.report_problems(&about.node, below, problems);
                        builder
                    }
                }
            }
        }
    }

    fn add_files(
        &mut self,
        about: &config::Resource,
        files: Arc<Files>,
        watch: bool,
        mut builder: Builder,
        library: &mut ServerResources,
    ) -> Builder {
        for listed in files.refresh() {
            builder = builder.add_resource(file_resource(&files, &listed)).done();
        }
        if let Some(template) = files.uri_template() {
            let reading = Arc::clone(&files);
            let mut spec = TemplateSpec::new(&template, move |mut words: TextArguments| {
                Arc::clone(&reading).read(words.0.remove("path").unwrap_or_default())
            })
            .name(&about.name);
            if let Some(title) = &about.title {
                spec = spec.title(title);
            }
            if let Some(description) = &about.description {
                spec = spec.describe(description);
            }
            builder = builder.add_template(spec).done();
        }
        library.files.push(Arc::clone(&files));
        if watch {
            self.watched_folders.push(files);
        }
        builder
    }

    fn template_spec(
        &mut self,
        about: &config::ResourceTemplate,
        library: &mut ServerResources,
    ) -> Option<TemplateSpec> {
        let act = self.build_backend(&about.backend, &about.arguments, &about.output, &about.node)?;
        let reader = Arc::new(BackendReader::new(act, &about.arguments, about.mime.clone()));
        library.add_template(&about.uri, &reader);
        let mut spec = TemplateSpec::new(&about.uri, move |words: TextArguments, cx: Context| {
            let reader = Arc::clone(&reader);
            async move { reader.read(&cx, words.into_pairs()).await }
        })
        .name(&about.name);
        if let Some(title) = &about.title {
            spec = spec.title(title);
        }
        if let Some(description) = &about.description {
            spec = spec.describe(description);
        }
        if let Some(mime) = &about.mime {
            spec = spec.mime(mime);
        }
        for completion in &about.completions {
            let complete = self.completion_fn(completion)?;
            spec = spec.complete(&completion.name, move |prefix, cx| complete(prefix, cx));
        }
        Some(spec)
    }

    fn completion_fn(&mut self, about: &config::Completion) -> Option<tools::CompletionFn> {
        match &about.kind {
            config::CompletionKind::List(values) => Some(tools::complete_list(values.clone())),
            config::CompletionKind::Backend(BackendConfig::Sql(sql)) => {
                let act = self.build_sql_backend(
                    sql,
                    &tools::prefix_argument().full_schema(),
                    &OutputConfig::Unspecified,
                    &about.node,
                )?;
                Some(tools::complete_sql(act))
            }
            config::CompletionKind::Backend(does) => {
                let act = self.build_backend(
                    does,
                    &tools::prefix_argument(),
                    &OutputConfig::Unspecified,
                    &about.node,
                )?;
                Some(tools::complete_backend(act))
            }
        }
    }

    fn prompt_spec(&mut self, about: &config::Prompt, library: &Arc<ServerResources>) -> Option<PromptSpec> {
        let known: Vec<&str> = about.arguments.names().collect();
        let filling = match PromptTemplate::new(&about.messages, &known) {
            Ok(filling) => Arc::new(filling),
            Err(problems) => {
                let below = if about.node.get("messages").is_some() { "messages" } else { "" };
                self.report_problems(&about.node, below, problems);
                return None;
            }
        };
        let taking = Arc::new(ArgumentResolver::for_text_arguments(&about.arguments));
        let (checking, library) = (Arc::clone(&taking), Arc::clone(library));
        let mut spec = PromptSpec::new(&about.name, move |words: TextArguments, cx: Context| {
            let (filling, taking, library) =
                (Arc::clone(&filling), Arc::clone(&taking), Arc::clone(&library));
            async move {
                let arguments = taking.resolve(taking.coerce_texts(words.into_pairs())?, &cx)?;
                filling.render(&cx, &arguments, &*library).await
            }
        })
        .validate(move |words| checking.check(words));
        for argument in about.arguments.list.iter().filter(|argument| argument.origin.is_none()) {
            let text = |key: &str| argument.schema[key].as_str().map(str::to_owned);
            spec = spec.argument(PromptArgument {
                name: argument.name.clone(),
                title: text("title"),
                description: text("description"),
                required: argument.is_required,
            });
        }
        if let Some(title) = &about.title {
            spec = spec.title(title);
        }
        if let Some(description) = &about.description {
            spec = spec.describe(description);
        }
        for completion in &about.completions {
            let complete = self.completion_fn(completion)?;
            spec = spec.complete(&completion.name, move |prefix, cx| complete(prefix, cx));
        }
        Some(spec)
    }
}

/// A file as lists show it.
pub(crate) fn file_resource(files: &Arc<Files>, listed: &ListedFile) -> ResourceSpec {
    let (files, path) = (Arc::clone(files), listed.path.clone());
    let spec = ResourceSpec::new(&listed.uri, move || Arc::clone(&files).read(path.clone()))
        .name(crate::source::files::escape_display_name(&listed.path))
        .size(listed.size);
    match &listed.mime {
        Some(mime) => spec.mime(mime),
        None => spec,
    }
}

/// Everything about a server but what it offers.
fn apply_settings(builder: Builder, server: &config::Server, road: ServeMode) -> Builder {
    let frame = &server.settings;
    let bytes = usize::try_from(frame.max_body_bytes).unwrap_or(usize::MAX);
    let mut builder = builder
        .page_size(frame.page_size)
        .handler_timeout(frame.timeout)
        .shutdown_timeout(frame.shutdown_timeout)
        .message_limit(bytes);
    if frame.strict_arguments {
        builder = builder.strict_arguments();
    }
    if !frame.sessions {
        builder = builder.stateless();
    }
    if !frame.stats {
        builder = builder.statistics(false);
    }
    if let Some(profile) = &frame.profile {
        builder = builder.visible(profile.clone());
    }
    if road == ServeMode::Local {
        return builder;
    }
    if let Some(url) = &frame.public_url {
        builder = builder.public_url(url);
    }
    for host in &frame.hosts {
        builder = builder.allow_host(host);
    }
    if !frame.security_headers {
        builder = builder.security_headers(SecurityHeaders::none());
    }
    builder = builder
        .trust_proxies(frame.trusted_proxies.clone())
        .allow_ips(frame.ip_allow.clone())
        .cors(frame.cors_origins.clone())
        .legacy_sse(frame.legacy_sse)
        .body_limit(bytes)
        .any_credential();
    if let Some(rate) = frame.rate_per_ip {
        builder = builder.rate_per_ip(rate);
    }
    if let Some(rate) = frame.rate_per_principal {
        builder = builder.rate_per_principal(rate);
    }
    if let Some(age) = frame.cors_max_age {
        builder = builder.cors_max_age(age);
    }
    for user in &frame.users {
        builder = tools::add_user(builder, user, server);
    }
    for holder in frame.tokens.iter().chain(&frame.api_keys) {
        if let (Some(name), Some(rate)) = (&holder.subject, holder.quota) {
            builder = builder.rate_of(name, rate);
        }
    }
    let token = |credential: &config::Credential| tools::token(credential, server);
    if !frame.tokens.is_empty() {
        builder = builder.tokens(frame.tokens.iter().map(token).collect::<Vec<Token>>());
    }
    if !frame.api_keys.is_empty() {
        builder = builder.api_keys(ApiKeys::list(frame.api_keys.iter().map(token).collect::<Vec<Token>>()));
    }
    builder
}

/// Two requests, of which the second knows what the first answered.
fn chain_requests(
    http: &config::Http,
    then: &config::HttpFollowUp,
    output: &OutputConfig,
    schema: &Value,
    first: Result<HttpBackend, Vec<Problem>>,
    connection: Arc<HttpClient>,
) -> Result<Arc<dyn ToolBackend>, Vec<Problem>> {
    if schema["properties"].get(FIRST_RESULT_ARGUMENT).is_some() {
        let message = format!(
            "`{FIRST_RESULT_ARGUMENT}` is what the first request answers: the argument needs another name"
        );
        return Err(vec![Problem { path: "then".into(), message }]);
    }
    let mut known = schema.clone();
    known["properties"][FIRST_RESULT_ARGUMENT] = serde_json::json!({});
    match known["required"].as_array_mut() {
        Some(required) => required.push(FIRST_RESULT_ARGUMENT.into()),
        None => known["required"] = serde_json::json!([FIRST_RESULT_ARGUMENT]),
    }
    let second = HttpBackend::new(requests::follow_up_spec(http, then, output), connection, &known);
    let below = |problem: Problem| Problem { path: format!("then.{}", problem.path), ..problem };
    match (first, second) {
        (Ok(first), Ok(second)) => Ok(Arc::new(ChainBackend { first, second })),
        (first, second) => {
            let second = second.err().unwrap_or_default().into_iter().map(below);
            Err(first.err().unwrap_or_default().into_iter().chain(second).collect())
        }
    }
}
