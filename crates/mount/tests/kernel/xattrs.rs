//! Extended attributes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{
    FallocateFlags, XattrFlags, fallocate, getxattr, listxattr, lremovexattr as removexattr,
    setxattr,
};
use rustix::io::Errno;

use crate::cell::Cell;
use crate::permits::User;

#[test]
fn attributes_are_set_listed_and_taken_away() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    let (path, seen) = (here.at("file"), there.at("file"));
    fs::write(&path, "x").unwrap();
    let mut value = [0; 100];
    assert_eq!(getxattr(&seen, "user.colour", &mut value), Err(Errno::NODATA));
    setxattr(&path, "user.colour", b"red", XattrFlags::CREATE).unwrap();
    assert_eq!(setxattr(&path, "user.colour", b"blue", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.other", b"blue", XattrFlags::REPLACE), Err(Errno::NODATA));
    setxattr(&path, "user.empty", b"", XattrFlags::empty()).unwrap();
    let length = getxattr(&seen, "user.colour", &mut value).unwrap();
    assert_eq!(&value[..length], b"red");
    assert_eq!(getxattr(&seen, "user.colour", &mut [0; 2][..]), Err(Errno::RANGE));
    let length = listxattr(&seen, &mut value).unwrap();
    let mut names: Vec<_> =
        value[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    assert_eq!(names, [&b"user.colour"[..], b"user.empty"]);
    removexattr(&path, "user.colour").unwrap();
    assert_eq!(getxattr(&seen, "user.colour", &mut value), Err(Errno::NODATA));
    assert_eq!(removexattr(&path, "user.colour"), Err(Errno::NODATA));
    assert_eq!(setxattr(&path, "system.other", b"x", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    assert_eq!(
        setxattr(&path, "security.selinux", b"x", XattrFlags::empty()),
        Err(Errno::OPNOTSUPP)
    );
}

#[test]
fn large_values_fit_and_larger_ones_do_not() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("file");
    fs::write(&path, "x").unwrap();
    let large = vec![7; 65_536];
    setxattr(&path, "user.large", &large, XattrFlags::empty()).unwrap();
    let mut value = vec![0; 65_536];
    assert_eq!(getxattr(&path, "user.large", &mut value[..]).unwrap(), 65_536);
    assert!(value == large);
}

/// File capabilities as the kernel lays them out (revision 2, effective): CAP_NET_BIND_SERVICE.
fn capability() -> Vec<u8> {
    [0x0200_0001u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn file_capabilities_survive_earlier_writes_but_no_later_one() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    for number in 0..20 {
        let (path, seen) =
            (here.at(&format!("file-{number}")), there.at(&format!("file-{number}")));
        let mut file = fs::File::create_new(&path).unwrap();
        file.write_all(b"first").unwrap();
        setxattr(&path, "security.capability", &capability(), XattrFlags::empty()).unwrap();
        let mut value = [0; 100];
        assert_eq!(getxattr(&path, "security.capability", &mut value), Ok(20));
        if number % 2 == 0 {
            file.write_all(b" second").unwrap();
            drop(file);
            for path in [&path, &seen] {
                assert_eq!(fs::read(path).unwrap(), b"first second");
                assert_eq!(
                    getxattr(path, "security.capability", &mut value),
                    Err(Errno::NODATA),
                    "{number}"
                );
            }
        } else {
            drop(file);
            for path in [&path, &seen] {
                assert_eq!(fs::read(path).unwrap(), b"first");
                assert_eq!(getxattr(path, "security.capability", &mut value), Ok(20), "{number}");
            }
        }
    }
}

/// Changes of a file's data, each through a handle of its own.
type DataChange = fn(&fs::File);

const DATA_CHANGES: [DataChange; 6] = [
    |file| file.write_all_at(b"x", 0).unwrap(),
    |file| file.set_len(1).unwrap(),
    |file| fallocate(file, FallocateFlags::empty(), 0, 70_000).unwrap(),
    |file| fallocate(file, FallocateFlags::KEEP_SIZE, 0, 70_000).unwrap(),
    |file| fallocate(file, FallocateFlags::ZERO_RANGE, 0, 100).unwrap(),
    |file| {
        fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 100).unwrap();
    },
];

/// Set-id bits and capabilities of a file end with a change of its data by a user.
#[test]
fn privileges_end_with_every_change_of_the_data_by_a_user() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    let has_capability =
        |path: &Path| match getxattr(path, "security.capability", &mut [0; 100][..]) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error, Errno::NODATA);
                false
            }
        };
    for (number, change) in DATA_CHANGES.into_iter().enumerate() {
        for (has, size) in [(true, 300), (true, 200_000), (false, 300)] {
            let name = format!("file-{number}-{has}-{size}");
            let (path, seen) = (here.at(&name), there.at(&name));
            fs::write(&path, vec![7; size]).unwrap();
            chown(&path, Some(4711), Some(4711)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
            if has {
                setxattr(&path, "security.capability", &capability(), XattrFlags::empty()).unwrap();
            }
            assert_eq!(has_capability(&seen), has, "{name}");
            let through = path.clone();
            User::of(4711).does(move || {
                change(&fs::File::options().write(true).open(through).unwrap());
            });
            for path in [&path, &seen] {
                assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o755, "{name}");
                assert!(!has_capability(path), "{name}");
            }
        }
    }
}

/// Only the superuser takes capabilities away from a file whose data it leaves alone.
#[test]
fn users_take_no_capabilities_away() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("file");
    fs::write(&path, "x").unwrap();
    chown(&path, Some(4711), Some(4711)).unwrap();
    setxattr(&path, "security.capability", &capability(), XattrFlags::empty()).unwrap();
    let through = path.clone();
    let removed = User::of(4711).does(move || removexattr(through, "security.capability"));
    assert_eq!(removed, Err(Errno::PERM));
    assert_eq!(getxattr(&path, "security.capability", &mut [0; 100]), Ok(20));
    removexattr(&path, "security.capability").unwrap();
    assert_eq!(removexattr(&path, "security.capability"), Err(Errno::NODATA));
}
