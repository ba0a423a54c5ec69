//! The check of the fuzz target, in a library so that plain tests run it too (feature `fuzzing`).
//!
//! It takes arbitrary bytes and panics if a property does not hold.

use std::fmt::Debug;

use crate::RpcMessage;
use crate::directory::{DirectoryReader, PAGE_BYTES};
use crate::dump::DumpParser;
use crate::rights::{AclText, STORED_ACL_BYTES, StoredAcl};
use crate::xdr::XdrReader;

/// Bytes from outside: the first says as what they are read. All that is accepted comes out again.
pub fn from_outside(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => dump(bytes),
        1 => directory(bytes),
        2 => rights(bytes),
        _ => message(bytes),
    }
}

/// The services' calls and answers; the first byte says whose, the next one which.
fn message(bytes: &[u8]) {
    let Some(([service, row], bytes)) = bytes.split_first_chunk() else { return };
    let row = usize::from(*row);
    match service % 14 {
        0 => comes_back::<crate::files::FilesCall>(row, bytes),
        1 => comes_back::<crate::files::FilesAnswer>(row, bytes),
        2 => comes_back::<crate::callbacks::CallbacksCall>(row, bytes),
        3 => comes_back::<crate::callbacks::CallbacksAnswer>(row, bytes),
        4 => comes_back::<crate::locations::LocationsCall>(row, bytes),
        5 => comes_back::<crate::locations::LocationsAnswer>(row, bytes),
        6 => comes_back::<crate::protection::ProtectionCall>(row, bytes),
        7 => comes_back::<crate::protection::ProtectionAnswer>(row, bytes),
        8 => comes_back::<crate::volumes::VolumesCall>(row, bytes),
        9 => comes_back::<crate::volumes::VolumesAnswer>(row, bytes),
        10 => comes_back::<crate::bos::BosCall>(row, bytes),
        11 => comes_back::<crate::bos::BosAnswer>(row, bytes),
        12 => comes_back::<crate::ubik::vote::VoteCall>(row, bytes),
        _ => comes_back::<crate::ubik::vote::VoteAnswer>(row, bytes),
    }
}

fn comes_back<M: RpcMessage + Debug + PartialEq>(row: usize, bytes: &[u8]) {
    let number = M::PROCEDURES[row % M::PROCEDURES.len()].number;
    let mut from = XdrReader::new(bytes);
    if let Ok(message) = M::decode(number, &mut from) {
        let again = message.to_bytes();
        assert_eq!(again.len(), bytes.len() - from.rest().len());
        assert_eq!(M::decode(number, &mut XdrReader::new(&again)), Ok(message));
    }
}

/// A dump in pieces of so many bytes as the first byte says.
fn dump(bytes: &[u8]) {
    let Some((step, bytes)) = bytes.split_first() else { return };
    let (mut parser, mut again, mut is_over) = (DumpParser::new(), Vec::new(), false);
    for mut piece in bytes.chunks(usize::from(*step) + 1) {
        loop {
            match parser.next(&mut piece) {
                Ok(Some(item)) => item.encode(&mut again),
                Ok(None) => break,
                Err(_) => {
                    is_over = true;
                    break;
                }
            }
        }
        if is_over {
            break;
        }
    }
    if !is_over && parser.finish().is_ok() {
        assert_eq!(again, bytes, "a dump comes out as it was");
    }
}

fn directory(bytes: &[u8]) {
    // Whole pages are rare among random bytes.
    let mut pages = bytes.to_vec();
    pages.resize(bytes.len().next_multiple_of(PAGE_BYTES).max(PAGE_BYTES), 0);
    pages.chunks_mut(PAGE_BYTES).for_each(|page| page[2..4].copy_from_slice(&[0x04, 0xd2]));
    let Ok(reader) = DirectoryReader::new(&pages) else { return };
    let slots = pages.len() / 32;
    assert!(reader.entries().take(slots + 1).count() <= slots, "each entry has a slot");
    for entry in reader.entries().take(slots).flatten() {
        if let Ok(Some(found)) = reader.lookup(entry.name) {
            assert_eq!(found.name, entry.name);
        }
    }
}

fn rights(bytes: &[u8]) {
    if let Ok(list) = AclText::parse(bytes)
        && let Ok(printed) = list.print()
    {
        assert_eq!(AclText::parse(&printed), Ok(list));
    }
    if let Some((stored, _)) = bytes.split_first_chunk::<STORED_ACL_BYTES>()
        && let Ok(list) = StoredAcl::from_bytes(stored)
    {
        let again = list.to_bytes().expect("it had room");
        assert_eq!(StoredAcl::from_bytes(&again), Ok(list));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn random_bytes_from_outside_are_harmless(bytes in vec(any::<u8>(), 0..3000)) {
            from_outside(&bytes);
        }

        /// Words that are small, as counts and lengths are, get further than random ones.
        #[test]
        fn random_bytes_of_small_words_are_harmless(
            kind in vec(any::<u8>(), 3),
            words in vec(0_u8..6, 0..400),
        ) {
            let words = words.iter().flat_map(|word| [0, 0, 0, *word]);
            from_outside(&kind.into_iter().chain(words).collect::<Vec<u8>>());
        }
    }
}
