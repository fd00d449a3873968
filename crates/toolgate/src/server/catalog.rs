//! Tools, resources, templates and prompts of a running server: add, remove, look up, replace.

use std::sync::Arc;

use toolgate_wire::model::{Prompt, Resource, ResourceTemplate, Tool};

use super::{Server, build_error};
#[cfg(feature = "macros")]
use crate::collect::{ModuleScope, linked_items, nothing_linked_message};
use crate::collect::{Register, SpecSet, group_items};
use crate::error::{BuildProblem, Error, ErrorKind, ProblemKind};
use crate::handler::HandlerRequirements;
use crate::observe::{ErrorContext, ErrorEvent};
use crate::registry::{PromptSpec, Registry, ResourceSpec, Snapshot, TemplateSpec, ToolSpec};
use crate::subscriptions::ChangeTopic;

/// Validates a spec and inserts it into one map of the catalog. The four kinds of items share no trait.
macro_rules! insert_item {
    ($server:ident, $spec:ident, $key:ident, $map:ident, $topic:ident, $kind:ident) => {{
        let name = $spec.$key().to_owned();
        let mut conflict = None;
        let entry = $server.check_requirements(&$spec.requirements).and_then(|()| $spec.build_entry());
        let inserted = entry.and_then(|entry| {
            $server.registry().update(&ChangeTopic::$topic, |catalog| {
                conflict = catalog.$map.find_conflict(&entry);
                conflict.is_none() && catalog.$map.insert(entry)
            });
            conflict.map_or(Ok(()), Err)
        });
        let problem = |message: String| BuildProblem::new(ProblemKind::$kind, &name, message);
        $server.finish_insert(inserted.map_err(|message| build_error(vec![problem(message)])))
    }};
}

/// Items, which can change while the server runs. Connected clients are notified.
///
/// ```
/// # use toolgate::{PromptSpec, ResourceSpec, Servers, ToolSpec};
/// # fn main() -> Result<(), toolgate::Error> {
/// let server = Servers::new().server("shop");
/// server
///     .add_tool(ToolSpec::new("hours", || async { "9 to 5" }).describe("When the shop is open"))?
///     .add_resource(ResourceSpec::new("shop://motto", || async { "Tea first" }))?
///     .add_prompt(PromptSpec::new("greet", || async { "Greet a customer" }))?;
/// assert!(server.has_tool("hours") && server.has_resource("shop://motto") && server.has_prompt("greet"));
/// assert_eq!(server.get_tool("hours").unwrap().description.as_deref(), Some("When the shop is open"));
/// assert!(server.remove_tool("hours"));
/// server.clear_prompts();
/// assert_eq!((server.tool_count(), server.resource_count(), server.prompt_count()), (0, 1, 0));
/// # Ok(())
/// # }
/// ```
impl Server {
    /// Adds a tool, or replaces the tool with the same name.
    ///
    /// # Errors
    /// If the tool is invalid; the server is unchanged.
    pub fn add_tool(&self, tool: ToolSpec) -> Result<Server, Error> {
        insert_item!(self, tool, name, tools, Tools, Tool)
    }

    /// Removes a tool and its aliases. Returns whether it existed.
    pub fn remove_tool(&self, name: &str) -> bool {
        self.registry().update(&ChangeTopic::Tools, |catalog| catalog.tools.remove(name))
    }

    /// Removes all tools.
    pub fn clear_tools(&self) -> Server {
        self.registry().update(&ChangeTopic::Tools, |catalog| catalog.tools.clear());
        self.clone()
    }

    /// Returns whether there is a tool with this name. Aliases do not count.
    #[must_use]
    pub fn has_tool(&self, name: &str) -> bool {
        self.catalog().tools.get(name).is_some()
    }

    /// Returns the description of a tool, as lists show it.
    #[must_use]
    pub fn get_tool(&self, name: &str) -> Option<Arc<Tool>> {
        self.catalog().tools.get(name).map(|entry| Arc::clone(&entry.tool))
    }

    /// Returns the version of a tool, which is independent of the server's version: `1.0.0` by default.
    #[must_use]
    pub fn tool_version(&self, name: &str) -> Option<String> {
        self.catalog().tools.get(name).map(|entry| entry.version().to_owned())
    }

    /// Returns the number of tools.
    #[must_use]
    pub fn tool_count(&self) -> usize {
        self.catalog().tools.as_slice().len()
    }

    /// Returns all tools, in the order of registration.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<Tool>> {
        self.catalog().tools.iter().map(|entry| Arc::clone(&entry.tool)).collect()
    }

    /// Adds a resource, or replaces the resource with the same URI.
    ///
    /// # Errors
    /// If the resource is invalid; the server is unchanged.
    pub fn add_resource(&self, resource: ResourceSpec) -> Result<Server, Error> {
        insert_item!(self, resource, uri, resources, Resources, Resource)
    }

    /// Removes a resource. Returns whether it existed.
    pub fn remove_resource(&self, uri: &str) -> bool {
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.resources.remove(uri))
    }

    /// Removes all resources, but no templates.
    pub fn clear_resources(&self) -> Server {
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.resources.clear());
        self.clone()
    }

    /// Returns whether there is a resource with this URI.
    #[must_use]
    pub fn has_resource(&self, uri: &str) -> bool {
        self.catalog().resources.get(uri).is_some()
    }

    /// Returns the description of a resource, as lists show it.
    #[must_use]
    pub fn get_resource(&self, uri: &str) -> Option<Arc<Resource>> {
        self.catalog().resources.get(uri).map(|entry| Arc::clone(&entry.resource))
    }

    /// Returns the number of resources.
    #[must_use]
    pub fn resource_count(&self) -> usize {
        self.catalog().resources.as_slice().len()
    }

    /// Returns all resources, in the order of registration.
    #[must_use]
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.catalog().resources.iter().map(|entry| Arc::clone(&entry.resource)).collect()
    }

    /// Adds a resource template, or replaces the one with the same URI template.
    ///
    /// # Errors
    /// If the template is invalid; the server is unchanged.
    pub fn add_template(&self, template: TemplateSpec) -> Result<Server, Error> {
        insert_item!(self, template, uri_template, templates, Resources, Template)
    }

    /// Removes a resource template. Returns whether it existed.
    pub fn remove_template(&self, uri_template: &str) -> bool {
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.templates.remove(uri_template))
    }

    /// Removes all resource templates.
    pub fn clear_templates(&self) -> Server {
        self.registry().update(&ChangeTopic::Resources, |catalog| catalog.templates.clear());
        self.clone()
    }

    /// Returns all resource templates, in the order of registration.
    #[must_use]
    pub fn templates(&self) -> Vec<Arc<ResourceTemplate>> {
        self.catalog().templates.iter().map(|entry| Arc::clone(&entry.template)).collect()
    }

    /// Adds a prompt, or replaces the prompt with the same name.
    ///
    /// # Errors
    /// If the prompt is invalid; the server is unchanged.
    pub fn add_prompt(&self, prompt: PromptSpec) -> Result<Server, Error> {
        insert_item!(self, prompt, name, prompts, Prompts, Prompt)
    }

    /// Removes a prompt. Returns whether it existed.
    pub fn remove_prompt(&self, name: &str) -> bool {
        self.registry().update(&ChangeTopic::Prompts, |catalog| catalog.prompts.remove(name))
    }

    /// Removes all prompts.
    pub fn clear_prompts(&self) -> Server {
        self.registry().update(&ChangeTopic::Prompts, |catalog| catalog.prompts.clear());
        self.clone()
    }

    /// Returns whether there is a prompt with this name.
    #[must_use]
    pub fn has_prompt(&self, name: &str) -> bool {
        self.catalog().prompts.get(name).is_some()
    }

    /// Returns the description of a prompt, as lists show it. [`Server::get_prompt`] returns its messages.
    #[must_use]
    pub fn get_prompt_info(&self, name: &str) -> Option<Arc<Prompt>> {
        self.catalog().prompts.get(name).map(|entry| Arc::clone(&entry.prompt))
    }

    /// Returns the number of prompts.
    #[must_use]
    pub fn prompt_count(&self) -> usize {
        self.catalog().prompts.as_slice().len()
    }

    /// Returns all prompts, in the order of registration.
    #[must_use]
    pub fn prompts(&self) -> Vec<Arc<Prompt>> {
        self.catalog().prompts.iter().map(|entry| Arc::clone(&entry.prompt)).collect()
    }

    /// Replaces all items, and version, title, description and instructions, by those of another server.
    ///
    /// For configurations that are reloaded while clients are connected. The catalog changes atomically: calls in
    /// flight end with the handler they started with, sessions stay open, and clients are notified of the lists that
    /// changed. Guards, limits and listeners stay as they are.
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
    /// If the other server has [state](crate::Builder::state) that this one lacks, which its handlers would miss. This
    /// server is unchanged.
    pub fn replace_catalog(&self, with: &Server) -> Result<(), Error> {
        let states = &self.0.engine.dispatcher.env.states;
        if with.0.engine.dispatcher.env.states.keys().any(|state| !states.contains_key(state)) {
            let message = "replace_catalog: the other server was given a state that this one was not";
            return Err(Error::new(ErrorKind::InvalidConfig, message.to_owned()));
        }
        let next = with.info();
        self.update_info(&|info| {
            info.implementation.version.clone_from(&next.implementation.version);
            info.implementation.title.clone_from(&next.implementation.title);
            info.implementation.description.clone_from(&next.implementation.description);
            info.implementation.website.clone_from(&next.implementation.website);
            info.implementation.icons.clone_from(&next.implementation.icons);
            info.instructions.clone_from(&next.instructions);
        });
        self.registry().replace(&with.catalog());
        Ok(())
    }

    /// Publishes the error of an insertion to listeners.
    fn finish_insert(&self, inserted: Result<(), Error>) -> Result<Server, Error> {
        match inserted {
            Ok(()) => Ok(self.clone()),
            Err(error) => {
                self.publish_error(ErrorContext::Register, &error);
                Err(error)
            }
        }
    }

    pub(super) fn publish_error(&self, context: ErrorContext, error: &Error) {
        let observer = &self.0.engine.observer;
        observer.events.publish(ErrorEvent::new(&observer.server, context, error.to_string()));
    }

    fn check_requirements(&self, requirements: &HandlerRequirements) -> Result<(), String> {
        let states = &self.0.engine.dispatcher.env.states;
        requirements.find_missing(|state| states.contains_key(state)).map_or(Ok(()), Err)
    }

    fn registry(&self) -> &Registry {
        self.0.engine.protocol.start_cluster();
        &self.0.engine.dispatcher.registry
    }

    pub(super) fn catalog(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.registry().snapshot()
    }

    /// Returns the output schema of a tool, by name or alias.
    #[cfg(feature = "testing")]
    pub(crate) fn output_schema_of(&self, tool: &str) -> Option<toolgate_wire::RawJson> {
        self.catalog().tools.get_or_alias(tool)?.tool.output_schema.clone()
    }
}

/// Marked functions and impl blocks.
impl Server {
    /// Adds items as [`Builder::add`](crate::Builder::add) does, replacing items with the same names. Instructions are not
    /// changed, because clients receive them when they connect.
    ///
    /// # Errors
    /// If any of the items is invalid; the server is unchanged.
    pub fn add(&self, items: impl Register) -> Result<Server, Error> {
        self.finish_collect(self.insert_all(group_items(items.into_items())))?;
        Ok(self.clone())
    }

    /// Adds every function marked with `#[tool]`, `#[resource]`, `#[template]`, `#[prompt]` or `#[complete]` in a module
    /// and its submodules. Returns the names and URIs.
    ///
    /// # Errors
    /// If there are none, or any of them is invalid; the server is unchanged.
    #[cfg(feature = "macros")]
    pub fn collect_from(&self, module: &str) -> Result<Vec<String>, Error> {
        self.collect_scope(ModuleScope::Subtree(module), module)
    }

    /// Adds every marked function of a module, without its submodules. Returns the names and URIs.
    ///
    /// # Errors
    /// If there are none, or any of them is invalid; the server is unchanged.
    #[cfg(feature = "macros")]
    pub fn collect_module(&self, module: &str) -> Result<Vec<String>, Error> {
        self.collect_scope(ModuleScope::Module(module), module)
    }

    #[cfg(feature = "macros")]
    fn collect_scope(&self, scope: ModuleScope<'_>, module: &str) -> Result<Vec<String>, Error> {
        self.finish_collect(match linked_items(scope) {
            Some(items) => self.insert_all(group_items(items)),
            None => Err(Error::new(ErrorKind::Scan, nothing_linked_message(module))),
        })
    }

    /// Publishes the error of a collection to listeners.
    fn finish_collect(&self, collected: Result<Vec<String>, Error>) -> Result<Vec<String>, Error> {
        collected.inspect_err(|error| self.publish_error(ErrorContext::ScanClass, error))
    }

    /// Inserts all items or none. Returns their names and URIs.
    fn insert_all(&self, specs: SpecSet) -> Result<Vec<String>, Error> {
        let mut errors: Vec<BuildProblem> = specs.errors.into_iter().map(BuildProblem::general).collect();
        let mut names = Vec::new();
        macro_rules! build_entries {
            ($specs:ident $key:ident $kind:ident) => {{
                let mut entries = Vec::new();
                for spec in specs.$specs {
                    let name = spec.$key().to_owned();
                    match self.check_requirements(&spec.requirements).and_then(|()| spec.build_entry()) {
                        Ok(entry) => entries.push(entry),
                        Err(error) => errors.push(BuildProblem::new(ProblemKind::$kind, &name, error)),
                    }
                    names.push(name);
                }
                entries
            }};
        }
        let tools = build_entries!(tools name Tool);
        let resources = build_entries!(resources uri Resource);
        let templates = build_entries!(templates uri_template Template);
        let prompts = build_entries!(prompts name Prompt);
        if !errors.is_empty() {
            return Err(build_error(errors));
        }
        let registry = self.registry();
        registry.update(&ChangeTopic::Tools, |catalog| {
            let mut changed = false;
            for entry in tools {
                match catalog.tools.find_conflict(&entry) {
                    None => changed = catalog.tools.insert(entry),
                    Some(conflict) => {
                        errors.push(BuildProblem::new(ProblemKind::Tool, &entry.tool.name, conflict));
                    }
                }
            }
            changed && errors.is_empty()
        });
        if !errors.is_empty() {
            return Err(build_error(errors));
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
