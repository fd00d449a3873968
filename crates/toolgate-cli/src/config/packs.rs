//! Packs, unfolded: what they say is put beside what the file says, before anything is checked.

use toolgate::Profile;

use super::check::join_and;
use super::diagnostics::{ConfigFiles, Diagnostics, suggest};
use super::tree::{self, Node, NodeValue, TableEntry};
use crate::pack::{self, PACKS, Pack};

/// What of a pack can be among a server's own.
const SECTIONS: [&str; 4] = ["tools", "resources", "templates", "prompts"];

/// Keys that say what an entry does.
const KIND_KEYS: [&str; 9] =
    ["http", "sql", "command", "text", "template", "builtin", "file", "files", "messages"];

/// Puts the entries of all packs that servers name into those servers. What a file says itself stays as it is.
pub(super) fn expand_packs(tree: &mut Node, texts: &mut ConfigFiles, troubles: &mut Diagnostics) {
    let Some(servers) = tree.get_mut("servers") else { return };
    let NodeValue::Table(servers) = &mut servers.value else { return };
    for server in servers {
        for wish in requested_packs(&server.node) {
            match pack::pack_by_name(&wish.key) {
                Some(pack) => add_pack(&mut server.node, pack, &wish, texts, troubles),
                None => {
                    let names: Vec<&str> = PACKS.iter().map(|pack| pack.name).collect();
                    let hint = match suggest(&wish.key, names.iter().copied()) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => format!("known packs: {}", join_and(&names)),
                    };
                    troubles.report(wish.span, format!("there is no pack `{}`; {hint}", wish.key));
                }
            }
        }
    }
}

/// Names of packs, and what is said of each.
fn requested_packs(server: &Node) -> Vec<TableEntry> {
    let Some(packs) = server.get("packs") else { return Vec::new() };
    let of_name = |item: &Node| {
        let key = item.as_text()?.to_owned();
        Some(TableEntry { key, span: item.span, node: Node { span: item.span, ..Node::empty() } })
    };
    match &packs.value {
        NodeValue::List(items) => items.iter().filter_map(of_name).collect(),
        _ => packs.entries().to_vec(),
    }
}

fn add_pack(
    server: &mut Node,
    pack: &Pack,
    wish: &TableEntry,
    texts: &mut ConfigFiles,
    troubles: &mut Diagnostics,
) {
    let settings = &wish.node;
    if pack.needs_connection && settings.get("on").is_none() {
        let said = format!(
            "the pack `{0}` requires a connection; set `on` in `[servers.NAME.packs.{0}]`",
            pack.name
        );
        troubles.report(wish.span, said);
        return;
    }
    let phases = selected_phases(pack, settings, troubles);
    let included = Profile::new(pack.name).include_tools(settings.texts("include"));
    let others = Profile::new(pack.name).exclude_tools(settings.texts("exclude"));
    let file = texts.add_builtin(pack.name, pack.toml);
    let mut text = tree::parse(texts, file, troubles);
    check_patterns(pack, settings, &text, troubles);
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
            // What shows the same as a tool is chosen like that tool, whatever it is called.
            let builtin = entry.node.text("builtin").unwrap_or_else(|| entry.key.clone());
            let names = [&entry.key, &builtin];
            let is_chosen = names.iter().any(|name| included.allows_tool(name))
                && names.iter().all(|name| others.allows_tool(name));
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

/// A pattern that fits nothing is a slip of the pen: what it was to keep out would stay.
fn check_patterns(pack: &Pack, settings: &Node, text: &Node, troubles: &mut Diagnostics) {
    let entries = || SECTIONS.iter().flat_map(|part| text.entries_of(part)).map(|entry| entry.key.as_str());
    for key in ["include", "exclude"] {
        let Some(node) = settings.get(key) else { continue };
        let items = if node.as_text().is_some() { std::slice::from_ref(node) } else { node.items() };
        for item in items {
            let Some(pattern) = item.as_text() else { continue };
            let fitting = Profile::new(pack.name).include_tools([pattern]);
            if entries().any(|name| fitting.allows_tool(name)) {
                continue;
            }
            let hint = match suggest(pattern, entries()) {
                Some(meant) => format!("; did you mean `{meant}`?"),
                None => String::new(),
            };
            let said =
                format!("`{key}` pattern {pattern:?} matches nothing in the pack `{}`{hint}", pack.name);
            troubles.report(item.span, said);
        }
    }
}

/// What a file says of an entry of the pack, without saying what it does, takes the place of the pack's words; all else is
/// as the pack says. A file that says what it does has an entry of its own.
fn merge_entry(own: &mut Node, of_pack: Node) {
    let is_whole = KIND_KEYS.iter().any(|kind| own.get(kind).is_some());
    let NodeValue::Table(entries) = of_pack.value else { return };
    for entry in entries {
        if !is_whole && own.get(&entry.key).is_none() {
            own.insert(entry);
        }
    }
}

/// The parts that are wanted.
fn selected_phases(pack: &Pack, settings: &Node, troubles: &mut Diagnostics) -> Vec<String> {
    let Some(wanted) = settings.get("phases") else {
        let usual = pack.phases.iter().filter(|(_, is_usual)| *is_usual);
        return usual.map(|(name, _)| (*name).to_owned()).collect();
    };
    let names: Vec<&str> = pack.phases.iter().map(|(name, _)| *name).collect();
    for item in wanted.items() {
        if let Some(name) = item.as_text()
            && !names.contains(&name)
        {
            let said = match names.as_slice() {
                [] => format!("the pack `{}` has no phases", pack.name),
                names => {
                    format!("the pack `{}` has no phase `{name}`; it has {}", pack.name, join_and(names))
                }
            };
            troubles.report(item.span, said);
        }
    }
    settings.texts("phases")
}

/// `on = "@"` is the connection that the file names.
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
