//! A record's key and value as the scrub reads them; the first byte is the key's length.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| store::fuzzing::key(bytes));
