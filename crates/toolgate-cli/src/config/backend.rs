//! Settings of tool backends: requests, statements, programs and texts.

use std::time::Duration;

use serde_json::Value;
use toolgate_sources::source::command::CommandSpec;
use toolgate_sources::source::http::{ErrorExposure, Expect, OnExceed, Paging};

use super::connection::UpstreamAuth;

/// The backend of a tool, resource, template or completion.
#[derive(Clone, PartialEq)]
pub(crate) enum BackendConfig {
    Text(String),
    Template(String),
    Command(Box<CommandSpec>),
    Http(Box<Http>),
    Sql(Sql),
    /// A built-in of the program, which only packs may name.
    Builtin(String),
}

impl BackendConfig {
    /// The key that selects this backend.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            BackendConfig::Text(_) => "text",
            BackendConfig::Template(_) => "template",
            BackendConfig::Command(_) => "command",
            BackendConfig::Http(_) => "http",
            BackendConfig::Sql(_) => "sql",
            BackendConfig::Builtin(_) => "builtin",
        }
    }
}

#[derive(Clone, PartialEq)]
pub(crate) struct Http {
    pub(crate) connection: String,
    pub(crate) method: String,
    pub(crate) path: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) cookies: Vec<(String, String)>,
    pub(crate) body: HttpBody,
    pub(crate) pick: Option<String>,
    pub(crate) paging: Paging,
    pub(crate) expect: Expect,
    pub(crate) errors: ErrorExposure,
    pub(crate) on_exceed: OnExceed,
    pub(crate) auth: Option<UpstreamAuth>,
    /// Error codes of the API that mean "not available".
    pub(crate) unavailable_codes: Vec<String>,
    pub(crate) follow_up: Option<Box<HttpFollowUp>>,
    pub(crate) idempotent: Option<bool>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_response: Option<usize>,
    pub(crate) concurrency: usize,
    pub(crate) queue: usize,
}

#[derive(Clone, PartialEq)]
pub(crate) enum HttpBody {
    None,
    Json(Value),
    Form(Vec<(String, String)>),
    Multipart(Vec<(String, HttpPart)>),
    Text { text: String, content_type: Option<String> },
    Bytes { argument: String, content_type: Option<String> },
}

/// A second request, which has the result of the first one as an argument.
#[derive(Clone, PartialEq)]
pub(crate) struct HttpFollowUp {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) json: Option<Value>,
    pub(crate) pick: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum HttpPart {
    Text(String),
    File { argument: String, filename: String, mime: String },
}

#[derive(Clone, PartialEq)]
pub(crate) struct Sql {
    pub(crate) connection: String,
    pub(crate) query: SqlQuery,
    pub(crate) write: bool,
    pub(crate) max_rows: Option<usize>,
    pub(crate) max_bytes: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) expose_errors: Option<bool>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SqlQuery {
    Text(String),
    /// The name of the argument that contains the statement.
    Argument(String),
}
