//! The cell as a client sees it: its servers, with a session for each that is needed.
//!
//! The *home* is the server by which the client reached the cell. The client connects to another
//! server when a volume is there, at the addresses in the cell database. Where several servers have
//! the same volume, the client asks the one of lowest *rank* first; servers without a rank from an
//! administrator are ranked by their round-trip time.
//!
//! From below: `server_connection` is one session and the volumes that get its events,
//! `replica_watch` the volumes whose sites may lag, [`Cell`] the servers, `sites` where a volume
//! is, `volume` one volume at its place, and `locate` finds volumes by name.

mod inherit;
mod locate;
mod replica_watch;
mod server_connection;
mod sites;
mod volume;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fabric::tls::RefusedKeys;
use keep::Keep;
use parking_lot::Mutex;
use types::{
    Answer, Call, Caller, CellCall, ClientId, Fault, KeyPrint, ServerId, ServerInfo, ServerKind,
    ServerRoles,
};

use self::replica_watch::{ReplicaReader, Watch};
use self::server_connection::{AddressBook, ServerConnection};
pub use self::volume::RemoteVolume;
use crate::kept::{self, KeptServer};
use crate::{CallError, Cancel, Endpoint, Remote, Reply, Session, SessionConfig};

/// How long the client does not retry a server that it could not reach.
const RETRY: Duration = Duration::from_secs(1);
/// The longest time for connecting to one address.
const DIAL_WITHIN: Duration = Duration::from_secs(3);
/// Ranks by distance lie between these. Source: AFS has 20,000 for a server of the same network,
/// and 40,000 for any other.
const RANK_NEAR: u32 = 20_000;
const RANK_FAR: u32 = 65_000;
/// The round-trip time that adds one to a rank.
const RANK_STEP: Duration = Duration::from_micros(100);

/// Begins a session with a server of this cell.
pub type Dial =
    dyn Fn(&Weak<Cell>, &ServerInfo) -> Result<Arc<dyn Remote>, CallError> + Send + Sync;

/// Connects to the addresses of a server, one after the other.
pub fn dial_addresses(
    config: impl Fn(Endpoint) -> SessionConfig + Send + Sync + 'static,
) -> Box<Dial> {
    Box::new(move |_, server| {
        let mut why = CallError::Refused(format!("server {} has no address", server.name));
        for address in &server.addresses {
            let config = config(Endpoint::Tcp(address.to_string()));
            let config = SessionConfig {
                attach_within: Some(DIAL_WITHIN),
                server: Some(server.id),
                ..config
            };
            match Session::connect(config) {
                Ok(session) => {
                    session.found_at(server.id, &server.addresses);
                    return Ok(Arc::new(session));
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    })
}

/// A server and its state, as this client knows them.
#[derive(Clone, Debug)]
pub struct KnownServer {
    /// Its record in the cell database.
    pub info: ServerInfo,
    /// Does it answer? `None`: no call needed it yet.
    pub up: Option<bool>,
    /// Its round-trip time, if it was measured.
    pub round_trip: Option<Duration>,
    /// The server of lowest rank is asked first.
    pub rank: u16,
}

/// See the head of the file.
pub struct Cell {
    pub(crate) home: Arc<ServerConnection>,
    dial: Option<Box<Dial>>,
    others: Mutex<HashMap<ServerId, Arc<Mutex<Other>>>>,
    /// As last read from the cell database.
    servers: Mutex<Vec<ServerInfo>>,
    ranks: Mutex<HashMap<ServerId, u16>>,
    watch: Watch,
    this: Weak<Cell>,
}

/// A server other than the home.
#[derive(Default)]
struct Other {
    connection: Option<Arc<ServerConnection>>,
    failed: Option<Instant>,
}

impl Cell {
    /// A cell with one server, whatever the cell database lists. Becomes the sink of the events of
    /// its session.
    pub fn new(home: Arc<dyn Remote>) -> Arc<Cell> {
        Self::with(home, None)
    }

    /// The cell of this server; `dial` begins the sessions with its other servers.
    pub fn of_servers(home: Arc<dyn Remote>, dial: Box<Dial>) -> Arc<Cell> {
        Self::with(home, Some(dial))
    }

    fn with(home: Arc<dyn Remote>, dial: Option<Box<Dial>>) -> Arc<Cell> {
        let (others, servers, ranks, watch) = Default::default();
        Arc::new_cyclic(|cell| {
            let home = ServerConnection::new(home, Weak::clone(cell) as _);
            Cell { home, dial, others, servers, ranks, watch, this: Weak::clone(cell) }
        })
    }

    /// The session with the server that the cell was reached by.
    pub fn home(&self) -> &Arc<dyn Remote> {
        &self.home.remote
    }

    /// May there be other servers?
    pub(crate) fn has_others(&self) -> bool {
        self.dial.is_some()
    }

    /// Detaches all sessions.
    pub fn detach(&self) {
        self.connections().iter().for_each(|connection| connection.remote.detach());
    }

    /// Resumes the sessions of a predecessor of this process with other servers than the home,
    /// before their leases end. Returns when all are attached, or their servers did not answer in
    /// time: then their calls wait.
    pub fn resume_others(&self, keep: &Arc<Keep>, client: ClientId) {
        let Some(dial) = &self.dial else { return };
        let left = kept::unclaimed(keep, client);
        std::thread::scope(|scope| {
            for KeptServer { server, addresses, endpoint, .. } in left {
                let Some(server) = server.filter(|server| !self.is_home(*server)) else { continue };
                let Endpoint::Tcp(at) = endpoint else { continue };
                let at: Option<SocketAddr> = at.parse().ok().filter(|at| !addresses.contains(at));
                let addresses = at.into_iter().chain(addresses).collect();
                let info = ServerInfo {
                    id: server,
                    name: server.to_string(),
                    addresses,
                    keys: Vec::new(),
                };
                scope.spawn(move || {
                    let other = Arc::clone(self.others.lock().entry(server).or_default());
                    let mut other = other.lock();
                    if other.connection.is_some() {
                        return;
                    }
                    match dial(&self.this, &info) {
                        Ok(remote) => drop(self.connected(&mut other, server, remote)),
                        Err(error) => tracing::warn!(
                            %server,
                            %error,
                            consequence = "locks and unanswered changes there are lost",
                            "a session of the process before was not resumed"
                        ),
                    }
                });
            }
        });
    }

    /// This process knows what it has in the resumed sessions ([`Remote::restored`]).
    pub fn restored(&self) {
        self.connections().iter().for_each(|connection| connection.remote.restored());
    }

    /// No request of a predecessor is made again ([`Remote::forget_orphans`]).
    pub fn forget_orphans(&self) {
        self.connections().iter().for_each(|connection| connection.remote.forget_orphans());
    }

    /// The answer of any server to a predecessor's request ([`Remote::take_orphan`]).
    pub(crate) fn take_orphan(
        &self,
        caller: &Caller,
        call: &Call,
    ) -> Option<Result<Reply, CallError>> {
        let all = self.connections();
        all.iter().find_map(|connection| connection.remote.take_orphan(caller, call))
    }

    fn connected(
        &self,
        other: &mut Other,
        server: ServerId,
        remote: Arc<dyn Remote>,
    ) -> Arc<ServerConnection> {
        other.failed = None;
        let connection = ServerConnection::new(remote, Weak::clone(&self.this) as _);
        let _ = connection.server.set(server);
        Arc::clone(other.connection.insert(connection))
    }

    /// The existing sessions, the home's first.
    fn connections(&self) -> Vec<Arc<ServerConnection>> {
        let others: Vec<_> = self.others.lock().values().cloned().collect();
        // The mutex is locked while the client connects: there is no session yet.
        let others = others.iter().filter_map(|other| other.try_lock()?.connection.clone());
        std::iter::once(Arc::clone(&self.home)).chain(others).collect()
    }

    /// Asks the cell database through any server, first through one that is connected.
    pub(crate) fn ask(
        &self,
        call: &CellCall,
        cancel: Option<&Cancel>,
    ) -> Result<Answer, CallError> {
        let mut why = CallError::Fault(Fault::Unsupported);
        for connection in self.database_servers() {
            match connection.ask(Call::Cell(call.clone()), cancel) {
                Err(CallError::Fault(Fault::NoVolume)) => {
                    return Err(CallError::Fault(Fault::NoVolume));
                }
                Err(error) if !cancel.is_some_and(Cancel::is_cancelled) => why = error,
                result => return result,
            }
        }
        Err(why)
    }

    /// Makes a call that is about the cell and no volume, as a login is, at a server that takes
    /// such calls: at one that is connected, and at the next if it does not answer.
    ///
    /// # Errors
    /// The service's refusal, or why the last server does not answer.
    pub fn call_any(
        &self,
        caller: &Caller,
        call: &Call,
        cancel: Option<&Cancel>,
    ) -> Result<Answer, CallError> {
        let mut why = CallError::Fault(Fault::CellAway);
        for connection in self.database_servers() {
            match connection.ask_as(caller, call.clone(), cancel) {
                Ok(reply) => return Ok(reply.answer),
                Err(error) if error.fault().is_some() => return Err(error),
                Err(error) if cancel.is_some_and(Cancel::is_cancelled) => return Err(error),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The sessions with servers that have the cell's database, those that stand first.
    fn database_servers(&self) -> impl Iterator<Item = Arc<ServerConnection>> {
        let have_it = self
            .connections()
            .into_iter()
            .filter(|connection| connection.remote.kind() == ServerKind::Rialto);
        let (standing, away): (Vec<_>, Vec<_>) =
            have_it.partition(|connection| connection.remote.stands());
        standing.into_iter().chain(away)
    }

    /// The servers of the cell; the last known list if no server answers.
    pub(crate) fn server_infos(&self, cancel: Option<&Cancel>) -> Vec<ServerInfo> {
        match self.ask(&CellCall::Servers, cancel) {
            Ok(Answer::Servers(found)) => {
                let found: Vec<ServerInfo> = found.into_iter().map(|seen| seen.record).collect();
                self.servers.lock().clone_from(&found);
                found
            }
            _ => self.servers.lock().clone(),
        }
    }

    /// Learns the servers that can be asked if the home fails.
    pub(crate) fn know_servers(&self, cancel: Option<&Cancel>) {
        if self.has_others() && self.home_id(cancel).is_some() && self.servers.lock().len() < 2 {
            self.server_infos(cancel);
        }
    }

    /// The server id of the home.
    pub(crate) fn home_id(&self, cancel: Option<&Cancel>) -> Option<ServerId> {
        if self.home.server.get().is_none()
            && let Ok(Answer::Servers(found)) = self.home.ask(Call::Cell(CellCall::Me), cancel)
            && let Some(seen) = found.first()
        {
            let _ = self.home.server.set(seen.record.id);
            self.home.remote.found_at(seen.record.id, &seen.record.addresses);
            let mut servers = self.servers.lock();
            if servers.is_empty() {
                // Without a cell database this record is all that is known.
                servers.push(seen.record.clone());
            }
        }
        self.home.server.get().copied()
    }

    /// Is it the server by which the cell was reached?
    pub(crate) fn is_home(&self, server: ServerId) -> bool {
        self.home.server.get() == Some(&server)
    }

    /// The session with this server; connects first if there is none.
    pub(crate) fn connection(
        &self,
        server: ServerId,
        cancel: Option<&Cancel>,
    ) -> Result<Arc<ServerConnection>, CallError> {
        let home = self.home_id(cancel);
        if home == Some(server) {
            return Ok(Arc::clone(&self.home));
        }
        let unreached =
            |why: &str| CallError::Refused(format!("server {server} cannot be reached: {why}"));
        // While the home's id is unknown, this could begin a second session with the home, which
        // would replace the first.
        let dial = self
            .dial
            .as_ref()
            .filter(|_| home.is_some())
            .ok_or_else(|| unreached("only the home server is known"))?;
        let other = Arc::clone(self.others.lock().entry(server).or_default());
        let mut other = other.lock();
        if let Some(connection) = &other.connection {
            return Ok(Arc::clone(connection));
        }
        if other.failed.is_some_and(|at| at.elapsed() < RETRY) {
            return Err(unreached("it did not answer a moment ago"));
        }
        let infos = self.server_infos(cancel);
        let info = infos
            .iter()
            .find(|info| info.id == server)
            .ok_or_else(|| unreached("the cell has no such server"))?;
        match dial(&self.this, info) {
            Ok(remote) => {
                tracing::info!(%server, name = info.name, "session with another server of the \
                    cell");
                Ok(self.connected(&mut other, server, remote))
            }
            Err(error) => {
                tracing::warn!(%server, name = info.name, %error, "a server of the cell cannot be \
                    reached");
                other.failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    /// The existing session with this server.
    pub(crate) fn connection_if_any(&self, server: ServerId) -> Option<Arc<ServerConnection>> {
        if self.is_home(server) {
            return Some(Arc::clone(&self.home));
        }
        let other = self.others.lock().get(&server).cloned()?;
        other.try_lock()?.connection.clone()
    }

    /// The rank of a server: the administrator's, or one by its round-trip time.
    pub(crate) fn rank(&self, server: ServerId, connection: &ServerConnection) -> u16 {
        let given = self.ranks.lock().get(&server).copied();
        given.unwrap_or_else(|| rank_at(connection.round_trip()))
    }

    /// Sets a server's rank. It applies to volumes that are opened, or leave a server, from now on.
    pub fn set_rank(&self, server: ServerId, rank: u16) {
        self.ranks.lock().insert(server, rank);
    }

    /// The servers of the cell, ordered by rank. Calls only the cell database.
    pub fn known_servers(&self, cancel: Option<&Cancel>) -> Vec<KnownServer> {
        let known = self.listed(cancel).into_iter().map(|info| self.known(info));
        let mut known: Vec<KnownServer> = known.collect();
        known.sort_by_key(|server| server.rank);
        known
    }

    fn listed(&self, cancel: Option<&Cancel>) -> Vec<ServerInfo> {
        // This learns the home's id.
        self.home_id(cancel);
        self.server_infos(cancel)
    }

    fn known(&self, info: ServerInfo) -> KnownServer {
        let connection = self.connection_if_any(info.id);
        let up = connection.as_ref().map(|connection| connection.remote.stands());
        let round_trip =
            connection.filter(|_| up == Some(true)).map(|connection| connection.round_trip());
        let given = self.ranks.lock().get(&info.id).copied();
        let rank = given.unwrap_or_else(|| round_trip.map_or(RANK_FAR as u16, rank_at));
        KnownServer { info, up, round_trip, rank }
    }

    /// Watches a volume with several sites from now on.
    pub(crate) fn watch(&self, volume: &Weak<dyn ReplicaReader>) {
        let cell = Weak::clone(&self.this);
        self.watch.add(volume, move || {
            cell.upgrade().is_some_and(|cell| {
                cell.look_around();
                cell.watch.goes_on()
            })
        });
    }

    /// Learns which keys of servers were withdrawn, from all servers that it is connected to and
    /// that act for administrators, and ends connections with holders of such keys. Any other
    /// server could have clients refuse the servers of its choice. Returns whether a key is new.
    pub fn learn_withdrawn(&self, refused: &RefusedKeys) -> bool {
        let mut is_new = false;
        let connections = self.connections();
        let may_withdraw = |connection: &&Arc<ServerConnection>| {
            let remote = &connection.remote;
            remote.kind() == ServerKind::Rialto
                && remote.stands()
                && remote.server_roles().has(ServerRoles::USERS)
        };
        for connection in connections.iter().filter(may_withdraw) {
            let asked = connection.ask(Call::Cell(CellCall::Withdrawn), None);
            // An older server does not know the call.
            if let Ok(Answer::Report(text)) = asked {
                is_new |= refused.add(withdrawn_in(&text));
            }
        }
        connections.iter().for_each(|connection| connection.remote.refuse_keys(refused));
        is_new
    }

    /// Asks the cell for changes, and leaves sites that lag. Runs periodically.
    pub fn look_around(&self) {
        self.watch.look_around(|call| self.ask(call, None));
    }

    /// Calls every server of the cell to find out which ones answer.
    pub fn check_servers(&self, cancel: Option<&Cancel>) -> Vec<KnownServer> {
        let check = |info: ServerInfo| {
            let answer = self
                .connection(info.id, cancel)
                .and_then(|connection| connection.ask(Call::Cell(CellCall::Me), cancel));
            KnownServer { up: Some(answer.is_ok()), ..self.known(info) }
        };
        let mut checked: Vec<KnownServer> = std::thread::scope(|scope| {
            let each: Vec<_> = self
                .listed(cancel)
                .into_iter()
                .map(|info| scope.spawn(move || check(info)))
                .collect();
            each.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        checked.sort_by_key(|server| server.rank);
        checked
    }
}

impl AddressBook for Cell {
    fn addresses_of(&self, server: ServerId) -> Option<Vec<SocketAddr>> {
        if !self.has_others() {
            return None;
        }
        let is_other = |info: &&ServerInfo| info.id != server && info.kind() == ServerKind::Rialto;
        let others: Vec<ServerId> =
            self.servers.lock().iter().filter(is_other).map(|info| info.id).collect();
        let asked = others.into_iter().find_map(|other| {
            let connection = self
                .connection(other, None)
                .ok()
                .filter(|connection| connection.remote.stands())?;
            match connection.ask(Call::Cell(CellCall::Servers), None) {
                Ok(Answer::Servers(found)) => {
                    Some(found.into_iter().map(|seen| seen.record).collect::<Vec<_>>())
                }
                _ => None,
            }
        });
        let found = asked.unwrap_or_default();
        let addresses =
            found.iter().find(|info| info.id == server).map(|info| info.addresses.clone());
        if !found.is_empty() {
            *self.servers.lock() = found;
        }
        Some(addresses.unwrap_or_default())
    }
}

/// The keys in a JSON array of texts. Anything else is skipped.
fn withdrawn_in(text: &str) -> impl Iterator<Item = KeyPrint> + '_ {
    text.split('"').filter_map(|key| key.parse().ok())
}

fn rank_at(round_trip: Duration) -> u16 {
    let steps = u32::try_from(round_trip.as_micros() / RANK_STEP.as_micros()).unwrap_or(RANK_FAR);
    u16::try_from(RANK_NEAR.saturating_add(steps).min(RANK_FAR)).expect("RANK_FAR is a u16")
}
