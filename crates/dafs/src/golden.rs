//! Golden vectors: recorded bytes of every message, one line each in `golden/*.txt`, as `name
//! header-or-number message payload` in hex.
//!
//! A changed vector is a changed protocol: old clients and servers, and reply records on disks, no
//! longer fit. `cargo test -p dafs write_golden -- --ignored` adds new vectors and never changes an
//! existing line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use types::*;

use crate::codec::{AnswerKind, EncodedAnswer, EncodedCall, Procedure};
use crate::credentials::TokenProof;
use crate::message::{Attach, AttachAnswer, Bind, Message};
use crate::{
    Features, Flags, Frame, FrameHeader, FrameKind, Hello, HelloAnswer, HelloRefusal, Region,
    Terms, decode_answer, decode_answer_record, decode_call, encode_answer, encode_answer_record,
    encode_call,
};

mod principals;
mod rules;
mod standby;

/// One vector: a number or header, a message, a payload.
type Vector = (Vec<u8>, Vec<u8>, Vec<u8>);

fn path(family: &str) -> PathBuf {
    // Read at run time: build output may be reused in another checkout.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    PathBuf::from(root).join("golden").join(format!("{family}.txt"))
}

fn hex(bytes: &[u8]) -> String {
    match bytes {
        [] => "-".into(),
        bytes => bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        }),
    }
}

fn unhex(text: &str) -> Vec<u8> {
    match text {
        "-" => Vec::new(),
        text => (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect(),
    }
}

/// The vectors of a file by name.
fn load(family: &str) -> BTreeMap<String, Vector> {
    let text = std::fs::read_to_string(path(family)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let vector = |line: &str| {
        let [name, head, message, payload] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        (name.to_owned(), (unhex(head), unhex(message), unhex(payload)))
    };
    lines.map(vector).collect()
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

const FID: Fid =
    Fid { volume: VolumeId(0x0102), vnode: VnodeNo(0x0304), unique: Uniquifier(0x0506) };
const DIR: Fid =
    Fid { volume: VolumeId(0x0102), vnode: VnodeNo(0x0305), unique: Uniquifier(0x0708) };

fn status(fid: Fid, kind: Kind) -> Status {
    Status {
        fid,
        kind,
        mode: 0o4755,
        by_list: false,
        read_times: false,
        own_list: false,
        uid: 1000,
        gid: 100,
        links: 2,
        size: 0x1122_3344_5566,
        used: 0x1000,
        device: 0,
        accessed: Timestamp { secs: 1, nanos: 2 },
        modified: Timestamp { secs: -3, nanos: 999_999_999 },
        changed: Timestamp { secs: 5, nanos: 6 },
        created: Timestamp { secs: 7, nanos: 8 },
        data_version: DataVersion(9),
        status_version: StatusVersion(10),
    }
}

fn calls() -> Vec<(&'static str, Call)> {
    let (file, dir) = (FID, DIR);
    let (owner, range) = (LockOwner(77), ByteRange { start: 5, end: 9 });
    let at = Timestamp { secs: -1, nanos: 999_999_999 };
    let delegated = |slot, call| Call::Delegated { at, slot, call: Box::new(call) };
    let make = |kind, how| Call::Make { dir, name: name("new"), kind, mode: 0o644, how };
    vec![
        ("root", Call::Root { volume: name("home") }),
        ("lookup", Call::Lookup { dir, name: name("file") }),
        ("read-dir", Call::ReadDir { dir, cookie: Cookie(0x10), bytes_max: 65536, plus: true }),
        ("make-file", make(NewKind::File, CreateHow::Exclusive(0xfeed))),
        ("make-directory", make(NewKind::Directory, CreateHow::Guarded)),
        ("make-symlink", make(NewKind::Symlink(Bytes::from_static(b"../to")), CreateHow::Guarded)),
        ("make-fifo", make(NewKind::Fifo, CreateHow::Guarded)),
        ("make-socket", make(NewKind::Socket, CreateHow::Guarded)),
        ("make-char-device", make(NewKind::CharDevice(1 << 32 | 3), CreateHow::Guarded)),
        ("make-block-device", make(NewKind::BlockDevice(8 << 32), CreateHow::Unchecked)),
        (
            "make-mount-point",
            make(NewKind::MountPoint(Bytes::from_static(b"%cell:v")), CreateHow::Guarded),
        ),
        ("make-unnamed", Call::MakeUnnamed { dir, mode: 0o600 }),
        ("link", Call::Link { fid: file, dir, name: name("other") }),
        ("remove", Call::Remove { dir, name: name("file"), what: RemoveWhat::File, hold: true }),
        (
            "remove-mount-point",
            Call::Remove { dir, name: name("v"), what: RemoveWhat::MountPoint, hold: false },
        ),
        (
            "rename",
            Call::Rename {
                from_dir: dir,
                from: name("a"),
                to_dir: Fid::new(1, 1, 1),
                to: name("bc"),
                mode: RenameMode::Exchange,
                hold: false,
            },
        ),
        (
            "rename-mount-point",
            Call::Rename {
                from_dir: dir,
                from: name("a"),
                to_dir: Fid::new(1, 1, 1),
                to: name("bc"),
                mode: RenameMode::MountPoint,
                hold: false,
            },
        ),
        ("read-link", Call::ReadLink { fid: file }),
        ("get-status", Call::GetStatus { fid: file }),
        ("by-vnode", Call::ByVnode { fid: file, parent: false }),
        ("by-vnode-parent", Call::ByVnode { fid: dir.masked(), parent: true }),
        (
            "set-status-all",
            Call::SetStatus {
                fid: file,
                change: StatusChange {
                    mode: Some(0o640),
                    uid: Some(1),
                    gid: Some(2),
                    size: Some(3),
                    accessed: Some(SetTime::To(Timestamp { secs: -1, nanos: 5 })),
                    modified: Some(SetTime::Now),
                    kill_privileges: true,
                    through_handle: true,
                    hold: false,
                },
            },
        ),
        (
            "set-status-held",
            Call::SetStatus {
                fid: file,
                change: StatusChange { mode: Some(0o600), hold: true, ..StatusChange::default() },
            },
        ),
        ("set-status-none", Call::SetStatus { fid: file, change: StatusChange::default() }),
        ("xattr-get", Call::XattrGet { fid: file, name: Bytes::from_static(b"user.a") }),
        (
            "xattr-set",
            Call::XattrSet {
                fid: file,
                name: Bytes::from_static(b"user.a"),
                value: Bytes::from_static(b"value"),
                mode: XattrMode::Create,
            },
        ),
        ("xattr-list", Call::XattrList { fid: file }),
        ("xattr-remove", Call::XattrRemove { fid: file, name: Bytes::from_static(b"user.a") }),
        ("volume-status", Call::VolumeStatus { fid: file }),
        ("get-acl", Call::GetAcl { fid: dir }),
        (
            "set-acl",
            Call::SetAcl { fid: dir, list: Some(Bytes::from_static(b"list")), instead_of: None },
        ),
        ("set-acl-none", Call::SetAcl { fid: dir, list: None, instead_of: None }),
        (
            "set-acl-instead",
            Call::SetAcl {
                fid: file,
                list: Some(Bytes::from_static(b"list")),
                instead_of: Some([7; 32]),
            },
        ),
        ("set-acl-none-instead", Call::SetAcl { fid: file, list: None, instead_of: Some([7; 32]) }),
        ("rights", Call::Rights { fid: file }),
        ("set-quota", Call::SetQuota { fid: file, bytes: 1 << 30, files: 1000 }),
        ("read", Call::Read { fid: file, offset: 4096, length: 1 << 20 }),
        ("read-packed", Call::ReadPacked { fid: file, offset: 4096, length: 1 << 20 }),
        (
            "write",
            Call::Write {
                fid: file,
                offset: Some(17),
                data: Bytes::from_static(b"data"),
                stable: false,
                kill_privileges: true,
            },
        ),
        (
            "append",
            Call::Write {
                fid: file,
                offset: None,
                data: Bytes::from_static(b"more"),
                stable: true,
                kill_privileges: false,
            },
        ),
        (
            "allocate",
            Call::Allocate { fid: file, offset: 1, length: 2, mode: AllocateMode::PunchHole },
        ),
        (
            "note-read",
            Call::NoteRead { fid: file, was: Timestamp::new(5, 6), at: Timestamp::new(7, 8) },
        ),
        ("seek", Call::Seek { fid: file, offset: 12, what: SeekWhat::Hole }),
        ("commit", Call::Commit { fid: file }),
        ("commit-volume", Call::CommitVolume { fid: file }),
        ("open-body", Call::OpenBody { fid: file }),
        ("lend-body", Call::LendBody { fid: file, how: Lending::Write }),
        ("settle-body", Call::SettleBody { fid: file, back: true }),
        ("lend-blank", Call::LendBlank { fid: file }),
        ("adopt-body", Call::AdoptBody { fid: file, blank: 0x0a0b_0c0d_0e0f_1011 }),
        ("read-sums", Call::ReadSums { fid: file, first: 3, count: 64 }),
        (
            "lock",
            Call::Lock {
                fid: file,
                owner,
                pid: 4711,
                family: LockFamily::Posix,
                range,
                mode: LockMode::Exclusive,
                wait: true,
                reclaim: false,
            },
        ),
        (
            "unlock",
            Call::Unlock { fid: file, owner, family: LockFamily::Flock, range: ByteRange::ALL },
        ),
        (
            "test-lock",
            Call::TestLock {
                fid: file,
                owner,
                family: LockFamily::Posix,
                range,
                mode: LockMode::Shared,
            },
        ),
        (
            "open",
            Call::Open {
                fid: file,
                access: DataUse::Both,
                deny: DataUse::Write,
                key: Some(ShareKey([0xa5; 16])),
                claims: false,
            },
        ),
        (
            "open-claim",
            Call::Open {
                fid: file,
                access: DataUse::Read,
                deny: DataUse::Nothing,
                key: None,
                claims: true,
            },
        ),
        ("close", Call::Close { fid: file, open: OpenId(0x0807_0000_0006) }),
        (
            "downgrade",
            Call::Downgrade {
                fid: file,
                open: OpenId(0x0807_0000_0006),
                access: DataUse::Read,
                deny: DataUse::Both,
            },
        ),
        (
            "persist-lock",
            Call::PersistLock {
                fid: file,
                owner: LockOwner(0x1111_2222_3333_4444),
                pid: 4711,
                range: ByteRange { start: 0, end: 4095 },
                how: PersistHow::Repairs,
            },
        ),
        (
            "finish-lock",
            Call::FinishLock {
                fid: file,
                owner: LockOwner(0x1111_2222_3333_4444),
                range: ByteRange::ALL,
            },
        ),
        ("hold", Call::Hold { fids: vec![file, dir] }),
        ("unhold", Call::Unhold { fids: Vec::new() }),
        ("reclaim-done", Call::ReclaimDone),
        ("delegate", Call::Delegate { fid: dir }),
        ("return", Call::Return { fids: vec![dir] }),
        ("delegated-make", delegated(9, make(NewKind::File, CreateHow::Guarded))),
        (
            "delegated-remove",
            delegated(
                0,
                Call::Remove { dir, name: name("file"), what: RemoveWhat::File, hold: false },
            ),
        ),
        ("delegated-link", delegated(0, Call::Link { fid: file, dir, name: name("other") })),
        (
            "delegated-status",
            delegated(0, Call::SetStatus { fid: file, change: StatusChange::default() }),
        ),
        (
            "delegated-rename",
            delegated(
                0,
                Call::Rename {
                    from_dir: dir,
                    from: name("a"),
                    to_dir: dir,
                    to: name("bc"),
                    mode: RenameMode::Replace,
                    hold: true,
                },
            ),
        ),
        (
            "delegated-write",
            delegated(
                0,
                Call::Write {
                    fid: file,
                    offset: Some(17),
                    data: Bytes::from_static(b"data"),
                    stable: false,
                    kill_privileges: false,
                },
            ),
        ),
        (
            "delegated-xattr-set",
            delegated(
                0,
                Call::XattrSet {
                    fid: file,
                    name: Bytes::from_static(b"user.a"),
                    value: Bytes::from_static(b"value"),
                    mode: XattrMode::Either,
                },
            ),
        ),
        (
            "delegated-xattr-remove",
            delegated(0, Call::XattrRemove { fid: file, name: Bytes::from_static(b"user.a") }),
        ),
        ("server-report", Call::ServerReport),
        ("scrub", Call::Scrub { start: true }),
        (
            "volume-create",
            Call::Volume(VolumeCall::Create {
                id: Some(VolumeId(0x0708)),
                partition: Some(PartitionNo(2)),
                name: name("home.a"),
                quota_bytes: 1 << 30,
                quota_files: 7,
                owner: (1000, 100),
                encrypt: None,
            }),
        ),
        (
            "volume-create-anywhere",
            Call::Volume(VolumeCall::Create {
                id: None,
                partition: None,
                name: name("b"),
                quota_bytes: 0,
                quota_files: 0,
                owner: (0, 0),
                encrypt: None,
            }),
        ),
        ("volume-create-encrypted", create_as(true)),
        ("volume-create-plain", create_as(false)),
        ("volume-remove", Call::Volume(VolumeCall::Remove { id: VolumeId(0x0102) })),
        (
            "volume-rename",
            Call::Volume(VolumeCall::Rename { id: VolumeId(0x0102), name: name("home.b") }),
        ),
        (
            "volume-clone",
            Call::Volume(VolumeCall::Clone {
                id: Some(VolumeId(0x0708)),
                of: VolumeId(0x0102),
                name: name("home.backup"),
                kind: VolumeKind::Backup,
                replace: true,
            }),
        ),
        (
            "volume-set-fields",
            Call::Volume(VolumeCall::SetFields {
                id: VolumeId(0x0102),
                change: VolumeChange {
                    quota_bytes: Some(1 << 20),
                    quota_files: Some(0),
                    state: Some(VolumeState::Offline),
                    read_times: None,
                    afs: None,
                },
            }),
        ),
        (
            "volume-set-read-times",
            Call::Volume(VolumeCall::SetFields {
                id: VolumeId(0x0102),
                change: VolumeChange { read_times: Some(true), ..VolumeChange::default() },
            }),
        ),
        (
            "volume-set-afs",
            Call::Volume(VolumeCall::SetFields {
                id: VolumeId(0x0102),
                change: VolumeChange { afs: Some(true), ..VolumeChange::default() },
            }),
        ),
        (
            "volume-clear-afs",
            Call::Volume(VolumeCall::SetFields {
                id: VolumeId(0x0102),
                change: VolumeChange { afs: Some(false), ..VolumeChange::default() },
            }),
        ),
        (
            "volume-clear-read-times",
            Call::Volume(VolumeCall::SetFields {
                id: VolumeId(0x0102),
                change: VolumeChange { read_times: Some(false), ..VolumeChange::default() },
            }),
        ),
        (
            "volume-list",
            Call::Volume(VolumeCall::List {
                partition: PartitionNo(1),
                after: VolumeId(0x0102),
                max: 500,
            }),
        ),
        (
            "volume-examine",
            Call::Volume(VolumeCall::Examine { volume: WhichVolume::Id(VolumeId(0x0102)) }),
        ),
        (
            "volume-examine-name",
            Call::Volume(VolumeCall::Examine { volume: WhichVolume::Name(name("home.a")) }),
        ),
        ("partitions", Call::Volume(VolumeCall::Partitions)),
        (
            "volume-changes",
            Call::Volume(VolumeCall::Changes {
                id: VolumeId(0x0102),
                since: 0x0304,
                cursor: CURSOR,
                bytes_max: 1 << 20,
                packed: false,
            }),
        ),
        (
            "volume-changes-packed",
            Call::Volume(VolumeCall::Changes {
                id: VolumeId(0x0102),
                since: 0x0304,
                cursor: CURSOR,
                bytes_max: 1 << 20,
                packed: true,
            }),
        ),
        (
            "volume-apply",
            Call::Volume(VolumeCall::Apply {
                partition: PartitionNo(1),
                tree: VolumeId(0x0102),
                part: Bytes::from_static(b"part"),
                over: false,
            }),
        ),
        (
            "volume-finish-view",
            Call::Volume(VolumeCall::Finish {
                partition: PartitionNo(1),
                tree: VolumeId(0x0102),
                finish: view(),
            }),
        ),
        (
            "volume-finish-nothing",
            Call::Volume(VolumeCall::Finish {
                partition: PartitionNo(1),
                tree: VolumeId(0x0102),
                finish: Finish::Nothing,
            }),
        ),
        (
            "volume-pull",
            Call::Volume(VolumeCall::Pull(Box::new(Pull {
                from: server().addresses,
                id: VolumeId(0x0103),
                partition: None,
                tree: VolumeId(0x0102),
                finish: Finish::ReadWrite {
                    name: name("home.a"),
                    quota_bytes: 5,
                    quota_files: 6,
                    created: Timestamp { secs: 1, nanos: 2 },
                    arriving: true,
                    updated: None,
                },
            }))),
        ),
        ("tasks", Call::Volume(VolumeCall::Tasks)),
        ("volume-end-task", Call::Volume(VolumeCall::EndTask { number: 0x0102 })),
        ("volume-incoming", Call::Volume(VolumeCall::Incoming { tree: None })),
        (
            "volume-finish-over",
            Call::Volume(VolumeCall::Finish {
                partition: PartitionNo(1),
                tree: VolumeId(0x0102),
                finish: Finish::Over { updated: None },
            }),
        ),
        (
            "volume-finish-over-dated",
            Call::Volume(VolumeCall::Finish {
                partition: PartitionNo(1),
                tree: VolumeId(0x0102),
                finish: Finish::Over { updated: Some(Timestamp { secs: 3, nanos: 4 }) },
            }),
        ),
        (
            "volume-finish-dated",
            Call::Volume(VolumeCall::Finish {
                partition: PartitionNo(1),
                tree: VolumeId(0x0102),
                finish: Finish::ReadWrite {
                    name: name("home.a"),
                    quota_bytes: 5,
                    quota_files: 6,
                    created: Timestamp { secs: 1, nanos: 2 },
                    arriving: false,
                    updated: Some(Timestamp { secs: 3, nanos: 4 }),
                },
            }),
        ),
        ("volume-hold", Call::Volume(VolumeCall::Hold { id: VolumeId(0x0102), millis: 10_000 })),
        ("volume-serve", Call::Volume(VolumeCall::Serve { id: VolumeId(0x0102) })),
        (
            "volume-take-over",
            Call::Volume(VolumeCall::TakeOver {
                copy: VolumeId(0x0102),
                name: name("home.a"),
                above: 0x0304,
            }),
        ),
        (
            "volume-beside",
            Call::Volume(VolumeCall::Beside {
                id: VolumeId(0x0102),
                partition: PartitionNo(1),
                what: types::Beside::Arrive,
            }),
        ),
        ("cell-group", Call::Cell(CellCall::Group { volume: WhichVolume::Name(name("home.a")) })),
        ("cell-groups", Call::Cell(CellCall::Groups { after: VolumeId(0x0102), max: 500 })),
        (
            "cell-put-group",
            Call::Cell(CellCall::PutGroup { group: Box::new(group()), expected: Revision(0x0304) }),
        ),
        (
            "cell-remove-group",
            Call::Cell(CellCall::RemoveGroup {
                read_write: VolumeId(0x0102),
                expected: Revision(0x0304),
            }),
        ),
        (
            "cell-take-numbers",
            Call::Cell(CellCall::TakeNumbers { above: VolumeId(0x0102), count: 3 }),
        ),
        ("cell-servers", Call::Cell(CellCall::Servers)),
        (
            "cell-put-server",
            Call::Cell(CellCall::PutServer { server: server(), expected: Revision(0x0304) }),
        ),
        (
            "cell-remove-server",
            Call::Cell(CellCall::RemoveServer { id: ServerId(0x0506), expected: Revision(0x0304) }),
        ),
        ("cell-changes", Call::Cell(CellCall::Changes { since: Revision(0x0304), max: 100 })),
        ("cell-me", Call::Cell(CellCall::Me)),
    ]
    .into_iter()
    .chain(principals::calls())
    .chain(rules::calls())
    .chain(standby::calls())
    .collect()
}

fn group() -> VolumeGroup {
    let site = |server, partition: &str, kind, epoch| Site {
        server: ServerId(server),
        partition: partition.into(),
        kind,
        epoch,
    };
    VolumeGroup {
        name: name("home.a"),
        read_write: VolumeId(0x0102),
        read_only: Some(VolumeId(0x0103)),
        backup: None,
        sites: vec![
            site(0x0506, "/vicepa", SiteKind::ReadWrite, 0),
            site(0x0607, "/b", SiteKind::ReadOnly, 9),
        ],
        released_epoch: 9,
        busy: Some(Busy { operation: "release".into(), by: "admin".into(), since_secs: -2 }),
    }
}

fn server() -> ServerInfo {
    let addresses =
        vec![([192, 0, 2, 1], 7620).into(), ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 7621).into()];
    ServerInfo {
        id: ServerId(0x0506),
        name: "one".into(),
        addresses,
        keys: vec![KeyPrint([0x0a; 32])],
    }
}

const CURSOR: StreamCursor = StreamCursor { vnode: VnodeNo(0x0506), stage: 3, position: 0x0708 };

fn view() -> Finish {
    Finish::View {
        id: Some(VolumeId(0x0103)),
        name: name("home.readonly"),
        kind: VolumeKind::ReadOnly,
        replace: true,
    }
}

fn task() -> TaskInfo {
    TaskInfo {
        number: 1,
        tree: VolumeId(0x0102),
        state: TaskState::Failed,
        since: 2,
        epoch: 3,
        bytes: 4,
        total_bytes: 5,
        text: "why".into(),
    }
}

fn volume() -> VolumeInfo {
    VolumeInfo {
        id: VolumeId(0x0102),
        tree: VolumeId(0x0101),
        kind: VolumeKind::Snapshot,
        state: VolumeState::Online,
        partition: PartitionNo(3),
        epoch: 9,
        origin: Some(VolumeId(0x0103)),
        name: name("home.monday"),
        created: Timestamp { secs: 1, nanos: 2 },
        updated: Timestamp { secs: 3, nanos: 4 },
        quota_bytes: 5,
        quota_files: 6,
        used_bytes: 7,
        used_files: 8,
        encrypted: None,
    }
}

fn create_as(encrypt: bool) -> Call {
    Call::Volume(VolumeCall::Create {
        id: None,
        partition: None,
        name: name("b"),
        quota_bytes: 0,
        quota_files: 0,
        owner: (0, 0),
        encrypt: Some(encrypt),
    })
}

fn answers() -> Vec<(&'static str, Answer)> {
    let (file, dir) = (status(FID, Kind::File), status(DIR, Kind::Directory));
    let entry = |text: &str, status| DirEntry {
        name: name(text),
        fid: FID,
        kind: Kind::File,
        cookie: Cookie(17),
        status,
        sole: false,
        target: None,
    };
    let link = DirEntry {
        kind: Kind::Symlink,
        target: Some(Bytes::from_static(b"to/there")),
        ..entry("l", Some(file))
    };
    vec![
        ("done", Answer::Done),
        ("status", Answer::Status(file)),
        ("entry", Answer::Entry { status: file, dir_version: DataVersion(44), sole: false }),
        ("entry-sole", Answer::Entry { status: file, dir_version: DataVersion(44), sole: true }),
        (
            "entries-link",
            Answer::Entries { entries: vec![link], end: true, dir_version: DataVersion(44) },
        ),
        (
            "entries-sole",
            Answer::Entries {
                entries: vec![DirEntry { sole: true, ..entry("a", Some(file)) }],
                end: true,
                dir_version: DataVersion(44),
            },
        ),
        (
            "delegation",
            Answer::Delegation {
                status: dir,
                slots: VnodeSlots { first: 0x1000, count: 64, key: RunKey(0x11) },
            },
        ),
        (
            "entries",
            Answer::Entries {
                entries: vec![entry("a", None), entry("bc", Some(file))],
                end: true,
                dir_version: DataVersion(44),
            },
        ),
        (
            "entries-none",
            Answer::Entries { entries: Vec::new(), end: false, dir_version: DataVersion(1) },
        ),
        ("made", Answer::Made { status: file, dir, existed: true }),
        ("removed", Answer::Removed { status: file, dir }),
        ("renamed", Answer::Renamed { status: file, other: None, from_dir: dir, to_dir: dir }),
        (
            "renamed-over",
            Answer::Renamed { status: file, other: Some(file), from_dir: dir, to_dir: dir },
        ),
        ("target", Answer::Target(Bytes::from_static(b"../to"))),
        ("xattr", Answer::Xattr(Bytes::from_static(b"value"))),
        ("status-by-list", Answer::Status(Status { by_list: true, ..dir })),
        ("status-read-times", Answer::Status(Status { read_times: true, ..dir })),
        ("status-own-list", Answer::Status(Status { by_list: true, own_list: true, ..file })),
        ("acl", Answer::Acl { of: DIR, list: Bytes::from_static(b"list") }),
        ("rights", Answer::Rights { of: DIR, rights: 127 }),
        (
            "xattr-names",
            Answer::XattrNames(vec![Bytes::from_static(b"user.a"), Bytes::from_static(b"user.bc")]),
        ),
        (
            "volume",
            Answer::Volume(VolumeStatus {
                quota_bytes: 1,
                quota_files: 2,
                used_bytes: 3,
                used_files: 4,
                partition_bytes: 5,
                partition_free_bytes: 6,
            }),
        ),
        (
            "packed",
            Answer::Packed {
                run: types::PackedRun {
                    offset: 1 << 16,
                    length: 70_000,
                    frames: vec![5, 0],
                    sums: vec![1, 2, 3, 0, 5],
                    bytes: Bytes::from_static(b"frame"),
                },
                end: true,
                status: file,
            },
        ),
        ("data", Answer::Data { data: Bytes::from_static(b"bytes"), end: true, status: file }),
        (
            "written",
            Answer::Written {
                count: 4,
                offset: 17,
                status: file,
                previous_version: DataVersion(8),
                verifier: BootVerifier(0xb007),
            },
        ),
        ("offset", Answer::Offset(1 << 40)),
        ("committed", Answer::Committed { verifier: BootVerifier(0xb007) }),
        ("body", Answer::Body { status: file }),
        ("blank", Answer::Blank(0x0a0b_0c0d_0e0f_1011)),
        ("opened", Answer::Opened { open: OpenId(0x0807_0000_0006), status: file }),
        ("sums", Answer::Sums { version: DataVersion(9), sums: vec![1, 0xffff_ffff] }),
        (
            "lock-conflict",
            Answer::LockTest(Some(LockConflict {
                range: ByteRange { start: 5, end: u64::MAX },
                mode: LockMode::Shared,
                pid: 4711,
            })),
        ),
        ("lock-free", Answer::LockTest(None)),
        ("report", Answer::Report("{\"sessions\":1}".into())),
        ("volumes", Answer::Volumes { volumes: vec![volume()], end: true }),
        (
            "volumes-encrypted",
            Answer::Volumes {
                volumes: vec![VolumeInfo { encrypted: Some(0x0a0b), ..volume() }, volume()],
                end: true,
            },
        ),
        (
            "groups",
            Answer::Groups {
                groups: vec![Revised { record: group(), revision: Revision(0x0304) }],
                end: false,
            },
        ),
        (
            "servers",
            Answer::Servers(vec![Revised { record: server(), revision: Revision(0x0304) }]),
        ),
        ("revision", Answer::Revision(Revision(0x0304))),
        ("number", Answer::Number(VolumeId(0x0102))),
        (
            "changes",
            Answer::Changes {
                at: Revision(0x0305),
                changes: Some(vec![
                    (Revision(0x0304), Changed::Group(VolumeId(0x0102))),
                    (Revision(0x0305), Changed::Server(ServerId(0x0506))),
                ]),
            },
        ),
        ("changes-forgotten", Answer::Changes { at: Revision(0x0305), changes: None }),
        ("part", Answer::Part(Bytes::from_static(b"part"))),
        ("cursor", Answer::Cursor(CURSOR)),
        ("tasks", Answer::Tasks(vec![task()])),
        (
            "incoming",
            Answer::Incoming {
                trees: vec![IncomingTree {
                    partition: PartitionNo(1),
                    tree: VolumeId(0x0102),
                    over: true,
                    since: 3,
                    epoch: 4,
                    bytes: 5,
                    used_bytes: 6,
                }],
                base: 7,
            },
        ),
        (
            "partitions",
            Answer::Partitions(vec![PartitionInfo {
                no: PartitionNo(1),
                name: "/vicepb".into(),
                total_bytes: 1 << 40,
                free_bytes: 1 << 39,
                compression: "zstd".into(),
            }]),
        ),
    ]
    .into_iter()
    .chain(principals::answers())
    .chain(rules::answers())
    .chain(standby::answers())
    .collect()
}

fn messages() -> Vec<(&'static str, Message)> {
    let attach = Attach {
        client: ClientId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        incarnation: 3,
        resume: None,
        display: "host rialto".into(),
        pid: 4711,
    };
    let attached = AttachAnswer {
        session: SessionId(7),
        resumed: true,
        renewed: true,
        server: 0x5e4e,
        boot_verifier: BootVerifier(0xb007),
        lease: Duration::from_secs(15),
        credits: 64,
        grant: 2,
        bind_key: 0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20,
        challenge: [0xc4; 32],
    };
    let groups = Some(vec![1, 2, 3].into_boxed_slice());
    let item = |reason, hint: Option<&str>| BreakItem { fid: FID, reason, name: hint.map(name) };
    vec![
        ("attach", Message::Attach(attach.clone())),
        ("attach-again", Message::Attach(Attach { resume: Some(SessionId(7)), ..attach })),
        ("bind", Message::Bind(Bind { session: SessionId(7), key: attached.bind_key })),
        (
            "credential",
            Message::Credential {
                handle: 1,
                caller: Caller { uid: 1000, gid: 100, groups, who: types::RequestIdentity::NAMED },
            },
        ),
        ("credential-bare", Message::Credential { handle: 64, caller: Caller::ROOT }),
        (
            "token",
            Message::Token {
                handle: 2,
                shown: TokenProof { token: Bytes::from_static(b"a token"), proof: [0x5e; 64] },
            },
        ),
        ("cancel", Message::Cancel { slot: 3, request: 9 }),
        ("break-ack", Message::BreakAck { id: BreakId(12), held: vec![FID] }),
        ("renew", Message::Renew(5)),
        ("credits-taken", Message::CreditsTaken(3)),
        ("detach", Message::Detach),
        ("probe", Message::Probe(6)),
        ("attached", Message::Attached(attached)),
        ("bound", Message::Bound),
        (
            "break",
            Message::Break {
                id: BreakId(12),
                items: vec![
                    item(BreakReason::Data, Some("entry")),
                    item(BreakReason::Status, None),
                    item(BreakReason::Removed, None),
                    item(BreakReason::Pressure, None),
                ],
            },
        ),
        (
            "recall",
            Message::Break { id: BreakId(13), items: vec![item(BreakReason::Recall, None)] },
        ),
        ("renewed", Message::Renewed { number: 5, renewed: true }),
        ("credits", Message::Credits { credits: 16, grant: 3 }),
        (
            "goodbye",
            Message::Goodbye { fault: Some(Fault::Expired), reason: "the session ends".into() },
        ),
        ("goodbye-bare", Message::Goodbye { fault: None, reason: String::new() }),
        ("probed", Message::Probed(6)),
        ("lane", Message::Lane),
        ("region", Message::Region { handle: 3, begins: true }),
        ("region-ends", Message::Region { handle: 3, begins: false }),
        ("bell", Message::Bell),
        ("lane-open", Message::LaneOpen),
        ("region-open", Message::RegionOpen { handle: 3, is_open: true }),
        ("region-refused", Message::RegionOpen { handle: 3, is_open: false }),
        ("rung", Message::Rung),
    ]
}

fn frames() -> Vec<(&'static str, Frame)> {
    let all = Features::CHECKSUMS.with(Features::PAYLOAD_CHECKSUMS);
    let asked = FrameHeader {
        slot: 3,
        request: 9,
        credential: 1,
        credits: 2,
        ..FrameHeader::new(FrameKind::Request, SessionId(7))
    };
    let answered =
        FrameHeader { slot: 3, request: 9, ..FrameHeader::new(FrameKind::Reply, SessionId(7)) };
    let data = Bytes::from_static(b"payload");
    let flagged =
        |flags: Flags| FrameHeader { flags: asked.flags.with(flags), procedure: 10, ..asked };
    let direct = FrameHeader {
        flags: answered.flags.with(Flags::DIRECT),
        region: Region { handle: 5, offset: 0x2000 },
        procedure: 12,
        ..answered
    };
    vec![
        ("request", Frame::plain(FrameHeader { procedure: 10, ..asked }, &b"message"[..])),
        (
            "request-summed",
            Frame::new(FrameHeader { procedure: 19, ..asked }, &b"message"[..], data.clone())
                .sealed(all),
        ),
        ("request-chain-start", Frame::plain(flagged(Flags::CHAIN_START), &b"message"[..])),
        ("request-chain-middle", Frame::plain(flagged(Flags::CHAIN_MIDDLE), &b"message"[..])),
        (
            "request-chain-end",
            Frame::plain(flagged(Flags::CHAIN_END.with(Flags::ABORTED)), &b"message"[..]),
        ),
        ("reply-direct", Frame::new(direct, &b"message"[..], data).sealed(Features::CHECKSUMS)),
        (
            "reply-fault",
            Frame::plain(
                FrameHeader { fault: Some(Fault::NoSpace.into()), ..answered },
                Bytes::new(),
            ),
        ),
        (
            "reply-descriptor",
            Frame::plain(
                FrameHeader {
                    procedure: 16,
                    flags: answered.flags.with(Flags::DESCRIPTOR),
                    ..answered
                },
                &b"message"[..],
            ),
        ),
    ]
}

fn hellos() -> Vec<(&'static str, Vec<u8>)> {
    let features = Features::CHECKSUMS.with(Features::DESCRIPTORS);
    let refused = |refusal| HelloAnswer::Refused(refusal).to_bytes().to_vec();
    vec![
        ("hello", Hello::full(features).to_bytes().to_vec()),
        (
            "hello-to-one",
            Hello { server: Some(types::ServerId(7)), ..Hello::full(features) }.to_bytes().to_vec(),
        ),
        ("welcome", HelloAnswer::Welcome(Terms::full(features)).to_bytes().to_vec()),
        ("refused-not-ours", refused(HelloRefusal::NotOurs)),
        ("refused-version", refused(HelloRefusal::Version)),
        ("refused-byte-order", refused(HelloRefusal::ByteOrder)),
        ("refused-limits", refused(HelloRefusal::Limits)),
        ("refused-crowded", refused(HelloRefusal::Crowded)),
        ("refused-silent", refused(HelloRefusal::Silent)),
        ("refused-needs-tls", refused(HelloRefusal::NeedsTls)),
        ("refused-another", refused(HelloRefusal::Another)),
    ]
}

/// Every sample in its present form, by family.
fn now() -> Vec<(&'static str, Vec<(&'static str, Vector)>)> {
    let call = |(name, call): (&'static str, Call)| {
        let EncodedCall { procedure, message, payload } = encode_call(&call).unwrap();
        (name, (procedure.to_le_bytes().to_vec(), message, payload.to_vec()))
    };
    let answer = |(name, answer): (&'static str, Answer)| {
        let EncodedAnswer { procedure, message, payload } = encode_answer(&answer).unwrap();
        (name, (procedure.to_le_bytes().to_vec(), message, payload.to_vec()))
    };
    let frame = |(name, frame): (&'static str, Frame)| {
        (name, (frame.header.to_bytes().to_vec(), frame.message.to_vec(), frame.payload.to_vec()))
    };
    let message = |(name, message): (&'static str, Message)| {
        frame((name, message.to_frame(SessionId(7)).unwrap().sealed(Features::CHECKSUMS)))
    };
    let record = |(name, answer): (&'static str, Answer)| {
        (name, (Vec::new(), encode_answer_record(&answer), Vec::new()))
    };
    let recorded = answers().into_iter().filter(|(_, answer)| {
        !matches!(
            answer,
            Answer::Data { .. } | Answer::Packed { .. } | Answer::Part(_) | Answer::Records { .. }
        )
    });
    vec![
        ("calls", calls().into_iter().map(call).collect()),
        ("answers", answers().into_iter().map(answer).collect()),
        ("records", recorded.map(record).collect()),
        ("messages", messages().into_iter().map(message).collect()),
        ("frames", frames().into_iter().map(frame).collect()),
        (
            "hellos",
            hellos()
                .into_iter()
                .map(|(name, bytes)| (name, (Vec::new(), bytes, Vec::new())))
                .collect(),
        ),
    ]
}

#[test]
#[ignore = "writes the vectors that are missing"]
fn write_golden() {
    for (family, vectors) in now() {
        let known = load(family);
        let mut text = std::fs::read_to_string(path(family)).unwrap_or_default();
        for (name, (head, message, payload)) in vectors {
            if !known.contains_key(name) {
                writeln!(text, "{name} {} {} {}", hex(&head), hex(&message), hex(&payload))
                    .unwrap();
            }
        }
        std::fs::write(path(family), text).unwrap();
    }
}

#[test]
fn every_message_has_the_bytes_that_it_always_had() {
    for (family, vectors) in now() {
        let known = load(family);
        let names: Vec<_> = vectors.iter().map(|(name, _)| (*name).to_owned()).collect();
        for (name, vector) in vectors {
            assert_eq!(Some(&vector), known.get(name), "{family} {name}");
        }
        let stale: Vec<_> = known.keys().filter(|name| !names.contains(name)).collect();
        assert!(stale.is_empty(), "{family}: no sample for {stale:?}");
    }
}

#[test]
fn every_number_has_a_vector() {
    for procedure in Procedure::ALL {
        assert!(calls().iter().any(|(_, call)| call.procedure() == *procedure), "{procedure:?}");
        assert_eq!(Procedure::from_wire(*procedure as u16), Some(*procedure));
    }
    for kind in AnswerKind::ALL {
        assert!(answers().iter().any(|(_, answer)| AnswerKind::of(answer) == *kind), "{kind:?}");
        assert_eq!(AnswerKind::from_wire(*kind as u16), Some(*kind));
    }
    let bulk = [FrameKind::Request, FrameKind::Reply];
    for kind in FrameKind::ALL.into_iter().filter(|kind| !bulk.contains(kind)) {
        assert!(messages().iter().any(|(_, message)| message.kind() == kind), "{kind:?}");
    }
    assert_eq!(HelloRefusal::ALL.len() + 3, hellos().len());
}

#[test]
fn golden_bytes_decode_to_their_values() {
    let (known_calls, known_answers) = (load("calls"), load("answers"));
    for (name, call) in calls() {
        let (head, message, payload) = known_calls[name].clone();
        let procedure = u16::from_le_bytes(head[..].try_into().unwrap());
        assert_eq!(decode_call(procedure, &message, payload.into()), Ok(call), "{name}");
    }
    for (name, answer) in answers() {
        let (head, message, payload) = known_answers[name].clone();
        let kind = u16::from_le_bytes(head[..].try_into().unwrap());
        assert_eq!(decode_answer(kind, &message, payload.into()), Ok(answer.clone()), "{name}");
        if let Some((_, record, _)) = load("records").get(name) {
            assert_eq!(decode_answer_record(record), Ok(answer), "{name}");
        }
    }
    let terms = Terms::full(Features::CHECKSUMS);
    for (name, message) in messages() {
        let frame = to_frame(&load("messages")[name]);
        assert_eq!(frame.verify(&terms), Ok(()), "{name}");
        assert_eq!(Message::of_frame(&frame), Ok(Some(message)), "{name}");
    }
    for (name, frame) in frames() {
        assert_eq!(to_frame(&load("frames")[name]), frame, "{name}");
    }
}

fn to_frame((head, message, payload): &Vector) -> Frame {
    let header = FrameHeader::parse(head[..].try_into().unwrap()).unwrap();
    Frame { header, message: message.clone().into(), payload: payload.clone().into() }
}

/// Every shorter form of some bytes, and every form with one byte more.
fn misshapen(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let shorter = (0..bytes.len()).map(|end| bytes[..end].to_vec());
    shorter.chain((0..=u8::MAX).map(move |byte| [bytes, &[byte]].concat()))
}

#[test]
fn every_truncated_and_every_longer_form_is_refused() {
    for (name, (head, message, payload)) in load("calls") {
        let procedure = u16::from_le_bytes(head[..].try_into().unwrap());
        for wrong in misshapen(&message) {
            assert!(
                decode_call(procedure, &wrong, payload.clone().into()).is_err(),
                "{name} {wrong:?}"
            );
        }
        for wrong in misshapen(&payload) {
            assert!(decode_call(procedure, &message, wrong.into()).is_err(), "{name}: payload");
        }
    }
    for (name, (head, message, payload)) in load("answers") {
        let kind = u16::from_le_bytes(head[..].try_into().unwrap());
        for wrong in misshapen(&message) {
            assert!(
                decode_answer(kind, &wrong, payload.clone().into()).is_err(),
                "{name} {wrong:?}"
            );
        }
        for wrong in misshapen(&payload) {
            assert!(decode_answer(kind, &message, wrong.into()).is_err(), "{name}: payload");
        }
    }
    for (name, (_, record, _)) in load("records") {
        for wrong in misshapen(&record) {
            assert!(decode_answer_record(&wrong).is_err(), "{name} {wrong:?}");
        }
    }
    for (name, vector) in load("messages") {
        let frame = to_frame(&vector);
        for wrong in misshapen(&frame.message) {
            let header = FrameHeader { message_bytes: wrong.len() as u32, ..frame.header };
            let wrong = Frame { header, message: wrong.into(), payload: Bytes::new() };
            assert!(Message::of_frame(&wrong).is_err(), "{name} {wrong:?}");
        }
    }
}

/// Changes a vector in one of the ways that find mistakes in decoders.
fn mutate(bytes: &mut Vec<u8>, choice: u8, at: u16, value: u8) {
    let index = usize::from(at) % (bytes.len() + 1);
    match choice % 6 {
        0 if index < bytes.len() => bytes[index] = value,
        1 if index < bytes.len() => bytes[index] ^= 1 << (value % 8),
        2 => bytes.truncate(index),
        3 => bytes.insert(index, value),
        4 => bytes.splice(index..index, [0xff; 4]).for_each(drop),
        _ => bytes.extend_from_within(index..),
    }
}

/// `PROPTEST_CASES` cases, as `fuzz/run.sh` sets it; otherwise as many as take well under a second.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// The fuzz targets' checks on mutated golden vectors, short enough for every test run.
    #[test]
    fn mutated_vectors_are_refused_or_mean_what_they_say(
        pick in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<u8>(), any::<u16>(), any::<u8>()), 1..4),
    ) {
        for family in ["calls", "answers", "records", "messages", "frames", "hellos"] {
            let vectors = VECTORS.with(|vectors| vectors[family].clone());
            let (mut head, mut message, payload) = pick.get(&vectors).clone();
            for (choice, at, value) in &changes {
                match at % 8 {
                    0 if !head.is_empty() => mutate(&mut head, choice % 2, at / 8, *value),
                    _ => mutate(&mut message, *choice, at / 8, *value),
                }
            }
            match family {
                "calls" => {
                    let procedure = u16::from_le_bytes([head[0], head[1]]);
                    crate::fuzzing::call(procedure, &message, payload.into());
                }
                "answers" | "records" => {
                    let kind = head.first().map_or(1, |kind| u16::from(*kind));
                    crate::fuzzing::answer(kind, &message, payload.into());
                }
                "messages" | "frames" => {
                    crate::fuzzing::header(&head);
                    crate::fuzzing::message(&[head, message].concat());
                }
                _ => crate::fuzzing::hello(&message),
            }
        }
    }

    #[test]
    fn session_machines_stand_any_script(script in proptest::collection::vec(any::<u8>(), 0..600)) {
        crate::fuzzing::server_session(&script);
        crate::fuzzing::client_session(&script);
    }

    #[test]
    fn session_messages_survive_the_way(
        message in crate::strategies::message(),
        session in 1..u64::MAX,
    ) {
        let frame = message.to_frame(SessionId(session)).unwrap();
        prop_assert_eq!(FrameHeader::parse(&frame.header.to_bytes()), Ok(frame.header));
        prop_assert_eq!(Message::of_frame(&frame), Ok(Some(message)));
    }
}

thread_local! {
    static VECTORS: BTreeMap<&'static str, Vec<Vector>> =
        now().into_iter()
            .map(|(family, vectors)| {
                (family, vectors.into_iter().map(|(_, vector)| vector).collect())
            })
            .collect();
}
