//! A cell of two servers of AFS in memory, with a client that writes whenever a volume lets it.
//!
//! The model of a volume server: volumes with what was written to them and when, and transactions
//! on them. Before each call the client writes a line to each read-write volume at the place that
//! the database says, if the server there serves it and no transaction makes it busy; it remembers
//! what was acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use afs3::errors::{VNOVOL, VOLSERVOLBUSY, VVOLEXISTS};
use afs3::structs::AfsUuid;
use afs3::volumes::{
    Destination, DiskPartition64, TransactionInfo, VolserStatus, VolumeReport, VolumesAnswer,
    VolumesCall, in_use, transaction_flag, volume_flag, volume_type,
};
use afs3::xdr::{Chars, XdrBytes, XdrList};
use celldb::{CellDb, Embedded};
use parking_lot::Mutex;
use tempfile::TempDir;
use types::{Answer, Fault, Revision, ServerId, ServerInfo, Site, SiteKind, VolumeCall};
use types::{VolumeGroup, VolumeId};
use vos::{AfsVolumeServers, NextPiece, Servers, TakePiece, VosError};

use super::name;

pub const A: ServerId = ServerId(0xa);
pub const B: ServerId = ServerId(0xb);
pub const VOLUME: u32 = 536_870_915;

/// A line and when it was written.
type Line = (i32, u64);

#[derive(Clone, Debug)]
pub struct FakeVolume {
    pub name: Vec<u8>,
    pub kind: i32,
    pub parent: u32,
    pub created: i32,
    pub serves: bool,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Transaction {
    server: ServerId,
    volume: u32,
    flags: i32,
}

#[derive(Default)]
pub struct FakeState {
    pub volumes: BTreeMap<(ServerId, u32), FakeVolume>,
    open: BTreeMap<i32, Transaction>,
    last: i32,
    now: i32,
    /// The lines that clients know to be written.
    pub acknowledged: Vec<u64>,
    /// The partitions that servers have.
    pub partitions: Vec<i32>,
    /// The call that a server refuses with a code, once, after it was made or instead.
    pub refuses: Option<(&'static str, i32)>,
}

pub struct FakeCell {
    _dir: TempDir,
    db: Embedded,
    pub state: Mutex<FakeState>,
}

fn refused(code: i32) -> VosError {
    match code {
        VNOVOL => VosError::Refused { server: "it".into(), fault: Fault::NoVolume },
        code => VosError::AfsRefused { server: "it".into(), call: "a call", code },
    }
}

impl FakeCell {
    /// The volume `home` is at A, with some lines.
    pub fn new() -> FakeCell {
        let dir = tempfile::tempdir().unwrap();
        let db = Embedded::open(dir.path()).unwrap();
        for (id, last) in [(A, 1), (B, 2)] {
            let uuid = AfsUuid(id.0.to_be_bytes());
            let id = ServerId(u128::from_be_bytes(uuid.0));
            let at = [std::net::Ipv4Addr::new(192, 0, 2, last)];
            let record = ServerInfo::of_afs(id, format!("afs{last}"), &at);
            db.put_server(&record, Revision(0)).unwrap();
        }
        let site = site(A);
        db.put_group(&VolumeGroup::new(name("home"), VolumeId(VOLUME.into()), site), Revision(0))
            .unwrap();
        let home = FakeVolume {
            name: b"home".to_vec(),
            kind: volume_type::RW,
            parent: VOLUME,
            created: 1,
            serves: true,
            lines: Vec::new(),
        };
        let mut state = FakeState { now: 100, partitions: vec![0], ..FakeState::default() };
        state.volumes.insert((A, VOLUME), home);
        let cell = FakeCell { _dir: dir, db, state: Mutex::new(state) };
        (0..3).for_each(|_| cell.people_write());
        cell
    }

    pub fn group(&self) -> types::Revised<VolumeGroup> {
        self.db.group_named(&name("home")).unwrap().unwrap()
    }

    /// Where the database has the read-write volume.
    pub fn place(&self) -> ServerId {
        self.group().record.read_write_site().unwrap().server
    }

    /// Servers end transactions whose leaders are silent for long.
    pub fn expire(&self) {
        self.state.lock().open.clear();
    }

    /// A client writes, if the volume lets it.
    pub fn people_write(&self) {
        let place = self.place();
        let mut state = self.state.lock();
        state.now += 1;
        let now = state.now;
        let is_busy = state.open.values().any(|one| (one.server, one.volume) == (place, VOLUME));
        let number = state.acknowledged.len() as u64;
        let Some(volume) = state.volumes.get_mut(&(place, VOLUME)) else { return };
        if volume.serves && !is_busy {
            volume.lines.push((now, number));
            state.acknowledged.push(number);
        }
    }

    fn serve(&self, server: ServerId, call: &VolumesCall) -> Result<VolumesAnswer, VosError> {
        self.people_write();
        let mut state = self.state.lock();
        let name = afs3::RpcMessage::row(call).name;
        if let Some((refused_call, code)) = state.refuses
            && refused_call == name
        {
            state.refuses = None;
            return Err(refused(code));
        }
        state.serve(server, call)
    }
}

pub fn site(server: ServerId) -> Site {
    Site { server, partition: "/vicepa".into(), kind: SiteKind::ReadWrite, epoch: 0 }
}

impl FakeState {
    fn report(&self, server: ServerId, number: u32, volume: &FakeVolume) -> VolumeReport {
        let is_held = self.open.values().any(|one| (one.server, one.volume) == (server, number));
        VolumeReport {
            name: if is_held { Chars([0; 32]) } else { Chars::new(&volume.name).unwrap() },
            volume: number,
            kind: volume.kind,
            backup: 0,
            parent: volume.parent,
            clone: 0,
            status: if is_held { in_use::BUSY } else { in_use::OK },
            copied: 0,
            in_use: u8::from(volume.serves && !is_held),
            needs_salvaged: 0,
            destroy_me: 0,
            created: volume.created,
            accessed: 0,
            updated: 0,
            backed_up: 0,
            day_use: 0,
            files: 1,
            max_quota: 0,
            size: 1,
            flags: 0,
            spare0: 0,
            spare1: 0,
            spare2: 0,
            spare3: 0,
        }
    }

    fn begin(&mut self, server: ServerId, volume: u32, flags: i32) -> Result<i32, VosError> {
        if !self.volumes.contains_key(&(server, volume)) {
            return Err(refused(VNOVOL));
        }
        if self.open.values().any(|one| (one.server, one.volume) == (server, volume)) {
            return Err(refused(VOLSERVOLBUSY));
        }
        self.last += 1;
        self.open.insert(self.last, Transaction { server, volume, flags });
        Ok(self.last)
    }

    fn entered(&self, server: ServerId, transaction: i32) -> Result<Transaction, VosError> {
        let found = self.open.get(&transaction).filter(|one| one.server == server);
        found.cloned().ok_or_else(|| refused(2))
    }

    fn held(&mut self, server: ServerId, transaction: i32) -> Result<&mut FakeVolume, VosError> {
        let one = self.entered(server, transaction)?;
        self.volumes.get_mut(&(server, one.volume)).ok_or_else(|| refused(VNOVOL))
    }

    fn serve(&mut self, server: ServerId, call: &VolumesCall) -> Result<VolumesAnswer, VosError> {
        let now = self.now;
        match call.clone() {
            VolumesCall::XListPartitions {} => Ok(VolumesAnswer::XListPartitions {
                partitions: XdrList::new(self.partitions.clone()).unwrap(),
            }),
            VolumesCall::PartitionInfo64 { .. } => {
                let (name, device) = (Chars::new(b"/vicepa").unwrap(), Chars([0; 256]));
                let (lock_fd, total_usable, free, min_free) = (0, 0, 1000, 2000);
                let info = DiskPartition64 { name, device, lock_fd, total_usable, free, min_free };
                Ok(VolumesAnswer::PartitionInfo64 { info: Box::new(info) })
            }
            VolumesCall::ListVolumes { .. } => {
                let here = self.volumes.iter().filter(|((at, _), _)| *at == server);
                let all = here.map(|((_, number), one)| self.report(server, *number, one));
                let volumes = XdrList::new(all.collect()).unwrap();
                Ok(VolumesAnswer::ListVolumes { volumes })
            }
            VolumesCall::ListOneVolume { volume, .. } => {
                let one = self.volumes.get(&(server, volume)).ok_or_else(|| refused(VNOVOL))?;
                let volumes = XdrList::new(vec![self.report(server, volume, one)]).unwrap();
                Ok(VolumesAnswer::ListOneVolume { volumes })
            }
            VolumesCall::Monitor {} => {
                let here = self.open.iter().filter(|(_, one)| one.server == server);
                let all = here.map(|(number, one)| TransactionInfo {
                    transaction: *number,
                    used: 0,
                    created: 0,
                    code: 0,
                    volume: one.volume,
                    partition: 0,
                    attach_flags: 0,
                    volume_flags: 0,
                    flags: 0,
                    last_procedure: Chars([0; 30]),
                    call_valid: 0,
                    read_next: 0,
                    transmit_next: 0,
                    last_sent: 0,
                    last_received: 0,
                });
                let transactions = XdrList::new(all.collect()).unwrap();
                Ok(VolumesAnswer::Monitor { transactions })
            }
            VolumesCall::TransCreate { volume, flags, .. } => {
                let transaction = self.begin(server, volume, flags)?;
                Ok(VolumesAnswer::TransCreate { transaction })
            }
            VolumesCall::CreateVolume { name, kind, parent, volume, .. } => {
                if self.volumes.contains_key(&(server, volume)) {
                    return Err(refused(VVOLEXISTS));
                }
                let (name, created) = (name.as_bytes().to_vec(), now);
                let (serves, lines) = (false, Vec::new());
                let made = FakeVolume { name, kind, parent, created, serves, lines };
                self.volumes.insert((server, volume), made);
                let transaction = self.begin(server, volume, transaction_flag::CREATE)?;
                Ok(VolumesAnswer::CreateVolume { volume, transaction })
            }
            VolumesCall::SetFlags { transaction, flags } => {
                self.held(server, transaction)?.serves = flags & volume_flag::OUT_OF_SERVICE == 0;
                Ok(VolumesAnswer::SetFlags {})
            }
            VolumesCall::SetInfo { transaction, .. } => {
                self.held(server, transaction)?;
                Ok(VolumesAnswer::SetInfo {})
            }
            VolumesCall::DeleteVolume { transaction } => {
                let one = self.entered(server, transaction)?;
                self.volumes.remove(&(server, one.volume)).ok_or_else(|| refused(VNOVOL))?;
                Ok(VolumesAnswer::DeleteVolume {})
            }
            VolumesCall::GetStatus { transaction } => {
                let created = self.held(server, transaction)?.created;
                let status = VolserStatus { created, ..VolserStatus::default() };
                Ok(VolumesAnswer::GetStatus { status })
            }
            VolumesCall::GetName { transaction } => {
                let name = XdrBytes::new(self.held(server, transaction)?.name.clone()).unwrap();
                Ok(VolumesAnswer::GetName { name })
            }
            VolumesCall::Clone { transaction, kind, name, volume, .. } => {
                let of = self.held(server, transaction)?.clone();
                if !of.serves {
                    return Err(refused(afs3::errors::VOFFLINE));
                }
                let (name, created, serves) = (name.as_bytes().to_vec(), now, false);
                let parent = of.parent;
                let made = FakeVolume { name, kind, parent, created, serves, lines: of.lines };
                self.volumes.insert((server, volume), made);
                Ok(VolumesAnswer::Clone { volume })
            }
            VolumesCall::ReClone { transaction, clone } => {
                let lines = self.held(server, transaction)?.lines.clone();
                let again =
                    self.volumes.get_mut(&(server, clone)).ok_or_else(|| refused(VNOVOL))?;
                (again.lines, again.created) = (lines, now);
                Ok(VolumesAnswer::ReClone {})
            }
            VolumesCall::SetIdsTypes { transaction, name, .. } => {
                self.held(server, transaction)?.name = name.as_bytes().to_vec();
                Ok(VolumesAnswer::SetIdsTypes {})
            }
            VolumesCall::Forward {
                transaction,
                from_date,
                destination,
                to_transaction,
                cookie,
            } => {
                let of = self.held(server, transaction)?.clone();
                let to = if destination.host == 0xa { A } else { B };
                let into = self.held(to, to_transaction)?;
                // A dump of changes has all files that changed, and names those that stay.
                let kept = into.lines.iter().filter(|line| line.0 < from_date).copied();
                let kept: Vec<Line> = kept.filter(|line| of.lines.contains(line)).collect();
                let sent = of.lines.iter().filter(|line| line.0 >= from_date).copied();
                into.lines = kept.into_iter().chain(sent).collect();
                into.created = of.created;
                // As servers of AFS do, which believe the dump.
                (into.serves, into.name) = (true, cookie.name.text().to_vec());
                Ok(VolumesAnswer::Forward {})
            }
            VolumesCall::EndTrans { transaction } => {
                self.entered(server, transaction)?;
                self.open.remove(&transaction);
                Ok(VolumesAnswer::EndTrans { code: 0 })
            }
            other => panic!("{other:?}"),
        }
    }
}

impl AfsVolumeServers for FakeCell {
    fn ask(&self, server: ServerId, call: &VolumesCall) -> Result<VolumesAnswer, VosError> {
        self.serve(server, call)
    }

    /// A dump is its lines, eight bytes each.
    fn dump(
        &self,
        server: ServerId,
        call: &VolumesCall,
        take: &mut TakePiece<'_>,
    ) -> Result<(), VosError> {
        let VolumesCall::Dump { transaction, .. } = call else { panic!("{call:?}") };
        let lines = self.state.lock().held(server, *transaction)?.lines.clone();
        let mut pieces = lines.iter().map(|(_, line)| line.to_be_bytes());
        pieces.try_for_each(|piece| take(&piece)).map_err(VosError::Unfit)
    }

    fn restore(
        &self,
        server: ServerId,
        call: &VolumesCall,
        next: &mut NextPiece<'_>,
    ) -> Result<(), VosError> {
        let VolumesCall::Restore { transaction, .. } = call else { panic!("{call:?}") };
        self.state.lock().held(server, *transaction)?.lines.clear();
        while let Some(piece) = next().map_err(VosError::Unfit)? {
            let line = u64::from_be_bytes(piece.try_into().unwrap());
            self.state.lock().held(server, *transaction)?.lines.push((0, line));
        }
        Ok(())
    }

    fn destination(&self, server: ServerId) -> Result<Destination, VosError> {
        Ok(Destination { host: server.0 as u32, port: 7005, service: 1 })
    }
}

impl Servers for FakeCell {
    fn db(&self) -> &dyn CellDb {
        &self.db
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        vos::call_afs(self, server, call)
    }

    fn afs(&self) -> Result<&dyn AfsVolumeServers, VosError> {
        Ok(self)
    }

    fn name(&self, server: ServerId) -> String {
        format!("{:x}", server.0)
    }

    fn pause(&self, _: Duration) {}
}
