//! Prompts: registration, removal, arguments.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate::model::{PromptMessage, Role};
use toolgate::{PromptSpec, Server};

use super::empty_server;

#[derive(Deserialize, JsonSchema)]
struct Review {
    /// Programming language
    language: String,
    /// Code to review
    code: String,
}

fn review_server() -> Server {
    let review = |args: Review| async move { format!("Review this {}:\n{}", args.language, args.code) };
    empty_server("s")
        .add_prompt(PromptSpec::new("codeReview", review).describe("Code review prompt template"))
        .unwrap()
}

#[tokio::test]
async fn s1_178_a_prompt_is_registered() {
    let listed = review_server().list_prompts().await;
    let expected = json!({
        "name": "codeReview",
        "description": "Code review prompt template",
        "arguments": [
            { "name": "language", "description": "Programming language", "required": true },
            { "name": "code", "description": "Code to review", "required": true },
        ],
    });
    assert_eq!(listed, [expected]);
}

#[test]
fn s1_180_has_prompt() {
    assert!(review_server().has_prompt("codeReview") && !review_server().has_prompt("other"));
}

#[tokio::test]
async fn s1_184_a_prompt_is_a_text_or_several_messages() {
    let message = |role, text: &str| PromptMessage::new(role, text);
    let server = empty_server("s")
        .add_prompt(PromptSpec::new("one", || async { "Say hello" }))
        .unwrap()
        .add_prompt(PromptSpec::new("texts", || async { vec!["a".to_owned(), "b".to_owned()] }))
        .unwrap()
        .add_prompt(PromptSpec::new("mixed", move || async move {
            vec![message(Role::System, "s"), message(Role::User, "u"), message(Role::Assistant, "a")]
        }))
        .unwrap();
    let one = server.get_prompt("one", json!({})).await.unwrap();
    let said_by_user = |text: &str| json!({ "role": "user", "content": { "type": "text", "text": text } });
    assert_eq!(one["messages"], json!([said_by_user("Say hello")]));
    let texts = server.get_prompt("texts", json!({})).await.unwrap();
    assert_eq!(texts["messages"], json!([said_by_user("a"), said_by_user("b")]));
    let mixed = server.get_prompt("mixed", json!({})).await.unwrap();
    assert_eq!(mixed["messages"].as_array().unwrap().len(), 3);
    assert_eq!(mixed["messages"][2]["role"], "assistant");
}

#[test]
fn s1_185_prompts_are_taken_away() {
    let server = review_server().add_prompt(PromptSpec::new("other", || async { "x" })).unwrap();
    assert!(server.remove_prompt("codeReview") && !server.has_prompt("codeReview"));
    assert_eq!(server.clear_prompts().prompt_count(), 0);
}
