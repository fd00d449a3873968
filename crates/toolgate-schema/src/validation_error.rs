//! Validation errors, as data and as text.

use std::fmt;

use serde_json::{Number, Value};

use crate::types::TypeSet;

/// A value does not match its schema.
#[derive(Debug, Clone)]
pub struct ValidationError<'s, 'v> {
    pub(crate) pointer: String,
    pub(crate) value: &'v Value,
    pub(crate) kind: ValidationErrorKind<'s>,
}

/// The keyword that a value violates, and what it requires.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ValidationErrorKind<'s> {
    /// The value has none of these types.
    Type(TypeSet),
    /// The value is not one of the items of this array.
    Enum(&'s Value),
    /// The value is not equal to this.
    Const(&'s Value),
    /// The value is less than this.
    Minimum(&'s Number),
    /// The value is greater than this.
    Maximum(&'s Number),
    /// The value is less than or equal to this.
    ExclusiveMinimum(&'s Number),
    /// The value is greater than or equal to this.
    ExclusiveMaximum(&'s Number),
    /// The value is not a multiple of this.
    MultipleOf(&'s Number),
    /// The string has fewer characters.
    MinLength(u64),
    /// The string has more characters.
    MaxLength(u64),
    /// The string does not match this pattern.
    Pattern(&'s str),
    /// The string does not have this format.
    Format(&'static str),
    /// The array has fewer items.
    MinItems(u64),
    /// The array has more items.
    MaxItems(u64),
    /// Two items of the array are equal.
    UniqueItems,
    /// Too few or too many items match the schema of `contains`.
    Contains {
        /// The minimum number of matching items.
        min: u64,
        /// The maximum number of matching items.
        max: Option<u64>,
    },
    /// The object has fewer properties.
    MinProperties(u64),
    /// The object has more properties.
    MaxProperties(u64),
    /// This property is missing.
    Required(&'s str),
    /// These properties are not allowed.
    AdditionalProperties(Vec<String>),
    /// A property name is invalid, for the reason given.
    PropertyNames(String),
    /// These properties are not evaluated and not allowed.
    UnevaluatedProperties(Vec<String>),
    /// This many items are not evaluated and not allowed.
    UnevaluatedItems(usize),
    /// The value matches none of the schemas of `anyOf`. Describes them by constants, tags or types, unless one of them has none
    /// of these.
    AnyOf(Vec<String>),
    /// The value matches none of the schemas of `oneOf`, which are described as for `AnyOf`.
    OneOfNone(Vec<String>),
    /// The value matches more than one of the schemas of `oneOf`.
    OneOfMany,
    /// The value matches this schema of `not`.
    Not(&'s Value),
    /// The schema is `false`.
    FalseSchema,
    /// The value is not a valid schema, for the reason given.
    NotASchema(String),
    /// Validation exceeds the limit of steps or depth.
    LimitExceeded,
}

impl<'s, 'v> ValidationError<'s, 'v> {
    /// Returns the JSON pointer of the value.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> &'v Value {
        self.value
    }

    /// Returns the violated keyword.
    #[must_use]
    pub fn kind(&self) -> &ValidationErrorKind<'s> {
        &self.kind
    }

    /// Formats the error with a replacement for the value, which may be long or secret.
    #[must_use]
    pub fn message_with_value(&self, value: &str) -> String {
        let mut message = String::new();
        let _ = self.write_message(&mut message, &value);
        message
    }

    fn write_message(&self, f: &mut dyn fmt::Write, value: &dyn fmt::Display) -> fmt::Result {
        match &self.kind {
            ValidationErrorKind::Type(types) => {
                let names: Vec<String> = types.iter().map(|one| format!("\"{one}\"")).collect();
                let s = if names.len() == 1 { "" } else { "s" };
                write!(f, "{value} is not of type{s} {}", names.join(", "))
            }
            ValidationErrorKind::Enum(options) => write_options(f, value, options),
            ValidationErrorKind::Const(expected) => write!(f, "{expected} was expected"),
            ValidationErrorKind::Minimum(limit) => write!(f, "{value} is less than the minimum of {limit}"),
            ValidationErrorKind::Maximum(limit) => {
                write!(f, "{value} is greater than the maximum of {limit}")
            }
            ValidationErrorKind::ExclusiveMinimum(limit) => {
                write!(f, "{value} is less than or equal to the minimum of {limit}")
            }
            ValidationErrorKind::ExclusiveMaximum(limit) => {
                write!(f, "{value} is greater than or equal to the maximum of {limit}")
            }
            ValidationErrorKind::MultipleOf(of) => write!(f, "{value} is not a multiple of {of}"),
            ValidationErrorKind::MinLength(limit) => {
                write!(f, "{value} is shorter than {}", pluralize(*limit, "character"))
            }
            ValidationErrorKind::MaxLength(limit) => {
                write!(f, "{value} is longer than {}", pluralize(*limit, "character"))
            }
            ValidationErrorKind::Pattern(pattern) => write!(f, "{value} does not match \"{pattern}\""),
            ValidationErrorKind::Format(format) => write!(f, "{value} is not a \"{format}\""),
            ValidationErrorKind::MinItems(limit) => {
                write!(f, "{value} has less than {}", pluralize(*limit, "item"))
            }
            ValidationErrorKind::MaxItems(limit) => {
                write!(f, "{value} has more than {}", pluralize(*limit, "item"))
            }
            ValidationErrorKind::UniqueItems => write!(f, "{value} has non-unique elements"),
            ValidationErrorKind::Contains { min, max } => write_contains(f, value, *min, *max),
            ValidationErrorKind::MinProperties(limit) => {
                write!(f, "{value} has less than {}", property_count(*limit))
            }
            ValidationErrorKind::MaxProperties(limit) => {
                write!(f, "{value} has more than {}", property_count(*limit))
            }
            ValidationErrorKind::Required(name) => write!(f, "{name:?} is a required property"),
            ValidationErrorKind::AdditionalProperties(names) => {
                write!(f, "Additional properties are not allowed ({})", unexpected_names(names))
            }
            ValidationErrorKind::UnevaluatedProperties(names) => {
                write!(f, "Unevaluated properties are not allowed ({})", unexpected_names(names))
            }
            ValidationErrorKind::UnevaluatedItems(n) => {
                write!(f, "Unevaluated items are not allowed ({})", pluralize(*n as u64, "item"))
            }
            ValidationErrorKind::PropertyNames(reason) => f.write_str(reason),
            ValidationErrorKind::AnyOf(_) => {
                write!(f, "{value} is not valid under any of the schemas listed in the 'anyOf' keyword")
            }
            ValidationErrorKind::OneOfNone(_) => {
                write!(f, "{value} is not valid under any of the schemas listed in the 'oneOf' keyword")
            }
            ValidationErrorKind::OneOfMany => {
                write!(f, "{value} is valid under more than one of the schemas listed in the 'oneOf' keyword")
            }
            ValidationErrorKind::Not(schema) => write!(f, "{schema} is not allowed for {value}"),
            ValidationErrorKind::FalseSchema => write!(f, "False schema does not allow {value}"),
            ValidationErrorKind::NotASchema(reason) => {
                write!(f, "{value} is not a valid JSON Schema: {reason}")
            }
            ValidationErrorKind::LimitExceeded => {
                f.write_str("validation takes too many steps, or the value is nested too deeply")
            }
        }
    }
}

impl fmt::Display for ValidationError<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_message(f, self.value)
    }
}

impl std::error::Error for ValidationError<'_, '_> {}

/// Lists a few of the options.
fn write_options(f: &mut dyn fmt::Write, value: &dyn fmt::Display, options: &Value) -> fmt::Result {
    let options = options.as_array().map_or(&[][..], Vec::as_slice);
    let n_shown = if options.len() <= 3 { options.len() } else { 2 };
    write!(f, "{value} is not one of ")?;
    for (n, option) in options[..n_shown].iter().enumerate() {
        let before = match n {
            0 => "",
            n if n + 1 == options.len() => " or ",
            _ => ", ",
        };
        write!(f, "{before}{option}")?;
    }
    match options.len() - n_shown {
        0 => Ok(()),
        n_others => write!(f, " or {n_others} other candidates"),
    }
}

fn write_contains(
    f: &mut dyn fmt::Write,
    value: &dyn fmt::Display,
    min: u64,
    max: Option<u64>,
) -> fmt::Result {
    match (min, max) {
        (1, None) => write!(f, "None of {value} are valid under the given schema"),
        (min, None) => write!(f, "Less than {min} of {value} are valid under the given schema"),
        (min, Some(max)) => write!(f, "Not {min} to {max} of {value} are valid under the given schema"),
    }
}

fn pluralize(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn property_count(n: u64) -> String {
    format!("{n} propert{}", if n == 1 { "y" } else { "ies" })
}

fn unexpected_names(names: &[String]) -> String {
    let were = if names.len() == 1 { "was" } else { "were" };
    format!("'{}' {were} unexpected", names.join("', '"))
}
