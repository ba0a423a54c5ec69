//! Listings, long and while their directory changes.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use types::{Answer, Call, Caller, CreateHow, Fid, Name, NewKind};

use crate::cell::{Cell, volume};

/// Makes `count` files without going through a kernel.
fn fill(cell: &Cell, count: usize) {
    let session = cell.session();
    let made = |call| session.call(&Caller::ROOT, call, None).unwrap().answer;
    let Answer::Status(root) = made(Call::Root { volume: volume() }) else { panic!() };
    let (dir, name) = (root.fid, Name::new(b"dir").unwrap());
    let how = CreateHow::Guarded;
    let Answer::Made { status, .. } = made(Call::Make { dir, name, kind: NewKind::Directory, mode: 0o755, how }) else {
        panic!()
    };
    std::thread::scope(|scope| {
        for half in 0..2 {
            let session = &session;
            scope.spawn(move || {
                for number in (half..count).step_by(2) {
                    make_file(&**session, status.fid, number);
                }
            });
        }
    });
}

fn make_file(session: &dyn client::Remote, dir: Fid, number: usize) {
    let name = Name::new(format!("{number:06}").as_bytes()).unwrap();
    let call = Call::Make { dir, name, kind: NewKind::File, mode: 0o644, how: CreateHow::Guarded };
    session.call(&Caller::ROOT, call, None).unwrap();
}

#[test]
fn a_hundred_thousand_entries_are_listed_once_each() {
    const COUNT: usize = 100_000;
    let Some(cell) = Cell::start() else { return };
    fill(&cell, COUNT);
    let client = cell.mount();
    for _ in 0..2 {
        let mut seen = vec![false; COUNT];
        for entry in fs::read_dir(client.at("dir")).unwrap() {
            let number: usize = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
            assert!(!std::mem::replace(&mut seen[number], true), "{number} twice");
        }
        assert!(seen.into_iter().all(|seen| seen));
    }
}

#[test]
fn entries_that_stay_are_listed_once_while_others_come_and_go() {
    const STAY: usize = 2000;
    let Some(cell) = Cell::start() else { return };
    fill(&cell, STAY);
    let (here, there) = (cell.mount(), cell.mount());
    let stop = AtomicBool::new(false);
    let stays: BTreeSet<String> = (0..STAY).map(|number| format!("{number:06}")).collect();
    std::thread::scope(|scope| {
        for (client, mark) in [(&here, "x"), (&there, "y")] {
            let stop = &stop;
            scope.spawn(move || {
                for round in 0.. {
                    let path = client.at(&format!("dir/{mark}{round}"));
                    fs::write(&path, "").unwrap();
                    fs::remove_file(&path).unwrap();
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for client in [&here, &there, &here, &there, &here] {
            let mut seen = BTreeSet::new();
            for entry in fs::read_dir(client.at("dir")).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(!stays.contains(&name) || seen.insert(name.clone()), "{name} twice");
            }
            assert_eq!(seen, stays);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn dots_lead_here_and_up() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    fs::create_dir_all(client.at("a/b")).unwrap();
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(client.at(path)).unwrap());
    let list = |path: &str| -> Vec<(String, u64)> {
        let open = rustix::fs::open(client.at(path), rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
        let entries = rustix::fs::Dir::read_from(open).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| (entry.file_name().to_str().unwrap().to_owned(), entry.ino())).collect()
    };
    assert_eq!(list("a/b"), [(".".to_owned(), inode("a/b")), ("..".to_owned(), inode("a"))]);
    assert_eq!(list("a")[..2], [(".".to_owned(), inode("a")), ("..".to_owned(), inode(""))]);
    assert_eq!(list("")[..2], [(".".to_owned(), 1), ("..".to_owned(), 1)]);
}
