//! From a URI to values.
//!
//! A template is a row of [`Step`]s. Going backward through the URI, each step marks the places from
//! which it and all after it can match to the end. Going forward, each variable then takes the fewest
//! characters after which the rest is known to match. Both passes see every character once per step.

use super::parse::is_triplet;
use super::{Expression, MAX_URI, Modifier, Operator, Part};

/// One thing to find in a URI.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Text(String),
    Item(Item),
}

/// A variable, or all those of a query.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// What stands before the first value, up to the equals sign of a named one.
    lead: String,
    /// What stands before a further value, if there may be one.
    again: Option<String>,
    /// Whether an equals sign and the value may be missing after the lead. Other values have at least
    /// one character.
    is_named: bool,
    is_optional: bool,
    class: Class,
    meaning: Meaning,
}

#[derive(Clone, Debug)]
enum Meaning {
    Variable {
        name: String,
        modifier: Modifier,
    },
    /// The variables of a query, and whether each is a list.
    Query(Vec<(String, bool)>),
}

/// Which characters a value may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Any,
    /// Up to a fragment.
    Query,
    /// One path segment.
    Segment,
    /// One path segment, up to this separator.
    Until(u8),
}

impl Class {
    fn has(self, b: u8) -> bool {
        let in_segment = !matches!(b, b'/' | b'?' | b'#');
        match self {
            Self::Any => true,
            Self::Query => b != b'#',
            Self::Segment => in_segment,
            Self::Until(separator) => in_segment && b != separator,
        }
    }

    /// Whether a decoded value may hold a slash.
    fn may_hold_slash(self) -> bool {
        matches!(self, Self::Any | Self::Query)
    }
}

pub(super) fn steps(parts: &[Part]) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => steps.push(Step::Text(text.clone())),
            Part::Expression(expression) => push_steps(&mut steps, expression),
        }
    }
    steps
}

fn push_steps(steps: &mut Vec<Step>, expression: &Expression) {
    let operator = expression.operator;
    if matches!(operator, Operator::Query | Operator::Continuation) {
        push_query(steps, expression);
        return;
    }
    let is_plain = matches!(operator, Operator::Simple | Operator::Reserved);
    for (n, variable) in expression.variables.iter().enumerate() {
        let is_list = variable.modifier == Modifier::Explode;
        let (first, between) = (operator.first(), operator.between());
        let mut lead = if n == 0 { first } else { between }.to_owned();
        let mut again = between.to_owned();
        if operator.is_named() {
            lead.push_str(&variable.name);
            again.push_str(&variable.name);
        }
        let class = match operator {
            Operator::Reserved | Operator::Fragment => Class::Any,
            Operator::Parameter => Class::Until(b';'),
            _ if is_list => Class::Until(between.as_bytes()[0]),
            _ => Class::Segment,
        };
        steps.push(Step::Item(Item {
            lead,
            again: is_list.then_some(again),
            is_named: operator.is_named(),
            is_optional: !is_plain,
            class,
            meaning: Meaning::Variable { name: variable.name.clone(), modifier: variable.modifier },
        }));
    }
}

/// `{?x}{&y}` is one query: the order of parameters means nothing.
fn push_query(steps: &mut Vec<Step>, expression: &Expression) {
    let variables = expression.variables.iter();
    let names = variables.map(|v| (v.name.clone(), v.modifier == Modifier::Explode));
    if expression.operator == Operator::Continuation
        && let Some(Step::Item(Item { meaning: Meaning::Query(known), .. })) = steps.last_mut()
    {
        known.extend(names);
        return;
    }
    steps.push(Step::Item(Item {
        lead: expression.operator.first().to_owned(),
        again: None,
        is_named: false,
        is_optional: true,
        class: Class::Query,
        meaning: Meaning::Query(names.collect()),
    }));
}

pub(super) fn find(steps: &[Step], uri: &str) -> Option<Vec<(String, String)>> {
    let bytes = uri.as_bytes();
    if bytes.len() > MAX_URI || !triplets_are_whole(bytes) {
        return None;
    }
    // Most URIs belong to another template, and its first words say so.
    if let Some(Step::Text(text)) = steps.first()
        && !uri.starts_with(text.as_str())
    {
        return None;
    }
    let marks = Marks::new(steps, bytes)?;
    let mut found = Found::default();
    let mut at = 0;
    for (n, step) in steps.iter().enumerate() {
        at = match step {
            Step::Text(text) => at + text.len(),
            Step::Item(item) => take(item, n, at, uri, &marks, &mut found)?,
        };
    }
    found.finish()
}

fn triplets_are_whole(bytes: &[u8]) -> bool {
    let mut signs = bytes.iter().enumerate().filter(|(_, b)| **b == b'%');
    signs.all(|(at, _)| is_triplet(&bytes[at..]))
}

/// From where the steps can match, for every step and place.
struct Marks {
    /// A row per step and one for the end.
    rows: Vec<Row>,
    /// Where a value may end without cutting a character in two, plain or encoded.
    gaps: Vec<bool>,
}

/// The marks of one step: a cell per place, and one for the end.
type Row = Vec<u8>;

/// The step and all after it match from here to the end.
const START: u8 = 1;
/// A value of the step may end here: the rest matches, or a further value starts.
const LEAVE: u8 = 2;
/// Inside a value of the step: after some more characters of it, or none, the rest matches.
const WITHIN: u8 = 4;

impl Marks {
    /// The marks, unless the steps cannot match.
    fn new(steps: &[Step], bytes: &[u8]) -> Option<Self> {
        let gaps: Vec<_> = (0..=bytes.len()).map(|at| is_gap(bytes, at)).collect();
        let mut next = vec![0; bytes.len() + 1];
        next[bytes.len()] = START;
        let mut rows = vec![next];
        for step in steps.iter().rev() {
            let next = rows.last()?;
            let row = match step {
                Step::Text(text) => mark_text(bytes, text.as_bytes(), next),
                Step::Item(item) => mark_item(bytes, &gaps, item, next),
            };
            if !row.iter().any(|cell| cell & START != 0) {
                return None;
            }
            rows.push(row);
        }
        rows.reverse();
        (rows[0][0] & START != 0).then_some(Self { rows, gaps })
    }

    /// Where a value that has started and reached this place ends.
    fn end(&self, step: usize, mut at: usize) -> usize {
        // A value that has started has such a place; the end of the URI is there for the eye.
        while at + 1 < self.gaps.len() && !(self.gaps[at] && is(&self.rows[step], at, LEAVE)) {
            at += 1;
        }
        at
    }
}

fn is(row: &[u8], at: usize, mark: u8) -> bool {
    row.get(at).is_some_and(|cell| cell & mark != 0)
}

fn has(bytes: &[u8], at: usize, text: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(text))
}

fn is_gap(bytes: &[u8], at: usize) -> bool {
    let is_sign = |back: usize| at.checked_sub(back).is_some_and(|at| bytes[at] == b'%');
    let is_in_triplet = is_sign(1) || is_sign(2);
    let continues = match bytes.get(at) {
        Some(b'%') => matches!(bytes.get(at + 1), Some(b'8' | b'9' | b'a' | b'b' | b'A' | b'B')),
        Some(b) => b & 0xC0 == 0x80,
        None => false,
    };
    !is_in_triplet && !continues
}

fn mark_text(bytes: &[u8], text: &[u8], next: &[u8]) -> Row {
    let mut row = vec![0; next.len()];
    for (at, cell) in row.iter_mut().enumerate() {
        // The far end is looked up first: it is rare, and the text is long.
        if is(next, at + text.len(), START) && has(bytes, at, text) {
            *cell = START;
        }
    }
    row
}

fn mark_item(bytes: &[u8], gaps: &[bool], item: &Item, next: &[u8]) -> Row {
    let mut row = vec![0; next.len()];
    let mut is_within = false;
    for at in (0..next.len()).rev() {
        // What is asked here of other places was marked before: all of them are further on.
        let rest_matches = is(next, at, START);
        let can_leave = rest_matches || further(bytes, item, &row, at).is_some();
        let goes_on = is_within && item.class.has(bytes[at]);
        is_within = goes_on || (can_leave && gaps[at]);
        let can_start = if item.lead.is_empty() {
            goes_on
        } else {
            has(bytes, at, item.lead.as_bytes()) && value(bytes, item, &row, at + item.lead.len()).is_some()
        };
        let mark = |is_so: bool, mark: u8| if is_so { mark } else { 0 };
        row[at] = mark(can_leave, LEAVE)
            | mark(is_within, WITHIN)
            | mark(can_start || (item.is_optional && rest_matches), START);
    }
    row
}

/// Where a further value of a list starts, if one comes next.
fn further(bytes: &[u8], item: &Item, row: &[u8], at: usize) -> Option<Start> {
    let again = item.again.as_deref()?.as_bytes();
    if !has(bytes, at, again) {
        return None;
    }
    value(bytes, item, row, at + again.len())
}

/// How the value after a lead starts, if it can lead to the end.
fn value(bytes: &[u8], item: &Item, row: &[u8], at: usize) -> Option<Start> {
    if item.is_named {
        return match bytes.get(at) {
            Some(b'=') if is(row, at + 1, WITHIN) => Some(Start::UriValue(at + 1)),
            _ if is(row, at, LEAVE) => Some(Start::Nothing(at)),
            _ => None,
        };
    }
    let goes_on = bytes.get(at).is_some_and(|&b| item.class.has(b)) && is(row, at + 1, WITHIN);
    goes_on.then_some(Start::UriValue(at))
}

/// Where a value starts.
enum Start {
    UriValue(usize),
    /// A name without a value, which ends here.
    Nothing(usize),
}

/// Takes the values of an item that starts here, and says where it ends.
fn take(item: &Item, step: usize, at: usize, uri: &str, marks: &Marks, found: &mut Found) -> Option<usize> {
    let bytes = uri.as_bytes();
    let row = &marks.rows[step];
    if !has(bytes, at, item.lead.as_bytes()) {
        // Absent, which the marks allow only for what is optional.
        return Some(at);
    }
    let mut end = at;
    let mut next = value(bytes, item, row, at + item.lead.len());
    while let Some(start) = next {
        let from = match start {
            Start::Nothing(from) => {
                end = from;
                from
            }
            Start::UriValue(from) => {
                let least = usize::from(!item.is_named);
                end = marks.end(step, from + least);
                from
            }
        };
        found.add(item, uri.get(from..end)?)?;
        if is(&marks.rows[step + 1], end, START) {
            break;
        }
        next = further(bytes, item, row, end);
    }
    Some(end)
}

/// The values so far.
#[derive(Default)]
struct Found {
    values: Vec<(String, String)>,
    /// Values of `{x:n}`, which are only the start of one.
    prefixes: Vec<(String, String)>,
    /// Variables of a query that were seen, to refuse them a second time.
    single: Vec<String>,
}

impl Found {
    fn add(&mut self, item: &Item, text: &str) -> Option<()> {
        let (name, modifier) = match &item.meaning {
            Meaning::Variable { name, modifier } => (name, *modifier),
            Meaning::Query(known) => return self.add_query(known, text),
        };
        let value = decode(text)?;
        if value.contains('/') && !item.class.may_hold_slash() {
            return None;
        }
        match modifier {
            Modifier::Prefix(n) if value.chars().count() > n => return None,
            Modifier::Prefix(_) => self.prefixes.push((name.clone(), value)),
            Modifier::Explode => self.values.push((name.clone(), value)),
            Modifier::None => self.add_single(name, value)?,
        }
        Some(())
    }

    fn add_query(&mut self, known: &[(String, bool)], text: &str) -> Option<()> {
        for pair in text.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, is_list) = known.iter().find(|(name, _)| name == key)?;
            let value = decode(value)?;
            if *is_list {
                self.values.push((name.clone(), value));
            } else if self.single.iter().any(|seen| seen == name) {
                return None;
            } else {
                self.single.push(name.clone());
                self.add_single(name, value)?;
            }
        }
        Some(())
    }

    /// A variable that stands twice in a template has one value.
    fn add_single(&mut self, name: &str, value: String) -> Option<()> {
        match self.values.iter().find(|(known, _)| known == name) {
            Some((_, known)) => (*known == value).then_some(()),
            None => {
                self.values.push((name.to_owned(), value));
                Some(())
            }
        }
    }

    /// A prefix says nothing new of a variable that has its value, but may not say otherwise.
    fn finish(mut self) -> Option<Vec<(String, String)>> {
        for (name, prefix) in self.prefixes {
            match self.values.iter().find(|(known, _)| *known == name) {
                Some((_, value)) if value.starts_with(&prefix) => {}
                Some(_) => return None,
                None => self.values.push((name, prefix)),
            }
        }
        Some(self.values)
    }
}

/// Percent-decodes once. The triplets were checked before.
fn decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [b, after @ ..] = rest {
        rest = after;
        match (b, after) {
            (b'%', [high, low, after @ ..]) => {
                out.push(digit(*high)? << 4 | digit(*low)?);
                rest = after;
            }
            (b'%', _) => return None,
            _ => out.push(*b),
        }
    }
    String::from_utf8(out).ok()
}

fn digit(b: u8) -> Option<u8> {
    char::from(b).to_digit(16).and_then(|n| u8::try_from(n).ok())
}
