//! What the commands read: cell.toml, names of mount points, the kernel's table of mounts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    rialto::fuzzing::config(bytes);
    rialto::fuzzing::mount_point(bytes);
    rialto::fuzzing::mountinfo(bytes);
});
