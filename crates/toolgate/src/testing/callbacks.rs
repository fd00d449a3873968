//! What the client of a test answers when the server asks.
//!
//! The closures of a test are called with a question and give an answer; how the question travels is the
//! business of the connection. A client can do what it was given a closure for, and says so.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use toolgate_wire::model::{
    ClientCapabilities, ClientResult, Content, ElicitRequest, ElicitResult, ElicitationCapability, Role,
    Root, SamplingBlock, SamplingCapability, SamplingRequest, SamplingResult, ServerRequest,
};
use toolgate_wire::{ProtocolVersion, RawJson, codec};

use crate::handler::ElicitOutcome;

/// A question for the user: a form to fill in, or a link to open.
#[derive(Clone, Debug)]
pub struct ReceivedElicitation {
    message: String,
    schema: Value,
    url: Option<String>,
}

impl ReceivedElicitation {
    /// What the user is asked.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The JSON Schema of the form, as this revision has it; null for a link.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// The link to open, if it is one.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }
}

/// What the user of a test may say: JSON fills in the form, [`ElicitOutcome`] says it in so many words.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no answer of a user",
    note = "give `json!({{ .. }})` to fill in the form, or `Elicited::Decline`"
)]
pub trait IntoElicitOutcome {
    /// The answer.
    fn into_elicit_outcome(self) -> ElicitOutcome<Value>;
}

impl IntoElicitOutcome for ElicitOutcome<Value> {
    fn into_elicit_outcome(self) -> ElicitOutcome<Value> {
        self
    }
}

impl IntoElicitOutcome for Value {
    fn into_elicit_outcome(self) -> ElicitOutcome<Value> {
        ElicitOutcome::Accept(self)
    }
}

/// What the model of a test may say: words, or everything a model can say.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no answer of a model",
    note = "give a text, or a `toolgate::model::Sampled`"
)]
pub trait IntoSamplingResult {
    /// The answer.
    fn into_sampling_result(self) -> SamplingResult;
}

impl IntoSamplingResult for SamplingResult {
    fn into_sampling_result(self) -> SamplingResult {
        self
    }
}

impl IntoSamplingResult for &str {
    fn into_sampling_result(self) -> SamplingResult {
        self.to_owned().into_sampling_result()
    }
}

impl IntoSamplingResult for String {
    fn into_sampling_result(self) -> SamplingResult {
        SamplingResult {
            role: Role::Assistant,
            content: vec![SamplingBlock::Content(Content::text(self))],
            model: "test".into(),
            stop_reason: Some("endTurn".into()),
            meta: None,
        }
    }
}

type Callback<Q, A> = Option<Arc<dyn Fn(&Q) -> A + Send + Sync>>;

/// The closures.
#[derive(Clone, Default)]
pub(super) struct ClientCallbacks {
    pub(super) elicit: Callback<ReceivedElicitation, ElicitOutcome<Value>>,
    pub(super) sample: Callback<SamplingRequest, SamplingResult>,
    pub(super) roots: Callback<(), Vec<String>>,
}

impl fmt::Debug for ClientCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCallbacks")
            .field("elicit", &self.elicit.is_some())
            .field("sample", &self.sample.is_some())
            .field("roots", &self.roots.is_some())
            .finish()
    }
}

impl ClientCallbacks {
    /// What a client with these can do.
    pub(super) fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            roots: self.roots.as_ref().map(|_| false),
            sampling: self.sample.as_ref().map(|_| SamplingCapability { context: false, tools: true }),
            elicitation: self.elicit.as_ref().map(|_| ElicitationCapability { form: true, url: true }),
            ..ClientCapabilities::default()
        }
    }

    /// The answer to a question, as a bare result. Runs the test's own code, which may panic.
    pub(super) fn respond(&self, edition: ProtocolVersion, ask: &ServerRequest) -> RawJson {
        let answer = match ask {
            ServerRequest::Elicitation(elicit) => {
                let Some(closure) = &self.elicit else { panic_unhandled(ask, "on_elicit") };
                ClientResult::Elicitation(match closure(&received_elicitation(elicit)) {
                    ElicitOutcome::Accept(Value::Null) => ElicitResult::Accept(None),
                    ElicitOutcome::Accept(content) => ElicitResult::Accept(Some(RawJson::from(content))),
                    ElicitOutcome::Decline => ElicitResult::Decline,
                    ElicitOutcome::Cancel => ElicitResult::Cancel,
                })
            }
            ServerRequest::Sampling(sample) => match &self.sample {
                Some(closure) => ClientResult::Sampling(Box::new(closure(sample))),
                None => panic_unhandled(ask, "on_sample"),
            },
            ServerRequest::Roots => match &self.roots {
                Some(closure) => ClientResult::Roots(
                    closure(&()).into_iter().map(|uri| Root { uri, ..Root::default() }).collect(),
                ),
                None => panic_unhandled(ask, "on_roots"),
            },
            other => panic!("the server asked {}, which no test can answer yet", other.method()),
        };
        let mut out = Vec::new();
        codec::write_client_result(&mut out, edition, &answer);
        match RawJson::parse(out.into()) {
            Ok(raw) => raw,
            Err(error) => panic!("the answer to {} is no JSON: {error}", ask.method()),
        }
    }
}

fn panic_unhandled(ask: &ServerRequest, method: &str) -> ! {
    panic!("the server asked {}, but the client was given no `{method}`", ask.method())
}

fn received_elicitation(elicit: &ElicitRequest) -> ReceivedElicitation {
    match elicit {
        ElicitRequest::Form(form) => {
            ReceivedElicitation { message: form.message.clone(), schema: form.schema.to_value(), url: None }
        }
        ElicitRequest::Url { message, url, .. } => {
            ReceivedElicitation { message: message.clone(), schema: Value::Null, url: Some(url.clone()) }
        }
    }
}
