//! Session messages: a header, then the message.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dafs::fuzzing::message(bytes));
