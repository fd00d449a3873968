//! The builder: settings of a server before it exists.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toolgate_wire::Dialect;
use toolgate_wire::model::{CacheScope, Icon};

use super::assemble::assemble;
use super::config::Config;
use super::pending_item::{CommitTarget, PendingItem};
use super::{Server, build_error};
#[cfg(feature = "macros")]
use crate::collect::{ModuleScope, linked_items, nothing_linked_message};
use crate::collect::{Register, SpecSet, group_items};
use crate::error::{BuildProblem, Error};
use crate::handler::{Handler, IntoContents, IntoOutput, IntoPrompt};
use crate::observe::Events;
use crate::profile::Profile;
use crate::registry::{Features, PromptSpec, ResourceSpec, Roots, TemplateSpec, ToolSpec, cache_hint};
use crate::seal::Seal;
use crate::store::Store;
use crate::task::TaskLimits;
#[cfg(feature = "http")]
use crate::transport::listen;

/// Configures a [`Server`]. Created by [`Server::new`].
///
/// Setters take and return the builder by value and never fail; [`Builder::build`] reports all configuration errors at
/// once. After `tool`, `resource`, `template` and `prompt`, the methods of [`ToolSpec`], [`ResourceSpec`],
/// [`TemplateSpec`] and [`PromptSpec`] configure the item that was just added:
///
/// ```
/// # use toolgate::Server;
/// let server = Server::new("demo", "1.0.0")
///     .tool("hello", || async { "Hello!" }).describe("Says hello").read_only()
///     .resource("demo://readme", || async { "Read me" }).mime("text/plain");
/// ```
///
/// The type parameter names the item added last. [`Builder::done`] resets it, for functions that take and return a
/// builder:
///
/// ```
/// use toolgate::{Builder, Server};
///
/// fn add_notes(server: Builder) -> Builder {
///     server.tool("note", || async { "noted" }).describe("Takes a note").done()
/// }
///
/// let server = add_notes(Server::new("demo", "1.0.0")).instructions("Be brief.").build();
/// # assert!(server.is_ok());
/// ```
#[must_use = "a builder does nothing until it is built"]
#[doc(alias("ServerBuilder", "configuration"))]
pub struct Builder<P = ()> {
    pub(super) config: Box<Config>,
    /// The item added last, which the next calls may configure. Not in the catalog yet.
    pub(super) pending: P,
}

impl<P> fmt::Debug for Builder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("info", &self.config.info).finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(name: String, version: String) -> Builder {
        Builder { config: Box::new(Config::new(name, version)), pending: () }
    }
}

/// Building and serving.
impl<P: PendingItem> Builder<P> {
    /// Builds the server.
    ///
    /// # Errors
    /// If the configuration is invalid. The error lists every problem.
    pub fn build(self) -> Result<Server, Error> {
        let Builder { mut config, .. } = self.done();
        config.check();
        if !config.errors.is_empty() {
            return Err(build_error(config.errors));
        }
        Ok(assemble(*config))
    }

    /// Builds the server and serves standard input and output; see [`Server::serve_stdio`].
    ///
    /// # Errors
    /// As [`Builder::build`] and [`Server::serve_stdio`].
    pub async fn serve_stdio(self) -> Result<(), Error> {
        self.build()?.serve_stdio().await
    }

    /// Builds the server and serves HTTP; see [`Server::listen`].
    ///
    /// # Errors
    /// As [`Builder::build`] and [`Server::listen`].
    #[cfg(feature = "http")]
    pub async fn listen(self, address: impl tokio::net::ToSocketAddrs + fmt::Debug) -> Result<(), Error> {
        self.build()?.listen(address).await
    }

    /// Finishes the item added last. Its methods are no longer available, and the builder has the type `Builder`.
    pub fn done(self) -> Builder {
        self.replace_pending(())
    }

    fn replace_pending<N>(self, next: N) -> Builder<N> {
        let Builder { mut config, pending } = self;
        pending.commit(&mut CommitTarget(&mut config));
        Builder { config, pending: next }
    }

    pub(super) fn configure(mut self, set: impl FnOnce(&mut Config)) -> Builder<P> {
        set(&mut self.config);
        self
    }
}

/// Tools, resources, templates and prompts.
impl<P: PendingItem> Builder<P> {
    /// Adds a tool with this name. Its schemas are generated from the handler's types.
    pub fn tool<A: 'static, H>(self, name: impl Into<String>, handler: H) -> Builder<ToolSpec>
    where
        H: Handler<A>,
        H::Output: IntoOutput,
    {
        self.replace_pending(ToolSpec::new(name, handler))
    }

    /// Adds a tool.
    pub fn add_tool(self, tool: ToolSpec) -> Builder<ToolSpec> {
        self.replace_pending(tool)
    }

    /// Adds a resource with this URI.
    pub fn resource<A: 'static, H>(self, uri: impl Into<String>, handler: H) -> Builder<ResourceSpec>
    where
        H: Handler<A>,
        H::Output: IntoContents,
    {
        self.replace_pending(ResourceSpec::new(uri, handler))
    }

    /// Adds a resource.
    pub fn add_resource(self, resource: ResourceSpec) -> Builder<ResourceSpec> {
        self.replace_pending(resource)
    }

    /// Adds a resource template: all resources whose URIs match a URI template (RFC 6570). The template's variables
    /// are the handler's arguments.
    pub fn template<A: 'static, H>(self, uri_template: impl Into<String>, handler: H) -> Builder<TemplateSpec>
    where
        H: Handler<A>,
        H::Output: IntoContents,
    {
        self.replace_pending(TemplateSpec::new(uri_template, handler))
    }

    /// Adds a resource template.
    pub fn add_template(self, template: TemplateSpec) -> Builder<TemplateSpec> {
        self.replace_pending(template)
    }

    /// Adds a prompt with this name. Its arguments are the fields of the handler's argument type.
    pub fn prompt<A: 'static, H>(self, name: impl Into<String>, handler: H) -> Builder<PromptSpec>
    where
        H: Handler<A>,
        H::Output: IntoPrompt,
    {
        self.replace_pending(PromptSpec::new(name, handler))
    }

    /// Adds a prompt.
    pub fn add_prompt(self, prompt: PromptSpec) -> Builder<PromptSpec> {
        self.replace_pending(prompt)
    }

    /// Adds an [`Item`](crate::Item), a list of them made with [`items!`](crate::items), or all methods of a value whose
    /// impl block is marked with `#[server]`. The instructions of that block, if any, are appended to those of the
    /// server.
    #[allow(clippy::should_implement_trait, reason = "nobody writes `server + tools`")]
    pub fn add(self, items: impl Register) -> Builder {
        self.done().add_specs(group_items(items.into_items()))
    }

    /// Adds every function marked with `#[tool]`, `#[resource]`, `#[template]`, `#[prompt]` or `#[complete]` that is
    /// linked into the program, in the order of modules and lines. Methods are not included: they need a value, which
    /// [`Builder::add`] takes.
    ///
    /// A linker drops crates that nothing refers to. `use my_tools as _;` refers to one.
    #[cfg(feature = "macros")]
    pub fn collect(self) -> Builder {
        self.collect_scope(ModuleScope::All, "this program")
    }

    /// Adds every marked function of a module and its submodules: `my_crate`, `my_crate::tools`.
    #[cfg(feature = "macros")]
    pub fn collect_from(self, module: &str) -> Builder {
        self.collect_scope(ModuleScope::Subtree(module), module)
    }

    /// Adds every marked function of a module, without its submodules.
    #[cfg(feature = "macros")]
    pub fn collect_module(self, module: &str) -> Builder {
        self.collect_scope(ModuleScope::Module(module), module)
    }

    #[cfg(feature = "macros")]
    fn collect_scope(self, scope: ModuleScope<'_>, label: &str) -> Builder {
        let builder = self.done();
        match linked_items(scope) {
            Some(items) => builder.add_specs(group_items(items)),
            None => builder.configure(|config| config.record(Err(nothing_linked_message(label)))),
        }
    }

    /// Announces the list-changed capability for tools, resources and prompts even while there are none. Clients that
    /// connect before the first item is added then listen for changes.
    pub fn announce_changes(self) -> Builder<P> {
        self.configure(|config| {
            config.announced_features =
                Features { tools: true, resources: true, prompts: true, ..Features::default() };
        })
    }

    /// Adds a value that handlers share, as [`State<T>`](crate::State). There is one value per type.
    #[doc(alias("dependency injection", "lifespan"))]
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Builder<P> {
        self.configure(|config| {
            config.states.insert(TypeId::of::<T>(), Arc::new(state));
        })
    }
}

impl Builder {
    fn add_specs(self, specs: SpecSet) -> Builder {
        self.configure(|config| {
            let mut target = CommitTarget(config);
            specs.tools.into_iter().for_each(|spec| spec.commit(&mut target));
            specs.resources.into_iter().for_each(|spec| spec.commit(&mut target));
            specs.templates.into_iter().for_each(|spec| spec.commit(&mut target));
            specs.prompts.into_iter().for_each(|spec| spec.commit(&mut target));
            config.errors.extend(specs.errors.into_iter().map(BuildProblem::general));
            if let Some(more) = specs.instructions {
                config.instructions = Some(match config.instructions.take() {
                    Some(instructions) => format!("{instructions}\n\n{more}"),
                    None => more,
                });
            }
        })
    }
}

/// Server info that is sent to clients.
impl<P: PendingItem> Builder<P> {
    /// Sets the instructions, which tell a model how to use the server.
    pub fn instructions(self, instructions: impl Into<String>) -> Builder<P> {
        self.configure(|config| config.instructions = Some(instructions.into()))
    }

    /// Sets the server's display name.
    pub fn server_title(self, title: impl Into<String>) -> Builder<P> {
        self.configure(|config| config.info.title = Some(title.into()))
    }

    /// Sets the server's description.
    pub fn server_description(self, description: impl Into<String>) -> Builder<P> {
        self.configure(|config| config.info.description = Some(description.into()))
    }

    /// Sets the URL of the server's website.
    pub fn website(self, url: impl Into<String>) -> Builder<P> {
        self.configure(|config| config.info.website = Some(url.into()))
    }

    /// Adds an icon of the server.
    pub fn server_icon(self, icon: Icon) -> Builder<P> {
        self.configure(|config| config.info.icons.push(icon))
    }

    /// Sets the maximum number of items per page of a list. 1000 by default.
    pub fn page_size(self, size: usize) -> Builder<P> {
        self.configure(|config| config.page_size = size.max(1))
    }

    /// Lets clients cache lists for this long. Not at all by default, and in private caches only.
    pub fn cache_lists(self, ttl: Duration, scope: CacheScope) -> Builder<P> {
        self.configure(|config| config.cache = cache_hint(ttl, scope))
    }

    /// Hides from all callers the items that this profile hides; see [`Server::set_profile`].
    pub fn visible(self, profile: Profile) -> Builder<P> {
        self.configure(|config| config.default_profile = Some(profile))
    }
}

/// Calls, limits and timeouts.
impl<P: PendingItem> Builder<P> {
    /// Limits how long a handler may run, unless its tool sets its own timeout. One minute by default.
    pub fn handler_timeout(self, timeout: Duration) -> Builder<P> {
        self.configure(|config| config.timeout = timeout)
    }

    /// Limits how long calls in flight may run after a shutdown began. 30 seconds by default.
    #[doc(alias = "graceful shutdown")]
    pub fn shutdown_timeout(self, timeout: Duration) -> Builder<P> {
        self.configure(|config| config.shutdown_timeout = timeout)
    }

    /// Limits the size of a message, on every transport. 4 MiB by default.
    pub fn message_limit(self, bytes: usize) -> Builder<P> {
        self.configure(|config| config.message_limits.max_bytes = bytes)
    }

    /// Disables argument coercion: rejects arguments of the wrong type even if the meaning is clear.
    ///
    /// By default, argument validation accepts `"5"` for a number, `"true"` for a boolean, and JSON text for an array or
    /// an object, because models confuse these. Arguments that match the schema are never changed.
    #[doc(alias("validation", "coercion"))]
    pub fn strict_arguments(self) -> Builder<P> {
        self.configure(|config| config.is_strict = true)
    }

    /// Adds listeners that receive all events of this server. Several servers can share them.
    pub fn events(self, events: &Events) -> Builder<P> {
        self.configure(|config| config.events = Some(events.clone()))
    }

    /// Sets whether statistics are enabled from the start. Yes by default.
    pub fn statistics(self, is_enabled: bool) -> Builder<P> {
        self.configure(|config| config.is_stats_enabled = is_enabled)
    }
}

/// Sessions, storage and tasks.
impl<P: PendingItem> Builder<P> {
    /// Sets how long an idle session is kept. 30 minutes by default.
    pub fn session_idle_timeout(self, timeout: Duration) -> Builder<P> {
        self.configure(|config| config.session_limits.idle_timeout = timeout)
    }

    /// Limits the number of open sessions. 10 000 by default.
    pub fn max_sessions(self, sessions: usize) -> Builder<P> {
        self.configure(|config| config.session_limits.max_sessions = sessions)
    }

    /// Disables sessions: `initialize` opens none, and each request of a client with a handshake is served on its own.
    /// Such clients receive no change notifications, and handlers cannot send them requests.
    pub fn stateless(self) -> Builder<P> {
        self.configure(|config| config.session_limits.is_disabled = true)
    }

    /// Sets the [store](crate::store) for data that outlives a call: tasks, and in a store that several processes share,
    /// sessions and resumable streams. Memory by default. All processes that serve the same clients need the same
    /// store.
    #[doc(alias("session store", "persistence"))]
    pub fn store(self, store: impl Store) -> Builder<P> {
        self.configure(|config| config.store = Some(Arc::new(store)))
    }

    /// Sets the keys that encrypt the state which clients carry between calls. The first key encrypts; all of them
    /// decrypt, which allows rotation. All processes that serve the same clients need the same keys. By default, each
    /// process generates a random one.
    pub fn state_keys(self, secrets: impl IntoIterator<Item = [u8; 32]>) -> Builder<P> {
        self.configure(|config| {
            let seal = Seal::from_secrets(secrets);
            if seal.is_empty() {
                config.errors.push(BuildProblem::setting("state_keys", "at least one secret is needed"));
            }
            config.seal = Some(seal);
        })
    }

    /// Sets how long a task and its result are retained after its start, unless the client requests another time. One
    /// hour by default, one year at most; clients may request one minute to one day.
    pub fn default_task_ttl(self, ttl: Duration) -> Builder<P> {
        self.configure(|config| config.task_limits.ttl = ttl.min(TaskLimits::MAX_TTL))
    }

    /// Sets how often clients should poll their tasks. Every second by default.
    pub fn task_poll_interval(self, interval: Duration) -> Builder<P> {
        self.configure(|config| config.task_limits.poll_interval = interval)
    }

    /// Limits the number of unfinished tasks per principal. 100 by default. Without authentication, each session is
    /// counted separately, and all clients without a session are counted together.
    pub fn max_tasks(self, tasks: usize) -> Builder<P> {
        self.configure(|config| config.task_limits.max_per_owner = tasks)
    }

    /// Limits the number of tasks that run in this process at the same time. 1000 by default.
    pub fn max_running_tasks(self, tasks: usize) -> Builder<P> {
        self.configure(|config| config.task_limits.max_running = tasks)
    }

    /// Limits the size of a task's result, which is stored. 8 MiB by default; a task with a larger result fails.
    pub fn task_result_limit(self, bytes: usize) -> Builder<P> {
        self.configure(|config| config.task_limits.max_result_bytes = bytes)
    }

    /// Limits the number of finished tasks of this process that are retained per principal. 1000 by default, and 64 MiB
    /// in total; beyond that, the oldest is removed before its time. Principals are counted as for
    /// [`Builder::max_tasks`].
    pub fn max_retained_tasks(self, tasks: usize) -> Builder<P> {
        self.configure(|config| config.task_limits.max_finished = tasks)
    }
}

/// HTTP transport.
#[cfg(feature = "http")]
impl<P: PendingItem> Builder<P> {
    /// Sets after how long without output a call is answered with an SSE stream, which can be kept alive and, if the
    /// client supports it, resumed. Five seconds by default.
    pub fn stream_after(self, delay: Duration) -> Builder<P> {
        self.configure(|config| config.http_options.stream_after = delay)
    }

    /// Sets whether the HTTP+SSE transport of the first protocol version (`sse` and `messages`) is served. Yes by
    /// default.
    pub fn legacy_sse(self, is_enabled: bool) -> Builder<P> {
        self.configure(|config| config.http_options.has_legacy_sse = is_enabled)
    }

    /// Sets the interval of keep-alive comments on idle SSE streams. 15 seconds by default.
    pub fn sse_keep_alive(self, interval: Duration) -> Builder<P> {
        self.configure(|config| config.http_options.sse_keep_alive = interval)
    }

    /// Sets the options of the built-in HTTP listener.
    pub fn listener(self, options: listen::Options) -> Builder<P> {
        self.configure(|config| config.listen_options = options)
    }
}

/// Clients that name no protocol version; see [`compat`](crate::compat).
#[cfg(feature = "compat")]
impl<P: PendingItem> Builder<P> {
    /// Sets the dialect for clients that name no protocol version; see [`Server::set_dialect`].
    pub fn dialect(self, dialect: Dialect) -> Builder<P> {
        self.configure(|config| config.dialect = Some(dialect))
    }

    /// Requires clients that name no protocol version to send `initialize` first, exactly once, with a supported protocol
    /// version and a client name. Other requests except `ping` get error -32005, and an unsupported version gets -32022
    /// (dialects may use other codes); no other version is offered. Clients that identify themselves in each request
    /// need no handshake.
    pub fn require_initialize(self) -> Builder<P> {
        self.configure(|config| config.session_limits.requires_initialize = true)
    }

    /// Confines the reading of `file:` resources to these directories; see [`Server::set_workspace_roots`].
    pub fn workspace_roots(self, roots: Roots) -> Builder<P> {
        self.configure(|config| {
            config.record(roots.validate());
            config.roots = Some(roots);
        })
    }
}
