//! Passwords, tokens and API keys, alone and together.

use super::*;

#[tokio::test]
async fn a_token_is_accepted_and_near_misses_are_not() {
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
    let GuardOutcome::Granted(guest) = guards.check_request(post(&as_("Bearer guest"))).await else {
        panic!("the guest is known")
    };
    assert_eq!(guest.principal.profile(), Some(&Profile::readonly()));
    assert!(guest.principal.id().is_some_and(|id| id.starts_with("token:")));
}

/// H11: guessing is slowed down, valid credentials are not.
#[tokio::test]
async fn wrong_credentials_are_rate_limited() {
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
    assert_eq!(guards.status(&[]).await, 401, "missing credentials do not count as a failure");
    let other = GuardTestRequest { peer: Some("127.0.0.9"), ..post(&[("authorization", "Bearer no")]) };
    assert_eq!(guards.check_request(other).await.status(), 401);
    clock.advance(Duration::from_secs(2));
    assert_eq!(guards.status(&[("authorization", "Bearer no")]).await, 401);
    assert_eq!(guards.status(&[("authorization", "Bearer no")]).await, 429);
}

#[tokio::test]
async fn a_hashed_password_is_checked_before_the_key() {
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
        let GuardOutcome::Granted(caller) = guards.check_request(post(&[BASIC, KEY])).await else {
            panic!("both are right")
        };
        assert_eq!(caller.principal.attribute("tenant"), Some(&json!(7)));
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
    let limited = keys(ApiKeys::provider(|_, _| Err(KeyError::new("Rate limit exceeded"))));
    let got = limited.check_request(post(&[KEY])).await;
    assert_eq!((got.status(), got.rejection().message.as_ref()), (401, "Rate limit exceeded"));
    let never = keys(ApiKeys::provider(|_, _| -> bool { panic!("it must not be called") }));
    for lines in [&[][..], &[("x-api-key", "a%0d%0ab")], &[KEY, KEY], &[("authorization", "Basic YTpi")]] {
        assert_eq!(
            never.check_request(post(lines)).await.rejection().reason,
            RejectReason::Credentials(CredentialKind::ApiKey),
            "{lines:?}"
        );
    }
    let bearer = ("authorization", "Bearer k1");
    assert_eq!(never.status(&[bearer, bearer, KEY]).await, 401, "a repeated header is rejected");
}

#[tokio::test]
async fn a_key_and_a_token_are_both_required_and_keep_the_profile() {
    let guards = guards(|guards| {
        guards.set_tokens([Token::new("t1").profile(Profile::readonly())]).unwrap();
        guards.set_api_keys(Some(ApiKeys::provider(|key, _| key == "k1" || key == "t1"))).unwrap();
    });
    let token = ("authorization", "Bearer t1");
    assert_eq!(guards.status(&[token]).await, 401, "one secret is not enough for both");
    let GuardOutcome::Granted(caller) = guards.check_request(post(&[token, KEY])).await else {
        panic!("both are right")
    };
    assert!(caller.principal.id().is_some_and(|id| id.starts_with("token:")));
    assert_eq!(caller.principal.profile(), Some(&Profile::readonly()));
}
