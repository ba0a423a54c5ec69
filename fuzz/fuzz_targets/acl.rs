//! Access lists in messages and in the store, and in the text form of commands.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| guard::fuzzing::acl(bytes));
