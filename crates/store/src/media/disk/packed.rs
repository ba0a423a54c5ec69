//! Packed bodies: compressed by chunk, so that any part can be read without the rest.
//!
//! ```text
//! chunk, chunk, ...      each a zstd frame of CHUNK_BYTES of the body (the last one shorter);
//!                        a chunk that is all zeros is left out
//! index                  the length of each frame (0: left out), u32 each
//! end                    length of the body u64, crc32c of index and length u32, magic
//! ```
//! Numbers are little-endian. A packed body is written once, is whole and on disk before a record
//! names it, and never changes. The sums of the body's blocks protect its content, as for any body,
//! and a sum of its own the index.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use types::PackedRun;
use zstd::bulk::Decompressor;

use super::{BodyFile, Frames, Stamp};
use crate::StoreError;

/// Four blocks: a short read decompresses no more than that, and longer chunks compress source text
/// only a few percent better. Streams send chunks of this length, which receivers rely on.
pub(crate) const CHUNK_BYTES: u64 = PackedRun::CHUNK_BYTES;
/// A body is packed once and read often. Source text: level 3 makes it 4.2 times smaller, 9 4.6
/// times, 19 4.8 times at a tenth of the speed.
const LEVEL: i32 = 9;
const MAGIC: [u8; 4] = *b"RZ1\n";
/// Bytes behind the index.
const END_BYTES: u64 = 16;
/// The bytes that one read of the end takes: the index of 256 MiB, and all of a short body.
const TAIL_BYTES: u64 = 16 << 10;

/// A packed body that is open. Read-only.
pub(crate) struct Packed {
    file: Arc<dyn BodyFile>,
    length: u64,
    /// The offset of each chunk's frame, and the end of the last one.
    starts: Vec<u64>,
    /// All of a short body until its chunks have been read once: an open is usually followed by a
    /// read.
    whole: Mutex<Option<Bytes>>,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("packed body: {what}"))
}

/// Packs the first `length` bytes of `from` into the empty file `to`; returns the length of the
/// result.
pub(crate) fn pack(from: &dyn BodyFile, length: u64, to: &dyn BodyFile) -> io::Result<u64> {
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    let mut index = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES as usize];
    let mut at = 0;
    for number in 0..length.div_ceil(CHUNK_BYTES) {
        let offset = number * CHUNK_BYTES;
        let there = (length - offset).min(CHUNK_BYTES) as usize;
        let had = from.read_at(offset, &mut chunk[..there])?;
        chunk[had..].fill(0);
        let frame = if chunk.iter().all(|byte| *byte == 0) {
            Vec::new()
        } else {
            compressor.compress(&chunk[..there])?
        };
        index.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        to.write_at(at, &frame)?;
        at += frame.len() as u64;
    }
    index.extend_from_slice(&length.to_le_bytes());
    index.extend_from_slice(&crc32c::crc32c(&index).to_le_bytes());
    index.extend_from_slice(&MAGIC);
    to.write_at(at, &index)?;
    Ok(at + index.len() as u64)
}

/// Unpacks the body into the empty file `to`; holes of whole chunks stay holes.
pub(crate) fn unpack(from: &dyn BodyFile, to: &dyn BodyFile) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES as usize];
    let mut at = 0;
    while let Some(run) = from.next_data(at)? {
        at = run.start;
        while at < run.end {
            let there = (run.end - at).min(CHUNK_BYTES) as usize;
            let had = from.read_at(at, &mut chunk[..there])?;
            to.write_at(at, &chunk[..had])?;
            at += there as u64;
        }
    }
    to.set_length(from.length()?)
}

/// The length of the file and its last bytes: all of a short one, with one read of the disk.
fn tail_of(file: &dyn BodyFile) -> io::Result<(u64, Vec<u8>)> {
    let mut tail = vec![0; TAIL_BYTES as usize];
    let had = file.read_at(0, &mut tail)?;
    if had < tail.len() {
        tail.truncate(had);
        return Ok((had as u64, tail));
    }
    let all = file.length()?;
    if file.read_at(all.saturating_sub(TAIL_BYTES), &mut tail)? != tail.len() {
        return Err(damaged("no end"));
    }
    Ok((all, tail))
}

impl Packed {
    /// Reads the index of a packed body.
    ///
    /// # Errors
    /// `InvalidData` if it is not a packed body, or damaged.
    pub(crate) fn open(file: Arc<dyn BodyFile>) -> io::Result<Packed> {
        let (all, tail) = tail_of(&*file)?;
        let index_end =
            tail.len().checked_sub(END_BYTES as usize).ok_or_else(|| damaged("too short"))?;
        if tail[index_end + 12..] != MAGIC {
            return Err(damaged("no end"));
        }
        let end = &tail[index_end..];
        let length = u64::from_le_bytes(end[..8].try_into().expect("8 bytes"));
        let fits = |bytes: &u64| *bytes <= all - END_BYTES;
        let index_bytes = length.div_ceil(CHUNK_BYTES).checked_mul(4).filter(fits);
        let index_bytes = index_bytes.ok_or_else(|| damaged("no index"))? as usize;
        let mut long: Vec<u8>;
        // The sum covers the length too.
        let index = if let Some(start) = index_end.checked_sub(index_bytes) {
            &tail[start..index_end + 8]
        } else {
            long = vec![0; index_bytes + 8];
            file.read_at(all - END_BYTES - index_bytes as u64, &mut long)?;
            &long[..]
        };
        if crc32c::crc32c(index).to_le_bytes() != end[8..12] {
            return Err(damaged("the index fails its sum"));
        }
        let mut starts = Vec::with_capacity(index_bytes / 4 + 1);
        let mut at = 0;
        starts.push(at);
        for frame in index[..index_bytes].chunks_exact(4) {
            at += u64::from(u32::from_le_bytes(frame.try_into().expect("4 bytes")));
            starts.push(at);
        }
        if at != all - END_BYTES - index_bytes as u64 {
            return Err(damaged("the index does not fit"));
        }
        let whole = Mutex::new((tail.len() as u64 == all).then(|| Bytes::from(tail)));
        Ok(Packed { file, length, starts, whole })
    }

    /// The frames of some chunks: from memory the first time, if the body is short.
    fn frames_of(&self, chunks: Range<u64>) -> io::Result<Bytes> {
        let (start, end) = (self.starts[chunks.start as usize], self.starts[chunks.end as usize]);
        let mut whole = self.whole.lock();
        if let Some(bytes) = &*whole {
            let frames = bytes.slice(start as usize..end as usize);
            if chunks.end as usize + 1 == self.starts.len() {
                *whole = None;
            }
            return Ok(frames);
        }
        drop(whole);
        let mut frames = vec![0; (end - start) as usize];
        if self.file.read_at(start, &mut frames)? != frames.len() {
            return Err(damaged("a chunk is missing"));
        }
        Ok(frames.into())
    }

    /// Fills `out`, which has the length of the chunk.
    fn chunk(&self, number: u64, out: &mut [u8]) -> io::Result<()> {
        let (start, end) = (self.starts[number as usize], self.starts[number as usize + 1]);
        if start == end {
            out.fill(0);
            return Ok(());
        }
        unpack_frame(&self.frames_of(number..number + 1)?, out)
    }
}

/// Unpacks a frame into all of `out`; writes no more than that, even if the frame is wrong.
///
/// # Errors
/// `InvalidData` if it is not a frame of exactly so many bytes.
pub(crate) fn unpack_frame(frame: &[u8], out: &mut [u8]) -> io::Result<()> {
    DECOMPRESSOR.with_borrow_mut(|cached| {
        let decompressor = match cached {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new()?),
        };
        match decompressor.decompress_to_buffer(frame, out) {
            Ok(got) if got == out.len() => Ok(()),
            _ => Err(damaged("a chunk cannot be unpacked")),
        }
    })
}

thread_local! {
    /// Reused, since its creation takes longer than unpacking a short frame.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn read_only() -> io::Error {
    io::Error::other("a packed body is not written")
}

impl BodyFile for Packed {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.length.min(offset.saturating_add(buffer.len() as u64));
        let mut at = offset;
        while at < end {
            let number = at / CHUNK_BYTES;
            let chunk = number * CHUNK_BYTES..self.length.min((number + 1) * CHUNK_BYTES);
            let length = (chunk.end - chunk.start) as usize;
            let stop = chunk.end.min(end);
            let part = &mut buffer[(at - offset) as usize..(stop - offset) as usize];
            if part.len() == length {
                self.chunk(number, part)?;
            } else {
                let mut whole = vec![0; length];
                self.chunk(number, &mut whole)?;
                let from = (at - chunk.start) as usize;
                part.copy_from_slice(&whole[from..from + part.len()]);
            }
            at = stop;
        }
        Ok(end.saturating_sub(offset) as usize)
    }

    fn frames(&self, chunks: Range<u64>, below: u64) -> io::Result<Option<Frames>> {
        let Some(starts) = self.starts.get(chunks.start as usize..=chunks.end as usize) else {
            return Ok(None);
        };
        if starts.last().zip(starts.first()).is_none_or(|(end, start)| end - start >= below) {
            return Ok(None);
        }
        let lengths = starts.windows(2).map(|pair| (pair[1] - pair[0]) as u32).collect();
        Ok(Some(Frames { lengths, bytes: self.frames_of(chunks)? }))
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    fn append(&self, _data: &[u8]) -> io::Result<u64> {
        Err(read_only())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn set_length(&self, _length: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn extend(&self, _length: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn settle_maps(&self) -> io::Result<()> {
        Ok(())
    }

    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp { length: self.length, ..self.file.stamp()? })
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        if from >= self.length {
            return Ok(None);
        }
        let is_data = |number: &usize| self.starts[*number] != self.starts[*number + 1];
        let chunks = self.starts.len() - 1;
        let first = (from / CHUNK_BYTES) as usize;
        let Some(first) = (first..chunks).find(is_data) else { return Ok(None) };
        let end = (first..chunks).find(|number| !is_data(number)).unwrap_or(chunks);
        Ok(Some(from.max(first as u64 * CHUNK_BYTES)..self.length.min(end as u64 * CHUNK_BYTES)))
    }

    fn punch(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn reserve(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn has_data(&self, offset: u64, length: u64) -> io::Result<bool> {
        Ok(self.next_data(offset)?.is_some_and(|run| run.start < offset + length))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync()
    }

    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::{VnodeNo, VolumeId};

    use super::*;
    use crate::MemMachine;
    use crate::format::names::BodyName;
    use crate::media::disk::Disk;
    use crate::media::machine::MemDisk;

    fn file(disk: &MemDisk, generation: u32, bytes: &[u8]) -> Arc<dyn BodyFile> {
        let name = BodyName {
            volume: VolumeId(1),
            vnode: VnodeNo(2),
            epoch: 1,
            generation,
            packed: false,
        };
        let file = disk.create(name).unwrap();
        file.write_at(0, bytes).unwrap();
        file
    }

    proptest! {
        #[test]
        fn any_part_of_any_body_comes_out_as_it_went_in(
            runs in prop::collection::vec((any::<u8>(), 0..90_000_usize), 1..6),
            reads in prop::collection::vec((0..400_000_u64, 0..200_000_usize), 1..8),
        ) {
            let disk = MemDisk(MemMachine::new().0);
            let runs = runs.iter().flat_map(|(byte, length)| vec![*byte; *length]);
            let bytes: Vec<u8> = runs.collect();
            let (plain, target) = (file(&disk, 1, &bytes), file(&disk, 2, b""));
            let back = file(&disk, 3, b"");
            pack(&*plain, bytes.len() as u64, &*target).unwrap();
            let packed = Packed::open(target).unwrap();
            for (offset, length) in reads {
                let mut buffer = vec![0xaa; length];
                let got = packed.read_at(offset, &mut buffer).unwrap();
                let from = bytes.len().min(offset as usize);
                prop_assert_eq!(&buffer[..got], &bytes[from..bytes.len().min(from + length)]);
            }
            unpack(&packed, &*back).unwrap();
            let mut found = vec![0; bytes.len()];
            prop_assert_eq!(back.read_at(0, &mut found).unwrap(), bytes.len());
            prop_assert_eq!((found, back.length().unwrap()), (bytes.clone(), bytes.len() as u64));
        }

        #[test]
        fn what_is_no_packed_body_is_refused_or_read_without_harm(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            flip in any::<(prop::sample::Index, u8)>(),
            real in any::<bool>(),
        ) {
            let disk = MemDisk(MemMachine::new().0);
            if real {
                let (plain, target) = (file(&disk, 1, &bytes), file(&disk, 2, b""));
                let length = pack(&*plain, bytes.len() as u64, &*target).unwrap();
                bytes = vec![0; length as usize];
                target.read_at(0, &mut bytes).unwrap();
            }
            if !bytes.is_empty() {
                let at = flip.0.index(bytes.len());
                bytes[at] ^= flip.1;
            }
            if let Ok(packed) = Packed::open(file(&disk, 3, &bytes)) {
                let mut buffer = vec![0; 4096];
                let _ = packed.read_at(0, &mut buffer);
            }
        }
    }
}
