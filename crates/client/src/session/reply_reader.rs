//! The receiving thread: of all threads that wait for an answer, one leads and the others follow.
//!
//! The leader blocks in the receive on the operations connection, feeds each frame to the machine
//! (which finishes other threads' calls and wakes them), and gives the role up when its own answer
//! arrives, waking one follower for it. So a lone call costs one wake-up, that of its own thread by
//! the kernel, and no thread of the session is involved.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::WaitFor;

use super::channel::FrameChannel;
use super::core::SessionPhase;
use super::lane_reader::{LaneReader, LaneWatch};
use super::pending::PendingCall;
use super::reader_role::Sleeper;
use super::shared::{On, Shared};
use crate::CompletionGroup;

/// How often a leader with a deadline, or one with unsent bytes, checks again.
const LOOK_AROUND: Duration = Duration::from_millis(50);

impl Shared {
    /// Takes part until `pending` is done, or `give_up` returns true (called after each event).
    pub fn take_part(
        self: &Arc<Self>,
        pending: &Arc<PendingCall>,
        until: Option<Instant>,
        give_up: &dyn Fn() -> bool,
    ) {
        let sleeper: Arc<dyn Sleeper> = pending.clone();
        let enough = || pending.is_done() || give_up();
        self.lead_or_sleep(&sleeper, until, &enough, &|| pending.sleep(until));
    }

    /// Takes part until `least` operations of the group are complete.
    pub fn take_part_in(
        self: &Arc<Self>,
        group: &Arc<CompletionGroup>,
        least: usize,
        until: Option<Instant>,
    ) {
        let sleeper: Arc<dyn Sleeper> = group.clone();
        let enough = || group.len() >= least;
        group.begin_wait(least);
        self.lead_or_sleep(&sleeper, until, &enough, &|| group.sleep(least, until));
        group.end_wait(least);
    }

    fn lead_or_sleep(
        self: &Arc<Self>,
        sleeper: &Arc<dyn Sleeper>,
        until: Option<Instant>,
        enough: &dyn Fn() -> bool,
        sleep: &dyn Fn(),
    ) {
        while !enough() && !is_past(until) {
            let Some(channel) = self.take_role(sleeper) else {
                sleep();
                self.reader.leave_sleepers(sleeper);
                continue;
            };
            self.pump(&channel, until, enough, On::Leader);
            self.reader.resign();
        }
    }

    /// Leads the given channel until it is over or `enough` returns true; for a session's own
    /// thread.
    pub fn lead_until(self: &Arc<Self>, until: Option<Instant>, enough: &dyn Fn() -> bool) -> bool {
        if !self.reader.try_take() {
            return false;
        }
        let channel = self.core.lock().operations();
        if let Some(channel) = channel {
            self.pump(&channel, until, enough, On::Leader);
        }
        self.reader.resign();
        true
    }

    /// The channel to lead. `None`: the thread is now among the sleepers.
    fn take_role(&self, sleeper: &Arc<dyn Sleeper>) -> Option<Arc<FrameChannel>> {
        self.reader.take_or_sleep(sleeper, || {
            let core = self.core.lock();
            // Before that the connector receives; it does not wait for ever for a silent server.
            if core.phase == SessionPhase::Attached { core.operations() } else { None }
        })
    }

    /// Receives over a channel, and sends bytes that could not be sent before, until it is over or
    /// `enough` returns true.
    pub fn pump(
        self: &Arc<Self>,
        channel: &FrameChannel,
        until: Option<Instant>,
        enough: &dyn Fn() -> bool,
        on: On,
    ) {
        let mut inbox = channel.inbox.lock();
        while !enough() && !is_past(until) {
            match LaneReader::new(self, channel, on).watch() {
                LaneWatch::Some => continue,
                LaneWatch::Lost => return,
                LaneWatch::Nothing => {}
            }
            let blocked = channel.is_blocked();
            let wait = until.is_none() && !blocked;
            if !wait {
                let want = if blocked { WaitFor::Both } else { WaitFor::Receive };
                let soon = Instant::now() + LOOK_AROUND;
                let ready = channel
                    .connection
                    .wait(want, Some(until.map_or(soon, |until| until.min(soon))));
                // No memory to poll with: check again.
                let Ok(ready) = ready else { continue };
                if blocked && ready.send {
                    channel.flush();
                }
                if !ready.receive {
                    continue;
                }
            }
            if !self.receive(channel, &mut inbox, wait, on) {
                return;
            }
        }
    }
}

fn is_past(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// Takes all that is in the lane, without a system call, unless another thread receives.
pub(super) fn look_into_lane(shared: &Arc<Shared>) {
    if !shared.reader.try_take() {
        return;
    }
    let channel = shared.core.lock().operations();
    if let Some(channel) = channel {
        LaneReader::new(shared, &channel, On::Leader).take();
    }
    shared.reader.resign();
}
