//! Tools: registration, removal, calls.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Json, Server, ToolSpec};

use super::{ask, call, call_text, echo_server, empty_server, tool};

#[derive(Deserialize, JsonSchema)]
struct Place {
    /// From the comment
    location: String,
}

fn weather_tool() -> ToolSpec {
    ToolSpec::new("getWeather", |place: Place| async move { format!("Sunny in {}", place.location) })
        .describe("Get current weather for a location")
}

#[test]
fn s1_131_a_tool_is_registered() {
    assert!(empty_server("s").add_tool(weather_tool()).unwrap().has_tool("getWeather"));
}

#[tokio::test]
async fn s1_133_arguments_are_described_by_comments_or_by_hand() {
    let description = async |spec: ToolSpec| {
        let tools = empty_server("s").add_tool(spec).unwrap().list_tools().await;
        tools[0]["inputSchema"]["properties"]["location"]["description"].clone()
    };
    assert_eq!(description(weather_tool()).await, "From the comment");
    let message = "City name or coordinates";
    assert_eq!(description(weather_tool().describe_arg("location", message)).await, message);
    let server = empty_server("s");
    let error = server.add_tool(weather_tool().describe_arg("place", message)).unwrap_err().to_string();
    assert!(error.contains("`place`"), "{error}");
    assert!(!server.has_tool("getWeather"), "there is no such argument");
}

#[test]
fn s1_134_several_tools() {
    let tools: Vec<toolgate::Item> = ["a", "b", "c"].map(|name| tool(name).into()).into();
    assert_eq!(empty_server("s").add(tools).unwrap().tool_count(), 3);
}

#[test]
fn s1_135_has_tool() {
    assert!(echo_server("s").has_tool("echo") && !echo_server("s").has_tool("nope"));
}

#[test]
fn s1_136_get_tool() {
    assert!(echo_server("s").get_tool("nope").is_none());
    assert_eq!(echo_server("s").get_tool("echo").unwrap().description.as_deref(), Some("Says its name"));
}

#[test]
fn s1_137_tool_count() {
    assert_eq!((empty_server("s").tool_count(), echo_server("s").tool_count()), (0, 1));
}

#[test]
fn s1_138_all_tools() {
    let names: Vec<String> = empty_server("s")
        .add(Vec::<toolgate::Item>::from([tool("b").into(), tool("a").into()]))
        .unwrap()
        .tools()
        .iter()
        .map(|tool| tool.name.clone())
        .collect();
    assert_eq!(names, ["b", "a"]);
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code, reason = "only its schema counts")]
struct Everything {
    text: String,
    whole: i64,
    number: f64,
    flag: bool,
    list: Vec<String>,
    object: Place,
    maybe: Option<u8>,
    anything: Value,
}

/// Types are those of the handler; an argument of any JSON type has no type in the schema, so that all are accepted (the
/// source says `string` there, and would have to reject the rest).
#[tokio::test]
async fn s1_141_types_of_arguments() {
    let server = empty_server("s").add_tool(ToolSpec::new("t", |_: Everything| async {})).unwrap();
    let schema = server.list_tools().await[0]["inputSchema"].clone();
    let properties = &schema["properties"];
    for (name, expected) in [
        ("text", "string"),
        ("whole", "integer"),
        ("number", "number"),
        ("flag", "boolean"),
        ("list", "array"),
        ("object", "object"),
    ] {
        assert_eq!(properties[name]["type"], expected, "{name}: {schema}");
    }
    assert_eq!(properties["list"]["items"]["type"], "string");
    assert!(properties["anything"].get("type").is_none());
    let required = schema["required"].as_array().unwrap();
    assert!(required.contains(&json!("text")) && !required.contains(&json!("maybe")));
}

#[test]
fn s1_142_a_tool_is_taken_away() {
    let server = echo_server("s");
    assert!(!server.remove_tool("other") && server.has_tool("echo"));
    assert!(server.remove_tool("echo") && !server.has_tool("echo"));
}

#[test]
fn s1_143_all_tools_are_taken_away() {
    assert_eq!(echo_server("s").clear_tools().tool_count(), 0);
}

#[tokio::test]
async fn s1_144_the_same_name_replaces() {
    let server = echo_server("s").add_tool(ToolSpec::new("echo", || async { "the second" })).unwrap();
    assert_eq!(server.tool_count(), 1);
    assert_eq!(call_text(&server, "echo", json!({})).await, "the second");
}

#[tokio::test]
async fn s1_145_results_are_text() {
    let server = empty_server("s")
        .add_tool(ToolSpec::new("text", || async { "as it is" }))
        .unwrap()
        .add_tool(ToolSpec::new("number", || async { 7 }))
        .unwrap()
        .add_tool(ToolSpec::new("object", || async { Json(json!({ "a": 1 })) }))
        .unwrap()
        .add_tool(ToolSpec::new("list", || async { Json(vec![1, 2]) }))
        .unwrap()
        .add_tool(ToolSpec::new("null", || async { Json(Value::Null) }))
        .unwrap();
    for (name, expected) in
        [("text", "as it is"), ("number", "7"), ("object", r#"{"a":1}"#), ("list", "[1,2]"), ("null", "null")]
    {
        assert_eq!(call_text(&server, name, json!({})).await, expected, "{name}");
    }
}

#[derive(Deserialize, JsonSchema)]
struct Count {
    n: u32,
    #[serde(default)]
    tags: Vec<String>,
}

fn counting_server() -> toolgate::Builder {
    Server::new("s", "1").tool("count", |args: Count| async move { format!("{} {:?}", args.n, args.tags) })
}

/// Arguments with an obvious meaning are coerced, for clients of every version, unless the server is strict.
#[toolgate::test(server = counting_server())]
async fn s1_146_what_was_plainly_meant_is_taken(client: TestClient) {
    let answer = client.call("count", json!({ "n": "5", "tags": "[\"a\"]" })).await;
    assert_eq!(answer.text(), r#"5 ["a"]"#);
    assert_eq!(client.call("count", json!({ "n": 5 })).await.text(), "5 []");
    for wrong in [json!({ "n": "five" }), json!({ "n": "-5" }), json!({ "n": true }), json!({})] {
        assert!(client.call("count", wrong.clone()).await.is_error(), "{wrong}");
    }
    let strict = TestClient::new(counting_server().strict_arguments(), client.protocol_version());
    assert!(strict.call("count", json!({ "n": "5" })).await.is_error());
    // Only clients that send no protocol version may send any type for a string: the row of this id shows it.
    let echo = |args: Place| async move { args.location };
    let text = TestClient::new(Server::new("s", "1").tool("echo", echo), client.protocol_version());
    assert!(text.call("echo", json!({ "location": { "a": 1 } })).await.is_error());
}

/// The name of a tool is validated when the tool is added; an invalid tool is not registered.
#[test]
fn s1_149_a_tool_has_a_name() {
    let server = empty_server("s");
    assert!(server.add_tool(tool("")).is_err());
    assert_eq!(server.tool_count(), 0);
    assert!(Server::new("s", "1").add_tool(tool("")).build().is_err());
}

#[tokio::test]
async fn s1_150_changes_are_seen_at_once_and_notified() {
    let server = echo_server("s");
    for revision in TestVersion::all() {
        let client = TestClient::new(&server, revision);
        client.listen().await;
        let name: &'static str = revision.to_string().leak();
        server.add_tool(tool(name)).unwrap();
        client.notification("tools/list_changed").await;
        assert!(client.tools().await.iter().any(|tool| tool.name == name));
        assert_eq!(call_text(&server, name, json!({})).await, name);
    }
}

#[tokio::test]
async fn s1_187_a_request_as_a_value() {
    let server = echo_server("s");
    let answer = server.handle(json!({ "jsonrpc": "2.0", "method": "tools/list", "id": "1" })).await.unwrap();
    assert_eq!(answer["result"]["tools"][0]["name"], "echo");
    assert_eq!(answer["id"], "1");
}

#[tokio::test]
async fn s1_188_a_request_as_text() {
    let server = echo_server("s");
    let request = r#"{"jsonrpc":"2.0","method":"tools/call","id":"1","params":{"name":"echo"}}"#;
    let answer: Value = serde_json::from_str(&server.handle_str(request).await.unwrap()).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "echo");
    let broken: Value = serde_json::from_str(&server.handle_str("{").await.unwrap()).unwrap();
    assert_eq!(broken["error"]["code"], -32700);
    assert_eq!(ask(&server, "nope", json!({})).await["error"]["code"], -32601);
    assert!(call(&server, "echo", json!({})).await.get("error").is_none());
}
