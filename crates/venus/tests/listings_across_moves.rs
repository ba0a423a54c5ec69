//! Listings in progress while the volume moves to a server with other cookies.

use std::collections::BTreeSet;
use std::sync::Arc;

use guard::{Acl, Cps};
use types::{Answer, Call, Caller, Cookie, DirEntry, PrincipalId};
use venus::RequestContext;

use crate::common::{Client, TestServer, me};

struct Known;

impl vice::Principals for Known {
    fn cps(&self, caller: &Caller) -> Result<Cps, types::Fault> {
        Ok(Cps::new(PrincipalId(1), caller.who.level, []))
    }
}

/// When a listing finds that the volume has moved.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moved {
    Between,
    WithinACall,
}

/// As the cache manager hears of it, before the next place answers.
fn move_away(client: &Client) {
    let events = client.wire.events.lock().clone().unwrap();
    events.on_lease_lost();
}

/// The other place: the same entries in the opposite order, with cookies of its own.
fn answer(entries: &[DirEntry], call: &Call) -> Option<Answer> {
    let Call::ReadDir { cookie, .. } = call else { return None };
    let from = usize::try_from(cookie.0).unwrap_or(usize::MAX).min(entries.len());
    let numbered = entries.iter().rev().zip(1..).skip(from).take(20);
    let entries: Vec<_> = numbered
        .map(|(entry, number)| DirEntry { cookie: Cookie(number), ..entry.clone() })
        .collect();
    let end = entries.last().is_none_or(|last| last.cookie.0 == 200);
    Some(Answer::Entries { entries, end, dir_version: types::DataVersion(1) })
}

#[test]
fn a_listing_shows_each_name_once_though_the_volume_moves() {
    let server = TestServer::with_principals(Arc::new(Known));
    let maker = server.client(1);
    for file in 0..200 {
        let (_, handle) = maker.create(&format!("file-{file}"));
        maker.close(handle);
    }
    let mut list = Acl::new();
    assert!(list.set(PrincipalId(1), "rlidwka".parse().unwrap(), false));
    let root = Caller::ROOT;
    maker
        .venus
        .access()
        .set_acl(&RequestContext::of(&root), server.root, Some(&list), None)
        .unwrap();
    let plain = |entry: venus::ListEntry| DirEntry {
        name: entry.name,
        fid: entry.fid,
        kind: entry.kind,
        cookie: entry.cookie,
        status: None,
        sole: false,
        target: None,
    };
    let all: Vec<DirEntry> = maker.list(server.root, false).into_iter().map(plain).collect();
    for moved in [Moved::Between, Moved::WithinACall] {
        for pages_before in 1..4 {
            let client = Arc::new(server.client(2 + pages_before));
            client.venus.getattr(&me(), client.root).unwrap();
            let handle = client.venus.dirs().opendir(&me(), client.root).unwrap();
            let (mut cookie, mut shown, mut pages) = (Cookie::START, Vec::new(), 0);
            loop {
                if pages == pages_before {
                    let (entries, mover) = (all.clone(), Arc::downgrade(&client));
                    let first = std::sync::Once::new();
                    if moved == Moved::Between {
                        first.call_once(|| move_away(&client));
                    }
                    client.wire.set_before(move |call| {
                        if matches!(call, Call::ReadDir { .. }) {
                            first.call_once(|| move_away(&mover.upgrade().unwrap()));
                        }
                        answer(&entries, call).map(Ok)
                    });
                }
                let page = client.venus.dirs().readdir(&me(), handle, cookie, 1024, false);
                let page = page.unwrap();
                pages += 1;
                // As a mount whose kernel has no room for the rest.
                let fitting = page.entries.len() - page.entries.len() / 3;
                let taken = &page.entries[..fitting];
                shown.extend(taken.iter().map(|entry| entry.name.clone()));
                cookie = taken.last().map_or(cookie, |entry| entry.cookie);
                if page.end && taken.len() == page.entries.len() {
                    break;
                }
            }
            let what = format!("{moved:?} after {pages_before} pages");
            assert_eq!(shown.len(), 200, "{what}");
            assert_eq!(shown.iter().collect::<BTreeSet<_>>().len(), 200, "{what}");
        }
    }
}
