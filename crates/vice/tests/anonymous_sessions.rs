//! Anonymous sessions: nothing of them is stored, no change waits for them, and the first call of a
//! user makes one authenticated.

use crate::common::{Ground, Rig, name, remove, write};
use types::{
    Answer, AuthLevel, Call, Caller, ClientId, CreateHow, Fault, NewKind, RequestIdentity,
    Timestamp,
};

fn anonymous() -> Caller {
    Caller {
        uid: 65534,
        gid: 65534,
        groups: Some(Box::default()),
        who: RequestIdentity { level: AuthLevel::Nobody, ..RequestIdentity::NOBODY },
    }
}

/// Makes client `who` of the rig anonymous.
fn make_anonymous(rig: &mut Rig, who: usize) {
    rig.detach(who);
    let mut out = Vec::new();
    let id = ClientId(1000 + who as u128);
    let attached = rig.vice().attach_stranger(rig.now, id, 1, &mut out).unwrap();
    let client = &mut rig.clients[who];
    (client.id, client.session, client.requests, client.ended) = (id, attached.session, 0, false);
    rig.deliver(out);
}

fn prove(rig: &mut Rig, who: usize) -> Result<(), Fault> {
    let mut out = Vec::new();
    let proved = rig.vice().prove(rig.now, rig.clients[who].session, &mut out);
    rig.deliver(out);
    proved
}

#[test]
fn no_change_waits_for_nobody() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    let file = rig.file(root, "file");
    make_anonymous(&mut rig, 1);
    rig.clients[1].prompt = false;
    assert!(rig.call(1, &anonymous(), Call::GetStatus { fid: file }).is_ok());
    let answered = rig.call(0, &Caller::ROOT, write(file, Some(0), b"x"));
    assert!(answered.is_ok(), "at once: {answered:?}");
    assert_eq!(rig.clients[1].broken.len(), 1, "it gets the break");
    assert!(!rig.renew(1), "and trusts nothing");
    // A user's first call makes it authenticated, when it has acknowledged its breaks.
    prove(&mut rig, 1).unwrap();
    assert!(!rig.renew(1));
    rig.acknowledge(1);
    assert!(rig.renew(1));
    assert!(rig.call(1, &Caller::ROOT, Call::GetStatus { fid: file }).is_ok());
    let origin = rig.start(0, &Caller::ROOT, write(file, Some(0), b"y"));
    assert_eq!(rig.reply(origin), None, "CB-1");
    rig.acknowledge(1);
    assert!(rig.reply(origin).is_some());
}

#[test]
fn a_restart_neither_awaits_nor_stores_anonymous_sessions() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    make_anonymous(&mut rig, 1);
    let make = Call::Make {
        dir: root,
        name: name("its"),
        kind: NewKind::File,
        mode: 0o666,
        how: CreateHow::Guarded,
    };
    assert!(matches!(rig.call(1, &anonymous(), make), Ok(Answer::Made { .. })));
    let session = rig.clients[1].session;
    let home = || rig.vice().partition().clone();
    assert_eq!(
        (
            home().sessions().list().unwrap().len(),
            home().sessions().replies(session).unwrap().len()
        ),
        (1, 1)
    );
    assert_eq!(home().sessions().incarnation(rig.clients[1].id).unwrap(), None);
    rig.detach(0);
    rig.restart();
    assert!(matches!(rig.resume(1), Err(Fault::Expired)));
    assert_eq!(rig.vice().partition().sessions().replies(session).unwrap().len(), 0);
    // No grace: a change is answered at once.
    let who = rig.attach();
    assert!(rig.call(who, &Caller::ROOT, remove(root, "its")).is_ok());
    assert!(rig.clients[who].session > session, "EO-1: its number is used up");
}

#[test]
fn eo2_an_older_life_is_refused_until_its_client_is_forgotten() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let (id, now) = (ClientId(7), rig.now);
    let attach = |rig: &Rig, incarnation| {
        let mut out = Vec::new();
        let attached = rig
            .vice()
            .attach_stranger(now, id, incarnation, &mut out)
            .map(|attached| attached.session);
        let proved =
            attached.and_then(|session| rig.vice().prove(now, session, &mut out).map(|()| session));
        (proved, out)
    };
    let (newer, _) = attach(&rig, 5);
    assert_eq!(attach(&rig, 4).0, Err(Fault::Expired));
    let day = |day: i64| Timestamp::new(day * 86_400, 0);
    assert_eq!(rig.vice().forget_clients(day(100)), Ok(0));
    assert_eq!(rig.vice().forget_clients(day(1000)), Ok(0), "it is here");
    rig.vice().detach(now, newer.unwrap(), &mut Vec::new());
    rig.restart();
    assert_eq!(rig.vice().forget_clients(day(1000)), Ok(0), "it is noted that it is away");
    assert_eq!(attach(&rig, 4).0, Err(Fault::Expired));
    assert_eq!(rig.vice().forget_clients(day(1059)), Ok(0));
    assert_eq!(rig.vice().forget_clients(day(1060)), Ok(1));
    assert!(attach(&rig, 4).0.is_ok());
}
