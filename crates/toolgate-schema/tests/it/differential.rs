//! Random schemas and random values, validated here and by another implementation.
//!
//! Known differences, which are excluded:
//! - Keywords of earlier drafts are supported here (`dependencies`, lists in `items`, flags for limits, siblings of a
//!   `$ref` in draft 7); the other implementation treats all schemas as 2020-12.
//! - Whether a large number is a multiple of another is decided by its digits here, by a division of floats there.
//! - A schema with a cycle that does not descend into the value, through a `not` for example, has no defined meaning: both
//!   implementations end, with results of their own.
//! - `\p{P}`, `\p{S}` and `\p{M}` are wider than in Unicode, beyond ASCII.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};
use toolgate_schema::{Pattern, Schema};

/// Few names, so that schemas and values have names in common.
const NAMES: [&str; 5] = ["a", "b", "ab", "x-1", "é/~"];
const PATTERNS: [&str; 16] = [
    "^a",
    "b$",
    "^[a-c]{1,2}$",
    "^x-",
    "\\d",
    "^\\w*$",
    "^(a|b)+$",
    "^(?!a)",
    "(?=.*b)a",
    "(?<=a)b",
    "^.{2}$",
    "\\s",
    "^$",
    "é",
    "(a)\\1",
    "[^a-z]",
];

const LARGE_NUMBERS: [&str; 4] =
    ["18446744073709551615", "-9223372036854775808", "1e+300", "9007199254740993"];

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (-3_i64..6).prop_map(Value::from),
        2 => select(vec![0.5, 1.0, 1.5, 2.0, 0.1, 0.3, -0.0, 3.7]).prop_map(Value::from),
        1 => select(LARGE_NUMBERS.to_vec()).prop_map(|text| serde_json::from_str(text).expect("it is a number")),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => select(NAMES.to_vec()).prop_map(str::to_owned),
        2 => "[abx1é \\-]{0,4}",
        1 => select(vec!["", "aa", "bb", "𝄞", "a\n", "10"]).prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(select(NAMES.to_vec()), inner, 0..4).prop_map(|members| {
                members
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect::<Map<_, _>>()
                    .into()
            }),
        ]
    })
}

fn types() -> impl Strategy<Value = Value> {
    let names = ["null", "boolean", "integer", "number", "string", "array", "object"];
    prop_oneof![
        select(names.to_vec()).prop_map(Value::from),
        subsequence(names.to_vec(), 1..4).prop_map(|names| json!(names)),
    ]
}

fn names() -> impl Strategy<Value = Value> {
    subsequence(NAMES.to_vec(), 0..3).prop_map(|names| json!(names))
}

/// A keyword without subschemas.
fn simple_keyword() -> impl Strategy<Value = (&'static str, Value)> {
    let count = || (0_u64..4).prop_map(Value::from);
    prop_oneof![
        4 => types().prop_map(|types| ("type", types)),
        2 => vec(value(), 0..4).prop_map(|all| ("enum", all.into())),
        1 => value().prop_map(|value| ("const", value)),
        2 => (select(vec!["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]), number()),
        1 => select(vec![json!(2), json!(3), json!(0.1), json!(0.5), json!(1.5)]).prop_map(|of| ("multipleOf", of)),
        2 => (select(vec!["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
            "minContains", "maxContains"]), count()),
        1 => select(PATTERNS.to_vec()).prop_map(|pattern| ("pattern", pattern.into())),
        1 => any::<bool>().prop_map(|flag| ("uniqueItems", flag.into())),
        2 => names().prop_map(|names| ("required", names)),
        1 => btree_map(select(NAMES.to_vec()), names(), 1..3).prop_map(|all| ("dependentRequired", json!(all))),
        2 => select(vec!["#", "#/$defs/a", "#/$defs/b", "#anchor", "other.json"])
            .prop_map(|to| ("$ref", to.into())),
        1 => select(vec!["#node", "#/$defs/a"]).prop_map(|to| ("$dynamicRef", to.into())),
    ]
}

/// A keyword with subschemas.
fn applicator_keyword(inner: BoxedStrategy<Value>) -> impl Strategy<Value = (&'static str, Value)> {
    let named = btree_map(select(NAMES.to_vec()), inner.clone(), 1..4).prop_map(|all| json!(all));
    let by_pattern = btree_map(select(PATTERNS.to_vec()), inner.clone(), 1..3).prop_map(|all| json!(all));
    prop_oneof![
        4 => named.clone().prop_map(|all| ("properties", all)),
        1 => by_pattern.prop_map(|all| ("patternProperties", all)),
        1 => named.prop_map(|all| ("dependentSchemas", all)),
        3 => (select(vec!["allOf", "anyOf", "oneOf", "prefixItems"]), vec(inner.clone(), 1..4).prop_map(Value::from)),
        5 => (select(vec!["items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else",
            "unevaluatedItems", "unevaluatedProperties"]), inner),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let object = |words: Vec<(&'static str, Value)>| -> Value {
        words.into_iter().map(|(word, value)| (word.to_owned(), value)).collect::<Map<_, _>>().into()
    };
    let leaf = prop_oneof![
        1 => any::<bool>().prop_map(Value::from),
        9 => vec(simple_keyword(), 0..3).prop_map(object),
    ];
    leaf.prop_recursive(4, 32, 3, move |inner| {
        (vec(simple_keyword(), 0..2), vec(applicator_keyword(inner.boxed()), 1..4))
            .prop_map(move |(one, other)| object(one.into_iter().chain(other).collect()))
    })
}

/// A document with targets for references.
fn document() -> impl Strategy<Value = Value> {
    let marked = |schema: Value, words: Value| {
        let mut schema = match schema {
            Value::Object(_) => schema,
            flag => json!({ "allOf": [flag] }),
        };
        for (word, value) in words.as_object().into_iter().flatten() {
            schema[word] = value.clone();
        }
        schema
    };
    (schema(), schema(), schema(), schema()).prop_map(move |(whole, a, b, other)| {
        let defs = json!({
            "a": marked(a, json!({ "$anchor": "anchor" })),
            "b": marked(b, json!({ "$dynamicAnchor": "node" })),
        });
        let other = marked(other, json!({ "$id": "other.json", "$defs": defs }));
        let mut whole = marked(whole, json!({ "$id": "https://example.com/whole.json", "$defs": defs }));
        whole["$defs"]["c"] = other;
        whole
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn validation_agrees_with_jsonschema(document in document(), values in vec(value(), 8)) {
        let ours = Schema::new(&document);
        let theirs = jsonschema::draft202012::new(&document);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{} {:?} {:?}", document, ours.err(), theirs.err());
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) && !is_negated_cycle(&document, &ours) {
            for value in values.into_iter().filter(|value| !has_large_multiple(&document, value)) {
                let is_valid = ours.is_valid(&value);
                prop_assert_eq!(is_valid, theirs.is_valid(&value), "{} judges {}", document, value);
                // A valid value has no errors, an invalid one has at least one, and each points to an existing value.
                let faults = ours.errors(&value, 5);
                prop_assert_eq!(faults.is_empty(), is_valid, "{} judges {}", document, value);
                for fault in faults {
                    prop_assert_eq!(value.pointer(fault.pointer()), Some(fault.value()));
                }
            }
        }
    }

    #[test]
    fn matching_agrees_with_jsonschema(pattern in pattern(3), texts in vec("[abc1_ \\-\\n]{0,8}", 8)) {
        let theirs = jsonschema::draft202012::new(&json!({ "pattern": pattern }));
        if let (Ok(ours), Ok(theirs)) = (Pattern::new(&pattern), theirs) {
            for text in texts {
                prop_assert_eq!(ours.is_match(&text), Ok(theirs.is_valid(&json!(text))), "{} and {:?}", pattern, text);
            }
        }
    }

    /// Any input gives a result.
    #[test]
    fn any_text_is_a_pattern_or_rejected(pattern in "[ab(){}\\[\\]\\\\^$.*+?|:=!<>0-9,\\-pLkiPux]{0,24}", text in "[ab]{0,30}") {
        if let Ok(pattern) = Pattern::new(&pattern) {
            let _ = pattern.is_match(&text);
        }
    }
}

fn has_large_multiple(document: &Value, value: &Value) -> bool {
    let text = value.to_string();
    document.to_string().contains("multipleOf") && LARGE_NUMBERS.iter().any(|large| text.contains(large))
}

fn is_negated_cycle(document: &Value, schema: &Schema) -> bool {
    let text = document.to_string();
    schema.has_cycle()
        && ["\"not\"", "\"if\"", "\"oneOf\"", "\"unevaluated"].iter().any(|word| text.contains(word))
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

fn pattern(depth: u32) -> BoxedStrategy<String> {
    let atom = select(vec![
        "a", "b", "c", "1", ".", "[ab]", "[^a]", "\\d", "\\w", "\\W", "\\s", "\\S", "^", "$", "\\b", "\\B",
        "[\\w-]",
    ])
    .prop_map(str::to_owned);
    atom.prop_recursive(depth, 16, 4, |inner| {
        let many = vec(inner.clone(), 1..4).prop_map(|all| all.concat());
        let either = vec(inner.clone(), 2..4).prop_map(|all| format!("(?:{})", all.join("|")));
        let group = (select(vec!["(", "(?:", "(?=", "(?!"]), inner.clone())
            .prop_map(|(open, what)| format!("{open}{what})"));
        let repeated = (inner, select(vec!["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?"]))
            .prop_map(|(what, how)| format!("(?:{what}){how}"));
        prop_oneof![3 => many, 2 => either, 2 => group, 2 => repeated]
    })
    .boxed()
}
