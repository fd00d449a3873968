//! JSON strings: finds their end, removes escapes, and adds them.
//!
//! Large messages consist of long strings, so all three work on runs of plain bytes and only look closer where a run ends.

use std::borrow::Cow;

/// The distance to scan word by word before switching to blocks. Most strings of a message end sooner, the keys of `_meta`
/// included.
const WORD_SCAN_BYTES: usize = 64;

/// The block size for long strings. Text with many escapes is scanned again after each of them, so this must be small.
const BLOCK_BYTES: usize = 512;

/// A one in each of eight bytes.
const ONES: u64 = u64::MAX / 0xff;

/// The top bit of each of eight bytes.
const HIGH_BITS: u64 = ONES * 0x80;

/// Returns the rest of the text from the first quote, backslash or control character on: the bytes that end a plain run,
/// for reading and for writing.
#[inline(always)]
pub(crate) fn skip_plain(bytes: &[u8]) -> &[u8] {
    skip_plain_with(bytes, skip_plain_blocks)
}

/// Returns the length of the plain run.
#[inline]
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    bytes.len() - skip_plain(bytes).len()
}

/// Like `plain_len`, for checked text: no control character ends a run there.
#[inline]
pub(crate) fn trusted_plain_len(bytes: &[u8]) -> usize {
    bytes.len() - skip_plain_with(bytes, skip_to_quote_or_backslash).len()
}

/// `far` continues where a run is long.
#[inline(always)]
fn skip_plain_with(bytes: &[u8], far: impl FnOnce(&[u8]) -> &[u8]) -> &[u8] {
    let end = bytes.len().saturating_sub(WORD_SCAN_BYTES);
    let mut rest = bytes;
    while rest.len() > end {
        let Some((word, after)) = rest.split_first_chunk::<8>() else {
            return skip_plain_bytes(rest);
        };
        let found = special_mask(u64::from_le_bytes(*word));
        if found != 0 {
            return rest.get(found.trailing_zeros() as usize / 8..).unwrap_or_default();
        }
        rest = after;
    }
    far(rest)
}

#[inline(never)]
fn skip_to_quote_or_backslash(bytes: &[u8]) -> &[u8] {
    let plain = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
    bytes.get(plain..).unwrap_or_default()
}

#[inline(never)]
fn skip_plain_blocks(mut bytes: &[u8]) -> &[u8] {
    while let Some((block, after)) = bytes.split_first_chunk::<BLOCK_BYTES>() {
        if memchr::memchr2(b'"', b'\\', block).is_some() || has_controls(block) {
            break;
        }
        bytes = after;
    }
    while let Some((word, after)) = bytes.split_first_chunk::<8>() {
        let found = special_mask(u64::from_le_bytes(*word));
        if found != 0 {
            return bytes.get(found.trailing_zeros() as usize / 8..).unwrap_or_default();
        }
        bytes = after;
    }
    skip_plain_bytes(bytes)
}

/// Whether a block contains control characters. Works on words and without early exit: fast also in a program that is
/// optimized for size, where nothing is vectorized.
// Never inlined: in a loop over blocks of one size all of it would be unrolled.
#[inline(never)]
fn has_controls(block: &[u8; BLOCK_BYTES]) -> bool {
    const { assert!(BLOCK_BYTES.is_multiple_of(32), "no byte of a block is left out") }
    let (words, _) = block.as_chunks::<8>();
    let (fours, _) = words.as_chunks::<4>();
    // Subtracting from 0x1f borrows in every byte that is at least a space, which sets its top bit. The first control
    // character does not borrow, and its top bit is clear; the bytes above it are irrelevant then.
    let fine = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        (ONES * 0x20 - 1).wrapping_sub(word) | word
    };
    let fine = fours.iter().fold([u64::MAX; 4], |all, four| std::array::from_fn(|n| all[n] & fine(&four[n])));
    fine.iter().fold(HIGH_BITS, |all, each| all & each) != HIGH_BITS
}

fn skip_plain_bytes(bytes: &[u8]) -> &[u8] {
    let plain = bytes.iter().position(|&byte| is_special(byte)).unwrap_or(bytes.len());
    bytes.get(plain..).unwrap_or_default()
}

/// Control characters, quote and backslash. A quote with its second bit flipped is the first character after the control
/// characters, and these stay among themselves: one comparison finds both.
#[inline(always)]
fn is_special(byte: u8) -> bool {
    (byte ^ 2) <= 0x20 || byte == b'\\'
}

/// Tests eight bytes at once: the lowest bit set is the top bit of the first special byte. A borrow can set bits above it
/// wrongly, never below.
#[inline(always)]
fn special_mask(word: u64) -> u64 {
    let quote_or_control = (word ^ (ONES * 2)).wrapping_sub(ONES * 0x21);
    let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    // Neither changes the top bits, so one test of those of `word` is enough for both.
    (quote_or_control | backslash) & !word & HIGH_BITS
}

/// Unescapes the inside of a checked string.
pub(crate) fn unescape(inside: &str) -> Cow<'_, str> {
    let Some(first) = find_backslash(inside.as_bytes()) else {
        return Cow::Borrowed(inside);
    };
    let mut out = String::with_capacity(inside.len());
    let mut rest = inside;
    let mut next = Some(first);
    while let Some(at) = next {
        let (plain, escape) = rest.split_at(at);
        out.push_str(plain);
        let (ch, taken) = decode_escape(escape.as_bytes());
        out.push(ch);
        // Every escape is ASCII, so this cannot split a character.
        rest = escape.get(taken..).unwrap_or_default();
        next = memchr::memchr(b'\\', rest.as_bytes());
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns the position of the first backslash. Short text is not worth a call.
#[inline]
pub(crate) fn find_backslash(bytes: &[u8]) -> Option<usize> {
    match bytes.len() {
        ..=16 => bytes.iter().position(|&byte| byte == b'\\'),
        _ => memchr::memchr(b'\\', bytes),
    }
}

/// Returns the character of a checked escape, and the length of the escape.
fn decode_escape(escape: &[u8]) -> (char, usize) {
    let ch = match escape.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return decode_unicode_escape(escape),
        // Quote, backslash and slash represent themselves.
        Some(&other) => char::from(other),
        None => char::REPLACEMENT_CHARACTER,
    };
    (ch, 2)
}

fn decode_unicode_escape(escape: &[u8]) -> (char, usize) {
    let high = hex4(escape.get(2..)).unwrap_or_default();
    if let Some(ch) = char::from_u32(high) {
        return (ch, 6);
    }
    let low = hex4(escape.get(8..)).unwrap_or_default();
    (decode_surrogate_pair(high, low).unwrap_or(char::REPLACEMENT_CHARACTER), 12)
}

/// Reads the four hexadecimal digits at the beginning of `bytes`.
pub(crate) fn hex4(bytes: Option<&[u8]>) -> Option<u32> {
    let digits = bytes?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |sum, &digit| Some(sum << 4 | char::from(digit).to_digit(16)?))
}

/// Combines a surrogate pair, if the two are one.
pub(crate) fn decode_surrogate_pair(high: u32, low: u32) -> Option<char> {
    let units = [u16::try_from(high).ok()?, u16::try_from(low).ok()?];
    let mut chars = char::decode_utf16(units);
    let ch = chars.next()?.ok()?;
    // Two characters of one unit each are not a pair.
    chars.next().is_none().then_some(ch)
}

/// Appends `text` as a JSON string. Only quotes, backslashes and control characters are escaped.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    // Reserves a little more for what follows a long string, which would be moved otherwise.
    out.reserve(rest.len() + 2 + rest.len() / 64);
    out.push(b'"');
    loop {
        let (plain, special) = rest.split_at(plain_len(rest));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = special.split_first() else {
            break;
        };
        write_escape(out, byte);
        rest = after;
    }
    out.push(b'"');
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let [high, low] = [byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]);
            return out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Appends JSON as one line: a line break, which JSON has only between values, becomes a space.
pub fn write_single_line(out: &mut Vec<u8>, json: &[u8]) {
    let mut at = out.len();
    out.extend_from_slice(json);
    while let Some(found) = memchr::memchr2(b'\n', b'\r', &out[at..]) {
        at += found;
        out[at] = b' ';
    }
}
