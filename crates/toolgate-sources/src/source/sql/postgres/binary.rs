//! Decodes PostgreSQL's binary format to JSON.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value};
use sqlx::TypeInfo as _;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};

use super::super::value::{self, bytes, date, float, float4, integer, json_document, text, time};
use crate::source::value_text;

/// Days from 1970-01-01 to 2000-01-01, the PostgreSQL epoch.
const POSTGRES_EPOCH_DAYS: i64 = 10_957;
const MICROS_PER_DAY: i64 = 86_400_000_000;

pub(super) fn decode(kind: &PgTypeInfo, raw: &[u8]) -> Result<Value, String> {
    let decoded = match kind.kind() {
        PgTypeKind::Array(element) => decode_array(element, ByteReader(raw))?,
        PgTypeKind::Domain(inner) => return decode(inner, raw),
        PgTypeKind::Enum(_) => Some(text(raw)),
        PgTypeKind::Composite(fields) => decode_composite(fields, ByteReader(raw))?,
        PgTypeKind::Range(element) => decode_range(element, ByteReader(raw))?,
        _ => decode_scalar(kind.name(), raw)?,
    };
    decoded.ok_or_else(|| format!("a value of type {} cannot be read", kind.name()))
}

/// Returns `None` if the value is shorter than its type.
fn decode_scalar(kind: &str, raw: &[u8]) -> Result<Option<Value>, String> {
    let mut reader = ByteReader(raw);
    Ok(match kind {
        "BOOL" => reader.take_array::<1>().map(|[byte]| Value::Bool(byte != 0)),
        "INT2" => reader.take_array().map(|raw| integer(i16::from_be_bytes(raw).into())),
        "INT4" => reader.read_i32().map(|number| integer(number.into())),
        "INT8" => reader.read_i64().map(integer),
        "OID" => reader.take_array().map(|raw| integer(u32::from_be_bytes(raw).into())),
        "FLOAT4" => reader.take_array().map(|raw| float4(f32::from_be_bytes(raw))),
        "FLOAT8" => reader.take_array().map(|raw| float(f64::from_be_bytes(raw))),
        "NUMERIC" => decode_numeric(reader).map(Value::from),
        "TEXT" | "VARCHAR" | "CHAR" | "\"CHAR\"" | "NAME" | "UNKNOWN" => Some(text(raw)),
        "JSON" => Some(json_document(raw)),
        // One version byte, then the text.
        "JSONB" => raw.get(1..).map(json_document),
        "UUID" => reader.take_array::<16>().map(|raw| Value::from(format_uuid(u128::from_be_bytes(raw)))),
        "BYTEA" => Some(bytes(raw)),
        "DATE" => reader.read_i32().map(|days| Value::from(format_date(days))),
        "TIME" => reader.read_i64().map(|micros| Value::from(time(micros))),
        "TIMETZ" => reader
            .read_i64()
            .zip(reader.read_i32())
            .map(|(micros, seconds_west)| Value::from(time(micros) + &format_offset(seconds_west))),
        "TIMESTAMP" => reader.read_i64().map(|micros| Value::from(format_timestamp(micros, ""))),
        "TIMESTAMPTZ" => reader.read_i64().map(|micros| Value::from(format_timestamp(micros, "Z"))),
        "INTERVAL" => match (reader.read_i64(), reader.read_i32(), reader.read_i32()) {
            (Some(micros), Some(days), Some(months)) => {
                Some(Value::from(format_interval(micros, days, months)))
            }
            _ => None,
        },
        "INET" | "CIDR" => decode_inet(raw).map(Value::from),
        "VOID" => Some(Value::Null),
        _ if ["citext", "xml"].iter().any(|known| kind.eq_ignore_ascii_case(known)) => Some(text(raw)),
        _ => {
            return Err(format!(
                "the type {kind} has no JSON form; cast it in the query, for example to text"
            ));
        }
    })
}

/// Reads from the front of a value.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take_slice(N)?.try_into().ok()
    }

    fn take_slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.0.get(..length)?;
        self.0 = self.0.get(length..)?;
        Some(taken)
    }

    fn read_i32(&mut self) -> Option<i32> {
        self.take_array().map(i32::from_be_bytes)
    }

    fn read_i64(&mut self) -> Option<i64> {
        self.take_array().map(i64::from_be_bytes)
    }

    /// Reads a value with a length prefix; a negative length is NULL.
    fn read_nested(&mut self, kind: &PgTypeInfo) -> Result<Option<Value>, String> {
        let Some(length) = self.read_i32() else { return Ok(None) };
        let Ok(length) = usize::try_from(length) else { return Ok(Some(Value::Null)) };
        self.take_slice(length).map(|raw| decode(kind, raw)).transpose()
    }
}

fn decode_array(element: &PgTypeInfo, mut reader: ByteReader<'_>) -> Result<Option<Value>, String> {
    let Some(n_dimensions) = reader.read_i32() else { return Ok(None) };
    let (_has_nulls, _element) = (reader.read_i32(), reader.read_i32());
    let mut lengths = Vec::new();
    for _ in 0..n_dimensions.clamp(0, 6) {
        let (Some(length), Some(_first)) = (reader.read_i32(), reader.read_i32()) else { return Ok(None) };
        lengths.push(usize::try_from(length).unwrap_or_default());
    }
    if lengths.is_empty() {
        return Ok(Some(Value::Array(Vec::new())));
    }
    decode_dimension(element, &lengths, &mut reader)
}

fn decode_dimension(
    element: &PgTypeInfo,
    lengths: &[usize],
    reader: &mut ByteReader<'_>,
) -> Result<Option<Value>, String> {
    let Some((length, inner)) = lengths.split_first() else { return reader.read_nested(element) };
    let mut items = Vec::new();
    for _ in 0..*length {
        let Some(item) = decode_dimension(element, inner, reader)? else { return Ok(None) };
        items.push(item);
    }
    Ok(Some(Value::Array(items)))
}

fn decode_composite(
    fields: &[(String, PgTypeInfo)],
    mut reader: ByteReader<'_>,
) -> Result<Option<Value>, String> {
    let mut members = Map::new();
    let _n_fields = reader.read_i32();
    for (name, kind) in fields {
        let _oid = reader.read_i32();
        let Some(value) = reader.read_nested(kind)? else { return Ok(None) };
        members.insert(name.clone(), value);
    }
    Ok(Some(Value::Object(members)))
}

/// Formats a range as PostgreSQL does: `[1,5)`, `(,2024-01-01]`, `empty`.
fn decode_range(element: &PgTypeInfo, mut reader: ByteReader<'_>) -> Result<Option<Value>, String> {
    let Some([flags]) = reader.take_array() else { return Ok(None) };
    if flags & 1 != 0 {
        return Ok(Some(Value::from("empty")));
    }
    let mut bound = |infinite: bool| match infinite {
        true => Ok(Some(String::new())),
        false => reader.read_nested(element).map(|value| value.map(|value| value_text(&value))),
    };
    let (low, high) = (bound(flags & 8 != 0)?, bound(flags & 16 != 0)?);
    let open = if flags & 2 != 0 { '[' } else { '(' };
    let close = if flags & 4 != 0 { ']' } else { ')' };
    Ok(low.zip(high).map(|(low, high)| Value::from(format!("{open}{low},{high}{close}"))))
}

/// Groups of four digits; the first has the weight 10000^`weight`.
fn decode_numeric(mut reader: ByteReader<'_>) -> Option<String> {
    let mut short = || reader.take_array().map(i16::from_be_bytes);
    let (n_groups, weight, sign, scale) = (short()?, short()?, short()?, short()?);
    match sign.cast_unsigned() {
        0xc000 => return Some("NaN".to_owned()),
        0xd000 => return Some("Infinity".to_owned()),
        0xf000 => return Some("-Infinity".to_owned()),
        _ => {}
    }
    let groups: Vec<i16> = (0..n_groups).map(|_| short()).collect::<Option<_>>()?;
    let group = |at: i32| usize::try_from(at).ok().and_then(|at| groups.get(at)).copied().unwrap_or_default();
    let weight = i32::from(weight);
    let mut number = String::new();
    for at in 0..=weight.max(-1) {
        number += &if number.is_empty() { group(at).to_string() } else { format!("{:04}", group(at)) };
    }
    if number.is_empty() {
        number.push('0');
    }
    let scale = usize::try_from(scale).unwrap_or_default();
    if scale > 0 {
        let mut fraction = String::new();
        let mut at = weight + 1;
        while fraction.len() < scale {
            fraction += &format!("{:04}", group(at));
            at += 1;
        }
        fraction.truncate(scale);
        number = format!("{number}.{fraction}");
    }
    Some(if sign == 0x4000 { format!("-{number}") } else { number })
}

fn format_uuid(number: u128) -> String {
    let digits = format!("{number:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part).unwrap_or_default());
    parts.join("-")
}

fn format_date(days: i32) -> String {
    match days {
        i32::MAX => "infinity".to_owned(),
        i32::MIN => "-infinity".to_owned(),
        _ => date(POSTGRES_EPOCH_DAYS + i64::from(days)),
    }
}

fn format_timestamp(micros: i64, zone: &str) -> String {
    match micros {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        _ => format!(
            "{}T{}{zone}",
            date(POSTGRES_EPOCH_DAYS + micros.div_euclid(MICROS_PER_DAY)),
            time(micros.rem_euclid(MICROS_PER_DAY))
        ),
    }
}

/// PostgreSQL stores seconds west of UTC.
fn format_offset(seconds_west: i32) -> String {
    let sign = if seconds_west > 0 { '-' } else { '+' };
    let minutes = seconds_west.unsigned_abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// ISO 8601: `P1Y2M3DT4H5M6.5S`, each part with its own sign.
fn format_interval(micros: i64, days: i32, months: i32) -> String {
    let mut text_form = "P".to_owned();
    let mut push = |number: i64, unit: &str| {
        if number != 0 {
            text_form += &format!("{number}{unit}");
        }
    };
    push((months / 12).into(), "Y");
    push((months % 12).into(), "M");
    push(days.into(), "D");
    if micros == 0 {
        return if text_form == "P" { "PT0S".to_owned() } else { text_form };
    }
    text_form.push('T');
    let mut push = |number: i64, unit: &str| {
        if number != 0 {
            text_form += &format!("{number}{unit}");
        }
    };
    push(micros / 3_600_000_000, "H");
    push(micros / 60_000_000 % 60, "M");
    let rest = micros % 60_000_000;
    if rest != 0 {
        let sign = if rest < 0 { "-" } else { "" };
        let seconds = value::time(rest.abs());
        let seconds = seconds.get(6..).unwrap_or_default();
        text_form += &format!("{sign}{}S", seconds.strip_prefix('0').unwrap_or(seconds));
    }
    text_form
}

/// Layout: family, bits, is_cidr, length, bytes.
fn decode_inet(raw: &[u8]) -> Option<String> {
    let (head, raw) = raw.split_at_checked(4)?;
    let (bits, network) = (*head.get(1)?, *head.get(2)? != 0);
    let (address, max_bits) = match raw.len() {
        4 => (Ipv4Addr::from(<[u8; 4]>::try_from(raw).ok()?).to_string(), 32),
        16 => (Ipv6Addr::from(<[u8; 16]>::try_from(raw).ok()?).to_string(), 128),
        _ => return None,
    };
    Some(if network || bits != max_bits { format!("{address}/{bits}") } else { address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_iso_durations() {
        for (micros, days, months, expected) in [
            (0, 0, 0, "PT0S"),
            (0, 3, 14, "P1Y2M3D"),
            (14_706_500_000, 0, 0, "PT4H5M6.5S"),
            (-1_000_000, 0, -1, "P-1MT-1S"),
            (500_000, 0, 0, "PT0.5S"),
        ] {
            assert_eq!(format_interval(micros, days, months), expected);
        }
    }

    #[test]
    fn truncated_values_are_errors() {
        let kinds = ["BOOL", "INT8", "NUMERIC", "UUID", "TIMETZ", "INTERVAL", "INET", "TIMESTAMP", "JSONB"];
        for kind in kinds {
            assert_eq!(decode_scalar(kind, &[]), Ok(None), "{kind}");
        }
        assert!(decode_scalar("point", &[0; 16]).unwrap_err().contains("cast it"));
    }
}
