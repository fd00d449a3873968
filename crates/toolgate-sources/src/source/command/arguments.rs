//! The elements of an argument list: which arguments they take, and how they are expanded.

use std::path::Path;

use serde_json::{Map, Value};
use toolgate::HandlerError;

use super::ArgvItem;
use crate::source::placeholders::{Placeholders, argument_text};

#[derive(Debug)]
pub(super) struct ArgvElement {
    /// The parts of a group are used as a whole or left out.
    pub(super) parts: Vec<Placeholders>,
    pub(super) is_group: bool,
    /// Whether the program would parse a value with a leading dash as an option.
    pub(super) accepts_options: bool,
}

/// Limits for arguments: operating systems reject more, with unclear errors.
const MAX_ARGUMENT_BYTES: usize = 128 * 1024;
const MAX_ARGUMENTS: usize = 256;
/// Replaces the placeholders of all elements.
pub(super) fn expand_arguments(
    elements: &[ArgvElement],
    arguments: &Map<String, Value>,
) -> Result<Vec<String>, HandlerError> {
    let mut argv = Vec::new();
    for element in elements {
        let expanded: Option<Vec<Vec<String>>> =
            element.parts.iter().map(|placeholders| expand_element(placeholders, arguments)).collect();
        let expanded = match expanded {
            Some(expanded) => expanded,
            // A missing argument removes its element, or the whole group.
            None if element.is_group
                || element.parts.iter().all(|placeholders| placeholders.sole_name().is_some()) =>
            {
                continue;
            }
            None => {
                let missing = element
                    .parts
                    .iter()
                    .flat_map(Placeholders::names)
                    .find(|name| !is_present(arguments, name));
                return Err(HandlerError::new(format!("`{}` is missing", missing.unwrap_or_default())));
            }
        };
        for (placeholders, texts) in element.parts.iter().zip(expanded) {
            for text in texts {
                let name = placeholders.names().next();
                if let Some(error) = name.and_then(|_| {
                    argument_error(&text, element.accepts_options && placeholders.leading_name().is_some())
                }) {
                    return Err(HandlerError::new(format!(
                        "invalid argument `{}`: {error}",
                        name.unwrap_or_default()
                    )));
                }
                argv.push(text);
            }
        }
    }
    if argv.len() > MAX_ARGUMENTS {
        return Err(HandlerError::new(format!("invalid argument: more than {MAX_ARGUMENTS} of them")));
    }
    Ok(argv)
}

/// Interpreters, and the letters of their options that are followed by a script.
const INTERPRETERS: [(&str, &str); 19] = [
    ("sh", "c"),
    ("bash", "c"),
    ("dash", "c"),
    ("ash", "c"),
    ("zsh", "c"),
    ("ksh", "c"),
    ("mksh", "c"),
    ("fish", "c"),
    ("csh", "c"),
    ("tcsh", "c"),
    ("busybox", "c"),
    ("pwsh", "c"),
    ("python", "c"),
    ("perl", "eE"),
    ("ruby", "e"),
    ("node", "ep"),
    ("php", "r"),
    ("lua", "e"),
    ("osascript", "e"),
];

/// Whether this element is a script that an interpreter runs, such as the one after `-c` of a shell.
pub(super) fn is_script(argv: &[ArgvItem], program: &Path, index: usize) -> bool {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    let Some((_, options)) = INTERPRETERS.iter().find(|(known, _)| *known == name) else { return false };
    let previous = index.checked_sub(1).and_then(|previous| argv.get(previous));
    let Some(ArgvItem::Single(previous)) = previous else { return false };
    match previous.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => letters.contains(|letter| options.contains(letter)),
        _ => false,
    }
}

pub(super) fn script_message(name: &str) -> String {
    format!(
        "`{{{name}}}` would become part of a script: write `\"$1\"` in the script and add `{{{name}}}` as a separate element after it"
    )
}

pub(super) fn unknown_argument_message(placeholders: &Placeholders, arguments: &Value) -> Option<String> {
    let known = arguments["properties"].as_object();
    let name = placeholders.names().find(|name| !known.is_some_and(|known| known.contains_key(*name)))?;
    Some(format!(
        "unknown argument `{name}`; add it to `args`, or write `{{{{{name}}}}}` for a literal `{{{name}}}`"
    ))
}

/// Whether the schema of this argument permits a leading dash.
pub(super) fn may_begin_with_dash(arguments: &Value, name: &str) -> bool {
    let schema = &arguments["properties"][name];
    let values =
        schema["enum"].as_array().cloned().or_else(|| schema.get("const").map(|one| vec![one.clone()]));
    if let Some(values) = values {
        return values.iter().filter_map(argument_text).any(|text| text.starts_with('-'));
    }
    match schema["type"].as_str() {
        Some("boolean") => false,
        Some("integer" | "number") => !["minimum", "exclusiveMinimum"]
            .iter()
            .any(|key| schema[*key].as_f64().is_some_and(|least| least >= 0.0)),
        // Values are checked against the pattern at each call.
        Some("string") => !schema["pattern"].is_string(),
        _ => true,
    }
}

pub(super) fn leading_dash_message(name: &str) -> String {
    format!(
        "`{{{name}}}` may begin with `-`, and the program would parse it as an option: put \"--\" before it, \
         give the argument an `enum` or a `pattern`, or set `allow_leading_dash = true`"
    )
}

/// Expands one placeholder text. A list in a sole placeholder becomes several elements.
fn expand_element(placeholders: &Placeholders, arguments: &Map<String, Value>) -> Option<Vec<String>> {
    if let Some(Value::Array(items)) = placeholders.sole_name().and_then(|name| arguments.get(name)) {
        return Some(items.iter().filter_map(argument_text).collect());
    }
    placeholders.render(arguments).map(|text| vec![text])
}

fn is_present(arguments: &Map<String, Value>, name: &str) -> bool {
    arguments.get(name).is_some_and(|value| !value.is_null())
}

fn argument_error(text: &str, options_allowed: bool) -> Option<String> {
    if text.contains('\0') {
        return Some("it contains a NUL character".into());
    }
    if text.len() > MAX_ARGUMENT_BYTES {
        return Some(format!("it has more than {MAX_ARGUMENT_BYTES} bytes"));
    }
    (options_allowed && text.starts_with('-')).then(|| "it begins with `-`".into())
}
