//! Errors of the JSON check, with their byte offset.
//!
//! The message may be sent to a peer or written to a log, so it quotes at most 64 bytes of the input and escapes characters
//! that a terminal might interpret.

use std::fmt;

/// The maximum number of input bytes, after escaping, in a message.
const MAX_QUOTED_BYTES: usize = 64;

/// The text is not strict JSON within the limits.
// Boxed: the scanner returns `Result<(), JsonError>` at every value, and one word fits in a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(Box<Repr>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Repr {
    offset: usize,
    kind: JsonErrorKind,
}

/// The kind of a [`JsonError`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// The text is longer than this limit, in bytes.
    TooLong(usize),
    /// Arrays and objects are nested deeper than the limit.
    TooDeep,
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The text ends too early.
    UnexpectedEnd,
    /// An unexpected character.
    Unexpected(char),
    /// Something other than whitespace after the value.
    TrailingCharacters,
    /// An unescaped control character in a string.
    ControlCharacter,
    /// A backslash that does not begin an escape.
    InvalidEscape,
    /// An unpaired surrogate.
    LoneSurrogate,
    /// Digits that are not a JSON number, such as `01`.
    InvalidNumber,
    /// A number that is too large for a double.
    NumberOutOfRange,
    /// A duplicate key in an object, truncated for the message.
    DuplicateKey(Box<str>),
}

impl JsonError {
    pub(crate) fn new(offset: usize, kind: JsonErrorKind) -> Self {
        Self(Box::new(Repr { offset, kind }))
    }

    pub(crate) fn duplicate(offset: usize, key: &str) -> Self {
        Self::new(offset, JsonErrorKind::DuplicateKey(quote(key).into()))
    }

    /// Returns the byte offset at which reading stopped.
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    /// Returns the kind.
    pub fn kind(&self) -> &JsonErrorKind {
        &self.0.kind
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            // This error has no offset.
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

/// Escapes and truncates a peer's text for an error message.
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
