//! Connections with the kernel, from which workers receive: that of one mount, or those of all
//! mounts of a pool.
//!
//! Model. A connection is over when the kernel has ended it and each request that was received is
//! handled. In a pool it has a *share* of the workers: it gives a *turn* to as many requests, and
//! further ones wait for their turn here. A worker of a pool waits for all connections at once; one
//! request wakes one worker.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll};
use rustix::io::Errno;

use crate::channel::{Channel, Received, Requester};

/// Handles requests.
pub trait Handler: Send + Sync + 'static {
    /// How a request is to be run. Reads only its header.
    fn urgency(&self, request: &[u8]) -> Urgency;
    /// Handles it, including its reply. May take the buffer's contents; leaves any vector.
    fn handle(&self, request: &mut Vec<u8>, requester: &dyn Requester);
    /// No more requests come, and no reply is awaited any more. May be called more than once.
    fn ended(&self);
    /// Refuses a request because there is no thread for it to wait in.
    fn refuse(&self, request: &[u8], requester: &dyn Requester);
}

/// How a request is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Never blocks.
    Urgent,
    /// Never blocks, and has no reply.
    Forgets,
    /// May wait for the server.
    Normal,
    /// May wait for other applications.
    Waits,
}

/// One mount's connection with the kernel, and the handler of its requests.
pub(crate) struct Connection {
    pub channel: Arc<dyn Channel>,
    pub handler: Arc<dyn Handler>,
    /// Requests that were received and are not handled yet.
    requests: AtomicUsize,
    ended: AtomicBool,
    /// Of a mount in a pool. Locked after the counts.
    turns: Mutex<Turns>,
}

/// The share of one mount.
#[derive(Default)]
struct Turns {
    /// Its requests that are with a worker, or in the backlog.
    taken: usize,
    /// Further ones: no more than applications have threads, and the kernel sends in the
    /// background.
    waiting: VecDeque<Vec<u8>>,
}

impl Connection {
    pub fn new(channel: Arc<dyn Channel>, handler: Arc<dyn Handler>) -> Arc<Self> {
        let (requests, ended, turns) = Default::default();
        Arc::new(Connection { channel, handler, requests, ended, turns })
    }

    /// Takes a turn if fewer than `share` are taken; otherwise the request waits for one, and this
    /// is false.
    pub fn take_turn(&self, share: usize, request: &mut Vec<u8>) -> bool {
        let mut turns = self.turns.lock();
        let has_turn = turns.taken < share;
        if has_turn {
            turns.taken += 1;
        } else {
            let mut waits = std::mem::take(request);
            // It is small as a rule, but its buffer is not.
            waits.shrink_to_fit();
            turns.waiting.push_back(waits);
        }
        has_turn
    }

    /// A request with a turn is handled: the turn goes to the first that waits, which is returned.
    pub fn pass_turn_on(&self) -> Option<Vec<u8>> {
        let mut turns = self.turns.lock();
        let next = turns.waiting.pop_front();
        if next.is_none() {
            turns.taken = turns.taken.saturating_sub(1);
        }
        next
    }

    /// A request was received.
    pub fn begin(&self) {
        self.requests.fetch_add(1, Ordering::AcqRel);
    }

    /// A request is handled; whether that was the last one of a mount that has ended.
    pub fn end(&self) -> bool {
        let before = self.requests.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a request is handled once");
        self.is_over()
    }

    pub fn handle(&self, request: &mut Vec<u8>) {
        self.handler.handle(request, &*self.channel);
    }

    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.requests.load(Ordering::Acquire) == 0
    }
}

/// The connections of a pool's mounts.
pub(crate) struct Connections {
    epoll: OwnedFd,
    /// Readable once the pool is to end.
    stop: OwnedFd,
    stopped: AtomicBool,
    next: AtomicU64,
    by_number: Mutex<HashMap<u64, Arc<Connection>>>,
}

/// The number under which `epoll` reports [`Connections::stop`]; mounts have higher ones.
const STOP: u64 = 0;

impl Connections {
    /// Those of a new pool: none.
    ///
    /// # Errors
    /// If there are no descriptors.
    pub fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let (stopped, by_number) = Default::default();
        Ok(Connections { epoll, stop, stopped, next: AtomicU64::new(STOP + 1), by_number })
    }

    /// Receives through this one too.
    ///
    /// # Errors
    /// If the kernel cannot watch it.
    pub fn add(&self, connection: &Arc<Connection>) -> Result<(), Errno> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let queue = connection.channel.begin_polling()?;
        self.by_number.lock().insert(number, Arc::clone(connection));
        // Exclusive: one request wakes one worker.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        let added = epoll::add(&self.epoll, queue, epoll::EventData::new_u64(number), flags);
        added.inspect_err(|_| drop(self.by_number.lock().remove(&number)))
    }

    /// Waits for a request of any mount; `None`: the pool is to end. Calls `ended` for each mount
    /// that has ended.
    pub fn receive(
        &self,
        buffer: &mut Vec<u8>,
        ended: impl Fn(&Connection),
    ) -> Option<Arc<Connection>> {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: NO_EVENT }; 1];
        while !self.stopped.load(Ordering::Acquire) {
            match epoll::wait(&self.epoll, &mut events[..], None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "cannot wait for requests of mounts below");
                    return None;
                }
            }
            let number = events[0].data.u64();
            // Another worker may have found its end.
            let Some(connection) = self.by_number.lock().get(&number).cloned() else { continue };
            connection.begin();
            match connection.channel.receive_now(buffer) {
                Ok(Some(Received::Request)) => return Some(connection),
                Ok(None) => {}
                Ok(Some(Received::End)) => self.remove(number, &connection, &ended),
                Err(error) => {
                    tracing::error!(%error, "cannot receive from the kernel");
                    if error != Errno::NOMEM {
                        self.remove(number, &connection, &ended);
                    }
                }
            }
            if connection.end() {
                ended(&connection);
            }
        }
        None
    }

    /// Nothing is received any more.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Fails only if it was written before.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    fn remove(&self, number: u64, connection: &Connection, ended: &impl Fn(&Connection)) {
        if self.by_number.lock().remove(&number).is_some() {
            if let Ok(queue) = connection.channel.begin_polling() {
                // Its descriptor may be closed later than the workers would wake for it.
                let _ = epoll::delete(&self.epoll, queue);
            }
            connection.handler.ended();
            connection.ended.store(true, Ordering::Release);
            ended(connection);
        }
    }
}

const NO_EVENT: epoll::EventData = epoll::EventData::new_u64(STOP);
