//! The names of the arguments of a type, found by deserializing it from nothing.

use std::cell::Cell;

use serde::Deserializer;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// Returns the names that the fields of a struct are deserialized from, including aliases (`#[serde(alias)]`), which a schema does
/// not have. Returns `None` for other types, and for a struct with `#[serde(flatten)]`: serde reads it as a map, whose names are
/// not known.
pub(crate) fn argument_names<T: DeserializeOwned>() -> Option<&'static [&'static str]> {
    let names = Cell::new(None);
    // Always an error: there is nothing to deserialize from.
    let _ = T::deserialize(FieldNames(&names));
    names.get()
}

/// Records the names of the fields of a struct, and fails.
struct FieldNames<'a>(&'a Cell<Option<&'static [&'static str]>>);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.set(Some(fields));
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[allow(dead_code)]
    struct Search {
        search_text: String,
        #[serde(alias = "max")]
        limit: Option<u32>,
        #[serde(skip)]
        cache: u32,
    }

    #[derive(Deserialize)]
    #[serde(transparent)]
    #[allow(dead_code)]
    struct Wrapped(Search);

    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct Flattened {
        id: u32,
        #[serde(flatten)]
        search: Search,
    }

    #[test]
    fn names_are_those_of_a_struct_with_known_fields() {
        let search = Some(&["searchText", "limit", "max"][..]);
        assert_eq!(argument_names::<Search>(), search);
        assert_eq!(argument_names::<Box<Wrapped>>(), search);
        assert_eq!(argument_names::<Flattened>(), None);
        assert_eq!(argument_names::<BTreeMap<String, u32>>(), None);
        assert_eq!(argument_names::<serde_json::Value>(), None);
    }
}
