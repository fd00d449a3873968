//! Cuts a statement into tokens, so that names of parameters are found where the database would look for values, and
//! nowhere else: not in quotes, not in comments, not in casts.
//!
//! Each database reads quotes and comments in its own way, and so does this. It never fails: the texts of the tokens,
//! one after the other, are the statement again. What is never closed is [`Kind::Torn`], and its reader refuses it.

use super::Driver;

/// What a piece of a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Space,
    Comment,
    /// A comment that MySQL executes: `/*! … */`.
    Executed,
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
    Torn,
    Other,
}

/// A piece of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
}

impl<'a> Token<'a> {
    /// The name of a parameter.
    pub(super) fn name(&self) -> &'a str {
        self.text.get(1..).unwrap_or_default()
    }

    pub(super) fn is_blank(&self) -> bool {
        matches!(self.kind, Kind::Space | Kind::Comment)
    }
}

/// The tokens of a statement.
pub(super) fn cut(driver: Driver, statement: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = statement;
    std::iter::from_fn(move || {
        let (kind, length) = first(driver, rest)?;
        let (text, after) = rest.split_at(length);
        rest = after;
        Some(Token { kind, text })
    })
}

/// The kind and the length of the first token. The length is never nothing, and ends at a character.
fn first(driver: Driver, rest: &str) -> Option<(Kind, usize)> {
    let bytes = rest.as_bytes();
    let next = bytes.get(1).copied().unwrap_or_default();
    Some(match *bytes.first()? {
        b if b.is_ascii_whitespace() || b == 0x0b => {
            (Kind::Space, run(bytes, |b| b.is_ascii_whitespace() || b == 0x0b))
        }
        b'-' if next == b'-' && dashes_comment(driver, bytes) => (Kind::Comment, line(bytes)),
        b'#' if driver == Driver::MySql => (Kind::Comment, line(bytes)),
        b'/' if next == b'*' => comment(driver, bytes),
        b'e' | b'E' if driver == Driver::Postgres && next == b'\'' => quoted(bytes, 1, Backslash::Escapes),
        b'\'' => quoted(bytes, 0, backslash(driver)),
        b'"' => quoted(bytes, 0, backslash(driver)),
        b'`' if driver != Driver::Postgres => quoted(bytes, 0, Backslash::Plain),
        b'[' if driver == Driver::Sqlite => bracketed(bytes),
        b'[' | b']' => (Kind::Bracket, 1),
        b':' if matches!(next, b':' | b'=') => (Kind::Other, 2),
        b':' if starts_name(next) => (Kind::Parameter, 1 + name(bytes.get(1..).unwrap_or_default())),
        b'$' => dollar(driver, bytes),
        b'?' if driver == Driver::MySql => (Kind::Placeholder, 1),
        b'?' if driver == Driver::Sqlite => {
            (Kind::Placeholder, 1 + run(bytes.get(1..).unwrap_or_default(), |b| b.is_ascii_digit()))
        }
        b'@' | b'#' if driver == Driver::Sqlite => {
            (Kind::Placeholder, 1 + run(bytes.get(1..).unwrap_or_default(), in_word))
        }
        b';' => (Kind::Semicolon, 1),
        b if b.is_ascii_digit() => {
            (Kind::Number, run(bytes, |b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.'))
        }
        b if starts_word(b) => (Kind::Word, run(bytes, in_word)),
        _ => (Kind::Other, 1),
    })
}

fn starts_name(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_'
}

/// Names of arguments are plain; names in a database may have any letter, and a dollar inside.
fn starts_word(b: u8) -> bool {
    starts_name(b) || b >= 0x80
}

fn in_word(b: u8) -> bool {
    starts_word(b) || b.is_ascii_digit() || b == b'$'
}

fn name(bytes: &[u8]) -> usize {
    run(bytes, |b| starts_name(b) || b.is_ascii_digit())
}

/// How many bytes at the start are like this. No rule splits a character: those above ASCII are taken together.
fn run(bytes: &[u8], like: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|b| !like(*b)).unwrap_or(bytes.len())
}

fn line(bytes: &[u8]) -> usize {
    run(bytes, |b| b != b'\n')
}

/// MySQL wants white space behind the dashes; `5--2` is a subtraction there.
fn dashes_comment(driver: Driver, bytes: &[u8]) -> bool {
    driver != Driver::MySql || bytes.get(2).is_none_or(|b| b.is_ascii_whitespace() || b.is_ascii_control())
}

fn comment(driver: Driver, bytes: &[u8]) -> (Kind, usize) {
    let kind = match (driver, bytes) {
        (Driver::MySql, [_, _, b'!', ..] | [_, _, b'M', b'!', ..]) => Kind::Executed,
        _ => Kind::Comment,
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
    (Kind::Torn, bytes.len())
}

/// What a backslash in quotes means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backslash {
    Escapes,
    Plain,
}

fn backslash(driver: Driver) -> Backslash {
    // The connection sees to it that both servers are in this mode.
    if driver == Driver::MySql { Backslash::Escapes } else { Backslash::Plain }
}

/// Quotes that start at `start`; doubled, they stand for themselves.
fn quoted(bytes: &[u8], start: usize, backslash: Backslash) -> (Kind, usize) {
    let quote = bytes.get(start).copied().unwrap_or_default();
    let mut at = start + 1;
    while let Some(b) = bytes.get(at).copied() {
        if b == b'\\' && backslash == Backslash::Escapes {
            at += 2;
        } else if b != quote {
            at += 1;
        } else if bytes.get(at + 1) == Some(&quote) {
            at += 2;
        } else {
            return (Kind::Quoted, at + 1);
        }
    }
    (Kind::Torn, bytes.len())
}

/// A name of SQLite in square brackets, which cannot hold a closing one.
fn bracketed(bytes: &[u8]) -> (Kind, usize) {
    match bytes.iter().position(|b| *b == b']') {
        Some(end) => (Kind::Quoted, end + 1),
        None => (Kind::Torn, bytes.len()),
    }
}

/// `$tag$ … $tag$`, `$1`, `$name`.
fn dollar(driver: Driver, bytes: &[u8]) -> (Kind, usize) {
    let after = bytes.get(1..).unwrap_or_default();
    if driver == Driver::Postgres {
        let tag = match after.first() {
            Some(b) if starts_word(*b) => run(after, |b| in_word(b) && b != b'$'),
            _ => 0,
        };
        if after.get(tag) == Some(&b'$') {
            let fence = bytes.get(..tag + 2).unwrap_or_default();
            let inside = bytes.get(tag + 2..).unwrap_or_default();
            let end = inside.windows(fence.len()).position(|window| window == fence);
            return match end {
                Some(end) => (Kind::Quoted, 2 * fence.len() + end),
                None => (Kind::Torn, bytes.len()),
            };
        }
    }
    match after.first() {
        Some(b) if b.is_ascii_digit() => (Kind::Placeholder, 1 + run(after, |b| b.is_ascii_digit())),
        Some(b) if starts_name(*b) => (Kind::Parameter, 1 + name(after)),
        _ => (Kind::Other, 1),
    }
}
