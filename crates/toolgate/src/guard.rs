//! The guardroom: who may come in.
//!
//! Requests are judged by their head, in one order: host, announced length, address, origin, how often they
//! come, password, token. Only an API key may need the body, to know what it is wanted for. Editions and
//! answers are not known here: a refusal says what is wrong, and the porch puts it into words of the protocol.

mod address;
mod api_keys;
mod authorization;
mod basic;
mod basic_auth_provider;
mod cors;
mod digest;
mod into_strings;
mod origin;
mod rate;
mod rejection;
mod security_headers;
mod token;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Uri, header};

pub(crate) use address::AddressList;
pub(crate) use basic::Users;
pub(crate) use cors::Cors;
pub(crate) use origin::HostAllowlist;
pub(crate) use rate::RateLimiter;
pub(crate) use rejection::{CredentialKind, GuardRejection, RejectReason, too_large};
pub(crate) use token::Tokens;

pub use api_keys::{ApiKeys, IntoKeyResult, KeyError, KeyRequest};
pub use basic_auth_provider::{BasicAuthProvider, LoginError};
pub use into_strings::IntoStrings;
pub use rate::Rate;
pub(crate) use security_headers::PrebuiltHeaders;
pub use security_headers::SecurityHeaders;
pub use token::Token;

use crate::headers::ParsedHeaders;
use crate::request::Principal;
use crate::store::ScopedStore;
use crate::util::clock::Clock;
use api_keys::KeyCheck;
use authorization::{Authorization, PresentedKey};
use basic::{HashedLogin, PasswordCheckError, PasswordLookup};
use basic_auth_provider::{LoginCheck as Told, ProviderLogin, ProviderLookup};
use rate::LimitKey;
use rejection::{
    bearer_challenge, busy, missing_credentials, too_many_failures, unavailable, wrong_credentials,
};

/// Wrong passwords, tokens and keys from one address: so many at once, and then one every two seconds.
fn failure_rate() -> Rate {
    Rate::per_minute(30).burst(50)
}

/// All that stands between a request and a server.
///
/// A set is never changed while it is in use: a setter copies it, changes the copy and puts that in its
/// place. Copies share what they count and remember.
#[derive(Clone, Debug)]
pub(crate) struct Guards {
    pub(crate) hosts: HostAllowlist,
    pub(crate) cors: Cors,
    /// Bytes of a body. The porch holds to it while it reads; here only what is announced is seen.
    pub(crate) body_limit: Option<usize>,
    /// Whom we serve. Everybody if there are none.
    pub(crate) addresses: AddressList,
    /// Whose headers we believe.
    pub(crate) trusted_proxies: AddressList,
    pub(crate) users: Users,
    /// Instead of users whose passwords are known here.
    basic_auth_provider: Option<BasicAuthProvider>,
    pub(crate) mode: CredentialMode,
    tokens: Tokens,
    api_keys: Option<ApiKeys>,
    security_headers: SecurityHeaders,
    address_limiter: Option<Arc<RateLimiter>>,
    principal_limiter: Option<Arc<RateLimiter>>,
    /// For those of whom something else was said.
    principal_overrides: HashMap<Box<str>, Arc<RateLimiter>>,
    failure_limiter: Arc<RateLimiter>,
    clock: Clock,
    /// Settings that could not be made. As long as there are any, nobody comes in: a guard that is not there must not
    /// be an open door.
    failed_settings: Vec<&'static str>,
}

/// Which of several kinds of credentials are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CredentialMode {
    /// All that are set up.
    #[default]
    All,
    /// Any one of them.
    Any,
}

/// The head of a request, and what is known of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// What `headers` say that is asked of every head.
    pub(crate) parsed_headers: &'a ParsedHeaders,
    /// The other end of the connection.
    pub(crate) peer: Option<IpAddr>,
    /// Whether the connection is TLS.
    pub(crate) is_tls: bool,
    /// Who a layer in front of us says it is.
    pub(crate) principal: Option<&'a Principal>,
    /// The name of the server.
    pub(crate) server_name: &'a str,
    /// Where every origin is allowed, it is told so with `*`, whatever the setting says.
    pub(crate) is_literal_wildcard: bool,
}

/// What the head of a request leads to.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Come in.
    Granted(Admitted),
    /// A password is to be checked, before the body is read: [`Guards::prove`].
    PasswordPending(Box<PendingAuth>),
    /// A key is to be checked, with the body: [`Guards::key`].
    KeyPending(Box<PendingAuth>),
    /// A browser asks what it may send: answered by 204 with these headers, and nothing more happens.
    Preflight(Box<HeaderMap>),
}

/// Who came in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admitted {
    pub(crate) principal: Principal,
    /// Where the request comes from.
    pub(crate) client: Option<IpAddr>,
    pub(crate) response_policy: ResponsePolicy,
}

impl Admission {
    /// What the headers of the answer depend on, so far.
    pub(crate) fn response_policy(&self) -> ResponsePolicy {
        match self {
            Admission::Granted(pass) => pass.response_policy.clone(),
            Admission::PasswordPending(claim) | Admission::KeyPending(claim) => {
                claim.response_policy().clone()
            }
            Admission::Preflight(_) => ResponsePolicy::default(),
        }
    }
}

/// Who says they may come in.
pub(crate) struct PendingAuth {
    admitted: Admitted,
    password: Option<PendingPassword>,
    api_key: PresentedKey,
    /// Credentials were given that are wrong. With [`CredentialMode::Any`] others may still be right.
    has_wrong_credentials: bool,
    challenges: Vec<HeaderValue>,
}

/// A user and a password that are still to be checked.
enum PendingPassword {
    /// Against a hash.
    Hash(HashedLogin),
    /// By whoever knows them.
    Provider(ProviderLogin),
}

/// What the headers of an answer depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponsePolicy {
    /// What a page of another origin is told, if it may read the answer.
    allow_origin: Option<Box<HeaderValue>>,
    is_secure: bool,
}

impl ResponsePolicy {
    /// What an address begins with that this request could have come to.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.is_secure { "https" } else { "http" }
    }
}

impl Default for Guards {
    fn default() -> Guards {
        Guards::new(&Clock::system())
    }
}

/// Settings. Those that can be wrong say so; then nothing has changed.
impl Guards {
    pub(crate) fn new(clock: &Clock) -> Guards {
        Guards {
            hosts: HostAllowlist::default(),
            cors: Cors::default(),
            body_limit: None,
            addresses: AddressList::default(),
            trusted_proxies: AddressList::default(),
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

    /// This setting could not be made, or could after all.
    pub(crate) fn record_setting(&mut self, setting: &'static str, is_made: bool) {
        self.failed_settings.retain(|missing| *missing != setting);
        if !is_made {
            self.failed_settings.push(setting);
        }
    }

    /// Bodies have at most so many bytes; 0 is no limit.
    pub(crate) fn set_body_limit(&mut self, bytes: usize) {
        self.body_limit = Some(bytes).filter(|bytes| *bytes > 0);
    }

    /// Only who has one of these tokens comes in; without any, everybody.
    pub(crate) fn set_tokens<T: Into<Token>>(
        &mut self,
        tokens: impl IntoIterator<Item = T>,
    ) -> Result<(), String> {
        self.tokens = Tokens::new("token", tokens)?;
        Ok(())
    }

    /// Only who has a key comes in.
    pub(crate) fn set_api_keys(&mut self, keys: Option<ApiKeys>) -> Result<(), String> {
        if let Some(keys) = &keys {
            keys.check()?;
        }
        self.api_keys = keys.filter(|keys| !keys.is_empty());
        Ok(())
    }

    /// The keys that are asked for, if there are any.
    pub(crate) fn api_keys(&self) -> Option<&ApiKeys> {
        self.api_keys.as_ref()
    }

    /// Only who has a password comes in, and somebody else knows it.
    pub(crate) fn set_basic_auth_provider(&mut self, logins: Option<BasicAuthProvider>) {
        self.basic_auth_provider = logins;
    }

    /// Whether users with passwords are asked for.
    pub(crate) fn has_users(&self) -> bool {
        !self.users.is_empty() || self.basic_auth_provider.is_some()
    }

    pub(crate) fn set_headers(&mut self, headers: SecurityHeaders) -> Result<(), String> {
        headers.check()?;
        self.security_headers = headers;
        Ok(())
    }

    /// How often each address may come. Those of IPv6 count by networks of 64 bits, and all that are not known
    /// count as one.
    pub(crate) fn set_rate_per_address(&mut self, rate: Option<Rate>) {
        self.address_limiter = rate.map(|rate| Arc::new(RateLimiter::new(rate, &self.clock)));
    }

    /// How often each caller with a name may come.
    pub(crate) fn set_rate_per_principal(&mut self, rate: Option<Rate>) {
        self.principal_limiter = rate.map(|rate| Arc::new(RateLimiter::new(rate, &self.clock)));
    }

    /// How often the caller of this name may come, instead of what holds for all.
    pub(crate) fn set_rate_for(&mut self, principal: &str, rate: Rate) {
        self.principal_overrides.insert(principal.into(), Arc::new(RateLimiter::new(rate, &self.clock)));
    }

    /// The buckets that somebody takes from.
    fn limiter_for(&self, principal: &str) -> Option<&Arc<RateLimiter>> {
        self.principal_overrides.get(principal).or(self.principal_limiter.as_ref())
    }

    /// What cannot work together.
    ///
    /// # Errors
    /// If nobody could ever come in.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.users.is_empty() && self.basic_auth_provider.is_some() {
            return Err(
                "passwords are known here (`basic_auth`) or elsewhere (`logins`), not both".to_owned()
            );
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

/// Judging.
impl Guards {
    /// Judges the head of a request.
    pub(crate) fn check_head(&self, head: &GuardRequest<'_>) -> Result<Admission, Box<GuardRejection>> {
        let is_secure =
            head.is_tls || address::is_forwarded_https(head.peer, head.headers, &self.trusted_proxies);
        let mut dress = ResponsePolicy { allow_origin: None, is_secure };
        let glance = head.parsed_headers;
        self.hosts.check_host(head.uri, head.headers, glance).map_err(|refused| {
            let why = if refused.status == 400 { RejectReason::MalformedHead } else { RejectReason::Host };
            GuardRejection::new(why, refused.message, &dress)
        })?;
        if !self.failed_settings.is_empty() {
            let said = "this server is not set up rightly and lets nobody in; its log says why";
            return Err(GuardRejection::new(RejectReason::Unavailable, said, &dress));
        }
        if let Some(limit) = self.body_limit {
            check_length(head.headers, limit, &dress)?;
        }
        let client = address::client_address(head.peer, head.headers, &self.trusted_proxies);
        if !self.addresses.is_empty() {
            self.check_address(client, &dress)?;
        }
        let origin = self.hosts.check_origin(glance, &self.cors);
        let origin =
            origin.map_err(|refused| GuardRejection::new(RejectReason::Origin, refused.message, &dress))?;
        if let Some(origin) = origin {
            dress.allow_origin =
                Some(Box::new(self.cors.allow_origin_value(origin, head.is_literal_wildcard)));
            if *head.method == Method::OPTIONS {
                return Ok(Admission::Preflight(Box::new(self.preflight_headers(head.headers, &dress))));
            }
        }
        if let Some(limiter) = &self.address_limiter {
            limiter.take(LimitKey::from_address(client)).map_err(|seconds| {
                GuardRejection::with_retry_after(
                    RejectReason::RateLimited,
                    "too many requests from this address",
                    &dress,
                    seconds,
                )
            })?;
        }
        let pass = Admitted {
            principal: head.principal.cloned().unwrap_or_default(),
            client,
            response_policy: dress,
        };
        if self.requires_credentials() {
            self.authenticate(head, pass)
        } else {
            self.admit(pass).map(Admission::Granted)
        }
    }

    /// Checks a password against its hash, when it is its turn.
    ///
    /// Cancel safe: yes, because nothing is changed here after the await.
    pub(crate) async fn check_password(
        &self,
        mut claim: Box<PendingAuth>,
    ) -> Result<Admission, Box<GuardRejection>> {
        let login = match claim.password.take() {
            Some(PendingPassword::Hash(login)) => login,
            Some(PendingPassword::Provider(trial)) => return self.check_with_provider(claim, trial).await,
            None => return self.after_login(claim),
        };
        // Every hash that is computed counts as a mistake until it is known for none: whoever guesses must not keep those
        // who log in from their turn. Right ones are remembered and are not computed again.
        if let Err(seconds) = self.failure_limiter.take(LimitKey::from_address(claim.admitted.client)) {
            return Err(too_many_failures(CredentialKind::Basic, &claim.admitted, seconds));
        }
        match self.users.verify_hash(login).await {
            Ok(Some(principal)) => self.accept_password(claim, &principal),
            Ok(None) => self.reject_password(claim),
            Err(PasswordCheckError::TooMany) => Err(busy(&claim.admitted.response_policy)),
            Err(PasswordCheckError::Failed) => Err(unavailable(&claim.admitted.response_policy)),
        }
    }

    /// Asks whoever knows the passwords.
    ///
    /// Cancel safe: yes, because nothing is changed here after the await.
    async fn check_with_provider(
        &self,
        claim: Box<PendingAuth>,
        trial: ProviderLogin,
    ) -> Result<Admission, Box<GuardRejection>> {
        let Some(logins) = &self.basic_auth_provider else {
            return Err(unavailable(&claim.admitted.response_policy));
        };
        // As with hashes: who is asked about counts as a mistake, unless it was right not long ago.
        let was_right = trial.was_valid;
        if !was_right
            && let Err(seconds) = self.failure_limiter.take(LimitKey::from_address(claim.admitted.client))
        {
            return Err(too_many_failures(CredentialKind::Basic, &claim.admitted, seconds));
        }
        match logins.check_login(trial).await {
            Told::Valid(principal) => self.accept_password(claim, &principal),
            Told::Invalid if was_right => {
                self.failure_limiter
                    .take(LimitKey::from_address(claim.admitted.client))
                    .map_err(|seconds| too_many_failures(CredentialKind::Basic, &claim.admitted, seconds))?;
                self.reject_password(claim)
            }
            Told::Invalid => self.reject_password(claim),
            Told::Forbidden(message) => {
                Err(GuardRejection::new(RejectReason::Forbidden, message, &claim.admitted.response_policy))
            }
            Told::TooMany => Err(busy(&claim.admitted.response_policy)),
            Told::Unavailable => Err(unavailable(&claim.admitted.response_policy)),
        }
    }

    /// A password was right.
    fn accept_password(
        &self,
        mut claim: Box<PendingAuth>,
        principal: &Principal,
    ) -> Result<Admission, Box<GuardRejection>> {
        claim.admitted.merge_principal(principal);
        match self.mode {
            CredentialMode::All => self.after_login(claim),
            CredentialMode::Any => self.admit(claim.admitted).map(Admission::Granted),
        }
    }

    /// A password was wrong, and counted.
    fn reject_password(&self, mut claim: Box<PendingAuth>) -> Result<Admission, Box<GuardRejection>> {
        if self.mode == CredentialMode::Any && claim.api_key != PresentedKey::Missing {
            claim.has_wrong_credentials = true;
            return self.after_login(claim);
        }
        Err(wrong_credentials(CredentialKind::Basic, claim.challenges, &claim.admitted))
    }

    /// Checks an API key.
    ///
    /// Cancel safe: yes, because nothing is changed here after the await.
    pub(crate) async fn check_key(
        &self,
        claim: Box<PendingAuth>,
        request: KeyRequest,
    ) -> Result<Admitted, Box<GuardRejection>> {
        let PendingAuth { admitted: mut pass, api_key: key, challenges, .. } = *claim;
        let (Some(keys), PresentedKey::Key(key)) = (&self.api_keys, key) else {
            return Err(unavailable(&pass.response_policy));
        };
        match keys.check_key(key, &request).await {
            KeyCheck::Valid(principal) => {
                pass.merge_principal(&principal);
                self.admit(pass)
            }
            KeyCheck::Invalid => {
                Err(self.reject_wrong_credentials(CredentialKind::ApiKey, challenges, &pass))
            }
            KeyCheck::Rejected(message) => {
                let mut refusal = self.reject_wrong_credentials(CredentialKind::ApiKey, challenges, &pass);
                if matches!(refusal.reason, RejectReason::Credentials(_)) {
                    refusal.message = message.into();
                }
                Err(refusal)
            }
            KeyCheck::Unavailable => Err(unavailable(&pass.response_policy)),
        }
    }

    /// Whether requests are counted by all processes together, which takes a look into the store.
    #[inline]
    pub(crate) fn has_shared_limits(&self) -> bool {
        let common = [&self.address_limiter, &self.principal_limiter].into_iter().flatten();
        common.chain(self.principal_overrides.values()).any(|limiter| limiter.is_shared())
    }

    /// Counts somebody who came in, in all processes.
    ///
    /// Cancel safe: yes; it may have been counted.
    pub(crate) async fn count_shared(
        &self,
        pass: &Admitted,
        cellar: &ScopedStore,
    ) -> Result<(), Box<GuardRejection>> {
        let too_many = |what| {
            move |seconds| {
                GuardRejection::with_retry_after(
                    RejectReason::RateLimited,
                    what,
                    &pass.response_policy,
                    seconds,
                )
            }
        };
        if let Some(limiter) = &self.address_limiter {
            let counted = limiter.take_shared(LimitKey::from_address(pass.client), cellar).await;
            counted.map_err(too_many("too many requests from this address"))?;
        }
        if let Some(name) = pass.principal.id()
            && let Some(limiter) = self.limiter_for(name)
        {
            let counted = limiter.take_shared(LimitKey::Principal(name), cellar).await;
            counted.map_err(too_many("too many requests of this caller"))?;
        }
        Ok(())
    }

    /// The headers of an answer in JSON, to begin one with: cheaper than [`Guards::dress`].
    pub(crate) fn json_headers(&self, dress: &ResponsePolicy) -> HeaderMap {
        let mut headers = self.security_headers.json_headers(dress.is_secure);
        if let Some(origin) = &dress.allow_origin {
            Cors::apply_headers(&mut headers, origin);
        }
        headers
    }

    /// The same for an answer that has no others: it need not carry them before it is sent.
    pub(crate) fn prebuilt_headers(&self, dress: &ResponsePolicy) -> Option<Arc<PrebuiltHeaders>> {
        if dress.allow_origin.is_some() { None } else { self.security_headers.prebuilt(dress.is_secure) }
    }

    /// Puts on an answer what every answer carries. What it had of that before is replaced.
    pub(crate) fn apply_headers(&self, headers: &mut HeaderMap, dress: &ResponsePolicy) {
        self.security_headers.apply(headers, dress.is_secure);
        if let Some(origin) = &dress.allow_origin {
            Cors::apply_headers(headers, origin);
        }
    }

    fn preflight_headers(&self, asked: &HeaderMap, dress: &ResponsePolicy) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.apply_headers(&mut headers, dress);
        self.cors.apply_preflight(asked, &mut headers);
        headers
    }

    fn check_address(
        &self,
        client: Option<IpAddr>,
        dress: &ResponsePolicy,
    ) -> Result<(), Box<GuardRejection>> {
        match client {
            Some(client) if self.addresses.contains(client) => Ok(()),
            Some(client) => Err(GuardRejection::new(
                RejectReason::Address,
                format!("address {client} is not served here; allow it with `allow_ips`"),
                dress,
            )),
            None => Err(GuardRejection::new(
                RejectReason::Address,
                "only some addresses are served here, and where this request comes from is not known",
                dress,
            )),
        }
    }

    /// Where a request comes from, as far as that is believed.
    pub(crate) fn client_address(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        address::client_address(peer, headers, &self.trusted_proxies)
    }

    /// Whether credentials of any kind are asked for.
    pub(crate) fn requires_credentials(&self) -> bool {
        self.has_users() || !self.tokens.is_empty() || self.api_keys.is_some()
    }

    fn authenticate(
        &self,
        head: &GuardRequest<'_>,
        pass: Admitted,
    ) -> Result<Admission, Box<GuardRejection>> {
        let authorization = Authorization::from_headers(head.headers);
        match self.mode {
            // Whoever passed this on may have looked at the other one.
            _ if authorization == Authorization::Repeated => {
                Err(self.reject_wrong_credentials(self.credential_kind(), self.challenges(head, true), &pass))
            }
            CredentialMode::All => self.authenticate_by_all(head, authorization, pass),
            CredentialMode::Any => self.authenticate_by_any(head, authorization, pass),
        }
    }

    fn authenticate_by_all(
        &self,
        head: &GuardRequest<'_>,
        authorization: Authorization<'_>,
        mut pass: Admitted,
    ) -> Result<Admission, Box<GuardRejection>> {
        let basic = || vec![basic::challenge(head.server_name)];
        let mut login = None;
        if !self.users.is_empty() {
            match self.users.lookup(authorization) {
                PasswordLookup::Valid(principal) => pass.merge_principal(&principal),
                PasswordLookup::Unverified(open) => login = Some(PendingPassword::Hash(open)),
                PasswordLookup::Invalid => {
                    return Err(self.reject_wrong_credentials(CredentialKind::Basic, basic(), &pass));
                }
                PasswordLookup::Missing => {
                    return Err(missing_credentials(CredentialKind::Basic, basic(), &pass));
                }
            }
        }
        if let Some(logins) = &self.basic_auth_provider {
            match logins.lookup(authorization, || provider_request(head, &pass)) {
                ProviderLookup::Valid(principal) => pass.merge_principal(&principal),
                ProviderLookup::Unverified(trial) => login = Some(PendingPassword::Provider(trial)),
                ProviderLookup::Invalid => {
                    return Err(self.reject_wrong_credentials(CredentialKind::Basic, basic(), &pass));
                }
                ProviderLookup::Missing => {
                    return Err(missing_credentials(CredentialKind::Basic, basic(), &pass));
                }
            }
        }
        if !self.tokens.is_empty() {
            match authorization {
                Authorization::Missing => {
                    return Err(missing_credentials(
                        CredentialKind::Bearer,
                        vec![bearer_challenge(false)],
                        &pass,
                    ));
                }
                Authorization::Bearer(secret) => match self.tokens.principal_for(secret) {
                    Some(holder) => pass.merge_principal(holder),
                    None => {
                        return Err(self.reject_wrong_credentials(
                            CredentialKind::Bearer,
                            vec![bearer_challenge(true)],
                            &pass,
                        ));
                    }
                },
                _ => {
                    return Err(self.reject_wrong_credentials(
                        CredentialKind::Bearer,
                        vec![bearer_challenge(true)],
                        &pass,
                    ));
                }
            }
        }
        let key = match (&self.api_keys, self.tokens.is_empty()) {
            (None, _) => PresentedKey::Missing,
            (Some(_), true) => PresentedKey::from_headers(head.headers, authorization),
            // The bearer is a token already, and not a key as well.
            (Some(_), false) => PresentedKey::from_headers(head.headers, Authorization::Missing),
        };
        let challenges = if login.is_some() { basic() } else { Vec::new() };
        let claim = PendingAuth {
            admitted: pass,
            password: login,
            api_key: key,
            has_wrong_credentials: false,
            challenges,
        };
        if claim.password.is_some() {
            return Ok(Admission::PasswordPending(Box::new(claim)));
        }
        if self.api_keys.is_none() {
            return self.admit(claim.admitted).map(Admission::Granted);
        }
        self.require_key(Box::new(claim))
    }

    fn authenticate_by_any(
        &self,
        head: &GuardRequest<'_>,
        authorization: Authorization<'_>,
        mut pass: Admitted,
    ) -> Result<Admission, Box<GuardRejection>> {
        let (mut login, mut is_wrong) = (None, false);
        match authorization {
            Authorization::Basic(_) if !self.users.is_empty() => match self.users.lookup(authorization) {
                PasswordLookup::Valid(principal) => {
                    pass.merge_principal(&principal);
                    return self.admit(pass).map(Admission::Granted);
                }
                PasswordLookup::Unverified(open) => login = Some(PendingPassword::Hash(open)),
                PasswordLookup::Invalid | PasswordLookup::Missing => is_wrong = true,
            },
            Authorization::Basic(_) if let Some(logins) = &self.basic_auth_provider => {
                match logins.lookup(authorization, || provider_request(head, &pass)) {
                    ProviderLookup::Valid(principal) => {
                        pass.merge_principal(&principal);
                        return self.admit(pass).map(Admission::Granted);
                    }
                    ProviderLookup::Unverified(trial) => login = Some(PendingPassword::Provider(trial)),
                    ProviderLookup::Invalid | ProviderLookup::Missing => is_wrong = true,
                }
            }
            Authorization::Bearer(secret) if !self.tokens.is_empty() => {
                if let Some(holder) = self.tokens.principal_for(secret) {
                    pass.merge_principal(holder);
                    return self.admit(pass).map(Admission::Granted);
                }
                is_wrong = true;
            }
            Authorization::Missing => {}
            _ => is_wrong = true,
        }
        let key = match &self.api_keys {
            Some(_) => PresentedKey::from_headers(head.headers, authorization),
            None => PresentedKey::Missing,
        };
        let challenges = self.challenges(head, is_wrong);
        let claim = PendingAuth {
            admitted: pass,
            password: login,
            api_key: key,
            has_wrong_credentials: is_wrong,
            challenges,
        };
        match &claim.password {
            Some(_) => Ok(Admission::PasswordPending(Box::new(claim))),
            None => self.require_key(Box::new(claim)),
        }
    }

    /// What follows a password that was right, or that need not be.
    fn after_login(&self, claim: Box<PendingAuth>) -> Result<Admission, Box<GuardRejection>> {
        if self.api_keys.is_none() && self.mode == CredentialMode::All {
            return self.admit(claim.admitted).map(Admission::Granted);
        }
        self.require_key(claim)
    }

    /// A key is needed now: without one, the body is not worth reading.
    fn require_key(&self, mut claim: Box<PendingAuth>) -> Result<Admission, Box<GuardRejection>> {
        let is_any = self.mode == CredentialMode::Any;
        if !is_any {
            claim.challenges = vec![bearer_challenge(claim.api_key != PresentedKey::Missing)];
        }
        match &claim.api_key {
            PresentedKey::Key(_) => Ok(Admission::KeyPending(claim)),
            PresentedKey::Malformed => {
                Err(self.reject_wrong_credentials(CredentialKind::ApiKey, claim.challenges, &claim.admitted))
            }
            PresentedKey::Missing if claim.has_wrong_credentials => {
                Err(self.reject_wrong_credentials(self.credential_kind(), claim.challenges, &claim.admitted))
            }
            PresentedKey::Missing if is_any => {
                let mut refusal =
                    missing_credentials(self.credential_kind(), claim.challenges, &claim.admitted);
                refusal.message = "credentials are needed; `WWW-Authenticate` says which are taken".into();
                Err(refusal)
            }
            PresentedKey::Missing => {
                Err(missing_credentials(CredentialKind::ApiKey, claim.challenges, &claim.admitted))
            }
        }
    }

    /// Everything that is set up.
    fn challenges(&self, head: &GuardRequest<'_>, is_wrong: bool) -> Vec<HeaderValue> {
        let mut challenges = Vec::new();
        if self.has_users() {
            challenges.push(basic::challenge(head.server_name));
        }
        if !self.tokens.is_empty() || self.api_keys.is_some() {
            challenges.push(bearer_challenge(is_wrong));
        }
        challenges
    }

    /// The first kind that is set up: what is blamed where any would do.
    fn credential_kind(&self) -> CredentialKind {
        match (self.has_users(), self.tokens.is_empty()) {
            (true, _) => CredentialKind::Basic,
            (false, false) => CredentialKind::Bearer,
            (false, true) => CredentialKind::ApiKey,
        }
    }

    /// The last look: everything is proven, and only how often this caller comes is left.
    fn admit(&self, pass: Admitted) -> Result<Admitted, Box<GuardRejection>> {
        if let Some(id) = pass.principal.id()
            && let Some(limiter) = self.limiter_for(id)
        {
            limiter.take(LimitKey::Principal(id)).map_err(|seconds| {
                GuardRejection::with_retry_after(
                    RejectReason::RateLimited,
                    "too many requests of this caller",
                    &pass.response_policy,
                    seconds,
                )
            })?;
        }
        Ok(pass)
    }

    /// Credentials that are wrong. Whoever brings such too often is told to wait.
    fn reject_wrong_credentials(
        &self,
        kind: CredentialKind,
        challenges: Vec<HeaderValue>,
        pass: &Admitted,
    ) -> Box<GuardRejection> {
        match self.failure_limiter.take(LimitKey::from_address(pass.client)) {
            Ok(()) => wrong_credentials(kind, challenges, pass),
            Err(seconds) => too_many_failures(kind, pass, seconds),
        }
    }
}

/// What whoever knows the passwords gets to see: everything but the body, which is not read yet.
fn provider_request(head: &GuardRequest<'_>, pass: &Admitted) -> KeyRequest {
    KeyRequest::new(head.server_name)
        .with_headers(head.headers.clone())
        .with_http_method(head.method.clone())
        .with_remote_addr(pass.client)
}

/// A body that says itself that it is too long is not read.
fn check_length(
    headers: &HeaderMap,
    limit: usize,
    dress: &ResponsePolicy,
) -> Result<(), Box<GuardRejection>> {
    match content_length(headers) {
        Ok(Some(length)) if length > limit as u64 => Err(too_large(limit, dress)),
        Ok(_) => Ok(()),
        Err(()) => {
            Err(GuardRejection::new(RejectReason::MalformedHead, "header content-length is malformed", dress))
        }
    }
}

/// The length that a head announces for its body. `None` if it does not.
///
/// # Errors
/// If it is said twice or is no number.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, ()> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| ())?;
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number).map(Some).ok_or(())
        }
        (Some(_), Some(_)) => Err(()),
    }
}

impl Admitted {
    /// The caller is this one. Who proved something before stays who they are, and may see no more than before.
    fn merge_principal(&mut self, principal: &Principal) {
        self.principal = std::mem::take(&mut self.principal).merge(principal);
    }
}

impl PendingAuth {
    /// For answers that are given before the claim is settled.
    pub(crate) fn response_policy(&self) -> &ResponsePolicy {
        &self.admitted.response_policy
    }

    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.admitted.client
    }
}

impl std::fmt::Debug for PendingAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingAuth").field("client", &self.admitted.client).finish_non_exhaustive()
    }
}
