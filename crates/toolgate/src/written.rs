//! JSON that was written in this house, or by another process of it, and is read again.

use bytes::Bytes;
use serde_json::Value;
use toolgate_wire::{Limits, Raw};

/// Whoever wrote it kept to what he may. Deeper than this, nothing is read anywhere.
const LIMITS: Limits = Limits { max_bytes: usize::MAX, max_depth: 127 };

/// None if it is none.
pub(crate) fn read(bytes: Bytes) -> Option<Raw> {
    Raw::parse_with(bytes, &LIMITS).ok()
}

/// The same as a tree, in one go however deep it is. What users have serialized may have a key twice: the last counts.
pub(crate) fn value(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok()
}
