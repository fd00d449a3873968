//! The item that was added to a builder last, and the builder methods that configure it.
//!
//! `Builder<ToolSpec>` has the methods of [`ToolSpec`], and so on. The next call that adds an item or finishes the
//! builder commits the pending one to the catalog.

use std::time::Duration;

use toolgate_wire::model::{Annotations, CacheScope, Icon, TaskSupport};

use super::Builder;
use super::config::Config;
use crate::error::{BuildProblem, ProblemKind};
use crate::handler::{Context, IntoCompletion};
use crate::registry::{ClientCapability, PromptSpec, ResourceSpec, TemplateSpec, ToolSpec};

/// The type parameter of [`Builder`]: `()` or the spec of the item that was added last.
///
/// Sealed: the trait and its target cannot be named outside of this crate.
#[doc(hidden)]
pub trait PendingItem: Sized {
    /// Moves the item into the catalog, or records why it cannot be served.
    #[doc(hidden)]
    fn commit(self, target: &mut CommitTarget<'_>);
}

/// The configuration that pending items are committed to.
#[doc(hidden)]
pub struct CommitTarget<'a>(pub(super) &'a mut Config);

impl PendingItem for () {
    fn commit(self, _: &mut CommitTarget<'_>) {}
}

macro_rules! impl_pending_item {
    ($($spec:ident $key:ident $map:ident $kind:ident)*) => {$(
        impl PendingItem for $spec {
            fn commit(self, CommitTarget(config): &mut CommitTarget<'_>) {
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
    )*};
}
impl_pending_item! {
    ToolSpec name tools Tool
    ResourceSpec uri resources Resource
    TemplateSpec uri_template templates Template
    PromptSpec name prompts Prompt
}

/// Declares methods of the pending item's spec on the builder.
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
    /// Sets the tool's description, which the model reads.
    describe(description: impl Into<String>);
    /// Sets the description of one argument, which the model reads.
    describe_arg(argument: impl Into<String>, description: impl Into<String>);
    /// Sets the tool's display name.
    title(title: impl Into<String>);
    /// Declares that the tool changes nothing (`readOnlyHint`).
    read_only();
    /// Declares that the tool may delete or overwrite data (`destructiveHint`).
    destructive();
    /// Declares that repeating a call has no further effect (`idempotentHint`).
    idempotent();
    /// Declares that the tool interacts with nothing outside of this server (`openWorldHint: false`).
    closed_world();
    /// Adds a second name by which the tool can be called, and which lists do not show.
    alias(name: impl Into<String>);
    /// Adds an icon.
    icon(icon: Icon);
    /// Sets the tool's `_meta`, a JSON object.
    meta(meta: serde_json::Value);
    /// Replaces the JSON Schema of the tool's arguments, which is otherwise generated from the handler's type.
    input_schema(schema: serde_json::Value);
    /// Ignores arguments that the handler's type does not have, instead of refusing the call.
    allow_unknown_arguments();
    /// Replaces the JSON Schema of the tool's structured output, which is otherwise generated from the handler's type.
    output_schema(schema: serde_json::Value);
    /// Sets the tool's own version, for operators; see [`Server::tool_version`](crate::Server::tool_version). 1.0.0 by
    /// default.
    version(version: impl Into<String>);
    /// Limits how long a call of the tool may run, in place of [`Builder::handler_timeout`].
    timeout(timeout: Duration);
    /// Rejects calls from clients without this capability.
    requires(capability: ClientCapability);
    /// Declares whether calls of the tool can run as tasks; see [`ToolSpec::task`].
    task(support: TaskSupport);
    /// Lets the handler turn a call into a task; see [`ToolSpec::task_deferrable`].
    task_deferrable();
    /// Lets another process restart a task of the tool if the process running it ended; see [`ToolSpec::resumable`].
    resumable();
    /// Sets how long tasks of the tool are retained, unless the client requests another time.
    task_ttl(ttl: Duration);
}

delegate_to_spec! { ResourceSpec:
    /// Sets the resource's name. By default, it is the last segment of the URI.
    name(name: impl Into<String>);
    /// Sets the resource's display name.
    title(title: impl Into<String>);
    /// Sets the resource's description, which the model reads.
    describe(description: impl Into<String>);
    /// Sets the resource's MIME type.
    mime(mime: impl Into<String>);
    /// Sets the size of the resource in bytes.
    size(bytes: u64);
    /// Lets clients cache the contents for this long.
    cache(ttl: Duration, scope: CacheScope);
    /// Sets audience, priority and modification date.
    annotate(annotations: Annotations);
    /// Adds an icon.
    icon(icon: Icon);
    /// Sets the resource's `_meta`, a JSON object.
    meta(meta: serde_json::Value);
}

delegate_to_spec! { TemplateSpec:
    /// Sets the template's name. By default, it is the last literal segment of the URI template.
    name(name: impl Into<String>);
    /// Sets the template's display name.
    title(title: impl Into<String>);
    /// Sets the description of the template's resources, which the model reads.
    describe(description: impl Into<String>);
    /// Sets the MIME type of the template's resources.
    mime(mime: impl Into<String>);
    /// Lets clients cache the contents of the template's resources for this long.
    cache(ttl: Duration, scope: CacheScope);
    /// Sets audience, priority and modification date of the template's resources.
    annotate(annotations: Annotations);
    /// Adds an icon.
    icon(icon: Icon);
    /// Sets the template's `_meta`, a JSON object.
    meta(meta: serde_json::Value);
}

delegate_to_spec! { PromptSpec:
    /// Sets the prompt's description.
    describe(description: impl Into<String>);
    /// Sets the prompt's display name.
    title(title: impl Into<String>);
    /// Adds an icon.
    icon(icon: Icon);
    /// Sets the prompt's `_meta`, a JSON object.
    meta(meta: serde_json::Value);
}

macro_rules! delegate_complete {
    ($($spec:ident)*) => {$(
        impl Builder<$spec> {
            /// Sets the completer of one argument: a function from the text typed so far to suggestions
            /// (`completion/complete`).
            pub fn complete<F, Fut, M>(self, name: impl Into<String>, complete: F) -> Builder<$spec>
            where
                F: Fn(String, Context) -> Fut + Send + Sync + 'static,
                Fut: Future<Output: IntoCompletion<M>> + Send + 'static,
            {
                Builder { config: self.config, pending: self.pending.complete(name, complete) }
            }
        }
    )*};
}
delegate_complete! { ResourceSpec TemplateSpec PromptSpec }
