//! Pages beside the protocol: JSON about a server, for whoever may call it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use toolgate_wire::Dialect;
use toolgate_wire::model::Tool;

use super::{
    Body, MountContext, MountPoint, ServerService, empty_response, json_response, method_not_allowed,
    preflight_response,
};
use crate::guard::{Admission, ResponsePolicy};
use crate::transport::RequestHead;

impl ServerService {
    /// Answers a look at a page; judged like any request to the server. `make` is given the tools that the caller sees.
    pub(crate) async fn serve_page(
        &self,
        parts: &RequestHead,
        remote: Option<SocketAddr>,
        dialect: Option<Arc<Dialect>>,
        make: impl FnOnce(Vec<Arc<Tool>>) -> Bytes,
    ) -> Response<Body> {
        let inner = &self.inner;
        let dialect = dialect.or_else(|| inner.engine.dialect.load());
        let way = MountContext { mount_point: MountPoint::Mounted, dialect, remote };
        let guards = inner.guards.load_full();
        let mut dress = ResponsePolicy::default();
        let gate = match inner.check_head(&guards, parts, &way) {
            Ok(Admission::PasswordPending(claim)) => guards.check_password(claim).await,
            gate => gate,
        };
        let unlocked = match gate {
            Ok(Admission::Preflight(headers)) => return preflight_response(*headers),
            Ok(gate) => {
                dress = gate.response_policy();
                inner.check_key(&guards, gate, parts, &Bytes::new()).await
            }
            Err(refusal) => Err(refusal),
        };
        let counted = match unlocked {
            Ok(pass) if guards.has_shared_limits() => {
                guards.count_shared(&pass, &inner.engine.scoped_store).await.map(|()| pass)
            }
            unlocked => unlocked,
        };
        let mut response = match (counted, &parts.method) {
            (Err(refusal), _) => inner.reject_unauthorized(parts, &way, *refusal, &mut dress),
            (Ok(pass), &Method::GET) => {
                json_response(200, make(inner.engine.dispatcher.visible_tools(&pass.principal)))
            }
            (Ok(pass), &Method::HEAD) => {
                let body = make(inner.engine.dispatcher.visible_tools(&pass.principal));
                let mut response = json_response(200, Bytes::new());
                response.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
                response
            }
            (Ok(_), _) => method_not_allowed(parts, &way, "GET, HEAD"),
        };
        guards.apply_headers(response.headers_mut(), &dress);
        response
    }
}

/// There is no such page.
pub(crate) fn not_found() -> Response<Body> {
    empty_response(StatusCode::NOT_FOUND)
}
