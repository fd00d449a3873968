//! What a handler learns about its request: extensions of layers, the session and its state, and the server itself.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolgate::testing::{TestClient, TestVersion, http_request};
use toolgate::{Context, Extension, Server, State, ToolError, ToolSpec};

#[derive(Clone, Debug, PartialEq)]
struct Tenant(String);

fn tenant_server() -> Server {
    Server::new("tenants", "1")
        .tool("optional", |cx: Context| async move {
            cx.extension::<Tenant>().map_or("nobody".to_owned(), |tenant| tenant.0.clone())
        })
        .tool("required", |tenant: Extension<Tenant>| async move { tenant.0.0.clone() })
        .build()
        .unwrap()
}

/// Takes the tenant from a header, as authentication middleware does.
async fn add_tenant(
    mut request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    let tenant = request.headers().get("x-tenant").and_then(|value| value.to_str().ok());
    if let Some(tenant) = tenant.map(|name| Tenant(name.to_owned())) {
        request.extensions_mut().insert(tenant);
    }
    next.run(request).await
}

#[tokio::test]
async fn handlers_see_the_extensions_of_axum_layers_in_every_version() {
    let app = axum::Router::new()
        .nest_service("/mcp", tenant_server().into_service())
        .layer(axum::middleware::from_fn(add_tenant));
    for version in TestVersion::all() {
        let client = TestClient::service(app.clone(), version);
        for tool in ["optional", "required"] {
            for tenant in ["acme", "globex"] {
                let reply = client.call(tool, json!({})).header("x-tenant", tenant).await;
                assert_eq!(reply.text(), tenant, "{tool} in {version:?}");
            }
        }
        assert_eq!(client.call("optional", json!({})).await.text(), "nobody");
        let error = client.call("required", json!({})).await.error().clone();
        assert_eq!(error.code(), -32603);
        assert!(error.message().starts_with("internal error, ref "), "{error:?}");
    }
}

#[tokio::test]
async fn there_are_no_extensions_over_stdio() {
    let client = TestClient::new(tenant_server(), TestVersion::newest());
    assert_eq!(client.call("optional", json!({})).await.text(), "nobody");
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Entry {
    key: String,
    value: Option<Value>,
}

fn session_server(has_sessions: bool) -> Server {
    let builder = Server::new("sessions", "1");
    let builder = if has_sessions { builder } else { builder.stateless() };
    builder
        .tool("id", |cx: Context| async move { cx.session_id().unwrap_or("none").to_owned() })
        .tool("get", |entry: Entry, cx: Context| async move {
            Ok::<_, ToolError>(cx.session().get::<Value>(&entry.key).await?.unwrap_or_default().to_string())
        })
        .tool("set", |entry: Entry, cx: Context| async move {
            cx.session().set(&entry.key, &entry.value).await?;
            Ok::<_, ToolError>("set")
        })
        .tool("remove", |entry: Entry, cx: Context| async move {
            Ok::<_, ToolError>(cx.session().remove(&entry.key).await?)
        })
        .tool("number", |entry: Entry, cx: Context| async move {
            Ok::<_, ToolError>(cx.session().get::<u32>(&entry.key).await?.unwrap_or_default())
        })
        .build()
        .unwrap()
}

async fn text(client: &TestClient, tool: &str, arguments: Value) -> String {
    client.call(tool, arguments).await.text()
}

const NO_SESSION: &str = "this client has no session to keep state in: its protocol version or this server has none; \
                          pass an id as an argument instead";

#[tokio::test]
async fn a_session_keeps_state_for_its_client_only() {
    let server = session_server(true);
    for version in TestVersion::all() {
        for (ada, ben) in [
            (TestClient::new(&server, version), TestClient::new(&server, version)),
            (TestClient::new(&server, version).over_http(), TestClient::new(&server, version).over_http()),
        ] {
            if !version.has_handshake() {
                assert_eq!(text(&ada, "id", json!({})).await, "none");
                for tool in ["get", "set", "remove"] {
                    let reply = ada.call(tool, json!({ "key": "cart", "value": 1 })).await;
                    assert_eq!((reply.is_error(), reply.text().as_str()), (true, NO_SESSION), "{tool}");
                }
                continue;
            }
            assert_eq!(text(&ada, "get", json!({ "key": "cart" })).await, "null");
            assert_eq!(text(&ada, "set", json!({ "key": "cart", "value": ["tea", 2] })).await, "set");
            assert_eq!(text(&ada, "set", json!({ "key": "page", "value": "a\"b" })).await, "set");
            assert_eq!(text(&ada, "get", json!({ "key": "cart" })).await, r#"["tea",2]"#);
            assert_eq!(text(&ada, "get", json!({ "key": "page" })).await, r#""a\"b""#);
            assert_eq!(text(&ben, "get", json!({ "key": "cart" })).await, "null", "of another session");
            assert_eq!(text(&ada, "remove", json!({ "key": "cart" })).await, "true");
            assert_eq!(text(&ada, "remove", json!({ "key": "cart" })).await, "false");
            assert_eq!(text(&ada, "get", json!({ "key": "cart" })).await, "null");
            let wrong = ada.call("number", json!({ "key": "page" })).await;
            assert!(
                wrong.is_error()
                    && wrong.text().starts_with("the value cannot be converted to or from the session state"),
                "{wrong:?}"
            );
            assert_ne!(text(&ada, "id", json!({})).await, text(&ben, "id", json!({})).await);
        }
    }
}

#[tokio::test]
async fn the_state_of_a_session_is_bounded_and_ends_with_it() {
    let server = session_server(true);
    let client = TestClient::new(&server, TestVersion::known("2025-11-25")).over_http();
    let large = "x".repeat(40_000);
    assert_eq!(text(&client, "set", json!({ "key": "a", "value": large })).await, "set");
    assert_eq!(
        text(&client, "set", json!({ "key": "a", "value": large })).await,
        "set",
        "it replaces itself"
    );
    let refused = client.call("set", json!({ "key": "b", "value": large })).await;
    assert_eq!(refused.text(), "the state of a session may have at most 65536 bytes");
    let id = text(&client, "id", json!({})).await;
    let delete = http_request("DELETE", "/mcp", [("mcp-session-id", &id)], "");
    assert_eq!(client.send(delete).head().await.unwrap().status, 204);
    let gone = client.call("get", json!({ "key": "a" })).await;
    assert_eq!(gone.error().status(), Some(404));
}

#[tokio::test]
async fn a_server_without_sessions_has_no_session_state() {
    let server = session_server(false);
    let client = TestClient::new(&server, TestVersion::known("2025-11-25")).over_http();
    assert_eq!(text(&client, "id", json!({})).await, "none");
    assert_eq!(text(&client, "get", json!({ "key": "a" })).await, NO_SESSION);
}

#[tokio::test]
async fn a_task_has_the_session_and_the_extensions_of_its_call() {
    let server = Server::new("tasks", "1")
        .tool("work", |tenant: Extension<Tenant>, cx: Context| async move {
            cx.session().set("done", &true).await?;
            let id = cx.session_id().unwrap_or_default();
            Ok::<_, ToolError>(format!("{} {}", tenant.0.0, !id.is_empty()))
        })
        .task(toolgate::model::TaskSupport::Optional)
        .tool("done", |cx: Context| async move {
            Ok::<_, ToolError>(cx.session().get::<bool>("done").await?.unwrap_or_default())
        });
    let client = TestClient::new(server, TestVersion::known("2025-11-25"))
        .over_http()
        .with_extension(Tenant("acme".into()));
    let created = client.request("tools/call", json!({ "name": "work", "arguments": {}, "task": {} })).await;
    let id = &created["result"]["task"]["taskId"];
    let result = client.request("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(result["result"]["content"][0]["text"], "acme true", "{created} {result}");
    assert_eq!(text(&client, "done", json!({})).await, "true");
}

#[tokio::test]
async fn a_handler_changes_the_server_that_runs_it() {
    let server = Server::new("self", "1")
        .tool("grow", |cx: Context| async move {
            let server = cx.server().ok_or("no server")?;
            server.add_tool(ToolSpec::new("grown", || async { "new" })).map_err(|_| "not added")?;
            Ok::<_, &str>("grown")
        })
        .build()
        .unwrap();
    for client in [TestClient::new(&server, TestVersion::newest()), TestClient::http(&server)] {
        let _ = server.remove_tool("grown");
        assert_eq!(text(&client, "grow", json!({})).await, "grown");
        assert_eq!(text(&client, "grown", json!({})).await, "new");
    }
}

#[tokio::test]
async fn the_server_of_a_call_is_the_same_server_also_behind_axum() {
    let kept = Arc::new(Mutex::new(None::<Server>));
    let keep = Arc::clone(&kept);
    let server = Server::new("self", "1")
        .tool("keep", move |cx: Context| {
            let keep = Arc::clone(&keep);
            async move {
                *keep.lock().unwrap() = cx.server();
                "kept"
            }
        })
        .build()
        .unwrap();
    let original = server.clone();
    let app = axum::Router::new().nest_service("/mcp", server.into_service());
    let client = TestClient::service(app.clone(), TestVersion::newest());
    client.call("keep", json!({})).await;
    assert!(kept.lock().unwrap().take().unwrap().ptr_eq(&original));
    // The service is enough to keep the server alive.
    drop(original);
    client.call("keep", json!({})).await;
    assert_eq!(kept.lock().unwrap().take().unwrap().tool_count(), 1);
}

#[tokio::test]
async fn a_context_does_not_keep_its_server_alive() {
    struct Probe;
    let probe = Arc::new(Probe);
    let kept = Arc::new(Mutex::new(None::<Context>));
    let keep = Arc::clone(&kept);
    let server = Server::new("self", "1")
        .state(Arc::clone(&probe))
        .tool("keep", move |cx: Context, _: State<Arc<Probe>>| {
            let keep = Arc::clone(&keep);
            async move {
                assert!(cx.server().is_some());
                *keep.lock().unwrap() = Some(cx);
                "kept"
            }
        })
        .build()
        .unwrap();
    let client = TestClient::http(&server);
    client.call("keep", json!({})).await;
    drop((client, server));
    let cx = kept.lock().unwrap().take().unwrap();
    assert!(cx.server().is_none(), "the server is gone");
    drop(cx);
    assert_eq!(Arc::strong_count(&probe), 1, "everything of the server was freed");
}
