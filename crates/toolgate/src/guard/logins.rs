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

use super::authorization::{Authorization, user_and_password};
use super::keys::{KeyRequest, caught};
use super::secret::{Digest, Proven};
use crate::clock::timer_now;
use crate::request::{BoxFuture, Principal};
use crate::seal::fill_random;

/// How long whoever is asked may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long somebody who was right is not asked about again, unless that is said.
const REMEMBER: Duration = Duration::from_secs(60);
/// How long somebody who was right is known to be no guesser.
const RECALL: Duration = Duration::from_hours(1);
/// Logins that are asked about at once.
const AT_ONCE: usize = 16;
/// Those, and the requests that wait for their turn. One more is told to come again.
const IN_ALL: usize = 80;
/// Proofs that are remembered. When there are so many, the oldest are asked about again.
const REMEMBERED: usize = 4096;
/// Longer names and passwords are nobody's.
const LONGEST: usize = 1024;
/// No more of a provider's message than this is told.
const MAX_MESSAGE: usize = 256;

/// Users whose passwords a function knows: a directory, a website, a database.
///
/// The function is given the user and the password of an `Authorization: Basic` header, and the request without its
/// body. It says who that is, or fails with a [`LoginError`]. It has ten seconds. Who was right is remembered for a
/// minute, or as long as [`remember`](Logins::remember) says, and is not asked about meanwhile.
///
/// ```
/// use std::time::Duration;
/// use toolgate::{KeyRequest, LoginError, Logins, Principal, Server};
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
pub struct Logins {
    ask: Arc<Ask>,
    patience: Duration,
    remember: Duration,
    asking: Arc<Asking>,
}

type Ask =
    dyn Fn(String, String, KeyRequest) -> BoxFuture<'static, Result<Principal, LoginError>> + Send + Sync;

/// What all copies share.
struct Asking {
    at_once: Semaphore,
    in_all: Semaphore,
    /// Makes what is remembered worthless elsewhere.
    key: [u8; 32],
    right: Mutex<Proven>,
}

/// What a header proves.
pub(super) enum Look {
    /// There are no credentials of this kind.
    Missing,
    Wrong,
    Right(Principal),
    /// Somebody must be asked.
    Open(Trial),
}

/// A user and a password that are still to be asked about.
pub(super) struct Trial {
    user: String,
    password: String,
    proof: Digest,
    /// They were right not long ago: nobody is guessing.
    pub(super) was_right: bool,
    request: KeyRequest,
}

/// What became of a login.
#[derive(Debug)]
pub(super) enum Verdict {
    Right(Principal),
    Wrong,
    /// Known, and not let in, in these words.
    Forbidden(String),
    /// Too many are asked about.
    TooMany,
    /// Nobody could say.
    Unavailable,
}

impl Logins {
    /// Asks this function who a user with a password is.
    pub fn provider<F, V>(ask: F) -> Logins
    where
        F: Fn(String, String, KeyRequest) -> V + Send + Sync + 'static,
        V: Future<Output = Result<Principal, LoginError>> + Send + 'static,
    {
        let mut key = [0; 32];
        fill_random(&mut key);
        let asking = Asking {
            at_once: Semaphore::new(AT_ONCE),
            in_all: Semaphore::new(IN_ALL),
            key,
            right: Mutex::default(),
        };
        let ask: Arc<Ask> = Arc::new(move |user, password, request| Box::pin(ask(user, password, request)));
        Logins { ask, patience: PATIENCE, remember: REMEMBER, asking: Arc::new(asking) }
    }

    /// How long somebody who was right is not asked about again; an hour at most, and nothing to ask about every
    /// request. Somebody who is locked out elsewhere comes in for so long here.
    pub fn remember(mut self, time: Duration) -> Logins {
        self.remember = time.min(RECALL);
        self
    }

    /// How long the function may take.
    pub fn patience(mut self, time: Duration) -> Logins {
        self.patience = time;
        self
    }

    /// Whether this user with this password would be let in.
    pub async fn verify(&self, user: &str, password: &str, request: &KeyRequest) -> bool {
        match self.known(user.as_bytes().to_vec(), password.as_bytes().to_vec(), request.clone()) {
            Look::Right(_) => true,
            Look::Open(trial) => matches!(self.judge(trial).await, Verdict::Right(_)),
            Look::Missing | Look::Wrong => false,
        }
    }

    /// What can be said without asking anybody.
    pub(super) fn look(
        &self,
        authorization: Authorization<'_>,
        request: impl FnOnce() -> KeyRequest,
    ) -> Look {
        let encoded = match authorization {
            Authorization::Missing => return Look::Missing,
            Authorization::Basic(encoded) => encoded,
            Authorization::Twice | Authorization::Broken | Authorization::Bearer(_) => return Look::Wrong,
        };
        match user_and_password(encoded) {
            Some((user, password)) => self.known(user, password, request()),
            None => Look::Wrong,
        }
    }

    fn known(&self, user: Vec<u8>, password: Vec<u8>, request: KeyRequest) -> Look {
        let is_fine = |text: &[u8]| !text.is_empty() && text.len() <= LONGEST;
        if !is_fine(&user) || !is_fine(&password) {
            return Look::Wrong;
        }
        let (name, given) = (Digest::of(&user), Digest::of(&password));
        let proof = Digest::mixed(&[&self.asking.key, name.bytes(), given.bytes()]);
        let was_right = match self.asking.recall(&proof) {
            Some((at, principal)) if at.elapsed() < self.remember => return Look::Right(principal),
            Some((at, _)) => at.elapsed() < RECALL,
            None => false,
        };
        match (String::from_utf8(user), String::from_utf8(password)) {
            (Ok(user), Ok(password)) => Look::Open(Trial { user, password, proof, was_right, request }),
            _ => Look::Wrong,
        }
    }

    /// Asks, when it is its turn.
    ///
    /// Cancel safe: yes, because the answer is used only after the last await.
    pub(super) async fn judge(&self, trial: Trial) -> Verdict {
        let Trial { user, password, proof, request, .. } = trial;
        // Full: whoever comes now is told to come again.
        let Ok(_seat) = self.asking.in_all.try_acquire() else { return Verdict::TooMany };
        let (ask, asked) = (Arc::clone(&self.ask), request.clone());
        let asking = async {
            let _turn = self.asking.at_once.acquire().await.ok()?;
            caught(move || ask(user, password, asked)).await
        };
        match tokio::time::timeout(self.patience, asking).await {
            Ok(Some(Ok(principal))) => {
                let principal = request.complete(&principal);
                self.asking.note(&proof, Some(&principal));
                Verdict::Right(principal)
            }
            Ok(Some(Err(LoginError(Failed::Wrong)))) => {
                self.asking.note(&proof, None);
                Verdict::Wrong
            }
            Ok(Some(Err(LoginError(Failed::Forbidden(message))))) => {
                self.asking.note(&proof, None);
                Verdict::Forbidden(message)
            }
            Ok(Some(Err(LoginError(Failed::Kept(fault))))) => {
                tracing::error!(fault = ?fault, "logins could not be checked");
                Verdict::Unavailable
            }
            Ok(None) => {
                tracing::error!("whoever checks logins panicked");
                Verdict::Unavailable
            }
            Err(_) => {
                tracing::error!(patience = ?self.patience, "whoever checks logins did not answer in time");
                Verdict::Unavailable
            }
        }
    }
}

impl Asking {
    fn recall(&self, proof: &Digest) -> Option<(Instant, Principal)> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner).get(proof.bytes()).cloned()
    }

    /// Who was right, or is no longer. Only who is right gets in here, so nobody can push others out.
    fn note(&self, proof: &Digest, principal: Option<&Principal>) {
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(principal) = principal else {
            right.remove(proof.bytes());
            return;
        };
        if right.len() >= REMEMBERED {
            right.retain(|_, (at, _)| at.elapsed() < RECALL);
        }
        if right.len() >= REMEMBERED {
            right.clear();
        }
        right.insert(*proof.bytes(), (timer_now(), principal.clone()));
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins").field("remember", &self.remember).finish_non_exhaustive()
    }
}

/// Why somebody with a password does not come in.
///
/// Every error that is none of the two made here, by `?`, means that nobody could say: the client is told 503 and
/// nothing else, and the error stays in the log.
///
/// ```
/// # use toolgate::LoginError;
/// assert_eq!(LoginError::wrong().to_string(), "user or password is wrong");
/// assert_eq!(LoginError::forbidden("administrators only").to_string(), "administrators only");
/// let error = LoginError::from("x".parse::<u8>().unwrap_err());
/// assert_eq!(error.to_string(), "the login could not be checked");
/// assert_eq!(error.reason(), Some("invalid digit found in string"));
/// ```
pub struct LoginError(Failed);

enum Failed {
    Wrong,
    Forbidden(String),
    Kept(String),
}

impl LoginError {
    /// The user or the password is wrong; nobody is told which. Answered 401.
    #[must_use]
    pub fn wrong() -> LoginError {
        LoginError(Failed::Wrong)
    }

    /// User and password are right and may not come in, in these words. Answered 403.
    pub fn forbidden(message: impl Into<String>) -> LoginError {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(end);
        }
        LoginError(Failed::Forbidden(message))
    }

    /// Nobody could say, for this reason, which stays in the log. Answered 503.
    pub fn unavailable(reason: impl Into<String>) -> LoginError {
        LoginError(Failed::Kept(reason.into()))
    }

    /// Why nobody could say, for whoever runs the server. Clients are not told.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &self.0 {
            Failed::Kept(reason) => Some(reason),
            Failed::Wrong | Failed::Forbidden(_) => None,
        }
    }
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Failed::Wrong => f.write_str("user or password is wrong"),
            Failed::Forbidden(message) => f.write_str(message),
            Failed::Kept(_) => f.write_str("the login could not be checked"),
        }
    }
}

impl fmt::Debug for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Failed::Wrong => f.write_str("LoginError::Wrong"),
            Failed::Forbidden(words) | Failed::Kept(words) => {
                f.debug_tuple("LoginError").field(words).finish()
            }
        }
    }
}

// `LoginError` itself is no `std::error::Error`, or this would overlap with `From<T> for T`.
impl<E: std::error::Error> From<E> for LoginError {
    fn from(error: E) -> LoginError {
        LoginError(Failed::Kept(error.to_string()))
    }
}
