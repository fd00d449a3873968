//! Reading objects: one walk over the members, and refusals that name the
//! member, what was expected of it and what came.
//!
//! Members that nobody asks for are ignored. An optional member that is `null`
//! is taken as absent, because many writers cannot leave one out; whoever must
//! tell the two apart asks [`Field::given`].

use std::collections::BTreeMap;

use bytes::Bytes;

use super::base64;
use crate::json::{Kind, Raw, View};
use crate::{Fault, FaultKind};

/// An object that is being read.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// The text that `view` is a part of, so that JSON for others can share it.
    source: Option<&'a Raw>,
    /// An object.
    view: View<'a>,
    /// What a refusal calls this object.
    owner: &'static str,
    /// What a refusal is.
    kind: FaultKind,
}

/// One member of an object, or one item of a list that is one.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    part: Part<'a>,
    name: &'static str,
    /// This is an item of the member.
    item: bool,
    value: Option<View<'a>>,
}

impl<'a> Part<'a> {
    /// The parameters of a message; none are the same as `{}`.
    pub(super) fn params(raw: Option<&'a Raw>) -> Result<Part<'a>, Fault> {
        match raw {
            Some(raw) => Part::of(raw, "params", FaultKind::Params),
            None => Ok(Part {
                source: None,
                view: View::empty_object(),
                owner: "params",
                kind: FaultKind::Params,
            }),
        }
    }

    /// An object that stands for itself.
    pub(super) fn of(raw: &'a Raw, owner: &'static str, kind: FaultKind) -> Result<Part<'a>, Fault> {
        let view = raw.view();
        match view.is_object() {
            true => Ok(Part { source: Some(raw), view, owner, kind }),
            false => Err(Fault::new(kind, format!("{owner} must be an object, got {}", noun(view.kind())))),
        }
    }

    /// The same object, to be refused in another way.
    pub(super) fn refused_as(&self, kind: FaultKind) -> Part<'a> {
        Part { kind, ..*self }
    }

    /// The object itself.
    pub(super) fn view(&self) -> View<'a> {
        self.view
    }

    /// The same object, of which JSON for others is copied.
    pub(super) fn apart(&self) -> Part<'a> {
        Part { source: None, ..*self }
    }

    /// An object within this one, whose members were found elsewhere.
    pub(super) fn within(&self, owner: &'static str) -> Part<'a> {
        Part { owner, ..*self }
    }

    /// A member that was found elsewhere.
    #[inline(always)]
    pub(super) fn found(&self, name: &'static str, value: Option<View<'a>>) -> Field<'a> {
        Field { part: *self, name, item: false, value }
    }

    /// Members by name, in one walk.
    pub(super) fn pick<const N: usize>(&self, names: [&'static str; N]) -> [Field<'a>; N] {
        let mut fields = [self.found("", None); N];
        self.find(&names, &mut fields);
        fields
    }

    /// As many as there are, in the same code.
    fn find(&self, names: &[&'static str], fields: &mut [Field<'a>]) {
        for (field, name) in fields.iter_mut().zip(names) {
            field.name = name;
        }
        let mut missing = fields.len();
        let mut pairs = self.view.pairs();
        // Keys are unique: once all are found the rest need not be walked.
        while missing > 0
            && let Some((key, value)) = pairs.next()
        {
            let place = names.iter().position(|name| key.is_word(name)).or_else(|| escaped_place(names, key));
            if let Some(field) = place.and_then(|place| fields.get_mut(place)) {
                field.value = Some(value);
                missing -= 1;
            }
        }
    }

    /// One member.
    pub(super) fn field(&self, name: &'static str) -> Field<'a> {
        Field { part: *self, name, item: false, value: self.view.get(name) }
    }

    /// A refusal of this object.
    pub(super) fn refuse(&self, message: String) -> Fault {
        Fault::new(self.kind, message)
    }

    /// The value, sharing the text it is part of.
    fn share(&self, view: View<'a>) -> Raw {
        match self.source {
            Some(source) => source.slice(view),
            None => view.to_raw(),
        }
    }
}

impl<'a> Field<'a> {
    /// The same member, to be refused in another way.
    pub(super) fn refused_as(&self, kind: FaultKind) -> Field<'a> {
        Field { part: self.part.refused_as(kind), ..*self }
    }

    /// The value, `null` included.
    pub(super) fn given(&self) -> Option<View<'a>> {
        self.value
    }

    /// The value, unless it is `null`.
    pub(super) fn value(&self) -> Option<View<'a>> {
        self.value.filter(|value| !value.is_null())
    }

    /// A refusal of this member.
    pub(super) fn wrong(&self, expected: &str) -> Fault {
        let Field { part, name, item, value } = *self;
        let owner = part.owner;
        let item = if item { "[]" } else { "" };
        let came = value.map_or("nothing", |value| noun(value.kind()));
        part.refuse(format!("{owner}.{name}{item} must be {expected}, got {came}"))
    }

    fn must<T>(&self, expected: &str, value: Option<T>) -> Result<T, Fault> {
        value.ok_or_else(|| self.wrong(expected))
    }

    fn may<T>(&self, expected: &str, read: impl FnOnce(View<'a>) -> Option<T>) -> Result<Option<T>, Fault> {
        self.value().map(|value| self.must(expected, read(value))).transpose()
    }

    pub(super) fn text(&self) -> Result<String, Fault> {
        let text = self.value.and_then(|value| value.as_text());
        self.must("a string", text).map(|text| text.into_owned())
    }

    pub(super) fn maybe_text(&self) -> Result<Option<String>, Fault> {
        self.may("a string", |value| value.as_text().map(|text| text.into_owned()))
    }

    pub(super) fn maybe_bool(&self) -> Result<Option<bool>, Fault> {
        self.may("a boolean", |value| value.as_bool())
    }

    pub(super) fn number(&self) -> Result<f64, Fault> {
        self.must("a number", self.value.and_then(|value| value.as_f64()))
    }

    pub(super) fn maybe_number(&self) -> Result<Option<f64>, Fault> {
        self.may("a number", |value| value.as_f64())
    }

    pub(super) fn integer(&self) -> Result<i64, Fault> {
        self.must("an integer", self.value.and_then(|value| value.as_i64()))
    }

    pub(super) fn count(&self) -> Result<u64, Fault> {
        self.must("a whole number", self.value.and_then(whole))
    }

    pub(super) fn maybe_count(&self) -> Result<Option<u64>, Fault> {
        self.may("a whole number", whole)
    }

    /// One of the words that `read` knows.
    pub(super) fn word<T>(&self, expected: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, Fault> {
        let word = self.value.and_then(|value| value.as_text()).and_then(|text| read(&text));
        self.must(expected, word)
    }

    /// Bytes, from base64.
    pub(super) fn bytes(&self) -> Result<Bytes, Fault> {
        let bytes = self.value.and_then(|value| value.as_text()).and_then(|text| base64::decode(&text));
        self.must("base64", bytes).map(Bytes::from)
    }

    /// Any JSON, `null` included.
    pub(super) fn json(&self) -> Result<Raw, Fault> {
        self.must("there", self.maybe_json())
    }

    /// Any JSON, `null` included.
    pub(super) fn maybe_json(&self) -> Option<Raw> {
        self.value.map(|value| self.part.share(value))
    }

    /// Any JSON object.
    pub(super) fn object(&self) -> Result<Raw, Fault> {
        self.must("an object", self.value.filter(View::is_object).map(|value| self.part.share(value)))
    }

    pub(super) fn maybe_object(&self) -> Result<Option<Raw>, Fault> {
        self.may("an object", |value| Some(value).filter(View::is_object).map(|value| self.part.share(value)))
    }

    /// An object whose members we know; a refusal will call it `owner`.
    pub(super) fn part(&self, owner: &'static str) -> Result<Part<'a>, Fault> {
        let view = self.must("an object", self.value.filter(View::is_object))?;
        Ok(Part { view, owner, ..self.part })
    }

    pub(super) fn maybe_part(&self, owner: &'static str) -> Result<Option<Part<'a>>, Fault> {
        match self.value() {
            Some(_) => self.part(owner).map(Some),
            None => Ok(None),
        }
    }

    /// An object whose members we know; none is the same as `{}`.
    pub(super) fn part_or_empty(&self, owner: &'static str) -> Result<Part<'a>, Fault> {
        let empty = Part { view: View::empty_object(), owner, ..self.part };
        Ok(self.maybe_part(owner)?.unwrap_or(empty))
    }

    /// A list.
    pub(super) fn list<T>(&self, read: impl Fn(&Field<'a>) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
        let list = self.must("an array", self.value.filter(|value| value.kind() == Kind::Array))?;
        let mut all = Vec::new();
        for item in list.items() {
            all.push(read(&self.item(item))?);
        }
        Ok(all)
    }

    /// A list; none is the same as an empty one.
    pub(super) fn maybe_list<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        match self.value() {
            Some(_) => self.list(read),
            None => Ok(Vec::new()),
        }
    }

    /// An object with names that others chose; what is read as none is left out.
    pub(super) fn map<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<Option<T>, Fault>,
    ) -> Result<BTreeMap<String, T>, Fault> {
        let map = self.must("an object", self.value.filter(View::is_object))?;
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
        read: impl Fn(&Field<'a>) -> Result<Option<T>, Fault>,
    ) -> Result<BTreeMap<String, T>, Fault> {
        match self.value() {
            Some(_) => self.map(read),
            None => Ok(BTreeMap::new()),
        }
    }

    /// A value within this one.
    fn item(&self, value: View<'a>) -> Field<'a> {
        Field { item: true, value: Some(value), ..*self }
    }
}

/// Nobody writes a known name with escapes in it; one who does means it all the same.
fn escaped_place(names: &[&str], key: View<'_>) -> Option<usize> {
    if !key.is_escaped() {
        return None;
    }
    names.iter().position(|name| key.is_text(name))
}

/// A whole number, also when it is written as `400.0`: some languages have no
/// other way.
fn whole(value: View<'_>) -> Option<u64> {
    let from_double = || {
        let number = value.as_f64()?;
        let exact = number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number);
        exact.then_some(number as u64)
    };
    value.as_u64().or_else(from_double)
}

fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Null => "null",
        Kind::Bool => "boolean",
        Kind::Number => "number",
        Kind::Text => "string",
        Kind::Array => "array",
        Kind::Object => "object",
    }
}
