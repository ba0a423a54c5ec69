//! Users and groups through servers: beside the database, and at another server; a change is in
//! force everywhere when the call returns.

use crate::common::{Cell, ask, connect};
use client::{Remote, Session};
use server::CellPlace;
use types::{
    Answer, AuthLevel, Call, Caller, Fault, NewPrincipal, Principal, PrincipalId, PrincipalKind,
    PtsCall, RequestIdentity,
};

const FIRST: PrincipalId = PrincipalId(i32::MIN);

fn pts(session: &Session, call: PtsCall) -> Answer {
    ask(session, Call::Pts { on_behalf: None, call: Box::new(call) })
}

fn as_user(session: &Session, uid: u32, call: PtsCall) -> Result<Answer, Option<Fault>> {
    let caller = Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED };
    let reply = session.call(&caller, Call::Pts { on_behalf: None, call: Box::new(call) }, None);
    reply.map(|reply| reply.answer).map_err(|error| error.fault())
}

fn create(kind: PrincipalKind, name: &str, uid: Option<u32>) -> PtsCall {
    PtsCall::Create {
        new: Box::new(NewPrincipal {
            kind,
            name: name.into(),
            id: None,
            owner: None,
            uid,
            gid: None,
        }),
    }
}

fn made(answer: Answer) -> Principal {
    let Answer::Principals { mut principals, .. } = answer else { panic!("{answer:?}") };
    principals.pop().unwrap().0
}

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

#[test]
fn a_new_group_counts_at_the_other_server_with_the_next_request() {
    let (first, second) = two();
    let (here, there) = (connect(first.unix()), connect(second.unix()));
    let joe = made(pts(&there, create(PrincipalKind::User, "joe", Some(4711))));
    assert_eq!((joe.id, joe.uid), (PrincipalId(1), Some(4711)));
    let staff =
        made(as_user(&there, 4711, create(PrincipalKind::Group, "joe:staff", None)).unwrap());
    assert_eq!((staff.owner, staff.creator), (joe.id, joe.id));
    let who = RequestIdentity {
        principal: joe.id,
        level: AuthLevel::Password,
        ..RequestIdentity::NOBODY
    };
    let caller = Caller { uid: 9, gid: 9, groups: None, who };
    let named = Caller { uid: 4711, gid: 9, groups: None, who: RequestIdentity::NAMED };
    for round in 0..5 {
        for (session, call, is_in) in [
            (&there, PtsCall::Join { group: staff.id, member: joe.id }, true),
            (&here, PtsCall::Leave { group: staff.id, member: joe.id }, false),
            (&here, PtsCall::Join { group: staff.id, member: joe.id }, true),
            (&there, PtsCall::Leave { group: staff.id, member: joe.id }, false),
        ] {
            as_user(session, 4711, call.clone()).unwrap();
            for server in [&first, &second].map(|cell| cell.server.as_ref().unwrap()) {
                for caller in [&caller, &named] {
                    assert_eq!(
                        server.vice().identities().cps(caller).unwrap().has(staff.id),
                        is_in,
                        "round {round}: {call:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_user_cannot_change_others_groups_at_either_server() {
    let (first, second) = two();
    for server in [&first, &second] {
        let session = connect(server.unix());
        let name = format!("u{}", server.unix().to_string().len());
        let uid = 5000 + u32::from(std::ptr::eq(server, &first));
        let user =
            made(pts(&session, create(PrincipalKind::User, &format!("{name}{uid}"), Some(uid))));
        for call in [
            create(PrincipalKind::User, "another", None),
            PtsCall::Entries { after: FIRST, max: 10 },
            PtsCall::Join { group: PrincipalId::ADMINISTRATORS, member: user.id },
            PtsCall::Delete { id: user.id },
        ] {
            assert_eq!(
                as_user(&session, uid, call.clone()),
                Err(Some(Fault::NotPermitted)),
                "{call:?}"
            );
        }
        // An anonymous caller.
        let nobody = as_user(&session, 77, create(PrincipalKind::Group, "x:y", None));
        assert_eq!(nobody, Err(Some(Fault::NotPermitted)));
        // And no user calls on behalf of others.
        let caller = Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED };
        let call = Call::Pts { on_behalf: Some(PrincipalId(1)), call: Box::new(PtsCall::Max) };
        assert_eq!(
            session.call(&caller, call, None).unwrap_err().fault(),
            Some(Fault::NotPermitted)
        );
    }
}

#[test]
fn m12_a_realms_group_counts_with_the_next_request() {
    let (first, second) = two();
    let (here, there) = (connect(first.unix()), connect(second.unix()));
    let refused = as_user(&there, 0, create(PrincipalKind::User, "amy@x.org", None));
    assert_eq!(refused, Err(Some(Fault::NoPrincipal)), "the cell is not open to her realm");
    let group = || create(PrincipalKind::Group, "system:authuser@x.org", None);
    let realm = made(pts(&here, group()));
    let amy = made(pts(&there, create(PrincipalKind::User, "amy@x.org", None)));
    let joe = made(pts(&there, create(PrincipalKind::User, "joe", Some(4711))));
    let who = |principal| RequestIdentity {
        principal,
        level: AuthLevel::Kerberos,
        ..RequestIdentity::NOBODY
    };
    let caller = |of: &Principal| Caller { uid: 9, gid: 9, groups: None, who: who(of.id) };
    let expect = |of: &Principal, numbers: &[PrincipalId], after: &str| {
        for server in [&first, &second].map(|cell| cell.server.as_ref().unwrap()) {
            assert_eq!(
                server.vice().identities().cps(&caller(of)).unwrap().numbers(),
                numbers,
                "{}: {after}",
                of.name
            );
        }
    };
    let (mut realm, anybody) = (realm.id, PrincipalId::ANYBODY);
    for (round, session) in [&here, &there].into_iter().enumerate() {
        expect(&amy, &[realm, anybody, amy.id], &format!("made, {round}"));
        expect(&joe, &[PrincipalId::PROVED, anybody, joe.id], "made");
        pts(session, PtsCall::Rename { id: realm, name: "guests".into() });
        expect(&amy, &[anybody, amy.id], "after the new name");
        pts(session, PtsCall::Rename { id: realm, name: "system:authuser@x.org".into() });
        expect(&amy, &[realm, anybody, amy.id], "after the old name again");
        pts(session, PtsCall::Delete { id: realm });
        expect(&amy, &[anybody, amy.id], "removed");
        realm = made(pts(session, group())).id;
    }
    // A user of the cell becomes one of the realm, with the next request too.
    pts(&here, PtsCall::Rename { id: joe.id, name: "joe@x.org".into() });
    expect(&joe, &[realm, anybody, joe.id], "renamed");
}
