//! The item that was added to a builder last, and the builder methods that configure it.
//!
//! [`Builder`] has the methods of all specs. They apply to the item added last; the next call that adds an item or finishes
//! the builder commits it to the catalog. A builder has the same type whatever was added to it, so a method that does not
//! apply to that item is a configuration error.

use std::time::Duration;

use toolgate_wire::model::{Annotations, CacheScope, Icon, TaskSupport};

use super::Builder;
use super::config::Config;
use crate::error::{BuildProblem, ProblemKind};
use crate::handler::{Context, IntoCompletion};
use crate::registry::{ClientCapability, PromptSpec, ResourceSpec, TemplateSpec, ToolSpec};

/// The item added last, which the next calls may configure. Not in the catalog yet.
#[derive(Default)]
pub(super) enum PendingItem {
    #[default]
    None,
    Tool(Box<ToolSpec>),
    Resource(Box<ResourceSpec>),
    Template(Box<TemplateSpec>),
    Prompt(Box<PromptSpec>),
}

impl PendingItem {
    /// Moves the item into the catalog, or records why it cannot be served.
    pub(super) fn commit(self, config: &mut Config) {
        match self {
            PendingItem::None => {}
            PendingItem::Tool(spec) => spec.commit(config),
            PendingItem::Resource(spec) => spec.commit(config),
            PendingItem::Template(spec) => spec.commit(config),
            PendingItem::Prompt(spec) => spec.commit(config),
        }
    }

    fn describe(&self) -> Option<String> {
        match self {
            PendingItem::None => None,
            PendingItem::Tool(spec) => Some(format!("tool `{}`", spec.name())),
            PendingItem::Resource(spec) => Some(format!("resource `{}`", spec.uri())),
            PendingItem::Template(spec) => Some(format!("template `{}`", spec.uri_template())),
            PendingItem::Prompt(spec) => Some(format!("prompt `{}`", spec.name())),
        }
    }
}

/// A spec that can be moved into the catalog of a server.
pub(super) trait CommitSpec {
    /// Moves the item into the catalog, or records why it cannot be served.
    fn commit(self, config: &mut Config);
}

macro_rules! impl_commit_spec {
    ($($spec:ident $key:ident $map:ident $kind:ident)*) => {$(
        impl CommitSpec for $spec {
            fn commit(self, config: &mut Config) {
                let key = self.$key().to_owned();
                if config.catalog.$map.get(&key).is_some() {
                    config.errors.push(BuildProblem::duplicate(ProblemKind::$kind, &key));
                    return;
                }
                config.requirements.push((ProblemKind::$kind, key.clone(), self.requirements.clone()));
                let inserted = self.build_entry().and_then(|entry| match config.catalog.$map.find_conflict(&entry) {
                    None => {
                        config.catalog.$map.insert(entry);
                        Ok(())
                    }
                    Some(conflict) => Err(conflict),
                });
                let problem = inserted.err().map(|message| BuildProblem::new(ProblemKind::$kind, &key, message));
                config.errors.extend(problem);
            }
        }

        impl From<$spec> for PendingItem {
            fn from(spec: $spec) -> PendingItem {
                PendingItem::$kind(Box::new(spec))
            }
        }
    )*};
}
impl_commit_spec! {
    ToolSpec name tools Tool
    ResourceSpec uri resources Resource
    TemplateSpec uri_template templates Template
    PromptSpec name prompts Prompt
}

/// The problem of a method that does not apply to the item added last.
fn misplaced_method(method: &str, kinds: &[&str], item: &PendingItem) -> BuildProblem {
    let kinds = match kinds {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => kinds.concat(),
    };
    let kinds = kinds.to_lowercase();
    let server_setting = match method {
        "describe" => "; `server_description` describes the server",
        "title" => "; `server_title` is for the server",
        "icon" => "; `server_icon` is for the server",
        "version" => "; `server_version` is for the server",
        "timeout" => "; `handler_timeout` is for all tools",
        "task_ttl" => "; `default_task_ttl` is for all tools",
        "cache" => "; `cache_lists` is for lists",
        _ => "",
    };
    let message = match item.describe() {
        Some(item) => format!("it configures a {kinds}, and the item added last is the {item}"),
        None => format!("it configures a {kinds}, and must follow the call that adds one{server_setting}"),
    };
    BuildProblem::setting(method, message)
}

/// Applies a method of specs to the item added last, if it is of one of these kinds.
macro_rules! apply_to_item {
    ($builder:ident, $method:ident, $arguments:tt, $($kind:ident)+) => {{
        let Builder { mut config, pending } = $builder;
        let pending = match pending {
            $(PendingItem::$kind(spec) => PendingItem::$kind(Box::new(spec.$method $arguments)),)+
            // The last kind may be the last variant.
            #[allow(unreachable_patterns)]
            other => {
                config.errors.push(misplaced_method(stringify!($method), &[$(stringify!($kind)),+], &other));
                other
            }
        };
        Builder { config, pending }
    }};
}

/// Declares methods of specs on the builder, with the kinds of items that have them.
macro_rules! item_methods {
    ($($(#[$doc:meta])* $method:ident($($argument:ident: $type:ty),*) $($kind:ident)+;)*) => {
        /// Settings of the item that was added last.
        impl Builder {$(
            $(#[$doc])*
            pub fn $method(self, $($argument: $type),*) -> Builder {
                apply_to_item!(self, $method, ($($argument),*), $($kind)+)
            }
        )*}
    };
}

item_methods! {
    /// Sets the description of the tool, resource, template or prompt added last, which the model reads.
    describe(description: impl Into<String>) Tool Resource Template Prompt;
    /// Sets the display name of the tool, resource, template or prompt added last.
    title(title: impl Into<String>) Tool Resource Template Prompt;
    /// Adds an icon to the tool, resource, template or prompt added last.
    icon(icon: Icon) Tool Resource Template Prompt;
    /// Sets the `_meta` of the tool, resource, template or prompt added last, a JSON object.
    meta(meta: serde_json::Value) Tool Resource Template Prompt;

    /// Sets the description of one argument of the tool added last, which the model reads.
    describe_arg(argument: impl Into<String>, description: impl Into<String>) Tool;
    /// Declares that the tool added last changes nothing (`readOnlyHint`).
    read_only() Tool;
    /// Declares that the tool added last may delete or overwrite data (`destructiveHint`).
    destructive() Tool;
    /// Declares that repeating a call of the tool added last has no further effect (`idempotentHint`).
    idempotent() Tool;
    /// Declares that the tool added last interacts with nothing outside of this server (`openWorldHint: false`).
    closed_world() Tool;
    /// Adds a second name by which the tool added last can be called, and which lists do not show.
    alias(name: impl Into<String>) Tool;
    /// Replaces the JSON Schema of the arguments of the tool added last, which is otherwise generated from the handler's
    /// type.
    input_schema(schema: serde_json::Value) Tool;
    /// Ignores unknown arguments of the tool added last, instead of rejecting the call.
    allow_unknown_arguments() Tool;
    /// Replaces the JSON Schema of the structured output of the tool added last, which is otherwise generated from the
    /// handler's type.
    output_schema(schema: serde_json::Value) Tool;
    /// Sets the version of the tool added last, which operators see; see
    /// [`Server::tool_version`](crate::Server::tool_version). 1.0.0 by default. [`Builder::server_version`] sets the version
    /// of the server.
    version(version: impl Into<String>) Tool;
    /// Limits how long a call of the tool added last may run, in place of [`Builder::handler_timeout`].
    timeout(timeout: Duration) Tool;
    /// Rejects calls of the tool added last from clients without this capability.
    requires(capability: ClientCapability) Tool;
    /// Declares whether calls of the tool added last can run as tasks; see [`ToolSpec::task`].
    task(support: TaskSupport) Tool;
    /// Lets the handler of the tool added last turn a call into a task; see [`ToolSpec::task_deferrable`].
    task_deferrable() Tool;
    /// Lets another process restart a task of the tool added last if the process running it ended; see
    /// [`ToolSpec::resumable`].
    resumable() Tool;
    /// Sets how long tasks of the tool added last are retained, unless the client requests another time.
    task_ttl(ttl: Duration) Tool;

    /// Sets the name of the resource or template added last. By default, it is the last literal segment of the URI.
    name(name: impl Into<String>) Resource Template;
    /// Sets the MIME type of the resource or template added last.
    mime(mime: impl Into<String>) Resource Template;
    /// Sets the size in bytes of the resource added last.
    size(bytes: u64) Resource;
    /// Lets clients cache the contents of the resource or template added last for this long.
    cache(ttl: Duration, scope: CacheScope) Resource Template;
    /// Sets audience, priority and modification date of the resource or template added last.
    annotate(annotations: Annotations) Resource Template;
}

impl Builder {
    /// Sets the completer of one argument of the resource, template or prompt added last: a function from the text typed so
    /// far to suggestions (`completion/complete`).
    pub fn complete<F, Fut, M>(self, name: impl Into<String>, complete: F) -> Builder
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCompletion<M>> + Send + 'static,
    {
        apply_to_item!(self, complete, (name, complete), Resource Template Prompt)
    }
}
