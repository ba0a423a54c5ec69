//! File handles: `name_to_handle_at` and `open_by_handle_at`, as file servers use them.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use mem::handle::FileHandle;
use rustix::fs::CWD;
use rustix::io::Errno;
use types::{Answer, Call, Caller, Fault, Fid, RequestIdentity};

use crate::cell::{Cell, Client};

fn handle_of(path: &Path) -> FileHandle {
    FileHandle::of(CWD, &CString::new(path.as_os_str().as_bytes()).unwrap()).unwrap()
}

fn open(client: &Client, handle: &FileHandle, how: i32) -> Result<OwnedFd, Errno> {
    handle.open(File::open(client.at("")).unwrap().as_fd(), how)
}

fn text(client: &Client, handle: &FileHandle) -> String {
    let mut text = String::new();
    File::from(open(client, handle, libc::O_RDONLY).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// Drops the names and inodes that no process uses, of all file systems.
fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

#[test]
fn handles_outlive_the_kernels_cache_and_renames() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let at = |name: &str| client.at(name);
    fs::create_dir_all(at("dir/below")).unwrap();
    fs::write(at("dir/below/file"), "one").unwrap();
    let file = handle_of(&at("dir/below/file"));
    let dir = handle_of(&at("dir/below"));
    let root = handle_of(&at(""));
    let number = fs::metadata(at("dir/below/file")).unwrap().ino();
    // The last rename was answered here, and is not at the server yet.
    fs::rename(at("dir/below/file"), at("moved")).unwrap();
    fs::create_dir(at("other")).unwrap();
    fs::rename(at("dir/below"), at("other/elsewhere")).unwrap();
    fs::write(at("other/elsewhere/inside"), "two").unwrap();
    for _ in 0..2 {
        drop_caches();
        assert_eq!(text(&client, &file), "one");
        assert_eq!(
            File::from(open(&client, &file, libc::O_RDONLY).unwrap()).metadata().unwrap().ino(),
            number
        );
        assert_eq!(open(&client, &root, libc::O_RDONLY).map(drop), Ok(()));
        // The kernel finds the way from the directory to the root, and its present name.
        drop_caches();
        let opened = open(&client, &dir, libc::O_RDONLY).unwrap();
        let path = fs::read_link(format!("/proc/self/fd/{}", fd_of(&opened))).unwrap();
        assert_eq!(path, at("other/elsewhere"));
        let names = fs::read_dir(format!("/proc/self/fd/{}", fd_of(&opened))).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["inside"]);
    }
}

fn fd_of(fd: &OwnedFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(fd)
}

#[test]
fn handles_hold_for_another_mount_of_the_volume() {
    let Some(cell) = Cell::start() else { return };
    let handles = {
        let client = cell.mount();
        fs::create_dir(client.at("dir")).unwrap();
        fs::write(client.at("dir/file"), "one").unwrap();
        [handle_of(&client.at("dir/file")), handle_of(&client.at("dir"))]
    };
    // As after a remount: this client has never heard of the files.
    let client = cell.mount();
    assert_eq!(text(&client, &handles[0]), "one");
    open(&client, &handles[1], libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
    assert_eq!(handle_of(&client.at("dir/file")), handles[0]);
    // Written through the handle, seen by name.
    let file = File::from(open(&client, &handles[0], libc::O_WRONLY).unwrap());
    io::Write::write_all(&mut &file, b"two").unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(client.at("dir/file")).unwrap(), "two");
}

#[test]
fn a_handle_of_a_removed_file_is_stale() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    fs::create_dir(client.at("dir")).unwrap();
    for name in ["file", "dir/file"] {
        fs::write(client.at(name), "one").unwrap();
    }
    let [file, deep, dir] = ["file", "dir/file", "dir"].map(|name| handle_of(&client.at(name)));
    let held = File::open(client.at("file")).unwrap();
    fs::remove_file(client.at("file")).unwrap();
    fs::remove_dir_all(client.at("dir")).unwrap();
    drop_caches();
    assert_eq!(text(&client, &file), "one", "the kernel has it: it is open");
    // Another client has it not.
    assert_eq!(open(&cell.mount(), &file, libc::O_RDONLY).map(drop), Err(Errno::STALE));
    drop(held);
    for (what, gone) in [("file", file), ("deep", deep), ("dir", dir)] {
        // The kernel has the inode until the close is reported, for which it does not wait.
        let began = Instant::now();
        let opened = || {
            drop_caches();
            open(&client, &gone, libc::O_RDONLY).map(drop)
        };
        while opened().is_ok() && began.elapsed() < Duration::from_secs(10) {}
        assert_eq!(opened(), Err(Errno::STALE), "{what}");
    }
}

#[test]
fn a_handle_of_another_generation_is_stale() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    fs::write(client.at("file"), "one").unwrap();
    let handle = handle_of(&client.at("file"));
    let (words, last) = (handle.words(), handle.words().len() - 1);
    // As one of an earlier file of the vnode, or of another volume.
    let mut other = words.to_vec();
    other[last] ^= 1;
    let other = FileHandle::new(handle.kind(), &other).unwrap();
    for _ in 0..2 {
        assert_eq!(open(&client, &other, libc::O_RDONLY).map(drop), Err(Errno::STALE));
        drop_caches();
        assert_eq!(open(&client, &other, libc::O_RDONLY).map(drop), Err(Errno::STALE));
        assert_eq!(text(&client, &handle), "one", "and that is unharmed");
        drop_caches();
    }
    // Numbers that no file has.
    for number in [0_u64, 2, 3, 1 << 40, u64::MAX - 1, u64::MAX] {
        let words = [(number >> 32) as u32, number as u32, 0];
        let handle = FileHandle::new(handle.kind(), &words).unwrap();
        assert_eq!(open(&client, &handle, libc::O_RDONLY).map(drop), Err(Errno::STALE), "{number}");
    }
}

/// A user with a user name space may open directories by handle there, and the kernel then asks in
/// that user's name. The user must not get to directories that it cannot reach.
#[test]
fn ac9_only_the_superuser_gets_a_fid_by_number() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    fs::create_dir_all(client.at("closed/below")).unwrap();
    fs::set_permissions(client.at("closed"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let below = fs::metadata(client.at("closed/below")).unwrap().ino();
    let volume = cell.root("root").volume;
    let session = cell.session();
    let ask = |caller: &Caller, parent| {
        let fid = Fid::new(volume.0, below & ((1 << 48) - 1), 0);
        session.call(caller, Call::ByVnode { fid, parent }, None).map(|reply| reply.answer)
    };
    let user =
        Caller { uid: 1000, gid: 1000, groups: Some(Box::default()), who: RequestIdentity::NAMED };
    let unknown_root = Caller { who: RequestIdentity::NOBODY, ..Caller::ROOT };
    for parent in [false, true] {
        let found = ask(&Caller::ROOT, parent);
        let Ok(Answer::Status(status)) = found else { panic!("the superuser: {found:?}") };
        assert!(!status.fid.is_masked());
        for caller in [&user, &unknown_root] {
            let refused = ask(caller, parent).unwrap_err();
            assert_eq!(refused.fault(), Some(Fault::NotPermitted), "{caller:?}");
        }
    }
    // The client knows the directory, and the server is not asked: still it gives nothing away.
    let venus_user = venus::RequestContext { caller: &user, cancel: None, groups: None };
    let fid = Fid::new(volume.0, below & ((1 << 48) - 1), 0);
    let refused = client.venus().control().by_vnode(&venus_user, fid, false).unwrap_err();
    assert!(matches!(refused, venus::Error::Fault(Fault::NotPermitted)), "{refused:?}");
}
