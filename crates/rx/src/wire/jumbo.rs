//! Jumbograms: several data packets in one datagram.
//!
//! Each packet but the last has [`flags::JUMBO_PACKET`] and exactly 1412 bytes of data, then a
//! header of four bytes (flags, zero, checksum) for the next one. All other fields follow from the
//! first header: sequence numbers and serials count up. We read jumbograms and send none.

use super::header::{PacketHeader, flags};

/// Data of each packet but the last.
const JUMBO_DATA_BYTES: usize = 1412;
const JUMBO_HEADER_BYTES: usize = 4;

/// The packets of a datagram of data, in order. A datagram that ends too early ends the sequence;
/// the packets before that are good.
#[derive(Clone, Debug)]
pub struct Subpackets<'a> {
    next: Option<(PacketHeader, &'a [u8])>,
}

impl<'a> Subpackets<'a> {
    /// The packets of a datagram with this first header and the bytes after it.
    pub fn new(header: PacketHeader, rest: &'a [u8]) -> Self {
        Subpackets { next: Some((header, rest)) }
    }
}

impl<'a> Iterator for Subpackets<'a> {
    type Item = (PacketHeader, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = self.next.take()?;
        if !header.has(flags::JUMBO_PACKET) {
            return Some((header, rest));
        }
        let (data, rest) = rest.split_at_checked(JUMBO_DATA_BYTES)?;
        let (small, rest) = rest.split_first_chunk::<JUMBO_HEADER_BYTES>()?;
        let following = PacketHeader {
            seq: header.seq.checked_add(1)?,
            serial: header.serial.wrapping_add(1),
            flags: small[0] | (header.flags & flags::CLIENT_INITIATED),
            checksum: u16::from_be_bytes([small[2], small[3]]),
            user_status: 0,
            ..header
        };
        self.next = Some((following, rest));
        Some((header, data))
    }
}
