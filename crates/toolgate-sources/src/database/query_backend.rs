//! Runs a statement with its defaults and the arguments that come from the call.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::{Context, HandlerError};
use toolgate_schema::Schema;

use super::query::{Query, QueryArgument};
use crate::error::SourceProblem;
use crate::source::sql::{SqlBackend, SqlPool};
use crate::source::{BackendFuture, ToolBackend};

const READ_ONLY_MESSAGE: &str = "the statement writes, but the database is read-only; call `.allow_writes()`";

/// A backend that completes the arguments of a call before the statement runs.
pub(super) struct QueryBackend {
    sql: SqlBackend,
    /// Arguments with a default or from the call. Those from the call have a validator.
    completed: Vec<(QueryArgument, Option<Schema>)>,
}

impl QueryBackend {
    /// Validates a query, or returns all of its problems.
    pub(super) fn new(query: &Query, pool: &Arc<SqlPool>) -> Result<QueryBackend, Vec<SourceProblem>> {
        let problem = |message: String| SourceProblem::new(&query.name, message);
        let mut problems = Vec::new();
        let mut completed = Vec::new();
        for (index, argument) in query.arguments.iter().enumerate() {
            let name = &argument.name;
            if query.arguments[..index].iter().any(|earlier| earlier.name == *name) {
                problems.push(problem(format!("the argument `{name}` is added twice")));
            }
            match Schema::new(&argument.schema) {
                Ok(_) if argument.context_value.is_none() && argument.schema.get("default").is_none() => {}
                Ok(validator) => {
                    let validator = argument.context_value.is_some().then_some(validator);
                    completed.push((argument.clone(), validator));
                }
                Err(error) => problems.push(problem(format!("the schema of `{name}` is invalid: {error}"))),
            }
        }
        match SqlBackend::new(query.spec.clone(), Arc::clone(pool), &query.full_schema()) {
            Ok(sql) if problems.is_empty() => return Ok(QueryBackend { sql, completed }),
            Ok(_) => {}
            Err(invalid) => problems.extend(invalid.into_iter().map(|invalid| match invalid.path.as_str() {
                "write" if pool.is_read_only() => problem(READ_ONLY_MESSAGE.to_owned()),
                _ => problem(invalid.message),
            })),
        }
        Err(problems)
    }

    pub(super) fn sql(&self) -> &SqlBackend {
        &self.sql
    }

    /// Adds values from the call and defaults. A value that a client sends under the name of one from the call is
    /// replaced.
    fn complete(
        &self,
        cx: &Context,
        arguments: &Map<String, Value>,
    ) -> Result<Map<String, Value>, HandlerError> {
        let mut arguments = arguments.clone();
        for (argument, validator) in &self.completed {
            let name = &argument.name;
            if let Some(context_value) = &argument.context_value {
                let value = context_value(cx).ok_or_else(|| {
                    HandlerError::new(format!("this requires `{name}`, which the call does not have"))
                })?;
                if !validator.as_ref().is_some_and(|validator| validator.is_valid(&value)) {
                    return Err(HandlerError::new(format!(
                        "`{name}` of the call is not valid for this tool"
                    )));
                }
                arguments.insert(name.clone(), value);
            } else if let (false, Some(default)) =
                (arguments.contains_key(name), argument.schema.get("default"))
            {
                arguments.insert(name.clone(), default.clone());
            }
        }
        Ok(arguments)
    }
}

impl ToolBackend for QueryBackend {
    fn execute<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(async move {
            let arguments = self.complete(cx, arguments)?;
            self.sql.run(&arguments).await
        })
    }
}
