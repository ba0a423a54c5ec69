//! Tables that are unusable once a panic left them half changed.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// A mutex that records that a thread panicked while it held it: the data may be half changed, and
/// the mutex cannot be locked any more.
pub(crate) struct Guarded<T> {
    inner: Mutex<T>,
    broken: AtomicBool,
}

/// See [`Guarded::lock`].
pub(crate) struct Locked<'a, T> {
    inner: MutexGuard<'a, T>,
    broken: &'a AtomicBool,
    /// The thread was panicking already when it locked the mutex.
    unwinding: bool,
}

impl<T> Guarded<T> {
    pub fn new(inner: T) -> Self {
        Guarded { inner: Mutex::new(inner), broken: AtomicBool::new(false) }
    }

    /// # Panics
    /// If it is broken: no answer is better than one from half changed tables.
    pub fn lock(&self) -> Locked<'_, T> {
        let inner = self.inner.lock();
        assert!(
            !self.is_broken(),
            "the tables of sessions and promises are half changed since an earlier panic; start \
                the server again"
        );
        Locked { inner, broken: &self.broken, unwinding: std::thread::panicking() }
    }

    /// Whether a thread panicked while it held the lock.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        if !self.unwinding && std::thread::panicking() {
            self.broken.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn nobody_gets_what_a_panic_left_half_changed() {
        let guarded = Guarded::new(1);
        let outside = catch_unwind(AssertUnwindSafe(|| {
            *guarded.lock() += 1;
            panic!("without it");
        }));
        assert!(outside.is_err() && !guarded.is_broken() && *guarded.lock() == 2);
        let inside = catch_unwind(AssertUnwindSafe(|| {
            let mut held = guarded.lock();
            *held += 1;
            panic!("in the middle");
        }));
        assert!(inside.is_err() && guarded.is_broken());
        assert!(catch_unwind(AssertUnwindSafe(|| *guarded.lock())).is_err());
    }
}
