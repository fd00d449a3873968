//! Reloads: unchanged upstreams and backends are kept, others are replaced.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolgate::Server;

use super::{ServeMode, TempFolder, Upstreams, build_servers, call};
use crate::config;

/// Builds a configuration with the upstreams of the previous one.
async fn reload(folder: &TempFolder, text: &str, upstreams: &Upstreams) -> (Server, Upstreams) {
    let (path, mut upstreams) = (folder.write("test.toml", text), upstreams.clone());
    let built = tokio::task::spawn_blocking(move || {
        let mut loaded = config::load_with_variables(&path, &|_| None);
        let runtime_state = Arc::default();
        let mut built = build_servers(
            &loaded.config,
            ServeMode::Local,
            &runtime_state,
            &mut upstreams,
            &mut loaded.diagnostics,
        );
        if let Some(report) = loaded.error_report() {
            panic!("{report}");
        }
        (built.remove(0).server, upstreams)
    });
    built.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_limits_of_a_database_apply_to_its_statements() {
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
    let (server, upstreams) = reload(&folder, &file("timeout = \"60s\""), &Upstreams::default()).await;
    assert_eq!(n_rows(&call(&server, "many", json!({})).await.0), 50);
    let hidden = call(&server, "broken", json!({})).await.0;
    assert!(!hidden.contains("JSON"), "{hidden}");

    let (server, upstreams) = reload(&folder, &file("max_rows = 7"), &upstreams).await;
    assert_eq!(n_rows(&call(&server, "many", json!({})).await.0), 7);

    let (server, upstreams) = reload(&folder, &file("max_bytes = 100"), &upstreams).await;
    let (text, is_error) = call(&server, "many", json!({})).await;
    assert!(is_error || n_rows(&text) < 50, "{text}");

    let (server, upstreams) = reload(&folder, &file("expose_errors = true"), &upstreams).await;
    let report = call(&server, "broken", json!({})).await.0;
    assert!(report.contains("JSON"), "{report}");

    let (server, _) = reload(&folder, &file("timeout = \"200ms\""), &upstreams).await;
    let endless = tokio::time::timeout(Duration::from_secs(20), call(&server, "endless", json!({}))).await;
    let (text, is_error) = endless.expect("the new timeout applies");
    assert!(is_error, "{text}");
    let hidden = call(&server, "broken", json!({})).await.0;
    assert!(!hidden.contains("JSON"), "{hidden}");
}

/// A change of any key of a connection replaces the client.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_connection_gets_a_new_client() {
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
    assert!(Arc::ptr_eq(&known, &again.http("x").unwrap()), "only a comment has changed");
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
