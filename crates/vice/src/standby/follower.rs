//! The work for one volume elsewhere for which this server stands by, without threads or sockets.
//!
//! Model. A follower *looks up* the group's record, gets a *base* and brings it here, and *follows*
//! (`follow` repeats). Each failure leads back to the look-up; if its place is not in the feed any
//! more that drops what was applied, once the record says that this standby may not take over: an
//! earlier attempt to do so may be recorded without an answer, and then what is here is all that
//! there is. It takes over only from *follow*, when the last
//! answer said that it is in step, and nothing came for [`PATIENCE`].
//!
//! If an answer says that there is more, its entries *wait*: the next question is sent first, and
//! they are applied while it is on its way. That question names the answer, so the next one begins
//! behind it, and the place that is applied, which alone counts for what may be acknowledged.

use std::net::SocketAddr;
use std::time::Duration;

use store::StoreError;
use types::{
    Answer, Fault, FeedPlace, FeedStart, Finish, Follow, Name, PartitionNo, Pull, ServerId, Time,
    VolumeCall, VolumeId, VolumeKind, limits,
};

use super::PATIENCE;
use super::envelope::Envelope;
use super::names::base_name;
use crate::admin::Unanswered;

/// Entries that were applied are on disk after this time.
const SYNC: Duration = Duration::from_secs(1);
/// The pause before the next attempt: at first, and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// After so many answers in a row that came at once, each with entries and without a wish for a
/// sync, the next question waits for a moment, so that its answer has the entries of several
/// commits.
const FAST_ANSWERS: u32 = 8;
const FAST: Duration = Duration::from_millis(2);
const GATHER: Duration = Duration::from_millis(1);

/// The driver's next step for a standby.
#[derive(Debug)]
pub enum StandbyWork {
    /// Ask this. The answer is for `answered`.
    Ask(StandbyQuestion),
    /// Run this pull to its end. The result is for `pulled`.
    Pull(Pull),
    /// Try again after this time.
    Pause(Duration),
    /// This server stands by for the volume no more.
    Over,
}

/// A question of a standby to the server of its volume.
#[derive(Debug)]
pub struct StandbyQuestion {
    /// The server.
    pub server: ServerId,
    /// Its addresses.
    pub at: Vec<SocketAddr>,
    /// The call.
    pub call: VolumeCall,
    /// Entries wait: the driver calls `apply_waiting` while the question is on its way.
    pub is_ahead: bool,
}

/// Where a follower stands; see the head of the file.
pub(super) enum Phase {
    LookUp,
    Feed,
    Pull(FeedStart),
    Begin(FeedStart),
    Follow,
    Over,
}

/// The server of the volume.
#[derive(Clone)]
pub(super) struct Source {
    pub server: ServerId,
    pub at: Vec<SocketAddr>,
    /// The name of the volume.
    pub name: Name,
}

/// See the head of the file.
pub(super) struct Follower {
    pub no: PartitionNo,
    pub tree: VolumeId,
    pub phase: Phase,
    pub source: Option<Source>,
    /// The epoch of its base.
    pub base: u64,
    pub applied: FeedPlace,
    pub synced: u64,
    synced_at: Time,
    /// The number of the last answer; 0: there is none, or what it had could not be applied.
    heard: u64,
    /// The last answer, whose entries are not applied yet.
    waiting: Option<Envelope>,
    /// When that came.
    pub received: Option<Time>,
    /// The last answer said that it may take over.
    pub in_step: bool,
    pause: Duration,
    /// It applied changes that cannot be followed from.
    pub has_lost_place: bool,
    /// Pause before the next step.
    rests: bool,
    /// When the last question was asked.
    asked_at: Time,
    /// See [`FAST_ANSWERS`].
    fast_answers: u32,
    gathers: bool,
}

/// The partition's part, for the answers of `Follow`.
pub(super) trait Applies {
    fn apply(&self, tree: VolumeId, entries: &bytes::Bytes) -> Result<FeedPlace, StoreError>;
    fn sync(&self, tree: VolumeId) -> Result<FeedPlace, StoreError>;
}

impl Applies for store::Standbys {
    fn apply(&self, tree: VolumeId, entries: &bytes::Bytes) -> Result<FeedPlace, StoreError> {
        store::Standbys::apply(self, tree, entries)
    }

    fn sync(&self, tree: VolumeId) -> Result<FeedPlace, StoreError> {
        store::Standbys::sync(self, tree)
    }
}

impl Follower {
    pub fn new(no: PartitionNo, tree: VolumeId) -> Follower {
        Follower {
            no,
            tree,
            phase: Phase::LookUp,
            source: None,
            base: 0,
            applied: FeedPlace::default(),
            synced: 0,
            synced_at: Time::ZERO,
            heard: 0,
            waiting: None,
            received: None,
            in_step: false,
            pause: PAUSE,
            has_lost_place: false,
            rests: false,
            asked_at: Time::ZERO,
            fast_answers: 0,
            gathers: false,
        }
    }

    /// The pause that is due, if one is.
    pub fn rest(&mut self) -> Option<Duration> {
        if std::mem::take(&mut self.gathers) && !self.rests {
            return Some(GATHER);
        }
        let pause = self.pause;
        std::mem::take(&mut self.rests).then(|| {
            self.pause = (pause * 2).min(PAUSE_MAX);
            pause
        })
    }

    /// Begins to follow from what is here.
    pub fn begin_to_follow(&mut self, base: u64, place: FeedPlace) {
        (self.base, self.applied, self.synced) = (base, place, 0);
        (self.heard, self.received, self.in_step) = (0, None, false);
        (self.phase, self.waiting) = (Phase::Follow, None);
    }

    /// The next question to the volume's server.
    pub fn question(&mut self, now: Time, me: ServerId) -> Option<StandbyWork> {
        let source = self.source.clone()?;
        self.asked_at = now;
        let call = match &self.phase {
            Phase::Feed => VolumeCall::Feed { id: self.tree, standby: me },
            Phase::Follow => VolumeCall::Follow(Box::new(Follow {
                id: self.tree,
                standby: me,
                base: self.base,
                applied: self.applied,
                synced: self.synced,
                heard: self.heard,
                bytes_max: limits::PAYLOAD_BYTES_MAX as u32,
            })),
            Phase::Pull(start) => {
                let name = base_name(&source.name, me, start.epoch).ok()?;
                let (id, kind) = (Some(start.base), VolumeKind::Snapshot);
                return Some(StandbyWork::Pull(Pull {
                    from: source.at,
                    id: start.base,
                    partition: Some(self.no),
                    tree: self.tree,
                    finish: Finish::View { id, name, kind, replace: true },
                }));
            }
            Phase::LookUp | Phase::Begin(_) | Phase::Over => return None,
        };
        let Source { server, at, .. } = source;
        let is_ahead = self.waiting.is_some();
        Some(StandbyWork::Ask(StandbyQuestion { server, at, call, is_ahead }))
    }

    /// Whether the volume's server has been silent for so long that this one takes over.
    pub fn is_patience_over(&self, now: Time) -> bool {
        matches!(self.phase, Phase::Follow)
            && self.in_step
            && self.received.is_some_and(|received| now.since(received) >= PATIENCE)
    }

    /// Takes an answer that came at this time, after it applied the one that waits.
    pub fn answered(&mut self, now: Time, answer: Result<Answer, Unanswered>, here: &dyn Applies) {
        self.apply_waiting(now, here);
        match (&self.phase, answer) {
            (Phase::Over | Phase::LookUp | Phase::Pull(_) | Phase::Begin(_), _) => {}
            (Phase::Feed, Ok(Answer::Feed(start))) => self.phase = Phase::Pull(start),
            (Phase::Follow, Ok(Answer::Part(part))) => match Envelope::decode(part) {
                Some(envelope) => self.take(now, envelope, here),
                None => self.begin_anew(),
            },
            (Phase::Follow, Err(Unanswered::Refused(Fault::Conflict))) => self.begin_anew(),
            // It may only be away for a moment.
            (Phase::Follow, Err(Unanswered::Lost(why))) => {
                tracing::debug!(tree = self.tree.0, why, "a volume's server does not answer");
                if self.in_step {
                    self.pause = PAUSE;
                } else {
                    self.phase = Phase::LookUp;
                }
                self.rests = true;
            }
            (_, answer) => {
                tracing::debug!(tree = self.tree.0, ?answer, "a standby cannot follow yet");
                (self.phase, self.in_step, self.rests) = (Phase::LookUp, false, true);
            }
        }
    }

    fn take(&mut self, now: Time, envelope: Envelope, here: &dyn Applies) {
        let head = envelope.head;
        (self.heard, self.received) = (head.serial, Some(now));
        self.in_step = head.in_step;
        self.pause = PAUSE;
        let to = store::place_behind(&envelope.entries);
        let has_more = to.is_some_and(|to| to.position < head.end.position);
        let is_fast = to.is_some()
            && !has_more
            && head.sync_to <= self.synced
            && now.since(self.asked_at) < FAST;
        self.fast_answers = if is_fast { self.fast_answers + 1 } else { 0 };
        self.gathers = self.fast_answers >= FAST_ANSWERS;
        self.waiting = Some(envelope);
        if !has_more {
            self.apply_waiting(now, here);
        }
    }

    /// Applies what waits.
    pub fn apply_waiting(&mut self, now: Time, here: &dyn Applies) {
        let Some(envelope) = self.waiting.take() else { return };
        if let Err(error) = self.apply(now, &envelope, here) {
            tracing::warn!(tree = self.tree.0, %error, "a standby cannot apply what it got");
            if matches!(error, StoreError::NoStream(_)) {
                return self.begin_anew();
            }
            // It must not take over without what it lacks now, and asks for that again.
            (self.in_step, self.rests, self.heard) = (false, true, 0);
        }
    }

    fn apply(
        &mut self,
        now: Time,
        envelope: &Envelope,
        here: &dyn Applies,
    ) -> Result<(), StoreError> {
        if !envelope.entries.is_empty() {
            self.applied = here.apply(self.tree, &envelope.entries)?;
        }
        let wanted = envelope.head.sync_to.min(self.applied.position) > self.synced;
        let is_due = self.applied.position > self.synced && now.since(self.synced_at) >= SYNC;
        if wanted || is_due {
            self.synced = here.sync(self.tree)?.position;
            self.synced_at = now;
        }
        Ok(())
    }

    /// The place is not in the feed any more.
    fn begin_anew(&mut self) {
        tracing::info!(tree = self.tree.0, "a standby begins anew");
        (self.in_step, self.rests, self.received) = (false, true, None);
        (self.phase, self.has_lost_place) = (Phase::LookUp, true);
    }

    /// The pull of the base ended.
    pub fn pulled(&mut self, result: Result<(), String>) {
        let Phase::Pull(start) = &self.phase else { return };
        match result {
            Ok(()) => self.phase = Phase::Begin(*start),
            Err(why) => {
                tracing::warn!(tree = self.tree.0, why, "the base of a standby did not come");
                (self.phase, self.rests) = (Phase::LookUp, true);
            }
        }
    }

    /// Something failed here, or the database is away: it begins with a look-up, later.
    pub fn later(&mut self) {
        self.rests = true;
        if !matches!(self.phase, Phase::Follow | Phase::Over | Phase::Begin(_)) {
            self.phase = Phase::LookUp;
        }
    }

    /// This server stands by for the volume no more.
    pub fn end(&mut self) {
        (self.phase, self.in_step) = (Phase::Over, false);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bytes::Bytes;

    use super::super::envelope::EnvelopeHead;
    use super::*;

    const NOW: Time = Time::from_start(Duration::from_secs(1));
    const TREE: VolumeId = VolumeId(5);

    /// Where entries are applied, or cannot be.
    #[derive(Default)]
    struct Disk {
        applied: Cell<u64>,
        is_full: Cell<bool>,
    }

    impl Applies for Disk {
        fn apply(&self, _: VolumeId, entries: &Bytes) -> Result<FeedPlace, StoreError> {
            if self.is_full.get() {
                return Err(StoreError::NoSpace);
            }
            let to = store::place_behind(entries).unwrap();
            self.applied.set(to.position);
            Ok(to)
        }

        fn sync(&self, _: VolumeId) -> Result<FeedPlace, StoreError> {
            Ok(place(self.applied.get()))
        }
    }

    fn place(position: u64) -> FeedPlace {
        FeedPlace { feed: 1, position }
    }

    fn follower() -> Follower {
        let mut follower = Follower::new(PartitionNo(0), TREE);
        let name = Name::new(b"data").unwrap();
        follower.source = Some(Source { server: ServerId(1), at: Vec::new(), name });
        follower.begin_to_follow(7, place(0));
        follower
    }

    /// An answer with the entries of these positions; the feed ends at `end`.
    fn answer(serial: u64, from: u64, to: u64, end: u64) -> Result<Answer, Unanswered> {
        let head = EnvelopeHead { serial, end: place(end), sync_to: 0, in_step: true };
        let mut bytes = head.encode();
        bytes.push(1);
        bytes.extend(TREE.0.to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend(1u64.to_le_bytes());
        bytes.extend(from.to_le_bytes());
        bytes.extend(((to - from) as u32).to_le_bytes());
        Ok(Answer::Part(bytes.into()))
    }

    fn asks(follower: &mut Follower) -> (Follow, bool) {
        match follower.question(NOW, ServerId(2)) {
            Some(StandbyWork::Ask(StandbyQuestion { call, is_ahead, .. })) => match call {
                VolumeCall::Follow(follow) => (*follow, is_ahead),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_asks_for_more_before_it_applies() {
        let (mut follower, disk) = (follower(), Disk::default());
        follower.answered(NOW, answer(1, 0, 4, 9), &disk);
        let (follow, is_ahead) = asks(&mut follower);
        assert_eq!((follow.applied, follow.heard, is_ahead), (place(0), 1, true));
        follower.apply_waiting(NOW, &disk);
        assert_eq!(disk.applied.get(), 4);
        // The last ones are applied at once: the server shall know it soon.
        follower.answered(NOW, answer(2, 4, 9, 9), &disk);
        let (follow, is_ahead) = asks(&mut follower);
        assert_eq!((follow.applied, follow.heard, is_ahead), (place(9), 2, false));
    }

    #[test]
    fn what_waits_is_applied_before_the_next_answer() {
        let (mut follower, disk) = (follower(), Disk::default());
        follower.answered(NOW, answer(1, 0, 4, 9), &disk);
        follower.answered(NOW, answer(2, 4, 8, 9), &disk);
        assert_eq!(disk.applied.get(), 4);
        assert_eq!(asks(&mut follower).0.applied, place(4));
        follower.answered(NOW, Err(Unanswered::Lost("it is away".to_owned())), &disk);
        assert_eq!(disk.applied.get(), 8);
    }

    #[test]
    fn what_cannot_be_applied_is_asked_for_again() {
        let (mut follower, disk) = (follower(), Disk::default());
        follower.answered(NOW, answer(1, 0, 4, 9), &disk);
        disk.is_full.set(true);
        follower.apply_waiting(NOW, &disk);
        let (follow, is_ahead) = asks(&mut follower);
        assert_eq!((follow.applied, follow.heard, is_ahead), (place(0), 0, false));
        assert!(!follower.in_step && follower.rest().is_some());
    }
}
