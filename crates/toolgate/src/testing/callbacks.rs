//! Callbacks with which a test client responds to requests of the server: elicitation, sampling, roots.
//!
//! A callback maps the request to its result; the connection reads and writes the messages. The client declares the
//! capabilities for which it has a callback.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use toolgate_wire::model::{
    ClientCapabilities, ClientResult, Content, ElicitRequest, ElicitResult, ElicitationCapability, Root,
    SamplingBlock, SamplingCapability, SamplingRequest, SamplingResult, ServerRequest,
};
use toolgate_wire::{ProtocolVersion, RawJson, codec};

use crate::handler::ElicitOutcome;

/// An elicitation request received by a test client: a form to fill in, or a URL to open.
#[derive(Clone, Debug)]
pub struct ReceivedElicitation {
    message: String,
    schema: Value,
    url: Option<String>,
}

impl ReceivedElicitation {
    /// The message shown to the user.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The JSON Schema of the form, as encoded for this protocol version; null for a URL.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// The URL to open; `None` for a form.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }
}

/// Conversion into the result of an elicitation: a JSON value accepts with this content, an [`ElicitOutcome`] can also
/// decline or cancel.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as the result of an elicitation",
    note = "return `json!({{ .. }})` to fill in the form, or `ElicitOutcome::Decline`"
)]
pub trait IntoElicitOutcome {
    /// Returns the result.
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

/// Conversion into the result of a sampling request: a text, or a full [`SamplingResult`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as the result of a sampling request",
    note = "return a string, or a `toolgate::model::SamplingResult`"
)]
pub trait IntoSamplingResult {
    /// Returns the result.
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
        let content = vec![SamplingBlock::Content(Content::text(self))];
        SamplingResult::new("test", content).with_stop_reason("endTurn")
    }
}

type Callback<Request, Response> = Option<Arc<dyn Fn(&Request) -> Response + Send + Sync>>;

/// The callbacks that a test has set.
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
    /// Returns the client capabilities that these callbacks provide.
    pub(super) fn capabilities(&self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = self.roots.as_ref().map(|_| false);
        capabilities.sampling = self.sample.as_ref().map(|_| SamplingCapability::with_tools());
        capabilities.elicitation = self.elicit.as_ref().map(|_| ElicitationCapability::form_and_url());
        capabilities
    }

    /// Runs the callback for a request and returns the encoded result. The callback is code of the test and may panic.
    pub(super) fn respond(&self, version: ProtocolVersion, request: &ServerRequest) -> RawJson {
        let result = match request {
            ServerRequest::Elicitation(elicit) => {
                let Some(callback) = &self.elicit else { panic_unhandled(request, "on_elicit") };
                ClientResult::Elicitation(match callback(&received_elicitation(elicit)) {
                    ElicitOutcome::Accept(Value::Null) => ElicitResult::Accept(None),
                    ElicitOutcome::Accept(content) => ElicitResult::Accept(Some(RawJson::from(content))),
                    ElicitOutcome::Decline => ElicitResult::Decline,
                    ElicitOutcome::Cancel => ElicitResult::Cancel,
                })
            }
            ServerRequest::Sampling(sample) => match &self.sample {
                Some(callback) => ClientResult::Sampling(Box::new(callback(sample))),
                None => panic_unhandled(request, "on_sample"),
            },
            ServerRequest::Roots => match &self.roots {
                Some(callback) => ClientResult::Roots(callback(&()).into_iter().map(Root::new).collect()),
                None => panic_unhandled(request, "on_roots"),
            },
            other => panic!("the server sent `{}`, which the test client does not support", other.method()),
        };
        let mut out = Vec::new();
        codec::write_client_result(&mut out, version, &result);
        match RawJson::parse(out.into()) {
            Ok(raw) => raw,
            Err(error) => panic!("the result for `{}` is not JSON: {error}", request.method()),
        }
    }
}

fn panic_unhandled(request: &ServerRequest, method: &str) -> ! {
    panic!("the server sent `{}`, but the client has no `{method}` callback", request.method())
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
