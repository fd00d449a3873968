//! Splits a statement into tokens, so that parameters are found only where the database expects values: not in
//! quotes, comments or casts.
//!
//! The rules for quotes and comments depend on the database. Tokenizing never fails: the texts of all tokens,
//! concatenated, are the statement. Unclosed quotes and comments become [`TokenKind::Unterminated`], which the parser
//! rejects.

use super::Driver;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Space,
    Comment,
    /// A comment that MySQL executes: `/*! … */`.
    ExecutableComment,
    /// A keyword or an unquoted name.
    Word,
    Number,
    /// A quoted value or name.
    Quoted,
    /// `:name` or `$name`.
    Parameter,
    /// A parameter in the database's own syntax: `?`, `$1`, `@name`.
    Placeholder,
    Semicolon,
    /// `[` and `]` of arrays; a colon between them may be a slice.
    Bracket,
    /// An unclosed quote or comment.
    Unterminated,
    Other,
}

/// One token of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
}

impl<'a> Token<'a> {
    /// The name of a parameter, without its prefix.
    pub(super) fn name(&self) -> &'a str {
        self.text.get(1..).unwrap_or_default()
    }

    pub(super) fn is_blank(&self) -> bool {
        matches!(self.kind, TokenKind::Space | TokenKind::Comment)
    }
}

/// Splits a statement into tokens.
pub(super) fn tokenize(driver: Driver, statement: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = statement;
    std::iter::from_fn(move || {
        let (kind, length) = next_token(driver, rest)?;
        let (text, after) = rest.split_at(length);
        rest = after;
        Some(Token { kind, text })
    })
}

/// The kind and length of the first token. The length is at least one and ends at a character boundary.
fn next_token(driver: Driver, rest: &str) -> Option<(TokenKind, usize)> {
    let bytes = rest.as_bytes();
    let next = bytes.get(1).copied().unwrap_or_default();
    Some(match *bytes.first()? {
        b if b.is_ascii_whitespace() || b == 0x0b => {
            (TokenKind::Space, prefix_len(bytes, |b| b.is_ascii_whitespace() || b == 0x0b))
        }
        b'-' if next == b'-' && is_dash_comment(driver, bytes) => (TokenKind::Comment, line_len(bytes)),
        b'#' if driver == Driver::MySql => (TokenKind::Comment, line_len(bytes)),
        b'/' if next == b'*' => scan_comment(driver, bytes),
        b'e' | b'E' if driver == Driver::Postgres && next == b'\'' => {
            scan_quoted(bytes, 1, BackslashMode::Escape)
        }
        b'\'' => scan_quoted(bytes, 0, backslash_mode(driver)),
        b'"' => scan_quoted(bytes, 0, backslash_mode(driver)),
        b'`' if driver != Driver::Postgres => scan_quoted(bytes, 0, BackslashMode::Literal),
        b'[' if driver == Driver::Sqlite => scan_bracketed(bytes),
        b'[' | b']' => (TokenKind::Bracket, 1),
        b':' if matches!(next, b':' | b'=') => (TokenKind::Other, 2),
        b':' if is_name_start(next) => {
            (TokenKind::Parameter, 1 + name_len(bytes.get(1..).unwrap_or_default()))
        }
        b'$' => scan_dollar(driver, bytes),
        b'?' if driver == Driver::MySql => (TokenKind::Placeholder, 1),
        b'?' if driver == Driver::Sqlite => (
            TokenKind::Placeholder,
            1 + prefix_len(bytes.get(1..).unwrap_or_default(), |b| b.is_ascii_digit()),
        ),
        b'@' | b'#' if driver == Driver::Sqlite => {
            (TokenKind::Placeholder, 1 + prefix_len(bytes.get(1..).unwrap_or_default(), is_word_byte))
        }
        b';' => (TokenKind::Semicolon, 1),
        b if b.is_ascii_digit() => {
            (TokenKind::Number, prefix_len(bytes, |b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.'))
        }
        b if is_word_start(b) => (TokenKind::Word, prefix_len(bytes, is_word_byte)),
        _ => (TokenKind::Other, 1),
    })
}

fn is_name_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_'
}

/// Argument names are ASCII; names in a database may contain any letter, and `$` inside.
fn is_word_start(b: u8) -> bool {
    is_name_start(b) || b >= 0x80
}

fn is_word_byte(b: u8) -> bool {
    is_word_start(b) || b.is_ascii_digit() || b == b'$'
}

fn name_len(bytes: &[u8]) -> usize {
    prefix_len(bytes, |b| is_name_start(b) || b.is_ascii_digit())
}

/// The length of the prefix that satisfies the predicate. No predicate splits a character: all bytes above ASCII are
/// treated alike.
fn prefix_len(bytes: &[u8], predicate: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|b| !predicate(*b)).unwrap_or(bytes.len())
}

fn line_len(bytes: &[u8]) -> usize {
    prefix_len(bytes, |b| b != b'\n')
}

/// MySQL requires white space after the dashes; `5--2` is a subtraction there.
fn is_dash_comment(driver: Driver, bytes: &[u8]) -> bool {
    driver != Driver::MySql || bytes.get(2).is_none_or(|b| b.is_ascii_whitespace() || b.is_ascii_control())
}

fn scan_comment(driver: Driver, bytes: &[u8]) -> (TokenKind, usize) {
    let kind = match (driver, bytes) {
        (Driver::MySql, [_, _, b'!', ..] | [_, _, b'M', b'!', ..]) => TokenKind::ExecutableComment,
        _ => TokenKind::Comment,
    };
    let (mut at, mut depth) = (2, 1);
    while let Some(two) = bytes.get(at..at + 2) {
        match two {
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return (kind, at);
                }
            }
            // Comments nest in PostgreSQL only.
            b"/*" if driver == Driver::Postgres => {
                depth += 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
    (TokenKind::Unterminated, bytes.len())
}

/// The meaning of a backslash in quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BackslashMode {
    Escape,
    Literal,
}

fn backslash_mode(driver: Driver) -> BackslashMode {
    // The connection sets both servers to this mode.
    if driver == Driver::MySql { BackslashMode::Escape } else { BackslashMode::Literal }
}

/// Scans quotes that start at `start`; a doubled quote is literal.
fn scan_quoted(bytes: &[u8], start: usize, backslash: BackslashMode) -> (TokenKind, usize) {
    let quote = bytes.get(start).copied().unwrap_or_default();
    let mut at = start + 1;
    while let Some(b) = bytes.get(at).copied() {
        if b == b'\\' && backslash == BackslashMode::Escape {
            at += 2;
        } else if b != quote {
            at += 1;
        } else if bytes.get(at + 1) == Some(&quote) {
            at += 2;
        } else {
            return (TokenKind::Quoted, at + 1);
        }
    }
    (TokenKind::Unterminated, bytes.len())
}

/// Scans an SQLite name in square brackets, which cannot contain `]`.
fn scan_bracketed(bytes: &[u8]) -> (TokenKind, usize) {
    match bytes.iter().position(|b| *b == b']') {
        Some(end) => (TokenKind::Quoted, end + 1),
        None => (TokenKind::Unterminated, bytes.len()),
    }
}

/// `$tag$ … $tag$`, `$1`, `$name`.
fn scan_dollar(driver: Driver, bytes: &[u8]) -> (TokenKind, usize) {
    let after = bytes.get(1..).unwrap_or_default();
    if driver == Driver::Postgres {
        let tag = match after.first() {
            Some(b) if is_word_start(*b) => prefix_len(after, |b| is_word_byte(b) && b != b'$'),
            _ => 0,
        };
        if after.get(tag) == Some(&b'$') {
            let fence = bytes.get(..tag + 2).unwrap_or_default();
            let inside = bytes.get(tag + 2..).unwrap_or_default();
            let end = inside.windows(fence.len()).position(|window| window == fence);
            return match end {
                Some(end) => (TokenKind::Quoted, 2 * fence.len() + end),
                None => (TokenKind::Unterminated, bytes.len()),
            };
        }
    }
    match after.first() {
        Some(b) if b.is_ascii_digit() => {
            (TokenKind::Placeholder, 1 + prefix_len(after, |b| b.is_ascii_digit()))
        }
        Some(b) if is_name_start(*b) => (TokenKind::Parameter, 1 + name_len(after)),
        _ => (TokenKind::Other, 1),
    }
}
