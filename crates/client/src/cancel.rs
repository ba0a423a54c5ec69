//! Cancelling a call from another thread.
//!
//! A [`Cancel`] is a flag with listeners. A thread that waits for the call first registers a
//! listener ([`Cancel::on_cancel`]) and then reads the flag; in this order no cancellation is
//! missed.
//!
//! A flag may have a deadline ([`Cancel::within`]). It counts as fired from then on, but runs no
//! listener then: a thread that waits for the call wakes by itself at the deadline.
//!
//! A flag may be *of the session*: its call is sent in the session of now or not at all. If it was
//! not sent when the connection breaks it ends with `Cancelled`, since the next connection may be
//! another session's, in which others may have what this one had locked or open.
//!
//! A flag may belong to a *request* that is made again if this process is killed: the kernel gives
//! a mount's successor each request that it has no reply to. Answers to the request's changes are
//! then kept for the successor until the request is over ([`Cancel::request_over`]). The successor
//! executes the request from its beginning ([`Cancel::of_repeated`]), and a change that equals one
//! of its predecessor gets that one's answer.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

type Listener = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Shared {
    fired: AtomicBool,
    abandoned: AtomicBool,
    next: AtomicU64,
    listeners: Mutex<Vec<(u64, Listener)>>,
    deadline: Option<Instant>,
    request: Option<Arc<Request>>,
    of_session: bool,
}

/// The request that flags belong to.
#[derive(Default)]
struct Request {
    repeated: bool,
    /// The receipts of its answers.
    receipts: Mutex<Vec<Box<dyn Any + Send>>>,
}

/// Shared by the threads that may cancel and the one that waits; clones share one flag. Fires at
/// most once.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Shared>);

impl Cancel {
    /// A flag that has not fired.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag that counts as fired after `patience`.
    pub fn within(patience: Duration) -> Self {
        let deadline = Instant::now().checked_add(patience);
        Cancel(Arc::new(Shared { deadline, ..Shared::default() }))
    }

    /// A flag of the session: its call is not sent after the connection broke.
    pub fn of_session() -> Self {
        Cancel(Arc::new(Shared { of_session: true, ..Shared::default() }))
    }

    /// The flag of a request that is made again if this process is killed.
    pub fn of_request() -> Self {
        Self::of(Arc::default())
    }

    /// The flag of a request that a predecessor of this process had in progress.
    pub fn of_repeated() -> Self {
        Self::of(Arc::new(Request { repeated: true, ..Request::default() }))
    }

    fn of(request: Arc<Request>) -> Self {
        Cancel(Arc::new(Shared { request: Some(request), ..Shared::default() }))
    }

    /// Another flag, of the same request and with the same deadline.
    #[must_use]
    pub fn beside(&self) -> Self {
        let (request, deadline) = (self.0.request.clone(), self.0.deadline);
        let of_session = self.0.of_session;
        Cancel(Arc::new(Shared { request, deadline, of_session, ..Shared::default() }))
    }

    /// Is its call sent in the session of now or not at all?
    pub(crate) fn is_of_session(&self) -> bool {
        self.0.of_session
    }

    /// Does it belong to a request that a predecessor of this process had in progress?
    pub fn is_repeated(&self) -> bool {
        self.0.request.as_ref().is_some_and(|request| request.repeated)
    }

    /// The request has its reply: no successor needs the answers to its changes. It is over, too,
    /// when all its flags are dropped.
    pub fn request_over(&self) {
        if let Some(request) = &self.0.request {
            request.receipts.lock().clear();
        }
    }

    /// Does it belong to a request that is made again?
    pub(crate) fn is_of_request(&self) -> bool {
        self.0.request.is_some()
    }

    /// Holds the receipt of an answer until the request is over.
    pub(crate) fn hold(&self, receipt: impl Any + Send) {
        if let Some(request) = &self.0.request {
            request.receipts.lock().push(Box::new(receipt));
        }
    }

    /// When it counts as fired by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Fires: every listener runs in this thread.
    pub fn cancel(&self) {
        self.0.fired.store(true, Ordering::SeqCst);
        let listeners: Vec<Listener> =
            self.0.listeners.lock().iter().map(|(_, l)| Arc::clone(l)).collect();
        for listener in listeners {
            listener();
        }
    }

    /// Fires, and a change that is under way is not waited for: its outcome stays unknown.
    pub fn abandon(&self) {
        self.0.abandoned.store(true, Ordering::SeqCst);
        self.cancel();
    }

    /// Was it abandoned?
    pub fn is_abandoned(&self) -> bool {
        self.0.abandoned.load(Ordering::SeqCst)
    }

    /// Has it fired, or passed its deadline?
    pub fn is_cancelled(&self) -> bool {
        self.0.fired.load(Ordering::SeqCst)
            || self.0.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Runs `listener` when this fires, at once if it has, until the guard is dropped. The listener
    /// must be quick.
    #[must_use = "the listener is forgotten when the guard is dropped"]
    pub fn on_cancel(&self, listener: impl Fn() + Send + Sync + 'static) -> CancelGuard {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let listener: Listener = Arc::new(listener);
        self.0.listeners.lock().push((number, Arc::clone(&listener)));
        if self.is_cancelled() {
            listener();
        }
        CancelGuard { shared: Arc::clone(&self.0), number }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("fired", &self.is_cancelled()).finish_non_exhaustive()
    }
}

/// Unregisters the listener of a [`Cancel`] when dropped; see [`Cancel::on_cancel`].
pub struct CancelGuard {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.shared.listeners.lock().retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn listeners_run_whether_they_come_before_or_after() {
        let runs = Arc::new(AtomicUsize::new(0));
        let count = |runs: &Arc<AtomicUsize>| {
            let runs = Arc::clone(runs);
            move || {
                runs.fetch_add(1, Ordering::SeqCst);
            }
        };
        let cancel = Cancel::new();
        let early = cancel.on_cancel(count(&runs));
        drop(cancel.on_cancel(count(&runs)));
        assert!(!cancel.is_cancelled());
        cancel.clone().cancel();
        assert_eq!(runs.load(Ordering::SeqCst), 1, "the listener of a dropped guard does not run");
        let late = cancel.on_cancel(count(&runs));
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert!(cancel.is_cancelled());
        drop((early, late));
    }

    #[test]
    fn a_deadline_cancels_without_a_thread() {
        let patient = Cancel::within(Duration::from_secs(3600));
        assert!(!patient.is_cancelled());
        assert!(Cancel::within(Duration::ZERO).is_cancelled());
        patient.abandon();
        assert!(patient.is_cancelled() && patient.is_abandoned());
    }
}
