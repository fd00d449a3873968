//! The seven types of JSON Schema.

use std::fmt;

use serde_json::Value;

use crate::number;

/// A type of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are what JSON Schema calls them")]
#[repr(u8)]
pub enum Type {
    Null = 1,
    Boolean = 2,
    Integer = 4,
    Number = 8,
    String = 16,
    Array = 32,
    Object = 64,
}

/// A set of types.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TypeSet(u8);

const ALL_TYPES: [Type; 7] =
    [Type::Null, Type::Boolean, Type::Integer, Type::Number, Type::String, Type::Array, Type::Object];

impl Type {
    /// Returns the name of the type in a schema.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Type::Null => "null",
            Type::Boolean => "boolean",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::String => "string",
            Type::Array => "array",
            Type::Object => "object",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Type> {
        ALL_TYPES.into_iter().find(|one| one.as_str() == name)
    }
}

impl TypeSet {
    pub(crate) const ANY: TypeSet = TypeSet(0x7f);
    pub(crate) const NONE: TypeSet = TypeSet(0);

    pub(crate) fn with(self, one: Type) -> TypeSet {
        TypeSet(self.0 | one as u8)
    }

    #[inline]
    pub(crate) fn accepts(self, value: &Value) -> bool {
        let mask = match value {
            Value::Null => Type::Null as u8,
            Value::Bool(_) => Type::Boolean as u8,
            Value::String(_) => Type::String as u8,
            Value::Array(_) => Type::Array as u8,
            Value::Object(_) => Type::Object as u8,
            Value::Number(number) => {
                return self.0 & Type::Number as u8 != 0
                    || self.0 & Type::Integer as u8 != 0 && number::is_integer(number);
            }
        };
        self.0 & mask != 0
    }

    /// Iterates over the types, always in the same order.
    pub fn iter(self) -> impl Iterator<Item = Type> {
        ALL_TYPES.into_iter().filter(move |one| self.0 & *one as u8 != 0)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
