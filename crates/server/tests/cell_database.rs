//! The cell database through a server: from another server's side, and over its restart.

use std::sync::Arc;

use crate::common::{Cell, ask, connect, name, try_ask, wait_for};
use celldb::{CellDb, CellError, RemoteCellDb};
use client::{CallError, ClientOptions, Endpoint, Remote};
use server::CellPlace;
use types::{
    Answer, Busy, Call, Caller, CellCall, Changed, Fault, LevelAct, Revision, ServerId, ServerInfo,
    Site, SiteKind, VolumeCall, VolumeGroup, VolumeId, WhichVolume,
};

fn group(number: u64, named: &str) -> VolumeGroup {
    let site = Site {
        server: ServerId(7),
        partition: "/vicepa".into(),
        kind: SiteKind::ReadWrite,
        epoch: 0,
    };
    VolumeGroup::new(name(named), VolumeId(number), site)
}

fn start() -> Cell {
    Cell::with(|config| {
        let beside = config.unix_socket.as_ref().unwrap().with_file_name("celldb");
        config.cell = Some(CellPlace::Here(beside));
    })
}

#[test]
fn a_remote_database_answers_like_a_local_one() {
    let mut cell = start();
    for endpoint in cell.both() {
        let db = RemoteCellDb::at(endpoint, ClientOptions::default());
        let first = db.take_numbers(VolumeId(0), 10).unwrap();
        assert_eq!(db.take_numbers(VolumeId(0), 1).unwrap(), VolumeId(first.0 + 10));
        let mut home = group(first.0, "home");
        let made = db.put_group(&home, Revision(0)).unwrap();
        assert_eq!(db.revision().unwrap(), made);
        assert_eq!(
            db.put_group(&home, Revision(0)),
            Err(CellError::Conflict { expected: Revision(0), found: made })
        );
        let namesake = group(first.0 + 1, "home");
        let taken = CellError::Taken { what: "the name home".into(), by: VolumeId(first.0) };
        assert_eq!(db.put_group(&namesake, Revision(0)), Err(taken));
        let mut thief = group(first.0 + 2, "other");
        thief.backup = Some(VolumeId(first.0));
        let taken =
            CellError::Taken { what: format!("the number {}", first.0), by: VolumeId(first.0) };
        assert_eq!(db.put_group(&thief, Revision(0)), Err(taken));
        home.read_only = Some(VolumeId(first.0 + 3));
        home.busy =
            Some(Busy { operation: "release".into(), by: "somebody".into(), since_secs: 5 });
        let changed = db.put_group(&home, made).unwrap();
        let seen = db.group_of(VolumeId(first.0 + 3)).unwrap().unwrap();
        assert_eq!((&seen.record, seen.revision), (&home, changed));
        assert_eq!(db.group_named(&name("home")).unwrap(), Some(seen));
        let server =
            ServerInfo { id: ServerId(9), name: "nine".into(), addresses: vec![], keys: vec![] };
        let entered = db.put_server(&server, Revision(0)).unwrap();
        assert!(
            db.servers()
                .unwrap()
                .iter()
                .any(|seen| seen.record == server && seen.revision == entered)
        );
        let news = db.changes(made, 100).unwrap();
        assert_eq!(
            news,
            [(changed, Changed::Group(home.read_write)), (entered, Changed::Server(server.id))]
        );
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
    let db = RemoteCellDb::at(cell.unix(), ClientOptions::default());
    let first = db.take_numbers(VolumeId(0), 30).unwrap().0;
    for number in first..first + 30 {
        let mut large = group(number, &format!("volume-{number}"));
        let site = large.sites[0].clone();
        let named = |at: usize| format!("/{at:0254}");
        large.sites.extend((0..60).map(|at| Site {
            partition: named(at),
            kind: SiteKind::ReadOnly,
            ..site.clone()
        }));
        db.put_group(&large, Revision(0)).unwrap();
    }
    let of_one_answer = match ask(
        &connect(cell.unix()),
        Call::Cell(CellCall::Groups { after: VolumeId(first - 1), max: 100 }),
    ) {
        Answer::Groups { groups, end: false } => groups.len(),
        other => panic!("{other:?}"),
    };
    assert!((1..30).contains(&of_one_answer), "{of_one_answer}");
    let numbers = |max| -> Vec<u64> {
        db.groups(VolumeId(first - 1), max)
            .unwrap()
            .iter()
            .map(|seen| seen.record.read_write.0)
            .collect()
    };
    assert_eq!(numbers(1000), (first..first + 30).collect::<Vec<_>>());
    assert_eq!(numbers(25), (first..first + 25).collect::<Vec<_>>());
}

#[test]
fn a_server_enters_itself_and_its_addresses() {
    let mut cell = start();
    let addresses = |cell: &Cell| match ask(&connect(cell.unix()), Call::Cell(CellCall::Servers)) {
        Answer::Servers(servers) => {
            servers.into_iter().map(|seen| (seen.record, seen.revision)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let before = addresses(&cell);
    let Answer::Servers(me) = ask(&connect(cell.unix()), Call::Cell(CellCall::Me)) else {
        panic!()
    };
    assert_eq!((me.len(), &me[0].record), (1, &before[0].0), "the server itself reports the same");
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
fn only_root_changes_it_and_a_server_without_one_refuses() {
    let cell = start();
    let session = connect(cell.unix());
    let user = Caller { uid: 1000, ..Caller::ROOT };
    let as_user = |call| session.call(&user, Call::Cell(call), None).map(|reply| reply.answer);
    let refused = as_user(CellCall::TakeNumbers { above: VolumeId(0), count: 1 }).unwrap_err();
    assert_eq!(refused.to_string(), Fault::NotPermitted.to_string());
    assert!(matches!(
        as_user(CellCall::Groups { after: VolumeId(0), max: 1 }),
        Ok(Answer::Groups { .. })
    ));
    let none = as_user(CellCall::Group { volume: WhichVolume::Id(VolumeId(4711)) }).unwrap_err();
    assert_eq!(none.to_string(), Fault::NoVolume.to_string());
    for count in [0, u32::MAX] {
        let refused =
            try_ask(&session, Call::Cell(CellCall::TakeNumbers { above: VolumeId(0), count }))
                .unwrap_err();
        assert_eq!(refused.to_string(), Fault::Invalid.to_string());
    }
    let without = Cell::new();
    let refused = try_ask(&connect(without.unix()), Call::Cell(CellCall::Servers)).unwrap_err();
    assert_eq!(refused.to_string(), Fault::Unsupported.to_string());
}

#[test]
fn many_at_once_lose_no_change() {
    let cell = start();
    let db = Arc::new(RemoteCellDb::at(cell.unix(), ClientOptions::default()));
    let first = db.take_numbers(VolumeId(0), 1).unwrap();
    db.put_group(&group(first.0, "home"), Revision(0)).unwrap();
    let add = |db: &RemoteCellDb, server: u128| loop {
        let seen = db.group_of(first).unwrap().unwrap();
        let mut group = seen.record;
        group.sites.push(Site {
            server: ServerId(server),
            kind: SiteKind::ReadOnly,
            ..group.sites[0].clone()
        });
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

fn create(called: &str) -> Call {
    let name = name(called);
    let volume = VolumeCall::Create {
        id: None,
        partition: None,
        name,
        quota_bytes: 0,
        quota_files: 0,
        owner: (0, 0),
        encrypt: None,
    };
    Call::Volume(volume)
}

fn number_of(answer: &Answer) -> u64 {
    match answer {
        Answer::Volumes { volumes, .. } => volumes[0].id.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn servers_of_a_cell_use_no_number_twice() {
    let cell = Cell::with(|config| {
        let beside = config.unix_socket.as_ref().unwrap().with_file_name("celldb");
        config.cell = Some(CellPlace::Here(beside));
        config.name = Some("first".into());
        config.enters = vec![name("root"), name("absent")];
    });
    let other = Cell::with(|config| {
        config.cell = Some(CellPlace::At(cell.tcp()));
        config.name = Some("second".into());
        config.addresses = vec!["10.0.0.1:7".parse().unwrap()];
    });
    let db = RemoteCellDb::at(other.tcp(), ClientOptions::default());
    wait_for("the second server in the database", || db.servers().unwrap().len() == 2);
    let mut servers: Vec<_> = db.servers().unwrap().into_iter().map(|seen| seen.record).collect();
    servers.sort_by(|one, two| one.name.cmp(&two.name));
    assert_eq!((&*servers[0].name, &*servers[1].name), ("first", "second"));
    assert_eq!(servers[1].addresses, ["10.0.0.1:7".parse().unwrap()]);
    let root = db.group_named(&name("root")).unwrap().unwrap().record;
    let site = Site {
        server: servers[0].id,
        partition: "/vicepa".into(),
        kind: SiteKind::ReadWrite,
        epoch: 0,
    };
    assert_eq!((root.read_write, root.sites), (VolumeId(1), vec![site]), "entered by itself");
    let numbers: Vec<u64> = (0..6)
        .map(|at| {
            number_of(&ask(
                &connect([cell.unix(), other.unix()][at % 2].clone()),
                create(&format!("v{at}")),
            ))
        })
        .collect();
    // Both partitions had a volume with the number 1 before.
    assert_eq!(numbers, [2, 3, 4, 5, 6, 7]);
}

#[test]
fn volumes_are_served_and_none_is_made_without_the_database() {
    let mut cell = start();
    let other = Cell::with(|config| config.cell = Some(CellPlace::At(cell.tcp())));
    let session = connect(other.unix());
    ask(&session, create("before"));
    cell.crash();
    let away = |answer: Result<Answer, CallError>| {
        assert_eq!(answer.unwrap_err().fault(), Some(Fault::CellAway));
    };
    away(try_ask(&session, create("meanwhile")));
    away(try_ask(&session, Call::Cell(CellCall::Servers)));
    assert!(matches!(ask(&session, Call::Root { volume: name("before") }), Answer::Status(_)));
    assert!(matches!(ask(&session, Call::Cell(CellCall::Me)), Answer::Servers(_)));
    cell.start();
    wait_for("the database again", || try_ask(&session, create("after")).is_ok());
}

#[test]
fn clients_are_served_though_the_database_cannot_be_opened() {
    let cell = Cell::with(|config| {
        let beside = config.unix_socket.as_ref().unwrap().with_file_name("celldb");
        std::fs::write(&beside, "no directory").unwrap();
        config.cell = Some(CellPlace::Here(beside));
    });
    let session = connect(cell.unix());
    assert_eq!(try_ask(&session, create("x")).unwrap_err().fault(), Some(Fault::CellAway));
    assert!(matches!(ask(&session, Call::Root { volume: name("root") }), Answer::Status(_)));
    std::fs::remove_file(cell.path("celldb")).unwrap();
    wait_for("the database", || try_ask(&session, create("x")).is_ok());
    // The server enters itself a moment after the database is open.
    wait_for("its record", || {
        let answer = ask(&session, Call::Cell(CellCall::Servers));
        matches!(answer, Answer::Servers(servers) if servers.len() == 1)
    });
}

/// Its program knows no level but the first, and the cell has a later one.
#[test]
fn ve2_an_older_program_does_not_use_the_database() {
    let cell = start();
    let mut older = Cell::with(|config| {
        config.cell = Some(CellPlace::At(cell.tcp()));
        config.cell_level_known = 1;
    });
    let refused = try_ask(&connect(older.unix()), create("work")).unwrap_err();
    assert_eq!(refused.fault(), Some(Fault::CellAway), "not even its first call");
    let db = RemoteCellDb::at(cell.tcp(), ClientOptions::default());
    assert_eq!(db.servers().unwrap().len(), 1);
    let level = db.access().level(&LevelAct::Ask).unwrap().level;
    let as_older = RemoteCellDb::at(cell.tcp(), ClientOptions::default()).knowing(1);
    assert_eq!(as_older.servers(), Err(CellError::Away(Fault::CellAway)));
    let unknown = CellError::Level { found: level, known: 1 };
    assert_eq!(as_older.access().level(&LevelAct::Ask), Err(unknown), "the error names both");
    older.crash();
    older.config.cell_level_known = level;
    older.start();
    wait_for("the newer program enters itself", || db.servers().unwrap().len() == 2);
    wait_for("it makes volumes", || try_ask(&connect(older.unix()), create("work")).is_ok());
}
