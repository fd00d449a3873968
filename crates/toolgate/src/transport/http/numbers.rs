//! Statistics over HTTP: what a server counts, for whoever may call it.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::{Body, Endpoint, Place, Way, json as answer, plain};
use crate::guard::{Dress, Gate};
use crate::profile::Profile;
use crate::transport::Asked;

impl Endpoint {
    /// Whether a caller may look at the numbers of this server, judged like any request to it; and whether names of tools
    /// are among what it may see.
    pub(crate) async fn may_look(
        &self,
        parts: &Asked,
        remote: Option<SocketAddr>,
    ) -> Result<bool, Box<Response<Body>>> {
        let inner = &self.inner;
        let way = Way { place: Place::Mounted, dialect: None, remote };
        let guards = inner.guards.load_full();
        let gate = match inner.gate(&guards, parts, &way) {
            Ok(Gate::Prove(claim)) => guards.prove(claim).await,
            gate => gate,
        };
        let unlocked = match gate {
            Ok(gate) => inner.unlock(&guards, gate, parts, &Bytes::new()).await,
            Err(refusal) => Err(refusal),
        };
        match unlocked {
            Ok(pass) => Ok(pass.principal.profile().is_none_or(Profile::is_whole)),
            Err(refusal) => {
                let mut dress = Dress::default();
                let mut response = inner.turn_away(parts, &way, *refusal, &mut dress);
                guards.dress(response.headers_mut(), &dress);
                Err(Box::new(response))
            }
        }
    }

    /// Answers a look at the numbers of this server, or their reset; judged like any request to it.
    pub(crate) async fn numbers(
        &self,
        parts: &Asked,
        remote: Option<SocketAddr>,
        what: &str,
    ) -> Response<Body> {
        let inner = &self.inner;
        let way = Way { place: Place::Mounted, dialect: None, remote };
        let guards = inner.guards.load_full();
        let mut dress = Dress::default();
        let gate = match inner.gate(&guards, parts, &way) {
            Ok(Gate::Prove(claim)) => guards.prove(claim).await,
            gate => gate,
        };
        let unlocked = match gate {
            Ok(Gate::Preflight(headers)) => return super::preflight(*headers),
            Ok(gate) => {
                dress = gate.dress();
                inner.unlock(&guards, gate, parts, &Bytes::new()).await
            }
            Err(refusal) => Err(refusal),
        };
        let mut response = match (unlocked, what, &parts.method) {
            (Err(refusal), ..) => inner.turn_away(parts, &way, *refusal, &mut dress),
            (Ok(_), "summary", &Method::GET) => shown(&inner.entry.observer.stats.summary()),
            // Names of tools and URIs are not for those who may not see all of them, and numbers are not theirs to clear.
            (Ok(pass), "" | "reset", _)
                if pass.principal.profile().is_some_and(|profile| !profile.is_whole()) =>
            {
                plain(StatusCode::NOT_FOUND)
            }
            (Ok(_), "", &Method::GET) => shown(&inner.entry.observer.stats.detail()),
            (Ok(_), "reset", &Method::POST) => {
                inner.entry.observer.stats.reset();
                shown(&json!({ "success": true, "message": "Statistics reset successfully" }))
            }
            (Ok(_), "summary" | "", _) => super::not_allowed(parts, &way, "GET"),
            (Ok(_), "reset", _) => super::not_allowed(parts, &way, "POST"),
            (Ok(_), ..) => plain(StatusCode::NOT_FOUND),
        };
        guards.dress(response.headers_mut(), &dress);
        response
    }
}

/// There is no server of that name.
pub(crate) fn no_numbers() -> Response<Body> {
    answer(404, json!({ "success": false, "error": "Server not found" }).to_string().into())
}

/// How the process is.
pub(crate) fn told(status: u16, said: &str) -> Response<Body> {
    answer(status, json!({ "status": said }).to_string().into())
}

/// Numbers as Prometheus reads them.
pub(crate) fn measures(text: String) -> Response<Body> {
    let mut response = answer(200, text.into());
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn shown(numbers: &impl serde::Serialize) -> Response<Body> {
    let body = serde_json::to_value(numbers).unwrap_or(Value::Null);
    answer(200, body.to_string().into())
}
