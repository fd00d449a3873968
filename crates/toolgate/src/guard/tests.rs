//! The whole room: what is asked for, in which order, and what is said.

use std::time::Duration;

use argon2::{Argon2, Params, PasswordHasher as _};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::profile::Profile;

/// What a request got: a status and who it is, or why not.
#[derive(Debug)]
enum Got {
    In(Pass),
    Preflight(HeaderMap),
    Out(Box<Refusal>),
}

impl Got {
    fn status(&self) -> u16 {
        match self {
            Got::In(_) => 200,
            Got::Preflight(_) => 204,
            Got::Out(refusal) => refusal.why.status(),
        }
    }

    fn who(&self) -> &str {
        match self {
            Got::In(pass) => pass.principal.id().unwrap_or("anonymous"),
            _ => "out",
        }
    }

    fn refusal(&self) -> &Refusal {
        match self {
            Got::Out(refusal) => refusal,
            _ => panic!("{self:?} is no refusal"),
        }
    }

    /// A header of the answer, as the porch makes it.
    fn header(&self, guards: &Guards, name: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        match self {
            Got::In(pass) => guards.dress(&mut headers, &pass.dress),
            Got::Preflight(all) => headers.clone_from(all),
            Got::Out(refusal) => {
                guards.dress(&mut headers, &refusal.dress);
                refusal.explain(&mut headers);
            }
        }
        headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    }
}

/// A request as the porch sees it: a method and header lines.
struct Ask<'a> {
    method: Method,
    lines: &'a [(&'static str, &'a str)],
    peer: Option<&'a str>,
    principal: Option<Principal>,
    body: &'static str,
}

fn post<'a>(lines: &'a [(&'static str, &'a str)]) -> Ask<'a> {
    Ask { method: Method::POST, lines, peer: Some("127.0.0.1"), principal: None, body: "{}" }
}

impl Guards {
    async fn asked(&self, ask: Ask<'_>) -> Got {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        for (name, value) in ask.lines {
            if *name == "host" {
                headers.insert(*name, value.parse().unwrap());
            } else {
                headers.append(*name, value.parse().unwrap());
            }
        }
        let head = Head {
            method: &ask.method,
            uri: &Uri::from_static("/mcp"),
            headers: &headers,
            glance: &Glance::at(&headers),
            peer: ask.peer.and_then(|peer| peer.parse().ok()),
            is_tls: false,
            principal: ask.principal.as_ref(),
            server: "test",
            is_literal: false,
        };
        match self.go(&head, ask.body).await {
            Ok(got) => got,
            Err(refusal) => Got::Out(refusal),
        }
    }

    async fn go(&self, head: &Head<'_>, body: &'static str) -> Result<Got, Box<Refusal>> {
        let gate = match self.gate(head)? {
            Gate::Prove(claim) => self.prove(claim).await?,
            gate => gate,
        };
        match gate {
            Gate::Open(pass) => Ok(Got::In(pass)),
            Gate::Preflight(headers) => Ok(Got::Preflight(*headers)),
            Gate::Key(claim) => {
                let request = KeyRequest::new(head.server).with_body(body).with_remote_addr(claim.client());
                self.key(claim, request).await.map(Got::In)
            }
            Gate::Prove(_) => panic!("a password is proven once"),
        }
    }

    async fn status(&self, lines: &[(&'static str, &str)]) -> u16 {
        self.asked(post(lines)).await.status()
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
const APP: (&str, &str) = ("origin", "https://app.example.com");
const EVIL: (&str, &str) = ("origin", "https://evil.io");

/// The server of the seed with everything at once.
fn enterprise() -> Guards {
    guards(|guards| {
        guards.cors.set(["https://app.example.com"]).unwrap();
        guards.set_body_limit(100);
        guards.users.add("admin", "secret").unwrap();
        guards.set_keys(Some(ApiKeys::provider(|key, _| key == "k1"))).unwrap();
    })
}

#[tokio::test]
async fn without_settings_only_hosts_and_origins_are_looked_at() {
    let guards = Guards::default();
    assert_eq!(guards.status(&[]).await, 200);
    assert_eq!(guards.status(&[("content-length", "99999999999")]).await, 200, "the porch has its own limit");
    assert_eq!(guards.status(&[("host", "evil.example")]).await, 403);
    assert_eq!(guards.status(&[EVIL]).await, 403);
    let page = guards.asked(post(&[("origin", "http://localhost:3000")])).await;
    assert_eq!(page.status(), 200);
    assert_eq!(
        page.header(&guards, "access-control-allow-origin"),
        None,
        "no page was told that it may read"
    );
    assert_eq!(page.header(&guards, "x-frame-options").as_deref(), Some("DENY"));
    let ask = Ask { principal: Some(Principal::new("ada")), ..post(&[]) };
    assert_eq!(guards.asked(ask).await.who(), "ada", "who was identified in front stays");
    assert!(size_of::<Gate>() <= 64 && size_of::<Result<Gate, Box<Refusal>>>() <= 64);
}

/// C37, S1-114 … S1-118: whatever else is wrong, the first thing in the order is what is told.
#[tokio::test]
async fn the_order_is_always_the_same() {
    let mut guards = enterprise();
    guards.addresses.set("127.0.0.1").unwrap();
    let host = ("host", "evil.example");
    let large = ("content-length", "101");
    let (large_and_evil, evil) = ([large, EVIL], [EVIL, BAD_BASIC]);
    let rows: [(&[(&str, &str)], Why); 9] = [
        (&[host, large, EVIL, BAD_BASIC, BAD_KEY], Why::Host),
        (&[large, EVIL, BAD_BASIC, BAD_KEY], Why::TooLarge { limit: 100 }),
        (&[EVIL, BAD_BASIC, BAD_KEY], Why::Origin),
        (&[EVIL], Why::Origin),
        (&[APP, BAD_BASIC, BAD_KEY], Why::Credentials(Kind::Basic)),
        (&[APP], Why::Credentials(Kind::Basic)),
        (&[APP, KEY], Why::Credentials(Kind::Basic)),
        (&[APP, BASIC], Why::Credentials(Kind::ApiKey)),
        (&[APP, BASIC, BAD_KEY], Why::Credentials(Kind::ApiKey)),
    ];
    for (lines, why) in rows {
        assert_eq!(guards.asked(post(lines)).await.refusal().why, why, "{lines:?}");
    }
    let stranger = Ask { peer: Some("203.0.113.9"), ..post(&large_and_evil) };
    assert_eq!(guards.asked(stranger).await.refusal().why, Why::TooLarge { limit: 100 });
    let stranger = Ask { peer: Some("203.0.113.9"), ..post(&evil) };
    assert_eq!(guards.asked(stranger).await.refusal().why, Why::Address);
    let good = guards.asked(post(&[APP, BASIC, KEY, ("content-length", "100")])).await;
    assert_eq!(good.status(), 200);
    assert_eq!(
        good.header(&guards, "access-control-allow-origin").as_deref(),
        Some("https://app.example.com")
    );
    assert_eq!(good.header(&guards, "vary").as_deref(), Some("Origin"));
}

#[tokio::test]
async fn a_refusal_says_what_would_help() {
    let guards = enterprise();
    let basic = guards.asked(post(&[APP, BAD_BASIC, BAD_KEY])).await;
    let challenge = basic.header(&guards, "www-authenticate").unwrap();
    assert_eq!(challenge, "Basic realm=\"test\", charset=\"UTF-8\"");
    assert_eq!(
        basic.header(&guards, "access-control-allow-origin").as_deref(),
        Some("https://app.example.com"),
        "a page that may ask may also read why not"
    );
    assert!(basic.header(&guards, "access-control-expose-headers").unwrap().contains("WWW-Authenticate"));
    let key = guards.asked(post(&[BASIC, BAD_KEY])).await;
    assert_eq!(key.refusal().message, "Invalid API key");
    assert_eq!(key.header(&guards, "www-authenticate").as_deref(), Some("Bearer error=\"invalid_token\""));
    let evil = guards.asked(post(&[EVIL])).await;
    assert!(evil.refusal().message.contains("`cors`") && evil.refusal().message.contains("`allow_origin`"));
    assert_eq!(evil.header(&guards, "access-control-allow-origin"), None);
    assert_eq!(evil.header(&guards, "x-content-type-options").as_deref(), Some("nosniff"));
    let large = guards.asked(post(&[("content-length", "101")])).await;
    assert_eq!(large.refusal().message, "Request body too large (max: 100 bytes)");
    assert_eq!(guards.status(&[("content-length", "x")]).await, 400);
}

#[tokio::test]
async fn a_browser_may_ask_before_it_proves_anything() {
    let guards = enterprise();
    let options =
        |lines: &'static [(&'static str, &'static str)]| Ask { method: Method::OPTIONS, ..post(lines) };
    let asked = options(&[
        APP,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type, mcp-param-region"),
    ]);
    let answer = guards.asked(asked).await;
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
    assert_eq!(guards.asked(options(&[APP])).await.status(), 204, "also without saying for which method");
    assert_eq!(guards.asked(options(&[EVIL])).await.status(), 403);
    assert_eq!(guards.asked(options(&[])).await.status(), 401, "without an origin it is no browser");
    assert_eq!(guards.asked(options(&[("origin", "http://localhost")])).await.status(), 401);
    assert_eq!(guards.asked(options(&[APP, ("host", "evil.example")])).await.status(), 403);
}

#[tokio::test]
async fn a_star_opens_origins_but_no_hosts() {
    let mut guards = guards(|guards| guards.cors.set("*").unwrap());
    let page = guards.asked(post(&[("origin", "https://z.io")])).await;
    assert_eq!(page.header(&guards, "access-control-allow-origin").as_deref(), Some("https://z.io"));
    assert_eq!(guards.status(&[("origin", "https://z.io"), ("host", "z.io")]).await, 403);
    assert_eq!(guards.status(&[("origin", "https://z.io"), ("origin", "https://z.io")]).await, 403);
    guards.cors.literal(true);
    let page = guards.asked(post(&[("origin", "https://z.io")])).await;
    assert_eq!(page.header(&guards, "access-control-allow-origin").as_deref(), Some("*"));
    assert_eq!(page.header(&guards, "vary"), None);
}

#[tokio::test]
async fn addresses_are_those_of_the_connection_unless_a_proxy_of_ours_says_otherwise() {
    let mut guards = guards(|guards| guards.addresses.set(["192.0.2.0/24"]).unwrap());
    let from = |peer: Option<&'static str>, lines| Ask { peer, ..post(lines) };
    let forged: &[(&str, &str)] = &[("x-forwarded-for", "192.0.2.1")];
    assert_eq!(guards.asked(from(Some("192.0.2.7"), &[])).await.status(), 200);
    assert_eq!(guards.asked(from(Some("127.0.0.1"), forged)).await.status(), 403);
    let unknown = guards.asked(from(None, forged)).await;
    assert_eq!(unknown.refusal().why, Why::Address);
    assert!(unknown.refusal().message.contains("not known"));
    guards.proxies.set("127.0.0.1").unwrap();
    let passed = guards.asked(from(Some("127.0.0.1"), forged)).await;
    let Got::In(pass) = &passed else { panic!("{passed:?}") };
    assert_eq!(pass.client, "192.0.2.1".parse().ok());
    assert_eq!(
        guards.asked(from(Some("127.0.0.1"), &[])).await.status(),
        403,
        "the proxy itself is not listed"
    );
    let secure = from(Some("127.0.0.1"), &[("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "https")]);
    let hsts = "max-age=31536000; includeSubDomains";
    let told = guards.asked(secure).await.header(&guards, "strict-transport-security");
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
    let refused = guards.asked(post(&[])).await;
    assert_eq!((refused.status(), refused.refusal().why), (429, Why::TooMany));
    assert_eq!(refused.header(&guards, "retry-after").as_deref(), Some("1"));
    assert_eq!(guards.asked(Ask { peer: Some("127.0.0.2"), ..post(&[]) }).await.status(), 200);
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
    let none = guards.asked(post(&[])).await;
    assert_eq!(none.header(&guards, "www-authenticate").as_deref(), Some("Bearer"));
    let wrong = guards.asked(post(&[bad])).await;
    assert_eq!(wrong.header(&guards, "www-authenticate").as_deref(), Some("Bearer error=\"invalid_token\""));
    let Got::In(guest) = guards.asked(post(&as_("Bearer guest"))).await else { panic!("the guest is known") };
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
    let refused = guards.asked(post(&[("authorization", "Bearer no")])).await;
    assert_eq!(refused.refusal().why, Why::TooManyFailures(Kind::Bearer));
    assert_eq!(refused.header(&guards, "retry-after").as_deref(), Some("2"));
    assert_eq!(guards.status(&[("authorization", "Bearer right")]).await, 200);
    assert_eq!(guards.status(&[]).await, 401, "to ask what is wanted is no failure");
    let other = Ask { peer: Some("127.0.0.9"), ..post(&[("authorization", "Bearer no")]) };
    assert_eq!(guards.asked(other).await.status(), 401);
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
        guards.set_keys(Some(keys)).unwrap();
    });
    for round in ["first", "remembered"] {
        let why = |got: Got| got.refusal().why;
        assert_eq!(why(guards.asked(post(&[BAD_BASIC])).await), Why::Credentials(Kind::Basic), "{round}");
        assert_eq!(
            why(guards.asked(post(&[BAD_BASIC, BAD_KEY])).await),
            Why::Credentials(Kind::Basic),
            "{round}"
        );
        assert_eq!(why(guards.asked(post(&[BASIC])).await), Why::Credentials(Kind::ApiKey), "{round}");
        assert_eq!(
            why(guards.asked(post(&[BASIC, BAD_KEY])).await),
            Why::Credentials(Kind::ApiKey),
            "{round}"
        );
        let Got::In(pass) = guards.asked(post(&[BASIC, KEY])).await else { panic!("both are right") };
        assert_eq!(pass.principal.attribute("tenant"), Some(&json!(7)));
    }
}

#[tokio::test]
async fn any_one_kind_can_be_enough() {
    let bearer = |value: &'static str| ("authorization", value);
    for password in ["secret".to_owned(), hash("secret")] {
        let guards = guards(|guards| {
            guards.mode = Mode::Any;
            guards.users.add("admin", &password).unwrap();
            guards.set_tokens([Token::new("t1").subject("ops")]).unwrap();
            guards.set_keys(Some(ApiKeys::list([Token::new("k1").subject("app")]))).unwrap();
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
            assert_eq!(guards.asked(post(lines)).await.who(), who, "{lines:?}");
        }
        for lines in [
            &[][..],
            &[BAD_BASIC],
            &[BAD_KEY],
            &[bearer("Bearer no")],
            &[BAD_BASIC, BAD_KEY],
            &[BASIC, BASIC],
        ] {
            let got = guards.asked(post(lines)).await;
            assert_eq!(got.status(), 401, "{lines:?}");
            assert!(got.header(&guards, "www-authenticate").is_some(), "{lines:?}");
        }
        let none = guards.asked(post(&[])).await;
        let mut headers = HeaderMap::new();
        none.refusal().explain(&mut headers);
        assert_eq!(headers.get_all("www-authenticate").iter().count(), 2, "a client may choose");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_closes_the_door() {
    let keys = |keys| guards(|guards| guards.set_keys(Some(keys)).unwrap());
    let stalls = keys(ApiKeys::provider(|_, _| std::future::pending::<bool>()));
    let got = stalls.asked(post(&[KEY])).await;
    assert_eq!((got.status(), got.refusal().why), (503, Why::Unavailable));
    assert_eq!(got.header(&stalls, "retry-after").as_deref(), Some("5"));
    let told = keys(ApiKeys::provider(|_, _| Err(KeyError::new("Rate limit exceeded"))));
    let got = told.asked(post(&[KEY])).await;
    assert_eq!((got.status(), got.refusal().message.as_ref()), (401, "Rate limit exceeded"));
    let never = keys(ApiKeys::provider(|_, _| -> bool { panic!("it must not be asked") }));
    for lines in [&[][..], &[("x-api-key", "a%0d%0ab")], &[KEY, KEY], &[("authorization", "Basic YTpi")]] {
        assert_eq!(never.asked(post(lines)).await.refusal().why, Why::Credentials(Kind::ApiKey), "{lines:?}");
    }
    let bearer = ("authorization", "Bearer k1");
    assert_eq!(never.status(&[bearer, bearer, KEY]).await, 401, "two answers to one question are none");
}

#[tokio::test]
async fn a_key_with_a_token_stands_beside_it_and_keeps_its_view() {
    let guards = guards(|guards| {
        guards.set_tokens([Token::new("t1").profile(Profile::readonly())]).unwrap();
        guards.set_keys(Some(ApiKeys::provider(|key, _| key == "k1" || key == "t1"))).unwrap();
    });
    let token = ("authorization", "Bearer t1");
    assert_eq!(guards.status(&[token]).await, 401, "one secret is not two");
    let Got::In(pass) = guards.asked(post(&[token, KEY])).await else { panic!("both are right") };
    assert!(pass.principal.id().is_some_and(|id| id.starts_with("token:")));
    assert_eq!(pass.principal.profile(), Some(&Profile::readonly()));
}

#[test]
fn settings_that_cannot_work_are_told() {
    let mut guards = Guards::default();
    guards.users.add("admin", "secret").unwrap();
    guards.set_tokens(["t1"]).unwrap();
    assert!(guards.check().is_err());
    guards.mode = Mode::Any;
    assert!(guards.check().is_ok());
    assert!(guards.set_tokens(["sha256:zz"]).is_err());
    assert!(guards.set_keys(Some(ApiKeys::list(["sha256:zz"]))).is_err());
    assert!(guards.set_headers(SecurityHeaders::default().with("a b", "c")).is_err());
    guards.set_body_limit(0);
    assert_eq!(guards.body_limit, None);
    guards.set_keys(Some(ApiKeys::list(Vec::<String>::new()))).unwrap();
    assert!(guards.keys().is_none(), "an empty list asks for nothing");
}

#[test]
fn no_secret_is_shown() {
    let mut guards = enterprise();
    guards.mode = Mode::Any;
    guards.set_tokens(["hunter2"]).unwrap();
    guards.users.add("ops", "hunter3").unwrap();
    guards.users.add("ada", &hash("hunter4")).unwrap();
    guards.set_keys(Some(ApiKeys::list(["hunter5"]))).unwrap();
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
        announced(&headers)
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
        let mut guards = enterprise();
        guards.proxies.set("127.0.0.1").unwrap();
        let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("localhost"))]);
        for (name, value) in &values {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.append(NAMES[*name], value);
            }
        }
        for method in [Method::POST, Method::GET, Method::OPTIONS] {
            let head = Head {
                method: &method,
                uri: &Uri::from_static("/mcp"),
                headers: &headers,
                glance: &Glance::at(&headers),
                peer: "127.0.0.1".parse().ok(),
                is_tls: false,
                principal: None,
                server: "test",
                is_literal: false,
            };
            prop_assert!(guards.gate(&head).is_err());
        }
    }
}
