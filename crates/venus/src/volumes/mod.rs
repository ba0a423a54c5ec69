//! The volumes of a mount, each with a cache manager. The top layer.

mod dynroot;
mod mountpoint;
mod volumes;

pub use self::dynroot::DYNROOT;
pub use self::dynroot::Dynroot;
pub use self::dynroot::KnownCells;
pub use self::volumes::CellOpener;
pub use self::volumes::Neighbours;
pub use self::volumes::Volumes;
