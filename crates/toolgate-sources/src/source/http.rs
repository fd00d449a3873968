//! HTTP tools: the descriptions of clients and requests, and their backends.
//!
//! A [`HttpClient`] is a backend: base URL, credentials, timeouts and connection pool, shared by all tools that use it.
//! A [`HttpBackend`] is one request with placeholders for arguments. This module must not depend on where descriptions
//! come from.

mod backend;
mod body;
mod chain;
mod client;
mod connector;
mod encode;
mod error;
mod headers;
mod jq;
mod response;
mod template;
mod url;

#[cfg(test)]
pub mod tests;

use std::fmt;
use std::time::Duration;

use serde_json::Value;

pub use backend::HttpBackend;
pub use chain::{ChainBackend, FIRST_RESULT_ARGUMENT};
pub use client::{FetchedDocument, HttpClient};
pub use connector::OutboundContext;
pub use encode::{Serialization, Style};

/// The description of a backend. Header and query values are secrets, so there is no `Debug`.
#[derive(Clone)]
pub struct HttpClientSpec {
    /// `https://api.example.com`, optionally with a path that prefixes all requests.
    pub base_url: String,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
    /// Sent with every request, such as API keys.
    pub query: Vec<(String, String)>,
    /// Credentials that depend on the caller.
    pub auth: Auth,
    pub retry: Retry,
    /// For the whole call including retries. The tool's own timeout applies too.
    pub timeout: Duration,
    pub connect_timeout: Duration,
    /// Maximum size of a response in bytes, decompressed.
    pub response_limit: usize,
    /// How many redirects are followed: 0 by default, at most 3.
    pub max_redirects: u8,
    /// PEM text of CA certificates that are trusted in addition to the system's.
    pub ca_pem: Option<String>,
}

impl Default for HttpClientSpec {
    fn default() -> HttpClientSpec {
        HttpClientSpec {
            base_url: String::new(),
            headers: Vec::new(),
            query: Vec::new(),
            auth: Auth::None,
            retry: Retry::default(),
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            response_limit: 1024 * 1024,
            max_redirects: 0,
            ca_pem: None,
        }
    }
}

/// Credentials that depend on the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// Only the headers of the connection.
    #[default]
    None,
    /// The caller's `Authorization` header, unchanged. A call without one is rejected.
    Forward,
    /// These headers of the call. Missing ones are omitted, and a call without any of them is rejected.
    Headers(Vec<String>),
    /// An attribute of the caller's principal. A caller without it is rejected.
    Attribute { attribute: String, header: String, prefix: String },
}

/// When a request is retried: only if its method is idempotent, or if it was never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Maximum number of retries.
    pub max: u32,
    /// Statuses that are retried.
    pub statuses: Vec<u16>,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { max: 2, statuses: vec![429, 502, 503, 504] }
    }
}

/// The description of a request with placeholders.
#[derive(Clone)]
pub struct HttpSpec {
    pub method: String,
    /// Relative to the base URL: `/items/{id}?q={q}`. Each argument stays in its segment.
    pub path: String,
    /// Instead of `path`: a single placeholder for the whole URL, `{url}`.
    pub url: Option<String>,
    /// Serialization of path arguments, where it is not the default.
    pub path_styles: Vec<PathStyle>,
    /// A field whose argument is missing is left out.
    pub query: Vec<Field>,
    pub headers: Vec<Field>,
    pub cookies: Vec<Field>,
    pub body: BodySpec,
    /// A jq expression.
    pub pick: Option<String>,
    pub paging: Paging,
    pub expect: Expect,
    pub errors: ErrorExposure,
    pub on_exceed: OnExceed,
    /// Error codes which mean that the tool's dependency is not available.
    pub unavailable_codes: Vec<String>,
    /// Overrides the connection's.
    pub auth: Option<Auth>,
    /// Tighter than the connection's.
    pub timeout: Option<Duration>,
    /// Tighter than the connection's.
    pub response_limit: Option<usize>,
    /// Overrides whether the method is idempotent.
    pub idempotent: Option<bool>,
    /// Maximum number of concurrent calls, and of calls waiting. Further calls are rejected.
    pub concurrency: usize,
    pub queue: usize,
    pub output_schema: Option<Value>,
}

impl Default for HttpSpec {
    fn default() -> HttpSpec {
        HttpSpec {
            method: "GET".into(),
            path: "/".into(),
            url: None,
            path_styles: Vec::new(),
            query: Vec::new(),
            headers: Vec::new(),
            cookies: Vec::new(),
            body: BodySpec::None,
            pick: None,
            paging: Paging::default(),
            expect: Expect::default(),
            errors: ErrorExposure::default(),
            on_exceed: OnExceed::default(),
            unavailable_codes: Vec::new(),
            auth: None,
            timeout: None,
            response_limit: None,
            idempotent: None,
            concurrency: 64,
            queue: 256,
            output_schema: None,
        }
    }
}

impl fmt::Debug for HttpSpec {
    // Headers may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSpec")
            .field("method", &self.method)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// One field of a query, a form, the headers or the cookies.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    /// A string template.
    pub value: String,
    pub serialization: Serialization,
}

impl Field {
    /// A field with the default serialization of queries and forms: a list is repeated.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Field {
        Field { name: name.into(), value: value.into(), serialization: Serialization::FORM }
    }

    pub fn with_serialization(mut self, serialization: Serialization) -> Field {
        self.serialization = serialization;
        self
    }
}

/// The serialization of a path argument.
#[derive(Clone, Debug)]
pub struct PathStyle {
    pub argument: String,
    /// The name in the API.
    pub name: String,
    pub serialization: Serialization,
}

/// The description of a request body.
#[derive(Clone, Debug, Default)]
pub enum BodySpec {
    #[default]
    None,
    /// A string that is a single placeholder becomes the argument with its type; missing arguments are left out.
    Json {
        value: Value,
        is_optional: bool,
    },
    Form(Vec<Field>),
    Multipart(Vec<PartSpec>),
    /// Placeholders have double braces here: `{{ name }}`.
    Text {
        text: String,
        mime: String,
    },
    /// The argument is base64.
    Bytes {
        argument: String,
        mime: String,
    },
}

/// One part of a multipart form.
#[derive(Clone, Debug)]
pub enum PartSpec {
    Text {
        name: String,
        value: String,
    },
    /// The argument is base64 or a `data:` URL.
    File {
        name: String,
        argument: String,
        filename: String,
        mime: String,
    },
}

/// Where paging information of a response goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paging {
    /// In `_meta`.
    #[default]
    Meta,
    /// In the result: `{"result": …, "paging": …}`.
    Result,
    Off,
}

/// The expected kind of response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// JSON, text or media, but not HTML.
    #[default]
    Auto,
    Json,
    /// Any kind, as text.
    Text,
}

/// How much of a backend's error callers see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorExposure {
    /// The message for client errors (4xx), only the status for server errors (5xx).
    #[default]
    Auto,
    /// Always the message.
    Message,
    /// Only the status.
    Status,
}

/// What to do with a response that exceeds the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExceed {
    #[default]
    Error,
    /// Return the beginning as text.
    Truncate,
}
