//! Tasks of the test client, in both protocol versions that have them and over both transports.

use std::time::Duration;

use serde_json::json;
use toolgate::model::{SamplingMessage, SamplingRequest, TaskStatus, TaskSupport};
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Context, ElicitOutcome, Field, Form, HandlerError, Server};

use super::panic_message_of;

/// Asks the user and then the model, both in the task.
async fn research(cx: Context) -> Result<String, HandlerError> {
    cx.progress(1.0, "asking").await;
    let form = Form::new("About what?").field("topic", Field::text());
    let topic = match cx.elicit("topic", form).await? {
        ElicitOutcome::Accept(answer) => answer["topic"].as_str().unwrap_or_default().to_owned(),
        _ => return Err(HandlerError::new("no topic")),
    };
    let question = SamplingRequest::new(vec![SamplingMessage::user(format!("What about {topic}?"))], 50);
    let answer = cx.sample(question).key("answer").await?;
    Ok(format!("{topic}: {} blocks of {}", answer.content.len(), answer.model))
}

fn server() -> Server {
    Server::new("tasks", "1.0.0")
        .tool("research", research)
        .task(TaskSupport::Optional)
        .tool("fail", || async { Err::<String, _>("no luck") })
        .task(TaskSupport::Optional)
        .tool("forever", std::future::pending::<String>)
        .task(TaskSupport::Optional)
        .tool("inline", || async { "done" })
        .build()
        .unwrap()
}

/// A client of each version with tasks over each transport.
fn clients() -> Vec<TestClient> {
    let versions: Vec<_> = TestVersion::all().filter(|version| version.has_tasks()).collect();
    assert_eq!(
        versions.iter().map(|version| version.date()).collect::<Vec<_>>(),
        ["2025-11-25", "2026-07-28"]
    );
    let client = |version, over_http| {
        let client = TestClient::new(server(), version);
        if over_http { client.over_http() } else { client }
    };
    versions.into_iter().flat_map(|version| [client(version, false), client(version, true)]).collect()
}

#[tokio::test]
async fn elicitation_and_sampling_in_a_task_are_answered_by_the_callbacks() {
    for client in clients() {
        let client = client
            .on_elicit(|form| {
                assert_eq!(form.message(), "About what?");
                json!({ "topic": "tea" })
            })
            .on_sample(|_| "green");
        let task = client.call("research", json!({})).task().await;
        assert!(!task.id().is_empty());
        assert_eq!(task.result().await.text(), "tea: 1 blocks of test", "{client:?}");
        assert_eq!(task.status().await, TaskStatus::Completed);
        assert_eq!(task.result().await.text(), "tea: 1 blocks of test", "a result can be read twice");
    }
}

#[tokio::test]
async fn a_task_waits_for_input_until_its_result_is_awaited() {
    for client in clients() {
        let client = client.on_elicit(|_| ElicitOutcome::Decline).on_sample(|_| "unused");
        let task = client.call("research", json!({})).task().await;
        task.wait_for(TaskStatus::InputRequired).await;
        let result = task.result().await;
        assert!(result.is_error());
        assert_eq!(result.text(), "no topic");
    }
}

#[tokio::test]
async fn a_task_can_be_cancelled() {
    for client in clients() {
        let task = client.call("forever", json!({})).task().await;
        assert_eq!(task.status().await, TaskStatus::Working);
        assert!(task.cancel().await);
        task.wait_for(TaskStatus::Cancelled).await;
        assert!(task.result().await.result().is_err(), "{client:?}");
    }
}

#[tokio::test]
async fn the_failure_of_a_tool_is_the_result_of_its_task() {
    for client in clients() {
        let task = client.call("fail", json!({})).task().await;
        let result = task.result().await;
        assert!(result.is_error());
        assert_eq!(result.text(), "no luck");
    }
}

#[tokio::test]
async fn mistakes_are_explained() {
    let old = TestClient::new(server(), TestVersion::known("2025-06-18"));
    let message = panic_message_of(async move { old.call("research", json!({})).task().await }).await;
    assert_eq!(message, "protocol version 2025-06-18 has no tasks");
    let inline = server().test();
    let message = panic_message_of(async move { inline.call("inline", json!({})).task().await }).await;
    assert!(
        message.contains("did not start a task") && message.contains("task(TaskSupport::Optional)"),
        "{message}"
    );
    let slow = server().test().timeout(Duration::from_millis(50));
    let task = slow.call("forever", json!({})).task().await;
    let message = panic_message_of(async move { task.result().await }).await;
    assert!(message.starts_with("the task did not end within 50ms"), "{message}");
}
