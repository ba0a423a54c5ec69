//! The first bytes of a connection, in both directions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dafs::fuzzing::hello(bytes));
