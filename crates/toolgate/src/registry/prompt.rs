//! Prompts: how one is described, and what is kept of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::Schema;
use serde_json::Value;
use toolgate_wire::RawJson;
use toolgate_wire::model::{Icon, Prompt, PromptArgument};

use super::tool::{check_icons, check_name};
use super::{Keyed, ListEntry, View};
use crate::handler::{
    CompleteFn, Context, Handler, HandlerRequirements, IntoPrompt, PromptFn, erase_complete, erase_prompt,
    tidy,
};

/// A prompt as it is kept.
pub(crate) struct PromptEntry {
    pub(crate) prompt: Arc<Prompt>,
    pub(crate) run: PromptFn,
    pub(crate) validate: Option<PromptValidator>,
    pub(crate) completers: BTreeMap<String, CompleteFn>,
}

/// What is wrong with the arguments of a prompt, if something is.
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

/// The description of a prompt, to be given to a server.
///
/// ```
/// # use toolgate::{PromptSpec, Server};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Review {
///     /// The code to look at
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
    /// A prompt with this name. Its arguments are the fields of the handler's argument type.
    pub fn new<A: 'static, H>(name: impl Into<String>, handler: H) -> PromptSpec
    where
        H: Handler<A>,
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
        let prompt = Prompt { name, arguments, ..Prompt::default() };
        PromptSpec { prompt, run, validate: None, completers: BTreeMap::new(), requirements }
    }

    /// What it is for.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> PromptSpec {
        self.prompt.description = Some(description.into());
        self
    }

    /// A name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> PromptSpec {
        self.prompt.title = Some(title.into());
        self
    }

    /// An argument that the handler's type does not name, or another description of one that it does: for prompts whose
    /// arguments are known at run time only. Such a handler takes a map of texts.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use toolgate::{PromptSpec, Server, model::PromptArgument};
    /// let greet = PromptSpec::new("greet", |words: BTreeMap<String, String>| async move {
    ///     format!("Greet {}", words["name"])
    /// })
    /// .argument(PromptArgument { name: "name".into(), required: true, ..PromptArgument::default() });
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

    /// Looks at the arguments before the handler gets them: what it finds wrong is told to the client as a mistake of
    /// the call, not as a failure of the prompt. It must not block.
    ///
    /// ```
    /// # use toolgate::PromptSpec;
    /// let short = PromptSpec::new("poem", || async { "Write a poem" })
    ///     .check(|words| if words.len() < 9 { Ok(()) } else { Err("too many arguments".into()) });
    /// # assert!(toolgate::Server::new("demo", "1.0.0").add_prompt(short).build().is_ok());
    /// ```
    #[must_use]
    pub fn validate(
        mut self,
        check: impl Fn(&BTreeMap<String, String>) -> Result<(), String> + Send + Sync + 'static,
    ) -> PromptSpec {
        self.validate = Some(Box::new(check));
        self
    }

    /// A picture for lists.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> PromptSpec {
        self.prompt.icons.push(icon);
        self
    }

    /// `_meta`: a JSON object for clients that know what to do with it.
    #[must_use]
    pub fn meta(mut self, meta: Value) -> PromptSpec {
        self.prompt.meta = Some(RawJson::from(meta));
        self
    }

    /// How an argument could go on, given what is there so far.
    #[must_use]
    pub fn complete<F, Fut, I>(mut self, argument: impl Into<String>, complete: F) -> PromptSpec
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = I> + Send + 'static,
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.completers.insert(argument.into(), erase_complete(complete));
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.prompt.name
    }

    pub(crate) fn build_entry(self) -> Result<PromptEntry, String> {
        let PromptSpec { prompt, run, validate: check, completers, .. } = self;
        check_name(&prompt.name)?;
        check_icons(&prompt.icons)?;
        if let Some(unknown) =
            completers.keys().find(|name| !prompt.arguments.iter().any(|a| a.name == **name))
        {
            return Err(format!("it completes `{unknown}`, which is none of its arguments"));
        }
        Ok(PromptEntry { prompt: Arc::new(prompt), run, validate: check, completers })
    }
}

/// The properties of a schema as arguments of a prompt, required ones as they stand there.
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
        .map(|(name, property)| PromptArgument {
            name: name.clone(),
            title: text(property, "title"),
            description: text(property, "description"),
            required: required.contains(&name.as_str()),
        })
        .collect()
}
