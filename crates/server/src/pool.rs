//! A few threads for calls that may wait for the disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Task = Box<dyn FnOnce() + Send>;

/// The most tasks that wait for a thread; beyond it the worker runs them itself, which slows its
/// clients down.
const TASKS_MAX: usize = 1024;
/// The `nice` value of threads that work for sessions of *nobody*.
pub(crate) const NICE: i32 = 19;
/// The time slice of threads for users while others want the processor: the least that the kernel
/// supports.
const TURN: std::time::Duration = std::time::Duration::from_micros(100);

pub(crate) struct CallPool {
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

impl CallPool {
    /// # Errors
    ///
    /// The threads cannot be started.
    pub fn start(name: &str, threads: usize) -> std::io::Result<Self> {
        Self::start_as(name, threads, serve_users)
    }

    /// As [`CallPool::start`], for work of *nobody*: its threads have the lowest priority.
    ///
    /// # Errors
    ///
    /// The threads cannot be started.
    pub fn start_nice(name: &str, threads: usize) -> std::io::Result<Self> {
        Self::start_as(name, threads, be_nice)
    }

    fn start_as(name: &str, threads: usize, begin: fn()) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let spawn = |number: usize| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                begin();
                queue.work();
            })
        };
        let threads = (0..threads.max(1)).map(spawn).collect::<std::io::Result<_>>()?;
        Ok(CallPool { queue, threads: Mutex::new(threads) })
    }

    /// Runs the task soon on a thread of the pool, never in this one. `false`: `most` wait already,
    /// and it will not run.
    #[must_use]
    pub fn try_run(&self, most: usize, task: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.queue.state.lock();
        if state.stopping || state.tasks.len() >= most {
            return false;
        }
        state.tasks.push_back(Box::new(task));
        drop(state);
        self.queue.filled.notify_one();
        true
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

    /// Runs the queued tasks, then ends the threads.
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

/// The calling thread serves users: it takes a processor from threads for *nobody*, and other
/// long-running ones, as soon as it has work. A lower priority of those alone does not achieve
/// that: the kernel lets the running thread finish its time slice, which is some milliseconds long.
pub(crate) fn serve_users() {
    if let Err(error) = mem::schedule::take_short_turns(TURN) {
        tracing::debug!(%error, "a thread for users has time slices as long as others");
    }
}

/// The calling thread gets a processor after others.
pub(crate) fn be_nice() {
    let me = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(me), NICE) {
        tracing::debug!(%error, "a thread for nobody has the priority of others");
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_full_pool_runs_nothing_in_the_thread_that_asks() {
        let pool = CallPool::start_nice("test", 1).unwrap();
        let (begun, begins) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        assert!(pool.try_run(2, move || {
            begun.send(()).unwrap();
            let _ = goes_on.recv();
        }));
        begins.recv().unwrap();
        let here = std::thread::current().id();
        let elsewhere = move || assert_ne!(std::thread::current().id(), here);
        assert!(pool.try_run(2, elsewhere) && pool.try_run(2, elsewhere));
        assert!(!pool.try_run(2, || panic!("it is never run")));
        drop(go_on);
        pool.stop();
    }
}
