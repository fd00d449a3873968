//! Credentials, and arguments that come from the caller.

use serde_json::json;

use super::*;

const SHOP: &str = r#"
    [auth.partners]
    bearer = [{ token = "t-ada", subject = "ada", scopes = ["read", "write"], attributes = { tenant = 7 } }]
    api_keys = []
"#;

#[test]
fn an_auth_table_has_one_kind() {
    let folder = TempFolder::new();
    let report =
        build_config(&folder, &format!("{SHOP}[servers.s]\n"), ServeMode::Http).map(|_| ()).unwrap_err();
    assert!(report.contains("has `bearer` and `api_keys`"), "{report}");
}

#[tokio::test]
async fn an_anonymous_caller_gets_the_default() {
    let folder = TempFolder::new();
    let server = server(
        &folder,
        r#"
        [servers.s.tools.who]
        args = { who = { from = "principal.sub", type = "string", default = "nobody" }, n = "integer=2" }
        template = "{{ who }} {{ n }}"
        [servers.s.tools.must]
        args = { who = { from = "principal.sub", type = "string" } }
        template = "{{ who }}"
        "#,
    );
    assert_eq!(call(&server, "who", json!({})).await.0, "nobody 2");
    let schema = server.get_tool("who").unwrap().input_schema.to_value();
    assert_eq!(
        schema["properties"],
        json!({ "n": { "type": "integer", "default": 2 } }),
        "hidden arguments are not in the schema"
    );
    let (text, is_error) = call(&server, "who", json!({ "who": "root" })).await;
    assert!(is_error && text.contains("who"), "hidden arguments cannot be sent: {text}");
    let (text, is_error) = call(&server, "must", json!({})).await;
    assert!(is_error && text.contains("the name of the caller"), "{text}");
}
