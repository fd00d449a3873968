//! Annotated functions and impl blocks, as clients see them.

mod collect;
mod hygiene;
mod resources;

use serde_json::{Value, json};
use toolgate::{Item, Server, items};

use crate::handlers::{ask, call};

/// Returns the text of a tool result.
async fn call_text(server: &Server, tool: &str, arguments: Value) -> String {
    let response = call(server, tool, arguments).await;
    response["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {response}")).to_owned()
}

async fn read_resource(server: &Server, uri: &str) -> Value {
    ask(server, "resources/read", json!({ "uri": uri })).await
}

async fn get_prompt(server: &Server, prompt: &str, arguments: Value) -> Value {
    ask(server, "prompts/get", json!({ "name": prompt, "arguments": arguments })).await
}

async fn list_items(server: &Server, what: &str, list: &str) -> Vec<Value> {
    ask(server, what, json!({})).await[list].as_array().unwrap().clone()
}

async fn complete(server: &Server, reference: Value, argument: &str, value: &str) -> Value {
    let params = json!({ "ref": reference, "argument": { "name": argument, "value": value } });
    ask(server, "completion/complete", params).await["completion"]["values"].clone()
}

fn server_of(items: Vec<Item>) -> Server {
    Server::new("macros", "1").add(items).build().unwrap()
}

mod shop {
    use std::fmt;

    use toolgate::prelude::*;

    #[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum Order {
        Price,
        Name,
    }

    #[derive(JsonSchema, Serialize)]
    pub(crate) struct Hit {
        pub(crate) title: String,
        pub(crate) price: f64,
    }

    pub(crate) struct Sold(pub(crate) String);

    impl fmt::Display for Sold {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "`{}` is sold out", self.0)
        }
    }

    pub(crate) struct Currency(pub(crate) &'static str);

    /// Search the catalog
    ///
    /// In all its parts.
    /// @order What comes first
    #[tool(read_only, idempotent, title = "Search", timeout = "30s")]
    pub(crate) async fn search(
        /// Free text
        #[arg(min_len = 2, max_len = 20, pattern = "^[a-z ]+$", example = "green tea")]
        query: String,
        /// How many hits
        #[arg(default = 20, range = 1..=100)]
        limit: u32,
        order: Option<Order>,
        #[arg(range = 0.0..1.0, description = "Off the price", rename = "off")] discount: Option<f64>,
        #[arg(default)] tags: Vec<String>,
        #[arg(default = "en")] r#type: String,
        currency: State<Currency>,
    ) -> String {
        let order = order.map_or("-".into(), |order| format!("{order:?}"));
        format!("{query} {limit} {order} {discount:?} {tags:?} {type} {}", currency.0)
    }

    /// Parameters that are extracted from the call
    #[tool]
    pub(crate) async fn caller(who: Principal, headers: Headers, cx: Ctx) -> String {
        format!("{:?} {} {}", who.id(), headers.len(), cx.is_cancelled())
    }

    /// One hit, as it is
    #[tool]
    pub(crate) fn one() -> Hit {
        Hit { title: "tea".into(), price: 2.5 }
    }

    #[tool]
    pub(crate) async fn all(sold: bool) -> Result<Vec<Hit>, Sold> {
        if sold { Err(Sold("tea".into())) } else { Ok(vec![one()]) }
    }

    #[tool]
    pub(crate) async fn maybe(#[arg(range = 1..)] n: u8) -> Option<u8> {
        Some(n)
    }

    #[tool]
    pub(crate) async fn plain() -> Result<u32, HandlerError> {
        Ok(u32::from_str_radix("ff", 16)?)
    }

    #[tool]
    pub(crate) async fn value() -> serde_json::Value {
        json!({ "n": 1 })
    }

    #[tool]
    pub(crate) async fn nothing() {}

    /// A function that returns what it does not name
    #[tool]
    pub(crate) fn opaque() -> impl Serialize + JsonSchema {
        vec![1, 2]
    }

    #[tool("Given in words")]
    pub(crate) fn worded() -> &'static str {
        "worded"
    }

    /// Not this
    #[tool(name = "calculator", description = "Adds", version = "2.0.0", destructive, closed_world)]
    pub(crate) fn add(a: i64, b: i64) -> i64 {
        a + b
    }

    pub(crate) struct Tenant(String);

    impl toolgate::Extract for Tenant {
        fn from_call(cx: &Context) -> Result<Tenant, HandlerError> {
            let client = cx.client().map(|client| client.name.clone());
            client.map(Tenant).ok_or(HandlerError::new("say who you are"))
        }
    }

    #[tool]
    pub(crate) fn tenant(#[extract] tenant: Tenant) -> String {
        tenant.0
    }
}

fn shop() -> Server {
    Server::new("shop", "1").state(shop::Currency("EUR")).add(items![shop::search]).build().unwrap()
}

#[tokio::test]
async fn a_function_is_a_tool_with_the_schema_of_its_parameters() {
    let tool = list_items(&shop(), "tools/list", "tools").await.remove(0);
    assert_eq!(
        tool,
        json!({
            "name": "search",
            "title": "Search",
            "description": "Search the catalog\n\nIn all its parts.",
            "annotations": { "readOnlyHint": true, "idempotentHint": true },
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": {
                        "type": "string",
                        "description": "Free text",
                        "minLength": 2,
                        "maxLength": 20,
                        "pattern": "^[a-z ]+$",
                        "examples": ["green tea"],
                    },
                    "limit": {
                        "type": "integer",
                        "description": "How many hits",
                        "default": 20,
                        "minimum": 1,
                        "maximum": 100,
                    },
                    "order": { "type": "string", "enum": ["price", "name"], "description": "What comes first" },
                    "off": {
                        "type": "number",
                        "description": "Off the price",
                        "minimum": 0.0,
                        "exclusiveMaximum": 1.0,
                    },
                    "tags": { "type": "array", "items": { "type": "string" }, "default": [] },
                    "type": { "type": "string", "default": "en" },
                },
                "required": ["query"],
            },
        })
    );
}

#[tokio::test]
async fn arguments_are_passed_to_their_parameters() {
    let server = shop();
    assert_eq!(call_text(&server, "search", json!({ "query": "tea" })).await, "tea 20 - None [] en EUR");
    let all = json!({ "query": "tea", "limit": 1, "order": "name", "off": 0.5, "tags": ["a"], "type": "de" });
    assert_eq!(call_text(&server, "search", all).await, "tea 1 Name Some(0.5) [\"a\"] de EUR");
    let server = server_of(items![shop::caller]);
    assert_eq!(call_text(&server, "caller", json!({})).await, "None 0 false");
}

#[tokio::test]
async fn limits_are_enforced() {
    let server = shop();
    for (arguments, expected) in [
        (json!({}), "`query` is required but missing"),
        (json!({ "query": "t" }), "`query` must have at least 2 characters"),
        (json!({ "query": "t".repeat(21) }), "`query` must have at most 20 characters"),
        (json!({ "query": "TEA" }), "`query`"),
        (json!({ "query": "tea", "limit": 0 }), "`limit` must be at least 1, got the number 0"),
        (json!({ "query": "tea", "limit": 101 }), "`limit` must be at most 100, got the number 101"),
        (json!({ "query": "tea", "off": 1.0 }), "`off`"),
        (json!({ "query": "tea", "off": -0.1 }), "`off` must be at least 0"),
        (json!({ "query": "tea", "order": "size" }), "`order`"),
    ] {
        let response = call(&server, "search", arguments.clone()).await;
        let text = response["content"][0]["text"].as_str().unwrap();
        assert!(response["isError"] == true && text.contains(expected), "{arguments}: {text}");
    }
}

mod edges {
    #[toolgate::tool]
    pub(crate) fn unsigned(#[arg(range = ..=100)] n: u32, #[arg(range = 0..300)] m: Option<u16>) -> String {
        format!("{n} {m:?}")
    }

    #[toolgate::tool]
    pub(crate) fn list(#[arg(min_len = 1, max_len = 2)] of: Vec<u8>) -> usize {
        of.len()
    }
}

#[tokio::test]
async fn limits_of_unsigned_numbers_and_lists_are_enforced() {
    let server = server_of(items![edges::unsigned, edges::list]);
    assert_eq!(call_text(&server, "unsigned", json!({ "n": 100, "m": 299 })).await, "100 Some(299)");
    assert_eq!(call_text(&server, "unsigned", json!({ "n": 0, "m": null })).await, "0 None");
    assert!(call_text(&server, "unsigned", json!({ "n": 101 })).await.contains("`n` must be at most 100"));
    assert!(call_text(&server, "unsigned", json!({ "n": 1, "m": 300 })).await.contains("`m`"));
    assert_eq!(call_text(&server, "list", json!({ "of": [1] })).await, "1");
    for of in [json!([]), json!([1, 2, 3])] {
        assert!(call_text(&server, "list", json!({ "of": of })).await.contains("`of`"));
    }
}

#[tokio::test]
async fn the_return_type_determines_the_output() {
    use shop::*;
    let server = server_of(items![
        shop::one,
        shop::all,
        shop::maybe,
        shop::plain,
        shop::value,
        shop::nothing,
        shop::opaque,
        shop::worded
    ]);
    let tools = list_items(&server, "tools/list", "tools").await;
    let schema = |name: &str| {
        tools.iter().find(|tool| tool["name"] == name).map(|tool| tool["outputSchema"].clone()).unwrap()
    };
    let hit = json!({
        "type": "object",
        "properties": { "title": { "type": "string" }, "price": { "type": "number" } },
        "required": ["title", "price"],
    });
    assert_eq!(schema("one"), hit);
    assert_eq!(schema("all"), json!({ "type": "array", "items": hit }));
    assert_eq!(schema("plain"), Value::Null);
    assert_eq!(schema("opaque")["type"], "array");

    let response = call(&server, "one", json!({})).await;
    assert_eq!(response["structuredContent"], json!({ "title": "tea", "price": 2.5 }));
    assert_eq!(response["content"][0]["text"], r#"{"title":"tea","price":2.5}"#);
    assert_eq!(call(&server, "all", json!({ "sold": false })).await["structuredContent"][0]["title"], "tea");
    let failed = call(&server, "all", json!({ "sold": true })).await;
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["content"][0]["text"], "`tea` is sold out");
    assert_eq!(call(&server, "maybe", json!({ "n": 3 })).await["structuredContent"], 3);
    assert_eq!(call_text(&server, "plain", json!({})).await, "255");
    assert_eq!(call(&server, "value", json!({})).await["structuredContent"], json!({ "n": 1 }));
    assert_eq!(call(&server, "nothing", json!({})).await["content"], json!([]));
    assert_eq!(call(&server, "opaque", json!({})).await["structuredContent"], json!([1, 2]));
    // The functions are still functions.
    assert_eq!((one().title, worded()), ("tea".to_owned(), "worded"));
}

#[tokio::test]
async fn a_tool_is_described_in_one_of_three_ways() {
    let server = server_of(items![shop::one, shop::worded, shop::add]);
    let tools = list_items(&server, "tools/list", "tools").await;
    let name_and_description =
        |index: usize| (tools[index]["name"].clone(), tools[index]["description"].clone());
    assert_eq!(name_and_description(0), (json!("one"), json!("One hit, as it is")));
    assert_eq!(name_and_description(1), (json!("worded"), json!("Given in words")));
    assert_eq!(name_and_description(2), (json!("calculator"), json!("Adds")));
    assert_eq!(tools[2]["annotations"], json!({ "destructiveHint": true, "openWorldHint": false }));
    assert_eq!(call_text(&server, "calculator", json!({ "a": 1, "b": 2 })).await, "3");
}

#[tokio::test]
async fn custom_extractors_work() {
    let server = server_of(items![shop::tenant]);
    let response = call(&server, "tenant", json!({})).await;
    assert_eq!(
        (&response["isError"], &response["content"][0]["text"]),
        (&json!(true), &json!("say who you are"))
    );
    let tools = list_items(&server, "tools/list", "tools").await;
    let nothing = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    assert_eq!(tools[0]["inputSchema"], nothing);
}

#[test]
fn a_missing_state_is_reported_at_build_time() {
    let error = Server::new("shop", "1").add(items![shop::search]).build().unwrap_err().to_string();
    assert!(
        error.contains("tool `search`: its handler takes `State<") && error.contains("Currency>`"),
        "{error}"
    );
    let error = Server::new("notes", "1")
        .add(items![resources::notes::one, resources::notes::ids])
        .build()
        .unwrap_err()
        .to_string();
    assert!(error.contains("Vec<alloc::string::String>>`"), "a completer's state: {error}");
}
