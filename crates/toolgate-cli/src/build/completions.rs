//! Completes the values of template variables and prompt arguments.

use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolgate::Context;
use toolgate_sources::source::ToolBackend;
use toolgate_sources::source::sql::SqlBackend;

use super::ServerBuild;
use crate::config::{Argument, Arguments, BackendConfig, Completion, CompletionKind, OutputConfig};

/// Returns the values that a prefix can be completed to.
pub(super) type CompletionFn =
    Arc<dyn Fn(String, Context) -> Pin<Box<dyn Future<Output = Vec<String>> + Send>> + Send + Sync>;

impl ServerBuild<'_> {
    /// Returns `None` after reporting why the backend cannot be built.
    pub(super) fn completion_fn(&mut self, completion: &Completion) -> Option<CompletionFn> {
        let (arguments, output, node) = (prefix_argument(), OutputConfig::Unspecified, &completion.node);
        match &completion.kind {
            CompletionKind::List(values) => Some(complete_from_list(values.clone())),
            CompletionKind::Backend(BackendConfig::Sql(sql)) => {
                self.build_sql_backend(sql, &arguments.full_schema(), &output, node).map(complete_from_sql)
            }
            CompletionKind::Backend(backend) => {
                self.build_backend(backend, &arguments, &output, node).map(complete_from_backend)
            }
        }
    }
}

/// The argument of a backend that completes: the text typed so far.
fn prefix_argument() -> Arguments {
    let prefix = Argument {
        name: "prefix".into(),
        schema: json!({ "type": "string" }),
        default: None,
        is_required: true,
        origin: None,
        clean: None,
    };
    Arguments { list: vec![prefix] }
}

fn prefix_map(prefix: String) -> Map<String, Value> {
    Map::from_iter([("prefix".to_owned(), Value::from(prefix))])
}

fn complete_from_list(values: Vec<String>) -> CompletionFn {
    let values = Arc::new(values);
    Arc::new(move |prefix, _| {
        let values = Arc::clone(&values);
        Box::pin(async move {
            let prefix = prefix.to_lowercase();
            values.iter().filter(|value| value.to_lowercase().starts_with(&prefix)).cloned().collect()
        })
    })
}

fn complete_from_sql(backend: Arc<SqlBackend>) -> CompletionFn {
    Arc::new(move |prefix, _| {
        let backend = Arc::clone(&backend);
        // An error is not useful while typing, so it results in an empty list.
        Box::pin(async move { backend.complete(&prefix_map(prefix)).await.unwrap_or_default() })
    })
}

fn complete_from_backend(backend: Arc<dyn ToolBackend>) -> CompletionFn {
    Arc::new(move |prefix, cx| {
        let backend = Arc::clone(&backend);
        Box::pin(async move {
            match backend.execute(&cx, &prefix_map(prefix)).await {
                Ok(output) if !output.is_error => match &output.structured_content {
                    Some(structured) => completion_values(&structured.to_value()),
                    None => {
                        let texts = output.content.iter().filter_map(|content| content.as_text());
                        texts
                            .flat_map(str::lines)
                            .filter(|line| !line.is_empty())
                            .map(str::to_owned)
                            .collect()
                    }
                },
                // An error is not useful while typing, so it results in an empty list.
                _ => Vec::new(),
            }
        })
    })
}

/// The values in the output of a backend: each item of a list, or the first column of each row.
fn completion_values(structured: &Value) -> Vec<String> {
    match structured {
        Value::Array(items) => items.iter().filter_map(first_text).collect(),
        Value::Object(object) => match object.values().find(|value| value.is_array()) {
            Some(list) => completion_values(list),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn first_text(item: &Value) -> Option<String> {
    match item {
        Value::Object(row) => row.values().next().and_then(first_text),
        Value::Array(row) => row.first().and_then(first_text),
        other => toolgate_sources::source::placeholders::argument_text(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_the_output_of_backends() {
        let check = |structured: Value| completion_values(&structured);
        assert_eq!(check(json!(["a", 1])), ["a", "1"]);
        assert_eq!(check(json!({ "rows": [{ "sku": "x", "n": 1 }, { "sku": "y" }] })), ["x", "y"]);
        assert_eq!(check(json!([["p", "q"]])), ["p"]);
        assert!(check(json!({ "a": 1 })).is_empty() && check(json!(null)).is_empty());
    }
}
