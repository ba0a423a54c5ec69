//! The promises of the cell's file servers.
//!
//! A promise of AFS ends by itself at its time, or by a callback. The cache manager above knows
//! promises without an end, which hold for each answer that no break overtook. So this table knows
//! for which files there is a promise, and a break follows each answer without one
//! (`coherence.rs`).
//!
//! Answers and callbacks may overtake each other, as in `lease::Holder`, which judges them: an
//! answer whose call began before a callback for its file brings no promise. A callback for all
//! files of a volume is noted under the fid that no file has ([`Fid::rights`]).
//!
//! A change by this client ends none of its promises, and no callback comes for it. But a question
//! that began before the change may show the state before, so for questions it counts as a
//! callback ([`Promises::changed`]).
//!
//! AFS has no version of the status. So each answer has the number of the moment when its question
//! was sent, and that to a change the number of the moment when it came: an answer to a question
//! that a change overtook has a lower number than the change's, and the cache manager does not take
//! it for the newer one.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use afs3::structs::{CallBack, FetchStatus};
use lease::{CallStart, Holder};
use types::{BreakItem, BreakReason, Fid, StatusVersion, Time, VolumeId};

/// Most promises: what AFS's clients with large caches have, and some tens of megabytes.
const PROMISES_MAX: usize = 200_000;
/// So much earlier than the server a promise ends here: the answer was on its way.
const EARLY: Duration = Duration::from_secs(5);
/// The kind of a promise that is none.
const DROPPED: u32 = 3;
/// No promise lasts longer, whatever the server says. Source: OpenAFS `src/viced/callback.c`, whose
/// longest is some hours.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A promise, and the status that came with it or after it.
#[derive(Clone, Copy, Debug)]
struct Promise {
    server: Ipv4Addr,
    until: Time,
    status: FetchStatus,
}

/// The moment before a call was sent, or after a change was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedAt {
    start: CallStart,
    /// The version of the status that the answer has.
    pub version: StatusVersion,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    holder: Holder,
    last: StatusVersion,
    held: HashMap<Fid, Promise>,
}

fn broken(fid: Fid) -> BreakItem {
    BreakItem { fid, reason: BreakReason::Data, name: None }
}

impl Promises {
    /// Taken before a question is sent, and after a change was answered.
    pub fn begin(&mut self) -> AskedAt {
        self.last = self.last.next();
        AskedAt { start: self.holder.begin(), version: self.last }
    }

    fn is_overtaken(&self, fid: Fid, at: AskedAt) -> bool {
        !self.holder.promised(fid, at.start)
            || !self.holder.promised(Fid::rights(fid.volume), at.start)
    }

    /// A server answered with this status and promise. Returns a file whose promise ends for want
    /// of room.
    pub fn learn(
        &mut self,
        now: Time,
        start: AskedAt,
        server: Ipv4Addr,
        (fid, status): (Fid, FetchStatus),
        promise: CallBack,
    ) -> Option<BreakItem> {
        let lasts = Duration::from_secs(promise.expiration.into()).min(LONGEST);
        let until = now + lasts.saturating_sub(EARLY);
        if promise.kind == DROPPED || until <= now || self.is_overtaken(fid, start) {
            return None;
        }
        let full = self.held.len() >= PROMISES_MAX && !self.held.contains_key(&fid);
        let victim = if full { self.held.keys().next().copied() } else { None };
        if let Some(victim) = victim {
            self.held.remove(&victim);
        }
        self.held.insert(fid, Promise { server, until, status });
        victim.map(|fid| BreakItem { reason: BreakReason::Pressure, ..broken(fid) })
    }

    /// A server answered a change of this client with the new status, which the promise covers from
    /// now on, if there is one.
    pub fn renew(&mut self, fid: Fid, status: FetchStatus) {
        if let Some(promise) = self.held.get_mut(&fid) {
            promise.status = status;
        }
    }

    /// The status that is promised now.
    pub fn status(&self, now: Time, fid: Fid) -> Option<FetchStatus> {
        self.held.get(&fid).filter(|promise| now < promise.until).map(|promise| promise.status)
    }

    /// Whether an answer about the file is promised, if its call began at `start`.
    pub fn covers(&self, now: Time, start: AskedAt, fid: Fid) -> bool {
        self.status(now, fid).is_some() && !self.is_overtaken(fid, start)
    }

    /// Whether there is any promise of this server.
    pub fn any_of(&self, server: Ipv4Addr) -> bool {
        self.held.values().any(|promise| promise.server == server)
    }

    /// The servers that made promises.
    pub fn servers(&self) -> HashSet<Ipv4Addr> {
        self.held.values().map(|promise| promise.server).collect()
    }

    /// This client changed these files.
    pub fn changed(&mut self, fids: &[Fid]) {
        let items: Vec<BreakItem> = fids.iter().copied().map(broken).collect();
        self.holder.on_break(&items);
    }

    /// The file is gone, or the server ended its promise without a callback, as to the host that
    /// removes a name.
    pub fn forget(&mut self, fid: Fid) {
        self.held.remove(&fid);
    }

    /// A callback: the promises for these files have ended. Vnode 0 stands for all of a volume.
    /// Files without a promise are known to no cache, so a server can make no more breaks than it
    /// made promises.
    pub fn on_callback(&mut self, fids: &[Fid]) -> Vec<BreakItem> {
        let mut items = Vec::new();
        for fid in fids {
            if fid.vnode.0 == 0 {
                items.extend(self.end(|held, _| held.volume == fid.volume));
                self.holder.on_break(&[broken(Fid::rights(fid.volume))]);
            } else {
                items.extend(self.held.remove(fid).map(|_| broken(*fid)));
                self.holder.on_break(&[broken(*fid)]);
            }
        }
        items
    }

    /// The server knows no promise of this client any more, or cannot be reached with a callback.
    pub fn on_server_lost(&mut self, server: Ipv4Addr) -> Vec<BreakItem> {
        self.holder.on_server_restarted();
        self.end(|_, promise| promise.server == server)
    }

    /// All servers' promises have ended.
    pub fn on_all_lost(&mut self) -> Vec<BreakItem> {
        self.holder.on_server_restarted();
        self.end(|_, _| true)
    }

    /// The promises of a volume have ended: it is at another server.
    pub fn on_moved(&mut self, volume: VolumeId) -> Vec<BreakItem> {
        self.on_callback(&[Fid::rights(volume)])
    }

    /// The promises that end by themselves.
    pub fn expire(&mut self, now: Time) -> Vec<BreakItem> {
        let items = self.end(|_, promise| promise.until <= now);
        self.holder.on_break(&items);
        items
    }

    fn end(&mut self, is_over: impl Fn(&Fid, &Promise) -> bool) -> Vec<BreakItem> {
        self.held
            .extract_if(|fid, promise| is_over(fid, promise))
            .map(|(fid, _)| broken(fid))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid::new(7, 2, 1);
    const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const HOUR: CallBack = CallBack { version: 1, expiration: 3600, kind: 2 };

    fn at(secs: u64) -> Time {
        Time::from_start(Duration::from_secs(secs))
    }

    fn learn(promises: &mut Promises, start: AskedAt, promise: CallBack) {
        let new = promises.learn(at(0), start, SERVER, (FILE, FetchStatus::default()), promise);
        assert_eq!(new, None);
    }

    fn promised() -> Promises {
        let mut promises = Promises::default();
        let start = promises.begin();
        learn(&mut promises, start, HOUR);
        assert!(promises.covers(at(0), start, FILE));
        promises
    }

    #[test]
    fn a_callback_during_the_call_leaves_no_promise() {
        for broken in [FILE, Fid::rights(FILE.volume)] {
            let mut promises = Promises::default();
            let start = promises.begin();
            promises.on_callback(&[broken]);
            learn(&mut promises, start, HOUR);
            assert!(!promises.covers(at(0), start, FILE), "{broken}");
            let later = promises.begin();
            learn(&mut promises, later, HOUR);
            assert!(promises.covers(at(0), later, FILE), "{broken}");
        }
    }

    #[test]
    fn a_promise_ends_at_its_time_and_a_little_earlier() {
        let mut promises = promised();
        let start = promises.begin();
        assert!(promises.covers(at(3594), start, FILE));
        assert!(!promises.covers(at(3595), start, FILE));
        assert!(promises.expire(at(3594)).is_empty());
        assert_eq!(promises.expire(at(3595)), [broken(FILE)]);
        assert!(promises.expire(at(3600)).is_empty(), "once");
    }

    #[test]
    fn what_is_no_promise_is_none() {
        for none in [
            CallBack { expiration: 0, ..HOUR },
            CallBack { expiration: 5, ..HOUR },
            CallBack { kind: DROPPED, ..HOUR },
        ] {
            let mut promises = Promises::default();
            let start = promises.begin();
            learn(&mut promises, start, none);
            assert!(!promises.covers(at(0), start, FILE), "{none:?}");
        }
    }

    #[test]
    fn a_volumes_callback_ends_all_of_its_promises() {
        let mut promises = promised();
        assert!(promises.on_callback(&[Fid::rights(VolumeId(8))]).is_empty());
        assert_eq!(promises.on_callback(&[Fid::rights(FILE.volume)]), [broken(FILE)]);
        assert_eq!(promises.status(at(0), FILE), None);
    }

    #[test]
    fn a_lost_server_takes_its_promises_along() {
        let mut promises = promised();
        let start = promises.begin();
        assert!(promises.on_server_lost(Ipv4Addr::LOCALHOST).is_empty());
        assert!(promises.any_of(SERVER));
        assert_eq!(promises.on_server_lost(SERVER), [broken(FILE)]);
        learn(&mut promises, start, HOUR);
        assert!(!promises.covers(at(0), start, FILE), "the answer is from before");
    }

    #[test]
    fn a_question_that_a_change_overtook_is_older() {
        let mut promises = promised();
        let question = promises.begin();
        promises.changed(&[FILE]);
        let change = promises.begin();
        assert!(question.version < change.version);
        assert!(promises.begin().version > change.version, "a later question is newer");
    }

    #[test]
    fn an_own_change_doubts_earlier_questions_alone() {
        let mut promises = promised();
        let question = promises.begin();
        promises.changed(&[FILE]);
        assert!(!promises.covers(at(0), question, FILE));
        let later = promises.begin();
        assert!(promises.covers(at(0), later, FILE), "the promise itself stays");
    }
}
