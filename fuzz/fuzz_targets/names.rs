//! Names of users, groups, machines, rights and volumes, as users write them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| guard::fuzzing::names(bytes));
