//! See `tapeworks_fuzz_targets::fix_stream`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::fix_stream(bytes));
