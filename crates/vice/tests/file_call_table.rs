//! Every call on files, made by every kind of caller, on a file that is closed to others and on one
//! that is open to all, in both access models: the allowed callers are listed here a second time,
//! call by call (AC-4).
//!
//! "May" means: the answer is neither `AccessDenied` nor `NotPermitted`. Each call is made in a
//! world of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{Ground, Rig, name};
use crate::file_calls::{Place, file_calls, place, set_list};
use bytes::Bytes;
use dafs::Procedure;
use guard::{Cps, Rights};
use types::{
    Answer, AuthLevel, Call, Caller, Cookie, CreateHow, Fault, Fid, KeyPrint, NewKind, PrincipalId,
    RemoveWhat, RequestIdentity, StatusChange, Timestamp,
};

const OWNER: u32 = 10;
const OTHER: u32 = 11;
const CHIEF: u32 = 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Model {
    ModeBits,
    Lists,
}

/// The caller of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Without proof, and with any number.
    Unknown(u32),
    /// With a token, or with the uid that a kernel reports.
    User(AuthLevel),
    Owner,
    /// In `system:administrators`.
    Administrator,
    /// A server whose key is not listed.
    Enrolling,
    /// A user of a trusted host.
    UserOfBelievedHost,
    OwnerOnBelievedHost,
    /// At the server's own socket, or a server.
    Superuser(AuthLevel),
    Expired,
}

const KINDS: [Kind; 13] = [
    Kind::Unknown(65534),
    Kind::Unknown(0),
    Kind::Unknown(OWNER),
    Kind::Enrolling,
    Kind::User(AuthLevel::Password),
    Kind::User(AuthLevel::Attested),
    Kind::Owner,
    Kind::Administrator,
    Kind::UserOfBelievedHost,
    Kind::OwnerOnBelievedHost,
    Kind::Superuser(AuthLevel::Named),
    Kind::Superuser(AuthLevel::Server),
    Kind::Expired,
];

/// The right that a call needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Want {
    /// No right.
    Nothing,
    /// A proved identity.
    Proof,
    /// Knowledge of the file: with mode bits its fid is enough.
    See,
    /// A bit, or a right, that is checked at each call of every caller.
    Name,
    /// Right to read or write data, which trusted hosts check themselves.
    Data,
    /// To own the file.
    Own,
    /// To administer the list.
    Administer,
    /// To be the superuser.
    Rule,
    /// To be the superuser or an administrator.
    Lead,
    /// Not supported in this model.
    Unsupported,
}

fn caller(kind: Kind) -> Caller {
    let with = |uid: u32, level| {
        let who = RequestIdentity {
            level,
            principal: PrincipalId(uid as i32),
            ..RequestIdentity::NOBODY
        };
        Caller { uid, gid: uid, groups: Some(Box::default()), who }
    };
    match kind {
        Kind::Unknown(uid) => {
            Caller { who: RequestIdentity::NOBODY, ..with(uid, AuthLevel::Nobody) }
        }
        Kind::Enrolling => {
            let owner = with(OWNER, AuthLevel::Enrolling);
            Caller {
                who: RequestIdentity { server: Some(KeyPrint([1; 32])), ..owner.who },
                ..owner
            }
        }
        Kind::User(level) => with(OTHER, level),
        Kind::Owner => with(OWNER, AuthLevel::Kerberos),
        Kind::Administrator => with(CHIEF, AuthLevel::Password),
        Kind::UserOfBelievedHost => with(OTHER, AuthLevel::Host),
        Kind::OwnerOnBelievedHost => with(OWNER, AuthLevel::Host),
        Kind::Superuser(level) => {
            Caller { who: RequestIdentity { level, ..RequestIdentity::NAMED }, ..Caller::ROOT }
        }
        Kind::Expired => {
            let owner = with(OWNER, AuthLevel::Password);
            Caller {
                who: RequestIdentity { ends: Some(Timestamp::new(1, 0)), ..owner.who },
                ..owner
            }
        }
    }
}

struct ByUid;

impl vice::Principals for ByUid {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let level = caller.who.level;
        let principal = if !level.is_proved() {
            PrincipalId::ANONYMOUS
        } else {
            PrincipalId(caller.uid as i32)
        };
        let groups =
            (caller.uid == CHIEF && level.is_proved()).then_some(PrincipalId::ADMINISTRATORS);
        Ok(Cps::new(principal, level, groups))
    }
}

/// Whether a caller may make the call on a file that only its owner may use.
fn may_closed(model: Model, want: Want, kind: Kind) -> bool {
    let superuser = matches!(kind, Kind::Superuser(_));
    let owner = superuser || matches!(kind, Kind::Owner | Kind::OwnerOnBelievedHost);
    let believed = owner || kind == Kind::UserOfBelievedHost;
    let administrator = owner || kind == Kind::Administrator;
    match (model, want) {
        (_, Want::Nothing | Want::Unsupported) => true,
        (_, Want::Proof) => !matches!(kind, Kind::Unknown(_) | Kind::Enrolling),
        (_, Want::Rule) => superuser,
        (_, Want::Lead) => superuser || kind == Kind::Administrator,
        (_, Want::Own | Want::Name) => owner,
        (Model::ModeBits, Want::See) => true,
        (Model::ModeBits, Want::Data) => believed,
        (Model::Lists, Want::Data) => owner,
        (Model::Lists, Want::See) | (_, Want::Administer) => administrator,
    }
}

/// Whether a caller may make the call on a file of the superuser that is open to all.
fn may_open(want: Want, kind: Kind) -> bool {
    match want {
        Want::Own | Want::Rule => matches!(kind, Kind::Superuser(_)),
        Want::Lead => matches!(kind, Kind::Superuser(_) | Kind::Administrator),
        Want::Proof => !matches!(kind, Kind::Unknown(_) | Kind::Enrolling),
        _ => true,
    }
}

struct World {
    rig: Rig,
    closed: Place,
    open: Place,
}

impl World {
    fn new(model: Model) -> World {
        World::on(Ground::memory(), model)
    }

    fn on(ground: Ground, model: Model) -> World {
        let mut rig = Rig::with_principals(ground, 2, Arc::new(ByUid));
        let root = rig.root();
        if model == Model::Lists {
            set_list(&mut rig, root, &[(PrincipalId::ANYBODY, Rights::LOOKUP)]);
        }
        let closed = place(&mut rig, root, "closed", (OWNER, OWNER), [0o700, 0o600]);
        let open = place(&mut rig, root, "open", (0, 0), [0o777, 0o666]);
        if model == Model::Lists {
            set_list(&mut rig, closed.dir, &[(PrincipalId(OWNER as i32), Rights::ALL)]);
            set_list(&mut rig, open.dir, &[(PrincipalId::ANYBODY, Rights::ALL)]);
        }
        World { rig, closed, open }
    }
}

/// The right that a call needs, by its label in the documents.
fn want(model: Model, label: &str) -> Want {
    let lists = model == Model::Lists;
    match label {
        "Root" | "VolumeStatus" | "Commit" | "CommitVolume" => Want::Nothing,
        // The session's own locks, holds and opens.
        "Close" | "Downgrade" | "FinishLock" | "Unlock" | "Hold" | "Unhold" | "ReclaimDone"
        | "Return" => Want::Nothing,
        // The session has no delegation, so the caller's rights do not matter.
        "Delegated" => Want::Nothing,
        "LendBlank" => Want::Proof,
        // Administrators may look up names everywhere where lists decide.
        "Lookup" | "ReadDir" if lists => Want::See,
        "Lookup" | "ReadDir" | "Make" | "MakeUnnamed" | "Link" | "Remove" | "Rename" => Want::Name,
        "Delegate" if lists => Want::Name,
        "Rights" if lists => Want::Nothing,
        "GetAcl" if lists => Want::See,
        "SetAcl" if lists => Want::Administer,
        "Rights" | "GetAcl" | "SetAcl" => Want::Unsupported,
        "ReadLink" | "GetStatus" | "XattrList" | "XattrGet trusted" | "SetStatus nothing"
        | "TestLock" => Want::See,
        "ByVnode" => Want::Lead,
        "SetStatus mode" | "SetStatus given times" => Want::Own,
        "SetStatus owner" | "XattrSet trusted" | "XattrRemove trusted" => Want::Rule,
        "SetStatus size by name" | "SetStatus times to now" => Want::Name,
        "XattrGet user" | "XattrSet user" | "XattrRemove user" => Want::Name,
        "SetStatus size through a handle" | "SetStatus set-id bits" | "Delegate" => Want::Data,
        "Read"
        | "ReadPacked"
        | "NoteRead"
        | "Seek"
        | "ReadSums"
        | "OpenBody"
        | "Open for reading"
        | "LendBody for reading" => Want::Data,
        "Write"
        | "Allocate"
        | "LendBody for writing"
        | "LendBody again"
        | "Open for writing"
        | "Open that denies"
        | "SettleBody"
        | "AdoptBody" => Want::Data,
        "Lock shared" | "Lock exclusive" | "Lock flock" | "PersistLock" => Want::Data,
        label => panic!("{label} is new: add the right that it needs"),
    }
}

/// Every call on files, with the right that it needs.
fn rows(model: Model, place: Place) -> Vec<(Want, Call)> {
    file_calls(place).into_iter().map(|(label, call)| (want(model, label), call)).collect()
}

/// Calls of these have tables of their own: `call_table.rs`.
fn is_elsewhere(procedure: Procedure) -> bool {
    let text = format!("{procedure:?}");
    let services = [
        "Volume",
        "Cell",
        "Pts",
        "Auth",
        "Guard",
        "Partitions",
        "Tasks",
        "ServerReport",
        "Scrub",
        "SetQuota",
    ];
    services.iter().any(|service| text.starts_with(service)) && procedure != Procedure::VolumeStatus
}

#[test]
fn ac4_each_call_on_files_asks_what_the_table_says() {
    let mut checked = 0;
    for model in [Model::ModeBits, Model::Lists] {
        let all = rows(model, World::new(model).closed);
        for (row, kind) in (0..all.len()).flat_map(|row| KINDS.map(|kind| (row, kind))) {
            for closed in [true, false] {
                // Bodies are loaned from a disk alone.
                let lends = matches!(all[row].1, Call::LendBody { .. } | Call::LendBlank { .. });
                let mut world =
                    World::on(if lends { Ground::disk() } else { Ground::memory() }, model);
                let place = if closed { world.closed } else { world.open };
                let (want, call) = rows(model, place).swap_remove(row);
                let what = format!(
                    "{model:?} {kind:?} {} {want:?} {call:?}",
                    if closed { "closed" } else { "open" }
                );
                let origin = world.rig.start(1, &caller(kind), call);
                let result = world.rig.reply(origin).unwrap_or_else(|| panic!("no answer: {what}"));
                checked += 1;
                if kind == Kind::Expired {
                    assert_eq!(result, Err(Fault::TokenExpired), "{what}");
                    continue;
                }
                let may = if closed { may_closed(model, want, kind) } else { may_open(want, kind) };
                let refused = matches!(result, Err(Fault::AccessDenied | Fault::NotPermitted));
                assert_eq!(may, !refused, "{what}: {result:?}");
                assert_eq!(
                    want == Want::Unsupported,
                    result == Err(Fault::Unsupported) && lacks_lists(&what),
                    "{what}"
                );
            }
        }
    }
    assert!(checked > 2000, "{checked}");
}

/// Bodies cannot always be loaned, with the same fault.
fn lacks_lists(what: &str) -> bool {
    ["GetAcl", "SetAcl", "Rights"].iter().any(|call| what.contains(call))
}

#[test]
fn ac4_every_call_on_files_is_in_the_table() {
    let place = World::new(Model::ModeBits).closed;
    let listed: BTreeSet<Procedure> =
        rows(Model::ModeBits, place).iter().map(|(_, call)| call.procedure()).collect();
    for procedure in Procedure::ALL.iter().filter(|procedure| !is_elsewhere(**procedure)) {
        assert!(listed.contains(procedure), "{procedure:?} has no row");
    }
}

/// Data that could be read and written at the open stays so, for the session that had it open and
/// no other.
#[test]
fn ac8_an_open_file_goes_on_after_a_chmod() {
    let World { mut rig, open, .. } = World::new(Model::ModeBits);
    let (other, fid) = (caller(Kind::User(AuthLevel::Password)), open.file);
    let read = Call::Read { fid, offset: 0, length: 10 };
    // Two clients read the file's status; one of them has it open.
    let late = rig.attach();
    for who in [1, late] {
        rig.call(who, &other, Call::GetStatus { fid }).unwrap();
    }
    rig.clients[1].open.insert(fid);
    let close = StatusChange { mode: Some(0o600), ..StatusChange::default() };
    rig.call(0, &Caller::ROOT, Call::SetStatus { fid, change: close }).unwrap();
    assert!(rig.call(1, &other, read.clone()).is_ok(), "it has it open");
    let write = Call::Write {
        fid,
        offset: None,
        data: Bytes::from_static(b"x"),
        stable: false,
        kill_privileges: false,
    };
    assert!(rig.call(1, &other, write).is_ok());
    assert_eq!(rig.call(late, &other, read.clone()), Err(Fault::AccessDenied), "it had it not");
    rig.call(1, &other, Call::Unhold { fids: vec![fid] }).unwrap();
    assert_eq!(rig.call(1, &other, read), Err(Fault::AccessDenied), "it was closed");
}

/// A session that changes the mode itself reports that others have the file open there.
#[test]
fn ac8_an_open_file_stays_usable_in_its_session_after_a_chmod() {
    for hold in [true, false] {
        let World { mut rig, open, .. } = World::new(Model::ModeBits);
        let (other, fid) = (caller(Kind::User(AuthLevel::Password)), open.file);
        let close = StatusChange { mode: Some(0o600), hold, ..StatusChange::default() };
        rig.call(1, &Caller::ROOT, Call::SetStatus { fid, change: close }).unwrap();
        let result = rig.call(1, &other, Call::Read { fid, offset: 0, length: 10 });
        assert_eq!(result.is_ok(), hold, "{result:?}");
    }
}

/// A directory that may be listed and not searched shows names, and no fids that reach the files.
#[test]
fn ac9_a_listing_without_search_shows_no_fids() {
    let World { mut rig, open, .. } = World::new(Model::ModeBits);
    let change = StatusChange { mode: Some(0o744), ..StatusChange::default() };
    rig.call(0, &Caller::ROOT, Call::SetStatus { fid: open.dir, change }).unwrap();
    let list = Call::ReadDir { dir: open.dir, cookie: Cookie::START, bytes_max: 9000, plus: true };
    let Ok(Answer::Entries { entries, .. }) =
        rig.call(1, &caller(Kind::User(AuthLevel::Password)), list.clone())
    else {
        panic!("it may be listed")
    };
    assert_eq!(entries.len(), 2);
    assert!(
        entries.iter().all(|entry| entry.fid.is_masked() && entry.status.is_none()),
        "{entries:?}"
    );
    let masked = Call::Read { fid: entries[0].fid, offset: 0, length: 10 };
    assert_eq!(rig.call(1, &caller(Kind::User(AuthLevel::Password)), masked), Err(Fault::Stale));
    let Ok(Answer::Entries { entries, .. }) = rig.call(1, &Caller::ROOT, list) else {
        panic!("it may be listed")
    };
    assert!(entries.iter().all(|entry| !entry.fid.is_masked()));
}

/// A caller that could not read a file in its directory cannot link it into another directory after
/// it lost its last name.
#[test]
fn ac9_a_removed_file_is_not_taken_elsewhere() {
    for model in [Model::ModeBits, Model::Lists] {
        let World { mut rig, closed, open } = World::new(model);
        let other = caller(Kind::User(AuthLevel::Password));
        let hold = Call::Hold { fids: vec![closed.file] };
        assert_eq!(rig.call(1, &other, hold), Ok(Answer::Done));
        let what = RemoveWhat::File;
        let remove = Call::Remove { dir: closed.dir, name: name(b"file"), what, hold: true };
        rig.call(0, &Caller::ROOT, remove).unwrap();
        let link = Call::Link { fid: closed.file, dir: open.dir, name: name(b"mine") };
        assert_eq!(rig.call(1, &other, link.clone()), Err(Fault::AccessDenied), "{model:?}");
        // The session that removed it still holds it; the one that claimed it without a right never
        // did.
        rig.call(0, &Caller::ROOT, Call::Unhold { fids: vec![closed.file] }).unwrap();
        assert_eq!(rig.call(1, &other, link), Err(Fault::Stale), "{model:?}");
    }
}

/// Breaks name the changed entry to a session as long as its right to list has been checked.
#[test]
fn ac1_breaks_name_entries_only_to_sessions_that_may_list() {
    for (model, mode, shown) in [(Model::ModeBits, 0o755, true), (Model::ModeBits, 0o711, false)] {
        let World { mut rig, open, .. } = World::new(model);
        let change = StatusChange { mode: Some(mode), ..StatusChange::default() };
        rig.call(0, &Caller::ROOT, Call::SetStatus { fid: open.dir, change }).unwrap();
        let lookup = Call::Lookup { dir: open.dir, name: name(b"file") };
        rig.call(1, &caller(Kind::User(AuthLevel::Password)), lookup).unwrap();
        let made = named_in_break(&mut rig, open.dir, "secret");
        assert_eq!(made, Some(shown), "{mode:o}");
    }
    // Where lists decide, a removed right is not checked again before the break.
    let World { mut rig, open, .. } = World::new(Model::Lists);
    let lookup = Call::Lookup { dir: open.dir, name: name(b"file") };
    rig.call(1, &caller(Kind::User(AuthLevel::Password)), lookup.clone()).unwrap();
    assert_eq!(named_in_break(&mut rig, open.dir, "first"), Some(true));
    rig.call(1, &caller(Kind::User(AuthLevel::Password)), lookup).unwrap();
    set_list(&mut rig, open.dir, &[(PrincipalId(OWNER as i32), Rights::ALL)]);
    assert_ne!(named_in_break(&mut rig, open.dir, "second"), Some(true));
}

/// Makes an entry; returns whether the other client's break names it, if there was one.
fn named_in_break(rig: &mut Rig, dir: Fid, called: &str) -> Option<bool> {
    rig.clients[1].broken.clear();
    let (kind, how) = (NewKind::File, CreateHow::Guarded);
    let made = rig.call(
        0,
        &Caller::ROOT,
        Call::Make { dir, name: name(called.as_bytes()), kind, mode: 0o600, how },
    );
    made.unwrap();
    let item = rig.clients[1].broken.iter().find(|item| item.fid == dir)?;
    Some(item.name.is_some())
}
