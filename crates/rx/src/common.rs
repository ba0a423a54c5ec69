//! State that all connections of an endpoint share: limits, counters, events, randomness and the
//! wall clock.

use std::collections::{BTreeSet, VecDeque};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use types::Time;

use crate::RxCallId;
use crate::config::EndpointConfig;
use crate::event::RxEvent;
use crate::statistics::RxStatistics;

/// Events that may wait for the application, for each call that may be. A call has five kinds.
const EVENTS_PER_CALL: usize = 8;

/// Which packets there is room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferRoom {
    /// For those that the reader waits for.
    pub(crate) next: bool,
    /// For those after a hole.
    pub(crate) later: bool,
}

#[derive(Debug)]
pub(crate) struct CommonState {
    pub(crate) config: EndpointConfig,
    pub(crate) statistics: RxStatistics,
    pub(crate) events: VecDeque<RxEvent>,
    pub(crate) random: StdRng,
    /// Wall-clock seconds since 1970, and when they were told.
    wall: (i64, Time),
    /// Calls that wrote while the buffers of all calls were full.
    starved: BTreeSet<RxCallId>,
    /// A packet was one of a stream, see [`crate::RxEndpoint::took_stream`].
    pub(crate) is_stream: bool,
}

impl CommonState {
    pub(crate) fn new(config: EndpointConfig, seed: [u8; 32], now: Time) -> Self {
        CommonState {
            config: config.checked(),
            statistics: RxStatistics::default(),
            events: VecDeque::new(),
            random: StdRng::from_seed(seed),
            wall: (0, now),
            starved: BTreeSet::new(),
            is_stream: false,
        }
    }

    pub(crate) fn set_wall(&mut self, now: Time, secs: i64) {
        self.wall = (secs, now);
    }

    pub(crate) fn wall_secs(&self, now: Time) -> i64 {
        let (secs, at) = self.wall;
        secs.saturating_add_unsigned(now.since(at).as_secs())
    }

    /// Counts a packet of something that is not there any more.
    pub(crate) fn stale(&mut self) {
        self.statistics.dropped_stale += 1;
    }

    /// Room for a packet of so many bytes. The last quarter of all buffers is for packets that
    /// readers wait for, so packets after holes do not keep the ones in the holes out.
    pub(crate) fn room(&self, bytes: usize) -> BufferRoom {
        let after = self.statistics.buffered as usize + bytes;
        let max = self.config.buffer_max;
        BufferRoom { next: after <= max, later: after <= max / 4 * 3 }
    }

    /// Packets that a call may have in its sending half; none if all buffers are full.
    pub(crate) fn packets_max(&self) -> usize {
        if self.is_tight() {
            return 0;
        }
        let window = usize::from(self.config.window);
        window + window / 4 + 4
    }

    pub(crate) fn is_tight(&self) -> bool {
        self.statistics.buffered as usize > self.config.buffer_max / 2
    }

    /// Whether one more call of a peer may begin.
    pub(crate) fn may_serve(&self) -> bool {
        (self.statistics.calls as usize) < self.config.calls_max
            && self.events.len() < EVENTS_PER_CALL * self.config.calls_max
    }

    /// A call wrote in vain.
    pub(crate) fn starve(&mut self, call: RxCallId) {
        self.starved.insert(call);
    }

    /// Tells calls that wrote in vain when there is room again.
    pub(crate) fn feed_starved(&mut self) {
        if !self.starved.is_empty() && !self.is_tight() {
            let starved = std::mem::take(&mut self.starved);
            self.events.extend(starved.into_iter().map(RxEvent::Writable));
        }
    }
}
