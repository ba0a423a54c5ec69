//! The few kernel calls that have no safe wrapper, each behind a safe function. The only crate
//! beside `rialto-capi` with unsafe code.

pub mod arena;
pub mod ending;
mod failure;
pub mod fragments;
pub mod fuse;
pub mod handle;
pub mod heap;
pub mod inherit;
#[cfg(feature = "kerberos")]
pub mod kerberos;
pub mod lease;
pub mod length;
pub mod lock;
pub mod map;
pub mod mounted;
pub mod pipe;
pub mod propagation;
pub mod schedule;
pub mod shared;
pub mod tun;
pub mod uring;
pub mod writeback;
