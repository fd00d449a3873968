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

use super::authorization::{Authorization, user_and_password};
use super::secret::{Digest, Proven};
use crate::clock::timer_now;
use crate::request::Principal;
use crate::seal::fill_random;
use crate::tracker;

/// Hashes that are computed at once.
const AT_ONCE: usize = 2;
/// Those, and the requests that wait for their turn. One more is told to come again.
const IN_ALL: usize = 10;
/// Proofs that are remembered. When there are so many, they are made again.
const REMEMBERED: usize = 1024;

/// Hashes of other kinds, which must not be taken for passwords.
const FOREIGN: [&str; 9] = ["$1$", "$2a$", "$2b$", "$2x$", "$2y$", "$5$", "$6$", "$scrypt$", "$pbkdf2"];

/// Who may come in with a password.
#[derive(Clone)]
pub(crate) struct Users {
    users: Vec<User>,
    hashing: Arc<Hashing>,
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
struct Hashing {
    at_once: Arc<Semaphore>,
    in_all: Arc<Semaphore>,
    /// Makes what is remembered worthless elsewhere.
    key: [u8; 32],
    right: Mutex<Proven>,
}

/// What a header proves.
pub(super) enum Proof {
    /// There are no credentials of this kind.
    Missing,
    Wrong,
    Right(Principal),
    /// A hash must say.
    Open(Login),
}

/// A user and a password that are still to be checked against a hash.
pub(super) struct Login {
    hash: Arc<PasswordHash>,
    password: Vec<u8>,
    /// Who it is if the password is right, and how that is remembered. `None` for those whose password
    /// cannot be right: the hash is computed all the same.
    who: Option<(Principal, Digest)>,
}

/// Why a login was not checked.
pub(super) enum Unchecked {
    TooMany,
    Broken,
}

impl Default for Users {
    fn default() -> Users {
        let mut key = [0; 32];
        fill_random(&mut key);
        let hashing = Hashing {
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            in_all: Arc::new(Semaphore::new(IN_ALL)),
            key,
            right: Mutex::default(),
        };
        Users { users: Vec::new(), hashing: Arc::new(hashing) }
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
            secret: Secret::written(password).map_err(|fault| format!("the user {name:?}: {fault}"))?,
            principal,
        };
        self.users.retain(|known| !bool::from(known.name.is(&user.name)));
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
        match self.look(Authorization::read(header.as_bytes())) {
            Proof::Right(_) => true,
            Proof::Open(login) => self.compute(&login).is_some(),
            Proof::Missing | Proof::Wrong => false,
        }
    }

    /// What can be said without computing a hash.
    pub(super) fn look(&self, authorization: Authorization<'_>) -> Proof {
        let encoded = match authorization {
            Authorization::Missing => return Proof::Missing,
            Authorization::Basic(encoded) => encoded,
            Authorization::Twice | Authorization::Broken | Authorization::Bearer(_) => return Proof::Wrong,
        };
        let Some((name, password)) = user_and_password(encoded) else {
            return Proof::Wrong;
        };
        let (name, given) = (Digest::of(&name), Digest::of(&password));
        let (mut right, mut hashed, mut any_hash) = (None, None, None);
        // Every user is compared, however early one is found.
        for user in &self.users {
            let is_user: Choice = user.name.is(&name);
            match &user.secret {
                Secret::Plain(known) => {
                    if bool::from(is_user & known.is(&given)) {
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
            (Some(principal), _, _) => Proof::Right(principal.clone()),
            (None, Some((user, hash, text)), _) => {
                let proof = Digest::mixed(&[&self.hashing.key, name.bytes(), given.bytes(), text.bytes()]);
                if self.hashing.remembers(&proof) {
                    return Proof::Right(user.principal.clone());
                }
                let who = Some((user.principal.clone(), proof));
                Proof::Open(Login { hash: Arc::clone(hash), password, who })
            }
            (None, None, Some(hash)) => Proof::Open(Login { hash: Arc::clone(hash), password, who: None }),
            (None, None, None) => Proof::Wrong,
        }
    }

    /// Computes the hash of a login, when it is its turn. `None` if the password is wrong.
    ///
    /// Cancel safe: yes, because a computation that nobody waits for keeps its place until it ends.
    pub(super) async fn prove(&self, login: Login) -> Result<Option<Principal>, Unchecked> {
        // Full: whoever comes now is told to come again.
        let seat = Arc::clone(&self.hashing.in_all).try_acquire_owned().map_err(|_| Unchecked::TooMany)?;
        let turn = Arc::clone(&self.hashing.at_once).acquire_owned().await.map_err(|_| Unchecked::Broken)?;
        let users = self.clone();
        let computed = tracker::spawn_blocking(move || {
            let found = users.compute(&login);
            drop((turn, seat));
            found
        });
        computed.await.ok_or(Unchecked::Broken)
    }

    fn compute(&self, login: &Login) -> Option<Principal> {
        let is_right = Argon2::default().verify_password(&login.password, login.hash.as_ref()).is_ok();
        let (principal, proof) = login.who.as_ref().filter(|_| is_right)?;
        self.hashing.remember(proof, principal);
        Some(principal.clone())
    }
}

impl Hashing {
    fn remembers(&self, proof: &Digest) -> bool {
        self.right.lock().unwrap_or_else(PoisonError::into_inner).contains_key(proof.bytes())
    }

    /// Only who is right gets here, so nobody can push others out.
    fn remember(&self, proof: &Digest, principal: &Principal) {
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        if right.len() >= REMEMBERED {
            right.clear();
        }
        right.insert(*proof.bytes(), (timer_now(), principal.clone()));
    }
}

impl Secret {
    fn written(text: &str) -> Result<Secret, String> {
        if FOREIGN.iter().any(|start| text.starts_with(start)) {
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
