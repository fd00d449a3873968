//! `${VAR}`, `${VAR:-x}` and `${file:…}` in texts: what is not for the file itself.
//!
//! One pass: what comes out is never looked at again, and never shown to anybody.

use std::io::Read as _;
use std::path::Path;

use super::diagnostics::io_error_message;

/// A secret is a line, not a disk.
const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// Where variables come from.
pub(crate) type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The text with everything put in, or what is wrong with it. None if there was nothing to put in. What was put in is
/// told to `secret`.
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

/// The files that a text names.
pub(super) fn referenced_files(text: &str) -> impl Iterator<Item = &str> {
    text.split("${file:").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0.trim()))
}

enum Substitution {
    Secret(String),
    /// It stands in the configuration for everybody to read.
    Literal(String),
}

fn substitute(name: &str, folder: &Path, variables: VariableLookup<'_>) -> Result<Substitution, String> {
    if let Some(path) = name.strip_prefix("file:") {
        return read_secret_file(&folder.join(path.trim()), path.trim()).map(Substitution::Secret);
    }
    let name = name.strip_prefix("env:").unwrap_or(name);
    let (name, or) = match name.split_once(":-") {
        Some((name, or)) => (name, Some(or)),
        None => (name, None),
    };
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(format!(
            "`${{{name}}}` is not a valid variable; write `${{NAME}}`, `${{NAME:-default}}` or `${{file:path}}`"
        ));
    }
    match (variables(name).filter(|value| !value.is_empty()), or) {
        (Some(value), _) => Ok(Substitution::Secret(value)),
        (None, Some(or)) => Ok(Substitution::Literal(or.to_owned())),
        (None, None) => Err(format!(
            "the variable `{name}` is not set or is empty; set it, or write `${{{name}:-default}}`"
        )),
    }
}

fn read_secret_file(path: &Path, shown: &str) -> Result<String, String> {
    let open = std::fs::File::open(path)
        .map_err(|error| format!("cannot read the file `{shown}`: {}", io_error_message(&error)))?;
    let mut text = String::new();
    let read = open.take(MAX_SECRET_FILE_BYTES + 1).read_to_string(&mut text);
    read.map_err(|_| format!("the file `{shown}` is not valid UTF-8"))?;
    if text.len() as u64 > MAX_SECRET_FILE_BYTES {
        return Err(format!("the file `{shown}` is larger than 64 KiB"));
    }
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(format!("the file `{shown}` is empty"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_put_in_once() {
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
            let said = check(text).unwrap_err();
            assert!(said.contains(wanted), "{text}: {said}");
            assert!(!said.contains("s3cret"));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
