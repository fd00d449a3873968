//! Health reports: a score, and issues with a suggested action.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The severity of an issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Info,
    Warning,
    Critical,
}

impl Severity {
    fn penalty(self) -> u32 {
        match self {
            Severity::Info => 5,
            Severity::Warning => 25,
            Severity::Critical => 50,
        }
    }
}

/// A detected problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Issue {
    pub(super) severity: Severity,
    pub(super) code: String,
    pub(super) message: String,
    pub(super) suggested_action: String,
    /// The affected entity.
    pub(super) entity: String,
    /// The metrics that caused it.
    pub(super) entity_metrics: Value,
}

impl Issue {
    pub(super) fn new(
        severity: Severity,
        code: &str,
        entity: &str,
        message: String,
        action: &str,
        metrics: Value,
    ) -> Issue {
        Issue {
            severity,
            code: code.to_owned(),
            message,
            suggested_action: action.to_owned(),
            entity: entity.to_owned(),
            entity_metrics: metrics,
        }
    }
}

/// The health of one subsystem.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HealthReport {
    pub(super) issues: Vec<Issue>,
    /// How many entities were checked.
    pub(super) checked: usize,
}

impl HealthReport {
    pub(super) fn new(issues: Vec<Issue>, checked: usize) -> HealthReport {
        HealthReport { issues, checked }
    }

    /// 100 minus a penalty for each issue, at least 0.
    pub(super) fn score(&self) -> u32 {
        self.issues.iter().fold(100_u32, |score, issue| score.saturating_sub(issue.severity.penalty()))
    }

    /// The status of the worst issue; `info` does not affect it.
    pub(super) fn status(&self) -> &'static str {
        match self.issues.iter().map(|issue| issue.severity).max() {
            Some(Severity::Critical) => "critical",
            Some(Severity::Warning) => "warning",
            _ => "healthy",
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "status": self.status(),
            "score": self.score(),
            "issues": self.issues,
            "scoreBreakdown": self.breakdown(),
            "checked": self.checked,
        })
    }

    fn breakdown(&self) -> Value {
        let count = |severity| self.issues.iter().filter(|issue| issue.severity == severity).count();
        let part = |severity: Severity| {
            let count = count(severity);
            json!({ "count": count, "penaltyEach": severity.penalty(), "penalty": count as u64 * u64::from(severity.penalty()) })
        };
        json!({
            "base": 100,
            "info": part(Severity::Info),
            "warning": part(Severity::Warning),
            "critical": part(Severity::Critical),
            "score": self.score(),
        })
    }
}

/// Combines the reports. The score is that of the weakest subsystem.
pub(super) fn overall_health(parts: &[(&str, HealthReport)]) -> Value {
    let weakest = parts.iter().min_by_key(|(_, report)| report.score());
    let issues = parts.iter().flat_map(|(name, report)| {
        report
            .issues
            .iter()
            .map(move |issue| Issue { code: format!("{name}:{}", issue.code), ..issue.clone() })
    });
    let all = HealthReport::new(issues.collect(), parts.iter().map(|(_, report)| report.checked).sum());
    let subsystems: Map<String, Value> = parts
        .iter()
        .map(|(name, report)| {
            let summary =
                json!({ "status": report.status(), "score": report.score(), "issues": report.issues.len() });
            ((*name).to_owned(), summary)
        })
        .collect();
    let scores: Map<String, Value> =
        parts.iter().map(|(name, report)| ((*name).to_owned(), report.score().into())).collect();
    let score = weakest.map_or(100, |(_, report)| report.score());
    json!({
        "status": all.status(),
        "score": score,
        "weakest": weakest.map(|(name, _)| name),
        "issues": all.issues,
        "scoreBreakdown": { "rule": "the score is that of the weakest subsystem", "subsystems": scores, "score": score },
        "subsystems": subsystems,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_issue(severity: Severity, code: &str) -> Issue {
        Issue::new(severity, code, "x", "it is so".into(), "do something", json!({ "n": 1 }))
    }

    #[test]
    fn scores_lose_a_penalty_for_each_issue_and_stop_at_zero() {
        use Severity::{Critical, Info, Warning};
        let rows: [(&[Severity], u32, &str); 6] = [
            (&[], 100, "healthy"),
            (&[Info], 95, "healthy"),
            (&[Info, Warning], 70, "warning"),
            (&[Warning, Warning], 50, "warning"),
            (&[Critical, Info], 45, "critical"),
            (&[Critical, Critical, Critical], 0, "critical"),
        ];
        for (severities, score, status) in rows {
            let report =
                HealthReport::new(severities.iter().map(|severity| test_issue(*severity, "X")).collect(), 1);
            assert_eq!((report.score(), report.status()), (score, status), "{severities:?}");
            assert_eq!(report.to_json()["scoreBreakdown"]["score"], score);
        }
    }

    #[test]
    fn an_issue_can_be_read_back() {
        let issue = test_issue(Severity::Warning, "CACHE_DISABLED");
        let written = serde_json::to_value(&issue).unwrap();
        for key in ["severity", "code", "message", "suggestedAction", "entity", "entityMetrics"] {
            assert!(written.get(key).is_some(), "{key}");
        }
        assert_eq!(written["severity"], "warning");
        assert_eq!(serde_json::from_value::<Issue>(written).unwrap(), issue);
    }

    #[test]
    fn overall_score_is_that_of_the_weakest_subsystem() {
        let parts = [
            ("cache", HealthReport::new(vec![test_issue(Severity::Warning, "CACHE_DISABLED")], 2)),
            (
                "executor",
                HealthReport::new(
                    vec![
                        test_issue(Severity::Critical, "EXECUTOR_UNHEALTHY"),
                        test_issue(Severity::Info, "Y"),
                    ],
                    1,
                ),
            ),
            ("watcher", HealthReport::default()),
        ];
        let whole = overall_health(&parts);
        assert_eq!((&whole["score"], &whole["status"]), (&json!(45), &json!("critical")));
        assert_eq!(whole["weakest"], "executor");
        assert_eq!(whole["subsystems"]["cache"]["score"], 75);
        let codes: Vec<&str> =
            whole["issues"].as_array().unwrap().iter().map(|issue| issue["code"].as_str().unwrap()).collect();
        assert_eq!(codes, ["cache:CACHE_DISABLED", "executor:EXECUTOR_UNHEALTHY", "executor:Y"]);
    }
}
