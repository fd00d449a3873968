//! Expands `${VAR}`, `${VAR:-default}` and `${file:…}` in strings.
//!
//! Expansion is a single pass: an expanded value is not expanded again. Expanded values are secrets and are never
//! quoted in messages.

use std::io::Read as _;
use std::path::Path;

use super::diagnostics::io_error_message;

/// Limits files that are named by mistake.
const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// Looks up environment variables.
pub(crate) type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Expands a string. Returns `None` if there is nothing to expand, and the message of a problem as an error. Each value
/// that was expanded is passed to `secret`.
pub(crate) fn expand(
    text: &str,
    folder: &Path,
    variables: VariableLookup<'_>,
    mut secret: impl FnMut(&str),
) -> Result<Option<String>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut expanded = String::new();
    let mut rest = text;
    let mut is_changed = false;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            // `$${x}` is `${x}`.
            expanded.push_str(&rest[..at - 1]);
            expanded.push_str("${");
            rest = &rest[at + 2..];
            is_changed = true;
            continue;
        }
        expanded.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let end = inner.find('}').ok_or("`${` is not closed with `}`; write `$${` for a literal `${`")?;
        match substitute(&inner[..end], folder, variables)? {
            Substitution::Secret(value) => {
                secret(&value);
                expanded.push_str(&value);
            }
            Substitution::Literal(value) => expanded.push_str(&value),
        }
        rest = &inner[end + 1..];
        is_changed = true;
    }
    expanded.push_str(rest);
    Ok(is_changed.then_some(expanded))
}

/// The files that a string refers to.
pub(super) fn referenced_files(text: &str) -> impl Iterator<Item = &str> {
    text.split("${file:").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0.trim()))
}

enum Substitution {
    Secret(String),
    /// A default, which is part of the configuration.
    Literal(String),
}

fn substitute(name: &str, folder: &Path, variables: VariableLookup<'_>) -> Result<Substitution, String> {
    if let Some(path) = name.strip_prefix("file:") {
        return read_secret_file(&folder.join(path.trim()), path.trim()).map(Substitution::Secret);
    }
    let name = name.strip_prefix("env:").unwrap_or(name);
    let (name, default) = match name.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (name, None),
    };
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(format!(
            "`${{{name}}}` is not a valid variable; write `${{NAME}}`, `${{NAME:-default}}` or `${{file:path}}`"
        ));
    }
    match (variables(name).filter(|value| !value.is_empty()), default) {
        (Some(value), _) => Ok(Substitution::Secret(value)),
        (None, Some(default)) => Ok(Substitution::Literal(default.to_owned())),
        (None, None) => Err(format!(
            "the variable `{name}` is not set or is empty; set it, or write `${{{name}:-default}}`"
        )),
    }
}

fn read_secret_file(path: &Path, name_in_file: &str) -> Result<String, String> {
    let open = std::fs::File::open(path)
        .map_err(|error| format!("cannot read the file `{name_in_file}`: {}", io_error_message(&error)))?;
    let mut text = String::new();
    let read = open.take(MAX_SECRET_FILE_BYTES + 1).read_to_string(&mut text);
    read.map_err(|_| format!("the file `{name_in_file}` is not valid UTF-8"))?;
    if text.len() as u64 > MAX_SECRET_FILE_BYTES {
        return Err(format!("the file `{name_in_file}` is larger than 64 KiB"));
    }
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(format!("the file `{name_in_file}` is empty"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_expanded_once() {
        let variables = |name: &str| match name {
            "TOKEN" => Some("s3cret".to_owned()),
            "TRICK" => Some("${TOKEN}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let folder = std::env::temp_dir().join(format!("toolgate-expand-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("key"), "from a file\n").unwrap();
        std::fs::write(folder.join("nothing"), "\n").unwrap();
        let check = |text: &str| expand(text, &folder, &variables, |_| {});
        for (text, wanted) in [
            ("Bearer ${TOKEN}", "Bearer s3cret"),
            ("${env:TOKEN}${TOKEN}", "s3crets3cret"),
            ("${EMPTY:-x}${NONE:-}", "x"),
            ("${file:key}!", "from a file!"),
            ("$${TOKEN} ${TRICK}", "${TOKEN} ${TOKEN}"),
        ] {
            assert_eq!(check(text), Ok(Some(wanted.to_owned())), "{text}");
        }
        assert_eq!(check("costs $5 {x} {{ y }}"), Ok(None));
        for (text, wanted) in [
            ("${NONE}", "`NONE` is not set"),
            ("${EMPTY}", "`EMPTY` is not set or is empty"),
            ("${file:nothing}", "is empty"),
            ("${file:gone}", "cannot read"),
            ("${open", "not closed"),
            ("${a b}", "not a valid variable"),
            ("${}", "not a valid variable"),
        ] {
            let message = check(text).unwrap_err();
            assert!(message.contains(wanted), "{text}: {message}");
            assert!(!message.contains("s3cret"));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
