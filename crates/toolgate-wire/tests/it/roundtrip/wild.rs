//! Whatever a peer sends, reading ends with a value or a refusal; and what was
//! read can be written again as JSON.

use std::sync::LazyLock;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use super::samples;

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
    key::VERSION,
    key::CAPABILITIES,
    key::CLIENT,
    key::LOG_LEVEL,
    key::SUBSCRIPTION,
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

/// Puts `value` in the place of some part of `whole`.
fn graft(whole: &mut Value, at: Index, value: Value) {
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

fn valid(write: impl FnOnce(&mut Vec<u8>)) {
    super::written(write);
}

/// Made once: a case should cost what it tries, not what it tries it on.
static OUTCOMES: LazyLock<Vec<(Call, Outcome)>> = LazyLock::new(samples::outcomes);

static CALLS: LazyLock<Vec<Call>> = LazyLock::new(samples::calls);

/// One call of each method.
static METHODS: LazyLock<Vec<Call>> = LazyLock::new(|| {
    let mut calls = samples::calls();
    calls.sort_by_key(Call::method);
    calls.dedup_by_key(|call| call.method());
    calls
});

static NOTICES: [&str; 13] = [
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

/// Feeds one object to everything that reads params.
fn read_params(params: &Raw) {
    let _ = read_meta(Some(params));
    let _ = read_version(Some(params));
    let _ = read_greeting(Some(params));
    for edition in Edition::ALL {
        for method in METHODS.iter().map(Call::method) {
            if let Ok(call) = read_call(edition, method, Some(params)) {
                let meta = read_meta(Some(params)).unwrap_or_default();
                valid(|out| write_call_params(out, edition, &call, None, &meta));
            }
        }
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            if let Ok(ask) = read_ask(edition, method, Some(params)) {
                can_ask(edition, &ask);
                valid(|out| write_ask_params(out, edition, &ask));
            }
        }
        for method in NOTICES {
            if let Some((notice, tag)) = read_notice(edition, method, Some(params)) {
                valid(|out| assert!(write_notice(out, edition, &notice, tag.as_ref())));
            }
        }
    }
}

/// Feeds one object to everything that reads results.
fn read_results(calls: &[Call], asks: &[Ask], result: &Raw) {
    for edition in Edition::ALL {
        for call in calls {
            if let Ok(outcome) = read_outcome(edition, call, result) {
                // Read in one edition, it must be possible to write it in each.
                for edition in Edition::ALL {
                    valid(|out| write_outcome(out, edition, &outcome, None));
                }
            }
        }
        for ask in asks {
            if let Ok(answer) = read_answer(edition, ask, result) {
                valid(|out| write_answer(out, edition, &answer));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_params_are_read_or_refused(params in object(json())) {
        read_params(&Raw::from(params));
    }

    #[test]
    fn any_result_is_read_or_refused(result in object(json())) {
        let asks = samples::asks();
        read_results(&METHODS, &asks, &Raw::from(result));
    }

    #[test]
    fn a_call_with_a_foreign_part_is_read_or_refused(
        which in any::<Index>(), at in any::<Index>(), part in json(),
    ) {
        let call = which.get(&CALLS);
        let client = samples::clients(Edition::NEWEST).remove(0);
        let mut out = Vec::new();
        write_call_params(&mut out, Edition::NEWEST, call, Some(&client), &samples::metas()[1]);
        let mut params = super::raw(out).to_value();
        graft(&mut params, at, part);
        read_params(&Raw::from(params));
    }

    #[test]
    fn a_result_with_a_foreign_part_is_read_or_refused(
        which in any::<Index>(), at in any::<Index>(), part in json(), edition in select(Edition::ALL.as_slice()),
    ) {
        let (call, outcome) = which.get(&OUTCOMES);
        let mut result = super::written(|out| write_outcome(out, edition, outcome, None)).to_value();
        graft(&mut result, at, part);
        read_results(std::slice::from_ref(call), &[], &Raw::from(result));
    }

    #[test]
    fn a_question_or_answer_with_a_foreign_part_is_read_or_refused(
        which in any::<Index>(), at in any::<Index>(), part in json(),
    ) {
        let asks: Vec<Ask> = samples::asks().into_iter().chain(samples::new_asks()).collect();
        let mut params = super::written(|out| write_ask_params(out, Edition::NEWEST, which.get(&asks))).to_value();
        graft(&mut params, at, part.clone());
        read_params(&Raw::from(params));
        let answers = samples::answers();
        let (ask, answer) = which.get(&answers);
        let mut result = super::written(|out| write_answer(out, Edition::NEWEST, answer)).to_value();
        graft(&mut result, at, part);
        read_results(&[], std::slice::from_ref(ask), &Raw::from(result));
    }
}
