//! Samples about fences and mandates.

use types::*;

const JOE: PrincipalId = PrincipalId(0x0102);
const SERVER: ServerId = ServerId(0x0506);

fn realms() -> [Realm; 3] {
    [
        Realm::Volumes("home.*".into()),
        Realm::Server(SERVER),
        Realm::Partition(SERVER, "/vicepa".into()),
    ]
}

pub(super) fn calls() -> Vec<(&'static str, Call)> {
    let guard = |name, call| (name, Call::Guard { behalf: None, call: Box::new(call) });
    let fence =
        |name, whom| guard(name, GuardCall::AddFence { whom, seconds: 3600, why: "lost".into() });
    let mandate = |name, realm| guard(name, GuardCall::AddMandate { principal: JOE, realm });
    let [volumes, server, partition] = realms();
    vec![
        guard("guard-fences", GuardCall::Fences { after: 7, max: 100 }),
        (
            "guard-on-behalf",
            Call::Guard {
                behalf: Some(JOE),
                call: Box::new(GuardCall::Fences { after: 0, max: 1 }),
            },
        ),
        fence("guard-fence-user", Whom::User(JOE)),
        fence("guard-fence-host", Whom::Hosts { address: [10, 1, 2, 0].into(), prefix: 24 }),
        fence("guard-fence-token", Whom::Token(0x0708)),
        fence("guard-fence-client", Whom::Client(ClientId(0x090a))),
        fence("guard-fence-session", Whom::Session(SessionId(0x0b))),
        guard("guard-remove-fence", GuardCall::RemoveFence { number: 8 }),
        guard("guard-mandates", GuardCall::Mandates { after: 7, max: 100 }),
        mandate("guard-mandate-volumes", volumes),
        mandate("guard-mandate-server", server),
        mandate("guard-mandate-partition", partition),
        guard("guard-remove-mandate", GuardCall::RemoveMandate { number: 8 }),
        guard("guard-withdraw-keys", GuardCall::WithdrawKeys { server: SERVER }),
        guard("guard-audit-lines", GuardCall::AuditLines { file: 8, offset: 0x0708 }),
    ]
}

pub(super) fn answers() -> Vec<(&'static str, Answer)> {
    let fence = Fence {
        number: 8,
        whom: Whom::Token(0x0708),
        since: 5,
        until: 6,
        by: JOE,
        why: "lost".into(),
    };
    let mandate = |realm| Mandate { number: 9, principal: JOE, realm, by: PrincipalId::NONE };
    let changes = Some(vec![(Revision(0x0305), Changed::Rules)]);
    vec![
        ("fences", Answer::Fences { fences: vec![fence], end: true }),
        ("mandates", Answer::Mandates { mandates: realms().map(mandate).to_vec(), end: true }),
        ("enforced", Answer::Enforced { number: 8, missing: vec![SERVER] }),
        ("changes-of-rules", Answer::Changes { at: Revision(0x0305), changes }),
    ]
}
