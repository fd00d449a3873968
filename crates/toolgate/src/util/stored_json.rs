//! JSON that was written in this house, or by another process of it, and is read again.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use toolgate_wire::{Limits, RawJson, View};

/// Whoever wrote it kept to what he may. Deeper than this, nothing is read anywhere.
const LIMITS: Limits = Limits { max_bytes: usize::MAX, max_depth: 127 };

/// None if it is none.
pub(crate) fn parse(bytes: Bytes) -> Option<RawJson> {
    RawJson::parse_with(bytes, &LIMITS).ok()
}

/// The members of an object in it, by name; none where there is no object of this name.
pub(crate) fn object_members(whole: &RawJson, object: &str) -> BTreeMap<String, RawJson> {
    whole.view().get(object).map(|object| members(whole, object)).unwrap_or_default()
}

/// The members of an object in some JSON, by name. They are put in one by one: `collect` sorts them first, and each kind
/// of map would bring a sort of its own into the program.
pub(crate) fn members(whole: &RawJson, object: View<'_>) -> BTreeMap<String, RawJson> {
    let mut members = BTreeMap::new();
    for (name, value) in object.members() {
        members.insert(name.into_owned(), whole.slice(value));
    }
    members
}

/// An answer of ours as a tree. What users have serialized may have a key twice: the last counts.
pub(crate) fn response_value(bytes: &[u8]) -> Value {
    toolgate_json::view_from_trusted(bytes).to_value()
}
