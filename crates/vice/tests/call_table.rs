//! Every request of every service, made by every kind of caller, against a table that has one word
//! for the callers that may make it (AC-4). Calls on files have a table of their own, with the
//! rights of each kind of caller: `file_call_table.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use celldb::{CellDb, Embedded};
use dafs::Procedure;
use guard::{Cps, PtsAsker};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use store::{MemMachine, NewRoot, OpenOptions, Partition, VolumeQuota};
use types::{
    Answer, AuthLevel, Call, Caller, CellCall, ClientId, Fault, GuardCall, KeyPrint, LevelAct,
    Name, NewPrincipal, PrincipalId, PrincipalKind, PtsCall, Realm, ReplyAddress, RequestIdentity,
    Revision, ServerId, ServerInfo, Time, Timestamp, VolumeCall, Whom,
};
use vice::{CellAccess, Effect, Execution, Vice, ViceConfig, ViceParts};

/// Number of calls of each kind.
const TRIED: usize = 4;

/// The callers that may make a call, in the words of the test: written a second time, by procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    Everybody,
    /// The rights of a file: `file_call_table.rs` has each call.
    ByFile,
    /// Owner and flags of the principal: `guard/tests/against_model.rs`. Here: a caller without
    /// proof changes none.
    ByRecord,
    Proved,
    Administrators,
    /// Administrators; and a server whose key is not listed, for a record that lists it.
    Enrolment,
    Servers,
}

fn may(call: &Call) -> May {
    use Procedure as P;
    match (call, call.procedure()) {
        (
            Call::Pts { on_behalf: Some(_), .. }
            | Call::Auth { behalf: Some(_), .. }
            | Call::Guard { behalf: Some(_), .. },
            _,
        )
        | (_, P::CellPrincipal | P::CellSubdomain | P::CellWatch | P::CellCopy) => May::Servers,
        (_, P::CellRedeem | P::CellCertify) => May::Servers,
        (&Call::Scrub { start }, _) => [May::Proved, May::Administrators][usize::from(start)],
        (&Call::Volume(VolumeCall::Format { raise, .. }), _) => {
            [May::Proved, May::Administrators][usize::from(raise)]
        }
        (Call::Cell(CellCall::Level { act }), _) => match act {
            LevelAct::Ask => May::Proved,
            LevelAct::Tell(_) => May::Servers,
            LevelAct::Raise(_) => May::Administrators,
        },
        (_, P::PtsCreate | P::AuthAttest | P::AuthRenew | P::VolumeLoads) => May::Proved,
        (
            _,
            P::SetQuota
            | P::VolumeCreate
            | P::VolumeRemove
            | P::VolumeRename
            | P::VolumeClone
            | P::VolumeSetFields
            | P::VolumeChanges
            | P::VolumeApply
            | P::VolumeFinish
            | P::VolumePull
            | P::Tasks
            | P::VolumeEndTask
            | P::VolumeIncoming
            | P::VolumeHold
            | P::VolumeServe
            | P::VolumeBeside
            | P::VolumeTakeOver
            | P::VolumeStandBy
            | P::VolumeTrust
            | P::VolumeFeed
            | P::VolumeFollow
            | P::VolumeFailOver
            | P::CellPutGroup
            | P::CellRemoveGroup
            | P::CellTakeNumbers
            | P::CellRemoveServer
            | P::PtsSetMax
            | P::GuardFences
            | P::GuardAddFence
            | P::GuardRemoveFence
            | P::GuardMandates
            | P::GuardAddMandate
            | P::GuardRemoveMandate
            | P::GuardWithdrawKeys
            | P::CellInvite
            | P::CellInvitations
            | P::CellUninvite
            | P::GuardAuditLines,
        ) => May::Administrators,
        (_, P::CellPutServer) => May::Enrolment,
        (
            _,
            P::Hold
            | P::Unhold
            | P::ReclaimDone
            | P::Return
            | P::VolumeStatus
            | P::VolumeList
            | P::VolumeExamine
            | P::VolumeStandbys
            | P::VolumeInherit
            | P::Partitions
            | P::CellGroup
            | P::CellGroups
            | P::CellServers
            | P::CellChanges
            | P::CellMe
            | P::CellJoin
            | P::CellWithdrawn
            | P::CellServerRoles
            | P::PtsNames
            | P::PtsNumbers
            | P::PtsMax
            | P::ServerReport
            | P::AuthPassword
            | P::AuthKerberos,
        ) => May::Everybody,
        (
            _,
            P::PtsExamine
            | P::PtsMembership
            | P::PtsOwned
            | P::PtsEntries
            | P::PtsDelete
            | P::PtsRename
            | P::PtsChangeOwner
            | P::PtsSetFields
            | P::PtsJoin
            | P::PtsLeave
            | P::AuthSetPassword,
        ) => May::ByRecord,
        _ => May::ByFile,
    }
}

/// All callers, with their names in the table.
fn callers(
    joe: PrincipalId,
    member: PrincipalId,
    foreign: PrincipalId,
    chief: PrincipalId,
    [fenced, delegate]: [PrincipalId; 2],
) -> Vec<(&'static str, Caller)> {
    let with = |who| Caller { uid: 4711, gid: 4711, groups: None, who };
    let proved = |principal| {
        with(RequestIdentity { principal, level: AuthLevel::Password, ..RequestIdentity::NOBODY })
    };
    let ended = RequestIdentity {
        ends: Some(Timestamp::new(999, 0)),
        principal: chief,
        level: AuthLevel::Password,
        ..RequestIdentity::NOBODY
    };
    vec![
        ("nobody", with(RequestIdentity::NOBODY)),
        ("user", proved(joe)),
        ("member", proved(member)),
        ("user of another cell", proved(foreign)),
        ("administrator", proved(chief)),
        ("administrator whose token has expired", with(ended)),
        ("user of a trusted host", with(RequestIdentity::NAMED)),
        ("superuser of a trusted host", Caller::ROOT),
        ("superuser of another host", Caller { uid: 0, ..with(RequestIdentity::NOBODY) }),
        ("delegate", proved(delegate)),
        ("fenced", proved(fenced)),
        (
            "user of a fenced host",
            with(RequestIdentity { host: Some([10, 9, 8, 7].into()), ..proved(joe).who }),
        ),
        ("holder of a fenced token", with(RequestIdentity { token: 77, ..proved(joe).who })),
        (
            "server",
            with(RequestIdentity {
                level: AuthLevel::Server,
                server: Some(LISTED),
                ..RequestIdentity::NOBODY
            }),
        ),
        (
            "user of a server",
            with(RequestIdentity { server: Some(LISTED), ..RequestIdentity::NAMED }),
        ),
        (
            "server whose key is withdrawn",
            with(RequestIdentity {
                level: AuthLevel::Server,
                server: Some(GONE),
                ..RequestIdentity::NOBODY
            }),
        ),
        (
            "superuser of that server",
            Caller {
                who: RequestIdentity { server: Some(GONE), ..RequestIdentity::NAMED },
                ..Caller::ROOT
            },
        ),
        (
            "user of that server",
            with(RequestIdentity { server: Some(GONE), ..RequestIdentity::NAMED }),
        ),
        (
            "enrolling server",
            with(RequestIdentity {
                level: AuthLevel::Enrolling,
                server: Some(NEW),
                ..RequestIdentity::NOBODY
            }),
        ),
        (
            "enrolling superuser",
            Caller {
                uid: 0,
                ..with(RequestIdentity {
                    level: AuthLevel::Enrolling,
                    server: Some(NEW),
                    ..RequestIdentity::NOBODY
                })
            },
        ),
    ]
}

fn allowed(may: May, who: &str) -> bool {
    match may {
        May::Everybody | May::ByFile | May::ByRecord => true,
        May::Proved => !matches!(
            who,
            "nobody" | "superuser of another host" | "enrolling server" | "enrolling superuser"
        ),
        // No call lists the key of a caller that may enter one.
        May::Administrators | May::Enrolment => {
            matches!(who, "administrator" | "superuser of a trusted host" | "server")
        }
        May::Servers => matches!(who, "superuser of a trusted host" | "server"),
    }
}

/// Keys of servers: listed, withdrawn, and not entered yet.
const LISTED: KeyPrint = KeyPrint([1; 32]);
const GONE: KeyPrint = KeyPrint([2; 32]);
const NEW: KeyPrint = KeyPrint([3; 32]);

fn server(id: u128, key: KeyPrint) -> ServerInfo {
    ServerInfo { id: ServerId(id), name: "one".into(), addresses: Vec::new(), keys: vec![key] }
}

struct Cell {
    vice: Vice,
    clients: u128,
    _dir: tempfile::TempDir,
}

impl Cell {
    fn new() -> (Cell, Vec<(&'static str, Caller)>) {
        let options = OpenOptions { cache_bytes: 8 << 20, seed: Some(7), ..OpenOptions::default() };
        let partition = Partition::open_memory(&MemMachine::new(), options).unwrap();
        let root = NewRoot {
            mode: 0o777,
            uid: 0,
            gid: 0,
            now: Timestamp::new(1, 0),
            quota: VolumeQuota::default(),
        };
        partition.volumes().create_volume(&Name::new(b"root.cell").unwrap(), &root).unwrap();
        let config = ViceConfig::new(dafs::encode_answer_record, |record| {
            dafs::decode_answer_record(record).ok()
        });
        let me = ServerId(partition.id());
        let dir = tempfile::tempdir().unwrap();
        let db = Arc::new(Embedded::open(dir.path()).unwrap());
        let superuser = PtsAsker {
            principal: PrincipalId::ANONYMOUS,
            cps: Cps::new(PrincipalId::ANONYMOUS, AuthLevel::Named, [PrincipalId::ADMINISTRATORS]),
        };
        let pts = |call| db.access().pts(&superuser, &call).unwrap();
        let make = |kind, name: &str| {
            let new = NewPrincipal {
                kind,
                name: name.into(),
                id: None,
                owner: None,
                uid: None,
                gid: None,
            };
            match pts(PtsCall::Create { new: Box::new(new) }) {
                Answer::Principals { principals, .. } => principals[0].0.id,
                other => panic!("{other:?}"),
            }
        };
        make(PrincipalKind::Group, "system:authuser@example.org");
        let [joe, member, foreign, chief, fenced, delegate] =
            ["joe", "member", "eve@example.org", "chief", "fenced", "delegate"]
                .map(|name| make(PrincipalKind::User, name));
        let staff = make(PrincipalKind::Group, "staff");
        pts(PtsCall::Join { group: staff, member });
        pts(PtsCall::Join { group: PrincipalId::ADMINISTRATORS, member: chief });
        let rule = |call| db.access().guard(me, PrincipalId::NONE, 500, &call).unwrap();
        for whom in [
            Whom::User(fenced),
            Whom::Hosts { address: [10, 9, 0, 0].into(), prefix: 16 },
            Whom::Token(77),
        ] {
            rule(GuardCall::AddFence { whom, seconds: 0, why: String::new() });
        }
        db.put_server(&server(1, LISTED), Revision(0)).unwrap();
        db.put_server(&server(2, GONE), Revision(0)).unwrap();
        // These servers confirm all changes, so no change waits for them.
        for other in [ServerId(1), ServerId(2)] {
            db.access().watch(other, Revision(u64::MAX), 0).unwrap();
        }
        rule(GuardCall::WithdrawKeys { server: ServerId(2) });
        // A mandate for a name that no call uses.
        rule(GuardCall::AddMandate {
            principal: delegate,
            realm: Realm::Volumes("nobody.has.this".into()),
        });
        let parts = ViceParts { cell: CellAccess::Database(db), ..ViceParts::default() };
        let vice = Vice::open_with(partition, config, parts, Time::ZERO).unwrap();
        (
            Cell { vice, clients: 0, _dir: dir },
            callers(joe, member, foreign, chief, [fenced, delegate]),
        )
    }

    /// Calls as a client of its own, independent of earlier calls. `None`: it waits.
    fn call(&mut self, caller: &Caller, call: &Call) -> Option<Result<Answer, Fault>> {
        self.clients += 1;
        let now = Time::from_start(Duration::from_secs(100));
        let mut out = Vec::new();
        let session = self.vice.attach(now, ClientId(self.clients), 1, &mut out).unwrap().session;
        let origin = ReplyAddress { session, slot: 0, request: 1 };
        self.vice.perform(
            Execution::new(now, Timestamp::new(1000, 0), caller, origin),
            call.clone(),
            &mut out,
        );
        let result = out.into_iter().find_map(|effect| match effect {
            Effect::Reply { origin: of, result, .. } if of == origin => Some(result),
            _ => None,
        });
        self.vice.detach(now, session, &mut Vec::new());
        result
    }
}

/// A few calls of every kind in the protocol.
fn all_calls() -> BTreeMap<(Procedure, bool), Vec<Call>> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut calls: BTreeMap<(Procedure, bool), Vec<Call>> = BTreeMap::new();
    for _ in 0..20_000 {
        let call = dafs::strategies::call().new_tree(&mut runner).unwrap().current();
        let on_behalf = matches!(
            call,
            Call::Pts { on_behalf: Some(_), .. }
                | Call::Auth { behalf: Some(_), .. }
                | Call::Guard { behalf: Some(_), .. }
                | Call::Scrub { start: true }
                | Call::Volume(VolumeCall::Format { raise: true, .. })
                | Call::Cell(CellCall::Level { act: LevelAct::Raise(_) })
        );
        let known = calls.entry((call.procedure(), on_behalf)).or_default();
        if known.len() < TRIED {
            known.push(call);
        }
    }
    let seen: BTreeSet<Procedure> = calls.keys().map(|(procedure, _)| *procedure).collect();
    for procedure in Procedure::ALL {
        assert!(seen.contains(procedure), "no call of {procedure:?} was made");
    }
    calls
}

#[test]
fn everybody_may_what_the_table_says_and_nothing_else() {
    let (mut cell, callers) = Cell::new();
    let mut checked = 0;
    for call in all_calls().into_values().flatten() {
        for (who, caller) in &callers {
            let result = cell.call(caller, &call);
            let refused = result == Some(Err(Fault::NotPermitted));
            let may = may(&call);
            if who.contains("expired") {
                assert_eq!(result, Some(Err(Fault::TokenExpired)), "{who}: {call:?}");
            } else if matches!(
                *who,
                "server whose key is withdrawn"
                    | "superuser of that server"
                    | "user of that server"
            ) {
                assert!(refused, "{who} got {result:?} for {call:?}");
            } else if who.contains("fenced") {
                assert_eq!(result, Some(Err(Fault::Fenced)), "{who}: {call:?}");
            } else if *who == "delegate" && matches!(call.procedure(), Procedure::CellTakeNumbers) {
                // An administrator of any part may.
                assert!(!refused, "{who}: {call:?}");
            } else if *who == "delegate"
                && matches!(call.procedure(), Procedure::CellPutGroup | Procedure::CellRemoveGroup)
            {
                // The name decides, and there is no such group.
                assert!(
                    refused || matches!(call, Call::Cell(CellCall::RemoveGroup { .. })),
                    "{who}: {call:?}"
                );
            } else if !allowed(may, who) {
                assert!(refused, "{who} got {result:?} for {call:?}");
            } else if may == May::ByRecord {
                let looks = matches!(
                    call.procedure(),
                    Procedure::PtsExamine
                        | Procedure::PtsMembership
                        | Procedure::PtsOwned
                        | Procedure::PtsEntries
                );
                let unknown = !allowed(May::Proved, who);
                assert!(
                    looks || !unknown || result.as_ref().is_none_or(Result::is_err),
                    "{who} changed by {call:?}"
                );
            } else if may != May::ByFile
                && !matches!(call, Call::Pts { .. } | Call::Guard { behalf: Some(_), .. })
            {
                assert!(!refused, "{who} was refused {call:?}");
            }
            checked += 1;
        }
    }
    assert!(checked > 100 * callers.len(), "{checked}");
}

#[test]
fn m1_an_enrolling_server_enters_its_own_key_alone() {
    let (mut cell, callers) = Cell::new();
    let enrolling = &callers.iter().find(|(who, _)| *who == "enrolling server").unwrap().1;
    let put = |server: ServerInfo, expected: u64| {
        Call::Cell(CellCall::PutServer { server, expected: Revision(expected) })
    };
    let known = |cell: &mut Cell, id: u128| match cell
        .call(&Caller::ROOT, &Call::Cell(CellCall::Servers))
    {
        Some(Ok(Answer::Servers(all))) => {
            all.into_iter().find(|seen| seen.record.id == ServerId(id)).unwrap()
        }
        other => panic!("{other:?}"),
    };
    let refused = Some(Err(Fault::NotPermitted));
    let (listed, emptied) = (known(&mut cell, 1).revision.0, known(&mut cell, 2).revision.0);
    // Another key, none, more; another server's record; a site where clients would find it.
    for keys in [vec![], vec![LISTED], vec![GONE], vec![NEW, LISTED], vec![LISTED, NEW]] {
        assert_eq!(cell.call(enrolling, &put(ServerInfo { keys, ..server(9, NEW) }, 0)), refused);
    }
    assert_eq!(cell.call(enrolling, &put(server(1, NEW), listed)), refused);
    let found = ServerInfo { addresses: vec![([192, 0, 2, 1], 1).into()], ..server(9, NEW) };
    assert_eq!(cell.call(enrolling, &put(found.clone(), 0)), refused);
    assert_eq!(
        cell.call(enrolling, &put(ServerInfo { id: ServerId(2), ..found }, emptied)),
        refused
    );
    // No present record permits a change from a later revision.
    assert_eq!(cell.call(enrolling, &put(server(9, NEW), 1)), Some(Err(Fault::Conflict)));
    assert!(matches!(cell.call(enrolling, &put(server(9, NEW), 0)), Some(Ok(Answer::Revision(_)))));
    assert_eq!(known(&mut cell, 9).record, server(9, NEW));
    // A key that a server has replaced cannot enter itself again.
    let dropped = ServerInfo { keys: vec![], ..server(9, NEW) };
    let expected = known(&mut cell, 9).revision.0;
    assert!(matches!(
        cell.call(&Caller::ROOT, &put(dropped, expected)),
        Some(Ok(Answer::Revision(_)))
    ));
    for (id, expected) in [(8, 0), (9, known(&mut cell, 9).revision.0), (2, emptied)] {
        assert_eq!(cell.call(enrolling, &put(server(id, NEW), expected)), refused, "{id}");
    }
    let enrolling = &Caller {
        who: RequestIdentity { server: Some(KeyPrint([4; 32])), ..enrolling.who },
        ..enrolling.clone()
    };
    // The record of a server whose keys were withdrawn accepts a new key, and never an old one.
    assert!(matches!(
        cell.call(enrolling, &put(server(2, KeyPrint([4; 32])), emptied)),
        Some(Ok(Answer::Revision(_)))
    ));
    let gone = Caller {
        who: RequestIdentity { server: Some(GONE), ..enrolling.who },
        ..enrolling.clone()
    };
    assert_eq!(cell.call(&gone, &put(server(10, GONE), 0)), refused);
    let chief = &callers.iter().find(|(who, _)| *who == "administrator").unwrap().1;
    assert_eq!(cell.call(chief, &put(server(10, GONE), 0)), refused, "not even an administrator");
}
