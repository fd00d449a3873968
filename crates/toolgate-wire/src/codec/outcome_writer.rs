//! Writes results.
//!
//! Every result may have a `_meta`, where the newest version names the server. Values that an older peer cannot represent
//! are converted here or in the writers below, so that no content is lost without a replacement.

use super::list_item::PromptMessages;
use super::meta_writer::{ResultMeta, ServerInfoRef};
use super::object::{ObjectWriter, TrueOrAbsent, UnescapedStr, WriteJson, nest};
use super::task::{add_task_details, add_task_fields, add_task_time_fields};
use super::unversioned::{CompletionWithItems, TypedContents};
use crate::Dialect;
use crate::ProtocolVersion::{self, V2025_06_18, V2026_07_28};
use crate::json::{RawJson, raw_from_trusted, write_string};
use crate::meta::meta_key;
use crate::model::{
    CacheHint, CacheScope, Completion, Content, ContentKind, DiscoverResult, Implementation,
    InitializeResult, InputRequired, Outcome, Page, PromptOutput, ToolOutput,
};
use crate::protocol_version::StructuredContent;

/// Appends a result object. `server` is written in versions whose results carry it.
pub fn write_outcome(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    outcome: &Outcome,
    server_info: Option<&Implementation>,
) {
    let server_info = server_info.filter(|_| version.behavior().result_type).map(ServerInfoRef::Value);
    write_outcome_with(out, version, outcome, OutcomeContext { server_info, ..OutcomeContext::default() });
}

/// Appends a result object with server information that was encoded earlier, which is the same on every result.
pub fn write_outcome_from(out: &mut Vec<u8>, outcome: &Outcome, server_info: &EncodedServerInfo) {
    let EncodedServerInfo { version, server_info } = server_info;
    let server_info = server_info.as_ref().map(ServerInfoRef::Encoded);
    write_outcome_with(out, *version, outcome, OutcomeContext { server_info, ..OutcomeContext::default() });
}

/// Server information, encoded for one version.
#[derive(Clone, Debug)]
pub struct EncodedServerInfo {
    version: ProtocolVersion,
    /// `None` in versions whose results do not carry it.
    server_info: Option<RawJson>,
}

impl EncodedServerInfo {
    /// Encodes server information.
    #[must_use]
    pub fn new(version: ProtocolVersion, server_info: &Implementation) -> EncodedServerInfo {
        let write = || {
            let mut out = Vec::new();
            server_info.write_json(&mut out, version);
            raw_from_trusted(out)
        };
        EncodedServerInfo { version, server_info: version.behavior().result_type.then(write) }
    }
}

/// Appends a result object for a client that sends no protocol version.
pub fn write_unversioned_outcome(out: &mut Vec<u8>, dialect: &Dialect, outcome: &Outcome) {
    write_outcome_with(
        out,
        ProtocolVersion::FALLBACK,
        outcome,
        OutcomeContext { dialect: Some(dialect), ..OutcomeContext::default() },
    );
}

/// A result inside another message, without `resultType` and server information.
pub(super) struct EmbeddedOutcome<'a>(pub(super) &'a Outcome);

impl WriteJson for EmbeddedOutcome<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        write_outcome_with(
            out,
            version,
            self.0,
            OutcomeContext { is_embedded: true, ..OutcomeContext::default() },
        );
    }
}

/// The context of a result.
#[derive(Clone, Copy, Default)]
struct OutcomeContext<'a> {
    server_info: Option<ServerInfoRef<'a>>,
    /// The core task to which this result belongs.
    task: Option<&'a str>,
    is_embedded: bool,
    dialect: Option<&'a Dialect>,
}

impl<'a> OutcomeContext<'a> {
    fn open_result<'o>(
        &self,
        out: &'o mut Vec<u8>,
        version: ProtocolVersion,
        kind: &'static str,
    ) -> ObjectWriter<'o> {
        let kind = (!self.is_embedded).then_some(UnescapedStr(kind));
        ObjectWriter::open(out, version).since(V2026_07_28, "resultType", &kind)
    }

    fn meta(&self, custom: Option<&'a RawJson>) -> ResultMeta<'a> {
        let OutcomeContext { server_info, task, is_embedded: _, dialect: _ } = *self;
        ResultMeta { custom, server_info, task_id: task, subscription_id: None }
    }
}

fn write_outcome_with(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    outcome: &Outcome,
    context: OutcomeContext<'_>,
) {
    let complete = |out| context.open_result(out, version, "complete");
    let plain = context.meta(None);
    match outcome {
        Outcome::Empty => complete(out).optional("_meta", &plain).close(),
        Outcome::Initialize(result) => {
            add_initialize_fields(complete(out), result).optional("_meta", &plain).close()
        }
        Outcome::Discover(result) => finish_discover(complete(out), result, plain),
        Outcome::Tools(page) => finish_page(complete(out), "tools", page, plain),
        Outcome::Tool(output) if write_text_output(out, version, output, context) => {}
        Outcome::Tool(output) => {
            let meta = context.meta(output.meta.as_ref());
            add_tool_output_fields(complete(out), version, output).optional("_meta", &meta).close();
        }
        Outcome::Resources(page) => finish_page(complete(out), "resources", page, plain),
        Outcome::Templates(page) => finish_page(complete(out), "resourceTemplates", page, plain),
        Outcome::ReadResource { contents, .. }
            if context.dialect.is_some_and(|dialect| dialect.typed_contents) =>
        {
            complete(out).field("contents", &TypedContents(contents)).close();
        }
        Outcome::ReadResource { contents, cache } => {
            add_cache_fields(complete(out).field("contents", contents), *cache)
                .optional("_meta", &plain)
                .close();
        }
        Outcome::Prompts(page) => finish_page(complete(out), "prompts", page, plain),
        Outcome::Prompt(PromptOutput { description, messages, meta }) => complete(out)
            .optional("description", description)
            .field(
                "messages",
                &PromptMessages { messages, has_system_role: context.dialect.is_some_and(|d| d.system_role) },
            )
            .optional("_meta", &context.meta(meta.as_ref()))
            .close(),
        Outcome::Completion(completion)
            if context.dialect.is_some_and(|dialect| dialect.completion_items) =>
        {
            complete(out).field("completion", &CompletionWithItems(completion)).close();
        }
        Outcome::Roots(roots) => complete(out).field("roots", roots).close(),
        Outcome::Completion(completion) => {
            complete(out).field("completion", completion).optional("_meta", &plain).close();
        }
        Outcome::InputRequired(InputRequired { input_requests, request_state }) => {
            context
                .open_result(out, version, "input_required")
                .optional("inputRequests", input_requests)
                .optional("requestState", request_state)
                .optional("_meta", &plain)
                .close();
        }
        Outcome::ListenEnded { subscription_id } => {
            let meta = ResultMeta { subscription_id: Some(subscription_id), ..plain };
            complete(out).optional("_meta", &meta).close();
        }
        Outcome::TaskStarted(task) if version >= V2026_07_28 => {
            add_task_fields(context.open_result(out, version, "task"), version, task)
                .optional("_meta", &plain)
                .close();
        }
        Outcome::TaskStarted(task) => {
            complete(out).field("task", &nest(|object| add_task_fields(object, version, task))).close()
        }
        // The dialect that has `tasks/create` reports `pending`, whatever the actual status.
        Outcome::TaskCreated(task) => {
            let object = complete(out).field("taskId", &task.id).field("status", "pending");
            add_task_time_fields(object, version, task).optional("_meta", &plain).close();
        }
        Outcome::TaskStatus(task) => {
            let object = add_task_fields(complete(out), version, task);
            add_task_details(object, task).optional("_meta", &plain).close();
        }
        Outcome::Tasks(page) => finish_page(complete(out), "tasks", page, plain),
        Outcome::TaskPayload { id, output } => {
            // Spec, core tasks: the result names its task.
            let task = (version < V2026_07_28).then_some(id.as_str());
            write_outcome_with(out, version, output, OutcomeContext { task, ..context });
        }
    }
}

/// Writes a result that consists of text only, the most common case, in few pieces. The output is the same as that of the
/// general writers. Returns false if the result has anything else.
fn write_text_output(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    output: &ToolOutput,
    context: OutcomeContext<'_>,
) -> bool {
    let ToolOutput { content, structured_content: None, is_error, is_unavailable: _, meta: None } = output
    else {
        return false;
    };
    let OutcomeContext { server_info, task: None, is_embedded: false, dialect: _ } = context else {
        return false;
    };
    let plain = |content: &Content| match content {
        Content { kind: ContentKind::Text(text), annotations: None, meta: None } => Some(text.len()),
        _ => None,
    };
    let Some(n_bytes) = content.iter().map(plain).sum::<Option<usize>>() else { return false };
    out.reserve(n_bytes + content.len() * 32 + 256);
    match version >= V2026_07_28 {
        true => out.extend_from_slice(b"{\"resultType\":\"complete\",\"content\":["),
        false => out.extend_from_slice(b"{\"content\":["),
    }
    for (n, text) in content.iter().filter_map(Content::as_text).enumerate() {
        out.extend_from_slice(if n > 0 { b"," } else { b"" });
        out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
        write_string(out, text);
        out.push(b'}');
    }
    out.extend_from_slice(if *is_error { b"],\"isError\":true" } else { b"]" });
    if let Some(server_info) = server_info {
        out.extend_from_slice(b",\"_meta\":{\"");
        out.extend_from_slice(meta_key::SERVER_INFO.as_bytes());
        out.extend_from_slice(b"\":");
        server_info.write_json(out, version);
        out.push(b'}');
    }
    out.push(b'}');
    true
}

fn add_initialize_fields<'o>(object: ObjectWriter<'o>, result: &InitializeResult) -> ObjectWriter<'o> {
    let InitializeResult { version, capabilities, server_info, instructions } = result;
    object
        .field("protocolVersion", version)
        .field("capabilities", capabilities)
        .field("serverInfo", server_info)
        .optional("instructions", instructions)
}

fn finish_discover(object: ObjectWriter<'_>, result: &DiscoverResult, meta: ResultMeta<'_>) {
    let DiscoverResult { versions, capabilities, instructions, server_info, cache } = result;
    let object = object
        .field("supportedVersions", versions)
        .field("capabilities", capabilities)
        .optional("instructions", instructions);
    let meta = ResultMeta {
        server_info: server_info.as_ref().map(ServerInfoRef::Value).or(meta.server_info),
        ..meta
    };
    add_cache_fields(object, *cache).optional("_meta", &meta).close();
}

fn finish_page<T: WriteJson>(object: ObjectWriter<'_>, name: &str, page: &Page<T>, meta: ResultMeta<'_>) {
    let Page { items, next_cursor, cache } = page;
    let object = object.field(name, items).optional("nextCursor", next_cursor);
    add_cache_fields(object, *cache).optional("_meta", &meta).close();
}

fn add_cache_fields(object: ObjectWriter<'_>, cache: CacheHint) -> ObjectWriter<'_> {
    let CacheHint { ttl_ms, scope } = cache;
    let scope = match scope {
        CacheScope::Private => "private",
        CacheScope::Public => "public",
    };
    object.since(V2026_07_28, "ttlMs", &ttl_ms).since(V2026_07_28, "cacheScope", scope)
}

/// Adds all fields except `_meta`, which the caller adds.
fn add_tool_output_fields<'o>(
    object: ObjectWriter<'o>,
    version: ProtocolVersion,
    output: &ToolOutput,
) -> ObjectWriter<'o> {
    let ToolOutput { content, structured_content, is_error, is_unavailable: _, meta: _ } = output;
    let object = add_content_fields(object, version, content, structured_content.as_ref());
    object.optional("isError", &TrueOrAbsent(*is_error))
}

/// Adds the content of a tool result. If a version does not allow the structured content, it is omitted; if there is no other
/// content, it is written as text.
pub(super) fn add_content_fields<'o>(
    object: ObjectWriter<'o>,
    version: ProtocolVersion,
    content: &[Content],
    structured_content: Option<&RawJson>,
) -> ObjectWriter<'o> {
    let fitting = structured_content.filter(|raw| match version.behavior().structured_content {
        StructuredContent::Never => false,
        StructuredContent::Object => raw.view().is_object(),
        StructuredContent::Any => true,
    });
    match (content, structured_content, fitting) {
        ([], Some(structured), None) => object.field("content", &[Content::text(structured.as_str())][..]),
        _ => object.field("content", content).since(V2025_06_18, "structuredContent", &fitting),
    }
}

impl WriteJson for Completion {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let Completion { values, total, has_more } = self;
        let shown = values.get(..Completion::MAX_VALUES).unwrap_or(values);
        let has_more = if shown.len() < values.len() { Some(true) } else { *has_more };
        ObjectWriter::open(out, version)
            .field("values", shown)
            .optional("total", total)
            .optional("hasMore", &has_more)
            .close();
    }
}
