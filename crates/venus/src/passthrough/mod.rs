//! Bodies that the kernel reads and writes itself (docs/spec/passthrough.md): loans of the server's
//! bodies, preallocated bodies of new files, bodies of the disk cache. Imports `base` to `reading`.

mod backing;
mod blanks;
mod cache_bodies;
mod loans;
mod preallocated;

pub(crate) use self::backing::Passthrough;
pub(crate) use self::blanks::Blanks;
pub(crate) use self::cache_bodies::CacheBodies;
pub(crate) use self::loans::Loans;
pub(crate) use self::preallocated::Preallocated;
