//! The cell's database through a server: from another server's side, and over its restart.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use celldb::{CellDb, CellError};
use client::{Endpoint, Remote};
use common::{Cell, ask, connect, name, try_ask};
use server::{CellPlace, RemoteCell};
use types::{
    Answer, Busy, Call, Caller, CellCall, Changed, Fault, Revision, ServerId, ServerInfo, Site, SiteKind, VolumeGroup,
    VolumeId, WhichVolume,
};

mod common;

fn group(number: u64, named: &str) -> VolumeGroup {
    let site = Site { server: ServerId(7), partition: "/vicepa".into(), kind: SiteKind::ReadWrite, epoch: 0 };
    VolumeGroup::new(name(named), VolumeId(number), site)
}

fn start() -> Cell {
    Cell::with(|config| {
        let beside = config.unix_socket.as_ref().unwrap().with_file_name("celldb");
        config.cell = Some(CellPlace::Here(beside));
    })
}

#[test]
fn another_server_sees_what_one_beside_the_database_would() {
    let mut cell = start();
    for endpoint in cell.both() {
        let db = RemoteCell::at(endpoint);
        let first = db.take_numbers(10).unwrap();
        assert_eq!(db.take_numbers(1).unwrap(), VolumeId(first.0 + 10));
        let mut home = group(first.0, "home");
        let made = db.put_group(&home, Revision(0)).unwrap();
        assert_eq!(db.revision().unwrap(), made);
        assert_eq!(db.put_group(&home, Revision(0)), Err(CellError::Conflict { expected: Revision(0), found: made }));
        let namesake = group(first.0 + 1, "home");
        let taken = CellError::Taken { what: "the name home".into(), by: VolumeId(first.0) };
        assert_eq!(db.put_group(&namesake, Revision(0)), Err(taken));
        let mut thief = group(first.0 + 2, "other");
        thief.backup = Some(VolumeId(first.0));
        let taken = CellError::Taken { what: format!("the number {}", first.0), by: VolumeId(first.0) };
        assert_eq!(db.put_group(&thief, Revision(0)), Err(taken));
        home.read_only = Some(VolumeId(first.0 + 3));
        home.busy = Some(Busy { operation: "release".into(), by: "somebody".into(), since_secs: 5 });
        let changed = db.put_group(&home, made).unwrap();
        let seen = db.group_of(VolumeId(first.0 + 3)).unwrap().unwrap();
        assert_eq!((&seen.record, seen.revision), (&home, changed));
        assert_eq!(db.group_named(&name("home")).unwrap(), Some(seen));
        let server = ServerInfo { id: ServerId(9), name: "nine".into(), addresses: vec![] };
        let entered = db.put_server(&server, Revision(0)).unwrap();
        assert!(db.servers().unwrap().iter().any(|seen| seen.record == server && seen.revision == entered));
        let news = db.changes(made, 100).unwrap();
        assert_eq!(news, [(changed, Changed::Group(home.read_write)), (entered, Changed::Server(server.id))]);
        // Over the server's restart: the session goes on.
        cell.crash();
        cell.start();
        assert_eq!(db.group_of(VolumeId(first.0)).unwrap().map(|seen| seen.record), Some(home));
        db.remove_server(server.id, entered).unwrap();
        db.remove_group(first, changed).unwrap();
        assert_eq!(db.group_named(&name("home")).unwrap(), None);
        assert_eq!(db.group_of(VolumeId(0)).unwrap(), None);
    }
}

#[test]
fn a_listing_of_many_comes_in_pages() {
    let cell = start();
    let db = RemoteCell::at(cell.unix());
    let first = db.take_numbers(30).unwrap().0;
    for number in first..first + 30 {
        let mut large = group(number, &format!("volume-{number}"));
        let site = large.sites[0].clone();
        let named = |at: usize| format!("/{at:0254}");
        large.sites.extend((0..60).map(|at| Site { partition: named(at), kind: SiteKind::ReadOnly, ..site.clone() }));
        db.put_group(&large, Revision(0)).unwrap();
    }
    let of_one_answer =
        match ask(&connect(cell.unix()), Call::Cell(CellCall::Groups { after: VolumeId(first - 1), max: 100 })) {
            Answer::Groups { groups, end: false } => groups.len(),
            other => panic!("{other:?}"),
        };
    assert!((1..30).contains(&of_one_answer), "{of_one_answer}");
    let numbers = |max| -> Vec<u64> {
        db.groups(VolumeId(first - 1), max).unwrap().iter().map(|seen| seen.record.read_write.0).collect()
    };
    assert_eq!(numbers(1000), (first..first + 30).collect::<Vec<_>>());
    assert_eq!(numbers(25), (first..first + 25).collect::<Vec<_>>());
}

#[test]
fn a_server_enters_itself_and_says_where_it_is() {
    let mut cell = start();
    let addresses = |cell: &Cell| match ask(&connect(cell.unix()), Call::Cell(CellCall::Servers)) {
        Answer::Servers(servers) => servers.into_iter().map(|seen| (seen.record, seen.revision)).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let before = addresses(&cell);
    let Answer::Servers(me) = ask(&connect(cell.unix()), Call::Cell(CellCall::Me)) else { panic!() };
    assert_eq!((me.len(), &me[0].record), (1, &before[0].0), "who is asked says the same");
    let Endpoint::Tcp(address) = cell.tcp() else { panic!() };
    assert_eq!(before[0].0.addresses, [address.parse().unwrap()]);
    assert_eq!(before.len(), 1);
    cell.crash();
    cell.start();
    assert_eq!(addresses(&cell), before, "nothing changed, so nothing is written");
    cell.crash();
    cell.config.tcp_listen = None;
    cell.start();
    let after = addresses(&cell);
    assert_eq!((after.len(), after[0].0.id, &after[0].0.addresses), (1, before[0].0.id, &vec![]));
}

#[test]
fn only_root_changes_it_and_who_has_none_says_so() {
    let cell = start();
    let session = connect(cell.unix());
    let user = Caller { uid: 1000, ..Caller::ROOT };
    let as_user = |call| session.call(&user, Call::Cell(call), None).map(|reply| reply.answer);
    let refused = as_user(CellCall::TakeNumbers { count: 1 }).unwrap_err();
    assert_eq!(refused.to_string(), Fault::NotPermitted.to_string());
    assert!(matches!(as_user(CellCall::Groups { after: VolumeId(0), max: 1 }), Ok(Answer::Groups { .. })));
    let none = as_user(CellCall::Group { volume: WhichVolume::Id(VolumeId(4711)) }).unwrap_err();
    assert_eq!(none.to_string(), Fault::NoVolume.to_string());
    for count in [0, u32::MAX] {
        let refused = try_ask(&session, Call::Cell(CellCall::TakeNumbers { count })).unwrap_err();
        assert_eq!(refused.to_string(), Fault::Invalid.to_string());
    }
    let without = Cell::new();
    let refused = try_ask(&connect(without.unix()), Call::Cell(CellCall::Servers)).unwrap_err();
    assert_eq!(refused.to_string(), Fault::Unsupported.to_string());
}

#[test]
fn many_at_once_lose_no_change() {
    let cell = start();
    let db = Arc::new(RemoteCell::at(cell.unix()));
    let first = db.take_numbers(1).unwrap();
    db.put_group(&group(first.0, "home"), Revision(0)).unwrap();
    let add = |db: &RemoteCell, server: u128| loop {
        let seen = db.group_of(first).unwrap().unwrap();
        let mut group = seen.record;
        group.sites.push(Site { server: ServerId(server), kind: SiteKind::ReadOnly, ..group.sites[0].clone() });
        match db.put_group(&group, seen.revision) {
            Ok(_) => return,
            Err(CellError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = Arc::clone(&db);
            scope.spawn(move || (0..8).for_each(|at| add(&db, 100 + thread * 8 + at)));
        }
    });
    assert_eq!(db.group_of(first).unwrap().unwrap().record.sites.len(), 33);
}
