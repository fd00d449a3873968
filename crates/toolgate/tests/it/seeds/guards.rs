//! Passwords, body limits, addresses and headers.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use serde_json::json;
use toolgate::Server;
use toolgate::guard::SecurityHeaders;
use toolgate::http::RemoteAddr;
use toolgate::testing::{HttpExchange, http_request};
use tower_service::Service as _;

use super::{PING, echo_server, empty_server, post};

#[test]
fn s1_053_a_password() {
    assert!(empty_server("s").add_basic_auth("a", "b").has_basic_auth());
}

#[test]
fn s1_061_no_password_unless_one_is_set() {
    assert!(!empty_server("open").has_basic_auth());
}

#[test]
fn s1_062_a_password_may_contain_colons() {
    let server = empty_server("s").add_basic_auth("u", "p:q:r");
    assert!(server.verify_basic_auth("Basic dTpwOnE6cg=="));
    assert!(!empty_server("s").add_basic_auth("", "p").has_basic_auth());
    assert!(!empty_server("s").add_basic_auth("u", "").has_basic_auth());
}

#[test]
fn s1_063_what_is_no_header_is_nobody() {
    let server = empty_server("s").add_basic_auth("u", "p");
    for wrong in ["Basic !!!", "", "Basic", "dTpw", "Basic dXA=", "Bearer dTpw", "Basic dTpx"] {
        assert!(!server.verify_basic_auth(wrong), "{wrong:?}");
    }
    assert!(server.verify_basic_auth("Basic dTpw"));
}

/// A program passes values of its environment. An unset value disables the check, which is logged; a program that requires
/// it checks that itself. Configuration files come later.
#[tokio::test]
async fn s1_064_credentials_that_are_not_set_ask_nobody() {
    let from_environment = |name: &str| std::env::var(name).unwrap_or_default();
    let (user, password) = (from_environment("S1_064_USER"), from_environment("S1_064_PASS"));
    let server = echo_server("s").add_basic_auth(&user, &password);
    assert!(!server.has_basic_auth());
    assert_eq!(post(&server, &[], PING).await.status, 200);
    // As a hash, a password is not even in the configuration.
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$bnULs2lBPIc7IqYXH2iSLQ";
    assert!(empty_server("s").add_basic_auth("u", hash).config_errors().is_empty());
}

#[tokio::test]
async fn s1_065_failures_are_counted() {
    let server = echo_server("s").add_basic_auth("u", "p");
    assert_eq!(post(&server, &[], PING).await.status, 401);
    assert_eq!(json!(server.stats())["security"]["authFailures"], 1);
    assert_eq!(server.stats().requests.total, 0, "nothing was processed");
}

#[test]
fn s1_087_a_limit_of_bodies() {
    assert_eq!(empty_server("s").set_body_limit(1_048_576).body_limit(), 1_048_576);
}

#[test]
fn s1_088_no_limit_unless_one_is_set() {
    assert_eq!(empty_server("n").body_limit(), 0);
}

#[tokio::test]
async fn s1_091_exactly_the_limit_passes() {
    let server = echo_server("limited").set_body_limit(100);
    // Characters of two bytes: bytes are counted.
    let body = |n_bytes: usize| {
        let frame = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":""}}"#.len();
        let filling = "é".repeat((n_bytes - frame) / 2) + if (n_bytes - frame) % 2 == 1 { "x" } else { "" };
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{filling}"}}}}"#)
    };
    assert_eq!((body(100).len(), body(101).len()), (100, 101));
    assert_eq!(post(&server, &[], body(100)).await.status, 200);
    assert_eq!(post(&server, &[], body(101)).await.status, 413);
}

/// A body of unknown length.
struct EndlessBody(Arc<AtomicUsize>);

impl http_body::Body for EndlessBody {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        self.0.fetch_add(1024, Ordering::Relaxed);
        Poll::Ready(Some(Ok(http_body::Frame::data(bytes::Bytes::from_static(&[b' '; 1024])))))
    }
}

#[tokio::test]
async fn s1_093_what_is_too_long_is_not_read_to_its_end() {
    let server = echo_server("limited").set_body_limit(100);
    let read = Arc::new(AtomicUsize::new(0));
    let request = http::Request::builder()
        .method("POST")
        .uri("/")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(EndlessBody(Arc::clone(&read)))
        .unwrap();
    let answer = server.clone().into_service().call(request).await.unwrap();
    assert_eq!(answer.status(), 413);
    assert!(read.load(Ordering::Relaxed) <= 100 + (64 << 10), "{read:?} bytes were read");
    // A body whose announced length is too large is neither read nor parsed: it is not JSON.
    assert_eq!(post(&server, &[("content-length", "1073741824")], "x").await.status, 413);
}

#[tokio::test]
async fn s1_095_long_bodies_are_counted() {
    let server = echo_server("limited").set_body_limit(100);
    assert_eq!(post(&server, &[], "x".repeat(101)).await.status, 413);
    assert_eq!(json!(server.stats())["security"]["bodySizeViolations"], 1);
}

/// Returns the status of a request from this address.
async fn status_from(server: &Server, address: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = http_request("POST", "/", headers.iter().copied(), PING);
    let address: SocketAddr = format!("{address}:4000").parse().unwrap();
    request.extensions_mut().insert(RemoteAddr(address));
    HttpExchange::start(server.clone().into_service(), request).fetch().await.unwrap().status
}

#[tokio::test]
async fn s1_119_addresses() {
    let server = echo_server("s").set_allowed_ips(["192.168.0.0/24", "::1"]);
    assert!(server.verify_client_ip("192.168.0.77") && server.verify_client_ip("::1"));
    assert!(!server.verify_client_ip("192.168.1.77") && !server.verify_client_ip("nonsense"));
    assert_eq!(server.allowed_ips().len(), 2);
    assert!(server.add_allowed_ip("10.0.0.1").verify_client_ip("10.0.0.1"));
    assert_eq!(status_from(&server, "192.168.0.77", &[]).await, 200);
    assert_eq!(status_from(&server, "172.16.0.1", &[]).await, 403);
    assert_eq!(json!(server.stats())["security"]["ipFilterFailures"], 1);
    assert!(server.clear_allowed_ips().allowed_ips().is_empty());
    assert_eq!(status_from(&server, "172.16.0.1", &[]).await, 200);
    // Right after the size check: a rejected address with a body that is too long gets the size error.
    let server = echo_server("s").set_allowed_ips("192.168.0.1").set_body_limit(10);
    assert_eq!(status_from(&server, "172.16.0.1", &[("content-length", "900")]).await, 413);
}

#[tokio::test]
async fn s1_120_only_trusted_proxies_are_believed() {
    let server = echo_server("s").set_allowed_ips("203.0.113.9");
    let forwarded = [("x-forwarded-for", "203.0.113.9")];
    assert_eq!(status_from(&server, "10.0.0.1", &forwarded).await, 403, "no proxy is trusted");
    server.set_trusted_proxies("10.0.0.1");
    assert_eq!(status_from(&server, "10.0.0.1", &forwarded).await, 200);
    assert_eq!(status_from(&server, "10.0.0.2", &forwarded).await, 403, "another peer");
    assert_eq!(
        status_from(&server, "203.0.113.9", &[("x-forwarded-for", "10.9.9.9")]).await,
        200,
        "not a proxy"
    );
}

#[tokio::test]
async fn s1_130_headers_can_be_changed_and_switched_off() {
    let server = echo_server("s");
    let usual = post(&server, &[], PING).await;
    assert_eq!(usual.header("x-xss-protection"), Some("1; mode=block"));
    server
        .set_security_headers(SecurityHeaders::default().with("x-xss-protection", "0").with("x-extra", "1"));
    let changed = post(&server, &[], PING).await;
    assert_eq!((changed.header("x-xss-protection"), changed.header("x-extra")), (Some("0"), Some("1")));
    assert_eq!(changed.header("x-frame-options"), Some("DENY"));
    server.set_security_headers(SecurityHeaders::none());
    assert_eq!(post(&server, &[], PING).await.header("x-frame-options"), None);
}
