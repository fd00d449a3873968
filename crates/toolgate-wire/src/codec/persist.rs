//! What a server keeps between two moments of long work, and may find again in another process.
//!
//! There is one form for it, that of the newest edition, whatever the client speaks that will see it: what is kept is
//! read by the next release as well, and shown to clients of all editions.

use super::capability::{read_client_capabilities, read_implementation};
use super::fields::ObjectReader;
use super::object::{ObjectWriter, WriteJson};
use super::server_request::{read_client_result, write_client_result};
use super::task::{add_task_details, add_task_fields, read_task};
use crate::json::{RawJson, raw_from_trusted};
use crate::meta::Client;
use crate::model::{ClientResult, ServerRequest, Task};
use crate::{ProtocolError, ProtocolErrorKind, ProtocolVersion};

/// A task, with what it waits for and how it ended.
#[must_use]
pub fn encode_task(task: &Task) -> RawJson {
    let mut out = Vec::with_capacity(512);
    add_task_details(
        add_task_fields(ObjectWriter::open(&mut out, ProtocolVersion::LATEST), ProtocolVersion::LATEST, task),
        task,
    )
    .close();
    raw_from_trusted(out)
}

/// Reads what [`keep_task`] wrote.
///
/// # Errors
/// If it did not.
pub fn decode_task(kept: &RawJson) -> Result<Task, ProtocolError> {
    read_task(ProtocolVersion::LATEST, &ObjectReader::new(kept, "task", ProtocolErrorKind::Internal)?)
}

/// What a client heard.
#[must_use]
pub fn encode_client_result(answer: &ClientResult) -> RawJson {
    let mut out = Vec::with_capacity(128);
    write_client_result(&mut out, ProtocolVersion::LATEST, answer);
    raw_from_trusted(out)
}

/// Reads what [`keep_answer`] wrote, or what a client of the newest edition brought.
///
/// # Errors
/// If it is no answer to this question.
pub fn decode_client_result(ask: &ServerRequest, kept: &RawJson) -> Result<ClientResult, ProtocolError> {
    read_client_result(ProtocolVersion::LATEST, ask, kept)
}

/// Who a client is, and what it can do.
#[must_use]
pub fn encode_client(client: &Client) -> RawJson {
    let Client { protocol_version: version, capabilities, info } = client;
    let mut out = Vec::with_capacity(256);
    ObjectWriter::open(&mut out, ProtocolVersion::LATEST)
        .field("protocol_version", version.as_str())
        .field("capabilities", &InVersion(*version, capabilities))
        .optional("info", info)
        .close();
    raw_from_trusted(out)
}

/// Reads what [`keep_client`] wrote.
///
/// # Errors
/// If it did not, or for an edition that is none of ours.
pub fn decode_client(kept: &RawJson) -> Result<Client, ProtocolError> {
    let part = ObjectReader::new(kept, "client", ProtocolErrorKind::Internal)?;
    let [version, capabilities, info] = &part.pick(["protocol_version", "capabilities", "info"]);
    Ok(Client {
        protocol_version: version.keyword("a protocol version", ProtocolVersion::parse)?,
        capabilities: read_client_capabilities(&capabilities.reader("capabilities")?)?,
        info: info.value().map(|_| read_implementation(info)).transpose()?,
    })
}

/// As another edition says it.
struct InVersion<'a, T>(ProtocolVersion, &'a T);

impl<T: WriteJson> WriteJson for InVersion<'_, T> {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        self.1.write_json(out, self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::{
        ClientCapabilities, ElicitForm, ElicitRequest, ElicitResult, ElicitationCapability, Implementation,
        Outcome, TaskOutcome, TaskStatus, ToolOutput,
    };

    fn task(state: TaskStatus, asks: BTreeMap<String, ServerRequest>, end: Option<TaskOutcome>) -> Task {
        Task {
            id: "t".into(),
            status: state,
            status_message: Some("half way".into()),
            created_at: "2026-08-30T10:00:00Z".into(),
            last_updated_at: "2026-08-30T10:00:01Z".into(),
            ttl_ms: Some(60_000),
            poll_interval_ms: None,
            input_requests: asks,
            outcome: end,
        }
    }

    fn form() -> ServerRequest {
        ServerRequest::Elicitation(ElicitRequest::Form(ElicitForm {
            message: "Sure?".into(),
            schema: RawJson::from(
                serde_json::json!({"type": "object", "properties": {"ok": {"type": "boolean"}}}),
            ),
        }))
    }

    #[test]
    fn what_is_kept_of_a_task_reads_back() {
        let mut failed = ToolOutput::error("no");
        failed.structured_content = Some(RawJson::from(serde_json::json!([1, 2])));
        for task in [
            task(TaskStatus::Working, BTreeMap::new(), None),
            task(
                TaskStatus::InputRequired,
                BTreeMap::from([("a".into(), form()), ("b".into(), ServerRequest::Roots)]),
                None,
            ),
            task(
                TaskStatus::Completed,
                BTreeMap::new(),
                Some(TaskOutcome::Result(std::sync::Arc::new(Outcome::Tool(failed)))),
            ),
            task(
                TaskStatus::Failed,
                BTreeMap::new(),
                Some(TaskOutcome::Error(
                    ProtocolError::new(ProtocolErrorKind::Other(7), "gone").with_data(RawJson::null()),
                )),
            ),
            task(TaskStatus::Cancelled, BTreeMap::new(), None),
        ] {
            assert_eq!(decode_task(&encode_task(&task)).unwrap(), task);
        }
        assert!(decode_task(&RawJson::empty_object()).is_err());
    }

    #[test]
    fn what_is_kept_of_an_answer_reads_back() {
        let content = RawJson::from(serde_json::json!({"ok": true}));
        for answer in [ElicitResult::Accept(Some(content)), ElicitResult::Decline, ElicitResult::Cancel] {
            let answer = ClientResult::Elicitation(answer);
            assert_eq!(decode_client_result(&form(), &encode_client_result(&answer)).unwrap(), answer);
        }
        assert!(decode_client_result(&form(), &RawJson::null()).is_err());
    }

    #[test]
    fn what_is_kept_of_a_client_reads_back() {
        for version in ProtocolVersion::ALL {
            let client = Client {
                protocol_version: version,
                capabilities: ClientCapabilities {
                    elicitation: Some(ElicitationCapability { form: true, url: true })
                        .filter(|_| version >= ProtocolVersion::V2025_11_25),
                    ..ClientCapabilities::default()
                },
                info: Some(Implementation {
                    name: "n".into(),
                    version: "1".into(),
                    ..Implementation::default()
                }),
            };
            assert_eq!(decode_client(&encode_client(&client)).unwrap(), client);
        }
    }
}
