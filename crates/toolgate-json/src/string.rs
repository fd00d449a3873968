//! JSON strings: finding their end, unescaping, escaping.
//!
//! Large messages consist of long strings, so all three operations skip plain bytes quickly and handle only special bytes
//! (quotes, backslashes and control characters) one by one. They search for special bytes in one of three ways: eight bytes
//! at a time in short strings, in large blocks in text without them (such as base64), and with 64-bit masks in text with
//! escapes. Ordinary text has an escape about every forty bytes; a mispredicted branch for each of them would cost more
//! than everything else.

use std::borrow::Cow;
use std::convert::Infallible;
use std::ops::ControlFlow;

use crate::view::utf8;

/// The length of a plain run after which the search continues in blocks. Lines of text are shorter, so a block rarely
/// contains a special byte.
const WORD_SCAN_BYTES: usize = 256;

/// Size of a block. The bytes after the last whole plain block are searched
/// again word by word, so it must not be large.
const BLOCK_BYTES: usize = 512;

/// The minimum length, from the first special byte, of text that is searched with bit masks.
pub(crate) const MIN_MASKED_BYTES: usize = 128;

/// 0x01 in each of eight bytes.
const ONES: u64 = u64::MAX / 0xff;

/// 0x80 in each of eight bytes.
const HIGH_BITS: u64 = ONES * 0x80;

/// Skips the plain bytes at the beginning, up to the first quote, backslash or control character. These bytes end a
/// plain run both when reading and when writing.
#[inline(always)]
pub(crate) fn skip_plain(bytes: &[u8]) -> &[u8] {
    skip_plain_with(bytes, skip_plain_blocks)
}

/// Skips the plain bytes of checked text, in which no control character ends a
/// run.
#[inline]
pub(crate) fn skip_trusted_plain(bytes: &[u8]) -> &[u8] {
    skip_plain_with(bytes, skip_to_quote_or_backslash)
}

/// Skips plain bytes word by word; `skip_long` continues a long run.
#[inline(always)]
fn skip_plain_with(bytes: &[u8], skip_long: impl FnOnce(&[u8]) -> &[u8]) -> &[u8] {
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
    skip_long(rest)
}

/// Moves the plain bytes at the beginning of `bytes` to the end of `out`, and
/// returns the rest.
///
/// Copies whole words while it searches for the end of the run, and then truncates the excess: the runs of ordinary text
/// are so short that calling `memcpy` for each of them costs more than the search.
#[inline(always)]
fn copy_plain<'a>(out: &mut Vec<u8>, bytes: &'a [u8]) -> &'a [u8] {
    let end = bytes.len().saturating_sub(WORD_SCAN_BYTES);
    let mut rest = bytes;
    while rest.len() > end {
        let Some((word, after)) = rest.split_first_chunk::<8>() else {
            return copy_up_to(out, rest, skip_plain_bytes(rest));
        };
        out.extend_from_slice(word);
        let found = special_mask(u64::from_le_bytes(*word));
        if found != 0 {
            let n_plain = found.trailing_zeros() as usize / 8;
            out.truncate(out.len() - (8 - n_plain));
            return rest.get(n_plain..).unwrap_or_default();
        }
        rest = after;
    }
    copy_up_to(out, rest, skip_plain_blocks(rest))
}

/// Calls `visit` for each special byte of the whole 64-byte blocks of a text.
///
/// `visit` takes the end of the text processed so far and the position of the special byte, and returns the new end;
/// special bytes before the new end are skipped. The result is the end of the processed text, or the value with which
/// `visit` broke.
#[inline(always)]
pub(crate) fn visit_special<B>(
    bytes: &[u8],
    mut visit: impl FnMut(usize, usize) -> ControlFlow<B, usize>,
) -> ControlFlow<B, usize> {
    let mut end = 0;
    let (blocks, _) = bytes.as_chunks::<64>();
    for (index, block) in blocks.iter().enumerate() {
        let mut bits = special_bits(block);
        while bits != 0 {
            let bit = bits.trailing_zeros();
            let at = 64 * index + bit as usize;
            // Only false for an escape that began in the block before.
            if at >= end {
                end = visit(end, at)?;
            }
            // An escape has at most 12 bytes.
            let handled = (1_u64 << (end - at).min(63)) - 1;
            bits &= !(handled << bit);
        }
    }
    ControlFlow::Continue(end)
}

/// A bit for each special byte of a block, the lowest for the first byte.
#[inline(never)]
fn special_bits(block: &[u8; 64]) -> u64 {
    let flags = block.map(|byte| if is_special(byte) { 0xff } else { 0 });
    let (words, _) = flags.as_chunks::<8>();
    words.iter().rev().fold(0, |bits, word| {
        // Each byte keeps a different bit, and the product adds the bits up in the top byte.
        let word = u64::from_le_bytes(*word) & 0x8040_2010_0804_0201;
        bits << 8 | word.wrapping_mul(ONES) >> 56
    })
}

/// Appends a run of plain bytes. Most runs are shorter than 64 bytes, so 64 bytes are copied inline, without calling
/// `memcpy`, and the excess is truncated.
#[inline(always)]
fn copy_run(out: &mut Vec<u8>, bytes: &[u8], start: usize, end: usize) {
    let (rest, n_bytes) = (bytes.get(start..).unwrap_or_default(), end - start);
    match rest.first_chunk::<64>() {
        Some(block) if n_bytes <= 64 => {
            out.extend_from_slice(block);
            out.truncate(out.len() - (64 - n_bytes));
        }
        _ => out.extend_from_slice(rest.get(..n_bytes).unwrap_or_default()),
    }
}

/// Appends the bytes of `start` before `end`, which is the end of the same slice.
#[inline]
fn copy_up_to<'a>(out: &mut Vec<u8>, start: &[u8], end: &'a [u8]) -> &'a [u8] {
    out.extend_from_slice(start.get(..start.len() - end.len()).unwrap_or_default());
    end
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

/// Whether a block contains control characters. Four words at a time and no
/// early exit, so that it is fast even if the compiler does not vectorize it.
// Not inlined: in a loop over blocks of a fixed size it would be unrolled completely.
#[inline(never)]
fn has_controls(block: &[u8; BLOCK_BYTES]) -> bool {
    const { assert!(BLOCK_BYTES.is_multiple_of(32), "a block consists of whole groups of words") }
    let (words, _) = block.as_chunks::<8>();
    let (fours, _) = words.as_chunks::<4>();
    // Every byte of at least 0x20 borrows from the next one, which is therefore subtracted from 0x1f as well; the top
    // bit of such a byte is set afterwards. The first control character does not borrow, so its top bit is clear; the
    // bits above it do not matter.
    let top_bits = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        (ONES * 0x20 - 1).wrapping_sub(word) | word
    };
    let top_bits =
        fours.iter().fold([u64::MAX; 4], |all, four| std::array::from_fn(|n| all[n] & top_bits(&four[n])));
    top_bits.iter().fold(HIGH_BITS, |all, each| all & each) != HIGH_BITS
}

fn skip_plain_bytes(bytes: &[u8]) -> &[u8] {
    let plain = bytes.iter().position(|&byte| is_special(byte)).unwrap_or(bytes.len());
    bytes.get(plain..).unwrap_or_default()
}

/// Whether the byte is a control character, a quote or a backslash. Flipping the
/// second bit turns a quote into a space, the character after the control
/// characters, and maps these to themselves: one comparison finds both.
#[inline(always)]
fn is_special(byte: u8) -> bool {
    (byte ^ 2) <= 0x20 || byte == b'\\'
}

/// Finds the first special byte of eight: the lowest bit set in the result is
/// its top bit. A borrow can set wrong bits above it, never below.
#[inline(always)]
fn special_mask(word: u64) -> u64 {
    let quote_or_control = (word ^ (ONES * 2)).wrapping_sub(ONES * 0x21);
    let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    // Neither XOR changes the top bits, so those of `word` can be tested for both.
    (quote_or_control | backslash) & !word & HIGH_BITS
}

/// Unescapes the inside of a checked string.
pub(crate) fn unescape(inside: &[u8]) -> Cow<'_, str> {
    match find_backslash(inside) {
        None => Cow::Borrowed(utf8(inside)),
        Some(n_plain) => Cow::Owned(unescape_from(inside, n_plain)),
    }
}

/// Unescapes the inside of a checked string whose first `n_plain` bytes are plain.
fn unescape_from(inside: &[u8], n_plain: usize) -> String {
    let (plain, mut rest) = inside.split_at_checked(n_plain).unwrap_or((&[], inside));
    let mut out = Vec::with_capacity(inside.len());
    out.extend_from_slice(plain);
    if rest.len() >= MIN_MASKED_BYTES {
        rest = unescape_blocks(&mut out, rest);
        rest = copy_plain(&mut out, rest);
    }
    while let Some(n_bytes) = unescape_one(&mut out, rest) {
        rest = copy_plain(&mut out, rest.get(n_bytes..).unwrap_or_default());
    }
    // Checked text is UTF-8, and so is the result: escapes stand for whole characters.
    String::from_utf8(out).unwrap_or_default()
}

/// Unescapes the whole blocks of a text, up to the last escape in them. Returns the unprocessed rest.
fn unescape_blocks<'a>(out: &mut Vec<u8>, bytes: &'a [u8]) -> &'a [u8] {
    let (ControlFlow::Continue(end) | ControlFlow::Break(end)) = visit_special(bytes, |start, at| {
        copy_run(out, bytes, start, at);
        match unescape_one(out, bytes.get(at..).unwrap_or_default()) {
            Some(n_bytes) => ControlFlow::Continue(at + n_bytes),
            // Not in checked text.
            None => ControlFlow::Break(at),
        }
    });
    bytes.get(end..).unwrap_or_default()
}

/// Unescapes the escape at the beginning of checked text, and returns its length; `None` if the text does not begin
/// with an escape.
#[inline(always)]
fn unescape_one(out: &mut Vec<u8>, bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\\', b'u', ..] => {
            let (character, n_bytes) = decode_unicode_escape(bytes);
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            Some(n_bytes)
        }
        [b'\\', kind, ..] => {
            out.push(decode_escape(*kind));
            Some(2)
        }
        _ => None,
    }
}

/// The position of the first backslash. A call of `memchr` does not pay off for
/// a short text.
#[inline]
pub(crate) fn find_backslash(bytes: &[u8]) -> Option<usize> {
    match bytes.len() {
        ..=16 => bytes.iter().position(|&byte| byte == b'\\'),
        _ => memchr::memchr(b'\\', bytes),
    }
}

/// The character that a checked escape other than `\u` stands for.
#[inline(always)]
fn decode_escape(kind: u8) -> u8 {
    // A table, because the branches of a `match` cannot be predicted.
    const CHARACTERS: [u8; 256] = {
        let mut characters = [0; 256];
        characters[b'b' as usize] = 0x08;
        characters[b'f' as usize] = 0x0c;
        characters[b'n' as usize] = b'\n';
        characters[b'r' as usize] = b'\r';
        characters[b't' as usize] = b'\t';
        characters[b'"' as usize] = b'"';
        characters[b'\\' as usize] = b'\\';
        characters[b'/' as usize] = b'/';
        characters
    };
    CHARACTERS[usize::from(kind)]
}

/// The character that a checked `\u` escape stands for, and the length of the
/// escape, which may be a surrogate pair.
fn decode_unicode_escape(escape: &[u8]) -> (char, usize) {
    let high = hex4(escape.get(2..)).unwrap_or_default();
    if let Some(ch) = char::from_u32(high) {
        return (ch, 6);
    }
    let low = hex4(escape.get(8..)).unwrap_or_default();
    (decode_surrogate_pair(high, low).unwrap_or(char::REPLACEMENT_CHARACTER), 12)
}

/// The four hexadecimal digits at the beginning of `bytes`.
pub(crate) fn hex4(bytes: Option<&[u8]>) -> Option<u32> {
    let digits = bytes?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |sum, &digit| Some(sum << 4 | char::from(digit).to_digit(16)?))
}

/// The character of a surrogate pair; `None` if the two units are not a pair.
pub(crate) fn decode_surrogate_pair(high: u32, low: u32) -> Option<char> {
    let units = [u16::try_from(high).ok()?, u16::try_from(low).ok()?];
    let mut chars = char::decode_utf16(units);
    let ch = chars.next()?.ok()?;
    // Two characters of one unit each are not a pair.
    chars.next().is_none().then_some(ch)
}

/// For each byte, the character that follows the backslash in its escape: `u` for a hexadecimal escape, and 0 for a
/// byte that is not escaped.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut control = 0;
    while control < 0x20 {
        escapes[control] = b'u';
        control += 1;
    }
    escapes[0x08] = b'b';
    escapes[0x0c] = b'f';
    escapes[b'\n' as usize] = b'n';
    escapes[b'\r' as usize] = b'r';
    escapes[b'\t' as usize] = b't';
    escapes[b'"' as usize] = b'"';
    escapes[b'\\' as usize] = b'\\';
    escapes
};

/// Appends `text` as a JSON string. Escapes quotes, backslashes and control characters, and nothing else.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    // Ordinary text has an escape about every forty bytes.
    out.reserve(text.len() + 2 + text.len() / 32);
    out.push(b'"');
    let mut rest = copy_plain(out, text.as_bytes());
    if rest.len() >= MIN_MASKED_BYTES {
        rest = escape_blocks(out, rest);
        rest = copy_plain(out, rest);
    }
    while let [byte, after @ ..] = rest {
        write_escape(out, *byte);
        rest = copy_plain(out, after);
    }
    out.push(b'"');
}

/// Escapes the whole blocks of a text, up to the last special byte in them. Returns the unprocessed rest.
fn escape_blocks<'a>(out: &mut Vec<u8>, bytes: &'a [u8]) -> &'a [u8] {
    let ControlFlow::Continue(end) = visit_special(bytes, |start, at| {
        copy_run(out, bytes, start, at);
        write_escape(out, bytes[at]);
        ControlFlow::<Infallible, usize>::Continue(at + 1)
    });
    bytes.get(end..).unwrap_or_default()
}

#[inline(always)]
fn write_escape(out: &mut Vec<u8>, byte: u8) {
    match ESCAPES[usize::from(byte)] {
        b'u' => write_hex_escape(out, byte),
        escape => out.extend_from_slice(&[b'\\', escape]),
    }
}

#[cold]
fn write_hex_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let [high, low] = [byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]);
    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
}

/// Appends JSON as one line. Line breaks, which JSON only allows between tokens, become spaces.
pub fn write_single_line(out: &mut Vec<u8>, json: &[u8]) {
    let mut at = out.len();
    out.extend_from_slice(json);
    while let Some(found) = memchr::memchr2(b'\n', b'\r', &out[at..]) {
        at += found;
        out[at] = b' ';
    }
}
