//! Runs every check of the seed documents, the specifications that the framework started from, against the examples `boxlang`
//! and `erlmcp` and against the program with the configurations in `examples/`.
//!
//! A check has an id, S0-01 to S0-48, S1-001 to S1-254, S2-01 to S2-75, S3-01 to S3-46 and S4-01 to S4-43. It is a row
//! in `xtask/seeds/s0.txt` and similar files, with a command that must succeed; or a test in
//! `crates/toolgate/tests/it/seeds/` whose name begins with the id; or it is deferred with a reason. Any other id is a
//! failure. The requests and responses that the documents print are in `xtask/seeds/documents.txt` and similar files.
//!
//! This module contains no protocol code: the rows define the correct behavior, and a failure prints the command.

mod documents;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::fixture::{BOXLANG, ERLMCP, Fixture, Server};
use crate::process::{self, OutputMode, ProcessOutput};
use crate::report::Tally;
use crate::{Workspace, install, rust};

use self::documents::PrintedRequest;
use self::rows::Row;

/// Programs that the rows need.
const TOOLS: [&str; 3] = ["bash", "curl", "jq"];
const ROW_TIMEOUT: Duration = Duration::from_secs(20);
const TESTS_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// The ids: prefix, digits, last number.
const ID_RANGES: [(&str, usize, usize); 5] =
    [("S0", 2, 48), ("S1", 3, 254), ("S2", 2, 75), ("S3", 2, 46), ("S4", 2, 43)];

/// Secrets in the environment of the program, which it must not reveal.
const SECRET_VARIABLES: [(&str, &str); 2] =
    [("SECRET_KEY", "abc"), ("SEEDS_DATABASE", "postgres://ada:pw@localhost/shop")];

/// Documents whose checks run against one server.
struct CheckSet {
    name: &'static str,
    server_kind: ServerKind,
    row_files: &'static [&'static str],
    /// `None` if no document prints requests for it.
    documents_file: Option<&'static str>,
}

/// The server of a set of checks.
enum ServerKind {
    /// An example of the library.
    Example,
    /// The program, with this configuration.
    Program { file: &'static str, backend: Option<Backend> },
}

/// An example that the program sends requests to. If the variable is set already, that server is used instead.
struct Backend {
    example: &'static str,
    /// The variable with its address, for the configuration and the rows.
    variable: &'static str,
}

const CHECK_SETS: &[CheckSet] = &[
    CheckSet {
        name: BOXLANG,
        server_kind: ServerKind::Example,
        row_files: &["s0.txt", "s1.txt"],
        documents_file: Some("documents.txt"),
    },
    CheckSet {
        name: ERLMCP,
        server_kind: ServerKind::Example,
        row_files: &["s2.txt"],
        documents_file: Some("documents-erlmcp.txt"),
    },
    CheckSet {
        name: "runtime",
        server_kind: ServerKind::Program { file: "xtask/seeds/runtime.toml", backend: None },
        row_files: &["s0-program.txt"],
        documents_file: Some("documents-runtime.txt"),
    },
    CheckSet {
        name: "hub",
        server_kind: ServerKind::Program {
            file: "xtask/seeds/hub.toml",
            backend: Some(Backend { example: "hub_upstream", variable: "HUB_UPSTREAM" }),
        },
        row_files: &["s3.txt"],
        documents_file: Some("documents-bluehub.txt"),
    },
    CheckSet {
        name: "buddyboss",
        server_kind: ServerKind::Program {
            file: "examples/buddyboss.toml",
            backend: Some(Backend { example: "wordpress", variable: "WP_URL" }),
        },
        row_files: &["s4.txt"],
        documents_file: Some("documents-buddyboss.txt"),
    },
];

/// Runs all checks. With `server`, which replaces the first example, the others are skipped.
pub(crate) fn run(workspace: &Workspace, server: Option<&str>, tally: &mut Tally) {
    let mut log = CheckLog::default();
    if let Err(reason) = run_tests(workspace, &mut log) {
        tally.fail(&reason);
    }
    let n_sets = if server.is_some() { 1 } else { CHECK_SETS.len() };
    log.is_partial = n_sets < CHECK_SETS.len();
    for set in &CHECK_SETS[..n_sets] {
        let fixture = match set.server_kind {
            ServerKind::Example => Fixture::new(server, set.name, workspace),
            ServerKind::Program { .. } => Fixture::build_program(workspace),
        };
        match run_shell_checks(workspace, set, &fixture, &mut log) {
            Ok(()) => {}
            Err(RowsError::Skip(reason)) => {
                tally.skip(&format!("seeds: {reason}"));
                log.is_partial = true;
            }
            Err(RowsError::Fail(reason)) => tally.fail(&reason),
        }
    }
    log.report(tally);
}

/// Why the rows did not run.
enum RowsError {
    Skip(String),
    Fail(String),
}

/// The results of the checks.
#[derive(Default)]
struct CheckLog {
    /// By id: how it was checked and the error, for each row and test.
    checks: BTreeMap<String, Vec<(&'static str, Option<String>)>>,
    deferred: BTreeMap<String, String>,
    /// Whether some rows did not run, so that missing ids cannot be determined.
    is_partial: bool,
}

impl CheckLog {
    fn record(&mut self, id: &str, how: &'static str, error: Option<String>) {
        self.checks.entry(id.to_owned()).or_default().push((how, error));
    }

    /// Prints and counts the result of every id.
    fn report(self, tally: &mut Tally) {
        let wanted = expected_ids();
        for (id, checks) in &self.checks {
            let faults: Vec<&String> = checks.iter().filter_map(|(_, error)| error.as_ref()).collect();
            let known = wanted.contains(id) || id.starts_with('D');
            if let Some(error) = faults.first() {
                tally.fail(&format!("{id}: {error}"));
            } else if !known || self.deferred.contains_key(id) {
                let reason =
                    if known { "is implemented, so remove it from the deferred ids" } else { "unknown id" };
                tally.fail(&format!("{id}: {reason}"));
            } else {
                let how: BTreeSet<&str> = checks.iter().map(|(how, _)| *how).collect();
                println!("ok    {id:<8}{}", how.into_iter().collect::<Vec<_>>().join(", "));
                tally.passed += 1;
            }
        }
        for (id, reason) in &self.deferred {
            println!("defer {id:<8}{reason}");
        }
        let covered = |id: &&String| self.checks.contains_key(*id) || self.deferred.contains_key(*id);
        let missing: Vec<&str> = wanted.iter().filter(|id| !covered(id)).map(String::as_str).collect();
        if !missing.is_empty() && !self.is_partial {
            tally.fail(&format!("no check for {}", missing.join(" ")));
        }
        let n_left = self.deferred.len();
        println!(
            "{} of {} ids are checked, {n_left} are left for later",
            wanted.len() - missing.len() - n_left,
            wanted.len()
        );
    }
}

fn expected_ids() -> BTreeSet<String> {
    let ids = ID_RANGES.iter().flat_map(|(prefix, width, last)| {
        (1..=*last).map(move |number| format!("{prefix}-{number:0width$}", width = *width))
    });
    ids.collect()
}

/// Runs the rows and the printed requests against one server.
fn run_shell_checks(
    workspace: &Workspace,
    set: &CheckSet,
    fixture: &Fixture,
    log: &mut CheckLog,
) -> Result<(), RowsError> {
    let data = workspace.root.join("xtask/seeds");
    let mut all = Vec::new();
    for file in set.row_files {
        let (rows, left) = rows::read(&read_file(&data.join(file))?)
            .map_err(|reason| RowsError::Fail(format!("{file}: {reason}")))?;
        all.extend(rows);
        log.deferred.extend(left);
    }
    let requests = match set.documents_file {
        None => Vec::new(),
        Some(file) => documents::read(&read_file(&data.join(file))?)
            .map_err(|reason| RowsError::Fail(format!("{file}: {reason}")))?,
    };

    let program = fixture.program().map_err(RowsError::Fail)?.to_path_buf();
    for tool in TOOLS {
        install::ensure_program(tool, tool).map_err(RowsError::Skip)?;
    }
    let work = workspace.work_dir.join("seeds").join(set.name);
    install::recreate_dir(&work).map_err(RowsError::Fail)?;
    let (backend, mut variables) = start_backend(workspace, set, &work).map_err(RowsError::Fail)?;
    variables.extend(SECRET_VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let server_log = work.join("server.log");
    let served = match set.server_kind {
        ServerKind::Example => fixture.listen(&["--http", "127.0.0.1:0"], &server_log),
        ServerKind::Program { file, .. } => {
            let file = workspace.root.join(file).display().to_string();
            fixture.listen_with(&["serve", &file, "--listen", "127.0.0.1:0"], &variables, &server_log)
        }
    };
    let mut server = served.map_err(RowsError::Fail)?;
    let runner = ShellRunner::new(&data, &work, program, &server, variables).map_err(RowsError::Fail)?;
    for Row { id, command } in &all {
        let error = runner.run_row(command);
        log.record(id, "row", error);
    }
    for request in &requests {
        let error = runner.run_request(request);
        log.record(&request.id, "printed", error);
    }
    drop(backend);
    match server.is_running() {
        true => Ok(()),
        false => Err(RowsError::Fail("the server ended during the checks".to_owned())),
    }
}

/// The backend, if we started it, and the variables with its address.
type StartedBackend = (Option<Server>, Vec<(String, String)>);

/// Starts the backend of the program, if there is one.
fn start_backend(workspace: &Workspace, set: &CheckSet, work: &Path) -> Result<StartedBackend, String> {
    let ServerKind::Program { backend: Some(Backend { example, variable }), .. } = set.server_kind else {
        return Ok((None, Vec::new()));
    };
    if let Ok(known) = std::env::var(variable) {
        println!("{variable} is set: the checks of `{}` ask {known}", set.name);
        return Ok((None, vec![(variable.to_owned(), known)]));
    }
    let fixture = Fixture::build_example(example, workspace);
    let server = fixture.listen(&["--http", "127.0.0.1:0"], &work.join("backend.log"))?;
    let url = server.url.trim_end_matches('/').to_owned();
    Ok((Some(server), vec![(variable.to_owned(), url)]))
}

fn read_file(path: &Path) -> Result<String, RowsError> {
    std::fs::read_to_string(path)
        .map_err(|error| RowsError::Fail(format!("cannot read {}: {error}", path.display())))
}

/// Runs shell commands with the environment of the checks.
struct ShellRunner {
    helpers: PathBuf,
    work_dir: PathBuf,
    program: PathBuf,
    /// `http://127.0.0.1:PORT`
    url: String,
    port: String,
    variables: Vec<(String, String)>,
}

impl ShellRunner {
    fn new(
        data: &Path,
        work: &Path,
        program: PathBuf,
        server: &Server,
        variables: Vec<(String, String)>,
    ) -> Result<Self, String> {
        // The program reports the URL of its first server, with a path.
        let host = server.url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        let port = host.rsplit_once(':').map(|(_, port)| port.to_owned());
        Ok(Self {
            helpers: data.join("helpers.sh"),
            work_dir: work.to_path_buf(),
            program,
            url: format!("http://{host}"),
            port: port.ok_or_else(|| format!("{} names no port", server.url))?,
            variables,
        })
    }

    fn run_script(&self, script: &str) -> Result<ProcessOutput, String> {
        let mut command = Command::new("bash");
        command.current_dir(&self.work_dir).env("B", &self.url).env("PROGRAM", &self.program);
        command.env_remove("MCP_SERVER_NAME").envs(self.variables.iter().cloned());
        let script = format!("source '{}'\n{}", self.helpers.display(), self.replace_port(script));
        process::run_with_descendants(command.arg("-c").arg(script), ROW_TIMEOUT)
            .map_err(|error| format!("cannot run bash: {error}"))
    }

    /// Replaces the port of the documents by that of the server.
    fn replace_port(&self, script: &str) -> String {
        let mut script = script.to_owned();
        for host in ["localhost", "127.0.0.1"] {
            script = script.replace(&format!("{host}:8080"), &format!("{host}:{}", self.port));
        }
        script.replace("http://localhost/", &format!("http://localhost:{}/", self.port))
    }

    fn run_row(&self, command: &str) -> Option<String> {
        match self.run_script(command) {
            Ok(finished) if finished.is_success() => None,
            Ok(finished) => Some(format!(
                "{}\n     {command}\n     {}",
                finished.failure_summary(),
                truncate(&finished.stdout)
            )),
            Err(reason) => Some(reason),
        }
    }

    fn run_request(&self, request: &PrintedRequest) -> Option<String> {
        let finished = match self.run_script(&request.script()) {
            Ok(finished) => finished,
            Err(reason) => return Some(reason),
        };
        // Only the output counts: `curl` succeeds with an error response too.
        let error = request.mismatch(&finished.stdout)?;
        Some(format!("{error}\n     {}\n     {}", request.script(), truncate(&finished.stdout)))
    }
}

fn truncate(output: &str) -> String {
    let output = output.trim();
    match output.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", &output[..end]),
        None => output.to_owned(),
    }
}

/// Runs the tests that are checks, and records which passed.
fn run_tests(workspace: &Workspace, log: &mut CheckLog) -> Result<(), String> {
    let mut command = rust::cargo(workspace);
    // The packages and features of all tests, so that nothing is built twice.
    let all = ["--workspace", "--all-features", "--no-fail-fast", "--test", "it"];
    if rust::has_subcommand(workspace, "nextest") {
        command.args(["nextest", "run"]).args(all).args(["--status-level", "all", "seeds::"]);
    } else {
        command.arg("test").args(all).arg("seeds::");
    }
    let finished = process::run(&mut command, TESTS_TIMEOUT, OutputMode::Quiet)
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let mut n_noted = 0;
    for (name, passed) in parse_outcomes(&finished.stdout).chain(parse_outcomes(&finished.stderr)) {
        n_noted += 1;
        let error = (!passed).then(|| format!("the test {name} fails"));
        match parse_id(name) {
            Some(id) => log.record(&id, "test", error),
            None => log.record(
                name,
                "test",
                error.or_else(|| Some("its name does not begin with an id".to_owned())),
            ),
        }
    }
    match (n_noted, finished.is_success()) {
        (0, _) => Err(format!("no test of the seeds ran: {}", finished.failure_summary())),
        // Nextest prints a failed test twice, so the counts may differ.
        _ => Ok(()),
    }
}

/// `PASS [   0.011s] (1/9) toolgate::it seeds::registry::s1_036_same` and
/// `test seeds::registry::s1_036_same ... ok`.
fn parse_outcomes(text: &str) -> impl Iterator<Item = (&str, bool)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.find(|word| word.starts_with("seeds::"))?;
        let first = line.split_whitespace().next()?;
        match (first, words.next_back()) {
            ("PASS" | "LEAK", None) => Some((name, true)),
            ("FAIL" | "TIMEOUT" | "ABORT" | "SIGNAL" | "SIGABRT" | "SIGSEGV", None) => Some((name, false)),
            ("test", Some(end)) => Some((name, end == "ok")),
            _ => None,
        }
    })
}

/// The id that a test's name begins with.
fn parse_id(test: &str) -> Option<String> {
    let name = test.rsplit("::").next()?;
    let (prefix, rest) = name.split_once('_')?;
    let (number, _) = rest.split_once('_')?;
    let is_id = matches!(prefix, "s0" | "s1" | "s2" | "s3" | "s4")
        && number.bytes().all(|byte| byte.is_ascii_digit());
    is_id.then(|| format!("{}-{number}", prefix.to_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_from_both_runners() {
        let nextest = "        PASS [   0.011s] (1/9) toolgate::it seeds::registry::s1_036_same\n\
                       \x20       FAIL [   0.011s] (2/9) toolgate::it seeds::cors::s1_070_any\n";
        let found: Vec<_> = parse_outcomes(nextest).collect();
        assert_eq!(found, [("seeds::registry::s1_036_same", true), ("seeds::cors::s1_070_any", false)]);
        let libtest = "test seeds::a::s0_07_open ... ok\ntest seeds::a::s0_08_one ... FAILED\n\
                       test seeds::a::s0_09_x ... ignored\n";
        let found: Vec<_> = parse_outcomes(libtest).map(|(_, passed)| passed).collect();
        assert_eq!(found, [true, false, false]);
    }

    #[test]
    fn the_id_is_the_beginning_of_a_test_name() {
        assert_eq!(parse_id("seeds::a::s1_036_same_name").as_deref(), Some("S1-036"));
        assert_eq!(parse_id("seeds::a::s0_07_open").as_deref(), Some("S0-07"));
        assert_eq!(parse_id("seeds::a::open"), None);
        assert_eq!(parse_id("seeds::a::s1_one_two"), None);
    }

    #[test]
    fn all_ids_are_expected() {
        let wanted = expected_ids();
        assert_eq!(wanted.len(), 48 + 254 + 75 + 46 + 43);
        assert!(wanted.contains("S0-01") && wanted.contains("S0-48"));
        assert!(wanted.contains("S1-001") && wanted.contains("S1-254"));
        assert!(wanted.contains("S2-01") && wanted.contains("S2-75"));
        assert!(wanted.contains("S3-01") && wanted.contains("S3-46"));
        assert!(wanted.contains("S4-01") && wanted.contains("S4-43"));
    }

    #[test]
    fn an_id_without_a_check_is_a_failure() {
        let mut log = CheckLog::default();
        for id in expected_ids() {
            log.record(&id, "row", None);
        }
        let mut tally = Tally::default();
        log.report(&mut tally);
        assert_eq!((tally.passed, tally.failed), (expected_ids().len(), 0));

        let mut log = CheckLog::default();
        log.record("S0-01", "row", None);
        log.record("S0-01", "test", Some("wrong".to_owned()));
        log.deferred.insert("S0-02".to_owned(), "later".to_owned());
        let mut tally = Tally::default();
        log.report(&mut tally);
        assert_eq!((tally.passed, tally.failed), (0, 2), "one fails, and the rest is missing");
    }
}
