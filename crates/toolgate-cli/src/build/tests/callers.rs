//! Who calls: arguments that come from the caller, scopes, profiles.

use serde_json::json;

use super::*;

const SHOP: &str = r#"
    [auth.partners]
    bearer = [{ token = "t-ada", subject = "ada", scopes = ["read", "write"], attributes = { tenant = 7 } }]
    api_keys = []
"#;

#[test]
fn one_way_to_prove_oneself_at_a_time() {
    let folder = TempFolder::new();
    let told =
        build_config(&folder, &format!("{SHOP}[servers.s]\n"), ServeMode::Http).map(|_| ()).unwrap_err();
    assert!(told.contains("has `bearer` and `api_keys`"), "{told}");
}

#[tokio::test]
async fn a_default_stands_in_for_a_caller_without_a_name() {
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
    assert_eq!(schema["properties"], json!({ "n": { "type": "integer", "default": 2 } }), "no model sees it");
    let (text, is_error) = call(&server, "who", json!({ "who": "root" })).await;
    assert!(is_error && text.contains("who"), "nor can one send it: {text}");
    let (text, is_error) = call(&server, "must", json!({})).await;
    assert!(is_error && text.contains("the name of the caller"), "{text}");
}
