//! PR, the protection database: users, groups, and who is in which.
//!
//! A name as an argument of its own is a string; in lists and structures it has 64 words.
//!
//! Source: OpenAFS `src/ptserver/ptint.xg`, `src/ptserver/ptserver.h`.

use crate::rpc::service;
use crate::xdr::{Chars, XdrBytes, XdrList, xdr_struct};

/// The Rx service.
pub const SERVICE: u16 = 73;
/// The UDP port of protection servers.
pub const PORT: u16 = 7002;

/// `system:anyuser`.
pub const ANY_USER: i32 = -101;
/// `system:authuser`.
pub const AUTH_USER: i32 = -102;
/// `system:ptsviewers`.
pub const VIEWERS: i32 = -203;
/// `system:administrators`.
pub const ADMINISTRATORS: i32 = -204;
/// `system:backup`.
pub const BACKUP: i32 = -205;
/// The user that no one is, and the answer for unknown names.
pub const ANONYMOUS: i32 = 32766;

/// Most elements of a list that decoders of OpenAFS accept.
pub const LIST_MAX: usize = 500_000;

/// A name as a string.
pub type PrName = XdrBytes<64>;
/// Names, with 64 words each.
pub type PrNames = XdrList<Chars<64>, LIST_MAX>;
/// Users and groups.
pub type PrIds = XdrList<i32, LIST_MAX>;

/// Bits of a record's flags, as [`PrDebugEntry`] and [`PrUpdate`] have them. Answers about entries
/// have the privacy flags alone, as the lowest bits.
pub mod entry_flag {
    /// The entry is free.
    pub const FREE: i32 = 1;
    /// It is a group.
    pub const GROUP: i32 = 2;
    /// It continues another entry.
    pub const CONTINUATION: i32 = 4;
    /// It is a cell.
    pub const CELL: i32 = 8;
    /// It is a user of another cell.
    pub const FOREIGN: i32 = 0x10;
    /// It is an instance.
    pub const INSTANCE: i32 = 0x20;
    /// The privacy flags count.
    pub const ACCESS: i32 = 0x40;
    /// The quota counts.
    pub const QUOTA: i32 = 0x80;
    /// The lowest bit of the privacy flags: `r`, and above it `a`, `A`, `m`, `M`, `O`, `s`, `S`.
    pub const PRIVACY_SHIFT: u32 = 16;
}

/// Bits of the mask of `SetFieldsEntry`.
pub mod fields_mask {
    /// All privacy flags.
    pub const PRIVACY: u32 = 0xff;
    /// The groups that the user may make.
    pub const GROUP_QUOTA: u32 = 1 << 31;
    /// The foreign users that the group may have.
    pub const USER_QUOTA: u32 = 1 << 30;
}

/// Bits of [`PrUpdate::mask`].
pub mod update_mask {
    /// The name.
    pub const NAME: u32 = 1;
    /// The number.
    pub const ID: u32 = 2;
    /// The flags.
    pub const FLAGS: u32 = 4;
    /// The hash chains of names.
    pub const NAME_HASH: u32 = 8;
    /// The hash chains of numbers.
    pub const ID_HASH: u32 = 0x10;
}

xdr_struct! {
    /// A user or group.
    #[derive(Copy)]
    pub struct PrEntry {
        /// The privacy flags: `r`, and above it `a`, `A`, `m`, `M`, `O`, `s`, `S`.
        flags: i32,
        id: i32,
        owner: i32,
        creator: i32,
        /// The groups that it may still make.
        group_quota: i32,
        user_quota: i32,
        /// Its members, or the groups that it is in.
        count: i32,
        reserved: [i32; 5],
        name: Chars<64>,
    }

    /// A record of the database as it is stored.
    pub struct PrDebugEntry {
        flags: i32,
        id: i32,
        cell: i32,
        next: i32,
        reserved: [i32; 5],
        entries: [i32; 10],
        next_id: i32,
        next_name: i32,
        owner: i32,
        creator: i32,
        group_quota: i32,
        user_quota: i32,
        count: i32,
        instance: i32,
        owned: i32,
        next_owned: i32,
        parent: i32,
        sibling: i32,
        child: i32,
        name: Chars<64>,
    }

    /// A change of a record: what the mask names.
    pub struct PrUpdate {
        /// Bits of [`update_mask`].
        mask: u32,
        flags: i32,
        id: i32,
        owner: i32,
        creator: i32,
        group_quota: i32,
        user_quota: i32,
        count: i32,
        reserved: [i32; 5],
        name: Chars<64>,
    }
}

service! {
    /// The calls of the protection service.
    calls ProtectionCall;
    /// Its answers.
    answers ProtectionAnswer;

    500 INewEntry(name: PrName, id: i32, owner: i32) -> ();
    501 WhereIsIt(id: i32) -> (position: i32);
    502 DumpEntry(position: i32) -> (entry: Box<PrDebugEntry>);
    503 AddToGroup(user: i32, group: i32) -> ();
    504 NameToID(names: PrNames) -> (ids: PrIds);
    505 IDToName(ids: PrIds) -> (names: PrNames);
    506 Delete(id: i32) -> ();
    507 RemoveFromGroup(user: i32, group: i32) -> ();
    508 GetCPS(id: i32) -> (ids: PrIds, over: i32);
    /// Flag 0 makes a user, 2 a group.
    509 NewEntry(name: PrName, flag: i32, owner: i32) -> (id: i32);
    510 ListMax() -> (user: i32, group: i32);
    511 SetMax(id: i32, group_flag: i32) -> ();
    512 ListEntry(id: i32) -> (entry: PrEntry);
    /// An empty name, an owner 0 and a number 0 stay as they are.
    513 ChangeEntry(id: i32, name: PrName, owner: i32, new_id: i32) -> ();
    514 ListElements(id: i32) -> (ids: PrIds, over: i32);
    515 IsAMemberOf(user: i32, group: i32) -> (flag: i32);
    516 SetFieldsEntry(
            id: i32, mask: u32, flags: i32, group_quota: i32, user_quota: i32, spare1: i32,
            spare2: i32,
        ) -> ();
    /// A `last` that is not 0 in the answer continues the list as the next argument.
    517 ListOwned(id: i32, last: i32) -> (ids: PrIds, last: i32);
    518 GetCPS2(id: i32, host: u32) -> (ids: PrIds, over: i32);
    519 GetHostCPS(host: u32) -> (ids: PrIds, over: i32);
    520 UpdateEntry(id: i32, name: PrName, update: Box<PrUpdate>) -> ();
    /// Flag 1 lists users, 2 groups. The next index is -1 at the end.
    521 ListEntries(flags: i32, start: i32) -> (entries: XdrList<PrEntry>, next: i32);
    /// Unknown to servers without groups in groups.
    530 ListSuperGroups(id: i32) -> (ids: PrIds, over: i32);
}
