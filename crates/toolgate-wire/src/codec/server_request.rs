//! Reads and writes requests of a server to its client, and their results.
//!
//! These functions only consider whether the protocol version can represent a request. Whether the client declared the
//! capability is a separate check, [`missing_capabilities`].

use super::fields::{Field, ObjectReader};
use super::form::{self, FormSchema};
use super::meta_writer::ResultMeta;
use super::object::{ObjectOrAbsent, ObjectWriter, WriteJson, nest};
use super::sampling::{
    add_sampling_request_fields, add_sampling_result_fields, is_without_tools, read_sampling_request,
    read_sampling_result,
};
use crate::ProtocolVersion::{self, V2025_06_18, V2025_11_25};
use crate::json::RawJson;
use crate::meta::Client;
use crate::model::{
    ClientCapabilities, ClientResult, ElicitForm, ElicitRequest, ElicitResult, ElicitationCapability, Root,
    SamplingCapability, ServerRequest, ServerRequestKind,
};
use crate::protocol_version::ElicitationSupport;
use crate::{ProtocolError, ProtocolErrorKind};

/// Appends the params of a server request: as a JSON-RPC request, or inside `inputRequests`.
pub fn write_server_request_params(out: &mut Vec<u8>, version: ProtocolVersion, request: &ServerRequest) {
    add_server_request_fields(ObjectWriter::open(out, version), request).close();
}

/// Appends the params of a request that a core task sends; they name the task.
pub fn write_task_request_params(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    request: &ServerRequest,
    task_id: &str,
) {
    let meta = ResultMeta { task_id: Some(task_id), ..ResultMeta::default() };
    add_server_request_fields(ObjectWriter::open(out, version), request)
        .only(V2025_11_25, "_meta", &meta)
        .close();
}

/// Writes a request inside `inputRequests`.
impl WriteJson for ServerRequest {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let params = match self {
            ServerRequest::Roots => None,
            request => Some(nest(|object| add_server_request_fields(object, request))),
        };
        ObjectWriter::open(out, version).field("method", self.method()).optional("params", &params).close();
    }
}

fn add_server_request_fields<'o>(object: ObjectWriter<'o>, request: &ServerRequest) -> ObjectWriter<'o> {
    match request {
        ServerRequest::Elicitation(ElicitRequest::Form(ElicitForm { message, schema })) => object
            .since(V2025_11_25, "mode", "form")
            .field("message", message)
            .field("requestedSchema", &FormSchema(schema)),
        ServerRequest::Elicitation(ElicitRequest::Url { message, url, id }) => object
            .field("mode", "url")
            .field("message", message)
            .field("url", url)
            .only(V2025_11_25, "elicitationId", id),
        ServerRequest::Sampling(sampling) => add_sampling_request_fields(object, sampling),
        ServerRequest::Roots => object,
    }
}

/// Returns whether a version can represent a request. An unsupported request must not be written.
pub fn supports_request(version: ProtocolVersion, request: &ServerRequest) -> bool {
    let elicitation = version.behavior().elicitation;
    match request {
        ServerRequest::Elicitation(ElicitRequest::Form(form)) => match elicitation {
            ElicitationSupport::Never => false,
            ElicitationSupport::Form => form::fits_first_version(&form.schema),
            ElicitationSupport::FormAndUrl => true,
        },
        ServerRequest::Elicitation(ElicitRequest::Url { .. }) => {
            elicitation == ElicitationSupport::FormAndUrl
        }
        ServerRequest::Sampling(sampling) => version >= V2025_11_25 || is_without_tools(sampling),
        ServerRequest::Roots => true,
    }
}

/// Returns the capability that a client lacks to receive a request: as a display name, and as the client would declare
/// it. Returns `None` if it lacks none.
#[must_use]
pub fn missing_capabilities(
    client: &Client,
    request: &ServerRequest,
) -> Option<(&'static str, ClientCapabilities)> {
    let capabilities = &client.capabilities;
    let elicitation = capabilities.elicitation;
    let (name, is_declared) = match request.kind() {
        ServerRequestKind::ElicitForm => {
            ("form elicitation", elicitation.is_some_and(|elicitation| elicitation.form))
        }
        ServerRequestKind::ElicitUrl => {
            ("URL elicitation", elicitation.is_some_and(|elicitation| elicitation.url))
        }
        ServerRequestKind::Sampling => ("sampling", capabilities.sampling.is_some()),
        ServerRequestKind::SamplingWithTools => {
            ("sampling with tools", capabilities.sampling.is_some_and(|sampling| sampling.tools))
        }
        ServerRequestKind::Roots => ("roots", capabilities.roots.is_some()),
    };
    if is_declared && supports_request(client.protocol_version, request) {
        return None;
    }
    let mut missing = ClientCapabilities::default();
    match request.kind() {
        ServerRequestKind::ElicitForm => {
            missing.elicitation = Some(ElicitationCapability { form: true, url: false });
        }
        ServerRequestKind::ElicitUrl => {
            missing.elicitation = Some(ElicitationCapability { form: false, url: true });
        }
        ServerRequestKind::Sampling => missing.sampling = Some(SamplingCapability::default()),
        ServerRequestKind::SamplingWithTools => {
            missing.sampling = Some(SamplingCapability { tools: true, context: false });
        }
        ServerRequestKind::Roots => missing.roots = Some(false),
    }
    Some((name, missing))
}

/// Reads a JSON-RPC request of a server.
pub fn read_server_request(
    version: ProtocolVersion,
    method: &str,
    params: Option<&RawJson>,
) -> Result<ServerRequest, ProtocolError> {
    read_request_params(version, method, &ObjectReader::params(params)?)
}

/// Reads a request inside `inputRequests`.
pub(super) fn read_input_request(
    version: ProtocolVersion,
    field: &Field<'_>,
) -> Result<ServerRequest, ProtocolError> {
    let reader = field.reader("inputRequest")?;
    let [method, params] = &reader.pick(["method", "params"]);
    let (method, params) = (method.string()?, params.reader_or_empty("params")?);
    read_request_params(version, &method, &params).map_err(|error| match error.kind() {
        ProtocolErrorKind::MethodNotFound => reader.error(error.message().to_owned()),
        _ => error,
    })
}

fn read_request_params(
    version: ProtocolVersion,
    method: &str,
    params: &ObjectReader<'_>,
) -> Result<ServerRequest, ProtocolError> {
    match method {
        "elicitation/create" if version.behavior().elicitation > ElicitationSupport::Never => {
            read_elicit(version, params).map(ServerRequest::Elicitation)
        }
        "sampling/createMessage" => {
            Ok(ServerRequest::Sampling(Box::new(read_sampling_request(version, params)?)))
        }
        "roots/list" => Ok(ServerRequest::Roots),
        _ => Err(ProtocolError::method_not_found(method)),
    }
}

fn read_elicit(version: ProtocolVersion, params: &ObjectReader<'_>) -> Result<ElicitRequest, ProtocolError> {
    let [mode, message, schema, url, id] =
        &params.pick(["mode", "message", "requestedSchema", "url", "elicitationId"]);
    let allows_urls = version.behavior().elicitation == ElicitationSupport::FormAndUrl;
    match mode.maybe_string()?.as_deref() {
        None | Some("form") => {
            Ok(ElicitRequest::Form(ElicitForm { message: message.string()?, schema: schema.object()? }))
        }
        Some("url") if allows_urls => Ok(ElicitRequest::Url {
            message: message.string()?,
            url: url.string()?,
            id: id.maybe_string()?.unwrap_or_default(),
        }),
        Some(_) => Err(mode.type_error("a supported elicitation mode")),
    }
}

/// Appends the result of a server request.
pub fn write_client_result(out: &mut Vec<u8>, version: ProtocolVersion, result: &ClientResult) {
    let object = ObjectWriter::open(out, version);
    match result {
        ClientResult::Elicitation(ElicitResult::Accept(content)) => {
            object.field("action", "accept").optional("content", &ObjectOrAbsent(content.as_ref())).close()
        }
        ClientResult::Elicitation(ElicitResult::Decline) => object.field("action", "decline").close(),
        ClientResult::Elicitation(ElicitResult::Cancel) => object.field("action", "cancel").close(),
        ClientResult::Sampling(result) => add_sampling_result_fields(object, result).close(),
        ClientResult::Roots(roots) => object.field("roots", roots).close(),
    }
}

impl WriteJson for Root {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let Root { uri, name, meta } = self;
        ObjectWriter::open(out, version)
            .field("uri", uri)
            .optional("name", name)
            .since(V2025_06_18, "_meta", &ObjectOrAbsent(meta.as_ref()))
            .close();
    }
}

/// Reads the result of `request`.
pub fn read_client_result(
    version: ProtocolVersion,
    request: &ServerRequest,
    result: &RawJson,
) -> Result<ClientResult, ProtocolError> {
    let reader = ObjectReader::new(result, "answer", ProtocolErrorKind::InvalidParams)?;
    match request {
        ServerRequest::Elicitation(elicit) => {
            read_elicit_result(elicit, &reader).map(ClientResult::Elicitation)
        }
        ServerRequest::Sampling(_) => {
            Ok(ClientResult::Sampling(Box::new(read_sampling_result(version, &reader)?)))
        }
        ServerRequest::Roots => Ok(ClientResult::Roots(reader.field("roots").list(read_root)?)),
    }
}

fn read_elicit_result(
    elicit: &ElicitRequest,
    reader: &ObjectReader<'_>,
) -> Result<ElicitResult, ProtocolError> {
    let [action, content] = &reader.pick(["action", "content"]);
    match action.string()?.as_str() {
        "accept" => Ok(ElicitResult::Accept(match elicit {
            ElicitRequest::Form(_) => content.maybe_object()?,
            ElicitRequest::Url { .. } => None,
        })),
        "decline" => Ok(ElicitResult::Decline),
        "cancel" => Ok(ElicitResult::Cancel),
        _ => Err(action.type_error("\"accept\", \"decline\" or \"cancel\"")),
    }
}

pub(super) fn read_root(field: &Field<'_>) -> Result<Root, ProtocolError> {
    let [uri, name, meta] = &field.reader("root")?.pick(["uri", "name", "_meta"]);
    Ok(Root { uri: uri.string()?, name: name.maybe_string()?, meta: meta.maybe_object()? })
}
