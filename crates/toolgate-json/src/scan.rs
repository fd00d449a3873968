//! The check of a text that comes from outside: RFC 8259 to the letter, and
//! stricter where the letter leaves readers room to disagree.
//!
//! Refused beyond the grammar: a key twice in one object (compared after
//! unescaping), lone surrogates, numbers no double can hold, depth and size
//! over the limits. Everything else in this crate relies on it: a [`View`] is
//! only ever made of what has passed here.
//!
//! It recurses, but never deeper than the depth limit, and allocates nothing
//! for objects of up to [`FEW`] keys without escapes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::error::{JsonError, JsonErrorKind};
use crate::string::{MIN_MASKED_BYTES, decode_surrogate_pair, hex4, skip_plain, unescape, visit_special};
use crate::view::utf8;
use crate::{Limits, View};

/// Where `serde_json` stops, and with it everyone who reads typed arguments.
const MAX_DEPTH: usize = 127;

/// How many keys are compared one by one, before a set keeps the time linear.
const MAX_LINEAR_KEYS: usize = 16;

/// No double needs more digits before its point, so fewer are always finite.
const MAX_FINITE_DIGITS: usize = 300;

/// Who wants to know where the members of an object are. The scan has them all
/// in its hands; a caller who notes them on the way is spared a second walk.
pub trait MemberVisitor<'a> {
    /// The same, of objects within this one.
    type Nested: MemberVisitor<'a>;

    /// Under which number the value of this key is to be noted, if at all.
    fn slot(&self, key: Key<'a>) -> Option<usize>;

    /// Who notes the members of that value, if it is an object.
    fn nested(&mut self, place: usize) -> Option<&mut Self::Nested>;

    /// Notes a value, which may be of any kind.
    fn visit(&mut self, place: usize, value: View<'a>);

    /// How long the object at the beginning of `rest` is, if the very same
    /// bytes were found to be right at this place before, at the same depth
    /// and under the same limits. Its members must have been noted then. An
    /// object ends where it ends, whatever follows: equal bytes need no second
    /// check.
    #[inline(always)]
    fn skip_known(&mut self, _place: usize, _rest: &'a [u8], _max_depth: usize) -> Option<usize> {
        None
    }
}

/// Nobody.
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

/// Checks that `bytes` are one JSON value within `limits` and returns the view
/// of it, white space around it left off. If the value is an object, `members`
/// notes what it wants of it. What was noted of a text that is refused means
/// nothing.
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

/// Whether `bytes` are UTF-8. Faster than the standard library for text with few
/// characters outside ASCII: after each of them it goes on with large blocks.
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
    // Texts in other scripts have one character outside ASCII after the other.
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

/// A key as it stands in the text.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    raw: &'a [u8],
    is_escaped: bool,
}

impl<'a> Key<'a> {
    /// A key of a view.
    pub fn from_view(quoted: View<'a>) -> Self {
        let raw = match quoted.as_bytes() {
            [b'"', inside @ .., b'"'] => inside,
            _ => &[],
        };
        Self { raw, is_escaped: raw.contains(&b'\\') }
    }

    /// The key with its escapes taken out.
    pub fn unescaped(self) -> Cow<'a, str> {
        if self.is_escaped { unescape(self.raw) } else { Cow::Borrowed(utf8(self.raw)) }
    }

    /// The place that `find` gives the key. It gets bytes, which are compared
    /// by their length first; nobody writes a known name with escapes in it,
    /// but one who does means it all the same.
    #[inline(always)]
    pub fn find_slot(self, find: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        // One call, so that it is made part of whoever asks.
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

/// What is left of the text behind something that was checked.
type ScanResult<'a> = Result<&'a [u8], JsonError>;

/// A text. Its functions take what is left of it and return what is left behind
/// them: two registers, and one comparison for each byte that is looked at.
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
            let place = members.slot(key);
            let end = match (start, place) {
                // Most values are strings.
                ([b'"', inside @ ..], _) => self.string(inside)?.1,
                ([b'{', ..], Some(place)) => self.nested_object(start, depth, members, place)?,
                _ => self.value(start, depth)?,
            };
            if let Some(place) = place {
                members.visit(place, View::from_trusted(between(start, end)));
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

    /// An object that is to be noted.
    #[inline(always)]
    fn nested_object<M: MemberVisitor<'a>>(
        &self,
        at: &'a [u8],
        depth: usize,
        members: &mut M,
        place: usize,
    ) -> ScanResult<'a> {
        if let Some(n_bytes) = members.skip_known(place, at, self.max_depth) {
            return Ok(at.get(n_bytes..).unwrap_or_default());
        }
        match members.nested(place) {
            Some(within) => self.object(at, depth + 1, within),
            None => self.value(at, depth),
        }
    }

    /// A colon and the white space around it.
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

    /// Steps into a container.
    #[inline(always)]
    fn enter(&self, at: &'a [u8], depth: usize) -> ScanResult<'a> {
        match at {
            [_, inside @ ..] if depth <= self.max_depth => Ok(trim_start(inside)),
            _ => Err(self.error(at, JsonErrorKind::TooDeep)),
        }
    }

    /// A string from behind its first quote to behind its last.
    // Always: measured, the scan of a 332-byte message is a fifth faster for it.
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

    /// Checks a string from its first escape on, and returns the text from its last quote on.
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

    /// Checks the escapes in the whole blocks of a text, up to a quote. Returns the text behind them.
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

    /// Checks the escape at the beginning, and returns the text behind it.
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
        let unit =
            |place: usize| hex4(at.get(place..)).ok_or_else(|| self.error(at, JsonErrorKind::InvalidEscape));
        let first = unit(2)?;
        if char::from_u32(first).is_some() {
            return Ok(at.get(6..).unwrap_or_default());
        }
        // Only surrogates are no characters: this must be a pair.
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
        let mut scaled = false;
        if let [b'e' | b'E', b'+' | b'-', after @ ..] | [b'e' | b'E', after @ ..] = at {
            scaled = true;
            at = self.digits(after)?;
        }
        let close_look = scaled || n_whole > MAX_FINITE_DIGITS;
        if close_look && !View::from_trusted(between(start, at)).is_finite() {
            return Err(self.error(start, JsonErrorKind::NumberOutOfRange));
        }
        Ok(at)
    }

    /// One digit or more.
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
        let same = at.iter().zip(word).take_while(|(a, b)| a == b).count();
        Err(self.unexpected(at.get(same..).unwrap_or_default()))
    }

    /// Where the rest of the text begins.
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

/// Most messages have none: one comparison says so.
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

/// What stands between two places, each given by all that is left from there on.
#[inline(always)]
fn between<'a>(start: &'a [u8], end: &[u8]) -> &'a [u8] {
    start.get(..start.len().wrapping_sub(end.len())).unwrap_or_default()
}

/// The keys of one object so far.
struct SeenKeys<'a> {
    /// A bit for each key, by its length and its end: where the bit of a new
    /// key is not set, it need not be compared with the others.
    bloom: u64,
    /// The first keys, none of them escaped, until `many` takes over.
    first_keys: [&'a [u8]; MAX_LINEAR_KEYS],
    n_first_keys: usize,
    /// All keys with escapes taken out, once there are many of them or one is
    /// escaped. Hashed with a random key: a peer cannot make them collide.
    key_set: Option<HashSet<Cow<'a, str>>>,
}

impl<'a> SeenKeys<'a> {
    #[inline]
    fn new() -> Self {
        Self { bloom: 0, first_keys: [&[]; MAX_LINEAR_KEYS], n_first_keys: 0, key_set: None }
    }

    /// False if the key was there.
    #[inline]
    fn insert(&mut self, key: Key<'a>) -> bool {
        let free = self.first_keys.get_mut(self.n_first_keys);
        let Some(free) = free.filter(|_| !key.is_escaped) else {
            return self.insert_in_set(key);
        };
        *free = key.raw;
        let mark = bloom_bit(key.raw);
        if self.bloom & mark != 0 && self.first_keys[..self.n_first_keys].contains(&key.raw) {
            return false;
        }
        self.bloom |= mark;
        self.n_first_keys += 1;
        true
    }

    #[cold]
    fn insert_in_set(&mut self, key: Key<'a>) -> bool {
        let few = &self.first_keys[..self.n_first_keys.min(MAX_LINEAR_KEYS)];
        let many =
            self.key_set.get_or_insert_with(|| few.iter().map(|&key| Cow::Borrowed(utf8(key))).collect());
        // Whatever comes next comes here, too.
        self.n_first_keys = MAX_LINEAR_KEYS;
        many.insert(key.unescaped())
    }
}

#[inline(always)]
fn bloom_bit(key: &[u8]) -> u64 {
    let last = key.last().copied().unwrap_or_default();
    1 << ((key.len() ^ usize::from(last)) % 64)
}
