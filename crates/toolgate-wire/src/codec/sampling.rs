//! Reads and writes sampling requests and results.
//!
//! Versions without tools in sampling allow one block of text, image or audio per message: several blocks are joined to one
//! text. A request that needs tools cannot be represented in them.

use super::content::{clamp_priority, read_content, read_role, to_plain_text};
use super::fields::{Field, ObjectReader};
use super::list_item::read_tool;
use super::object::{ObjectOrAbsent, ObjectWriter, TrueOrAbsent, WriteJson, nest};
use super::outcome_reader::read_structured;
use super::outcome_writer::add_content_fields;
use crate::ProtocolError;
use crate::ProtocolVersion::{self, V2025_11_25};
use crate::json::Kind;
use crate::model::{
    Content, ContentKind, ModelPreferences, SamplingBlock, SamplingMessage, SamplingRequest, SamplingResult,
    ToolChoice,
};

/// Whether a request needs no tools, so that every version can represent it.
pub(super) fn is_without_tools(request: &SamplingRequest) -> bool {
    let mut blocks = request.messages.iter().flat_map(|message| &message.content);
    request.tools.is_empty() && blocks.all(|block| matches!(block, SamplingBlock::Content(_)))
}

pub(super) fn add_sampling_request_fields<'o>(
    object: ObjectWriter<'o>,
    request: &SamplingRequest,
) -> ObjectWriter<'o> {
    let SamplingRequest {
        messages,
        max_tokens,
        system_prompt,
        model_preferences,
        include_context,
        temperature,
        stop_sequences,
        metadata,
        tools,
        tool_choice,
    } = request;
    let is_known = |context: &&String| matches!(context.as_str(), "none" | "thisServer" | "allServers");
    object
        .field("messages", messages)
        .field("maxTokens", max_tokens)
        .optional("systemPrompt", system_prompt)
        .optional("modelPreferences", model_preferences)
        .optional("includeContext", &include_context.as_ref().filter(is_known))
        .optional("temperature", temperature)
        .optional("stopSequences", stop_sequences)
        .optional("metadata", &ObjectOrAbsent(metadata.as_ref()))
        .since(V2025_11_25, "tools", tools)
        .since(V2025_11_25, "toolChoice", tool_choice)
}

impl WriteJson for ModelPreferences {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let ModelPreferences { hints, cost, speed, intelligence } = self;
        let hints: Vec<_> = hints.iter().map(|name| nest(move |object| object.field("name", name))).collect();
        ObjectWriter::open(out, version)
            .optional("hints", &hints)
            .optional("costPriority", &clamp_priority(*cost))
            .optional("speedPriority", &clamp_priority(*speed))
            .optional("intelligencePriority", &clamp_priority(*intelligence))
            .close();
    }
}

impl WriteJson for ToolChoice {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let mode = match self {
            ToolChoice::Auto => "auto",
            ToolChoice::Required => "required",
            ToolChoice::None => "none",
        };
        ObjectWriter::open(out, version).field("mode", mode).close();
    }
}

impl WriteJson for SamplingMessage {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let SamplingMessage { role, content, meta } = self;
        ObjectWriter::open(out, version)
            .field("role", role)
            .field("content", &SamplingContent(content))
            .since(V2025_11_25, "_meta", &ObjectOrAbsent(meta.as_ref()))
            .close();
    }
}

pub(super) fn add_sampling_result_fields<'o>(
    object: ObjectWriter<'o>,
    result: &SamplingResult,
) -> ObjectWriter<'o> {
    let SamplingResult { role, content, model, stop_reason, meta } = result;
    object
        .field("role", role)
        .field("content", &SamplingContent(content))
        .field("model", model)
        .optional("stopReason", stop_reason)
        .optional("_meta", &ObjectOrAbsent(meta.as_ref()))
}

/// The content of one message. A single block is written without a list, since every version reads that.
struct SamplingContent<'a>(&'a [SamplingBlock]);

impl WriteJson for SamplingContent<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        match self.0 {
            [block @ SamplingBlock::Content(_)] => block.write_json(out, version),
            blocks if version >= V2025_11_25 => blocks.write_json(out, version),
            blocks => {
                let texts: Vec<_> = blocks.iter().map(block_to_plain_text).collect();
                Content::text(texts.join("\n")).write_json(out, version);
            }
        }
    }
}

fn block_to_plain_text(block: &SamplingBlock) -> String {
    match block {
        SamplingBlock::Content(content) => to_plain_text(content).into_owned(),
        SamplingBlock::ToolUse { name, input, .. } => format!("[call of {name}: {input}]"),
        SamplingBlock::ToolResult { content, .. } => {
            let texts: Vec<_> = content.iter().map(to_plain_text).collect();
            texts.join("\n")
        }
    }
}

impl WriteJson for SamplingBlock {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        match self {
            SamplingBlock::Content(content) => write_sampling_content(out, version, content),
            SamplingBlock::ToolUse { id, name, input, meta } => ObjectWriter::open(out, version)
                .field("type", "tool_use")
                .field("id", id)
                .field("name", name)
                .field("input", &ObjectOrAbsent(Some(input)))
                .optional("_meta", &ObjectOrAbsent(meta.as_ref()))
                .close(),
            SamplingBlock::ToolResult { tool_use_id: id, content, structured_content, is_error, meta } => {
                let object =
                    ObjectWriter::open(out, version).field("type", "tool_result").field("toolUseId", id);
                add_content_fields(object, version, content, structured_content.as_ref())
                    .optional("isError", &TrueOrAbsent(*is_error))
                    .optional("_meta", &ObjectOrAbsent(meta.as_ref()))
                    .close();
            }
        }
    }
}

/// No version allows resources in sampling messages: they become text.
fn write_sampling_content(out: &mut Vec<u8>, version: ProtocolVersion, content: &Content) {
    match content.kind {
        ContentKind::Text(_) | ContentKind::Image { .. } | ContentKind::Audio { .. } => {
            content.write_json(out, version);
        }
        ContentKind::Link(_) | ContentKind::Embedded(_) => {
            let text = ContentKind::Text(to_plain_text(content).into_owned());
            Content { kind: text, ..content.clone() }.write_json(out, version);
        }
    }
}

pub(super) fn read_sampling_request(
    version: ProtocolVersion,
    params: &ObjectReader<'_>,
) -> Result<SamplingRequest, ProtocolError> {
    let [
        messages,
        max_tokens,
        system_prompt,
        model_preferences,
        include_context,
        temperature,
        stop_sequences,
        metadata,
        tools,
        tool_choice,
    ] = &params.pick([
        "messages",
        "maxTokens",
        "systemPrompt",
        "modelPreferences",
        "includeContext",
        "temperature",
        "stopSequences",
        "metadata",
        "tools",
        "toolChoice",
    ]);
    Ok(SamplingRequest {
        messages: messages.list(|message| read_message(version, message))?,
        max_tokens: max_tokens.count()?,
        system_prompt: system_prompt.maybe_string()?,
        model_preferences: read_preferences(model_preferences)?,
        include_context: include_context.maybe_string()?,
        temperature: temperature.maybe_number()?,
        stop_sequences: stop_sequences.maybe_list(Field::string)?,
        metadata: metadata.maybe_object()?,
        tools: tools.maybe_list(read_tool)?,
        tool_choice: read_tool_choice(tool_choice)?,
    })
}

fn read_preferences(field: &Field<'_>) -> Result<Option<ModelPreferences>, ProtocolError> {
    let Some(reader) = field.maybe_reader("modelPreferences")? else {
        return Ok(None);
    };
    let [hints, cost, speed, intelligence] =
        &reader.pick(["hints", "costPriority", "speedPriority", "intelligencePriority"]);
    // A hint may have other members than a name.
    let hints = hints.maybe_list(|hint| hint.reader("hint")?.field("name").maybe_string())?;
    Ok(Some(ModelPreferences {
        hints: hints.into_iter().flatten().collect(),
        cost: cost.maybe_number()?,
        speed: speed.maybe_number()?,
        intelligence: intelligence.maybe_number()?,
    }))
}

fn read_tool_choice(field: &Field<'_>) -> Result<Option<ToolChoice>, ProtocolError> {
    let Some(reader) = field.maybe_reader("toolChoice")? else {
        return Ok(None);
    };
    let mode = reader.field("mode");
    let parse = |name: &str| match name {
        "auto" => Some(ToolChoice::Auto),
        "required" => Some(ToolChoice::Required),
        "none" => Some(ToolChoice::None),
        _ => None,
    };
    match mode.value() {
        None => Ok(Some(ToolChoice::Auto)),
        Some(_) => mode.keyword("\"auto\", \"required\" or \"none\"", parse).map(Some),
    }
}

fn read_message(version: ProtocolVersion, field: &Field<'_>) -> Result<SamplingMessage, ProtocolError> {
    let [role, content, meta] = &field.reader("message")?.pick(["role", "content", "_meta"]);
    Ok(SamplingMessage {
        role: read_role(role)?,
        content: read_sampling_content(version, content)?,
        meta: meta.maybe_object()?,
    })
}

pub(super) fn read_sampling_result(
    version: ProtocolVersion,
    reader: &ObjectReader<'_>,
) -> Result<SamplingResult, ProtocolError> {
    let [role, content, model, stop_reason, meta] =
        &reader.pick(["role", "content", "model", "stopReason", "_meta"]);
    Ok(SamplingResult {
        role: read_role(role)?,
        content: read_sampling_content(version, content)?,
        model: model.string()?,
        stop_reason: stop_reason.maybe_string()?,
        meta: meta.maybe_object()?,
    })
}

/// Reads one block, or a list of blocks.
fn read_sampling_content(
    version: ProtocolVersion,
    field: &Field<'_>,
) -> Result<Vec<SamplingBlock>, ProtocolError> {
    match field.value().map(|value| value.kind()) {
        Some(Kind::Array) => field.list(|block| read_block(version, block)),
        _ => read_block(version, field).map(|block| vec![block]),
    }
}

fn read_block(version: ProtocolVersion, field: &Field<'_>) -> Result<SamplingBlock, ProtocolError> {
    let reader = field.reader("content")?;
    let [kind, id, name, input, tool_use, content, structured_content, is_error, meta] = &reader.pick([
        "type",
        "id",
        "name",
        "input",
        "toolUseId",
        "content",
        "structuredContent",
        "isError",
        "_meta",
    ]);
    Ok(match kind.string()?.as_str() {
        "tool_use" => SamplingBlock::ToolUse {
            id: id.string()?,
            name: name.string()?,
            input: input.object()?,
            meta: meta.maybe_object()?,
        },
        "tool_result" => SamplingBlock::ToolResult {
            tool_use_id: tool_use.string()?,
            content: content.list(read_content)?,
            structured_content: read_structured(version, structured_content),
            is_error: is_error.maybe_bool()?.unwrap_or(false),
            meta: meta.maybe_object()?,
        },
        _ => SamplingBlock::Content(read_content(field)?),
    })
}
