//! Strict JSON text that is checked once and not copied.
//!
//! A message is checked once, when it arrives: grammar, UTF-8, depth, duplicate keys, finite numbers. From then on a
//! [`RawJson`] is a reference-counted slice of the received bytes, and a [`View`] borrows one value in it. A tree is
//! built only on request: reading messages of usual size is fast because no tree is built.
//!
//! This crate is independent of the protocol. It never panics on a peer's bytes, and it never parses leniently: if two
//! parsers disagree about a message, for example about which of two equal keys counts, a peer can bypass a check.

mod error;
mod number;
mod scan;
mod string;
mod view;

use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;

pub use error::{JsonError, JsonErrorKind};
pub use number::{write_f64, write_i64};
pub use scan::{Key, MemberVisitor, scan};
pub use string::{write_single_line, write_string};
pub use view::{Kind, View};

/// Limits for the size and depth of JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum length in bytes, whitespace included.
    pub max_bytes: usize,
    /// The maximum nesting of arrays and objects. Values above 127 count as 127, the limit of `serde_json`, so that
    /// checked text can always be deserialized.
    pub max_depth: usize,
}

impl Default for Limits {
    /// 4 MiB and 64 levels.
    fn default() -> Self {
        Self { max_bytes: 4 << 20, max_depth: 64 }
    }
}

/// Exactly one valid JSON value, without surrounding whitespace.
///
/// Cloning and slicing count references; the text is not copied. Whitespace *inside* the value is preserved.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Bytes);

/// Wraps bytes that are known to be one JSON value without surrounding whitespace; everything else relies on that. For the
/// writers of the protocol only, so it is not a method of [`RawJson`], which is part of the public API of other crates.
#[doc(hidden)]
pub fn raw_from_trusted(bytes: Vec<u8>) -> RawJson {
    RawJson(bytes.into())
}

/// Like [`raw_from_trusted`], for borrowed text.
#[doc(hidden)]
pub fn view_from_trusted(bytes: &[u8]) -> View<'_> {
    View::from_trusted(bytes)
}

impl RawJson {
    /// Checks a text against the default [`Limits`].
    pub fn parse(bytes: Bytes) -> Result<Self, JsonError> {
        Self::parse_with(bytes, &Limits::default())
    }

    /// Checks a text against `limits`.
    pub fn parse_with(bytes: Bytes, limits: &Limits) -> Result<Self, JsonError> {
        let value = scan(&bytes, limits, &mut ())?;
        if value.as_bytes().len() == bytes.len() {
            return Ok(Self(bytes));
        }
        Ok(slice_raw(&bytes, value))
    }

    /// Serializes a value.
    pub fn from_serializable<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|text| Self(text.into()))
    }

    /// Creates a JSON string.
    pub fn string(text: &str) -> Self {
        let mut out = Vec::with_capacity(text.len() + 2);
        write_string(&mut out, text);
        Self(out.into())
    }

    /// Creates a JSON number. Whole numbers are written without a fraction, and numbers that are not finite as `null`.
    pub fn number(number: f64) -> Self {
        let mut out = Vec::new();
        write_f64(&mut out, number);
        Self(out.into())
    }

    /// Creates `{}`.
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// Creates `null`.
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// Returns the text as bytes. Free, unlike [`RawJson::as_str`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text. Checks UTF-8 on each call, at memory speed: `Bytes` cannot record that they are UTF-8
    /// without unsafe code.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("RawJson is checked to be UTF-8 when it is created")
    }

    /// Returns the underlying bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Returns a view of the value.
    pub fn view(&self) -> View<'_> {
        View::from_trusted(&self.0)
    }

    /// Returns the part of this value that `view` refers to, without copying it. A view of another text is copied.
    pub fn slice(&self, view: View<'_>) -> Self {
        slice_raw(&self.0, view)
    }

    /// Deserializes the value.
    pub fn parse_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// Builds the tree of the value.
    pub fn to_value(&self) -> serde_json::Value {
        self.view().to_value()
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<&serde_json::Value> for RawJson {
    fn from(value: &serde_json::Value) -> Self {
        // `Value` has string keys and finite numbers only: `Display` writes compact JSON and does not fail.
        Self(value.to_string().into())
    }
}

impl From<serde_json::Value> for RawJson {
    fn from(value: serde_json::Value) -> Self {
        Self::from(&value)
    }
}

impl serde::Serialize for RawJson {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.view().serialize(serializer)
    }
}

/// Returns the part of `whole` that `view` refers to, sharing its bytes. A view of another text is copied.
pub fn slice_raw(whole: &Bytes, view: View<'_>) -> RawJson {
    let part = view.as_bytes();
    let outer = whole.as_ptr_range();
    let inner = part.as_ptr_range();
    // `slice_ref` panics on foreign bytes.
    if outer.start <= inner.start && inner.end <= outer.end {
        RawJson(whole.slice_ref(part))
    } else {
        view.to_raw()
    }
}

#[cfg(test)]
mod tests;
