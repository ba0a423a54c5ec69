//! The volumes of a mount, each with a cache manager. The top layer.

mod cell_volumes;
mod dynroot;
mod mountpoint;

pub use self::cell_volumes::CellOpener;
pub use self::cell_volumes::Neighbours;
pub use self::cell_volumes::UnsavedVolume;
pub use self::cell_volumes::Volumes;
pub use self::dynroot::DYNROOT;
pub use self::dynroot::Dynroot;
pub use self::dynroot::KnownCells;
