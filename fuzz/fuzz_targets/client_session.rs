//! The client's session machine; the bytes are a script of frames and events.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dafs::fuzzing::client_session(bytes));
