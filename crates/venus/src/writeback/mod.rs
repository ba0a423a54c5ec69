//! Written bytes come to the server and become stable, whichever way: as calls, in the journal, or
//! in a body that the kernel writes. Imports `base` to `passthrough`.

mod commit;
mod removed;
mod writer;

pub(crate) use self::writer::Writeback;
