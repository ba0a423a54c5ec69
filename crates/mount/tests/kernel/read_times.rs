//! Access times in a volume that records reads (`relatime`), and none in others.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

use mount::{AccessTimes, MountOptions};
use rustix::fs::OFlags;
use types::{Answer, Call, Caller, VolumeCall, VolumeChange};

use crate::cell::{Cell, eventually};

/// Coarser than the clock of any kernel.
const TICK: Duration = Duration::from_millis(20);

fn accessed(path: &Path) -> (i64, i64) {
    let status = fs::symlink_metadata(path).unwrap();
    (status.atime(), status.atime_nsec())
}

fn record_reads(cell: &Cell) {
    let change = VolumeChange { read_times: Some(true), ..VolumeChange::default() };
    let id = cell.root("root").volume;
    let call = Call::Volume(VolumeCall::SetFields { id, change });
    let answer = cell.session().call(&Caller::ROOT, call, None).unwrap().answer;
    assert_eq!(answer, Answer::Done);
}

#[test]
fn a_read_is_seen_at_once_and_by_others_later() {
    let Some(cell) = Cell::start() else { return };
    record_reads(&cell);
    let reader = cell.mount();
    fs::create_dir(reader.at("dir")).unwrap();
    symlink("target", reader.at("link")).unwrap();
    for name in ["small", "large"] {
        let bytes = vec![7; if name == "small" { 10 } else { 3 << 20 }];
        fs::write(reader.at(name), bytes).unwrap();
    }
    for name in ["small", "large", "dir", "link"] {
        let path = reader.at(name);
        let read = || match name {
            "dir" => drop(fs::read_dir(&path).unwrap().count()),
            "link" => drop(fs::read_link(&path).unwrap()),
            _ => drop(fs::read(&path).unwrap()),
        };
        let before = accessed(&path);
        std::thread::sleep(TICK);
        read();
        let after = accessed(&path);
        assert!(after > before, "{name}: {before:?}, then {after:?}");
        std::thread::sleep(TICK);
        read();
        assert_eq!(accessed(&path), after, "{name}: the file did not change since the last read");
    }
    let small = accessed(&reader.at("small"));
    eventually("the server records it", || {
        let fresh = cell.mount();
        accessed(&fresh.at("small")) == small
    });
    assert_eq!(reader.differences(), 0, "DE-5");
    std::thread::sleep(TICK);
    fs::write(reader.at("small"), "other text").unwrap();
    fs::read(reader.at("small")).unwrap();
    let small = accessed(&reader.at("small"));
    drop(reader);
    assert_eq!(accessed(&cell.mount().at("small")), small, "an unmount has it recorded");
}

#[test]
fn only_reads_that_the_options_want_are_recorded() {
    let Some(cell) = Cell::start() else { return };
    record_reads(&cell);
    let client = cell.mount();
    fs::create_dir(client.at("dir")).unwrap();
    fs::write(client.at("file"), "text").unwrap();
    fs::write(client.at("dir/file"), "text").unwrap();
    let (file, dir) = (client.at("file"), client.at("dir"));
    let before = (accessed(&file), accessed(&dir));
    let read = || {
        std::thread::sleep(TICK);
        fs::read(&file).unwrap();
        fs::read_dir(&dir).unwrap().count();
        (accessed(&file), accessed(&dir))
    };
    let never = MountOptions { access_times: AccessTimes::Never, ..MountOptions::default() };
    client.remount(&never);
    assert_eq!(read(), before);
    client.remount(&MountOptions { read_only: true, ..MountOptions::default() });
    assert_eq!(read(), before);
    client.remount(&MountOptions::default());
    let flags = OFlags::RDONLY | OFlags::NOATIME;
    let quiet = rustix::fs::open(&file, flags, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(rustix::io::read(&quiet, &mut [0; 10]), Ok(4));
    assert_eq!(accessed(&file), before.0, "O_NOATIME");
    drop(File::options().append(true).open(&file).unwrap());
    assert_eq!(accessed(&file), before.0, "an open to write is no read");
    client.remount(&MountOptions { no_dir_times: true, ..MountOptions::default() });
    let (read_file, same_dir) = read();
    assert!(read_file > before.0 && same_dir == before.1, "nodiratime");
    let always = MountOptions { access_times: AccessTimes::Always, ..MountOptions::default() };
    client.remount(&always);
    assert!(read().0 > read_file, "strictatime");
    let set = fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH + Duration::from_secs(5));
    File::options().write(true).open(&file).unwrap().set_times(set).unwrap();
    assert_eq!(accessed(&file), (5, 0), "what a program sets stays");
}

#[test]
fn a_volume_records_no_reads_unless_it_is_told() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    fs::write(client.at("file"), "text").unwrap();
    let before = accessed(&client.at("file"));
    std::thread::sleep(TICK);
    fs::read(client.at("file")).unwrap();
    assert_eq!(accessed(&client.at("file")), before);
    record_reads(&cell);
    fs::read(client.at("file")).unwrap();
    assert!(accessed(&client.at("file")) > before, "it is told while it is mounted");
}
