//! BOZO.

use super::fixtures::*;
use crate::bos::*;
use crate::xdr::Xdr;

const STATUS: BosStatus = BosStatus {
    goal: 1,
    file_goal: 2,
    process_started: 3,
    process_starts: 4,
    last_exit: 5,
    last_error_exit: 6,
    error_code: 7,
    error_signal: 8,
    flags: 9,
    spares: [10, 11, 12, 13, 14, 15, 16, 17],
};

const TIME: KTime = KTime { mask: 7, hour: 3, minute: 30, second: 0, day: -1 };
/// The four shorts have a word each.
const TIME_HEX: &str = "00000007 00000003 0000001e 00000000 ffffffff";

#[test]
fn calls_about_processes_have_their_bytes() {
    let key = || chars("keykeyk");
    let key_hex = || char_words("keykeyk", 8);
    golden! { BosCall BosAnswer
        80 CreateBnode {
                kind: text("ab"), instance: text("wxyz"), p1: text("1"), p2: text("2"),
                p3: text("3"), p4: text("4"), p5: text("5"), p6: text("6")
            } = [
                AB, WXYZ, "00000001 31000000 00000001 32000000 00000001 33000000",
                "00000001 34000000 00000001 35000000 00000001 36000000",
            ] -> {} = [];
        81 DeleteBnode { instance: text("ab") } = [AB] -> {} = [];
        82 SetStatus { instance: text("ab"), status: 1 } = [AB, "00000001"] -> {} = [];
        83 GetStatus { instance: text("ab") } = [AB]
            -> { state: 1, text: text("wxyz") } = ["00000001", WXYZ];
        84 EnumerateInstance { index: 1 } = ["00000001"] -> { name: text("ab") } = [AB];
        85 GetInstanceInfo { instance: text("ab") } = [AB]
            -> { kind: text("wxyz"), status: STATUS } = [WXYZ, words(1, 17)];
        86 GetInstanceParm { instance: text("ab"), number: 999 } = [AB, "000003e7"]
            -> { text: text("wxyz") } = [WXYZ];
        87 AddSUser { name: text("ab") } = [AB] -> {} = [];
        88 DeleteSUser { name: text("ab") } = [AB] -> {} = [];
        89 ListSUsers { index: 1 } = ["00000001"] -> { name: text("ab") } = [AB];
        90 ListKeys { index: 1 } = ["00000001"]
            -> {
                version: 2, key: key(),
                about: KeyAbout { seconds: 3, microseconds: 4, checksum: 5, spare: 6 }
            } = ["00000002", key_hex(), words(3, 6)];
        91 AddKey { version: 2, key: key() } = ["00000002", key_hex()] -> {} = [];
        92 DeleteKey { version: 2 } = ["00000002"] -> {} = [];
        93 SetCellName { name: text("ab") } = [AB] -> {} = [];
        94 GetCellName {} = [] -> { name: text("ab") } = [AB];
        95 GetCellHost { index: 1 } = ["00000001"] -> { name: text("ab") } = [AB];
        96 AddCellHost { name: text("ab") } = [AB] -> {} = [];
        97 DeleteCellHost { name: text("ab") } = [AB] -> {} = [];
        98 SetTStatus { instance: text("ab"), status: 1 } = [AB, "00000001"] -> {} = [];
        99 ShutdownAll {} = [] -> {} = [];
        100 RestartAll {} = [] -> {} = [];
        101 StartupAll {} = [] -> {} = [];
        102 SetNoAuthFlag { flag: 1 } = ["00000001"] -> {} = [];
        103 ReBozo {} = [] -> {} = [];
        104 Restart { instance: text("ab") } = [AB] -> {} = [];
        105 Install { path: text("ab"), size: 1, flags: 2, date: 3 }
            = [AB, "00000001 00000002 00000003"] -> {} = [];
        106 UnInstall { path: text("ab") } = [AB] -> {} = [];
        107 GetDates { path: text("ab") } = [AB]
            -> { new: 1, backup: 2, old: 3 } = ["00000001 00000002 00000003"];
        108 Exec { command: text("ab") } = [AB] -> {} = [];
        109 Prune { flags: 7 } = ["00000007"] -> {} = [];
        110 SetRestartTime { kind: 1, time: TIME } = ["00000001", TIME_HEX] -> {} = [];
        111 GetRestartTime { kind: 1 } = ["00000001"] -> { time: TIME } = [TIME_HEX];
        112 GetLog { name: text("ab") } = [AB] -> {} = [];
        113 WaitAll {} = [] -> {} = [];
        114 GetInstanceStrings { instance: text("ab") } = [AB]
            -> {
                error: text("wxyz"), spare1: text("1"), spare2: text("2"), spare3: text("3")
            } = [WXYZ, "00000001 31000000 00000001 32000000 00000001 33000000"];
        115 GetRestrictedMode {} = [] -> { mode: 1 } = ["00000001"];
        116 SetRestrictedMode { mode: 1 } = ["00000001"] -> {} = [];
    }
    assert_eq!(BosStatus::LEAST_BYTES, 17 * 4);
    assert_eq!(streams::<BosCall>(), (vec!["Install"], vec!["GetLog"]));
}
