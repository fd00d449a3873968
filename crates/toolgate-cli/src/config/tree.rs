//! A configuration as a tree of values with positions.

use std::time::Duration;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostics::{ConfigFiles, Diagnostics, Span};
use super::units;

/// A value and its position.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: NodeValue,
    /// Whether the value contains an expanded variable or file; it is never shown then.
    pub(crate) is_secret: bool,
}

#[derive(Clone, PartialEq)]
pub(crate) enum NodeValue {
    Text(String),
    Integer(i64),
    Number(f64),
    Flag(bool),
    /// Dates and times, which no key takes.
    DateTime(String),
    List(Vec<Node>),
    Table(Vec<TableEntry>),
    /// A value that could not be read. The problem has been reported.
    Invalid,
}

#[derive(Clone)]
pub(crate) struct TableEntry {
    pub(crate) key: String,
    pub(crate) span: Span,
    pub(crate) node: Node,
}

/// Compares values without positions, so that an added comment is not a change.
impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.value == other.value
    }
}

impl PartialEq for TableEntry {
    fn eq(&self, other: &TableEntry) -> bool {
        (&self.key, &self.node) == (&other.key, &other.node)
    }
}

/// Parses a file and reports all syntax errors.
pub(crate) fn parse(files: &ConfigFiles, file: usize, diagnostics: &mut Diagnostics) -> Node {
    let (tree, errors) = DeTable::parse_recoverable(files.text(file));
    let file_span = Span { file, start: 0, end: 0 };
    let mut builder = TreeBuilder { file, diagnostics };
    let node = Node { span: file_span, value: builder.table(tree.get_ref()), is_secret: false };
    for error in &errors {
        let at = error.span().map_or(file_span, |span| Span { file, start: span.start, end: span.end });
        let message = error.message().to_owned();
        // The only way to recognize this error of the `toml` crate is its message.
        let first = (message == "duplicate key").then(|| first_occurrence(&node, files.text(file), at));
        match first.flatten() {
            Some(first) => diagnostics.report_with_related(at, message, first, "first defined here"),
            None => diagnostics.report(at, message),
        }
    }
    node
}

/// Finds the first definition of a duplicate key, for keys and headers that are on one line.
fn first_occurrence(tree: &Node, text: &str, at: Span) -> Option<Span> {
    let line_start = text.get(..at.start)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(line_start..)?.lines().next()?;
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let before = text.get(..line_start)?;
    if is_header(line) {
        let path = line_keys(line, None)?;
        let mut start = 0;
        for header in before.split_inclusive('\n') {
            if is_header(header) && line_keys(header, None).as_ref() == Some(&path) {
                return Some(Span { start, end: start + header.trim_end().len(), ..at });
            }
            start += header.len();
        }
    }
    let header = before.lines().rfind(|line| is_header(line)).filter(|_| !is_header(line));
    let mut path = header.and_then(|header| line_keys(header, None)).unwrap_or_default();
    path.extend(line_keys(line, Some(at.end - line_start))?);
    let (mut node, mut found) = (tree, None);
    for key in &path {
        // In an array of tables, the key belongs to the last one before it.
        if let Some(last) = node.items().iter().rfind(|item| item.span.start < at.start) {
            node = last;
        }
        let entry = node.entry(key)?;
        (node, found) = (&entry.node, Some(entry.span));
    }
    found.filter(|found| found.start < at.start)
}

/// The dotted keys of a line: all of them, or up to the one that ends at `end`.
fn line_keys(line: &str, end: Option<usize>) -> Option<Vec<String>> {
    let (parsed, _) = DeTable::parse_recoverable(line);
    let (mut table, mut path) = (parsed.get_ref(), Vec::new());
    while let Some((key, value)) = table.iter().next() {
        path.push(key.get_ref().to_string());
        table = match value.get_ref() {
            _ if end == Some(key.span().end) => return Some(path),
            DeValue::Table(table) => table,
            DeValue::Array(items) => match items.first().map(Spanned::get_ref) {
                Some(DeValue::Table(table)) => table,
                _ => break,
            },
            _ => break,
        };
    }
    end.is_none().then_some(path)
}

struct TreeBuilder<'a> {
    file: usize,
    diagnostics: &'a mut Diagnostics,
}

impl TreeBuilder<'_> {
    fn table(&mut self, table: &DeTable<'_>) -> NodeValue {
        let entries = table.iter().map(|(key, value)| TableEntry {
            key: key.get_ref().to_string(),
            span: self.span(&key.span()),
            node: self.node(value, &key.span()),
        });
        NodeValue::Table(entries.collect())
    }

    fn span(&self, span: &std::ops::Range<usize>) -> Span {
        Span { file: self.file, start: span.start, end: span.end }
    }

    fn node(&mut self, value: &Spanned<DeValue<'_>>, key: &std::ops::Range<usize>) -> Node {
        let value_span = self.span(&value.span());
        let (span, value) = match value.get_ref() {
            DeValue::String(text) => (value_span, NodeValue::Text(text.to_string())),
            DeValue::Integer(integer) => {
                (value_span, self.integer(value_span, integer.as_str(), integer.radix()))
            }
            DeValue::Float(float) => {
                (value_span, float.as_str().parse().map_or(NodeValue::Invalid, NodeValue::Number))
            }
            DeValue::Boolean(flag) => (value_span, NodeValue::Flag(*flag)),
            DeValue::Datetime(time) => (value_span, NodeValue::DateTime(time.to_string())),
            DeValue::Array(list) => {
                (value_span, NodeValue::List(list.iter().map(|item| self.node(item, &item.span())).collect()))
            }
            // A table may extend over many lines, so its position is that of its key.
            DeValue::Table(table) => (self.span(key), self.table(table)),
        };
        Node { span, value, is_secret: false }
    }

    fn integer(&mut self, at: Span, digits: &str, radix: u32) -> NodeValue {
        match i64::from_str_radix(digits, radix) {
            Ok(integer) => NodeValue::Integer(integer),
            Err(_) => {
                self.diagnostics.report(at, "this integer is too large");
                NodeValue::Invalid
            }
        }
    }
}

/// Accessors of values. They return `None` if the key is not set or its value is of another type, which the checker
/// reports.
impl Node {
    pub(crate) fn empty() -> Node {
        Node { span: Span::default(), value: NodeValue::Table(Vec::new()), is_secret: false }
    }

    /// A tree without positions, for values that are not from a file.
    pub(super) fn from_json(value: &Value) -> Node {
        let value = match value {
            Value::String(text) => NodeValue::Text(text.clone()),
            Value::Bool(flag) => NodeValue::Flag(*flag),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => NodeValue::Integer(integer),
                (None, Some(number)) => NodeValue::Number(number),
                (None, None) => NodeValue::Invalid,
            },
            Value::Array(items) => NodeValue::List(items.iter().map(Node::from_json).collect()),
            Value::Object(members) => {
                let entry = |(key, value): (&String, &Value)| TableEntry {
                    key: key.clone(),
                    span: Span::default(),
                    node: Node::from_json(value),
                };
                NodeValue::Table(members.iter().map(entry).collect())
            }
            Value::Null => NodeValue::Invalid,
        };
        Node { span: Span::default(), value, is_secret: false }
    }

    pub(crate) fn entries(&self) -> &[TableEntry] {
        match &self.value {
            NodeValue::Table(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&TableEntry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<TableEntry> {
        let NodeValue::Table(entries) = &mut self.value else { return None };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let NodeValue::Table(entries) = &mut self.value else { return None };
        entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
    }

    /// Adds an entry, which must not exist.
    pub(crate) fn insert(&mut self, entry: TableEntry) {
        if let NodeValue::Table(entries) = &mut self.value {
            entries.push(entry);
        }
    }

    /// The position of the value at a dotted path, or of its nearest ancestor that exists.
    pub(crate) fn span_at(&self, path: &str) -> Span {
        let mut at = (self, self.span);
        for part in path.split('.').filter(|part| !part.is_empty()) {
            let next = match &at.0.value {
                NodeValue::List(items) => {
                    part.parse::<usize>().ok().and_then(|n| items.get(n)).map(|n| (n, n.span))
                }
                _ => at.0.entry(part).map(|entry| (&entry.node, entry.node.span)),
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        at.1
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            NodeValue::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.as_text().map(str::to_owned)
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)?.value {
            NodeValue::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    pub(crate) fn as_integer(&self) -> Option<i64> {
        match self.value {
            NodeValue::Integer(integer) => Some(integer),
            _ => None,
        }
    }

    pub(crate) fn integer(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_integer()
    }

    pub(crate) fn count(&self, key: &str) -> Option<usize> {
        self.integer(key).and_then(|integer| usize::try_from(integer).ok())
    }

    pub(crate) fn duration(&self, key: &str) -> Option<Duration> {
        units::parse_duration(self.get(key)?.as_text()?)
    }

    pub(crate) fn size(&self, key: &str) -> Option<u64> {
        match &self.get(key)?.value {
            NodeValue::Text(text) => units::parse_size(text),
            NodeValue::Integer(integer) => u64::try_from(*integer).ok(),
            _ => None,
        }
    }

    /// One text or a list of them.
    pub(crate) fn texts(&self, key: &str) -> Vec<String> {
        match self.get(key) {
            Some(node) => match node.as_text() {
                Some(text) => vec![text.to_owned()],
                None => node.items().iter().filter_map(Node::as_text).map(str::to_owned).collect(),
            },
            None => Vec::new(),
        }
    }

    pub(crate) fn entries_of(&self, key: &str) -> &[TableEntry] {
        self.get(key).map_or(&[], Node::entries)
    }

    /// The entries of a table whose values are texts.
    pub(crate) fn text_pairs(&self, key: &str) -> Vec<(String, String)> {
        let pair = |entry: &TableEntry| Some((entry.key.clone(), entry.node.as_text()?.to_owned()));
        self.entries_of(key).iter().filter_map(pair).collect()
    }

    /// Converts the value to JSON.
    pub(crate) fn to_json(&self) -> Value {
        match &self.value {
            NodeValue::Text(text) | NodeValue::DateTime(text) => text.clone().into(),
            NodeValue::Integer(integer) => (*integer).into(),
            NodeValue::Number(number) => (*number).into(),
            NodeValue::Flag(flag) => (*flag).into(),
            NodeValue::List(items) => items.iter().map(Node::to_json).collect(),
            NodeValue::Table(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json()));
                Value::Object(pairs.collect::<Map<String, Value>>())
            }
            NodeValue::Invalid => Value::Null,
        }
    }

    /// The type of the value, for messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.value {
            NodeValue::Text(_) => "a string",
            NodeValue::Integer(_) => "an integer",
            NodeValue::Number(_) => "a number",
            NodeValue::Flag(_) => "true or false",
            NodeValue::DateTime(_) => "a date",
            NodeValue::List(_) => "a list",
            NodeValue::Table(_) => "a table",
            NodeValue::Invalid => "nothing",
        }
    }
}
