//! All guards together: what they require, in which order, and what a rejection says.

mod credentials;

use std::time::Duration;

use argon2::{Argon2, Params, PasswordHasher as _};
use http::{HeaderValue, header};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::profile::Profile;

/// The outcome of a request.
#[derive(Debug)]
enum GuardOutcome {
    Granted(CallerIdentity),
    Preflight(HeaderMap),
    Rejected(Box<GuardRejection>),
}

impl GuardOutcome {
    fn status(&self) -> u16 {
        match self {
            GuardOutcome::Granted(_) => 200,
            GuardOutcome::Preflight(_) => 204,
            GuardOutcome::Rejected(rejection) => rejection.reason.status(),
        }
    }

    fn principal_id(&self) -> &str {
        match self {
            GuardOutcome::Granted(caller) => caller.principal.id().unwrap_or("anonymous"),
            _ => "out",
        }
    }

    fn rejection(&self) -> &GuardRejection {
        match self {
            GuardOutcome::Rejected(rejection) => rejection,
            _ => panic!("{self:?} is not a rejection"),
        }
    }

    /// A header of the response, as the transport makes it.
    fn header(&self, guards: &Guards, name: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        match self {
            GuardOutcome::Granted(caller) => guards.apply_headers(&mut headers, &caller.response_policy),
            GuardOutcome::Preflight(all) => headers.clone_from(all),
            GuardOutcome::Rejected(rejection) => {
                guards.apply_headers(&mut headers, &rejection.response_policy);
                rejection.apply_headers(&mut headers);
            }
        }
        headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    }
}

/// A request: a method and header lines.
struct GuardTestRequest<'a> {
    method: Method,
    headers: &'a [(&'static str, &'a str)],
    peer: Option<&'a str>,
    principal: Option<Principal>,
    body: &'static str,
}

fn post<'a>(lines: &'a [(&'static str, &'a str)]) -> GuardTestRequest<'a> {
    GuardTestRequest {
        method: Method::POST,
        headers: lines,
        peer: Some("127.0.0.1"),
        principal: None,
        body: "{}",
    }
}

impl Guards {
    async fn check_request(&self, request: GuardTestRequest<'_>) -> GuardOutcome {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        for (name, value) in request.headers {
            if *name == "host" {
                headers.insert(*name, value.parse().unwrap());
            } else {
                headers.append(*name, value.parse().unwrap());
            }
        }
        let head = GuardRequest {
            method: &request.method,
            uri: &Uri::from_static("/mcp"),
            headers: &headers,
            parsed_headers: &ParsedHeaders::parse(&headers),
            peer: request.peer.and_then(|peer| peer.parse().ok()),
            is_tls: false,
            principal: request.principal.as_ref(),
            server_name: "test",
            is_literal_wildcard: false,
        };
        match self.run_checks(&head, request.body).await {
            Ok(got) => got,
            Err(rejection) => GuardOutcome::Rejected(rejection),
        }
    }

    async fn run_checks(
        &self,
        head: &GuardRequest<'_>,
        body: &'static str,
    ) -> Result<GuardOutcome, Box<GuardRejection>> {
        let decision = match self.check_head(head)? {
            HeadDecision::PasswordPending(pending) => self.check_password(pending).await?,
            decision => decision,
        };
        match decision {
            HeadDecision::Granted(caller) => Ok(GuardOutcome::Granted(caller)),
            HeadDecision::Preflight(headers) => Ok(GuardOutcome::Preflight(*headers)),
            HeadDecision::KeyPending(pending) => {
                let request =
                    KeyRequest::new(head.server_name).with_body(body).with_remote_addr(pending.client());
                self.check_key(pending, request).await.map(GuardOutcome::Granted)
            }
            HeadDecision::PasswordPending(_) => panic!("a password is checked once"),
        }
    }

    async fn status(&self, lines: &[(&'static str, &str)]) -> u16 {
        self.check_request(post(lines)).await.status()
    }
}

fn guards(set: impl FnOnce(&mut Guards)) -> Guards {
    let mut guards = Guards::new(&Clock::manual());
    set(&mut guards);
    guards.check().unwrap();
    guards
}

fn hash(password: &str) -> String {
    let argon2 = Argon2::from(Params::new(8, 1, 1, None).unwrap());
    argon2.hash_password_with_salt(password.as_bytes(), b"a salt for tests").unwrap().to_string()
}

/// `admin:secret`, valid and wrong.
const BASIC: (&str, &str) = ("authorization", "Basic YWRtaW46c2VjcmV0");
const BAD_BASIC: (&str, &str) = ("authorization", "Basic YWRtaW46eA==");
const KEY: (&str, &str) = ("x-api-key", "k1");
const BAD_KEY: (&str, &str) = ("x-api-key", "no");
const APP_ORIGIN: (&str, &str) = ("origin", "https://app.example.com");
const EVIL_ORIGIN: (&str, &str) = ("origin", "https://evil.io");

/// All guards of the seed at once.
fn all_guards() -> Guards {
    guards(|guards| {
        guards.cors.set(["https://app.example.com"]).unwrap();
        guards.set_body_limit(100);
        guards.users.add("admin", "secret").unwrap();
        guards.set_api_keys(Some(ApiKeys::provider(|key, _| key == "k1"))).unwrap();
    })
}

#[tokio::test]
async fn without_settings_only_hosts_and_origins_are_checked() {
    let guards = Guards::default();
    assert_eq!(guards.status(&[]).await, 200);
    assert_eq!(
        guards.status(&[("content-length", "99999999999")]).await,
        200,
        "the transport has its own limit"
    );
    assert_eq!(guards.status(&[("host", "evil.example")]).await, 403);
    assert_eq!(guards.status(&[EVIL_ORIGIN]).await, 403);
    let page = guards.check_request(post(&[("origin", "http://localhost:3000")])).await;
    assert_eq!(page.status(), 200);
    assert_eq!(page.header(&guards, "access-control-allow-origin"), None, "no page may read the response");
    assert_eq!(page.header(&guards, "x-frame-options").as_deref(), Some("DENY"));
    let request = GuardTestRequest { principal: Some(Principal::new("ada")), ..post(&[]) };
    assert_eq!(
        guards.check_request(request).await.principal_id(),
        "ada",
        "who was identified in front stays"
    );
    assert!(size_of::<HeadDecision>() <= 64 && size_of::<Result<HeadDecision, Box<GuardRejection>>>() <= 64);
}

/// C37, S1-114 … S1-118: whatever else is wrong, the first check in the order rejects.
#[tokio::test]
async fn the_order_is_always_the_same() {
    let mut guards = all_guards();
    guards.addresses.set("127.0.0.1").unwrap();
    let host = ("host", "evil.example");
    let large = ("content-length", "101");
    let (large_and_evil, evil) = ([large, EVIL_ORIGIN], [EVIL_ORIGIN, BAD_BASIC]);
    let rows: [(&[(&str, &str)], RejectReason); 9] = [
        (&[host, large, EVIL_ORIGIN, BAD_BASIC, BAD_KEY], RejectReason::Host),
        (&[large, EVIL_ORIGIN, BAD_BASIC, BAD_KEY], RejectReason::TooLarge { limit: 100 }),
        (&[EVIL_ORIGIN, BAD_BASIC, BAD_KEY], RejectReason::Origin),
        (&[EVIL_ORIGIN], RejectReason::Origin),
        (&[APP_ORIGIN, BAD_BASIC, BAD_KEY], RejectReason::Credentials(CredentialKind::Basic)),
        (&[APP_ORIGIN], RejectReason::Credentials(CredentialKind::Basic)),
        (&[APP_ORIGIN, KEY], RejectReason::Credentials(CredentialKind::Basic)),
        (&[APP_ORIGIN, BASIC], RejectReason::Credentials(CredentialKind::ApiKey)),
        (&[APP_ORIGIN, BASIC, BAD_KEY], RejectReason::Credentials(CredentialKind::ApiKey)),
    ];
    for (lines, why) in rows {
        assert_eq!(guards.check_request(post(lines)).await.rejection().reason, why, "{lines:?}");
    }
    let unknown = GuardTestRequest { peer: Some("203.0.113.9"), ..post(&large_and_evil) };
    assert_eq!(guards.check_request(unknown).await.rejection().reason, RejectReason::TooLarge { limit: 100 });
    let unknown = GuardTestRequest { peer: Some("203.0.113.9"), ..post(&evil) };
    assert_eq!(guards.check_request(unknown).await.rejection().reason, RejectReason::Address);
    let good = guards.check_request(post(&[APP_ORIGIN, BASIC, KEY, ("content-length", "100")])).await;
    assert_eq!(good.status(), 200);
    assert_eq!(
        good.header(&guards, "access-control-allow-origin").as_deref(),
        Some("https://app.example.com")
    );
    assert_eq!(good.header(&guards, "vary").as_deref(), Some("Origin"));
}

#[tokio::test]
async fn a_rejection_says_what_is_required() {
    let guards = all_guards();
    let basic = guards.check_request(post(&[APP_ORIGIN, BAD_BASIC, BAD_KEY])).await;
    let challenge = basic.header(&guards, "www-authenticate").unwrap();
    assert_eq!(challenge, "Basic realm=\"test\", charset=\"UTF-8\"");
    assert_eq!(
        basic.header(&guards, "access-control-allow-origin").as_deref(),
        Some("https://app.example.com"),
        "a page that may request may also read why not"
    );
    assert!(basic.header(&guards, "access-control-expose-headers").unwrap().contains("WWW-Authenticate"));
    let key = guards.check_request(post(&[BASIC, BAD_KEY])).await;
    assert_eq!(key.rejection().message, "Invalid API key");
    assert_eq!(key.header(&guards, "www-authenticate").as_deref(), Some("Bearer error=\"invalid_token\""));
    let evil = guards.check_request(post(&[EVIL_ORIGIN])).await;
    assert!(
        evil.rejection().message.contains("`cors`") && evil.rejection().message.contains("`allow_origin`")
    );
    assert_eq!(evil.header(&guards, "access-control-allow-origin"), None);
    assert_eq!(evil.header(&guards, "x-content-type-options").as_deref(), Some("nosniff"));
    let large = guards.check_request(post(&[("content-length", "101")])).await;
    assert_eq!(large.rejection().message, "Request body too large (max: 100 bytes)");
    assert_eq!(guards.status(&[("content-length", "x")]).await, 400);
}

#[tokio::test]
async fn a_preflight_needs_no_credentials() {
    let guards = all_guards();
    let options = |lines: &'static [(&'static str, &'static str)]| GuardTestRequest {
        method: Method::OPTIONS,
        ..post(lines)
    };
    let asked = options(&[
        APP_ORIGIN,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type, mcp-param-region"),
    ]);
    let answer = guards.check_request(asked).await;
    assert_eq!(answer.status(), 204);
    for (name, wanted) in [
        ("access-control-allow-origin", "https://app.example.com"),
        ("access-control-allow-methods", "GET, POST, OPTIONS, DELETE"),
        ("access-control-max-age", "86400"),
        ("vary", "Origin"),
        ("x-frame-options", "DENY"),
    ] {
        assert_eq!(answer.header(&guards, name).as_deref(), Some(wanted), "{name}");
    }
    let allowed = answer.header(&guards, "access-control-allow-headers").unwrap();
    assert!(
        allowed.starts_with("Content-Type, Authorization, X-API-Key, Accept, Mcp-Session-Id, "),
        "{allowed}"
    );
    assert!(allowed.ends_with(", mcp-param-region"), "{allowed}");
    assert_eq!(answer.header(&guards, "access-control-allow-credentials"), None);
    assert_eq!(
        guards.check_request(options(&[APP_ORIGIN])).await.status(),
        204,
        "also without saying for which method"
    );
    assert_eq!(guards.check_request(options(&[EVIL_ORIGIN])).await.status(), 403);
    assert_eq!(
        guards.check_request(options(&[])).await.status(),
        401,
        "without an origin it is not a preflight"
    );
    assert_eq!(guards.check_request(options(&[("origin", "http://localhost")])).await.status(), 401);
    assert_eq!(guards.check_request(options(&[APP_ORIGIN, ("host", "evil.example")])).await.status(), 403);
}

#[tokio::test]
async fn a_star_allows_all_origins_and_no_hosts() {
    let mut guards = guards(|guards| guards.cors.set("*").unwrap());
    let page = guards.check_request(post(&[("origin", "https://z.io")])).await;
    assert_eq!(page.header(&guards, "access-control-allow-origin").as_deref(), Some("https://z.io"));
    assert_eq!(guards.status(&[("origin", "https://z.io"), ("host", "z.io")]).await, 403);
    assert_eq!(guards.status(&[("origin", "https://z.io"), ("origin", "https://z.io")]).await, 403);
    guards.cors.set_literal_wildcard(true);
    let page = guards.check_request(post(&[("origin", "https://z.io")])).await;
    assert_eq!(page.header(&guards, "access-control-allow-origin").as_deref(), Some("*"));
    assert_eq!(page.header(&guards, "vary"), None);
}

#[tokio::test]
async fn addresses_are_those_of_the_connection_unless_a_trusted_proxy_states_another() {
    let mut guards = guards(|guards| guards.addresses.set(["192.0.2.0/24"]).unwrap());
    let from = |peer: Option<&'static str>, lines| GuardTestRequest { peer, ..post(lines) };
    let forged: &[(&str, &str)] = &[("x-forwarded-for", "192.0.2.1")];
    assert_eq!(guards.check_request(from(Some("192.0.2.7"), &[])).await.status(), 200);
    assert_eq!(guards.check_request(from(Some("127.0.0.1"), forged)).await.status(), 403);
    let unknown = guards.check_request(from(None, forged)).await;
    assert_eq!(unknown.rejection().reason, RejectReason::Address);
    assert!(unknown.rejection().message.contains("unknown"));
    guards.trusted_proxies.addresses.set("127.0.0.1").unwrap();
    let passed = guards.check_request(from(Some("127.0.0.1"), forged)).await;
    let GuardOutcome::Granted(caller) = &passed else { panic!("{passed:?}") };
    assert_eq!(caller.client, "192.0.2.1".parse().ok());
    assert_eq!(
        guards.check_request(from(Some("127.0.0.1"), &[])).await.status(),
        403,
        "the proxy itself is not listed"
    );
    let secure = from(Some("127.0.0.1"), &[("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "https")]);
    let hsts = "max-age=31536000; includeSubDomains";
    let value = guards.check_request(secure).await.header(&guards, "strict-transport-security");
    assert_eq!(value.as_deref(), Some(hsts));
    assert_eq!(passed.header(&guards, "strict-transport-security"), None);
}

#[tokio::test]
async fn rates_hold_for_addresses_and_for_callers() {
    let clock = Clock::manual();
    let mut guards = Guards::new(&clock);
    guards.set_rate_per_address(Some(Rate::per_minute(60).burst(5)));
    for n in 0..5 {
        let forged = format!("10.0.0.{n}");
        assert_eq!(guards.status(&[("x-forwarded-for", &forged)]).await, 200);
    }
    let refused = guards.check_request(post(&[])).await;
    assert_eq!((refused.status(), refused.rejection().reason), (429, RejectReason::RateLimited));
    assert_eq!(refused.header(&guards, "retry-after").as_deref(), Some("1"));
    assert_eq!(
        guards.check_request(GuardTestRequest { peer: Some("127.0.0.2"), ..post(&[]) }).await.status(),
        200
    );
    assert_eq!(guards.clone().status(&[]).await, 429, "copies count together");
    clock.advance(Duration::from_secs(1));
    assert_eq!(guards.status(&[]).await, 200);

    let mut guards = Guards::new(&clock);
    guards.set_rate_per_principal(Some(Rate::per_minute(60).burst(2)));
    guards.set_tokens(["a", "b"]).unwrap();
    let (a, b) = (("authorization", "Bearer a"), ("authorization", "Bearer b"));
    assert_eq!(
        [guards.status(&[a]).await, guards.status(&[a]).await, guards.status(&[a]).await],
        [200, 200, 429]
    );
    assert_eq!(guards.status(&[b]).await, 200, "another caller is not limited");
    assert_eq!(
        guards.status(&[("authorization", "Bearer c")]).await,
        401,
        "a wrong token does not count for its owner"
    );
}

#[test]
fn settings_that_cannot_work_are_reported() {
    let mut guards = Guards::default();
    guards.users.add("admin", "secret").unwrap();
    guards.set_tokens(["t1"]).unwrap();
    assert!(guards.check().is_err());
    guards.mode = CredentialMode::Any;
    assert!(guards.check().is_ok());
    assert!(guards.set_tokens(["sha256:zz"]).is_err());
    assert!(guards.set_api_keys(Some(ApiKeys::list(["sha256:zz"]))).is_err());
    assert!(guards.set_headers(SecurityHeaders::default().with("a b", "c")).is_err());
    guards.set_body_limit(0);
    assert_eq!(guards.body_limit, None);
    guards.set_api_keys(Some(ApiKeys::list(Vec::<String>::new()))).unwrap();
    assert!(guards.api_keys().is_none(), "an empty list requires nothing");
}

#[test]
fn no_secret_is_shown() {
    let mut guards = all_guards();
    guards.mode = CredentialMode::Any;
    guards.set_tokens(["hunter2"]).unwrap();
    guards.users.add("ops", "hunter3").unwrap();
    guards.users.add("ada", &hash("hunter4")).unwrap();
    guards.set_api_keys(Some(ApiKeys::list(["hunter5"]))).unwrap();
    let shown = format!("{guards:?}");
    assert!(!shown.contains("hunter") && !shown.contains("argon2id"), "{shown}");
}

proptest! {
    /// Any head is judged without a panic, and none without credentials is accepted.
    #[test]
    fn any_head_is_judged_and_none_is_accepted_by_accident(
        values in proptest::collection::vec((0_usize..8, proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
    ) {
        const NAMES: [&str; 8] = [
            "authorization", "x-api-key", "origin", "x-forwarded-for", "content-length",
            "x-forwarded-proto", "access-control-request-headers", "x-real-ip",
        ];
        let mut guards = all_guards();
        guards.trusted_proxies.addresses.set("127.0.0.1").unwrap();
        let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("localhost"))]);
        for (name, value) in &values {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.append(NAMES[*name], value);
            }
        }
        for method in [Method::POST, Method::GET, Method::OPTIONS] {
            let head = GuardRequest {
                method: &method,
                uri: &Uri::from_static("/mcp"),
                headers: &headers,
                parsed_headers: &ParsedHeaders::parse(&headers),
                peer: "127.0.0.1".parse().ok(),
                is_tls: false,
                principal: None,
                server_name: "test",
                is_literal_wildcard: false,
            };
            prop_assert!(guards.check_head(&head).is_err());
        }
    }
}
