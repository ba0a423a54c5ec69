//! The statistics about calls that every process with Rx has as a service beside its own.
//!
//! Source: OpenAFS `src/rxstat/rxstat.xg`, whose procedures are numbered in their order from 0 on.

use crate::rpc::service;
use crate::xdr::XdrList;

/// The Rx service, on the port of any other.
pub const SERVICE: u16 = 409;

service! {
    /// The calls of the statistics service.
    calls StatisticsCall;
    /// Its answers.
    answers StatisticsAnswer;

    0 RetrieveProcessRPCStats(client_version: u32) -> (
            server_version: u32, clock_seconds: u32, clock_microseconds: u32, count: u32,
            statistics: XdrList<u32>,
        );
    /// The count comes before the clock here.
    1 RetrievePeerRPCStats(client_version: u32) -> (
            server_version: u32, count: u32, clock_seconds: u32, clock_microseconds: u32,
            statistics: XdrList<u32>,
        );
    2 QueryProcessRPCStats() -> (on: i32);
    3 QueryPeerRPCStats() -> (on: i32);
    4 EnableProcessRPCStats() -> ();
    5 EnablePeerRPCStats() -> ();
    6 DisableProcessRPCStats() -> ();
    7 DisablePeerRPCStats() -> ();
    8 QueryRPCStatsVersion() -> (version: u32);
    9 ClearProcessRPCStats(flags: u32) -> ();
    10 ClearPeerRPCStats(flags: u32) -> ();
}
