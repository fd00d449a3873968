//! Servers without guards: `default`, `myApp`, `api` and `nostats`.

use std::time::Duration;

use toolgate::prelude::*;
use toolgate::{Error, PromptSpec, ResourceSpec, Servers, ToolSpec, items};

pub(crate) fn register(servers: &Servers) -> Result<(), Error> {
    // Annotated functions, all at once.
    servers.default_server().set_description("The server that is meant when none is named").add(items![
        echo,
        search,
        boom,
        obj,
        slow,
        readme,
        settings,
        broken,
        code_review,
        greeting
    ])?;

    // The same by hand, one by one.
    servers
        .server("myApp")
        .set_description("My Application MCP Server")
        .set_version("1.0.0")
        .add_tool(
            ToolSpec::new("search", |args: Query| async move {
                format!("Found 3 documents about {}", args.query)
            })
            .describe("Search for documents"),
        )?
        .add_tool(
            ToolSpec::new("calculate", |args: Expression| async move { calculate(&args.expression) })
                .describe("Perform calculations")
                .describe_arg("expression", "A sum or a product, such as `2 + 3`"),
        )?;

    servers
        .server("api")
        .set_version("2.0.0")
        .add_tool(ToolSpec::new("status", || async { "up" }).describe("Whether the API is up"))?
        .add_resource(ResourceSpec::new("api://limits", || async { Json(json!({ "perMinute": 600 })) }))?
        .add_prompt(PromptSpec::new("explain", || async { "Explain the API." }))?;

    // Statistics are disabled from the start.
    servers.server_with("nostats", |server| server.statistics(false)).add(items![echo])?;
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct Query {
    /// What to look for
    query: String,
}

#[derive(Deserialize, JsonSchema)]
struct Expression {
    expression: String,
}

/// Says it again
#[tool(read_only)]
pub(crate) fn echo(
    /// What to say
    msg: String,
) -> String {
    msg
}

/// Search documents
#[tool(read_only)]
fn search(
    /// What to look for
    query: String,
    /// How many to show
    #[arg(default = 10)]
    limit: u32,
) -> String {
    format!("The first {limit} documents about {query}")
}

/// Always fails
#[tool]
fn boom() -> Result<String, HandlerError> {
    Err(HandlerError::new("boom"))
}

#[derive(Serialize, JsonSchema)]
struct Weather {
    city: &'static str,
    degrees: f64,
}

/// Returns an object
#[tool(read_only)]
fn obj() -> Weather {
    Weather { city: "Bern", degrees: 21.5 }
}

/// Takes its time
#[tool(read_only)]
async fn slow(
    /// How many milliseconds
    #[arg(range = 0..=10_000)]
    ms: u64,
) -> String {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    format!("waited {ms} ms")
}

/// Project documentation
#[resource("docs://readme", name = "README", mime = "text/markdown")]
fn readme() -> &'static str {
    "# Readme content...\n"
}

/// Application settings
#[resource("config://app", name = "App Configuration")]
fn settings() -> serde_json::Value {
    json!({ "environment": "test", "debug": false })
}

/// Cannot be read: what an error of the server looks like
#[resource("debug://broken")]
fn broken() -> Result<String, HandlerError> {
    Err(HandlerError::new("the disk is gone"))
}

/// Code review prompt template
#[prompt(name = "codeReview")]
fn code_review(
    /// Programming language
    language: String,
    /// Code to review
    code: String,
) -> Vec<PromptMessage> {
    let scene = format!("You are a code reviewer specializing in {language}.");
    let task = format!("Please review this code:\n\n```{language}\n{code}\n```");
    vec![PromptMessage::new(Role::System, Content::text(scene)), PromptMessage::user(task)]
}

/// A friendly greeting
#[prompt]
fn greeting(
    /// The person's name
    name: String,
) -> String {
    format!("Say hello to {name}")
}

/// Parses one sum or product of two numbers.
fn calculate(expression: &str) -> Result<f64, HandlerError> {
    let number = |text: &str| text.trim().parse::<f64>();
    if let Some((a, b)) = expression.split_once('+') {
        return Ok(number(a)? + number(b)?);
    }
    if let Some((a, b)) = expression.split_once('*') {
        return Ok(number(a)? * number(b)?);
    }
    Err(HandlerError::new("`expression` must be a sum or a product, such as `2 + 3`"))
}
