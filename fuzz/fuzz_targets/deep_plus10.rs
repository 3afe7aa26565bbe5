//! See `tapeworks_fuzz_targets::deep_plus10`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::deep_plus10(bytes));
