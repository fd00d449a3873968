//! Error messages of configurations: each directory in `errors/` has a configuration and the expected messages.
//!
//! `TOOLGATE_WRITE_EXPECTED=1 cargo test -p toolgate-cli errors` overwrites the expected messages; review the diff.

use std::path::Path;
use std::process::Stdio;

use crate::harness::{program, text};

#[test]
fn every_error_message_matches_its_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/errors");
    let mut cases: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() > 20, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let output = program()
            .args(["check", "input.toml"])
            .current_dir(&case)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("EMPTY", "")
            .env("SECRET", "hunter2")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = text(&output.stderr);
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(output.status.code(), Some(3), "{name}: {stderr}");
        assert!(!stderr.contains("hunter2"), "{name} shows a secret: {stderr}");
        let expected = case.join("expected.txt");
        if std::env::var_os("TOOLGATE_WRITE_EXPECTED").is_some() {
            std::fs::write(&expected, &stderr).unwrap();
        }
        if std::fs::read_to_string(&expected).unwrap_or_default() != stderr {
            wrong.push(format!("== {name}\n{stderr}"));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}
