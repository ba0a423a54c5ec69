//! VOTE and DISK.

use super::fixtures::*;
use crate::ubik::disk::{DiskAnswer, DiskCall, UbikAddresses, UbikWrite};
use crate::ubik::vote::{VoteAnswer, VoteCall};
use crate::ubik::*;

const VERSION: UbikVersion = UbikVersion { epoch: 0x6500_0000, counter: 1 };
const VERSION_HEX: &str = "65000000 00000001";
const TRANSACTION: UbikTransaction = UbikTransaction { epoch: 0x6500_0001, counter: 2 };
const TRANSACTION_HEX: &str = "65000001 00000002";

const STATE: UbikDebugOld = UbikDebugOld {
    now: 1,
    last_yes_time: 2,
    last_yes_host: 3,
    last_yes_state: 4,
    last_yes_claim: 5,
    lowest_host: 6,
    lowest_time: 7,
    sync_host: 8,
    sync_time: 9,
    sync_version: UbikVersion { epoch: 10, counter: 11 },
    sync_transaction: UbikTransaction { epoch: 12, counter: 13 },
    is_sync_site: 14,
    sync_site_until: 15,
    servers: 16,
    locked_pages: 17,
    write_locked_pages: 18,
    local_version: UbikVersion { epoch: 19, counter: 20 },
    active_write: 21,
    transaction_counter: 22,
    any_read_locks: 23,
    any_write_locks: 24,
    recovery_state: 25,
    current_transaction: 26,
    write_transaction: 27,
    epoch_time: 28,
};

const SERVER: UbikServerDebugOld = UbikServerDebugOld {
    address: 1,
    last_vote_time: 2,
    last_beacon_sent: 3,
    last_vote: 4,
    remote_version: UbikVersion { epoch: 5, counter: 6 },
    current_database: 7,
    beacon_since_down: 8,
    up: 9,
};

#[test]
fn calls_about_votes_have_their_bytes() {
    let state = || Box::new(UbikDebug { state: STATE, addresses: count(0x100) });
    let state_hex = || words(1, 28) + &words(0x100, 0x1ff);
    let server = || Box::new(UbikServerDebug { server: SERVER, other_addresses: count(0x100) });
    let server_hex = || words(1, 9) + &words(0x100, 0x1fe);
    golden! { VoteCall VoteAnswer
        10000 Beacon { state: 1, vote_started: 2, version: VERSION, transaction: TRANSACTION }
            = ["00000001 00000002", VERSION_HEX, TRANSACTION_HEX] -> {} = [];
        10001 DebugOld {} = [] -> { state: STATE } = [words(1, 28)];
        10002 SDebugOld { which: 1 } = ["00000001"] -> { server: SERVER } = [words(1, 9)];
        10003 GetSyncSite { site: 1 } = ["00000001"] -> {} = [];
        10004 Debug {} = [] -> { state: state() } = [state_hex()];
        10005 SDebug { which: 1 } = ["00000001"] -> { server: server() } = [server_hex()];
        10006 XDebug {} = [] -> { state: state(), is_clone: 1 } = [state_hex(), "00000001"];
        10007 XSDebug { which: 1 } = ["00000001"]
            -> { server: server(), is_clone: 1 } = [server_hex(), "00000001"];
    }
    assert_eq!(streams::<VoteCall>(), (vec![], vec![]));
}

#[test]
fn calls_about_databases_have_their_bytes() {
    let hosts = || Box::new(UbikAddresses { hosts: count(0x100) });
    let part = |no| UbikWrite { file: no, position: no + 1, length: no + 2 };
    golden! { DiskCall DiskAnswer
        20000 Begin { transaction: TRANSACTION } = [TRANSACTION_HEX] -> {} = [];
        20001 Commit { transaction: TRANSACTION } = [TRANSACTION_HEX] -> {} = [];
        20002 Lock { transaction: TRANSACTION, file: 1, position: 2, length: 3, kind: 4 }
            = [TRANSACTION_HEX, words(1, 4)] -> {} = [];
        20003 Write { transaction: TRANSACTION, file: 1, position: 2, data: text("ab") }
            = [TRANSACTION_HEX, "00000001 00000002", AB] -> {} = [];
        20004 GetVersion {} = [] -> { version: VERSION } = [VERSION_HEX];
        20005 GetFile { file: 1 } = ["00000001"] -> { version: VERSION } = [VERSION_HEX];
        20006 SendFile { file: 1, length: 2, version: VERSION }
            = ["00000001 00000002", VERSION_HEX] -> {} = [];
        20007 Abort { transaction: TRANSACTION } = [TRANSACTION_HEX] -> {} = [];
        20008 ReleaseLocks { transaction: TRANSACTION } = [TRANSACTION_HEX] -> {} = [];
        20009 Truncate { transaction: TRANSACTION, file: 1, length: 2 }
            = [TRANSACTION_HEX, "00000001 00000002"] -> {} = [];
        20010 Probe {} = [] -> {} = [];
        20011 WriteV { transaction: TRANSACTION, parts: list([part(1), part(4)]), data: text("ab") }
            = [TRANSACTION_HEX, "00000002", words(1, 6), AB] -> {} = [];
        20012 UpdateInterfaceAddr { addresses: hosts() } = [words(0x100, 0x1ff)]
            -> { addresses: hosts() } = [words(0x100, 0x1ff)];
        20013 SetVersion { transaction: TRANSACTION, old: VERSION, new: UbikVersion::default() }
            = [TRANSACTION_HEX, VERSION_HEX, "00000000 00000000"] -> {} = [];
    }
    assert_eq!(streams::<DiskCall>(), (vec!["SendFile"], vec!["GetFile"]));
}
