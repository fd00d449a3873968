//! Validation of tool arguments by `toolgate-schema` and, for comparison, by `jsonschema`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use toolgate_schema::Schema;

fn cases() -> Vec<(&'static str, Value, Value)> {
    let echo =
        json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]});
    let search = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 200},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "sort": {"enum": ["newest", "oldest", "name"]},
            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,30}$"}, "uniqueItems": true},
            "range": {"$ref": "#/$defs/range"}
        },
        "required": ["query"],
        "additionalProperties": false,
        "$defs": {"range": {"type": "object", "properties": {
            "from": {"type": "string", "pattern": "^\\d{4}-\\d{2}-\\d{2}$"}, "to": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}
    });
    let search_arguments = json!({"query": "red shoes", "limit": 20, "sort": "newest", "tags": ["shoes", "red", "size-42"],
        "range": {"from": "2026-01-01", "to": null}});
    let tree = json!({"type": "object", "properties": {"name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#"}}}, "required": ["name"]});
    let tree_value =
        (0..6).fold(json!({"name": "leaf"}), |inner, _| json!({"name": "n", "children": [inner, inner]}));
    let numbers = json!({"type": "array", "items": {"type": "number", "minimum": 0, "multipleOf": 0.5}});
    let many = (0..1000).map(|n| Value::from(f64::from(n) / 2.0)).collect();
    vec![
        ("echo", echo, json!({"message": "hello"})),
        ("search", search, search_arguments),
        ("tree", tree, tree_value),
        ("numbers", numbers, Value::Array(many)),
    ]
}

fn validate(criterion: &mut Criterion) {
    for (name, schema, value) in cases() {
        let mut group = criterion.benchmark_group(name);
        let ours = Schema::new(&schema).expect("a valid schema");
        let theirs = jsonschema::draft202012::new(&schema).expect("a valid schema");
        assert!(ours.is_valid(&value) && theirs.is_valid(&value), "{name}");
        group.bench_function("toolgate-schema", |b| b.iter(|| ours.is_valid(black_box(&value))));
        group.bench_function("jsonschema", |b| b.iter(|| theirs.is_valid(black_box(&value))));
        group.bench_function("compile, toolgate-schema", |b| b.iter(|| Schema::new(black_box(&schema))));
        group.bench_function("compile, jsonschema", |b| {
            b.iter(|| jsonschema::draft202012::new(black_box(&schema)));
        });
        group.finish();
    }
}

criterion_group!(benches, validate);
criterion_main!(benches);
