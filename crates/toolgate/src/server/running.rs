//! What can be asked of, and changed at, a server that runs.
//!
//! Everything here takes effect for the next request, and connected clients are told of what changed. Setters
//! give the server back, so that they can be chained; what is wrong with what they are given is kept and told all
//! at once, by [`Server::faults`] and when somebody tries to serve.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use serde_json::{Value, json};
use toolgate_wire::Dialect;
use toolgate_wire::model::{Prompt, Resource, ResourceTemplate, Tool};

use super::Server;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::observe::{
    ErrorContext, ErrorEvent, Events, ServerChange, ServerEvent, ServerMetrics, SessionInfo, StatsDetail,
    StatsSummary, Subscription, Transport,
};
use crate::observe::{RequestEvent, ResponseEvent};
use crate::profile::Profile;
use crate::protocol::{Channel, DuplexConnection, Peer, Reply, ServerInfo};
use crate::registry::{PromptSpec, ResourceSpec, Roots, Snapshot, TemplateSpec, ToolSpec};
use crate::request::Principal;
use crate::stream::{Capacity, Stream};
use crate::subscriptions::ChangeTopic;
use crate::util::stored_json;

/// Who the server is, and how it is changed while it runs.
///
/// Setters take effect for the next request and give the server back, so that they can be chained:
///
/// ```
/// # use toolgate::{Server, ToolSpec};
/// # fn main() -> Result<(), toolgate::Error> {
/// let server = Server::new("shop", "1.0.0").build()?;
/// server
///     .set_description("Everything about orders")
///     .set_version("1.1.0")
///     .register_tool(ToolSpec::new("hours", || async { "9 to 5" }));
/// assert_eq!(server.server_info()["version"], "1.1.0");
/// assert_eq!(server.summary()["tools"], serde_json::json!(["hours"]));
/// # Ok(())
/// # }
/// ```
impl Server {
    /// The server's name. It does not change.
    #[must_use]
    pub fn name(&self) -> String {
        self.info().implementation.name.clone()
    }

    /// The server's version.
    #[must_use]
    pub fn version(&self) -> String {
        self.info().implementation.version.clone()
    }

    /// Gives the server another version. Clients that are connected were told the old one.
    pub fn set_version(&self, version: impl Into<String>) -> Server {
        let version = version.into();
        self.update_info(&|face| face.implementation.version = version.clone())
    }

    /// What the server is, for people; empty if nobody said.
    #[must_use]
    pub fn description(&self) -> String {
        self.info().implementation.description.clone().unwrap_or_default()
    }

    /// Says what the server is, for people.
    pub fn set_description(&self, description: impl Into<String>) -> Server {
        let description = description.into();
        self.update_info(&|face| face.implementation.description = Some(description.clone()))
    }

    /// How to use the server, for a model; empty if nobody said.
    #[must_use]
    pub fn instructions(&self) -> String {
        self.info().instructions.clone().unwrap_or_default()
    }

    /// Says how to use the server, for a model.
    pub fn set_instructions(&self, instructions: impl Into<String>) -> Server {
        let instructions = instructions.into();
        self.update_info(&|face| face.instructions = Some(instructions.clone()))
    }

    /// Name and version, as clients see them: `{"name": …, "version": …}`.
    #[must_use]
    pub fn server_info(&self) -> Value {
        let face = self.info();
        json!({ "name": face.implementation.name, "version": face.implementation.version })
    }

    /// What there is to know at a glance, as JSON: `name`, `version`, `description`, `paused`, `statsEnabled`, and the
    /// names and numbers of `tools`, `resources` (without templates) and `prompts`.
    #[must_use]
    pub fn summary(&self) -> Value {
        let (face, catalog) = (self.info(), self.catalog());
        let tools: Vec<&str> = catalog.tools.iter().map(|entry| entry.tool.name.as_str()).collect();
        let resources: Vec<&str> =
            catalog.resources.iter().map(|entry| entry.resource.uri.as_str()).collect();
        let prompts: Vec<&str> = catalog.prompts.iter().map(|entry| entry.prompt.name.as_str()).collect();
        json!({
            "name": face.implementation.name,
            "version": face.implementation.version,
            "description": face.implementation.description.clone().unwrap_or_default(),
            "paused": self.is_paused(),
            "statsEnabled": self.is_stats_enabled(),
            "toolCount": tools.len(),
            "resourceCount": resources.len(),
            "promptCount": prompts.len(),
            "tools": tools,
            "resources": resources,
            "prompts": prompts,
        })
    }

    /// Whether two handles are of one server.
    #[must_use]
    pub fn ptr_eq(&self, other: &Server) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Speaks like this to clients that name no protocol revision, wherever they come from. Those who name one
    /// never notice. A [`Mount`](crate::Mount) with a dialect of its own goes before it.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use toolgate::{Dialect, Server};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("shop", "1.0.0").changing().build()?.with_dialect(Dialect::boxlang());
    /// let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "hours" } });
    /// let answer = server.handle(call).await.unwrap_or_default();
    /// assert_eq!(answer["error"]["message"], "Tool not found: hours");
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_dialect(&self, dialect: Dialect) -> Server {
        self.0.engine.dialect.store(dialect);
        self.clone()
    }

    /// Confines the reading of `file:` resources to the roots of this workspace, whoever reads: a URI that lies outside
    /// of them, or gets there by `..`, escapes or a symbolic link, is told to be unknown before a handler sees it. Clients
    /// that name no protocol revision can ask for them (`roots/list`), and change them (`roots/add`, `roots/remove`) if
    /// they are [writable](Roots::writable).
    ///
    /// ```
    /// # use toolgate::{Roots, Server};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("notes", "1.0.0")
    ///     .resource("file:///srv/notes/today", || async { "tea at four" })
    ///     .build()?
    ///     .with_workspace_roots(Roots::new(["file:///srv/notes"]));
    /// assert!(server.read_resource("file:///srv/notes/today").await.is_ok());
    /// assert!(server.remove_root("file:///srv/notes"));
    /// assert!(server.read_resource("file:///srv/notes/today").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_workspace_roots(&self, roots: Roots) -> Server {
        if let Err(fault) = roots.validate() {
            return self.record_error(Err(Error::new(ErrorKind::InvalidConfig, fault)));
        }
        self.0.engine.dispatcher.set_roots(roots);
        self.0.engine.protocol.subscriptions.publish(&ChangeTopic::Roots);
        self.clone()
    }

    /// Adds a root to the workspace and tells clients; a server that had none has one from now on.
    ///
    /// # Errors
    /// If this is no `file:` URI of a directory, or a root already.
    pub fn add_root(&self, uri: &str) -> Result<(), Error> {
        let hall = &self.0.engine.dispatcher;
        let put = hall.roots_or_insert().add(uri, None, None);
        put.map_err(|fault| Error::new(ErrorKind::InvalidConfig, fault.to_string()))?;
        self.0.engine.protocol.subscriptions.publish(&ChangeTopic::Roots);
        Ok(())
    }

    /// Takes a root away from the workspace and tells clients; false if it was none.
    #[must_use]
    pub fn remove_root(&self, uri: &str) -> bool {
        let taken = self.0.engine.dispatcher.roots().is_some_and(|roots| roots.remove(uri, None).is_ok());
        if taken {
            self.0.engine.protocol.subscriptions.publish(&ChangeTopic::Roots);
        }
        taken
    }

    /// Shows nobody more than this profile does. What a caller's own profile hides stays hidden too.
    ///
    /// ```
    /// # use toolgate::{Profile, Server};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("shop", "1.0.0")
    ///     .tool("order_get", || async { "tea" })
    ///     .tool("order_cancel", || async { "cancelled" })
    ///     .build()?
    ///     .with_profile(Profile::readonly());
    /// assert_eq!(server.list_tools().await.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_profile(&self, profile: Profile) -> Server {
        self.0.engine.dispatcher.default_profile.store(profile);
        self.clone()
    }

    /// What was wrong with what the server was given since it runs: descriptions that cannot work, settings that make no
    /// sense. Each changed nothing. While there are any, [`Server::listen`] and its like refuse to begin; a server that
    /// is served already goes on.
    ///
    /// ```
    /// # use toolgate::{ResourceSpec, Servers};
    /// let server = Servers::new().server("shop").register_resource(ResourceSpec::new("", || async { "" }));
    /// assert_eq!(server.faults().len(), 1);
    /// assert_eq!(server.resource_count(), 0);
    /// ```
    #[must_use]
    pub fn config_errors(&self) -> Vec<String> {
        self.0.config_errors.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn info(&self) -> Arc<ServerInfo> {
        self.0.engine.protocol.server_info.load_full()
    }

    fn update_info(&self, change: &dyn Fn(&mut ServerInfo)) -> Server {
        self.0.engine.protocol.server_info.rcu(|face| {
            let mut face = ServerInfo::clone(face);
            change(&mut face);
            ServerInfo::new(face.implementation, face.instructions, face.cache_hint)
        });
        self.clone()
    }

    fn catalog(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.registry().snapshot()
    }

    /// Keeps what is wrong, and tells whoever listens.
    pub(crate) fn record_error(&self, checked: Result<(), Error>) -> Server {
        if let Err(error) = checked {
            let said = error.to_string();
            tracing::error!(server = self.name(), fault = said, "not changed");
            let watch = &self.0.engine.observer;
            watch.events.publish(ErrorEvent::new(&watch.server, ErrorContext::Register, &*said));
            let mut faults = self.0.config_errors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // A server that is given nonsense for ever remembers the first of it.
            if faults.len() < 100 {
                faults.push(said);
            }
        }
        self.clone()
    }

    pub(crate) fn ensure_valid(&self) -> Result<(), Error> {
        #[allow(unused_mut)]
        let mut faults = self.config_errors();
        #[cfg(feature = "http")]
        faults.extend(self.0.guards.load().check().err());
        if faults.is_empty() {
            return Ok(());
        }
        let said = faults.join("\n").replace('\n', "\n  ");
        let said = format!("server `{}` cannot be served:\n  {said}", self.name());
        Err(Error::new(ErrorKind::InvalidConfig, said))
    }
}

/// Whether it serves.
impl Server {
    /// Answers nothing but `ping` until it is resumed; all else is told -32005, over HTTP with status 503. Calls under way
    /// go on, and sessions stay.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = toolgate::Server::new("shop", "1.0.0").tool("hours", || async { "9 to 5" }).build()?;
    /// server.pause();
    /// assert!(server.call_tool("hours", serde_json::json!({})).await.is_err());
    /// server.resume();
    /// assert!(server.call_tool("hours", serde_json::json!({})).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn pause(&self) -> Server {
        if !self.0.engine.protocol.is_paused.swap(true, Ordering::Relaxed) {
            self.publish_change(ServerChange::Paused);
        }
        self.clone()
    }

    /// Answers again.
    pub fn resume(&self) -> Server {
        if self.0.engine.protocol.is_paused.swap(false, Ordering::Relaxed) {
            self.publish_change(ServerChange::Resumed);
        }
        self.clone()
    }

    /// Whether it is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.0.engine.protocol.is_paused.load(Ordering::Relaxed)
    }
}

/// Who is told what happens.
impl Server {
    /// Where to listen to what happens at this server. [`Servers::events`](crate::Servers::events) hears of all servers of
    /// a list.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.0.engine.observer.events
    }

    /// Calls this before every request: it may look, change the request, or refuse it. Short for
    /// [`Events::on_request`] of [`Server::events`], where the other kinds are.
    ///
    /// ```
    /// # let server = toolgate::Servers::new().server("shop");
    /// server.on_request(|request| {
    ///     if request.method() == "tools/call" && request.header("x-client-id").is_none() {
    ///         request.reject("say who you are: X-Client-Id");
    ///     }
    /// });
    /// ```
    pub fn on_request(&self, listener: impl Fn(&mut RequestEvent) + Send + Sync + 'static) -> Subscription {
        self.events().on_request(listener)
    }

    /// Calls this before every answer is sent: it may look, or change the answer. Short for [`Events::on_response`].
    pub fn on_response(&self, listener: impl Fn(&mut ResponseEvent) + Send + Sync + 'static) -> Subscription {
        self.events().on_response(listener)
    }

    pub(crate) fn publish_change(&self, change: ServerChange) {
        let (face, watch) = (self.info(), &self.0.engine.observer);
        let description = face.implementation.description.as_deref().unwrap_or_default();
        watch.events.publish(ServerEvent::new(
            change,
            &watch.server,
            description,
            &face.implementation.version,
        ));
    }
}

/// What it offers. Prompts, resources and templates come and go like tools, and connected clients are told.
///
/// ```
/// # use toolgate::{PromptSpec, ResourceSpec, Servers, ToolSpec};
/// let server = Servers::new().server("shop");
/// server
///     .register_tool(ToolSpec::new("hours", || async { "9 to 5" }).describe("When the shop is open"))
///     .register_resource(ResourceSpec::new("shop://motto", || async { "Tea first" }))
///     .register_prompt(PromptSpec::new("greet", || async { "Greet a customer" }));
/// assert!(server.has_tool("hours") && server.has_resource("shop://motto") && server.has_prompt("greet"));
/// assert_eq!(server.get_tool("hours").unwrap().description.as_deref(), Some("When the shop is open"));
/// server.unregister_tool("hours").clear_prompts();
/// assert_eq!((server.tool_count(), server.resource_count(), server.prompt_count()), (0, 1, 0));
/// ```
impl Server {
    /// Adds a tool, or puts it in the place of the one of that name. A description that cannot work changes
    /// nothing and is kept as a fault; see [`Server::add_tool`] to be told at once.
    pub fn register_tool(&self, tool: ToolSpec) -> Server {
        self.record_error(self.add_tool(tool))
    }

    /// Adds several tools; see [`Server::register_tool`].
    pub fn register_tools(&self, tools: impl IntoIterator<Item = ToolSpec>) -> Server {
        for tool in tools {
            self.register_tool(tool);
        }
        self.clone()
    }

    /// Takes a tool away, if it is there.
    pub fn unregister_tool(&self, name: &str) -> Server {
        let _ = self.remove_tool(name);
        self.clone()
    }

    /// Takes all tools away.
    pub fn clear_tools(&self) -> Server {
        self.registry().update(&ChangeTopic::Tools, |catalog| catalog.tools.clear());
        self.clone()
    }

    /// Whether there is a tool of this name. Aliases are no names.
    #[must_use]
    pub fn has_tool(&self, name: &str) -> bool {
        self.catalog().tools.get(name).is_some()
    }

    /// The tool of this name, as lists show it.
    #[must_use]
    pub fn get_tool(&self, name: &str) -> Option<Arc<Tool>> {
        self.catalog().tools.get(name).map(|entry| Arc::clone(&entry.tool))
    }

    /// The version of the tool of this name, apart from its server's: `1.0.0` unless it says otherwise.
    #[must_use]
    pub fn tool_version(&self, name: &str) -> Option<String> {
        self.catalog().tools.get(name).map(|entry| entry.version().to_owned())
    }

    /// How many tools there are.
    #[must_use]
    pub fn tool_count(&self) -> usize {
        self.catalog().tools.as_slice().len()
    }

    /// All tools, in the order in which they were registered.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<Tool>> {
        self.catalog().tools.iter().map(|entry| Arc::clone(&entry.tool)).collect()
    }

    /// Adds a resource, or puts it in the place of the one of that URI; see [`Server::register_tool`].
    pub fn register_resource(&self, resource: ResourceSpec) -> Server {
        self.record_error(self.add_resource(resource))
    }

    /// Takes a resource away, if it is there.
    pub fn unregister_resource(&self, uri: &str) -> Server {
        let _ = self.remove_resource(uri);
        self.clone()
    }

    /// Takes all resources away. Templates stay.
    pub fn clear_resources(&self) -> Server {
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.resources.clear());
        self.clone()
    }

    /// Whether there is a resource of this URI.
    #[must_use]
    pub fn has_resource(&self, uri: &str) -> bool {
        self.catalog().resources.get(uri).is_some()
    }

    /// The resource of this URI, as lists show it.
    #[must_use]
    pub fn get_resource(&self, uri: &str) -> Option<Arc<Resource>> {
        self.catalog().resources.get(uri).map(|entry| Arc::clone(&entry.resource))
    }

    /// How many resources there are.
    #[must_use]
    pub fn resource_count(&self) -> usize {
        self.catalog().resources.as_slice().len()
    }

    /// All resources, in the order in which they were registered.
    #[must_use]
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.catalog().resources.iter().map(|entry| Arc::clone(&entry.resource)).collect()
    }

    /// Adds a template, or puts it in the place of the one of that text; see [`Server::register_tool`].
    pub fn register_template(&self, template: TemplateSpec) -> Server {
        self.record_error(self.add_template(template))
    }

    /// Takes a template away, if it is there.
    pub fn unregister_template(&self, uri_template: &str) -> Server {
        let _ = self.remove_template(uri_template);
        self.clone()
    }

    /// Takes all templates away.
    pub fn clear_templates(&self) -> Server {
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.templates.clear());
        self.clone()
    }

    /// All templates, in the order in which they were registered.
    #[must_use]
    pub fn templates(&self) -> Vec<Arc<ResourceTemplate>> {
        self.catalog().templates.iter().map(|entry| Arc::clone(&entry.template)).collect()
    }

    /// Adds a prompt, or puts it in the place of the one of that name; see [`Server::register_tool`].
    pub fn register_prompt(&self, prompt: PromptSpec) -> Server {
        self.record_error(self.add_prompt(prompt))
    }

    /// Takes a prompt away, if it is there.
    pub fn unregister_prompt(&self, name: &str) -> Server {
        let _ = self.remove_prompt(name);
        self.clone()
    }

    /// Takes all prompts away.
    pub fn clear_prompts(&self) -> Server {
        self.registry().update(&ChangeTopic::Prompts, |catalog| catalog.prompts.clear());
        self.clone()
    }

    /// Whether there is a prompt of this name.
    #[must_use]
    pub fn has_prompt(&self, name: &str) -> bool {
        self.catalog().prompts.get(name).is_some()
    }

    /// The prompt of this name, as lists show it. [`Server::get_prompt`] fills one in.
    #[must_use]
    pub fn get_prompt_info(&self, name: &str) -> Option<Arc<Prompt>> {
        self.catalog().prompts.get(name).map(|entry| Arc::clone(&entry.prompt))
    }

    /// Offers what another server offers, instead of everything it offered itself, and is called what that one is
    /// called: its version, title, description and instructions. For descriptions that are read anew while clients are
    /// connected: the catalog changes in one step, calls under way end as they began, sessions stay, and clients are told
    /// of those lists that look otherwise now. Guards, limits and listeners stay as they are.
    ///
    /// ```
    /// # use toolgate::Server;
    /// # fn main() -> Result<(), toolgate::Error> {
    /// let shop = Server::new("shop", "1.0.0").tool("hours", || async { "9 to 5" }).build()?;
    /// let next = Server::new("shop", "1.1.0").tool("prices", || async { "low" }).build()?;
    /// shop.replace_catalog(&next)?;
    /// assert!(shop.has_tool("prices") && !shop.has_tool("hours"));
    /// assert_eq!(shop.version(), "1.1.0");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the other one was given state that this one was not: its handlers would miss it. Nothing has changed then.
    pub fn replace_catalog(&self, with: &Server) -> Result<(), Error> {
        let has = &self.0.engine.dispatcher.env.states;
        if with.0.engine.dispatcher.env.states.keys().any(|state| !has.contains_key(state)) {
            let said = "replace_catalog: the other server was given a state that this one was not";
            return Err(Error::new(ErrorKind::InvalidConfig, said.to_owned()));
        }
        let next = with.info();
        self.update_info(&|face| {
            face.implementation.version.clone_from(&next.implementation.version);
            face.implementation.title.clone_from(&next.implementation.title);
            face.implementation.description.clone_from(&next.implementation.description);
            face.implementation.website.clone_from(&next.implementation.website);
            face.implementation.icons.clone_from(&next.implementation.icons);
            face.instructions.clone_from(&next.instructions);
        });
        self.registry().replace(&with.catalog());
        Ok(())
    }

    /// How many prompts there are.
    #[must_use]
    pub fn prompt_count(&self) -> usize {
        self.catalog().prompts.as_slice().len()
    }

    /// All prompts, in the order in which they were registered.
    #[must_use]
    pub fn prompts(&self) -> Vec<Arc<Prompt>> {
        self.catalog().prompts.iter().map(|entry| Arc::clone(&entry.prompt)).collect()
    }
}

/// Requests without a transport.
impl Server {
    /// Answers a request, as if a client had sent it that names no protocol revision and stays a stranger. None
    /// for what wants no answer: notifications, and answers to nothing. Listeners hear of it and it is counted; guards
    /// are not asked, because whoever has the server is inside already.
    ///
    /// ```
    /// # use toolgate::Server;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("demo", "1.0.0").tool("hello", || async { "Hello!" }).build()?;
    /// let request = serde_json::json!({
    ///     "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "hello" }
    /// });
    /// let answer = server.handle(request).await.unwrap();
    /// assert_eq!(answer["result"]["content"][0]["text"], "Hello!");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn handle(&self, request: Value) -> Option<Value> {
        let answer = self.handle_bytes(request.to_string().into()).await?;
        Some(stored_json::response_value(&answer))
    }

    /// The same with JSON text on both sides. Text that is no JSON is answered with -32700.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let server = toolgate::Server::new("demo", "1.0.0").build()?;
    /// let answer = server.handle_str(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    /// assert_eq!(answer.as_deref(), Some(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn handle_str(&self, request: &str) -> Option<String> {
        let answer = self.handle_bytes(Bytes::copy_from_slice(request.as_bytes())).await?;
        String::from_utf8(answer.into()).ok()
    }

    async fn handle_bytes(&self, request: Bytes) -> Option<Bytes> {
        let entry: &Engine = &self.0.engine;
        let out = Stream::new(Capacity::default());
        let peer = Peer {
            principal: Principal::anonymous(),
            headers: Arc::default(),
            remote_addr: None,
            via: Channel::Duplex(DuplexConnection::new(Arc::clone(&out), None)),
            dialect: entry.dialect.load(),
            transport: Transport::Memory,
        };
        match entry.handle_message(&request, &peer, &out).await {
            Reply::Body { body, .. } => Some(body.into_bytes()),
            Reply::Accepted | Reply::NoResponse => None,
        }
    }

    /// All tools, as `tools/list` shows them to a client that names no revision; all pages of them.
    pub async fn list_tools(&self) -> Vec<Value> {
        self.list_all("tools/list", "tools").await
    }

    /// All resources, as `resources/list` shows them.
    pub async fn list_resources(&self) -> Vec<Value> {
        self.list_all("resources/list", "resources").await
    }

    /// All prompts, as `prompts/list` shows them.
    pub async fn list_prompts(&self) -> Vec<Value> {
        self.list_all("prompts/list", "prompts").await
    }

    /// Reads a resource: the result of `resources/read`.
    ///
    /// # Errors
    /// If there is none of that URI, or it cannot be read.
    pub async fn read_resource(&self, uri: &str) -> Result<Value, Error> {
        self.request("resources/read", json!({ "uri": uri })).await
    }

    /// Fills in a prompt: the result of `prompts/get`.
    ///
    /// # Errors
    /// If there is none of that name, or an argument is missing.
    pub async fn get_prompt(&self, name: &str, arguments: Value) -> Result<Value, Error> {
        self.request("prompts/get", json!({ "name": name, "arguments": arguments })).await
    }

    /// Calls a tool: the result of `tools/call`.
    ///
    /// # Errors
    /// If there is none of that name. A tool that fails says so in its result.
    pub async fn call_tool(&self, name: &str, arguments: Value) -> Result<Value, Error> {
        self.request("tools/call", json!({ "name": name, "arguments": arguments })).await
    }

    async fn request(&self, method: &str, params: Value) -> Result<Value, Error> {
        let request = json!({ "jsonrpc": "2.0", "id": 0, "method": method, "params": params });
        let mut answer = self.handle(request).await.unwrap_or_default();
        match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => {
                let said = answer["error"]["message"].as_str().unwrap_or("there is no answer");
                Err(Error::new(ErrorKind::Rejected, format!("{method}: {said}")))
            }
        }
    }

    async fn list_all(&self, method: &str, key: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut params = json!({});
        while let Ok(mut page) = self.request(method, params).await {
            if let Some(Value::Array(page)) = page.get_mut(key).map(Value::take) {
                items.extend(page);
            }
            match page.get_mut("nextCursor").map(Value::take) {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => break,
            }
        }
        items
    }
}

/// Who is connected, and what goes on.
impl Server {
    /// The clients that are remembered here: those that opened a session and did not end it. Ids are not told, because
    /// whoever has one is that client.
    ///
    /// ```
    /// # let server = toolgate::Servers::new().server("shop");
    /// for session in server.sessions() {
    ///     println!("{:?} idle for {} ms", session.client, session.idle_ms);
    /// }
    /// ```
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.0.engine.protocol.session_infos()
    }

    /// Ends all sessions of this process; says how many there were. Calls of theirs are cancelled, and their clients have
    /// to greet again. Sessions that a [store](crate::store) keeps come back with their next request.
    pub fn clear_sessions(&self) -> usize {
        self.0.engine.protocol.clear_sessions()
    }

    /// How many tasks run here.
    #[must_use]
    pub fn running_tasks(&self) -> usize {
        self.0.engine.dispatcher.tasks.running()
    }
}

/// What it counts. See [`StatsSummary`] and [`StatsDetail`] for what there is.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), toolgate::Error> {
/// let server = toolgate::Server::new("shop", "1.0.0").tool("hours", || async { "9 to 5" }).build()?;
/// server.call_tool("hours", serde_json::json!({})).await?;
/// assert_eq!(server.stats().tools.by_tool["hours"].count, 1);
/// assert_eq!(server.reset_stats().stats_summary().total_requests, 0);
/// # Ok(())
/// # }
/// ```
impl Server {
    /// The few numbers that are worth a look often: cheap enough to be polled.
    #[must_use]
    pub fn stats_summary(&self) -> StatsSummary {
        self.0.engine.observer.stats.summary()
    }

    /// All numbers. Copies the newest samples, so it costs more than [`Server::stats_summary`].
    #[must_use]
    pub fn stats(&self) -> StatsDetail {
        self.0.engine.observer.stats.detail()
    }

    /// All numbers, to be written in another form.
    pub(crate) fn stats_snapshot(&self, has_names: bool) -> ServerMetrics {
        ServerMetrics { server: self.name(), is_paused: self.is_paused(), stats: self.stats(), has_names }
    }

    /// Whether it counts.
    #[must_use]
    pub fn is_stats_enabled(&self) -> bool {
        self.0.engine.observer.stats.is_enabled()
    }

    /// Counts from now on.
    pub fn enable_stats(&self) -> Server {
        self.0.engine.observer.stats.enable();
        self.clone()
    }

    /// Stops counting; what was counted stays.
    pub fn disable_stats(&self) -> Server {
        self.0.engine.observer.stats.disable();
        self.clone()
    }

    /// Forgets what was counted.
    pub fn reset_stats(&self) -> Server {
        self.0.engine.observer.stats.reset();
        self.clone()
    }
}
