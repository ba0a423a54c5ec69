//! Limits of the protocol beside those in [`types::limits`], each with its reason.

use std::time::Duration;

use types::limits::{
    KEEP_ALIVE, LEASE, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, SLOTS_MAX, XATTR_VALUE_BYTES_MAX,
};

/// Fids in one `Hold`, `Unhold` or acknowledgement: 96 KiB, which leaves room in a message.
pub const FIDS_MAX: usize = types::limits::HOLD_FIDS_MAX;
/// Promises that one break ends: an acknowledgement may have to name each of them.
pub const BREAK_ITEMS_MAX: usize = FIDS_MAX;
/// Bytes of all name hints in one break; the server omits hints past it.
pub const BREAK_HINT_BYTES_MAX: usize = 64 << 10;
/// Checksums in one answer: 256 KiB of message less its head. A longer request gets a shorter
/// answer.
pub const SUMS_MAX: usize = 65_000;
/// Least credits of a session: one stays free for calls that end waiting, one may wait for a lock,
/// two work.
pub const CREDITS_MIN: u32 = 4;
/// Least payload that a connection must carry: one page.
pub const PAYLOAD_BYTES_LEAST: u32 = 4096;
/// Members of one chain: each takes a slot, and the other half of the slots stays usable.
pub const CHAIN_MAX: usize = (SLOTS_MAX / 2) as usize;
/// Credentials of one session, with handles from 1 to this; a client that needs more reuses the
/// oldest handle.
pub const CREDENTIALS_MAX: usize = 64;
/// Breaks that one session may leave unacknowledged; past it the server ends the session.
pub const BREAKS_MAX: usize = 1024;
/// Most outputs of one step: a reconnect sends everything unacknowledged and unanswered at once,
/// with credentials and cancels, and as many calls fail on the client.
pub const LIVE_OUTPUTS_MAX: usize = BREAKS_MAX + 4 * SLOTS_MAX as usize + 64;
/// Bytes of the display name in an attach: a host and a program.
pub const DISPLAY_BYTES_MAX: usize = 128;
/// Bytes of a readable reason in a refusal or goodbye.
pub const REASON_BYTES_MAX: usize = 200;
/// How long a new connection may take for hello and attach.
pub const GREETING_TIME: Duration = Duration::from_secs(10);
/// A renewal that stays unanswered for this time means that the connection is dead.
pub const RENEWAL_TIME: Duration = KEEP_ALIVE;
/// First and last pause between attempts to connect.
pub const RECONNECT_FIRST: Duration = Duration::from_millis(10);
/// See [`RECONNECT_FIRST`].
pub const RECONNECT_LAST: Duration = Duration::from_millis(1000);

const _: () = assert!(FIDS_MAX * 24 + 64 <= MESSAGE_BYTES_MAX);
const _: () = assert!(BREAK_ITEMS_MAX * 28 + BREAK_HINT_BYTES_MAX + 64 <= MESSAGE_BYTES_MAX);
const _: () = assert!(SUMS_MAX * 4 + 64 <= MESSAGE_BYTES_MAX);
const _: () = assert!(XATTR_VALUE_BYTES_MAX + NAME_BYTES_MAX + 64 <= MESSAGE_BYTES_MAX);
// The client finds a dead connection, and makes a new one, before the lease ends.
const _: () = assert!(
    KEEP_ALIVE.as_secs() + RENEWAL_TIME.as_secs() + RECONNECT_LAST.as_secs() < LEASE.as_secs()
);
