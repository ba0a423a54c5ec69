//! A few worker threads that run jobs in the order of their arrival. They start with the first job
//! and end after a while without one, so an unused volume has no threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::VenusConfig;

/// Gets `true` when it runs, `false` when the pool ends without running it.
type Job = Box<dyn FnOnce(bool) + Send>;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    stopped: bool,
    /// Threads of the pool, and those of them that wait for a job.
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    came: Condvar,
}

impl Queue {
    fn work(&self) {
        let _here = Here(self);
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job(true);
                state = self.state.lock();
                continue;
            }
            if state.stopped {
                return;
            }
            state.idle += 1;
            let over = self.came.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if over && state.jobs.is_empty() {
                return;
            }
        }
    }
}

/// Counts a thread of the pool until it ends, also by a job that panics.
struct Here<'a>(&'a Queue);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
    }
}

pub(crate) struct JobPool {
    name: &'static str,
    threads_max: usize,
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl JobPool {
    pub fn new(name: &'static str, threads_max: usize) -> Self {
        JobPool {
            name,
            threads_max: threads_max.max(1),
            queue: Arc::default(),
            threads: Mutex::default(),
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
        let starts = state.jobs.len() > state.idle && state.threads < self.threads_max;
        if starts {
            state.threads += 1;
        }
        drop(state);
        if starts {
            self.start();
        } else {
            self.queue.came.notify_one();
        }
    }

    fn start(&self) {
        let queue = Arc::clone(&self.queue);
        match std::thread::Builder::new().name(self.name.into()).spawn(move || queue.work()) {
            Ok(thread) => {
                let mut threads = self.threads.lock();
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => {
                // The job waits for another thread, or for the next job.
                tracing::error!(%error, "cannot start a worker thread; the job waits for another");
                self.queue.state.lock().threads -= 1;
                self.queue.came.notify_one();
            }
        }
    }

    pub fn stop(&self) {
        self.queue.state.lock().stopped = true;
        self.queue.came.notify_all();
        let this = std::thread::current().id();
        let threads: Vec<JoinHandle<()>> = self.threads.lock().drain(..).collect();
        for thread in threads {
            if thread.thread().id() != this {
                // A job that panicked was reported by the panic itself.
                let _ = thread.join();
            }
        }
        let mut state = self.queue.state.lock();
        if state.threads == 0 {
            // There are some if no thread could be started.
            let left = std::mem::take(&mut state.jobs);
            drop(state);
            left.into_iter().for_each(|job| job(false));
        }
    }
}

/// Files whose cache bodies are brought up to date at the same time.
const FOLLOWERS: usize = 4;

/// The threads of one volume.
pub(crate) struct Workers {
    senders: JobPool,
    readers: JobPool,
    fillers: JobPool,
    followers: JobPool,
    journal: JobPool,
}

impl Workers {
    pub fn new(config: &VenusConfig) -> Self {
        Workers {
            senders: JobPool::new("venus-send", config.flusher_threads),
            readers: JobPool::new("venus-read", config.reader_threads),
            fillers: JobPool::new("venus-fill", 1),
            followers: JobPool::new("venus-follow", FOLLOWERS),
            journal: JobPool::new("venus-journal", 1),
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
        let pool = JobPool::new("test", 2);
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
}
