//! All features of the protocol in one server: the fixture of the official conformance suite and of the tests with real
//! clients. Read it to see how a feature looks; start from `hello_http` to write your own.
//!
//! `everything --listen 127.0.0.1:3000` serves HTTP, `everything --stdio` standard input and output. With an additional
//! `--dialect boxlang`, HTTP clients that send no protocol version get a dialect.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::compat::Dialect;
use toolgate::model::TaskSupport;
use toolgate::model::{CacheScope, Content, LogLevel, PromptMessage, ResourceContents};
use toolgate::{
    App, Builder, ClientCapability, Context, ElicitOutcome, Field, Form, HandlerError, Json, Mount,
    ProtocolError, ProtocolErrorKind, Server, Servers,
};

/// A red pixel.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00,
    0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x08, 0xd7, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x00, 0x03,
    0x00, 0x01, 0x00, 0x18, 0xdd, 0x8d, 0xb0, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42,
    0x60, 0x82,
];
/// A silent WAV file.
const WAV: &[u8] =
    b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x02\0\0\0\0\0";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = everything().build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => server.serve_stdio().await?,
        ["--listen", address] => {
            let listener = tokio::net::TcpListener::bind(address).await?;
            eprintln!("listening on http://{}/mcp", listener.local_addr()?);
            server.serve(listener).await?;
        }
        ["--listen", address, "--dialect", name] => {
            let dialect = Dialect::from_name(name).ok_or_else(|| format!("there is no dialect `{name}`"))?;
            let listener = tokio::net::TcpListener::bind(address).await?;
            eprintln!("listening on http://{}/mcp", listener.local_addr()?);
            let servers = Servers::new();
            servers.add(&server)?;
            App::new(&servers)
                .mount("/mcp", Mount::fixed("everything").dialect(dialect))
                .serve(listener)
                .await?;
        }
        _ => return Err("usage: everything --listen ADDR [--dialect NAME] | --stdio".into()),
    }
    Ok(())
}

fn everything() -> Builder {
    let server = Server::new("everything", env!("CARGO_PKG_VERSION"))
        .server_title("Everything")
        .instructions("A server that shows every feature of the protocol.")
        .cache_lists(Duration::from_secs(60), CacheScope::Public);
    task_tools(client_request_tools(streaming_tools(resources(prompts(content_tools(server))))))
}

fn content_tools(server: Builder) -> Builder {
    server
        .tool("test_simple_text", || async { "This is a simple text response for testing." })
        .describe("Answers with a text")
        .read_only()
        .tool("echo", |args: Echo| async move { args.message })
        .describe("Says it again")
        .read_only()
        .tool("add", |args: Add| async move { Json(Sum { sum: args.a + args.b }) })
        .describe("Adds two numbers, with structured output")
        .read_only()
        .tool("test_image_content", || async { Content::image(PNG, "image/png") })
        .describe("Answers with a picture")
        .tool("test_audio_content", || async { Content::audio(WAV, "audio/wav") })
        .describe("Answers with a sound")
        .tool("test_embedded_resource", || async {
            let text =
                ResourceContents::text("test://embedded-resource", "This is an embedded resource content.");
            Content::embedded(text.with_mime("text/plain"))
        })
        .describe("Answers with a resource")
        .tool("test_multiple_content_types", || async {
            let data =
                ResourceContents::text("test://mixed-content-resource", r#"{"test":"data","value":123}"#);
            vec![
                Content::text("Multiple content types test:"),
                Content::image(PNG, "image/png"),
                Content::embedded(data.with_mime("application/json")),
            ]
        })
        .describe("Answers with a text, a picture and a resource")
        .tool("test_error_handling", || async {
            Err::<String, _>("This tool intentionally returns an error for testing")
        })
        .describe("Always fails")
        .tool("test_x_mcp_header", |args: Region| async move {
            format!("region {}", args.region.unwrap_or_default())
        })
        .describe("Mirrors an argument in a header")
        .tool("json_schema_2020_12_tool", |args: Value| async move { args })
        .describe("Has an input schema that uses JSON Schema 2020-12")
        .input_schema(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": { "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
            } },
            "properties": {
                "name": { "type": "string" },
                "address": { "$ref": "#/$defs/address" },
                "contactMethod": { "type": "string", "enum": ["phone", "email"] },
                "phone": { "type": "string" },
                "email": { "type": "string" }
            },
            "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
            "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
            "then": { "required": ["phone"] },
            "else": { "required": ["email"] },
            "additionalProperties": false
        }))
}

/// Tools that send notifications while they run.
fn streaming_tools(server: Builder) -> Builder {
    server
        .tool("test_tool_with_logging", |cx: Context| async move {
            for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                cx.info(line).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            "Tool with logging executed successfully"
        })
        .describe("Logs three lines")
        .tool("test_logging_tool", |cx: Context| async move {
            cx.log(LogLevel::Warning, json!({ "event": "called" })).await;
            "logged, if you wanted to hear it"
        })
        .describe("Logs one line")
        .tool("test_tool_with_progress", |cx: Context| async move {
            for done in [0.0, 50.0, 100.0] {
                cx.progress_of(done, 100.0, "Completed step").await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            "Tool with progress executed successfully"
        })
        .describe("Tells how far it has come, three times")
        .tool("test_reconnection", |cx: Context| async move {
            cx.release_connection(Duration::from_millis(500));
            tokio::time::sleep(Duration::from_millis(200)).await;
            "Reconnection test completed: the result came on the second stream"
        })
        .describe("Frees its connection and has its result fetched later")
        .tool("slow", |args: Slow, cx: Context| async move {
            let steps = u32::from(args.seconds.unwrap_or(3)) * 10;
            for step in 1..=steps {
                tokio::time::sleep(Duration::from_millis(100)).await;
                cx.progress_of(f64::from(step), f64::from(steps), None).await;
            }
            format!("slept {} s", steps / 10)
        })
        .describe("Takes its time, and tells how far it has come")
        .tool("test_trigger_tool_change", |cx: Context| async move {
            cx.notify().tools_changed();
            "told listeners that the tools have changed"
        })
        .describe("Announces a change of the tools")
        .tool("test_trigger_prompt_change", |cx: Context| async move {
            cx.notify().prompts_changed();
            "told listeners that the prompts have changed"
        })
        .describe("Announces a change of the prompts")
        .tool("test_trigger_resource_update", |cx: Context| async move {
            cx.notify().resource_updated("test://watched-resource");
            "told subscribers that the watched resource has changed"
        })
        .describe("Announces a change of test://watched-resource")
}

/// Tools that send requests to the client.
fn client_request_tools(server: Builder) -> Builder {
    let server = server
        .tool("test_sampling", |args: Prompt, cx: Context| async move {
            let result = cx.sample(args.prompt).key("answer").max_tokens(100).await?;
            Ok::<_, HandlerError>(format!("LLM response: {}", result.text()))
        })
        .describe("Asks the client's model")
        .tool("test_elicitation", |args: Message, cx: Context| async move {
            let form = Form::new(args.message).field("username", Field::text()).field("email", Field::text());
            elicited_text(cx.elicit("user", form).await?)
        })
        .describe("Asks the user for a name and an address")
        .tool("test_elicitation_sep1034_defaults", |cx: Context| async move {
            let form = Form::new("Please review and update the form fields with defaults")
                .optional("name", Field::text().default("John Doe"))
                .optional("age", Field::integer().default(30))
                .optional("score", Field::number().default(95.5))
                .optional("status", Field::choice(["active", "inactive", "pending"]).default("active"))
                .optional("verified", Field::flag().default(true));
            elicited_text(cx.elicit("review", form).await?)
        })
        .describe("Asks with defaults of every type")
        .tool("test_elicitation_sep1330_enums", |cx: Context| async move {
            let titled =
                [("value1", "First Option"), ("value2", "Second Option"), ("value3", "Third Option")];
            let form = Form::new("Please select options from the enum fields")
                .optional("untitledSingle", Field::choice(["option1", "option2", "option3"]))
                .optional("titledSingle", Field::titled_choice(titled))
                .optional(
                    "legacyEnum",
                    Field::legacy_choice([("opt1", "Option One"), ("opt2", "Option Two")]),
                )
                .optional("untitledMulti", Field::choices(["option1", "option2", "option3"]))
                .optional("titledMulti", Field::titled_choices(titled));
            elicited_text(cx.elicit("choose", form).await?)
        })
        .describe("Asks with choices of every kind")
        .tool("test_missing_capability", |cx: Context| async move {
            let result = cx.sample("Say hello").key("answer").await?;
            Ok::<_, HandlerError>(result.text())
        })
        .requires(ClientCapability::Sampling)
        .describe("Needs a client that can ask its model")
        .tool("test_streaming_elicitation", |cx: Context| async move {
            elicited_text(cx.elicit("confirm", Form::new("Go on?").field("ok", Field::flag())).await?)
        })
        .describe("Asks before it goes on");
    retry_tools(server)
}

/// Tools that clients of the newest protocol version call again with their responses.
fn retry_tools(server: Builder) -> Builder {
    server
        .tool("test_input_required_result_elicitation", |cx: Context| async move {
            match cx.elicit("user_name", name_form()).await? {
                ElicitOutcome::Accept(answer) => {
                    Ok(format!("Hello, {}!", answer["name"].as_str().unwrap_or("you")))
                }
                ElicitOutcome::Decline | ElicitOutcome::Cancel => {
                    Ok::<_, HandlerError>("Hello, whoever you are!".into())
                }
            }
        })
        .describe("Asks for a name")
        .tool("test_input_required_result_sampling", |cx: Context| async move {
            let result = cx.sample("What is the capital of France?").key("capital_question").await?;
            Ok::<_, HandlerError>(result.text())
        })
        .describe("Asks the model")
        .tool("test_input_required_result_list_roots", |cx: Context| async move {
            let roots = cx.roots().await?;
            Ok::<_, HandlerError>(format!("{} roots", roots.len()))
        })
        .describe("Asks for the roots")
        .tool("test_input_required_result_request_state", |cx: Context| async move {
            if cx.carried::<String>().is_none() {
                cx.carry(&"remembered");
            }
            cx.elicit("confirm", Form::new("Go on?").field("ok", Field::flag())).await?;
            let state: String = cx.carried().unwrap_or_default();
            Ok::<_, HandlerError>(format!("state-ok: {state}"))
        })
        .describe("Remembers something between two calls")
        .tool("test_input_required_result_multiple_inputs", |cx: Context| async move {
            let (name, greeting, roots) = tokio::join!(
                cx.elicit("user_name", name_form()),
                cx.sample("Write a greeting").key("greeting"),
                cx.roots(),
            );
            let (name, greeting, roots) = (name?.accepted(), greeting?, roots?);
            Ok::<_, HandlerError>(format!("{name:?}: {} ({} roots)", greeting.text(), roots.len()))
        })
        .describe("Asks three things at once")
        .tool("test_input_required_result_multi_round", |cx: Context| async move {
            let first = cx.elicit("step1", name_form()).await?.accepted();
            let second =
                cx.elicit("step2", Form::new("Which color?").field("color", Field::text())).await?.accepted();
            Ok::<_, HandlerError>(format!("{first:?} likes {second:?}"))
        })
        .describe("Asks one thing after another")
        .tool("test_input_required_result_tampered_state", |cx: Context| async move {
            cx.elicit("confirm", Form::new("Go on?").field("ok", Field::flag())).await?;
            Ok::<_, HandlerError>("went on")
        })
        .describe("Notices when what it remembers was changed")
        .tool("test_input_required_result_capabilities", |cx: Context| async move {
            let (name, greeting) = tokio::join!(
                cx.elicit("user_name", name_form()),
                cx.sample("Write a greeting").key("greeting"),
            );
            let name = match name {
                Err(error) if error.is_unsupported() => None,
                other => other?.accepted(),
            };
            Ok::<_, HandlerError>(format!("{name:?}: {}", greeting?.text()))
        })
        .describe("Asks only what the client can answer")
}

/// Tools that take long, and run as tasks.
fn task_tools(server: Builder) -> Builder {
    server
        .tool("greet", |args: Greet| async move { format!("Hello, {}!", args.name) })
        .describe("Greets at once, and is never a task")
        .tool("slow_compute", |args: Compute, cx: Context| async move {
            let seconds = args.seconds.unwrap_or(1.0).clamp(0.0, 3600.0);
            cx.progress(0.0, "computing").await;
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            format!("computed {} in {seconds} s", args.label.as_deref().unwrap_or("it"))
        })
        .describe("Computes for as long as it is told")
        .task(TaskSupport::Optional)
        .resumable()
        .tool("failing_job", || async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Err::<String, _>("This job fails, and says so in its result")
        })
        .describe("Fails in its result, a second later")
        .task(TaskSupport::Required)
        .tool("protocol_error_job", || async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            ProtocolError::new(ProtocolErrorKind::Internal, "This job ends in an error of the protocol")
        })
        .describe("Ends in an error of the protocol")
        .task(TaskSupport::Optional)
        .tool("confirm_delete", |args: Delete, cx: Context| async move {
            let form = Form::new(format!("Delete {}?", args.filename)).field("confirm", Field::flag());
            Ok::<_, HandlerError>(match cx.elicit("confirm", form).await?.accepted() {
                Some(answer) if answer["confirm"] == true => format!("Deleted {}", args.filename),
                _ => format!("Kept {}", args.filename),
            })
        })
        .describe("Asks in its task before it goes on")
        .task(TaskSupport::Optional)
        .tool("multi_input", |cx: Context| async move {
            let sure = Form::new("Are you sure?").field("confirm", Field::flag());
            let (name, sure) = tokio::join!(cx.elicit("name", name_form()), cx.elicit("sure", sure));
            Ok::<_, HandlerError>(format!("{:?} said {:?}", name?.accepted(), sure?.accepted()))
        })
        .describe("Asks two things at once in its task")
        .task(TaskSupport::Optional)
        .tool("test_tool_with_task", |cx: Context| async move {
            let name = cx.elicit("user_name", name_form()).await?.accepted().unwrap_or_default();
            cx.defer().await?;
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok::<_, HandlerError>(format!("Worked for {}", name["name"].as_str().unwrap_or("nobody")))
        })
        .describe("Asks first, then works in a task")
        .task_deferrable()
}

fn resources(server: Builder) -> Builder {
    server
        .resource("test://static-text", || async { "This is the content of the static text resource." })
        .name("Static text")
        .describe("A text that never changes")
        .mime("text/plain")
        .resource("test://static-binary", || async { PNG })
        .name("Static picture")
        .describe("A picture that never changes")
        .mime("image/png")
        .resource("test://watched-resource", || async { "Watched resource content" })
        .name("Watched text")
        .describe("A text to subscribe to")
        .mime("text/plain")
        .template("test://template/{id}/data", |args: Id| async move {
            Json(json!({ "id": args.id, "templateTest": true, "data": format!("Data for ID: {}", args.id) }))
        })
        .name("Data by id")
        .describe("Data for any id")
        .mime("application/json")
        .complete("id", |prefix, _| async move {
            ["1", "12", "123"].into_iter().filter(|id| id.starts_with(&prefix)).collect::<Vec<_>>()
        })
}

fn prompts(server: Builder) -> Builder {
    server
        .prompt("test_simple_prompt", || async { "This is a simple prompt for testing." })
        .describe("A text without holes")
        .prompt("test_prompt_with_arguments", |args: TwoArgs| async move {
            format!("Prompt with arguments: arg1='{}', arg2='{}'", args.arg1, args.arg2)
        })
        .describe("A text with two holes")
        .complete("arg1", |prefix, _| async move {
            ["test", "testing", "paris"]
                .into_iter()
                .filter(|word| word.starts_with(&prefix))
                .collect::<Vec<_>>()
        })
        .prompt("test_prompt_with_embedded_resource", |args: ResourceUri| async move {
            let text = ResourceContents::text(args.resource_uri, "Embedded resource content for testing.");
            vec![
                user(Content::embedded(text.with_mime("text/plain"))),
                user(Content::text("Please process the embedded resource above.")),
            ]
        })
        .describe("A text about a resource")
        .prompt("test_prompt_with_image", || async {
            vec![
                user(Content::image(PNG, "image/png")),
                user(Content::text("Please analyze the image above.")),
            ]
        })
        .describe("A text about a picture")
        .prompt("test_input_required_result_prompt", |cx: Context| async move {
            let form = Form::new("What are you working on?").field("context", Field::text());
            let answer = cx.elicit("user_context", form).await?.accepted().unwrap_or_default();
            Ok::<_, HandlerError>(format!(
                "The user works on: {}",
                answer["context"].as_str().unwrap_or("nothing")
            ))
        })
        .describe("A text that asks before it is written")
}

fn user(content: Content) -> PromptMessage {
    PromptMessage::user(content)
}

fn name_form() -> Form {
    Form::new("What is your name?").field("name", Field::text())
}

fn elicited_text(answer: ElicitOutcome<Value>) -> Result<String, HandlerError> {
    Ok(match answer {
        ElicitOutcome::Accept(content) => format!("User response: action=accept, content={content}"),
        ElicitOutcome::Decline => "User response: action=decline".into(),
        ElicitOutcome::Cancel => "User response: action=cancel".into(),
    })
}

#[derive(Deserialize, JsonSchema)]
struct Echo {
    /// What to say
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first number
    a: f64,
    /// The second number
    b: f64,
}

#[derive(serde::Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[derive(Deserialize, JsonSchema)]
struct Region {
    /// Where to look; clients repeat it in the header `Mcp-Param-Region`
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Slow {
    /// How long, 3 seconds unless given
    seconds: Option<u8>,
}

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Whom to greet
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Compute {
    /// How long, 1 second unless given
    seconds: Option<f64>,
    /// What to call it
    label: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Delete {
    /// Which file
    filename: String,
}

#[derive(Deserialize, JsonSchema)]
struct Prompt {
    /// What to ask the model
    prompt: String,
}

#[derive(Deserialize, JsonSchema)]
struct Message {
    /// What to ask the user
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Id {
    id: String,
}

#[derive(Deserialize, JsonSchema)]
struct TwoArgs {
    /// The first value
    arg1: String,
    /// The second value
    arg2: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceUri {
    /// Which resource to embed
    resource_uri: String,
}
