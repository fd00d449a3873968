//! One execution of a statement, and its cached plan.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};

use super::postgres::StatementPlan;
use super::row_collector::RowLimits;
use super::statement::{AccessMode, Statement};
use crate::sync::lock;

/// What is to be run.
pub(super) struct QueryJob {
    pub(super) statement: Arc<Statement>,
    pub(super) arguments: Map<String, Value>,
    pub(super) access: AccessMode,
    /// The statement came from the client.
    pub(super) is_client_statement: bool,
    pub(super) limits: RowLimits,
    pub(super) timeout: Duration,
    pub(super) plan_cache: Arc<PlanCache>,
}

impl QueryJob {
    /// The value of an argument; one that was not given is nothing.
    pub(super) fn argument(&self, name: &str) -> &Value {
        self.arguments.get(name).unwrap_or(&Value::Null)
    }

    /// The values of the statement's parameters, each once.
    pub(super) fn parameter_values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.statement.parameter_names().iter().map(|name| (name.as_str(), self.argument(name)))
    }
}

/// What PostgreSQL said about a statement, kept between calls; and what the arguments say of themselves.
#[derive(Default)]
pub(super) struct PlanCache {
    plan: Mutex<Option<Arc<StatementPlan>>>,
    argument_schemas: Map<String, Value>,
}

impl PlanCache {
    /// `properties` are those of the arguments' schema.
    pub(super) fn new(properties: &Map<String, Value>) -> PlanCache {
        PlanCache { plan: Mutex::default(), argument_schemas: properties.clone() }
    }

    pub(super) fn get(&self) -> Option<Arc<StatementPlan>> {
        lock(&self.plan).clone()
    }

    pub(super) fn store(&self, plan: &Arc<StatementPlan>) {
        *lock(&self.plan) = Some(Arc::clone(plan));
    }

    pub(super) fn clear(&self) {
        *lock(&self.plan) = None;
    }

    /// A type of PostgreSQL for an argument, by its schema.
    pub(super) fn type_hint(&self, name: &str) -> &'static str {
        let kind = self.argument_schemas.get(name).and_then(|schema| schema.get("type"));
        match kind.and_then(Value::as_str) {
            Some("integer") => "bigint",
            Some("number") => "numeric",
            Some("boolean") => "boolean",
            Some("array" | "object") => "jsonb",
            _ => "text",
        }
    }
}
