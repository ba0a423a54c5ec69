//! Limits of the protocol beside those in [`types::limits`], each with its reason.

use std::time::Duration;

use types::limits::{
    KEEP_ALIVE, LEASE, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, SLOTS_MAX, XATTR_VALUE_BYTES_MAX,
};

/// Fids in one `Hold`, `Unhold` or acknowledgement: 96 KiB, so that it fits into a message with
/// room.
pub const FIDS_MAX: usize = types::limits::HOLD_FIDS_MAX;
/// Promises that one break ends: an acknowledgement may have to name each of them.
pub const BREAK_ITEMS_MAX: usize = FIDS_MAX;
/// Bytes of the name hints in one break, all together; hints past it are left out.
pub const BREAK_HINT_BYTES_MAX: usize = 64 << 10;
/// Checksums in one answer: 256 KiB of message less its head. A longer question gets a shorter
/// answer.
pub const SUMS_MAX: usize = 65_000;
/// Credits that a session has at least: one stays free for what ends waiting, one may wait for a
/// lock, two work.
pub const CREDITS_MIN: u32 = 4;
/// Payload that a connection must carry at least: one page.
pub const PAYLOAD_BYTES_LEAST: u32 = 4096;
/// Members of one chain: each takes a slot, and the other half of the slots keeps going.
pub const CHAIN_MAX: usize = (SLOTS_MAX / 2) as usize;
/// Credentials of one session, with handles from 1 to this; a client gives the oldest handle away
/// when it needs more.
pub const CREDENTIALS_MAX: usize = 64;
/// Breaks that one session may leave unacknowledged; past it the session is ended.
pub const BREAKS_MAX: usize = 1024;
/// Outputs of one step at most: everything unacknowledged and unanswered is sent again at once,
/// with credentials and cancels, and as much fails on the client's side.
pub const LIVE_OUTPUTS_MAX: usize = BREAKS_MAX + 4 * SLOTS_MAX as usize + 64;
/// Bytes of the display name in an attach: a host and a program.
pub const DISPLAY_BYTES_MAX: usize = 128;
/// Bytes of a readable reason in a refusal or goodbye.
pub const REASON_BYTES_MAX: usize = 200;
/// How long a new connection may take to say hello and to attach.
pub const GREETING_TIME: Duration = Duration::from_secs(10);
/// A renewal that is not answered for so long means that the connection is dead.
pub const RENEWAL_TIME: Duration = KEEP_ALIVE;
/// First and last pause between attempts to connect.
pub const RECONNECT_FIRST: Duration = Duration::from_millis(10);
/// See [`RECONNECT_FIRST`].
pub const RECONNECT_LAST: Duration = Duration::from_millis(1000);

const _: () = assert!(FIDS_MAX * 24 + 64 <= MESSAGE_BYTES_MAX);
const _: () = assert!(BREAK_ITEMS_MAX * 28 + BREAK_HINT_BYTES_MAX + 64 <= MESSAGE_BYTES_MAX);
const _: () = assert!(SUMS_MAX * 4 + 64 <= MESSAGE_BYTES_MAX);
const _: () = assert!(XATTR_VALUE_BYTES_MAX + NAME_BYTES_MAX + 64 <= MESSAGE_BYTES_MAX);
// A dead connection is found, and a new one made, before the lease is over.
const _: () = assert!(
    KEEP_ALIVE.as_secs() + RENEWAL_TIME.as_secs() + RECONNECT_LAST.as_secs() < LEASE.as_secs()
);
