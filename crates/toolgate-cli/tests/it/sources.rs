//! Databases and APIs behind the program: every source of the example is called, and connections change at run time.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::harness::{RunningServer, TempDir, program, request, run, send, text, wait_until};

/// An API on loopback that records its requests.
struct Backend {
    address: String,
    state: Arc<BackendState>,
    _runtime: tokio::runtime::Runtime,
}

struct BackendState {
    name: &'static str,
    requests: Mutex<Vec<String>>,
    /// The description served at `/openapi.json`.
    openapi_document: Mutex<String>,
    n_connections: AtomicUsize,
}

impl Backend {
    fn new(name: &'static str) -> Backend {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Backend::listen_on(name, listener)
    }

    fn listen_on(name: &'static str, listener: std::net::TcpListener) -> Backend {
        let address = listener.local_addr().unwrap().to_string();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(BackendState {
            name,
            requests: Mutex::default(),
            openapi_document: Mutex::default(),
            n_connections: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let serving = Arc::clone(&state);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                serving.n_connections.fetch_add(1, Ordering::Relaxed);
                let state = Arc::clone(&serving);
                tokio::spawn(async move {
                    let service = service_fn(move |request| respond(Arc::clone(&state), request));
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Backend { address, state, _runtime: runtime }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the last request.
    fn last_request(&self) -> String {
        self.state.requests.lock().unwrap().last().cloned().unwrap_or_default()
    }

    fn set_openapi_paths(&self, paths: &Value) {
        let document =
            json!({ "openapi": "3.0.3", "info": { "title": "A", "version": "1" }, "paths": paths });
        *self.state.openapi_document.lock().unwrap() = document.to_string();
    }
}

async fn respond(
    state: Arc<BackendState>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| text(&body.to_bytes())).unwrap_or_default();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let (key, who) = (header("x-warehouse-key"), header("authorization"));
    let request = format!("{} {} {key}{who} {body}", parts.method, parts.uri);
    state.requests.lock().unwrap().push(request.trim_end().to_owned());
    let reply = match parts.uri.path() {
        "/openapi.json" => {
            let text = state.openapi_document.lock().unwrap().clone();
            let etag = format!("\"{}\"", text.len());
            let is_known = header("if-none-match") == etag;
            let reply = Response::builder().header("etag", etag).status(if is_known { 304 } else { 200 });
            reply.body(if is_known { Bytes::new() } else { text.into() }.into())
        }
        "/deliveries" => {
            let all = json!([{ "sku": "TEA-G", "due": "tomorrow", "driver": "nobody's business" }]);
            Response::builder().header("content-type", "application/json").body(all.to_string().into())
        }
        "/shelves/404" => Response::builder().status(404).body(Bytes::new().into()),
        path => {
            let body = json!({ "by": state.name, "path": path });
            Response::builder().header("content-type", "application/json").body(body.to_string().into())
        }
    };
    Ok(reply.unwrap())
}

/// Creates a database with these statements.
fn create_database(path: &Path, statements: &str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned()))).await.unwrap();
        connection.close().await.unwrap();
    });
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

#[test]
fn every_source_of_the_example_is_served() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let (folder, backend) = (TempDir::new(), Backend::new("warehouse"));
    copy(&examples.join("shop"), &folder.path().join("shop"));
    let shop = std::fs::read_to_string(examples.join("shop.toml")).unwrap();
    let url = backend.url();
    let served =
        RunningServer::with(&folder, &shop, &[], &[("WAREHOUSE_URL", &url), ("WAREHOUSE_KEY", "hush")]);
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let opened = send(&served.address, "POST /shop/mcp", &[], &request(1, "initialize", &hello));
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let headers = [("mcp-protocol-version", "2025-06-18"), ("mcp-session-id", session)];
    let request = |method: &str, params: Value| {
        let (status, mut response) = served.request("/shop/mcp", &headers, method, &params);
        assert_eq!(status, 200, "{response}");
        response["result"].take()
    };
    let call =
        |name: &str, arguments: Value| request("tools/call", json!({ "name": name, "arguments": arguments }));
    let text_of = |result: &Value| result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    let read = |uri: &str| request("resources/read", json!({ "uri": uri }))["contents"][0]["text"].clone();

    // A template, and a program.
    assert_eq!(text_of(&call("hours", json!({ "day": "saturday" }))), "10 to 4");
    assert!(text_of(&call("search_docs", json!({ "words": "glass" }))).contains("delivery.md"));

    // A database.
    let found = call("find_product", json!({ "q": "cup" }));
    let cups = json!([
        { "sku": "CUP-2", "name": "Cup with a handle", "price": 11.0 },
        { "sku": "CUP-1", "name": "Cup without a handle", "price": 9.5 },
    ]);
    assert_eq!(found["structuredContent"]["rows"], cups);
    assert!(found["isError"] != json!(true), "{found}");
    let hostile = call("find_product", json!({ "q": "' OR 1=1 --" }));
    assert_eq!(hostile["structuredContent"]["rows"], json!([]), "an argument is no SQL");
    assert_eq!(call("stock", json!({ "sku": "TEA-W" }))["structuredContent"], json!({ "value": 12 }));
    assert_eq!(call("stock", json!({ "sku": "NONE" }))["isError"], true);
    let prices: Value = serde_json::from_str(read("shop://prices").as_str().unwrap()).unwrap();
    assert_eq!(prices["rows"][0], json!({ "name": "Black tea, 100 g", "price": 6.9 }));
    let product: Value = serde_json::from_str(read("shop://product/TEA-G").as_str().unwrap()).unwrap();
    assert_eq!(product["stock"], 75);
    let started = json!({ "ref": { "type": "ref/resource", "uri": "shop://product/{sku}" }, "argument": { "name": "sku", "value": "CUP" } });
    assert_eq!(request("completion/complete", started)["completion"]["values"], json!(["CUP-1", "CUP-2"]));

    // An API: the selected part of its response, and the request it received.
    let deliveries = call("deliveries", json!({ "sku": "a&b=c" }));
    assert_eq!(text_of(&deliveries), r#"[{"sku":"TEA-G","due":"tomorrow"}]"#, "{deliveries}");
    assert_eq!(backend.last_request(), "GET /deliveries?sku=a%26b%3Dc hush");
    call("deliveries", json!({}));
    assert_eq!(backend.last_request(), "GET /deliveries hush");

    // An API by its OpenAPI description.
    let shelves = call("warehouse_shelves", json!({ "sku": "TEA-G" }));
    assert!(text_of(&shelves).contains(r#""path":"/shelves""#), "{shelves}");
    assert_eq!(backend.last_request(), "GET /shelves?sku=TEA-G hush");
    call("warehouse_count", json!({ "id": 7, "sku": "TEA-G", "number": 3 }));
    assert!(
        backend.last_request().starts_with("POST /shelves/7/counts hush {"),
        "{}",
        backend.last_request()
    );
    assert!(backend.last_request().contains(r#""number":3"#), "{}", backend.last_request());
    assert!(read("warehouse:///shelves/7").as_str().unwrap().contains("/shelves/7"));
    for nothing in ["shop://product/NONE", "warehouse:///shelves/404"] {
        let (_, response) =
            served.request("/shop/mcp", &headers, "resources/read", &json!({ "uri": nothing }));
        assert_eq!(response["error"]["code"], -32002, "{response}");
    }
    let tools = request("tools/list", json!({}))["tools"].clone();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(!names.iter().any(|name| name.contains("burn")), "{names:?}");
    let find = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "find_product").unwrap();
    let columns = &find["outputSchema"]["properties"]["rows"]["items"]["properties"];
    assert_eq!(columns["name"]["type"], "string", "the schema comes from the database: {find}");

    // Texts, files and a prompt that includes a file.
    assert_eq!(read("shop://sizing"), "EU 42 = US 9 = UK 8");
    assert_eq!(read("shop://greeting/de"), "Willkommen bei Acme!");
    assert!(read("docs:///returns.md").is_string());
    let prompt = request("prompts/get", json!({ "name": "reply", "arguments": { "question": "When?" } }));
    assert!(prompt["messages"].to_string().contains("not sent with glass"), "{prompt}");
    assert!(!served.log().contains("hush"), "{}", served.log());
}

#[test]
fn a_missing_backend_is_reported() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unused_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let toolgate = |arguments: &[&str]| {
        let mut program = program();
        program.current_dir(&root).args(arguments).env("WAREHOUSE_URL", format!("http://{unused_address}"));
        program.output().unwrap()
    };
    for tool in ["deliveries", "warehouse_shelves"] {
        let called = toolgate(&["call", "examples/shop.toml", tool, "{}"]);
        assert_eq!(called.status.code(), Some(4), "{}", text(&called.stderr));
        assert!(text(&called.stdout).contains("cannot connect"), "{}", text(&called.stdout));
    }
    let checked = toolgate(&["check", "--live", "examples/shop.toml"]);
    let stderr = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("shop.toml:") && stderr.contains("connection warehouse: cannot connect"),
        "{stderr}"
    );
    assert!(!stderr.contains("connection catalog"), "the database exists: {stderr}");
}

#[test]
fn connections_change_while_others_stay_open() {
    let folder = TempDir::new();
    for (name, value) in [("a.db", "from a"), ("b.db", "from b")] {
        let made = format!("CREATE TABLE t (said TEXT NOT NULL); INSERT INTO t VALUES ('{value}');");
        create_database(&folder.path().join(name), &made);
    }
    let (one, two, still) = (Backend::new("one"), Backend::new("two"), Backend::new("still"));
    let config = |file: &str, url: &str, key: &str| {
        format!(
            r#"
            security.egress.allow = ["127.0.0.1"]
            [connections.db]
            sqlite = "{file}"
            [connections.api]
            http = "{url}"
            headers = {{ X-Warehouse-Key = "{key}" }}
            [connections.still]
            http = "{}"
            [servers.s.tools.rows]
            sql = {{ on = "db", query = "SELECT said FROM t" }}
            output = "value"
            [servers.s.tools.ask]
            http = {{ on = "api", path = "/who", pick = "{{by}}" }}
            [servers.s.tools.still]
            http = {{ on = "still", path = "/who", pick = "{{by}}" }}
            "#,
            still.url()
        )
    };
    let served = RunningServer::new(&folder, &config("a.db", &one.url(), "first"));
    let none = json!({});
    assert_eq!(served.call("rows", &none), "from a");
    assert_eq!(served.call("ask", &none), r#"{"by":"one"}"#);
    assert_eq!(served.call("still", &none), r#"{"by":"still"}"#);
    assert_eq!(one.last_request(), "GET /who first");
    folder.write("toolgate.toml", &config("b.db", &one.url(), "second"));
    wait_until("the other database is read", || served.call("rows", &none) == "from b");
    assert_eq!(served.call("ask", &none), r#"{"by":"one"}"#);
    assert_eq!(one.last_request(), "GET /who second");
    folder.write("toolgate.toml", &config("b.db", &two.url(), "second"));
    wait_until("the other API is called", || served.call("ask", &none).contains("two"));
    assert_eq!(served.call("rows", &none), "from b");
    // An egress rule that forbids an address in use is applied, and reported like any other error.
    let guarded = config("b.db", &two.url(), "second").replace("[\"127.0.0.1\"]", "[]");
    folder.write("toolgate.toml", &guarded);
    served.wait_for("is a private address", 1);
    assert_eq!(served.call("ask", &none), r#"{"by":"two"}"#, "the old one is kept");
    assert_eq!(served.call("still", &none), r#"{"by":"still"}"#);
    assert_eq!(
        still.state.n_connections.load(Ordering::Relaxed),
        1,
        "what did not change is not dialed anew"
    );
}

#[test]
fn changes_of_an_openapi_description_at_a_url_are_applied() {
    let get =
        |id: &str| json!({ "get": { "operationId": id, "responses": { "200": { "description": "x" } } } });
    let folder = TempDir::new();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    drop(held);
    let served = RunningServer::with(
        &folder,
        &format!(
            r#"
            security.egress.allow = ["127.0.0.1"]
            [servers.s.tools.here]
            text = "here"
            [servers.s.openapi.api]
            spec = "http://{address}/openapi.json?key=${{KEY}}"
            base = "http://{address}/v1"
            refresh = "200ms"
            prefix = "api_"
            auth = {{ headers = {{ X-Warehouse-Key = "${{KEY}}" }} }}
            "#
        ),
        &[],
        &[("KEY", "hush")],
    );
    let names = || -> Vec<String> {
        let (_, listed) = served.request("/mcp", &[], "tools/list", &json!({}));
        let tools = listed["result"]["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names(), ["here"], "a backend that does not respond does not affect other tools");
    served.wait_for("cannot connect", 1);
    let backend = Backend::listen_on("late", std::net::TcpListener::bind(&address).unwrap());
    backend.set_openapi_paths(&json!({ "/a": get("a") }));
    wait_until("the description is found", || names() == ["here", "api_a"]);
    assert!(served.call("api_a", &json!({})).contains("/v1/a"));
    assert_eq!(backend.last_request(), "GET /v1/a hush");
    backend.set_openapi_paths(&json!({ "/a": get("a"), "/bb": get("bb"), "/c": { "post": 7 } }));
    wait_until("the change is served", || names() == ["here", "api_a", "api_bb"]);
    served.wait_for("POST /c", 1);
    // If it cannot be parsed, the old description stays in use.
    *backend.state.openapi_document.lock().unwrap() = "no description at all".into();
    served.wait_for("keeping the old one", 1);
    assert!(names().contains(&"api_bb".to_owned()));
    assert!(!served.log().contains("hush"), "{}", served.log());
}

#[test]
fn check_sends_no_requests_unless_it_is_live() {
    let (folder, backend) = (TempDir::new(), Backend::new("api"));
    backend.set_openapi_paths(&json!({ "/a": { "get": { "operationId": "a", "responses": {} } } }));
    create_database(&folder.path().join("a.db"), "CREATE TABLE t (said TEXT NOT NULL);");
    let url = backend.url();
    let config = format!(
        r#"
        security.egress.allow = ["127.0.0.1"]
        listen.http = "127.0.0.1:0"
        [connections.db]
        sqlite = "a.db"
        [servers.s.openapi.api]
        spec = "{url}/openapi.json"
        base = "{url}"
        [servers.s.tools.odd]
        description = "Reads what is not there."
        sql = {{ on = "db", query = "SELECT gone FROM nowhere" }}
        "#
    );
    folder.write("t.toml", &config);
    let checked = run(folder.path(), &["check", "t.toml"]);
    let stdout = text(&checked.stdout);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(stdout.contains("s: 1 tools") && stdout.contains("`check --live` fetches it"), "{stdout}");
    assert_eq!(backend.state.n_connections.load(Ordering::Relaxed), 0);
    let checked = run(folder.path(), &["check", "--live", "t.toml"]);
    let stdout = text(&checked.stdout);
    assert!(stdout.contains("s: 2 tools") && stdout.contains("no such table: nowhere"), "{stdout}");
    let explained = run(folder.path(), &["explain", "t.toml", "a"]);
    assert!(text(&explained.stdout).contains("GET /a"), "{}", text(&explained.stdout));
}

/// Paths, queries, headers, bodies and credentials arrive as configured.
#[test]
fn the_backend_receives_requests_as_configured() {
    let (folder, backend) = (TempDir::new(), Backend::new("api"));
    let url = backend.url();
    create_database(
        &folder.path().join("a.db"),
        "CREATE TABLE note (id INTEGER PRIMARY KEY, who TEXT, said TEXT);",
    );
    let text = format!(
        r#"
        security.egress.allow = ["127.0.0.1"]
        [auth.keys]
        api_keys = [
            {{ id = "ada", key = "ada-key", attributes = {{ ticket = "t-1" }} }},
            {{ id = "bob", key = "bob-key" }},
        ]
        [connections.plain]
        http = "{url}/base"
        query = {{ v = "2" }}
        [connections.as_caller]
        http = "{url}"
        auth = {{ forward = true }}
        [connections.notes]
        sqlite = "a.db"
        read_only = false
        [servers.s]
        auth = "keys"
        [servers.s.tools.json]
        args = {{ n = "integer", tags = "string[]?" }}
        http = {{ on = "plain", method = "POST", path = "/j", json = {{ n = "{{{{ n }}}}", tags = "{{{{ tags }}}}", fixed = true }} }}
        [servers.s.tools.form]
        args = {{ a = "string" }}
        http = {{ on = "plain", method = "PUT", path = "/f", form = {{ a = "{{a}}" }} }}
        [servers.s.tools.plain]
        args = {{ a = "string" }}
        http = {{ on = "plain", method = "POST", path = "/t", body = "<{{{{ a }}}}>", headers = {{ X-Warehouse-Key = "{{a}}" }} }}
        [servers.s.tools.forward]
        http = {{ on = "as_caller", path = "/me" }}
        [servers.s.tools.ticket]
        http = {{ on = "plain", path = "/me", auth = {{ attribute = "ticket", header = "X-Warehouse-Key", prefix = "ticket " }} }}
        [servers.s.tools.add_note]
        args = {{ who = {{ from = "principal.sub", type = "string" }}, said = "string" }}
        sql = {{ on = "notes", write = true, query = "INSERT INTO note (who, said) VALUES (:who, :said) RETURNING id" }}
        [servers.s.tools.my_notes]
        args = {{ who = {{ from = "principal.sub", type = "string" }} }}
        sql = {{ on = "notes", query = "SELECT said FROM note WHERE who = :who", max_rows = 1 }}
        [servers.s.tools.ask]
        args = {{ sql = "string" }}
        sql = {{ on = "notes", query_from = "sql", expose_errors = true }}
        "#
    );
    let served = RunningServer::new(&folder, &text);
    let call = |key: &str, name: &str, arguments: Value| {
        let headers = [("authorization", format!("Bearer {key}"))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let params = json!({ "name": name, "arguments": arguments });
        let (status, response) = served.request("/mcp", &headers, "tools/call", &params);
        assert_eq!(status, 200, "{response}");
        let text = response["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        (text, response["result"]["isError"] == json!(true))
    };
    let sent = |key: &str, name: &str, arguments: Value| {
        let (text, is_error) = call(key, name, arguments);
        assert!(!is_error, "{name}: {text}");
        backend.last_request()
    };
    assert_eq!(
        sent("ada-key", "json", json!({ "n": 7 })),
        r#"POST /base/j?v=2  {"n":7,"fixed":true}"#,
        "a number stays one, and what was not given is left out"
    );
    assert_eq!(sent("ada-key", "form", json!({ "a": "x&y=1" })), "PUT /base/f?v=2  a=x%26y%3D1");
    assert_eq!(sent("ada-key", "plain", json!({ "a": "hi" })), "POST /base/t?v=2 hi <hi>");
    assert_eq!(sent("bob-key", "forward", json!({})), "GET /me Bearer bob-key");
    assert_eq!(sent("ada-key", "ticket", json!({})), "GET /base/me?v=2 ticket t-1");
    let n_received = backend.state.requests.lock().unwrap().len();
    assert!(call("bob-key", "ticket", json!({})).1, "this caller has no ticket");
    assert!(call("ada-key", "plain", json!({ "a": "x\r\nHost: evil" })).1, "a header is one line");
    assert_eq!(backend.state.requests.lock().unwrap().len(), n_received, "neither call reached the backend");

    assert_eq!(
        call("ada-key", "add_note", json!({ "said": "hers" })),
        (r#"{"rows":[{"id":1}],"affected":1}"#.into(), false)
    );
    assert!(
        call("bob-key", "add_note", json!({ "said": "forged", "who": "ada" })).1,
        "arguments taken from the principal cannot be set"
    );
    call("bob-key", "add_note", json!({ "said": "his" }));
    assert_eq!(call("ada-key", "my_notes", json!({})).0, r#"{"rows":[{"said":"hers"}]}"#);
    assert_eq!(call("bob-key", "my_notes", json!({})).0, r#"{"rows":[{"said":"his"}]}"#);
    assert_eq!(
        call("ada-key", "ask", json!({ "sql": "SELECT count(*) AS n FROM note" })).0,
        r#"{"rows":[{"n":2}]}"#
    );
    assert!(call("ada-key", "ask", json!({ "sql": "DELETE FROM note" })).1);
    assert!(call("ada-key", "ask", json!({ "sql": "SELECT x FROM note" })).0.contains("no such column"));
    assert_eq!(
        call("ada-key", "ask", json!({ "sql": "SELECT count(*) AS n FROM note" })).0,
        r#"{"rows":[{"n":2}]}"#
    );
}
