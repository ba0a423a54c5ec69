//! The calling thread's priority against others.

use std::io;
use std::time::Duration;

/// Makes the calling thread run only when no ordinary thread needs its processor, which it yields
/// at once when one does.
///
/// Such a thread that holds a lock may delay the threads that wait for the lock, for as long as
/// other threads occupy the processors.
///
/// # Errors
/// The kernel's refusal; nothing has changed then. Source: sched_setscheduler(2), `SCHED_IDLE`.
pub fn stand_back() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives until the call returns, which only reads it; 0 is the calling
    // thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the calling thread a processor for `slice` at a time, at its present priority. A thread
/// with a shorter slice than the running one's preempts it on waking (Linux 6.12 and later; earlier
/// kernels ignore the slice). The kernel bounds slices to 0.1 to 100 ms.
///
/// # Errors
/// The kernel's refusal; nothing has changed then. Source: sched_setattr(2), `sched_runtime` of
/// `SCHED_OTHER`.
pub fn take_short_turns(slice: Duration) -> io::Result<()> {
    // SAFETY: all zeros are a valid value of this structure of numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes into the structure; 0 is the calling thread,
    // and no flags.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    attributes.size = u32::try_from(size).unwrap_or(0);
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the structure lives until the call returns, which only reads it; 0 is the calling
    // thread, and no flags.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_short_turns_and_stands_back() {
        std::thread::spawn(|| {
            take_short_turns(Duration::from_micros(100)).expect("any thread may shorten its slice");
            stand_back().expect("any thread may lower its priority");
            // SAFETY: 0 is the calling thread.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_IDLE);
        })
        .join()
        .expect("no panic");
    }
}
