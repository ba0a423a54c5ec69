//! Input of the commands: cell.toml, names of mount points, the kernel's table of mounts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    local::fuzzing::config(bytes);
    local::fuzzing::mount_point(bytes);
    local::fuzzing::mountinfo(bytes);
});
