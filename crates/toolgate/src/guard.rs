//! The guardroom: who may come in.
//!
//! Requests are judged by their head, in one order: host, announced length, address, origin, how often they
//! come, password, token. Only an API key may need the body, to know what it is wanted for. Editions and
//! answers are not known here: a refusal says what is wrong, and the porch puts it into words of the protocol.

mod address;
mod authorization;
mod basic;
mod cors;
mod keys;
mod logins;
mod many;
mod origin;
mod rate;
mod refusal;
mod secret;
mod shield;
mod token;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Uri, header};

pub(crate) use address::Addresses;
pub(crate) use basic::Users;
pub(crate) use cors::Cors;
pub(crate) use origin::Hosts;
pub(crate) use rate::Limiter;
pub(crate) use refusal::{Kind, Refusal, Why, too_large};
pub(crate) use token::Tokens;

pub use keys::{ApiKeys, IntoVerdict, KeyError, KeyRequest};
pub use logins::{LoginError, Logins};
pub use many::OneOrMany;
pub use rate::Rate;
pub(crate) use shield::Outfit;
pub use shield::SecurityHeaders;
pub use token::Token;

use crate::clock::Clock;
use crate::letterhead::Glance;
use crate::maps::NameMap;
use crate::request::Principal;
use crate::store::Cellar;
use authorization::{Authorization, Given};
use basic::{Login, Proof, Unchecked};
use keys::Verdict;
use logins::{Look, Trial, Verdict as Told};
use rate::Whose;
use refusal::{bearer, busy, missing, too_many_failures, unavailable, wrong};

/// Wrong passwords, tokens and keys from one address: so many at once, and then one every two seconds.
fn failures() -> Rate {
    Rate::per_minute(30).burst(50)
}

/// All that stands between a request and a server.
///
/// A set is never changed while it is in use: a setter copies it, changes the copy and puts that in its
/// place. Copies share what they count and remember.
#[derive(Clone, Debug)]
pub(crate) struct Guards {
    pub(crate) hosts: Hosts,
    pub(crate) cors: Cors,
    /// Bytes of a body. The porch holds to it while it reads; here only what is announced is seen.
    pub(crate) body_limit: Option<usize>,
    /// Whom we serve. Everybody if there are none.
    pub(crate) addresses: Addresses,
    /// Whose headers we believe.
    pub(crate) proxies: Addresses,
    pub(crate) users: Users,
    /// Instead of users whose passwords are known here.
    logins: Option<Logins>,
    pub(crate) mode: Mode,
    tokens: Tokens,
    keys: Option<ApiKeys>,
    headers: SecurityHeaders,
    per_address: Option<Arc<Limiter>>,
    per_principal: Option<Arc<Limiter>>,
    /// For those of whom something else was said.
    of_principals: NameMap<Arc<Limiter>>,
    failures: Arc<Limiter>,
    clock: Clock,
    /// Settings that could not be made. As long as there are any, nobody comes in: a guard that is not there must not
    /// be an open door.
    missing: Vec<&'static str>,
}

/// Which of several kinds of credentials are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All that are set up.
    #[default]
    All,
    /// Any one of them.
    Any,
}

/// The head of a request, and what is known of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// What `headers` say that is asked of every head.
    pub(crate) glance: &'a Glance,
    /// The other end of the connection.
    pub(crate) peer: Option<IpAddr>,
    /// Whether the connection is TLS.
    pub(crate) is_tls: bool,
    /// Who a layer in front of us says it is.
    pub(crate) principal: Option<&'a Principal>,
    /// The name of the server.
    pub(crate) server: &'a str,
    /// Where every origin is allowed, it is told so with `*`, whatever the setting says.
    pub(crate) is_literal: bool,
}

/// What the head of a request leads to.
#[derive(Debug)]
pub(crate) enum Gate {
    /// Come in.
    Open(Pass),
    /// A password is to be checked, before the body is read: [`Guards::prove`].
    Prove(Box<Claim>),
    /// A key is to be checked, with the body: [`Guards::key`].
    Key(Box<Claim>),
    /// A browser asks what it may send: answered by 204 with these headers, and nothing more happens.
    Preflight(Box<HeaderMap>),
}

/// Who came in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    pub(crate) principal: Principal,
    /// Where the request comes from.
    pub(crate) client: Option<IpAddr>,
    pub(crate) dress: Dress,
}

impl Gate {
    /// What the headers of the answer depend on, so far.
    pub(crate) fn dress(&self) -> Dress {
        match self {
            Gate::Open(pass) => pass.dress.clone(),
            Gate::Prove(claim) | Gate::Key(claim) => claim.dress().clone(),
            Gate::Preflight(_) => Dress::default(),
        }
    }
}

/// Who says they may come in.
pub(crate) struct Claim {
    pass: Pass,
    login: Option<Unproven>,
    key: Given,
    /// Credentials were given that are wrong. With [`Mode::Any`] others may still be right.
    is_wrong: bool,
    challenges: Vec<HeaderValue>,
}

/// A user and a password that are still to be checked.
enum Unproven {
    /// Against a hash.
    Hash(Login),
    /// By whoever knows them.
    Ask(Trial),
}

/// What the headers of an answer depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dress {
    /// What a page of another origin is told, if it may read the answer.
    origin: Option<Box<HeaderValue>>,
    is_secure: bool,
}

impl Dress {
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
            hosts: Hosts::default(),
            cors: Cors::default(),
            body_limit: None,
            addresses: Addresses::default(),
            proxies: Addresses::default(),
            users: Users::default(),
            logins: None,
            mode: Mode::default(),
            tokens: Tokens::default(),
            keys: None,
            headers: SecurityHeaders::default(),
            per_address: None,
            per_principal: None,
            of_principals: NameMap::default(),
            failures: Arc::new(Limiter::new(failures(), clock)),
            clock: clock.clone(),
            missing: Vec::new(),
        }
    }

    /// This setting could not be made, or could after all.
    pub(crate) fn note(&mut self, setting: &'static str, is_made: bool) {
        self.missing.retain(|missing| *missing != setting);
        if !is_made {
            self.missing.push(setting);
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
    pub(crate) fn set_keys(&mut self, keys: Option<ApiKeys>) -> Result<(), String> {
        if let Some(keys) = &keys {
            keys.check()?;
        }
        self.keys = keys.filter(|keys| !keys.is_empty());
        Ok(())
    }

    /// The keys that are asked for, if there are any.
    pub(crate) fn keys(&self) -> Option<&ApiKeys> {
        self.keys.as_ref()
    }

    /// Only who has a password comes in, and somebody else knows it.
    pub(crate) fn set_logins(&mut self, logins: Option<Logins>) {
        self.logins = logins;
    }

    /// Whether users with passwords are asked for.
    pub(crate) fn has_users(&self) -> bool {
        !self.users.is_empty() || self.logins.is_some()
    }

    pub(crate) fn set_headers(&mut self, headers: SecurityHeaders) -> Result<(), String> {
        headers.check()?;
        self.headers = headers;
        Ok(())
    }

    /// How often each address may come. Those of IPv6 count by networks of 64 bits, and all that are not known
    /// count as one.
    pub(crate) fn set_rate_per_address(&mut self, rate: Option<Rate>) {
        self.per_address = rate.map(|rate| Arc::new(Limiter::new(rate, &self.clock)));
    }

    /// How often each caller with a name may come.
    pub(crate) fn set_rate_per_principal(&mut self, rate: Option<Rate>) {
        self.per_principal = rate.map(|rate| Arc::new(Limiter::new(rate, &self.clock)));
    }

    /// How often the caller of this name may come, instead of what holds for all.
    pub(crate) fn set_rate_of(&mut self, principal: &str, rate: Rate) {
        self.of_principals.insert(principal, Arc::new(Limiter::new(rate, &self.clock)));
    }

    /// The buckets that somebody takes from.
    fn limiter_of(&self, principal: &str) -> Option<&Arc<Limiter>> {
        self.of_principals.get(principal).or(self.per_principal.as_ref())
    }

    /// What cannot work together.
    ///
    /// # Errors
    /// If nobody could ever come in.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.users.is_empty() && self.logins.is_some() {
            return Err(
                "passwords are known here (`basic_auth`) or elsewhere (`logins`), not both".to_owned()
            );
        }
        if self.mode == Mode::All && self.has_users() && !self.tokens.is_empty() {
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
    pub(crate) fn gate(&self, head: &Head<'_>) -> Result<Gate, Box<Refusal>> {
        let is_secure = head.is_tls || address::is_secure(head.peer, head.headers, &self.proxies);
        let mut dress = Dress { origin: None, is_secure };
        let glance = head.glance;
        self.hosts.host(head.uri, head.headers, glance).map_err(|refused| {
            let why = if refused.status == 400 { Why::BadHead } else { Why::Host };
            Refusal::new(why, refused.why, &dress)
        })?;
        if !self.missing.is_empty() {
            let said = "this server is not set up rightly and lets nobody in; its log says why";
            return Err(Refusal::new(Why::Unavailable, said, &dress));
        }
        if let Some(limit) = self.body_limit {
            check_length(head.headers, limit, &dress)?;
        }
        let client = address::client(head.peer, head.headers, &self.proxies);
        if !self.addresses.is_empty() {
            self.check_address(client, &dress)?;
        }
        let origin = self.hosts.origin(glance, &self.cors);
        let origin = origin.map_err(|refused| Refusal::new(Why::Origin, refused.why, &dress))?;
        if let Some(origin) = origin {
            dress.origin = Some(Box::new(self.cors.answer(origin, head.is_literal)));
            if *head.method == Method::OPTIONS {
                return Ok(Gate::Preflight(Box::new(self.preflight(head.headers, &dress))));
            }
        }
        if let Some(limiter) = &self.per_address {
            limiter.take(Whose::address(client)).map_err(|seconds| {
                Refusal::retry(Why::TooMany, "too many requests from this address", &dress, seconds)
            })?;
        }
        let pass = Pass { principal: head.principal.cloned().unwrap_or_default(), client, dress };
        if self.asks() { self.identify(head, pass) } else { self.admit(pass).map(Gate::Open) }
    }

    /// Checks a password against its hash, when it is its turn.
    ///
    /// Cancel safe: yes, because nothing is changed here after the await.
    pub(crate) async fn prove(&self, mut claim: Box<Claim>) -> Result<Gate, Box<Refusal>> {
        let login = match claim.login.take() {
            Some(Unproven::Hash(login)) => login,
            Some(Unproven::Ask(trial)) => return self.ask_about(claim, trial).await,
            None => return self.after_login(claim),
        };
        // Every hash that is computed counts as a mistake until it is known for none: whoever guesses must not keep those
        // who log in from their turn. Right ones are remembered and are not computed again.
        if let Err(seconds) = self.failures.take(Whose::address(claim.pass.client)) {
            return Err(too_many_failures(Kind::Basic, &claim.pass, seconds));
        }
        match self.users.prove(login).await {
            Ok(Some(principal)) => self.proven(claim, &principal),
            Ok(None) => self.disproven(claim),
            Err(Unchecked::TooMany) => Err(busy(&claim.pass.dress)),
            Err(Unchecked::Broken) => Err(unavailable(&claim.pass.dress)),
        }
    }

    /// Asks whoever knows the passwords.
    ///
    /// Cancel safe: yes, because nothing is changed here after the await.
    async fn ask_about(&self, claim: Box<Claim>, trial: Trial) -> Result<Gate, Box<Refusal>> {
        let Some(logins) = &self.logins else {
            return Err(unavailable(&claim.pass.dress));
        };
        // As with hashes: who is asked about counts as a mistake, unless it was right not long ago.
        let was_right = trial.was_right;
        if !was_right && let Err(seconds) = self.failures.take(Whose::address(claim.pass.client)) {
            return Err(too_many_failures(Kind::Basic, &claim.pass, seconds));
        }
        match logins.judge(trial).await {
            Told::Right(principal) => self.proven(claim, &principal),
            Told::Wrong if was_right => {
                self.failures
                    .take(Whose::address(claim.pass.client))
                    .map_err(|seconds| too_many_failures(Kind::Basic, &claim.pass, seconds))?;
                self.disproven(claim)
            }
            Told::Wrong => self.disproven(claim),
            Told::Forbidden(message) => Err(Refusal::new(Why::Forbidden, message, &claim.pass.dress)),
            Told::TooMany => Err(busy(&claim.pass.dress)),
            Told::Unavailable => Err(unavailable(&claim.pass.dress)),
        }
    }

    /// A password was right.
    fn proven(&self, mut claim: Box<Claim>, principal: &Principal) -> Result<Gate, Box<Refusal>> {
        claim.pass.becomes(principal);
        match self.mode {
            Mode::All => self.after_login(claim),
            Mode::Any => self.admit(claim.pass).map(Gate::Open),
        }
    }

    /// A password was wrong, and counted.
    fn disproven(&self, mut claim: Box<Claim>) -> Result<Gate, Box<Refusal>> {
        if self.mode == Mode::Any && claim.key != Given::Missing {
            claim.is_wrong = true;
            return self.after_login(claim);
        }
        Err(wrong(Kind::Basic, claim.challenges, &claim.pass))
    }

    /// Checks an API key.
    ///
    /// Cancel safe: yes, because nothing is changed here after the await.
    pub(crate) async fn key(&self, claim: Box<Claim>, request: KeyRequest) -> Result<Pass, Box<Refusal>> {
        let Claim { mut pass, key, challenges, .. } = *claim;
        let (Some(keys), Given::Key(key)) = (&self.keys, key) else {
            return Err(unavailable(&pass.dress));
        };
        match keys.judge(key, &request).await {
            Verdict::Right(principal) => {
                pass.becomes(&principal);
                self.admit(pass)
            }
            Verdict::Wrong => Err(self.wrong(Kind::ApiKey, challenges, &pass)),
            Verdict::Told(message) => {
                let mut refusal = self.wrong(Kind::ApiKey, challenges, &pass);
                if matches!(refusal.why, Why::Credentials(_)) {
                    refusal.message = message.into();
                }
                Err(refusal)
            }
            Verdict::Unavailable => Err(unavailable(&pass.dress)),
        }
    }

    /// Whether requests are counted by all processes together, which takes a look into the store.
    #[inline]
    pub(crate) fn counts_together(&self) -> bool {
        let common = [&self.per_address, &self.per_principal].into_iter().flatten();
        common.chain(self.of_principals.values()).any(|limiter| limiter.is_shared())
    }

    /// Counts somebody who came in, in all processes.
    ///
    /// Cancel safe: yes; it may have been counted.
    pub(crate) async fn count(&self, pass: &Pass, cellar: &Cellar) -> Result<(), Box<Refusal>> {
        let too_many = |what| move |seconds| Refusal::retry(Why::TooMany, what, &pass.dress, seconds);
        if let Some(limiter) = &self.per_address {
            let counted = limiter.take_together(Whose::address(pass.client), cellar).await;
            counted.map_err(too_many("too many requests from this address"))?;
        }
        if let Some(name) = pass.principal.id()
            && let Some(limiter) = self.limiter_of(name)
        {
            let counted = limiter.take_together(Whose::Principal(name), cellar).await;
            counted.map_err(too_many("too many requests of this caller"))?;
        }
        Ok(())
    }

    /// The headers of an answer in JSON, to begin one with: cheaper than [`Guards::dress`].
    pub(crate) fn json(&self, dress: &Dress) -> HeaderMap {
        let mut headers = self.headers.json(dress.is_secure);
        if let Some(origin) = &dress.origin {
            Cors::dress(&mut headers, origin);
        }
        headers
    }

    /// The same for an answer that has no others: it need not carry them before it is sent.
    pub(crate) fn outfit(&self, dress: &Dress) -> Option<Arc<Outfit>> {
        if dress.origin.is_some() { None } else { self.headers.outfit(dress.is_secure) }
    }

    /// Puts on an answer what every answer carries. What it had of that before is replaced.
    pub(crate) fn dress(&self, headers: &mut HeaderMap, dress: &Dress) {
        self.headers.dress(headers, dress.is_secure);
        if let Some(origin) = &dress.origin {
            Cors::dress(headers, origin);
        }
    }

    fn preflight(&self, asked: &HeaderMap, dress: &Dress) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.dress(&mut headers, dress);
        self.cors.preflight(asked, &mut headers);
        headers
    }

    fn check_address(&self, client: Option<IpAddr>, dress: &Dress) -> Result<(), Box<Refusal>> {
        match client {
            Some(client) if self.addresses.contains(client) => Ok(()),
            Some(client) => Err(Refusal::new(
                Why::Address,
                format!("address {client} is not served here; allow it with `allow_ips`"),
                dress,
            )),
            None => Err(Refusal::new(
                Why::Address,
                "only some addresses are served here, and where this request comes from is not known",
                dress,
            )),
        }
    }

    /// Where a request comes from, as far as that is believed.
    pub(crate) fn client(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        address::client(peer, headers, &self.proxies)
    }

    /// Whether credentials of any kind are asked for.
    pub(crate) fn asks(&self) -> bool {
        self.has_users() || !self.tokens.is_empty() || self.keys.is_some()
    }

    fn identify(&self, head: &Head<'_>, pass: Pass) -> Result<Gate, Box<Refusal>> {
        let authorization = Authorization::of(head.headers);
        match self.mode {
            // Whoever passed this on may have looked at the other one.
            _ if authorization == Authorization::Twice => {
                Err(self.wrong(self.kind(), self.challenges(head, true), &pass))
            }
            Mode::All => self.identify_by_all(head, authorization, pass),
            Mode::Any => self.identify_by_any(head, authorization, pass),
        }
    }

    fn identify_by_all(
        &self,
        head: &Head<'_>,
        authorization: Authorization<'_>,
        mut pass: Pass,
    ) -> Result<Gate, Box<Refusal>> {
        let basic = || vec![basic::challenge(head.server)];
        let mut login = None;
        if !self.users.is_empty() {
            match self.users.look(authorization) {
                Proof::Right(principal) => pass.becomes(&principal),
                Proof::Open(open) => login = Some(Unproven::Hash(open)),
                Proof::Wrong => return Err(self.wrong(Kind::Basic, basic(), &pass)),
                Proof::Missing => return Err(missing(Kind::Basic, basic(), &pass)),
            }
        }
        if let Some(logins) = &self.logins {
            match logins.look(authorization, || asked(head, &pass)) {
                Look::Right(principal) => pass.becomes(&principal),
                Look::Open(trial) => login = Some(Unproven::Ask(trial)),
                Look::Wrong => return Err(self.wrong(Kind::Basic, basic(), &pass)),
                Look::Missing => return Err(missing(Kind::Basic, basic(), &pass)),
            }
        }
        if !self.tokens.is_empty() {
            match authorization {
                Authorization::Missing => return Err(missing(Kind::Bearer, vec![bearer(false)], &pass)),
                Authorization::Bearer(secret) => match self.tokens.holder(secret) {
                    Some(holder) => pass.becomes(holder),
                    None => return Err(self.wrong(Kind::Bearer, vec![bearer(true)], &pass)),
                },
                _ => return Err(self.wrong(Kind::Bearer, vec![bearer(true)], &pass)),
            }
        }
        let key = match (&self.keys, self.tokens.is_empty()) {
            (None, _) => Given::Missing,
            (Some(_), true) => Given::of(head.headers, authorization),
            // The bearer is a token already, and not a key as well.
            (Some(_), false) => Given::of(head.headers, Authorization::Missing),
        };
        let challenges = if login.is_some() { basic() } else { Vec::new() };
        let claim = Claim { pass, login, key, is_wrong: false, challenges };
        if claim.login.is_some() {
            return Ok(Gate::Prove(Box::new(claim)));
        }
        if self.keys.is_none() {
            return self.admit(claim.pass).map(Gate::Open);
        }
        self.ask_for_key(Box::new(claim))
    }

    fn identify_by_any(
        &self,
        head: &Head<'_>,
        authorization: Authorization<'_>,
        mut pass: Pass,
    ) -> Result<Gate, Box<Refusal>> {
        let (mut login, mut is_wrong) = (None, false);
        match authorization {
            Authorization::Basic(_) if !self.users.is_empty() => match self.users.look(authorization) {
                Proof::Right(principal) => {
                    pass.becomes(&principal);
                    return self.admit(pass).map(Gate::Open);
                }
                Proof::Open(open) => login = Some(Unproven::Hash(open)),
                Proof::Wrong | Proof::Missing => is_wrong = true,
            },
            Authorization::Basic(_) if let Some(logins) = &self.logins => {
                match logins.look(authorization, || asked(head, &pass)) {
                    Look::Right(principal) => {
                        pass.becomes(&principal);
                        return self.admit(pass).map(Gate::Open);
                    }
                    Look::Open(trial) => login = Some(Unproven::Ask(trial)),
                    Look::Wrong | Look::Missing => is_wrong = true,
                }
            }
            Authorization::Bearer(secret) if !self.tokens.is_empty() => {
                if let Some(holder) = self.tokens.holder(secret) {
                    pass.becomes(holder);
                    return self.admit(pass).map(Gate::Open);
                }
                is_wrong = true;
            }
            Authorization::Missing => {}
            _ => is_wrong = true,
        }
        let key = match &self.keys {
            Some(_) => Given::of(head.headers, authorization),
            None => Given::Missing,
        };
        let challenges = self.challenges(head, is_wrong);
        let claim = Claim { pass, login, key, is_wrong, challenges };
        match &claim.login {
            Some(_) => Ok(Gate::Prove(Box::new(claim))),
            None => self.ask_for_key(Box::new(claim)),
        }
    }

    /// What follows a password that was right, or that need not be.
    fn after_login(&self, claim: Box<Claim>) -> Result<Gate, Box<Refusal>> {
        if self.keys.is_none() && self.mode == Mode::All {
            return self.admit(claim.pass).map(Gate::Open);
        }
        self.ask_for_key(claim)
    }

    /// A key is needed now: without one, the body is not worth reading.
    fn ask_for_key(&self, mut claim: Box<Claim>) -> Result<Gate, Box<Refusal>> {
        let is_any = self.mode == Mode::Any;
        if !is_any {
            claim.challenges = vec![bearer(claim.key != Given::Missing)];
        }
        match &claim.key {
            Given::Key(_) => Ok(Gate::Key(claim)),
            Given::Broken => Err(self.wrong(Kind::ApiKey, claim.challenges, &claim.pass)),
            Given::Missing if claim.is_wrong => Err(self.wrong(self.kind(), claim.challenges, &claim.pass)),
            Given::Missing if is_any => {
                let mut refusal = missing(self.kind(), claim.challenges, &claim.pass);
                refusal.message = "credentials are needed; `WWW-Authenticate` says which are taken".into();
                Err(refusal)
            }
            Given::Missing => Err(missing(Kind::ApiKey, claim.challenges, &claim.pass)),
        }
    }

    /// Everything that is set up.
    fn challenges(&self, head: &Head<'_>, is_wrong: bool) -> Vec<HeaderValue> {
        let mut challenges = Vec::new();
        if self.has_users() {
            challenges.push(basic::challenge(head.server));
        }
        if !self.tokens.is_empty() || self.keys.is_some() {
            challenges.push(bearer(is_wrong));
        }
        challenges
    }

    /// The first kind that is set up: what is blamed where any would do.
    fn kind(&self) -> Kind {
        match (self.has_users(), self.tokens.is_empty()) {
            (true, _) => Kind::Basic,
            (false, false) => Kind::Bearer,
            (false, true) => Kind::ApiKey,
        }
    }

    /// The last look: everything is proven, and only how often this caller comes is left.
    fn admit(&self, pass: Pass) -> Result<Pass, Box<Refusal>> {
        if let Some(id) = pass.principal.id()
            && let Some(limiter) = self.limiter_of(id)
        {
            limiter.take(Whose::Principal(id)).map_err(|seconds| {
                Refusal::retry(Why::TooMany, "too many requests of this caller", &pass.dress, seconds)
            })?;
        }
        Ok(pass)
    }

    /// Credentials that are wrong. Whoever brings such too often is told to wait.
    fn wrong(&self, kind: Kind, challenges: Vec<HeaderValue>, pass: &Pass) -> Box<Refusal> {
        match self.failures.take(Whose::address(pass.client)) {
            Ok(()) => wrong(kind, challenges, pass),
            Err(seconds) => too_many_failures(kind, pass, seconds),
        }
    }
}

/// What whoever knows the passwords gets to see: everything but the body, which is not read yet.
fn asked(head: &Head<'_>, pass: &Pass) -> KeyRequest {
    KeyRequest::new(head.server)
        .with_headers(head.headers.clone())
        .with_http_method(head.method.clone())
        .with_remote_addr(pass.client)
}

/// A body that says itself that it is too long is not read.
fn check_length(headers: &HeaderMap, limit: usize, dress: &Dress) -> Result<(), Box<Refusal>> {
    match announced(headers) {
        Ok(Some(length)) if length > limit as u64 => Err(too_large(limit, dress)),
        Ok(_) => Ok(()),
        Err(()) => Err(Refusal::new(Why::BadHead, "header content-length is malformed", dress)),
    }
}

/// The length that a head announces for its body. `None` if it does not.
///
/// # Errors
/// If it is said twice or is no number.
fn announced(headers: &HeaderMap) -> Result<Option<u64>, ()> {
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

impl Pass {
    /// The caller is this one. Who proved something before stays who they are, and may see no more than before.
    fn becomes(&mut self, principal: &Principal) {
        self.principal = std::mem::take(&mut self.principal).merge(principal);
    }
}

impl Claim {
    /// For answers that are given before the claim is settled.
    pub(crate) fn dress(&self) -> &Dress {
        &self.pass.dress
    }

    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.pass.client
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("client", &self.pass.client).finish_non_exhaustive()
    }
}
