//! Random calls and answers about users and groups.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use types::{
    Answer, AuthCall, Behalf, Call, CellCall, CellLevel, Invitation, InvitedServer, KeyPrint,
    LevelAct, NewPrincipal, Principal, PrincipalChange, PrincipalId, PrincipalKind, Privacy,
    PtsCall, Secret, ServerProgram, ServerRoles, WhichPrincipal,
};

use super::{revision, server_id};

fn id() -> impl Strategy<Value = PrincipalId> {
    any::<i32>().prop_map(PrincipalId)
}

fn principal_id() -> impl Strategy<Value = PrincipalId> {
    id().prop_filter("no principal", |id| *id != PrincipalId::NONE)
}

fn kind() -> impl Strategy<Value = PrincipalKind> {
    prop_oneof![Just(PrincipalKind::User), Just(PrincipalKind::Group), Just(PrincipalKind::Hosts)]
}

fn text() -> impl Strategy<Value = String> {
    ".{0,15}"
}

fn number() -> impl Strategy<Value = Option<u32>> {
    of(0..u32::MAX)
}

fn which() -> impl Strategy<Value = WhichPrincipal> {
    prop_oneof![
        id().prop_map(WhichPrincipal::Id),
        text().prop_map(WhichPrincipal::Name),
        any::<u32>().prop_map(WhichPrincipal::Uid)
    ]
}

fn principal() -> impl Strategy<Value = Principal> {
    let ids = (id(), id(), id());
    (
        ids,
        kind(),
        text(),
        any::<u8>(),
        any::<u32>(),
        number(),
        number(),
        any::<i64>(),
        any::<bool>(),
    )
        .prop_map(
            |(
                (id, owner, creator),
                kind,
                name,
                privacy,
                group_quota,
                uid,
                gid,
                tokens_after,
                locked,
            )| Principal {
                id,
                kind,
                name,
                owner,
                creator,
                privacy: Privacy(privacy),
                group_quota,
                uid,
                gid,
                tokens_after,
                locked,
            },
        )
}

fn change() -> impl Strategy<Value = PrincipalChange> {
    let numbers = [of(any::<u32>()), of(any::<u32>()), of(any::<u32>())];
    (of(any::<u8>()), numbers, of(any::<i64>()), of(any::<bool>())).prop_map(
        |(privacy, [group_quota, uid, gid], tokens_after, locked)| PrincipalChange {
            privacy: privacy.map(Privacy),
            group_quota,
            uid,
            gid,
            tokens_after,
            locked,
        },
    )
}

fn new() -> impl Strategy<Value = NewPrincipal> {
    (kind(), text(), of(principal_id()), of(which()), number(), number()).prop_map(
        |(kind, name, id, owner, uid, gid)| NewPrincipal { kind, name, id, owner, uid, gid },
    )
}

/// Calls about principals, by any caller.
pub(super) fn pts_calls() -> impl Strategy<Value = Call> {
    let call = prop_oneof![
        vec(id(), 0..50).prop_map(|ids| PtsCall::Names { ids }),
        vec(text(), 0..20).prop_map(|names| PtsCall::Numbers { names }),
        id().prop_map(|id| PtsCall::Examine { id }),
        new().prop_map(|new| PtsCall::Create { new: Box::new(new) }),
        id().prop_map(|id| PtsCall::Delete { id }),
        (id(), text()).prop_map(|(id, name)| PtsCall::Rename { id, name }),
        (id(), id()).prop_map(|(id, owner)| PtsCall::ChangeOwner { id, owner }),
        (id(), change()).prop_map(|(id, change)| PtsCall::SetFields { id, change }),
        (id(), id()).prop_map(|(group, member)| PtsCall::Join { group, member }),
        (id(), id()).prop_map(|(group, member)| PtsCall::Leave { group, member }),
        (id(), any::<bool>(), id(), any::<u32>())
            .prop_map(|(id, groups, after, max)| PtsCall::Membership { id, groups, after, max }),
        (id(), id(), any::<u32>()).prop_map(|(owner, after, max)| PtsCall::Owned {
            owner,
            after,
            max
        }),
        (id(), any::<u32>()).prop_map(|(after, max)| PtsCall::Entries { after, max }),
        Just(PtsCall::Max),
        (id(), id()).prop_map(|(user, group)| PtsCall::SetMax { user, group }),
    ];
    (of(principal_id()), call)
        .prop_map(|(on_behalf, call)| Call::Pts { on_behalf, call: Box::new(call) })
}

/// Calls of authentication.
pub(super) fn auth_calls() -> impl Strategy<Value = Call> {
    let secret = || vec(any::<u8>(), 0..40).prop_map(Secret::new);
    let call = prop_oneof![
        (text(), secret(), any::<[u8; 32]>())
            .prop_map(|(name, password, client)| AuthCall::Password { name, password, client }),
        any::<[u8; 32]>().prop_map(|client| AuthCall::Attest { client }),
        (vec(any::<u8>(), 0..200), any::<[u8; 32]>())
            .prop_map(|(request, client)| AuthCall::Kerberos { request: request.into(), client }),
        vec(any::<u8>(), 0..200).prop_map(|token| AuthCall::Renew { token: token.into() }),
        (text(), of(secret()), secret(), any::<bool>()).prop_map(
            |(name, old, new, keep_tokens)| AuthCall::SetPassword { name, old, new, keep_tokens }
        ),
    ];
    let behalf = (principal_id(), any::<u32>()).prop_map(|(principal, ip)| Behalf {
        principal,
        host: Some(std::net::Ipv4Addr::from_bits(ip).into()),
    });
    (of(behalf), call).prop_map(|(behalf, call)| Call::Auth { behalf, call: Box::new(call) })
}

/// Calls of servers to the cell database about principals.
pub(super) fn cell_calls() -> impl Strategy<Value = CellCall> {
    // An IPv4 address that is mapped to IPv6 has a second form, and the unspecified address is no
    // host.
    let host = any::<IpAddr>()
        .prop_map(|ip| ip.to_canonical())
        .prop_filter("no host", |ip| *ip != IpAddr::from([0_u16; 8]));
    prop_oneof![
        which().prop_map(|which| CellCall::Principal { which }),
        (id(), of(host)).prop_map(|(principal, host)| CellCall::Subdomain { principal, host }),
        (server_id(), revision(), any::<u32>()).prop_map(|(server, since, max)| CellCall::Watch {
            server,
            since,
            max
        }),
        (any::<u64>(), vec(any::<u8>(), 0..40), any::<u64>())
            .prop_map(|(copy, after, skip)| CellCall::Copy { copy, after: after.into(), skip }),
        (any::<[u8; 32]>(), any::<(u64, u32)>(), roles(), id(), text()).prop_map(
            |(public, (seconds, uses), roles, by, name)| CellCall::Invite {
                public,
                seconds,
                uses,
                roles: roles.bits(),
                by,
                name,
            }
        ),
        (any::<u64>(), any::<u32>()).prop_map(|(after, max)| CellCall::Invitations { after, max }),
        any::<u64>().prop_map(|number| CellCall::Uninvite { number }),
        Just(CellCall::Withdrawn),
        Just(CellCall::ServerRoles),
        level_act().prop_map(|act| CellCall::Level { act }),
        text().prop_map(|request| CellCall::Redeem { request }),
        text().prop_map(|request| CellCall::Join { request }),
        text().prop_map(|request| CellCall::Certify { request }),
    ]
}

fn program() -> impl Strategy<Value = ServerProgram> {
    (server_id(), any::<u32>(), text()).prop_map(|(server, knows, version)| ServerProgram {
        server,
        knows,
        version,
    })
}

fn level_act() -> impl Strategy<Value = LevelAct> {
    prop_oneof![
        Just(LevelAct::Ask),
        program().prop_map(LevelAct::Tell),
        any::<u32>().prop_map(LevelAct::Raise),
    ]
}

fn roles() -> impl Strategy<Value = ServerRoles> {
    let all = [ServerRoles::NONE, ServerRoles::FILE, ServerRoles::DATABASE, ServerRoles::ALL];
    proptest::sample::select(all.to_vec())
}

fn invitation() -> impl Strategy<Value = Invitation> {
    let used = (any::<[u8; 32]>(), text(), any::<i64>())
        .prop_map(|(key, name, at)| InvitedServer { key: KeyPrint(key), name, at });
    let times = any::<(i64, i64)>();
    (any::<(u64, u32, [u8; 32])>(), roles(), times, id(), text(), vec(used, 0..3)).prop_map(
        |((number, uses, public), roles, (since, until), by, name, used)| Invitation {
            number,
            public,
            name,
            roles,
            uses,
            used,
            since,
            until,
            by,
        },
    )
}

/// Answers to both.
pub(super) fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        (vec((principal(), any::<u32>()), 0..5), any::<bool>())
            .prop_map(|(principals, end)| Answer::Principals { principals, end }),
        (vec((id(), text()), 0..20), any::<bool>())
            .prop_map(|(names, end)| Answer::Names { names, end }),
        (revision(), vec(id(), 0..100)).prop_map(|(at, groups)| Answer::Subdomain { at, groups }),
        (any::<u64>(), revision(), any::<bool>(), vec(any::<u8>(), 0..2000))
            .prop_map(|(copy, at, end, part)| Answer::Records { copy, at, end, part: part.into() }),
        vec(any::<u8>(), 0..100).prop_map(|token| Answer::Token(token.into())),
        (vec(any::<u8>(), 0..100), vec(any::<u8>(), 0..100))
            .prop_map(|(token, reply)| Answer::Ticket { token: token.into(), reply: reply.into() }),
        (vec(invitation(), 0..4), any::<bool>())
            .prop_map(|(invitations, end)| Answer::Invitations { invitations, end }),
        (any::<u32>(), vec(program(), 0..4))
            .prop_map(|(level, programs)| Answer::Level(CellLevel { level, programs })),
        (text(), vec(any::<u8>(), 0..100))
            .prop_map(|(facts, secrets)| Answer::Joined { facts, secrets: secrets.into() }),
    ]
}
