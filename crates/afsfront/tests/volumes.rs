//! The volume service, whose callers are tools of AFS.

use std::collections::BTreeMap;

use afs3::directory::DirectoryReader;
use afs3::dump::{DumpAttributes, DumpItem, DumpParser, VnodeAttributes, VolumeAttributes};
use afs3::errors::{
    VOLSERBAD_ACCESS, VOLSERBADNAME, VOLSERBADOP, VOLSERILLEGAL_PARTITION, VOLSERVOLBUSY,
};
use afs3::files::FilesCall;
use afs3::structs::{AfsPath, StoreStatus};
use afs3::volumes::{
    PartitionPath, VolumeName, VolumeReport, VolumesAnswer, VolumesCall, transaction_flag,
    volume_flag, volume_type,
};
use afsfront::{CallStream, Refusal, Services, StreamBroken, VolumeService};
use bytes::Bytes;
use types::{
    Answer, Call, Fid, PrincipalId, VolumeCall, VolumeId, VolumeInfo, VolumeState, WhichVolume,
};

use crate::common::{JOE, Pipe, Rig, User, name};

const BAD_ACCESS: Refusal = Refusal(VOLSERBAD_ACCESS);
const ENODEV: Refusal = Refusal(19);

/// A rig's volume service, and an administrator's way to it.
pub struct Volser {
    pub rig: Rig,
    pub service: VolumeService,
    pub admin: User,
}

impl Volser {
    pub fn new(rig: Rig) -> Volser {
        let admin = rig.administrator();
        Volser { rig, service: VolumeService::default(), admin }
    }

    pub fn ask_as(&self, user: &User, call: VolumesCall) -> Result<VolumesAnswer, Refusal> {
        self.service.serve(user, call, &mut Pipe::default())
    }

    pub fn ask(&self, call: VolumesCall) -> Result<VolumesAnswer, Refusal> {
        self.ask_as(&self.admin, call)
    }

    pub fn begin(&self, volume: u32) -> i32 {
        let call = VolumesCall::TransCreate { volume, partition: 0, flags: transaction_flag::BUSY };
        match self.ask(call) {
            Ok(VolumesAnswer::TransCreate { transaction }) => transaction,
            other => panic!("{other:?}"),
        }
    }

    pub fn end(&self, transaction: i32) {
        let ended = self.ask(VolumesCall::EndTrans { transaction });
        assert_eq!(ended, Ok(VolumesAnswer::EndTrans { code: 0 }));
    }

    pub fn dump(&self, transaction: i32, from_date: i32) -> Vec<u8> {
        let mut pipe = Pipe::default();
        let call = VolumesCall::Dump { transaction, from_date };
        assert_eq!(self.service.serve(&self.admin, call, &mut pipe), Ok(VolumesAnswer::Dump {}));
        pipe.received
    }

    pub fn reports(&self, user: &User) -> Vec<VolumeReport> {
        match self.ask_as(user, VolumesCall::ListVolumes { partition: 0, flags: 1 }) {
            Ok(VolumesAnswer::ListVolumes { volumes }) => volumes.as_slice().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    pub fn examine(&self, volume: u32) -> Result<Vec<VolumeInfo>, types::Fault> {
        let volume = WhichVolume::Id(VolumeId(volume.into()));
        match self.admin.ask(Call::Volume(VolumeCall::Examine { volume }))? {
            Answer::Volumes { volumes, .. } => Ok(volumes),
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&self, named: &str, kind: i32, volume: u32) -> Result<(u32, i32), Refusal> {
        let (partition, name) = (0, volume_name(named));
        let call = VolumesCall::CreateVolume { partition, name, kind, parent: 0, volume };
        match self.ask(call)? {
            VolumesAnswer::CreateVolume { volume, transaction } => Ok((volume, transaction)),
            other => panic!("{other:?}"),
        }
    }
}

pub fn volume_name(text: &str) -> VolumeName {
    VolumeName::new(text.as_bytes()).unwrap()
}

/// A dump, taken apart: the header, the volume, and each vnode with its contents.
pub struct ReadDump {
    pub header: DumpAttributes,
    pub volume: VolumeAttributes,
    pub vnodes: BTreeMap<u32, (VnodeAttributes, bool, Vec<u8>)>,
    pub order: Vec<u32>,
}

pub fn read(mut bytes: &[u8]) -> ReadDump {
    let mut parser = DumpParser::new();
    let (mut header, mut volume) = (None, None);
    let (mut vnodes, mut order) = (BTreeMap::new(), Vec::new());
    while let Some(item) = parser.next(&mut bytes).unwrap() {
        match item {
            DumpItem::Header { tags, .. } => header = Some(DumpAttributes::from_tags(&tags)),
            DumpItem::VolumeHeader { tags } => volume = Some(VolumeAttributes::from_tags(&tags)),
            DumpItem::Vnode { vnode, tags, .. } => {
                let one = (VnodeAttributes::from_tags(&tags), !tags.is_empty(), Vec::new());
                vnodes.insert(vnode, one);
                order.push(vnode);
            }
            DumpItem::Piece(piece) => {
                let last = vnodes.get_mut(order.last().unwrap()).unwrap();
                last.2.extend_from_slice(piece);
            }
            DumpItem::Contents { .. } | DumpItem::Further { .. } | DumpItem::End => {}
        }
    }
    parser.finish().unwrap();
    ReadDump { header: header.unwrap(), volume: volume.unwrap(), vnodes, order }
}

#[test]
fn questions_are_answered_to_everyone() {
    let at = Volser::new(Rig::new());
    let stranger = at.rig.user(PrincipalId::ANONYMOUS);
    let ask = |call| at.ask_as(&stranger, call);
    let Ok(VolumesAnswer::XListPartitions { partitions }) = ask(VolumesCall::XListPartitions {})
    else {
        panic!()
    };
    assert_eq!(partitions.as_slice(), [0]);
    let partition = PartitionPath::new(&b"/vicepa"[..]).unwrap();
    let Ok(VolumesAnswer::PartitionInfo64 { info }) =
        ask(VolumesCall::PartitionInfo64 { partition })
    else {
        panic!()
    };
    assert!(info.name.text() == b"/vicepa" && info.min_free >= info.free && info.free > 0);
    let other = PartitionPath::new(&b"/vicepb"[..]).unwrap();
    let refused = ask(VolumesCall::PartitionInfo { partition: other });
    assert_eq!(refused, Err(Refusal(VOLSERILLEGAL_PARTITION)));
    let [one] = &at.reports(&stranger)[..] else { panic!() };
    assert_eq!((one.name.text(), one.kind, one.in_use), (&b"root.cell"[..], volume_type::RW, 1));
    let list = |volume| ask(VolumesCall::ListOneVolume { partition: 0, volume });
    assert!(matches!(list(one.volume), Ok(VolumesAnswer::ListOneVolume { volumes })
        if volumes.as_slice() == [*one]));
    assert_eq!(list(4000), Err(ENODEV));
    let Ok(VolumesAnswer::Monitor { transactions }) = ask(VolumesCall::Monitor {}) else {
        panic!()
    };
    assert_eq!(transactions.as_slice().len(), 0);
}

#[test]
fn only_an_administrator_has_transactions() {
    let at = Volser::new(Rig::new());
    let volume = at.reports(&at.admin)[0].volume;
    let transaction = at.begin(volume);
    for user in [at.rig.user(PrincipalId::ANONYMOUS), at.rig.user(JOE)] {
        let flags = transaction_flag::BUSY;
        for call in [
            VolumesCall::TransCreate { volume, partition: 0, flags },
            VolumesCall::CreateVolume {
                partition: 0,
                name: volume_name("mine"),
                kind: 0,
                parent: 0,
                volume: 0,
            },
            VolumesCall::NukeVolume { partition: 0, volume },
            // With a number that another caller has, and anyone may list.
            VolumesCall::Dump { transaction, from_date: 0 },
            VolumesCall::GetSize { transaction, from_date: 0 },
            VolumesCall::DeleteVolume { transaction },
            VolumesCall::SetFlags { transaction, flags: volume_flag::OUT_OF_SERVICE },
            VolumesCall::GetStatus { transaction },
            VolumesCall::EndTrans { transaction },
        ] {
            let text = format!("{call:?}");
            assert_eq!(at.ask_as(&user, call), Err(BAD_ACCESS), "{text}");
        }
    }
    at.end(transaction);
    assert_eq!(at.reports(&at.admin).len(), 1);
}

#[test]
fn a_transaction_keeps_others_off_its_volume() {
    let at = Volser::new(Rig::new());
    let volume = at.reports(&at.admin)[0].volume;
    let transaction = at.begin(volume);
    let flags = transaction_flag::OFFLINE;
    let again = at.ask(VolumesCall::TransCreate { volume, partition: 0, flags });
    assert_eq!(again, Err(Refusal(VOLSERVOLBUSY)));
    let Ok(VolumesAnswer::Monitor { transactions }) = at.ask(VolumesCall::Monitor {}) else {
        panic!()
    };
    let [shown] = transactions.as_slice() else { panic!() };
    assert_eq!((shown.transaction, shown.volume), (transaction, volume));
    assert_eq!(shown.last_procedure.text(), b"TransCreate");
    at.end(transaction);
    assert_eq!(at.ask(VolumesCall::EndTrans { transaction }), Err(Refusal::NOT_FOUND));
    let none = VolumesCall::TransCreate { volume: 4000, partition: 0, flags };
    assert_eq!(at.ask(none), Err(Refusal::NO_VOLUME));
    let without = VolumesCall::TransCreate { volume, partition: 0, flags: 0 };
    assert_eq!(at.ask(without), Err(Refusal::INVALID));
    // Its client is gone.
    at.begin(volume);
    at.rig.pass(601);
    at.end(at.begin(volume));
}

#[test]
fn volumes_are_made_cloned_and_removed() {
    let at = Volser::new(Rig::new());
    let (volume, transaction) = at.create("home.joe", volume_type::RW, 70).unwrap();
    assert_eq!(volume, 70);
    assert_eq!(at.create("other", volume_type::RW, 70), Err(Refusal::IO), "the number is taken");
    assert_eq!(at.create("a b", volume_type::RW, 71), Err(Refusal(VOLSERBADNAME)));
    assert_eq!(at.create("a.backup", volume_type::BACKUP, 71), Err(Refusal(VOLSERBADOP)));
    let state = || at.examine(70).unwrap()[0].state;
    assert_eq!(state(), VolumeState::Offline, "its maker has not said that it serves");
    let mut info = Box::new(at.reports(&at.admin)[1]);
    assert_eq!(info.max_quota, 5000);
    info.max_quota = 100;
    at.ask(VolumesCall::SetInfo { transaction, info: info.clone() }).unwrap();
    info.max_quota = -1;
    at.ask(VolumesCall::SetInfo { transaction, info }).unwrap();
    at.ask(VolumesCall::SetFlags { transaction, flags: 0 }).unwrap();
    assert_eq!(state(), VolumeState::Online);
    let Ok(VolumesAnswer::GetStatus { status }) = at.ask(VolumesCall::GetStatus { transaction })
    else {
        panic!()
    };
    assert_eq!((status.volume, status.parent, status.max_quota), (70, 70, 100));
    let root = Call::GetStatus { fid: Fid::root(VolumeId(70)) };
    let Ok(Answer::Status(status)) = at.admin.ask(root) else { panic!() };
    assert!(status.by_list, "AF-1: clients of AFS are served in it");

    let backup = VolumesCall::Clone {
        transaction,
        purge: 0,
        kind: volume_type::BACKUP,
        name: volume_name("home.joe.backup"),
        volume: 72,
    };
    assert_eq!(at.ask(backup.clone()), Ok(VolumesAnswer::Clone { volume: 72 }));
    assert_eq!(at.ask(backup), Err(Refusal::IO), "it is there");
    assert_eq!(
        at.ask(VolumesCall::ReClone { transaction, clone: 72 }),
        Ok(VolumesAnswer::ReClone {})
    );
    let report = at.reports(&at.admin).into_iter().find(|one| one.volume == 70).unwrap();
    assert_eq!(report.backup, 72);
    at.ask(VolumesCall::DeleteVolume { transaction }).unwrap();
    at.end(transaction);
    assert_eq!(at.examine(70), Err(types::Fault::NoVolume));

    // One that went comes back at once, under its number.
    for _ in 0..2 {
        let (_, transaction) = at.create("short", volume_type::RW, 90).unwrap();
        at.ask(VolumesCall::DeleteVolume { transaction }).unwrap();
        at.end(transaction);
    }

    // The maker of another one is gone before it serves.
    at.create("lost", volume_type::RW, 80).unwrap();
    at.rig.pass(601);
    at.ask(VolumesCall::XListPartitions {}).unwrap();
    assert_eq!(at.examine(80), Err(types::Fault::NoVolume));
}

#[test]
fn a_dump_has_the_whole_tree() {
    let at = Volser::new(Rig::new());
    let joe = at.rig.user(JOE);
    let status = StoreStatus::default();
    let make = FilesCall::MakeDir { dir: at.rig.root(), name: name("sub"), status };
    at.rig.call(&joe, make).unwrap();
    let (file, empty) = (at.rig.create(&joe, "file"), at.rig.create(&joe, "empty"));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    at.rig.store(&joe, file, 0, &bytes).unwrap();
    let target = AfsPath::new(&b"file"[..]).unwrap();
    let link = FilesCall::Symlink { dir: at.rig.root(), name: name("link"), target, status };
    at.rig.call(&joe, link).unwrap();

    let volume = at.reports(&at.admin)[0].volume;
    let transaction = at.begin(volume);
    let dumped = at.dump(transaction, 0);
    let size = at.ask(VolumesCall::GetSize { transaction, from_date: 0 });
    assert_eq!(size, Ok(VolumesAnswer::GetSize { bytes: dumped.len() as u64 }));
    let dump = read(&dumped);
    assert_eq!((dump.header.volume, &dump.header.name[..]), (volume, &b"root.cell"[..]));
    assert_eq!((dump.volume.volume, dump.volume.parent, dump.volume.files), (volume, volume, 5));
    let highest = [at.rig.root(), file, empty].map(|fid| fid.unique).into_iter().max();
    assert!(Some(dump.volume.next_unique) > highest, "OpenAFS takes it for damaged");
    // Directories come first, each kind by its numbers.
    let mut sorted = dump.order.clone();
    sorted.sort_by_key(|vnode| (vnode % 2 == 0, *vnode));
    assert!(dump.order == sorted && sorted.len() == 5, "{:?}", dump.order);
    let (root, _, pages) = &dump.vnodes[&1];
    assert_eq!((root.kind, root.parent, root.acl.is_some()), (2, 0, true));
    let names: Vec<_> = DirectoryReader::new(pages)
        .unwrap()
        .entries()
        .map(|entry| entry.unwrap())
        .filter(|entry| !entry.name.starts_with(b"."))
        .map(|entry| entry.vnode)
        .collect();
    assert!(names.len() == 4 && names.iter().all(|vnode| dump.vnodes.contains_key(vnode)));
    let (attributes, _, contents) = &dump.vnodes[&file.vnode];
    assert_eq!((attributes.kind, attributes.parent, attributes.owner), (1, 1, 17));
    assert!(*contents == bytes);
    assert_eq!(dump.vnodes[&empty.vnode].2, b"");
    assert!(dump.vnodes.values().any(|(one, _, target)| one.kind == 3 && target == b"file"));
    assert_eq!(at.examine(volume).unwrap().len(), 1, "the snapshot is gone");

    // Only directories have attributes if nothing changed since then.
    let later = at.admin.now().secs as i32 + 1;
    let changes = read(&at.dump(transaction, later));
    let whole: Vec<_> = changes.vnodes.iter().filter(|one| one.1.1).map(|one| one.0 % 2).collect();
    assert_eq!((changes.vnodes.len(), &whole[..]), (5, &[1, 1][..]));
    let mut pipe = Pipe::default();
    let call = VolumesCall::DumpV2 { transaction, from_date: later, flags: 1 };
    at.service.serve(&at.admin, call, &mut pipe).unwrap();
    assert!(read(&pipe.received).vnodes.values().all(|one| !one.1));
    at.end(transaction);
}

/// A client that is gone after so many bytes.
struct Broken(usize);

impl CallStream for Broken {
    fn take(&mut self, _: usize) -> Result<Bytes, StreamBroken> {
        Err(StreamBroken)
    }

    fn give(&mut self, bytes: Bytes) -> Result<(), StreamBroken> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(StreamBroken)?;
        Ok(())
    }
}

#[test]
fn a_dump_that_is_cut_off_leaves_nothing() {
    let at = Volser::new(Rig::new());
    let joe = at.rig.user(JOE);
    let file = at.rig.create(&joe, "file");
    at.rig.store(&joe, file, 0, &[7; 300_000]).unwrap();
    let volume = at.reports(&at.admin)[0].volume;
    let transaction = at.begin(volume);
    for bytes in [0, 100_000] {
        let call = VolumesCall::Dump { transaction, from_date: 0 };
        let refused = at.service.serve(&at.admin, call, &mut Broken(bytes));
        assert_eq!(refused, Err(Refusal::DEAD));
        assert_eq!(at.examine(volume).unwrap().len(), 1);
    }
    at.end(transaction);
}

#[test]
fn af1_a_volume_with_mode_bits_is_not_dumped() {
    let at = Volser::new(Rig::with_mode_bits());
    let volume = at.reports(&at.admin)[0].volume;
    let transaction = at.begin(volume);
    let refused = at.ask(VolumesCall::Dump { transaction, from_date: 0 });
    assert_eq!(refused, Err(Refusal::NO_SERVICE));
    at.end(transaction);
}
