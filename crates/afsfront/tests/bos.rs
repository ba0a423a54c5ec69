//! The bos service.

use afs3::bos::{BosAnswer, BosCall, BosText};
use afs3::errors::{BZACCESS, BZDOM, BZNOENT};
use afsfront::{BosService, Refusal};
use types::PrincipalId;

use crate::common::Rig;

#[test]
fn bos_tells_of_one_server_and_changes_nothing() {
    let rig = Rig::new();
    let service = BosService::new("example.org", 1000);
    let (stranger, admin) = (rig.user(PrincipalId::ANONYMOUS), rig.administrator());
    let text = |of: &str| BosText::new(of.as_bytes()).unwrap();
    let ask = |call| service.serve(&stranger, call);
    let Ok(BosAnswer::EnumerateInstance { name }) = ask(BosCall::EnumerateInstance { index: 0 })
    else {
        panic!()
    };
    assert_eq!(ask(BosCall::EnumerateInstance { index: 1 }), Err(Refusal(BZDOM)));
    let status = ask(BosCall::GetStatus { instance: name });
    assert_eq!(status, Ok(BosAnswer::GetStatus { state: 1, text: text("") }));
    let none = ask(BosCall::GetInstanceInfo { instance: text("fs") });
    assert_eq!(none, Err(Refusal(BZNOENT)));
    let cell = ask(BosCall::GetCellName {});
    assert_eq!(cell, Ok(BosAnswer::GetCellName { name: text("example.org") }));
    for call in [
        BosCall::ShutdownAll {},
        BosCall::Exec { command: text("id") },
        BosCall::SetNoAuthFlag { flag: 1 },
        BosCall::AddSUser { name: text("joe") },
        BosCall::GetLog { name: text("/etc/shadow") },
        BosCall::SetStatus { instance: text("rialto"), status: 0 },
    ] {
        for user in [&stranger, &admin] {
            assert_eq!(service.serve(user, call.clone()), Err(Refusal(BZACCESS)), "{call:?}");
        }
    }
}

#[test]
fn the_end_of_each_list_is_that_of_stock_servers() {
    let rig = Rig::new();
    let (user, service) = (rig.user(PrincipalId::ANONYMOUS), BosService::new("x.org", 7));
    let text = |of: &str| BosText::new(of.as_bytes()).unwrap();
    let ask = |call| service.serve(&user, call).map(drop).map_err(|refusal| refusal.0);
    // `bos listusers` takes any other code for a failure.
    assert_eq!(ask(BosCall::ListSUsers { index: 0 }), Err(1));
    let parm =
        |instance: &str, number| ask(BosCall::GetInstanceParm { instance: text(instance), number });
    assert_eq!(parm("rialto", 0), Ok(()));
    assert_eq!((parm("rialto", 1), parm("rialto", 999)), (Err(39_429), Err(39_425)));
    assert_eq!(parm("nothere", 1), Err(39_425));
    for kind in [0, 3] {
        assert_eq!(ask(BosCall::GetRestartTime { kind }), Err(39_429));
    }
    assert_eq!(ask(BosCall::GetRestartTime { kind: 2 }), Ok(()));
}
