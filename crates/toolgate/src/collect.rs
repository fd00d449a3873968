//! Items made by the attribute macros, and how a server collects them.
//!
//! An attribute macro generates a function that makes an [`Item`]. A server takes single items, lists of them, values
//! whose impl block makes several ([`Register`]), or all that are linked into the program ([`linked_items`]). An item is
//! a spec of the registry together with the path of the function it was made from. This module does not validate specs
//! and serves nothing.

use std::fmt;
use std::sync::Arc;

use crate::handler::{
    CompleteFn, Handler, HandlerFailure, HandlerRequirements, IntoContents, erase_complete_handler,
};
use crate::registry::{PromptSpec, ResourceSpec, TemplateSpec, ToolSpec};

/// A tool, resource, resource template or prompt, or a completer for a resource template or a prompt.
///
/// The attribute macros make items, [`items!`](crate::items) lists them, and every spec converts into one.
///
/// ```
/// # use toolgate::{Item, Server, ToolSpec};
/// let item: Item = ToolSpec::new("hello", || async { "Hello!" }).into();
/// let server = Server::new("demo", "1.0.0").add(item).build();
/// # assert!(server.is_ok());
/// ```
pub struct Item {
    /// Path of the function that the item was made from; empty if it was made from a spec.
    origin: &'static str,
    spec: ItemSpec,
}

enum ItemSpec {
    Tool(Box<ToolSpec>),
    Resource(ResourceSpec),
    Template(TemplateSpec),
    Prompt(PromptSpec),
    Completer(Completer),
}

/// Completes arguments of templates and prompts.
#[doc(hidden)]
pub struct Completer {
    /// Origin of each template or prompt, and the argument to complete.
    targets: Vec<(&'static str, &'static str)>,
    run: CompleteFn,
    requirements: HandlerRequirements,
}

impl Completer {
    /// The text typed so far is passed as the handler's argument `prefix_argument`.
    #[doc(hidden)]
    pub fn new<A: 'static, H>(
        targets: Vec<(&'static str, &'static str)>,
        prefix_argument: &'static str,
        handler: H,
    ) -> Completer
    where
        H: Handler<A, Output = Result<Vec<String>, HandlerFailure>>,
    {
        Completer {
            targets,
            run: erase_complete_handler(handler, prefix_argument),
            requirements: H::requirements(),
        }
    }
}

impl Item {
    /// Sets the path of the function that the item was made from.
    #[doc(hidden)]
    #[must_use]
    pub fn with_origin(mut self, origin: &'static str) -> Item {
        self.origin = origin;
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn origin(&self) -> &'static str {
        self.origin
    }

    fn kind(&self) -> (&'static str, &str) {
        match &self.spec {
            ItemSpec::Tool(tool) => ("tool", tool.name()),
            ItemSpec::Resource(resource) => ("resource", resource.uri()),
            ItemSpec::Template(template) => ("template", template.uri_template()),
            ItemSpec::Prompt(prompt) => ("prompt", prompt.name()),
            ItemSpec::Completer(completer) => {
                ("completer", completer.targets.first().map_or("", |(_, argument)| argument))
            }
        }
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, key) = self.kind();
        f.debug_struct("Item").field(kind, &key).finish_non_exhaustive()
    }
}

macro_rules! impl_from_spec {
    ($($spec:ident $variant:ident)*) => {$(
        impl From<$spec> for Item {
            fn from(spec: $spec) -> Item {
                Item { origin: "", spec: ItemSpec::$variant(spec.into()) }
            }
        }
    )*};
}
impl_from_spec! { ToolSpec Tool ResourceSpec Resource TemplateSpec Template PromptSpec Prompt Completer Completer }

/// Items that a server can add at once; see [`Builder::add`](crate::Builder::add).
///
/// Implemented for [`Item`], `Vec<Item>`, and for types with an impl block marked with `#[server]`, directly or in an
/// `Arc`.
///
/// ```
/// # use toolgate::Server;
/// use toolgate::prelude::*;
///
/// struct Counter(std::sync::atomic::AtomicU32);
///
/// #[server(instructions = "Counts")]
/// impl Counter {
///     /// Increments the counter
///     #[tool]
///     fn count(&self) -> u32 {
///         self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
///     }
/// }
///
/// let server = Server::new("counter", "1.0.0").add(Counter(7.into())).build();
/// # assert!(server.is_ok());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a server",
    label = "not an `Item`, a list of them, or a type with `#[server]` on an impl block",
    note = "put `#[toolgate::server]` on the impl block whose methods are tools, resources or prompts"
)]
pub trait Register {
    #[doc(hidden)]
    fn into_items(self) -> ItemSet;
}

/// Items, instructions and version, not validated yet.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct ItemSet {
    items: Vec<Item>,
    instructions: Option<String>,
    version: Option<String>,
}

impl Register for Vec<Item> {
    fn into_items(self) -> ItemSet {
        ItemSet { items: self, ..ItemSet::default() }
    }
}

impl Register for Item {
    fn into_items(self) -> ItemSet {
        vec![self].into_items()
    }
}

/// An impl block whose methods are items. Implemented by `#[server]`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a server",
    label = "not an `Item`, a list of them, or a type with `#[server]` on an impl block",
    note = "put `#[toolgate::server]` on the impl block whose methods are tools, resources or prompts"
)]
pub trait ServerItems: Send + Sync + 'static {
    fn items(this: &Arc<Self>) -> Vec<Item>;

    #[must_use]
    fn instructions() -> Option<String> {
        None
    }

    #[must_use]
    fn version() -> Option<String> {
        None
    }
}

// Hidden: `ServerItems` is not part of the documented API.
#[doc(hidden)]
impl<T: ServerItems> Register for T {
    fn into_items(self) -> ItemSet {
        Arc::new(self).into_items()
    }
}

#[doc(hidden)]
impl<T: ServerItems> Register for Arc<T> {
    fn into_items(self) -> ItemSet {
        ItemSet { items: T::items(&self), instructions: T::instructions(), version: T::version() }
    }
}

/// Creates a resource with the MIME type of its handler's return type, or `text/plain`.
#[doc(hidden)]
pub fn resource<A: 'static, H>(uri: &str, handler: H) -> ResourceSpec
where
    H: Handler<A>,
    H::Output: IntoContents,
{
    ResourceSpec::new(uri, handler).mime(H::Output::mime().unwrap_or("text/plain"))
}

/// Creates a resource template with the MIME type of its handler's return type, or `text/plain`.
#[doc(hidden)]
pub fn template<A: 'static, H>(uri: &str, handler: H) -> TemplateSpec
where
    H: Handler<A>,
    H::Output: IntoContents,
{
    TemplateSpec::new(uri, handler).mime(H::Output::mime().unwrap_or("text/plain"))
}

/// Items grouped by kind, with completers attached to their templates and prompts.
#[derive(Debug, Default)]
pub(crate) struct SpecSet {
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) resources: Vec<ResourceSpec>,
    pub(crate) templates: Vec<TemplateSpec>,
    pub(crate) prompts: Vec<PromptSpec>,
    pub(crate) instructions: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) errors: Vec<String>,
}

/// Attaches a completer to a template or a prompt, which share no trait.
macro_rules! attach_completer {
    ($spec:expr, $completer:expr, $argument:expr) => {{
        let mut spec = $spec;
        spec.requirements.merge_states(&$completer.requirements);
        spec.with_completer($argument, Arc::clone(&$completer.run))
    }};
}

/// Groups items by kind and attaches completers. Completers without a target are reported in [`SpecSet::errors`].
pub(crate) fn group_items(set: ItemSet) -> SpecSet {
    let mut specs = SpecSet { instructions: set.instructions, version: set.version, ..SpecSet::default() };
    let (mut templates, mut prompts, mut completers) = (Vec::new(), Vec::new(), Vec::new());
    for Item { origin, spec } in set.items {
        match spec {
            ItemSpec::Tool(tool) => specs.tools.push(*tool),
            ItemSpec::Resource(resource) => specs.resources.push(resource),
            ItemSpec::Template(template) => templates.push((origin, template)),
            ItemSpec::Prompt(prompt) => prompts.push((origin, prompt)),
            ItemSpec::Completer(completer) => completers.push((origin, completer)),
        }
    }
    let targets = completers.iter().flat_map(|(origin, completer): &(&str, Completer)| {
        completer.targets.iter().map(move |(target, argument)| (*origin, completer, *target, *argument))
    });
    for (origin, completer, target, argument) in targets {
        if let Some(index) = templates.iter().position(|(origin, _)| *origin == target) {
            let (origin, template) = templates.remove(index);
            templates.insert(index, (origin, attach_completer!(template, completer, argument)));
        } else if let Some(index) = prompts.iter().position(|(origin, _)| *origin == target) {
            let (origin, prompt) = prompts.remove(index);
            prompts.insert(index, (origin, attach_completer!(prompt, completer, argument)));
        } else {
            specs.errors.push(format!(
                "completer `{origin}`: it completes `{argument}` of `{target}`, which is not a template or prompt \
                 added together with it"
            ));
        }
    }
    specs.templates = templates.into_iter().map(|(_, template)| template).collect();
    specs.prompts = prompts.into_iter().map(|(_, prompt)| prompt).collect();
    specs
}

/// Selects linked items by the module of their function.
#[cfg(feature = "macros")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum ModuleScope<'a> {
    All,
    /// This module and its submodules.
    Subtree(&'a str),
    /// This module without its submodules.
    Module(&'a str),
}

#[cfg(feature = "macros")]
impl ModuleScope<'_> {
    fn contains(self, module: &str) -> bool {
        match self {
            ModuleScope::All => true,
            ModuleScope::Module(wanted) => module == normalize_module_path(wanted),
            ModuleScope::Subtree(wanted) => module
                .strip_prefix(normalize_module_path(wanted).as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::")),
        }
    }
}

/// Normalizes a module path. Dashes of package names are underscores in paths.
#[cfg(feature = "macros")]
fn normalize_module_path(module: &str) -> String {
    module.trim().trim_end_matches("::").replace('-', "_")
}

/// Registration of a marked function, collected at link time. Generated by the attribute macros.
#[cfg(feature = "macros")]
#[doc(hidden)]
#[derive(Debug)]
pub struct ItemRegistration {
    module: &'static str,
    line: u32,
    make: fn() -> Item,
}

#[cfg(feature = "macros")]
impl ItemRegistration {
    #[must_use]
    pub const fn new(module: &'static str, line: u32, make: fn() -> Item) -> ItemRegistration {
        ItemRegistration { module, line, make }
    }
}

#[cfg(feature = "macros")]
inventory::collect!(ItemRegistration);

/// Returns the linked items of a scope, or `None` if there are none. Sorted by module and line, because the linker's order
/// is unspecified.
#[cfg(feature = "macros")]
pub(crate) fn linked_items(scope: ModuleScope<'_>) -> Option<ItemSet> {
    let mut registrations: Vec<&ItemRegistration> =
        inventory::iter::<ItemRegistration>().filter(|item| scope.contains(item.module)).collect();
    registrations.sort_by_key(|item| (item.module, item.line));
    let items: Vec<Item> = registrations.into_iter().map(|item| (item.make)()).collect();
    (!items.is_empty()).then(|| items.into_items())
}

/// Error message for a module without linked items.
#[cfg(feature = "macros")]
pub(crate) fn nothing_linked_message(module: &str) -> String {
    format!(
        "nothing with `#[tool]`, `#[resource]`, `#[template]` or `#[prompt]` is linked in from `{module}`: check \
         the path, and if it is another crate, `use` it"
    )
}

#[cfg(all(test, feature = "macros"))]
mod tests {
    use super::*;

    #[test]
    fn a_tool_has_a_version_of_its_own() {
        let version = |spec: ToolSpec| spec.build_entry().unwrap().version().to_owned();
        let spec = || ToolSpec::new("x", || async { "x" });
        assert_eq!((version(spec()), version(spec().version("2.0.0"))), ("1.0.0".into(), "2.0.0".into()));
    }

    #[test]
    fn a_scope_ends_at_whole_names() {
        let cases = [
            (ModuleScope::All, "any::thing", true),
            (ModuleScope::Subtree("my_app"), "my_app", true),
            (ModuleScope::Subtree("my-app"), "my_app::tools", true),
            (ModuleScope::Subtree("my_app::tools"), "my_app::tools::deep", true),
            (ModuleScope::Subtree("my_app::tool"), "my_app::tools", false),
            (ModuleScope::Subtree("my_app::tools"), "my_app", false),
            (ModuleScope::Module("my_app"), "my_app", true),
            (ModuleScope::Module("my_app"), "my_app::tools", false),
        ];
        for (scope, module, wanted) in cases {
            assert_eq!(scope.contains(module), wanted, "{scope:?} {module}");
        }
    }
}
