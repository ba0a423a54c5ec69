//! The C library's heap, which Rust's allocations come from.

/// Has all threads allocate from at most `count` arenas. Each keeps what its threads once needed:
/// with one for every thread, which is the default, a process with a memory budget and twenty
/// threads takes twice its budget.
///
/// To be called before the first thread is started. With another C library than glibc it does
/// nothing.
///
/// Source: mallopt(3), `M_ARENA_MAX`.
pub fn share_arenas(count: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers; a value that it does not like changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, count);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = count;
}
