//! Names and passwords: valid, wrong and hashed.

use argon2::{Argon2, Params, PasswordHasher as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

/// As weak as possible, so that tests are fast.
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

fn needs_hash(users: &Users, header: &str) -> bool {
    matches!(users.lookup(Authorization::parse(header.as_bytes())), CredentialLookup::Unverified(_))
}

#[test]
fn only_the_password_of_the_user_is_valid() {
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
fn without_name_or_password_no_credentials_are_required() {
    let mut users = Users::default();
    assert_eq!(users.add("", "p"), Ok(false));
    assert_eq!(users.add("u", ""), Ok(false));
    assert!(users.is_empty());
    assert!(users.add("a:b", "p").is_err());
    for foreign in ["$2b$12$abc", "$argon2id$", "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ", "$argon2x$v=19$a$b"]
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
fn an_unknown_user_costs_as_much_as_a_wrong_password() {
    let some = users(&[("plain", "p"), ("hashed", &hash("secret"))]);
    for (name, password) in [("hashed", "wrong"), ("plain", "wrong"), ("nobody", "wrong")] {
        assert!(needs_hash(&some, &header(name, password)), "{name} must cost a hash");
    }
    assert!(!needs_hash(&some, &header("plain", "p")));
    let plain = users(&[("plain", "p")]);
    assert!(!needs_hash(&plain, &header("nobody", "p")), "there is no hash to compute");
}

#[test]
fn a_valid_login_is_cached_until_the_password_changes() {
    let mut users = users(&[("hashed", &hash("secret"))]);
    let right = header("hashed", "secret");
    assert!(needs_hash(&users, &right));
    assert!(users.verify(&right));
    assert!(!needs_hash(&users, &right), "cached");
    assert!(!needs_hash(&users.clone(), &right), "in copies too");
    assert!(needs_hash(&users, &header("hashed", "wrong")));
    users.add("hashed", &hash("other")).unwrap();
    assert!(!users.verify(&right));
    for n in 0..=MAX_CACHED_PASSWORDS {
        users.cache.insert(&Digest::of(&n.to_le_bytes()), &Principal::anonymous());
    }
    assert!(users.cache.len() <= MAX_CACHED_PASSWORDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_a_few_logins_at_once_are_rejected() {
    let users = users(&[("hashed", &hash("secret"))]);
    let login =
        |password: &str| match users.lookup(Authorization::parse(header("hashed", password).as_bytes())) {
            CredentialLookup::Unverified(login) => login,
            _ => panic!("a hash must be computed"),
        };
    let (check_permits, queue_permits) = users.cache.permits();
    let taken = Arc::clone(check_permits).try_acquire_many_owned(2).unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..MAX_PENDING_HASHES + 5 {
        let (users, login) = (users.clone(), login("wrong"));
        waiting.spawn(async move { users.verify_hash(login).await });
    }
    for _ in 0..5 {
        let outcome = waiting.join_next().await.unwrap().unwrap();
        assert!(
            matches!(outcome, Err(PasswordCheckError::TooMany)),
            "only those without a place in the queue end now"
        );
    }
    drop(taken);
    while let Some(ended) = waiting.join_next().await {
        assert!(matches!(ended.unwrap(), Ok(None)), "the others are checked");
    }
    assert_eq!(queue_permits.available_permits(), MAX_PENDING_HASHES, "every permit is given back");
    assert!(
        matches!(users.verify_hash(login("secret")).await, Ok(Some(who)) if who.id() == Some("user:hashed"))
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
