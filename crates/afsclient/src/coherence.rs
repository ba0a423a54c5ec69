//! The way of breaks to the cache manager.
//!
//! Model: [`Coherence`] has the promises (`promises.rs`) and a queue of breaks. One thread delivers
//! them; another reports the lease, which AFS does not have, so that the cache manager trusts its
//! promises, ends those whose time is over, and looks whether silent servers are there.
//!
//! A server that makes a callback holds the file until the answer. The cache manager's answer to
//! the break may need that file, for it brings bodies up to date and waits for readers. So the
//! callback is answered when the break is acknowledged, or after [`ANSWER_WITHIN`].
//!
//! An answer without a promise is followed by a break, which is as if the server had promised and
//! ended the promise at once.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use client::{BreakAck, Events, clock};
use parking_lot::{Condvar, Mutex};
use types::limits::{KEEP_ALIVE, LEASE};
use types::{BreakItem, Fid, VolumeId};

use crate::promises::Promises;

/// How long a callback waits for the cache manager.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);
/// Items of one break.
const ITEMS_MAX: usize = 1000;
/// Breaks to deliver, and the threads that wait for them.
#[derive(Default)]
struct Queue {
    items: VecDeque<BreakItem>,
    /// Told when all items that were there before are acknowledged.
    waiters: Vec<Sender<()>>,
    /// The only server is silent, which is to be told.
    parts: bool,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.items.is_empty() && self.waiters.is_empty() && !self.parts
    }
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Coherence {
    promises: Mutex<Promises>,
    queue: Mutex<Queue>,
    poke: Condvar,
    events: OnceLock<Arc<dyn Events>>,
    closed: AtomicBool,
}

impl Coherence {
    /// Uses the promises.
    pub fn with<R>(&self, act: impl FnOnce(&mut Promises) -> R) -> R {
        act(&mut self.promises.lock())
    }

    /// Sets the sink of breaks.
    pub fn set_events(&self, events: Arc<dyn Events>) {
        // A session has one sink.
        let _ = self.events.set(events);
        self.renew();
    }

    /// Delivers these breaks soon.
    pub fn send(&self, items: impl IntoIterator<Item = BreakItem>) {
        self.queue.lock().items.extend(items);
        self.poke.notify_all();
    }

    /// As [`Coherence::send`]; returns when the cache manager has acknowledged, or after a while.
    pub fn send_and_wait(&self, items: impl IntoIterator<Item = BreakItem>) {
        let (done, wait) = channel();
        self.queue.lock().waiters.push(done);
        self.send(items);
        wait_for(&wait);
    }

    /// The only server does not answer: tells the client above soon.
    pub fn part(&self) {
        self.queue.lock().parts = true;
        self.poke.notify_all();
    }

    /// Ends the threads.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.poke.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn renew(&self) {
        if let Some(events) = self.events.get() {
            events.on_renewed(clock::now());
        }
    }

    /// Delivers breaks until the end.
    pub fn deliver(&self) {
        while !self.is_closed() {
            let (items, waiters, parts) = {
                let mut queue = self.queue.lock();
                while queue.is_idle() && !self.is_closed() {
                    self.poke.wait_for(&mut queue, KEEP_ALIVE);
                }
                let count = queue.items.len().min(ITEMS_MAX);
                let items: Vec<BreakItem> = queue.items.drain(..count).collect();
                let all = queue.items.is_empty();
                let waiters = if all { std::mem::take(&mut queue.waiters) } else { Vec::new() };
                (with_rights(items), waiters, std::mem::take(&mut queue.parts))
            };
            if parts && let Some(events) = self.events.get() {
                events.on_parted();
            }
            let ack = BreakAck::new(move |_| {
                // A callback that was answered before waits no more.
                waiters.iter().for_each(|waiter| _ = waiter.send(()));
            });
            match self.events.get() {
                Some(events) if !items.is_empty() => events.on_break(&items, ack),
                _ => ack.acknowledge(),
            }
        }
    }

    /// Reports the lease and ends promises at their time, until the end.
    pub fn keep_time(&self) {
        let (mut next, mut last) = (Instant::now(), clock::now());
        while !self.is_closed() {
            // Before the lease is reported: while the machine slept no callback reached it.
            let slept = clock::now().since(last) > LEASE;
            last = clock::now();
            if slept {
                let over = self.with(Promises::on_all_lost);
                self.send(over);
            }
            self.renew();
            let over = self.with(|promises| promises.expire(clock::now()));
            self.send(over);
            next += KEEP_ALIVE;
            while Instant::now() < next && !self.is_closed() {
                std::thread::sleep(Duration::from_millis(50).min(KEEP_ALIVE));
            }
            // After a suspension the times between are over.
            next = next.max(Instant::now());
        }
    }

    /// A server may have missed a callback to this client, or knows it no more.
    pub fn server_lost(&self, server: Ipv4Addr) {
        let over = self.with(|promises| promises.on_server_lost(server));
        self.send(over);
    }

    /// The volume is at another server.
    pub fn moved(&self, volume: VolumeId) {
        let over = self.with(|promises| promises.on_moved(volume));
        self.send(over);
    }
}

fn wait_for(wait: &Receiver<()>) {
    // Too late or in time, the server is answered.
    let _ = wait.recv_timeout(ANSWER_WITHIN);
}

/// A directory's access list may have changed with it, and so the rights in it.
fn with_rights(mut items: Vec<BreakItem>) -> Vec<BreakItem> {
    let mut volumes: Vec<VolumeId> = items
        .iter()
        .filter(|item| item.fid.vnode.is_directory())
        .map(|item| item.fid.volume)
        .collect();
    volumes.sort_unstable();
    volumes.dedup();
    items.extend(volumes.into_iter().map(|volume| BreakItem {
        fid: Fid::rights(volume),
        reason: types::BreakReason::Status,
        name: None,
    }));
    items
}
