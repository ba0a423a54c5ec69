//! The statistics service.

use super::fixtures::*;
use crate::statistics::{StatisticsAnswer, StatisticsCall};

#[test]
fn calls_about_statistics_have_their_bytes() {
    golden! { StatisticsCall StatisticsAnswer
        0 RetrieveProcessRPCStats { client_version: 1 } = ["00000001"]
            -> {
                server_version: 1, clock_seconds: 2, clock_microseconds: 3, count: 4,
                statistics: list([5])
            } = [words(1, 4), "00000001 00000005"];
        1 RetrievePeerRPCStats { client_version: 1 } = ["00000001"]
            -> {
                server_version: 1, count: 2, clock_seconds: 3, clock_microseconds: 4,
                statistics: list([5])
            } = [words(1, 4), "00000001 00000005"];
        2 QueryProcessRPCStats {} = [] -> { on: 1 } = ["00000001"];
        3 QueryPeerRPCStats {} = [] -> { on: 1 } = ["00000001"];
        4 EnableProcessRPCStats {} = [] -> {} = [];
        5 EnablePeerRPCStats {} = [] -> {} = [];
        6 DisableProcessRPCStats {} = [] -> {} = [];
        7 DisablePeerRPCStats {} = [] -> {} = [];
        8 QueryRPCStatsVersion {} = [] -> { version: 1 } = ["00000001"];
        9 ClearProcessRPCStats { flags: 1 } = ["00000001"] -> {} = [];
        10 ClearPeerRPCStats { flags: 1 } = ["00000001"] -> {} = [];
    }
    assert_eq!(streams::<StatisticsCall>(), (vec![], vec![]));
}
