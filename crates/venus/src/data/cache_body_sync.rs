//! A cache body that the kernel has: its bytes, and the records that tell the client's bytes from
//! the server's.
//!
//! It changes in three ways: *put* enters what was written here through a handle; *adopt* replaces
//! bytes by the server's; and maps store without a report. Bytes that were put while the server is
//! followed, or had not landed when the following began, are *ours*, and adopt does not replace
//! them.
//!
//! `sums` are of the server's blocks, to be compared with the server's; none where a block changed
//! here. `pages` are of the bytes put or adopted into each page, from the time when an application
//! may map the file for writing: a map stored to a page that differs. So they are computed from the
//! intended bytes and never read back: a store that comes between is not taken for ours.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock};
use std::{fs, io};

use bytes::Bytes;

use super::{BodyStamp, PIECE, SUMMED, block_sum};

/// A page of memory.
const PAGE: u64 = 4096;

/// Bytes per read when the whole body is checked.
const STRIDE: u64 = 1 << 20;

/// The sum of a block of zeros that is no hole.
static ZERO_SUM: LazyLock<u32> = LazyLock::new(|| block_sum(&[0; SUMMED as usize]));

pub(crate) type At = (u64, Bytes);

pub(crate) struct Body {
    pub file: Arc<fs::File>,
    size: u64,
    /// 0 is a hole.
    sums: Vec<Option<u32>>,
    pages: Option<Pages>,
    ours: Option<Vec<(u64, u64)>>,
    pub changed: BTreeSet<u64>,
}

struct Pages {
    sums: Vec<u32>,
    /// State of the body at the last check for stores, except for bytes put since.
    checked: Option<BodyStamp>,
}

impl Body {
    pub fn new(file: Arc<fs::File>, size: u64, sums: &[u32]) -> Self {
        let sums = sums.iter().copied().map(Some).collect();
        Body { file, size, sums, pages: None, ours: None, changed: BTreeSet::new() }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// An application may map the body for writing from now on.
    ///
    /// # Errors
    /// That of the disk.
    pub fn watch_pages(&mut self) -> io::Result<()> {
        if self.pages.is_some() {
            return Ok(());
        }
        let mut sums = Vec::with_capacity(self.size.div_ceil(PAGE) as usize);
        let checked = BodyStamp::of(&self.file);
        for start in (0..self.size).step_by(STRIDE as usize) {
            let bytes = self.read(start, (start + STRIDE).min(self.size))?;
            sums.extend(bytes.chunks(PAGE as usize).map(page_sum));
        }
        self.pages = Some(Pages { sums, checked });
        Ok(())
    }

    /// Whether an application may map it for writing.
    pub fn is_watched(&self) -> bool {
        self.pages.is_some()
    }

    /// `start..end`, with zeros behind the end.
    fn read(&self, start: u64, end: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (end - start) as usize];
        let mut at = 0;
        while at < bytes.len() {
            match self.file.read_at(&mut bytes[at..], start + at as u64)? {
                0 => break,
                count => at += count,
            }
        }
        Ok(bytes)
    }

    /// Enters bytes written here.
    ///
    /// # Errors
    /// That of the disk.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(ours) = &mut self.ours {
            ours.push((offset, offset + bytes.len() as u64));
        }
        self.write(offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if end > self.size {
            self.resize(end)?;
        }
        let as_left =
            self.pages.as_ref().is_some_and(|pages| pages.checked == BodyStamp::of(&self.file));
        let expected = self.expected(offset, bytes)?;
        self.file.write_all_at(bytes, offset)?;
        for block in offset / SUMMED..end.div_ceil(SUMMED) {
            self.sums[block as usize] = None;
        }
        self.changed.extend(offset / PIECE..end.div_ceil(PIECE));
        if let Some(pages) = &mut self.pages {
            for (page, sum) in expected {
                pages.sums[page as usize] = sum;
            }
            if as_left {
                pages.checked = BodyStamp::of(&self.file);
            }
        }
        Ok(())
    }

    /// The sums of the pages that `bytes` are about to be written into. A page with a store of a
    /// map, of which a part stays, retains its sum and so still differs from it.
    fn expected(&self, offset: u64, bytes: &[u8]) -> io::Result<Vec<(u64, u32)>> {
        let Some(pages) = &self.pages else { return Ok(Vec::new()) };
        let end = offset + bytes.len() as u64;
        let mut expected = Vec::new();
        for page in offset / PAGE..end.div_ceil(PAGE) {
            let (start, stop) = (page * PAGE, (page + 1) * PAGE);
            let (from, to) = (offset.max(start), end.min(stop));
            let new = &bytes[(from - offset) as usize..(to - offset) as usize];
            if from == start && to >= stop.min(self.size) {
                expected.push((page, page_sum(new)));
                continue;
            }
            let mut whole = self.read(start, stop)?;
            if page_sum(&whole) == pages.sums[page as usize] {
                whole[(from - start) as usize..(to - start) as usize].copy_from_slice(new);
                expected.push((page, page_sum(&whole)));
            }
        }
        Ok(expected)
    }

    /// Sets the body's length; new bytes are zeros.
    ///
    /// # Errors
    /// That of the disk.
    pub fn resize(&mut self, size: u64) -> io::Result<()> {
        if size == self.size {
            return Ok(());
        }
        let cut = size.min(self.size);
        let last = cut / PAGE;
        let as_left =
            self.pages.as_ref().is_some_and(|pages| pages.checked == BodyStamp::of(&self.file));
        let unstored = match &self.pages {
            Some(pages) if !cut.is_multiple_of(PAGE) => {
                let whole = self.read(last * PAGE, (last + 1) * PAGE)?;
                (page_sum(&whole) == pages.sums[last as usize]).then_some(whole)
            }
            _ => None,
        };
        self.file.set_len(size)?;
        self.sums.resize(size.div_ceil(SUMMED) as usize, Some(0));
        if size < self.size
            && !size.is_multiple_of(SUMMED)
            && let Some(sum) = self.sums.last_mut()
        {
            *sum = None;
        }
        if let Some(pages) = &mut self.pages {
            pages.sums.resize(size.div_ceil(PAGE) as usize, page_sum(&[]));
            if let Some(mut whole) = unstored
                && size < self.size
            {
                whole.truncate((size - last * PAGE) as usize);
                pages.sums[last as usize] = page_sum(&whole);
            }
            if as_left {
                pages.checked = BodyStamp::of(&self.file);
            }
        }
        self.changed.extend([self.size / PIECE, size / PIECE]);
        self.size = size;
        Ok(())
    }

    /// A following of the server begins; these ranges are ours already.
    pub fn begin(&mut self, ours: Vec<(u64, u64)>) {
        debug_assert!(self.ours.is_none(), "PT-6: one round at a time knows which bytes are ours");
        self.ours = Some(ours);
    }

    /// The following ended. Returns whether any bytes were ours.
    pub fn end(&mut self) -> bool {
        self.ours.take().is_some_and(|ours| !ours.is_empty())
    }

    /// The server's file ends here; own bytes behind it stay.
    ///
    /// # Errors
    /// That of the disk.
    pub fn follow_size(&mut self, size: u64) -> io::Result<()> {
        let ours = self.ours.iter().flatten().map(|(_, end)| *end).max().unwrap_or(0);
        self.resize(size.max(ours))
    }

    /// Those of the server's blocks from `first` on that have another sum here.
    ///
    /// # Errors
    /// That of the disk.
    pub fn differing(&mut self, first: u64, theirs: &[u32]) -> io::Result<Vec<u64>> {
        let mut differing = Vec::new();
        for (block, theirs) in (first..).zip(theirs) {
            let Some(here) = self.sums.get(block as usize) else { break };
            let here = match here {
                Some(sum) => *sum,
                None => {
                    let start = block * SUMMED;
                    let sum = block_sum(&self.read(start, (start + SUMMED).min(self.size))?);
                    self.sums[block as usize] = Some(sum);
                    sum
                }
            };
            let is_zero = |sum: u32| sum == 0 || sum == *ZERO_SUM;
            if here != *theirs && !(is_zero(here) && is_zero(*theirs)) {
                differing.push(block);
            }
        }
        Ok(differing)
    }

    /// Enters the server's bytes from `offset` on, the start of a block. `sums` of these blocks, if
    /// they are known to belong to it.
    ///
    /// # Errors
    /// That of the disk.
    pub fn adopt(&mut self, offset: u64, bytes: &[u8], sums: Option<&[u32]>) -> io::Result<()> {
        let bytes = &bytes[..bytes.len().min(self.size.saturating_sub(offset) as usize)];
        let end = offset + bytes.len() as u64;
        let mut keep: Vec<(u64, u64)> = self.ours.iter().flatten().copied().collect();
        keep.extend(self.stored_pages(offset, end)?);
        let parts = outside(offset, end, keep);
        let all = parts.iter().map(|(from, to)| to - from).sum::<u64>() == end - offset;
        for (from, to) in parts {
            self.write(from, &bytes[(from - offset) as usize..(to - offset) as usize])?;
        }
        if let Some(sums) = sums.filter(|_| all) {
            for (block, sum) in (offset / SUMMED..end.div_ceil(SUMMED)).zip(sums) {
                self.sums[block as usize] = Some(*sum);
            }
        }
        Ok(())
    }

    /// Pages in `start..end` that a map stored to.
    fn stored_pages(&self, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
        let Some(pages) = &self.pages else { return Ok(Vec::new()) };
        let (first, last) = (start / PAGE, end.div_ceil(PAGE));
        let bytes = self.read(first * PAGE, last * PAGE)?;
        let all = (first..last).zip(bytes.chunks(PAGE as usize));
        let stored = all.filter(|(page, bytes)| {
            pages.sums.get(*page as usize).is_some_and(|sum| *sum != page_sum(bytes))
        });
        Ok(stored.map(|(page, _)| (page * PAGE, (page + 1) * PAGE)).collect())
    }

    /// The stores of maps since the last call, `most` bytes or a little more; these pages are ours
    /// then. Returns with them whether there may be more. `sure`: checks every page, also if the
    /// times show no store.
    ///
    /// # Errors
    /// That of the disk.
    pub fn take_stores(&mut self, most: u64, sure: bool) -> io::Result<(Vec<At>, bool)> {
        if self.pages.is_none() {
            return Ok((Vec::new(), false));
        }
        mem::writeback::start(self.file.as_fd())?;
        let now = BodyStamp::of(&self.file);
        let mut stores = Vec::new();
        let mut bytes = 0;
        if !sure && self.pages.as_ref().is_some_and(|pages| now.is_some() && pages.checked == now) {
            return Ok((stores, false));
        }
        for start in (0..self.size).step_by(STRIDE as usize) {
            let end = (start + STRIDE).min(self.size);
            let here = Bytes::from(self.read(start, end)?);
            let Some(pages) = &mut self.pages else { break };
            for (page, at) in (start / PAGE..).zip((0..here.len()).step_by(PAGE as usize)) {
                let part = here.slice(at..here.len().min(at + PAGE as usize));
                let sum = page_sum(&part);
                if pages.sums[page as usize] == sum {
                    continue;
                }
                pages.sums[page as usize] = sum;
                self.sums[(page * PAGE / SUMMED) as usize] = None;
                self.changed.insert(page * PAGE / PIECE);
                if let Some(ours) = &mut self.ours {
                    ours.push((page * PAGE, (page + 1) * PAGE));
                }
                bytes += part.len() as u64;
                stores.push((page * PAGE, part));
            }
            if bytes >= most {
                return Ok((stores, true));
            }
        }
        if let Some(pages) = &mut self.pages {
            pages.checked = now;
        }
        Ok((stores, false))
    }
}

/// The sum as if zeros followed up to the page's end.
fn page_sum(page: &[u8]) -> u32 {
    static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
    crc32c::crc32c_append(crc32c::crc32c(page), &ZEROS[page.len()..])
}

/// The parts of `start..end` outside the `holes`.
fn outside(start: u64, end: u64, mut holes: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    holes.sort_unstable();
    let mut parts = Vec::new();
    let mut at = start;
    for (from, to) in holes {
        if from > at && at < end {
            parts.push((at, from.min(end)));
        }
        at = at.max(to);
    }
    if at < end {
        parts.push((at, end));
    }
    parts
}

#[cfg(test)]
mod tests {
    use mem::map::Map;

    use super::*;

    fn body(size: usize) -> Body {
        let file = tempfile::tempfile().unwrap();
        let bytes = content(size, 1);
        file.write_all_at(&bytes, 0).unwrap();
        let sums: Vec<u32> = bytes.chunks(SUMMED as usize).map(block_sum).collect();
        Body::new(Arc::new(file), size as u64, &sums)
    }

    fn content(size: usize, seed: u8) -> Vec<u8> {
        (0..size).map(|at| (at / 7) as u8 ^ seed).collect()
    }

    fn sums_of(bytes: &[u8]) -> Vec<u32> {
        bytes.chunks(SUMMED as usize).map(block_sum).collect()
    }

    fn whole(body: &Body) -> Vec<u8> {
        body.read(0, body.file.metadata().unwrap().len()).unwrap()
    }

    #[test]
    fn ranges_outside_of_holes() {
        assert_eq!(
            outside(10, 20, vec![(12, 14), (0, 11), (13, 15), (19, 30)]),
            [(11, 12), (15, 19)]
        );
        assert_eq!(outside(10, 20, vec![(0, 100)]), []);
        assert_eq!(outside(10, 20, vec![(0, 5), (25, 30)]), [(10, 20)]);
    }

    #[test]
    fn the_servers_bytes_replace_others_and_not_ours() {
        let size = 100_000;
        let mut body = body(size);
        let theirs = content(size, 9);
        body.begin(vec![(5, 10)]);
        body.put(20_000, b"mine").unwrap();
        let differing = body.differing(0, &sums_of(&theirs)).unwrap();
        assert_eq!(differing, (0..7).collect::<Vec<_>>());
        body.adopt(0, &theirs, Some(&sums_of(&theirs))).unwrap();
        assert!(body.end(), "something was ours");
        let mut expected = theirs.clone();
        expected[5..10].copy_from_slice(&content(size, 1)[5..10]);
        expected[20_000..20_004].copy_from_slice(b"mine");
        assert!(whole(&body) == expected);
        // Repeated, now that the own write has landed.
        body.begin(Vec::new());
        assert_eq!(body.differing(0, &sums_of(&theirs)).unwrap(), [0, 1]);
        body.adopt(0, &theirs[..2 * SUMMED as usize], Some(&sums_of(&theirs)[..2])).unwrap();
        assert!(!body.end());
        assert!(whole(&body) == theirs);
        assert_eq!(body.differing(0, &sums_of(&theirs)).unwrap(), [0; 0]);
    }

    #[test]
    fn it_grows_and_is_cut_and_the_sums_go_along() {
        let mut body = body(40_000);
        body.watch_pages().unwrap();
        let mut expected = content(40_000, 1);
        for size in [40_001, 100_000, 33_000, 0, 5, 70_000] {
            body.resize(size).unwrap();
            expected.resize(size as usize, 0);
            assert!(whole(&body) == expected, "{size}");
            assert_eq!(body.differing(0, &sums_of(&expected)).unwrap(), [0; 0], "{size}");
            assert_eq!(body.take_stores(u64::MAX, true).unwrap(), (vec![], false), "{size}");
        }
    }

    #[test]
    fn stores_of_maps_are_found_beside_puts_and_survive_adopts() {
        let size = 3 << 20;
        let mut body = body(size);
        body.watch_pages().unwrap();
        let mut map = Map::new(&*body.file, size, true).unwrap();
        assert_eq!(body.take_stores(u64::MAX, false).unwrap(), (vec![], false));
        map.write(4096 * 3 + 1, b"stored");
        body.put(4096 * 3 + 100, b"put").unwrap();
        body.put(4096 * 5, &[7; 8192]).unwrap();
        map.write(2 << 20, b"too");
        let theirs = vec![3; 64 << 10];
        body.begin(Vec::new());
        body.adopt(0, &theirs, None).unwrap();
        body.end();
        let (stores, more) = body.take_stores(u64::MAX, false).unwrap();
        assert!(!more);
        let places: Vec<u64> = stores.iter().map(|(at, _)| *at).collect();
        assert_eq!(places, [4096 * 3, 2 << 20], "not what was put");
        assert_eq!(&stores[0].1[1..7], b"stored");
        assert_eq!(&stores[0].1[100..103], b"put");
        assert_eq!(&stores[1].1[..3], b"too");
        assert_eq!(body.take_stores(u64::MAX, true).unwrap(), (vec![], false));
        map.write(9, b"again");
        assert_eq!(
            body.take_stores(u64::MAX, false).unwrap().0.len(),
            1,
            "a clean page faults and sets the times"
        );
    }
}
