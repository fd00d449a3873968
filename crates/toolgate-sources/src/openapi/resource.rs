//! Imported operations as resources and resource templates.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::{Context, HandlerError, Item, ResourceSpec, TemplateSpec};
use toolgate_schema::Schema;

use crate::source::ToolBackend;
use crate::source::openapi::{Operation, OperationKind};

/// The resource of a GET operation, or its template if it has arguments.
pub(super) fn operation_resource(
    operation: Operation,
    backend: Arc<dyn ToolBackend>,
    uri_scheme: &str,
) -> Item {
    let uri = operation.uri(uri_scheme);
    let Operation { name, title, description, input_schema, kind, .. } = operation;
    let reader = Arc::new(ResourceReader::new(backend, input_schema));
    if kind == OperationKind::Resource {
        let mut spec = ResourceSpec::new(uri, move |cx: Context| {
            let reader = Arc::clone(&reader);
            async move { reader.read(&cx, Map::new()).await }
        })
        .name(name);
        if let Some(title) = title {
            spec = spec.title(title);
        }
        if let Some(description) = description {
            spec = spec.describe(description);
        }
        return spec.into();
    }
    let mut spec = TemplateSpec::new(uri, move |variables: Map<String, Value>, cx: Context| {
        let reader = Arc::clone(&reader);
        async move { reader.read(&cx, variables).await }
    })
    .name(name);
    if let Some(title) = title {
        spec = spec.title(title);
    }
    if let Some(description) = description {
        spec = spec.describe(description);
    }
    spec.into()
}

/// Reads the response of an operation as text.
struct ResourceReader {
    backend: Arc<dyn ToolBackend>,
    schema: Value,
    /// `None` if the schema cannot be compiled; the API then validates the arguments alone.
    validator: Option<Schema>,
}

impl ResourceReader {
    fn new(backend: Arc<dyn ToolBackend>, schema: Value) -> ResourceReader {
        let validator = Schema::new(&schema).ok();
        ResourceReader { backend, schema, validator }
    }

    /// Returns `None` if the variables of the URI are invalid or identify no resource.
    async fn read(
        &self,
        cx: &Context,
        variables: Map<String, Value>,
    ) -> Result<Option<String>, HandlerError> {
        let typed = variables.into_iter().map(|(name, value)| {
            let value = parse_variable(value, &self.schema["properties"][&name]);
            (name, value)
        });
        let arguments = Value::Object(typed.collect());
        if self.validator.as_ref().is_some_and(|validator| !validator.is_valid(&arguments)) {
            return Ok(None);
        }
        let Value::Object(arguments) = arguments else { return Ok(None) };
        let Some(output) = self.backend.read(cx, &arguments).await? else { return Ok(None) };
        let texts: Vec<&str> = output.content.iter().filter_map(|content| content.as_text()).collect();
        let text = texts.join("\n");
        if output.is_error { Err(HandlerError::new(text)) } else { Ok(Some(text)) }
    }
}

/// Converts the text of a URI variable to the type of its schema, if it has that form.
fn parse_variable(value: Value, schema: &Value) -> Value {
    let Value::String(text) = &value else { return value };
    let parsed: Option<Value> = match schema["type"].as_str() {
        Some("integer") => text.parse::<i64>().ok().map(Value::from),
        Some("number") => text.parse::<f64>().ok().map(Value::from),
        Some("boolean") => text.parse::<bool>().ok().map(Value::from),
        Some("array" | "object") => serde_json::from_str(text).ok(),
        _ => None,
    };
    parsed.unwrap_or(value)
}
