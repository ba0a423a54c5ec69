//! Calls at the servers that have a volume.
//!
//! Model: a call goes to the sites in order: of a volume that can be written there is one; of a
//! replica the first site whose server answered last time is asked first, and one that is silent or
//! does not serve is passed over. A server that was silent is not asked again for a while if
//! another one has the volume. Where the sites are, the cell's databases say (`databases.rs`).

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use client::{CallError, Cancel};
use parking_lot::Mutex;
use types::{Fault, VolumeId};

use crate::databases::CellDatabases;
use crate::faults::{Meaning, meaning};
use crate::own_server::addresses;
use crate::servers::Trouble;

/// How long a server that was silent is passed over.
const PASSED_OVER: Duration = Duration::from_secs(30);
/// How long a busy volume is waited for, and the pause between two attempts. Source: OpenAFS's
/// clients ask a busy volume again each 15 s, a hundred times; a mount's applications wait for it.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
/// How often a sleeping call looks whether it was cancelled.
const POLL: Duration = Duration::from_millis(50);

/// See the head of the file.
pub(crate) struct Locations {
    databases: Box<dyn CellDatabases>,
    silent: Mutex<HashMap<Ipv4Addr, Instant>>,
    /// When servers answered last.
    answered: Mutex<HashMap<Ipv4Addr, Instant>>,
}

impl Locations {
    pub fn new(databases: Box<dyn CellDatabases>) -> Locations {
        let (silent, answered) = Default::default();
        Locations { databases, silent, answered }
    }

    /// The databases of the cell.
    pub fn databases(&self) -> &dyn CellDatabases {
        &*self.databases
    }

    /// A server was silent, or answered.
    pub fn heard(&self, server: Ipv4Addr, answered: bool) {
        if answered {
            self.silent.lock().remove(&server);
            self.answered.lock().insert(server, Instant::now());
        } else {
            self.silent.lock().insert(server, Instant::now());
        }
    }

    /// Whether the server answered within this time.
    pub fn has_answered(&self, server: Ipv4Addr, within: Duration) -> bool {
        self.answered.lock().get(&server).is_some_and(|at| at.elapsed() < within)
    }

    fn is_silent(&self, server: Ipv4Addr) -> bool {
        self.silent.lock().get(&server).is_some_and(|since| since.elapsed() < PASSED_OVER)
    }

    /// The addresses to ask for a volume, in order: those of silent servers last.
    fn order(&self, volume: VolumeId) -> Result<Vec<Ipv4Addr>, CallError> {
        let mut all = self.databases.sites(volume)?;
        all.sort_by_key(|server| self.is_silent(*server));
        Ok(all)
    }

    /// The addresses of the server of a session with one; none of a foreign cell.
    pub fn own_addresses(&self) -> Vec<Ipv4Addr> {
        self.databases.server().map(addresses).unwrap_or_default()
    }

    /// Whether a session with one server waits for it: it was silent, and has not answered since.
    pub fn is_parted(&self) -> bool {
        let own = self.own_addresses();
        let silent = self.silent.lock();
        !own.is_empty() && own.iter().all(|address| silent.contains_key(address))
    }

    /// Makes a call where the volume is. `call` is made again after a refusal that asks for it.
    /// `is_question`: it may be made again although a server may have done it before. `moved` is
    /// told that the volume left a server.
    ///
    /// # Errors
    /// The service's refusal, or why there is no answer.
    pub fn call<R>(
        &self,
        volume: VolumeId,
        is_question: bool,
        cancel: Option<&Cancel>,
        moved: impl Fn(),
        mut call: impl FnMut(Ipv4Addr) -> Result<R, Trouble>,
    ) -> Result<R, CallError> {
        let began = Instant::now();
        loop {
            let mut next = Next::Elsewhere;
            for server in self.order(volume)? {
                if cancel.is_some_and(Cancel::is_cancelled) {
                    return Err(CallError::Cancelled);
                }
                let result = call(server);
                // The call ended for that, and not by the server.
                if is_question && result.is_err() && cancel.is_some_and(Cancel::is_cancelled) {
                    return Err(CallError::Cancelled);
                }
                self.heard(server, !matches!(result, Err(Trouble::Silent)));
                let trouble = match result {
                    Ok(result) => return Ok(result),
                    Err(trouble) => trouble,
                };
                tracing::debug!(%server, volume = volume.0, ?trouble, "a file server refuses");
                next = match trouble {
                    Trouble::Cancelled => return Err(CallError::Cancelled),
                    Trouble::NoToken => return Err(Fault::TokenExpired.into()),
                    Trouble::Odd => return Err(CallError::Unreadable),
                    Trouble::Silent if !is_question => return Err(CallError::TimedOut),
                    Trouble::Silent => next.or(Next::Never(CallError::TimedOut)),
                    Trouble::Code(code) => match meaning(code) {
                        Meaning::Refused(fault) => return Err(fault.into()),
                        Meaning::Elsewhere => next,
                        Meaning::Later => Next::Later,
                        Meaning::NotServed => next.or(Next::Never(Fault::Offline.into())),
                    },
                };
            }
            let patience = match next {
                Next::Never(error) => return Err(error),
                Next::Later => BUSY_PATIENCE,
                Next::Elsewhere => {
                    moved();
                    self.databases.not_there(volume)
                }
            };
            if began.elapsed() >= patience {
                let fault = if matches!(next, Next::Later) { Fault::Busy } else { Fault::NoVolume };
                return Err(fault.into());
            }
            // A volume that moved is elsewhere at once.
            let is_first = began.elapsed() < PAUSE && matches!(next, Next::Elsewhere);
            sleep(if is_first { POLL } else { PAUSE }, cancel)?;
        }
    }
}

/// The reason why no site answered a call.
enum Next {
    /// None of the servers has the volume.
    Elsewhere,
    /// A server asks for patience.
    Later,
    /// None will.
    Never(CallError),
}

impl Next {
    /// A server that asks for patience will serve, whatever others do.
    fn or(self, other: Next) -> Next {
        if matches!(self, Next::Later) { self } else { other }
    }
}

fn sleep(pause: Duration, cancel: Option<&Cancel>) -> Result<(), CallError> {
    let until = Instant::now() + pause;
    while Instant::now() < until {
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(CallError::Cancelled);
        }
        std::thread::sleep(POLL.min(pause));
    }
    Ok(())
}
