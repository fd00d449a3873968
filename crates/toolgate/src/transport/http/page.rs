//! Pages about a server, outside the protocol: JSON for plain HTTP clients.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use toolgate_wire::Dialect;
use toolgate_wire::model::Tool;

use super::response::{empty_response, json_response, method_not_allowed};
use super::{Body, MountContext, MountPoint, ServerService};
use crate::transport::RequestHead;

impl ServerService {
    /// Responds to a request for a page, authorized like any request to the server. `render` is given the tools that are
    /// visible to the caller.
    pub(crate) async fn serve_page(
        &self,
        head: &RequestHead,
        remote: Option<SocketAddr>,
        dialect: Option<Arc<Dialect>>,
        render: impl FnOnce(Vec<Arc<Tool>>) -> Bytes,
    ) -> Response<Body> {
        let inner = &self.inner;
        let dialect = dialect.or_else(|| inner.engine.dialect.load());
        let mount = MountContext { mount_point: MountPoint::Mounted, dialect, remote };
        let guards = inner.guards.load_full();
        let admitted = match inner.admit_without_body(&guards, head, &mount).await {
            Ok(admitted) => admitted,
            Err(response) => return *response,
        };
        let visible_tools = || inner.engine.dispatcher.visible_tools(admitted.principal());
        let mut response = match head.method {
            Method::GET => json_response(200, render(visible_tools())),
            Method::HEAD => {
                let body = render(visible_tools());
                let mut response = json_response(200, Bytes::new());
                response.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
                response
            }
            _ => method_not_allowed(head, &mount, "GET, HEAD"),
        };
        guards.apply_headers(response.headers_mut(), admitted.response_policy());
        response
    }
}

/// The response for a path without a page.
pub(crate) fn not_found() -> Response<Body> {
    empty_response(StatusCode::NOT_FOUND)
}
