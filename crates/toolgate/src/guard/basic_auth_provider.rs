//! Users with passwords that somebody else knows.
//!
//! Whoever is asked may be slow, fail or panic. Then nobody comes in, and nothing of why is told. Only so many are asked
//! about at once, and who was right is remembered for a while, as a digest: a password is kept no longer than it takes to
//! ask about it.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::api_keys::{KeyRequest, catch_panic};
use super::authorization::{Authorization, decode_basic};
use super::digest::{Digest, VerifiedLogins};
use crate::request::{BoxFuture, Principal};
use crate::seal::fill_random;
use crate::util::clock::timer_now;

/// How long whoever is asked may take.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long somebody who was right is not asked about again, unless that is said.
const DEFAULT_CACHE_TTL: Duration = Duration::from_secs(60);
/// How long somebody who was right is known to be no guesser.
const MAX_CACHE_TTL: Duration = Duration::from_hours(1);
/// Logins that are asked about at once.
const MAX_CONCURRENT_CHECKS: usize = 16;
/// Those, and the requests that wait for their turn. One more is told to come again.
const MAX_PENDING_CHECKS: usize = 80;
/// Proofs that are remembered. When there are so many, the oldest are asked about again.
const MAX_CACHED_LOGINS: usize = 4096;
/// Longer names and passwords are nobody's.
const MAX_CREDENTIAL_BYTES: usize = 1024;
/// No more of a provider's message than this is told.
const MAX_MESSAGE_CHARS: usize = 256;

/// Users whose passwords a function knows: a directory, a website, a database.
///
/// The function is given the user and the password of an `Authorization: Basic` header, and the request without its
/// body. It says who that is, or fails with a [`LoginError`]. It has ten seconds. Who was right is remembered for a
/// minute, or as long as [`remember`](Logins::remember) says, and is not asked about meanwhile.
///
/// ```
/// use std::time::Duration;
/// use toolgate::{Logins, Principal, Server};
/// use toolgate::guard::{KeyRequest, LoginError};
///
/// let logins = Logins::provider(|user: String, password: String, _request: KeyRequest| async move {
///     match (user.as_str(), password.as_str()) {
///         ("ada", "tiger") => Ok(Principal::new("user:ada").with_attribute("role", "admin")),
///         ("bob", "lion") => Err(LoginError::forbidden("administrators only")),
///         _ => Err(LoginError::wrong()),
///     }
/// })
/// .remember(Duration::from_secs(30));
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let request = KeyRequest::new("shop");
/// assert!(logins.verify("ada", "tiger", &request).await);
/// assert!(!logins.verify("bob", "lion", &request).await);
/// let server = Server::new("shop", "1.0.0").logins(logins).build()?;
/// assert!(server.has_basic_auth());
/// # Ok::<(), toolgate::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
#[must_use]
pub struct BasicAuthProvider {
    provider: Arc<LoginProviderFn>,
    timeout: Duration,
    cache_ttl: Duration,
    state: Arc<ProviderState>,
}

type LoginProviderFn =
    dyn Fn(String, String, KeyRequest) -> BoxFuture<'static, Result<Principal, LoginError>> + Send + Sync;

/// What all copies share.
struct ProviderState {
    call_permits: Semaphore,
    queue_permits: Semaphore,
    /// Makes what is remembered worthless elsewhere.
    salt: [u8; 32],
    verified: Mutex<VerifiedLogins>,
}

/// What a header proves.
pub(super) enum ProviderLookup {
    /// There are no credentials of this kind.
    Missing,
    Invalid,
    Valid(Principal),
    /// Somebody must be asked.
    Unverified(ProviderLogin),
}

/// A user and a password that are still to be asked about.
pub(super) struct ProviderLogin {
    user: String,
    password: String,
    cache_key: Digest,
    /// They were right not long ago: nobody is guessing.
    pub(super) was_valid: bool,
    request: KeyRequest,
}

/// What became of a login.
#[derive(Debug)]
pub(super) enum LoginCheck {
    Valid(Principal),
    Invalid,
    /// Known, and not let in, in these words.
    Forbidden(String),
    /// Too many are asked about.
    TooMany,
    /// Nobody could say.
    Unavailable,
}

impl BasicAuthProvider {
    /// Asks this function who a user with a password is.
    pub fn provider<F, V>(ask: F) -> BasicAuthProvider
    where
        F: Fn(String, String, KeyRequest) -> V + Send + Sync + 'static,
        V: Future<Output = Result<Principal, LoginError>> + Send + 'static,
    {
        let mut key = [0; 32];
        fill_random(&mut key);
        let asking = ProviderState {
            call_permits: Semaphore::new(MAX_CONCURRENT_CHECKS),
            queue_permits: Semaphore::new(MAX_PENDING_CHECKS),
            salt: key,
            verified: Mutex::default(),
        };
        let provider: Arc<LoginProviderFn> =
            Arc::new(move |user, password, request| Box::pin(ask(user, password, request)));
        BasicAuthProvider {
            provider,
            timeout: PROVIDER_TIMEOUT,
            cache_ttl: DEFAULT_CACHE_TTL,
            state: Arc::new(asking),
        }
    }

    /// How long somebody who was right is not asked about again; an hour at most, and nothing to ask about every
    /// request. Somebody who is locked out elsewhere comes in for so long here.
    pub fn cache_ttl(mut self, time: Duration) -> BasicAuthProvider {
        self.cache_ttl = time.min(MAX_CACHE_TTL);
        self
    }

    /// How long the function may take.
    pub fn timeout(mut self, time: Duration) -> BasicAuthProvider {
        self.timeout = time;
        self
    }

    /// Whether this user with this password would be let in.
    pub async fn verify(&self, user: &str, password: &str, request: &KeyRequest) -> bool {
        match self.lookup_credentials(user.as_bytes().to_vec(), password.as_bytes().to_vec(), request.clone())
        {
            ProviderLookup::Valid(_) => true,
            ProviderLookup::Unverified(trial) => {
                matches!(self.check_login(trial).await, LoginCheck::Valid(_))
            }
            ProviderLookup::Missing | ProviderLookup::Invalid => false,
        }
    }

    /// What can be said without asking anybody.
    pub(super) fn lookup(
        &self,
        authorization: Authorization<'_>,
        request: impl FnOnce() -> KeyRequest,
    ) -> ProviderLookup {
        let encoded = match authorization {
            Authorization::Missing => return ProviderLookup::Missing,
            Authorization::Basic(encoded) => encoded,
            Authorization::Repeated | Authorization::Malformed | Authorization::Bearer(_) => {
                return ProviderLookup::Invalid;
            }
        };
        match decode_basic(encoded) {
            Some((user, password)) => self.lookup_credentials(user, password, request()),
            None => ProviderLookup::Invalid,
        }
    }

    fn lookup_credentials(&self, user: Vec<u8>, password: Vec<u8>, request: KeyRequest) -> ProviderLookup {
        let is_fine = |text: &[u8]| !text.is_empty() && text.len() <= MAX_CREDENTIAL_BYTES;
        if !is_fine(&user) || !is_fine(&password) {
            return ProviderLookup::Invalid;
        }
        let (name, given) = (Digest::of(&user), Digest::of(&password));
        let proof = Digest::combine(&[&self.state.salt, name.as_bytes(), given.as_bytes()]);
        let was_right = match self.state.cached(&proof) {
            Some((at, principal)) if at.elapsed() < self.cache_ttl => {
                return ProviderLookup::Valid(principal);
            }
            Some((at, _)) => at.elapsed() < MAX_CACHE_TTL,
            None => false,
        };
        match (String::from_utf8(user), String::from_utf8(password)) {
            (Ok(user), Ok(password)) => ProviderLookup::Unverified(ProviderLogin {
                user,
                password,
                cache_key: proof,
                was_valid: was_right,
                request,
            }),
            _ => ProviderLookup::Invalid,
        }
    }

    /// Asks, when it is its turn.
    ///
    /// Cancel safe: yes, because the answer is used only after the last await.
    pub(super) async fn check_login(&self, trial: ProviderLogin) -> LoginCheck {
        let ProviderLogin { user, password, cache_key: proof, request, .. } = trial;
        // Full: whoever comes now is told to come again.
        let Ok(_seat) = self.state.queue_permits.try_acquire() else { return LoginCheck::TooMany };
        let (ask, asked) = (Arc::clone(&self.provider), request.clone());
        let asking = async {
            let _turn = self.state.call_permits.acquire().await.ok()?;
            catch_panic(move || ask(user, password, asked)).await
        };
        match tokio::time::timeout(self.timeout, asking).await {
            Ok(Some(Ok(principal))) => {
                let principal = request.apply_to(&principal);
                self.state.update_cache(&proof, Some(&principal));
                LoginCheck::Valid(principal)
            }
            Ok(Some(Err(LoginError(LoginErrorRepr::Invalid)))) => {
                self.state.update_cache(&proof, None);
                LoginCheck::Invalid
            }
            Ok(Some(Err(LoginError(LoginErrorRepr::Forbidden(message))))) => {
                self.state.update_cache(&proof, None);
                LoginCheck::Forbidden(message)
            }
            Ok(Some(Err(LoginError(LoginErrorRepr::Unavailable(fault))))) => {
                tracing::error!(fault = ?fault, "logins could not be checked");
                LoginCheck::Unavailable
            }
            Ok(None) => {
                tracing::error!("whoever checks logins panicked");
                LoginCheck::Unavailable
            }
            Err(_) => {
                tracing::error!(patience = ?self.timeout, "whoever checks logins did not answer in time");
                LoginCheck::Unavailable
            }
        }
    }
}

impl ProviderState {
    fn cached(&self, proof: &Digest) -> Option<(Instant, Principal)> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(proof.as_bytes()).cloned()
    }

    /// Who was right, or is no longer. Only who is right gets in here, so nobody can push others out.
    fn update_cache(&self, proof: &Digest, principal: Option<&Principal>) {
        let mut right = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(principal) = principal else {
            right.remove(proof.as_bytes());
            return;
        };
        if right.len() >= MAX_CACHED_LOGINS {
            right.retain(|_, (at, _)| at.elapsed() < MAX_CACHE_TTL);
        }
        if right.len() >= MAX_CACHED_LOGINS {
            right.clear();
        }
        right.insert(*proof.as_bytes(), (timer_now(), principal.clone()));
    }
}

impl fmt::Debug for BasicAuthProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuthProvider").field("cache_ttl", &self.cache_ttl).finish_non_exhaustive()
    }
}

/// Why somebody with a password does not come in.
///
/// Every error that is none of the two made here, by `?`, means that nobody could say: the client is told 503 and
/// nothing else, and the error stays in the log.
///
/// ```
/// # use toolgate::guard::LoginError;
/// assert_eq!(LoginError::wrong().to_string(), "user or password is wrong");
/// assert_eq!(LoginError::forbidden("administrators only").to_string(), "administrators only");
/// let error = LoginError::from("x".parse::<u8>().unwrap_err());
/// assert_eq!(error.to_string(), "the login could not be checked");
/// assert_eq!(error.reason(), Some("invalid digit found in string"));
/// ```
pub struct LoginError(LoginErrorRepr);

enum LoginErrorRepr {
    Invalid,
    Forbidden(String),
    Unavailable(String),
}

impl LoginError {
    /// The user or the password is wrong; nobody is told which. Answered 401.
    #[must_use]
    pub fn wrong() -> LoginError {
        LoginError(LoginErrorRepr::Invalid)
    }

    /// User and password are right and may not come in, in these words. Answered 403.
    pub fn forbidden(message: impl Into<String>) -> LoginError {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
        }
        LoginError(LoginErrorRepr::Forbidden(message))
    }

    /// Nobody could say, for this reason, which stays in the log. Answered 503.
    pub fn unavailable(reason: impl Into<String>) -> LoginError {
        LoginError(LoginErrorRepr::Unavailable(reason.into()))
    }

    /// Why nobody could say, for whoever runs the server. Clients are not told.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &self.0 {
            LoginErrorRepr::Unavailable(reason) => Some(reason),
            LoginErrorRepr::Invalid | LoginErrorRepr::Forbidden(_) => None,
        }
    }
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            LoginErrorRepr::Invalid => f.write_str("user or password is wrong"),
            LoginErrorRepr::Forbidden(message) => f.write_str(message),
            LoginErrorRepr::Unavailable(_) => f.write_str("the login could not be checked"),
        }
    }
}

impl fmt::Debug for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            LoginErrorRepr::Invalid => f.write_str("LoginError::Invalid"),
            LoginErrorRepr::Forbidden(words) | LoginErrorRepr::Unavailable(words) => {
                f.debug_tuple("LoginError").field(words).finish()
            }
        }
    }
}

// `LoginError` itself is no `std::error::Error`, or this would overlap with `From<T> for T`.
impl<E: std::error::Error> From<E> for LoginError {
    fn from(error: E) -> LoginError {
        LoginError(LoginErrorRepr::Unavailable(error.to_string()))
    }
}
