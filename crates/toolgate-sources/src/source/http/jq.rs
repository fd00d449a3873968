//! Selects parts of a response with a jq expression.
//!
//! The operator writes the expression, but the input comes from a backend. Therefore it runs on a blocking thread,
//! with a deadline and a limit on the size of its result. It has access to its input only.

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

/// Functions with access to more than the input, or that may not terminate.
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

/// Maximum number of concurrent runs per tool. A run that does not terminate keeps its permit.
const MAX_CONCURRENT_RUNS: usize = 8;

/// A compiled expression.
#[derive(Clone)]
pub(super) struct JqFilter {
    filter: Arc<Filter<Data>>,
    permits: Arc<Semaphore>,
}

/// Sets the flag when the caller stops waiting; the expression checks it between two results.
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
            // `{number, url: html_url}`: an undefined name in an object expression means the member of that name.
            Err(JqCompileError::UndefinedNames(names)) if code.trim_start().starts_with('{') => {
                let members: String = names.iter().map(|name| format!("def {name}: .{name}; ")).collect();
                compile_filter(&(members + code)).map_err(JqCompileError::into_message)?
            }
            Err(error) => return Err(error.into_message()),
        };
        Ok(JqFilter { filter: Arc::new(filter), permits: Arc::new(Semaphore::new(MAX_CONCURRENT_RUNS)) })
    }

    /// Runs the expression on a JSON text. One result is returned as it is, several as a list, none as `null`.
    ///
    /// Cancel safe: yes, because the expression stops at its next result.
    pub(super) async fn run(
        &self,
        json: String,
        limit: usize,
        timeout: Duration,
    ) -> Result<Value, HandlerError> {
        let permits = Arc::clone(&self.permits);
        // No waiting: all permits are taken only if expressions do not terminate.
        let permit = permits
            .try_acquire_owned()
            .map_err(|_| HandlerError::new("busy: too many `pick` expressions are running"))?;
        let filter = Arc::clone(&self.filter);
        let stop = CancelOnDrop(Arc::default());
        let stopped = Arc::clone(&stop.0);
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            run_filter(&filter, &json, limit, &stopped)
        });
        match tokio::time::timeout(timeout, work).await {
            Ok(Ok(results)) => results.map_err(HandlerError::new),
            Ok(Err(_)) => Err(HandlerError::new("the `pick` expression failed")),
            Err(_) => Err(HandlerError::new("the `pick` expression timed out")),
        }
    }
}

fn run_filter(
    filter: &Filter<Data>,
    json: &str,
    limit: usize,
    stopped: &AtomicBool,
) -> Result<Value, String> {
    let input =
        jaq_json::read::parse_single(json.as_bytes()).map_err(|_| "the response is not valid JSON")?;
    let context = Ctx::<Data>::new(&filter.lut, Vars::new([]));
    let mut results = Vec::new();
    let mut size = 0;
    for result in filter.id.run((context, input)).map(unwrap_valr) {
        // Errors of jq quote values of the response, so they are truncated.
        let text =
            result.map_err(|error| truncate(&format!("the `pick` expression failed: {error}")))?.to_string();
        size += text.len();
        if size > limit {
            return Err("the result of `pick` is larger than the limit".into());
        }
        if stopped.load(Ordering::Relaxed) {
            return Err("cancelled".into());
        }
        results.push(serde_json::from_str(&text).map_err(|_| "the result of `pick` is not JSON")?);
    }
    Ok(match results.len() {
        0 => Value::Null,
        1 => results.remove(0),
        _ => Value::Array(results),
    })
}

fn truncate(text: &str) -> String {
    text.chars().take(300).collect()
}

enum JqCompileError {
    /// The names that are not defined.
    UndefinedNames(Vec<String>),
    Message(String),
}

impl JqCompileError {
    fn into_message(self) -> String {
        match self {
            JqCompileError::UndefinedNames(names) => {
                format!("`{}` is not defined in jq; a member is `.{0}`", names.join("`, `"))
            }
            JqCompileError::Message(text) => text,
        }
    }
}

/// The standard definitions of jq, parsed once.
static JQ_DEFINITIONS: LazyLock<Vec<load::parse::Def<&'static str>>> = LazyLock::new(|| {
    let all = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    all.filter(|definition| !DISABLED_FUNCTIONS.contains(&definition.name)).collect()
});

/// Compiles with only the definitions that are used, directly or indirectly: compiling all of them takes as long as a
/// hundred expressions.
fn compile_filter(code: &str) -> Result<Filter<Data>, JqCompileError> {
    let mut used: HashSet<String> = HashSet::new();
    loop {
        let names = match compile_with(code, &used) {
            Err(JqCompileError::UndefinedNames(names)) => names,
            done => return done,
        };
        let is_defined = |name: &String| JQ_DEFINITIONS.iter().any(|definition| definition.name == name);
        let (more, unknown): (Vec<String>, Vec<String>) = names.into_iter().partition(is_defined);
        // A definition that was added and is still missing has another number of arguments.
        let n_before = used.len();
        used.extend(more.iter().cloned());
        if used.len() == n_before {
            let missing = if unknown.is_empty() { more } else { unknown };
            return Err(JqCompileError::UndefinedNames(missing));
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
                other => {
                    return JqCompileError::Message(format!(
                        "{} `{name}` is not defined in jq",
                        other.as_str()
                    ));
                }
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
    format!("not a valid jq expression: {}", found.unwrap_or_default())
}

/// Whether the code contains the keyword `def` outside of strings.
fn has_definition(code: &str) -> bool {
    let mut code_only = String::new();
    let mut characters = code.chars();
    let mut in_string = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' if in_string => {
                characters.next();
            }
            '"' => {
                in_string = !in_string;
                code_only.push(' ');
            }
            _ if in_string => {}
            other => code_only.push(other),
        }
    }
    code_only
        .split(|character: char| !character.is_alphanumeric() && !"_.$".contains(character))
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
    async fn expressions_evaluate_like_jq() {
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
    async fn errors_are_reported_and_io_functions_are_disabled() {
        for (code, wanted) in [
            ("{a", "expected"),
            (".a | gone", "`gone` is not defined in jq"),
            ("env", "`env` is not defined in jq"),
            ("$ENV", "variable"),
            ("input", "`input` is not defined in jq"),
            ("def f: f; f", "`def` is not available"),
            ("import \"a\" as a; .", "not available"),
            (".a.b", "the `pick` expression failed"),
            ("range(10000)", "larger than the limit"),
        ] {
            let message = run_jq(code, json!({"a": 1})).await.unwrap_err();
            assert!(message.contains(wanted), "{code}: {message}");
        }
    }

    #[tokio::test]
    async fn an_expression_has_a_deadline() {
        let filter = JqFilter::new("[range(2000000)] | length").unwrap();
        let error = filter.run("1".into(), 100, Duration::from_millis(10)).await.unwrap_err();
        assert!(error.to_string().contains("timed out"), "{error}");
    }
}
