//! Calls the servers of a cell over sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use celldb::CellDb;
use client::{CallError, ClientIdentity, ClientOptions, Endpoint, Remote, Session, SessionConfig};
use parking_lot::Mutex;
use types::{Answer, Call, Caller, ServerId, ServerInfo, VolumeCall};

use crate::{Servers, VosError};

/// How long a session may take to attach.
const ATTACH_WITHIN: Duration = Duration::from_secs(5);
/// How long one call may take: sealing waits for clients that hand in changes, for a lease at most.
const CALL_WITHIN: Duration = Duration::from_secs(20);

/// Sessions to the servers and the database of a cell.
pub struct ServerConnections {
    db: Arc<dyn CellDb>,
    /// Local sockets of servers for which the database has no better address.
    near: HashMap<ServerId, Endpoint>,
    known: Mutex<HashMap<ServerId, ServerInfo>>,
    sessions: Mutex<HashMap<ServerId, Arc<Session>>>,
    options: ClientOptions,
    caller: Caller,
}

impl ServerConnections {
    /// Uses the database `db`; `near` are servers whose sockets are known. Other servers are
    /// connected with these options.
    pub fn new(
        db: Arc<dyn CellDb>,
        near: impl IntoIterator<Item = (ServerId, Endpoint)>,
        options: ClientOptions,
    ) -> Self {
        let near = near.into_iter().collect();
        ServerConnections {
            db,
            near,
            known: Mutex::default(),
            sessions: Mutex::default(),
            options,
            caller: Caller::ROOT,
        }
    }

    /// Sends calls under this caller instead of the superuser.
    pub fn asking_as(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    /// The database's record of a server.
    fn info(&self, server: ServerId) -> Option<ServerInfo> {
        if let Some(info) = self.known.lock().get(&server) {
            return Some(info.clone());
        }
        let servers = self.db.servers().ok()?;
        let mut known = self.known.lock();
        known.extend(servers.into_iter().map(|seen| (seen.record.id, seen.record)));
        known.get(&server).cloned()
    }

    fn session(&self, server: ServerId) -> Result<Arc<Session>, VosError> {
        if let Some(session) = self.sessions.lock().get(&server) {
            return Ok(Arc::clone(session));
        }
        let info = self.info(server);
        let addresses = info.into_iter().flat_map(|info| info.addresses);
        let far = addresses.map(|address| Endpoint::Tcp(address.to_string()));
        let mut why = "the database has no address of it".to_owned();
        for endpoint in self.near.get(&server).cloned().into_iter().chain(far) {
            let mut config = SessionConfig::new(endpoint, ClientIdentity::fleeting());
            config.options = self.options.clone();
            config.attach_within = Some(ATTACH_WITHIN);
            config.call_within = Some(CALL_WITHIN);
            config.display = format!("vos, process {}", std::process::id());
            match Session::connect(config) {
                Ok(session) => {
                    let session = Arc::new(session);
                    return Ok(Arc::clone(self.sessions.lock().entry(server).or_insert(session)));
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(VosError::Away { server: self.name(server), why })
    }

    /// Sends a file call.
    ///
    /// # Errors
    /// `Away`, `Refused`.
    pub fn send(&self, server: ServerId, call: Call) -> Result<Answer, VosError> {
        match self.session(server)?.call(&self.caller, call, None) {
            Ok(reply) => Ok(reply.answer),
            Err(CallError::Fault(fault)) => {
                Err(VosError::Refused { server: self.name(server), fault })
            }
            Err(error) => {
                self.sessions.lock().remove(&server);
                Err(VosError::Away { server: self.name(server), why: error.to_string() })
            }
        }
    }
}

impl Servers for ServerConnections {
    fn db(&self) -> &dyn CellDb {
        &*self.db
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        self.send(server, Call::Volume(call))
    }

    fn name(&self, server: ServerId) -> String {
        self.info(server).map_or_else(|| server.to_string(), |info| info.name)
    }
}
