//! Statistics over HTTP, for callers that are authorized to call the server.

use std::net::SocketAddr;

use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::response::{empty_response, json_response, method_not_allowed};
use super::{Body, MountContext, MountPoint, ServerService};
use crate::profile::Profile;
use crate::transport::RequestHead;

/// Which names the statistics of a server may show to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatsAccess {
    /// The caller sees every tool, so the names of tools are included.
    WithNames,
    WithoutNames,
}

impl ServerService {
    /// Checks whether a caller may read the statistics of this server, authorized like any request to it. The error is
    /// the response.
    pub(crate) async fn check_stats_access(
        &self,
        head: &RequestHead,
        remote: Option<SocketAddr>,
    ) -> Result<StatsAccess, Box<Response<Body>>> {
        let mount = MountContext { mount_point: MountPoint::Mounted, dialect: None, remote };
        let guards = self.inner.guards.load_full();
        let admitted = self.inner.admit_without_body(&guards, head, &mount).await?;
        Ok(match admitted.principal().profile() {
            Some(profile) if !Profile::is_unrestricted(profile) => StatsAccess::WithoutNames,
            _ => StatsAccess::WithNames,
        })
    }

    /// Responds to a request for the statistics of this server, or for their reset; authorized like any request to it.
    pub(crate) async fn serve_stats(
        &self,
        head: &RequestHead,
        remote: Option<SocketAddr>,
        action: &str,
    ) -> Response<Body> {
        let inner = &self.inner;
        let mount = MountContext { mount_point: MountPoint::Mounted, dialect: None, remote };
        let guards = inner.guards.load_full();
        let admitted = match inner.admit_without_body(&guards, head, &mount).await {
            Ok(admitted) => admitted,
            Err(response) => return *response,
        };
        let is_restricted = admitted.principal().profile().is_some_and(|profile| !profile.is_unrestricted());
        let stats = &inner.engine.observer.stats;
        let mut response = match (action, &head.method) {
            ("summary", &Method::GET) => serialized_response(&stats.summary()),
            // The details name tools and URIs, which a restricted caller may not see; nor may it reset the counters.
            ("" | "reset", _) if is_restricted => empty_response(StatusCode::NOT_FOUND),
            ("", &Method::GET) => serialized_response(&stats.detail()),
            ("reset", &Method::POST) => {
                stats.reset();
                serialized_response(&json!({ "success": true, "message": "Statistics reset successfully" }))
            }
            ("summary" | "", _) => method_not_allowed(head, &mount, "GET"),
            ("reset", _) => method_not_allowed(head, &mount, "POST"),
            _ => empty_response(StatusCode::NOT_FOUND),
        };
        guards.apply_headers(response.headers_mut(), admitted.response_policy());
        response
    }
}

/// The response if there is no server of that name.
pub(crate) fn unknown_server_response() -> Response<Body> {
    json_response(404, json!({ "success": false, "error": "Server not found" }).to_string().into())
}

/// The health of the process.
pub(crate) fn status_response(status: u16, message: &str) -> Response<Body> {
    json_response(status, json!({ "status": message }).to_string().into())
}

/// Metrics in the text format of Prometheus.
pub(crate) fn prometheus_response(text: String) -> Response<Body> {
    let mut response = json_response(200, text.into());
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

fn serialized_response(stats: &impl serde::Serialize) -> Response<Body> {
    let body = serde_json::to_value(stats).unwrap_or(Value::Null);
    json_response(200, body.to_string().into())
}
