//! JSON representation of values, common to all databases.
//!
//! No digits are lost: integers that a JavaScript client would round, and decimals, are strings. Dates and times are
//! ISO 8601, bytes are base64, and invalid UTF-8 becomes U+FFFD.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value, json};

/// The largest integer that every JSON parser preserves.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

pub(super) fn integer(number: i64) -> Value {
    if number.unsigned_abs() <= MAX_SAFE_INTEGER {
        Value::from(number)
    } else {
        Value::from(number.to_string())
    }
}

pub(super) fn unsigned(number: u64) -> Value {
    if number <= MAX_SAFE_INTEGER { Value::from(number) } else { Value::from(number.to_string()) }
}

/// JSON has neither infinity nor NaN, so they become `null`.
pub(super) fn float(number: f64) -> Value {
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

/// Keeps the shortest digits of the `f32`, instead of those of the nearest `f64`.
pub(super) fn float4(number: f32) -> Value {
    float(number.to_string().parse().unwrap_or(f64::from(number)))
}

pub(super) fn text(bytes: &[u8]) -> Value {
    Value::from(String::from_utf8_lossy(bytes))
}

pub(super) fn bytes(bytes: &[u8]) -> Value {
    Value::from(STANDARD.encode(bytes))
}

pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Parses a JSON value of the database. A document that is nested too deeply is returned as text.
pub(super) fn json_document(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).map_or_else(|_| text(bytes), preserve_integers)
}

/// Preserves the digits of integers inside documents.
fn preserve_integers(value: Value) -> Value {
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => integer(number),
            (None, Some(number)) => unsigned(number),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(preserve_integers).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(key, value)| (key, preserve_integers(value))).collect()
        }
        other => other,
    }
}

/// The values of a column, as JSON Schema. A column is nullable unless the database says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// An integer that is always a JSON number.
    Integer,
    /// An integer that is a string beyond 2^53.
    BigInteger,
    /// A number, or `null` for infinity and NaN.
    Float,
    /// A number, or a string if the database accepted one.
    LooseFloat,
    Boolean,
    Text,
    Date,
    DateTime,
    Uuid,
    Base64,
    Decimal,
    Array,
    Any,
}

impl ColumnType {
    pub(super) fn schema(self, nullable: bool) -> Value {
        let (types, more): (&[&str], _) = match self {
            ColumnType::Any => return json!({}),
            ColumnType::Integer => (&["integer"], None),
            ColumnType::BigInteger => (&["integer", "string"], None),
            ColumnType::Float => (&["number"], None),
            ColumnType::LooseFloat => (&["number", "string"], None),
            ColumnType::Boolean => (&["boolean"], None),
            ColumnType::Text => (&["string"], None),
            ColumnType::Date => (&["string"], Some(("format", "date"))),
            ColumnType::DateTime => (&["string"], Some(("format", "date-time"))),
            ColumnType::Uuid => (&["string"], Some(("format", "uuid"))),
            ColumnType::Base64 => (&["string"], Some(("contentEncoding", "base64"))),
            ColumnType::Decimal => (&["string"], None),
            ColumnType::Array => (&["array"], None),
        };
        let may_be_null = nullable || matches!(self, ColumnType::Float | ColumnType::LooseFloat);
        let mut types: Vec<&str> = types.to_vec();
        types.extend(may_be_null.then_some("null"));
        let mut schema = match types.as_slice() {
            [only] => json!({ "type": only }),
            _ => json!({ "type": types }),
        };
        if let (Some((key, format)), Some(schema)) = (more, schema.as_object_mut()) {
            schema.insert(key.to_owned(), Value::from(format));
        }
        schema
    }
}

/// Formats days since 1970-01-01 as a Gregorian date.
pub(super) fn date(days: i64) -> String {
    // The calendar repeats every 400 years. Here these start on March 1, so that the leap day is the last day.
    let days = days + 719_468;
    let cycle = days.div_euclid(146_097);
    let day_of_cycle = days.rem_euclid(146_097);
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = cycle * 400 + year_of_cycle + i64::from(month <= 2);
    ymd(year, month, day)
}

pub(super) fn ymd(year: i64, month: i64, day: i64) -> String {
    match year {
        0..=9999 => format!("{year:04}-{month:02}-{day:02}"),
        // ISO 8601 requires a sign for years with more digits.
        _ => format!("{year:+07}-{month:02}-{day:02}"),
    }
}

/// Formats microseconds since midnight.
pub(super) fn time(micros: i64) -> String {
    let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    hms(seconds / 3600, seconds / 60 % 60, seconds % 60, micros)
}

pub(super) fn hms(hours: i64, minutes: i64, seconds: i64, micros: i64) -> String {
    let mut text = format!("{hours:02}:{minutes:02}:{seconds:02}");
    if micros != 0 {
        let fraction = format!("{micros:06}");
        // Writing to a string does not fail.
        let _ = write!(text, ".{}", fraction.trim_end_matches('0'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_formatted_from_days() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "+010000-01-01"),
            (-719_528, "0000-01-01"),
            (-719_529, "-000001-12-31"),
        ] {
            assert_eq!(date(days), expected, "{days}");
        }
        assert_eq!(time(1), "00:00:00.000001");
        assert_eq!(time(86_399_500_000), "23:59:59.5");
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(integer(9_007_199_254_740_991), json!(9_007_199_254_740_991_i64));
        assert_eq!(integer(-9_007_199_254_740_992), json!("-9007199254740992"));
        assert_eq!(unsigned(u64::MAX), json!("18446744073709551615"));
        assert_eq!(float(f64::NAN), Value::Null);
        assert_eq!(float4(0.1), json!(0.1));
        assert_eq!(json_document(b"{\"a\":[9007199254740993]}"), json!({"a": ["9007199254740993"]}));
        assert_eq!(text(b"a\xffb"), json!("a\u{fffd}b"));
    }
}
