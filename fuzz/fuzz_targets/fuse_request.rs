//! A request of the kernel: unchanged, and behind a header that fits it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mount::fuzzing::request(bytes));
