//! The functions as a C program calls them, against a server in this process.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use server::{Server, ServerConfig};
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use types::{Fault, Name, Timestamp};

use crate::completions::{BufferObject, CompletionRecord, GroupObject};
use crate::connection::*;
use crate::error::*;
use crate::groups::*;
use crate::handle::Handle;
use crate::memory::*;
use crate::names::*;
use crate::operations::*;
use crate::records::StatusRecord;
use crate::sharing::*;

const MIB: usize = 1 << 20;

/// A server, and a connection with it.
struct Served {
    connection: Handle<ConnectionObject>,
    _server: Server,
    dir: tempfile::TempDir,
}

fn connect(dir: &std::path::Path) -> Handle<ConnectionObject> {
    let address = text(&format!("unix:{}", dir.join("socket").display()));
    let mut connection = Handle::of(0);
    // SAFETY: two texts, and room for a handle.
    let done = unsafe { rialto_connect(address.as_ptr(), c"root".as_ptr(), &raw mut connection) };
    assert_eq!(done, 0, "{}", said());
    connection
}

fn served() -> Served {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vicepa");
    let config = PartitionConfig { server: "test".into() };
    let partition = Partition::create(&path, &config, OpenOptions::default()).unwrap();
    let (now, quota) = (Timestamp::new(1, 0), VolumeQuota::default());
    let root = NewRoot { mode: 0o755, uid: 0, gid: 0, now, quota };
    partition.volumes().create_volume(&Name::new(b"root").unwrap(), &root).unwrap();
    partition.sync().unwrap();
    drop(partition);
    let mut config = ServerConfig::new(path);
    config.unix_socket = Some(dir.path().join("socket"));
    config.trust_this_machine();
    let server = Server::start(&config).unwrap();
    Served { connection: connect(dir.path()), _server: server, dir }
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// The text of the latest failure.
fn said() -> String {
    // SAFETY: the text stays until the next failure.
    unsafe { CStr::from_ptr(rialto_error_text()) }.to_str().unwrap().to_owned()
}

impl Served {
    fn open(&self, path: &str, flags: u32) -> Result<Handle<FileObject>, c_int> {
        let (path, mut file) = (text(path), Handle::of(0));
        // SAFETY: a text, and room for a handle.
        let done =
            unsafe { rialto_open(self.connection, path.as_ptr(), flags, 0o644, &raw mut file) };
        if done == 0 { Ok(file) } else { Err(done) }
    }

    fn memory(&self, bytes: usize) -> Handle<MemoryObject> {
        let mut memory = Handle::of(0);
        // SAFETY: room for a handle.
        let done = unsafe { rialto_memory_alloc(self.connection, bytes, &raw mut memory) };
        assert_eq!(done, 0, "{}", said());
        memory
    }
}

fn group() -> Handle<GroupObject> {
    let mut group = Handle::of(0);
    // SAFETY: room for a handle.
    assert_eq!(unsafe { rialto_cg_create(&raw mut group) }, 0);
    group
}

fn buffer(memory: Handle<MemoryObject>, bytes: usize) -> Result<Handle<BufferObject>, c_int> {
    let mut buffer = Handle::of(0);
    // SAFETY: room for a handle.
    let done = unsafe { rialto_buffer(memory, bytes, &raw mut buffer) };
    if done == 0 { Ok(buffer) } else { Err(done) }
}

/// The bytes of a buffer that no operation has.
fn bytes(buffer: Handle<BufferObject>) -> &'static mut [u8] {
    let length = usize::try_from(rialto_buffer_bytes(buffer)).unwrap();
    let data = rialto_buffer_data(buffer).cast::<u8>();
    // SAFETY: the test has the buffer, and forgets the bytes before it gives it away.
    unsafe { std::slice::from_raw_parts_mut(data, length) }
}

fn wait(
    connection: Handle<ConnectionObject>,
    group: Handle<GroupObject>,
    least: usize,
    timeout: i64,
    most: usize,
) -> (c_int, Vec<CompletionRecord>) {
    let (mut done, mut count) = (Vec::with_capacity(most), usize::MAX);
    // SAFETY: room for `most` completions and a number; so many were written.
    let status = unsafe {
        let place = done.as_mut_ptr();
        let status = rialto_cg_wait(connection, group, least, timeout, place, most, &raw mut count);
        done.set_len(count);
        status
    };
    (status, done)
}

fn write(file: Handle<FileObject>, data: &[u8], offset: u64) -> i64 {
    // SAFETY: so many bytes.
    unsafe { rialto_write(file, data.as_ptr().cast(), data.len(), offset) }
}

fn read(file: Handle<FileObject>, bytes: usize, offset: u64) -> Vec<u8> {
    let mut data = vec![0xee; bytes];
    // SAFETY: room for so many bytes.
    let done = unsafe { rialto_read(file, data.as_mut_ptr().cast(), bytes, offset) };
    data.truncate(usize::try_from(done).unwrap_or_else(|_| panic!("{}", said())));
    data
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

#[test]
fn operations_complete_into_their_groups() {
    let served = served();
    let file = served.open("file", CREATE).unwrap();
    let memory = served.memory(8 * MIB);
    for group in [group(), Handle::of(0)] {
        let mut buffers: BTreeMap<usize, u64> = BTreeMap::new();
        for tag in 0..6_u64 {
            let buffer = buffer(memory, 100_000).unwrap();
            bytes(buffer).fill(tag as u8 + 1);
            assert_eq!(bytes(buffer).as_ptr().addr() % 64, 0);
            let offset = tag * 99_999;
            assert_eq!(rialto_async_write(file, group, buffer, 99_999, offset, tag), 0);
            buffers.insert(buffer.number(), tag);
        }
        assert_eq!(rialto_cg_count(served.connection, group), 6);
        let mut done = Vec::new();
        while done.len() < 6 {
            // There is room for fewer than may be complete.
            let (status, more) = wait(served.connection, group, 2, -1, 4);
            let least = 2.min(6 - done.len());
            assert!(status == 0 && more.len() >= least, "{status}, {} of them", more.len());
            done.extend(more);
        }
        for one in &done {
            assert_eq!((one.error, one.bytes, one.offset), (0, 99_999, one.tag * 99_999));
            assert_eq!(buffers.remove(&one.buffer.number()), Some(one.tag), "its own buffer");
        }
        for one in done {
            bytes(one.buffer).fill(0);
            let offset = one.tag * 99_999;
            assert_eq!(rialto_async_read(file, group, one.buffer, 100_000, offset, one.tag), 0);
        }
        let (status, done) = wait(served.connection, group, 6, 60_000, 6);
        assert_eq!((status, done.len()), (0, 6));
        for one in done {
            let (moved, own) = (one.bytes as usize, one.tag as u8 + 1);
            assert!(bytes(one.buffer)[..99_999].iter().all(|byte| *byte == own));
            let behind = if one.tag == 5 { 99_999 } else { 100_000 };
            assert_eq!((one.error, moved, one.size), (0, behind, 6 * 99_999));
            assert_eq!(rialto_buffer_release(one.buffer), 0);
        }
        assert_eq!(wait(served.connection, group, 1, -1, 1).0, 0, "there is nothing to wait for");
    }
    assert_eq!(rialto_has_lane(served.connection), 1);
    assert_eq!(rialto_memory_free(memory), 0);
}

#[test]
fn any_memory_is_read_written_and_appended() {
    let served = served();
    let file = served.open("file", CREATE | EXCLUSIVE).unwrap();
    let content = pattern(21 * MIB + 12_345);
    assert_eq!(write(file, &content, 3), content.len() as i64);
    assert_eq!(read(file, 3, 0), [0; 3]);
    assert!(read(file, 30 * MIB, 3) == content, "long reads end at the end of the file");
    assert!(read(file, MIB + 1, 70_000) == content[69_997..69_998 + MIB]);
    assert!(read(file, 10, 1 << 40).is_empty());
    assert!(read(file, 0, 0).is_empty());
    let (more, mut offset) = (pattern(2 * MIB + 1), 0);
    // SAFETY: so many bytes, and room for a number.
    let done = unsafe { rialto_append(file, more.as_ptr().cast(), more.len(), &raw mut offset) };
    assert_eq!((done, offset), (more.len() as i64, content.len() as u64 + 3));
    // SAFETY: so many bytes.
    assert_eq!(unsafe { rialto_append(file, more.as_ptr().cast(), 5, null_mut()) }, 5);
    assert!(read(file, 3 * MIB, offset) == [&more[..], &more[..5]].concat());
    assert_eq!(rialto_commit(file), 0);
    assert_eq!(rialto_truncate(file, 100), 0);
    let mut status = StatusRecord::default();
    // SAFETY: room for a status.
    assert_eq!(unsafe { rialto_fstat(file, &raw mut status) }, 0);
    assert_eq!((status.size, status.kind, status.mode), (100, 1, 0o644));
    assert_eq!(write(file, b"x", u64::MAX), i64::from(of_fault(Fault::TooBig)));
    assert_eq!(served.open("file", CREATE | EXCLUSIVE).err(), Some(of_fault(Fault::Exists)));
    let again = served.open("file", CREATE | TRUNCATE).unwrap();
    assert!(read(again, 10, 0).is_empty());
}

#[test]
fn threads_share_buffers_that_servers_can_access() {
    let served = served();
    let file = served.open("file", CREATE).unwrap();
    let content = pattern(12 * MIB);
    assert_eq!(write(file, &content, 0), content.len() as i64);
    std::thread::scope(|threads| {
        for thread in 0..6 {
            let content = &content;
            threads.spawn(move || {
                for round in 0..2 {
                    let at = (thread * 1_234_567 + round * 7_654_321) % (2 * MIB);
                    assert!(read(file, 10 * MIB, at as u64) == content[at..at + 10 * MIB]);
                }
            });
        }
    });
}

/// The names that a listing has, and their sizes; ends it after so many.
struct Listing {
    found: BTreeMap<String, u64>,
    most: usize,
}

unsafe extern "C" fn note(context: *mut c_void, entry: *const EntryRecord) -> c_int {
    // SAFETY: the context is a listing, and the entry is there until this returns.
    let (listing, entry) = unsafe { (&mut *context.cast::<Listing>(), &*entry) };
    // SAFETY: a name ends with a zero.
    let name = unsafe { CStr::from_ptr(entry.name) };
    assert_eq!((name.count_bytes(), entry.has_status), (entry.name_bytes, 1));
    listing.found.insert(name.to_str().unwrap().to_owned(), entry.status.size);
    c_int::from(listing.found.len() == listing.most) * 7
}

/// Opens the file at its server.
fn open_how(
    connection: Handle<ConnectionObject>,
    path: &CStr,
    (access, deny): (u32, u32),
    key: Option<&[u8; 16]>,
) -> Result<Handle<FileObject>, c_int> {
    let key = key.map_or(null(), |key| key.as_ptr());
    let how = HowRecord { access, deny, flags: CREATE, mode: 0o644, key, reserved: [0; 4] };
    let mut file = Handle::of(0);
    // SAFETY: a text, a record with a key of 16 bytes or none, and room for a handle.
    let done = unsafe { rialto_open_how(connection, path.as_ptr(), &raw const how, &raw mut file) };
    if done == 0 { Ok(file) } else { Err(done) }
}

#[test]
fn opens_keys_and_locks_keep_others_out() {
    let served = served();
    let (mine, theirs) = (served.connection, connect(served.dir.path()));
    let file = open_how(mine, c"file", (3, 2), None).unwrap();
    assert_eq!(write(file, b"mine", 0), 4);
    let share_conflict = of_fault(Fault::ShareConflict);
    assert_eq!(open_how(theirs, c"file", (2, 0), None).err(), Some(share_conflict));
    let reader = open_how(theirs, c"file", (1, 0), None).unwrap();
    assert_eq!(write(reader, b"x", 0), i64::from(share_conflict));
    assert_eq!(rialto_downgrade(file, 3, 0), 0);
    assert_eq!(rialto_downgrade(file, 3, 2), of_fault(Fault::Invalid));
    assert_eq!(rialto_downgrade(file, 4, 0), ARGUMENT.number);
    assert_eq!(write(reader, b"y", 0), 1, "nothing is denied any more");

    let locked = of_fault(Fault::Locked);
    assert_eq!(rialto_lock(file, 1, 10, 10, 0, 0), 0);
    assert_eq!(rialto_lock(reader, 1, 19, 1, 0, 0), 0, "both read");
    assert_eq!(rialto_lock(reader, 1, 15, 0, 1, 0), locked, "to the end");
    assert_eq!(rialto_lock(file, 1, 10, 10, 1, 50), locked);
    assert_eq!(rialto_test_lock(file, 1, 10, 10, 1), 1);
    assert_eq!(rialto_unlock(reader, 1, 0, 0), 0);
    assert_eq!((rialto_test_lock(file, 1, 10, 10, 1), rialto_lock(file, 1, 10, 10, 1, 0)), (0, 0));
    assert_eq!(rialto_lock(file, 2, 10, 1, 1, 0), locked, "another owner");
    assert_eq!(rialto_lock(file, 1, u64::MAX, 2, 1, 0), ARGUMENT.number);
    assert_eq!(rialto_close(file), 0);
    assert_eq!(rialto_close(file), HANDLE.number);
    assert_eq!((rialto_lock(reader, 1, 0, 0, 1, 0), rialto_close(reader)), (0, 0));

    let keyed = open_how(mine, c"file", (3, 0), Some(&[7; 16])).unwrap();
    let other = open_how(theirs, c"file", (3, 0), Some(&[8; 16]));
    assert_eq!(other.err(), Some(of_fault(Fault::KeyConflict)));
    let same = open_how(theirs, c"file", (3, 0), Some(&[7; 16])).unwrap();
    assert_eq!((rialto_close(keyed), rialto_close(same)), (0, 0));
    assert_eq!(open_how(mine, c"file", (0, 3), None).err(), Some(of_fault(Fault::Invalid)));
    assert_eq!(open_how(mine, c"file", (3, 9), None).err(), Some(ARGUMENT.number));
    assert_eq!((rialto_disconnect(theirs), rialto_disconnect(mine)), (0, 0));
}

#[test]
fn names_are_made_listed_renamed_and_removed() {
    let served = served();
    let connection = served.connection;
    let list = |path: &CStr, most: usize| {
        let mut listing = Listing { found: BTreeMap::new(), most };
        let context = (&raw mut listing).cast();
        // SAFETY: a text, and a function that takes this context.
        let done = unsafe { rialto_list(connection, path.as_ptr(), Some(note), context) };
        (done, listing.found)
    };
    // SAFETY: each pointer leads to a text.
    let (mkdir, unlink, rmdir) = unsafe {
        (
            |path: &CStr| rialto_mkdir(connection, path.as_ptr(), 0o750),
            |path: &CStr| rialto_unlink(connection, path.as_ptr()),
            |path: &CStr| rialto_rmdir(connection, path.as_ptr()),
        )
    };
    // SAFETY: each pointer leads to a text.
    let rename = |from: &CStr, to: &CStr, replace| unsafe {
        rialto_rename(connection, from.as_ptr(), to.as_ptr(), replace)
    };
    assert_eq!(mkdir(c"dir"), 0);
    assert_eq!(mkdir(c"dir"), of_fault(Fault::Exists));
    for (name, size) in [("dir/a", 1), ("dir/b", 2), ("dir/c", 3)] {
        let file = served.open(name, CREATE).unwrap();
        assert_eq!(rialto_truncate(file, size), 0);
        assert_eq!(rialto_close(file), 0);
    }
    let names = |all: &[(&str, u64)]| {
        all.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(list(c"/dir/", 9), (0, names(&[("a", 1), ("b", 2), ("c", 3)])));
    assert_eq!(list(c"dir", 2).0, 7, "the callback's number ends it");
    assert_eq!(list(c"dir/a", 9).0, of_fault(Fault::NotDirectory));
    assert_eq!(rename(c"dir/a", c"dir/b", 0), of_fault(Fault::Exists));
    assert_eq!(rename(c"dir/a", c"dir/b", 1), 0);
    assert_eq!(rename(c"dir/c", c"c", 0), 0);
    assert_eq!(list(c"dir", 9), (0, names(&[("b", 1)])));
    assert_eq!(rmdir(c"dir"), of_fault(Fault::NotEmpty));
    assert_eq!(unlink(c"dir"), of_fault(Fault::IsDirectory));
    assert_eq!((unlink(c"dir/b"), rmdir(c"dir"), unlink(c"c")), (0, 0, 0));
    let mut status = StatusRecord::default();
    // SAFETY: a text, and room for a status.
    let done = unsafe { rialto_stat(connection, c"dir".as_ptr(), 1, &raw mut status) };
    assert_eq!((done, said().as_str()), (of_fault(Fault::NotFound), "no such entry"));
    // SAFETY: a text, and room for a status.
    let done = unsafe { rialto_stat(connection, c"/".as_ptr(), 1, &raw mut status) };
    assert_eq!((done, status.kind, status.vnode), (0, 2, 1));
}

#[test]
fn handles_that_are_over_are_errors() {
    let served = served();
    let file = served.open("file", CREATE).unwrap();
    let (memory, group) = (served.memory(MIB), group());
    let part = buffer(memory, 100).unwrap();
    assert_eq!(rialto_close(file), 0);
    assert_eq!(rialto_close(file), HANDLE.number);
    assert_eq!(said(), "no such file: it was closed, or never made");
    assert_eq!(rialto_close(Handle::of(0)), NULL.number);
    assert_eq!(rialto_close(Handle::of(part.number())), HANDLE.number, "of another kind");
    assert_eq!(rialto_close(Handle::of(served.dir.path().as_os_str().len())), HANDLE.number);
    assert_eq!(rialto_async_read(file, group, part, 1, 0, 0), HANDLE.number);
    assert_eq!(write(file, b"x", 0), i64::from(HANDLE.number));
    assert_eq!(rialto_memory_free(memory), 0);
    assert_eq!(rialto_memory_free(memory), HANDLE.number);
    bytes(part).fill(1);
    assert_eq!((rialto_buffer_release(part), rialto_buffer_release(part)), (0, HANDLE.number));
    assert!(rialto_buffer_data(part).is_null());
    assert_eq!(rialto_buffer_bytes(part), i64::from(HANDLE.number));
    assert_eq!((rialto_cg_destroy(group), rialto_cg_destroy(group)), (0, HANDLE.number));
    assert_eq!(wait(served.connection, group, 1, -1, 1).0, HANDLE.number);
    assert_eq!(wait(Handle::of(0), Handle::of(0), 1, -1, 1).0, NULL.number);
    let again = served.open("file", 0).unwrap();
    assert_eq!(rialto_disconnect(served.connection), 0);
    assert_eq!(rialto_disconnect(served.connection), HANDLE.number);
    assert_eq!(write(again, b"goes on", 0), 7, "a file outlives its connection's handle");
    assert_eq!(rialto_close(again), 0);
}

#[test]
fn what_an_operation_has_is_in_use() {
    let served = served();
    let file = served.open("file", CREATE).unwrap();
    let (memory, group) = (served.memory(2 * MIB), group());
    let part = buffer(memory, MIB).unwrap();
    assert_eq!(rialto_async_write(file, group, part, MIB, 0, 5), 0);
    // Complete or not: the program does not have it back.
    assert_eq!(rialto_async_read(file, group, part, 1, 0, 0), IN_USE.number);
    assert_eq!(said(), "an operation has the buffer");
    assert_eq!(rialto_buffer_release(part), IN_USE.number);
    assert_eq!(rialto_cg_destroy(group), IN_USE.number);
    assert_eq!(wait(served.connection, group, 1, -1, 0), (0, Vec::new()), "no room, no wait");
    let (status, done) = wait(served.connection, group, 1, -1, 3);
    assert_eq!((status, done.len(), done[0].tag, done[0].error), (0, 1, 5, 0));
    assert_eq!(rialto_async_write(file, Handle::of(0), part, 1, 0, 6), 0);
    assert_eq!(rialto_disconnect(served.connection), IN_USE.number);
    assert_eq!(wait(served.connection, Handle::of(0), 1, -1, 1).1.len(), 1);
    for (bytes, offset) in [(0, 0), (MIB + 1, 0), (usize::MAX, 0)] {
        let refused = rialto_async_read(file, group, part, bytes, offset, 0);
        assert_eq!(refused, LENGTH.number, "{bytes} bytes: {}", said());
    }
    let long = buffer(memory, MIB + 1);
    assert_eq!(long.err(), Some(MEMORY.number), "1 MiB less 64 bytes are free");
    assert_eq!(rialto_cg_count(served.connection, group), 0, "nothing was begun");
    assert_eq!(rialto_buffer_release(part), 0);
    let long = buffer(memory, MIB + 1).unwrap();
    assert_eq!(rialto_async_read(file, group, long, MIB + 1, 0, 0), LENGTH.number);
    assert_eq!(said(), "a buffer of 1048577 bytes; one operation moves 1 to 1,048,576");
    assert_eq!(rialto_cg_destroy(group), 0);
}

#[test]
fn null_and_wrong_arguments_are_errors() {
    let served = served();
    let file = served.open("file", CREATE).unwrap();
    let connection = served.connection;
    let mut handle = Handle::of(0);
    let mut number = 0;
    // SAFETY: each pointer is NULL, or leads to a text or to room for a result.
    unsafe {
        let path: *const c_char = c"path".as_ptr();
        let answers = [
            rialto_connect(null(), null(), &raw mut handle),
            rialto_connect(path, null(), null_mut()),
            rialto_open(connection, null(), 0, 0, null_mut()),
            rialto_open(connection, path, 0, 0, null_mut()),
            rialto_memory_alloc(connection, 1, null_mut()),
            rialto_buffer(Handle::of(0), 1, null_mut()),
            rialto_fstat(file, null_mut()),
            rialto_stat(connection, null(), 0, null_mut()),
            rialto_list(connection, path, None, null_mut()),
            rialto_list(connection, null(), Some(note), null_mut()),
            rialto_mkdir(connection, null(), 0),
            rialto_unlink(connection, null()),
            rialto_rmdir(connection, null()),
            rialto_rename(connection, path, null(), 0),
            rialto_cg_create(null_mut()),
            rialto_cg_wait(connection, Handle::of(0), 0, 0, null_mut(), 1, &raw mut number),
            rialto_cg_poll(connection, Handle::of(0), null_mut(), 0, null_mut()),
            rialto_read(file, null_mut(), 1, 0) as c_int,
            rialto_write(file, null(), 1, 0) as c_int,
            rialto_append(file, null(), 1, null_mut()) as c_int,
        ];
        assert!(answers.iter().all(|answer| *answer == NULL.number), "{answers:?}");
        assert_eq!(rialto_connect(path, null(), &raw mut handle), ARGUMENT.number);
        let nowhere = c"unix:/nowhere/socket".as_ptr();
        assert_eq!(rialto_connect(nowhere, null(), &raw mut handle), UNREACHABLE.number);
        assert!(!said().is_empty());
        assert_eq!(rialto_mkdir(connection, c"\xff".as_ptr(), 0o755), PATH.number);
        assert_eq!(rialto_mkdir(connection, path, 0o10000), ARGUMENT.number);
        assert_eq!(rialto_write(file, path.cast(), usize::MAX, 0) as c_int, LENGTH.number);
    }
    for flags in [EXCLUSIVE, EXCLUSIVE | TRUNCATE, 8, CREATE | 1 << 31] {
        assert_eq!(served.open("file", flags).err(), Some(ARGUMENT.number), "{flags}");
    }
    assert!(handle.is_null(), "a failure leaves the place alone");
}

#[test]
fn a_panic_is_an_error_with_a_text() {
    assert_eq!(status(|| panic!("on purpose {}", 1)), INTERNAL.number);
    assert_eq!(said(), "a fault of the library; please report it: on purpose 1");
    // SAFETY: texts of the library, which stay.
    let of = |number| unsafe {
        let texts = (rialto_error_name(number), rialto_error_string(number));
        (CStr::from_ptr(texts.0).to_str().unwrap(), CStr::from_ptr(texts.1).to_str().unwrap())
    };
    assert_eq!(of(-1), ("RIALTO_ENOTFOUND", "no such entry"));
    assert_eq!(of(HANDLE.number), ("RIALTO_EHANDLE", HANDLE.text));
    assert_eq!(of(0), ("RIALTO_OK", "no error"));
    assert_eq!(of(12345), ("", "an unknown number"));
}
