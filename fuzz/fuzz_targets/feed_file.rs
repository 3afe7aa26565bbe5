//! See `tapeworks_fuzz_targets::feed_file`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tapeworks_fuzz_targets::feed_file(bytes));
