//! The pen: attribute macros that write builder calls and decide nothing.
//!
//! Everything written here could be written by hand with the `toolgate` crate, which exports these macros
//! and is where their results are used; a program depends on that one. What is written refers to it by the
//! absolute path `::toolgate::__private` only, so that it does not matter which names a program has taken.

mod attr;
mod complete;
mod function;
mod item;
mod prompt;
mod resource;
mod server;
mod test;
mod tool;

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{ItemFn, ItemImpl, Path, Token};

use crate::item::ItemKind;

/// Makes a function a tool.
///
/// ```
/// use toolgate::prelude::*;
///
/// #[derive(Serialize, JsonSchema)]
/// struct Hit { title: String }
///
/// struct Catalog(Vec<&'static str>);
///
/// /// Search the catalog
/// #[tool(read_only, timeout = "30s")]
/// async fn search(
///     /// Free text
///     #[arg(min_len = 2)] query: String,
///     /// How many hits
///     #[arg(default = 20, range = 1..=100)] limit: usize,
///     catalog: State<Catalog>,
/// ) -> Result<Vec<Hit>, ToolError> {
///     let found = catalog.0.iter().filter(|title| title.contains(&query));
///     Ok(found.take(limit).map(|title| Hit { title: (*title).into() }).collect())
/// }
///
/// let server = Server::new("shop", "1.0.0").state(Catalog(vec!["tea"])).add(items![search]).build();
/// # assert!(server.is_ok());
/// ```
///
/// The function stays as it is and can be called. Its name and doc comment are those of the tool. It may be
/// `async` or not; if not, it runs where the call is handled, so what blocks or computes for long belongs on a
/// thread of its own (`tokio::task::spawn_blocking`).
///
/// # Parameters
///
/// A parameter is an argument that callers send, of any type that is `Deserialize` and `JsonSchema`. Its doc
/// comment is its description; a line `@name …` in the doc comment of the function does too. An `Option` may
/// be left out. `#[arg(…)]` says more:
///
/// | key | |
/// |---|---|
/// | `default = 20` | what stands for a value that is not given; alone: the type's own |
/// | `range = 1..=100` | limits of a number |
/// | `min_len = 2`, `max_len = 80` | limits of a text in characters, of a list in items |
/// | `pattern = "^[a-z]+$"` | a regular expression that a text matches |
/// | `description = "…"`, `rename = "…"` | what callers read and write |
/// | `example = …`, `examples = […]` | values to show |
///
/// Parameters of type `State<_>`, `Principal`, `Headers` and `Context` (`Ctx`) are no arguments: they are taken
/// out of the call, and callers do not see them. `#[extract]` makes a parameter of your own type one of them,
/// if it implements `toolgate::Extract`.
///
/// # Result
///
/// Text, numbers and `Content` are told as they are. Any other type that is `Serialize` and `JsonSchema` becomes
/// structured output with a schema. An `Err` of anything that can be displayed is told to the model as an error.
///
/// # Keys
///
/// `#[tool]`, `#[tool("description")]`, or any of `name`, `description`, `title`, `version`, `timeout = "30s"`,
/// `read_only`, `destructive`, `idempotent`, `closed_world`, `task = "optional"` (or `"required"`, `"later"`),
/// `resumable`. What is not given comes from the function.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Tool, options, item)
}

/// Makes a function a resource.
///
/// ```
/// use toolgate::prelude::*;
///
/// /// How to use the catalog
/// #[resource("docs://readme", mime = "text/markdown")]
/// fn readme() -> &'static str {
///     "# The catalog"
/// }
///
/// /// How it is set up
/// #[resource]
/// async fn settings() -> toolgate::serde_json::Value {
///     json!({ "language": "en" })
/// }
/// # assert!(Server::new("shop", "1.0.0").add(items![readme, settings]).build().is_ok());
/// ```
///
/// A text with `://` is the URI; any other is the description. Keys are `uri`, `name`, `description`, `mime`
/// and `title`. Without any, the URI is `resource://` and the function's name. The function takes what `#[tool]`
/// functions take, except arguments, and returns text, bytes, `ResourceContents`, anything that is `Serialize` (told as
/// JSON), or an `Option` (none: there is no such resource) or `Result` of these.
#[proc_macro_attribute]
pub fn resource(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Resource, options, item)
}

/// Makes a function the resources of a URI template, whose variables are its arguments.
///
/// ```
/// use toolgate::prelude::*;
///
/// /// One note
/// #[template("notes://{id}")]
/// async fn note(id: u32) -> Option<String> {
///     (id < 2).then(|| format!("Note {id}"))
/// }
/// # assert!(Server::new("notes", "1.0.0").add(items![note]).build().is_ok());
/// ```
///
/// Otherwise it is as with `#[resource]`.
#[proc_macro_attribute]
pub fn template(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Template, options, item)
}

/// Makes a function a prompt.
///
/// ```
/// use toolgate::prelude::*;
///
/// /// Review some code
/// #[prompt(arguments = [code = "What to review"])]
/// fn review(code: String, #[arg(default = "rust")] language: String) -> String {
///     format!("Review this {language} code:\n{code}")
/// }
/// # assert!(Server::new("review", "1.0.0").add(items![review]).build().is_ok());
/// ```
///
/// `#[prompt]`, `#[prompt("description")]`, or any of `name`, `description`, `title`, `arguments`. Parameters are
/// as with `#[tool]`; since clients send texts, an argument is a type that can be read from one. The function
/// returns a text or several that the user says, `PromptMessage`s, or a `Result` of these.
#[proc_macro_attribute]
pub fn prompt(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Prompt, options, item)
}

/// Makes a function complete an argument of a template or a prompt.
///
/// ```
/// use toolgate::prelude::*;
///
/// #[template("notes://{id}")]
/// fn note(id: String) -> String {
///     format!("The note {id}")
/// }
///
/// #[complete(note.id)]
/// fn ids(prefix: String) -> Vec<String> {
///     ["first", "second"].into_iter().filter(|id| id.starts_with(&prefix)).map(String::from).collect()
/// }
/// # assert!(Server::new("notes", "1.0.0").add(items![note, ids]).build().is_ok());
/// ```
///
/// It takes what is there so far, and may take whatever else a function with `#[tool]` takes out of the call;
/// `Context::given` knows the other arguments. Several are `#[complete(one.id, summary.id)]`. It must be added to
/// a server together with what it completes.
#[proc_macro_attribute]
pub fn complete(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Complete, options, item)
}

/// Lets a value offer its methods: all of an impl block that are marked as functions are.
///
/// ```
/// use toolgate::prelude::*;
///
/// struct Notes { all: Vec<String> }
///
/// #[server(instructions = "A notebook")]
/// impl Notes {
///     /// Search the notes
///     #[tool(read_only)]
///     async fn search(&self, word: String) -> Vec<String> {
///         self.all.iter().filter(|note| note.contains(&word)).cloned().collect()
///     }
///
///     /// One note
///     #[template("notes://{number}")]
///     fn one(&self, number: usize) -> Option<String> {
///         self.all.get(number).cloned()
///     }
///
///     #[complete(one.number)]
///     fn numbers(&self) -> Vec<String> {
///         (0..self.all.len()).map(|number| number.to_string()).collect()
///     }
/// }
///
/// let notes = Notes { all: vec!["Buy tea".into()] };
/// let server = Server::new("notes", "1.0.0").add(notes).build();
/// # assert!(server.is_ok());
/// ```
///
/// The value is shared by all calls, so methods take `&self`; functions without it may be marked too. The server
/// gets it with `Builder::add` or `Server::add`, as it is or in an `Arc`.
#[proc_macro_attribute]
pub fn server(options: TokenStream, item: TokenStream) -> TokenStream {
    let block = syn::parse_macro_input!(item as ItemImpl);
    server::expand_impl(options.into(), block).into()
}

/// A list of marked functions, by their paths, for `Builder::add` and `Server::add`.
///
/// ```
/// mod shop {
///     use toolgate::prelude::*;
///
///     /// What tea costs
///     #[tool]
///     pub fn price() -> u32 { 3 }
/// }
///
/// let server = toolgate::Server::new("shop", "1.0.0").add(toolgate::items![shop::price]).build();
/// # assert!(server.is_ok());
/// ```
///
/// A path leads to the module where the function stands; a name that was brought in by `use` is not enough.
#[proc_macro]
pub fn items(list: TokenStream) -> TokenStream {
    match Punctuated::<Path, Token![,]>::parse_terminated.parse(list) {
        Ok(paths) => {
            let makers = paths.iter().map(item::item_fn_path);
            quote!(::toolgate::__private::std::vec![#(#makers()),*]).into()
        }
        Err(error) => error.into_compile_error().into(),
    }
}

fn expand_item_macro(kind: ItemKind, options: TokenStream, item: TokenStream) -> TokenStream {
    let function = syn::parse_macro_input!(item as ItemFn);
    item::expand_function(kind, options.into(), function).into()
}

/// Runs an async function as a test, once for each protocol revision.
///
/// ```test_harness
/// # use toolgate::Server;
/// # fn server() -> Result<Server, toolgate::Error> {
/// #     Server::new("hello", "1.0.0").tool("greet", || async { "Hello!" }).build()
/// # }
/// use serde_json::json;
/// use toolgate::testing::TestClient;
///
/// #[toolgate::test(server = server())]
/// async fn greets(client: TestClient) {
///     assert_eq!(client.call("greet", json!({})).await.text(), "Hello!");
/// }
/// ```
///
/// The function gets a `TestClient` of the revision, with a server of its own,
/// and may end with `()` or a `Result<(), _>`. All revisions are tried, and those that fail are named. A
/// function without a parameter just runs. It is a normal `#[test]` with a runtime of its own, on one thread:
/// the crate under test needs no other.
///
/// # Keys
///
/// | key | |
/// |---|---|
/// | `server = …` | a `Server`, a `Builder` or a `Result` of one; evaluated for each revision, may `.await` |
/// | `revisions = ["2025-11-25", "2026-07-28"]` | these only; one that does not exist is an error of the compiler |
/// | `all_revisions` | all of them, which is what happens anyway |
/// | `http` | the client speaks HTTP |
///
/// Without `server`, it is one with the name and version of the package and everything in it that is marked
/// with `#[tool]` and its like.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    test::expand(options.into(), &item.into()).into()
}
