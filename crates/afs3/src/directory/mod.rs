//! A directory as clients fetch it: pages of 2048 bytes.
//!
//! Model: a page has 64 *slots* of 32 bytes. Slot 0 of each page is its header, with a bit for each
//! slot in use. The first page also has the directory's header, in slots 1 to 12: the number of
//! free slots of the first 128 pages, and 128 hash chains. An entry takes as many slots in a row of
//! one page as its name needs. Slots are numbered through all pages; a chain links the numbers of
//! its entries, newest first. "." and ".." are ordinary entries, and the first two.
//!
//! Clients apply their own changes to the pages that they hold, so a directory must be made as
//! OpenAFS makes it: an entry goes into the first page, and there into the first row of slots, that
//! has room for it.
//!
//! Source: OpenAFS `src/dir/dir.h`, `src/dir/dir.c`; Linux `fs/afs/xdr_fs.h`, `fs/afs/dir_edit.c`.

mod reader;
mod writer;

pub use reader::{DirectoryEntries, DirectoryEntry, DirectoryReader};
pub use writer::DirectoryWriter;

/// The bytes of a page.
pub const PAGE_BYTES: usize = 2048;
/// Most pages of a directory.
pub const PAGES_MAX: usize = 1023;
/// Most bytes of a name.
pub const ENTRY_NAME_BYTES_MAX: usize = 255;

/// The bytes of a slot.
const SLOT_BYTES: usize = 32;
/// The slots of a page.
const PAGE_SLOTS: usize = PAGE_BYTES / SLOT_BYTES;
/// The slots of the first page that are no entries: its own header and the directory's.
const HEADER_SLOTS: usize = 13;
/// The number in each page that says that it is one.
const PAGE_TAG: u16 = 1234;
/// The pages with a place in the allocation map.
const MAPPED_PAGES: usize = 128;
/// The hash chains.
const CHAINS: usize = 128;
/// The first byte of the first slot of an entry.
const FIRST_SLOT_FLAG: u8 = 1;

/// Offsets in a page: of the number of pages (in the first one), the tag, the number of free slots
/// at the start, and the bits of the slots in use.
const PAGE_COUNT_AT: usize = 0;
const TAG_AT: usize = 2;
const FREE_COUNT_AT: usize = 4;
const BITMAP_AT: usize = 5;
/// Offsets in the first page: of the free slots by page, and of the chains' first slots.
const FREE_MAP_AT: usize = 32;
const CHAINS_AT: usize = FREE_MAP_AT + MAPPED_PAGES;
/// Offsets in an entry.
const NEXT_AT: usize = 2;
const VNODE_AT: usize = 4;
const UNIQUE_AT: usize = 8;
const NAME_AT: usize = 12;

const _: () = assert!(CHAINS_AT + 2 * CHAINS == HEADER_SLOTS * SLOT_BYTES);
const _: () = assert!(PAGES_MAX * PAGE_SLOTS <= u16::MAX as usize);
const _: () = assert!(slots_of(ENTRY_NAME_BYTES_MAX) < PAGE_SLOTS);

/// The reason why a directory cannot be made or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// There is no room within [`PAGES_MAX`] pages.
    #[error("the directory is full: it has {PAGES_MAX} pages")]
    Full,
    /// A name that no entry can have: empty, too long, or with a slash or a zero byte.
    #[error("an entry cannot have this name")]
    BadName,
    /// The directory has an entry of this name.
    #[error("the directory has an entry of this name")]
    Exists,
    /// The bytes are not pages: their number is 0, too large, or not a multiple of a page.
    #[error("{0} bytes are not the pages of a directory")]
    BadSize(usize),
    /// A page without the number that says that it is one.
    #[error("page {0} of the directory is none")]
    BadPage(usize),
    /// A slot that holds no entry where one must be.
    #[error("slot {0} of the directory has no entry")]
    BadEntry(usize),
}

/// The slots that a name of so many bytes takes. The first one has 20 bytes for it, of which 16
/// count.
const fn slots_of(name_bytes: usize) -> usize {
    1 + (name_bytes + 1 + 15) / SLOT_BYTES
}

/// The chain of a name.
fn chain_of(name: &[u8]) -> usize {
    let hash =
        name.iter().fold(0_u32, |hash, byte| hash.wrapping_mul(173).wrapping_add((*byte).into()));
    let chain = hash as usize % CHAINS;
    // The hash was a signed number once.
    if chain != 0 && hash >= 1 << 31 { CHAINS - chain } else { chain }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Whether the bitmap of a page has a slot in use.
fn is_used(page: &[u8], slot: usize) -> bool {
    page[BITMAP_AT + slot / 8] >> (slot % 8) & 1 == 1
}
