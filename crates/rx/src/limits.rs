//! Numbers of the protocol and of this implementation, with their reasons.
//!
//! Source of those of the protocol: OpenAFS `src/rx/rx.h`, `rx_globals.h`, `rx.c`.

use std::time::Duration;

/// With so many packets in flight the peer has work, so an acknowledgement may wait a little.
pub const STREAM_MIN: u32 = 8;
/// Packets that wait behind a window: so many at least, so that a writer fills some at once.
pub const QUEUE_MIN: usize = 32;

/// A connection has so many channels, each with one call at a time.
pub const CHANNELS: usize = 4;
/// Packets of a window at most: 1.4 MB, which fills a line of 70 MB/s with a round trip of 20 ms.
/// Peers that have no such window take the most that they have.
pub const WINDOW_MAX: u16 = 1024;
/// The window of a peer that has not told its own.
pub const WINDOW_ASSUMED: u32 = 32;
/// A datagram that no Ethernet splits.
pub const PACKET_DEFAULT: u16 = 1444;
/// The smallest limit of a peer that is believed.
pub const PACKET_MIN: u16 = 520;
/// The largest datagram of the protocol.
pub const PACKET_MAX: u16 = 16384;

/// An acknowledgement that nothing hastens is sent after this time.
pub const ACK_DELAY: Duration = Duration::from_millis(100);
/// So many packets without an acknowledgement are acknowledged at once.
pub const ACK_EVERY: u32 = 2;
/// So many packets that the reader took open the window at once.
pub const HARD_ACK_EVERY: u32 = 2;

/// Time until the first resend before the round trip is known (RFC 6298, section 2).
pub const RESEND_FIRST: Duration = Duration::from_secs(1);
/// The part of the resend time that is measured is at least this.
pub const RESEND_FLOOR: Duration = Duration::from_millis(20);
/// Peers may delay acknowledgements, so this is added.
pub const RESEND_SLACK: Duration = Duration::from_millis(200);
/// Added for the last packet of a direction, whose acknowledgement peers delay longest.
pub const RESEND_SLACK_LAST: Duration = Duration::from_millis(400);
/// The resend time doubles up to this.
pub const RESEND_MAX: Duration = Duration::from_secs(60);
/// A packet is lost when one that was sent so much later has arrived (RFC 9002, section 6.1.1).
pub const REORDER_MAX: u64 = 3;
/// Packets in flight at the start of a call (RFC 6928).
pub const CONGESTION_FIRST: u32 = 10;

/// Keep-alive packets in the time after which a silent peer counts as dead.
pub const KEEPALIVE_PARTS: u32 = 6;
/// A challenge is sent again after this time.
pub const CHALLENGE_INTERVAL: Duration = Duration::from_secs(2);
/// A connection that has not answered its challenge is dropped after this time: 50 intervals.
pub const CHALLENGE_PATIENCE: Duration = Duration::from_secs(100);
/// Responses of one connection are so far apart, whoever sends challenges.
pub const RESPONSE_INTERVAL: Duration = Duration::from_millis(100);
/// A probe of an address is sent again after this time.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Data packets that a call without proof may have waiting.
pub const UNPROVED_PACKETS: usize = 12;
/// Bytes that a connection without proof may have waiting, in all its calls. A first window of
/// [`CONGESTION_FIRST`] packets fits.
pub const UNPROVED_BYTES: usize = 16 * 1024;
/// An address that sent so much is probed before something is withheld.
pub const PROBE_EARLY_BYTES: usize = 512;
/// Packets with a wrong seal, and no good one between, until the connection is in error.
pub const BAD_SEALS_MAX: u32 = 64;
/// Answers that belong to no connection and wait to be sent.
pub const STRAYS_MAX: usize = 256;
/// Answers to packets of a connection or call in error are so far apart.
pub const ABORT_INTERVAL: Duration = Duration::from_millis(20);

const _: () = assert!(PACKET_MIN < PACKET_DEFAULT && PACKET_DEFAULT < PACKET_MAX);
const _: () = assert!(CHANNELS == 4, "the channel is in two bits of the connection's number");
const _: () = assert!(UNPROVED_BYTES > CONGESTION_FIRST as usize * PACKET_DEFAULT as usize);
