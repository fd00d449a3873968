//! Checks a tree against the key tables, and expands variables in its strings.

use std::path::Path;

use super::diagnostics::{ConfigFiles, Diagnostics, Span, suggest};
use super::expand::{VariableLookup, expand, referenced_files};
use super::file_stamp::FileStamp;
use super::keys::{Key, Kind, Presence, Table};
use super::tree::{Node, NodeValue, TableEntry};
use super::units;

/// Checks a configuration. Values that cannot be read become [`NodeValue::Invalid`].
pub(crate) struct ConfigChecker<'a> {
    pub(crate) files: &'a ConfigFiles,
    pub(crate) variables: VariableLookup<'a>,
    pub(crate) diagnostics: &'a mut Diagnostics,
    /// Files that `${file:…}` names, as they were before they were read.
    pub(crate) secret_files: &'a mut Vec<FileStamp>,
}

impl ConfigChecker<'_> {
    /// Checks a table: unknown keys, missing keys, and the values.
    pub(crate) fn check_table(&mut self, node: &mut Node, table: &Table, path: &str) {
        let span = node.span;
        let NodeValue::Table(entries) = &mut node.value else {
            self.report_mismatch(node, "a table", path);
            return;
        };
        let kinds: Vec<&'static str> =
            table.one_of.iter().copied().filter(|kind| entries.iter().any(|e| e.key == *kind)).collect();
        for entry in entries.iter_mut() {
            let inner = join_path(path, &entry.key);
            match table.keys.iter().find(|known| known.name == entry.key) {
                None => self.report_unknown_key(entry, table, path),
                Some(Key { kind: Kind::PackOnly, .. }) if !self.files.is_builtin(entry.span.file) => {
                    self.report_unknown_key(entry, table, path);
                }
                Some(known) => {
                    self.check_only_with(entry, known, &kinds);
                    self.check_value(&mut entry.node, &known.kind, &inner, Some(entry.span));
                }
            }
        }
        for known in table.keys.iter().filter(|known| known.presence == Presence::Required) {
            if !entries.iter().any(|entry| entry.key == known.name) {
                self.diagnostics.report(span, format!("{} requires `{}`", quote_path(path), known.name));
            }
        }
        self.check_one_of(span, table, &kinds, path);
    }

    /// Checks that exactly one key of `Table::one_of` is set.
    fn check_one_of(&mut self, span: Span, table: &Table, kinds: &[&str], path: &str) {
        let is_supported =
            |kind: &&&str| table.keys.iter().any(|key| key.name == **kind && key.kind.is_supported());
        let known: Vec<&str> = table.one_of.iter().filter(is_supported).copied().collect();
        match kinds {
            [] if !table.one_of.is_empty() => {
                let message = format!("{} requires one of {}", quote_path(path), join_or(&known));
                self.diagnostics.report(span, message);
            }
            [_] | [] => {}
            several => {
                let message =
                    format!("{} has {}; only one of them is allowed", quote_path(path), join_and(several));
                self.diagnostics.report(span, message);
            }
        }
    }

    fn report_unknown_key(&mut self, entry: &TableEntry, table: &Table, path: &str) {
        let names = || table.keys.iter().filter(|key| key.kind.is_supported()).map(|key| key.name);
        let hint = match suggest(&entry.key, names()) {
            Some(similar) => format!("; did you mean `{similar}`?"),
            None => format!("; known keys: {}", join_and(&names().collect::<Vec<_>>())),
        };
        self.diagnostics
            .report(entry.span, format!("unknown key `{}` in {}{hint}", entry.key, quote_path(path)));
    }

    fn check_only_with(&mut self, entry: &TableEntry, key: &Key, kinds: &[&str]) {
        if let ([kind], false) = (kinds, key.only_with.is_empty())
            && !key.only_with.contains(kind)
        {
            let message =
                format!("`{}` cannot be used with `{kind}`, only with {}", key.name, join_or(key.only_with));
            self.diagnostics.report(entry.span, message);
        }
    }

    pub(super) fn check_value(&mut self, node: &mut Node, kind: &Kind, path: &str, key: Option<Span>) {
        if let Kind::Planned(instead) | Kind::Unsupported(instead) = kind {
            let suffix = if matches!(kind, Kind::Planned(_)) { " yet" } else { "" };
            let message = format!("{} is not available{suffix}: {instead}", last_key(path));
            self.diagnostics.report(key.unwrap_or(node.span), message);
            return;
        }
        self.expand(node);
        if node.value == NodeValue::Invalid {
            return;
        }
        match kind {
            Kind::Flag => {
                self.expect_value(node, path, "true or false", |value| matches!(value, NodeValue::Flag(_)))
            }
            Kind::Integer(min, max) => self.check_integer(node, path, *min, *max),
            Kind::Text | Kind::Path | Kind::PackOnly => {
                self.expect_value(node, path, "a string", |value| matches!(value, NodeValue::Text(_)))
            }
            Kind::Secret => self.check_secret(node, path),
            Kind::Duration => self.expect_value(
                node,
                path,
                "a duration such as \"20s\" or \"5m\"",
                |value| matches!(value, NodeValue::Text(text) if units::parse_duration(text).is_some()),
            ),
            Kind::Size => {
                self.expect_value(node, path, "a size such as \"64KiB\" or \"4MiB\"", |value| match value {
                    NodeValue::Text(text) => units::parse_size(text).is_some(),
                    NodeValue::Integer(bytes) => *bytes >= 0,
                    _ => false,
                })
            }
            Kind::Rate => self.expect_value(
                node,
                path,
                "a rate such as \"600/min\", \"10/s\" or \"100/h\"",
                |value| matches!(value, NodeValue::Text(text) if text.parse::<toolgate::guard::Rate>().is_ok()),
            ),
            Kind::Choice(choices) => self.check_choice(node, path, choices),
            Kind::List(inner) => match &mut node.value {
                NodeValue::List(items) => {
                    for (n, item) in items.iter_mut().enumerate() {
                        self.check_value(item, inner, &join_path(path, &n.to_string()), None);
                    }
                }
                _ => self.report_mismatch(node, "a list", path),
            },
            Kind::OneOrMany(inner) => match &node.value {
                NodeValue::List(_) => self.check_value(node, &Kind::List(inner), path, key),
                _ => self.check_value(node, inner, path, key),
            },
            Kind::Map(inner) => match &mut node.value {
                NodeValue::Table(entries) => {
                    for entry in entries {
                        self.check_value(
                            &mut entry.node,
                            inner,
                            &join_path(path, &entry.key),
                            Some(entry.span),
                        );
                    }
                }
                _ => self.report_mismatch(node, "a table", path),
            },
            Kind::Table(table) => self.check_table(node, table, path),
            Kind::Either(kinds) => match kinds.iter().find(|kind| matches_kind(&node.value, kind)) {
                Some(kind) => self.check_value(node, kind, path, key),
                None => {
                    let choices: Vec<&str> = kinds.iter().map(kind_name).collect();
                    self.report_mismatch(node, &choices.join(" or "), path);
                }
            },
            Kind::Any => self.expand_all(node),
            Kind::Planned(_) | Kind::Unsupported(_) => {}
        }
    }

    /// Expands the strings of a value whose structure is not checked.
    fn expand_all(&mut self, node: &mut Node) {
        self.expand(node);
        match &mut node.value {
            NodeValue::List(items) => items.iter_mut().for_each(|item| self.expand_all(item)),
            NodeValue::Table(entries) => {
                entries.iter_mut().for_each(|entry| self.expand_all(&mut entry.node))
            }
            _ => {}
        }
    }

    fn expand(&mut self, node: &mut Node) {
        let NodeValue::Text(text) = &node.value else {
            return;
        };
        if node.is_secret {
            return;
        }
        let folder: &Path = self.files.folder(node.span.file);
        for file in referenced_files(text) {
            self.secret_files.extend(FileStamp::with_missing_ancestors(&folder.join(file)));
        }
        let diagnostics = &mut *self.diagnostics;
        match expand(text, folder, self.variables, |secret| diagnostics.add_secret(secret)) {
            Ok(None) => {}
            Ok(Some(expanded)) => {
                node.value = NodeValue::Text(expanded);
                node.is_secret = true;
            }
            Err(message) => {
                self.diagnostics.report(node.span, message);
                node.value = NodeValue::Invalid;
            }
        }
    }

    fn expect_value(
        &mut self,
        node: &Node,
        path: &str,
        expected: &str,
        is_valid: impl Fn(&NodeValue) -> bool,
    ) {
        if !is_valid(&node.value) {
            self.report_mismatch(node, expected, path);
        }
    }

    fn report_mismatch(&mut self, node: &Node, expected: &str, path: &str) {
        if node.value == NodeValue::Invalid {
            return;
        }
        let found = match (&node.value, node.is_secret) {
            (NodeValue::Text(text), false) if text.chars().count() <= 40 => format!("{text:?}"),
            (NodeValue::Integer(integer), _) => integer.to_string(),
            _ => node.type_name().to_owned(),
        };
        self.diagnostics.report(node.span, format!("{} must be {expected}, not {found}", last_key(path)));
    }

    fn check_integer(&mut self, node: &Node, path: &str, min: i64, max: i64) {
        let expected = if min == max { format!("{min}") } else { format!("an integer from {min} to {max}") };
        let range = min..=max;
        self.expect_value(
            node,
            path,
            &expected,
            |value| matches!(value, NodeValue::Integer(n) if range.contains(n)),
        );
    }

    fn check_secret(&mut self, node: &Node, path: &str) {
        match &node.value {
            NodeValue::Text(text) if text.is_empty() => {
                self.diagnostics.report(node.span, format!("{} must not be empty", last_key(path)));
            }
            NodeValue::Text(_) => {}
            _ => self.report_mismatch(node, "a string", path),
        }
    }

    fn check_choice(&mut self, node: &Node, path: &str, choices: &[&'static str]) {
        let NodeValue::Text(text) = &node.value else {
            self.report_mismatch(node, &join_or(choices), path);
            return;
        };
        if choices.contains(&text.as_str()) {
            return;
        }
        let found = if node.is_secret { "this value".to_owned() } else { format!("{text:?}") };
        let hint = match suggest(text, choices.iter().copied()) {
            Some(similar) if !node.is_secret => format!("; did you mean {similar:?}?"),
            _ => String::new(),
        };
        self.diagnostics
            .report(node.span, format!("{} must be {}, not {found}{hint}", last_key(path), join_or(choices)));
    }
}

/// Merges a tree into another one. A key that both have is an error, unless its table can be merged.
pub(crate) fn merge(into: &mut Node, from: Node, kind: &Kind, path: &str, diagnostics: &mut Diagnostics) {
    let table = match kind {
        Kind::Table(table) if table.is_mergeable => Some(*table),
        Kind::Map(_) => None,
        _ => return,
    };
    let (NodeValue::Table(known), NodeValue::Table(more)) = (&mut into.value, from.value) else {
        return;
    };
    for entry in more {
        let inner = join_path(path, &entry.key);
        let Some(existing) = known.iter_mut().find(|known| known.key == entry.key) else {
            known.push(entry);
            continue;
        };
        let inner_kind = match (table, kind) {
            (Some(table), _) => table.keys.iter().find(|key| key.name == entry.key).map(|key| &key.kind),
            (None, Kind::Map(inner)) => Some(*inner),
            _ => None,
        };
        match inner_kind {
            Some(inner_kind @ Kind::Map(_)) => {
                merge(&mut existing.node, entry.node, inner_kind, &inner, diagnostics)
            }
            Some(inner_kind @ Kind::Table(table)) if table.is_mergeable => {
                merge(&mut existing.node, entry.node, inner_kind, &inner, diagnostics);
            }
            _ => {
                let message = format!("{} is set in two files", quote_path(&inner));
                diagnostics.report_with_related(entry.span, message, existing.span, "first set here");
            }
        }
    }
}

fn matches_kind(value: &NodeValue, kind: &Kind) -> bool {
    match kind {
        Kind::Any => matches!(value, NodeValue::Table(_)),
        Kind::Table(_) | Kind::Map(_) => matches!(value, NodeValue::Table(_)),
        Kind::List(_) => matches!(value, NodeValue::List(_)),
        Kind::Flag => matches!(value, NodeValue::Flag(_)),
        Kind::Integer(..) => matches!(value, NodeValue::Integer(_)),
        _ => matches!(value, NodeValue::Text(_)),
    }
}

fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Any | Kind::Table(_) | Kind::Map(_) => "a table",
        Kind::List(_) => "a list",
        Kind::Flag => "true or false",
        Kind::Integer(..) => "an integer",
        _ => "a string",
    }
}

/// The last part of a path, as shown in messages.
fn last_key(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((list, n)) if n.bytes().all(|byte| byte.is_ascii_digit()) => {
            let list = list.rsplit('.').next().unwrap_or(list);
            format!("`{list}[{n}]`")
        }
        Some((_, key)) => format!("`{key}`"),
        None => format!("`{path}`"),
    }
}

fn join_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

pub(crate) fn quote_path(path: &str) -> String {
    if path.is_empty() { "the file".to_owned() } else { format!("`{path}`") }
}

pub(crate) fn join_and(choices: &[&str]) -> String {
    join_quoted(choices, "and")
}

pub(crate) fn join_or(choices: &[&str]) -> String {
    join_quoted(choices, "or")
}

fn join_quoted(choices: &[&str], conjunction: &str) -> String {
    let quoted: Vec<String> = choices.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} {conjunction} {last}", before.join(", ")),
        None => String::new(),
    }
}
