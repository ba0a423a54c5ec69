//! A service in this process, and its volume mounted any number of times, each time by a separate
//! client.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use client::{CallError, Cancel, Events, Remote, Reply};
use mount::{KernelTransport, Mount, MountConfig, WorkersConfig};
use server::Loopback;
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use tempfile::TempDir;
use types::{Call, Caller, ClientId, CreateHow, Fid, Name, NewKind, Timestamp};
use venus::{Venus, VenusConfig, Volumes};
use vice::{Vice, ViceConfig, ViceParts};

static CLIENTS: AtomicU64 = AtomicU64::new(1);

/// The service. Fields are dropped in order: nothing is mounted any more when it ends.
pub struct Cell {
    loopback: Loopback,
    #[allow(dead_code)] // It is there to be dropped.
    last: Last,
    dir: TempDir,
}

/// The service's last owner: a thread that still had a part of it at the exit of the process would
/// close its engine during the engine's own end.
struct Last(Arc<Vice>);

impl Drop for Last {
    fn drop(&mut self) {
        let began = Instant::now();
        while Arc::strong_count(&self.0) > 1 && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// One mount of its volume.
pub struct Client {
    mount: Mount,
    volumes: Arc<Volumes>,
    venus: Arc<Venus>,
    path: PathBuf,
}

fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp::new(since.as_secs() as i64, since.subsec_nanos())
}

/// In flat mounts: the first volume, and the path of the tested volume in it.
const TOP: (&str, &str) = ("top", "below");

/// The name of the only volume.
pub fn volume() -> Name {
    Name::new(b"root").unwrap()
}

/// Reports that this test cannot run here, past the capture of output: scripts/check.sh counts the
/// line.
fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("mount").to_owned();
    let _ =
        writeln!(std::io::stderr(), "\nSKIP unit: {} {test}: {reason}", env!("CARGO_CRATE_NAME"));
}

impl Cell {
    /// Starts a fresh one; `None` if nothing can be mounted.
    pub fn start() -> Option<Cell> {
        Cell::start_with(ViceParts::default())
    }

    /// As `start`, with these parts of the service.
    pub fn start_with(parts: ViceParts) -> Option<Cell> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            skip("mounting needs root and /dev/fuse");
            return None;
        }
        if crate::transport() == KernelTransport::Uring && !mount::offers_uring() {
            skip(&format!("io_uring for FUSE is off; as root: echo 1 > {}", mount::URING_SWITCH));
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("partition");
        let options = OpenOptions { cache_bytes: 16 << 20, ..OpenOptions::default() };
        let partition = Partition::create(&at, &PartitionConfig::default(), options).unwrap();
        let root =
            NewRoot { mode: 0o755, uid: 0, gid: 0, now: wall(), quota: VolumeQuota::default() };
        partition.volumes().create_volume(&volume(), &root).unwrap();
        let config = ViceConfig::new(dafs::encode_answer_record, |bytes| {
            dafs::decode_answer_record(bytes).ok()
        });
        let vice = Vice::open_with(partition, config, parts, client::clock::now()).unwrap();
        let vice = Arc::new(vice);
        let cell = Cell { loopback: Loopback::new(Arc::clone(&vice)), last: Last(vice), dir };
        if crate::is_flat() {
            cell.add_volume(TOP.0);
            cell.point(TOP.0, TOP.1, "%root");
        }
        Some(cell)
    }

    /// The directory for mounts.
    #[allow(dead_code)] // Not for measurements.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A separate session, without a mount.
    pub fn session(&self) -> Arc<dyn Remote> {
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Arc::new(self.loopback.attach(ClientId(number.into()), 1).unwrap())
    }

    /// The directory of its body files.
    pub fn bodies(&self) -> PathBuf {
        self.dir.path().join("partition/bodies")
    }

    /// The partition, as its background thread sees it.
    pub fn partition(&self) -> &Partition {
        self.loopback.vice().partition()
    }

    /// The service itself.
    #[allow(dead_code)] // Not for measurements.
    pub fn vice(&self) -> &Vice {
        self.loopback.vice()
    }

    /// Creates one more volume.
    #[allow(dead_code)] // Not for measurements.
    pub fn add_volume(&self, volume: &str) {
        let root =
            NewRoot { mode: 0o755, uid: 0, gid: 0, now: wall(), quota: VolumeQuota::default() };
        self.partition()
            .volumes()
            .create_volume(&Name::new(volume.as_bytes()).unwrap(), &root)
            .unwrap();
    }

    /// The root of a volume.
    #[allow(dead_code)] // Not for measurements.
    pub fn root(&self, volume: &str) -> Fid {
        let call = Call::Root { volume: Name::new(volume.as_bytes()).unwrap() };
        match self.session().call(&Caller::ROOT, call, None).unwrap().answer {
            types::Answer::Status(status) => status.fid,
            other => panic!("{other:?}"),
        }
    }

    /// Makes a mount point in the root of a volume.
    #[allow(dead_code)] // Not for measurements.
    pub fn point(&self, volume: &str, at: &str, target: &str) {
        let (dir, name) = (self.root(volume), Name::new(at.as_bytes()).unwrap());
        let kind = NewKind::MountPoint(target.to_owned().into());
        let call = Call::Make { dir, name, kind, mode: 0o755, how: CreateHow::Guarded };
        self.session().call(&Caller::ROOT, call, None).unwrap();
    }

    /// Mounts a client that unmounts idle volumes at once.
    #[allow(dead_code)] // Not for measurements.
    pub fn mount_idle(&self, idle: Duration) -> Client {
        self.mount_configured(
            self.session(),
            crate::transport(),
            None,
            VenusConfig::default(),
            Some(idle),
        )
    }

    /// Mounts a client that knows other cells.
    #[allow(dead_code)] // Not for measurements.
    pub fn mount_beside(&self, own: Option<&str>, reach: Box<venus::CellOpener>) -> Client {
        let volumes = Volumes::of(self.session(), VenusConfig::default());
        volumes.has_neighbours(own.map(str::to_owned), reach);
        self.mount_volumes(volumes, crate::transport(), None, None)
    }

    /// Mounts these volumes, beginning with this one.
    #[allow(dead_code)] // Not for measurements.
    pub fn mount_from(&self, volumes: Arc<Volumes>, first: &str) -> Client {
        self.mount_first(
            Name::new(first.as_bytes()).unwrap(),
            volumes,
            crate::transport(),
            None,
            None,
        )
    }

    /// Limits the volume's bytes.
    #[allow(dead_code)] // Not for measurements.
    pub fn set_quota(&self, bytes: u64) {
        let session = self.session();
        let root = match session
            .call(&Caller::ROOT, Call::Root { volume: volume() }, None)
            .unwrap()
            .answer
        {
            types::Answer::Status(status) => status.fid,
            other => panic!("{other:?}"),
        };
        session.call(&Caller::ROOT, Call::SetQuota { fid: root, bytes, files: 0 }, None).unwrap();
    }

    /// The defects of the partition.
    #[allow(dead_code)] // Not for measurements.
    pub fn scrub(&self) -> Vec<String> {
        let report = self.partition().scrub(&mut |_| {}, &false.into()).unwrap();
        report.findings.iter().map(|finding| format!("{finding:?}")).collect()
    }

    /// Mounts once more, by a new client.
    pub fn mount(&self) -> Client {
        self.mount_over(crate::transport())
    }

    /// Mounts a client that sends its calls through `remote`.
    pub fn mount_through(&self, remote: Arc<dyn Remote>) -> Client {
        self.mount_as(remote, crate::transport(), None)
    }

    /// Mounts once more, over the given transport.
    pub fn mount_over(&self, transport: KernelTransport) -> Client {
        self.mount_as(self.session(), transport, None)
    }

    /// Mounts a client that sends its calls through `remote`, with this many threads.
    #[allow(dead_code)] // Not for measurements.
    pub fn mount_with(&self, remote: Arc<dyn Remote>, workers: WorkersConfig) -> Client {
        self.mount_as(remote, crate::transport(), Some(workers))
    }

    /// Mounts a client as on another machine: no descriptors are passed, and file data is cached on
    /// disk.
    #[allow(dead_code)] // Not for measurements.
    pub fn mount_far(&self) -> Client {
        let cache =
            self.dir.path().join(format!("cache-{}", CLIENTS.fetch_add(1, Ordering::Relaxed)));
        let config = VenusConfig { cache_dir: Some(cache), ..VenusConfig::default() };
        self.mount_configured(Arc::new(Far(self.session())), crate::transport(), None, config, None)
    }

    fn mount_as(
        &self,
        remote: Arc<dyn Remote>,
        transport: KernelTransport,
        workers: Option<WorkersConfig>,
    ) -> Client {
        self.mount_configured(remote, transport, workers, VenusConfig::default(), None)
    }

    fn mount_configured(
        &self,
        remote: Arc<dyn Remote>,
        transport: KernelTransport,
        workers: Option<WorkersConfig>,
        config: VenusConfig,
        idle: Option<Duration>,
    ) -> Client {
        self.mount_volumes(Volumes::of(remote, config), transport, workers, idle)
    }

    fn mount_volumes(
        &self,
        volumes: Arc<Volumes>,
        transport: KernelTransport,
        workers: Option<WorkersConfig>,
        idle: Option<Duration>,
    ) -> Client {
        self.mount_first(volume(), volumes, transport, workers, idle)
    }

    fn mount_first(
        &self,
        first: Name,
        volumes: Arc<Volumes>,
        transport: KernelTransport,
        workers: Option<WorkersConfig>,
        idle: Option<Duration>,
    ) -> Client {
        let path =
            self.dir.path().join(format!("mount-{}", CLIENTS.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir(&path).unwrap();
        let is_below = crate::is_flat() && first == volume();
        let first = if is_below { Name::new(TOP.0.as_bytes()).unwrap() } else { first };
        let mut config = MountConfig {
            transport,
            flat: crate::is_flat(),
            ..MountConfig::new(&path, first, "rialto:test")
        };
        config.workers = workers.unwrap_or(config.workers);
        config.idle = idle.unwrap_or(config.idle);
        let mount = Mount::start(config, &volumes).unwrap();
        assert_eq!(mount.transport(), transport);
        if is_below {
            let path = path.join(TOP.1);
            drop(std::fs::read_dir(&path).unwrap());
            let venus = volumes.venus(self.root("root").volume).unwrap();
            return Client { mount, volumes, venus, path };
        }
        let venus = Arc::clone(mount.venus());
        Client { mount, volumes, venus, path }
    }
}

/// A session that passes no descriptors.
struct Far(Arc<dyn Remote>);

impl Remote for Far {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.0.call(caller, call, cancel)
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        self.0.chain(caller, calls)
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        self.0.set_events(events);
    }

    fn passes_descriptors(&self) -> bool {
        false
    }
}

/// A session whose calls are counted, and commits apart.
pub struct Counted {
    session: Arc<dyn Remote>,
    pub calls: AtomicU64,
    pub commits: AtomicU64,
}

impl Counted {
    pub fn new(session: Arc<dyn Remote>) -> Arc<Self> {
        Arc::new(Counted { session, calls: AtomicU64::new(0), commits: AtomicU64::new(0) })
    }

    fn count(&self, call: &Call) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if matches!(call, Call::Commit { .. }) {
            self.commits.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Remote for Counted {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.count(&call);
        self.session.call(caller, call, cancel)
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        calls.iter().for_each(|call| self.count(call));
        self.session.chain(caller, calls)
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        self.session.set_events(events);
    }

    fn passes_descriptors(&self) -> bool {
        self.session.passes_descriptors()
    }
}

impl Client {
    /// Files that are open in passthrough.
    #[allow(dead_code)] // Not for measurements.
    pub fn passed(&self) -> usize {
        self.venus.passthrough().open
    }

    /// The same in a volume below.
    #[allow(dead_code)] // Not for measurements.
    pub fn passed_in(&self, volume: Fid) -> usize {
        self.volumes.venus(volume.volume).map_or(0, |venus| venus.passthrough().open)
    }

    /// Number of bodies that the kernel got.
    #[allow(dead_code)] // Not for measurements.
    pub fn given(&self) -> u64 {
        self.venus.passthrough().given
    }

    /// Volumes that are mounted below.
    #[allow(dead_code)] // Not for measurements.
    pub fn volumes_below(&self) -> usize {
        self.mount
            .volumes_below()
            .saturating_sub(usize::from(crate::is_flat() && self.path.ends_with(TOP.1)))
    }

    /// Changes the options of the mount.
    #[allow(dead_code)] // Not for measurements.
    pub fn remount(&self, options: &mount::MountOptions) {
        self.mount.remount(options).unwrap();
    }

    /// Number of answers of the server that differed from the client's.
    #[allow(dead_code)] // Not for measurements.
    pub fn differences(&self) -> u64 {
        self.venus.differences()
    }

    /// Waits until every request is handled.
    #[allow(dead_code)] // Not for measurements.
    pub fn wait(&self) {
        self.mount.wait();
    }

    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The volume's cache manager.
    #[allow(dead_code)] // Not for measurements.
    pub fn venus(&self) -> &Venus {
        &self.venus
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let unmounted = self.mount.unmount();
        self.mount.wait();
        let handed_back = self.volumes.shutdown();
        if !std::thread::panicking() {
            unmounted.unwrap();
            handed_back.unwrap();
        }
    }
}

/// Waits until `what` holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(10), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
