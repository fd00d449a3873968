//! JSON Schema validation for arguments and results of tools: small, bounded, and with readable errors.
//!
//! A schema is compiled once into a [`Schema`], which validates any number of values. It implements JSON Schema
//! 2020-12, without the parts that the specification makes optional: `content…` are annotations, and so is `format`,
//! unless [`Schema::with_formats`] turns on its validation. Keywords
//! of earlier drafts are supported too: `definitions`, `dependencies`, lists in `items` with `additionalItems`, flags
//! for `exclusiveMinimum`, `$recursiveRef`. A `$schema` of draft 4 to 2019-09 determines whether `id` is used and
//! whether keywords next to a `$ref` are ignored. References are resolved within the document, by pointer, `$anchor`,
//! `$dynamicAnchor` and `$id`. Nothing is ever fetched: a schema with an external reference is rejected. A reference to
//! a meta-schema is allowed, and is checked by the rules that apply when a schema is compiled.
//!
//! Validation always ends: every node and every step of a [`Pattern`] counts, and a value that exceeds the limit is rejected
//! with an error that says so.
//!
//! ```
//! use serde_json::json;
//! use toolgate_schema::Schema;
//!
//! let schema = Schema::new(&json!({ "properties": { "n": { "type": "integer", "minimum": 1 } } }))?;
//! assert!(schema.is_valid(&json!({ "n": 5 })));
//! let value = json!({ "n": 0 });
//! let errors = schema.errors(&value, 10);
//! assert_eq!(errors[0].pointer(), "/n");
//! assert_eq!(errors[0].to_string(), "0 is less than the minimum of 1");
//! # Ok::<(), toolgate_schema::SchemaError>(())
//! ```
//!
//! Nothing in this crate does I/O, waits, reads a clock or logs.

mod compile;
mod equality;
mod format;
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

use compile::{CompiledSchema, FormatMode};
use validate::Validator;

/// A compiled schema.
pub struct Schema(CompiledSchema);

/// Why a schema cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    pointer: String,
    message: String,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// If it is not a valid schema, or has an external reference.
    pub fn new(schema: &Value) -> Result<Schema, SchemaError> {
        Schema::with_documents(schema, &[])
    }

    /// Compiles a schema that may refer to other documents, which are given with their URIs.
    ///
    /// # Errors
    /// If one of them is not a valid schema, or has a reference that does not resolve.
    pub fn with_documents(schema: &Value, others: &[(&str, &Value)]) -> Result<Schema, SchemaError> {
        compile::compile(schema, others, FormatMode::Annotate).map(Schema)
    }

    /// Compiles a schema whose `format` is checked: `date`, `date-time` and `time` (RFC 3339), `email` (RFC 5321), `uri` (RFC
    /// 3986), `uuid` (RFC 4122), `ipv4` and `ipv6`. Other formats are annotations.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use toolgate_schema::Schema;
    /// let schema = Schema::with_formats(&json!({ "format": "date" }))?;
    /// assert!(schema.is_valid(&json!("2024-02-29")));
    /// assert!(!schema.is_valid(&json!("2023-02-29")));
    /// # Ok::<(), toolgate_schema::SchemaError>(())
    /// ```
    ///
    /// # Errors
    /// If it is not a valid schema, or has an external reference.
    pub fn with_formats(schema: &Value) -> Result<Schema, SchemaError> {
        compile::compile(schema, &[], FormatMode::Check).map(Schema)
    }

    /// Returns whether a value is valid.
    #[must_use]
    pub fn is_valid(&self, value: &Value) -> bool {
        Validator::is_valid(&self.0, value)
    }

    /// Returns up to `max` errors of a value, at least one if it is invalid.
    #[must_use]
    pub fn errors<'s, 'v>(&'s self, value: &'v Value, max: usize) -> Vec<ValidationError<'s, 'v>> {
        Validator::errors(&self.0, value, max.max(1))
    }

    /// Validates a value.
    ///
    /// # Errors
    /// The first error, if the value is invalid.
    pub fn validate<'s, 'v>(&'s self, value: &'v Value) -> Result<(), ValidationError<'s, 'v>> {
        match self.errors(value, 1).pop() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Describes the patterns of the schema that are unsupported and therefore not enforced.
    #[must_use]
    pub fn unsupported_patterns(&self) -> &[String] {
        &self.0.unsupported_patterns
    }
}

impl Schema {
    /// Returns whether the schema has a cycle that does not descend into the value. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn has_cycle(&self) -> bool {
        self.0.nodes.iter().any(|node| node.is_cyclic)
    }
}

impl SchemaError {
    /// Returns the JSON pointer of the error in the schema.
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
            pointer => write!(f, "`{pointer}` {}", self.message),
        }
    }
}

impl std::error::Error for SchemaError {}
