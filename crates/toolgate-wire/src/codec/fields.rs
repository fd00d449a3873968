//! Reads objects in one pass over their members, with errors that name the member, the expected type and the actual one.
//!
//! Unknown members are ignored. An optional member that is `null` is treated as absent, since many writers cannot omit one;
//! [`Field::value_or_null`] distinguishes the two.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::base64;
use crate::json::{Kind, RawJson, View};
use crate::{ProtocolError, ProtocolErrorKind};

/// An object that is being read.
#[derive(Clone, Copy)]
pub(super) struct ObjectReader<'a> {
    /// The text that `view` is a part of, so that extracted JSON can share it.
    source: Option<&'a RawJson>,
    /// The object.
    view: View<'a>,
    /// The name of this object in errors.
    path: &'static str,
    /// The kind of errors.
    error_kind: ProtocolErrorKind,
}

/// A member of an object, or an item of a member that is a list.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    parent: ObjectReader<'a>,
    name: &'static str,
    /// Whether this is an item of the member.
    is_item: bool,
    value: Option<View<'a>>,
}

impl<'a> ObjectReader<'a> {
    /// Reads the params of a message; absent ones are `{}`.
    pub(super) fn params(raw: Option<&'a RawJson>) -> Result<ObjectReader<'a>, ProtocolError> {
        match raw {
            Some(raw) => ObjectReader::new(raw, "params", ProtocolErrorKind::InvalidParams),
            None => Ok(ObjectReader {
                source: None,
                view: View::empty_object(),
                path: "params",
                error_kind: ProtocolErrorKind::InvalidParams,
            }),
        }
    }

    /// Reads a whole text.
    pub(super) fn new(
        raw: &'a RawJson,
        owner: &'static str,
        kind: ProtocolErrorKind,
    ) -> Result<ObjectReader<'a>, ProtocolError> {
        let view = raw.view();
        match view.is_object() {
            true => Ok(ObjectReader { source: Some(raw), view, path: owner, error_kind: kind }),
            false => Err(ProtocolError::new(
                kind,
                format!("{owner} must be an object, got {}", kind_name(view.kind())),
            )),
        }
    }

    /// Changes the kind of errors.
    pub(super) fn with_error_kind(&self, kind: ProtocolErrorKind) -> ObjectReader<'a> {
        ObjectReader { error_kind: kind, ..*self }
    }

    /// Returns the object.
    pub(super) fn view(&self) -> View<'a> {
        self.view
    }

    /// Makes JSON that is extracted from this object a copy.
    pub(super) fn without_source(&self) -> ObjectReader<'a> {
        ObjectReader { source: None, ..*self }
    }

    /// Returns a reader for a nested object whose members were found elsewhere.
    pub(super) fn with_path(&self, owner: &'static str) -> ObjectReader<'a> {
        ObjectReader { path: owner, ..*self }
    }

    /// Returns a member whose value was found elsewhere.
    #[inline(always)]
    pub(super) fn field_with(&self, name: &'static str, value: Option<View<'a>>) -> Field<'a> {
        Field { parent: *self, name, is_item: false, value }
    }

    /// Returns members by name, in one pass.
    pub(super) fn pick<const N: usize>(&self, names: [&'static str; N]) -> [Field<'a>; N] {
        let mut fields = [self.field_with("", None); N];
        self.fill_fields(&names, &mut fields);
        fields
    }

    /// Not generic over the number of fields.
    fn fill_fields(&self, names: &[&'static str], fields: &mut [Field<'a>]) {
        for (field, name) in fields.iter_mut().zip(names) {
            field.name = name;
        }
        let mut missing = fields.len();
        let mut pairs = self.view.pairs();
        // Keys are unique: the scan ends when all are found.
        while missing > 0
            && let Some((key, value)) = pairs.next()
        {
            let index =
                names.iter().position(|name| key.eq_raw_str(name)).or_else(|| escaped_position(names, key));
            if let Some(field) = index.and_then(|index| fields.get_mut(index)) {
                field.value = Some(value);
                missing -= 1;
            }
        }
    }

    /// Returns one member.
    pub(super) fn field(&self, name: &'static str) -> Field<'a> {
        Field { parent: *self, name, is_item: false, value: self.view.get(name) }
    }

    /// Creates an error about this object.
    pub(super) fn error(&self, message: String) -> ProtocolError {
        ProtocolError::new(self.error_kind, message)
    }

    /// Extracts a value, sharing the text it is part of.
    fn extract(&self, view: View<'a>) -> RawJson {
        match self.source {
            Some(source) => source.slice(view),
            None => view.to_raw(),
        }
    }
}

impl<'a> Field<'a> {
    /// Changes the kind of errors.
    pub(super) fn with_error_kind(&self, kind: ProtocolErrorKind) -> Field<'a> {
        Field { parent: self.parent.with_error_kind(kind), ..*self }
    }

    /// Returns the value, `null` included.
    pub(super) fn value_or_null(&self) -> Option<View<'a>> {
        self.value
    }

    /// Returns the value, unless it is `null`.
    pub(super) fn value(&self) -> Option<View<'a>> {
        self.value.filter(|value| !value.is_null())
    }

    /// Creates an error about the type of this member.
    pub(super) fn type_error(&self, expected: &str) -> ProtocolError {
        let Field { parent, name, is_item, value } = *self;
        let owner = parent.path;
        let item = if is_item { "[]" } else { "" };
        let actual = value.map_or("nothing", |value| kind_name(value.kind()));
        parent.error(format!("{owner}.{name}{item} must be {expected}, got {actual}"))
    }

    fn require<T>(&self, expected: &str, value: Option<T>) -> Result<T, ProtocolError> {
        value.ok_or_else(|| self.type_error(expected))
    }

    fn optional<T>(
        &self,
        expected: &str,
        read: impl FnOnce(View<'a>) -> Option<T>,
    ) -> Result<Option<T>, ProtocolError> {
        self.value().map(|value| self.require(expected, read(value))).transpose()
    }

    pub(super) fn string(&self) -> Result<String, ProtocolError> {
        let text = self.value.and_then(|value| value.as_string());
        self.require("a string", text).map(|text| text.into_owned())
    }

    pub(super) fn maybe_string(&self) -> Result<Option<String>, ProtocolError> {
        self.optional("a string", |value| value.as_string().map(|text| text.into_owned()))
    }

    pub(super) fn maybe_bool(&self) -> Result<Option<bool>, ProtocolError> {
        self.optional("a boolean", |value| value.as_bool())
    }

    pub(super) fn number(&self) -> Result<f64, ProtocolError> {
        self.require("a number", self.value.and_then(|value| value.as_f64()))
    }

    pub(super) fn maybe_number(&self) -> Result<Option<f64>, ProtocolError> {
        self.optional("a number", |value| value.as_f64())
    }

    pub(super) fn integer(&self) -> Result<i64, ProtocolError> {
        self.require("an integer", self.value.and_then(|value| value.as_i64()))
    }

    pub(super) fn count(&self) -> Result<u64, ProtocolError> {
        self.require("a whole number", self.value.and_then(to_whole_number))
    }

    pub(super) fn maybe_count(&self) -> Result<Option<u64>, ProtocolError> {
        self.optional("a whole number", to_whole_number)
    }

    /// Reads one of the keywords that `read` accepts.
    pub(super) fn keyword<T>(
        &self,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ProtocolError> {
        let keyword = self.value.and_then(|value| value.as_string()).and_then(|text| read(&text));
        self.require(expected, keyword)
    }

    /// Reads base64 data.
    pub(super) fn bytes(&self) -> Result<Bytes, ProtocolError> {
        let bytes = self.value.and_then(|value| value.as_string()).and_then(|text| base64::decode(&text));
        self.require("base64", bytes).map(Bytes::from)
    }

    /// Reads any JSON, `null` included.
    pub(super) fn json(&self) -> Result<RawJson, ProtocolError> {
        self.require("present", self.maybe_json())
    }

    /// Reads any JSON, `null` included.
    pub(super) fn maybe_json(&self) -> Option<RawJson> {
        self.value.map(|value| self.parent.extract(value))
    }

    /// Reads any JSON object.
    pub(super) fn object(&self) -> Result<RawJson, ProtocolError> {
        self.require("an object", self.value.filter(View::is_object).map(|value| self.parent.extract(value)))
    }

    pub(super) fn maybe_object(&self) -> Result<Option<RawJson>, ProtocolError> {
        self.optional("an object", |value| {
            Some(value).filter(View::is_object).map(|value| self.parent.extract(value))
        })
    }

    /// Reads an object with known members; errors name it `owner`.
    pub(super) fn reader(&self, owner: &'static str) -> Result<ObjectReader<'a>, ProtocolError> {
        let view = self.require("an object", self.value.filter(View::is_object))?;
        Ok(ObjectReader { view, path: owner, ..self.parent })
    }

    pub(super) fn maybe_reader(
        &self,
        owner: &'static str,
    ) -> Result<Option<ObjectReader<'a>>, ProtocolError> {
        match self.value() {
            Some(_) => self.reader(owner).map(Some),
            None => Ok(None),
        }
    }

    /// Reads an object with known members; an absent one is `{}`.
    pub(super) fn reader_or_empty(&self, owner: &'static str) -> Result<ObjectReader<'a>, ProtocolError> {
        let empty = ObjectReader { view: View::empty_object(), path: owner, ..self.parent };
        Ok(self.maybe_reader(owner)?.unwrap_or(empty))
    }

    /// Reads a list.
    pub(super) fn list<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<T, ProtocolError>,
    ) -> Result<Vec<T>, ProtocolError> {
        let list = self.require("an array", self.value.filter(|value| value.kind() == Kind::Array))?;
        let mut items = Vec::new();
        for item in list.items() {
            items.push(read(&self.item(item))?);
        }
        Ok(items)
    }

    /// Reads a list; an absent one is empty.
    pub(super) fn maybe_list<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<T, ProtocolError>,
    ) -> Result<Vec<T>, ProtocolError> {
        match self.value() {
            Some(_) => self.list(read),
            None => Ok(Vec::new()),
        }
    }

    /// Reads an object with arbitrary names; entries for which `read` returns `None` are omitted.
    pub(super) fn map<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<Option<T>, ProtocolError>,
    ) -> Result<BTreeMap<String, T>, ProtocolError> {
        let map = self.require("an object", self.value.filter(View::is_object))?;
        let mut items = BTreeMap::new();
        for (name, value) in map.members() {
            if let Some(value) = read(&self.item(value))? {
                items.insert(name.into_owned(), value);
            }
        }
        Ok(items)
    }

    /// Reads an object with arbitrary names; an absent one is `{}`.
    pub(super) fn maybe_map<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<Option<T>, ProtocolError>,
    ) -> Result<BTreeMap<String, T>, ProtocolError> {
        match self.value() {
            Some(_) => self.map(read),
            None => Ok(BTreeMap::new()),
        }
    }

    /// Returns a value inside this one.
    fn item(&self, value: View<'a>) -> Field<'a> {
        Field { is_item: true, value: Some(value), ..*self }
    }
}

/// Finds a key that is written with escapes, which is unusual but valid.
fn escaped_position(names: &[&str], key: View<'_>) -> Option<usize> {
    if !key.is_escaped() {
        return None;
    }
    names.iter().position(|name| key.eq_str(name))
}

/// Reads a whole number, also if it is written as `400.0`, as some languages do.
fn to_whole_number(value: View<'_>) -> Option<u64> {
    let from_double = || {
        let number = value.as_f64()?;
        let exact = number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number);
        exact.then_some(number as u64)
    };
    value.as_u64().or_else(from_double)
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Null => "null",
        Kind::Bool => "boolean",
        Kind::Number => "number",
        Kind::String => "string",
        Kind::Array => "array",
        Kind::Object => "object",
    }
}
