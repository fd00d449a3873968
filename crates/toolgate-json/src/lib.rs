//! Strict JSON text that is checked once and never copied.
//!
//! A message is checked in one go when it arrives: grammar, UTF-8, depth,
//! duplicate keys, finite numbers. From then on a [`RawJson`] is a counted slice of
//! the bytes it came in, and a [`View`] a borrowed look at one value in it.
//! Trees are built only for those who ask, because at the size of a protocol
//! message not building them is what makes a reader fast.
//!
//! Nothing here knows the protocol. Nothing here panics on, or is lenient with,
//! bytes of a peer: two readers that disagree about a message (which of two
//! equal keys counts, say) are how a check is walked around.

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

/// How large and how deep a JSON text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest text in bytes, white space included.
    pub max_bytes: usize,
    /// The most arrays and objects inside one another. Values above 127 count
    /// as 127, the depth at which `serde_json` stops, so that every checked
    /// text can also be read into a type.
    pub max_depth: usize,
}

impl Default for Limits {
    /// 4 MiB and 64 levels.
    fn default() -> Self {
        Self { max_bytes: 4 << 20, max_depth: 64 }
    }
}

/// Exactly one valid JSON value, without white space around it.
///
/// Cloning and slicing count references; the text is never copied. White space
/// *inside* the value stays as it was received.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Bytes);

/// Takes the word of the writers of the protocol that `bytes` are one JSON value,
/// without white space around it: all else relies on it. Not a function of
/// [`RawJson`], which others hand on to their users.
#[doc(hidden)]
pub fn raw_from_trusted(bytes: Vec<u8>) -> RawJson {
    RawJson(bytes.into())
}

/// The same for a look at text that is lent.
#[doc(hidden)]
pub fn view_from_trusted(bytes: &[u8]) -> View<'_> {
    View::from_trusted(bytes)
}

impl RawJson {
    /// Checks a text against the default [`Limits`] and keeps it.
    pub fn parse(bytes: Bytes) -> Result<Self, JsonError> {
        Self::parse_with(bytes, &Limits::default())
    }

    /// Checks a text against `limits` and keeps it.
    pub fn parse_with(bytes: Bytes, limits: &Limits) -> Result<Self, JsonError> {
        let value = scan(&bytes, limits, &mut ())?;
        if value.as_bytes().len() == bytes.len() {
            return Ok(Self(bytes));
        }
        Ok(slice_raw(&bytes, value))
    }

    /// The JSON of any value that can be serialized.
    pub fn from_serializable<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|text| Self(text.into()))
    }

    /// A JSON string.
    pub fn string(text: &str) -> Self {
        let mut out = Vec::with_capacity(text.len() + 2);
        write_string(&mut out, text);
        Self(out.into())
    }

    /// A JSON number; a whole one is written without a fraction, and one that
    /// is not finite, for which JSON has no form, as `null`.
    pub fn number(number: f64) -> Self {
        let mut out = Vec::new();
        write_f64(&mut out, number);
        Self(out.into())
    }

    /// `{}`
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// `null`
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// The text as bytes. Costs nothing, so prefer it to [`RawJson::as_str`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text. Checks UTF-8 anew on each call, at memory speed: counted
    /// bytes cannot remember that they are text without unsafe code.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a Raw was checked to be UTF-8 when it was made")
    }

    /// The counted bytes themselves.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// A borrowed look at the value.
    pub fn view(&self) -> View<'_> {
        View::from_trusted(&self.0)
    }

    /// The part of this value that `view` looks at, without copying it. A view
    /// of another text is copied instead.
    pub fn slice(&self, view: View<'_>) -> Self {
        slice_raw(&self.0, view)
    }

    /// Reads the value into a type.
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
        // `Value` has string keys and finite numbers only: `Display` writes
        // compact JSON and has no error of its own.
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

/// The part of `whole` that `view` looks at, as counted bytes. A view of
/// another text is copied instead.
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
