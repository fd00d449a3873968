//! The builder: settings of a server before it exists.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toolgate_wire::Dialect;
use toolgate_wire::model::{CacheScope, Icon};

use super::assemble::assemble;
use super::config::Config;
use super::pending_item::{CommitSpec as _, PendingItem};
use super::{Server, build_error};
#[cfg(feature = "macros")]
use crate::collect::{ModuleScope, linked_items, nothing_linked_message};
use crate::collect::{Register, SpecSet, group_items};
use crate::error::{BuildProblem, Error};
use crate::handler::layer::{self, Call, CallOutput, Next, erase_layer};
use crate::handler::{Handler, HandlerSignature, IntoContents, IntoOutput, IntoPrompt};
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
/// A builder has one type, whatever was added to it. It can be extended under a condition, in a loop, and by functions:
///
/// ```
/// use toolgate::{Builder, Server};
///
/// fn add_notes(server: Builder) -> Builder {
///     server.tool("note", || async { "noted" }).describe("Takes a note")
/// }
///
/// let is_admin = true;
/// let mut server = Server::new("demo", "1.0.0");
/// if is_admin {
///     server = server.tool("reset", || async { "done" }).describe("Starts over").destructive();
/// }
/// let server = add_notes(server).instructions("Be brief.").build();
/// # assert_eq!(server.unwrap().tool_count(), 2);
/// ```
#[must_use = "a builder does nothing until it is built"]
#[doc(alias("ServerBuilder", "configuration"))]
pub struct Builder {
    pub(super) config: Box<Config>,
    pub(super) pending: PendingItem,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("info", &self.config.info).finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(name: String, version: String) -> Builder {
        Builder { config: Box::new(Config::new(name, version)), pending: PendingItem::None }
    }
}

/// Building and serving.
impl Builder {
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

    /// Finishes the item added last: its methods no longer apply. Every call that adds an item does this, too.
    #[doc(hidden)]
    pub fn done(self) -> Builder {
        self.replace_pending(PendingItem::None)
    }

    fn replace_pending(self, next: impl Into<PendingItem>) -> Builder {
        let Builder { mut config, pending } = self;
        pending.commit(&mut config);
        Builder { config, pending: next.into() }
    }

    pub(super) fn configure(mut self, set: impl FnOnce(&mut Config)) -> Builder {
        set(&mut self.config);
        self
    }
}

/// Tools, resources, templates and prompts.
impl Builder {
    /// Adds a tool with this name. Its schemas are generated from the handler's types.
    pub fn tool<A: 'static, H>(self, name: impl Into<String>, handler: H) -> Builder
    where
        H: HandlerSignature<A> + Handler<A>,
        H::Output: IntoOutput,
    {
        self.replace_pending(ToolSpec::new(name, handler))
    }

    /// Adds a tool.
    pub fn add_tool(self, tool: ToolSpec) -> Builder {
        self.replace_pending(tool)
    }

    /// Adds a resource with this URI.
    pub fn resource<A: 'static, H>(self, uri: impl Into<String>, handler: H) -> Builder
    where
        H: HandlerSignature<A> + Handler<A>,
        H::Output: IntoContents,
    {
        self.replace_pending(ResourceSpec::new(uri, handler))
    }

    /// Adds a resource.
    pub fn add_resource(self, resource: ResourceSpec) -> Builder {
        self.replace_pending(resource)
    }

    /// Adds a resource template: all resources whose URIs match a URI template (RFC 6570). The template's variables
    /// are the handler's arguments.
    pub fn template<A: 'static, H>(self, uri_template: impl Into<String>, handler: H) -> Builder
    where
        H: HandlerSignature<A> + Handler<A>,
        H::Output: IntoContents,
    {
        self.replace_pending(TemplateSpec::new(uri_template, handler))
    }

    /// Adds a resource template.
    pub fn add_template(self, template: TemplateSpec) -> Builder {
        self.replace_pending(template)
    }

    /// Adds a prompt with this name. Its arguments are the fields of the handler's argument type.
    pub fn prompt<A: 'static, H>(self, name: impl Into<String>, handler: H) -> Builder
    where
        H: HandlerSignature<A> + Handler<A>,
        H::Output: IntoPrompt,
    {
        self.replace_pending(PromptSpec::new(name, handler))
    }

    /// Adds a prompt.
    pub fn add_prompt(self, prompt: PromptSpec) -> Builder {
        self.replace_pending(prompt)
    }

    /// Adds an [`Item`](crate::Item), a list of them made with [`items!`](crate::items), or all methods of a value whose
    /// impl block is marked with `#[server]`. The instructions of that block, if any, are appended to those of the
    /// server, and its version, if any, replaces that of the server.
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
    pub fn announce_changes(self) -> Builder {
        self.configure(|config| {
            config.announced_features =
                Features { tools: true, resources: true, prompts: true, ..Features::default() };
        })
    }

    /// Adds a value that handlers share, as [`State<T>`](crate::State). There is one value per type.
    #[doc(alias("dependency injection", "lifespan"))]
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Builder {
        self.configure(|config| {
            config.states.insert(TypeId::of::<T>(), Arc::new(state));
        })
    }

    /// Adds a layer: an async function that runs around every handler (middleware).
    ///
    /// It receives the [`Call`] and the rest of the call, [`Next`], and returns the output. Layers nest: the first one
    /// added is the outermost. See [`layer`](crate::layer) for what a layer can do.
    ///
    /// ```
    /// use std::time::Instant;
    /// use toolgate::Server;
    ///
    /// let server = Server::new("demo", "1.0.0").tool("hello", || async { "Hello!" }).layer(|call, next| async move {
    ///     let (subject, start) = (call.subject().to_owned(), Instant::now());
    ///     let output = next.run(call).await;
    ///     println!("{subject} took {:?}", start.elapsed());
    ///     output
    /// });
    /// # assert!(server.build().is_ok());
    /// ```
    pub fn layer<F, Fut>(self, layer: F) -> Builder
    where
        F: Fn(Call, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CallOutput, layer::LayerError>> + Send + 'static,
    {
        self.configure(|config| config.layers.push(erase_layer(layer)))
    }
}

impl Builder {
    fn add_specs(self, specs: SpecSet) -> Builder {
        self.configure(|config| {
            specs.tools.into_iter().for_each(|spec| spec.commit(config));
            specs.resources.into_iter().for_each(|spec| spec.commit(config));
            specs.templates.into_iter().for_each(|spec| spec.commit(config));
            specs.prompts.into_iter().for_each(|spec| spec.commit(config));
            config.errors.extend(specs.errors.into_iter().map(BuildProblem::general));
            if let Some(version) = specs.version {
                config.info.version = version;
            }
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
impl Builder {
    /// Sets the instructions, which tell a model how to use the server.
    pub fn instructions(self, instructions: impl Into<String>) -> Builder {
        self.configure(|config| config.instructions = Some(instructions.into()))
    }

    /// Sets the server's version, in place of the one given to [`Server::new`]. For builders that were made elsewhere, as by
    /// [`Servers::server_with`](crate::Servers::server_with).
    pub fn server_version(self, version: impl Into<String>) -> Builder {
        self.configure(|config| config.info.version = version.into())
    }

    /// Sets the server's display name.
    pub fn server_title(self, title: impl Into<String>) -> Builder {
        self.configure(|config| config.info.title = Some(title.into()))
    }

    /// Sets the server's description.
    pub fn server_description(self, description: impl Into<String>) -> Builder {
        self.configure(|config| config.info.description = Some(description.into()))
    }

    /// Sets the URL of the server's website.
    pub fn website(self, url: impl Into<String>) -> Builder {
        self.configure(|config| config.info.website = Some(url.into()))
    }

    /// Adds an icon of the server.
    pub fn server_icon(self, icon: Icon) -> Builder {
        self.configure(|config| config.info.icons.push(icon))
    }

    /// Sets the maximum number of items per page of a list. 1000 by default.
    pub fn page_size(self, size: usize) -> Builder {
        self.configure(|config| config.page_size = size.max(1))
    }

    /// Lets clients cache lists for this long. Not at all by default, and in private caches only.
    pub fn cache_lists(self, ttl: Duration, scope: CacheScope) -> Builder {
        self.configure(|config| config.cache = cache_hint(ttl, scope))
    }

    /// Hides from all callers the items that this profile hides; see [`Server::set_profile`].
    pub fn visible(self, profile: Profile) -> Builder {
        self.configure(|config| config.default_profile = Some(profile))
    }
}

/// Calls, limits and timeouts.
impl Builder {
    /// Limits how long a handler may run, unless its tool sets its own timeout. One minute by default.
    pub fn handler_timeout(self, timeout: Duration) -> Builder {
        self.configure(|config| config.timeout = timeout)
    }

    /// Limits how long calls in flight may run after a shutdown began. 30 seconds by default.
    #[doc(alias = "graceful shutdown")]
    pub fn shutdown_timeout(self, timeout: Duration) -> Builder {
        self.configure(|config| config.shutdown_timeout = timeout)
    }

    /// Limits the size of a message, on every transport. 4 MiB by default.
    pub fn message_limit(self, bytes: usize) -> Builder {
        self.configure(|config| config.message_limits.max_bytes = bytes)
    }

    /// Limits the size of the result of a call: of a tool, a resource or a prompt. 16 MiB by default.
    ///
    /// The size is that of the encoded response. In place of a larger one, the client receives an error that states the
    /// size and asks for less: a tool result with `isError`, or a JSON-RPC error. Lists are not limited, because they have
    /// pages, and results of tasks have [a limit of their own](Builder::task_result_limit). `usize::MAX` turns the limit
    /// off; zero rejects every result.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let report = || async { "line\n".repeat(100_000) };
    /// let server = toolgate::Server::new("demo", "1.0.0").tool("report", report).result_limit(64 << 10).build()?;
    /// let result = server.call_tool("report", serde_json::json!({})).await?;
    /// assert_eq!(result["isError"], true);
    /// # Ok(())
    /// # }
    /// ```
    pub fn result_limit(self, bytes: usize) -> Builder {
        self.configure(|config| config.max_result_bytes = bytes)
    }

    /// Disables argument coercion: rejects arguments of the wrong type even if the meaning is clear.
    ///
    /// By default, argument validation accepts `"5"` for a number, `"true"` for a boolean, and JSON text for an array or
    /// an object, because models confuse these. Arguments that match the schema are never changed.
    #[doc(alias("validation", "coercion"))]
    pub fn strict_arguments(self) -> Builder {
        self.configure(|config| config.is_strict = true)
    }

    /// Adds listeners that receive all events of this server. Several servers can share them.
    pub fn events(self, events: &Events) -> Builder {
        self.configure(|config| config.events = Some(events.clone()))
    }

    /// Sets whether statistics are enabled from the start. Yes by default.
    pub fn statistics(self, is_enabled: bool) -> Builder {
        self.configure(|config| config.is_stats_enabled = is_enabled)
    }
}

/// Sessions, storage and tasks.
impl Builder {
    /// Sets how long an idle session is kept. 30 minutes by default.
    pub fn session_idle_timeout(self, timeout: Duration) -> Builder {
        self.configure(|config| config.session_limits.idle_timeout = timeout)
    }

    /// Limits the number of open sessions. 10 000 by default.
    pub fn max_sessions(self, sessions: usize) -> Builder {
        self.configure(|config| config.session_limits.max_sessions = sessions)
    }

    /// Disables sessions: `initialize` opens none, and each request of a client with a handshake is served on its own.
    /// Such clients receive no change notifications, and handlers cannot send them requests.
    pub fn stateless(self) -> Builder {
        self.configure(|config| config.session_limits.is_disabled = true)
    }

    /// Sets the [store](crate::store) for data that outlives a call: tasks, and in a store that several processes share,
    /// sessions and resumable streams. Memory by default. All processes that serve the same clients need the same
    /// store.
    #[doc(alias("session store", "persistence"))]
    pub fn store(self, store: impl Store) -> Builder {
        self.configure(|config| config.store = Some(Arc::new(store)))
    }

    /// Sets the keys that encrypt the state which clients carry between calls. The first key encrypts; all of them
    /// decrypt, which allows rotation. All processes that serve the same clients need the same keys. By default, each
    /// process generates a random one.
    pub fn state_keys(self, secrets: impl IntoIterator<Item = [u8; 32]>) -> Builder {
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
    pub fn default_task_ttl(self, ttl: Duration) -> Builder {
        self.configure(|config| config.task_limits.ttl = ttl.min(TaskLimits::MAX_TTL))
    }

    /// Sets how often clients should poll their tasks. Every second by default.
    pub fn task_poll_interval(self, interval: Duration) -> Builder {
        self.configure(|config| config.task_limits.poll_interval = interval)
    }

    /// Limits the number of unfinished tasks per principal. 100 by default. Without authentication, each session is
    /// counted separately, and all clients without a session are counted together.
    pub fn max_tasks(self, tasks: usize) -> Builder {
        self.configure(|config| config.task_limits.max_per_owner = tasks)
    }

    /// Limits the number of tasks that run in this process at the same time. 1000 by default.
    pub fn max_running_tasks(self, tasks: usize) -> Builder {
        self.configure(|config| config.task_limits.max_running = tasks)
    }

    /// Limits the size of a task's result, which is stored. 8 MiB by default; a task with a larger result fails.
    pub fn task_result_limit(self, bytes: usize) -> Builder {
        self.configure(|config| config.task_limits.max_result_bytes = bytes)
    }

    /// Limits the number of finished tasks of this process that are retained per principal. 1000 by default, and 64 MiB
    /// in total; beyond that, the oldest is removed before its time. Principals are counted as for
    /// [`Builder::max_tasks`].
    pub fn max_retained_tasks(self, tasks: usize) -> Builder {
        self.configure(|config| config.task_limits.max_finished = tasks)
    }
}

/// HTTP transport.
#[cfg(feature = "http")]
impl Builder {
    /// Sets after how long without output a call is answered with an SSE stream, which can be kept alive and, if the
    /// client supports it, resumed. Five seconds by default.
    pub fn stream_after(self, delay: Duration) -> Builder {
        self.configure(|config| config.http_options.stream_after = delay)
    }

    /// Sets whether the HTTP+SSE transport of the first protocol version (`sse` and `messages`) is served. Yes by
    /// default.
    pub fn legacy_sse(self, is_enabled: bool) -> Builder {
        self.configure(|config| config.http_options.has_legacy_sse = is_enabled)
    }

    /// Sets the interval of keep-alive comments on idle SSE streams. 15 seconds by default.
    pub fn sse_keep_alive(self, interval: Duration) -> Builder {
        self.configure(|config| config.http_options.sse_keep_alive = interval)
    }

    /// Sets the options of the built-in HTTP listener.
    pub fn listener(self, options: listen::Options) -> Builder {
        self.configure(|config| config.listen_options = options)
    }
}

/// Clients that name no protocol version; see [`compat`](crate::compat).
#[cfg(feature = "compat")]
impl Builder {
    /// Sets the dialect for clients that name no protocol version; see [`Server::set_dialect`].
    pub fn dialect(self, dialect: Dialect) -> Builder {
        self.configure(|config| config.dialect = Some(dialect))
    }

    /// Requires clients that name no protocol version to send `initialize` first, exactly once, with a supported protocol
    /// version and a client name. Other requests except `ping` get error -32005, and an unsupported version gets -32022
    /// (dialects may use other codes); no other version is offered. Clients that identify themselves in each request
    /// need no handshake.
    pub fn require_initialize(self) -> Builder {
        self.configure(|config| config.session_limits.requires_initialize = true)
    }

    /// Confines the reading of `file:` resources to these directories; see [`Server::set_workspace_roots`].
    pub fn workspace_roots(self, roots: Roots) -> Builder {
        self.configure(|config| {
            config.record(roots.validate());
            config.roots = Some(roots);
        })
    }
}
