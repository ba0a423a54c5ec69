//! Sessions at servers: their users, calls and answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use celldb::CellDb;
use types::{
    Answer, Call, Caller, ClientId, Fault, Finish, Name, ReplyAddress, SessionId, Time, VolumeCall,
    VolumeId, VolumeInfo, VolumeKind,
};
use vice::{Effect, Execution};

use super::reference::{Reference, Sealed, came, difference, image, shown};
use super::world::World;
use crate::server::wall;

/// The user of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionUser {
    /// The leader of an operation.
    Leader(u64),
    /// A client that reads and writes.
    Client(usize),
    /// A pull: server, life of the server, task.
    Puller(usize, u64, u64),
}

/// The sessions of one user.
pub(super) struct SessionPeer {
    client: ClientId,
    incarnation: u64,
    pub(super) seats: BTreeMap<usize, SimSeat>,
}

/// A session at a server.
#[derive(Clone, Copy)]
pub(super) struct SimSeat {
    pub(super) session: SessionId,
    request: u64,
}

impl World {
    /// A user appears and may have sessions from now on.
    pub fn enter(&mut self, who: SessionUser) {
        let client = match who {
            SessionUser::Leader(number) => ClientId(1 << 64 | u128::from(number)),
            SessionUser::Client(number) => ClientId(2 << 64 | number as u128),
            SessionUser::Puller(server, life, task) => ClientId(
                3 << 64 | (server as u128) << 48 | u128::from(life) << 24 | u128::from(task),
            ),
        };
        self.peers.entry(who).or_insert_with(|| SessionPeer {
            client,
            incarnation: 0,
            seats: BTreeMap::new(),
        });
    }

    /// A user leaves, and detaches its sessions if `with_a_word`.
    pub fn leave(&mut self, who: SessionUser, with_a_word: bool) {
        let Some(peer) = self.peers.remove(&who) else { return };
        for (no, seat) in peer.seats {
            if let (Some((vice, now)), true) = (self.service(no), with_a_word) {
                let mut effects = Vec::new();
                vice.detach(now, seat.session, &mut effects);
                self.deliver(no, effects);
            }
        }
    }

    pub(super) fn resume(&mut self, who: SessionUser, no: usize) {
        let (Some((vice, now)), Some(peer)) = (self.service(no), self.peers.get_mut(&who)) else {
            return;
        };
        let Some(seat) = peer.seats.get_mut(&no) else { return };
        let mut effects = Vec::new();
        let (client, incarnation, session) = (peer.client, peer.incarnation, seat.session);
        match vice.resume(now, session, client, incarnation, &mut effects) {
            Ok(_) => {
                seat.request += 1;
                let origin = ReplyAddress { session, slot: 1, request: seat.request };
                vice.perform(
                    Execution::new(now, wall(self.now), &Caller::ROOT, origin),
                    Call::ReclaimDone,
                    &mut effects,
                );
            }
            Err(_) => drop(peer.seats.remove(&no)),
        }
        self.deliver(no, effects);
    }

    /// Sends a call to a server that is up; returns the address of the reply, which may come later.
    ///
    /// # Errors
    /// The reason for which there is no session.
    pub fn put(&mut self, who: SessionUser, no: usize, call: &Call) -> Result<ReplyAddress, Fault> {
        self.enter(who);
        let (vice, now) = self.service(no).ok_or(Fault::Expired)?;
        let mut effects = Vec::new();
        let peer = self.peers.get_mut(&who).expect("it has just entered");
        let seat = match peer.seats.get_mut(&no) {
            Some(seat) => seat,
            None => {
                peer.incarnation += 1;
                let attached = vice.attach(now, peer.client, peer.incarnation, &mut effects)?;
                peer.seats.entry(no).or_insert(SimSeat { session: attached.session, request: 0 })
            }
        };
        seat.request += 1;
        let origin = ReplyAddress { session: seat.session, slot: 0, request: seat.request };
        self.deliver(no, effects);
        self.perform(no, origin, call.clone());
        Ok(origin)
    }

    pub(super) fn perform(&mut self, no: usize, origin: ReplyAddress, call: Call) {
        let Some((vice, now)) = self.service(no) else { return };
        self.calls += 1;
        let mut effects = Vec::new();
        let over = match &call {
            Call::Volume(VolumeCall::Finish { tree, finish: Finish::Over { .. }, .. }) => {
                Some(*tree)
            }
            _ => None,
        };
        vice.perform(
            Execution::new(now, wall(self.now), &Caller::ROOT, origin),
            call,
            &mut effects,
        );
        if let Some(group) = over.and_then(|tree| self.database.group_of(tree).ok().flatten()) {
            self.half_over.insert((no, group.record.read_write), group.record.name);
        }
        self.deliver(no, effects);
    }

    /// A restore over a volume takes effect at one moment, perhaps long after its call: a server
    /// that has just started lets calls wait. From then on the model must have the restored
    /// contents.
    pub(super) fn note_half_over(&mut self, no: usize) {
        let here = self.half_over.iter().filter(|((at, _), _)| *at == no);
        let here: Vec<_> = here.map(|((_, tree), name)| (*tree, name.clone())).collect();
        for (tree, name) in here {
            if self.note_over(no, tree, &name) {
                self.half_over.remove(&(no, tree));
            }
        }
    }

    /// Returns whether the volume shows restored contents. `name`: that of its group when the
    /// restore was finished.
    fn note_over(&mut self, no: usize, tree: VolumeId, name: &Name) -> bool {
        let found = self
            .partitions(no)
            .iter()
            .find_map(|partition| partition.volumes().volume(tree).ok().flatten());
        let Some(found) = found.and_then(|volume| shown(&volume).ok()) else { return false };
        let candidates = self.coming.get(name).cloned().unwrap_or_default();
        let held = |one: &Arc<Sealed>| came(&one.tree.as_volume(name.clone(), tree), &found);
        let new = candidates.iter().rev().find_map(held);
        let Some(new) = new else { return false };
        self.came_over.insert(tree);
        if self.trees.get(&tree).is_some_and(|reference| image(&reference.tree) != found) {
            self.trees.insert(tree, Reference::new(new));
        }
        true
    }

    /// The user gives its session there up, since the outcome of its last call is unknown.
    pub fn forget_seat(&mut self, who: SessionUser, no: usize) {
        if let Some(peer) = self.peers.get_mut(&who) {
            peer.seats.remove(&no);
        }
    }

    /// Returns whether `who` still has this session.
    pub fn has_seat(&self, who: SessionUser, no: usize, session: SessionId) -> bool {
        self.peers
            .get(&who)
            .and_then(|peer| peer.seats.get(&no))
            .is_some_and(|seat| seat.session == session)
    }

    /// Takes the reply, if it has arrived.
    pub fn reply(&mut self, no: usize, origin: ReplyAddress) -> Option<Result<Answer, Fault>> {
        self.replies.remove(&(no, origin))
    }

    /// If the call waits, it seals the volume's contents at the time of its answer.
    pub fn seals_later(&mut self, no: usize, origin: ReplyAddress, of: VolumeId) {
        if !self.replies.contains_key(&(no, origin)) && self.houses[no].up.is_some() {
            self.sealing.insert((no, origin), of);
        }
    }

    /// A call that waited has sealed a volume. Calls beside it are answered in another order, so
    /// the epoch shows one of the states since the last `before`.
    fn note_late_seal(&mut self, no: usize, of: VolumeId, sealed: &VolumeInfo, before: usize) {
        // A twin on another partition may have the same number.
        let at =
            |partition: &store::Partition| partition.volumes().volume(sealed.id).ok().flatten();
        let found = self.partitions(no).get(sealed.partition.0 as usize).and_then(at);
        let found = found.and_then(|volume| shown(&volume).ok());
        let (Some(reference), Some(found)) = (self.trees.get_mut(&of), found) else { return };
        let moment =
            |tree: &model::ModelTree| Some(Sealed::of(tree)).filter(|moment| moment.image == found);
        let earlier = || reference.unsynced[before..].iter().rev().find_map(moment);
        let shows = moment(&reference.tree).or_else(earlier);
        match shows {
            Some(moment) if sealed.kind == VolumeKind::ReadWrite => {
                self.coming.entry(sealed.name.clone()).or_default().push(moment);
            }
            Some(moment) => drop(self.sealed.insert((of, sealed.epoch), moment)),
            None => {
                let why = difference(&found, &image(&reference.tree));
                self.violate(format!(
                    "VO-1: volume {} shows what volume {} never held: {why}",
                    sealed.id.0, of.0
                ));
            }
        }
    }

    /// Lets events happen until the reply has arrived, the server is down, or `until` has passed.
    pub fn wait_for(
        &mut self,
        no: usize,
        origin: ReplyAddress,
        until: Time,
    ) -> Option<Result<Answer, Fault>> {
        loop {
            let reply = self.reply(no, origin);
            if reply.is_some() || self.houses[no].up.is_none() || !self.happens_by(until) {
                return reply;
            }
        }
    }

    /// Carries out a service's effects. Breaks are acknowledged at once.
    pub(super) fn deliver(&mut self, no: usize, effects: Vec<Effect>) {
        if self.muted {
            return;
        }
        self.note_half_over(no);
        let held = |world: &World, of: &VolumeId| {
            world.trees.get(of).map_or(0, |reference| reference.unsynced.len())
        };
        let before: Vec<_> =
            self.sealing.iter().map(|(at, of)| (*at, (*of, held(self, of)))).collect();
        let mut seals = Vec::new();
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Reply { origin, result, .. } => {
                    if let (Some(_), Ok(Answer::Volumes { volumes, .. })) =
                        (self.sealing.remove(&(no, origin)), &result)
                    {
                        seals.push((origin, volumes.first().cloned()));
                    }
                    if let Some((client, tree, call)) = self.waiting.remove(&(no, origin)) {
                        self.client_hears(client, no, tree, &call, result);
                    } else {
                        self.replies.insert((no, origin), result);
                    }
                }
                Effect::Executed { .. } => {}
                Effect::Break { to, id, .. } => {
                    let Some((vice, now)) = self.service(no) else { return };
                    let mut more = Vec::new();
                    vice.ack(now, to, id, &[], &mut more);
                    // Calls that waited for the acknowledgement were done before later ones.
                    more.into_iter().rev().for_each(|effect| effects.push_front(effect));
                }
                Effect::SessionEnded(session) => {
                    for peer in self.peers.values_mut() {
                        if peer.seats.get(&no).is_some_and(|seat| seat.session == session) {
                            peer.seats.remove(&no);
                        }
                    }
                }
            }
        }
        for (origin, sealed) in seals {
            let known = before.iter().find(|(at, _)| *at == (no, origin));
            if let (Some((_, (of, before))), Some(sealed)) = (known, sealed) {
                self.note_late_seal(no, *of, &sealed, *before);
            }
        }
        self.begin_pulls(no);
    }
}
