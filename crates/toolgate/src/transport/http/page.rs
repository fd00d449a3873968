//! Pages beside the protocol: JSON about a server, for whoever may call it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use toolgate_wire::Dialect;
use toolgate_wire::model::Tool;

use super::{Body, Endpoint, Place, Way, json, not_allowed, plain, preflight};
use crate::guard::{Dress, Gate};
use crate::transport::Asked;

impl Endpoint {
    /// Answers a look at a page; judged like any request to the server. `make` is given the tools that the caller sees.
    pub(crate) async fn page(
        &self,
        parts: &Asked,
        remote: Option<SocketAddr>,
        dialect: Option<Arc<Dialect>>,
        make: impl FnOnce(Vec<Arc<Tool>>) -> Bytes,
    ) -> Response<Body> {
        let inner = &self.inner;
        let dialect = dialect.or_else(|| inner.entry.dialect.load());
        let way = Way { place: Place::Mounted, dialect, remote };
        let guards = inner.guards.load_full();
        let mut dress = Dress::default();
        let gate = match inner.gate(&guards, parts, &way) {
            Ok(Gate::Prove(claim)) => guards.prove(claim).await,
            gate => gate,
        };
        let unlocked = match gate {
            Ok(Gate::Preflight(headers)) => return preflight(*headers),
            Ok(gate) => {
                dress = gate.dress();
                inner.unlock(&guards, gate, parts, &Bytes::new()).await
            }
            Err(refusal) => Err(refusal),
        };
        let counted = match unlocked {
            Ok(pass) if guards.counts_together() => {
                guards.count(&pass, &inner.entry.scoped_store).await.map(|()| pass)
            }
            unlocked => unlocked,
        };
        let mut response = match (counted, &parts.method) {
            (Err(refusal), _) => inner.turn_away(parts, &way, *refusal, &mut dress),
            (Ok(pass), &Method::GET) => json(200, make(inner.entry.dispatcher.visible_tools(&pass.principal))),
            (Ok(pass), &Method::HEAD) => {
                let body = make(inner.entry.dispatcher.visible_tools(&pass.principal));
                let mut response = json(200, Bytes::new());
                response.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
                response
            }
            (Ok(_), _) => not_allowed(parts, &way, "GET, HEAD"),
        };
        guards.dress(response.headers_mut(), &dress);
        response
    }
}

/// There is no such page.
pub(crate) fn nowhere() -> Response<Body> {
    plain(StatusCode::NOT_FOUND)
}
