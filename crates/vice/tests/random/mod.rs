//! Random calls on the service and on the model, and the comparison afterwards.
//!
//! The two number their files differently: `World` stores the pairs, and translates the model's
//! answers before it compares. Not compared: `used` (the model has no medium; instead the sum is
//! compared with the volume's usage), cookies, verifiers, `sole`.

#![allow(dead_code)] // each test program uses its part

pub mod delegating;
mod op;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use guard::Cps;
use model::{Content, ModelTree};
use types::{
    Answer, Call, Caller, Cookie, DirEntry, Fault, Fid, Kind, PrincipalId, RequestIdentity,
    SeekWhat, Status, StatusChange, VolumeCall, VolumeChange, VolumeId, VolumeKind,
};

pub use op::Op;

use crate::common::{Ground, Rig, VOLUME, name};

/// The service and the model.
pub struct World {
    pub rig: Rig,
    pub model: ModelTree,
    /// Files of the model and of the service, in the order in which they were made; removed ones
    /// too.
    pairs: Vec<(Fid, Fid)>,
    ours: BTreeMap<Fid, Fid>,
    clones: Vec<Clone>,
    history: Vec<String>,
    /// How often each kind of call had each result.
    pub outcomes: BTreeMap<String, u64>,
    /// Members of groups, where lists decide.
    members: Option<Arc<Members>>,
}

/// Uid n is principal n, and in some groups.
#[derive(Default)]
pub struct Members(Mutex<BTreeMap<u32, BTreeSet<PrincipalId>>>);

impl Members {
    fn numbers(&self, uid: u32) -> BTreeSet<PrincipalId> {
        let groups = self.0.lock().unwrap().get(&uid).cloned().unwrap_or_default();
        let own = [PrincipalId(uid as i32), PrincipalId::ANYBODY, PrincipalId::PROVED];
        groups.into_iter().chain(own).collect()
    }
}

impl vice::Principals for Members {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let own = PrincipalId(caller.uid as i32);
        Ok(Cps::new(own, caller.who.level, self.numbers(caller.uid)))
    }
}

/// A volume that shows a sealed state.
struct Clone {
    id: VolumeId,
    model: ModelTree,
    pairs: Vec<(Fid, Fid)>,
}

/// Number of clones; at one more the oldest is removed.
const CLONES_MAX: usize = 3;

/// Whether the volume records reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    Recorded,
    /// With delegations: those of a file that another session's delegation covers never are, and
    /// the model knows no delegations.
    NotRecorded,
}

impl World {
    pub fn new(ground: Ground, reads: Reads) -> Self {
        World::on(Rig::new(ground, 2), reads)
    }

    fn on(mut rig: Rig, reads: Reads) -> Self {
        let read_times = Some(reads == Reads::Recorded);
        let change = VolumeChange { read_times, ..VolumeChange::default() };
        let fields = VolumeCall::SetFields { id: rig.root().volume, change };
        assert_eq!(rig.call(0, &Caller::ROOT, Call::Volume(fields)), Ok(Answer::Done));
        let root = rig.root_status();
        let model = ModelTree::new(name(VOLUME), root);
        let pairs = vec![(root.fid, root.fid)];
        World {
            rig,
            model,
            pairs,
            ours: BTreeMap::from([(root.fid, root.fid)]),
            clones: Vec::new(),
            history: Vec::new(),
            outcomes: BTreeMap::new(),
            members: None,
        }
    }

    /// A world where lists decide.
    pub fn with_lists(ground: Ground, reads: Reads) -> Self {
        let members: Arc<Members> = Arc::default();
        let rig = Rig::with_principals(ground, 2, Arc::clone(&members) as _);
        let mut world = World::on(rig, reads);
        world.members = Some(members);
        op::UIDS.into_iter().for_each(|uid| world.tell_model(uid));
        let list = Some(op::everything_to_anybody());
        world.both(
            0,
            &Caller::ROOT,
            &Call::SetAcl { fid: world.model.root(), list, instead_of: None },
        );
        world
    }

    fn tell_model(&mut self, uid: u32) {
        let numbers = self.members.as_ref().unwrap().numbers(uid);
        self.model.set_numbers(uid, numbers);
    }

    /// A user joins a group, or leaves it.
    fn regroup(&mut self, uid: u32, group: PrincipalId) {
        self.history.push(format!("{uid} in {group} or not"));
        let mut all = self.members.as_ref().unwrap().0.lock().unwrap();
        let groups = all.entry(uid).or_default();
        if !groups.remove(&group) {
            groups.insert(group);
        }
        drop(all);
        self.tell_model(uid);
    }

    /// Restarts the service, without its clients.
    fn restart_service(&mut self) {
        self.history.push("restart".to_owned());
        self.rig.restart();
        self.model.restart();
    }

    /// One random call on both.
    pub fn step(&mut self, op: &Op) {
        if self.members.is_some()
            && let Some((uid, group)) = op.regroups()
        {
            return self.regroup(uid, group);
        }
        let (who, caller, call) = self.resolved(op);
        let shown = if op.hides_groups() {
            Caller { groups: None, ..caller.clone() }
        } else {
            caller.clone()
        };
        self.both_shown(who, &caller, &shown, &call);
    }

    /// Client, caller and call of an operation.
    fn resolved(&self, op: &Op) -> (usize, Caller, Call) {
        if self.members.is_none() {
            return op.resolve(&self.pairs);
        }
        let (who, caller, call) =
            op.about_lists(&self.pairs).unwrap_or_else(|| op.resolve(&self.pairs));
        // Where lists decide the model knows callers by uid alone.
        (who, Caller { who: RequestIdentity::NAMED, ..caller }, call)
    }

    fn both(&mut self, who: usize, caller: &Caller, call: &Call) {
        self.both_shown(who, caller, caller, call);
    }

    fn both_shown(&mut self, who: usize, caller: &Caller, shown: &Caller, call: &Call) {
        self.history.push(format!("{who} {caller:?} {call:?}"));
        let ours = self.translate_call(call);
        let session = self.rig.clients[who].session;
        // As a client does: without the groups first, and with them on demand.
        let mut found = self.rig.call(who, shown, ours.clone());
        if found == Err(Fault::GroupsNeeded) {
            assert!(shown.groups.is_none(), "{call:?}: groups needed although they were shown");
            found = self.rig.call(who, caller, ours);
        }
        let wall = self.rig.clock();
        let expected = self.model.apply(session, wall, caller, call);
        let kind = format!("{call:?}");
        let kind = kind.split(' ').next().unwrap_or_default();
        let came_to = found.as_ref().err().map_or("Ok".to_owned(), |fault| format!("{fault:?}"));
        *self.outcomes.entry(format!("{kind} {came_to}")).or_default() += 1;
        self.record(&expected, &found);
        self.compare(call, &expected, &found);
        self.follow_holds(who, call, &found);
    }

    /// Records the numbers of a new file on either side.
    fn record(&mut self, expected: &Result<Answer, Fault>, found: &Result<Answer, Fault>) {
        if let (Ok(expected), Ok(found)) = (expected, found)
            && let (Some(theirs), Some(ours)) = (expected.current(), found.current())
            && !self.ours.contains_key(&theirs)
        {
            self.pairs.push((theirs, ours));
            self.ours.insert(theirs, ours);
        }
    }

    /// Records the client's open files, to reclaim them after a restart.
    fn follow_holds(&mut self, who: usize, call: &Call, found: &Result<Answer, Fault>) {
        let Ok(found) = found else { return };
        let open = &mut self.rig.clients[who].open;
        let fids = |fids: &[Fid]| -> Vec<Fid> { fids.iter().map(|fid| self.ours[fid]).collect() };
        match (call, found) {
            (Call::Hold { fids: held }, _) => open.extend(fids(held)),
            (Call::Unhold { fids: held }, _) => fids(held).iter().for_each(|fid| {
                open.remove(fid);
            }),
            (Call::MakeUnnamed { .. }, Answer::Status(status)) => {
                open.insert(status.fid);
            }
            (Call::SetStatus { change, .. }, Answer::Status(status))
                if change.hold && status.kind == Kind::File && is_something(change) =>
            {
                open.insert(status.fid);
            }
            (Call::Remove { hold: true, .. }, Answer::Removed { status, .. })
                if status.links == 0 =>
            {
                open.insert(status.fid);
            }
            (Call::Rename { hold: true, .. }, Answer::Renamed { other: Some(status), .. })
                if status.links == 0 =>
            {
                open.insert(status.fid);
            }
            _ => {}
        }
    }

    fn translate_call(&self, call: &Call) -> Call {
        let mut call = call.clone();
        for fid in call.fids_mut() {
            *fid = self.ours[fid];
        }
        call
    }

    fn fail(&self, what: &str) -> ! {
        let shown =
            self.history.iter().rev().take(12).rev().cloned().collect::<Vec<_>>().join("\n");
        panic!("{what}\nafter {} calls, the last of them:\n{shown}", self.history.len());
    }

    fn compare(
        &mut self,
        call: &Call,
        expected: &Result<Answer, Fault>,
        found: &Result<Answer, Fault>,
    ) {
        match (call, expected, found) {
            (Call::Seek { .. }, Err(Fault::AccessDenied), Err(Fault::AccessDenied)) => {}
            (Call::Seek { fid, offset, what }, ..) => {
                self.compare_seek(*fid, *offset, *what, found);
            }
            (Call::ReadDir { dir, .. }, Ok(expected), Ok(_)) => {
                self.compare_listing(*dir, expected);
            }
            (_, Ok(expected), Ok(found)) => {
                let expected = self.translate(expected);
                if expected != plain(found) {
                    self.fail(&format!(
                        "answers differ\n expected {expected:?}\n found    {:?}",
                        plain(found)
                    ));
                }
            }
            (_, expected, found) if expected.as_ref().err() == found.as_ref().err() => {}
            (_, expected, found) => self.fail(&format!("expected {expected:?}\nfound {found:?}")),
        }
    }

    fn translate(&self, answer: &Answer) -> Answer {
        let mut answer = plain(answer);
        each_status(&mut answer, |status| status.fid = self.ours[&status.fid]);
        if let Answer::Acl { of, .. } | Answer::Rights { of, .. } = &mut answer {
            *of = self.ours[of];
        }
        answer
    }

    /// Zeros may be data or a hole; other bytes are data.
    fn compare_seek(&self, fid: Fid, offset: u64, what: SeekWhat, found: &Result<Answer, Fault>) {
        let body = match self.model.nodes().get(&fid).map(|node| &node.content) {
            Some(Content::File(body)) => body,
            Some(Content::Directory(_)) => return assert_eq!(*found, Err(Fault::IsDirectory)),
            Some(_) => return assert_eq!(*found, Err(Fault::Invalid)),
            None => return assert_eq!(*found, Err(Fault::Stale)),
        };
        let data = body.next_nonzero(offset);
        let fits = match (what, found) {
            (_, Err(Fault::NothingThere)) if offset >= body.size() => true,
            (SeekWhat::Data, Err(Fault::NothingThere)) => data.is_none(),
            (SeekWhat::Data, Ok(Answer::Offset(at))) => {
                (offset..body.size()).contains(at) && data.is_none_or(|data| *at <= data)
            }
            (SeekWhat::Hole, Ok(Answer::Offset(at))) => {
                offset < body.size()
                    && *at >= offset
                    && (*at == body.size()
                        || (*at < body.size() && body.next_nonzero(*at) != Some(*at)))
            }
            _ => false,
        };
        if !fits {
            self.fail(&format!(
                "seek {what:?} from {offset}: found {found:?}, data at {data:?}, size {}",
                body.size()
            ));
        }
    }

    /// All of a directory, in pages with a few entries.
    fn listing(&mut self, dir: Fid, bytes_max: u32) -> Vec<DirEntry> {
        let (mut all, mut cookie) = (Vec::new(), Cookie::START);
        loop {
            let call = Call::ReadDir { dir, cookie, bytes_max, plus: true };
            let Ok(Answer::Entries { entries, end, .. }) = self.rig.call(0, &Caller::ROOT, call)
            else {
                self.fail("a listing broke off")
            };
            for entry in entries {
                if entry.cookie <= cookie {
                    self.fail("cookies do not rise");
                }
                cookie = entry.cookie;
                all.push(entry);
            }
            if end {
                return all;
            }
        }
    }

    fn compare_listing(&mut self, dir: Fid, expected: &Answer) {
        let Answer::Entries { entries, dir_version, .. } = expected else {
            self.fail("no listing expected")
        };
        let ours = self.ours[&dir];
        let found = self.listing(ours, 900);
        let names: BTreeMap<_, _> =
            found.iter().map(|entry| (entry.name.clone(), (entry.fid, entry.kind))).collect();
        let Content::Directory(wanted) = &self.model.nodes()[&dir].content else {
            self.fail("no directory expected")
        };
        let entry = |fid: &Fid| (self.ours[fid], self.model.nodes()[fid].status.kind);
        let wanted: BTreeMap<_, _> =
            wanted.iter().map(|(name, fid)| (name.clone(), entry(fid))).collect();
        if names.len() != found.len() || names != wanted || entries.len() > wanted.len() {
            self.fail(&format!("listings differ\n expected {wanted:?}\n found    {names:?}"));
        }
        assert_eq!(*dir_version, self.model.nodes()[&dir].status.data_version);
    }

    /// Compares every file, its bytes, entries and attributes, and the usage of the volume.
    pub fn compare_all(&mut self) {
        let pairs = self.pairs.clone();
        let used = self.compare_files(&pairs);
        let usage = self.rig.usage();
        assert_eq!(usage.used_bytes, used, "ST-2: bytes in use");
        assert_eq!(usage.used_files, self.model.nodes().len() as u64, "ST-2: files in use");
    }

    /// Compares each file of the model and of the service; returns the bytes that all of them use.
    fn compare_files(&mut self, pairs: &[(Fid, Fid)]) -> u64 {
        let mut used = 0;
        for (model, ours) in pairs.iter().copied() {
            let found = self.rig.status(1, ours);
            let Some(node) = self.model.nodes().get(&model).cloned() else {
                if found != Err(Fault::Stale) {
                    self.fail(&format!("{ours} is gone, but found {found:?}"));
                }
                continue;
            };
            let Ok(found) = found else { self.fail(&format!("{ours}: {found:?}")) };
            used += found.used;
            let expected = Status { fid: ours, ..node.status };
            if (Status { used: 0, ..found }) != expected {
                self.fail(&format!("status differs\n expected {expected:?}\n found    {found:?}"));
            }
            self.compare_content(model, ours, &node);
        }
        used
    }

    fn compare_content(&mut self, model: Fid, ours: Fid, node: &model::ModelNode) {
        match &node.content {
            Content::File(body) => {
                for at in op::windows(body.size()) {
                    let read = Call::Read { fid: ours, offset: at, length: op::WINDOW };
                    let Ok(Answer::Data { data, .. }) = self.rig.call(1, &Caller::ROOT, read)
                    else {
                        self.fail("cannot read")
                    };
                    if data[..] != body.read(at, u64::from(op::WINDOW))[..] {
                        self.fail(&format!("bytes of {ours} from {at} on differ"));
                    }
                }
            }
            Content::Directory(_) => {
                let expected = Answer::Entries {
                    entries: Vec::new(),
                    end: true,
                    dir_version: node.status.data_version,
                };
                self.compare_listing(model, &expected);
            }
            Content::Target(target) => {
                let found = self.rig.call(1, &Caller::ROOT, Call::ReadLink { fid: ours });
                assert_eq!(found, Ok(Answer::Target(target.clone())));
            }
            Content::Nothing => {}
        }
        for (name, value) in &node.xattrs {
            let found =
                self.rig.call(1, &Caller::ROOT, Call::XattrGet { fid: ours, name: name.clone() });
            assert_eq!(found, Ok(Answer::Xattr(value.clone())));
        }
        let names = Answer::XattrNames(node.xattrs.keys().cloned().collect());
        assert_eq!(self.rig.call(1, &Caller::ROOT, Call::XattrList { fid: ours }), Ok(names));
    }

    /// Seals the present state.
    pub fn clone_volume(&mut self) {
        let of = self.model.root().volume;
        let called = format!("clone.{}", self.history.len());
        self.history.push(called.clone());
        let call = VolumeCall::Clone {
            id: None,
            of,
            name: name(&called),
            kind: VolumeKind::Snapshot,
            replace: false,
        };
        let Ok(Answer::Volumes { volumes, .. }) =
            self.rig.call(0, &Caller::ROOT, Call::Volume(call))
        else {
            self.fail("not cloned")
        };
        let mut model = self.model.clone();
        // It shows a sealed state.
        model.set_read_times(false);
        self.clones.push(Clone { id: volumes[0].id, model, pairs: self.pairs.clone() });
        if self.clones.len() > CLONES_MAX {
            let id = self.clones.remove(0).id;
            let removed = self.rig.call(0, &Caller::ROOT, Call::Volume(VolumeCall::Remove { id }));
            assert_eq!(removed, Ok(Answer::Done));
        }
    }

    /// VO-1: every clone shows the whole sealed state.
    pub fn compare_clones(&mut self) {
        for clone in std::mem::take(&mut self.clones) {
            let there = |(model, ours): &(Fid, Fid)| (*model, Fid { volume: clone.id, ..*ours });
            let pairs: Vec<(Fid, Fid)> = clone.pairs.iter().map(there).collect();
            let head = std::mem::replace(&mut self.ours, pairs.iter().copied().collect());
            let model = std::mem::replace(&mut self.model, clone.model);
            self.history.push(format!("in {}", clone.id.0));
            self.compare_files(&pairs);
            self.history.pop();
            self.ours = head;
            let model = std::mem::replace(&mut self.model, model);
            self.clones.push(Clone { model, ..clone });
        }
    }

    /// The server restarts, and the clients reclaim their open files.
    pub fn restart(&mut self) {
        self.restart_service();
        (0..self.rig.clients.len()).for_each(|who| self.rig.reclaim(who));
    }
}

fn is_something(change: &StatusChange) -> bool {
    StatusChange { through_handle: false, hold: false, ..*change } != StatusChange::default()
}

/// The answer without the parts that the model does not have.
fn plain(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    each_status(&mut answer, |status| status.used = 0);
    match &mut answer {
        Answer::Written { verifier, .. } | Answer::Committed { verifier } => {
            *verifier = Default::default();
        }
        Answer::Entry { sole, .. } => *sole = false,
        Answer::Volume(volume) => {
            *volume = types::VolumeStatus { used_files: volume.used_files, ..Default::default() };
        }
        _ => {}
    }
    answer
}

fn each_status(answer: &mut Answer, mut change: impl FnMut(&mut Status)) {
    match answer {
        Answer::Status(status)
        | Answer::Entry { status, .. }
        | Answer::Data { status, .. }
        | Answer::Written { status, .. }
        | Answer::Body { status } => change(status),
        Answer::Made { status, dir, .. } | Answer::Removed { status, dir } => {
            [status, dir].into_iter().for_each(change);
        }
        Answer::Renamed { status, other, from_dir, to_dir } => {
            [status, from_dir, to_dir].into_iter().chain(other).for_each(change);
        }
        _ => {}
    }
}
