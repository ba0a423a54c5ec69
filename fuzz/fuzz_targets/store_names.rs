//! What names a partition and its body files: FORMAT, and the names of files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    store::fuzzing::format(bytes);
    store::fuzzing::body_name(bytes);
});
