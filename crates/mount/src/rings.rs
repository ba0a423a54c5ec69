//! Requests through io_uring: one queue a processor in the kernel, and a ring for every thread.
//!
//! Model. A [`RingEntry`] is room for one request and its reply; as many requests of a queue are in
//! progress as it has entries, and the kernel prefers the entry that it got last. Committing a
//! reply returns its entry to the kernel through the ring of the committing thread, whatever ring
//! it came from. The design needs nothing else:
//!
//! - A *worker* has a ring of its own and one entry. It waits for a request, answers it at once,
//!   and commits and waits again in one system call. While it is busy (perhaps blocked on the
//!   server) the kernel has no entry of it, so no request can be stuck behind it.
//! - The *keeper* is one thread with all other entries. The kernel uses them only when no worker of
//!   the queue is free. The keeper never blocks: it starts a worker with the request, whose entry
//!   becomes that worker's for good; with [`WorkersConfig::threads_max`] busy it parks the request
//!   for the first worker that is done.
//! - A worker that is done stays. While its queue has [`IDLE_MAX`] idle ones, one of them ends each
//!   [`RETIRE_EVERY`]: it hands its entry, with the reply, to the keeper. A thread must not end
//!   while the kernel has an entry of its ring. Not more often: the entry that the keeper then
//!   returns is the one that the kernel prefers for the next request, which costs a new thread.
//! - A lock waiter is a worker that is not counted among them while it waits. The kernel looks for
//!   requests that found no entry only when one is committed; entries that are added later do not
//!   help them. So there are enough from the start, and the waiters of a queue may have three
//!   quarters of its entries: among the rest something is always committed in the end.
//!
//! A reply is committed when its worker waits for the next request, a few instructions after it was
//! written. The kernel gets notifications of changes in between *before* that reply. It refuses
//! stale data in such a reply by itself (it compares attribute versions and epochs from before its
//! request), but for two operations: these commit at once.
//!
//! Forgets, interrupts and our notifications go through `/dev/fuse`. So does everything if the
//! kernel does not accept the entries.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use mem::uring::{Ring, RingEntry, RingEvent};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, opcode};
use crate::channel::Requester;
use crate::connections::{Handler, Urgency};
use crate::workers::WorkersConfig;

/// Entries of all queues together, as far as that leaves each with [`ENTRIES_MIN`] to
/// [`ENTRIES_MAX`]. An entry costs half a kilobyte of the kernel and an address range, and no
/// memory of ours until it is used.
const ENTRIES: usize = 2048;
const ENTRIES_MIN: usize = 128;
const ENTRIES_MAX: usize = 1024;
/// Idle workers of a queue that stay. Bursts (read-ahead, several programs) recur.
const IDLE_MAX: usize = 4;
/// How often a worker of a queue with more of them ends.
const RETIRE_EVERY: Duration = Duration::from_secs(1);
/// A worker's ring has one entry under way, and its commit.
const WORKER_RING: u32 = 2;
/// Entries that the keeper commits at once; more take several system calls.
const KEEPER_RING: u32 = 64;

/// Processors that the kernel has a queue for: all possible ones.
fn queues() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    count(possible.trim()).unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

const fn entries_of_each(queues: usize) -> usize {
    let share = ENTRIES / queues;
    if share < ENTRIES_MIN {
        ENTRIES_MIN
    } else if share > ENTRIES_MAX {
        ENTRIES_MAX
    } else {
        share
    }
}

/// The number of numbers in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    list.split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(sum + last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    })
}

#[derive(Default)]
struct Counts {
    /// Threads, without the keeper and those that wait for locks.
    workers: usize,
    /// Lock waiters of each queue.
    waiters: Vec<usize>,
    /// Workers of each queue that wait for a request.
    idle: Vec<usize>,
    /// When a worker of each queue ended because there were enough.
    retired: Vec<Option<Instant>>,
    /// Requests without a thread.
    parked: VecDeque<RingEntry>,
    /// Replies for the keeper to commit; `None` once it has ended.
    returned: Option<Vec<RingEntry>>,
    keeper: bool,
}

impl Counts {
    fn busy(&self) -> usize {
        self.workers - self.idle.iter().sum::<usize>()
    }

    /// Whether this queue has a worker too many, now.
    fn retires(&mut self, queue: usize) -> bool {
        if self.idle[queue] < IDLE_MAX
            || self.retired[queue].is_some_and(|at| at.elapsed() < RETIRE_EVERY)
        {
            return false;
        }
        self.retired[queue] = Some(Instant::now());
        true
    }

    fn is_over(&self) -> bool {
        !self.keeper && self.workers == 0 && self.waiters.iter().all(|waiters| *waiters == 0)
    }
}

/// The threads that serve one mount by io_uring.
pub struct Rings<H> {
    handler: Arc<H>,
    config: WorkersConfig,
    device: Arc<OwnedFd>,
    /// Written when `returned` gets an entry.
    wakeup: Arc<OwnedFd>,
    counts: Mutex<Counts>,
    over: Condvar,
}

/// Root enables FUSE over io_uring here, for later mounts.
pub const URING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether this kernel offers FUSE over io_uring to new mounts.
pub fn offers_uring() -> bool {
    std::fs::read_to_string(URING_SWITCH).is_ok_and(|switch| switch.trim() == "Y")
}

/// Whether rings are possible here at all: must be known before `INIT` promises the kernel to use
/// them.
pub fn available(device: &Arc<OwnedFd>) -> bool {
    Ring::new(Arc::clone(device), WORKER_RING)
        .inspect_err(
            |error| tracing::info!(%error, "io_uring is not available: requests use the device"),
        )
        .is_ok()
}

impl<H: Handler> Rings<H> {
    /// Gives the kernel entries for all its queues; from then on requests come by them. `Ok(None)`:
    /// it does not accept them, and requests still come through the device.
    ///
    /// # Errors
    /// If threads or rings cannot be had. The kernel then waits for rings: the mount is of no use.
    pub fn start(
        handler: Arc<H>,
        config: WorkersConfig,
        device: Arc<OwnedFd>,
    ) -> std::io::Result<Option<Arc<Self>>> {
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let queues = queues();
        let counts = Counts {
            waiters: vec![0; queues],
            idle: vec![0; queues],
            retired: vec![None; queues],
            returned: Some(Vec::new()),
            keeper: true,
            ..Counts::default()
        };
        let rings = Arc::new(Rings {
            handler,
            config,
            device,
            wakeup,
            counts: Mutex::new(counts),
            over: Condvar::new(),
        });
        let (tell, outcome) = mpsc::channel();
        let this = Arc::clone(&rings);
        thread::Builder::new().name("mount-keeper".into()).spawn(move || {
            match Keeper::new(&this, queues) {
                Ok(None) => drop(tell.send(Ok(false))),
                Err(error) => drop(tell.send(Err(error))),
                Ok(Some(keeper)) => {
                    let _ = tell.send(Ok(true));
                    keeper.keep();
                }
            }
            this.keeper_ended();
        })?;
        let taken = outcome.recv().map_err(|_| std::io::ErrorKind::BrokenPipe)??;
        Ok(taken.then_some(rings))
    }

    /// Waits until the connection has ended and every request is handled.
    pub fn wait(&self) {
        let mut counts = self.counts.lock();
        while !counts.is_over() {
            self.over.wait(&mut counts);
        }
    }

    /// Whether [`Self::wait`] would return at once.
    pub fn is_over(&self) -> bool {
        self.counts.lock().is_over()
    }

    fn keeper_ended(&self) {
        self.handler.ended();
        let mut counts = self.counts.lock();
        counts.keeper = false;
        // The kernel has cancelled what these wait for.
        counts.returned = None;
        counts.parked.clear();
        self.over.notify_all();
    }

    /// A thread for a request that the keeper has, which becomes a worker of its queue.
    fn spawn(self: &Arc<Self>, entry: RingEntry) -> Result<(), RingEntry> {
        let seat = Arc::new(Mutex::new(Some(entry)));
        let (this, its_entry) = (Arc::clone(self), Arc::clone(&seat));
        let run = move || {
            let entry = its_entry.lock().take();
            if let Some(entry) = entry {
                Worker::run(&this, entry);
            }
            let mut counts = this.counts.lock();
            counts.workers -= 1;
            this.over.notify_all();
        };
        self.counts.lock().workers += 1;
        let Err(error) = thread::Builder::new().name("mount".into()).spawn(run) else {
            return Ok(());
        };
        tracing::warn!(%error, "cannot start another worker: requests may wait");
        self.counts.lock().workers -= 1;
        let entry = seat.lock().take();
        entry.map_or(Ok(()), Err)
    }

    /// A worker is about to wait for other applications: it does not count as one meanwhile.
    /// Returns false if too many do.
    fn start_waiting(&self, queue: usize) -> bool {
        let mut counts = self.counts.lock();
        let waiters_max = self.config.waiters_max.min(entries_of_each(counts.idle.len()) / 4 * 3);
        let room = counts.waiters[queue] < waiters_max;
        if room {
            counts.waiters[queue] += 1;
            counts.workers -= 1;
        }
        room
    }

    fn stop_waiting(&self, queue: usize) {
        let mut counts = self.counts.lock();
        counts.waiters[queue] -= 1;
        counts.workers += 1;
    }

    /// Hands an entry with its reply to the keeper.
    fn give_back(&self, mut entry: RingEntry) {
        entry.release_unused_memory();
        let mut counts = self.counts.lock();
        let Some(returned) = &mut counts.returned else { return };
        returned.push(entry);
        drop(counts);
        self.ring_bell();
    }

    fn ring_bell(&self) {
        if let Err(error) = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot wake the keeper");
        }
    }
}

/// The request in an entry, as `/dev/fuse` would have given it.
fn read_request(entry: &RingEntry, into: &mut Vec<u8>) -> Result<abi::InHeader, Errno> {
    into.clear();
    let (header, _) = abi::InHeader::read_from_prefix(entry.header()).map_err(|_| Errno::PROTO)?;
    let payload = entry.payload();
    let fixed = (header.len as usize).checked_sub(size_of::<abi::InHeader>() + payload.len());
    let operation = fixed.and_then(|fixed| entry.operation().get(..fixed)).ok_or(Errno::PROTO)?;
    into.reserve(header.len as usize);
    for part in [header.as_bytes(), operation, payload] {
        into.extend_from_slice(part);
    }
    Ok(header)
}

/// The requester behind an entry.
struct Slot<'a> {
    header: abi::InHeader,
    state: Mutex<SlotState<'a>>,
}

struct SlotState<'a> {
    entry: Option<RingEntry>,
    answered: bool,
    /// To commit at once.
    ring: &'a mut Ring,
}

impl<'a> Slot<'a> {
    fn new(entry: RingEntry, header: abi::InHeader, ring: &'a mut Ring) -> Self {
        Slot { header, state: Mutex::new(SlotState { entry: Some(entry), answered: false, ring }) }
    }

    /// The two replies whose attributes the kernel accepts without checking whether they were
    /// invalidated meanwhile.
    fn is_urgent(&self) -> bool {
        matches!(self.header.opcode, opcode::SETATTR | opcode::LINK)
    }

    /// The entry with the reply in it, if it is not committed yet. Without a reply an application
    /// would wait for ever.
    fn finish(self) -> Option<RingEntry> {
        let state = self.state.into_inner();
        if state.answered {
            return state.entry;
        }
        tracing::error!(
            opcode = self.header.opcode,
            "a handler did not reply: the request fails with EIO"
        );
        state.entry.map(|entry| refused(entry, Errno::IO))
    }
}

impl Requester for Slot<'_> {
    fn reply(&self, unique: u64, result: Result<&[IoSlice<'_>], Errno>) -> Result<(), Errno> {
        let (error, parts) = match result {
            Ok(parts) => (0, parts),
            Err(errno) => (-errno.raw_os_error(), &[][..]),
        };
        let length =
            size_of::<abi::OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let len = u32::try_from(length).map_err(|_| Errno::OVERFLOW)?;
        let header = abi::OutHeader { len, error, unique };
        let mut state = self.state.lock();
        if state.answered || unique != self.header.unique {
            return Err(Errno::NOENT);
        }
        let Some(entry) = &mut state.entry else { return Err(Errno::NOENT) };
        entry.put_reply(header.as_bytes(), parts)?;
        state.answered = true;
        if self.is_urgent()
            && let Some(entry) = state.entry.take()
        {
            let committed = state.ring.commit(entry).and_then(|()| state.ring.submit());
            committed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        Ok(())
    }
}

/// A thread with a ring of its own and one entry.
struct Worker<'a, H> {
    of: &'a Arc<Rings<H>>,
    ring: Ring,
    buffer: Vec<u8>,
}

impl<H: Handler> Worker<'_, H> {
    fn run(of: &Arc<Rings<H>>, first: RingEntry) {
        let ring = match Ring::new(Arc::clone(&of.device), WORKER_RING) {
            Ok(ring) => ring,
            Err(error) => {
                tracing::error!(%error, "cannot make a ring for a worker: its request is refused");
                return of.give_back(refused(first, Errno::NOMEM));
            }
        };
        let mut worker = Worker { of, ring, buffer: Vec::new() };
        let mut next = Some(first);
        while let Some(entry) = next {
            let queue = usize::from(entry.queue());
            let done = worker.run_request(entry);
            next = worker.next_request(queue, done);
        }
    }

    /// Handles a request; returns its entry with the reply, unless that is committed already.
    fn run_request(&mut self, entry: RingEntry) -> Option<RingEntry> {
        let Ok(header) = read_request(&entry, &mut self.buffer) else {
            tracing::error!("cannot decode a request of the kernel: it fails");
            return Some(refused(entry, Errno::IO));
        };
        let queue = usize::from(entry.queue());
        let waits = self.of.handler.urgency(&self.buffer) == Urgency::Waits;
        let slot = Slot::new(entry, header, &mut self.ring);
        if waits && !self.of.start_waiting(queue) {
            self.of.handler.refuse(&self.buffer, &slot);
        } else {
            self.of.handler.handle(&mut self.buffer, &slot);
            if waits {
                self.of.stop_waiting(queue);
            }
        }
        slot.finish()
    }

    /// The next request: a parked one, or one that the kernel sends through an entry of `queue`;
    /// `None` if this worker must end.
    fn next_request(&mut self, queue: usize, done: Option<RingEntry>) -> Option<RingEntry> {
        let mut counts = self.of.counts.lock();
        let Some(done) = done else {
            // Committed at once: the kernel has this ring's entry already, and nothing else may be
            // submitted.
            counts.idle[queue] += 1;
            let parked = !counts.parked.is_empty();
            drop(counts);
            if parked {
                self.of.ring_bell();
            }
            return self.receive(queue);
        };
        let parked = counts.parked.pop_front();
        if parked.is_some() || counts.retires(queue) {
            drop(counts);
            self.of.give_back(done);
            return parked;
        }
        counts.idle[queue] += 1;
        drop(counts);
        if let Err(error) = self.ring.commit(done) {
            tracing::error!(%error, "cannot commit a reply");
        }
        self.receive(queue)
    }

    fn receive(&mut self, queue: usize) -> Option<RingEntry> {
        let event = self.ring.wait();
        self.of.counts.lock().idle[queue] -= 1;
        match event {
            Ok(RingEvent::Request(entry)) => return Some(entry),
            Ok(RingEvent::Returned(_, errno)) => log_return(errno),
            Ok(RingEvent::Readable) => {}
            Err(error) => tracing::error!(%error, "cannot receive from the kernel"),
        }
        None
    }
}

fn log_return(errno: Errno) {
    if !matches!(errno, Errno::NOTCONN | Errno::CONNABORTED) {
        tracing::error!(%errno, "the kernel refuses a ring entry");
    }
}

/// An entry with an error as the reply to any request.
fn refused(mut entry: RingEntry, errno: Errno) -> RingEntry {
    let unique =
        abi::InHeader::read_from_prefix(entry.header()).map_or(0, |(header, _)| header.unique);
    let len = size_of::<abi::OutHeader>() as u32;
    let header = abi::OutHeader { len, error: -errno.raw_os_error(), unique };
    entry.put_reply(header.as_bytes(), &[]).expect("a header alone fits");
    entry
}

/// The thread with the entries that no worker has.
struct Keeper<'a, H> {
    of: &'a Arc<Rings<H>>,
    ring: Ring,
    /// Requests that came before the keeper could place them.
    early: Vec<RingEntry>,
}

impl<'a, H: Handler> Keeper<'a, H> {
    /// A keeper whose queues the kernel has all accepted; `None` if it does not.
    fn new(of: &'a Arc<Rings<H>>, queues: usize) -> std::io::Result<Option<Self>> {
        let ring = Ring::new(Arc::clone(&of.device), KEEPER_RING)?;
        let mut keeper = Keeper { of, ring, early: Vec::new() };
        // The kernel uses the rings once each queue has an entry.
        for queue in 0..queues {
            keeper.add(queue, 1)?;
        }
        keeper.ring.submit()?;
        if let Some(errno) = keeper.look_for_returned() {
            tracing::warn!(%errno, "the kernel refuses io_uring: requests use the device");
            return Ok(None);
        }
        for queue in 0..queues {
            keeper.add(queue, entries_of_each(queues) - 1)?;
        }
        keeper.ring.watch(Arc::clone(&of.wakeup))?;
        keeper.ring.submit()?;
        Ok(Some(keeper))
    }

    /// Gives the kernel entries of a queue.
    fn add(&mut self, queue: usize, more: usize) -> std::io::Result<()> {
        for _ in 0..more {
            let entry = RingEntry::new(queue as u16, types::limits::PAYLOAD_BYTES_MAX)?;
            self.ring.register(entry)?;
        }
        Ok(())
    }

    fn look_for_returned(&mut self) -> Option<Errno> {
        while let Some(event) = self.ring.poll() {
            match event {
                RingEvent::Request(entry) => self.early.push(entry),
                RingEvent::Returned(_, errno) => return Some(errno),
                RingEvent::Readable => {}
            }
        }
        None
    }

    /// Runs until the connection ends.
    fn keep(mut self) {
        for entry in std::mem::take(&mut self.early) {
            self.place(entry);
        }
        while self.ring.held() > 0 {
            match self.ring.wait() {
                Ok(RingEvent::Request(entry)) => self.place(entry),
                Ok(RingEvent::Returned(_, errno)) => log_return(errno),
                Ok(RingEvent::Readable) => self.take_returned(),
                Err(error) => {
                    return tracing::error!(%error, "the keeper cannot wait for the kernel");
                }
            }
        }
    }

    /// Finds a thread for a request.
    fn place(&mut self, entry: RingEntry) {
        let waits = self.of.handler.urgency(entry.header()) == Urgency::Waits;
        if !waits {
            let mut counts = self.of.counts.lock();
            if counts.busy() >= self.of.config.threads_max {
                return counts.parked.push_back(entry);
            }
        }
        let Err(entry) = self.of.spawn(entry) else { return };
        let mut counts = self.of.counts.lock();
        if counts.busy() > 0 {
            // The first worker that is done takes it.
            return counts.parked.push_back(entry);
        }
        drop(counts);
        self.commit(refused(entry, Errno::NOMEM));
    }

    fn commit(&mut self, entry: RingEntry) {
        if let Err(error) = self.ring.commit(entry) {
            tracing::error!(%error, "cannot commit a reply");
        }
    }

    /// Commits the replies that workers left, and places parked requests as far as there is room
    /// again.
    fn take_returned(&mut self) {
        let _ = rustix::io::read(&self.of.wakeup, &mut [0; 8]);
        let returned =
            self.of.counts.lock().returned.as_mut().map(std::mem::take).unwrap_or_default();
        for entry in returned {
            self.commit(entry);
        }
        loop {
            let mut counts = self.of.counts.lock();
            let room = counts.busy() < self.of.config.threads_max;
            let Some(parked) = room.then(|| counts.parked.pop_front()).flatten() else { break };
            drop(counts);
            self.place(parked);
        }
        if let Err(error) = self.ring.watch(Arc::clone(&self.of.wakeup)) {
            tracing::error!(%error, "the keeper cannot watch for replies");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-1"), Some(2));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
        assert!(queues() >= 1);
    }

    #[test]
    fn every_queue_has_entries_that_lock_waiters_leave_to_others() {
        assert_eq!([1, 2, 8, 64].map(entries_of_each), [1024, 1024, 256, 128]);
    }
}
