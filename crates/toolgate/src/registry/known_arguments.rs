//! Refuses arguments that a tool does not know, without compiling its schema.
//!
//! An argument with a misspelled name would be ignored otherwise, and the call would do something else than the model asked for.

use std::sync::Arc;

use serde_json::Value;
use toolgate_wire::RawJson;

use crate::request::{ArgumentError, ArgumentErrors, truncate_chars};
use crate::util::similar::is_similar;

/// Maximum number of unknown arguments in one message.
const MAX_REPORTED_NAMES: usize = 10;
/// Maximum length of a name in a message.
const MAX_NAME_CHARS: usize = 120;

/// The names of all arguments of a tool.
#[derive(Clone, Debug)]
pub(crate) struct KnownArguments(Arc<[&'static str]>);

impl KnownArguments {
    /// Returns the names, if the schema allows no others or does not say; then it is changed to say so. Schemas with patterns,
    /// variants or references are left alone: they may allow names that are not listed.
    pub(crate) fn apply(names: Option<&[&'static str]>, schema: &mut Value) -> Option<KnownArguments> {
        const OTHER_SOURCES: [&str; 9] = [
            "$ref",
            "allOf",
            "anyOf",
            "dependentSchemas",
            "if",
            "not",
            "oneOf",
            "patternProperties",
            "unevaluatedProperties",
        ];
        let (names, root) = (names?, schema.as_object_mut()?);
        if OTHER_SOURCES.iter().any(|keyword| root.contains_key(*keyword)) {
            return None;
        }
        let additional = root.entry("additionalProperties").or_insert(Value::Bool(false));
        (*additional == Value::Bool(false)).then(|| KnownArguments(names.into()))
    }

    /// Returns whether an argument is not known. Called for every call, so that it allocates nothing.
    pub(crate) fn has_unknown(&self, arguments: &RawJson) -> bool {
        arguments.view().pairs().any(|(name, _)| !self.0.iter().any(|known| name.eq_str(known)))
    }

    /// Returns one error for each unknown argument, with a known one that has a similar name.
    pub(crate) fn find_errors(&self, arguments: &RawJson) -> ArgumentErrors {
        let names = arguments.view().members().map(|(name, _)| name);
        let unknown = names.filter(|name| !self.0.contains(&&**name)).take(MAX_REPORTED_NAMES);
        ArgumentErrors(unknown.map(|name| unknown_argument(&name, self.0.iter().copied())).collect())
    }
}

/// Returns the error for an unknown argument, with a known one that has a similar name.
pub(crate) fn unknown_argument<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> ArgumentError {
    let similar = known.into_iter().find(|known| is_similar(known, name));
    let hint = similar.map(|known| format!("; did you mean `{known}`?")).unwrap_or_default();
    let name = truncate_chars(name, MAX_NAME_CHARS);
    ArgumentError { message: format!("unknown parameter `{name}`{hint}"), missing: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_arguments_are_named_with_a_similar_one() {
        let known = KnownArguments(["query", "maxResults"].into());
        for (arguments, expected) in [
            (json!({}), ""),
            (json!({ "query": 1, "maxResults": { "other": 1 } }), ""),
            (json!({ "querry": 1 }), "unknown parameter `querry`; did you mean `query`?"),
            (
                json!({ "max_results": 1, "x": 2 }),
                "unknown parameter `max_results`; did you mean `maxResults`?; unknown parameter `x`",
            ),
        ] {
            let arguments = RawJson::from(arguments);
            assert_eq!(known.has_unknown(&arguments), !expected.is_empty());
            assert_eq!(known.find_errors(&arguments).joined(), expected);
        }
        assert!(!known.has_unknown(&RawJson::parse("{\"qu\\u0065ry\":1}".into()).unwrap()));
    }

    #[test]
    fn a_schema_that_says_which_names_it_allows_is_left_alone() {
        let names = Some(&["a"][..]);
        let closed = json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": false });
        let mut open = json!({ "type": "object", "properties": { "a": {} } });
        assert!(KnownArguments::apply(names, &mut open).is_some());
        assert_eq!(open, closed);
        assert!(KnownArguments::apply(names, &mut open).is_some());
        assert_eq!(open, closed);
        for schema in [
            json!({ "type": "object", "additionalProperties": true }),
            json!({ "type": "object", "additionalProperties": { "type": "integer" } }),
            json!({ "type": "object", "oneOf": [{ "properties": { "b": {} } }] }),
            json!({ "type": "object", "patternProperties": { "^b": {} } }),
        ] {
            let mut changed = schema.clone();
            assert!(KnownArguments::apply(names, &mut changed).is_none());
            assert_eq!(changed, schema);
        }
        let mut schema = json!({ "type": "object" });
        assert!(KnownArguments::apply(None, &mut schema).is_none());
        assert_eq!(schema, json!({ "type": "object" }));
    }
}
