//! HTTP Basic authentication (RFC 7617) of users whose passwords are configured here.
//!
//! Names and passwords are compared as digests. A password that is stored as an Argon2 hash costs tens of milliseconds
//! and megabytes to check: at most two are checked at once, a few wait, more are rejected, and a valid login is cached.
//! An unknown user costs as much as a wrong password.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use subtle::Choice;

use super::authorization::{Authorization, decode_basic};
use super::digest::Digest;
use super::login_cache::{CredentialLookup, LoginCache};
use super::password_hash::PasswordHash;
use crate::request::Principal;
use crate::util::spawn;

/// Hashes that are computed at once.
const MAX_CONCURRENT_HASHES: usize = 2;
/// Hashes that are computed or wait. A further one is rejected with a retry delay.
const MAX_PENDING_HASHES: usize = 10;
/// Cached logins. When the cache is full it is cleared, and the hashes are computed again.
const MAX_CACHED_PASSWORDS: usize = 1024;

/// Prefixes of other kinds of hashes, which must not be mistaken for plain passwords.
const UNSUPPORTED_HASH_PREFIXES: [&str; 9] =
    ["$1$", "$2a$", "$2b$", "$2x$", "$2y$", "$5$", "$6$", "$scrypt$", "$pbkdf2"];

/// The users that may authenticate with a password.
#[derive(Clone)]
pub(crate) struct Users {
    users: Vec<User>,
    cache: Arc<LoginCache>,
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
    /// An Argon2 hash, and the digest of its text.
    Hashed(Arc<PasswordHash>, Digest),
}

/// A user and a password that still have to be checked against a hash.
pub(super) struct HashedLogin {
    hash: Arc<PasswordHash>,
    password: Vec<u8>,
    /// The principal if the password is valid, and the key to cache it by. `None` for an unknown user: the hash is
    /// computed all the same, so that the time it takes does not tell which users exist.
    on_success: Option<(Principal, Digest)>,
}

/// Why a login could not be checked.
pub(super) enum PasswordCheckError {
    TooMany,
    Failed,
}

impl Default for Users {
    fn default() -> Users {
        let cache = LoginCache::new(MAX_CONCURRENT_HASHES, MAX_PENDING_HASHES, MAX_CACHED_PASSWORDS);
        Users { users: Vec::new(), cache: Arc::new(cache) }
    }
}

impl Users {
    /// Adds a user with a password, or with the `$argon2id$…` text of one, or replaces the password of a known user.
    /// Returns `false`, and changes nothing, if the name or the password is empty.
    ///
    /// # Errors
    /// If the name cannot be sent in a Basic header, or the hash is malformed.
    pub(crate) fn add(&mut self, name: &str, password: &str) -> Result<bool, String> {
        self.add_as(name, password, Principal::new(format!("user:{name}")))
    }

    /// Like [`Users::add`], with the principal that the user is authenticated as.
    ///
    /// # Errors
    /// If the name cannot be sent in a Basic header, or the hash is malformed.
    pub(crate) fn add_as(
        &mut self,
        name: &str,
        password: &str,
        principal: Principal,
    ) -> Result<bool, String> {
        if name.contains(':') {
            return Err(format!(
                "the user {name:?} contains a colon, which Basic authentication cannot send"
            ));
        }
        if name.is_empty() || password.is_empty() {
            return Ok(false);
        }
        let user = User {
            name: Digest::of(name.as_bytes()),
            secret: Secret::parse(password).map_err(|error| format!("the user {name:?}: {error}"))?,
            principal,
        };
        self.users.retain(|known| !bool::from(known.name.ct_eq(&user.name)));
        self.users.push(user);
        Ok(true)
    }

    /// Removes all users. Passwords are then not required.
    pub(crate) fn clear(&mut self) {
        self.users.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether the value of an `Authorization` header is valid. Computes a hash on the calling thread, which takes tens of
    /// milliseconds.
    pub(crate) fn verify(&self, header: &str) -> bool {
        match self.lookup(Authorization::parse(header.as_bytes())) {
            CredentialLookup::Valid(_) => true,
            CredentialLookup::Unverified(login) => self.verify_hash_blocking(&login).is_some(),
            CredentialLookup::Missing | CredentialLookup::Invalid => false,
        }
    }

    /// Looks up credentials, as far as that is possible without computing a hash.
    pub(super) fn lookup(&self, authorization: Authorization<'_>) -> CredentialLookup<HashedLogin> {
        let encoded = match authorization {
            Authorization::Missing => return CredentialLookup::Missing,
            Authorization::Basic(encoded) => encoded,
            Authorization::Repeated | Authorization::Malformed | Authorization::Bearer(_) => {
                return CredentialLookup::Invalid;
            }
        };
        let Some((name, password)) = decode_basic(encoded) else {
            return CredentialLookup::Invalid;
        };
        let (name, password_digest) = (Digest::of(&name), Digest::of(&password));
        let (mut valid, mut hashed, mut any_hash) = (None, None, None);
        // Every user is compared, even after a match, so that the time does not depend on the user.
        for user in &self.users {
            let is_user: Choice = user.name.ct_eq(&name);
            match &user.secret {
                Secret::Plain(expected) => {
                    if bool::from(is_user & expected.ct_eq(&password_digest)) {
                        valid = Some(&user.principal);
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
        match (valid, hashed, any_hash) {
            (Some(principal), _, _) => CredentialLookup::Valid(principal.clone()),
            (None, Some((user, hash, text)), _) => {
                let key = self.cache.key(&[&name, &password_digest, text]);
                if self.cache.get(&key).is_some() {
                    return CredentialLookup::Valid(user.principal.clone());
                }
                let on_success = Some((user.principal.clone(), key));
                CredentialLookup::Unverified(HashedLogin { hash: Arc::clone(hash), password, on_success })
            }
            (None, None, Some(hash)) => CredentialLookup::Unverified(HashedLogin {
                hash: Arc::clone(hash),
                password,
                on_success: None,
            }),
            (None, None, None) => CredentialLookup::Invalid,
        }
    }

    /// Computes the hash of a login, once a permit is free. Returns `None` if the password is wrong.
    ///
    /// Cancel safe: yes, because an abandoned computation holds its permit until it ends.
    pub(super) async fn verify_hash(
        &self,
        login: HashedLogin,
    ) -> Result<Option<Principal>, PasswordCheckError> {
        let queued = self.cache.enqueue().ok_or(PasswordCheckError::TooMany)?;
        let permit = self.cache.permit(queued).await.ok_or(PasswordCheckError::Failed)?;
        let users = self.clone();
        let verification = spawn::spawn_blocking(move || {
            let principal = users.verify_hash_blocking(&login);
            drop(permit);
            principal
        });
        verification.await.ok_or(PasswordCheckError::Failed)
    }

    fn verify_hash_blocking(&self, login: &HashedLogin) -> Option<Principal> {
        let is_valid = login.hash.is_match(&login.password);
        let (principal, key) = login.on_success.as_ref().filter(|_| is_valid)?;
        self.cache.insert(key, principal);
        Some(principal.clone())
    }
}

impl Secret {
    fn parse(text: &str) -> Result<Secret, String> {
        if UNSUPPORTED_HASH_PREFIXES.iter().any(|start| text.starts_with(start)) {
            return Err("only `$argon2id$…` hashes are supported".to_owned());
        }
        if !text.starts_with("$argon2") {
            return Ok(Secret::Plain(Digest::of(text.as_bytes())));
        }
        let hash = PasswordHash::parse(text)?;
        Ok(Secret::Hashed(Arc::new(hash), Digest::of(text.as_bytes())))
    }
}

/// The challenge of a server: `Basic`, with its name as the realm.
pub(super) fn challenge(realm: &str) -> HeaderValue {
    let mut value = String::from("Basic realm=\"");
    for character in realm.chars().filter(|character| character.is_ascii_graphic() || *character == ' ') {
        if matches!(character, '"' | '\\') {
            value.push('\\');
        }
        value.push(character);
    }
    value.push_str("\", charset=\"UTF-8\"");
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("Basic"))
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Users").field(&self.users.len()).finish()
    }
}
