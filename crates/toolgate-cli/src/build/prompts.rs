//! Builds prompts.

use std::sync::Arc;

use toolgate::model::PromptArgument;
use toolgate::{Context, PromptSpec};
use toolgate_sources::source::prompt::PromptTemplate;

use super::ServerBuild;
use super::argument_resolver::ArgumentResolver;
use super::resources::{ServerResources, TextArguments};
use crate::config;

impl ServerBuild<'_> {
    /// Returns `None` after reporting why the prompt cannot be built.
    pub(super) fn prompt_spec(
        &mut self,
        prompt: &config::Prompt,
        resources: &Arc<ServerResources>,
    ) -> Option<PromptSpec> {
        let names: Vec<&str> = prompt.arguments.names().collect();
        let template = match PromptTemplate::new(&prompt.messages, &names) {
            Ok(template) => Arc::new(template),
            Err(problems) => {
                let key = if prompt.node.get("messages").is_some() { "messages" } else { "" };
                self.report_problems(&prompt.node, key, problems);
                return None;
            }
        };
        let resolver = Arc::new(ArgumentResolver::for_text_arguments(&prompt.arguments));
        let (validator, resources) = (Arc::clone(&resolver), Arc::clone(resources));
        let mut spec = PromptSpec::new(&prompt.name, move |texts: TextArguments, cx: Context| {
            let (template, resolver, resources) =
                (Arc::clone(&template), Arc::clone(&resolver), Arc::clone(&resources));
            async move {
                let arguments = resolver.resolve(resolver.coerce_texts(texts.into_pairs())?, &cx)?;
                template.render(&cx, &arguments, &*resources).await
            }
        })
        .validate(move |texts| validator.check(texts));
        for argument in prompt.arguments.list.iter().filter(|argument| argument.origin.is_none()) {
            let text = |key: &str| argument.schema[key].as_str().map(str::to_owned);
            let mut described = PromptArgument::new(&argument.name);
            described.title = text("title");
            described.description = text("description");
            described.required = argument.is_required;
            spec = spec.argument(described);
        }
        if let Some(title) = &prompt.title {
            spec = spec.title(title);
        }
        if let Some(description) = &prompt.description {
            spec = spec.describe(description);
        }
        for completion in &prompt.completions {
            let complete = self.completion_fn(completion)?;
            spec = spec.complete(&completion.name, move |prefix, cx| complete(prefix, cx));
        }
        Some(spec)
    }
}
