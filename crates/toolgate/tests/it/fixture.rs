//! A server for tests, built with the public API only: a little of everything, and named semaphores by which tests and
//! handlers synchronize.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolgate::compat::{Dialect, Roots};
use toolgate::model::TaskSupport;
use toolgate::model::{
    Annotations, CacheScope, Content, Icon, LogLevel, PromptMessage, Resource, ResourceContents, Role,
    SamplingBlock, SamplingMessage, SamplingRequest, Tool, ToolOutput,
};
use toolgate::{
    Builder, ClientCapability, Context, ElicitOutcome, Field, Form, HandlerError, Json, PromptSpec,
    ProtocolError, ProtocolErrorKind, ResourceSpec, Server, State, ToolSpec,
};

/// Named semaphores that tests and handlers share: no test waits for a clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedSemaphores(Arc<Mutex<HashMap<String, Arc<Semaphore>>>>);

impl NamedSemaphores {
    fn get(&self, name: &str) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))))
    }

    /// Adds a permit.
    pub(crate) fn add_permit(&self, name: &str) {
        self.get(name).add_permits(1);
    }

    /// Waits for a permit and takes it.
    pub(crate) async fn acquire(&self, name: &str) {
        let semaphore = self.get(name);
        let permit = semaphore.acquire().await.expect("the stage is never closed");
        permit.forget();
    }

    /// Returns the number of available permits.
    pub(crate) fn available_permits(&self, name: &str) -> usize {
        self.get(name).available_permits()
    }
}

/// Adds a permit that tells how a handler ended: by returning, or dropped.
struct HandlerEndGuard<'a> {
    semaphores: &'a NamedSemaphores,
    is_finished: bool,
}

impl Drop for HandlerEndGuard<'_> {
    fn drop(&mut self) {
        self.semaphores.add_permit(if self.is_finished { "finished" } else { "dropped" });
    }
}

/// How the server of a test differs from the default one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Only two tools, resources, templates and prompts, with all fields set.
    pub(crate) is_small: bool,
    pub(crate) page_size: Option<usize>,
    pub(crate) stream_after: Option<Duration>,
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) message_limit: Option<usize>,
    pub(crate) max_sessions: Option<usize>,
    pub(crate) session_idle_timeout: Option<Duration>,
    pub(crate) drain: Option<Duration>,
    pub(crate) seal_keys: Vec<u8>,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) is_stateless: bool,
    /// Reject requests before `initialize`.
    pub(crate) requires_initialize: bool,
    /// A workspace with these roots, which clients may change.
    pub(crate) roots: Option<String>,
    /// Tools that run as tasks.
    pub(crate) has_tasks: bool,
    /// The maximum number of concurrent tasks of a principal.
    pub(crate) max_tasks: Option<usize>,
}

impl Options {
    /// Parses `name=value`.
    pub(crate) fn set(&mut self, option: &str) -> Option<()> {
        let (name, value) = option.split_once('=')?;
        let millis = || value.parse().ok().map(Duration::from_millis);
        match name {
            "server" => self.is_small = value == "small",
            "dialect" if value == "tasks" => {
                let mut dialect = Dialect::official();
                (dialect.tasks_create, dialect.unknown_task_code) = (true, -32081);
                self.dialect = Some(dialect);
            }
            "tasks" => self.has_tasks = value == "yes",
            "most_tasks" => self.max_tasks = Some(value.parse().ok()?),
            "dialect" => self.dialect = Some(Dialect::from_name(value)?),
            "stateless" => self.is_stateless = value == "yes",
            "required" => self.requires_initialize = value == "yes",
            "roots" => self.roots = Some(value.to_owned()),
            "page" => self.page_size = Some(value.parse().ok()?),
            "stream_after" => self.stream_after = Some(millis()?),
            "heartbeat" => self.heartbeat = Some(millis()?),
            "timeout" => self.timeout = Some(millis()?),
            "idle" => self.session_idle_timeout = Some(millis()?),
            "drain" => self.drain = Some(millis()?),
            "limit" => self.message_limit = Some(value.parse().ok()?),
            "sessions" => self.max_sessions = Some(value.parse().ok()?),
            "keys" => {
                self.seal_keys = value.split(',').map(|key| key.parse().ok()).collect::<Option<_>>()?;
            }
            _ => return None,
        }
        Some(())
    }
}

/// Creates the server and its semaphores.
pub(crate) fn serve(options: &Options) -> (Server, NamedSemaphores) {
    let stage = NamedSemaphores::default();
    let mut server = Server::new("fixture", "1.0.0").instructions("Try things.").state(stage.clone());
    if let Some(size) = options.page_size {
        server = server.page_size(size);
    }
    if let Some(patience) = options.stream_after {
        server = server.stream_after(patience);
    }
    if let Some(every) = options.heartbeat {
        server = server.sse_keep_alive(every);
    }
    if let Some(timeout) = options.timeout {
        server = server.handler_timeout(timeout);
    }
    if let Some(bytes) = options.message_limit {
        server = server.message_limit(bytes);
    }
    if let Some(sessions) = options.max_sessions {
        server = server.max_sessions(sessions);
    }
    if let Some(idle) = options.session_idle_timeout {
        server = server.session_idle_timeout(idle);
    }
    if let Some(drain) = options.drain {
        server = server.shutdown_timeout(drain);
    }
    if !options.seal_keys.is_empty() {
        server = server.state_keys(options.seal_keys.iter().map(|key| [*key; 32]));
    }
    if let Some(dialect) = &options.dialect {
        server = server.dialect(dialect.clone());
    }
    if options.is_stateless {
        server = server.stateless();
    }
    if options.requires_initialize {
        server = server.require_initialize();
    }
    if let Some(roots) = &options.roots {
        server = server.workspace_roots(Roots::new(roots.split(',')).writable_below("file:///w"));
    }
    if let Some(most) = options.max_tasks {
        server = server.max_tasks(most);
    }
    let built = if options.is_small { small_server(server).build() } else { full_server(server).build() };
    let server = built.expect("the fixture can be built");
    if options.is_small {
        server.add_prompt(greeting()).expect("the prompt is well described");
    }
    for tool in task_tools().into_iter().filter(|_| options.has_tasks) {
        server.add_tool(tool).expect("the tool is well described");
    }
    (server, stage)
}

/// Tools that run as tasks, in different ways.
fn task_tools() -> Vec<ToolSpec> {
    let sure = || Form::new("Sure?").field("ok", Field::flag());
    vec![
        ToolSpec::new("job", |cx: Context, stage: State<NamedSemaphores>| async move {
            let mut fate = HandlerEndGuard { semaphores: &stage, is_finished: false };
            cx.progress_of(1.0, 2.0, "half way").await;
            stage.add_permit("started");
            stage.acquire("go").await;
            fate.is_finished = true;
            "did it"
        })
        .task(TaskSupport::Optional),
        ToolSpec::new("must", || async { Err::<String, _>("it could not be done") })
            .task(TaskSupport::Required),
        ToolSpec::new("refuse", || async { ProtocolError::new(ProtocolErrorKind::Other(7), "refused") })
            .task(TaskSupport::Optional),
        ToolSpec::new("sure", move |cx: Context| async move {
            Ok::<_, HandlerError>(format!("{:?}", cx.elicit("sure", sure()).await?.accepted()))
        })
        .task(TaskSupport::Optional),
        ToolSpec::new("both", move |cx: Context| async move {
            let (one, two) = tokio::join!(cx.elicit("one", sure()), cx.elicit("two", sure()));
            Ok::<_, HandlerError>(format!("{:?} {:?}", one?.accepted(), two?.accepted()))
        })
        .task(TaskSupport::Optional),
        ToolSpec::new("later", move |cx: Context, stage: State<NamedSemaphores>| async move {
            stage.add_permit("run");
            let sure = cx.elicit("sure", sure()).await?.accepted();
            cx.defer().await?;
            stage.add_permit("deferred");
            Ok::<_, HandlerError>(format!("later: {sure:?}"))
        })
        .task_deferrable(),
    ]
}

fn greeting() -> PromptSpec {
    PromptSpec::new("greet", |args: Greet| async move {
        format!("Greet {} in a {} way", args.name, args.style.unwrap_or("friendly".into()))
    })
    .title("Greeting")
    .describe("Greets")
    .icon(Icon::new("https://example.com/i.png"))
    .meta(json!({ "com.example/x": 4 }))
    .complete("style", |prefix, _| async move {
        ["formal", "friendly"].into_iter().filter(|style| style.starts_with(&prefix)).collect::<Vec<_>>()
    })
}

/// Items with all fields that a list can have.
fn small_server(server: Builder) -> Builder {
    let icon = || Icon::new("https://example.com/i.png");
    let marked = Annotations::default()
        .with_audience(vec![Role::User])
        .with_priority(0.5)
        .with_last_modified("2025-01-01T00:00:00Z");
    server
        .server_title("Fixture")
        .server_description("For tests")
        .website("https://example.com")
        .server_icon(icon())
        .cache_lists(Duration::from_secs(60), CacheScope::Public)
        .add_tool(
            ToolSpec::new("add", |args: Add| async move { Json(Sum { sum: args.a + args.b }) })
                .title("Adder")
                .describe("Adds")
                .read_only()
                .icon(icon())
                .meta(json!({ "com.example/x": 1 })),
        )
        .tool("numbers", || async { Json(vec![3, 9]) })
        .add_resource(
            ResourceSpec::new("fix://text", || async { "words" })
                .name("text")
                .title("Words")
                .describe("Some words")
                .mime("text/plain")
                .size(5)
                .annotate(marked)
                .icon(icon())
                .meta(json!({ "com.example/x": 2 }))
                .cache(Duration::from_secs(5), CacheScope::Public),
        )
        .resource("fix://blob", || async { b"\x00\x01".as_slice() })
        .name("blob")
        .template("fix://item/{id}", |args: Item| async move {
            (args.id != 404).then(|| format!("item {}", args.id))
        })
        .name("item")
        .title("Item")
        .mime("text/plain")
        .meta(json!({ "com.example/x": 3 }))
        .complete("id", |prefix, _| async move {
            (0..300).map(|id| id.to_string()).filter(|id| id.starts_with(&prefix)).collect::<Vec<_>>()
        })
        .prompt("sound", || async {
            vec![
                PromptMessage::user(Content::audio(b"beep".as_slice(), "audio/wav")),
                PromptMessage::assistant(Content::link(linked_resource())),
            ]
        })
}

fn full_server(server: Builder) -> Builder {
    let server = streaming_tools(client_request_tools(server));
    server
        .tool("echo", |args: Echo| async move { args.message })
        .tool("strict", |args: Value| async move { format!("took {args}") })
        .input_schema(json!({
            "type": "object",
            "properties": { "limit": { "type": "integer", "minimum": 1 }, "style": { "enum": ["a", "b"] } },
            "required": ["limit"],
            "additionalProperties": false
        }))
        .tool("show", |args: Show| async move { content_of_kind(&args.kind) })
        .tool("any", |args: Any| async move { args.value })
        .tool("region", |args: Region| async move {
            format!("region {}", args.region.unwrap_or("nowhere".into()))
        })
        .prompt("scene", || async {
            vec![PromptMessage::new(Role::System, Content::text("Be brief.")), PromptMessage::user("Hello")]
        })
        .tool("fail", || async { Err::<String, _>("no luck") })
        .tool("boom", boom)
        .tool("hang", std::future::pending::<String>)
        .timeout(Duration::from_millis(40))
        .tool("whoami", |cx: Context| async move {
            let client = cx.client().map(|client| client.name.clone());
            format!("{:?} by {client:?}", cx.principal().id())
        })
        .resource("fix://text", || async { "words" })
        .mime("text/plain")
        .resource("fix://ask", |cx: Context| async move {
            let answer = cx.elicit("page", Form::new("Which page?").field("n", Field::integer())).await?;
            Ok::<_, HandlerError>(format!("page {:?}", answer.accepted()))
        })
        .resource("fix://broken", || async { Err::<String, _>("the disk is gone") })
        .template("fix://item/{id}", |args: Item| async move { format!("item {}", args.id) })
        .prompt("plain", || async { "Say something." })
        .prompt("ask", |cx: Context| async move {
            let answer = cx.elicit("topic", Form::new("About what?").field("topic", Field::text())).await?;
            let topic = answer.accepted().unwrap_or_default();
            Ok::<_, HandlerError>(format!("Write about {}", topic["topic"].as_str().unwrap_or("nothing")))
        })
}

async fn boom() -> String {
    panic!("secret words of a panic")
}

/// Tools that send notifications, wait and announce changes.
fn streaming_tools(server: Builder) -> Builder {
    server
        .tool("plain", || async { "plain" })
        .tool("talk", |cx: Context| async move {
            cx.progress_of(1.0, 2.0, "half").await;
            cx.progress(1.0, None).await;
            for level in [LogLevel::Debug, LogLevel::Info, LogLevel::Warning] {
                cx.log(level, json!({ "at": level.name() })).await;
            }
            cx.progress(2.5, None).await;
            "talked"
        })
        // Adds a permit `started`, waits for `go`, and reports how it ended.
        .tool("wait", |stage: State<NamedSemaphores>| async move {
            let mut fate = HandlerEndGuard { semaphores: &stage, is_finished: false };
            stage.add_permit("started");
            stage.acquire("go").await;
            fate.is_finished = true;
            "went"
        })
        // The same, with notifications before, in between and after.
        .tool("report", |args: Report, cx: Context, stage: State<NamedSemaphores>| async move {
            let mut fate = HandlerEndGuard { semaphores: &stage, is_finished: false };
            for step in 1..=args.steps {
                cx.progress_of(f64::from(step), f64::from(args.steps), None).await;
                stage.add_permit("started");
                stage.acquire("go").await;
            }
            fate.is_finished = true;
            format!("reported {}", args.steps)
        })
        .tool("leave", |cx: Context, stage: State<NamedSemaphores>| async move {
            cx.release_connection(Duration::from_millis(7));
            stage.add_permit("started");
            stage.acquire("go").await;
            "come back"
        })
        .tool("announce", |args: Announce, cx: Context| async move {
            match args.what.as_str() {
                "tools" => cx.notify().tools_changed(),
                "prompts" => cx.notify().prompts_changed(),
                "resources" => cx.notify().resources_changed(),
                uri => cx.notify().resource_updated(uri),
            }
            "announced"
        })
}

/// Tools that send requests to the client.
fn client_request_tools(server: Builder) -> Builder {
    server
        .tool("confirm", |args: Confirm, cx: Context| async move {
            let form = Form::new(format!("Really {}?", args.what.as_deref().unwrap_or("do it")));
            let form = form.field("ok", Field::flag());
            elicited_text(cx.elicit("ok", form).await?)
        })
        .tool("choose", |cx: Context| async move {
            let form = Form::new("Which?")
                .field("size", Field::titled_choice([("s", "Small"), ("l", "Large")]).default("s"))
                .optional("age", Field::integer().min(0).max(150).default(7))
                .optional("mail", Field::email().default("a@b.c"));
            elicited_text(cx.elicit("choice", form).await?)
        })
        .tool("choose_many", |cx: Context| async move {
            elicited_text(
                cx.elicit("many", Form::new("Which ones?").field("colors", Field::choices(["red", "blue"])))
                    .await?,
            )
        })
        .tool("visit", |cx: Context| async move {
            let answer = cx.elicit_url("login", "Please log in", "https://example.com/login").await?;
            Ok::<_, HandlerError>(format!("{answer:?}"))
        })
        .tool("sample", |cx: Context| async move { sampled_text(&cx, "answer", question()).await })
        .tool("sample_with_tools", |cx: Context| async move {
            let schema = json!({ "type": "object", "properties": { "sku": { "type": "string" } } });
            let tool = Tool::new("qty", toolgate_wire::RawJson::from(schema));
            sampled_text(&cx, "answer", question().with_tools(vec![tool])).await
        })
        .tool("roots", |cx: Context| async move {
            let roots = cx.roots().await?;
            let roots: Vec<String> = roots.into_iter().map(|root| root.uri).collect();
            Ok::<_, HandlerError>(roots.join(" "))
        })
        .tool("three", |cx: Context| async move {
            let form = Form::new("Name?").field("name", Field::text());
            let (name, model, roots) =
                tokio::join!(cx.elicit("name", form), cx.sample(question()).key("model"), cx.roots());
            let (name, model, roots) = (name?.accepted().unwrap_or_default(), model?, roots?);
            Ok::<_, HandlerError>(format!("{name} {} {}", model.model, roots.len()))
        })
        // Runs a step once, stores state, sends two requests.
        .tool("steps", |cx: Context, stage: State<NamedSemaphores>| async move {
            let runs: u32 = cx.carried().unwrap_or(0);
            cx.carry(&(runs + 1));
            let made: String = cx
                .step("make", || async {
                    stage.add_permit("stepped");
                    Ok::<_, HandlerError>("made".to_owned())
                })
                .await?;
            let first = cx.elicit("first", Form::new("First?").field("a", Field::text())).await?.accepted();
            let second =
                cx.elicit("second", Form::new("Second?").field("b", Field::text())).await?.accepted();
            let (first, second) = (first.unwrap_or_default(), second.unwrap_or_default());
            Ok::<_, HandlerError>(format!("{made} {} {} in run {}", first["a"], second["b"], runs + 1))
        })
        .tool("endless", |cx: Context| async move {
            for round in 0.. {
                cx.elicit(&format!("q{round}"), Form::new("And?")).await?;
            }
            Ok::<_, HandlerError>("never")
        })
        .tool("maybe", |cx: Context| async move {
            match cx.elicit("ok", Form::new("Really?").field("ok", Field::flag())).await {
                Err(error) if error.is_unsupported() => Ok("did without".to_owned()),
                other => elicited_text(other?),
            }
        })
        .tool("needy", |cx: Context| async move { sampled_text(&cx, "answer", question()).await })
        .requires(ClientCapability::Sampling)
}

/// A tool that is added at run time.
pub(crate) fn added_tool(name: &str) -> ToolSpec {
    ToolSpec::new(name, || async { "late" })
}

fn question() -> SamplingRequest {
    SamplingRequest::new(vec![SamplingMessage::user("Why?")], 50)
}

async fn sampled_text(cx: &Context, key: &str, sample: SamplingRequest) -> Result<String, HandlerError> {
    let result = cx.sample(sample).key(key).await?;
    let blocks = result.content.iter().map(|block| match block {
        SamplingBlock::Content(content) => content.as_text().unwrap_or("?").to_owned(),
        SamplingBlock::ToolUse { name, input, .. } => format!("{name}({})", input.as_str()),
        other => format!("{other:?}"),
    });
    Ok(format!("{}: {}", result.model, blocks.collect::<Vec<_>>().join(", ")))
}

fn elicited_text(answer: ElicitOutcome<Value>) -> Result<String, HandlerError> {
    Ok(match answer {
        ElicitOutcome::Accept(content) => format!("yes {content}"),
        ElicitOutcome::Decline => "declined".into(),
        ElicitOutcome::Cancel => "cancelled".into(),
    })
}

fn linked_resource() -> Resource {
    Resource::new("fix://text", "text").with_title("Words").with_description("Some words")
}

fn content_of_kind(kind: &str) -> ToolOutput {
    let content = match kind {
        "image" => Content::image(b"png".as_slice(), "image/png"),
        "audio" => Content::audio(b"beep".as_slice(), "audio/wav"),
        "link" => Content::link(linked_resource()),
        "embedded" => Content::embedded(ResourceContents::text("fix://e", "inside").with_mime("text/plain")),
        "blob" => Content::embedded(ResourceContents::blob("fix://b", b"\x00\x01".as_slice())),
        "marked" => {
            let annotations = Annotations::default()
                .with_audience(vec![Role::Assistant])
                .with_priority(1.0)
                .with_last_modified("2025-01-01T00:00:00Z");
            Content::text("marked").with_annotations(annotations).with_meta(json!({ "com.example/x": 1 }))
        }
        "structured" => {
            return ToolOutput::default().with_structured_content(json!({ "only": true }));
        }
        other => Content::text(other),
    };
    ToolOutput::new(vec![content])
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first
    a: i64,
    /// The second
    b: i64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Echo {
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Show {
    kind: String,
}

#[derive(Deserialize, JsonSchema)]
struct Any {
    value: Value,
}

#[derive(Deserialize, JsonSchema)]
struct Report {
    steps: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Announce {
    what: String,
}

#[derive(Deserialize, JsonSchema)]
struct Confirm {
    what: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Region {
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Item {
    id: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Whom
    name: String,
    style: Option<String>,
}
