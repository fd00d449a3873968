//! Guard rejections, independent of the protocol encoding.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, header};

use super::{CallerIdentity, ResponsePolicy};

/// Retry delay while too many passwords are being checked.
const BUSY_RETRY_SECONDS: u32 = 1;

/// Retry delay while credentials cannot be checked.
const UNAVAILABLE_RETRY_SECONDS: u32 = 5;

/// The rejection of a request.
#[derive(Debug)]
pub(crate) struct GuardRejection {
    pub(crate) reason: RejectReason,
    /// A message for the client.
    pub(crate) message: Cow<'static, str>,
    pub(crate) response_policy: ResponsePolicy,
    pub(super) challenges: Vec<HeaderValue>,
    /// Seconds.
    retry_after: Option<u32>,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// The head is malformed.
    MalformedHead,
    Host,
    Origin,
    /// The address is not allowed.
    Address,
    /// The body is longer than this.
    TooLarge {
        limit: usize,
    },
    /// The address or the principal sends too many requests.
    RateLimited,
    /// Credentials are missing or wrong.
    Credentials(CredentialKind),
    /// The credentials are valid, but their owner may not use this server.
    Forbidden,
    /// The credentials are wrong, and the address has sent too many wrong ones.
    TooManyFailures(CredentialKind),
    /// Too many passwords are being checked.
    Busy,
    /// The credentials cannot be checked.
    Unavailable,
}

/// A kind of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialKind {
    Basic,
    Bearer,
    ApiKey,
}

/// Why credentials are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CredentialProblem {
    Missing,
    Wrong,
}

impl RejectReason {
    /// The HTTP status.
    pub(crate) fn status(self) -> u16 {
        match self {
            RejectReason::MalformedHead => 400,
            RejectReason::Credentials(_) => 401,
            RejectReason::Host | RejectReason::Origin | RejectReason::Address | RejectReason::Forbidden => {
                403
            }
            RejectReason::TooLarge { .. } => 413,
            RejectReason::RateLimited | RejectReason::TooManyFailures(_) | RejectReason::Busy => 429,
            RejectReason::Unavailable => 503,
        }
    }
}

impl GuardRejection {
    pub(super) fn new(
        reason: RejectReason,
        message: impl Into<Cow<'static, str>>,
        policy: &ResponsePolicy,
    ) -> Box<GuardRejection> {
        let (challenges, retry_after) = (Vec::new(), None);
        Box::new(GuardRejection {
            reason,
            message: message.into(),
            response_policy: policy.clone(),
            challenges,
            retry_after,
        })
    }

    pub(super) fn with_retry_after(
        reason: RejectReason,
        message: &'static str,
        policy: &ResponsePolicy,
        seconds: u32,
    ) -> Box<GuardRejection> {
        let mut rejection = GuardRejection::new(reason, message, policy);
        rejection.retry_after = Some(seconds);
        rejection
    }

    /// The retry delay in seconds.
    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    /// Sets `WWW-Authenticate` and `Retry-After`.
    pub(crate) fn apply_headers(&self, headers: &mut HeaderMap) {
        for challenge in &self.challenges {
            headers.append(header::WWW_AUTHENTICATE, challenge.clone());
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}

pub(super) fn too_many_failures(
    kind: CredentialKind,
    caller: &CallerIdentity,
    seconds: u32,
) -> Box<GuardRejection> {
    GuardRejection::with_retry_after(
        RejectReason::TooManyFailures(kind),
        "too many wrong credentials from this address",
        &caller.response_policy,
        seconds,
    )
}

/// Rejects missing or wrong credentials, with the challenges that say which are accepted.
pub(super) fn credentials_rejected(
    problem: CredentialProblem,
    kind: CredentialKind,
    challenges: Vec<HeaderValue>,
    caller: &CallerIdentity,
) -> Box<GuardRejection> {
    let message = match (problem, kind) {
        (CredentialProblem::Wrong, CredentialKind::Basic) => "user or password is wrong",
        (CredentialProblem::Wrong, CredentialKind::Bearer) => "the bearer token is wrong",
        (CredentialProblem::Wrong, CredentialKind::ApiKey) => "Invalid API key",
        (CredentialProblem::Missing, CredentialKind::Basic) => {
            "a user and a password are required: `Authorization: Basic`"
        }
        (CredentialProblem::Missing, CredentialKind::Bearer) => {
            "a token is required: `Authorization: Bearer`"
        }
        (CredentialProblem::Missing, CredentialKind::ApiKey) => {
            "an API key is required: `X-API-Key` or `Authorization: Bearer`"
        }
    };
    let mut rejection =
        GuardRejection::new(RejectReason::Credentials(kind), message, &caller.response_policy);
    rejection.challenges = challenges;
    rejection
}

pub(super) fn busy(policy: &ResponsePolicy) -> Box<GuardRejection> {
    GuardRejection::with_retry_after(
        RejectReason::Busy,
        "too many passwords are being checked; try again",
        policy,
        BUSY_RETRY_SECONDS,
    )
}

pub(super) fn unavailable(policy: &ResponsePolicy) -> Box<GuardRejection> {
    GuardRejection::with_retry_after(
        RejectReason::Unavailable,
        "credentials cannot be checked at the moment",
        policy,
        UNAVAILABLE_RETRY_SECONDS,
    )
}

pub(super) fn bearer_challenge(problem: CredentialProblem) -> HeaderValue {
    HeaderValue::from_static(match problem {
        CredentialProblem::Missing => "Bearer",
        CredentialProblem::Wrong => "Bearer error=\"invalid_token\"",
    })
}

/// Rejects a body that is too long, by its announced length or while it is read.
pub(crate) fn too_large(limit: usize, policy: &ResponsePolicy) -> Box<GuardRejection> {
    GuardRejection::new(
        RejectReason::TooLarge { limit },
        format!("Request body too large (max: {limit} bytes)"),
        policy,
    )
}
