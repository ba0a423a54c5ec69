//! The threads of `vos` in a release, of which one runs at a time, in an order that is the same
//! each time.
//!
//! Model. A thread runs until it lets time pass; then the thread with the earliest wake-up time
//! continues, and the fleet's clock advances to that time. So a seed replays, and only the leader's
//! pauses and the fleet's lines take time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use celldb::CellDb;
use parking_lot::{Condvar, Mutex};
use types::{Answer, Call, ServerId, Time, VolumeCall};
use vos::{Servers, VosError};

use super::fleet::{Fleet, WAY};

/// Time until a leader notices that a server does not answer.
const NOTICED: Duration = Duration::from_secs(1);

/// The leader's access to the fleet; see the head of the file.
pub(super) struct Turns<'f> {
    fleet: &'f Mutex<Fleet>,
    database: Arc<super::super::database::Database>,
    sleepers: Mutex<BTreeMap<(Time, u64), Arc<Turn>>>,
    /// Calls before the leader is stopped; `usize::MAX`: it is never stopped.
    left: AtomicUsize,
}

/// The turn of one thread.
#[derive(Default)]
struct Turn {
    here: Mutex<bool>,
    comes: Condvar,
}

impl Turn {
    fn give(&self) {
        *self.here.lock() = true;
        self.comes.notify_one();
    }

    fn wait(&self) {
        let mut here = self.here.lock();
        self.comes.wait_while(&mut here, |here| !*here);
    }
}

impl<'f> Turns<'f> {
    pub(super) fn new(fleet: &'f Mutex<Fleet>, calls: usize) -> Self {
        let database = Arc::clone(&fleet.lock().database);
        Turns { fleet, database, sleepers: Mutex::default(), left: AtomicUsize::new(calls) }
    }

    /// Queues a thread for a time.
    fn line_up(&self, at: Time) -> Arc<Turn> {
        let turn = Arc::new(Turn::default());
        let mut sleepers = self.sleepers.lock();
        let last = sleepers.keys().map(|(_, number)| *number).max().unwrap_or(0);
        sleepers.insert((at, last + 1), Arc::clone(&turn));
        turn
    }

    /// Lets the thread with the earliest time continue.
    fn pass_on(&self) {
        let first = self.sleepers.lock().pop_first();
        let ((at, _), turn) =
            first.expect("a thread that waits for others waits for a sleeping one");
        self.fleet.lock().pass_until(at);
        turn.give();
    }

    fn is_stopped(&self) -> bool {
        let take = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(1) };
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err()
    }
}

/// Passes the turn on when its thread ends, also on a panic.
struct Last<'t, 'f> {
    turns: &'t Turns<'f>,
    others: &'t AtomicUsize,
    parent: &'t Turn,
}

impl Drop for Last<'_, '_> {
    fn drop(&mut self) {
        if self.others.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.parent.give();
        } else {
            self.turns.pass_on();
        }
    }
}

impl Servers for Turns<'_> {
    fn db(&self) -> &dyn CellDb {
        &*self.database
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        let no = self.fleet.lock().number_of(server);
        let away =
            |why: &str| VosError::Away { server: format!("server{no}"), why: why.to_owned() };
        if self.is_stopped() {
            return Err(away("stopped"));
        }
        self.pause(WAY);
        let answer = self.fleet.lock().perform(no, &Call::Volume(call));
        let Some(answer) = answer else {
            self.pause(NOTICED);
            return Err(away("it cannot be reached"));
        };
        self.pause(WAY);
        answer.map_err(|fault| VosError::Refused { server: format!("server{no}"), fault })
    }

    fn name(&self, server: ServerId) -> String {
        format!("server{}", self.fleet.lock().number_of(server))
    }

    fn pause(&self, pause: Duration) {
        let until = self.fleet.lock().now + pause;
        let turn = self.line_up(until);
        self.pass_on();
        turn.wait();
    }

    fn together(&self, count: usize, each: &(dyn Fn(usize) + Sync)) {
        if count == 0 {
            return;
        }
        let now = self.fleet.lock().now;
        let (parent, others) = (Turn::default(), AtomicUsize::new(count));
        std::thread::scope(|scope| {
            for one in 0..count {
                let (turn, parent, others) = (self.line_up(now), &parent, &others);
                scope.spawn(move || {
                    turn.wait();
                    let _last = Last { turns: self, others, parent };
                    each(one);
                });
            }
            self.pass_on();
            parent.wait();
        });
    }
}
