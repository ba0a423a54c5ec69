//! Every call on files, by its label in the documents, and the tree that it is made on.

#![allow(clippy::unwrap_used)] // tests

use bytes::Bytes;
use guard::{Acl, Rights};
use types::{
    AllocateMode, Answer, ByteRange, Call, Caller, Cookie, CreateHow, DataUse, Fid, Lending,
    LockFamily, LockMode, LockOwner, NewKind, OpenId, PersistHow, PrincipalId, RemoveWhat,
    RenameMode, SeekWhat, SetTime, StatusChange, Timestamp, XattrMode,
};

use crate::common::{Rig, VOLUME, name};

/// A user that makes no calls itself.
pub const SOMEBODY: u32 = 4242;

/// A directory with a file and a symbolic link.
#[derive(Clone, Copy)]
pub struct Place {
    pub dir: Fid,
    pub file: Fid,
    pub link: Fid,
}

pub fn set_list(rig: &mut Rig, fid: Fid, given: &[(PrincipalId, Rights)]) {
    let mut list = Acl::new();
    given.iter().for_each(|(who, rights)| assert!(list.set(*who, *rights, false)));
    let call = Call::SetAcl { fid, list: Some(list.encode().into()), instead_of: None };
    rig.call(0, &Caller::ROOT, call).unwrap();
}

/// Makes a directory and a file of the user, in the root; both are in the group `gid`.
pub fn place(
    rig: &mut Rig,
    root: Fid,
    called: &str,
    (uid, gid): (u32, u32),
    [dir_mode, file_mode]: [u16; 2],
) -> Place {
    let mut make = |dir, called: &str, kind: NewKind, mode| {
        let how = CreateHow::Guarded;
        let made = rig.call(
            0,
            &Caller::ROOT,
            Call::Make { dir, name: name(called.as_bytes()), kind, mode, how },
        );
        let Ok(Answer::Made { status, .. }) = made else { panic!("{made:?}") };
        let change = StatusChange { uid: Some(uid), gid: Some(gid), ..StatusChange::default() };
        rig.call(0, &Caller::ROOT, Call::SetStatus { fid: status.fid, change }).unwrap();
        status.fid
    };
    let dir = make(root, called, NewKind::Directory, dir_mode);
    let file = make(dir, "file", NewKind::File, file_mode);
    let link = make(dir, "link", NewKind::Symlink(Bytes::from_static(b"target")), 0o777);
    let data = Bytes::from_static(&[7; 1000]);
    let write =
        Call::Write { fid: file, offset: Some(0), data, stable: false, kill_privileges: false };
    rig.call(0, &Caller::ROOT, write).unwrap();
    for attribute in [&b"user.a"[..], b"trusted.a"] {
        let (name, value, mode) =
            (Bytes::from_static(attribute), Bytes::from_static(b"v"), XattrMode::Either);
        rig.call(0, &Caller::ROOT, Call::XattrSet { fid: file, name, value, mode }).unwrap();
    }
    Place { dir, file, link }
}

/// Every call on files. A label that comes twice has two forms.
pub fn file_calls(Place { dir, file: fid, link }: Place) -> Vec<(&'static str, Call)> {
    let how = CreateHow::Guarded;
    let named = |text: &str| name(text.as_bytes());
    let set = |change| Call::SetStatus { fid, change };
    let none = StatusChange::default();
    let (user, trusted) = (Bytes::from_static(b"user.a"), Bytes::from_static(b"trusted.a"));
    let value = Bytes::from_static(b"w");
    let (owner, range, pid) = (LockOwner(1), ByteRange::ALL, 1);
    let lock = |family, mode| Call::Lock {
        fid,
        owner,
        pid,
        family,
        range,
        mode,
        wait: false,
        reclaim: false,
    };
    let open = |access, deny| Call::Open { fid, access, deny, key: None, claims: false };
    let write = Call::Write {
        fid,
        offset: Some(0),
        data: value.clone(),
        stable: false,
        kill_privileges: false,
    };
    let remove = Call::Remove { dir, name: named("file"), what: RemoveWhat::File, hold: true };
    let (from, to, mode) = (named("file"), named("to"), RenameMode::Replace);
    let rename = Call::Rename { from_dir: dir, from, to_dir: dir, to, mode, hold: false };
    let either = XattrMode::Either;
    vec![
        ("Root", Call::Root { volume: name(VOLUME) }),
        ("Lookup", Call::Lookup { dir, name: named("file") }),
        ("ReadDir", Call::ReadDir { dir, cookie: Cookie::START, bytes_max: 1000, plus: true }),
        ("Make", Call::Make { dir, name: named("new"), kind: NewKind::File, mode: 0o600, how }),
        ("Make", Call::Make { dir, name: named("d"), kind: NewKind::Directory, mode: 0o700, how }),
        ("MakeUnnamed", Call::MakeUnnamed { dir, mode: 0o600 }),
        ("Link", Call::Link { fid, dir, name: named("hard") }),
        ("Remove", remove),
        ("Rename", rename),
        ("ReadLink", Call::ReadLink { fid: link }),
        ("GetStatus", Call::GetStatus { fid }),
        ("ByVnode", Call::ByVnode { fid: fid.masked(), parent: false }),
        ("ByVnode", Call::ByVnode { fid: dir.masked(), parent: true }),
        ("SetStatus nothing", set(none)),
        ("SetStatus mode", set(StatusChange { mode: Some(0o777), ..none })),
        (
            "SetStatus given times",
            set(StatusChange { modified: Some(SetTime::To(Timestamp::new(5, 0))), ..none }),
        ),
        ("SetStatus owner", set(StatusChange { uid: Some(SOMEBODY), ..none })),
        ("SetStatus size by name", set(StatusChange { size: Some(0), ..none })),
        ("SetStatus times to now", set(StatusChange { modified: Some(SetTime::Now), ..none })),
        (
            "SetStatus size through a handle",
            set(StatusChange { size: Some(0), through_handle: true, ..none }),
        ),
        ("SetStatus set-id bits", set(StatusChange { kill_privileges: true, ..none })),
        ("XattrGet user", Call::XattrGet { fid, name: user.clone() }),
        ("XattrGet trusted", Call::XattrGet { fid, name: trusted.clone() }),
        ("XattrList", Call::XattrList { fid }),
        (
            "XattrSet user",
            Call::XattrSet { fid, name: user.clone(), value: value.clone(), mode: either },
        ),
        ("XattrSet trusted", Call::XattrSet { fid, name: trusted.clone(), value, mode: either }),
        ("XattrRemove user", Call::XattrRemove { fid, name: user }),
        ("XattrRemove trusted", Call::XattrRemove { fid, name: trusted }),
        ("VolumeStatus", Call::VolumeStatus { fid }),
        ("GetAcl", Call::GetAcl { fid }),
        ("SetAcl", Call::SetAcl { fid, list: Some(Acl::new().encode().into()), instead_of: None }),
        ("Rights", Call::Rights { fid }),
        ("Read", Call::Read { fid, offset: 0, length: 10 }),
        ("ReadPacked", Call::ReadPacked { fid, offset: 0, length: 10 }),
        ("NoteRead", Call::NoteRead { fid, was: Timestamp::new(5, 0), at: Timestamp::new(6, 0) }),
        ("Seek", Call::Seek { fid, offset: 0, what: SeekWhat::Data }),
        ("ReadSums", Call::ReadSums { fid, first: 0, count: 1 }),
        ("OpenBody", Call::OpenBody { fid }),
        ("Write", write.clone()),
        ("Allocate", Call::Allocate { fid, offset: 0, length: 10, mode: AllocateMode::Extend }),
        ("LendBody for reading", Call::LendBody { fid, how: Lending::Read }),
        ("LendBody for writing", Call::LendBody { fid, how: Lending::Write }),
        ("LendBody again", Call::LendBody { fid, how: Lending::Join }),
        ("SettleBody", Call::SettleBody { fid, back: true }),
        ("AdoptBody", Call::AdoptBody { fid, blank: 1 }),
        ("LendBlank", Call::LendBlank { fid }),
        ("Commit", Call::Commit { fid }),
        ("CommitVolume", Call::CommitVolume { fid }),
        ("Lock shared", lock(LockFamily::Posix, LockMode::Shared)),
        ("Lock exclusive", lock(LockFamily::Posix, LockMode::Exclusive)),
        ("Lock flock", lock(LockFamily::Flock, LockMode::Exclusive)),
        (
            "TestLock",
            Call::TestLock {
                fid,
                owner,
                family: LockFamily::Posix,
                range,
                mode: LockMode::Exclusive,
            },
        ),
        ("Open for reading", open(DataUse::Read, DataUse::Nothing)),
        ("Open for writing", open(DataUse::Write, DataUse::Nothing)),
        ("Open that denies", open(DataUse::Write, DataUse::Read)),
        ("Close", Call::Close { fid, open: OpenId(1) }),
        (
            "Downgrade",
            Call::Downgrade { fid, open: OpenId(1), access: DataUse::Read, deny: DataUse::Nothing },
        ),
        ("PersistLock", Call::PersistLock { fid, owner, pid: 1, range, how: PersistHow::New }),
        ("FinishLock", Call::FinishLock { fid, owner, range }),
        ("Unlock", Call::Unlock { fid, owner, family: LockFamily::Posix, range }),
        ("Hold", Call::Hold { fids: vec![fid] }),
        ("Unhold", Call::Unhold { fids: vec![fid] }),
        ("ReclaimDone", Call::ReclaimDone),
        ("Return", Call::Return { fids: vec![dir] }),
        ("Delegate", Call::Delegate { fid: dir }),
        ("Delegated", Call::Delegated { at: Timestamp::new(5, 0), slot: 0, call: Box::new(write) }),
    ]
}
