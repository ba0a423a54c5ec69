//! Ubik, the replication of the databases: the services VOTE and DISK beside VL and PR.
//!
//! A cell whose servers are no ubik servers needs the debugging procedures of VOTE for `udebug`,
//! and `GetSyncSite` for clients that look for the server that takes changes.
//!
//! Source: OpenAFS `src/ubik/ubik_int.xg`.

mod debug;
pub mod disk;
pub mod vote;

pub use debug::{UbikDebug, UbikDebugOld, UbikServerDebug, UbikServerDebugOld, recovery};

use crate::xdr::xdr_struct;

xdr_struct! {
    /// The version of a database: a time and a counter.
    #[derive(Copy, Default)]
    pub struct UbikVersion { epoch: i32, counter: i32 }

    /// A transaction on a database.
    #[derive(Copy, Default)]
    pub struct UbikTransaction { epoch: i32, counter: i32 }
}
