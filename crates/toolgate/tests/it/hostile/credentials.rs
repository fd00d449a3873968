//! H: credentials that are missing, wrong, duplicated or misplaced. K12, K13: passwords and providers under attack.
//! L: rate limits. G09: origin patterns. S: profiles.

use toolgate::Profile;
use toolgate::guard::{ApiKeys, KeyRequest, Rate, Token};

use super::*;

const TOKEN: &str = "s3cret-token-of-ada-0123456789";

fn echo() -> RawRequest {
    RawRequest::tool_call("echo", r#"{"message":"x"}"#)
}

fn bearer(token: &str) -> RawRequest {
    echo().with("Authorization", format!("Bearer {token}"))
}

/// A server that requires authentication.
async fn guarded_server(guard: impl FnOnce(&Server) -> Server) -> TestServer {
    let ran = Arc::new(AtomicUsize::new(0));
    let server = guard(&fixture(&ran));
    assert_eq!(server.config_errors(), [""; 0]);
    TestServer::serve(server, ran).await
}

impl TestServer {
    /// Checks a rejection for missing credentials: no tool runs, nothing is revealed.
    async fn check_unauthorized(&self, row: &str, post: &RawRequest) -> RawResponse {
        let before = self.n_calls();
        let reply = self.post(post).await;
        let at = format!(
            "{row}: {:?} answered by {} {}",
            post.distinctive_lines(),
            reply.status,
            clip(&reply.body)
        );
        assert_eq!(reply.status, 401, "{at}");
        assert!(reply.header("www-authenticate").is_some(), "{at}");
        assert_eq!(self.n_calls(), before, "{at}");
        let body = String::from_utf8_lossy(&reply.body);
        assert!(!body.contains("echo") && !body.contains(TOKEN), "{at}");
        reply.check_common(&at);
        reply
    }
}

#[tokio::test]
async fn h01_h07_nobody_is_served_without_credentials() {
    let server = guarded_server(|server| server.set_tokens([TOKEN])).await;
    for verb in ["GET", "DELETE"] {
        server.check_unauthorized("H01", &RawRequest::empty(verb)).await;
        server.check_unauthorized("H01", &RawRequest::empty(verb).with("Mcp-Session-Id", "x")).await;
    }
    server.check_unauthorized("H01", &echo()).await;
    let mut pair = RawRequest::empty("GET");
    pair.target = "/sse".into();
    server.check_unauthorized("H01 pair", &pair).await;
    for body in ["{", "[]", r#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#] {
        server.check_unauthorized("H07", &RawRequest::new(body)).await;
    }
    // The rejection does not wait for the body.
    let mut long = echo();
    long.body = vec![b'x'; 16];
    let bytes =
        String::from_utf8(long.bytes()).unwrap().replace("Content-Length: 16", "Content-Length: 3000000");
    let reply = RawResponse::read(&server.send(bytes.as_bytes()).await);
    assert_eq!(reply.status, 401, "H07 3 MiB");
    assert_eq!(server.post(&bearer(TOKEN)).await.text(), "x");
}

#[tokio::test]
async fn h02_h04_h05_h09_near_misses() {
    let server = guarded_server(|server| server.set_tokens([TOKEN])).await;
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
        server.check_unauthorized("H02", &echo().with("Authorization", value)).await;
    }
    for value in
        [TOKEN.to_owned(), format!("Token {TOKEN}"), format!("Bearer{TOKEN}"), format!("Basic {TOKEN}")]
    {
        server.check_unauthorized("H02 scheme", &echo().with("Authorization", value)).await;
    }
    server.check_unauthorized("H02 bytes", &echo().with("Authorization", b"Bearer \xff\xfe")).await;
    for (first, second) in [(TOKEN, "wrong"), ("wrong", TOKEN)] {
        let twice = bearer(first).with("Authorization", format!("Bearer {second}"));
        server.check_unauthorized("H04", &twice).await;
    }
    let mut query = echo();
    query.target = format!("/mcp?access_token={TOKEN}&token={TOKEN}");
    server.check_unauthorized("H05 query", &query).await;
    for name in ["Cookie", "X-Auth-Token", "X-Access-Token", "Proxy-Authorization", "X-API-Key"] {
        server.check_unauthorized("H05", &echo().with(name, format!("Bearer {TOKEN}"))).await;
        server.check_unauthorized("H05", &echo().with(name, TOKEN)).await;
    }
    assert_eq!(
        server.post(&echo().with("Authorization", format!("bEaReR {TOKEN}"))).await.text(),
        "x",
        "H09"
    );
}

#[tokio::test]
async fn h03_k12_broken_basic() {
    let server =
        guarded_server(|server| server.add_basic_auth("ada", "pa:ss:word").add_basic_auth("bob", "é")).await;
    // `ada:pa:ss:word`, `bob:é`: the first colon separates.
    for good in ["YWRhOnBhOnNzOndvcmQ=", "Ym9iOsOp"] {
        let reply = server.post(&echo().with("Authorization", format!("Basic {good}"))).await;
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
        let reply =
            server.check_unauthorized("H03", &echo().with("Authorization", format!("Basic {bad}"))).await;
        let challenge = reply.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Basic realm=\"hostile\""), "{challenge}");
    }
}

#[tokio::test]
async fn k12_many_wrong_passwords_for_a_hash_do_not_starve_others() {
    // The hash of `right`, cheap enough for a test.
    const HASH: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$lQH9PdW3VXtTnJ0Q1rM0Z0wEWEN0PyRCmhVkKbnPvZQ";
    let server = guarded_server(|server| server.add_basic_auth("ada", HASH)).await;
    let attack: Vec<_> = (0..30)
        .map(|n| {
            let address = server.address;
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let post = echo().with("Authorization", format!("Basic {}", ["YWRhOng=", "YWRhOnk="][n % 2]));
                stream.write_all(&post.bytes()).await.unwrap();
                RawResponse::read(&read_to_end(&mut stream).await).status
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
    let server = guarded_server(|server| server.set_api_keys(keys)).await;
    for key in ["panic", "stall", "error"] {
        let reply = server.post(&echo().with("X-API-Key", key)).await;
        assert_eq!(reply.status, 503, "{key}: {}", clip(&reply.body));
        assert!(!String::from_utf8_lossy(&reply.body).contains("number"), "{}", clip(&reply.body));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    // A value that cannot be a key is not looked up.
    for key in [b"a\x01b".as_slice(), b"\xff", b"", &[b'x'; 9000]] {
        let reply = server.post(&echo().with("X-API-Key", key)).await;
        assert!(matches!(reply.status, 400 | 401 | 431), "{} for {key:?}", reply.status);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(server.post(&echo().with("X-API-Key", TOKEN)).await.text(), "x");
    assert_eq!(server.n_calls(), 1);
}

#[tokio::test]
async fn h08_spellings_and_proxies_bypass_no_guard() {
    let server = guarded_server(|server| server.set_tokens([TOKEN])).await;
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
        let before = server.n_calls();
        let reply = server.post(&post).await;
        assert!(matches!(reply.status, 400 | 401 | 404), "H08 {target}: {}", reply.status);
        assert_eq!(server.n_calls(), before, "H08 {target}");
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
        server.check_unauthorized("H08", &echo().with(name, "127.0.0.1")).await;
    }
}

#[tokio::test]
async fn h11_guessing_is_rate_limited() {
    let server = guarded_server(|server| server.set_tokens([TOKEN])).await;
    let mut statuses = Vec::new();
    for n in 0..60 {
        let guess = bearer(&format!("guess-{n}")).with("X-Forwarded-For", format!("10.0.0.{n}"));
        statuses.push(server.post(&guess).await.status);
    }
    assert_eq!(statuses[..20], [401; 20], "H11: a few mistakes are human");
    assert_eq!(statuses[55..], [429; 5], "H11");
    assert_eq!(server.post(&bearer(TOKEN)).await.text(), "x", "a valid token is still accepted");
}

#[tokio::test]
async fn h13_l01_l02_rate_limits() {
    let rate = Rate::per_minute(30);
    let server = guarded_server(|server| {
        server.set_tokens([Token::new("ada").subject("ada"), Token::new("bob").subject("bob")]);
        server.set_rate_per_principal(rate)
    })
    .await;
    let mut counts = (0, 0);
    for n in 0..50 {
        let reply = server.post(&bearer("ada").with("X-Forwarded-For", format!("10.0.0.{n}"))).await;
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
    assert_eq!(server.post(&bearer("bob")).await.text(), "x", "H13: other callers are not limited");

    // Behind a trusted proxy, the rightmost address that is not a proxy counts, whatever precedes it.
    let server =
        guarded_server(|server| server.set_trusted_proxies("127.0.0.1").set_rate_per_ip(Rate::per_minute(5)))
            .await;
    let mut statuses = Vec::new();
    for n in 0..8 {
        let via = format!("10.9.9.{n}, 203.0.113.7, 127.0.0.1");
        statuses.push(server.post(&echo().with("X-Forwarded-For", via)).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429], "L02");
    let other = server.post(&echo().with("X-Forwarded-For", "203.0.113.8")).await;
    assert_eq!(other.status, 200, "L02: another client has a count of its own");
}

#[tokio::test]
async fn g09_patterns_of_origins() {
    let server =
        guarded_server(|server| server.set_cors(["https://*.example.com", "https://one.example.org:8443"]))
            .await;
    for good in ["https://app.example.com", "https://APP.example.com", "https://one.example.org:8443"] {
        let reply = server.post(&echo().with("Origin", good)).await;
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
        let before = server.n_calls();
        let reply = server.post(&echo().with("Origin", bad)).await;
        assert_eq!((reply.status, server.n_calls()), (403, before), "G09 {bad}");
        assert!(reply.header("access-control-allow-origin").is_none(), "G09 {bad}");
    }
}

/// A hidden item can be neither listed nor called, nor distinguished from one that does not exist.
#[tokio::test]
async fn hidden_items_look_nonexistent() {
    let narrow =
        Profile::new("narrow").include_tools(["ec*"]).exclude_resources(["fx://*"]).exclude_prompts(["*"]);
    let server =
        guarded_server(|server| server.set_tokens([Token::new("narrow").profile(narrow), Token::new("all")]))
            .await;
    let names = |reply: &RawResponse, list: &str, key: &str| -> Vec<String> {
        let items = reply.json()["result"][list].as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|item| item[key].as_str().map(str::to_owned)).collect()
    };
    let as_narrow = |post: RawRequest| post.with("Authorization", "Bearer narrow");
    let list = |method: &str| as_narrow(RawRequest::modern(method, None, ""));
    assert_eq!(names(&server.post(&list("tools/list")).await, "tools", "name"), ["echo"]);
    assert_eq!(names(&server.post(&list("resources/list")).await, "resources", "uri"), [""; 0]);
    assert_eq!(
        names(&server.post(&list("resources/templates/list")).await, "resourceTemplates", "name"),
        [""; 0]
    );
    assert_eq!(names(&server.post(&list("prompts/list")).await, "prompts", "name"), [""; 0]);
    let error_text = |reply: &RawResponse, name: &str| reply.json()["error"].to_string().replace(name, "?");
    let hidden = server.post(&as_narrow(RawRequest::tool_call("tell", r#"{"message":"x"}"#))).await;
    let absent = server.post(&as_narrow(RawRequest::tool_call("zzzz", r#"{"message":"x"}"#))).await;
    assert_eq!(error_text(&hidden, "tell"), error_text(&absent, "zzzz"));
    let read =
        |uri: &str| as_narrow(RawRequest::modern("resources/read", Some(uri), &format!(r#""uri":"{uri}""#)));
    let hidden = server.post(&read("fx://readme")).await;
    assert_eq!(
        error_text(&hidden, "fx://readme"),
        error_text(&server.post(&read("fx://nothing")).await, "fx://nothing")
    );
    assert_eq!(server.n_calls(), 0);
}

/// A provider that lets a key do everything except call tools. The method it sees must be the one that runs.
fn lists_only_keys() -> ApiKeys {
    ApiKeys::provider(|key: String, request: KeyRequest| key == "k" && request.method() != Some("tools/call"))
}

#[tokio::test]
async fn a_policy_by_method_cannot_be_bypassed() {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"x"}}}"#;
    let server = guarded_server(|server| {
        server.set_api_keys(lists_only_keys()).set_dialect(toolgate::compat::Dialect::boxlang())
    })
    .await;
    let keyed = |body: &str| RawRequest::new(body).with("X-API-Key", "k");
    assert_eq!(server.post(&keyed(&call.replace("tools/call", "tools/list"))).await.status, 200);
    assert_eq!(server.post(&keyed(call)).await.status, 401);
    assert_eq!(server.post(&keyed(&call.replace("tools/call", " tools/call "))).await.status, 401, "blanks");
    // A batch is checked without a method.
    for batch in [format!("[{call}]"), format!(" \n[{call},{call}]")] {
        assert_eq!(server.post(&keyed(&batch)).await.status, 400, "a batch");
    }
    assert_eq!(server.n_calls(), 0);
    // Listeners also see what will run.
    let server = guarded_server(|server| {
        server.on_request(|request| {
            if request.method() == "tools/call" {
                request.reject("no calls");
            }
        });
        server.set_dialect(toolgate::compat::Dialect::boxlang())
    })
    .await;
    for body in [
        call.to_owned(),
        call.replace("tools/call", "\\ttools/call"),
        call.replace("tools/call", " tools/call"),
    ] {
        let reply = server.post(&RawRequest::new(body.as_str())).await;
        assert_eq!(reply.json()["error"]["message"], "no calls", "{body}");
    }
    assert_eq!(server.n_calls(), 0);
}

#[tokio::test]
async fn a_policy_by_method_holds_for_legacy_sse() {
    let server = guarded_server(|server| server.set_api_keys(lists_only_keys())).await;
    let mut open = RawRequest::empty("GET").without("Connection").with("X-API-Key", "k");
    open.target = "/sse".into();
    let mut stream = server.connect().await;
    stream.write_all(&open.bytes()).await.unwrap();
    let mut seen = String::new();
    while !seen.contains("session=") || !seen.ends_with("\n\n") {
        let mut piece = [0; 1024];
        let n =
            tokio::time::timeout(RESPONSE_TIMEOUT, stream.read(&mut piece)).await.expect("an event").unwrap();
        assert!(n > 0, "{seen}");
        seen += &String::from_utf8_lossy(&piece[..n]);
        if seen.contains("session=") && seen.contains("\n\n") {
            break;
        }
    }
    let name = seen.split("session=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let message = |method: &str| {
        let mut post = RawRequest::new(format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"echo","arguments":{{"message":"x"}}}}}}"#
        ));
        post.target = format!("/messages?session={name}");
        post.with("X-API-Key", "k")
    };
    assert_eq!(server.post(&message("tools/call")).await.status, 401);
    assert_eq!(server.n_calls(), 0);
    assert_eq!(server.post(&message("ping")).await.status, 202);
}

/// A guard with an invalid configuration rejects everyone.
#[tokio::test]
async fn an_invalid_guard_rejects_everyone() {
    let ran = Arc::new(AtomicUsize::new(0));
    let server = fixture(&ran).set_tokens(["sha256:zz"]);
    assert_eq!(server.config_errors().len(), 1);
    let mut service = server.clone().into_service();
    let mut status = async || {
        let request = http::Request::post("/")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_owned())
            .unwrap();
        let Ok(response) = tower_service::Service::call(&mut service, request).await;
        response.status().as_u16()
    };
    assert_eq!(status().await, 503);
    server.set_tokens([TOKEN]);
    assert_eq!(status().await, 401, "and once it can be, it is as it should be");
    let servers = toolgate::Servers::new();
    let broken = servers.server_with("late", |builder| builder.tokens([""]).tool("boom", || async { "x" }));
    assert!(!broken.has_tool("boom") && broken.config_errors().len() == 1);
    let mut service = broken.into_service();
    let request = http::Request::post("/").header("host", "localhost").body(String::new()).unwrap();
    let Ok(response) = tower_service::Service::call(&mut service, request).await;
    assert_eq!(response.status(), 503);
}

/// A hidden resource cannot be reached through a template, in any notation.
#[tokio::test]
async fn templates_do_not_bypass_a_profile() {
    let hidden = Profile::new("p").exclude_resources(["fx://files/a*"]);
    let server =
        guarded_server(|server| server.set_tokens([Token::new("p").profile(hidden), Token::new("all")]))
            .await;
    let read = |uri: &str, token: &str| {
        RawRequest::modern("resources/read", Some(uri), &format!(r#""uri":"{uri}""#))
            .with("Authorization", format!("Bearer {token}"))
    };
    assert!(server.post(&read("fx://files/a.txt", "all")).await.json()["result"].is_object());
    for uri in ["fx://files/a.txt", "fx://files/%61.txt", "fx://files/%61%2Etxt"] {
        assert!(server.post(&read(uri, "p")).await.json()["error"].is_object(), "{uri}");
    }
    let whole = Profile::new("p").exclude_resources(["fx://files/{+path}"]);
    let server = guarded_server(|server| server.set_tokens([Token::new("p").profile(whole)])).await;
    assert!(server.post(&read("fx://files/a.txt", "p")).await.json()["error"].is_object());
}

/// Two credentials make one caller, who keeps the first identity and sees what both profiles allow.
#[tokio::test]
async fn two_credentials_are_one_caller() {
    let ran = Arc::new(AtomicUsize::new(0));
    let who = |cx: Context| async move { cx.principal().id().unwrap_or("nobody").to_owned() };
    let server = Server::new("who", "1").tool("who", who).tool("other", || async { "x" }).build().unwrap();
    server
        .add_basic_auth("ada", "a")
        .add_basic_auth("bob", "b")
        .set_api_keys(ApiKeys::list(
            [Token::new("shared").profile(Profile::new("p").include_tools(["who"]))],
        ));
    let server = TestServer::serve(server, ran).await;
    for (login, name) in [("YWRhOmE=", "user:ada"), ("Ym9iOmI=", "user:bob")] {
        let as_them = |post: RawRequest| {
            post.with("Authorization", format!("Basic {login}")).with("X-API-Key", "shared")
        };
        assert_eq!(server.post(&as_them(RawRequest::tool_call("who", "{}"))).await.text(), name);
        assert!(
            server.post(&as_them(RawRequest::tool_call("other", "{}"))).await.json()["error"].is_object()
        );
    }
}

/// A listener may change a request into another, in every version.
#[tokio::test]
async fn a_changed_request_is_served_as_it_is_now() {
    let server = guarded_server(|server| {
        server.on_request(|request| {
            if request.method() == "tools/call" {
                request.params_mut()["name"] = "echo".into();
            }
        });
        server.clone()
    })
    .await;
    let reply = server.post(&RawRequest::tool_call("nothing_like_it", r#"{"message":"x"}"#)).await;
    assert_eq!(reply.text(), "x", "{}", clip(&reply.body));
}
