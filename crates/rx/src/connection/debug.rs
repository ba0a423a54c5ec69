//! A connection as `rxdebug` shows it.

use super::{RoundTrip, RxChannel, RxConnection};
use crate::debug::{ChannelState, ConnectionAnswer};

impl RxConnection {
    /// The connection as it is now.
    pub(crate) fn debug_answer(&self) -> ConnectionAnswer {
        let channels = self.channels.each_ref().map(|channel| {
            let call = channel.call.as_deref();
            (call.map_or(channel.number, |call| call.id.number), channel.state())
        });
        ConnectionAnswer {
            peer: self.peer,
            epoch: self.key.epoch,
            cid: self.key.cid,
            serial: self.serial,
            is_client: self.is_client(),
            error: self.failed.map_or(0, |error| error.code()),
            security: self.security_index(),
            level: self.security.level(),
            channels,
            packet_bytes: self.packet_bytes(),
            traffic: self.traffic,
        }
    }

    /// Bytes of the packets that it makes.
    pub(crate) fn packet_bytes(&self) -> u16 {
        self.packet_send
    }

    /// The last measurements of the path.
    pub(crate) fn round_trip(&self) -> RoundTrip {
        let calls = self.channels.iter().filter_map(|channel| channel.call.as_deref());
        let known = calls.map(|call| call.round_trip()).chain([self.round_trip]);
        known.max_by_key(RoundTrip::smoothed).unwrap_or_default()
    }
}

impl RxChannel {
    fn state(&self) -> ChannelState {
        match self.call.as_deref() {
            None => ChannelState::Unused,
            Some(call) if call.is_waiting() => ChannelState::Waiting,
            Some(call) if call.has_failed() => ChannelState::Failed,
            Some(call) if call.is_over() => ChannelState::Ended,
            Some(call) if call.is_sending() => ChannelState::Sending,
            Some(_) => ChannelState::Receiving,
        }
    }
}
