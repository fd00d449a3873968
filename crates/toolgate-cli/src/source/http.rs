//! Tools made of HTTP requests: what a description can say, and what it becomes.
//!
//! A [`HttpConnection`] is a backend: where it is, how we present ourselves, how patient we are. It is shared by all
//! tools that use it. A [`HttpBackend`] is one request with holes for arguments. Must not know where descriptions come
//! from.

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

/// A backend, as it is described. Values of headers and the query are secrets: there is no `Debug`.
#[derive(Clone)]
pub(crate) struct HttpClientSpec {
    /// `https://api.example.com`, perhaps with a path that all requests start with.
    pub(crate) base_url: String,
    /// Sent with every request.
    pub(crate) headers: Vec<(String, String)>,
    /// Sent with every request: keys that belong into the query.
    pub(crate) query: Vec<(String, String)>,
    /// As whom a request is made, where that depends on the caller.
    pub(crate) auth: Auth,
    pub(crate) retry: Retry,
    /// For a call as a whole, retries included. The tool's own time counts too.
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// Bytes of an answer, inflated.
    pub(crate) response_limit: usize,
    /// How many redirects are followed; none unless said, three at most.
    pub(crate) max_redirects: u8,
    /// PEM text of authorities that are trusted beside those of this machine.
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

/// Credentials that are not the same for everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Auth {
    /// What the connection says is all.
    #[default]
    None,
    /// The caller's own `Authorization`, as it came. A call without one is refused.
    Forward,
    /// These headers of the call, those that it has. A call without any of them is refused.
    Headers(Vec<String>),
    /// Something that is known of the caller. A caller of whom it is not known is refused.
    Attribute { attribute: String, header: String, prefix: String },
}

/// When a request is made again. Only one that may be: a method that is safe to repeat, or one that never arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// How often, after the first time.
    pub(crate) max: u32,
    /// For which statuses.
    pub(crate) statuses: Vec<u16>,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { max: 2, statuses: vec![429, 502, 503, 504] }
    }
}

/// A request with holes, as it is described.
#[derive(Clone)]
pub(crate) struct HttpSpec {
    pub(crate) method: String,
    /// Below the base of the connection: `/items/{id}?q={q}`. Each argument stays in its segment.
    pub(crate) path: String,
    /// Instead of `path`: the one argument that is a whole address, `{url}`.
    pub(crate) url: Option<String>,
    /// How arguments in the path are written, where they are not plain.
    pub(crate) path_styles: Vec<PathStyle>,
    /// A field whose argument is absent is left out.
    pub(crate) query: Vec<Field>,
    pub(crate) headers: Vec<Field>,
    pub(crate) cookies: Vec<Field>,
    pub(crate) body: BodySpec,
    /// An expression of jq.
    pub(crate) pick: Option<String>,
    pub(crate) paging: Paging,
    pub(crate) expect: Expect,
    pub(crate) errors: ErrorExposure,
    pub(crate) on_exceed: OnExceed,
    /// Codes of errors that mean that what the tool needs is not there.
    pub(crate) unavailable_codes: Vec<String>,
    /// Instead of the connection's.
    pub(crate) auth: Option<Auth>,
    /// Tighter than the connection's.
    pub(crate) timeout: Option<Duration>,
    /// Tighter than the connection's.
    pub(crate) response_limit: Option<usize>,
    /// May be repeated although its method says otherwise, or the other way round.
    pub(crate) idempotent: Option<bool>,
    /// Calls at the same time, and how many more may wait. One more is refused.
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
    /// A text with holes.
    pub(crate) value: String,
    pub(crate) serialization: Serialization,
}

impl Field {
    /// As queries and forms have it: a list is repeated.
    pub(crate) fn new(name: impl Into<String>, value: impl Into<String>) -> Field {
        Field { name: name.into(), value: value.into(), serialization: Serialization::FORM }
    }

    pub(crate) fn with_serialization(mut self, serial: Serialization) -> Field {
        self.serialization = serial;
        self
    }
}

/// How an argument is written in a path.
#[derive(Clone, Debug)]
pub(crate) struct PathStyle {
    pub(crate) argument: String,
    /// What the backend calls it.
    pub(crate) name: String,
    pub(crate) serialization: Serialization,
}

/// What a request carries.
#[derive(Clone, Debug, Default)]
pub(crate) enum BodySpec {
    #[default]
    None,
    /// A text that is nothing but a hole becomes the argument with its type; what is absent is left out.
    Json {
        value: Value,
        is_optional: bool,
    },
    Form(Vec<Field>),
    Multipart(Vec<PartSpec>),
    /// Holes have two braces here: `{{ name }}`.
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

/// One part of a form with files.
#[derive(Clone, Debug)]
pub(crate) enum PartSpec {
    Text {
        name: String,
        value: String,
    },
    /// The argument is base64, or a `data:` link.
    File {
        name: String,
        argument: String,
        filename: String,
        mime: String,
    },
}

/// Where totals and links of an answer are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Paging {
    /// In `_meta`.
    #[default]
    Meta,
    /// In the result: `{"result": …, "paging": …}`.
    Result,
    Off,
}

/// What an answer must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Expect {
    /// JSON, text, or media; but no web page.
    #[default]
    Auto,
    Json,
    /// Anything, as text.
    Text,
}

/// What a caller is told of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ErrorExposure {
    /// The message where the request was wrong (4xx), the status alone where the backend is (5xx).
    #[default]
    Auto,
    /// The message always.
    Message,
    /// The status alone.
    Status,
}

/// What happens with an answer that is too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnExceed {
    #[default]
    Error,
    /// The beginning, as text.
    Truncate,
}
