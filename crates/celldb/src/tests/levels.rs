//! The level of a cell (`docs/spec/versions.md`).

use types::{CellLevel, LevelAct, ServerProgram};

use super::*;

#[test]
fn ve2_a_level_that_is_not_known_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let set = |level: u32| {
        let db = Embedded::open(dir.path()).unwrap();
        db.make(|operations| {
            let value = record::encode_level(key::LEVEL, level);
            let put = |change: &mut operations::Change<'_>| -> Result<(), CellError> {
                change.batch.put(key::LEVEL, &value[..]);
                Ok(())
            };
            operations.change(&operations.hold(), put).unwrap();
        });
        assert_eq!(
            record::check(key::LEVEL, &record::encode_level(key::LEVEL, level)).unwrap(),
            RecordKind::Other,
            "a backup has it"
        );
    };
    set(1);
    set(CELL_LEVEL_KNOWN + 1);
    let refused = Embedded::open(dir.path()).map(drop).unwrap_err();
    assert_eq!(refused, CellError::Level { found: CELL_LEVEL_KNOWN + 1, known: CELL_LEVEL_KNOWN });
    assert!(refused.to_string().contains("start a newer program"), "{refused}");
}

/// A database that begins at this level, in each engine.
fn begun_at(level: u32) -> [(Box<dyn TestDb>, Box<dyn std::any::Any>); 2] {
    let (dir, etcd) = (tempfile::tempdir().unwrap(), EtcdProcess::start());
    let files = Embedded::open_at(dir.path(), level).unwrap();
    etcd.make_at("cell", level);
    let in_etcd = etcd.open("cell", KEPT_ALL);
    [(Box::new(files), Box::new(dir)), (Box::new(in_etcd), Box::new(etcd))]
}

fn tells(db: &dyn CellDb, id: u128, knows: u32) -> Result<CellLevel, CellError> {
    let program = ServerProgram { server: ServerId(id), knows, version: "0.1.0".to_owned() };
    db.access().level(&LevelAct::Tell(program))
}

#[test]
fn ve4_a_level_rises_when_each_server_knows_it() {
    for (open, _kept) in begun_at(1) {
        let db = open.db();
        let raise = |to| db.access().level(&LevelAct::Raise(to)).map(|found| found.level);
        let behind = |names: &[&str]| {
            let servers = names.iter().map(|name| (*name).to_owned()).collect();
            Err(CellError::Behind { level: 2, servers })
        };
        assert_eq!(raise(1), Ok(1), "it is there");
        let seen = db.put_server(&keyed(1, &[1]), Revision(0)).unwrap();
        let second = db.put_server(&keyed(2, &[]), Revision(0)).unwrap();
        assert_eq!(raise(2), behind(&["server-1", "server-2"]));
        assert!(tells(db, 3, 2).is_err(), "it has no record");
        let at = db.revision().unwrap();
        let found = tells(db, 1, 2).unwrap();
        assert_eq!((found.level, found.program(ServerId(1)).map(|one| one.knows)), (1, Some(2)));
        tells(db, 2, 1).unwrap();
        assert_eq!(raise(2), behind(&["server-2"]));
        assert_eq!(db.revision(), Ok(at), "servers do not follow it");
        // The record is as it was, and a change of it keeps the program.
        assert_eq!(db.servers().unwrap()[0].revision, seen);
        let seen = db.put_server(&keyed(1, &[1, 3]), seen).unwrap();
        db.put_server(&keyed(1, &[]), seen).unwrap();
        tells(db, 2, 3).unwrap();
        assert!(matches!(raise(3), Err(CellError::Misuse(_))), "one by one");
        assert_eq!(raise(2), Ok(2));
        assert_eq!(raise(2), Ok(2));
        assert!(raise(3).is_err() && raise(1).is_err(), "{CELL_LEVEL_KNOWN} is the newest");
        // A server that comes later, or goes back to an older program, changes nothing.
        assert_eq!(tells(db, 2, 1).unwrap().level, 2);
        db.remove_server(ServerId(2), second).unwrap();
        assert_eq!(db.access().level(&LevelAct::Ask).unwrap().programs.len(), 1);
    }
}

#[test]
fn ve5_standbys_need_their_level() {
    let with = |kind| {
        let mut group = group(7, 1);
        group.sites.push(site(2, kind));
        group
    };
    for (open, _kept) in begun_at(1) {
        let db = open.db();
        let at = db.put_group(&group(7, 1), Revision(0)).unwrap();
        for kind in [SiteKind::Standby, SiteKind::AsyncStandby] {
            let refused = db.put_group(&with(kind), at).unwrap_err();
            assert!(matches!(refused, CellError::LevelTooLow { needed: 2, .. }), "{refused:?}");
            assert!(refused.to_string().contains("rialto cell upgrade"), "{refused}");
        }
        let at = db.put_group(&with(SiteKind::ReadOnly), at).unwrap();
        db.access().level(&LevelAct::Raise(2)).unwrap();
        db.put_group(&with(SiteKind::Standby), at).unwrap();
    }
    // A new database has the newest level.
    let dir = tempfile::tempdir().unwrap();
    let db = Embedded::open(dir.path()).unwrap();
    assert_eq!(db.access().level(&LevelAct::Ask).unwrap().level, CELL_LEVEL_KNOWN);
    db.put_group(&with(SiteKind::Standby), Revision(0)).unwrap();
    assert!(Embedded::open_at(&dir.path().join("x"), CELL_LEVEL_KNOWN + 1).is_err());
}

/// A program of the first level does not have the fields of the program in its form of a server's
/// record.
#[test]
fn ve3_older_programs_read_a_record_with_a_program() {
    let server = keyed(1, &[1]);
    let key = key::server(server.id);
    let program = ServerProgram { server: server.id, knows: 2, version: "0.1.0".to_owned() };
    let noted = record::Noted { roles: None, program: Some(program) };
    let value = record::encode_server(&key, Revision(3), &server, noted);
    let json: serde_json::Value = serde_json::from_slice(&value[..value.len() - 4]).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["record"]["program"]["knows"], 2);
    assert_eq!(record::decode_server(&key, &value).unwrap().record, server);
    let plain = record::encode_server(&key, Revision(3), &server, record::Noted::default());
    assert!(!String::from_utf8_lossy(&plain).contains("program"), "as older programs write it");
}

/// A server of AFS reads no records: it tells no program, and no change waits for it.
#[test]
fn mx2_a_level_rises_without_servers_of_afs() {
    let afs = ServerInfo::of_afs(ServerId(5), "afs".to_owned(), &[[192, 0, 2, 5].into()]);
    for (open, _kept) in begun_at(1) {
        let db = open.db();
        db.put_server(&keyed(1, &[1]), Revision(0)).unwrap();
        db.put_server(&afs, Revision(0)).unwrap();
        tells(db, 1, 2).unwrap();
        assert_eq!(db.access().level(&LevelAct::Raise(2)).unwrap().level, 2);
    }
}
