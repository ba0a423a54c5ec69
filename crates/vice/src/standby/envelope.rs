//! The answer to a standby's question: what the volume's server says of itself, before the entries.

use bytes::{Buf, BufMut, Bytes};
use types::FeedPlace;

/// The version of this form.
const VERSION: u8 = 1;
/// Bytes of an envelope without its entries.
pub(super) const ENVELOPE_BYTES: usize = 1 + 8 + 8 + 8 + 8 + 1;

/// The fields before the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnvelopeHead {
    /// The number of the answer; the next question names it.
    pub serial: u64,
    /// The place behind the last entry of the feed; the standby may not have it yet.
    pub end: FeedPlace,
    /// Entries before this position shall be on disk: a caller waits for it.
    pub sync_to: u64,
    /// The database lists the standby as one that may take over.
    pub in_step: bool,
}

/// See the head of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub head: EnvelopeHead,
    /// As `store::Standbys::apply` takes them; empty: none.
    pub entries: Bytes,
}

impl EnvelopeHead {
    /// The envelope without entries, which follow.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENVELOPE_BYTES);
        out.put_u8(VERSION);
        out.put_u64(self.serial);
        out.put_u64(self.end.feed);
        out.put_u64(self.end.position);
        out.put_u64(self.sync_to);
        out.put_u8(self.in_step.into());
        out
    }
}

impl Envelope {
    /// `None`: this is no envelope, or one of a later form.
    pub fn decode(mut from: Bytes) -> Option<Envelope> {
        if from.len() < ENVELOPE_BYTES || from.get_u8() != VERSION {
            return None;
        }
        let serial = from.get_u64();
        let end = FeedPlace { feed: from.get_u64(), position: from.get_u64() };
        let sync_to = from.get_u64();
        let in_step = match from.get_u8() {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Envelope { head: EnvelopeHead { serial, end, sync_to, in_step }, entries: from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_read_as_it_was_written() {
        let (end, entries) = (FeedPlace { feed: 7, position: 9 }, Bytes::from_static(b"entries"));
        let head = EnvelopeHead { serial: 3, end, sync_to: 8, in_step: true };
        let bytes = Bytes::from([&head.encode()[..], &entries].concat());
        assert_eq!(bytes.len(), ENVELOPE_BYTES + 7);
        assert_eq!(Envelope::decode(bytes.clone()), Some(Envelope { head, entries }));
        for short in 0..ENVELOPE_BYTES {
            assert_eq!(Envelope::decode(bytes.slice(..short)), None, "{short} bytes");
        }
        let mut later = bytes.to_vec();
        later[0] = VERSION + 1;
        assert_eq!(Envelope::decode(later.into()), None);
        let mut strange = bytes.to_vec();
        strange[ENVELOPE_BYTES - 1] = 2;
        assert_eq!(Envelope::decode(strange.into()), None);
    }
}
