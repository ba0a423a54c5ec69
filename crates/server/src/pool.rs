//! A few threads for calls that may wait for the disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Task = Box<dyn FnOnce() + Send>;

/// Tasks that wait for a thread; past it the worker does them itself, which holds back its clients.
const TASKS_MAX: usize = 1024;

pub(crate) struct Pool {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    tasks: std::collections::VecDeque<Task>,
    stopping: bool,
}

impl Pool {
    pub fn start(name: &str, threads: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let spawn = |number: usize| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || queue.work())
        };
        let threads = (0..threads.max(1)).map(spawn).collect::<std::io::Result<_>>()?;
        Ok(Pool { queue, threads: Mutex::new(threads) })
    }

    /// Runs the task soon on a thread of the pool, or now in this one if too many wait.
    pub fn run(&self, task: impl FnOnce() + Send + 'static) {
        let mut state = self.queue.state.lock();
        if state.stopping || state.tasks.len() >= TASKS_MAX {
            drop(state);
            task();
            return;
        }
        state.tasks.push_back(Box::new(task));
        drop(state);
        self.queue.filled.notify_one();
    }

    /// Runs the task soon on a thread of the pool; false: `max` wait already, and it is dropped.
    pub fn try_run(&self, max: usize, task: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.queue.state.lock();
        if state.stopping || state.tasks.len() >= max {
            return false;
        }
        state.tasks.push_back(Box::new(task));
        drop(state);
        self.queue.filled.notify_one();
        true
    }

    /// Does what is queued, then ends the threads.
    pub fn stop(&self) {
        self.queue.state.lock().stopping = true;
        self.queue.filled.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the pool panicked");
            }
        }
    }
}

impl Queue {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                parking_lot::MutexGuard::unlocked(&mut state, || {
                    if catch_unwind(AssertUnwindSafe(task)).is_err() {
                        tracing::error!("a task of the pool panicked");
                    }
                });
            } else if state.stopping {
                return;
            } else {
                self.filled.wait(&mut state);
            }
        }
    }
}
