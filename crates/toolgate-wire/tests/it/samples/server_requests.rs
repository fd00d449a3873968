//! Samples of server requests and client results.

use std::collections::BTreeMap;

use serde_json::json;
use toolgate_wire::model::*;

use super::*;

pub(crate) fn forms() -> Vec<ElicitForm> {
    let form = |schema| ElicitForm { message: "Please".into(), schema: raw(schema) };
    vec![
        form(json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "title": "Name", "description": "Yours", "minLength": 1,
                          "maxLength": 9, "format": "email", "default": "a@b.c" },
                "age": { "type": "integer", "title": "Age", "minimum": 0, "maximum": 150, "default": 7 },
                "size": { "type": "number", "description": "How large" },
                "ok": { "type": "boolean", "title": "Ok", "description": "Or not", "default": true },
                "one": { "type": "string", "title": "One", "description": "Of two", "enum": ["a", "b"],
                         "default": "a" },
                "old": { "type": "string", "title": "Old", "description": "Of two", "enum": ["a", "b"],
                         "enumNames": ["A", "B"], "default": "b" },
                "titled": { "type": "string", "title": "T", "description": "Of two", "default": "x",
                            "oneOf": [{ "const": "x", "title": "X" }, { "const": "y", "title": "Y" }] },
            },
            "required": ["name", "ok"],
        })),
        form(json!({ "type": "object", "properties": {} })),
    ]
}

/// Forms that only newer versions support.
pub(crate) fn new_forms() -> Vec<ElicitForm> {
    let form = |schema| ElicitForm { message: "Please".into(), schema: raw(schema) };
    vec![form(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "many": { "type": "array", "title": "Many", "description": "Of two", "items": { "type": "string", "enum": ["a", "b"] },
                      "minItems": 1, "maxItems": 2, "default": ["a"] },
            "titled": { "type": "array", "title": "T", "description": "Of one", "minItems": 0,
                        "maxItems": 1, "default": [],
                        "items": { "anyOf": [{ "const": "x", "title": "X" }] } },
        },
    }))]
}

fn conversation(content: &[Content]) -> Vec<SamplingMessage> {
    let say = |role, content| SamplingMessage { role, content, meta: None };
    let blocks = content.iter().cloned().map(SamplingBlock::Content);
    let alone = blocks.clone().map(|block| say(Role::User, vec![block]));
    let together = SamplingMessage { role: Role::Assistant, content: blocks.collect(), meta: meta() };
    alone.chain([together]).collect()
}

/// Content that a conversation can contain unchanged.
fn plain_content() -> Vec<Content> {
    let plain = |content: &Content| !matches!(content.kind, ContentKind::Link(_) | ContentKind::Embedded(_));
    content().into_iter().filter(plain).collect()
}

fn tool_conversation() -> Vec<SamplingMessage> {
    let say = |role, content| SamplingMessage { role, content, meta: None };
    let ask = |meta| SamplingBlock::ToolUse {
        id: "t1".into(),
        name: "qty".into(),
        input: raw(json!({ "sku": "A17" })),
        meta,
    };
    let result = |structured: Option<serde_json::Value>, is_error, meta| SamplingBlock::ToolResult {
        tool_use_id: "t1".into(),
        content: content(),
        structured_content: structured.map(raw),
        is_error,
        meta,
    };
    vec![
        say(Role::User, vec![SamplingBlock::Content(Content::text("how many?"))]),
        say(Role::Assistant, vec![ask(meta())]),
        say(Role::User, vec![result(Some(json!({ "n": 1 })), true, meta())]),
        say(Role::Assistant, vec![SamplingBlock::Content(Content::text("again")), ask(None)]),
        say(Role::User, vec![result(Some(json!([1])), false, None), result(None, false, None)]),
    ]
}

pub(crate) fn sampling_requests() -> Vec<SamplingRequest> {
    let rich = SamplingRequest {
        messages: conversation(&plain_content()),
        max_tokens: 400,
        system_prompt: text("Be brief"),
        model_preferences: Some(ModelPreferences {
            hints: vec!["claude".into(), "small".into()],
            cost: Some(0.0),
            speed: Some(0.5),
            intelligence: Some(1.0),
        }),
        include_context: text("thisServer"),
        temperature: Some(0.7),
        stop_sequences: vec!["END".into()],
        metadata: Some(raw(json!({ "provider": { "x": 1 } }))),
        tools: vec![],
        tool_choice: None,
    };
    let bare = SamplingRequest { max_tokens: 1, ..SamplingRequest::default() };
    let odd = SamplingRequest { model_preferences: Some(ModelPreferences::default()), ..bare.clone() };
    vec![rich, bare, odd]
}

/// Requests that only newer versions support.
pub(crate) fn new_sampling_requests() -> Vec<SamplingRequest> {
    let choices = [ToolChoice::Auto, ToolChoice::Required, ToolChoice::None];
    let with = |tool_choice| SamplingRequest {
        messages: tool_conversation(),
        max_tokens: 9,
        tools: tools(),
        tool_choice: Some(tool_choice),
        ..SamplingRequest::default()
    };
    choices.map(with).into()
}

pub(super) fn url(id: &str) -> ServerRequest {
    ServerRequest::Elicitation(ElicitRequest::Url {
        message: "Sign in".into(),
        url: "https://example.com/sign-in?x=1".into(),
        id: id.into(),
    })
}

/// Requests for every version that has their kind.
pub(crate) fn server_requests() -> Vec<ServerRequest> {
    let forms = forms().into_iter().map(|form| ServerRequest::Elicitation(ElicitRequest::Form(form)));
    let samples = sampling_requests().into_iter().map(|sample| ServerRequest::Sampling(Box::new(sample)));
    forms.chain(samples).chain([ServerRequest::Roots]).collect()
}

/// Requests that only newer versions support.
pub(crate) fn new_server_requests() -> Vec<ServerRequest> {
    let forms = new_forms().into_iter().map(|form| ServerRequest::Elicitation(ElicitRequest::Form(form)));
    let samples = new_sampling_requests().into_iter().map(|sample| ServerRequest::Sampling(Box::new(sample)));
    forms.chain(samples).chain([url("e-1")]).collect()
}

/// Requests with content that no version allows in a conversation.
pub(crate) fn downgraded_server_requests() -> Vec<ServerRequest> {
    let messages = conversation(&content());
    vec![ServerRequest::Sampling(Box::new(SamplingRequest {
        messages,
        max_tokens: 1,
        ..SamplingRequest::default()
    }))]
}

/// Requests inside a result: there a URL elicitation has no id.
pub(super) fn input_requests() -> BTreeMap<String, ServerRequest> {
    let forms = forms()
        .into_iter()
        .chain(new_forms())
        .map(|form| ServerRequest::Elicitation(ElicitRequest::Form(form)));
    let samples = sampling_requests()
        .into_iter()
        .chain(new_sampling_requests())
        .map(|sample| ServerRequest::Sampling(Box::new(sample)));
    let asks = forms.chain(samples).chain([ServerRequest::Roots, url("")]);
    asks.enumerate().map(|(n, ask)| (format!("ask/{n}"), ask)).collect()
}

/// Client results, each with its request.
pub(crate) fn client_results() -> Vec<(ServerRequest, ClientResult)> {
    let form = || ServerRequest::Elicitation(ElicitRequest::Form(forms().remove(0)));
    let sample = || ServerRequest::Sampling(Box::new(sampling_requests().remove(0)));
    let filled = raw(json!({ "name": "a", "age": 3, "ok": true }));
    let sampled = |content, stop_reason, meta| {
        ClientResult::Sampling(Box::new(SamplingResult {
            role: Role::Assistant,
            content,
            model: "m".into(),
            stop_reason,
            meta,
        }))
    };
    let plain = vec![SamplingBlock::Content(Content::text("four"))];
    let many = conversation(&plain_content()).pop().expect("not empty").content;
    let roots = vec![
        Root { uri: "file:///home".into(), name: text("Home"), meta: meta() },
        Root { uri: "file:///tmp".into(), ..Root::default() },
    ];
    vec![
        (form(), ClientResult::Elicitation(ElicitResult::Accept(Some(filled)))),
        (form(), ClientResult::Elicitation(ElicitResult::Decline)),
        (form(), ClientResult::Elicitation(ElicitResult::Cancel)),
        (url("e-1"), ClientResult::Elicitation(ElicitResult::Accept(None))),
        (sample(), sampled(plain.clone(), None, None)),
        (sample(), sampled(plain, text("endTurn"), meta())),
        (sample(), sampled(many, text("maxTokens"), None)),
        (ServerRequest::Roots, ClientResult::Roots(roots)),
        (ServerRequest::Roots, ClientResult::Roots(vec![])),
    ]
}

/// Client results with content that no version allows in a conversation.
pub(crate) fn downgraded_client_results() -> Vec<(ServerRequest, ClientResult)> {
    let ask = ServerRequest::Sampling(Box::new(sampling_requests().remove(0)));
    let content = conversation(&content()).pop().expect("not empty").content;
    let role = Role::Assistant;
    let sampled = SamplingResult { role, content, model: "m".into(), stop_reason: None, meta: None };
    vec![(ask, ClientResult::Sampling(Box::new(sampled)))]
}

/// Client results that only newer versions support.
pub(crate) fn new_client_results() -> Vec<(ServerRequest, ClientResult)> {
    let ask = ServerRequest::Sampling(Box::new(new_sampling_requests().remove(0)));
    let uses = tool_conversation().remove(3).content;
    let sampled = SamplingResult {
        role: Role::Assistant,
        content: uses,
        model: "m".into(),
        stop_reason: text("toolUse"),
        meta: None,
    };
    vec![(ask, ClientResult::Sampling(Box::new(sampled)))]
}
