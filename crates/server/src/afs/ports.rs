//! The ports, and what is done in time. See the head of the module.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use afs3::bos::BosCall;
use afs3::files::FilesCall;
use afs3::locations::LocationsCall;
use afs3::protection::ProtectionCall;
use afs3::structs::AfsUuid;
use afs3::ubik::vote::{self, VoteCall};
use afs3::volumes::VolumesCall;
use afsfront::{
    BosService, Databases, FileService, LocationService, ProtectionService, VolumeService,
    VoteService,
};
use client::clock;
use parking_lot::Mutex;
use rx::rxkad::{RxkadKeys, RxkadLevel};
use rx::{EndpointConfig, RxError, ServerSecurity, ServiceId};
use rxport::{RxPort, ServedCall};
use types::{Answer, BreakId, BreakItem, Caller, ClientId, Fault, Host, ReplyAddress, SessionId};

use super::callbacks::ForeignClient;
use super::callers::CallerNames;
use super::foreign_caller::ForeignCaller;
use super::hosts::{Arrival, ForeignHost, HostKey, HostSession, HostTable};
use super::other_servers::OtherServers;
use super::serve::{dead, serve};
use crate::attach::{NewSession, new_session};
use crate::config::AfsConfig;
use crate::context::ServerContext;
use crate::foreign_sessions::ForeignSessions;
use crate::loopback::wall;
use crate::pool::CallPool;

/// Threads that serve calls; one waits for as long as its client and the service take.
const CALL_THREADS: usize = 32;
const CALLS_WAITING_MAX: usize = 4096;
/// Threads that call clients back. One that does not answer takes a thread for some seconds.
const INITIALIZING_THREADS: usize = 8;
const INITIALIZATIONS_MAX: usize = 1024;
const BREAK_THREADS: usize = 8;
const BREAKS_WAITING_MAX: usize = 65_536;
/// Calls of hosts that have not shown yet that they receive at their address.
const UNPROVED_MAX: usize = 1024;
/// For so long they wait.
const UNPROVED_WAIT: Duration = Duration::from_secs(5);
/// The pause between two looks at them, and between others.
const UNPROVED_LOOK: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_secs(1);
/// Clients with sessions are asked whether they are there after this time without a call.
const PROBE_AFTER: Duration = Duration::from_secs(600);
/// Sessions for databases end after this time without a call.
const DATABASES_IDLE: Duration = Duration::from_secs(120);

/// Ports, and the services of each. Numbers of services say nothing without the port.
const SERVICES: [(u16, &[u16]); 5] = [
    (afs3::files::PORT, &[afs3::files::SERVICE]),
    (afs3::protection::PORT, &[afs3::protection::SERVICE, vote::SERVICE]),
    (afs3::locations::PORT, &[afs3::locations::SERVICE, vote::SERVICE]),
    (afs3::volumes::PORT, &[afs3::volumes::SERVICE]),
    (afs3::bos::PORT, &[afs3::bos::SERVICE]),
];

/// Why the ports are not open.
#[derive(Debug, thiserror::Error)]
pub enum AfsOpenError {
    /// One of them cannot be opened.
    #[error("cannot listen at {address} (UDP, for AFS's clients): {error}")]
    Port {
        /// The port.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// No threads.
    #[error("the system has no room: {0}")]
    System(#[from] io::Error),
}

/// The host of a call's client.
fn host_of(call: &ServedCall) -> HostKey {
    match call.port {
        afs3::files::PORT => HostKey::Files(call.peer),
        _ => HostKey::Databases(call.peer.ip()),
    }
}

/// See the head of the module. It is open until [`AfsPorts::close`].
pub(crate) struct AfsPorts {
    context: Weak<ServerContext>,
    /// The UUID under which clients know this server.
    uuid: AfsUuid,
    files: FileService,
    volumes: VolumeService,
    locations: LocationService,
    protection: ProtectionService,
    bos: BosService,
    vote: VoteService,
    names: CallerNames,
    hosts: HostTable,
    /// In the order of [`SERVICES`].
    ports: OnceLock<Vec<RxPort>>,
    /// The keys of the cell.
    keys: Arc<RxkadKeys>,
    /// Calls of hosts that are asked for a proof of their address, and when they came.
    unproved: Mutex<VecDeque<(Instant, HostKey, ServedCall)>>,
    calls: CallPool,
    initializations: CallPool,
    breaks: CallPool,
}

impl AfsPorts {
    /// Opens the ports.
    ///
    /// # Errors
    /// The system's, such as that a port is in use; nothing is open then.
    pub fn open(
        context: &Arc<ServerContext>,
        config: &AfsConfig,
    ) -> Result<Arc<AfsPorts>, AfsOpenError> {
        let databases = match config.databases[..] {
            [] => Databases::Own,
            [..] => Databases::Followed,
        };
        let ports = Arc::new(AfsPorts {
            context: Arc::downgrade(context),
            uuid: AfsPorts::uuid_of(context),
            files: FileService::default(),
            volumes: VolumeService::default(),
            locations: LocationService { databases },
            protection: ProtectionService::new(&config.realm, databases),
            bos: BosService::new(context.cell_name.as_deref().unwrap_or_default(), wall().secs),
            vote: VoteService::new(wall().secs, databases),
            names: CallerNames::new(&config.realm),
            hosts: HostTable::default(),
            ports: OnceLock::new(),
            keys: Arc::clone(&config.keys),
            unproved: Mutex::default(),
            calls: CallPool::start("afs", CALL_THREADS)?,
            initializations: CallPool::start("afs-inits", INITIALIZING_THREADS)?,
            breaks: CallPool::start("afs-breaks", BREAK_THREADS)?,
        });
        let foreign: Arc<dyn ForeignSessions> = Arc::new(Sessions(Arc::clone(&ports)));
        assert!(context.foreign.set(foreign).is_ok(), "the ports are opened once");
        let security = vec![
            ServerSecurity::Null,
            ServerSecurity::Rxkad {
                keys: Arc::clone(&config.keys),
                level_min: RxkadLevel::Clear,
                index: rx::rxkad::INDEX,
            },
        ];
        let open = |(port, numbers): &(u16, &[u16])| {
            let serving = Arc::downgrade(&ports);
            let at = SocketAddr::new(config.listen.into(), *port);
            let services =
                numbers.iter().map(|number| (ServiceId(*number), security.clone())).collect();
            RxPort::open(at, EndpointConfig::default(), services, move |call| {
                if let Some(ports) = serving.upgrade() {
                    ports.arrived(host_of(&call), call);
                }
            })
            .map_err(|error| AfsOpenError::Port { address: at, error })
        };
        let mut opened = Vec::new();
        for service in &SERVICES {
            match open(service) {
                Ok(port) => opened.push(port),
                Err(error) => {
                    opened.iter().for_each(RxPort::close);
                    return Err(error);
                }
            }
        }
        tracing::info!(listen = %config.listen, "clients of AFS are served");
        assert!(ports.ports.set(opened).is_ok(), "the ports are opened once");
        Ok(ports)
    }

    /// The UUID under which clients of AFS know a server.
    pub fn uuid_of(context: &ServerContext) -> AfsUuid {
        afsfront::server_uuid(context.vice.me().id)
    }

    /// Ends all calls and closes the ports.
    pub fn close(&self) {
        let waiting = self.hosts.end();
        let unproved = std::mem::take(&mut *self.unproved.lock());
        drop((waiting, unproved));
        self.ports.get().into_iter().flatten().for_each(RxPort::close);
        self.calls.stop();
        self.initializations.stop();
        self.breaks.stop();
    }

    // Calls.

    fn arrived(self: &Arc<Self>, key: HostKey, call: ServedCall) {
        // A server that was taken out of its cell serves nothing in the network.
        let serves = self.context.upgrade().is_some_and(|context| !context.is_expelled());
        let Some(host) = self.hosts.host(key).filter(|_| serves) else {
            return call.call.abort(dead());
        };
        // A host to which nothing was sent yet may not be where it says.
        if host.host_session().is_none() && !self.is_proved(&call) {
            let mut unproved = self.unproved.lock();
            let oldest = if unproved.len() < UNPROVED_MAX { None } else { unproved.pop_front() };
            unproved.push_back((Instant::now(), key, call));
            drop(unproved);
            return drop(oldest);
        }
        self.admit(host, call);
    }

    fn is_proved(&self, call: &ServedCall) -> bool {
        self.port_numbered(call.port).is_some_and(|port| port.prove(call.connection))
    }

    fn port_numbered(&self, number: u16) -> Option<&RxPort> {
        let ports = self.ports.get()?;
        Some(&ports[SERVICES.iter().position(|known| known.0 == number)?])
    }

    /// The way to other servers, which is the port of the volume service.
    fn other_servers(&self) -> Option<OtherServers> {
        let port = self.port_numbered(afs3::volumes::PORT)?.clone();
        Some(OtherServers { port, keys: Arc::clone(&self.keys) })
    }

    fn admit(self: &Arc<Self>, host: Arc<ForeignHost>, call: ServedCall) {
        match host.arrived(call) {
            Arrival::Serve(host_session, call) => self.serve_soon(host, host_session, call),
            Arrival::Initialize => self.initialize_soon(&host),
            Arrival::Waits => {}
            Arrival::Refused(call) => call.call.abort(dead()),
        }
    }

    fn serve_soon(
        self: &Arc<Self>,
        host: Arc<ForeignHost>,
        host_session: Arc<HostSession>,
        call: ServedCall,
    ) {
        let (ports, served) = (Arc::clone(self), ServedOne(Arc::clone(self), Arc::clone(&host)));
        // A task that is not taken drops the call, which ends it.
        let _ = self.calls.try_run(CALLS_WAITING_MAX, move || {
            let _served = served;
            ports.serve(&host, &host_session, call);
        });
    }

    fn serve(&self, host: &ForeignHost, host_session: &HostSession, call: ServedCall) {
        let Some((context, servers)) = self.context.upgrade().zip(self.other_servers()) else {
            return;
        };
        let ServedCall { call, port, service, caller, .. } = call;
        let way = || {
            let proof = (&caller, host.key.address());
            ForeignCaller::of(&context, host_session, &self.names, &servers, proof)
        };
        match port {
            _ if service == ServiceId(vote::SERVICE) => {
                serve(call, |request: VoteCall, _| self.vote.serve(&way()?, &request));
            }
            afs3::files::PORT => serve(call, |request: FilesCall, stream| {
                self.files.serve(&way()?, host_session.file_host(), request, stream)
            }),
            afs3::protection::PORT => {
                serve(call, |request: ProtectionCall, _| self.protection.serve(&way()?, request));
            }
            afs3::volumes::PORT => serve(call, |request: VolumesCall, stream| {
                self.volumes.serve(&way()?, request, stream)
            }),
            afs3::bos::PORT => {
                serve(call, |request: BosCall, _| self.bos.serve(&way()?, request));
            }
            _ => serve(call, |request: LocationsCall, _| self.locations.serve(&way()?, request)),
        }
    }

    // Sessions.

    fn initialize_soon(self: &Arc<Self>, host: &Arc<ForeignHost>) {
        let (ports, host_to_tell) = (Arc::clone(self), Arc::clone(host));
        let is_taken = self
            .initializations
            .try_run(INITIALIZATIONS_MAX, move || ports.initialize(&host_to_tell));
        if !is_taken {
            host.not_initialized().into_iter().for_each(|call| call.call.abort(dead()));
        }
    }

    /// Makes a host known: it trusts nothing from before its session.
    fn initialize(self: &Arc<Self>, host: &Arc<ForeignHost>) {
        match self.begin_session(host) {
            Ok(host_session) => {
                for call in host.initialized(&host_session) {
                    self.serve_soon(Arc::clone(host), Arc::clone(&host_session), call);
                }
                // The session may have ended before the host had it: its calls would wait for ever.
                if !self.hosts.has(host_session.session()) && host.lose(host_session.session()) {
                    self.initialize_soon(host);
                }
            }
            Err(why) => {
                tracing::info!(host = ?host.key, why, "a client of AFS is not served");
                host.not_initialized().into_iter().for_each(|call| call.call.abort(dead()));
            }
        }
    }

    fn begin_session(&self, host: &Arc<ForeignHost>) -> Result<Arc<HostSession>, String> {
        let takes_uae = match self.client(host) {
            Some(client) => {
                client.initialize(self.uuid).map_err(|error| format!("as a client: {error}"))?
            }
            None => false,
        };
        let context = self.context.upgrade().ok_or("the server ends")?;
        let address = host.key.address();
        let new = NewSession {
            client: ClientId(rand::random()),
            incarnation: 1,
            display: &format!("AFS at {address}"),
            host: Some(Host::of(address)),
            of_nobody: true,
        };
        let attached = context.with_vice(|_, effects| new_session(&context, &new, effects));
        let attached = attached.map_err(|fault| fault.to_string())?;
        let host_session = Arc::new(HostSession::new(attached.session, attached.slots, takes_uae));
        self.hosts.began(attached.session, host);
        Ok(host_session)
    }

    /// The client of a host, if it is one that is called back.
    fn client<'a>(&'a self, host: &'a ForeignHost) -> Option<ForeignClient<'a>> {
        let HostKey::Files(address) = host.key else { return None };
        let port = self.port_numbered(afs3::files::PORT)?;
        Some(ForeignClient { port, host, address })
    }

    /// A client has missed something: nothing waits for it any more.
    fn give_up(&self, host: &ForeignHost, session: SessionId, error: RxError) {
        let Some(context) = self.context.upgrade() else { return };
        tracing::warn!(host = ?host.key, %error, "a client of AFS does not answer");
        context.with_vice(|vice, effects| vice.peer_died(clock::now(), session, effects));
    }

    // Time.

    /// Does what is due. Returns the time until the next look.
    pub fn look(self: &Arc<Self>, at: &mut AfsTimes) -> Duration {
        let waiting = std::mem::take(&mut *self.unproved.lock());
        for (came, key, call) in waiting {
            let Some(host) = self.hosts.host(key) else { continue };
            if self.is_proved(&call) {
                self.admit(host, call);
            } else if came.elapsed() < UNPROVED_WAIT {
                self.unproved.lock().push_back((came, key, call));
            }
        }
        if at.looked.elapsed() >= LOOK {
            at.looked = Instant::now();
            self.look_at_hosts(at);
        }
        if self.unproved.lock().is_empty() { LOOK / 4 } else { UNPROVED_LOOK }
    }

    fn look_at_hosts(self: &Arc<Self>, at: &mut AfsTimes) {
        let Some((context, servers)) = self.context.upgrade().zip(self.other_servers()) else {
            return;
        };
        let renews = at.renewed.elapsed() >= types::limits::KEEP_ALIVE;
        if renews {
            at.renewed = Instant::now();
        }
        for (host, host_session) in self.hosts.known() {
            let (session, silence) = (host_session.session(), host.silence());
            if matches!(host.key, HostKey::Databases(_)) && silence >= DATABASES_IDLE {
                context.with_vice(|vice, effects| vice.detach(clock::now(), session, effects));
                continue;
            }
            if renews {
                let renew = |vice: &vice::Vice, effects: &mut _| {
                    // One that is not renewed ends, and says so.
                    vice.renew(clock::now(), session, effects)
                };
                context.with_vice(renew);
                let way = ForeignCaller {
                    context: &context,
                    host_session: &host_session,
                    caller: Caller::ROOT,
                    host: host.key.address(),
                    servers: &servers,
                };
                self.files.end_late_locks(&way, session.0);
            }
            if silence >= PROBE_AFTER {
                // The next probe comes after as long a silence.
                host.answers();
                self.probe_soon(host, session);
            }
        }
        for connection in self.hosts.forget_idle() {
            if let Some(port) = self.port_numbered(afs3::files::PORT) {
                port.disconnect(connection);
            }
        }
    }

    fn probe_soon(self: &Arc<Self>, host: Arc<ForeignHost>, session: SessionId) {
        let ports = Arc::clone(self);
        let _ = self.initializations.try_run(INITIALIZATIONS_MAX, move || {
            let probed = ports.client(&host).map_or(Ok(()), |client| client.probe());
            if let Err(error) = probed {
                ports.give_up(&host, session, error);
            }
        });
    }
}

/// A call of a host is served, in whatever way it ended: the next one's turn comes.
struct ServedOne(Arc<AfsPorts>, Arc<ForeignHost>);

impl Drop for ServedOne {
    fn drop(&mut self) {
        let ServedOne(ports, host) = self;
        if let Some((host_session, call)) = host.served() {
            ports.serve_soon(Arc::clone(host), host_session, call);
        }
    }
}

/// When things were done last.
pub(crate) struct AfsTimes {
    looked: Instant,
    renewed: Instant,
}

impl Default for AfsTimes {
    fn default() -> Self {
        AfsTimes { looked: Instant::now(), renewed: Instant::now() }
    }
}

/// The service's side of the ports, for tasks that own it.
pub(super) struct Sessions(pub Arc<AfsPorts>);

impl ForeignSessions for Sessions {
    fn answer(&self, origin: ReplyAddress, result: Result<Answer, Fault>) {
        let host = self.0.hosts.of_session(origin.session);
        if let Some(host_session) = host.and_then(|host| host.host_session()) {
            host_session.slots.finish(origin, result);
        }
    }

    fn end_promises(&self, session: SessionId, id: BreakId, items: Vec<BreakItem>) {
        let Some(host) = self.0.hosts.of_session(session) else { return };
        let ports = Arc::clone(&self.0);
        let is_taken = self.0.breaks.try_run(BREAKS_WAITING_MAX, move || {
            let told = ports.client(&host).map_or(Ok(()), |client| client.end_promises(&items));
            match (told, ports.context.upgrade()) {
                (Ok(()), Some(context)) => {
                    context.with_vice(|vice, effects| {
                        vice.ack(clock::now(), session, id, &[], effects);
                    });
                }
                (Err(error), _) => ports.give_up(&host, session, error),
                (Ok(()), None) => {}
            }
        });
        // It is not acknowledged, so the session ends with its lease.
        if !is_taken {
            tracing::warn!("too many callbacks of clients of AFS wait");
        }
    }

    fn ended(&self, session: SessionId) {
        if let Some(host) = self.0.hosts.ended(session) {
            self.0.initialize_soon(&host);
        }
    }
}
