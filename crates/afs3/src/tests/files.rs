//! RXAFS.

use super::fixtures::*;
use super::structs;
use crate::files::{FilesAnswer, FilesCall};

/// Two files and two promises.
const FIDS_HEX: &str = "00000002 20000007 00000003 00000005 20000007 00000001 00000001";
const CALLBACKS_HEX: &str = "00000001 00000001 00003840 00000002";

#[test]
fn calls_about_data_and_status_have_their_bytes() {
    let two_status = || list([status(), status_from(0x40)]);
    let two_status_hex = || format!("00000002 {}{}", status_hex(1), status_hex(0x40));
    golden! { FilesCall FilesAnswer
        130 FetchData { fid: FID, position: 0x1122, length: -2 }
            = [FID_HEX, "00001122 fffffffe"]
            -> { status: status(), callback: CALLBACK, sync: SYNC }
            = [status_hex(1), CALLBACK_HEX, SYNC_HEX];
        131 FetchACL { fid: FID } = [FID_HEX]
            -> { acl: text("ab"), status: status(), sync: SYNC }
            = [AB, status_hex(1), SYNC_HEX];
        132 FetchStatus { fid: FID } = [FID_HEX]
            -> { status: status(), callback: CALLBACK, sync: SYNC }
            = [status_hex(1), CALLBACK_HEX, SYNC_HEX];
        133 StoreData { fid: FID, status: STORE, position: 0x11, length: 0x22, file_length: 0x33 }
            = [FID_HEX, STORE_HEX, "00000011 00000022 00000033"]
            -> { status: status(), sync: SYNC } = [status_hex(1), SYNC_HEX];
        134 OldStoreACL { fid: FID, acl: text("ab") } = [FID_HEX, AB]
            -> { status: status(), sync: SYNC } = [status_hex(1), SYNC_HEX];
        135 StoreStatus { fid: FID, status: STORE } = [FID_HEX, STORE_HEX]
            -> { status: status(), sync: SYNC } = [status_hex(1), SYNC_HEX];
        136 RemoveFile { dir: DIR, name: text("ab") } = [DIR_HEX, AB]
            -> { dir_status: status(), sync: SYNC } = [status_hex(1), SYNC_HEX];
        137 CreateFile { dir: DIR, name: text("ab"), status: STORE } = [DIR_HEX, AB, STORE_HEX]
            -> {
                fid: FID, status: status(), dir_status: status_from(0x40), callback: CALLBACK,
                sync: SYNC
            } = [FID_HEX, status_hex(1), status_hex(0x40), CALLBACK_HEX, SYNC_HEX];
        138 Rename { old_dir: DIR, old_name: text("ab"), new_dir: FID, new_name: text("wxyz") }
            = [DIR_HEX, AB, FID_HEX, WXYZ]
            -> { old_dir_status: status(), new_dir_status: status_from(0x40), sync: SYNC }
            = [status_hex(1), status_hex(0x40), SYNC_HEX];
        139 Symlink { dir: DIR, name: text("ab"), target: text("wxyz"), status: STORE }
            = [DIR_HEX, AB, WXYZ, STORE_HEX]
            -> { fid: FID, status: status(), dir_status: status_from(0x40), sync: SYNC }
            = [FID_HEX, status_hex(1), status_hex(0x40), SYNC_HEX];
        140 Link { dir: DIR, name: text("ab"), existing: FID } = [DIR_HEX, AB, FID_HEX]
            -> { status: status(), dir_status: status_from(0x40), sync: SYNC }
            = [status_hex(1), status_hex(0x40), SYNC_HEX];
        141 MakeDir { dir: DIR, name: text("ab"), status: STORE } = [DIR_HEX, AB, STORE_HEX]
            -> {
                fid: FID, status: status(), dir_status: status_from(0x40), callback: CALLBACK,
                sync: SYNC
            } = [FID_HEX, status_hex(1), status_hex(0x40), CALLBACK_HEX, SYNC_HEX];
        142 RemoveDir { dir: DIR, name: text("ab") } = [DIR_HEX, AB]
            -> { dir_status: status(), sync: SYNC } = [status_hex(1), SYNC_HEX];
        143 OldSetLock { fid: FID, kind: 1, sync: SYNC } = [FID_HEX, "00000001", SYNC_HEX]
            -> {} = [];
        144 OldExtendLock { fid: FID, sync: SYNC } = [FID_HEX, SYNC_HEX] -> {} = [];
        145 OldReleaseLock { fid: FID, sync: SYNC } = [FID_HEX, SYNC_HEX] -> {} = [];
        146 GetStatistics {} = []
            -> { statistics: Box::new(structs::statistics()) } = [structs::statistics_hex()];
        147 GiveUpCallBacks { fids: list([FID, DIR]), callbacks: list([CALLBACK]) }
            = [FIDS_HEX, CALLBACKS_HEX] -> {} = [];
        148 GetVolumeInfo { name: text("ab") } = [AB]
            -> { info: structs::OLD_INFO } = [structs::old_info_hex()];
        149 GetVolumeStatus { volume: 0x2000_0007 } = ["20000007"]
            -> {
                status: structs::VOLUME_STATUS, name: text("ab"), offline_message: text(""),
                motd: text("wxyz")
            } = [structs::VOLUME_STATUS_HEX, AB, EMPTY, WXYZ];
        150 SetVolumeStatus {
                volume: 0x2000_0007, status: structs::STORE_VOLUME, name: text("ab"),
                offline_message: text(""), motd: text("wxyz")
            } = ["20000007 00000002 00000003 00001388", AB, EMPTY, WXYZ] -> {} = [];
        151 GetRootVolume {} = [] -> { name: text("ab") } = [AB];
        152 CheckToken { id: 9, token: text("ab") } = ["00000009", AB] -> {} = [];
        153 GetTime {} = [] -> { seconds: 1, microseconds: 2 } = ["00000001 00000002"];
        154 NGetVolumeInfo { name: text("ab") } = [AB]
            -> { info: structs::INFO } = [structs::info_hex()];
        155 BulkStatus { fids: list([FID, DIR]) } = [FIDS_HEX]
            -> { status: two_status(), callbacks: list([CALLBACK]), sync: SYNC }
            = [two_status_hex(), CALLBACKS_HEX, SYNC_HEX];
        156 SetLock { fid: FID, kind: 1 } = [FID_HEX, "00000001"]
            -> { sync: SYNC } = [SYNC_HEX];
        157 ExtendLock { fid: FID } = [FID_HEX] -> { sync: SYNC } = [SYNC_HEX];
        158 ReleaseLock { fid: FID } = [FID_HEX] -> { sync: SYNC } = [SYNC_HEX];
        159 XStatsVersion {} = [] -> { version: 2 } = ["00000002"];
        160 GetXStats { client_version: 2, collection: 3 } = ["00000002 00000003"]
            -> { server_version: 2, time: 4, data: list([5, -6]) }
            = ["00000002 00000004 00000002 00000005 fffffffa"];
        161 Lookup { dir: DIR, name: text("ab") } = [DIR_HEX, AB]
            -> {
                fid: FID, status: status(), dir_status: status_from(0x40), callback: CALLBACK,
                sync: SYNC
            } = [FID_HEX, status_hex(1), status_hex(0x40), CALLBACK_HEX, SYNC_HEX];
        162 FlushCPS { ids: list([1, 2]), addresses: list([3]), spare: 4 }
            = ["00000002 00000001 00000002 00000001 00000003 00000004"]
            -> { spare2: 5, spare3: 6 } = ["00000005 00000006"];
        163 DFSSymlink { dir: DIR, name: text("ab"), target: text("wxyz"), status: STORE }
            = [DIR_HEX, AB, WXYZ, STORE_HEX]
            -> {
                fid: FID, status: status(), dir_status: status_from(0x40), callback: CALLBACK,
                sync: SYNC
            } = [FID_HEX, status_hex(1), status_hex(0x40), CALLBACK_HEX, SYNC_HEX];
        164 StoreACL { fid: FID, acl: text("ab") } = [FID_HEX, AB]
            -> { status: status(), sync: SYNC } = [status_hex(1), SYNC_HEX];
        220 FsCmd { fid: DIR, inputs: Box::new(structs::inputs()) }
            = [DIR_HEX, structs::inputs_hex()]
            -> { outputs: Box::new(structs::outputs()) } = [structs::outputs_hex()];
        65536 InlineBulkStatus { fids: list([FID, DIR]) } = [FIDS_HEX]
            -> { status: two_status(), callbacks: list([CALLBACK]), sync: SYNC }
            = [two_status_hex(), CALLBACKS_HEX, SYNC_HEX];
        65537 FetchData64 { fid: FID, position: 0x11_2233_4455, length: -2 }
            = [FID_HEX, "00000011 22334455 ffffffff fffffffe"]
            -> { status: status(), callback: CALLBACK, sync: SYNC }
            = [status_hex(1), CALLBACK_HEX, SYNC_HEX];
        65538 StoreData64 {
                fid: FID, status: STORE, position: 0x1_0000_0002, length: 0x3_0000_0004,
                file_length: 0x5_0000_0006
            } = [FID_HEX, STORE_HEX, words(1, 6)]
            -> { status: status(), sync: SYNC } = [status_hex(1), SYNC_HEX];
        65539 GiveUpAllCallBacks {} = [] -> {} = [];
        65540 GetCapabilities {} = [] -> { capabilities: list([7]) } = ["00000001 00000007"];
        65541 CallBackRxConnAddr { address: 9 } = ["00000009"] -> {} = [];
        65542 GetStatistics64 { version: 16 } = ["00000010"]
            -> { statistics: list([0x1_0000_0002, 3]) }
            = ["00000002 00000001 00000002 00000000 00000003"];
    }
}

#[test]
fn streams_are_where_data_is_fetched_and_stored() {
    assert_eq!(
        streams::<FilesCall>(),
        (vec!["StoreData", "StoreData64"], vec!["FetchData", "FetchData64"])
    );
}
