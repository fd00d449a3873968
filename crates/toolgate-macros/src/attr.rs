//! Parsing of attributes and doc comments.
//!
//! Every attribute has a table of its keys, so that the error about an unknown one lists them. The meaning of keys is defined by
//! the callers.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, Ident, Lit, LitStr, Meta, Result, Token};

use crate::function::Function;

/// The arguments of an attribute: an optional string, then keys with and without values.
pub(crate) struct AttributeOptions {
    text: Option<LitStr>,
    keys: Vec<KeyValue>,
}

/// One key of an attribute.
pub(crate) struct KeyValue {
    pub(crate) name: Ident,
    /// The expression after `=`.
    pub(crate) value: Option<Expr>,
}

enum Entry {
    Text(LitStr),
    KeyValue(KeyValue),
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> Result<Entry> {
        if input.peek(LitStr) {
            return Ok(Entry::Text(input.parse()?));
        }
        let name: Ident = input.call(syn::ext::IdentExt::parse_any)?;
        let value = match input.parse::<Option<Token![=]>>()? {
            Some(_) => Some(input.parse()?),
            None => None,
        };
        Ok(Entry::KeyValue(KeyValue { name, value }))
    }
}

impl AttributeOptions {
    /// Parses the arguments of `#[attribute(…)]`. `known` are the keys it may have.
    pub(crate) fn read(attribute: &str, inside: TokenStream, known: &[&str]) -> Result<AttributeOptions> {
        let entries = Punctuated::<Entry, Token![,]>::parse_terminated.parse2(inside)?;
        let mut options = AttributeOptions { text: None, keys: Vec::new() };
        for entry in entries {
            match entry {
                Entry::Text(text) => {
                    if options.text.is_some() || !options.keys.is_empty() {
                        return Err(Error::new_spanned(&text, "a text stands first, and only one"));
                    }
                    options.text = Some(text);
                }
                Entry::KeyValue(key) => {
                    if !known.iter().any(|known| key.name == known) {
                        return Err(unknown_key_error(attribute, &key.name, known));
                    }
                    if options.keys.iter().any(|other| other.name == key.name) {
                        return Err(Error::new_spanned(&key.name, format!("`{}` is given twice", key.name)));
                    }
                    options.keys.push(key);
                }
            }
        }
        Ok(options)
    }

    /// Takes the leading string, if there is one.
    pub(crate) fn take_text(&mut self) -> Option<LitStr> {
        self.text.take()
    }

    /// Fails if there is a leading string that was not taken.
    pub(crate) fn reject_text(&self, hint: &str) -> Result<()> {
        match &self.text {
            Some(text) => Err(Error::new_spanned(text, hint)),
            None => Ok(()),
        }
    }

    pub(crate) fn take_key(&mut self, name: &str) -> Option<KeyValue> {
        let index = self.keys.iter().position(|key| key.name == name)?;
        Some(self.keys.remove(index))
    }

    /// Takes the value of a key: any expression.
    pub(crate) fn take_expression(&mut self, name: &str) -> Result<Option<Expr>> {
        match self.take_key(name) {
            None => Ok(None),
            Some(KeyValue { value: Some(value), .. }) => Ok(Some(value)),
            Some(KeyValue { name, .. }) => {
                Err(Error::new_spanned(&name, format!("`{name}` needs a value: `{name} = …`")))
            }
        }
    }

    /// Takes the value of a key: a string literal.
    pub(crate) fn take_string(&mut self, name: &str) -> Result<Option<LitStr>> {
        match self.take_expression(name)? {
            None => Ok(None),
            Some(value) => string_literal(&value)
                .map(Some)
                .ok_or_else(|| Error::new_spanned(&value, format!("`{name}` is a text: `{name} = \"…\"`"))),
        }
    }

    /// Takes a key without a value.
    pub(crate) fn take_flag(&mut self, name: &str) -> Result<bool> {
        match self.take_key(name) {
            None => Ok(false),
            Some(KeyValue { value: None, .. }) => Ok(true),
            Some(KeyValue { value: Some(value), .. }) => {
                Err(Error::new_spanned(&value, format!("`{name}` stands alone, without a value")))
            }
        }
    }

    /// Takes the key `inline`, for a function that is not `async`.
    pub(crate) fn take_inline(&mut self, function: &Function) -> Result<bool> {
        let name = self.keys.iter().find(|key| key.name == "inline").map(|key| key.name.clone());
        function.reject_inline(name.as_ref())?;
        self.take_flag("inline")
    }

    /// Takes the value of a key: a duration such as `30s`, in milliseconds.
    pub(crate) fn take_duration(&mut self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.take_string(name)? else { return Ok(None) };
        match parse_duration(&text.value()) {
            Some(duration) => Ok(Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))),
            None => Err(Error::new_spanned(
                &text,
                format!("`{name}` is a number with `ms`, `s`, `m` or `h`, such as \"30s\""),
            )),
        }
    }
}

/// Returns the string literal of an expression.
pub(crate) fn string_literal(value: &Expr) -> Option<LitStr> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.clone()),
            _ => None,
        },
        Expr::Group(group) => string_literal(&group.expr),
        _ => None,
    }
}

fn unknown_key_error(attribute: &str, name: &Ident, known: &[&str]) -> Error {
    let list = known.iter().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ");
    let near = known.iter().find(|known| is_similar(&name.to_string(), known));
    let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Error::new_spanned(name, format!("`#[{attribute}]` knows no `{name}`{hint}\nit knows {list}"))
}

/// Returns whether two words are similar: their common prefix and suffix cover almost all of them, or they are anagrams.
fn is_similar(one: &str, other: &str) -> bool {
    let letters = |word: &str| {
        let mut letters: Vec<u8> = word.bytes().collect();
        letters.sort_unstable();
        letters
    };
    let start = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let end = one.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
    let longer = one.len().max(other.len());
    let meets = start + end + 1 >= longer || start * 3 >= longer * 2;
    longer > 2 && (meets || letters(one) == letters(other))
}

fn parse_duration(text: &str) -> Option<Duration> {
    let end = text.find(|letter: char| !letter.is_ascii_digit())?;
    let number: u64 = text[..end].parse().ok()?;
    let millis = match &text[end..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

/// A doc comment: its text, and the descriptions of arguments (`@name text`).
#[derive(Default)]
pub(crate) struct Docs {
    pub(crate) text: String,
    tags: Vec<(String, String)>,
}

impl Docs {
    /// Parses the doc comment among these attributes. A line that starts with `@` and one of these names begins the description of
    /// that argument, which ends before the next one or an empty line.
    pub(crate) fn read(attributes: &[Attribute], arguments: &[String]) -> Docs {
        let mut docs = Docs::default();
        let mut lines = Vec::new();
        let mut is_in_tag = false;
        for line in attributes.iter().filter_map(doc_text).flat_map(|text| doc_lines(&text)) {
            let tag = line.trim().strip_prefix('@').map(|rest| rest.split_once(' ').unwrap_or((rest, "")));
            if let Some((name, text)) = tag.filter(|(name, _)| arguments.iter().any(|known| known == name)) {
                docs.tags.push((name.to_owned(), text.trim().to_owned()));
                is_in_tag = true;
            } else if is_in_tag && !line.trim().is_empty() {
                let (_, text) = docs.tags.last_mut().expect("a tag was begun");
                text.push(' ');
                text.push_str(line.trim());
            } else {
                is_in_tag = false;
                lines.push(line);
            }
        }
        docs.text = lines.join("\n").trim().to_owned();
        docs
    }

    /// Returns the description of an argument.
    pub(crate) fn argument_description(&self, argument: &str) -> Option<&str> {
        let (_, text) = self.tags.iter().find(|(name, _)| name == argument)?;
        (!text.is_empty()).then_some(text)
    }
}

/// Returns the string of `#[doc = "…"]`.
fn doc_text(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => {
            string_literal(&meta.value).map(|text| text.value())
        }
        _ => None,
    }
}

/// Returns the lines of one doc attribute, without the usual space after `///`.
fn doc_lines(text: &str) -> Vec<String> {
    let strip = |line: &str| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned();
    match text.is_empty() {
        true => vec![String::new()],
        false => text.lines().map(strip).collect(),
    }
}

/// Returns the arguments of `#[attribute]` or `#[attribute(…)]`.
pub(crate) fn attribute_tokens(attribute: &Attribute) -> Result<TokenStream> {
    match &attribute.meta {
        Meta::Path(_) => Ok(TokenStream::new()),
        Meta::List(list) => Ok(list.tokens.clone()),
        Meta::NameValue(meta) => Err(Error::new_spanned(
            meta,
            format!("write `#[{}(…)]`", meta.path.to_token_stream().to_string().replace(' ', "")),
        )),
    }
}

/// Returns whether the last segment of an attribute's path is this name.
pub(crate) fn is_named(attribute: &Attribute, name: &str) -> bool {
    attribute.path().segments.last().is_some_and(|segment| segment.ident == name)
}

/// Returns the `#[cfg]` attributes of an item. Generated items get the same ones.
pub(crate) fn cfg_attributes(attributes: &[Attribute]) -> Vec<&Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect()
}

/// The span of the macro call, for errors without a better one.
pub(crate) fn call_site() -> Span {
    Span::call_site()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_leave_the_description() {
        let item: syn::ItemFn = syn::parse_quote! {
            /// Searches.
            ///
            /// @query What to look for,
            ///   in any language
            /// @limit How many
            ///
            /// @nobody stays
            ///   Indented too.
            fn search() {}
        };
        let docs = Docs::read(&item.attrs, &["query".into(), "limit".into()]);
        assert_eq!(docs.text, "Searches.\n\n\n@nobody stays\n  Indented too.");
        assert_eq!(docs.argument_description("query"), Some("What to look for, in any language"));
        assert_eq!(docs.argument_description("limit"), Some("How many"));
        assert_eq!(docs.argument_description("nobody"), None);
    }

    #[test]
    fn durations_have_units() {
        let cases = [
            ("30s", Some(30_000)),
            ("5ms", Some(5)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("30", None),
            ("s", None),
            ("1d", None),
            ("-1s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text).map(|duration| duration.as_millis()), millis, "{text}");
        }
    }

    #[test]
    fn almost_right_is_recognized() {
        assert!(is_similar("readonly", "read_only") && is_similar("descripton", "description"));
        assert!(is_similar("defualt", "default"));
        assert!(!is_similar("price", "title") && !is_similar("uri", "name"));
    }
}
