//! Elicitation: asks the user of the client for data.

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toolgate_wire::RawJson;
use toolgate_wire::model::{ClientResult, ElicitRequest, ElicitResult, ServerRequest};

use super::client_channel::ServerRequestErrorKind;
use super::context::mismatched_response;
use super::schema::{schema_of, tidy};
use super::{Context, ElicitOutcome, Form, ServerRequestError};

impl Context {
    /// Asks the user to fill in a form (elicitation).
    ///
    /// The key identifies the request among those of this call: it must be unique, also across the passes of a loop. See
    /// [`ServerRequestError`] for what a handler must not do before a request.
    ///
    /// ```
    /// # use toolgate::{Context, ElicitOutcome, Field, Form, ToolError};
    /// async fn deploy(cx: Context) -> Result<String, ToolError> {
    ///     let form = Form::new("Deploy to production?").field("reason", Field::text());
    ///     match cx.elicit("confirm", form).await? {
    ///         ElicitOutcome::Accept(answer) => Ok(format!("deployed: {}", answer["reason"])),
    ///         ElicitOutcome::Decline | ElicitOutcome::Cancel => Ok("nothing was changed".into()),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// If the client does not support forms, the reply does not arrive in time, or it will arrive with a repeated call.
    #[doc(alias("elicitation", "user input", "human in the loop"))]
    pub async fn elicit(
        &self,
        key: &str,
        form: Form,
    ) -> Result<ElicitOutcome<serde_json::Value>, ServerRequestError> {
        let result = self
            .request_client(key, ServerRequest::Elicitation(ElicitRequest::Form(form.into_model())))
            .await?;
        elicit_outcome(result, |content| {
            Ok(content.map_or_else(|| serde_json::json!({}), |raw| raw.to_value()))
        })
    }

    /// Asks the user to fill in a form that is described by a type: a struct of strings, numbers, booleans and unit-only enums.
    ///
    /// # Errors
    /// If the client does not support forms, the reply does not arrive in time, or it will arrive with a repeated call.
    pub async fn elicit_as<T>(&self, key: &str, message: &str) -> Result<ElicitOutcome<T>, ServerRequestError>
    where
        T: DeserializeOwned + JsonSchema,
    {
        let form = Form::with_schema(message, tidy(schema_of::<T>().to_value()));
        let result = self
            .request_client(key, ServerRequest::Elicitation(ElicitRequest::Form(form.into_model())))
            .await?;
        elicit_outcome(result, |content| {
            let content = content.unwrap_or_else(RawJson::empty_object);
            content.parse_as().map_err(|error| rejected(&error))
        })
    }

    /// Asks the user to open a URL, for data that must not pass through the client, such as credentials. Acceptance means that
    /// the user agreed to open the URL, not that the interaction there is finished.
    ///
    /// # Errors
    /// If the client does not support URLs, the URL is not `https`, the reply does not arrive in time, or it will arrive with a
    /// repeated call.
    pub async fn elicit_url(
        &self,
        key: &str,
        message: &str,
        url: &str,
    ) -> Result<ElicitOutcome<()>, ServerRequestError> {
        if !is_safe_url(url) {
            return Err(ServerRequestError(ServerRequestErrorKind::Rejected(
                "the link must be https".into(),
            )));
        }
        let request = ElicitRequest::Url {
            message: message.to_owned(),
            url: url.to_owned(),
            id: crate::seal::random_token(),
        };
        elicit_outcome(self.request_client(key, ServerRequest::Elicitation(request)).await?, |_| Ok(()))
    }
}

fn elicit_outcome<T>(
    result: ClientResult,
    accept: impl FnOnce(Option<RawJson>) -> Result<T, ServerRequestError>,
) -> Result<ElicitOutcome<T>, ServerRequestError> {
    match result {
        ClientResult::Elicitation(ElicitResult::Accept(content)) => {
            accept(content).map(ElicitOutcome::Accept)
        }
        ClientResult::Elicitation(ElicitResult::Decline) => Ok(ElicitOutcome::Decline),
        ClientResult::Elicitation(ElicitResult::Cancel) => Ok(ElicitOutcome::Cancel),
        _ => Err(mismatched_response()),
    }
}

fn rejected(error: &dyn fmt::Display) -> ServerRequestError {
    ServerRequestError(ServerRequestErrorKind::Rejected(error.to_string()))
}

/// Returns whether a URL may be shown to a user: `https`, or `http` to this machine for development.
fn is_safe_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else {
        return false;
    };
    let local = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match uri.scheme_str() {
        Some("https") => uri.host().is_some(),
        Some("http") => local,
        _ => false,
    }
}
