//! BOZO, the service that starts and watches the servers of a machine.
//!
//! The stream of `Install` has as many bytes as the arguments say. That of `GetLog` ends with a
//! zero byte.
//!
//! Source: OpenAFS `src/bozo/bosint.xg`.

use crate::rpc::service;
use crate::xdr::{Chars, XdrBytes, xdr_struct};

/// The Rx service.
pub const SERVICE: u16 = 1;
/// The UDP port of bos servers.
pub const PORT: u16 = 7007;

/// Any string of this service.
pub type BosText = XdrBytes<256>;

/// Bits of [`KTime::mask`].
pub mod time_mask {
    /// The hour counts.
    pub const HOUR: i32 = 1;
    /// The minute counts.
    pub const MINUTE: i32 = 2;
    /// The second counts.
    pub const SECOND: i32 = 4;
    /// The day counts.
    pub const DAY: i32 = 8;
    /// Never.
    pub const NEVER: i32 = 0x10;
    /// Now.
    pub const NOW: i32 = 0x20;
}

/// Bits of [`BosStatus::flags`].
pub mod status_flag {
    /// There is a core file.
    pub const HAS_CORE: i32 = 1;
    /// Stopped after too many errors.
    pub const ERROR_STOP: i32 = 2;
    /// Directories have bad modes.
    pub const BAD_DIRECTORY_MODE: i32 = 4;
}

xdr_struct! {
    /// The state of an instance.
    #[derive(Copy, Default)]
    pub struct BosStatus {
        goal: i32,
        file_goal: i32,
        process_started: i32,
        process_starts: i32,
        last_exit: i32,
        last_error_exit: i32,
        error_code: i32,
        error_signal: i32,
        /// Bits of [`status_flag`].
        flags: i32,
        spares: [i32; 8],
    }

    /// A time that repeats. Sunday is day 0.
    #[derive(Copy, Default)]
    pub struct KTime { mask: i32, hour: i16, minute: i16, second: i16, day: i16 }

    /// A key's age and checksum.
    #[derive(Copy, Default)]
    pub struct KeyAbout { seconds: i32, microseconds: i32, checksum: u32, spare: i32 }
}

service! {
    /// The calls of the bos service.
    calls BosCall;
    /// Its answers.
    answers BosAnswer;

    /// The last string is the notifier, or `__NONOTIFIER__`.
    80 CreateBnode(
            kind: BosText, instance: BosText, p1: BosText, p2: BosText, p3: BosText, p4: BosText,
            p5: BosText, p6: BosText,
        ) -> ();
    81 DeleteBnode(instance: BosText) -> ();
    82 SetStatus(instance: BosText, status: i32) -> ();
    83 GetStatus(instance: BosText) -> (state: i32, text: BosText);
    84 EnumerateInstance(index: i32) -> (name: BosText);
    85 GetInstanceInfo(instance: BosText) -> (kind: BosText, status: BosStatus);
    86 GetInstanceParm(instance: BosText, number: i32) -> (text: BosText);
    87 AddSUser(name: BosText) -> ();
    88 DeleteSUser(name: BosText) -> ();
    89 ListSUsers(index: i32) -> (name: BosText);
    90 ListKeys(index: i32) -> (version: i32, key: Chars<8>, about: KeyAbout);
    91 AddKey(version: i32, key: Chars<8>) -> ();
    92 DeleteKey(version: i32) -> ();
    93 SetCellName(name: BosText) -> ();
    94 GetCellName() -> (name: BosText);
    95 GetCellHost(index: u32) -> (name: BosText);
    96 AddCellHost(name: BosText) -> ();
    97 DeleteCellHost(name: BosText) -> ();
    98 SetTStatus(instance: BosText, status: i32) -> ();
    99 ShutdownAll() -> ();
    100 RestartAll() -> ();
    101 StartupAll() -> ();
    102 SetNoAuthFlag(flag: i32) -> ();
    103 ReBozo() -> ();
    104 Restart(instance: BosText) -> ();
    105 Install(path: BosText, size: i32, flags: i32, date: i32) -> () streams BehindArguments;
    106 UnInstall(path: BosText) -> ();
    107 GetDates(path: BosText) -> (new: i32, backup: i32, old: i32);
    108 Exec(command: BosText) -> ();
    109 Prune(flags: i32) -> ();
    110 SetRestartTime(kind: i32, time: KTime) -> ();
    111 GetRestartTime(kind: i32) -> (time: KTime);
    112 GetLog(name: BosText) -> () streams BeforeResults;
    113 WaitAll() -> ();
    114 GetInstanceStrings(instance: BosText)
        -> (error: BosText, spare1: BosText, spare2: BosText, spare3: BosText);
    115 GetRestrictedMode() -> (mode: i32);
    116 SetRestrictedMode(mode: i32) -> ();
}
