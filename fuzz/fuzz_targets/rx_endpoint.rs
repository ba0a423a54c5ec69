//! An Rx endpoint that calls and serves; the bytes are a script of datagrams, calls and times.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rx::fuzzing::endpoint(bytes));
