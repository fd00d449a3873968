//! Named servers: change notifications, replacement, and independence.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use toolgate::compat::Dialect;
use toolgate::events::Events;
use toolgate::guard::Rate;
use toolgate::testing::{HttpExchange, ReceivedResponse, TestClient, TestVersion, http_request};
use toolgate::{App, Mount, Profile, Server, Servers, ToolSpec};

#[tokio::test]
async fn describing_one_server_may_access_others() {
    let servers = Servers::new();
    let inner = servers.clone();
    let made = tokio::task::spawn_blocking(move || {
        inner.server_with("a", |builder| {
            assert!(!inner.has("b"));
            inner.server("b");
            builder
        })
    });
    tokio::time::timeout(Duration::from_secs(5), made).await.expect("no deadlock").unwrap();
    assert_eq!(servers.names(), ["b", "a"]);
}

#[tokio::test]
async fn a_server_notifies_every_subscriber() {
    let (own, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mine = Events::new();
    let counted = Arc::clone(&own);
    mine.on_request(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let servers = Servers::new();
    let counted = Arc::clone(&all);
    servers.events().on_request(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let server = Server::new("both", "1").events(&mine).tool("x", || async { "x" }).build().unwrap();
    servers.add(&server).unwrap();
    server.handle(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await.unwrap();
    assert_eq!((own.load(Ordering::SeqCst), all.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn a_server_is_replaced_in_one_step() {
    let servers = Servers::new();
    let first = servers.server("a");
    let second = servers.replace_with("a", |builder| builder.tool("new", || async { "x" }));
    assert!(!first.ptr_eq(&second) && servers.server("a").ptr_eq(&second));
    assert!(servers.server("a").has_tool("new"));
}

/// A catalog is replaced while a client is connected: calls in flight end as they began, and unchanged lists cause no
/// notification.
#[tokio::test]
async fn a_catalog_is_replaced_in_one_step() {
    for version in TestVersion::all() {
        replace_catalog(version).await;
    }
}

async fn replace_catalog(version: TestVersion) {
    let (go, gate) = tokio::sync::watch::channel(false);
    let began = Arc::new(AtomicUsize::new(0));
    let begins = Arc::clone(&began);
    let shop = Server::new("shop", "1.0.0")
        .tool("slow", move || {
            let mut gate = gate.clone();
            begins.fetch_add(1, Ordering::SeqCst);
            async move {
                let _ = gate.wait_for(|open| *open).await;
                "old"
            }
        })
        .tool("hours", || async { "9 to 5" })
        .prompt("greet", || async { "Greet" })
        .build()
        .unwrap();
    let client = TestClient::new(shop.clone(), version);
    client.listen().await;
    let calling = {
        let client = TestClient::new(shop.clone(), version);
        tokio::spawn(async move { client.call("slow", json!({})).await.text() })
    };
    while began.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let next = Server::new("shop", "1.1.0")
        .tool("prices", || async { "low" })
        .tool("hours", || async { "always" })
        .prompt("greet", || async { "Greet" })
        .build()
        .unwrap();
    shop.replace_catalog(&next).unwrap();
    client.notification("notifications/tools/list_changed").await;
    let names: Vec<String> = client.tools().await.into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["prices", "hours"]);
    assert_eq!(client.call("hours", json!({})).await.text(), "always");
    assert_eq!(shop.version(), "1.1.0");
    let methods: Vec<String> =
        client.notifications().iter().map(|notice| notice.method().to_owned()).collect();
    assert!(
        !methods.iter().any(|method| method.contains("prompts") || method.contains("resources")),
        "{methods:?}"
    );
    go.send(true).unwrap();
    assert_eq!(calling.await.unwrap(), "old", "calls in flight end as they began");
}

/// Aliases of a tool change with the tool, and permissions apply to its name.
#[tokio::test]
async fn a_tool_is_called_by_its_aliases_too() {
    let shop = |tool: ToolSpec| Server::new("shop", "1.0.0").add_tool(tool);
    let hours = || ToolSpec::new("hours", || async { "9 to 5" });
    let server = shop(hours().alias("opening-hours")).build().unwrap();
    for version in TestVersion::all() {
        let client = TestClient::new(server.clone(), version);
        let names: Vec<String> = client.tools().await.into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["hours"]);
        assert_eq!(client.call("opening-hours", json!({})).await.text(), "9 to 5");
    }
    assert_eq!(server.stats().tools.by_tool.into_keys().collect::<Vec<_>>(), ["hours"]);
    assert!(!server.has_tool("opening-hours") && !server.remove_tool("opening-hours"));

    let next = shop(hours().alias("when")).tool("where", || async { "here" }).build().unwrap();
    server.replace_catalog(&next).unwrap();
    assert!(server.call_tool("opening-hours", json!({})).await.is_err());
    assert!(server.call_tool("when", json!({})).await.is_ok());
    let taken = |tool: ToolSpec| server.add_tool(tool).unwrap_err().to_string();
    assert!(taken(ToolSpec::new("when", || async { "now" })).contains("is an alias of `hours`"));
    assert!(taken(ToolSpec::new("now", || async { "now" }).alias("where")).contains("the name of another"));
    assert!(taken(ToolSpec::new("now", || async { "now" }).alias("a b")).contains("alias `a b`"));
    assert_eq!(server.tool_count(), 2, "a conflict changes nothing");

    server.set_profile(Profile::new("night").exclude_tools(["hours"]));
    assert!(server.call_tool("when", json!({})).await.is_err(), "hidden is hidden by any name");
    server.set_profile(Profile::new("odd").include_tools(["hours"]).exclude_tools(["when"]));
    assert!(server.call_tool("when", json!({})).await.is_ok(), "an alias is nothing to hide");
    assert!(server.remove_tool("hours"));
    server.set_profile(Profile::admin());
    assert!(server.call_tool("when", json!({})).await.is_err());

    for clash in [hours().alias("where"), hours().alias("hours"), hours().alias("x").alias("x")] {
        let built = Server::new("shop", "1.0.0").tool("where", || async { "here" }).add_tool(clash).build();
        assert!(built.unwrap_err().to_string().contains("tool `hours`: "));
    }
    let after = Server::new("shop", "1.0.0").add_tool(hours().alias("when")).tool("when", || async { "now" });
    assert!(after.build().unwrap_err().to_string().contains("tool `when`: its name is an alias of `hours`"));
}

#[tokio::test]
async fn an_invalid_catalog_replaces_nothing() {
    let shop = Server::new("shop", "1.0.0").tool("hours", || async { "9 to 5" }).build().unwrap();
    let next = Server::new("shop", "2.0.0")
        .state(7_u32)
        .tool("seven", |seven: toolgate::State<u32>| async move { seven.to_string() })
        .build()
        .unwrap();
    assert!(shop.replace_catalog(&next).is_err());
    assert!(shop.has_tool("hours") && !shop.has_tool("seven") && shop.version() == "1.0.0");
}

#[tokio::test]
async fn mounts_are_replaced_while_they_are_served() {
    let servers = Servers::new();
    servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
    let app = App::new(&servers).mount("/a", Mount::fixed("shop")).health();
    let mounts = app.mounts();
    let mut service = app.into_service().unwrap();
    let mut status = async |method: &str, path: &str| {
        let body = http_body_util::Full::new(bytes::Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        ));
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        tower_service::Service::call(&mut service, request).await.unwrap().status().as_u16()
    };
    assert_eq!((status("POST", "/a").await, status("POST", "/b").await), (200, 404));
    mounts.replace([("/b", Mount::fixed("shop"))]).unwrap();
    assert_eq!((status("POST", "/a").await, status("POST", "/b").await), (404, 200));
    for wrong in [vec!["/b", "/b/"], vec!["b"]] {
        assert!(mounts.replace(wrong.into_iter().map(|path| (path, Mount::fixed("shop")))).is_err());
        assert_eq!(status("POST", "/b").await, 200, "nothing has changed");
    }
    assert_eq!((status("GET", "/health").await, status("GET", "/ready").await), (200, 200));
    assert_eq!(status("POST", "/health").await, 405);
}

/// Sends a request without a body to an app.
async fn fetch(
    service: &toolgate::http::AppService,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> ReceivedResponse {
    let headers = headers.iter().chain(&[("accept", "application/json")]).copied();
    let request = http_request(method, path, headers, "");
    HttpExchange::start(service.clone(), request).fetch().await.unwrap()
}

fn hub() -> Servers {
    let servers = Servers::new();
    servers
        .server_with("hub", |server| {
            server.tool("blue_idea", || async { "# Idea" }).tool("hidden", || async { "no" })
        })
        .set_dialect(Dialect::bluehub())
        .set_profile(Profile::new("shown").exclude_tools(["hidden"]))
        .set_cors("*");
    servers
}

/// The hub page lists callable servers under the address at which it was requested.
#[tokio::test]
async fn a_hub_page_lists_its_servers() {
    let servers = hub();
    let app = App::new(&servers).mount("/api/mcp", Mount::fixed("hub")).into_service().unwrap();
    let seen =
        fetch(&app, "GET", "/api/mcp", &[("host", "localhost:8080"), ("origin", "https://any.site")]).await;
    assert_eq!(seen.status, 200);
    assert_eq!(seen.headers["access-control-allow-origin"], "*");
    let catalog: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
    assert_eq!((&catalog["tools"], &catalog["tool_names"]), (&json!(1), &json!(["blue_idea"])));
    let here = "http://localhost:8080/api/mcp";
    assert_eq!(catalog["config"]["cursor"]["mcpServers"]["hub"]["url"], here);
    assert_eq!(catalog["config"]["claude_desktop"]["mcpServers"]["hub"]["args"][2], here);

    servers.get("hub").unwrap().set_public_url("https://hub.example.com");
    let seen = fetch(&app, "GET", "/api/mcp", &[("host", "localhost:8080")]).await;
    let catalog: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
    assert_eq!(catalog["endpoint"], "https://hub.example.com/api/mcp");
    for (public, endpoint) in [
        ("https://hub.example.com/api/mcp", "https://hub.example.com/api/mcp"),
        ("https://hub.example.com/blue/", "https://hub.example.com/blue/api/mcp"),
    ] {
        servers.get("hub").unwrap().set_public_url(public);
        let seen = fetch(&app, "GET", "/api/mcp", &[("host", "localhost:8080")]).await;
        let catalog: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
        assert_eq!(catalog["endpoint"], endpoint);
    }
}

/// A page is behind the guards of its server, and shows no more than lists do.
#[tokio::test]
async fn a_server_page_is_behind_its_guards() {
    let servers = hub();
    let names = Mount::page("hub", |look| {
        let names: Vec<&str> = look.tools().iter().map(|tool| tool.name.as_str()).collect();
        json!({ "names": names, "query": look.query("query") })
    });
    let app = App::new(&servers).mount("/api", Mount::fixed("hub")).mount("/api/tools", names);
    let app = app.into_service().unwrap();
    let host = ("host", "localhost");
    let seen = fetch(&app, "GET", "/api/tools?query=a+b", &[host]).await;
    assert_eq!((seen.status, seen.body.as_str()), (200, r#"{"names":["blue_idea"],"query":"a b"}"#));
    assert_eq!(seen.headers["content-type"], "application/json");
    let head = fetch(&app, "HEAD", "/api/tools", &[host]).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.headers["content-length"], "36");
    let wrong = fetch(&app, "POST", "/api/tools", &[host]).await;
    assert_eq!((wrong.status, &wrong.headers["allow"]), (405, &"GET, HEAD".parse().unwrap()));
    assert_eq!(fetch(&app, "GET", "/api/tools/more", &[host]).await.status, 404);
    assert_eq!(fetch(&app, "GET", "/api/tools", &[("host", "evil.example")]).await.status, 403);
    let asked = [host, ("origin", "https://any.site"), ("access-control-request-method", "GET")];
    let preflight = fetch(&app, "OPTIONS", "/api/tools", &asked).await;
    assert_eq!(
        (preflight.status, &preflight.headers["access-control-allow-origin"]),
        (204, &"*".parse().unwrap())
    );

    let hub = servers.get("hub").unwrap().add_basic_auth("ada", "tiger");
    assert_eq!(fetch(&app, "GET", "/api/tools", &[host]).await.status, 401);
    let ada = ("authorization", "Basic YWRhOnRpZ2Vy");
    assert_eq!(fetch(&app, "GET", "/api/tools", &[host, ada]).await.status, 200);
    hub.set_rate_per_ip(Rate::per_minute(1));
    assert_eq!(fetch(&app, "GET", "/api/tools", &[host, ada]).await.status, 200);
    let many = fetch(&app, "GET", "/api/tools", &[host, ada]).await;
    assert_eq!(many.status, 429);
    assert!(many.headers.contains_key("retry-after") && many.body.contains(r#""jsonrpc":"2.0""#));
}
