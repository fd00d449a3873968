//! JSON Schema: any schema and any value are judged or refused, yes and faults agree, and every fault is somewhere.

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
    let faults = schema.faults(&value, 20);
    assert_eq!(faults.is_empty(), schema.is_valid(&value));
    for fault in faults {
        assert_eq!(value.pointer(fault.place()), Some(fault.value()));
        assert!(!fault.to_string().is_empty());
    }
});
