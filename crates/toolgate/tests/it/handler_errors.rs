//! Errors of handlers as clients see them: messages for the model, protocol errors, and failed requests to the client.

use std::error::Error as StdError;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::model::{CompletionReference, ToolOutput};
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{
    Context, Extract, Field, Form, HandlerError, Principal, ProtocolError, ProtocolErrorKind, RawJson,
    Server, ServerRequestError, ToolError,
};

/// The error that every handler of this file returns, in one way or another.
fn denied() -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::Other(4031), "ask the owner")
        .with_data(RawJson::from(json!({ "owner": "ada" })))
}

fn check_denied() -> Result<(), ProtocolError> {
    Err(denied())
}

async fn direct() -> Result<String, ProtocolError> {
    Err(denied())
}

async fn converted() -> Result<String, HandlerError> {
    check_denied()?;
    Ok(String::new())
}

async fn boxed() -> Result<String, Box<dyn StdError + Send + Sync>> {
    check_denied()?;
    Ok(String::new())
}

/// An extractor that only admits authenticated callers.
struct Admin;

impl Extract for Admin {
    fn from_call(cx: &Context) -> Result<Admin, HandlerError> {
        match cx.principal().id() {
            Some(_) => Ok(Admin),
            None => Err(denied())?,
        }
    }
}

async fn extracted(_: Admin) -> &'static str {
    "admitted"
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code, reason = "only completed")]
struct City {
    name: String,
}

mod annotated {
    use super::{ProtocolError, check_denied, denied};
    use toolgate::prelude::*;

    #[derive(JsonSchema, Serialize)]
    pub(crate) struct Report {
        pages: u32,
    }

    #[tool]
    pub(crate) async fn macro_direct() -> Result<Report, ProtocolError> {
        Err(denied())
    }

    #[tool]
    pub(crate) async fn macro_converted() -> Result<Report, ToolError> {
        check_denied()?;
        Ok(Report { pages: 1 })
    }

    #[resource("err://macro")]
    pub(crate) async fn macro_resource() -> Result<Option<Report>, ProtocolError> {
        Err(denied())
    }

    #[template("err://macro/{id}")]
    pub(crate) async fn macro_template(id: u32) -> Result<Report, HandlerError> {
        check_denied()?;
        Ok(Report { pages: id })
    }

    #[prompt]
    pub(crate) async fn macro_prompt(style: String) -> Result<String, ProtocolError> {
        check_denied()?;
        Ok(style)
    }

    #[complete(macro_prompt.style)]
    pub(crate) async fn macro_styles(prefix: String) -> Result<Vec<String>, ProtocolError> {
        check_denied()?;
        Ok(vec![prefix])
    }
}

fn server() -> Server {
    Server::new("errors", "1")
        .add(toolgate::items![
            annotated::macro_direct,
            annotated::macro_converted,
            annotated::macro_resource,
            annotated::macro_template,
            annotated::macro_prompt,
            annotated::macro_styles
        ])
        .tool("direct", direct)
        .tool("converted", converted)
        .tool("boxed", boxed)
        .tool("extracted", extracted)
        .resource("err://direct", direct)
        .resource("err://converted", converted)
        .resource("err://extracted", extracted)
        .template("err://item/{name}", |_: City| converted())
        .prompt("direct", |_: City| direct())
        .complete("name", |_, _| async { Err::<Vec<String>, _>(denied()) })
        .prompt("converted", |_: City| converted())
        .complete("name", |_, _| async {
            check_denied()?;
            Ok::<_, HandlerError>(["Rome"])
        })
        .prompt("failing", |_: City| async { "x" })
        .complete("name", |_, _| async { Err::<Vec<String>, _>("no database") })
        .prompt("extracted", extracted)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_protocol_error_is_the_reply_of_every_kind_of_handler_in_every_version() {
    let server = server();
    for version in TestVersion::all() {
        let client = TestClient::new(&server, version);
        let mut replies = Vec::new();
        for tool in ["direct", "converted", "boxed", "extracted", "macro_direct", "macro_converted"] {
            replies.push((tool, client.call(tool, json!({})).await.message().clone()));
        }
        for uri in [
            "err://direct",
            "err://converted",
            "err://extracted",
            "err://item/rome",
            "err://macro",
            "err://macro/1",
        ] {
            replies.push((uri, client.read(uri).await.message().clone()));
        }
        for prompt in ["direct", "converted", "extracted", "macro_prompt"] {
            let arguments = json!({ "name": "x", "style": "x" });
            replies.push((prompt, client.prompt(prompt, arguments).await.message().clone()));
        }
        for (prompt, argument) in [("direct", "name"), ("converted", "name"), ("macro_prompt", "style")] {
            let reference = CompletionReference::Prompt(prompt.into());
            replies.push((prompt, client.complete(reference, argument, "r").await.message().clone()));
        }
        for (name, reply) in replies {
            let expected = json!({ "code": 4031, "message": "ask the owner", "data": { "owner": "ada" } });
            assert_eq!(reply["error"], expected, "{name} in {version:?}: {reply}");
        }
        // Other errors of completers are still no suggestions.
        let failing = client.complete(CompletionReference::Prompt("failing".into()), "name", "r").await;
        assert_eq!(failing.values(), [""; 0]);
    }
}

#[tokio::test]
async fn an_extractor_that_does_not_fail_lets_the_handler_run() {
    let client = TestClient::http(server()).with_principal(Principal::new("ada"));
    assert_eq!(client.call("extracted", json!({})).await.text(), "admitted");
}

/// An error of the application that hides what it was caused by.
#[derive(Debug)]
enum AppError {
    Ask(ServerRequestError),
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not approved")
    }
}

impl StdError for AppError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let AppError::Ask(error) = self;
        Some(error)
    }
}

async fn approval(cx: &Context) -> Result<String, AppError> {
    let form = Form::new("Approve?").field("yes", Field::flag());
    let answer = cx.elicit("approve", form).await.map_err(AppError::Ask)?;
    Ok(format!("{}", answer.accepted().is_some()))
}

#[tokio::test]
async fn a_request_to_the_client_survives_an_error_type_of_the_application() {
    let server = Server::new("app", "1")
        .tool("own", |cx: Context| async move { approval(&cx).await })
        .tool("text", |cx: Context| async move { approval(&cx).await.map_err(|error| error.to_string()) })
        .tool("converted", |cx: Context| async move { Ok::<_, ToolError>(approval(&cx).await?) })
        .build()
        .unwrap();
    for version in TestVersion::all().filter(|version| version.has_form_elicitation()) {
        let client = TestClient::new(&server, version).on_elicit(|_| json!({ "yes": true }));
        let unable = TestClient::new(&server, version);
        for tool in ["own", "text", "converted"] {
            assert_eq!(client.call(tool, json!({})).await.text(), "true", "{tool} in {version:?}");
            let reply = unable.call(tool, json!({})).await;
            // Only an error that leads to its cause can be recognized: a text is a message for the model.
            if version == TestVersion::newest() && tool == "converted" {
                assert_eq!(reply.error().code(), -32021);
                let required = json!({ "requiredCapabilities": { "elicitation": { "form": {} } } });
                assert_eq!(reply.error().data(), Some(&required));
            } else {
                assert_eq!(reply.text(), "not approved", "{tool} in {version:?}");
                assert!(reply.is_error());
            }
        }
    }
}

/// The message of a failed request to the client, in the error of a handler that went on without it.
#[tokio::test]
async fn a_message_that_resembles_ours_is_not_a_missing_capability() {
    let server = Server::new("app", "1").tool("fallback", |cx: Context| async move {
        match cx.elicit("approve", Form::new("Approve?").field("yes", Field::flag())).await {
            Err(error) if error.is_unsupported() => {
                Err(format!("guessed, because {error}; the guess was wrong"))
            }
            other => other.map(|_| "asked").map_err(|error| error.to_string()),
        }
    });
    let reply = TestClient::new(server, TestVersion::newest()).call("fallback", json!({})).await;
    assert_eq!(
        reply.text(),
        "guessed, because this client does not support form elicitation; the guess was wrong"
    );
}

#[tokio::test]
async fn an_error_may_have_a_whole_output() {
    let server = Server::new("app", "1").tool("quota", || async {
        let output = ToolOutput::text("no quota").with_structured_content(json!({ "left": 0 }));
        Err::<Value, _>(ToolError::from_output(output))
    });
    let reply = TestClient::new(server, TestVersion::newest()).call("quota", json!({})).await;
    assert!(reply.is_error());
    assert_eq!(
        (reply.text(), reply.message()["result"]["structuredContent"].clone()),
        ("no quota".into(), json!({ "left": 0 }))
    );
}

/// A failure with a cause.
#[derive(Debug)]
struct Unreadable(std::num::ParseIntError);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index is unreadable")
    }
}

impl StdError for Unreadable {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn the_client_sees_the_message_of_an_error_and_not_its_cause() {
    let index = || "x".parse::<u32>().map_err(Unreadable);
    let server = Server::new("app", "1")
        .tool("index", move || async move { Ok::<_, ToolError>(index()?) })
        .resource("app://index", move || async move { Ok::<_, ToolError>(index()?.to_string()) });
    let client = TestClient::new(server, TestVersion::newest());
    assert_eq!(client.call("index", json!({})).await.text(), "the index is unreadable");
    assert_eq!(client.read("app://index").await.error().message(), "the index is unreadable");
    assert_eq!(
        ToolError::from(index().unwrap_err()).source().unwrap().to_string(),
        "invalid digit found in string"
    );
}
