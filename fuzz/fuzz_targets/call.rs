//! Messages of calls: procedure and payload length (16 bits each), payload, message.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((procedure, message, payload)) = dafs::fuzzing::split(bytes) {
        dafs::fuzzing::call(procedure, message, payload);
    }
});
