//! The parser of the HTTP/1.1 fast path: accepts whole heads only, and reuses a head only where parsing gives the same.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| toolgate::__fuzz::check_http1_parser(data));
