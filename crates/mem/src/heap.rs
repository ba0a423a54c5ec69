//! The C library's heap, which serves Rust's allocations.

/// Makes all threads allocate from at most `count` arenas. Each arena retains the most memory that
/// its threads once used: with one arena for every thread, which is the default, a process with a
/// memory budget and twenty threads uses twice its budget.
///
/// The caller must call this before the first thread starts. With another C library than glibc it
/// has no effect.
///
/// Source: mallopt(3), `M_ARENA_MAX`.
pub fn share_arenas(count: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers; an invalid value changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, count);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = count;
}

/// Has the kernel leave a buffer's memory where it is, as far as the process may lock memory.
/// Memory that was locked stays so until it goes back to the kernel.
pub fn lock_buffer(buffer: &mut Vec<u8>) {
    // SAFETY: the range is the buffer's own memory, and locking it changes none of it.
    let _ = unsafe { rustix::mm::mlock(buffer.as_mut_ptr().cast(), buffer.capacity()) };
}
