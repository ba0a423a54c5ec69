//! The bytes of a file: pages of a map. A page that is absent is zeros, so a file may be very long
//! and mostly holes.

use std::collections::BTreeMap;

/// Bytes of a page. Independent of the real store.
const PAGE: u64 = 4096;

/// A file's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelBody {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl ModelBody {
    /// Bytes from 0 to the end.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn set(&mut self, at: u64, value: u8) {
        let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
        page[(at % PAGE) as usize] = value;
    }

    /// Up to `length` bytes from `offset` on; fewer only at the end.
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end {
            return Vec::new();
        }
        let mut bytes = vec![0; (end - offset) as usize];
        for (number, page) in self.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let (from, to) = ((number * PAGE).max(offset), ((number + 1) * PAGE).min(end));
            if from < to {
                let page = &page[(from - number * PAGE) as usize..(to - number * PAGE) as usize];
                bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(page);
            }
        }
        bytes
    }

    /// Puts `data` at `offset`, growing the file if needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (at, value) in (offset..).zip(data) {
            self.set(at, *value);
        }
        self.grow(offset + data.len() as u64);
    }

    /// Makes the file at least `size` long.
    pub fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Zeros the bytes from `start` to `end` (excluded).
    pub fn zero(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let touched: Vec<u64> =
            self.pages.range(start / PAGE..end.div_ceil(PAGE)).map(|(page, _)| *page).collect();
        for page in touched {
            let first = start.max(page * PAGE);
            let last = end.min((page + 1) * PAGE);
            (first..last).for_each(|at| self.set(at, 0));
        }
    }

    /// Cuts or grows to `size`; new bytes are zeros.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size);
        }
        self.size = size;
    }

    /// The first byte from `offset` on that is not zero.
    pub fn next_nonzero(&self, offset: u64) -> Option<u64> {
        let pages = self.pages.range(offset / PAGE..);
        pages
            .flat_map(|(page, bytes)| (page * PAGE..).zip(bytes))
            .find(|(at, byte)| *at >= offset && **byte != 0)
            .map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_comes_back_as_zeros() {
        let mut body = ModelBody::default();
        body.write(4090, b"twelve bytes");
        body.resize(4094);
        body.resize(5000);
        assert_eq!(body.read(4088, 10), b"\0\0twel\0\0\0\0");
        assert_eq!(body.size(), 5000);
    }

    #[test]
    fn a_hole_is_zeros_and_reading_past_the_end_is_short() {
        let mut body = ModelBody::default();
        body.write(1 << 40, b"x");
        assert_eq!(body.read((1 << 40) - 2, 10), b"\0\0x");
        assert_eq!(body.next_nonzero(0), Some(1 << 40));
        body.zero(0, u64::MAX / 2);
        assert_eq!(body.next_nonzero(0), None);
        assert!(body.read(u64::MAX - 1, 10).is_empty());
    }
}
