//! See `tapeworks_fuzz_targets::stream_request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::stream_request(bytes));
