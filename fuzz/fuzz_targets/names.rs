//! What people call users, groups, machines, rights and volumes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| guard::fuzzing::names(bytes));
