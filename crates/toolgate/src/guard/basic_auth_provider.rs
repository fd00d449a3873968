//! HTTP Basic authentication of users whose passwords are verified by a function.
//!
//! The function may be slow, fail or panic: then the request is rejected, and the reason is only logged. The number of
//! concurrent checks is limited, and a valid login is cached for a while as a digest: a password is kept no longer than
//! its check takes.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::api_keys::{KeyRequest, catch_panic};
use super::authorization::{Authorization, decode_basic};
use super::digest::Digest;
use super::login_cache::{CredentialLookup, LoginCache, MAX_CACHE_TTL};
use crate::request::{BoxFuture, Principal};

/// How long the function may take.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a valid login is not checked again, unless configured.
const DEFAULT_CACHE_TTL: Duration = Duration::from_secs(60);
/// Logins that are checked at once.
const MAX_CONCURRENT_CHECKS: usize = 16;
/// Logins that are checked or wait. A further one is rejected with a retry delay.
const MAX_PENDING_CHECKS: usize = 80;
/// Cached logins. When the cache is full, the oldest are checked again.
const MAX_CACHED_LOGINS: usize = 4096;
/// Longer names and passwords are rejected without a check.
const MAX_CREDENTIAL_BYTES: usize = 1024;
/// Maximum length of the function's message to a client.
const MAX_MESSAGE_CHARS: usize = 256;

/// HTTP Basic authentication by a function, which may query a directory, a website or a database.
///
/// The function is given the user and the password of an `Authorization: Basic` header, and the request without its
/// body. It returns the principal, or fails with a [`LoginError`]. It has ten seconds. A valid login is cached for a
/// minute, or as long as [`cache_ttl`](BasicAuthProvider::cache_ttl) says, and is not checked again meanwhile.
///
/// ```
/// use std::time::Duration;
/// use toolgate::guard::{BasicAuthProvider, KeyRequest, LoginError};
/// use toolgate::{Principal, Server};
///
/// let logins = BasicAuthProvider::provider(|user: String, password: String, _request: KeyRequest| async move {
///     match (user.as_str(), password.as_str()) {
///         ("ada", "tiger") => Ok(Principal::new("user:ada").with_attribute("role", "admin")),
///         ("bob", "lion") => Err(LoginError::forbidden("administrators only")),
///         _ => Err(LoginError::wrong()),
///     }
/// })
/// .cache_ttl(Duration::from_secs(30));
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let request = KeyRequest::new("shop");
/// assert!(logins.verify("ada", "tiger", &request).await);
/// assert!(!logins.verify("bob", "lion", &request).await);
/// let server = Server::new("shop", "1.0.0").basic_auth_provider(logins).build()?;
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
    cache: Arc<LoginCache>,
}

type LoginProviderFn =
    dyn Fn(String, String, KeyRequest) -> BoxFuture<'static, Result<Principal, LoginError>> + Send + Sync;

/// A user and a password that still have to be checked.
pub(super) struct ProviderLogin {
    user: String,
    password: String,
    cache_key: Digest,
    /// The login was valid not long ago, so it does not count as a guess.
    pub(super) was_valid: bool,
    request: KeyRequest,
}

/// The result of checking a login.
#[derive(Debug)]
pub(super) enum LoginCheck {
    Valid(Principal),
    Invalid,
    /// The user is known and not allowed; the message is for the client.
    Forbidden(String),
    /// Too many logins are being checked.
    TooMany,
    /// The function failed.
    Unavailable,
}

impl BasicAuthProvider {
    /// Verifies users and passwords with this function.
    pub fn provider<F, V>(check: F) -> BasicAuthProvider
    where
        F: Fn(String, String, KeyRequest) -> V + Send + Sync + 'static,
        V: Future<Output = Result<Principal, LoginError>> + Send + 'static,
    {
        let provider: Arc<LoginProviderFn> =
            Arc::new(move |user, password, request| Box::pin(check(user, password, request)));
        BasicAuthProvider {
            provider,
            timeout: PROVIDER_TIMEOUT,
            cache_ttl: DEFAULT_CACHE_TTL,
            cache: Arc::new(LoginCache::new(MAX_CONCURRENT_CHECKS, MAX_PENDING_CHECKS, MAX_CACHED_LOGINS)),
        }
    }

    /// Sets how long a valid login is not checked again: an hour at most, and zero to check every request. A user whose
    /// access was revoked elsewhere keeps it here for that long.
    pub fn cache_ttl(mut self, time: Duration) -> BasicAuthProvider {
        self.cache_ttl = time.min(MAX_CACHE_TTL);
        self
    }

    /// Sets how long the function may take.
    pub fn timeout(mut self, time: Duration) -> BasicAuthProvider {
        self.timeout = time;
        self
    }

    /// Whether a user and a password are valid.
    pub async fn verify(&self, user: &str, password: &str, request: &KeyRequest) -> bool {
        match self.lookup_credentials(user.as_bytes().to_vec(), password.as_bytes().to_vec(), request.clone())
        {
            CredentialLookup::Valid(_) => true,
            CredentialLookup::Unverified(login) => {
                matches!(self.check_login(login).await, LoginCheck::Valid(_))
            }
            CredentialLookup::Missing | CredentialLookup::Invalid => false,
        }
    }

    /// Looks up credentials, as far as that is possible without calling the function.
    pub(super) fn lookup(
        &self,
        authorization: Authorization<'_>,
        request: impl FnOnce() -> KeyRequest,
    ) -> CredentialLookup<ProviderLogin> {
        let encoded = match authorization {
            Authorization::Missing => return CredentialLookup::Missing,
            Authorization::Basic(encoded) => encoded,
            Authorization::Repeated | Authorization::Malformed | Authorization::Bearer(_) => {
                return CredentialLookup::Invalid;
            }
        };
        match decode_basic(encoded) {
            Some((user, password)) => self.lookup_credentials(user, password, request()),
            None => CredentialLookup::Invalid,
        }
    }

    fn lookup_credentials(
        &self,
        user: Vec<u8>,
        password: Vec<u8>,
        request: KeyRequest,
    ) -> CredentialLookup<ProviderLogin> {
        let is_acceptable = |text: &[u8]| !text.is_empty() && text.len() <= MAX_CREDENTIAL_BYTES;
        if !is_acceptable(&user) || !is_acceptable(&password) {
            return CredentialLookup::Invalid;
        }
        let (user_digest, password_digest) = (Digest::of(&user), Digest::of(&password));
        let cache_key = self.cache.key(&[&user_digest, &password_digest]);
        let was_valid = match self.cache.get(&cache_key) {
            Some((at, principal)) if at.elapsed() < self.cache_ttl => {
                return CredentialLookup::Valid(principal);
            }
            Some((at, _)) => at.elapsed() < MAX_CACHE_TTL,
            None => false,
        };
        match (String::from_utf8(user), String::from_utf8(password)) {
            (Ok(user), Ok(password)) => {
                CredentialLookup::Unverified(ProviderLogin { user, password, cache_key, was_valid, request })
            }
            _ => CredentialLookup::Invalid,
        }
    }

    /// Calls the function, once a permit is free.
    ///
    /// Cancel safe: yes, because the result is used only after the last await.
    pub(super) async fn check_login(&self, login: ProviderLogin) -> LoginCheck {
        let ProviderLogin { user, password, cache_key, request, .. } = login;
        let Some(queued) = self.cache.enqueue() else { return LoginCheck::TooMany };
        let (provider, provider_request) = (Arc::clone(&self.provider), request.clone());
        let check = async {
            let _permit = self.cache.permit(queued).await?;
            catch_panic(move || provider(user, password, provider_request)).await
        };
        match tokio::time::timeout(self.timeout, check).await {
            Ok(Some(Ok(principal))) => {
                let principal = request.apply_to(&principal);
                self.cache.insert(&cache_key, &principal);
                LoginCheck::Valid(principal)
            }
            Ok(Some(Err(LoginError(LoginErrorRepr::Invalid)))) => {
                self.cache.remove(&cache_key);
                LoginCheck::Invalid
            }
            Ok(Some(Err(LoginError(LoginErrorRepr::Forbidden(message))))) => {
                self.cache.remove(&cache_key);
                LoginCheck::Forbidden(message)
            }
            Ok(Some(Err(LoginError(LoginErrorRepr::Unavailable(reason))))) => {
                tracing::error!(?reason, "login provider failed");
                LoginCheck::Unavailable
            }
            Ok(None) => {
                tracing::error!("login provider panicked");
                LoginCheck::Unavailable
            }
            Err(_) => {
                tracing::error!(timeout = ?self.timeout, "login provider timed out");
                LoginCheck::Unavailable
            }
        }
    }
}

impl fmt::Debug for BasicAuthProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuthProvider").field("cache_ttl", &self.cache_ttl).finish_non_exhaustive()
    }
}

/// Why a login is rejected.
///
/// Any other error, converted by `?`, means that the login could not be checked: the client gets a 503 response without
/// the reason, which is only logged.
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
    /// The user or the password is wrong, without saying which. The response is 401.
    #[must_use]
    pub fn wrong() -> LoginError {
        LoginError(LoginErrorRepr::Invalid)
    }

    /// The user and the password are valid, but the user is not allowed. The message is sent with a 403 response.
    pub fn forbidden(message: impl Into<String>) -> LoginError {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
        }
        LoginError(LoginErrorRepr::Forbidden(message))
    }

    /// The login could not be checked. The reason is only logged. The response is 503.
    pub fn unavailable(reason: impl Into<String>) -> LoginError {
        LoginError(LoginErrorRepr::Unavailable(reason.into()))
    }

    /// Why the login could not be checked, for the operator. It is not sent to clients.
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
            LoginErrorRepr::Forbidden(text) | LoginErrorRepr::Unavailable(text) => {
                f.debug_tuple("LoginError").field(text).finish()
            }
        }
    }
}

// `LoginError` must not implement `std::error::Error`, or this would overlap with `From<T> for T`.
impl<E: std::error::Error> From<E> for LoginError {
    fn from(error: E) -> LoginError {
        LoginError(LoginErrorRepr::Unavailable(error.to_string()))
    }
}
