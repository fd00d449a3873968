//! What a server asks its client and what it hears, both ways.
//!
//! Whether the client declared that it can be asked is not looked at here; only
//! whether its edition has words for the question.

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

/// Appends the params of a question: of a request of the server's own, or
/// within `inputRequests`, as the edition has it.
pub fn write_server_request_params(out: &mut Vec<u8>, version: ProtocolVersion, ask: &ServerRequest) {
    add_server_request_fields(ObjectWriter::open(out, version), ask).close();
}

/// The same for a question that a core task asks: it says of which task it is.
pub fn write_task_request_params(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    ask: &ServerRequest,
    task: &str,
) {
    let meta = ResultMeta { task_id: Some(task), ..ResultMeta::default() };
    add_server_request_fields(ObjectWriter::open(out, version), ask)
        .only(V2025_11_25, "_meta", &meta)
        .close();
}

/// A question within `inputRequests`.
impl WriteJson for ServerRequest {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let params = match self {
            ServerRequest::Roots => None,
            ask => Some(nest(|object| add_server_request_fields(object, ask))),
        };
        ObjectWriter::open(out, version).field("method", self.method()).optional("params", &params).close();
    }
}

fn add_server_request_fields<'o>(object: ObjectWriter<'o>, ask: &ServerRequest) -> ObjectWriter<'o> {
    match ask {
        ServerRequest::Elicitation(ElicitRequest::Form(ElicitForm { message, schema })) => object
            .since(V2025_11_25, "mode", "form")
            .field("message", message)
            .field("requestedSchema", &FormSchema(schema)),
        ServerRequest::Elicitation(ElicitRequest::Url { message, url, id }) => object
            .field("mode", "url")
            .field("message", message)
            .field("url", url)
            .only(V2025_11_25, "elicitationId", id),
        ServerRequest::Sampling(sample) => add_sampling_request_fields(object, sample),
        ServerRequest::Roots => object,
    }
}

/// Whether an edition has words for a question. One that it has none for must
/// not be written.
pub fn supports_request(version: ProtocolVersion, ask: &ServerRequest) -> bool {
    let elicitation = version.behavior().elicitation;
    match ask {
        ServerRequest::Elicitation(ElicitRequest::Form(form)) => match elicitation {
            ElicitationSupport::Never => false,
            ElicitationSupport::Form => form::fits_first_version(&form.schema),
            ElicitationSupport::FormAndUrl => true,
        },
        ServerRequest::Elicitation(ElicitRequest::Url { .. }) => {
            elicitation == ElicitationSupport::FormAndUrl
        }
        ServerRequest::Sampling(sample) => version >= V2025_11_25 || is_without_tools(sample),
        ServerRequest::Roots => true,
    }
}

/// What a client cannot do that would have to be asked this, in words and as it would declare it. None if it can be
/// asked.
#[must_use]
pub fn missing_capabilities(
    client: &Client,
    ask: &ServerRequest,
) -> Option<(&'static str, ClientCapabilities)> {
    let capabilities = &client.capabilities;
    let elicitation = capabilities.elicitation;
    let (what, can) = match ask.kind() {
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
    if can && supports_request(client.protocol_version, ask) {
        return None;
    }
    let mut missing = ClientCapabilities::default();
    match ask.kind() {
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
    Some((what, missing))
}

/// Reads a question: a request of a server's own, by method and params.
pub fn read_server_request(
    version: ProtocolVersion,
    method: &str,
    params: Option<&RawJson>,
) -> Result<ServerRequest, ProtocolError> {
    read_request_params(version, method, &ObjectReader::params(params)?)
}

/// A question within `inputRequests`.
pub(super) fn read_input_request(
    version: ProtocolVersion,
    field: &Field<'_>,
) -> Result<ServerRequest, ProtocolError> {
    let part = field.reader("inputRequest")?;
    let [method, params] = &part.pick(["method", "params"]);
    let (method, params) = (method.string()?, params.reader_or_empty("params")?);
    read_request_params(version, &method, &params).map_err(|fault| match fault.kind() {
        ProtocolErrorKind::MethodNotFound => part.error(fault.message().to_owned()),
        _ => fault,
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
    let links = version.behavior().elicitation == ElicitationSupport::FormAndUrl;
    match mode.maybe_string()?.as_deref() {
        None | Some("form") => {
            Ok(ElicitRequest::Form(ElicitForm { message: message.string()?, schema: schema.object()? }))
        }
        Some("url") if links => Ok(ElicitRequest::Url {
            message: message.string()?,
            url: url.string()?,
            id: id.maybe_string()?.unwrap_or_default(),
        }),
        Some(_) => Err(mode.type_error("a supported elicitation mode")),
    }
}

/// Appends what a client heard, as a bare result.
pub fn write_client_result(out: &mut Vec<u8>, version: ProtocolVersion, answer: &ClientResult) {
    let object = ObjectWriter::open(out, version);
    match answer {
        ClientResult::Elicitation(ElicitResult::Accept(content)) => {
            object.field("action", "accept").optional("content", &ObjectOrAbsent(content.as_ref())).close()
        }
        ClientResult::Elicitation(ElicitResult::Decline) => object.field("action", "decline").close(),
        ClientResult::Elicitation(ElicitResult::Cancel) => object.field("action", "cancel").close(),
        ClientResult::Sampling(sampled) => add_sampling_result_fields(object, sampled).close(),
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

/// Reads what a client heard, as the bare result of `ask`.
pub fn read_client_result(
    version: ProtocolVersion,
    ask: &ServerRequest,
    result: &RawJson,
) -> Result<ClientResult, ProtocolError> {
    let part = ObjectReader::new(result, "answer", ProtocolErrorKind::InvalidParams)?;
    match ask {
        ServerRequest::Elicitation(elicit) => {
            read_elicit_result(elicit, &part).map(ClientResult::Elicitation)
        }
        ServerRequest::Sampling(_) => {
            Ok(ClientResult::Sampling(Box::new(read_sampling_result(version, &part)?)))
        }
        ServerRequest::Roots => Ok(ClientResult::Roots(part.field("roots").list(read_root)?)),
    }
}

fn read_elicit_result(
    elicit: &ElicitRequest,
    part: &ObjectReader<'_>,
) -> Result<ElicitResult, ProtocolError> {
    let [action, content] = &part.pick(["action", "content"]);
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
