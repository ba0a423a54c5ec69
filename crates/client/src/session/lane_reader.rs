//! Receives over the lane of a channel.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dafs::{Frame, FrameHeader, FrameKind};
use fabric::lane::LaneEntry;

use super::channel::FrameChannel;
use super::channel_lane::ChannelLane;
use super::placed::placed;
use super::shared::{On, Shared};

/// How long a thread looks into an empty lane before it waits at the socket.
const LANE_PATIENCE: Duration = Duration::from_micros(20);
/// The same while the server looks into the lane, too, if the last answer came within that time: it
/// answers sooner than it could wake this side. When it copies large bodies it does not, and a
/// thread that looks on takes time from the copies.
const WATCHED_PATIENCE: Duration = Duration::from_micros(60);

/// See the head of the file. The thread has the reader's role.
pub(super) struct LaneReader<'a> {
    shared: &'a Arc<Shared>,
    channel: &'a FrameChannel,
    on: On,
}

/// The result of a look into a lane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneWatch {
    Some,
    Nothing,
    /// The channel is over.
    Lost,
}

impl<'a> LaneReader<'a> {
    pub fn new(shared: &'a Arc<Shared>, channel: &'a FrameChannel, on: On) -> LaneReader<'a> {
        LaneReader { shared, channel, on }
    }

    /// Takes all that is in the lane, or waits a short time for something. After `Nothing` the
    /// server rings at the socket.
    pub fn watch(&self) -> LaneWatch {
        let Some(lane) = self.channel.lane.as_ref().filter(|lane| lane.is_open()) else {
            return LaneWatch::Nothing;
        };
        let began = Instant::now();
        let was_quick = lane.is_quick.load(Ordering::Relaxed);
        let mut has_waited = false;
        loop {
            match self.take() {
                LaneWatch::Nothing => {}
                found => {
                    if has_waited && !was_quick {
                        lane.is_quick.store(true, Ordering::Relaxed);
                    }
                    return found;
                }
            }
            has_waited = true;
            let waited = began.elapsed();
            let goes_on = waited < LANE_PATIENCE
                || was_quick && waited < WATCHED_PATIENCE && lane.is_watched();
            if !goes_on && sleeps(lane) {
                lane.is_quick.store(false, Ordering::Relaxed);
                return LaneWatch::Nothing;
            }
            std::hint::spin_loop();
        }
    }

    /// Takes all that is in the lane, without a system call.
    pub fn take(&self) -> LaneWatch {
        let Some(lane) = &self.channel.lane else { return LaneWatch::Nothing };
        let mut receiver = lane.receiver.lock();
        let Some(receiver) = receiver.as_mut() else { return LaneWatch::Nothing };
        let mut found = LaneWatch::Nothing;
        loop {
            match receiver.take().map_err(|error| error.to_string()).and_then(to_frame) {
                Ok(None) => return found,
                Ok(Some(frame)) => {
                    found = LaneWatch::Some;
                    if !self.shared.take_frame(self.channel, frame, None, self.on) {
                        return LaneWatch::Lost;
                    }
                }
                Err(error) => {
                    self.shared.lose(self.channel, &error, self.on);
                    return LaneWatch::Lost;
                }
            }
        }
    }
}

/// Tells the server that this side sleeps. `false`: something came.
fn sleeps(lane: &ChannelLane) -> bool {
    lane.receiver.lock().as_ref().is_none_or(|receiver| receiver.sleep())
}

/// A reply from the lane. The server has put its payload into the client's memory already.
fn to_frame(entry: Option<LaneEntry>) -> Result<Option<Frame>, String> {
    let Some(entry) = entry else { return Ok(None) };
    let header = FrameHeader::parse(entry.header()).map_err(|error| error.to_string())?;
    if header.kind != FrameKind::Reply {
        return Err("only replies come through a lane".to_owned());
    }
    let message = entry.message(header.message_bytes as usize).ok_or("too long a message")?;
    let payload = placed(header.payload_bytes as usize);
    Ok(Some(Frame { header, message: Bytes::copy_from_slice(message), payload }))
}
