//! See `tapeworks_fuzz_targets::refresh`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::refresh(bytes));
