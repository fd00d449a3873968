//! A transcript as steps: directives are obeyed, lines become what they belong to. Nothing is played here.

use std::collections::{HashMap, VecDeque};

use super::compare::Vars;

/// A line, and what is wrong with it.
pub(super) type LineError = (usize, String);

/// One step of a transcript.
#[derive(Clone, Debug)]
pub(super) struct ScriptStep {
    pub(super) line: usize,
    pub(super) connection: String,
    /// `>`, `>b`, `<`, `<~` or `!`.
    pub(super) operator: &'static str,
    pub(super) head: String,
    /// Lines that follow: headers and body.
    pub(super) continuation: Vec<String>,
}

const STEP_PREFIXES: [&str; 5] = [">b ", "> ", "<~ ", "< ", "! "];

/// A transcript, read.
pub(super) struct ParsedTranscript {
    pub(super) vars: Vars,
    pub(super) headers: HashMap<String, String>,
    pub(super) steps: VecDeque<ScriptStep>,
    /// Options and the line they stand in.
    pub(super) options: Vec<(usize, String)>,
    /// Lines, or HTTP.
    pub(super) is_stdio: bool,
}

impl ParsedTranscript {
    /// Reads a text, for one word of its `@ each`.
    pub(super) fn parse(
        prelude: &str,
        text: &str,
        word: &str,
        vars: Vars,
    ) -> Result<ParsedTranscript, LineError> {
        let mut script = ParsedTranscript {
            vars,
            headers: HashMap::new(),
            steps: VecDeque::new(),
            options: Vec::new(),
            is_stdio: true,
        };
        let (mut road, mut shown) = (None, true);
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
                        road = Some(name == "stdio");
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
                    "when" => shown = rest.split_whitespace().any(|known| known == word),
                    "end" => shown = true,
                    _ => return fail("no such directive"),
                }
                continue;
            }
            match parse_step(number, line) {
                Some(step) if shown => script.steps.push_back(step),
                None if shown => match script.steps.back_mut() {
                    Some(step) => step.continuation.push(line.to_owned()),
                    None => return fail("nothing to belong to"),
                },
                _ => {}
            }
        }
        script.is_stdio = road.ok_or((1, "neither `@ stdio` nor `@ http`".to_owned()))?;
        Ok(script)
    }
}

fn parse_step(number: usize, line: &str) -> Option<ScriptStep> {
    let (connection, rest) = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((name, rest)) if name.chars().all(char::is_alphanumeric) => (name, rest),
        _ => ("", line),
    };
    let mark = STEP_PREFIXES.into_iter().find(|mark| rest.starts_with(mark))?;
    Some(ScriptStep {
        line: number,
        connection: connection.to_owned(),
        operator: mark.trim_end(),
        head: rest[mark.len()..].to_owned(),
        continuation: Vec::new(),
    })
}

impl ScriptStep {
    /// All of it in one line.
    pub(super) fn joined_text(&self) -> String {
        let mut text = self.head.clone();
        for line in &self.continuation {
            text.push(' ');
            text.push_str(line.trim());
        }
        text
    }
}

/// Header lines, then the body.
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

/// `"a\r\n\xff"` as bytes.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let inner = text
        .trim()
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or("bytes stand in quotes")?;
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
    fn lines_become_steps_and_what_follows_belongs_to_them() {
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
    fn what_cannot_be_read_names_its_line() {
        for (text, line, words) in [
            ("> x", 1, "neither `@ stdio` nor `@ http`"),
            ("@ stdio\nx", 2, "nothing to belong to: x"),
            ("@ stdio\n@ lot A = b", 2, "no such directive"),
            ("@ stdio\n@ let A", 2, "no value"),
        ] {
            let Err((at, fault)) = parse(text) else { panic!("{text:?} was read") };
            assert!(at == line && fault.contains(words), "{text:?}: {at}: {fault}");
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
        fn no_text_breaks_the_reader(text in "([@<>!#\\[] ?[a-z~\\]]{0,6}[ =:|a-z{}\"\\\\]{0,12}\n?){0,12}") {
            let _ = parse(&text);
            let _ = unescape(&text);
        }

        #[test]
        fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let escaped: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            prop_assert_eq!(unescape(&format!("\"{escaped}\"")).unwrap(), bytes);
        }
    }
}
