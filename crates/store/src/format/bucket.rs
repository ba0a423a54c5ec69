//! A bucket: the names of a directory that share a hash. An entry's index within its bucket is part
//! of its cookie and never changes.

use types::Name;

use crate::format::record::BucketEntry;
use crate::format::vnode::EntryTarget;
use crate::{BUCKET_ENTRIES_MAX, StoreError};

/// Makes or replaces an entry; returns whether it is new.
pub(crate) fn put(
    bucket: &mut Vec<BucketEntry>,
    name: &Name,
    target: EntryTarget,
) -> Result<bool, StoreError> {
    if let Some(found) = bucket.iter_mut().find(|found| found.name == *name) {
        found.target = target;
        return Ok(false);
    }
    // The first free index; the entries are sorted by index.
    let at = bucket
        .iter()
        .enumerate()
        .position(|(at, found)| usize::from(found.index) != at)
        .unwrap_or(bucket.len());
    if at >= BUCKET_ENTRIES_MAX {
        return Err(StoreError::BucketFull);
    }
    bucket.insert(at, BucketEntry { index: at as u8, name: name.clone(), target });
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Kind, Uniquifier, VnodeNo};

    fn name(number: usize) -> Name {
        Name::new(number.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn entries_keep_their_index_and_the_seventeenth_is_refused() {
        let target = EntryTarget { vnode: VnodeNo(2), unique: Uniquifier(1), kind: Kind::File };
        let mut bucket = Vec::new();
        for number in 0..16 {
            assert!(put(&mut bucket, &name(number), target).unwrap());
        }
        assert!(matches!(put(&mut bucket, &name(16), target), Err(StoreError::BucketFull)));
        assert!(!put(&mut bucket, &name(3), EntryTarget { vnode: VnodeNo(4), ..target }).unwrap());
        bucket.remove(5);
        assert!(put(&mut bucket, &name(20), target).unwrap());
        let of = |number| bucket.iter().find(|found| found.name == name(number)).unwrap();
        assert_eq!((of(3).index, of(3).target.vnode), (3, VnodeNo(4)));
        assert_eq!((of(20).index, of(6).index), (5, 6));
    }
}
