//! Memory of this process that requests of a session may name.

use std::collections::HashMap;
use std::sync::Arc;

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
    /// The handle of memory, and whether it is new.
    pub fn handle(&self, arena: &Arc<Arena>) -> (u32, bool) {
        let mut table = self.0.lock();
        let known = table.arenas.iter().find(|(_, other)| Arc::ptr_eq(other, arena));
        if let Some((handle, _)) = known {
            return (*handle, false);
        }
        table.last += 1;
        let handle = table.last;
        table.arenas.insert(handle, Arc::clone(arena));
        (handle, true)
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
}
