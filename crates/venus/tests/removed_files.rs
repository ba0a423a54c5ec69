//! Written bytes of a file that is removed and not open are worth nothing: nothing waits for them.
//! While it is open, or after a removal that failed, they are worth as much as others.

use std::sync::mpsc::channel;

use crate::common::{Client, RW, TestServer, me, name};
use client::CallError;
use parking_lot::Mutex;
use types::{BootVerifier, Call, Fault, RenameMode, StatusChange};
use venus::VenusConfig;

const BYTES: &[u8] = b"to be removed";

/// A client that sends each change, of a server of its own.
fn sending_client() -> (Client, TestServer) {
    let config = VenusConfig { delegations: false, ..VenusConfig::default() };
    let server = TestServer::in_memory();
    let client = server.client_with(1, false, config);
    notes_changes(&client);
    (client, server)
}

/// The server tells in each answer which changes it may still lose.
fn notes_changes(client: &Client) {
    client.wire.set_after(|_, result| {
        result.iter_mut().for_each(|reply| reply.verifier = Some(BootVerifier::default()));
    });
}

/// One with delegations, and one without.
fn clients() -> [(Client, TestServer); 2] {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    notes_changes(&client);
    [(client, server), sending_client()]
}

/// A file with bytes that the server has and may lose.
fn written(client: &Client, path: &str) -> types::Fid {
    let (fid, handle) = client.create(path);
    client.write(handle, 0, BYTES);
    client.close(handle);
    fid
}

fn sync_root(client: &Client) {
    client.venus.dirs().fsyncdir(&me(), client.root).unwrap();
}

/// All is stable at the server: neither an unmount nor a sync asks it for anything.
fn assert_nothing_waits(client: &Client) {
    client.wire.take();
    client.venus.hand_over().unwrap();
    assert_eq!(client.venus.control().unsaved(), (Vec::new(), 0));
    client.venus.syncfs(&me(), client.root).unwrap();
    assert_eq!(client.wire.take(), Default::default());
}

#[test]
fn a_removed_file_has_nothing_unsaved() {
    for (client, _server) in clients() {
        written(&client, "f");
        client.venus.syncfs(&me(), client.root).unwrap();
        let handle = client.open("f", RW);
        client.write(handle, 0, BYTES);
        client.close(handle);
        client.venus.changes().unlink(&me(), client.root, &name("f")).unwrap();
        // Also while the journal has them.
        assert_eq!(client.venus.control().unsaved().0, []);
        sync_root(&client);
        assert_nothing_waits(&client);
    }
}

#[test]
fn a_removed_file_that_was_cut_has_nothing_unsaved() {
    for (client, _server) in clients() {
        let fid = written(&client, "f");
        client.venus.syncfs(&me(), client.root).unwrap();
        let cut = StatusChange { size: Some(3), ..StatusChange::default() };
        client.venus.setattr(&me(), fid, cut).unwrap();
        client.venus.changes().unlink(&me(), client.root, &name("f")).unwrap();
        sync_root(&client);
        assert_nothing_waits(&client);
    }
}

#[test]
fn a_replaced_file_has_nothing_unsaved() {
    for (client, _server) in clients() {
        written(&client, "f");
        sync_root(&client);
        assert_eq!(client.venus.control().unsaved().0.len(), 1);
        written(&client, "new");
        client.venus.fsync(&me(), client.open("new", RW)).unwrap();
        let (from, to) = (name("new"), name("f"));
        let (from, to) = ((client.root, &from), (client.root, &to));
        client.venus.changes().rename(&me(), from, to, RenameMode::Replace).unwrap();
        sync_root(&client);
        assert_nothing_waits(&client);
    }
}

#[test]
fn an_open_file_without_a_name_keeps_what_is_unsaved() {
    for (client, _server) in clients() {
        let (fid, handle) = client.create("f");
        client.write(handle, 0, BYTES);
        client.venus.flush(&me(), handle, None).unwrap();
        client.venus.changes().unlink(&me(), client.root, &name("f")).unwrap();
        client.venus.flush(&me(), handle, None).unwrap();
        sync_root(&client);
        let unsaved = client.venus.control().unsaved();
        assert_eq!(unsaved, (vec![(fid, BYTES.len() as u64)], 0));
        assert_eq!(&client.read(handle, 0, 100)[..], BYTES);
        let (ended, is_ended) = channel();
        client.wire.set_before(move |call| {
            if matches!(call, Call::Unhold { .. }) {
                let _ = ended.send(());
            }
            None
        });
        client.close(handle);
        // Nothing can open it again: its hold ends before the janitor comes.
        assert_nothing_waits(&client);
        is_ended.recv().unwrap();
    }
}

/// The kernel reports the last close when the program that closed the file has gone on.
#[test]
fn a_cut_file_that_is_closed_late_has_nothing_unsaved() {
    for (client, _server) in clients() {
        let fid = written(&client, "f");
        client.venus.syncfs(&me(), client.root).unwrap();
        let handle = client.open("f", RW);
        let cut = StatusChange { size: Some(0), ..StatusChange::default() };
        client.venus.setattr(&me(), fid, cut).unwrap();
        client.write(handle, 0, BYTES);
        client.venus.flush(&me(), handle, None).unwrap();
        client.venus.changes().unlink(&me(), client.root, &name("f")).unwrap();
        sync_root(&client);
        client.venus.release(&me(), handle, None).unwrap();
        assert_nothing_waits(&client);
    }
}

#[test]
fn a_file_that_could_not_be_removed_keeps_what_is_unsaved() {
    let (client, _server) = sending_client();
    let fid = written(&client, "f");
    sync_root(&client);
    client.wire.set_before(|call| match call {
        Call::Remove { .. } => Some(Err(CallError::Fault(Fault::NotPermitted))),
        _ => None,
    });
    client.venus.changes().unlink(&me(), client.root, &name("f")).unwrap_err();
    assert_eq!(client.venus.control().unsaved(), (vec![(fid, BYTES.len() as u64)], 0));
}

/// The removal comes while a write is on its way, which is answered after it.
#[test]
fn bytes_that_arrive_after_the_removal_are_not_unsaved() {
    let (client, _server) = sending_client();
    written(&client, "f");
    client.venus.syncfs(&me(), client.root).unwrap();
    let handle = client.open("f", RW);
    client.write(handle, 0, BYTES);
    let (asked, is_asked) = channel();
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    client.wire.set_after(move |call, _| {
        if matches!(call, Call::Write { .. }) {
            asked.send(()).unwrap();
            // A dropped sender lets the answer through.
            let _ = wait.lock().recv();
        }
    });
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| client.venus.flush(&me(), handle, None));
        is_asked.recv().unwrap();
        client.venus.release(&me(), handle, None).unwrap();
        client.venus.changes().unlink(&me(), client.root, &name("f")).unwrap();
        drop(go);
        flush.join().unwrap().unwrap();
    });
    sync_root(&client);
    assert_nothing_waits(&client);
}

#[test]
fn a_file_with_another_name_keeps_what_is_unsaved() {
    for (client, _server) in clients() {
        let fid = written(&client, "f");
        client.venus.changes().link(&me(), fid, client.root, &name("g")).unwrap();
        client.venus.changes().unlink(&me(), client.root, &name("f")).unwrap();
        sync_root(&client);
        assert_eq!(client.venus.control().unsaved(), (vec![(fid, BYTES.len() as u64)], 0));
    }
}
