//! The state of a database server, as `udebug` shows it. Hosts are IPv4 addresses as numbers.

use super::{UbikTransaction, UbikVersion};
use crate::xdr::xdr_struct;

/// Bits of the recovery state. A healthy synchronization site has all of them: 0x1f.
pub mod recovery {
    /// This server is the synchronization site.
    pub const SYNC_SITE: i32 = 1;
    /// The best database was found.
    pub const FOUND_DATABASE: i32 = 2;
    /// It is here.
    pub const HAVE_DATABASE: i32 = 4;
    /// It has its label.
    pub const LABELLED_DATABASE: i32 = 8;
    /// The others have it.
    pub const SENT_DATABASE: i32 = 0x10;
}

xdr_struct! {
    /// The state of this server, without its addresses.
    #[derive(Copy, Default)]
    pub struct UbikDebugOld {
        now: i32,
        last_yes_time: i32,
        last_yes_host: u32,
        last_yes_state: i32,
        last_yes_claim: i32,
        lowest_host: u32,
        lowest_time: i32,
        sync_host: u32,
        sync_time: i32,
        sync_version: UbikVersion,
        sync_transaction: UbikTransaction,
        is_sync_site: i32,
        sync_site_until: i32,
        servers: i32,
        locked_pages: i32,
        write_locked_pages: i32,
        local_version: UbikVersion,
        active_write: i32,
        transaction_counter: i32,
        any_read_locks: i32,
        any_write_locks: i32,
        /// Bits of [`recovery`].
        recovery_state: i32,
        current_transaction: i32,
        write_transaction: i32,
        epoch_time: i32,
    }

    /// The state of this server.
    pub struct UbikDebug { state: UbikDebugOld, addresses: [u32; 256] }

    /// Another server as this one sees it, by its primary address.
    #[derive(Copy, Default)]
    pub struct UbikServerDebugOld {
        address: u32,
        last_vote_time: i32,
        last_beacon_sent: i32,
        last_vote: i32,
        remote_version: UbikVersion,
        current_database: i32,
        beacon_since_down: i32,
        up: i32,
    }

    /// The same with its other addresses.
    pub struct UbikServerDebug { server: UbikServerDebugOld, other_addresses: [u32; 255] }
}
