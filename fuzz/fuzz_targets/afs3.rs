//! Calls, answers, dumps, directories and access lists of AFS.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| afs3::fuzzing::from_outside(bytes));
