//! What a server keeps between two moments of long work, and may find again in another process.
//!
//! There is one form for it, that of the newest edition, whatever the client speaks that will see it: what is kept is
//! read by the next release as well, and shown to clients of all editions.

use super::ask::{read_answer, write_answer};
use super::capability::{read_client_capabilities, read_implementation};
use super::fields::Part;
use super::object::{Object, Put};
use super::task::{put_task, put_task_details, read_task};
use crate::json::{Raw, trusted};
use crate::meta::Client;
use crate::model::{Answer, Ask, Task};
use crate::{Edition, Fault, FaultKind};

/// A task, with what it waits for and how it ended.
#[must_use]
pub fn keep_task(task: &Task) -> Raw {
    let mut out = Vec::with_capacity(512);
    put_task_details(put_task(Object::open(&mut out, Edition::NEWEST), Edition::NEWEST, task), task).close();
    trusted(out)
}

/// Reads what [`keep_task`] wrote.
///
/// # Errors
/// If it did not.
pub fn recall_task(kept: &Raw) -> Result<Task, Fault> {
    read_task(Edition::NEWEST, &Part::of(kept, "task", FaultKind::Internal)?)
}

/// What a client heard.
#[must_use]
pub fn keep_answer(answer: &Answer) -> Raw {
    let mut out = Vec::with_capacity(128);
    write_answer(&mut out, Edition::NEWEST, answer);
    trusted(out)
}

/// Reads what [`keep_answer`] wrote, or what a client of the newest edition brought.
///
/// # Errors
/// If it is no answer to this question.
pub fn recall_answer(ask: &Ask, kept: &Raw) -> Result<Answer, Fault> {
    read_answer(Edition::NEWEST, ask, kept)
}

/// Who a client is, and what it can do.
#[must_use]
pub fn keep_client(client: &Client) -> Raw {
    let Client { edition, capabilities, info } = client;
    let mut out = Vec::with_capacity(256);
    Object::open(&mut out, Edition::NEWEST)
        .field("edition", edition.date())
        .field("capabilities", &Said(*edition, capabilities))
        .some("info", info)
        .close();
    trusted(out)
}

/// Reads what [`keep_client`] wrote.
///
/// # Errors
/// If it did not, or for an edition that is none of ours.
pub fn recall_client(kept: &Raw) -> Result<Client, Fault> {
    let part = Part::of(kept, "client", FaultKind::Internal)?;
    let [edition, capabilities, info] = &part.pick(["edition", "capabilities", "info"]);
    Ok(Client {
        edition: edition.word("an edition", Edition::of)?,
        capabilities: read_client_capabilities(&capabilities.part("capabilities")?)?,
        info: info.value().map(|_| read_implementation(info)).transpose()?,
    })
}

/// As another edition says it.
struct Said<'a, T>(Edition, &'a T);

impl<T: Put> Put for Said<'_, T> {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        self.1.put(out, self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::{
        ClientCapabilities, Elicit, ElicitAnswer, ElicitationCapability, Form, Implementation, Outcome,
        TaskEnd, TaskState, ToolOutput,
    };

    fn task(state: TaskState, asks: BTreeMap<String, Ask>, end: Option<TaskEnd>) -> Task {
        Task {
            id: "t".into(),
            state,
            message: Some("half way".into()),
            created_at: "2026-08-30T10:00:00Z".into(),
            updated_at: "2026-08-30T10:00:01Z".into(),
            ttl_ms: Some(60_000),
            poll_ms: None,
            asks,
            end,
        }
    }

    fn form() -> Ask {
        Ask::Elicit(Elicit::Form(Form {
            message: "Sure?".into(),
            schema: Raw::from(
                serde_json::json!({"type": "object", "properties": {"ok": {"type": "boolean"}}}),
            ),
        }))
    }

    #[test]
    fn what_is_kept_of_a_task_reads_back() {
        let mut failed = ToolOutput::error("no");
        failed.structured = Some(Raw::from(serde_json::json!([1, 2])));
        for task in [
            task(TaskState::Working, BTreeMap::new(), None),
            task(
                TaskState::InputRequired,
                BTreeMap::from([("a".into(), form()), ("b".into(), Ask::Roots)]),
                None,
            ),
            task(
                TaskState::Completed,
                BTreeMap::new(),
                Some(TaskEnd::Outcome(std::sync::Arc::new(Outcome::Tool(failed)))),
            ),
            task(
                TaskState::Failed,
                BTreeMap::new(),
                Some(TaskEnd::Fault(Fault::new(FaultKind::Other(7), "gone").with_data(Raw::null()))),
            ),
            task(TaskState::Cancelled, BTreeMap::new(), None),
        ] {
            assert_eq!(recall_task(&keep_task(&task)).unwrap(), task);
        }
        assert!(recall_task(&Raw::empty_object()).is_err());
    }

    #[test]
    fn what_is_kept_of_an_answer_reads_back() {
        let content = Raw::from(serde_json::json!({"ok": true}));
        for answer in [ElicitAnswer::Accept(Some(content)), ElicitAnswer::Decline, ElicitAnswer::Cancel] {
            let answer = Answer::Elicit(answer);
            assert_eq!(recall_answer(&form(), &keep_answer(&answer)).unwrap(), answer);
        }
        assert!(recall_answer(&form(), &Raw::null()).is_err());
    }

    #[test]
    fn what_is_kept_of_a_client_reads_back() {
        for edition in Edition::ALL {
            let client = Client {
                edition,
                capabilities: ClientCapabilities {
                    elicitation: Some(ElicitationCapability { form: true, url: true })
                        .filter(|_| edition >= Edition::E2025_11_25),
                    ..ClientCapabilities::default()
                },
                info: Some(Implementation {
                    name: "n".into(),
                    version: "1".into(),
                    ..Implementation::default()
                }),
            };
            assert_eq!(recall_client(&keep_client(&client)).unwrap(), client);
        }
    }
}
