//! What a server answers, to JSON: results and errors.
//!
//! Every result ends in `_meta`, because that is where the newest edition says
//! who answers. What an older peer could not show is rewritten here or in the
//! writers below: nobody gets an empty answer where there was something to say.

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

/// Appends a result object. `server` says who answers, in editions where
/// results do.
pub fn write_outcome(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    outcome: &Outcome,
    server: Option<&Implementation>,
) {
    let server = server.filter(|_| version.behavior().result_type).map(ServerInfoRef::Value);
    write_outcome_with(
        out,
        version,
        outcome,
        OutcomeContext { server_info: server, ..OutcomeContext::default() },
    );
}

/// The same, signed with what was written before: a server that answers often
/// says the same of itself every time.
pub fn write_outcome_from(out: &mut Vec<u8>, outcome: &Outcome, signature: &EncodedServerInfo) {
    let EncodedServerInfo { version, server_info: server } = signature;
    let server = server.as_ref().map(ServerInfoRef::Encoded);
    write_outcome_with(
        out,
        *version,
        outcome,
        OutcomeContext { server_info: server, ..OutcomeContext::default() },
    );
}

/// Who answers, as one edition says it.
#[derive(Clone, Debug)]
pub struct EncodedServerInfo {
    version: ProtocolVersion,
    /// None where results are not signed.
    server_info: Option<RawJson>,
}

impl EncodedServerInfo {
    /// Writes it down.
    #[must_use]
    pub fn new(version: ProtocolVersion, server: &Implementation) -> EncodedServerInfo {
        let write = || {
            let mut out = Vec::new();
            server.write_json(&mut out, version);
            raw_from_trusted(out)
        };
        EncodedServerInfo { version, server_info: version.behavior().result_type.then(write) }
    }
}

/// Appends a result object for a client that names no edition.
pub fn write_unversioned_outcome(out: &mut Vec<u8>, dialect: &Dialect, outcome: &Outcome) {
    write_outcome_with(
        out,
        ProtocolVersion::FALLBACK,
        outcome,
        OutcomeContext { dialect: Some(dialect), ..OutcomeContext::default() },
    );
}

/// A result within another message: it says neither its type nor its server.
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

/// What stands around a result.
#[derive(Clone, Copy, Default)]
struct OutcomeContext<'a> {
    server_info: Option<ServerInfoRef<'a>>,
    /// The core task that this is the result of.
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

    fn meta(&self, own: Option<&'a RawJson>) -> ResultMeta<'a> {
        let OutcomeContext { server_info: server, task, is_embedded: _, dialect: _ } = *self;
        ResultMeta { custom: own, server_info: server, task_id: task, subscription_id: None }
    }
}

fn write_outcome_with(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    outcome: &Outcome,
    around: OutcomeContext<'_>,
) {
    let complete = |out| around.open_result(out, version, "complete");
    let plain = around.meta(None);
    match outcome {
        Outcome::Empty => complete(out).optional("_meta", &plain).close(),
        Outcome::Initialize(welcome) => {
            add_initialize_fields(complete(out), welcome).optional("_meta", &plain).close()
        }
        Outcome::Discover(discovery) => finish_discover(complete(out), discovery, plain),
        Outcome::Tools(page) => finish_page(complete(out), "tools", page, plain),
        Outcome::Tool(output) if write_text_output(out, version, output, around) => {}
        Outcome::Tool(output) => {
            let meta = around.meta(output.meta.as_ref());
            add_tool_output_fields(complete(out), version, output).optional("_meta", &meta).close();
        }
        Outcome::Resources(page) => finish_page(complete(out), "resources", page, plain),
        Outcome::Templates(page) => finish_page(complete(out), "resourceTemplates", page, plain),
        Outcome::ReadResource { contents, .. }
            if around.dialect.is_some_and(|dialect| dialect.typed_contents) =>
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
                &PromptMessages { messages, has_system_role: around.dialect.is_some_and(|d| d.system_role) },
            )
            .optional("_meta", &around.meta(meta.as_ref()))
            .close(),
        Outcome::Completion(completion) if around.dialect.is_some_and(|dialect| dialect.completion_items) => {
            complete(out).field("completion", &CompletionWithItems(completion)).close();
        }
        Outcome::Roots(roots) => complete(out).field("roots", roots).close(),
        Outcome::Completion(completion) => {
            complete(out).field("completion", completion).optional("_meta", &plain).close();
        }
        Outcome::InputRequired(InputRequired { input_requests: asks, request_state: state }) => {
            around
                .open_result(out, version, "input_required")
                .optional("inputRequests", asks)
                .optional("requestState", state)
                .optional("_meta", &plain)
                .close();
        }
        Outcome::ListenEnded { subscription_id: subscription } => {
            let meta = ResultMeta { subscription_id: Some(subscription), ..plain };
            complete(out).optional("_meta", &meta).close();
        }
        Outcome::TaskStarted(task) if version >= V2026_07_28 => {
            add_task_fields(around.open_result(out, version, "task"), version, task)
                .optional("_meta", &plain)
                .close();
        }
        Outcome::TaskStarted(task) => {
            complete(out).field("task", &nest(|object| add_task_fields(object, version, task))).close()
        }
        // The dialect that has this says that it has not begun, however far it is by now.
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
            // Spec, core tasks: the result says which task it is of.
            let task = (version < V2026_07_28).then_some(id.as_str());
            write_outcome_with(out, version, output, OutcomeContext { task, ..around });
        }
    }
}

/// Answers of nothing but text, which nearly all are: what the writers below
/// would write, in as few pieces as can be. False if this is another answer.
fn write_text_output(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    output: &ToolOutput,
    around: OutcomeContext<'_>,
) -> bool {
    let ToolOutput { content, structured_content: None, is_error, is_unavailable: _, meta: None } = output
    else {
        return false;
    };
    let OutcomeContext { server_info: server, task: None, is_embedded: false, dialect: _ } = around else {
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
    if let Some(server) = server {
        out.extend_from_slice(b",\"_meta\":{\"");
        out.extend_from_slice(meta_key::SERVER_INFO.as_bytes());
        out.extend_from_slice(b"\":");
        server.write_json(out, version);
        out.push(b'}');
    }
    out.push(b'}');
    true
}

fn add_initialize_fields<'o>(object: ObjectWriter<'o>, welcome: &InitializeResult) -> ObjectWriter<'o> {
    let InitializeResult { version, capabilities, server_info: server, instructions } = welcome;
    object
        .field("protocolVersion", version)
        .field("capabilities", capabilities)
        .field("serverInfo", server)
        .optional("instructions", instructions)
}

fn finish_discover(object: ObjectWriter<'_>, discovery: &DiscoverResult, meta: ResultMeta<'_>) {
    let DiscoverResult { versions, capabilities, instructions, server_info: server, cache } = discovery;
    let object = object
        .field("supportedVersions", versions)
        .field("capabilities", capabilities)
        .optional("instructions", instructions);
    let meta =
        ResultMeta { server_info: server.as_ref().map(ServerInfoRef::Value).or(meta.server_info), ..meta };
    add_cache_fields(object, *cache).optional("_meta", &meta).close();
}

fn finish_page<T: WriteJson>(object: ObjectWriter<'_>, name: &str, page: &Page<T>, meta: ResultMeta<'_>) {
    let Page { items, next_cursor: next, cache } = page;
    let object = object.field(name, items).optional("nextCursor", next);
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

/// Everything but `_meta`, which the caller says.
fn add_tool_output_fields<'o>(
    object: ObjectWriter<'o>,
    version: ProtocolVersion,
    output: &ToolOutput,
) -> ObjectWriter<'o> {
    let ToolOutput { content, structured_content: structured, is_error, is_unavailable: _, meta: _ } = output;
    let object = add_content_fields(object, version, content, structured.as_ref());
    object.optional("isError", &TrueOrAbsent(*is_error))
}

/// What a tool says to a model and to a program. An edition that cannot say
/// the latter leaves it out; if it was all there is, it is said in words.
pub(super) fn add_content_fields<'o>(
    object: ObjectWriter<'o>,
    version: ProtocolVersion,
    content: &[Content],
    structured: Option<&RawJson>,
) -> ObjectWriter<'o> {
    let fitting = structured.filter(|raw| match version.behavior().structured_content {
        StructuredContent::Never => false,
        StructuredContent::Object => raw.view().is_object(),
        StructuredContent::Any => true,
    });
    match (content, structured, fitting) {
        ([], Some(lost), None) => object.field("content", &[Content::text(lost.as_str())][..]),
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
