//! The work for one volume elsewhere for which this server stands by, without threads or sockets.
//!
//! Model. A follower *looks up* the group's record, gets a *base* and brings it here, and *follows*
//! (`follow` repeats). Each failure leads back to the look-up; if its place is not in the feed any
//! more that drops what was applied, once the record says that this standby may not take over: an
//! earlier attempt to do so may be recorded without an answer, and then what is here is all that
//! there is. It takes over only from *follow*, when the last
//! answer said that it is in step, and nothing came for [`PATIENCE`].

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
    /// Ask the server with this id at these addresses. The answer is for `standby_answered`.
    Ask(ServerId, Vec<SocketAddr>, VolumeCall),
    /// Run this pull to its end. The result is for `standby_pulled`.
    Pull(Pull),
    /// Try again after this time.
    Pause(Duration),
    /// This server stands by for the volume no more.
    Over,
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
    /// The number of the last answer.
    heard: u64,
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
        self.phase = Phase::Follow;
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
        Some(StandbyWork::Ask(source.server, source.at, call))
    }

    /// Whether the volume's server has been silent for so long that this one takes over.
    pub fn is_patience_over(&self, now: Time) -> bool {
        matches!(self.phase, Phase::Follow)
            && self.in_step
            && self.received.is_some_and(|received| now.since(received) >= PATIENCE)
    }

    /// Takes an answer that came at this time.
    pub fn answered(&mut self, now: Time, answer: Result<Answer, Unanswered>, here: &dyn Applies) {
        match (&self.phase, answer) {
            (Phase::Over | Phase::LookUp | Phase::Pull(_) | Phase::Begin(_), _) => {}
            (Phase::Feed, Ok(Answer::Feed(start))) => self.phase = Phase::Pull(start),
            (Phase::Follow, Ok(Answer::Part(part))) => match Envelope::decode(part) {
                Some(envelope) => self.take(now, &envelope, here),
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

    fn take(&mut self, now: Time, envelope: &Envelope, here: &dyn Applies) {
        (self.heard, self.received) = (envelope.serial, Some(now));
        self.in_step = envelope.in_step;
        self.pause = PAUSE;
        let is_fast = !envelope.entries.is_empty()
            && envelope.sync_to <= self.synced
            && now.since(self.asked_at) < FAST;
        self.fast_answers = if is_fast { self.fast_answers + 1 } else { 0 };
        self.gathers = self.fast_answers >= FAST_ANSWERS;
        if let Err(error) = self.apply(now, envelope, here) {
            tracing::warn!(tree = self.tree.0, %error, "a standby cannot apply what it got");
            if matches!(error, StoreError::NoStream(_)) {
                return self.begin_anew();
            }
            // It must not take over without what it lacks now.
            (self.in_step, self.rests) = (false, true);
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
        let wanted = envelope.sync_to.min(self.applied.position) > self.synced;
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
