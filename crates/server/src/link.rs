//! One connection, as everybody but its worker sees it: a place to put frames, from any thread.
//!
//! Whoever completes a request sends its reply at once in its own thread. Only when the kernel
//! takes no more does the rest wait for the worker, which asks epoll for room. A link whose client
//! takes nothing is not read from (its worker looks at [`Link::is_full`] before each request), so
//! what it has queued is bounded by what it had asked for before.
//!
//! What is queued may tell of changes that a worker is still gathering (`context.rs`), whoever
//! queued it and whoever sends it. So whatever was gathered is written out before anything is sent
//! (DU-2); if that fails, nobody hears any more.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use dafs::{ChannelId, Frame, FrameHeader};
use fabric::tls::{ClientCertificate, Fingerprint, Sealer};
use fabric::{Connection, OutFrame, Outbox, PeerProcess};
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use vice::Partitions;

use crate::connection_verifier::Certified;
use crate::poll::{Interest, Poll};

/// Bytes on their way to a client, or on their way in from it to the disk, at which its next
/// requests wait: eight of the largest transfers keep any link busy.
const IN_FLIGHT_MAX: usize = 8 << 20;

/// As much of one session of nobody.
const NOBODY_IN_FLIGHT_MAX: usize = 256 << 10;

/// Bytes on their way to all sessions of nobody together, or asked for by them.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    bytes: AtomicUsize,
    pub most: usize,
}

impl Unread {
    pub fn new(most: usize) -> Unread {
        Unread { bytes: AtomicUsize::new(0), most }
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// What is known of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// A process of this machine, as the kernel says.
    Local(PeerProcess),
    /// Nobody knows.
    Clear,
    /// Nobody reads or changes what goes over it.
    Tls {
        /// Of the certificate that we showed.
        server: Fingerprint,
        /// What the other end showed.
        shown: ClientCertificate,
    },
}

pub(crate) struct Link {
    pub id: ChannelId,
    pub connection: Connection,
    tls: OnceLock<Security>,
    /// The worth of the other end's certificate when it attached.
    certified: OnceLock<Certified>,
    poll: RwLock<Arc<Poll>>,
    /// It is of nobody: its bytes count here, and are fewer.
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
    /// Bytes of it, and in flight, that are counted in `unread`.
    counted: usize,
    /// Epoll was asked for room.
    armed: bool,
    blocked_since: Option<Instant>,
    /// Close when all is out.
    closing: bool,
    closed: bool,
}

impl Link {
    /// `unread`: of a connection through which no user is known to come yet.
    pub fn new(
        id: ChannelId,
        connection: Connection,
        poll: Arc<Poll>,
        partitions: Partitions,
        unread: Option<Arc<Unread>>,
    ) -> Self {
        Link {
            id,
            connection,
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
        let Frame { header, message, payload } = frame;
        let descriptor = if header.flags.has(dafs::Flags::DESCRIPTOR) { descriptor } else { None };
        self.put(OutFrame::new(FrameHeader::to_bytes(&header), message, payload, descriptor));
    }

    /// What is queued from here on is sealed.
    pub fn secure(&self, sealer: Sealer, security: Security) {
        self.out.lock().outbox.secure(sealer);
        let first = self.tls.set(security);
        debug_assert!(first.is_ok(), "a connection is secured once");
    }

    /// What is known of the other end.
    pub fn security(&self) -> Security {
        let local = || self.connection.peer().map_or(Security::Clear, Security::Local);
        self.tls.get().copied().unwrap_or_else(local)
    }

    /// It attaches, and its certificate is worth this.
    pub fn attaches_as(&self, certified: Certified) {
        let _ = self.certified.set(certified);
    }

    /// The worth of its certificate when it attached; `None`: it has not attached.
    pub fn certified(&self) -> Option<Certified> {
        self.certified.get().copied()
    }

    /// Queues bytes that are no frame.
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

    /// Brings what is counted of it up to date.
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

    /// Sends what the kernel takes; the worker sends the rest.
    pub fn flush(&self) {
        let mut out = self.out.lock();
        if out.closed {
            return;
        }
        // Under the lock: what is queued from here on is not sent here.
        if let Err(error) = self.partitions.write_out() {
            tracing::error!(link = self.id.0, %error, "cut off, since what it would hear may be \
                lost");
            self.close_now(&mut out);
            return;
        }
        let flushed = out.outbox.flush(&self.connection);
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

    /// Closes behind what is queued.
    pub fn close(&self) {
        self.out.lock().closing = true;
        self.flush();
    }

    /// Closes now. The worker sees the end of the stream and clears up.
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

    /// Since when the client takes nothing.
    pub fn blocked_since(&self) -> Option<Instant> {
        self.out.lock().blocked_since
    }

    /// A request with so many bytes of data is in progress.
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

    /// Whether its next request must wait. The worker is then told when it need not wait any more.
    pub fn is_full(&self) -> bool {
        if !self.is_over() {
            return false;
        }
        self.paused.store(true, Ordering::SeqCst);
        // What went out just now may have been the last that would have told the worker.
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

    /// Whether requests are left unread.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Leaves requests unread, or reads them again.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
    }

    /// What epoll is asked for now: called by the worker when it stops or goes on reading.
    pub fn refresh_interest(&self) {
        let out = self.out.lock();
        self.set_interest(out.armed);
    }

    fn set_interest(&self, send: bool) {
        let interest = Interest { receive: !self.is_paused(), send };
        // Fails only when the connection is on its way out.
        let _ = self.poll().change(&self.connection, self.id, interest);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(unread) = &self.unread {
            unread.bytes.fetch_sub(self.out.get_mut().counted, Ordering::Relaxed);
        }
    }
}
