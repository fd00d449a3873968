//! The reference of every key, written from the tables of keys.

use std::fmt::Write as _;

use super::keys::{Key, Kind, Presence, ROOT, Table};

const INTRODUCTION: &str = "# Every key of a configuration

Written by `toolgate reference` from the tables that files are checked against. The guide to begin with is
[program.md](../guide/program.md).

A file is TOML. A key that is not here is an error, and so is a value of another kind; everything that is wrong is told at
once, with its place. Texts may contain `${NAME}` (a variable; not set or empty is an error), `${NAME:-otherwise}` and
`${file:path}` (a file, without the line break at its end; empty is an error); `$${` is `${`. Paths begin where the file is
that names them. Durations are written `500ms`, `20s`, `1h 30m`; sizes `64KiB`, `4MiB`; rates `600/min`, `10/s`.

## Arguments

`args` names what a tool, template or prompt is given. The short way is a text:

| written | means |
|---|---|
| `\"string\"` | a text that must be given; also `integer`, `number`, `boolean`, `array`, `object` |
| `\"string?\"` | one that may be left out |
| `\"integer=20\"` | one that is 20 unless given |
| `\"string[]\"` | a list of texts |

The long way is a table of JSON Schema: `{ type = \"string\", minLength = 2, description = \"Search text\" }`. Whatever has
a `default`, or `required = false`, may be left out. `enum` alone is enough: `{ enum = [\"web\", \"api\"] }`.

`from` takes an argument from the call instead of the model, which neither sees it nor can send it: `principal.sub` is the
caller's proven name, `principal.NAME` an attribute of theirs, `header.NAME` a header of the request. A call that lacks it
is refused, unless there is a `default`.

## Tables
";

/// The whole page.
pub(crate) fn text() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut done: Vec<&'static str> = Vec::new();
    let mut todo: Vec<&'static Table> = vec![&ROOT];
    while !todo.is_empty() {
        let of = todo.remove(0);
        if done.contains(&of.path) {
            continue;
        }
        done.push(of.path);
        write_section(&mut page, of);
        let mut inner = Vec::new();
        of.keys.iter().for_each(|key| collect_tables(&key.kind, &mut inner));
        // Tables of a table stand right behind it.
        inner.append(&mut todo);
        todo = inner;
    }
    page
}

fn write_section(page: &mut String, of: &Table) {
    let title = if of.path.is_empty() { "The file".to_owned() } else { format!("`{}`", of.path) };
    // Writing to a text cannot fail.
    let _ = write!(page, "\n### {title}\n\n{}\n", of.description);
    let _ = write!(page, "\n| key | takes | unless said | what it is |\n|---|---|---|---|\n");
    for key in of.keys.iter().filter(|key| key.kind.is_supported()) {
        let otherwise = match key.presence {
            Presence::Required => "needed".to_owned(),
            Presence::Optional => String::new(),
            Presence::WithDefault(default) => format!("`{default}`"),
            Presence::DefaultByKind(defaults) => {
                let each = defaults.iter().map(|(kinds, default)| {
                    let kinds: Vec<String> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
                    format!("`{default}` with {}", kinds.join(", "))
                });
                each.collect::<Vec<_>>().join("; ")
            }
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {otherwise} | {} |",
            key.name,
            kind_text(&key.kind),
            key_description(key)
        );
    }
    let later: Vec<(&str, &str)> = of
        .keys
        .iter()
        .filter_map(|key| match key.kind {
            Kind::Planned(instead) | Kind::Unsupported(instead) => Some((key.name, instead)),
            _ => None,
        })
        .collect();
    if !later.is_empty() {
        page.push_str("\nNot available, and refused:\n\n");
        for (name, instead) in later {
            let _ = writeln!(page, "- `{name}`: {instead}.");
        }
    }
}

fn key_description(key: &Key) -> String {
    let with: Vec<String> = key.only_with.iter().map(|kind| format!("`{kind}`")).collect();
    let only = if with.is_empty() { String::new() } else { format!(" Only with {}.", with.join(", ")) };
    format!("{}{only}", key.description).replace('|', "\\|")
}

fn kind_text(kind: &Kind) -> String {
    match kind {
        Kind::Flag => "true or false".into(),
        Kind::Integer(least, most) if least == most => format!("`{least}`"),
        Kind::Integer(least, most) => format!("{least} to {most}"),
        Kind::Text => "text".into(),
        Kind::Secret => "secret text".into(),
        Kind::Duration => "duration".into(),
        Kind::Size => "size".into(),
        Kind::Rate => "rate".into(),
        Kind::Path => "path".into(),
        Kind::Choice(words) => {
            words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
        }
        Kind::List(inner) => format!("list of {}", kind_text(inner)),
        Kind::OneOrMany(inner) => format!("{0}, or list of {0}", kind_text(inner)),
        Kind::Map(inner) => format!("table of {}, by name", kind_text(inner)),
        Kind::Table(table) if table.path.starts_with('[') => format!("`{}`", table.path),
        Kind::Table(table) => format!("table `{}`", table.path),
        Kind::Either(kinds) => kinds.iter().map(kind_text).collect::<Vec<_>>().join(", or "),
        Kind::Any => "anything".into(),
        Kind::PackOnly | Kind::Planned(_) | Kind::Unsupported(_) => String::new(),
    }
}

fn collect_tables(kind: &'static Kind, found: &mut Vec<&'static Table>) {
    match kind {
        Kind::Table(table) => found.push(table),
        Kind::List(inner) | Kind::OneOrMany(inner) | Kind::Map(inner) => collect_tables(inner, found),
        Kind::Either(kinds) => kinds.iter().for_each(|kind| collect_tables(kind, found)),
        _ => {}
    }
}
