//! Tools: how one is described, and what is kept of it.

use std::sync::Arc;
use std::time::Duration;

use schemars::Schema;
use serde_json::{Value, json};
use toolgate_wire::RawJson;
use toolgate_wire::model::{
    ClientCapabilities, ElicitationCapability, Icon, SamplingCapability, TaskSupport, Tool, ToolHints,
};

use super::header_params::{self, HeaderParam};
use super::{ArgumentValidator, Keyed, ListEntry, View};
use crate::handler::{Handler, HandlerRequirements, IntoOutput, ToolFn, erase_tool, tidy};

/// A tool as it is kept.
pub(crate) struct ToolEntry {
    pub(crate) tool: Arc<Tool>,
    pub(crate) run: ToolFn,
    pub(crate) validator: ArgumentValidator,
    /// Where the author promised a schema that no type keeps.
    pub(crate) output_validator: Option<ArgumentValidator>,
    pub(crate) header_params: Vec<HeaderParam>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) required_capabilities: Vec<ClientCapability>,
    /// It says itself when it becomes a task.
    pub(crate) is_deferrable: bool,
    /// A task of it that lost its process may run again.
    pub(crate) is_resumable: bool,
    /// How long its tasks are kept, unless the client says.
    pub(crate) task_ttl: Option<Duration>,
    /// Puts arguments right before they are checked.
    pub(crate) prepare: Option<PrepareFn>,
    version: Option<String>,
    aliases: Vec<String>,
}

/// Arguments in, arguments out.
pub(crate) type PrepareFn = Arc<dyn Fn(Value) -> Value + Send + Sync>;

impl ToolEntry {
    /// Its own version, apart from its server's. Clients are not told: the protocol has no place for it.
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
        view.shows_tool(&self.tool.name)
    }
}

/// Something a client must be able to do before a tool is of any use to it.
///
/// ```
/// # use toolgate::{Need, Server};
/// let server = Server::new("shop", "1.0.0").tool("order", || async { "ordered" }).needs(Need::Elicitation);
/// # assert!(server.build().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientCapability {
    /// Show forms.
    Elicitation,
    /// Ask its model.
    Sampling,
    /// Tell its roots.
    Roots,
}

impl ClientCapability {
    pub(crate) fn is_supported_by(self, by: &ClientCapabilities) -> bool {
        match self {
            ClientCapability::Elicitation => by.elicitation.is_some_and(|elicitation| elicitation.form),
            ClientCapability::Sampling => by.sampling.is_some(),
            ClientCapability::Roots => by.roots.is_some(),
        }
    }

    /// What the client would have to declare.
    pub(crate) fn add_to(self, capabilities: &mut ClientCapabilities) {
        match self {
            ClientCapability::Elicitation => {
                capabilities.elicitation = Some(ElicitationCapability { form: true, url: false });
            }
            ClientCapability::Sampling => capabilities.sampling = Some(SamplingCapability::default()),
            ClientCapability::Roots => capabilities.roots = Some(false),
        }
    }
}

/// The description of a tool, to be given to a server.
///
/// ```
/// # use toolgate::{Server, ToolSpec};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Echo {
///     /// What to say
///     message: String,
/// }
///
/// let echo = ToolSpec::new("echo", |args: Echo| async move { args.message })
///     .describe("Says it again")
///     .read_only();
/// let server = Server::new("demo", "1.0.0").add_tool(echo);
/// ```
pub struct ToolSpec {
    tool: Tool,
    run: ToolFn,
    /// None: made from the handler's types.
    schema: Option<Value>,
    /// As the type describes it: what calls are checked against. Lists show it tidied.
    generated_schema: Value,
    /// The output schema was written by hand: what it says is checked.
    has_explicit_output_schema: bool,
    timeout: Option<Duration>,
    required_capabilities: Vec<ClientCapability>,
    is_deferrable: bool,
    is_resumable: bool,
    task_ttl: Option<Duration>,
    prepare: Option<PrepareFn>,
    version: Option<String>,
    aliases: Vec<String>,
    /// What was said of single arguments.
    argument_descriptions: Vec<(String, String)>,
    pub(crate) requirements: HandlerRequirements,
}

impl std::fmt::Debug for ToolSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolSpec").field("tool", &self.tool).finish_non_exhaustive()
    }
}

impl ToolSpec {
    /// A tool with this name. Its schemas come from the handler's types.
    pub fn new<A: 'static, H>(name: impl Into<String>, handler: H) -> ToolSpec
    where
        H: Handler<A>,
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
            // Some clients want to see `properties` even where there are none.
            None => json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        };
        let mut tool = Tool::new(name, RawJson::empty_object());
        tool.output_schema = output.map(|schema| RawJson::from(tidy(schema.to_value())));
        ToolSpec {
            tool,
            run,
            schema: None,
            generated_schema,
            has_explicit_output_schema: false,
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

    /// What it does, for a model.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> ToolSpec {
        self.tool.description = Some(description.into());
        self
    }

    /// What one of its arguments is, for a model; instead of what the comment on the handler's type says.
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

    /// A name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> ToolSpec {
        self.tool.title = Some(title.into());
        self
    }

    /// It changes nothing.
    #[must_use]
    pub fn read_only(mut self) -> ToolSpec {
        self.tool.hints.read_only = Some(true);
        self
    }

    /// It may destroy something.
    #[must_use]
    pub fn destructive(mut self) -> ToolSpec {
        self.tool.hints.destructive = Some(true);
        self
    }

    /// Twice is the same as once.
    #[must_use]
    pub fn idempotent(mut self) -> ToolSpec {
        self.tool.hints.idempotent = Some(true);
        self
    }

    /// It touches nothing beyond this server.
    #[must_use]
    pub fn closed_world(mut self) -> ToolSpec {
        self.tool.hints.open_world = Some(false);
        self
    }

    /// What to expect of a call, all at once: also what it is not. Replaces what was said before.
    ///
    /// ```
    /// # use toolgate::{ToolSpec, model::ToolHints};
    /// let add = ToolSpec::new("add_note", || async { "added" })
    ///     .hints(ToolHints { destructive: Some(false), ..ToolHints::default() });
    /// # assert!(toolgate::Server::new("s", "1").add_tool(add).build().is_ok());
    /// ```
    #[must_use]
    pub fn hints(mut self, hints: ToolHints) -> ToolSpec {
        self.tool.hints = hints;
        self
    }

    /// Its own version, apart from its server's: `1.0.0` unless said otherwise. For whoever runs the server;
    /// clients are not told.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> ToolSpec {
        self.version = Some(version.into());
        self
    }

    /// Another name under which it can be called: one that it had before, or one that others use for it. Lists do not
    /// show it. Who may call it, and what is counted, goes by its own name. No tool may have the name, nor the alias, of
    /// another.
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

    /// A picture for lists.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> ToolSpec {
        self.tool.icons.push(icon);
        self
    }

    /// `_meta`: a JSON object for clients that know what to do with it.
    #[must_use]
    pub fn meta(mut self, meta: Value) -> ToolSpec {
        self.tool.meta = Some(RawJson::from(meta));
        self
    }

    /// The JSON Schema of the arguments, instead of one made from the handler's type. Arguments are
    /// checked against it before the handler sees them.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> ToolSpec {
        self.schema = Some(schema);
        self
    }

    /// Puts arguments right before they are checked against their schema: a number that is too large, an alias. What
    /// this function gives is checked like what a client sends. It must not block, and is not told who calls.
    ///
    /// ```
    /// # use serde_json::{Value, json};
    /// # use toolgate::{Server, ToolSpec};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Page { n: u32 }
    /// let tool = ToolSpec::new("page", |page: Page| async move { page.n.to_string() }).prepare(|mut given: Value| {
    ///     if given["n"].is_null() {
    ///         given["n"] = json!(1);
    ///     }
    ///     given
    /// });
    /// # assert!(Server::new("s", "1").add_tool(tool).build().is_ok());
    /// ```
    #[must_use]
    pub fn prepare(mut self, prepare: impl Fn(Value) -> Value + Send + Sync + 'static) -> ToolSpec {
        self.prepare = Some(Arc::new(prepare));
        self
    }

    /// The JSON Schema of structured output, instead of one made from the handler's type.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> ToolSpec {
        self.tool.output_schema = Some(RawJson::from(schema));
        self.has_explicit_output_schema = true;
        self
    }

    /// How long a call may take, questions to the client not counted.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> ToolSpec {
        self.timeout = Some(timeout);
        self
    }

    /// Refuses clients that cannot do this, before the handler starts.
    #[must_use]
    pub fn requires(mut self, need: ClientCapability) -> ToolSpec {
        self.required_capabilities.push(need);
        self
    }

    /// Whether calls run as tasks: work that goes on while the client does something else, and comes back for the
    /// result. Forbidden unless said otherwise.
    ///
    /// A task may run as long as it is kept, unless the tool has a [`timeout`](ToolSpec::timeout) of its own.
    #[must_use]
    pub fn task(mut self, support: TaskSupport) -> ToolSpec {
        self.tool.task_support = support;
        self
    }

    /// A call becomes a task where its handler says so with [`Context::defer`](crate::Context::defer), and asks its
    /// questions before that as any call does. A client that asks for a task gets it at once.
    #[must_use]
    pub fn task_deferrable(mut self) -> ToolSpec {
        if self.tool.task_support == TaskSupport::Forbidden {
            self.tool.task_support = TaskSupport::Optional;
        }
        self.is_deferrable = true;
        self
    }

    /// A task whose process ended before it was done is run again by another one, up to three times, with the
    /// answers and the results of its [steps](crate::Context::step) so far. Without this such a task has failed.
    #[must_use]
    pub fn resumable(mut self) -> ToolSpec {
        self.is_resumable = true;
        self
    }

    /// How long a task of it is kept from its beginning, its result included, unless the client says otherwise: instead
    /// of what the server says ([`Builder::task_ttl`](crate::Builder::task_ttl)). A year at most.
    #[must_use]
    pub fn task_ttl(mut self, ttl: Duration) -> ToolSpec {
        self.task_ttl = Some(ttl);
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.tool.name
    }

    /// What is kept of it, or what is wrong with it.
    pub(crate) fn build_entry(self) -> Result<ToolEntry, String> {
        let ToolSpec {
            mut tool,
            run,
            schema,
            generated_schema: generated,
            has_explicit_output_schema: output_by_hand,
            timeout,
            required_capabilities: needs,
            is_deferrable: later,
            is_resumable: resumable,
            task_ttl,
            prepare,
            version,
            aliases,
            argument_descriptions: hints,
            ..
        } = self;
        check_name(&tool.name)?;
        check_aliases(&tool.name, &aliases)?;
        check_icons(&tool.icons)?;
        let typed = schema.is_none();
        let checked = schema.clone().unwrap_or_else(|| generated.clone());
        let mut schema = schema.unwrap_or_else(|| tidy(generated));
        for (argument, description) in hints {
            match schema.get_mut("properties").and_then(|all| all.get_mut(&argument)) {
                Some(Value::Object(property)) => property.insert("description".into(), description.into()),
                _ => return Err(format!("`{argument}` is described, but is none of its arguments")),
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
        let check = ArgumentValidator::new(&checked, typed)
            .map_err(|error| format!("its input schema is wrong: {error}"))?;
        let output_check = match &tool.output_schema {
            Some(output) => {
                let check = ArgumentValidator::new(&output.to_value(), false);
                Some(check.map_err(|error| format!("its output schema is wrong: {error}"))?)
            }
            None => None,
        }
        .filter(|_| output_by_hand);
        for unread in check
            .unsupported_patterns()
            .iter()
            .chain(output_check.iter().flat_map(ArgumentValidator::unsupported_patterns))
        {
            tracing::warn!(tool = %tool.name, "{unread}");
        }
        let mirrors = header_params::parse_header_params(&schema)?;
        tool.input_schema = RawJson::from(schema);
        let tool = Arc::new(tool);
        Ok(ToolEntry {
            tool,
            run,
            validator: check,
            output_validator: output_check,
            header_params: mirrors,
            timeout,
            required_capabilities: needs,
            is_deferrable: later,
            is_resumable: resumable,
            task_ttl,
            prepare,
            version,
            aliases,
        })
    }
}

/// Names like any other, each said once.
fn check_aliases(name: &str, aliases: &[String]) -> Result<(), String> {
    for (place, alias) in aliases.iter().enumerate() {
        check_name(alias).map_err(|fault| format!("alias `{alias}`: {fault}"))?;
        if alias == name || aliases[..place].contains(alias) {
            return Err(format!("alias `{alias}`: it has this name already"));
        }
    }
    Ok(())
}

/// What every client takes: 1 to 128 letters, digits, `_`, `-` and `.`.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if fits && (1..=128).contains(&name.len()) {
        return Ok(());
    }
    Err("a name is 1 to 128 letters, digits, `_`, `-` and `.`".into())
}

/// Clients show icons: only what cannot run, and nothing that is a download of its own.
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
