//! A file that is read again: what is kept is what is described as before, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolgate::Server;

use super::{ServeMode, TempFolder, Upstreams, build_servers, call};
use crate::config;

/// Serves a text where another one was served before.
async fn reload(folder: &TempFolder, text: &str, backends: &Upstreams) -> (Server, Upstreams) {
    let (path, mut backends) = (folder.write("test.toml", text), backends.clone());
    let made = tokio::task::spawn_blocking(move || {
        let mut loaded = config::load_with_variables(&path, &|_| None);
        let world = Arc::default();
        let mut made =
            build_servers(&loaded.config, ServeMode::Local, &world, &mut backends, &mut loaded.diagnostics);
        if let Some(told) = loaded.error_report() {
            panic!("{told}");
        }
        (made.remove(0).server, backends)
    });
    made.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_database_hold_for_its_statements_at_once() {
    let folder = TempFolder::new();
    folder.write("a.db", "");
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n";
    let file = |limits: &str| {
        format!(
            "[connections.db]\nsqlite = \"a.db\"\n{limits}\n\
             [servers.a.tools.many]\nsql = {{ on = \"db\", query = \"{numbers} WHERE i < 50) SELECT i FROM n\" }}\n\
             [servers.a.tools.broken]\nsql = {{ on = \"db\", query = \"SELECT json('[') AS j\" }}\n\
             [servers.a.tools.endless]\nsql = {{ on = \"db\", query = \"{numbers}) SELECT i FROM n WHERE i < 0\" }}\n"
        )
    };
    let n_rows = |text: &str| serde_json::from_str::<Value>(text).unwrap()["rows"].as_array().unwrap().len();
    let (server, backends) = reload(&folder, &file("timeout = \"60s\""), &Upstreams::default()).await;
    assert_eq!(n_rows(&call(&server, "many", json!({})).await.0), 50);
    let hidden = call(&server, "broken", json!({})).await.0;
    assert!(!hidden.contains("JSON"), "{hidden}");

    let (server, backends) = reload(&folder, &file("max_rows = 7"), &backends).await;
    assert_eq!(n_rows(&call(&server, "many", json!({})).await.0), 7);

    let (server, backends) = reload(&folder, &file("max_bytes = 100"), &backends).await;
    let (text, is_error) = call(&server, "many", json!({})).await;
    assert!(is_error || n_rows(&text) < 50, "{text}");

    let (server, backends) = reload(&folder, &file("expose_errors = true"), &backends).await;
    let told = call(&server, "broken", json!({})).await.0;
    assert!(told.contains("JSON"), "{told}");

    let (server, _) = reload(&folder, &file("timeout = \"200ms\""), &backends).await;
    let endless = tokio::time::timeout(Duration::from_secs(20), call(&server, "endless", json!({}))).await;
    let (text, is_error) = endless.expect("the new limit holds");
    assert!(is_error, "{text}");
    let hidden = call(&server, "broken", json!({})).await.0;
    assert!(!hidden.contains("JSON"), "{hidden}");
}

/// Requests take everything from their connection, which is another one when anything is said of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_described_otherwise_is_another_one() {
    let folder = TempFolder::new();
    let file = |more: &str| {
        format!(
            "[connections.x]\nhttp = \"https://x.example\"\n{more}\n\
             [servers.a.tools.t]\nhttp = {{ on = \"x\", path = \"/\" }}\n"
        )
    };
    let (_, before) = reload(&folder, &file(""), &Upstreams::default()).await;
    let known = before.http("x").unwrap();
    let (_, again) = reload(&folder, &file("# a word"), &before).await;
    assert!(Arc::ptr_eq(&known, &again.http("x").unwrap()), "it is described as before");
    for more in [
        "timeout = \"3s\"",
        "connect_timeout = \"3s\"",
        "max_response = \"3KiB\"",
        "redirects = 1",
        "retry = { max = 1 }",
        "retry = { on = [500] }",
        "headers = { X-Key = \"k\" }",
        "query = { key = \"k\" }",
        "auth = { forward = true }",
        "[security.egress]\ndeny_private = true\nallow = [\"x.example\"]",
    ] {
        let (_, after) = reload(&folder, &file(more), &before).await;
        assert!(!Arc::ptr_eq(&known, &after.http("x").unwrap()), "{more}");
    }
}
