//! JSON Schema: any schema and any value are validated or rejected, `is_valid` agrees with `errors`, and each error points
//! to a value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use toolgate_schema::{Pattern, Schema};

fuzz_target!(|data: &str| {
    let (schema, value) = data.split_once('\n').unwrap_or((data, "null"));
    if let Ok(pattern) = Pattern::new(schema) {
        let _ = pattern.is_match(value);
    }
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    let Ok(schema) = Schema::new(&schema) else { return };
    let errors = schema.errors(&value, 20);
    assert_eq!(errors.is_empty(), schema.is_valid(&value));
    for error in errors {
        assert_eq!(value.pointer(error.pointer()), Some(error.value()));
        assert!(!error.to_string().is_empty());
    }
});
