//! Mount points that lead to another cell, whose volumes and files have the same numbers as ours.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use types::{Call, Caller, CreateHow, Fault, Name, NewKind};
use venus::{Error, VenusConfig, Volumes};

use crate::cell::{Cell, eventually};

fn point(cell: &Cell, at: &str, target: &str) {
    let ask = |call| cell.session().call(&Caller::ROOT, call, None).unwrap().answer;
    let types::Answer::Status(root) = ask(Call::Root { volume: crate::cell::volume() }) else {
        panic!("a status")
    };
    let kind = NewKind::MountPoint(target.to_owned().into());
    let name = Name::new(at.as_bytes()).unwrap();
    ask(Call::Make { dir: root.fid, name, kind, mode: 0o755, how: CreateHow::Guarded });
}

#[test]
fn volumes_of_another_cell_with_the_same_numbers_are_others() {
    let (Some(ours), Some(theirs)) = (Cell::start(), Cell::start()) else { return };
    theirs.add_volume("work");
    ours.add_volume("home");
    point(&ours, "far", "#their.org:root");
    point(&ours, "unknown", "#nobody.org:root");
    point(&ours, "away", "#away.org:root");
    point(&ours, "ourselves", "%our.org:home");
    point(&theirs, "work", "%work");
    point(&theirs, "back", "#our.org:root");
    point(&theirs, "absent", "#absent");
    let tries = Arc::new(AtomicU32::new(0));
    let (session, tried) = (theirs.session(), Arc::clone(&tries));
    let reach = move |cell: &str| match cell {
        "their.org" => Ok(Volumes::of(Arc::clone(&session), VenusConfig::default())),
        "away.org" => {
            tried.fetch_add(1, Ordering::SeqCst);
            Err(Error::TimedOut)
        }
        _ => Err(Error::Fault(Fault::NoVolume)),
    };
    let client = ours.mount_beside(Some("our.org"), Box::new(reach));
    let there = theirs.mount();
    fs::write(client.at("file"), "ours").unwrap();
    fs::write(client.at("far/file"), "theirs").unwrap();
    fs::write(client.at("far/work/file"), "their work").unwrap();
    fs::write(client.at("ourselves/file"), "our home").unwrap();
    let (near, far) =
        (fs::metadata(client.at("file")).unwrap(), fs::metadata(client.at("far/file")).unwrap());
    assert_eq!(near.dev() == far.dev(), crate::is_flat());
    assert_ne!((near.dev(), near.ino()), (far.dev(), far.ino()));
    for at in 0..3 {
        for (path, text) in [
            ("file", "ours"),
            ("far/file", "theirs"),
            ("far/work/file", "their work"),
            ("ourselves/file", "our home"),
        ] {
            assert_eq!(fs::read_to_string(client.at(path)).unwrap(), text, "{at}");
        }
    }
    eventually("the other cell has it", || {
        fs::read_to_string(there.at("file")).is_ok_and(|text| text == "theirs")
    });
    fs::write(there.at("file"), "changed there").unwrap();
    assert_eq!(fs::read_to_string(client.at("far/file")).unwrap(), "changed there");
    assert_eq!(fs::read_to_string(client.at("file")).unwrap(), "ours");
    let refused = |at: &str| Errno::from_io_error(&fs::read_dir(client.at(at)).unwrap_err());
    assert_eq!(refused("unknown"), Some(Errno::NODEV));
    assert_eq!(refused("far/absent"), Some(Errno::NODEV));
    assert_eq!(refused("far/back"), Some(Errno::BUSY), "that is where we are");
    assert_eq!([refused("away"), refused("away")], [Some(Errno::TIMEDOUT); 2]);
    assert_eq!(tries.load(Ordering::SeqCst), 1, "it is not waited for each time");
    // Two below the first volume, and in one mount the one below them too.
    assert_eq!(client.volumes_below(), if crate::is_flat() { 3 } else { 2 });
}
