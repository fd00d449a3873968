//! Importing arbitrary input terminates and does not panic.

use proptest::prelude::*;

use super::*;

/// Keywords with a meaning, so that random documents reach the importer's code.
const KEYWORDS: [&str; 72] = [
    "openapi",
    "3.0.0",
    "swagger",
    "2.0",
    "paths",
    "/a/{b}",
    "/a",
    "get",
    "post",
    "put",
    "parameters",
    "name",
    "in",
    "query",
    "path",
    "header",
    "body",
    "formData",
    "schema",
    "$ref",
    "#/paths",
    "#",
    "#/definitions/a",
    "definitions",
    "a",
    "b",
    "properties",
    "items",
    "allOf",
    "oneOf",
    "type",
    "object",
    "array",
    "required",
    "enum",
    "requestBody",
    "content",
    "application/json",
    "multipart/form-data",
    "responses",
    "200",
    "operationId",
    "servers",
    "url",
    "pattern",
    "minimum",
    "exclusiveMinimum",
    "additionalProperties",
    "not",
    "anyOf",
    "prefixItems",
    "nullable",
    "format",
    "binary",
    "default",
    "const",
    "multipleOf",
    "minLength",
    "uniqueItems",
    "description",
    "$defs",
    "readOnly",
    "string",
    "integer",
    "null",
    "file",
    "contains",
    "patternProperties",
    "style",
    "deepObject",
    "explode",
    "encoding",
];

fn keyword() -> impl Strategy<Value = String> {
    prop_oneof![8 => prop::sample::select(&KEYWORDS[..]).prop_map(String::from), 1 => any::<String>(), 1 => "[{}/%#~$.]{0,6}"]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => keyword().prop_map(Value::String),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => any::<i64>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(8, 96, 6, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            4 => prop::collection::vec((keyword(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn check_import(text: &str) {
    if let Ok(imported) = import(
        text,
        &OpenApiSpec { kinds: vec![("/**".into(), OperationKind::Template)], ..OpenApiSpec::default() },
    ) {
        let connection = connect("https://fuzz.example.com", Vec::new());
        for operation in &imported.operations {
            let backend =
                HttpBackend::new(operation.spec.clone(), Arc::clone(&connection), &operation.input_schema);
            let _ = operation.uri("fuzz");
            // Some problems are only detected here; then the operation is rejected.
            drop(backend);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_json_ends(mut value in any_json(), paths in any_json(), components in any_json(), is_old: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        check_import(&value.to_string());
        if let Value::Object(members) = &mut value {
            let (name, version, parts) = if is_old { ("swagger", "2.0", "definitions") } else { ("openapi", "3.1.0", "components") };
            members.insert(name.into(), json!(version));
            members.insert("paths".into(), json!({ "/a/{b}": { "get": paths, "post": paths, "parameters": [paths] }, "/c": paths }));
            members.insert(parts.into(), components);
            check_import(&value.to_string());
        }
    }

    #[test]
    fn any_schema_ends(schema in any_json(), parts in any_json()) {
        let text = json!({
            "openapi": "3.0.0",
            "paths": { "/a": { "post": {
                "parameters": [{ "name": "p", "in": "query", "schema": schema }],
                "requestBody": { "content": { "application/json": { "schema": schema } } },
                "responses": { "200": { "content": { "application/json": { "schema": schema } } } },
            } } },
            "definitions": { "a": parts },
        });
        let imported = import(&text.to_string(), &OpenApiSpec::default()).unwrap();
        prop_assert_eq!(imported.operations.len() + imported.skipped.len(), 1);
        // Served operations have valid schemas.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        serve(&imported, &connect("https://fuzz.example.com", Vec::new()));
    }

    #[test]
    fn any_text_ends(text in any::<String>(), words in prop::collection::vec(keyword(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        check_import(&text);
        check_import(&format!("openapi: 3.0.0\npaths:\n  {}", words.join(":\n    ")));
    }
}
