//! See `tapeworks_fuzz_targets::recovery`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::recovery(bytes));
