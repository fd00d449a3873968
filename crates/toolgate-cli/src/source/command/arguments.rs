//! The elements of an argument list: which arguments they take, and how they are expanded.

use std::path::Path;

use serde_json::{Map, Value};
use toolgate::HandlerError;

use super::ArgvItem;
use crate::source::placeholders::{Placeholders, argument_text};

#[derive(Debug)]
pub(super) struct ArgvElement {
    /// There together or not at all.
    pub(super) parts: Vec<Placeholders>,
    pub(super) is_group: bool,
    /// The program takes what begins with a dash for an option here.
    pub(super) accepts_options: bool,
}

/// The largest argument, and how many there may be: systems refuse more, less clearly.
const MAX_ARGUMENT_BYTES: usize = 128 * 1024;
const MAX_ARGUMENTS: usize = 256;
/// Replaces the placeholders of all elements.
pub(super) fn expand_arguments(
    elements: &[ArgvElement],
    given: &Map<String, Value>,
) -> Result<Vec<String>, HandlerError> {
    let mut list = Vec::new();
    for element in elements {
        let filled: Option<Vec<Vec<String>>> =
            element.parts.iter().map(|holes| expand_element(holes, given)).collect();
        let filled = match filled {
            Some(filled) => filled,
            // What was not given leaves its element out, or its group.
            None if element.is_group || element.parts.iter().all(|holes| holes.sole_name().is_some()) => {
                continue;
            }
            None => {
                let missing =
                    element.parts.iter().flat_map(Placeholders::names).find(|name| !is_present(given, name));
                return Err(HandlerError::new(format!("`{}` is missing", missing.unwrap_or_default())));
            }
        };
        for (holes, texts) in element.parts.iter().zip(filled) {
            for text in texts {
                let name = holes.names().next();
                if let Some(fault) = name.and_then(|_| {
                    argument_error(&text, element.accepts_options && holes.leading_name().is_some())
                }) {
                    return Err(HandlerError::new(format!(
                        "invalid argument `{}`: {fault}",
                        name.unwrap_or_default()
                    )));
                }
                list.push(text);
            }
        }
    }
    if list.len() > MAX_ARGUMENTS {
        return Err(HandlerError::new(format!("invalid argument: more than {MAX_ARGUMENTS} of them")));
    }
    Ok(list)
}

/// Programs that run a text, and the option before it.
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

/// Whether this element is a text that an interpreter runs: behind `-c` of a shell, say.
pub(super) fn is_script(argv: &[ArgvItem], program: &Path, n: usize) -> bool {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    let Some((_, options)) = INTERPRETERS.iter().find(|(known, _)| *known == name) else { return false };
    let before = n.checked_sub(1).and_then(|before| argv.get(before));
    let Some(ArgvItem::Single(before)) = before else { return false };
    match before.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => letters.contains(|letter| options.contains(letter)),
        _ => false,
    }
}

pub(super) fn script_message(name: &str) -> String {
    format!(
        "this text is a program, and `{{{name}}}` could become a part of it: write `\"$1\"` for it and put `{{{name}}}` behind, as an element of its own"
    )
}

pub(super) fn unknown_argument_message(holes: &Placeholders, arguments: &Value) -> Option<String> {
    let known = arguments["properties"].as_object();
    let name = holes.names().find(|name| !known.is_some_and(|known| known.contains_key(*name)))?;
    Some(format!(
        "there is no argument `{name}`; add it to `args`, or write `{{{{{name}}}}}` for the text itself"
    ))
}

/// Whether a value of this argument may look like an option.
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
        // What a pattern lets through is looked at when it comes.
        Some("string") => !schema["pattern"].is_string(),
        _ => true,
    }
}

pub(super) fn leading_dash_message(name: &str) -> String {
    format!(
        "`{{{name}}}` may begin with `-`, and the program would take it for an option: put \"--\" before it, \
         give the argument an `enum` or a `pattern`, or say `allow_leading_dash = true`"
    )
}

/// The elements that one becomes: a list that stands alone becomes several.
fn expand_element(holes: &Placeholders, given: &Map<String, Value>) -> Option<Vec<String>> {
    if let Some(Value::Array(items)) = holes.sole_name().and_then(|name| given.get(name)) {
        return Some(items.iter().filter_map(argument_text).collect());
    }
    holes.render(given).map(|text| vec![text])
}

fn is_present(given: &Map<String, Value>, name: &str) -> bool {
    given.get(name).is_some_and(|value| !value.is_null())
}

fn argument_error(text: &str, is_open: bool) -> Option<String> {
    if text.contains('\0') {
        return Some("it has a NUL character".into());
    }
    if text.len() > MAX_ARGUMENT_BYTES {
        return Some(format!("it has more than {MAX_ARGUMENT_BYTES} bytes"));
    }
    (is_open && text.starts_with('-')).then(|| "it begins with `-`".into())
}
