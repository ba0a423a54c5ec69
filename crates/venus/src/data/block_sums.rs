//! Checksums of blocks, and reading a body through its descriptor.

use std::os::fd::OwnedFd;

use bytes::Bytes;

/// Bytes that one checksum of a body covers. Source: docs/spec/store.md.
pub(crate) const SUMMED: u64 = 16 << 10;

static ZEROS: [u8; SUMMED as usize] = [0; SUMMED as usize];

/// The sum of `block`, a whole one or the last of the file, as the server has it unless it is a
/// hole.
pub(crate) fn block_sum(block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(block), &ZEROS[block.len()..])
}

/// Whether `block`, a whole one or the last of the file, has this sum; 0 is the sum of a hole.
pub(crate) fn matches_sum(block: &[u8], sum: u32) -> bool {
    block_sum(block) == sum || sum == 0 && block.iter().all(|byte| *byte == 0)
}

/// Whether these bytes, all of a body, match its sums.
pub(crate) fn agree(bytes: &[u8], sums: &[u32]) -> bool {
    let blocks = bytes.chunks(SUMMED as usize);
    blocks.len() == sums.len() && blocks.zip(sums).all(|(block, sum)| matches_sum(block, *sum))
}

pub(crate) fn read_at(fd: &OwnedFd, offset: u64, length: usize) -> Option<Bytes> {
    let mut buffer: Vec<u8> = Vec::with_capacity(length);
    while buffer.len() < length {
        let at = offset + buffer.len() as u64;
        // Reads into the spare capacity, which may be a little more than asked for.
        match rustix::io::pread(fd, rustix::buffer::spare_capacity(&mut buffer), at) {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
    buffer.truncate(length);
    Some(Bytes::from(buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_is_summed_as_if_zeros_followed() {
        let mut whole = vec![0; SUMMED as usize];
        whole[..3].copy_from_slice(b"end");
        let sum = crc32c::crc32c(&whole);
        assert!(matches_sum(b"end", sum) && matches_sum(&whole, sum));
        assert!(!matches_sum(b"eNd", sum) && !matches_sum(b"end", 0));
        assert!(matches_sum(&[0; 5], 0));
    }
}
