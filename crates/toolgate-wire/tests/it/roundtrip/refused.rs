//! What is refused: which code and status, by edition, and in which words.

use serde_json::{Value, json};
use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

const NEW: Edition = Edition::E2026_07_28;

/// Codes in the order of editions, then statuses.
#[test]
fn every_kind_has_its_code_and_status() {
    use FaultKind::*;
    let table: [(FaultKind, [i64; 5], [u16; 5]); 13] = [
        (Parse, [-32700; 5], [400; 5]),
        (Invalid, [-32600; 5], [400; 5]),
        (Session, [-32600; 5], [404; 5]),
        (Method, [-32601; 5], [200, 200, 200, 200, 404]),
        (Params, [-32602; 5], [200; 5]),
        (Greeting, [-32602; 5], [200, 200, 200, 200, 400]),
        (Resource, [-32002, -32002, -32002, -32002, -32602], [200; 5]),
        (Internal, [-32603; 5], [200; 5]),
        (Header, [-32600, -32600, -32600, -32600, -32020], [200, 200, 200, 200, 400]),
        (Capability, [-32600, -32600, -32600, -32600, -32021], [200, 200, 200, 200, 400]),
        (Version, [-32022; 5], [400; 5]),
        (UrlFirst, [-32600, -32600, -32600, -32042, -32600], [200; 5]),
        (Other(-7), [-7; 5], [200; 5]),
    ];
    for (kind, codes, statuses) in table {
        let fault = Fault::new(kind, "x");
        assert_eq!(Edition::ALL.map(|edition| fault.code(edition)), codes, "{kind:?}");
        assert_eq!(Edition::ALL.map(|edition| fault.status(edition)), statuses, "{kind:?}");
    }
}

/// No code that an edition forbids is ever said in it.
#[test]
fn codes_stay_in_their_edition() {
    for fault in super::samples::faults() {
        for edition in Edition::ALL {
            let code = fault.code(edition);
            let foreign = match edition {
                Edition::E2026_07_28 => [-32002, -32042].as_slice(),
                Edition::E2025_11_25 => &[-32020, -32021],
                _ => &[-32020, -32021, -32042],
            };
            assert!(!foreign.contains(&code), "{edition}: {fault} {code}");
        }
    }
}

fn refusal(edition: Edition, method: &str, params: Value) -> String {
    let params = Raw::from(params);
    let fault = match read_call(edition, method, Some(&params)) {
        Ok(call) => panic!("not refused: {call:?}"),
        Err(fault) => fault,
    };
    assert_eq!(fault.kind(), FaultKind::Params, "{fault}");
    fault.message().to_owned()
}

#[test]
fn a_refusal_names_what_came() {
    let many: Vec<String> = (0..1001).map(|n| n.to_string()).collect();
    let long = "x".repeat(4097);
    let cases = [
        ("tools/call", json!({}), "params.name must be a string, got nothing"),
        ("tools/call", json!({ "name": 5 }), "params.name must be a string, got number"),
        ("tools/call", json!({ "name": null }), "params.name must be a string, got null"),
        (
            "tools/call",
            json!({ "name": "x", "arguments": [1] }),
            "params.arguments must be an object, got array",
        ),
        (
            "tools/call",
            json!({ "name": "x", "inputResponses": null }),
            "params.inputResponses must be an object, got null",
        ),
        (
            "tools/call",
            json!({ "name": "x", "inputResponses": [] }),
            "params.inputResponses must be an object, got array",
        ),
        (
            "tools/call",
            json!({ "name": "x", "requestState": 1 }),
            "params.requestState must be a string, got number",
        ),
        ("resources/read", json!({ "uri": {} }), "params.uri must be a string, got object"),
        (
            "prompts/get",
            json!({ "name": "x", "requestState": null }),
            "params.requestState must be a string, got null",
        ),
        (
            "prompts/get",
            json!({ "name": "x", "arguments": { "a": [] } }),
            "params.arguments[] must be a string, got array",
        ),
        (
            "prompts/get",
            json!({ "name": "x", "arguments": "a" }),
            "params.arguments must be an object, got string",
        ),
        ("tools/list", json!({ "cursor": 7 }), "params.cursor must be a string, got number"),
        ("completion/complete", json!({}), "params.argument must be an object, got nothing"),
        (
            "completion/complete",
            json!({ "argument": { "name": "a", "value": "b" }, "ref": { "type": "x" } }),
            "params.ref.type must be \"ref/prompt\" or \"ref/resource\", got string",
        ),
        (
            "completion/complete",
            json!({ "argument": { "name": "a", "value": "b" }, "ref": { "type": "ref/prompt" } }),
            "params.ref.name must be a string, got nothing",
        ),
        (
            "completion/complete",
            json!({ "argument": { "name": "a", "value": long }, "ref": { "type": "ref/prompt", "name": "p" } }),
            "params.argument.value must be at most 4096 bytes, got string",
        ),
        ("subscriptions/listen", json!({}), "params.notifications must be an object, got nothing"),
        (
            "subscriptions/listen",
            json!({ "notifications": true }),
            "params.notifications must be an object, got boolean",
        ),
        (
            "subscriptions/listen",
            json!({ "notifications": { "toolsListChanged": "yes" } }),
            "notifications.toolsListChanged must be a boolean, got string",
        ),
        (
            "subscriptions/listen",
            json!({ "notifications": { "resourceSubscriptions": [1] } }),
            "notifications.resourceSubscriptions[] must be a string, got number",
        ),
        (
            "subscriptions/listen",
            json!({ "notifications": { "resourceSubscriptions": many } }),
            "notifications.resourceSubscriptions must be at most 1000 strings, got array",
        ),
        (
            "subscriptions/listen",
            json!({ "notifications": { "taskIds": "t" } }),
            "notifications.taskIds must be an array, got string",
        ),
        ("tasks/update", json!({ "taskId": "t" }), "params.inputResponses must be an object, got nothing"),
    ];
    for (method, params, message) in cases {
        assert_eq!(refusal(NEW, method, params), message, "{method}");
    }
    let old = Edition::E2025_11_25;
    assert_eq!(
        refusal(old, "tools/call", json!({ "name": "x", "task": 1 })),
        "params.task must be an object, got number",
    );
    assert_eq!(
        refusal(old, "logging/setLevel", json!({ "level": "loud" })),
        "params.level must be a log level from \"debug\" to \"emergency\", got string",
    );
    assert_eq!(
        refusal(old, "initialize", json!({ "protocolVersion": 1 })),
        "params.protocolVersion must be a string, got number",
    );
}

#[test]
fn what_can_be_understood_is_taken() {
    let read =
        |edition, method: &str, params: Value| read_call(edition, method, Some(&Raw::from(params))).unwrap();
    let tool = |arguments, retry| Call::CallTool { name: "x".into(), arguments, retry, task: None };
    assert_eq!(
        read(NEW, "tools/call", json!({ "name": "x", "arguments": null, "task": 7 })),
        tool(None, Retry::default()),
    );
    // An answer of the wrong kind is for those to judge who know the question.
    let Call::CallTool { retry, .. } =
        read(NEW, "tools/call", json!({ "name": "x", "inputResponses": { "a": 12345, "b": null } }))
    else {
        panic!()
    };
    assert_eq!(retry.responses["a"].as_str(), "12345");
    assert_eq!(retry.responses["b"].as_str(), "null");
    // Where questions are requests of their own, these mean nothing.
    let odd = json!({ "name": "x", "inputResponses": null, "requestState": 7 });
    for edition in Edition::ALL.into_iter().filter(|edition| edition.shakes_hands()) {
        assert_eq!(read(edition, "tools/call", odd.clone()), tool(None, Retry::default()));
    }
    let Call::GetPrompt { arguments, .. } = read(
        NEW,
        "prompts/get",
        json!({ "name": "x", "arguments": { "n": 1.5, "yes": true, "none": null, "text": "t" } }),
    ) else {
        panic!()
    };
    let expected = [("n", "1.5"), ("text", "t"), ("yes", "true")];
    assert!(arguments.iter().map(|(name, text)| (name.as_str(), text.as_str())).eq(expected));
    // The context of a completion came later.
    let completing = json!({ "argument": { "name": "a", "value": "b" },
        "ref": { "type": "ref/resource", "uri": "x://{y}" }, "context": { "arguments": { "k": "v" } } });
    for edition in Edition::ALL {
        let Call::Complete(read) = read(edition, "completion/complete", completing.clone()) else { panic!() };
        assert_eq!(read.context.is_empty(), edition < Edition::E2025_06_18);
    }
    // Core tasks have no details, so nothing in their place can be wrong.
    let get = Call::GetTask { id: "t".into() };
    let task = json!({ "taskId": "t", "status": "completed", "createdAt": "", "lastUpdatedAt": "",
        "ttl": null, "result": 7 });
    assert!(read_outcome(Edition::E2025_11_25, &get, &Raw::from(task)).is_ok());
    let ids = json!({ "notifications": { "resourceSubscriptions": vec!["u"; 1000] } });
    assert!(matches!(read(NEW, "subscriptions/listen", ids), Call::Listen(_)));
}

#[test]
fn a_greeting_names_what_is_missing() {
    let version = key::VERSION;
    let capabilities = key::CAPABILITIES;
    let cases = [
        (json!({}), format!("params._meta lacks {version} and {capabilities}")),
        (json!({ "_meta": {} }), format!("params._meta lacks {version} and {capabilities}")),
        (json!({ "_meta": 5 }), "params._meta must be an object, got number".to_owned()),
        (json!({ "_meta": { capabilities: {} } }), format!("params._meta lacks {version}")),
        (json!({ "_meta": { version: "x" } }), format!("params._meta lacks {capabilities}")),
        (
            json!({ "_meta": { version: 1, capabilities: {} } }),
            format!("params._meta.{version} must be a string, got number"),
        ),
        (
            json!({ "_meta": { version: "x", capabilities: [] } }),
            format!("params._meta.{capabilities} must be an object, got array"),
        ),
        (
            json!({ "_meta": { version: "x", capabilities: { "sampling": true } } }),
            "clientCapabilities.sampling must be an object, got boolean".to_owned(),
        ),
        (
            json!({ "_meta": { version: "x", capabilities: {}, key::CLIENT: "me" } }),
            format!("params._meta.{} must be an object, got string", key::CLIENT),
        ),
    ];
    for (params, message) in cases {
        let fault = read_greeting(Some(&Raw::from(params))).unwrap_err();
        assert_eq!((fault.kind(), fault.message()), (FaultKind::Greeting, message.as_str()));
    }
    let fault = read_greeting(None).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Greeting);
    // An edition that nobody knows is still a greeting.
    let params = Raw::from(json!({ "_meta": { version: "2031-01-01", capabilities: { "new": {} } } }));
    assert_eq!(read_greeting(Some(&params)).unwrap().0, "2031-01-01");
}

#[test]
fn meta_is_read_leniently_but_for_the_log_level() {
    let meta = |meta: Value| read_meta(Some(&Raw::from(json!({ "_meta": meta }))));
    assert_eq!(read_meta(None).unwrap(), Meta::default());
    assert_eq!(meta(json!(5)).unwrap(), Meta::default());
    assert_eq!(meta(json!({ "progressToken": 1.5 })).unwrap().progress, None);
    assert_eq!(meta(json!({ "progressToken": {} })).unwrap().progress, None);
    assert_eq!(meta(json!({ "progressToken": "" })).unwrap().progress, Some(ProgressToken::from("")));
    assert_eq!(meta(json!({ key::LOG_LEVEL: "error" })).unwrap().log_level, Some(LogLevel::Error));
    for level in [json!("loud"), json!(3)] {
        let fault = meta(json!({ key::LOG_LEVEL: level })).unwrap_err();
        assert_eq!(fault.kind(), FaultKind::Params);
    }
}

#[test]
fn results_that_do_not_fit_are_invalid() {
    let tool = Call::CallTool { name: "x".into(), arguments: None, retry: Retry::default(), task: None };
    let list = Call::ListTools { cursor: None };
    let required = json!({ "resultType": "input_required", "requestState": "s" });
    let task = json!({ "resultType": "task", "taskId": "t", "status": "working",
        "createdAt": "", "lastUpdatedAt": "", "ttlMs": null });
    let cases = [
        (NEW, &tool, json!({ "resultType": "surprise", "content": [] })),
        (NEW, &tool, json!({ "resultType": 7, "content": [] })),
        (NEW, &tool, json!({ "resultType": "input_required" })),
        (NEW, &tool, json!({ "resultType": "complete" })),
        (NEW, &tool, json!({ "content": [{ "type": "hologram" }] })),
        (NEW, &tool, json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": "A" }] })),
        (
            NEW,
            &tool,
            json!({ "resultType": "input_required",
            "inputRequests": { "a": { "method": "tools/call", "params": {} } } }),
        ),
        (NEW, &list, required.clone()),
        (NEW, &list, task.clone()),
        (NEW, &list, json!({ "tools": [{ "name": "x" }] })),
        (NEW, &Call::Listen(Filter::default()), json!({ "resultType": "complete" })),
        (Edition::E2025_11_25, &tool, required),
        (Edition::E2025_11_25, &tool, task),
    ];
    for (edition, call, result) in cases {
        let fault = match read_outcome(edition, call, &Raw::from(&result)) {
            Ok(outcome) => panic!("{result} read as {outcome:?}"),
            Err(fault) => fault,
        };
        assert_eq!(fault.kind(), FaultKind::Invalid, "{result}: {fault}");
    }
    // No type is the same as complete.
    let plain = Raw::from(json!({ "content": [] }));
    assert_eq!(read_outcome(NEW, &tool, &plain).unwrap(), Outcome::Tool(ToolOutput::default()));
}

#[test]
fn answers_that_do_not_fit_are_bad_params() {
    for (ask, result) in [
        (super::samples::asks().remove(0), json!({ "action": "perhaps" })),
        (super::samples::asks().remove(0), json!({ "action": "accept", "content": 5 })),
        (super::samples::asks().remove(0), json!(12345)),
        (Ask::Roots, json!({})),
        (Ask::Sample(Box::default()), json!({ "role": "assistant", "content": [] })),
        (Ask::Sample(Box::default()), json!({ "role": "robot", "content": [], "model": "m" })),
    ] {
        let fault = read_answer(NEW, &ask, &Raw::from(&result)).unwrap_err();
        assert_eq!(fault.kind(), FaultKind::Params, "{result}: {fault}");
    }
}

#[test]
fn notices_that_do_not_fit_are_ignored() {
    let old = Edition::E2025_06_18;
    for (edition, method, params) in [
        (NEW, "notifications/initialized", json!({})),
        (NEW, "notifications/roots/list_changed", json!({})),
        (NEW, "notifications/tasks/status", json!({ "taskId": "t" })),
        (NEW, "notifications/unheard", json!({})),
        (NEW, "notifications/cancelled", json!({})),
        (NEW, "notifications/cancelled", json!({ "requestId": 1.5 })),
        (NEW, "notifications/cancelled", json!({ "requestId": null })),
        (NEW, "notifications/message", json!({ "level": "info" })),
        (NEW, "notifications/message", json!({ "level": "loud", "data": 1 })),
        (old, "notifications/progress", json!({ "progressToken": 1 })),
        (old, "notifications/progress", json!({ "progressToken": null, "progress": 1 })),
        (old, "notifications/progress", json!({ "progressToken": 1, "progress": "1" })),
        (old, "notifications/subscriptions/acknowledged", json!({ "notifications": {} })),
        (old, "notifications/elicitation/complete", json!({ "elicitationId": "e" })),
        (old, "notifications/resources/updated", json!({ "uri": 1 })),
    ] {
        assert_eq!(read_notice(edition, method, Some(&Raw::from(&params))), None, "{method} {params}");
    }
}
