//! The operations of a file system, and the events that the server sends: what needs several
//! components (`core.rs`). Imports all layers below.

mod change;
mod directories;
mod entry_invalidation;
mod events;
mod handles;
mod inheritance;
mod janitor;
mod locks;
mod lookup;
mod open;
mod read;
mod reads;
mod seek;
mod venus;
mod volume_control;
mod write;
mod xattrs;

pub use self::directories::OpenDirs;
pub(crate) use self::entry_invalidation::SparedEntries;
pub(crate) use self::events::EventListener;
pub(crate) use self::handles::Handles;
pub use self::locks::FileLocks;
pub use self::venus::Venus;
pub use self::volume_control::VolumeControl;
pub use self::volume_control::VolumeSummary;
pub use self::xattrs::Xattrs;
