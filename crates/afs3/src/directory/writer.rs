//! Makes the pages of a directory.

use super::reader::find;
use super::{
    BITMAP_AT, CHAINS_AT, DirectoryError, ENTRY_NAME_BYTES_MAX, FIRST_SLOT_FLAG, FREE_COUNT_AT,
    FREE_MAP_AT, HEADER_SLOTS, MAPPED_PAGES, NAME_AT, NEXT_AT, PAGE_BYTES, PAGE_COUNT_AT,
    PAGE_SLOTS, PAGE_TAG, PAGES_MAX, SLOT_BYTES, TAG_AT, UNIQUE_AT, VNODE_AT, chain_of, is_used,
    slots_of, u16_at,
};

/// Makes the pages of a directory, an entry at a time, as OpenAFS does.
#[derive(Clone, Debug)]
pub struct DirectoryWriter {
    pages: Vec<u8>,
    /// For each number of slots: the first page that may have room. Entries never leave, so no page
    /// before it ever has room again.
    first_page: [usize; PAGE_SLOTS],
}

impl DirectoryWriter {
    /// A directory with "." and "..", each a vnode and its uniquifier. The root of a volume is its
    /// own parent.
    pub fn new(own: (u32, u32), parent: (u32, u32)) -> DirectoryWriter {
        let mut writer = DirectoryWriter { pages: Vec::new(), first_page: [0; PAGE_SLOTS] };
        writer.add_page();
        (0..HEADER_SLOTS).for_each(|slot| writer.use_slot(0, slot));
        writer.pages[FREE_COUNT_AT] = (PAGE_SLOTS - HEADER_SLOTS) as u8;
        writer.pages[FREE_MAP_AT..][..MAPPED_PAGES].fill(PAGE_SLOTS as u8);
        writer.pages[FREE_MAP_AT] = (PAGE_SLOTS - HEADER_SLOTS) as u8;
        for (name, (vnode, unique)) in [(&b"."[..], own), (b"..", parent)] {
            let slot = writer.first_fit(1).unwrap_or(HEADER_SLOTS);
            writer.put_entry(slot, name, vnode, unique);
        }
        writer
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`DirectoryError::BadName`], [`DirectoryError::Exists`], [`DirectoryError::Full`]. The
    /// directory is as before.
    pub fn add(&mut self, name: &[u8], vnode: u32, unique: u32) -> Result<(), DirectoryError> {
        let length = 1..=ENTRY_NAME_BYTES_MAX;
        if !length.contains(&name.len()) || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(DirectoryError::BadName);
        }
        if find(&self.pages, name)?.is_some() {
            return Err(DirectoryError::Exists);
        }
        let slot = self.first_fit(slots_of(name.len())).ok_or(DirectoryError::Full)?;
        self.put_entry(slot, name, vnode, unique);
        Ok(())
    }

    /// The pages.
    pub fn finish(self) -> Vec<u8> {
        self.pages
    }

    fn page(&self, page: usize) -> &[u8] {
        &self.pages[page * PAGE_BYTES..][..PAGE_BYTES]
    }

    fn page_count(&self) -> usize {
        self.pages.len() / PAGE_BYTES
    }

    fn use_slot(&mut self, page: usize, slot: usize) {
        self.pages[page * PAGE_BYTES + BITMAP_AT + slot / 8] |= 1 << (slot % 8);
    }

    fn put_u16(&mut self, at: usize, value: u16) {
        self.pages[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    fn put_u32(&mut self, at: usize, value: u32) {
        self.pages[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// A new page, with its header as the only slot in use.
    fn add_page(&mut self) {
        let page = self.page_count();
        assert!(page < PAGES_MAX);
        self.pages.resize((page + 1) * PAGE_BYTES, 0);
        self.put_u16(page * PAGE_BYTES + TAG_AT, PAGE_TAG);
        self.pages[page * PAGE_BYTES + FREE_COUNT_AT] = (PAGE_SLOTS - 1) as u8;
        self.use_slot(page, 0);
        self.put_u16(PAGE_COUNT_AT, page as u16 + 1);
        if page < MAPPED_PAGES {
            self.pages[FREE_MAP_AT + page] = (PAGE_SLOTS - 1) as u8;
        }
    }

    /// Takes the first row of free slots; its number. A new page is made when no page has one.
    fn first_fit(&mut self, slots: usize) -> Option<usize> {
        let mut page = self.first_page[slots];
        loop {
            if page == PAGES_MAX {
                return None;
            }
            if page == self.page_count() {
                self.add_page();
            }
            if let Some(slot) = self.free_row(page, slots) {
                self.first_page[slots] = page;
                (slot..slot + slots).for_each(|slot| self.use_slot(page, slot));
                if page < MAPPED_PAGES {
                    self.pages[FREE_MAP_AT + page] -= slots as u8;
                }
                return Some(page * PAGE_SLOTS + slot);
            }
            page += 1;
        }
    }

    fn free_row(&self, page: usize, slots: usize) -> Option<usize> {
        let page = self.page(page);
        let mut starts = 0..=PAGE_SLOTS - slots;
        starts.find(|start| (*start..start + slots).all(|slot| !is_used(page, slot)))
    }

    /// Puts an entry into its slots and at the head of its chain.
    fn put_entry(&mut self, slot: usize, name: &[u8], vnode: u32, unique: u32) {
        let at = slot * SLOT_BYTES;
        let chain_at = CHAINS_AT + 2 * chain_of(name);
        self.pages[at] = FIRST_SLOT_FLAG;
        self.put_u16(at + NEXT_AT, u16_at(&self.pages, chain_at));
        self.put_u32(at + VNODE_AT, vnode);
        self.put_u32(at + UNIQUE_AT, unique);
        self.pages[at + NAME_AT..][..name.len()].copy_from_slice(name);
        self.put_u16(chain_at, slot as u16);
    }
}
