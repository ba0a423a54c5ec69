//! Files that the client's disk cache reads after a restart: maps, and the names of files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    venus::fuzzing::map(bytes);
    venus::fuzzing::name(bytes);
});
