//! Authorizes HTTP requests: every request is authorized here, and nowhere else.
//!
//! There is one sequence for every endpoint, [`Inner::admit`]: the guards check the head, a pending password is checked,
//! a CORS preflight is answered, the body is read, a pending API key is checked with it, and the shared rate limits
//! count the request. An [`Admitted`] can only be made here, and a [`Peer`] of the transport only from an `Admitted`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use toolgate_wire::ProtocolError;

use super::reject::client_address;
use super::response::preflight_response;
use super::service::Inner;
use super::{Body, MountContext};
use crate::guard::{
    CallerIdentity, GuardRejection, GuardRequest, Guards, HeadDecision, KeyRequest, ResponsePolicy,
};
use crate::headers::REQUEST_ID;
use crate::observe;
use crate::protocol::{Channel, Peer};
use crate::request::Principal;
use crate::transport::RequestHead;

/// The caller of an authorized request. Only [`Inner::admit_by_head`] and [`Inner::admit`] make one.
pub(super) struct Admitted(CallerIdentity);

/// The result of authorizing a request.
pub(super) enum Admission {
    /// The request is authorized. The body is the one that was read to find out, or empty.
    Admitted(Admitted, Bytes),
    /// The request is a CORS preflight: it is answered with 204 and these headers, and nothing else happens.
    Preflight(Box<HeaderMap>),
    /// A guard rejected the request.
    Rejected(Box<GuardRejection>),
    /// The request is malformed, which was found before it was authorized completely. This is the response to it.
    Malformed(Box<Response<Body>>, ResponsePolicy),
}

/// The result of authorizing a request by its head alone.
pub(super) enum HeadAdmission {
    /// The request is authorized. This is the common case, and needs no waiting.
    Admitted(Admitted),
    /// [`Inner::admit`] has to continue from here.
    Undecided(Result<HeadDecision, Box<GuardRejection>>),
}

impl Inner {
    /// Authorizes a request by its head, as far as that is possible without waiting.
    ///
    /// Counts the request in the local rate limits, so it is called once for each request.
    pub(super) fn admit_by_head(
        &self,
        guards: &Guards,
        head: &RequestHead,
        mount: &MountContext,
    ) -> HeadAdmission {
        // The name is sent in challenges only.
        let server_info = guards.requires_credentials().then(|| self.engine.protocol.server_info.load());
        let decision = guards.check_head(&GuardRequest {
            method: &head.method,
            uri: &head.uri,
            headers: &head.headers,
            parsed_headers: head.headers.parsed(),
            peer: mount.remote_addr(head).map(|remote| remote.ip()),
            is_tls: false,
            principal: head.extensions.get::<Principal>(),
            server_name: server_info.as_ref().map_or("", |info| &info.implementation.name),
            is_literal_wildcard: mount.dialect.as_ref().is_some_and(|dialect| dialect.cors_literal_wildcard),
        });
        match decision {
            Ok(HeadDecision::Granted(caller)) if !guards.has_shared_limits() => {
                HeadAdmission::Admitted(Admitted(caller))
            }
            decision => HeadAdmission::Undecided(decision),
        }
    }

    /// Decides whether a request is authorized, continuing from the result of its head.
    ///
    /// `body` reads the body, or makes other checks that must precede the remaining authorization; it is polled once
    /// the head and the password are accepted, and its error is the response. Requests without a body pass
    /// [`no_body`].
    ///
    /// Cancel safe: yes; the request may have been counted in the rate limits.
    pub(super) async fn admit(
        &self,
        guards: &Guards,
        head: &RequestHead,
        mount: &MountContext,
        by_head: HeadAdmission,
        body: impl Future<Output = Result<Bytes, Box<Response<Body>>>>,
    ) -> Admission {
        let decision = match by_head {
            HeadAdmission::Admitted(admitted) => {
                return match body.await {
                    Ok(bytes) => Admission::Admitted(admitted, bytes),
                    Err(response) => Admission::Malformed(response, admitted.0.response_policy),
                };
            }
            HeadAdmission::Undecided(Ok(HeadDecision::PasswordPending(pending))) => {
                Box::pin(guards.check_password(pending)).await
            }
            HeadAdmission::Undecided(decision) => decision,
        };
        // `Err`: the API key has to be checked.
        let granted = match decision {
            Ok(HeadDecision::Granted(caller)) => Ok(caller),
            Ok(HeadDecision::KeyPending(pending) | HeadDecision::PasswordPending(pending)) => Err(pending),
            Ok(HeadDecision::Preflight(headers)) => return Admission::Preflight(headers),
            Err(rejection) => return Admission::Rejected(rejection),
        };
        let policy = match &granted {
            Ok(caller) => caller.response_policy.clone(),
            Err(pending) => pending.response_policy().clone(),
        };
        let bytes = match body.await {
            Ok(bytes) => bytes,
            Err(response) => return Admission::Malformed(response, policy),
        };
        let verified = match granted {
            Ok(caller) => Ok(caller),
            // A key provider gets one method, so a batch of several must not pass as a request without one.
            Err(_) if is_batch(&bytes) => {
                let error =
                    ProtocolError::invalid_request("batches are not allowed where API keys are required");
                return Admission::Malformed(Box::new(self.reject_malformed(head, mount, &error)), policy);
            }
            Err(pending) => {
                let request = self.key_request(head, &bytes).with_remote_addr(pending.client());
                guards.check_key(pending, request).await
            }
        };
        let caller = match verified {
            Ok(caller) => caller,
            Err(rejection) => return Admission::Rejected(rejection),
        };
        if guards.has_shared_limits()
            && let Err(rejection) = guards.count_shared(&caller, &self.engine.scoped_store).await
        {
            return Admission::Rejected(rejection);
        }
        Admission::Admitted(Admitted(caller), bytes)
    }

    /// Authorizes a request without a body; see [`Inner::admit`]. The error is the response to it.
    pub(super) async fn admit_without_body(
        &self,
        guards: &Guards,
        head: &RequestHead,
        mount: &MountContext,
    ) -> Result<Admitted, Box<Response<Body>>> {
        let by_head = self.admit_by_head(guards, head, mount);
        let admission = self.admit(guards, head, mount, by_head, no_body()).await;
        self.admitted_or_response(guards, head, mount, admission).map(|(admitted, _)| admitted)
    }

    /// Returns the caller and the body of an authorized request, or the complete response to any other.
    pub(super) fn admitted_or_response(
        &self,
        guards: &Guards,
        head: &RequestHead,
        mount: &MountContext,
        admission: Admission,
    ) -> Result<(Admitted, Bytes), Box<Response<Body>>> {
        Err(match admission {
            Admission::Admitted(admitted, bytes) => return Ok((admitted, bytes)),
            Admission::Preflight(headers) => Box::new(preflight_response(*headers)),
            Admission::Rejected(rejection) => {
                Box::new(self.reject_unauthorized(guards, head, mount, &rejection))
            }
            Admission::Malformed(mut response, policy) => {
                guards.apply_headers(response.headers_mut(), &policy);
                response
            }
        })
    }

    fn key_request(&self, head: &RequestHead, body: &Bytes) -> KeyRequest {
        let request = KeyRequest::new(&*self.engine.protocol.server_info.load().implementation.name)
            .with_body(body.clone())
            .with_headers(HeaderMap::clone(&head.headers))
            .with_http_method(head.method.clone());
        match head.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()) {
            Some(id) => request.with_request_id(id),
            None => request,
        }
    }
}

impl Admitted {
    pub(super) fn principal(&self) -> &Principal {
        &self.0.principal
    }

    /// The address of the client: of the connection, or as a trusted proxy states it.
    pub(super) fn client_address(&self, remote: Option<SocketAddr>) -> Option<IpAddr> {
        client_address(remote, self.0.client).map(|address| address.ip())
    }

    /// Determines the headers of the response.
    pub(super) fn response_policy(&self) -> &ResponsePolicy {
        &self.0.response_policy
    }

    /// The client as the protocol layer sees it.
    pub(super) fn into_peer(self, head: RequestHead, via: Channel, mount: &MountContext) -> Peer {
        let remote_addr = client_address(mount.remote_addr(&head), self.0.client);
        Peer {
            remote_addr,
            principal: self.0.principal,
            headers: head.headers,
            extensions: (!head.extensions.is_empty()).then(|| Arc::new(head.extensions)),
            via,
            dialect: mount.dialect.clone(),
            transport: observe::Transport::Http,
        }
    }

    #[cfg(test)]
    pub(super) fn anonymous() -> Admitted {
        Admitted(CallerIdentity::default())
    }
}

/// The body of a request that has none.
async fn no_body() -> Result<Bytes, Box<Response<Body>>> {
    Ok(Bytes::new())
}

/// Whether a body is a JSON array, without parsing it.
fn is_batch(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'[')
}
