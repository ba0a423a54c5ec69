//! A directory with very many entries: 200,000 here; `RIALTO_ENTRIES=10000000` for the long form,
//! on a disk with room.

use std::collections::HashSet;
use std::time::Instant;

use crate::common::{Ground, Rig, name};
use types::{Answer, Call, Caller, Cookie, CreateHow, Fid, NewKind};

const ROOT: Caller = Caller::ROOT;

fn make(dir: Fid, at: &str) -> Call {
    Call::Make { dir, name: name(at), kind: NewKind::File, mode: 0o644, how: CreateHow::Guarded }
}

/// Pages through the directory; `between` may change it after each page.
fn list(
    rig: &mut Rig,
    dir: Fid,
    plus: bool,
    mut between: impl FnMut(&mut Rig, usize),
) -> Vec<types::Name> {
    let (mut names, mut cookie, mut pages) = (Vec::new(), Cookie::START, 0);
    loop {
        let call = Call::ReadDir { dir, cookie, bytes_max: u32::MAX, plus };
        let answer = rig.call(0, &ROOT, call).unwrap();
        let encoded = dafs::encode_answer(&answer).unwrap();
        assert!(
            encoded.message.len() <= types::limits::MESSAGE_BYTES_MAX,
            "a page fits into a message"
        );
        let Answer::Entries { entries, end, .. } = answer else { panic!() };
        assert!(entries.iter().all(|entry| entry.status.is_some() == plus));
        cookie = entries.last().map_or(cookie, |entry| entry.cookie);
        names.extend(entries.into_iter().map(|entry| entry.name));
        if end {
            return names;
        }
        between(rig, pages);
        pages += 1;
    }
}

#[test]
fn very_many_entries() {
    let wanted = std::env::var("RIALTO_ENTRIES").ok().and_then(|text| text.parse().ok());
    let count: usize = wanted.unwrap_or(200_000);
    if wanted.is_none() {
        println!(
            "200,000 entries; set RIALTO_ENTRIES=10000000 for the long form (20 minutes in a \
                release build)"
        );
    }
    let mut rig = Rig::new(Ground::disk(), 1);
    let root = rig.root();
    let dir = rig.directory(root, "many");
    let start = Instant::now();
    for number in 0..count {
        rig.call(0, &ROOT, make(dir, &format!("entry number {number}"))).unwrap();
    }
    println!("made {count} in {:?}", start.elapsed());
    let start = Instant::now();
    // Entries are made and removed during the listing: each entry that stays appears once.
    let names = list(&mut rig, dir, true, |rig, page| {
        rig.call(0, &ROOT, make(dir, &format!("new {page}"))).unwrap();
        rig.call(0, &ROOT, crate::common::remove(dir, &format!("entry number {page}"))).unwrap();
    });
    println!("listed with status in {:?}", start.elapsed());
    let seen: HashSet<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    assert_eq!(seen.len(), names.len(), "no entry twice");
    let stays = (count / 2..count).map(|number| format!("entry number {number}"));
    assert!(
        stays.into_iter().all(|name| seen.contains(name.as_bytes())),
        "every entry that stayed"
    );
    let before = list(&mut rig, dir, false, |_, _| ()).len();
    rig.restart();
    rig.reclaim(0);
    assert_eq!(list(&mut rig, dir, false, |_, _| ()).len(), before);
    assert!(rig.look(0, dir, &format!("entry number {}", count - 1)).is_ok());
}

#[test]
fn a_page_of_the_longest_names_fits_into_a_message() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    for number in 0..1500 {
        rig.call(0, &ROOT, make(root, &format!("{number:x>255}"))).unwrap();
    }
    for plus in [false, true] {
        assert_eq!(list(&mut rig, root, plus, |_, _| ()).len(), 1500);
    }
}

#[test]
fn a_page_has_at_least_one_entry() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    rig.file(root, "a name");
    rig.file(root, "another");
    let call = Call::ReadDir { dir: root, cookie: Cookie::START, bytes_max: 0, plus: true };
    let Ok(Answer::Entries { entries, end, .. }) = rig.call(0, &ROOT, call) else { panic!() };
    assert_eq!((entries.len(), end), (1, false));
}
