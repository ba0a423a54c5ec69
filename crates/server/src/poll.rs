//! One worker's epoll, and the event descriptor (the bell) by which other threads wake it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use dafs::ChannelId;
use fabric::Connection;
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use types::{BreakId, BreakItem, SessionId};

use crate::security::Door;

/// The bell's number; no channel has it.
const BELL: u64 = u64::MAX;
/// Set in the number of a process that is watched for its end; the rest is the session.
pub(crate) const PROCESS: u64 = 1 << 63;
/// The most events of one wait.
const EVENTS_MAX: usize = 256;

/// The events that epoll shall report.
#[derive(Clone, Copy)]
pub(crate) struct Interest {
    pub receive: bool,
    pub send: bool,
}

impl Interest {
    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.receive);
        flags.set(EventFlags::OUT, self.send);
        flags
    }
}

/// A source that is ready.
#[derive(Clone, Copy)]
pub(crate) struct ReadySource {
    pub number: u64,
    pub receive: bool,
    pub send: bool,
    /// Both directions are closed, or it failed.
    pub over: bool,
}

/// A break for a session of *nobody*.
pub(crate) struct NobodyBreak {
    pub session: SessionId,
    pub id: BreakId,
    pub items: Vec<BreakItem>,
}

/// Requests of other threads to a worker.
#[derive(Default)]
pub(crate) struct Orders {
    /// Connections to serve.
    pub new: Vec<(ChannelId, Connection, Door)>,
    /// Links whose requests may be read again.
    pub resumed: Vec<ChannelId>,
    /// The worker must end.
    pub stop: bool,
    /// For sessions of *nobody*.
    pub breaks: Vec<NobodyBreak>,
}

pub(crate) struct Poll {
    epoll: OwnedFd,
    bell: OwnedFd,
    /// `None`: the worker has ended.
    orders: Mutex<Option<Orders>>,
}

impl Poll {
    /// # Errors
    ///
    /// The system has no descriptors or memory left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        Ok(Poll { epoll, bell, orders: Mutex::new(Some(Orders::default())) })
    }

    /// # Errors
    ///
    /// The system has no memory left, or the source is registered already.
    pub fn add(&self, source: impl AsFd, number: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(number), EventFlags::IN)?)
    }

    /// # Errors
    ///
    /// The connection is not registered.
    pub fn change(
        &self,
        connection: &Connection,
        id: ChannelId,
        interest: Interest,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, connection, EventData::new_u64(id.0), interest.flags())?)
    }

    pub fn remove(&self, source: impl AsFd) {
        // Fails only for a source that is not registered.
        let _ = epoll::delete(&self.epoll, source);
    }

    /// Gives the worker an order and wakes it. An order to a worker that has ended is dropped:
    /// what it holds would refer to this poll, and neither would ever be freed.
    pub fn order(&self, give: impl FnOnce(&mut Orders)) {
        let mut orders = self.orders.lock();
        let Some(orders) = &mut *orders else { return };
        give(orders);
        self.ring();
    }

    /// Makes the epoll ready.
    pub fn ring(&self) {
        // The counter never nears its maximum, and while it is not zero the worker is about to read
        // it.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Another descriptor of the epoll, to wait until it has something.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn epoll(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }

    pub fn go_on(&self, id: ChannelId) {
        self.order(|orders| orders.resumed.push(id));
    }

    /// Waits for events and lists the ready sources. Orders are there when the bell rang.
    ///
    /// # Errors
    ///
    /// The epoll or the bell fails.
    pub fn wait(
        &self,
        events: &mut Vec<Event>,
        timeout: Option<Duration>,
        ready: &mut Vec<ReadySource>,
    ) -> io::Result<Option<Orders>> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        events.clear();
        events.reserve(EVENTS_MAX);
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut rung = false;
        for event in events.drain(..) {
            let (number, flags) = (event.data.u64(), event.flags);
            if number == BELL {
                rung = true;
                continue;
            }
            ready.push(ReadySource {
                number,
                receive: flags.contains(EventFlags::IN),
                send: flags.contains(EventFlags::OUT),
                over: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            });
        }
        if !rung {
            return Ok(None);
        }
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        Ok(self.orders.lock().as_mut().map(std::mem::take))
    }

    /// The worker ends: drops its orders, and all that come later.
    pub fn close(&self) {
        let orders = self.orders.lock().take();
        // Their connections are closed without the lock.
        drop(orders);
    }
}

#[cfg(test)]
mod tests {
    use fabric::{Filled, FrameLimits, Inbox};

    use super::*;

    #[test]
    fn an_order_to_a_worker_that_has_ended_is_dropped() {
        let poll = Poll::new().unwrap();
        for closes_before in [false, true] {
            let (ours, theirs) = Connection::pair().unwrap();
            if closes_before {
                poll.close();
            }
            poll.order(|orders| orders.new.push((ChannelId(1), theirs, Door::Own)));
            poll.close();
            let limits = FrameLimits { message: 0, payload: 0 };
            let mut inbox = Inbox::new(|_| Err("no frame"), limits, false);
            assert_eq!(inbox.fill(&ours, false).unwrap(), Filled::End, "it is closed");
        }
    }
}
