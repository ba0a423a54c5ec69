//! The FORMAT file of a partition, and the names of body files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    store::fuzzing::format(bytes);
    store::fuzzing::body_name(bytes);
});
