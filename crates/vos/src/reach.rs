//! Calls the servers of a cell over sessions.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use afs3::errors::VNOVOL;
use afs3::volumes::{Destination, PORT, VolumesAnswer, VolumesCall};
use afscell::{VolumeServerError, VolumeServers};
use celldb::CellDb;
use client::{CallError, ClientIdentity, ClientOptions, Endpoint, Remote, Session, SessionConfig};
use parking_lot::Mutex;
use rx::rxkad::RxkadKeys;
use types::{Answer, Call, Caller, Fault, ServerId, ServerInfo, ServerKind, VolumeCall};

use crate::afs::call_afs;
use crate::{AfsVolumeServers, NextPiece, Servers, TakePiece, VosError};

/// ENODEV: a partition has no such volume.
const NO_DEVICE: i32 = 19;
/// The service of volume servers among those of a destination: the only one.
const VOLUME_SERVICE: u32 = 1;

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
    /// The cell's keys of AFS.
    afs_keys: Option<Arc<RxkadKeys>>,
    /// The way to volume servers by AFS's protocol, once one was asked.
    afs: OnceLock<VolumeServers>,
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
            afs_keys: None,
            afs: OnceLock::new(),
        }
    }

    /// Proves itself with these keys to volume servers of AFS's protocol.
    pub fn with_afs_keys(mut self, keys: Option<Arc<RxkadKeys>>) -> Self {
        self.afs_keys = keys;
        self
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
    /// `Away`; `Refused`, with `Unsupported` by a server of AFS.
    pub fn send(&self, server: ServerId, call: Call) -> Result<Answer, VosError> {
        if self.is_afs(server) {
            return Err(VosError::Refused { server: self.name(server), fault: Fault::Unsupported });
        }
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

impl ServerConnections {
    fn is_afs(&self, server: ServerId) -> bool {
        self.info(server).is_some_and(|info| info.kind() == ServerKind::Afs)
    }

    /// Makes a call to a volume server by AFS's protocol.
    fn by_afs<T>(
        &self,
        server: ServerId,
        act: impl FnOnce(&VolumeServers, Ipv4Addr) -> Result<T, VolumeServerError>,
    ) -> Result<T, VosError> {
        let to = Ipv4Addr::from(self.destination(server)?.host);
        let name = || self.name(server);
        let afs = match self.afs.get() {
            Some(afs) => afs,
            None => {
                let opened = VolumeServers::open(self.afs_keys.clone());
                let opened = opened.map_err(|error| VosError::Unfit(error.to_string()))?;
                self.afs.get_or_init(|| opened)
            }
        };
        act(afs, to).map_err(|error| match error {
            VolumeServerError::Refused { code: VNOVOL | NO_DEVICE, .. } => {
                VosError::Refused { server: name(), fault: Fault::NoVolume }
            }
            VolumeServerError::Refused { call, code } => {
                VosError::AfsRefused { server: name(), call, code }
            }
            VolumeServerError::Silent { why } if self.is_afs(server) => {
                VosError::Away { server: name(), why }
            }
            VolumeServerError::Silent { why } => {
                let remedy = format!(
                    "AFS's volume server there, UDP port {PORT} of {to}: {why}; it is open if its \
                     cell.toml has a part [afs] with that address"
                );
                VosError::Away { server: name(), why: remedy }
            }
            VolumeServerError::Odd { .. } => VosError::Odd(name()),
            VolumeServerError::NoKey => VosError::NoAfsKey { server: name() },
            VolumeServerError::Here(why) => VosError::Unfit(why),
        })
    }
}

impl AfsVolumeServers for ServerConnections {
    fn ask(&self, server: ServerId, call: &VolumesCall) -> Result<VolumesAnswer, VosError> {
        self.by_afs(server, |afs, to| afs.ask(to, call))
    }

    fn dump(
        &self,
        server: ServerId,
        call: &VolumesCall,
        take: &mut TakePiece<'_>,
    ) -> Result<(), VosError> {
        self.by_afs(server, |afs, to| afs.dump(to, call, take))
    }

    fn restore(
        &self,
        server: ServerId,
        call: &VolumesCall,
        next: &mut NextPiece<'_>,
    ) -> Result<(), VosError> {
        self.by_afs(server, |afs, to| afs.restore(to, call, next))
    }

    fn destination(&self, server: ServerId) -> Result<Destination, VosError> {
        let known = self.info(server).into_iter().flat_map(|info| info.addresses);
        let mut addresses = known.filter_map(|address| match address.ip() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        let address = addresses.next().ok_or_else(|| {
            let name = self.name(server);
            VosError::Unfit(format!("{name} has no IPv4 address, at which AFS reaches it"))
        })?;
        Ok(Destination { host: address.into(), port: PORT.into(), service: VOLUME_SERVICE })
    }
}

impl Servers for ServerConnections {
    fn db(&self) -> &dyn CellDb {
        &*self.db
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        if self.is_afs(server) {
            return call_afs(self, server, call);
        }
        self.send(server, Call::Volume(call))
    }

    fn afs(&self) -> Result<&dyn AfsVolumeServers, VosError> {
        Ok(self)
    }

    fn name(&self, server: ServerId) -> String {
        self.info(server).map_or_else(|| server.to_string(), |info| info.name)
    }
}
