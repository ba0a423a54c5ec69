//! VOTE: elections, and what `udebug` asks.

use super::{
    UbikDebug, UbikDebugOld, UbikServerDebug, UbikServerDebugOld, UbikTransaction, UbikVersion,
};
use crate::rpc::service;

/// The Rx service, on the port of the database.
pub const SERVICE: u16 = 50;

service! {
    /// The calls of the vote service.
    calls VoteCall;
    /// Its answers.
    answers VoteAnswer;

    /// The vote is the code with which the call ends: 0 is no, otherwise it is the time of a yes.
    10000 Beacon(state: i32, vote_started: i32, version: UbikVersion, transaction: UbikTransaction)
        -> ();
    10001 DebugOld() -> (state: UbikDebugOld);
    10002 SDebugOld(which: i32) -> (server: UbikServerDebugOld);
    /// The site is an argument by a mistake of the definition; the answer has nothing.
    10003 GetSyncSite(site: i32) -> ();
    10004 Debug() -> (state: Box<UbikDebug>);
    10005 SDebug(which: i32) -> (server: Box<UbikServerDebug>);
    10006 XDebug() -> (state: Box<UbikDebug>, is_clone: i32);
    10007 XSDebug(which: i32) -> (server: Box<UbikServerDebug>, is_clone: i32);
}
