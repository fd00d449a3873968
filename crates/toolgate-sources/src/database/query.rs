//! The description of one statement: its tool, arguments, result and limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolgate::schemars::JsonSchema;
use toolgate::schemars::generate::SchemaSettings;
use toolgate::{Context, ToolSpec};

use crate::source::sql::{QuerySource, SqlResultShape, SqlSpec};

/// The argument of a [client query](super::Database::client_query) that contains the statement.
const CLIENT_SQL_ARGUMENT: &str = "sql";

type ContextValueFn = Arc<dyn Fn(&Context) -> Option<Value> + Send + Sync>;
type ToolFn = Arc<dyn Fn(ToolSpec) -> ToolSpec + Send + Sync>;

/// A SQL statement that is served as a tool. Created by [`Database::query`](crate::Database::query).
#[derive(Clone)]
#[must_use]
pub struct Query {
    pub(super) name: String,
    pub(super) spec: SqlSpec,
    pub(super) arguments: Vec<QueryArgument>,
    customize: Vec<ToolFn>,
}

/// An argument of a statement.
#[derive(Clone)]
pub(super) struct QueryArgument {
    pub(super) name: String,
    pub(super) schema: Value,
    pub(super) is_required: bool,
    /// `None` if the client sends the value.
    pub(super) context_value: Option<ContextValueFn>,
}

impl Query {
    pub(super) fn new(name: String, query: QuerySource) -> Query {
        Query { name, spec: SqlSpec::new(query), arguments: Vec::new(), customize: Vec::new() }
    }

    pub(super) fn from_client(name: String) -> Query {
        let schema = json!({ "type": "string", "description": "A SQL statement that only reads" });
        Query::new(name, QuerySource::FromArgument(CLIENT_SQL_ARGUMENT.to_owned()))
            .arg(CLIENT_SQL_ARGUMENT, schema)
    }

    /// Sets the description, which tells models what the tool does.
    pub fn describe(self, description: impl Into<String>) -> Query {
        let description = description.into();
        self.tool(move |tool| tool.describe(&description))
    }

    /// Changes the tool in other ways: `.tool(|tool| tool.title("Find a customer").alias("search"))`.
    pub fn tool(mut self, customize: impl Fn(ToolSpec) -> ToolSpec + Send + Sync + 'static) -> Query {
        self.customize.push(Arc::new(customize));
        self
    }

    /// Adds an argument with its JSON Schema. It is required, unless the schema has a `default`.
    pub fn arg(self, name: impl Into<String>, schema: impl Into<Value>) -> Query {
        let schema = schema.into();
        let is_required = schema.get("default").is_none();
        self.add_argument(name.into(), schema, is_required, None)
    }

    /// Adds an argument with its JSON Schema that may be missing, and then is `NULL`.
    pub fn optional_arg(self, name: impl Into<String>, schema: impl Into<Value>) -> Query {
        self.add_argument(name.into(), schema.into(), false, None)
    }

    /// Adds the fields of a type as arguments. Their descriptions, limits and defaults are those of its
    /// [`JsonSchema`].
    ///
    /// ```
    /// use toolgate::schemars::{self, JsonSchema};
    /// use toolgate_sources::Query;
    ///
    /// #[derive(JsonSchema)]
    /// struct FindCustomer {
    ///     /// The beginning of the name
    ///     name: String,
    ///     /// The city, or all cities
    ///     city: Option<String>,
    /// }
    ///
    /// fn find_customer(query: Query) -> Query {
    ///     query.describe("Finds customers").args::<FindCustomer>()
    /// }
    /// ```
    pub fn args<T: JsonSchema>(mut self) -> Query {
        let mut settings = SchemaSettings::draft2020_12();
        settings.inline_subschemas = true;
        let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
        let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let is_required = required.iter().any(|required| required == name);
            self = self.add_argument(name.clone(), schema.clone(), is_required, None);
        }
        self
    }

    /// Adds an argument that clients neither see nor set: its value comes from the call, such as the tenant of the
    /// authenticated caller. A call for which there is no value, or one that does not match the schema, is rejected.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use toolgate_sources::Query;
    /// # fn configure(query: Query) -> Query {
    /// query.arg_from_context("tenant", json!({ "type": "string" }), |cx| cx.principal().attribute("tenant").cloned())
    /// # }
    /// ```
    pub fn arg_from_context(
        self,
        name: impl Into<String>,
        schema: impl Into<Value>,
        value: impl Fn(&Context) -> Option<Value> + Send + Sync + 'static,
    ) -> Query {
        self.add_argument(name.into(), schema.into(), true, Some(Arc::new(value)))
    }

    fn add_argument(
        mut self,
        name: String,
        schema: Value,
        is_required: bool,
        context_value: Option<ContextValueFn>,
    ) -> Query {
        self.arguments.push(QueryArgument { name, schema, is_required, context_value });
        self
    }

    /// Returns the first row as an object, instead of `{"rows": […]}`. No row is an error.
    pub fn one_row(mut self) -> Query {
        self.spec.result_shape = SqlResultShape::Row;
        self
    }

    /// Returns the first column of the first row as `{"value": …}`, instead of `{"rows": […]}`. No row is an error.
    pub fn one_value(mut self) -> Query {
        self.spec.result_shape = SqlResultShape::Value;
        self
    }

    /// Permits the statement to write. [`Database::allow_writes`](crate::Database::allow_writes) must permit it too.
    pub fn allow_writes(mut self) -> Query {
        self.spec.write = true;
        self
    }

    /// Limits the time of the statement; 5 seconds by default. It is then cancelled on the server.
    pub fn timeout(mut self, timeout: Duration) -> Query {
        self.spec.timeout = timeout;
        self
    }

    /// Limits the number of rows; 1000 by default. The result says that further rows were left out.
    pub fn max_rows(mut self, rows: usize) -> Query {
        self.spec.max_rows = rows;
        self
    }

    /// Limits the size of all rows; 1 MiB by default. The result says that further rows were left out.
    pub fn max_bytes(mut self, bytes: usize) -> Query {
        self.spec.max_bytes = bytes;
        self
    }

    /// Includes the database's own error messages in results. Otherwise they are only logged, and the result has a
    /// reference to the log line.
    pub fn expose_errors(mut self) -> Query {
        self.spec.expose_errors = true;
        self
    }

    pub(super) fn apply(&self, spec: ToolSpec) -> ToolSpec {
        self.customize.iter().fold(spec, |spec, customize| customize(spec))
    }

    /// The JSON Schema of the arguments that clients send.
    pub(super) fn visible_schema(&self) -> Value {
        object_schema(self.arguments.iter().filter(|argument| argument.context_value.is_none()))
    }

    /// The JSON Schema of all arguments.
    pub(super) fn full_schema(&self) -> Value {
        object_schema(self.arguments.iter())
    }
}

fn object_schema<'a>(arguments: impl Iterator<Item = &'a QueryArgument>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for argument in arguments {
        properties.insert(argument.name.clone(), argument.schema.clone());
        if argument.is_required {
            required.push(argument.name.as_str());
        }
    }
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<&str> = self.arguments.iter().map(|argument| argument.name.as_str()).collect();
        f.debug_struct("Query")
            .field("name", &self.name)
            .field("spec", &self.spec)
            .field("arguments", &arguments)
            .finish_non_exhaustive()
    }
}
