//! Tools: the spec that users write, and the entry in the registry.
//!
//! [`ToolSpec::build_entry`] validates a spec. A call's arguments are validated by [`ToolEntry::validator`]; see
//! `validator.rs`.

use std::sync::Arc;
use std::time::Duration;

use schemars::Schema;
use serde_json::{Value, json};
use toolgate_wire::RawJson;
use toolgate_wire::model::{
    ClientCapabilities, ElicitationCapability, Icon, SamplingCapability, TaskSupport, Tool, ToolHints,
};

use super::header_params::{self, HeaderParam};
use super::{ArgumentValidator, Keyed, KnownArguments, ListEntry, OutputValidator, View};
use crate::handler::{
    Handler, HandlerRequirements, HandlerSignature, IntoOutput, ToolFn, erase_tool, tidy, tidy_output,
};
use crate::util::poll_watch::PollWatch;

/// A tool in the registry.
pub(crate) struct ToolEntry {
    pub(crate) tool: Arc<Tool>,
    pub(crate) run: ToolFn,
    pub(crate) validator: ArgumentValidator,
    /// The names of all arguments, if others are refused.
    pub(crate) known_arguments: Option<KnownArguments>,
    /// Validates structured output, unless its type guarantees the schema.
    pub(crate) output_validator: Option<OutputValidator>,
    pub(crate) header_params: Vec<HeaderParam>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) required_capabilities: Vec<ClientCapability>,
    /// The handler may turn a call into a task.
    pub(crate) is_deferrable: bool,
    /// A task may run again if its process ended.
    pub(crate) is_resumable: bool,
    /// How long tasks are retained, unless the client requests another time.
    pub(crate) task_ttl: Option<Duration>,
    /// Adjusts arguments before validation.
    pub(crate) prepare: Option<PrepareFn>,
    /// Reports a handler that blocks.
    pub(crate) poll_watch: PollWatch,
    version: Option<String>,
    aliases: Vec<String>,
}

/// A function from arguments to adjusted arguments.
pub(crate) type PrepareFn = Arc<dyn Fn(Value) -> Value + Send + Sync>;

impl ToolEntry {
    /// Returns the tool's own version. It is not sent to clients, because the protocol has no field for it.
    pub(crate) fn version(&self) -> &str {
        self.version.as_deref().unwrap_or("1.0.0")
    }
}

impl std::fmt::Debug for ToolEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolEntry")
            .field("tool", &self.tool)
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl Keyed for ToolEntry {
    fn key(&self) -> &str {
        &self.tool.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }
}

impl ListEntry for ToolEntry {
    type Item = Tool;

    fn item(&self) -> Arc<Tool> {
        Arc::clone(&self.tool)
    }

    fn is_visible(&self, view: View<'_>) -> bool {
        view.shows_tool(&self.tool.name, &self.tool.hints)
    }
}

/// A client capability that a tool requires; see [`ToolSpec::requires`].
///
/// ```
/// # use toolgate::{ClientCapability, Server};
/// let server = Server::new("shop", "1.0.0")
///     .tool("order", || async { "ordered" })
///     .requires(ClientCapability::Elicitation);
/// # assert!(server.build().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientCapability {
    /// The client can show forms.
    Elicitation,
    /// The client can ask its model.
    Sampling,
    /// The client can list its roots.
    Roots,
}

impl ClientCapability {
    pub(crate) fn is_supported_by(self, client: &ClientCapabilities) -> bool {
        match self {
            ClientCapability::Elicitation => client.elicitation.is_some_and(|elicitation| elicitation.form),
            ClientCapability::Sampling => client.sampling.is_some(),
            ClientCapability::Roots => client.roots.is_some(),
        }
    }

    /// Adds the capability that the client would have to declare.
    pub(crate) fn add_to(self, capabilities: &mut ClientCapabilities) {
        match self {
            ClientCapability::Elicitation => {
                capabilities.elicitation = Some(ElicitationCapability::form());
            }
            ClientCapability::Sampling => capabilities.sampling = Some(SamplingCapability::default()),
            ClientCapability::Roots => capabilities.roots = Some(false),
        }
    }
}

/// A tool: name, description, schemas and handler. Added with [`Builder::add_tool`](crate::Builder::add_tool) or
/// [`Server::add_tool`](crate::Server::add_tool).
///
/// ```
/// # use toolgate::{Server, ToolSpec};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Echo {
///     /// The text to return
///     message: String,
/// }
///
/// let echo = ToolSpec::new("echo", |args: Echo| async move { args.message })
///     .describe("Returns the text")
///     .read_only();
/// let server = Server::new("demo", "1.0.0").add_tool(echo);
/// ```
#[doc(alias = "dynamic tool")]
pub struct ToolSpec {
    tool: Tool,
    run: ToolFn,
    /// Explicit input schema; `None` if it is generated from the handler's types.
    schema: Option<Value>,
    /// Schema of the handler's type, which calls are validated against. Lists show it tidied.
    generated_schema: Value,
    /// Arguments that the handler's type does not have are ignored.
    allows_unknown_arguments: bool,
    /// Schema of the handler's output type. Lists show it tidied.
    generated_output_schema: Option<Value>,
    timeout: Option<Duration>,
    required_capabilities: Vec<ClientCapability>,
    is_deferrable: bool,
    is_resumable: bool,
    task_ttl: Option<Duration>,
    prepare: Option<PrepareFn>,
    version: Option<String>,
    aliases: Vec<String>,
    /// Descriptions of single arguments.
    argument_descriptions: Vec<(String, String)>,
    pub(crate) requirements: HandlerRequirements,
}

impl std::fmt::Debug for ToolSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolSpec").field("tool", &self.tool).finish_non_exhaustive()
    }
}

impl ToolSpec {
    /// Creates a tool with this name. Its schemas are generated from the handler's types.
    pub fn new<A: 'static, H>(name: impl Into<String>, handler: H) -> ToolSpec
    where
        H: HandlerSignature<A> + Handler<A>,
        H::Output: IntoOutput,
    {
        ToolSpec::from_parts(
            name.into(),
            erase_tool(handler),
            H::schema(),
            H::Output::schema(),
            H::requirements(),
        )
    }

    fn from_parts(
        name: String,
        run: ToolFn,
        input: Option<Schema>,
        output: Option<Schema>,
        requirements: HandlerRequirements,
    ) -> ToolSpec {
        let generated_schema = match input {
            Some(schema) => schema.to_value(),
            // Some clients require `properties` even if there are none.
            None => json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        };
        ToolSpec {
            tool: Tool::new(name, RawJson::empty_object()),
            run,
            schema: None,
            generated_schema,
            allows_unknown_arguments: false,
            generated_output_schema: output.map(Schema::to_value),
            timeout: None,
            required_capabilities: Vec::new(),
            is_deferrable: false,
            is_resumable: false,
            task_ttl: None,
            prepare: None,
            version: None,
            aliases: Vec::new(),
            argument_descriptions: Vec::new(),
            requirements,
        }
    }

    /// Sets the description, which the model reads.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> ToolSpec {
        self.tool.description = Some(description.into());
        self
    }

    /// Sets the description of one argument, which the model reads, in place of the doc comment of the field.
    ///
    /// ```
    /// # use toolgate::ToolSpec;
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Place { location: String }
    /// # let weather = |place: Place| async move { place.location };
    /// let tool = ToolSpec::new("get_weather", weather).describe_arg("location", "City name or coordinates");
    /// # assert!(toolgate::Server::new("s", "1").add_tool(tool).build().is_ok());
    /// ```
    #[must_use]
    pub fn describe_arg(mut self, argument: impl Into<String>, description: impl Into<String>) -> ToolSpec {
        self.argument_descriptions.push((argument.into(), description.into()));
        self
    }

    /// Sets the display name.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> ToolSpec {
        self.tool.title = Some(title.into());
        self
    }

    /// Declares that the tool changes nothing (`readOnlyHint`).
    #[must_use]
    pub fn read_only(mut self) -> ToolSpec {
        self.tool.hints.read_only = Some(true);
        self
    }

    /// Declares that the tool may delete or overwrite data (`destructiveHint`).
    #[must_use]
    pub fn destructive(mut self) -> ToolSpec {
        self.tool.hints.destructive = Some(true);
        self
    }

    /// Declares that repeating a call has no further effect (`idempotentHint`).
    #[must_use]
    pub fn idempotent(mut self) -> ToolSpec {
        self.tool.hints.idempotent = Some(true);
        self
    }

    /// Declares that the tool interacts with nothing outside of this server (`openWorldHint: false`).
    #[must_use]
    pub fn closed_world(mut self) -> ToolSpec {
        self.tool.hints.open_world = Some(false);
        self
    }

    /// Sets all behavior hints, including negative ones. Replaces earlier hints.
    ///
    /// ```
    /// # use toolgate::{ToolSpec, model::ToolHints};
    /// let add = ToolSpec::new("add_note", || async { "added" })
    ///     .hints(ToolHints::default().with_destructive(false));
    /// # assert!(toolgate::Server::new("s", "1").add_tool(add).build().is_ok());
    /// ```
    #[must_use]
    pub fn hints(mut self, hints: ToolHints) -> ToolSpec {
        self.tool.hints = hints;
        self
    }

    /// Sets the tool's own version, `1.0.0` by default. For operators: it is not sent to clients.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> ToolSpec {
        self.version = Some(version.into());
        self
    }

    /// Adds another name by which the tool can be called, such as a former name. Lists do not show it; profiles and statistics
    /// use the tool's own name. Names and aliases of all tools must be distinct.
    ///
    /// ```
    /// # use toolgate::{Server, ToolSpec};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// let check = ToolSpec::new("honeypot_check", || async { "safe" }).alias("honeypot-check");
    /// let server = Server::new("hub", "1.0.0").add_tool(check).build()?;
    /// assert_eq!(server.list_tools().await.len(), 1);
    /// assert!(server.call_tool("honeypot-check", serde_json::json!({})).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn alias(mut self, name: impl Into<String>) -> ToolSpec {
        self.aliases.push(name.into());
        self
    }

    /// Adds an icon.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> ToolSpec {
        self.tool.icons.push(icon);
        self
    }

    /// Sets `_meta`, a JSON object with data for specific clients.
    #[must_use]
    pub fn meta(mut self, meta: Value) -> ToolSpec {
        self.tool.meta = Some(RawJson::from(meta));
        self
    }

    /// Sets the JSON Schema of the arguments, in place of the one generated from the handler's type. Arguments are validated
    /// against it before the handler runs.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> ToolSpec {
        self.schema = Some(schema);
        self
    }

    /// Ignores arguments that the handler's type does not have, instead of refusing the call. For clients that add arguments of
    /// their own.
    ///
    /// Without this, the input schema has `"additionalProperties": false`. A type with `#[serde(flatten)]` and a schema that is
    /// set with [`input_schema`](ToolSpec::input_schema) are not affected: they say themselves what they accept.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use toolgate::{Server, ToolSpec};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), toolgate::Error> {
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Search { query: String }
    ///
    /// let search = || ToolSpec::new("search", |args: Search| async move { args.query });
    /// let server = Server::new("s", "1").add_tool(search()).build()?;
    /// assert!(server.test().call("search", json!({ "query": "tea", "limit": 5 })).await.is_error());
    ///
    /// let server = Server::new("s", "1").add_tool(search().allow_unknown_arguments()).build()?;
    /// assert!(!server.test().call("search", json!({ "query": "tea", "limit": 5 })).await.is_error());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn allow_unknown_arguments(mut self) -> ToolSpec {
        self.allows_unknown_arguments = true;
        self
    }

    /// Sets a function that adjusts arguments before they are validated, for example to clamp a number or to accept an old
    /// parameter name. Its result is validated like arguments from a client. The function must not block.
    ///
    /// ```
    /// # use serde_json::{Value, json};
    /// # use toolgate::{Server, ToolSpec};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Page { n: u32 }
    /// let tool = ToolSpec::new("page", |page: Page| async move { page.n.to_string() }).prepare(|mut arguments: Value| {
    ///     if arguments["n"].is_null() {
    ///         arguments["n"] = json!(1);
    ///     }
    ///     arguments
    /// });
    /// # assert!(Server::new("s", "1").add_tool(tool).build().is_ok());
    /// ```
    #[must_use]
    pub fn prepare(mut self, prepare: impl Fn(Value) -> Value + Send + Sync + 'static) -> ToolSpec {
        self.prepare = Some(Arc::new(prepare));
        self
    }

    /// Sets the JSON Schema of structured output, in place of the one generated from the handler's type. Output is validated
    /// against it.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> ToolSpec {
        self.tool.output_schema = Some(RawJson::from(schema));
        self
    }

    /// Limits how long a call may run. Time spent waiting for the client does not count.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> ToolSpec {
        self.timeout = Some(timeout);
        self
    }

    /// Rejects calls from clients without this capability, before the handler runs.
    #[must_use]
    pub fn requires(mut self, capability: ClientCapability) -> ToolSpec {
        self.required_capabilities.push(capability);
        self
    }

    /// Sets whether calls can run as tasks: in the background, while the client polls for the result.
    ///
    /// * `TaskSupport::Forbidden` (default): calls never run as tasks.
    /// * `TaskSupport::Optional`: calls run as tasks if the client supports them; other clients wait for the result.
    /// * `TaskSupport::Required`: calls only run as tasks; clients without support are rejected.
    ///
    /// A task may run as long as it is retained, unless the tool has a [`timeout`](ToolSpec::timeout).
    #[must_use]
    pub fn task(mut self, support: TaskSupport) -> ToolSpec {
        self.tool.task_support = support;
        self
    }

    /// Lets the handler turn a call into a task with [`Context::defer`](crate::Context::defer); elicitation before that happens in
    /// the call itself. A client that requests a task gets one at once.
    #[must_use]
    pub fn task_deferrable(mut self) -> ToolSpec {
        if self.tool.task_support == TaskSupport::Forbidden {
            self.tool.task_support = TaskSupport::Optional;
        }
        self.is_deferrable = true;
        self
    }

    /// Lets another process restart a task whose process ended, up to three times, with the recorded client replies and
    /// [steps](crate::Context::step). Without this, such a task fails.
    #[must_use]
    pub fn resumable(mut self) -> ToolSpec {
        self.is_resumable = true;
        self
    }

    /// Sets how long a task and its result are retained after its start, unless the client requests another time. Takes
    /// precedence over [`Builder::default_task_ttl`](crate::Builder::default_task_ttl). One year at most.
    #[must_use]
    pub fn task_ttl(mut self, ttl: Duration) -> ToolSpec {
        self.task_ttl = Some(ttl);
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.tool.name
    }

    /// Validates the spec and builds the registry entry. The error message describes the problem.
    pub(crate) fn build_entry(self) -> Result<ToolEntry, String> {
        let ToolSpec {
            mut tool,
            run,
            schema,
            generated_schema,
            allows_unknown_arguments,
            generated_output_schema,
            timeout,
            required_capabilities,
            is_deferrable,
            is_resumable,
            task_ttl,
            prepare,
            version,
            aliases,
            argument_descriptions,
            requirements,
        } = self;
        check_name(&tool.name)?;
        check_aliases(&tool.name, &aliases)?;
        check_icons(&tool.icons)?;
        let is_typed = schema.is_none();
        let mut validated_schema = schema.clone().unwrap_or_else(|| generated_schema.clone());
        let mut schema = schema.unwrap_or_else(|| tidy(generated_schema));
        let known_arguments = match is_typed && !allows_unknown_arguments {
            true => KnownArguments::apply(requirements.argument_names.as_deref(), &mut schema),
            false => None,
        };
        if let (Some(_), Value::Object(root)) = (&known_arguments, &mut validated_schema) {
            // Names are compared without the schema, which does not have aliases.
            root.remove("additionalProperties");
        }
        for (argument, description) in argument_descriptions {
            match schema.get_mut("properties").and_then(|all| all.get_mut(&argument)) {
                Some(Value::Object(property)) => property.insert("description".into(), description.into()),
                _ => return Err(format!("`{argument}` is described, but is not one of its arguments")),
            };
        }
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(
                "the arguments must be an object: use a struct, or a schema with `\"type\": \"object\"`"
                    .into(),
            );
        }
        if tool.meta.as_ref().is_some_and(|meta| meta.view().kind() != toolgate_wire::Kind::Object) {
            return Err("`meta` must be a JSON object".into());
        }
        let validator = ArgumentValidator::new(&validated_schema, is_typed)
            .map_err(|error| format!("its input schema is wrong: {error}"))?;
        let output_validator = match (&tool.output_schema, generated_output_schema) {
            (Some(explicit), _) => OutputValidator::for_explicit(&explicit.to_value()).map(Some),
            (None, Some(generated)) => {
                let validator = OutputValidator::for_generated(&generated);
                tool.output_schema = Some(RawJson::from(tidy_output(generated)));
                validator.map(Some)
            }
            (None, None) => Ok(None),
        }
        .map_err(|error| format!("its output schema is wrong: {error}"))?;
        for warning in validator
            .unsupported_patterns()
            .iter()
            .chain(output_validator.iter().flat_map(OutputValidator::unsupported_patterns))
        {
            tracing::warn!(tool = %tool.name, "{warning}");
        }
        let header_params = header_params::parse_header_params(&schema)?;
        tool.input_schema = RawJson::from(schema);
        let tool = Arc::new(tool);
        Ok(ToolEntry {
            tool,
            run,
            poll_watch: PollWatch::default(),
            validator,
            known_arguments,
            output_validator,
            header_params,
            timeout,
            required_capabilities,
            is_deferrable,
            is_resumable,
            task_ttl,
            prepare,
            version,
            aliases,
        })
    }
}

/// Checks that aliases are valid names without duplicates.
fn check_aliases(name: &str, aliases: &[String]) -> Result<(), String> {
    for (index, alias) in aliases.iter().enumerate() {
        check_name(alias).map_err(|error| format!("alias `{alias}`: {error}"))?;
        if alias == name || aliases[..index].contains(alias) {
            return Err(format!("alias `{alias}`: it has this name already"));
        }
    }
    Ok(())
}

/// Checks a name: 1 to 128 letters, digits, `_`, `-` and `.`, which every client accepts.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if fits && (1..=128).contains(&name.len()) {
        return Ok(());
    }
    Err("a name is 1 to 128 letters, digits, `_`, `-` and `.`".into())
}

/// Checks icons, which clients display: only sources that cannot execute code, and no large inline data.
pub(super) fn check_icons(icons: &[Icon]) -> Result<(), String> {
    let safe =
        |src: &str| src.starts_with("https://") || (src.starts_with("data:image/") && src.len() <= 64 << 10);
    match icons.iter().find(|icon| !safe(&icon.src)) {
        None => Ok(()),
        Some(_) => {
            Err("an icon's `src` must be an https URL or a `data:image/` URI of at most 64 KiB".into())
        }
    }
}
