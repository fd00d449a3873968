//! What a server answers, to JSON: results and errors.
//!
//! Every result ends in `_meta`, because that is where the newest edition says
//! who answers. What an older peer could not show is rewritten here or in the
//! writers below: nobody gets an empty answer where there was something to say.

use super::bare::{Itemized, Typed};
use super::fields::Part;
use super::greeting::{ResultMeta, Server};
use super::item::Messages;
use super::object::{Flag, Object, Put, Word, nest};
use super::task::{put_rest_of_task, put_task, put_task_details};
use crate::Edition::{self, E2025_06_18, E2026_07_28};
use crate::edition::Structured;
use crate::json::{Raw, trusted, write_text};
use crate::meta::key;
use crate::model::{
    CacheHint, CacheScope, Completion, Content, ContentKind, Discovery, Implementation, InputRequired,
    Outcome, Page, PromptOutput, ToolOutput, Welcome,
};
use crate::{Dialect, Fault, RemoteError, RequestId};

/// Appends a result object. `server` says who answers, in editions where
/// results do.
pub fn write_outcome(
    out: &mut Vec<u8>,
    edition: Edition,
    outcome: &Outcome,
    server: Option<&Implementation>,
) {
    let server = server.filter(|_| edition.facts().result_type).map(Server::Known);
    put_outcome(out, edition, outcome, Around { server, ..Around::default() });
}

/// The same, signed with what was written before: a server that answers often
/// says the same of itself every time.
pub fn write_signed_outcome(out: &mut Vec<u8>, outcome: &Outcome, signature: &Signature) {
    let Signature { edition, server } = signature;
    let server = server.as_ref().map(Server::Written);
    put_outcome(out, *edition, outcome, Around { server, ..Around::default() });
}

/// Who answers, as one edition says it.
#[derive(Clone, Debug)]
pub struct Signature {
    edition: Edition,
    /// None where results are not signed.
    server: Option<Raw>,
}

impl Signature {
    /// Writes it down.
    #[must_use]
    pub fn new(edition: Edition, server: &Implementation) -> Signature {
        let write = || {
            let mut out = Vec::new();
            server.put(&mut out, edition);
            trusted(out)
        };
        Signature { edition, server: edition.facts().result_type.then(write) }
    }
}

/// Appends a result object for a client that names no edition.
pub fn write_bare_outcome(out: &mut Vec<u8>, dialect: &Dialect, outcome: &Outcome) {
    put_outcome(out, Edition::UNNAMED, outcome, Around { dialect: Some(dialect), ..Around::default() });
}

/// A result within another message: it says neither its type nor its server.
pub(super) struct Inlined<'a>(pub(super) &'a Outcome);

impl Put for Inlined<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        put_outcome(out, edition, self.0, Around { inlined: true, ..Around::default() });
    }
}

/// What stands around a result.
#[derive(Clone, Copy, Default)]
struct Around<'a> {
    server: Option<Server<'a>>,
    /// The core task that this is the result of.
    task: Option<&'a str>,
    inlined: bool,
    dialect: Option<&'a Dialect>,
}

impl<'a> Around<'a> {
    fn open<'o>(&self, out: &'o mut Vec<u8>, edition: Edition, kind: &'static str) -> Object<'o> {
        let kind = (!self.inlined).then_some(Word(kind));
        Object::open(out, edition).since(E2026_07_28, "resultType", &kind)
    }

    fn meta(&self, own: Option<&'a Raw>) -> ResultMeta<'a> {
        let Around { server, task, inlined: _, dialect: _ } = *self;
        ResultMeta { own, server, task, subscription: None }
    }
}

fn put_outcome(out: &mut Vec<u8>, edition: Edition, outcome: &Outcome, around: Around<'_>) {
    let complete = |out| around.open(out, edition, "complete");
    let plain = around.meta(None);
    match outcome {
        Outcome::Done => complete(out).some("_meta", &plain).close(),
        Outcome::Welcome(welcome) => put_welcome(complete(out), welcome).some("_meta", &plain).close(),
        Outcome::Discovery(discovery) => put_discovery(complete(out), discovery, plain),
        Outcome::Tools(page) => put_page(complete(out), "tools", page, plain),
        Outcome::Tool(output) if put_text_output(out, edition, output, around) => {}
        Outcome::Tool(output) => {
            let meta = around.meta(output.meta.as_ref());
            put_tool_output(complete(out), edition, output).some("_meta", &meta).close();
        }
        Outcome::Resources(page) => put_page(complete(out), "resources", page, plain),
        Outcome::Templates(page) => put_page(complete(out), "resourceTemplates", page, plain),
        Outcome::Read { contents, .. } if around.dialect.is_some_and(|dialect| dialect.typed_contents) => {
            complete(out).field("contents", &Typed(contents)).close();
        }
        Outcome::Read { contents, cache } => {
            put_cache(complete(out).field("contents", contents), *cache).some("_meta", &plain).close();
        }
        Outcome::Prompts(page) => put_page(complete(out), "prompts", page, plain),
        Outcome::Prompt(PromptOutput { description, messages, meta }) => complete(out)
            .some("description", description)
            .field("messages", &Messages { messages, system: around.dialect.is_some_and(|d| d.system_role) })
            .some("_meta", &around.meta(meta.as_ref()))
            .close(),
        Outcome::Completion(completion) if around.dialect.is_some_and(|dialect| dialect.completion_items) => {
            complete(out).field("completion", &Itemized(completion)).close();
        }
        Outcome::Roots(roots) => complete(out).field("roots", roots).close(),
        Outcome::Completion(completion) => {
            complete(out).field("completion", completion).some("_meta", &plain).close();
        }
        Outcome::InputRequired(InputRequired { asks, state }) => {
            around
                .open(out, edition, "input_required")
                .some("inputRequests", asks)
                .some("requestState", state)
                .some("_meta", &plain)
                .close();
        }
        Outcome::Listened { subscription } => {
            let meta = ResultMeta { subscription: Some(subscription), ..plain };
            complete(out).some("_meta", &meta).close();
        }
        Outcome::TaskStarted(task) if edition >= E2026_07_28 => {
            put_task(around.open(out, edition, "task"), edition, task).some("_meta", &plain).close();
        }
        Outcome::TaskStarted(task) => {
            complete(out).field("task", &nest(|object| put_task(object, edition, task))).close()
        }
        // The dialect that has this says that it has not begun, however far it is by now.
        Outcome::TaskCreated(task) => {
            let object = complete(out).field("taskId", &task.id).field("status", "pending");
            put_rest_of_task(object, edition, task).some("_meta", &plain).close();
        }
        Outcome::TaskStatus(task) => {
            let object = put_task(complete(out), edition, task);
            put_task_details(object, task).some("_meta", &plain).close();
        }
        Outcome::Tasks(page) => put_page(complete(out), "tasks", page, plain),
        Outcome::TaskPayload { id, output } => {
            // Spec, core tasks: the result says which task it is of.
            let task = (edition < E2026_07_28).then_some(id.as_str());
            put_outcome(out, edition, output, Around { task, ..around });
        }
    }
}

/// Answers of nothing but text, which nearly all are: what the writers below
/// would write, in as few pieces as can be. False if this is another answer.
fn put_text_output(out: &mut Vec<u8>, edition: Edition, output: &ToolOutput, around: Around<'_>) -> bool {
    let ToolOutput { content, structured: None, is_error, is_unavailable: _, meta: None } = output else {
        return false;
    };
    let Around { server, task: None, inlined: false, dialect: _ } = around else { return false };
    let plain = |content: &Content| match content {
        Content { kind: ContentKind::Text(text), annotations: None, meta: None } => Some(text.len()),
        _ => None,
    };
    let Some(n_bytes) = content.iter().map(plain).sum::<Option<usize>>() else { return false };
    out.reserve(n_bytes + content.len() * 32 + 256);
    match edition >= E2026_07_28 {
        true => out.extend_from_slice(b"{\"resultType\":\"complete\",\"content\":["),
        false => out.extend_from_slice(b"{\"content\":["),
    }
    for (n, text) in content.iter().filter_map(Content::as_text).enumerate() {
        out.extend_from_slice(if n > 0 { b"," } else { b"" });
        out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
        write_text(out, text);
        out.push(b'}');
    }
    out.extend_from_slice(if *is_error { b"],\"isError\":true" } else { b"]" });
    if let Some(server) = server {
        out.extend_from_slice(b",\"_meta\":{\"");
        out.extend_from_slice(key::SERVER.as_bytes());
        out.extend_from_slice(b"\":");
        server.put(out, edition);
        out.push(b'}');
    }
    out.push(b'}');
    true
}

fn put_welcome<'o>(object: Object<'o>, welcome: &Welcome) -> Object<'o> {
    let Welcome { version, capabilities, server, instructions } = welcome;
    object
        .field("protocolVersion", version)
        .field("capabilities", capabilities)
        .field("serverInfo", server)
        .some("instructions", instructions)
}

fn put_discovery(object: Object<'_>, discovery: &Discovery, meta: ResultMeta<'_>) {
    let Discovery { versions, capabilities, instructions, server, cache } = discovery;
    let object = object
        .field("supportedVersions", versions)
        .field("capabilities", capabilities)
        .some("instructions", instructions);
    let meta = ResultMeta { server: server.as_ref().map(Server::Known).or(meta.server), ..meta };
    put_cache(object, *cache).some("_meta", &meta).close();
}

fn put_page<T: Put>(object: Object<'_>, name: &str, page: &Page<T>, meta: ResultMeta<'_>) {
    let Page { items, next, cache } = page;
    let object = object.field(name, items).some("nextCursor", next);
    put_cache(object, *cache).some("_meta", &meta).close();
}

fn put_cache(object: Object<'_>, cache: CacheHint) -> Object<'_> {
    let CacheHint { ttl_ms, scope } = cache;
    let scope = match scope {
        CacheScope::Private => "private",
        CacheScope::Public => "public",
    };
    object.since(E2026_07_28, "ttlMs", &ttl_ms).since(E2026_07_28, "cacheScope", scope)
}

/// Everything but `_meta`, which the caller says.
fn put_tool_output<'o>(object: Object<'o>, edition: Edition, output: &ToolOutput) -> Object<'o> {
    let ToolOutput { content, structured, is_error, is_unavailable: _, meta: _ } = output;
    let object = put_blocks(object, edition, content, structured.as_ref());
    object.some("isError", &Flag(*is_error))
}

/// What a tool says to a model and to a program. An edition that cannot say
/// the latter leaves it out; if it was all there is, it is said in words.
pub(super) fn put_blocks<'o>(
    object: Object<'o>,
    edition: Edition,
    content: &[Content],
    structured: Option<&Raw>,
) -> Object<'o> {
    let fitting = structured.filter(|raw| match edition.facts().structured {
        Structured::Never => false,
        Structured::Object => raw.view().is_object(),
        Structured::Any => true,
    });
    match (content, structured, fitting) {
        ([], Some(lost), None) => object.field("content", &[Content::text(lost.as_str())][..]),
        _ => object.field("content", content).since(E2025_06_18, "structuredContent", &fitting),
    }
}

impl Put for Completion {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Completion { values, total, has_more } = self;
        let shown = values.get(..Completion::MAX).unwrap_or(values);
        let has_more = if shown.len() < values.len() { Some(true) } else { *has_more };
        Object::open(out, edition)
            .field("values", shown)
            .some("total", total)
            .some("hasMore", &has_more)
            .close();
    }
}

/// Appends a whole error message. Without an id the member is left out where
/// the edition allows that, and `null` where it does not.
pub fn write_fault(out: &mut Vec<u8>, edition: Edition, id: Option<&RequestId>, fault: &Fault) {
    let object = Object::open(out, edition).field("jsonrpc", "2.0");
    let object = match id {
        None if edition.facts().id_optional => object,
        id => object.field("id", &id),
    };
    object.field("error", fault).close();
}

/// Appends a whole error message for a client that names no edition.
pub fn write_bare_fault(out: &mut Vec<u8>, dialect: &Dialect, id: Option<&RequestId>, fault: &Fault) {
    let edition = Edition::UNNAMED;
    let error = nest(|object| {
        object
            .field("code", &dialect.code(fault))
            .field("message", &dialect.message(fault))
            .some("data", &dialect.data(fault))
    });
    Object::open(out, edition).field("jsonrpc", "2.0").field("id", &id).field("error", &error).close();
}

impl Put for Fault {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        Object::open(out, edition)
            .field("code", &self.code(edition))
            .field("message", self.message())
            .some("data", &self.data())
            .close();
    }
}

/// An error object within another message.
pub(super) fn read_fault(edition: Edition, part: &Part<'_>) -> Result<Fault, Fault> {
    let [code, message, data] = &part.pick(["code", "message", "data"]);
    let (code, message, data) = (code.integer()?, message.text()?, data.maybe_json());
    Ok(Fault::from_remote(RemoteError { code, message, data }, edition))
}
