//! Guards: decide whether a request is authorized to reach the server.
//!
//! A request is checked by its head, in this order: host, announced length, address, origin, rate of the address,
//! password, token. Only an API key may need the body, to know the method that is called. Guards know neither protocol
//! versions nor responses: a rejection states the reason, and the transport turns it into a response.
//!
//! - `check_head`: checks a head, and counts requests. `authenticate`: passwords, tokens and keys.
//! - `response_policy`: the headers that every response carries.
//! - `rejection`: the reasons and messages of rejections.

mod address;
mod api_keys;
mod authenticate;
mod authorization;
mod basic;
mod basic_auth_provider;
mod check_head;
mod cors;
mod digest;
mod into_strings;
mod login_cache;
mod origin;
mod password_hash;
mod rate;
mod rejection;
mod response_policy;
mod security_headers;
mod token;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Method, Uri};

pub(crate) use address::{AddressList, TrustedProxies};
pub(crate) use basic::Users;
pub(crate) use check_head::{CallerIdentity, HeadDecision};
pub(crate) use cors::Cors;
pub(crate) use origin::HostAllowlist;
pub(crate) use rate::RateLimiter;
pub(crate) use rejection::{CredentialKind, GuardRejection, RejectReason, too_large};
pub(crate) use response_policy::ResponsePolicy;
pub(crate) use security_headers::PrebuiltHeaders;
pub(crate) use token::Tokens;

pub use api_keys::{ApiKeys, IntoKeyResult, KeyError, KeyRequest};
pub use basic_auth_provider::{BasicAuthProvider, LoginError};
pub use into_strings::IntoStrings;
pub use rate::Rate;
pub use security_headers::SecurityHeaders;
pub use token::Token;

use crate::headers::ParsedHeaders;
use crate::request::Principal;
use crate::util::clock::Clock;

/// How many wrong passwords, tokens and keys one address may send: a burst, and then one every two seconds.
fn failure_rate() -> Rate {
    Rate::per_minute(30).burst(50)
}

/// The guards of a server, and their settings.
///
/// A set of guards is never changed while it is in use: a setter copies it, changes the copy and replaces it. Copies
/// share their counters and caches.
#[derive(Clone, Debug)]
pub(crate) struct Guards {
    pub(crate) hosts: HostAllowlist,
    pub(crate) cors: Cors,
    /// Maximum bytes of a body. The transport enforces it while it reads; the guards see the announced length only.
    pub(crate) body_limit: Option<usize>,
    /// The addresses that are served. If empty, all are.
    pub(crate) addresses: AddressList,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) users: Users,
    /// Verifies passwords instead of `users`.
    basic_auth_provider: Option<BasicAuthProvider>,
    pub(crate) mode: CredentialMode,
    tokens: Tokens,
    api_keys: Option<ApiKeys>,
    security_headers: SecurityHeaders,
    address_limiter: Option<Arc<RateLimiter>>,
    principal_limiter: Option<Arc<RateLimiter>>,
    /// For principals with a rate of their own.
    principal_overrides: HashMap<Box<str>, Arc<RateLimiter>>,
    failure_limiter: Arc<RateLimiter>,
    clock: Clock,
    /// Settings that could not be applied. As long as there are any, every request is rejected: a guard that is missing
    /// must not leave the server open.
    failed_settings: Vec<&'static str>,
}

/// Which of several kinds of credentials are required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CredentialMode {
    /// All that are configured.
    #[default]
    All,
    /// Any one of them.
    Any,
}

/// The head of a request, and the properties of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// Parsed from `headers`.
    pub(crate) parsed_headers: &'a ParsedHeaders,
    /// The remote address of the connection.
    pub(crate) peer: Option<IpAddr>,
    /// Whether the connection is TLS.
    pub(crate) is_tls: bool,
    /// The principal that a layer in front of us has established.
    pub(crate) principal: Option<&'a Principal>,
    /// The name of the server.
    pub(crate) server_name: &'a str,
    /// Where every origin is allowed, answer with `*` regardless of the setting.
    pub(crate) is_literal_wildcard: bool,
}

impl Default for Guards {
    fn default() -> Guards {
        Guards::new(&Clock::system())
    }
}

/// Settings. A setter that fails changes nothing.
impl Guards {
    pub(crate) fn new(clock: &Clock) -> Guards {
        Guards {
            hosts: HostAllowlist::default(),
            cors: Cors::default(),
            body_limit: None,
            addresses: AddressList::default(),
            trusted_proxies: TrustedProxies::default(),
            users: Users::default(),
            basic_auth_provider: None,
            mode: CredentialMode::default(),
            tokens: Tokens::default(),
            api_keys: None,
            security_headers: SecurityHeaders::default(),
            address_limiter: None,
            principal_limiter: None,
            principal_overrides: HashMap::new(),
            failure_limiter: Arc::new(RateLimiter::new(failure_rate(), clock)),
            clock: clock.clone(),
            failed_settings: Vec::new(),
        }
    }

    /// Records whether a setting could be applied. See `failed_settings`.
    pub(crate) fn record_setting(&mut self, setting: &'static str, is_applied: bool) {
        self.failed_settings.retain(|failed| *failed != setting);
        if !is_applied {
            self.failed_settings.push(setting);
        }
    }

    /// Limits the bytes of a body; 0 means no limit.
    pub(crate) fn set_body_limit(&mut self, bytes: usize) {
        self.body_limit = Some(bytes).filter(|bytes| *bytes > 0);
    }

    /// Requires one of these tokens. If there are none, no token is required.
    pub(crate) fn set_tokens<T: Into<Token>>(
        &mut self,
        tokens: impl IntoIterator<Item = T>,
    ) -> Result<(), String> {
        self.tokens = Tokens::new("token", tokens)?;
        Ok(())
    }

    /// Requires an API key. `None`, or an empty set, requires none.
    pub(crate) fn set_api_keys(&mut self, keys: Option<ApiKeys>) -> Result<(), String> {
        if let Some(keys) = &keys {
            keys.check()?;
        }
        self.api_keys = keys.filter(|keys| !keys.is_empty());
        Ok(())
    }

    /// The API keys that are required, if any are.
    pub(crate) fn api_keys(&self) -> Option<&ApiKeys> {
        self.api_keys.as_ref()
    }

    /// Requires a user and a password that this provider verifies.
    pub(crate) fn set_basic_auth_provider(&mut self, provider: Option<BasicAuthProvider>) {
        self.basic_auth_provider = provider;
    }

    /// Whether a user and a password are required.
    pub(crate) fn has_users(&self) -> bool {
        !self.users.is_empty() || self.basic_auth_provider.is_some()
    }

    pub(crate) fn set_headers(&mut self, headers: SecurityHeaders) -> Result<(), String> {
        headers.check()?;
        self.security_headers = headers;
        Ok(())
    }

    /// Limits the rate of each address. IPv6 addresses are counted by their /64 network, and all unknown addresses
    /// count as one.
    pub(crate) fn set_rate_per_address(&mut self, rate: Option<Rate>) {
        self.address_limiter = rate.map(|rate| Arc::new(RateLimiter::new(rate, &self.clock)));
    }

    /// Limits the rate of each principal that has an id.
    pub(crate) fn set_rate_per_principal(&mut self, rate: Option<Rate>) {
        self.principal_limiter = rate.map(|rate| Arc::new(RateLimiter::new(rate, &self.clock)));
    }

    /// Limits the rate of this principal, instead of the general limit.
    pub(crate) fn set_rate_for(&mut self, principal: &str, rate: Rate) {
        self.principal_overrides.insert(principal.into(), Arc::new(RateLimiter::new(rate, &self.clock)));
    }

    /// The limiter that counts a principal.
    fn limiter_for(&self, principal: &str) -> Option<&Arc<RateLimiter>> {
        self.principal_overrides.get(principal).or(self.principal_limiter.as_ref())
    }

    /// Checks that the settings can work together.
    ///
    /// # Errors
    /// If no request could ever be authorized.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.users.is_empty() && self.basic_auth_provider.is_some() {
            return Err("`basic_auth` and `basic_auth_provider` exclude each other".to_owned());
        }
        if self.mode == CredentialMode::All && self.has_users() && !self.tokens.is_empty() {
            return Err(
                "passwords and bearer tokens are sent in the same header, so that nobody can send both; \
                        say `any_credential` to accept either"
                    .to_owned(),
            );
        }
        Ok(())
    }
}
