//! The results by measure, contender and round. They are kept as JSON, so that the tables can be written again and single
//! measures repeated.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::contender::{Contender, LIMIT, MissingPeer, OURS, Role};
use super::statistics;

/// Figures by name, as the generator reports them.
pub(crate) type Figures = BTreeMap<String, f64>;

/// The result of one contender in one measure: the figures of each round, or why there are none.
#[derive(Default)]
pub(crate) struct MeasureResult {
    /// By the number of the run and the round, so that ratios only use figures of the same round.
    pub(crate) rounds: BTreeMap<u64, Figures>,
    pub(crate) failure: Option<String>,
}

/// A contender, for the report.
pub(crate) struct ContenderInfo {
    pub(crate) name: String,
    pub(crate) is_peer: bool,
    pub(crate) about: String,
}

#[derive(Default)]
pub(crate) struct Results {
    /// The environment of each run, as lines of the report.
    pub(crate) runs: Vec<Vec<String>>,
    pub(crate) contenders: Vec<ContenderInfo>,
    /// Peers that could not be built or installed, and why.
    pub(crate) missing: BTreeMap<String, String>,
    by_measure: BTreeMap<String, BTreeMap<String, MeasureResult>>,
}

impl Results {
    /// Adds the contenders of this run to those of earlier runs.
    pub(crate) fn add_contenders(&mut self, contenders: &[Contender], missing: &[MissingPeer]) {
        for contender in contenders {
            self.missing.remove(contender.name);
            let is_peer = contender.role == Role::Peer;
            let info =
                ContenderInfo { name: contender.name.to_owned(), is_peer, about: contender.about.clone() };
            match self.contenders.iter_mut().find(|known| known.name == info.name) {
                Some(known) => *known = info,
                None => self.contenders.push(info),
            }
        }
        for MissingPeer { name, reason } in missing {
            // A peer that was built with the other profile stays.
            let was_built = contenders.iter().any(|contender| contender.name == *name);
            let is_variant_of =
                |info: &ContenderInfo| info.name == *name || info.name.starts_with(&format!("{name},"));
            self.contenders.retain(|info| was_built || !is_variant_of(info));
            self.missing.insert((*name).to_owned(), reason.clone());
        }
    }

    /// Removes earlier results of this contender in this measure.
    pub(crate) fn clear(&mut self, measure: &str, contender: &str) {
        self.entry(measure, contender).rounds.clear();
        self.entry(measure, contender).failure = None;
    }

    pub(crate) fn record(
        &mut self,
        measure: &str,
        contender: &str,
        round: u64,
        found: Result<Figures, String>,
    ) {
        let outcome = self.entry(measure, contender);
        match found {
            Ok(figures) => drop(outcome.rounds.insert(round, figures)),
            Err(reason) => outcome.failure = Some(reason),
        }
    }

    /// Whether all rounds failed.
    pub(crate) fn has_failed(&self, measure: &str, contender: &str) -> bool {
        self.get(measure, contender)
            .is_some_and(|outcome| outcome.rounds.is_empty() && outcome.failure.is_some())
    }

    fn entry(&mut self, measure: &str, contender: &str) -> &mut MeasureResult {
        self.by_measure.entry(measure.to_owned()).or_default().entry(contender.to_owned()).or_default()
    }

    pub(crate) fn get(&self, measure: &str, contender: &str) -> Option<&MeasureResult> {
        self.by_measure.get(measure)?.get(contender)
    }

    /// The names of all measures, sorted.
    pub(crate) fn measures(&self) -> impl Iterator<Item = &str> {
        self.by_measure.keys().map(String::as_str)
    }

    /// The median of one figure over the rounds.
    pub(crate) fn median(&self, measure: &str, contender: &str, figure: &str) -> Option<f64> {
        let rounds = self.get(measure, contender)?.rounds.values();
        statistics::median(rounds.filter_map(|round| round.get(figure).copied()))
    }

    /// The largest of one figure over the rounds.
    pub(crate) fn max(&self, measure: &str, contender: &str, figure: &str) -> Option<f64> {
        let rounds = self.get(measure, contender)?.rounds.values();
        rounds.filter_map(|round| round.get(figure).copied()).max_by(f64::total_cmp)
    }

    /// The median of the ratios of two contenders over their common rounds; without a common round, the ratio of the
    /// medians.
    pub(crate) fn ratio(&self, measure: &str, upper: &str, lower: &str, figure: &str) -> Option<f64> {
        let (above, below) = (self.get(measure, upper)?, self.get(measure, lower)?);
        let common = above.rounds.iter().filter_map(|(round, figures)| {
            Some(figures.get(figure)? / below.rounds.get(round)?.get(figure)?)
        });
        let medians = || Some(self.median(measure, upper, figure)? / self.median(measure, lower, figure)?);
        statistics::median(common).or_else(medians).filter(|ratio| ratio.is_finite())
    }

    /// Our figure divided by that of bare hyper.
    pub(crate) fn ratio_to_limit(&self, measure: &str, figure: &str) -> Option<f64> {
        self.ratio(measure, OURS, LIMIT, figure)
    }

    /// The peer with the smallest figure, of those with a round in common with ours: figures of different times are not
    /// comparable.
    pub(crate) fn best_peer(&self, measure: &str, figure: &str) -> Option<(&str, f64)> {
        let peers = self
            .contenders
            .iter()
            .filter(|info| info.is_peer && self.shares_round_with_ours(measure, &info.name));
        let known = peers.filter_map(|info| Some((&*info.name, self.median(measure, &info.name, figure)?)));
        known.min_by(|left, right| left.1.total_cmp(&right.1))
    }

    fn shares_round_with_ours(&self, measure: &str, contender: &str) -> bool {
        let rounds = |name: &str| self.get(measure, name).map(|outcome| &outcome.rounds);
        rounds(contender)
            .zip(rounds(OURS))
            .is_some_and(|(theirs, ours)| theirs.keys().any(|round| ours.contains_key(round)))
    }

    /// Loads the results of earlier runs; empty if none are saved.
    pub(crate) fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        serde_json::from_str(&text).ok().and_then(|value| Self::from_json(&value)).unwrap_or_default()
    }

    pub(crate) fn save(&self, path: &Path) -> Result<(), String> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)
                .map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        }
        let text = format!("{:#}\n", self.to_json());
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    fn to_json(&self) -> Value {
        let infos = self.contenders.iter().map(|info| json!([info.name, info.is_peer, info.about]));
        let outcome = |outcome: &MeasureResult| {
            let rounds = outcome.rounds.iter().map(|(round, figures)| (round.to_string(), json!(figures)));
            json!({"rounds": rounds.collect::<Map<_, _>>(), "why": outcome.failure})
        };
        let measure = |of: &BTreeMap<String, MeasureResult>| {
            Value::Object(of.iter().map(|(name, of)| (name.clone(), outcome(of))).collect())
        };
        let measures = self.by_measure.iter().map(|(name, of)| (name.clone(), measure(of)));
        json!({
            "runs": self.runs,
            "cards": infos.collect::<Vec<_>>(),
            "missing": self.missing,
            "measures": measures.collect::<Map<_, _>>(),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let lines = |run: &Value| run.as_array()?.iter().map(text).collect::<Option<Vec<_>>>();
        let info = |info: &Value| {
            Some(ContenderInfo { name: text(&info[0])?, is_peer: info[1].as_bool()?, about: text(&info[2])? })
        };
        let figures = |of: &Value| -> Option<Figures> {
            of.as_object()?.iter().map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect()
        };
        let outcome = |of: &Value| {
            let rounds = of["rounds"].as_object()?.iter();
            let rounds = rounds.map(|(round, of)| Some((round.parse().ok()?, figures(of)?)));
            Some(MeasureResult { rounds: rounds.collect::<Option<_>>()?, failure: text(&of["why"]) })
        };
        let measure = |of: &Value| -> Option<BTreeMap<String, MeasureResult>> {
            of.as_object()?.iter().map(|(name, of)| Some((name.clone(), outcome(of)?))).collect()
        };
        let missing = value["missing"].as_object()?.iter();
        Some(Self {
            runs: value["runs"].as_array()?.iter().map(lines).collect::<Option<_>>()?,
            contenders: value["cards"].as_array()?.iter().map(info).collect::<Option<_>>()?,
            missing: missing
                .map(|(name, reason)| Some((name.clone(), text(reason)?)))
                .collect::<Option<_>>()?,
            by_measure: {
                let measures = value["measures"].as_object()?.iter();
                measures.map(|(name, of)| Some((name.clone(), measure(of)?))).collect::<Option<_>>()?
            },
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::profile::Profile;

    /// Results with one figure for each contender and round of one measure.
    pub(crate) fn results(measure: &str, figure: &str, found: &[(&str, &[f64])]) -> Results {
        let mut results = Results::default();
        for (name, values) in found {
            let is_peer = ![LIMIT, OURS].contains(name);
            results.contenders.push(ContenderInfo {
                name: (*name).to_owned(),
                is_peer,
                about: String::new(),
            });
            for (round, value) in (0..).zip(*values) {
                results.record(measure, name, round, Ok(Figures::from([(figure.to_owned(), *value)])));
            }
        }
        results
    }

    #[test]
    fn ratios_are_taken_in_each_round() {
        // The machine was three times as slow in the second round: the ratio of each round is 2, that of the medians is not.
        let results =
            results("a", "cpu_us", &[(LIMIT, &[1.0, 3.0, 1.5]), (OURS, &[2.0, 6.0, 3.0]), ("rmcp", &[8.0])]);
        assert_eq!(results.ratio_to_limit("a", "cpu_us"), Some(2.0));
        assert_eq!(results.median("a", OURS, "cpu_us"), Some(3.0));
        assert_eq!(results.max("a", OURS, "cpu_us"), Some(6.0));
        assert_eq!(results.ratio("a", "rmcp", OURS, "cpu_us"), Some(4.0));
        assert_eq!(results.best_peer("a", "cpu_us"), Some(("rmcp", 8.0)));
        assert_eq!(results.ratio_to_limit("b", "cpu_us"), None);
        assert_eq!(results.ratio_to_limit("a", "p99_us"), None);
    }

    #[test]
    fn a_peer_that_builds_with_one_profile_only_stays() {
        let rmcp = || Contender {
            name: "rmcp",
            role: Role::Peer,
            profile: Profile::Dist,
            about: String::new(),
            command: Vec::new(),
            n_bytes: None,
            is_variant: false,
        };
        let missing = || MissingPeer { name: "rmcp", reason: "it does not build".to_owned() };
        let mut results = Results::default();
        results.add_contenders(&[rmcp()], &[missing()]);
        assert!(results.contenders.len() == 1 && results.missing.contains_key("rmcp"));
        results.add_contenders(&[], &[missing()]);
        assert!(results.contenders.is_empty() && results.missing.contains_key("rmcp"));
        results.add_contenders(&[rmcp()], &[]);
        assert!(results.contenders.len() == 1 && results.missing.is_empty());
    }

    #[test]
    fn rounds_of_different_runs_are_compared_by_their_medians() {
        let mut results = results("a", "cpu_us", &[(OURS, &[2.0])]);
        results.record("a", "rmcp", 100, Ok(Figures::from([("cpu_us".to_owned(), 8.0)])));
        assert_eq!(results.ratio("a", "rmcp", OURS, "cpu_us"), Some(4.0));
        results.contenders.push(ContenderInfo {
            name: "rmcp".to_owned(),
            is_peer: true,
            about: String::new(),
        });
        assert_eq!(results.best_peer("a", "cpu_us"), None, "no common round");
        results.record("a", "rmcp", 0, Ok(Figures::from([("cpu_us".to_owned(), 6.0)])));
        assert!(results.best_peer("a", "cpu_us").is_some());
    }

    #[test]
    fn saved_results_are_read_back() {
        let mut results = results("a", "cpu_us", &[(LIMIT, &[1.0, 2.5]), (OURS, &[2.0])]);
        results.record("a", "rmcp", 0, Err("no sessions".to_owned()));
        results.runs.push(vec!["date: today".to_owned()]);
        results.missing.insert("node".to_owned(), "npm is missing".to_owned());
        let again = Results::from_json(&results.to_json()).unwrap();
        assert_eq!(again.to_json(), results.to_json());
        assert!(again.has_failed("a", "rmcp") && !again.has_failed("a", OURS));
        assert_eq!(again.measures().collect::<Vec<_>>(), ["a"]);
    }
}
