//! The cell database: it is on the first server, and each change is on disk before the answer.
//! `celldb` has the real engine and its proofs; this one implements the same rules with maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use celldb::{Access, CellCopy, CellDb, CellError, News};
use guard::PtsAsker;
use parking_lot::Mutex;
use types::{
    Answer, Changed, Fault, Name, Principal, PrincipalId, PtsCall, Revised, Revision, ServerId,
    ServerInfo, VolumeGroup, VolumeId, WhichPrincipal,
};

use super::wires::{Fate, Wires};

type Result<T> = std::result::Result<T, CellError>;

/// Index of the server that has the database.
pub const HOST: usize = 0;

/// The database's records; see the head of the file.
#[derive(Default)]
pub struct Database(Mutex<Records>);

#[derive(Default)]
struct Records {
    revision: u64,
    last_number: u64,
    groups: BTreeMap<VolumeId, Revised<VolumeGroup>>,
    servers: BTreeMap<ServerId, Revised<ServerInfo>>,
}

impl Records {
    fn next(&mut self) -> Revision {
        self.revision += 1;
        Revision(self.revision)
    }
}

fn need<T>(there: Option<&Revised<T>>, expected: Revision) -> Result<()> {
    let found = there.map_or(Revision(0), |seen| seen.revision);
    if found == expected { Ok(()) } else { Err(CellError::Conflict { expected, found }) }
}

impl CellDb for Database {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>> {
        Ok(self.0.lock().groups.values().find(|seen| seen.record.name == *name).cloned())
    }

    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        let records = self.0.lock();
        Ok(records
            .groups
            .values()
            .find(|seen| seen.record.numbers().any(|one| one == number))
            .cloned())
    }

    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>> {
        Ok(self
            .0
            .lock()
            .groups
            .range(VolumeId(after.0 + 1)..)
            .map(|(_, seen)| seen.clone())
            .take(max)
            .collect())
    }

    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision> {
        let mut records = self.0.lock();
        need(records.groups.get(&group.read_write), expected)?;
        for other in records
            .groups
            .values()
            .map(|seen| &seen.record)
            .filter(|other| other.read_write != group.read_write)
        {
            let taken = |what: String| CellError::Taken { what, by: other.read_write };
            if other.name == group.name {
                return Err(taken("the name".to_owned()));
            }
            if let Some(number) =
                group.numbers().find(|number| other.numbers().any(|one| one == *number))
            {
                return Err(taken(format!("the number {}", number.0)));
            }
        }
        let revision = records.next();
        let highest = group.numbers().map(|number| number.0).max().unwrap_or(0);
        records.last_number = records.last_number.max(highest);
        records.groups.insert(group.read_write, Revised { record: group.clone(), revision });
        Ok(revision)
    }

    fn remove_group(&self, read_write: VolumeId, expected: Revision) -> Result<Revision> {
        let mut records = self.0.lock();
        need(records.groups.get(&read_write), expected)?;
        records.groups.remove(&read_write);
        Ok(records.next())
    }

    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId> {
        let mut records = self.0.lock();
        let first = records.last_number.max(above.0) + 1;
        records.last_number = first + u64::from(count) - 1;
        Ok(VolumeId(first))
    }

    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>> {
        Ok(self.0.lock().servers.values().cloned().collect())
    }

    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision> {
        let mut records = self.0.lock();
        need(records.servers.get(&server.id), expected)?;
        let revision = records.next();
        records.servers.insert(server.id, Revised { record: server.clone(), revision });
        Ok(revision)
    }

    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision> {
        let mut records = self.0.lock();
        need(records.servers.get(&id), expected)?;
        records.servers.remove(&id);
        Ok(records.next())
    }

    fn revision(&self) -> Result<Revision> {
        Ok(Revision(self.0.lock().revision))
    }

    fn changes(&self, _since: Revision, _max: usize) -> Result<Vec<(Revision, Changed)>> {
        // This database stores no earlier revisions.
        Err(CellError::Forgotten { oldest: Revision(self.0.lock().revision) })
    }

    fn copy(&self) -> Result<Box<dyn CellCopy>> {
        Err(CellError::Away(Fault::Unsupported))
    }

    fn access(&self) -> &dyn Access {
        &KnowsRootOnly
    }
}

/// Knows no principal but the superuser, who needs no record.
pub struct KnowsRootOnly;

impl Access for KnowsRootOnly {
    fn secret(&self, _: PrincipalId) -> Result<Option<String>> {
        Ok(None)
    }

    fn set_secret(&self, _: PrincipalId, _: &str, _: Option<i64>) -> Result<()> {
        Err(CellError::Away(Fault::Unsupported))
    }

    fn auth_elsewhere(
        &self,
        _: Option<types::Behalf>,
        _: &types::AuthCall,
    ) -> Option<std::result::Result<Answer, Fault>> {
        None
    }

    fn principal(&self, _which: &WhichPrincipal) -> Result<Option<Principal>> {
        Ok(None)
    }
    fn subdomain(
        &self,
        _principal: PrincipalId,
        _host: Option<std::net::IpAddr>,
    ) -> Result<(Revision, Vec<PrincipalId>)> {
        Ok((Revision(0), Vec::new()))
    }
    fn pts(&self, _asker: &PtsAsker, _call: &PtsCall) -> std::result::Result<Answer, Fault> {
        Err(Fault::Unsupported)
    }
    fn rules_at(&self) -> Revision {
        Revision(0)
    }
    fn rules(&self) -> Arc<Revised<guard::Rules>> {
        Arc::default()
    }
    fn guard(
        &self,
        _me: ServerId,
        _by: PrincipalId,
        _now: i64,
        _call: &types::GuardCall,
    ) -> std::result::Result<Answer, Fault> {
        Err(Fault::Unsupported)
    }
    fn latest(&self) -> Revision {
        Revision(0)
    }
    fn news(&self, since: Revision) -> Result<News> {
        Ok((since, Some(Vec::new())))
    }
    fn watch(&self, _who: ServerId, since: Revision, _max: usize) -> Result<News> {
        Ok((since, Some(Vec::new())))
    }
    fn listen(&self, _me: ServerId) {}
}

/// Access to the database from another machine.
pub struct DatabaseLink {
    /// The database's records.
    pub database: Arc<Database>,
    /// The network between the machines.
    pub wires: Wires,
}

impl DatabaseLink {
    fn ask<T>(&self, act: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let away = Err(CellError::Away(Fault::CellAway));
        match self.wires.fate(HOST) {
            Fate::Through => act(&self.database),
            Fate::Lost => away,
            Fate::AnswerLost => act(&self.database).and(away),
        }
    }
}

impl CellDb for DatabaseLink {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>> {
        self.ask(|db| db.group_named(name))
    }
    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        self.ask(|db| db.group_of(number))
    }
    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>> {
        self.ask(|db| db.groups(after, max))
    }
    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision> {
        self.ask(|db| db.put_group(group, expected))
    }
    fn remove_group(&self, read_write: VolumeId, expected: Revision) -> Result<Revision> {
        self.ask(|db| db.remove_group(read_write, expected))
    }
    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId> {
        self.ask(|db| db.take_numbers(above, count))
    }
    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>> {
        self.ask(CellDb::servers)
    }
    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision> {
        self.ask(|db| db.put_server(server, expected))
    }
    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision> {
        self.ask(|db| db.remove_server(id, expected))
    }
    fn revision(&self) -> Result<Revision> {
        self.ask(CellDb::revision)
    }
    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>> {
        self.ask(|db| db.changes(since, max))
    }
    fn copy(&self) -> Result<Box<dyn CellCopy>> {
        self.ask(CellDb::copy)
    }
    fn access(&self) -> &dyn Access {
        &KnowsRootOnly
    }
}
