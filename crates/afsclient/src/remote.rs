//! The session with a cell of AFS, or with one server of AFS in a cell of Rialto: its port, its
//! threads, and the trait that the cache manager calls.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

use afs3::callbacks;
use afs3::structs::AfsUuid;
use afscell::AfsCell;
use client::{CallError, Cancel, Cell, Events, Remote, Reply, TokenWallet};
use rx::{CallLimits, EndpointConfig, ServerSecurity, ServiceId};
use rxport::RxPort;
use types::{BootVerifier, Call, Caller, Fault, Fid, ServerInfo, ServerKind};

use crate::callbacks::{CallbackService, ShownCell};
use crate::coherence::Coherence;
use crate::context::{AfsCall, AfsSession};
use crate::data::VERIFIER;
use crate::databases::{CellDatabases, ForeignDatabases};
use crate::locating::Locations;
use crate::own_server::OwnServer;
use crate::servers::FileServers;
use crate::users::AfsUsers;

/// Calls of servers that wait to be served; more are refused, and come again.
const WAITING_MAX: usize = 64;
/// Connections of hosts that call, of which any may.
const STRANGERS_MAX: usize = 256;
/// A server's call is served within this, or not at all.
const SERVED: CallLimits = CallLimits {
    dead: Duration::from_secs(12),
    idle: Duration::from_secs(10),
    hard: Duration::from_secs(30),
};

/// A cell of AFS, or one of its servers, for [`venus`]'s cache managers. Its threads end when it is
/// dropped.
///
/// [`venus`]: ../venus/index.html
pub struct AfsRemote {
    cell: Arc<AfsSession>,
    port: RxPort,
}

impl AfsRemote {
    /// The cell of this name with these database servers. Users without a token in `wallet` are
    /// *nobody* there.
    ///
    /// # Errors
    /// The system's: no port is free, no thread can be started.
    pub fn open(
        name: &str,
        databases: &[Ipv4Addr],
        wallet: Arc<TokenWallet>,
    ) -> io::Result<Arc<AfsRemote>> {
        let users = Arc::new(AfsUsers::new(wallet));
        let databases_of = AfsCell::open(databases.to_vec(), None)?;
        let known = ForeignDatabases::new(name, databases_of, Arc::clone(&users));
        let shown = ShownCell { name: name.to_owned(), databases: databases.to_vec() };
        let remote = Self::start(format!("the AFS cell {name}"), users, Box::new(known), shown);
        remote.map(Arc::new)
    }

    /// A server of AFS in a cell of Rialto. Users without a login for such servers in `wallet` are
    /// *nobody* there.
    ///
    /// # Errors
    /// `TimedOut`: the server does not answer; `Refused`: no port is free, no thread can be
    /// started.
    pub fn of_server(
        server: &ServerInfo,
        cell: &Weak<Cell>,
        wallet: Arc<TokenWallet>,
    ) -> Result<Arc<AfsRemote>, CallError> {
        let known = OwnServer::new(server.clone(), Weak::clone(cell));
        let name = format!("the AFS server {}", server.name);
        let users = Arc::new(AfsUsers::new(wallet));
        let remote = Self::start(name, users, Box::new(known), ShownCell::default());
        let remote = remote.map_err(|error| CallError::Refused(error.to_string()))?;
        if remote.cell.is_there() { Ok(Arc::new(remote)) } else { Err(CallError::TimedOut) }
    }

    fn start(
        name: String,
        users: Arc<AfsUsers>,
        databases: Box<dyn CellDatabases>,
        shown: ShownCell,
    ) -> io::Result<AfsRemote> {
        let coherence: Arc<Coherence> = Arc::default();
        let (calls, waiting) = sync_channel(WAITING_MAX);
        let here = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let config = EndpointConfig {
            unproved_max: STRANGERS_MAX,
            calls_max: WAITING_MAX,
            served: SERVED,
            ..EndpointConfig::default()
        };
        let services = vec![(ServiceId(callbacks::SERVICE), vec![ServerSecurity::Null])];
        // A call that is dropped is aborted.
        let port = RxPort::open(here, config, services, move |call| _ = calls.try_send(call))?;
        let cell = AfsSession {
            name,
            locations: Locations::new(databases),
            servers: FileServers::new(port.clone(), Arc::clone(&users)),
            users,
            coherence: Arc::clone(&coherence),
            directories: Default::default(),
            stores: Default::default(),
            hidden: Default::default(),
            locks: Default::default(),
        };
        let service = CallbackService {
            uuid: AfsUuid(rand::random()),
            shown,
            coherence: Arc::clone(&coherence),
        };
        let cell = Arc::new(cell);
        let (probing, delivering, timing) = (Arc::clone(&cell), Arc::clone(&coherence), coherence);
        // Its end ends the threads, also those before one that does not start.
        let remote = AfsRemote { cell, port };
        start("afs-callbacks", move || service.run(&waiting))?;
        start("afs-breaks", move || delivering.deliver())?;
        start("afs-time", move || timing.keep_time())?;
        start("afs-probe", move || probing.probe_servers())?;
        Ok(remote)
    }

    /// The address at which file servers call back.
    ///
    /// # Errors
    /// The system's.
    pub fn callback_address(&self) -> io::Result<SocketAddr> {
        self.port.address()
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

impl Drop for AfsRemote {
    fn drop(&mut self) {
        self.cell.coherence.close();
        // With the port goes the sender of the calls that wait.
        self.port.close();
    }
}

/// Puts the file of the call before in the place of [`Fid::CURRENT`].
fn continued(call: &mut Call, current: Option<Fid>) -> Result<(), Fault> {
    for fid in call.fids_mut().into_iter().filter(|fid| **fid == Fid::CURRENT) {
        *fid = current.ok_or(Fault::Invalid)?;
    }
    Ok(())
}

impl Remote for AfsRemote {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        if self.cell.coherence.is_closed() {
            return Err(CallError::Closed);
        }
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(CallError::Cancelled);
        }
        let user = self.cell.users.of(caller);
        let making = AfsCall { cell: &self.cell, caller, user, cancel };
        let procedure = call.procedure();
        let answered = making
            .perform(call)
            .inspect_err(|error| tracing::debug!(?procedure, %error, "a call has no answer"))?;
        let answer = making.finish(answered);
        Ok(Reply { answer, body: None, verifier: Some(VERIFIER) })
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        let (mut current, mut failed) = (None, false);
        let each = calls.into_iter().map(|mut call| {
            if failed {
                return Err(Fault::ChainAborted.into());
            }
            let result = continued(&mut call, current)
                .map_err(CallError::from)
                .and_then(|()| self.call(caller, call, None));
            match &result {
                Ok(reply) => current = reply.answer.current(),
                Err(_) => failed = true,
            }
            result
        });
        each.collect()
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        self.cell.coherence.set_events(events);
    }

    fn passes_descriptors(&self) -> bool {
        false
    }

    fn kind(&self) -> ServerKind {
        ServerKind::Afs
    }

    fn stands(&self) -> bool {
        !self.cell.locations.is_parted()
    }

    fn boot_verifier(&self) -> Option<BootVerifier> {
        Some(VERIFIER)
    }

    fn address(&self) -> String {
        self.cell.name.clone()
    }

    fn detach(&self) {
        self.cell.coherence.close();
        self.port.close();
    }
}
