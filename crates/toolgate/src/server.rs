//! A server: described by a [`Builder`], served by a [`Server`].
//!
//! This is the only file that knows every room.

#[cfg(feature = "http")]
mod guards;
mod running;

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[cfg(feature = "http")]
use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::{
    Annotations, CacheHint, CacheScope, Icon, Implementation, ServerCapabilities, TaskCapability, TaskSupport,
};
use toolgate_wire::{Dialect, Limits, RawJson, meta_key};

use crate::cluster_bus::ClusterBus;
#[cfg(feature = "macros")]
use crate::collect::{ModuleScope, linked_items, nothing_linked_message};
use crate::collect::{Register, SpecSet, group_items};
use crate::dispatch::{Dispatcher, ToolTaskExecutor};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
#[cfg(feature = "http")]
use crate::guard::Guards;
use crate::handler::{
    Context, Handler, HandlerEnv, HandlerRequirements, IntoContents, IntoOutput, IntoPrompt, Notifier,
};
use crate::observe::{ErrorContext, ErrorEvent, Events, Observer};
use crate::profile::Profile;
use crate::protocol::{ClusterSessions, Protocol, ProtocolDeps, ServerInfo, SessionLimits, Sessions};
use crate::registry::{
    ClientCapability, Features, Pager, PromptSpec, Registry, ResourceSpec, Roots, Snapshot, TemplateSpec,
    ToolSpec, cache_hint,
};
use crate::seal::Seal;
use crate::store::{MemoryStore, ScopedStore, Store};
use crate::subscriptions::{ChangeTopic, Subscriptions};
use crate::task::{TaskDeps, TaskLimits, Tasks};
#[cfg(feature = "http")]
use crate::transport::{
    http::{HttpOptions, ServerService},
    listen, run,
};
use crate::transport::{signal, stdio};
use crate::util::clock::Clock;
use crate::util::option_cell::OptionCell;
use crate::util::sharded::ShardedArc;
use crate::util::spawn;

/// A running server, or one that is about to: a cheap handle that can be cloned and shared.
///
/// ```
/// use toolgate::Server;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// # fn main() -> Result<(), toolgate::Error> {
/// let server = Server::new("calculator", "1.0.0")
///     .tool("add", |args: Add| async move { args.a + args.b })
///     .describe("Adds two numbers")
///     .read_only()
///     .build()?;
/// # let _ = server;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    engine: Arc<Engine>,
    shutdown_timeout: Duration,
    /// What was wrong with what it was given since it runs.
    config_errors: Mutex<Vec<String>>,
    #[cfg(feature = "http")]
    guards: Arc<ArcSwap<ShardedArc<Guards>>>,
    #[cfg(feature = "http")]
    service: ServerService,
    #[cfg(feature = "http")]
    listen_options: listen::Options,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("info", &self.0.engine.protocol.server_info.load().implementation)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Begins the description of a server with this name and version.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Builder {
        Builder { config: Box::new(Config::new(name.into(), version.into())), pending: () }
    }

    /// Serves one client on standard input and output, until its input ends or the process is asked to
    /// end. Whatever the program prints meanwhile goes to standard error.
    ///
    /// On Linux a pipe is read by the runtime, which needs its I/O driver for it (`enable_all`, as `#[tokio::main]` has it),
    /// and what `std::io::stdin()` has read before is not seen.
    ///
    /// # Errors
    /// If standard input or output cannot be had, or breaks.
    pub async fn serve_stdio(&self) -> Result<(), Error> {
        self.ensure_valid()?;
        let io = |error| Error::io("cannot serve standard input and output", error);
        let (input, output, flushed) = stdio::process_stdio().map_err(io)?;
        self.0.engine.start_background();
        let asked = signal::shutdown_signal();
        let stop = CancellationToken::new();
        // A task, so that whoever reads and whoever calls are on the same threads. It ends with this future.
        let connection =
            stdio::serve(Arc::clone(&self.0.engine), input, output, stop.clone(), self.0.shutdown_timeout);
        let mut serving = spawn::spawn_on(&Handle::current(), connection).abort_on_drop();
        let served = tokio::select! {
            biased;
            served = &mut serving => served,
            () = asked => {
                // Listeners are told the end before the line is hung up.
                self.shutdown();
                stop.cancel();
                serving.await
            }
        };
        let served = served.unwrap_or(Err(std::io::ErrorKind::BrokenPipe.into()));
        flushed.wait(self.0.shutdown_timeout).await;
        let tasks = &self.0.engine.dispatcher.tasks;
        // Where nobody could ask for them any more, they are not waited for.
        if tasks.is_durable() {
            self.shutdown();
            let _ =
                tokio::time::timeout(self.0.shutdown_timeout + Duration::from_secs(1), tasks.join()).await;
        }
        served.map_err(io)
    }

    /// Serves one client on any pair of byte streams, one message a line: a socket, a pipe, a test.
    ///
    /// # Errors
    /// If one of them breaks.
    pub async fn serve_io<R, W>(&self, input: R, output: W) -> Result<(), Error>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let stop = self.0.engine.protocol.drain.clone();
        let served =
            stdio::serve(Arc::clone(&self.0.engine), input, output, stop, self.0.shutdown_timeout).await;
        served.map_err(|error| Error::io("the connection broke", error))
    }

    /// Serves HTTP at `/mcp` of this address until the process is asked to end (SIGTERM, Ctrl-C); calls
    /// under way are finished.
    ///
    /// # Errors
    /// If the address cannot be had.
    #[cfg(feature = "http")]
    pub async fn listen(&self, address: impl tokio::net::ToSocketAddrs + fmt::Debug) -> Result<(), Error> {
        let place = format!("cannot listen on {address:?}");
        let listener =
            tokio::net::TcpListener::bind(address).await.map_err(|error| Error::io(place, error))?;
        self.serve(listener).await
    }

    /// Serves HTTP at `/mcp` of a listener that exists already, until the process is asked to end.
    ///
    /// # Errors
    /// If the listener breaks.
    #[cfg(feature = "http")]
    pub async fn serve(&self, listener: tokio::net::TcpListener) -> Result<(), Error> {
        self.ensure_valid()?;
        let endpoint = self.0.service.at_path("/mcp");
        let (options, over) = (self.0.listen_options.clone(), self.0.engine.protocol.drain.clone());
        let end = || self.shutdown();
        // What a client left behind is finished too.
        self.0.engine.start_background();
        let settle = self.drain();
        let served = run(listener, endpoint, options, over, self.0.shutdown_timeout, end, settle).await;
        served.map_err(|error| Error::io("cannot go on listening", error))
    }

    /// The server as a `tower` service, to be mounted in axum or any other router. The path it is mounted
    /// at serves all revisions; `sse` and `messages` below it serve the two-endpoint HTTP of the first.
    ///
    /// ```
    /// # fn main() -> Result<(), toolgate::Error> {
    /// # let server = toolgate::Server::new("demo", "1.0.0").build()?;
    /// let app: axum::Router = axum::Router::new().nest_service("/mcp", server.into_service());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "http")]
    #[must_use]
    pub fn into_service(self) -> ServerService {
        self.0.service.clone()
    }

    #[cfg(feature = "http")]
    pub(crate) fn service(&self) -> &ServerService {
        &self.0.service
    }

    /// Waits until calls whose clients left, and tasks, have ended.
    #[cfg(feature = "http")]
    pub(crate) async fn drain(&self) {
        self.0.service.drain().await;
        // Also where the listener broke and nobody asked for the end: tasks may have hours left otherwise.
        self.shutdown();
        self.0.engine.dispatcher.tasks.join().await;
    }

    /// Looks after tasks that other processes have left.
    pub(crate) fn start_background(&self) {
        self.0.engine.start_background();
    }

    /// A server that could not be described. It offers nothing and lets nobody in, and says why when somebody tries to
    /// serve it.
    pub(crate) fn from_build_error(name: &str, error: Error) -> Server {
        let server = assemble(Config::new(name.to_owned(), "1.0.0".to_owned()));
        #[cfg(feature = "http")]
        server.reject_all("description");
        server.record_error(Err(error))
    }

    /// Ends streams and stops taking connections; calls under way are finished.
    pub fn shutdown(&self) {
        self.0.engine.protocol.drain.cancel();
    }

    /// Tells clients that something has changed.
    #[must_use]
    pub fn notify(&self) -> Notifier {
        self.0.engine.protocol.start_cluster();
        Notifier(Arc::clone(&self.0.engine.protocol.subscriptions))
    }

    /// Adds a tool, or replaces the one of that name, and tells connected clients.
    ///
    /// # Errors
    /// If the description cannot work; what is served stays as it was.
    pub fn add_tool(&self, tool: ToolSpec) -> Result<(), Error> {
        let name = tool.name().to_owned();
        let fault = |fault| build_error(&[format!("tool `{name}`: {fault}")]);
        self.check_requirements(&tool.requirements).map_err(fault)?;
        let entry = tool.build_entry().map_err(fault)?;
        let mut clash = None;
        self.registry().update(&ChangeTopic::Tools, |catalog| {
            clash = catalog.tools.find_conflict(&entry);
            clash.is_none() && catalog.tools.insert(entry)
        });
        clash.map_or(Ok(()), |clash| Err(fault(clash)))
    }

    /// Takes a tool away, with its aliases, and tells connected clients; false if there was none of that name.
    #[must_use]
    pub fn remove_tool(&self, name: &str) -> bool {
        self.registry().update(&ChangeTopic::Tools, |catalog| catalog.tools.remove(name))
    }

    /// Adds a resource, or replaces the one of that URI, and tells connected clients.
    ///
    /// # Errors
    /// If the description cannot work; what is served stays as it was.
    pub fn add_resource(&self, resource: ResourceSpec) -> Result<(), Error> {
        let uri = resource.uri().to_owned();
        let fault = |fault| build_error(&[format!("resource `{uri}`: {fault}")]);
        self.check_requirements(&resource.requirements).map_err(fault)?;
        let entry = resource.build_entry().map_err(fault)?;
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.resources.insert(entry));
        Ok(())
    }

    /// Takes a resource away and tells connected clients; false if there was none of that URI.
    #[must_use]
    pub fn remove_resource(&self, uri: &str) -> bool {
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.resources.remove(uri))
    }

    /// Adds a template, or replaces the one of that text, and tells connected clients.
    ///
    /// # Errors
    /// If the description cannot work; what is served stays as it was.
    pub fn add_template(&self, template: TemplateSpec) -> Result<(), Error> {
        let text = template.uri_template().to_owned();
        let fault = |fault| build_error(&[format!("template `{text}`: {fault}")]);
        self.check_requirements(&template.requirements).map_err(fault)?;
        let entry = template.build_entry().map_err(fault)?;
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.templates.insert(entry));
        Ok(())
    }

    /// Takes a template away and tells connected clients; false if there was none of that text.
    #[must_use]
    pub fn remove_template(&self, uri_template: &str) -> bool {
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.templates.remove(uri_template))
    }

    /// Adds a prompt, or replaces the one of that name, and tells connected clients.
    ///
    /// # Errors
    /// If the description cannot work; what is served stays as it was.
    pub fn add_prompt(&self, prompt: PromptSpec) -> Result<(), Error> {
        let name = prompt.name().to_owned();
        let fault = |fault| build_error(&[format!("prompt `{name}`: {fault}")]);
        self.check_requirements(&prompt.requirements).map_err(fault)?;
        let entry = prompt.build_entry().map_err(fault)?;
        self.registry().update(&ChangeTopic::Prompts, |catalog| catalog.prompts.insert(entry));
        Ok(())
    }

    /// Takes a prompt away and tells connected clients; false if there was none of that name.
    #[must_use]
    pub fn remove_prompt(&self, name: &str) -> bool {
        self.registry().update(&ChangeTopic::Prompts, |catalog| catalog.prompts.remove(name))
    }

    fn check_requirements(&self, demands: &HandlerRequirements) -> Result<(), String> {
        let states = &self.0.engine.dispatcher.env.states;
        demands.find_missing(|state| states.contains_key(state)).map_or(Ok(()), Err)
    }

    fn registry(&self) -> &Registry {
        self.0.engine.protocol.start_cluster();
        &self.0.engine.dispatcher.registry
    }
}

/// The description of a server.
///
/// Every setter takes and gives it by value and cannot fail; whatever is wrong with the description is
/// told at once when it is built. After `tool`, `resource`, `template` and `prompt` the methods of that
/// thing ([`ToolSpec`] and its like) can be called right away:
///
/// ```
/// # use toolgate::Server;
/// let server = Server::new("demo", "1.0.0")
///     .tool("hello", || async { "Hello!" }).describe("Says hello").read_only()
///     .resource("demo://readme", || async { "Read me" }).mime("text/plain");
/// ```
#[must_use = "a description serves nobody until it is built"]
pub struct Builder<P = ()> {
    config: Box<Config>,
    /// What was added last and may be described further.
    pending: P,
}

struct Config {
    info: Implementation,
    instructions: Option<String>,
    catalog: Snapshot,
    /// What is offered although nothing of it is there yet.
    announced_features: Features,
    states: HashMap<TypeId, Arc<dyn std::any::Any + Send + Sync>>,
    message_limits: Limits,
    page_size: usize,
    cache: CacheHint,
    timeout: Duration,
    shutdown_timeout: Duration,
    session_limits: SessionLimits,
    task_limits: TaskLimits,
    seal: Option<Seal>,
    /// None: the memory of this process.
    store: Option<Arc<dyn Store>>,
    events: Option<Events>,
    is_stats_enabled: bool,
    is_strict: bool,
    dialect: Option<Dialect>,
    default_profile: Option<Profile>,
    roots: Option<Roots>,
    #[cfg(feature = "http")]
    guards: Guards,
    #[cfg(feature = "http")]
    http_options: HttpOptions,
    #[cfg(feature = "http")]
    listen_options: listen::Options,
    /// What the handlers of these need.
    requirements: Vec<(String, HandlerRequirements)>,
    /// Everything that is wrong.
    errors: Vec<String>,
}

impl Config {
    fn new(name: String, version: String) -> Config {
        Config {
            info: Implementation { name, version, ..Implementation::default() },
            instructions: None,
            catalog: Snapshot::default(),
            announced_features: Features::default(),
            states: HashMap::new(),
            message_limits: Limits::default(),
            page_size: 1000,
            cache: CacheHint::default(),
            timeout: Duration::from_secs(60),
            shutdown_timeout: Duration::from_secs(30),
            session_limits: SessionLimits::default(),
            task_limits: TaskLimits::default(),
            seal: None,
            store: None,
            events: None,
            is_stats_enabled: true,
            is_strict: false,
            dialect: None,
            default_profile: None,
            roots: None,
            #[cfg(feature = "http")]
            guards: Guards::default(),
            #[cfg(feature = "http")]
            http_options: HttpOptions::default(),
            #[cfg(feature = "http")]
            listen_options: listen::Options::default(),
            requirements: Vec::new(),
            errors: Vec::new(),
        }
    }

    fn record(&mut self, checked: Result<(), String>) {
        self.errors.extend(checked.err());
    }
}

/// What was added to a [`Builder`] last. Functions that take and give a builder name it:
///
/// ```
/// use toolgate::{Builder, Last, Server};
///
/// fn add_notes<L: Last>(server: Builder<L>) -> Builder<impl Last> {
///     server.tool("note", || async { "noted" }).describe("Takes a note")
/// }
///
/// let server = add_notes(Server::new("demo", "1.0.0")).instructions("Be brief.").build();
/// # assert!(server.is_ok());
/// ```
pub trait PendingItem: Sized {
    #[doc(hidden)]
    fn commit(self, catalog: &mut CommitTarget<'_>);
}

/// Where what was added last ends up.
#[doc(hidden)]
pub struct CommitTarget<'a>(&'a mut Config);

impl PendingItem for () {
    fn commit(self, _: &mut CommitTarget<'_>) {}
}

macro_rules! impl_pending_item {
    ($($spec:ident $key:ident $shelf:ident $what:literal)*) => {$(
        impl PendingItem for $spec {
            fn commit(self, CommitTarget(parts): &mut CommitTarget<'_>) {
                let key = self.$key().to_owned();
                if parts.catalog.$shelf.get(&key).is_some() {
                    parts.errors.push(format!(concat!($what, " `{}`: there are two of them"), key));
                    return;
                }
                // States may be given later; whether they were is seen when all is there.
                parts.requirements.push((format!(concat!($what, " `{}`"), key), self.requirements.clone()));
                match self.build_entry() {
                    Ok(entry) => match parts.catalog.$shelf.find_conflict(&entry) {
                        None => {
                            parts.catalog.$shelf.insert(entry);
                        }
                        Some(fault) => parts.errors.push(format!(concat!($what, " `{}`: {}"), key, fault)),
                    },
                    Err(fault) => parts.errors.push(format!(concat!($what, " `{}`: {}"), key, fault)),
                }
            }
        }
    )*};
}
impl_pending_item! {
    ToolSpec name tools "tool"
    ResourceSpec uri resources "resource"
    TemplateSpec uri_template templates "template"
    PromptSpec name prompts "prompt"
}

impl<L> fmt::Debug for Builder<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("info", &self.config.info).finish_non_exhaustive()
    }
}

impl<L: PendingItem> Builder<L> {
    fn replace_pending<N>(self, last: N) -> Builder<N> {
        let Builder { config: mut parts, pending: before } = self;
        before.commit(&mut CommitTarget(&mut parts));
        Builder { config: parts, pending: last }
    }

    fn configure(mut self, set: impl FnOnce(&mut Config)) -> Builder<L> {
        set(&mut self.config);
        self
    }

    /// A tool with this name, whose schemas come from the handler's types.
    pub fn tool<A: 'static, H>(self, name: impl Into<String>, handler: H) -> Builder<ToolSpec>
    where
        H: Handler<A>,
        H::Output: IntoOutput,
    {
        self.replace_pending(ToolSpec::new(name, handler))
    }

    /// A tool that was described elsewhere.
    pub fn add_tool(self, tool: ToolSpec) -> Builder<ToolSpec> {
        self.replace_pending(tool)
    }

    /// A resource at this URI.
    pub fn resource<A: 'static, H>(self, uri: impl Into<String>, handler: H) -> Builder<ResourceSpec>
    where
        H: Handler<A>,
        H::Output: IntoContents,
    {
        self.replace_pending(ResourceSpec::new(uri, handler))
    }

    /// A resource that was described elsewhere.
    pub fn add_resource(self, resource: ResourceSpec) -> Builder<ResourceSpec> {
        self.replace_pending(resource)
    }

    /// All resources whose URIs an RFC 6570 template gives. Its variables are the handler's arguments.
    pub fn template<A: 'static, H>(self, uri_template: impl Into<String>, handler: H) -> Builder<TemplateSpec>
    where
        H: Handler<A>,
        H::Output: IntoContents,
    {
        self.replace_pending(TemplateSpec::new(uri_template, handler))
    }

    /// A prompt with this name, whose arguments are the fields of the handler's argument type.
    pub fn prompt<A: 'static, H>(self, name: impl Into<String>, handler: H) -> Builder<PromptSpec>
    where
        H: Handler<A>,
        H::Output: IntoPrompt,
    {
        self.replace_pending(PromptSpec::new(name, handler))
    }

    /// A template that was described elsewhere.
    pub fn add_template(self, template: TemplateSpec) -> Builder<TemplateSpec> {
        self.replace_pending(template)
    }

    /// A prompt that was described elsewhere.
    pub fn add_prompt(self, prompt: PromptSpec) -> Builder<PromptSpec> {
        self.replace_pending(prompt)
    }

    /// Something that handlers share: they get it as `State<T>`. One value of each type.
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Builder<L> {
        self.configure(|parts| {
            parts.states.insert(TypeId::of::<T>(), Arc::new(state));
        })
    }

    /// Offers tools, resources and prompts from the start, even if there are none yet: clients that connect
    /// before the first one is added then know to look again.
    pub fn announce_changes(self) -> Builder<L> {
        self.configure(|parts| {
            parts.announced_features =
                Features { tools: true, resources: true, prompts: true, ..Features::default() };
        })
    }

    /// How to use the server, for a model.
    pub fn instructions(self, instructions: impl Into<String>) -> Builder<L> {
        self.configure(|parts| parts.instructions = Some(instructions.into()))
    }

    /// The server's name for people.
    pub fn server_title(self, title: impl Into<String>) -> Builder<L> {
        self.configure(|parts| parts.info.title = Some(title.into()))
    }

    /// What the server is.
    pub fn server_description(self, description: impl Into<String>) -> Builder<L> {
        self.configure(|parts| parts.info.description = Some(description.into()))
    }

    /// Where to read more about the server.
    pub fn website(self, url: impl Into<String>) -> Builder<L> {
        self.configure(|parts| parts.info.website = Some(url.into()))
    }

    /// A picture of the server.
    pub fn server_icon(self, icon: Icon) -> Builder<L> {
        self.configure(|parts| parts.info.icons.push(icon))
    }

    /// How many things one page of a list shows at most. 1000 unless said otherwise.
    pub fn page_size(self, size: usize) -> Builder<L> {
        self.configure(|parts| parts.page_size = size.max(1))
    }

    /// How long lists stay true, and for whom. Not at all, and for the caller only, unless said otherwise.
    pub fn cache_lists(self, ttl: Duration, scope: CacheScope) -> Builder<L> {
        self.configure(|parts| parts.cache = cache_hint(ttl, scope))
    }

    /// How long a handler may run, unless its tool says otherwise. A minute unless said otherwise.
    pub fn handler_timeout(self, timeout: Duration) -> Builder<L> {
        self.configure(|parts| parts.timeout = timeout)
    }

    /// How long calls under way may go on when the server ends. Half a minute unless said otherwise.
    pub fn shutdown_timeout(self, drain: Duration) -> Builder<L> {
        self.configure(|parts| parts.shutdown_timeout = drain)
    }

    /// How long a message may be. 4 MiB unless said otherwise.
    pub fn message_limit(self, bytes: usize) -> Builder<L> {
        self.configure(|parts| parts.message_limits.max_bytes = bytes)
    }

    /// How long a session that says nothing is remembered. Half an hour unless said otherwise.
    pub fn session_idle_timeout(self, idle: Duration) -> Builder<L> {
        self.configure(|parts| parts.session_limits.idle_timeout = idle)
    }

    /// How many sessions may be open at once. 10 000 unless said otherwise.
    pub fn max_sessions(self, sessions: usize) -> Builder<L> {
        self.configure(|parts| parts.session_limits.max_sessions = sessions)
    }

    /// How long a task is kept from its beginning, its result included, unless the client says otherwise. An hour
    /// unless said otherwise here, a year at most; clients can have between a minute and a day.
    pub fn default_task_ttl(self, ttl: Duration) -> Builder<L> {
        self.configure(|parts| parts.task_limits.ttl = ttl.min(TaskLimits::MAX_TTL))
    }

    /// How often clients should look how their tasks stand. Each second unless said otherwise.
    pub fn task_poll_interval(self, every: Duration) -> Builder<L> {
        self.configure(|parts| parts.task_limits.poll_interval = every)
    }

    /// How many tasks of one principal may be under way at once. 100 unless said otherwise. Without authentication each
    /// session counts for itself, and all clients that have none count together.
    pub fn max_tasks(self, tasks: usize) -> Builder<L> {
        self.configure(|parts| parts.task_limits.max_per_owner = tasks)
    }

    /// How many tasks may run in this process at once. 1000 unless said otherwise.
    pub fn max_running_tasks(self, tasks: usize) -> Builder<L> {
        self.configure(|parts| parts.task_limits.max_running = tasks)
    }

    /// How large the result of a task may be: it is kept. 8 MiB unless said otherwise; a task with more has failed.
    pub fn task_result_limit(self, bytes: usize) -> Builder<L> {
        self.configure(|parts| parts.task_limits.max_result_bytes = bytes)
    }

    /// How many tasks of one principal are kept that have ended in this process. 1000 unless said otherwise, and 64 MiB
    /// of them; for one more, the oldest is forgotten before its time. Who is a principal here is as for
    /// [`Builder::max_tasks`].
    pub fn max_retained_tasks(self, tasks: usize) -> Builder<L> {
        self.configure(|parts| parts.task_limits.max_finished = tasks)
    }

    /// Secrets that seal what clients carry between calls: the first seals, all open. Give the same ones to
    /// every process that serves the same clients; without any, each process makes up its own.
    pub fn state_keys(self, secrets: impl IntoIterator<Item = [u8; 32]>) -> Builder<L> {
        self.configure(|parts| {
            let seal = Seal::from_secrets(secrets);
            if seal.is_empty() {
                parts.errors.push("state_keys: at least one secret is needed".into());
            }
            parts.seal = Some(seal);
        })
    }

    /// Where everything is kept that must outlive a call: tasks, and where the store reaches other processes, sessions
    /// and the streams that are resumed. The memory of this process unless said otherwise. Give the same store to every
    /// process that serves the same clients.
    pub fn store(self, store: impl Store) -> Builder<L> {
        self.configure(|parts| parts.store = Some(Arc::new(store)))
    }

    /// A call that says nothing for so long is answered by a stream that can be kept alive and, where the
    /// client can, resumed. Five seconds unless said otherwise.
    #[cfg(feature = "http")]
    pub fn stream_after(self, patience: Duration) -> Builder<L> {
        self.configure(|parts| parts.http_options.stream_after = patience)
    }

    /// Whether the two-endpoint HTTP of the first revision (`sse` and `messages`) is served. It is unless said otherwise.
    #[cfg(feature = "http")]
    pub fn legacy_sse(self, is_on: bool) -> Builder<L> {
        self.configure(|parts| parts.http_options.has_legacy_sse = is_on)
    }

    /// How often a silent stream says that it is still there. 15 seconds unless said otherwise.
    #[cfg(feature = "http")]
    pub fn sse_keep_alive(self, every: Duration) -> Builder<L> {
        self.configure(|parts| parts.http_options.sse_keep_alive = every)
    }

    /// Limits of our own listener.
    #[cfg(feature = "http")]
    pub fn listener(self, options: listen::Options) -> Builder<L> {
        self.configure(|parts| parts.listen_options = options)
    }

    /// Tells everything that happens here to these listeners too. Several servers can share them.
    pub fn events(self, events: &Events) -> Builder<L> {
        self.configure(|parts| parts.events = Some(events.clone()))
    }

    /// Whether requests are counted, from the start. They are unless said otherwise.
    pub fn statistics(self, is_on: bool) -> Builder<L> {
        self.configure(|parts| parts.is_stats_enabled = is_on)
    }

    /// How to speak to clients that name no protocol revision; see [`Server::with_dialect`].
    pub fn dialect(self, dialect: Dialect) -> Builder<L> {
        self.configure(|parts| parts.dialect = Some(dialect))
    }

    /// Shows nobody more than this; see [`Server::with_profile`].
    pub fn visible(self, profile: Profile) -> Builder<L> {
        self.configure(|parts| parts.default_profile = Some(profile))
    }

    /// Refuses arguments of the wrong type even where it is plain what was meant. Otherwise `"5"` is taken for a
    /// number where a number is wanted, `"true"` for a boolean, and JSON in a text for a list or an object: models
    /// mix these up. What fits is never touched.
    pub fn strict_arguments(self) -> Builder<L> {
        self.configure(|parts| parts.is_strict = true)
    }

    /// Clients that name no protocol revision have to send `initialize` before anything but `ping`, once, with a
    /// revision that is served and a name of their own. Otherwise they are told -32005 (or -32022 for a revision; dialects
    /// may have other numbers), and no other revision is offered to them instead. Clients that say who they are in each
    /// request need no greeting.
    pub fn require_initialize(self) -> Builder<L> {
        self.configure(|parts| parts.session_limits.requires_initialize = true)
    }

    /// Confines the reading of `file:` resources to these directories; see [`Server::with_workspace_roots`].
    pub fn workspace_roots(self, roots: Roots) -> Builder<L> {
        self.configure(|parts| {
            parts.record(roots.validate());
            parts.roots = Some(roots);
        })
    }

    /// Remembers no client between requests: `initialize` opens no session, and each request of a handshake
    /// revision is served for itself. Such clients hear of no changes and cannot be asked.
    pub fn stateless(self) -> Builder<L> {
        self.configure(|parts| parts.session_limits.is_disabled = true)
    }

    /// The server, ready to serve.
    ///
    /// # Errors
    /// If the description cannot work. The error lists everything that is wrong with it.
    pub fn build(self) -> Result<Server, Error> {
        let Builder { config: mut parts, .. } = self.replace_pending(());
        for (what, demands) in std::mem::take(&mut parts.requirements) {
            let unmet = demands.find_missing(|state| parts.states.contains_key(state));
            parts.errors.extend(unmet.map(|fault| format!("{what}: {fault}")));
        }
        #[cfg(feature = "http")]
        {
            let checked = parts.guards.check();
            parts.record(checked);
        }
        if !parts.errors.is_empty() {
            return Err(build_error(&parts.errors));
        }
        Ok(assemble(*parts))
    }

    /// Builds the server and serves standard input and output; see [`Server::serve_stdio`].
    ///
    /// # Errors
    /// If the description cannot work, or as [`Server::serve_stdio`].
    pub async fn serve_stdio(self) -> Result<(), Error> {
        self.build()?.serve_stdio().await
    }

    /// Builds the server and serves HTTP; see [`Server::listen`].
    ///
    /// # Errors
    /// If the description cannot work, or as [`Server::listen`].
    #[cfg(feature = "http")]
    pub async fn listen(self, address: impl tokio::net::ToSocketAddrs + fmt::Debug) -> Result<(), Error> {
        self.build()?.listen(address).await
    }
}

/// Methods of what was added last, on the builder.
macro_rules! delegate_to_spec {
    ($spec:ident: $($(#[$doc:meta])* $method:ident($($argument:ident: $type:ty),*);)*) => {
        impl Builder<$spec> {
            $($(#[$doc])*
            pub fn $method(self, $($argument: $type),*) -> Builder<$spec> {
                Builder { config: self.config, pending: self.pending.$method($($argument),*) }
            })*
        }
    };
}

delegate_to_spec! { ToolSpec:
    /// What the tool does, for a model.
    describe(description: impl Into<String>);
    /// What one of its arguments is, for a model.
    describe_arg(argument: impl Into<String>, description: impl Into<String>);
    /// The tool's name for people.
    title(title: impl Into<String>);
    /// The tool changes nothing.
    read_only();
    /// The tool may destroy something.
    destructive();
    /// Calling the tool twice is the same as once.
    idempotent();
    /// The tool touches nothing beyond this server.
    closed_world();
    /// Another name under which the tool can be called, which lists do not show.
    alias(name: impl Into<String>);
    /// A picture of the tool.
    icon(icon: Icon);
    /// The tool's `_meta`, a JSON object.
    meta(meta: serde_json::Value);
    /// The JSON Schema of the tool's arguments, instead of one made from the handler's type.
    input_schema(schema: serde_json::Value);
    /// The JSON Schema of the tool's structured output, instead of one made from the handler's type.
    output_schema(schema: serde_json::Value);
    /// The tool's own version, for those who look after the server. 1.0.0 unless said otherwise.
    version(version: impl Into<String>);
    /// How long a call of the tool may take.
    timeout(timeout: Duration);
    /// Refuses clients that cannot do this.
    requires(need: ClientCapability);
    /// Whether calls of the tool run as tasks.
    task(support: TaskSupport);
    /// Calls of the tool run as tasks where the client can do that.
    task_optional();
    /// Calls of the tool run as tasks only.
    task_required();
    /// A call of the tool becomes a task where its handler says so.
    task_deferrable();
    /// A task of the tool whose process ended is run again by another one.
    resumable();
    /// How long a task of the tool is kept, unless the client says otherwise.
    task_ttl(ttl: Duration);
}

delegate_to_spec! { ResourceSpec:
    /// The resource's name.
    name(name: impl Into<String>);
    /// The resource's name for people.
    title(title: impl Into<String>);
    /// What the resource is, for a model.
    describe(description: impl Into<String>);
    /// The resource's media type.
    mime(mime: impl Into<String>);
    /// How many bytes the resource has.
    size(bytes: u64);
    /// How long its contents stay true, and for whom.
    cache(ttl: Duration, scope: CacheScope);
    /// For whom the resource is meant, and how important it is.
    annotate(annotations: Annotations);
    /// A picture of the resource.
    icon(icon: Icon);
    /// The resource's `_meta`, a JSON object.
    meta(meta: serde_json::Value);
}

delegate_to_spec! { TemplateSpec:
    /// The template's name.
    name(name: impl Into<String>);
    /// The template's name for people.
    title(title: impl Into<String>);
    /// What its resources are, for a model.
    describe(description: impl Into<String>);
    /// The media type of its resources.
    mime(mime: impl Into<String>);
    /// How long their contents stay true, and for whom.
    cache(ttl: Duration, scope: CacheScope);
    /// For whom its resources are meant, and how important they are.
    annotate(annotations: Annotations);
    /// A picture of its resources.
    icon(icon: Icon);
    /// The template's `_meta`, a JSON object.
    meta(meta: serde_json::Value);
}

delegate_to_spec! { PromptSpec:
    /// What the prompt is for.
    describe(description: impl Into<String>);
    /// The prompt's name for people.
    title(title: impl Into<String>);
    /// A picture of the prompt.
    icon(icon: Icon);
    /// The prompt's `_meta`, a JSON object.
    meta(meta: serde_json::Value);
}

macro_rules! delegate_complete {
    ($($spec:ident)*) => {$(
        impl Builder<$spec> {
            /// How a value of this name could go on, given what is there so far.
            pub fn complete<F, Fut, I>(self, name: impl Into<String>, complete: F) -> Builder<$spec>
            where
                F: Fn(String, Context) -> Fut + Send + Sync + 'static,
                Fut: Future<Output = I> + Send + 'static,
                I: IntoIterator,
                I::Item: Into<String>,
            {
                Builder { config: self.config, pending: self.pending.complete(name, complete) }
            }
        }
    )*};
}
delegate_complete! { ResourceSpec TemplateSpec PromptSpec }

fn build_error(faults: &[String]) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("the server cannot be built:\n  {}", faults.join("\n  ")))
}

fn assemble(parts: Config) -> Server {
    let hub = Arc::new(Subscriptions::default());
    let has_keys = parts.seal.is_some();
    let seal = parts.seal.unwrap_or_else(Seal::random);
    let registry = Arc::new(Registry::new(parts.catalog, parts.announced_features, Arc::clone(&hub)));
    let name: Arc<str> = parts.info.name.as_str().into();
    let store = parts.store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
    let cellar = ScopedStore::new(store, &name);
    let face = ServerInfo::new(parts.info, parts.instructions, parts.cache);
    let offering = Box::new({
        let registry = Arc::clone(&registry);
        move || capabilities(registry.features())
    });
    let sessions = Arc::new(Sessions::new(parts.session_limits));
    let clock = Clock::system();
    let drain = CancellationToken::new();
    let events = Events::for_server(parts.events.as_ref());
    let watch = Observer::new(name, clock.clone(), events);
    let shown = Arc::new(OptionCell::new(parts.default_profile));
    let shared = Arc::new(HandlerEnv {
        states: parts.states,
        subscriptions: Arc::clone(&hub),
        store: Some(cellar.clone()),
    });
    let hands = ToolTaskExecutor {
        registry: Arc::clone(&registry),
        env: Arc::clone(&shared),
        is_strict: parts.is_strict,
    };
    let tasks = Arc::new(Tasks::new(TaskDeps {
        store: cellar.clone(),
        executor: Arc::new(hands),
        subscriptions: Arc::clone(&hub),
        clock: clock.clone(),
        seal: seal.clone(),
        limits: parts.task_limits,
        drain: drain.clone(),
        // A moment less than the house waits, so that how they ended can be written down.
        shutdown_timeout: parts.shutdown_timeout.saturating_sub(Duration::from_millis(500)),
    }));
    let nodes = cellar.is_shared().then(|| {
        let (sessions, hub, drain) = (Arc::clone(&sessions), Arc::clone(&hub), drain.clone());
        // Keys that were given are the same everywhere, or are meant not to be.
        let seal = (!has_keys).then(|| seal.clone());
        let bus = ClusterBus::new(cellar.clone());
        ClusterSessions::new(bus, sessions, hub, seal, clock.clone(), drain, Arc::clone(&tasks))
    });
    let era = Protocol::new(ProtocolDeps {
        server_info: face,
        capabilities: offering,
        sessions,
        cluster: nodes,
        seal: seal.clone(),
        clock,
        subscriptions: hub,
        default_profile: Arc::clone(&shown),
        drain,
        tasks: Arc::clone(&tasks),
    });
    let hall = Dispatcher {
        registry,
        env: ShardedArc::new(shared),
        tasks,
        pager: Pager { size: parts.page_size, cache: parts.cache, seal },
        timeout: parts.timeout,
        is_strict: parts.is_strict,
        default_profile: shown,
        roots: Mutex::new(parts.roots.map(Arc::new)),
    };
    if !parts.is_stats_enabled {
        watch.stats.disable();
    }
    let entry = Arc::new(Engine {
        protocol: era,
        dispatcher: hall,
        scoped_store: cellar,
        limits: parts.message_limits,
        dialect: OptionCell::new(parts.dialect),
        observer: watch,
        is_started: AtomicBool::new(false),
    });
    #[cfg(feature = "http")]
    let guards = Arc::new(ArcSwap::from_pointee(ShardedArc::new(parts.guards)));
    Server(Arc::new(Inner {
        #[cfg(feature = "http")]
        service: ServerService::new(Arc::clone(&entry), Arc::clone(&guards), parts.http_options),
        #[cfg(feature = "http")]
        guards,
        engine: entry,
        shutdown_timeout: parts.shutdown_timeout,
        config_errors: Mutex::default(),
        #[cfg(feature = "http")]
        listen_options: parts.listen_options.shutdown_timeout(parts.shutdown_timeout),
    }))
}

/// Derived, never declared: what is offered is what is there.
fn capabilities(offer: Features) -> ServerCapabilities {
    let mut extensions = BTreeMap::new();
    if offer.tasks {
        extensions.insert(meta_key::TASKS_EXTENSION.to_owned(), RawJson::empty_object());
    }
    ServerCapabilities {
        tools: offer.tools.then_some(true),
        prompts: offer.prompts.then_some(true),
        resources: offer.resources.then_some(true),
        resource_updates: offer.resources,
        completions: offer.completions,
        logging: true,
        tasks: offer.tasks.then_some(TaskCapability {
            list: true,
            cancel: true,
            tools: true,
            ..TaskCapability::default()
        }),
        extensions,
        ..ServerCapabilities::default()
    }
}

/// What marked functions and impl blocks offer.
impl<L: PendingItem> Builder<L> {
    /// Everything that this offers: an item, a list of them made with [`items!`](crate::items), or a value
    /// whose impl block is marked with `#[server]`. Its instructions, if it has any, are put behind those
    /// that are there already.
    #[allow(clippy::should_implement_trait, reason = "nobody writes `server + tools`")]
    pub fn add(self, offers: impl Register) -> Builder {
        self.replace_pending(()).add_specs(group_items(offers.into_items()))
    }

    /// Everything with `#[tool]`, `#[resource]`, `#[template]`, `#[prompt]` or `#[complete]` that is linked
    /// into the program, in the order of modules and lines. Methods are not among it: they belong to a
    /// value, which [`Builder::add`] takes.
    ///
    /// A linker leaves out a crate that nothing refers to. `use my_tools as _;` refers to it.
    #[cfg(feature = "macros")]
    pub fn collect(self) -> Builder {
        self.collect_scope(ModuleScope::All, "this program")
    }

    /// Everything so marked in a module and those inside it: `my_crate`, `my_crate::tools`.
    #[cfg(feature = "macros")]
    pub fn collect_from(self, module: &str) -> Builder {
        self.collect_scope(ModuleScope::Subtree(module), module)
    }

    /// Everything so marked in a module, but not in those inside it.
    #[cfg(feature = "macros")]
    pub fn collect_module(self, module: &str) -> Builder {
        self.collect_scope(ModuleScope::Module(module), module)
    }

    #[cfg(feature = "macros")]
    fn collect_scope(self, scope: ModuleScope<'_>, place: &str) -> Builder {
        let builder = self.replace_pending(());
        match linked_items(scope) {
            Some(offered) => builder.add_specs(group_items(offered)),
            None => builder.configure(|parts| parts.errors.push(nothing_linked_message(place))),
        }
    }
}

impl Builder {
    fn add_specs(self, sorted: SpecSet) -> Builder {
        self.configure(|parts| {
            let mut settling = CommitTarget(parts);
            sorted.tools.into_iter().for_each(|spec| spec.commit(&mut settling));
            sorted.resources.into_iter().for_each(|spec| spec.commit(&mut settling));
            sorted.templates.into_iter().for_each(|spec| spec.commit(&mut settling));
            sorted.prompts.into_iter().for_each(|spec| spec.commit(&mut settling));
            parts.errors.extend(sorted.errors);
            if let Some(more) = sorted.instructions {
                parts.instructions = Some(match parts.instructions.take() {
                    Some(instructions) => format!("{instructions}\n\n{more}"),
                    None => more,
                });
            }
        })
    }
}

/// What marked functions and impl blocks offer, while the server runs.
impl Server {
    /// Adds everything that this offers, or replaces what has the same names, and tells connected clients.
    /// Instructions are told when a client connects and stay as they are.
    ///
    /// # Errors
    /// If anything about it cannot work; what is served then stays as it was.
    pub fn add(&self, offers: impl Register) -> Result<Server, Error> {
        self.publish_collect_error(self.insert_all(group_items(offers.into_items())))?;
        Ok(self.clone())
    }

    /// Adds everything with `#[tool]` and its like in a module and those inside it; gives the names and URIs.
    ///
    /// # Errors
    /// If there is nothing, or anything about it cannot work; what is served then stays as it was.
    #[cfg(feature = "macros")]
    pub fn collect_from(&self, module: &str) -> Result<Vec<String>, Error> {
        self.collect_scope(ModuleScope::Subtree(module), module)
    }

    /// Adds everything with `#[tool]` and its like in a module, but not in those inside it; gives the names
    /// and URIs.
    ///
    /// # Errors
    /// If there is nothing, or anything about it cannot work; what is served then stays as it was.
    #[cfg(feature = "macros")]
    pub fn collect_module(&self, module: &str) -> Result<Vec<String>, Error> {
        self.collect_scope(ModuleScope::Module(module), module)
    }

    #[cfg(feature = "macros")]
    fn collect_scope(&self, scope: ModuleScope<'_>, module: &str) -> Result<Vec<String>, Error> {
        self.publish_collect_error(match linked_items(scope) {
            Some(offered) => self.insert_all(group_items(offered)),
            None => Err(Error::new(ErrorKind::Scan, nothing_linked_message(module))),
        })
    }

    /// Tells who listens what could not be taken in.
    fn publish_collect_error(&self, taken: Result<Vec<String>, Error>) -> Result<Vec<String>, Error> {
        let watch = &self.0.engine.observer;
        taken.inspect_err(|error| {
            watch.events.publish(ErrorEvent::new(&watch.server, ErrorContext::ScanClass, error.to_string()));
        })
    }

    /// All or nothing.
    fn insert_all(&self, sorted: SpecSet) -> Result<Vec<String>, Error> {
        let mut faults = sorted.errors;
        let mut names = Vec::new();
        macro_rules! build_entries {
            ($specs:ident $key:ident $what:literal) => {{
                let mut entries = Vec::new();
                for spec in sorted.$specs {
                    let name = spec.$key().to_owned();
                    match self.check_requirements(&spec.requirements).and_then(|()| spec.build_entry()) {
                        Ok(entry) => entries.push(entry),
                        Err(fault) => faults.push(format!(concat!($what, " `{}`: {}"), name, fault)),
                    }
                    names.push(name);
                }
                entries
            }};
        }
        let tools = build_entries!(tools name "tool");
        let resources = build_entries!(resources uri "resource");
        let templates = build_entries!(templates uri_template "template");
        let prompts = build_entries!(prompts name "prompt");
        if !faults.is_empty() {
            return Err(build_error(&faults));
        }
        let registry = self.registry();
        registry.update(&ChangeTopic::Tools, |catalog| {
            let mut changed = false;
            for entry in tools {
                match catalog.tools.find_conflict(&entry) {
                    None => changed = catalog.tools.insert(entry),
                    Some(fault) => faults.push(format!("tool `{}`: {fault}", entry.tool.name)),
                }
            }
            changed && faults.is_empty()
        });
        if !faults.is_empty() {
            return Err(build_error(&faults));
        }
        registry.update(&ChangeTopic::Resources, |catalog| {
            let changed = resources.into_iter().fold(false, |_, entry| catalog.resources.insert(entry));
            templates.into_iter().fold(changed, |_, entry| catalog.templates.insert(entry))
        });
        registry.update(&ChangeTopic::Prompts, |catalog| {
            prompts.into_iter().fold(false, |_, entry| catalog.prompts.insert(entry))
        });
        Ok(names)
    }
}
