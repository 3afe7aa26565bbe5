//! See `tapeworks_fuzz_targets::fix_session`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::fix_session(bytes));
