//! The tables of keys, and what is written from them.

use std::path::Path;

use super::{ConfigFiles, Diagnostics, reference, schema, tree};

/// `docs/reference/config.md` is written by the program. `toolgate reference > docs/reference/config.md` renews it.
#[test]
fn the_reference_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.md");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == reference::text(),
        "{} is old: write it anew with `toolgate reference`",
        path.display()
    );
}

/// The schema is one, takes the starter file, and refuses what the program refuses.
#[test]
fn the_schema_and_the_program_agree() {
    let validator = jsonschema::draft202012::new(&schema::schema()).unwrap();
    for (name, text) in [
        ("starter.toml", include_str!("../starter.toml")),
        ("shop.toml", include_str!("../../../../examples/shop.toml")),
        ("buddyboss.toml", include_str!("../../../../examples/buddyboss.toml")),
    ] {
        let mut texts = ConfigFiles::default();
        let file = texts.add(name.into(), text.into());
        let whole = tree::parse(&texts, file, &mut Diagnostics::default()).to_json();
        assert!(whole["servers"].is_object(), "{name}");
        let faults: Vec<String> = validator.iter_errors(&whole).map(|error| error.to_string()).collect();
        assert!(faults.is_empty(), "{name}: {faults:?}");
    }
    for wrong in [
        serde_json::json!({ "servers": { "s": { "tools": { "t": { "txt": "x" } } } } }),
        serde_json::json!({ "servers": { "s": { "tools": { "t": { "text": "x", "template": "y" } } } } }),
        serde_json::json!({ "listen": { "tls": {} } }),
        serde_json::json!({ "version": 2 }),
    ] {
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
}

/// Every key says what it is for, and every default is one.
#[test]
fn the_tables_are_whole() {
    let text = reference::text();
    assert!(!text.contains("| |  |"), "a key without a description");
    let schema = schema::schema().to_string();
    assert!(!schema.contains("\"default\":null"), "a default that is no JSON");
}

/// What a log gets of a wrong file is where and what, and nothing that is written there.
#[test]
fn a_log_is_not_told_what_is_written_in_the_file() {
    let path = std::env::temp_dir().join(format!("toolgate-briefly-{}.toml", std::process::id()));
    for wrong in [
        "[connections.x]\nhttp = \"https://x.example\"\nheaders = { X-Key = \"s3cret\", 7 }\n",
        "[connections.x]\nhttp = \"https://x.example\"\nheaders = { X-Key = \"s3cret\" } \"\n",
        "[connections.x]\nhttp = \"https://x.example\"\nheders = { X-Key = \"s3cret\" }\n",
    ] {
        std::fs::write(&path, wrong).unwrap();
        let loaded = super::load_with_variables(&path, &|_| None);
        let (told, briefly) = (loaded.error_report().unwrap(), loaded.error_summary().unwrap());
        assert!(told.contains("s3cret"), "the line is shown to who checks: {told}");
        assert!(!briefly.contains("s3cret"), "{briefly}");
        assert!(briefly.contains(".toml:2:") || briefly.contains(".toml:3:"), "{briefly}");
    }
    let _ = std::fs::remove_file(&path);
}
