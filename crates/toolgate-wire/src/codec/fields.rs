//! Reading objects: one walk over the members, and refusals that name the
//! member, what was expected of it and what came.
//!
//! Members that nobody asks for are ignored. An optional member that is `null`
//! is taken as absent, because many writers cannot leave one out; whoever must
//! tell the two apart asks [`Field::given`].

use std::collections::BTreeMap;

use bytes::Bytes;

use super::base64;
use crate::json::{Kind, RawJson, View};
use crate::{ProtocolError, ProtocolErrorKind};

/// An object that is being read.
#[derive(Clone, Copy)]
pub(super) struct ObjectReader<'a> {
    /// The text that `view` is a part of, so that JSON for others can share it.
    source: Option<&'a RawJson>,
    /// An object.
    view: View<'a>,
    /// What a refusal calls this object.
    path: &'static str,
    /// What a refusal is.
    error_kind: ProtocolErrorKind,
}

/// One member of an object, or one item of a list that is one.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    parent: ObjectReader<'a>,
    name: &'static str,
    /// This is an item of the member.
    is_item: bool,
    value: Option<View<'a>>,
}

impl<'a> ObjectReader<'a> {
    /// The parameters of a message; none are the same as `{}`.
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

    /// An object that stands for itself.
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

    /// The same object, to be refused in another way.
    pub(super) fn with_error_kind(&self, kind: ProtocolErrorKind) -> ObjectReader<'a> {
        ObjectReader { error_kind: kind, ..*self }
    }

    /// The object itself.
    pub(super) fn view(&self) -> View<'a> {
        self.view
    }

    /// The same object, of which JSON for others is copied.
    pub(super) fn without_source(&self) -> ObjectReader<'a> {
        ObjectReader { source: None, ..*self }
    }

    /// An object within this one, whose members were found elsewhere.
    pub(super) fn with_path(&self, owner: &'static str) -> ObjectReader<'a> {
        ObjectReader { path: owner, ..*self }
    }

    /// A member that was found elsewhere.
    #[inline(always)]
    pub(super) fn field_with(&self, name: &'static str, value: Option<View<'a>>) -> Field<'a> {
        Field { parent: *self, name, is_item: false, value }
    }

    /// Members by name, in one walk.
    pub(super) fn pick<const N: usize>(&self, names: [&'static str; N]) -> [Field<'a>; N] {
        let mut fields = [self.field_with("", None); N];
        self.fill_fields(&names, &mut fields);
        fields
    }

    /// As many as there are, in the same code.
    fn fill_fields(&self, names: &[&'static str], fields: &mut [Field<'a>]) {
        for (field, name) in fields.iter_mut().zip(names) {
            field.name = name;
        }
        let mut missing = fields.len();
        let mut pairs = self.view.pairs();
        // Keys are unique: once all are found the rest need not be walked.
        while missing > 0
            && let Some((key, value)) = pairs.next()
        {
            let place =
                names.iter().position(|name| key.eq_raw_str(name)).or_else(|| escaped_position(names, key));
            if let Some(field) = place.and_then(|place| fields.get_mut(place)) {
                field.value = Some(value);
                missing -= 1;
            }
        }
    }

    /// One member.
    pub(super) fn field(&self, name: &'static str) -> Field<'a> {
        Field { parent: *self, name, is_item: false, value: self.view.get(name) }
    }

    /// A refusal of this object.
    pub(super) fn error(&self, message: String) -> ProtocolError {
        ProtocolError::new(self.error_kind, message)
    }

    /// The value, sharing the text it is part of.
    fn to_raw(&self, view: View<'a>) -> RawJson {
        match self.source {
            Some(source) => source.slice(view),
            None => view.to_raw(),
        }
    }
}

impl<'a> Field<'a> {
    /// The same member, to be refused in another way.
    pub(super) fn with_error_kind(&self, kind: ProtocolErrorKind) -> Field<'a> {
        Field { parent: self.parent.with_error_kind(kind), ..*self }
    }

    /// The value, `null` included.
    pub(super) fn value_or_null(&self) -> Option<View<'a>> {
        self.value
    }

    /// The value, unless it is `null`.
    pub(super) fn value(&self) -> Option<View<'a>> {
        self.value.filter(|value| !value.is_null())
    }

    /// A refusal of this member.
    pub(super) fn type_error(&self, expected: &str) -> ProtocolError {
        let Field { parent: part, name, is_item: item, value } = *self;
        let owner = part.path;
        let item = if item { "[]" } else { "" };
        let came = value.map_or("nothing", |value| kind_name(value.kind()));
        part.error(format!("{owner}.{name}{item} must be {expected}, got {came}"))
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

    /// One of the words that `read` knows.
    pub(super) fn keyword<T>(
        &self,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ProtocolError> {
        let word = self.value.and_then(|value| value.as_string()).and_then(|text| read(&text));
        self.require(expected, word)
    }

    /// Bytes, from base64.
    pub(super) fn bytes(&self) -> Result<Bytes, ProtocolError> {
        let bytes = self.value.and_then(|value| value.as_string()).and_then(|text| base64::decode(&text));
        self.require("base64", bytes).map(Bytes::from)
    }

    /// Any JSON, `null` included.
    pub(super) fn json(&self) -> Result<RawJson, ProtocolError> {
        self.require("present", self.maybe_json())
    }

    /// Any JSON, `null` included.
    pub(super) fn maybe_json(&self) -> Option<RawJson> {
        self.value.map(|value| self.parent.to_raw(value))
    }

    /// Any JSON object.
    pub(super) fn object(&self) -> Result<RawJson, ProtocolError> {
        self.require("an object", self.value.filter(View::is_object).map(|value| self.parent.to_raw(value)))
    }

    pub(super) fn maybe_object(&self) -> Result<Option<RawJson>, ProtocolError> {
        self.optional("an object", |value| {
            Some(value).filter(View::is_object).map(|value| self.parent.to_raw(value))
        })
    }

    /// An object whose members we know; a refusal will call it `owner`.
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

    /// An object whose members we know; none is the same as `{}`.
    pub(super) fn reader_or_empty(&self, owner: &'static str) -> Result<ObjectReader<'a>, ProtocolError> {
        let empty = ObjectReader { view: View::empty_object(), path: owner, ..self.parent };
        Ok(self.maybe_reader(owner)?.unwrap_or(empty))
    }

    /// A list.
    pub(super) fn list<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<T, ProtocolError>,
    ) -> Result<Vec<T>, ProtocolError> {
        let list = self.require("an array", self.value.filter(|value| value.kind() == Kind::Array))?;
        let mut all = Vec::new();
        for item in list.items() {
            all.push(read(&self.item(item))?);
        }
        Ok(all)
    }

    /// A list; none is the same as an empty one.
    pub(super) fn maybe_list<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<T, ProtocolError>,
    ) -> Result<Vec<T>, ProtocolError> {
        match self.value() {
            Some(_) => self.list(read),
            None => Ok(Vec::new()),
        }
    }

    /// An object with names that others chose; what is read as none is left out.
    pub(super) fn map<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<Option<T>, ProtocolError>,
    ) -> Result<BTreeMap<String, T>, ProtocolError> {
        let map = self.require("an object", self.value.filter(View::is_object))?;
        // One by one: to collect them would bring a sort for each type.
        let mut all = BTreeMap::new();
        for (name, value) in map.members() {
            if let Some(value) = read(&self.item(value))? {
                all.insert(name.into_owned(), value);
            }
        }
        Ok(all)
    }

    /// An object with names that others chose; none is the same as `{}`.
    pub(super) fn maybe_map<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<Option<T>, ProtocolError>,
    ) -> Result<BTreeMap<String, T>, ProtocolError> {
        match self.value() {
            Some(_) => self.map(read),
            None => Ok(BTreeMap::new()),
        }
    }

    /// A value within this one.
    fn item(&self, value: View<'a>) -> Field<'a> {
        Field { is_item: true, value: Some(value), ..*self }
    }
}

/// Nobody writes a known name with escapes in it; one who does means it all the same.
fn escaped_position(names: &[&str], key: View<'_>) -> Option<usize> {
    if !key.is_escaped() {
        return None;
    }
    names.iter().position(|name| key.eq_str(name))
}

/// A whole number, also when it is written as `400.0`: some languages have no
/// other way.
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
