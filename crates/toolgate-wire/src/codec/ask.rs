//! What a server asks its client and what it hears, both ways.
//!
//! Whether the client declared that it can be asked is not looked at here; only
//! whether its edition has words for the question.

use super::fields::{Field, Part};
use super::form::{self, FormSchema};
use super::greeting::ResultMeta;
use super::object::{Object, Open, Put, nest};
use super::sample::{is_plain, put_sample, put_sampled, read_sample, read_sampled};
use crate::Edition::{self, E2025_06_18, E2025_11_25};
use crate::edition::Elicitation;
use crate::json::Raw;
use crate::meta::Client;
use crate::model::{
    Answer, Ask, AskKind, ClientCapabilities, Elicit, ElicitAnswer, ElicitationCapability, Form, Root,
    SamplingCapability,
};
use crate::{Fault, FaultKind};

/// Appends the params of a question: of a request of the server's own, or
/// within `inputRequests`, as the edition has it.
pub fn write_ask_params(out: &mut Vec<u8>, edition: Edition, ask: &Ask) {
    put_ask(Object::open(out, edition), ask).close();
}

/// The same for a question that a core task asks: it says of which task it is.
pub fn write_related_ask_params(out: &mut Vec<u8>, edition: Edition, ask: &Ask, task: &str) {
    let meta = ResultMeta { task: Some(task), ..ResultMeta::default() };
    put_ask(Object::open(out, edition), ask).only(E2025_11_25, "_meta", &meta).close();
}

/// A question within `inputRequests`.
impl Put for Ask {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let params = match self {
            Ask::Roots => None,
            ask => Some(nest(|object| put_ask(object, ask))),
        };
        Object::open(out, edition).field("method", self.method()).some("params", &params).close();
    }
}

fn put_ask<'o>(object: Object<'o>, ask: &Ask) -> Object<'o> {
    match ask {
        Ask::Elicit(Elicit::Form(Form { message, schema })) => object
            .since(E2025_11_25, "mode", "form")
            .field("message", message)
            .field("requestedSchema", &FormSchema(schema)),
        Ask::Elicit(Elicit::Url { message, url, id }) => object
            .field("mode", "url")
            .field("message", message)
            .field("url", url)
            .only(E2025_11_25, "elicitationId", id),
        Ask::Sample(sample) => put_sample(object, sample),
        Ask::Roots => object,
    }
}

/// Whether an edition has words for a question. One that it has none for must
/// not be written.
pub fn can_ask(edition: Edition, ask: &Ask) -> bool {
    let elicitation = edition.facts().elicitation;
    match ask {
        Ask::Elicit(Elicit::Form(form)) => match elicitation {
            Elicitation::Never => false,
            Elicitation::Form => form::is_plain(&form.schema),
            Elicitation::FormAndUrl => true,
        },
        Ask::Elicit(Elicit::Url { .. }) => elicitation == Elicitation::FormAndUrl,
        Ask::Sample(sample) => edition >= E2025_11_25 || is_plain(sample),
        Ask::Roots => true,
    }
}

/// What a client cannot do that would have to be asked this, in words and as it would declare it. None if it can be
/// asked.
#[must_use]
pub fn lacking(client: &Client, ask: &Ask) -> Option<(&'static str, ClientCapabilities)> {
    let capabilities = &client.capabilities;
    let elicitation = capabilities.elicitation;
    let (what, can) = match ask.kind() {
        AskKind::ElicitForm => ("forms", elicitation.is_some_and(|elicitation| elicitation.form)),
        AskKind::ElicitUrl => ("links to open", elicitation.is_some_and(|elicitation| elicitation.url)),
        AskKind::Sample => ("sampling", capabilities.sampling.is_some()),
        AskKind::SampleWithTools => {
            ("sampling with tools", capabilities.sampling.is_some_and(|sampling| sampling.tools))
        }
        AskKind::Roots => ("roots", capabilities.roots.is_some()),
    };
    if can && can_ask(client.edition, ask) {
        return None;
    }
    let mut missing = ClientCapabilities::default();
    match ask.kind() {
        AskKind::ElicitForm => {
            missing.elicitation = Some(ElicitationCapability { form: true, url: false });
        }
        AskKind::ElicitUrl => {
            missing.elicitation = Some(ElicitationCapability { form: false, url: true });
        }
        AskKind::Sample => missing.sampling = Some(SamplingCapability::default()),
        AskKind::SampleWithTools => {
            missing.sampling = Some(SamplingCapability { tools: true, context: false });
        }
        AskKind::Roots => missing.roots = Some(false),
    }
    Some((what, missing))
}

/// Reads a question: a request of a server's own, by method and params.
pub fn read_ask(edition: Edition, method: &str, params: Option<&Raw>) -> Result<Ask, Fault> {
    read_asked(edition, method, &Part::params(params)?)
}

/// A question within `inputRequests`.
pub(super) fn read_embedded(edition: Edition, field: &Field<'_>) -> Result<Ask, Fault> {
    let part = field.part("inputRequest")?;
    let [method, params] = &part.pick(["method", "params"]);
    let (method, params) = (method.text()?, params.part_or_empty("params")?);
    read_asked(edition, &method, &params).map_err(|fault| match fault.kind() {
        FaultKind::Method => part.refuse(fault.message().to_owned()),
        _ => fault,
    })
}

fn read_asked(edition: Edition, method: &str, params: &Part<'_>) -> Result<Ask, Fault> {
    match method {
        "elicitation/create" if edition.facts().elicitation > Elicitation::Never => {
            read_elicit(edition, params).map(Ask::Elicit)
        }
        "sampling/createMessage" => Ok(Ask::Sample(Box::new(read_sample(edition, params)?))),
        "roots/list" => Ok(Ask::Roots),
        _ => Err(Fault::method(method)),
    }
}

fn read_elicit(edition: Edition, params: &Part<'_>) -> Result<Elicit, Fault> {
    let [mode, message, schema, url, id] =
        &params.pick(["mode", "message", "requestedSchema", "url", "elicitationId"]);
    let links = edition.facts().elicitation == Elicitation::FormAndUrl;
    match mode.maybe_text()?.as_deref() {
        None | Some("form") => Ok(Elicit::Form(Form { message: message.text()?, schema: schema.object()? })),
        Some("url") if links => Ok(Elicit::Url {
            message: message.text()?,
            url: url.text()?,
            id: id.maybe_text()?.unwrap_or_default(),
        }),
        Some(_) => Err(mode.wrong("a known mode")),
    }
}

/// Appends what a client heard, as a bare result.
pub fn write_answer(out: &mut Vec<u8>, edition: Edition, answer: &Answer) {
    let object = Object::open(out, edition);
    match answer {
        Answer::Elicit(ElicitAnswer::Accept(content)) => {
            object.field("action", "accept").some("content", &Open(content.as_ref())).close()
        }
        Answer::Elicit(ElicitAnswer::Decline) => object.field("action", "decline").close(),
        Answer::Elicit(ElicitAnswer::Cancel) => object.field("action", "cancel").close(),
        Answer::Sample(sampled) => put_sampled(object, sampled).close(),
        Answer::Roots(roots) => object.field("roots", roots).close(),
    }
}

impl Put for Root {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Root { uri, name, meta } = self;
        Object::open(out, edition)
            .field("uri", uri)
            .some("name", name)
            .since(E2025_06_18, "_meta", &Open(meta.as_ref()))
            .close();
    }
}

/// Reads what a client heard, as the bare result of `ask`.
pub fn read_answer(edition: Edition, ask: &Ask, result: &Raw) -> Result<Answer, Fault> {
    let part = Part::of(result, "answer", FaultKind::Params)?;
    match ask {
        Ask::Elicit(elicit) => read_elicited(elicit, &part).map(Answer::Elicit),
        Ask::Sample(_) => Ok(Answer::Sample(Box::new(read_sampled(edition, &part)?))),
        Ask::Roots => Ok(Answer::Roots(part.field("roots").list(read_root)?)),
    }
}

fn read_elicited(elicit: &Elicit, part: &Part<'_>) -> Result<ElicitAnswer, Fault> {
    let [action, content] = &part.pick(["action", "content"]);
    match action.text()?.as_str() {
        "accept" => Ok(ElicitAnswer::Accept(match elicit {
            Elicit::Form(_) => content.maybe_object()?,
            Elicit::Url { .. } => None,
        })),
        "decline" => Ok(ElicitAnswer::Decline),
        "cancel" => Ok(ElicitAnswer::Cancel),
        _ => Err(action.wrong("\"accept\", \"decline\" or \"cancel\"")),
    }
}

pub(super) fn read_root(field: &Field<'_>) -> Result<Root, Fault> {
    let [uri, name, meta] = &field.part("root")?.pick(["uri", "name", "_meta"]);
    Ok(Root { uri: uri.text()?, name: name.maybe_text()?, meta: meta.maybe_object()? })
}
