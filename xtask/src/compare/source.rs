//! Counts the lines of a source file, and the names of third-party packages that it mentions. The rules are in [`RULES`].

use std::collections::BTreeSet;

/// The rules of counting, as printed under the table.
pub(super) const RULES: &str = "\
- **Lines** of `main.rs` or `server.py` that are neither blank nor a comment. Comments and docstrings that describe a tool, an
  argument or a prompt count, because they are sent to clients; the comment at the top of the file does not.
- **Concepts**: names of third-party packages in the same file, each once: imported names, paths such as
  `serde_json::to_string`, derives, attributes and their keys (`tool(read_only)`), decorators and their keys, keywords of
  pydantic's `Field`. Methods and fields are not counted, nor is anything of the language and its standard library.";

/// Attributes of the language.
const BUILTIN_ATTRIBUTES: &[&str] = &["allow", "cfg", "default", "derive", "path", "test"];
/// Derives of the standard library.
const STD_DERIVES: &[&str] =
    &["Clone", "Copy", "Debug", "Default", "Eq", "Hash", "Ord", "PartialEq", "PartialOrd"];

/// The language of a source file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Python,
}

/// What was counted in a source file.
pub(super) struct SourceCounts {
    pub(super) lines: usize,
    pub(super) names: BTreeSet<String>,
}

/// Counts lines and names. `packages` are the third-party packages as they are written in the source.
pub(super) fn count(language: Language, text: &str, packages: &[String]) -> Result<SourceCounts, String> {
    let names = match language {
        Language::Rust => RustNames::collect(text, packages)?,
        Language::Python => PythonNames::collect(text, packages)?,
    };
    Ok(SourceCounts { lines: count_lines(language, text), names })
}

/// The dependencies in a Cargo.toml, as they are written in Rust.
pub(super) fn cargo_dependencies(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let entries = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    entries.filter_map(|line| Some(line.split_once(" =")?.0.replace('-', "_"))).collect()
}

fn count_lines(language: Language, text: &str) -> usize {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    match language {
        Language::Rust => {
            let is_code = |line: &&str| !line.starts_with("//") || is_item_comment(line);
            lines.filter(is_code).count()
        }
        Language::Python => {
            // The docstring of the module.
            if lines.peek().is_some_and(|line| line.starts_with("\"\"\"")) {
                let is_one_line = lines.next().is_some_and(|line| line.len() > 3 && line.ends_with("\"\"\""));
                while !is_one_line && lines.next().is_some_and(|line| !line.ends_with("\"\"\"")) {}
            }
            lines.filter(|line| !line.starts_with('#')).count()
        }
    }
}

fn is_item_comment(line: &str) -> bool {
    line.starts_with("///") && !line.starts_with("////")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'a> {
    Word(&'a str),
    /// A string literal, without its quotes.
    Text(&'a str),
    Mark(char),
}

impl<'a> Token<'a> {
    fn word(self) -> Option<&'a str> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Splits a source into words, string literals and single marks; comments and space are left out.
fn tokenize(language: Language, text: &str) -> Vec<Token<'_>> {
    let comment = if language == Language::Rust { "//" } else { "#" };
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with(comment) {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            let quotes = if rest.starts_with("\"\"\"") { "\"\"\"" } else { "\"" };
            let inner = &rest[quotes.len()..];
            let end = end_of_text(inner, quotes);
            tokens.push(Token::Text(&inner[..end]));
            rest.len().min(quotes.len() * 2 + end)
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let end = end.unwrap_or(rest.len());
            tokens.push(Token::Word(&rest[..end]));
            end
        } else {
            // A line of Python ends an import or a decorator.
            if !first.is_whitespace() || (first == '\n' && language == Language::Python) {
                tokens.push(Token::Mark(first));
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// Where a string literal ends; a backslash escapes the character after it.
fn end_of_text(text: &str, quotes: &str) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        if !is_escaped && text[at..].starts_with(quotes) {
            return at;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    text.len()
}

/// The position after the bracket that closes the one at `open`.
fn skip_brackets(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Mark('(' | '[' | '{') => depth += 1,
            Token::Mark(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

struct RustNames<'a> {
    tokens: Vec<Token<'a>>,
    packages: &'a [String],
    names: BTreeSet<String>,
}

impl<'a> RustNames<'a> {
    fn collect(text: &'a str, packages: &'a [String]) -> Result<BTreeSet<String>, String> {
        let tokens = tokenize(Language::Rust, text);
        let mut all = Self { tokens, packages, names: BTreeSet::new() };
        let mut at = 0;
        while at < all.tokens.len() {
            at = match all.tokens[at] {
                Token::Word("use") => all.import(at + 1)?,
                Token::Mark('#') => all.attribute(at + 1),
                Token::Word(word) if all.is_package(word) && all.is_path_separator(at + 1) => all.path(at),
                _ => at + 1,
            };
        }
        Ok(all.names)
    }

    fn is_package(&self, word: &str) -> bool {
        self.packages.iter().any(|package| package == word)
    }

    fn is_path_separator(&self, at: usize) -> bool {
        self.tokens.get(at..at + 2) == Some(&[Token::Mark(':'), Token::Mark(':')])
    }

    /// Adds the last name of each path of a `use` declaration.
    fn import(&mut self, start: usize) -> Result<usize, String> {
        let length = self.tokens[start..].iter().position(|token| *token == Token::Mark(';'));
        let end = start + length.ok_or("a `use` without an end")?;
        if self.tokens[start].word().is_some_and(|root| self.is_package(root)) {
            for at in start..end {
                let is_last = !self.is_path_separator(at + 1);
                let is_alias = at > start && self.tokens[at - 1] == Token::Word("as");
                match self.tokens[at] {
                    Token::Mark('*') => return Err("a glob import hides which names are used".to_owned()),
                    Token::Word(name) if is_last && !is_alias && !["as", "self"].contains(&name) => {
                        self.names.insert(name.to_owned());
                    }
                    _ => {}
                }
            }
        }
        Ok(end)
    }

    /// Adds the last name of a path that begins with a package.
    fn path(&mut self, start: usize) -> usize {
        let mut at = start;
        while self.is_path_separator(at + 1)
            && self.tokens.get(at + 3).is_some_and(|next| next.word().is_some())
        {
            at += 3;
        }
        if let Token::Word(name) = self.tokens[at] {
            self.names.insert(name.to_owned());
        }
        at + 1
    }

    /// Adds the name and the keys of an attribute, or the traits of a derive.
    fn attribute(&mut self, start: usize) -> usize {
        let open = start + usize::from(self.tokens.get(start) == Some(&Token::Mark('!')));
        if self.tokens.get(open) != Some(&Token::Mark('[')) {
            return start;
        }
        let end = skip_brackets(&self.tokens, open);
        let mut at = open + 1;
        while self.is_path_separator(at + 1) {
            at += 3;
        }
        let Some(Token::Word(name)) = self.tokens.get(at).copied() else { return end };
        let keys = self.keys(at + 1, end);
        if name == "derive" {
            let foreign = keys.into_iter().filter(|key| !STD_DERIVES.contains(key));
            self.names.extend(foreign.map(str::to_owned));
        } else if !BUILTIN_ATTRIBUTES.contains(&name) {
            self.names.insert(name.to_owned());
            self.names.extend(keys.into_iter().map(|key| format!("{name}({key})")));
        }
        end
    }

    /// The words that follow a bracket or a comma: the keys of an attribute, also nested ones.
    fn keys(&self, start: usize, end: usize) -> Vec<&'a str> {
        let is_key = |pair: &[Token<'a>]| matches!(pair[0], Token::Mark('(' | ','));
        let pairs = self.tokens[start..end].windows(2).filter(|pair| is_key(pair));
        pairs.filter_map(|pair| pair[1].word()).collect()
    }
}

struct PythonNames<'a> {
    tokens: Vec<Token<'a>>,
    packages: &'a [String],
    names: BTreeSet<String>,
    /// Names of the standard library and of other files of the server.
    ignored: BTreeSet<&'a str>,
}

impl<'a> PythonNames<'a> {
    fn collect(text: &'a str, packages: &'a [String]) -> Result<BTreeSet<String>, String> {
        let tokens = tokenize(Language::Python, text);
        let mut all = Self { tokens, packages, names: BTreeSet::new(), ignored: BTreeSet::new() };
        for at in 0..all.tokens.len() {
            let begins_line = at == 0 || all.tokens[at - 1] == Token::Mark('\n');
            match all.tokens[at] {
                Token::Word("from" | "import") if begins_line => all.import(at)?,
                Token::Mark('@') if begins_line => all.decorator(at + 1),
                Token::Word("Field") if all.tokens.get(at + 1) == Some(&Token::Mark('(')) => {
                    all.keywords("Field", at + 1);
                }
                _ => {}
            }
        }
        Ok(all.names)
    }

    /// Adds the names of `from package import a, b`, or the package of `import package`.
    fn import(&mut self, start: usize) -> Result<(), String> {
        let rest = &self.tokens[start..];
        let length = match rest.iter().position(|token| *token == Token::Mark('(')) {
            Some(open) if !rest[..open].contains(&Token::Mark('\n')) => skip_brackets(rest, open),
            _ => rest.iter().position(|token| *token == Token::Mark('\n')).unwrap_or(rest.len()),
        };
        let line = &rest[..length];
        if line.contains(&Token::Mark('*')) {
            return Err("a glob import hides which names are used".to_owned());
        }
        let root = line.get(1).and_then(|token| token.word()).unwrap_or_default();
        let imported = line.iter().position(|token| *token == Token::Word("import")).unwrap_or_default() + 1;
        let words = line[imported..].iter().filter_map(|token| token.word());
        if self.packages.iter().any(|package| package == root) {
            self.names.extend(words.map(str::to_owned));
        } else {
            self.ignored.extend(words);
        }
        Ok(())
    }

    /// Adds the last name of `@object.decorator(…)`, and its keywords.
    fn decorator(&mut self, start: usize) {
        let mut at = start;
        while self.tokens.get(at + 1) == Some(&Token::Mark('.')) {
            at += 2;
        }
        let Some(Token::Word(name)) = self.tokens.get(at).copied() else { return };
        if self.ignored.contains(name) {
            return;
        }
        self.names.insert(name.to_owned());
        if self.tokens.get(at + 1) == Some(&Token::Mark('(')) {
            self.keywords(name, at + 1);
        }
    }

    /// Adds the keywords of a call, and the keys of a dictionary in it.
    fn keywords(&mut self, name: &str, open: usize) {
        let end = skip_brackets(&self.tokens, open);
        for pair in self.tokens[open..end].windows(2) {
            if let [Token::Word(key), Token::Mark('=')] | [Token::Text(key), Token::Mark(':')] = pair {
                self.names.insert(format!("{name}({key})"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(language: Language, text: &str, n_lines: usize, names: &str) {
        let packages = ["toolgate", "serde", "tokio", "serde_json", "fastmcp", "pydantic"].map(str::to_owned);
        let counted = count(language, text, &packages).unwrap();
        let found: Vec<&str> = counted.names.iter().map(String::as_str).collect();
        assert_eq!((counted.lines, found.join(" ").as_str()), (n_lines, names), "{text}");
    }

    #[test]
    fn names_of_rust_are_counted_once() {
        let rust = |text, n_lines, names| check(Language::Rust, text, n_lines, names);
        rust("//! Top.\n\n// Why.\n/// Sent.\nfn f() {}\n", 2, "");
        rust(
            "use std::io;\nuse crate::a::B;\nuse toolgate::{Context as Cx, model::Role};\n",
            3,
            "Context Role",
        );
        rust(
            "#[derive(Clone, Deserialize)]\n#[serde(default = \"a, b\")]\nstruct A;",
            3,
            "Deserialize serde serde(default)",
        );
        rust("#![allow(deprecated)]\n#[tokio::main]\nasync fn main() {}", 3, "main");
        rust(
            "#[tool(hints(safe = true), range = 1..=5, open)]",
            1,
            "tool tool(hints) tool(open) tool(range) tool(safe)",
        );
        rust("let a = serde_json::to_string(\"toolgate::x\"); std::mem::drop(a);", 1, "to_string");
    }

    #[test]
    fn names_of_python_are_counted_once() {
        let python = |text, n_lines, names| check(Language::Python, text, n_lines, names);
        python("\"\"\"Top.\"\"\"\n\n# Why.\ndef f():\n    \"\"\"Sent.\"\"\"\n", 2, "");
        python("\"\"\"Top,\ntwo lines.\n\"\"\"\nimport json\n", 1, "");
        python("from fastmcp import Context, FastMCP\nfrom orders import Order\n", 2, "Context FastMCP");
        python("from dataclasses import dataclass\n\n\n@dataclass\nclass A:\n", 3, "");
        python("@mcp.tool(annotations={\"safe\": True})\n", 1, "tool tool(annotations) tool(safe)");
        python("from pydantic import Field\nx = Field(ge=0)\ny = call(ge=0)\n", 3, "Field Field(ge)");
    }

    #[test]
    fn globs_are_refused() {
        let packages = ["toolgate".to_owned(), "fastmcp".to_owned()];
        assert!(count(Language::Rust, "use toolgate::prelude::*;", &packages).is_err());
        assert!(count(Language::Python, "from fastmcp import *\n", &packages).is_err());
    }

    #[test]
    fn dependencies_are_read_from_the_manifest() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\n# Why.\na-b = \"1\"\nc = { path = \"c\" }\n\n[x]\nd = 1\n";
        assert_eq!(cargo_dependencies(manifest), ["a_b", "c"]);
    }
}
