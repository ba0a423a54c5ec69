//! The number of calls of each operation: an answer from a warm cache costs none.

use std::collections::BTreeMap;

use crate::common::{RO, RW, TestServer, me, name};
use types::{Cookie, Fault, NewKind, SeekWhat};
use venus::{LookupReply, VenusConfig};

fn calls<const N: usize>(expected: [(&'static str, usize); N]) -> BTreeMap<&'static str, usize> {
    BTreeMap::from(expected)
}

#[test]
fn a_new_small_file_costs_a_make_and_a_write() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (fid, handle) = client.create("a");
    client.write(handle, 0, b"hello");
    client.close(handle);
    assert_eq!(client.wire.take(), calls([("Make", 1), ("Write", 1)]));
    let status = client.venus.getattr(&me(), fid).unwrap();
    assert!(status.cacheable && status.status.size == 5);
    assert_eq!(client.wire.take(), calls([]), "the answer to the write brought the status");
}

#[test]
fn cached_answers_cost_no_calls() {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    let (_, handle) = maker.create("a");
    maker.write(handle, 0, b"hello");
    maker.close(handle);

    let client = server.client(2);
    let cold = client.find("a").unwrap();
    assert!(cold.cacheable && cold.name_cacheable);
    assert_eq!(client.wire.take(), calls([("Lookup", 1)]));
    assert_eq!(client.find("a").unwrap().status, cold.status);
    client.venus.getattr(&me(), cold.status.fid).unwrap();
    let handle = client.venus.open(&me(), cold.status.fid, RO).unwrap().handle;
    client.close(handle);
    assert_eq!(client.wire.take(), calls([]), "lookup, getattr, open and close of a known file");
    assert!(client.find("b").is_none());
    assert!(client.find("b").is_none());
    assert_eq!(
        client.wire.take(),
        calls([("Lookup", 1)]),
        "that something is not there is remembered"
    );
}

#[test]
fn a_small_file_is_read_with_one_call() {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    let (_, handle) = maker.create("a");
    maker.write(handle, 0, b"hello");
    maker.close(handle);
    for descriptors in [true, false] {
        let client = server.client_with(
            2 + u128::from(descriptors),
            descriptors,
            venus::VenusConfig::default(),
        );
        let handle = client.open("a", RO);
        client.wire.take();
        assert_eq!(&client.read(handle, 0, 4096)[..], b"hello");
        assert!(client.read(handle, 5, 4096).is_empty(), "the end is known");
        client.close(handle);
        assert_eq!(client.wire.take(), calls([("Read", 1)]));
    }
}

#[test]
fn a_file_without_holes_is_not_asked_for_them() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    for (file, gap, dense) in [("dense", 0, true), ("sparse", 1 << 20, false), ("short", 0, true)] {
        let (_, handle) = client.create(file);
        let length = if file == "short" { 100 } else { 200_000 };
        client.write(handle, gap, &vec![1; length]);
        client.venus.flush(&me(), handle, None).unwrap();
        client.wire.take();
        let size = gap + length as u64;
        let seek = |offset, what| client.venus.lseek(&me(), handle, offset, what);
        assert_eq!(seek(0, SeekWhat::Hole).unwrap(), if dense { size } else { 0 });
        assert_eq!(seek(gap + 7, SeekWhat::Data).unwrap(), gap + 7);
        assert_eq!(seek(size, SeekWhat::Data), Err(Fault::NothingThere.into()));
        let asked = if dense { calls([]) } else { calls([("other", 3)]) };
        assert_eq!(client.wire.take(), asked, "{file}");
        client.close(handle);
    }
}

#[test]
fn a_listed_directory_knows_present_and_absent_names() {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    for i in 0..300 {
        let (_, handle) = maker.create(&format!("file-{i}"));
        maker.close(handle);
    }
    let client = server.client(2);
    assert_eq!(client.list(client.root, true).len(), 300);
    client.wire.take();
    for i in 0..300 {
        assert!(client.find(&format!("file-{i}")).unwrap().cacheable);
    }
    assert!(client.find("nothing").is_none());
    assert_eq!(
        client.wire.take(),
        calls([]),
        "a listing with status serves lookups, absent names too"
    );
    let (_, handle) = client.create("mine");
    client.close(handle);
    client.venus.changes().unlink(&me(), client.root, &name("file-7")).unwrap();
    client
        .venus
        .changes()
        .rename(
            &me(),
            (client.root, &name("file-8")),
            (client.root, &name("x")),
            types::RenameMode::Replace,
        )
        .unwrap();
    client.wire.take();
    assert!(client.find("mine").is_some() && client.find("x").is_some());
    assert!(
        client.find("file-7").is_none()
            && client.find("file-8").is_none()
            && client.find("nothing").is_none()
    );
    assert_eq!(client.wire.take(), calls([]), "our own changes keep the directory complete");
}

#[test]
fn a_directory_that_we_made_is_complete() {
    let server = TestServer::in_memory();
    // With a delegation even the files would cost nothing.
    let plain = venus::VenusConfig { delegations: false, ..venus::VenusConfig::default() };
    let client = server.client_with(1, true, plain);
    let dir = client
        .venus
        .changes()
        .make(&me(), client.root, &name("d"), NewKind::Directory, 0o755)
        .unwrap();
    client.wire.take();
    for i in 0..10 {
        let file = name(&format!("f{i}"));
        assert!(matches!(
            client.venus.lookup(&me(), dir.status.fid, &file).unwrap(),
            LookupReply::Absent { cacheable: true, .. }
        ));
        let (_, opened) =
            client.venus.create(&me(), dir.status.fid, &file, 0o644, false, RW).unwrap();
        client.close(opened.handle);
    }
    assert_eq!(client.wire.take(), calls([("Make", 10)]));
    assert!(client.venus.getattr(&me(), dir.status.fid).unwrap().cacheable);
    assert_eq!(client.wire.take(), calls([]), "the directory's own status came with each answer");
}

#[test]
fn links_and_attributes_are_asked_for_once() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let link = NewKind::Symlink(b"there".as_slice().into());
    let link = client
        .venus
        .changes()
        .make(&me(), client.root, &name("l"), link, 0o777)
        .unwrap()
        .status
        .fid;
    let (fid, handle) = client.create("f");
    client.wire.take();
    for _ in 0..3 {
        assert_eq!(&client.venus.readlink(&me(), link).unwrap()[..], b"there");
        assert!(client.venus.xattrs().getxattr(&me(), fid, b"user.none").is_err());
    }
    assert_eq!(
        client.wire.take(),
        calls([("other", 1)]),
        "the link's target; a file that we made has no attributes"
    );
    let other = server.client(2);
    other.find("f").unwrap();
    other.wire.take();
    for _ in 0..3 {
        assert!(other.venus.xattrs().getxattr(&me(), fid, b"user.none").is_err());
    }
    assert_eq!(other.wire.take(), calls([("other", 1)]), "what is not there is remembered");
    let set = client.venus.xattrs().setxattr(
        &me(),
        fid,
        b"user.none",
        b"v".as_slice().into(),
        types::XattrMode::Either,
    );
    set.unwrap();
    assert_eq!(&client.venus.xattrs().getxattr(&me(), fid, b"user.none").unwrap()[..], b"v");
    assert_eq!(&other.venus.xattrs().getxattr(&me(), fid, b"user.none").unwrap()[..], b"v");
    client.close(handle);
}

#[test]
fn lookups_in_a_row_list_the_rest_ahead() {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    let count = 1000;
    for i in 0..count {
        let (_, handle) = maker.create(&format!("file-{i}"));
        maker.close(handle);
    }
    let client = server.client(2);
    client.wire.take();
    for i in 0..count {
        assert!(client.find(&format!("file-{i}")).unwrap().cacheable);
    }
    let asked = client.wire.take();
    let (lookups, pages) =
        (asked.get("Lookup").copied().unwrap_or(0), asked.get("ReadDir").copied().unwrap_or(0));
    assert!(lookups < count / 4 && (1..=10).contains(&pages), "{asked:?}");
    assert!(client.find("nothing").is_none());
    maker.venus.changes().unlink(&me(), maker.root, &name("file-7")).unwrap();
    assert!(client.find("file-7").is_none() && client.find("file-8").is_some());
}

/// A directory of several pages, a client that has read the first of them, and the cookie of the
/// next one.
fn one_page_read(server: &TestServer) -> (crate::common::Client, venus::DirHandle, Cookie) {
    let maker = server.client(1);
    for i in 0..300 {
        let (_, handle) = maker.create(&format!("file-{i}"));
        maker.close(handle);
    }
    maker.venus.shutdown().unwrap();
    let client = server.client(2);
    let handle = client.venus.dirs().opendir(&me(), client.root).unwrap();
    let page = client.venus.dirs().readdir(&me(), handle, Cookie::START, PAGE, true).unwrap();
    assert!(!page.end && page.entries.len() > 10);
    while client.wire.count("ReadDir") < 2 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    (client, handle, page.entries.last().unwrap().cookie)
}

/// Bytes of a page in the tests of listing.
const PAGE: u32 = 8192;

#[test]
fn the_next_page_of_a_listing_is_fetched_while_one_is_taken() {
    let server = TestServer::in_memory();
    let (client, handle, mut cookie) = one_page_read(&server);
    let mut pages = 1;
    loop {
        let page = client.venus.dirs().readdir(&me(), handle, cookie, PAGE, true).unwrap();
        assert!(page.entries.iter().all(|entry| entry.status.is_some() && entry.cacheable));
        pages += 1;
        cookie = page.entries.last().unwrap().cookie;
        if page.end {
            break;
        }
    }
    assert_eq!(client.wire.take(), calls([("ReadDir", pages)]), "each page once, by any reader");
    assert!(client.find("nothing").is_none());
    assert_eq!(client.wire.take(), calls([]), "the directory is complete");
}

#[test]
fn a_directory_too_large_for_the_cache_is_listed_ahead() {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    for i in 0..300 {
        maker.close(maker.create(&format!("file-{i}")).1);
    }
    maker.venus.shutdown().unwrap();
    let config = venus::VenusConfig { memory_bytes_max: 48 << 10, ..venus::VenusConfig::default() };
    let client = server.client_with(2, true, config);
    let handle = client.venus.dirs().opendir(&me(), client.root).unwrap();
    let (mut pages, mut cookie) = (0, Cookie::START);
    loop {
        let page = client.venus.dirs().readdir(&me(), handle, cookie, PAGE, true).unwrap();
        assert!(page.entries.iter().all(|entry| entry.status.is_some() && entry.cacheable));
        pages += 1;
        if page.end {
            break;
        }
        cookie = page.entries.last().unwrap().cookie;
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while client.wire.count("ReadDir") <= pages {
            assert!(
                std::time::Instant::now() < patience,
                "no reader fetches the page behind number {pages}"
            );
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    assert!(pages > 5);
    assert_eq!(client.wire.count("ReadDir"), pages, "each page once");
}

#[test]
fn cb1_a_page_fetched_before_a_change_is_not_shown_after_it() {
    for own in [false, true] {
        let server = TestServer::in_memory();
        let (client, handle, cookie) = one_page_read(&server);
        // As the listing would be without the change.
        let reader = client.venus.dirs().opendir(&me(), client.root).unwrap();
        let next = client.venus.dirs().readdir(&me(), reader, cookie, PAGE, true).unwrap();
        let (gone, grown) = (&next.entries[3], &next.entries[5]);
        let changer = server.client(3);
        let by = if own { &client } else { &changer };
        by.venus.changes().unlink(&me(), client.root, &gone.name).unwrap();
        let change = types::StatusChange { mode: Some(0o600), ..Default::default() };
        by.venus.setattr(&me(), grown.fid, change).unwrap();
        if !own {
            changer.venus.shutdown().unwrap();
        }
        let shown = client.venus.dirs().readdir(&me(), handle, cookie, PAGE, true).unwrap();
        assert!(shown.entries.iter().all(|entry| entry.name != gone.name), "own change: {own}");
        let shown = shown.entries.iter().find(|entry| entry.name == grown.name).unwrap();
        assert_eq!(shown.status.map_or(0o600, |status| status.mode), 0o600, "own change: {own}");
    }
}

/// A sync of everything asks the server only if it may lose something.
#[test]
fn du8_syncfs_asks_only_about_what_may_be_lost() {
    let server = TestServer::in_memory();
    let far = server.client_with(1, false, VenusConfig::default());
    far.venus.syncfs(&me(), far.root).unwrap();
    far.wire.take();
    far.venus.syncfs(&me(), far.root).unwrap();
    assert_eq!(far.wire.take(), calls([]), "nothing was changed");
    let (_, handle) = far.create("file");
    far.write(handle, 0, b"written");
    far.venus.send_written(&me()).unwrap();
    far.wire.take();
    far.venus.syncfs(&me(), far.root).unwrap();
    assert!(far.wire.take().contains_key("CommitVolume"), "the write was not stable");
    far.venus.syncfs(&me(), far.root).unwrap();
    assert_eq!(far.wire.take(), calls([]), "all of it is stable");
    // The kernel writes into the bodies of a server on this machine without a call, and the client
    // notes nothing of that: it must ask each time.
    let near = server.client_with(2, true, VenusConfig::default());
    for _ in 0..2 {
        near.wire.take();
        near.venus.syncfs(&me(), near.root).unwrap();
        assert!(near.wire.take().contains_key("CommitVolume"));
    }
}
