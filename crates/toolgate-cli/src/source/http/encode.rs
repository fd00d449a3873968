//! Values into the places of a request. Each place has its own way to break out of it, and each is closed here.

use serde_json::Value;
use toolgate::HandlerError;

use super::template::plain;

/// How a list or an object is written where there is only text: the styles of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Serial {
    pub(crate) style: Style,
    /// Each member by itself.
    pub(crate) explode: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `a=1&a=2`, or `a=1,2`
    Form,
    /// `a=1%202`
    Space,
    /// `a=1|2`
    Pipe,
    /// `a[k]=1`
    Deep,
    /// `1,2`
    Simple,
    /// `.1.2`
    Label,
    /// `;a=1;a=2`
    Matrix,
    /// `a={"k":1}`
    Json,
}

impl Serial {
    /// How queries, forms and cookies do it unless told.
    pub(crate) const FORM: Serial = Serial { style: Style::Form, explode: true };
    /// How paths and headers do it unless told.
    pub(crate) const SIMPLE: Serial = Serial { style: Style::Simple, explode: false };
}

/// Longest value of a header.
const HEADER_LIMIT: usize = 8 * 1024;
/// How deep an object in a query may be.
const DEPTH: usize = 6;

/// Everything but letters, digits and four marks becomes an escape, so that nothing in it means anything.
pub(super) fn percent(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            escaped.push(char::from(HEX[usize::from(byte >> 4)]));
            escaped.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    escaped
}

/// A text without percent escapes.
pub(crate) fn unescaped(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        match (byte, hex(ahead.next()), hex(ahead.next())) {
            (b'%', Some(high), Some(low)) => {
                plain.extend(u8::try_from(high * 16 + low));
                bytes = ahead;
            }
            _ => plain.push(byte),
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// A value as part of one segment of a path.
pub(super) fn in_path(name: &str, value: &Value, serial: Serial) -> Result<String, HandlerError> {
    let parts = members(value)
        .map(|(key, text)| {
            let key = key.map(|key| in_segment(name, key)).transpose()?;
            Ok((key, in_segment(name, &text)?))
        })
        .collect::<Result<Vec<_>, HandlerError>>()?;
    if parts.is_empty() {
        return Err(HandlerError::new(format!("`{name}` must not be empty: it is part of a path")));
    }
    let is_object = value.is_object();
    let pair = |(key, text): &(Option<String>, String), between: &str| match key {
        Some(key) => format!("{key}{between}{text}"),
        None => text.clone(),
    };
    let joined = |separator: &str, between: &str| {
        parts.iter().map(|part| pair(part, between)).collect::<Vec<_>>().join(separator)
    };
    let inner = if serial.explode { "=" } else { "," };
    Ok(match (serial.style, serial.explode) {
        (Style::Label, true) => format!(".{}", joined(".", inner)),
        (Style::Label, false) => format!(".{}", joined(",", inner)),
        (Style::Matrix, true) if is_object => format!(";{}", joined(";", "=")),
        (Style::Matrix, true) => {
            format!(";{}={}", percent(name), joined(&format!(";{}=", percent(name)), "="))
        }
        (Style::Matrix, false) => format!(";{}={}", percent(name), joined(",", ",")),
        _ => joined(",", inner),
    })
}

fn in_segment(name: &str, text: &str) -> Result<String, HandlerError> {
    // `..%2Fadmin` is one segment here, but not for every proxy on the way.
    if text.is_empty() || text.split(['/', '\\']).any(|part| part == "." || part == "..") {
        return Err(HandlerError::new(format!(
            "`{name}` must be neither empty nor contain the steps `.` or `..`"
        )));
    }
    if text.chars().any(char::is_control) {
        return Err(HandlerError::new(format!("`{name}` must not contain control characters")));
    }
    Ok(percent(text))
}

/// A value in a query or a form: pairs, ready to be joined with `&`. `others` are names that belong to somebody else.
pub(super) fn in_query(
    name: &str,
    value: &Value,
    serial: Serial,
    others: &[&str],
    into: &mut Vec<String>,
) -> Result<(), HandlerError> {
    let key = percent(name);
    let separator = match serial.style {
        Style::Space => "%20",
        Style::Pipe => "%7C",
        _ => ",",
    };
    match value {
        Value::Null => {}
        json if serial.style == Style::Json => into.push(format!("{key}={}", percent(&json.to_string()))),
        Value::Array(items) if serial.explode => {
            into.extend(items.iter().map(|item| format!("{key}={}", percent(&plain(item)))));
        }
        Value::Array(items) if items.is_empty() => {}
        Value::Array(items) => {
            let joined: Vec<String> = items.iter().map(|item| percent(&plain(item))).collect();
            into.push(format!("{key}={}", joined.join(separator)));
        }
        Value::Object(_) if serial.style == Style::Deep => deep(&key, value, DEPTH, into)?,
        Value::Object(members) if serial.explode => {
            for (member, value) in members {
                // The names come from the caller: they must not say what somebody else says.
                if others.contains(&member.as_str()) {
                    return Err(HandlerError::new(format!("`{name}` must not contain `{member}`")));
                }
                into.push(format!("{}={}", percent(member), percent(&plain(value))));
            }
        }
        Value::Object(members) => {
            let parts = members.iter().flat_map(|(member, value)| [percent(member), percent(&plain(value))]);
            into.push(format!("{key}={}", parts.collect::<Vec<_>>().join(separator)));
        }
        single => into.push(format!("{key}={}", percent(&plain(single)))),
    }
    Ok(())
}

fn deep(key: &str, value: &Value, depth: usize, into: &mut Vec<String>) -> Result<(), HandlerError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(HandlerError::new("an argument is nested too deeply for a query"));
    };
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                deep(&format!("{key}%5B{}%5D", percent(member)), value, depth, into)?;
            }
        }
        Value::Array(items) => {
            for item in items {
                deep(&format!("{key}%5B%5D"), item, depth, into)?;
            }
        }
        Value::Null => {}
        single => into.push(format!("{key}={}", percent(&plain(single)))),
    }
    Ok(())
}

/// A value of a header, or of a cookie in one: checked, not changed.
pub(super) fn header_text(name: &str, text: String) -> Result<String, HandlerError> {
    let is_fine = text.len() <= HEADER_LIMIT && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_fine { Ok(text) } else { Err(HandlerError::new(format!("invalid header value for `{name}`"))) }
}

/// A list or an object in a header: `a,b` or `k,v` or `k=v`.
pub(super) fn in_header(value: &Value, serial: Serial) -> String {
    let between = if serial.explode { "=" } else { "," };
    let parts = members(value).map(|(key, text)| match key {
        Some(key) => format!("{key}{between}{text}"),
        None => text,
    });
    parts.collect::<Vec<_>>().join(",")
}

fn members(value: &Value) -> impl Iterator<Item = (Option<&str>, String)> {
    let parts: Vec<(Option<&str>, String)> = match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().map(|item| (None, plain(item))).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| (Some(key.as_str()), plain(value))).collect()
        }
        single => vec![(None, plain(single))],
    };
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table of the OpenAPI specification, for `color` and its three kinds of values.
    #[test]
    fn every_style_writes_what_the_specification_shows() {
        let values = [json!("blue"), json!(["blue", "black"]), json!({"R": 100, "G": 200})];
        for (style, explode, wanted) in [
            (Style::Matrix, false, [";color=blue", ";color=blue,black", ";color=R,100,G,200"]),
            (Style::Matrix, true, [";color=blue", ";color=blue;color=black", ";R=100;G=200"]),
            (Style::Label, false, [".blue", ".blue,black", ".R,100,G,200"]),
            (Style::Label, true, [".blue", ".blue.black", ".R=100.G=200"]),
            (Style::Simple, false, ["blue", "blue,black", "R,100,G,200"]),
            (Style::Simple, true, ["blue", "blue,black", "R=100,G=200"]),
        ] {
            for (value, wanted) in values.iter().zip(wanted) {
                assert_eq!(
                    in_path("color", value, Serial { style, explode }).unwrap(),
                    wanted,
                    "{style:?} {explode}"
                );
            }
        }
        for (style, explode, wanted) in [
            (Style::Form, true, ["color=blue", "color=blue&color=black", "R=100&G=200"]),
            (Style::Form, false, ["color=blue", "color=blue,black", "color=R,100,G,200"]),
            (Style::Space, false, ["color=blue", "color=blue%20black", "color=R%20100%20G%20200"]),
            (Style::Pipe, false, ["color=blue", "color=blue%7Cblack", "color=R%7C100%7CG%7C200"]),
            (
                Style::Deep,
                true,
                ["color=blue", "color=blue&color=black", "color%5BR%5D=100&color%5BG%5D=200"],
            ),
        ] {
            for (value, wanted) in values.iter().zip(wanted) {
                let mut pairs = Vec::new();
                in_query("color", value, Serial { style, explode }, &[], &mut pairs).unwrap();
                assert_eq!(pairs.join("&"), wanted, "{style:?} {explode}");
            }
        }
    }

    #[test]
    fn nothing_breaks_out_of_its_place() {
        for bad in ["", ".", "..", "../x", "a/../b", "a\\..\\b", "a\0", "a\nb"] {
            assert!(in_path("id", &json!(bad), Serial::SIMPLE).is_err(), "{bad:?}");
            assert!(
                in_path("id", &json!([bad]), Serial { style: Style::Label, explode: true }).is_err(),
                "{bad:?}"
            );
        }
        assert!(in_path("id", &json!([]), Serial::SIMPLE).is_err());
        let mut pairs = Vec::new();
        let hostile = json!({"key": "1"});
        assert!(in_query("filter", &hostile, Serial::FORM, &["key"], &mut pairs).is_err());
        for bad in ["a\r\nb", "a\n", "\0", "\u{2028}", "é", &"a".repeat(9000)] {
            assert!(header_text("x", bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
