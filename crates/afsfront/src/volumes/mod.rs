//! AFSVol, the volume service.
//!
//! Model: questions about volumes and partitions are answered to everyone, as stock servers do.
//! Everything else is done in a *transaction* (`transactions.rs`), which only a caller opens who
//! may do everything with every volume. A transaction holds other transactions off its volume, and
//! nothing else: the volume stays in service, since a change here is either atomic or made of a
//! snapshot. Two take it away: `Restore`, until `SetFlags` says that it serves, and `Forward` of
//! the volume itself, which lets changes wait for the end of the transaction. Each change is a call
//! of the caller (AF-2).

mod dumping;
mod forwarding;
mod replicas;
mod reports;
mod restoring;
mod transactions;

use afs3::errors::{
    VOLSERBAD_ACCESS, VOLSERBADNAME, VOLSERBADOP, VOLSERILLEGAL_PARTITION, VOLSERNO_OP,
};
use afs3::volumes::{
    OMIT_DIRECTORIES, PartitionPath, Replica, VolumeName, VolumeReport, VolumesAnswer, VolumesCall,
    partition_number, transaction_flag, volume_flag, volume_type,
};
use afs3::xdr::{Xdr, XdrBytes, XdrList};
use bytes::Bytes;
use guard::{Acl, Rights};
use types::{
    Answer, Call, Fault, Fid, Name, PartitionInfo, PartitionNo, PrincipalId, VolumeCall,
    VolumeChange, VolumeId, VolumeInfo, VolumeKind, VolumeState, WhichVolume,
};

use crate::partitions::{numbered, shown_number};
use crate::{CallStream, Refusal, Services};

use dumping::{DumpScope, DumpTarget, VolumeDump};
use forwarding::{end_hold, keep_hold};
use reports::ListedVolume;
use restoring::IncomingDump;
use transactions::{EnteredTransaction, VolumeTransactions};

const BAD_ACCESS: Refusal = Refusal(VOLSERBAD_ACCESS);
const BAD_NAME: Refusal = Refusal(VOLSERBADNAME);
const BAD_OPERATION: Refusal = Refusal(VOLSERBADOP);
const NO_PARTITION: Refusal = Refusal(VOLSERILLEGAL_PARTITION);
const NO_OPERATION: Refusal = Refusal(VOLSERNO_OP);
/// The partition has no such volume.
const NO_SUCH_VOLUME: Refusal = Refusal::NO_DEVICE;

/// Volumes of one question.
const AT_ONCE: u32 = 1000;
/// Places in the old list of partitions.
const OLD_PARTITIONS: usize = 26;
/// The quota of a new volume in bytes, as stock servers give it.
const FIRST_QUOTA: u64 = 5000 * KIB;
const KIB: u64 = 1024;
/// The longest name that AFS's programs give a volume.
const NAME_BYTES_MAX: usize = 31;
/// Pauses until the number of a removed volume is free: half a minute.
const SWEEP_PAUSES_MAX: usize = 300;
/// A member of `SetInfo` that stays as it is.
const SAME: i32 = -1;

/// See the head of the file. One for all callers of a server.
#[derive(Default)]
pub struct VolumeService {
    transactions: VolumeTransactions,
}

/// One call.
struct VolserCall<'a> {
    service: &'a VolumeService,
    services: &'a dyn Services,
}

/// The services answered with something else than the call asks for.
fn unexpected() -> Refusal {
    Refusal::from(Fault::Medium)
}

/// A service's fault as volume servers tell it.
fn refusal_of(fault: Fault) -> Refusal {
    match fault {
        Fault::NotPermitted | Fault::AccessDenied => BAD_ACCESS,
        // As stock servers refuse the making of one that exists.
        Fault::Exists => Refusal::IO,
        fault => fault.into(),
    }
}

/// A name for a volume: AFS has room for 31 bytes, whatever Rialto's own volumes have.
fn new_name(name: &VolumeName) -> Result<Name, Refusal> {
    if name.as_bytes().len() > NAME_BYTES_MAX {
        return Err(BAD_NAME);
    }
    Name::new(name.as_bytes()).map_err(|_| BAD_NAME)
}

fn listed<T: Xdr, const N: usize>(all: Vec<T>) -> Result<XdrList<T, N>, Refusal> {
    XdrList::new(all).map_err(|_| Refusal::TOO_BIG)
}

impl VolumeService {
    /// Answers a call.
    ///
    /// # Errors
    /// The code with which the call ends.
    pub fn serve(
        &self,
        services: &dyn Services,
        call: VolumesCall,
        stream: &mut dyn CallStream,
    ) -> Result<VolumesAnswer, Refusal> {
        self.end_idle(services);
        let at = VolserCall { service: self, services };
        match call {
            // Questions.
            VolumesCall::ListPartitions {} => {
                let mut partitions = [SAME; OLD_PARTITIONS];
                for number in at.partition_numbers()? {
                    if let Some(place) = partitions.get_mut(number as usize) {
                        *place = number;
                    }
                }
                Ok(VolumesAnswer::ListPartitions { partitions })
            }
            VolumesCall::XListPartitions {} => {
                Ok(VolumesAnswer::XListPartitions { partitions: listed(at.partition_numbers()?)? })
            }
            VolumesCall::PartitionInfo { partition } => {
                let info = reports::partition(&at.partition_named(&partition)?);
                Ok(VolumesAnswer::PartitionInfo { info })
            }
            VolumesCall::PartitionInfo64 { partition } => {
                let info = reports::partition64(&at.partition_named(&partition)?);
                Ok(VolumesAnswer::PartitionInfo64 { info: Box::new(info) })
            }
            VolumesCall::ListVolumes { partition, .. } => {
                let volumes = listed(at.list(partition, None, |one| one.report())?)?;
                Ok(VolumesAnswer::ListVolumes { volumes })
            }
            VolumesCall::ListOneVolume { partition, volume } => {
                let volumes = listed(at.list(partition, Some(volume), |one| one.report())?)?;
                Ok(VolumesAnswer::ListOneVolume { volumes })
            }
            VolumesCall::XListVolumes { partition, .. } => {
                let all = at.list(partition, None, |one| one.report_with_statistics())?;
                Ok(VolumesAnswer::XListVolumes { volumes: listed(all)? })
            }
            VolumesCall::XListOneVolume { partition, volume } => {
                let all = at.list(partition, Some(volume), |one| one.report_with_statistics())?;
                Ok(VolumesAnswer::XListOneVolume { volumes: listed(all)? })
            }
            VolumesCall::Monitor {} => at.monitor(),

            // Transactions.
            VolumesCall::TransCreate { volume, partition, flags } => {
                let transaction = at.begin(volume, partition, flags)?;
                Ok(VolumesAnswer::TransCreate { transaction })
            }
            VolumesCall::EndTrans { transaction } => {
                let entered = at.enter(transaction, "EndTrans")?;
                let (volume, held) = (entered.seen.volume, entered.hold());
                entered.end();
                end_hold(services, volume, held);
                Ok(VolumesAnswer::EndTrans { code: 0 })
            }
            VolumesCall::GetFlags { transaction } => {
                let flags = at.enter(transaction, "GetFlags")?.seen.volume_flags;
                Ok(VolumesAnswer::GetFlags { flags })
            }
            VolumesCall::SetFlags { transaction, flags } => {
                at.set_flags(&at.enter(transaction, "SetFlags")?, flags)?;
                Ok(VolumesAnswer::SetFlags {})
            }
            VolumesCall::GetName { transaction } => {
                let entered = at.enter(transaction, "GetName")?;
                let name = services.volume(entered.seen.volume)?.name;
                let name = XdrBytes::new(name.as_bytes()).map_err(|_| Refusal::NAME_TOO_LONG)?;
                Ok(VolumesAnswer::GetName { name })
            }
            VolumesCall::GetStatus { transaction } => {
                let entered = at.enter(transaction, "GetStatus")?;
                let group = at.group_of(entered.seen.volume)?;
                let info = group.first().ok_or(Refusal::NO_VOLUME)?;
                let status = ListedVolume { info, beside: &group }.status();
                Ok(VolumesAnswer::GetStatus { status })
            }
            VolumesCall::SetInfo { transaction, info } => {
                at.set_info(&at.enter(transaction, "SetInfo")?, &info)?;
                Ok(VolumesAnswer::SetInfo {})
            }
            // The times of a volume are its own here.
            VolumesCall::SetDate { transaction, .. } => {
                at.enter(transaction, "SetDate")?;
                Ok(VolumesAnswer::SetDate {})
            }
            VolumesCall::SetIdsTypes { transaction, name, .. } => {
                at.rename(&at.enter(transaction, "SetIdsTypes")?, &name)?;
                Ok(VolumesAnswer::SetIdsTypes {})
            }
            // Clients ask the location database where a volume is.
            VolumesCall::SetForwarding { transaction, .. } => {
                at.enter(transaction, "SetForwarding")?;
                Ok(VolumesAnswer::SetForwarding {})
            }
            VolumesCall::CreateVolume { partition, name, kind, parent, volume } => {
                at.need_all_rights()?;
                let (volume, transaction) = match kind {
                    volume_type::RW => at.create(partition, &name, volume)?,
                    volume_type::RO => at.create_replica(partition, &name, (parent, volume))?,
                    _ => return Err(BAD_OPERATION),
                };
                Ok(VolumesAnswer::CreateVolume { volume, transaction })
            }
            VolumesCall::DeleteVolume { transaction } => {
                at.delete(&at.enter(transaction, "DeleteVolume")?)?;
                Ok(VolumesAnswer::DeleteVolume {})
            }
            VolumesCall::NukeVolume { partition, volume } => {
                at.need_all_rights()?;
                at.list(partition, Some(volume), |_| ())?;
                let id = VolumeId(volume.into());
                at.change(VolumeCall::Remove { id })?;
                Ok(VolumesAnswer::NukeVolume {})
            }
            VolumesCall::Clone { transaction, purge, kind, name, volume } => {
                let entered = at.enter(transaction, "Clone")?;
                let replace = purge != 0 && purge == volume;
                let volume = at.clone_as(&entered, kind, &name, volume, replace)?;
                Ok(VolumesAnswer::Clone { volume })
            }
            VolumesCall::ReClone { transaction, clone } => {
                at.clone_again(&at.enter(transaction, "ReClone")?, clone)?;
                Ok(VolumesAnswer::ReClone {})
            }

            // Dumps.
            VolumesCall::Dump { transaction, from_date } => {
                let scope = DumpScope { from: from_date as u32, omits_directories: false };
                at.dump(&at.enter(transaction, "Dump")?, scope, stream)?;
                Ok(VolumesAnswer::Dump {})
            }
            VolumesCall::DumpV2 { transaction, from_date, flags } => {
                let omits_directories = flags & OMIT_DIRECTORIES != 0;
                let scope = DumpScope { from: from_date as u32, omits_directories };
                at.dump(&at.enter(transaction, "DumpV2")?, scope, stream)?;
                Ok(VolumesAnswer::DumpV2 {})
            }
            VolumesCall::Restore { transaction, .. } => {
                at.restore(&at.enter(transaction, "Restore")?, stream)?;
                Ok(VolumesAnswer::Restore {})
            }
            VolumesCall::Forward {
                transaction,
                from_date,
                destination,
                to_transaction,
                cookie,
            } => {
                let entered = at.enter(transaction, "Forward")?;
                at.forward(&entered, from_date, (destination, to_transaction), cookie)?;
                Ok(VolumesAnswer::Forward {})
            }
            VolumesCall::ForwardMultiple {
                transaction, from_date, destinations, cookie, ..
            } => {
                let entered = at.enter(transaction, "ForwardMultiple")?;
                let send = |one: &Replica| {
                    let to = (one.destination, one.transaction);
                    at.forward(&entered, from_date, to, cookie).map_or_else(|code| code.0, |()| 0)
                };
                let results = listed(destinations.as_slice().iter().map(send).collect())?;
                Ok(VolumesAnswer::ForwardMultiple { results })
            }
            VolumesCall::GetSize { transaction, from_date } => {
                let scope = DumpScope { from: from_date as u32, omits_directories: false };
                let bytes = at.size_of_dump(&at.enter(transaction, "GetSize")?, scope)?;
                Ok(VolumesAnswer::GetSize { bytes })
            }

            // As stock servers do.
            VolumesCall::SignalRestore { .. } => Ok(VolumesAnswer::SignalRestore {}),
            VolumesCall::GetNthVolume { .. } => Err(NO_OPERATION),
            VolumesCall::ConvertROtoRWvolume { partition, volume } => {
                at.need_all_rights()?;
                at.convert_replica(partition, volume)?;
                Ok(VolumesAnswer::ConvertROtoRWvolume {})
            }
        }
    }

    /// Ends transactions whose clients are gone. A volume that was to be removed then is.
    fn end_idle(&self, services: &dyn Services) {
        for ended in self.transactions.end_idle(services.now().secs) {
            end_hold(services, ended.volume, ended.hold);
            if ended.volume_flags & volume_flag::DELETE_ON_SALVAGE != 0 {
                let remove = VolumeCall::Remove { id: ended.volume };
                let _ = services.ask_as_server(Call::Volume(remove));
            }
        }
    }
}

impl VolserCall<'_> {
    fn question(&self, call: VolumeCall) -> Result<Answer, Refusal> {
        self.services.ask_as_server(Call::Volume(call)).map_err(refusal_of)
    }

    /// A change, which the services permit to the caller or refuse.
    fn change(&self, call: VolumeCall) -> Result<Answer, Refusal> {
        self.services.ask(Call::Volume(call)).map_err(refusal_of)
    }

    /// A caller who may do everything with every volume: only such a one may ask for volumes that
    /// come in.
    fn need_all_rights(&self) -> Result<(), Refusal> {
        self.change(VolumeCall::Incoming { tree: Some(VolumeId(0)) }).map(drop)
    }

    fn partitions(&self) -> Result<Vec<PartitionInfo>, Refusal> {
        match self.question(VolumeCall::Partitions)? {
            Answer::Partitions(all) => Ok(all),
            _ => Err(unexpected()),
        }
    }

    fn partition_numbers(&self) -> Result<Vec<i32>, Refusal> {
        let all = self.partitions()?;
        let mut numbers: Vec<_> = all.iter().map(|one| shown_number(&one.name)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    fn partition(&self, number: i32) -> Result<PartitionInfo, Refusal> {
        numbered(self.partitions()?, |one| &one.name, number).ok_or(NO_PARTITION)
    }

    /// The partition that AFS knows by this name, under that name.
    fn partition_named(&self, name: &PartitionPath) -> Result<PartitionInfo, Refusal> {
        let name = std::str::from_utf8(name.as_bytes()).map_err(|_| NO_PARTITION)?;
        let number = partition_number(name).ok_or(NO_PARTITION)?;
        Ok(PartitionInfo { name: name.to_owned(), ..self.partition(number)? })
    }

    /// All volumes of a partition, or one of them.
    fn list<T>(
        &self,
        partition: i32,
        only: Option<u32>,
        make: impl Fn(&ListedVolume<'_>) -> T,
    ) -> Result<Vec<T>, Refusal> {
        let partition = self.partition(partition)?.no;
        if let Some(only) = only {
            let group = match self.group_of(VolumeId(only.into())) {
                Err(Refusal::NO_VOLUME) => Vec::new(),
                group => group?,
            };
            let beside: Vec<_> =
                group.into_iter().filter(|one| one.partition == partition).collect();
            let is_it = |one: &&VolumeInfo| one.id == VolumeId(only.into());
            let info = beside.iter().find(is_it).ok_or(NO_SUCH_VOLUME)?;
            return Ok(vec![make(&ListedVolume { info, beside: &beside })]);
        }
        let (mut all, mut after) = (Vec::new(), VolumeId(0));
        loop {
            match self.question(VolumeCall::List { partition, after, max: AT_ONCE })? {
                Answer::Volumes { volumes, end } => {
                    after = volumes.last().map_or(after, |last| last.id);
                    let is_over = end || volumes.is_empty();
                    all.extend(volumes);
                    if is_over {
                        break;
                    }
                }
                _ => return Err(unexpected()),
            }
        }
        // AFS has 32 bits for a number.
        all.retain(|one| u32::try_from(one.id.0).is_ok() && !one.is_refill());
        all.sort_by_key(|one| one.tree);
        let mut made = Vec::with_capacity(all.len());
        for beside in all.chunk_by(|one, next| one.tree == next.tree) {
            let of = |info: &VolumeInfo| (info.id, make(&ListedVolume { info, beside }));
            made.extend(beside.iter().map(of));
        }
        made.sort_by_key(|(id, _)| *id);
        Ok(made.into_iter().map(|(_, made)| made).collect())
    }

    /// A volume, followed by the others of its group.
    fn group_of(&self, id: VolumeId) -> Result<Vec<VolumeInfo>, Refusal> {
        match self.question(VolumeCall::Examine { volume: WhichVolume::Id(id) })? {
            Answer::Volumes { volumes, .. } => Ok(volumes),
            _ => Err(unexpected()),
        }
    }

    fn monitor(&self) -> Result<VolumesAnswer, Refusal> {
        let partitions = self.partitions()?;
        let name = |no: PartitionNo| {
            partitions.iter().find(|one| one.no == no).map_or("", |one| &*one.name)
        };
        let all = self.service.transactions.list();
        let shown = all.iter().map(|one| reports::transaction(one, name(one.partition)));
        Ok(VolumesAnswer::Monitor { transactions: listed(shown.collect())? })
    }

    fn now(&self) -> i64 {
        self.services.now().secs
    }

    fn begin(&self, volume: u32, partition: i32, flags: i32) -> Result<i32, Refusal> {
        self.need_all_rights()?;
        let known = transaction_flag::OFFLINE
            | transaction_flag::BUSY
            | transaction_flag::READ_ONLY
            | transaction_flag::CREATE
            | transaction_flag::CREATE_VOLUME_ID;
        if flags & known == 0 {
            return Err(Refusal::INVALID);
        }
        let partition = self.partition(partition)?.no;
        let volume = VolumeId(volume.into());
        if self.services.volume(volume)?.partition != partition {
            return Err(Refusal::NO_VOLUME);
        }
        self.service.transactions.begin(self.now(), volume, partition, flags)
    }

    /// A call of the transaction. Its caller need not be the one that opened it.
    fn enter(
        &self,
        transaction: i32,
        procedure: &'static str,
    ) -> Result<EnteredTransaction<'_>, Refusal> {
        self.need_all_rights()?;
        let entered = self.service.transactions.enter(self.now(), transaction, procedure)?;
        keep_hold(self.services, &entered);
        Ok(entered)
    }

    fn set_fields(&self, id: VolumeId, change: VolumeChange) -> Result<(), Refusal> {
        self.change(VolumeCall::SetFields { id, change }).map(drop)
    }

    /// Flags 0 bring the volume into service. A clone for a while, from which `vos move` reads, has
    /// no clients that it must be kept from.
    fn set_flags(&self, entered: &EnteredTransaction<'_>, flags: i32) -> Result<(), Refusal> {
        let id = entered.seen.volume;
        let state = match flags {
            0 => Some(VolumeState::Online),
            flags if flags & volume_flag::OUT_OF_SERVICE != 0 => Some(VolumeState::Offline),
            _ => None,
        };
        if let Some(state) = state.filter(|_| flags & volume_flag::DELETED == 0) {
            let info = self.services.volume(id)?;
            if info.kind != VolumeKind::Snapshot && info.state != state {
                if state == VolumeState::Offline {
                    self.need_last_state(entered)?;
                }
                let state = Some(state);
                self.set_fields(id, VolumeChange { state, ..VolumeChange::default() })?;
            }
        }
        entered.set_flags(flags);
        Ok(())
    }

    /// The quota; the other members are the volume's own here.
    fn set_info(
        &self,
        entered: &EnteredTransaction<'_>,
        info: &VolumeReport,
    ) -> Result<(), Refusal> {
        if info.max_quota == SAME {
            return Ok(());
        }
        let blocks = u64::try_from(info.max_quota).map_err(|_| Refusal::INVALID)?;
        let quota_bytes = Some(blocks * KIB);
        let change = VolumeChange { quota_bytes, ..VolumeChange::default() };
        self.set_fields(entered.seen.volume, change)
    }

    fn rename(&self, entered: &EnteredTransaction<'_>, name: &VolumeName) -> Result<(), Refusal> {
        let id = entered.seen.volume;
        if self.services.volume(id)?.name.as_bytes() == name.as_bytes() {
            return Ok(());
        }
        let name = new_name(name)?;
        self.change(VolumeCall::Rename { id, name }).map(drop)
    }

    /// A new volume, in a transaction. It serves no client before `SetFlags` says so, and goes if
    /// its maker goes before.
    fn create(
        &self,
        partition: i32,
        name: &VolumeName,
        volume: u32,
    ) -> Result<(u32, i32), Refusal> {
        let name = new_name(name)?;
        if !types::is_volume_name(name.as_bytes(), VolumeKind::ReadWrite) {
            return Err(BAD_NAME);
        }
        let id = (volume != 0).then_some(VolumeId(volume.into()));
        let id = self.make_volume(partition, name, id)?;
        self.begin_as_maker(partition, id)
    }

    /// A new volume in which access lists decide.
    fn make_volume(
        &self,
        partition: i32,
        name: Name,
        id: Option<VolumeId>,
    ) -> Result<VolumeId, Refusal> {
        let create = VolumeCall::Create {
            id,
            partition: Some(self.partition(partition)?.no),
            name,
            quota_bytes: FIRST_QUOTA,
            quota_files: 0,
            owner: (0, 0),
            encrypt: None,
        };
        let id = self.made_when_swept(&create)?;
        let mut list = Acl::new();
        if !list.set(PrincipalId::ADMINISTRATORS, Rights::ALL, false) {
            return Err(unexpected());
        }
        let list = Some(Bytes::from(list.encode()));
        let call = Call::SetAcl { fid: Fid::root(id), list, instead_of: None };
        self.services.ask(call).map_err(refusal_of)?;
        Ok(id)
    }

    /// The transaction of a new volume, which serves no client yet; with the volume's number.
    fn begin_as_maker(&self, partition: i32, id: VolumeId) -> Result<(u32, i32), Refusal> {
        let number = u32::try_from(id.0).map_err(|_| Refusal::TOO_BIG)?;
        let (partition, flags) = (self.partition(partition)?.no, transaction_flag::CREATE);
        let transaction = self.service.transactions.begin(self.now(), id, partition, flags)?;
        let entered = self.enter(transaction, "CreateVolume")?;
        self.set_flags(&entered, volume_flag::DELETE_ON_SALVAGE | volume_flag::OUT_OF_SERVICE)?;
        Ok((number, transaction))
    }

    /// As [`VolserCall::made`], when it is possible.
    fn made_when_swept(&self, call: &VolumeCall) -> Result<VolumeId, Refusal> {
        self.when_swept(|| self.made(call.clone()))
    }

    /// Does something with the number of a volume that may have gone a moment ago: until all that
    /// it had is removed, its number is in use.
    fn when_swept<T>(&self, act: impl Fn() -> Result<T, Refusal>) -> Result<T, Refusal> {
        for _ in 0..SWEEP_PAUSES_MAX {
            match act() {
                Err(Refusal::BUSY) => self.services.pause(),
                done => return done,
            }
        }
        act()
    }

    /// The number of the volume that a call made.
    fn made(&self, call: VolumeCall) -> Result<VolumeId, Refusal> {
        match self.change(call)? {
            Answer::Volumes { volumes, .. } => Ok(volumes.first().ok_or_else(unexpected)?.id),
            _ => Err(unexpected()),
        }
    }

    fn delete(&self, entered: &EnteredTransaction<'_>) -> Result<(), Refusal> {
        self.need_last_state(entered)?;
        self.change(VolumeCall::Remove { id: entered.seen.volume })?;
        entered.set_flags(volume_flag::DELETED);
        Ok(())
    }

    fn clone_as(
        &self,
        entered: &EnteredTransaction<'_>,
        kind: i32,
        name: &VolumeName,
        volume: u32,
        replace: bool,
    ) -> Result<u32, Refusal> {
        let mut name = Name::new(name.as_bytes()).map_err(|_| BAD_NAME)?;
        let kind = match kind {
            volume_type::RO if name.as_bytes().ends_with(b".readonly") => VolumeKind::ReadOnly,
            volume_type::BACKUP if name.as_bytes().ends_with(b".backup") => VolumeKind::Backup,
            // A clone of any name, which does not change.
            volume_type::RO | volume_type::BACKUP => VolumeKind::Snapshot,
            volume_type::RW => VolumeKind::ReadWrite,
            _ => return Err(BAD_OPERATION),
        };
        if !types::is_volume_name(name.as_bytes(), kind) {
            return Err(BAD_NAME);
        }
        let id = (volume != 0).then_some(VolumeId(volume.into()));
        let of = entered.seen.volume;
        // `vos dump -clone` names its clone as the volume; here a name is one volume's.
        if kind == VolumeKind::Snapshot && self.services.volume(of)?.name == name {
            name = Name::new(format!("clone.{volume}").as_bytes()).map_err(|_| BAD_NAME)?;
        }
        let made = self.made_when_swept(&VolumeCall::Clone { id, of, name, kind, replace })?;
        u32::try_from(made.0).map_err(|_| Refusal::TOO_BIG)
    }

    fn clone_again(&self, entered: &EnteredTransaction<'_>, clone: u32) -> Result<(), Refusal> {
        let VolumeInfo { id, name, kind, .. } = self.services.volume(VolumeId(clone.into()))?;
        if kind == VolumeKind::ReadWrite {
            return Err(BAD_OPERATION);
        }
        let of = entered.seen.volume;
        let replace = true;
        let clone = VolumeCall::Clone { id: Some(id), of, name, kind, replace };
        self.made_when_swept(&clone).map(drop)
    }

    fn dump(
        &self,
        entered: &EnteredTransaction<'_>,
        scope: DumpScope,
        stream: &mut dyn CallStream,
    ) -> Result<(), Refusal> {
        let info = self.services.volume(entered.seen.volume)?;
        VolumeDump::write(self.services, &info, scope, DumpTarget::Stream(stream)).map(drop)
    }

    /// A dump over the volume of the transaction, which is out of service from then on until
    /// `SetFlags` says that it serves.
    fn restore(
        &self,
        entered: &EnteredTransaction<'_>,
        stream: &mut dyn CallStream,
    ) -> Result<(), Refusal> {
        let id = entered.seen.volume;
        let info = self.services.volume(id)?;
        if info.kind == VolumeKind::ReadOnly {
            return self.restore_replica(&info, stream);
        }
        if info.state == VolumeState::Online {
            let state = Some(VolumeState::Offline);
            self.set_fields(id, VolumeChange { state, ..VolumeChange::default() })?;
        }
        let assembly = self.services.assemble(id).map_err(refusal_of)?;
        let restored = IncomingDump::read(assembly, stream)?;
        let quota_bytes = Some(u64::from(restored.max_quota) * KIB);
        self.set_fields(id, VolumeChange { quota_bytes, ..VolumeChange::default() })
    }

    fn size_of_dump(
        &self,
        entered: &EnteredTransaction<'_>,
        scope: DumpScope,
    ) -> Result<u64, Refusal> {
        let info = self.services.volume(entered.seen.volume)?;
        match VolumeDump::write(self.services, &info, scope, DumpTarget::Count(0))? {
            DumpTarget::Count(bytes) => Ok(bytes),
            DumpTarget::Stream(_) => Err(unexpected()),
        }
    }
}
