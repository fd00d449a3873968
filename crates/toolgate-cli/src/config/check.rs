//! A tree against the tables of keys: everything that is there is known, has its kind, and is expanded.

use std::path::Path;

use super::beside::Beside;
use super::expand::{Variables, expand, files};
use super::human;
use super::keys::{Key, Kind, Need, Table};
use super::text::{Place, Texts, Troubles, meant};
use super::tree::{Entry, Node, Worth};

/// Looks through a whole configuration.
pub(crate) struct Check<'a> {
    pub(crate) texts: &'a Texts,
    pub(crate) variables: Variables<'a>,
    pub(crate) troubles: &'a mut Troubles,
    /// Files with secrets, as they were before they were read.
    pub(crate) secrets: &'a mut Vec<Beside>,
}

impl Check<'_> {
    /// A table: unknown keys, missing ones, and everything in it.
    pub(crate) fn table(&mut self, node: &mut Node, table: &Table, path: &str) {
        let at = node.at;
        let Worth::Table(entries) = &mut node.worth else {
            self.misfit(node, "a table", path);
            return;
        };
        let kinds: Vec<&'static str> =
            table.one_of.iter().copied().filter(|kind| entries.iter().any(|e| e.key == *kind)).collect();
        for entry in entries.iter_mut() {
            let inner = join(path, &entry.key);
            match table.keys.iter().find(|known| known.name == entry.key) {
                None => self.unknown(entry, table, path),
                Some(Key { kind: Kind::Inside, .. }) if !self.texts.is_inside(entry.at.file) => {
                    self.unknown(entry, table, path);
                }
                Some(known) => {
                    self.beside(entry, known, &kinds);
                    self.value(&mut entry.node, &known.kind, &inner, Some(entry.at));
                }
            }
        }
        for known in table.keys.iter().filter(|known| known.need == Need::Must) {
            if !entries.iter().any(|entry| entry.key == known.name) {
                self.troubles.say(at, format!("{} needs `{}`", shown(path), known.name));
            }
        }
        self.kind_of(at, table, &kinds, path);
    }

    /// Exactly one key says what kind of thing it is.
    fn kind_of(&mut self, at: Place, table: &Table, kinds: &[&str], path: &str) {
        let is_there = |kind: &&&str| table.keys.iter().any(|key| key.name == **kind && key.kind.is_there());
        let known: Vec<&str> = table.one_of.iter().filter(is_there).copied().collect();
        match kinds {
            [] if !table.one_of.is_empty() => {
                let said = format!("{} does not say what it is: give it one of {}", shown(path), or(&known));
                self.troubles.say(at, said);
            }
            [_] | [] => {}
            several => {
                let said = format!("{} has {}, but can be only one of them", shown(path), and(several));
                self.troubles.say(at, said);
            }
        }
    }

    fn unknown(&mut self, entry: &Entry, table: &Table, path: &str) {
        let names = || table.keys.iter().filter(|key| key.kind.is_there()).map(|key| key.name);
        let hint = match meant(&entry.key, names()) {
            Some(meant) => format!("; did you mean `{meant}`?"),
            None => format!("; there are {}", and(&names().collect::<Vec<_>>())),
        };
        self.troubles.say(entry.at, format!("unknown key `{}` in {}{hint}", entry.key, shown(path)));
    }

    fn beside(&mut self, entry: &Entry, key: &Key, kinds: &[&str]) {
        if let ([kind], false) = (kinds, key.with.is_empty())
            && !key.with.contains(kind)
        {
            let said = format!("`{}` makes no sense with `{kind}`; it is for {}", key.name, and(key.with));
            self.troubles.say(entry.at, said);
        }
    }

    fn value(&mut self, node: &mut Node, kind: &Kind, path: &str, key: Option<Place>) {
        if let Kind::Later(instead) | Kind::Never(instead) = kind {
            let yet = if matches!(kind, Kind::Later(_)) { " yet" } else { "" };
            let said = format!("{} is not available{yet}: {instead}", last(path));
            self.troubles.say(key.unwrap_or(node.at), said);
            return;
        }
        self.expand(node);
        if node.worth == Worth::Unread {
            return;
        }
        match kind {
            Kind::Flag => self.fits(node, path, "true or false", |worth| matches!(worth, Worth::Flag(_))),
            Kind::Integer(least, most) => self.integer(node, path, *least, *most),
            Kind::Text | Kind::Path | Kind::Inside => {
                self.fits(node, path, "a text", |worth| matches!(worth, Worth::Text(_)))
            }
            Kind::Secret => self.secret(node, path),
            Kind::Duration => self.fits(
                node,
                path,
                "a duration such as \"20s\" or \"5m\"",
                |worth| matches!(worth, Worth::Text(text) if human::duration(text).is_some()),
            ),
            Kind::Size => {
                self.fits(node, path, "a size such as \"64KiB\" or \"4MiB\"", |worth| match worth {
                    Worth::Text(text) => human::size(text).is_some(),
                    Worth::Integer(bytes) => *bytes >= 0,
                    _ => false,
                })
            }
            Kind::Rate => self.fits(
                node,
                path,
                "a rate such as \"600/min\", \"10/s\" or \"100/h\"",
                |worth| matches!(worth, Worth::Text(text) if text.parse::<toolgate::Rate>().is_ok()),
            ),
            Kind::Choice(words) => self.choice(node, path, words),
            Kind::List(inner) => match &mut node.worth {
                Worth::List(items) => {
                    for (n, item) in items.iter_mut().enumerate() {
                        self.value(item, inner, &join(path, &n.to_string()), None);
                    }
                }
                _ => self.misfit(node, "a list", path),
            },
            Kind::Many(inner) => match &node.worth {
                Worth::List(_) => self.value(node, &Kind::List(inner), path, key),
                _ => self.value(node, inner, path, key),
            },
            Kind::Named(inner) => match &mut node.worth {
                Worth::Table(entries) => {
                    for entry in entries {
                        self.value(&mut entry.node, inner, &join(path, &entry.key), Some(entry.at));
                    }
                }
                _ => self.misfit(node, "a table", path),
            },
            Kind::Table(table) => self.table(node, table, path),
            Kind::Either(kinds) => match kinds.iter().find(|kind| looks_like(&node.worth, kind)) {
                Some(kind) => self.value(node, kind, path, key),
                None => {
                    let words: Vec<&str> = kinds.iter().map(name_of).collect();
                    self.misfit(node, &words.join(" or "), path);
                }
            },
            Kind::Any => self.any(node),
            Kind::Later(_) | Kind::Never(_) => {}
        }
    }

    /// Whatever is in it, variables are put in.
    fn any(&mut self, node: &mut Node) {
        self.expand(node);
        match &mut node.worth {
            Worth::List(items) => items.iter_mut().for_each(|item| self.any(item)),
            Worth::Table(entries) => entries.iter_mut().for_each(|entry| self.any(&mut entry.node)),
            _ => {}
        }
    }

    fn expand(&mut self, node: &mut Node) {
        let Worth::Text(text) = &node.worth else {
            return;
        };
        if node.is_secret {
            return;
        }
        let folder: &Path = self.texts.folder(node.at.file);
        for file in files(text) {
            self.secrets.extend(Beside::way(&folder.join(file)));
        }
        let troubles = &mut *self.troubles;
        match expand(text, folder, self.variables, |secret| troubles.hide(secret)) {
            Ok(None) => {}
            Ok(Some(expanded)) => {
                node.worth = Worth::Text(expanded);
                node.is_secret = true;
            }
            Err(said) => {
                self.troubles.say(node.at, said);
                node.worth = Worth::Unread;
            }
        }
    }

    fn fits(&mut self, node: &Node, path: &str, wanted: &str, fits: impl Fn(&Worth) -> bool) {
        if !fits(&node.worth) {
            self.misfit(node, wanted, path);
        }
    }

    fn misfit(&mut self, node: &Node, wanted: &str, path: &str) {
        if node.worth == Worth::Unread {
            return;
        }
        let got = match (&node.worth, node.is_secret) {
            (Worth::Text(text), false) if text.chars().count() <= 40 => format!("{text:?}"),
            (Worth::Integer(integer), _) => integer.to_string(),
            _ => node.what().to_owned(),
        };
        self.troubles.say(node.at, format!("{} must be {wanted}, not {got}", last(path)));
    }

    fn integer(&mut self, node: &Node, path: &str, least: i64, most: i64) {
        let wanted =
            if least == most { format!("{least}") } else { format!("an integer from {least} to {most}") };
        let range = least..=most;
        self.fits(node, path, &wanted, |worth| matches!(worth, Worth::Integer(n) if range.contains(n)));
    }

    fn secret(&mut self, node: &Node, path: &str) {
        match &node.worth {
            Worth::Text(text) if text.is_empty() => {
                self.troubles.say(node.at, format!("{} is empty; a secret must not be", last(path)));
            }
            Worth::Text(_) => {}
            _ => self.misfit(node, "a text", path),
        }
    }

    fn choice(&mut self, node: &Node, path: &str, words: &[&'static str]) {
        let Worth::Text(text) = &node.worth else {
            self.misfit(node, &or(words), path);
            return;
        };
        if words.contains(&text.as_str()) {
            return;
        }
        let got = if node.is_secret { "what it is".to_owned() } else { format!("{text:?}") };
        let hint = match meant(text, words.iter().copied()) {
            Some(meant) if !node.is_secret => format!("; did you mean {meant:?}?"),
            _ => String::new(),
        };
        self.troubles.say(node.at, format!("{} must be {}, not {got}{hint}", last(path), or(words)));
    }
}

/// Puts what another file says beside what is there. What both say is an error.
pub(crate) fn merge(into: &mut Node, from: Node, kind: &Kind, path: &str, troubles: &mut Troubles) {
    let table = match kind {
        Kind::Table(table) if table.is_shared => Some(*table),
        Kind::Named(_) => None,
        _ => return,
    };
    let (Worth::Table(known), Worth::Table(more)) = (&mut into.worth, from.worth) else {
        return;
    };
    for entry in more {
        let inner = join(path, &entry.key);
        let Some(there) = known.iter_mut().find(|known| known.key == entry.key) else {
            known.push(entry);
            continue;
        };
        let below = match (table, kind) {
            (Some(table), _) => table.keys.iter().find(|key| key.name == entry.key).map(|key| &key.kind),
            (None, Kind::Named(inner)) => Some(*inner),
            _ => None,
        };
        match below {
            Some(below @ Kind::Named(_)) => merge(&mut there.node, entry.node, below, &inner, troubles),
            Some(below @ Kind::Table(table)) if table.is_shared => {
                merge(&mut there.node, entry.node, below, &inner, troubles);
            }
            _ => {
                let said = format!("{} is said in two files", shown(&inner));
                troubles.say_also(entry.at, said, there.at, "it is said here already");
            }
        }
    }
}

fn looks_like(worth: &Worth, kind: &Kind) -> bool {
    match kind {
        Kind::Any => matches!(worth, Worth::Table(_)),
        Kind::Table(_) | Kind::Named(_) => matches!(worth, Worth::Table(_)),
        Kind::List(_) => matches!(worth, Worth::List(_)),
        Kind::Flag => matches!(worth, Worth::Flag(_)),
        Kind::Integer(..) => matches!(worth, Worth::Integer(_)),
        _ => matches!(worth, Worth::Text(_)),
    }
}

fn name_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Any | Kind::Table(_) | Kind::Named(_) => "a table",
        Kind::List(_) => "a list",
        Kind::Flag => "true or false",
        Kind::Integer(..) => "an integer",
        _ => "a text",
    }
}

/// The last part of a path, in words.
fn last(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((list, n)) if n.bytes().all(|byte| byte.is_ascii_digit()) => {
            let list = list.rsplit('.').next().unwrap_or(list);
            format!("`{list}[{n}]`")
        }
        Some((_, key)) => format!("`{key}`"),
        None => format!("`{path}`"),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

pub(crate) fn shown(path: &str) -> String {
    if path.is_empty() { "the file".to_owned() } else { format!("`{path}`") }
}

pub(crate) fn and(words: &[&str]) -> String {
    joined(words, "and")
}

pub(crate) fn or(words: &[&str]) -> String {
    joined(words, "or")
}

fn joined(words: &[&str], with: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} {with} {last}", before.join(", ")),
        None => String::new(),
    }
}
