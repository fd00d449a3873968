//! Reading of JSON that this server, or another process of it, has written.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use toolgate_wire::{Limits, RawJson, View};

/// Trusted input: only the depth limit applies.
const LIMITS: Limits = Limits { max_bytes: usize::MAX, max_depth: 127 };

/// Returns `None` if the bytes are not valid JSON.
pub(crate) fn parse(bytes: Bytes) -> Option<RawJson> {
    RawJson::parse_with(bytes, &LIMITS).ok()
}

/// Returns the members of the object member `object`, by name. Empty if there is no such object.
pub(crate) fn object_members(whole: &RawJson, object: &str) -> BTreeMap<String, RawJson> {
    whole.view().get(object).map(|object| members(whole, object)).unwrap_or_default()
}

/// Returns the members of an object in `whole`, by name. Inserted one by one: `collect` sorts first, and would add a sort function
/// to the binary for each type of map.
pub(crate) fn members(whole: &RawJson, object: View<'_>) -> BTreeMap<String, RawJson> {
    let mut members = BTreeMap::new();
    for (name, value) in object.members() {
        members.insert(name.into_owned(), whole.slice(value));
    }
    members
}

/// Parses a response of this server. Values that handlers serialized may have a key twice: the last one counts.
pub(crate) fn response_value(bytes: &[u8]) -> Value {
    toolgate_json::view_from_trusted(bytes).to_value()
}
