//! Bodies of encrypted trees: encrypted on the disk, plain for the callers of this layer
//! (`cipher.rs`).
//!
//! A file's length on the disk is the next multiple of the unit; the bytes behind the end, in its
//! last unit, are zeros. A write or a cut within a unit reads, changes and writes the whole unit;
//! so a file has one writer at a time, as bodies do. Kernels get no such file.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use openssl::error::ErrorStack;
use types::{VnodeNo, VolumeId};

use super::{BodyFile, Disk, Stamp};
use crate::StoreError;
use crate::format::names::{BlankName, BodyName};
use crate::media::cipher::{BodyKey, Ciphers, UNIT};
use crate::media::free_space::Space;

/// A disk below the bodies, some of which are encrypted.
pub(crate) struct Ciphered {
    inner: Box<dyn Disk>,
    ciphers: Arc<Ciphers>,
}

impl Ciphered {
    pub(crate) fn new(inner: Box<dyn Disk>, ciphers: Arc<Ciphers>) -> Ciphered {
        Ciphered { inner, ciphers }
    }

    fn key(&self, name: BodyName) -> io::Result<Option<Arc<BodyKey>>> {
        self.ciphers.of(name.volume).map_err(io::Error::other)
    }

    fn through(&self, name: BodyName, file: Arc<dyn BodyFile>) -> io::Result<Arc<dyn BodyFile>> {
        Ok(match self.key(name)? {
            Some(key) => Arc::new(CipheredFile { file, key, vnode: name.vnode }),
            None => file,
        })
    }
}

impl Disk for Ciphered {
    fn create(&self, name: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        self.through(name, self.inner.create(name)?)
    }

    fn copy(&self, from: BodyName, to: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        self.through(to, self.inner.copy(from, to)?)
    }

    fn open(&self, name: BodyName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        match self.inner.open(name)? {
            Some(file) => self.through(name, file).map(Some),
            None => Ok(None),
        }
    }

    fn adopt_blank(
        &self,
        blank: BlankName,
        body: BodyName,
    ) -> io::Result<Option<Arc<dyn BodyFile>>> {
        match self.key(body)? {
            // Bytes that a kernel wrote into a blank are in the clear.
            Some(_) => Err(io::ErrorKind::Unsupported.into()),
            None => self.inner.adopt_blank(blank, body),
        }
    }

    fn remove(&self, name: BodyName) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn list(
        &self,
        volume: VolumeId,
        visit: &mut dyn FnMut(Result<BodyName, String>),
    ) -> io::Result<()> {
        self.inner.list(volume, visit)
    }

    fn clear(&self, volume: VolumeId, max: usize) -> io::Result<usize> {
        self.inner.clear(volume, max)
    }

    fn sync_name(&self, name: BodyName) -> Result<(), StoreError> {
        self.inner.sync_name(name)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.inner.sync_all()
    }

    fn is_written(&self, name: BodyName) -> io::Result<bool> {
        self.inner.is_written(name)
    }

    fn has_descriptors(&self) -> bool {
        self.inner.has_descriptors()
    }

    fn make_blank(&self, name: BlankName) -> io::Result<Arc<dyn BodyFile>> {
        self.inner.make_blank(name)
    }

    fn open_blank(&self, name: BlankName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        self.inner.open_blank(name)
    }

    fn blanks(&self) -> io::Result<Vec<BlankName>> {
        self.inner.blanks()
    }

    fn remove_blank(&self, name: BlankName) -> io::Result<()> {
        self.inner.remove_blank(name)
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn boot_id(&self) -> io::Result<String> {
        self.inner.boot_id()
    }

    fn note_sync_failed(&self) {
        self.inner.note_sync_failed();
    }

    fn has_sync_failed(&self) -> bool {
        self.inner.has_sync_failed()
    }

    fn forget_sync_failed(&self) {
        self.inner.forget_sync_failed();
    }
}

/// One open file and its key.
struct CipheredFile {
    file: Arc<dyn BodyFile>,
    key: Arc<BodyKey>,
    vnode: VnodeNo,
}

fn down(at: u64) -> u64 {
    at / UNIT * UNIT
}

fn up(at: u64) -> u64 {
    at.div_ceil(UNIT) * UNIT
}

fn failed(error: ErrorStack) -> io::Error {
    io::Error::other(error)
}

impl CipheredFile {
    /// The plain bytes of one unit.
    fn unit(&self, at: u64) -> io::Result<[u8; UNIT as usize]> {
        let mut unit = [0; UNIT as usize];
        self.file.read_at(at, &mut unit)?;
        self.key.decrypt(self.vnode, at, &mut unit).map_err(failed)?;
        Ok(unit)
    }

    /// Zeroes the plain bytes of a range that lies in one unit or is empty.
    fn zero_in_unit(&self, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let at = down(range.start);
        let mut unit = self.unit(at)?;
        unit[(range.start - at) as usize..(range.end - at) as usize].fill(0);
        self.put(at, &mut unit)
    }

    /// Writes whole units of plain bytes, encrypting them in place.
    fn put(&self, at: u64, units: &mut [u8]) -> io::Result<()> {
        self.key.encrypt(self.vnode, at, units).map_err(failed)?;
        self.file.write_at(at, units)
    }
}

impl BodyFile for CipheredFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (from, to) = (down(offset), up(offset + buffer.len() as u64));
        let inside = (offset - from) as usize;
        if inside == 0 && to == offset + buffer.len() as u64 {
            let had = self.file.read_at(offset, buffer)?;
            let units = had / UNIT as usize * UNIT as usize;
            self.key.decrypt(self.vnode, offset, &mut buffer[..units]).map_err(failed)?;
            return Ok(units);
        }
        let mut units = vec![0; (to - from) as usize];
        let had = self.file.read_at(from, &mut units)? / UNIT as usize * UNIT as usize;
        self.key.decrypt(self.vnode, from, &mut units[..had]).map_err(failed)?;
        let count = had.saturating_sub(inside).min(buffer.len());
        buffer[..count].copy_from_slice(&units[inside..inside + count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset + data.len() as u64;
        let (from, to) = (down(offset), up(end));
        let mut units = vec![0; (to - from) as usize];
        if from < offset {
            units[..UNIT as usize].copy_from_slice(&self.unit(from)?);
        }
        if end < to {
            let last = units.len() - UNIT as usize;
            units[last..].copy_from_slice(&self.unit(to - UNIT)?);
        }
        units[(offset - from) as usize..(end - from) as usize].copy_from_slice(data);
        self.put(from, &mut units)
    }

    fn append(&self, _data: &[u8]) -> io::Result<u64> {
        // Only bodies that kernels write are appended to in this way.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let had = self.file.length()?;
        if length < had {
            // Zeroes the cut bytes first: in the other order the end of the unit could come back.
            self.zero_in_unit(length..up(length).min(had))?;
        }
        self.file.set_length(up(length))
    }

    fn extend(&self, length: u64) -> io::Result<()> {
        self.file.extend(up(length))
    }

    fn settle_maps(&self) -> io::Result<()> {
        self.file.settle_maps()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.file.stamp()
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        self.file.next_data(from)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset + length;
        let (first, last) = (up(offset), down(end));
        if first >= last {
            // Parts of at most two units.
            self.zero_in_unit(offset..end.min(first.max(offset)))?;
            return self.zero_in_unit(first.min(end)..end);
        }
        self.zero_in_unit(offset..first)?;
        self.zero_in_unit(last..end)?;
        self.file.punch(first, last - first)
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.reserve(offset, length)
    }

    fn has_data(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.file.has_data(offset, length)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync()
    }

    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}
