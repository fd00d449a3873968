//! Messages that a test client receives: responses, errors and notifications.
//!
//! Accessors panic if the response is of another kind. The panic shows the response and points at the line of the test.

use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolgate_wire::RemoteError;
use toolgate_wire::model::{
    Completion, Content, PromptMessage, PromptOutput, ResourceBody, ResourceContents, ToolOutput,
};

/// Response to `tools/call`.
pub type ToolResponse = TestResponse<ToolOutput>;
/// Response to `resources/read`.
pub type ResourceResponse = TestResponse<Vec<ResourceContents>>;
/// Response to `prompts/get`.
pub type PromptResponse = TestResponse<PromptOutput>;
/// Response to `completion/complete`.
pub type CompletionResponse = TestResponse<Completion>;

/// The response to one request: a result, or a [`TestError`].
///
/// A [`TestError`] is a protocol error (unknown tool, not authorized). The failure of a tool is a result with an error
/// flag ([`ToolResponse::is_error`]). Accessors of the result panic on a protocol error and show it.
#[derive(Clone)]
pub struct TestResponse<T> {
    pub(super) outcome: Result<T, TestError>,
    pub(super) message: Value,
    pub(super) http_response: Option<ReceivedResponse>,
}

impl<T> TestResponse<T> {
    /// Returns the result or the protocol error; never panics.
    ///
    /// # Errors
    /// If the server responded with a protocol error.
    pub fn result(&self) -> Result<&T, &TestError> {
        self.outcome.as_ref()
    }

    /// Returns the protocol error.
    ///
    /// # Panics
    /// If the response is a result.
    #[track_caller]
    pub fn error(&self) -> &TestError {
        match &self.outcome {
            Err(error) => error,
            Ok(_) => panic!("expected an error, got a result: {}", self.message),
        }
    }

    /// The whole JSON-RPC message; null if the response was not a message.
    pub fn message(&self) -> &Value {
        &self.message
    }

    /// The HTTP response: status, headers and body. `None` over stdio.
    pub fn http(&self) -> Option<&ReceivedResponse> {
        self.http_response.as_ref()
    }

    #[track_caller]
    fn expect_result(&self, expected: &str) -> &T {
        match &self.outcome {
            Ok(result) => result,
            Err(error) => panic!("expected {expected}, but the request failed: {error}"),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for TestResponse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcome.fmt(f)
    }
}

impl ToolResponse {
    /// Returns the text content: all text blocks, joined by line feeds.
    ///
    /// # Panics
    /// If the response is an error, or has no text.
    #[track_caller]
    pub fn text(&self) -> String {
        let texts: Vec<&str> =
            self.expect_result("text").content.iter().filter_map(Content::as_text).collect();
        assert!(!texts.is_empty(), "expected text, got none in {}", self.message);
        texts.join("\n")
    }

    /// Returns the structured output. In protocol versions without it, the text parsed as JSON.
    ///
    /// # Panics
    /// If the response is an error, or has no JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        if let Some(structured) = &self.expect_result("structured output").structured_content {
            return structured.to_value();
        }
        let text = self.text();
        match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(_) => panic!("expected structured output or JSON, got the text {text:?}"),
        }
    }

    /// Deserializes the structured output; see [`ToolResponse::json`].
    ///
    /// # Panics
    /// If the response is an error, or does not deserialize.
    #[track_caller]
    pub fn structured<T: DeserializeOwned>(&self) -> T {
        let value = self.json();
        match T::deserialize(&value) {
            Ok(typed) => typed,
            Err(error) => panic!("expected {}, got {value}: {error}", std::any::type_name::<T>()),
        }
    }

    /// Returns all content blocks.
    ///
    /// # Panics
    /// If the response is a protocol error.
    #[track_caller]
    pub fn content(&self) -> &[Content] {
        &self.expect_result("content").content
    }

    /// Returns true if the tool reported a failure.
    ///
    /// # Panics
    /// If the response is a protocol error: then there is no result of the tool.
    #[track_caller]
    pub fn is_error(&self) -> bool {
        self.expect_result("a tool result").is_error
    }
}

impl ResourceResponse {
    /// Returns the contents: one resource or several.
    ///
    /// # Panics
    /// If the response is an error.
    #[track_caller]
    pub fn contents(&self) -> &[ResourceContents] {
        self.expect_result("contents")
    }

    /// Returns the text of all contents, joined by line feeds.
    ///
    /// # Panics
    /// If the response is an error, or has no text.
    #[track_caller]
    pub fn text(&self) -> String {
        let texts = self.contents().iter().filter_map(|contents| match &contents.body {
            ResourceBody::Text(text) => Some(text.as_str()),
            _ => None,
        });
        let texts: Vec<&str> = texts.collect();
        assert!(!texts.is_empty(), "expected text, got none in {}", self.message);
        texts.join("\n")
    }

    /// Returns the text parsed as JSON.
    ///
    /// # Panics
    /// If the response is an error, or the text is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = self.text();
        match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(error) => panic!("expected JSON, got {text:?}: {error}"),
        }
    }

    /// Returns the bytes of the first contents, whether sent as text or as a blob.
    ///
    /// # Panics
    /// If the response is an error, or has no contents.
    #[track_caller]
    pub fn bytes(&self) -> Bytes {
        match self.contents().first().map(|contents| &contents.body) {
            Some(ResourceBody::Text(text)) => Bytes::from(text.clone()),
            Some(ResourceBody::Blob(bytes)) => bytes.clone(),
            _ => panic!("expected contents, got none"),
        }
    }
}

impl PromptResponse {
    /// Returns the messages in order.
    ///
    /// # Panics
    /// If the response is an error.
    #[track_caller]
    pub fn messages(&self) -> &[PromptMessage] {
        &self.expect_result("messages").messages
    }

    /// Returns the text of all messages, joined by line feeds.
    ///
    /// # Panics
    /// If the response is an error, or has no text.
    #[track_caller]
    pub fn text(&self) -> String {
        let texts: Vec<&str> =
            self.messages().iter().filter_map(|message| message.content.as_text()).collect();
        assert!(!texts.is_empty(), "expected text, got none in {}", self.message);
        texts.join("\n")
    }
}

impl CompletionResponse {
    /// Returns the suggested values.
    ///
    /// # Panics
    /// If the response is an error.
    #[track_caller]
    pub fn values(&self) -> &[String] {
        &self.expect_result("values").values
    }
}

/// An HTTP response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceivedResponse {
    /// The status code.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The body as text; for an event stream, the data of its messages, joined by line feeds.
    pub body: String,
}

impl ReceivedResponse {
    /// Returns a header value, or `None` if it is missing or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the body parsed as JSON.
    ///
    /// # Panics
    /// If the body is not JSON.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("expected JSON, got {:?}: {error}", self.body),
        }
    }
}

/// A protocol error, or an HTTP response that is not a protocol message.
#[derive(Clone, Debug, PartialEq)]
pub struct TestError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
    pub(super) status: Option<u16>,
}

impl TestError {
    pub(super) fn from_remote(error: &RemoteError, status: Option<u16>) -> TestError {
        let data = error.data.as_ref().map(toolgate_wire::RawJson::to_value);
        TestError { code: error.code, message: error.message.clone(), data, status }
    }

    /// Creates the error for a response that is not a protocol message.
    pub(super) fn without_code(message: impl Into<String>, status: Option<u16>) -> TestError {
        TestError { code: 0, message: message.into(), data: None, status }
    }

    /// The JSON-RPC error code; 0 if the response was not a protocol message, such as a plain 401.
    #[must_use]
    pub fn code(&self) -> i64 {
        self.code
    }

    /// The error message, or the body of a response that is not a protocol message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The `data` member of the error.
    #[must_use]
    pub fn data(&self) -> Option<&Value> {
        self.data.as_ref()
    }

    /// The status of the HTTP response; `None` over stdio.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.status
    }
}

impl fmt::Display for TestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = if self.message.is_empty() { "(no message)" } else { &self.message };
        f.write_str(message)?;
        match (self.code, self.status) {
            (0, Some(status)) => write!(f, " (HTTP status {status})"),
            (code, Some(status)) => write!(f, " (code {code}, HTTP status {status})"),
            (0, None) => Ok(()),
            (code, None) => write!(f, " (code {code})"),
        }
    }
}

impl std::error::Error for TestError {}

/// A notification received from the server: progress, a log message, a change.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedNotification {
    pub(super) method: String,
    pub(super) params: Value,
}

impl ReceivedNotification {
    /// The method, for example `notifications/progress`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The params; null if there are none.
    #[must_use]
    pub fn params(&self) -> &Value {
        &self.params
    }

    /// Returns true if the notification has this method. The prefix `notifications/` may be left out.
    #[must_use]
    pub fn is_method(&self, method: &str) -> bool {
        self.method == method || self.method.strip_prefix("notifications/") == Some(method)
    }
}
