//! Turns the response of a backend into the result of a tool call.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use toolgate::model::{Content, ToolOutput};
use toolgate::{HandlerError, RawJson};

use super::HttpBackend;
use crate::source::http::response::{
    BACKEND_KEY, BackendResponse, BodyKind, PAGING_KEY, error_output, retry_after,
};
use crate::source::http::{ErrorExposure, Expect, OnExceed, Paging};

impl HttpBackend {
    /// An answer as the result of a tool.
    pub(super) async fn to_output(
        &self,
        answer: BackendResponse,
        headers: &HeaderMap,
        left: Duration,
    ) -> Result<ToolOutput, HandlerError> {
        if !answer.status.is_success() {
            return Ok(self.failure_output(&answer, headers));
        }
        let paging = if self.spec.paging == Paging::Off { None } else { answer.paging() };
        let paging = paging.and_then(|paging| self.connection.mask_paging(paging, headers));
        let limit = self.response_limit();
        if answer.is_truncated && (self.spec.on_exceed == OnExceed::Error || self.template.pick.is_some()) {
            return Err(HandlerError::new(format!("the answer is larger than {limit} bytes; ask for less")));
        }
        if answer.body.is_empty() {
            return Ok(ToolOutput::text(status_text(answer.status)));
        }
        let kind = match (self.spec.expect, answer.kind()) {
            (Expect::Text, _) => BodyKind::Text,
            (_, BodyKind::Json) => BodyKind::Json,
            (Expect::Json, _) => return Err(HandlerError::new("the backend did not answer with JSON")),
            (Expect::Auto, _) if self.template.pick.is_some() => {
                return Err(HandlerError::new("the backend did not answer with JSON"));
            }
            (Expect::Auto, BodyKind::Html) => {
                return Err(HandlerError::new("the backend answered with a web page instead of data"));
            }
            (Expect::Auto, kind) => kind,
        };
        if !matches!(kind, BodyKind::Json | BodyKind::Text) {
            return Ok(answer.into_media());
        }
        let is_cut = answer.is_truncated;
        let text = match String::from_utf8(answer.body) {
            Ok(text) => text,
            Err(_) if kind == BodyKind::Json => {
                return Err(HandlerError::new("the answer is not valid JSON"));
            }
            Err(bytes) => String::from_utf8_lossy(bytes.as_bytes()).into_owned(),
        };
        let text = self.connection.mask_secrets(text, headers);
        if is_cut {
            return Ok(ToolOutput::text(format!("{text}\n… cut after {limit} bytes")));
        }
        if kind == BodyKind::Text {
            let promised = self.spec.output_schema.as_ref().map(|_| RawJson::from(json!({ "result": text })));
            return Ok(with_paging(
                ToolOutput { structured_content: promised, ..ToolOutput::text(text) },
                paging,
            ));
        }
        self.structured_output(text, paging, left).await
    }

    async fn structured_output(
        &self,
        text: String,
        paging: Option<Value>,
        left: Duration,
    ) -> Result<ToolOutput, HandlerError> {
        let broken = |_| HandlerError::new("the answer is not valid JSON");
        let value = match &self.template.pick {
            // jq nests without end, we do not.
            Some(pick) => {
                serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(broken)?;
                pick.run(text, self.response_limit(), left).await?
            }
            None => serde_json::from_str(&text).map_err(broken)?,
        };
        match self.spec.paging {
            Paging::Result => {
                let value = json!({ "result": value, "paging": paging.unwrap_or_else(|| json!({})) });
                Ok(self.json_output(value))
            }
            Paging::Meta | Paging::Off => Ok(with_paging(self.json_output(value), paging)),
        }
    }

    /// Where an object was promised, anything else is wrapped in one: backends do not always keep their word.
    fn json_output(&self, value: Value) -> ToolOutput {
        let value = match (&self.template.pick, value) {
            // A text that was picked is what is to be read, not JSON.
            (Some(_), Value::String(text)) if self.spec.output_schema.is_none() => {
                return ToolOutput::text(text);
            }
            (_, value) => value,
        };
        let text = value.to_string();
        let structured = match value {
            value if self.spec.output_schema.is_some() && !value.is_object() => json!({ "result": value }),
            value => value,
        };
        ToolOutput { structured_content: Some(RawJson::from(structured)), ..ToolOutput::text(text) }
    }

    fn failure_output(&self, answer: &BackendResponse, headers: &HeaderMap) -> ToolOutput {
        let status = answer.status;
        if status.is_redirection() {
            return error_output(
                status,
                Some("the backend sends elsewhere, and redirects are not followed"),
                None,
            );
        }
        let (message, code) = match self.spec.errors {
            ErrorExposure::Status => (None, None),
            ErrorExposure::Auto if status.is_server_error() => (None, None),
            // Whether there is such a user is not told to who does not know the password.
            _ if status == StatusCode::UNAUTHORIZED && answer.reveals_wrong_credential() => {
                (Some("the backend does not accept these credentials".into()), None)
            }
            ErrorExposure::Auto | ErrorExposure::Message => answer.error_details(),
        };
        if status.is_server_error() {
            let said = answer.error_details().0.map(|said| self.connection.mask_secrets(said, headers));
            self.connection.log_failure(status.as_u16(), said.as_deref().unwrap_or_default());
        }
        let masked = |text: Option<String>| text.map(|text| self.connection.mask_secrets(text, headers));
        let is_unavailable = !self.spec.unavailable_codes.is_empty()
            && answer.error_details().1.is_some_and(|code| self.spec.unavailable_codes.contains(&code));
        let mut output = error_output(status, masked(message).as_deref(), masked(code).as_deref());
        if let Some(wait) = retry_after(&answer.headers)
            && let Some(first) = output.content.first().and_then(|content| content.as_text())
        {
            let text = format!("{first}; try again in {} s", wait.as_secs());
            output.content = vec![Content::text(text)];
        }
        output.is_unavailable = is_unavailable;
        output
    }
}

/// A failure without an answer: in words for people, and in one for programs.
pub(super) fn transport_error_output(said: &str, word: &str) -> ToolOutput {
    let meta = json!({ BACKEND_KEY: { "failure": word } });
    ToolOutput { meta: Some(RawJson::from(meta)), ..ToolOutput::error(said) }
}

fn status_text(status: StatusCode) -> String {
    format!(
        "{}{}",
        status.as_u16(),
        status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default()
    )
}

fn with_paging(mut output: ToolOutput, paging: Option<Value>) -> ToolOutput {
    if let Some(paging) = paging {
        output.meta = Some(RawJson::from(json!({ PAGING_KEY: paging })));
    }
    output
}
