//! Reads the pages of a directory, which may be anything.

use super::{
    CHAINS_AT, DirectoryError, FIRST_SLOT_FLAG, HEADER_SLOTS, NAME_AT, NEXT_AT, PAGE_BYTES,
    PAGE_SLOTS, PAGE_TAG, PAGES_MAX, SLOT_BYTES, TAG_AT, UNIQUE_AT, VNODE_AT, chain_of, is_used,
    slots_of, u16_at, u32_at,
};

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'p> {
    /// The name.
    pub name: &'p [u8],
    /// The file's number in the volume of the directory.
    pub vnode: u32,
    /// How often that number was used before.
    pub unique: u32,
    /// The number of the first slot, by which clients remember the place in a list.
    pub slot: usize,
}

/// The pages of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryReader<'p> {
    pages: &'p [u8],
}

impl<'p> DirectoryReader<'p> {
    /// A reader of these pages.
    ///
    /// # Errors
    /// [`DirectoryError::BadSize`], [`DirectoryError::BadPage`].
    pub fn new(pages: &'p [u8]) -> Result<Self, DirectoryError> {
        let count = pages.len() / PAGE_BYTES;
        if !pages.len().is_multiple_of(PAGE_BYTES) || !(1..=PAGES_MAX).contains(&count) {
            return Err(DirectoryError::BadSize(pages.len()));
        }
        match pages.chunks(PAGE_BYTES).position(|page| u16_at(page, TAG_AT) != PAGE_TAG) {
            Some(page) => Err(DirectoryError::BadPage(page)),
            None => Ok(DirectoryReader { pages }),
        }
    }

    /// All entries, in the order of their slots: "." and ".." first.
    pub fn entries(&self) -> DirectoryEntries<'p> {
        DirectoryEntries { pages: self.pages, slot: HEADER_SLOTS }
    }

    /// The entry of this name, found by its chain.
    ///
    /// # Errors
    /// [`DirectoryError::BadEntry`]: the chain leads to a slot without entry, or never ends.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<DirectoryEntry<'p>>, DirectoryError> {
        find(self.pages, name)
    }
}

/// The entry of this name in these pages. A chain that has more members than there are slots is a
/// circle.
pub(super) fn find<'p>(
    pages: &'p [u8],
    name: &[u8],
) -> Result<Option<DirectoryEntry<'p>>, DirectoryError> {
    let mut slot = usize::from(u16_at(pages, CHAINS_AT + 2 * chain_of(name)));
    for _ in 0..pages.len() / SLOT_BYTES {
        if slot == 0 {
            return Ok(None);
        }
        let entry = entry_at(pages, slot)?;
        if entry.name == name {
            return Ok(Some(entry));
        }
        slot = usize::from(u16_at(pages, slot * SLOT_BYTES + NEXT_AT));
    }
    Err(DirectoryError::BadEntry(slot))
}

/// The entry whose first slot this is. Its slots are in use, and its name ends in its page.
fn entry_at(pages: &[u8], slot: usize) -> Result<DirectoryEntry<'_>, DirectoryError> {
    let bad = DirectoryError::BadEntry(slot);
    let (page, inside) = (slot / PAGE_SLOTS, slot % PAGE_SLOTS);
    let first = if page == 0 { HEADER_SLOTS } else { 1 };
    let bytes = pages.get(page * PAGE_BYTES..(page + 1) * PAGE_BYTES).ok_or(bad)?;
    if inside < first || bytes[inside * SLOT_BYTES] != FIRST_SLOT_FLAG {
        return Err(bad);
    }
    let entry = &bytes[inside * SLOT_BYTES..];
    let length = entry[NAME_AT..].iter().position(|byte| *byte == 0).ok_or(bad)?;
    let mut slots = inside..inside + slots_of(length);
    if length == 0 || !slots.all(|slot| slot < PAGE_SLOTS && is_used(bytes, slot)) {
        return Err(bad);
    }
    Ok(DirectoryEntry {
        name: &entry[NAME_AT..][..length],
        vnode: u32_at(entry, VNODE_AT),
        unique: u32_at(entry, UNIQUE_AT),
        slot,
    })
}

/// The entries of a directory. It ends after the first error.
#[derive(Clone, Debug)]
pub struct DirectoryEntries<'p> {
    pages: &'p [u8],
    slot: usize,
}

impl<'p> Iterator for DirectoryEntries<'p> {
    type Item = Result<DirectoryEntry<'p>, DirectoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let slots = self.pages.len() / SLOT_BYTES;
        let used = |slot: &usize| {
            let (page, inside) = (slot / PAGE_SLOTS, slot % PAGE_SLOTS);
            inside != 0 && is_used(&self.pages[page * PAGE_BYTES..], inside)
        };
        let Some(slot) = (self.slot..slots).find(used) else {
            self.slot = slots;
            return None;
        };
        let entry = entry_at(self.pages, slot);
        self.slot = entry.map_or(slots, |entry| slot + slots_of(entry.name.len()));
        Some(entry)
    }
}
