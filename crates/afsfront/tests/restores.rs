//! Dumps that come in: whole, over another state, broken, and made to do harm.

use std::collections::BTreeSet;
use std::sync::Arc;

use afs3::RpcMessage as _;
use afs3::directory::{DirectoryReader, DirectoryWriter};
use afs3::dump::{DumpAttributes, DumpItem, VnodeAttributes, VolumeAttributes};
use afs3::errors::{VOLSERREAD_DUMPERROR, VOLSERVOLBUSY};
use afs3::files::{FilesAnswer, FilesCall};
use afs3::rights::{AfsRights, StoredAcl};
use afs3::structs::{AfsFid, AfsPath, StoreStatus};
use afs3::volumes::{
    Destination, Replica, RestoreCookie, VolumeName, VolumesAnswer, VolumesCall, volume_flag,
    volume_type,
};
use afs3::xdr::{Chars, XdrList, XdrReader};
use afsfront::{Refusal, Services};
use types::{Answer, Call, Cookie, Fid, Kind, VolumeId, VolumeState};

use crate::common::{JOE, Pipe, Rig, User, name};
use crate::volumes::{ReadDump, Volser, read};

pub const BAD_DUMP: Refusal = Refusal(VOLSERREAD_DUMPERROR);

impl Volser {
    pub fn restore(&self, transaction: i32, dump: &[u8]) -> Result<VolumesAnswer, Refusal> {
        let mut pipe = Pipe { sent: dump.iter().copied().collect(), ..Pipe::default() };
        let call = VolumesCall::Restore { transaction, flags: 1, cookie: cookie() };
        self.service.serve(&self.admin, call, &mut pipe)
    }

    /// The volume serves, and its transaction is over.
    pub fn serve(&self, transaction: i32) {
        self.ask(VolumesCall::SetFlags { transaction, flags: 0 }).unwrap();
        self.end(transaction);
    }

    pub fn dumped(&self, volume: u32, from: i32) -> Vec<u8> {
        let transaction = self.begin(volume);
        let dump = self.dump(transaction, from);
        self.end(transaction);
        dump
    }

    fn make_dir(&self, user: &User, dir: AfsFid, named: &str) -> AfsFid {
        let status = StoreStatus::default();
        match self.rig.call(user, FilesCall::MakeDir { dir, name: name(named), status }) {
            Ok(FilesAnswer::MakeDir { fid, .. }) => fid,
            other => panic!("{other:?}"),
        }
    }

    /// Every directory of a volume can be read and each entry of it looked at; how many there are.
    pub fn walk(&self, volume: u32) -> usize {
        let mut unread = vec![Fid::root(VolumeId(volume.into()))];
        let mut count = 0;
        while let Some(dir) = unread.pop() {
            let mut directories = 0;
            let (cookie, bytes_max, plus) = (Cookie::START, 1 << 20, false);
            let list = Call::ReadDir { dir, cookie, bytes_max, plus };
            let Ok(Answer::Entries { entries, end: true, .. }) = self.admin.ask(list) else {
                panic!()
            };
            for entry in entries {
                let Ok(Answer::Status(status)) = self.admin.ask(Call::GetStatus { fid: entry.fid })
                else {
                    panic!("{entry:?}")
                };
                assert!(status.kind == entry.kind && status.links > 0);
                count += 1;
                assert!(count < 1000, "a circle");
                if entry.kind == Kind::Directory {
                    directories += 1;
                    unread.push(entry.fid);
                }
            }
            let Ok(Answer::Status(status)) = self.admin.ask(Call::GetStatus { fid: dir }) else {
                panic!()
            };
            assert_eq!(status.links, 2 + directories);
        }
        count
    }
}

fn cookie() -> RestoreCookie {
    let name = Chars::new(b"copy").unwrap();
    RestoreCookie { name, kind: volume_type::RW, clone: 0, parent: 0 }
}

/// The vnodes of a dump, without the versions of contents.
fn contents(mut dump: ReadDump) -> ReadDump {
    dump.vnodes.values_mut().for_each(|(attributes, _, _)| attributes.data_version = 0);
    dump
}

fn entries(pages: &[u8]) -> BTreeSet<(Vec<u8>, u32, u32)> {
    let all = DirectoryReader::new(pages).unwrap().entries();
    all.map(|one| one.map(|one| (one.name.to_vec(), one.vnode, one.unique)).unwrap()).collect()
}

pub fn assert_same(one: ReadDump, other: ReadDump) {
    let (one, other) = (contents(one), contents(other));
    assert_eq!(one.order, other.order);
    for (vnode, expected) in &one.vnodes {
        let found = &other.vnodes[vnode];
        assert_eq!((&found.0, found.1), (&expected.0, expected.1), "vnode {vnode}");
        // The order of entries is each volume's own.
        let is_same = match vnode % 2 {
            0 => found.2 == expected.2,
            _ => entries(&found.2) == entries(&expected.2),
        };
        assert!(is_same, "contents of vnode {vnode}");
    }
}

/// A volume with some of everything.
pub fn furnished() -> (Volser, u32, AfsFid) {
    let at = Volser::new(Rig::new());
    let joe = at.rig.user(JOE);
    let status = StoreStatus::default();
    let sub = at.make_dir(&joe, at.rig.root(), "sub");
    at.make_dir(&joe, sub, "deep");
    let file = at.rig.create(&joe, "file");
    at.rig.create(&joe, "empty");
    let short = at.rig.create(&joe, "short");
    at.rig.store(&joe, short, 0, b"a few bytes").unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    at.rig.store(&joe, file, 0, &bytes).unwrap();
    let sparse = at.rig.create(&joe, "sparse");
    at.rig.store(&joe, sparse, 5_000_000, b"end").unwrap();
    for (named, target, mode) in [("link", "file", 0o755), ("mount", "#root.cell.", 0o644)] {
        let status = StoreStatus { mask: afs3::structs::store_mask::MODE, mode, ..status };
        let target = AfsPath::new(target.as_bytes()).unwrap();
        let link = FilesCall::Symlink { dir: at.rig.root(), name: name(named), target, status };
        at.rig.call(&joe, link).unwrap();
    }
    let again = FilesCall::Link { dir: at.rig.root(), name: name("again"), existing: file };
    at.rig.call(&joe, again).unwrap();
    let volume = at.reports(&at.admin)[0].volume;
    (at, volume, file)
}

#[test]
fn a_dump_comes_in_as_it_went_out() {
    let (at, volume, file) = furnished();
    let dump = at.dumped(volume, 0);
    let (copy, transaction) = at.create("copy", volume_type::RW, 70).unwrap();
    assert_eq!(at.restore(transaction, &dump), Ok(VolumesAnswer::Restore {}));
    assert_eq!(at.examine(70).unwrap()[0].state, VolumeState::Offline);
    at.serve(transaction);
    let (before, after) = (read(&dump), read(&at.dumped(copy, 0)));
    let versions = |dump: &ReadDump| dump.vnodes[&file.vnode].0.data_version;
    assert_eq!(versions(&before), versions(&after), "clients have it with this version");
    assert_eq!(before.volume.max_quota, after.volume.max_quota);
    assert_same(before, after);
    assert_eq!(at.walk(70), 9);
    // A new file has a number that none has.
    let joe = at.rig.user(JOE);
    let (dir, status) = (AfsFid { volume: 70, vnode: 1, unique: 1 }, StoreStatus::default());
    let new = FilesCall::CreateFile { dir, name: name("new"), status };
    let Ok(FilesAnswer::CreateFile { fid, .. }) = at.rig.call(&joe, new) else { panic!() };
    assert!(!read(&dump).vnodes.contains_key(&fid.vnode), "{fid:?}");
    assert_eq!(at.walk(70), 10);
}

#[test]
fn changes_come_in_over_an_earlier_state() {
    let (at, volume, file) = furnished();
    let dump = at.dumped(volume, 0);
    let (copy, transaction) = at.create("copy", volume_type::RW, 70).unwrap();
    at.restore(transaction, &dump).unwrap();
    at.serve(transaction);
    // A client knows the file, with its version.
    let joe = at.rig.user(JOE);
    let there = AfsFid { volume: 70, ..file };
    at.rig.fetch(&joe, there, 0, 10).unwrap();

    let since = at.admin.now().secs as i32 + 1;
    at.rig.pass(5);
    at.rig.store(&joe, file, 100, b"changed").unwrap();
    let dir = at.rig.root();
    at.rig.call(&joe, FilesCall::RemoveFile { dir, name: name("short") }).unwrap();
    at.rig.call(&joe, FilesCall::RemoveFile { dir, name: name("again") }).unwrap();
    let late = at.rig.create(&joe, "late");
    at.rig.store(&joe, late, 0, b"late").unwrap();
    let changes = at.dumped(volume, since);
    let whole = |dump: &ReadDump| dump.vnodes.values().filter(|one| one.1).count();
    assert_eq!(whole(&read(&changes)), 5, "three directories and two files");
    let transaction = at.begin(copy);
    assert_eq!(at.restore(transaction, &changes), Ok(VolumesAnswer::Restore {}));
    at.serve(transaction);
    let broken = at.rig.broken(&joe);
    assert!(broken.iter().any(|item| item.fid.volume == VolumeId(70)), "it looks again");
    let after = read(&at.dumped(copy, 0));
    let old = read(&dump).vnodes[&file.vnode].0.data_version;
    assert!(after.vnodes[&file.vnode].0.data_version > old);
    assert_same(read(&at.dumped(volume, 0)), after);

    // And back to the state before.
    let newest = read(&at.dumped(copy, 0)).vnodes[&file.vnode].0.data_version;
    let transaction = at.begin(copy);
    at.restore(transaction, &dump).unwrap();
    at.serve(transaction);
    let after = read(&at.dumped(copy, 0));
    assert!(after.vnodes[&file.vnode].0.data_version > newest, "versions never go back");
    assert_same(read(&dump), after);
}

#[test]
fn changes_do_not_come_in_over_another_state() {
    let (at, volume, _) = furnished();
    let changes = at.dumped(volume, at.admin.now().secs as i32 + 1);
    let (_, transaction) = at.create("copy", volume_type::RW, 70).unwrap();
    assert_eq!(at.restore(transaction, &changes), Err(BAD_DUMP));
    at.end(transaction);
}

#[test]
fn a_dump_that_breaks_off_leaves_the_volume_offline() {
    let (at, volume, _) = furnished();
    let dump = at.dumped(volume, 0);
    for (length, id) in [0, 5, 200, dump.len() / 2, dump.len() - 1].into_iter().zip(70..) {
        let (_, transaction) = at.create("copy", volume_type::RW, id).unwrap();
        assert_eq!(
            at.restore(transaction, &dump[..length]),
            Err(Refusal(afs3::errors::VOLSERREAD_DUMPERROR)),
            "{length}"
        );
        assert_eq!(at.examine(id).unwrap()[0].state, VolumeState::Offline);
        at.ask(VolumesCall::DeleteVolume { transaction }).unwrap();
        at.end(transaction);
    }
    let joe = at.rig.user(JOE);
    let (_, transaction) = at.create("copy", volume_type::RW, 80).unwrap();
    let call = VolumesCall::Restore { transaction, flags: 1, cookie: cookie() };
    let refused = at.ask_as(&joe, call);
    assert_eq!(refused, Err(Refusal(afs3::errors::VOLSERBAD_ACCESS)));
}

/// A vnode of a dump: its number, uniquifier, type, and contents.
type MadeVnode = (u32, u32, u8, Vec<u8>);

fn pages(entries: &[(&str, u32, u32)]) -> Vec<u8> {
    let mut writer = DirectoryWriter::new((1, 1), (1, 1));
    entries.iter().for_each(|(named, vnode, unique)| {
        writer.add(named.as_bytes(), *vnode, *unique).unwrap();
    });
    writer.finish()
}

fn made(vnodes: &[MadeVnode]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = DumpAttributes { volume: 70, name: b"x".to_vec(), times: vec![(0, 9)] };
    DumpItem::Header { version: 1, tags: header.to_tags() }.encode(&mut bytes);
    let volume = VolumeAttributes { volume: 70, ..VolumeAttributes::default() };
    DumpItem::VolumeHeader { tags: volume.to_tags() }.encode(&mut bytes);
    for (vnode, unique, kind, contents) in vnodes {
        let list = StoredAcl { positive: vec![(17, AfsRights::ALL)], negative: Vec::new() };
        let attributes = VnodeAttributes {
            kind: *kind,
            link_count: 9,
            mode: 0o755,
            acl: (*kind == 2).then(|| Box::new(list.to_bytes().unwrap())),
            ..VnodeAttributes::default()
        };
        let (vnode, unique, tags) = (*vnode, *unique, attributes.to_tags());
        DumpItem::Vnode { vnode, unique, tags }.encode(&mut bytes);
        DumpItem::Contents { bytes: contents.len() as u64, wide: false }.encode(&mut bytes);
        DumpItem::Piece(contents).encode(&mut bytes);
    }
    DumpItem::End.encode(&mut bytes);
    bytes
}

#[test]
fn a_dump_that_does_not_fit_together_leaves_a_sound_volume() {
    let at = Volser::new(Rig::new());
    let root = |entries: &[(&str, u32, u32)]| (1, 1, 2, pages(entries));
    let dir = |vnode, entries: &[(&str, u32, u32)]| (vnode, 5, 2, pages(entries));
    let file = |vnode| (vnode, 5, 1, b"text".to_vec());
    let sound = [
        (vec![root(&[("a", 2, 5), ("b", 2, 5)]), file(2)], 2),
        // Nothing there, another one's number, a file that has no name, and a directory.
        (vec![root(&[("a", 2, 5), ("b", 4, 6)]), file(4)], 0),
        (vec![root(&[]), file(2), dir(3, &[("f", 4, 5)]), file(4)], 0),
        // Circles, and two names of a directory.
        (
            vec![root(&[("d", 3, 5)]), dir(3, &[("up", 1, 1), ("me", 3, 5), ("f", 2, 5)]), file(2)],
            2,
        ),
        (vec![root(&[("d", 3, 5), ("e", 3, 5)]), dir(3, &[])], 1),
        (vec![root(&[("d", 3, 5)]), dir(3, &[("d", 5, 5)]), dir(5, &[("d", 3, 5)])], 2),
        // A high number, and one twice.
        (vec![root(&[("a", 0x0100_0000, 5)]), file(0x0100_0000)], 1),
        (vec![root(&[("a", 2, 5)]), file(2), file(2)], 1),
        (vec![root(&[("a", 2, 5)]), file(2), (2, 6, 1, Vec::new())], 0),
        (Vec::new(), 0),
    ];
    for ((vnodes, count), id) in sound.into_iter().zip(100..) {
        let (_, transaction) = at.create("copy", volume_type::RW, id).unwrap();
        let answer = at.restore(transaction, &made(&vnodes));
        assert_eq!(answer, Ok(VolumesAnswer::Restore {}), "{vnodes:?}");
        at.ask(VolumesCall::SetFlags { transaction, flags: 0 }).unwrap();
        assert_eq!(at.walk(id), count, "{vnodes:?}");
        at.ask(VolumesCall::DeleteVolume { transaction }).unwrap();
        at.end(transaction);
    }
    let refused = [
        vec![(1, 2, 2, pages(&[]))],
        vec![root(&[]), (2, 5, 2, pages(&[]))],
        vec![root(&[]), (3, 5, 1, Vec::new())],
        vec![root(&[]), (0, 5, 1, Vec::new())],
        vec![root(&[]), (2, 5, 9, Vec::new())],
        vec![(1, 1, 2, vec![7; 2048])],
        vec![root(&[]), (2, 5, 3, vec![b'x'; 5000])],
    ];
    for (vnodes, id) in refused.into_iter().zip(200..) {
        let (_, transaction) = at.create("copy", volume_type::RW, id).unwrap();
        assert_eq!(at.restore(transaction, &made(&vnodes)), Err(BAD_DUMP), "{vnodes:?}");
        at.ask(VolumesCall::DeleteVolume { transaction }).unwrap();
        at.end(transaction);
    }
}

fn destination(host: [u8; 4]) -> Destination {
    Destination { host: u32::from_be_bytes(host), port: 7005, service: 1 }
}

#[test]
fn a_volume_is_sent_to_another_server() {
    let (at, volume, file) = furnished();
    let there = Arc::new(Volser::new(Rig::new()));
    let (_, restoring) = there.create("moved", volume_type::RW, 70).unwrap();
    let peer = Arc::clone(&there);
    at.rig.set_peer(Arc::new(move |request, sent| {
        let mut from = XdrReader::new(&request[4..]);
        let procedure = u32::from_be_bytes(request[..4].try_into().unwrap());
        let Ok(VolumesCall::Restore { transaction, flags: 1, .. }) =
            VolumesCall::decode(procedure, &mut from)
        else {
            panic!()
        };
        peer.restore(transaction, &sent).map(|_| Vec::new())
    }));
    let joe = at.rig.user(JOE);
    let forward = |transaction, from_date, to_transaction| VolumesCall::Forward {
        transaction,
        from_date,
        destination: destination([192, 0, 2, 9]),
        to_transaction,
        cookie: cookie(),
    };
    // A clone first, while people work.
    let transaction = at.begin(volume);
    let name = VolumeName::new(&b"root.cell.clone"[..]).unwrap();
    let clone =
        VolumesCall::Clone { transaction, purge: 0, kind: volume_type::RO, name, volume: 40 };
    assert_eq!(at.ask(clone), Ok(VolumesAnswer::Clone { volume: 40 }));
    at.end(transaction);
    let since = at.admin.now().secs as i32;
    let of_clone = at.begin(40);
    let flags = volume_flag::DELETE_ON_SALVAGE | volume_flag::OUT_OF_SERVICE;
    at.ask(VolumesCall::SetFlags { transaction: of_clone, flags }).unwrap();
    assert_eq!(at.ask(forward(of_clone, 0, restoring)), Ok(VolumesAnswer::Forward {}));
    at.end(of_clone);
    at.rig.store(&joe, file, 0, b"changed").unwrap();

    // Then what changed, and no change any more.
    let transaction = at.begin(volume);
    assert_eq!(at.ask(forward(transaction, since, restoring)), Ok(VolumesAnswer::Forward {}));
    there.serve(restoring);
    let write = |at: &Volser| {
        let data = bytes::Bytes::from_static(b"late");
        let (fid, offset) = (at.rig.native(file), Some(0));
        let write = Call::Write { fid, offset, data, kill_privileges: false, stable: false };
        at.rig.begin_call(&at.rig.user(JOE), write)
    };
    assert_eq!(write(&at), None, "it waits");
    assert_same(read(&at.dump(transaction, 0)), read(&there.dumped(70, 0)));
    // Its number is in use by another transaction there.
    assert_eq!(at.ask(forward(transaction, 0, restoring)), Err(Refusal::NOT_FOUND));
    at.ask(VolumesCall::SetFlags { transaction, flags }).unwrap();
    at.rig.pass(5);
    at.ask(VolumesCall::DeleteVolume { transaction }).unwrap();
    at.end(transaction);
    assert_eq!(at.rig.store(&joe, file, 0, b"gone"), Err(Refusal::NO_VOLUME));
}

#[test]
fn a_volume_that_may_have_changed_is_not_removed() {
    let (at, volume, file) = furnished();
    at.rig.set_peer(Arc::new(|_, _| Ok(Vec::new())));
    let joe = at.rig.user(JOE);
    let transaction = at.begin(volume);
    let send = |transaction| VolumesCall::Forward {
        transaction,
        from_date: 0,
        destination: destination([192, 0, 2, 9]),
        to_transaction: 1,
        cookie: cookie(),
    };
    assert_eq!(at.ask(send(transaction)), Ok(VolumesAnswer::Forward {}));
    at.rig.pass_for_all(12);
    let refused = at.ask(VolumesCall::DeleteVolume { transaction });
    assert_eq!(refused, Err(Refusal(VOLSERVOLBUSY)));
    at.end(transaction);
    at.rig.store(&joe, file, 0, b"late").unwrap();
    // The same if the wall clock was set back meanwhile, to any time near the last call.
    for back in (8..60).step_by(2) {
        let transaction = at.begin(volume);
        assert_eq!(at.ask(send(transaction)), Ok(VolumesAnswer::Forward {}));
        at.rig.pass_for_all(12);
        at.rig.pass(-back);
        let flags = volume_flag::DELETE_ON_SALVAGE | volume_flag::OUT_OF_SERVICE;
        for call in [
            VolumesCall::SetFlags { transaction, flags },
            VolumesCall::DeleteVolume { transaction },
        ] {
            assert_eq!(at.ask(call), Err(Refusal(VOLSERVOLBUSY)), "{back}");
        }
        at.end(transaction);
        at.rig.pass(back);
    }
    at.rig.store(&joe, file, 0, b"late").unwrap();
    // The call of a transaction says again that changes wait.
    let transaction = at.begin(volume);
    let many = VolumesCall::ForwardMultiple {
        transaction,
        from_date: 0,
        destinations: XdrList::new(vec![Replica {
            transaction: 1,
            destination: destination([192, 0, 2, 9]),
        }])
        .unwrap(),
        spare: 0,
        cookie: cookie(),
    };
    let Ok(VolumesAnswer::ForwardMultiple { results }) = at.ask(many) else { panic!() };
    assert_eq!(results.as_slice(), [0]);
    for _ in 0..4 {
        at.rig.pass_for_all(5);
        at.ask(VolumesCall::GetFlags { transaction }).unwrap();
    }
    at.end(transaction);
    at.rig.store(&joe, file, 0, b"later").unwrap();
}
