//! Picks parts of an answer with an expression in the language of jq.
//!
//! An expression is written by whoever runs the server, what it looks at is not: so it runs beside the others, has a
//! deadline, and its result a limit. It reaches nothing but its input.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jaq_core::data::JustLut;
use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Vars, compile, load, unwrap_valr};
use jaq_json::Val;
use serde_json::Value;
use tokio::sync::Semaphore;
use toolgate::HandlerError;

type Data = JustLut<Val>;

/// What reaches beyond the input, or need not end.
const DISABLED_FUNCTIONS: [&str; 12] = [
    "env",
    "halt",
    "halt_error",
    "input",
    "inputs",
    "now",
    "debug",
    "debug_empty",
    "stderr",
    "stderr_empty",
    "localtime",
    "strflocaltime",
];

/// Expressions of one tool that run at the same time. One that does not end keeps its seat.
const MAX_CONCURRENT_RUNS: usize = 8;

/// An expression, ready to run.
#[derive(Clone)]
pub(super) struct JqFilter {
    filter: Arc<Filter<Data>>,
    permits: Arc<Semaphore>,
}

/// Falls when nobody waits any more; the expression looks between two results.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl JqFilter {
    pub(super) fn new(code: &str) -> Result<JqFilter, String> {
        if has_definition(code) {
            return Err("`def` is not available here".into());
        }
        let filter = match compile_filter(code) {
            Ok(filter) => filter,
            // `{number, url: html_url}`: where a name alone can only mean a member, it does.
            Err(JqCompileError::UndefinedNames(names)) if code.trim_start().starts_with('{') => {
                let members: String = names.iter().map(|name| format!("def {name}: .{name}; ")).collect();
                compile_filter(&(members + code)).map_err(JqCompileError::into_message)?
            }
            Err(wrong) => return Err(wrong.into_message()),
        };
        Ok(JqFilter { filter: Arc::new(filter), permits: Arc::new(Semaphore::new(MAX_CONCURRENT_RUNS)) })
    }

    /// What the expression gives for this JSON text: one result as it is, several as a list, none as `null`.
    /// Cancel safe: yes, because the expression stops at its next result.
    pub(super) async fn run(
        &self,
        json: String,
        limit: usize,
        patience: Duration,
    ) -> Result<Value, HandlerError> {
        let seats = Arc::clone(&self.permits);
        // Nobody waits for a seat: they are only all taken if expressions do not end.
        let seat = seats
            .try_acquire_owned()
            .map_err(|_| HandlerError::new("busy: answers are still being picked"))?;
        let filter = Arc::clone(&self.filter);
        let stop = CancelOnDrop(Arc::default());
        let stopped = Arc::clone(&stop.0);
        let work = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            run_filter(&filter, &json, limit, &stopped)
        });
        match tokio::time::timeout(patience, work).await {
            Ok(Ok(picked)) => picked.map_err(HandlerError::new),
            Ok(Err(_)) => Err(HandlerError::new("the answer could not be picked")),
            Err(_) => Err(HandlerError::new("picking the answer took too long")),
        }
    }
}

fn run_filter(
    filter: &Filter<Data>,
    json: &str,
    limit: usize,
    stopped: &AtomicBool,
) -> Result<Value, String> {
    let input = jaq_json::read::parse_single(json.as_bytes()).map_err(|_| "the answer is not valid JSON")?;
    let context = Ctx::<Data>::new(&filter.lut, Vars::new([]));
    let mut picked = Vec::new();
    let mut size = 0;
    for result in filter.id.run((context, input)).map(unwrap_valr) {
        // Errors of jq name values of the answer: they are cut.
        let text =
            result.map_err(|error| truncate(&format!("the answer cannot be picked: {error}")))?.to_string();
        size += text.len();
        if size > limit {
            return Err("what was picked is larger than the limit".into());
        }
        if stopped.load(Ordering::Relaxed) {
            return Err("nobody waits".into());
        }
        picked.push(serde_json::from_str(&text).map_err(|_| "what was picked is not JSON")?);
    }
    Ok(match picked.len() {
        0 => Value::Null,
        1 => picked.remove(0),
        _ => Value::Array(picked),
    })
}

fn truncate(text: &str) -> String {
    text.chars().take(300).collect()
}

enum JqCompileError {
    /// These are not defined.
    UndefinedNames(Vec<String>),
    Message(String),
}

impl JqCompileError {
    fn into_message(self) -> String {
        match self {
            JqCompileError::UndefinedNames(names) => {
                format!("jq knows no `{}`; a member is `.{0}`", names.join("`, `"))
            }
            JqCompileError::Message(text) => text,
        }
    }
}

/// The definitions of jq, read once.
static JQ_DEFINITIONS: LazyLock<Vec<load::parse::Def<&'static str>>> = LazyLock::new(|| {
    let all = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    all.filter(|definition| !DISABLED_FUNCTIONS.contains(&definition.name)).collect()
});

/// Compiles with the definitions that are used, and those that they use: all of them would take as long as a hundred
/// expressions.
fn compile_filter(code: &str) -> Result<Filter<Data>, JqCompileError> {
    let mut used: HashSet<String> = HashSet::new();
    loop {
        let names = match compile_with(code, &used) {
            Err(JqCompileError::UndefinedNames(names)) => names,
            done => return done,
        };
        let there = |name: &String| JQ_DEFINITIONS.iter().any(|definition| definition.name == name);
        let (more, unknown): (Vec<String>, Vec<String>) = names.into_iter().partition(there);
        // What was given and is still missed has another number of arguments.
        let n_before = used.len();
        used.extend(more.iter().cloned());
        if used.len() == n_before {
            let missed = if unknown.is_empty() { more } else { unknown };
            return Err(JqCompileError::UndefinedNames(missed));
        }
    }
}

fn compile_with(code: &str, used: &HashSet<String>) -> Result<Filter<Data>, JqCompileError> {
    let definitions = JQ_DEFINITIONS.iter().filter(|definition| used.contains(definition.name)).cloned();
    let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let arena = Arena::default();
    let modules = Loader::new(definitions)
        .load(&arena, File { code, path: () })
        .map_err(|errors| JqCompileError::Message(load_error_message(errors)))?;
    let compiler =
        Compiler::default().with_funs(functions.filter(|(name, ..)| !DISABLED_FUNCTIONS.contains(name)));
    compiler.compile(modules).map_err(|errors| {
        let mut names = Vec::new();
        for (name, kind) in errors.into_iter().flat_map(|(_, errors)| errors) {
            match kind {
                compile::Undefined::Filter(_) => names.push(name.to_owned()),
                other => return JqCompileError::Message(format!("jq knows no {} `{name}`", other.as_str())),
            }
        }
        JqCompileError::UndefinedNames(names)
    })
}

fn load_error_message(errors: load::Errors<&str, ()>) -> String {
    let found = errors.into_iter().next().map(|(_, error)| match error {
        load::Error::Io(_) => "modules are not available here".to_owned(),
        load::Error::Lex(errors) => errors.into_iter().next().map_or_else(String::new, |(expected, at)| {
            format!("{} expected at `{}`", expected.as_str(), truncate(at))
        }),
        load::Error::Parse(errors) => errors.into_iter().next().map_or_else(String::new, |(expected, at)| {
            format!("{} expected at `{}`", expected.as_str(), truncate(at))
        }),
    });
    format!("this is not an expression of jq: {}", found.unwrap_or_default())
}

/// Whether functions are defined: outside of texts, there is the word.
fn has_definition(code: &str) -> bool {
    let mut outside = String::new();
    let mut letters = code.chars();
    let mut in_text = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if in_text => {
                letters.next();
            }
            '"' => {
                in_text = !in_text;
                outside.push(' ');
            }
            _ if in_text => {}
            other => outside.push(other),
        }
    }
    outside
        .split(|letter: char| !letter.is_alphanumeric() && !"_.$".contains(letter))
        .any(|word| word == "def")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn run_jq(code: &str, input: Value) -> Result<Value, String> {
        let pick = JqFilter::new(code)?;
        pick.run(input.to_string(), 10_000, Duration::from_secs(2)).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn expressions_give_what_jq_gives() {
        let issue = json!({"number": 7, "html_url": "https://x/7", "labels": [{"name": "a"}, {"name": "b"}]});
        for (code, wanted) in [
            (".number", json!(7)),
            ("{number, url: .html_url}", json!({"number": 7, "url": "https://x/7"})),
            ("{number, url: html_url}", json!({"number": 7, "url": "https://x/7"})),
            (".labels[].name", json!(["a", "b"])),
            ("[.labels[] | select(.name | test(\"^b\"))]", json!([{"name": "b"}])),
            ("empty", json!(null)),
            (".gone // \"def\"", json!("def")),
            (".def", json!(null)),
        ] {
            assert_eq!(run_jq(code, issue.clone()).await, Ok(wanted), "{code}");
        }
    }

    #[tokio::test]
    async fn what_is_wrong_is_said_and_nothing_is_reached() {
        for (code, wanted) in [
            ("{a", "expected"),
            (".a | gone", "jq knows no `gone`"),
            ("env", "jq knows no `env`"),
            ("$ENV", "variable"),
            ("input", "jq knows no `input`"),
            ("def f: f; f", "`def` is not available"),
            ("import \"a\" as a; .", "not available"),
            (".a.b", "cannot be picked"),
            ("range(10000)", "larger than the limit"),
        ] {
            let said = run_jq(code, json!({"a": 1})).await.unwrap_err();
            assert!(said.contains(wanted), "{code}: {said}");
        }
    }

    #[tokio::test]
    async fn an_expression_has_a_deadline() {
        let slow = JqFilter::new("[range(2000000)] | length").unwrap();
        let late = slow.run("1".into(), 100, Duration::from_millis(10)).await.unwrap_err();
        assert!(late.to_string().contains("too long"), "{late}");
    }
}
