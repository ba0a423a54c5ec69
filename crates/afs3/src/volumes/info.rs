//! The answers of volume servers about volumes, partitions and transactions.

use crate::xdr::{Chars, xdr_struct};

/// Kinds of volume.
pub mod volume_type {
    /// It can be written.
    pub const RW: i32 = 0;
    /// A replica, or the clone for one.
    pub const RO: i32 = 1;
    /// A backup clone.
    pub const BACKUP: i32 = 2;
}

/// Values of [`VolumeReport::status`].
pub mod in_use {
    /// The volume cannot be attached; its name is that of the header file.
    pub const BROKEN: i32 = 0;
    /// All is well.
    pub const OK: i32 = 2;
    /// A transaction has the volume; only its number is given.
    pub const BUSY: i32 = 110;
}

xdr_struct! {
    /// The state of a transaction's volume.
    #[derive(Copy, Default)]
    pub struct VolserStatus {
        volume: u32,
        next_unique: u32,
        kind: i32,
        parent: u32,
        clone: u32,
        backup: u32,
        restored_from: u32,
        max_quota: i32,
        min_quota: i32,
        owner: i32,
        created: i32,
        accessed: i32,
        updated: i32,
        expires: i32,
        backed_up: i32,
        copied: i32,
    }

    /// A volume server to which a volume is sent: an IPv4 address as a number, 7005, and 1.
    #[derive(Copy, Default)]
    pub struct Destination { host: u32, port: u32, service: u32 }

    /// The same with a transaction there.
    #[derive(Copy, Default)]
    pub struct Replica { transaction: i32, destination: Destination }

    /// Fields that replace those of the header of a restored dump.
    #[derive(Copy)]
    pub struct RestoreCookie { name: Chars<32>, kind: i32, clone: u32, parent: u32 }

    /// A volume in a list.
    #[derive(Copy)]
    pub struct VolumeReport {
        name: Chars<32>,
        volume: u32,
        kind: i32,
        backup: u32,
        parent: u32,
        clone: u32,
        /// One of [`in_use`].
        status: i32,
        copied: i32,
        /// 1: on line.
        in_use: u8,
        needs_salvaged: u8,
        destroy_me: u8,
        created: i32,
        accessed: i32,
        updated: i32,
        backed_up: i32,
        day_use: i32,
        files: i32,
        max_quota: i32,
        /// KiB.
        size: i32,
        flags: i32,
        /// The least quota; with AFS/OSD the volume's policy.
        spare0: i32,
        /// The use of the week.
        spare1: i32,
        /// How often the volume was changed.
        spare2: i32,
        spare3: i32,
    }

    /// A volume in a list with statistics.
    #[derive(Copy)]
    pub struct VolumeReportX {
        name: Chars<32>,
        volume: u32,
        kind: i32,
        backup: u32,
        parent: u32,
        clone: u32,
        status: i32,
        copied: i32,
        in_use: u8,
        created: i32,
        accessed: i32,
        updated: i32,
        backed_up: i32,
        day_use: i32,
        files: i32,
        max_quota: i32,
        size: i32,
        /// All and authenticated ones of the same site, then of others.
        reads: [i32; 4],
        writes: [i32; 4],
        /// By the time since the last change: below a minute, 10 minutes, an hour, a day, a week,
        /// and above.
        file_same_author: [i32; 6],
        file_other_author: [i32; 6],
        dir_same_author: [i32; 6],
        dir_other_author: [i32; 6],
    }

    /// A transaction.
    #[derive(Copy)]
    pub struct TransactionInfo {
        transaction: i32,
        /// The last use.
        used: i32,
        created: i32,
        code: i32,
        volume: u32,
        partition: i32,
        attach_flags: i16,
        volume_flags: i8,
        flags: i8,
        last_procedure: Chars<30>,
        /// Not 0: the members behind it count.
        call_valid: i32,
        read_next: i32,
        transmit_next: i32,
        last_sent: i32,
        last_received: i32,
    }

    /// A partition. Stock servers put the total into `min_free` and leave `total_usable` 0; sizes
    /// are KiB.
    #[derive(Copy)]
    pub struct DiskPartition {
        name: Chars<32>,
        device: Chars<32>,
        lock_fd: i32,
        total_usable: i32,
        free: i32,
        min_free: i32,
    }

    /// The same with sizes of 64 bits.
    #[derive(Copy)]
    pub struct DiskPartition64 {
        name: Chars<256>,
        device: Chars<256>,
        lock_fd: i32,
        total_usable: i64,
        free: i64,
        min_free: i64,
    }
}
