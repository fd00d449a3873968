//! Values beside each other: whether two are the same, and whether all of a list differ.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use serde_json::Value;

use crate::number;

/// Up to here, each is compared with each.
const FEW: usize = 12;

/// The same, where `1` is `1.0` and the order of members means nothing.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => number::compare(one, other) == Ordering::Equal,
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| is_same(one, other)))
        }
        _ => one == other,
    }
}

/// Whether all differ. Long lists are sorted by what their items hash to, so that time grows with their length.
pub(crate) fn are_unique(items: &[Value]) -> bool {
    if items.len() <= FEW {
        return (1..items.len()).all(|end| !items[..end].iter().any(|earlier| is_same(earlier, &items[end])));
    }
    let state = RandomState::new();
    let mut hashed: Vec<(u64, &Value)> = items.iter().map(|item| (hash(item, &state), item)).collect();
    hashed.sort_unstable_by_key(|(hash, _)| *hash);
    // The key of the hash is a new one each time: equal hashes are equal values, or very rare.
    hashed
        .chunk_by(|(one, _), (other, _)| one == other)
        .all(|same| (1..same.len()).all(|end| !same[..end].iter().any(|(_, one)| is_same(one, same[end].1))))
}

fn hash(value: &Value, state: &RandomState) -> u64 {
    let mut hasher = state.build_hasher();
    match value {
        Value::Null => 0_u8.hash(&mut hasher),
        Value::Bool(flag) => flag.hash(&mut hasher),
        // As a float, where all that are the same are the same.
        Value::Number(number) => (number.as_f64().unwrap_or_default() + 0.0).to_bits().hash(&mut hasher),
        Value::String(text) => text.hash(&mut hasher),
        Value::Array(items) => items.iter().for_each(|item| hash(item, state).hash(&mut hasher)),
        Value::Object(members) => {
            let one = |(name, value): (&String, &Value)| state.hash_one((name, hash(value, state)));
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
    fn long_lists_are_judged_like_short_ones() {
        let pad: Vec<Value> = (100..120).map(Value::from).collect();
        for (items, wanted) in [
            (json!([1, 1.0]), false),
            (json!([0, -0.0]), false),
            (json!([1, true, "1", [1], {"a": 1}]), true),
            (json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]), false),
            (json!([{"a": 1}, {"a": 2}, null, false, 0, "", [], {}]), true),
            (json!([[1, 2], [2, 1]]), true),
        ] {
            let mut items = items.as_array().cloned().unwrap();
            assert_eq!(are_unique(&items), wanted, "{items:?}");
            items.extend(pad.clone());
            assert_eq!(are_unique(&items), wanted, "{items:?}");
        }
    }
}
