//! What a login opens, and what becomes of those who are asked about it.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;

/// Knows ada, and bob who may not; counts how often it is asked.
fn house(asked: &Arc<AtomicUsize>) -> Logins {
    let asked = Arc::clone(asked);
    Logins::provider(move |user: String, password: String, request: KeyRequest| {
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

async fn told(logins: &Logins, user: &str, password: &str) -> String {
    let header = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    match logins.look(Authorization::read(header.as_bytes()), || KeyRequest::new("s")) {
        Look::Missing => "missing".into(),
        Look::Wrong => "wrong at once".into(),
        Look::Right(who) => format!("remembered {}", who.id().unwrap_or("nobody")),
        Look::Open(trial) => match logins.judge(trial).await {
            Verdict::Right(who) => {
                format!("right {} {:?}", who.id().unwrap_or("nobody"), who.attribute("id"))
            }
            other => format!("{other:?}"),
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_says_who_it_is_or_why_not() {
    let asked = Arc::default();
    let logins = house(&asked);
    assert_eq!(told(&logins, "ada", "tiger").await, "right user:ada Some(Number(7))");
    assert_eq!(told(&logins, "ada", "tigers").await, "Wrong");
    assert_eq!(told(&logins, "bob", "lion").await, "Forbidden(\"administrators only\")");
    assert_eq!(told(&logins, "eve", "x").await, "Unavailable");
    assert_eq!(told(&logins, "boom", "x").await, "Unavailable");
    let begun = timer_now();
    assert_eq!(told(&logins, "slow", "x").await, "Unavailable");
    assert!(begun.elapsed() <= PATIENCE + Duration::from_millis(50));
    for (user, password) in [("", "x"), ("x", ""), ("x", &*"y".repeat(2000))] {
        assert_eq!(told(&logins, user, password).await, "wrong at once");
    }
    assert!(matches!(logins.look(Authorization::Missing, || KeyRequest::new("s")), Look::Missing));
    assert!(matches!(logins.look(Authorization::Bearer(b"x"), || KeyRequest::new("s")), Look::Wrong));
}

#[tokio::test(start_paused = true)]
async fn who_was_right_is_remembered_for_a_while() {
    let asked: Arc<AtomicUsize> = Arc::default();
    let logins = house(&asked).remember(Duration::from_secs(30));
    assert!(logins.verify("ada", "tiger", &KeyRequest::new("s")).await);
    assert_eq!(told(&logins.clone(), "ada", "tiger").await, "remembered user:ada", "by all copies");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(told(&logins, "ada", "tige").await, "Wrong", "and only that password");
    tokio::time::advance(Duration::from_secs(31)).await;
    let Look::Open(trial) = logins.known(b"ada".into(), b"tiger".into(), KeyRequest::new("s")) else {
        panic!("it has to be asked about again");
    };
    assert!(trial.was_right, "but nobody takes it for a guess");
    tokio::time::advance(RECALL).await;
    let Look::Open(trial) = logins.known(b"ada".into(), b"tiger".into(), KeyRequest::new("s")) else {
        panic!("it has to be asked about again");
    };
    assert!(!trial.was_right);
    // Who is not let in is asked about each time.
    let before = asked.load(Ordering::Relaxed);
    for _ in 0..2 {
        told(&logins, "bob", "lion").await;
    }
    assert_eq!(asked.load(Ordering::Relaxed) - before, 2);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_some_are_asked_about_at_once() {
    let logins = house(&Arc::default());
    let waiting: Vec<_> = (0..IN_ALL)
        .map(|_| {
            let logins = logins.clone();
            tokio::spawn(async move { told(&logins, "slow", "x").await })
        })
        .collect();
    for _ in 0..IN_ALL {
        tokio::task::yield_now().await;
    }
    assert_eq!(told(&logins, "ada", "tiger").await, "TooMany");
    for one in waiting {
        assert_eq!(one.await.unwrap(), "Unavailable");
    }
    assert_eq!(told(&logins, "ada", "tiger").await, "right user:ada Some(Number(7))");
}

#[tokio::test]
async fn what_a_provider_says_of_the_request_is_known_of_the_caller() {
    let logins = house(&Arc::default());
    let Look::Open(trial) = logins.known(b"ada".into(), b"tiger".into(), KeyRequest::new("shop")) else {
        panic!("nobody was asked yet");
    };
    let Verdict::Right(who) = logins.judge(trial).await else { panic!("ada comes in") };
    assert_eq!(who.attribute("server"), Some(&json!("shop")));
}

#[test]
fn nothing_shows_a_secret() {
    let logins = house(&Arc::default());
    assert_eq!(format!("{logins:?}"), "Logins { remember: 60s, .. }");
    assert_eq!(format!("{:?}", LoginError::wrong()), "LoginError::Wrong");
    assert_eq!(LoginError::forbidden("é".repeat(500)).to_string().chars().count(), MAX_MESSAGE);
}
