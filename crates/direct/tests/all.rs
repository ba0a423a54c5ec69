//! Programs on a server: the operations, paths, groups, and what ends badly.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod persistent_locks;
#[path = "../../server/tests/proxy/mod.rs"]
mod proxy;
mod sharing;
mod sharing_model;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use rialto_client::{
    Buffer, Completion, DirectCell, DirectError, DirectFile, DirectOptions, Group, Memory, list,
    make_directory, remove, rename, status,
};
use rialto_client::{FileReader, FileWriter};
use server::{Server, ServerConfig, StartError};
use store::{NewRoot, OpenError, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use types::{
    Answer, Call, Caller, CreateHow, Fault, Fid, Kind, Name, NewKind, RemoveWhat, Timestamp,
    VolumeCall,
};

const MIB: usize = 1 << 20;
const CHILD: &str = "RIALTO_DIRECT_CHILD";

/// A server whose tree begins at the volume `root`.
struct Served {
    dir: tempfile::TempDir,
    config: ServerConfig,
    server: Option<Server>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn make_partition(path: &Path) {
    let config = PartitionConfig { server: "test".into() };
    let partition = Partition::create(path, &config, OpenOptions::default()).unwrap();
    let (now, quota) = (Timestamp::new(1, 0), VolumeQuota::default());
    let root = NewRoot { mode: 0o755, uid: 0, gid: 0, now, quota };
    partition.volumes().create_volume(&name("root"), &root).unwrap();
    partition.sync().unwrap();
}

fn config(dir: &Path) -> ServerConfig {
    let mut config = ServerConfig::new(dir.join("vicepa"));
    config.unix_socket = Some(dir.join("socket"));
    config.tcp_listen = Some("127.0.0.1:0".into());
    config.trust_this_machine();
    config
}

fn options(server: Endpoint) -> DirectOptions {
    DirectOptions { root: "root".to_owned(), ..DirectOptions::new(server) }
}

impl Served {
    fn new() -> Served {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ServerConfig)) -> Served {
        let dir = tempfile::tempdir().unwrap();
        make_partition(&dir.path().join("vicepa"));
        let mut config = config(dir.path());
        change(&mut config);
        let mut served = Served { dir, config, server: None };
        served.start();
        served
    }

    fn start(&mut self) {
        let until = Instant::now() + Duration::from_secs(30);
        self.server = loop {
            match Server::start(&self.config) {
                // A thread of the earlier instance may still have it, since the process goes on.
                Err(StartError::Partition { error: OpenError::InUse { .. }, .. })
                    if Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                started => break Some(started.unwrap()),
            }
        };
    }

    /// Looks like a crash to others.
    fn crash(&mut self) {
        drop(self.server.take());
    }

    fn unix(&self) -> Endpoint {
        Endpoint::Unix(self.dir.path().join("socket"))
    }

    fn tcp(&self) -> Endpoint {
        let all = self.server.as_ref().unwrap().endpoints();
        all.iter().find(|one| matches!(one, Endpoint::Tcp(_))).unwrap().clone()
    }

    fn cell(&self) -> DirectCell {
        DirectCell::connect(options(self.unix())).unwrap()
    }

    fn session(&self) -> Session {
        Session::connect(SessionConfig::new(self.unix(), ClientIdentity::fleeting())).unwrap()
    }
}

fn pattern(from: u64, bytes: usize) -> Vec<u8> {
    (from..from + bytes as u64).map(|at| (at % 253) as u8).collect()
}

fn buffer(memory: &Memory, content: &[u8]) -> Buffer {
    let mut buffer = memory.buffer(content.len()).unwrap();
    buffer.copy_from_slice(content);
    buffer
}

fn one(group: &Group) -> Completion {
    let mut all = group.wait(1, Some(Duration::from_secs(30)));
    assert_eq!(all.len(), 1, "one operation was begun");
    all.pop().unwrap()
}

fn read(memory: &Memory, file: &DirectFile, offset: u64, bytes: usize) -> Vec<u8> {
    let group = Group::new();
    file.read(&group, memory.buffer(bytes).unwrap(), offset, 1).unwrap();
    let Completion { buffer, result, .. } = one(&group);
    buffer[..result.unwrap().bytes].to_vec()
}

#[test]
fn what_is_written_is_read_over_every_transport() {
    let served = Served::new();
    for (at, server) in [served.unix(), served.tcp()].into_iter().enumerate() {
        let cell = DirectCell::connect(options(server)).unwrap();
        let memory = cell.memory(16 * MIB).unwrap();
        let file = DirectFile::create(&cell, &format!("file {at}"), 0o644).unwrap();
        let group = Group::new();
        for part in 0..40_u64 {
            let content = pattern(part * 70_001, 70_001);
            file.write(&group, buffer(&memory, &content), part * 70_001, part).unwrap();
        }
        let mut tags: Vec<u64> = Vec::new();
        while !group.is_empty() {
            for completion in group.wait(7, None) {
                let moved = completion.result.unwrap();
                assert_eq!((moved.bytes, moved.offset), (70_001, Some(completion.tag * 70_001)));
                tags.push(completion.tag);
            }
        }
        tags.sort_unstable();
        assert_eq!(tags, (0..40).collect::<Vec<u64>>(), "each ends once");
        file.commit().unwrap();
        assert_eq!(file.status().unwrap().size, 40 * 70_001);
        for (offset, bytes) in [(0, MIB), (1, MIB), (123_456, 7), (40 * 70_001 - 5, 100)] {
            let end = (offset as usize + bytes).min(40 * 70_001);
            assert!(read(&memory, &file, offset, bytes) == pattern(offset, end - offset as usize));
        }
        assert!(read(&memory, &file, 1 << 40, 10).is_empty());
        assert_eq!(cell.has_lane(), at == 0, "memory is shared on one host alone");
        file.set_size(10).unwrap();
        assert_eq!(read(&memory, &file, 5, 100), pattern(5, 5));
    }
}

#[test]
fn streams_bring_every_byte_in_order() {
    use std::io::{Read, Write};
    let served = Served::new();
    let cell = served.cell();
    for bytes in [0, 1, MIB - 1, MIB, MIB + 1, 8 * MIB, 20 * MIB + 12_345] {
        let file = DirectFile::create(&cell, &bytes.to_string(), 0o644).unwrap();
        let mut writer = FileWriter::new(&cell, file.clone()).unwrap();
        let content = pattern(0, bytes);
        for part in content.chunks(777_777) {
            writer.write_all(part).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(file.status().unwrap().size, bytes as u64);
        let mut found = Vec::new();
        FileReader::new(&cell, file).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == content, "{bytes} bytes");
    }
    let dir = DirectFile::open(&cell, "/").unwrap();
    let mut reader = FileReader::new(&cell, dir).unwrap();
    assert!(reader.read(&mut [0; 10]).is_err(), "a directory is no stream");
}

#[test]
fn groups_return_what_is_complete_and_wait_no_longer() {
    let served = Served::new();
    let cell = served.cell();
    let memory = cell.memory(MIB).unwrap();
    let file = DirectFile::create(&cell, "file", 0o644).unwrap();
    let (first, second) = (Group::new(), Group::new());
    assert!(first.wait(5, None).is_empty(), "nothing was begun");
    let began = Instant::now();
    assert!(first.wait(1, Some(Duration::from_millis(50))).is_empty());
    assert!(began.elapsed() < Duration::from_secs(5), "there is nothing to wait for");
    for tag in 0..10 {
        file.append(&first, buffer(&memory, &[tag as u8; 100]), tag).unwrap();
        file.append(&second, buffer(&memory, &[0x80 | tag as u8; 100]), tag).unwrap();
    }
    let mut done = first.wait(10, None);
    assert_eq!((done.len(), first.len()), (10, 0));
    while done.len() < 20 {
        done.extend(second.poll());
    }
    let mut offsets: Vec<u64> =
        done.iter().map(|completion| completion.result.as_ref().unwrap().offset.unwrap()).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, (0..20).map(|at| at * 100).collect::<Vec<u64>>());
    for completion in &done {
        let at = completion.result.as_ref().unwrap().offset.unwrap();
        assert!(read(&memory, &file, at, 100) == completion.buffer[..], "each is in its place");
    }
}

#[test]
fn threads_share_a_session_and_each_gets_its_own() {
    let served = Served::new();
    let cell = served.cell();
    let memory = cell.memory(8 * MIB).unwrap();
    let file = DirectFile::create(&cell, "file", 0o644).unwrap();
    let group = Group::new();
    file.write(&group, buffer(&memory, &pattern(0, MIB)), 0, 0).unwrap();
    one(&group).result.unwrap();
    std::thread::scope(|threads| {
        for thread in 0..4_u64 {
            let (memory, file) = (&memory, &file);
            threads.spawn(move || {
                let group = Group::new();
                for round in 0..500_u64 {
                    let at = (thread * 7919 + round * 104_729) % (MIB as u64 - 5000);
                    file.read(&group, memory.buffer(5000).unwrap(), at, at).unwrap();
                    if group.len() == 8 || round == 499 {
                        for completion in group.wait(3, None) {
                            completion.result.unwrap();
                            assert!(completion.buffer[..] == pattern(completion.tag, 5000));
                        }
                    }
                }
                group.wait(usize::MAX, None);
            });
        }
    });
}

#[test]
fn threads_that_wait_for_one_group_all_go_on() {
    let served = Served::new();
    let cell = served.cell();
    let memory = cell.memory(4 * MIB).unwrap();
    let file = DirectFile::create(&cell, "file", 0o644).unwrap();
    let group = Group::new();
    for _ in 0..200 {
        for tag in 0..12 {
            file.append(&group, buffer(&memory, &[1; 8]), tag).unwrap();
        }
        let taken: usize = std::thread::scope(|threads| {
            let wait = || threads.spawn(|| group.wait(5, None).len());
            let all: Vec<_> = (0..3).map(|_| wait()).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(taken + group.wait(usize::MAX, None).len() == 12);
    }
}

#[test]
fn memory_that_is_given_up_is_the_servers_no_more() {
    let served = Served::new();
    let cell = served.cell();
    let memory = cell.memory(MIB).unwrap();
    let file = DirectFile::create(&cell, "file", 0o644).unwrap();
    let group = Group::new();
    file.write(&group, buffer(&memory, &pattern(0, 5000)), 0, 0).unwrap();
    one(&group).result.unwrap();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut before = 0;
    for round in 0..300 {
        let memory = cell.memory(64 << 10).unwrap();
        assert_eq!(read(&memory, &file, 100, 50), pattern(100, 50));
        if round == 20 {
            before = descriptors();
        }
    }
    assert!(cell.has_lane());
    assert!(descriptors() < before + 20, "{} after {before}", descriptors());
    make_directory(&cell, "dir/", 0o755).unwrap();
}

#[test]
fn a_cancelled_operation_completes_once() {
    let served = Served::new();
    let cell = served.cell();
    let memory = cell.memory(8 * MIB).unwrap();
    let file = DirectFile::create(&cell, "file", 0o644).unwrap();
    let group = Group::new();
    assert_eq!(group.cancel(7), 0, "there is none");
    // More than a session has slots: the last ones wait here.
    for round in 0..20_u64 {
        for tag in 0..400 {
            file.append(&group, buffer(&memory, &[round as u8; 8]), tag).unwrap();
        }
        assert!((390..400).map(|tag| group.cancel(tag)).sum::<usize>() <= 10);
        let before = file.status().unwrap().size;
        let done = group.wait(400, None);
        let mut tags: Vec<u64> = done.iter().map(|completion| completion.tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, (0..400).collect::<Vec<u64>>(), "each completes once");
        let cancelled = done.iter().filter(|completion| {
            matches!(completion.result, Err(DirectError::Refused(Fault::Cancelled)))
        });
        let applied = done.iter().filter(|completion| completion.result.is_ok()).count();
        assert_eq!(cancelled.count() + applied, 400);
        let size = file.status().unwrap().size;
        assert!(size >= before && size.is_multiple_of(8));
        let total = u64::from_le_bytes(read(&memory, &file, 0, 8).try_into().unwrap());
        assert_eq!(total, 0, "the first round's bytes");
        assert!(size <= (round + 1) * 400 * 8);
    }
}

#[test]
fn memory_of_a_group_that_is_dropped_stays_the_servers() {
    let served = Served::new();
    let cell = served.cell();
    let memory = cell.memory(4 * MIB).unwrap();
    let file = DirectFile::create(&cell, "file", 0o644).unwrap();
    let group = Group::new();
    file.write(&group, buffer(&memory, &vec![1; MIB]), 0, 0).unwrap();
    one(&group).result.unwrap();
    for round in 0..200 {
        let group = Group::new();
        for part in 0..16 {
            let buffer = memory.buffer(64 << 10).unwrap();
            file.read(&group, buffer, part << 16, part).unwrap();
        }
        drop(group);
        // The reads that go on do not write into memory that is free now.
        let last = memory.buffer(100).unwrap();
        let mut free: Vec<Buffer> = std::iter::from_fn(|| memory.buffer(64 << 10)).collect();
        free.iter_mut().for_each(|buffer| buffer.fill(2));
        let group = Group::new();
        file.read(&group, last, 0, 0).unwrap();
        one(&group).result.unwrap();
        assert!(free.iter().all(|buffer| buffer.iter().all(|byte| *byte == 2)), "{round}");
    }
}

#[test]
fn operations_that_cannot_begin_give_their_buffers_back() {
    let served = Served::new();
    let cell = served.cell();
    let memory = cell.memory(4 * MIB).unwrap();
    let file = DirectFile::create(&cell, "file", 0o644).unwrap();
    let group = Group::new();
    for bytes in [0, MIB + 1] {
        let refused = file.read(&group, memory.buffer(bytes).unwrap(), 0, 1).unwrap_err();
        assert!(matches!(refused.error, DirectError::Length(it) if it == bytes));
        assert_eq!(refused.buffer.len(), bytes);
    }
    assert!(group.is_empty());
    remove(&cell, "file", RemoveWhat::File).unwrap();
    file.read(&group, memory.buffer(10).unwrap(), 0, 1).unwrap();
    let ended = one(&group);
    assert!(matches!(ended.result, Err(DirectError::Refused(Fault::Stale))));
    assert_eq!(ended.buffer.len(), 10);
    assert!(matches!(DirectFile::open(&cell, "file"), Err(DirectError::Refused(Fault::NotFound))));
    assert!(matches!(DirectFile::open(&cell, "a\0b"), Err(DirectError::BadPath)));
}

#[test]
fn paths_follow_links_and_mount_points() {
    let served = Served::new();
    let (cell, session) = (served.cell(), served.session());
    let ask = |call| session.call(&Caller::ROOT, call, None).unwrap().answer;
    let create = VolumeCall::Create {
        id: None,
        partition: None,
        name: name("data"),
        quota_bytes: 0,
        quota_files: 0,
        owner: (0, 0),
        encrypt: None,
    };
    ask(Call::Volume(create));
    make_directory(&cell, "a", 0o755).unwrap();
    make_directory(&cell, "/a/b/", 0o755).unwrap();
    let special = |dir: Fid, text: &str, kind: NewKind| {
        let (mode, how) = (0o777, CreateHow::Guarded);
        ask(Call::Make { dir, name: name(text), kind, mode, how });
    };
    let dir = |path| status(&cell, path, true).unwrap().fid;
    special(dir("a"), "data", NewKind::MountPoint(bytes::Bytes::from_static(b"#data")));
    special(dir("a/b"), "up", NewKind::Symlink(bytes::Bytes::from_static(b"../data/sub")));
    special(dir("a/b"), "out", NewKind::Symlink(bytes::Bytes::from_static(b"/etc/passwd")));
    special(dir("a/b"), "loop", NewKind::Symlink(bytes::Bytes::from_static(b"loop")));
    make_directory(&cell, "a/data/sub", 0o755).unwrap();
    let memory = cell.memory(MIB).unwrap();
    let file = DirectFile::create(&cell, "a/data/sub/file", 0o644).unwrap();
    let group = Group::new();
    file.write(&group, buffer(&memory, b"in another volume"), 0, 1).unwrap();
    one(&group).result.unwrap();
    for path in
        ["a/data/sub/file", "a/b/up/file", "/a//b/./up/../sub/file", "a/data/../data/sub/file"]
    {
        let file = DirectFile::open(&cell, path).unwrap();
        assert_eq!(read(&memory, &file, 0, 100), b"in another volume", "{path}");
    }
    assert_ne!(dir("a/data").volume, dir("a").volume);
    let mut names: Vec<(String, Kind)> = list(&cell, "a/b")
        .unwrap()
        .into_iter()
        .map(|entry| (String::from_utf8(entry.name.as_bytes().to_vec()).unwrap(), entry.kind))
        .collect();
    names.sort_by(|one, other| one.0.cmp(&other.0));
    let links = ["loop", "out", "up"].map(|name| (name.to_owned(), Kind::Symlink));
    assert_eq!(names, links);
    assert_eq!(status(&cell, "a/b/out", false).unwrap().kind, Kind::Symlink);
    assert!(matches!(status(&cell, "a/b/out", true), Err(DirectError::AbsoluteLink)));
    assert!(matches!(status(&cell, "a/b/loop", true), Err(DirectError::TooManyLinks)));
    assert!(matches!(
        status(&cell, "a/data/sub/file/below", true),
        Err(DirectError::Refused(Fault::NotDirectory))
    ));
    let crossing = rename(&cell, "a/data/sub/file", "a/b/file", true);
    assert!(matches!(crossing, Err(DirectError::Refused(Fault::CrossVolume))));
}

#[test]
fn a_new_name_replaces_a_file_only_if_that_is_asked_for() {
    let served = Served::new();
    let cell = served.cell();
    make_directory(&cell, "dir", 0o755).unwrap();
    let (first, second) = ("first", "dir/second");
    DirectFile::create_new(&cell, first, 0o644).unwrap();
    let again = DirectFile::create_new(&cell, first, 0o644);
    assert!(matches!(again, Err(DirectError::Refused(Fault::Exists))));
    DirectFile::create_new(&cell, second, 0o644).unwrap().set_size(7).unwrap();
    let refused = rename(&cell, second, first, false);
    assert!(matches!(refused, Err(DirectError::Refused(Fault::Exists))));
    assert_eq!(status(&cell, first, true).unwrap().size, 0);
    rename(&cell, second, first, true).unwrap();
    assert_eq!(status(&cell, first, true).unwrap().size, 7);
    assert!(list(&cell, "dir").unwrap().is_empty());
}

#[test]
fn a_program_and_a_session_see_each_others_changes() {
    let served = Served::new();
    let (cell, session) = (served.cell(), served.session());
    let memory = cell.memory(MIB).unwrap();
    let file = DirectFile::create(&cell, "file", 0o644).unwrap();
    let fid = status(&cell, "file", true).unwrap().fid;
    let group = Group::new();
    for round in 0..100_u8 {
        let data = bytes::Bytes::from(vec![round; 20_000]);
        let (offset, stable, kill_privileges) = (Some(0), false, false);
        let call = Call::Write { fid, offset, data, stable, kill_privileges };
        session.call(&Caller::ROOT, call, None).unwrap();
        assert!(read(&memory, &file, 17_000, 3000) == vec![round; 3000]);
        file.write(&group, buffer(&memory, &[0xff; 10]), 17_000, 1).unwrap();
        one(&group).result.unwrap();
        let call = Call::Read { fid, offset: 16_999, length: 12 };
        let Answer::Data { data, .. } = session.call(&Caller::ROOT, call, None).unwrap().answer
        else {
            panic!("data")
        };
        assert_eq!((data[0], data[1], data[10], data[11]), (round, 0xff, 0xff, round));
    }
}

/// The server's process that is killed.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let server = Server::start(&config(Path::new(&dir))).unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    server.stop().unwrap();
}

fn spawn(dir: &Path) -> Child {
    spawn_test("child", (CHILD, dir))
}

/// Runs a test of this program in a process of its own, with a variable in its environment.
fn spawn_test(test: &str, (variable, value): (&str, &Path)) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(variable, value);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn wait_for_socket(socket: &Path) {
    let until = Instant::now() + Duration::from_secs(30);
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < until, "the server does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How often the server is killed: RIALTO_KILLS in the environment, or a few times.
fn kills() -> u32 {
    std::env::var("RIALTO_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

#[test]
fn appends_are_applied_once_however_often_the_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    make_partition(&dir.path().join("vicepa"));
    let mut child = spawn(dir.path());
    let socket = dir.path().join("socket");
    wait_for_socket(&socket);
    let cell = DirectCell::connect(options(Endpoint::Unix(socket))).unwrap();
    let memory = cell.memory(4 * MIB).unwrap();
    let file = DirectFile::create(&cell, "file", 0o644).unwrap();
    let (group, mut next, mut offsets) = (Group::new(), 0_u64, Vec::new());
    let mut killed = 0;
    let step = |group: &Group, next: &mut u64, offsets: &mut Vec<(u64, u64)>, most: u64| {
        while group.len() < 32 && *next < most {
            let content = next.to_le_bytes();
            file.append(group, buffer(&memory, &content), *next).unwrap();
            *next += 1;
        }
        for completion in group.wait(8, None) {
            let moved = completion.result.unwrap();
            offsets.push((moved.offset.unwrap(), completion.tag));
        }
    };
    while killed < kills() {
        let most = next + 150 + u64::from(killed % 7) * 40;
        while next < most {
            step(&group, &mut next, &mut offsets, most);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        child = spawn(dir.path());
        killed += 1;
    }
    let most = next + 100;
    while offsets.len() < most as usize {
        step(&group, &mut next, &mut offsets, most);
    }
    offsets.sort_unstable();
    let expected = (0..most).map(|at| at * 8).collect::<Vec<u64>>();
    let found: Vec<u64> = offsets.iter().map(|(offset, _)| *offset).collect();
    assert!(found == expected, "each append has a place of its own, and none is between them");
    let mut tags: Vec<u64> = Vec::new();
    for (offset, tag) in &offsets {
        let bytes = read(&memory, &file, *offset, 8);
        assert_eq!(bytes, tag.to_le_bytes(), "at {offset}");
        tags.push(*tag);
    }
    tags.sort_unstable();
    assert!(tags == (0..most).collect::<Vec<u64>>());
    assert_eq!(file.status().unwrap().size, most * 8, "nothing was applied twice");
    child.kill().unwrap();
    child.wait().unwrap();
}
