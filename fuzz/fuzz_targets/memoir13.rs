//! See `tapeworks_fuzz_targets::memoir13`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::memoir13(bytes));
