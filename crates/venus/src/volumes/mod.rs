//! The volumes of a mount.

pub(crate) mod dynroot;
pub(crate) mod mountpoint;
pub(crate) mod snapshots;
pub(crate) mod volume_summary;
pub(crate) mod volumes;
