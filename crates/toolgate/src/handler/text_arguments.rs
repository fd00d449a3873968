//! A serde deserializer for string arguments: the arguments of prompts and the variables of templates.
//!
//! All values are strings on the wire. For fields of numeric, boolean and enum types, the string is parsed.

use serde::de::value::{Error, MapDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;

/// Deserializes a struct or map from pairs of name and string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextArguments<'a>(&'a [(String, String)]);

impl<'a> TextArguments<'a> {
    pub(crate) fn new(pairs: &'a [(String, String)]) -> TextArguments<'a> {
        TextArguments(pairs)
    }
}

impl<'de> Deserializer<'de> for TextArguments<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(MapDeserializer::new(
            self.0.iter().map(|(name, text)| (name.as_str(), TextArgument { name, text })),
        ))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[derive(Clone, Copy, Debug)]
struct TextArgument<'a> {
    name: &'a str,
    text: &'a str,
}

impl TextArgument<'_> {
    fn parse<T: std::str::FromStr>(self, what: &str) -> Result<T, Error> {
        let TextArgument { name, text } = self;
        let shown = text.char_indices().nth(80).map_or(text, |(end, _)| &text[..end]);
        text.parse().map_err(|_| de::Error::custom(format_args!("`{name}` must be {what}, got {shown:?}")))
    }
}

impl<'de> IntoDeserializer<'de, Error> for TextArgument<'de> {
    type Deserializer = TextArgument<'de>;

    fn into_deserializer(self) -> TextArgument<'de> {
        self
    }
}

macro_rules! parse_from_text {
    ($($method:ident $visit:ident $what:literal)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.parse($what)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for TextArgument<'de> {
    type Error = Error;

    parse_from_text! {
        deserialize_bool visit_bool "true or false"
        deserialize_i8 visit_i8 "an integer"
        deserialize_i16 visit_i16 "an integer"
        deserialize_i32 visit_i32 "an integer"
        deserialize_i64 visit_i64 "an integer"
        deserialize_u8 visit_u8 "a non-negative integer"
        deserialize_u16 visit_u16 "a non-negative integer"
        deserialize_u32 visit_u32 "a non-negative integer"
        deserialize_u64 visit_u64 "a non-negative integer"
        deserialize_f32 visit_f32 "a number"
        deserialize_f64 visit_f64 "a number"
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

impl<'de> EnumAccess<'de> for TextArgument<'de> {
    type Error = Error;
    type Variant = UnitVariant;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, UnitVariant), Error> {
        seed.deserialize(self).map(|variant| (variant, UnitVariant))
    }
}

/// A string can only name a unit variant.
struct UnitVariant;

impl<'de> VariantAccess<'de> for UnitVariant {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Error> {
        Err(de::Error::custom("a text cannot fill this choice"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("a text cannot fill this choice"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("a text cannot fill this choice"))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Style {
        Short,
        Long,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Page {
        id: u32,
        title: String,
        draft: Option<bool>,
        style: Option<Style>,
        #[serde(default)]
        scale: f64,
    }

    fn deserialize_page(pairs: &[(&str, &str)]) -> Result<Page, String> {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Page::deserialize(TextArguments::new(&pairs)).map_err(|error| error.to_string())
    }

    #[test]
    fn strings_are_parsed_by_field_type() {
        let page = deserialize_page(&[
            ("id", "7"),
            ("title", "8"),
            ("draft", "true"),
            ("style", "long"),
            ("scale", "0.5"),
        ]);
        let wanted =
            Page { id: 7, title: "8".into(), draft: Some(true), style: Some(Style::Long), scale: 0.5 };
        assert_eq!(page, Ok(wanted));
    }

    #[test]
    fn errors_name_the_argument() {
        assert_eq!(
            deserialize_page(&[("id", "seven"), ("title", "x")]).unwrap_err(),
            "`id` must be a non-negative integer, got \"seven\""
        );
        assert_eq!(deserialize_page(&[("id", "7")]).unwrap_err(), "missing field `title`");
    }
}
