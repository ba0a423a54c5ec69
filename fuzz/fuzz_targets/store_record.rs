//! A record's value, with a right checksum or without: the first byte chooses its kind.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| store::fuzzing::record(bytes));
