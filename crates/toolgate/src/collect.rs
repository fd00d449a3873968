//! The list: what marked functions and impl blocks offer, and how it is found.
//!
//! An attribute macro writes a function that makes an [`Item`]; a server is given items one by one, as a
//! list, as a value whose impl block makes several ([`Register`]), or everything that is linked into the
//! program. Nothing is served from here, and nothing is decided: items are the specs of the registry, with
//! a note of where they were written.

use std::fmt;
use std::sync::Arc;

use crate::handler::{
    CompleteFn, Handler, HandlerFailure, HandlerRequirements, IntoContents, erase_complete_handler,
};
use crate::registry::{PromptSpec, ResourceSpec, TemplateSpec, ToolSpec};

/// One thing a server can offer: a tool, a resource, a template, a prompt, or a completer of one of the
/// latter two. Attributes make them, [`items!`](crate::items) lists them, and every spec is one.
///
/// ```
/// # use toolgate::{Item, Server, ToolSpec};
/// let item: Item = ToolSpec::new("hello", || async { "Hello!" }).into();
/// let server = Server::new("demo", "1.0.0").add(item).build();
/// # assert!(server.is_ok());
/// ```
pub struct Item {
    /// The path of the function it was made from; empty if it was made by hand.
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
    /// What each was made from, and the argument.
    targets: Vec<(&'static str, &'static str)>,
    run: CompleteFn,
    requirements: HandlerRequirements,
}

impl Completer {
    /// What is there so far arrives as the handler's argument `word`.
    #[doc(hidden)]
    pub fn new<A: 'static, H>(
        targets: Vec<(&'static str, &'static str)>,
        word: &'static str,
        handler: H,
    ) -> Completer
    where
        H: Handler<A, Output = Result<Vec<String>, HandlerFailure>>,
    {
        Completer { targets, run: erase_complete_handler(handler, word), requirements: H::requirements() }
    }
}

impl Item {
    /// The same, with the path of the function it was made from.
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
    ($($spec:ident $what:ident)*) => {$(
        impl From<$spec> for Item {
            fn from(spec: $spec) -> Item {
                Item { origin: "", spec: ItemSpec::$what(spec.into()) }
            }
        }
    )*};
}
impl_from_spec! { ToolSpec Tool ResourceSpec Resource TemplateSpec Template PromptSpec Prompt Completer Completer }

/// Something that has things to offer to a server: an [`Item`] or several, or a value whose impl block is
/// marked with `#[server]`, alone or in an `Arc`.
///
/// ```
/// # use toolgate::Server;
/// use toolgate::prelude::*;
///
/// struct Counter(std::sync::atomic::AtomicU32);
///
/// #[server(instructions = "Counts")]
/// impl Counter {
///     /// Counts one further
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
    message = "`{Self}` has nothing to offer to a server",
    label = "neither an `Item` or a list of them, nor a type with `#[server]` on an impl block",
    note = "put `#[toolgate::server]` on the impl block whose methods are tools, resources or prompts"
)]
pub trait Register {
    #[doc(hidden)]
    fn into_items(self) -> ItemSet;
}

/// What is offered, before anybody has looked at it.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct ItemSet {
    items: Vec<Item>,
    instructions: Option<String>,
}

impl Register for Vec<Item> {
    fn into_items(self) -> ItemSet {
        ItemSet { items: self, instructions: None }
    }
}

impl Register for Item {
    fn into_items(self) -> ItemSet {
        vec![self].into_items()
    }
}

/// An impl block whose methods are offered. `#[server]` writes this.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` has nothing to offer to a server",
    label = "neither an `Item` or a list of them, nor a type with `#[server]` on an impl block",
    note = "put `#[toolgate::server]` on the impl block whose methods are tools, resources or prompts"
)]
pub trait ServerItems: Send + Sync + 'static {
    fn items(kit: &Arc<Self>) -> Vec<Item>;

    #[must_use]
    fn instructions() -> Option<String> {
        None
    }
}

impl<K: ServerItems> Register for K {
    fn into_items(self) -> ItemSet {
        Arc::new(self).into_items()
    }
}

impl<K: ServerItems> Register for Arc<K> {
    fn into_items(self) -> ItemSet {
        ItemSet { items: K::items(&self), instructions: K::instructions() }
    }
}

/// A resource whose media type is that of what its handler returns, or plain text.
#[doc(hidden)]
pub fn resource<A: 'static, H>(uri: &str, handler: H) -> ResourceSpec
where
    H: Handler<A>,
    H::Output: IntoContents,
{
    ResourceSpec::new(uri, handler).mime(H::Output::mime().unwrap_or("text/plain"))
}

/// A template whose media type is that of what its handler returns, or plain text.
#[doc(hidden)]
pub fn template<A: 'static, H>(uri: &str, handler: H) -> TemplateSpec
where
    H: Handler<A>,
    H::Output: IntoContents,
{
    TemplateSpec::new(uri, handler).mime(H::Output::mime().unwrap_or("text/plain"))
}

/// What is offered, by kind, with completers where they belong.
#[derive(Debug, Default)]
pub(crate) struct SpecSet {
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) resources: Vec<ResourceSpec>,
    pub(crate) templates: Vec<TemplateSpec>,
    pub(crate) prompts: Vec<PromptSpec>,
    pub(crate) instructions: Option<String>,
    pub(crate) errors: Vec<String>,
}

/// Templates and prompts complete alike, but share no trait.
macro_rules! attach_completer {
    ($spec:expr, $completer:expr, $argument:expr) => {{
        let mut spec = $spec;
        spec.requirements.merge_states(&$completer.requirements);
        let run = Arc::clone(&$completer.run);
        spec.complete($argument, move |prefix, cx| {
            let found = run(cx, prefix);
            // A completer that fails has nothing to suggest.
            async move { found.await.unwrap_or_default() }
        })
    }};
}

pub(crate) fn group_items(offered: ItemSet) -> SpecSet {
    let mut sorted = SpecSet { instructions: offered.instructions, ..SpecSet::default() };
    let (mut templates, mut prompts, mut completers) = (Vec::new(), Vec::new(), Vec::new());
    for Item { origin, spec: what } in offered.items {
        match what {
            ItemSpec::Tool(tool) => sorted.tools.push(*tool),
            ItemSpec::Resource(resource) => sorted.resources.push(resource),
            ItemSpec::Template(template) => templates.push((origin, template)),
            ItemSpec::Prompt(prompt) => prompts.push((origin, prompt)),
            ItemSpec::Completer(completer) => completers.push((origin, completer)),
        }
    }
    let targets = completers.iter().flat_map(|(origin, completer): &(&str, Completer)| {
        completer.targets.iter().map(move |(of, argument)| (*origin, completer, *of, *argument))
    });
    for (origin, completer, of, argument) in targets {
        if let Some(place) = templates.iter().position(|(target, _)| *target == of) {
            let (target, template) = templates.remove(place);
            templates.insert(place, (target, attach_completer!(template, completer, argument)));
        } else if let Some(place) = prompts.iter().position(|(target, _)| *target == of) {
            let (target, prompt) = prompts.remove(place);
            prompts.insert(place, (target, attach_completer!(prompt, completer, argument)));
        } else {
            sorted.errors.push(format!(
                "completer `{origin}`: it completes `{argument}` of `{of}`, which is no template or prompt among \
                 what was added together with it"
            ));
        }
    }
    sorted.templates = templates.into_iter().map(|(_, template)| template).collect();
    sorted.prompts = prompts.into_iter().map(|(_, prompt)| prompt).collect();
    sorted
}

/// Which of everything that is linked in.
#[cfg(feature = "macros")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum ModuleScope<'a> {
    All,
    /// What was written in this module or one inside it.
    Subtree(&'a str),
    /// What was written in this very module.
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

/// Packages may have dashes in their names; in paths they are underscores.
#[cfg(feature = "macros")]
fn normalize_module_path(module: &str) -> String {
    module.trim().trim_end_matches("::").replace('-', "_")
}

/// A note that a macro leaves beside each marked function.
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

/// Everything of that scope that is linked in, in the order of modules and lines: a linker has none that
/// anybody could rely on. None if there is nothing.
#[cfg(feature = "macros")]
pub(crate) fn linked_items(scope: ModuleScope<'_>) -> Option<ItemSet> {
    let mut marked: Vec<&ItemRegistration> =
        inventory::iter::<ItemRegistration>().filter(|marked| scope.contains(marked.module)).collect();
    marked.sort_by_key(|marked| (marked.module, marked.line));
    let items: Vec<Item> = marked.into_iter().map(|marked| (marked.make)()).collect();
    (!items.is_empty()).then(|| items.into_items())
}

/// What to tell whoever named a module in which nothing was marked.
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
