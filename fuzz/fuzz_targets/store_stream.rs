//! A part of a stream between servers, or in a dump.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| store::fuzzing::stream_part(bytes));
