//! Pools of a volume: each runs its jobs in the order of their arrival, on a few threads at most. A
//! pool has threads while it has jobs; they come from those that all volumes of a client share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::VenusConfig;

/// Gets `true` when it runs, `false` when the pool ends without running it.
type Job = Box<dyn FnOnce(bool) + Send>;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// Threads of one kind, which all volumes of a client share: a thread whose pool has no more jobs
/// serves the next pool that has one. So many volumes that are used one after another need no more
/// threads than one, and each may have as many as its pool allows.
pub(crate) struct Threads {
    name: &'static str,
    state: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    threads: usize,
    /// Not more than there are threads that wait: each of these looks here before it ends.
    pools: VecDeque<Arc<Queue>>,
}

impl Threads {
    fn new(name: &'static str) -> Arc<Self> {
        let (state, came) = Default::default();
        Arc::new(Threads { name, state, came })
    }

    /// Has a thread run the jobs of this pool.
    fn serve(self: &Arc<Self>, pool: Arc<Queue>) -> std::io::Result<()> {
        let mut state = self.state.lock();
        if state.threads > state.pools.len() {
            state.pools.push_back(pool);
            self.came.notify_one();
            return Ok(());
        }
        drop(state);
        let this = Arc::clone(self);
        std::thread::Builder::new().name(self.name.into()).spawn(move || this.work(pool)).map(drop)
    }

    fn work(&self, mut pool: Arc<Queue>) {
        loop {
            pool.work();
            drop(pool);
            let mut state = self.state.lock();
            state.threads += 1;
            let end = Instant::now() + IDLE;
            while state.pools.is_empty() && !self.came.wait_until(&mut state, end).timed_out() {}
            state.threads -= 1;
            let Some(next) = state.pools.pop_front() else { return };
            pool = next;
        }
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    stopped: bool,
    /// Threads that run jobs, or are about to.
    threads: usize,
    /// Those that run jobs.
    running: Vec<ThreadId>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// Signals that a thread left.
    left: Condvar,
}

impl Queue {
    fn work(&self) {
        let _here = Here(self);
        let mut state = self.state.lock();
        state.running.push(std::thread::current().id());
        while let Some(job) = state.jobs.pop_front() {
            drop(state);
            job(true);
            state = self.state.lock();
        }
        // Under the lock: a job that comes now finds one thread less.
        state.leave();
    }
}

impl State {
    /// The calling thread runs no more jobs.
    fn leave(&mut self) {
        let this = std::thread::current().id();
        if let Some(at) = self.running.iter().position(|thread| *thread == this) {
            self.running.swap_remove(at);
            self.threads -= 1;
        }
    }
}

/// A thread that runs jobs, until it leaves, also by a job that panics.
struct Here<'a>(&'a Queue);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.state.lock().leave();
        self.0.left.notify_all();
    }
}

pub(crate) struct JobPool {
    threads: Arc<Threads>,
    threads_max: usize,
    queue: Arc<Queue>,
}

impl JobPool {
    pub fn new(threads: &Arc<Threads>, threads_max: usize) -> Self {
        JobPool {
            threads: Arc::clone(threads),
            threads_max: threads_max.max(1),
            queue: Arc::default(),
        }
    }

    /// Queues `job`; drops it after [`JobPool::stop`].
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.run_or_end(move |runs| {
            if runs {
                job();
            }
        });
    }

    /// Queues `job`, which gets `true`. After [`JobPool::stop`] it is called at once with `false`,
    /// for the part of it that must not be left out.
    pub fn run_or_end(&self, job: impl FnOnce(bool) + Send + 'static) {
        let mut state = self.queue.state.lock();
        if state.stopped {
            drop(state);
            return job(false);
        }
        state.jobs.push_back(Box::new(job));
        if state.threads == self.threads_max {
            return;
        }
        state.threads += 1;
        drop(state);
        if let Err(error) = self.threads.serve(Arc::clone(&self.queue)) {
            // The job waits for another thread, or for the next job.
            tracing::error!(%error, "cannot start a worker thread; the job waits for another");
            self.queue.state.lock().threads -= 1;
            self.queue.left.notify_all();
        }
    }

    /// Waits for all jobs, except the one that calls this.
    pub fn stop(&self) {
        let mut state = self.queue.state.lock();
        state.stopped = true;
        let this = std::thread::current().id();
        while state.threads > usize::from(state.running.contains(&this)) {
            self.queue.left.wait(&mut state);
        }
        if state.threads == 0 {
            // There are some if no thread could be started, or if a job panicked.
            let left = std::mem::take(&mut state.jobs);
            drop(state);
            left.into_iter().for_each(|job| job(false));
        }
    }
}

/// Files whose cache bodies are brought up to date at the same time.
const FOLLOWERS: usize = 4;

/// The threads of a client.
pub(crate) struct WorkerThreads {
    send: Arc<Threads>,
    read: Arc<Threads>,
    fill: Arc<Threads>,
    follow: Arc<Threads>,
    journal: Arc<Threads>,
}

impl Default for WorkerThreads {
    fn default() -> Self {
        WorkerThreads {
            send: Threads::new("venus-send"),
            read: Threads::new("venus-read"),
            fill: Threads::new("venus-fill"),
            follow: Threads::new("venus-follow"),
            journal: Threads::new("venus-journal"),
        }
    }
}

/// The pools of one volume.
pub(crate) struct Workers {
    senders: JobPool,
    readers: JobPool,
    fillers: JobPool,
    followers: JobPool,
    journal: JobPool,
}

impl Workers {
    pub fn new(config: &VenusConfig, threads: &WorkerThreads) -> Self {
        Workers {
            senders: JobPool::new(&threads.send, config.flusher_threads),
            readers: JobPool::new(&threads.read, config.reader_threads),
            fillers: JobPool::new(&threads.fill, 1),
            followers: JobPool::new(&threads.follow, FOLLOWERS),
            journal: JobPool::new(&threads.journal, 1),
        }
    }

    /// A job that sends to the server, or that the kernel may wait for.
    pub fn send(&self, job: impl FnOnce() + Send + 'static) {
        self.senders.run(job);
    }

    /// A job that reads ahead.
    pub fn read(&self, job: impl FnOnce() + Send + 'static) {
        self.readers.run(job);
    }

    /// A job that writes the disk cache or invalidates what the kernel has.
    pub fn fill(&self, job: impl FnOnce() + Send + 'static) {
        self.fillers.run(job);
    }

    /// A job that brings a body which the kernel has up to the server's state.
    pub fn follow(&self, job: impl FnOnce() + Send + 'static) {
        self.followers.run(job);
    }

    /// As [`Workers::follow`]. The job is called with `false` if it does not run any more, for the
    /// part of it that must not be left out.
    pub fn follow_or_end(&self, job: impl FnOnce(bool) + Send + 'static) {
        self.followers.run_or_end(job);
    }

    /// The job that sends the journal: no other job keeps it waiting.
    pub fn send_journal(&self, job: impl FnOnce() + Send + 'static) {
        self.journal.run(job);
    }

    /// Waits for all jobs.
    pub fn stop(&self) {
        // First: it leaves jobs for the others.
        self.journal.stop();
        self.followers.stop();
        self.senders.stop();
        self.readers.stop();
        self.fillers.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn threads_come_with_the_jobs_and_no_more_than_may() {
        let pool = JobPool::new(&Threads::new("test"), 2);
        assert_eq!(pool.queue.state.lock().threads, 0);
        let (go, wait) = mpsc::channel::<()>();
        let (done, ends) = mpsc::channel();
        let wait = Arc::new(Mutex::new(wait));
        for number in 0..5 {
            let (wait, done) = (Arc::clone(&wait), done.clone());
            pool.run(move || {
                let _ = wait.lock().recv();
                done.send(number).unwrap();
            });
        }
        assert_eq!(pool.queue.state.lock().threads, 2);
        (0..5).for_each(|_| go.send(()).unwrap());
        let mut through: Vec<i32> = (0..5).map(|_| ends.recv().unwrap()).collect();
        through.sort_unstable();
        assert_eq!(through, [0, 1, 2, 3, 4]);
        pool.run(|| panic!("a job of this test"));
        let last = done.clone();
        pool.run(move || last.send(7).unwrap());
        assert_eq!(ends.recv(), Ok(7), "the others go on");
        pool.stop();
        assert_eq!(pool.queue.state.lock().threads, 0);
        pool.run(move || done.send(8).unwrap());
        assert!(ends.recv().is_err(), "nothing runs any more");
    }

    #[test]
    fn a_thread_serves_one_pool_after_the_other() {
        let threads = Threads::new("test");
        let pools: Vec<JobPool> = (0..50).map(|_| JobPool::new(&threads, 3)).collect();
        let (done, ends) = mpsc::channel();
        let mut served = std::collections::BTreeSet::new();
        for pool in &pools {
            let done = done.clone();
            pool.run(move || done.send(format!("{:?}", std::thread::current().id())).unwrap());
            served.insert(ends.recv().unwrap());
            while threads.state.lock().threads == 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(served.len(), 1);
        // And stops from a job of its own.
        let pool = Arc::new(JobPool::new(&threads, 1));
        let (stopping, done) = (Arc::clone(&pool), done.clone());
        pool.run(move || {
            stopping.stop();
            done.send(String::new()).unwrap();
        });
        assert_eq!(ends.recv(), Ok(String::new()));
        pools.iter().for_each(|pool| pool.stop());
    }
}
