//! Deserializes checked text into serde types.
//!
//! `serde_json` checks grammar, UTF-8 and escapes while it reads. All of that is known here, so a string is located at memory
//! speed and copied once. The result is the same, errors included, except that errors have no position. Numbers that are not
//! short integers, and all enums, are left to `serde_json` itself, through its byte reader: its reader for `str` would
//! duplicate all of that code.

use serde::Deserialize;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, Expected, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde_json::Error;
use serde_json::de::SliceRead;

use crate::number::read_number;
use crate::string::{trusted_plain_len, unescape};
use crate::view::value_len;

/// The maximum length of an integer that is read here: all of this many digits fit into 64 bits.
const MAX_SHORT_DIGITS: usize = 18;

/// Reads checked text without surrounding whitespace.
pub(crate) fn from_trusted_str<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Error> {
    let mut reader = TrustedDeserializer { rest: text };
    let value = T::deserialize(&mut reader)?;
    reader.peek();
    // A type may leave input unread.
    if reader.rest.is_empty() { Ok(value) } else { Err(Error::custom("trailing characters")) }
}

/// Reads the rest of the text.
struct TrustedDeserializer<'de> {
    rest: &'de str,
}

impl<'de> TrustedDeserializer<'de> {
    /// Reads one value, which must be consumed: a caller that reads until the end would loop otherwise.
    #[inline]
    fn require_progress<T>(
        &mut self,
        said: &str,
        read: impl FnOnce(&mut TrustedDeserializer<'de>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let n_before = self.rest.len();
        let value = read(self)?;
        if self.rest.len() == n_before {
            return Err(Error::custom(said));
        }
        Ok(value)
    }

    /// Returns the first byte of the next value.
    #[inline]
    fn peek(&mut self) -> u8 {
        self.skip_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))
    }

    /// Returns the first significant byte, after separators.
    #[inline]
    fn skip_separator(&mut self, separator: u8) -> u8 {
        self.skip_while(|byte| byte == separator || matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))
    }

    #[inline]
    fn skip_while(&mut self, is_nothing: impl Fn(u8) -> bool) -> u8 {
        loop {
            match self.rest.as_bytes().first() {
                Some(byte) if is_nothing(*byte) => self.advance(1),
                Some(byte) => return *byte,
                None => return 0,
            }
        }
    }

    #[inline]
    fn advance(&mut self, n_bytes: usize) {
        self.rest = self.rest.get(n_bytes..).unwrap_or_default();
    }

    /// Returns the text of the next value.
    fn take_value(&mut self) -> &'de str {
        self.peek();
        let (value, rest) = self.rest.split_at_checked(value_len(self.rest.as_bytes())).unwrap_or_default();
        self.rest = rest;
        value
    }

    /// Returns the inside of the next value, which is a string, and whether it contains escapes.
    #[inline]
    fn take_string(&mut self) -> (&'de str, bool) {
        let inside = self.rest.get(1..).unwrap_or_default();
        let n_plain = trusted_plain_len(inside.as_bytes());
        if let Some((plain, end)) = inside.split_at_checked(n_plain)
            && end.starts_with('"')
        {
            self.rest = end.get(1..).unwrap_or_default();
            return (plain, false);
        }
        let quoted = self.take_value();
        (quoted.strip_prefix('"').and_then(|inside| inside.strip_suffix('"')).unwrap_or_default(), true)
    }

    #[inline]
    fn string<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        match self.take_string() {
            (plain, false) => visitor.visit_borrowed_str(plain),
            (escaped, true) => visitor.visit_string(unescape(escaped).into_owned()),
        }
    }

    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        Number::from_text(self.take_value())?.visit(visitor)
    }

    fn list<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        self.advance(1);
        let value = visitor.visit_seq(ItemAccess(self))?;
        self.expect_end(b']', "trailing characters").map(|()| value)
    }

    #[inline]
    fn map<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        self.advance(1);
        let value = visitor.visit_map(MemberAccess(self))?;
        self.expect_end(b'}', "trailing comma").map(|()| value)
    }

    /// Consumes the end of a list or an object. The visitor may not have reached it.
    #[inline]
    fn expect_end(&mut self, bracket: u8, said: &str) -> Result<(), Error> {
        if self.peek() != bracket {
            return Err(Error::custom(said));
        }
        self.advance(1);
        Ok(())
    }

    /// Creates a type error about the next value.
    #[cold]
    fn invalid_type(&mut self, visitor: &dyn Expected) -> Error {
        let refuse = |unexpected| Error::invalid_type(unexpected, visitor);
        match self.peek() {
            b'"' => {
                let (inside, is_escaped) = self.take_string();
                let text = if is_escaped { unescape(inside) } else { inside.into() };
                refuse(Unexpected::Str(&text))
            }
            b'{' => refuse(Unexpected::Map),
            b'[' => refuse(Unexpected::Seq),
            b't' => refuse(Unexpected::Bool(true)),
            b'f' => refuse(Unexpected::Bool(false)),
            b'n' => refuse(Unexpected::Unit),
            _ => match Number::from_text(self.take_value()) {
                Ok(Number::Positive(number)) => refuse(Unexpected::Unsigned(number)),
                Ok(Number::Negative(number)) => refuse(Unexpected::Signed(number)),
                Ok(Number::Double(number)) => refuse(Unexpected::Float(number)),
                Err(error) => error,
            },
        }
    }
}

enum Number {
    Positive(u64),
    Negative(i64),
    Double(f64),
}

impl Number {
    #[inline]
    fn from_text(text: &str) -> Result<Number, Error> {
        Number::parse_short(text).map_or_else(|| Number::parse(text), Ok)
    }

    /// Reads a short integer.
    #[inline]
    fn parse_short(text: &str) -> Option<Number> {
        let digits = |text: &str| {
            let each = text.bytes();
            (1..=MAX_SHORT_DIGITS)
                .contains(&text.len())
                .then_some(each)?
                .try_fold(0_u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
        };
        match text.strip_prefix('-') {
            None => digits(text).map(Number::Positive),
            // `-0` is a double.
            Some(text) => {
                let number = digits(text).filter(|number| *number > 0)?;
                Some(Number::Negative(-i64::try_from(number).unwrap_or(i64::MAX)))
            }
        }
    }

    #[cold]
    fn parse(text: &str) -> Result<Number, Error> {
        let number = read_number(text.as_bytes())?;
        match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), _, _) => Ok(Number::Positive(number)),
            (None, Some(number), _) => Ok(Number::Negative(number)),
            (None, None, Some(number)) => Ok(Number::Double(number)),
            (None, None, None) => Err(Error::custom("number out of range")),
        }
    }

    #[inline]
    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Number::Positive(number) => visitor.visit_u64(number),
            Number::Negative(number) => visitor.visit_i64(number),
            Number::Double(number) => visitor.visit_f64(number),
        }
    }
}

macro_rules! number_methods {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.peek() {
                b'-' | b'0'..=b'9' => self.number(visitor),
                _ => Err(self.invalid_type(&visitor)),
            }
        }
    )*};
}

macro_rules! string_methods {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.peek() {
                b'"' => self.string(visitor),
                _ => Err(self.invalid_type(&visitor)),
            }
        }
    )*};
}

macro_rules! forward_to_serde_json {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            serde_json::Deserializer::from_slice(self.take_value().as_bytes()).$method(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut TrustedDeserializer<'de> {
    type Error = Error;

    number_methods! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64
    }

    string_methods! { deserialize_str deserialize_string deserialize_char deserialize_identifier }

    // Only `serde_json` knows where a fraction ends.
    forward_to_serde_json! {
        deserialize_f32 deserialize_f64 deserialize_i128 deserialize_u128 deserialize_bytes deserialize_byte_buf
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            b'"' => self.string(visitor),
            b'{' => self.map(visitor),
            b'[' => self.list(visitor),
            b't' | b'f' => self.deserialize_bool(visitor),
            b'n' => self.deserialize_unit(visitor),
            _ => {
                let text = self.take_value();
                match Number::parse_short(text) {
                    Some(number) => number.visit(visitor),
                    // Left to `serde_json`, which can be built to preserve all digits.
                    None => serde_json::Deserializer::from_slice(text.as_bytes()).deserialize_any(visitor),
                }
            }
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            b't' | b'f' => visitor.visit_bool(self.take_value() == "true"),
            _ => Err(self.invalid_type(&visitor)),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            b'n' => {
                self.advance(4);
                visitor.visit_unit()
            }
            _ => Err(self.invalid_type(&visitor)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            b'n' => {
                self.advance(4);
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // `RawValue`, which only `serde_json` can create.
        if name.starts_with("$serde_json::") {
            return serde_json::Deserializer::from_slice(self.take_value().as_bytes())
                .deserialize_newtype_struct(name, visitor);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            b'[' => self.list(visitor),
            _ => Err(self.invalid_type(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            b'{' => self.map(visitor),
            _ => Err(self.invalid_type(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.peek() {
            b'{' => self.map(visitor),
            b'[' => self.list(visitor),
            _ => Err(self.invalid_type(&visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        serde_json::Deserializer::from_slice(self.take_value().as_bytes())
            .deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.take_value();
        visitor.visit_unit()
    }
}

/// The items of a list.
struct ItemAccess<'a, 'de>(&'a mut TrustedDeserializer<'de>);

impl<'de> SeqAccess<'de> for ItemAccess<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        match self.0.skip_separator(b',') {
            b']' => Ok(None),
            _ => self.0.require_progress("expected `,` or `]`", |reader| seed.deserialize(reader)).map(Some),
        }
    }
}

/// The members of an object.
struct MemberAccess<'a, 'de>(&'a mut TrustedDeserializer<'de>);

impl<'de> MapAccess<'de> for MemberAccess<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        match self.0.skip_separator(b',') {
            b'}' => Ok(None),
            _ => self
                .0
                .require_progress("expected `:`", |reader| seed.deserialize(KeyDeserializer(reader)))
                .map(Some),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        self.0.skip_separator(b':');
        self.0.require_progress("expected `,` or `}`", |reader| seed.deserialize(reader))
    }
}

/// The name of a member: a string, whatever the type asks for.
struct KeyDeserializer<'a, 'de>(&'a mut TrustedDeserializer<'de>);

impl<'de> KeyDeserializer<'_, 'de> {
    /// A name that is a number, as `serde_json` reads it. It gets the text after the first quote, and must leave exactly
    /// the second one.
    fn parse_number<T>(
        self,
        is_part: impl Fn(u8) -> bool,
        read: impl FnOnce(&mut serde_json::Deserializer<SliceRead<'de>>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let behind = self.0.rest.get(1..).unwrap_or_default();
        let (inside, _) = self.0.take_string();
        if !inside.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return Err(Error::custom("invalid value: expected key to be a number in quotes"));
        }
        let quoted = behind.get(..=inside.len()).unwrap_or(behind);
        let value = read(&mut serde_json::Deserializer::from_slice(quoted.as_bytes()))?;
        // Text that begins as a number and ends as one is a number, and can be read as a whole.
        let is_whole = inside.bytes().all(is_part)
            && inside.ends_with(|last: char| last.is_ascii_digit())
            && serde_json::from_slice::<IgnoredAny>(inside.as_bytes()).is_ok();
        if is_whole { Ok(value) } else { Err(Error::custom("expected `\"`")) }
    }
}

macro_rules! number_key_methods {
    ($is_part:expr; $($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.parse_number($is_part, |reader| reader.$method(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for KeyDeserializer<'_, 'de> {
    type Error = Error;

    number_key_methods! { |_| true;
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64
    }

    // For these types it reads digits only.
    number_key_methods! { |byte| byte == b'-' || byte.is_ascii_digit(); deserialize_i128 deserialize_u128 }

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.string(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.take_string().0 {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            text => Err(Error::invalid_type(Unexpected::Str(&unescape(text)), &visitor)),
        }
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
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0.take_string() {
            (plain, false) => BorrowedStrDeserializer::new(plain).deserialize_enum(name, variants, visitor),
            (escaped, true) => {
                let text: serde::de::value::StringDeserializer<Error> =
                    unescape(escaped).into_owned().into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(unescape(self.0.take_string().0).as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    serde::forward_to_deserialize_any! {
        char str string unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
