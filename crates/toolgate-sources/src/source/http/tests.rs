//! Tests HTTP tools through a whole server, against a mock backend that misbehaves in all known ways.

mod callers;
mod failures;
mod hostile;
pub(crate) mod mock_server;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolgate::testing::TestClient;
use toolgate::{Context, Server, ToolSpec};

use super::response::{BACKEND_KEY, PAGING_KEY};
use super::*;
use crate::source::ToolBackend as _;
use crate::source::egress::{EgressGuard, EgressSpec, ResolveFuture, Resolver};
use mock_server::MockServer;

/// Resolves local names only; others do not exist.
struct LocalResolver;

impl Resolver for LocalResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a> {
        let is_remote = host.ends_with(".invalid") || host.ends_with(".internal");
        Box::pin(async move {
            if is_remote {
                return Err(std::io::ErrorKind::NotFound.into());
            }
            Ok(tokio::net::lookup_host((host, port)).await?.collect())
        })
    }
}

/// The mock backend, and the specs that a test may change.
struct HttpFixture {
    server: MockServer,
    client_spec: HttpClientSpec,
    egress_spec: EgressSpec,
}

impl HttpFixture {
    /// A backend on loopback that the egress guard allows.
    async fn new() -> HttpFixture {
        let backend = MockServer::start().await;
        let connection = HttpClientSpec {
            base_url: format!("http://{}", backend.address),
            timeout: Duration::from_secs(5),
            ..HttpClientSpec::default()
        };
        let egress = EgressSpec { deny_private: true, allow: vec![backend.address.to_string()] };
        HttpFixture { server: backend, client_spec: connection, egress_spec: egress }
    }

    fn connect(&self) -> Arc<HttpClient> {
        let outbound = OutboundContext::new(
            EgressGuard::with_resolver(&self.egress_spec, Arc::new(LocalResolver)).unwrap(),
        );
        HttpClient::new(&self.client_spec, &outbound).unwrap()
    }

    /// A client of a server with one tool, `it`.
    #[allow(clippy::needless_pass_by_value, reason = "arguments are written where it is called")]
    fn client(&self, spec: HttpSpec, properties: Value) -> TestClient {
        tool(spec, self.connect(), &properties).test()
    }

    /// The request that the backend received: `{"method", "path", "query", "headers", "body"}`.
    async fn received_request(
        &self,
        spec: HttpSpec,
        properties: Value,
        arguments: Value,
    ) -> Result<Value, String> {
        self.server.reset();
        let called = self.client(spec, properties).call("it", arguments).await;
        let received = self.server.requests();
        if called.is_error() {
            assert_eq!(received.len(), 0, "a failed call was received: {received:?}");
            return Err(called.text());
        }
        assert_eq!(received.len(), 1, "{received:?}");
        Ok(received.into_iter().next().unwrap())
    }
}

fn tool(spec: HttpSpec, connection: Arc<HttpClient>, properties: &Value) -> Server {
    let required: Vec<&String> = properties
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, property)| property.get("optional").is_none())
        .map(|(name, _)| name)
        .collect();
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    let act = Arc::new(HttpBackend::new(spec, connection, &schema).unwrap());
    let run = move |arguments: Map<String, Value>, cx: Context| {
        let act = Arc::clone(&act);
        async move { act.execute(&cx, &arguments).await }
    };
    let tool = ToolSpec::new("it", run).input_schema(schema).timeout(Duration::from_secs(20));
    Server::new("bench", "1.0.0").add_tool(tool).build().unwrap()
}

fn get(path: &str) -> HttpSpec {
    HttpSpec { path: path.into(), ..HttpSpec::default() }
}

fn post(body: BodySpec) -> HttpSpec {
    HttpSpec { method: "POST".into(), path: "/echo".into(), body, ..HttpSpec::default() }
}

fn string_schema() -> Value {
    json!({ "type": "string" })
}

fn optional_schema() -> Value {
    json!({ "optional": true })
}

#[tokio::test]
async fn arguments_are_sent_where_described() {
    let fixture = HttpFixture::new().await;
    let spec = HttpSpec {
        path: "/repos/acme/{repo}/issues?fixed=1&q={q}".into(),
        query: vec![
            Field::new("tags", "{tags}"),
            Field::new("ids[]", "{tags}")
                .with_serialization(Serialization { style: Style::Form, explode: false }),
            Field::new("gone", "{gone}"),
            Field::new("both", "{repo} {{ gone }}"),
        ],
        headers: vec![Field::new("X-Tenant", "t-{repo}"), Field::new("X-Gone", "{gone}")],
        cookies: vec![Field::new("c", "{q}")],
        ..HttpSpec::default()
    };
    let properties = json!({ "repo": string_schema(), "q": string_schema(), "tags": { "type": "array" }, "gone": optional_schema() });
    let arguments = json!({ "repo": "web", "q": "a b&c=d+é", "tags": ["x", "y z"] });
    let received = fixture.received_request(spec, properties, arguments).await.unwrap();
    assert_eq!(received["path"], "/repos/acme/web/issues");
    assert_eq!(received["query"], "fixed=1&q=a%20b%26c%3Dd%2B%C3%A9&tags=x&tags=y%20z&ids%5B%5D=x,y%20z");
    assert_eq!(received["headers"]["x-tenant"], "t-web");
    assert_eq!(received["headers"]["cookie"], "c=a%20b%26c%3Dd%2B%C3%A9");
    assert_eq!(received["headers"].get("x-gone"), None);
    assert!(received["headers"]["user-agent"].as_str().unwrap().starts_with("toolgate/"));
}

#[tokio::test]
async fn bodies_are_written_as_described() {
    let fixture = HttpFixture::new().await;
    let properties = json!({ "title": string_schema(), "n": {}, "gone": optional_schema(), "l": {} });
    let arguments = json!({ "title": "a \"b\" {{ n }}", "n": 5, "l": [1, true] });

    let value = json!({ "title": "{{ title }}", "n": "{n}", "gone": "{{ gone }}", "deep": { "l": "{l}", "t": "n={{ n }}" } });
    let received = fixture
        .received_request(
            post(BodySpec::Json { value, is_optional: false }),
            properties.clone(),
            arguments.clone(),
        )
        .await
        .unwrap();
    assert_eq!(received["headers"]["content-type"], "application/json");
    let body: Value = serde_json::from_str(received["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({ "title": "a \"b\" {{ n }}", "n": 5, "deep": { "l": [1, true], "t": "n=5" } }));

    let form = vec![Field::new("t", "{title}"), Field::new("l", "{l}"), Field::new("g", "{gone}")];
    let received = fixture
        .received_request(post(BodySpec::Form(form)), properties.clone(), arguments.clone())
        .await
        .unwrap();
    assert_eq!(received["body"], "t=a%20%22b%22%20%7B%7B%20n%20%7D%7D&l=1&l=true");
    assert_eq!(received["headers"]["content-type"], "application/x-www-form-urlencoded");

    let text =
        BodySpec::Text { text: "query { a(id: {{ n }}) { b } }".into(), mime: "application/graphql".into() };
    let received = fixture.received_request(post(text), properties.clone(), arguments.clone()).await.unwrap();
    assert_eq!(received["body"], "query { a(id: 5) { b } }");

    let nothing = BodySpec::Json { value: json!({ "gone": "{gone}" }), is_optional: true };
    let received = fixture.received_request(post(nothing), properties, arguments).await.unwrap();
    assert_eq!((received["body"].as_str(), received["headers"].get("content-type")), (Some(""), None));
}

#[tokio::test]
async fn files_are_sent_as_parts() {
    let fixture = HttpFixture::new().await;
    let parts = vec![
        PartSpec::Text { name: "caption".into(), value: "{caption}".into() },
        PartSpec::Text { name: "gone".into(), value: "{gone}".into() },
        PartSpec::File {
            name: "file".into(),
            argument: "data".into(),
            filename: "{name}".into(),
            mime: "image/png".into(),
        },
    ];
    let properties = json!({ "caption": string_schema(), "data": string_schema(), "name": string_schema(), "gone": optional_schema() });
    let hostile = json!({
        "caption": "x\r\n--toolgate\r\nContent-Disposition: form-data; name=\"admin\"\r\n\r\n1",
        "data": "aGVsbG8",
        "name": "a\".png\r\nX-Evil: 1",
    });
    let received = fixture
        .received_request(post(BodySpec::Multipart(parts.clone())), properties.clone(), hostile)
        .await
        .unwrap();
    let kind = received["headers"]["content-type"].as_str().unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let body = received["body"].as_str().unwrap();
    let parts_sent: Vec<&str> = body.split(&format!("--{boundary}")).collect();
    assert_eq!(parts_sent.len(), 4, "two parts and the end: {body}");
    assert!(parts_sent[1].contains("name=\"caption\"") && parts_sent[1].contains("name=\"admin\""), "{body}");
    let head = "Content-Disposition: form-data; name=\"file\"; filename=\"a%22.png%0D%0AX-Evil: 1\"\r\nContent-Type: image/png";
    assert!(parts_sent[2].contains(&format!("{head}\r\n\r\nhello\r\n")), "{body}");

    let wrong = json!({ "caption": "x", "data": "no base64!", "name": "a" });
    let message = fixture
        .received_request(post(BodySpec::Multipart(parts)), properties.clone(), wrong)
        .await
        .unwrap_err();
    assert_eq!(message, "`data` must be base64");
    let raw = BodySpec::Bytes { argument: "data".into(), mime: "image/png".into() };
    let link = json!({ "caption": "", "data": "data:image/png;base64,aGVsbG8=", "name": "a" });
    assert_eq!(fixture.received_request(post(raw), properties, link).await.unwrap()["body"], "hello");
}

#[tokio::test]
async fn responses_become_results() {
    let fixture = HttpFixture::new().await;
    let called = fixture.client(get("/list"), json!({})).call("it", json!({})).await;
    assert_eq!(called.json(), json!([{ "id": 1 }, { "id": 2 }]));
    assert_eq!(called.text(), r#"[{"id":1},{"id":2}]"#);
    let paging = json!({ "total": 37, "totalPages": 19, "next": { "page": "2" } });
    assert_eq!(called.message()["result"]["_meta"][PAGING_KEY], paging);

    let picked = HttpSpec { pick: Some("map(.id)".into()), paging: Paging::Result, ..get("/list") };
    let called = fixture.client(picked, json!({})).call("it", json!({})).await;
    assert_eq!(called.json(), json!({ "result": [1, 2], "paging": paging }));

    let called = fixture
        .client(HttpSpec { paging: Paging::Off, ..get("/list") }, json!({}))
        .call("it", json!({}))
        .await;
    assert_eq!(called.message()["result"]["_meta"].get(PAGING_KEY), None);
    // Cookies and challenges are not passed on to callers.
    assert!(!called.message().to_string().contains("backend-cookie"));

    for (path, wanted) in
        [("/text", "plain words"), ("/empty", "204 No Content"), ("/zipped", r#"{"zipped":true}"#)]
    {
        assert_eq!(fixture.client(get(path), json!({})).call("it", json!({})).await.text(), wanted, "{path}");
    }
    let called = fixture.client(get("/image"), json!({})).call("it", json!({})).await;
    let content = &called.message()["result"]["content"][0];
    assert_eq!((&content["type"], &content["mimeType"]), (&json!("image"), &json!("image/png")));
    let spec = HttpSpec { expect: Expect::Text, ..get("/html") };
    assert!(fixture.client(spec, json!({})).call("it", json!({})).await.text().contains("<html>"));
}

#[tokio::test]
async fn https_backends_are_verified() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls");
    let read = |name: &str| std::fs::read_to_string(format!("{data}/{name}")).unwrap();
    let backend = MockServer::start_tls(&read("leaf.pem"), &read("leaf.key")).await;
    let port = backend.address.port();
    let mut fixture = HttpFixture::new().await;
    fixture.client_spec.base_url = format!("https://localhost:{port}/api");
    fixture.client_spec.ca_pem = Some(read("ca.pem"));
    fixture.egress_spec.allow.push(format!("localhost:{port}"));
    assert_eq!(fixture.connect().probe().await, Ok(()));
    let called = fixture.client(get("/echo"), json!({})).call("it", json!({})).await;
    assert_eq!(called.json()["path"], "/api/echo", "{}", called.text());
    assert_eq!(called.json()["version"], "HTTP/2.0");

    // A backend with an untrusted certificate is rejected.
    fixture.client_spec.ca_pem = None;
    let called = fixture.client(get("/echo"), json!({})).call("it", json!({})).await;
    assert!(called.is_error() && called.text().starts_with("TLS handshake failed"), "{}", called.text());
}

#[test]
fn all_problems_are_reported_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let outbound = OutboundContext::new(EgressGuard::new(&EgressSpec::default()).unwrap());
    let wrong = HttpClientSpec {
        base_url: "http://user:pass@127.0.0.1".into(),
        headers: vec![
            ("Host".into(), "x".into()),
            ("A b".into(), "x".into()),
            ("X-Ok".into(), "a\nb".into()),
        ],
        max_redirects: 9,
        ca_pem: Some("nonsense".into()),
        ..HttpClientSpec::default()
    };
    let problems = HttpClient::new(&wrong, &outbound).unwrap_err();
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["http", "headers.Host", "headers.A b", "headers.X-Ok", "redirects", "ca"]);
    for (base_url, message) in [
        ("http://127.0.0.1:9100", "127.0.0.1:9100 is a private address"),
        ("api.example.com", "not an absolute URL"),
        ("ftp://example.com", "only http and https"),
        ("https://example.com?a=1", "must not have a query"),
        ("", "not a URL"),
    ] {
        let spec = HttpClientSpec { base_url: base_url.into(), ..HttpClientSpec::default() };
        let problems = HttpClient::new(&spec, &outbound).unwrap_err();
        assert!(problems.len() == 1 && problems[0].message.contains(message), "{base_url}: {problems:?}");
    }

    let fine = HttpClientSpec { base_url: "https://api.example.com/v1/".into(), ..HttpClientSpec::default() };
    let connection = HttpClient::new(&fine, &outbound).unwrap();
    let spec = HttpSpec {
        method: "CONNECT".into(),
        path: "/a/{id}/{maybe}/{typo}/../{open".into(),
        query: vec![Field::new("q", "{nope}")],
        headers: vec![Field::new("Transfer-Encoding", "{id}")],
        body: BodySpec::Json { value: json!({ "a": "{{ id" }), is_optional: false },
        pick: Some("{a".into()),
        ..HttpSpec::default()
    };
    let schema = json!({ "properties": { "id": {}, "maybe": {} }, "required": ["id"] });
    let problems = HttpBackend::new(spec, connection, &schema).err().unwrap();
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    let wanted =
        ["method", "path", "path", "path", "path", "query.q", "headers.Transfer-Encoding", "json", "pick"];
    assert_eq!(paths, wanted, "{problems:#?}");
    assert!(problems[5].message.contains("there are: id, maybe"), "{problems:#?}");
}
