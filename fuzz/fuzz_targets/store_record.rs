//! A record's value, with or without a valid checksum; the first byte chooses its kind.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| store::fuzzing::record(bytes));
