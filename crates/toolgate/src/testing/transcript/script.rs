//! Parses a transcript into steps and applies its directives. The steps are run by the player.

use std::collections::{HashMap, VecDeque};

use super::compare::Vars;

/// A line number, and the error in that line.
pub(super) type LineError = (usize, String);

/// One step of a transcript.
#[derive(Clone, Debug)]
pub(super) struct ScriptStep {
    pub(super) line: usize,
    pub(super) connection: String,
    /// `>`, `>b`, `<`, `<~` or `!`.
    pub(super) operator: &'static str,
    pub(super) head: String,
    /// The lines after the first: headers and body.
    pub(super) continuation: Vec<String>,
}

const STEP_PREFIXES: [&str; 5] = [">b ", "> ", "<~ ", "< ", "! "];

/// A parsed transcript.
pub(super) struct ParsedTranscript {
    pub(super) vars: Vars,
    pub(super) headers: HashMap<String, String>,
    pub(super) steps: VecDeque<ScriptStep>,
    /// Options with their line numbers.
    pub(super) options: Vec<(usize, String)>,
    /// True for stdio framing, false for HTTP.
    pub(super) is_stdio: bool,
}

impl ParsedTranscript {
    /// Parses a text for one value of its `@ each`.
    pub(super) fn parse(
        prelude: &str,
        text: &str,
        each_value: &str,
        vars: Vars,
    ) -> Result<ParsedTranscript, LineError> {
        let mut script = ParsedTranscript {
            vars,
            headers: HashMap::new(),
            steps: VecDeque::new(),
            options: Vec::new(),
            is_stdio: true,
        };
        let (mut is_stdio, mut is_active) = (None, true);
        let lines = prelude.lines().map(|line| (0, line));
        for (number, line) in lines.chain((1..).zip(text.lines())) {
            let fail = |what: &str| Err((number, format!("{what}: {line}")));
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(directive) = line.strip_prefix("@ ") {
                let (name, rest) = directive.split_once(' ').unwrap_or((directive, ""));
                match name {
                    "stdio" | "http" => {
                        is_stdio = Some(name == "stdio");
                        let options = rest.split_whitespace();
                        script.options.extend(options.map(|option| (number, option.to_owned())));
                    }
                    "let" | "headers" => {
                        let Some((name, value)) = rest.split_once(" = ") else {
                            return fail("no value");
                        };
                        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
                        if directive.starts_with("let ") {
                            script.vars.insert(name, value)
                        } else {
                            script.headers.insert(name, value)
                        };
                    }
                    "each" => {}
                    "when" => is_active = rest.split_whitespace().any(|value| value == each_value),
                    "end" => is_active = true,
                    _ => return fail("no such directive"),
                }
                continue;
            }
            match parse_step(number, line) {
                Some(step) if is_active => script.steps.push_back(step),
                None if is_active => match script.steps.back_mut() {
                    Some(step) => step.continuation.push(line.to_owned()),
                    None => return fail("a continuation line without a step"),
                },
                _ => {}
            }
        }
        script.is_stdio = is_stdio.ok_or((1, "neither `@ stdio` nor `@ http`".to_owned()))?;
        Ok(script)
    }
}

fn parse_step(number: usize, line: &str) -> Option<ScriptStep> {
    let (connection, rest) = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((name, rest)) if name.chars().all(char::is_alphanumeric) => (name, rest),
        _ => ("", line),
    };
    let prefix = STEP_PREFIXES.into_iter().find(|prefix| rest.starts_with(prefix))?;
    Some(ScriptStep {
        line: number,
        connection: connection.to_owned(),
        operator: prefix.trim_end(),
        head: rest[prefix.len()..].to_owned(),
        continuation: Vec::new(),
    })
}

impl ScriptStep {
    /// Joins the step into one line.
    pub(super) fn joined_text(&self) -> String {
        let mut text = self.head.clone();
        for line in &self.continuation {
            text.push(' ');
            text.push_str(line.trim());
        }
        text
    }
}

/// Splits the continuation lines of a step into header lines and body.
#[cfg(feature = "http")]
pub(super) fn split_headers_and_body(rest: &[String]) -> (Vec<String>, String) {
    let is_header = |line: &&String| {
        let name = line.split(':').next().unwrap_or_default();
        line.contains(':') && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            || line.starts_with('-') && !line.contains(' ')
    };
    let headers: Vec<String> = rest.iter().take_while(is_header).cloned().collect();
    let body = rest[headers.len()..].join("\n");
    (headers, body)
}

#[cfg(feature = "http")]
pub(super) fn parse_header(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("not a header: {line}"))?;
    Ok((name.trim().to_owned(), value.strip_prefix(' ').unwrap_or(value).to_owned()))
}

/// Decodes a quoted string with escapes, such as `"a\r\n\xff"`, into bytes.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let inner = text
        .trim()
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or("bytes must be in quotes")?;
    let mut bytes = Vec::new();
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b'r') => bytes.push(b'\r'),
            Some(quoted @ (b'\\' | b'"')) => bytes.push(quoted),
            Some(b'x') => {
                let digits = [rest.next().unwrap_or(b'?'), rest.next().unwrap_or(b'?')];
                let digits = std::str::from_utf8(&digits).map_err(|error| error.to_string())?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|error| error.to_string())?);
            }
            other => return Err(format!("no such escape: {other:?}")),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<ParsedTranscript, LineError> {
        ParsedTranscript::parse("", text, "b", Vars::new())
    }

    #[test]
    fn lines_are_parsed_into_steps_with_continuations() {
        let text = "@ http page=2 x\n# no\n[a] > POST /mcp\nx: 1\n{}\n@ when a\n! no\n@ end\n@ when b\n! yes\n@ end\n";
        let script = parse(text).unwrap();
        assert!(!script.is_stdio);
        assert_eq!(script.options, [(1, "page=2".to_owned()), (1, "x".to_owned())]);
        let steps: Vec<_> =
            script.steps.iter().map(|step| (step.line, step.operator, step.head.as_str())).collect();
        assert_eq!(steps, [(3, ">", "POST /mcp"), (10, "!", "yes")]);
        assert_eq!(script.steps[0].connection, "a");
        assert_eq!(script.steps[0].joined_text(), "POST /mcp x: 1 {}");
    }

    #[test]
    fn parse_errors_have_a_line_number() {
        for (text, line, message) in [
            ("> x", 1, "neither `@ stdio` nor `@ http`"),
            ("@ stdio\nx", 2, "a continuation line without a step: x"),
            ("@ stdio\n@ lot A = b", 2, "no such directive"),
            ("@ stdio\n@ let A", 2, "no value"),
        ] {
            let Err((error_line, error)) = parse(text) else { panic!("{text:?} was parsed") };
            assert!(error_line == line && error.contains(message), "{text:?}: {error_line}: {error}");
        }
    }

    #[test]
    fn bytes_have_escapes() {
        assert_eq!(unescape(r#" "a\n\r\\\"\xff" "#).unwrap(), b"a\n\r\\\"\xff");
        for wrong in ["a", "\"", r#""\q""#, r#""\x""#, r#""\xfg""#] {
            assert!(unescape(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_parser(text in "([@<>!#\\[] ?[a-z~\\]]{0,6}[ =:|a-z{}\"\\\\]{0,12}\n?){0,12}") {
            let _ = parse(&text);
            let _ = unescape(&text);
        }

        #[test]
        fn bytes_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let escaped: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            prop_assert_eq!(unescape(&format!("\"{escaped}\"")).unwrap(), bytes);
        }
    }
}
