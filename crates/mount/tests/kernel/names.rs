//! Creating, renaming and removing names.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::io::Errno;

use crate::cell::Cell;

#[test]
fn names_are_made_found_moved_and_taken_away() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let at = |name: &str| client.at(name);

    fs::write(at("file"), "one").unwrap();
    fs::create_dir(at("dir")).unwrap();
    symlink("file", at("link")).unwrap();
    fs::hard_link(at("file"), at("dir/second")).unwrap();
    assert_eq!(fs::metadata(at("file")).unwrap().nlink(), 2);
    assert_eq!(
        fs::metadata(at("file")).unwrap().ino(),
        fs::metadata(at("dir/second")).unwrap().ino()
    );
    assert_eq!(fs::read_to_string(at("link")).unwrap(), "one");
    assert_eq!(fs::read_link(at("link")).unwrap(), OsStr::new("file"));
    assert!(fs::metadata(at("file")).unwrap().created().is_ok());

    fs::rename(at("file"), at("dir/moved")).unwrap();
    assert_eq!(fs::metadata(at("file")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read_to_string(at("dir/moved")).unwrap(), "one");
    assert_eq!(fs::remove_dir(at("dir")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    fs::remove_file(at("dir/moved")).unwrap();
    fs::remove_file(at("dir/second")).unwrap();
    fs::remove_dir(at("dir")).unwrap();
    assert!(!at("dir").exists());
    assert_eq!(fs::File::create_new(at("link")).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn rename_keeps_exchanges_or_replaces() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let (a, b) = (client.at("a"), client.at("b"));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    let rename = |flags| renameat_with(CWD, &a, CWD, &b, flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(
        (fs::read_to_string(&a).unwrap(), fs::read_to_string(&b).unwrap()),
        ("b".into(), "a".into())
    );
    assert_eq!(rename(RenameFlags::WHITEOUT | RenameFlags::EXCHANGE), Err(Errno::INVAL));
    rename(RenameFlags::empty()).unwrap();
    assert!(!a.exists());
    assert_eq!(fs::read_to_string(&b).unwrap(), "b");
    fs::write(&a, "c").unwrap();
    rename(RenameFlags::WHITEOUT).unwrap();
    let left = fs::symlink_metadata(&a).unwrap();
    assert!(left.file_type().is_char_device() && left.rdev() == 0, "{left:?}");
    assert_eq!(fs::read_to_string(&b).unwrap(), "c");
    fs::remove_file(&a).unwrap();
}

#[test]
fn names_are_any_bytes_up_to_255() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    for name in [&b"\xff\xfe\n \t"[..], &[b'x'; 255], b"-", b"..."] {
        let path = client.at("").join(OsStr::from_bytes(name));
        fs::write(&path, "here").unwrap();
        let listed: Vec<_> =
            fs::read_dir(client.at("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(listed, [OsStr::from_bytes(name)]);
        fs::remove_file(&path).unwrap();
    }
    let too_long = client.at(&"x".repeat(256));
    assert_eq!(
        fs::write(too_long, "").unwrap_err().raw_os_error(),
        Some(Errno::NAMETOOLONG.raw_os_error())
    );
}

#[test]
fn special_files_keep_their_kind_and_number() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let make = |name: &str, kind, device| {
        mknodat(CWD, client.at(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
        fs::symlink_metadata(client.at(name)).unwrap()
    };
    assert!(make("pipe", FileType::Fifo, 0).file_type().is_fifo());
    assert!(make("socket", FileType::Socket, 0).file_type().is_socket());
    let number = rustix::fs::makedev(300, 70_000);
    let device = make("device", FileType::BlockDevice, number);
    assert!(device.file_type().is_block_device());
    assert_eq!(device.rdev(), number);
    assert!(make("char", FileType::CharacterDevice, 259).file_type().is_char_device());
}

#[test]
fn a_file_without_a_name_is_gone_with_its_last_descriptor() {
    use rustix::fs::OFlags;
    use std::io::{Read, Seek, Write};
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let unnamed =
        rustix::fs::open(client.at(""), OFlags::RDWR | OFlags::TMPFILE, Mode::from_raw_mode(0o600))
            .unwrap();
    let mut unnamed = File::from(unnamed);
    unnamed.write_all(b"nobody sees this").unwrap();
    unnamed.rewind().unwrap();
    let mut text = String::new();
    unnamed.read_to_string(&mut text).unwrap();
    assert_eq!(text, "nobody sees this");
    assert_eq!(unnamed.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(client.at("")).unwrap().count(), 0);
}

#[test]
fn supplementary_groups_count() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    // The directories above are the test's own; other users must get through them.
    for above in client.at("").ancestors().take(3) {
        fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir(client.at("team")).unwrap();
    std::os::unix::fs::chown(client.at("team"), Some(0), Some(4321)).unwrap();
    fs::set_permissions(client.at("team"), fs::Permissions::from_mode(0o2770)).unwrap();
    let touch = |groups: &str, name: &str| {
        let path = client.at("team").join(name);
        let status = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--groups", groups, "touch"])
            .arg(&path)
            .stderr(std::process::Stdio::null())
            .status();
        status.expect("setpriv (util-linux) is installed").success()
    };
    assert!(touch("1,4321", "member"));
    assert!(!touch("1,2", "stranger"));
    let made = fs::metadata(client.at("team/member")).unwrap();
    assert_eq!((made.uid(), made.gid()), (65534, 4321));
}

/// The server has no such file any more. The kernel's revalidation of paths relies on `ESTALE`, and
/// a program that asks by a descriptor is to learn of its directory what it was.
#[test]
fn a_directory_that_was_removed_while_open_takes_no_change() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let parent = client.at("parent");
    fs::create_dir(&parent).unwrap();
    // The client changes names of its own directory under a delegation.
    fs::write(parent.join("file"), "x").unwrap();
    for is_at_server in [false, true] {
        let path = parent.join("dir");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "x").unwrap();
        let dir = File::open(&path).unwrap();
        if is_at_server {
            rustix::fs::syncfs(&dir).unwrap();
        }
        fs::remove_file(path.join("file")).unwrap();
        fs::remove_dir(&path).unwrap();
        let change = || rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o700));
        assert_eq!(change(), Err(Errno::STALE), "at the server: {is_at_server}");
        for _ in 0..2 {
            let status = rustix::fs::fstat(&dir).unwrap();
            assert_eq!((status.st_nlink, status.st_mode & 0o7777), (0, 0o755));
        }
        assert_eq!(change(), Err(Errno::STALE), "and again");
        rustix::fs::fsync(&dir).expect("no change was lost");
        rustix::fs::syncfs(&dir).expect("nor one of the volume");
    }
}
