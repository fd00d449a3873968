//! Expansion of URI templates (RFC 6570 section 3).

use super::parse::is_triplet;
use super::{Expression, Modifier, Operator, Part, UriValue, Variable};

pub(super) fn expand(parts: &[Part], values: &impl Fn(&str) -> Option<UriValue>) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Expression(expression) => push_expression(&mut out, expression, values),
        }
    }
    out
}

fn push_expression(out: &mut String, expression: &Expression, values: &impl Fn(&str) -> Option<UriValue>) {
    let operator = expression.operator;
    let mut prefix = operator.prefix();
    for variable in &expression.variables {
        let value = match values(&variable.name) {
            None => continue,
            Some(UriValue::Many(items)) if items.is_empty() => continue,
            Some(UriValue::Pairs(pairs)) if pairs.is_empty() => continue,
            Some(value) => value,
        };
        out.push_str(prefix);
        prefix = operator.separator();
        match variable.modifier {
            Modifier::Explode => push_exploded(out, operator, variable, &value),
            Modifier::Prefix(_) | Modifier::None => push_joined(out, operator, variable, &value),
        }
    }
}

/// Writes a value without `*`: lists are joined by commas.
fn push_joined(out: &mut String, operator: Operator, variable: &Variable, value: &UriValue) {
    match value {
        UriValue::One(text) => {
            let text = match variable.modifier {
                Modifier::Prefix(n) => first_characters(text, n),
                Modifier::None | Modifier::Explode => text,
            };
            push_named(out, operator, &variable.name, text);
        }
        UriValue::Many(items) => {
            push_name(out, operator, &variable.name);
            push_commas(out, operator, items.iter());
        }
        UriValue::Pairs(pairs) => {
            push_name(out, operator, &variable.name);
            push_commas(out, operator, pairs.iter().flat_map(|(name, value)| [name, value]));
        }
    }
}

fn push_exploded(out: &mut String, operator: Operator, variable: &Variable, value: &UriValue) {
    let between = operator.separator();
    match value {
        UriValue::One(text) => push_named(out, operator, &variable.name, text),
        UriValue::Many(items) => {
            for (n, item) in items.iter().enumerate() {
                out.push_str(if n == 0 { "" } else { between });
                push_named(out, operator, &variable.name, item);
            }
        }
        UriValue::Pairs(pairs) => {
            for (n, (name, value)) in pairs.iter().enumerate() {
                out.push_str(if n == 0 { "" } else { between });
                push_encoded(out, operator, name);
                if !(value.is_empty() && operator == Operator::Parameter) {
                    out.push('=');
                }
                push_encoded(out, operator, value);
            }
        }
    }
}

fn push_commas<'a>(out: &mut String, operator: Operator, items: impl Iterator<Item = &'a String>) {
    for (n, item) in items.enumerate() {
        out.push_str(if n == 0 { "" } else { "," });
        push_encoded(out, operator, item);
    }
}

fn push_name(out: &mut String, operator: Operator, name: &str) {
    if operator.is_named() {
        out.push_str(name);
        out.push('=');
    }
}

fn push_named(out: &mut String, operator: Operator, name: &str, value: &str) {
    if value.is_empty() && operator == Operator::Parameter {
        out.push_str(name);
        return;
    }
    push_name(out, operator, name);
    push_encoded(out, operator, value);
}

fn first_characters(text: &str, n: usize) -> &str {
    match text.char_indices().nth(n) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

fn push_encoded(out: &mut String, operator: Operator, text: &str) {
    if operator.allows_reserved() {
        push_literal(out, text);
    } else {
        text.bytes().for_each(|b| push_byte(out, b, is_unreserved(b)));
    }
}

/// Percent-encodes characters that are not allowed in a URI; reserved characters and triplets are kept.
pub(super) fn push_literal(out: &mut String, text: &str) {
    let bytes = text.as_bytes();
    for (at, &b) in bytes.iter().enumerate() {
        let is_literal = is_unreserved(b) || is_reserved(b) || is_triplet(&bytes[at..]);
        push_byte(out, b, is_literal);
    }
}

fn push_byte(out: &mut String, b: u8, stays: bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    if stays {
        out.push(char::from(b));
    } else {
        out.push('%');
        out.push(char::from(HEX[usize::from(b >> 4)]));
        out.push(char::from(HEX[usize::from(b & 15)]));
    }
}

fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
}

fn is_reserved(b: u8) -> bool {
    matches!(
        b,
        b':' | b'/'
            | b'?'
            | b'#'
            | b'['
            | b']'
            | b'@'
            | b'!'
            | b'$'
            | b'&'
            | b'\''
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b','
            | b';'
            | b'='
    )
}
