//! What was heard beside what was expected: all that differs, with its place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// What names stand for.
pub(super) type Vars = BTreeMap<String, String>;

/// `{name}` becomes what the name stands for; other braces are JSON. What stands for it may have names in it.
pub(super) fn substitute(text: &str, vars: &Vars) -> String {
    let mut text = text.to_owned();
    for _ in 0..3 {
        let before = text.clone();
        for (name, value) in vars {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        if before == text {
            break;
        }
    }
    text
}

/// Compares, and remembers what was captured.
///
/// # Errors
/// If they differ, with every place in which they do.
pub(super) fn check_json(wanted: &str, got: &str, vars: &mut Vars) -> Result<(), String> {
    let wanted = substitute(wanted, vars);
    let expected: Value = serde_json::from_str(&wanted).map_err(|error| format!("{error} in {wanted}"))?;
    let value: Value = serde_json::from_str(got)
        .map_err(|error| format!("{error}\n  expected {wanted}\n  got      {got}"))?;
    let mut differences = Vec::new();
    diff("$", Some(&expected), Some(&value), vars, &mut differences);
    if differences.is_empty() {
        return Ok(());
    }
    let shown =
        differences.iter().fold(String::new(), |mut shown, Difference { path: place, expected, got }| {
            let said = |value: &Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
            let start = if shown.is_empty() { "" } else { "  " };
            let _ = writeln!(
                shown,
                "{start}{place}\n    expected {}\n    got      {}",
                said(expected),
                said(got)
            );
            shown
        });
    Err(format!("{shown}  in {value}"))
}

struct Difference<'a> {
    path: String,
    expected: Option<&'a Value>,
    got: Option<&'a Value>,
}

fn diff<'a>(
    place: &str,
    expected: Option<&'a Value>,
    got: Option<&'a Value>,
    vars: &mut Vars,
    differences: &mut Vec<Difference<'a>>,
) {
    let same = match (expected, got) {
        (Some(Value::Object(wanted)), Some(Value::Object(heard))) => {
            for (key, value) in wanted {
                diff(&format!("{place}.{key}"), Some(value), heard.get(key), vars, differences);
            }
            for (key, value) in heard.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
                diff(&format!("{place}.{key}"), None, Some(value), vars, differences);
            }
            return;
        }
        (Some(Value::Array(wanted)), Some(Value::Array(heard))) => {
            for index in 0..wanted.len().max(heard.len()) {
                let place = format!("{place}[{index}]");
                diff(&place, wanted.get(index), heard.get(index), vars, differences);
            }
            return;
        }
        (Some(Value::String(pattern)), Some(Value::String(text))) => matches_text(pattern, text, vars),
        (Some(Value::String(pattern)), Some(other)) if pattern.starts_with('<') && pattern.ends_with('>') => {
            matches_text(pattern, &other.to_string(), vars)
        }
        (expected, got) => expected == got,
    };
    if !same {
        differences.push(Difference { path: place.to_owned(), expected, got });
    }
}

/// A pattern has at most one placeholder: `<any>`, or `<=name>` to remember.
pub(super) fn matches_text(pattern: &str, text: &str, vars: &mut Vars) -> bool {
    let open = pattern.find("<any>").or_else(|| pattern.find("<="));
    let Some(open) = open else { return pattern == text };
    let Some(close) = pattern[open..].find('>') else {
        return pattern == text;
    };
    let (before, after) = (&pattern[..open], &pattern[open + close + 1..]);
    let Some(middle) = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) else {
        return false;
    };
    if let Some(name) = pattern[open..open + close].strip_prefix("<=") {
        vars.insert(name.to_owned(), middle.to_owned());
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_that_differs_is_told_with_its_place() {
        let mut vars = Vars::from([("A".to_owned(), "1".to_owned())]);
        let wanted = r#"{"a":{A},"b":[{"c":"x<any>z"},2],"d":"<=d>","e":"<any>","f":"gone"}"#;
        let same = r#"{"a":1,"b":[{"c":"xyz"},2],"d":"later","e":[1],"f":"gone"}"#;
        check_json(wanted, same, &mut vars).unwrap();
        assert_eq!(vars["d"], "later");
        let other = r#"{"a":2,"b":[{"c":"xy"},2,3],"d":null,"e":null,"g":7}"#;
        let told = check_json(wanted, other, &mut vars).unwrap_err();
        let expected = "$.a\n    expected 1\n    got      2\n  \
            $.b[0].c\n    expected \"x<any>z\"\n    got      \"xy\"\n  \
            $.b[2]\n    expected nothing\n    got      3\n  \
            $.f\n    expected \"gone\"\n    got      nothing\n  \
            $.g\n    expected nothing\n    got      7\n  in ";
        assert!(told.starts_with(expected), "{told}");
    }

    proptest! {
        #[test]
        fn every_text_is_like_itself(text in "[^<]*") {
            prop_assert!(matches_text(&text, &text, &mut Vars::new()));
            prop_assert!(matches_text("<any>", &text, &mut Vars::new()));
            let other = format!("{text}!");
            prop_assert!(!matches_text(&text, &other, &mut Vars::new()));
        }

        #[test]
        fn what_stands_between_is_remembered(before in "[a-z]*", middle in "\\PC*", after in "[a-z]*") {
            let mut vars = Vars::new();
            let text = format!("{before}{middle}{after}");
            let pattern = format!("{before}<=it>{after}");
            prop_assert!(matches_text(&pattern, &text, &mut vars));
            prop_assert_eq!(&vars["it"], &middle);
        }

        #[test]
        fn no_pattern_breaks_the_comparison(pattern in "[<>=any ]{0,12}", text in "\\PC{0,12}") {
            let _ = matches_text(&pattern, &text, &mut Vars::new());
            let _ = check_json(&pattern, &text, &mut Vars::new());
        }
    }
}
