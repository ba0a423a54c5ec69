//! Extended attributes.

use std::fs;
use std::io::Write;

use rustix::fs::{XattrFlags, getxattr, listxattr, lremovexattr as removexattr, setxattr};
use rustix::io::Errno;

use crate::cell::Cell;

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
