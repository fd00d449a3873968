//! Encodes tasks, clients and client results for storage.
//!
//! The stored form is that of the newest protocol version, whatever version the client uses: other processes and later
//! releases read it, for clients of all versions.

use super::capability::{read_client_capabilities, read_implementation};
use super::fields::ObjectReader;
use super::object::{ObjectWriter, WriteJson};
use super::server_request::{read_client_result, write_client_result};
use super::task::{add_task_details, add_task_fields, read_task};
use crate::json::{RawJson, raw_from_trusted};
use crate::meta::Client;
use crate::model::{ClientResult, ServerRequest, Task};
use crate::{ProtocolError, ProtocolErrorKind, ProtocolVersion};

/// Encodes a task, with its input requests and its result.
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

/// Reads the output of [`encode_task`].
///
/// # Errors
/// If the text is not a stored task.
pub fn decode_task(stored: &RawJson) -> Result<Task, ProtocolError> {
    read_task(ProtocolVersion::LATEST, &ObjectReader::new(stored, "task", ProtocolErrorKind::Internal)?)
}

/// Encodes the result of a server request.
#[must_use]
pub fn encode_client_result(result: &ClientResult) -> RawJson {
    let mut out = Vec::with_capacity(128);
    write_client_result(&mut out, ProtocolVersion::LATEST, result);
    raw_from_trusted(out)
}

/// Reads the output of [`encode_client_result`], or a result that a client of the newest version sent.
///
/// # Errors
/// If it is not a result of this request.
pub fn decode_client_result(
    request: &ServerRequest,
    stored: &RawJson,
) -> Result<ClientResult, ProtocolError> {
    read_client_result(ProtocolVersion::LATEST, request, stored)
}

/// Encodes a client.
#[must_use]
pub fn encode_client(client: &Client) -> RawJson {
    let Client { protocol_version, capabilities, info } = client;
    let mut out = Vec::with_capacity(256);
    ObjectWriter::open(&mut out, ProtocolVersion::LATEST)
        .field("protocol_version", protocol_version.as_str())
        .field("capabilities", &InVersion(*protocol_version, capabilities))
        .optional("info", info)
        .close();
    raw_from_trusted(out)
}

/// Reads the output of [`encode_client`].
///
/// # Errors
/// If the text is not a stored client, or its protocol version is unknown.
pub fn decode_client(stored: &RawJson) -> Result<Client, ProtocolError> {
    let reader = ObjectReader::new(stored, "client", ProtocolErrorKind::Internal)?;
    let [version, capabilities, info] = &reader.pick(["protocol_version", "capabilities", "info"]);
    Ok(Client {
        protocol_version: version.keyword("a protocol version", ProtocolVersion::parse)?,
        capabilities: read_client_capabilities(&capabilities.reader("capabilities")?)?,
        info: info.value().map(|_| read_implementation(info)).transpose()?,
    })
}

/// A value that is written in a fixed version.
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

    fn task(
        status: TaskStatus,
        input_requests: BTreeMap<String, ServerRequest>,
        outcome: Option<TaskOutcome>,
    ) -> Task {
        Task {
            id: "t".into(),
            status,
            status_message: Some("half way".into()),
            created_at: "2026-08-30T10:00:00Z".into(),
            last_updated_at: "2026-08-30T10:00:01Z".into(),
            ttl_ms: Some(60_000),
            poll_interval_ms: None,
            input_requests,
            outcome,
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
    fn tasks_round_trip() {
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
    fn client_results_round_trip() {
        let content = RawJson::from(serde_json::json!({"ok": true}));
        for result in [ElicitResult::Accept(Some(content)), ElicitResult::Decline, ElicitResult::Cancel] {
            let result = ClientResult::Elicitation(result);
            assert_eq!(decode_client_result(&form(), &encode_client_result(&result)).unwrap(), result);
        }
        assert!(decode_client_result(&form(), &RawJson::null()).is_err());
    }

    #[test]
    fn clients_round_trip() {
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
