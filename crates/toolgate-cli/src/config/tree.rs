//! A configuration as a tree of values, each of which knows where it was written.

use std::time::Duration;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::human;
use super::text::{Place, Texts, Troubles};

/// A value, and where it was written.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) at: Place,
    pub(crate) worth: Worth,
    /// It came from a variable or a file: it is never shown.
    pub(crate) is_secret: bool,
}

#[derive(Clone, PartialEq)]
pub(crate) enum Worth {
    Text(String),
    Integer(i64),
    Number(f64),
    Flag(bool),
    /// Dates and times, which no key takes.
    Time(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// Could not be read. That was told already, and nothing more is said of it.
    Unread,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: Place,
    pub(crate) node: Node,
}

/// What is compared is what it says, not where it says so: that a comment was added changes nothing.
impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.worth == other.worth
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (&self.key, &self.node) == (&other.key, &other.node)
    }
}

/// Reads one text. What is wrong with its grammar is told, all of it.
pub(crate) fn read(texts: &Texts, file: usize, troubles: &mut Troubles) -> Node {
    let (tree, faults) = DeTable::parse_recoverable(texts.text(file));
    let whole = Place { file, start: 0, end: 0 };
    let mut reading = Reading { file, troubles };
    let node = Node { at: whole, worth: reading.table(tree.get_ref()), is_secret: false };
    for fault in &faults {
        let at = fault.span().map_or(whole, |span| Place { file, start: span.start, end: span.end });
        let said = fault.message().to_owned();
        let first = (said == "duplicate key").then(|| first(&node, texts.text(file), at));
        match first.flatten() {
            Some(first) => troubles.say_also(at, said, first, "the first one is here"),
            None => troubles.say(at, said),
        }
    }
    node
}

/// Where the key at this place stands for the first time, as far as that is easily said.
fn first(tree: &Node, text: &str, at: Place) -> Option<Place> {
    let begin = text.get(..at.start)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(begin..)?.lines().next()?;
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let before = text.get(..begin)?;
    if is_header(line) {
        let path = keys(line, None)?;
        let mut start = 0;
        for header in before.split_inclusive('\n') {
            if is_header(header) && keys(header, None).as_ref() == Some(&path) {
                return Some(Place { start, end: start + header.trim_end().len(), ..at });
            }
            start += header.len();
        }
    }
    let header = before.lines().rfind(|line| is_header(line)).filter(|_| !is_header(line));
    let mut path = header.and_then(|header| keys(header, None)).unwrap_or_default();
    path.extend(keys(line, Some(at.end - begin))?);
    let (mut node, mut found) = (tree, None);
    for key in &path {
        // The table of a list that is being written is the last one so far.
        if let Some(last) = node.items().iter().rfind(|item| item.at.start < at.start) {
            node = last;
        }
        let entry = node.entry(key)?;
        (node, found) = (&entry.node, Some(entry.at));
    }
    found.filter(|found| found.start < at.start)
}

/// The keys that a line begins with: all of them, or up to the one that ends here.
fn keys(line: &str, end: Option<usize>) -> Option<Vec<String>> {
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

struct Reading<'a> {
    file: usize,
    troubles: &'a mut Troubles,
}

impl Reading<'_> {
    fn table(&mut self, table: &DeTable<'_>) -> Worth {
        let entries = table.iter().map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            at: self.place(&key.span()),
            node: self.node(value, &key.span()),
        });
        Worth::Table(entries.collect())
    }

    fn place(&self, span: &std::ops::Range<usize>) -> Place {
        Place { file: self.file, start: span.start, end: span.end }
    }

    fn node(&mut self, value: &Spanned<DeValue<'_>>, key: &std::ops::Range<usize>) -> Node {
        let own = self.place(&value.span());
        let (at, worth) = match value.get_ref() {
            DeValue::String(text) => (own, Worth::Text(text.to_string())),
            DeValue::Integer(integer) => (own, self.integer(own, integer.as_str(), integer.radix())),
            DeValue::Float(float) => (own, float.as_str().parse().map_or(Worth::Unread, Worth::Number)),
            DeValue::Boolean(flag) => (own, Worth::Flag(*flag)),
            DeValue::Datetime(time) => (own, Worth::Time(time.to_string())),
            DeValue::Array(list) => {
                (own, Worth::List(list.iter().map(|item| self.node(item, &item.span())).collect()))
            }
            // A table is spread over lines; its name is where one looks for it.
            DeValue::Table(table) => (self.place(key), self.table(table)),
        };
        Node { at, worth, is_secret: false }
    }

    fn integer(&mut self, at: Place, digits: &str, radix: u32) -> Worth {
        match i64::from_str_radix(digits, radix) {
            Ok(integer) => Worth::Integer(integer),
            Err(_) => {
                self.troubles.say(at, "this number is too large");
                Worth::Unread
            }
        }
    }
}

/// What a key has. None where there is nothing, or something else than was wanted: that was told when the tree was
/// checked.
impl Node {
    pub(crate) fn empty() -> Node {
        Node { at: Place::default(), worth: Worth::Table(Vec::new()), is_secret: false }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.worth {
            Worth::Table(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<Entry> {
        let Worth::Table(entries) = &mut self.worth else { return None };
        let place = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(place))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let Worth::Table(entries) = &mut self.worth else { return None };
        entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
    }

    /// Adds what is not there yet.
    pub(crate) fn put(&mut self, entry: Entry) {
        if let Worth::Table(entries) = &mut self.worth {
            entries.push(entry);
        }
    }

    /// What stands at a dotted path, or as much of the way as there is.
    pub(crate) fn reach(&self, path: &str) -> Place {
        let mut at = (self, self.at);
        for part in path.split('.').filter(|part| !part.is_empty()) {
            let next = match &at.0.worth {
                Worth::List(items) => {
                    part.parse::<usize>().ok().and_then(|n| items.get(n)).map(|n| (n, n.at))
                }
                _ => at.0.entry(part).map(|entry| (&entry.node, entry.node.at)),
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        at.1
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.worth {
            Worth::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn items(&self) -> &[Node] {
        match &self.worth {
            Worth::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.as_text().map(str::to_owned)
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)?.worth {
            Worth::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    pub(crate) fn integer(&self, key: &str) -> Option<i64> {
        match self.get(key)?.worth {
            Worth::Integer(integer) => Some(integer),
            _ => None,
        }
    }

    pub(crate) fn count(&self, key: &str) -> Option<usize> {
        self.integer(key).and_then(|integer| usize::try_from(integer).ok())
    }

    pub(crate) fn duration(&self, key: &str) -> Option<Duration> {
        human::duration(self.get(key)?.as_text()?)
    }

    pub(crate) fn size(&self, key: &str) -> Option<u64> {
        match &self.get(key)?.worth {
            Worth::Text(text) => human::size(text),
            Worth::Integer(integer) => u64::try_from(*integer).ok(),
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

    pub(crate) fn named(&self, key: &str) -> &[Entry] {
        self.get(key).map_or(&[], Node::entries)
    }

    /// Names and texts.
    pub(crate) fn pairs(&self, key: &str) -> Vec<(String, String)> {
        let pair = |entry: &Entry| Some((entry.key.clone(), entry.node.as_text()?.to_owned()));
        self.named(key).iter().filter_map(pair).collect()
    }

    /// As JSON, for what is passed on as it is.
    pub(crate) fn to_json(&self) -> Value {
        match &self.worth {
            Worth::Text(text) | Worth::Time(text) => text.clone().into(),
            Worth::Integer(integer) => (*integer).into(),
            Worth::Number(number) => (*number).into(),
            Worth::Flag(flag) => (*flag).into(),
            Worth::List(items) => items.iter().map(Node::to_json).collect(),
            Worth::Table(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json()));
                Value::Object(pairs.collect::<Map<String, Value>>())
            }
            Worth::Unread => Value::Null,
        }
    }

    /// What kind of value it is, in words.
    pub(crate) fn what(&self) -> &'static str {
        match self.worth {
            Worth::Text(_) => "a text",
            Worth::Integer(_) => "an integer",
            Worth::Number(_) => "a number",
            Worth::Flag(_) => "true or false",
            Worth::Time(_) => "a date",
            Worth::List(_) => "a list",
            Worth::Table(_) => "a table",
            Worth::Unread => "nothing",
        }
    }
}
