//! What is kept of one task, and how it may move.
//!
//! Nothing here waits or stores. A record is changed as a whole and written back if nobody else did meanwhile, so
//! every rule of the states stands in these few functions: working and waiting alternate, an end is an end, and a
//! question that was answered is never asked again.

use std::collections::BTreeMap;

use bytes::Bytes;
use toolgate_wire::model::{ServerRequest, Task, TaskOutcome, TaskStatus};
use toolgate_wire::{Client, Kind, Limits, ProtocolError, ProtocolErrorKind, RawJson, codec};

use crate::request::Principal;
use crate::util::clock::format_iso8601;
use crate::util::stored_json;

/// How large a record may be that is read back: more than one may ever become.
const RECORD_LIMITS: Limits = Limits { max_bytes: 64 << 20, max_depth: 127 };

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TaskRecord {
    /// What clients see.
    pub(super) task: Task,
    pub(super) tool: String,
    pub(super) arguments: RawJson,
    /// Who called, for another process that runs it again.
    pub(super) client: RawJson,
    pub(super) principal: Option<String>,
    /// What else is known of who called, an object.
    pub(super) attributes: RawJson,
    /// What the call said beside its parameters.
    pub(super) meta: Option<RawJson>,
    /// What came of the questions, by key: an answer in the form in which they are kept, or, as a text, why the client
    /// would not give one. A question that stands here is never asked again.
    pub(super) replies: BTreeMap<String, RawJson>,
    /// Recorded steps, and what was set aside.
    pub(super) memory: BTreeMap<String, RawJson>,
    /// How often it was begun. Whoever runs it knows the number, and is not the one if it has changed.
    pub(super) attempt: u64,
    /// When it is forgotten, in milliseconds since 1970.
    pub(super) expires: u64,
    /// When it has failed, in milliseconds since 1970.
    pub(super) deadline: Option<u64>,
}

impl TaskRecord {
    /// Asks something, unless it was asked before.
    pub(super) fn add_request(&mut self, key: &str, ask: &ServerRequest) -> bool {
        let known = self.replies.contains_key(key) || self.task.input_requests.contains_key(key);
        if known || self.is_final() {
            return false;
        }
        self.task.input_requests.insert(key.to_owned(), ask.clone());
        self.task.status = TaskStatus::InputRequired;
        true
    }

    /// Takes a question off the list. One that nobody asked is none.
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

    /// Ends it, in one of the final states.
    pub(super) fn end(
        &mut self,
        state: TaskStatus,
        message: Option<String>,
        end: Option<TaskOutcome>,
    ) -> bool {
        if self.is_final() || !state.is_terminal() {
            return false;
        }
        self.task.status = state;
        self.task.input_requests.clear();
        if message.is_some() {
            self.task.status_message = message;
        }
        self.task.outcome = match state {
            TaskStatus::Failed => end.or_else(|| {
                let said = self.task.status_message.as_deref().unwrap_or("the task failed");
                Some(TaskOutcome::Error(ProtocolError::new(ProtocolErrorKind::Internal, said)))
            }),
            TaskStatus::Cancelled => None,
            _ => end,
        };
        // Nobody runs it again.
        self.memory.clear();
        true
    }

    /// Runs it once more: what it asked stays asked.
    pub(super) fn retry(&mut self) {
        self.attempt += 1;
    }

    pub(super) fn is_final(&self) -> bool {
        self.task.status.is_terminal()
    }

    /// It has changed at this time.
    pub(super) fn touch(&mut self, now: u64) {
        self.task.last_updated_at = format_iso8601(now);
    }

    /// Who called, as far as it is kept.
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
            memory,
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
        put("memory", &encode_object(memory, |_| ["", ""]));
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

    /// None if it is none.
    pub(super) fn decode(bytes: Bytes) -> Option<TaskRecord> {
        let raw = RawJson::parse_with(bytes, &RECORD_LIMITS).ok()?;
        let whole = raw.view();
        let part = |name: &str| whole.get(name).map(|value| raw.slice(value));
        let text = |name: &str| Some(whole.get(name)?.as_string()?.into_owned());
        let number = |name: &str| whole.get(name)?.as_u64();
        let mut replies = stored_json::object_members(&raw, "replies");
        for reply in replies.values_mut() {
            if reply.view().kind() != Kind::String {
                let answer = reply.slice(reply.view().get("answer")?);
                *reply = answer;
            }
        }
        Some(TaskRecord {
            task: codec::decode_task(&part("task")?).ok()?,
            tool: text("tool")?,
            arguments: part("arguments")?,
            client: part("client")?,
            principal: text("principal"),
            attributes: part("attributes").unwrap_or_else(RawJson::empty_object),
            meta: part("meta"),
            replies,
            memory: stored_json::object_members(&raw, "memory"),
            attempt: number("attempt")?,
            expires: number("expires")?,
            deadline: number("deadline"),
        })
    }
}

/// Some members have a cover around them.
fn encode_object(members: &BTreeMap<String, RawJson>, cover: fn(&RawJson) -> [&'static str; 2]) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (key, value) in members {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(RawJson::string(key).as_bytes());
        out.push(b':');
        let [before, after] = cover(value);
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(after.as_bytes());
    }
    out.push(b'}');
    out
}

/// Some record.
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
        memory: BTreeMap::from([("step one".into(), RawJson::from(json!({"x": null})))]),
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
    fn what_was_written_reads_back() {
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
    fn who_called_is_known_again() {
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

    /// What a task is, in as few words as possible: which keys are open, which are closed, how it ended.
    #[derive(Default)]
    struct Model {
        open: BTreeSet<u8>,
        closed: BTreeSet<u8>,
        end: Option<TaskStatus>,
    }

    impl Model {
        fn apply(&mut self, a_move: &Action) {
            if self.end.is_some() {
                return;
            }
            match a_move {
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
        /// An end never moves, an answered key never comes back, and all of it survives being written down.
        #[test]
        fn a_task_moves_as_the_model_does(moves in actions()) {
            let (mut record, mut model) = (sample_record(), Model::default());
            for a_move in &moves {
                let before = record.clone();
                let changed = match a_move {
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
                model.apply(a_move);
                prop_assert!(changed || record == before, "what says that nothing changed has changed nothing");
                prop_assert_eq!(record.task.status, model.state());
                let open: BTreeSet<String> = model.open.iter().map(u8::to_string).collect();
                prop_assert_eq!(record.task.input_requests.keys().cloned().collect::<BTreeSet<_>>(), open);
                let closed: BTreeSet<String> = model.closed.iter().map(u8::to_string).collect();
                prop_assert_eq!(record.replies.keys().cloned().collect::<BTreeSet<_>>(), closed);
                let again = TaskRecord::decode(record.encode());
                prop_assert_eq!(again.as_ref(), Some(&record));
            }
        }
    }
}
