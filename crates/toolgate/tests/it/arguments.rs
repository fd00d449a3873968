//! Arguments that are not quite right: unknown ones, `null`, variants and formats.

#![allow(dead_code, reason = "fields are only shown, by `Debug`")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::compat::Dialect;
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Builder, Server, ToolSpec, items, tool};

fn ten() -> u32 {
    10
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Search {
    query: String,
    #[serde(default = "ten", alias = "max")]
    limit: u32,
    #[serde(default)]
    order: Order,
    note: Option<String>,
    paging: Option<Paging>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Price,
    Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Paging {
    #[serde(default = "ten")]
    size: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Closed {
    #[serde(alias = "number")]
    id: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Open {
    id: u32,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Draw {
    shape: Shape,
    #[serde(default)]
    #[schemars(extend("format" = "email"))]
    to: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Shape {
    Point,
    Circle { radius: f64 },
}

/// Finds things
#[tool(allow_unknown)]
async fn find(query: String, #[arg(default = 3)] limit: u32) -> String {
    format!("{query} {limit}")
}

/// Finds one thing
#[tool]
async fn find_one(query: String, #[arg(default = 3)] limit: u32) -> String {
    format!("{query} {limit}")
}

fn server() -> Builder {
    Server::new("s", "1")
        .tool("search", |args: Search| async move { format!("{args:?}") })
        .tool("closed", |args: Closed| async move { format!("{args:?}") })
        .tool("open", |args: Open| async move { format!("{args:?}") })
        .tool("draw", |args: Draw| async move { format!("{args:?}") })
        .tool("any", |args: Value| async move { args.to_string() })
        .input_schema(json!({ "type": "object" }))
        .tool("none", || async { "nothing" })
        .tool("lax", |args: Search| async move { format!("{args:?}") })
        .allow_unknown_arguments()
        .add_tool(ToolSpec::new("prepared", |args: Closed| async move { format!("{args:?}") }).prepare(
            |mut arguments| {
                arguments.as_object_mut().unwrap().remove("trace");
                arguments
            },
        ))
        .add(items![find, find_one])
}

/// Calls a tool in every version over both transports. The expected text ends in `…` if it goes on.
async fn check(server: &Server, tool: &str, arguments: Value, expected: Result<&str, &str>) {
    for version in TestVersion::all() {
        let client = TestClient::new(server, version);
        for client in [client.clone(), client.over_http()] {
            let response = client.call(tool, arguments.clone()).await;
            let text = response.text();
            let (Ok(expected) | Err(expected)) = expected;
            assert_eq!(
                text.strip_prefix("Validation error: ").unwrap_or(&text),
                expected,
                "{version} {arguments}"
            );
            assert_eq!(response.is_error(), text.starts_with("Validation error: "), "{text}");
        }
    }
}

const FOUND: Result<&str, &str> =
    Ok(r#"Search { query: "tea", limit: 10, order: Price, note: None, paging: None }"#);

#[tokio::test]
async fn unknown_arguments_are_refused_with_a_similar_name() {
    let server = server().build().unwrap();
    check(&server, "search", json!({ "query": "tea" }), FOUND).await;
    let similar = Err("unknown parameter `qurey`; did you mean `query`?; `query` is required but missing");
    check(&server, "search", json!({ "qurey": "tea" }), similar).await;
    let both = Err("unknown parameter `Limit`; did you mean `limit`?; unknown parameter `x`");
    check(&server, "search", json!({ "query": "tea", "Limit": 5, "x": 1 }), both).await;
    let other = Err("unknown parameter `x`; `limit` must be integer, got the string \"many\"");
    check(&server, "search", json!({ "query": "tea", "x": 1, "limit": "many" }), other).await;
    check(&server, "closed", json!({ "id": 1, "x": 1 }), Err("unknown parameter `x`")).await;
    check(&server, "none", json!({ "x": 1 }), Err("unknown parameter `x`")).await;
    check(
        &server,
        "find_one",
        json!({ "query": "tea", "limt": 1 }),
        Err("unknown parameter `limt`; did you mean `limit`?"),
    )
    .await;
}

#[tokio::test]
async fn arguments_that_the_type_knows_are_accepted() {
    let server = server().build().unwrap();
    let found = Ok(r#"Search { query: "tea", limit: 2, order: Price, note: None, paging: None }"#);
    // An alias, which the schema does not have.
    check(&server, "search", json!({ "query": "tea", "max": 2 }), found).await;
    check(&server, "closed", json!({ "number": 1 }), Ok("Closed { id: 1 }")).await;
    check(&server, "lax", json!({ "query": "tea", "x": 1 }), FOUND).await;
    check(&server, "find", json!({ "query": "tea", "x": 1 }), Ok("tea 3")).await;
    check(&server, "open", json!({ "id": 1, "x": 2 }), Ok(r#"Open { id: 1, rest: {"x": Number(2)} }"#)).await;
    check(&server, "any", json!({ "x": 1 }), Ok(r#"{"x":1}"#)).await;
    check(&server, "prepared", json!({ "id": 1, "trace": 2 }), Ok("Closed { id: 1 }")).await;
    // Members of nested objects follow serde.
    let nested = Ok(
        r#"Search { query: "tea", limit: 10, order: Price, note: None, paging: Some(Paging { size: 10 }) }"#,
    );
    check(&server, "search", json!({ "query": "tea", "paging": { "x": 1 } }), nested).await;
}

#[tokio::test]
async fn schemas_say_whether_unknown_arguments_are_refused() {
    let client = server().build().unwrap().test();
    for tool in client.tools().await {
        let additional = tool.input_schema.to_value().get("additionalProperties").cloned();
        let expected = match tool.name.as_str() {
            "open" => Some(json!(true)),
            "any" | "lax" | "find" => None,
            _ => Some(json!(false)),
        };
        assert_eq!(additional, expected, "{}", tool.name);
    }
}

#[tokio::test]
async fn a_lenient_dialect_ignores_unknown_arguments() {
    for (dialect, is_lenient) in
        [("official", false), ("boxlang", true), ("bluehub", true), ("buddyboss", true)]
    {
        let dialect = Dialect::from_name(dialect).unwrap();
        let server = server().dialect(dialect).build().unwrap();
        let result = server.call_tool("search", json!({ "query": "tea", "x": 1 })).await;
        let text = result.map_or_else(|error| error.to_string(), |result| result.to_string());
        assert_eq!(text.contains("unknown parameter `x`"), !is_lenient, "{text}");
    }
}

#[tokio::test]
async fn null_is_the_default_of_an_argument() {
    let server = server().build().unwrap();
    let nulls = json!({ "query": "tea", "limit": null, "order": null, "note": null, "paging": null });
    check(&server, "search", nulls.clone(), FOUND).await;
    let nested = Ok(
        r#"Search { query: "tea", limit: 10, order: Price, note: None, paging: Some(Paging { size: 10 }) }"#,
    );
    check(&server, "search", json!({ "query": "tea", "paging": { "size": null } }), nested).await;
    check(&server, "find_one", json!({ "query": "tea", "limit": null }), Ok("tea 3")).await;
    check(&server, "search", json!({ "query": null }), Err("`query` must be string, got null")).await;
    let strict = self::server().strict_arguments().build().unwrap();
    check(
        &strict,
        "search",
        json!({ "query": "tea", "limit": null }),
        Err("`limit` must be integer, got null"),
    )
    .await;
}

#[tokio::test]
async fn messages_name_the_variants_and_the_format() {
    let server = server().build().unwrap();
    let order = Err("`order` must be one of [\"price\",\"name\"], got the string \"size\"");
    check(&server, "search", json!({ "query": "tea", "order": "size" }), order).await;
    let shapes = "`shape` must be one of {\"kind\": \"point\"}, {\"kind\": \"circle\", …}, got ";
    for (shape, got) in [(json!("point"), "the string \"point\""), (json!({ "kind": "dot" }), "an object")] {
        check(&server, "draw", json!({ "shape": shape }), Err(&format!("{shapes}{got}"))).await;
    }
    let circle = Err("`radius` is required in `shape` but missing");
    check(&server, "draw", json!({ "shape": { "kind": "circle" } }), circle).await;
    let to = Err("`to` must be an email address, got the string \"ada\"");
    check(&server, "draw", json!({ "shape": { "kind": "point" }, "to": "ada" }), to).await;
    let drawn = Ok(r#"Draw { shape: Point, to: "ada@example.com" }"#);
    check(&server, "draw", json!({ "shape": { "kind": "point" }, "to": "ada@example.com" }), drawn).await;
}
