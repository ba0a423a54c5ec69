//! Servers of the cell, by the keys that its database lists, and how a new one enters its key.
//!
//! A server is the holder of a listed key. A host with a certificate of the cell's own authority
//! for a server, whose key is not listed, may make one change: write the record of a server that
//! lists this key. It cannot take over a record that lists keys of another server, change a
//! server's addresses, or create a server that clients would find before it has received the cell's
//! rules.

use std::collections::BTreeMap;

use types::{Fault, KeyPrint, ServerId, ServerInfo};

/// The keys that the cell database lists, each with its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerKeys(BTreeMap<KeyPrint, ServerId>);

impl ServerKeys {
    /// Collects the keys of all servers' records.
    pub fn of<'s>(servers: impl IntoIterator<Item = &'s ServerInfo>) -> ServerKeys {
        let keys =
            servers.into_iter().flat_map(|server| server.keys.iter().map(|key| (*key, server.id)));
        ServerKeys(keys.collect())
    }

    /// The server that has the key; `None`: it is not listed.
    pub fn server(&self, key: &KeyPrint) -> Option<ServerId> {
        self.0.get(key).copied()
    }

    /// Each key with its server, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (KeyPrint, ServerId)> {
        self.0.iter().map(|(key, server)| (*key, *server))
    }

    /// Whether no key is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
