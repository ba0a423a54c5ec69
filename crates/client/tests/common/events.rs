//! Records what a session reports.

use std::sync::Arc;
use std::time::Instant;

use client::{BreakAck, CallError, Events, Remote};
use parking_lot::{Condvar, Mutex};
use types::{Answer, BreakItem, Call, Caller, Fid, Time};

use super::LIMIT;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Break(Vec<BreakItem>),
    Renewed,
    Parted,
    LeaseLost,
    /// With the outcomes of the claims.
    Restarted(Vec<Result<Answer, CallError>>),
    Moved,
    TakenOver,
    ChangesLost(Vec<Fid>),
}

/// See the head of the file. It acknowledges breaks at once unless it is told to keep them.
#[derive(Default)]
pub struct Recorder {
    log: Mutex<Vec<Event>>,
    changed: Condvar,
    /// Keeps the acknowledgements of breaks.
    pub keeps: Mutex<bool>,
    pub kept: Mutex<Vec<BreakAck>>,
    /// Files that it holds.
    pub held: Mutex<Vec<Fid>>,
    /// The calls that claim, in order.
    pub claims: Mutex<Vec<Call>>,
}

impl Recorder {
    /// The sink of the session's events from now on.
    pub fn of(remote: &dyn Remote) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder::default());
        remote.set_events(Arc::clone(&recorder) as Arc<dyn Events>);
        recorder
    }

    fn note(&self, event: Event) {
        self.log.lock().push(event);
        self.changed.notify_all();
    }

    pub fn log(&self) -> Vec<Event> {
        self.log.lock().clone()
    }

    pub fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.log.lock().iter().filter(|event| is(event)).count()
    }

    /// Waits until this many events are such.
    pub fn wait(&self, count: usize, is: impl Fn(&Event) -> bool) {
        let until = Instant::now() + LIMIT;
        let mut log = self.log.lock();
        while log.iter().filter(|event| is(event)).count() < count {
            let over = self.changed.wait_until(&mut log, until).timed_out();
            assert!(!over, "no such event; there are {:?}", &*log);
        }
    }

    pub fn wait_breaks(&self, count: usize) {
        self.wait(count, |event| matches!(event, Event::Break(_)));
    }

    pub fn wait_restarts(&self, count: usize) {
        self.wait(count, |event| matches!(event, Event::Restarted(_)));
    }

    /// Acknowledges what it kept.
    pub fn acknowledge(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        kept.into_iter().for_each(BreakAck::acknowledge);
    }
}

impl Events for Recorder {
    fn on_break(&self, items: &[BreakItem], mut ack: BreakAck) {
        ack.hold(self.held.lock().iter().copied());
        if *self.keeps.lock() {
            self.kept.lock().push(ack);
        } else {
            ack.acknowledge();
        }
        self.note(Event::Break(items.to_vec()));
    }

    fn on_renewed(&self, _sent_at: Time) {
        self.note(Event::Renewed);
    }

    fn on_parted(&self) {
        self.note(Event::Parted);
    }

    fn on_lease_lost(&self) {
        self.note(Event::LeaseLost);
    }

    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        let claims = self.claims.lock().clone();
        let outcomes = claims
            .into_iter()
            .map(|call| reclaim.call(&Caller::ROOT, call, None).map(|reply| reply.answer));
        let outcomes = outcomes.collect();
        self.note(Event::Restarted(outcomes));
    }

    fn on_moved(&self, reclaim: &dyn Remote) {
        for claim in self.claims.lock().clone() {
            let _ = reclaim.call(&Caller::ROOT, claim, None);
        }
        self.note(Event::Moved);
    }

    fn on_taken_over(&self, _: &dyn Remote) {
        self.note(Event::TakenOver);
    }

    fn on_changes_lost(&self, fids: &[Fid]) {
        self.note(Event::ChangesLost(fids.to_vec()));
    }
}
