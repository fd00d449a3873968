//! Messages about invalid values and invalid schemas.

use serde_json::{Value, json};
use toolgate_schema::{Schema, ValidationErrorKind};

fn check(schema: &Value, value: &Value, expected: &[&str]) {
    let schema = Schema::new(schema).unwrap_or_else(|why| panic!("{schema}: {why}"));
    let errors: Vec<String> =
        schema.errors(value, 10).iter().map(|error| format!("{}: {error}", error.pointer())).collect();
    assert_eq!(errors, expected, "{value}");
    assert_eq!(schema.is_valid(value), expected.is_empty(), "{value}");
}

#[test]
fn errors_have_a_pointer_and_a_message() {
    for (schema, value, expected) in [
        (json!({"type": "integer"}), json!("x"), ": \"x\" is not of type \"integer\""),
        (json!({"type": ["number", "null"]}), json!("x"), ": \"x\" is not of types \"null\", \"number\""),
        (json!({"enum": [1, 2]}), json!(3), ": 3 is not one of 1 or 2"),
        (json!({"enum": [1, 2, 3, 4]}), json!(0), ": 0 is not one of 1, 2 or 2 other candidates"),
        (json!({"const": "a"}), json!("b"), ": \"a\" was expected"),
        (json!({"minimum": 1.5}), json!(1), ": 1 is less than the minimum of 1.5"),
        (json!({"exclusiveMaximum": 1}), json!(1.0), ": 1.0 is greater than or equal to the maximum of 1"),
        (
            json!({"minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            ": 1 is less than or equal to the minimum of 1",
        ),
        (json!({"multipleOf": 0.1}), json!(0.35), ": 0.35 is not a multiple of 0.1"),
        (json!({"minLength": 2}), json!("ä"), ": \"ä\" is shorter than 2 characters"),
        (json!({"maxLength": 1}), json!("äö"), ": \"äö\" is longer than 1 character"),
        (json!({"pattern": "^a"}), json!("b"), ": \"b\" does not match \"^a\""),
        (json!({"maxItems": 1}), json!([1, 2]), ": [1,2] has more than 1 item"),
        (json!({"uniqueItems": true}), json!([1, 1.0]), ": [1,1.0] has non-unique elements"),
        (json!({"contains": {"const": 1}}), json!([2]), ": None of [2] are valid under the given schema"),
        (json!({"minProperties": 1}), json!({}), ": {} has less than 1 property"),
        (json!({"required": ["a"]}), json!({}), ": \"a\" is a required property"),
        (
            json!({"items": {"properties": {"a/b": {"type": "null"}}}}),
            json!([{}, {"a/b": 1}]),
            "/1/a~1b: 1 is not of type \"null\"",
        ),
        (json!({"prefixItems": [true], "items": false}), json!([1, 2]), "/1: False schema does not allow 2"),
        (json!({"propertyNames": {"maxLength": 1}}), json!({"ab": 1}), ": \"ab\" is longer than 1 character"),
        (
            json!({"unevaluatedProperties": false, "allOf": [{"properties": {"a": true}}]}),
            json!({"a": 1, "b": 2}),
            ": Unevaluated properties are not allowed ('b' was unexpected)",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"const": 1}]}),
            json!(2),
            ": 2 is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        // The only branch beside `null`.
        (json!({"anyOf": [{"type": "null"}, {"const": 1}]}), json!(2), ": 1 was expected"),
        (
            json!({"oneOf": [true, true]}),
            json!(2),
            ": 2 is valid under more than one of the schemas listed in the 'oneOf' keyword",
        ),
        (json!({"not": {"type": "null"}}), json!(null), ": {\"type\":\"null\"} is not allowed for null"),
        (
            json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
            json!({"properties": {"a": {"type": 5}}}),
            ": {\"properties\":{\"a\":{\"type\":5}}} is not a valid JSON Schema: `type` must be a type name or an array of type names, not 5",
        ),
    ] {
        check(&schema, &value, &[expected]);
    }
    let schema =
        json!({"properties": {"a": {"type": "null"}}, "additionalProperties": false, "required": ["z"]});
    check(
        &schema,
        &json!({"x": 1, "a": 2, "y": 3}),
        &[
            "/a: 2 is not of type \"null\"",
            ": Additional properties are not allowed ('x', 'y' were unexpected)",
            ": \"z\" is a required property",
        ],
    );
}

#[test]
fn invalid_schemas_are_rejected_with_a_pointer() {
    for (schema, expected) in [
        (json!(5), "must be a schema (an object or a boolean), not 5"),
        (json!({"properties": {"a": 5}}), "`properties/a` must be a schema (an object or a boolean), not 5"),
        (json!({"type": 5}), "`type` must be a type name or an array of type names, not 5"),
        (json!({"items": {"type": "strng"}}), "`items/type` \"strng\" is not a JSON Schema type"),
        (json!({"$defs": {"a": {"minimum": "x"}}}), "`$defs/a/minimum` must be a number, not \"x\""),
        (json!({"multipleOf": 0}), "`multipleOf` must be a number greater than 0, not 0"),
        (json!({"maxLength": -1}), "`maxLength` must be a non-negative integer, not -1"),
        (json!({"required": ["a", "a"]}), "`required` must be an array of unique strings, not an array"),
        (json!({"anyOf": []}), "`anyOf` must be a non-empty array of schemas, not an array"),
        (json!({"pattern": "("}), "`pattern` \"(\" is not a valid regular expression: unclosed group"),
        (
            json!({"patternProperties": {"[": {}}}),
            "`patternProperties` \"[\" is not a valid regular expression: unclosed `[`",
        ),
        (
            json!({"not": {"$ref": "#/$defs/x"}}),
            "`not/$ref` \"#/$defs/x\" does not resolve within this schema, and remote schemas are not fetched",
        ),
        (
            json!({"$ref": "https://example.com/x"}),
            "`$ref` \"https://example.com/x\" does not resolve within this schema, and remote schemas are not fetched",
        ),
        (
            json!({"x": {"type": 5}, "$ref": "#/x"}),
            "`x/type` must be a type name or an array of type names, not 5",
        ),
    ] {
        assert_eq!(Schema::new(&schema).unwrap_err().to_string(), expected, "{schema}");
    }
}

/// A cycle adds no requirements.
#[test]
fn cycles_end() {
    check(&json!({"$ref": "#"}), &json!(1), &[]);
    check(&json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]}), &json!(null), &[]);
    check(&json!({"allOf": [{"$ref": "#"}], "type": "null"}), &json!(1), &[": 1 is not of type \"null\""]);
    check(
        &json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        &json!(1),
        &[],
    );
    check(&json!({"unevaluatedProperties": false, "allOf": [{"$ref": "#"}]}), &json!({}), &[]);
}

#[test]
fn depth_and_exponential_growth_are_limited() {
    let tree = json!({"properties": {"a": {"$ref": "#"}}, "items": {"$ref": "#"}, "type": ["object", "array", "null"]});
    let nested = |depth| (0..depth).fold(Value::Null, |inner, _| json!({"a": [inner]}));
    check(&tree, &nested(63), &[]);
    let schema = Schema::new(&tree).unwrap();
    let deep = nested(500);
    assert_eq!(
        schema.errors(&deep, 10)[0].to_string(),
        "validation takes too many steps, or the value is nested too deeply"
    );
    // Each schema doubles the next one.
    let mut defs = json!({"d40": {"type": "null"}});
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        defs[format!("d{n}")] = json!({"anyOf": [{"allOf": [next, {"type": "string"}]}, next]});
    }
    let bomb = Schema::new(&json!({"$ref": "#/$defs/d0", "$defs": defs})).unwrap();
    assert!(!bomb.is_valid(&json!(1)));
    // So does `not`, which must not turn an exceeded limit into a valid result.
    let schema = Schema::new(&json!({"not": {"pattern": "^(?=(a|aa)+$)"}})).unwrap();
    assert!(!schema.is_valid(&json!(format!("{}b", "a".repeat(100)))));
}

/// The cost of checking a value against the meta-schema is limited, patterns included.
#[test]
fn checks_against_the_meta_schema_are_limited() {
    let schema = Schema::new(&json!({"$ref": "https://json-schema.org/draft/2020-12/schema"})).unwrap();
    let patterns = |n: usize, pattern: &str| -> Value {
        json!({"allOf": (0..n).map(|_| json!({"pattern": pattern})).collect::<Vec<_>>()})
    };
    assert!(schema.is_valid(&patterns(2_000, "^[a-z]{1,5}(-[a-z]+)*$")));
    for heavy in ["(?:(?:ab){100}){90}", "((a{99}b){999}){99}"] {
        assert!(schema.is_valid(&patterns(20, heavy)), "{heavy}");
        let many = patterns(2_000, heavy);
        assert_eq!(
            schema.errors(&many, 1)[0].to_string(),
            "validation takes too many steps, or the value is nested too deeply"
        );
    }
}

#[test]
fn unsupported_patterns_are_reported_and_not_enforced() {
    let schema = Schema::new(&json!({"properties": {"a": {"pattern": "\\p{Script=Han}"}},
        "patternProperties": {"(?>b)": {"type": "null"}}, "additionalProperties": false}))
    .unwrap();
    assert_eq!(
        schema.unsupported_patterns(),
        [
            "the pattern \"(?>b)\" is not enforced: groups that begin with `(?>b` are not supported",
            "the pattern \"\\\\p{Script=Han}\" is not enforced: the character property `Script=Han` is not supported",
        ]
    );
    assert!(schema.is_valid(&json!({"a": "x", "b": 1})));
    // A property that an unsupported pattern might match is not an additional one.
    check(
        &json!({"patternProperties": {"(?>b)": {}}, "unevaluatedProperties": false}),
        &json!({"b": 1}),
        &[],
    );
}

/// Shapes as serde's four representations of enums describe them.
#[test]
fn a_value_without_a_branch_is_told_all_branches_or_the_error_of_its_own() {
    let check = |schema: &Value, value: &Value, branches: &[&str], expected: &[&str]| {
        let compiled = Schema::new(schema).unwrap();
        let errors = compiled.errors(value, 10);
        let found: Vec<String> = errors.iter().map(|error| format!("{}: {error}", error.pointer())).collect();
        match errors[0].kind() {
            ValidationErrorKind::AnyOf(found) | ValidationErrorKind::OneOfNone(found) => {
                assert_eq!(found, branches, "{value}")
            }
            _ => assert_eq!(found, expected, "{value}"),
        }
        assert_eq!(branches.is_empty(), !expected.is_empty(), "{value}: {found:?}");
    };
    let external = json!({"oneOf": [
        {"type": "string", "enum": ["Point", "Line"]},
        {"type": "object", "properties": {"Circle": {"$ref": "#/$defs/size"}}, "required": ["Circle"], "additionalProperties": false},
        {"type": "object", "properties": {"Box": {"type": "array"}}, "required": ["Box"], "additionalProperties": false},
    ], "$defs": {"size": {"type": "object", "properties": {"r": {"type": "number"}}, "required": ["r"]}}});
    let all = ["\"Point\"", "\"Line\"", "{\"Circle\": …}", "{\"Box\": …}"];
    check(&external, &json!("Dot"), &all, &[]);
    check(&external, &json!({"Dot": 1}), &all, &[]);
    check(&external, &json!(5), &all, &[]);
    check(&external, &json!({"Circle": {"r": "x"}}), &[], &["/Circle/r: \"x\" is not of type \"number\""]);
    check(&external, &json!({"Box": 5}), &[], &["/Box: 5 is not of type \"array\""]);

    let internal = json!({"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "point"}}, "required": ["kind"]},
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
    ]});
    let all = ["{\"kind\": \"point\"}", "{\"kind\": \"circle\", …}"];
    check(&internal, &json!({"kind": "dot"}), &all, &[]);
    check(&internal, &json!({"r": 1}), &all, &[]);
    check(&internal, &json!("point"), &all, &[]);
    check(&internal, &json!({"kind": "circle"}), &[], &[": \"r\" is a required property"]);

    let untagged = json!({"anyOf": [{"type": "integer"}, {"type": ["string", "null"]}]});
    check(&untagged, &json!([]), &["integer", "null", "string"], &[]);
    let optional = json!({"anyOf": [internal, {"type": "null"}]});
    check(&optional, &json!({"kind": "dot"}), &all, &[]);
    let mixed = json!({"anyOf": [optional, {"const": 1}]});
    check(&mixed, &json!(2), &[all[0], all[1], "null", "1"], &[]);

    let unknown = json!({"anyOf": [{"minLength": 2}, {"maxLength": 0}]});
    let unknown = Schema::new(&unknown).unwrap();
    let value = json!("x");
    assert!(matches!(unknown.errors(&value, 1)[0].kind(), ValidationErrorKind::AnyOf(all) if all.is_empty()));
    // A schema that refers to itself is described once.
    let cyclic =
        json!({"oneOf": [{"type": "integer"}, {"type": "object", "properties": {"next": {"$ref": "#"}}}]});
    check(&cyclic, &json!({"next": "x"}), &["integer", "object"], &[]);
}
