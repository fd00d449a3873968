//! Bytes to frames: what is accepted is JSON to another reader too, and means the same.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use toolgate_wire::{Limits, Raw};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(raw) = Raw::parse(bytes.clone()) {
        let other: serde_json::Value = serde_json::from_slice(data).expect("another reader takes it too");
        assert_eq!(raw.to_value(), other);
        assert_eq!(raw.read_as::<serde_json::Value>().expect("and into a type"), other);
    }
    let _ = toolgate_wire::read(&bytes, &Limits::default());
});
