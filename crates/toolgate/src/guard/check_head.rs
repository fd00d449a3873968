//! Checks the head of a request, and counts requests in the rate limits.

use std::net::IpAddr;

use http::{HeaderMap, Method};

use super::authenticate::PendingAuth;
use super::rate::LimitKey;
use super::{GuardRejection, GuardRequest, Guards, RejectReason, ResponsePolicy, too_large};
use crate::headers::ContentLength;
use crate::request::Principal;
use crate::store::ScopedStore;

/// The decision about a request after its head was checked.
#[derive(Debug)]
pub(crate) enum HeadDecision {
    /// The request passed every guard but the shared rate limits.
    Granted(CallerIdentity),
    /// A password has to be checked, before the body is read: [`Guards::check_password`].
    PasswordPending(Box<PendingAuth>),
    /// An API key has to be checked, with the body: [`Guards::check_key`].
    KeyPending(Box<PendingAuth>),
    /// The request is a CORS preflight: it is answered with 204 and these headers, and nothing else happens.
    Preflight(Box<HeaderMap>),
}

/// The sender of a request, as far as the guards have established it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerIdentity {
    pub(crate) principal: Principal,
    /// The address that the request comes from.
    pub(crate) client: Option<IpAddr>,
    pub(crate) response_policy: ResponsePolicy,
}

impl CallerIdentity {
    /// Adds another authenticated identity. The first id stays, and the caller sees no more items than before.
    pub(super) fn merge_principal(&mut self, principal: &Principal) {
        self.principal = std::mem::take(&mut self.principal).merge(principal);
    }
}

impl Guards {
    /// Checks the head of a request.
    pub(crate) fn check_head(&self, head: &GuardRequest<'_>) -> Result<HeadDecision, Box<GuardRejection>> {
        let is_secure = head.is_tls || self.trusted_proxies.is_forwarded_https(head.peer, head.headers);
        let mut policy = ResponsePolicy { allow_origin: None, is_secure };
        let parsed = head.parsed_headers;
        self.hosts.check_host(head.uri, head.headers, parsed).map_err(|rejected| {
            let reason =
                if rejected.status == 400 { RejectReason::MalformedHead } else { RejectReason::Host };
            GuardRejection::new(reason, rejected.message, &policy)
        })?;
        if !self.failed_settings.is_empty() {
            let message = "the server is misconfigured and rejects all requests; see its log";
            return Err(GuardRejection::new(RejectReason::Unavailable, message, &policy));
        }
        if let Some(limit) = self.body_limit {
            check_length(parsed.content_length, limit, &policy)?;
        }
        let client = self.trusted_proxies.client_address(head.peer, head.headers);
        if !self.addresses.is_empty() {
            self.check_address(client, &policy)?;
        }
        let origin = self.hosts.check_origin(parsed, &self.cors);
        let origin = origin
            .map_err(|rejected| GuardRejection::new(RejectReason::Origin, rejected.message, &policy))?;
        if let Some(origin) = origin {
            policy.allow_origin =
                Some(Box::new(self.cors.allow_origin_value(origin, head.is_literal_wildcard)));
            if *head.method == Method::OPTIONS {
                return Ok(HeadDecision::Preflight(Box::new(self.preflight_headers(head.headers, &policy))));
            }
        }
        if let Some(limiter) = &self.address_limiter {
            limiter.take(LimitKey::from_address(client)).map_err(|seconds| {
                GuardRejection::with_retry_after(
                    RejectReason::RateLimited,
                    "too many requests from this address",
                    &policy,
                    seconds,
                )
            })?;
        }
        let caller = CallerIdentity {
            principal: head.principal.cloned().unwrap_or_default(),
            client,
            response_policy: policy,
        };
        if self.requires_credentials() {
            self.authenticate(head, caller)
        } else {
            self.limit_principal(caller).map(HeadDecision::Granted)
        }
    }

    /// Counts a request in the rate limit of its principal. This is the last check, after the credentials.
    pub(super) fn limit_principal(
        &self,
        caller: CallerIdentity,
    ) -> Result<CallerIdentity, Box<GuardRejection>> {
        if let Some(id) = caller.principal.id()
            && let Some(limiter) = self.limiter_for(id)
        {
            limiter.take(LimitKey::Principal(id)).map_err(|seconds| {
                GuardRejection::with_retry_after(
                    RejectReason::RateLimited,
                    "too many requests from this caller",
                    &caller.response_policy,
                    seconds,
                )
            })?;
        }
        Ok(caller)
    }

    /// Whether some limits are shared by all processes. They are counted in the store, see [`Guards::count_shared`].
    #[inline]
    pub(crate) fn has_shared_limits(&self) -> bool {
        let common = [&self.address_limiter, &self.principal_limiter].into_iter().flatten();
        common.chain(self.principal_overrides.values()).any(|limiter| limiter.is_shared())
    }

    /// Counts a request in the limits that all processes share.
    ///
    /// Cancel safe: yes; it may have been counted.
    pub(crate) async fn count_shared(
        &self,
        caller: &CallerIdentity,
        store: &ScopedStore,
    ) -> Result<(), Box<GuardRejection>> {
        let too_many = |message| {
            move |seconds| {
                GuardRejection::with_retry_after(
                    RejectReason::RateLimited,
                    message,
                    &caller.response_policy,
                    seconds,
                )
            }
        };
        if let Some(limiter) = &self.address_limiter {
            let counted = limiter.take_shared(LimitKey::from_address(caller.client), store).await;
            counted.map_err(too_many("too many requests from this address"))?;
        }
        if let Some(id) = caller.principal.id()
            && let Some(limiter) = self.limiter_for(id)
        {
            let counted = limiter.take_shared(LimitKey::Principal(id), store).await;
            counted.map_err(too_many("too many requests from this caller"))?;
        }
        Ok(())
    }

    fn check_address(
        &self,
        client: Option<IpAddr>,
        policy: &ResponsePolicy,
    ) -> Result<(), Box<GuardRejection>> {
        match client {
            Some(client) if self.addresses.contains(client) => Ok(()),
            Some(client) => Err(GuardRejection::new(
                RejectReason::Address,
                format!("address {client} is not allowed; allow it with `allow_ips`"),
                policy,
            )),
            None => Err(GuardRejection::new(
                RejectReason::Address,
                "only listed addresses are allowed, and the address of this request is unknown",
                policy,
            )),
        }
    }

    /// The address that a request comes from, as far as its headers are trusted.
    pub(crate) fn client_address(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        self.trusted_proxies.client_address(peer, headers)
    }
}

/// Rejects a body whose announced length is over the limit.
fn check_length(
    length: ContentLength,
    limit: usize,
    policy: &ResponsePolicy,
) -> Result<(), Box<GuardRejection>> {
    match length {
        ContentLength::Bytes(length) if length > limit as u64 => Err(too_large(limit, policy)),
        ContentLength::Bytes(_) | ContentLength::Absent => Ok(()),
        ContentLength::Malformed => Err(GuardRejection::new(
            RejectReason::MalformedHead,
            "header content-length is malformed",
            policy,
        )),
    }
}
