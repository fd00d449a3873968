//! What a test hears: answers, refusals and notices.
//!
//! Whoever asks an answer for what it does not have is told what it has instead, by a panic that points at
//! the line of the test.

use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolgate_wire::RemoteError;
use toolgate_wire::model::{
    Completion, Content, PromptMessage, PromptOutput, ResourceBody, ResourceContents, ToolOutput,
};

/// What a call of a tool gave.
pub type ToolResponse = TestResponse<ToolOutput>;
/// What reading a resource gave.
pub type ResourceResponse = TestResponse<Vec<ResourceContents>>;
/// What a prompt gave.
pub type PromptResponse = TestResponse<PromptOutput>;
/// What a completion gave.
pub type CompletionResponse = TestResponse<Completion>;

/// The answer to one request: what was asked for, or a [`Refusal`].
///
/// A refusal is an error of the protocol (no such tool, not allowed), not the failure of a tool, which is a
/// result that says so ([`ToolResponse::is_error`]). Asking a refusal for a result panics and says what it is.
#[derive(Clone)]
pub struct TestResponse<T> {
    pub(super) outcome: Result<T, TestError>,
    pub(super) message: Value,
    pub(super) http_response: Option<ReceivedResponse>,
}

impl<T> TestResponse<T> {
    /// What was given, or why not; never panics.
    ///
    /// # Errors
    /// If the request was refused.
    pub fn result(&self) -> Result<&T, &TestError> {
        self.outcome.as_ref()
    }

    /// The refusal.
    ///
    /// # Panics
    /// If there was a result.
    #[track_caller]
    pub fn error(&self) -> &TestError {
        match &self.outcome {
            Err(refusal) => refusal,
            Ok(_) => panic!("expected a refusal, got a result: {}", self.message),
        }
    }

    /// The whole message, as JSON; null if there was none.
    pub fn message(&self) -> &Value {
        &self.message
    }

    /// What HTTP said: status, headers and body. None where there is no HTTP.
    pub fn http(&self) -> Option<&ReceivedResponse> {
        self.http_response.as_ref()
    }

    #[track_caller]
    fn expect_result(&self, what: &str) -> &T {
        match &self.outcome {
            Ok(given) => given,
            Err(refusal) => panic!("expected {what}, but the request was refused: {refusal}"),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for TestResponse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcome.fmt(f)
    }
}

impl ToolResponse {
    /// The text for the model: all blocks of text, one a line.
    ///
    /// # Panics
    /// If the call was refused, or gave no text.
    #[track_caller]
    pub fn text(&self) -> String {
        let texts: Vec<&str> =
            self.expect_result("text").content.iter().filter_map(Content::as_text).collect();
        assert!(!texts.is_empty(), "expected text, got none in {}", self.message);
        texts.join("\n")
    }

    /// The structured output. Where the revision has none, the JSON that the tool's text is.
    ///
    /// # Panics
    /// If the call was refused, or gave no JSON.
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

    /// The structured output as a type of yours; see [`ToolResponse::json`].
    ///
    /// # Panics
    /// If the call was refused, or gave something else.
    #[track_caller]
    pub fn structured<T: DeserializeOwned>(&self) -> T {
        let value = self.json();
        match T::deserialize(&value) {
            Ok(typed) => typed,
            Err(error) => panic!("expected {}, got {value}: {error}", std::any::type_name::<T>()),
        }
    }

    /// All blocks of content.
    ///
    /// # Panics
    /// If the call was refused.
    #[track_caller]
    pub fn content(&self) -> &[Content] {
        &self.expect_result("content").content
    }

    /// Whether the tool says that it failed.
    ///
    /// # Panics
    /// If the call was refused: then the tool said nothing.
    #[track_caller]
    pub fn is_error(&self) -> bool {
        self.expect_result("a result of the tool").is_error
    }
}

impl ResourceResponse {
    /// What was read: one resource or several.
    ///
    /// # Panics
    /// If the request was refused.
    #[track_caller]
    pub fn contents(&self) -> &[ResourceContents] {
        self.expect_result("contents")
    }

    /// The text of all of it, one resource a line.
    ///
    /// # Panics
    /// If the request was refused, or there is no text.
    #[track_caller]
    pub fn text(&self) -> String {
        let texts = self.contents().iter().filter_map(|contents| match &contents.body {
            ResourceBody::Text(text) => Some(text.as_str()),
            ResourceBody::Blob(_) => None,
        });
        let texts: Vec<&str> = texts.collect();
        assert!(!texts.is_empty(), "expected text, got none in {}", self.message);
        texts.join("\n")
    }

    /// The text, read as JSON.
    ///
    /// # Panics
    /// If the request was refused, or there is no JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = self.text();
        match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(error) => panic!("expected JSON, got {text:?}: {error}"),
        }
    }

    /// The bytes of the first, whether it came as text or as bytes.
    ///
    /// # Panics
    /// If the request was refused, or nothing was read.
    #[track_caller]
    pub fn bytes(&self) -> Bytes {
        match self.contents().first().map(|contents| &contents.body) {
            Some(ResourceBody::Text(text)) => Bytes::from(text.clone()),
            Some(ResourceBody::Blob(bytes)) => bytes.clone(),
            None => panic!("expected contents, got none"),
        }
    }
}

impl PromptResponse {
    /// What is said, in order.
    ///
    /// # Panics
    /// If the request was refused.
    #[track_caller]
    pub fn messages(&self) -> &[PromptMessage] {
        &self.expect_result("messages").messages
    }

    /// The text of all messages, one a line.
    ///
    /// # Panics
    /// If the request was refused, or there is no text.
    #[track_caller]
    pub fn text(&self) -> String {
        let texts: Vec<&str> =
            self.messages().iter().filter_map(|message| message.content.as_text()).collect();
        assert!(!texts.is_empty(), "expected text, got none in {}", self.message);
        texts.join("\n")
    }
}

impl CompletionResponse {
    /// How the value could go on.
    ///
    /// # Panics
    /// If the request was refused.
    #[track_caller]
    pub fn values(&self) -> &[String] {
        &self.expect_result("values").values
    }
}

/// What HTTP said.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceivedResponse {
    /// The status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The body as text; of a stream, the data of its messages, one a line.
    pub body: String,
}

impl ReceivedResponse {
    /// A header, if it is there and text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("expected JSON, got {:?}: {error}", self.body),
        }
    }
}

/// An answer that is an error of the protocol, or none at all.
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

    /// An answer that is no message.
    pub(super) fn without_code(message: impl Into<String>, status: Option<u16>) -> TestError {
        TestError { code: 0, message: message.into(), data: None, status }
    }

    /// The number of the error; 0 if the answer was no message of the protocol, such as a plain 401.
    #[must_use]
    pub fn code(&self) -> i64 {
        self.code
    }

    /// Its words.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What else it says.
    #[must_use]
    pub fn data(&self) -> Option<&Value> {
        self.data.as_ref()
    }

    /// The status of the HTTP answer, where there is HTTP.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.status
    }
}

impl fmt::Display for TestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = if self.message.is_empty() { "(no words)" } else { &self.message };
        f.write_str(words)?;
        match (self.code, self.status) {
            (0, Some(status)) => write!(f, " (HTTP status {status})"),
            (code, Some(status)) => write!(f, " (code {code}, HTTP status {status})"),
            (0, None) => Ok(()),
            (code, None) => write!(f, " (code {code})"),
        }
    }
}

impl std::error::Error for TestError {}

/// Something the server said without being asked: progress, a line for the log, a change.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedNotification {
    pub(super) method: String,
    pub(super) params: Value,
}

impl ReceivedNotification {
    /// Its method, for example `notifications/progress`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Its parameters; null if there are none.
    #[must_use]
    pub fn params(&self) -> &Value {
        &self.params
    }

    /// Whether this is its method, with or without `notifications/` before it.
    #[must_use]
    pub fn is_method(&self, method: &str) -> bool {
        self.method == method || self.method.strip_prefix("notifications/") == Some(method)
    }
}
