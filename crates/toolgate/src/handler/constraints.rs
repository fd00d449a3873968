//! Argument validation beyond types: the constraints of `#[arg]` (ranges, lengths, patterns).
//!
//! Macro-generated code calls these functions. They apply to JSON arguments of tools and to text arguments of prompts and
//! templates, and produce the same messages as schema validation (`registry/validator.rs`). Traits define the meaning of
//! a constraint for a type; an empty `Option` satisfies every constraint.

use std::borrow::Cow;
use std::fmt;

/// A number, for `range`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`range` needs a number, and `{Self}` is not one",
    label = "not a number, nor an `Option` of one"
)]
pub trait Number {
    type Primitive: PartialOrd + fmt::Display + Copy;

    fn number(&self) -> Option<Self::Primitive>;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            type Primitive = $type;

            fn number(&self) -> Option<$type> {
                Some(*self)
            }
        }
    )*};
}
numbers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 }

impl<T: Number> Number for Option<T> {
    type Primitive = T::Primitive;

    fn number(&self) -> Option<T::Primitive> {
        self.as_ref().and_then(T::number)
    }
}

/// A string or list, for `min_len` and `max_len`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`min_len` and `max_len` need a string or a list, and `{Self}` is neither",
    label = "neither a `String` nor a `Vec`, nor an `Option` of one"
)]
pub trait HasLength {
    const UNIT: &'static str;

    fn length(&self) -> Option<usize>;
}

/// A string, for `pattern`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`pattern` needs a string, and `{Self}` is not one",
    label = "not a `String`, nor an `Option` of one"
)]
pub trait Text {
    fn text(&self) -> Option<&str>;
}

macro_rules! texts {
    ($($type:ty)*) => {$(
        impl HasLength for $type {
            const UNIT: &'static str = "characters";

            fn length(&self) -> Option<usize> {
                Some(self.chars().count())
            }
        }

        impl Text for $type {
            fn text(&self) -> Option<&str> {
                Some(self)
            }
        }
    )*};
}
texts! { String Box<str> Cow<'static, str> }

impl<T> HasLength for Vec<T> {
    const UNIT: &'static str = "items";

    fn length(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<T: HasLength> HasLength for Option<T> {
    const UNIT: &'static str = T::UNIT;

    fn length(&self) -> Option<usize> {
        self.as_ref().and_then(T::length)
    }
}

impl<T: Text> Text for Option<T> {
    fn text(&self) -> Option<&str> {
        self.as_ref().and_then(T::text)
    }
}

#[doc(hidden)]
pub fn at_least<N: Number>(name: &str, value: &N, min: N::Primitive) -> Result<(), String> {
    check_number(name, value, |number| *number >= min, format_args!("at least {min}"))
}

#[doc(hidden)]
pub fn at_most<N: Number>(name: &str, value: &N, max: N::Primitive) -> Result<(), String> {
    check_number(name, value, |number| *number <= max, format_args!("at most {max}"))
}

#[doc(hidden)]
pub fn below<N: Number>(name: &str, value: &N, end: N::Primitive) -> Result<(), String> {
    check_number(name, value, |number| *number < end, format_args!("less than {end}"))
}

/// NaN satisfies no constraint, because the comparison has to succeed.
fn check_number<N: Number>(
    name: &str,
    value: &N,
    fits: impl FnOnce(&N::Primitive) -> bool,
    expected: fmt::Arguments<'_>,
) -> Result<(), String> {
    match value.number() {
        Some(number) if !fits(&number) => {
            Err(format!("`{name}` must be {expected}, got the number {number}"))
        }
        _ => Ok(()),
    }
}

#[doc(hidden)]
pub fn min_len<M: HasLength>(name: &str, value: &M, min: usize) -> Result<(), String> {
    match value.length() {
        Some(length) if length < min => {
            Err(format!("`{name}` must have at least {min} {}, got {length}", M::UNIT))
        }
        _ => Ok(()),
    }
}

#[doc(hidden)]
pub fn max_len<M: HasLength>(name: &str, value: &M, max: usize) -> Result<(), String> {
    match value.length() {
        Some(length) if length > max => {
            Err(format!("`{name}` must have at most {max} {}, got {length}", M::UNIT))
        }
        _ => Ok(()),
    }
}

/// A regular expression of JSON Schema, compiled on first use.
#[doc(hidden)]
pub struct ArgumentPattern {
    text: &'static str,
    #[cfg(feature = "validate")]
    compiled: std::sync::OnceLock<Option<toolgate_schema::Pattern>>,
}

impl fmt::Debug for ArgumentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArgumentPattern").field(&self.text).finish()
    }
}

impl ArgumentPattern {
    #[must_use]
    pub const fn new(text: &'static str) -> ArgumentPattern {
        ArgumentPattern {
            text,
            #[cfg(feature = "validate")]
            compiled: std::sync::OnceLock::new(),
        }
    }

    /// Checks that a string matches. If the pattern is invalid, nothing matches.
    ///
    /// # Errors
    /// If it does not match; the message names the parameter.
    pub fn validate<T: Text>(&self, name: &str, value: &T) -> Result<(), String> {
        match value.text() {
            Some(text) if !self.fits(text) => Err(format!("`{name}` must match `{}`", self.text)),
            _ => Ok(()),
        }
    }

    #[cfg(feature = "validate")]
    fn fits(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| toolgate_schema::Pattern::new(self.text).ok());
        compiled.as_ref().is_some_and(|pattern| pattern.is_match(text) == Ok(true))
    }

    #[cfg(not(feature = "validate"))]
    fn fits(&self, _: &str) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_include_their_bounds() {
        assert_eq!(at_least("n", &1_u32, 1), Ok(()));
        assert_eq!(at_least("n", &0_u32, 1).unwrap_err(), "`n` must be at least 1, got the number 0");
        assert_eq!(at_most("n", &Some(9_i64), 9), Ok(()));
        assert_eq!(at_most("n", &Some(10_i64), 9).unwrap_err(), "`n` must be at most 9, got the number 10");
        assert_eq!(below("n", &1.0, 1.0).unwrap_err(), "`n` must be less than 1, got the number 1");
        assert!(at_most("n", &f64::NAN, 1.0).is_err() && at_least("n", &f64::NAN, 1.0).is_err());
        assert_eq!(at_least("n", &None::<u8>, 1), Ok(()));
        assert_eq!(min_len("t", &"äö".to_owned(), 2), Ok(()));
        assert_eq!(
            max_len("t", &"äöü".to_owned(), 2).unwrap_err(),
            "`t` must have at most 2 characters, got 3"
        );
        assert_eq!(min_len("l", &Vec::<u8>::new(), 1).unwrap_err(), "`l` must have at least 1 items, got 0");
    }

    #[test]
    #[cfg(feature = "validate")]
    fn an_invalid_pattern_never_matches() {
        let word = ArgumentPattern::new("^[a-z]+$");
        assert_eq!(word.validate("w", &"abc".to_owned()), Ok(()));
        assert_eq!(word.validate("w", &None::<String>), Ok(()));
        assert_eq!(word.validate("w", &"a b".to_owned()).unwrap_err(), "`w` must match `^[a-z]+$`");
        assert!(ArgumentPattern::new("(").validate("w", &"(".to_owned()).is_err());
    }
}
