//! See `tapeworks_fuzz_targets::cfe`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::cfe(bytes));
