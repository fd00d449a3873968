//! Text tools: fixed text and templates.

use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde_json::{Map, Value};
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError};

use super::bounded_writer::BoundedWriter;
use super::{BackendFuture, Problem, ToolBackend};

/// Limits for the work and the output of a template.
const MAX_FUEL: u64 = 100_000;
const MAX_RENDERED_BYTES: usize = 1024 * 1024;

/// The name of the template in its own environment.
const TEMPLATE_NAME: &str = "text";

/// Returns a fixed text.
#[derive(Debug)]
pub struct TextBackend(pub String);

impl ToolBackend for TextBackend {
    fn execute<'a>(&'a self, _: &'a Context, _: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(async { Ok(ToolOutput::text(self.0.clone())) })
    }
}

/// Renders a template with the arguments.
#[derive(Debug)]
pub struct TemplateBackend(TextTemplate);

impl TemplateBackend {
    pub fn new(text: &str, arguments: &Value) -> Result<TemplateBackend, Vec<Problem>> {
        let known: Vec<&str> = arguments["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        let template = TextTemplate::new(text, &known, |_| {})
            .map_err(|message| vec![Problem { path: String::new(), message }])?;
        Ok(TemplateBackend(template))
    }
}

impl ToolBackend for TemplateBackend {
    fn execute<'a>(&'a self, _: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(async { Ok(ToolOutput::text(self.0.render(arguments)?)) })
    }
}

/// A MiniJinja template without access to files, the environment or other templates, and with limited fuel.
#[derive(Debug)]
pub struct TextTemplate {
    environment: Environment<'static>,
    /// Known arguments. Missing ones render as an empty string.
    argument_names: Vec<String>,
}

impl TextTemplate {
    /// Parses a template. `prepare` may add functions to its environment.
    ///
    /// # Errors
    /// A syntax error or an unknown name, with its line.
    pub fn new(
        text: &str,
        known: &[&str],
        prepare: impl FnOnce(&mut Environment<'static>),
    ) -> Result<TextTemplate, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(MAX_FUEL));
        // Missing arguments render as an empty string.
        environment.set_formatter(|out, state, value| match value.is_none() {
            true => Ok(()),
            false => minijinja::escape_formatter(out, state, value),
        });
        prepare(&mut environment);
        if let Some(tag) = tag_names(text).find(|tag| ["include", "import", "from", "extends"].contains(tag))
        {
            return Err(format!("`{tag}` is not supported: a template cannot use other templates"));
        }
        environment
            .add_template_owned(TEMPLATE_NAME, text.to_owned())
            .map_err(|error| template_error_message(&error))?;
        let template =
            environment.get_template(TEMPLATE_NAME).map_err(|error| template_error_message(&error))?;
        let globals: Vec<String> = environment.globals().map(|(name, _)| name.to_owned()).collect();
        let mut unknown: Vec<String> = template
            .undeclared_variables(false)
            .into_iter()
            .filter(|name| !known.contains(&name.as_str()) && !globals.contains(name))
            .collect();
        unknown.sort();
        if let Some(name) = unknown.first() {
            let line = text.lines().position(|line| line.contains(name.as_str())).map_or(1, |line| line + 1);
            return Err(format!("line {line}: unknown argument `{name}`"));
        }
        Ok(TextTemplate { environment, argument_names: known.iter().map(|&name| name.to_owned()).collect() })
    }

    /// Renders the template. Arguments are not escaped.
    pub fn render(&self, arguments: &Map<String, Value>) -> Result<String, HandlerError> {
        let mut values = arguments.clone();
        for name in &self.argument_names {
            values.entry(name.clone()).or_insert(Value::Null);
        }
        let mut text = BoundedWriter::new(MAX_RENDERED_BYTES);
        let template = self
            .environment
            .get_template(TEMPLATE_NAME)
            .map_err(|error| HandlerError::new(template_error_message(&error)))?;
        let result = template.render_captured_to(minijinja::value::Serde(&values), &mut text).map(|_| ());
        if let Err(error) = result {
            let message = if text.is_full() {
                "the output is longer than 1 MiB".into()
            } else {
                template_error_message(&error)
            };
            return Err(HandlerError::new(message));
        }
        String::from_utf8(text.take()).map_err(|_| HandlerError::new("the output is not valid UTF-8"))
    }
}

/// The keywords of all tags.
fn tag_names(text: &str) -> impl Iterator<Item = &str> {
    let inner = text.split("{%").skip(1).map(|after| after.trim_start_matches(['-', '+']).trim_start());
    inner.map(|after| after.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default())
}

fn template_error_message(error: &minijinja::Error) -> String {
    let message = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    match error.line() {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(text: &str, arguments: &Value) -> Result<String, String> {
        let arguments = arguments.as_object().unwrap();
        let known: Vec<&str> = arguments.keys().map(String::as_str).collect();
        TextTemplate::new(text, &known, |_| {})?.render(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn inserted_arguments_are_not_parsed() {
        let topic = "{{topic}} {{7*7}} ${7*7} <%= 7*7 %> {{#if x}} <b>";
        let text = render("Write about {{ topic }}.", &json!({ "topic": topic })).unwrap();
        assert_eq!(text, format!("Write about {topic}."));
    }

    #[test]
    fn unknown_names_are_errors_at_parse_time() {
        assert_eq!(
            render("Dear {{ name }},\n{{ greting }}", &json!({ "name": "Ada" })).unwrap_err(),
            "line 2: unknown argument `greting`"
        );
        assert!(render("{{ x", &json!({ "x": 1 })).unwrap_err().contains("line 1"));
        assert!(render("{% include 'x' %}", &json!({})).is_err());
        assert!(render("{{ x | nothing }}", &json!({ "x": 1 })).is_err());
    }

    #[test]
    fn an_endless_template_is_stopped() {
        let long = "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}";
        assert!(render(long, &json!({})).unwrap_err().contains("fuel"));
        let wide = "{% for a in range(900) %}{{ x }}{% endfor %}";
        assert!(render(wide, &json!({ "x": "y".repeat(10_000) })).unwrap_err().contains("1 MiB"));
        let deep = "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}";
        assert!(render(deep, &json!({})).is_err());
    }

    #[test]
    fn missing_arguments_render_as_nothing() {
        let template =
            TextTemplate::new("{% if tone %}{{ tone }}{% else %}plain{% endif %}", &["tone"], |_| {})
                .unwrap();
        assert_eq!(template.render(&Map::new()).unwrap(), "plain");
        let template = TextTemplate::new("<{{ tone }}>", &["tone"], |_| {}).unwrap();
        assert_eq!(template.render(&Map::new()).unwrap(), "<>");
    }
}
