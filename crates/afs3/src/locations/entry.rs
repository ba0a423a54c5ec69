//! Entries of the location database, and questions about them.

use crate::structs::AfsUuid;
use crate::xdr::{Chars, xdr_struct};

/// Bits of an entry's flags, beside those of [`lock_operation`].
pub mod entry_flag {
    /// The volume that can be written exists.
    pub const RW_EXISTS: i32 = 0x1000;
    /// Replicas exist.
    pub const RO_EXISTS: i32 = 0x2000;
    /// A backup clone exists.
    pub const BACKUP_EXISTS: i32 = 0x4000;
    /// It is a fileset of DFS.
    pub const DFS_FILESET: i32 = 0x8000;
}

/// Operations for which an entry is locked.
pub mod lock_operation {
    /// A move.
    pub const MOVE: i32 = 0x10;
    /// A release.
    pub const RELEASE: i32 = 0x20;
    /// A backup clone.
    pub const BACKUP: i32 = 0x40;
    /// A removal, or a change of sites.
    pub const DELETE: i32 = 0x80;
    /// A dump or restore.
    pub const DUMP: i32 = 0x100;
    /// All of them.
    pub const ALL: i32 = MOVE | RELEASE | BACKUP | DELETE | DUMP;
}

/// Bits of a release type: what of the lock is cleared.
pub mod release_lock {
    /// The time of the lock.
    pub const TIMESTAMP: i32 = 1;
    /// The operation.
    pub const OPERATION: i32 = 2;
    /// The holder.
    pub const AFS_ID: i32 = 4;
}

/// Bits of a site's flags.
pub mod site_flag {
    /// A replica with the new release, while a release is not complete.
    pub const NEW_REPLICA: i32 = 1;
    /// A replica.
    pub const RO: i32 = 2;
    /// The volume that can be written.
    pub const RW: i32 = 4;
    /// A backup clone.
    pub const BACKUP: i32 = 8;
    /// The server is given by its UUID; only in a [`UuidVldbEntry`](super::UuidVldbEntry).
    pub const UUID: i32 = 0x10;
    /// A replica without data: clients do not use it.
    pub const DONT_USE: i32 = 0x20;
    /// A copy of the volume that can be written.
    pub const RW_REPLICA: i32 = 0x40;
}

/// Bits of [`ListAttributes::mask`].
pub mod list_mask {
    /// The server counts.
    pub const SERVER: u32 = 1;
    /// The partition counts.
    pub const PARTITION: u32 = 2;
    /// The volume counts.
    pub const VOLUME: u32 = 8;
    /// The flag counts.
    pub const FLAG: u32 = 0x10;
}

/// Values of [`AddressAttributes::mask`]: exactly one.
pub mod address_mask {
    /// The address counts.
    pub const ADDRESS: i32 = 1;
    /// The index counts.
    pub const INDEX: i32 = 2;
    /// The UUID counts.
    pub const UUID: i32 = 4;
}

/// Bits of [`VldbUpdate::mask`] and, with `SITE_`, of [`VldbUpdate::site_masks`].
pub mod update_mask {
    /// The name.
    pub const NAME: u32 = 1;
    /// The flags.
    pub const FLAGS: u32 = 4;
    /// The number of the replicas.
    pub const RO_ID: u32 = 8;
    /// The number of the backup clone.
    pub const BACKUP_ID: u32 = 0x10;
    /// The sites.
    pub const SITES: u32 = 0x20;
    /// The number of the clone of a release.
    pub const CLONE_ID: u32 = 0x80;
    /// The hash chains of names.
    pub const NAME_HASH: u32 = 0x100;
    /// The number of the volume that can be written.
    pub const RW_ID: u32 = 0x200;
    /// The site is removed.
    pub const SITE_DELETE: u32 = 0x100;
    /// The site is new.
    pub const SITE_ADD: u32 = 0x200;
    /// The site has another server.
    pub const SITE_SERVER: u32 = 0x400;
    /// The site has another partition.
    pub const SITE_PARTITION: u32 = 0x800;
    /// The site has other flags.
    pub const SITE_FLAGS: u32 = 0x1000;
}

xdr_struct! {
    /// A volume's entry with up to 8 sites. Servers are IPv4 addresses as numbers; partition 0 is
    /// `/vicepa`. The volumes are the one that can be written, the replicas', the backup clone.
    #[derive(Copy)]
    pub struct OldVldbEntry {
        name: Chars<65>,
        spare: i32,
        site_count: i32,
        servers: [u32; 8],
        partitions: [i32; 8],
        site_flags: [i32; 8],
        volumes: [u32; 3],
        clone: u32,
        flags: i32,
    }

    /// The same with up to 13 sites.
    #[derive(Copy)]
    pub struct VldbEntry {
        name: Chars<65>,
        site_count: i32,
        servers: [u32; 13],
        partitions: [i32; 13],
        site_flags: [i32; 13],
        volumes: [u32; 3],
        clone: u32,
        flags: i32,
        /// In the answer to `ListAttributesN2`: the site that matched.
        match_index: i32,
        spares: [i32; 8],
    }

    /// The same with the servers' UUIDs. The UUID of a server without one is its address in the
    /// first word, and the site's flags do not have `UUID`.
    #[derive(Copy)]
    pub struct UuidVldbEntry {
        name: Chars<65>,
        site_count: i32,
        servers: [AfsUuid; 13],
        /// How often the addresses of the server changed.
        server_uniques: [i32; 13],
        partitions: [i32; 13],
        site_flags: [i32; 13],
        volumes: [u32; 3],
        clone: u32,
        flags: i32,
        match_index: i32,
        spares: [i32; 8],
    }

    /// The entries that a list is to have.
    #[derive(Copy, Default)]
    pub struct ListAttributes {
        /// Bits of [`list_mask`].
        mask: u32,
        server: u32,
        partition: i32,
        spare: i32,
        volume: u32,
        flag: i32,
    }

    /// The server whose addresses are asked for.
    #[derive(Copy, Default)]
    pub struct AddressAttributes {
        /// One of [`address_mask`].
        mask: i32,
        address: u32,
        /// Counts from 1.
        index: i32,
        spare: i32,
        uuid: AfsUuid,
    }

    /// A change of an entry: what the masks name.
    pub struct VldbUpdate {
        /// Bits of [`update_mask`].
        mask: u32,
        name: Chars<65>,
        spare: i32,
        flags: i32,
        ro_volume: u32,
        backup_volume: u32,
        clone: u32,
        site_count: i32,
        site_masks: [u32; 8],
        target_servers: [u32; 8],
        target_partitions: [i32; 8],
        new_servers: [u32; 8],
        new_partitions: [i32; 8],
        new_flags: [i32; 8],
    }

    /// The front of the database's header.
    #[derive(Copy, Default)]
    pub struct VlHeader {
        version: i32,
        header_bytes: i32,
        free: i32,
        end: i32,
        allocations: i32,
        frees: i32,
        max_volume: u32,
        entries: [i32; 3],
    }

    /// Counts of calls and refusals, by procedure from 501 on.
    pub struct VlStatistics {
        start_time: u32,
        requests: [i32; 50],
        aborts: [i32; 50],
        spares: [i32; 5],
    }

    /// Four words that servers leave zero.
    #[derive(Copy, Default)]
    pub struct VlCallBack { version: u32, expiration: u32, kind: u32, handle: u32 }
}
