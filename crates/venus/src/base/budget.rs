//! Memory limits that all volumes of a mount share.
//!
//! Each limit has one *pot* for a mount, and each volume has a *share* of it. One volume alone may
//! take all of it. Where others need some too, each may take what they leave, and in any case its
//! even part, so that a volume whose server is away, or that is not used any more, does not block
//! the others. So a pot may be exceeded, while volumes that took much at first do nothing: up to
//! twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Bytes of one kind, of all volumes; wakes waiters when they decrease.
#[derive(Default)]
pub(crate) struct Pot {
    bytes: AtomicUsize,
    shares: AtomicUsize,
    waiters: Mutex<usize>,
    fewer: Condvar,
}

/// One volume's part of a pot.
pub(crate) struct Share {
    pot: Arc<Pot>,
    own: AtomicUsize,
}

impl Default for Share {
    fn default() -> Self {
        Share::of(&Arc::default())
    }
}

impl Share {
    pub fn of(pot: &Arc<Pot>) -> Self {
        pot.shares.fetch_add(1, Ordering::AcqRel);
        Share { pot: Arc::clone(pot), own: AtomicUsize::new(0) }
    }

    pub fn bytes(&self) -> usize {
        self.own.load(Ordering::Acquire)
    }

    /// This volume's limit now, where all together may have `most`.
    pub fn limit(&self, most: usize) -> usize {
        let others = self.pot.bytes.load(Ordering::Acquire).saturating_sub(self.bytes());
        let even = most / self.pot.shares.load(Ordering::Acquire).max(1);
        most.saturating_sub(others).max(even)
    }

    /// A part of the volume's bytes changed from `old` to `new`. Returns the volume's total.
    pub fn change(&self, old: usize, new: usize) -> usize {
        if new >= old {
            self.pot.bytes.fetch_add(new - old, Ordering::AcqRel);
            return self.own.fetch_add(new - old, Ordering::AcqRel) + (new - old);
        }
        let now = self.own.fetch_sub(old - new, Ordering::AcqRel) - (old - new);
        self.pot.take(old - new);
        now
    }

    /// Sets the volume's bytes. Callers take turns.
    pub fn set(&self, bytes: usize) {
        self.change(self.bytes(), bytes);
    }

    pub fn wake_waiters(&self) {
        self.pot.take(0);
    }

    /// Waits until there are fewer bytes in the pot, or `most` is over.
    pub fn wait(&self, most: Duration) {
        let mut waiters = self.pot.waiters.lock();
        *waiters += 1;
        self.pot.fewer.wait_for(&mut waiters, most);
        *waiters -= 1;
    }
}

impl Pot {
    fn take(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if *self.waiters.lock() > 0 {
            self.fewer.notify_all();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pot.shares.fetch_sub(1, Ordering::AcqRel);
        self.pot.take(*self.own.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_volume_may_have_all_and_each_has_its_even_part() {
        let pot = Arc::default();
        let first = Share::of(&pot);
        first.set(90);
        assert_eq!(first.limit(100), 100);
        let second = Share::of(&pot);
        assert_eq!(
            (first.limit(100), second.limit(100)),
            (100, 50),
            "its even part, whatever the other has"
        );
        second.set(30);
        assert_eq!(first.limit(100), 70);
        assert_eq!(first.change(90, 40), 40);
        assert_eq!(second.limit(100), 60, "what the other leaves");
        drop(first);
        assert_eq!((second.bytes(), second.limit(100)), (30, 100));
    }

    #[test]
    fn waiters_wake_when_another_volume_frees_bytes() {
        let pot = Arc::default();
        let (waiting, other) = (Arc::new(Share::of(&pot)), Share::of(&pot));
        other.set(10);
        let waiter = Arc::clone(&waiting);
        let waits = std::thread::spawn(move || {
            while waiter.limit(10) < 10 {
                waiter.wait(Duration::from_secs(60));
            }
        });
        while *pot.waiters.lock() == 0 {
            std::thread::yield_now();
        }
        drop(other);
        waits.join().unwrap();
    }
}
