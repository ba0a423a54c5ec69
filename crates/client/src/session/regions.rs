//! Memory of this process that requests of a session may name.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use mem::arena::Arena;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;

/// The regions of a session, by their handles. Each of its connections gets them anew.
#[derive(Default)]
pub(crate) struct ClientRegions(Mutex<RegionTable>);

#[derive(Default)]
struct RegionTable {
    last: u32,
    /// Memory that its owner has given up is not needed: no operation has a part of it.
    arenas: HashMap<u32, Weak<Arena>>,
}

impl ClientRegions {
    /// The handle of memory, and whether it is new.
    pub fn handle(&self, arena: &Arc<Arena>) -> (u32, bool) {
        let mut table = self.0.lock();
        let is_it = |other: &Weak<Arena>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(arena));
        let known = table.arenas.iter().find(|(_, other)| is_it(other));
        if let Some((handle, _)) = known {
            return (*handle, false);
        }
        table.last += 1;
        let handle = table.last;
        table.arenas.insert(handle, Arc::downgrade(arena));
        (handle, true)
    }

    /// Removes the memory that was given up; the handles.
    pub fn take_given_up(&self) -> Vec<u32> {
        let mut table = self.0.lock();
        let is_over = |(_, arena): &(&u32, &Weak<Arena>)| arena.strong_count() == 0;
        let over: Vec<u32> =
            table.arenas.iter().filter(is_over).map(|(handle, _)| *handle).collect();
        over.iter().for_each(|handle| drop(table.arenas.remove(handle)));
        over
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
        let there = table.arenas.iter().filter_map(|(handle, arena)| {
            let arena = arena.upgrade()?;
            Some(arena.memory().file().try_clone().map(|file| (*handle, file)))
        });
        there.collect()
    }
}
