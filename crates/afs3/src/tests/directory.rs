//! Directory pages, against a reader and a placement of their own.
//!
//! The reader here walks all hash chains, as OpenAFS's programs do; the placement is the plainest
//! first fit. Neither uses anything of the crate.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::fixtures::*;
use crate::directory::*;

/// Entries by name: vnode, uniquifier, slot.
type Found = BTreeMap<Vec<u8>, (u32, u32, usize)>;

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte))
}

/// The chain of a name, with signed numbers as in the first implementations.
fn chain(name: &[u8]) -> usize {
    let hash = name.iter().fold(0_i32, |h, byte| h.wrapping_mul(173).wrapping_add((*byte).into()));
    match (hash & 127, hash < 0) {
        (0, _) => 0,
        (low, false) => low as usize,
        (low, true) => 128 - low as usize,
    }
}

/// All entries, by the chains; checks each page's header and the allocation map.
fn read(pages: &[u8]) -> Found {
    let count = pages.len() / 2048;
    assert_eq!(pages.len(), count * 2048);
    assert_eq!(number(&pages[..2]), count);
    let mut found = Found::new();
    let mut used = vec![0_u64; count];
    for (no, page) in pages.chunks(2048).enumerate() {
        assert_eq!(number(&page[2..4]), 1234);
        assert_eq!(page[4], if no == 0 { 51 } else { 63 });
        assert!(page[13..32].iter().all(|byte| *byte == 0));
        assert!(no == 0 || number(&page[..2]) == 0);
        used[no] = if no == 0 { 0x1fff } else { 1 };
    }
    for no in 0..128 {
        let mut slot = number(&pages[160 + 2 * no..][..2]);
        let mut before = usize::MAX;
        while slot != 0 {
            let entry = &pages[slot * 32..];
            assert_eq!(entry[0], 1);
            let length = entry[12..].iter().position(|byte| *byte == 0).unwrap();
            let name = entry[12..][..length].to_vec();
            assert_eq!(chain(&name), no);
            // A new entry is at the head of its chain.
            assert!(slot < before || slot / 64 != before / 64 || length > 15);
            before = slot;
            for slot in slot..slot + 1 + (length + 16) / 32 {
                let bit = 1 << (slot % 64);
                assert_eq!(used[slot / 64] & bit, 0);
                used[slot / 64] |= bit;
            }
            let place = (number(&entry[4..8]) as u32, number(&entry[8..12]) as u32, slot);
            assert_eq!(found.insert(name, place), None);
            slot = number(&entry[2..4]);
        }
    }
    for (no, used) in used.iter().enumerate() {
        assert_eq!(pages[no * 2048 + 5..][..8], used.to_le_bytes());
    }
    for no in 0..128 {
        let free = used.get(no).map_or(64, |used| used.count_zeros());
        assert_eq!(u32::from(pages[32 + no]), free);
    }
    found
}

/// The slot of each name of so many bytes, in their order, by the plainest first fit.
fn placed(lengths: &[usize]) -> Vec<usize> {
    let mut used: Vec<[bool; 64]> = Vec::new();
    let place = |length: &usize| {
        let slots = if *length < 16 { 1 } else { 1 + (length + 16) / 32 };
        for no in 0.. {
            if no == used.len() {
                let mut page = [false; 64];
                page[..if no == 0 { 13 } else { 1 }].fill(true);
                used.push(page);
            }
            let page = &mut used[no];
            for start in 0..=64 - slots {
                if page[start..start + slots].iter().all(|used| !used) {
                    page[start..start + slots].fill(true);
                    return no * 64 + start;
                }
            }
        }
        unreachable!();
    };
    lengths.iter().map(place).collect()
}

fn made(names: &[Vec<u8>]) -> DirectoryWriter {
    let mut writer = DirectoryWriter::new((1, 1), (3, 7));
    for (no, name) in names.iter().enumerate() {
        writer.add(name, 2 * no as u32 + 2, no as u32 + 100).unwrap();
    }
    writer
}

/// Names that differ, of the lengths that are asked for.
fn names(lengths: &[usize]) -> Vec<Vec<u8>> {
    let name = |(no, length): (usize, &usize)| {
        let mut name = format!("{no:05}").into_bytes();
        name.resize((*length).max(5), b'\xe9');
        name
    };
    lengths.iter().enumerate().map(name).collect()
}

/// A directory without entries, as OpenAFS makes it: one page.
#[test]
fn the_empty_directory_has_its_bytes() {
    let pages = DirectoryWriter::new((1, 1), (3, 7)).finish();
    let mut golden = vec![0; 2048];
    // One page, the number 1234, 51 free slots, 15 slots in use.
    golden[..13].copy_from_slice(&unhex("0001 04d2 33 ff7f000000000000"));
    golden[32] = 49;
    golden[33..160].fill(64);
    // The chains of "." (46) and ".." (46 * 173 + 46 = 8004 = 62 * 128 + 68).
    golden[160 + 2 * 46 + 1] = 13;
    golden[160 + 2 * 68 + 1] = 14;
    golden[13 * 32..][..16].copy_from_slice(&unhex("0100 0000 00000001 00000001 2e000000"));
    golden[14 * 32..][..16].copy_from_slice(&unhex("0100 0000 00000003 00000007 2e2e0000"));
    assert_eq!(hex(&pages), hex(&golden));
}

#[test]
fn pages_have_nothing_but_their_entries() {
    for length in [1, 15, 16, 200, 255] {
        let pages = made(&[vec![b'n'; length]]).finish();
        let end = 15 * 32 + 12 + length;
        assert_eq!(pages[end - 1], b'n');
        assert!(pages[end..].iter().all(|byte| *byte == 0), "{length}");
    }
}

#[test]
fn entries_are_listed_with_dot_and_dot_dot_first() {
    let pages = made(&[b"a".to_vec(), vec![b'b'; 16]]).finish();
    let reader = DirectoryReader::new(&pages).unwrap();
    let all: Vec<_> = reader.entries().map(Result::unwrap).collect();
    let entry = |name, vnode, unique, slot| DirectoryEntry { name, vnode, unique, slot };
    assert_eq!(
        all,
        [
            entry(b".", 1, 1, 13),
            entry(b"..", 3, 7, 14),
            entry(b"a", 2, 100, 15),
            entry(&[b'b'; 16], 4, 101, 16),
        ]
    );
    assert_eq!(reader.lookup(b"a"), Ok(Some(all[2])));
    assert_eq!(reader.lookup(b"c"), Ok(None));
}

/// 15 bytes fit into one slot, 47 into two, and so on.
#[test]
fn long_names_take_more_slots() {
    let lengths = [15, 16, 47, 48, 79, 80, 111, 112, 143, 144, 175, 207, 239, 240, 255, 5];
    let pages = made(&names(&lengths)).finish();
    let slots: Vec<usize> =
        DirectoryReader::new(&pages).unwrap().entries().skip(2).map(|e| e.unwrap().slot).collect();
    // 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6 slots and so on; the page ends at 64.
    assert_eq!(slots[..12], [15, 16, 18, 20, 23, 26, 30, 34, 39, 44, 50, 56]);
    // The last name has one slot and gets the one that is left there.
    assert_eq!(slots[12..], [63, 65, 73, 82]);
    assert_eq!(read(&pages).len(), lengths.len() + 2);
}

#[test]
fn names_that_cannot_be_are_refused() {
    let mut writer = DirectoryWriter::new((1, 1), (1, 1));
    for name in [&b""[..], b"a/b", b"a\0b", &[b'a'; 256]] {
        assert_eq!(writer.add(name, 2, 2), Err(DirectoryError::BadName));
    }
    assert_eq!(writer.add(b".", 2, 2), Err(DirectoryError::Exists));
    assert_eq!(writer.add(b"..", 2, 2), Err(DirectoryError::Exists));
    assert_eq!(writer.add(&[b'a'; 255], 2, 2), Ok(()));
    assert_eq!(writer.add(&[b'a'; 255], 2, 2), Err(DirectoryError::Exists));
    assert_eq!(read(&writer.finish()).len(), 3);
}

/// Pages behind the 128th have no place in the allocation map, and the 1023rd is the last.
#[test]
fn a_directory_is_full_at_its_last_page() {
    // Nine slots each: five in the first page, seven in every other.
    let most = 5 + 7 * (PAGES_MAX - 1);
    let mut writer = made(&names(&vec![255; most]));
    assert_eq!(writer.add(&[b'x'; 255], 2, 2), Err(DirectoryError::Full));
    // Four slots are left in the first page, and none elsewhere.
    assert_eq!(writer.add(&[b'x'; 111], 2, 2), Ok(()));
    assert_eq!(writer.add(b"x", 2, 2), Err(DirectoryError::Full));
    let pages = writer.finish();
    assert_eq!(pages.len(), PAGES_MAX * PAGE_BYTES);
    assert_eq!(read(&pages).len(), most + 3);
    assert_eq!(DirectoryReader::new(&pages).unwrap().entries().count(), most + 3);
}

#[test]
fn bytes_that_are_no_pages_are_refused() {
    let pages = DirectoryWriter::new((1, 1), (1, 1)).finish();
    for bytes in [&pages[..0], &pages[..2047], &vec![0; 2048 * 1024][..]] {
        let size = DirectoryError::BadSize(bytes.len());
        assert_eq!(DirectoryReader::new(bytes).err(), Some(size));
    }
    let two = [&pages[..], &[0; 2048]].concat();
    assert_eq!(DirectoryReader::new(&two).err(), Some(DirectoryError::BadPage(1)));
}

/// A chain that leads back to itself, and ones to slots that hold no entry.
#[test]
fn chains_that_lead_astray_are_errors() {
    let good = made(&[b"a".to_vec(), b"bb".to_vec()]).finish();
    let lookup = |pages: &[u8], name: &[u8]| {
        DirectoryReader::new(pages).unwrap().lookup(name).map(|found| found.is_some())
    };
    let with = |at: usize, bytes: &[u8]| {
        let mut pages = good.clone();
        pages[at..at + bytes.len()].copy_from_slice(bytes);
        pages
    };
    // "a" is in slot 15 and alone in its chain, 97; the head of chain 98 is taken for "b".
    let circle = {
        let mut pages = with(160 + 2 * 98, &[0, 15]);
        pages[15 * 32 + 2..][..2].copy_from_slice(&[0, 15]);
        pages
    };
    assert_eq!(lookup(&circle, b"b"), Err(DirectoryError::BadEntry(15)));
    assert_eq!(lookup(&circle, b"a"), Ok(true));
    for slot in [1, 12, 17, 63, 64, 65, 0xffff] {
        let astray = with(160 + 2 * 98, &[(slot >> 8) as u8, slot as u8]);
        assert_eq!(lookup(&astray, b"b"), Err(DirectoryError::BadEntry(slot)), "{slot}");
    }
    // An entry without its flag, without name, without an end of its name, and out of use.
    assert_eq!(lookup(&with(15 * 32, &[0]), b"a"), Err(DirectoryError::BadEntry(15)));
    assert_eq!(lookup(&with(15 * 32 + 12, &[0]), b"a"), Err(DirectoryError::BadEntry(15)));
    let endless = with(15 * 32 + 12, &[b'a'; 2048 - 15 * 32 - 12]);
    assert_eq!(lookup(&endless, b"a"), Err(DirectoryError::BadEntry(15)));
    assert_eq!(lookup(&with(6, &[0x7f]), b"a"), Err(DirectoryError::BadEntry(15)));
    // A name that runs through a slot that another entry could take.
    let long = with(15 * 32 + 12, &[b'a'; 32]);
    assert_eq!(lookup(&with(6, &[0xff]), b"a"), Ok(true));
    assert!(DirectoryReader::new(&long).unwrap().entries().any(|entry| entry.is_ok()));
}

#[test]
fn a_list_ends_after_its_first_error() {
    let mut pages = made(&[b"a".to_vec(), b"b".to_vec()]).finish();
    pages[15 * 32] = 0;
    let all: Vec<_> = DirectoryReader::new(&pages).unwrap().entries().collect();
    assert_eq!(all.len(), 3);
    assert_eq!(all[2], Err(DirectoryError::BadEntry(15)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pages_have_all_entries_where_first_fit_puts_them(
        lengths in vec(prop_oneof![4 => 5_usize..30, 1 => 5_usize..256], 0..600),
    ) {
        let names = names(&lengths);
        let pages = made(&names).finish();
        let found = read(&pages);
        prop_assert_eq!(found.len(), names.len() + 2);
        let slots = placed(&[&[1, 2], &lengths[..]].concat());
        let reader = DirectoryReader::new(&pages).unwrap();
        for (no, name) in names.iter().enumerate() {
            let (vnode, unique) = (2 * no as u32 + 2, no as u32 + 100);
            prop_assert_eq!(found[name], (vnode, unique, slots[no + 2]));
            let entry = DirectoryEntry { name, vnode, unique, slot: slots[no + 2] };
            prop_assert_eq!(reader.lookup(name), Ok(Some(entry)));
        }
        let mut listed = 0;
        let mut last = 0;
        for entry in reader.entries() {
            let entry = entry.unwrap();
            prop_assert!(entry.slot > last);
            prop_assert_eq!(found[entry.name], (entry.vnode, entry.unique, entry.slot));
            (last, listed) = (entry.slot, listed + 1);
        }
        prop_assert_eq!(listed, found.len());
    }

    /// Damaged pages are read without a panic or an endless loop.
    #[test]
    fn damaged_pages_are_harmless(
        lengths in vec(5_usize..80, 0..120),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let names = names(&lengths);
        let mut pages = made(&names).finish();
        for (at, byte) in damage {
            let at = at.index(pages.len());
            pages[at] = byte;
        }
        if let Ok(reader) = DirectoryReader::new(&pages) {
            prop_assert!(reader.entries().count() <= pages.len() / 32);
            for name in &names {
                if let Ok(Some(entry)) = reader.lookup(name) {
                    prop_assert_eq!(entry.name, &name[..]);
                }
            }
        }
    }
}
