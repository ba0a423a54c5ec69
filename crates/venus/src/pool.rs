//! A few threads that run jobs in the order they came.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: Mutex<(VecDeque<Job>, bool)>,
    came: Condvar,
}

impl Queue {
    fn work(&self) {
        loop {
            let mut jobs = self.jobs.lock();
            let job = loop {
                match jobs.0.pop_front() {
                    Some(job) => break job,
                    None if jobs.1 => return,
                    None => self.came.wait(&mut jobs),
                }
            };
            drop(jobs);
            job();
        }
    }
}

pub(crate) struct Pool {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    pub fn new(name: &str, threads: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let start = |_| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(name.into()).spawn(move || queue.work())
        };
        let threads = (0..threads.max(1)).map(start).collect::<Result<Vec<_>, _>>()?;
        Ok(Pool { queue, threads: Mutex::new(threads) })
    }

    /// Runs `job` soon; not at all after [`Pool::stop`].
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut jobs = self.queue.jobs.lock();
        if !jobs.1 {
            jobs.0.push_back(Box::new(job));
            self.queue.came.notify_one();
        }
    }

    /// Runs what is queued and ends the threads.
    pub fn stop(&self) {
        self.queue.jobs.lock().1 = true;
        self.queue.came.notify_all();
        let this = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            if thread.thread().id() != this {
                // A job that panicked was reported by the panic itself.
                let _ = thread.join();
            }
        }
    }
}
