//! See `tapeworks_fuzz_targets::fix_message`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::fix_message(bytes));
