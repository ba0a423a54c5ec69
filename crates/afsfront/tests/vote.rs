//! The service of elections beside the databases.

use std::sync::Arc;

use afs3::protection::{PrName, ProtectionCall};
use afs3::ubik::vote::{VoteAnswer, VoteCall};
use afs3::ubik::{UbikTransaction, UbikVersion};
use afsfront::{Databases, ProtectionService, Refusal, VoteService};
use celldb::Embedded;
use types::{PrincipalId, ServerId, ServerInfo};

use crate::common::Rig;

/// A server at this address.
const OWN: u32 = 0xc000_0201;

fn cell() -> (tempfile::TempDir, Rig) {
    let dir = tempfile::tempdir().unwrap();
    let db = Arc::new(Embedded::open(dir.path()).unwrap());
    let addresses = vec!["192.0.2.1:7600".parse().unwrap()];
    let (id, name, keys) = (ServerId(1), "one".to_owned(), Vec::new());
    (dir, Rig::in_cell(db, ServerInfo { id, name, addresses, keys }))
}

#[test]
fn a_server_is_its_own_synchronization_site() {
    let (_kept, rig) = cell();
    let (service, stranger) =
        (VoteService::new(1000, Databases::Own), rig.user(PrincipalId::ANONYMOUS));
    let ask = |call: VoteCall| service.serve(&stranger, &call);
    let Ok(VoteAnswer::XDebug { state, is_clone: 0 }) = ask(VoteCall::XDebug {}) else { panic!() };
    assert_eq!(state.addresses[..2], [OWN, 0]);
    let of_it = &state.state;
    assert_eq!((of_it.sync_host, of_it.is_sync_site, of_it.servers), (OWN, 1, 1));
    assert_eq!((of_it.recovery_state, of_it.epoch_time), (0x1f, 1000));
    assert_eq!(of_it.local_version, of_it.sync_version);
    let old = ask(VoteCall::DebugOld {});
    assert!(matches!(old, Ok(VoteAnswer::DebugOld { state }) if state.sync_host == OWN), "{old:?}");
    for call in [VoteCall::SDebug { which: 0 }, VoteCall::XSDebug { which: 0 }] {
        assert_eq!(ask(call), Err(Refusal(2)));
    }
}

#[test]
fn its_version_grows_with_the_database() {
    let (_kept, rig) = cell();
    let (service, admin) = (VoteService::new(1000, Databases::Own), rig.administrator());
    let version = || match service.serve(&admin, &VoteCall::DebugOld {}) {
        Ok(VoteAnswer::DebugOld { state }) => state.local_version,
        other => panic!("{other:?}"),
    };
    let before = version();
    assert_eq!(version(), before);
    let name = PrName::new("jill").unwrap();
    let made = ProtectionCall::NewEntry { name, flag: 0, owner: 0 };
    ProtectionService::new("x.org", Databases::Own).serve(&admin, made).unwrap();
    assert_eq!((version().epoch, version().counter > before.counter), (before.epoch, true));
}

#[test]
fn it_votes_for_no_other_server() {
    let (_kept, rig) = cell();
    let (service, stranger) =
        (VoteService::new(1000, Databases::Own), rig.user(PrincipalId::ANONYMOUS));
    let beacon = VoteCall::Beacon {
        state: 1,
        vote_started: 1,
        version: UbikVersion::default(),
        transaction: UbikTransaction::default(),
    };
    // A vote would be the code with which the call ends.
    assert_eq!(service.serve(&stranger, &beacon), Ok(VoteAnswer::Beacon {}));
}

#[test]
fn mx3_a_copy_is_no_synchronization_site() {
    let (_kept, rig) = cell();
    let (service, admin) = (VoteService::new(1000, Databases::Followed), rig.administrator());
    let Ok(VoteAnswer::XDebug { state, .. }) = service.serve(&admin, &VoteCall::XDebug {}) else {
        panic!()
    };
    assert_eq!((state.state.is_sync_site, state.state.sync_host), (0, 0));
    assert_eq!(state.addresses[..2], [OWN, 0]);
}
