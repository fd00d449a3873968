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
    /// Converts the response to the result of the tool call.
    pub(super) async fn to_output(
        &self,
        response: BackendResponse,
        headers: &HeaderMap,
        time_left: Duration,
    ) -> Result<ToolOutput, HandlerError> {
        if !response.status.is_success() {
            return Ok(self.failure_output(&response, headers));
        }
        let paging = if self.spec.paging == Paging::Off { None } else { response.paging() };
        let paging = paging.and_then(|paging| self.client.mask_paging(paging, headers));
        let limit = self.response_limit();
        if response.is_truncated && (self.spec.on_exceed == OnExceed::Error || self.template.pick.is_some()) {
            return Err(HandlerError::new(format!(
                "the response is larger than {limit} bytes; request less data"
            )));
        }
        if response.body.is_empty() {
            return Ok(ToolOutput::text(status_text(response.status)));
        }
        let kind = match (self.spec.expect, response.kind()) {
            (Expect::Text, _) => BodyKind::Text,
            (_, BodyKind::Json) => BodyKind::Json,
            (Expect::Json, _) => return Err(HandlerError::new("the backend did not return JSON")),
            (Expect::Auto, _) if self.template.pick.is_some() => {
                return Err(HandlerError::new("the backend did not return JSON"));
            }
            (Expect::Auto, BodyKind::Html) => {
                return Err(HandlerError::new("the backend returned a web page instead of data"));
            }
            (Expect::Auto, kind) => kind,
        };
        if !matches!(kind, BodyKind::Json | BodyKind::Text) {
            return Ok(response.into_media());
        }
        let is_truncated = response.is_truncated;
        let text = match String::from_utf8(response.body) {
            Ok(text) => text,
            Err(_) if kind == BodyKind::Json => {
                return Err(HandlerError::new("the response is not valid JSON"));
            }
            Err(bytes) => String::from_utf8_lossy(bytes.as_bytes()).into_owned(),
        };
        let text = self.client.mask_secrets(text, headers);
        if is_truncated {
            return Ok(ToolOutput::text(format!("{text}\n… truncated after {limit} bytes")));
        }
        if kind == BodyKind::Text {
            let structured_content =
                self.spec.output_schema.as_ref().map(|_| RawJson::from(json!({ "result": text })));
            let mut output = ToolOutput::text(text);
            output.structured_content = structured_content;
            return Ok(with_paging(output, paging));
        }
        self.structured_output(text, paging, time_left).await
    }

    async fn structured_output(
        &self,
        text: String,
        paging: Option<Value>,
        time_left: Duration,
    ) -> Result<ToolOutput, HandlerError> {
        let invalid_json = |_| HandlerError::new("the response is not valid JSON");
        let value = match &self.template.pick {
            // Checked by serde_json first, since jq accepts JSON of any depth.
            Some(pick) => {
                serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(invalid_json)?;
                pick.run(text, self.response_limit(), time_left).await?
            }
            None => serde_json::from_str(&text).map_err(invalid_json)?,
        };
        match self.spec.paging {
            Paging::Result => {
                let value = json!({ "result": value, "paging": paging.unwrap_or_else(|| json!({})) });
                Ok(self.json_output(value))
            }
            Paging::Meta | Paging::Off => Ok(with_paging(self.json_output(value), paging)),
        }
    }

    /// Wraps any other value in an object if the output schema promises one: backends do not always honor their
    /// schema.
    fn json_output(&self, value: Value) -> ToolOutput {
        let value = match (&self.template.pick, value) {
            // A string selected by `pick` is returned as text, not as JSON.
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
        ToolOutput::text(text).with_structured_content(RawJson::from(structured))
    }

    fn failure_output(&self, response: &BackendResponse, headers: &HeaderMap) -> ToolOutput {
        let status = response.status;
        if status.is_redirection() {
            return error_output(status, Some("the backend redirects, and redirects are not followed"), None);
        }
        let (message, code) = match self.spec.errors {
            ErrorExposure::Status => (None, None),
            ErrorExposure::Auto if status.is_server_error() => (None, None),
            // Do not reveal whether the user exists.
            _ if status == StatusCode::UNAUTHORIZED && response.reveals_wrong_credential() => {
                (Some("the backend does not accept these credentials".into()), None)
            }
            ErrorExposure::Auto | ErrorExposure::Message => response.error_details(),
        };
        if status.is_server_error() {
            let message =
                response.error_details().0.map(|message| self.client.mask_secrets(message, headers));
            self.client.log_failure(status.as_u16(), message.as_deref().unwrap_or_default());
        }
        let mask = |text: Option<String>| text.map(|text| self.client.mask_secrets(text, headers));
        let is_unavailable = !self.spec.unavailable_codes.is_empty()
            && response.error_details().1.is_some_and(|code| self.spec.unavailable_codes.contains(&code));
        let mut output = error_output(status, mask(message).as_deref(), mask(code).as_deref());
        if let Some(delay) = retry_after(&response.headers)
            && let Some(first) = output.content.first().and_then(|content| content.as_text())
        {
            let text = format!("{first}; try again in {} s", delay.as_secs());
            output.content = vec![Content::text(text)];
        }
        output.is_unavailable = is_unavailable;
        output
    }
}

/// An error without a response: a message, and a code for programs in `_meta`.
pub(super) fn transport_error_output(message: &str, code: &str) -> ToolOutput {
    let meta = json!({ BACKEND_KEY: { "failure": code } });
    ToolOutput::error(message).with_meta(RawJson::from(meta))
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
