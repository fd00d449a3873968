//! What a login opens, and what becomes of those who are asked about it.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;

/// Knows ada, and bob who may not; counts how often it is asked.
fn test_provider(asked: &Arc<AtomicUsize>) -> BasicAuthProvider {
    let asked = Arc::clone(asked);
    BasicAuthProvider::provider(move |user: String, password: String, request: KeyRequest| {
        asked.fetch_add(1, Ordering::Relaxed);
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
        ProviderLookup::Missing => "missing".into(),
        ProviderLookup::Invalid => "wrong at once".into(),
        ProviderLookup::Valid(who) => format!("remembered {}", who.id().unwrap_or("nobody")),
        ProviderLookup::Unverified(trial) => match logins.check_login(trial).await {
            LoginCheck::Valid(who) => {
                format!("right {} {:?}", who.id().unwrap_or("nobody"), who.attribute("id"))
            }
            other => format!("{other:?}"),
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_says_who_it_is_or_why_not() {
    let asked = Arc::default();
    let logins = test_provider(&asked);
    assert_eq!(check_text(&logins, "ada", "tiger").await, "right user:ada Some(Number(7))");
    assert_eq!(check_text(&logins, "ada", "tigers").await, "Invalid");
    assert_eq!(check_text(&logins, "bob", "lion").await, "Forbidden(\"administrators only\")");
    assert_eq!(check_text(&logins, "eve", "x").await, "Unavailable");
    assert_eq!(check_text(&logins, "boom", "x").await, "Unavailable");
    let begun = timer_now();
    assert_eq!(check_text(&logins, "slow", "x").await, "Unavailable");
    assert!(begun.elapsed() <= PROVIDER_TIMEOUT + Duration::from_millis(50));
    for (user, password) in [("", "x"), ("x", ""), ("x", &*"y".repeat(2000))] {
        assert_eq!(check_text(&logins, user, password).await, "wrong at once");
    }
    assert!(matches!(
        logins.lookup(Authorization::Missing, || KeyRequest::new("s")),
        ProviderLookup::Missing
    ));
    assert!(matches!(
        logins.lookup(Authorization::Bearer(b"x"), || KeyRequest::new("s")),
        ProviderLookup::Invalid
    ));
}

#[tokio::test(start_paused = true)]
async fn who_was_right_is_remembered_for_a_while() {
    let asked: Arc<AtomicUsize> = Arc::default();
    let logins = test_provider(&asked).cache_ttl(Duration::from_secs(30));
    assert!(logins.verify("ada", "tiger", &KeyRequest::new("s")).await);
    assert_eq!(check_text(&logins.clone(), "ada", "tiger").await, "remembered user:ada", "by all copies");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(check_text(&logins, "ada", "tige").await, "Invalid", "and only that password");
    tokio::time::advance(Duration::from_secs(31)).await;
    let ProviderLookup::Unverified(trial) =
        logins.lookup_credentials(b"ada".into(), b"tiger".into(), KeyRequest::new("s"))
    else {
        panic!("it has to be asked about again");
    };
    assert!(trial.was_valid, "but nobody takes it for a guess");
    tokio::time::advance(MAX_CACHE_TTL).await;
    let ProviderLookup::Unverified(trial) =
        logins.lookup_credentials(b"ada".into(), b"tiger".into(), KeyRequest::new("s"))
    else {
        panic!("it has to be asked about again");
    };
    assert!(!trial.was_valid);
    // Who is not let in is asked about each time.
    let before = asked.load(Ordering::Relaxed);
    for _ in 0..2 {
        check_text(&logins, "bob", "lion").await;
    }
    assert_eq!(asked.load(Ordering::Relaxed) - before, 2);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_some_are_asked_about_at_once() {
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
    assert_eq!(check_text(&logins, "ada", "tiger").await, "right user:ada Some(Number(7))");
}

#[tokio::test]
async fn what_a_provider_says_of_the_request_is_known_of_the_caller() {
    let logins = test_provider(&Arc::default());
    let ProviderLookup::Unverified(trial) =
        logins.lookup_credentials(b"ada".into(), b"tiger".into(), KeyRequest::new("shop"))
    else {
        panic!("nobody was asked yet");
    };
    let LoginCheck::Valid(who) = logins.check_login(trial).await else { panic!("ada comes in") };
    assert_eq!(who.attribute("server"), Some(&json!("shop")));
}

#[test]
fn nothing_shows_a_secret() {
    let logins = test_provider(&Arc::default());
    assert_eq!(format!("{logins:?}"), "BasicAuthProvider { cache_ttl: 60s, .. }");
    assert_eq!(format!("{:?}", LoginError::wrong()), "LoginError::Invalid");
    assert_eq!(LoginError::forbidden("é".repeat(500)).to_string().chars().count(), MAX_MESSAGE_CHARS);
}
