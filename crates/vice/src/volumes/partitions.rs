//! The partitions of a server.
//!
//! Each has its log, its sweeper and its volumes, and no operation spans two of them. The records
//! of the server as a whole, its sessions and the incarnations of its clients, are on the first,
//! its *home*. A reply record is on the partition that was changed.

use std::sync::Arc;

use store::{IncomingState, Partition, StoreError, StoredReply, WrittenOut, format_of_level};
use types::{BootVerifier, DiskHealth, Fault, PartitionInfo, PartitionNo, SessionId, VolumeId};

/// The partitions of a server, in the order of their numbers; at least one. Clones are handles to
/// the same ones.
#[derive(Clone)]
pub struct Partitions(Arc<[Named]>);

struct Named {
    name: String,
    partition: Partition,
}

impl From<Partition> for Partitions {
    fn from(partition: Partition) -> Self {
        Partitions::new(vec![("/vicepa".to_owned(), partition)])
    }
}

impl Partitions {
    /// `list`: the partitions with their names. The first is the home.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn new(list: Vec<(String, Partition)>) -> Self {
        assert!(!list.is_empty(), "a server has a partition");
        Partitions(list.into_iter().map(|(name, partition)| Named { name, partition }).collect())
    }

    /// The partition with the session records.
    pub fn home(&self) -> &Partition {
        &self.0[0].partition
    }

    /// All partitions.
    pub fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.0.iter().map(|named| &named.partition)
    }

    /// All partitions, with their names.
    pub fn by_name(&self) -> impl Iterator<Item = (&str, &Partition)> {
        self.0.iter().map(|named| (&*named.name, &named.partition))
    }

    /// All partitions, with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (PartitionNo, &Partition)> {
        (0..).map(PartitionNo).zip(self.iter())
    }

    /// The partition with this number.
    ///
    /// # Errors
    /// `Invalid` if there is no such partition.
    pub(crate) fn get(&self, no: PartitionNo) -> Result<&Partition, Fault> {
        self.0.get(no.0 as usize).map(|named| &named.partition).ok_or(Fault::Invalid)
    }

    /// Name of the partition with this number.
    pub(crate) fn name_of(&self, no: PartitionNo) -> Option<&str> {
        self.0.get(no.0 as usize).map(|named| named.name.as_str())
    }

    /// Number of the partition with this name.
    pub(crate) fn called(&self, name: &str) -> Option<PartitionNo> {
        (0..)
            .zip(self.0.iter())
            .find(|(_, named)| named.name == name)
            .map(|(no, _)| PartitionNo(no))
    }

    /// The server knows the cell's level: partitions without volumes, as a new one is, take the
    /// format of that level. Others do so by an administrator's command (VE-6).
    pub fn learn_level(&self, level: u32) {
        for named in &*self.0 {
            let partition = &named.partition;
            let raised = partition.volumes().list(VolumeId(0), 1).and_then(|some| {
                if some.is_empty() {
                    partition.raise_format(format_of_level(level))
                } else {
                    Ok(())
                }
            });
            if let Err(error) = raised {
                tracing::warn!(
                    %error,
                    partition = named.name,
                    "the format of an empty partition stays as it is"
                );
            }
        }
    }

    /// Names of the partitions, and their room: none, where the disk does not answer.
    pub(crate) fn infos(&self) -> Vec<PartitionInfo> {
        let info = |(no, named): (u32, &Named)| {
            let space = named.partition.space().ok();
            let [total_bytes, free_bytes] =
                space.map_or([0, 0], |space| [space.total_bytes, space.free_bytes]);
            let (no, name, compression) =
                (PartitionNo(no), named.name.clone(), named.partition.compression().to_string());
            PartitionInfo { no, name, total_bytes, free_bytes, compression }
        };
        (0..).zip(self.0.iter()).map(info).collect()
    }

    /// The well partition with the most room (PH-3).
    ///
    /// # Errors
    /// `Medium` if none is well.
    pub(crate) fn roomiest(&self) -> Result<PartitionNo, Fault> {
        let well = self.infos().into_iter().filter(|info| self.need_well(info.no).is_ok());
        let best = well.max_by_key(|info| (info.free_bytes, std::cmp::Reverse(info.no)));
        best.map(|info| info.no).ok_or(Fault::Medium)
    }

    /// # Errors
    /// `Medium` if the partition gets no new volume (PH-3); `Invalid` if there is no such one.
    pub(crate) fn need_well(&self, no: PartitionNo) -> Result<(), Fault> {
        match self.get(no)?.health().state {
            DiskHealth::Well => Ok(()),
            DiskHealth::Slow | DiskHealth::Failing => Err(Fault::Medium),
        }
    }

    /// # Errors
    /// As [`Partitions::need_well`], unless the partition has something of the tree already.
    pub(crate) fn may_take(&self, no: PartitionNo, tree: VolumeId) -> Result<(), Fault> {
        match self.get(no)?.volumes().tree_standing(tree)? {
            Some(_) => Ok(()),
            None => self.need_well(no),
        }
    }

    /// The volume with this number, and its partition: of twins, the one that serves
    /// (`admin/beside.rs`).
    pub(crate) fn volume(
        &self,
        id: VolumeId,
    ) -> Result<Option<(PartitionNo, Arc<store::Volume>)>, Fault> {
        let mut best: Option<(PartitionNo, Arc<store::Volume>)> = None;
        for (no, partition) in self.numbered() {
            let Some(volume) = partition.volumes().volume(id)? else { continue };
            debug_assert!(
                volume.standing() != IncomingState::Serves
                    || best.as_ref().is_none_or(|(_, known)| known.standing() != volume.standing()),
                "VO-6: two partitions serve {id:?}"
            );
            if best.as_ref().is_none_or(|(_, known)| volume.standing() < known.standing()) {
                best = Some((no, volume));
            }
        }
        Ok(best)
    }

    /// The partition where a tree is, or arrives; of two, the one that serves. A rest of a tree
    /// that only writable clones need does not count: its volumes may come to another partition.
    pub(crate) fn of_tree(&self, tree: VolumeId) -> Result<Option<PartitionNo>, Fault> {
        let mut best: Option<(IncomingState, PartitionNo)> = None;
        for (no, partition) in self.numbered() {
            let standing = partition.volumes().tree_standing(tree)?.map(|standing| (standing, no));
            if standing.is_some_and(|standing| best.is_none_or(|best| standing < best))
                && partition.volumes().is_in_use(tree)?
            {
                best = standing;
            }
        }
        Ok(best.map(|(_, no)| no))
    }

    /// Number of the volume with this name.
    pub(crate) fn named(&self, name: &[u8]) -> Result<Option<VolumeId>, Fault> {
        for partition in self.iter() {
            if let Some(volume) = partition.volumes().volume_named(name)? {
                return Ok(Some(volume.id()));
            }
        }
        Ok(None)
    }

    /// A number that no volume of any partition ever had.
    pub(crate) fn next_volume(&self) -> Result<VolumeId, Fault> {
        let mut next = VolumeId(1);
        for partition in self.iter() {
            next = next.max(partition.volumes().next_volume()?);
        }
        Ok(next)
    }

    /// Changes whenever unstable changes of any partition may have been lost.
    pub fn boot_verifier(&self) -> BootVerifier {
        let mut verifiers = self.iter().map(|partition| partition.boot_verifier().0);
        let first = verifiers.next().unwrap_or_default();
        // A single one is returned unchanged. Multiplied, so that two equal changes do not cancel
        // out.
        BootVerifier(
            verifiers.fold(first, |all, one| {
                all.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) ^ one
            }),
        )
    }

    /// The last reply of each slot of a session, from all partitions (EO-1).
    pub(crate) fn replies(&self, session: SessionId) -> Result<Vec<StoredReply>, StoreError> {
        let mut newest: Vec<StoredReply> = Vec::new();
        for partition in self.iter() {
            for reply in partition.sessions().replies(session)? {
                match newest.iter_mut().find(|one| one.slot == reply.slot) {
                    Some(one) if one.request >= reply.request => {}
                    Some(one) => *one = reply,
                    None => newest.push(reply),
                }
            }
        }
        Ok(newest)
    }

    /// Removes a session with its replies from all partitions.
    pub(crate) fn remove_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.iter().try_for_each(|partition| partition.sessions().remove_session(session))
    }

    /// A session number that no partition has seen; durable when it returns.
    pub(crate) fn allocate_session(&self) -> Result<SessionId, StoreError> {
        let mut highest = SessionId(0);
        for partition in self.iter() {
            highest = highest.max(partition.sessions().allocate_session()?);
        }
        Ok(highest)
    }

    /// Ensures that no partition, as a later home, gives this number to another session: replies
    /// name sessions by number. Syncs once in many calls.
    pub(crate) fn use_up_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.iter().try_for_each(|partition| partition.sessions().use_up(session))
    }

    /// [`Partition::write_out`] of all partitions.
    ///
    /// # Errors
    /// The first failure; the others were written out all the same.
    pub fn write_out(&self) -> Result<WrittenOut, StoreError> {
        WrittenOut::of_all(self.iter().map(Partition::write_out))
    }

    /// [`Partition::sync_all`] of all partitions.
    ///
    /// # Errors
    /// The first failure; the others were synced all the same.
    pub fn sync_all(&self) -> Result<(), StoreError> {
        self.each(Partition::sync_all)
    }

    fn each(&self, act: impl Fn(&Partition) -> Result<(), StoreError>) -> Result<(), StoreError> {
        // Returns the first error; a failure of one partition does not stop the others.
        self.iter().map(act).fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests {
    use store::{MemMachine, NewRoot, OpenOptions, VolumeQuota};
    use types::{Name, Timestamp};

    use super::*;

    #[test]
    fn ph3_a_partition_that_is_not_well_gets_no_new_volume() {
        let machines = [MemMachine::new(), MemMachine::new()];
        let open = |machine| Partition::open_memory(machine, OpenOptions::default()).unwrap();
        let named = |at: usize| (format!("/vicep{at}"), open(&machines[at]));
        let partitions = Partitions::new(vec![named(0), named(1)]);
        let (now, quota) = (Timestamp::new(1, 0), VolumeQuota::default());
        let root = NewRoot { mode: 0o755, uid: 0, gid: 0, now, quota };
        let make = |at: usize, name: &[u8]| {
            let partition = partitions.get(PartitionNo(at as u32)).unwrap();
            let made = partition.volumes().create_volume(&Name::new(name).unwrap(), &root);
            made.and_then(|volume| partition.sync().map(|()| volume.tree_id()))
        };
        let there = make(0, b"there").unwrap();
        machines[1].set_capacity(1 << 39);
        assert_eq!(partitions.roomiest(), Ok(PartitionNo(0)));

        machines[0].fail_syncs(true);
        make(0, b"lost").unwrap_err();
        assert_eq!(partitions.roomiest(), Ok(PartitionNo(1)), "the other one has less room");
        let new = VolumeId(there.0 + 1000);
        assert_eq!(partitions.need_well(PartitionNo(0)), Err(Fault::Medium));
        assert_eq!(partitions.may_take(PartitionNo(0), new), Err(Fault::Medium));
        assert_eq!(partitions.may_take(PartitionNo(0), there), Ok(()), "its tree is there");
        assert_eq!(partitions.may_take(PartitionNo(1), new), Ok(()));
        assert_eq!(partitions.need_well(PartitionNo(2)), Err(Fault::Invalid));

        machines[1].fail_syncs(true);
        make(1, b"lost").unwrap_err();
        assert_eq!(partitions.roomiest(), Err(Fault::Medium), "none is well");
    }
}
