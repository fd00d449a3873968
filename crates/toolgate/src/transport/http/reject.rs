//! Responses to rejected requests; counts and logs the rejections.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, header};
use tokio::time::Instant;
use toolgate_wire::{Dialect, ProtocolError, ProtocolErrorKind, RawJson};

use super::response::{json_response, with_connection_close};
use super::service::Inner;
use super::{Body, MountContext};
use crate::guard::{CredentialKind, GuardRejection, Guards, RejectReason};
use crate::observe;
use crate::protocol::{Peer, reject_head};
use crate::transport::RequestHead;
use crate::util::clock::timer_now;

/// Limits how many rejections are logged, so that a flood of requests does not become a flood of log lines.
#[derive(Default)]
pub(super) struct LogThrottle(Mutex<(Option<Instant>, u64)>);

impl LogThrottle {
    /// Further lines in the same second are counted, and the count is reported with the next line.
    const MAX_LINES_PER_SECOND: u64 = 10;

    /// Returns the number of suppressed lines to report with this one, or `None` if this one must be suppressed.
    fn allow(&self) -> Option<u64> {
        let now = timer_now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (second, count) = &mut *state;
        if second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            let suppressed = count.saturating_sub(LogThrottle::MAX_LINES_PER_SECOND);
            (*second, *count) = (Some(now), 1);
            return Some(suppressed);
        }
        *count += 1;
        (*count <= LogThrottle::MAX_LINES_PER_SECOND).then_some(0)
    }
}

impl Inner {
    /// Returns the response to a request that a guard rejected, with all its headers, and counts the rejection.
    pub(super) fn reject_unauthorized(
        &self,
        guards: &Guards,
        head: &RequestHead,
        mount: &MountContext,
        rejection: &GuardRejection,
    ) -> Response<Body> {
        let message = rejection.message.as_ref();
        let error = match rejection.reason {
            RejectReason::MalformedHead
            | RejectReason::Host
            | RejectReason::Origin
            | RejectReason::Address => ProtocolError::invalid_request(message),
            RejectReason::TooLarge { .. } => ProtocolError::new(ProtocolErrorKind::TooLarge, message),
            RejectReason::RateLimited | RejectReason::TooManyFailures(_) | RejectReason::Busy => {
                ProtocolError::new(ProtocolErrorKind::RateLimited, message)
            }
            RejectReason::Credentials(_) | RejectReason::Forbidden => {
                ProtocolError::new(ProtocolErrorKind::Unauthorized, message)
            }
            RejectReason::Unavailable => ProtocolError::new(ProtocolErrorKind::Busy, message),
        };
        self.record_rejection(head, mount, rejection.reason, message);
        let error = with_retry_after(error, rejection, mount).with_status(rejection.reason.status());
        let mut response = rejection_response(&head.headers, mount.dialect.as_ref(), &error);
        rejection.apply_headers(response.headers_mut());
        guards.apply_headers(response.headers_mut(), &rejection.response_policy);
        response
    }

    fn record_rejection(
        &self,
        head: &RequestHead,
        mount: &MountContext,
        reason: RejectReason,
        message: &str,
    ) {
        let counted = match reason {
            RejectReason::Credentials(CredentialKind::ApiKey)
            | RejectReason::TooManyFailures(CredentialKind::ApiKey) => {
                Some(observe::SecurityRejection::ApiKey)
            }
            RejectReason::Credentials(_) | RejectReason::Forbidden | RejectReason::TooManyFailures(_) => {
                Some(observe::SecurityRejection::Auth)
            }
            RejectReason::TooLarge { .. } => Some(observe::SecurityRejection::BodySize),
            RejectReason::Address => Some(observe::SecurityRejection::Ip),
            RejectReason::Host | RejectReason::Origin => Some(observe::SecurityRejection::Origin),
            RejectReason::RateLimited | RejectReason::Busy => Some(observe::SecurityRejection::RateLimit),
            RejectReason::MalformedHead | RejectReason::Unavailable => None,
        };
        if let Some(counted) = counted {
            self.engine.observer.record_rejection(
                counted,
                observe::Transport::Http,
                self.resolve_client_address(head, mount),
                message,
            );
        }
        if let Some(suppressed) = self.log_throttle.allow() {
            let remote = self.resolve_client_address(head, mount);
            tracing::info!(?reason, message, ?remote, suppressed, "request rejected");
        }
    }

    /// The client address of a request that was not admitted.
    fn resolve_client_address(&self, head: &RequestHead, mount: &MountContext) -> Option<SocketAddr> {
        let remote = mount.remote_addr(head);
        let client = self.guards.load().client_address(remote.map(|remote| remote.ip()), &head.headers);
        client_address(remote, client)
    }

    /// Returns the response to a request that is malformed or too large, and counts the latter.
    pub(super) fn reject_malformed(
        &self,
        head: &RequestHead,
        mount: &MountContext,
        error: &ProtocolError,
    ) -> Response<Body> {
        if error.kind() == ProtocolErrorKind::TooLarge {
            self.record_too_large(self.resolve_client_address(head, mount), error);
        }
        rejection_response(&head.headers, mount.dialect.as_ref(), error)
    }

    /// Returns the response to a message whose body could not be read.
    pub(super) fn reject_body(&self, peer: &Peer, error: &ProtocolError) -> Response<Body> {
        if error.kind() == ProtocolErrorKind::TooLarge {
            self.record_too_large(peer.remote_addr, error);
        }
        rejection_response(&peer.headers, peer.dialect.as_ref(), error)
    }

    fn record_too_large(&self, remote: Option<SocketAddr>, error: &ProtocolError) {
        let (kind, http) = (observe::SecurityRejection::BodySize, observe::Transport::Http);
        self.engine.observer.record_rejection(kind, http, remote, error.message());
    }
}

/// Adds the retry delay to the error itself, for dialects that send it there.
fn with_retry_after(error: ProtocolError, rejection: &GuardRejection, mount: &MountContext) -> ProtocolError {
    match (mount.dialect.as_deref(), rejection.retry_after()) {
        (Some(dialect), Some(seconds)) if dialect.error_data => {
            error.with_data(RawJson::from(serde_json::json!({ "retry_after": seconds })))
        }
        _ => error,
    }
}

/// The address a request comes from: the one a trusted proxy states, or else the remote address of the connection.
pub(super) fn client_address(remote: Option<SocketAddr>, client: Option<IpAddr>) -> Option<SocketAddr> {
    match client {
        Some(client) if remote.is_none_or(|remote| remote.ip() != client) => Some(SocketAddr::new(client, 0)),
        _ => remote,
    }
}

/// The response to a request that is rejected before its message is read, when only the headers are known.
pub(crate) fn rejection_response(
    headers: &HeaderMap,
    dialect: Option<&Arc<Dialect>>,
    error: &ProtocolError,
) -> Response<Body> {
    let (status, body) = reject_head(headers, dialect, error);
    let mut response = json_response(status, body);
    if status == 503 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    // The client is not meant for this server, or sends a body that will not be read.
    if matches!(status, 401 | 403 | 413 | 415) { with_connection_close(response) } else { response }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_rejections_is_throttled() {
        let throttle = LogThrottle::default();
        let logged = (0..1000).filter(|_| throttle.allow().is_some()).count();
        assert_eq!(logged, 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(throttle.allow(), Some(990), "the suppressed lines are reported");
    }
}
