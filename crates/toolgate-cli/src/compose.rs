//! Configurations become servers, by the same calls that anybody can make.
//!
//! Whatever is wrong is told with the place in the file where it was said. What is served is not known here: `serve`
//! puts it there.

mod api;
mod backends;
mod bounds;
mod caller;
mod keep;
mod library;
mod memory;
mod requests;
mod reuse;
mod tools;
mod wordpress;

#[cfg(all(test, unix))]
mod tests;

pub(crate) use api::Foreign;
pub(crate) use backends::Backends;
pub(crate) use tools::patience;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use toolgate::model::PromptArgument;
use toolgate::{
    ApiKeys, Builder, Context, Dialect, Error, PromptSpec, ResourceSpec, SecurityHeaders, Server,
    TemplateSpec, Token, HandlerError, ToolSpec,
};

use crate::catalog;
use crate::config::{self, Arguments, Beside, Config, ConnectionKind, Does, Node, Output, Place, Troubles};
use crate::pack::{self, world::World};
use crate::source::clean::clean;
use crate::source::command::CommandAct;
use crate::source::files::{Files, Listed};
use crate::source::http::{ChainAct, FIRST, HttpAct, HttpConnection};
use crate::source::prompt::Filling;
use crate::source::sql::SqlAct;
use crate::source::text::{TemplateAct, TextAct};
use crate::source::{Act, Problem};
use backends::{PATIENCE, wait};
use bounds::Bounds;
use caller::Taking;
use library::{Library, Reader, Words};
use memory::Memory;
use reuse::Recipe;

/// What stands for a number in instructions.
const TOOL_COUNT: &str = "{tool_count}";

/// Whom a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    /// Callers that have to prove who they are.
    Http,
    /// Whoever started the program: nobody is asked for anything.
    Local,
}

/// A server that was made of a configuration.
pub(crate) struct Composed {
    pub(crate) server: Server,
    pub(crate) config: config::Server,
    /// Folders whose files are among its resources, and that are to be watched.
    pub(crate) watched: Vec<Arc<Files>>,
    /// What is not served, although nothing is wrong with the file.
    pub(crate) notes: Vec<Note>,
    /// Tools that are operations of APIs.
    pub(crate) foreign: Vec<Foreign>,
    /// Files that were read beside the configuration, as they were.
    pub(crate) beside: Vec<Beside>,
    /// What a statement gives is not known, because its database did not say.
    pub(crate) is_blank: bool,
}

/// Something that whoever wrote the file may want to know.
pub(crate) struct Note {
    pub(crate) at: Place,
    pub(crate) said: String,
}

impl Note {
    fn new(at: Place, said: String) -> Note {
        Note { at, said }
    }
}

/// Makes all servers, or says everything that keeps them from being made. Blocks: it is called where that hurts nobody,
/// and where there is a runtime.
pub(crate) fn compose(
    config: &Config,
    road: Road,
    world: &Arc<World>,
    backends: &mut Backends,
    troubles: &mut Troubles,
) -> Vec<Composed> {
    let mut composed = Vec::new();
    backends.renew(config, troubles);
    // Where something is wrong nothing will be served, and nobody needs to be asked.
    if troubles.is_empty() && !backends.is_quiet() {
        backends.keep(config, troubles);
    }
    let was_quiet = backends.hush(backends.is_quiet() || !troubles.is_empty());
    let mut silent = HashSet::new();
    for server in &config.servers {
        let (watched, notes, foreign) = (Vec::new(), Vec::new(), Vec::new());
        let silent = &mut silent;
        let bounds = Bounds::default();
        let mut making = Making {
            config,
            server,
            road,
            world,
            backends,
            silent,
            troubles,
            watched,
            notes,
            foreign,
            bounds,
            beside: Vec::new(),
            is_blank: false,
        };
        if let Some(made) = making.make() {
            composed.push(made);
        }
    }
    backends.hush(was_quiet);
    backends.settle();
    composed
}

struct Making<'a> {
    config: &'a Config,
    server: &'a config::Server,
    road: Road,
    world: &'a Arc<World>,
    backends: &'a mut Backends,
    /// Databases that did not answer in time: they are not asked again.
    silent: &'a mut HashSet<String>,
    troubles: &'a mut Troubles,
    watched: Vec<Arc<Files>>,
    notes: Vec<Note>,
    foreign: Vec<Foreign>,
    bounds: Bounds,
    beside: Vec<Beside>,
    is_blank: bool,
}

impl Making<'_> {
    fn make(&mut self) -> Option<Composed> {
        let n_before = self.troubles.len();
        let about = self.server;
        let mut builder = Server::new(&about.name, &about.version);
        // Whoever is remembered was told what there is, and that must hold when the file says more. Others ask again.
        if about.frame.sessions {
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
        let mut builder = framed(builder, about, self.road);
        if let Some(kept) = self.backends.kept() {
            builder = kept.give(builder);
        }
        if let (Some(site), Road::Http) = (&about.frame.wordpress, self.road) {
            builder = builder.basic_auth_provider(wordpress::logins(site, self.backends.site(site)?));
        }
        if let Some(dialect) =
            Dialect::from_name(&about.frame.dialect).filter(|_| about.frame.dialect != "official")
        {
            builder = builder.dialect(dialect);
        }
        if let Some(events) = self.backends.audit() {
            builder = builder.events(events);
        }
        let turns = about.frame.concurrency.map(|at_once| self.backends.turns(&about.name, at_once));
        self.bounds = Bounds { turns, response: about.frame.response };
        let mut library = Library { profile: about.frame.profile.clone(), ..Library::default() };
        for tool in &about.tools {
            if let Some(spec) = self.tool(tool) {
                builder = builder.add_tool(spec).into_plain();
            }
        }
        for resource in &about.resources {
            builder = self.resource(resource, builder, &mut library);
        }
        for template in &about.templates {
            if let Some(spec) = self.template(template, &mut library) {
                builder = builder.add_template(spec).into_plain();
            }
        }
        let mut taken: HashSet<String> = about.tools.iter().map(|tool| tool.name.clone()).collect();
        taken.extend(about.resources.iter().map(|resource| resource.uri.clone()));
        taken.extend(about.templates.iter().map(|template| template.uri.clone()));
        for api in &about.openapi {
            builder = self.openapi(api, builder, &mut library, &mut taken);
        }
        let library = Arc::new(library);
        for prompt in &about.prompts {
            if let Some(spec) = self.prompt(prompt, &library) {
                builder = builder.add_prompt(spec).into_plain();
            }
        }
        if about.is_open_inside() && self.road == Road::Http {
            let said = "whoever reaches this server sees the inside of the program (pack `runtime`): an `auth` would ask who they are";
            self.notes.push(Note::new(about.at, said.to_owned()));
        }
        let built = builder.build();
        match built {
            Ok(server) if self.troubles.len() == n_before => {
                if let Some(text) = about.instructions.as_ref().filter(|text| text.contains(TOOL_COUNT)) {
                    server.set_instructions(text.replace(TOOL_COUNT, &server.tool_count().to_string()));
                }
                let watched = std::mem::take(&mut self.watched);
                let (notes, foreign) = (std::mem::take(&mut self.notes), std::mem::take(&mut self.foreign));
                let (beside, is_blank) = (std::mem::take(&mut self.beside), self.is_blank);
                Some(Composed { server, config: about.clone(), watched, notes, foreign, beside, is_blank })
            }
            Ok(_) => None,
            Err(error) => {
                self.misbuilt(&error);
                None
            }
        }
    }

    /// What the builder says, at the place in the file that it is about.
    fn misbuilt(&mut self, error: &Error) {
        let said = error.to_string();
        for line in said.lines().skip(1).map(str::trim) {
            let about = self.server;
            let quoted = |what: &str| line.strip_prefix(what)?.strip_prefix(" `")?.split_once('`');
            let found = quoted("tool")
                .and_then(|(name, rest)| {
                    Some((about.tools.iter().find(|tool| tool.name == name)?.node.at, rest))
                })
                .or_else(|| {
                    let (name, rest) = quoted("prompt")?;
                    Some((about.prompts.iter().find(|prompt| prompt.name == name)?.node.at, rest))
                })
                .or_else(|| {
                    let (uri, rest) = quoted("resource")?;
                    Some((
                        about.resources.iter().find(|resource| resource.uri == uri)?.node.reach("uri"),
                        rest,
                    ))
                })
                .or_else(|| {
                    let (uri, rest) = quoted("template")?;
                    Some((
                        about.templates.iter().find(|template| template.uri == uri)?.node.reach("uri"),
                        rest,
                    ))
                });
            let setting = line.split_once(": ").and_then(|(name, rest)| {
                let known = self.config.settings.iter().find(|(known, _)| *known == name)?;
                Some((known.1, rest))
            });
            match found.or(setting) {
                // Told already, with both places.
                Some((_, rest)) if rest.ends_with("there are two of them") => {}
                Some((at, rest)) => self.troubles.say(at, rest.trim_start_matches(':').trim()),
                None => self.troubles.say(about.at, line),
            }
        }
    }

    fn problems(&mut self, node: &Node, below: &str, problems: Vec<Problem>) {
        let placed =
            problems.into_iter().map(|Problem { at, said }| (node.reach(&format!("{below}.{at}")), said));
        // What the file itself was told to be wrong about is not told in other words.
        let new: Vec<_> = placed.filter(|(at, _)| !self.troubles.knows(*at)).collect();
        for (at, said) in new {
            self.troubles.say(at, said);
        }
    }

    /// What a tool does. One that is described as it was is the one that it was.
    fn act_of(&mut self, tool: &config::Tool) -> Option<Arc<dyn Act>> {
        let connection = match &tool.does {
            Does::Http(http) => self.backends.http(&http.on).map(|known| Arc::as_ptr(&known).addr()),
            Does::Sql(sql) => self.backends.sql(&sql.on).map(|known| Arc::as_ptr(&known).addr()),
            Does::Template(_) | Does::Command(_) => Some(0),
            Does::Text(_) | Does::Builtin(_) => None,
        };
        let Some(connection) = connection else {
            return self.act(&tool.does, &tool.arguments, &tool.output, &tool.node);
        };
        let spot = (self.server.name.clone(), tool.name.clone());
        let statement = match &tool.does {
            Does::Sql(sql) => Some(requests::statement(sql, self.database(&sql.on)?, &tool.output)),
            _ => None,
        };
        let (does, output) = (tool.does.clone(), tool.output.clone());
        let recipe = Recipe { does, schema: tool.arguments.all(), output, statement, connection };
        let act = match self.backends.reuse.find(&spot, &recipe) {
            // A statement that could not be asked about is asked about again.
            Some(act) if !matches!(tool.does, Does::Sql(_)) || act.output_schema().is_some() => act,
            _ => self.act(&tool.does, &tool.arguments, &tool.output, &tool.node)?,
        };
        self.backends.reuse.keep(spot, recipe, &act);
        Some(act)
    }

    /// What acts, made of what a table says.
    fn act(
        &mut self,
        does: &Does,
        arguments: &Arguments,
        output: &Output,
        node: &Node,
    ) -> Option<Arc<dyn Act>> {
        let schema = arguments.all();
        let made: Result<Arc<dyn Act>, Vec<Problem>> = match does {
            Does::Text(text) => Ok(Arc::new(TextAct(text.clone()))),
            Does::Template(text) => TemplateAct::new(text, &schema).map(|act| Arc::new(act) as Arc<dyn Act>),
            Does::Command(spec) => {
                CommandAct::new((**spec).clone(), &schema).map(|act| Arc::new(act) as Arc<dyn Act>)
            }
            Does::Http(http) => {
                let connection = self.backends.http(&http.on)?;
                let first = HttpAct::new(requests::request(http, output), Arc::clone(&connection), &schema);
                match &http.then {
                    None => first.map(|act| Arc::new(act) as Arc<dyn Act>),
                    Some(then) => chained(http, then, output, &schema, first, connection),
                }
            }
            Does::Sql(sql) => return self.sql(sql, &schema, output, node).map(|act| act as Arc<dyn Act>),
            Does::Builtin(name) => pack::builtin(name, self.server, self.world).ok_or_else(|| {
                vec![Problem { at: String::new(), said: format!("there is nothing built in as `{name}`") }]
            }),
        };
        match made {
            Ok(act) => Some(act),
            Err(problems) => {
                self.problems(node, does.kind(), problems);
                None
            }
        }
    }

    /// What is said of a database.
    fn database(&self, name: &str) -> Option<&config::SqlConnection> {
        self.config.connections.iter().find_map(|known| match &known.kind {
            ConnectionKind::Sql(about) if known.name == name => Some(about),
            _ => None,
        })
    }

    /// A statement. What it gives is known afterwards, if its database answers.
    fn sql(
        &mut self,
        sql: &config::Sql,
        schema: &Value,
        output: &Output,
        node: &Node,
    ) -> Option<Arc<SqlAct>> {
        let connection = self.backends.sql(&sql.on)?;
        let about = self.database(&sql.on)?;
        let act = match SqlAct::new(requests::statement(sql, about, output), connection, schema) {
            Ok(act) => Arc::new(act),
            Err(problems) => {
                self.problems(node, "sql", problems);
                return None;
            }
        };
        if self.backends.is_quiet() || self.silent.contains(&sql.on) {
            self.is_blank = true;
            return Some(act);
        }
        let said = match wait(async { tokio::time::timeout(PATIENCE, act.describe()).await }) {
            Ok(Ok(())) => return Some(act),
            Ok(Err(said)) => said,
            Err(_) => {
                self.silent.insert(sql.on.clone());
                format!("the database `{}` does not answer", sql.on)
            }
        };
        self.is_blank = true;
        self.notes.push(Note::new(node.reach("sql"), format!("what this gives is not known yet: {said}")));
        Some(act)
    }

    fn tool(&mut self, tool: &config::Tool) -> Option<ToolSpec> {
        let act = self.act_of(tool)?;
        let promised = act.output_schema();
        let scopes = if self.road == Road::Http { tool.scopes.clone() } else { Vec::new() };
        let taking = Arc::new(Taking::of_tool(&tool.arguments));
        let unpaid = catalog::unpaid(tool);
        let bounds = if tool.task.is_some() { self.bounds.of_tasks() } else { self.bounds.clone() };
        let memory = tool.cache.map(|life| Arc::new(Memory::new(life, tools::whom(tool, self.config))));
        let cleaned = tools::cleaned(tool);
        let handler = move |given: Value, cx: Context| {
            let (act, taking, scopes) = (Arc::clone(&act), Arc::clone(&taking), scopes.clone());
            let (unpaid, bounds, memory) = (unpaid.clone(), bounds.clone(), memory.clone());
            async move {
                caller::has_scopes(&cx, &scopes)?;
                if let Some(said) = unpaid {
                    return Err(HandlerError::new(&*said));
                }
                let arguments = taking.fill(given, &cx)?;
                let run = bounds.around(act.act(&cx, &arguments));
                match &memory {
                    Some(memory) => memory.recall(&cx, &arguments, run).await,
                    None => run.await,
                }
            }
        };
        let mut spec =
            ToolSpec::new(&tool.name, handler).input_schema(tool.arguments.seen()).hints(tool.hints.clone());
        if !cleaned.is_empty() {
            spec = spec.prepare(move |given| clean(given, &cleaned));
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
        let takes = |word: &str| match &tool.does {
            Does::Sql(_) => matches!(word, "rows" | "row" | "value"),
            _ => word == "text" || (word == "json" && promised.is_some()),
        };
        spec = match (&tool.output, &promised) {
            (Output::Word(word), _) if !takes(word) => {
                let said = format!("`{}` has no output {word:?}", tool.does.kind());
                self.troubles.say(tool.node.reach("output"), said);
                return None;
            }
            (Output::Word(word), _) if word == "text" => spec,
            (Output::Schema(schema), _) | (_, Some(schema)) => spec.output_schema(schema.clone()),
            (_, None) => spec,
        };
        if let Some(timeout) = tools::patience(tool, &self.server.frame) {
            spec = spec.timeout(timeout);
        }
        Some(tools::as_task(spec, tool.task))
    }

    fn resource(&mut self, about: &config::Resource, builder: Builder, library: &mut Library) -> Builder {
        match &about.is {
            config::ResourceKind::Does(does) => {
                let Some(act) = self.act(does, &about.arguments, &about.output, &about.node) else {
                    return builder;
                };
                let reader = Arc::new(Reader::new(act, &about.arguments, about.mime.clone()));
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
                builder.add_resource(spec).into_plain()
            }
            config::ResourceKind::Files { spec, watch } => {
                let below = if about.node.get("files").is_some() { "files" } else { "file" };
                match Files::new((**spec).clone()) {
                    Ok(files) => self.files(about, Arc::new(files), *watch, builder, library),
                    Err(problems) => {
                        self.problems(&about.node, below, problems);
                        builder
                    }
                }
            }
        }
    }

    fn files(
        &mut self,
        about: &config::Resource,
        files: Arc<Files>,
        watch: bool,
        mut builder: Builder,
        library: &mut Library,
    ) -> Builder {
        for listed in files.look() {
            builder = builder.add_resource(file_resource(&files, &listed)).into_plain();
        }
        if let Some(template) = files.template() {
            let reading = Arc::clone(&files);
            let mut spec = TemplateSpec::new(&template, move |mut words: Words| {
                Arc::clone(&reading).read(words.0.remove("path").unwrap_or_default())
            })
            .name(&about.name);
            if let Some(title) = &about.title {
                spec = spec.title(title);
            }
            if let Some(description) = &about.description {
                spec = spec.describe(description);
            }
            builder = builder.add_template(spec).into_plain();
        }
        library.files.push(Arc::clone(&files));
        if watch {
            self.watched.push(files);
        }
        builder
    }

    fn template(&mut self, about: &config::Template, library: &mut Library) -> Option<TemplateSpec> {
        let act = self.act(&about.does, &about.arguments, &about.output, &about.node)?;
        let reader = Arc::new(Reader::new(act, &about.arguments, about.mime.clone()));
        library.add_template(&about.uri, &reader);
        let mut spec = TemplateSpec::new(&about.uri, move |words: Words, cx: Context| {
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
        for completion in &about.complete {
            let complete = self.completion(completion)?;
            spec = spec.complete(&completion.name, move |prefix, cx| complete(prefix, cx));
        }
        Some(spec)
    }

    fn completion(&mut self, about: &config::Completion) -> Option<tools::Complete> {
        match &about.by {
            config::CompletionKind::List(values) => Some(tools::complete_list(values.clone())),
            config::CompletionKind::Does(Does::Sql(sql)) => {
                let act = self.sql(sql, &tools::prefix().all(), &Output::Unsaid, &about.node)?;
                Some(tools::complete_sql(act))
            }
            config::CompletionKind::Does(does) => {
                let act = self.act(does, &tools::prefix(), &Output::Unsaid, &about.node)?;
                Some(tools::complete_act(act))
            }
        }
    }

    fn prompt(&mut self, about: &config::Prompt, library: &Arc<Library>) -> Option<PromptSpec> {
        let known: Vec<&str> = about.arguments.names().collect();
        let filling = match Filling::new(&about.messages, &known) {
            Ok(filling) => Arc::new(filling),
            Err(problems) => {
                let below = if about.node.get("messages").is_some() { "messages" } else { "" };
                self.problems(&about.node, below, problems);
                return None;
            }
        };
        let taking = Arc::new(Taking::of_words(&about.arguments));
        let (checking, library) = (Arc::clone(&taking), Arc::clone(library));
        let mut spec = PromptSpec::new(&about.name, move |words: Words, cx: Context| {
            let (filling, taking, library) =
                (Arc::clone(&filling), Arc::clone(&taking), Arc::clone(&library));
            async move {
                let arguments = taking.fill(taking.typed(words.into_pairs())?, &cx)?;
                filling.fill(&cx, &arguments, &*library).await
            }
        })
        .validate(move |words| checking.check(words));
        for argument in about.arguments.list.iter().filter(|argument| argument.from.is_none()) {
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
        for completion in &about.complete {
            let complete = self.completion(completion)?;
            spec = spec.complete(&completion.name, move |prefix, cx| complete(prefix, cx));
        }
        Some(spec)
    }
}

/// A file as lists show it.
pub(crate) fn file_resource(files: &Arc<Files>, listed: &Listed) -> ResourceSpec {
    let (files, path) = (Arc::clone(files), listed.path.clone());
    let spec = ResourceSpec::new(&listed.uri, move || Arc::clone(&files).read(path.clone()))
        .name(crate::source::files::shown(&listed.path))
        .size(listed.size);
    match &listed.mime {
        Some(mime) => spec.mime(mime),
        None => spec,
    }
}

/// Everything about a server but what it offers.
fn framed(builder: Builder, server: &config::Server, road: Road) -> Builder {
    let frame = &server.frame;
    let bytes = usize::try_from(frame.body).unwrap_or(usize::MAX);
    let mut builder = builder
        .page_size(frame.page_size)
        .handler_timeout(frame.timeout)
        .shutdown_timeout(frame.drain)
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
    if road == Road::Local {
        return builder;
    }
    if let Some(url) = &frame.public_url {
        builder = builder.public_url(url);
    }
    for host in &frame.hosts {
        builder = builder.allow_host(host);
    }
    if !frame.headers {
        builder = builder.security_headers(SecurityHeaders::none());
    }
    builder = builder
        .trust_proxies(frame.trusted_proxies.clone())
        .allow_ips(frame.ip_allow.clone())
        .cors(frame.cors.clone())
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
        builder = tools::user(builder, user, server);
    }
    for holder in frame.tokens.iter().chain(&frame.keys) {
        if let (Some(name), Some(rate)) = (&holder.subject, holder.quota) {
            builder = builder.rate_of(name, rate);
        }
    }
    let token = |credential: &config::Credential| tools::token(credential, server);
    if !frame.tokens.is_empty() {
        builder = builder.tokens(frame.tokens.iter().map(token).collect::<Vec<Token>>());
    }
    if !frame.keys.is_empty() {
        builder = builder.api_keys(ApiKeys::list(frame.keys.iter().map(token).collect::<Vec<Token>>()));
    }
    builder
}

/// Two requests, of which the second knows what the first answered.
fn chained(
    http: &config::Http,
    then: &config::HttpThen,
    output: &Output,
    schema: &Value,
    first: Result<HttpAct, Vec<Problem>>,
    connection: Arc<HttpConnection>,
) -> Result<Arc<dyn Act>, Vec<Problem>> {
    if schema["properties"].get(FIRST).is_some() {
        let said = format!("`{FIRST}` is what the first request answers: the argument needs another name");
        return Err(vec![Problem { at: "then".into(), said }]);
    }
    let mut known = schema.clone();
    known["properties"][FIRST] = serde_json::json!({});
    match known["required"].as_array_mut() {
        Some(required) => required.push(FIRST.into()),
        None => known["required"] = serde_json::json!([FIRST]),
    }
    let second = HttpAct::new(requests::following(http, then, output), connection, &known);
    let below = |problem: Problem| Problem { at: format!("then.{}", problem.at), ..problem };
    match (first, second) {
        (Ok(first), Ok(second)) => Ok(Arc::new(ChainAct { first, second })),
        (first, second) => {
            let second = second.err().unwrap_or_default().into_iter().map(below);
            Err(first.err().unwrap_or_default().into_iter().chain(second).collect())
        }
    }
}

/// A builder that has settled what was added last.
trait Plain {
    fn into_plain(self) -> Builder;
}

impl<L: toolgate::PendingItem> Plain for Builder<L> {
    fn into_plain(self) -> Builder {
        self.add(Vec::<toolgate::Item>::new())
    }
}
