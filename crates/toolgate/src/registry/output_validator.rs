//! Output validation: structured output is only sent if it matches the output schema that clients know.

use serde_json::Value;
use toolgate_wire::model::ToolOutput;

use super::ArgumentValidator;

/// Validates the structured output of a tool against its output schema.
#[derive(Debug)]
pub(crate) struct OutputValidator {
    validator: ArgumentValidator,
    when: ValidateWhen,
}

/// The output that has to be validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValidateWhen {
    Always,
    /// Only output with a `null`, which serde writes for a number that is not finite.
    HasNull,
    /// Only output that a layer may have replaced: the type of the handler's output guarantees the schema.
    MayBeReplaced,
}

impl OutputValidator {
    /// Creates the validator for a schema that was written by hand.
    ///
    /// # Errors
    /// If it is not a valid JSON Schema, or refers to another document.
    pub(crate) fn for_explicit(schema: &Value) -> Result<OutputValidator, String> {
        Ok(OutputValidator {
            validator: ArgumentValidator::for_output(schema, false)?,
            when: ValidateWhen::Always,
        })
    }

    /// Creates the validator for a schema that was generated from the output type. Most types guarantee the schema: no limits by
    /// attributes, and no number that may be infinite. A `format` is not checked, because types that have one guarantee it.
    ///
    /// # Errors
    /// As [`OutputValidator::for_explicit`].
    pub(crate) fn for_generated(schema: &Value) -> Result<OutputValidator, String> {
        let validator = ArgumentValidator::for_output(schema, true)?;
        let when = match validator.is_precheck_required() {
            true => ValidateWhen::Always,
            false if cfg!(feature = "validate") && has_float(schema) => ValidateWhen::HasNull,
            false => ValidateWhen::MayBeReplaced,
        };
        Ok(OutputValidator { validator, when })
    }

    /// Returns warnings about patterns that are not enforced.
    pub(crate) fn unsupported_patterns(&self) -> &[String] {
        self.validator.unsupported_patterns()
    }

    /// Returns the violation of the schema, if there is one. `has_layers`: a layer may have replaced the output.
    pub(crate) fn find_error(&self, output: &ToolOutput, has_layers: bool) -> Option<String> {
        if self.when == ValidateWhen::MayBeReplaced && !has_layers {
            return None;
        }
        let Some(structured) = &output.structured_content else {
            return Some("there is no structured content".into());
        };
        if self.when == ValidateWhen::HasNull && !has_layers && !structured.as_str().contains("null") {
            return None;
        }
        self.validator.find_errors(structured).map(|errors| errors.joined())
    }
}

/// Returns whether a schema has a number that may have a fraction and must not be `null`.
fn has_float(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            members.get("type").and_then(Value::as_str) == Some("number") || members.values().any(has_float)
        }
        Value::Array(items) => items.iter().any(has_float),
        _ => false,
    }
}
