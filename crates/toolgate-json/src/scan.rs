//! The validating scanner for untrusted JSON text: RFC 8259, and stricter where the RFC lets parsers disagree.
//!
//! Besides the grammar, the scanner rejects duplicate keys in an object (compared after unescaping), lone surrogates,
//! numbers that overflow a double, and text that exceeds the depth or size limit. The rest of this crate relies on these
//! checks: a [`View`] is only created for text that has passed them.
//!
//! The scanner recurses up to the depth limit. It does not allocate for objects of up to [`MAX_LINEAR_KEYS`] keys without
//! escapes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::error::{JsonError, JsonErrorKind};
use crate::string::{MIN_MASKED_BYTES, decode_surrogate_pair, hex4, skip_plain, unescape, visit_special};
use crate::view::utf8;
use crate::{Limits, View};

/// The depth limit of `serde_json`, which deserializes typed arguments.
const MAX_DEPTH: usize = 127;

/// The maximum number of keys compared one by one; larger objects use a hash set, which keeps the time linear.
const MAX_LINEAR_KEYS: usize = 16;

/// A number with at most this many integer digits and no exponent is always finite as a double.
const MAX_FINITE_DIGITS: usize = 300;

/// Receives the members of an object during the scan, so that the caller need not iterate over the object again.
pub trait MemberVisitor<'a> {
    /// The visitor for objects inside this one.
    type Nested: MemberVisitor<'a>;

    /// Returns the slot for the value of this key, or `None` to ignore it.
    fn slot(&self, key: Key<'a>) -> Option<usize>;

    /// Returns the visitor for the members of the value in this slot, if it is an object.
    fn nested(&mut self, slot: usize) -> Option<&mut Self::Nested>;

    /// Records a value, which may be of any kind.
    fn visit(&mut self, slot: usize, value: View<'a>);

    /// Returns the length of the object at the beginning of `rest` if the same bytes have already passed the scan in this
    /// slot, at the same depth and under the same limits, and their members were recorded. The end of an object does not
    /// depend on the bytes after it, so equal bytes need no second check.
    #[inline(always)]
    fn skip_known(&mut self, _slot: usize, _rest: &'a [u8], _max_depth: usize) -> Option<usize> {
        None
    }
}

/// A visitor that ignores all members.
impl<'a> MemberVisitor<'a> for () {
    type Nested = ();

    #[inline(always)]
    fn slot(&self, _: Key<'a>) -> Option<usize> {
        None
    }

    fn nested(&mut self, _: usize) -> Option<&mut ()> {
        None
    }

    fn visit(&mut self, _: usize, _: View<'a>) {}
}

/// Checks that `bytes` are one JSON value within `limits` and returns a view of it, without surrounding whitespace. If the
/// value is an object, `members` receives its members. If the scan fails, what `members` recorded is meaningless.
pub fn scan<'a>(
    bytes: &'a [u8],
    limits: &Limits,
    members: &mut impl MemberVisitor<'a>,
) -> Result<View<'a>, JsonError> {
    if bytes.len() > limits.max_bytes {
        let kind = JsonErrorKind::TooLong(limits.max_bytes);
        return Err(JsonError::new(limits.max_bytes, kind));
    }
    if !is_utf8(bytes)
        && let Err(error) = std::str::from_utf8(bytes)
    {
        return Err(JsonError::new(error.valid_up_to(), JsonErrorKind::NotUtf8));
    }
    Scanner { bytes, max_depth: limits.max_depth.min(MAX_DEPTH) }.document(members)
}

/// Returns whether `bytes` are UTF-8. Faster than the standard library for text with few characters outside ASCII, because
/// it resumes checking in large blocks after each of them.
fn is_utf8(mut bytes: &[u8]) -> bool {
    loop {
        bytes = match skip_ascii(bytes) {
            [] => return true,
            // RFC 3629, section 4.
            [0xc2..=0xdf, 0x80..=0xbf, after @ ..]
            | [0xe0, 0xa0..=0xbf, 0x80..=0xbf, after @ ..]
            | [0xe1..=0xec | 0xee | 0xef, 0x80..=0xbf, 0x80..=0xbf, after @ ..]
            | [0xed, 0x80..=0x9f, 0x80..=0xbf, after @ ..]
            | [0xf0, 0x90..=0xbf, 0x80..=0xbf, 0x80..=0xbf, after @ ..]
            | [0xf1..=0xf3, 0x80..=0xbf, 0x80..=0xbf, 0x80..=0xbf, after @ ..]
            | [0xf4, 0x80..=0x8f, 0x80..=0xbf, 0x80..=0xbf, after @ ..] => after,
            _ => return false,
        };
    }
}

#[inline(always)]
fn skip_ascii(mut bytes: &[u8]) -> &[u8] {
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    // In texts in other scripts, most characters are followed by another one outside ASCII.
    if let [0x80..=0xff, ..] = bytes {
        return bytes;
    }
    while let Some((block, after)) = bytes.split_first_chunk::<32>() {
        let (words, _) = block.as_chunks::<8>();
        let all = words.iter().fold(0, |all, word| all | u64::from_le_bytes(*word));
        if all & HIGH_BITS != 0 {
            break;
        }
        bytes = after;
    }
    while let Some((word, after)) = bytes.split_first_chunk::<8>() {
        let high = u64::from_le_bytes(*word) & HIGH_BITS;
        if high != 0 {
            return bytes.get(high.trailing_zeros() as usize / 8..).unwrap_or_default();
        }
        bytes = after;
    }
    let n_ascii = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or(bytes.len());
    bytes.get(n_ascii..).unwrap_or_default()
}

/// A key as it is written in the text.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    raw: &'a [u8],
    is_escaped: bool,
}

impl<'a> Key<'a> {
    /// Creates the key from a view of its quoted string.
    pub fn from_view(quoted: View<'a>) -> Self {
        let raw = match quoted.as_bytes() {
            [b'"', inside @ .., b'"'] => inside,
            _ => &[],
        };
        Self { raw, is_escaped: raw.contains(&b'\\') }
    }

    /// Returns the unescaped key.
    pub fn unescaped(self) -> Cow<'a, str> {
        if self.is_escaped { unescape(self.raw) } else { Cow::Borrowed(utf8(self.raw)) }
    }

    /// Returns the slot that `find` assigns to the key. `find` receives bytes, because comparing them starts with their
    /// length. Escaped keys are unescaped first: they are rare, but equal to the unescaped name.
    #[inline(always)]
    pub fn find_slot(self, find: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        // `find` is called in one place only, so that it is inlined.
        let text;
        let key = match self.is_escaped {
            true => {
                text = self.unescaped();
                text.as_bytes()
            }
            false => self.raw,
        };
        find(key)
    }
}

/// The rest of the text after a checked part.
type ScanResult<'a> = Result<&'a [u8], JsonError>;

/// The scanner of a text. Its functions take the rest of the text and return the rest after the part they checked. A rest
/// fits in two registers, and examining a byte takes one comparison.
struct Scanner<'a> {
    /// UTF-8.
    bytes: &'a [u8],
    max_depth: usize,
}

impl<'a> Scanner<'a> {
    fn document(&self, members: &mut impl MemberVisitor<'a>) -> Result<View<'a>, JsonError> {
        let start = trim_start(self.bytes);
        let end = match start {
            [b'{', ..] => self.object(start, 1, members)?,
            _ => self.value(start, 0)?,
        };
        let after = trim_start(end);
        if !after.is_empty() {
            return Err(self.error(after, JsonErrorKind::TrailingCharacters));
        }
        Ok(View::from_trusted(between(start, end)))
    }

    /// `depth` is the number of containers around the value.
    fn value(&self, at: &'a [u8], depth: usize) -> ScanResult<'a> {
        match at {
            [b'"', inside @ ..] => self.string(inside).map(|(_, after)| after),
            [b'{', ..] => self.object(at, depth + 1, &mut ()),
            [b'[', ..] => self.array(at, depth + 1),
            [b'-' | b'0'..=b'9', ..] => self.number(at),
            [b't', ..] => self.literal(at, b"true"),
            [b'f', ..] => self.literal(at, b"false"),
            [b'n', ..] => self.literal(at, b"null"),
            _ => Err(self.unexpected(at)),
        }
    }

    fn object<M: MemberVisitor<'a>>(&self, at: &'a [u8], depth: usize, members: &mut M) -> ScanResult<'a> {
        let mut at = self.enter(at, depth)?;
        if let [b'}', after @ ..] = at {
            return Ok(after);
        }
        let mut seen = SeenKeys::new();
        loop {
            let [b'"', inside @ ..] = at else {
                return Err(self.unexpected(at));
            };
            let (key, after) = self.string(inside)?;
            if !seen.insert(key) {
                return Err(JsonError::duplicate(self.offset(at), &key.unescaped()));
            }
            let start = match after {
                [b':', after @ ..] => trim_start(after),
                _ => self.colon(after)?,
            };
            let slot = members.slot(key);
            let end = match (start, slot) {
                // Most values are strings.
                ([b'"', inside @ ..], _) => self.string(inside)?.1,
                ([b'{', ..], Some(slot)) => self.nested_object(start, depth, members, slot)?,
                _ => self.value(start, depth)?,
            };
            if let Some(slot) = slot {
                members.visit(slot, View::from_trusted(between(start, end)));
            }
            let next = match end {
                [b',' | b'}', ..] => end,
                _ => skip_space(end),
            };
            at = match next {
                [b',', after @ ..] => trim_start(after),
                [b'}', after @ ..] => return Ok(after),
                _ => return Err(self.unexpected(next)),
            };
        }
    }

    /// Scans an object whose members may be recorded.
    #[inline(always)]
    fn nested_object<M: MemberVisitor<'a>>(
        &self,
        at: &'a [u8],
        depth: usize,
        members: &mut M,
        slot: usize,
    ) -> ScanResult<'a> {
        if let Some(n_bytes) = members.skip_known(slot, at, self.max_depth) {
            return Ok(at.get(n_bytes..).unwrap_or_default());
        }
        match members.nested(slot) {
            Some(nested) => self.object(at, depth + 1, nested),
            None => self.value(at, depth),
        }
    }

    /// Scans a colon and the whitespace around it.
    #[cold]
    fn colon(&self, at: &'a [u8]) -> ScanResult<'a> {
        match skip_space(at) {
            [b':', after @ ..] => Ok(trim_start(after)),
            other => Err(self.unexpected(other)),
        }
    }

    fn array(&self, at: &'a [u8], depth: usize) -> ScanResult<'a> {
        let mut at = self.enter(at, depth)?;
        if let [b']', after @ ..] = at {
            return Ok(after);
        }
        loop {
            match trim_start(self.value(at, depth)?) {
                [b',', after @ ..] => at = trim_start(after),
                [b']', after @ ..] => return Ok(after),
                other => return Err(self.unexpected(other)),
            }
        }
    }

    /// Enters a container.
    #[inline(always)]
    fn enter(&self, at: &'a [u8], depth: usize) -> ScanResult<'a> {
        match at {
            [_, inside @ ..] if depth <= self.max_depth => Ok(trim_start(inside)),
            _ => Err(self.error(at, JsonErrorKind::TooDeep)),
        }
    }

    /// Scans a string, from the byte after its opening quote to its closing quote.
    // Always inlined: measured, this makes the scan of a 332-byte message a fifth faster.
    #[inline(always)]
    fn string(&self, inside: &'a [u8]) -> Result<(Key<'a>, &'a [u8]), JsonError> {
        let end = skip_plain(inside);
        if let [b'"', after @ ..] = end {
            return Ok((Key { raw: between(inside, end), is_escaped: false }, after));
        }
        let end = self.string_end(end)?;
        let after = end.get(1..).unwrap_or_default();
        Ok((Key { raw: between(inside, end), is_escaped: true }, after))
    }

    /// Checks a string from its first escape, and returns the text from its closing quote.
    #[inline(never)]
    fn string_end(&self, mut at: &'a [u8]) -> ScanResult<'a> {
        if at.len() >= MIN_MASKED_BYTES {
            at = skip_plain(self.escapes_in_blocks(at)?);
        }
        while !matches!(at, [b'"', ..]) {
            at = skip_plain(self.escape(at)?);
        }
        Ok(at)
    }

    /// Checks the escapes in the whole blocks of a text, up to a quote. Returns the text after them.
    fn escapes_in_blocks(&self, bytes: &'a [u8]) -> ScanResult<'a> {
        let found = visit_special(bytes, |_, at| {
            let rest = bytes.get(at..).unwrap_or_default();
            match rest {
                [b'"', ..] => ControlFlow::Break(Ok(rest)),
                _ => match self.escape(rest) {
                    Ok(after) => ControlFlow::Continue(bytes.len() - after.len()),
                    Err(error) => ControlFlow::Break(Err(error)),
                },
            }
        });
        match found {
            ControlFlow::Continue(end) => Ok(bytes.get(end..).unwrap_or_default()),
            ControlFlow::Break(result) => result,
        }
    }

    /// Checks the escape at the beginning, and returns the text after it.
    #[inline(always)]
    fn escape(&self, at: &'a [u8]) -> ScanResult<'a> {
        match at {
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', after @ ..] => Ok(after),
            _ => self.rare_escape(at),
        }
    }

    #[cold]
    fn rare_escape(&self, at: &'a [u8]) -> ScanResult<'a> {
        match at {
            [b'\\', b'u', ..] => self.unicode(at),
            [b'\\', _, ..] => Err(self.error(at, JsonErrorKind::InvalidEscape)),
            [b'\\'] | [] => Err(self.unexpected_end()),
            [_, ..] => Err(self.error(at, JsonErrorKind::ControlCharacter)),
        }
    }

    fn unicode(&self, at: &'a [u8]) -> ScanResult<'a> {
        let unit = |offset: usize| {
            hex4(at.get(offset..)).ok_or_else(|| self.error(at, JsonErrorKind::InvalidEscape))
        };
        let first = unit(2)?;
        if char::from_u32(first).is_some() {
            return Ok(at.get(6..).unwrap_or_default());
        }
        // Only a surrogate is not a character, so this must be a pair.
        let lone = || self.error(at, JsonErrorKind::LoneSurrogate);
        if at.get(6..8) != Some(b"\\u".as_slice()) {
            return Err(lone());
        }
        let second = unit(8)?;
        decode_surrogate_pair(first, second).ok_or_else(lone)?;
        Ok(at.get(12..).unwrap_or_default())
    }

    fn number(&self, start: &'a [u8]) -> ScanResult<'a> {
        let first = start.strip_prefix(b"-").unwrap_or(start);
        let mut at = self.digits(first)?;
        let n_whole = first.len() - at.len();
        if n_whole > 1 && first.starts_with(b"0") {
            return Err(self.error(start, JsonErrorKind::InvalidNumber));
        }
        if let [b'.', after @ ..] = at {
            at = self.digits(after)?;
        }
        let mut has_exponent = false;
        if let [b'e' | b'E', b'+' | b'-', after @ ..] | [b'e' | b'E', after @ ..] = at {
            has_exponent = true;
            at = self.digits(after)?;
        }
        let needs_finite_check = has_exponent || n_whole > MAX_FINITE_DIGITS;
        if needs_finite_check && !View::from_trusted(between(start, at)).is_finite() {
            return Err(self.error(start, JsonErrorKind::NumberOutOfRange));
        }
        Ok(at)
    }

    /// Scans one or more digits.
    #[inline]
    fn digits(&self, start: &'a [u8]) -> ScanResult<'a> {
        let mut at = start;
        while let [b'0'..=b'9', after @ ..] = at {
            at = after;
        }
        match at {
            [] if start.is_empty() => Err(self.unexpected_end()),
            _ if at.len() == start.len() => Err(self.error(at, JsonErrorKind::InvalidNumber)),
            _ => Ok(at),
        }
    }

    fn literal(&self, at: &'a [u8], word: &[u8]) -> ScanResult<'a> {
        if let Some(after) = at.strip_prefix(word) {
            return Ok(after);
        }
        let n_matching = at.iter().zip(word).take_while(|(a, b)| a == b).count();
        Err(self.unexpected(at.get(n_matching..).unwrap_or_default()))
    }

    /// Returns the byte offset of the rest of the text.
    fn offset(&self, rest: &[u8]) -> usize {
        self.bytes.len() - rest.len()
    }

    #[cold]
    fn unexpected(&self, at: &[u8]) -> JsonError {
        match utf8(at).chars().next() {
            Some(found) => self.error(at, JsonErrorKind::Unexpected(found)),
            None => self.unexpected_end(),
        }
    }

    #[cold]
    fn unexpected_end(&self) -> JsonError {
        JsonError::new(self.bytes.len(), JsonErrorKind::UnexpectedEnd)
    }

    #[cold]
    fn error(&self, at: &[u8], kind: JsonErrorKind) -> JsonError {
        JsonError::new(self.offset(at), kind)
    }
}

/// Skips whitespace. Takes one comparison if there is none, as in most messages.
#[inline(always)]
fn trim_start(at: &[u8]) -> &[u8] {
    match at {
        [..=b' ', ..] => skip_space(at),
        _ => at,
    }
}

#[inline(never)]
fn skip_space(mut at: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\n' | b'\r', after @ ..] = at {
        at = after;
    }
    at
}

/// Returns the text between two positions, each given as the rest of the text from there.
#[inline(always)]
fn between<'a>(start: &'a [u8], end: &[u8]) -> &'a [u8] {
    start.get(..start.len().wrapping_sub(end.len())).unwrap_or_default()
}

/// The keys of an object that were scanned so far.
struct SeenKeys<'a> {
    /// A Bloom filter with one bit per key, from its length and last byte: a key whose bit is not set is new.
    bloom: u64,
    /// The first keys, none of them escaped, until `key_set` is used.
    first_keys: [&'a [u8]; MAX_LINEAR_KEYS],
    n_first_keys: usize,
    /// All keys, unescaped, once there are many of them or one is escaped. Hashed with a random key, so that a peer cannot
    /// provoke collisions.
    key_set: Option<HashSet<Cow<'a, str>>>,
}

impl<'a> SeenKeys<'a> {
    #[inline]
    fn new() -> Self {
        Self { bloom: 0, first_keys: [&[]; MAX_LINEAR_KEYS], n_first_keys: 0, key_set: None }
    }

    /// Returns false if the key is a duplicate.
    #[inline]
    fn insert(&mut self, key: Key<'a>) -> bool {
        let free = self.first_keys.get_mut(self.n_first_keys);
        let Some(free) = free.filter(|_| !key.is_escaped) else {
            return self.insert_in_set(key);
        };
        *free = key.raw;
        let bit = bloom_bit(key.raw);
        if self.bloom & bit != 0 && self.first_keys[..self.n_first_keys].contains(&key.raw) {
            return false;
        }
        self.bloom |= bit;
        self.n_first_keys += 1;
        true
    }

    #[cold]
    fn insert_in_set(&mut self, key: Key<'a>) -> bool {
        let first_keys = &self.first_keys[..self.n_first_keys.min(MAX_LINEAR_KEYS)];
        let key_set = self
            .key_set
            .get_or_insert_with(|| first_keys.iter().map(|&key| Cow::Borrowed(utf8(key))).collect());
        // Later keys are inserted here, too.
        self.n_first_keys = MAX_LINEAR_KEYS;
        key_set.insert(key.unescaped())
    }
}

#[inline(always)]
fn bloom_bit(key: &[u8]) -> u64 {
    let last = key.last().copied().unwrap_or_default();
    1 << ((key.len() ^ usize::from(last)) % 64)
}
