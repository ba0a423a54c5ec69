//! Names that another client changes, under lookups and listings of many threads: later lookups see
//! the changes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Client, Over, TestServer, me, name};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Cookie, Fid, Name, NewKind, RenameMode};
use venus::LookupReply;

/// Several pages when they are listed ahead, of 64 KiB and then 256 KiB.
const FILES: u64 = 1500;

fn file(number: u64) -> Name {
    name(&format!("file-{number}"))
}

fn is_there(client: &Client, dir: Fid, name: &Name) -> bool {
    match client.venus.lookup(&me(), dir, name).unwrap() {
        LookupReply::Entry(entry) => {
            client.venus.forget(entry.status.fid, 1);
            true
        }
        LookupReply::Absent { .. } => false,
    }
}

/// All names, page by page.
fn list(client: &Client, dir: Fid, plus: bool) {
    let handle = client.venus.dirs().opendir(&me(), dir).unwrap();
    let mut cookie = Cookie::START;
    loop {
        let listing = client.venus.dirs().readdir(&me(), handle, cookie, 16 << 10, plus).unwrap();
        cookie = listing.entries.last().map_or(cookie, |entry| entry.cookie);
        if listing.end {
            break;
        }
    }
    client.venus.dirs().releasedir(handle);
}

#[test]
fn others_renames_are_seen_beside_listings_and_lookups() {
    for seed in 0..3 {
        let server = TestServer::in_memory();
        let (client, other) = (server.remote_client(1), server.remote_client(2));
        let dir = other
            .venus
            .changes()
            .make(&me(), server.root, &name("dir"), NewKind::Directory, 0o755)
            .unwrap()
            .status
            .fid;
        for number in 0..FILES {
            other.venus.changes().make(&me(), dir, &file(number), NewKind::File, 0o644).unwrap();
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for helper in 0..3 {
                let (client, over) = (&client, &over);
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed * 10 + helper);
                    while !over.load(Ordering::SeqCst) {
                        if helper == 0 && random.random_bool(0.5) {
                            list(client, dir, random.random());
                        }
                        for number in 0..random.random_range(1..FILES) {
                            is_there(client, dir, &file(number));
                        }
                    }
                });
            }
            let _over = Over(&over);
            let mut random = SmallRng::seed_from_u64(seed);
            for step in 0..400 {
                let (from, to) =
                    (file(random.random_range(0..FILES)), name(&format!("moved-{step}")));
                let rename = |from, to| {
                    other
                        .venus
                        .changes()
                        .rename(&me(), (dir, from), (dir, to), RenameMode::NoReplace)
                        .unwrap();
                };
                rename(&from, &to);
                assert!(
                    !is_there(&client, dir, &from),
                    "seed {seed}, step {step}: {from:?} is away"
                );
                assert!(
                    is_there(&client, dir, &to),
                    "seed {seed}, step {step}: {from:?} is {to:?}"
                );
                rename(&to, &from);
                assert!(
                    is_there(&client, dir, &from),
                    "seed {seed}, step {step}: {from:?} is back"
                );
                let any = file(random.random_range(0..FILES));
                assert!(
                    is_there(&client, dir, &any),
                    "seed {seed}, step {step}: {any:?} was never away for long"
                );
            }
        });
    }
}
