//! A parsed SQL statement with its parameters.
//!
//! Statements are checked before a database sees them: one statement, no unknown parameter, and for read-only tools a
//! leading keyword that reads. The latter gives clear messages and rejects what a database does not count as writing
//! (`COPY … TO`, `ATTACH`, `SET`); the database itself enforces that nothing is written.

use super::Driver;
use super::token::{Token, TokenKind, tokenize};

/// Whether a statement may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessMode {
    Read,
    Write,
}

/// Longer statements are rejected before they are parsed.
const MAX_STATEMENT_BYTES: usize = 256 * 1024;

#[derive(Debug, PartialEq, Eq)]
enum StatementPart {
    Text(String),
    /// An index into `parameter_names`.
    Parameter(usize),
}

/// A parsed statement, independent of the placeholder syntax of a database.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Statement {
    parts: Vec<StatementPart>,
    parameter_names: Vec<String>,
    /// Whether outer joins, unions or subqueries can make any column NULL.
    pub(super) has_nullable_columns: bool,
    /// Whether it can be a subquery in FROM.
    pub(super) is_nestable: bool,
}

impl Statement {
    /// Parses a statement. `known` returns whether a name is an argument.
    pub(super) fn parse(
        driver: Driver,
        text: &str,
        access: AccessMode,
        known: impl Fn(&str) -> bool,
    ) -> Result<Statement, Vec<String>> {
        if text.len() > MAX_STATEMENT_BYTES {
            return Err(vec![format!("the statement is longer than {MAX_STATEMENT_BYTES} bytes")]);
        }
        if text.contains('\0') {
            return Err(vec!["the statement contains a NUL character".to_owned()]);
        }
        let tokens: Vec<Token<'_>> = tokenize(driver, text).collect();
        let mut problems = syntax_problems(driver, &tokens);
        problems.extend(access_problem(driver, access, &tokens));
        let statement = build_statement(&tokens, known, &mut problems);
        if problems.is_empty() { Ok(statement) } else { Err(problems) }
    }

    /// The parameter names, each once.
    pub(super) fn parameter_names(&self) -> &[String] {
        &self.parameter_names
    }

    /// The parameter names in order of occurrence, with repetitions.
    pub(super) fn parameters_in_order(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            StatementPart::Text(_) => None,
            StatementPart::Parameter(index) => self.parameter_names.get(*index).map(String::as_str),
        })
    }

    /// The statement for logs, with parameter names, truncated to 500 characters.
    pub(super) fn summary(&self) -> String {
        let text =
            self.render(|index| format!(":{}", self.parameter_names.get(index).map_or("?", String::as_str)));
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").chars().take(500).collect()
    }

    /// The statement for a database. `write` formats the parameter with this index into
    /// [`parameter_names`](Self::parameter_names).
    pub(super) fn render(&self, write: impl Fn(usize) -> String) -> String {
        let texts = self.parts.iter().map(|part| match part {
            StatementPart::Text(text) => text.clone(),
            StatementPart::Parameter(index) => write(*index),
        });
        texts.collect()
    }
}

fn syntax_problems(driver: Driver, tokens: &[Token<'_>]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut report = |problem: String| {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    };
    for token in tokens {
        match token.kind {
            TokenKind::Unterminated => report("a quote or a comment is never closed".to_owned()),
            TokenKind::ExecutableComment => {
                report("comments that MySQL executes (`/*! … */`) are not allowed".to_owned())
            }
            TokenKind::Placeholder => report(format!("write parameters as :name, not as {}", token.text)),
            _ => {}
        }
    }
    if !is_balanced(tokens) {
        report("the parentheses do not match".to_owned());
    }
    if driver == Driver::Postgres && has_split_escapes(tokens) {
        report("an E'…' string must be written as one string".to_owned());
    }
    let mut parts = tokens.split(|token| token.kind == TokenKind::Semicolon);
    let n_statements = parts.by_ref().filter(|part| part.iter().any(|token| !token.is_blank())).count();
    match n_statements {
        0 => report("there is no statement".to_owned()),
        1 => {}
        _ => report("one statement only".to_owned()),
    }
    if driver == Driver::MySql {
        let keywords = ["OUTFILE", "DUMPFILE", "LOAD_FILE"];
        for token in tokens.iter().filter(|token| token.kind == TokenKind::Word) {
            if let Some(keyword) = keywords.iter().find(|keyword| token.text.eq_ignore_ascii_case(keyword)) {
                report(format!("{keyword} reads or writes files of the server and is not allowed"));
            }
        }
    }
    problems
}

/// Whether the parentheses are balanced, so that the statement can be nested in another.
fn is_balanced(tokens: &[Token<'_>]) -> bool {
    let mut depth = 0_usize;
    for token in tokens {
        depth = match token.text {
            "(" => depth + 1,
            ")" if depth == 0 => return false,
            ")" => depth - 1,
            _ => depth,
        };
    }
    depth == 0
}

/// PostgreSQL appends a string literal that follows an `E'…'` literal to it, including its escapes; the tokenizer
/// would treat them as two.
fn has_split_escapes(tokens: &[Token<'_>]) -> bool {
    let mut tokens_without_blanks = tokens.iter().filter(|token| !token.is_blank()).peekable();
    while let Some(token) = tokens_without_blanks.next() {
        let is_escape_string = token.kind == TokenKind::Quoted && token.text.starts_with(['e', 'E']);
        if is_escape_string && tokens_without_blanks.peek().is_some_and(|next| next.text.starts_with('\'')) {
            return true;
        }
    }
    false
}

const READ_KEYWORDS: &[&str] = &["SELECT", "WITH", "VALUES", "TABLE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN"];
const TRANSACTION_KEYWORDS: &[&str] =
    &["BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE", "SET", "XA"];

fn access_problem(driver: Driver, access: AccessMode, tokens: &[Token<'_>]) -> Option<String> {
    let is = |token: &Token<'_>, keywords: &[&str]| {
        keywords.iter().any(|keyword| token.text.eq_ignore_ascii_case(keyword))
    };
    let mut significant = tokens.iter().filter(|token| !token.is_blank() && token.text != "(");
    let first = significant.next()?;
    if access == AccessMode::Write {
        return is(first, TRANSACTION_KEYWORDS)
            .then(|| format!("{}: every statement runs in its own transaction", uppercase_word(first)));
    }
    if !is(first, READ_KEYWORDS) {
        return Some(format!(
            "read-only: {} is not allowed, only statements that read",
            uppercase_word(first)
        ));
    }
    // SQLite executes a PRAGMA while preparing it, even after EXPLAIN.
    if driver == Driver::Sqlite && is(first, &["EXPLAIN"]) {
        let explained = significant.find(|token| !is(token, &["QUERY", "PLAN"]))?;
        if !is(explained, &["SELECT", "WITH", "VALUES"]) {
            return Some(format!("read-only: EXPLAIN {} is not allowed", uppercase_word(explained)));
        }
    }
    None
}

fn uppercase_word(token: &Token<'_>) -> String {
    token.text.chars().take(20).collect::<String>().to_uppercase()
}

fn build_statement(
    tokens: &[Token<'_>],
    known: impl Fn(&str) -> bool,
    problems: &mut Vec<String>,
) -> Statement {
    const OUTER_KEYWORDS: &[&str] =
        &["LEFT", "RIGHT", "FULL", "OUTER", "ROLLUP", "CUBE", "GROUPING", "UNION", "NATURAL"];
    let mut statement = Statement {
        parts: Vec::new(),
        parameter_names: Vec::new(),
        has_nullable_columns: false,
        is_nestable: false,
    };
    let first = tokens.iter().find(|token| !token.is_blank() && token.text != "(");
    statement.is_nestable = first.is_some_and(|first| {
        ["SELECT", "WITH", "VALUES", "TABLE"].iter().any(|keyword| first.text.eq_ignore_ascii_case(keyword))
    });
    let selects = tokens.iter().filter(|token| token.text.eq_ignore_ascii_case("SELECT"));
    statement.has_nullable_columns = selects.count() > 1;
    let mut text = String::new();
    let mut depth = 0_usize;
    for token in tokens {
        match token.kind {
            // A trailing semicolon is not part of the statement.
            TokenKind::Semicolon => text.push(' '),
            // In PostgreSQL, `a[1:n]` is a slice unless `n` is an argument.
            TokenKind::Parameter if depth > 0 && !known(token.name()) => text.push_str(token.text),
            TokenKind::Parameter => {
                let name = token.name();
                if !known(name) {
                    problems.push(format!("{} is not an argument; add {name} to args", token.text));
                }
                let index =
                    statement.parameter_names.iter().position(|other| other == name).unwrap_or_else(|| {
                        statement.parameter_names.push(name.to_owned());
                        statement.parameter_names.len() - 1
                    });
                statement.parts.push(StatementPart::Text(std::mem::take(&mut text)));
                statement.parts.push(StatementPart::Parameter(index));
            }
            TokenKind::Bracket => {
                depth = if token.text == "[" { depth + 1 } else { depth.saturating_sub(1) };
                text.push_str(token.text);
            }
            kind => {
                statement.has_nullable_columns |= kind == TokenKind::Word
                    && OUTER_KEYWORDS.iter().any(|keyword| token.text.eq_ignore_ascii_case(keyword));
                text.push_str(token.text);
            }
        }
    }
    statement.parts.push(StatementPart::Text(text));
    problems.dedup();
    statement
}
