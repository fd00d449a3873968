//! Settings of databases and APIs.

use std::time::Duration;

use toolgate_sources::source::sql::Driver;

use super::diagnostics::Span;
use super::keys;
use super::table_view::TableView;
use super::tree::Node;

/// A database or an API that tools refer to by name.
#[derive(Clone, PartialEq)]
pub(crate) struct Connection {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) node: Node,
    pub(crate) kind: ConnectionKind,
}

#[derive(Clone, PartialEq)]
pub(crate) enum ConnectionKind {
    Sql(SqlConnectionConfig),
    Http(HttpConnectionConfig),
}

#[derive(Clone, PartialEq)]
pub(crate) struct SqlConnectionConfig {
    pub(crate) driver: Driver,
    pub(crate) url: String,
    pub(crate) pool_max: u32,
    pub(crate) pool_queue: usize,
    pub(crate) pool_wait: Duration,
    pub(crate) pool_idle: Duration,
    pub(crate) read_only: bool,
    pub(crate) timeout: Duration,
    pub(crate) max_rows: usize,
    pub(crate) max_bytes: usize,
    pub(crate) expose_errors: bool,
}

#[derive(Clone, PartialEq)]
pub(crate) struct HttpConnectionConfig {
    pub(crate) base: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) auth: Option<UpstreamAuth>,
    pub(crate) retry_max: u32,
    pub(crate) retry_on: Vec<u16>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_redirects: u8,
    pub(crate) max_response: usize,
    /// Certificates in PEM.
    pub(crate) ca_pem: Option<String>,
}

impl HttpConnectionConfig {
    /// A connection to this base URL, with defaults for all other keys.
    pub(crate) fn new(base: String) -> HttpConnectionConfig {
        HttpConnectionConfig::read(base, &TableView::defaults(&keys::CONNECTION, "http"))
    }

    /// Reads the keys of a table. The certificates are left out, because they are in a file.
    pub(super) fn read(base: String, table: &TableView<'_>) -> HttpConnectionConfig {
        let retry = table.table("retry", &keys::RETRY);
        HttpConnectionConfig {
            base,
            headers: table.text_pairs("headers"),
            query: table.text_pairs("query"),
            auth: UpstreamAuth::read(table.get("auth")),
            retry_max: retry.number("max"),
            retry_on: retry.numbers("on"),
            timeout: table.duration("timeout"),
            connect_timeout: table.duration("connect_timeout"),
            max_redirects: table.number("redirects"),
            max_response: table.bytes("max_response"),
            ca_pem: None,
        }
    }
}

/// Credentials of the caller that a request carries.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum UpstreamAuth {
    /// The caller's `Authorization` header.
    Forward,
    /// These headers of the call.
    Headers(Vec<String>),
    /// An attribute of the caller, in this header and with this prefix.
    Attribute { attribute: String, header: String, prefix: String },
}

impl UpstreamAuth {
    pub(super) fn read(node: Option<&Node>) -> Option<UpstreamAuth> {
        let node = node?;
        let table = TableView::new(Some(node), &keys::UPSTREAM_AUTH);
        match node.text("attribute") {
            None => node.flag("forward").filter(|forward| *forward).map(|_| UpstreamAuth::Forward),
            Some(attribute) => Some(UpstreamAuth::Attribute {
                attribute,
                header: table.text("header"),
                prefix: table.text("prefix"),
            }),
        }
    }
}
