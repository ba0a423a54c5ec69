//! The partitions of a server.
//!
//! Each has its log, its sweeper and its volumes, and nothing spans two of them. What belongs to
//! the server as a whole, its sessions and the incarnations of its clients, is on the first, its
//! *home*. A reply record is on the partition that was changed.

use std::sync::Arc;

use store::{IncomingState, Partition, StoreError, StoredReply};
use types::{BootVerifier, Fault, PartitionInfo, PartitionNo, SessionId, VolumeId};

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
    /// Partitions with what administrators call them. The first is the home.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(list: Vec<(String, Partition)>) -> Self {
        assert!(!list.is_empty(), "a server has a partition");
        Partitions(list.into_iter().map(|(name, partition)| Named { name, partition }).collect())
    }

    /// The one that has the sessions.
    pub fn home(&self) -> &Partition {
        &self.0[0].partition
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.0.iter().map(|named| &named.partition)
    }

    /// All of them, with what administrators call them.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = (&str, &Partition)> {
        self.0.iter().map(|named| (&*named.name, &named.partition))
    }

    /// All of them, with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (PartitionNo, &Partition)> {
        (0..).map(PartitionNo).zip(self.iter())
    }

    /// One of them.
    ///
    /// # Errors
    /// `Invalid` if there is none with this number.
    pub(crate) fn get(&self, no: PartitionNo) -> Result<&Partition, Fault> {
        self.0.get(no.0 as usize).map(|named| &named.partition).ok_or(Fault::Invalid)
    }

    /// What one is called.
    pub(crate) fn name_of(&self, no: PartitionNo) -> Option<&str> {
        self.0.get(no.0 as usize).map(|named| named.name.as_str())
    }

    /// The one that is called so.
    pub(crate) fn called(&self, name: &str) -> Option<PartitionNo> {
        (0..)
            .zip(self.0.iter())
            .find(|(_, named)| named.name == name)
            .map(|(no, _)| PartitionNo(no))
    }

    /// What they are called, and their room.
    pub(crate) fn infos(&self) -> Result<Vec<PartitionInfo>, Fault> {
        let info = |(no, named): (u32, &Named)| {
            let space = named.partition.space()?;
            let (total_bytes, free_bytes) = (space.total_bytes, space.free_bytes);
            let (no, name, compression) =
                (PartitionNo(no), named.name.clone(), named.partition.compression().to_string());
            Ok(PartitionInfo { no, name, total_bytes, free_bytes, compression })
        };
        (0..).zip(self.0.iter()).map(info).collect()
    }

    /// The one with the most room.
    pub(crate) fn roomiest(&self) -> Result<PartitionNo, Fault> {
        let infos = self.infos()?;
        let best = infos.iter().max_by_key(|info| (info.free_bytes, std::cmp::Reverse(info.no)));
        Ok(best.expect("a server has a partition").no)
    }

    /// The volume with this number, and where it is: of twins, the one whose tree is asked
    /// (`beside.rs`).
    pub(crate) fn volume(
        &self,
        id: VolumeId,
    ) -> Result<Option<(PartitionNo, Arc<store::Volume>)>, Fault> {
        let mut best: Option<(PartitionNo, Arc<store::Volume>)> = None;
        for (no, partition) in self.numbered() {
            let Some(volume) = partition.volume(id)? else { continue };
            if best.as_ref().is_none_or(|(_, known)| volume.standing() < known.standing()) {
                best = Some((no, volume));
            }
        }
        Ok(best)
    }

    /// Where a tree is, or comes in; of two places, the one where it is asked.
    pub(crate) fn of_tree(&self, tree: VolumeId) -> Result<Option<PartitionNo>, Fault> {
        let mut best: Option<(IncomingState, PartitionNo)> = None;
        for (no, partition) in self.numbered() {
            let standing = partition.tree_standing(tree)?.map(|standing| (standing, no));
            best = [best, standing].into_iter().flatten().min();
        }
        Ok(best.map(|(_, no)| no))
    }

    /// The number of the volume with this name.
    pub(crate) fn named(&self, name: &[u8]) -> Result<Option<VolumeId>, Fault> {
        for partition in self.iter() {
            if let Some(volume) = partition.volume_named(name)? {
                return Ok(Some(volume.id()));
            }
        }
        Ok(None)
    }

    /// A number that no volume of any of them ever had.
    pub(crate) fn next_volume(&self) -> Result<VolumeId, Fault> {
        let mut next = VolumeId(1);
        for partition in self.iter() {
            next = next.max(partition.next_volume()?);
        }
        Ok(next)
    }

    /// Changes whenever unstable changes of any of them may have been lost.
    pub fn boot_verifier(&self) -> BootVerifier {
        let mut verifiers = self.iter().map(|partition| partition.boot_verifier().0);
        let first = verifiers.next().unwrap_or_default();
        // Of one it is its own. Multiplied, so that two that change alike do not cancel out.
        BootVerifier(
            verifiers.fold(first, |all, one| {
                all.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) ^ one
            }),
        )
    }

    /// The last reply of each slot of a session, wherever it was recorded (EO-1).
    pub(crate) fn replies(&self, session: SessionId) -> Result<Vec<StoredReply>, StoreError> {
        let mut newest: Vec<StoredReply> = Vec::new();
        for partition in self.iter() {
            for reply in partition.replies(session)? {
                match newest.iter_mut().find(|one| one.slot == reply.slot) {
                    Some(one) if one.request >= reply.request => {}
                    Some(one) => *one = reply,
                    None => newest.push(reply),
                }
            }
        }
        Ok(newest)
    }

    /// Removes a session with its replies, wherever they are.
    pub(crate) fn remove_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.iter().try_for_each(|partition| partition.remove_session(session))
    }

    /// A session number that none of them has seen; durable when it returns.
    pub(crate) fn allocate_session(&self) -> Result<SessionId, StoreError> {
        let mut highest = SessionId(0);
        for partition in self.iter() {
            highest = highest.max(partition.allocate_session()?);
        }
        Ok(highest)
    }

    /// None of them gives this number to another session, whichever is the home one day: replies
    /// name sessions by number. Syncs one in many times.
    pub(crate) fn use_up_session(&self, session: SessionId) -> Result<(), StoreError> {
        for partition in self.iter() {
            while partition.allocate_session()? < session {}
        }
        Ok(())
    }

    /// As [`Partition::write_out`], of all.
    ///
    /// # Errors
    /// The first that failed; the others were written out all the same.
    pub fn write_out(&self) -> Result<(), StoreError> {
        self.each(Partition::write_out)
    }

    /// As [`Partition::sync_all`], of all.
    ///
    /// # Errors
    /// The first that failed; the others were synced all the same.
    pub fn sync_all(&self) -> Result<(), StoreError> {
        self.each(Partition::sync_all)
    }

    fn each(&self, act: impl Fn(&Partition) -> Result<(), StoreError>) -> Result<(), StoreError> {
        // The first error is kept, and nobody's failure keeps the others from being served.
        self.iter().map(act).fold(Ok(()), Result::and)
    }
}
