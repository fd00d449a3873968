//! Annotated functions and impl blocks, as clients see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use toolgate::{ErrorKind, Item, Server, ToolSpec, items};

use crate::handlers::{ask, call};

/// Returns the text of a tool result.
async fn call_text(server: &Server, tool: &str, arguments: Value) -> String {
    let answer = call(server, tool, arguments).await;
    answer["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}")).to_owned()
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
    #[allow(clippy::too_many_arguments, reason = "every kind of parameter once")]
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
        money: State<Currency>,
        who: Principal,
        headers: Headers,
        cx: Ctx,
    ) -> String {
        let order = order.map_or("-".into(), |order| format!("{order:?}"));
        format!(
            "{query} {limit} {order} {discount:?} {tags:?} {type} {} {:?} {} {}",
            money.0,
            who.id(),
            headers.len(),
            cx.is_cancelled()
        )
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
    assert_eq!(
        call_text(&server, "search", json!({ "query": "tea" })).await,
        "tea 20 - None [] en EUR None 0 false"
    );
    let all = json!({ "query": "tea", "limit": 1, "order": "name", "off": 0.5, "tags": ["a"], "type": "de" });
    assert_eq!(call_text(&server, "search", all).await, "tea 1 Name Some(0.5) [\"a\"] de EUR None 0 false");
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
        let answer = call(&server, "search", arguments.clone()).await;
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert!(answer["isError"] == true && text.contains(expected), "{arguments}: {text}");
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

    let answer = call(&server, "one", json!({})).await;
    assert_eq!(answer["structuredContent"], json!({ "title": "tea", "price": 2.5 }));
    assert_eq!(answer["content"][0]["text"], r#"{"title":"tea","price":2.5}"#);
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
    let answer = call(&server, "tenant", json!({})).await;
    assert_eq!(
        (&answer["isError"], &answer["content"][0]["text"]),
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
    let error =
        Server::new("notes", "1").add(items![notes::one, notes::ids]).build().unwrap_err().to_string();
    assert!(error.contains("Vec<alloc::string::String>>`"), "a completer's state: {error}");
}

mod notes {
    use toolgate::prelude::*;

    /// The first
    #[resource]
    pub(crate) fn readme() -> &'static str {
        "read me"
    }

    /// Not this
    #[resource("All of them")]
    pub(crate) async fn all() -> Vec<u32> {
        vec![1, 2]
    }

    /// How it is set up
    #[resource(uri = "config://app", name = "config", mime = "application/json", title = "Settings")]
    pub(crate) fn settings() -> Result<Option<std::collections::BTreeMap<&'static str, u8>>, HandlerError> {
        Ok(Some([("a", 1)].into()))
    }

    #[resource("bytes://one")]
    pub(crate) fn bytes() -> Vec<u8> {
        vec![1]
    }

    #[resource("nothing://here")]
    pub(crate) fn nothing() -> Option<u32> {
        None
    }

    #[resource("error://here")]
    pub(crate) fn error() -> Result<u32, &'static str> {
        Err("out of ink")
    }

    /// One note
    #[template("notes://{id}", mime = "text/markdown")]
    pub(crate) fn one(
        /// Which
        #[arg(range = 1..=9)]
        id: u32,
        #[allow(unused_variables)] cx: Context,
    ) -> Option<String> {
        (id != 7).then(|| format!("note {id}"))
    }

    #[complete(one.id, super::notes::summary.note)]
    pub(crate) async fn ids(prefix: String, known: State<Vec<String>>, cx: Context) -> Vec<String> {
        let style = cx.other_argument("style").unwrap_or("").to_owned();
        known.iter().filter(|id| id.starts_with(&prefix)).map(|id| format!("{id}{style}")).collect()
    }

    /// Summarize a note
    #[prompt(arguments = [note = "Which note"])]
    pub(crate) async fn summary(
        note: u32,
        #[arg(default = "short", pattern = "^[a-z]+$")] style: String,
        #[arg(max_len = 3)] words: Option<String>,
    ) -> String {
        format!("{style} {note} {words:?}")
    }

    #[prompt("In words")]
    pub(crate) fn worded() -> Vec<PromptMessage> {
        vec![PromptMessage { role: Role::Assistant, content: Content::text("hello") }]
    }

    #[prompt(name = "named", description = "A name", title = "Named")]
    pub(crate) fn other() -> Result<Vec<String>, HandlerError> {
        Ok(vec!["one".into(), "two".into()])
    }
}

fn notes() -> Server {
    Server::new("notes", "1")
        .state(vec!["1".to_owned(), "12".to_owned(), "2".to_owned()])
        .collect_module("it::macros::notes")
        .build()
        .unwrap()
}

#[tokio::test]
async fn resources_are_listed_with_their_fields() {
    let server = notes();
    let resources = list_items(&server, "resources/list", "resources").await;
    assert_eq!(
        resources[..3],
        [
            json!({ "uri": "resource://readme", "name": "readme", "description": "The first", "mimeType": "text/plain" }),
            json!({
                "uri": "resource://all", "name": "all", "description": "All of them",
                "mimeType": "application/json"
            }),
            json!({
                "uri": "config://app", "name": "config", "title": "Settings",
                "description": "How it is set up", "mimeType": "application/json"
            }),
        ]
    );
    let uris: Vec<&str> = resources.iter().map(|one| one["uri"].as_str().unwrap()).collect();
    assert_eq!(
        uris[3..],
        ["bytes://one", "nothing://here", "error://here"],
        "everything is in the order of its lines"
    );
    let templates = list_items(&server, "resources/templates/list", "resourceTemplates").await;
    assert_eq!(
        templates,
        [json!({
            "uriTemplate": "notes://{id}", "name": "one", "description": "One note", "mimeType": "text/markdown"
        })]
    );
}

#[tokio::test]
async fn resources_are_read() {
    let server = notes();
    for (uri, contents) in [
        (
            "resource://readme",
            json!({ "uri": "resource://readme", "mimeType": "text/plain", "text": "read me" }),
        ),
        (
            "resource://all",
            json!({ "uri": "resource://all", "mimeType": "application/json", "text": "[1,2]" }),
        ),
        (
            "config://app",
            json!({ "uri": "config://app", "mimeType": "application/json", "text": "{\"a\":1}" }),
        ),
        (
            "bytes://one",
            json!({ "uri": "bytes://one", "mimeType": "application/octet-stream", "blob": "AQ==" }),
        ),
        ("notes://3", json!({ "uri": "notes://3", "mimeType": "text/markdown", "text": "note 3" })),
    ] {
        assert_eq!(read_resource(&server, uri).await["contents"][0], contents);
    }
    for (uri, expected) in [
        ("nothing://here", "no such resource"),
        ("notes://7", "no such resource"),
        // Beyond the limits of the variable.
        ("notes://10", "no such resource"),
        ("error://here", "out of ink"),
    ] {
        let message = read_resource(&server, uri).await["message"].to_string().to_lowercase();
        assert!(message.contains(expected), "{uri}: {message}");
    }
}

#[tokio::test]
async fn prompts_are_filled() {
    let server = notes();
    let prompts = list_items(&server, "prompts/list", "prompts").await;
    assert_eq!(
        prompts,
        [
            json!({
                "name": "summary",
                "description": "Summarize a note",
                "arguments": [
                    { "name": "note", "description": "Which note", "required": true },
                    { "name": "style" },
                    { "name": "words" },
                ],
            }),
            json!({ "name": "worded", "description": "In words" }),
            json!({ "name": "named", "description": "A name", "title": "Named" }),
        ]
    );
    let answer = get_prompt(&server, "summary", json!({ "note": "5" })).await;
    assert_eq!(
        answer["messages"],
        json!([{ "role": "user", "content": { "type": "text", "text": "short 5 None" } }])
    );
    assert_eq!(get_prompt(&server, "worded", json!({})).await["messages"][0]["role"], "assistant");
    assert_eq!(get_prompt(&server, "named", json!({})).await["messages"].as_array().unwrap().len(), 2);
    for (arguments, expected) in [
        (json!({}), "note"),
        (json!({ "note": "five" }), "`note` must be a non-negative integer"),
        (json!({ "note": "5", "style": "LONG" }), "`style` must match `^[a-z]+$`"),
        (json!({ "note": "5", "words": "four" }), "`words` must have at most 3 characters, got 4"),
    ] {
        let answer = get_prompt(&server, "summary", arguments).await;
        assert_eq!(answer["code"], -32602);
        assert!(answer["message"].as_str().unwrap().contains(expected), "{answer}");
    }
}

#[tokio::test]
async fn completers_know_state_and_the_other_arguments() {
    let server = notes();
    let template = json!({ "type": "ref/resource", "uri": "notes://{id}" });
    assert_eq!(complete(&server, template, "id", "1").await, json!(["1", "12"]));
    let params = json!({
        "ref": { "type": "ref/prompt", "name": "summary" },
        "argument": { "name": "note", "value": "2" },
        "context": { "arguments": { "style": "!" } },
    });
    let answer = ask(&server, "completion/complete", params).await;
    assert_eq!(answer["completion"]["values"], json!(["2!"]));
}

#[test]
fn a_completer_without_what_it_completes_is_a_fault() {
    let states = vec!["1".to_owned()];
    let error = Server::new("notes", "1").state(states).add(items![notes::ids]).build().unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("completer `it::macros::notes::ids`: it completes `id` of `it::macros::notes::one`")
    );
    assert!(error.contains("it completes `note` of `it::macros::notes::summary`"), "{error}");
}

struct Counter<T> {
    n: AtomicU32,
    name: T,
}

#[toolgate::server(instructions = "Counts")]
impl<T: std::fmt::Display + Send + Sync + 'static> Counter<T> {
    /// Count on
    #[toolgate::tool]
    async fn count(
        &self,
        /// How far
        #[arg(default = 1, range = 1..=9)]
        by: u32,
    ) -> String {
        tokio::task::yield_now().await;
        format!("{} {}", self.name, self.n.fetch_add(by, Ordering::Relaxed) + by)
    }

    #[toolgate::resource("count://now")]
    fn now(&self) -> u32 {
        self.n.load(Ordering::Relaxed)
    }

    #[toolgate::template("count://{name}/{?part}")]
    fn named(&self, name: String, part: Option<String>) -> Option<String> {
        (name == self.name.to_string()).then(|| part.unwrap_or(name))
    }

    #[toolgate::complete(named.name, ask.name)]
    fn names(&self, prefix: String) -> Result<Vec<String>, String> {
        let name = self.name.to_string();
        if name.starts_with(&prefix) { Ok(vec![name]) } else { Err("nobody".into()) }
    }

    #[toolgate::prompt]
    async fn ask(&self, name: String) -> String {
        format!("{name}? {}", self.n.load(Ordering::Relaxed))
    }

    /// Needs no value
    #[toolgate::tool]
    fn free(word: String) -> String {
        word
    }

    #[toolgate::tool]
    async fn lent(&self) -> &str {
        "lent"
    }

    #[cfg(any())]
    #[toolgate::tool]
    fn not_there(&self) -> NoSuchType {}

    fn unmarked(&self) -> u32 {
        self.now()
    }
}

fn counter() -> Counter<&'static str> {
    Counter { n: 0.into(), name: "c" }
}

#[tokio::test]
async fn an_impl_block_shares_its_value() {
    let shared = Arc::new(counter());
    let server = Server::new("counter", "1").add(Arc::clone(&shared)).build().unwrap();
    assert_eq!(call_text(&server, "count", json!({})).await, "c 1");
    assert_eq!(call_text(&server, "count", json!({ "by": 2 })).await, "c 3");
    assert!(call_text(&server, "count", json!({ "by": 10 })).await.contains("`by` must be at most 9"));
    assert_eq!(call_text(&server, "free", json!({ "word": "w" })).await, "w");
    assert_eq!(call_text(&server, "lent", json!({})).await, "lent");
    assert_eq!(shared.unmarked(), 3);
    assert_eq!(read_resource(&server, "count://now").await["contents"][0]["text"], "3");
    assert_eq!(read_resource(&server, "count://c/?part=x").await["contents"][0]["text"], "x");
    assert_eq!(
        get_prompt(&server, "ask", json!({ "name": "n" })).await["messages"][0]["content"]["text"],
        "n? 3"
    );
    let prompt = json!({ "type": "ref/prompt", "name": "ask" });
    assert_eq!(complete(&server, prompt.clone(), "name", "").await, json!(["c"]));
    assert_eq!(complete(&server, prompt, "name", "x").await, json!([]));
    let tools = list_items(&server, "tools/list", "tools").await;
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["count", "free", "lent"]);
    assert_eq!(tools[0]["inputSchema"]["properties"]["by"]["description"], "How far");
}

#[tokio::test]
async fn instructions_are_appended() {
    let instructions =
        async |server: Server| ask(&server, "server/discover", json!({})).await["instructions"].clone();
    let alone = Server::new("a", "1").add(counter()).build().unwrap();
    assert_eq!(instructions(alone).await, "Counts");
    let behind = Server::new("a", "1").instructions("First").add(counter()).build().unwrap();
    assert_eq!(instructions(behind).await, "First\n\nCounts");
}

#[tokio::test]
async fn items_are_added_to_a_running_server_atomically() {
    let server = Server::new("late", "1").announce_changes().build().unwrap();
    let again = server.add(counter()).unwrap();
    assert_eq!(call_text(&again, "count", json!({})).await, "c 1");
    assert_eq!(call_text(&server, "count", json!({})).await, "c 2");

    let bad: Vec<Item> = vec![
        ToolSpec::new("good", || async { "x" }).into(),
        ToolSpec::new("bad name", || async { "x" }).into(),
    ];
    let error = server.add(bad).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("tool `bad name`"));
    assert_eq!(list_items(&server, "tools/list", "tools").await.len(), 3, "`good` was not added either");
    let error = server.add(items![shop::search]).unwrap_err().to_string();
    assert!(error.contains("Currency>`"), "{error}");
}

mod forest {
    use toolgate::prelude::*;

    #[tool]
    pub(crate) fn oak() -> &'static str {
        "oak"
    }

    #[tool]
    pub(crate) fn ash() -> &'static str {
        "ash"
    }

    pub(crate) mod deep {
        use toolgate::prelude::*;

        #[tool]
        pub(crate) fn moss() -> &'static str {
            "moss"
        }
    }
}

mod foresters {
    use toolgate::prelude::*;

    #[tool]
    pub(crate) fn axe() -> &'static str {
        "axe"
    }
}

#[tokio::test]
async fn a_module_is_collected_with_or_without_those_inside_it() {
    let names = async |server: &Server| {
        let tools = list_items(server, "tools/list", "tools").await;
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = Server::new("forest", "1").collect_from("it::macros::forest").build().unwrap();
    assert_eq!(names(&all).await, ["oak", "ash", "moss"]);
    let flat = Server::new("forest", "1").collect_module("it::macros::forest").build().unwrap();
    assert_eq!(names(&flat).await, ["oak", "ash"]);
    let listed = Server::new("forest", "1").add(items![foresters::axe, forest::deep::moss]).build().unwrap();
    assert_eq!(names(&listed).await, ["axe", "moss"]);

    let server = Server::new("forest", "1").announce_changes().build().unwrap();
    assert_eq!(server.collect_module("it::macros::forest::deep").unwrap(), ["moss"]);
    assert_eq!(server.collect_from("it::macros::forest").unwrap(), ["oak", "ash", "moss"]);
    let error = server.collect_from("it::macros::fores").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Scan);
    assert!(error.to_string().contains("`it::macros::fores`"));
    assert_eq!(names(&server).await, ["moss", "oak", "ash"]);
    let error = Server::new("forest", "1").collect_from("no::such").build().unwrap_err().to_string();
    assert!(error.contains("`no::such`"), "{error}");
}

#[test]
fn all_linked_items_are_found() {
    let error = Server::new("all", "1").collect().build().unwrap_err().to_string();
    // Two modules of this file have an item called `one` each, and the states are missing.
    assert!(error.contains("Currency>`"), "{error}");
}

/// Generated code must not depend on the names in scope.
mod shadowed {
    #![allow(dead_code, non_camel_case_types, non_upper_case_globals, reason = "to be in the way")]

    pub(crate) struct Result;
    pub(crate) struct String;
    pub(crate) struct Vec;
    pub(crate) struct Option;
    pub(crate) struct Box;
    pub(crate) struct Ok;
    pub(crate) struct Err;
    pub(crate) trait Into {}
    pub(crate) trait Default {}
    pub(crate) trait Send {}
    pub(crate) mod std {}
    pub(crate) mod core {}
    pub(crate) mod serde {}
    pub(crate) mod schemars {}
    pub(crate) const given: u8 = 1;
    pub(crate) const returned: u8 = 2;
    pub(crate) const kit: u8 = 3;
    pub(crate) const p0: u8 = 4;

    #[toolgate::tool]
    pub(crate) async fn shout(
        /// What
        #[arg(min_len = 1, pattern = "^.", default = "x")]
        text: ::std::string::String,
        #[arg(range = 1..=3, default = returned)] times: u8,
        _headers: toolgate::Headers,
    ) -> ::core::result::Result<::std::string::String, toolgate::HandlerError> {
        ::core::result::Result::Ok(text.to_uppercase().repeat(times.into()))
    }

    #[toolgate::prompt]
    pub(crate) fn say(word: ::std::string::String) -> ::std::string::String {
        word
    }

    #[toolgate::complete(say.word)]
    pub(crate) fn words(so_far: ::std::string::String) -> [::std::string::String; 1] {
        [so_far]
    }

    pub(crate) struct Tin;

    #[toolgate::server]
    impl Tin {
        #[toolgate::tool]
        pub(crate) fn open(&self, tin: ::std::string::String) -> ::std::string::String {
            tin
        }
    }
}

#[tokio::test]
async fn macros_are_hygienic() {
    let server = Server::new("shadowed", "1")
        .add(items![shadowed::shout, shadowed::say, shadowed::words])
        .add(shadowed::Tin)
        .build()
        .unwrap();
    assert_eq!(call_text(&server, "shout", json!({ "text": "hi" })).await, "HIHI");
    assert_eq!(call_text(&server, "shout", json!({})).await, "XX");
    assert_eq!(call_text(&server, "open", json!({ "tin": "k" })).await, "k");
    let prompt = json!({ "type": "ref/prompt", "name": "say" });
    assert_eq!(complete(&server, prompt, "word", "w").await, json!(["w"]));
}
