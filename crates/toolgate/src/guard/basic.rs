//! Users with passwords (RFC 7617).
//!
//! Names and passwords are compared as digests. A password that is kept as an Argon2 hash costs tens of
//! milliseconds and megabytes to check: at most two are checked at once, a few wait, more are turned away,
//! and what was right once is remembered. Somebody nobody knows costs as much as somebody who is wrong.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, Params, PasswordVerifier as _};
use http::HeaderValue;
use subtle::Choice;
use tokio::sync::Semaphore;

use super::authorization::{Authorization, decode_basic};
use super::digest::{Digest, VerifiedLogins};
use crate::request::Principal;
use crate::seal::fill_random;
use crate::util::clock::timer_now;
use crate::util::spawn;

/// Hashes that are computed at once.
const MAX_CONCURRENT_HASHES: usize = 2;
/// Those, and the requests that wait for their turn. One more is told to come again.
const MAX_PENDING_HASHES: usize = 10;
/// Proofs that are remembered. When there are so many, they are made again.
const MAX_CACHED_PASSWORDS: usize = 1024;

/// Hashes of other kinds, which must not be taken for passwords.
const UNSUPPORTED_HASH_PREFIXES: [&str; 9] =
    ["$1$", "$2a$", "$2b$", "$2x$", "$2y$", "$5$", "$6$", "$scrypt$", "$pbkdf2"];

/// Who may come in with a password.
#[derive(Clone)]
pub(crate) struct Users {
    users: Vec<User>,
    hash_state: Arc<HashState>,
}

#[derive(Clone)]
struct User {
    name: Digest,
    secret: Secret,
    principal: Principal,
}

#[derive(Clone)]
enum Secret {
    Plain(Digest),
    /// A hash, and the digest of its text.
    Hashed(Arc<PasswordHash>, Digest),
}

/// What all copies of the users share.
struct HashState {
    hash_permits: Arc<Semaphore>,
    queue_permits: Arc<Semaphore>,
    /// Makes what is remembered worthless elsewhere.
    salt: [u8; 32],
    verified: Mutex<VerifiedLogins>,
}

/// What a header proves.
pub(super) enum PasswordLookup {
    /// There are no credentials of this kind.
    Missing,
    Invalid,
    Valid(Principal),
    /// A hash must say.
    Unverified(HashedLogin),
}

/// A user and a password that are still to be checked against a hash.
pub(super) struct HashedLogin {
    hash: Arc<PasswordHash>,
    password: Vec<u8>,
    /// Who it is if the password is right, and how that is remembered. `None` for those whose password
    /// cannot be right: the hash is computed all the same.
    on_success: Option<(Principal, Digest)>,
}

/// Why a login was not checked.
pub(super) enum PasswordCheckError {
    TooMany,
    Failed,
}

impl Default for Users {
    fn default() -> Users {
        let mut key = [0; 32];
        fill_random(&mut key);
        let hashing = HashState {
            hash_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_HASHES)),
            queue_permits: Arc::new(Semaphore::new(MAX_PENDING_HASHES)),
            salt: key,
            verified: Mutex::default(),
        };
        Users { users: Vec::new(), hash_state: Arc::new(hashing) }
    }
}

impl Users {
    /// Lets this user in, with a password or the `$argon2id$…` text of one; a user who is known already has a
    /// new password then. Without a name or a password nothing happens: `false`.
    ///
    /// # Errors
    /// If the name cannot be sent, or the hash is not one.
    pub(crate) fn add(&mut self, name: &str, password: &str) -> Result<bool, String> {
        self.add_as(name, password, Principal::new(format!("user:{name}")))
    }

    /// The same, with everything that is known of the user.
    ///
    /// # Errors
    /// If the name cannot be sent, or the hash is not one.
    pub(crate) fn add_as(
        &mut self,
        name: &str,
        password: &str,
        principal: Principal,
    ) -> Result<bool, String> {
        if name.contains(':') {
            return Err(format!("the user {name:?} has a colon in its name: Basic cannot send that"));
        }
        if name.is_empty() || password.is_empty() {
            return Ok(false);
        }
        let user = User {
            name: Digest::of(name.as_bytes()),
            secret: Secret::parse(password).map_err(|fault| format!("the user {name:?}: {fault}"))?,
            principal,
        };
        self.users.retain(|known| !bool::from(known.name.ct_eq(&user.name)));
        self.users.push(user);
        Ok(true)
    }

    /// Nobody may come in with a password any more, and none is asked for.
    pub(crate) fn clear(&mut self) {
        self.users.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether the value of an `Authorization` header is right. Hashes are computed on the spot, which takes
    /// its time: for whoever asks by hand.
    pub(crate) fn verify(&self, header: &str) -> bool {
        match self.lookup(Authorization::parse(header.as_bytes())) {
            PasswordLookup::Valid(_) => true,
            PasswordLookup::Unverified(login) => self.verify_hash_blocking(&login).is_some(),
            PasswordLookup::Missing | PasswordLookup::Invalid => false,
        }
    }

    /// What can be said without computing a hash.
    pub(super) fn lookup(&self, authorization: Authorization<'_>) -> PasswordLookup {
        let encoded = match authorization {
            Authorization::Missing => return PasswordLookup::Missing,
            Authorization::Basic(encoded) => encoded,
            Authorization::Repeated | Authorization::Malformed | Authorization::Bearer(_) => {
                return PasswordLookup::Invalid;
            }
        };
        let Some((name, password)) = decode_basic(encoded) else {
            return PasswordLookup::Invalid;
        };
        let (name, given) = (Digest::of(&name), Digest::of(&password));
        let (mut right, mut hashed, mut any_hash) = (None, None, None);
        // Every user is compared, however early one is found.
        for user in &self.users {
            let is_user: Choice = user.name.ct_eq(&name);
            match &user.secret {
                Secret::Plain(known) => {
                    if bool::from(is_user & known.ct_eq(&given)) {
                        right = Some(&user.principal);
                    }
                }
                Secret::Hashed(hash, text) => {
                    any_hash = any_hash.or(Some(hash));
                    if bool::from(is_user) {
                        hashed = Some((user, hash, text));
                    }
                }
            }
        }
        match (right, hashed, any_hash) {
            (Some(principal), _, _) => PasswordLookup::Valid(principal.clone()),
            (None, Some((user, hash, text)), _) => {
                let proof = Digest::combine(&[
                    &self.hash_state.salt,
                    name.as_bytes(),
                    given.as_bytes(),
                    text.as_bytes(),
                ]);
                if self.hash_state.is_cached(&proof) {
                    return PasswordLookup::Valid(user.principal.clone());
                }
                let who = Some((user.principal.clone(), proof));
                PasswordLookup::Unverified(HashedLogin { hash: Arc::clone(hash), password, on_success: who })
            }
            (None, None, Some(hash)) => {
                PasswordLookup::Unverified(HashedLogin { hash: Arc::clone(hash), password, on_success: None })
            }
            (None, None, None) => PasswordLookup::Invalid,
        }
    }

    /// Computes the hash of a login, when it is its turn. `None` if the password is wrong.
    ///
    /// Cancel safe: yes, because a computation that nobody waits for keeps its place until it ends.
    pub(super) async fn verify_hash(
        &self,
        login: HashedLogin,
    ) -> Result<Option<Principal>, PasswordCheckError> {
        // Full: whoever comes now is told to come again.
        let seat = Arc::clone(&self.hash_state.queue_permits)
            .try_acquire_owned()
            .map_err(|_| PasswordCheckError::TooMany)?;
        let turn = Arc::clone(&self.hash_state.hash_permits)
            .acquire_owned()
            .await
            .map_err(|_| PasswordCheckError::Failed)?;
        let users = self.clone();
        let computed = spawn::spawn_blocking(move || {
            let found = users.verify_hash_blocking(&login);
            drop((turn, seat));
            found
        });
        computed.await.ok_or(PasswordCheckError::Failed)
    }

    fn verify_hash_blocking(&self, login: &HashedLogin) -> Option<Principal> {
        let is_right = Argon2::default().verify_password(&login.password, login.hash.as_ref()).is_ok();
        let (principal, proof) = login.on_success.as_ref().filter(|_| is_right)?;
        self.hash_state.cache(proof, principal);
        Some(principal.clone())
    }
}

impl HashState {
    fn is_cached(&self, proof: &Digest) -> bool {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).contains_key(proof.as_bytes())
    }

    /// Only who is right gets here, so nobody can push others out.
    fn cache(&self, proof: &Digest, principal: &Principal) {
        let mut right = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if right.len() >= MAX_CACHED_PASSWORDS {
            right.clear();
        }
        right.insert(*proof.as_bytes(), (timer_now(), principal.clone()));
    }
}

impl Secret {
    fn parse(text: &str) -> Result<Secret, String> {
        if UNSUPPORTED_HASH_PREFIXES.iter().any(|start| text.starts_with(start)) {
            return Err("of hashes only `$argon2id$…` is understood".to_owned());
        }
        if !text.starts_with("$argon2") {
            return Ok(Secret::Plain(Digest::of(text.as_bytes())));
        }
        let hash = PasswordHash::new(text).map_err(|fault| format!("the hash is malformed: {fault}"))?;
        let is_whole = hash.salt.is_some() && hash.hash.is_some() && Params::try_from(&hash).is_ok();
        let is_known = argon2::Algorithm::try_from(hash.algorithm.as_str()).is_ok();
        if !is_whole || !is_known {
            return Err("the hash is not a whole `$argon2id$v=…$m=…,t=…,p=…$salt$hash`".to_owned());
        }
        Ok(Secret::Hashed(Arc::new(hash), Digest::of(text.as_bytes())))
    }
}

/// What a server asks for: `Basic` with its name as realm.
pub(super) fn challenge(realm: &str) -> HeaderValue {
    let mut value = String::from("Basic realm=\"");
    for letter in realm.chars().filter(|letter| letter.is_ascii_graphic() || *letter == ' ') {
        if matches!(letter, '"' | '\\') {
            value.push('\\');
        }
        value.push(letter);
    }
    value.push_str("\", charset=\"UTF-8\"");
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("Basic"))
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Users").field(&self.users.len()).finish()
    }
}
