//! Questions for a model and what it said, both ways.
//!
//! Editions without tools in sampling know one block of text, picture or sound
//! per message: more are joined to one text. A question that needs tools cannot
//! be put there at all.

use super::content::{in_words, read_content, read_role, share};
use super::fields::{Field, Part};
use super::item::read_tool;
use super::object::{Flag, Object, Open, Put, nest};
use super::put::put_blocks;
use super::reply::read_structured;
use crate::Edition::{self, E2025_11_25};
use crate::Fault;
use crate::json::Kind;
use crate::model::{
    Content, ContentKind, ModelPreferences, Sample, Sampled, SamplingBlock, SamplingMessage, ToolChoice,
};

/// Whether a question needs no tools, and so can be put in every edition.
pub(super) fn is_plain(sample: &Sample) -> bool {
    let mut blocks = sample.messages.iter().flat_map(|message| &message.content);
    sample.tools.is_empty() && blocks.all(|block| matches!(block, SamplingBlock::Content(_)))
}

pub(super) fn put_sample<'o>(object: Object<'o>, sample: &Sample) -> Object<'o> {
    let Sample {
        messages,
        max_tokens,
        system,
        preferences,
        include_context,
        temperature,
        stop,
        metadata,
        tools,
        tool_choice,
    } = sample;
    let known = |context: &&String| matches!(context.as_str(), "none" | "thisServer" | "allServers");
    object
        .field("messages", messages)
        .field("maxTokens", max_tokens)
        .some("systemPrompt", system)
        .some("modelPreferences", preferences)
        .some("includeContext", &include_context.as_ref().filter(known))
        .some("temperature", temperature)
        .some("stopSequences", stop)
        .some("metadata", &Open(metadata.as_ref()))
        .since(E2025_11_25, "tools", tools)
        .since(E2025_11_25, "toolChoice", tool_choice)
}

impl Put for ModelPreferences {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let ModelPreferences { hints, cost, speed, intelligence } = self;
        let hints: Vec<_> = hints.iter().map(|name| nest(move |object| object.field("name", name))).collect();
        Object::open(out, edition)
            .some("hints", &hints)
            .some("costPriority", &share(*cost))
            .some("speedPriority", &share(*speed))
            .some("intelligencePriority", &share(*intelligence))
            .close();
    }
}

impl Put for ToolChoice {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let mode = match self {
            ToolChoice::Auto => "auto",
            ToolChoice::Required => "required",
            ToolChoice::None => "none",
        };
        Object::open(out, edition).field("mode", mode).close();
    }
}

impl Put for SamplingMessage {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let SamplingMessage { role, content, meta } = self;
        Object::open(out, edition)
            .field("role", role)
            .field("content", &Turn(content))
            .since(E2025_11_25, "_meta", &Open(meta.as_ref()))
            .close();
    }
}

pub(super) fn put_sampled<'o>(object: Object<'o>, sampled: &Sampled) -> Object<'o> {
    let Sampled { role, content, model, stop_reason, meta } = sampled;
    object
        .field("role", role)
        .field("content", &Turn(content))
        .field("model", model)
        .some("stopReason", stop_reason)
        .some("_meta", &Open(meta.as_ref()))
}

/// All that is said in one turn. A single plain block stands for itself, since
/// that is what every edition reads.
struct Turn<'a>(&'a [SamplingBlock]);

impl Put for Turn<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        match self.0 {
            [block @ SamplingBlock::Content(_)] => block.put(out, edition),
            blocks if edition >= E2025_11_25 => blocks.put(out, edition),
            blocks => {
                let words: Vec<_> = blocks.iter().map(block_in_words).collect();
                Content::text(words.join("\n")).put(out, edition);
            }
        }
    }
}

fn block_in_words(block: &SamplingBlock) -> String {
    match block {
        SamplingBlock::Content(content) => in_words(content).into_owned(),
        SamplingBlock::ToolUse { name, input, .. } => format!("[call of {name}: {input}]"),
        SamplingBlock::ToolResult { content, .. } => {
            let words: Vec<_> = content.iter().map(in_words).collect();
            words.join("\n")
        }
    }
}

impl Put for SamplingBlock {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        match self {
            SamplingBlock::Content(content) => put_content(out, edition, content),
            SamplingBlock::ToolUse { id, name, input, meta } => Object::open(out, edition)
                .field("type", "tool_use")
                .field("id", id)
                .field("name", name)
                .field("input", &Open(Some(input)))
                .some("_meta", &Open(meta.as_ref()))
                .close(),
            SamplingBlock::ToolResult { id, content, structured, is_error, meta } => {
                let object = Object::open(out, edition).field("type", "tool_result").field("toolUseId", id);
                put_blocks(object, edition, content, structured.as_ref())
                    .some("isError", &Flag(*is_error))
                    .some("_meta", &Open(meta.as_ref()))
                    .close();
            }
        }
    }
}

/// A conversation has no resources in it, in any edition: they become words.
fn put_content(out: &mut Vec<u8>, edition: Edition, content: &Content) {
    match content.kind {
        ContentKind::Text(_) | ContentKind::Image { .. } | ContentKind::Audio { .. } => {
            content.put(out, edition);
        }
        ContentKind::Link(_) | ContentKind::Embedded(_) => {
            let text = ContentKind::Text(in_words(content).into_owned());
            Content { kind: text, ..content.clone() }.put(out, edition);
        }
    }
}

pub(super) fn read_sample(edition: Edition, params: &Part<'_>) -> Result<Sample, Fault> {
    let [
        messages,
        max_tokens,
        system,
        preferences,
        include_context,
        temperature,
        stop,
        metadata,
        tools,
        choice,
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
    Ok(Sample {
        messages: messages.list(|message| read_message(edition, message))?,
        max_tokens: max_tokens.count()?,
        system: system.maybe_text()?,
        preferences: read_preferences(preferences)?,
        include_context: include_context.maybe_text()?,
        temperature: temperature.maybe_number()?,
        stop: stop.maybe_list(Field::text)?,
        metadata: metadata.maybe_object()?,
        tools: tools.maybe_list(read_tool)?,
        tool_choice: read_choice(choice)?,
    })
}

fn read_preferences(field: &Field<'_>) -> Result<Option<ModelPreferences>, Fault> {
    let Some(part) = field.maybe_part("modelPreferences")? else {
        return Ok(None);
    };
    let [hints, cost, speed, intelligence] =
        &part.pick(["hints", "costPriority", "speedPriority", "intelligencePriority"]);
    // A hint may be about something else than a name.
    let hints = hints.maybe_list(|hint| hint.part("hint")?.field("name").maybe_text())?;
    Ok(Some(ModelPreferences {
        hints: hints.into_iter().flatten().collect(),
        cost: cost.maybe_number()?,
        speed: speed.maybe_number()?,
        intelligence: intelligence.maybe_number()?,
    }))
}

fn read_choice(field: &Field<'_>) -> Result<Option<ToolChoice>, Fault> {
    let Some(part) = field.maybe_part("toolChoice")? else {
        return Ok(None);
    };
    let mode = part.field("mode");
    let word = |word: &str| match word {
        "auto" => Some(ToolChoice::Auto),
        "required" => Some(ToolChoice::Required),
        "none" => Some(ToolChoice::None),
        _ => None,
    };
    match mode.value() {
        None => Ok(Some(ToolChoice::Auto)),
        Some(_) => mode.word("\"auto\", \"required\" or \"none\"", word).map(Some),
    }
}

fn read_message(edition: Edition, field: &Field<'_>) -> Result<SamplingMessage, Fault> {
    let [role, content, meta] = &field.part("message")?.pick(["role", "content", "_meta"]);
    Ok(SamplingMessage {
        role: read_role(role)?,
        content: read_turn(edition, content)?,
        meta: meta.maybe_object()?,
    })
}

pub(super) fn read_sampled(edition: Edition, part: &Part<'_>) -> Result<Sampled, Fault> {
    let [role, content, model, stop_reason, meta] =
        &part.pick(["role", "content", "model", "stopReason", "_meta"]);
    Ok(Sampled {
        role: read_role(role)?,
        content: read_turn(edition, content)?,
        model: model.text()?,
        stop_reason: stop_reason.maybe_text()?,
        meta: meta.maybe_object()?,
    })
}

/// One block, or a list of them.
fn read_turn(edition: Edition, field: &Field<'_>) -> Result<Vec<SamplingBlock>, Fault> {
    match field.value().map(|value| value.kind()) {
        Some(Kind::Array) => field.list(|block| read_block(edition, block)),
        _ => read_block(edition, field).map(|block| vec![block]),
    }
}

fn read_block(edition: Edition, field: &Field<'_>) -> Result<SamplingBlock, Fault> {
    let part = field.part("content")?;
    let [kind, id, name, input, tool_use, content, structured, is_error, meta] = &part.pick([
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
    Ok(match kind.text()?.as_str() {
        "tool_use" => SamplingBlock::ToolUse {
            id: id.text()?,
            name: name.text()?,
            input: input.object()?,
            meta: meta.maybe_object()?,
        },
        "tool_result" => SamplingBlock::ToolResult {
            id: tool_use.text()?,
            content: content.list(read_content)?,
            structured: read_structured(edition, structured),
            is_error: is_error.maybe_bool()?.unwrap_or(false),
            meta: meta.maybe_object()?,
        },
        _ => SamplingBlock::Content(read_content(field)?),
    })
}
