//! Fetching volumes from other servers, in threads of their own.
//!
//! A pull ([`vice::Fetch`]) has two threads: one asks the other server, one applies the answers, so
//! that a part is in transit while the one before it is written. A pull from this server itself has
//! one thread and sends no calls.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::{
    CallError, ClientIdentity, ClientOptions, Endpoint, Remote, Session, SessionConfig, clock,
};
use parking_lot::Mutex;
use types::{Answer, Call, Caller, Fault, Pull, TaskInfo, TaskState, VolumeCall};
use vice::{Fetch, Tasks, TransferAgent, Unanswered, Work};

use crate::context::{Agenda, ServerContext};
use crate::loopback::wall;
use crate::pool::CallPool;

/// The most pulls at once.
pub(crate) const PULL_THREADS: usize = 4;
/// The time limits for beginning a session at one address, and for the answer to a call.
const ATTACH_WITHIN: Duration = Duration::from_secs(3);
const CALL_WITHIN: Duration = Duration::from_secs(30);

/// Interval of the checks whether a pull that waits for the other server is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the pulls and stores their results.
pub(crate) struct Puller {
    context: Mutex<Weak<ServerContext>>,
    pool: CallPool,
    stopping: AtomicBool,
    tasks: Mutex<Tasks>,
}

impl Puller {
    /// # Errors
    ///
    /// The threads cannot be started.
    pub fn start() -> std::io::Result<Arc<Puller>> {
        Ok(Arc::new(Puller {
            context: Mutex::default(),
            pool: CallPool::start("pull", PULL_THREADS)?,
            stopping: AtomicBool::new(false),
            tasks: Mutex::default(),
        }))
    }

    /// Sets the server. Once, before the first pull.
    pub fn works_for(&self, context: &Arc<ServerContext>) {
        *self.context.lock() = Arc::downgrade(context);
    }

    /// Ends running pulls, at the next part.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.pool.stop();
    }

    /// Runs a pull to its end, in this thread.
    ///
    /// # Errors
    /// The reason as text.
    pub fn run_here(&self, pull: &Pull) -> Result<(), String> {
        let (task, is_new) =
            self.tasks.lock().begin(pull).map_err(|fault| format!("here: {fault}"))?;
        if !is_new {
            return Err("the same pull runs already".to_owned());
        }
        let ended = self.run(pull, task);
        if ended.state == TaskState::Done { Ok(()) } else { Err(ended.text) }
    }

    /// Returns the task as it ended.
    fn run(&self, pull: &Pull, task: TaskInfo) -> TaskInfo {
        let Some(context) = self.context.lock().upgrade() else { return task };
        let mut fetch = Fetch::new(pull.clone(), task);
        if fetch.is_local() {
            self.go_alone(&context, &mut fetch);
            self.tasks.lock().put(fetch.task());
            return fetch.task().clone();
        }
        match connect(&pull.from, &context.options, ATTACH_WITHIN, CALL_WITHIN) {
            Ok(source) => {
                fetch = fetch.takes_packed(source.takes_packed());
                self.go(&context, &source, &mut fetch);
            }
            Err(why) => fetch.give_up(why),
        }
        self.tasks.lock().put(fetch.task());
        fetch.task().clone()
    }

    fn go(&self, context: &Arc<ServerContext>, source: &Session, fetch: &mut Fetch) {
        std::thread::scope(|scope| {
            let (questions, asked) = channel();
            let (answering, answers) = channel();
            scope.spawn(move || answer_all(source, &asked, &answering));
            loop {
                if let Some(why) = self.ends(fetch) {
                    fetch.give_up(why.to_owned());
                    // The thread that asks may wait for an answer still, which has no use.
                    return self.tasks.lock().put(fetch.task());
                }
                if let Some(call) = fetch.question() {
                    questions.send(call).expect("the answering thread ends after the asking one");
                }
                match self.work(context, fetch) {
                    Work::Did => answers.try_iter().for_each(|answer| fetch.answered(answer)),
                    Work::Waits => match answers.recv_timeout(POLL_INTERVAL) {
                        Ok(answer) => fetch.answered(answer),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => {
                            unreachable!("each question has its answer")
                        }
                    },
                    Work::Pause(pause) => std::thread::sleep(pause),
                    Work::Over => return,
                }
            }
        });
    }

    /// From one partition of this server to another: no other server is asked.
    fn go_alone(&self, context: &Arc<ServerContext>, fetch: &mut Fetch) {
        loop {
            if let Some(why) = self.ends(fetch) {
                return fetch.give_up(why.to_owned());
            }
            if let Some(call) = fetch.question() {
                fetch.answered(context.vice.answer_here(&call).map_err(Unanswered::Refused));
            }
            match self.work(context, fetch) {
                Work::Did | Work::Waits => {}
                Work::Pause(pause) => std::thread::sleep(pause),
                Work::Over => return,
            }
        }
    }

    /// Why the pull ends before its end.
    fn ends(&self, fetch: &Fetch) -> Option<&'static str> {
        if self.stopping.load(Ordering::Relaxed) {
            return Some("this server stops");
        }
        let is_to_end = self.tasks.lock().is_to_end(fetch.task().number);
        is_to_end.then_some("an administrator ended it ('vos endtrans')")
    }

    fn work(&self, context: &Arc<ServerContext>, fetch: &mut Fetch) -> Work {
        let mut agenda = Agenda::default();
        let work = context.vice.work(fetch, clock::now(), wall(), &mut agenda.effects);
        context.deliver_and_send(&mut agenda);
        self.tasks.lock().put(fetch.task());
        work
    }
}

/// The [`TransferAgent`] for the service.
pub(crate) struct PullThreads(pub Arc<Puller>);

impl TransferAgent for PullThreads {
    fn pull(&self, pull: &Pull) -> Result<TaskInfo, Fault> {
        let (task, is_new) = self.0.tasks.lock().begin(pull)?;
        if is_new {
            let (puller, pull, task) = (Arc::clone(&self.0), pull.clone(), task.clone());
            self.0.pool.run(move || drop(puller.run(&pull, task)));
        }
        Ok(task)
    }

    fn tasks(&self) -> Vec<TaskInfo> {
        self.0.tasks.lock().infos()
    }

    fn end_task(&self, number: u64) -> Result<TaskInfo, Fault> {
        self.0.tasks.lock().end(number)
    }
}

/// Begins a session with another server, at the first of its addresses that answers.
pub(crate) fn connect(
    addresses: &[SocketAddr],
    options: &ClientOptions,
    attach_within: Duration,
    call_within: Duration,
) -> Result<Session, String> {
    let mut last = "no address was given".to_owned();
    for address in addresses {
        let mut config =
            SessionConfig::new(Endpoint::Tcp(address.to_string()), ClientIdentity::fleeting());
        config.attach_within = Some(attach_within);
        config.call_within = Some(call_within);
        config.options = options.clone();
        config.display = format!("server, process {}", std::process::id());
        match Session::connect(config) {
            Ok(session) => return Ok(session),
            Err(error) => last = format!("{address} cannot be reached: {error}"),
        }
    }
    Err(last)
}

/// Sends the questions to the other server until their channel ends.
fn answer_all(
    source: &Session,
    questions: &Receiver<VolumeCall>,
    answers: &Sender<Result<Answer, Unanswered>>,
) {
    for call in questions {
        if answers.send(ask(source, call)).is_err() {
            return;
        }
    }
}

/// Asks the other server.
pub(crate) fn ask(source: &Session, call: VolumeCall) -> Result<Answer, Unanswered> {
    match source.call(&Caller::ROOT, Call::Volume(call), None) {
        Ok(reply) => Ok(reply.answer),
        Err(CallError::Fault(fault)) => Err(Unanswered::Refused(fault)),
        Err(error) => Err(Unanswered::Lost(error.to_string())),
    }
}
