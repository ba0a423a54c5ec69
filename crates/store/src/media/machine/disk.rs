//! Body files in memory. They consist of blocks of 4 KiB, as a page cache does, each with its
//! versions since the last sync; power loss selects one version per block.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;
use rustix::io::Errno;
use types::VolumeId;

use super::{MemMachineState, Shared};
use crate::StoreError;
use crate::format::names::{BlankName, BodyName};
use crate::media::disk::{BodyFile, Disk, Stamp};
use crate::media::free_space::Space;

const PAGE: usize = 4096;
/// The limit of ext4, so that tests reach `TooBig`.
const FILE_BYTES_MAX: u64 = 16 << 40;

/// A disk of this size does not count its bytes.
pub(crate) const UNLIMITED_BYTES: u64 = 1 << 40;

type Page = Arc<[u8; PAGE]>;
type Pages = BTreeMap<u64, Page>;

/// All files of a machine.
#[derive(Clone, Default)]
pub(crate) struct MemFiles {
    names: BTreeMap<BodyName, u64>,
    /// Lost with the power, as their names are never synced.
    blanks: BTreeMap<BlankName, u64>,
    files: BTreeMap<u64, MemFile>,
    /// Names that were removed since the last sync of everything, with their files.
    removed: Vec<(BodyName, u64)>,
    next: u64,
    /// A byte that a process stores into a map, at this offset, during the next write-out of maps.
    pub(crate) stored_during_write_out: Option<(u64, u8)>,
}

#[derive(Clone, Default)]
struct MemFile {
    pages: Pages,
    length: u64,
    /// The pages on disk.
    synced: Pages,
    synced_length: u64,
    /// The later versions that may be on disk, oldest first.
    versions: BTreeMap<u64, Vec<Option<Page>>>,
    lengths: Vec<u64>,
    name_synced: bool,
    /// The number of changes.
    changes: u64,
}

impl MemFile {
    fn set_page(&mut self, index: u64, page: Option<Page>) {
        self.changes += 1;
        self.versions.entry(index).or_default().push(page.clone());
        match page {
            Some(page) => self.pages.insert(index, page),
            None => self.pages.remove(&index),
        };
    }

    fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.zero(length, self.length - length);
        }
        self.changes += 1;
        self.length = length;
        self.lengths.push(length);
    }

    /// Zeroes a range; whole pages become holes.
    fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let touched: Vec<u64> = self
            .pages
            .range(offset / PAGE as u64..end.div_ceil(PAGE as u64))
            .map(|(index, _)| *index)
            .collect();
        for index in touched {
            let start = index * PAGE as u64;
            if offset <= start && start + PAGE as u64 <= end {
                self.set_page(index, None);
            } else {
                let mut page = *self.pages[&index];
                let from = offset.saturating_sub(start) as usize;
                let to = (end - start).min(PAGE as u64) as usize;
                page[from..to].fill(0);
                self.set_page(index, Some(Arc::new(page)));
            }
        }
    }

    fn sync(&mut self) {
        self.synced.clone_from(&self.pages);
        self.synced_length = self.length;
        self.versions.clear();
        self.lengths.clear();
    }

    fn after_power_loss(&self, rng: &mut SmallRng) -> MemFile {
        let mut found = MemFile {
            pages: self.synced.clone(),
            length: self.synced_length,
            ..MemFile::default()
        };
        for (index, versions) in &self.versions {
            // The synced version is one more choice.
            match rng
                .random_range(0..=versions.len())
                .checked_sub(1)
                .map(|choice| &versions[choice])
            {
                None => {}
                Some(Some(page)) => drop(found.pages.insert(*index, page.clone())),
                Some(None) => drop(found.pages.remove(index)),
            }
        }
        if let Some(choice) = rng.random_range(0..=self.lengths.len()).checked_sub(1) {
            found.length = self.lengths[choice];
        }
        found.zero(found.length, u64::MAX / 2);
        found.name_synced = true;
        found.sync();
        found
    }
}

impl MemFiles {
    pub(crate) fn after_power_loss(mut self, rng: &mut SmallRng) -> MemFiles {
        let mut found = MemFiles { next: self.next, ..MemFiles::default() };
        for (name, id) in std::mem::take(&mut self.removed) {
            if rng.random() {
                self.names.entry(name).or_insert(id);
            }
        }
        for (name, id) in &self.names {
            let file = &self.files[id];
            if file.name_synced || rng.random() {
                found.names.insert(*name, *id);
                found.files.insert(*id, file.after_power_loss(rng));
            }
        }
        found
    }

    /// Flips bits of a stored byte without notice to the store.
    #[cfg(test)]
    pub(crate) fn tamper(&mut self, name: BodyName, offset: u64, flip: u8) {
        let file = self.files.get_mut(&self.names[&name]).expect("a name has a file");
        let mut page = file.pages.get(&(offset / PAGE as u64)).map_or([0; PAGE], |page| **page);
        page[(offset % PAGE as u64) as usize] ^= flip;
        file.set_page(offset / PAGE as u64, Some(Arc::new(page)));
        file.sync();
    }

    /// All stored pages, with their files' numbers.
    #[cfg(test)]
    pub(crate) fn contents(&self) -> Vec<Vec<u8>> {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_unstable_by_key(|(id, _)| **id);
        files
            .iter()
            .map(|(_, file)| file.pages.values().flat_map(|page| page.iter().copied()).collect())
            .collect()
    }

    pub(crate) fn names(&self) -> Vec<BodyName> {
        self.names.keys().copied().collect()
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.files.values().map(|file| (file.pages.len() * PAGE) as u64).sum()
    }
}

pub(crate) struct MemDisk(pub(crate) Shared);

impl MemDisk {
    fn handle(&self, id: u64) -> Arc<dyn BodyFile> {
        Arc::new(MemHandle { machine: self.0.clone(), id })
    }
}

impl Disk for MemDisk {
    fn create(&self, name: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        let mut machine = self.0.lock();
        let files = &mut machine.files;
        files.next += 1;
        let id = *files.names.entry(name).or_insert(files.next);
        files.files.entry(id).or_default().set_length(0);
        drop(machine);
        Ok(self.handle(id))
    }

    fn copy(&self, from: BodyName, to: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        let copy = self.create(to)?;
        let mut machine = self.0.lock();
        let files = &mut machine.files;
        let (Some(from), Some(to)) =
            (files.names.get(&from).copied(), files.names.get(&to).copied())
        else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let source = files.files.get(&from).cloned().unwrap_or_default();
        let target = files.files.get_mut(&to).expect("it was just made");
        source.pages.into_iter().for_each(|(index, page)| target.set_page(index, Some(page)));
        target.set_length(source.length);
        drop(machine);
        Ok(copy)
    }

    fn open(&self, name: BodyName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        let id = self.0.lock().files.names.get(&name).copied();
        Ok(id.map(|id| self.handle(id)))
    }

    fn remove(&self, name: BodyName) -> io::Result<()> {
        let mut machine = self.0.lock();
        if let Some(id) = machine.files.names.remove(&name) {
            machine.files.removed.push((name, id));
        }
        Ok(())
    }

    fn list(
        &self,
        volume: VolumeId,
        visit: &mut dyn FnMut(Result<BodyName, String>),
    ) -> io::Result<()> {
        let names = self.0.lock().files.names();
        names.into_iter().filter(|name| name.volume == volume).for_each(|name| visit(Ok(name)));
        Ok(())
    }

    fn clear(&self, volume: VolumeId, max: usize) -> io::Result<usize> {
        let mut names = self.0.lock().files.names();
        names.retain(|name| name.volume == volume);
        names.truncate(max);
        names.iter().try_for_each(|name| self.remove(*name))?;
        Ok(names.len())
    }

    fn sync_name(&self, name: BodyName) -> Result<(), StoreError> {
        self.0.lock().sync_point(|machine: &mut MemMachineState| {
            if let Some(id) = machine.files.names.get(&name).copied() {
                machine.files.files.get_mut(&id).expect("a name has a file").name_synced = true;
            }
            // The previous file of that name is gone for good.
            let files = &mut machine.files;
            let gone =
                files.removed.extract_if(.., |(removed, _)| *removed == name).map(|(_, id)| id);
            for id in gone.collect::<Vec<_>>() {
                let named =
                    files.names.values().chain(files.blanks.values()).any(|other| *other == id);
                if !named {
                    files.files.remove(&id);
                }
            }
        })
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.0.lock().sync_point(|machine: &mut MemMachineState| {
            let files = &mut machine.files;
            for (_, id) in files.removed.drain(..) {
                files.files.remove(&id);
            }
            for file in files.files.values_mut() {
                file.name_synced = true;
                file.sync();
            }
        })
    }

    fn is_written(&self, _name: BodyName) -> io::Result<bool> {
        Ok(false)
    }

    fn make_blank(&self, name: BlankName) -> io::Result<Arc<dyn BodyFile>> {
        let mut machine = self.0.lock();
        let files = &mut machine.files;
        files.next += 1;
        let id = files.next;
        if files.blanks.insert(name, id).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        files.files.insert(id, MemFile::default());
        drop(machine);
        Ok(self.handle(id))
    }

    fn open_blank(&self, name: BlankName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        let id = self.0.lock().files.blanks.get(&name).copied();
        Ok(id.map(|id| self.handle(id)))
    }

    fn blanks(&self) -> io::Result<Vec<BlankName>> {
        Ok(self.0.lock().files.blanks.keys().copied().collect())
    }

    fn adopt_blank(
        &self,
        blank: BlankName,
        body: BodyName,
    ) -> io::Result<Option<Arc<dyn BodyFile>>> {
        let mut machine = self.0.lock();
        let Some(id) = machine.files.blanks.get(&blank).copied() else { return Ok(None) };
        machine.files.names.insert(body, id);
        drop(machine);
        Ok(Some(self.handle(id)))
    }

    fn remove_blank(&self, name: BlankName) -> io::Result<()> {
        self.0.lock().files.blanks.remove(&name);
        Ok(())
    }

    fn has_descriptors(&self) -> bool {
        false
    }

    fn space(&self) -> io::Result<Space> {
        let machine = self.0.lock();
        let limited = machine.capacity_bytes < UNLIMITED_BYTES;
        let used = if limited { machine.files.used_bytes() } else { 0 };
        let free = machine.capacity_bytes.saturating_sub(used);
        Ok(Space { total_bytes: machine.capacity_bytes, free_bytes: free })
    }

    fn boot_id(&self) -> io::Result<String> {
        self.0.lock().boot_id()
    }

    fn note_sync_failed(&self) {
        self.0.lock().sync_failed = true;
    }

    fn has_sync_failed(&self) -> bool {
        self.0.lock().sync_failed
    }

    fn forget_sync_failed(&self) {
        self.0.lock().sync_failed = false;
    }
}

struct MemHandle {
    machine: Shared,
    id: u64,
}

impl MemHandle {
    fn with<T>(&self, act: impl FnOnce(&mut MemFile) -> io::Result<T>) -> io::Result<T> {
        match self.machine.lock().files.files.get_mut(&self.id) {
            Some(file) => act(file),
            // Only a sync of everything removes files whose name is gone; no body has them then.
            None => Err(io::Error::other("file is gone")),
        }
    }
}

impl BodyFile for MemHandle {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.with(|file| {
            let count = (file.length.saturating_sub(offset)).min(buffer.len() as u64) as usize;
            let first = (PAGE - (offset % PAGE as u64) as usize).min(count);
            copy_out(&file.pages, offset, &mut buffer[..first]);
            for (at, chunk) in buffer[first..count].chunks_mut(PAGE).enumerate() {
                copy_out(&file.pages, offset + (first + at * PAGE) as u64, chunk);
            }
            Ok(count)
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let Some(end) = end else { return Err(Errno::FBIG.into()) };
        {
            let machine = self.machine.lock();
            let limited = machine.capacity_bytes < UNLIMITED_BYTES;
            let pages = offset / PAGE as u64..if limited { end.div_ceil(PAGE as u64) } else { 0 };
            let new = pages
                .filter(|index| {
                    !machine
                        .files
                        .files
                        .get(&self.id)
                        .is_some_and(|file| file.pages.contains_key(index))
                })
                .count();
            if limited && machine.files.used_bytes() + (new * PAGE) as u64 > machine.capacity_bytes
            {
                return Err(Errno::NOSPC.into());
            }
        }
        self.with(|file| {
            let mut rest = data;
            let mut at = offset;
            while !rest.is_empty() {
                let within = (at % PAGE as u64) as usize;
                let (now, later) = rest.split_at(rest.len().min(PAGE - within));
                let mut page = file.pages.get(&(at / PAGE as u64)).map_or([0; PAGE], |page| **page);
                page[within..within + now.len()].copy_from_slice(now);
                file.set_page(at / PAGE as u64, Some(Arc::new(page)));
                at += now.len() as u64;
                rest = later;
            }
            if end > file.length {
                file.set_length(end);
            }
            Ok(())
        })
    }

    fn append(&self, data: &[u8]) -> io::Result<u64> {
        let end = self.length()?;
        self.write_at(end, data).map(|()| end)
    }

    fn length(&self) -> io::Result<u64> {
        self.with(|file| Ok(file.length))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        if length > FILE_BYTES_MAX {
            return Err(Errno::FBIG.into());
        }
        self.with(|file| {
            file.set_length(length);
            Ok(())
        })
    }

    fn extend(&self, length: u64) -> io::Result<()> {
        self.with(|file| {
            if file.length < length {
                file.set_length(length);
            }
            Ok(())
        })
    }

    fn settle_maps(&self) -> io::Result<()> {
        // Files in memory have no maps but those that a test plays.
        let store = self.machine.lock().files.stored_during_write_out.take();
        store.map_or(Ok(()), |(offset, byte)| self.write_at(offset, &[byte]))
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.with(|file| Ok(Stamp { length: file.length, times: [i128::from(file.changes), 0] }))
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        self.with(|file| {
            let first = file.pages.range(from / PAGE as u64..).next().map(|(index, _)| *index);
            let Some(first) = first else { return Ok(None) };
            let past = (first..).find(|index| !file.pages.contains_key(index)).unwrap_or(first);
            let run = (first * PAGE as u64).max(from)..(past * PAGE as u64).min(file.length);
            Ok((!run.is_empty()).then_some(run))
        })
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.with(|file| {
            file.zero(offset, length);
            Ok(())
        })
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        if offset.saturating_add(length) > FILE_BYTES_MAX {
            return Err(Errno::FBIG.into());
        }
        let machine = self.machine.lock();
        let limited = machine.capacity_bytes < UNLIMITED_BYTES;
        if limited && machine.files.used_bytes() + length > machine.capacity_bytes {
            return Err(Errno::NOSPC.into());
        }
        Ok(())
    }

    fn has_data(&self, offset: u64, length: u64) -> io::Result<bool> {
        let pages = offset / PAGE as u64..(offset + length).div_ceil(PAGE as u64);
        self.with(|file| Ok(file.pages.range(pages).next().is_some()))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.machine.lock().sync_point(|machine: &mut MemMachineState| {
            if let Some(file) = machine.files.files.get_mut(&self.id) {
                file.sync();
            }
        })
    }

    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

/// Copies bytes within one page.
fn copy_out(pages: &Pages, offset: u64, out: &mut [u8]) {
    let within = (offset % PAGE as u64) as usize;
    match pages.get(&(offset / PAGE as u64)) {
        Some(page) => out.copy_from_slice(&page[within..within + out.len()]),
        None => out.fill(0),
    }
}
