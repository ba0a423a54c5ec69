//! The threads that receive requests and handle them.
//!
//! Model. Each worker is in one of two states: *receiving* (waiting for the kernel) or *busy* (with
//! a request, which may block on the server for as long as a restart takes). The rule: while a
//! mount lives, at least one worker receives. Otherwise no thread would receive the interrupt of a
//! blocked request, nor serve the write-back that an invalidation waits for.
//!
//! - Workers serve one mount, each through a channel of its own ([`Workers::start`]), or any number
//!   of mounts ([`Workers::pool`], [`Workers::join`]): then they wait for all channels at once, and
//!   a mount costs no thread. The second way takes one more system call for each request.
//! - A worker that received an *urgent* request (an interrupt: it never blocks) handles it and
//!   receives again.
//! - Forgets never block either, and nothing waits for them. The kernel wakes a worker for each
//!   forget, and sends all pending ones when a worker reads. If other requests come by `rings`, a
//!   worker that received forgets *rests* before it receives again: the kernel then finds no thread
//!   to wake, which costs more than the forgetting, and sends many at once later. An interrupt may
//!   wait that long.
//! - A worker that received anything else becomes busy. If it was the last one receiving, it starts
//!   another worker first; if there are [`WorkersConfig::threads_max`] already, it stays and puts
//!   the request into the backlog instead.
//! - A worker that is done takes from the backlog, otherwise receives, unless enough are receiving:
//!   then it ends.
//! - In a pool each mount has a *share* of the workers. Requests beyond it wait for their turn with
//!   the mount, so that a mount whose server is away leaves workers to the others.
//! - A request that waits for other applications by design (a lock) gets a thread of its own, so
//!   that no number of waiters uses up the workers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::channel::{self, Channel, Received};
use crate::connections::{Connection, Connections, Handler, Urgency};

/// The transport of requests from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelTransport {
    /// By io_uring if the kernel offers it, otherwise through the device.
    #[default]
    Auto,
    /// Through `/dev/fuse`.
    Device,
    /// By io_uring; the mount fails if the kernel does not offer it.
    Uring,
}

/// Numbers of threads and of parked requests.
#[derive(Clone, Copy, Debug)]
pub struct WorkersConfig {
    /// Threads that stay receiving.
    pub receiving: usize,
    /// All threads, without lock waiters.
    pub threads_max: usize,
    /// Requests beyond the threads; further ones stay in the kernel's own queue.
    pub backlog_max: usize,
    /// Threads of lock waiters.
    pub waiters_max: usize,
    /// A successor of this process is given the requests that are not answered.
    pub kept: bool,
}

impl WorkersConfig {
    /// One receiver a core and one more, up to 64 busy.
    pub fn for_cores(cores: usize) -> Self {
        WorkersConfig {
            receiving: cores.clamp(1, 16) + 1,
            threads_max: 64,
            backlog_max: 1024,
            waiters_max: 4096,
            kept: false,
        }
    }

    /// The same for a pool: requests that wait for the server of one volume must not take the
    /// threads of all others. Threads beyond the receivers exist only while requests wait.
    pub fn for_pool(self) -> Self {
        WorkersConfig { threads_max: self.threads_max * POOL_FACTOR, ..self }
    }
}

/// Mounts of a pool whose servers may be away at once, each with as many waiting requests as a
/// mount of its own has threads.
const POOL_FACTOR: usize = 16;

/// Where a worker receives.
enum Inlet {
    /// An end of one mount's queue.
    Own(Arc<Connection>),
    /// The queues of all mounts of the pool.
    Shared,
}

struct Parked {
    request: Vec<u8>,
    connection: Arc<Connection>,
}

#[derive(Default)]
struct Counts {
    /// Live threads, without lock waiters.
    workers: usize,
    /// Those of them that wait for the kernel.
    receiving: usize,
    waiters: usize,
    backlog: VecDeque<Parked>,
}

/// The workers of one mount, or of many.
pub struct Workers {
    config: WorkersConfig,
    /// Pause of a worker after forgets.
    rest: Duration,
    /// The mounts of a pool.
    connections: Option<Connections>,
    /// The pool is to receive nothing yet.
    is_held: AtomicBool,
    /// The workers that one mount may have.
    share: usize,
    counts: Mutex<Counts>,
    /// Signals room in the backlog, or an end.
    changed: Condvar,
    /// Signals that all threads ended, or that a mount of a pool did. Apart from `changed`: a
    /// thread waits here as long as the mount lives, and requests must not wake it.
    over: Condvar,
}

/// A mount that a pool serves.
pub struct PoolMember {
    pool: Arc<Workers>,
    connection: Arc<Connection>,
}

impl PoolMember {
    /// Waits until the channel has ended and every request is handled.
    pub fn wait(&self) {
        let mut counts = self.pool.counts.lock();
        while !self.connection.is_over() {
            self.pool.over.wait(&mut counts);
        }
    }

    /// Whether [`Self::wait`] would return at once.
    pub fn is_over(&self) -> bool {
        self.connection.is_over()
    }
}

impl Workers {
    /// Starts receiving through `first` and through other ends of it. After forgets a worker
    /// receives nothing for `rest`.
    ///
    /// # Errors
    /// If not even one thread can be started.
    pub fn start(
        handler: Arc<dyn Handler>,
        config: WorkersConfig,
        rest: Duration,
        first: &Arc<dyn Channel>,
    ) -> std::io::Result<Arc<Self>> {
        let workers = Self::new(config, rest, None);
        let first = Inlet::Own(Connection::new(Arc::clone(first), handler));
        let another = workers.another(&first);
        workers.spawn(first)?;
        if let Ok(another) = another {
            for _ in 1..config.receiving {
                workers.spawn_another(&another);
            }
        }
        Ok(workers)
    }

    /// Workers for mounts that [join](Self::join). Threads start with the first.
    ///
    /// # Errors
    /// If the kernel has no descriptors.
    pub fn pool(config: WorkersConfig) -> std::io::Result<Arc<Self>> {
        Ok(Self::new(config, Duration::ZERO, Some(Connections::new()?)))
    }

    fn new(config: WorkersConfig, rest: Duration, connections: Option<Connections>) -> Arc<Self> {
        let share = match connections {
            Some(_) => (config.threads_max / POOL_FACTOR).max(1),
            None => usize::MAX,
        };
        let (counts, changed, over) = Default::default();
        let is_held = AtomicBool::new(false);
        Arc::new(Workers { config, rest, connections, is_held, share, counts, changed, over })
    }

    /// Serves one more mount.
    ///
    /// # Errors
    /// If there is no thread, or the kernel cannot watch the channel.
    ///
    /// # Panics
    /// If these are the workers of one mount.
    pub fn join(
        self: &Arc<Self>,
        handler: Arc<dyn Handler>,
        channel: &Arc<dyn Channel>,
    ) -> std::io::Result<PoolMember> {
        let connections = self.connections.as_ref().expect("only a pool has connections");
        if !self.is_held.load(Ordering::Acquire) {
            self.start_pool()?;
        }
        let connection = Connection::new(Arc::clone(channel), handler);
        connections.add(&connection)?;
        Ok(PoolMember { pool: Arc::clone(self), connection })
    }

    /// A pool that receives nothing until [`Self::go_on`], so that all its mounts are there before
    /// the first request. To be called before the first mount joins.
    pub fn hold(&self) {
        self.is_held.store(true, Ordering::Release);
    }

    /// Receives for all mounts that joined.
    pub fn go_on(self: &Arc<Self>) {
        self.is_held.store(false, Ordering::Release);
        if let Err(error) = self.start_pool() {
            tracing::error!(%error, "no thread receives for the volumes below");
        }
    }

    fn start_pool(self: &Arc<Self>) -> std::io::Result<()> {
        if self.counts.lock().workers == 0 {
            self.spawn(Inlet::Shared)?;
            for _ in 1..self.config.receiving {
                self.spawn_another(&Inlet::Shared);
            }
        }
        Ok(())
    }

    /// Ends the threads of a pool, once they are done.
    pub fn stop(&self) {
        let Some(connections) = &self.connections else { return };
        connections.stop();
    }

    /// Waits until the channel has ended and every request is handled.
    pub fn wait(&self) {
        let mut counts = self.counts.lock();
        while counts.workers > 0 || counts.waiters > 0 {
            self.over.wait(&mut counts);
        }
    }

    /// Whether [`Self::wait`] would return at once.
    pub fn is_over(&self) -> bool {
        let counts = self.counts.lock();
        counts.workers == 0 && counts.waiters == 0
    }

    fn spawn(self: &Arc<Self>, inlet: Inlet) -> std::io::Result<()> {
        let this = Arc::clone(self);
        {
            let mut counts = self.counts.lock();
            counts.workers += 1;
            counts.receiving += 1;
        }
        let started = thread::Builder::new().name("mount".into()).spawn(move || this.work(&inlet));
        if started.is_err() {
            let mut counts = self.counts.lock();
            counts.workers -= 1;
            counts.receiving -= 1;
        }
        started.map(drop)
    }

    fn another(&self, like: &Inlet) -> Result<Inlet, Errno> {
        let Inlet::Own(connection) = like else { return Ok(Inlet::Shared) };
        let channel = connection.channel.another()?;
        Ok(Inlet::Own(Connection::new(channel, Arc::clone(&connection.handler))))
    }

    /// As [`Self::spawn`]; returns whether it worked: continuing with fewer is better than failing.
    fn spawn_another(self: &Arc<Self>, like: &Inlet) -> bool {
        let result =
            self.another(like).map_err(std::io::Error::from).and_then(|inlet| self.spawn(inlet));
        if let Err(error) = &result {
            tracing::warn!(%error, "cannot start another worker: requests may wait");
        }
        result.is_ok()
    }

    fn work(self: &Arc<Self>, inlet: &Inlet) {
        let new_buffer = if self.config.kept { channel::present_buffer } else { channel::buffer };
        let mut buffer = new_buffer();
        while let Some(connection) = self.receive(inlet, &mut buffer) {
            match connection.handler.urgency(&buffer) {
                Urgency::Urgent => self.finish(&connection, &mut buffer),
                Urgency::Forgets => {
                    self.finish(&connection, &mut buffer);
                    if !self.rest.is_zero() {
                        thread::sleep(self.rest);
                    }
                }
                Urgency::Waits => self.start_waiter(std::mem::take(&mut buffer), &connection),
                Urgency::Normal if self.become_busy(inlet, &connection, &mut buffer) => {
                    self.finish(&connection, &mut buffer);
                    if !self.become_receiving(connection) {
                        return;
                    }
                }
                Urgency::Normal => {}
            }
            if buffer.capacity() < channel::BUFFER_BYTES {
                buffer = new_buffer();
            }
        }
        if let Inlet::Own(connection) = inlet {
            connection.handler.ended();
        }
        let mut counts = self.counts.lock();
        counts.workers -= 1;
        counts.receiving -= 1;
        self.ended();
    }

    /// Handles a request that was received.
    fn finish(&self, connection: &Connection, request: &mut Vec<u8>) {
        connection.handle(request);
        self.is_handled(connection);
    }

    fn is_handled(&self, connection: &Connection) {
        if connection.end() {
            self.mount_is_over();
        }
    }

    /// A mount of the pool has ended, and its last request is handled.
    fn mount_is_over(&self) {
        let _counts = self.counts.lock();
        self.over.notify_all();
    }

    /// A worker or waiter ended; under the lock.
    fn ended(&self) {
        self.changed.notify_all();
        self.over.notify_all();
    }

    /// Waits for a request; `None`: there will be none.
    fn receive(&self, inlet: &Inlet, buffer: &mut Vec<u8>) -> Option<Arc<Connection>> {
        let connection = match (inlet, &self.connections) {
            (Inlet::Own(connection), _) => connection,
            (Inlet::Shared, connections) => {
                return connections.as_ref()?.receive(buffer, |_| self.mount_is_over());
            }
        };
        let is_request = match connection.channel.receive(buffer) {
            Ok(Received::Request) => true,
            Ok(Received::End) => false,
            Err(error) => {
                tracing::error!(%error, "cannot receive from the kernel");
                error == Errno::NOMEM
            }
        };
        is_request.then(|| {
            connection.begin();
            Arc::clone(connection)
        })
    }

    /// Leaves the receivers, if another one remains, and returns true; otherwise parks the request.
    fn become_busy(
        self: &Arc<Self>,
        inlet: &Inlet,
        connection: &Arc<Connection>,
        buffer: &mut Vec<u8>,
    ) -> bool {
        let mut counts = self.counts.lock();
        if !connection.take_turn(self.share, buffer) {
            return false;
        }
        let mut can_start = true;
        loop {
            if counts.receiving > 1 || counts.workers == 1 && !can_start {
                // The second: no other thread is left that could take it from the backlog.
                counts.receiving -= 1;
                return true;
            }
            if can_start && counts.workers < self.config.threads_max {
                drop(counts);
                can_start = self.spawn_another(inlet);
                counts = self.counts.lock();
            } else if counts.backlog.len() < self.config.backlog_max {
                counts.backlog.push_back(Parked {
                    request: std::mem::take(buffer),
                    connection: Arc::clone(connection),
                });
                return false;
            } else {
                self.changed.wait(&mut counts);
            }
        }
    }

    /// A request of `connection` is handled. Handles the backlog, then joins the receivers; returns
    /// false if there are enough, and the worker then ends.
    fn become_receiving(&self, connection: Arc<Connection>) -> bool {
        let mut counts = self.counts.lock();
        let mut handled = connection;
        loop {
            // Behind the requests of others.
            if let Some(request) = handled.pass_turn_on() {
                counts.backlog.push_back(Parked { request, connection: handled });
            }
            let Some(mut parked) = counts.backlog.pop_front() else { break };
            self.changed.notify_all();
            drop(counts);
            self.finish(&parked.connection, &mut parked.request);
            handled = parked.connection;
            counts = self.counts.lock();
        }
        let stays = counts.receiving < self.config.receiving;
        if stays {
            counts.receiving += 1;
        } else {
            counts.workers -= 1;
            self.ended();
        }
        let Counts { workers, receiving, .. } = *counts;
        assert!(receiving <= workers, "CB-1: no worker may receive what a break waits for");
        stays
    }

    fn start_waiter(self: &Arc<Self>, mut request: Vec<u8>, connection: &Arc<Connection>) {
        let full = {
            let mut counts = self.counts.lock();
            let full = counts.waiters >= self.config.waiters_max;
            counts.waiters += usize::from(!full);
            full
        };
        if full {
            connection.handler.refuse(&request, &*connection.channel);
            return self.is_handled(connection);
        }
        // The request is small, but its buffer is not.
        request.shrink_to_fit();
        let request = Arc::new(Mutex::new(request));
        let (this, its_request, its_connection) =
            (Arc::clone(self), Arc::clone(&request), Arc::clone(connection));
        let started = thread::Builder::new()
            .name("mount-lock".into())
            .stack_size(WAITER_STACK_BYTES)
            .spawn(move || {
                its_connection.handle(&mut its_request.lock());
                this.waiter_ended(&its_connection);
            });
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start a thread for a lock request: it is refused");
            connection.handler.refuse(&request.lock(), &*connection.channel);
            self.waiter_ended(connection);
        }
    }

    fn waiter_ended(&self, connection: &Connection) {
        self.is_handled(connection);
        let mut counts = self.counts.lock();
        counts.waiters -= 1;
        self.ended();
    }
}

/// A lock waiter calls down through venus and the client, which have no large arrays on the stack.
const WAITER_STACK_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::time::Instant;

    use rustix::event::EventfdFlags;

    use super::*;
    use crate::channel::Requester;

    /// A kernel that sends what the test orders. A request is one byte: the kind of handling.
    /// Consecutive forgets are one request.
    #[derive(Clone, Default)]
    struct Kernel(Arc<(Mutex<Queue>, Condvar)>);

    #[derive(Default)]
    struct Queue {
        requests: VecDeque<u8>,
        receiving: usize,
        /// Requests that were received.
        received: usize,
        ended: bool,
    }

    impl Kernel {
        fn send(&self, request: u8, times: usize) {
            let mut queue = self.0.0.lock();
            queue.requests.extend(std::iter::repeat_n(request, times));
            self.0.1.notify_all();
        }

        fn end(&self) {
            self.0.0.lock().ended = true;
            self.0.1.notify_all();
        }
    }

    impl Requester for Kernel {
        fn reply(&self, _: u64, _: Result<&[IoSlice<'_>], Errno>) -> Result<(), Errno> {
            Ok(())
        }
    }

    impl Channel for Kernel {
        fn receive(&self, into: &mut Vec<u8>) -> Result<Received, Errno> {
            assert!(into.capacity() >= channel::BUFFER_BYTES);
            into.clear();
            let mut queue = self.0.0.lock();
            queue.receiving += 1;
            while queue.requests.is_empty() && !queue.ended {
                self.0.1.wait(&mut queue);
            }
            queue.receiving -= 1;
            let Some(request) = queue.requests.pop_front() else { return Ok(Received::End) };
            into.push(request);
            while request == FORGETS && queue.requests.front() == Some(&FORGETS) {
                into.extend(queue.requests.pop_front());
            }
            queue.received += 1;
            Ok(Received::Request)
        }

        fn notify(&self, _: i32, _: &[IoSlice<'_>]) -> Result<(), Errno> {
            Ok(())
        }

        fn another(&self) -> Result<Arc<dyn Channel>, Errno> {
            Ok(Arc::new(self.clone()))
        }
    }

    const URGENT: u8 = b'u';
    const FORGETS: u8 = b'f';
    const BLOCKS: u8 = b'b';
    const WAITS: u8 = b'w';

    #[derive(Default)]
    struct Seen {
        urgent: usize,
        forgotten: usize,
        blocking: usize,
        done: usize,
        refused: usize,
        open: bool,
    }

    /// Requests block until the gate is opened.
    #[derive(Clone, Default)]
    struct Gate(Arc<(Mutex<Seen>, Condvar)>);

    impl Gate {
        fn open(&self) {
            self.0.0.lock().open = true;
            self.0.1.notify_all();
        }

        fn wait_for(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
            let began = Instant::now();
            let mut seen = self.0.0.lock();
            while !holds(&seen) {
                assert!(began.elapsed() < Duration::from_secs(10), "not in time: {what}");
                self.0.1.wait_for(&mut seen, Duration::from_millis(10));
            }
        }
    }

    impl Handler for Gate {
        fn urgency(&self, request: &[u8]) -> Urgency {
            match request {
                [URGENT] => Urgency::Urgent,
                [FORGETS, ..] => Urgency::Forgets,
                [WAITS] => Urgency::Waits,
                _ => Urgency::Normal,
            }
        }

        fn handle(&self, request: &mut Vec<u8>, _: &dyn Requester) {
            let mut seen = self.0.0.lock();
            let request = std::mem::take(request);
            if request == [URGENT] {
                seen.urgent += 1;
            } else if request.starts_with(&[FORGETS]) {
                seen.forgotten += request.len();
            } else {
                seen.blocking += 1;
                self.0.1.notify_all();
                while !seen.open {
                    self.0.1.wait(&mut seen);
                }
                seen.done += 1;
            }
            self.0.1.notify_all();
        }

        fn ended(&self) {}

        fn refuse(&self, _: &[u8], _: &dyn Requester) {
            self.0.0.lock().refused += 1;
            self.0.1.notify_all();
        }
    }

    fn started(config: WorkersConfig) -> (Kernel, Gate, Arc<Workers>) {
        resting(config, Duration::ZERO)
    }

    fn resting(config: WorkersConfig, rest: Duration) -> (Kernel, Gate, Arc<Workers>) {
        let (kernel, gate) = (Kernel::default(), Gate::default());
        let channel: Arc<dyn Channel> = Arc::new(kernel.clone());
        let workers = Workers::start(Arc::new(gate.clone()), config, rest, &channel).unwrap();
        (kernel, gate, workers)
    }

    fn ends(workers: Arc<Workers>) {
        let waiting = thread::spawn(move || workers.wait());
        let began = Instant::now();
        while !waiting.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(10), "workers do not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    const SMALL: WorkersConfig =
        WorkersConfig { receiving: 2, threads_max: 4, backlog_max: 5, waiters_max: 3, kept: false };

    #[test]
    fn a_worker_receives_however_many_requests_block() {
        let (kernel, gate, workers) = started(SMALL);
        // Three block in a thread each; the fourth thread still receives and parks the rest.
        kernel.send(BLOCKS, 8);
        gate.wait_for("all but one thread are busy", |seen| seen.blocking == 3);
        kernel.send(URGENT, 10);
        gate.wait_for("interrupts are heard", |seen| seen.urgent == 10);
        assert_eq!(workers.counts.lock().workers, 4);
        gate.open();
        gate.wait_for("parked requests are seen through", |seen| seen.done == 8);
        kernel.end();
        ends(workers);
    }

    #[test]
    fn single_forgets_are_batched_and_none_is_lost() {
        let one = WorkersConfig { receiving: 1, ..SMALL };
        let (kernel, gate, workers) = resting(one, Duration::from_millis(300));
        kernel.send(FORGETS, 1);
        gate.wait_for("the first is heard", |seen| seen.forgotten == 1);
        for _ in 0..100 {
            kernel.send(FORGETS, 1);
            thread::yield_now();
        }
        kernel.send(URGENT, 1);
        gate.wait_for("the others and an interrupt are heard after the rest", |seen| {
            (seen.forgotten, seen.urgent) == (101, 1)
        });
        let received = kernel.0.0.lock().received;
        assert!(received < 50, "{received} times for 101 forgets");
        kernel.end();
        ends(workers);
    }

    #[test]
    fn a_full_backlog_holds_requests_back_and_loses_none() {
        let (kernel, gate, workers) = started(SMALL);
        kernel.send(BLOCKS, 40);
        gate.wait_for("all but one thread are busy", |seen| seen.blocking == 3);
        thread::sleep(Duration::from_millis(50));
        assert!(workers.counts.lock().backlog.len() <= SMALL.backlog_max);
        gate.open();
        gate.wait_for("every request is seen through", |seen| seen.done == 40);
        kernel.end();
        ends(workers);
    }

    #[test]
    fn threads_go_when_they_are_not_needed() {
        let (kernel, gate, workers) = started(SMALL);
        kernel.send(BLOCKS, 8);
        gate.wait_for("all but one thread are busy", |seen| seen.blocking == 3);
        gate.open();
        gate.wait_for("every request is seen through", |seen| seen.done == 8);
        let began = Instant::now();
        while workers.counts.lock().workers > SMALL.receiving {
            assert!(began.elapsed() < Duration::from_secs(10), "idle threads stay");
            thread::sleep(Duration::from_millis(5));
        }
        kernel.send(BLOCKS, 3);
        gate.wait_for("it still works", |seen| seen.done == 11);
        kernel.end();
        ends(workers);
    }

    /// The same kernel, which is polled.
    struct Polled(Kernel, OwnedFd);

    impl Polled {
        fn new() -> Self {
            let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK;
            Polled(Kernel::default(), rustix::event::eventfd(0, flags).unwrap())
        }

        fn send(&self, request: u8, times: usize) {
            self.0.send(request, times);
            rustix::io::write(&self.1, &(times as u64).to_ne_bytes()).unwrap();
        }

        fn end(&self) {
            self.0.end();
            rustix::io::write(&self.1, &1_u64.to_ne_bytes()).unwrap();
        }
    }

    impl Requester for Polled {
        fn reply(&self, _: u64, _: Result<&[IoSlice<'_>], Errno>) -> Result<(), Errno> {
            Ok(())
        }
    }

    impl Channel for Polled {
        fn receive(&self, into: &mut Vec<u8>) -> Result<Received, Errno> {
            self.0.receive(into)
        }

        fn begin_polling(&self) -> Result<BorrowedFd<'_>, Errno> {
            Ok(self.1.as_fd())
        }

        fn receive_now(&self, into: &mut Vec<u8>) -> Result<Option<Received>, Errno> {
            match rustix::io::read(&self.1, &mut [0; 8]) {
                Err(Errno::AGAIN) => Ok(None),
                _ => self.receive(into).map(Some),
            }
        }

        fn notify(&self, _: i32, _: &[IoSlice<'_>]) -> Result<(), Errno> {
            Ok(())
        }

        fn another(&self) -> Result<Arc<dyn Channel>, Errno> {
            Err(Errno::NOSYS)
        }
    }

    #[test]
    fn a_mount_whose_server_is_away_leaves_workers_to_others() {
        let pool = Workers::pool(SMALL.for_pool()).unwrap();
        let join = || {
            let (kernel, gate) = (Arc::new(Polled::new()), Gate::default());
            let channel: Arc<dyn Channel> = Arc::<Polled>::clone(&kernel);
            let member = pool.join(Arc::new(gate.clone()), &channel).unwrap();
            (kernel, gate, member)
        };
        let (stopped, running) = (join(), join());
        stopped.0.send(BLOCKS, 200);
        stopped.1.wait_for("its share is busy", |seen| seen.blocking == SMALL.threads_max);
        running.1.open();
        for round in 1..=20 {
            running.0.send(BLOCKS, 1);
            running.1.wait_for("another mount is served", |seen| seen.done == round);
        }
        stopped.0.send(URGENT, 1);
        stopped.1.wait_for("its interrupts are heard", |seen| seen.urgent == 1);
        assert_eq!(stopped.1.0.0.lock().blocking, SMALL.threads_max);
        stopped.1.open();
        stopped.1.wait_for("every request is seen through", |seen| seen.done == 200);
        for (kernel, _, member) in [stopped, running] {
            kernel.end();
            member.wait();
        }
        pool.stop();
        ends(pool);
    }

    #[test]
    fn lock_waiters_take_no_worker_and_too_many_are_refused() {
        let (kernel, gate, workers) = started(SMALL);
        kernel.send(WAITS, 5);
        gate.wait_for("three wait, two are refused", |seen| {
            seen.blocking == 3 && seen.refused == 2
        });
        assert_eq!(workers.counts.lock().workers, 2);
        assert!(!workers.is_over());
        kernel.end();
        gate.open();
        ends(Arc::clone(&workers));
        assert!(workers.is_over());
    }
}
