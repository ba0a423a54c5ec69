//! Read-only volumes of a volume at another server, and one that becomes the read-write volume.

use afs3::errors::{VOLSERBAD_ACCESS, VOLSERBADNAME};
use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{AfsFid, StoreStatus};
use afs3::volumes::{VolserStatus, VolumesAnswer, VolumesCall, volume_type};
use afsfront::{Refusal, Services};
use types::{Call, Fault, Name, VnodeNo, VolumeCall, VolumeId, VolumeKind, VolumeState};

use crate::common::{JOE, Rig, name};
use crate::restores::{BAD_DUMP, assert_same, furnished};
use crate::volumes::{Volser, read, volume_name};

/// The read-write volume, which is at another server, and its replica.
const PARENT: u32 = 700;
const REPLICA: u32 = 701;

impl Volser {
    fn make_replica(&self, named: &str, parent: u32, volume: u32) -> Result<(u32, i32), Refusal> {
        let (name, kind) = (volume_name(named), volume_type::RO);
        match self.ask(VolumesCall::CreateVolume { partition: 0, name, kind, parent, volume })? {
            VolumesAnswer::CreateVolume { volume, transaction } => Ok((volume, transaction)),
            other => panic!("{other:?}"),
        }
    }

    fn volume_status(&self, volume: u32) -> VolserStatus {
        let transaction = self.begin(volume);
        let Ok(VolumesAnswer::GetStatus { status }) =
            self.ask(VolumesCall::GetStatus { transaction })
        else {
            panic!()
        };
        self.end(transaction);
        status
    }

    /// The only volume of the parent's tree is the replica.
    fn has_no_head(&self) -> bool {
        let there = self.examine(REPLICA).unwrap();
        there.iter().all(|one| one.kind == VolumeKind::ReadOnly) && self.examine(PARENT).is_err()
    }
}

/// A volume with some of everything, a dump of it, and a replica of another number that shows it.
fn replicated() -> (Volser, u32, AfsFid, Vec<u8>) {
    let (at, volume, file) = furnished();
    let dump = at.dumped(volume, 0);
    let (made, transaction) = at.make_replica("far.readonly", PARENT, REPLICA).unwrap();
    assert_eq!(made, REPLICA);
    assert_eq!(at.examine(REPLICA).unwrap()[0].state, VolumeState::Offline, "it is empty");
    assert_eq!(at.restore(transaction, &dump), Ok(VolumesAnswer::Restore {}));
    at.serve(transaction);
    (at, volume, file, dump)
}

#[test]
fn a_replica_comes_in_and_changes_follow() {
    let (at, volume, file, dump) = replicated();
    assert!(at.has_no_head());
    let info = &at.examine(REPLICA).unwrap()[0];
    assert_eq!((info.state, info.kind), (VolumeState::Online, VolumeKind::ReadOnly));
    assert_same(read(&dump), read(&at.dumped(REPLICA, 0)));
    assert_eq!(at.walk(REPLICA), 9);
    let status = at.volume_status(REPLICA);
    assert_eq!((status.kind, status.parent), (volume_type::RO, PARENT));
    let listed = at.reports(&at.admin);
    assert!(listed.iter().any(|one| one.volume == REPLICA && one.parent == PARENT));

    // A client has a file of the replica, and cannot write there.
    let joe = at.rig.user(JOE);
    let there = AfsFid { volume: REPLICA, ..file };
    at.rig.fetch(&joe, there, 0, 10).unwrap();
    let dir = AfsFid { volume: REPLICA, vnode: 1, unique: 1 };
    let new = FilesCall::CreateFile { dir, name: name("new"), status: StoreStatus::default() };
    assert_eq!(at.rig.call(&joe, new), Err(Refusal(30)));

    at.rig.pass(5);
    let since = at.admin.now().secs as i32;
    at.rig.store(&joe, file, 100, b"changed").unwrap();
    at.rig.call(&joe, FilesCall::RemoveFile { dir: at.rig.root(), name: name("short") }).unwrap();
    let changes = at.dumped(volume, since);
    let transaction = at.begin(REPLICA);
    assert_eq!(at.restore(transaction, &changes), Ok(VolumesAnswer::Restore {}));
    at.serve(transaction);
    let broken = at.rig.broken(&joe);
    assert!(broken.iter().any(|item| item.fid.volume.0 == u64::from(REPLICA)), "it looks again");
    assert_same(read(&at.dumped(volume, 0)), read(&at.dumped(REPLICA, 0)));
    assert!(at.has_no_head());
}

/// The next dump is of what changed since that time, so nothing later may be told.
#[test]
fn a_replica_is_as_old_as_its_dump() {
    let (at, _, _, dump) = replicated();
    let created = read(&dump).volume.created as i32;
    at.rig.pass(100);
    assert_eq!(at.volume_status(REPLICA).created, created);
    assert_eq!(read(&at.dumped(REPLICA, 0)).volume.created as i32, created);
    for flags in [afs3::volumes::volume_flag::OUT_OF_SERVICE, 0] {
        let transaction = at.begin(REPLICA);
        at.ask(VolumesCall::SetFlags { transaction, flags }).unwrap();
        at.end(transaction);
    }
    assert_eq!(at.volume_status(REPLICA).created, created, "it was out of service meanwhile");
}

#[test]
fn a_broken_dump_leaves_the_replica_as_it_was() {
    let (at, volume, file, dump) = replicated();
    let joe = at.rig.user(JOE);
    at.rig.store(&joe, file, 100, b"changed").unwrap();
    let newer = at.dumped(volume, 0);
    for length in [0, 5, 200, newer.len() / 2, newer.len() - 1] {
        let transaction = at.begin(REPLICA);
        assert_eq!(
            at.restore(transaction, &newer[..length]),
            Err(Refusal(afs3::errors::VOLSERREAD_DUMPERROR)),
            "{length}"
        );
        assert_eq!(at.examine(REPLICA).unwrap()[0].state, VolumeState::Online);
        assert!(at.has_no_head(), "{length}");
        at.end(transaction);
        assert_same(read(&dump), read(&at.dumped(REPLICA, 0)));
    }
    let transaction = at.begin(REPLICA);
    assert_eq!(at.restore(transaction, b"no dump at all, but long enough"), Err(BAD_DUMP));
    // A server that stopped in between leaves this.
    let mut left = loop {
        match at.admin.assemble(VolumeId(REPLICA.into())) {
            Err(Fault::Busy) => at.admin.pause(),
            begun => break begun.unwrap(),
        }
    };
    left.set_entries(VnodeNo(1), Vec::new()).unwrap();
    drop(left);
    assert!(!at.has_no_head());
    let listed = at.reports(&at.admin);
    assert!(listed.iter().all(|one| one.volume != PARENT), "it is no volume of the cell");
    at.restore(transaction, &newer).unwrap();
    at.end(transaction);
    assert_same(read(&newer), read(&at.dumped(REPLICA, 0)));
}

#[test]
fn a_new_replica_goes_with_its_maker() {
    let at = Volser::new(Rig::new());
    let (_, transaction) = at.make_replica("far.readonly", PARENT, REPLICA).unwrap();
    at.rig.pass(700);
    at.ask(VolumesCall::Monitor {}).unwrap();
    assert_eq!(at.ask(VolumesCall::EndTrans { transaction }), Err(Refusal::NOT_FOUND));
    assert!(at.examine(REPLICA).is_err());
    let (_, transaction) = at.make_replica("far.readonly", PARENT, REPLICA).unwrap();
    at.end(transaction);
}

#[test]
fn replicas_are_refused_where_they_cannot_be() {
    let (at, volume, ..) = furnished();
    let joe = at.rig.user(JOE);
    let name = volume_name("far.readonly");
    let (partition, kind) = (0, volume_type::RO);
    let make = VolumesCall::CreateVolume { partition, name, kind, parent: PARENT, volume: REPLICA };
    assert_eq!(at.ask_as(&joe, make), Err(Refusal(VOLSERBAD_ACCESS)));
    let bad_name = Err(Refusal(VOLSERBADNAME));
    assert_eq!(at.make_replica("far", PARENT, REPLICA), bad_name);
    assert_eq!(at.make_replica("a b.readonly", PARENT, REPLICA), bad_name);
    assert_eq!(at.make_replica("far.readonly", 0, REPLICA), Err(Refusal::INVALID));
    assert_eq!(at.make_replica("far.readonly", REPLICA, REPLICA), Err(Refusal::INVALID));
    assert_eq!(at.make_replica("far.readonly", volume, REPLICA), Err(Refusal::IO), "it is here");
    assert_eq!(at.make_replica("far.readonly", PARENT, volume), Err(Refusal::IO));
    assert!(at.examine(PARENT).is_err() && at.examine(REPLICA).is_err(), "nothing is left");
}

#[test]
fn a_replica_becomes_the_read_write_volume() {
    let (at, _, file, dump) = replicated();
    let joe = at.rig.user(JOE);
    let convert = VolumesCall::ConvertROtoRWvolume { partition: 0, volume: REPLICA };
    assert_eq!(at.ask_as(&joe, convert.clone()), Err(Refusal(VOLSERBAD_ACCESS)));
    let transaction = at.begin(REPLICA);
    assert_eq!(at.ask(convert.clone()), Err(Refusal(afs3::errors::VOLSERVOLBUSY)));
    at.end(transaction);
    assert_eq!(at.ask(convert.clone()), Ok(VolumesAnswer::ConvertROtoRWvolume {}));
    assert!(at.examine(REPLICA).is_err());
    let info = &at.examine(PARENT).unwrap()[0];
    assert_eq!((info.state, info.name.as_bytes()), (VolumeState::Online, &b"far"[..]));
    assert_same(read(&dump), read(&at.dumped(PARENT, 0)));
    let there = AfsFid { volume: PARENT, ..file };
    at.rig.store(&joe, there, 0, b"written").unwrap();
    let (dir, status) = (AfsFid { volume: PARENT, vnode: 1, unique: 1 }, StoreStatus::default());
    let new = FilesCall::CreateFile { dir, name: name("new"), status };
    let Ok(FilesAnswer::CreateFile { .. }) = at.rig.call(&joe, new) else { panic!() };
    let again = VolumesCall::ConvertROtoRWvolume { partition: 0, volume: PARENT };
    assert_eq!(at.ask(again), Err(Refusal::CROSS_DEVICE));
    assert_eq!(at.ask(convert), Err(Refusal::NO_DEVICE));
}

/// Linux's client gives up when a volume is neither here nor elsewhere.
#[test]
fn a_volume_that_is_to_serve_soon_is_busy() {
    let (at, ..) = replicated();
    let joe = at.rig.user(JOE);
    let fid = AfsFid { volume: PARENT, vnode: 1, unique: 1 };
    let look = || at.rig.call(&joe, FilesCall::FetchStatus { fid }).err();
    let begun = loop {
        match at.admin.assemble(VolumeId(REPLICA.into())) {
            Err(Fault::Busy) => at.admin.pause(),
            begun => break begun.unwrap(),
        }
    };
    assert_eq!(look(), Some(Refusal::NO_VOLUME), "the next state of the replica is no volume");
    drop(begun);
    at.admin.ask(Call::Volume(VolumeCall::Remove { id: VolumeId(PARENT.into()) })).unwrap();
    let (copy, name) = (VolumeId(REPLICA.into()), Name::new(b"far").unwrap());
    let take_over = Call::Volume(VolumeCall::TakeOver { copy, name, above: 0 });
    while at.admin.ask(take_over.clone()) == Err(Fault::Busy) {
        at.admin.pause();
    }
    assert_eq!(look(), Some(Refusal::BUSY));
    at.admin.ask(Call::Volume(VolumeCall::Serve { id: VolumeId(PARENT.into()) })).unwrap();
    assert_eq!(look(), None);
}
