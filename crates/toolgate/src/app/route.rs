//! Finds the mount and the server of a request, and serves it.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{self, Poll};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use toolgate_wire::{ProtocolError, ProtocolErrorKind};
use tower_service::Service;

use super::App;
use super::mount::{Mount, MountGuardFn, PageFn, PageRequest, ServerSelector};
use crate::guard::ResponsePolicy;
use crate::observe::prometheus;
use crate::request::BoxFuture;
use crate::server::Server;
use crate::transport::RequestHead;
use crate::transport::http::{
    Body, BoxError, MCP_HEADER_NAMES, MountContext, MountPoint, OriginalPath, StatsAccess, not_found,
    prometheus_response, rejection_response, status_response, unknown_server_response,
};
use crate::transport::listen::{RemoteAddr, RequestBody, Serve};
use crate::util::percent;

/// An app as a `tower` service. Cloning is cheap. See [`App::into_service`].
#[derive(Clone)]
pub struct AppService {
    pub(super) app: Arc<App>,
    /// The remote address of the connection, if our own listener accepted it.
    pub(super) remote: Option<SocketAddr>,
}

impl Serve for AppService {
    type Body = Body;

    fn known_header_names() -> &'static [HeaderName] {
        &MCP_HEADER_NAMES
    }

    fn with_remote_addr(&self, remote: SocketAddr) -> AppService {
        AppService { app: Arc::clone(&self.app), remote: Some(remote) }
    }

    fn header_lines(body: &Body) -> &[u8] {
        body.header_lines()
    }

    fn into_full_response(response: Response<Body>) -> Response<Body> {
        Body::into_full_response(response)
    }

    fn respond(&self, head: RequestHead, body: RequestBody) -> BoxFuture<'static, Response<Body>> {
        let (app, remote) = (Arc::clone(&self.app), self.remote);
        Box::pin(async move { app.route(head, body, remote).await })
    }
}

impl fmt::Debug for AppService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AppService").field(&self.app).finish()
    }
}

impl<B> Service<Request<B>> for AppService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (app, remote) = (Arc::clone(&self.app), self.remote);
        let (parts, body) = request.into_parts();
        Box::pin(async move { Ok(app.route(parts.into(), body, remote).await) })
    }
}

impl App {
    /// The mount of a path, and the rest of the path.
    fn find_mount<'a>(&self, path: &'a str) -> Option<(Arc<Mount>, &'a str)> {
        self.mounts.0.load().iter().find_map(|(mounted, mount)| {
            let rest = path.strip_prefix(&**mounted)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| (Arc::clone(mount), rest))
        })
    }

    /// The response to a health check.
    fn health_response(&self, head: &RequestHead) -> Option<Response<Body>> {
        let readiness = self.readiness.as_ref()?;
        let (status, message) = match head.uri.path() {
            "/health" => (200, "ok"),
            "/ready" if readiness.is_cancelled() => (503, "ending"),
            "/ready" => (200, "ready"),
            _ => return None,
        };
        let mut response = status_response(status, message);
        if !matches!(head.method, http::Method::GET | http::Method::HEAD) {
            *response.status_mut() = http::StatusCode::METHOD_NOT_ALLOWED;
        }
        Some(self.with_default_headers(response))
    }

    async fn route<B>(&self, mut head: RequestHead, body: B, remote: Option<SocketAddr>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if let Some(response) = self.health_response(&head) {
            return response;
        }
        let Some((mount, rest)) = self.find_mount(head.uri.path()) else {
            return self.stats_response(&head, remote).await;
        };
        let mount = &*mount;
        let reject = |head: &RequestHead, error: ProtocolError| {
            let mut response = rejection_response(&head.headers, mount.dialect.as_ref(), &error);
            mount.apply_headers(&mut response);
            self.with_default_headers(response)
        };
        let (server, rest) = match self.select_server(mount, &head.uri, rest) {
            Ok(selected) => selected,
            Err(name) => {
                let shown: String = name.chars().take(128).collect();
                let error =
                    ProtocolError::invalid_request(format!("Unknown MCP server: {shown}")).with_status(404);
                return reject(&head, error);
            }
        };
        // A preflight request carries no credentials that a guard could check; the server answers it.
        let is_preflight = head.method == http::Method::OPTIONS;
        if !is_preflight && mount.guard.as_ref().is_some_and(|guard| !guard_allows(guard, &head, remote)) {
            return reject(
                &head,
                ProtocolError::new(ProtocolErrorKind::Unauthorized, "Unauthorized").with_status(403),
            );
        }
        if let Some(page) = &mount.page {
            if !matches!(rest, "" | "/") {
                return self.with_default_headers(not_found());
            }
            let render = |tools| render_page(page, &PageRequest { uri: &head.uri, tools });
            let mut response =
                server.service().serve_page(&head, remote, mount.dialect.clone(), render).await;
            mount.apply_headers(&mut response);
            return response;
        }
        // A GET may be answered with the URL of the endpoint.
        if head.method == http::Method::GET {
            let path = head.uri.path().into();
            head.extensions.insert(OriginalPath(path));
        }
        if let Some(uri) = with_path(&head.uri, if rest.is_empty() { "/" } else { rest }) {
            head.uri = uri;
        }
        let context =
            MountContext { mount_point: MountPoint::Mounted, dialect: mount.dialect.clone(), remote };
        let mut response = server.service().handle(head, body, context).await;
        mount.apply_headers(&mut response);
        response
    }

    /// The server of a request, and the part of the path for it; or the name that no server has.
    fn select_server<'a>(
        &self,
        mount: &Mount,
        uri: &Uri,
        rest: &'a str,
    ) -> Result<(Server, &'a str), String> {
        let default_server = match &mount.selector {
            ServerSelector::Fixed(name) => return self.server_by_name(name).map(|server| (server, rest)),
            ServerSelector::ByRequest { default_server } => default_server,
        };
        let inner = rest.strip_prefix('/').unwrap_or(rest);
        let (segment, after) = match inner.find('/') {
            Some(end) => inner.split_at(end),
            None => (inner, ""),
        };
        let segment = decode_path(segment);
        if !segment.is_empty() {
            return match self.server_by_name(&segment) {
                Ok(server) => Ok((server, after)),
                // The endpoints of the HTTP+SSE transport are below every mount.
                Err(_) if matches!(segment.as_str(), "sse" | "messages") => {
                    self.server_from_query(uri, default_server).map(|server| (server, rest))
                }
                Err(name) => Err(name),
            };
        }
        self.server_from_query(uri, default_server).map(|server| (server, rest))
    }

    fn server_from_query(&self, uri: &Uri, default_server: &str) -> Result<Server, String> {
        let requested = query_param(uri, "server").filter(|name| !name.is_empty());
        self.server_by_name(requested.as_deref().unwrap_or(default_server))
    }

    fn server_by_name(&self, name: &str) -> Result<Server, String> {
        self.servers.get(name).ok_or_else(|| name.to_owned())
    }

    /// The response to a request for metrics.
    async fn metrics_response(
        &self,
        head: &RequestHead,
        remote: Option<SocketAddr>,
    ) -> Option<Response<Body>> {
        let rest = head.uri.path().strip_prefix(self.metrics_path.as_deref()?)?;
        let names = match rest.strip_prefix('/') {
            Some(name) if !name.is_empty() => vec![decode_path(name)],
            Some(_) => self.servers.names(),
            None if rest.is_empty() => self.servers.names(),
            None => return None,
        };
        if head.method != http::Method::GET {
            let mut response = status_response(405, "GET");
            response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("GET"));
            return Some(self.with_default_headers(response));
        }
        let (mut metrics, mut rejection) = (Vec::new(), None);
        for server in names.iter().filter_map(|name| self.servers.get(name)) {
            match server.service().check_stats_access(head, remote).await {
                Ok(access) => metrics.push(server.stats_snapshot(access == StatsAccess::WithNames)),
                Err(response) => rejection = rejection.or(Some(*response)),
            }
        }
        Some(match (metrics.is_empty(), rejection) {
            (true, Some(rejection)) => rejection,
            (true, None) => self.with_default_headers(unknown_server_response()),
            (false, _) => self.with_default_headers(prometheus_response(prometheus(&metrics))),
        })
    }

    async fn stats_response(&self, head: &RequestHead, remote: Option<SocketAddr>) -> Response<Body> {
        if let Some(response) = self.metrics_response(head, remote).await {
            return response;
        }
        let stats_path = self.stats_path.as_deref();
        let Some(rest) =
            stats_path.and_then(|prefix| head.uri.path().strip_prefix(prefix)?.strip_prefix('/'))
        else {
            return self.with_default_headers(rejection_response(
                &head.headers,
                None,
                &ProtocolError::invalid_request("there is nothing here").with_status(404),
            ));
        };
        let (name, action) = rest.split_once('/').unwrap_or((rest, ""));
        match self.servers.get(&decode_path(name)) {
            Some(server) => server.service().serve_stats(head, remote, action).await,
            None => self.with_default_headers(unknown_server_response()),
        }
    }

    /// Sets the default headers of a response that does not come from a server.
    fn with_default_headers(&self, mut response: Response<Body>) -> Response<Body> {
        self.guards.apply_headers(response.headers_mut(), &ResponsePolicy::default());
        response
    }
}

/// Calls the function of a page. If it panics, the page is empty.
fn render_page(page: &PageFn, request: &PageRequest<'_>) -> Bytes {
    let value =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| page(request))).unwrap_or_else(|_| {
            tracing::error!(path = request.uri.path(), "page function panicked; the page is empty");
            serde_json::Value::Null
        });
    value.to_string().into()
}

/// Calls the guard of a mount. If it panics, the request is rejected.
fn guard_allows(guard: &MountGuardFn, head: &RequestHead, remote: Option<SocketAddr>) -> bool {
    let mut parts = head.to_parts();
    if let Some(remote) = remote {
        parts.extensions.insert(RemoteAddr(remote));
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| guard(&parts))).unwrap_or_else(|_| {
        tracing::error!(path = parts.uri.path(), "mount guard panicked; the request is rejected");
        false
    })
}

/// Replaces the path of a URI.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    parts.path_and_query = Some(target.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

/// The first value of a query parameter.
pub(super) fn query_param(uri: &Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&');
    let pair = { pairs }.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(decode_query(pair))
}

/// Percent-decodes a segment of a path.
fn decode_path(text: &str) -> String {
    String::from_utf8_lossy(&percent::decode(text.as_bytes())).into_owned()
}

/// Percent-decodes a value of a query, where a plus sign is a space.
fn decode_query(text: &str) -> String {
    decode_path(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::Servers;

    #[test]
    fn a_plus_sign_is_a_space_in_queries_only() {
        assert_eq!(decode_query("a+b%2B"), "a b+");
        assert_eq!(decode_path("a+b"), "a+b");
        assert_eq!(decode_path("%ff"), "\u{fffd}");
    }

    #[test]
    fn a_query_parameter_is_found_by_name() {
        let uri = Uri::from_static("/x?observer=1&server=my%41pp&server=other");
        assert_eq!(query_param(&uri, "server").as_deref(), Some("myApp"));
        assert_eq!(query_param(&Uri::from_static("/x"), "server"), None);
    }

    #[test]
    fn the_longest_matching_mount_is_used() {
        let app = App::new(&Servers::new())
            .mount("/", Mount::fixed("root"))
            .mount("/api", Mount::fixed("api"))
            .mount("/api/v2", Mount::fixed("two"));
        let found = |path: &str| {
            app.find_mount(path).map(|(mount, rest)| match &mount.selector {
                ServerSelector::Fixed(name) => format!("{name}:{rest}"),
                ServerSelector::ByRequest { .. } => String::new(),
            })
        };
        assert_eq!(found("/api/v2/x").as_deref(), Some("two:/x"));
        assert_eq!(found("/api/v20").as_deref(), Some("api:/v20"));
        assert_eq!(found("/apiary").as_deref(), Some("root:/apiary"));
    }
}
