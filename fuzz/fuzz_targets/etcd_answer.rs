//! An answer of etcd's JSON gateway.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| celldb::fuzzing::etcd_answer(bytes));
