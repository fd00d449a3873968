//! Compares received with expected JSON and reports every difference with its path.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// Variables by name.
pub(super) type Vars = BTreeMap<String, String>;

/// Replaces `{name}` by the variable's value; other braces are JSON. A value may contain variables, up to three levels
/// deep.
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

/// Compares two JSON texts and stores captured values in `vars`.
///
/// # Errors
/// If they differ, with the path of every difference.
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
    let shown = differences.iter().fold(String::new(), |mut shown, Difference { path, expected, got }| {
        let show = |value: &Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
        let start = if shown.is_empty() { "" } else { "  " };
        let _ = writeln!(shown, "{start}{path}\n    expected {}\n    got      {}", show(expected), show(got));
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
    path: &str,
    expected: Option<&'a Value>,
    got: Option<&'a Value>,
    vars: &mut Vars,
    differences: &mut Vec<Difference<'a>>,
) {
    let same = match (expected, got) {
        (Some(Value::Object(wanted)), Some(Value::Object(received))) => {
            for (key, value) in wanted {
                diff(&format!("{path}.{key}"), Some(value), received.get(key), vars, differences);
            }
            for (key, value) in received.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
                diff(&format!("{path}.{key}"), None, Some(value), vars, differences);
            }
            return;
        }
        (Some(Value::Array(wanted)), Some(Value::Array(received))) => {
            for index in 0..wanted.len().max(received.len()) {
                let path = format!("{path}[{index}]");
                diff(&path, wanted.get(index), received.get(index), vars, differences);
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
        differences.push(Difference { path: path.to_owned(), expected, got });
    }
}

/// Matches a text against a pattern with at most one placeholder: `<any>`, or `<=name>` to capture.
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
    fn every_difference_is_reported_with_its_path() {
        let mut vars = Vars::from([("A".to_owned(), "1".to_owned())]);
        let wanted = r#"{"a":{A},"b":[{"c":"x<any>z"},2],"d":"<=d>","e":"<any>","f":"gone"}"#;
        let same = r#"{"a":1,"b":[{"c":"xyz"},2],"d":"later","e":[1],"f":"gone"}"#;
        check_json(wanted, same, &mut vars).unwrap();
        assert_eq!(vars["d"], "later");
        let other = r#"{"a":2,"b":[{"c":"xy"},2,3],"d":null,"e":null,"g":7}"#;
        let report = check_json(wanted, other, &mut vars).unwrap_err();
        let expected = "$.a\n    expected 1\n    got      2\n  \
            $.b[0].c\n    expected \"x<any>z\"\n    got      \"xy\"\n  \
            $.b[2]\n    expected nothing\n    got      3\n  \
            $.f\n    expected \"gone\"\n    got      nothing\n  \
            $.g\n    expected nothing\n    got      7\n  in ";
        assert!(report.starts_with(expected), "{report}");
    }

    proptest! {
        #[test]
        fn every_text_matches_itself(text in "[^<]*") {
            prop_assert!(matches_text(&text, &text, &mut Vars::new()));
            prop_assert!(matches_text("<any>", &text, &mut Vars::new()));
            let other = format!("{text}!");
            prop_assert!(!matches_text(&text, &other, &mut Vars::new()));
        }

        #[test]
        fn the_matched_part_is_captured(before in "[a-z]*", middle in "\\PC*", after in "[a-z]*") {
            let mut vars = Vars::new();
            let text = format!("{before}{middle}{after}");
            let pattern = format!("{before}<=it>{after}");
            prop_assert!(matches_text(&pattern, &text, &mut vars));
            prop_assert_eq!(&vars["it"], &middle);
        }

        #[test]
        fn no_pattern_panics_the_comparison(pattern in "[<>=any ]{0,12}", text in "\\PC{0,12}") {
            let _ = matches_text(&pattern, &text, &mut Vars::new());
            let _ = check_json(&pattern, &text, &mut Vars::new());
        }
    }
}
