//! Copies of the cell database over the wire: the same from every server of the cell, and not a
//! byte for anyone else (AC-14).

use crate::common::{Cell, ask, connect, name};
use bytes::Bytes;
use celldb::{CellDb, CellError, CopyCursor, RemoteCellDb, copy_records};
use client::{CallError, Endpoint, Remote};
use server::CellPlace;
use types::{
    Answer, Call, Caller, CellCall, Fault, NewPrincipal, PrincipalId, PrincipalKind, PtsCall,
    RequestIdentity, Revision, ServerId, Site, SiteKind, VolumeGroup, VolumeId,
};

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The server with the database, and one that asks it.
fn two() -> (Cell, Cell) {
    let first = Cell::with(|config| {
        config.cell =
            Some(CellPlace::Here(config.unix_socket.as_ref().unwrap().with_file_name("celldb")));
    });
    let at = first.unix();
    let second = Cell::with(|config| config.cell = Some(CellPlace::At(at.clone())));
    (first, second)
}

fn pts(endpoint: Endpoint, call: PtsCall) -> Answer {
    ask(&connect(endpoint), Call::Pts { on_behalf: None, call: Box::new(call) })
}

/// Makes a user; returns the number.
fn make(first: &Cell, name: &str, uid: Option<u32>) -> PrincipalId {
    let (kind, id, owner, gid) = (PrincipalKind::User, None, None, None);
    let new = NewPrincipal { kind, name: name.into(), id, owner, uid, gid };
    match pts(first.unix(), PtsCall::Create { new: Box::new(new) }) {
        Answer::Principals { principals, .. } => principals[0].0.id,
        other => panic!("{other:?}"),
    }
}

/// Enters a volume with so many sites.
fn put_volume(first: &Cell, number: u64, sites: u128) {
    let place = |server| Site {
        server: ServerId(server),
        partition: "/vicepa".to_owned(),
        kind: SiteKind::ReadOnly,
        epoch: 1,
    };
    let name = name(&format!("volume{number}"));
    let mut group = VolumeGroup::new(name, VolumeId(number), place(1));
    group.sites = (1..=sites).map(place).collect();
    let call = CellCall::PutGroup { group: Box::new(group), expected: Revision(0) };
    ask(&connect(first.unix()), Call::Cell(call));
}

fn copied(db: &dyn CellDb) -> (Revision, Records) {
    let mut records = Records::new();
    let at = copy_records(db, &mut |_, key, value| {
        records.push((key.to_vec(), value.to_vec()));
        Ok(())
    });
    (at.unwrap(), records)
}

#[test]
fn ac14_each_server_gives_the_same_copy_of_one_revision() {
    let (first, second) = two();
    // More than one part.
    for number in 100..130 {
        put_volume(&first, number, 900);
    }
    let at = |cell: &Cell| RemoteCellDb::at(cell.unix(), client::ClientOptions::default());
    let (here, there) = (at(&first), at(&second));
    let (revision, records) = copied(&here);
    assert!(records.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > 1 << 20);
    assert_eq!(copied(&there), (revision, records.clone()));
    // A copy that began before a change does not show it.
    let mut copy = there.copy().unwrap();
    put_volume(&first, 99, 1);
    let begin = copy.part(&CopyCursor::default(), 1 << 20).unwrap();
    assert_eq!(copy.at(), revision);
    let is_late = |bytes: &[u8]| bytes.windows(8).any(|some| some == b"volume99");
    assert!(!begin.end && !is_late(&begin.bytes));
    let after = records.last().unwrap().0.clone();
    let end = copy.part(&CopyCursor { after, skip: 0 }, 1 << 20).unwrap();
    assert!(end.end && end.bytes.is_empty());
    let again = copy.part(&CopyCursor::default(), 1 << 20);
    assert_eq!(again, Err(CellError::Away(Fault::NothingThere)), "its last part was asked for");
}

#[test]
fn ac14_a_copy_is_for_servers_and_the_superuser_alone() {
    let (first, second) = two();
    let joe = make(&first, "joe", Some(4711));
    let chief = make(&first, "chief", Some(4712));
    let group = PrincipalId::ADMINISTRATORS;
    pts(first.unix(), PtsCall::Join { group, member: chief });
    let named = |uid| Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED };
    let who = RequestIdentity { principal: joe, ..RequestIdentity::NOBODY };
    let callers = [
        ("a user", named(4711)),
        ("an administrator", named(4712)),
        ("a user whom the cell does not know", named(4713)),
        ("an anonymous caller", Caller { who: RequestIdentity::NOBODY, ..named(65534) }),
        ("a caller that claims to be joe", Caller { who, ..named(65534) }),
    ];
    let begin = || Call::Cell(CellCall::Copy { copy: 0, after: Bytes::new(), skip: 0 });
    for cell in [&first, &second] {
        // One session for all, in which the superuser has begun a copy.
        let session = connect(cell.unix());
        let Answer::Records { copy, .. } = ask(&session, begin()) else { panic!() };
        for (who, caller) in &callers {
            for copy in [0, copy] {
                let call = Call::Cell(CellCall::Copy { copy, after: Bytes::new(), skip: 0 });
                let said = session.call(caller, call, None).map(|reply| reply.answer);
                let fault = said.as_ref().err().and_then(CallError::fault);
                assert_eq!(fault, Some(Fault::NotPermitted), "{who}, {copy}: {said:?}");
            }
        }
    }
}

#[test]
fn ac14_a_stranger_in_the_network_gets_no_record() {
    let first = Cell::among_strangers(|config| {
        config.cell =
            Some(CellPlace::Here(config.unix_socket.as_ref().unwrap().with_file_name("celldb")));
    });
    let session = connect(first.tcp());
    for uid in [0, 4711] {
        for copy in [0, 1] {
            let call = Call::Cell(CellCall::Copy { copy, after: Bytes::new(), skip: 0 });
            let said = session.call(&Caller { uid, ..Caller::ROOT }, call, None);
            let said = said.map(|reply| reply.answer);
            let fault = said.as_ref().err().and_then(CallError::fault);
            assert_eq!(fault, Some(Fault::NotPermitted), "{uid}: {said:?}");
        }
    }
}
