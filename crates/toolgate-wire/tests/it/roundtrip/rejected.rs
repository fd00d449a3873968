//! Rejected messages: error codes and statuses by version, and messages.

use serde_json::{Value, json};
use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use super::{read_client_info, read_meta};

const V2026_07_28: ProtocolVersion = ProtocolVersion::V2026_07_28;

/// Codes in the order of versions, then statuses.
#[test]
fn every_kind_has_its_code_and_status() {
    use ProtocolErrorKind::*;
    let table: [(ProtocolErrorKind, [i64; 5], [u16; 5]); 13] = [
        (ParseError, [-32700; 5], [400; 5]),
        (InvalidRequest, [-32600; 5], [400; 5]),
        (SessionNotFound, [-32600; 5], [404; 5]),
        (MethodNotFound, [-32601; 5], [200, 200, 200, 200, 404]),
        (InvalidParams, [-32602; 5], [200; 5]),
        (InvalidClientMeta, [-32602; 5], [200, 200, 200, 200, 400]),
        (ResourceNotFound, [-32002, -32002, -32002, -32002, -32602], [200; 5]),
        (Internal, [-32603; 5], [200; 5]),
        (HeaderMismatch, [-32600, -32600, -32600, -32600, -32020], [200, 200, 200, 200, 400]),
        (MissingCapability, [-32600, -32600, -32600, -32600, -32021], [200, 200, 200, 200, 400]),
        (UnsupportedVersion, [-32022; 5], [400; 5]),
        (UrlElicitationRequired, [-32600, -32600, -32600, -32042, -32600], [200; 5]),
        (Other(-7), [-7; 5], [200; 5]),
    ];
    for (kind, codes, statuses) in table {
        let error = ProtocolError::new(kind, "x");
        assert_eq!(ProtocolVersion::ALL.map(|version| error.code(version)), codes, "{kind:?}");
        assert_eq!(ProtocolVersion::ALL.map(|version| error.status(version)), statuses, "{kind:?}");
    }
}

/// No version sends a code that it forbids.
#[test]
fn codes_stay_in_their_version() {
    for error in super::samples::protocol_errors() {
        for version in ProtocolVersion::ALL {
            let code = error.code(version);
            let foreign = match version {
                ProtocolVersion::V2026_07_28 => [-32002, -32042].as_slice(),
                ProtocolVersion::V2025_11_25 => &[-32020, -32021],
                _ => &[-32020, -32021, -32042],
            };
            assert!(!foreign.contains(&code), "{version}: {error} {code}");
        }
    }
}

fn error_message(version: ProtocolVersion, method: &str, params: Value) -> String {
    let params = RawJson::from(params);
    let error = match read_call(version, method, Some(&params)) {
        Ok(call) => panic!("not refused: {call:?}"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ProtocolErrorKind::InvalidParams, "{error}");
    error.message().to_owned()
}

#[test]
fn errors_name_the_actual_type() {
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
        assert_eq!(error_message(V2026_07_28, method, params), message, "{method}");
    }
    let old = ProtocolVersion::V2025_11_25;
    assert_eq!(
        error_message(old, "tools/call", json!({ "name": "x", "task": 1 })),
        "params.task must be an object, got number",
    );
    assert_eq!(
        error_message(old, "logging/setLevel", json!({ "level": "loud" })),
        "params.level must be a log level from \"debug\" to \"emergency\", got string",
    );
    assert_eq!(
        error_message(old, "initialize", json!({ "protocolVersion": 1 })),
        "params.protocolVersion must be a string, got number",
    );
}

#[test]
fn tolerable_deviations_are_accepted() {
    let read = |version, method: &str, params: Value| {
        read_call(version, method, Some(&RawJson::from(params))).unwrap()
    };
    let tool = |arguments, retry| Call::CallTool { name: "x".into(), arguments, retry, task: None };
    assert_eq!(
        read(V2026_07_28, "tools/call", json!({ "name": "x", "arguments": null, "task": 7 })),
        tool(None, Retry::default()),
    );
    // An input response of the wrong kind is rejected later, when its request is known.
    let Call::CallTool { retry, .. } =
        read(V2026_07_28, "tools/call", json!({ "name": "x", "inputResponses": { "a": 12345, "b": null } }))
    else {
        panic!()
    };
    assert_eq!(retry.input_responses["a"].as_str(), "12345");
    assert_eq!(retry.input_responses["b"].as_str(), "null");
    // Where the server sends its own requests, these are ignored.
    let odd = json!({ "name": "x", "inputResponses": null, "requestState": 7 });
    for version in ProtocolVersion::ALL.into_iter().filter(|version| version.has_handshake()) {
        assert_eq!(read(version, "tools/call", odd.clone()), tool(None, Retry::default()));
    }
    let Call::GetPrompt { arguments, .. } = read(
        V2026_07_28,
        "prompts/get",
        json!({ "name": "x", "arguments": { "n": 1.5, "yes": true, "none": null, "text": "t" } }),
    ) else {
        panic!()
    };
    let expected = [("n", "1.5"), ("text", "t"), ("yes", "true")];
    assert!(arguments.iter().map(|(name, text)| (name.as_str(), text.as_str())).eq(expected));
    // The context of a completion was added later.
    let completing = json!({ "argument": { "name": "a", "value": "b" },
        "ref": { "type": "ref/resource", "uri": "x://{y}" }, "context": { "arguments": { "k": "v" } } });
    for version in ProtocolVersion::ALL {
        let Call::Complete(read) = read(version, "completion/complete", completing.clone()) else { panic!() };
        assert_eq!(read.context.is_empty(), version < ProtocolVersion::V2025_06_18);
    }
    // Core tasks have no details, so these fields are ignored.
    let get = Call::GetTask { id: "t".into() };
    let task = json!({ "taskId": "t", "status": "completed", "createdAt": "", "lastUpdatedAt": "",
        "ttl": null, "result": 7 });
    assert!(read_outcome(ProtocolVersion::V2025_11_25, &get, &RawJson::from(task)).is_ok());
    let ids = json!({ "notifications": { "resourceSubscriptions": vec!["u"; 1000] } });
    assert!(matches!(read(V2026_07_28, "subscriptions/listen", ids), Call::Listen(_)));
}

#[test]
fn a_client_info_error_names_what_is_missing() {
    let version = meta_key::PROTOCOL_VERSION;
    let capabilities = meta_key::CLIENT_CAPABILITIES;
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
            json!({ "_meta": { version: "x", capabilities: {}, meta_key::CLIENT_INFO: "me" } }),
            format!("params._meta.{} must be an object, got string", meta_key::CLIENT_INFO),
        ),
    ];
    for (params, message) in cases {
        let error = read_client_info(Some(&RawJson::from(params))).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ProtocolErrorKind::InvalidClientMeta, message.as_str()));
    }
    let error = read_client_info(None).unwrap_err();
    assert_eq!(error.kind(), ProtocolErrorKind::InvalidClientMeta);
    // Client information with an unknown version is still read.
    let params = RawJson::from(json!({ "_meta": { version: "2031-01-01", capabilities: { "new": {} } } }));
    assert_eq!(read_client_info(Some(&params)).unwrap().0, "2031-01-01");
}

#[test]
fn meta_is_read_leniently_but_for_the_log_level() {
    let meta = |meta: Value| read_meta(Some(&RawJson::from(json!({ "_meta": meta }))));
    assert_eq!(read_meta(None).unwrap(), Meta::default());
    assert_eq!(meta(json!(5)).unwrap(), Meta::default());
    assert_eq!(meta(json!({ "progressToken": 1.5 })).unwrap().progress_token, None);
    assert_eq!(meta(json!({ "progressToken": {} })).unwrap().progress_token, None);
    assert_eq!(meta(json!({ "progressToken": "" })).unwrap().progress_token, Some(ProgressToken::from("")));
    assert_eq!(meta(json!({ meta_key::LOG_LEVEL: "error" })).unwrap().log_level, Some(LogLevel::Error));
    for level in [json!("loud"), json!(3)] {
        let error = meta(json!({ meta_key::LOG_LEVEL: level })).unwrap_err();
        assert_eq!(error.kind(), ProtocolErrorKind::InvalidParams);
    }
}

#[test]
fn unexpected_results_are_invalid() {
    let tool = Call::CallTool { name: "x".into(), arguments: None, retry: Retry::default(), task: None };
    let list = Call::ListTools { cursor: None };
    let required = json!({ "resultType": "input_required", "requestState": "s" });
    let task = json!({ "resultType": "task", "taskId": "t", "status": "working",
        "createdAt": "", "lastUpdatedAt": "", "ttlMs": null });
    let cases = [
        (V2026_07_28, &tool, json!({ "resultType": "surprise", "content": [] })),
        (V2026_07_28, &tool, json!({ "resultType": 7, "content": [] })),
        (V2026_07_28, &tool, json!({ "resultType": "input_required" })),
        (V2026_07_28, &tool, json!({ "resultType": "complete" })),
        (V2026_07_28, &tool, json!({ "content": [{ "type": "hologram" }] })),
        (
            V2026_07_28,
            &tool,
            json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": "A" }] }),
        ),
        (
            V2026_07_28,
            &tool,
            json!({ "resultType": "input_required",
            "inputRequests": { "a": { "method": "tools/call", "params": {} } } }),
        ),
        (V2026_07_28, &list, required.clone()),
        (V2026_07_28, &list, task.clone()),
        (V2026_07_28, &list, json!({ "tools": [{ "name": "x" }] })),
        (V2026_07_28, &Call::Listen(SubscriptionFilter::default()), json!({ "resultType": "complete" })),
        (ProtocolVersion::V2025_11_25, &tool, required),
        (ProtocolVersion::V2025_11_25, &tool, task),
    ];
    for (version, call, result) in cases {
        let error = match read_outcome(version, call, &RawJson::from(&result)) {
            Ok(outcome) => panic!("{result} read as {outcome:?}"),
            Err(error) => error,
        };
        assert_eq!(error.kind(), ProtocolErrorKind::InvalidRequest, "{result}: {error}");
    }
    // An absent type means complete.
    let plain = RawJson::from(json!({ "content": [] }));
    assert_eq!(read_outcome(V2026_07_28, &tool, &plain).unwrap(), Outcome::Tool(ToolOutput::default()));
}

#[test]
fn unexpected_client_results_are_invalid_params() {
    for (request, result) in [
        (super::samples::server_requests().remove(0), json!({ "action": "perhaps" })),
        (super::samples::server_requests().remove(0), json!({ "action": "accept", "content": 5 })),
        (super::samples::server_requests().remove(0), json!(12345)),
        (ServerRequest::Roots, json!({})),
        (ServerRequest::Sampling(Box::default()), json!({ "role": "assistant", "content": [] })),
        (ServerRequest::Sampling(Box::default()), json!({ "role": "robot", "content": [], "model": "m" })),
    ] {
        let error = read_client_result(V2026_07_28, &request, &RawJson::from(&result)).unwrap_err();
        assert_eq!(error.kind(), ProtocolErrorKind::InvalidParams, "{result}: {error}");
    }
}

#[test]
fn invalid_notifications_are_ignored() {
    let old = ProtocolVersion::V2025_06_18;
    for (version, method, params) in [
        (V2026_07_28, "notifications/initialized", json!({})),
        (V2026_07_28, "notifications/roots/list_changed", json!({})),
        (V2026_07_28, "notifications/tasks/status", json!({ "taskId": "t" })),
        (V2026_07_28, "notifications/unheard", json!({})),
        (V2026_07_28, "notifications/cancelled", json!({})),
        (V2026_07_28, "notifications/cancelled", json!({ "requestId": 1.5 })),
        (V2026_07_28, "notifications/cancelled", json!({ "requestId": null })),
        (V2026_07_28, "notifications/message", json!({ "level": "info" })),
        (V2026_07_28, "notifications/message", json!({ "level": "loud", "data": 1 })),
        (old, "notifications/progress", json!({ "progressToken": 1 })),
        (old, "notifications/progress", json!({ "progressToken": null, "progress": 1 })),
        (old, "notifications/progress", json!({ "progressToken": 1, "progress": "1" })),
        (old, "notifications/subscriptions/acknowledged", json!({ "notifications": {} })),
        (old, "notifications/elicitation/complete", json!({ "elicitationId": "e" })),
        (old, "notifications/resources/updated", json!({ "uri": 1 })),
    ] {
        assert_eq!(
            read_notification(version, method, Some(&RawJson::from(&params))),
            None,
            "{method} {params}"
        );
    }
}
