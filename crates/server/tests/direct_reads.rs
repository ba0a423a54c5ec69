//! Direct reads obey the rules of all others: each test first has the server answer from its
//! memory, and then takes away what allowed that.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use client::{CallError, ClientIdentity, CompletionGroup, Remote, Session, SessionConfig};
use mem::arena::{Arena, Buffer};
use server::CellPlace;
use types::{
    Answer, Call, Caller, DataUse, Fault, Fid, GuardCall, RemoveWhat, RequestIdentity, ShareKey,
    StatusChange, Whom, XattrMode,
};

use crate::common::*;

/// A session that has a lane.
struct Direct {
    session: Session,
    arena: Arc<Arena>,
    handle: u32,
}

const JOE: u32 = 4711;

fn uid(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED }
}

impl Direct {
    fn of(cell: &Cell) -> Direct {
        let mut config = SessionConfig::new(cell.unix(), ClientIdentity::fleeting());
        config.options.direct = true;
        let session = Session::connect(config).unwrap();
        let arena = Arena::create("test", 4 << 20).unwrap();
        let handle = session.add_region(&arena);
        Direct { session, arena, handle }
    }

    /// Of a user of this machine, whom the kernel attests. The thread takes on the user's number,
    /// so its connections are that user's.
    fn of_user(cell: &Cell, user: u32) -> Direct {
        use std::os::unix::fs::PermissionsExt;
        for (path, mode) in [(cell.path(""), 0o755), (cell.path("socket"), 0o666)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::thread::scope(|threads| {
            let of_user = || {
                let user = rustix::process::Uid::from_raw(user);
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                Direct::of(cell)
            };
            threads.spawn(of_user).join().unwrap()
        })
    }

    fn call(&self, caller: &Caller, call: Call, buffer: &Arc<Buffer>) -> Result<Answer, CallError> {
        let group = Arc::new(CompletionGroup::default());
        self.session.submit(caller, call, Some(buffer), (&group, 7))?;
        self.session.wait_for(&group, 1, None);
        let done = group.take().pop_front().unwrap();
        assert_eq!(done.tag, 7);
        done.result.map(|reply| reply.answer)
    }

    fn read_as(
        &self,
        caller: &Caller,
        fid: Fid,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, CallError> {
        let mut buffer = self.arena.buffer(length as usize).unwrap();
        buffer.fill(0xee);
        let buffer = Arc::new(buffer);
        match self.call(caller, Call::Read { fid, offset, length }, &buffer)? {
            Answer::Data { data, .. } => Ok(buffer[..data.len()].to_vec()),
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, fid: Fid, offset: u64, length: u32) -> Vec<u8> {
        self.read_as(&Caller::ROOT, fid, offset, length).unwrap()
    }

    fn write(&self, fid: Fid, offset: Option<u64>, bytes: &[u8]) -> u64 {
        let mut buffer = self.arena.buffer(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        let buffer = Arc::new(buffer);
        let data = Bytes::copy_from_slice(bytes);
        let call = Call::Write { fid, offset, data, stable: false, kill_privileges: false };
        match self.call(&Caller::ROOT, call, &buffer).unwrap() {
            Answer::Written { offset, count, .. } => {
                assert_eq!(count as usize, bytes.len());
                offset
            }
            other => panic!("{other:?}"),
        }
    }

    /// Reads until the server answers from memory.
    fn warm(&self, cell: &Cell, caller: &Caller, fid: Fid) {
        wait_for("an answer from memory", || {
            let before = hits(cell);
            self.read_as(caller, fid, 0, 100).unwrap();
            hits(cell) > before
        });
        assert!(self.session.has_lane());
    }
}

fn hits(cell: &Cell) -> u64 {
    let Answer::Report(report) = ask(&connect(cell.unix()), Call::ServerReport) else { panic!() };
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    report["server"]["lane_hits"].as_u64().unwrap()
}

fn pattern(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|at| (at % 251) as u8).collect()
}

/// A file that every user may read.
fn file(session: &Session, file: &str, bytes: u64) -> Fid {
    let fid = make(session, root(session), file);
    set_mode(session, fid, 0o644);
    for at in (0..bytes).step_by(1 << 20) {
        write(session, fid, at, pattern(at, bytes.min(at + (1 << 20))));
    }
    fid
}

fn set_mode(session: &Session, fid: Fid, mode: u16) {
    let change = StatusChange { mode: Some(mode), ..StatusChange::default() };
    ask(session, Call::SetStatus { fid, change });
}

#[test]
fn dr1_reads_of_every_place_and_length_are_the_files_bytes() {
    let cell = Cell::new();
    let (direct, other) = (Direct::of(&cell), connect(cell.unix()));
    for size in [1, 5000, 16_384, 100_000, 3_000_000] {
        let fid = file(&other, &size.to_string(), size);
        direct.warm(&cell, &Caller::ROOT, fid);
        for round in 0..3 {
            for (offset, length) in [
                (0, 1),
                (0, 4096),
                (1, 16_383),
                (16_383, 2),
                (16_384, 16_384),
                (70_001, 40_000),
                (size - 1, 1),
                (size - 1, 100),
                (size, 10),
                (size + 100_000, 10),
                (5, 1 << 20),
                (0, 1 << 20),
                (16_384, 1 << 20),
            ] {
                let end = (offset + u64::from(length)).min(size);
                let expected = if offset < end { pattern(offset, end) } else { Vec::new() };
                let found = direct.read(fid, offset, length);
                assert!(found == expected, "{size} {round}: {length} bytes from {offset} on");
            }
        }
    }
}

#[test]
fn dr2_no_read_is_older_than_an_acknowledged_change() {
    let cell = Cell::new();
    let (direct, other) = (Direct::of(&cell), connect(cell.unix()));
    let fid = file(&other, "file", 100_000);
    direct.warm(&cell, &Caller::ROOT, fid);
    let before = hits(&cell);
    for byte in 0..200_u8 {
        write(&other, fid, 20_000, vec![byte; 10]);
        assert_eq!(direct.read(fid, 20_000, 10), [byte; 10], "another session wrote");
        assert_eq!(direct.read(fid, 20_005, 10)[..5], [byte; 5]);
        direct.write(fid, Some(20_000), &[byte ^ 0xff; 10]);
        assert_eq!(direct.read(fid, 20_000, 10), [byte ^ 0xff; 10], "the session itself wrote");
    }
    assert!(hits(&cell) > before, "memory answered some of them");
    // A reader that never stops, and changes that it must see in their order.
    let (acknowledged, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let reads = AtomicU64::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                let least = acknowledged.load(Ordering::SeqCst);
                let bytes: [u8; 8] = direct.read(fid, 50_000, 8).try_into().unwrap();
                let found = u64::from_le_bytes(bytes);
                assert!(found >= least, "{found} after {least} was acknowledged");
                reads.fetch_add(1, Ordering::SeqCst);
            }
        });
        write(&other, fid, 50_000, vec![0; 8]);
        for number in 1..2000_u64 {
            write(&other, fid, 50_000, number.to_le_bytes().to_vec());
            acknowledged.store(number, Ordering::SeqCst);
        }
        ends.store(true, Ordering::SeqCst);
    });
    assert!(reads.load(Ordering::SeqCst) > 100);
}

#[test]
fn dr3_lost_rights_end_at_once() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(
            std::io::stderr(),
            "\nSKIP unit: dr3_lost_rights_end_at_once: only root can connect as another user"
        );
        return;
    }
    let cell = Cell::new();
    let (direct, other) = (Direct::of_user(&cell, JOE), connect(cell.unix()));
    let (fid, joe) = (file(&other, "file", 50_000), uid(JOE));
    for _ in 0..3 {
        direct.warm(&cell, &joe, fid);
        set_mode(&other, fid, 0o600);
        let before = hits(&cell);
        // The name that it gives does not matter.
        for caller in [&joe, &Caller::ROOT] {
            let refused = direct.read_as(caller, fid, 0, 10).unwrap_err();
            assert_eq!(refused.fault(), Some(Fault::AccessDenied), "the mode has changed");
        }
        assert_eq!(hits(&cell), before);
        set_mode(&other, fid, 0o644);
    }
}

#[test]
fn dr4_a_file_that_is_cut_or_removed_is_so_at_once() {
    let cell = Cell::new();
    let (direct, other) = (Direct::of(&cell), connect(cell.unix()));
    let fid = file(&other, "file", 50_000);
    direct.warm(&cell, &Caller::ROOT, fid);
    let change = StatusChange { size: Some(20_000), ..StatusChange::default() };
    ask(&other, Call::SetStatus { fid, change });
    assert_eq!(direct.read(fid, 19_990, 100), pattern(19_990, 20_000));
    assert!(direct.read(fid, 30_000, 100).is_empty());
    direct.warm(&cell, &Caller::ROOT, fid);
    let (dir, what) = (root(&other), RemoveWhat::File);
    ask(&other, Call::Remove { dir, name: name("file"), what, hold: false });
    let gone = direct.read_as(&Caller::ROOT, fid, 0, 10);
    assert_eq!(gone.unwrap_err().fault(), Some(Fault::Stale));
}

#[test]
fn dr9_a_session_reads_what_it_changed_itself() {
    let cell = Cell::new();
    let direct = Direct::of(&cell);
    let session = &direct.session;
    let fid = file(session, "file", 50_000);
    let status = || {
        let buffer = Arc::new(direct.arena.buffer(10).unwrap());
        let call = Call::Read { fid, offset: 0, length: 10 };
        match direct.call(&Caller::ROOT, call, &buffer).unwrap() {
            Answer::Data { status, .. } => status,
            other => panic!("{other:?}"),
        }
    };
    direct.warm(&cell, &Caller::ROOT, fid);
    set_mode(session, fid, 0o640);
    assert_eq!(status().mode, 0o640);
    direct.warm(&cell, &Caller::ROOT, fid);
    let (key, value) = (Bytes::from_static(b"user.key"), Bytes::from_static(b"value"));
    let before = status().status_version;
    ask(session, Call::XattrSet { fid, name: key, value, mode: XattrMode::Either });
    assert!(status().status_version > before);
    direct.warm(&cell, &Caller::ROOT, fid);
    direct.write(fid, Some(0), &[7; 10]);
    assert_eq!(direct.read(fid, 0, 10), [7; 10]);
    direct.warm(&cell, &Caller::ROOT, fid);
    let change = StatusChange { size: Some(5), ..StatusChange::default() };
    ask(session, Call::SetStatus { fid, change });
    assert_eq!(direct.read(fid, 0, 10), [7; 5]);
    direct.warm(&cell, &Caller::ROOT, fid);
    let (dir, link) = (root(session), name("link"));
    ask(session, Call::Link { fid, dir, name: link.clone() });
    assert_eq!(status().links, 2);
    direct.warm(&cell, &Caller::ROOT, fid);
    let what = RemoveWhat::File;
    ask(session, Call::Remove { dir, name: link, what, hold: false });
    assert_eq!(status().links, 1);
    direct.warm(&cell, &Caller::ROOT, fid);
    ask(session, Call::Remove { dir, name: name("file"), what, hold: false });
    let gone = direct.read_as(&Caller::ROOT, fid, 0, 10);
    assert_eq!(gone.unwrap_err().fault(), Some(Fault::Stale));
}

#[test]
fn dr5_a_fence_stops_reads_from_memory() {
    let cell = Cell::with(|config| {
        config.cell =
            Some(CellPlace::Here(config.unix_socket.as_ref().unwrap().with_file_name("celldb")));
    });
    let (direct, other) = (Direct::of(&cell), connect(cell.unix()));
    let (fid, joe) = (file(&other, "file", 50_000), uid(JOE));
    direct.warm(&cell, &joe, fid);
    let client = direct.session.connection().client.unwrap();
    let call = GuardCall::AddFence { whom: Whom::Client(client), seconds: 0, why: "test".into() };
    let fenced = ask(&other, Call::Guard { behalf: None, call: Box::new(call) });
    assert!(matches!(fenced, Answer::Enforced { .. }));
    let before = hits(&cell);
    assert!(direct.read_as(&joe, fid, 0, 10).is_err(), "the fence is in force");
    assert_eq!(hits(&cell), before);
}

#[test]
fn sh2_an_open_that_denies_reading_stops_reads_from_memory() {
    let cell = Cell::new();
    let (direct, holder) = (Direct::of(&cell), Direct::of(&cell));
    let fid = file(&direct.session, "file", 50_000);
    direct.warm(&cell, &Caller::ROOT, fid);
    let open = |deny, key| {
        let access = DataUse::Both;
        let call = Call::Open { fid, access, deny, key, claims: false };
        let Answer::Opened { open, .. } = ask(&holder.session, call) else { panic!() };
        open
    };
    let key = Some(ShareKey([5; 16]));
    for (deny, key, refusal) in [
        (DataUse::Read, None, Fault::ShareConflict),
        (DataUse::Both, None, Fault::ShareConflict),
        (DataUse::Nothing, key, Fault::KeyConflict),
    ] {
        direct.warm(&cell, &Caller::ROOT, fid);
        let made = open(deny, key);
        let before = hits(&cell);
        // The first one asks the service, and leaves no view for the others.
        for _ in 0..20 {
            let refused = direct.read_as(&Caller::ROOT, fid, 0, 100).unwrap_err();
            assert_eq!(refused.fault(), Some(refusal));
        }
        assert_eq!(hits(&cell), before, "memory answered none");
        // The holder itself is answered from memory.
        holder.warm(&cell, &Caller::ROOT, fid);
        ask(&holder.session, Call::Close { fid, open: made });
        assert_eq!(direct.read(fid, 0, 100), pattern(0, 100));
    }
    open(DataUse::Write, None);
    direct.warm(&cell, &Caller::ROOT, fid);
}

#[test]
fn dr6_appends_get_their_places_from_the_server() {
    let cell = Cell::new();
    let (direct, other) = (Direct::of(&cell), connect(cell.unix()));
    let fid = file(&other, "file", 1);
    direct.warm(&cell, &Caller::ROOT, fid);
    let mut expected = pattern(0, 1);
    for round in 0..20_u8 {
        append(&other, fid, vec![round; 3]).unwrap();
        expected.extend([round; 3]);
        assert_eq!(direct.write(fid, None, &[0x80 | round; 5]), expected.len() as u64);
        expected.extend([0x80 | round; 5]);
    }
    assert_eq!(direct.read(fid, 0, 4096), expected);
}

#[test]
fn dr7_a_lost_connection_and_a_new_server_are_survived() {
    let mut cell = Cell::new();
    let direct = Direct::of(&cell);
    let fid = file(&direct.session, "file", 200_000);
    direct.warm(&cell, &Caller::ROOT, fid);
    let group = Arc::new(CompletionGroup::default());
    for round in 0..10 {
        let buffers: Vec<Arc<Buffer>> =
            (0..64).map(|_| Arc::new(direct.arena.buffer(3000).unwrap())).collect();
        for (tag, buffer) in buffers.iter().enumerate() {
            let call = Call::Read { fid, offset: tag as u64 * 3001, length: 3000 };
            let memory = Some(buffer);
            let into = (&group, tag as u64);
            direct.session.submit(&Caller::ROOT, call, memory, into).unwrap();
            if tag == 30 && round % 2 == 0 {
                direct.session.cut_connections();
            } else if tag == 30 && round == 5 {
                cell.crash();
                cell.start();
            }
        }
        direct.session.wait_for(&group, 64, None);
        let mut done = group.take();
        assert_eq!(done.len(), 64, "each operation ends once");
        for completed in done.drain(..) {
            let Answer::Data { data, .. } = completed.result.unwrap().answer else { panic!() };
            let from = completed.tag * 3001;
            assert!(buffers[completed.tag as usize][..data.len()] == pattern(from, from + 3000));
        }
    }
    direct.warm(&cell, &Caller::ROOT, fid);
}

#[test]
fn dr8_a_region_that_ends_is_not_used_any_more() {
    let cell = Cell::new();
    let direct = Direct::of(&cell);
    let fid = file(&direct.session, "file", 50_000);
    direct.warm(&cell, &Caller::ROOT, fid);
    let more = Arena::create("more", 1 << 20).unwrap();
    let handle = direct.session.add_region(&more);
    let second = Direct { session: direct.session, arena: more, handle };
    assert_eq!(second.read(fid, 7, 10), pattern(7, 17));
    second.warm(&cell, &Caller::ROOT, fid);
    second.session.end_region(handle);
    let first = Direct { handle: direct.handle, arena: direct.arena, session: second.session };
    assert_eq!(first.read(fid, 8, 10), pattern(8, 18));
    first.warm(&cell, &Caller::ROOT, fid);
}
