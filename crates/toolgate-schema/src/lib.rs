//! JSON Schema for arguments and results of tools: small, bounded, and with faults that can be told.
//!
//! A schema is read once and becomes a [`Schema`], which judges any number of values. It is JSON Schema 2020-12 without
//! what it leaves to those who ask for it: `format` and `content…` are words for people here. What earlier drafts write
//! differently is understood too: `definitions`, `dependencies`, lists in `items` with `additionalItems`, flags for
//! `exclusiveMinimum`, `$recursiveRef`; and a `$schema` of draft 4 to 2019-09 decides about `id`, and about words beside a
//! `$ref`. References lead to places in the document, by pointer, `$anchor`, `$dynamicAnchor` and `$id`. Nothing is ever fetched: a
//! schema that refers to something else is refused. What describes schemas may be referred to, and is then checked by
//! the same rules that schemas are read with.
//!
//! Whatever schema and value are, checking ends: every node and every step of a [`Pattern`] counts, and a value that takes
//! too many is refused with words that say so.
//!
//! ```
//! use serde_json::json;
//! use toolgate_schema::Schema;
//!
//! let schema = Schema::new(&json!({ "properties": { "n": { "type": "integer", "minimum": 1 } } }))?;
//! assert!(schema.is_valid(&json!({ "n": 5 })));
//! let value = json!({ "n": 0 });
//! let faults = schema.faults(&value, 10);
//! assert_eq!(faults[0].place(), "/n");
//! assert_eq!(faults[0].to_string(), "0 is less than the minimum of 1");
//! # Ok::<(), toolgate_schema::Malformed>(())
//! ```
//!
//! Nothing in this crate does I/O, waits, reads a clock or logs.

mod compile;
mod equality;
mod index;
mod keywords;
mod number;
mod pattern;
mod types;
mod uri;
mod validate;
mod validation_error;

use std::fmt;

use serde_json::Value;

pub use pattern::{Pattern, PatternError, StepLimitExceeded};
pub use types::{Type, TypeSet};
pub use validation_error::{ValidationError, ValidationErrorKind};

use compile::CompiledSchema;
use validate::Validator;

/// A schema that is ready to judge values.
pub struct Schema(CompiledSchema);

/// Why something is no schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    pointer: String,
    message: String,
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// If it is none, or refers to something outside itself.
    pub fn new(schema: &Value) -> Result<Schema, SchemaError> {
        Schema::with_documents(schema, &[])
    }

    /// Reads a schema that may refer to others, which are given with their addresses.
    ///
    /// # Errors
    /// If one of them is none, or refers to something that is not there.
    pub fn with_documents(schema: &Value, others: &[(&str, &Value)]) -> Result<Schema, SchemaError> {
        compile::compile(schema, others).map(Schema)
    }

    /// Whether a value is right.
    #[must_use]
    pub fn is_valid(&self, value: &Value) -> bool {
        Validator::is_valid(&self.0, value)
    }

    /// What is wrong with a value, up to a number of faults but at least one. None if it is right.
    #[must_use]
    pub fn errors<'s, 'v>(&'s self, value: &'v Value, most: usize) -> Vec<ValidationError<'s, 'v>> {
        Validator::errors(&self.0, value, most.max(1))
    }

    /// What is wrong with a value first.
    ///
    /// # Errors
    /// If something is.
    pub fn validate<'s, 'v>(&'s self, value: &'v Value) -> Result<(), ValidationError<'s, 'v>> {
        match self.errors(value, 1).pop() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// What in the schema is not enforced, in words: patterns that are not known here. Values need not fit them.
    #[must_use]
    pub fn unsupported_patterns(&self) -> &[String] {
        &self.0.unsupported_patterns
    }
}

impl Schema {
    /// Whether it leads back to itself without a step into the value. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn has_cycle(&self) -> bool {
        self.0.nodes.iter().any(|node| node.is_cyclic)
    }
}

impl SchemaError {
    /// Where in the schema: a JSON pointer.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("nodes", &self.0.nodes.len()).finish_non_exhaustive()
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.trim_start_matches('/') {
            "" => f.write_str(&self.message),
            place => write!(f, "`{place}` {}", self.message),
        }
    }
}

impl std::error::Error for SchemaError {}
