//! Equality of JSON values, and uniqueness of the items of a list.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use serde_json::Value;

use crate::number;

/// Lists up to this length are compared pairwise.
const MAX_PAIRWISE_ITEMS: usize = 12;

/// Whether two values are equal: `1` equals `1.0`, and the order of members is irrelevant.
pub(crate) fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => number::compare(one, other) == Ordering::Equal,
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| is_equal(one, other)))
        }
        _ => one == other,
    }
}

/// Whether all items differ. Long lists are sorted by hash, so that the time is nearly linear. Every hashed value and every
/// comparison costs fuel; returns `None` if it runs out.
pub(crate) fn are_unique(items: &[Value], fuel: &mut u64) -> Option<bool> {
    if items.len() <= MAX_PAIRWISE_ITEMS {
        return all_distinct(items, |item| item, fuel);
    }
    let state = RandomState::new();
    let mut hashed = Vec::with_capacity(items.len());
    for item in items {
        hashed.push((hash(item, &state, fuel), item));
        if *fuel == 0 {
            return None;
        }
    }
    hashed.sort_unstable_by_key(|(hash, _)| *hash);
    // The hash key is random, so values with equal hashes are almost always equal.
    for same in hashed.chunk_by(|(one, _), (other, _)| one == other) {
        if !all_distinct(same, |(_, item)| item, fuel)? {
            return Some(false);
        }
    }
    Some(true)
}

/// Compares all pairs.
fn all_distinct<T>(all: &[T], item: impl Fn(&T) -> &Value, fuel: &mut u64) -> Option<bool> {
    for (end, one) in all.iter().enumerate() {
        for earlier in &all[..end] {
            *fuel = fuel.checked_sub(1)?;
            if is_equal(item(earlier), item(one)) {
                return Some(false);
            }
        }
    }
    Some(true)
}

/// Returns equal hashes for equal values. The kind, the length and all parts of a value contribute to its hash.
fn hash(value: &Value, state: &RandomState, fuel: &mut u64) -> u64 {
    *fuel = fuel.saturating_sub(1);
    let mut hasher = state.build_hasher();
    std::mem::discriminant(value).hash(&mut hasher);
    match value {
        Value::Null => {}
        Value::Bool(flag) => flag.hash(&mut hasher),
        Value::Number(number) => number::hash(number, &mut hasher),
        Value::String(text) => {
            *fuel = fuel.saturating_sub(text.len() as u64 / 64);
            text.hash(&mut hasher);
        }
        Value::Array(items) => {
            items.len().hash(&mut hasher);
            items.iter().for_each(|item| hash(item, state, fuel).hash(&mut hasher));
        }
        Value::Object(members) => {
            members.len().hash(&mut hasher);
            let one = |(name, value): (&String, &Value)| state.hash_one((name, hash(value, state, fuel)));
            // Independent of the order.
            members.iter().map(one).fold(0_u64, u64::wrapping_add).hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_lists_have_the_same_result_as_short_ones() {
        let pad: Vec<Value> = (100..120).map(Value::from).collect();
        for (items, expected) in [
            (json!([1, 1.0]), false),
            (json!([0, -0.0]), false),
            (json!([1, true, "1", [1], {"a": 1}]), true),
            (json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]), false),
            (json!([{"a": 1}, {"a": 2}, null, false, 0, "", [], {}]), true),
            (json!([[1, 2], [2, 1]]), true),
            (json!([1e300, 1e300]), false),
            (json!([u64::MAX, 18_446_744_073_709_551_616.0]), true),
            (json!([i64::MIN, -9_223_372_036_854_775_808.0]), false),
            (json!([u64::MAX, u64::MAX - 1]), true),
            (json!([0.5, 0, 1]), true),
        ] {
            let mut items = items.as_array().cloned().unwrap();
            assert_eq!(are_unique(&items, &mut 1_000), Some(expected), "{items:?}");
            items.extend(pad.clone());
            assert_eq!(are_unique(&items, &mut 1_000), Some(expected), "{items:?}");
        }
    }
    /// Values chosen to collide are still distinguished by their hashes, so that almost no comparisons are needed.
    #[test]
    fn long_lists_are_not_compared_pairwise() {
        let bits = |n: u64, zero: &Value, one: &Value| -> Value {
            (0..17).map(|bit| if n >> bit & 1 == 0 { zero.clone() } else { one.clone() }).collect()
        };
        let near = |n: u64| json!(u64::MAX - n);
        for (name, items) in [
            ("0 and {}", (0..20_000).map(|n| bits(n, &json!(0), &json!({}))).collect::<Vec<_>>()),
            ("null and false", (0..20_000).map(|n| bits(n, &json!(null), &json!(false))).collect()),
            ("[] and {}", (0..20_000).map(|n| bits(n, &json!([]), &json!({}))).collect()),
            ("integers that are one float", (0..20_000).map(near).collect()),
            ("members", (0..20_000).map(|n| json!({"a": n, "b": 20_000 - n})).collect()),
        ] {
            let mut fuel = 20_000_000;
            assert_eq!(are_unique(&items, &mut fuel), Some(true), "{name}");
            // Eighteen hashed values per item, and almost no comparisons.
            assert!(20_000_000 - fuel <= 20_000 * 18 + 10, "{name}: {fuel} left");
            assert_eq!(are_unique(&items, &mut 1_000), None, "{name}");
        }
    }
}
