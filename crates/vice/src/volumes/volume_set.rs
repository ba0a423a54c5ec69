//! All volumes of the server, found by their numbers.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use types::{Call, Fault, Fid, Name, VolumeId, VolumeKind, is_volume_name};

use super::{Loads, Moves, Partitions, ViceVolume, VolumesInUse};

/// See the head of the file.
pub(crate) struct Volumes {
    partitions: Partitions,
    in_use: VolumesInUse,
    moves: Moves,
    loads: Loads,
    /// Held while a volume gets its name and number.
    naming: Mutex<()>,
}

impl Volumes {
    pub fn new(partitions: Partitions) -> Volumes {
        Volumes {
            partitions,
            in_use: VolumesInUse::default(),
            moves: Moves::default(),
            loads: Loads::default(),
            naming: Mutex::default(),
        }
    }

    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    pub fn moves(&self) -> &Moves {
        &self.moves
    }

    /// How much they are used.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// A volume that is online.
    ///
    /// # Errors
    /// `NoVolume`, `Offline`.
    pub fn volume(&self, id: VolumeId) -> Result<Arc<ViceVolume>, Fault> {
        let volume = self.any_volume(id)?;
        volume.need_service()?;
        Ok(volume)
    }

    /// A volume, even if it is offline.
    ///
    /// # Errors
    /// `NoVolume`.
    pub fn any_volume(&self, id: VolumeId) -> Result<Arc<ViceVolume>, Fault> {
        if let Some(volume) = self.in_use.get(id) {
            return Ok(volume);
        }
        loop {
            let (no, store) = self.partitions.volume(id)?.ok_or(Fault::NoVolume)?;
            let partition = self.partitions.get(no)?.clone();
            let volume = self.in_use.insert(id, ViceVolume::new(store, no, partition)?);
            assert_eq!(volume.store.id(), id, "VO-2: a volume has another number than its own");
            self.moves.note_loaded(&volume, self.was_released(&volume)?);
            if !volume.store.is_gone() {
                return Ok(volume);
            }
        }
    }

    /// Whether copies of it may be elsewhere: a released volume keeps what was released last.
    fn was_released(&self, volume: &ViceVolume) -> Result<bool, Fault> {
        if !volume.store.is_writable() {
            return Ok(false);
        }
        let name = [volume.store.name().as_bytes(), b".readonly"].concat();
        Ok(self.partitions.named(&name)?.is_some())
    }

    /// The volume is removed, or another has its number.
    pub fn forget(&self, id: VolumeId) {
        self.in_use.forget(id);
    }

    /// As [`VolumesInUse::forgotten`].
    pub fn forgotten(&self) -> u64 {
        self.in_use.forgotten()
    }

    /// The directory that the call waits for, if its volume is frozen or fenced.
    pub fn frozen_by(&self, call: &Call) -> Option<Fid> {
        let changed = call.changed_volume().filter(|id| self.moves.is_frozen(*id));
        let used = || self.used_by(call).filter(|id| self.moves.is_fenced(*id));
        changed.or_else(used).map(Fid::root)
    }

    /// The volume that a call of a client uses.
    fn used_by(&self, call: &Call) -> Option<VolumeId> {
        match call {
            Call::Root { volume } => self.partitions.named(volume.as_bytes()).ok().flatten(),
            Call::Hold { fids } | Call::Unhold { fids } => {
                let fenced = fids.iter().find(|fid| self.moves.is_fenced(fid.volume));
                fenced.map(|fid| fid.volume)
            }
            Call::Delegated { call, .. } => self.used_by(call),
            call => call.files().into_iter().flatten().next().map(|fid| fid.volume),
        }
    }

    /// One volume at a time gets its name and number.
    pub fn begin_naming(&self) -> MutexGuard<'_, ()> {
        self.naming.lock()
    }

    /// Checks that no volume of the server has the number. The caller has begun to name.
    ///
    /// # Errors
    /// `Exists`.
    pub fn need_free_number(&self, id: VolumeId) -> Result<(), Fault> {
        debug_assert!(self.naming.is_locked(), "VO-2: one volume at a time gets a number");
        if self.partitions.volume(id)?.is_some() { Err(Fault::Exists) } else { Ok(()) }
    }

    /// Checks that no volume of the server has the name. The caller has begun to name.
    ///
    /// # Errors
    /// `Exists`; `Invalid` for a name that no volume of this kind may have.
    pub fn need_free_name(&self, name: &Name, kind: VolumeKind) -> Result<(), Fault> {
        match self.partitions.named(name.as_bytes())? {
            _ if !is_volume_name(name.as_bytes(), kind) => Err(Fault::Invalid),
            Some(_) => Err(Fault::Exists),
            None => Ok(()),
        }
    }

    /// The volume of this tree and kind that has the name, if it may be replaced.
    ///
    /// # Errors
    /// `Exists` if another volume has the name, or it may not.
    pub fn replaced(
        &self,
        tree: VolumeId,
        name: &Name,
        kind: VolumeKind,
        replace: bool,
    ) -> Result<Option<VolumeId>, Fault> {
        let Some(id) = self.partitions.named(name.as_bytes())? else { return Ok(None) };
        let named = self.any_volume(id)?;
        let same = named.store.tree_id() == tree && named.store.kind() == kind;
        if replace && same { Ok(Some(id)) } else { Err(Fault::Exists) }
    }
}
