//! Every limit that more than one crate depends on, with its reason.

use std::time::Duration;

/// Bytes in a name. Source: POSIX `NAME_MAX`, and what Linux allows.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes in a partition's name: a path that people type.
pub const PARTITION_NAME_BYTES_MAX: usize = 255;
/// Bytes of the text of a disk's error: a line.
pub const DISK_ERROR_BYTES_MAX: usize = 255;
/// Bytes in a server's name: a host's. Source: RFC 1035.
pub const SERVER_NAME_BYTES_MAX: usize = 253;
/// Addresses of a server.
pub const ADDRESSES_MAX: usize = 16;
/// Keys of a server that the cell's database lists: that of its own certificate and of a given one,
/// and of each the next one while it replaces the other.
pub const SERVER_KEYS_MAX: usize = 4;
/// Bytes in the version of a server's program, as it tells the cell.
pub const PROGRAM_BYTES_MAX: usize = 64;
/// Servers of a cell: one message lists all of them.
pub const SERVERS_MAX: usize = 350;
/// Sites of a group of volumes.
pub const SITES_MAX: usize = 1000;
/// Bytes of each text in [`crate::Busy`].
pub const BUSY_BYTES_MAX: usize = 255;
/// Bytes in the name of a cell. Source: DNS.
pub const CELL_BYTES_MAX: usize = 253;
/// Of a user, a group, or a set of hosts, in bytes.
pub const PRINCIPAL_NAME_BYTES_MAX: usize = 63;
/// Of a token: names of cell and principal, keys, times and a signature.
pub const TOKEN_BYTES_MAX: usize = 1024;
/// Of a Kerberos request: a ticket with the authorizations of a large directory is that large (MIT
/// and Windows stop at 48,000).
pub const KERBEROS_BYTES_MAX: usize = 48_000;
/// Bytes of a password.
pub const PASSWORD_BYTES_MIN: usize = 8;
/// Enough for a sentence, and little work for the server that hashes it.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Fences of a cell, and delegations of its administration: every server has all of them in memory.
pub const RULES_MAX: usize = 4096;
/// Bytes of the reason for a fence.
pub const WHY_BYTES_MAX: usize = 255;
/// Invitations of a cell for servers: each is made by hand.
pub const INVITATIONS_MAX: usize = 256;
/// Servers that one invitation lets in.
pub const INVITATION_USES_MAX: usize = 64;
/// Bytes of a request to join: a signing request with a key, names and addresses, and a signature.
pub const JOIN_REQUEST_BYTES_MAX: usize = 8192;
/// Bytes of the facts about the cell that a new server gets: certificates of authorities.
pub const JOIN_FACTS_BYTES_MAX: usize = 32_768;
/// Bytes of the secrets that a new server gets: the keys that sign tokens.
pub const JOIN_SECRETS_BYTES_MAX: usize = 32_768;
/// Keys in an answer about withdrawn ones: more than servers are removed in the life of a
/// certificate, and what fits into one message.
pub const WITHDRAWN_KEYS_MAX: usize = 700;
/// Copies of the cell database that a server makes at a time, each of which keeps old records.
pub const CELL_COPIES_MAX: usize = 4;
/// Bytes in the key of a record of the cell database: a letter and a name.
pub const CELL_KEY_BYTES_MAX: usize = 1024;
/// Principals in one call or answer.
pub const PRINCIPALS_MAX: usize = 1000;
/// Bytes in the text of a task.
pub const TASK_TEXT_BYTES_MAX: usize = 255;
/// Bytes in a symbolic link's target. Source: Linux `PATH_MAX`, without the closing NUL.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Bytes of a target that a listing includes: longer ones are rare, and must not displace the
/// others.
pub const TARGET_LISTED_BYTES_MAX: usize = 512;
/// Bytes in an extended attribute's name. Source: Linux `XATTR_NAME_MAX`.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Bytes in an extended attribute's value. Source: Linux `XATTR_SIZE_MAX`.
pub const XATTR_VALUE_BYTES_MAX: usize = 65536;
/// Extended attributes of one file, in bytes of names and values together.
pub const XATTR_TOTAL_BYTES_MAX: usize = 1 << 20;
/// Bytes of an access list at most.
pub const ACL_BYTES_MAX: usize = 64 << 10;
/// Names of one file's extended attributes, each with a closing NUL. Source: Linux
/// `XATTR_LIST_MAX`; so a listing fits into one message.
pub const XATTR_NAMES_BYTES_MAX: usize = 65536;
/// Supplementary groups in a credential: Linux allows 65,536, and a message must stay small.
pub const GROUPS_MAX: usize = 1024;
/// Links of one file. Source: ext4 has 65,000; ours is what 31 bits of `st_nlink` users expect.
pub const LINKS_MAX: u32 = 1 << 30;
/// A file's end: the largest signed 64-bit offset.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Bulk bytes behind one message. The kernel sends at most 1 MiB in a FUSE write.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of one message without its payload: holds a directory listing or the largest extended
/// attribute.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Bytes of the recorded answer to a change of files: some statuses.
pub const REPLY_RECORD_BYTES_MAX: usize = 64 << 10;
/// Files in one claim of holds, or one end of them: what fits into a message.
pub const HOLD_FIDS_MAX: usize = 4096;
/// Slots of one session: enough to fill a fast link with 1 MiB reads and keep metadata going beside
/// them.
pub const SLOTS_MAX: u32 = 128;

/// Promises of all users' sessions of a server: 450 MB of tables, ten thousand cached files for
/// each of 400 clients.
pub const PROMISES_MAX: usize = 4 << 20;
/// Promises of one user's session: a quarter of all, so that one client cannot break those of the
/// others.
pub const PROMISES_PER_SESSION_MAX: usize = PROMISES_MAX / 4;
/// Promises of all users' sessions of one host: half of all.
pub const PROMISES_PER_HOST_MAX: usize = PROMISES_MAX / 2;
/// Locks and waiting lock requests of one user's session: a database with a lock for each row of a
/// large query.
pub const LOCKS_PER_SESSION_MAX: usize = 1 << 16;
/// Locks and waiting lock requests of all sessions: 100 MB of tables.
pub const LOCKS_MAX: usize = 1 << 20;
/// Locks and waiting lock requests of all users' sessions of one host: half of all.
pub const LOCKS_PER_HOST_MAX: usize = LOCKS_MAX / 2;
/// Files that one user's session holds open: what Linux lets a machine have open (`fs.nr_open`).
pub const HOLDS_PER_SESSION_MAX: usize = 1 << 20;
/// Holds of all sessions: 400 MB of tables.
pub const HOLDS_MAX: usize = 4 << 20;
/// Holds of all users' sessions of one host: half of all.
pub const HOLDS_PER_HOST_MAX: usize = HOLDS_MAX / 2;
/// Opens of one user's session: a server of virtual disks.
pub const OPENS_PER_SESSION_MAX: usize = 4096;
/// Opens of all sessions: 20 MB of tables.
pub const OPENS_MAX: usize = 65_536;
/// Opens of all users' sessions of one host: half of all.
pub const OPENS_PER_HOST_MAX: usize = OPENS_MAX / 2;

// Limits of an *anonymous* session: no user has called through it whom a token proved or whose
// connection is trusted. All anonymous sessions together (times NOBODY_SESSIONS_MAX) get at most a
// quarter of each total.

/// Anonymous sessions on a server. The next one ends the oldest of the host that has most of them.
pub const NOBODY_SESSIONS_MAX: usize = 1024;
/// Anonymous sessions from one host (IPv6: one /64): logins of a large machine or a small network
/// behind one address, all at once.
pub const NOBODY_SESSIONS_PER_HOST_MAX: usize = 64;
/// Requests that an anonymous session may have in progress: enough to read ahead with, and to log
/// in beside it.
pub const NOBODY_CREDITS: u32 = 8;
/// Promises of an anonymous session: those of a large directory. The server sends it breaks, and no
/// change waits for their acknowledgement.
pub const NOBODY_PROMISES_MAX: usize = 1024;
/// Locks and waiting lock requests of an anonymous session.
pub const NOBODY_LOCKS_MAX: usize = 16;
/// An anonymous session waits for a lock only while fewer requests than this wait for locks of the
/// file: an unlock examines all that wait for the same bytes.
pub const NOBODY_LOCK_QUEUE_MAX: usize = 64;
/// Files that an anonymous session holds open.
pub const NOBODY_HOLDS_MAX: usize = 64;
/// MiB for half-received messages of anonymous sessions, and as much again for their unread
/// replies. Above it the server closes the connection that uses most, or the next requests wait.
pub const NOBODY_MEMORY_MIB: usize = 32;
/// Password hashes that wait for one of two threads; one more is answered `Busy`. A second's worth:
/// 25 ms and 19 MiB each.
pub const PASSWORDS_WAITING_MAX: usize = 64;
/// Of these, those of one host.
pub const PASSWORDS_PER_HOST_MAX: usize = 8;
/// Days after which files of the audit log are removed.
pub const AUDIT_DAYS: u64 = 400;
/// MiB of the audit log: a year's at some 2.5 MiB a day. The oldest files go first.
pub const AUDIT_MIB_MAX: u64 = 1024;
/// MiB of a daemon's log before it continues in a new file; one old file stays.
pub const LOG_MIB_MAX: u64 = 64;
/// Sessions of users on a server: 16 times what a site of a thousand machines has.
pub const SESSIONS_MAX: usize = 16_384;
/// Sessions of users from one host: a machine of many containers, or a building behind one address.
pub const SESSIONS_PER_HOST_MAX: usize = 1024;
/// Connections from one host: two of each of its sessions.
pub const CONNECTIONS_PER_HOST_MAX: usize =
    2 * (SESSIONS_PER_HOST_MAX + NOBODY_SESSIONS_PER_HOST_MAX);
/// Memories of clients (regions and lanes) that a server has mapped for local users: a quarter of
/// the mappings that Linux lets a process have (`vm.max_map_count`).
pub const REGIONS_MAX: usize = 16_384;
/// Of these, those of one local user: sixteen connections with all that they may have.
pub const REGIONS_PER_HOST_MAX: usize = 1024;
/// MiB of them: a five-hundredth of the address space of a process.
pub const REGION_MIB_MAX: usize = 256 << 10;
/// Of these, those of one local user: as much as one connection may have.
pub const REGION_MIB_PER_HOST_MAX: usize = 16 << 10;
/// Days without contact after which the newest incarnation of a client is forgotten. An older one
/// that comes back later is accepted (EO-2): all state of both ended long before. Longer than
/// holidays.
pub const CLIENT_KEPT_DAYS: u64 = 60;
/// Descriptors that connections leave to the store, or a quarter of all if that is less: RocksDB
/// cannot continue without one for its next log.
pub const DESCRIPTORS_KEPT: u64 = 4096;

/// A promise is valid until its session's lease ends, counted on the client from when it *sent* the
/// last renewal.
pub const LEASE: Duration = Duration::from_secs(15);
/// Interval at which an idle client renews.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Added by the server before it gives up on a client: covers clocks that differ by 1 %, with room.
pub const LEASE_GRACE: Duration = Duration::from_secs(1);

const _: () = assert!(NOBODY_SESSIONS_MAX * NOBODY_PROMISES_MAX <= PROMISES_MAX / 4);
const _: () = assert!(NOBODY_SESSIONS_MAX * NOBODY_LOCKS_MAX <= LOCKS_MAX / 4);
const _: () = assert!(NOBODY_SESSIONS_MAX * NOBODY_HOLDS_MAX <= HOLDS_MAX / 4);
const _: () = assert!(KEEP_ALIVE.as_secs() * 3 <= LEASE.as_secs());
const _: () = assert!(LEASE.as_millis() / 100 <= LEASE_GRACE.as_millis());
const _: () = assert!(XATTR_VALUE_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(
    SERVERS_MAX * (30 + SERVER_NAME_BYTES_MAX + 18 * ADDRESSES_MAX + 32 * SERVER_KEYS_MAX) + 64
        <= MESSAGE_BYTES_MAX
);
const _: () = assert!(ACL_BYTES_MAX <= XATTR_VALUE_BYTES_MAX);
const _: () = assert!(2 * XATTR_NAMES_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(HOLD_FIDS_MAX * crate::Fid::WIRE_BYTES + 64 <= MESSAGE_BYTES_MAX);
