//! What is wrong with a value, in data and in words.

use std::fmt;

use serde_json::{Number, Value};

use crate::types::TypeSet;

/// Something that is wrong with a value.
#[derive(Debug, Clone)]
pub struct ValidationError<'s, 'v> {
    pub(crate) pointer: String,
    pub(crate) value: &'v Value,
    pub(crate) kind: ValidationErrorKind<'s>,
}

/// What a value does not obey, and what it had to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ValidationErrorKind<'s> {
    /// It has none of these types.
    Type(TypeSet),
    /// It is none of these, which are an array.
    Enum(&'s Value),
    /// It is not this.
    Const(&'s Value),
    /// It is less.
    Minimum(&'s Number),
    /// It is more.
    Maximum(&'s Number),
    /// It is not more.
    ExclusiveMinimum(&'s Number),
    /// It is not less.
    ExclusiveMaximum(&'s Number),
    /// It is no multiple.
    MultipleOf(&'s Number),
    /// It has fewer characters.
    MinLength(u64),
    /// It has more characters.
    MaxLength(u64),
    /// It does not match this.
    Pattern(&'s str),
    /// It has fewer items.
    MinItems(u64),
    /// It has more items.
    MaxItems(u64),
    /// Two of its items are the same.
    UniqueItems,
    /// Too few or too many of its items are what some have to be.
    Contains {
        /// So many have to be.
        min: u64,
        /// No more may be.
        max: Option<u64>,
    },
    /// It has fewer members.
    MinProperties(u64),
    /// It has more members.
    MaxProperties(u64),
    /// This member is missing.
    Required(&'s str),
    /// These members are not known.
    AdditionalProperties(Vec<String>),
    /// The name of one of its members is wrong, and why.
    PropertyNames(String),
    /// No schema allows these members.
    UnevaluatedProperties(Vec<String>),
    /// No schema allows so many of its items.
    UnevaluatedItems(usize),
    /// It fits none of several schemas.
    AnyOf,
    /// It fits none of several schemas.
    OneOfNone,
    /// It fits more than one of several schemas.
    OneOfMany,
    /// It fits this schema.
    Not(&'s Value),
    /// Nothing may be here.
    FalseSchema,
    /// It is no schema, and why.
    NotASchema(String),
    /// It takes too long to say whether it is right, or is nested too deep.
    LimitExceeded,
}

impl<'s, 'v> ValidationError<'s, 'v> {
    /// Where in the value: a JSON pointer.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// What is there.
    #[must_use]
    pub fn value(&self) -> &'v Value {
        self.value
    }

    /// What is wrong with it.
    #[must_use]
    pub fn kind(&self) -> &ValidationErrorKind<'s> {
        &self.kind
    }

    /// The fault in words, with others for the value: it may be long, or a secret.
    #[must_use]
    pub fn message_with_value(&self, value: &str) -> String {
        let mut words = String::new();
        let _ = self.write_message(&mut words, &value);
        words
    }

    fn write_message(&self, f: &mut dyn fmt::Write, value: &dyn fmt::Display) -> fmt::Result {
        match &self.kind {
            ValidationErrorKind::Type(types) => {
                let names: Vec<String> = types.iter().map(|one| format!("\"{one}\"")).collect();
                let s = if names.len() == 1 { "" } else { "s" };
                write!(f, "{value} is not of type{s} {}", names.join(", "))
            }
            ValidationErrorKind::Enum(options) => write_options(f, value, options),
            ValidationErrorKind::Const(wanted) => write!(f, "{wanted} was expected"),
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
            ValidationErrorKind::PropertyNames(why) => f.write_str(why),
            ValidationErrorKind::AnyOf => {
                write!(f, "{value} is not valid under any of the schemas listed in the 'anyOf' keyword")
            }
            ValidationErrorKind::OneOfNone => {
                write!(f, "{value} is not valid under any of the schemas listed in the 'oneOf' keyword")
            }
            ValidationErrorKind::OneOfMany => {
                write!(f, "{value} is valid under more than one of the schemas listed in the 'oneOf' keyword")
            }
            ValidationErrorKind::Not(schema) => write!(f, "{schema} is not allowed for {value}"),
            ValidationErrorKind::FalseSchema => write!(f, "False schema does not allow {value}"),
            ValidationErrorKind::NotASchema(why) => write!(f, "{value} is not a valid JSON Schema: {why}"),
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

/// As many as help.
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

fn pluralize(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn property_count(n: u64) -> String {
    format!("{n} propert{}", if n == 1 { "y" } else { "ies" })
}

fn unexpected_names(names: &[String]) -> String {
    let were = if names.len() == 1 { "was" } else { "were" };
    format!("'{}' {were} unexpected", names.join("', '"))
}
