//! Tables of a configuration file, read with the defaults of their keys.

use std::time::Duration;

use super::keys::Table;
use super::tree::Node;

/// A table of the file. A key that is not set, or whose value is of the wrong kind, has the default that its key table
/// states. The checker has reported values of the wrong kind already.
///
/// # Panics The methods that return a plain value panic if the key has no default of that kind: that is a bug in this
/// program, and the test `every_default_is_of_its_kind` covers the tables.
pub(super) struct TableView<'a> {
    node: Option<&'a Node>,
    table: &'static Table,
    /// The key of `Table::one_of` that is set; some defaults depend on it.
    kind: Option<&'static str>,
}

impl<'a> TableView<'a> {
    /// `None` is an empty table.
    pub(super) fn new(node: Option<&'a Node>, table: &'static Table) -> TableView<'a> {
        let is_set = |kind: &&&str| node.is_some_and(|node| node.get(kind).is_some());
        TableView { node, table, kind: table.one_of.iter().find(is_set).copied() }
    }

    /// A table of this kind in which no key is set.
    pub(super) fn defaults(table: &'static Table, kind: &'static str) -> TableView<'static> {
        TableView { node: None, table, kind: Some(kind) }
    }

    /// The table at a key of this one.
    pub(super) fn table(&self, key: &str, table: &'static Table) -> TableView<'a> {
        TableView::new(self.get(key), table)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Node> {
        self.node?.get(key)
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.read(key, Node::flag)
    }

    pub(super) fn text(&self, key: &str) -> String {
        self.read(key, Node::text)
    }

    pub(super) fn duration(&self, key: &str) -> Duration {
        self.read(key, Node::duration)
    }

    pub(super) fn size(&self, key: &str) -> u64 {
        self.read(key, Node::size)
    }

    /// A size in bytes that fits in a `usize`.
    pub(super) fn bytes(&self, key: &str) -> usize {
        self.read(key, size_in_bytes)
    }

    pub(super) fn number<N: TryFrom<i64>>(&self, key: &str) -> N {
        self.read(key, |node, key| N::try_from(node.integer(key)?).ok())
    }

    pub(super) fn numbers<N: TryFrom<i64>>(&self, key: &str) -> Vec<N> {
        self.read(key, |node, key| {
            let items = node.get(key)?.items().iter();
            Some(items.filter_map(|item| N::try_from(item.as_integer()?).ok()).collect())
        })
    }

    /// One text or a list of them.
    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        self.read(key, |node, key| Some(node.texts(key)).filter(|texts| !texts.is_empty()))
    }

    /// One text or a list of them; empty if the key is not set.
    pub(super) fn optional_texts(&self, key: &str) -> Vec<String> {
        self.node.map_or_else(Vec::new, |node| node.texts(key))
    }

    /// Names and texts; empty if the key is not set.
    pub(super) fn text_pairs(&self, key: &str) -> Vec<(String, String)> {
        self.node.map_or_else(Vec::new, |node| node.text_pairs(key))
    }

    fn read<T>(&self, key: &str, read: impl Fn(&Node, &str) -> Option<T>) -> T {
        let value = self.node.and_then(|node| read(node, key));
        value.unwrap_or_else(|| {
            let defaults = Node::from_json(&self.table.default_of(key, self.kind));
            read(&defaults, key).expect("a key that is read with its default has one of its kind")
        })
    }
}

/// A size in bytes that fits in a `usize`.
pub(super) fn size_in_bytes(node: &Node, key: &str) -> Option<usize> {
    node.size(key).and_then(|bytes| usize::try_from(bytes).ok())
}
