//! What is wrong with a value, in data and in words.

use std::fmt;

use serde_json::{Number, Value};

use crate::kind::Types;

/// Something that is wrong with a value.
#[derive(Debug, Clone)]
pub struct Fault<'s, 'v> {
    pub(crate) place: String,
    pub(crate) value: &'v Value,
    pub(crate) kind: FaultKind<'s>,
}

/// What a value does not obey, and what it had to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FaultKind<'s> {
    /// It has none of these types.
    Type(Types),
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
    PropertyName(String),
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
    Never,
    /// It is no schema, and why.
    NoSchema(String),
    /// It takes too long to say whether it is right, or is nested too deep.
    TooLong,
}

impl<'s, 'v> Fault<'s, 'v> {
    /// Where in the value: a JSON pointer.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What is there.
    #[must_use]
    pub fn value(&self) -> &'v Value {
        self.value
    }

    /// What is wrong with it.
    #[must_use]
    pub fn kind(&self) -> &FaultKind<'s> {
        &self.kind
    }

    /// The fault in words, with others for the value: it may be long, or a secret.
    #[must_use]
    pub fn words(&self, value: &str) -> String {
        let mut words = String::new();
        let _ = self.write(&mut words, &value);
        words
    }

    fn write(&self, f: &mut dyn fmt::Write, value: &dyn fmt::Display) -> fmt::Result {
        match &self.kind {
            FaultKind::Type(types) => {
                let names: Vec<String> = types.iter().map(|one| format!("\"{one}\"")).collect();
                let s = if names.len() == 1 { "" } else { "s" };
                write!(f, "{value} is not of type{s} {}", names.join(", "))
            }
            FaultKind::Enum(options) => write_options(f, value, options),
            FaultKind::Const(wanted) => write!(f, "{wanted} was expected"),
            FaultKind::Minimum(limit) => write!(f, "{value} is less than the minimum of {limit}"),
            FaultKind::Maximum(limit) => write!(f, "{value} is greater than the maximum of {limit}"),
            FaultKind::ExclusiveMinimum(limit) => {
                write!(f, "{value} is less than or equal to the minimum of {limit}")
            }
            FaultKind::ExclusiveMaximum(limit) => {
                write!(f, "{value} is greater than or equal to the maximum of {limit}")
            }
            FaultKind::MultipleOf(of) => write!(f, "{value} is not a multiple of {of}"),
            FaultKind::MinLength(limit) => {
                write!(f, "{value} is shorter than {}", count(*limit, "character"))
            }
            FaultKind::MaxLength(limit) => write!(f, "{value} is longer than {}", count(*limit, "character")),
            FaultKind::Pattern(pattern) => write!(f, "{value} does not match \"{pattern}\""),
            FaultKind::MinItems(limit) => write!(f, "{value} has less than {}", count(*limit, "item")),
            FaultKind::MaxItems(limit) => write!(f, "{value} has more than {}", count(*limit, "item")),
            FaultKind::UniqueItems => write!(f, "{value} has non-unique elements"),
            FaultKind::Contains { min, max } => write_contains(f, value, *min, *max),
            FaultKind::MinProperties(limit) => write!(f, "{value} has less than {}", properties(*limit)),
            FaultKind::MaxProperties(limit) => write!(f, "{value} has more than {}", properties(*limit)),
            FaultKind::Required(name) => write!(f, "{name:?} is a required property"),
            FaultKind::AdditionalProperties(names) => {
                write!(f, "Additional properties are not allowed ({})", unexpected(names))
            }
            FaultKind::UnevaluatedProperties(names) => {
                write!(f, "Unevaluated properties are not allowed ({})", unexpected(names))
            }
            FaultKind::UnevaluatedItems(n) => {
                write!(f, "Unevaluated items are not allowed ({})", count(*n as u64, "item"))
            }
            FaultKind::PropertyName(why) => f.write_str(why),
            FaultKind::AnyOf => {
                write!(f, "{value} is not valid under any of the schemas listed in the 'anyOf' keyword")
            }
            FaultKind::OneOfNone => {
                write!(f, "{value} is not valid under any of the schemas listed in the 'oneOf' keyword")
            }
            FaultKind::OneOfMany => {
                write!(f, "{value} is valid under more than one of the schemas listed in the 'oneOf' keyword")
            }
            FaultKind::Not(schema) => write!(f, "{schema} is not allowed for {value}"),
            FaultKind::Never => write!(f, "False schema does not allow {value}"),
            FaultKind::NoSchema(why) => write!(f, "{value} is no JSON Schema: {why}"),
            FaultKind::TooLong => {
                f.write_str("it takes too many steps to check this, or it is nested too deep")
            }
        }
    }
}

impl fmt::Display for Fault<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, self.value)
    }
}

impl std::error::Error for Fault<'_, '_> {}

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

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn properties(n: u64) -> String {
    format!("{n} propert{}", if n == 1 { "y" } else { "ies" })
}

fn unexpected(names: &[String]) -> String {
    let were = if names.len() == 1 { "was" } else { "were" };
    format!("'{}' {were} unexpected", names.join("', '"))
}
