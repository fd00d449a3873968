//! A serde deserializer for checked text.
//!
//! `serde_json` checks grammar, UTF-8 and escapes while it reads. Here all of that has been checked, so a string is found
//! and copied in one pass. The results are those of `serde_json`, and the errors too except for their position: numbers
//! that are not short integers and all enums are passed on to it. Decision 013 has the measurements.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, Expected, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde_json::Error;
use serde_json::de::SliceRead;

use crate::number::read_number;
use crate::string::{skip_trusted_plain, unescape_to_quote};
use crate::view::{utf8, value_len};

/// Digits of the longest integer that is read here; any number of so many digits fits into 64 bits.
const MAX_SHORT_DIGITS: usize = 18;

/// Deserializes a checked text without white space around it.
pub(crate) fn from_trusted<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, Error> {
    let mut reader = TrustedDeserializer { rest: text };
    let value = T::deserialize(&mut reader)?;
    reader.peek();
    // A type may ignore the value that it is given.
    if reader.rest.is_empty() { Ok(value) } else { Err(Error::custom("trailing characters")) }
}

struct TrustedDeserializer<'de> {
    /// The text that has not been read.
    rest: &'de [u8],
}

impl<'de> TrustedDeserializer<'de> {
    /// Reads one item. Fails if the type did not read anything: a loop over all items would never end.
    #[inline]
    fn require_progress<T>(
        &mut self,
        message: &str,
        read: impl FnOnce(&mut TrustedDeserializer<'de>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let n_before = self.rest.len();
        let value = read(self)?;
        if self.rest.len() == n_before {
            return Err(Error::custom(message));
        }
        Ok(value)
    }

    /// Skips white space, and returns the first byte of the next value.
    #[inline]
    fn peek(&mut self) -> u8 {
        self.skip_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))
    }

    /// Skips white space and separators, and returns the first byte after them.
    #[inline]
    fn skip_separator(&mut self, separator: u8) -> u8 {
        self.skip_while(|byte| byte == separator || matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))
    }

    #[inline]
    fn skip_while(&mut self, is_skipped: impl Fn(u8) -> bool) -> u8 {
        loop {
            match self.rest.first() {
                Some(byte) if is_skipped(*byte) => self.advance(1),
                Some(byte) => return *byte,
                None => return 0,
            }
        }
    }

    #[inline]
    fn advance(&mut self, n_bytes: usize) {
        self.rest = self.rest.get(n_bytes..).unwrap_or_default();
    }

    /// Takes the text of the next value.
    fn take_value(&mut self) -> &'de [u8] {
        self.peek();
        let (value, rest) = self.rest.split_at_checked(value_len(self.rest)).unwrap_or_default();
        self.rest = rest;
        value
    }

    /// Takes the next value, which is a string, and unescapes it.
    #[inline]
    fn take_string(&mut self) -> Cow<'de, str> {
        let inside = self.rest.get(1..).unwrap_or_default();
        let end = skip_trusted_plain(inside);
        let n_plain = inside.len() - end.len();
        let (text, end) = match end {
            [b'"', ..] => (Cow::Borrowed(utf8(inside.get(..n_plain).unwrap_or_default())), end),
            _ => {
                let (text, end) = unescape_to_quote(inside, n_plain);
                (Cow::Owned(text), end)
            }
        };
        self.rest = end.get(1..).unwrap_or_default();
        text
    }

    #[inline]
    fn string<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        match self.take_string() {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
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

    /// Takes the end of an array or object. Fails if the type did not read all of its items.
    #[inline]
    fn expect_end(&mut self, bracket: u8, message: &str) -> Result<(), Error> {
        if self.peek() != bracket {
            return Err(Error::custom(message));
        }
        self.advance(1);
        Ok(())
    }

    /// The error for a next value of the wrong type.
    #[cold]
    fn invalid_type(&mut self, visitor: &dyn Expected) -> Error {
        let error = |unexpected| Error::invalid_type(unexpected, visitor);
        match self.peek() {
            b'"' => error(Unexpected::Str(&self.take_string())),
            b'{' => error(Unexpected::Map),
            b'[' => error(Unexpected::Seq),
            b't' => error(Unexpected::Bool(true)),
            b'f' => error(Unexpected::Bool(false)),
            b'n' => error(Unexpected::Unit),
            _ => match Number::from_text(self.take_value()) {
                Ok(Number::Positive(number)) => error(Unexpected::Unsigned(number)),
                Ok(Number::Negative(number)) => error(Unexpected::Signed(number)),
                Ok(Number::Double(number)) => error(Unexpected::Float(number)),
                Err(other) => other,
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
    fn from_text(text: &[u8]) -> Result<Number, Error> {
        Number::parse_short(text).map_or_else(|| Number::parse(text), Ok)
    }

    /// Parses a short integer; `None` if the number is something else.
    #[inline]
    fn parse_short(text: &[u8]) -> Option<Number> {
        let digits = |text: &[u8]| {
            let digits = (1..=MAX_SHORT_DIGITS).contains(&text.len()).then_some(text)?;
            digits
                .iter()
                .try_fold(0_u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
        };
        match text {
            // `-0` is a double.
            [b'-', text @ ..] => {
                let number = digits(text).filter(|number| *number > 0)?;
                Some(Number::Negative(-i64::try_from(number).unwrap_or(i64::MAX)))
            }
            _ => digits(text).map(Number::Positive),
        }
    }

    #[cold]
    fn parse(text: &[u8]) -> Result<Number, Error> {
        let number = read_number(text)?;
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
            serde_json::Deserializer::from_slice(self.take_value()).$method(visitor)
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

    // The precision of fractions and the form of bytes are decided by `serde_json`.
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
                    // Left to `serde_json`, which has a feature that keeps all digits.
                    None => serde_json::Deserializer::from_slice(text).deserialize_any(visitor),
                }
            }
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            b't' | b'f' => visitor.visit_bool(self.take_value() == b"true"),
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
        // The raw values of `serde_json`, which only it can produce.
        if name.starts_with("$serde_json::") {
            return serde_json::Deserializer::from_slice(self.take_value())
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
        serde_json::Deserializer::from_slice(self.take_value()).deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.take_value();
        visitor.visit_unit()
    }
}

/// The items of an array.
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

/// The key of a member: a string, whatever type is asked for.
struct KeyDeserializer<'a, 'de>(&'a mut TrustedDeserializer<'de>);

impl<'de> KeyDeserializer<'_, 'de> {
    /// Parses a key that is a number, as `serde_json` does: it gets the text after the first quote, and must leave the
    /// second one.
    fn parse_number<T>(
        self,
        is_part: impl Fn(u8) -> bool,
        read: impl FnOnce(&mut serde_json::Deserializer<SliceRead<'de>>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let quoted = self.0.take_value();
        let inside_and_quote = quoted.get(1..).unwrap_or_default();
        let inside = inside_and_quote.strip_suffix(b"\"").unwrap_or_default();
        if !matches!(inside, [b'-' | b'0'..=b'9', ..]) {
            return Err(Error::custom("invalid value: expected key to be a number in quotes"));
        }
        let value = read(&mut serde_json::Deserializer::from_slice(inside_and_quote))?;
        // It must be a number as a whole, without anything after it.
        let is_whole = inside.iter().copied().all(is_part)
            && matches!(inside, [.., b'0'..=b'9'])
            && serde_json::from_slice::<IgnoredAny>(inside).is_ok();
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

    // Of these, `serde_json` reads only digits.
    number_key_methods! { |byte| byte == b'-' || byte.is_ascii_digit(); deserialize_i128 deserialize_u128 }

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.string(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let quoted = self.0.rest;
        let text = self.0.take_string();
        match &*text {
            // An escaped key is not a truth value for `serde_json`.
            "true" if quoted.starts_with(b"\"true\"") => visitor.visit_bool(true),
            "false" if quoted.starts_with(b"\"false\"") => visitor.visit_bool(false),
            text => Err(Error::invalid_type(Unexpected::Str(text), &visitor)),
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
            Cow::Borrowed(text) => {
                BorrowedStrDeserializer::new(text).deserialize_enum(name, variants, visitor)
            }
            Cow::Owned(text) => {
                let text: serde::de::value::StringDeserializer<Error> = text.into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(self.0.take_string().as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    serde::forward_to_deserialize_any! {
        char str string unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
