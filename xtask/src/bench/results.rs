//! What was found, by measure, contender and round; kept as JSON, so that a table can be written again and a part
//! measured anew.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::contender::{Contender, LIMIT, MissingPeer, OURS, Role};
use super::statistics;

/// Names and numbers, as the generator says them.
pub(crate) type Figures = BTreeMap<String, f64>;

/// What one contender did in one measure: figures of each round, or why there are none.
#[derive(Default)]
pub(crate) struct MeasureResult {
    /// By the number of the run and of its round, so that only what was measured together is divided.
    pub(crate) rounds: BTreeMap<u64, Figures>,
    pub(crate) failure: Option<String>,
}

/// Who was measured.
pub(crate) struct ContenderInfo {
    pub(crate) name: String,
    pub(crate) is_peer: bool,
    pub(crate) about: String,
}

#[derive(Default)]
pub(crate) struct Results {
    /// Where, when and how: lines for each run that is in here.
    pub(crate) runs: Vec<Vec<String>>,
    pub(crate) contenders: Vec<ContenderInfo>,
    /// Peers that could not be had, and why.
    pub(crate) missing: BTreeMap<String, String>,
    by_measure: BTreeMap<String, BTreeMap<String, MeasureResult>>,
}

impl Results {
    /// Remembers who takes part. Those of earlier runs stay.
    pub(crate) fn add_contenders(&mut self, contenders: &[Contender], missing: &[MissingPeer]) {
        for contender in contenders {
            self.missing.remove(contender.name);
            let is_peer = contender.role == Role::Peer;
            let card =
                ContenderInfo { name: contender.name.to_owned(), is_peer, about: contender.about.clone() };
            match self.contenders.iter_mut().find(|known| known.name == card.name) {
                Some(known) => *known = card,
                None => self.contenders.push(card),
            }
        }
        for MissingPeer { name, reason: why } in missing {
            // Who could be had with the other profile takes part all the same.
            let takes_part = contenders.iter().any(|contender| contender.name == *name);
            let is_of =
                |card: &ContenderInfo| card.name == *name || card.name.starts_with(&format!("{name},"));
            self.contenders.retain(|card| takes_part || !is_of(card));
            self.missing.insert((*name).to_owned(), why.clone());
        }
    }

    /// Forgets what this contender did in this measure before.
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
            Err(why) => outcome.failure = Some(why),
        }
    }

    /// Whether it was tried, and no round has a figure.
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

    /// The names of all measures, in no order that a reader cares for.
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

    /// One figure of one contender divided by that of another: in each round they have in common, then the median.
    /// Without such a round, the medians are divided.
    pub(crate) fn ratio(&self, measure: &str, upper: &str, lower: &str, figure: &str) -> Option<f64> {
        let (above, below) = (self.get(measure, upper)?, self.get(measure, lower)?);
        let common = above.rounds.iter().filter_map(|(round, figures)| {
            Some(figures.get(figure)? / below.rounds.get(round)?.get(figure)?)
        });
        let medians = || Some(self.median(measure, upper, figure)? / self.median(measure, lower, figure)?);
        statistics::median(common).or_else(medians).filter(|ratio| ratio.is_finite())
    }

    /// Ours divided by the limit.
    pub(crate) fn ratio_to_limit(&self, measure: &str, figure: &str) -> Option<f64> {
        self.ratio(measure, OURS, LIMIT, figure)
    }

    /// The peer with the smallest figure, of those that were measured beside us: another hour is another machine.
    pub(crate) fn best_peer(&self, measure: &str, figure: &str) -> Option<(&str, f64)> {
        let peers = self
            .contenders
            .iter()
            .filter(|card| card.is_peer && self.shares_round_with_ours(measure, &card.name));
        let known = peers.filter_map(|card| Some((&*card.name, self.median(measure, &card.name, figure)?)));
        known.min_by(|left, right| left.1.total_cmp(&right.1))
    }

    fn shares_round_with_ours(&self, measure: &str, contender: &str) -> bool {
        let rounds = |name: &str| self.get(measure, name).map(|outcome| &outcome.rounds);
        rounds(contender)
            .zip(rounds(OURS))
            .is_some_and(|(theirs, ours)| theirs.keys().any(|round| ours.contains_key(round)))
    }

    /// What an earlier run left, or nothing.
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
        let cards = self.contenders.iter().map(|card| json!([card.name, card.is_peer, card.about]));
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
            "cards": cards.collect::<Vec<_>>(),
            "missing": self.missing,
            "measures": measures.collect::<Map<_, _>>(),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let words = |value: &Value| value.as_str().map(str::to_owned);
        let lines = |run: &Value| run.as_array()?.iter().map(words).collect::<Option<Vec<_>>>();
        let card = |card: &Value| {
            Some(ContenderInfo {
                name: words(&card[0])?,
                is_peer: card[1].as_bool()?,
                about: words(&card[2])?,
            })
        };
        let figures = |of: &Value| -> Option<Figures> {
            of.as_object()?.iter().map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect()
        };
        let outcome = |of: &Value| {
            let rounds = of["rounds"].as_object()?.iter();
            let rounds = rounds.map(|(round, of)| Some((round.parse().ok()?, figures(of)?)));
            Some(MeasureResult { rounds: rounds.collect::<Option<_>>()?, failure: words(&of["why"]) })
        };
        let measure = |of: &Value| -> Option<BTreeMap<String, MeasureResult>> {
            of.as_object()?.iter().map(|(name, of)| Some((name.clone(), outcome(of)?))).collect()
        };
        let missing = value["missing"].as_object()?.iter();
        Some(Self {
            runs: value["runs"].as_array()?.iter().map(lines).collect::<Option<_>>()?,
            contenders: value["cards"].as_array()?.iter().map(card).collect::<Option<_>>()?,
            missing: missing.map(|(name, why)| Some((name.clone(), words(why)?))).collect::<Option<_>>()?,
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

    /// A book with one figure for each contender and round of one measure.
    pub(crate) fn results(measure: &str, figure: &str, found: &[(&str, &[f64])]) -> Results {
        let mut book = Results::default();
        for (name, values) in found {
            let is_peer = ![LIMIT, OURS].contains(name);
            book.contenders.push(ContenderInfo { name: (*name).to_owned(), is_peer, about: String::new() });
            for (round, value) in (0..).zip(*values) {
                book.record(measure, name, round, Ok(Figures::from([(figure.to_owned(), *value)])));
            }
        }
        book
    }

    #[test]
    fn ratios_are_taken_in_each_round() {
        // The machine was three times as slow in the second round: each round says 2, the medians would not.
        let book =
            results("a", "cpu_us", &[(LIMIT, &[1.0, 3.0, 1.5]), (OURS, &[2.0, 6.0, 3.0]), ("rmcp", &[8.0])]);
        assert_eq!(book.ratio_to_limit("a", "cpu_us"), Some(2.0));
        assert_eq!(book.median("a", OURS, "cpu_us"), Some(3.0));
        assert_eq!(book.max("a", OURS, "cpu_us"), Some(6.0));
        assert_eq!(book.ratio("a", "rmcp", OURS, "cpu_us"), Some(4.0));
        assert_eq!(book.best_peer("a", "cpu_us"), Some(("rmcp", 8.0)));
        assert_eq!(book.ratio_to_limit("b", "cpu_us"), None);
        assert_eq!(book.ratio_to_limit("a", "p99_us"), None);
    }

    #[test]
    fn who_can_be_had_with_one_profile_only_stays() {
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
        let mut book = Results::default();
        book.add_contenders(&[rmcp()], &[missing()]);
        assert!(book.contenders.len() == 1 && book.missing.contains_key("rmcp"));
        book.add_contenders(&[], &[missing()]);
        assert!(book.contenders.is_empty() && book.missing.contains_key("rmcp"));
        book.add_contenders(&[rmcp()], &[]);
        assert!(book.contenders.len() == 1 && book.missing.is_empty());
    }

    #[test]
    fn rounds_of_different_runs_are_compared_by_their_medians() {
        let mut book = results("a", "cpu_us", &[(OURS, &[2.0])]);
        book.record("a", "rmcp", 100, Ok(Figures::from([("cpu_us".to_owned(), 8.0)])));
        assert_eq!(book.ratio("a", "rmcp", OURS, "cpu_us"), Some(4.0));
        book.contenders.push(ContenderInfo { name: "rmcp".to_owned(), is_peer: true, about: String::new() });
        assert_eq!(book.best_peer("a", "cpu_us"), None, "it was not measured beside us");
        book.record("a", "rmcp", 0, Ok(Figures::from([("cpu_us".to_owned(), 6.0)])));
        assert!(book.best_peer("a", "cpu_us").is_some());
    }

    #[test]
    fn what_is_kept_reads_back() {
        let mut book = results("a", "cpu_us", &[(LIMIT, &[1.0, 2.5]), (OURS, &[2.0])]);
        book.record("a", "rmcp", 0, Err("no sessions".to_owned()));
        book.runs.push(vec!["date: today".to_owned()]);
        book.missing.insert("node".to_owned(), "npm is missing".to_owned());
        let again = Results::from_json(&book.to_json()).unwrap();
        assert_eq!(again.to_json(), book.to_json());
        assert!(again.has_failed("a", "rmcp") && !again.has_failed("a", OURS));
        assert_eq!(again.measures().collect::<Vec<_>>(), ["a"]);
    }
}
