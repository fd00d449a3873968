//! H: credentials that are missing, wrong, doubled or somewhere else. K12, K13: passwords and providers under
//! attack. L: how often. G09: patterns of origins. S: what a profile hides.

use toolgate::{ApiKeys, KeyRequest, Profile, Rate, Token};

use super::*;

const TOKEN: &str = "s3cret-token-of-ada-0123456789";

fn echo() -> Post {
    Post::call("echo", r#"{"message":"x"}"#)
}

fn bearer(token: &str) -> Post {
    echo().with("Authorization", format!("Bearer {token}"))
}

/// A server that asks who is there.
async fn guarded(guard: impl FnOnce(&Server) -> Server) -> House {
    let ran = Arc::new(AtomicUsize::new(0));
    let server = guard(&fixture(&ran));
    assert_eq!(server.faults(), [""; 0]);
    House::serve(server, ran).await
}

impl House {
    /// A refusal for want of credentials: nothing runs, nothing is told.
    async fn refuses(&self, row: &str, post: &Post) -> Reply {
        let before = self.ran();
        let reply = self.post(post).await;
        let at = format!("{row}: {:?} answered by {} {}", post.shown(), reply.status, clip(&reply.body));
        assert_eq!(reply.status, 401, "{at}");
        assert!(reply.header("www-authenticate").is_some(), "{at}");
        assert_eq!(self.ran(), before, "{at}");
        let body = String::from_utf8_lossy(&reply.body);
        assert!(!body.contains("echo") && !body.contains(TOKEN), "{at}");
        reply.is_proper(&at);
        reply
    }
}

#[tokio::test]
async fn h01_h07_nobody_is_served_without_credentials() {
    let house = guarded(|server| server.with_tokens([TOKEN])).await;
    for verb in ["GET", "DELETE"] {
        house.refuses("H01", &Post::empty(verb)).await;
        house.refuses("H01", &Post::empty(verb).with("Mcp-Session-Id", "x")).await;
    }
    house.refuses("H01", &echo()).await;
    let mut pair = Post::empty("GET");
    pair.target = "/sse".into();
    house.refuses("H01 pair", &pair).await;
    for body in ["{", "[]", r#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#] {
        house.refuses("H07", &Post::new(body)).await;
    }
    // The body is not waited for.
    let mut long = echo();
    long.body = vec![b'x'; 16];
    let bytes =
        String::from_utf8(long.bytes()).unwrap().replace("Content-Length: 16", "Content-Length: 3000000");
    let reply = Reply::read(&house.send(bytes.as_bytes()).await);
    assert_eq!(reply.status, 401, "H07 3 MiB");
    assert_eq!(house.post(&bearer(TOKEN)).await.text(), "x");
}

#[tokio::test]
async fn h02_h04_h05_h09_near_misses() {
    let house = guarded(|server| server.with_tokens([TOKEN])).await;
    let (half, upper) = (&TOKEN[..TOKEN.len() / 2], TOKEN.to_uppercase());
    let near: Vec<String> = [
        "",
        "x",
        half,
        &upper,
        &format!("{TOKEN}x"),
        &format!("x{TOKEN}"),
        &format!("{TOKEN} {TOKEN}"),
        &format!("{TOKEN},{TOKEN}"),
        &format!("\"{TOKEN}\""),
        &format!("{TOKEN}="),
        "null",
        "undefined",
    ]
    .iter()
    .map(|token| format!("Bearer {token}"))
    .collect();
    for value in &near {
        house.refuses("H02", &echo().with("Authorization", value)).await;
    }
    for value in
        [TOKEN.to_owned(), format!("Token {TOKEN}"), format!("Bearer{TOKEN}"), format!("Basic {TOKEN}")]
    {
        house.refuses("H02 scheme", &echo().with("Authorization", value)).await;
    }
    house.refuses("H02 bytes", &echo().with("Authorization", b"Bearer \xff\xfe")).await;
    for (first, second) in [(TOKEN, "wrong"), ("wrong", TOKEN)] {
        let twice = bearer(first).with("Authorization", format!("Bearer {second}"));
        house.refuses("H04", &twice).await;
    }
    let mut query = echo();
    query.target = format!("/mcp?access_token={TOKEN}&token={TOKEN}");
    house.refuses("H05 query", &query).await;
    for name in ["Cookie", "X-Auth-Token", "X-Access-Token", "Proxy-Authorization", "X-API-Key"] {
        house.refuses("H05", &echo().with(name, format!("Bearer {TOKEN}"))).await;
        house.refuses("H05", &echo().with(name, TOKEN)).await;
    }
    assert_eq!(house.post(&echo().with("Authorization", format!("bEaReR {TOKEN}"))).await.text(), "x", "H09");
}

#[tokio::test]
async fn h03_k12_broken_basic() {
    let house =
        guarded(|server| server.with_basic_auth("ada", "pa:ss:word").with_basic_auth("bob", "é")).await;
    // `ada:pa:ss:word`, `bob:é`: the first colon parts them.
    for good in ["YWRhOnBhOnNzOndvcmQ=", "Ym9iOsOp"] {
        let reply = house.post(&echo().with("Authorization", format!("Basic {good}"))).await;
        assert_eq!(reply.text(), "x", "{good}");
    }
    for bad in [
        "",
        "=",
        "!!!",
        "YWRh",
        "YWRhOg==",
        "OnBhOnNzOndvcmQ=",
        "YWRhOnBh",
        "YWRhOnBhOnNzOndvcmQ",
        "YWRhOnBhOnNzOndvcmQ=x",
        "ada:pa:ss:word",
        "QURBOnBhOnNzOndvcmQ=",
        "Ym9iOmXMgQ==",
        "/////w==",
    ] {
        let reply = house.refuses("H03", &echo().with("Authorization", format!("Basic {bad}"))).await;
        let challenge = reply.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Basic realm=\"hostile\""), "{challenge}");
    }
}

#[tokio::test]
async fn k12_many_wrong_passwords_for_a_hash_do_not_starve_others() {
    // The hash of `right`, cheap enough for a test.
    const HASH: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$lQH9PdW3VXtTnJ0Q1rM0Z0wEWEN0PyRCmhVkKbnPvZQ";
    let house = guarded(|server| server.with_basic_auth("ada", HASH)).await;
    let attack: Vec<_> = (0..30)
        .map(|n| {
            let address = house.address;
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let post = echo().with("Authorization", format!("Basic {}", ["YWRhOng=", "YWRhOnk="][n % 2]));
                stream.write_all(&post.bytes()).await.unwrap();
                Reply::read(&rest(&mut stream).await).status
            })
        })
        .collect();
    let mut statuses = Vec::new();
    for one in attack {
        statuses.push(one.await.unwrap());
    }
    assert!(statuses.iter().all(|status| matches!(status, 401 | 429)), "{statuses:?}");
    assert!(statuses.contains(&429), "no more than a few are checked at once: {statuses:?}");
}

#[tokio::test]
async fn k13_a_provider_that_fails_lets_nobody_in() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let keys = ApiKeys::provider(move |key: String, request: KeyRequest| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match key.as_str() {
                "panic" => panic!("a provider fell over"),
                "stall" => std::future::pending().await,
                "error" => Err("not a number".parse::<u32>().unwrap_err().into()),
                key => {
                    assert_eq!(request.method(), Some("tools/call"));
                    Ok(key == TOKEN)
                }
            }
        }
    });
    let house = guarded(|server| server.with_api_keys(keys)).await;
    for key in ["panic", "stall", "error"] {
        let reply = house.post(&echo().with("X-API-Key", key)).await;
        assert_eq!(reply.status, 503, "{key}: {}", clip(&reply.body));
        assert!(!String::from_utf8_lossy(&reply.body).contains("number"), "{}", clip(&reply.body));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    // What cannot be a key is not asked about.
    for key in [b"a\x01b".as_slice(), b"\xff", b"", &[b'x'; 9000]] {
        let reply = house.post(&echo().with("X-API-Key", key)).await;
        assert!(matches!(reply.status, 400 | 401 | 431), "{} for {key:?}", reply.status);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(house.post(&echo().with("X-API-Key", TOKEN)).await.text(), "x");
    assert_eq!(house.ran(), 1);
}

#[tokio::test]
async fn h08_spellings_and_proxies_open_no_door() {
    let house = guarded(|server| server.with_tokens([TOKEN])).await;
    for target in [
        "/mcp/",
        "/mcp//",
        "//mcp",
        "/./mcp",
        "/mcp/.",
        "/x/../mcp",
        "/%6dcp",
        "/mcp%2f",
        "/MCP",
        "/mcp;x",
        "/mcp?x",
        "/mcp%00",
        "/mcp#x",
    ] {
        let mut post = echo();
        post.target = target.into();
        let before = house.ran();
        let reply = house.post(&post).await;
        assert!(matches!(reply.status, 400 | 401 | 404), "H08 {target}: {}", reply.status);
        assert_eq!(house.ran(), before, "H08 {target}");
    }
    for name in [
        "X-Forwarded-For",
        "X-Real-IP",
        "Forwarded",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Forwarded-User",
        "X-Remote-User",
    ] {
        house.refuses("H08", &echo().with(name, "127.0.0.1")).await;
    }
}

#[tokio::test]
async fn h11_whoever_guesses_is_told_to_wait() {
    let house = guarded(|server| server.with_tokens([TOKEN])).await;
    let mut statuses = Vec::new();
    for n in 0..60 {
        let guess = bearer(&format!("guess-{n}")).with("X-Forwarded-For", format!("10.0.0.{n}"));
        statuses.push(house.post(&guess).await.status);
    }
    assert_eq!(statuses[..20], [401; 20], "H11: a few mistakes are human");
    assert_eq!(statuses[55..], [429; 5], "H11");
    assert_eq!(house.post(&bearer(TOKEN)).await.text(), "x", "who knows the token is let in all the same");
}

#[tokio::test]
async fn h13_l01_l02_how_often_one_may_call() {
    let rate = Rate::per_minute(30);
    let house = guarded(|server| {
        server.with_tokens([Token::new("ada").subject("ada"), Token::new("bob").subject("bob")]);
        server.with_rate_per_principal(rate)
    })
    .await;
    let mut counts = (0, 0);
    for n in 0..50 {
        let reply = house.post(&bearer("ada").with("X-Forwarded-For", format!("10.0.0.{n}"))).await;
        match reply.status {
            200 => counts.0 += 1,
            429 => {
                let wait: u32 = reply.header("retry-after").unwrap().parse().unwrap();
                assert!(wait >= 1);
                counts.1 += 1;
            }
            other => panic!("H13: {other}"),
        }
    }
    assert!((30..=32).contains(&counts.0) && counts.1 >= 18, "L01: {counts:?}");
    assert_eq!(house.post(&bearer("bob")).await.text(), "x", "H13: somebody else is not limited");

    // Behind a proxy that is believed, the rightmost address that is no proxy counts, whatever stands before it.
    let house =
        guarded(|server| server.with_trusted_proxies("127.0.0.1").with_rate_per_ip(Rate::per_minute(5)))
            .await;
    let mut statuses = Vec::new();
    for n in 0..8 {
        let via = format!("10.9.9.{n}, 203.0.113.7, 127.0.0.1");
        statuses.push(house.post(&echo().with("X-Forwarded-For", via)).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429], "L02");
    let other = house.post(&echo().with("X-Forwarded-For", "203.0.113.8")).await;
    assert_eq!(other.status, 200, "L02: another client has a count of its own");
}

#[tokio::test]
async fn g09_patterns_of_origins() {
    let house =
        guarded(|server| server.with_cors(["https://*.example.com", "https://one.example.org:8443"])).await;
    for good in ["https://app.example.com", "https://APP.example.com", "https://one.example.org:8443"] {
        let reply = house.post(&echo().with("Origin", good)).await;
        assert_eq!(reply.text(), "x", "G09 {good}");
        assert_eq!(reply.header("access-control-allow-origin").as_deref(), Some(good));
        assert!(
            reply.header("vary").unwrap_or_default().to_ascii_lowercase().contains("origin"),
            "G09 {good}"
        );
    }
    for bad in [
        "https://example.com",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://a.b.example.com",
        "https://app.example.com.evil.io",
        "https://appexample.com",
        "https://evil.io/app.example.com",
        "https://app.example.com@evil.io",
        "https://.example.com",
        "https://*.example.com",
        "https://app_example.com",
        "https://app.example.com.",
        "https://one.example.org",
        "null",
    ] {
        let before = house.ran();
        let reply = house.post(&echo().with("Origin", bad)).await;
        assert_eq!((reply.status, house.ran()), (403, before), "G09 {bad}");
        assert!(reply.header("access-control-allow-origin").is_none(), "G09 {bad}");
    }
}

/// What a profile hides can be neither seen, nor called, nor told from what does not exist.
#[tokio::test]
async fn what_is_hidden_does_not_exist() {
    let narrow =
        Profile::new("narrow").include_tools(["ec*"]).exclude_resources(["fx://*"]).exclude_prompts(["*"]);
    let house =
        guarded(|server| server.with_tokens([Token::new("narrow").profile(narrow), Token::new("all")])).await;
    let names = |reply: &Reply, list: &str, key: &str| -> Vec<String> {
        let items = reply.json()["result"][list].as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|item| item[key].as_str().map(str::to_owned)).collect()
    };
    let as_narrow = |post: Post| post.with("Authorization", "Bearer narrow");
    let list = |method: &str| as_narrow(Post::modern(method, None, ""));
    assert_eq!(names(&house.post(&list("tools/list")).await, "tools", "name"), ["echo"]);
    assert_eq!(names(&house.post(&list("resources/list")).await, "resources", "uri"), [""; 0]);
    assert_eq!(
        names(&house.post(&list("resources/templates/list")).await, "resourceTemplates", "name"),
        [""; 0]
    );
    assert_eq!(names(&house.post(&list("prompts/list")).await, "prompts", "name"), [""; 0]);
    let said = |reply: &Reply, name: &str| reply.json()["error"].to_string().replace(name, "?");
    let hidden = house.post(&as_narrow(Post::call("tell", r#"{"message":"x"}"#))).await;
    let absent = house.post(&as_narrow(Post::call("zzzz", r#"{"message":"x"}"#))).await;
    assert_eq!(said(&hidden, "tell"), said(&absent, "zzzz"));
    let read = |uri: &str| as_narrow(Post::modern("resources/read", Some(uri), &format!(r#""uri":"{uri}""#)));
    let hidden = house.post(&read("fx://readme")).await;
    assert_eq!(said(&hidden, "fx://readme"), said(&house.post(&read("fx://nothing")).await, "fx://nothing"));
    assert_eq!(house.ran(), 0);
}
