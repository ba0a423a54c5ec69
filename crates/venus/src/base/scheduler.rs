//! The one thread that runs what is due in the cache managers of a client.
//!
//! Model. Each cache manager has a *seat*: it is known here by a weak reference and by the time at
//! which it is due next, if it is. The thread sleeps until the earliest of these times. Then it has
//! that cache manager do what is due, which returns the next time. Meanwhile other threads may make
//! a seat due earlier ([`Seat::due_by`]), but not later. The thread lives as long as there is a
//! seat.
//!
//! A chore waits for no server, no kernel and no other volume: otherwise the end of another
//! volume's lease would wait too (CB-4). Work that may wait is a job for the volume's own workers
//! (`pool.rs`).
//!
//! Times are those of [`client::clock`], which go on while the machine is suspended. The kernel
//! does not count that as waiting, so the thread checks again when the machine wakes up.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::clock;
use parking_lot::{Condvar, Mutex};
use types::Time;

/// A cache manager that is due again at once lets the others go first.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The work of a seat: that of one cache manager.
pub(crate) trait Chore: Send + Sync {
    /// Does what is due now, and returns when it is due next. Must not wait; see the head of the
    /// file.
    fn run_due(self: Arc<Self>, now: Time) -> Option<Time>;
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Scheduler {
    timetable: Mutex<Timetable>,
    /// Signals an earlier first time, and that there may be no seat left.
    changed: Condvar,
    /// Signals that a chore returned.
    returned: Condvar,
}

#[derive(Default)]
struct Timetable {
    seats: BTreeMap<u64, Entry>,
    /// The times of all seats that have one, earliest first.
    order: BTreeSet<(Time, u64)>,
    last: u64,
    /// The seat whose chore runs now.
    running: Option<u64>,
    has_thread: bool,
    /// The clock tells when it jumps.
    hears_clock: bool,
}

struct Entry {
    chore: Weak<dyn Chore>,
    due: Option<Time>,
}

impl Timetable {
    /// Returns whether the thread must look again: this is the first now.
    fn due_by(&mut self, number: u64, at: Time) -> bool {
        let Some(entry) = self.seats.get_mut(&number) else { return false };
        if entry.due.is_some_and(|due| due <= at) {
            return false;
        }
        if let Some(before) = entry.due.replace(at) {
            self.order.remove(&(before, number));
        }
        self.order.insert((at, number));
        self.order.first() == Some(&(at, number))
    }

    fn remove(&mut self, number: u64) {
        if let Some(Entry { due: Some(due), .. }) = self.seats.remove(&number) {
            self.order.remove(&(due, number));
        }
    }

    /// The first seat that is due, which runs from now on.
    fn take_due(&mut self, now: Time) -> Option<(u64, Weak<dyn Chore>)> {
        debug_assert!(self.running.is_none(), "CB-4: one chore runs at a time");
        let (_, number) = *self.order.first().filter(|(due, _)| *due <= now)?;
        self.order.pop_first();
        let entry = self.seats.get_mut(&number)?;
        entry.due = None;
        self.running = Some(number);
        Some((number, Weak::clone(&entry.chore)))
    }
}

impl Scheduler {
    /// A seat for `chore`, which is not due yet.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn seat(self: &Arc<Self>, chore: Weak<dyn Chore>) -> std::io::Result<Seat> {
        let (number, hears_clock) = {
            let mut timetable = self.timetable.lock();
            if !timetable.has_thread {
                let this = Arc::clone(self);
                let name = "venus-chores".to_owned();
                std::thread::Builder::new().name(name).spawn(move || this.work())?;
                timetable.has_thread = true;
            }
            timetable.last += 1;
            let number = timetable.last;
            timetable.seats.insert(number, Entry { chore, due: None });
            (number, std::mem::replace(&mut timetable.hears_clock, true))
        };
        if !hears_clock {
            let this = Arc::downgrade(self);
            clock::when_it_jumps(Box::new(move || {
                this.upgrade().inspect(|this| this.look_again()).is_some()
            }));
        }
        Ok(Seat { scheduler: Arc::clone(self), number })
    }

    /// The thread looks again: the machine has slept.
    fn look_again(&self) {
        // Under the lock, so that this does not fall between the thread's look and its sleep.
        let _timetable = self.timetable.lock();
        self.changed.notify_all();
    }

    fn work(&self) {
        loop {
            self.run_due(clock::now());
            let mut timetable = self.timetable.lock();
            if timetable.seats.is_empty() {
                timetable.has_thread = false;
                return;
            }
            // An earlier time may have come meanwhile.
            match timetable.order.first().map(|(due, _)| due.since(clock::now())) {
                Some(Duration::ZERO) => {}
                Some(wait) => drop(self.changed.wait_for(&mut timetable, wait)),
                None => self.changed.wait(&mut timetable),
            }
        }
    }

    /// Runs everything that is due now.
    fn run_due(&self, now: Time) {
        let mut timetable = self.timetable.lock();
        while let Some((number, chore)) = timetable.take_due(now) {
            drop(timetable);
            let run = || chore.upgrade().and_then(|chore| chore.run_due(now));
            // The panic itself was reported, and the others must not end with this one.
            let next = catch_unwind(AssertUnwindSafe(run)).unwrap_or_default();
            timetable = self.timetable.lock();
            timetable.running = None;
            if let Some(next) = next {
                timetable.due_by(number, next.max(now + PAUSE_MIN));
            }
            self.returned.notify_all();
        }
    }
}

/// A cache manager's place with the scheduler. Dropping it gives it up.
pub(crate) struct Seat {
    scheduler: Arc<Scheduler>,
    number: u64,
}

impl Seat {
    /// It is due at this time, or earlier.
    pub fn due_by(&self, at: Time) {
        if self.scheduler.timetable.lock().due_by(self.number, at) {
            self.scheduler.changed.notify_all();
        }
    }

    /// Gives the seat up, and waits until its chore has returned. Not to be called by the chore.
    pub fn leave(&self) {
        let mut timetable = self.scheduler.timetable.lock();
        timetable.remove(self.number);
        self.scheduler.changed.notify_all();
        while timetable.running == Some(self.number) {
            self.scheduler.returned.wait(&mut timetable);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.scheduler.timetable.lock().remove(self.number);
        self.scheduler.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records when it ran, and is due again after `every`.
    #[derive(Default)]
    struct Periodic {
        every: Option<Duration>,
        ran: Mutex<Vec<Time>>,
        /// Called while it runs.
        meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl Chore for Periodic {
        fn run_due(self: Arc<Self>, now: Time) -> Option<Time> {
            self.ran.lock().push(now);
            let meanwhile = self.meanwhile.lock().take();
            meanwhile.into_iter().for_each(|meanwhile| meanwhile());
            self.every.map(|every| now + every)
        }
    }

    fn at(seconds: u64) -> Time {
        Time::from_start(Duration::from_secs(seconds))
    }

    /// A scheduler whose time is the test's, and chores with seats.
    struct Fixture {
        scheduler: Arc<Scheduler>,
        chores: Vec<(Arc<Periodic>, Arc<Seat>)>,
    }

    impl Fixture {
        fn new(periods: &[Option<u64>]) -> Self {
            let scheduler = Arc::<Scheduler>::default();
            // The test runs what is due.
            scheduler.timetable.lock().has_thread = true;
            let chores = periods.iter().map(|every| {
                let every = every.map(Duration::from_secs);
                let chore = Arc::new(Periodic { every, ..Periodic::default() });
                let weak = Arc::downgrade(&chore);
                let seat = scheduler.seat(weak).unwrap();
                (chore, Arc::new(seat))
            });
            Fixture { chores: chores.collect(), scheduler }
        }

        /// The next time after all that is due now.
        fn run(&self, now: Time) -> Option<Time> {
            self.scheduler.run_due(now);
            self.scheduler.timetable.lock().order.first().map(|(due, _)| *due)
        }

        fn ran(&self, chore: usize) -> Vec<Time> {
            std::mem::take(&mut *self.chores[chore].0.ran.lock())
        }
    }

    #[test]
    fn each_runs_when_it_is_due_and_not_before() {
        let all = Fixture::new(&[None, Some(10), None]);
        assert_eq!(all.run(at(1)), None, "nothing is due");
        all.chores[0].1.due_by(at(7));
        all.chores[1].1.due_by(at(5));
        assert_eq!(all.run(at(4)), Some(at(5)));
        assert_eq!((all.ran(0), all.ran(1)), (vec![], vec![]));
        assert_eq!(all.run(at(5)), Some(at(7)));
        assert_eq!((all.ran(0), all.ran(1)), (vec![], vec![at(5)]));
        assert_eq!(all.run(at(100)), Some(at(110)));
        assert_eq!((all.ran(0), all.ran(1), all.ran(2)), (vec![at(100)], vec![at(100)], vec![]));
    }

    #[test]
    fn a_time_only_gets_earlier_and_does_so_during_a_run() {
        let all = Fixture::new(&[Some(10)]);
        let seat = &all.chores[0].1;
        seat.due_by(at(5));
        seat.due_by(at(8));
        seat.due_by(at(3));
        let again = Arc::clone(seat);
        *all.chores[0].0.meanwhile.lock() = Some(Box::new(move || again.due_by(at(6))));
        assert_eq!(all.run(at(3)), Some(at(6)), "not 10 seconds later");
        assert_eq!(all.run(at(6)), Some(at(16)));
        assert_eq!(all.ran(0), [at(3), at(6)]);
    }

    #[test]
    fn one_that_is_always_due_lets_the_others_run() {
        let all = Fixture::new(&[Some(0), None]);
        all.chores[0].1.due_by(at(1));
        all.chores[1].1.due_by(at(2));
        assert_eq!(all.run(at(2)), Some(at(2) + PAUSE_MIN));
        assert_eq!((all.ran(0), all.ran(1)), (vec![at(2)], vec![at(2)]));
    }

    #[test]
    fn what_is_gone_or_panics_ends_alone() {
        let mut all = Fixture::new(&[Some(1), Some(1), Some(1), Some(1)]);
        all.chores.iter().for_each(|(_, seat)| seat.due_by(at(1)));
        *all.chores[0].0.meanwhile.lock() = Some(Box::new(|| panic!("a chore of this test")));
        all.chores[1].1.leave();
        all.chores[2].0 = Arc::default();
        assert_eq!(all.run(at(1)), Some(at(2)));
        assert_eq!((all.ran(1), all.ran(3)), (vec![], vec![at(1)]));
        all.chores.pop();
        assert_eq!(all.run(at(2)), None);
    }

    #[test]
    fn a_seat_is_left_when_its_chore_has_returned() {
        let all = Fixture::new(&[None]);
        let (chore, seat) = &all.chores[0];
        seat.due_by(at(1));
        let (scheduler, leaving) = (Arc::clone(&all.scheduler), Arc::clone(seat));
        let (left, has_left) = std::sync::mpsc::channel();
        let is_early = Arc::new(Mutex::new(None));
        let early = Arc::clone(&is_early);
        let (began, begins) = std::sync::mpsc::channel();
        *chore.meanwhile.lock() = Some(Box::new(move || {
            began.send(()).unwrap();
            while !scheduler.timetable.lock().seats.is_empty() {
                std::thread::yield_now();
            }
            *early.lock() = Some(has_left.try_recv().is_ok());
        }));
        let leaver = std::thread::spawn(move || {
            begins.recv().unwrap();
            leaving.leave();
            // The chore may have returned and taken the receiver with it.
            let _ = left.send(());
        });
        all.run(at(1));
        leaver.join().unwrap();
        assert_eq!(*is_early.lock(), Some(false));
    }
}
