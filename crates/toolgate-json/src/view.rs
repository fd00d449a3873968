//! A borrowed view of one checked JSON value.
//!
//! Access cannot fail, since the text is checked. Where the types do not express that ("this slice is UTF-8"), the code
//! falls back to an empty value instead of panicking. Values that are not requested are skipped, not parsed.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::RawJson;
use crate::number::read_number;
use crate::string::{find_backslash, skip_trusted_plain, unescape};

/// The six kinds of JSON values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// A borrowed view of one checked value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct View<'a> {
    /// One valid value, without surrounding whitespace.
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// `bytes` must have passed the scan, or be a value inside such bytes.
    pub(crate) fn from_trusted(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns a view of `{}`.
    pub fn empty_object() -> Self {
        Self::from_trusted(b"{}")
    }

    /// Returns the kind of the value.
    pub fn kind(&self) -> Kind {
        match self.bytes.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => Kind::Null,
        }
    }

    /// Returns the text of the value as bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns whether this is `null`.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self.bytes, [b'n', ..])
    }

    /// Returns whether this is an object.
    #[inline]
    pub fn is_object(&self) -> bool {
        matches!(self.bytes, [b'{', ..])
    }

    /// Returns the boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.kind() {
            Kind::Bool => Some(self.bytes == b"true"),
            _ => None,
        }
    }

    /// Returns the number, if it is written as an integer and fits. `1.0` and `1e2` are not integers: they would not be
    /// written back as they were received.
    pub fn as_i64(&self) -> Option<i64> {
        // A fast path, since nearly all ids are short.
        if self.bytes.len() <= 18
            && let Some(number) = parse_digits(self.bytes)
        {
            return Some(number);
        }
        self.number_text()?.parse().ok()
    }

    /// Returns the number, if it is written as an integer and fits.
    pub fn as_u64(&self) -> Option<u64> {
        self.number_text()?.parse().ok()
    }

    /// Returns the nearest double, if this is a number.
    pub fn as_f64(&self) -> Option<f64> {
        self.number_text()?.parse().ok()
    }

    /// Returns the string. Allocates only if it contains escapes.
    pub fn as_string(&self) -> Option<Cow<'a, str>> {
        match self.bytes {
            [b'"', inside @ .., b'"'] => Some(unescape(inside)),
            _ => None,
        }
    }

    /// Returns the items of an array; empty for other kinds.
    pub fn items(&self) -> impl Iterator<Item = View<'a>> + Clone + use<'a> {
        ValueIter::new(self.bytes, b'[')
    }

    /// Returns the members of an object; empty for other kinds.
    pub fn members(&self) -> impl Iterator<Item = (Cow<'a, str>, View<'a>)> + Clone + use<'a> {
        self.pairs().map(|(key, value)| (key.as_string().unwrap_or_default(), value))
    }

    /// Returns the value of a member. Scans the object: to find several members, iterate over [`View::members`] once.
    pub fn get(&self, key: &str) -> Option<View<'a>> {
        self.pairs().find(|(found, _)| found.eq_str(key)).map(|(_, value)| value)
    }

    /// Returns whether this is a string that is written exactly as `expected`, which contains no backslash. An escaped string
    /// may be equal too; see [`View::is_escaped`].
    #[inline]
    pub fn eq_raw_str(&self, expected: &str) -> bool {
        match self.bytes {
            [b'"', inside @ .., b'"'] => inside == expected.as_bytes(),
            _ => false,
        }
    }

    /// Returns whether this string contains escapes.
    #[inline]
    pub fn is_escaped(&self) -> bool {
        find_backslash(self.bytes).is_some()
    }

    /// Returns whether this is the string `text`.
    pub fn eq_str(&self, text: &str) -> bool {
        match self.bytes {
            // An escaped string may be equal too, but never has the same length.
            [b'"', inside @ .., b'"'] if inside.len() == text.len() => {
                inside == text.as_bytes() && !inside.contains(&b'\\')
            }
            [b'"', inside @ .., b'"'] if inside.len() > text.len() => {
                inside.contains(&b'\\') && unescape(inside) == text
            }
            _ => false,
        }
    }

    /// Deserializes the value into a type, which may borrow from it.
    pub fn parse_as<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.bytes)
    }

    /// Builds the tree of the value.
    pub fn to_value(&self) -> Value {
        build_value(self.bytes).0
    }

    /// Builds the tree of a value that is neither array nor object.
    fn to_scalar(self) -> Value {
        match self.kind() {
            Kind::Bool => Value::Bool(self.bytes == b"true"),
            Kind::Number => self.to_number(),
            Kind::String => Value::String(self.as_string().unwrap_or_default().into_owned()),
            Kind::Null | Kind::Array | Kind::Object => Value::Null,
        }
    }

    /// Copies the value. [`RawJson::slice`] shares it instead.
    pub fn to_raw(&self) -> RawJson {
        RawJson(Bytes::copy_from_slice(self.bytes))
    }

    /// Returns whether this is a number that a double can represent.
    pub(crate) fn is_finite(&self) -> bool {
        self.as_f64().is_some_and(f64::is_finite)
    }

    fn to_number(self) -> Value {
        // The scan uses the standard library to check that a number is finite. This must not fail even if `serde_json`
        // disagreed about the largest doubles.
        match read_number(self.bytes) {
            Ok(number) => Value::Number(number),
            Err(_) => self.as_f64().unwrap_or_default().into(),
        }
    }

    fn number_text(&self) -> Option<&'a str> {
        (self.kind() == Kind::Number).then(|| utf8(self.bytes))
    }

    /// Returns the members of an object with their keys still quoted, to compare them as written; empty for other
    /// kinds.
    pub fn pairs(&self) -> impl Iterator<Item = (View<'a>, View<'a>)> + Clone + use<'a> {
        PairIter(ValueIter::new(self.bytes, b'{'))
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(utf8(self.bytes))
    }
}

impl fmt::Display for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(utf8(self.bytes))
    }
}

impl Serialize for View<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.kind() {
            Kind::Null => serializer.serialize_unit(),
            Kind::Bool => serializer.serialize_bool(self.bytes == b"true"),
            Kind::Number => match (self.as_i64(), self.as_u64()) {
                // `-0` is a double: as an integer it would lose its sign.
                (Some(0), _) if self.bytes != b"0" => serializer.serialize_f64(-0.0),
                (Some(number), _) => serializer.serialize_i64(number),
                (None, Some(number)) => serializer.serialize_u64(number),
                (None, None) => serializer.serialize_f64(self.as_f64().unwrap_or_default()),
            },
            Kind::String => serializer.serialize_str(&self.as_string().unwrap_or_default()),
            Kind::Array => serializer.collect_seq(self.items()),
            Kind::Object => {
                let mut map = serializer.serialize_map(None)?;
                for (key, value) in self.members() {
                    map.serialize_entry(&key, &value)?;
                }
                map.end()
            }
        }
    }
}

/// Iterates over the values in a container and ignores separators. For an object these are keys and values in turn.
#[derive(Clone)]
struct ValueIter<'a> {
    rest: &'a [u8],
}

impl<'a> ValueIter<'a> {
    fn new(bytes: &'a [u8], open: u8) -> Self {
        let rest = match bytes {
            [first, inside @ .., _] if *first == open => inside,
            _ => &[],
        };
        Self { rest }
    }
}

impl<'a> Iterator for ValueIter<'a> {
    type Item = View<'a>;

    #[inline]
    fn next(&mut self) -> Option<View<'a>> {
        let rest = skip_separators(self.rest);
        if rest.is_empty() {
            return None;
        }
        let (value, rest) = split_first_value(rest);
        self.rest = rest;
        Some(value)
    }
}

#[derive(Clone)]
struct PairIter<'a>(ValueIter<'a>);

impl<'a> Iterator for PairIter<'a> {
    type Item = (View<'a>, View<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }
}

/// Builds the tree of the value at the beginning of checked text, and returns the rest. Every byte is visited once, at any
/// depth.
fn build_value(bytes: &[u8]) -> (Value, &[u8]) {
    match bytes {
        [b'[', inside @ ..] => {
            let (mut items, mut rest) = (Vec::new(), skip_separators(inside));
            while !matches!(rest, [] | [b']', ..]) {
                let (item, after) = build_value(rest);
                items.push(item);
                rest = skip_separators(after);
            }
            (Value::Array(items), rest.get(1..).unwrap_or_default())
        }
        [b'{', inside @ ..] => {
            let (mut members, mut rest) = (Map::new(), skip_separators(inside));
            while !matches!(rest, [] | [b'}', ..]) {
                let (key, after) = split_first_value(rest);
                let (value, after) = build_value(skip_separators(after));
                members.insert(key.as_string().unwrap_or_default().into_owned(), value);
                rest = skip_separators(after);
            }
            (Value::Object(members), rest.get(1..).unwrap_or_default())
        }
        _ => {
            let (leaf, rest) = split_first_value(bytes);
            (leaf.to_scalar(), rest)
        }
    }
}

/// Splits off the value at the beginning.
#[inline]
fn split_first_value(bytes: &[u8]) -> (View<'_>, &[u8]) {
    // At least one byte, so that iteration always ends.
    let end = value_len(bytes).max(1).min(bytes.len());
    let (value, rest) = bytes.split_at(end);
    (View::from_trusted(value), rest)
}

#[inline]
fn skip_separators(bytes: &[u8]) -> &[u8] {
    let is_separator = |byte: &u8| matches!(byte, b',' | b':' | b' ' | b'\n' | b'\r' | b'\t');
    let start = bytes.iter().position(|byte| !is_separator(byte)).unwrap_or(bytes.len());
    bytes.get(start..).unwrap_or_default()
}

/// Parses digits that are few enough to fit.
fn parse_digits(bytes: &[u8]) -> Option<i64> {
    bytes.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

/// Returns the length of the value at the beginning of checked text.
#[inline]
pub(crate) fn value_len(bytes: &[u8]) -> usize {
    match bytes.first() {
        Some(b'"') => string_len(bytes),
        Some(b'{' | b'[') => container_len(bytes),
        _ => {
            let after = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t');
            bytes.iter().position(after).unwrap_or(bytes.len())
        }
    }
}

/// Returns the length of the string at the beginning, quotes included.
#[inline]
fn string_len(bytes: &[u8]) -> usize {
    let mut rest = bytes.get(1..).unwrap_or_default();
    loop {
        match skip_trusted_plain(rest) {
            [b'"', after @ ..] => return bytes.len() - after.len(),
            // The byte after a backslash never ends a string.
            [_, _, after @ ..] => rest = after,
            _ => return bytes.len(),
        }
    }
}

/// Counts brackets instead of matching them: in checked text that is equivalent.
fn container_len(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at += string_len(&bytes[at..]),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The scan has checked that the whole text is UTF-8, and values are cut out between ASCII characters, so the fallback is
/// unreachable.
pub(crate) fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
