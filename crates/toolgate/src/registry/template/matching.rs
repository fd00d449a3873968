//! Matching of URIs against templates.
//!
//! A template is a sequence of [`MatchStep`]s. A backward pass over the URI marks, for each step, the positions from which it and
//! all later steps can match to the end. In the forward pass, each variable takes the fewest characters after which the rest is
//! known to match. Both passes visit every character once per step.

use super::parse::is_triplet;
use super::{Expression, MAX_URI_BYTES, Modifier, Operator, Part};

/// One step of matching: literal text or values to capture.
#[derive(Clone, Debug)]
pub(super) enum MatchStep {
    Text(String),
    Capture(Capture),
}

/// The values of one variable, or of all variables of a query.
#[derive(Clone, Debug)]
pub(super) struct Capture {
    /// Text before the first value, up to the equals sign of a named one.
    prefix: String,
    /// Text before each further value, if there may be several.
    repeat_prefix: Option<String>,
    /// The equals sign and the value may be missing after the prefix. Other values have at least one character.
    is_named: bool,
    is_optional: bool,
    char_class: CharClass,
    target: CaptureTarget,
}

#[derive(Clone, Debug)]
enum CaptureTarget {
    Variable {
        name: String,
        modifier: Modifier,
    },
    /// The variables of a query, and whether each is a list.
    Query(Vec<(String, bool)>),
}

/// The characters that a value may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharClass {
    Any,
    /// All characters except `#`.
    Query,
    /// One path segment.
    Segment,
    /// One path segment, up to this separator.
    Until(u8),
}

impl CharClass {
    fn contains(self, b: u8) -> bool {
        let in_segment = !matches!(b, b'/' | b'?' | b'#');
        match self {
            Self::Any => true,
            Self::Query => b != b'#',
            Self::Segment => in_segment,
            Self::Until(separator) => in_segment && b != separator,
        }
    }

    /// Returns whether a decoded value may contain a slash.
    fn allows_slash(self) -> bool {
        matches!(self, Self::Any | Self::Query)
    }
}

pub(super) fn compile_steps(parts: &[Part]) -> Vec<MatchStep> {
    let mut steps = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => steps.push(MatchStep::Text(text.clone())),
            Part::Expression(expression) => push_steps(&mut steps, expression),
        }
    }
    steps
}

fn push_steps(steps: &mut Vec<MatchStep>, expression: &Expression) {
    let operator = expression.operator;
    if matches!(operator, Operator::Query | Operator::Continuation) {
        push_query(steps, expression);
        return;
    }
    let is_plain = matches!(operator, Operator::Simple | Operator::Reserved);
    for (n, variable) in expression.variables.iter().enumerate() {
        let is_list = variable.modifier == Modifier::Explode;
        let (first, between) = (operator.prefix(), operator.separator());
        let mut prefix = if n == 0 { first } else { between }.to_owned();
        let mut repeat_prefix = between.to_owned();
        if operator.is_named() {
            prefix.push_str(&variable.name);
            repeat_prefix.push_str(&variable.name);
        }
        let class = match operator {
            Operator::Reserved | Operator::Fragment => CharClass::Any,
            Operator::Parameter => CharClass::Until(b';'),
            _ if is_list => CharClass::Until(between.as_bytes()[0]),
            _ => CharClass::Segment,
        };
        steps.push(MatchStep::Capture(Capture {
            prefix,
            repeat_prefix: is_list.then_some(repeat_prefix),
            is_named: operator.is_named(),
            is_optional: !is_plain,
            char_class: class,
            target: CaptureTarget::Variable { name: variable.name.clone(), modifier: variable.modifier },
        }));
    }
}

/// Merges `{?x}{&y}` into one query, because the order of parameters is irrelevant.
fn push_query(steps: &mut Vec<MatchStep>, expression: &Expression) {
    let variables = expression.variables.iter();
    let names = variables.map(|v| (v.name.clone(), v.modifier == Modifier::Explode));
    if expression.operator == Operator::Continuation
        && let Some(MatchStep::Capture(Capture { target: CaptureTarget::Query(known), .. })) =
            steps.last_mut()
    {
        known.extend(names);
        return;
    }
    steps.push(MatchStep::Capture(Capture {
        prefix: expression.operator.prefix().to_owned(),
        repeat_prefix: None,
        is_named: false,
        is_optional: true,
        char_class: CharClass::Query,
        target: CaptureTarget::Query(names.collect()),
    }));
}

pub(super) fn match_uri(steps: &[MatchStep], uri: &str) -> Option<Vec<(String, String)>> {
    let bytes = uri.as_bytes();
    if bytes.len() > MAX_URI_BYTES || !has_valid_escapes(bytes) {
        return None;
    }
    // Most URIs belong to another template and differ in the first literal.
    if let Some(MatchStep::Text(text)) = steps.first()
        && !uri.starts_with(text.as_str())
    {
        return None;
    }
    let table = MatchTable::new(steps, bytes)?;
    let mut found = Captures::default();
    let mut at = 0;
    for (n, step) in steps.iter().enumerate() {
        at = match step {
            MatchStep::Text(text) => at + text.len(),
            MatchStep::Capture(item) => capture_values(item, n, at, uri, &table, &mut found)?,
        };
    }
    found.into_values()
}

fn has_valid_escapes(bytes: &[u8]) -> bool {
    let mut signs = bytes.iter().enumerate().filter(|(_, b)| **b == b'%');
    signs.all(|(at, _)| is_triplet(&bytes[at..]))
}

/// The positions from which each step can match.
struct MatchTable {
    /// One row per step, and one for the end.
    rows: Vec<TableRow>,
    /// Positions at which a value may end without splitting a character, plain or percent-encoded.
    boundaries: Vec<bool>,
}

/// The flags of one step: one cell per position, and one for the end.
type TableRow = Vec<u8>;

/// The step and all after it match from here to the end.
const CAN_START: u8 = 1;
/// A value of the step may end here: the rest matches, or a further value starts.
const CAN_END: u8 = 2;
/// Inside a value of the step: after some more characters of it, or none, the rest matches.
const IN_VALUE: u8 = 4;

impl MatchTable {
    /// Computes the table, or `None` if the steps cannot match.
    fn new(steps: &[MatchStep], bytes: &[u8]) -> Option<Self> {
        let gaps: Vec<_> = (0..=bytes.len()).map(|at| is_boundary(bytes, at)).collect();
        let mut next = vec![0; bytes.len() + 1];
        next[bytes.len()] = CAN_START;
        let mut rows = vec![next];
        for step in steps.iter().rev() {
            let next = rows.last()?;
            let row = match step {
                MatchStep::Text(text) => text_row(bytes, text.as_bytes(), next),
                MatchStep::Capture(item) => capture_row(bytes, &gaps, item, next),
            };
            if !row.iter().any(|cell| cell & CAN_START != 0) {
                return None;
            }
            rows.push(row);
        }
        rows.reverse();
        (rows[0][0] & CAN_START != 0).then_some(Self { rows, boundaries: gaps })
    }

    /// Returns the end of a value that reaches at least to `at`.
    fn value_end(&self, step: usize, mut at: usize) -> usize {
        // Every started value has such an end; the bound only guards the index.
        while at + 1 < self.boundaries.len()
            && !(self.boundaries[at] && has_flag(&self.rows[step], at, CAN_END))
        {
            at += 1;
        }
        at
    }
}

fn has_flag(row: &[u8], at: usize, mark: u8) -> bool {
    row.get(at).is_some_and(|cell| cell & mark != 0)
}

fn starts_with_at(bytes: &[u8], at: usize, text: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(text))
}

fn is_boundary(bytes: &[u8], at: usize) -> bool {
    let is_sign = |back: usize| at.checked_sub(back).is_some_and(|at| bytes[at] == b'%');
    let is_in_triplet = is_sign(1) || is_sign(2);
    let continues = match bytes.get(at) {
        Some(b'%') => matches!(bytes.get(at + 1), Some(b'8' | b'9' | b'a' | b'b' | b'A' | b'B')),
        Some(b) => b & 0xC0 == 0x80,
        None => false,
    };
    !is_in_triplet && !continues
}

fn text_row(bytes: &[u8], text: &[u8], next: &[u8]) -> TableRow {
    let mut row = vec![0; next.len()];
    for (at, cell) in row.iter_mut().enumerate() {
        // The flag is checked first: it is rarely set, and comparing the text is slower.
        if has_flag(next, at + text.len(), CAN_START) && starts_with_at(bytes, at, text) {
            *cell = CAN_START;
        }
    }
    row
}

fn capture_row(bytes: &[u8], gaps: &[bool], item: &Capture, next: &[u8]) -> TableRow {
    let mut row = vec![0; next.len()];
    let mut is_within = false;
    for at in (0..next.len()).rev() {
        // Only reads cells of later positions, which are already computed.
        let rest_matches = has_flag(next, at, CAN_START);
        let can_leave = rest_matches || next_value_start(bytes, item, &row, at).is_some();
        let is_value_byte = is_within && item.char_class.contains(bytes[at]);
        is_within = is_value_byte || (can_leave && gaps[at]);
        let can_start = if item.prefix.is_empty() {
            is_value_byte
        } else {
            starts_with_at(bytes, at, item.prefix.as_bytes())
                && value_start(bytes, item, &row, at + item.prefix.len()).is_some()
        };
        let mark = |is_set: bool, mark: u8| if is_set { mark } else { 0 };
        row[at] = mark(can_leave, CAN_END)
            | mark(is_within, IN_VALUE)
            | mark(can_start || (item.is_optional && rest_matches), CAN_START);
    }
    row
}

/// Returns where a further value of a list starts, if one follows.
fn next_value_start(bytes: &[u8], item: &Capture, row: &[u8], at: usize) -> Option<ValueStart> {
    let prefix = item.repeat_prefix.as_deref()?.as_bytes();
    if !starts_with_at(bytes, at, prefix) {
        return None;
    }
    value_start(bytes, item, row, at + prefix.len())
}

/// Returns how the value after a prefix starts, if the rest can match.
fn value_start(bytes: &[u8], item: &Capture, row: &[u8], at: usize) -> Option<ValueStart> {
    if item.is_named {
        return match bytes.get(at) {
            Some(b'=') if has_flag(row, at + 1, IN_VALUE) => Some(ValueStart::Value(at + 1)),
            _ if has_flag(row, at, CAN_END) => Some(ValueStart::Empty(at)),
            _ => None,
        };
    }
    let has_value =
        bytes.get(at).is_some_and(|&b| item.char_class.contains(b)) && has_flag(row, at + 1, IN_VALUE);
    has_value.then_some(ValueStart::Value(at))
}

/// The start of a value.
enum ValueStart {
    Value(usize),
    /// A name without a value, ending here.
    Empty(usize),
}

/// Captures the values of an item that starts here. Returns where it ends.
fn capture_values(
    item: &Capture,
    step: usize,
    at: usize,
    uri: &str,
    match_table: &MatchTable,
    captures: &mut Captures,
) -> Option<usize> {
    let bytes = uri.as_bytes();
    let row = &match_table.rows[step];
    if !starts_with_at(bytes, at, item.prefix.as_bytes()) {
        // Absent, which the table only allows for optional items.
        return Some(at);
    }
    let mut end = at;
    let mut next = value_start(bytes, item, row, at + item.prefix.len());
    while let Some(start) = next {
        let from = match start {
            ValueStart::Empty(from) => {
                end = from;
                from
            }
            ValueStart::Value(from) => {
                let min_length = usize::from(!item.is_named);
                end = match_table.value_end(step, from + min_length);
                from
            }
        };
        captures.add(item, uri.get(from..end)?)?;
        if has_flag(&match_table.rows[step + 1], end, CAN_START) {
            break;
        }
        next = next_value_start(bytes, item, row, end);
    }
    Some(end)
}

/// The values captured so far.
#[derive(Default)]
struct Captures {
    values: Vec<(String, String)>,
    /// Values of `{x:n}`, which are prefixes.
    prefixes: Vec<(String, String)>,
    /// Variables of a query seen so far; a repetition is rejected.
    query_names: Vec<String>,
}

impl Captures {
    fn add(&mut self, item: &Capture, text: &str) -> Option<()> {
        let (name, modifier) = match &item.target {
            CaptureTarget::Variable { name, modifier } => (name, *modifier),
            CaptureTarget::Query(known) => return self.add_query(known, text),
        };
        let value = percent_decode(text)?;
        if value.contains('/') && !item.char_class.allows_slash() {
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
            let value = percent_decode(value)?;
            if *is_list {
                self.values.push((name.clone(), value));
            } else if self.query_names.iter().any(|seen| seen == name) {
                return None;
            } else {
                self.query_names.push(name.clone());
                self.add_single(name, value)?;
            }
        }
        Some(())
    }

    /// Adds the value of a variable. If it occurs twice in a template, both values must be equal.
    fn add_single(&mut self, name: &str, value: String) -> Option<()> {
        match self.values.iter().find(|(known, _)| known == name) {
            Some((_, known)) => (*known == value).then_some(()),
            None => {
                self.values.push((name.to_owned(), value));
                Some(())
            }
        }
    }

    /// Returns all values. A prefix must agree with the variable's full value, if there is one.
    fn into_values(mut self) -> Option<Vec<(String, String)>> {
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

/// Percent-decodes once. The triplets are valid.
fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [b, after @ ..] = rest {
        rest = after;
        match (b, after) {
            (b'%', [high, low, after @ ..]) => {
                out.push(hex_digit(*high)? << 4 | hex_digit(*low)?);
                rest = after;
            }
            (b'%', _) => return None,
            _ => out.push(*b),
        }
    }
    String::from_utf8(out).ok()
}

fn hex_digit(b: u8) -> Option<u8> {
    char::from(b).to_digit(16).and_then(|n| u8::try_from(n).ok())
}
