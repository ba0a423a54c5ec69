//! The file service as foreign clients use it.

use std::net::SocketAddr;

use afs3::directory::DirectoryReader;
use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{
    AfsFid, AfsFids, AfsName, AfsPath, StoreStatus, StoreVolumeStatus, file_type, store_mask,
    volume_mask,
};
use afsfront::{FileHost, FileService, PeerCall, Refusal, Services};
use guard::Rights;
use types::{
    Answer, Assembly, Call, CreateHow, Fault, Name, NewKind, PrincipalId, Timestamp, VolumeCall,
    VolumeChange, VolumeId, VolumeInfo, VolumeKind,
};

use crate::common::{JOE, Pipe, Rig, User, name};

fn shown(rig: &Rig, user: &User, fid: AfsFid) -> afs3::structs::FetchStatus {
    match rig.call(user, FilesCall::FetchStatus { fid }) {
        Ok(FilesAnswer::FetchStatus { status, .. }) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_of_one_host_are_another_ones() {
    let rig = Rig::new();
    let (joe, reader) = (rig.user(JOE), rig.user(PrincipalId::ANONYMOUS));
    let fid = rig.create(&joe, "file");
    let content: Vec<u8> = (0..3_000_000u32).map(|at| ((at * 31) >> 3) as u8).collect();
    rig.store(&joe, fid, 0, &content).unwrap();
    let whole = shown(&rig, &reader, fid);
    assert_eq!((whole.length(), whole.file_type), (3_000_000, file_type::FILE));
    assert!(rig.fetch(&reader, fid, 0, 1 << 40).unwrap() == content, "more than there is");
    assert_eq!(rig.fetch(&reader, fid, 1_048_570, 12).unwrap(), content[1_048_570..1_048_582]);
    assert_eq!(rig.fetch(&reader, fid, 2_999_999, 10).unwrap(), content[2_999_999..]);
    assert!(rig.fetch(&reader, fid, 5_000_000, 10).unwrap().is_empty());
    assert_eq!(rig.fetch(&reader, fid, -1, 10), Err(Refusal::INVALID));
    // A store says how long the file is then: this one cuts it.
    rig.store(&joe, fid, 10, b"end").unwrap();
    assert_eq!(rig.fetch(&reader, fid, 8, 100).unwrap(), [&content[8..10], b"end"].concat());
    assert_eq!(rig.store(&reader, fid, 0, b"x"), Err(Refusal::ACCESS));
}

#[test]
fn directories_are_pages_of_their_length() {
    let rig = Rig::new();
    let joe = rig.user(JOE);
    let mut made: Vec<(String, AfsFid)> = (0..300)
        .map(|no| {
            let named = format!("a name that is not short {no}");
            let fid = rig.create(&joe, &named);
            (named, fid)
        })
        .collect();
    let pages = rig.fetch(&joe, rig.root(), 0, 1 << 30).unwrap();
    assert_eq!(shown(&rig, &joe, rig.root()).length(), pages.len() as u64);
    let reader = DirectoryReader::new(&pages).unwrap();
    let mut listed: Vec<(String, AfsFid)> = reader
        .entries()
        .map(|entry| {
            let entry = entry.unwrap();
            let fid = AfsFid { vnode: entry.vnode, unique: entry.unique, ..rig.root() };
            (String::from_utf8(entry.name.to_vec()).unwrap(), fid)
        })
        .collect();
    made.extend([(".".to_owned(), rig.root()), ("..".to_owned(), rig.root())]);
    made.sort();
    listed.sort();
    assert_eq!(listed, made);
    // In pieces they are the same.
    let mut pieces = Vec::new();
    for at in (0..pages.len()).step_by(2048) {
        pieces.extend(rig.fetch(&joe, rig.root(), at as i64, 2048).unwrap());
    }
    assert!(pieces == pages);
}

#[test]
fn names_are_made_moved_and_removed() {
    let rig = Rig::new();
    let (joe, dir) = (rig.user(JOE), rig.root());
    let given = StoreStatus { mask: store_mask::MODE, mode: 0o640, ..StoreStatus::default() };
    let made = rig.call(&joe, FilesCall::MakeDir { dir, name: name("sub"), status: given });
    let Ok(FilesAnswer::MakeDir { fid: sub, status, .. }) = made else { panic!("{made:?}") };
    assert_eq!((status.file_type, status.mode), (file_type::DIRECTORY, 0o640));
    assert_eq!((status.parent_vnode, status.link_count), (sub.vnode, 2));
    let file = rig.create(&joe, "file");
    let again = FilesCall::CreateFile { dir, name: name("file"), status: given };
    assert_eq!(rig.call(&joe, again), Err(Refusal::EXISTS));
    let link = FilesCall::Link { dir, name: name("other"), existing: file };
    assert!(matches!(rig.call(&joe, link), Ok(FilesAnswer::Link { status, .. })
        if status.link_count == 2));
    let to_sub = FilesCall::Rename {
        old_dir: dir,
        old_name: name("file"),
        new_dir: sub,
        new_name: name("moved"),
    };
    let moved = rig.call(&joe, to_sub.clone());
    assert_eq!(moved, Err(Refusal::CROSS_DEVICE), "it has a name here too, with this list");
    let remove = |named: &str| FilesCall::RemoveFile { dir, name: name(named) };
    let remove_dir = |named: &str| FilesCall::RemoveDir { dir, name: name(named) };
    assert_eq!(rig.call(&joe, remove_dir("other")), Err(Refusal::NOT_DIRECTORY));
    rig.call(&joe, remove("other")).unwrap();
    rig.call(&joe, to_sub.clone()).unwrap();
    assert_eq!(rig.call(&joe, to_sub), Err(Refusal::NOT_FOUND));
    assert_eq!(rig.call(&joe, remove("sub")), Err(Refusal::IS_DIRECTORY));
    assert_eq!(rig.call(&joe, remove_dir("sub")), Err(Refusal::EXISTS), "it is not empty");
    let moved = FilesCall::RemoveFile { dir: sub, name: name("moved") };
    rig.call(&joe, moved).unwrap();
    rig.call(&joe, remove_dir("sub")).unwrap();
    assert_eq!(rig.call(&joe, FilesCall::FetchStatus { fid: file }), Err(Refusal::NO_VNODE));
    assert_eq!(rig.call(&joe, remove(".")), Err(Refusal::INVALID));
    assert_eq!(rig.call(&joe, remove("a/b")), Err(Refusal::INVALID));
}

#[test]
fn links_without_execute_bits_are_mount_points() {
    let rig = Rig::new();
    let (joe, dir) = (rig.user(JOE), rig.root());
    let make = |named: &str, mode: u32, target: &str| {
        let status = StoreStatus { mask: store_mask::MODE, mode, ..StoreStatus::default() };
        let target = AfsPath::new(target.as_bytes()).unwrap();
        match rig.call(&joe, FilesCall::Symlink { dir, name: name(named), target, status }) {
            Ok(FilesAnswer::Symlink { fid, status, .. }) => (fid, status),
            other => panic!("{other:?}"),
        }
    };
    let (link, status) = make("link", 0o777, "#not one");
    assert_eq!((status.file_type, status.mode & 0o111), (file_type::SYMLINK, 0o111));
    assert_eq!(rig.fetch(&joe, link, 0, 1024).unwrap(), b"#not one");
    let (point, status) = make("point", 0o644, "#home.joe.");
    assert_eq!((status.file_type, status.mode, status.length()), (file_type::SYMLINK, 0o644, 10));
    assert_eq!(rig.fetch(&joe, point, 0, 1024).unwrap(), b"#home.joe.");
    let remove = |named: &str| FilesCall::RemoveFile { dir, name: name(named) };
    rig.call(&joe, remove("point")).unwrap();
    rig.call(&joe, remove("link")).unwrap();
    // One that a native client made has its dot, too.
    let kind = NewKind::MountPoint("%cell.example:root.cell".into());
    let (name, mode, how) = (Name::new(b"native").unwrap(), 0o755, CreateHow::Guarded);
    let call = Call::Make { dir: rig.root, name, kind, mode, how };
    let Ok(types::Answer::Made { status, .. }) = joe.ask(call) else { panic!() };
    let native = afsfront::foreign_fid(status.fid).unwrap();
    assert_eq!(rig.fetch(&joe, native, 0, 99).unwrap(), b"%cell.example:root.cell.");
    assert_eq!(shown(&rig, &joe, native).length(), 24);
}

#[test]
fn af1_fids_are_checked_and_mode_bit_volumes_refused() {
    let rig = Rig::new();
    let joe = rig.user(JOE);
    let fid = rig.create(&joe, "file");
    let fetch = |fid| rig.call(&joe, FilesCall::FetchStatus { fid });
    assert!(fetch(fid).is_ok());
    let other = AfsFid { unique: fid.unique.wrapping_add(1), ..fid };
    assert_eq!(fetch(other), Err(Refusal::NO_VNODE));
    assert_eq!(fetch(AfsFid { vnode: 4000, ..fid }), Err(Refusal::NO_VNODE));
    assert_eq!(fetch(AfsFid { volume: 77, ..fid }), Err(Refusal::NO_VOLUME));
    assert_eq!(fetch(AfsFid { vnode: 0, ..fid }), Err(Refusal::INVALID));
    let bits = Rig::with_mode_bits();
    let root = bits.root();
    let refused = bits.call(&bits.user(JOE), FilesCall::FetchStatus { fid: root });
    assert_eq!(refused, Err(Refusal::NO_SERVICE));
}

#[test]
fn a_volume_refuses_clients_of_afs_when_it_is_told_to() {
    let rig = Rig::new();
    let (joe, admin) = (rig.user(JOE), rig.administrator());
    let fid = rig.create(&joe, "file");
    rig.store(&joe, fid, 0, b"bytes").unwrap();
    assert!(rig.fetch(&joe, fid, 0, 5).is_ok());
    let _ = rig.broken(&joe);
    let id = rig.root.volume;
    let serve = |user: &User, afs| {
        let change = VolumeChange { afs: Some(afs), ..VolumeChange::default() };
        user.ask(Call::Volume(VolumeCall::SetFields { id, change }))
    };
    assert!(serve(&joe, false).is_err(), "that is for administrators");
    let status = joe.ask_as_server(Call::GetStatus { fid: rig.native(fid) }).unwrap();
    let attribute = || types::REFUSES_AFS.as_bytes().to_vec();
    let get = || {
        let (fid, name) = (rig.root, attribute().into());
        joe.ask(Call::XattrGet { fid, name })
    };
    assert_eq!(get(), Err(types::Fault::NoXattr));
    serve(&admin, false).unwrap();
    assert!(get().is_ok());
    assert!(!rig.broken(&joe).is_empty(), "clients must ask again");
    for call in [
        FilesCall::FetchStatus { fid },
        FilesCall::FetchACL { fid: rig.root() },
        FilesCall::GetVolumeStatus { volume: fid.volume as i32 },
    ] {
        assert_eq!(rig.call(&joe, call), Err(Refusal::NO_SERVICE));
    }
    assert_eq!(rig.fetch(&joe, fid, 0, 5), Err(Refusal::NO_SERVICE));
    assert_eq!(rig.store(&joe, fid, 0, b"other"), Err(Refusal::NO_SERVICE));
    let native = joe.ask_as_server(Call::GetStatus { fid: rig.native(fid) }).unwrap();
    assert_eq!(native, status, "others are served on");
    // No caller takes the attribute away.
    let (of, name) = (rig.root, attribute().into());
    assert!(joe.ask_as_server(Call::XattrRemove { fid: of, name }).is_err());
    serve(&admin, true).unwrap();
    assert_eq!(rig.fetch(&joe, fid, 0, 5).unwrap(), b"bytes"[..]);
}

#[test]
fn a_replica_refuses_clients_of_afs_as_of_its_release() {
    let rig = Rig::new();
    let (joe, admin) = (rig.user(JOE), rig.administrator());
    let (of, id) = (rig.root.volume, VolumeId(70));
    let release = |replace| {
        let name = Name::new(b"root.cell.readonly").unwrap();
        let kind = VolumeKind::ReadOnly;
        let clone = VolumeCall::Clone { id: Some(id), of, name, kind, replace };
        admin.ask(Call::Volume(clone)).unwrap();
    };
    let look = || {
        let fid = AfsFid { volume: 70, ..rig.root() };
        rig.call(&joe, FilesCall::FetchStatus { fid }).map(drop)
    };
    release(false);
    assert_eq!(look(), Ok(()));
    for afs in [false, true] {
        let change = VolumeChange { afs: Some(afs), ..VolumeChange::default() };
        let before = look();
        admin.ask(Call::Volume(VolumeCall::SetFields { id: of, change })).unwrap();
        assert_eq!(look(), before, "it shows what was released");
        release(true);
        assert_eq!(look(), if afs { Ok(()) } else { Err(Refusal::NO_SERVICE) });
    }
}

/// OpenAFS's client sets the time before it writes into a file.
#[test]
fn a_writer_that_is_no_owner_sets_a_time() {
    let rig = Rig::new();
    let joe = rig.user(JOE);
    let (dir, how) = (rig.root, CreateHow::Guarded);
    let named = Name::new(b"of root").unwrap();
    let make = Call::Make { dir, name: named, kind: NewKind::File, mode: 0o644, how };
    let Ok(types::Answer::Made { status, .. }) = joe.ask_as_server(make) else { panic!() };
    let fid = afsfront::foreign_fid(status.fid).unwrap();
    let change =
        StoreStatus { mask: store_mask::MOD_TIME, client_mod_time: 77, ..StoreStatus::default() };
    let set = |user: &User| rig.call(user, FilesCall::StoreStatus { fid, status: change });
    let set_time = set(&joe);
    let Ok(FilesAnswer::StoreStatus { status, .. }) = set_time else { panic!("{set_time:?}") };
    assert!(status.client_mod_time > 77, "it is the time of the call");
    assert_eq!(set(&rig.user(PrincipalId::ANONYMOUS)), Err(Refusal::ACCESS), "a reader sets none");
    let own = rig.create(&joe, "of joe");
    let set = rig.call(&joe, FilesCall::StoreStatus { fid: own, status: change });
    assert!(matches!(set, Ok(FilesAnswer::StoreStatus { status, .. })
        if status.client_mod_time == 77));
}

#[test]
fn numbers_of_directories_are_odd_and_others_even() {
    let rig = Rig::new();
    let joe = rig.user(JOE);
    let file = rig.create(&joe, "file");
    let given = StoreStatus::default();
    let made = FilesCall::MakeDir { dir: rig.root(), name: name("sub"), status: given };
    let Ok(FilesAnswer::MakeDir { fid: sub, .. }) = rig.call(&joe, made) else { panic!() };
    assert_eq!((file.vnode % 2, sub.vnode % 2, rig.root().vnode), (0, 1, 1));
    // The same vnode as one of the other kind.
    for wrong in [AfsFid { vnode: file.vnode - 1, ..file }, AfsFid { vnode: sub.vnode + 1, ..sub }]
    {
        let fetched = rig.call(&joe, FilesCall::FetchStatus { fid: wrong });
        assert_eq!(fetched, Err(Refusal::NO_VNODE));
    }
    // Without a parent OpenAFS's client does not accept a status.
    let status = shown(&rig, &joe, file);
    assert_eq!((status.parent_vnode, status.parent_unique), (file.vnode, file.unique));
}

#[test]
fn a_bulk_answer_tells_of_each_file() {
    let rig = Rig::new();
    let joe = rig.user(JOE);
    let there = rig.create(&joe, "file");
    let gone = AfsFid { unique: there.unique ^ 1, ..there };
    let fids = |all: &[AfsFid]| AfsFids::new(all.to_vec()).unwrap();
    let inline = FilesCall::InlineBulkStatus { fids: fids(&[there, gone, rig.root()]) };
    let Ok(FilesAnswer::InlineBulkStatus { status, callbacks, .. }) = rig.call(&joe, inline) else {
        panic!()
    };
    let codes: Vec<u32> = status.as_slice().iter().map(|one| one.error_code).collect();
    assert_eq!(codes, [0, 102, 0]);
    assert_eq!(callbacks.as_slice()[1].expiration, 0);
    assert_eq!(callbacks.as_slice()[0].expiration, 3600);
    let bulk = FilesCall::BulkStatus { fids: fids(&[there, gone]) };
    assert_eq!(rig.call(&joe, bulk), Err(Refusal::NO_VNODE));
    assert_eq!(rig.call(&joe, FilesCall::BulkStatus { fids: fids(&[]) }), Err(Refusal::INVALID));
}

#[test]
fn a_host_gets_the_codes_that_it_takes() {
    let rig = Rig::new();
    let (joe, mut translating) = (rig.user(JOE), rig.user(JOE));
    translating.takes_uae = true;
    rig.create(&joe, "file");
    let make = || FilesCall::CreateFile {
        dir: rig.root(),
        name: name("file"),
        status: StoreStatus::default(),
    };
    assert_eq!(rig.call(&joe, make()), Err(Refusal::EXISTS));
    let code = afs3::errors::uae_from_errno(17).unwrap();
    assert_eq!(rig.call(&translating, make()), Err(Refusal(code)));
    // The file service's own codes are no error numbers.
    let gone = AfsFid { vnode: 4000, ..rig.root() };
    let status = FilesCall::FetchStatus { fid: gone };
    assert_eq!(rig.call(&translating, status), Err(Refusal::NO_VNODE));
    // Codes of single files of a list are translated, too.
    let none = AfsFid { vnode: 0, ..rig.root() };
    let fids = AfsFids::new(vec![rig.root(), none]).unwrap();
    match rig.call(&translating, FilesCall::InlineBulkStatus { fids }) {
        Ok(FilesAnswer::InlineBulkStatus { status, .. }) => {
            let code = afs3::errors::uae_from_errno(22).unwrap();
            assert_eq!(status.as_slice()[1].error_code, code as u32);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_raises_the_version_by_one() {
    let rig = Rig::new();
    let (joe, other) = (rig.user(JOE), rig.user(JOE));
    let fid = rig.create(&joe, "file");
    let version = |user: &User| shown(&rig, user, fid).data_version();
    let mut known = version(&joe);
    // It grows in several parts; it is cut, and written; nothing changes.
    for bytes in [&[1; 3_500_000][..], &[2; 10], &[]] {
        match rig.store(&joe, fid, 0, bytes) {
            Ok(FilesAnswer::StoreData64 { status, .. }) => {
                assert_eq!(
                    (status.data_version(), status.length()),
                    (known + 1, bytes.len() as u64)
                );
            }
            answer => panic!("{answer:?}"),
        }
        known += 1;
        assert_eq!(version(&joe), known);
    }
    // Another host's changes are seen as such, and as one by that host.
    let before = version(&other);
    rig.store(&other, fid, 0, &[3; 2_000_000]).unwrap();
    assert_eq!(version(&other), before + 1);
    assert!(version(&joe) > known);
    // A store that fails says nothing, and what it did is another version.
    let (before, dir) = (version(&joe), rig.root());
    let call = FilesCall::StoreData64 {
        fid,
        status: StoreStatus::default(),
        position: 0,
        length: 3_000_000,
        file_length: 3_000_000,
    };
    assert_eq!(rig.call(&joe, call), Err(Refusal::DEAD), "no bytes come");
    assert!(version(&joe) >= before);
    rig.call(&joe, FilesCall::RemoveFile { dir, name: name("file") }).unwrap();
}

#[test]
fn a_full_volume_is_an_error_number_or_a_code() {
    let rig = Rig::new();
    let (joe, mut translating) = (rig.user(JOE), rig.user(JOE));
    translating.takes_uae = true;
    let fid = rig.create(&joe, "file");
    let status = StoreVolumeStatus {
        mask: volume_mask::MAX_QUOTA,
        max_quota: 100,
        ..StoreVolumeStatus::default()
    };
    let (volume, none) = (rig.root().volume as i32, AfsPath::default);
    let name = AfsName::default();
    let call =
        FilesCall::SetVolumeStatus { volume, status, name, offline_message: none(), motd: none() };
    rig.call(&rig.administrator(), call).unwrap();
    assert_eq!(rig.store(&joe, fid, 0, &[1; 500_000]), Err(Refusal::OVER_QUOTA));
    let code = afs3::errors::uae_from_errno(122).unwrap();
    assert_eq!(rig.store(&translating, fid, 0, &[1; 500_000]), Err(Refusal(code)));
}

#[test]
fn a_status_says_what_a_caller_and_a_stranger_may() {
    let rig = Rig::new();
    let (joe, stranger) = (rig.user(JOE), rig.user(PrincipalId::ANONYMOUS));
    let read = Rights::READ.with(Rights::LOOKUP).0;
    let fid = rig.create(&joe, "file");
    for fid in [rig.root(), fid] {
        let (own, others) = (shown(&rig, &joe, fid), shown(&rig, &stranger, fid));
        assert_eq!((own.caller_access, own.anonymous_access), (Rights::ALL.0, read));
        assert_eq!((others.caller_access, others.anonymous_access), (read, read));
    }
}

#[test]
fn changes_break_promises_between_both_worlds() {
    let rig = Rig::new();
    let (joe, reader, native) = (rig.user(JOE), rig.user(PrincipalId::ANONYMOUS), rig.user(JOE));
    let fid = rig.create(&joe, "file");
    shown(&rig, &reader, fid);
    rig.fetch(&reader, rig.root(), 0, 1 << 20).unwrap();
    rig.broken(&reader);
    rig.store(&joe, fid, 0, b"new").unwrap();
    assert!(!rig.broken(&reader).is_empty(), "of a foreign host by a foreign one");
    shown(&rig, &reader, fid);
    rig.broken(&reader);
    let (name, kind, how) = (Name::new(b"more").unwrap(), NewKind::File, CreateHow::Guarded);
    native.ask(Call::Make { dir: rig.root, name, kind, mode: 0o644, how }).unwrap();
    assert!(!rig.broken(&reader).is_empty(), "the directory's, by a native client");
    crate::common::status(&native, rig.root);
    rig.broken(&native);
    rig.create(&joe, "third");
    assert!(!rig.broken(&native).is_empty(), "of a native client by a foreign host");
}

/// A caller whose volume goes to another partition of the server after its file was found.
struct WhileItMoves<'a>(&'a User);

impl Services for WhileItMoves<'_> {
    fn ask(&self, _call: Call) -> Result<Answer, Fault> {
        Err(Fault::NoVolume)
    }

    fn ask_as_server(&self, call: Call) -> Result<Answer, Fault> {
        self.0.ask_as_server(call)
    }

    fn ask_as_nobody(&self, call: Call) -> Result<Answer, Fault> {
        self.0.ask_as_nobody(call)
    }

    fn volume(&self, id: VolumeId) -> Result<VolumeInfo, Fault> {
        self.0.volume(id)
    }

    fn assemble(&self, id: VolumeId) -> Result<Box<dyn Assembly>, Fault> {
        self.0.assemble(id)
    }

    fn refuses_afs(&self, id: VolumeId) -> Result<bool, Fault> {
        self.0.refuses_afs(id)
    }

    fn call_server(
        &self,
        to: SocketAddr,
        service: u16,
        request: &[u8],
    ) -> Result<Box<dyn PeerCall>, Refusal> {
        self.0.call_server(to, service, request)
    }

    fn pause(&self) {
        self.0.pause();
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn promised_seconds(&self) -> u32 {
        self.0.promised_seconds()
    }
}

#[test]
fn a_volume_that_moves_during_a_call_is_busy() {
    let rig = Rig::new();
    let joe = rig.user(JOE);
    let file = rig.create(&joe, "file");
    let host = FileHost { number: 0, takes_uae: false };
    let serve = |call: FilesCall| {
        let service = FileService::default();
        service.serve(&WhileItMoves(&joe), host, call, &mut Pipe::default()).err()
    };
    assert_eq!(serve(FilesCall::FetchStatus { fid: file }), Some(Refusal::BUSY));
    let dir = rig.root();
    assert_eq!(serve(FilesCall::RemoveFile { dir, name: name("file") }), Some(Refusal::BUSY));
    let of_another = AfsFid { volume: 4711, ..file };
    assert_eq!(serve(FilesCall::FetchStatus { fid: of_another }), Some(Refusal::NO_VOLUME));
}
