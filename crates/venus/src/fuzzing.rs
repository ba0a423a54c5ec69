//! Checks of the fuzz targets on data read back from the disk cache; plain tests run them too
//! (feature `fuzzing`).

use crate::data::disk_cache_map::{CacheMap, fid_of, file_name};

/// A map is refused, or is the same when it is written again. The check computes the sum itself:
/// sums only find accidents.
pub fn map(bytes: &[u8]) {
    let summed = [bytes, &crc32c::crc32c(bytes).to_le_bytes()].concat();
    for bytes in [bytes, &summed] {
        let Some(map) = CacheMap::parse(bytes) else { continue };
        let again = map.to_bytes();
        assert!(again.len() <= bytes.len(), "more pieces than rows");
        assert_eq!(CacheMap::parse(&again), Some(map));
    }
}

/// The name of a cached file: an accepted name has only one form.
pub fn name(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(fid) = fid_of(text) {
        assert_eq!(file_name(fid), text);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn row() -> impl Strategy<Value = Vec<u8>> {
        (0u64..4, prop_oneof![Just(65_536), any::<u32>()], any::<u32>()).prop_map(
            |(index, bytes, sum)| {
                [&index.to_le_bytes()[..], &u32::to_le_bytes(bytes), &u32::to_le_bytes(sum)]
                    .concat()
            },
        )
    }

    proptest! {
        #[test]
        fn maps_of_any_rows(
            rows in vec(row(), 0..6),
            more in -1i64..2,
            cut in 0usize..3,
            rest in vec(any::<u8>(), 0..3),
        ) {
            let count = (rows.len() as i64 + more) as u64;
            let head = [&b"RIALTOC2"[..], &9u64.to_le_bytes(), &count.to_le_bytes()].concat();
            let whole = [head, rows.concat(), rest].concat();
            map(&whole[..whole.len().saturating_sub(cut)]);
        }

        #[test]
        fn any_bytes_as_a_map(bytes in vec(any::<u8>(), 0..100)) {
            map(&bytes);
        }

        #[test]
        fn any_text_as_a_name(text in "[0-9a-fA-F+.]{0,12}") {
            name(text.as_bytes());
        }
    }
}
