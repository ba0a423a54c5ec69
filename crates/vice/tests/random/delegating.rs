//! Several clients with delegations beside one model: a change that a client answers itself is made
//! in the model at that moment, and on the service when the client sends it; every call that the
//! service answers must see all that any client has answered before (DE-1, DE-2), and the service
//! must answer a delegated change as the client did (DE-5).
//!
//! The clients know their delegations by the rules of `docs/spec/delegation.md` alone, from answers
//! and their own calls. They read names and files from the model: no other client can have changed
//! what they cover.

use std::collections::{BTreeMap, BTreeSet};

use model::Content;
use types::{Answer, BreakReason, Call, Caller, Fault, Fid, Name, NewKind, Timestamp, VnodeSlots};

use super::{Op, World, each_status, plain};

/// Files that one client covers, in the service's numbers.
#[derive(Default)]
pub struct Delegated {
    pub dirs: BTreeSet<Fid>,
    /// Files, and the directory that each belongs to.
    pub children: BTreeMap<Fid, Fid>,
    slots: VnodeSlots,
    /// Changes that it has answered and not sent: the caller, the call, and the answer.
    pub journal: Vec<(Caller, Call, Answer)>,
    recalled: BTreeSet<Fid>,
}

/// A world whose clients use delegations.
pub struct Delegating {
    pub world: World,
    pub clients: Vec<Delegated>,
    /// Requests of the journal are in slot 1, so that they go out while slot 0 waits.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Delegating {
    pub fn new(mut world: World) -> Self {
        let third = world.rig.attach();
        let clients = (0..=third).map(|_| Delegated::default()).collect();
        Delegating { world, clients, counts: BTreeMap::new() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn step(&mut self, op: &Op) {
        let [what, _, _, _, other, _, more, flags] = op.0;
        if let Some((uid, group)) = self.world.members.as_ref().and_then(|_| op.regroups()) {
            // Unsent changes may be refused afterwards: no recall comes before a user leaves a
            // group.
            (0..self.clients.len()).for_each(|who| self.send(who));
            return self.world.regroup(uid, group);
        }
        let (who, caller, call) = self.world.resolved(op);
        let who = if other % 8 == 7 { 2 } else { who };
        let ours = self.world.translate_call(&call);
        // Mostly the client with the delegation acts.
        let owner =
            ours.clone().fids_mut().iter().find_map(|fid| (0..3).find(|who| self.has(*who, **fid)));
        let who = owner.filter(|_| other / 8 % 8 < 7).unwrap_or(who);
        match what / 64 % 16 {
            0..=7 => self.delegate(who, &ours),
            8 if flags % 16 == 0 => self.give_all_back(who),
            9 if more % 64 == 0 => self.restart(),
            _ => {}
        }
        // Time advances, so that quiet directories become available again.
        self.world.rig.now = self.world.rig.now + std::time::Duration::from_millis(1500);
        if self.is_unknown_to(who, &ours) {
            return;
        }
        self.world.history.push(format!("{who} {caller:?} {call:?}"));
        if self.is_local(who, &ours) && self.answer(who, &caller, &call) {
            self.count("answered by the client");
        } else {
            self.ask(who, &caller, &call);
            self.count("answered by the service");
        }
        if other % 16 == 1 {
            self.send(who);
        }
    }

    // Decisions of a client.

    fn has(&self, who: usize, fid: Fid) -> bool {
        self.clients[who].dirs.contains(&fid) || self.clients[who].children.contains_key(&fid)
    }

    /// Whether the client cannot know a file: another has made it and not sent it. A claim that a
    /// file is open does not prevent its removal by the session that covers it, since it only keeps
    /// the file longer: the model has no such state.
    fn is_unknown_to(&self, who: usize, call: &Call) -> bool {
        let mut call = call.clone();
        let claims = matches!(call, Call::Hold { .. });
        let fids: Vec<Fid> = call.fids_mut().into_iter().map(|fid| *fid).collect();
        let others = (0..self.clients.len()).filter(|other| *other != who);
        let unknown = |other: usize, fid: &Fid| {
            let made = |(_, _, answer): &(Caller, Call, Answer)| match answer {
                Answer::Made { status, existed: false, .. } => status.fid == *fid,
                _ => false,
            };
            self.clients[other].journal.iter().any(made) || (claims && self.has(other, *fid))
        };
        others.into_iter().any(|other| fids.iter().any(|fid| unknown(other, fid)))
    }

    fn theirs(&self, ours: Fid) -> Option<Fid> {
        self.world.pairs.iter().find(|(_, known)| *known == ours).map(|(theirs, _)| *theirs)
    }

    /// The fid of a name now, in the service's numbers.
    fn named(&self, dir: Fid, name: &Name) -> Option<Fid> {
        match &self.world.model.nodes().get(&self.theirs(dir)?)?.content {
            Content::Directory(entries) => entries.get(name).map(|fid| self.world.ours[fid]),
            _ => None,
        }
    }

    fn is_local(&self, who: usize, call: &Call) -> bool {
        let dirs = &self.clients[who].dirs;
        let all = |fids: &[Option<Fid>]| fids.iter().flatten().all(|fid| self.has(who, *fid));
        match call {
            Call::Make { dir, name, .. } => dirs.contains(dir) && self.named(*dir, name).is_none(),
            Call::Remove { dir, name, .. } => dirs.contains(dir) && all(&[self.named(*dir, name)]),
            Call::Link { fid, dir, .. } => dirs.contains(dir) && self.has(who, *fid),
            Call::Rename { from_dir, from, to_dir, to, .. } => {
                let found = [self.named(*from_dir, from), self.named(*to_dir, to)];
                let directory = found.iter().flatten().any(|fid| fid.vnode.is_directory());
                let across = from_dir != to_dir;
                dirs.contains(from_dir)
                    && dirs.contains(to_dir)
                    && all(&found)
                    && !(across && directory)
            }
            Call::SetStatus { fid, .. } | Call::Write { fid, .. } => self.has(who, *fid),
            Call::XattrSet { fid, .. } | Call::XattrRemove { fid, .. } => self.has(who, *fid),
            _ => false,
        }
    }

    // Actions of a client.

    /// Answers the call without the service, unless it is refused: then the service must refuse it.
    fn answer(&mut self, who: usize, caller: &Caller, call: &Call) -> bool {
        let world = &mut self.world;
        let session = world.rig.clients[who].session;
        world.rig.wall += 1;
        let at = world.rig.clock();
        let Ok(expected) = world.model.apply(session, at, caller, call) else { return false };
        let mut slot = 0;
        let client = &mut self.clients[who];
        if let (Call::Make { kind, .. }, Answer::Made { status, .. }) = (call, &expected) {
            let directory = *kind == NewKind::Directory;
            slot = client.slots.take().unwrap();
            let ours = client.slots.fid(status.fid.volume, slot, directory);
            world.pairs.push((status.fid, ours));
            world.ours.insert(status.fid, ours);
            if directory {
                client.dirs.insert(ours);
            } else {
                let Call::Make { dir, .. } = call else { unreachable!() };
                client.children.insert(ours, world.ours[dir]);
            }
        }
        let ours = world.translate_call(call);
        let answer = world.translate(&expected);
        world.follow_holds(who, call, &Ok(answer.clone()));
        let call = Call::Delegated { at, slot, call: Box::new(ours) };
        client.journal.push((caller.clone(), call, answer));
        if client.slots.count < 2 {
            let dir = *client.dirs.first().expect("something is delegated");
            self.delegate(who, &Call::GetStatus { fid: dir });
        }
        true
    }

    /// Sends the call to the service, after all that the client has answered before.
    fn ask(&mut self, who: usize, caller: &Caller, call: &Call) {
        self.send(who);
        if let Call::VolumeStatus { .. } = call {
            // Unsent changes of others are not counted: they may still be refused.
            (0..self.clients.len()).for_each(|other| self.send(other));
        }
        let ours = self.world.translate_call(call);
        let (found, wall) = self.ask_patiently(who, caller, &ours);
        let session = self.world.rig.clients[who].session;
        let expected = self.world.model.apply(session, wall, caller, call);
        self.world.record(&expected, &found);
        self.record(who, &ours, &found);
        if let Call::ReadDir { dir, .. } = call {
            self.compare_some(*dir, &expected, &found);
        } else {
            self.world.compare(call, &expected, &found);
        }
        self.world.follow_holds(who, call, &found);
    }

    fn record(&mut self, who: usize, call: &Call, found: &Result<Answer, Fault>) {
        let client = &mut self.clients[who];
        match (call, found) {
            (Call::Lookup { dir, .. }, Ok(Answer::Entry { status, sole: true, .. })) => {
                assert!(client.dirs.contains(dir), "sole in a directory that is not delegated");
                client.children.insert(status.fid, *dir);
            }
            (Call::ReadDir { dir, .. }, Ok(Answer::Entries { entries, .. })) => {
                let sole = entries.iter().filter(|entry| entry.sole);
                client.children.extend(sole.map(|entry| (entry.fid, *dir)));
            }
            (Call::Make { dir, .. }, Ok(Answer::Made { status, existed: false, .. }))
                if client.dirs.contains(dir) =>
            {
                client.children.insert(status.fid, *dir);
            }
            _ => {}
        }
    }

    /// A call that may wait for the delegations of others; returns the time that its files get: the
    /// steady clock stands still meanwhile.
    fn ask_patiently(
        &mut self,
        who: usize,
        caller: &Caller,
        call: &Call,
    ) -> (Result<Answer, Fault>, Timestamp) {
        let origin = self.world.rig.start(who, caller, call.clone());
        let wall = self.world.rig.clock();
        for _ in 0..100 {
            if let Some(reply) = self.world.rig.reply(origin) {
                return (reply, wall);
            }
            self.count("waited for a delegation");
            assert!(self.serve_recalls(Some(who)), "{call:?} waits, and nothing is recalled");
        }
        self.world.fail(&format!("{call:?} waits for ever"))
    }

    /// All clients serve their recalls. Returns whether there were any.
    fn serve_recalls(&mut self, but: Option<usize>) -> bool {
        let mut any = false;
        for who in 0..self.clients.len() {
            let broken = std::mem::take(&mut self.world.rig.clients[who].broken);
            let recalled = broken
                .iter()
                .filter(|item| item.reason == BreakReason::Recall)
                .map(|item| item.fid);
            self.clients[who].recalled.extend(recalled);
            let recalled: Vec<Fid> =
                std::mem::take(&mut self.clients[who].recalled).into_iter().collect();
            if recalled.is_empty() {
                continue;
            }
            assert_ne!(Some(who), but, "no client waits for itself");
            any = true;
            self.give_back(who, recalled);
        }
        any
    }

    fn delegate(&mut self, who: usize, near: &Call) {
        let mut near = near.clone();
        let Some(fid) =
            near.fids_mut().first().map(|fid| **fid).filter(|fid| fid.vnode.is_directory())
        else {
            return;
        };
        match self.world.rig.call_in(who, 2, &Caller::ROOT, Call::Delegate { fid }) {
            Ok(Answer::Delegation { status, slots }) => {
                self.count("delegated");
                let client = &mut self.clients[who];
                client.children.remove(&fid);
                client.dirs.insert(fid);
                client.slots = slots;
                let theirs = self.theirs(fid).unwrap();
                if client_is_in_step(&self.clients[who], fid) {
                    let expected =
                        types::Status { fid, ..self.world.model.nodes()[&theirs].status };
                    assert_eq!(types::Status { used: 0, ..status }, expected);
                }
            }
            Err(Fault::Busy | Fault::NotFound | Fault::Stale) => self.count("not delegated"),
            other => self.world.fail(&format!("delegating {fid}: {other:?}")),
        }
    }

    /// Sends the client's journal.
    pub fn send(&mut self, who: usize) {
        for (caller, call, expected) in std::mem::take(&mut self.clients[who].journal) {
            let found = self.world.rig.call_in(who, 1, &caller, call.clone());
            let plainly = found.as_ref().map(plain);
            if plainly != Ok(expected.clone()) {
                self.world
                    .fail(&format!("DE-5: {call:?}\n said  {expected:?}\n found {plainly:?}"));
            }
            self.count("sent");
        }
    }

    fn give_back(&mut self, who: usize, fids: Vec<Fid>) {
        self.send(who);
        let client = &mut self.clients[who];
        for fid in &fids {
            client.dirs.remove(fid);
            client.children.retain(|_, dir| dir != fid);
        }
        assert_eq!(
            self.world.rig.call_in(who, 1, &Caller::ROOT, Call::Return { fids }),
            Ok(Answer::Done)
        );
        self.count("gave back");
    }

    pub fn give_all_back(&mut self, who: usize) {
        let fids = self.clients[who].dirs.iter().copied().collect();
        self.give_back(who, fids);
    }

    /// The service restarts; the clients send their journals, in any order of clients.
    pub fn restart(&mut self) {
        self.world.restart_service();
        for who in 0..self.clients.len() {
            self.world.rig.clients[who].broken.clear();
            assert!(self.world.rig.resume(who).unwrap().reclaim);
        }
        for who in 0..self.clients.len() {
            let held = self.world.rig.clients[who].open.iter().copied().collect();
            self.send(who);
            self.clients[who] = Delegated::default();
            assert_eq!(
                self.world.rig.call_in(who, 1, &Caller::ROOT, Call::Hold { fids: held }),
                Ok(Answer::Done)
            );
            assert_eq!(
                self.world.rig.call_in(who, 1, &Caller::ROOT, Call::ReclaimDone),
                Ok(Answer::Done)
            );
        }
        self.count("restarted");
    }

    /// A listing may be cut, and omit the status of entries that others cover; the rest must be
    /// right.
    fn compare_some(
        &mut self,
        dir: Fid,
        expected: &Result<Answer, Fault>,
        found: &Result<Answer, Fault>,
    ) {
        let (hidden, entries) = match (expected, found) {
            (
                Ok(Answer::Entries { entries: expected, .. }),
                Ok(Answer::Entries { entries, .. }),
            ) => (expected.iter().any(|entry| entry.fid.is_masked()), entries.clone()),
            (Err(expected), Err(found)) if expected == found => return,
            _ => self.world.fail(&format!("expected {expected:?}\nfound {found:?}")),
        };
        for entry in entries {
            let wanted = self.named(self.world.ours[&dir], &entry.name);
            let wanted = if hidden { wanted.map(Fid::masked) } else { wanted };
            if wanted != Some(entry.fid) {
                self.world.fail(&format!("{entry:?} should be {wanted:?}"));
            }
            let Some(status) = entry.status else { continue };
            let theirs = self.theirs(entry.fid).unwrap();
            let expected =
                types::Status { fid: entry.fid, ..self.world.model.nodes()[&theirs].status };
            if (types::Status { used: 0, ..status }) != expected {
                self.world.fail(&format!("listed\n expected {expected:?}\n found    {status:?}"));
            }
        }
    }

    /// All clients send their journals and return their delegations; then all is compared.
    pub fn compare_all(&mut self) {
        (0..self.clients.len()).for_each(|who| self.give_all_back(who));
        self.world.compare_all();
    }
}

/// Whether the client has sent all its changes of the directory.
fn client_is_in_step(client: &Delegated, dir: Fid) -> bool {
    let concerns = |(_, call, answer): &(Caller, Call, Answer)| {
        let mut shown = false;
        // Only the answer names a directory that is renamed.
        each_status(&mut answer.clone(), |status| shown |= status.fid == dir);
        shown || call.clone().fids_mut().iter().any(|fid| **fid == dir)
    };
    !client.journal.iter().any(concerns)
}
