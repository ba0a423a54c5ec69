//! Bodies: the bytes of files, inline in records or in files of their own.
//!
//! Model. An *update* collects the changes of one operation and holds the gates of the bodies that
//! it writes (`update.rs`); `edit.rs` changes one body of it, `copy_on_write.rs` gives the head a
//! file of its own before, and `loans.rs` and `blanks.rs` lend it to kernels. `logged.rs` tells
//! standbys the changes of an update. `reader.rs` reads. `sync.rs` brings bodies to the disk and
//! settles those in doubt. `seal_copies.rs`, `pack.rs` and `orphans.rs` care for files that the
//! head does not use. Imports `format/`, `media/` and `tree/`.

pub(crate) mod blanks;
pub(crate) mod copy_on_write;
pub(crate) mod edit;
pub(crate) mod files;
pub(crate) mod loans;
mod logged;
pub(crate) mod origin_body;
pub(crate) mod orphans;
pub(crate) mod pack;
pub(crate) mod reader;
pub(crate) mod seal_copies;
pub(crate) mod sync;
pub(crate) mod update;

pub use edit::BodyEdit;
pub use loans::BodyLoans;
pub use reader::BodyReader;
pub use update::Update;
