//! API keys: a list of them, or a question to whoever knows.
//!
//! Whoever is asked may be slow, fail or panic. Then nobody comes in, and nothing of why is told.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use super::authorization::Given;
use super::secret::Digest;
use super::token::{Token, Tokens};
use crate::profile::Profile;
use crate::request::{BoxFuture, Principal};

/// How long whoever is asked may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// No more of a provider's message than this is told.
const MAX_MESSAGE: usize = 256;

/// The API keys of a server.
///
/// A provider is asked for every request. It is a function of the key and of the request, async or not, that
/// says `true` or `false`, or fails. A key is sent as `X-API-Key` or as `Authorization: Bearer`.
///
/// ```
/// use toolgate::{ApiKeys, KeyError, KeyRequest};
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
pub struct ApiKeys {
    source: Source,
    patience: Duration,
}

type Ask = dyn Fn(String, KeyRequest) -> BoxFuture<'static, Result<bool, KeyError>> + Send + Sync;

#[derive(Clone)]
enum Source {
    List(Result<Tokens, String>),
    Ask(Arc<Ask>),
}

impl ApiKeys {
    /// Asks this function about every key.
    ///
    /// It has three seconds; a function that is not async must not block. If it fails with
    /// [`KeyError::new`], the client is told why.
    pub fn provider<F, V, M>(ask: F) -> ApiKeys
    where
        F: Fn(String, KeyRequest) -> V + Send + Sync + 'static,
        V: IntoVerdict<M>,
    {
        let ask = move |key, request| ask(key, request).into_verdict();
        ApiKeys { source: Source::Ask(Arc::new(ask)), patience: PATIENCE }
    }

    /// Lets in whoever has one of these, given as they are, as `sha256:` and the digits of their digests, or
    /// as a [`Token`] with a name or a profile.
    pub fn list<T: Into<Token>>(keys: impl IntoIterator<Item = T>) -> ApiKeys {
        ApiKeys { source: Source::List(Tokens::new("key", keys)), patience: PATIENCE }
    }

    /// Whether this key is right for this request.
    pub async fn verify(&self, key: &str, request: &KeyRequest) -> bool {
        match Given::read(key.as_bytes()) {
            Given::Key(key) => matches!(self.judge(key, request).await, Verdict::Right(_)),
            Given::Missing | Given::Broken => false,
        }
    }

    /// What is wrong with the list, if something is.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.source {
            Source::List(Err(fault)) => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    /// Whether keys are asked for: an empty list is none.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.source, Source::List(Ok(list)) if list.is_empty())
    }

    /// Cancel safe: yes, because the answer is used only after the last await.
    pub(super) async fn judge(&self, key: String, request: &KeyRequest) -> Verdict {
        let ask = match &self.source {
            Source::List(list) => {
                let holder = list.as_ref().ok().and_then(|list| list.holder(key.as_bytes()));
                return holder.map_or(Verdict::Wrong, |holder| Verdict::Right(request.complete(holder)));
            }
            Source::Ask(ask) => Arc::clone(ask),
        };
        let name = format!("key:{}", Digest::of(key.as_bytes()).short());
        let asked = request.clone();
        let asking = caught(move || ask(key, asked));
        match tokio::time::timeout(self.patience, asking).await {
            Ok(Some(Ok(true))) => Verdict::Right(request.complete(&Principal::new(name))),
            Ok(Some(Ok(false))) => Verdict::Wrong,
            Ok(Some(Err(KeyError(Failed::Told(message))))) => Verdict::Told(message),
            Ok(Some(Err(KeyError(Failed::Kept(fault))))) => {
                tracing::error!(fault = ?fault, "the API key provider failed");
                Verdict::Unavailable
            }
            Ok(None) => {
                tracing::error!("the API key provider panicked");
                Verdict::Unavailable
            }
            Err(_) => {
                tracing::error!(patience = ?self.patience, "the API key provider did not answer in time");
                Verdict::Unavailable
            }
        }
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.source {
            Source::List(_) => "list",
            Source::Ask(_) => "provider",
        };
        f.debug_tuple("ApiKeys").field(&kind).finish()
    }
}

/// What became of a key.
#[derive(Debug)]
pub(super) enum Verdict {
    Right(Principal),
    Wrong,
    /// Wrong, in these words.
    Told(String),
    /// Nobody could say.
    Unavailable,
}

/// Runs something to its end, or to its panic: then `None`.
async fn caught<T>(start: impl FnOnce() -> BoxFuture<'static, T>) -> Option<T> {
    let mut running = catch_unwind(AssertUnwindSafe(start)).ok()?;
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
        Ok(Poll::Ready(done)) => Poll::Ready(Some(done)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// Why a provider does not let somebody in.
///
/// What is made by [`KeyError::new`] is told to the client, with status 401. Every other error, by `?`, means
/// that nobody could say: the client is told 503 and nothing else, and the error stays in the log.
///
/// ```
/// # use toolgate::KeyError;
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
pub struct KeyError(Failed);

enum Failed {
    Told(String),
    Kept(String),
}

impl KeyError {
    /// A refusal in these words, which the client gets to read.
    pub fn new(message: impl Into<String>) -> KeyError {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(end);
        }
        KeyError(Failed::Told(message))
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Failed::Told(message) => f.write_str(message),
            Failed::Kept(_) => f.write_str("the API key could not be checked"),
        }
    }
}

impl fmt::Debug for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failed::Told(words) | Failed::Kept(words)) = &self.0;
        f.debug_tuple("KeyError").field(words).finish()
    }
}

// `KeyError` itself is no `std::error::Error`, or this would overlap with `From<T> for T`.
impl<E: std::error::Error> From<E> for KeyError {
    fn from(error: E) -> KeyError {
        KeyError(Failed::Kept(error.to_string()))
    }
}

/// What a provider of API keys may return: `bool`, `Result<bool, KeyError>`, or a future of one of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whether an API key is right",
    label = "neither `bool`, `Result<bool, KeyError>`, nor a future of these",
    note = "a future must be `Send + 'static`"
)]
pub trait IntoVerdict<M> {
    #[doc(hidden)]
    fn into_verdict(self) -> BoxFuture<'static, Result<bool, KeyError>>;
}

/// What can be said at once. See [`IntoVerdict`].
#[doc(hidden)]
pub trait Said {
    #[doc(hidden)]
    fn said(self) -> Result<bool, KeyError>;
}

impl Said for bool {
    fn said(self) -> Result<bool, KeyError> {
        Ok(self)
    }
}

impl Said for Result<bool, KeyError> {
    fn said(self) -> Result<bool, KeyError> {
        self
    }
}

/// Tells the two kinds of verdict apart.
#[doc(hidden)]
pub struct AtOnce;
/// Tells the two kinds of verdict apart.
#[doc(hidden)]
pub struct Later;

impl<V: Said> IntoVerdict<AtOnce> for V {
    fn into_verdict(self) -> BoxFuture<'static, Result<bool, KeyError>> {
        Box::pin(std::future::ready(self.said()))
    }
}

impl<F> IntoVerdict<Later> for F
where
    F: Future + Send + 'static,
    F::Output: Said,
{
    fn into_verdict(self) -> BoxFuture<'static, Result<bool, KeyError>> {
        Box::pin(async move { self.await.said() })
    }
}

/// What a provider of API keys gets to see of a request, and what it can say of the caller.
///
/// Copies are the same request: what is said on one is said on all.
///
/// ```
/// # use toolgate::KeyRequest;
/// let request = KeyRequest::new("shop").with_body(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
/// assert_eq!(request.method(), Some("tools/list"));
/// assert_eq!(request.server_name(), "shop");
/// ```
#[derive(Clone)]
#[must_use]
pub struct KeyRequest {
    asked: Arc<Asked>,
    told: Arc<Mutex<Told>>,
}

#[derive(Clone)]
struct Asked {
    server: String,
    http_method: Method,
    headers: Arc<HeaderMap>,
    body: Bytes,
    remote: Option<IpAddr>,
    request_id: Option<String>,
    transport: &'static str,
    /// Read when it is asked for.
    method: OnceLock<Option<String>>,
}

/// What a provider said of the caller.
#[derive(Clone, Default)]
struct Told {
    subject: Option<Arc<str>>,
    profile: Option<Profile>,
    attributes: Vec<(String, Value)>,
}

/// As much of a message as is needed to know its method.
#[derive(serde::Deserialize)]
struct Probe<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
}

impl KeyRequest {
    /// A POST to this server that says nothing.
    pub fn new(server: impl Into<String>) -> KeyRequest {
        let asked = Asked {
            server: server.into(),
            http_method: Method::POST,
            headers: Arc::default(),
            body: Bytes::new(),
            remote: None,
            request_id: None,
            transport: "http",
            method: OnceLock::new(),
        };
        KeyRequest { asked: Arc::new(asked), told: Arc::default() }
    }

    fn set_asked(mut self, set: impl FnOnce(&mut Asked)) -> KeyRequest {
        set(Arc::make_mut(&mut self.asked));
        self
    }

    /// The same with this body.
    pub fn with_body(self, body: impl Into<Bytes>) -> KeyRequest {
        self.set_asked(|asked| {
            asked.body = body.into();
            asked.method = OnceLock::new();
        })
    }

    /// The same with these headers.
    pub fn with_headers(self, headers: impl Into<Arc<HeaderMap>>) -> KeyRequest {
        self.set_asked(|asked| asked.headers = headers.into())
    }

    /// The same with this method of HTTP.
    pub fn with_http_method(self, method: Method) -> KeyRequest {
        self.set_asked(|asked| asked.http_method = method)
    }

    /// The same from this address.
    pub fn with_remote_addr(self, address: impl Into<Option<IpAddr>>) -> KeyRequest {
        self.set_asked(|asked| asked.remote = address.into())
    }

    /// The same with this id.
    pub fn with_request_id(self, id: impl Into<String>) -> KeyRequest {
        self.set_asked(|asked| asked.request_id = Some(id.into()))
    }

    /// The protocol's method, such as `tools/call`. `None` if the body does not say, as that of a GET.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        let read =
            || serde_json::from_slice::<Probe<'_>>(&self.asked.body).ok().map(|probe| probe.method.into());
        self.asked.method.get_or_init(read).as_deref()
    }

    /// The method of HTTP.
    #[must_use]
    pub fn http_method(&self) -> &Method {
        &self.asked.http_method
    }

    /// The name of the server that is called.
    #[must_use]
    pub fn server_name(&self) -> &str {
        &self.asked.server
    }

    /// The body as it came, as text.
    #[must_use]
    pub fn body(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.asked.body)
    }

    /// The body as it came.
    #[must_use]
    pub fn body_bytes(&self) -> &[u8] {
        &self.asked.body
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.asked.headers
    }

    /// Where the request comes from: what a trusted proxy says, or else the other end of the connection.
    #[must_use]
    pub fn remote_addr(&self) -> Option<IpAddr> {
        self.asked.remote
    }

    /// The id that leads to this request in logs.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.asked.request_id.as_deref()
    }

    /// How the request came: `http`.
    #[must_use]
    pub fn transport(&self) -> &str {
        self.asked.transport
    }

    /// Says something of the caller that tools and listeners can read: `Principal::attribute`.
    pub fn set(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.told().attributes.push((name.into(), value.into()));
    }

    /// What was said of the caller before, under this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value> {
        self.told().attributes.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// Says who the caller is. Unless it is said, `key:` and the first digits of the key's digest.
    pub fn set_subject(&self, subject: impl Into<Arc<str>>) {
        self.told().subject = Some(subject.into());
    }

    /// Says what the caller sees and may call.
    pub fn set_profile(&self, profile: Profile) {
        self.told().profile = Some(profile);
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller, with all that was said of them.
    fn complete(&self, principal: &Principal) -> Principal {
        let told = self.told().clone();
        let mut complete = match told.subject {
            Some(subject) => Principal::new(subject),
            None => principal.clone(),
        };
        if let Some(profile) = told.profile.or_else(|| principal.profile().cloned()) {
            complete = complete.with_profile(profile);
        }
        told.attributes.into_iter().fold(complete, |who, (name, value)| who.with_attribute(name, value))
    }
}

impl fmt::Debug for KeyRequest {
    // Headers hold the key, and bodies what is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRequest")
            .field("server_name", &self.asked.server)
            .field("http_method", &self.asked.http_method)
            .field("method", &self.method())
            .field("remote_addr", &self.asked.remote)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    async fn judge(keys: &ApiKeys, key: &str) -> String {
        match keys.judge(key.to_owned(), &KeyRequest::new("keyed")).await {
            Verdict::Right(who) => format!("right: {}", who.id().unwrap_or("nobody")),
            other => format!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_provider_says_yes_no_or_why_not() {
        let keys = ApiKeys::provider(|key, _| async move {
            match key.as_str() {
                "good" => Ok(true),
                "throw-me" => Err(KeyError::new("Rate limit exceeded")),
                "broken" => Ok("x".parse::<u8>()? == 1),
                _ => Ok(false),
            }
        });
        // printf good | sha256sum
        assert_eq!(judge(&keys, "good").await, "right: key:770e607624d68926");
        assert_eq!(judge(&keys, "no").await, "Wrong");
        assert_eq!(judge(&keys, "throw-me").await, "Told(\"Rate limit exceeded\")");
        assert_eq!(judge(&keys, "broken").await, "Unavailable");
    }

    #[tokio::test]
    async fn a_provider_can_be_written_in_four_ways() {
        let ways = [
            ApiKeys::provider(|key, _| key == "x"),
            ApiKeys::provider(|key, _| Ok(key == "x")),
            ApiKeys::provider(|key, _| async move { key == "x" }),
            ApiKeys::provider(|key: String, request: KeyRequest| async move {
                tokio::task::yield_now().await;
                request.set("n", 1);
                Ok(key == "x")
            }),
        ];
        for keys in ways {
            let request = KeyRequest::new("s");
            assert!(keys.verify("x", &request).await && !keys.verify("y", &request).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_stalls_or_panics_lets_nobody_in() {
        let begun = crate::clock::tick();
        let stalls = ApiKeys::provider(|_, _| async {
            std::future::pending::<()>().await;
            true
        });
        assert_eq!(judge(&stalls, "k").await, "Unavailable");
        assert!(begun.elapsed() <= Duration::from_secs(3) + Duration::from_millis(50));
        let at_once = ApiKeys::provider(|key, _| -> bool { panic!("{}", key.len()) });
        assert_eq!(judge(&at_once, "k").await, "Unavailable");
        let later = ApiKeys::provider(|key, _| async move {
            tokio::task::yield_now().await;
            assert!(key.is_empty(), "not today");
            true
        });
        assert_eq!(judge(&later, "k").await, "Unavailable");
    }

    #[tokio::test]
    async fn a_provider_sees_the_request_and_describes_the_caller() {
        let headers = HeaderMap::from_iter([(super::super::authorization::API_KEY, "k".parse().unwrap())]);
        let body = r#"{"jsonrpc":"2.0","id":1,"params":{"method":"x"},"method":"tools/list"}"#;
        let request = KeyRequest::new("keyed")
            .with_body(body)
            .with_headers(headers)
            .with_http_method(Method::POST)
            .with_remote_addr(IpAddr::from([192, 0, 2, 1]))
            .with_request_id("r1");
        let keys = ApiKeys::provider(move |_, rd| {
            let seen = rd.method() == Some("tools/list")
                && rd.server_name() == "keyed"
                && rd.body() == body
                && rd.body_bytes() == body.as_bytes()
                && rd.headers().contains_key("x-api-key")
                && rd.http_method() == Method::POST
                && rd.remote_addr().is_some()
                && rd.request_id() == Some("r1")
                && rd.transport() == "http";
            rd.set("tenantId", 6);
            rd.set("tenantId", 7);
            rd.set_subject("acme");
            rd.set_profile(Profile::readonly());
            seen
        });
        let Verdict::Right(who) = keys.judge("k".to_owned(), &request).await else {
            panic!("it did not see all of that");
        };
        assert_eq!(who.id(), Some("acme"));
        assert_eq!(who.profile(), Some(&Profile::readonly()));
        assert_eq!(who.attribute("tenantId"), Some(&json!(7)));
        assert_eq!(request.get("tenantId"), Some(json!(7)));
    }

    #[tokio::test]
    async fn a_list_knows_keys_and_their_digests() {
        let digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let keys = ApiKeys::list([Token::new("k1").subject("ops"), Token::new(digest)]);
        assert_eq!(judge(&keys, "k1").await, "right: ops");
        assert_eq!(judge(&keys, "test").await, "right: key:9f86d081884c7d65");
        assert_eq!(judge(&keys, digest).await, "Wrong");
        assert!(ApiKeys::list([""]).is_empty());
        assert!(ApiKeys::list(["sha256:x"]).check().is_err());
        assert_eq!(judge(&ApiKeys::list(["sha256:x"]), "sha256:x").await, "Wrong");
    }

    #[tokio::test]
    async fn a_key_with_control_characters_is_not_asked_about() {
        let keys = ApiKeys::provider(|_, _| -> bool { panic!("it must not be asked") });
        for key in ["", "a\r\nb", "a%0d%0ab", "a\0", "é", "a b"] {
            assert!(!keys.verify(key, &KeyRequest::new("s")).await, "{key:?}");
        }
        let shown = format!("{:?}", KeyRequest::new("s").with_body("hunter2"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_method_is_read_where_there_is_one() {
        for (body, method) in [
            ("", None),
            ("{", None),
            ("[]", None),
            ("{}", None),
            (r#"{"method":5}"#, None),
            (r#"{"method":"a","method":"b"}"#, None),
            (r#"{"method":"tools\/call"}"#, Some("tools/call")),
            (r#"{"params":{"method":"b"},"method":"a"}"#, Some("a")),
        ] {
            assert_eq!(KeyRequest::new("s").with_body(body).method(), method, "{body}");
        }
        let deep = format!("{{\"a\":{}1{},\"method\":\"m\"}}", "[".repeat(100_000), "]".repeat(100_000));
        let request = KeyRequest::new("s").with_body(deep);
        assert_eq!(request.method(), Some("m"), "what is not asked for may be as deep as it likes");
    }

    proptest! {
        #[test]
        fn any_body_is_read(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let request = KeyRequest::new("s").with_body(body);
            prop_assert!(request.method().is_none_or(|method| request.body().contains('"') || method.is_empty()));
        }

        #[test]
        fn a_message_is_told_up_to_a_length(message in "\\PC{0,600}") {
            let told = KeyError::new(message.clone()).to_string();
            prop_assert!(told.chars().count() <= MAX_MESSAGE && message.starts_with(&told));
        }
    }
}
