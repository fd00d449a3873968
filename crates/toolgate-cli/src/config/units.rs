//! Parses durations and sizes.

use std::time::Duration;

const DURATION_UNITS: [(&str, u64); 12] = [
    ("ms", 1),
    ("s", 1000),
    ("sec", 1000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("hour", 3_600_000),
    ("hours", 3_600_000),
    ("d", 86_400_000),
    ("day", 86_400_000),
    ("days", 86_400_000),
    ("w", 604_800_000),
];

const SIZE_UNITS: [(&str, u64); 9] = [
    ("", 1),
    ("b", 1),
    ("kb", 1000),
    ("kib", 1 << 10),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("k", 1 << 10),
];

/// Parses `500ms`, `20s` or `1h 30m`. A number without a unit is ambiguous and not accepted.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, unit, after) = split_number(rest)?;
        let (_, factor) = DURATION_UNITS.iter().find(|(known, _)| *known == unit)?;
        total = total.checked_add(Duration::try_from_secs_f64(number * (*factor as f64) / 1000.0).ok()?)?;
        rest = after.trim_start();
    }
    Some(total)
}

/// Parses `64KiB`, `4 MiB` or `1000`.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit, after) = split_number(text.trim())?;
    let unit = unit.to_ascii_lowercase();
    let (_, factor) = SIZE_UNITS.iter().find(|(known, _)| *known == unit)?;
    let bytes = number * (*factor as f64);
    (after.is_empty() && bytes <= 9e15).then_some(bytes as u64)
}

/// Splits a text into a number, the letters after it, and the rest.
fn split_number(text: &str) -> Option<(f64, &str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, after) = rest.split_at(end);
    Some((number.parse().ok()?, unit, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, wanted) in [
            ("500ms", Some(500)),
            ("20s", Some(20_000)),
            ("1.5m", Some(90_000)),
            ("1h 30m", Some(5_400_000)),
            ("2 days", Some(172_800_000)),
            ("20", None),
            ("", None),
            ("s", None),
            ("5 parsecs", None),
            ("-5s", None),
            ("1e9s", None),
        ] {
            assert_eq!(parse_duration(text), wanted.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn sizes_may_have_units() {
        for (text, wanted) in [
            ("64KiB", Some(65_536)),
            ("4 MiB", Some(4 << 20)),
            ("1kb", Some(1000)),
            ("1000", Some(1000)),
            ("4XB", None),
            ("", None),
            ("99999999999999GiB", None),
        ] {
            assert_eq!(parse_size(text), wanted, "{text}");
        }
    }
}
