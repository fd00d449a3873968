//! API keys, and the providers that verify them.

use std::net::IpAddr;

use http::{HeaderMap, Method};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::profile::Profile;

async fn check_text(keys: &ApiKeys, key: &str) -> String {
    match keys.check_key(key.to_owned(), &KeyRequest::new("keyed")).await {
        KeyCheck::Valid(who) => format!("valid: {}", who.id().unwrap_or("nobody")),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_provider_accepts_rejects_or_fails() {
    let keys = ApiKeys::provider(|key, _| async move {
        match key.as_str() {
            "good" => Ok(true),
            "throw-me" => Err(KeyError::new("Rate limit exceeded")),
            "broken" => Ok("x".parse::<u8>()? == 1),
            _ => Ok(false),
        }
    });
    // printf good | sha256sum
    assert_eq!(check_text(&keys, "good").await, "valid: key:770e607624d68926");
    assert_eq!(check_text(&keys, "no").await, "Invalid");
    assert_eq!(check_text(&keys, "throw-me").await, "Rejected(\"Rate limit exceeded\")");
    assert_eq!(check_text(&keys, "broken").await, "Unavailable");
}

#[tokio::test]
async fn a_provider_can_return_four_types() {
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
async fn a_provider_that_stalls_or_panics_rejects_every_key() {
    let begun = crate::util::clock::timer_now();
    let stalls = ApiKeys::provider(|_, _| async {
        std::future::pending::<()>().await;
        true
    });
    assert_eq!(check_text(&stalls, "k").await, "Unavailable");
    assert!(begun.elapsed() <= Duration::from_secs(3) + Duration::from_millis(50));
    let at_once = ApiKeys::provider(|key, _| -> bool { panic!("{}", key.len()) });
    assert_eq!(check_text(&at_once, "k").await, "Unavailable");
    let later = ApiKeys::provider(|key, _| async move {
        tokio::task::yield_now().await;
        assert!(key.is_empty(), "not today");
        true
    });
    assert_eq!(check_text(&later, "k").await, "Unavailable");
}

#[tokio::test]
async fn a_provider_sees_the_request_and_describes_the_caller() {
    let headers = HeaderMap::from_iter([(crate::guard::authorization::API_KEY, "k".parse().unwrap())]);
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
    let KeyCheck::Valid(who) = keys.check_key("k".to_owned(), &request).await else {
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
    assert_eq!(check_text(&keys, "k1").await, "valid: ops");
    assert_eq!(check_text(&keys, "test").await, "valid: key:9f86d081884c7d65");
    assert_eq!(check_text(&keys, digest).await, "Invalid");
    assert!(ApiKeys::list([""]).check().is_err(), "an unset variable must not accept every key");
    assert!(ApiKeys::list([""; 0]).is_empty());
    assert!(ApiKeys::list(["sha256:x"]).check().is_err());
    assert_eq!(check_text(&ApiKeys::list(["sha256:x"]), "sha256:x").await, "Invalid");
}

#[tokio::test]
async fn a_key_with_control_characters_is_rejected_without_a_check() {
    let keys = ApiKeys::provider(|_, _| -> bool { panic!("it must not be asked") });
    for key in ["", "a\r\nb", "a%0d%0ab", "a\0", "é", "a b"] {
        assert!(!keys.verify(key, &KeyRequest::new("s")).await, "{key:?}");
    }
    let shown = format!("{:?}", KeyRequest::new("s").with_body("hunter2"));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn the_method_of_a_message_is_parsed() {
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
    assert_eq!(request.method(), Some("m"), "the rest of the body is not parsed");
}

proptest! {
    #[test]
    fn any_body_is_read(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let request = KeyRequest::new("s").with_body(body);
        prop_assert!(request.method().is_none_or(|method| request.body().contains('"') || method.is_empty()));
    }

    #[test]
    fn a_message_is_told_up_to_a_length(message in "\\PC{0,600}") {
        let shown = KeyError::new(message.clone()).to_string();
        prop_assert!(shown.chars().count() <= MAX_MESSAGE_CHARS && message.starts_with(&shown));
    }
}
