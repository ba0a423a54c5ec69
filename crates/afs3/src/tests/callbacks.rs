//! RXAFSCB.

use super::fixtures::*;
use super::structs;
use crate::callbacks::{CallbacksAnswer, CallbacksCall};

#[test]
fn calls_to_clients_have_their_bytes() {
    golden! { CallbacksCall CallbacksAnswer
        204 CallBack { fids: list([FID]), callbacks: list([CALLBACK]) }
            = ["00000001", FID_HEX, "00000001", CALLBACK_HEX] -> {} = [];
        205 InitCallBackState {} = [] -> {} = [];
        206 Probe {} = [] -> {} = [];
        207 GetLock { index: 9 } = ["00000009"]
            -> { lock: structs::cache_lock() } = [structs::cache_lock_hex()];
        208 GetCE { index: 9 } = ["00000009"]
            -> { entry: structs::cache_entry() } = [structs::cache_entry_hex()];
        209 XStatsVersion {} = [] -> { version: 2 } = ["00000002"];
        210 GetXStats { client_version: 2, collection: 1 } = ["00000002 00000001"]
            -> { server_version: 2, time: 3, data: list([4]) }
            = ["00000002 00000003 00000001 00000004"];
        211 InitCallBackState2 {} = []
            -> { addresses: Box::new(structs::interfaces()) } = [structs::interfaces_hex()];
        212 WhoAreYou {} = []
            -> { addresses: Box::new(structs::interfaces()) } = [structs::interfaces_hex()];
        213 InitCallBackState3 { server: UUID } = [UUID_HEX] -> {} = [];
        214 ProbeUuid { client: UUID } = [UUID_HEX] -> {} = [];
        215 GetServerPrefs { index: 9 } = ["00000009"]
            -> { address: 0x0a00_0001, rank: 40000 } = ["0a000001 00009c40"];
        216 GetCellServDB { index: 9 } = ["00000009"]
            -> { cell: text("ab"), servers: list([0x0a00_0001, -2]) }
            = [AB, "00000002 0a000001 fffffffe"];
        217 GetLocalCell {} = [] -> { cell: text("ab") } = [AB];
        218 GetCacheConfig { caller_version: 1 } = ["00000001"]
            -> { server_version: 2, count: 3, config: list([4, 5, 6]) }
            = ["00000002 00000003 00000003 00000004 00000005 00000006"];
        65536 GetCE64 { index: 9 } = ["00000009"]
            -> { entry: structs::cache_entry64() } = [structs::cache_entry64_hex()];
        65537 GetCellByNum { number: 9 } = ["00000009"]
            -> { cell: text("ab"), servers: list([]) } = [AB, EMPTY];
        65538 TellMeAboutYourself {} = []
            -> { addresses: Box::new(structs::interfaces()), capabilities: list([1]) }
            = [structs::interfaces_hex(), "00000001 00000001"];
    }
}

#[test]
fn callbacks_have_no_streams() {
    assert_eq!(streams::<CallbacksCall>(), (vec![], vec![]));
}
