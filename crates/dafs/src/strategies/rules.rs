//! Random calls and answers about fences and mandates.

use std::net::{IpAddr, Ipv4Addr};

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use types::{
    Answer, Call, ClientId, Fence, GuardCall, Mandate, PrincipalId, Realm, SessionId, Whom,
};

use super::server_id;

fn id() -> impl Strategy<Value = PrincipalId> {
    any::<i32>().prop_map(PrincipalId)
}

fn text() -> impl Strategy<Value = String> {
    ".{0,15}"
}

fn whom() -> impl Strategy<Value = Whom> {
    prop_oneof![
        id().prop_map(Whom::User),
        (any::<u32>(), 0_u8..=32).prop_map(|(bits, prefix)| Whom::Hosts {
            address: IpAddr::from(Ipv4Addr::from_bits(bits)),
            prefix
        }),
        (any::<[u8; 14]>(), 0_u8..=128).prop_map(|(tail, prefix)| {
            // In the documentation's network, so that no IPv4 address is mapped.
            let mut octets = [0x20; 16];
            octets[2..].copy_from_slice(&tail);
            Whom::Hosts { address: IpAddr::from(octets), prefix }
        }),
        any::<u128>().prop_map(Whom::Token),
        any::<u128>().prop_map(|number| Whom::Client(ClientId(number))),
        any::<u64>().prop_map(|number| Whom::Session(SessionId(number))),
    ]
}

fn realm() -> impl Strategy<Value = Realm> {
    prop_oneof![
        text().prop_map(Realm::Volumes),
        server_id().prop_map(Realm::Server),
        (server_id(), text()).prop_map(|(server, name)| Realm::Partition(server, name)),
    ]
}

pub(super) fn calls() -> impl Strategy<Value = Call> {
    let call = prop_oneof![
        (any::<u64>(), any::<u32>()).prop_map(|(after, max)| GuardCall::Fences { after, max }),
        (whom(), any::<u64>(), text()).prop_map(|(whom, seconds, why)| GuardCall::AddFence {
            whom,
            seconds,
            why
        }),
        any::<u64>().prop_map(|number| GuardCall::RemoveFence { number }),
        (any::<u64>(), any::<u32>()).prop_map(|(after, max)| GuardCall::Mandates { after, max }),
        (id(), realm()).prop_map(|(principal, realm)| GuardCall::AddMandate { principal, realm }),
        any::<u64>().prop_map(|number| GuardCall::RemoveMandate { number }),
        server_id().prop_map(|server| GuardCall::WithdrawKeys { server }),
        any::<(u64, u64)>().prop_map(|(file, offset)| GuardCall::AuditLines { file, offset }),
    ];
    (of(id()), call).prop_map(|(behalf, call)| Call::Guard { behalf, call: Box::new(call) })
}

pub(super) fn answers() -> impl Strategy<Value = Answer> {
    let fence = (any::<u64>(), whom(), any::<(i64, i64)>(), id(), text()).prop_map(
        |(number, whom, (since, until), by, why)| Fence { number, whom, since, until, by, why },
    );
    let mandate = (any::<u64>(), id(), realm(), id())
        .prop_map(|(number, principal, realm, by)| Mandate { number, principal, realm, by });
    prop_oneof![
        (vec(fence, 0..5), any::<bool>()).prop_map(|(fences, end)| Answer::Fences { fences, end }),
        (vec(mandate, 0..5), any::<bool>())
            .prop_map(|(mandates, end)| Answer::Mandates { mandates, end }),
        (any::<u64>(), vec(server_id(), 0..3))
            .prop_map(|(number, missing)| Answer::Enforced { number, missing }),
    ]
}
