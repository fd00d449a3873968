//! Reads and writes numbers.

/// Reads a number as `serde_json` does, for views and for deserialization.
#[inline(never)]
pub(crate) fn read_number(text: &[u8]) -> Result<serde_json::Number, serde_json::Error> {
    serde_json::from_slice(text)
}

/// Appends an integer.
pub fn write_i64(out: &mut Vec<u8>, number: i64) {
    // Written by hand, since every response has an id and `fmt` is slow.
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a double: as an integer if a double represents it exactly (`50`, not `50.0`), else as the shortest text that
/// parses to the same value, and as `null` if it is not finite.
pub fn write_f64(out: &mut Vec<u8>, number: f64) {
    const MAX_EXACT_INTEGER: f64 = (1_u64 << 53) as f64;
    if number.fract() == 0.0 && number.abs() < MAX_EXACT_INTEGER {
        return write_i64(out, number as i64);
    }
    let text = serde_json::to_vec(&number).expect("a double has a JSON form, `null` at worst");
    out.extend_from_slice(&text);
}
