//! Logins that a provider checks, and the cache in front of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::util::clock::timer_now;

/// Knows ada, and bob who is not allowed; counts its calls.
fn test_provider(calls: &Arc<AtomicUsize>) -> BasicAuthProvider {
    let calls = Arc::clone(calls);
    BasicAuthProvider::provider(move |user: String, password: String, request: KeyRequest| {
        calls.fetch_add(1, Ordering::Relaxed);
        async move {
            request.set("server", request.server_name());
            match (user.as_str(), password.as_str()) {
                ("ada", "tiger") => Ok(Principal::new("user:ada").with_attribute("id", 7)),
                ("bob", "lion") => Err(LoginError::forbidden("administrators only")),
                ("eve", _) => Err("x".parse::<u8>().unwrap_err().into()),
                ("slow", _) => std::future::pending().await,
                ("boom", _) => panic!("{}", password.len()),
                _ => Err(LoginError::wrong()),
            }
        }
    })
}

async fn check_text(logins: &BasicAuthProvider, user: &str, password: &str) -> String {
    let header = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    match logins.lookup(Authorization::parse(header.as_bytes()), || KeyRequest::new("s")) {
        CredentialLookup::Missing => "missing".into(),
        CredentialLookup::Invalid => "rejected without a check".into(),
        CredentialLookup::Valid(who) => format!("cached {}", who.id().unwrap_or("nobody")),
        CredentialLookup::Unverified(login) => match logins.check_login(login).await {
            LoginCheck::Valid(who) => {
                format!("valid {} {:?}", who.id().unwrap_or("nobody"), who.attribute("id"))
            }
            other => format!("{other:?}"),
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_returns_the_principal_or_an_error() {
    let calls = Arc::default();
    let logins = test_provider(&calls);
    assert_eq!(check_text(&logins, "ada", "tiger").await, "valid user:ada Some(Number(7))");
    assert_eq!(check_text(&logins, "ada", "tigers").await, "Invalid");
    assert_eq!(check_text(&logins, "bob", "lion").await, "Forbidden(\"administrators only\")");
    assert_eq!(check_text(&logins, "eve", "x").await, "Unavailable");
    assert_eq!(check_text(&logins, "boom", "x").await, "Unavailable");
    let started = timer_now();
    assert_eq!(check_text(&logins, "slow", "x").await, "Unavailable");
    assert!(started.elapsed() <= PROVIDER_TIMEOUT + Duration::from_millis(50));
    for (user, password) in [("", "x"), ("x", ""), ("x", &*"y".repeat(2000))] {
        assert_eq!(check_text(&logins, user, password).await, "rejected without a check");
    }
    assert!(matches!(
        logins.lookup(Authorization::Missing, || KeyRequest::new("s")),
        CredentialLookup::Missing
    ));
    assert!(matches!(
        logins.lookup(Authorization::Bearer(b"x"), || KeyRequest::new("s")),
        CredentialLookup::Invalid
    ));
}

#[tokio::test(start_paused = true)]
async fn a_valid_login_is_cached_for_a_while() {
    let calls: Arc<AtomicUsize> = Arc::default();
    let logins = test_provider(&calls).cache_ttl(Duration::from_secs(30));
    assert!(logins.verify("ada", "tiger", &KeyRequest::new("s")).await);
    assert_eq!(check_text(&logins.clone(), "ada", "tiger").await, "cached user:ada", "in all copies");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(check_text(&logins, "ada", "tige").await, "Invalid", "and only that password");
    tokio::time::advance(Duration::from_secs(31)).await;
    let CredentialLookup::Unverified(login) =
        logins.lookup_credentials(b"ada".into(), b"tiger".into(), KeyRequest::new("s"))
    else {
        panic!("it has to be checked again");
    };
    assert!(login.was_valid, "but it does not count as a guess");
    tokio::time::advance(MAX_CACHE_TTL).await;
    let CredentialLookup::Unverified(login) =
        logins.lookup_credentials(b"ada".into(), b"tiger".into(), KeyRequest::new("s"))
    else {
        panic!("it has to be checked again");
    };
    assert!(!login.was_valid);
    // A login that is not valid is checked each time.
    let before = calls.load(Ordering::Relaxed);
    for _ in 0..2 {
        check_text(&logins, "bob", "lion").await;
    }
    assert_eq!(calls.load(Ordering::Relaxed) - before, 2);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_concurrent_checks_is_limited() {
    let logins = test_provider(&Arc::default());
    let waiting: Vec<_> = (0..MAX_PENDING_CHECKS)
        .map(|_| {
            let logins = logins.clone();
            tokio::spawn(async move { check_text(&logins, "slow", "x").await })
        })
        .collect();
    for _ in 0..MAX_PENDING_CHECKS {
        tokio::task::yield_now().await;
    }
    assert_eq!(check_text(&logins, "ada", "tiger").await, "TooMany");
    for one in waiting {
        assert_eq!(one.await.unwrap(), "Unavailable");
    }
    assert_eq!(check_text(&logins, "ada", "tiger").await, "valid user:ada Some(Number(7))");
}

#[tokio::test]
async fn attributes_of_the_request_become_attributes_of_the_caller() {
    let logins = test_provider(&Arc::default());
    let CredentialLookup::Unverified(login) =
        logins.lookup_credentials(b"ada".into(), b"tiger".into(), KeyRequest::new("shop"))
    else {
        panic!("nothing is cached yet");
    };
    let LoginCheck::Valid(who) = logins.check_login(login).await else { panic!("ada is valid") };
    assert_eq!(who.attribute("server"), Some(&json!("shop")));
}

#[test]
fn no_secret_is_shown_in_debug() {
    let logins = test_provider(&Arc::default());
    assert_eq!(format!("{logins:?}"), "BasicAuthProvider { cache_ttl: 60s, .. }");
    assert_eq!(format!("{:?}", LoginError::wrong()), "LoginError::Invalid");
    assert_eq!(LoginError::forbidden("é".repeat(500)).to_string().chars().count(), MAX_MESSAGE_CHARS);
}
