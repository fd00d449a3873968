//! The stored record of a task, and its state transitions.
//!
//! Nothing here waits or writes to the store. A record is changed as a whole and written back by compare-and-set, so
//! these few functions hold all rules: a task alternates between working and waiting for input, a final status never
//! changes, and an answered input request is never sent again.

use std::collections::BTreeMap;

use bytes::Bytes;
use toolgate_wire::model::{ServerRequest, Task, TaskOutcome, TaskStatus};
use toolgate_wire::{Client, Kind, Limits, ProtocolError, ProtocolErrorKind, RawJson, codec};

use crate::request::Principal;
use crate::util::clock::format_iso8601;
use crate::util::stored_json;

/// Limits for decoding a record: larger than any record can become.
const RECORD_LIMITS: Limits = Limits { max_bytes: 64 << 20, max_depth: 127 };

/// The stored record of a task. See the module documentation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TaskRecord {
    /// The part that clients see.
    pub(super) task: Task,
    pub(super) tool: String,
    pub(super) arguments: RawJson,
    /// The client that called, needed to resume the task in another process.
    pub(super) client: RawJson,
    pub(super) principal: Option<String>,
    /// The attributes of the principal, a JSON object.
    pub(super) attributes: RawJson,
    /// The `_meta` of the request.
    pub(super) meta: Option<RawJson>,
    /// Replies to input requests by key: a client result in its stored encoding, or, as a JSON string, the reason why
    /// the client rejected the request. A request with a reply is never sent again.
    pub(super) replies: BTreeMap<String, RawJson>,
    /// Values that the handler recorded, such as completed steps.
    pub(super) recorded_values: BTreeMap<String, RawJson>,
    /// Number of the current attempt, starting at 1. A process whose attempt has another number no longer runs the
    /// task.
    pub(super) attempt: u64,
    /// When the record expires, in milliseconds since 1970.
    pub(super) expires: u64,
    /// Time limit of the task, in milliseconds since 1970. At this time it fails.
    pub(super) deadline: Option<u64>,
}

impl TaskRecord {
    /// Adds an input request, unless it was added before. Returns whether the record changed.
    pub(super) fn add_request(&mut self, key: &str, request: &ServerRequest) -> bool {
        let exists = self.replies.contains_key(key) || self.task.input_requests.contains_key(key);
        if exists || self.is_final() {
            return false;
        }
        self.task.input_requests.insert(key.to_owned(), request.clone());
        self.task.status = TaskStatus::InputRequired;
        true
    }

    /// Replaces an input request by its reply. Returns `false` if there is no such request.
    pub(super) fn set_reply(&mut self, key: &str, reply: RawJson) -> bool {
        if self.is_final() || self.task.input_requests.remove(key).is_none() {
            return false;
        }
        self.replies.insert(key.to_owned(), reply);
        if self.task.input_requests.is_empty() {
            self.task.status = TaskStatus::Working;
        }
        true
    }

    /// Ends the task with a final status. Returns whether the record changed.
    pub(super) fn end(
        &mut self,
        status: TaskStatus,
        message: Option<String>,
        outcome: Option<TaskOutcome>,
    ) -> bool {
        if self.is_final() || !status.is_terminal() {
            return false;
        }
        self.task.status = status;
        self.task.input_requests.clear();
        if message.is_some() {
            self.task.status_message = message;
        }
        self.task.outcome = match status {
            TaskStatus::Failed => outcome.or_else(|| {
                let message = self.task.status_message.as_deref().unwrap_or("the task failed");
                Some(TaskOutcome::Error(ProtocolError::new(ProtocolErrorKind::Internal, message)))
            }),
            TaskStatus::Cancelled => None,
            _ => outcome,
        };
        // Only needed to resume the task.
        self.recorded_values.clear();
        true
    }

    /// Starts another attempt. Input requests and replies are kept.
    pub(super) fn retry(&mut self) {
        self.attempt += 1;
    }

    pub(super) fn is_final(&self) -> bool {
        self.task.status.is_terminal()
    }

    /// Sets the time of the last change.
    pub(super) fn touch(&mut self, now: u64) {
        self.task.last_updated_at = format_iso8601(now);
    }

    /// Returns the principal that called, as far as it is stored.
    pub(super) fn principal(&self) -> Principal {
        let principal = self.principal.as_deref().map_or_else(Principal::anonymous, Principal::new);
        let attributes = self.attributes.view().members();
        attributes
            .fold(principal, |principal, (name, value)| principal.with_attribute(name, value.to_value()))
    }

    pub(super) fn client(&self) -> Result<Client, ProtocolError> {
        codec::decode_client(&self.client)
    }

    pub(super) fn encode(&self) -> Bytes {
        let TaskRecord {
            task,
            tool,
            arguments,
            client,
            principal,
            attributes,
            meta,
            replies,
            recorded_values,
            attempt,
            expires,
            deadline,
        } = self;
        let mut out = Vec::with_capacity(1024);
        let mut put = |name: &str, value: &[u8]| {
            out.push(if out.is_empty() { b'{' } else { b',' });
            out.extend_from_slice(RawJson::string(name).as_bytes());
            out.push(b':');
            out.extend_from_slice(value);
        };
        put("task", codec::encode_task(task).as_bytes());
        put("tool", RawJson::string(tool).as_bytes());
        put("arguments", arguments.as_bytes());
        put("client", client.as_bytes());
        put("attempt", attempt.to_string().as_bytes());
        put("expires", expires.to_string().as_bytes());
        put(
            "replies",
            &encode_object(replies, |reply| match reply.view().kind() {
                Kind::String => ["", ""],
                _ => ["{\"answer\":", "}"],
            }),
        );
        put("memory", &encode_object(recorded_values, |_| ["", ""]));
        put("attributes", attributes.as_bytes());
        if let Some(principal) = principal {
            put("principal", RawJson::string(principal).as_bytes());
        }
        if let Some(meta) = meta {
            put("meta", meta.as_bytes());
        }
        if let Some(deadline) = deadline {
            put("deadline", deadline.to_string().as_bytes());
        }
        out.push(b'}');
        out.into()
    }

    /// Returns `None` if the bytes are not a valid record.
    pub(super) fn decode(bytes: Bytes) -> Option<TaskRecord> {
        let raw = RawJson::parse_with(bytes, &RECORD_LIMITS).ok()?;
        let view = raw.view();
        let member = |name: &str| view.get(name).map(|value| raw.slice(value));
        let text = |name: &str| Some(view.get(name)?.as_string()?.into_owned());
        let number = |name: &str| view.get(name)?.as_u64();
        let mut replies = stored_json::object_members(&raw, "replies");
        for reply in replies.values_mut() {
            if reply.view().kind() != Kind::String {
                *reply = reply.slice(reply.view().get("answer")?);
            }
        }
        Some(TaskRecord {
            task: codec::decode_task(&member("task")?).ok()?,
            tool: text("tool")?,
            arguments: member("arguments")?,
            client: member("client")?,
            principal: text("principal"),
            attributes: member("attributes").unwrap_or_else(RawJson::empty_object),
            meta: member("meta"),
            replies,
            recorded_values: stored_json::object_members(&raw, "memory"),
            attempt: number("attempt")?,
            expires: number("expires")?,
            deadline: number("deadline"),
        })
    }
}

/// Encodes a JSON object; `wrap` returns the text before and after each value.
fn encode_object(members: &BTreeMap<String, RawJson>, wrap: fn(&RawJson) -> [&'static str; 2]) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (key, value) in members {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(RawJson::string(key).as_bytes());
        out.push(b':');
        let [before, after] = wrap(value);
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(after.as_bytes());
    }
    out.push(b'}');
    out
}

#[cfg(test)]
pub(super) fn sample_record() -> TaskRecord {
    use serde_json::json;

    TaskRecord {
        task: Task {
            id: "t".into(),
            status: TaskStatus::Working,
            status_message: None,
            created_at: format_iso8601(0),
            last_updated_at: format_iso8601(0),
            ttl_ms: Some(1000),
            poll_interval_ms: Some(10),
            input_requests: BTreeMap::new(),
            outcome: None,
        },
        tool: "build \"it\"".into(),
        arguments: RawJson::from(json!({"a": [1, 12_345_678_901_234_567_890_u64]})),
        client: RawJson::empty_object(),
        principal: Some("ada".into()),
        attributes: RawJson::from(json!({"tenant": 7})),
        meta: Some(RawJson::from(json!({"traceparent": "00"}))),
        replies: BTreeMap::new(),
        recorded_values: BTreeMap::from([("step one".into(), RawJson::from(json!({"x": null})))]),
        attempt: 1,
        expires: 99,
        deadline: Some(7),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;
    use toolgate_wire::model::{Outcome, ToolOutput};

    use super::*;

    #[test]
    fn encoded_records_decode_to_the_same_record() {
        let mut record = sample_record();
        assert_eq!(TaskRecord::decode(record.encode()).as_ref(), Some(&record));
        record.add_request("a", &ServerRequest::Roots);
        record.add_request("b", &ServerRequest::Roots);
        record.set_reply("a", RawJson::from(json!({"roots": []})));
        record.set_reply("b", RawJson::string("no"));
        record.add_request("c", &ServerRequest::Roots);
        assert_eq!(TaskRecord::decode(record.encode()).as_ref(), Some(&record));
        for garbage in [&b"garbage"[..], b"{}", b"{\"task\":{}}", b"", b"[]"] {
            assert_eq!(TaskRecord::decode(Bytes::from_static(garbage)), None);
        }
    }

    #[test]
    fn the_principal_is_restored() {
        let principal = sample_record().principal();
        assert_eq!(principal.id(), Some("ada"));
        assert_eq!(principal.attribute("tenant"), Some(&json!(7)));
    }

    #[derive(Clone, Debug)]
    enum Action {
        Ask(u8),
        Reply(u8),
        Reject(u8),
        End(TaskStatus),
        Retry,
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let key = 0_u8..4;
        let one = prop_oneof![
            4 => key.clone().prop_map(Action::Ask),
            4 => key.clone().prop_map(Action::Reply),
            1 => key.prop_map(Action::Reject),
            1 => prop::sample::select(&TaskStatus::ALL[..]).prop_map(Action::End),
            1 => Just(Action::Retry),
        ];
        prop::collection::vec(one, 0..40)
    }

    /// A minimal model of a task: which requests are pending, which are answered, how it ended.
    #[derive(Default)]
    struct Model {
        open: BTreeSet<u8>,
        closed: BTreeSet<u8>,
        end: Option<TaskStatus>,
    }

    impl Model {
        fn apply(&mut self, action: &Action) {
            if self.end.is_some() {
                return;
            }
            match action {
                Action::Ask(key) if !self.closed.contains(key) => {
                    self.open.insert(*key);
                }
                Action::Reply(key) | Action::Reject(key) if self.open.remove(key) => {
                    self.closed.insert(*key);
                }
                Action::End(state) if state.is_terminal() => {
                    self.end = Some(*state);
                    self.open.clear();
                }
                _ => {}
            }
        }

        fn state(&self) -> TaskStatus {
            match (self.end, self.open.is_empty()) {
                (Some(end), _) => end,
                (None, true) => TaskStatus::Working,
                (None, false) => TaskStatus::InputRequired,
            }
        }
    }

    proptest! {
        /// A final status never changes, an answered key never comes back, and encoding loses nothing.
        #[test]
        fn a_record_follows_the_model(actions in actions()) {
            let (mut record, mut model) = (sample_record(), Model::default());
            for action in &actions {
                let before = record.clone();
                let changed = match action {
                    Action::Ask(key) => record.add_request(&key.to_string(), &ServerRequest::Roots),
                    Action::Reply(key) => record.set_reply(&key.to_string(), RawJson::null()),
                    Action::Reject(key) => record.set_reply(&key.to_string(), RawJson::string("no")),
                    Action::End(state) => {
                        let end = TaskOutcome::Result(Arc::new(Outcome::Tool(ToolOutput::text("done"))));
                        record.end(*state, None, Some(end).filter(|_| *state == TaskStatus::Completed))
                    }
                    Action::Retry => {
                        record.retry();
                        true
                    }
                };
                model.apply(action);
                prop_assert!(changed || record == before, "a transition that returns false changes nothing");
                prop_assert_eq!(record.task.status, model.state());
                let open: BTreeSet<String> = model.open.iter().map(u8::to_string).collect();
                prop_assert_eq!(record.task.input_requests.keys().cloned().collect::<BTreeSet<_>>(), open);
                let closed: BTreeSet<String> = model.closed.iter().map(u8::to_string).collect();
                prop_assert_eq!(record.replies.keys().cloned().collect::<BTreeSet<_>>(), closed);
                let decoded = TaskRecord::decode(record.encode());
                prop_assert_eq!(decoded.as_ref(), Some(&record));
            }
        }
    }
}
