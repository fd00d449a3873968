//! Cuts a statement into tokens, so that names of parameters are found where the database would look for values, and
//! nowhere else: not in quotes, not in comments, not in casts.
//!
//! Each database reads quotes and comments in its own way, and so does this. It never fails: the texts of the tokens,
//! one after the other, are the statement again. What is never closed is [`Kind::Torn`], and its reader refuses it.

use super::Driver;

/// What a piece of a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Space,
    Comment,
    /// A comment that MySQL executes: `/*! … */`.
    ExecutableComment,
    /// A keyword or a name without quotes.
    Word,
    Number,
    /// A value or a name in quotes of any kind.
    Quoted,
    /// `:name` or `$name`.
    Parameter,
    /// A parameter in the database's own writing: `?`, `$1`, `@name`.
    Placeholder,
    Semicolon,
    /// `[` and `]` of arrays; a colon between them may be a slice.
    Bracket,
    /// Quotes or a comment that are never closed.
    Unterminated,
    Other,
}

/// A piece of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
}

impl<'a> Token<'a> {
    /// The name of a parameter.
    pub(super) fn name(&self) -> &'a str {
        self.text.get(1..).unwrap_or_default()
    }

    pub(super) fn is_blank(&self) -> bool {
        matches!(self.kind, TokenKind::Space | TokenKind::Comment)
    }
}

/// The tokens of a statement.
pub(super) fn tokenize(driver: Driver, statement: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = statement;
    std::iter::from_fn(move || {
        let (kind, length) = next_token(driver, rest)?;
        let (text, after) = rest.split_at(length);
        rest = after;
        Some(Token { kind, text })
    })
}

/// The kind and the length of the first token. The length is never nothing, and ends at a character.
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

/// Names of arguments are plain; names in a database may have any letter, and a dollar inside.
fn is_word_start(b: u8) -> bool {
    is_name_start(b) || b >= 0x80
}

fn is_word_byte(b: u8) -> bool {
    is_word_start(b) || b.is_ascii_digit() || b == b'$'
}

fn name_len(bytes: &[u8]) -> usize {
    prefix_len(bytes, |b| is_name_start(b) || b.is_ascii_digit())
}

/// How many bytes at the start are like this. No rule splits a character: those above ASCII are taken together.
fn prefix_len(bytes: &[u8], like: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|b| !like(*b)).unwrap_or(bytes.len())
}

fn line_len(bytes: &[u8]) -> usize {
    prefix_len(bytes, |b| b != b'\n')
}

/// MySQL wants white space behind the dashes; `5--2` is a subtraction there.
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

/// What a backslash in quotes means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BackslashMode {
    Escape,
    Literal,
}

fn backslash_mode(driver: Driver) -> BackslashMode {
    // The connection sees to it that both servers are in this mode.
    if driver == Driver::MySql { BackslashMode::Escape } else { BackslashMode::Literal }
}

/// Quotes that start at `start`; doubled, they stand for themselves.
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

/// A name of SQLite in square brackets, which cannot hold a closing one.
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
