//! PR.

use super::fixtures::*;
use crate::protection::*;

fn entry() -> PrEntry {
    PrEntry {
        flags: 1,
        id: -2,
        owner: 3,
        creator: 4,
        group_quota: 5,
        user_quota: 6,
        count: 7,
        reserved: [8, 9, 10, 11, 12],
        name: chars("joe"),
    }
}

fn entry_hex() -> String {
    ["00000001 fffffffe ", &words(3, 12), &char_words("joe", 64)].concat()
}

fn debug_entry() -> PrDebugEntry {
    PrDebugEntry {
        flags: 1,
        id: 2,
        cell: 3,
        next: 4,
        reserved: count(5),
        entries: count(10),
        next_id: 20,
        next_name: 21,
        owner: 22,
        creator: 23,
        group_quota: 24,
        user_quota: 25,
        count: 26,
        instance: 27,
        owned: 28,
        next_owned: 29,
        parent: 30,
        sibling: 31,
        child: 32,
        name: chars("joe"),
    }
}

fn update() -> PrUpdate {
    PrUpdate {
        mask: 1,
        flags: 2,
        id: 3,
        owner: 4,
        creator: 5,
        group_quota: 6,
        user_quota: 7,
        count: 8,
        reserved: count(9),
        name: chars("joe"),
    }
}

#[test]
fn calls_about_principals_have_their_bytes() {
    // A name in a list has 64 words; a list of two names.
    let names = || list([chars("joe"), chars("system:anyuser")]);
    let names_hex =
        || ["00000002 ", &char_words("joe", 64), &char_words("system:anyuser", 64)].concat();
    let ids = || list([7, -101]);
    let ids_hex = "00000002 00000007 ffffff9b";
    golden! { ProtectionCall ProtectionAnswer
        500 INewEntry { name: text("ab"), id: 1, owner: -204 } = [AB, "00000001 ffffff34"]
            -> {} = [];
        501 WhereIsIt { id: 1 } = ["00000001"] -> { position: 2 } = ["00000002"];
        502 DumpEntry { position: 1 } = ["00000001"]
            -> { entry: Box::new(debug_entry()) } = [words(1, 32), char_words("joe", 64)];
        503 AddToGroup { user: 1, group: -206 } = ["00000001 ffffff32"] -> {} = [];
        504 NameToID { names: names() } = [names_hex()] -> { ids: ids() } = [ids_hex];
        505 IDToName { ids: ids() } = [ids_hex] -> { names: names() } = [names_hex()];
        506 Delete { id: 1 } = ["00000001"] -> {} = [];
        507 RemoveFromGroup { user: 1, group: 2 } = ["00000001 00000002"] -> {} = [];
        508 GetCPS { id: 1 } = ["00000001"] -> { ids: ids(), over: 3 } = [ids_hex, "00000003"];
        509 NewEntry { name: text("ab"), flag: 2, owner: 3 } = [AB, "00000002 00000003"]
            -> { id: 4 } = ["00000004"];
        510 ListMax {} = [] -> { user: 1, group: -2 } = ["00000001 fffffffe"];
        511 SetMax { id: 1, group_flag: 2 } = ["00000001 00000002"] -> {} = [];
        512 ListEntry { id: 1 } = ["00000001"] -> { entry: entry() } = [entry_hex()];
        513 ChangeEntry { id: 1, name: text("ab"), owner: 2, new_id: 3 }
            = ["00000001", AB, "00000002 00000003"] -> {} = [];
        514 ListElements { id: 1 } = ["00000001"]
            -> { ids: ids(), over: 3 } = [ids_hex, "00000003"];
        515 IsAMemberOf { user: 1, group: 2 } = ["00000001 00000002"]
            -> { flag: 1 } = ["00000001"];
        516 SetFieldsEntry {
                id: 1, mask: 2, flags: 3, group_quota: 4, user_quota: 5, spare1: 6, spare2: 7
            } = [words(1, 7)] -> {} = [];
        517 ListOwned { id: 1, last: 2 } = ["00000001 00000002"]
            -> { ids: ids(), last: 3 } = [ids_hex, "00000003"];
        518 GetCPS2 { id: 1, host: 0x0a00_0001 } = ["00000001 0a000001"]
            -> { ids: ids(), over: 3 } = [ids_hex, "00000003"];
        519 GetHostCPS { host: 0x0a00_0001 } = ["0a000001"]
            -> { ids: ids(), over: 3 } = [ids_hex, "00000003"];
        520 UpdateEntry { id: 1, name: text("ab"), update: Box::new(update()) }
            = ["00000001", AB, words(1, 13), char_words("joe", 64)] -> {} = [];
        521 ListEntries { flags: 1, start: 2 } = ["00000001 00000002"]
            -> { entries: list([entry()]), next: -1 } = ["00000001", entry_hex(), "ffffffff"];
        530 ListSuperGroups { id: 1 } = ["00000001"]
            -> { ids: ids(), over: 3 } = [ids_hex, "00000003"];
    }
    assert_eq!(streams::<ProtectionCall>(), (vec![], vec![]));
}
