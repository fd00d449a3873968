//! Sampling: asking the client's model, with a builder that is sent when it is awaited.

use std::pin::Pin;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use toolgate_wire::model::{
    ClientResult, ModelPreferences, SamplingBlock, SamplingMessage, SamplingRequest, SamplingResult,
    ServerRequest, Tool,
};

use super::context::mismatched_response;
use super::{Context, ServerRequestError};

/// The number of tokens that is requested if the handler sets none: the protocol requires one.
const DEFAULT_MAX_TOKENS: u64 = 1000;

impl Context {
    /// Asks the client's model (sampling). The request is sent when the returned builder is awaited.
    ///
    /// ```
    /// # use toolgate::{Context, Server, ToolError};
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Article { text: String }
    ///
    /// async fn summarize(article: Article, cx: Context) -> Result<String, ToolError> {
    ///     let prompt = format!("Summarize in one sentence:\n{}", article.text);
    ///     Ok(cx.sample(prompt).max_tokens(200).await?.text())
    /// }
    /// # let server = Server::new("demo", "1.0.0").tool("summarize", summarize).build().unwrap();
    /// # let client = server.test().on_sample(|request| format!("{} tokens", request.max_tokens));
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # assert_eq!(client.call("summarize", serde_json::json!({ "text": "" })).await.text(), "200 tokens");
    /// # });
    /// ```
    ///
    /// The request is a text, messages, or a complete [`SamplingRequest`]. See [`SamplingBuilder`] for its options.
    #[doc(alias("sampling", "create_message", "LLM"))]
    pub fn sample(&self, request: impl Into<SamplingRequest>) -> SamplingBuilder {
        let mut request = request.into();
        if request.max_tokens == 0 {
            request.max_tokens = DEFAULT_MAX_TOKENS;
        }
        SamplingBuilder { cx: self.clone(), key: None, request }
    }
}

/// A request to the client's model, from [`Context::sample`]. Awaiting it sends the request and returns the model's
/// message.
///
/// # Keys
///
/// In the newest protocol version a handler runs again when the reply has arrived, and finds the reply by the key of the request
/// (see [`ServerRequestError`]). The default key is derived from the messages, and from how often this call has sent the same
/// messages before. So a prompt must be the same in every run: if it contains the time or a random number, set a key with
/// [`SamplingBuilder::key`], or take the value in a [step](Context::step).
///
/// # Errors
/// If the client does not support sampling or refuses, the reply does not arrive in time, or it will arrive with a repeated
/// call. Propagate the error with `?`.
#[derive(Debug)]
#[must_use = "the request is sent when it is awaited"]
pub struct SamplingBuilder {
    cx: Context,
    key: Option<String>,
    request: SamplingRequest,
}

impl SamplingBuilder {
    /// Sets the key that identifies the request among those of this call. It must be unique, also across the passes of a loop.
    pub fn key(mut self, key: impl Into<String>) -> SamplingBuilder {
        self.key = Some(key.into());
        self
    }

    /// Sets the maximum number of tokens to sample; 1000 by default.
    pub fn max_tokens(mut self, max_tokens: u64) -> SamplingBuilder {
        self.request.max_tokens = max_tokens;
        self
    }

    /// Sets the system prompt.
    pub fn system_prompt(mut self, prompt: impl Into<String>) -> SamplingBuilder {
        self.request.system_prompt = Some(prompt.into());
        self
    }

    /// Sets the sampling temperature.
    pub fn temperature(mut self, temperature: f64) -> SamplingBuilder {
        self.request.temperature = Some(temperature);
        self
    }

    /// Adds a sequence that ends the output.
    pub fn stop_sequence(mut self, sequence: impl Into<String>) -> SamplingBuilder {
        self.request.stop_sequences.push(sequence.into());
        self
    }

    /// Adds a hint for the model to use: its name, or a part of it. The first hint is the preferred one.
    pub fn model_hint(mut self, hint: impl Into<String>) -> SamplingBuilder {
        self.request.model_preferences.get_or_insert_default().hints.push(hint.into());
        self
    }

    /// Sets the preferences for the model: hints, and the importance of cost, speed and intelligence.
    pub fn model_preferences(mut self, preferences: ModelPreferences) -> SamplingBuilder {
        self.request.model_preferences = Some(preferences);
        self
    }

    /// Inserts the earlier messages of a conversation before the prompt.
    pub fn messages(mut self, earlier: impl IntoIterator<Item = SamplingMessage>) -> SamplingBuilder {
        self.request.messages.splice(0..0, earlier);
        self
    }

    /// Adds a tool that the model may call, for clients that support sampling with tools.
    pub fn tool(mut self, tool: Tool) -> SamplingBuilder {
        self.request.tools.push(tool);
        self
    }

    async fn send(self) -> Result<SamplingResult, ServerRequestError> {
        let SamplingBuilder { cx, key, request } = self;
        let key = key.unwrap_or_else(|| default_key(&cx, &request));
        match cx.request_client(&key, ServerRequest::Sampling(Box::new(request))).await? {
            ClientResult::Sampling(result) => Ok(*result),
            _ => Err(mismatched_response()),
        }
    }
}

impl IntoFuture for SamplingBuilder {
    type Output = Result<SamplingResult, ServerRequestError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// Returns a key that is the same in every run of a call: a digest of the messages, and a number if the call has sent the same
/// messages before.
fn default_key(cx: &Context, request: &SamplingRequest) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(request.system_prompt.as_deref().unwrap_or_default());
    for SamplingMessage { role, content, .. } in &request.messages {
        add(&format!("{role:?}"));
        for block in content {
            match block {
                SamplingBlock::Content(content) if content.as_text().is_some() => {
                    add(content.as_text().unwrap_or_default());
                }
                other => add(&format!("{other:?}")),
            }
        }
    }
    let digest = URL_SAFE_NO_PAD.encode(&hash.finalize()[..9]);
    match cx.count_sample(&digest) {
        1 => format!("sample-{digest}"),
        n => format!("sample-{digest}-{n}"),
    }
}
