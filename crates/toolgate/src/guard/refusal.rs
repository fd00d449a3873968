//! What is said to those who are not served. In which words of the protocol, is not known here.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, header};

use super::{Dress, Pass};

/// When whoever could not be let in because others were before them may come again.
const SOON: u32 = 1;

/// When credentials may be checked again.
const LATER: u32 = 5;

/// A request that is not served.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) why: Why,
    /// In words that can be shown.
    pub(crate) message: Cow<'static, str>,
    pub(crate) dress: Dress,
    pub(super) challenges: Vec<HeaderValue>,
    /// Seconds.
    retry_after: Option<u32>,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The head is malformed.
    BadHead,
    Host,
    Origin,
    /// The address is not on the list.
    Address,
    /// The body is longer than this.
    TooLarge {
        limit: usize,
    },
    /// The address or the caller comes too often.
    TooMany,
    /// Credentials are missing or wrong.
    Credentials(Kind),
    /// Credentials are right, and whose they are may not come in.
    Forbidden,
    /// Credentials are wrong, and were so too often.
    TooManyFailures(Kind),
    /// Too many passwords are being checked.
    Busy,
    /// Whoever knows the keys does not answer.
    Unavailable,
}

/// A kind of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Basic,
    Bearer,
    ApiKey,
}

impl Why {
    /// The status of HTTP.
    pub(crate) fn status(self) -> u16 {
        match self {
            Why::BadHead => 400,
            Why::Credentials(_) => 401,
            Why::Host | Why::Origin | Why::Address | Why::Forbidden => 403,
            Why::TooLarge { .. } => 413,
            Why::TooMany | Why::TooManyFailures(_) | Why::Busy => 429,
            Why::Unavailable => 503,
        }
    }
}

impl Refusal {
    pub(super) fn new(why: Why, message: impl Into<Cow<'static, str>>, dress: &Dress) -> Box<Refusal> {
        let (challenges, retry_after) = (Vec::new(), None);
        Box::new(Refusal { why, message: message.into(), dress: dress.clone(), challenges, retry_after })
    }

    pub(super) fn retry(why: Why, message: &'static str, dress: &Dress, seconds: u32) -> Box<Refusal> {
        let mut refusal = Refusal::new(why, message, dress);
        refusal.retry_after = Some(seconds);
        refusal
    }

    /// In how many seconds to come again.
    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    /// What a client needs to know beside the words: which credentials are wanted, when to come again.
    pub(crate) fn explain(&self, headers: &mut HeaderMap) {
        for challenge in &self.challenges {
            headers.append(header::WWW_AUTHENTICATE, challenge.clone());
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}

pub(super) fn too_many_failures(kind: Kind, pass: &Pass, seconds: u32) -> Box<Refusal> {
    let message = "too many wrong credentials from this address";
    Refusal::retry(Why::TooManyFailures(kind), message, &pass.dress, seconds)
}

pub(super) fn wrong(kind: Kind, challenges: Vec<HeaderValue>, pass: &Pass) -> Box<Refusal> {
    let message = match kind {
        Kind::Basic => "user or password is wrong",
        Kind::Bearer => "the bearer token is wrong",
        Kind::ApiKey => "Invalid API key",
    };
    let mut refusal = Refusal::new(Why::Credentials(kind), message, &pass.dress);
    refusal.challenges = challenges;
    refusal
}

pub(super) fn missing(kind: Kind, challenges: Vec<HeaderValue>, pass: &Pass) -> Box<Refusal> {
    let message = match kind {
        Kind::Basic => "a user and a password are needed: `Authorization: Basic`",
        Kind::Bearer => "a token is needed: `Authorization: Bearer`",
        Kind::ApiKey => "an API key is needed: `X-API-Key` or `Authorization: Bearer`",
    };
    let mut refusal = Refusal::new(Why::Credentials(kind), message, &pass.dress);
    refusal.challenges = challenges;
    refusal
}

pub(super) fn busy(dress: &Dress) -> Box<Refusal> {
    Refusal::retry(Why::Busy, "too many passwords are being checked; try again", dress, SOON)
}

pub(super) fn unavailable(dress: &Dress) -> Box<Refusal> {
    Refusal::retry(Why::Unavailable, "credentials cannot be checked at the moment", dress, LATER)
}

pub(super) fn bearer(is_wrong: bool) -> HeaderValue {
    HeaderValue::from_static(if is_wrong { "Bearer error=\"invalid_token\"" } else { "Bearer" })
}

/// The refusal of a body that is too long, also for one that turns out to be while it is read.
pub(crate) fn too_large(limit: usize, dress: &Dress) -> Box<Refusal> {
    Refusal::new(Why::TooLarge { limit }, format!("Request body too large (max: {limit} bytes)"), dress)
}
