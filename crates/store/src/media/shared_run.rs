//! Work that one thread does for all threads that requested it before it began.

use parking_lot::{Condvar, Mutex};

/// One run is in progress at a time; threads that arrive meanwhile share the next one. So any
/// number of simultaneous requests cost at most two runs.
#[derive(Default)]
pub(crate) struct Together {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    running: bool,
    waiting: usize,
    begun: u64,
    /// The number of the last run that succeeded.
    done: u64,
}

impl Together {
    /// Does the work, or waits for a run of another thread that begins after this call. If that
    /// fails, each waiter does the work itself and gets its error.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn run<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        while state.running {
            state.waiting += 1;
            self.ended.wait(&mut state);
            state.waiting -= 1;
            if state.done >= wanted {
                return Ok(());
            }
        }
        state.running = true;
        state.begun += 1;
        let mine = state.begun;
        drop(state);
        let result = work();
        let mut state = self.state.lock();
        state.running = false;
        if result.is_ok() {
            state.done = mine;
        }
        self.ended.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn all_who_ask_while_one_works_share_the_next() {
        let (together, runs) = (Arc::new(Together::default()), Arc::new(AtomicUsize::new(0)));
        let (begun, begins) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let (first, counted) = (Arc::clone(&together), Arc::clone(&runs));
        let slow = std::thread::spawn(move || {
            first.run(|| {
                counted.fetch_add(1, Ordering::SeqCst);
                begun.send(()).unwrap();
                goes_on.recv().map_err(drop)
            })
        });
        begins.recv().unwrap();
        let others: Vec<_> = (0..20)
            .map(|_| {
                let (together, runs) = (Arc::clone(&together), Arc::clone(&runs));
                std::thread::spawn(move || {
                    together.run(|| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        Ok::<(), ()>(())
                    })
                })
            })
            .collect();
        while together.state.lock().waiting < 20 {
            std::thread::yield_now();
        }
        go_on.send(()).unwrap();
        assert_eq!(slow.join().unwrap(), Ok(()));
        assert!(others.into_iter().all(|other| other.join().unwrap() == Ok(())));
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_failure_is_nobody_elses_success() {
        let together = Together::default();
        assert_eq!(together.run(|| Err("broken")), Err("broken"));
        assert_eq!(together.run(|| Ok::<(), &str>(())), Ok(()));
    }
}
