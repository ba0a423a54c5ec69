//! Answers to version and debug packets, as `rxdebug` reads them.
//!
//! Only the question `GETSTATS` is answered with figures; every other one with the code that means
//! "not here". That is enough for `rxdebug` to work.
//!
//! Source: OpenAFS `doc/txt/rx-debug.txt`, `src/rx/rx.h` (`struct rx_debugStats`).

/// Size of the text in a version packet, with its zero bytes.
pub const VERSION_BYTES: usize = 65;
const GETSTATS: u32 = 1;
const STATS_BYTES: usize = 56;
const NOT_HERE: i32 = -8;
/// Tells `rxdebug` which fields there are.
const STATS_VERSION: u8 = b'S';

/// Figures in the answer to `GETSTATS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsAnswer {
    /// Packets that could still be buffered.
    pub free_packets: u32,
    /// Calls that were given to the application.
    pub calls_executed: u32,
    /// Calls that wait for a proof.
    pub waiting: u32,
    /// Packets that are buffered at most.
    pub packets: u32,
}

/// The payload of a version packet: the text, cut to fit, then zero bytes.
pub fn version_text(text: &str) -> [u8; VERSION_BYTES] {
    let mut bytes = [0; VERSION_BYTES];
    let len = text.len().min(VERSION_BYTES - 1);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

/// The payload of the answer to a debug packet; `None` if the question is too short.
pub fn debug_answer(question: &[u8], stats: StatsAnswer) -> Option<Vec<u8>> {
    let kind = u32::from_be_bytes(*question.first_chunk::<4>()?);
    if kind != GETSTATS {
        return Some([NOT_HERE.to_be_bytes(), NOT_HERE.to_be_bytes()].concat());
    }
    let mut bytes = Vec::with_capacity(STATS_BYTES);
    for word in [stats.free_packets, 0, stats.calls_executed] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(&[0, 0, STATS_VERSION, 0]);
    for word in [stats.waiting, 0, 0, stats.packets] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.resize(STATS_BYTES, 0);
    Some(bytes)
}
