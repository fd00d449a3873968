//! Attribute macros of the `toolgate` crate, which re-exports them.
//!
//! The macros generate builder calls that could be written by hand. Generated code refers to the library only by the absolute
//! path `::toolgate::__private`, so that it works whatever names a program defines.

mod attr;
mod complete;
mod function;
mod item;
mod parameter;
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

/// Turns a function into a tool.
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
///     /// Maximum number of hits
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
/// The function itself is unchanged and can still be called. Its name and doc comment become the name and description of the
/// tool.
///
/// # Blocking
///
/// A function that is not `async` may block or compute for long: it runs on a thread of the runtime's blocking pool
/// (`tokio::task::spawn_blocking`), which has at most 512 threads unless the runtime is built with
/// `max_blocking_threads`. Further calls wait for a thread. A function that only computes a little is cheaper with
/// `#[tool(inline)]`, which runs it on a worker thread of the runtime, as an `async` function does.
///
/// A thread cannot be stopped. If the call is cancelled or exceeds its time limit while the function runs, the function
/// runs to its end and its result is dropped; `Context::is_cancelled` tells when. A call that still waits for a thread does
/// not start.
///
/// An `async` function runs on the worker threads, where blocking stops other calls: use `tokio::task::spawn_blocking` in
/// it. A handler that keeps a worker thread for more than 100 ms is reported in the log, once.
///
/// # Parameters
///
/// A parameter is an argument of the tool. Its type implements `Deserialize` and `JsonSchema`. Its doc comment, or a line
/// `@name …` in the doc comment of the function, is its description. An `Option` is optional. `#[arg(…)]` configures argument
/// validation and the schema:
///
/// | key | meaning |
/// |---|---|
/// | `default = 20` | default value; `default` alone uses the type's `Default` |
/// | `range = 1..=100` | bounds of a number |
/// | `min_len = 2`, `max_len = 80` | length of a string in characters, or of a list in items |
/// | `pattern = "^[a-z]+$"` | regular expression that a string must match |
/// | `description = "…"`, `rename = "…"` | description and name in the schema |
/// | `example = …`, `examples = […]` | examples in the schema |
///
/// Parameters whose type implements `toolgate::Extract` are not arguments: they are extracted from the call, and are not part of
/// the schema. These are `State<_>`, `Principal`, `Option<Principal>`, `Headers`, `Extension<_>`, `Context` (`Ctx`), and your own.
/// The type decides, not its name: an alias of `State<_>` is extracted, and your own `enum State` is an argument. Only an extractor
/// that is called like a type of the standard library, such as `String`, needs the attribute `#[extract]`.
///
/// # Result
///
/// Strings, numbers and `Content` are returned as content. Any other type that implements `Serialize` and `JsonSchema` becomes
/// structured output with a schema. An `Err` whose type implements `Display` becomes a result with `isError`.
///
/// # Keys
///
/// `#[tool]`, `#[tool("description")]`, or any of `name`, `description`, `title`, `version`, `timeout = "30s"`,
/// `read_only`, `destructive`, `idempotent`, `closed_world`, `task = "optional"` (or `"required"`, `"later"`),
/// `resumable`, `inline`, `allow_unknown` (ignores arguments that are not parameters, instead of refusing the call). Name and
/// description come from the function by default.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Tool, options, item)
}

/// Turns a function into a resource.
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
/// /// The current settings
/// #[resource]
/// async fn settings() -> toolgate::serde_json::Value {
///     json!({ "language": "en" })
/// }
/// # assert!(Server::new("shop", "1.0.0").add(items![readme, settings]).build().is_ok());
/// ```
///
/// A string with `://` is the URI; any other string is the description. The keys are `uri`, `name`, `description`, `mime`,
/// `title` and `inline`. A function that is not `async` may block, as for `#[tool]`. Without a URI, it is `resource://`
/// followed by the function's name. The parameters are extractors as for `#[tool]`, without arguments. The function returns a string, bytes, `ResourceContents`, a type that implements `Serialize` (returned as
/// JSON), an `Option` of these (`None`: there is no such resource), or a `Result`.
#[proc_macro_attribute]
pub fn resource(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Resource, options, item)
}

/// Turns a function into a resource template. The variables of the URI template are its arguments.
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
/// Keys and return types are those of `#[resource]`.
#[proc_macro_attribute]
pub fn template(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Template, options, item)
}

/// Turns a function into a prompt.
///
/// ```
/// use toolgate::prelude::*;
///
/// /// Review some code
/// #[prompt(arguments = [code = "The code to review"])]
/// fn review(code: String, #[arg(default = "rust")] language: String) -> String {
///     format!("Review this {language} code:\n{code}")
/// }
/// # assert!(Server::new("review", "1.0.0").add(items![review]).build().is_ok());
/// ```
///
/// `#[prompt]`, `#[prompt("description")]`, or any of `name`, `description`, `title`, `arguments`, `inline`. Parameters are as for
/// `#[tool]`, but clients send strings, so an argument type must be parseable from a string. The function returns one or more
/// strings (messages of the user), `PromptMessage`s, or a `Result` of these.
#[proc_macro_attribute]
pub fn prompt(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Prompt, options, item)
}

/// Turns a function into a completer for an argument of a template or a prompt.
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
/// Its argument is the text typed so far; further parameters are extractors as for `#[tool]`. `Context::other_argument` returns
/// the values of other arguments. `#[complete(one.id, summary.id)]` completes several, and `#[complete(one.id, inline)]` runs
/// a function that is not `async` on a worker thread, as `#[tool(inline)]` does. A completer must be added to a server
/// together with its templates and prompts.
#[proc_macro_attribute]
pub fn complete(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_item_macro(ItemKind::Complete, options, item)
}

/// Turns the marked methods of an impl block into tools, resources, templates, prompts and completers.
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
/// All calls share the value, so methods take `&self`; associated functions without it can be marked too. Pass the value to
/// `Builder::add` or `Server::add`, directly or in an `Arc`.
///
/// # Keys
///
/// `instructions` are appended to those of the server, and `version` replaces the version of the server, when the value is
/// added to a `Builder`.
#[proc_macro_attribute]
pub fn server(options: TokenStream, item: TokenStream) -> TokenStream {
    let block = syn::parse_macro_input!(item as ItemImpl);
    server::expand_impl(options.into(), block).into()
}

/// Lists marked functions by path, for `Builder::add` and `Server::add`.
///
/// ```
/// mod shop {
///     use toolgate::prelude::*;
///
///     /// The price of tea
///     #[tool]
///     pub fn price() -> u32 { 3 }
/// }
///
/// let server = toolgate::Server::new("shop", "1.0.0").add(toolgate::items![shop::price]).build();
/// # assert!(server.is_ok());
/// ```
///
/// The path must name the module that defines the function; a name imported with `use` does not work.
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

/// Runs an async function as a test, once per protocol version.
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
/// The function takes a `TestClient` of the version, with its own server, and returns `()` or a `Result<(), _>`. All versions
/// are run, and the failing ones are named. A function without a parameter runs once. The generated `#[test]` starts its own
/// single-threaded runtime.
///
/// # Keys
///
/// | key | meaning |
/// |---|---|
/// | `server = …` | a `Server`, a `Builder` or a `Result` of one; evaluated for each version, may `.await` |
/// | `versions = ["2025-11-25", "2026-07-28"]` | only these versions; an unknown one is a compile error |
/// | `all_versions` | all versions (the default) |
/// | `http` | the client uses HTTP |
///
/// Without `server`, the server has the name and version of the package and all its marked functions.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    test::expand(options.into(), &item.into()).into()
}
