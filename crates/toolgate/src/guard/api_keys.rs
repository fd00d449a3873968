//! API keys: a list, or a function that verifies them.
//!
//! The function may be slow, fail or panic: then the request is rejected, and the reason is only logged.

mod request;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub use request::KeyRequest;

use super::authorization::PresentedKey;
use super::digest::Digest;
use super::token::{Token, Tokens};
use crate::request::{BoxFuture, Principal};

/// How long the function may take.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum length of the function's message to a client.
const MAX_MESSAGE_CHARS: usize = 256;

/// The API keys of a server.
///
/// A provider is called for every request. It is a function of the key and of the request, async or not, that returns
/// `true` or `false`, or fails. A key is sent as `X-API-Key` or as `Authorization: Bearer`.
///
/// ```
/// use toolgate::guard::{ApiKeys, KeyError, KeyRequest};
///
/// let keys = ApiKeys::provider(|key: String, request: KeyRequest| async move {
///     if key.starts_with("old-") {
///         return Err(KeyError::new("this key has expired"));
///     }
///     request.set("tenantId", 7);
///     Ok(key == "my-secret-key")
/// });
/// let short = ApiKeys::provider(|key, _| key == "my-secret-key");
/// let list = ApiKeys::list(["k1", "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]);
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let request = KeyRequest::new("my server");
/// assert!(keys.verify("my-secret-key", &request).await);
/// assert!(!short.verify("another", &request).await);
/// assert!(list.verify("test", &request).await);
/// # });
/// ```
#[derive(Clone)]
#[must_use]
#[doc(alias("authentication", "X-API-Key"))]
pub struct ApiKeys {
    source: KeySource,
    timeout: Duration,
}

type KeyProviderFn = dyn Fn(String, KeyRequest) -> BoxFuture<'static, Result<bool, KeyError>> + Send + Sync;

#[derive(Clone)]
enum KeySource {
    List(Result<Tokens, String>),
    Provider(Arc<KeyProviderFn>),
}

impl ApiKeys {
    /// Verifies every key with this function.
    ///
    /// It has three seconds; a function that is not async must not block. If it fails with [`KeyError::new`], the
    /// message is sent to the client.
    pub fn provider<F, V, M>(ask: F) -> ApiKeys
    where
        F: Fn(String, KeyRequest) -> V + Send + Sync + 'static,
        V: IntoKeyResult<M>,
    {
        let ask = move |key, request| ask(key, request).into_key_result();
        ApiKeys { source: KeySource::Provider(Arc::new(ask)), timeout: PROVIDER_TIMEOUT }
    }

    /// Accepts these keys, in plain text, as `sha256:` and the digits of their digests, or as a [`Token`] with a
    /// name or a profile.
    pub fn list<T: Into<Token>>(keys: impl IntoIterator<Item = T>) -> ApiKeys {
        ApiKeys { source: KeySource::List(Tokens::new("key", keys)), timeout: PROVIDER_TIMEOUT }
    }

    /// Whether a key is valid for a request.
    pub async fn verify(&self, key: &str, request: &KeyRequest) -> bool {
        match PresentedKey::parse(key.as_bytes()) {
            PresentedKey::Key(key) => matches!(self.check_key(key, request).await, KeyCheck::Valid(_)),
            PresentedKey::Missing | PresentedKey::Malformed => false,
        }
    }

    /// Returns the error of the list, if it has one.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.source {
            KeySource::List(Err(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether no keys are required, because the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.source, KeySource::List(Ok(list)) if list.is_empty())
    }

    /// Cancel safe: yes, because the result is used only after the last await.
    pub(super) async fn check_key(&self, key: String, request: &KeyRequest) -> KeyCheck {
        let provider = match &self.source {
            KeySource::List(list) => {
                let holder = list.as_ref().ok().and_then(|list| list.principal_for(key.as_bytes()));
                return holder.map_or(KeyCheck::Invalid, |holder| KeyCheck::Valid(request.apply_to(holder)));
            }
            KeySource::Provider(provider) => Arc::clone(provider),
        };
        let name = format!("key:{}", Digest::of(key.as_bytes()).short_hex());
        let provider_request = request.clone();
        let check = catch_panic(move || provider(key, provider_request));
        match tokio::time::timeout(self.timeout, check).await {
            Ok(Some(Ok(true))) => KeyCheck::Valid(request.apply_to(&Principal::new(name))),
            Ok(Some(Ok(false))) => KeyCheck::Invalid,
            Ok(Some(Err(KeyError(KeyErrorRepr::Rejected(message))))) => KeyCheck::Rejected(message),
            Ok(Some(Err(KeyError(KeyErrorRepr::Internal(error))))) => {
                tracing::error!(?error, "API key provider failed");
                KeyCheck::Unavailable
            }
            Ok(None) => {
                tracing::error!("API key provider panicked");
                KeyCheck::Unavailable
            }
            Err(_) => {
                tracing::error!(timeout = ?self.timeout, "API key provider timed out");
                KeyCheck::Unavailable
            }
        }
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.source {
            KeySource::List(_) => "list",
            KeySource::Provider(_) => "provider",
        };
        f.debug_tuple("ApiKeys").field(&kind).finish()
    }
}

/// The result of checking a key.
#[derive(Debug)]
pub(super) enum KeyCheck {
    Valid(Principal),
    Invalid,
    /// Invalid, with a message for the client.
    Rejected(String),
    /// The provider failed.
    Unavailable,
}

/// Runs a call to its end. Returns `None` if it panics.
pub(super) async fn catch_panic<T>(start: impl FnOnce() -> BoxFuture<'static, T>) -> Option<T> {
    let mut running = catch_unwind(AssertUnwindSafe(start)).ok()?;
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
        Ok(Poll::Ready(done)) => Poll::Ready(Some(done)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// Why a provider rejects a key.
///
/// The message of [`KeyError::new`] is sent to the client, with status 401. Any other error, converted by `?`, means
/// that the key could not be checked: the client gets a 503 response without the reason, which is only logged.
///
/// ```
/// # use toolgate::guard::KeyError;
/// fn limit(text: &str) -> Result<bool, KeyError> {
///     let calls: u32 = text.parse()?;
///     if calls > 100 {
///         return Err(KeyError::new("Rate limit exceeded"));
///     }
///     Ok(true)
/// }
/// assert_eq!(limit("101").unwrap_err().to_string(), "Rate limit exceeded");
/// assert_eq!(limit("x").unwrap_err().to_string(), "the API key could not be checked");
/// ```
pub struct KeyError(KeyErrorRepr);

enum KeyErrorRepr {
    Rejected(String),
    Internal(String),
}

impl KeyError {
    /// Rejects the key with this message, which is sent to the client.
    pub fn new(message: impl Into<String>) -> KeyError {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
        }
        KeyError(KeyErrorRepr::Rejected(message))
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            KeyErrorRepr::Rejected(message) => f.write_str(message),
            KeyErrorRepr::Internal(_) => f.write_str("the API key could not be checked"),
        }
    }
}

impl fmt::Debug for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (KeyErrorRepr::Rejected(text) | KeyErrorRepr::Internal(text)) = &self.0;
        f.debug_tuple("KeyError").field(text).finish()
    }
}

// `KeyError` must not implement `std::error::Error`, or this would overlap with `From<T> for T`.
impl<E: std::error::Error> From<E> for KeyError {
    fn from(error: E) -> KeyError {
        KeyError(KeyErrorRepr::Internal(error.to_string()))
    }
}

/// A return type of API key providers: `bool`, `Result<bool, KeyError>`, or a future of one of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the result of an API key check",
    label = "neither `bool`, `Result<bool, KeyError>`, nor a future of these",
    note = "a future must be `Send + 'static`"
)]
pub trait IntoKeyResult<M> {
    #[doc(hidden)]
    fn into_key_result(self) -> BoxFuture<'static, Result<bool, KeyError>>;
}

/// A result that needs no waiting. See [`IntoKeyResult`].
#[doc(hidden)]
pub trait KeyResult {
    #[doc(hidden)]
    fn into_result(self) -> Result<bool, KeyError>;
}

impl KeyResult for bool {
    fn into_result(self) -> Result<bool, KeyError> {
        Ok(self)
    }
}

impl KeyResult for Result<bool, KeyError> {
    fn into_result(self) -> Result<bool, KeyError> {
        self
    }
}

/// Marks results that are not futures.
#[doc(hidden)]
pub struct SyncMarker;
/// Marks results that are futures.
#[doc(hidden)]
pub struct AsyncMarker;

impl<V: KeyResult> IntoKeyResult<SyncMarker> for V {
    fn into_key_result(self) -> BoxFuture<'static, Result<bool, KeyError>> {
        Box::pin(std::future::ready(self.into_result()))
    }
}

impl<F> IntoKeyResult<AsyncMarker> for F
where
    F: Future + Send + 'static,
    F::Output: KeyResult,
{
    fn into_key_result(self) -> BoxFuture<'static, Result<bool, KeyError>> {
        Box::pin(async move { self.await.into_result() })
    }
}
