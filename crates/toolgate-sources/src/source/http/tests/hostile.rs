//! Hostile inputs for HTTP tools: injection into a request, and where it is sent.

use super::*;

fn item_spec() -> HttpSpec {
    HttpSpec {
        path: "/v1/items/{id}?q={q}".into(),
        headers: vec![Field::new("X-Tenant", "{tenant}")],
        ..HttpSpec::default()
    }
}

async fn call_item(fixture: &HttpFixture, id: &str, q: &str, tenant: &str) -> Result<Value, String> {
    let properties = json!({ "id": string_schema(), "q": string_schema(), "tenant": string_schema() });
    fixture.received_request(item_spec(), properties, json!({ "id": id, "q": q, "tenant": tenant })).await
}

#[tokio::test]
async fn an_argument_stays_in_its_path_segment() {
    let fixture = HttpFixture::new().await;
    for (id, segment) in [
        ("%2e%2e%2fadmin", "%252e%252e%252fadmin"),
        ("a/b", "a%2Fb"),
        ("a?x=1", "a%3Fx%3D1"),
        ("a#f", "a%23f"),
        ("a;b", "a%3Bb"),
        ("a\\b", "a%5Cb"),
        ("...", "..."),
        ("@169.254.169.254/", "%40169.254.169.254%2F"),
        ("//evil", "%2F%2Fevil"),
        ("http://evil/", "http%3A%2F%2Fevil%2F"),
        ("${env:UPSTREAM_TOKEN}", "%24%7Benv%3AUPSTREAM_TOKEN%7D"),
        ("{{env.HOME}} {q}", "%7B%7Benv.HOME%7D%7D%20%7Bq%7D"),
        ("é", "%C3%A9"),
    ] {
        let received = call_item(&fixture, id, "x", "t").await.unwrap();
        assert_eq!(received["path"], format!("/v1/items/{segment}"), "{id}");
        assert_eq!(received["query"], "q=x", "{id}");
        assert_eq!(received["headers"]["host"], fixture.server.address.to_string(), "{id}");
    }
    for id in ["../../admin", "..", ".", "", "a/../b", "a\\..\\b", "a\0b", "a\r\nb"] {
        assert!(call_item(&fixture, id, "x", "t").await.is_err(), "{id:?}");
    }
}

#[tokio::test]
async fn an_argument_stays_in_its_query_value() {
    let fixture = HttpFixture::new().await;
    for (q, value) in [
        ("x&admin=true", "x%26admin%3Dtrue"),
        ("x#", "x%23"),
        ("x%00", "x%2500"),
        ("x\0", "x%00"),
        ("a=b;c", "a%3Db%3Bc"),
        ("", ""),
    ] {
        assert_eq!(call_item(&fixture, "1", q, "t").await.unwrap()["query"], format!("q={value}"), "{q:?}");
    }
    // Member names from the caller must not override fields.
    let spec = HttpSpec { query: vec![Field::new("f", "{f}"), Field::new("key", "fixed")], ..get("/echo") };
    let properties = json!({ "f": { "type": "object" } });
    let allowed =
        fixture.received_request(spec.clone(), properties.clone(), json!({ "f": { "a": 1 } })).await.unwrap();
    assert_eq!(allowed["query"], "a=1&key=fixed");
    assert!(fixture.received_request(spec, properties, json!({ "f": { "key": "mine" } })).await.is_err());
}

#[tokio::test]
async fn an_argument_stays_in_its_header_value() {
    let fixture = HttpFixture::new().await;
    for tenant in ["t\r\nX-Admin: 1", "t\n", "t\0", "t\u{2028}", &"x".repeat(9 * 1024), "é"] {
        let message = call_item(&fixture, "1", "x", tenant).await.unwrap_err();
        assert_eq!(message, "invalid header value for `X-Tenant`", "{tenant:?}");
    }
    assert_eq!(call_item(&fixture, "1", "x", "a b; c").await.unwrap()["headers"]["x-tenant"], "a b; c");
}

#[tokio::test]
async fn only_allowed_addresses_are_called() {
    let fixture = HttpFixture::new().await;
    let port = fixture.server.address.port();
    let spec = HttpSpec { url: Some("{url}".into()), ..HttpSpec::default() };
    let client = fixture.client(spec.clone(), json!({ "url": string_schema() }));
    let allowed = client.call("it", json!({ "url": format!("http://127.0.0.1:{port}/echo") })).await;
    assert_eq!(allowed.json()["path"], "/echo");
    for (url, wanted) in [
        ("http://169.254.169.254/latest/meta-data/", "address not allowed"),
        ("http://[fd00:ec2::254]/", "address not allowed"),
        ("http://100.100.100.200/", "address not allowed"),
        ("http://localhost/", "address not allowed"),
        ("http://0/", "address not allowed"),
        ("http://127.0.0.1:6379/", "address not allowed"),
        ("http://[::]/", "address not allowed"),
        ("http://[64:ff9b::7f00:1]/", "address not allowed"),
        ("http://metadata.google.internal./", "host not found"),
        ("file:///etc/passwd", "not a valid URL"),
        ("gopher://127.0.0.1/", "only http and https"),
        ("ftp://127.0.0.1/", "only http and https"),
        ("data:text/plain,x", "not a valid URL"),
        ("//127.0.0.1/", "only http and https"),
        ("/echo", "only http and https"),
        ("", "not a valid URL"),
        (&format!("http://u:p@127.0.0.1:{port}/"), "no user or password"),
        (&format!("http://127.0.0.1:{port}\\@evil/"), "not a valid URL"),
        (&format!("http://127.0.0.1:{port} /"), "not a valid URL"),
    ] {
        let called = client.call("it", json!({ "url": url })).await;
        assert!(called.is_error() && called.text().contains(wanted), "{url}: {}", called.text());
    }
    // The same address in unusual spellings, where loopback is not allowed.
    let mut closed = HttpFixture::new().await;
    closed.egress_spec.allow = vec![format!("api.example.com:{port}")];
    closed.client_spec.base_url = "https://api.example.com".into();
    let client = closed.client(spec, json!({ "url": string_schema() }));
    for host in [
        "2130706433",
        "0x7f.1",
        "017700000001",
        "[::ffff:127.0.0.1]",
        "127.1",
        "[::]",
        "localhost",
        "127.0.0.1",
    ] {
        for url in [format!("http://{host}:{port}/"), format!("http://{host}/")] {
            let called = client.call("it", json!({ "url": url })).await;
            assert!(
                called.is_error() && called.text().contains("address not allowed"),
                "{url}: {}",
                called.text()
            );
        }
    }
    assert_eq!(closed.server.n_connections() + fixture.server.n_connections(), 1);
}

#[tokio::test]
async fn a_host_chosen_by_the_caller_gets_no_credentials() {
    let mut fixture = HttpFixture::new().await;
    let other = MockServer::start().await;
    fixture.client_spec.headers = vec![("Authorization".into(), "Bearer up-s3cret".into())];
    fixture.egress_spec.allow.push(other.address.to_string());
    let spec = HttpSpec { url: Some("{url}".into()), ..HttpSpec::default() };
    let client = fixture.client(spec, json!({ "url": string_schema() }));
    let url = format!("http://{}/echo", other.address);
    assert!(!client.call("it", json!({ "url": url })).await.is_error());
    assert_eq!(other.requests()[0]["headers"].get("authorization"), None);
    let url = format!("http://{}/echo", fixture.server.address);
    let called = client.call("it", json!({ "url": url })).await;
    assert_eq!(fixture.server.requests()[0]["headers"]["authorization"], "Bearer up-s3cret");
    // A secret that the backend repeats is masked.
    assert!(!called.message().to_string().contains("up-s3cret"), "{}", called.text());
}

/// F8: headers and cookies of the tool itself are for the host of `base_url`, too.
#[tokio::test]
async fn a_host_chosen_by_the_caller_gets_no_configured_header() {
    let mut fixture = HttpFixture::new().await;
    let other = MockServer::start().await;
    fixture.egress_spec.allow.push(other.address.to_string());
    let spec = HttpSpec {
        url: Some("{url}".into()),
        headers: vec![
            Field::new("X-Api-Key", "k-s3cret"),
            Field::new("X-Mixed", "k-s3cret {note}"),
            Field::new("X-Note", "{note}"),
            Field::new("User-Agent", "shop/1"),
        ],
        cookies: vec![Field::new("session", "c-s3cret"), Field::new("note", "{note}")],
        ..HttpSpec::default()
    };
    let client = fixture.client(spec, json!({ "url": string_schema(), "note": string_schema() }));
    let call = async |server: &MockServer| {
        let url = format!("http://{}/echo", server.address);
        assert!(!client.call("it", json!({ "url": url, "note": "hi" })).await.is_error());
        server.requests()[0]["headers"].clone()
    };
    let foreign = call(&other).await;
    assert!(!foreign.to_string().contains("s3cret"), "{foreign}");
    assert_eq!((&foreign["x-note"], &foreign["user-agent"]), (&json!("hi"), &json!("shop/1")));
    assert_eq!(foreign["cookie"], "note=hi");
    let own = call(&fixture.server).await;
    assert_eq!((&own["x-api-key"], &own["x-mixed"]), (&json!("k-s3cret"), &json!("k-s3cret hi")));
    assert_eq!(own["cookie"], "session=c-s3cret; note=hi");
}

#[tokio::test]
async fn redirects_are_off_by_default_and_each_hop_is_checked() {
    let mut fixture = HttpFixture::new().await;
    let port = fixture.server.address.port();
    let other = MockServer::start().await;
    fixture.egress_spec.allow.push(other.address.to_string());
    fixture.client_spec.headers =
        vec![("Authorization".into(), "Bearer up-s3cret".into()), ("X-Own".into(), "1".into())];
    let redirect = || HttpSpec { path: "/redir?to={to}".into(), ..HttpSpec::default() };
    let call = async |fixture: &HttpFixture, to: &str| {
        let called = fixture
            .client(redirect(), json!({ "to": string_schema() }))
            .call("it", json!({ "to": to }))
            .await;
        (called.is_error(), called.text())
    };
    let (failed, message) = call(&fixture, "/echo").await;
    assert!(failed && message.starts_with("302 Found: the backend redirects, and"), "{message}");

    fixture.client_spec.max_redirects = 3;
    let (failed, message) = call(&fixture, "/echo").await;
    assert!(!failed, "{message}");
    let received = fixture.server.requests();
    assert_eq!(received.last().unwrap()["headers"]["authorization"], "Bearer up-s3cret");
    let (failed, message) = call(&fixture, &format!("http://{}/echo", other.address)).await;
    assert!(!failed, "{message}");
    let elsewhere = other.requests();
    assert_eq!(elsewhere[0]["headers"].get("authorization"), None);
    assert_eq!(elsewhere[0]["headers"].get("x-own"), None);

    for (to, wanted) in [
        ("http://169.254.169.254/", "address not allowed"),
        ("file:///etc/passwd", "not a valid URL"),
        ("gopher://x/", "only http and https"),
        ("http://127.0.0.1:6379/", "not allowed"),
        (&format!("http://u@127.0.0.1:{port}/echo"), "no user"),
    ] {
        let (failed, message) = call(&fixture, to).await;
        assert!(failed && message.contains(wanted), "{to}: {message}");
    }
    let called = fixture.client(get("/redirloop"), json!({})).call("it", json!({})).await;
    assert!(called.text().contains("redirects too often"), "{}", called.text());
    let post_spec = HttpSpec { method: "POST".into(), ..redirect() };
    let called = fixture
        .client(post_spec, json!({ "to": string_schema() }))
        .call("it", json!({ "to": "/echo" }))
        .await;
    assert!(called.is_error(), "what changes something is not sent elsewhere");
}

#[tokio::test]
async fn the_checked_address_is_the_one_connected_to() {
    use std::net::SocketAddr;
    use std::sync::Mutex;

    /// Returns the right address once, then another one.
    struct RebindingResolver(Mutex<Vec<SocketAddr>>);
    impl Resolver for RebindingResolver {
        fn resolve<'a>(&'a self, _: &'a str, _: u16) -> ResolveFuture<'a> {
            let next = self.0.lock().unwrap().pop();
            Box::pin(async move { Ok(next.into_iter().collect()) })
        }
    }
    let fixture = HttpFixture::new().await;
    let (address, port) = (fixture.server.address, fixture.server.address.port());
    let metadata = SocketAddr::new("169.254.169.254".parse().unwrap(), port);
    let names = Arc::new(RebindingResolver(Mutex::new(vec![metadata, address])));
    let egress = EgressSpec { deny_private: true, allow: vec![format!("rebind.test:{port}")] };
    let outside = OutboundContext::new(
        EgressGuard::with_resolver(&egress, Arc::clone(&names) as Arc<dyn Resolver>).unwrap(),
    );
    let connection = HttpClientSpec {
        base_url: format!("http://rebind.test:{port}"),
        retry: Retry { max: 0, statuses: Vec::new() },
        ..HttpClientSpec::default()
    };
    let connection = HttpClient::new(&connection, &outside).unwrap();
    let server = tool(get("/echo"), Arc::clone(&connection), &json!({}));
    assert!(!server.test().call("it", json!({})).await.is_error());
    assert_eq!(names.0.lock().unwrap().len(), 1, "asked once for one connection");
    assert_eq!(connection.probe().await, Err("address not allowed".into()));
}

/// Member names of an object argument cannot override query parameters of the connection.
#[tokio::test]
async fn an_object_cannot_override_connection_parameters() {
    let mut fixture = HttpFixture::new().await;
    fixture.client_spec.query = vec![("api key".into(), "right".into())];
    let spec = || HttpSpec { query: vec![Field::new("filter", "{filter}")], ..get("/echo") };
    let properties = json!({ "filter": { "type": "object" } });
    let allowed = fixture
        .received_request(spec(), properties.clone(), json!({ "filter": { "color": "red" } }))
        .await
        .unwrap();
    assert_eq!(allowed["query"], "api%20key=right&color=red");
    let message =
        fixture.received_request(spec(), properties, json!({ "filter": { "api key": "wrong" } })).await;
    assert_eq!(message.unwrap_err(), "`filter` must not contain `api key`");
}

/// The result of the first request cannot choose fields of the second.
#[tokio::test]
async fn an_object_result_can_only_be_sent_as_json() {
    let fixture = HttpFixture::new().await;
    let schema = json!({ "type": "object", "properties": { "first": {} }, "required": ["first"] });
    let chain = |pick: &str, second: HttpSpec| {
        let first = HttpSpec { pick: Some(pick.into()), ..get("/echo") };
        let first = HttpBackend::new(first, fixture.connect(), &json!({})).unwrap();
        let second = HttpBackend::new(second, fixture.connect(), &schema).unwrap();
        let act = Arc::new(ChainBackend { first, second });
        let run = move |arguments: Map<String, Value>, cx: Context| {
            let act = Arc::clone(&act);
            async move { act.execute(&cx, &arguments).await }
        };
        Server::new("bench", "1.0.0").add_tool(ToolSpec::new("it", run)).build().unwrap()
    };
    let query = || HttpSpec { query: vec![Field::new("q", "{first}")], ..get("/echo") };
    let form = || post(BodySpec::Form(vec![Field::new("q", "{first}")]));
    let written = || post(BodySpec::Json { value: json!({ "q": "{first}" }), is_optional: false });
    for (pick, second, is_fine) in [
        ("{role: \"admin\"}", query(), false),
        ("{role: \"admin\"}", form(), false),
        ("{role: \"admin\"}", get("/echo/{first}"), false),
        ("{role: \"admin\"}", written(), true),
        ("7", query(), true),
        ("7", get("/echo/{first}"), true),
    ] {
        fixture.server.reset();
        let called = chain(pick, second).test().call("it", json!({})).await;
        assert_eq!(called.is_error(), !is_fine, "{pick}: {}", called.text());
        assert_eq!(fixture.server.requests().len(), if is_fine { 2 } else { 1 }, "{pick}");
        assert!(is_fine || called.text().contains("can only be sent as JSON"), "{}", called.text());
    }
}
