//! A backup of the cell database, with or without a right head and sum.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| celldb::fuzzing::backup(bytes));
