//! Reads of whole records from a view.

use guard::{Book, GroupLink, Highest, Rules, ServerKeys};
use types::limits::WITHDRAWN_KEYS_MAX;
use types::{
    CellLevel, Changed, Fault, Invitation, KeyPrint, Name, Principal, PrincipalId, Revised,
    Revision, ServerId, ServerInfo, ServerRoles, VolumeGroup, VolumeId, WhichPrincipal,
};

use crate::engine::View;
use crate::record::{self, CellCounters, Noted, Past};
use crate::{CELL_LEVEL_KNOWN, CellError, key};

type Result<T> = std::result::Result<T, CellError>;

/// The level of a cell without a record of it.
pub(crate) const FIRST_LEVEL: u32 = 1;

/// Checks that a program which knows no level above `known` knows this level of a cell (VE-2).
pub(crate) fn known_level(found: u32, known: u32) -> Result<()> {
    if (FIRST_LEVEL..=known).contains(&found) {
        return Ok(());
    }
    Err(CellError::Level { found, known })
}

impl dyn View + '_ {
    /// Those of a new database, if it has none yet.
    pub fn counters(&self) -> Result<CellCounters> {
        match self.get(key::COUNTERS)? {
            Some(value) => record::decode_counters(key::COUNTERS, &value),
            None => Ok(CellCounters { next_number: 1, ..CellCounters::default() }),
        }
    }

    /// The cell's level (VE-1).
    pub fn level(&self) -> Result<u32> {
        let level = self.get(key::LEVEL)?;
        let level = level.map(|value| record::decode_level(key::LEVEL, &value)).transpose()?;
        Ok(level.unwrap_or(FIRST_LEVEL))
    }

    /// The cell's level, and the programs of its servers.
    pub fn cell_level(&self) -> Result<CellLevel> {
        let mut programs = Vec::new();
        for seen in self.listed_servers()? {
            programs.extend(self.noted(seen.record.id)?.program);
        }
        Ok(CellLevel { level: self.level()?, programs })
    }

    /// Checks that this program knows the cell's level (VE-2).
    pub fn need_known_level(&self) -> Result<()> {
        known_level(self.level()?, CELL_LEVEL_KNOWN)
    }

    pub fn group(&self, read_write: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        let key = key::group(read_write);
        self.get(&key)?.map(|value| record::decode_group(&key, &value)).transpose()
    }

    /// The group to which a name or number points.
    pub fn pointer(&self, key: &[u8]) -> Result<Option<VolumeId>> {
        self.get(key)?.map(|value| record::decode_pointer(key, &value)).transpose()
    }

    pub fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>> {
        let Some(read_write) = self.pointer(&key::name(name))? else { return Ok(None) };
        Ok(self.group(read_write)?.filter(|seen| seen.record.name == *name))
    }

    pub fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        let Some(read_write) = self.pointer(&key::number(number))? else { return Ok(None) };
        Ok(self.group(read_write)?.filter(|seen| seen.record.numbers().any(|of| of == number)))
    }

    pub fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>> {
        let mut groups = Vec::new();
        let Some(first) = after.0.checked_add(1) else { return Ok(groups) };
        let from = key::group(VolumeId(first));
        self.scan(&from, &mut |key, value| {
            if key.first() != from.first() || groups.len() == max {
                return Ok(false);
            }
            groups.push(record::decode_group(key, value)?);
            Ok(true)
        })?;
        Ok(groups)
    }

    pub fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>> {
        let counters = self.counters()?;
        let oldest = Revision(counters.oldest_change);
        if since < oldest {
            return Err(CellError::Forgotten { oldest });
        }
        let mut changes = Vec::new();
        if since.0 >= counters.revision {
            return Ok(changes);
        }
        self.scan(&key::change(Revision(since.0 + 1)), &mut |key, value| {
            let Some(revision) = key::revision_of(key).filter(|_| changes.len() < max) else {
                return Ok(false);
            };
            debug_assert!(
                changes.last().map_or(since, |(before, _)| *before) < revision,
                "AC-12: changes are told in the order of their revisions"
            );
            changes.push((revision, record::decode_change(key, value)?));
            Ok(true)
        })?;
        Ok(changes)
    }

    pub fn server(&self, id: ServerId) -> Result<Option<Revised<ServerInfo>>> {
        let key = key::server(id);
        self.get(&key)?.map(|value| record::decode_server(&key, &value)).transpose()
    }

    /// The parts of a server's record that it does not enter with it.
    pub fn noted(&self, id: ServerId) -> Result<Noted> {
        let key = key::server(id);
        let found = self.get(&key)?;
        found.map_or(Ok(Noted::default()), |value| record::decode_noted(&key, &value))
    }

    /// The roles of a server that does not have all.
    pub fn limited_roles(&self, id: ServerId) -> Result<Option<ServerRoles>> {
        Ok(self.noted(id)?.roles)
    }

    /// All servers that do not have all roles.
    pub fn limited_servers(&self) -> Result<Vec<(ServerId, ServerRoles)>> {
        let mut all = Vec::new();
        for seen in self.listed_servers()? {
            let id = seen.record.id;
            all.extend(self.limited_roles(id)?.map(|roles| (id, roles)));
        }
        Ok(all)
    }

    /// All records, without keys that were withdrawn: two may have listed the same key.
    pub fn listed_servers(&self) -> Result<Vec<Revised<ServerInfo>>> {
        let from = key::server(ServerId(0));
        let mut servers = Vec::new();
        self.scan(&from, &mut |key, value| {
            if key.first() != from.first() {
                return Ok(false);
            }
            servers.push(record::decode_server(key, value)?);
            Ok(true)
        })?;
        for seen in &mut servers {
            let mut good = Vec::with_capacity(seen.record.keys.len());
            for print in std::mem::take(&mut seen.record.keys) {
                if !self.is_withdrawn(&print)? {
                    good.push(print);
                }
            }
            seen.record.keys = good;
        }
        Ok(servers)
    }

    pub fn past(&self, print: &KeyPrint) -> Result<Option<Past>> {
        let key = key::past_key(print);
        self.get(&key)?.map(|value| record::decode_past_key(&key, &value)).transpose()
    }

    /// The keys that were withdrawn last.
    pub fn withdrawn(&self) -> Result<Vec<KeyPrint>> {
        let from = key::past_key(&KeyPrint([0; 32]));
        let mut all = Vec::new();
        self.scan(&from, &mut |key, value| {
            let print = key.split_first().filter(|(first, _)| from.first() == Some(*first));
            let Some((_, print)) = print else { return Ok(false) };
            let (how, at) = record::decode_past_key_at(key, value)?;
            if let Ok(print) = <[u8; 32]>::try_from(print)
                && how == Past::Withdrawn
            {
                all.push((at, KeyPrint(print)));
            }
            Ok(true)
        })?;
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.truncate(WITHDRAWN_KEYS_MAX);
        Ok(all.into_iter().map(|(_, key)| key).collect())
    }

    pub fn is_withdrawn(&self, print: &KeyPrint) -> Result<bool> {
        Ok(self.past(print)? == Some(Past::Withdrawn))
    }

    /// All invitations, by their numbers.
    pub fn invitations(&self) -> Result<Vec<Invitation>> {
        let from = key::invitation(0);
        let mut all = Vec::new();
        self.scan(&from, &mut |key, value| {
            if key.first() != from.first() {
                return Ok(false);
            }
            all.push(record::decode_invitation(key, value)?);
            Ok(true)
        })?;
        Ok(all)
    }

    /// The invitation that let this key in, and the name that it has by it.
    pub fn invited(&self, key: &KeyPrint) -> Result<Option<(Invitation, String)>> {
        for one in self.invitations()? {
            let used = one.used.iter().find(|used| used.key == *key);
            if let Some(name) = used.map(|used| used.name.clone()) {
                return Ok(Some((one, name)));
            }
        }
        Ok(None)
    }

    pub fn server_keys(&self) -> Result<ServerKeys> {
        let keys = ServerKeys::of(self.listed_servers()?.iter().map(|seen| &seen.record));
        Ok(keys.limited(self.limited_servers()?))
    }

    /// Fences, administrators and the keys of servers, with the revision of their last change.
    pub fn rules(&self) -> Result<Revised<Rules>> {
        let (mut rules, mut last) = (Rules::default(), Revision(0));
        let (fences, mandates) = (key::fence(0), key::mandate(0));
        self.scan(&fences, &mut |key, value| {
            let ours = key.first() == fences.first();
            if ours {
                let Revised { record, revision } = record::decode_fence(key, value)?;
                last = last.max(revision);
                rules.fences.push(record);
            }
            Ok(ours)
        })?;
        self.scan(&mandates, &mut |key, value| {
            let ours = key.first() == mandates.first();
            if ours {
                let Revised { record, revision } = record::decode_mandate(key, value)?;
                last = last.max(revision);
                rules.mandates.push(record);
            }
            Ok(ours)
        })?;
        let servers = self.listed_servers()?;
        let keys = ServerKeys::of(servers.iter().map(|seen| &seen.record));
        rules.servers = keys.limited(self.limited_servers()?);
        last = servers.iter().map(|seen| seen.revision).fold(last, Revision::max);
        Ok(Revised { record: rules, revision: last })
    }

    pub fn principal(&self, id: PrincipalId) -> Result<Option<Principal>> {
        let key = key::principal(id);
        self.get(&key)?.map(|value| record::decode_principal(&key, &value)).transpose()
    }

    /// The principal to which a name or uid points.
    pub fn id_at(&self, key: &[u8]) -> Result<Option<PrincipalId>> {
        self.get(key)?.map(|value| record::decode_id(key, &value)).transpose()
    }

    pub fn which_principal(&self, which: &WhichPrincipal) -> Result<Option<Principal>> {
        let id = match which {
            WhichPrincipal::Id(id) => Some(*id),
            WhichPrincipal::Name(name) => self.id_at(&key::principal_name(name))?,
            WhichPrincipal::Uid(uid) => self.id_at(&key::uid(*uid))?,
        };
        id.map_or(Ok(None), |id| self.principal(id))
    }

    pub fn secret(&self, who: PrincipalId) -> Result<Option<String>> {
        let key = key::secret(who);
        self.get(&key)?.map(|value| record::decode_secret(&key, &value)).transpose()
    }
}

/// The principals of a view.
pub(crate) struct ViewBook<'a>(pub &'a dyn View);

impl Book for ViewBook<'_> {
    fn get(&self, id: PrincipalId) -> std::result::Result<Option<Principal>, Fault> {
        Ok(self.0.principal(id)?)
    }

    fn named(&self, name: &str) -> std::result::Result<Option<PrincipalId>, Fault> {
        Ok(self.0.id_at(&key::principal_name(name))?)
    }

    fn with_uid(&self, uid: u32) -> std::result::Result<Option<PrincipalId>, Fault> {
        Ok(self.0.id_at(&key::uid(uid))?)
    }

    fn linked(
        &self,
        link: GroupLink,
        of: PrincipalId,
        after: PrincipalId,
        max: usize,
    ) -> std::result::Result<Vec<PrincipalId>, Fault> {
        let mut all = Vec::new();
        let Some(first) = after.0.checked_add(1) else { return Ok(all) };
        let from = key::link(link, of, PrincipalId(first));
        let begin = from.len() - size_of::<u32>();
        self.0.scan(&from, &mut |key, _| {
            let Some(id) = key::linked(key)
                .filter(|_| key.get(..begin) == from.get(..begin) && all.len() < max)
            else {
                return Ok(false);
            };
            all.push(id);
            Ok(true)
        })?;
        Ok(all)
    }

    fn entries(
        &self,
        after: PrincipalId,
        max: usize,
    ) -> std::result::Result<Vec<Principal>, Fault> {
        let mut all = Vec::new();
        let Some(first) = after.0.checked_add(1) else { return Ok(all) };
        let from = key::principal(PrincipalId(first));
        self.0.scan(&from, &mut |key, value| {
            if key.first() != from.first() || all.len() == max {
                return Ok(false);
            }
            all.push(record::decode_principal(key, value)?);
            Ok(true)
        })?;
        Ok(all)
    }

    fn highest(&self) -> std::result::Result<Highest, Fault> {
        let stored = self.0.get(key::HIGHEST)?;
        Ok(stored
            .map(|value| record::decode_highest(key::HIGHEST, &value))
            .transpose()?
            .unwrap_or_default())
    }
}
