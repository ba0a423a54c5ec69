//! Files without names: each is removed when no session holds it any more (HO-1).

use std::sync::Arc;

use lease::Output;
use store::Update;
use types::{Fault, Fid, Time, VolumeId};

use super::Files;

impl Files {
    /// As [`Files::drop_orphans`], of one volume.
    pub fn drop_orphans_of(&self, now: Time, volume: VolumeId) -> Vec<Output> {
        let mut events = Vec::new();
        let Ok(of) = self.volumes.any_volume(volume) else { return events };
        let orphans = of.partition.volumes().orphans().unwrap_or_default();
        for (_, no) in orphans.into_iter().filter(|(tree, _)| *tree == volume) {
            if let Ok(Some(vnode)) = of.store.vnode(no) {
                self.drop_if_free(now, vnode.status.fid, &mut events);
            }
        }
        events
    }

    /// Removes every file without names that no session holds.
    pub fn drop_orphans(&self, now: Time) -> Vec<Output> {
        assert!(self.coherence.leases().may_change(), "HO-1: holds may yet be claimed");
        let mut events = Vec::new();
        for partition in self.volumes.partitions().iter() {
            let orphans = partition.volumes().orphans().unwrap_or_else(|error| {
                tracing::error!(%error, "files without names cannot be listed; they stay on disk");
                Vec::new()
            });
            for (volume, no) in orphans {
                let read = |volume: Option<Arc<store::Volume>>| {
                    volume.map_or(Ok(None), |volume| volume.vnode(no))
                };
                match partition.volumes().volume(volume).and_then(read) {
                    Ok(Some(vnode)) => self.drop_if_free(now, vnode.status.fid, &mut events),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!(volume = volume.0, vnode = no.0, %error, "file without \
                            names cannot be read");
                    }
                }
            }
        }
        events
    }

    /// Removes the file if it has no name, no session holds it, and every session that may hold it
    /// has acknowledged. (During grace, when others may yet reclaim it, the leases report no file
    /// as free.)
    pub fn drop_if_free(&self, now: Time, fid: Fid, events: &mut Vec<Output>) {
        if let Err(fault) = self.try_drop(now, fid, events) {
            // Its orphan record remains: the next start tries again.
            if fault == Fault::Busy {
                return tracing::debug!(%fid, "a file without names stays: its volume moves");
            }
            tracing::warn!(%fid, %fault, "a file without names cannot be removed");
        }
    }

    fn try_drop(&self, now: Time, fid: Fid, events: &mut Vec<Output>) -> Result<(), Fault> {
        let volume = match self.volumes.any_volume(fid.volume) {
            // The file was removed with its volume.
            Err(Fault::NoVolume) => return Ok(()),
            volume => volume?,
        };
        if volume.need_writable().is_err() {
            return Ok(());
        }
        let _held = self.stripes.write(&[fid]);
        let vnode = match volume.vnode(fid) {
            Ok(vnode) if vnode.status.links == 0 => vnode,
            Ok(_) | Err(Fault::Stale) => return Ok(()),
            Err(fault) => return Err(fault),
        };
        if self.coherence.may_be_held(fid) || self.volumes.moves().takes_claims(fid.volume) {
            return Ok(());
        }
        debug_assert!(self.coherence.leases().may_change(), "HO-1: {fid} goes, and may be claimed");
        let mut update = Update::new();
        volume.store.drop_vnode(&vnode, &mut update)?;
        update.remove_orphan(vnode.no());
        volume.store.commit(update)?;
        debug_assert!(!self.coherence.may_be_held(fid), "HO-1: {fid} is gone, and was held");
        self.coherence.leases().forget_file(now, fid, events);
        Ok(())
    }
}
