//! Samples about users and groups.

use types::*;

const JOE: PrincipalId = PrincipalId(0x0102);
const STAFF: PrincipalId = PrincipalId(-205);

fn staff() -> Principal {
    Principal {
        id: STAFF,
        kind: PrincipalKind::Group,
        name: "joe:staff".into(),
        owner: JOE,
        creator: JOE,
        privacy: Privacy::GROUP,
        group_quota: 3,
        uid: None,
        gid: Some(100),
        tokens_after: 5,
        locked: false,
    }
}

fn program() -> ServerProgram {
    ServerProgram { server: ServerId(0x0506), knows: 2, version: "0.1.0".into() }
}

pub(super) fn calls() -> Vec<(&'static str, Call)> {
    let cell = |name, call| (name, Call::Cell(call));
    let pts = |name, call| (name, Call::Pts { on_behalf: None, call: Box::new(call) });
    let auth = |name, behalf, call| (name, Call::Auth { behalf, call: Box::new(call) });
    let behalf = Behalf { principal: JOE, host: Some([10, 1, 2, 3].into()) };
    let secret = |text: &str| Secret::new(text.as_bytes().to_vec());
    let new = NewPrincipal {
        kind: PrincipalKind::Group,
        name: "joe:staff".into(),
        id: Some(STAFF),
        owner: Some(WhichPrincipal::Name("joe".into())),
        uid: None,
        gid: Some(100),
    };
    let change = PrincipalChange {
        privacy: Some(Privacy::USER),
        uid: Some(1000),
        locked: Some(true),
        ..PrincipalChange::default()
    };
    vec![
        cell("cell-principal-id", CellCall::Principal { which: WhichPrincipal::Id(STAFF) }),
        cell(
            "cell-principal-name",
            CellCall::Principal { which: WhichPrincipal::Name("joe".into()) },
        ),
        cell("cell-principal-uid", CellCall::Principal { which: WhichPrincipal::Uid(1000) }),
        cell(
            "cell-subdomain",
            CellCall::Subdomain { principal: JOE, host: Some([10, 1, 2, 3].into()) },
        ),
        cell("cell-subdomain-nowhere", CellCall::Subdomain { principal: JOE, host: None }),
        cell(
            "cell-watch",
            CellCall::Watch { server: ServerId(0x0506), since: Revision(0x0304), max: 100 },
        ),
        cell("cell-copy", CellCall::Copy { copy: 0, after: bytes::Bytes::new(), skip: 0 }),
        cell(
            "cell-copy-next",
            CellCall::Copy {
                copy: 0x0708,
                after: bytes::Bytes::from_static(b"P\x80\0\0\x01"),
                skip: 0x0910,
            },
        ),
        cell(
            "cell-invite",
            CellCall::Invite {
                public: [5; 32],
                seconds: 3600,
                uses: 2,
                roles: ServerRoles::FILE.bits(),
                by: JOE,
                name: "two".into(),
            },
        ),
        cell("cell-invitations", CellCall::Invitations { after: 7, max: 100 }),
        cell("cell-uninvite", CellCall::Uninvite { number: 0x0708 }),
        cell("cell-redeem", CellCall::Redeem { request: "{}".into() }),
        cell("cell-join", CellCall::Join { request: "{}".into() }),
        cell("cell-certify", CellCall::Certify { request: "-----BEGIN".into() }),
        cell("cell-withdrawn", CellCall::Withdrawn),
        cell("cell-server-roles", CellCall::ServerRoles),
        cell("cell-level", CellCall::Level { act: LevelAct::Ask }),
        cell("cell-level-tell", CellCall::Level { act: LevelAct::Tell(program()) }),
        cell("cell-level-raise", CellCall::Level { act: LevelAct::Raise(0x0203) }),
        ("pts-on-behalf", Call::Pts { on_behalf: Some(JOE), call: Box::new(PtsCall::Max) }),
        pts("pts-names", PtsCall::Names { ids: vec![JOE, STAFF] }),
        pts("pts-numbers", PtsCall::Numbers { names: vec!["joe".into(), "joe:staff".into()] }),
        pts("pts-examine", PtsCall::Examine { id: JOE }),
        pts("pts-create", PtsCall::Create { new: Box::new(new) }),
        pts("pts-delete", PtsCall::Delete { id: JOE }),
        pts("pts-rename", PtsCall::Rename { id: JOE, name: "jim".into() }),
        pts("pts-change-owner", PtsCall::ChangeOwner { id: STAFF, owner: JOE }),
        pts("pts-set-fields", PtsCall::SetFields { id: JOE, change }),
        pts("pts-join", PtsCall::Join { group: STAFF, member: JOE }),
        pts("pts-leave", PtsCall::Leave { group: STAFF, member: JOE }),
        pts(
            "pts-membership",
            PtsCall::Membership { id: JOE, groups: true, after: STAFF, max: 100 },
        ),
        pts("pts-owned", PtsCall::Owned { owner: JOE, after: STAFF, max: 100 }),
        pts("pts-entries", PtsCall::Entries { after: STAFF, max: 100 }),
        pts("pts-max", PtsCall::Max),
        pts("pts-set-max", PtsCall::SetMax { user: JOE, group: STAFF }),
        auth(
            "auth-password",
            Some(behalf),
            AuthCall::Password {
                name: "joe".into(),
                password: secret("open sesame"),
                client: [7; 32],
            },
        ),
        auth("auth-attest", None, AuthCall::Attest { client: [7; 32] }),
        auth(
            "auth-kerberos",
            None,
            AuthCall::Kerberos { request: vec![0x60, 1, 2].into(), client: [7; 32] },
        ),
        auth("auth-renew", None, AuthCall::Renew { token: vec![1, 2, 3].into() }),
        auth(
            "auth-set-password",
            None,
            AuthCall::SetPassword {
                name: "joe".into(),
                old: Some(secret("open sesame")),
                new: secret("xyzzy plugh"),
                keep_tokens: false,
            },
        ),
        auth(
            "auth-reset-password",
            None,
            AuthCall::SetPassword {
                name: "joe".into(),
                old: None,
                new: secret("reset it"),
                keep_tokens: true,
            },
        ),
    ]
}

pub(super) fn answers() -> Vec<(&'static str, Answer)> {
    vec![
        ("principals", Answer::Principals { principals: vec![(staff(), 7)], end: true }),
        ("token", Answer::Token(b"a token".to_vec().into())),
        (
            "ticket",
            Answer::Ticket {
                token: b"a token".to_vec().into(),
                reply: bytes::Bytes::from_static(b"a reply"),
            },
        ),
        (
            "names",
            Answer::Names { names: vec![(JOE, "joe".into()), (STAFF, String::new())], end: true },
        ),
        ("subdomain", Answer::Subdomain { at: Revision(0x0304), groups: vec![STAFF] }),
        (
            "records",
            Answer::Records {
                copy: 0x0708,
                at: Revision(0x0304),
                end: true,
                part: b"records".to_vec().into(),
            },
        ),
        (
            "invitations",
            Answer::Invitations {
                invitations: vec![Invitation {
                    number: 8,
                    public: [5; 32],
                    name: "two".into(),
                    roles: ServerRoles::FILE.with(ServerRoles::DATABASE),
                    uses: 2,
                    used: vec![InvitedServer { key: KeyPrint([7; 32]), name: "two".into(), at: 6 }],
                    since: 5,
                    until: 9,
                    by: JOE,
                }],
                end: true,
            },
        ),
        ("level", Answer::Level(CellLevel { level: 1, programs: vec![program()] })),
        ("joined", Answer::Joined { facts: "{}".into(), secrets: b"1 key".to_vec().into() }),
        (
            "changes-of-principals",
            Answer::Changes {
                at: Revision(0x0305),
                changes: Some(vec![
                    (Revision(0x0304), Changed::Principal(STAFF)),
                    (Revision(0x0305), Changed::Principals),
                ]),
            },
        ),
    ]
}
