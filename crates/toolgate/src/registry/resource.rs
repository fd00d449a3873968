//! Resources and resource templates: the specs that users write, and the entries in the registry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolgate_wire::RawJson;
use toolgate_wire::model::{Annotations, CacheHint, CacheScope, Icon, Resource, ResourceTemplate};

use super::template::UriTemplate;
use super::tool::check_icons;
use super::{Keyed, ListEntry, View};
use crate::handler::{
    CompleteFn, Context, Handler, HandlerRequirements, HandlerSignature, IntoCompletion, IntoContents,
    ReadFn, erase_complete, erase_read,
};

/// Creates the read function of a resource once its MIME type is known.
type ReadFnFactory = Box<dyn FnOnce(Option<String>) -> ReadFn + Send>;

/// A resource in the registry.
pub(crate) struct ResourceEntry {
    pub(crate) resource: Arc<Resource>,
    pub(crate) run: ReadFn,
    pub(crate) cache: Option<CacheHint>,
    pub(crate) completers: BTreeMap<String, CompleteFn>,
}

/// A resource template in the registry.
pub(crate) struct TemplateEntry {
    pub(crate) template: Arc<ResourceTemplate>,
    pub(crate) pattern: UriTemplate,
    pub(crate) run: ReadFn,
    pub(crate) cache: Option<CacheHint>,
    pub(crate) completers: BTreeMap<String, CompleteFn>,
}

impl std::fmt::Debug for ResourceEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceEntry").field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for TemplateEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TemplateEntry").field("template", &self.template).finish_non_exhaustive()
    }
}

impl Keyed for ResourceEntry {
    fn key(&self) -> &str {
        &self.resource.uri
    }
}

impl Keyed for TemplateEntry {
    fn key(&self) -> &str {
        &self.template.uri_template
    }
}

impl ListEntry for ResourceEntry {
    type Item = Resource;

    fn item(&self) -> Arc<Resource> {
        Arc::clone(&self.resource)
    }

    fn is_visible(&self, view: View<'_>) -> bool {
        view.shows_resource(self.key())
    }
}

impl ListEntry for TemplateEntry {
    type Item = ResourceTemplate;

    fn item(&self) -> Arc<ResourceTemplate> {
        Arc::clone(&self.template)
    }

    fn is_visible(&self, view: View<'_>) -> bool {
        view.shows_resource(self.key())
    }
}

/// A resource: URI, description and handler. Added with [`Builder::add_resource`](crate::Builder::add_resource) or
/// [`Server::add_resource`](crate::Server::add_resource).
///
/// ```
/// # use toolgate::{ResourceSpec, Server};
/// let readme = ResourceSpec::new("docs://readme", || async { "# Read me" }).mime("text/markdown");
/// let server = Server::new("demo", "1.0.0").add_resource(readme);
/// # assert!(server.build().is_ok());
/// ```
pub struct ResourceSpec {
    resource: Resource,
    read_factory: ReadFnFactory,
    cache: Option<CacheHint>,
    completers: BTreeMap<String, CompleteFn>,
    pub(crate) requirements: HandlerRequirements,
}

/// A resource template: URI template, description and handler. Added with
/// [`Builder::add_template`](crate::Builder::add_template) or [`Server::add_template`](crate::Server::add_template).
///
/// ```
/// # use toolgate::{Server, TemplateSpec};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Which { id: u32 }
///
/// let note = TemplateSpec::new("notes://{id}", |which: Which| async move {
///     (which.id < 2).then(|| format!("Note {}", which.id))
/// })
/// .complete("id", |_, _| async { ["0", "1"] });
/// let server = Server::new("demo", "1.0.0").add_template(note);
/// # assert!(server.build().is_ok());
/// ```
pub struct TemplateSpec {
    template: ResourceTemplate,
    read_factory: ReadFnFactory,
    cache: Option<CacheHint>,
    completers: BTreeMap<String, CompleteFn>,
    pub(crate) requirements: HandlerRequirements,
}

macro_rules! spec_setters {
    ($spec:ident, $field:ident) => {
        impl std::fmt::Debug for $spec {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($spec))
                    .field(stringify!($field), &self.$field)
                    .finish_non_exhaustive()
            }
        }

        impl $spec {
            /// Sets the name. By default, it is the last literal segment of the URI.
            #[must_use]
            pub fn name(mut self, name: impl Into<String>) -> $spec {
                self.$field.name = name.into();
                self
            }

            /// Sets the display name.
            #[must_use]
            pub fn title(mut self, title: impl Into<String>) -> $spec {
                self.$field.title = Some(title.into());
                self
            }

            /// Sets the description, which the model reads.
            #[must_use]
            pub fn describe(mut self, description: impl Into<String>) -> $spec {
                self.$field.description = Some(description.into());
                self
            }

            /// Sets the MIME type, for contents without one of their own.
            #[must_use]
            pub fn mime(mut self, mime: impl Into<String>) -> $spec {
                self.$field.mime = Some(mime.into());
                self
            }

            /// Sets audience, priority and modification date.
            #[must_use]
            pub fn annotate(mut self, annotations: Annotations) -> $spec {
                self.$field.annotations = Some(annotations);
                self
            }

            /// Adds an icon.
            #[must_use]
            pub fn icon(mut self, icon: Icon) -> $spec {
                self.$field.icons.push(icon);
                self
            }

            /// Sets `_meta`, a JSON object with data for specific clients.
            #[must_use]
            pub fn meta(mut self, meta: Value) -> $spec {
                self.$field.meta = Some(RawJson::from(meta));
                self
            }

            /// Lets clients cache the contents for this long.
            #[must_use]
            pub fn cache(mut self, ttl: Duration, scope: CacheScope) -> $spec {
                self.cache = Some(cache_hint(ttl, scope));
                self
            }
        }
    };
}
spec_setters!(ResourceSpec, resource);
spec_setters!(TemplateSpec, template);

impl ResourceSpec {
    /// Creates a resource with this URI.
    pub fn new<A: 'static, H>(uri: impl Into<String>, handler: H) -> ResourceSpec
    where
        H: HandlerSignature<A> + Handler<A>,
        H::Output: IntoContents,
    {
        ResourceSpec::from_parts(uri.into(), Box::new(|mime| erase_read(handler, mime)), H::requirements())
    }

    fn from_parts(
        uri: String,
        read_factory: ReadFnFactory,
        requirements: HandlerRequirements,
    ) -> ResourceSpec {
        let name = default_name(&uri);
        let resource = Resource::new(uri, name);
        ResourceSpec { resource, read_factory, cache: None, completers: BTreeMap::new(), requirements }
    }

    /// Sets the size in bytes.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> ResourceSpec {
        self.resource.size = Some(bytes);
        self
    }

    /// Sets a completer: a function from the text typed so far to suggestions. Clients request it by the resource's URI and this
    /// name.
    #[must_use]
    pub fn complete<F, Fut, M>(mut self, name: impl Into<String>, complete: F) -> ResourceSpec
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCompletion<M>> + Send + 'static,
    {
        self.completers.insert(name.into(), erase_complete(complete));
        self
    }

    pub(crate) fn uri(&self) -> &str {
        &self.resource.uri
    }

    pub(crate) fn build_entry(self) -> Result<ResourceEntry, String> {
        let ResourceSpec { resource, read_factory, cache, completers, .. } = self;
        check_icons(&resource.icons)?;
        if !has_scheme(&resource.uri) {
            return Err("a resource's URI starts with a scheme, such as `notes://`".into());
        }
        let run = read_factory(resource.mime.clone());
        Ok(ResourceEntry { resource: Arc::new(resource), run, cache, completers })
    }
}

impl TemplateSpec {
    /// Creates a resource template from a URI template (RFC 6570), such as `notes://{id}` or `file:///{+path}`.
    pub fn new<A: 'static, H>(uri_template: impl Into<String>, handler: H) -> TemplateSpec
    where
        H: HandlerSignature<A> + Handler<A>,
        H::Output: IntoContents,
    {
        TemplateSpec::from_parts(
            uri_template.into(),
            Box::new(|mime| erase_read(handler, mime)),
            H::requirements(),
        )
    }

    fn from_parts(
        uri_template: String,
        read_factory: ReadFnFactory,
        requirements: HandlerRequirements,
    ) -> TemplateSpec {
        let name = default_name(&uri_template);
        let template = ResourceTemplate::new(uri_template, name);
        TemplateSpec { template, read_factory, cache: None, completers: BTreeMap::new(), requirements }
    }

    /// Sets the completer of one variable: a function from the text typed so far to suggestions.
    #[must_use]
    pub fn complete<F, Fut, M>(mut self, variable: impl Into<String>, complete: F) -> TemplateSpec
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCompletion<M>> + Send + 'static,
    {
        self.completers.insert(variable.into(), erase_complete(complete));
        self
    }

    /// Like [`TemplateSpec::complete`], with an erased completer.
    pub(crate) fn with_completer(mut self, variable: &str, complete: CompleteFn) -> TemplateSpec {
        self.completers.insert(variable.to_owned(), complete);
        self
    }

    pub(crate) fn uri_template(&self) -> &str {
        &self.template.uri_template
    }

    pub(crate) fn build_entry(self) -> Result<TemplateEntry, String> {
        let TemplateSpec { template, read_factory, cache, completers, .. } = self;
        check_icons(&template.icons)?;
        let pattern = UriTemplate::parse(&template.uri_template).map_err(|error| error.to_string())?;
        if let Some(unknown) = completers.keys().find(|name| !pattern.names().any(|known| known == *name)) {
            return Err(format!("it completes `{unknown}`, which is not one of its variables"));
        }
        let run = read_factory(template.mime.clone());
        Ok(TemplateEntry { template: Arc::new(template), pattern, run, cache, completers })
    }
}

pub(crate) fn cache_hint(ttl: Duration, scope: CacheScope) -> CacheHint {
    CacheHint { ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX), scope }
}

/// Returns the last segment of a URI, or of a template the last one without variables.
fn default_name(uri: &str) -> String {
    let mut parts = uri.split('/').filter(|part| !part.is_empty() && !part.contains('{'));
    parts.next_back().unwrap_or(uri).trim_end_matches(':').to_owned()
}

fn has_scheme(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_name_is_the_last_literal_segment() {
        assert_eq!(default_name("file:///etc/motd"), "motd");
        assert_eq!(default_name("notes://all"), "all");
        assert_eq!(default_name("notes://note/{id}"), "note");
        assert_eq!(default_name("notes://{id}"), "notes");
        assert_eq!(default_name("file:///{+path}"), "file");
    }

    #[test]
    fn a_uri_has_a_scheme() {
        assert!(has_scheme("notes://all") && has_scheme("urn:x") && has_scheme("a+b://c"));
        assert!(!has_scheme("notes") && !has_scheme("://x") && !has_scheme("1a://x") && !has_scheme("a b:c"));
    }
}
