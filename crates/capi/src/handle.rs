//! Handles: numbers in the form of pointers, and the objects that they stand for.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use crate::error::{Failure, HANDLE, NULL};

/// Threads that use different objects shall not wait for one lock.
const SHARDS: usize = 16;

/// The next number of all kinds. A number is a multiple of `SHARDS` and more than 0, so a handle
/// looks like a pointer to memory, and one of another kind is found in no table.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// A handle of an object of this kind, as C has it.
#[repr(transparent)]
pub struct Handle<T> {
    /// As wide as a pointer, and passed as one is on every machine on which Rialto runs.
    number: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Handle<T> {}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.number)
    }
}

/// The objects of one kind that are in use.
pub(crate) struct Table<T>([RwLock<BTreeMap<usize, Arc<T>>>; SHARDS]);

impl<T> Table<T> {
    pub const fn new() -> Table<T> {
        Table([const { RwLock::new(BTreeMap::new()) }; SHARDS])
    }

    fn shard(&self, number: usize) -> &RwLock<BTreeMap<usize, Arc<T>>> {
        &self.0[number / SHARDS % SHARDS]
    }
}

/// A kind of object.
pub(crate) trait Handled: Send + Sync + Sized + 'static {
    /// Its table.
    fn table() -> &'static Table<Self>;
    /// Its name, for texts.
    const NAME: &'static str;
}

impl<T> Handle<T> {
    /// Does it stand for nothing?
    pub fn is_null(self) -> bool {
        self.number == 0
    }

    /// The number, for objects that remember a handle.
    pub(crate) fn number(self) -> usize {
        self.number
    }

    pub(crate) fn of(number: usize) -> Handle<T> {
        Handle { number, kind: PhantomData }
    }
}

impl<T: Handled> Handle<T> {
    /// A handle of a new object.
    pub(crate) fn make(object: Arc<T>) -> Handle<T> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) * SHARDS;
        T::table().shard(number).write().insert(number, object);
        Handle::of(number)
    }

    /// The object.
    ///
    /// # Errors
    /// `NULL`; `HANDLE`.
    pub(crate) fn get(self) -> Result<Arc<T>, Failure> {
        let number = self.checked()?;
        let found = T::table().shard(number).read().get(&number).map(Arc::clone);
        found.ok_or_else(Self::missing)
    }

    /// Ends the handle, if the object agrees.
    ///
    /// # Errors
    /// `NULL`; `HANDLE`; those of `agrees`.
    pub(crate) fn close(
        self,
        agrees: impl FnOnce(&T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let object = self.get()?;
        agrees(&object)?;
        let number = self.number();
        // Of two threads that close it at once one finds nothing.
        let closed = T::table().shard(number).write().remove(&number);
        closed.map(drop).ok_or_else(Self::missing)
    }

    fn checked(self) -> Result<usize, Failure> {
        if self.is_null() {
            return Err(NULL.because(format!("the {} is NULL", T::NAME)));
        }
        Ok(self.number())
    }

    fn missing() -> Failure {
        HANDLE.because(format!("no such {}: it was closed, or never made", T::NAME))
    }
}
