//! The header of a frame.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dafs::fuzzing::header(bytes));
