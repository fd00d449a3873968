//! For any input, reading ends with a value or an error; and a value that was read can be written as JSON again.

use std::sync::LazyLock;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use super::{read_client_info, read_meta, samples};

const NAMES: [&str; 66] = [
    "name",
    "arguments",
    "uri",
    "cursor",
    "level",
    "ref",
    "type",
    "argument",
    "value",
    "context",
    "taskId",
    "task",
    "ttl",
    "ttlMs",
    "inputResponses",
    "inputRequests",
    "requestState",
    "notifications",
    "toolsListChanged",
    "resourceSubscriptions",
    "taskIds",
    "_meta",
    "progressToken",
    meta_key::PROTOCOL_VERSION,
    meta_key::CLIENT_CAPABILITIES,
    meta_key::CLIENT_INFO,
    meta_key::LOG_LEVEL,
    meta_key::SUBSCRIPTION_ID,
    "protocolVersion",
    "capabilities",
    "clientInfo",
    "serverInfo",
    "version",
    "elicitation",
    "form",
    "url",
    "sampling",
    "tools",
    "roots",
    "extensions",
    "content",
    "text",
    "data",
    "mimeType",
    "resource",
    "blob",
    "structuredContent",
    "isError",
    "resultType",
    "method",
    "params",
    "message",
    "messages",
    "role",
    "requestedSchema",
    "mode",
    "properties",
    "progress",
    "requestId",
    "contents",
    "completion",
    "values",
    "status",
    "createdAt",
    "lastUpdatedAt",
    "result",
];

const WORDS: [&str; 22] = [
    "text",
    "image",
    "audio",
    "resource",
    "resource_link",
    "tool_use",
    "tool_result",
    "user",
    "assistant",
    "ref/prompt",
    "ref/resource",
    "complete",
    "input_required",
    "task",
    "working",
    "completed",
    "failed",
    "elicitation/create",
    "sampling/createMessage",
    "roots/list",
    "info",
    "AAAA",
];

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "\\PC{0,8}".prop_map(Value::from),
        select(WORDS.as_slice()).prop_map(Value::from),
    ]
}

fn json() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 48, 6, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), object(inner)]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let name = prop_oneof![9 => select(NAMES.as_slice()).prop_map(String::from), 1 => "\\PC{0,5}"];
    btree_map(name, inner, 0..8).prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>()))
}

/// Replaces some part of `whole` by `value`.
fn replace_part(whole: &mut Value, at: Index, value: Value) {
    fn parts(value: &Value, path: &str, paths: &mut Vec<String>) {
        paths.push(path.to_owned());
        match value {
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(n, item)| parts(item, &format!("{path}/{n}"), paths));
            }
            Value::Object(members) => members.iter().for_each(|(name, member)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                parts(member, &format!("{path}/{name}"), paths);
            }),
            _ => {}
        }
    }
    let mut paths = Vec::new();
    parts(whole, "", &mut paths);
    let path = at.get(&paths).clone();
    *whole.pointer_mut(&path).expect("a path of its own") = value;
}

fn assert_valid_json(write: impl FnOnce(&mut Vec<u8>)) {
    super::to_raw(write);
}

/// Created once, so that a case is cheap.
static OUTCOMES: LazyLock<Vec<(Call, Outcome)>> = LazyLock::new(samples::outcomes);

static CALLS: LazyLock<Vec<Call>> = LazyLock::new(samples::calls);

/// One call of each method.
static CALL_PER_METHOD: LazyLock<Vec<Call>> = LazyLock::new(|| {
    let mut calls = samples::calls();
    calls.sort_by_key(Call::method);
    calls.dedup_by_key(|call| call.method());
    calls
});

static NOTIFICATION_METHODS: [&str; 13] = [
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/message",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/roots/list_changed",
    "notifications/elicitation/complete",
    "notifications/tasks/status",
    "notifications/tasks",
    "notifications/subscriptions/acknowledged",
];

/// Passes one object to all functions that read params.
fn read_params(params: &RawJson) {
    let _ = read_meta(Some(params));
    let _ = read_protocol_version(Some(params));
    let _ = read_client_info(Some(params));
    for version in ProtocolVersion::ALL {
        for method in CALL_PER_METHOD.iter().map(Call::method) {
            if let Ok(call) = read_call(version, method, Some(params)) {
                let meta = read_meta(Some(params)).unwrap_or_default();
                assert_valid_json(|out| write_call_params(out, version, &call, None, &meta));
            }
        }
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            if let Ok(request) = read_server_request(version, method, Some(params)) {
                supports_request(version, &request);
                assert_valid_json(|out| write_server_request_params(out, version, &request));
            }
        }
        for method in NOTIFICATION_METHODS {
            if let Some((notification, tag)) = read_notification(version, method, Some(params)) {
                assert_valid_json(|out| {
                    assert!(write_notification(out, version, &notification, tag.as_ref()))
                });
            }
        }
    }
}

/// Passes one object to all functions that read results.
fn read_results(calls: &[Call], requests: &[ServerRequest], result: &RawJson) {
    for version in ProtocolVersion::ALL {
        for call in calls {
            if let Ok(outcome) = read_outcome(version, call, result) {
                // A value that was read in one version can be written in every version.
                for version in ProtocolVersion::ALL {
                    assert_valid_json(|out| write_outcome(out, version, &outcome, None));
                }
            }
        }
        for request in requests {
            if let Ok(response) = read_client_result(version, request, result) {
                assert_valid_json(|out| write_client_result(out, version, &response));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_params_are_read_or_rejected(params in object(json())) {
        read_params(&RawJson::from(params));
    }

    #[test]
    fn any_result_is_read_or_rejected(result in object(json())) {
        let requests = samples::server_requests();
        read_results(&CALL_PER_METHOD, &requests, &RawJson::from(result));
    }

    #[test]
    fn a_mutated_call_is_read_or_rejected(
        which in any::<Index>(), at in any::<Index>(), part in json(),
    ) {
        let call = which.get(&CALLS);
        let client = samples::clients(ProtocolVersion::LATEST).remove(0);
        let mut out = Vec::new();
        write_call_params(&mut out, ProtocolVersion::LATEST, call, Some(&client), &samples::metas()[1]);
        let mut params = super::raw(out).to_value();
        replace_part(&mut params, at, part);
        read_params(&RawJson::from(params));
    }

    #[test]
    fn a_mutated_result_is_read_or_rejected(
        which in any::<Index>(), at in any::<Index>(), part in json(), version in select(ProtocolVersion::ALL.as_slice()),
    ) {
        let (call, outcome) = which.get(&OUTCOMES);
        let mut result = super::to_raw(|out| write_outcome(out, version, outcome, None)).to_value();
        replace_part(&mut result, at, part);
        read_results(std::slice::from_ref(call), &[], &RawJson::from(result));
    }

    #[test]
    fn a_mutated_server_request_or_result_is_read_or_rejected(
        which in any::<Index>(), at in any::<Index>(), part in json(),
    ) {
        let requests: Vec<ServerRequest> = samples::server_requests().into_iter().chain(samples::new_server_requests()).collect();
        let mut params = super::to_raw(|out| write_server_request_params(out, ProtocolVersion::LATEST, which.get(&requests))).to_value();
        replace_part(&mut params, at, part.clone());
        read_params(&RawJson::from(params));
        let answers = samples::client_results();
        let (request, response) = which.get(&answers);
        let mut result = super::to_raw(|out| write_client_result(out, ProtocolVersion::LATEST, response)).to_value();
        replace_part(&mut result, at, part);
        read_results(&[], std::slice::from_ref(request), &RawJson::from(result));
    }
}
