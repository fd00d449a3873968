//! Write an async function, get an MCP tool that every client of all five protocol revisions can call.
//!
//! The [Model Context Protocol](https://modelcontextprotocol.io) lets programs with a language model use
//! tools, read data and fill prompts that a server offers. Clients speak five revisions of it, over stdio
//! or HTTP. One set of handlers serves them all, and never sees which one a client speaks.
//!
//! # Hello
//!
//! ```no_run
//! use toolgate::prelude::*;
//!
//! /// Greet someone
//! #[tool]
//! async fn greet(name: String) -> String { format!("Hello, {name}!") }
//! toolgate::main!();
//! ```
//!
//! This is a whole program ([`main!`]), and `toolgate` is all it depends on: `hello` serves the client that started it,
//! `hello --http :8080` serves HTTP. Its name, version and description are those of your package, and it offers
//! everything that is marked. The guides in `docs/guide` go on from here.
//!
//! | you want | look at |
//! |---|---|
//! | tools, resources, prompts from functions | [`tool`](macro@tool), [`resource`](macro@resource), [`template`](macro@template), [`prompt`](macro@prompt), [`complete`](macro@complete), [`server`](macro@server) |
//! | the same by hand | [`Server::new`], [`Builder`], [`ToolSpec`] and its like |
//! | several servers | [`Servers`], [`registry`], [`App`], [`Mount`] |
//! | to say who may call | [guards](#guards): [`Token`], [`ApiKeys`], [`BasicAuthProvider`], [`Rate`], [`Profile`] |
//! | to know what happens | [`Events`], [`AuditLog`], [`StatsSummary`], [`StatsDetail`] |
//! | tests | `toolgate::testing` (feature `testing`) |
//!
//! # Functions
//!
//! [`tool`](macro@tool), [`resource`](macro@resource), [`template`](macro@template), [`prompt`](macro@prompt) and
//! [`complete`](macro@complete) mark functions; [`server`](macro@server) marks an impl block whose methods share a
//! value:
//!
//! ```
//! use toolgate::prelude::*;
//!
//! struct Notes(Vec<String>);
//!
//! #[server(instructions = "A notebook")]
//! impl Notes {
//!     /// Search the notes
//!     #[tool(read_only)]
//!     async fn search(
//!         &self,
//!         /// A word that must be in them
//!         #[arg(min_len = 2)] word: String,
//!         /// How many at most
//!         #[arg(default = 20, range = 1..=100)] limit: usize,
//!     ) -> Vec<String> {
//!         self.0.iter().filter(|note| note.contains(&word)).take(limit).cloned().collect()
//!     }
//!
//!     /// One note
//!     #[template("notes://{number}")]
//!     fn one(&self, number: usize) -> Option<String> {
//!         self.0.get(number).cloned()
//!     }
//! }
//!
//! let server = Server::new("notes", "1.0.0").add(Notes(vec!["Buy tea".into()])).build();
//! # assert!(server.is_ok());
//! ```
//!
//! # The builder
//!
//! Macros write what you can write yourself, where names or handlers are only known at run time:
//!
//! ```no_run
//! use toolgate::Server;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Greet { name: String }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), toolgate::Error> {
//!     Server::new("hello", "1.0.0")
//!         .tool("greet", |args: Greet| async move { format!("Hello, {}!", args.name) })
//!         .describe("Greets someone")
//!         .listen("127.0.0.1:8080")
//!         .await
//! }
//! ```
//!
//! A server is described by a [`Builder`]. `tool`, `resource`, `template` and `prompt` add something; the
//! calls after it (`describe`, `read_only`, `timeout`, …) are about what was added last. Nothing of this
//! can fail; [`Builder::build`], and whatever builds and serves in one go, reports everything that is
//! wrong with the description at once.
//!
//! # Arguments
//!
//! A handler takes at most one type that is `Deserialize` and `JsonSchema`. Its schema is what a model
//! sees: comments become descriptions, an `Option` may be left out, limits are checked before the handler
//! starts. Arguments that do not fit are answered with a result that names the parameter, so that the
//! model can correct itself.
//!
//! ```
//! # use toolgate::Server;
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Search {
//!     /// Free text
//!     query: String,
//!     /// How many hits, 20 unless given
//!     #[schemars(range(min = 1, max = 100))]
//!     limit: Option<u32>,
//! }
//!
//! async fn search(args: Search) -> String {
//!     format!("{} times {:?}", args.limit.unwrap_or(20), args.query)
//! }
//!
//! let server = Server::new("shop", "1.0.0").tool("search", search).describe("Searches the catalog");
//! ```
//!
//! # Results and errors
//!
//! A tool returns text, a number, [`Content`](model::Content) of any kind or several of them, [`Json`] for
//! structured output with a schema, or a `Result` of these ([`IntoOutput`]). An error is told to the model
//! as the result of the call, in the error's own words; it does not end anything. [`HandlerError`] takes
//! every error by `?`. A panic, or a call that runs longer than its timeout (a minute unless said
//! otherwise), costs that call only.
//!
//! ```
//! # use toolgate::ToolError;
//! # #[derive(serde::Deserialize, schemars::JsonSchema)]
//! # struct Report { page: String }
//! async fn report(args: Report) -> Result<String, ToolError> {
//!     match args.page.parse()? {
//!         1..=9 => Ok(format!("Page {}", args.page)),
//!         _ => Err(ToolError::new("`page` must be 1 to 9")),
//!     }
//! }
//! # toolgate::Server::new("s", "1").tool("report", report).build().unwrap();
//! ```
//!
//! # Context and state
//!
//! Beside its arguments a handler may take the [`Context`] of its call and any [`State`] the server was
//! given. The context tells who calls, reports progress, writes to the client's log, and knows how much
//! time is left and whether anybody still waits. What the client did not ask to hear is not sent.
//!
//! ```
//! # use toolgate::{Context, Server, State};
//! struct Library { books: u32 }
//!
//! async fn count(library: State<Library>, cx: Context) -> String {
//!     cx.progress_of(1.0, 2.0, "counting").await;
//!     format!("{} books", library.books)
//! }
//!
//! let server = Server::new("library", "1.0.0").state(Library { books: 3 }).tool("count", count);
//! ```
//!
//! A call that nobody waits for any more is dropped at its next `await`. Only work that was moved to
//! another task or thread has to look: [`Context::is_cancelled`], [`Context::cancelled`].
//!
//! # Asking
//!
//! In the middle of a call a handler can ask the user ([`Context::elicit`], [`Context::elicit_as`],
//! [`Context::elicit_url`]), the client's model ([`Context::sample`]), or for the folders that are open
//! ([`Context::roots`]).
//!
//! ```
//! # use toolgate::{Context, Elicited, Field, Form, ToolError};
//! async fn delete(cx: Context) -> Result<&'static str, ToolError> {
//!     let form = Form::new("Delete everything?").field("sure", Field::flag());
//!     match cx.elicit("confirm", form).await? {
//!         Elicited::Accept(answer) if answer["sure"] == true => Ok("deleted"),
//!         _ => Ok("nothing was changed"),
//!     }
//! }
//! # toolgate::Server::new("s", "1").tool("delete", delete).build().unwrap();
//! ```
//!
//! Clients of the older revisions are asked while they wait. Those of the newest get the question as the
//! answer of the call and call again; the handler then runs from its beginning, and the same `elicit`
//! returns at once. Three rules follow: pass [`ServerRequestError`] on with `?`; give every question of a call its
//! own key; before a question do nothing that must not happen twice, or put it into [`Context::step`].
//!
//! # Resources and prompts
//!
//! ```
//! # use toolgate::{Json, Server};
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Note { id: u32 }
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Summary { text: String }
//!
//! let server = Server::new("notes", "1.0.0")
//!     .resource("notes://count", || async { Json(2) })
//!     .template("notes://note/{id}", |note: Note| async move {
//!         (note.id < 2).then(|| format!("Note {}", note.id))
//!     })
//!     .describe("One note")
//!     .mime("text/plain")
//!     .complete("id", |_, _| async { ["0", "1"] })
//!     .prompt("summarize", |args: Summary| async move { format!("Summarize:\n{}", args.text) })
//!     .describe("Summarizes a text")
//!     .build();
//! # assert!(server.is_ok());
//! ```
//!
//! The variables of a template and the arguments of a prompt arrive as a typed struct, like those of a
//! tool. `None` means that there is no such resource. What a server offers can change while it runs:
//! [`Server::add_tool`] and its like tell connected clients, [`Server::changes`] tells them of the rest.
//!
//! # Serving
//!
//! [`Server::serve_stdio`] serves the client that started this process, [`Server::listen`] serves HTTP,
//! [`Server::serve_io`] any pair of byte streams, one message a line.
//!
//! ```
//! # use tokio::io::AsyncReadExt as _;
//! # use toolgate::Server;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::new("demo", "1.0.0").tool("hello", || async { "Hello!" }).build()?;
//! let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello","_meta":{
//!     "io.modelcontextprotocol/protocolVersion":"2026-07-28",
//!     "io.modelcontextprotocol/clientCapabilities":{}}}}"#.replace('\n', "") + "\n";
//! let (mut client, output) = tokio::io::duplex(4096);
//! server.serve_io(call.as_bytes(), output).await?;
//!
//! let mut answer = String::new();
//! client.read_to_string(&mut answer).await?;
//! assert!(answer.contains("Hello!"));
//! # Ok(())
//! # }
//! ```
//!
//! # Several servers
//!
//! [`Servers`] are servers by name, and an [`App`] says which path leads to which of them. [`main!`] serves both.
//! What a [`Server`] offers can be changed while it runs, through any clone of its handle.
//!
//! ```
//! # #[cfg(feature = "http")] {
//! use toolgate::{App, Mount, Servers, ToolSpec};
//!
//! let servers = Servers::new();
//! servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
//! servers.server("admin").register_tool(ToolSpec::new("close", || async { "closed" })).with_tokens(["secret"]);
//!
//! let app = App::new(&servers)
//!     .mount("/shop/mcp", Mount::fixed("shop"))
//!     .mount("/mcp", Mount::select().or("shop")); // `/mcp/admin` and `/mcp?server=admin` choose
//! # assert!(app.into_service().is_ok());
//! # }
//! ```
//!
//! # Guards
//!
//! Who may call is said in one chain, on the builder or on a running server (there with `with_` before the name). Guards
//! judge a request by its head, in an order of their own, whatever the order of the chain. Requests for other hosts and
//! from pages of other origins are refused without a word from you.
//!
//! ```
//! # #[cfg(feature = "http")] {
//! use toolgate::{Profile, Rate, Server, Token};
//!
//! let server = Server::new("shop", "1.0.0")
//!     .public_url("https://mcp.example.com")
//!     .cors(["https://app.example.com"])
//!     .body_limit(64 * 1024)
//!     .rate_per_ip(Rate::per_minute(600).burst(50))
//!     .tokens([
//!         Token::new("a long and random text").subject("ops"),
//!         Token::new("another one").profile(Profile::readonly()),
//!     ])
//!     .build();
//! # assert!(server.is_ok());
//! # }
//! ```
//!
//! What a [`Profile`] hides is neither listed nor called. A handler learns who is calling from a parameter of type
//! [`Principal`].
//!
//! # Events and statistics
//!
//! Listeners look at requests and answers, change or refuse them, on every transport alike. They are no guards: one
//! that panics or stalls has said nothing.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), toolgate::Error> {
//! # use toolgate::Server;
//! let server = Server::new("shop", "1.0.0").tool("hours", || async { "9 to 5" }).build()?;
//! server.events().on_request(|request| {
//!     if request.subject().as_deref() == Some("secret_tool") {
//!         request.reject_with(403, -32000, "not today");
//!     }
//! });
//! server.events().on_response_async(|response| async move {
//!     println!("{} took {:.3} ms", response.request().method(), response.time_ms());
//! });
//!
//! server.call_tool("hours", serde_json::json!({})).await?;
//! assert_eq!(server.stats_summary().total_tool_invocations, 1);
//! assert_eq!(server.stats().tools.by_tool["hours"].errors, 0);
//! # Ok(())
//! # }
//! ```
//!
//! [`AuditLog`] writes a line of JSON for each answer and each refusal, without secrets.
//!
//! # Clients that name no revision
//!
//! A request without handshake, version header or `_meta`, such as a plain `curl`, is answered as revision 2025-03-26,
//! or in a [`Dialect`], for programs that were written for another server. Clients that name a revision never hear it.
//!
//! # Embedding
//!
//! [`Server::into_service`] is a `tower` service that mounts in axum and whatever else takes one. A layer
//! in front of it may put a [`Principal`] into the request's extensions: sessions and everything that a
//! client carries for the server are then bound to it.
//!
//! ```
//! fn app(server: toolgate::Server) -> axum::Router {
//!     axum::Router::new().nest_service("/mcp", server.into_service())
//! }
//! ```
//!
//! # Testing
//!
//! With the feature `testing`, in your `dev-dependencies`, there is a client in memory for your tests:
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), toolgate::Error> {
//! # use toolgate::Server;
//! let server = Server::new("demo", "1.0.0").tool("hello", || async { "Hello!" }).build()?;
//! assert_eq!(server.test().call("hello", serde_json::json!({})).await.text(), "Hello!");
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```
//!
//! `#[toolgate::test]` runs a test once for each revision, and transcripts are tests that can be read without
//! knowing Rust: see `docs/guide/testing.md`.
//!
//! # Features
//!
//! `http` (default) is the endpoint and the listener; without it only byte streams are served. `macros`
//! (default) are the attributes, [`items!`] and the collection of what is marked. `validate` (default) checks
//! arguments against their JSON Schema; without it the handler's type and the limits of `#[arg]`, patterns
//! excepted, are the only check.
//! `redb` and `redis` are [stores](store) that outlive the process: one file, or a server that several processes share.
//! `testing` is for tests.

// Without HTTP a part of the house stands empty; which part, is not worth a list.
#![cfg_attr(not(feature = "http"), allow(dead_code, unused_imports))]
// What is read is built with all features; without some of them, links of this page lead nowhere.
#![cfg_attr(
    not(all(feature = "http", feature = "macros")),
    allow(rustdoc::broken_intra_doc_links, reason = "links to what is left out")
)]

#[cfg(feature = "http")]
mod app;
mod cluster_bus;
mod collect;
mod dispatch;
mod engine;
mod error;
#[cfg(feature = "http")]
mod guard;
mod handler;
mod headers;
mod observe;
mod profile;
mod program;
mod protocol;
mod registry;
mod request;
mod seal;
mod server;
mod servers;
pub mod store;
mod stream;
mod subscriptions;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
mod util;

#[cfg(feature = "http")]
pub use app::{App, AppService, Mount, MountHandle, PageRequest};
pub use collect::{Item, Register};
pub use error::{Error, ErrorKind};
#[cfg(feature = "http")]
pub use guard::{
    ApiKeys, BasicAuthProvider, IntoKeyResult, IntoStrings, KeyError, KeyRequest, LoginError, Rate,
    SecurityHeaders, Token,
};
pub use handler::{
    Context, ElicitOutcome, Extract, Field, Form, Handler, HandlerError, Headers, IntoContents, IntoOutput,
    IntoPrompt, Json, Notifier, ServerRequestError, State,
};
pub use observe::mask as mask_secrets;
pub use observe::{
    AuditLog, ErrorCode, ErrorContext, ErrorEvent, ErrorStats, Event, Events, LastError, PromptStats,
    RequestEvent, RequestInfo, RequestStats, ResourceStats, ResponseEvent, SecurityStats, ServerChange,
    ServerEvent, SessionInfo, StatsDetail, StatsSummary, Subscription, ToolCalls, ToolEvent, ToolStats,
    Transport,
};
pub use profile::Profile;
pub use program::Program;
pub use registry::{
    ClientCapability, PromptSpec, ResourceSpec, Roots, TemplateError, TemplateSpec, ToolSpec, UriTemplate,
    UriValue,
};
pub use request::Principal;
pub use server::{Builder, PendingItem, Server};
pub use servers::{Servers, registry};
#[cfg(feature = "http")]
pub use transport::http::{Body, ServerService};
#[cfg(feature = "http")]
pub use transport::listen::{Connections, Options as ListenOptions, RemoteAddr};

/// The errors of erlmcp by name, for servers that speak like it.
pub use toolgate_wire::ErlmcpError;
/// Checked JSON text, as it came: what `Context::meta` gives and `ToolOutput` takes.
pub use toolgate_wire::RawJson;
/// The words of the protocol, as handlers use them.
pub use toolgate_wire::model;
/// How a server speaks to clients that name no protocol revision.
pub use toolgate_wire::{Dialect, GetDiscovery};
/// An error of the protocol: what a handler returns that has no result, not even a failed one.
pub use toolgate_wire::{ProtocolError, ProtocolErrorKind};

#[cfg(feature = "macros")]
pub use toolgate_macros::{complete, items, prompt, resource, server, template, tool};

/// The crates that arguments and results are described with, of the release that Toolgate is built with.
pub use {schemars, serde, serde_json};

/// What a program of marked functions needs: `use toolgate::prelude::*;`.
///
/// The derives of serde and schemars among it expect these crates in your own `Cargo.toml`, or to be told where
/// they are:
///
/// ```
/// use toolgate::prelude::*;
///
/// #[derive(Serialize, JsonSchema)]
/// #[serde(crate = "toolgate::serde")]
/// #[schemars(crate = "toolgate::schemars")]
/// struct Hit { title: String }
///
/// #[tool]
/// fn search() -> Vec<Hit> {
///     vec![Hit { title: "tea".into() }]
/// }
/// ```
pub mod prelude {
    #[cfg(feature = "macros")]
    pub use crate::{complete, items, prompt, resource, server, template, tool};

    /// Short for [`Context`].
    pub use crate::Context as Ctx;
    pub use crate::model::{Content, PromptMessage, ResourceContents, Role};
    pub use crate::{
        Context, ElicitOutcome, Field, Form, HandlerError, Headers, Json, Principal, Server, State,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::json;
}
#[cfg(feature = "testing")]
pub use toolgate_macros::test;

/// Parsers of this crate, for the fuzz targets. Not part of the API.
#[cfg(all(fuzzing, feature = "http"))]
#[doc(hidden)]
pub mod __fuzz {
    /// Checks the invariants of the HTTP/1.1 fast path's parser for an input.
    pub fn check_http1_parser(input: &[u8]) {
        crate::transport::listen::check_parser(input);
    }
}

/// For what macros write; nothing here is promised to stay.
#[doc(hidden)]
pub mod __private {
    #[cfg(feature = "macros")]
    pub use crate::collect::ItemRegistration;
    pub use crate::collect::{Completer, Item, ServerItems, resource, template};
    pub use crate::handler::macros::{
        ArgumentPattern, CompleteFallible, CompletePlain, CompleteUnsupported, Extract, Parameters,
        PromptPlain, PromptUnsupported, ReadFallible, ReadFallibleOption, ReadOption, ReadPlain,
        ReadUnsupported, ReadValue, ReturnType, ToolFallible, ToolPlain, ToolUnsupported, ToolValue,
        ValidArguments, at_least, at_most, below, max_len, min_len, require_extract, require_send,
    };
    pub use crate::program::{Package, run};
    pub use crate::registry::{PromptSpec, ToolSpec};
    #[cfg(feature = "testing")]
    pub use crate::testing::harness::{test_each_version, test_once};
    #[cfg(feature = "macros")]
    pub use inventory;
    pub use {schemars, serde, serde_json, std};
}

/// Compiles the code of the README with the other doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs the code of the guides, each page under a name of its own.
#[cfg(all(doctest, feature = "http", feature = "macros"))]
mod guides {
    #[doc = include_str!("../../../docs/guide/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../../docs/guide/framework.md")]
    struct Framework;
    #[doc = include_str!("../../../docs/guide/authoring.md")]
    struct Authoring;
    #[doc = include_str!("../../../docs/guide/servers.md")]
    struct ServersGuide;
    #[doc = include_str!("../../../docs/guide/guards.md")]
    struct Guards;
    #[doc = include_str!("../../../docs/guide/events-and-statistics.md")]
    struct EventsAndStatistics;
    #[doc = include_str!("../../../docs/guide/asking-the-client.md")]
    struct AskingTheClient;
    #[doc = include_str!("../../../docs/guide/tasks.md")]
    struct Tasks;
    #[doc = include_str!("../../../docs/guide/http.md")]
    struct Http;
    #[cfg(feature = "redis")]
    #[doc = include_str!("../../../docs/guide/many-processes.md")]
    struct ManyProcesses;
    #[cfg(feature = "testing")]
    #[doc = include_str!("../../../docs/guide/testing.md")]
    struct Testing;
}
