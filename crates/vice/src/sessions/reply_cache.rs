//! The reply cache: the last request of each slot of each session, with its reply.
//!
//! A slot goes *running* -> *done* with each request. A request that is repeated while it runs
//! needs nothing: its reply will be sent to the session, over its connection of that time. One that
//! is repeated when it is done is answered from here if it changed anything (EO-1), and executed
//! again otherwise. Replies from before a restart are bytes from the partition, decoded on demand.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use types::{Answer, Caller, ClientId, Fault, ReplyAddress, SessionId, VolumeId};

/// Maximum number of callers that are distinguished in one session.
const ACTORS_MAX: usize = 16;
/// Maximum number of ended sessions whose last requests are remembered for standbys.
const ENDED_MAX: usize = 1024;

/// Result of a slot's last request.
#[derive(Debug)]
enum Last {
    /// It is being executed, or waits.
    Running,
    /// It made no change, so it may be executed again.
    Repeatable,
    /// Its reply.
    Replied(Box<Result<Answer, Fault>>),
    /// Its reply as the partition has it.
    Recorded(Bytes),
}

#[derive(Debug)]
struct Slot {
    request: u64,
    last: Last,
}

/// The volumes that a session has changed, or was about to.
#[derive(Debug, Default)]
struct ChangedVolumes {
    known: HashSet<VolumeId>,
    /// It has changes at an earlier server instance, which may have been of any volume.
    any: bool,
}

impl ChangedVolumes {
    fn may_have(&self, volume: VolumeId) -> bool {
        self.any || self.known.contains(&volume)
    }
}

/// A session that ended lately. Its client may not know that yet, and will ask a standby that takes
/// over for its last replies, or whether its changes came there (SB-5).
#[derive(Debug)]
struct EndedSession {
    session: SessionId,
    client: ClientId,
    slots: HashMap<u32, Slot>,
    changed: ChangedVolumes,
}

/// The slots of all sessions.
#[derive(Debug, Default)]
pub(crate) struct SlotTable {
    sessions: HashMap<SessionId, HashMap<u32, Slot>>,
    clients: HashMap<SessionId, ClientId>,
    /// Of sessions with changes.
    changed: HashMap<SessionId, ChangedVolumes>,
    /// The first one first. Only authenticated ones with changes, so that no stranger drives others
    /// out.
    ended: VecDeque<EndedSession>,
    /// Callers that have sent requests through each session.
    actors: HashMap<SessionId, Vec<Caller>>,
    slots_max: u32,
}

/// The next step for a request.
#[derive(Debug)]
pub(crate) enum Begin {
    /// Execute it.
    Execute,
    /// It runs; its reply will follow.
    Running,
    /// It was executed, with this reply.
    Replied(Box<Result<Answer, Fault>>),
    /// An earlier server instance executed it; this is the reply's record.
    Recorded(Bytes),
    /// It cannot be executed.
    Refused(Fault),
}

impl SlotTable {
    pub fn new(slots_max: u32) -> Self {
        SlotTable { slots_max, ..SlotTable::default() }
    }

    pub fn add_session(&mut self, session: SessionId, client: ClientId) {
        let before = self.sessions.insert(session, HashMap::new());
        assert!(before.is_none(), "EO-1: {session:?} would lose its replies");
        self.actors.insert(session, Vec::new());
        self.clients.insert(session, client);
    }

    /// The client of a session, also of one that ended lately and had changes.
    pub fn client_of(&self, session: SessionId) -> Option<ClientId> {
        let ended = || self.ended.iter().find(|one| one.session == session);
        self.clients.get(&session).copied().or_else(|| ended().map(|one| one.client))
    }

    pub fn has_session(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Adds a reply record of an earlier server instance.
    pub fn add_record(&mut self, origin: ReplyAddress, reply: Bytes) {
        let slots = self.sessions.entry(origin.session).or_default();
        let slot = Slot { request: origin.request, last: Last::Recorded(reply) };
        let before = slots.insert(origin.slot, slot);
        assert!(before.is_none(), "EO-1: two records of the slot of {origin:?}");
        self.changed.entry(origin.session).or_default().any = true;
    }

    pub fn remove_session(&mut self, session: SessionId) {
        let actors = self.actors.remove(&session).unwrap_or_default();
        let (slots, client) = (self.sessions.remove(&session), self.clients.remove(&session));
        let changed = self.changed.remove(&session);
        let (Some(slots), Some(client), Some(changed)) = (slots, client, changed) else { return };
        // Sessions of an earlier instance are authenticated, or would have ended with that.
        if changed.any || actors.iter().any(|actor| actor.who.level.is_proved()) {
            self.ended.push_back(EndedSession { session, client, slots, changed });
            if self.ended.len() > ENDED_MAX {
                self.ended.pop_front();
            }
        }
    }

    /// Slot and request number of every cached reply of a change, in order.
    pub fn recorded(&self, session: SessionId) -> Vec<(u32, u64)> {
        let slots = self.sessions.get(&session).into_iter().flatten();
        let remembered = |slot: &Slot| match &slot.last {
            Last::Recorded(_) => true,
            Last::Replied(reply) => reply.is_ok(),
            Last::Running | Last::Repeatable => false,
        };
        let mut list: Vec<_> = slots
            .filter(|(_, slot)| remembered(slot))
            .map(|(number, slot)| (*number, slot.request))
            .collect();
        list.sort_unstable();
        list
    }

    /// The last request of each slot of the sessions that may have changed the volume, also of
    /// those that ended lately. With its reply if that is remembered, and no bytes otherwise. A
    /// request that runs counts as not made, as does one whose answer is only this server's.
    pub fn of_volume(
        &self,
        volume: VolumeId,
        encode: fn(&Answer) -> Vec<u8>,
    ) -> Vec<(ReplyAddress, Bytes)> {
        let mut found = Vec::new();
        let here = self.sessions.iter().filter_map(|(session, slots)| {
            self.changed.get(session).map(|changed| (session, slots, changed))
        });
        let ended = self.ended.iter().map(|one| (&one.session, &one.slots, &one.changed));
        for (session, slots, changed) in here.chain(ended) {
            if !changed.may_have(volume) {
                continue;
            }
            for (number, slot) in slots {
                let (request, reply) = match &slot.last {
                    Last::Replied(reply)
                        if reply.as_ref().as_ref().is_ok_and(Answer::is_only_here) =>
                    {
                        (slot.request.saturating_sub(1), Bytes::new())
                    }
                    Last::Running => (slot.request.saturating_sub(1), Bytes::new()),
                    Last::Replied(reply) => match &**reply {
                        Ok(answer) => (slot.request, encode(answer).into()),
                        Err(_) => (slot.request, Bytes::new()),
                    },
                    Last::Recorded(reply) => (slot.request, reply.clone()),
                    Last::Repeatable => (slot.request, Bytes::new()),
                };
                if request > 0 {
                    let origin = ReplyAddress { session: *session, slot: *number, request };
                    found.push((origin, reply));
                }
            }
        }
        found
    }

    /// The session is about to change the volume.
    pub fn note_change(&mut self, session: SessionId, volume: VolumeId) {
        if self.sessions.contains_key(&session) {
            self.changed.entry(session).or_default().known.insert(volume);
        }
    }

    /// Records a caller of the session. Past [`ACTORS_MAX`] callers are no longer distinguished:
    /// then no fence ends a session that others may use.
    pub fn note(&mut self, session: SessionId, caller: &Caller) {
        let Some(actors) = self.actors.get_mut(&session) else { return };
        let is_known = |known: &Caller| known.uid == caller.uid && known.who == caller.who;
        if actors.len() < ACTORS_MAX && !actors.iter().any(is_known) {
            actors.push(Caller { groups: None, ..*caller });
        }
    }

    /// All sessions, with their callers.
    pub fn actors(&self) -> Vec<(SessionId, Vec<Caller>)> {
        let of = |session: &SessionId| self.actors.get(session).cloned().unwrap_or_default();
        self.sessions.keys().map(|session| (*session, of(session))).collect()
    }

    pub fn begin(&mut self, origin: ReplyAddress) -> Begin {
        let Some(slots) = self.sessions.get_mut(&origin.session) else {
            return Begin::Refused(Fault::Expired);
        };
        if origin.slot >= self.slots_max {
            return Begin::Refused(Fault::Invalid);
        }
        let slot = slots.entry(origin.slot).or_insert(Slot { request: 0, last: Last::Repeatable });
        if origin.request < slot.request {
            return Begin::Refused(Fault::Invalid);
        }
        if origin.request == slot.request {
            match &slot.last {
                Last::Running => return Begin::Running,
                Last::Replied(result) => return Begin::Replied(result.clone()),
                Last::Recorded(reply) => return Begin::Recorded(reply.clone()),
                Last::Repeatable => {}
            }
        }
        *slot = Slot { request: origin.request, last: Last::Running };
        Begin::Execute
    }

    /// Marks the request as done. False: the session is over.
    pub fn finish(
        &mut self,
        origin: ReplyAddress,
        remember: Option<Result<Answer, Fault>>,
    ) -> bool {
        let Some(slots) = self.sessions.get_mut(&origin.session) else { return false };
        let Some(slot) = slots.get_mut(&origin.slot) else { return false };
        debug_assert!(origin.request <= slot.request, "EO-1: {origin:?} ends, and never began");
        if slot.request == origin.request && matches!(slot.last, Last::Running) {
            slot.last = remember.map_or(Last::Repeatable, |reply| Last::Replied(Box::new(reply)));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use types::posix::new_status;
    use types::{AuthLevel, Fid, Kind, OpenId, RequestIdentity, Timestamp};

    use super::*;

    fn at(slot: u32, request: u64) -> ReplyAddress {
        ReplyAddress { session: SessionId(1), slot, request }
    }

    fn table() -> SlotTable {
        let mut table = SlotTable::new(4);
        table.add_session(SessionId(1), ClientId(7));
        table
    }

    #[test]
    fn a_change_is_answered_again_and_a_question_asked_again() {
        let mut table = table();
        assert!(matches!(table.begin(at(0, 1)), Begin::Execute));
        assert!(matches!(table.begin(at(0, 1)), Begin::Running));
        assert!(table.finish(at(0, 1), Some(Ok(Answer::Done))));
        assert!(
            matches!(table.begin(at(0, 1)), Begin::Replied(reply) if *reply == Ok(Answer::Done))
        );
        assert!(matches!(table.begin(at(0, 2)), Begin::Execute));
        assert!(table.finish(at(0, 2), None));
        assert!(matches!(table.begin(at(0, 2)), Begin::Execute));
        assert!(matches!(table.begin(at(0, 1)), Begin::Refused(Fault::Invalid)));
    }

    #[test]
    fn a_late_finish_does_not_touch_the_next_request() {
        let mut table = table();
        assert!(matches!(table.begin(at(0, 1)), Begin::Execute));
        assert!(matches!(table.begin(at(0, 2)), Begin::Execute));
        table.finish(at(0, 1), Some(Err(Fault::Cancelled)));
        assert!(matches!(table.begin(at(0, 2)), Begin::Running));
    }

    #[test]
    fn sb5_a_volume_has_the_sessions_of_an_earlier_instance() {
        let (mut table, volume) = (table(), VolumeId(7));
        table.add_session(SessionId(2), ClientId(8));
        table.add_record(at(0, 3), Bytes::from_static(b"reply"));
        // A question takes the place of the only record.
        assert!(matches!(table.begin(at(0, 4)), Begin::Execute));
        assert!(table.finish(at(0, 4), None));
        let known = table.of_volume(volume, |_| unreachable!("no reply is encoded"));
        assert_eq!(known, [(at(0, 4), Bytes::new())], "its client made the third request");
        table.remove_session(SessionId(1));
        let known = table.of_volume(volume, |_| unreachable!("no reply is encoded"));
        assert_eq!(known, [(at(0, 4), Bytes::new())], "its client may not know that it is over");
        assert_eq!(table.client_of(SessionId(1)), Some(ClientId(7)));

        let many = |table: &mut SlotTable, first: u64, caller: &Caller| {
            for number in first..first + ENDED_MAX as u64 {
                table.add_session(SessionId(number), ClientId(9));
                table.note(SessionId(number), caller);
                table.note_change(SessionId(number), VolumeId(8));
                table.remove_session(SessionId(number));
            }
        };
        let who = RequestIdentity { level: AuthLevel::Nobody, ..RequestIdentity::NAMED };
        many(&mut table, 10_000, &Caller { who, ..Caller::ROOT });
        assert_eq!(table.client_of(SessionId(1)), Some(ClientId(7)), "strangers end no memory");
        assert_eq!(table.client_of(SessionId(10_000)), None);
        many(&mut table, 20_000, &Caller::ROOT);
        assert_eq!(table.client_of(SessionId(1)), None, "many have ended since");
        assert!(table.of_volume(volume, |_| Vec::new()).is_empty());
        assert_eq!(table.client_of(SessionId(20_000)), Some(ClientId(9)));
    }

    #[test]
    fn sb5_an_open_is_answered_again_here_and_nowhere_else() {
        let (mut table, volume) = (table(), VolumeId(7));
        table.note_change(SessionId(1), volume);
        let status = new_status(Fid::new(7, 2, 1), Kind::File, 0, (0, 0), Timestamp::default());
        let made = Answer::Opened { open: OpenId(5), status };
        for (request, answer) in [(1, Answer::Done), (2, made.clone())] {
            assert!(matches!(table.begin(at(0, request)), Begin::Execute));
            assert!(table.finish(at(0, request), Some(Ok(answer))));
        }
        assert!(matches!(table.begin(at(0, 2)), Begin::Replied(reply) if *reply == Ok(made)));
        // A standby that takes over does not have the open, so the client opens there anew.
        let known = table.of_volume(volume, |_| unreachable!("no such reply is encoded"));
        assert_eq!(known, [(at(0, 1), Bytes::new())]);
    }

    #[test]
    fn there_are_so_many_slots_and_no_more() {
        assert!(matches!(table().begin(at(4, 1)), Begin::Refused(Fault::Invalid)));
    }

    #[test]
    fn an_ended_session_has_no_slots() {
        let mut table = table();
        assert!(matches!(table.begin(at(0, 1)), Begin::Execute));
        table.remove_session(SessionId(1));
        assert!(!table.finish(at(0, 1), None));
        assert!(matches!(table.begin(at(0, 2)), Begin::Refused(Fault::Expired)));
    }
}
