//! Tokens as servers receive them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| guard::fuzzing::token(bytes));
