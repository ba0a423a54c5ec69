//! The connection to the server that has the cell database: a session, and the attempts to begin
//! one.
//!
//! No lock is held while a thread connects or calls. The first caller starts a thread that
//! connects, and waits with later callers for this one attempt. Once a connection or a call has
//! failed the way is *broken*: calls fail at once, and one background thread retries until there is
//! a session again. So a silent server costs a caller one wait at most, and later ones none.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::{CallError, ClientIdentity, ClientOptions, Endpoint, Remote, Session, SessionConfig};
use parking_lot::{Condvar, Mutex};
use types::{Answer, Call, Caller, Fault};

/// Between two attempts to connect.
const REST: Duration = Duration::from_secs(1);
/// How long an attempt may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// The time limits of a caller.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub attach: Duration,
    pub call: Duration,
}

pub(super) struct Way {
    endpoint: Endpoint,
    options: ClientOptions,
    patience: Patience,
    line: Mutex<Line>,
    changed: Condvar,
}

enum Line {
    /// No call was made yet.
    Idle,
    /// The first attempt, which began then.
    Connecting(Instant),
    Open(Arc<Session>),
    /// A thread tries to connect again.
    Broken,
}

impl Way {
    pub fn to(endpoint: Endpoint, options: ClientOptions, patience: Patience) -> Arc<Way> {
        Arc::new(Way {
            endpoint,
            options,
            patience,
            line: Mutex::new(Line::Idle),
            changed: Condvar::new(),
        })
    }

    /// Calls.
    ///
    /// # Errors
    /// `CellAway` if the server cannot be asked; otherwise its fault.
    pub fn call(self: &Arc<Self>, caller: &Caller, call: Call) -> Result<Answer, Fault> {
        let session = self.session()?;
        match session.call(caller, call, None) {
            Ok(reply) => Ok(reply.answer),
            Err(CallError::Fault(fault)) => Err(fault),
            Err(error) => {
                self.broke(&session, &error);
                Err(Fault::CellAway)
            }
        }
    }

    /// Later calls go over a new connection, which shows the certificate that this server has now.
    pub fn connect_anew(self: &Arc<Self>) {
        let mut line = self.line.lock();
        let Line::Open(old) = &*line else { return };
        let old = Arc::clone(old);
        let connecting =
            self.connect_beside(Some(old), Duration::ZERO, Line::Connecting(Instant::now()));
        *line = connecting.unwrap_or(Line::Idle);
    }

    fn session(self: &Arc<Self>) -> Result<Arc<Session>, Fault> {
        let mut line = self.line.lock();
        loop {
            match &*line {
                Line::Open(session) => return Ok(Arc::clone(session)),
                Line::Broken => return Err(Fault::CellAway),
                Line::Connecting(since) => {
                    let until = *since + self.patience.attach;
                    if self.changed.wait_until(&mut line, until).timed_out() {
                        return Err(Fault::CellAway);
                    }
                }
                Line::Idle => {
                    *line = self.connect_beside(
                        None,
                        Duration::ZERO,
                        Line::Connecting(Instant::now()),
                    )?;
                }
            }
        }
    }

    fn connect(&self) -> Result<Session, CallError> {
        let mut config = SessionConfig::new(self.endpoint.clone(), ClientIdentity::fleeting());
        config.options = self.options.clone();
        config.attach_within = Some(CONNECT_WITHIN);
        config.call_within = Some(self.patience.call);
        config.display = format!("server, process {}", std::process::id());
        Session::connect(config)
    }

    fn broke(self: &Arc<Self>, session: &Arc<Session>, error: &CallError) {
        let mut line = self.line.lock();
        // Several calls may fail with it, and a new session may be there already.
        if !matches!(&*line, Line::Open(open) if Arc::ptr_eq(open, session)) {
            return;
        }
        self.report_away(error);
        let attempt = self.connect_beside(Some(Arc::clone(session)), REST, Line::Broken);
        *line = attempt.unwrap_or(Line::Idle);
    }

    fn report_away(&self, error: &CallError) {
        tracing::warn!(
            %error,
            endpoint = %self.endpoint,
            "the server of the cell's database cannot be asked; requests that need it are refused \
             until it answers"
        );
    }

    /// Starts a thread that connects, since an attempt may take longer than a caller should wait.
    /// It ends the old session too, for the same reason.
    fn connect_beside(
        self: &Arc<Self>,
        old: Option<Arc<Session>>,
        pause: Duration,
        line: Line,
    ) -> Result<Line, Fault> {
        let way = Arc::downgrade(self);
        let name = "cell-connect".into();
        match std::thread::Builder::new()
            .name(name)
            .spawn(move || connect_until_it_stands(&way, old, pause))
        {
            Ok(_) => Ok(line),
            Err(error) => {
                tracing::error!(%error, "no thread to reach the server of the cell's database \
                    with");
                Err(Fault::CellAway)
            }
        }
    }
}

fn connect_until_it_stands(way: &Weak<Way>, mut old: Option<Arc<Session>>, mut pause: Duration) {
    loop {
        std::thread::sleep(pause);
        pause = REST;
        drop(old.take());
        let Some(way) = way.upgrade() else { return };
        let connected = way.connect();
        let mut line = way.line.lock();
        let stands = connected.is_ok();
        match connected {
            Ok(session) => {
                if matches!(*line, Line::Broken) {
                    tracing::info!(endpoint = %way.endpoint, "the server of the cell's database \
                        can be asked again");
                }
                *line = Line::Open(Arc::new(session));
            }
            Err(error) => {
                if matches!(*line, Line::Connecting(_)) {
                    way.report_away(&error);
                }
                *line = Line::Broken;
            }
        }
        way.changed.notify_all();
        if stands {
            return;
        }
    }
}
