//! What is said to those who are not served. In which words of the protocol, is not known here.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, header};

use super::{Admitted, ResponsePolicy};

/// When whoever could not be let in because others were before them may come again.
const BUSY_RETRY_SECONDS: u32 = 1;

/// When credentials may be checked again.
const UNAVAILABLE_RETRY_SECONDS: u32 = 5;

/// A request that is not served.
#[derive(Debug)]
pub(crate) struct GuardRejection {
    pub(crate) reason: RejectReason,
    /// In words that can be shown.
    pub(crate) message: Cow<'static, str>,
    pub(crate) response_policy: ResponsePolicy,
    pub(super) challenges: Vec<HeaderValue>,
    /// Seconds.
    retry_after: Option<u32>,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// The head is malformed.
    MalformedHead,
    Host,
    Origin,
    /// The address is not on the list.
    Address,
    /// The body is longer than this.
    TooLarge {
        limit: usize,
    },
    /// The address or the caller comes too often.
    RateLimited,
    /// Credentials are missing or wrong.
    Credentials(CredentialKind),
    /// Credentials are right, and whose they are may not come in.
    Forbidden,
    /// Credentials are wrong, and were so too often.
    TooManyFailures(CredentialKind),
    /// Too many passwords are being checked.
    Busy,
    /// Whoever knows the keys does not answer.
    Unavailable,
}

/// A kind of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialKind {
    Basic,
    Bearer,
    ApiKey,
}

impl RejectReason {
    /// The status of HTTP.
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
        why: RejectReason,
        message: impl Into<Cow<'static, str>>,
        dress: &ResponsePolicy,
    ) -> Box<GuardRejection> {
        let (challenges, retry_after) = (Vec::new(), None);
        Box::new(GuardRejection {
            reason: why,
            message: message.into(),
            response_policy: dress.clone(),
            challenges,
            retry_after,
        })
    }

    pub(super) fn with_retry_after(
        why: RejectReason,
        message: &'static str,
        dress: &ResponsePolicy,
        seconds: u32,
    ) -> Box<GuardRejection> {
        let mut refusal = GuardRejection::new(why, message, dress);
        refusal.retry_after = Some(seconds);
        refusal
    }

    /// In how many seconds to come again.
    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    /// What a client needs to know beside the words: which credentials are wanted, when to come again.
    pub(crate) fn apply_headers(&self, headers: &mut HeaderMap) {
        for challenge in &self.challenges {
            headers.append(header::WWW_AUTHENTICATE, challenge.clone());
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}

pub(super) fn too_many_failures(kind: CredentialKind, pass: &Admitted, seconds: u32) -> Box<GuardRejection> {
    let message = "too many wrong credentials from this address";
    GuardRejection::with_retry_after(
        RejectReason::TooManyFailures(kind),
        message,
        &pass.response_policy,
        seconds,
    )
}

pub(super) fn wrong_credentials(
    kind: CredentialKind,
    challenges: Vec<HeaderValue>,
    pass: &Admitted,
) -> Box<GuardRejection> {
    let message = match kind {
        CredentialKind::Basic => "user or password is wrong",
        CredentialKind::Bearer => "the bearer token is wrong",
        CredentialKind::ApiKey => "Invalid API key",
    };
    let mut refusal = GuardRejection::new(RejectReason::Credentials(kind), message, &pass.response_policy);
    refusal.challenges = challenges;
    refusal
}

pub(super) fn missing_credentials(
    kind: CredentialKind,
    challenges: Vec<HeaderValue>,
    pass: &Admitted,
) -> Box<GuardRejection> {
    let message = match kind {
        CredentialKind::Basic => "a user and a password are needed: `Authorization: Basic`",
        CredentialKind::Bearer => "a token is needed: `Authorization: Bearer`",
        CredentialKind::ApiKey => "an API key is needed: `X-API-Key` or `Authorization: Bearer`",
    };
    let mut refusal = GuardRejection::new(RejectReason::Credentials(kind), message, &pass.response_policy);
    refusal.challenges = challenges;
    refusal
}

pub(super) fn busy(dress: &ResponsePolicy) -> Box<GuardRejection> {
    GuardRejection::with_retry_after(
        RejectReason::Busy,
        "too many passwords are being checked; try again",
        dress,
        BUSY_RETRY_SECONDS,
    )
}

pub(super) fn unavailable(dress: &ResponsePolicy) -> Box<GuardRejection> {
    GuardRejection::with_retry_after(
        RejectReason::Unavailable,
        "credentials cannot be checked at the moment",
        dress,
        UNAVAILABLE_RETRY_SECONDS,
    )
}

pub(super) fn bearer_challenge(is_wrong: bool) -> HeaderValue {
    HeaderValue::from_static(if is_wrong { "Bearer error=\"invalid_token\"" } else { "Bearer" })
}

/// The refusal of a body that is too long, also for one that turns out to be while it is read.
pub(crate) fn too_large(limit: usize, dress: &ResponsePolicy) -> Box<GuardRejection> {
    GuardRejection::new(
        RejectReason::TooLarge { limit },
        format!("Request body too large (max: {limit} bytes)"),
        dress,
    )
}
