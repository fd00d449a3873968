//! Parses the requests that documents print, and compares the responses with the printed ones.
//!
//! A document prints the beginning of a response, or one tool of many. So a response must contain what is printed, and may
//! contain more.

use serde_json::Value;

/// One printed request.
#[derive(Debug, Default)]
pub(super) struct PrintedRequest {
    pub(super) id: String,
    kind: RequestKind,
    /// As printed.
    request_text: String,
    /// The printed response, if there is one.
    expected: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum RequestKind {
    #[default]
    Shell,
    /// A body for POST, with the URL and further arguments.
    Post(String),
    Line,
}

pub(super) fn read(text: &str) -> Result<Vec<PrintedRequest>, String> {
    let mut requests: Vec<PrintedRequest> = Vec::new();
    for block in format!("\n{text}").split("\n== ").skip(1) {
        let (id, rest) = block.split_once('\n').ok_or_else(|| format!("{block}: nothing below it"))?;
        let mut request = PrintedRequest { id: id.trim().to_owned(), ..PrintedRequest::default() };
        let mut parts = format!("\n{rest}").split("\n-- ").map(str::to_owned).collect::<Vec<_>>().into_iter();
        // Text before the first part is a comment.
        let comments = parts.next().unwrap_or_default();
        if comments.lines().any(|line| !line.is_empty() && !line.starts_with('#')) {
            return Err(format!("{}: neither a part nor a comment: {comments}", request.id));
        }
        for part in parts {
            let (head, body) = part.split_once('\n').unwrap_or((&part, ""));
            match head.trim().split_once(' ').unwrap_or((head.trim(), "")) {
                ("run", "") => request.request_text = body.trim().to_owned(),
                ("line", "") => {
                    (request.kind, request.request_text) = (RequestKind::Line, body.trim().to_owned())
                }
                ("send", target) => {
                    (request.kind, request.request_text) =
                        (RequestKind::Post(target.to_owned()), body.trim().to_owned());
                }
                ("shows", "") => request.expected = Some(body.trim().to_owned()),
                _ => return Err(format!("{}: no part is called `{head}`", request.id)),
            }
        }
        if request.request_text.is_empty() {
            return Err(format!("{}: there is nothing to send", request.id));
        }
        requests.push(request);
    }
    Ok(requests)
}

impl PrintedRequest {
    pub(super) fn script(&self) -> String {
        // An ellipsis in a request stands for no members.
        let quoted = format!("'{}'", self.request_text.replace("{ ... }", "{}").replace('\'', r"'\''"));
        match &self.kind {
            RequestKind::Shell => self.request_text.clone(),
            RequestKind::Post(target) => {
                let (url, arguments) = target.split_once(' ').unwrap_or((target, ""));
                format!("rpc {url} {quoted} {arguments}")
            }
            RequestKind::Line => format!("printf '%s\\n' {quoted} | \"$PROGRAM\""),
        }
    }

    /// Why the response does not match; `None` if it does.
    pub(super) fn mismatch(&self, output: &str) -> Option<String> {
        let actual: Value = match serde_json::from_str(output.trim()) {
            Ok(actual) => actual,
            Err(error) => return Some(format!("the response is not JSON: {error}")),
        };
        let Some(expected) = &self.expected else {
            let is_good =
                !actual.is_null() && actual.get("error").is_none() && actual != Value::Array(Vec::new());
            return (!is_good).then(|| "the response is an error, or empty".to_owned());
        };
        match serde_json::from_str(&expand_ellipses(expected)) {
            Ok(expected) => first_difference("", &expected, &actual),
            Err(error) => Some(format!("the printed response is not JSON: {error}")),
        }
    }
}

/// Replaces ellipses by JSON that marks them.
fn expand_ellipses(text: &str) -> String {
    text.replace("{ ... }", r#"{"...": 0}"#).replace("[ ... ]", r#"["..."]"#).replace("[...]", r#"["..."]"#)
}

/// The first difference between the printed and the actual response.
fn first_difference(path: &str, expected: &Value, actual: &Value) -> Option<String> {
    let mismatch = || Some(format!("{path}: shown {expected}, got {actual}"));
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => expected
            .iter()
            .filter(|(key, _)| *key != "...")
            .find_map(|(key, expected)| match actual.get(key) {
                Some(actual) => first_difference(&format!("{path}/{key}"), expected, actual),
                None => Some(format!("{path}/{key} is missing")),
            }),
        (Value::Array(expected), Value::Array(actual)) => {
            // In this order, with other items between them.
            let mut rest = actual.iter();
            let is_ellipsis = |one: &Value| one == "...";
            match expected
                .iter()
                .all(|one| rest.any(|other| is_ellipsis(one) || first_difference("", one, other).is_none()))
            {
                true => None,
                false => mismatch(),
            }
        }
        (Value::String(expected), Value::String(actual)) => {
            let is_same = match expected.contains("...") {
                true => sketch_names(expected).all(|name| actual.contains(&format!("\"{name}\":"))),
                false => {
                    expected == actual
                        || (path.ends_with("/message") && actual.starts_with(&format!("{expected}:")))
                }
            };
            if is_same { None } else { mismatch() }
        }
        (Value::Number(expected), Value::Number(actual)) if expected.as_f64() == actual.as_f64() => None,
        _ if expected == actual => None,
        _ => mismatch(),
    }
}

/// The keys in an abbreviated JSON text: `{ "version": "1.14.0", ... }`.
fn sketch_names(sketch: &str) -> impl Iterator<Item = &str> {
    sketch.split("\":").filter_map(|before| before.rsplit_once('"').map(|(_, name)| name)).filter(|name| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> PrintedRequest {
        read(text).unwrap().pop().unwrap()
    }

    #[test]
    fn parts_are_parsed() {
        let all = read(
            "# about\n== D0-1\n# why\n-- run\ncurl x \\\n  -d y\n-- shows\n{}\n\n== D0-2\n-- send $RT -H \"$TK\"\n{\"params\": { ... }}\n",
        )
        .unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].script().as_str(), all[0].expected.as_deref()), ("curl x \\\n  -d y", Some("{}")));
        assert_eq!(all[1].script(), r#"rpc $RT '{"params": {}}' -H "$TK""#);
        assert!(read("== D0-1\n-- shows\n{}\n").is_err());
        assert!(read("== D0-1\nstray\n-- run\nx\n").is_err());
        assert!(read("== D0-1\n-- rum\nx\n").is_err());
    }

    #[test]
    fn a_response_contains_what_is_printed() {
        let shown = |shown: &str, answer: &str| {
            request(&format!("== D0-1\n-- run\nx\n-- shows\n{shown}\n")).mismatch(answer).is_none()
        };
        assert!(shown(r#"{"a": { ... }, "b": [...]}"#, r#"{"a": {"x": 1}, "b": [1], "c": 3}"#));
        assert!(!shown(r#"{"b": [...]}"#, r#"{"b": []}"#));
        assert!(!shown(r#"{"a": { ... }}"#, r#"{"a": 1}"#));
        assert!(shown(
            r#"{"tools": [{"name": "b"}]}"#,
            r#"{"tools": [{"name": "a"}, {"name": "b", "x": 1}]}"#
        ));
        assert!(!shown(r#"{"tools": [{"name": "c"}]}"#, r#"{"tools": [{"name": "a"}, {"name": "b"}]}"#));
        assert!(!shown(r#"{"id": null}"#, r#"{"a": 1}"#));
        assert!(shown(r#"{"message": "Method not found"}"#, r#"{"message": "Method not found: x"}"#));
        assert!(!shown(r#"{"text": "Method not found"}"#, r#"{"text": "Method not found: x"}"#));
        assert!(shown(r#"{"text": "{ \"v\": \"1\", ... }"}"#, r#"{"text": "{\"w\":1,\"v\":\"2\"}"}"#));
        assert!(!shown(r#"{"text": "{ \"v\": \"1\", ... }"}"#, r#"{"text": "{\"w\":1}"}"#));
        assert!(
            shown(r#"{"total": 1.0}"#, r#"{"total": 1}"#) && !shown(r#"{"total": 1.5}"#, r#"{"total": 1}"#)
        );
        assert!(!shown("{}", ""));
    }

    #[test]
    fn without_a_printed_response_an_error_is_a_mismatch() {
        let request = request("== D0-1\n-- run\nx\n");
        assert!(request.mismatch(r#"{"result": {}}"#).is_none());
        for wrong in [r#"{"error": {}}"#, "null", "[]", "", "oops"] {
            assert!(request.mismatch(wrong).is_some(), "{wrong}");
        }
    }
}
