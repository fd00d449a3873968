//! Annotated resources, prompts and completers.

use serde_json::json;
use toolgate::{Server, items};

use super::{complete, get_prompt, list_items, read_resource};
use crate::handlers::ask;

pub(super) mod notes {
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
        vec![PromptMessage::assistant("hello")]
    }

    #[prompt(name = "named", description = "A name", title = "Named")]
    pub(crate) fn other() -> Result<Vec<String>, HandlerError> {
        Ok(vec!["one".into(), "two".into()])
    }
}

fn notes() -> Server {
    Server::new("notes", "1")
        .state(vec!["1".to_owned(), "12".to_owned(), "2".to_owned()])
        .collect_module("it::macros::resources::notes")
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
    let response = get_prompt(&server, "summary", json!({ "note": "5" })).await;
    assert_eq!(
        response["messages"],
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
        let response = get_prompt(&server, "summary", arguments).await;
        assert_eq!(response["code"], -32602);
        assert!(response["message"].as_str().unwrap().contains(expected), "{response}");
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
    let response = ask(&server, "completion/complete", params).await;
    assert_eq!(response["completion"]["values"], json!(["2!"]));
}

#[test]
fn a_completer_without_its_target_is_an_error() {
    let states = vec!["1".to_owned()];
    let error = Server::new("notes", "1").state(states).add(items![notes::ids]).build().unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("completer `it::macros::resources::notes::ids`: it completes `id` of `it::macros::resources::notes::one`")
    );
    assert!(error.contains("it completes `note` of `it::macros::resources::notes::summary`"), "{error}");
}
