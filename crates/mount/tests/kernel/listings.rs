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
    let Answer::Made { status, .. } =
        made(Call::Make { dir, name, kind: NewKind::Directory, mode: 0o755, how })
    else {
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
    let inode =
        |path: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(client.at(path)).unwrap());
    let list = |path: &str| -> Vec<(String, u64)> {
        let open = rustix::fs::open(
            client.at(path),
            rustix::fs::OFlags::DIRECTORY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let entries = rustix::fs::Dir::read_from(open).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| (entry.file_name().to_str().unwrap().to_owned(), entry.ino())).collect()
    };
    assert_eq!(list("a/b"), [(".".to_owned(), inode("a/b")), ("..".to_owned(), inode("a"))]);
    assert_eq!(list("a")[..2], [(".".to_owned(), inode("a")), ("..".to_owned(), inode(""))]);
    assert_eq!(list("")[..2], [(".".to_owned(), inode("")), ("..".to_owned(), 1)]);
}

/// The names that an open directory lists from its beginning on.
fn names(dir: &mut rustix::fs::Dir) -> BTreeSet<String> {
    dir.rewind();
    let entries = dir.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    entries.filter(|name| name != "." && name != "..").collect()
}

fn open_dir(path: &std::path::Path) -> rustix::fs::Dir {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::Dir::new(rustix::fs::open(path, OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap()
}

#[test]
fn an_offset_leads_back_to_what_came_behind_it() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    for (dir, count) in [("none", 0), ("few", 5), ("many", 3000)] {
        fs::create_dir(client.at(dir)).unwrap();
        (0..count)
            .for_each(|i| drop(fs::File::create(client.at(dir).join(format!("{i:06}"))).unwrap()));
        let mut open = open_dir(&client.at(dir));
        let mut all = Vec::new();
        while let Some(entry) = open.read() {
            let entry = entry.unwrap();
            all.push((entry.offset(), entry.file_name().to_owned()));
        }
        assert_eq!(all.len(), count + 2, "{dir}");
        for at in (0..all.len()).step_by(1 + all.len() / 7).chain([all.len() - 1]) {
            open.seek(all[at].0).unwrap();
            let rest: Vec<_> =
                open.by_ref().map(|entry| entry.unwrap().file_name().to_owned()).collect();
            assert!(
                rest.iter().eq(all[at + 1..].iter().map(|(_, name)| name)),
                "{dir}, behind {at}"
            );
        }
        open.rewind();
        assert_eq!(open.count(), count + 2, "{dir}, again");
    }
}

#[test]
fn a_cached_listing_ends_before_a_change_elsewhere_returns() {
    const ROUNDS: usize = 300;
    let Some(cell) = Cell::start() else { return };
    fill(&cell, 20);
    let (here, there) = (cell.mount(), cell.mount());
    let stop = AtomicBool::new(false);
    let mut lasting = open_dir(&here.at("dir"));
    let all = names(&mut lasting);
    std::thread::scope(|scope| {
        // Other readers list it all the time, so that breaks meet listings at each of their stages.
        for lasts in [true, false] {
            let (here, stop) = (&here, &stop);
            scope.spawn(move || {
                let mut dir = open_dir(&here.at("dir"));
                while !stop.load(Ordering::Relaxed) {
                    if !lasts {
                        dir = open_dir(&here.at("dir"));
                    }
                    names(&mut dir);
                }
            });
        }
        // Also if the rest fails: the other readers would never stop.
        let _stops = Stops(&stop);
        for round in 0..ROUNDS {
            let name = format!("new-{round}");
            fs::write(there.at("dir").join(&name), "").unwrap();
            let more: BTreeSet<String> = all.iter().cloned().chain([name.clone()]).collect();
            assert_eq!(names(&mut lasting), more, "rewound, round {round}");
            assert_eq!(names(&mut open_dir(&here.at("dir"))), more, "opened, round {round}");
            fs::remove_file(there.at("dir").join(&name)).unwrap();
            assert_eq!(names(&mut lasting), all, "rewound, removed in round {round}");
            assert_eq!(
                names(&mut open_dir(&here.at("dir"))),
                all,
                "opened, removed in round {round}"
            );
        }
    });
}

/// Sets the flag when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn own_changes_are_in_the_next_listing() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("dir");
    fs::create_dir(&path).unwrap();
    let mut lasting = open_dir(&path);
    let mut expected = BTreeSet::new();
    for round in 0..50 {
        assert_eq!(names(&mut lasting), expected, "round {round}");
        assert_eq!(names(&mut open_dir(&path)), expected, "kept, round {round}");
        let name = format!("file-{round}");
        fs::write(path.join(&name), "").unwrap();
        expected.insert(name);
        if round % 3 == 0 {
            fs::rename(path.join(format!("file-{round}")), path.join(format!("moved-{round}")))
                .unwrap();
            expected.remove(&format!("file-{round}"));
            expected.insert(format!("moved-{round}"));
        }
    }
    fs::remove_dir_all(&path).unwrap();
}
