//! Frames and garbage, cut in arbitrary places, through a real socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fabric::fuzzing::inbox(bytes));
