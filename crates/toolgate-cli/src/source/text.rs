//! Texts, plain and with arguments put in.

use std::io::{self, Write};

use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde_json::{Map, Value};
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError};

use super::{Act, Acting, Problem};

/// How much a template may do, and how long what it makes may be.
const FUEL: u64 = 100_000;
const MAX_TEXT: usize = 1024 * 1024;

/// The name that every template has in its own environment.
const NAME: &str = "text";

/// A text, always the same.
#[derive(Debug)]
pub(crate) struct TextAct(pub(crate) String);

impl Act for TextAct {
    fn act<'a>(&'a self, _: &'a Context, _: &'a Map<String, Value>) -> Acting<'a> {
        Box::pin(async { Ok(ToolOutput::text(self.0.clone())) })
    }
}

/// A text with arguments put in.
#[derive(Debug)]
pub(crate) struct TemplateAct(Page);

impl TemplateAct {
    pub(crate) fn new(text: &str, arguments: &Value) -> Result<TemplateAct, Vec<Problem>> {
        let known: Vec<&str> = arguments["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        let page =
            Page::new(text, &known, |_| {}).map_err(|said| vec![Problem { at: String::new(), said }])?;
        Ok(TemplateAct(page))
    }
}

impl Act for TemplateAct {
    fn act<'a>(&'a self, _: &'a Context, arguments: &'a Map<String, Value>) -> Acting<'a> {
        Box::pin(async { Ok(ToolOutput::text(self.0.fill(arguments)?)) })
    }
}

/// A template of MiniJinja: it reaches no file, no environment and no other template, and stops when it has done enough.
#[derive(Debug)]
pub(crate) struct Page {
    environment: Environment<'static>,
    /// What is known but may not be given: it is there as nothing.
    known: Vec<String>,
}

impl Page {
    /// Reads a template. `prepare` may give it functions of its own.
    ///
    /// # Errors
    /// If its grammar is wrong, or it names something that is not known. The line is told.
    pub(crate) fn new(
        text: &str,
        known: &[&str],
        prepare: impl FnOnce(&mut Environment<'static>),
    ) -> Result<Page, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        // What was not given leaves nothing behind.
        environment.set_formatter(|out, state, value| match value.is_none() {
            true => Ok(()),
            false => minijinja::escape_formatter(out, state, value),
        });
        prepare(&mut environment);
        if let Some(tag) = tags(text).find(|tag| ["include", "import", "from", "extends"].contains(tag)) {
            return Err(format!("a text reaches no other one: there is no `{tag}`"));
        }
        environment.add_template_owned(NAME, text.to_owned()).map_err(|error| line_of(&error))?;
        let template = environment.get_template(NAME).map_err(|error| line_of(&error))?;
        let globals: Vec<String> = environment.globals().map(|(name, _)| name.to_owned()).collect();
        let mut unknown: Vec<String> = template
            .undeclared_variables(false)
            .into_iter()
            .filter(|name| !known.contains(&name.as_str()) && !globals.contains(name))
            .collect();
        unknown.sort();
        if let Some(name) = unknown.first() {
            let line = text.lines().position(|line| line.contains(name.as_str())).map_or(1, |line| line + 1);
            return Err(format!("line {line} of the text: there is no argument `{name}`"));
        }
        Ok(Page { environment, known: known.iter().map(|&name| name.to_owned()).collect() })
    }

    /// The text with arguments put in, as they are.
    pub(crate) fn fill(&self, arguments: &Map<String, Value>) -> Result<String, HandlerError> {
        let mut values = arguments.clone();
        for name in &self.known {
            values.entry(name.clone()).or_insert(Value::Null);
        }
        let mut text = Limited(Vec::new());
        let template =
            self.environment.get_template(NAME).map_err(|error| HandlerError::new(line_of(&error)))?;
        let made = template.render_captured_to(minijinja::value::Serde(&values), &mut text).map(|_| ());
        if let Err(error) = made {
            let is_full = text.0.len() >= MAX_TEXT;
            let said = if is_full { "the text would be longer than 1 MiB".into() } else { line_of(&error) };
            return Err(HandlerError::new(said));
        }
        String::from_utf8(text.0).map_err(|_| HandlerError::new("the text is no text"))
    }
}

/// The first words of its tags.
fn tags(text: &str) -> impl Iterator<Item = &str> {
    let inner = text.split("{%").skip(1).map(|after| after.trim_start_matches(['-', '+']).trim_start());
    inner.map(|after| after.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default())
}

fn line_of(error: &minijinja::Error) -> String {
    let said = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    match error.line() {
        Some(line) => format!("line {line} of the text: {said}"),
        None => said,
    }
}

/// Takes so much and no more.
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEXT {
            self.0.resize(MAX_TEXT, 0);
            return Err(io::Error::other("too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fill(text: &str, arguments: &Value) -> Result<String, String> {
        let arguments = arguments.as_object().unwrap();
        let known: Vec<&str> = arguments.keys().map(String::as_str).collect();
        Page::new(text, &known, |_| {})?.fill(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_put_in_is_not_read_again() {
        let topic = "{{topic}} {{7*7}} ${7*7} <%= 7*7 %> {{#if x}} <b>";
        let text = fill("Write about {{ topic }}.", &json!({ "topic": topic })).unwrap();
        assert_eq!(text, format!("Write about {topic}."));
    }

    #[test]
    fn what_it_does_not_know_is_told_before_it_is_used() {
        assert_eq!(
            fill("Dear {{ name }},\n{{ greting }}", &json!({ "name": "Ada" })).unwrap_err(),
            "line 2 of the text: there is no argument `greting`"
        );
        assert!(fill("{{ x", &json!({ "x": 1 })).unwrap_err().contains("line 1"));
        assert!(fill("{% include 'x' %}", &json!({})).is_err());
        assert!(fill("{{ x | nothing }}", &json!({ "x": 1 })).is_err());
    }

    #[test]
    fn a_template_that_never_ends_is_stopped() {
        let long = "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}";
        assert!(fill(long, &json!({})).unwrap_err().contains("fuel"));
        let wide = "{% for a in range(900) %}{{ x }}{% endfor %}";
        assert!(fill(wide, &json!({ "x": "y".repeat(10_000) })).unwrap_err().contains("1 MiB"));
        let deep = "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}";
        assert!(fill(deep, &json!({})).is_err());
    }

    #[test]
    fn what_was_not_given_is_nothing() {
        let page = Page::new("{% if tone %}{{ tone }}{% else %}plain{% endif %}", &["tone"], |_| {}).unwrap();
        assert_eq!(page.fill(&Map::new()).unwrap(), "plain");
        let page = Page::new("<{{ tone }}>", &["tone"], |_| {}).unwrap();
        assert_eq!(page.fill(&Map::new()).unwrap(), "<>");
    }
}
