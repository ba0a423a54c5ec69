//! The cell's rules: `rialto fence` and `rialto admin` (`docs/spec/access.md`).

mod admin;
mod client;
mod fence;
mod numbered;

pub use admin::Admin;
pub use client::{RulesClient, confirmed};
pub use fence::{FenceCommand, seconds};
