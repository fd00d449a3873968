//! Rules for names and sizes: plain words, one definition per type name, short argument lists, short files.
//!
//! Each exception is listed with its file. An exception that is no longer needed is a failure too, so that the lists only
//! shrink.

use std::collections::BTreeMap;
use std::path::Path;

use super::{code_lines, entries, source_files};

/// Metaphors that the code once used. The word of the specification, of HTTP or of Rust replaces each of them.
const METAPHORS: &str = "cellar desk door ear edition era errand hall house kin lane letterhead luggage murmur parcel pen porch \
                         road seat seldom shelf sight stranger vestibule voice";

/// Files that still contain one of the metaphors: `(path, word)`.
const METAPHOR_EXCEPTIONS: &[(&str, &str)] = &[];

/// Type names that several modules of a crate may define, because the module qualifies them.
const REPEATABLE_TYPE_NAMES: &[&str] =
    &["Builder", "Config", "Entry", "Error", "ErrorKind", "Inner", "Kind", "Options", "Repr", "State"];

/// The longest source file, in lines.
const MAX_FILE_LINES: usize = 600;

/// Longer files, which are tables.
const LONG_FILES: &[&str] = &["crates/toolgate-cli/src/config/keys.rs"];

/// One source file: its path from the root of the repository, and its text.
struct Source {
    path: String,
    text: String,
}

#[test]
fn names_and_sizes_follow_the_style_guide() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut faults = Vec::new();
    let mut sources = Vec::new();
    for package in entries(&root.join("crates")) {
        let files = source_files(&package.join("src")).into_iter().map(|file| Source {
            path: file.strip_prefix(&root).expect("it was found there").to_string_lossy().replace('\\', "/"),
            text: std::fs::read_to_string(&file).expect("source files are text"),
        });
        let first = sources.len();
        sources.extend(files);
        check_repeated_types(&sources[first..], &mut faults);
    }
    assert!(sources.len() > 100, "the source files were found");
    sources.iter().for_each(|source| check_file(source, METAPHOR_EXCEPTIONS, LONG_FILES, &mut faults));
    check_exceptions(&sources, METAPHOR_EXCEPTIONS, LONG_FILES, &mut faults);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn check_file(source: &Source, metaphors: &[(&str, &str)], long_files: &[&str], faults: &mut Vec<String>) {
    let Source { path, text } = source;
    for (number, word) in metaphors_in(text) {
        if !metaphors.contains(&(path, word)) {
            faults.push(format!("{path}:{number}: `{word}` is a metaphor; use the word of the field"));
        }
    }
    for (number, line) in code_lines(text) {
        if line.contains("too_many_arguments") {
            faults.push(format!("{path}:{number}: group the arguments in a struct instead of allowing many"));
        }
    }
    let n_lines = text.lines().count();
    if n_lines > MAX_FILE_LINES && !long_files.contains(&&**path) {
        faults.push(format!("{path}: {n_lines} lines; split files of more than {MAX_FILE_LINES}"));
    }
}

/// Types that several files of one crate define.
fn check_repeated_types(sources: &[Source], faults: &mut Vec<String>) {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Source { path, text } in sources {
        for (number, line) in code_lines(text) {
            if let Some(name) = defined_type(line) {
                places.entry(name).or_default().push(format!("{path}:{number}"));
            }
        }
    }
    for (name, places) in places {
        if places.len() > 1 && !REPEATABLE_TYPE_NAMES.contains(&name) {
            faults.push(format!("the type name `{name}` is defined more than once: {}", places.join(", ")));
        }
    }
}

/// Exceptions that nothing needs.
fn check_exceptions(
    sources: &[Source],
    metaphors: &[(&str, &str)],
    long_files: &[&str],
    faults: &mut Vec<String>,
) {
    let find = |path: &str| sources.iter().find(|source| source.path == path);
    for (path, word) in metaphors {
        if !find(path).is_some_and(|source| metaphors_in(&source.text).any(|(_, found)| found == *word)) {
            faults.push(format!("{path} no longer contains `{word}`; remove the exception"));
        }
    }
    for path in long_files {
        if find(path).is_none_or(|source| source.text.lines().count() <= MAX_FILE_LINES) {
            faults.push(format!("{path} is no longer long; remove the exception"));
        }
    }
}

/// The metaphors in identifiers and comments, with their lines. String literals are skipped: they may be formats.
fn metaphors_in(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    // Splitting every line into words takes a minute; nearly all lines contain none of the words.
    let may_match = |line: &str| {
        let line = line.to_ascii_lowercase();
        METAPHORS.split_whitespace().any(|word| line.contains(word))
    };
    (1..).zip(text.lines()).filter(move |(_, line)| may_match(line)).flat_map(|(number, line)| {
        // In a comment, quotes are ordinary characters.
        let is_comment = line.trim_start().starts_with("//");
        let parts = line.split('"').enumerate().filter(move |(index, _)| is_comment || index % 2 == 0);
        parts
            .flat_map(|(_, part)| segments(part))
            .filter_map(|segment| find_metaphor(&segment))
            .map(move |word| (number, word))
    })
}

/// The metaphor that a word is, in singular or plural.
fn find_metaphor(segment: &str) -> Option<&'static str> {
    METAPHORS.split_whitespace().find(|word| segment == *word || segment.strip_suffix('s') == Some(word))
}

/// The lowercase words of a text: identifiers are split at underscores and capital letters.
fn segments(text: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let mut was_lowercase = false;
    for letter in text.chars() {
        let is_boundary = !letter.is_alphanumeric() || (letter.is_uppercase() && was_lowercase);
        if is_boundary {
            segments.push(String::new());
        }
        if let (true, Some(last)) = (letter.is_alphanumeric(), segments.last_mut()) {
            last.extend(letter.to_lowercase());
        }
        was_lowercase = letter.is_lowercase();
    }
    segments
}

/// The name of the type that a line defines. An indented `type` belongs to a trait or an impl.
fn defined_type(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let mut line = line.trim_start();
    if let Some(rest) = line.strip_prefix("pub") {
        line = match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(") ")?.1,
            None => rest.strip_prefix(' ')?,
        };
    }
    let (keyword, rest) = line.split_once(' ')?;
    let is_definition = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !is_indented,
        _ => false,
    };
    let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    (is_definition && name.starts_with(|first: char| first.is_uppercase())).then_some(name)
}

/// Each rule finds a violation and accepts good code.
#[test]
fn each_rule_for_names_bites() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let check = |text: &str, expected: &[&str]| {
        let mut faults = Vec::new();
        check_file(&source("a.rs", text), &[("a.rs", "porch")], &[], &mut faults);
        assert_eq!(faults.len(), expected.len(), "{text}: {faults:?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.contains(expected), "{text}: {faults:?}");
        }
    };
    check("struct HallDesk;", &["`hall`", "`desk`"]);
    check("let open_seats = 1;", &["a.rs:1: `seat`"]);
    check("// Heard by a stranger.", &["`stranger`"]);
    check("// The \"voice\" of a client.", &["`voice`"]);
    check("struct Challenge; // hallmark, open, kind, server_early", &[]);
    check("let key = \"edition\";", &[]);
    check("fn porch() {}", &[]);
    check("#[allow(clippy::too_many_arguments)]", &["group the arguments"]);
    check(&"\n".repeat(MAX_FILE_LINES), &[]);
    check(&"\n".repeat(MAX_FILE_LINES + 1), &["601 lines"]);
    let mut faults = Vec::new();
    let twice = [
        source("a.rs", "pub(crate) struct Reader<T>;\nenum State {}\n    type Item = u8;"),
        source("b.rs", "pub trait Reader {}\nstruct State;\n    type Item = u8;"),
    ];
    check_repeated_types(&twice, &mut faults);
    assert_eq!(faults, ["the type name `Reader` is defined more than once: a.rs:1, b.rs:1"]);
    faults.clear();
    check_exceptions(&twice, &[("a.rs", "porch")], &["b.rs"], &mut faults);
    assert_eq!(faults.len(), 2, "unused exceptions are found: {faults:?}");
    assert!(REPEATABLE_TYPE_NAMES.len() <= 20);
}
