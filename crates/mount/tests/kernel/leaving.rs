//! A volume that leaves while its server is away.

use std::fs;
use std::time::Duration;

use crate::cell::eventually;
use crate::fleet::{Fleet, Traveller};

/// Writes in `one`, and has it leave while its server is away; the bytes are not there yet.
fn leaves_unsaved(fleet: &mut Fleet, client: &Traveller) {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(client.at(""), "rialto.mount:one", b"#one", flags).unwrap();
    eventually("it is seen", || client.at("one").exists());
    let volume = fleet.group("one").record.read_write;
    // The server leaves changes in a new directory to its maker.
    fs::create_dir(client.at("one/dir")).unwrap();
    fs::write(client.at("one/dir/first"), "").unwrap();
    fleet.hosts[1].crash();
    fs::write(client.at("one/dir/file"), "text").unwrap();
    assert!(!client.volumes.unsaved().is_empty());
    eventually("it leaves", || client.volumes.closing(volume).is_some());
}

#[test]
fn a_walk_waits_for_a_volume_that_cannot_leave_yet() {
    let Some(mut fleet) = Fleet::start(2) else { return };
    fleet.create(0, "root");
    fleet.create(1, "one");
    let client = fleet.mount_idle(0, "root", &[], Some(Duration::from_millis(50)));
    leaves_unsaved(&mut fleet, &client);
    let path = client.at("one/dir/file");
    // A program that is killed does not wait.
    let mut killed = std::process::Command::new("cat").arg(&path).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(killed.try_wait().unwrap().is_none(), "it waits");
    killed.kill().unwrap();
    killed.wait().unwrap();
    std::thread::scope(|scope| {
        let walks: Vec<_> = (0..3).map(|_| scope.spawn(|| fs::read_to_string(&path))).collect();
        std::thread::sleep(Duration::from_secs(2));
        assert!(walks.iter().all(|walk| !walk.is_finished()), "they wait");
        fleet.hosts[1].start();
        for walk in walks {
            assert_eq!(walk.join().unwrap().unwrap(), "text");
        }
    });
    client.end();
}
