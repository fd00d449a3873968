//! Adds the entries of packs to the servers that name them, before the tree is checked.

use toolgate::Profile;

use super::check::join_and;
use super::diagnostics::{ConfigFiles, Diagnostics, suggest};
use super::tree::{self, Node, NodeValue, TableEntry};
use crate::pack::{self, PACKS, Pack};

/// The tables of a server that a pack can have entries for.
const SECTIONS: [&str; 4] = ["tools", "resources", "templates", "prompts"];

/// Keys that select the backend or content of an entry.
const KIND_KEYS: [&str; 9] =
    ["http", "sql", "command", "text", "template", "builtin", "file", "files", "messages"];

/// Adds the entries of packs to all servers. Entries of the file take precedence.
pub(super) fn expand_packs(tree: &mut Node, files: &mut ConfigFiles, diagnostics: &mut Diagnostics) {
    let Some(servers) = tree.get_mut("servers") else { return };
    let NodeValue::Table(servers) = &mut servers.value else { return };
    for server in servers {
        for request in requested_packs(&server.node) {
            match pack::pack_by_name(&request.key) {
                Some(pack) => add_pack(&mut server.node, pack, &request, files, diagnostics),
                None => {
                    let names: Vec<&str> = PACKS.iter().map(|pack| pack.name).collect();
                    let hint = match suggest(&request.key, names.iter().copied()) {
                        Some(similar) => format!("did you mean `{similar}`?"),
                        None => format!("known packs: {}", join_and(&names)),
                    };
                    diagnostics.report(request.span, format!("there is no pack `{}`; {hint}", request.key));
                }
            }
        }
    }
}

/// The packs that a server names, with their settings.
fn requested_packs(server: &Node) -> Vec<TableEntry> {
    let Some(packs) = server.get("packs") else { return Vec::new() };
    let entry = |item: &Node| {
        let key = item.as_text()?.to_owned();
        Some(TableEntry { key, span: item.span, node: Node { span: item.span, ..Node::empty() } })
    };
    match &packs.value {
        NodeValue::List(items) => items.iter().filter_map(entry).collect(),
        _ => packs.entries().to_vec(),
    }
}

fn add_pack(
    server: &mut Node,
    pack: &Pack,
    request: &TableEntry,
    files: &mut ConfigFiles,
    diagnostics: &mut Diagnostics,
) {
    let settings = &request.node;
    if pack.needs_connection && settings.get("on").is_none() {
        let message = format!(
            "the pack `{0}` requires a connection; set `on` in `[servers.NAME.packs.{0}]`",
            pack.name
        );
        diagnostics.report(request.span, message);
        return;
    }
    let phases = selected_phases(pack, settings, diagnostics);
    let included = Profile::new(pack.name).include_tools(settings.texts("include"));
    let excluded = Profile::new(pack.name).exclude_tools(settings.texts("exclude"));
    let file = files.add_builtin(pack.name, pack.toml);
    let mut text = tree::parse(files, file, diagnostics);
    check_patterns(pack, settings, &text, diagnostics);
    for part in SECTIONS {
        let Some(TableEntry { span: at, node, .. }) = text.remove(part) else { continue };
        let NodeValue::Table(entries) = node.value else { continue };
        if server.get(part).is_none() {
            server.insert(TableEntry {
                key: part.to_owned(),
                span: at,
                node: Node { span: at, ..Node::empty() },
            });
        }
        let Some(NodeValue::Table(known)) = server.get_mut(part).map(|node| &mut node.value) else {
            continue;
        };
        for mut entry in entries {
            let phase = entry.node.remove("phase");
            let is_on = phase.as_ref().and_then(|phase| phase.node.as_text());
            let is_on = is_on.is_none_or(|phase| phases.iter().any(|on| on == phase));
            // A resource that shares its built-in with a tool can also be selected by the name of the tool.
            let builtin = entry.node.text("builtin").unwrap_or_else(|| entry.key.clone());
            let names = [&entry.key, &builtin];
            let is_chosen = names.iter().any(|name| included.allows_tool(name))
                && names.iter().all(|name| excluded.allows_tool(name));
            if !is_on || !is_chosen {
                continue;
            }
            set_connection(&mut entry.node, settings.get("on"));
            match known.iter_mut().find(|own| own.key == entry.key) {
                Some(own) => merge_entry(&mut own.node, entry.node),
                None => known.push(entry),
            }
        }
    }
}

/// Reports patterns that match nothing: they are typos, and an entry that should be excluded would be served.
fn check_patterns(pack: &Pack, settings: &Node, text: &Node, diagnostics: &mut Diagnostics) {
    let entries = || SECTIONS.iter().flat_map(|part| text.entries_of(part)).map(|entry| entry.key.as_str());
    for key in ["include", "exclude"] {
        let Some(node) = settings.get(key) else { continue };
        let items = if node.as_text().is_some() { std::slice::from_ref(node) } else { node.items() };
        for item in items {
            let Some(pattern) = item.as_text() else { continue };
            let matching = Profile::new(pack.name).include_tools([pattern]);
            if entries().any(|name| matching.allows_tool(name)) {
                continue;
            }
            let hint = match suggest(pattern, entries()) {
                Some(similar) => format!("; did you mean `{similar}`?"),
                None => String::new(),
            };
            let message =
                format!("`{key}` pattern {pattern:?} matches nothing in the pack `{}`{hint}", pack.name);
            diagnostics.report(item.span, message);
        }
    }
}

/// Adds the keys of a pack's entry to the entry of the file, unless the file sets them. An entry of the file with its own
/// backend stays as it is.
fn merge_entry(own: &mut Node, pack_entry: Node) {
    let has_backend = KIND_KEYS.iter().any(|kind| own.get(kind).is_some());
    let NodeValue::Table(entries) = pack_entry.value else { return };
    for entry in entries {
        if !has_backend && own.get(&entry.key).is_none() {
            own.insert(entry);
        }
    }
}

/// The phases to add: those of the settings, or the default ones.
fn selected_phases(pack: &Pack, settings: &Node, diagnostics: &mut Diagnostics) -> Vec<String> {
    let Some(wanted) = settings.get("phases") else {
        let defaults = pack.phases.iter().filter(|(_, is_default)| *is_default);
        return defaults.map(|(name, _)| (*name).to_owned()).collect();
    };
    let names: Vec<&str> = pack.phases.iter().map(|(name, _)| *name).collect();
    for item in wanted.items() {
        if let Some(name) = item.as_text()
            && !names.contains(&name)
        {
            let message = match names.as_slice() {
                [] => format!("the pack `{}` has no phases", pack.name),
                names => {
                    format!("the pack `{}` has no phase `{name}`; it has {}", pack.name, join_and(names))
                }
            };
            diagnostics.report(item.span, message);
        }
    }
    settings.texts("phases")
}

/// Replaces `on = "@"` by the connection that the file names.
fn set_connection(node: &mut Node, on: Option<&Node>) {
    match &mut node.value {
        NodeValue::Table(entries) => {
            for entry in entries {
                match on {
                    Some(on) if entry.key == "on" && entry.node.as_text() == Some("@") => {
                        entry.node = on.clone();
                    }
                    _ => set_connection(&mut entry.node, on),
                }
            }
        }
        NodeValue::List(items) => items.iter_mut().for_each(|item| set_connection(item, on)),
        _ => {}
    }
}
