//! Why a text is not the JSON we take: what was wrong, and at which byte.
//!
//! The message may be shown to a peer or written to a log, so it quotes at most
//! 64 bytes of the input and escapes whatever a terminal might act upon.

use std::fmt;

/// The most bytes of input, after escaping, that a message repeats.
const MAX_QUOTED_BYTES: usize = 64;

/// A text that is not strict JSON within the limits.
// Boxed: the scanner passes `Result<(), JsonError>` up at every value, and one
// word travels in a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(Box<Repr>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Repr {
    offset: usize,
    kind: JsonErrorKind,
}

/// What was wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// More bytes than the limit, which is given.
    TooLong(usize),
    /// More arrays and objects inside one another than the limit.
    TooDeep,
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// The text ends too early.
    UnexpectedEnd,
    /// A character that cannot stand where it does.
    Unexpected(char),
    /// Something other than white space after the value.
    TrailingCharacters,
    /// A control character in a string that is not escaped.
    ControlCharacter,
    /// A backslash that begins no escape.
    InvalidEscape,
    /// Half of a surrogate pair.
    LoneSurrogate,
    /// Digits that are not a JSON number, such as `01`.
    InvalidNumber,
    /// A number too large for a double.
    NumberOutOfRange,
    /// A key the object already has; quoted as far as a message may.
    DuplicateKey(Box<str>),
}

impl JsonError {
    pub(crate) fn new(offset: usize, kind: JsonErrorKind) -> Self {
        Self(Box::new(Repr { offset, kind }))
    }

    pub(crate) fn duplicate(offset: usize, key: &str) -> Self {
        Self::new(offset, JsonErrorKind::DuplicateKey(quote(key).into()))
    }

    /// The byte at which reading stopped.
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    /// What was wrong.
    pub fn kind(&self) -> &JsonErrorKind {
        &self.0.kind
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            // No place in the text is to blame for its length.
            JsonErrorKind::TooLong(max) => return write!(f, "longer than {max} bytes"),
            JsonErrorKind::TooDeep => write!(f, "nested too deep"),
            JsonErrorKind::NotUtf8 => write!(f, "invalid UTF-8"),
            JsonErrorKind::UnexpectedEnd => write!(f, "unexpected end"),
            JsonErrorKind::Unexpected(found) => {
                write!(f, "unexpected character `{}`", found.escape_debug())
            }
            JsonErrorKind::TrailingCharacters => write!(f, "trailing text"),
            JsonErrorKind::ControlCharacter => write!(f, "control character in a string"),
            JsonErrorKind::InvalidEscape => write!(f, "invalid escape"),
            JsonErrorKind::LoneSurrogate => write!(f, "lone surrogate"),
            JsonErrorKind::InvalidNumber => write!(f, "invalid number"),
            JsonErrorKind::NumberOutOfRange => write!(f, "number out of range"),
            JsonErrorKind::DuplicateKey(key) => write!(f, "duplicate key `{key}`"),
        }?;
        write!(f, " at byte {}", self.0.offset)
    }
}

impl std::error::Error for JsonError {}

/// The beginning of a peer's text, escaped, for a message.
fn quote(text: &str) -> String {
    let mut out = String::new();
    for ch in text.chars() {
        let before = out.len();
        out.extend(ch.escape_debug());
        if out.len() > MAX_QUOTED_BYTES - "...".len() {
            out.truncate(before);
            out.push_str("...");
            break;
        }
    }
    out
}
