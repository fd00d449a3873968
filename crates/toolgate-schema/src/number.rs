//! JSON numbers by their mathematical value: `1` equals `1.0`, and `0.3` is a multiple of `0.1`.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::hash::{Hash as _, Hasher};

use serde_json::Number;

fn as_i128(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn as_f64(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::INFINITY)
}

pub(crate) fn is_integer(number: &Number) -> bool {
    as_i128(number).is_some() || as_f64(number).fract() == 0.0
}

/// Compares two numbers, exactly even for large integers.
pub(crate) fn compare(one: &Number, other: &Number) -> Ordering {
    match (as_i128(one), as_i128(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(one), None) => compare_mixed(one, as_f64(other)),
        (None, Some(other)) => compare_mixed(other, as_f64(one)).reverse(),
        (None, None) => as_f64(one).partial_cmp(&as_f64(other)).unwrap_or(Ordering::Equal),
    }
}

fn compare_mixed(integer: i128, float: f64) -> Ordering {
    // All integers here fit 64 bits, so larger floats need no exact comparison.
    if float >= 1e20 {
        return Ordering::Less;
    }
    if float <= -1e20 {
        return Ordering::Greater;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and within 1e20")]
    let whole = float.floor() as i128;
    integer.cmp(&whole).then(match float > float.floor() {
        true => Ordering::Less,
        false => Ordering::Equal,
    })
}

/// Hashes a number. Numbers that compare equal, and only those, have the same hash input.
pub(crate) fn hash(number: &Number, hasher: &mut impl Hasher) {
    let float = as_f64(number);
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and within 1e20")]
    let whole = || (float.fract() == 0.0 && float.abs() < 1e20).then_some(float as i128);
    let whole = as_i128(number).or_else(whole);
    whole.hash(hasher);
    if whole.is_none() {
        float.to_bits().hash(hasher);
    }
}

/// Returns whether a number is a multiple of another. Both are read as decimals, exactly as they are written.
pub(crate) fn is_multiple(number: &Number, of: &Number) -> bool {
    match (as_i128(number), as_i128(of)) {
        (Some(number), Some(of)) => of != 0 && number % of == 0,
        _ => match (to_decimal(number), to_decimal(of)) {
            (Some(number), Some(of)) => is_decimal_multiple(number, of),
            _ => false,
        },
    }
}

/// Returns `digits * 10^exponent`, without the sign. No float has more than seventeen digits.
fn to_decimal(number: &Number) -> Option<(u64, i32)> {
    if let Some(integer) = as_i128(number) {
        return Some((u64::try_from(integer.unsigned_abs()).ok()?, 0));
    }
    let mut digits = DecimalParser::default();
    write!(digits, "{:e}", as_f64(number).abs()).ok()?;
    Some((digits.digits, digits.exponent - digits.n_fraction_digits))
}

/// Parses the decimal text that is written to it, such as `1.25e-7`.
#[derive(Default)]
struct DecimalParser {
    digits: u64,
    n_fraction_digits: i32,
    exponent: i32,
    in_fraction: bool,
    in_exponent: bool,
    is_exponent_negative: bool,
}

impl fmt::Write for DecimalParser {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            match byte {
                b'.' => self.in_fraction = true,
                b'e' => self.in_exponent = true,
                b'-' => self.is_exponent_negative = true,
                b'0'..=b'9' if self.in_exponent => {
                    let digit = i32::from(byte - b'0');
                    self.exponent =
                        self.exponent * 10 + if self.is_exponent_negative { -digit } else { digit };
                }
                b'0'..=b'9' => {
                    let digit = u64::from(byte - b'0');
                    self.digits = self
                        .digits
                        .checked_mul(10)
                        .and_then(|all| all.checked_add(digit))
                        .ok_or(fmt::Error)?;
                    self.n_fraction_digits += i32::from(self.in_fraction);
                }
                // Infinity has no digits.
                _ => return Err(fmt::Error),
            }
        }
        Ok(())
    }
}

fn is_decimal_multiple((number, exponent): (u64, i32), (of, of_exponent): (u64, i32)) -> bool {
    if number == 0 || of == 0 {
        return number == 0 && of != 0;
    }
    let (number, of) = (u128::from(number), u128::from(of));
    let shift = exponent - of_exponent;
    if shift < 0 {
        // The digits, at most twenty, would have to end in this many zeros.
        return match 10_u128.checked_pow(shift.unsigned_abs()) {
            Some(zeros) if shift > -20 => number % (of * zeros) == 0,
            _ => false,
        };
    }
    // Both factors stay below 2^64.
    let mut left = number % of;
    for _ in 0..shift {
        left = left * 10 % of;
    }
    left == 0
}

/// Converts the value of a length limit to a count; both `2` and `2.0` are valid.
pub(crate) fn as_count(number: &Number) -> Option<u64> {
    if let Some(count) = number.as_u64() {
        return Some(count);
    }
    let float = number.as_f64()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole and not below 0"
    )]
    (float >= 0.0 && float.fract() == 0.0).then_some(float as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn number(value: &Value) -> Number {
        value.as_number().cloned().unwrap()
    }

    #[test]
    fn numbers_are_compared_without_loss() {
        for (one, other, order) in [
            (json!(1), json!(1.0), Ordering::Equal),
            (json!(1), json!(1.5), Ordering::Less),
            (json!(-1), json!(-1.5), Ordering::Greater),
            (json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992.0), Ordering::Greater),
            (json!(u64::MAX), json!(18_446_744_073_709_551_616.0), Ordering::Less),
            (json!(i64::MIN), json!(-9_223_372_036_854_775_808.0), Ordering::Equal),
            (json!(u64::MAX), json!(i64::MIN), Ordering::Greater),
            (json!(1e300), json!(5), Ordering::Greater),
            (json!(-1e300), json!(5), Ordering::Less),
        ] {
            assert_eq!(compare(&number(&one), &number(&other)), order, "{one} {other}");
            assert_eq!(compare(&number(&other), &number(&one)), order.reverse(), "{other} {one}");
        }
    }

    #[test]
    fn multiples_are_those_of_decimals() {
        for (one, of, expected) in [
            (json!(0.3), json!(0.1), true),
            (json!(1070468.14), json!(0.01), true),
            (json!(0.35), json!(0.1), false),
            (json!(7), json!(2), false),
            (json!(8), json!(2.0), true),
            (json!(-4.5), json!(1.5), true),
            (json!(0), json!(0.7), true),
            (json!(0.0), json!(3), true),
            (json!(1e308), json!(0.5), true),
            (json!(1e308), json!(0.123456789), false),
            (json!(1e-300), json!(1), false),
            (json!(3), json!(1e-300), true),
            (json!(u64::MAX), json!(5), true),
            (json!(9_007_199_254_740_993_u64), json!(2), false),
            (json!(12391239123_i64), json!(1e-8), true),
        ] {
            assert_eq!(is_multiple(&number(&one), &number(&of)), expected, "{one} of {of}");
        }
    }
}
