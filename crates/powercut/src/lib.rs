//! A block device whose power can be cut, below a real file system of the real kernel. For tests.
//!
//! A [`Drive`] is one file of a FUSE file system that this process serves. A [`DrivenMachine`]
//! attaches a loop device to that file and mounts ext4 on the device. The loop driver sends each
//! write of the file system as a FUSE write, and each flush of the drive's cache as `FSYNC`. The
//! drive records every write that no completed flush covers. [`Drive::cut`] cuts the power: all
//! later commands fail. [`Drive::after_loss`] then makes one of the images that the medium may
//! hold: every write that a completed flush covered, and of each later write all, nothing, or some
//! of its sectors (`loss.rs`). A new machine mounts that image, and ext4 replays its journal.
//!
//! A test runs its body in [`isolated`]: in a process with a mount name space of its own, so that
//! mounts and devices go with that process however it ends.

mod drive;
mod image;
mod isolated;
mod loss;
mod machine;
mod served;

pub use drive::{Cut, Drive, Flushes};
pub use image::DriveImage;
pub use isolated::{isolated, missing};
pub use loss::SECTOR_BYTES;
pub use machine::DrivenMachine;
