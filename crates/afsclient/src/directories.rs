//! Directories: pages that were fetched, and what they say.
//!
//! The pages of a version never change, so they are kept by version; whether a directory still has
//! it, its promise says. A few of the latest are kept: the cache manager above keeps names itself,
//! and lists a directory in many calls.

use std::collections::VecDeque;
use std::sync::Arc;

use afs3::directory::{DirectoryReader, PAGE_BYTES, PAGES_MAX};
use bytes::Bytes;
use parking_lot::Mutex;
use types::{DataVersion, Fid, Name};

use crate::statuses::fid_of;

/// Directories that are kept, and their bytes together.
const KEPT_MAX: usize = 64;
const KEPT_BYTES_MAX: usize = 64 << 20;
/// The largest directory.
pub(crate) const DIRECTORY_BYTES_MAX: usize = PAGES_MAX * PAGE_BYTES;

/// The pages of a version of a directory.
#[derive(Clone, Debug)]
pub(crate) struct DirectoryPages {
    pub dir: Fid,
    pub version: DataVersion,
    pages: Bytes,
}

/// An entry without "." and "..".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedFile {
    pub name: Name,
    pub fid: Fid,
    /// The number of its first slot, which it has as long as the entry stays.
    pub slot: u64,
}

impl DirectoryPages {
    /// `None`: these are no pages of a directory.
    pub fn new(dir: Fid, version: DataVersion, pages: Bytes) -> Option<DirectoryPages> {
        DirectoryReader::new(&pages).ok()?;
        Some(DirectoryPages { dir, version, pages })
    }

    fn reader(&self) -> Option<DirectoryReader<'_>> {
        DirectoryReader::new(&self.pages).ok()
    }

    /// The file of this name.
    ///
    /// # Errors
    /// The directory is damaged.
    pub fn find(&self, name: &Name) -> Result<Option<Fid>, ()> {
        let found = self.reader().ok_or(())?.lookup(name.as_bytes()).map_err(drop)?;
        Ok(found.map(|entry| fid_of(self.dir.volume, entry.vnode, entry.unique)))
    }

    /// The entries behind a slot, in the order of their slots, at most so many. A damaged entry
    /// ends the list; names that Rialto cannot have are left out.
    pub fn entries(&self, behind: u64, most: usize) -> Vec<NamedFile> {
        let Some(reader) = self.reader() else { return Vec::new() };
        let entries = reader.entries().map_while(Result::ok).filter_map(|entry| {
            let fid = fid_of(self.dir.volume, entry.vnode, entry.unique);
            Some(NamedFile { name: Name::new(entry.name).ok()?, fid, slot: entry.slot as u64 })
        });
        entries.filter(|entry| entry.slot > behind && entry.fid.vnode.0 != 0).take(most).collect()
    }
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct DirectoryCache {
    /// The latest used last.
    kept: Mutex<VecDeque<Arc<DirectoryPages>>>,
}

impl DirectoryCache {
    pub fn get(&self, dir: Fid, version: DataVersion) -> Option<Arc<DirectoryPages>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|pages| pages.dir == dir && pages.version == version)?;
        let found = kept.remove(at)?;
        kept.push_back(Arc::clone(&found));
        Some(found)
    }

    pub fn put(&self, pages: &Arc<DirectoryPages>) {
        let mut kept = self.kept.lock();
        kept.retain(|known| known.dir != pages.dir);
        kept.push_back(Arc::clone(pages));
        let bytes = |kept: &VecDeque<Arc<DirectoryPages>>| -> usize {
            kept.iter().map(|pages| pages.pages.len()).sum()
        };
        while kept.len() > KEPT_MAX || kept.len() > 1 && bytes(&kept) > KEPT_BYTES_MAX {
            kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use afs3::directory::DirectoryWriter;

    use super::*;

    const DIR: Fid = Fid::new(7, 1, 1);

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn pages(names: &[&str]) -> DirectoryPages {
        let mut writer = DirectoryWriter::new((1, 1), (1, 1));
        for (at, name) in names.iter().enumerate() {
            writer.add(name.as_bytes(), 2 * at as u32 + 2, 9).unwrap();
        }
        DirectoryPages::new(DIR, DataVersion(3), writer.finish().into()).unwrap()
    }

    #[test]
    fn a_listing_goes_on_behind_an_entry() {
        let dir = pages(&["a", "b", "c"]);
        let all = dir.entries(0, 10);
        assert_eq!(
            all.iter().map(|one| &one.name).collect::<Vec<_>>(),
            [&name("a"), &name("b"), &name("c")]
        );
        assert_eq!(dir.entries(all[0].slot, 1), [all[1].clone()]);
        assert_eq!(dir.find(&name("c")), Ok(Some(Fid::new(7, 6, 9))));
        assert_eq!(dir.find(&name("d")), Ok(None));
    }

    #[test]
    fn bytes_that_are_no_directory_are_refused() {
        assert!(DirectoryPages::new(DIR, DataVersion(1), Bytes::new()).is_none());
        assert!(DirectoryPages::new(DIR, DataVersion(1), vec![0; PAGE_BYTES].into()).is_none());
    }

    #[test]
    fn the_latest_version_of_a_directory_is_kept() {
        let cache = DirectoryCache::default();
        let dir = Arc::new(pages(&["a"]));
        cache.put(&dir);
        assert!(cache.get(DIR, DataVersion(3)).is_some());
        assert!(cache.get(DIR, DataVersion(4)).is_none());
        let later = DirectoryPages { version: DataVersion(4), ..(*dir).clone() };
        cache.put(&Arc::new(later));
        assert!(cache.get(DIR, DataVersion(3)).is_none());
    }
}
