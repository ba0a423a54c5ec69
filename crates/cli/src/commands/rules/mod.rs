//! The cell's rules: `rialto fence` and `rialto admin` (`docs/spec/access.md`).

mod admin;
mod client;
mod fence;
mod numbered;

pub(crate) use admin::Admin;
pub(crate) use client::{RulesClient, confirmed};
pub(crate) use fence::{FenceCommand, seconds};
