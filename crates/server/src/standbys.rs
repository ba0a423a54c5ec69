//! Standing by for volumes of other servers, each in a thread of its own.
//!
//! The thread does what [`vice::Followers::step`] says: it asks the volume's server, runs a pull,
//! or pauses. It ends when this server stands by for the volume no more. While it has entries to
//! apply, a second thread asks for the next ones.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use client::{Session, clock};
use parking_lot::{Condvar, Mutex};
use types::{ServerId, VolumeCall, VolumeId};
use vice::{StandbyAgent, StandbyQuestion, StandbyWork, Unanswered};

use crate::context::ServerContext;
use crate::loopback::wall;
use crate::pull::{Puller, ask, connect};

/// The time limits for beginning a session at one address, and for the answer to a question, which
/// waits for half a second at the volume's server. A standby that is in step tries to take over
/// soon after.
const ATTACH_WITHIN: Duration = Duration::from_millis(1000);
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);
/// The same for a base, for which clients give back what they have.
const BASE_WITHIN: Duration = Duration::from_secs(60);
/// The stack of a thread.
const STACK_BYTES: usize = 1 << 20;

/// See the head of the file.
pub(crate) struct StandbyThreads {
    context: Mutex<Weak<ServerContext>>,
    puller: Arc<Puller>,
    stop: Stopping,
    /// The trees that have a thread.
    running: Mutex<HashSet<VolumeId>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The database was searched for standbys of this server.
    has_searched: AtomicBool,
    is_searching: AtomicBool,
}

#[derive(Default)]
struct Stopping {
    stopping: Mutex<bool>,
    changed: Condvar,
}

impl Stopping {
    fn is_set(&self) -> bool {
        *self.stopping.lock()
    }

    fn pause(&self, pause: Duration) {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.changed.wait_for(&mut stopping, pause);
        }
    }
}

impl StandbyThreads {
    pub fn new(puller: Arc<Puller>) -> Arc<StandbyThreads> {
        Arc::new(StandbyThreads {
            context: Mutex::default(),
            puller,
            stop: Stopping::default(),
            running: Mutex::default(),
            threads: Mutex::default(),
            has_searched: AtomicBool::new(false),
            is_searching: AtomicBool::new(false),
        })
    }

    /// Sets the server, and begins for all volumes that its partitions name.
    pub fn work_for(&self, context: &Arc<ServerContext>) {
        *self.context.lock() = Arc::downgrade(context);
        context.vice.followers().begin_all();
    }

    /// Ends the threads.
    pub fn stop(&self) {
        *self.stop.stopping.lock() = true;
        self.stop.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of a standby panicked");
            }
        }
    }

    /// Searches the database for standbys of this server, until that succeeded once.
    pub fn search(self: &Arc<Self>, context: &Arc<ServerContext>) {
        if self.has_searched.load(Ordering::SeqCst)
            || self.is_searching.swap(true, Ordering::SeqCst)
        {
            return;
        }
        let (threads, searching) = (Arc::clone(self), Arc::clone(context));
        context.remote_calls.run(move || {
            let found = searching.vice.followers().find();
            threads.has_searched.store(found.is_ok(), Ordering::SeqCst);
            threads.is_searching.store(false, Ordering::SeqCst);
        });
    }

    fn work(self: &Arc<Self>, tree: VolumeId) {
        loop {
            self.work_until_over(tree);
            self.running.lock().remove(&tree);
            // Another one may have begun meanwhile, and found this thread.
            let goes_on =
                self.context.lock().upgrade().is_some_and(|context| {
                    !self.stop.is_set() && context.vice.followers().has(tree)
                });
            if !goes_on || !self.running.lock().insert(tree) {
                return;
            }
        }
    }

    fn work_until_over(&self, tree: VolumeId) {
        let mut session: Option<((ServerId, Duration), Session)> = None;
        while !self.stop.is_set() {
            let Some(context) = self.context.lock().upgrade() else { return };
            match context.vice.followers().step(tree, clock::now(), wall()) {
                StandbyWork::Over => return,
                StandbyWork::Pause(pause) => self.stop.pause(pause),
                StandbyWork::Pull(pull) => {
                    let result = self.puller.run_here(&pull);
                    context.vice.followers().pulled(tree, result);
                }
                StandbyWork::Ask(StandbyQuestion { server, at, call, is_ahead }) => {
                    let is_base = matches!(call, VolumeCall::Feed { .. });
                    let within = if is_base { BASE_WITHIN } else { ANSWER_WITHIN };
                    let wanted = (server, within);
                    let begun = match session.take().filter(|(of, _)| *of == wanted) {
                        Some((_, session)) => Ok(session),
                        None => connect(&at, &context.options, ATTACH_WITHIN, within),
                    };
                    let answer = match &begun {
                        Ok(session) if is_ahead => std::thread::scope(|scope| {
                            let asked = scope.spawn(|| ask(session, call));
                            context.vice.followers().apply_waiting(tree, clock::now());
                            asked.join().expect("asking another server does not panic")
                        }),
                        Ok(session) => ask(session, call),
                        Err(why) => Err(Unanswered::Lost(why.clone())),
                    };
                    if !matches!(answer, Err(Unanswered::Lost(_))) {
                        session = begun.ok().map(|session| (wanted, session));
                    }
                    context.vice.followers().answered(tree, clock::now(), answer);
                }
            }
        }
    }
}

/// The [`StandbyAgent`] for the service.
pub(crate) struct StandbyThreadsOf(pub Arc<StandbyThreads>);

impl StandbyAgent for StandbyThreadsOf {
    fn begin(&self, tree: VolumeId) {
        let threads = Arc::clone(&self.0);
        if threads.stop.is_set() || !threads.running.lock().insert(tree) {
            return;
        }
        let working = Arc::clone(&threads);
        let spawned = std::thread::Builder::new()
            .name(format!("standby-{}", tree.0))
            .stack_size(STACK_BYTES)
            .spawn(move || working.work(tree));
        match spawned {
            Ok(thread) => {
                let mut all = threads.threads.lock();
                all.retain(|thread| !thread.is_finished());
                all.push(thread);
            }
            Err(error) => {
                threads.running.lock().remove(&tree);
                tracing::error!(tree = tree.0, %error, "a standby has no thread");
            }
        }
    }
}
