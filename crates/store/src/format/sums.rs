//! Checksums of blocks: the crc32c of a block's bytes up to the end of the body, followed by zeros.

use std::sync::LazyLock;

use crate::BLOCK_BYTES;

/// The bytes of a block, for slices.
pub(crate) const BLOCK: usize = BLOCK_BYTES as usize;

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The sum of a block of zeros that is not a hole.
pub(crate) static OF_ZEROS: LazyLock<u32> = LazyLock::new(|| of_block(&[]));

/// The sum of a block that begins with `bytes`. Never 0, which means a hole: a crc of 0 counts as
/// 1.
pub(crate) fn of_block(bytes: &[u8]) -> u32 {
    let sum = crc32c::crc32c(bytes);
    let sum =
        if bytes.len() < BLOCK { crc32c::crc32c_append(sum, &ZEROS[bytes.len()..]) } else { sum };
    sum.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_block_sums_as_if_filled_with_zeros() {
        let mut block = [0; BLOCK];
        block[..5].copy_from_slice(b"hello");
        assert_eq!(of_block(b"hello"), of_block(&block));
        assert_eq!(of_block(b"hello\0\0"), of_block(&block));
        assert_ne!(of_block(b"hello"), of_block(b"hellp"));
        assert_eq!(*OF_ZEROS, of_block(&[0; BLOCK]));
        assert_eq!(of_block(&block), crc32c::crc32c(&block));
    }
}
