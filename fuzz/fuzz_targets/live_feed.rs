//! See `tapeworks_fuzz_targets::live_feed`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::live_feed(bytes));
