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
pub(crate) mod tests;

use std::fmt;
use std::time::Duration;

use serde_json::Value;

pub(crate) use backend::HttpBackend;
pub(crate) use chain::{ChainBackend, FIRST_RESULT_ARGUMENT};
pub(crate) use client::{FetchedDocument, HttpClient};
pub(crate) use connector::OutboundContext;
pub(crate) use encode::{Serialization, Style};

/// The description of a backend. Header and query values are secrets, so there is no `Debug`.
#[derive(Clone)]
pub(crate) struct HttpClientSpec {
    /// `https://api.example.com`, optionally with a path that prefixes all requests.
    pub(crate) base_url: String,
    /// Sent with every request.
    pub(crate) headers: Vec<(String, String)>,
    /// Sent with every request, such as API keys.
    pub(crate) query: Vec<(String, String)>,
    /// Credentials that depend on the caller.
    pub(crate) auth: Auth,
    pub(crate) retry: Retry,
    /// For the whole call including retries. The tool's own timeout applies too.
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// Maximum size of a response in bytes, decompressed.
    pub(crate) response_limit: usize,
    /// How many redirects are followed: 0 by default, at most 3.
    pub(crate) max_redirects: u8,
    /// PEM text of CA certificates that are trusted in addition to the system's.
    pub(crate) ca_pem: Option<String>,
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
pub(crate) enum Auth {
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
pub(crate) struct Retry {
    /// Maximum number of retries.
    pub(crate) max: u32,
    /// Statuses that are retried.
    pub(crate) statuses: Vec<u16>,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { max: 2, statuses: vec![429, 502, 503, 504] }
    }
}

/// The description of a request with placeholders.
#[derive(Clone)]
pub(crate) struct HttpSpec {
    pub(crate) method: String,
    /// Relative to the base URL: `/items/{id}?q={q}`. Each argument stays in its segment.
    pub(crate) path: String,
    /// Instead of `path`: a single placeholder for the whole URL, `{url}`.
    pub(crate) url: Option<String>,
    /// Serialization of path arguments, where it is not the default.
    pub(crate) path_styles: Vec<PathStyle>,
    /// A field whose argument is missing is left out.
    pub(crate) query: Vec<Field>,
    pub(crate) headers: Vec<Field>,
    pub(crate) cookies: Vec<Field>,
    pub(crate) body: BodySpec,
    /// A jq expression.
    pub(crate) pick: Option<String>,
    pub(crate) paging: Paging,
    pub(crate) expect: Expect,
    pub(crate) errors: ErrorExposure,
    pub(crate) on_exceed: OnExceed,
    /// Error codes which mean that the tool's dependency is not available.
    pub(crate) unavailable_codes: Vec<String>,
    /// Overrides the connection's.
    pub(crate) auth: Option<Auth>,
    /// Tighter than the connection's.
    pub(crate) timeout: Option<Duration>,
    /// Tighter than the connection's.
    pub(crate) response_limit: Option<usize>,
    /// Overrides whether the method is idempotent.
    pub(crate) idempotent: Option<bool>,
    /// Maximum number of concurrent calls, and of calls waiting. Further calls are rejected.
    pub(crate) concurrency: usize,
    pub(crate) queue: usize,
    pub(crate) output_schema: Option<Value>,
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
pub(crate) struct Field {
    pub(crate) name: String,
    /// A string template.
    pub(crate) value: String,
    pub(crate) serialization: Serialization,
}

impl Field {
    /// A field with the default serialization of queries and forms: a list is repeated.
    pub(crate) fn new(name: impl Into<String>, value: impl Into<String>) -> Field {
        Field { name: name.into(), value: value.into(), serialization: Serialization::FORM }
    }

    pub(crate) fn with_serialization(mut self, serialization: Serialization) -> Field {
        self.serialization = serialization;
        self
    }
}

/// The serialization of a path argument.
#[derive(Clone, Debug)]
pub(crate) struct PathStyle {
    pub(crate) argument: String,
    /// The name in the API.
    pub(crate) name: String,
    pub(crate) serialization: Serialization,
}

/// The description of a request body.
#[derive(Clone, Debug, Default)]
pub(crate) enum BodySpec {
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
pub(crate) enum PartSpec {
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
pub(crate) enum Paging {
    /// In `_meta`.
    #[default]
    Meta,
    /// In the result: `{"result": …, "paging": …}`.
    Result,
    Off,
}

/// The expected kind of response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Expect {
    /// JSON, text or media, but not HTML.
    #[default]
    Auto,
    Json,
    /// Any kind, as text.
    Text,
}

/// How much of a backend's error callers see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ErrorExposure {
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
pub(crate) enum OnExceed {
    #[default]
    Error,
    /// Return the beginning as text.
    Truncate,
}
