//! Bytes to JSON and frames: whatever the scanner accepts, `serde_json` accepts with the same value.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use toolgate_wire::{Limits, RawJson};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(raw) = RawJson::parse(bytes.clone()) {
        let expected: serde_json::Value = serde_json::from_slice(data).expect("serde_json accepts it too");
        assert_eq!(raw.to_value(), expected);
    }
    let _ = toolgate_wire::read_message(&bytes, &Limits::default());
});
