//! The interface of a store of records below the operations of the database: a view that does not
//! change while it is read, and a commit of many records at once.

use std::collections::BTreeMap;

use types::Revision;

use crate::CellError;

type Result<T> = std::result::Result<T, CellError>;

/// Takes a record; returns whether it wants another.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool> + 'a;

/// The records as of one moment.
pub(crate) trait View {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Visits records from `from` on in the order of their keys, as long as `visit` returns true.
    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()>;
}

/// A store. Thread-safe.
pub(crate) trait Engine: Send + Sync {
    type View<'a>: View
    where
        Self: 'a;

    /// The records as of now, or as of the first read of the view.
    fn view(&self) -> Self::View<'_>;

    /// Writes all of the batch or nothing, and only if the counters' record is the one that `view`
    /// has: each change writes that record. The batch is stable when this returns `Done`. `next`:
    /// the last revision afterwards.
    fn commit(&self, view: &Self::View<'_>, batch: &Batch, next: Revision) -> Result<Commit>;

    /// Checks that the store has room for a change.
    fn need_room(&self) -> Result<()>;
}

/// The outcome of a commit without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    Done,
    /// Another change came between, and nothing was written. The embedded engine never says so.
    Overtaken,
}

/// Records to write together. A later entry replaces an earlier one of the same key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Batch {
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.0.insert(key.into(), Some(value.into()));
    }

    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        self.0.insert(key.into(), None);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys with their new values; `None`: the record is removed.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.0.iter().map(|(key, value)| (&key[..], value.as_deref()))
    }
}

/// A store that is being filled. It can be used only after [`Fill::end`].
pub(crate) trait Fill: Send {
    fn write(&mut self, batch: &Batch) -> Result<()>;

    /// Writes the last records, with the counters, and makes the store whole and stable.
    fn end(&mut self, batch: &Batch) -> Result<()>;
}
