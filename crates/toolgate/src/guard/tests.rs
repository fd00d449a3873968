//! The whole room: what is asked for, in which order, and what is said.

use std::time::Duration;

use argon2::{Argon2, Params, PasswordHasher as _};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::profile::Profile;

/// What a request got: a status and who it is, or why not.
#[derive(Debug)]
enum GuardOutcome {
    Admitted(Admitted),
    Preflight(HeaderMap),
    Rejected(Box<GuardRejection>),
}

impl GuardOutcome {
    fn status(&self) -> u16 {
        match self {
            GuardOutcome::Admitted(_) => 200,
            GuardOutcome::Preflight(_) => 204,
            GuardOutcome::Rejected(refusal) => refusal.reason.status(),
        }
    }

    fn principal_id(&self) -> &str {
        match self {
            GuardOutcome::Admitted(pass) => pass.principal.id().unwrap_or("anonymous"),
            _ => "out",
        }
    }

    fn rejection(&self) -> &GuardRejection {
        match self {
            GuardOutcome::Rejected(refusal) => refusal,
            _ => panic!("{self:?} is no refusal"),
        }
    }

    /// A header of the answer, as the porch makes it.
    fn header(&self, guards: &Guards, name: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        match self {
            GuardOutcome::Admitted(pass) => guards.apply_headers(&mut headers, &pass.response_policy),
            GuardOutcome::Preflight(all) => headers.clone_from(all),
            GuardOutcome::Rejected(refusal) => {
                guards.apply_headers(&mut headers, &refusal.response_policy);
                refusal.apply_headers(&mut headers);
            }
        }
        headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    }
}

/// A request as the porch sees it: a method and header lines.
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
    async fn check_request(&self, ask: GuardTestRequest<'_>) -> GuardOutcome {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        for (name, value) in ask.headers {
            if *name == "host" {
                headers.insert(*name, value.parse().unwrap());
            } else {
                headers.append(*name, value.parse().unwrap());
            }
        }
        let head = GuardRequest {
            method: &ask.method,
            uri: &Uri::from_static("/mcp"),
            headers: &headers,
            parsed_headers: &ParsedHeaders::parse(&headers),
            peer: ask.peer.and_then(|peer| peer.parse().ok()),
            is_tls: false,
            principal: ask.principal.as_ref(),
            server_name: "test",
            is_literal_wildcard: false,
        };
        match self.run_checks(&head, ask.body).await {
            Ok(got) => got,
            Err(refusal) => GuardOutcome::Rejected(refusal),
        }
    }

    async fn run_checks(
        &self,
        head: &GuardRequest<'_>,
        body: &'static str,
    ) -> Result<GuardOutcome, Box<GuardRejection>> {
        let gate = match self.check_head(head)? {
            Admission::PasswordPending(claim) => self.check_password(claim).await?,
            gate => gate,
        };
        match gate {
            Admission::Granted(pass) => Ok(GuardOutcome::Admitted(pass)),
            Admission::Preflight(headers) => Ok(GuardOutcome::Preflight(*headers)),
            Admission::KeyPending(claim) => {
                let request =
                    KeyRequest::new(head.server_name).with_body(body).with_remote_addr(claim.client());
                self.check_key(claim, request).await.map(GuardOutcome::Admitted)
            }
            Admission::PasswordPending(_) => panic!("a password is proven once"),
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

/// `admin:secret`, right and wrong.
const BASIC: (&str, &str) = ("authorization", "Basic YWRtaW46c2VjcmV0");
const BAD_BASIC: (&str, &str) = ("authorization", "Basic YWRtaW46eA==");
const KEY: (&str, &str) = ("x-api-key", "k1");
const BAD_KEY: (&str, &str) = ("x-api-key", "no");
const APP_ORIGIN: (&str, &str) = ("origin", "https://app.example.com");
const EVIL_ORIGIN: (&str, &str) = ("origin", "https://evil.io");

/// The server of the seed with everything at once.
fn all_guards() -> Guards {
    guards(|guards| {
        guards.cors.set(["https://app.example.com"]).unwrap();
        guards.set_body_limit(100);
        guards.users.add("admin", "secret").unwrap();
        guards.set_api_keys(Some(ApiKeys::provider(|key, _| key == "k1"))).unwrap();
    })
}

#[tokio::test]
async fn without_settings_only_hosts_and_origins_are_looked_at() {
    let guards = Guards::default();
    assert_eq!(guards.status(&[]).await, 200);
    assert_eq!(guards.status(&[("content-length", "99999999999")]).await, 200, "the porch has its own limit");
    assert_eq!(guards.status(&[("host", "evil.example")]).await, 403);
    assert_eq!(guards.status(&[EVIL_ORIGIN]).await, 403);
    let page = guards.check_request(post(&[("origin", "http://localhost:3000")])).await;
    assert_eq!(page.status(), 200);
    assert_eq!(
        page.header(&guards, "access-control-allow-origin"),
        None,
        "no page was told that it may read"
    );
    assert_eq!(page.header(&guards, "x-frame-options").as_deref(), Some("DENY"));
    let ask = GuardTestRequest { principal: Some(Principal::new("ada")), ..post(&[]) };
    assert_eq!(guards.check_request(ask).await.principal_id(), "ada", "who was identified in front stays");
    assert!(size_of::<Admission>() <= 64 && size_of::<Result<Admission, Box<GuardRejection>>>() <= 64);
}

/// C37, S1-114 … S1-118: whatever else is wrong, the first thing in the order is what is told.
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
    let stranger = GuardTestRequest { peer: Some("203.0.113.9"), ..post(&large_and_evil) };
    assert_eq!(
        guards.check_request(stranger).await.rejection().reason,
        RejectReason::TooLarge { limit: 100 }
    );
    let stranger = GuardTestRequest { peer: Some("203.0.113.9"), ..post(&evil) };
    assert_eq!(guards.check_request(stranger).await.rejection().reason, RejectReason::Address);
    let good = guards.check_request(post(&[APP_ORIGIN, BASIC, KEY, ("content-length", "100")])).await;
    assert_eq!(good.status(), 200);
    assert_eq!(
        good.header(&guards, "access-control-allow-origin").as_deref(),
        Some("https://app.example.com")
    );
    assert_eq!(good.header(&guards, "vary").as_deref(), Some("Origin"));
}

#[tokio::test]
async fn a_refusal_says_what_would_help() {
    let guards = all_guards();
    let basic = guards.check_request(post(&[APP_ORIGIN, BAD_BASIC, BAD_KEY])).await;
    let challenge = basic.header(&guards, "www-authenticate").unwrap();
    assert_eq!(challenge, "Basic realm=\"test\", charset=\"UTF-8\"");
    assert_eq!(
        basic.header(&guards, "access-control-allow-origin").as_deref(),
        Some("https://app.example.com"),
        "a page that may ask may also read why not"
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
async fn a_browser_may_ask_before_it_proves_anything() {
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
    assert_eq!(guards.check_request(options(&[])).await.status(), 401, "without an origin it is no browser");
    assert_eq!(guards.check_request(options(&[("origin", "http://localhost")])).await.status(), 401);
    assert_eq!(guards.check_request(options(&[APP_ORIGIN, ("host", "evil.example")])).await.status(), 403);
}

#[tokio::test]
async fn a_star_opens_origins_but_no_hosts() {
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
async fn addresses_are_those_of_the_connection_unless_a_proxy_of_ours_says_otherwise() {
    let mut guards = guards(|guards| guards.addresses.set(["192.0.2.0/24"]).unwrap());
    let from = |peer: Option<&'static str>, lines| GuardTestRequest { peer, ..post(lines) };
    let forged: &[(&str, &str)] = &[("x-forwarded-for", "192.0.2.1")];
    assert_eq!(guards.check_request(from(Some("192.0.2.7"), &[])).await.status(), 200);
    assert_eq!(guards.check_request(from(Some("127.0.0.1"), forged)).await.status(), 403);
    let unknown = guards.check_request(from(None, forged)).await;
    assert_eq!(unknown.rejection().reason, RejectReason::Address);
    assert!(unknown.rejection().message.contains("not known"));
    guards.trusted_proxies.set("127.0.0.1").unwrap();
    let passed = guards.check_request(from(Some("127.0.0.1"), forged)).await;
    let GuardOutcome::Admitted(pass) = &passed else { panic!("{passed:?}") };
    assert_eq!(pass.client, "192.0.2.1".parse().ok());
    assert_eq!(
        guards.check_request(from(Some("127.0.0.1"), &[])).await.status(),
        403,
        "the proxy itself is not listed"
    );
    let secure = from(Some("127.0.0.1"), &[("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "https")]);
    let hsts = "max-age=31536000; includeSubDomains";
    let told = guards.check_request(secure).await.header(&guards, "strict-transport-security");
    assert_eq!(told.as_deref(), Some(hsts));
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
    assert_eq!(guards.status(&[b]).await, 200, "somebody else is not limited");
    assert_eq!(
        guards.status(&[("authorization", "Bearer c")]).await,
        401,
        "a wrong token costs nobody anything"
    );
}

#[tokio::test]
async fn a_token_opens_and_near_misses_do_not() {
    let guards = guards(|guards| {
        let tokens = [Token::new("your-token"), Token::new("guest").profile(Profile::readonly())];
        guards.set_tokens(tokens).unwrap();
    });
    let as_ = |value: &'static str| [("authorization", value)];
    assert_eq!(guards.status(&as_("Bearer your-token")).await, 200);
    assert_eq!(guards.status(&as_("bEaReR your-token")).await, 200);
    for miss in [
        "Bearer your-toke",
        "Bearer your-token1",
        "Bearer Your-token",
        "Bearer your-token your-token",
        "Bearer  your-token",
        "Bearer your-token,",
        "Bearer \"your-token\"",
        "Bearer",
        "your-token",
        "Basic your-token",
        "Token your-token",
        "Bearer=your-token",
        "Basic eW91ci10b2tlbjo=",
        "Bearer eW91ci10b2tlbg==",
        "",
    ] {
        assert_eq!(guards.status(&as_(miss)).await, 401, "{miss:?}");
    }
    let (good, bad) = (("authorization", "Bearer your-token"), ("authorization", "Bearer x"));
    assert_eq!(guards.status(&[good, bad]).await, 401);
    assert_eq!(guards.status(&[bad, good]).await, 401);
    assert_eq!(guards.status(&[good, good]).await, 401);
    assert_eq!(guards.status(&[("x-api-key", "your-token")]).await, 401);
    assert_eq!(guards.status(&[("cookie", "token=your-token")]).await, 401);
    let none = guards.check_request(post(&[])).await;
    assert_eq!(none.header(&guards, "www-authenticate").as_deref(), Some("Bearer"));
    let wrong = guards.check_request(post(&[bad])).await;
    assert_eq!(wrong.header(&guards, "www-authenticate").as_deref(), Some("Bearer error=\"invalid_token\""));
    let GuardOutcome::Admitted(guest) = guards.check_request(post(&as_("Bearer guest"))).await else {
        panic!("the guest is known")
    };
    assert_eq!(guest.principal.profile(), Some(&Profile::readonly()));
    assert!(guest.principal.id().is_some_and(|id| id.starts_with("token:")));
}

/// H11: those who try are slowed down; those who know are not.
#[tokio::test]
async fn wrong_credentials_are_refused_more_and_more() {
    let clock = Clock::manual();
    let mut guards = Guards::new(&clock);
    guards.set_tokens(["right"]).unwrap();
    let mut statuses = Vec::new();
    for n in 0..60 {
        let (forged, token) = (format!("10.0.0.{n}"), format!("Bearer wrong{n}"));
        statuses.push(guards.status(&[("x-forwarded-for", &forged), ("authorization", &token)]).await);
    }
    assert_eq!(statuses, [[401; 50].as_slice(), &[429; 10]].concat());
    let refused = guards.check_request(post(&[("authorization", "Bearer no")])).await;
    assert_eq!(refused.rejection().reason, RejectReason::TooManyFailures(CredentialKind::Bearer));
    assert_eq!(refused.header(&guards, "retry-after").as_deref(), Some("2"));
    assert_eq!(guards.status(&[("authorization", "Bearer right")]).await, 200);
    assert_eq!(guards.status(&[]).await, 401, "to ask what is wanted is no failure");
    let other = GuardTestRequest { peer: Some("127.0.0.9"), ..post(&[("authorization", "Bearer no")]) };
    assert_eq!(guards.check_request(other).await.status(), 401);
    clock.advance(Duration::from_secs(2));
    assert_eq!(guards.status(&[("authorization", "Bearer no")]).await, 401);
    assert_eq!(guards.status(&[("authorization", "Bearer no")]).await, 429);
}

#[tokio::test]
async fn a_hashed_password_is_proven_before_the_key_is_asked_for() {
    let guards = guards(|guards| {
        guards.users.add("admin", &hash("secret")).unwrap();
        let keys = ApiKeys::provider(|key, request| {
            request.set("tenant", 7);
            key == "k1"
        });
        guards.set_api_keys(Some(keys)).unwrap();
    });
    for round in ["first", "remembered"] {
        let why = |got: GuardOutcome| got.rejection().reason;
        assert_eq!(
            why(guards.check_request(post(&[BAD_BASIC])).await),
            RejectReason::Credentials(CredentialKind::Basic),
            "{round}"
        );
        assert_eq!(
            why(guards.check_request(post(&[BAD_BASIC, BAD_KEY])).await),
            RejectReason::Credentials(CredentialKind::Basic),
            "{round}"
        );
        assert_eq!(
            why(guards.check_request(post(&[BASIC])).await),
            RejectReason::Credentials(CredentialKind::ApiKey),
            "{round}"
        );
        assert_eq!(
            why(guards.check_request(post(&[BASIC, BAD_KEY])).await),
            RejectReason::Credentials(CredentialKind::ApiKey),
            "{round}"
        );
        let GuardOutcome::Admitted(pass) = guards.check_request(post(&[BASIC, KEY])).await else {
            panic!("both are right")
        };
        assert_eq!(pass.principal.attribute("tenant"), Some(&json!(7)));
    }
}

#[tokio::test]
async fn any_one_kind_can_be_enough() {
    let bearer = |value: &'static str| ("authorization", value);
    for password in ["secret".to_owned(), hash("secret")] {
        let guards = guards(|guards| {
            guards.mode = CredentialMode::Any;
            guards.users.add("admin", &password).unwrap();
            guards.set_tokens([Token::new("t1").subject("ops")]).unwrap();
            guards.set_api_keys(Some(ApiKeys::list([Token::new("k1").subject("app")]))).unwrap();
        });
        for (lines, who) in [
            (&[BASIC][..], "user:admin"),
            (&[bearer("Bearer t1")], "ops"),
            (&[KEY], "app"),
            (&[bearer("Bearer k1")], "app"),
            (&[BAD_BASIC, KEY], "app"),
            (&[bearer("Bearer no"), KEY], "app"),
            (&[BASIC, BAD_KEY], "user:admin"),
        ] {
            assert_eq!(guards.check_request(post(lines)).await.principal_id(), who, "{lines:?}");
        }
        for lines in [
            &[][..],
            &[BAD_BASIC],
            &[BAD_KEY],
            &[bearer("Bearer no")],
            &[BAD_BASIC, BAD_KEY],
            &[BASIC, BASIC],
        ] {
            let got = guards.check_request(post(lines)).await;
            assert_eq!(got.status(), 401, "{lines:?}");
            assert!(got.header(&guards, "www-authenticate").is_some(), "{lines:?}");
        }
        let none = guards.check_request(post(&[])).await;
        let mut headers = HeaderMap::new();
        none.rejection().apply_headers(&mut headers);
        assert_eq!(headers.get_all("www-authenticate").iter().count(), 2, "a client may choose");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_admits_nobody() {
    let keys = |keys| guards(|guards| guards.set_api_keys(Some(keys)).unwrap());
    let stalls = keys(ApiKeys::provider(|_, _| std::future::pending::<bool>()));
    let got = stalls.check_request(post(&[KEY])).await;
    assert_eq!((got.status(), got.rejection().reason), (503, RejectReason::Unavailable));
    assert_eq!(got.header(&stalls, "retry-after").as_deref(), Some("5"));
    let told = keys(ApiKeys::provider(|_, _| Err(KeyError::new("Rate limit exceeded"))));
    let got = told.check_request(post(&[KEY])).await;
    assert_eq!((got.status(), got.rejection().message.as_ref()), (401, "Rate limit exceeded"));
    let never = keys(ApiKeys::provider(|_, _| -> bool { panic!("it must not be asked") }));
    for lines in [&[][..], &[("x-api-key", "a%0d%0ab")], &[KEY, KEY], &[("authorization", "Basic YTpi")]] {
        assert_eq!(
            never.check_request(post(lines)).await.rejection().reason,
            RejectReason::Credentials(CredentialKind::ApiKey),
            "{lines:?}"
        );
    }
    let bearer = ("authorization", "Bearer k1");
    assert_eq!(never.status(&[bearer, bearer, KEY]).await, 401, "two answers to one question are none");
}

#[tokio::test]
async fn a_key_with_a_token_stands_beside_it_and_keeps_its_view() {
    let guards = guards(|guards| {
        guards.set_tokens([Token::new("t1").profile(Profile::readonly())]).unwrap();
        guards.set_api_keys(Some(ApiKeys::provider(|key, _| key == "k1" || key == "t1"))).unwrap();
    });
    let token = ("authorization", "Bearer t1");
    assert_eq!(guards.status(&[token]).await, 401, "one secret is not two");
    let GuardOutcome::Admitted(pass) = guards.check_request(post(&[token, KEY])).await else {
        panic!("both are right")
    };
    assert!(pass.principal.id().is_some_and(|id| id.starts_with("token:")));
    assert_eq!(pass.principal.profile(), Some(&Profile::readonly()));
}

#[test]
fn settings_that_cannot_work_are_told() {
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
    assert!(guards.api_keys().is_none(), "an empty list asks for nothing");
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

#[test]
fn a_length_is_digits_said_once() {
    let of = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::CONTENT_LENGTH, value.parse().unwrap());
        }
        content_length(&headers)
    };
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(of(&["100"]), Ok(Some(100)));
    for wrong in [&["+1"][..], &["-1"], &["x"], &[""], &["1, 1"], &["1", "1"], &["99999999999999999999"]] {
        assert_eq!(of(wrong), Err(()), "{wrong:?}");
    }
}

proptest! {
    /// Whatever the head says, it is judged, and nobody comes in who proves nothing.
    #[test]
    fn any_head_is_judged_and_none_opens_by_accident(
        values in proptest::collection::vec((0_usize..8, proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
    ) {
        const NAMES: [&str; 8] = [
            "authorization", "x-api-key", "origin", "x-forwarded-for", "content-length",
            "x-forwarded-proto", "access-control-request-headers", "x-real-ip",
        ];
        let mut guards = all_guards();
        guards.trusted_proxies.set("127.0.0.1").unwrap();
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
