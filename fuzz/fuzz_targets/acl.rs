//! Access lists as servers get and store them, and as people write them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| guard::fuzzing::acl(bytes));
