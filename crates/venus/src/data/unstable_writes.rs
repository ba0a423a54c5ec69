//! Unstable bytes of one file: the server acknowledged them and may lose them
//! (`calls/unstable.rs`).

use types::BootVerifier;

use super::{Chunk, Extents};

#[derive(Default)]
pub(crate) struct UnstableWrites {
    pub bytes: Extents,
    pub verifier: BootVerifier,
    asked: Extents,
    asked_verifier: BootVerifier,
    /// The bytes asked about are known to be lost.
    pub asked_lost: bool,
}

/// Bytes that were cut out, newer before older, with their verifiers.
#[derive(Default)]
pub(crate) struct Cut([(BootVerifier, Vec<Chunk>); 2]);

impl UnstableWrites {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.asked.is_empty()
    }

    /// The number of bytes.
    pub fn all(&self) -> usize {
        self.bytes.bytes() + self.asked.bytes()
    }

    pub fn ask(&mut self) {
        debug_assert!(self.asked.is_empty(), "DU-4: one commit of a file asks at a time");
        self.asked_verifier = self.verifier;
        for chunk in self.bytes.take_all() {
            self.asked.fill(&chunk);
        }
    }

    /// The commit found the server under this verifier, or failed; returns the lost bytes.
    pub fn answered(&mut self, now: Option<BootVerifier>) -> Vec<Chunk> {
        let older = self.below_bytes();
        match now {
            Some(now) if now == self.asked_verifier => Vec::new(),
            None if self.bytes.is_empty() || self.verifier == self.asked_verifier => {
                self.verifier = self.asked_verifier;
                older.iter().for_each(|chunk| self.bytes.fill(chunk));
                Vec::new()
            }
            Some(_) | None => older,
        }
    }

    /// The server is under this verifier now; returns the lost bytes.
    pub fn lost(&mut self, now: BootVerifier) -> Vec<Chunk> {
        let mut lost = Vec::new();
        if !self.asked.is_empty() && self.asked_verifier != now {
            self.asked_lost = true;
            lost = self.below_bytes();
        }
        if self.verifier != now {
            lost.extend(self.bytes.take_all());
        }
        lost
    }

    /// Removes the bytes asked about, except where newer ones were written since; returns them.
    fn below_bytes(&mut self) -> Vec<Chunk> {
        for (at, newer) in self.bytes.within(0, u64::MAX) {
            self.asked.carve(at, at + newer.len() as u64);
        }
        self.asked.take_all()
    }

    pub fn cut(&mut self, start: u64, end: u64) -> Cut {
        let take = |part: &mut Extents| {
            let gone = part
                .within(start, end)
                .into_iter()
                .map(|(offset, data)| Chunk { offset, data, first: 0 })
                .collect();
            part.carve(start, end);
            gone
        };
        Cut([(self.verifier, take(&mut self.bytes)), (self.asked_verifier, take(&mut self.asked))])
    }

    /// Puts them back below newer bytes; returns those that were lost meanwhile.
    pub fn restore(&mut self, cut: Cut) -> Vec<Chunk> {
        let mut lost = Vec::new();
        for (verifier, chunks) in cut.0.into_iter().filter(|(_, chunks)| !chunks.is_empty()) {
            if self.bytes.is_empty() || self.verifier == verifier {
                self.verifier = verifier;
                chunks.iter().for_each(|chunk| self.bytes.fill(chunk));
            } else {
                lost.extend(chunks);
            }
        }
        lost
    }
}
