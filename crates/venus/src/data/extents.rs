//! Written bytes by their place in the file: no two extents overlap, later writes win.
//!
//! Consecutive small writes grow one extent up to [`CHUNK`], which one call sends; large ones are
//! stored without a copy. Each extent has `first`, the clock of its oldest byte, so that a flush
//! knows when every earlier write is gone.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

/// Bytes of one write call to the server.
pub(crate) const CHUNK: usize = types::limits::PAYLOAD_BYTES_MAX;

/// Longer writes are stored without joining: a copy would cost more than a call of their own.
const WHOLE: usize = CHUNK / 2;

#[derive(Debug)]
enum Piece {
    Whole(Bytes),
    Growing(BytesMut),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Whole(bytes) => bytes.len(),
            Piece::Growing(bytes) => bytes.len(),
        }
    }

    fn copy(&self, from: usize, to: usize) -> Bytes {
        match self {
            Piece::Whole(bytes) => bytes.slice(from..to),
            Piece::Growing(bytes) => Bytes::copy_from_slice(&bytes[from..to]),
        }
    }

    fn freeze(self) -> Bytes {
        match self {
            Piece::Whole(bytes) => bytes,
            Piece::Growing(bytes) => bytes.freeze(),
        }
    }
}

#[derive(Debug)]
struct Extent {
    first: u64,
    piece: Piece,
}

/// A chunk that was removed to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub offset: u64,
    pub data: Bytes,
    pub first: u64,
}

impl Chunk {
    pub fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.offset < end && start < self.end()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Extents {
    map: BTreeMap<u64, Extent>,
    bytes: usize,
}

impl Extents {
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// End of the last byte; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.map.last_key_value().map_or(0, |(start, extent)| start + extent.piece.len() as u64)
    }

    pub fn oldest(&self) -> Option<u64> {
        self.map.values().map(|extent| extent.first).min()
    }

    /// Adds newer bytes, which replace older ones. True: a chunk may be full now.
    pub fn write(&mut self, offset: u64, mut data: Bytes, clock: u64) -> bool {
        if data.is_empty() || self.overwrite(offset, &data) {
            return false;
        }
        self.carve(offset, offset + data.len() as u64);
        let mut at = offset;
        let mut full = data.len() >= WHOLE;
        if !full {
            let (joined, filled) = self.grow(offset, &data);
            at += joined as u64;
            data = data.slice(joined..);
            full = filled;
        }
        if data.is_empty() {
            return full;
        }
        self.bytes += data.len();
        let piece = if data.len() < WHOLE {
            Piece::Growing(BytesMut::from(&data[..]))
        } else {
            Piece::Whole(data)
        };
        self.map.insert(at, Extent { first: clock, piece });
        full
    }

    /// Writes in place if the range lies within one growing extent.
    fn overwrite(&mut self, offset: u64, data: &[u8]) -> bool {
        let Some((start, extent)) = self.map.range_mut(..=offset).next_back() else { return false };
        let at = (offset - start) as usize;
        match &mut extent.piece {
            Piece::Growing(bytes) if at + data.len() <= bytes.len() => {
                bytes[at..at + data.len()].copy_from_slice(data);
                true
            }
            Piece::Growing(_) | Piece::Whole(_) => false,
        }
    }

    /// Appends to the growing extent that ends at `offset`, as far as it may grow; returns how many
    /// bytes, and whether it is full.
    fn grow(&mut self, offset: u64, data: &[u8]) -> (usize, bool) {
        let Some((start, extent)) = self.map.range_mut(..offset).next_back() else {
            return (0, false);
        };
        match &mut extent.piece {
            Piece::Growing(bytes) if start + bytes.len() as u64 == offset => {
                let joined = data.len().min(CHUNK - bytes.len());
                bytes.extend_from_slice(&data[..joined]);
                self.bytes += joined;
                (joined, bytes.len() == CHUNK)
            }
            Piece::Growing(_) | Piece::Whole(_) => (0, false),
        }
    }

    /// Adds older bytes, only where there are none.
    pub fn fill(&mut self, chunk: &Chunk) {
        let mut at = chunk.offset;
        while at < chunk.end() {
            let (gap_start, gap_end) = self.gap(at, chunk.end());
            if gap_start < gap_end {
                let data = chunk
                    .data
                    .slice((gap_start - chunk.offset) as usize..(gap_end - chunk.offset) as usize);
                self.bytes += data.len();
                debug_assert!(
                    self.map
                        .range(..gap_end)
                        .next_back()
                        .is_none_or(|(from, newer)| from + newer.piece.len() as u64 <= gap_start),
                    "DU-4: older bytes never replace newer ones"
                );
                self.map
                    .insert(gap_start, Extent { first: chunk.first, piece: Piece::Whole(data) });
            }
            at = gap_end.max(at + 1);
        }
    }

    /// The first range without bytes in `at..end`.
    fn gap(&self, at: u64, end: u64) -> (u64, u64) {
        let mut start = at;
        if let Some((from, extent)) = self.map.range(..=start).next_back() {
            start = start.max(from + extent.piece.len() as u64);
        }
        while let Some(extent) = self.map.get(&start) {
            start += extent.piece.len() as u64;
        }
        let until = self.map.range(start..).next().map_or(end, |(next, _)| *next).min(end);
        (start.min(end), until.max(start.min(end)))
    }

    pub fn carve(&mut self, start: u64, end: u64) {
        let before = self.map.range(..start).next_back().map(|(key, _)| *key);
        let hit: Vec<u64> =
            before.into_iter().chain(self.map.range(start..end).map(|(key, _)| *key)).collect();
        for key in hit {
            let Some(extent) = self.map.get(&key) else { continue };
            let stop = key + extent.piece.len() as u64;
            if stop <= start {
                continue;
            }
            let Some(extent) = self.map.remove(&key) else { continue };
            let first = extent.first;
            self.bytes -= extent.piece.len();
            let data = extent.piece.freeze();
            if key < start {
                self.keep(key, data.slice(..(start - key) as usize), first);
            }
            if stop > end {
                self.keep(end, data.slice((end - key) as usize..), first);
            }
        }
    }

    fn keep(&mut self, offset: u64, data: Bytes, first: u64) {
        self.bytes += data.len();
        self.map.insert(offset, Extent { first, piece: Piece::Whole(data) });
    }

    /// The bytes in `start..end`, in order, as (offset, bytes).
    pub fn within(&self, start: u64, end: u64) -> Vec<(u64, Bytes)> {
        let from = self.map.range(..=start).next_back().map_or(start, |(key, _)| *key);
        let mut found = Vec::new();
        for (key, extent) in self.map.range(from..end) {
            let (lo, hi) = (start.max(*key), end.min(key + extent.piece.len() as u64));
            if lo < hi {
                found.push((lo, extent.piece.copy((lo - key) as usize, (hi - key) as usize)));
            }
        }
        found
    }

    /// Takes the first chunk that overlaps none of `flying`: with `full`, only one that a single
    /// extent fills or that is at least half of [`CHUNK`]. Contiguous extents are joined.
    pub fn take(&mut self, flying: &[Chunk], full: bool) -> Option<Chunk> {
        let mut run: Option<(u64, u64)> = None;
        let mut chosen = None;
        for (key, extent) in &self.map {
            let stop = key + extent.piece.len() as u64;
            if flying.iter().any(|flight| flight.overlaps(*key, stop)) {
                continue;
            }
            run = match run {
                Some((start, end)) if end == *key && stop - start <= CHUNK as u64 => {
                    Some((start, stop))
                }
                Some((start, end)) if !full || end - start >= WHOLE as u64 => {
                    chosen = Some((start, end));
                    break;
                }
                _ => Some((*key, stop)),
            };
        }
        // The last extent may still be growing: with `full` it goes only when it cannot grow much
        // more.
        let least = if full { CHUNK as u64 - 1 } else { 0 };
        let chosen = chosen.or_else(|| run.filter(|(start, end)| end - start > least))?;
        Some(self.take_run(chosen.0, chosen.1))
    }

    fn take_run(&mut self, start: u64, end: u64) -> Chunk {
        let keys: Vec<u64> = self.map.range(start..end).map(|(key, _)| *key).collect();
        let extents: Vec<Extent> = keys.iter().filter_map(|key| self.map.remove(key)).collect();
        self.bytes -= (end - start) as usize;
        let first = extents.iter().map(|extent| extent.first).min().unwrap_or(0);
        let mut pieces = extents.into_iter().map(|extent| extent.piece.freeze());
        let data = match (pieces.len(), pieces.next()) {
            (1, Some(only)) => only,
            (_, head) => {
                let mut joined = BytesMut::with_capacity((end - start) as usize);
                head.into_iter().chain(pieces).for_each(|piece| joined.extend_from_slice(&piece));
                joined.freeze()
            }
        };
        assert!(data.len() as u64 == end - start, "a run has no gaps");
        Chunk { offset: start, data, first }
    }

    pub fn take_all(&mut self) -> Vec<Chunk> {
        self.bytes = 0;
        let map = std::mem::take(&mut self.map);
        map.into_iter()
            .map(|(offset, extent)| Chunk {
                offset,
                data: extent.piece.freeze(),
                first: extent.first,
            })
            .collect()
    }
}

/// Lays written bytes over fetched ones. `base` begins at `start` and is cut or grown to `end` by
/// the written bytes; bytes between the end of the file at the server and a written place are
/// zeros.
pub(crate) fn overlay(base: Bytes, start: u64, layers: &[(u64, Bytes)]) -> Bytes {
    if layers.is_empty() {
        return base;
    }
    let stop = layers.iter().map(|(at, data)| at + data.len() as u64).max().unwrap_or(start);
    if let [(at, data)] = layers
        && *at == start
        && data.len() >= base.len()
    {
        return data.clone();
    }
    let mut whole = BytesMut::from(&base[..]);
    if whole.len() < (stop - start) as usize {
        whole.resize((stop - start) as usize, 0);
    }
    for (at, data) in layers {
        let from = (at - start) as usize;
        whole[from..from + data.len()].copy_from_slice(data);
    }
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// The model of extents: a byte or `None` at each place.
    #[derive(Default)]
    struct Plain(BTreeMap<u64, u8>);

    impl Plain {
        fn check(&self, extents: &Extents) {
            let mut found = BTreeMap::new();
            for (at, data) in extents.within(0, 1 << 40) {
                found.extend(data.iter().enumerate().map(|(i, byte)| (at + i as u64, *byte)));
            }
            assert_eq!(found, self.0);
            assert_eq!(extents.bytes(), self.0.len());
            assert_eq!(extents.end(), self.0.last_key_value().map_or(0, |(at, _)| at + 1));
        }
    }

    #[test]
    fn random_writes_fills_and_carvings_are_as_byte_by_byte() {
        for seed in 0..200 {
            let mut random = SmallRng::seed_from_u64(seed);
            let (mut extents, mut plain) = (Extents::default(), Plain::default());
            for clock in 0..60u64 {
                let (offset, length) =
                    (random.random_range(0..300u64), random.random_range(1..50usize));
                let data = Bytes::from(vec![random.random::<u8>(); length]);
                let places = offset..offset + length as u64;
                match random.random_range(0..6) {
                    0 => {
                        extents.carve(places.start, places.end);
                        plain.0.retain(|at, _| !places.contains(at));
                    }
                    1 => {
                        extents.fill(&Chunk { offset, data: data.clone(), first: clock });
                        places.for_each(|at| {
                            plain.0.entry(at).or_insert(data[0]);
                        });
                    }
                    2 => {
                        let flying = [Chunk { offset, data: data.clone(), first: 0 }];
                        if let Some(chunk) = extents.take(&flying, false) {
                            assert!(!chunk.overlaps(places.start, places.end));
                            for (i, byte) in chunk.data.iter().enumerate() {
                                assert_eq!(plain.0.remove(&(chunk.offset + i as u64)), Some(*byte));
                            }
                        }
                    }
                    _ => {
                        extents.write(offset, data.clone(), clock);
                        plain.0.extend(places.map(|at| (at, data[0])));
                    }
                }
                plain.check(&extents);
            }
        }
    }

    #[test]
    fn small_writes_grow_into_full_chunks_and_only_those_go_early() {
        let mut extents = Extents::default();
        let step = 100_000;
        for i in 0..11u64 {
            assert_eq!(extents.take(&[], true), None, "nothing full after {i} writes");
            extents.write(i * step, Bytes::from(vec![7; step as usize]), i);
        }
        let chunk = extents.take(&[], true).expect("a full chunk");
        assert_eq!((chunk.offset, chunk.data.len(), chunk.first), (0, CHUNK, 0));
        assert_eq!(extents.take(&[], true), None);
        let rest = extents.take(&[], false).expect("the rest");
        assert_eq!(
            (rest.offset, rest.data.len(), rest.first),
            (CHUNK as u64, 1_100_000 - CHUNK, 10)
        );
        assert!(extents.is_empty());
    }

    #[test]
    fn a_megabyte_is_not_copied() {
        let mut extents = Extents::default();
        let data = Bytes::from(vec![1; CHUNK]);
        extents.write(0, data.clone(), 1);
        let chunk = extents.take(&[], true).expect("full at once");
        assert_eq!(chunk.data.as_ptr(), data.as_ptr());
    }

    #[test]
    fn layers_grow_the_base_with_zeros() {
        let layers = [(14, Bytes::from_static(b"xy")), (11, Bytes::from_static(b"B"))];
        assert_eq!(
            overlay(Bytes::from_static(b"abc"), 10, &layers),
            Bytes::from_static(b"aBc\0xy")
        );
        assert_eq!(overlay(Bytes::from_static(b"abc"), 10, &[]), Bytes::from_static(b"abc"));
        assert_eq!(overlay(Bytes::new(), 10, &layers[..1]), Bytes::from_static(b"\0\0\0\0xy"));
    }
}
