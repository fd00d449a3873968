//! URI templates (RFC 6570, all four levels), in both directions.
//!
//! Expansion is the RFC's. Matching, which the RFC leaves open, finds the values an expansion could have
//! been made from. It takes time in proportion to the length of the URI times that of the template at
//! worst, and both are bounded: there is no backtracking, so no URI makes it slow.
//!
//! How matching decides:
//! - The whole URI must match, byte for byte in the literals.
//! - `{x}` takes one or more characters of one path segment, `{+x}` one or more of any. Where several
//!   splits fit, an earlier variable takes as few characters as let the rest match: `{+a}{+b}` against
//!   `xyz` is `x` and `yz`.
//! - `{/x}`, `{.x}`, `{;x}`, `{#x}`, `{?x}` and `{&x}` may be absent; the variable then has no value.
//!   `{?x,y}` may come in any order. A parameter the template does not name is no match, nor is one that
//!   comes twice without `*`.
//! - `*` gives one value per item, all under the same name.
//! - Values are percent-decoded once. What is not UTF-8 then is no match, and neither is a `/` that came
//!   encoded in a place where a plain one could not be: a value of `{x}` is never two segments.
//!   (In `{?x}` and `{&x}` it may be: there a slash separates nothing.)
//!
//! What it must not do: normalize a URI, resolve `..`, or judge a value. `{+path}` can be `../..`, and
//! whoever opens files by it must know.

mod expand;
mod matching;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

/// The longest template, in bytes.
const MAX_TEMPLATE_BYTES: usize = 2 * 1024;

/// The largest number of variables in a template, which bounds the work of matching.
const MAX_VARIABLES: usize = 32;

/// The longest URI that is matched, in bytes.
const MAX_URI_BYTES: usize = 64 * 1024;

/// A parsed URI template (RFC 6570).
///
/// ```
/// # use toolgate::uri_template::{UriTemplate, UriValue};
/// let note = UriTemplate::parse("notes://{id}").unwrap();
/// assert_eq!(note.expand(&|_| Some(UriValue::One("7".into()))), "notes://7");
/// assert_eq!(note.match_uri("notes://7"), Some(vec![("id".to_owned(), "7".to_owned())]));
/// ```
#[derive(Clone, Debug)]
pub struct UriTemplate {
    text: String,
    parts: Vec<Part>,
    /// What matching looks for, in order.
    match_steps: Vec<matching::MatchStep>,
}

/// A value to expand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UriValue {
    /// A string.
    One(String),
    /// A list; an empty one counts as absent.
    Many(Vec<String>),
    /// Names and values; no pairs count as absent.
    Pairs(Vec<(String, String)>),
}

/// Why a text is no template: what is wrong, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    problem: &'static str,
    offset: usize,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad URI template: {} at byte {}", self.problem, self.offset)
    }
}

impl std::error::Error for TemplateError {}

#[derive(Clone, Debug)]
enum Part {
    /// Text as it stands in a URI: what needs encoding is encoded.
    Text(String),
    Expression(Expression),
}

#[derive(Clone, Debug)]
struct Expression {
    operator: Operator,
    variables: Vec<Variable>,
}

#[derive(Clone, Debug)]
struct Variable {
    name: String,
    modifier: Modifier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Modifier {
    None,
    /// `:n`: the first so many characters.
    Prefix(usize),
    /// `*`: each item by itself.
    Explode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Simple,
    Reserved,
    Fragment,
    Label,
    Path,
    Parameter,
    Query,
    Continuation,
}

impl Operator {
    /// What stands before the first value.
    fn prefix(self) -> &'static str {
        match self {
            Self::Simple | Self::Reserved => "",
            Self::Fragment => "#",
            Self::Label => ".",
            Self::Path => "/",
            Self::Parameter => ";",
            Self::Query => "?",
            Self::Continuation => "&",
        }
    }

    /// What stands between two values.
    fn separator(self) -> &'static str {
        match self {
            Self::Simple | Self::Reserved | Self::Fragment => ",",
            Self::Label => ".",
            Self::Path => "/",
            Self::Parameter => ";",
            Self::Query | Self::Continuation => "&",
        }
    }

    /// Whether values are written with their names.
    fn is_named(self) -> bool {
        matches!(self, Self::Parameter | Self::Query | Self::Continuation)
    }

    /// Whether reserved characters stand for themselves in values.
    fn allows_reserved(self) -> bool {
        matches!(self, Self::Reserved | Self::Fragment)
    }
}

impl UriTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// If the text is no template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let parts = parse::parse_parts(text)?;
        let steps = matching::compile_steps(&parts);
        Ok(Self { text: text.to_owned(), parts, match_steps: steps })
    }

    /// The template as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names of the variables in order; one that is used twice comes twice.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let expressions = self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Expression(expression) => Some(expression),
        });
        expressions.flat_map(|expression| expression.variables.iter().map(|v| v.name.as_str()))
    }

    /// The URI with these values in it. A variable without a value is left out.
    pub fn expand(&self, values: &impl Fn(&str) -> Option<UriValue>) -> String {
        expand::expand(&self.parts, values)
    }

    /// The variables of a URI made from this template with their decoded values, or nothing if it was
    /// not. A list is one pair per item.
    pub fn match_uri(&self, uri: &str) -> Option<Vec<(String, String)>> {
        matching::match_uri(&self.match_steps, uri)
    }
}
