//! Reads the output of the suite: `DIR/server-<scenario>-<time>/checks.json`, one directory per scenario.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Checks without which a scenario proves nothing, so they must pass; the suite may report them as INFO.
const REQUIRED_CHECKS: &[(&str, &str)] = &[("server-sse-polling", "server-sse-disconnect-resume")];

/// A check of every scenario. It only proves that the messages were well-formed.
const COMMON_CHECK: &str = "wire-schema-valid";

/// One scenario of one run.
pub(super) struct Scenario {
    pub(super) name: String,
    checks: Vec<Check>,
}

struct Check {
    id: String,
    status: String,
    message: String,
}

/// All scenarios below `dir`, sorted by name.
pub(super) fn read(dir: &Path) -> Result<Vec<Scenario>, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("cannot read {}: {error}", dir.display()))?;
    let mut scenarios = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = scenario_name(&name.to_string_lossy()).map(str::to_owned);
        let name = name.ok_or_else(|| format!("{} is not named after a scenario", entry.path().display()))?;
        let path = entry.path().join("checks.json");
        let text =
            fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        scenarios.push(Scenario::parse(name, &text)?);
    }
    scenarios.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scenarios)
}

/// `server-ping-2026-01-31T10-20-30-400Z` is a run of `ping`.
fn scenario_name(dir: &str) -> Option<&str> {
    const TIMESTAMP_LEN: usize = "-2026-01-31T10-20-30-400Z".len();
    let name = dir.strip_prefix("server-")?;
    name.get(..name.len().checked_sub(TIMESTAMP_LEN)?)
}

impl Scenario {
    pub(super) fn parse(name: String, text: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("{name}: checks.json: {error}"))?;
        let list = value.as_array().ok_or_else(|| format!("{name}: checks.json is not a list"))?;
        let word = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
        let checks = list.iter().map(|check| Check {
            id: word(check, "id"),
            status: word(check, "status"),
            message: word(check, "errorMessage"),
        });
        let checks = checks.collect();
        Ok(Self { name, checks })
    }

    /// Why the scenario fails; `None` if it passes.
    pub(super) fn failure(&self) -> Option<String> {
        let bad = self.checks.iter().filter(|check| matches!(&*check.status, "FAILURE" | "WARNING"));
        let bad: Vec<String> =
            bad.map(|check| format!("{} {}: {}", check.status, check.id, check.message)).collect();
        if !bad.is_empty() {
            return Some(bad.join("; "));
        }
        if !self.checks.iter().any(|check| check.status == "SUCCESS" && check.id != COMMON_CHECK) {
            return Some("it proves nothing: no SUCCESS".to_owned());
        }
        let proofs = REQUIRED_CHECKS.iter().filter(|(scenario, _)| *scenario == self.name);
        let mut missing = proofs.filter(|(_, id)| !self.has_success(id));
        missing.next().map(|(_, id)| format!("it proves nothing: {id} is not a SUCCESS"))
    }

    fn has_success(&self, id: &str) -> bool {
        self.checks.iter().any(|check| check.id == id && check.status == "SUCCESS")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, checks: &[(&str, &str)], passes: bool) {
        let list: Vec<Value> =
            checks.iter().map(|(id, status)| serde_json::json!({"id": id, "status": status})).collect();
        let scenario = Scenario::parse(name.to_owned(), &Value::from(list).to_string()).unwrap();
        assert_eq!(scenario.failure().is_none(), passes, "{checks:?}: {:?}", scenario.failure());
    }

    #[test]
    fn only_a_success_of_its_own_passes() {
        check("ping", &[("ping", "SUCCESS"), ("wire-schema-valid", "SUCCESS")], true);
        check("ping", &[("ping", "SUCCESS"), ("other", "SKIPPED")], true);
        check("ping", &[("ping", "SUCCESS"), ("other", "WARNING")], false);
        check("ping", &[("ping", "SUCCESS"), ("other", "FAILURE")], false);
        check("ping", &[("ping", "SKIPPED"), ("wire-schema-valid", "SUCCESS")], false);
        check("ping", &[], false);
    }

    #[test]
    fn polling_without_resumption_proves_nothing() {
        let resumed = [("server-sse-retry-field", "SUCCESS"), ("server-sse-disconnect-resume", "SUCCESS")];
        let shrugged = [("server-sse-retry-field", "SUCCESS"), ("server-sse-disconnect-resume", "INFO")];
        check("server-sse-polling", &resumed, true);
        check("server-sse-polling", &shrugged, false);
    }

    #[test]
    fn name_is_cut_from_the_directory() {
        let name = scenario_name("server-server-sse-polling-2026-11-15T09-54-47-272Z");
        assert_eq!(name, Some("server-sse-polling"));
        assert_eq!(scenario_name("server-x"), None);
        assert_eq!(scenario_name("home"), None);
    }
}
