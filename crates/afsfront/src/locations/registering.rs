//! File servers of AFS enter themselves in the location database, and administrators change their
//! addresses.
//!
//! Model: such a server is known by its UUID, which is its number in the cell. One that was
//! installed anew has another UUID at the same address: it has the sites of the one before. The
//! servers of Rialto enter themselves, and no other program changes their records here.

use std::net::Ipv4Addr;

use afs3::errors::{VL_BADSERVER, VL_IDEXIST, VL_INDEXERANGE, VL_MULTIPADDR, VL_NOENT, VL_PERM};
use afs3::locations::LocationsAnswer;
use afs3::structs::AfsUuid;
use types::{CellCall, Revised, Revision, ServerId, ServerInfo, ServerKind, VolumeId};

use super::{Locations, addresses};
use crate::Refusal;

/// Instead of the old address: the other one is removed.
const REMOVED: u32 = u32::MAX;
/// Addresses of a server.
const ADDRESSES: usize = 15;
/// The highest byte of what is no address: a pointer to a server with several.
const POINTER: u32 = 0xff00_0000;

impl Locations<'_> {
    /// A server tells its UUID and its addresses.
    pub(super) fn register(
        &self,
        uuid: AfsUuid,
        numbers: &[u32],
    ) -> Result<LocationsAnswer, Refusal> {
        let id = ServerId(u128::from_be_bytes(uuid.0));
        if numbers.is_empty() {
            return Err(Refusal(VL_INDEXERANGE));
        }
        // Stock servers take no more of them.
        let numbers = &numbers[..numbers.len().min(ADDRESSES)];
        let mut there = self.servers.iter().filter(|seen| {
            let listed = addresses(&seen.record);
            seen.record.id == id || numbers.iter().any(|number| listed.contains(number))
        });
        let (known, another) = (there.next(), there.next());
        let is_rialtos = |seen: &Revised<ServerInfo>| seen.record.kind() == ServerKind::Rialto;
        if another.is_some() || known.is_some_and(is_rialtos) {
            return Err(Refusal(VL_MULTIPADDR));
        }
        let mut all: Vec<Ipv4Addr> = Vec::new();
        for address in numbers.iter().copied().map(Ipv4Addr::from) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        let name = match known {
            Some(seen) => seen.record.name.clone(),
            None => all[0].to_string(),
        };
        let server = ServerInfo::of_afs(id, name, &all);
        let before = known.filter(|seen| seen.record.id != id);
        let same = known.filter(|seen| seen.record.id == id);
        if same.is_none_or(|seen| seen.record != server) {
            let expected = same.map_or(Revision(0), |seen| seen.revision);
            self.change(CellCall::PutServer { server, expected })?;
        }
        if let Some(Revised { record: before, revision }) = before {
            self.replace_server(before.id, id)?;
            self.change(CellCall::RemoveServer { id: before.id, expected: *revision })?;
        }
        Ok(LocationsAnswer::RegisterAddrs {})
    }

    /// Gives all sites of a server to another one.
    fn replace_server(&self, before: ServerId, after: ServerId) -> Result<(), Refusal> {
        self.each_group(&mut |Revised { record, revision }| {
            let mut group = record.clone();
            let mut sites = group.sites.iter_mut().filter(|site| site.server == before).peekable();
            if sites.peek().is_none() {
                return Ok(());
            }
            sites.for_each(|site| site.server = after);
            self.put(group, *revision)
        })
    }

    /// A server of AFS has another address, or one less.
    pub(super) fn change_address(&self, old: u32, new: u32) -> Result<LocationsAnswer, Refusal> {
        let is_removed = old == REMOVED;
        let at = if is_removed { new } else { old };
        let has = |at: u32| self.servers.iter().find(|seen| addresses(&seen.record).contains(&at));
        let Revised { record, revision } = has(at).ok_or(Refusal(VL_NOENT))?;
        if record.kind() == ServerKind::Rialto {
            return Err(Refusal(VL_PERM));
        }
        if new & POINTER == POINTER {
            return Err(Refusal(VL_BADSERVER));
        }
        if !is_removed && has(new).is_some() {
            return Err(Refusal(VL_IDEXIST));
        }
        let mut after = record.clone();
        match is_removed {
            true => after.addresses.retain(|address| address.ip() != Ipv4Addr::from(at)),
            false => after
                .addresses
                .iter_mut()
                .filter(|address| address.ip() == Ipv4Addr::from(at))
                .for_each(|address| address.set_ip(Ipv4Addr::from(new).into())),
        }
        let expected = *revision;
        if after.addresses.is_empty() {
            self.need_no_site(record.id)?;
            self.change(CellCall::RemoveServer { id: record.id, expected })?;
        } else {
            self.change(CellCall::PutServer { server: after, expected })?;
        }
        Ok(LocationsAnswer::ChangeAddr {})
    }

    fn need_no_site(&self, server: ServerId) -> Result<(), Refusal> {
        self.each_group(&mut |group| match group
            .record
            .sites
            .iter()
            .any(|site| site.server == server)
        {
            true => Err(Refusal(VL_IDEXIST)),
            false => Ok(()),
        })
    }

    /// Calls `see` for each group.
    pub(super) fn each_group(
        &self,
        see: &mut dyn FnMut(&Revised<types::VolumeGroup>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut after = VolumeId(0);
        loop {
            let call = CellCall::Groups { after, max: super::GROUPS_AT_ONCE };
            let answer = self.services.ask_as_server(types::Call::Cell(call))?;
            let types::Answer::Groups { groups, end } = answer else { return Err(Refusal::IO) };
            for group in &groups {
                after = group.record.read_write;
                see(group)?;
            }
            if end || groups.is_empty() {
                return Ok(());
            }
        }
    }
}
