//! The servers and volumes of the other cell's location database.
//!
//! Model: an entry there becomes a group here (`afsfront`'s `EntryForm`). A volume at servers
//! of AFS alone is the other database's: it goes when it goes there. A group with a site at one of
//! Rialto's servers stays, unless an earlier import of the same run has seen its entry there. An
//! entry whose name or number is that of another volume here is left out, and told.

use std::collections::{BTreeMap, BTreeSet};

use afs3::locations::VldbEntry;
use afscell::{AfsCell, AfsServer};
use afsfront::{EntryForm, Refusal, partition_of};
use local::failure::{Doing, Failure};
use serde_json::json;
use types::{
    Answer, Call, CellCall, PartitionInfo, Revised, Revision, ServerId, ServerInfo, ServerKind,
    VolumeCall, VolumeGroup, VolumeId,
};

use crate::commands::cell_client::{CellClient, odd};

/// Groups of one question.
const GROUPS_AT_ONCE: u32 = 1000;
const WHAT: &str = "bringing in the volumes of the other cell";

/// The records that earlier imports of this run have seen.
#[derive(Default)]
pub(super) struct Seen {
    /// The read-write volumes of entries.
    volumes: BTreeSet<VolumeId>,
    /// The lines about entries that are left out, each of which is told once.
    told: BTreeSet<String>,
    /// The number that is given there next.
    next_number: u32,
}

/// The outcome of an import.
#[derive(Default)]
pub(super) struct ImportCount {
    pub changes: u64,
    /// Entries that are left out.
    pub left_out: u64,
    /// Entries of the other cell.
    pub there: usize,
}

pub(super) struct VolumeImport<'a> {
    pub client: &'a CellClient,
    pub dry_run: bool,
    pub is_told: bool,
    pub json: bool,
    pub seen: &'a mut Seen,
    pub done: ImportCount,
}

impl VolumeImport<'_> {
    /// Brings servers and volumes in.
    pub(super) fn run(mut self, cell: &AfsCell) -> Result<ImportCount, Failure> {
        let doing = || "asking the other cell for its servers and volumes".to_owned();
        let servers_there = afscell::servers(cell).doing(doing)?;
        let entries = afscell::entries(cell).doing(doing)?;
        let next = afscell::next_number(cell).doing(doing)?;
        self.done.there = entries.len();
        let mut servers = self.servers()?;
        for server in &servers_there {
            self.put_server(&mut servers, server)?;
        }
        let groups = self.groups()?;
        self.put_groups(&servers, &groups, &entries)?;
        self.remove_groups(&servers, groups, &entries)?;
        self.remove_servers(&servers, &servers_there)?;
        self.pass_numbers(next)?;
        Ok(self.done)
    }

    fn ask(&self, call: CellCall) -> Result<Answer, Failure> {
        self.client.ask(WHAT, Call::Cell(call))
    }

    fn change(&mut self, told: &str, call: CellCall) -> Result<(), Failure> {
        self.done.changes += 1;
        if self.is_told {
            match self.json {
                true => local::show::json(&json!({ "change": told })),
                false => println!("{told}"),
            }
        }
        if self.dry_run { Ok(()) } else { self.ask(call).map(drop) }
    }

    fn leave_out(&mut self, text: String) {
        self.done.left_out += 1;
        if !self.seen.told.contains(&text) {
            eprintln!("rialto import-afs: {text}");
            self.seen.told.insert(text);
        }
    }

    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>, Failure> {
        match self.ask(CellCall::Servers)? {
            Answer::Servers(servers) => Ok(servers),
            _ => Err(odd(WHAT)),
        }
    }

    fn groups(&self) -> Result<Vec<Revised<VolumeGroup>>, Failure> {
        let (mut all, mut after) = (Vec::new(), VolumeId(0));
        loop {
            let call = CellCall::Groups { after, max: GROUPS_AT_ONCE };
            let Answer::Groups { groups, end } = self.ask(call)? else { return Err(odd(WHAT)) };
            let is_last = end || groups.is_empty();
            all.extend(groups);
            if is_last {
                return Ok(all);
            }
            after = all.last().map_or(after, |last| last.record.read_write);
        }
    }

    /// `servers`: those of the cell, with the new one after this.
    fn put_server(
        &mut self,
        servers: &mut Vec<Revised<ServerInfo>>,
        server: &AfsServer,
    ) -> Result<(), Failure> {
        let id = ServerId(u128::from_be_bytes(server.uuid.0));
        let has_address = |one: &ServerInfo| {
            let listed =
                server.addresses.iter().any(|at| one.addresses.iter().any(|a| a.ip() == *at));
            one.id == id || listed
        };
        // Rialto's servers are entered there by themselves.
        let is_rialtos = |seen: &Revised<ServerInfo>| seen.record.kind() == ServerKind::Rialto;
        if servers.iter().any(|seen| is_rialtos(seen) && has_address(&seen.record)) {
            return Ok(());
        }
        let at = servers.iter().position(|seen| seen.record.id == id);
        let known = at.map(|at| &servers[at]);
        let name =
            known.map_or_else(|| server.addresses[0].to_string(), |seen| seen.record.name.clone());
        let record = ServerInfo::of_afs(id, name, &server.addresses);
        let expected = known.map_or(Revision(0), |seen| seen.revision);
        if known.is_none_or(|seen| seen.record != record) {
            let told = format!("server of AFS {} {}", record.id, record.name);
            self.change(&told, CellCall::PutServer { server: record.clone(), expected })?;
        }
        let now = Revised { record, revision: expected };
        match at {
            Some(at) => servers[at] = now,
            None => servers.push(now),
        }
        Ok(())
    }

    fn put_groups(
        &mut self,
        servers: &[Revised<ServerInfo>],
        groups: &[Revised<VolumeGroup>],
        entries: &[VldbEntry],
    ) -> Result<(), Failure> {
        let mut numbers = BTreeMap::new();
        let mut names = BTreeMap::new();
        for seen in groups {
            numbers.extend(seen.record.numbers().map(|number| (number, seen)));
            names.insert(seen.record.name.as_bytes().to_vec(), seen);
        }
        let form = EntryForm { servers };
        let partitions = |server: ServerId, number: i32| {
            let kind = servers.iter().find(|seen| seen.record.id == server);
            let is_rialtos = kind.is_some_and(|seen| seen.record.kind() == ServerKind::Rialto);
            partition_of(is_rialtos.then(|| self.partitions_of(server)).flatten(), number)
        };
        let (mut made, mut left, mut seen_now) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            let shown = String::from_utf8_lossy(entry.name.text()).into_owned();
            let number = VolumeId(entry.volumes[0].into());
            let known = numbers.get(&number).copied().filter(|s| s.record.read_write == number);
            let old = known.map(|seen| &seen.record);
            let group = match form.group(entry, old, &partitions) {
                Ok(group) => group,
                Err(Refusal(code)) => {
                    let why = afs3::errors::code_name(code).unwrap_or("it cannot be read");
                    left.push(format!("{shown} ({}) is left out: {why}", number.0));
                    continue;
                }
            };
            let is_other =
                |seen: &&&Revised<VolumeGroup>| seen.record.read_write != group.read_write;
            let other = names.get(group.name.as_bytes()).filter(is_other).or_else(|| {
                group.numbers().find_map(|number| numbers.get(&number).filter(is_other))
            });
            let other = other.copied().or(known.filter(|seen| is_another(&seen.record, &group)));
            if let Some(other) = other {
                let name = String::from_utf8_lossy(other.record.name.as_bytes());
                left.push(format!(
                    "{shown} ({}) is left out: the volume {name} ({}) here has its name or a \
                     number of it",
                    number.0, other.record.read_write.0
                ));
                continue;
            }
            if old != Some(&group) {
                made.push((shown, group, known.map_or(Revision(0), |seen| seen.revision)));
            }
            seen_now.push(number);
        }
        self.seen.volumes.extend(seen_now);
        left.into_iter().for_each(|text| self.leave_out(text));
        for (name, group, expected) in made {
            let told = match expected {
                Revision(0) => format!("volume {name} {}", group.read_write.0),
                _ => format!("volume {name} {} is changed", group.read_write.0),
            };
            self.change(&told, CellCall::PutGroup { group: Box::new(group), expected })?;
        }
        Ok(())
    }

    /// The partitions of this server; `None`: it is another one.
    fn partitions_of(&self, server: ServerId) -> Option<Vec<PartitionInfo>> {
        if self.client.me().ok()?.id != server {
            return None;
        }
        match self.client.ask(WHAT, Call::Volume(VolumeCall::Partitions)) {
            Ok(Answer::Partitions(all)) => Some(all),
            _ => None,
        }
    }

    fn remove_groups(
        &mut self,
        servers: &[Revised<ServerInfo>],
        groups: Vec<Revised<VolumeGroup>>,
        entries: &[VldbEntry],
    ) -> Result<(), Failure> {
        let there: BTreeSet<_> =
            entries.iter().map(|entry| VolumeId(entry.volumes[0].into())).collect();
        let is_afs = |id: ServerId| {
            let server = servers.iter().find(|seen| seen.record.id == id);
            server.is_some_and(|seen| seen.record.kind() == ServerKind::Afs)
        };
        for Revised { record, revision: expected } in groups {
            let read_write = record.read_write;
            let is_theirs = record.sites.iter().all(|site| is_afs(site.server));
            let was_there = self.seen.volumes.contains(&read_write);
            if !there.contains(&read_write) && (is_theirs || was_there) {
                let name = String::from_utf8_lossy(record.name.as_bytes());
                let told = format!("volume {name} {} goes", read_write.0);
                self.change(&told, CellCall::RemoveGroup { read_write, expected })?;
                self.seen.volumes.remove(&read_write);
            }
        }
        Ok(())
    }

    fn remove_servers(
        &mut self,
        servers: &[Revised<ServerInfo>],
        there: &[AfsServer],
    ) -> Result<(), Failure> {
        let listed =
            |id: ServerId| there.iter().any(|server| u128::from_be_bytes(server.uuid.0) == id.0);
        let gone: Vec<_> = servers
            .iter()
            .map(|seen| &seen.record)
            .filter(|one| one.kind() == ServerKind::Afs && !listed(one.id))
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        let (groups, now) = (self.groups()?, self.servers()?);
        for server in gone {
            let has_site = |seen: &Revised<VolumeGroup>| {
                seen.record.sites.iter().any(|site| site.server == server.id)
            };
            let revision =
                now.iter().find(|seen| seen.record.id == server.id).map(|seen| seen.revision);
            if let (false, Some(expected)) = (groups.iter().any(has_site), revision) {
                let told = format!("server of AFS {} {} goes", server.id, server.name);
                self.change(&told, CellCall::RemoveServer { id: server.id, expected })?;
            }
        }
        Ok(())
    }

    /// The numbers that are given here next are above those that were given there. One is taken for
    /// that, and is no volume's.
    fn pass_numbers(&mut self, next: u32) -> Result<(), Failure> {
        if self.dry_run || std::mem::replace(&mut self.seen.next_number, next) == next {
            return Ok(());
        }
        let above = VolumeId(u64::from(next).saturating_sub(1));
        self.ask(CellCall::TakeNumbers { above, count: 1 }).map(drop)
    }
}

/// Whether two groups with one number are different volumes: another name, and no site is that of
/// the other.
fn is_another(here: &VolumeGroup, there: &VolumeGroup) -> bool {
    let has = |server: ServerId| there.sites.iter().any(|site| site.server == server);
    here.name != there.name && !here.sites.iter().any(|site| has(site.server))
}
