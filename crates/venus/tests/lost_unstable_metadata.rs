//! Unstable metadata that the server lost before a commit: the process that syncs receives the
//! error, once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::history::only;
use crate::common::{Client, RO, RW, TestServer, me, name};
use client::CallError;
use types::{Call, Fault, Fid, NewKind, RenameMode, StatusChange};
use venus::{Error, OpenHandle, VenusConfig};

/// A client with a directory of its own, whose delegation it has if there are delegations.
fn far(server: &TestServer, delegations: bool) -> Client {
    let dirty_age = Duration::from_secs(3600);
    let mut client = server.client_with(
        1,
        false,
        VenusConfig { delegations, dirty_age, ..VenusConfig::default() },
    );
    client.wire.life.store(1, Ordering::SeqCst);
    let made = client
        .venus
        .changes()
        .make(&me(), client.root, &name("top"), NewKind::Directory, 0o755)
        .unwrap();
    client.root = made.status.fid;
    make(&client, "first");
    assert_eq!(sync_names(&client), Ok(()));
    client
}

/// The server's machine restarts with its stable state.
fn lose(client: &Client) {
    client.wire.life.fetch_add(1, Ordering::SeqCst);
}

fn make(client: &Client, text: &str) -> Fid {
    let made =
        client.venus.changes().make(&me(), client.root, &name(text), NewKind::File, 0o644).unwrap();
    // Delegated changes are acknowledged later.
    client.venus.send_written(&me()).unwrap();
    made.status.fid
}

fn set(client: &Client, fid: Fid, change: StatusChange) {
    client.venus.setattr(&me(), fid, change).unwrap();
    client.venus.send_written(&me()).unwrap();
}

fn sync_names(client: &Client) -> Result<(), Error> {
    client.venus.dirs().fsyncdir(&me(), client.root)
}

fn sync(client: &Client, handle: OpenHandle) -> Result<(), Error> {
    client.venus.fsync(&me(), handle)
}

#[test]
fn du5_lost_names_are_reported_for_their_directory() {
    for delegations in [false, true] {
        let server = TestServer::in_memory();
        let client = far(&server, delegations);
        make(&client, "lost");
        lose(&client);
        assert_eq!(sync_names(&client), Err(Error::Lost), "delegations: {delegations}");
        assert_eq!(sync_names(&client), Ok(()));

        make(&client, "stable");
        assert_eq!(sync_names(&client), Ok(()));
        lose(&client);
        assert_eq!(sync_names(&client), Ok(()));

        let (from, to) = (name("stable"), name("renamed"));
        client
            .venus
            .changes()
            .rename(&me(), (client.root, &from), (client.root, &to), RenameMode::Replace)
            .unwrap();
        client.venus.send_written(&me()).unwrap();
        lose(&client);
        // A change after the loss is stable; one before it is not.
        make(&client, "later");
        assert_eq!(sync_names(&client), Err(Error::Lost));
    }
}

#[test]
fn du5_lost_status_is_reported_to_handles_or_the_first_opener() {
    for delegations in [false, true] {
        let server = TestServer::in_memory();
        let client = far(&server, delegations);
        let (fid, handle) = client.create("open");
        client.write(handle, 0, b"to be cut");
        let other = client.open("open", RW);
        assert_eq!(sync(&client, handle), Ok(()));
        set(&client, fid, StatusChange { size: Some(2), ..StatusChange::default() });
        lose(&client);
        assert_eq!(sync(&client, handle), Err(Error::Lost), "delegations: {delegations}");
        assert_eq!(sync(&client, handle), Ok(()));
        assert_eq!(sync(&client, other), Err(Error::Lost));

        let closed = make(&client, "closed");
        assert_eq!(sync_names(&client), Ok(()));
        set(&client, closed, StatusChange { mode: Some(0o600), ..StatusChange::default() });
        lose(&client);
        let handle = client.open("closed", RO);
        assert_eq!(sync(&client, handle), Err(Error::Lost));
        assert_eq!(sync(&client, handle), Ok(()));
    }
}

/// The answer to a new list names nothing.
#[test]
fn du5_a_lost_list_is_reported() {
    let server = TestServer::in_memory();
    let client = far(&server, false);
    let set = |fid, rights| {
        client.venus.access().set_acl(&me(), fid, Some(&only(10, rights)), None).unwrap();
    };
    set(server.root, "rlidwk");
    set(client.root, "rl");
    assert_eq!(sync_names(&client), Ok(()));
    set(client.root, "l");
    lose(&client);
    assert_eq!(sync_names(&client), Err(Error::Lost));
    assert_eq!(sync_names(&client), Ok(()));
}

#[test]
fn du5_a_sync_of_everything_reports_any_loss() {
    let server = TestServer::in_memory();
    let client = far(&server, true);
    make(&client, "lost");
    lose(&client);
    assert_eq!(client.venus.syncfs(&me(), client.root), Err(Error::Lost));
    assert_eq!(client.venus.syncfs(&me(), client.root), Ok(()));
    assert_eq!(
        sync_names(&client),
        Err(Error::Lost),
        "the loss is reported to the first sync of the directory"
    );
}

#[test]
fn a_commit_of_anything_makes_the_names_stable() {
    let server = TestServer::in_memory();
    let client = far(&server, true);
    let (_, handle) = client.create("file");
    make(&client, "other");
    assert_eq!(sync(&client, handle), Ok(()));
    lose(&client);
    assert_eq!(sync_names(&client), Ok(()));
}

/// A commit of something else makes names and lengths stable, but not the files' contents.
#[test]
fn a_cut_needs_a_commit_of_its_own() {
    for (delegations, own) in [(false, false), (false, true), (true, false), (true, true)] {
        let server = TestServer::in_memory();
        let client = far(&server, delegations);
        let (fid, handle) = client.create("file");
        client.write(handle, 0, b"to be cut");
        assert_eq!(sync(&client, handle), Ok(()));
        set(&client, fid, StatusChange { size: Some(2), ..StatusChange::default() });
        set(&client, fid, StatusChange { mode: Some(0o600), ..StatusChange::default() });
        assert_eq!(if own { sync(&client, handle) } else { sync_names(&client) }, Ok(()));
        lose(&client);
        assert_eq!(
            sync(&client, handle),
            if own { Ok(()) } else { Err(Error::Lost) },
            "delegations: {delegations}"
        );
    }
}

#[test]
fn changes_moved_with_their_volume_are_stable() {
    let server = TestServer::in_memory();
    let client = far(&server, false);
    make(&client, "file");
    let events = client.wire.events.lock().clone().unwrap();
    events.on_moved(&*client.wire);
    lose(&client);
    assert_eq!(sync_names(&client), Ok(()));
}

#[test]
fn changes_that_a_lost_server_alone_had_are_reported() {
    for delegations in [false, true] {
        let server = TestServer::in_memory();
        let client = far(&server, delegations);
        make(&client, "file");
        let events = client.wire.events.lock().clone().unwrap();
        events.on_taken_over(&*client.wire);
        assert_eq!(sync_names(&client), Err(Error::Lost), "delegations: {delegations}");
        assert_eq!(sync_names(&client), Ok(()), "it is reported once");
    }
}

#[test]
fn a_stable_change_that_a_standby_lacks_is_reported_once() {
    let server = TestServer::in_memory();
    let client = far(&server, false);
    let (fid, handle) = client.create("file");
    client.write(handle, 0, b"acknowledged");
    assert_eq!(sync(&client, handle), Ok(()));
    let events = client.wire.events.lock().clone().unwrap();
    events.on_taken_over(&*client.wire);
    events.on_changes_lost(&[fid]);
    assert_eq!(sync(&client, handle), Err(Error::Lost));
    assert_eq!(sync(&client, handle), Ok(()));
}

#[test]
fn on_the_servers_machine_no_process_outlives_the_loss() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    client.wire.life.store(1, Ordering::SeqCst);
    make(&client, "file");
    lose(&client);
    assert_eq!(sync_names(&client), Ok(()));
}

#[test]
fn a_change_answered_here_and_refused_there_is_reported() {
    let server = TestServer::in_memory();
    let client = far(&server, true);
    client.wire.set_before(|call| match call {
        Call::Make { .. } => Some(Err(CallError::Fault(Fault::Medium))),
        _ => None,
    });
    make(&client, "refused");
    client.wire.clear();
    assert_eq!(sync_names(&client), Err(Error::Lost));
    assert_eq!(sync_names(&client), Ok(()));
}
