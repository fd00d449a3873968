//! Prompts: the spec that users write, and the entry in the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::Schema;
use serde_json::Value;
use toolgate_wire::RawJson;
use toolgate_wire::model::{Icon, Prompt, PromptArgument};

use super::tool::{check_icons, check_name};
use super::{Keyed, ListEntry, View};
use crate::handler::{
    CompleteFn, Context, Handler, HandlerRequirements, HandlerSignature, IntoCompletion, IntoPrompt,
    PromptFn, erase_complete, erase_prompt, tidy,
};

/// A prompt in the registry.
pub(crate) struct PromptEntry {
    pub(crate) prompt: Arc<Prompt>,
    pub(crate) run: PromptFn,
    pub(crate) validate: Option<PromptValidator>,
    pub(crate) completers: BTreeMap<String, CompleteFn>,
}

/// Checks the arguments of a prompt. The error message is for the client.
pub(crate) type PromptValidator = Box<dyn Fn(&BTreeMap<String, String>) -> Result<(), String> + Send + Sync>;

impl std::fmt::Debug for PromptEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PromptEntry").field("prompt", &self.prompt).finish_non_exhaustive()
    }
}

impl Keyed for PromptEntry {
    fn key(&self) -> &str {
        &self.prompt.name
    }
}

impl ListEntry for PromptEntry {
    type Item = Prompt;

    fn item(&self) -> Arc<Prompt> {
        Arc::clone(&self.prompt)
    }

    fn is_visible(&self, view: View<'_>) -> bool {
        view.shows_prompt(&self.prompt.name)
    }
}

/// A prompt: name, description, arguments and handler. Added with [`Builder::add_prompt`](crate::Builder::add_prompt) or
/// [`Server::add_prompt`](crate::Server::add_prompt).
///
/// ```
/// # use toolgate::{PromptSpec, Server};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Review {
///     /// The code to review
///     code: String,
/// }
///
/// let review = PromptSpec::new("review", |args: Review| async move { format!("Review this:\n{}", args.code) })
///     .describe("Reviews a piece of code");
/// let server = Server::new("demo", "1.0.0").add_prompt(review);
/// # assert!(server.build().is_ok());
/// ```
pub struct PromptSpec {
    prompt: Prompt,
    run: PromptFn,
    validate: Option<PromptValidator>,
    completers: BTreeMap<String, CompleteFn>,
    pub(crate) requirements: HandlerRequirements,
}

impl std::fmt::Debug for PromptSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PromptSpec").field("prompt", &self.prompt).finish_non_exhaustive()
    }
}

impl PromptSpec {
    /// Creates a prompt with this name. Its arguments are the fields of the handler's argument type.
    pub fn new<A: 'static, H>(name: impl Into<String>, handler: H) -> PromptSpec
    where
        H: HandlerSignature<A> + Handler<A>,
        H::Output: IntoPrompt,
    {
        PromptSpec::from_parts(name.into(), erase_prompt(handler), H::schema(), H::requirements())
    }

    fn from_parts(
        name: String,
        run: PromptFn,
        input: Option<Schema>,
        requirements: HandlerRequirements,
    ) -> PromptSpec {
        let arguments = input.map(|schema| arguments_of(&tidy(schema.to_value()))).unwrap_or_default();
        let prompt = Prompt::new(name).with_arguments(arguments);
        PromptSpec { prompt, run, validate: None, completers: BTreeMap::new(), requirements }
    }

    /// Sets the description.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> PromptSpec {
        self.prompt.description = Some(description.into());
        self
    }

    /// Sets the display name.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> PromptSpec {
        self.prompt.title = Some(title.into());
        self
    }

    /// Adds an argument, or replaces the one with the same name. For prompts whose arguments are only known at run time; their
    /// handler takes a map of strings.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use toolgate::{PromptSpec, Server, model::PromptArgument};
    /// let greet = PromptSpec::new("greet", |arguments: BTreeMap<String, String>| async move {
    ///     format!("Greet {}", arguments["name"])
    /// })
    /// .argument(PromptArgument::required("name"));
    /// # assert!(Server::new("demo", "1.0.0").add_prompt(greet).build().is_ok());
    /// ```
    #[must_use]
    pub fn argument(mut self, argument: PromptArgument) -> PromptSpec {
        match self.prompt.arguments.iter_mut().find(|known| known.name == argument.name) {
            Some(known) => *known = argument,
            None => self.prompt.arguments.push(argument),
        }
        self
    }

    /// Sets a function that validates the arguments before the handler runs. Its error is reported as invalid params, not as a
    /// failure of the prompt. The function must not block.
    ///
    /// ```
    /// # use toolgate::PromptSpec;
    /// let short = PromptSpec::new("poem", || async { "Write a poem" })
    ///     .validate(|arguments| if arguments.len() < 9 { Ok(()) } else { Err("too many arguments".into()) });
    /// # assert!(toolgate::Server::new("demo", "1.0.0").add_prompt(short).build().is_ok());
    /// ```
    #[must_use]
    pub fn validate(
        mut self,
        validate: impl Fn(&BTreeMap<String, String>) -> Result<(), String> + Send + Sync + 'static,
    ) -> PromptSpec {
        self.validate = Some(Box::new(validate));
        self
    }

    /// Adds an icon.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> PromptSpec {
        self.prompt.icons.push(icon);
        self
    }

    /// Sets `_meta`, a JSON object with data for specific clients.
    #[must_use]
    pub fn meta(mut self, meta: Value) -> PromptSpec {
        self.prompt.meta = Some(RawJson::from(meta));
        self
    }

    /// Sets the completer of one argument: a function from the text typed so far to suggestions.
    #[must_use]
    pub fn complete<F, Fut, M>(mut self, argument: impl Into<String>, complete: F) -> PromptSpec
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCompletion<M>> + Send + 'static,
    {
        self.completers.insert(argument.into(), erase_complete(complete));
        self
    }

    /// Like [`PromptSpec::complete`], with an erased completer.
    pub(crate) fn with_completer(mut self, argument: &str, complete: CompleteFn) -> PromptSpec {
        self.completers.insert(argument.to_owned(), complete);
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.prompt.name
    }

    pub(crate) fn build_entry(self) -> Result<PromptEntry, String> {
        let PromptSpec { prompt, run, validate, completers, .. } = self;
        check_name(&prompt.name)?;
        check_icons(&prompt.icons)?;
        if let Some(unknown) =
            completers.keys().find(|name| !prompt.arguments.iter().any(|a| a.name == **name))
        {
            return Err(format!("it completes `{unknown}`, which is not one of its arguments"));
        }
        Ok(PromptEntry { prompt: Arc::new(prompt), run, validate, completers })
    }
}

/// Converts the properties of a schema into prompt arguments, in the same order.
fn arguments_of(schema: &Value) -> Vec<PromptArgument> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let text = |property: &Value, key: &str| property.get(key).and_then(Value::as_str).map(str::to_owned);
    properties
        .iter()
        .map(|(name, property)| {
            let mut argument = PromptArgument::new(name);
            argument.title = text(property, "title");
            argument.description = text(property, "description");
            argument.required = required.contains(&name.as_str());
            argument
        })
        .collect()
}
