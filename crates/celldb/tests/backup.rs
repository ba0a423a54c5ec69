//! A copy shows one revision, a file that is not whole is refused, and a restored database gives
//! nothing again that it gave before.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use celldb::backup::{
    BACKUP_MAGIC, BackupCounts, BackupError, BackupHead, BackupItem, BackupWriter, read_backup,
};
use celldb::{CellDb, CellError, CopyCursor, Embedded, Restored, Restoring, copy_records};
use guard::{Cps, JoinCode, JoinRequest, PtsAsker};
use proptest::prelude::*;
use types::{
    Answer, AuthLevel, CellCall, Fault, GuardCall, KeyPrint, Name, NewPrincipal, PrincipalId,
    PrincipalKind, PtsCall, Realm, Revision, ServerId, ServerInfo, ServerRoles, Site, SiteKind,
    VolumeGroup, VolumeId, WhichPrincipal, Whom,
};

const ME: ServerId = ServerId(1);
const ROOT: PrincipalId = PrincipalId::NONE;
const NOW: i64 = 1_700_000_000;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn pts(db: &Embedded, call: &PtsCall) -> Answer {
    let principal = PrincipalId::ANONYMOUS;
    let cps = Cps::new(principal, AuthLevel::Named, [PrincipalId::ADMINISTRATORS]);
    let asker = PtsAsker { principal, cps };
    db.access().pts(&asker, call).unwrap()
}

fn make(db: &Embedded, kind: PrincipalKind, name: &str) -> PrincipalId {
    let uid = None;
    let new = NewPrincipal { kind, name: name.to_owned(), id: None, owner: None, uid, gid: None };
    match pts(db, &PtsCall::Create { new: Box::new(new) }) {
        Answer::Principals { principals, .. } => principals[0].0.id,
        other => panic!("{other:?}"),
    }
}

fn volume(db: &Embedded, name: &str) -> VolumeId {
    let number = db.take_numbers(VolumeId(0), 1).unwrap();
    let site = Site { server: ME, partition: "/a".into(), kind: SiteKind::ReadWrite, epoch: 0 };
    let group = VolumeGroup::new(Name::new(name.as_bytes()).unwrap(), number, site);
    db.put_group(&group, Revision(0)).unwrap();
    number
}

/// A database with records of every kind.
fn filled(path: &Path) -> Embedded {
    let db = Embedded::open(path).unwrap();
    let joe = make(&db, PrincipalKind::User, "joe");
    let staff = make(&db, PrincipalKind::Group, "staff");
    make(&db, PrincipalKind::Hosts, "10.1.0.0/16");
    pts(&db, &PtsCall::Join { group: staff, member: joe });
    db.access().set_secret(joe, "a hash", None).unwrap();
    for name in ["root.cell", "home.joe"] {
        volume(&db, name);
    }
    let record = |key| ServerInfo {
        id: ServerId(2),
        name: "two".into(),
        addresses: vec!["127.0.0.1:7620".parse().unwrap()],
        keys: vec![KeyPrint([key; 32])],
    };
    let at = db.put_server(&record(1), Revision(0)).unwrap();
    db.put_server(&record(2), at).unwrap();
    let rule = |call| db.access().guard(ServerId(2), PrincipalId::NONE, NOW, &call).unwrap();
    rule(GuardCall::AddFence { whom: Whom::User(joe), seconds: 0, why: "lost".into() });
    rule(GuardCall::AddMandate { principal: joe, realm: Realm::Volumes("home.*".into()) });
    db
}

fn records(db: &dyn CellDb) -> (Revision, Records) {
    let mut all = Records::new();
    let at = copy_records(db, &mut |_, key, value| {
        all.insert(key.to_vec(), value.to_vec());
        Ok(())
    });
    (at.unwrap(), all)
}

fn backup(db: &dyn CellDb) -> Vec<u8> {
    let (revision, all) = records(db);
    let head = BackupHead { cell: "a.cell".into(), revision, taken: NOW };
    let mut writer = BackupWriter::new(Vec::new(), &head).unwrap();
    writer.file("keys/ca.pem", b"a certificate").unwrap();
    all.iter().for_each(|(key, value)| writer.record(key, value).unwrap());
    writer.end().unwrap()
}

fn read(bytes: &[u8]) -> Result<(BackupHead, BackupCounts), BackupError> {
    read_backup(bytes, &mut |_| Ok(()), &mut |_| Ok(()))
}

fn restore(bytes: &[u8], path: &Path, now: i64) -> Restored {
    let restoring = RefCell::new(None);
    read_backup(
        bytes,
        &mut |head| {
            *restoring.borrow_mut() = Some(Restoring::begin(path, head.revision, now)?);
            Ok(())
        },
        &mut |item| match item {
            BackupItem::Record { key, value, .. } => {
                restoring.borrow_mut().as_mut().unwrap().put(key, value)
            }
            BackupItem::File { .. } => Ok(()),
        },
    )
    .unwrap();
    restoring.into_inner().unwrap().end().unwrap()
}

#[test]
fn ac14_a_copy_shows_one_revision_whatever_changes() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    let (at, wanted) = records(&db);
    assert_eq!(at, db.revision().unwrap());
    let kinds: Vec<u8> = {
        let mut kinds: Vec<u8> = wanted.keys().map(|key| key[0]).collect();
        kinds.dedup();
        kinds
    };
    assert_eq!(kinds, b"ABCFGHKLMNOPSVWpu", "all kinds but the log of changes");
    // Parts of a few bytes, and a change between any two.
    let mut copy = db.copy().unwrap();
    assert_eq!(copy.at(), at);
    let (mut cursor, mut bytes, mut found) = (CopyCursor::default(), Vec::new(), Records::new());
    for change in 0.. {
        volume(&db, &format!("made.meanwhile.{change}"));
        let part = copy.part(&cursor, 97).unwrap();
        assert_eq!(copy.part(&cursor, 97).unwrap(), part, "asked again");
        assert!(part.bytes.len() <= 97 && (part.end || part.bytes.len() == 97));
        bytes.extend(part.bytes);
        while bytes.len() >= 8 {
            let length = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let (key, value) = (length(0) as usize, length(4) as usize);
            if bytes.len() < 8 + key + value {
                break;
            }
            let record: Vec<u8> = bytes.drain(..8 + key + value).collect();
            cursor.after = record[8..8 + key].to_vec();
            found.insert(cursor.after.clone(), record[8 + key..].to_vec());
        }
        cursor.skip = bytes.len();
        if part.end {
            break;
        }
    }
    assert!(bytes.is_empty() && found == wanted);
    assert_ne!(records(&db).1, wanted, "a new copy shows the changes");
    let far = CopyCursor { after: b"x".to_vec(), skip: 0 };
    assert_eq!(copy.part(&far, 97).map(|part| (part.bytes.len(), part.end)), Ok((0, true)));
    let odd = CopyCursor { after: Vec::new(), skip: usize::MAX };
    assert!(matches!(copy.part(&odd, 97), Err(CellError::Misuse(_))));
    // The copy does not keep the database open.
    drop(copy);
    drop(db);
    Embedded::open(dir.path()).unwrap();
}

#[test]
fn ac14_a_restored_database_has_all_and_gives_no_number_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(&dir.path().join("old"));
    let bytes = backup(&db);
    let (head, counts) = read(&bytes).unwrap();
    assert_eq!((head.cell.as_str(), head.taken), ("a.cell", NOW));
    let BackupCounts { users, groups, volumes, servers, rules, passwords, files, .. } = counts;
    assert_eq!(
        [users, groups, volumes, servers, rules, passwords, files],
        [1, 2, 2, 1, 2, 1, 1],
        "without the principals of every cell"
    );
    // After the backup.
    let (late_user, late_group, late_volume) = (
        make(&db, PrincipalKind::User, "late"),
        make(&db, PrincipalKind::Group, "later"),
        volume(&db, "late"),
    );
    let last = db.revision().unwrap();

    let place = dir.path().join("new");
    let restored = restore(&bytes, &place, NOW + 100);
    let new = Embedded::open(&place).unwrap();
    assert_eq!(new.revision().unwrap(), restored.revision);
    assert!(restored.revision.0 >= last.0 + (1 << 31), "{restored:?}");
    for since in [Revision(0), last] {
        assert!(matches!(new.changes(since, 10), Err(CellError::Forgotten { .. })), "{since:?}");
        assert_eq!(new.access().news(since).unwrap(), (restored.revision, None));
    }
    assert!(make(&new, PrincipalKind::User, "new") > late_user);
    assert!(make(&new, PrincipalKind::Group, "newer") < late_group);
    assert!(new.take_numbers(VolumeId(0), 1).unwrap() > late_volume);
    let joe = |db: &Embedded| {
        db.access().principal(&WhichPrincipal::Name("joe".into())).unwrap().unwrap()
    };
    let found = joe(&new);
    assert!(found.tokens_after > NOW + 100, "tokens of before end: {found:?}");
    assert_eq!(new.access().secret(found.id).unwrap().as_deref(), Some("a hash"));
    assert_eq!(new.access().rules().record, db.access().rules().record);
    // A key that its server replaced does not come back.
    assert_eq!(new.access().was_listed(&KeyPrint([1; 32])), Ok(true));

    // All other records are as they were.
    let before: Records = {
        let mut all = Records::new();
        read_backup(&bytes[..], &mut |_| Ok(()), &mut |item| {
            if let BackupItem::Record { key, value, .. } = item {
                all.insert(key.to_vec(), value.to_vec());
            }
            Ok(())
        })
        .unwrap();
        all
    };
    let after = records(
        &Embedded::open(&{
            let place = dir.path().join("again");
            restore(&bytes, &place, NOW + 100);
            place
        })
        .unwrap(),
    )
    .1;
    let differ: Vec<u8> = before
        .iter()
        .filter(|(key, value)| after.get(*key) != Some(*value))
        .map(|(key, _)| key[0])
        .collect();
    assert!(differ.iter().all(|kind| b"CHP".contains(kind)), "{}", differ.escape_ascii());
    assert_eq!(before.len(), after.len());
}

#[test]
fn sj1_a_restored_database_lets_in_no_more_servers() {
    let dir = tempfile::tempdir().unwrap();
    let old = filled(&dir.path().join("old"));
    let code = || JoinCode::random("a.cell", vec!["192.0.2.1:7620".into()], [7; 32]);
    let (unused, half) = (code(), code());
    let ask = |db: &Embedded, call: &CellCall| db.access().invitations(ROOT, NOW, call);
    for code in [&unused, &half] {
        let public = code.signer().public();
        let roles = ServerRoles::FILE.bits();
        let (seconds, uses, by, name) = (1000, 2, ROOT, String::new());
        ask(&old, &CellCall::Invite { public, seconds, uses, roles, by, name }).unwrap();
    }
    let redeem = |code: &JoinCode, key: u8| {
        let request = JoinRequest {
            cell: code.cell.clone(),
            authority: code.authority,
            invitation: code.signer().public(),
            key: KeyPrint([key; 32]),
            name: format!("server {key}"),
            hosts: Vec::new(),
            signing_request: String::new(),
        };
        CellCall::Redeem { request: request.sign(&code.signer()) }
    };
    ask(&old, &redeem(&half, 9)).unwrap();
    let bytes = backup(&old);
    restore(&bytes, &dir.path().join("new"), NOW);
    let new = Embedded::open(&dir.path().join("new")).unwrap();
    assert!(ask(&old, &redeem(&unused, 10)).is_ok() && ask(&old, &redeem(&half, 11)).is_ok());
    assert_eq!(ask(&new, &redeem(&unused, 12)), Err(Fault::AccessDenied));
    assert_eq!(ask(&new, &redeem(&half, 12)), Err(Fault::Exists));
    assert!(ask(&new, &redeem(&half, 9)).is_ok(), "it was let in before");
}

#[test]
fn ac14_the_last_numbers_of_all_can_be_restored() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(&dir.path().join("old"));
    for (id, kind) in [(i32::MAX, PrincipalKind::User), (i32::MIN + 2, PrincipalKind::Group)] {
        let name = format!("last{id}");
        let id = Some(PrincipalId(id));
        let new = NewPrincipal { kind, name, id, owner: None, uid: None, gid: None };
        pts(&db, &PtsCall::Create { new: Box::new(new) });
    }
    db.take_numbers(VolumeId(u64::MAX - 10), 1).unwrap();
    restore(&backup(&db), &dir.path().join("new"), NOW);
    Embedded::open(&dir.path().join("new")).unwrap();
}

#[test]
fn ac14_no_database_is_filled_where_one_is_or_used_half() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(&dir.path().join("old"));
    let there = Restoring::begin(&dir.path().join("old"), Revision(1), NOW).map(drop);
    assert!(matches!(there, Err(CellError::Misuse(_))), "{there:?}");
    let (at, all) = records(&db);
    let end = |revision, without: &[u8]| {
        let place = tempfile::tempdir().unwrap();
        let mut restoring = Restoring::begin(&place.path().join("new"), revision, NOW).unwrap();
        let all = all.iter().filter(|(key, _)| **key != without);
        all.for_each(|(key, value)| restoring.put(key, value).unwrap());
        restoring.end().map(drop)
    };
    assert!(matches!(end(at, b"C"), Err(CellError::Damaged(_))));
    assert!(matches!(end(Revision(at.0 - 1), b""), Err(CellError::Damaged(_))));
    assert_eq!(end(at, b""), Ok(()));
}

#[test]
fn ac14_a_backup_that_is_not_whole_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = backup(&filled(dir.path()));
    assert!(read(&bytes).is_ok());
    for length in 0..bytes.len() {
        let found = read(&bytes[..length]);
        let is_right = match length {
            0..16 => matches!(found, Err(BackupError::Foreign)),
            _ => matches!(found, Err(BackupError::Cut)),
        };
        assert!(is_right, "{length}: {found:?}");
    }
    let mut flipped = bytes.clone();
    for at in 0..bytes.len() {
        flipped[at] ^= 1 << (at % 8);
        assert!(read(&flipped).is_err(), "{at}");
        flipped[at] = bytes[at];
    }
    let twice = [&bytes[..], &bytes].concat();
    assert!(matches!(read(&twice), Err(BackupError::Followed)));
    assert!(matches!(read(&[&bytes[..], b"\n"].concat()), Err(BackupError::Followed)));
    assert!(matches!(read(b"PK\x03\x04 and more than a head's bytes"), Err(BackupError::Foreign)));
    for version in [16, 20] {
        let mut newer = bytes.clone();
        newer[version] = 9;
        assert!(matches!(read(&newer), Err(BackupError::Newer { found: 9, known: 1 })));
    }
}

#[test]
fn ac14_a_backup_names_no_file_outside_of_the_directory() {
    let head = BackupHead { cell: "a.cell".into(), revision: Revision(1), taken: NOW };
    for path in ["/etc/passwd", "..", "keys/../../x", "keys//x", "./x", "x/", "a\0b"] {
        let mut writer = BackupWriter::new(Vec::new(), &head).unwrap();
        writer.file(path, b"").unwrap();
        let bytes = writer.end().unwrap();
        assert!(matches!(read(&bytes), Err(BackupError::Damaged(_))), "{path}");
    }
}

proptest! {
    #[test]
    fn ac14_random_bytes_are_no_backup(
        has_magic in any::<bool>(),
        tail in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let bytes = if has_magic {
            [&BACKUP_MAGIC[..], &1_u32.to_le_bytes(), &1_u32.to_le_bytes(), &tail].concat()
        } else {
            tail
        };
        prop_assert!(read(&bytes).is_err());
    }
}
