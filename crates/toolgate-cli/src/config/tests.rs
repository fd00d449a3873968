//! Tests of the key tables, and of the documents generated from them.

use std::path::Path;

use toolgate_sources::source::command::CommandSpec;
use toolgate_sources::source::files::FilesSpec;

use super::check::ConfigChecker;
use super::keys::{self, Kind, Presence, ROOT, Table};
use super::table_view::TableView;
use super::{ConfigFiles, Diagnostics, Node, reference, schema, tree};

/// `toolgate reference > docs/reference/config.md` updates the file.
#[test]
fn the_reference_matches_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.md");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == reference::text(),
        "{} is outdated: update it with `toolgate reference`",
        path.display()
    );
}

/// The schema is valid, accepts the examples, and rejects what the program rejects.
#[test]
fn the_schema_and_the_program_agree() {
    let validator = jsonschema::draft202012::new(&schema::schema()).unwrap();
    for (name, text) in [
        ("starter.toml", include_str!("../starter.toml")),
        ("shop.toml", include_str!("../../../../examples/shop.toml")),
        ("buddyboss.toml", include_str!("../../../../examples/buddyboss.toml")),
    ] {
        let mut files = ConfigFiles::default();
        let file = files.add(name.into(), text.into());
        let config = tree::parse(&files, file, &mut Diagnostics::default()).to_json();
        assert!(config["servers"].is_object(), "{name}");
        let errors: Vec<String> = validator.iter_errors(&config).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
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

/// Every default passes the check of its key, so that the reader can rely on its kind.
#[test]
fn every_default_is_of_its_kind() {
    let files = ConfigFiles::default();
    for table in all_tables() {
        let kinds: Vec<Option<&str>> = match table.one_of {
            [] => vec![None],
            kinds => kinds.iter().copied().map(Some).collect(),
        };
        for (key, kind) in table.keys.iter().flat_map(|key| kinds.iter().map(move |kind| (key, *kind))) {
            let has_default = match key.presence {
                Presence::WithDefault(_) => true,
                Presence::DefaultByKind(defaults) => {
                    defaults.iter().any(|(kinds, _)| kind.is_some_and(|kind| kinds.contains(&kind)))
                }
                Presence::Required | Presence::Optional => false,
            };
            let mut defaults = Node::from_json(&table.default_of(key.name, kind));
            assert_eq!(defaults.get(key.name).is_some(), has_default, "{}.{}", table.path, key.name);
            let Some(default) = defaults.get_mut(key.name) else { continue };
            let mut diagnostics = Diagnostics::default();
            ConfigChecker {
                files: &files,
                variables: &|_| None,
                diagnostics: &mut diagnostics,
                secret_files: &mut Vec::new(),
            }
            .check_value(default, &key.kind, key.name, None);
            assert!(diagnostics.is_empty(), "{}.{}: {diagnostics:?}", table.path, key.name);
        }
    }
}

/// Sources have defaults of their own, for callers that do not read a configuration. They are the same.
#[test]
fn sources_and_the_tables_have_the_same_defaults() {
    let table = TableView::new(None, &keys::COMMAND);
    let command = CommandSpec::default();
    assert_eq!(command.max_output, table.bytes("max_output"));
    assert_eq!(command.exit_codes, table.numbers::<i32>("exit_codes"));
    assert_eq!(command.allow_leading_dash, table.flag("allow_leading_dash"));
    assert_eq!((command.concurrency, command.queue), (table.number("concurrency"), table.number("queue")));
    assert_eq!(command.timeout, TableView::new(None, &keys::LIMITS).duration("timeout"));
    let table = TableView::new(None, &keys::FILES);
    let files = FilesSpec::default();
    assert_eq!(files.globs, table.texts("glob"));
    assert_eq!(files.hidden, table.flag("hidden"));
    assert_eq!((files.max_size, files.max_files), (table.size("max_size"), table.number("max_files")));
}

fn all_tables() -> Vec<&'static Table> {
    fn add(kind: &'static Kind, tables: &mut Vec<&'static Table>) {
        match kind {
            Kind::Table(table) if !tables.iter().any(|known| known.path == table.path) => {
                tables.push(table);
                table.keys.iter().for_each(|key| add(&key.kind, tables));
            }
            Kind::List(inner) | Kind::OneOrMany(inner) | Kind::Map(inner) => add(inner, tables),
            Kind::Either(kinds) => kinds.iter().for_each(|kind| add(kind, tables)),
            _ => {}
        }
    }
    let mut tables = vec![&ROOT];
    ROOT.keys.iter().for_each(|key| add(&key.kind, &mut tables));
    tables
}

/// Every key has a description, and every default is valid JSON.
#[test]
fn the_tables_are_complete() {
    let text = reference::text();
    assert!(!text.contains("| |  |"), "a key without a description");
    let schema = schema::schema().to_string();
    assert!(!schema.contains("\"default\":null"), "a default that is not valid JSON");
}

/// Log messages about an invalid file contain positions and messages, but no source lines.
#[test]
fn logs_contain_no_source_lines() {
    let path = std::env::temp_dir().join(format!("toolgate-briefly-{}.toml", std::process::id()));
    for wrong in [
        "[connections.x]\nhttp = \"https://x.example\"\nheaders = { X-Key = \"s3cret\", 7 }\n",
        "[connections.x]\nhttp = \"https://x.example\"\nheaders = { X-Key = \"s3cret\" } \"\n",
        "[connections.x]\nhttp = \"https://x.example\"\nheders = { X-Key = \"s3cret\" }\n",
    ] {
        std::fs::write(&path, wrong).unwrap();
        let loaded = super::load_with_variables(&path, &|_| None);
        let (report, summary) = (loaded.error_report().unwrap(), loaded.error_summary().unwrap());
        assert!(report.contains("s3cret"), "`check` shows the line: {report}");
        assert!(!summary.contains("s3cret"), "{summary}");
        assert!(summary.contains(".toml:2:") || summary.contains(".toml:3:"), "{summary}");
    }
    let _ = std::fs::remove_file(&path);
}
