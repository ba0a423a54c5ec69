//! The standbys of one volume at its server, without locks, calls or the database.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::{Feed, Heir};
use types::{
    Answer, ClientId, Fault, FeedPlace, Follow, ReplyAddress, ServerId, SessionId, SiteKind,
    StandbyInfo, Time, VolumeGroup, VolumeId, limits,
};

use super::envelope::{ENVELOPE_BYTES, EnvelopeHead};
use super::stage::Stage;
use super::{FENCE, POLL};

/// A standby that is not further behind than this may enter.
const NEAR_ENTRIES: u64 = 1024;
/// Answers whose times are remembered.
const SENT_MAX: usize = 8;
/// Ends of the feed whose times are remembered, to tell how far a standby is behind.
const SAMPLES_MAX: usize = 256;

/// The reply to a change, before the standbys have it.
pub(crate) struct HeldReply {
    /// Standbys must have the entries before this.
    pub place: FeedPlace,
    /// They must have it on disk.
    pub stable: bool,
    pub origin: ReplyAddress,
    /// It is remembered when it is sent.
    pub remembered: bool,
    /// It was sent, or held, before the restart of this server; the slot has it.
    pub recorded: bool,
    pub result: Result<Answer, Fault>,
    pub body: Option<OwnedFd>,
}

impl HeldReply {
    /// A standby took over, with this change or without it: the client asks it.
    pub fn of_the_former_server(self) -> HeldReply {
        HeldReply { result: Err(Fault::NoVolume), body: None, ..self }
    }

    /// The reply record of a change that an earlier instance of this server made.
    pub fn recorded(origin: ReplyAddress, answer: Answer) -> HeldReply {
        let (place, stable, remembered, recorded, body) =
            (FeedPlace::default(), false, true, true, None);
        HeldReply { place, stable, origin, remembered, recorded, result: Ok(answer), body }
    }
}

/// The last requests of clients that have changed a volume, with the replies that are remembered.
pub(super) struct LastReplies {
    pub known: Vec<(ReplyAddress, Bytes)>,
    /// Those of former servers, for clients that did not come since.
    pub heirs: Vec<Heir>,
    /// The form of replies that are held yet.
    pub encode: fn(&Answer) -> Vec<u8>,
}

/// Answers and replies that are to be sent.
#[derive(Default)]
pub(crate) struct Ripe {
    /// Answers to questions of standbys.
    pub answers: Vec<(ReplyAddress, Result<Answer, Fault>)>,
    /// Replies that wait no more.
    pub replies: Vec<HeldReply>,
}

/// A question that waits.
struct Question {
    origin: ReplyAddress,
    /// Where the answer begins.
    from: FeedPlace,
    bytes_max: usize,
    due: Time,
}

/// An answer of the last ones.
struct SentAnswer {
    serial: u64,
    at: Time,
    /// The position behind its entries.
    to: u64,
}

/// One standby.
struct Standby {
    server: ServerId,
    is_sync: bool,
    stage: Stage,
    /// The epoch of its base; `None`: it has lost its place.
    base: Option<u64>,
    applied: u64,
    synced: u64,
    /// It had all before this once, and is as it was only when it has it again.
    must_have: u64,
    /// The number of the last answer.
    serial: u64,
    /// The last answers from its place in the feed on.
    sent: VecDeque<SentAnswer>,
    /// When the last answer was sent that it has acknowledged.
    heard: Option<Time>,
    asked_at: Time,
    /// The end of the feed when the last answer was made.
    offered: Option<u64>,
    /// The last answer said this: in step, and what shall be on disk.
    told: (bool, u64),
    question: Option<Question>,
    /// Its older bases are removed.
    is_tidy: bool,
}

impl Standby {
    /// When the volume must not be served any more unless it is heard.
    fn deadline(&self) -> Option<Time> {
        let counts = matches!(self.stage, Stage::Entering { .. } | Stage::InStep);
        counts.then(|| self.heard.map_or(Time::ZERO, |heard| heard + FENCE))
    }

    /// It has not what it had, or not its place: returns whether it may take over all the same.
    fn lose_place(&mut self) -> bool {
        self.must_have = self.must_have.max(self.applied);
        self.base = None;
        (self.applied, self.synced) = (0, 0);
        self.offered = None;
        self.sent.clear();
        self.stage.silent()
    }
}

/// See the head of the file.
pub(super) struct Feeding {
    volume: VolumeId,
    /// `None`: nothing is fed since the start of this server.
    feed: Option<Arc<Feed>>,
    /// The volume, whose state, with the feed, must stay in memory.
    kept: Option<Arc<store::Volume>>,
    standbys: Vec<Standby>,
    held: VecDeque<HeldReply>,
    /// Something changed for which replies may wait no more.
    may_release: bool,
    /// Questions after which the same standby has asked another one.
    refused: Vec<ReplyAddress>,
    /// When the feed's end was seen to grow, and where it was.
    samples: VecDeque<(Time, u64)>,
    /// This server has not asked the database since its start.
    unconfirmed: bool,
    /// A standby took over.
    superseded: bool,
    /// The group's record shall be read.
    pub recheck: bool,
    /// The place of the newest base: replies to what it has are in no entry of their own.
    base_at: u64,
    /// Entries before this position shall be on the standbys' disks soon: a caller will wait for
    /// it, once this server has it on its own.
    announced: u64,
}

/// The sites that the group's record shall have, and what was planned for which standby.
pub(super) struct Plan {
    pub group: VolumeGroup,
    pub writes: bool,
    wanted: Vec<(ServerId, bool)>,
}

impl Feeding {
    pub fn new(volume: VolumeId, unconfirmed: bool) -> Feeding {
        Feeding {
            volume,
            feed: None,
            kept: None,
            standbys: Vec::new(),
            held: VecDeque::new(),
            may_release: false,
            refused: Vec::new(),
            samples: VecDeque::new(),
            unconfirmed,
            superseded: false,
            recheck: unconfirmed,
            base_at: 0,
            announced: 0,
        }
    }

    /// A standby gets a base, and begins anew.
    pub fn feed(
        &mut self,
        now: Time,
        (server, is_sync): (ServerId, bool),
        (base, base_at): (u64, u64),
        (feed, kept): (Arc<Feed>, Arc<store::Volume>),
        replies: LastReplies,
    ) {
        self.be_fed_by(Arc::clone(&feed));
        self.base_at = base_at;
        self.carry(&feed, replies);
        self.kept = Some(kept);
        let at = self.standbys.iter().position(|one| one.server == server).unwrap_or_else(|| {
            self.standbys.push(Standby {
                server,
                is_sync,
                stage: Stage::CatchingUp,
                base: None,
                applied: 0,
                synced: 0,
                must_have: 0,
                serial: 0,
                sent: VecDeque::new(),
                heard: None,
                asked_at: now,
                offered: None,
                told: (false, 0),
                question: None,
                is_tidy: false,
            });
            self.standbys.len() - 1
        });
        let one = &mut self.standbys[at];
        one.lose_place();
        // The base has all that it ever had.
        one.must_have = 0;
        one.is_sync = is_sync;
        one.base = Some(base);
        one.asked_at = now;
    }

    /// Adds to the feed what clients may ask of the volume that takes over and the base does not
    /// have: `replies`, and those that are held.
    fn carry(&mut self, feed: &Feed, replies: LastReplies) {
        let LastReplies { known: mut replies, heirs, encode } = replies;
        feed.pass_on(heirs);
        self.may_release = true;
        let (id, base_at) = (feed.end().feed, self.base_at);
        let is_behind = |held: &&mut HeldReply| {
            !held.recorded && (held.place.feed != id || held.place.position <= base_at)
        };
        let behind: Vec<_> = self.held.iter_mut().filter(is_behind).collect();
        for held in &behind {
            let encoded = held.result.as_ref().map(|answer| Bytes::from(encode(answer)));
            replies.extend(encoded.ok().map(|reply| (held.origin, reply)));
        }
        feed.carry(replies);
        behind.into_iter().for_each(|held| held.place = feed.end());
    }

    /// The old feed is over if this is another one. A base of this one has all that was changed
    /// before it, so a standby that follows has it.
    fn be_fed_by(&mut self, feed: Arc<Feed>) {
        let id = feed.end().feed;
        if self.feed_id() != id {
            for one in &mut self.standbys {
                one.lose_place();
            }
            for held in self.held.iter_mut().filter(|held| held.place.feed != id) {
                held.place = FeedPlace { feed: id, position: 0 };
            }
            self.samples.clear();
            self.announced = 0;
        }
        self.feed = Some(feed);
    }

    /// The number of the feed; 0: none.
    fn feed_id(&self) -> u64 {
        self.feed.as_ref().map_or(0, |feed| feed.end().feed)
    }

    /// Takes the question of a standby; its answer comes with [`Feeding::ripen`].
    ///
    /// # Errors
    /// `Conflict` if its place is not in the feed; `Invalid`.
    pub fn follow(
        &mut self,
        now: Time,
        origin: ReplyAddress,
        follow: &Follow,
    ) -> Result<(), Fault> {
        if self.superseded {
            return Err(Fault::NoVolume);
        }
        self.may_release = true;
        let end = self.feed.as_ref().filter(|feed| !feed.is_over()).map(|feed| feed.end());
        let known = self.standbys.iter_mut().find(|one| one.server == follow.standby);
        let Some(one) = known else { return Err(Fault::Conflict) };
        let Some(end) = end else {
            one.lose_place();
            return Err(Fault::Conflict);
        };
        if follow.synced > follow.applied.position {
            return Err(Fault::Invalid);
        }
        if let Some(older) = one.question.take() {
            self.refused.push(older.origin);
        }
        let applied = follow.applied;
        if one.base != Some(follow.base)
            || applied.feed != end.feed
            || applied.position > end.position
        {
            one.lose_place();
            return Err(Fault::Conflict);
        }
        one.asked_at = now;
        if applied.position < one.applied {
            // It died before what it had was on disk.
            one.must_have = one.must_have.max(one.applied);
            one.stage.silent();
        }
        one.is_tidy &= one.offered.is_some();
        (one.applied, one.synced) = (applied.position, follow.synced);
        let mut from = applied;
        if let Some(heard) = one.sent.iter().find(|sent| sent.serial == follow.heard) {
            one.heard = one.heard.max(Some(heard.at));
            // It asks for more while it applies that answer.
            from.position = from.position.max(heard.to);
        }
        let is_fresh = one.heard.is_some_and(|heard| now.since(heard) < FENCE);
        if is_fresh && one.applied >= one.must_have {
            one.stage.came_back();
            let near = end.position - one.applied <= NEAR_ENTRIES;
            if near && one.offered.is_some_and(|offered| one.applied >= offered) {
                if one.stage == Stage::CatchingUp {
                    // Replies to changes until now did not wait for it.
                    one.must_have = one.must_have.max(end.position);
                }
                one.stage.caught_up();
            }
        }
        one.question = Some(Question {
            origin,
            from,
            bytes_max: (follow.bytes_max as usize)
                .clamp(2 * ENVELOPE_BYTES, limits::PAYLOAD_BYTES_MAX)
                - ENVELOPE_BYTES,
            due: now + POLL,
        });
        Ok(())
    }

    /// A call will make all that was changed before it stable: the standbys begin with it when this
    /// server does.
    pub fn announce(&mut self) {
        self.announced = self.feed.as_ref().map_or(0, |feed| feed.end().position);
    }

    /// Answers the questions that have an answer now, and lets go the replies that wait no more.
    pub fn ripen(
        &mut self,
        now: Time,
        client_of: &dyn Fn(SessionId) -> Option<ClientId>,
        ripe: &mut Ripe,
    ) {
        if std::mem::take(&mut self.may_release) {
            self.release(ripe);
        }
        let refused = self.refused.drain(..).map(|origin| (origin, Err(Fault::Conflict)));
        ripe.answers.extend(refused);
        let Some(feed) = self.feed.clone().filter(|_| !self.superseded) else { return };
        let id = feed.end().feed;
        let stable = self.held.iter().filter(|held| held.stable && held.place.feed == id);
        let sync_to = stable.map(|held| held.place.position).max().unwrap_or(0);
        let sync_to = sync_to.max(self.announced);
        for one in &mut self.standbys {
            let Some(question) = &one.question else { continue };
            let end = feed.end();
            let in_step = one.stage == Stage::InStep;
            let wants_sync = sync_to > one.synced && sync_to > one.told.1;
            let has_news = in_step != one.told.0 || wants_sync;
            let has_entries = end.position > question.from.position || feed.is_over();
            if !has_entries && !has_news && now < question.due {
                continue;
            }
            let Question { origin, from, bytes_max, .. } = *question;
            one.question = None;
            let serial = one.serial + 1;
            let mut answer = EnvelopeHead { serial, end, sync_to, in_step }.encode();
            let Some(to) = feed.read(from, bytes_max, client_of, &mut answer) else {
                one.lose_place();
                ripe.answers.push((origin, Err(Fault::Conflict)));
                continue;
            };
            one.serial = serial;
            one.sent.push_back(SentAnswer { serial, at: now, to: to.position });
            if one.sent.len() > SENT_MAX {
                one.sent.pop_front();
            }
            one.offered = Some(end.position);
            one.told = (in_step, sync_to);
            ripe.answers.push((origin, Ok(Answer::Part(answer.into()))));
        }
    }

    /// Holds a reply until the standbys have what it says, or returns it.
    pub fn hold(
        &mut self,
        mut reply: HeldReply,
        encode: fn(&Answer) -> Vec<u8>,
    ) -> Option<HeldReply> {
        if self.superseded {
            return Some(reply.of_the_former_server());
        }
        // A change from before a base, which waited for something else until now.
        if let (Some(feed), Ok(answer), false) = (&self.feed, &reply.result, reply.recorded)
            && reply.remembered
            && !answer.is_only_here()
            && (reply.place.feed != self.feed_id() || reply.place.position <= self.base_at)
        {
            feed.carry(vec![(reply.origin, Bytes::from(encode(answer)))]);
            reply.place = feed.end();
        }
        if self.is_confirmed_by_all(&reply) {
            return Some(reply);
        }
        // A repeated request waits with the first one.
        let is_there = |held: &HeldReply| held.recorded && held.origin == reply.origin;
        if !self.held.iter().any(is_there) {
            self.held.push_back(reply);
        }
        None
    }

    /// Whether replies are held.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether the reply may be sent (SB-1).
    fn is_confirmed_by_all(&self, reply: &HeldReply) -> bool {
        let FeedPlace { feed, position } = reply.place;
        let has = |one: &Standby| {
            feed == self.feed_id()
                && one.applied >= position
                && (!reply.stable || one.synced >= position)
        };
        let needed = |one: &&Standby| one.is_sync && one.stage.may_take_over();
        !self.is_fenced() && self.standbys.iter().filter(needed).all(has)
    }

    /// Lets go the replies that wait no more.
    fn release(&mut self, ripe: &mut Ripe) {
        for reply in std::mem::take(&mut self.held) {
            if self.is_confirmed_by_all(&reply) {
                ripe.replies.push(reply);
            } else {
                self.held.push_back(reply);
            }
        }
    }

    /// Withdraws the question with this request. Returns whether there was one.
    pub fn cancel(&mut self, origin: ReplyAddress) -> bool {
        let asks =
            |one: &&mut Standby| one.question.as_ref().is_some_and(|asked| asked.origin == origin);
        let found = self.standbys.iter_mut().find(asks);
        found.and_then(|one| one.question.take()).is_some()
    }

    /// Handles what is due. Returns when a standby in step must have been heard.
    pub fn tick(&mut self, now: Time) -> Option<Time> {
        let feed = self.feed.clone().filter(|_| !self.superseded)?;
        self.may_release = true;
        for one in &mut self.standbys {
            if one.deadline().is_some_and(|deadline| deadline <= now) {
                let may_take_over = one.stage.silent();
                tracing::warn!(
                    volume = self.volume.0,
                    standby = %one.server,
                    may_take_over,
                    "nothing is heard from a standby"
                );
            }
        }
        let end = feed.end().position;
        if self.samples.back().is_none_or(|(_, seen)| *seen < end) {
            self.samples.push_back((now, end));
            if self.samples.len() > SAMPLES_MAX {
                self.samples.pop_front();
            }
        }
        let has_place = |one: &&Standby| one.base.is_some();
        if let Some(all) = self.standbys.iter().filter(has_place).map(|one| one.synced).min() {
            feed.forget_before(all);
        }
        self.standbys.iter().filter_map(Standby::deadline).min()
    }

    /// When the next question must be answered.
    pub fn due(&self) -> Option<Time> {
        self.standbys.iter().filter_map(|one| Some(one.question.as_ref()?.due)).min()
    }

    /// When a standby in step must have been heard.
    pub fn deadline(&self) -> Option<Time> {
        self.standbys.iter().filter_map(Standby::deadline).min()
    }

    /// Whether the volume must not be served (SB-3).
    pub fn is_fenced(&self) -> bool {
        let leaves = |one: &Standby| matches!(one.stage, Stage::Leaving { .. });
        self.unconfirmed || self.standbys.iter().any(leaves)
    }

    /// Whether the group's record shall be read or written.
    pub fn needs_database(&self) -> bool {
        let needs = |one: &Standby| match one.stage {
            Stage::Leaving { .. } => true,
            Stage::Entering { .. } => one.applied >= one.must_have,
            Stage::CatchingUp | Stage::InStep => !one.is_tidy && one.offered.is_some(),
        };
        !self.superseded && (self.recheck || self.standbys.iter().any(needs))
    }

    /// The standbys that follow from their base, and may have older ones; each is returned once.
    pub fn untidy(&mut self) -> Vec<(ServerId, u64)> {
        let follows = |one: &&mut Standby| !one.is_tidy && one.offered.is_some();
        let once = |one: &mut Standby| {
            one.is_tidy = true;
            Some((one.server, one.base?))
        };
        self.standbys.iter_mut().filter(follows).filter_map(once).collect()
    }

    /// The record that the group shall have. Standbys that it does not list are forgotten.
    pub fn plan(&mut self, group: &VolumeGroup) -> Plan {
        (self.recheck, self.may_release) = (false, true);
        self.standbys.retain(|one| group.standbys().any(|site| site.server == one.server));
        let mut changed = group.clone();
        // An attempt whose answer was lost may come late: a new revision makes it void.
        let mut writes = self.unconfirmed;
        let mut wanted = Vec::new();
        for site in changed.sites.iter_mut().filter(|site| site.kind.is_standby()) {
            let known = self.standbys.iter_mut().find(|one| one.server == site.server);
            let stage = known.as_ref().map_or(Stage::CatchingUp, |one| one.stage);
            let Some(in_step) = (match stage {
                Stage::CatchingUp => Some(false),
                Stage::Leaving { .. } => {
                    writes = true;
                    Some(false)
                }
                Stage::Entering { .. }
                    if group.busy.is_some()
                        || known.as_ref().is_some_and(|one| one.applied < one.must_have) =>
                {
                    None
                }
                Stage::Entering { .. } => Some(true),
                // Another one took it out of step.
                Stage::InStep => Some(site.is_in_step()),
            }) else {
                continue;
            };
            if let Some(one) = known {
                one.is_sync = site.kind == SiteKind::Standby;
                if in_step {
                    one.stage.ask();
                }
            }
            writes |= site.is_in_step() != in_step;
            site.epoch = in_step.into();
            wanted.push((site.server, in_step));
        }
        Plan { group: changed, writes, wanted }
    }

    /// The group's record is as planned.
    pub fn is_as_planned(&mut self, plan: &Plan) {
        (self.unconfirmed, self.may_release) = (false, true);
        for (server, in_step) in &plan.wanted {
            let Some(one) = self.standbys.iter_mut().find(|one| one.server == *server) else {
                continue;
            };
            if *in_step {
                one.stage.entered();
            } else {
                one.stage.left();
            }
        }
    }

    /// A standby took over, or the volume is gone: the held replies say that it is not here.
    pub fn supersede(&mut self, ripe: &mut Ripe) {
        self.superseded = true;
        for one in &mut self.standbys {
            let origin = one.question.take().map(|question| question.origin);
            ripe.answers.extend(origin.map(|origin| (origin, Err(Fault::NoVolume))));
        }
        self.feed = None;
        self.standbys.clear();
        ripe.replies.extend(self.held.drain(..).map(HeldReply::of_the_former_server));
    }

    pub fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// Whether the volume has no standbys any more, and nothing waits.
    pub fn is_over(&self) -> bool {
        self.standbys.is_empty() && self.held.is_empty() && !self.unconfirmed
    }

    /// As [`types::VolumeCall::Standbys`].
    pub fn infos(&self, now: Time) -> Vec<StandbyInfo> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let info = |one: &Standby| {
            let has_place = one.base.is_some();
            let feed = self.feed.as_ref().filter(|_| has_place);
            let (behind, behind_bytes) = feed.map_or((0, 0), |feed| feed.behind(one.applied));
            let grown = self.samples.iter().find(|(_, end)| *end > one.applied);
            let since = grown.or(self.samples.back()).map_or(now, |(at, _)| *at);
            StandbyInfo {
                server: one.server,
                is_sync: one.is_sync,
                in_step: one.stage == Stage::InStep,
                behind,
                behind_bytes,
                lag_millis: if behind == 0 { 0 } else { millis(now.since(since)).max(1) },
                heard_millis: millis(now.since(one.asked_at)),
            }
        };
        self.standbys.iter().map(info).collect()
    }
}
