//! Servers of the cell, by the keys that its database lists, and how a new one enters its key.
//!
//! A server is the holder of a listed key. A host with a certificate of the cell's own authority
//! for a server, whose key is not listed, may make one change: write the record of a server that
//! lists this key. It cannot take over a record that lists keys of another server, change a
//! server's addresses, or create a server that clients would find before it has received the cell's
//! rules.

use std::collections::BTreeMap;

use types::{
    AuthLevel, Call, Caller, CellCall, Fault, GuardCall, KeyPrint, LevelAct, ServerId, ServerInfo,
    ServerRoles, VolumeCall,
};

use crate::table::{Row, row};

/// The keys that the cell database lists, each with its server, and the servers that may not do
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerKeys {
    keys: BTreeMap<KeyPrint, ServerId>,
    limited: BTreeMap<ServerId, ServerRoles>,
}

impl ServerKeys {
    /// Collects the keys of all servers' records.
    pub fn of<'s>(servers: impl IntoIterator<Item = &'s ServerInfo>) -> ServerKeys {
        let keys =
            servers.into_iter().flat_map(|server| server.keys.iter().map(|key| (*key, server.id)));
        ServerKeys { keys: keys.collect(), limited: BTreeMap::new() }
    }

    /// With the roles of servers that do not have all.
    #[must_use]
    pub fn limited(self, roles: impl IntoIterator<Item = (ServerId, ServerRoles)>) -> ServerKeys {
        ServerKeys { limited: roles.into_iter().collect(), ..self }
    }

    /// The servers that do not have all roles.
    pub fn limits(&self) -> impl Iterator<Item = (ServerId, ServerRoles)> {
        self.limited.iter().map(|(server, roles)| (*server, *roles))
    }

    /// The roles of a server.
    pub fn roles(&self, server: ServerId) -> ServerRoles {
        self.limited.get(&server).copied().unwrap_or(ServerRoles::ALL)
    }

    /// The server that has the key; `None`: it is not listed.
    pub fn server(&self, key: &KeyPrint) -> Option<ServerId> {
        self.keys.get(key).copied()
    }

    /// Each key with its server, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (KeyPrint, ServerId)> {
        self.keys.iter().map(|(key, server)| (*key, *server))
    }

    /// Whether no key is listed.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// Whether the server `of`, which has these roles, may make a call as this caller, who came over
/// its connection. The call table decides beside it. `Copy` takes the hashes of passwords away.
/// Without the role for users a server makes the calls that it needs itself: the rules, numbers,
/// its own record, and the contents of volumes that it fetches. It is no superuser elsewhere, and
/// names no caller.
pub fn server_may(of: ServerId, roles: ServerRoles, caller: &Caller, call: &Call) -> bool {
    if matches!(call, Call::Cell(CellCall::Copy { .. })) && !roles.has(ServerRoles::DATABASE) {
        return false;
    }
    if roles.has(ServerRoles::USERS) {
        return true;
    }
    if call.is_on_behalf() {
        return false;
    }
    match (row(call), call) {
        (Row::Anybody, _) => true,
        // Users of its machine.
        _ if caller.who.level != AuthLevel::Server => false,
        // Its program, and the level of the cell before it enters itself.
        (_, Call::Cell(CellCall::Level { act })) => match act {
            LevelAct::Ask => true,
            LevelAct::Tell(program) => program.server == of,
            LevelAct::Raise(_) => false,
        },
        (Row::Server, _) => true,
        (Row::Enrolment, Call::Cell(CellCall::PutServer { server, .. })) => server.id == of,
        (Row::Delegated(_), Call::Volume(VolumeCall::Changes { .. })) => true,
        // Numbers for volumes that administrators make there.
        (Row::Delegated(_), Call::Cell(CellCall::TakeNumbers { .. })) => true,
        // The rules, which every server has in memory.
        (Row::Administrator, Call::Guard { call, .. }) => {
            matches!(**call, GuardCall::Fences { .. } | GuardCall::Mandates { .. })
        }
        _ => false,
    }
}

/// Whether a host with the unlisted key `shown` may write `record`, where the database has `known`
/// under the same id.
///
/// # Errors
/// `NotPermitted`.
pub fn may_enrol(
    shown: KeyPrint,
    record: &ServerInfo,
    known: Option<&ServerInfo>,
) -> Result<(), Fault> {
    let changes_only_keys = match known {
        None => record.addresses.is_empty(),
        Some(known) => {
            known.keys.is_empty()
                && record.name == known.name
                && record.addresses == known.addresses
        }
    };
    if record.keys == [shown] && changes_only_keys { Ok(()) } else { Err(Fault::NotPermitted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: KeyPrint = KeyPrint([1; 32]);
    const OTHER: KeyPrint = KeyPrint([2; 32]);

    fn record(keys: &[KeyPrint], port: Option<u16>) -> ServerInfo {
        let addresses = port.map(|port| ([192, 0, 2, 1], port).into()).into_iter().collect();
        ServerInfo { id: ServerId(7), name: "one".into(), addresses, keys: keys.to_vec() }
    }

    #[test]
    fn m1_a_new_key_enters_itself_and_changes_nothing_else() {
        let may = |record: &ServerInfo, known: Option<&ServerInfo>| {
            may_enrol(MINE, record, known) == Ok(())
        };
        assert!(may(&record(&[MINE], None), None));
        assert!(!may(&record(&[MINE], Some(1)), None), "clients would find it");
        for keys in [&[][..], &[OTHER], &[MINE, OTHER], &[OTHER, MINE], &[MINE, MINE]] {
            assert!(!may(&record(keys, None), None), "{keys:?}");
        }
        let known = record(&[], Some(1));
        assert!(may(&record(&[MINE], Some(1)), Some(&known)), "whose keys were withdrawn");
        assert!(!may(&record(&[MINE], Some(2)), Some(&known)), "elsewhere");
        assert!(!may(&record(&[MINE], None), Some(&known)), "nowhere");
        assert!(!may(&ServerInfo { name: "two".into(), ..record(&[MINE], Some(1)) }, Some(&known)));
        assert!(
            !may(&record(&[MINE], Some(1)), Some(&record(&[OTHER], Some(1)))),
            "another server's"
        );
        assert!(!may(&record(&[MINE], Some(1)), Some(&record(&[OTHER, MINE], Some(1)))));
    }

    #[test]
    fn sj7_a_server_does_what_its_roles_say() {
        use types::{PrincipalId, PtsCall, RequestIdentity, Revision, ServerProgram, VolumeId};
        let who = RequestIdentity {
            level: AuthLevel::Server,
            server: Some(MINE),
            ..RequestIdentity::NOBODY
        };
        let server = Caller { uid: 0, gid: 0, groups: None, who };
        let user = Caller {
            uid: 1000,
            who: RequestIdentity { level: AuthLevel::Named, ..who },
            ..server.clone()
        };
        let (me, other) = (ServerId(7), ServerId(8));
        let put = |id| {
            let server = ServerInfo { id, ..record(&[MINE], None) };
            Call::Cell(CellCall::PutServer { server, expected: Revision(0) })
        };
        let copy = || Call::Cell(CellCall::Copy { copy: 0, after: Default::default(), skip: 0 });
        let watch = Call::Cell(CellCall::Watch { server: me, since: Revision(0), max: 1 });
        let behalf = Call::Pts {
            on_behalf: Some(PrincipalId::ADMINISTRATORS),
            call: Box::new(PtsCall::Max),
        };
        let withdraw =
            Call::Guard { behalf: None, call: Box::new(GuardCall::WithdrawKeys { server: other }) };
        let changes = Call::Volume(VolumeCall::Changes {
            id: VolumeId(1),
            since: 0,
            cursor: types::StreamCursor::default(),
            bytes_max: 1,
            packed: false,
        });
        let remove =
            Call::Cell(CellCall::RemoveGroup { read_write: VolumeId(1), expected: Revision(0) });
        let read = Call::GetStatus { fid: types::Fid::new(1, 1, 1) };
        let may = |roles, caller: &Caller, call: &Call| server_may(me, roles, caller, call);
        let (file, users) = (ServerRoles::FILE, ServerRoles::FILE.with(ServerRoles::USERS));
        let fences =
            Call::Guard { behalf: None, call: Box::new(GuardCall::Fences { after: 0, max: 1 }) };
        let numbers = Call::Cell(CellCall::TakeNumbers { above: VolumeId(0), count: 1 });
        let servers = Call::Cell(CellCall::Servers);
        let level = |act| Call::Cell(CellCall::Level { act });
        let tell = |server| {
            level(LevelAct::Tell(ServerProgram { server, knows: 2, version: String::new() }))
        };
        let (ask, raise) = (level(LevelAct::Ask), level(LevelAct::Raise(2)));
        for call in [&watch, &put(me), &changes, &fences, &numbers, &servers, &ask, &tell(me)] {
            assert!(may(file, &server, call), "{call:?}");
        }
        for call in [&put(other), &copy(), &behalf, &withdraw, &remove, &read, &raise, &tell(other)]
        {
            assert!(!may(file, &server, call), "{call:?}");
            assert!(may(ServerRoles::ALL, &server, call), "{call:?}");
        }
        for call in [&watch, &read, &changes, &withdraw] {
            assert!(!may(file, &user, call) && may(users, &user, call), "{call:?}");
        }
        assert!(may(users, &server, &withdraw) && !may(users, &server, &copy()));
        let database = ServerRoles::FILE.with(ServerRoles::DATABASE);
        assert!(may(database, &server, &copy()) && !may(database, &server, &withdraw));
    }

    #[test]
    fn m1_only_what_a_record_lists_is_listed() {
        let two = ServerInfo { id: ServerId(8), ..record(&[OTHER], None) };
        let keys = ServerKeys::of([&record(&[MINE], None), &two, &record(&[], None)]);
        assert_eq!(
            (keys.server(&MINE), keys.server(&OTHER)),
            (Some(ServerId(7)), Some(ServerId(8)))
        );
        assert_eq!((keys.server(&KeyPrint([0; 32])), keys.iter().count()), (None, 2));
    }
}
