//! Bytes that may wait here, over all files; who would exceed them waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Counts bytes; wakes who waits when they get fewer.
#[derive(Default)]
pub(crate) struct Gauge {
    bytes: AtomicUsize,
    waiters: Mutex<usize>,
    fewer: Condvar,
}

impl Gauge {
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// One part of the sum went from `old` to `new` bytes.
    pub fn change(&self, old: usize, new: usize) {
        if new >= old {
            self.bytes.fetch_add(new - old, Ordering::AcqRel);
            return;
        }
        self.bytes.fetch_sub(old - new, Ordering::AcqRel);
        if *self.waiters.lock() > 0 {
            self.fewer.notify_all();
        }
    }

    /// Waits until there are fewer bytes, or `most` is over.
    pub fn wait(&self, most: Duration) {
        let mut waiters = self.waiters.lock();
        *waiters += 1;
        self.fewer.wait_for(&mut waiters, most);
        *waiters -= 1;
    }
}
