//! The JSON writer, and the values that it can write independent of the protocol.
//!
//! [`WriteJson`] appends a value to bytes, for one protocol version. An [`ObjectWriter`] writes members in the order of the
//! calls, and each call states in which versions the member exists. This is the only way in which the encoding of versions
//! may differ. An absent member is omitted; `null` is never written in its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::json::{RawJson, View, write_f64, write_i64, write_single_line, write_string};
use crate::{ProgressToken, ProtocolVersion, RequestId};

/// The largest integer that every JSON reader represents exactly.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// A value that can be written as JSON.
pub(super) trait WriteJson {
    /// Appends the value, as the protocol version encodes it.
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion);

    /// Returns whether the value is absent: an optional member is then omitted.
    fn is_absent(&self) -> bool {
        false
    }
}

/// A JSON object being written.
#[must_use = "an object that is not closed is not JSON"]
pub(super) struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    version: ProtocolVersion,
    is_first: bool,
}

impl<'o> ObjectWriter<'o> {
    pub(super) fn open(out: &'o mut Vec<u8>, version: ProtocolVersion) -> ObjectWriter<'o> {
        out.push(b'{');
        ObjectWriter { out, version, is_first: true }
    }

    /// Writes a member that is always present. `name` must not need escaping.
    pub(super) fn field(self, name: &str, value: &(impl WriteJson + ?Sized)) -> Self {
        self.write_field(name, &value)
    }

    /// Writes a member unless its value is absent.
    pub(super) fn optional(self, name: &str, value: &(impl WriteJson + ?Sized)) -> Self {
        self.write_field_if(true, name, &value)
    }

    /// Writes an optional member that exists since a version.
    pub(super) fn since(self, first: ProtocolVersion, name: &str, value: &(impl WriteJson + ?Sized)) -> Self {
        let is_known = self.version >= first;
        self.write_field_if(is_known, name, &value)
    }

    /// Writes an optional member that exists up to a version.
    pub(super) fn until(self, last: ProtocolVersion, name: &str, value: &(impl WriteJson + ?Sized)) -> Self {
        let is_known = self.version <= last;
        self.write_field_if(is_known, name, &value)
    }

    /// Writes an optional member that exists in one version only.
    pub(super) fn only(self, only: ProtocolVersion, name: &str, value: &(impl WriteJson + ?Sized)) -> Self {
        let is_known = self.version == only;
        self.write_field_if(is_known, name, &value)
    }

    /// Writes a member with an arbitrary name.
    pub(super) fn entry(self, name: &str, value: &(impl WriteJson + ?Sized)) -> Self {
        self.write_entry(name, &value)
    }

    // Not generic, so that it is not compiled for each type.

    #[inline(never)]
    fn write_field(self, name: &str, value: &dyn WriteJson) -> Self {
        let ObjectWriter { out, version, is_first: first } = self;
        out.extend_from_slice(if first { b"\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        value.write_json(out, version);
        ObjectWriter { out, version, is_first: false }
    }

    #[inline(never)]
    fn write_field_if(self, is_known: bool, name: &str, value: &dyn WriteJson) -> Self {
        match is_known && !value.is_absent() {
            true => self.write_field(name, value),
            false => self,
        }
    }

    #[inline(never)]
    fn write_entry(self, name: &str, value: &dyn WriteJson) -> Self {
        let ObjectWriter { out, version, is_first: first } = self;
        if !first {
            out.push(b',');
        }
        write_string(out, name);
        out.push(b':');
        value.write_json(out, version);
        ObjectWriter { out, version, is_first: false }
    }

    /// Copies the members of a foreign object for which `keep` returns true.
    pub(super) fn copy_members(self, object: Option<&RawJson>, keep: impl Fn(&str) -> bool) -> Self {
        let Some(object) = object else { return self };
        let members = object.view().members().filter(|(name, _)| keep(name));
        members.fold(self, |object, (name, value)| object.entry(&name, &value))
    }

    pub(super) fn close(self) {
        self.out.push(b'}');
    }
}

/// A nested object.
pub(super) struct NestedObject<F>(F);

/// Creates a nested object that is written by `fill`.
pub(super) fn nest<F: for<'o> Fn(ObjectWriter<'o>) -> ObjectWriter<'o>>(fill: F) -> NestedObject<F> {
    NestedObject(fill)
}

impl<F: for<'o> Fn(ObjectWriter<'o>) -> ObjectWriter<'o>> WriteJson for NestedObject<F> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        (self.0)(ObjectWriter::open(out, version)).close();
    }
}

/// `true`, or absent.
pub(super) struct TrueOrAbsent(pub(super) bool);

impl WriteJson for TrueOrAbsent {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        self.0.write_json(out, version);
    }

    fn is_absent(&self) -> bool {
        !self.0
    }
}

/// `{}`, or absent: the form in which capabilities are declared.
pub(super) struct EmptyObjectOrAbsent(pub(super) bool);

impl WriteJson for EmptyObjectOrAbsent {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        out.extend_from_slice(b"{}");
    }

    fn is_absent(&self) -> bool {
        !self.0
    }
}

/// A string that needs no escaping.
pub(super) struct UnescapedStr(pub(super) &'static str);

impl WriteJson for UnescapedStr {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        out.push(b'"');
        out.extend_from_slice(self.0.as_bytes());
        out.push(b'"');
    }
}

/// JSON that is absent unless it is an object.
pub(super) struct ObjectOrAbsent<'a>(pub(super) Option<&'a RawJson>);

impl<'a> ObjectOrAbsent<'a> {
    /// Returns the JSON, if it is an object.
    pub(super) fn object(&self) -> Option<&'a RawJson> {
        self.0.filter(|raw| raw.view().is_object())
    }
}

impl WriteJson for ObjectOrAbsent<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        match self.object() {
            Some(raw) => raw.write_json(out, version),
            None => out.extend_from_slice(b"{}"),
        }
    }

    fn is_absent(&self) -> bool {
        self.object().is_none()
    }
}

impl WriteJson for str {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        write_string(out, self);
    }
}

impl WriteJson for String {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        write_string(out, self);
    }
}

impl WriteJson for bool {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        out.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl WriteJson for i64 {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        write_i64(out, *self);
    }
}

/// Numbers above the exact range are written as its maximum: they are sizes and times, for which that is equivalent.
impl WriteJson for u64 {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        write_i64(out, (*self).min(MAX_SAFE_INTEGER).cast_signed());
    }
}

/// JSON has no form for numbers that are not finite: they are absent.
impl WriteJson for f64 {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        write_f64(out, *self);
    }

    fn is_absent(&self) -> bool {
        !self.is_finite()
    }
}

impl WriteJson for RawJson {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        self.view().write_json(out, version);
    }
}

/// Whitespace in foreign JSON may contain line breaks, which are removed: a message is one line.
impl WriteJson for View<'_> {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        write_single_line(out, self.as_bytes());
    }
}

impl WriteJson for RequestId {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        self.write(out);
    }
}

impl WriteJson for ProgressToken {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        self.write(out);
    }
}

impl<T: WriteJson + ?Sized> WriteJson for &T {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        (**self).write_json(out, version);
    }

    fn is_absent(&self) -> bool {
        (**self).is_absent()
    }
}

impl<T: WriteJson + ?Sized> WriteJson for Arc<T> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        (**self).write_json(out, version);
    }
}

/// Writes `null` for a required member that may be null.
impl<T: WriteJson> WriteJson for Option<T> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        match self {
            Some(value) => value.write_json(out, version),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn is_absent(&self) -> bool {
        self.as_ref().is_none_or(WriteJson::is_absent)
    }
}

impl<T: WriteJson> WriteJson for [T] {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        out.push(b'[');
        for (n, value) in self.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            value.write_json(out, version);
        }
        out.push(b']');
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T: WriteJson> WriteJson for Vec<T> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        self.as_slice().write_json(out, version);
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T: WriteJson> WriteJson for BTreeMap<String, T> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let object = ObjectWriter::open(out, version);
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
        let write = |version| {
            let mut out = Vec::new();
            ObjectWriter::open(&mut out, version)
                .field("a", "x\n")
                .optional("b", &None::<u64>)
                .since(ProtocolVersion::V2025_06_18, "c", &Some(1_u64))
                .only(ProtocolVersion::V2025_11_25, "d", &TrueOrAbsent(true))
                .until(ProtocolVersion::V2025_03_26, "e", &vec![true, false])
                .optional("f", &f64::NAN)
                .close();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(write(ProtocolVersion::V2024_11_05), r#"{"a":"x\n","e":[true,false]}"#);
        assert_eq!(write(ProtocolVersion::V2025_06_18), r#"{"a":"x\n","c":1}"#);
        assert_eq!(write(ProtocolVersion::V2025_11_25), r#"{"a":"x\n","c":1,"d":true}"#);
        assert_eq!(write(ProtocolVersion::V2026_07_28), r#"{"a":"x\n","c":1}"#);
    }

    #[test]
    fn foreign_json_becomes_one_line() {
        let raw = RawJson::parse("{\n \"a\\n\": [1,\r\n2]\n}".into()).unwrap();
        let mut out = Vec::new();
        raw.write_json(&mut out, ProtocolVersion::LATEST);
        assert_eq!(out, b"{  \"a\\n\": [1,  2] }");
    }
}
