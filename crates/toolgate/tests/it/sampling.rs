//! Sampling with the builder: the same handler in every protocol version, with keys that a repeated run finds again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolgate::model::{
    Content, ModelPreferences, Role, SamplingBlock, SamplingMessage, SamplingRequest, SamplingResult,
};
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Context, Server, ToolError};

fn text_of(message: &SamplingMessage) -> &str {
    match &message.content[..] {
        [SamplingBlock::Content(content)] => content.as_text().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_prompt_is_sampled_in_every_version() {
    let server = Server::new("s", "1")
        .tool("ask", |cx: Context| async move {
            Ok::<_, ToolError>(cx.sample("Why?").max_tokens(200).await?.text())
        })
        .build()
        .unwrap();
    for version in TestVersion::all() {
        let client = TestClient::new(&server, version).on_sample(|request| {
            let expected = SamplingRequest::new(vec![SamplingMessage::user("Why?")], 200);
            assert_eq!(*request, expected);
            assert_eq!((request.messages[0].role, text_of(&request.messages[0])), (Role::User, "Why?"));
            "Because."
        });
        assert_eq!(client.call("ask", json!({})).await.text(), "Because.", "{version:?}");
    }
}

#[tokio::test]
async fn the_builder_sets_every_member_of_the_request() {
    let received = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&received);
    let server = Server::new("s", "1").tool("ask", |cx: Context| async move {
        let history = [SamplingMessage::user("Tea?"), SamplingMessage::assistant("Which?")];
        let sample = cx
            .sample("Green.")
            .messages(history)
            .system_prompt("Be brief")
            .temperature(0.5)
            .stop_sequence("END");
        let result = sample.model_hint("claude").model_hint("gpt").await?;
        Ok::<_, ToolError>(result.text())
    });
    let client = TestClient::new(server, TestVersion::newest()).on_sample(move |request| {
        *keep.lock().unwrap() = Some(request.clone());
        SamplingResult::new(
            "m",
            vec![
                SamplingBlock::Content(Content::text("one")),
                SamplingBlock::Content(Content::image(vec![1, 2], "image/png")),
                SamplingBlock::Content(Content::text("two")),
            ],
        )
    });
    assert_eq!(client.call("ask", json!({})).await.text(), "one\ntwo");
    let request = received.lock().unwrap().take().unwrap();
    let texts: Vec<&str> = request.messages.iter().map(text_of).collect();
    assert_eq!(texts, ["Tea?", "Which?", "Green."]);
    assert_eq!(request.system_prompt.as_deref(), Some("Be brief"));
    assert_eq!((request.temperature, request.max_tokens), (Some(0.5), 1000));
    assert_eq!(request.stop_sequences, ["END"]);
    let hints = vec!["claude".to_owned(), "gpt".to_owned()];
    assert_eq!(request.model_preferences, Some(ModelPreferences::default().with_hints(hints)));
}

#[tokio::test]
async fn requests_without_keys_are_told_apart_when_a_handler_runs_again() {
    let server = Server::new("s", "1")
        .tool("many", |cx: Context| async move {
            let mut answers = Vec::new();
            // The same prompt twice, and another one between them.
            for prompt in ["a", "b", "a"] {
                answers.push(cx.sample(prompt).await?.text());
            }
            let (left, right) = tokio::join!(cx.sample("c"), cx.sample("c"));
            answers.extend([left?.text(), right?.text()]);
            Ok::<_, ToolError>(answers.join(" "))
        })
        .build()
        .unwrap();
    for version in TestVersion::all() {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let client = TestClient::new(&server, version).on_sample(move |request| {
            format!("{}{}", text_of(&request.messages[0]), counter.fetch_add(1, Ordering::Relaxed))
        });
        let mut answers: Vec<String> =
            client.call("many", json!({})).await.text().split(' ').map(str::to_owned).collect();
        assert_eq!(count.load(Ordering::Relaxed), 5, "each is asked once in {version:?}: {answers:?}");
        // The last two are sent at once, so their order is the client's.
        answers[3..].sort();
        assert_eq!(answers, ["a0", "b1", "a2", "c3", "c4"], "{version:?}");
    }
}

#[tokio::test]
async fn a_reply_belongs_to_its_prompt_and_not_to_its_position() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let server = Server::new("s", "1").tool("shifted", move |cx: Context| {
        let is_first = counter.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            // Later runs ask in another order.
            let (first, second) = if is_first {
                tokio::join!(cx.sample("one"), cx.sample("two"))
            } else {
                let second = cx.sample("two").await;
                (cx.sample("one").await, second)
            };
            Ok::<_, ToolError>(format!("{} {}", first?.text(), second?.text()))
        }
    });
    let client = TestClient::new(server, TestVersion::newest())
        .on_sample(|request| format!("{}!", text_of(&request.messages[0])));
    assert_eq!(client.call("shifted", json!({})).await.text(), "one! two!");
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn keys_are_stable_and_may_be_chosen() {
    let server = Server::new("s", "1")
        .tool("derived", |cx: Context| async move { cx.sample("Why?").await.map(|result| result.text()) })
        .tool("chosen", |cx: Context| async move {
            cx.sample("Why?").key("why").await.map(|result| result.text())
        })
        .build()
        .unwrap();
    let client = TestClient::new(&server, TestVersion::newest()).on_sample(|_| "");
    let mut keys = Vec::new();
    for tool in ["derived", "derived", "chosen"] {
        let reply = client.request("tools/call", json!({ "name": tool, "arguments": {} })).await;
        let requests = reply["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{reply}"));
        keys.extend(requests.keys().cloned());
    }
    // The key is part of what a client holds while the user thinks, so it must not change with a release.
    assert_eq!(keys, ["sample-gskU8K6pQCa7", "sample-gskU8K6pQCa7", "why"]);
}
