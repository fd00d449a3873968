//! Statistics over HTTP: what a server counts, for whoever may call it.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::{Body, MountContext, MountPoint, ServerService, empty_response, json_response as answer};
use crate::guard::{Admission, ResponsePolicy};
use crate::profile::Profile;
use crate::transport::RequestHead;

impl ServerService {
    /// Whether a caller may look at the numbers of this server, judged like any request to it; and whether names of tools
    /// are among what it may see.
    pub(crate) async fn check_stats_access(
        &self,
        parts: &RequestHead,
        remote: Option<SocketAddr>,
    ) -> Result<bool, Box<Response<Body>>> {
        let inner = &self.inner;
        let way = MountContext { mount_point: MountPoint::Mounted, dialect: None, remote };
        let guards = inner.guards.load_full();
        let gate = match inner.check_head(&guards, parts, &way) {
            Ok(Admission::PasswordPending(claim)) => guards.check_password(claim).await,
            gate => gate,
        };
        let unlocked = match gate {
            Ok(gate) => inner.check_key(&guards, gate, parts, &Bytes::new()).await,
            Err(refusal) => Err(refusal),
        };
        match unlocked {
            Ok(pass) => Ok(pass.principal.profile().is_none_or(Profile::is_unrestricted)),
            Err(refusal) => {
                let mut dress = ResponsePolicy::default();
                let mut response = inner.reject_unauthorized(parts, &way, *refusal, &mut dress);
                guards.apply_headers(response.headers_mut(), &dress);
                Err(Box::new(response))
            }
        }
    }

    /// Answers a look at the numbers of this server, or their reset; judged like any request to it.
    pub(crate) async fn serve_stats(
        &self,
        parts: &RequestHead,
        remote: Option<SocketAddr>,
        what: &str,
    ) -> Response<Body> {
        let inner = &self.inner;
        let way = MountContext { mount_point: MountPoint::Mounted, dialect: None, remote };
        let guards = inner.guards.load_full();
        let mut dress = ResponsePolicy::default();
        let gate = match inner.check_head(&guards, parts, &way) {
            Ok(Admission::PasswordPending(claim)) => guards.check_password(claim).await,
            gate => gate,
        };
        let unlocked = match gate {
            Ok(Admission::Preflight(headers)) => return super::preflight_response(*headers),
            Ok(gate) => {
                dress = gate.response_policy();
                inner.check_key(&guards, gate, parts, &Bytes::new()).await
            }
            Err(refusal) => Err(refusal),
        };
        let mut response = match (unlocked, what, &parts.method) {
            (Err(refusal), ..) => inner.reject_unauthorized(parts, &way, *refusal, &mut dress),
            (Ok(_), "summary", &Method::GET) => serialized_response(&inner.engine.observer.stats.summary()),
            // Names of tools and URIs are not for those who may not see all of them, and numbers are not theirs to clear.
            (Ok(pass), "" | "reset", _)
                if pass.principal.profile().is_some_and(|profile| !profile.is_unrestricted()) =>
            {
                empty_response(StatusCode::NOT_FOUND)
            }
            (Ok(_), "", &Method::GET) => serialized_response(&inner.engine.observer.stats.detail()),
            (Ok(_), "reset", &Method::POST) => {
                inner.engine.observer.stats.reset();
                serialized_response(&json!({ "success": true, "message": "Statistics reset successfully" }))
            }
            (Ok(_), "summary" | "", _) => super::method_not_allowed(parts, &way, "GET"),
            (Ok(_), "reset", _) => super::method_not_allowed(parts, &way, "POST"),
            (Ok(_), ..) => empty_response(StatusCode::NOT_FOUND),
        };
        guards.apply_headers(response.headers_mut(), &dress);
        response
    }
}

/// There is no server of that name.
pub(crate) fn unknown_server_response() -> Response<Body> {
    answer(404, json!({ "success": false, "error": "Server not found" }).to_string().into())
}

/// How the process is.
pub(crate) fn status_response(status: u16, said: &str) -> Response<Body> {
    answer(status, json!({ "status": said }).to_string().into())
}

/// Numbers as Prometheus reads them.
pub(crate) fn prometheus_response(text: String) -> Response<Body> {
    let mut response = answer(200, text.into());
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn serialized_response(numbers: &impl serde::Serialize) -> Response<Body> {
    let body = serde_json::to_value(numbers).unwrap_or(Value::Null);
    answer(200, body.to_string().into())
}
