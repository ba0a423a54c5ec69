//! The receiving half of a call: what arrived, and how far the reader is.
//!
//! `taken` is the number of the next packet that the reader takes; it is the hard acknowledgement.
//! Place i of `queue` is packet `taken + i`, and the last place is never empty. So the window of
//! `taken ..  taken + window` bounds the queue, and each byte is given once and in order (RX-3).

use std::collections::VecDeque;

use bytes::Bytes;

use crate::event::RxRead;
use crate::wire::AckPacket;

/// How a data packet fits in, before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Not here yet, and within the window.
    New,
    /// Here, or with the reader.
    Duplicate,
    /// After the window.
    Beyond,
    /// After the last packet, or a last packet before others.
    Senseless,
}

#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    taken: u32,
    /// The first packet that is missing.
    next: u32,
    queue: VecDeque<Option<Bytes>>,
    /// The rest of the packet that the reader is in.
    front: Bytes,
    last: Option<u32>,
    /// The largest number that arrived.
    previous: u32,
    window: u32,
    bytes: usize,
    /// The reader wants no more: what arrives counts as read.
    discards: bool,
}

impl ReceiveHalf {
    pub(crate) fn new(window: u16) -> Self {
        ReceiveHalf {
            taken: 1,
            next: 1,
            queue: VecDeque::new(),
            front: Bytes::new(),
            last: None,
            previous: 0,
            window: u32::from(window),
            bytes: 0,
            discards: false,
        }
    }

    /// How a packet with this number fits in.
    pub(crate) fn look(&self, seq: u32, is_last: bool) -> Arrival {
        if seq == 0 || self.last.is_some_and(|last| seq > last || (is_last && seq != last)) {
            return Arrival::Senseless;
        }
        let Some(place) = seq.checked_sub(self.taken) else { return Arrival::Duplicate };
        if place >= self.window {
            return Arrival::Beyond;
        }
        match self.queue.get(place as usize) {
            Some(Some(_)) => Arrival::Duplicate,
            Some(None) if is_last => Arrival::Senseless,
            _ => Arrival::New,
        }
    }

    /// Whether the packet is the one that the reader waits for.
    pub(crate) fn is_next(&self, seq: u32) -> bool {
        seq == self.next
    }

    /// Takes in a packet for which [`Self::look`] said that it is new.
    pub(crate) fn accept(&mut self, seq: u32, is_last: bool, data: Bytes) {
        assert_eq!(self.look(seq, is_last), Arrival::New, "RX-3: packet {seq} is looked at first");
        let place = (seq - self.taken) as usize;
        if place >= self.queue.len() {
            self.queue.resize(place + 1, None);
        }
        let data = if self.discards { Bytes::new() } else { data };
        self.bytes += data.len();
        self.queue[place] = Some(data);
        self.previous = self.previous.max(seq);
        if is_last {
            self.last = Some(seq);
        }
        while self.queue.get((self.next - self.taken) as usize).is_some_and(Option::is_some) {
            self.next += 1;
        }
        if self.discards {
            self.skip();
        }
    }

    /// The next bytes, at most `max`.
    pub(crate) fn read(&mut self, max: usize) -> RxRead {
        while self.front.is_empty() {
            if self.is_at_end() {
                return RxRead::End;
            }
            let Some(Some(_)) = self.queue.front() else { return RxRead::Nothing };
            self.front = self.queue.pop_front().flatten().unwrap_or_default();
            self.taken += 1;
        }
        let part = self.front.split_to(max.min(self.front.len()));
        self.bytes -= part.len();
        RxRead::Bytes(part)
    }

    /// The reader wants no more.
    pub(crate) fn discard(&mut self) {
        self.discards = true;
        self.front = Bytes::new();
        self.skip();
        self.bytes = 0;
        self.queue.iter_mut().flatten().for_each(|data| *data = Bytes::new());
    }

    fn skip(&mut self) {
        while let Some(Some(_)) = self.queue.front() {
            self.queue.pop_front();
            self.taken += 1;
        }
    }

    fn is_at_end(&self) -> bool {
        self.last.is_some_and(|last| self.taken > last)
    }

    /// Whether a read would return something.
    pub(crate) fn is_readable(&self) -> bool {
        !self.front.is_empty() || self.next > self.taken || self.is_at_end()
    }

    /// Whether everything arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.last.is_some_and(|last| self.next > last)
    }

    /// Whether a packet is missing before one that is here.
    pub(crate) fn has_hole(&self) -> bool {
        ((self.next - self.taken) as usize) < self.queue.len()
    }

    /// The hard acknowledgement.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// The largest number that arrived. It never falls, because peers ignore an acknowledgement
    /// that names a smaller one than an earlier one did.
    pub(crate) fn previous(&self) -> u32 {
        self.previous
    }

    /// Writes the soft acknowledgements; returns how many there are.
    pub(crate) fn soft_acks(&self, acks: &mut [u8; AckPacket::ACKS_MAX]) -> usize {
        for (ack, place) in acks.iter_mut().zip(&self.queue) {
            *ack = u8::from(place.is_some());
        }
        self.queue.len().min(AckPacket::ACKS_MAX)
    }

    /// Bytes that are buffered.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
