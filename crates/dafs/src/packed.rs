//! Unpacks the packed data of a read. The server may be damaged or malicious: the client writes
//! only as many bytes as the run declares, and returns no block that does not match its checksum
//! (ST-3).

use std::cell::RefCell;
use std::ops::Range;

use bytes::Bytes;
use types::PackedRun;

const BLOCK: usize = PackedRun::BLOCK_BYTES as usize;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// A fault in a packed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// Its parts do not fit together, or it lacks the wanted range.
    #[error("a packed run is inconsistent or lacks the wanted bytes")]
    NotWhole,
    /// A frame is not a zstd frame of exactly its chunk's bytes.
    #[error("chunk {0} cannot be unpacked")]
    Frame(u64),
    /// A block does not match its checksum.
    #[error("block {0} does not match its checksum")]
    Sum(u64),
}

/// The bytes `wanted` of the body that `run` belongs to; fewer, if the run ends earlier.
///
/// # Errors
/// [`UnpackError`]: the run is inconsistent, damaged, or lacks the beginning of the range.
pub fn unpack(run: &PackedRun, wanted: Range<u64>) -> Result<Bytes, UnpackError> {
    let end = run.offset.saturating_add(run.length.into());
    let (from, to) = (wanted.start, wanted.end.min(end));
    if !run.is_whole() || from < run.offset || from > to {
        return Err(UnpackError::NotWhole);
    }
    let mut buffer = types::buffer::take_written(run.length as usize);
    let mut frames = &run.bytes[..];
    let first = run.offset / PackedRun::CHUNK_BYTES;
    let chunks = buffer.chunks_mut(PackedRun::CHUNK_BYTES as usize).zip(&run.frames);
    for (number, (chunk, bytes)) in (first..).zip(chunks) {
        let (frame, rest) =
            frames.split_at_checked(*bytes as usize).ok_or(UnpackError::NotWhole)?;
        frames = rest;
        unpack_chunk(frame, chunk).ok_or(UnpackError::Frame(number))?;
    }
    let first = run.offset / PackedRun::BLOCK_BYTES;
    for (number, (block, sum)) in (first..).zip(buffer.chunks_mut(BLOCK).zip(&run.sums)) {
        match *sum {
            0 => block.fill(0),
            sum if sum == sum_of(block) => {}
            _ => return Err(UnpackError::Sum(number)),
        }
    }
    Ok(types::buffer::freeze(buffer)
        .slice((from - run.offset) as usize..(to - run.offset) as usize))
}

/// Fills the chunk; `None` if the frame does not fill it exactly.
fn unpack_chunk(frame: &[u8], chunk: &mut [u8]) -> Option<()> {
    if frame.is_empty() {
        chunk.fill(0);
        return Some(());
    }
    DECOMPRESSOR.with_borrow_mut(|slot| {
        let decompressor = match slot {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new().ok()?),
        };
        let filled = decompressor.decompress_to_buffer(frame, &mut *chunk).ok()?;
        (filled == chunk.len()).then_some(())
    })
}

thread_local! {
    /// Reused: making its state takes longer than unpacking a short frame.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
        const { RefCell::new(None) };
}

fn sum_of(block: &[u8]) -> u32 {
    let sum = crc32c::crc32c(block);
    let rest = ZEROS.get(block.len()..).unwrap_or_default();
    crc32c::crc32c_append(sum, rest).max(1)
}

/// Packs like a partition, for tests.
#[cfg(any(test, feature = "proptest"))]
#[allow(clippy::unwrap_used, clippy::missing_panics_doc)] // tests
pub fn pack(offset: u64, bytes: &[u8]) -> PackedRun {
    let chunks = bytes.chunks(PackedRun::CHUNK_BYTES as usize);
    let frame = |chunk: &[u8]| {
        let zeros = chunk.iter().all(|byte| *byte == 0);
        if zeros { Vec::new() } else { zstd::bulk::compress(chunk, 3).unwrap() }
    };
    let frames: Vec<Vec<u8>> = chunks.map(frame).collect();
    PackedRun {
        offset,
        length: u32::try_from(bytes.len()).unwrap(),
        frames: frames.iter().map(|frame| u32::try_from(frame.len()).unwrap()).collect(),
        sums: bytes.chunks(BLOCK).map(sum_of).collect(),
        bytes: frames.concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = PackedRun::CHUNK_BYTES;

    proptest! {
        #[test]
        fn any_part_of_a_run_comes_out_as_it_went_in(
            first in 0..5_u64,
            runs in prop::collection::vec((any::<u8>(), 1..90_000_usize), 1..5),
            part in (0.0..1.0, 0.0..1.0),
        ) {
            let bytes: Vec<u8> =
                runs.iter().flat_map(|(byte, length)| vec![*byte; *length]).collect();
            let run = pack(first * CHUNK, &bytes);
            let from = (part.0 * bytes.len() as f64) as usize;
            let to = from + (part.1 * bytes.len() as f64) as usize;
            let wanted = run.offset + from as u64..run.offset + to as u64;
            prop_assert_eq!(&unpack(&run, wanted).unwrap()[..], &bytes[from..to.min(bytes.len())]);
        }

        #[test]
        fn what_was_changed_on_its_way_is_refused(
            seed in any::<u64>(),
            length in 1..200_000_usize,
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let word = |at: usize| seed.rotate_left(at as u32 / 50) >> (at % 7);
            let bytes: Vec<u8> = (0..length).map(|at| word(at) as u8).collect();
            let mut run = pack(0, &bytes);
            let mut spoilt = run.bytes.to_vec();
            prop_assume!(!spoilt.is_empty());
            let at = at.index(spoilt.len());
            spoilt[at] ^= 1 << bit;
            run.bytes = spoilt.into();
            // The flipped bit may have no effect on the result.
            if let Ok(found) = unpack(&run, 0..length as u64) {
                prop_assert_eq!(&found[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn st3_an_inconsistent_run_is_refused_and_its_size_bounded() {
        let bytes = vec![b'x'; 3 * CHUNK as usize];
        let good = pack(CHUNK, &bytes);
        let whole = CHUNK..4 * CHUNK;
        assert_eq!(unpack(&good, whole.clone()).unwrap(), bytes);
        assert_eq!(unpack(&good, 0..2 * CHUNK), Err(UnpackError::NotWhole), "it begins later");
        assert_eq!(
            unpack(&good, 5 * CHUNK..6 * CHUNK),
            Err(UnpackError::NotWhole),
            "it ends before"
        );
        // A mebibyte of zeros in place of a chunk.
        let bomb = zstd::bulk::compress(&vec![0; 1 << 20], 3).unwrap();
        let one = |bytes: Vec<u8>| PackedRun {
            frames: vec![bytes.len() as u32],
            bytes: bytes.into(),
            ..pack(0, &[b'x'; 100])
        };
        assert_eq!(unpack(&one(bomb), 0..100), Err(UnpackError::Frame(0)));
        assert_eq!(
            unpack(&one(zstd::bulk::compress(&[b'x'; 99], 3).unwrap()), 0..100),
            Err(UnpackError::Frame(0)),
            "too short"
        );
        assert_eq!(unpack(&one(b"no frame".to_vec()), 0..100), Err(UnpackError::Frame(0)));
        let mut wrong = good.clone();
        wrong.sums[5] += 1;
        assert_eq!(unpack(&wrong, whole.clone()), Err(UnpackError::Sum(9)));
        // A hole reads as zeros, whatever its chunk holds.
        wrong.sums[5] = 0;
        let holed = unpack(&wrong, whole).unwrap();
        assert!(
            holed[5 * BLOCK..6 * BLOCK].iter().all(|byte| *byte == 0) && holed[6 * BLOCK] == b'x'
        );
    }
}
