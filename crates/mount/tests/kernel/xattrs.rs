//! Extended attributes.

use std::fs;

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
    let mut names: Vec<_> = value[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    assert_eq!(names, [&b"user.colour"[..], b"user.empty"]);
    removexattr(&path, "user.colour").unwrap();
    assert_eq!(getxattr(&seen, "user.colour", &mut value), Err(Errno::NODATA));
    assert_eq!(removexattr(&path, "user.colour"), Err(Errno::NODATA));
    assert_eq!(setxattr(&path, "system.other", b"x", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    assert_eq!(setxattr(&path, "security.selinux", b"x", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
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
