//! A server framework for the [Model Context Protocol](https://modelcontextprotocol.io) (MCP).
//!
//! Write an async function and get a tool that MCP clients of all five protocol versions can call, over stdio and
//! over HTTP. One set of handlers serves every protocol version; a handler never sees which one its client speaks.
//!
//! # Quick start
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
//! This is a complete program, and `toolgate` is its only dependency. Started as `hello`, it serves the client that
//! started it on standard input and output; `hello --http :8080` serves HTTP at `/mcp`. Name, version and description
//! come from `Cargo.toml`, and every function marked with an attribute is served. See [`main!`].
//!
//! | Task | Start here |
//! |---|---|
//! | Define tools, resources and prompts as functions | [`tool`](macro@tool), [`resource`](macro@resource), [`template`](macro@template), [`prompt`](macro@prompt), [`complete`](macro@complete), [`server`](macro@server) |
//! | Define them at run time | [`Server::new`], [`Builder`], [`ToolSpec`], [`ResourceSpec`], [`TemplateSpec`], [`PromptSpec`] |
//! | Argument validation | [Arguments](#arguments), [`Builder::strict_arguments`] |
//! | Shared application state (database pools, caches) | [`State`], [`Builder::state`] |
//! | Serve several servers from one process | [`Servers`], [`registry()`], [`App`], [`Mount`] |
//! | Authentication, rate limits, CORS | [Guards](#guards), [`guard`] |
//! | Hide tools from some callers | [`Profile`], [`Principal`] |
//! | Middleware: timing, transactions, retries around handlers | [`layer`], [`Builder::layer`] |
//! | Middleware: inspect, change or reject requests | [`events`], or a `tower` layer around [`Server::into_service`] |
//! | Metrics and audit log | [`stats`], [`events::AuditLog`] |
//! | Long-running work (MCP tasks) | [`ToolSpec::task`], [`Context::defer`] |
//! | Session store, several processes | [`store`], [`Builder::store`] |
//! | Tests | `toolgate::testing` (feature `testing`) |
//!
//! The [`guide`] explains each of these in detail.
//!
//! # Functions
//!
//! The attributes [`tool`](macro@tool), [`resource`](macro@resource), [`template`](macro@template),
//! [`prompt`](macro@prompt) and [`complete`](macro@complete) turn functions into handlers. [`server`](macro@server)
//! does the same for the methods of an impl block, which share `&self`:
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
//!         /// A word that the notes must contain
//!         #[arg(min_len = 2)] word: String,
//!         /// Maximum number of notes to return
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
//! The attributes expand to calls of the builder. Use it directly if names or handlers are only known at run time:
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
//! `tool`, `resource`, `template` and `prompt` add an item; the calls that follow (`describe`, `read_only`, `timeout`,
//! …) configure the item added last. Setters never fail. [`Builder::build`], and the methods that build and serve in
//! one call, report all configuration errors at once.
//!
//! # Arguments
//!
//! A handler has at most one argument type, which implements `serde::Deserialize` and `schemars::JsonSchema`. The
//! JSON Schema sent to clients is generated from it: doc comments become descriptions, and `Option` fields are
//! optional. Arguments are validated against this schema before the handler starts (feature `validate`, on by
//! default). Invalid arguments produce an error result that names the parameter, so that the model can correct itself.
//!
//! ```
//! # use toolgate::Server;
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Search {
//!     /// Free text
//!     query: String,
//!     /// Maximum number of hits; 20 by default
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
//! A tool returns text, a number, one or more [`Content`](model::Content) blocks, [`Json`] for structured output with
//! an output schema, or a `Result` of these (see [`IntoOutput`](output::IntoOutput)). An `Err` becomes a tool result with `isError`, and
//! its message is shown to the model. [`HandlerError`], also known as [`ToolError`], converts from every
//! `std::error::Error` with `?`. A panic or a timeout (one minute by default) fails only the call in which it happens.
//! To reply with a JSON-RPC error instead of a result, return a [`ProtocolError`], also with `?` in a function that returns
//! a [`HandlerError`].
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
//! Besides its arguments, a handler can take the [`Context`] of the call, shared [`State`], the [`Principal`], and
//! every other type that implements [`Extract`]. The context identifies the caller, reports progress, writes to the
//! client's log, and tells how much time is left and whether the call was cancelled. Progress and log messages are
//! only sent to clients that requested them. [`Context::session`] keeps values from call to call of a client with a
//! session, and [`Context::server`] returns the server itself.
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
//! When a call is cancelled, or its client disconnects, the handler's future is dropped at its next `await`. Work that
//! the handler moved to another task or thread has to check [`Context::is_cancelled`] or await
//! [`Context::cancelled`].
//!
//! # Elicitation, sampling and roots
//!
//! During a call, a handler can send requests to its client: ask the user ([`Context::elicit`],
//! [`Context::elicit_as`], [`Context::elicit_url`]), ask the client's model ([`Context::sample`]), or list the open
//! folders ([`Context::roots`]).
//!
//! ```
//! # use toolgate::{Context, ElicitOutcome, Field, Form, ToolError};
//! async fn delete(cx: Context) -> Result<&'static str, ToolError> {
//!     let form = Form::new("Delete everything?").field("sure", Field::flag());
//!     match cx.elicit("confirm", form).await? {
//!         ElicitOutcome::Accept(answer) if answer["sure"] == true => Ok("deleted"),
//!         _ => Ok("nothing was changed"),
//!     }
//! }
//! # toolgate::Server::new("s", "1").tool("delete", delete).build().unwrap();
//! ```
//!
//! In older protocol versions the client replies while the call is waiting. In the newest one the request is returned
//! as the result of the call, and the client repeats the call with the reply; the handler then runs from its beginning,
//! and the same `elicit` returns at once. Three rules follow. Propagate [`ServerRequestError`] with `?`. Give each
//! request of a call its own key. Side effects before a request happen more than once unless they are wrapped in
//! [`Context::step`].
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
//! The variables of a URI template and the arguments of a prompt are deserialized into a struct, like the arguments of
//! a tool. A handler returns `None` if the resource does not exist. Items can be added and removed while the server
//! runs ([`Server::add_tool`], [`Server::remove_tool`], …), and connected clients are notified. [`Server::notify`]
//! announces other changes, such as new contents of a resource.
//!
//! # Serving
//!
//! [`Server::serve_stdio`] serves the client that started this process, [`Server::listen`] serves HTTP, and
//! [`Server::serve_io`] serves any pair of byte streams, one JSON message per line.
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
//! let mut response = String::new();
//! client.read_to_string(&mut response).await?;
//! assert!(response.contains("Hello!"));
//! # Ok(())
//! # }
//! ```
//!
//! # Several servers
//!
//! [`Servers`] holds servers by name, and an [`App`] routes HTTP paths to them. [`main!`] accepts both. A running
//! [`Server`] can be changed through any clone of its handle.
//!
//! ```
//! # #[cfg(feature = "http")]
//! # fn main() -> Result<(), toolgate::Error> {
//! use toolgate::{App, Mount, Servers, ToolSpec};
//!
//! let servers = Servers::new();
//! servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
//! servers.server("admin").set_tokens(["secret"]).add_tool(ToolSpec::new("close", || async { "closed" }))?;
//!
//! let app = App::new(&servers)
//!     .mount("/shop/mcp", Mount::fixed("shop"))
//!     .mount("/mcp", Mount::select().or("shop")); // `/mcp/admin` and `/mcp?server=admin` select a server
//! # assert!(app.into_service().is_ok());
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "http"))]
//! # fn main() {}
//! ```
//!
//! # Guards
//!
//! Authentication, rate limits, CORS, IP allow lists and body limits are configured on the builder, or on a running
//! server (`set_tokens`, `set_cors`, …). Guards check the HTTP head of a request before its body is read, in a fixed
//! order that does not depend on the order of the setters. Requests for unknown hosts and from web pages of foreign
//! origins are rejected by default, which prevents DNS rebinding.
//!
//! ```
//! # #[cfg(feature = "http")] {
//! use toolgate::guard::{Rate, Token};
//! use toolgate::{Profile, Server};
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
//! Items hidden by a [`Profile`] are neither listed nor callable. A handler takes a [`Principal`] parameter to learn
//! who is calling.
//!
//! # Events and statistics
//!
//! Event listeners are the middleware of the protocol level: they observe, change or reject requests and responses, on
//! every transport. Do not use them for authorization: the decision of a listener that panics or stalls is ignored, and
//! the request proceeds. Use [guards](#guards) instead.
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
//! [`events::AuditLog`] writes one line of JSON for the end of each call, each error and each rejection, with secrets masked.
//!
//! # Clients that name no protocol version
//!
//! A request without a handshake, a version header or version metadata, such as one sent by `curl`, is served as
//! protocol version 2025-03-26. Programs written for certain other servers can be served in a
//! [`Dialect`](compat::Dialect) of theirs (feature `compat`). Clients that name a protocol version are not affected.
//!
//! # Embedding
//!
//! [`Server::into_service`] returns a `tower` service that can be mounted in axum and in every other router that
//! accepts one. Authentication middleware in front of it puts a [`Principal`] into the request's extensions; sessions,
//! and the state that clients carry between calls, are then bound to that principal. Handlers read other extensions with
//! [`Extension`] or [`Context::extension`].
//!
//! ```
//! fn app(server: toolgate::Server) -> axum::Router {
//!     axum::Router::new().nest_service("/mcp", server.into_service())
//! }
//! ```
//!
//! # Testing
//!
//! The feature `testing`, for your `dev-dependencies`, adds an in-memory client:
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
//! `#[toolgate::test]` runs a test once per protocol version. Transcripts are tests written as text files of requests
//! and expected responses. See [`guide::testing`].
//!
//! # Features
//!
//! | Feature | Default | Adds |
//! |---|---|---|
//! | `http` | yes | HTTP endpoint, listener and guards; without it, only byte streams are served |
//! | `argon2` | yes | Argon2 password hashes for [`Builder::basic_auth`]; without it, a hash is a configuration error |
//! | `macros` | yes | the attributes, [`items!`], and the collection of marked functions |
//! | `validate` | yes | validation of arguments against their JSON Schema; without it, arguments are checked by deserialization and by the `#[arg]` constraints, except `pattern` |
//! | `redb` | no | a [store] in one file |
//! | `redis` | no | a [store] shared by several processes |
//! | `compat` | no | [`compat`]: dialects of other servers, and their names of events |
//! | `full` | no | all of the above |
//! | `testing` | no | `toolgate::testing` and `#[toolgate::test]` |
//!
//! A server behind a router and authentication of your own needs
//! `default-features = false, features = ["http", "macros", "validate"]`.
//!
//! # Versions
//!
//! The minimum supported Rust version is 1.88; the feature `redb` needs 1.90. A later
//! protocol version adds fields and variants to `#[non_exhaustive]` types, which is not a breaking change.
//!
//! Crates whose types are part of this API are re-exported: [`schemars`], [`serde`], [`serde_json`], [`reexports`].

// Without `http` or `compat`, many internal items have no user. Listing them one by one is not worth it.
#![cfg_attr(
    not(all(feature = "http", feature = "compat")),
    allow(dead_code, unused_imports, unreachable_pub)
)]
// The documentation is built with all features; with fewer, links to disabled items do not resolve.
#![cfg_attr(
    not(all(feature = "http", feature = "macros", feature = "compat")),
    allow(rustdoc::broken_intra_doc_links, reason = "links to items of disabled features")
)]

#[cfg(feature = "http")]
mod app;
mod cluster_bus;
mod collect;
mod dispatch;
mod engine;
pub mod error;
/// Authentication, rate limits, CORS and other checks of HTTP requests.
///
/// They are configured with methods of [`Builder`], such as [`Builder::tokens`], and on a running server with methods
/// of [`Server`], such as [`Server::set_tokens`].
#[doc(alias("authentication", "authorization", "middleware", "security"))]
#[cfg(feature = "http")]
pub mod guard;
mod handler;
mod headers;
pub mod model;
mod observe;
mod profile;
mod program;
mod protocol;
mod registry;
mod request;
mod seal;
mod server;
mod servers;
#[doc(alias("session store", "persistence"))]
pub mod store;
mod stream;
mod subscriptions;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
mod util;

#[cfg(feature = "http")]
pub use app::{App, Mount};
pub use collect::{Item, Register};
pub use error::Error;
pub use handler::layer;
pub use handler::public::{context, output};
pub use handler::{
    Context, ElicitOutcome, Extension, Extract, Field, Form, Handler, HandlerError, Headers, Json,
    ServerRequestError, State,
};
pub use profile::Profile;
pub use program::Program;
pub use registry::{ClientCapability, PromptSpec, ResourceSpec, TemplateSpec, ToolSpec};
pub use request::Principal;
pub use server::{Builder, Server};
pub use servers::{Servers, registry};

/// Validated JSON text, kept as received. [`Context::meta`] returns it, and
/// [`ToolOutput`](model::ToolOutput) contains it.
pub use toolgate_wire::RawJson;
/// A JSON-RPC error. A handler that returns one replies with it instead of a result.
pub use toolgate_wire::{ProtocolError, ProtocolErrorKind};

#[cfg(feature = "testing")]
pub use toolgate_macros::test;
#[cfg(feature = "macros")]
pub use toolgate_macros::{complete, items, prompt, resource, server, template, tool};

pub use {schemars, serde, serde_json};

/// Other crates whose types are part of this API, in the versions that Toolgate uses.
pub mod reexports {
    pub use {::bytes, ::http, ::tokio};
    #[cfg(feature = "http")]
    pub use {::http_body, ::tower_service};
}

/// The name of [`HandlerError`] in handlers of tools.
pub type ToolError = HandlerError;

/// Event listeners, which observe, change or reject requests and responses, and the audit log.
///
/// Listeners are added to [`Server::events`] or [`Servers::events`].
#[doc(alias("middleware", "interceptor", "hooks", "observability"))]
pub mod events {
    pub use crate::observe::{
        AuditLog, CallOutcome, ErrorCode, ErrorContext, ErrorEvent, Event, Events, RequestEvent, RequestInfo,
        ResponseEvent, ServerChange, ServerEvent, Subscription, ToolEvent, Transport, mask_secrets,
    };
}

/// Statistics of a server: counts, error rates and response times.
///
/// [`Server::stats_summary`] returns the few that are cheap to poll, [`Server::stats`] all of them,
/// [`Server::sessions`] the open sessions, and [`Servers::prometheus`] the Prometheus text format.
#[doc(alias("metrics", "observability", "telemetry", "prometheus"))]
pub mod stats {
    pub use crate::observe::{
        ErrorStats, LastError, OutcomeCounts, PromptStats, RequestStats, ResourceStats, SecurityStats,
        SessionInfo, StatsDetail, StatsSummary, ToolCalls, ToolStats,
    };
}

/// Types of the HTTP transport: `tower` services, listener options, mounts.
#[cfg(feature = "http")]
pub mod http {
    pub use crate::app::{AppService, MountHandle, PageRequest};
    pub use crate::transport::http::{Body, ServerService};
    pub use crate::transport::listen::{Connections, Options as ListenOptions, RemoteAddr};
}

/// URI templates (RFC 6570): expansion and matching, as used by resource templates.
pub mod uri_template {
    pub use crate::registry::{TemplateError, UriTemplate, UriValue};
}

/// Compatibility with clients that were written for other MCP servers (feature `compat`).
///
/// A [`Dialect`](compat::Dialect) determines the replies to clients that name no protocol version; see [`Builder::dialect`].
/// [`Roots`](compat::Roots) confines the reading of `file:` resources; see [`Builder::workspace_roots`].
#[cfg(feature = "compat")]
pub mod compat {
    pub use crate::registry::Roots;
    pub use toolgate_wire::{Dialect, ErlmcpError, GetDiscovery};
}

/// The imports of a typical program: `use toolgate::prelude::*;`.
///
/// The derive macros of serde and schemars expect these crates in your own `Cargo.toml`. Without them, name the
/// re-exports:
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
        Context, ElicitOutcome, Field, Form, HandlerError, Headers, Json, Principal, Server, State, ToolError,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::json;
}

/// Parsers of this crate, for the fuzz targets. Not part of the API.
#[cfg(all(fuzzing, feature = "http"))]
#[doc(hidden)]
pub mod __fuzz {
    /// Checks the invariants of the HTTP/1.1 fast path's parser for an input.
    pub fn check_http1_parser(input: &[u8]) {
        crate::transport::listen::check_parser(input);
    }
}

/// Used by the code that macros generate. Not covered by semantic versioning.
#[doc(hidden)]
pub mod __private {
    pub use crate::Context;
    #[cfg(feature = "macros")]
    pub use crate::collect::ItemRegistration;
    pub use crate::collect::{Completer, Item, ServerItems, resource, template};
    pub use crate::handler::macros::{
        ArgumentKind, ArgumentPattern, CompleteFallible, CompletePlain, CompleteUnsupported,
        DeserializeOnlyKind, ExtractorKind, HandlerFailure, HandlerFn, ParameterField, ParameterInfo,
        Parameters, Probe, PromptPlain, PromptUnsupported, ReadFallible, ReadFallibleOption, ReadOption,
        ReadPlain, ReadUnsupported, ReadValue, ReturnType, SchemaOnlyKind, ToolFallible, ToolPlain,
        ToolUnsupported, ToolValue, UnsupportedKind, at_least, at_most, below, max_len, min_len,
        require_send, run_blocking, run_blocking_prompt, run_blocking_read, run_blocking_tool,
    };
    pub use crate::model::TaskSupport;
    pub use crate::program::{Package, run};
    pub use crate::registry::{PromptSpec, ToolSpec};
    #[cfg(feature = "testing")]
    pub use crate::testing::harness::{test_each_version, test_once};
    #[cfg(feature = "macros")]
    pub use inventory;
    pub use {schemars, serde, serde_json, std};
}

/// Compiles the code of the README with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(any(doc, doctest), feature = "http", feature = "macros"))]
pub mod guide;
