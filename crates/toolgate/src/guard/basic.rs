//! Users with passwords (RFC 7617).
//!
//! Names and passwords are compared as digests. A password that is kept as an Argon2 hash costs tens of
//! milliseconds and megabytes to check: at most two are checked at once, a few wait, more are turned away,
//! and what was right once is remembered. Somebody nobody knows costs as much as somebody who is wrong.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, Params, PasswordVerifier as _};
use http::HeaderValue;
use subtle::Choice;
use tokio::sync::Semaphore;

use super::authorization::{Authorization, user_and_password};
use super::secret::Digest;
use crate::request::Principal;
use crate::seal::fill;

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
    right: Mutex<HashSet<[u8; 32]>>,
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
        fill(&mut key);
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
        if name.contains(':') {
            return Err(format!("the user {name:?} has a colon in its name: Basic cannot send that"));
        }
        if name.is_empty() || password.is_empty() {
            return Ok(false);
        }
        let user = User {
            name: Digest::of(name.as_bytes()),
            secret: Secret::written(password).map_err(|fault| format!("the user {name:?}: {fault}"))?,
            principal: Principal::new(format!("user:{name}")),
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
        let computed = tokio::task::spawn_blocking(move || {
            let found = users.compute(&login);
            drop((turn, seat));
            found
        });
        computed.await.map_err(|_| Unchecked::Broken)
    }

    fn compute(&self, login: &Login) -> Option<Principal> {
        let is_right = Argon2::default().verify_password(&login.password, login.hash.as_ref()).is_ok();
        let (principal, proof) = login.who.as_ref().filter(|_| is_right)?;
        self.hashing.remember(proof);
        Some(principal.clone())
    }
}

impl Hashing {
    fn remembers(&self, proof: &Digest) -> bool {
        self.right.lock().unwrap_or_else(PoisonError::into_inner).contains(proof.bytes())
    }

    /// Only who is right gets here, so nobody can push others out.
    fn remember(&self, proof: &Digest) {
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        if right.len() >= REMEMBERED {
            right.clear();
        }
        right.insert(*proof.bytes());
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

#[cfg(test)]
mod tests {
    use argon2::PasswordHasher as _;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// As weak as it may be, so that tests are quick.
    fn hash(password: &str) -> String {
        let argon2 = Argon2::from(Params::new(8, 1, 1, None).unwrap());
        argon2.hash_password_with_salt(password.as_bytes(), b"a salt for tests").unwrap().to_string()
    }

    fn header(user: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
    }

    fn users(list: &[(&str, &str)]) -> Users {
        let mut users = Users::default();
        for (name, password) in list {
            assert_eq!(users.add(name, password), Ok(true));
        }
        users
    }

    fn is_open(users: &Users, header: &str) -> bool {
        matches!(users.look(Authorization::read(header.as_bytes())), Proof::Open(_))
    }

    #[test]
    fn the_right_password_of_the_right_user_is_right() {
        let users = users(&[("u", "p:q:r"), ("é", "x"), ("hashed", &hash("secret"))]);
        assert!(users.verify("Basic dTpwOnE6cg=="));
        assert!(users.verify("bAsIc dTpwOnE6cg=="));
        assert!(users.verify(&header("é", "x")));
        assert!(users.verify(&header("hashed", "secret")));
        for (name, password) in [
            ("u", "p"),
            ("u", "p:q:r "),
            ("u", "x"),
            ("é", "p:q:r"),
            ("e\u{301}", "x"),
            ("hashed", "Secret"),
            ("hashed", ""),
            ("hashed", &hash("secret")),
            ("nobody", "secret"),
            ("", ""),
            ("U", "p:q:r"),
        ] {
            assert!(!users.verify(&header(name, password)), "{name}:{password}");
        }
        for broken in [
            "",
            "Basic",
            "Basic ",
            "Basic !!!",
            "Basic dTpwOnE6cg",
            "Basic  dTpwOnE6cg==",
            "Basic dTpwOnE6cg== ",
            "dTpwOnE6cg==",
            "Bearer dTpwOnE6cg==",
            "Basic dQ==",
            "Basic u:p:q:r",
            "Digest dTpwOnE6cg==",
        ] {
            assert!(!users.verify(broken), "{broken:?}");
        }
    }

    #[test]
    fn without_name_or_password_nothing_is_asked_for() {
        let mut users = Users::default();
        assert_eq!(users.add("", "p"), Ok(false));
        assert_eq!(users.add("u", ""), Ok(false));
        assert!(users.is_empty());
        assert!(users.add("a:b", "p").is_err());
        for foreign in
            ["$2b$12$abc", "$argon2id$", "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ", "$argon2x$v=19$a$b"]
        {
            assert!(users.add("u", foreign).is_err(), "{foreign}");
        }
        assert_eq!(users.add("u", "old"), Ok(true));
        assert_eq!(users.add("u", "$new"), Ok(true));
        assert!(users.verify(&header("u", "$new")) && !users.verify(&header("u", "old")));
        users.clear();
        assert!(users.is_empty() && !users.verify(&header("u", "$new")));
    }

    #[test]
    fn who_is_unknown_costs_as_much_as_who_is_wrong() {
        let some = users(&[("plain", "p"), ("hashed", &hash("secret"))]);
        for (name, password) in [("hashed", "wrong"), ("plain", "wrong"), ("nobody", "wrong")] {
            assert!(is_open(&some, &header(name, password)), "{name} must cost a hash");
        }
        assert!(!is_open(&some, &header("plain", "p")));
        let plain = users(&[("plain", "p")]);
        assert!(!is_open(&plain, &header("nobody", "p")), "there is no hash to compute");
    }

    #[test]
    fn what_was_right_once_is_remembered_until_the_password_changes() {
        let mut users = users(&[("hashed", &hash("secret"))]);
        let right = header("hashed", "secret");
        assert!(is_open(&users, &right));
        assert!(users.verify(&right));
        assert!(!is_open(&users, &right), "remembered");
        assert!(!is_open(&users.clone(), &right), "by copies too");
        assert!(is_open(&users, &header("hashed", "wrong")));
        users.add("hashed", &hash("other")).unwrap();
        assert!(!users.verify(&right));
        for n in 0..=REMEMBERED {
            users.hashing.remember(&Digest::of(&n.to_le_bytes()));
        }
        assert!(users.hashing.right.lock().unwrap().len() <= REMEMBERED);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn more_than_a_few_logins_at_once_are_turned_away() {
        let users = users(&[("hashed", &hash("secret"))]);
        let login =
            |password: &str| match users.look(Authorization::read(header("hashed", password).as_bytes())) {
                Proof::Open(login) => login,
                _ => panic!("a hash must say"),
            };
        let turns = Arc::clone(&users.hashing.at_once).try_acquire_many_owned(2).unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..IN_ALL + 5 {
            let (users, login) = (users.clone(), login("wrong"));
            waiting.spawn(async move { users.prove(login).await });
        }
        for _ in 0..5 {
            let outcome = waiting.join_next().await.unwrap().unwrap();
            assert!(matches!(outcome, Err(Unchecked::TooMany)), "only those without a place end now");
        }
        drop(turns);
        while let Some(ended) = waiting.join_next().await {
            assert!(matches!(ended.unwrap(), Ok(None)), "whoever waited gets an answer");
        }
        assert_eq!(users.hashing.in_all.available_permits(), IN_ALL, "every place is free again");
        assert!(
            matches!(users.prove(login("secret")).await, Ok(Some(who)) if who.id() == Some("user:hashed"))
        );
    }

    #[test]
    fn a_realm_stays_within_its_quotes() {
        assert_eq!(challenge("my server"), "Basic realm=\"my server\", charset=\"UTF-8\"");
        assert_eq!(challenge("a\"b\\c\r\né"), "Basic realm=\"a\\\"b\\\\c\", charset=\"UTF-8\"");
    }

    #[test]
    fn no_secret_is_shown() {
        let users = users(&[("u", "hunter2"), ("v", &hash("hunter3"))]);
        assert_eq!(format!("{users:?}"), "Users(2)");
    }
}
