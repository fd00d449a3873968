//! URI templates (RFC 6570, all four levels): expansion and matching.
//!
//! Expansion follows the RFC. Matching, which the RFC does not define, finds values from which the URI could have been
//! expanded. It takes at most time proportional to the length of the URI times that of the template, and both are bounded:
//! there is no backtracking, so no URI makes it slow.
//!
//! Rules of matching:
//! - The whole URI must match, byte for byte in the literals.
//! - `{x}` matches one or more characters of one path segment, `{+x}` one or more of any. If several splits are possible, an
//!   earlier variable takes as few characters as possible: `{+a}{+b}` against `xyz` is `x` and `yz`.
//! - `{/x}`, `{.x}`, `{;x}`, `{#x}`, `{?x}` and `{&x}` may be absent; the variable then has no value.
//!   The parameters of `{?x,y}` may be in any order. A URI with an unknown parameter, or with a repeated one without `*`,
//!   does not match.
//! - `*` gives one value per item, all under the same name.
//! - Values are percent-decoded once. A value that is not UTF-8 does not match, and neither does an encoded `/` where a plain
//!   one could not be: a value of `{x}` never spans two segments. (In `{?x}` and `{&x}` it may contain one, because a slash
//!   is not a separator there.)
//!
//! Matching does not normalize a URI, resolve `..`, or validate a value. `{+path}` can be `../..`: a handler that opens files
//! must check it.

mod expand;
mod matching;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

/// Maximum length of a template.
const MAX_TEMPLATE_BYTES: usize = 2 * 1024;

/// Maximum number of variables in a template, which bounds the cost of matching.
const MAX_VARIABLES: usize = 32;

/// Maximum length of a URI. Longer ones never match.
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
    /// The compiled form for matching.
    match_steps: Vec<matching::MatchStep>,
}

/// A value of a variable, for expansion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UriValue {
    /// A string.
    One(String),
    /// A list; an empty one counts as absent.
    Many(Vec<String>),
    /// Pairs of name and value; an empty list counts as absent.
    Pairs(Vec<(String, String)>),
}

/// A syntax error in a URI template, with its byte offset.
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
    /// Literal text, percent-encoded where necessary.
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
    /// `:n`: the first `n` characters.
    Prefix(usize),
    /// `*`: each item separately.
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
    /// Returns the text before the first value.
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

    /// Returns the text between two values.
    fn separator(self) -> &'static str {
        match self {
            Self::Simple | Self::Reserved | Self::Fragment => ",",
            Self::Label => ".",
            Self::Path => "/",
            Self::Parameter => ";",
            Self::Query | Self::Continuation => "&",
        }
    }

    /// Returns whether values are written with their names.
    fn is_named(self) -> bool {
        matches!(self, Self::Parameter | Self::Query | Self::Continuation)
    }

    /// Returns whether reserved characters in values are not encoded.
    fn allows_reserved(self) -> bool {
        matches!(self, Self::Reserved | Self::Fragment)
    }
}

impl UriTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// If the text is not a valid template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let parts = parse::parse_parts(text)?;
        let match_steps = matching::compile_steps(&parts);
        Ok(Self { text: text.to_owned(), parts, match_steps })
    }

    /// Returns the text of the template.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names of the variables in order, with repetitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let expressions = self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Expression(expression) => Some(expression),
        });
        expressions.flat_map(|expression| expression.variables.iter().map(|v| v.name.as_str()))
    }

    /// Expands the template with these values. A variable without a value is omitted.
    pub fn expand(&self, values: &impl Fn(&str) -> Option<UriValue>) -> String {
        expand::expand(&self.parts, values)
    }

    /// Matches a URI. Returns the variables with their decoded values, one pair per item of a list, or `None` if the URI does not
    /// match.
    pub fn match_uri(&self, uri: &str) -> Option<Vec<(String, String)>> {
        matching::match_uri(&self.match_steps, uri)
    }
}
