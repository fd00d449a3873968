//! Write an async function, get an MCP tool that every client of all five protocol revisions can call.
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

mod clock;
mod dispatch;
mod entry;
mod era;
mod error;
mod guard;
mod handler;
mod hub;
mod registry;
mod request;
mod seal;
mod server;
mod stream;
mod transport;

pub use error::{Error, ErrorKind};
pub use handler::{
    AskError, Changes, Context, Elicited, Extract, Field, Form, Handler, IntoContents, IntoOutput, IntoPrompt, Json,
    State, ToolError,
};
pub use registry::{
    Need, PromptSpec, ResourceSpec, TemplateError, TemplateSpec, ToolSpec, UriTemplate, UriValue,
};
pub use request::Principal;
pub use server::{Builder, Last, Server};
#[cfg(feature = "http")]
pub use transport::http::{Body, Endpoint};
#[cfg(feature = "http")]
pub use transport::listen::{Options as ListenOptions, Remote};

/// The words of the protocol, as handlers use them.
pub use toolgate_wire::model;
