//! The JSON writer, and what it can write without knowing the protocol.
//!
//! A value is [`Put`] into bytes for one edition. An [`Object`] writes members
//! in the order they are said, and each call says since when the member exists:
//! this is where editions differ in shape, and the only way they may. A member
//! that is not there is left out; `null` is never written in its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::json::{Raw, View, write_f64, write_i64, write_line, write_text};
use crate::{Edition, ProgressToken, RequestId};

/// The largest integer that every reader of JSON gets right.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Something that can be written as one JSON value.
pub(super) trait Put {
    /// Appends the value as `edition` says it.
    fn put(&self, out: &mut Vec<u8>, edition: Edition);

    /// Whether there is nothing to say: an optional member is then left out.
    fn is_absent(&self) -> bool {
        false
    }
}

/// A JSON object being written.
#[must_use = "an object that is not closed is not JSON"]
pub(super) struct Object<'o> {
    out: &'o mut Vec<u8>,
    edition: Edition,
    first: bool,
}

impl<'o> Object<'o> {
    pub(super) fn open(out: &'o mut Vec<u8>, edition: Edition) -> Object<'o> {
        out.push(b'{');
        Object { out, edition, first: true }
    }

    /// A member that is always there. `name` is ours: it needs no escapes.
    pub(super) fn field(self, name: &str, value: &(impl Put + ?Sized)) -> Self {
        self.member(name, &value)
    }

    /// A member that is there if there is something to say.
    pub(super) fn some(self, name: &str, value: &(impl Put + ?Sized)) -> Self {
        self.member_if(true, name, &value)
    }

    /// An optional member that exists from an edition on.
    pub(super) fn since(self, first: Edition, name: &str, value: &(impl Put + ?Sized)) -> Self {
        let is_known = self.edition >= first;
        self.member_if(is_known, name, &value)
    }

    /// An optional member that exists up to an edition.
    pub(super) fn until(self, last: Edition, name: &str, value: &(impl Put + ?Sized)) -> Self {
        let is_known = self.edition <= last;
        self.member_if(is_known, name, &value)
    }

    /// An optional member that exists in one edition.
    pub(super) fn only(self, only: Edition, name: &str, value: &(impl Put + ?Sized)) -> Self {
        let is_known = self.edition == only;
        self.member_if(is_known, name, &value)
    }

    /// A member whose name was chosen by someone else.
    pub(super) fn entry(self, name: &str, value: &(impl Put + ?Sized)) -> Self {
        self.named(name, &value)
    }

    // The code behind all of them is there once, not for each type that is written.

    #[inline(never)]
    fn member(self, name: &str, value: &dyn Put) -> Self {
        let Object { out, edition, first } = self;
        out.extend_from_slice(if first { b"\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        value.put(out, edition);
        Object { out, edition, first: false }
    }

    #[inline(never)]
    fn member_if(self, is_known: bool, name: &str, value: &dyn Put) -> Self {
        match is_known && !value.is_absent() {
            true => self.member(name, value),
            false => self,
        }
    }

    #[inline(never)]
    fn named(self, name: &str, value: &dyn Put) -> Self {
        let Object { out, edition, first } = self;
        if !first {
            out.push(b',');
        }
        write_text(out, name);
        out.push(b':');
        value.put(out, edition);
        Object { out, edition, first: false }
    }

    /// The members of someone else's object that `keep` wants.
    pub(super) fn rest(self, object: Option<&Raw>, keep: impl Fn(&str) -> bool) -> Self {
        let Some(object) = object else { return self };
        let kept = object.view().members().filter(|(name, _)| keep(name));
        kept.fold(self, |object, (name, value)| object.entry(&name, &value))
    }

    pub(super) fn close(self) {
        self.out.push(b'}');
    }
}

/// An object within an object.
pub(super) struct Nest<F>(F);

/// An object within an object, written by `fill`.
pub(super) fn nest<F: for<'o> Fn(Object<'o>) -> Object<'o>>(fill: F) -> Nest<F> {
    Nest(fill)
}

impl<F: for<'o> Fn(Object<'o>) -> Object<'o>> Put for Nest<F> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        (self.0)(Object::open(out, edition)).close();
    }
}

/// `true`, or nothing to say.
pub(super) struct Flag(pub(super) bool);

impl Put for Flag {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        self.0.put(out, edition);
    }

    fn is_absent(&self) -> bool {
        !self.0
    }
}

/// `{}`, or nothing to say: how capabilities are declared.
pub(super) struct Mark(pub(super) bool);

impl Put for Mark {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        out.extend_from_slice(b"{}");
    }

    fn is_absent(&self) -> bool {
        !self.0
    }
}

/// A word of the protocol: it needs no escapes.
pub(super) struct Word(pub(super) &'static str);

impl Put for Word {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        out.push(b'"');
        out.extend_from_slice(self.0.as_bytes());
        out.push(b'"');
    }
}

/// JSON that must be an object, or there is nothing to say.
pub(super) struct Open<'a>(pub(super) Option<&'a Raw>);

impl<'a> Open<'a> {
    /// The JSON, if it is an object.
    pub(super) fn object(&self) -> Option<&'a Raw> {
        self.0.filter(|raw| raw.view().is_object())
    }
}

impl Put for Open<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        match self.object() {
            Some(raw) => raw.put(out, edition),
            None => out.extend_from_slice(b"{}"),
        }
    }

    fn is_absent(&self) -> bool {
        self.object().is_none()
    }
}

impl Put for str {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        write_text(out, self);
    }
}

impl Put for String {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        write_text(out, self);
    }
}

impl Put for bool {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        out.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl Put for i64 {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        write_i64(out, *self);
    }
}

/// More than any reader can hold is written as the most that all can: these are
/// sizes and times, where that says the same.
impl Put for u64 {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        write_i64(out, (*self).min(MAX_INTEGER).cast_signed());
    }
}

/// JSON has no form for what is not finite: there is nothing to say then.
impl Put for f64 {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        write_f64(out, *self);
    }

    fn is_absent(&self) -> bool {
        !self.is_finite()
    }
}

impl Put for Raw {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        self.view().put(out, edition);
    }
}

/// White space within foreign JSON may hold line ends; a message is one line.
impl Put for View<'_> {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        write_line(out, self.as_bytes());
    }
}

impl Put for RequestId {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        self.write(out);
    }
}

impl Put for ProgressToken {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        self.write(out);
    }
}

impl<T: Put + ?Sized> Put for &T {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        (**self).put(out, edition);
    }

    fn is_absent(&self) -> bool {
        (**self).is_absent()
    }
}

impl<T: Put + ?Sized> Put for Arc<T> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        (**self).put(out, edition);
    }
}

/// `null` where a required member may be null.
impl<T: Put> Put for Option<T> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        match self {
            Some(value) => value.put(out, edition),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn is_absent(&self) -> bool {
        self.as_ref().is_none_or(Put::is_absent)
    }
}

impl<T: Put> Put for [T] {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        out.push(b'[');
        for (n, value) in self.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            value.put(out, edition);
        }
        out.push(b']');
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Put> Put for Vec<T> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        self.as_slice().put(out, edition);
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Put> Put for BTreeMap<String, T> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let object = Object::open(out, edition);
        self.iter().fold(object, |object, (name, value)| object.entry(name, value)).close();
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_says_since_when_it_exists() {
        let write = |edition| {
            let mut out = Vec::new();
            Object::open(&mut out, edition)
                .field("a", "x\n")
                .some("b", &None::<u64>)
                .since(Edition::E2025_06_18, "c", &Some(1_u64))
                .only(Edition::E2025_11_25, "d", &Flag(true))
                .until(Edition::E2025_03_26, "e", &vec![true, false])
                .some("f", &f64::NAN)
                .close();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(write(Edition::E2024_11_05), r#"{"a":"x\n","e":[true,false]}"#);
        assert_eq!(write(Edition::E2025_06_18), r#"{"a":"x\n","c":1}"#);
        assert_eq!(write(Edition::E2025_11_25), r#"{"a":"x\n","c":1,"d":true}"#);
        assert_eq!(write(Edition::E2026_07_28), r#"{"a":"x\n","c":1}"#);
    }

    #[test]
    fn foreign_json_becomes_one_line() {
        let raw = Raw::parse("{\n \"a\\n\": [1,\r\n2]\n}".into()).unwrap();
        let mut out = Vec::new();
        raw.put(&mut out, Edition::NEWEST);
        assert_eq!(out, b"{  \"a\\n\": [1,  2] }");
    }
}
