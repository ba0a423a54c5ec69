//! The steps that a call takes by itself when time goes by.
//!
//! A call whose peer is not heard of is dead. A call whose peer is heard of, but does not do what
//! we wait for, is idle. Time in which our own application must act is not limited: a handler may
//! take minutes, and the peer is told by keep-alive packets that it still works.

use types::Time;

use super::send::ResendTimer;
use super::{CallStage, RxCall};
use crate::RxError;
use crate::limits::KEEPALIVE_PARTS;
use crate::statistics::RxStatistics;

impl RxCall {
    /// Time went by. Why the call fails, if it does.
    pub(crate) fn on_tick(&mut self, now: Time, statistics: &mut RxStatistics) -> Option<RxError> {
        if self.is_waiting() {
            return None;
        }
        match self.send.on_tick(now) {
            ResendTimer::Nothing => {}
            ResendTimer::Resend => statistics.timeouts += 1,
            ResendTimer::Probe => self.ping_wanted = true,
        }
        if self.is_over() {
            if now >= self.dead_at() {
                self.send.finish();
            }
            return None;
        }
        if now >= self.dead_at() {
            return Some(RxError::Dead);
        }
        if now >= self.idle_at() || now >= self.began_at + self.limits.hard {
            return Some(RxError::TimedOut);
        }
        self.ping_wanted |= now >= self.keepalive_at();
        None
    }

    fn dead_at(&self) -> Time {
        self.heard_at + self.limits.dead + self.send.round_trip().smoothed()
    }

    /// Only what the peer must do is limited, not what our application must do.
    fn idle_at(&self) -> Time {
        let wants_data = if self.is_client { self.send.is_ended() } else { !self.send.is_ended() };
        let lacks_data = !self.receive.is_complete() && !self.receive.is_readable();
        if self.send.is_waiting() || (wants_data && lacks_data) {
            self.progress_at + self.limits.idle
        } else {
            Time::NEVER
        }
    }

    fn keepalive_at(&self) -> Time {
        if self.ping_wanted {
            return Time::NEVER;
        }
        self.sent_at + self.limits.dead / KEEPALIVE_PARTS
    }

    /// When something is to be done.
    pub(crate) fn deadline(&self) -> Time {
        match &self.stage {
            CallStage::Waiting(_) => Time::NEVER,
            CallStage::Over if self.send.len() == 0 => self.acks.deadline(),
            CallStage::Over => self.acks.deadline().min(self.send.deadline()).min(self.dead_at()),
            CallStage::Active { .. } => {
                let timers = [
                    self.acks.deadline(),
                    self.send.deadline(),
                    self.dead_at(),
                    self.idle_at(),
                    self.keepalive_at(),
                    self.began_at + self.limits.hard,
                ];
                timers.into_iter().min().unwrap_or(Time::NEVER)
            }
        }
    }
}
