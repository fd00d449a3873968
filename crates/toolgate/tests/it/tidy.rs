//! Checks the rules of the code base: dependencies between modules, and forbidden constructs.
//!
//! The rules are those of the architecture's "Direction of dependency" and of the style guide. The check works on lines of
//! code, not on syntax trees: comments and `mod tests { .. }` are removed first, and test files are not read. It does not
//! judge sizes or taste.

mod names;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A module only uses modules of lower rank, so that there are no cycles. `toolgate-wire`, a crate of its own, is below all
/// of them; `lib.rs` names all modules and is not checked.
const MODULE_RANKS: [(u8, &str); 15] = [
    (0, "guide model util"),
    (1, "headers profile"),
    (2, "error request seal"),
    (3, "store observe"),
    (4, "cluster_bus stream subscriptions"),
    (5, "handler"),
    (6, "registry task"),
    (7, "collect dispatch"),
    (8, "guard protocol"),
    (9, "engine"),
    (10, "transport"),
    (11, "server"),
    (12, "servers"),
    (13, "app testing"),
    (14, "program"),
];

/// Exceptions to the ranks, each with its reason: `(user, used, reason)`.
const RANK_EXCEPTIONS: [(&str, &str, &str); 0] = [];

/// Constructs that finished code does not contain, and the rule they break.
const BANNED_WORDS: [(&str, &str); 6] = [
    ("todo!", "unfinished code is not committed"),
    ("unimplemented!", "unfinished code is not committed"),
    ("dbg!", "what the operator should know goes to `tracing`"),
    ("#[ignore", "a test that does not run proves nothing"),
    ("unbounded_channel", "every queue is bounded"),
    ("mpsc::channel()", "every queue is bounded"),
];

#[test]
fn the_rules_hold() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut violations = Vec::new();
    let mut n_files = 0;
    for package in entries(&crates) {
        let name = package.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let Ok(manifest) = fs::read_to_string(package.join("Cargo.toml")) {
            check_manifest(&format!("crates/{name}/Cargo.toml"), &manifest, &mut violations);
        }
        for file in source_files(&package.join("src")) {
            let inside =
                file.strip_prefix(&package).expect("it was found there").to_string_lossy().replace('\\', "/");
            let text = fs::read_to_string(&file).expect("source files are text");
            check_source(&format!("crates/{name}/{inside}"), &text, &mut violations);
            n_files += 1;
        }
    }
    assert!(n_files > 50, "only {n_files} source files were found below {}", crates.display());
    let shown = violations.iter().fold(String::new(), |mut shown, violation| {
        let _ = writeln!(shown, "  {violation}");
        shown
    });
    assert!(violations.is_empty(), "{} broken rules:\n{shown}", violations.len());
}

/// Every rule finds violations: a rule that finds nothing has no effect.
#[test]
fn each_rule_finds_violations() {
    let rows = [
        (
            "crates/toolgate/src/stream.rs",
            "//! a\nuse crate::protocol::Protocol;\n",
            "`stream` (rank 4) uses `protocol` (rank 8)",
        ),
        (
            "crates/toolgate/src/protocol/notifications.rs",
            "//! a\nfn f() { crate::guard::f() }\n",
            "`protocol` (rank 8) uses `guard`",
        ),
        ("crates/toolgate/src/attic.rs", "//! a\n", "`attic` has no rank"),
        ("crates/toolgate/src/stream.rs", "//! a\nuse crate::{clock, seal};\n", "one `use crate::` line"),
        (
            "crates/toolgate-wire/src/meta.rs",
            "//! a\nconst D: &str = \"2025-06-18\";\n",
            "`2025-06-18` stands outside",
        ),
        (
            "crates/toolgate/src/protocol.rs",
            "//! a\nlet e = ProtocolVersion::V2025_06_18;\n",
            "names a protocol version",
        ),
        (
            "crates/toolgate/src/engine.rs",
            "//! a\nuse toolgate_wire::ProtocolVersion;\n",
            "`ProtocolVersion` is known to `protocol` and `testing` only",
        ),
        ("crates/toolgate/src/stream.rs", "use std::io;\n", "begins with `//!`"),
        ("crates/toolgate/src/stream.rs", "//! a\nlet n = Instant::now();\n", "the time comes from `clock`"),
        (
            "crates/toolgate/src/stream.rs",
            "//! a\nlet q = mpsc::unbounded_channel();\n",
            "every queue is bounded",
        ),
        ("crates/toolgate/src/lib.rs", "//! a\npub use handler::*;\n", "re-exports have names"),
        ("crates/toolgate/src/stream.rs", "//! a\nfn f() { todo!() }\n", "unfinished code"),
    ];
    for (path, text, expected) in rows {
        let mut violations = Vec::new();
        check_source(path, text, &mut violations);
        assert!(
            violations.len() == 1 && violations[0].contains(expected),
            "{path}: {text:?} gave {violations:?}"
        );
    }
    let mut violations = Vec::new();
    check_source(
        "crates/toolgate/src/protocol.rs",
        "//! Since 2025-06-18.\nuse crate::seal::Seal; // Spec 2025-06-18: todo!\n#[cfg(test)]\nmod tests {\n    use crate::server::Server;\n}\n",
        &mut violations,
    );
    check_manifest(
        "Cargo.toml",
        "[features]\n# Why.\na = []\n[dependencies]\n# Why.\nb.workspace = true\n",
        &mut violations,
    );
    assert!(violations.is_empty(), "false positives: {violations:?}");
    check_manifest(
        "Cargo.toml",
        "[features]\na = []\n\n[dependencies]\nb = \"1\"\n\n[dev-dependencies]\nc = \"1\"\n",
        &mut violations,
    );
    assert!(
        violations.len() == 2
            && violations[0].starts_with("Cargo.toml:2:")
            && violations[1].starts_with("Cargo.toml:5:"),
        "{violations:?}"
    );
}

fn check_source(path: &str, text: &str, violations: &mut Vec<String>) {
    if !text.starts_with("//!") {
        violations.push(format!("{path}:1: a module begins with `//!`: what it is, and what it must not do"));
    }
    let room = path.strip_prefix("crates/toolgate/src/").filter(|inside| *inside != "lib.rs").map(|inside| {
        let end = inside.find(['/', '.']).unwrap_or(inside.len());
        &inside[..end]
    });
    let own = room.and_then(rank_of);
    if let (Some(room), None) = (room, own) {
        violations.push(format!("{path}:1: module `{room}` has no rank; give it one in tests/it/tidy.rs"));
    }
    for (number, line) in code_lines(text) {
        let mut say = |rule: &str| violations.push(format!("{path}:{number}: {rule}"));
        if let (Some(room), Some(own)) = (room, own) {
            if line.contains("crate::{") {
                say("one `use crate::` line for each module, so that its rank can be checked");
            }
            for used in line.split("crate::").skip(1).map(first_word) {
                let is_known = RANK_EXCEPTIONS.iter().any(|(who, whom, _)| (*who, *whom) == (room, used));
                if let Some(other) = rank_of(used).filter(|other| *other >= own && used != room && !is_known)
                {
                    say(&format!(
                        "`{room}` (rank {own}) uses `{used}` (rank {other}); only lower ranks may be used"
                    ));
                }
            }
        }
        if let Some(date) = find_date(line).filter(|_| path != "crates/toolgate-wire/src/protocol_version.rs")
        {
            say(&format!(
                "the version `{date}` stands outside toolgate-wire/src/protocol_version.rs; ask for a fact instead"
            ));
        }
        if split_words(line).any(|word| word.starts_with("V20")) && !path.starts_with("crates/toolgate-wire/")
        {
            say("names a protocol version; outside toolgate-wire only its behavior is known");
        }
        // `testing` implements the client side, which has a protocol version too; it also asks for behavior.
        if room.is_some_and(|room| !["protocol", "testing"].contains(&room))
            && split_words(line).any(|word| word == "ProtocolVersion")
        {
            say("the type `ProtocolVersion` is known to `protocol` and `testing` only");
        }
        let is_clock = path == "crates/toolgate/src/util/clock.rs" || path.ends_with("/src/clock.rs");
        if ["Instant::now", "SystemTime::now"].iter().any(|now| line.contains(now)) && !is_clock {
            say("the time comes from `clock`");
        }
        if path.ends_with("/src/lib.rs") && line.contains("pub use") && line.contains('*') {
            say("re-exports have names: what is public is a decision");
        }
        for (_, rule) in BANNED_WORDS.iter().filter(|(word, _)| line.contains(word)) {
            say(rule);
        }
    }
}

/// Features and dependencies have a comment that explains them; dependencies may have one per group.
fn check_manifest(path: &str, text: &str, violations: &mut Vec<String>) {
    let mut section = "";
    let (mut is_group_told, mut is_told) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        let is_entry = line.starts_with(|first: char| first.is_ascii_alphanumeric()) && line.contains('=');
        let needed = match section {
            "[features]" => is_entry && !is_told && first_word(line) != "default",
            "[dependencies]" => is_entry && !is_group_told,
            _ if section.starts_with("[target.") && section.ends_with("dependencies]") => {
                is_entry && !is_group_told
            }
            _ => false,
        };
        if needed {
            violations.push(format!("{path}:{number}: a comment above says what this is for"));
        }
        is_told = line.starts_with('#');
        is_group_told = is_told || (is_group_told && !line.is_empty());
        if line.starts_with('[') {
            (section, is_group_told) = (line, false);
        }
    }
}

/// Returns numbered lines without comments and without `mod tests { .. }`, which is the last item of a file.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    (1..).zip(text[..end].lines()).map(|(number, line)| {
        // The slashes of a URL follow a colon.
        let mut starts = line.match_indices("//").map(|(at, _)| at);
        let comment = starts.find(|at| !line[..*at].ends_with(':')).unwrap_or(line.len());
        (number, &line[..comment])
    })
}

fn rank_of(module: &str) -> Option<u8> {
    let found = MODULE_RANKS.iter().find(|(_, names)| names.split(' ').any(|name| name == module));
    found.map(|(rank, _)| *rank)
}

fn split_words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

fn first_word(line: &str) -> &str {
    split_words(line).next().unwrap_or_default()
}

/// Finds a date, such as those that name protocol versions.
fn find_date(line: &str) -> Option<&str> {
    let is_date = |text: &[u8]| {
        text.starts_with(b"20")
            && (0..10).all(|at| if at == 4 || at == 7 { text[at] == b'-' } else { text[at].is_ascii_digit() })
    };
    let at = line.as_bytes().windows(10).position(is_date)?;
    line.get(at..at + 10)
}

/// Returns all source files below a directory, except tests.
fn source_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in entries(directory) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() && name != "tests" {
            files.extend(source_files(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" {
            files.push(path);
        }
    }
    files
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
