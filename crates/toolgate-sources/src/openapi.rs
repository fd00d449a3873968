//! The builder that serves an OpenAPI description.

mod load;
mod resource;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolgate::Item;

use crate::error::SourceError;
use crate::source::egress::EgressSpec;
use crate::source::http::{Auth, HttpClientSpec};
use crate::source::openapi::{OpenApiSpec, OperationKind, SkippedOperation};

/// Serves the operations of an OpenAPI description as tools: the API behind a REST client becomes an MCP server.
///
/// Reads Swagger 2.0, OpenAPI 3.0 and 3.1, as JSON or YAML, from a [file](OpenApi::from_file), a
/// [URL](OpenApi::from_url) or a [text](OpenApi::from_text). Each operation becomes a tool: parameters and the members of
/// a JSON body are its arguments, validated against their schemas, and the response is its structured output.
///
/// ```
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use toolgate::Server;
/// use toolgate_sources::OpenApi;
///
/// let document = r#"{
///     "openapi": "3.0.0",
///     "info": { "title": "Shop", "version": "1" },
///     "paths": { "/items/{id}": { "get": {
///         "operationId": "getItem",
///         "parameters": [{ "name": "id", "in": "path", "required": true, "schema": { "type": "integer" } }],
///         "responses": { "200": { "description": "An item" } }
///     } } }
/// }"#;
/// let shop = OpenApi::from_text(document).base_url("https://shop.example.com/v1").bearer_token("s3cret");
/// let server = Server::new("shop", "1.0.0").add(shop.load().await?).build()?;
/// assert_eq!(server.tools()[0].name, "getItem");
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run()).unwrap();
/// ```
///
/// # Security
///
/// A document that someone else wrote does not decide where requests go: [`OpenApi::base_url`] does. Arguments stay in
/// their position: one segment of a path, one value of a query. Requests to private networks, to this machine and to
/// cloud metadata are rejected unless [`OpenApi::allow_host`] lists them, also when a public name leads there, and
/// redirects are not followed. Credentials are never arguments, and are masked in results and errors.
#[derive(Clone)]
#[must_use = "call `load` and add its items to a server"]
pub struct OpenApi {
    document: DocumentLocation,
    spec: OpenApiSpec,
    /// The base URL is empty if it is not set.
    client: HttpClientSpec,
    egress: EgressSpec,
    uri_scheme: String,
}

#[derive(Clone)]
enum DocumentLocation {
    Text(String),
    File(PathBuf),
    Url(String),
}

/// The items of an OpenAPI description, and the operations that are not among them. See [`OpenApi::load_with_report`].
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadedApi {
    /// The title of the description.
    pub title: String,
    /// The version of the API.
    pub version: String,
    /// Tools, resources and resource templates, for [`Builder::add`](toolgate::Builder::add).
    pub items: Vec<Item>,
    /// Operations that cannot be served, and patterns that match nothing.
    pub skipped: Vec<SkippedOperation>,
}

impl OpenApi {
    fn new(document: DocumentLocation) -> OpenApi {
        OpenApi {
            document,
            spec: OpenApiSpec::default(),
            client: HttpClientSpec::default(),
            egress: EgressSpec::default(),
            uri_scheme: "api".to_owned(),
        }
    }

    /// A description in a file. It may refer to other files below its own folder. The file is read by
    /// [`OpenApi::load`].
    pub fn from_file(path: impl Into<PathBuf>) -> OpenApi {
        OpenApi::new(DocumentLocation::File(path.into()))
    }

    /// A description that [`OpenApi::load`] fetches from an `http` or `https` URL.
    ///
    /// If the description names a server at the same origin, or none, [`OpenApi::base_url`] can be omitted. Headers and
    /// credentials are sent along if the URL has the origin of the API.
    pub fn from_url(url: impl Into<String>) -> OpenApi {
        OpenApi::new(DocumentLocation::Url(url.into()))
    }

    /// A description as JSON or YAML text, such as one included with `include_str!`.
    pub fn from_text(text: impl Into<String>) -> OpenApi {
        OpenApi::new(DocumentLocation::Text(text.into()))
    }

    /// Sets the URL that all requests start with. It replaces the server URL of the description, including its path.
    pub fn base_url(mut self, url: impl Into<String>) -> OpenApi {
        self.client.base_url = url.into();
        self
    }

    /// Sends a header with every request. The value is treated as a secret.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> OpenApi {
        self.client.headers.push((name.into(), value.into()));
        self
    }

    /// Sends a query parameter with every request, such as an API key. The value is treated as a secret.
    pub fn query_param(mut self, name: impl Into<String>, value: impl Into<String>) -> OpenApi {
        self.client.query.push((name.into(), value.into()));
        self
    }

    /// Authenticates every request with a bearer token.
    pub fn bearer_token(self, token: impl fmt::Display) -> OpenApi {
        self.header("Authorization", format!("Bearer {token}"))
    }

    /// Authenticates every request with a user name and a password (HTTP basic authentication).
    pub fn basic_auth(self, user: impl fmt::Display, password: impl fmt::Display) -> OpenApi {
        self.header("Authorization", format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    }

    /// Authenticates requests with the caller's own `Authorization` header. A call without one is rejected.
    pub fn forward_authorization(mut self) -> OpenApi {
        self.client.auth = Auth::Forward;
        self
    }

    /// Authenticates requests with these headers of the call. A call without any of them is rejected.
    pub fn forward_headers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> OpenApi {
        self.client.auth = Auth::Headers(names.into_iter().map(Into::into).collect());
        self
    }

    /// Authenticates requests with a bearer token that is an attribute of the caller's
    /// [`Principal`](toolgate::Principal). A caller without it is rejected.
    pub fn bearer_token_from_principal(mut self, attribute: impl Into<String>) -> OpenApi {
        let (header, prefix) = ("Authorization".to_owned(), "Bearer ".to_owned());
        self.client.auth = Auth::Attribute { attribute: attribute.into(), header, prefix };
        self
    }

    /// Serves only the operations that match one of these patterns.
    ///
    /// | pattern | selects |
    /// |---|---|
    /// | `GET /v2/**` | a method and a path; `*` is one segment, `**` any number |
    /// | `/v2/items/*` | a path with any method |
    /// | `tag:stock` | a tag |
    /// | `listItems`, `id:list*` | an operation by its id; several |
    /// | `deprecated` | deprecated operations |
    pub fn include(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> OpenApi {
        self.spec.include.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Omits the operations that match one of these patterns; see [`OpenApi::include`].
    pub fn exclude(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> OpenApi {
        self.spec.exclude.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Serves GET operations as resources or, if they have arguments, as resource templates instead of tools; for
    /// patterns see [`OpenApi::include`]. Their URIs start with [`OpenApi::uri_scheme`].
    pub fn resources(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> OpenApi {
        let kinds = patterns.into_iter().map(|pattern| (pattern.into(), OperationKind::Template));
        self.spec.kinds.extend(kinds);
        self
    }

    /// Sets the scheme of resource URIs, `api` by default: `api:///items/{id}`.
    pub fn uri_scheme(mut self, scheme: impl Into<String>) -> OpenApi {
        self.uri_scheme = scheme.into();
        self
    }

    /// Adds a prefix to the name of every tool, which otherwise is the `operationId`, or method and path.
    pub fn prefix(mut self, prefix: impl Into<String>) -> OpenApi {
        self.spec.prefix = prefix.into();
        self
    }

    /// Gives an operation another name. `operation` is its `operationId`, or the name that it would have.
    pub fn rename(mut self, operation: impl Into<String>, name: impl Into<String>) -> OpenApi {
        self.spec.rename.push((operation.into(), name.into()));
        self
    }

    /// Allows requests to a host that is private: `10.0.0.5`, `10.0.0.0/8`, `127.0.0.1:8080`, `inventory.internal`.
    /// A description on another host than the API, with an unusual port, must be listed too.
    pub fn allow_host(mut self, host: impl Into<String>) -> OpenApi {
        self.egress.allow.push(host.into());
        self
    }

    /// Limits the time of a call, including retries; 10 seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> OpenApi {
        self.client.timeout = timeout;
        self
    }

    /// Limits the time to connect; 5 seconds by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> OpenApi {
        self.client.connect_timeout = timeout;
        self
    }

    /// Limits the size of a decompressed response; 1 MiB by default. A larger response is an error.
    pub fn max_response_bytes(mut self, bytes: usize) -> OpenApi {
        self.client.response_limit = bytes;
        self
    }

    /// Limits how often a request is sent again after a temporary failure; twice by default. Only idempotent requests
    /// are retried, and those that were never sent.
    pub fn max_retries(mut self, retries: u32) -> OpenApi {
        self.client.retry.max = retries;
        self
    }

    /// Trusts CA certificates in PEM format in addition to those of the system.
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> OpenApi {
        self.client.ca_pem = Some(pem.into());
        self
    }

    /// Reads the description and returns its operations, for [`Builder::add`](toolgate::Builder::add). Operations that
    /// cannot be served are logged as warnings; the others are served.
    ///
    /// No request is sent to the API itself, so it may be down.
    ///
    /// # Errors
    /// If a setting is invalid, the description cannot be read, or no operation can be served.
    pub async fn load(&self) -> Result<Vec<Item>, SourceError> {
        let loaded = self.load_with_report().await?;
        for SkippedOperation { subject, reason } in &loaded.skipped {
            tracing::warn!(api = loaded.title, operation = subject, reason, "operation not served");
        }
        Ok(loaded.items)
    }

    /// Like [`OpenApi::load`], but returns the operations that cannot be served instead of logging them. A test can
    /// check that none is missing.
    ///
    /// # Errors
    /// As [`OpenApi::load`].
    pub async fn load_with_report(&self) -> Result<LoadedApi, SourceError> {
        load::load(self).await
    }
}

impl fmt::Debug for OpenApi {
    // Without headers and query parameters, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let document = match &self.document {
            DocumentLocation::Text(_) => "text".to_owned(),
            DocumentLocation::File(path) => path.display().to_string(),
            DocumentLocation::Url(url) => load::url_without_query(url).to_owned(),
        };
        f.debug_struct("OpenApi")
            .field("document", &document)
            .field("base_url", &self.client.base_url)
            .finish_non_exhaustive()
    }
}
