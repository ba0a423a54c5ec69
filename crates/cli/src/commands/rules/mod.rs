//! The cell's rules: `rialto fence` and `rialto admin` (`docs/access.md`).

mod admin;
mod desk;
mod fence;

pub use admin::Admin;
pub use desk::{Common, Desk, confirmed, odd};
pub use fence::{Fence, seconds};
