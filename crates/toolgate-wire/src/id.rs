//! Request ids and progress tokens.
//!
//! Both are a string or an integer, chosen by the requester and returned unchanged, type included: `"1"` is not `1`.

use std::fmt;

use crate::json::{View, write_i64, write_string};

/// The id of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// An integer.
    Number(i64),
    /// A string, which may be empty.
    String(Box<str>),
}

impl RequestId {
    /// Reads an id: a string, or a number that is written as an integer and fits 64 bits. Returns `None` for anything
    /// else, since it could not be returned unchanged.
    pub fn read(value: View<'_>) -> Option<Self> {
        match value.as_i64() {
            Some(number) => Some(Self::Number(number)),
            None => value.as_string().map(|text| Self::String(text.into())),
        }
    }

    /// Appends the id as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => write_i64(out, *number),
            Self::String(text) => write_string(out, text),
        }
    }
}

/// Formats the id as JSON, so that `1` and `"1"` differ in logs.
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::new();
        self.write(&mut out);
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

impl From<i64> for RequestId {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for RequestId {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for RequestId {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

/// The token that identifies the progress notifications of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProgressToken(RequestId);

impl ProgressToken {
    /// Reads a token, by the rules of [`RequestId::read`].
    pub fn read(value: View<'_>) -> Option<Self> {
        RequestId::read(value).map(Self)
    }

    /// Appends the token as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// Formats the token as JSON.
impl fmt::Display for ProgressToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<RequestId> for ProgressToken {
    fn from(id: RequestId) -> Self {
        Self(id)
    }
}

impl From<ProgressToken> for RequestId {
    fn from(token: ProgressToken) -> Self {
        token.0
    }
}

impl From<i64> for ProgressToken {
    fn from(number: i64) -> Self {
        Self(number.into())
    }
}

impl From<&str> for ProgressToken {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for ProgressToken {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}
