//! The mounts that one venus serves: the first one and those below it (`edges.rs`). What venus takes back goes to those that show the volume.
//!
//! A body is given to one mount's kernel side, and its number means nothing to another. So bodies are given to the first mount alone, which shows a volume that no other of
//! them shows.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use types::{Fid, Name, VolumeId};
use venus::{Backing, Invalidate};

use crate::notify::Notifier;

/// See the head of the file.
#[derive(Default)]
pub struct Kin {
    /// The first mount first.
    members: RwLock<Vec<(VolumeId, Weak<Notifier>)>>,
}

impl Kin {
    /// One more; those that are gone are forgotten.
    pub fn join(&self, volume: VolumeId, notifier: &Arc<Notifier>) {
        let mut members = self.members.write();
        let mut first = true;
        members.retain(|(_, member)| std::mem::take(&mut first) || member.strong_count() > 0);
        members.push((volume, Arc::downgrade(notifier)));
    }

    /// Those that show the volume. No lock is held while they are told: that may take time.
    fn of(&self, volume: VolumeId) -> Vec<Arc<Notifier>> {
        let members = self.members.read();
        members.iter().filter(|(shown, _)| *shown == volume).filter_map(|(_, member)| member.upgrade()).collect()
    }

    /// Whether one shows the volume.
    pub fn shows(&self, volume: VolumeId) -> bool {
        !self.of(volume).is_empty()
    }

    fn first(&self) -> Option<Arc<Notifier>> {
        self.members.read().first()?.1.upgrade()
    }

    /// The first one, if it shows the volume.
    fn first_of(&self, volume: VolumeId) -> Option<Arc<Notifier>> {
        let members = self.members.read();
        let (shown, first) = members.first()?;
        first.upgrade().filter(|_| *shown == volume)
    }
}

impl Invalidate for Kin {
    fn inode_data(&self, fid: Fid) {
        self.of(fid.volume).iter().for_each(|member| member.inode_data(fid));
    }

    fn directory(&self, fid: Fid) {
        self.of(fid.volume).iter().for_each(|member| member.directory(fid));
    }

    fn all(&self) {
        let members: Vec<_> = self.members.read().iter().filter_map(|(_, member)| member.upgrade()).collect();
        members.iter().for_each(|member| member.all());
    }

    fn passes(&self) -> Result<(), &'static str> {
        self.first().ok_or("there is no mount")?.passes()
    }

    fn passes_of(&self, volume: VolumeId) -> bool {
        self.first_of(volume).is_some()
    }

    fn by_name(&self, dir: Fid) -> bool {
        self.of(dir.volume).iter().any(|member| member.by_name(dir))
    }

    fn name(&self, dir: Fid, name: &Name) -> bool {
        self.of(dir.volume).iter().all(|member| member.name(dir, name))
    }

    fn pass(&self, body: BorrowedFd<'_>) -> Option<Backing> {
        self.first()?.pass(body)
    }

    fn unpass(&self, backing: Backing) {
        if let Some(first) = self.first() {
            first.unpass(backing);
        }
    }

    fn list(&self, dir: Fid, cookie: u64) -> bool {
        self.first_of(dir.volume).is_some_and(|first| first.list(dir, cookie))
    }

    /// Only where one mount shows the volume: whoever opens the file then is there.
    fn fill(&self, fid: Fid, data: &[u8]) -> bool {
        matches!(&self.of(fid.volume)[..], [only] if only.fill(fid, data))
    }
}
