//! Changes of servers: a record for each, which lists its keys, and one for each key that was
//! listed once.
//!
//! A key that was withdrawn is never listed again: not by the server that had it, nor by another
//! one. A key that a server has replaced is listed again only by an administrator or a server: its
//! holder can no longer enter it. The keys that records list are part of the rules.

use types::limits::{SERVER_KEYS_MAX, SERVERS_MAX};
use types::{
    AFS_FILE_PORT, Changed, Fault, KeyPrint, Revision, ServerId, ServerInfo, ServerKind,
    ServerRoles,
};

use super::{Change, Held, Operations, Result, need_seen};
use crate::engine::{Batch, Engine, View};
use crate::record::{self, Noted, Past};
use crate::{CellError, key};

impl<E: Engine> Operations<E> {
    /// Returns the revision, and whether the record lists other keys now.
    ///
    /// # Errors
    /// Those of [`crate::CellDb::put_server`].
    pub fn put_server(
        &self,
        held: &Held<'_>,
        server: &ServerInfo,
        expected: Revision,
    ) -> Result<(Revision, bool)> {
        self.engine.need_room()?;
        self.change(held, |change| {
            let before = change.view.server(server.id)?;
            need_seen(expected, before.as_ref().map(|seen| seen.revision))?;
            need_sound_server(change.view, server)?;
            if before.is_none() && change.view.listed_servers()?.len() >= SERVERS_MAX {
                return Err(CellError::Away(Fault::NoSpace));
            }
            let name = before.as_ref().map(|before| before.record.name.clone());
            let had = before.map(|before| before.record.keys).unwrap_or_default();
            let roles = roles_after(change.view, server, &had)?;
            if roles.is_some() && name.is_some_and(|name| name != server.name) {
                let why = "a server that was invited has the name of its invitation";
                return Err(CellError::Misuse(why.to_owned()));
            }
            let mut dropped = Vec::new();
            for print in had.iter().filter(|had| !server.keys.contains(had)) {
                if !change.view.is_withdrawn(print)? {
                    dropped.push(*print);
                }
            }
            let revision = change.log(Changed::Server(server.id));
            put_past(&mut change.batch, revision, &dropped, server.id, Past::Replaced);
            let key = key::server(server.id);
            let noted = Noted { roles, ..change.view.noted(server.id)? };
            change.batch.put(&key[..], record::encode_server(&key, revision, server, noted));
            Ok((revision, had != server.keys))
        })
    }

    /// Removes a server and withdraws its keys, so that it does not come back by them.
    ///
    /// # Errors
    /// Those of [`crate::CellDb::remove_server`].
    pub fn remove_server(
        &self,
        held: &Held<'_>,
        id: ServerId,
        expected: Revision,
    ) -> Result<Revision> {
        self.change(held, |change| {
            let before = change.view.server(id)?;
            need_seen(expected, before.as_ref().map(|seen| seen.revision))?;
            let keys = before.map(|before| before.record.keys).unwrap_or_default();
            let revision = withdraw(change, id, &keys);
            change.batch.delete(key::server(id));
            Ok(revision)
        })
    }

    /// Withdraws the keys of a server; its record stays, so that a new key can be entered. Returns
    /// the revision and how many keys there were.
    ///
    /// # Errors
    /// `NotFound`; the engine's.
    pub fn withdraw_keys(
        &self,
        held: &Held<'_>,
        id: ServerId,
    ) -> std::result::Result<(Revision, u64), Fault> {
        self.change(held, |change| {
            let before = change.view.server(id)?.ok_or(Fault::NotFound)?.record;
            let revision = withdraw(change, id, &before.keys);
            let count = before.keys.len() as u64;
            let key = key::server(id);
            let after = ServerInfo { keys: Vec::new(), ..before };
            let noted = change.view.noted(id)?;
            change.batch.put(&key[..], record::encode_server(&key, revision, &after, noted));
            Ok((revision, count))
        })
    }
}

/// The roles of a server whose record changes: where it lists no key yet, those of the invitation
/// that let its key in; otherwise those that it has. So a server takes no roles by listing a key
/// that an invitation let in for another one.
fn roles_after(
    view: &dyn View,
    server: &ServerInfo,
    had: &[KeyPrint],
) -> Result<Option<ServerRoles>> {
    for key in server.keys.iter().filter(|_| had.is_empty()) {
        if let Some((invitation, _)) = view.invited(key)? {
            return Ok(Some(invitation.roles));
        }
    }
    view.limited_roles(server.id)
}

fn withdraw(change: &mut Change<'_>, id: ServerId, keys: &[KeyPrint]) -> Revision {
    let revision = change.log(Changed::Server(id));
    put_past(&mut change.batch, revision, keys, id, Past::Withdrawn);
    revision
}

/// Checks that the record is consistent.
fn need_sound_server(view: &dyn View, server: &ServerInfo) -> Result<()> {
    let has_port = server.addresses.iter().any(|address| address.port() == AFS_FILE_PORT);
    if has_port && server.kind() != ServerKind::Afs {
        return Err(CellError::Misuse(format!(
            "port {AFS_FILE_PORT} is that of AFS's file servers: a server of Rialto has another"
        )));
    }
    let keys = &server.keys;
    let twice = |at: usize| keys.iter().take(at).any(|before| keys.get(at) == Some(before));
    if keys.len() > SERVER_KEYS_MAX || (0..keys.len()).any(twice) {
        return Err(CellError::Misuse(format!(
            "a server lists {SERVER_KEYS_MAX} keys at most, each once"
        )));
    }
    for key in keys {
        if view.is_withdrawn(key)? {
            return Err(CellError::Withdrawn { key: *key });
        }
    }
    Ok(())
}

fn put_past(batch: &mut Batch, revision: Revision, keys: &[KeyPrint], of: ServerId, how: Past) {
    for print in keys {
        let key = key::past_key(print);
        batch.put(&key[..], record::encode_past_key(&key, revision, of, how));
    }
}
