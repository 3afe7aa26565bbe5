//! See `tapeworks_fuzz_targets::ouch50`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::ouch50(bytes));
