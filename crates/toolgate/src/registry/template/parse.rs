//! Parser for URI templates (RFC 6570 section 2).

use super::expand::push_literal;
use super::{
    Expression, MAX_TEMPLATE_BYTES, MAX_VARIABLES, Modifier, Operator, Part, TemplateError, Variable,
};

/// Maximum length of a prefix modifier, by the RFC.
const MAX_PREFIX_CHARS: usize = 9999;

pub(super) fn parse_parts(text: &str) -> Result<Vec<Part>, TemplateError> {
    if text.len() > MAX_TEMPLATE_BYTES {
        return Err(error("longer than 2 KiB", MAX_TEMPLATE_BYTES));
    }
    let mut parts = Vec::new();
    let mut n_variables = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let end = if rest.starts_with('{') {
            let end = rest.find('}').ok_or(error("`{` without `}`", at))?;
            let expression = parse_expression(&rest[1..end], at + 1)?;
            n_variables += expression.variables.len();
            if n_variables > MAX_VARIABLES {
                return Err(error("more than 32 variables", at));
            }
            parts.push(Part::Expression(expression));
            end + 1
        } else {
            let end = rest.find('{').unwrap_or(rest.len());
            parts.push(Part::Text(parse_literal(&rest[..end], at)?));
            end
        };
        at += end;
    }
    Ok(parts)
}

fn error(problem: &'static str, at: usize) -> TemplateError {
    TemplateError { problem, offset: at }
}

fn parse_literal(text: &str, start: usize) -> Result<String, TemplateError> {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            '}' => return Err(error("`}` without `{`", start + at)),
            '%' if !is_triplet(&text.as_bytes()[at..]) => {
                return Err(error("`%` without two hex digits", start + at));
            }
            '\0'..=' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '|' | '\x7f' => {
                return Err(error("a character that no URI may hold", start + at));
            }
            _ => {}
        }
    }
    push_literal(&mut out, text);
    Ok(out)
}

fn parse_expression(text: &str, start: usize) -> Result<Expression, TemplateError> {
    let operator = match text.as_bytes().first() {
        None => return Err(error("an expression without a variable", start)),
        Some(b'+') => Operator::Reserved,
        Some(b'#') => Operator::Fragment,
        Some(b'.') => Operator::Label,
        Some(b'/') => Operator::Path,
        Some(b';') => Operator::Parameter,
        Some(b'?') => Operator::Query,
        Some(b'&') => Operator::Continuation,
        Some(b'=' | b',' | b'!' | b'@' | b'|') => {
            return Err(error("an operator that is reserved", start));
        }
        Some(_) => Operator::Simple,
    };
    let mut at = usize::from(operator != Operator::Simple);
    let mut variables = Vec::new();
    for specification in text[at..].split(',') {
        variables.push(parse_variable(specification, start + at)?);
        at += specification.len() + 1;
    }
    Ok(Expression { operator, variables })
}

fn parse_variable(text: &str, at: usize) -> Result<Variable, TemplateError> {
    let (name, modifier) = if let Some(name) = text.strip_suffix('*') {
        (name, Modifier::Explode)
    } else if let Some((name, digits)) = text.split_once(':') {
        (name, parse_prefix(digits, at + name.len() + 1)?)
    } else {
        (text, Modifier::None)
    };
    if !is_name(name) {
        return Err(error("not a variable name", at));
    }
    Ok(Variable { name: name.to_owned(), modifier })
}

fn parse_prefix(digits: &str, at: usize) -> Result<Modifier, TemplateError> {
    let is_number = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    match digits.parse() {
        Ok(n) if is_number && n <= MAX_PREFIX_CHARS => Ok(Modifier::Prefix(n)),
        _ => Err(error("a prefix that is not 1 to 9999", at)),
    }
}

/// Returns whether this is a variable name: letters, digits, `_` and percent-encoded triplets, with single dots between them.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.split('.').all(|word| {
            let bytes = word.as_bytes();
            !word.is_empty()
                && (0..bytes.len()).all(|at| match bytes[at] {
                    b'%' => is_triplet(&bytes[at..]),
                    b => b.is_ascii_alphanumeric() || b == b'_',
                })
        })
}

/// Returns whether this starts with a percent sign and two hex digits.
pub(super) fn is_triplet(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
}
