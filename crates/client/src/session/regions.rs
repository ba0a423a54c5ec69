//! Memory of this process that requests of a session may name.

use std::collections::HashMap;
use std::sync::Arc;

use dafs::Region;
use mem::arena::Arena;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;

/// The regions of a session, by their handles. Each of its connections gets them anew.
#[derive(Default)]
pub(crate) struct ClientRegions(Mutex<RegionTable>);

#[derive(Default)]
struct RegionTable {
    last: u32,
    arenas: HashMap<u32, Arc<Arena>>,
}

impl ClientRegions {
    /// Adds memory; its handle.
    pub fn add(&self, arena: &Arc<Arena>) -> u32 {
        let mut table = self.0.lock();
        table.last += 1;
        let handle = table.last;
        table.arenas.insert(handle, Arc::clone(arena));
        handle
    }

    /// Removes memory.
    pub fn remove(&self, handle: u32) {
        self.0.lock().arenas.remove(&handle);
    }

    /// Their files, for a server.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn files(&self) -> std::io::Result<Vec<(u32, OwnedFd)>> {
        let table = self.0.lock();
        let file = |(handle, arena): (&u32, &Arc<Arena>)| {
            arena.memory().file().try_clone().map(|file| (*handle, file))
        };
        table.arenas.iter().map(file).collect()
    }

    /// Puts bytes that came over a socket where their request wanted them. Bytes that do not fit
    /// are dropped: the machine refuses a reply to another place than the request named.
    pub fn place(&self, region: Region, bytes: &[u8]) {
        let arena = self.0.lock().arenas.get(&region.handle).cloned();
        let Some(arena) = arena else { return };
        let offset = usize::try_from(region.offset).unwrap_or(usize::MAX);
        if offset.checked_add(bytes.len()).is_some_and(|end| end <= arena.memory().len()) {
            arena.memory().put(offset, bytes);
        }
    }
}
