//! One execution of a statement, and its cached plan.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};

#[cfg(feature = "postgres")]
use super::postgres::StatementPlan;
use super::row_collector::RowLimits;
use super::statement::{AccessMode, Statement};
use crate::sync::lock;

/// One execution of a statement.
pub(super) struct QueryJob {
    pub(super) statement: Arc<Statement>,
    pub(super) arguments: Map<String, Value>,
    pub(super) access: AccessMode,
    /// The statement was sent by the client.
    pub(super) is_client_statement: bool,
    pub(super) limits: RowLimits,
    pub(super) timeout: Duration,
    pub(super) plan_cache: Arc<PlanCache>,
}

impl QueryJob {
    /// The value of an argument, or `null` if it is missing.
    pub(super) fn argument(&self, name: &str) -> &Value {
        self.arguments.get(name).unwrap_or(&Value::Null)
    }

    /// The statement's parameters with their values, each name once.
    pub(super) fn parameter_values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.statement.parameter_names().iter().map(|name| (name.as_str(), self.argument(name)))
    }
}

/// The prepared form of a PostgreSQL statement, cached between calls, and the schemas of the arguments.
#[derive(Default)]
pub(super) struct PlanCache {
    #[cfg(feature = "postgres")]
    plan: Mutex<Option<Arc<StatementPlan>>>,
    argument_schemas: Map<String, Value>,
}

impl PlanCache {
    /// `properties` are those of the argument schema.
    pub(super) fn new(properties: &Map<String, Value>) -> PlanCache {
        PlanCache {
            #[cfg(feature = "postgres")]
            plan: Mutex::default(),
            argument_schemas: properties.clone(),
        }
    }

    #[cfg(feature = "postgres")]
    pub(super) fn get(&self) -> Option<Arc<StatementPlan>> {
        lock(&self.plan).clone()
    }

    #[cfg(feature = "postgres")]
    pub(super) fn store(&self, plan: &Arc<StatementPlan>) {
        *lock(&self.plan) = Some(Arc::clone(plan));
    }

    #[cfg(feature = "postgres")]
    pub(super) fn clear(&self) {
        *lock(&self.plan) = None;
    }

    /// The PostgreSQL type for an argument, derived from its schema.
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
