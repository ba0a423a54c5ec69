//! One connection, as threads other than its worker see it: a queue for frames, usable from any
//! thread.
//!
//! A thread that completes a request sends the reply at once. Only when the kernel accepts no more
//! does the rest wait for the worker, which asks epoll for room. The worker reads nothing from a
//! link whose client reads nothing (it checks [`Link::is_full`] before each request), so the queued
//! bytes are bounded by the requests before.
//!
//! Queued frames may report changes that a worker is still gathering (`context.rs`), whichever
//! thread queued or sends them. So gathered changes are written out before anything is sent (DU-2);
//! if that fails, nothing more is sent.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use dafs::message::Message;
use dafs::{ChannelId, Frame, FrameHeader};
use fabric::tls::Sealer;
use fabric::{Connection, OutFrame, Outbox};
use mem::shared::SharedMemory;
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use store::WrittenOut;
use types::SessionId;
use vice::Partitions;

use crate::connection_lane::{LaneRequest, ReplyLane};
use crate::direct_reads::FoundRead;
use crate::poll::{Interest, Poll};
use crate::security::{Certified, Door, Security};

/// Bytes in transit to a client, or from it to the disk, at which its next requests wait: eight of
/// the largest transfers suffice to use any link fully.
const IN_FLIGHT_MAX: usize = 8 << 20;

/// The same for one session of *nobody*.
const NOBODY_IN_FLIGHT_MAX: usize = 256 << 10;

/// Bytes in transit to all sessions of *nobody* together, or requested by them.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    bytes: AtomicUsize,
    pub most: usize,
}

impl Unread {
    pub fn new(most: usize) -> Unread {
        Unread { bytes: AtomicUsize::new(0), most }
    }

    /// The number of these bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

pub(crate) struct Link {
    pub id: ChannelId,
    pub connection: Connection,
    door: Door,
    tls: OnceLock<Security>,
    /// The worth of the other end's certificate when it attached.
    certified: OnceLock<Certified>,
    poll: RwLock<Arc<Poll>>,
    /// Of a connection of *nobody*: its bytes count here, and have a lower limit.
    unread: Option<Arc<Unread>>,
    of_nobody: AtomicBool,
    partitions: Partitions,
    out: Mutex<Out>,
    /// Bytes of data of the requests in progress.
    in_flight: AtomicUsize,
    /// The worker left requests unread.
    paused: AtomicBool,
}

#[derive(Default)]
struct Out {
    outbox: Outbox,
    /// The faster way for some replies.
    lane: Option<ReplyLane>,
    /// Its queued and in-flight bytes that are counted in `unread`.
    counted: usize,
    /// Epoll was asked for room.
    armed: bool,
    blocked_since: Option<Instant>,
    /// Close after all queued bytes are sent.
    closing: bool,
    closed: bool,
}

impl Link {
    /// `unread`: of a connection of which no user is known yet.
    pub fn new(
        id: ChannelId,
        (connection, door): (Connection, Door),
        poll: Arc<Poll>,
        partitions: Partitions,
        unread: Option<Arc<Unread>>,
    ) -> Self {
        Link {
            id,
            connection,
            door,
            tls: OnceLock::new(),
            certified: OnceLock::new(),
            poll: RwLock::new(poll),
            of_nobody: AtomicBool::new(unread.is_some()),
            unread,
            partitions,
            out: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
        }
    }

    /// Queues a frame, with the descriptor that its header announces.
    pub fn push(&self, frame: Frame, descriptor: Option<OwnedFd>) {
        let frame = match &mut self.out.lock().lane {
            Some(lane) => lane.push(frame),
            None => Some(frame),
        };
        let Some(Frame { header, message, payload }) = frame else { return };
        let descriptor = if header.flags.has(dafs::Flags::DESCRIPTOR) { descriptor } else { None };
        self.put(OutFrame::new(FrameHeader::to_bytes(&header), message, payload, descriptor));
    }

    /// Encrypts all bytes that are queued from here on.
    pub fn secure(&self, sealer: Sealer, security: Security) {
        self.out.lock().outbox.secure(sealer);
        let first = self.tls.set(security);
        debug_assert!(first.is_ok(), "a connection is secured once");
    }

    /// The security of the connection.
    pub fn security(&self) -> Security {
        let local = || Security::of(self.door, self.connection.peer());
        self.tls.get().copied().or_else(local).unwrap_or(Security::Clear)
    }

    /// Sets the worth of its certificate, once, as it attaches.
    pub fn attaches_as(&self, certified: Certified) {
        let _ = self.certified.set(certified);
    }

    /// The worth of its certificate when it attached; `None`: it has not attached.
    pub fn certified(&self) -> Option<Certified> {
        self.certified.get().copied()
    }

    /// Queues bytes outside of a frame.
    pub fn push_raw(&self, bytes: Bytes) {
        self.put(OutFrame::raw(bytes));
    }

    fn put(&self, frame: OutFrame) {
        let mut out = self.out.lock();
        if !out.closed && !out.closing {
            out.outbox.push(frame);
            self.count(&mut out);
        }
    }

    /// Updates the count of its bytes in `unread`.
    fn count(&self, out: &mut Out) {
        let Some(unread) = &self.unread else { return };
        let now = match self.of_nobody.load(Ordering::Relaxed) {
            true => out.outbox.bytes() + self.in_flight.load(Ordering::SeqCst),
            false => 0,
        };
        match now.cmp(&out.counted) {
            std::cmp::Ordering::Greater => {
                unread.bytes.fetch_add(now - out.counted, Ordering::Relaxed);
            }
            std::cmp::Ordering::Less => {
                unread.bytes.fetch_sub(out.counted - now, Ordering::Relaxed);
            }
            std::cmp::Ordering::Equal => {}
        }
        out.counted = now;
    }

    /// It is a user's from now on, and served by the worker of this poll.
    pub fn become_users(&self, poll: Arc<Poll>) {
        *self.poll.write() = poll;
        self.of_nobody.store(false, Ordering::Relaxed);
        self.count(&mut self.out.lock());
    }

    /// The poll of its worker.
    pub fn poll(&self) -> Arc<Poll> {
        Arc::clone(&self.poll.read())
    }

    /// Sends what the kernel accepts; the worker sends the rest.
    pub fn flush(&self) {
        let mut out = self.out.lock();
        if out.closed {
            return;
        }
        // Under the lock: frames that are queued later are not sent here.
        let written = match self.partitions.write_out() {
            Ok(written) => written,
            Err(error) => {
                tracing::error!(
                    link = self.id.0,
                    %error,
                    "cut off, since the changes that it would report may be lost"
                );
                self.close_now(&mut out);
                return;
            }
        };
        let flushed = self.send(&mut out, written);
        self.count(&mut out);
        match flushed {
            Ok(true) => {
                out.blocked_since = None;
                if std::mem::take(&mut out.armed) {
                    self.set_interest(false);
                }
                if out.closing {
                    self.close_now(&mut out);
                }
            }
            Ok(false) => {
                if out.blocked_since.is_none() {
                    out.blocked_since = Some(Instant::now());
                }
                if !std::mem::replace(&mut out.armed, true) {
                    self.set_interest(true);
                }
            }
            Err(error) => {
                tracing::debug!(link = self.id.0, %error, "sending failed");
                self.close_now(&mut out);
            }
        }
        drop(out);
        self.go_on();
    }

    /// The only place that sends: what frames report survives this process (DU-2).
    fn send(&self, out: &mut Out, _: WrittenOut) -> std::io::Result<bool> {
        if let Some(lane) = &mut out.lane
            && lane.send().map_err(std::io::Error::other)?
        {
            out.outbox.push(rung());
        }
        out.outbox.flush(&self.connection)
    }

    /// Nothing is placed into the client's memory any more.
    pub fn end_lane(&self) {
        self.out.lock().lane = None;
    }

    /// The client opened a lane beside the connection.
    pub fn open_lane(&self, lane: ReplyLane) {
        self.out.lock().lane = Some(lane);
    }

    /// Answers a read, which came through the lane, from memory. `false`: nothing was done.
    pub fn answer_read(&self, request: &LaneRequest, found: &FoundRead) -> bool {
        let mut out = self.out.lock();
        let may = !out.closed && !out.closing;
        out.lane.as_mut().filter(|_| may).is_some_and(|lane| lane.answer(request, found))
    }

    /// The request in this slot came through the lane, and its reply goes there.
    ///
    /// # Errors
    /// There is no such slot.
    pub fn goes_by_lane(&self, slot: u32, memory: &Arc<SharedMemory>) -> Result<(), String> {
        match &mut self.out.lock().lane {
            Some(lane) => lane.begin(slot, memory),
            None => Err("no lane".to_owned()),
        }
    }

    /// Closes after the queued bytes are sent.
    pub fn close(&self) {
        self.out.lock().closing = true;
        self.flush();
    }

    /// Closes now. The worker reads the end of the stream and clears up.
    pub fn cut(&self) {
        self.close_now(&mut self.out.lock());
    }

    fn close_now(&self, out: &mut Out) {
        out.closed = true;
        out.blocked_since = None;
        out.outbox.clear();
        self.count(out);
        self.connection.shut_down();
    }

    /// Since when the client reads nothing.
    pub fn blocked_since(&self) -> Option<Instant> {
        self.out.lock().blocked_since
    }

    /// A request with this many bytes of data is in progress.
    pub fn begin(&self, bytes: usize) {
        self.in_flight.fetch_add(bytes, Ordering::SeqCst);
        self.count_nobodys();
    }

    /// It is answered; the answer is in the queue.
    pub fn finish(&self, bytes: usize) {
        self.in_flight.fetch_sub(bytes, Ordering::SeqCst);
        self.count_nobodys();
    }

    fn count_nobodys(&self) {
        if self.of_nobody.load(Ordering::Relaxed) {
            self.count(&mut self.out.lock());
        }
    }

    fn is_over(&self) -> bool {
        let mine = self.in_flight.load(Ordering::SeqCst) + self.out.lock().outbox.bytes();
        match &self.unread {
            Some(unread) if self.of_nobody.load(Ordering::Relaxed) => {
                mine > NOBODY_IN_FLIGHT_MAX || unread.bytes() > unread.most
            }
            _ => mine > IN_FLIGHT_MAX,
        }
    }

    /// Must its next request wait? If so, the worker is notified when it need not any more.
    pub fn is_full(&self) -> bool {
        if !self.is_over() {
            return false;
        }
        self.paused.store(true, Ordering::SeqCst);
        // The bytes that just left may have been the last whose departure notifies the worker.
        if self.is_over() { true } else { !self.paused.swap(false, Ordering::SeqCst) }
    }

    /// Wakes the worker if it left requests unread and need not any more.
    pub fn go_on(&self) {
        if self.paused.load(Ordering::SeqCst)
            && !self.is_over()
            && self.paused.swap(false, Ordering::SeqCst)
        {
            self.poll().go_on(self.id);
        }
    }

    /// Are requests left unread?
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Leaves requests unread, or reads them again.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
    }

    /// Sets the events that epoll reports: called by the worker when it stops or goes on reading.
    pub fn refresh_interest(&self) {
        let out = self.out.lock();
        self.set_interest(out.armed);
    }

    fn set_interest(&self, send: bool) {
        let interest = Interest { receive: !self.is_paused(), send };
        // Fails only when the connection is about to close.
        let _ = self.poll().change(&self.connection, self.id, interest);
    }
}

/// Tells the client that there is something in its lane.
fn rung() -> OutFrame {
    let frame = Message::Rung.to_frame(SessionId(0)).expect("it is short");
    OutFrame::new(frame.header.to_bytes(), frame.message, frame.payload, None)
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(unread) = &self.unread {
            unread.bytes.fetch_sub(self.out.get_mut().counted, Ordering::Relaxed);
        }
    }
}
