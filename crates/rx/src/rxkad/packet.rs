//! Checksum and seal of data packets.
//!
//! The checksum covers the packet's place only: connection, channel, call and sequence number, all
//! encrypted. The seal covers the place again, the length and, by level, the data. Neither has a
//! direction, so both sides compute the same.

use bytes::Bytes;

use super::fcrypt::{Fcrypt, FcryptBlock, block, block_bytes};
use crate::level::RxkadLevel;
use crate::wire::PacketHeader;

/// A packet whose seal is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadSeal;

/// The session of one connection.
#[derive(Clone, Debug)]
pub(crate) struct PacketSeal {
    cipher: Fcrypt,
    /// The key is the start of each packet's chain, too.
    iv: FcryptBlock,
    /// Stands for the connection in checksums.
    pre_sequence: FcryptBlock,
    level: RxkadLevel,
}

impl PacketSeal {
    pub(crate) fn new(key: [u8; 8], level: RxkadLevel, epoch: u32, cid: u32, index: u8) -> Self {
        let (cipher, iv) = (Fcrypt::new(key), block(key));
        let words = [epoch, cid & !3, 0, u32::from(index)];
        let mut bytes = [0; 16];
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        cipher.encrypt_pcbc(iv, &mut bytes);
        let [.., a, b, c, d, e, f, g, h] = bytes;
        let pre_sequence = block([a, b, c, d, e, f, g, h]);
        PacketSeal { cipher, iv, pre_sequence, level }
    }

    pub(crate) fn level(&self) -> RxkadLevel {
        self.level
    }

    pub(crate) fn checksum(&self, call: u32, channel: u32, seq: u32) -> u16 {
        let place = [call, (channel & 3) << 30 | (seq & 0x3fff_ffff)];
        let pre = self.pre_sequence;
        let [_, word] = self.cipher.encrypt([place[0] ^ pre[0], place[1] ^ pre[1]]);
        match (word >> 16) as u16 {
            0 => 1, // Zero means that there is no checksum.
            checksum => checksum,
        }
    }

    pub(crate) fn verify(&self, header: &PacketHeader) -> bool {
        header.checksum == self.checksum(header.call, header.cid, header.seq)
    }

    pub(crate) fn head_bytes(&self) -> usize {
        match self.level {
            RxkadLevel::Clear => 0,
            RxkadLevel::Auth => 4,
            RxkadLevel::Crypt => 8,
        }
    }

    pub(crate) fn tail_bytes_max(&self) -> usize {
        match self.level {
            RxkadLevel::Clear => 0,
            RxkadLevel::Auth => 4,
            RxkadLevel::Crypt => 7,
        }
    }

    pub(crate) fn filled_max(&self, body_max: usize) -> usize {
        match self.level {
            RxkadLevel::Clear | RxkadLevel::Auth => body_max,
            RxkadLevel::Crypt => body_max / 8 * 8,
        }
    }

    /// Seals a body that has an empty head and data.
    pub(crate) fn seal(&self, (call, channel, seq): (u32, u8, u32), body: &mut Vec<u8>) -> u16 {
        let head = self.head_bytes();
        let data_bytes = (body.len() - head) as u32;
        let word = ((seq ^ call) & 0xffff) << 16 | data_bytes;
        match self.level {
            RxkadLevel::Clear => {}
            RxkadLevel::Auth => {
                body.resize(body.len().max(8), 0);
                body[..4].copy_from_slice(&word.to_be_bytes());
                if let Some(first) = body.first_chunk_mut::<8>() {
                    *first = block_bytes(self.cipher.encrypt(block(*first)));
                }
            }
            RxkadLevel::Crypt => {
                body.resize(body.len().next_multiple_of(8), 0);
                body[..4].copy_from_slice(&word.to_be_bytes());
                self.cipher.encrypt_pcbc(self.iv, body);
            }
        }
        self.checksum(call, u32::from(channel), seq)
    }

    /// The data of a body whose checksum is right.
    pub(crate) fn open(&self, header: &PacketHeader, body: &[u8]) -> Result<Bytes, BadSeal> {
        let head = self.head_bytes();
        let mut body = body.to_vec();
        match self.level {
            RxkadLevel::Clear => return Ok(Bytes::from(body)),
            RxkadLevel::Auth => {
                let first = body.first_chunk_mut::<8>().ok_or(BadSeal)?;
                *first = block_bytes(self.cipher.decrypt(block(*first)));
            }
            RxkadLevel::Crypt if body.len().is_multiple_of(8) => {
                self.cipher.decrypt_pcbc(self.iv, &mut body);
            }
            RxkadLevel::Crypt => return Err(BadSeal),
        }
        let word = u32::from_be_bytes(*body.first_chunk::<4>().ok_or(BadSeal)?);
        let data_bytes = (word & 0xffff) as usize;
        if word >> 16 != (header.seq ^ header.call) & 0xffff || head + data_bytes > body.len() {
            return Err(BadSeal);
        }
        Ok(Bytes::from(body).slice(head..head + data_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{hex, unhex};

    const KEY: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];

    fn seal(level: RxkadLevel) -> PacketSeal {
        PacketSeal::new(KEY, level, 0x8000_1234, 0x00ab_cd00, 2)
    }

    #[test]
    fn the_worked_example_has_its_checksums() {
        let seal = seal(RxkadLevel::Clear);
        assert_eq!(hex(&block_bytes(seal.pre_sequence)), "8f4506ea88d8c533");
        assert_eq!(seal.checksum(1, 0, 1), 0x6a47);
        assert_eq!(seal.checksum(7, 2, 5), 0x1796);
    }

    #[test]
    fn the_worked_example_has_its_bodies() {
        let data = unhex(b"000000840000000161626300").unwrap();
        let header = PacketHeader { call: 1, seq: 1, ..PacketHeader::default() };
        for (level, sealed) in [
            (RxkadLevel::Clear, "000000840000000161626300"),
            (RxkadLevel::Auth, "c97639276c17cc030000000161626300"),
            (RxkadLevel::Crypt, "66734f0484dc5a26004c543220b9fea28d6420dd28c61449"),
        ] {
            let seal = seal(level);
            let mut body = vec![0; seal.head_bytes()];
            body.extend_from_slice(&data);
            assert_eq!(seal.seal((1, 0, 1), &mut body), 0x6a47);
            assert_eq!(hex(&body), sealed, "{level:?}");
            assert_eq!(seal.open(&header, &body).unwrap(), data, "{level:?}");
        }
    }

    #[test]
    fn a_body_of_another_place_does_not_open() {
        for level in [RxkadLevel::Auth, RxkadLevel::Crypt] {
            let seal = seal(level);
            let mut body = vec![0; seal.head_bytes() + 3];
            seal.seal((1, 0, 1), &mut body);
            let other = PacketHeader { call: 1, seq: 2, ..PacketHeader::default() };
            assert_eq!(seal.open(&other, &body), Err(BadSeal), "{level:?}");
            let right = PacketHeader { seq: 1, ..other };
            assert_eq!(seal.open(&right, &body[..7]), Err(BadSeal), "{level:?}");
        }
    }
}
