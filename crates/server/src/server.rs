//! A running server: its threads, from start to stop.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use celldb::CellError;
use client::{Endpoint, clock};
use dafs::ChannelId;
use fabric::{Connection, Listener};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::{OpenError, Partition, StoreError};
use types::{Answer, ServerId};
use vice::{Partitions, Vice, ViceConfig, ViceParts};

use crate::afs::{AfsOpenError, AfsPorts, AfsTimes, JoinedCell};
use crate::audit::{Audit, Forward, Retention};
use crate::cell::{self, Joining};
use crate::context::{Agenda, Lookups, ServerContext};
use crate::logins::Logins;
use crate::loopback::wall;
use crate::pool::CallPool;
use crate::principal_snapshot::Learnt;
use crate::pull::{PullThreads, Puller};
use crate::scrub::Scrubber;
use crate::security::{Door, Security};
use crate::standbys::{StandbyThreads, StandbyThreadsOf};
use crate::usage::{self, Bounds};
use crate::worker::{Worker, WorkerDoor};
use crate::{AfsConfig, CellPlace, ServerConfig};

/// The longest time between two checks of leases: a blocked change waits at most this much longer
/// than needed.
const TICK_MAX: Duration = Duration::from_millis(250);
/// The interval of log syncs while there are changes.
const LOG_SYNC: Duration = Duration::from_secs(1);
/// The interval of syncs of all bodies while there are changes: as the kernel does by itself, so
/// that a commit finds little to do.
const BODY_SYNC: Duration = Duration::from_secs(5);
/// How often the records of clients that are away for long are removed.
const FORGET_CLIENTS: Duration = Duration::from_secs(6 * 3600);
/// Body files removed at a time, between checks for the stop.
const SWEEP_FILES: usize = 256;
/// While there is something to sweep, a sweep rests for this many times as long as it worked.
const SWEEP_REST: u32 = 3;
/// New sessions are recorded one after the other; the second thread lets resumed ones pass.
const ATTACH_THREADS: usize = 2;
/// For calls that may ask another server.
const REMOTE_THREADS: usize = 4;
/// For calls of principals that another server is asked for.
const LOOKUP_THREADS: usize = 4;
/// For calls of *nobody*: one that waits for the disk, and one that reads meanwhile.
const NOBODY_THREADS: usize = 2;
/// For passwords: their work is pure computation.
const HASHING_THREADS: usize = 2;
/// The interval between two questions for changes in the cell. A change of a user's groups takes
/// this long to reach the other servers.
const NEWS: Duration = Duration::from_millis(250);
/// How long the acceptor waits when the system has no descriptors left.
const BREATH: Duration = Duration::from_millis(50);

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The partition cannot be opened.
    #[error("{}: {error}", path.display())]
    Partition {
        /// Its path.
        path: PathBuf,
        /// Why not.
        error: OpenError,
    },
    /// Its records cannot be read.
    #[error("sessions of the earlier server instance cannot be read: {0}")]
    Records(#[from] StoreError),
    /// It cannot listen there.
    #[error("cannot listen at {endpoint}: {error}")]
    Listen {
        /// The configured endpoint.
        endpoint: Endpoint,
        /// Why not.
        error: io::Error,
    },
    /// AFS's clients cannot be served.
    #[error("{0}")]
    Afs(#[from] AfsOpenError),
    /// The cell's database cannot be reached as it is configured.
    #[error("{0}")]
    Cell(#[from] CellError),
    /// No threads or descriptors.
    #[error("the system has no room: {0}")]
    System(#[from] io::Error),
}

/// A server that runs. [`Server::stop`] ends it in order; dropping it looks like a crash to others.
pub struct Server {
    context: Option<Arc<ServerContext>>,
    scrubber: Arc<Scrubber>,
    puller: Arc<Puller>,
    standbys: Arc<StandbyThreads>,
    /// For AFS's own clients.
    afs: Option<Arc<AfsPorts>>,
    doors: Vec<Arc<WorkerDoor>>,
    workers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    stop: Arc<Stop>,
    endpoints: Vec<Endpoint>,
    /// The audit log, which ends last.
    audit: Option<(Arc<Audit>, JoinHandle<()>)>,
}

/// Orders the threads beside the workers to end.
struct Stop {
    stopping: Mutex<bool>,
    changed: Condvar,
    bell: OwnedFd,
}

impl Stop {
    /// Repeats the work at this interval until the server stops.
    fn each(&self, interval: Duration, mut work: impl FnMut()) {
        self.each_after(interval, || {
            work();
            interval
        });
    }

    /// Repeats the work until the server stops; each time it says how long to wait before the next.
    fn each_after(&self, first: Duration, mut work: impl FnMut() -> Duration) {
        let (mut stopping, mut wait) = (self.stopping.lock(), first);
        while !*stopping {
            self.changed.wait_for(&mut stopping, wait);
            if !*stopping {
                wait = parking_lot::MutexGuard::unlocked(&mut stopping, &mut work);
            }
        }
    }
}

impl Server {
    /// Opens the partitions and serves them.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub fn start(config: &ServerConfig) -> Result<Server, StartError> {
        Self::start_with(config, open_partitions)
    }

    /// Serves partitions that are opened otherwise than from the configuration's paths: those of
    /// tests, in memory.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        config: &ServerConfig,
        open: impl FnOnce(&ServerConfig) -> Result<Partitions, StartError>,
    ) -> Result<Server, StartError> {
        let bounds = Arc::new(Bounds::new(config.limits, raise_descriptor_limit()));
        let listeners = listen(config)?;
        let is_for_users = |(_, door): &(Listener, Door)| *door == Door::Users;
        let is_there = listeners.iter().any(is_for_users);
        let users_socket = config.users_socket.clone().filter(|_| is_there);
        let config = &ServerConfig { users_socket, ..config.clone() };
        let partitions = open(config)?;
        let endpoints: Vec<Endpoint> =
            listeners.iter().filter_map(|(listener, _)| listener.endpoint().ok()).collect();
        let scrubber = Arc::new(Scrubber::new(partitions.clone()));
        let me = cell::me(config, ServerId(partitions.home().id()), &endpoints);
        let place = config.cell.clone().map(|place| Joining::new(place, me.clone(), config));
        let (joining, cell) = place.transpose()?.unzip();
        let etcd = joining.as_ref().and_then(Joining::etcd);
        let (audit, writing) = start_audit(config)?.unzip();
        let puller = Puller::start()?;
        let standbys = StandbyThreads::new(Arc::clone(&puller));
        let lookups = Arc::new(Lookups::default());
        let scrubbing = Arc::clone(&scrubber);
        let kerberos = config.kerberos.clone();
        let logins = config.mint.clone().map(|mint| Arc::new(Logins::new(mint, kerberos)) as _);
        let parts = ViceParts {
            me: Some(me),
            cell: cell.unwrap_or_default(),
            authenticator: logins,
            certifier: config.certifier.clone(),
            principals: None,
            audit: audit.clone().map(|audit| audit as _),
            transfers: Some(Arc::new(PullThreads(Arc::clone(&puller)))),
            standbys: Some(Arc::new(StandbyThreadsOf(Arc::clone(&standbys)))),
            lookups: Some(lookups.hook()),
            scrub: Some(Box::new(move |start| scrubbing.answer(start))),
        };
        let opened = Vice::open_with(partitions, vice_config(config), parts, clock::now());
        let vice = match opened {
            Ok(vice) => Arc::new(vice),
            Err(error) => {
                puller.stop();
                if let Some((audit, writing)) = audit.zip(writing) {
                    audit.stop();
                    join(writing);
                }
                return Err(error.into());
            }
        };
        let joining = joining.and_then(|joining| joining.begin(&vice));
        let pool = CallPool::start("pool", config.pool_threads)?;
        let attaching = CallPool::start("door", ATTACH_THREADS)?;
        let remote_calls = CallPool::start("office", REMOTE_THREADS)?;
        let looking = CallPool::start("lookups", LOOKUP_THREADS)?;
        let nobody_calls = CallPool::start_nice("guests", NOBODY_THREADS)?;
        let hashing = CallPool::start_nice("hashing", HASHING_THREADS)?;
        let pools = [pool, attaching, remote_calls, nobody_calls, hashing, looking];
        let context = Arc::new(ServerContext::new(vice, pools, audit.clone(), bounds, config));
        lookups.work_for(&context);
        puller.works_for(&context);
        standbys.work_for(&context);
        let stop = Stop {
            stopping: Mutex::new(false),
            changed: Condvar::new(),
            bell: eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?,
        };
        let mut server = Server {
            context: Some(Arc::clone(&context)),
            scrubber,
            puller,
            standbys,
            afs: None,
            doors: Vec::new(),
            workers: Vec::new(),
            others: Vec::new(),
            stop: Arc::new(stop),
            endpoints,
            audit: audit.zip(writing),
        };
        server.start_threads(config, &context, listeners)?;
        if let Some(afs) = &config.afs {
            server.open_afs(afs, &context)?;
        }
        if let Some(etcd) = etcd {
            let stop = Arc::downgrade(&server.stop);
            etcd.wake_by(Box::new(move || {
                if let Some(stop) = stop.upgrade() {
                    stop.changed.notify_all();
                }
            }));
        }
        let fetches = matches!(config.cell, Some(CellPlace::At(_) | CellPlace::Etcd(_)));
        if fetches || joining.is_some() {
            let mut joining = joining;
            let mut learnt = joining.as_mut().and_then(|joining| joining.learnt.take());
            server.keep_thread(
                "cell",
                "the thread of the cell",
                &context,
                move |context, stop| {
                    keep_in_cell(&mut joining, &mut learnt, fetches, context, stop);
                },
            )?;
        }
        for (_, path) in &config.partitions {
            tracing::info!(endpoints = ?server.endpoints, "serving {}", path.display());
        }
        Ok(server)
    }

    fn start_threads(
        &mut self,
        config: &ServerConfig,
        context: &Arc<ServerContext>,
        listeners: Vec<(Listener, Door)>,
    ) -> io::Result<()> {
        for number in 0..config.worker_count() {
            let door = WorkerDoor::new()?;
            let worker = Worker::new(
                Arc::clone(context),
                Arc::clone(&door),
                config.unbound_max,
                config.slow_reader,
            );
            self.doors.push(door);
            self.workers.push(spawn(&format!("worker-{number}"), move || worker.run())?);
        }
        let nobody = WorkerDoor::new()?;
        let worker = Worker::new(
            Arc::clone(context),
            Arc::clone(&nobody),
            config.unbound_max,
            config.slow_reader,
        );
        let worker = worker.for_nobody(self.doors.clone());
        self.workers.push(spawn("porch", move || worker.run())?);
        let users = self.doors.clone();
        self.doors.push(Arc::clone(&nobody));
        self.keep_thread("acceptor", "the acceptor", context, move |context, stop| {
            accept(&listeners, (&users, &nobody), stop, context);
        })?;
        self.keep_thread("leases", "the thread of leases", context, tick)?;
        let standbys = Arc::clone(&self.standbys);
        self.keep_thread("tend", "the thread of lent bodies", context, move |context, stop| {
            tend(context, &standbys, stop);
        })?;
        for partition in context.vice.partitions().iter() {
            let (syncing, sweeping) = (partition.clone(), partition.clone());
            self.keep_thread("sync", "the thread of syncs", context, move |context, stop| {
                sync(context, &syncing, stop);
            })?;
            self.keep_thread("sweep", "the thread of removals", context, move |_, stop| {
                sweep(&sweeping, stop);
            })?;
        }
        Ok(())
    }

    fn open_afs(
        &mut self,
        config: &AfsConfig,
        context: &Arc<ServerContext>,
    ) -> Result<(), StartError> {
        let ports = AfsPorts::open(context, config)?;
        self.afs = Some(Arc::clone(&ports));
        let mut times = AfsTimes::default();
        self.keep_thread("afs", "the thread of AFS's clients", context, move |_, stop| {
            stop.each_after(Duration::ZERO, || ports.look(&mut times));
        })?;
        if config.databases.is_empty() {
            return Ok(());
        }
        let uuid = AfsPorts::uuid_of(context);
        let mut entry = JoinedCell::new(config, uuid)?;
        self.keep_thread("afs-cell", "the thread of AFS's databases", context, move |_, stop| {
            stop.each_after(Duration::ZERO, || entry.enter());
        })?;
        Ok(())
    }

    /// Starts a thread that begins its work anew after a panic, until the server stops.
    fn keep_thread(
        &mut self,
        name: &str,
        called: &'static str,
        context: &Arc<ServerContext>,
        mut run: impl FnMut(&Arc<ServerContext>, &Stop) + Send + 'static,
    ) -> io::Result<()> {
        let (stop, context) = (Arc::clone(&self.stop), Arc::clone(context));
        self.others.push(spawn(name, move || context.keep(called, || run(&context, &stop)))?);
        Ok(())
    }

    /// Where it listens, with the port that the system chose.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Sets the action for a server that can no longer answer ([`Vice::is_broken`]): it should stop
    /// it. Called once.
    pub fn on_broken(&self, end: impl Fn() + Send + Sync + 'static) {
        if let Some(context) = &self.context {
            // Only the first action counts.
            let _ = context.end.set(Box::new(end));
        }
    }

    /// The service, for a caller in the same process.
    pub fn vice(&self) -> Arc<Vice> {
        Arc::clone(
            &self.context.as_ref().expect("the context exists until the server is stopped").vice,
        )
    }

    /// Ends in order: requests in progress are finished, everything is made stable. Sessions stay
    /// recorded, so that clients go on with the next server instance.
    ///
    /// # Errors
    /// The last sync's; changes that were acknowledged as stable are stable all the same.
    pub fn stop(mut self) -> Result<(), StoreError> {
        let context = self.halt();
        let synced =
            context.as_ref().map_or(Ok(()), |context| context.vice.partitions().sync_all());
        drop(context);
        tracing::info!("stopped");
        synced
    }

    fn halt(&mut self) -> Option<Arc<ServerContext>> {
        let context = self.context.take()?;
        *self.stop.stopping.lock() = true;
        self.stop.changed.notify_all();
        // The counter is zero before: the write cannot block.
        let _ = rustix::io::write(&self.stop.bell, &1_u64.to_ne_bytes());
        for door in &self.doors {
            door.order(|orders| orders.stop = true);
        }
        self.workers.drain(..).for_each(join);
        if let Some(afs) = self.afs.take() {
            afs.close();
        }
        context.attaching.stop();
        context.remote_calls.stop();
        context.lookups.stop();
        context.nobody_calls.stop();
        context.hashing.stop();
        context.pool.stop();
        self.scrubber.stop();
        self.standbys.stop();
        self.puller.stop();
        self.others.drain(..).for_each(join);
        if let Some((audit, writing)) = self.audit.take() {
            audit.stop();
            join(writing);
        }
        for handle in context.handles() {
            for link in handle.clear() {
                link.cut();
            }
        }
        Some(context)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt();
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the server panicked");
    }
}

fn open_partitions(config: &ServerConfig) -> Result<Partitions, StartError> {
    let open = |(name, path): &(String, PathBuf)| match Partition::open(path, config.store.clone())
    {
        Ok(partition) => Ok((name.clone(), partition)),
        Err(error) => Err(StartError::Partition { path: path.clone(), error }),
    };
    let opened = config.partitions.iter().map(open).collect::<Result<_, _>>()?;
    Ok(Partitions::new(opened))
}

/// The audit log, if one is configured, and the thread that writes it.
fn start_audit(config: &ServerConfig) -> io::Result<Option<(Arc<Audit>, JoinHandle<()>)>> {
    let Some(dir) = &config.audit else { return Ok(None) };
    let retention =
        Retention { days: config.limits.audit_days, bytes: config.limits.audit_mib << 20 };
    let cell = config.cell_name.as_deref().unwrap_or("-");
    let forward = config.audit_forward.clone().map(|to| Forward::start(to, cell)).transpose()?;
    Audit::start(dir, retention, forward).map(Some)
}

/// Runs until this server is entered in its cell, and as long as the server runs if its keys may be
/// replaced, or if another server has the database: then it fetches changes.
///
/// It fetches the rules first: when a client finds this server in the cell, the cell's rules are in
/// force.
fn keep_in_cell(
    joining: &mut Option<Joining>,
    learnt: &mut Option<Learnt>,
    fetches: bool,
    context: &Arc<ServerContext>,
    stop: &Stop,
) {
    let mut stopping = stop.stopping.lock();
    while !*stopping && (fetches || joining.is_some()) {
        let at_once = parking_lot::MutexGuard::unlocked(&mut stopping, || {
            if fetches {
                fetch_changes(context);
                learnt.iter_mut().for_each(|learnt| learnt.keep(&context.vice));
            }
            let at_once = joining.as_mut().is_some_and(|joining| joining.go_on(&context.vice));
            context.judge_itself();
            if joining.as_ref().is_some_and(Joining::is_over) {
                *joining = None;
            }
            at_once
        });
        if !*stopping && !at_once {
            stop.changed.wait_for(&mut stopping, NEWS);
        }
    }
}

fn fetch_changes(context: &Arc<ServerContext>) {
    let mut agenda = Agenda::default();
    context.vice.hear_news(clock::now(), wall(), &mut agenda.effects);
    context.deliver_and_send(&mut agenda);
}

fn vice_config(config: &ServerConfig) -> ViceConfig {
    let mut vice = ViceConfig::new(dafs::encode_answer_record, decode_record);
    vice.lease.lease = config.lease;
    vice.lease.grace = config.lease_grace;
    vice.lease.break_patience = config.lease;
    config.limits.apply_to(&mut vice);
    vice
}

fn decode_record(record: &[u8]) -> Option<Answer> {
    dafs::decode_answer_record(record).ok()
}

/// Without the socket for users the server serves all others.
fn listen(config: &ServerConfig) -> Result<Vec<(Listener, Door)>, StartError> {
    let unix = config.unix_socket.clone().map(Endpoint::Unix);
    let tcp = config.tcp_listen.clone().map(Endpoint::Tcp);
    let options = || config.options.connection.clone();
    let bind = |endpoint: Endpoint| {
        Listener::bind(&endpoint, options())
            .map(|listener| (listener, Door::Own))
            .map_err(|error| StartError::Listen { endpoint, error })
    };
    let mut listeners = unix.into_iter().chain(tcp).map(bind).collect::<Result<Vec<_>, _>>()?;
    let Some(path) = &config.users_socket else { return Ok(listeners) };
    match Listener::bind_for_users(path, options()) {
        Ok(listener) => listeners.push((listener, Door::Users)),
        Err(error) => {
            tracing::warn!(
                socket = %path.display(),
                cause = %error,
                consequence = "users of this machine reach the server over the network alone",
                remedy = "name another place with users-socket = \"PATH\" in cell.toml, or \
                    \"none\"",
                "the socket for users is not there"
            );
        }
    }
    Ok(listeners)
}

/// Each connection takes a descriptor, and open bodies do too. Returns the new limit.
fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) =
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit on descriptors cannot be raised");
    }
    getrlimit(Resource::Nofile).current
}

/// Hands new connections to the workers in turn; those whose callers are unknown, as all from the
/// network, to the worker for *nobody*.
fn accept(
    listeners: &[(Listener, Door)],
    (users, nobody): (&[Arc<WorkerDoor>], &WorkerDoor),
    stop: &Stop,
    context: &ServerContext,
) {
    while !*stop.stopping.lock() {
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&stop.bell, PollFlags::IN)];
        fds.extend(listeners.iter().map(|(listener, _)| PollFd::new(listener, PollFlags::IN)));
        if let Err(error) = poll(&mut fds, None) {
            tracing::debug!(%error, "poll");
        }
        for (listener, door) in listeners {
            while let Some(connection) = accept_one(listener, context) {
                let number = context.tally.accepted.fetch_add(1, Ordering::Relaxed);
                let security = Security::of(*door, connection.peer());
                let is_own = security == Some(Security::Local);
                if !is_own
                    && context.tally.connections.load(Ordering::Relaxed)
                        >= context.bounds.connections_max
                {
                    // Dropped: the store needs the remaining descriptors.
                    usage::count(&context.bounds.met.connections_all);
                    if let Some(before) = context.bounds.may_log("descriptors", None) {
                        let most = context.bounds.connections_max;
                        tracing::warn!(
                            before,
                            most,
                            "a connection is closed, since there are as many as descriptors allow"
                        );
                    }
                    continue;
                }
                // Counted here: the worker may be behind by more connections than there are
                // descriptors.
                context.tally.connections.fetch_add(1, Ordering::Relaxed);
                let is_known = is_own || security.is_some_and(Security::is_of_known_user);
                let worker = match is_known {
                    true => &users[usize::try_from(number).unwrap_or(0) % users.len()],
                    false => nobody,
                };
                let (id, door) = (ChannelId(number + 1), *door);
                worker.order(|orders| orders.new.push((id, connection, door)));
            }
        }
    }
}

fn accept_one(listener: &Listener, context: &ServerContext) -> Option<Connection> {
    match listener.accept() {
        Ok(connection) => connection,
        Err(error) => {
            if let Some(before) = context.bounds.may_log("accept", None) {
                tracing::warn!(%error, before, "a connection was not accepted; the next is tried \
                    in a moment");
            }
            std::thread::sleep(BREATH);
            None
        }
    }
}

/// Expires leases and does other timed work of the service.
fn tick(context: &Arc<ServerContext>, stop: &Stop) {
    let is_asking = Arc::new(AtomicBool::new(false));
    let mut stopping = stop.stopping.lock();
    while !*stopping {
        let next = parking_lot::MutexGuard::unlocked(&mut stopping, || {
            let ticked = catch_unwind(AssertUnwindSafe(|| {
                let mut agenda = Agenda::default();
                let next = context.vice.tick(clock::now(), &mut agenda.effects);
                context.judge_connections(&mut agenda);
                context.deliver_and_send(&mut agenda);
                ask_about_volumes(context, &is_asking);
                next
            }));
            ticked.unwrap_or_else(|_| {
                context.panicked(
                    "the thread of leases",
                    "due work waits for the next tick",
                    "report the lines before this one",
                );
                clock::now() + TICK_MAX
            })
        });
        let wait = next.since(clock::now()).clamp(Duration::from_millis(1), TICK_MAX);
        stop.changed.wait_for(&mut stopping, wait);
    }
}

/// Removes unreferenced bodies. After a full disk that may take long, and the log must not wait for
/// it.
fn sweep(partition: &Partition, stop: &Stop) {
    stop.each_after(LOG_SYNC, || {
        let began = Instant::now();
        let swept = partition.sweep(SWEEP_FILES);
        let rest = rest_of_sweep(swept.as_ref().map_or(0, |swept| *swept), began.elapsed());
        report_failure("removal of bodies", swept.map(drop));
        rest
    });
}

/// The wait before the next sweep: short while there is more, since standbys and users wait for the
/// room and the names of what was removed.
fn rest_of_sweep(swept: usize, took: Duration) -> Duration {
    if swept == 0 { LOG_SYNC } else { (took * SWEEP_REST).min(LOG_SYNC) }
}

/// Makes the changes of a partition stable in the background.
fn sync(context: &ServerContext, partition: &Partition, stop: &Stop) {
    // A call's changes count when it is executed, which may be long after it began: it waits for a
    // delegation, a hold, or the end of grace.
    let mut bodies_seen = (0, 0);
    let mut bodies_synced = Instant::now();
    stop.each(LOG_SYNC, || {
        let changes = (partition.applied(), context.changes.load(Ordering::Relaxed));
        if !partition.is_stable() {
            report_failure("sync of the log", partition.sync());
        }
        if changes != bodies_seen && bodies_synced.elapsed() >= BODY_SYNC {
            bodies_seen = changes;
            bodies_synced = Instant::now();
            report_failure("sync of bodies", partition.sync_all());
        }
    });
}

/// Makes writes of kernels into lent bodies visible; bodies whose loans ended are summed at the
/// next sync.
fn tend(context: &Arc<ServerContext>, standbys: &Arc<StandbyThreads>, stop: &Stop) {
    let mut forgot = None;
    stop.each(LOG_SYNC, || {
        let mut agenda = Agenda::default();
        if context.vice.tend(clock::now(), wall(), &mut agenda.effects) {
            context.changes.fetch_add(1, Ordering::Relaxed);
        }
        context.deliver_and_send(&mut agenda);
        standbys.search(context);
        if forgot.is_none_or(|when: Instant| when.elapsed() >= FORGET_CLIENTS) {
            forgot = Some(Instant::now());
            forget_clients(context);
        }
    });
}

fn forget_clients(context: &ServerContext) {
    match context.vice.forget_clients(wall()) {
        Ok(0) => {}
        Ok(clients) => {
            tracing::info!(clients, "records of clients that are away for long are removed");
        }
        Err(fault) => {
            tracing::warn!(%fault, "records of clients that are away for long cannot be removed");
        }
    }
}

/// Asks the cell database about volumes in doubt, and about standbys. It may be on another server,
/// so this runs in another thread; one at a time.
fn ask_about_volumes(context: &Arc<ServerContext>, is_asking: &Arc<AtomicBool>) {
    if context.vice.has_doubts(clock::now()) && !is_asking.swap(true, Ordering::SeqCst) {
        let (asking, ended) = (Arc::clone(context), OnEnd(Arc::clone(is_asking)));
        context.remote_calls.run(move || {
            let mut agenda = Agenda::default();
            asking.vice.settle_doubts(clock::now(), wall(), &mut agenda.effects);
            asking.deliver_and_send(&mut agenda);
            drop(ended);
        });
    }
}

/// Takes a mark away when it is dropped, also after a panic.
struct OnEnd(Arc<AtomicBool>);

impl Drop for OnEnd {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

fn report_failure(what: &str, result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::error!(%error, "{what} failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At one sweep a second a standby waited for minutes for what its volume had removed.
    #[test]
    fn a_sweep_with_more_to_do_rests_for_moments() {
        let step = Duration::from_millis(10);
        assert_eq!(rest_of_sweep(SWEEP_FILES, step), step * SWEEP_REST);
        assert_eq!(rest_of_sweep(1, LOG_SYNC), LOG_SYNC, "never longer than usual");
        assert_eq!(rest_of_sweep(0, step), LOG_SYNC, "nothing is left");
    }
}
