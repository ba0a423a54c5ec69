//! A mounted volume: from `mount(2)` to the last request.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use client::{Cancel, RemoteVolume};
use keep::Keeper;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use types::{Caller, Name, Status, VolumeId};
use venus::{RequestContext as Asked, Venus, Volumes};
use zerocopy::IntoBytes;

use crate::channel::{Channel, Device, Received, buffer};
use crate::connections::Handler;
use crate::dispatch::Dispatch;
use crate::flat_tree::{self, Flat};
use crate::init::{Agreement, Wishes, negotiate};
use crate::interrupts::Interrupts;
use crate::invalidation::Notifier;
use crate::mount_options::{LiveOptions, MountOptions};
use crate::mounted_volumes::{MountPoints, MountedVolume, Submount};
use crate::mounting::{self, MountError, MountTarget, may_allow_others};
use crate::nodes::{KernelNodes, ROOT_NAME, SHOWN_ROOT, Slot};
use crate::readdir_helper::{ReaddirHelper, Root};
use crate::request::{KernelRequest, Operation};
use crate::rings::{self, Rings};
use crate::submounts::{self, Edges, MountLocation, MountPlan};
use crate::succession::{self, Anchor, Legacy, MountRecord};
use crate::task::MountShared;
use crate::volume_view::VolumeView;
use crate::workers::{KernelTransport, PoolMember, Workers, WorkersConfig};

/// Delay of forgets, and of interrupts behind them, if nothing else comes through the device: some
/// hundred removals.
const FORGETS_REST: Duration = Duration::from_millis(5);

/// So long after a takeover each request of the predecessor was received again.
const TAKEOVER: Duration = Duration::from_secs(60);

/// The volume to mount, where, and how.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// The volume whose root appears there.
    pub volume: Name,
    /// The source that `mount` and `df` show, such as `rialto:cell`.
    pub source: String,
    /// Whether users other than the mounting one may use it, as mode bits allow.
    pub allow_other: bool,
    /// Numbers of threads.
    pub workers: WorkersConfig,
    /// The transport of requests.
    pub transport: KernelTransport,
    /// The command, as a program and its arguments, that runs [`crate::readdir_helper::run`]; only
    /// root's mounts can use one.
    pub forerunner: Option<Vec<OsString>>,
    /// Whether volumes below mount points are shown in this one mount. Otherwise each is mounted as
    /// a file system of its own, which needs root.
    pub flat: bool,
    /// How long an unused volume stays mounted below its mount point.
    pub idle: Duration,
    /// Options that the kernel applies, in mounts below too.
    pub options: MountOptions,
    /// How long a program's request waits for a server that is away; `None`: for ever.
    pub patience: Option<Duration>,
    /// Holds what a successor of this process needs to go on with the mount.
    pub keeper: Option<Arc<Keeper>>,
}

/// Longer than most pauses between two commands.
const IDLE: Duration = Duration::from_secs(600);

impl MountConfig {
    /// The parameters that all mounts of the client share.
    fn plan(&self, volumes: &Arc<Volumes>, forerunner: Option<Arc<ReaddirHelper>>) -> MountPlan {
        MountPlan {
            source: self.source.clone(),
            allow_other: self.allow_other,
            workers: WorkersConfig { kept: self.keeper.is_some(), ..self.workers },
            transport: self.transport,
            idle: self.idle,
            forerunner,
            sysnames: Arc::default(),
            walks: Arc::default(),
            removals: Arc::default(),
            devices: true,
            options: LiveOptions::new(self.options.clone()),
            patience: self.patience,
            pool: None,
            keeper: self.keeper.clone(),
            volumes: Arc::clone(volumes),
            mounted: Arc::default(),
            make: |plan, to, venus, cancel| {
                let (mount, anchor) = Mount::below(plan, to, venus, cancel)?;
                Ok((Box::new(mount), anchor))
            },
        }
    }

    /// A configuration with threads for this machine's cores, open to other users if root mounts
    /// it, or if the administrator of this machine lets users do that.
    pub fn new(mountpoint: impl Into<PathBuf>, volume: Name, source: impl Into<String>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        MountConfig {
            mountpoint: mountpoint.into(),
            volume,
            source: source.into(),
            allow_other: may_allow_others(),
            workers: WorkersConfig::for_cores(cores),
            transport: KernelTransport::default(),
            forerunner: None,
            flat: !rustix::process::geteuid().is_root(),
            idle: IDLE,
            options: MountOptions::default(),
            patience: None,
            keeper: None,
        }
    }
}

/// A mounted volume. Dropping it unmounts.
pub struct Mount {
    /// `None` for a mount below another, which ends with that, or by `umount`.
    mountpoint: Option<PathBuf>,
    /// Set in the first mount, which ends it.
    forerunner: Option<Arc<ReaddirHelper>>,
    /// The workers of the mounts below. Set in the first mount, which ends them.
    pool: Option<Arc<Workers>>,
    notifier: Arc<Notifier>,
    dispatch: Arc<Dispatch>,
    served: Served<Dispatch>,
    /// The records for a successor.
    legacy: Option<Legacy>,
}

/// How volumes below are shown.
enum Below {
    /// Each has its own mount. With the volume of this one, and whether it is read-only.
    Mounted(MountLocation, (VolumeId, bool)),
    /// They are shown in this mount. With the volumes on the path to the first, and whether all of
    /// them are read-only.
    Shown((Vec<VolumeId>, bool)),
}

/// A mount's connection with the kernel, at the start of this process's service.
enum Connection {
    /// A new one: the kernel's first request is `INIT`.
    New(Device),
    /// That of a predecessor.
    Left(Device, MountRecord),
}

/// The threads that serve a mount.
pub(crate) struct Served<H> {
    workers: Serving,
    rings: Option<Arc<Rings<H>>>,
}

/// The threads that receive through the device.
enum Serving {
    /// Those of this mount.
    Own(Arc<Workers>),
    /// Those of all mounts below the first.
    Pool(PoolMember),
}

impl Connection {
    /// A new one, which the keeper holds if there is one.
    fn new(device: OwnedFd, legacy: Option<&Legacy>) -> Self {
        let Some(legacy) = legacy else { return Connection::New(Device::new(device)) };
        if let Err(error) = legacy.hold_device(device.as_fd()) {
            tracing::warn!(%error, "the keeper does not hold a mount");
        }
        Connection::New(Device::single(device))
    }
}

impl<H: Handler> Served<H> {
    /// Starts the threads, on rings if that is agreed.
    ///
    /// # Errors
    /// `Threads`; `NoUring` if rings are required and not available.
    pub(crate) fn start(
        handler: Arc<H>,
        mut config: WorkersConfig,
        agreement: Agreement,
        transport: KernelTransport,
        (device, descriptor): (&Arc<dyn Channel>, Arc<OwnedFd>),
    ) -> Result<Self, MountError> {
        let mut rings = None;
        if agreement.has_rings() {
            rings = Rings::start(Arc::clone(&handler), config, descriptor)
                .map_err(MountError::Threads)?;
        }
        if transport == KernelTransport::Uring && rings.is_none() {
            return Err(MountError::NoUring);
        }
        let mut rest = Duration::ZERO;
        if rings.is_some() {
            // The requests that still come through the device never block.
            config.receiving = 1;
            rest = FORGETS_REST;
        }
        let workers = Workers::start(handler, config, rest, device).map_err(MountError::Threads)?;
        Ok(Served { workers: Serving::Own(workers), rings })
    }

    /// Served by a pool, through the device.
    ///
    /// # Errors
    /// `Threads`.
    fn in_pool(
        handler: Arc<H>,
        pool: &Arc<Workers>,
        device: &Arc<dyn Channel>,
    ) -> Result<Self, MountError> {
        let workers = pool.join(handler, device).map_err(MountError::Threads)?;
        Ok(Served { workers: Serving::Pool(workers), rings: None })
    }

    pub(crate) fn wait(&self) {
        match &self.workers {
            Serving::Own(workers) => workers.wait(),
            Serving::Pool(workers) => workers.wait(),
        }
        if let Some(rings) = &self.rings {
            rings.wait();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        let workers_are_over = match &self.workers {
            Serving::Own(workers) => workers.is_over(),
            Serving::Pool(workers) => workers.is_over(),
        };
        workers_are_over && self.rings.as_ref().is_none_or(|rings| rings.is_over())
    }
}

impl Mount {
    /// Mounts, and serves the kernel's requests from threads of its own until it is unmounted, by
    /// [`Self::unmount`] or from outside.
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted.
    pub fn start(config: MountConfig, volumes: &Arc<Volumes>) -> Result<Mount, MountError> {
        let volume = volumes.find(&Asked::of(&Caller::ROOT), &config.volume)?;
        let venus = volumes.open(&volume)?;
        Self::first(config, volumes, &volume, venus).inspect_err(|_| volumes.close(volume.id()))
    }

    /// The tree once more, attached nowhere: a separate mount for a session, whose kernel state no
    /// other user sees. Its owner may attach it in a name space of its own, and there lift the
    /// restriction on device nodes: so all volumes are shown in it, without their device nodes. It
    /// ends with its last user.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn apart(
        config: &MountConfig,
        volumes: &Arc<Volumes>,
    ) -> Result<(Mount, OwnedFd), MountError> {
        let volume = volumes.find(&Asked::of(&Caller::ROOT), &config.volume)?;
        let venus = volumes.open(&volume)?;
        let made = || {
            let root = venus.root(&Asked::of(&Caller::ROOT), volume.name())?.status;
            let plan = MountPlan { devices: false, ..config.plan(volumes, None) };
            let (path, source) = (config.mountpoint.clone(), config.source.clone());
            let (device, attached) = mounting::detached(&MountTarget {
                path,
                source,
                allow_other: true,
                read_only: false,
                options: plan.options.get(),
            })?;
            let below = Below::Shown((vec![volume.id()], volume.is_read_only()));
            let connection = Connection::New(Device::new(device));
            let first = (root, volume.name(), Arc::clone(&venus));
            let mount = Self::serve(connection, first, plan, below, None, |_| {})?;
            let attached = mount.shown(attached);
            mounting::raise_read_ahead(Path::new(&format!(
                "/proc/self/fd/{}",
                attached.as_raw_fd()
            )));
            if let Some(flat) = &mount.dispatch.mount.flat {
                flat_tree::sweep_periodically(flat).map_err(MountError::Threads)?;
            }
            Ok((mount, attached))
        };
        made().inspect_err(|_| volumes.close(volume.id()))
    }

    fn first(
        config: MountConfig,
        volumes: &Arc<Volumes>,
        volume: &RemoteVolume,
        venus: Arc<Venus>,
    ) -> Result<Mount, MountError> {
        let root = venus.root(&Asked::of(&Caller::ROOT), volume.name())?.status;
        // So that it is known while the server is away.
        venus.control().statfs(&Asked::of(&Caller::ROOT), root.fid)?;
        // Before the mount exists, so that its first user finds the helper ready.
        let forerunner =
            config.forerunner.as_ref().filter(|_| rustix::process::geteuid().is_root());
        let forerunner = forerunner.and_then(|command| start_helper(command)).map(Arc::new);
        let pool = (!config.flat)
            .then(|| {
                let kept = config.keeper.is_some();
                Workers::pool(WorkersConfig { kept, ..config.workers }.for_pool())
            })
            .transpose();
        let pool = pool.map_err(MountError::Threads)?;
        let plan = MountPlan { pool: pool.clone(), ..config.plan(volumes, forerunner.clone()) };
        let read_only = volume.is_read_only();
        // The kernel's read-only flag would apply to all volumes of the mount.
        let target = MountTarget {
            path: config.mountpoint,
            source: config.source,
            allow_other: config.allow_other,
            read_only: read_only && !config.flat,
            options: config.options,
        };
        let below = if config.flat {
            Below::Shown((vec![volume.id()], read_only))
        } else {
            Below::Mounted(MountLocation::Path(target.path.clone()), (volume.id(), read_only))
        };
        let legacy = plan.keeper.as_ref().map(|keeper| Legacy::new(keeper, succession::FIRST));
        let first = (root, volume.name(), venus);
        let served = match legacy.as_ref().and_then(Legacy::left) {
            Some((device, record)) => {
                let connection = Connection::Left(Device::single(device), record);
                Self::succeed(connection, first, &plan, below, legacy)
            }
            None => {
                let (device, detached) = mounting::begin(&target)?;
                let connection = Connection::new(device, legacy.as_ref());
                Self::serve(connection, first, plan, below, legacy, |_| {}).and_then(|mount| {
                    let shown = detached.map(|detached| mount.shown(detached));
                    shown
                        .map_or(Ok(()), |shown| mounting::attach_at(shown.as_fd(), &target.path))?;
                    Ok(mount)
                })
            }
        };
        match served {
            Ok(mut mount) => {
                mounting::raise_read_ahead(&target.path);
                mount.lists_ahead(forerunner.as_ref(), || Root::at(&target.path));
                if let Some(edges) = &mount.dispatch.mount.edges {
                    submounts::sweep_periodically(edges).map_err(MountError::Threads)?;
                }
                if let Some(flat) = &mount.dispatch.mount.flat {
                    flat_tree::sweep_periodically(flat).map_err(MountError::Threads)?;
                }
                (mount.mountpoint, mount.forerunner) = (Some(target.path), forerunner);
                mount.pool = pool;
                Ok(mount)
            }
            Err(error) => {
                // Root's ends by itself: it was attached nowhere.
                if !rustix::process::geteuid().is_root() {
                    let _ = mounting::unmount(&target.path);
                }
                Err(error)
            }
        }
    }

    /// The directory of our own mount to attach: the root's second number if the kernel requests
    /// ACLs (`nodes.rs`).
    fn shown(&self, detached: OwnedFd) -> OwnedFd {
        let nodes = &self.dispatch.first.nodes;
        if !self.dispatch.mount.agreement.is_shared() {
            return detached;
        }
        nodes.shows_root(true);
        let shown = mounting::part(detached.as_fd(), ROOT_NAME).unwrap_or_else(|error| {
            tracing::info!(%error, "cannot mount the root's second inode: each walk of a user \
                other than the root's owner requests its access list");
            nodes.shows_root(false);
            detached
        });
        if let Some(legacy) = &self.legacy
            && let Some(record) = legacy.mount()
        {
            let shows_root = nodes.root_number() == SHOWN_ROOT;
            legacy.put_mount(&MountRecord { shows_root, ..record });
        }
        shown
    }

    /// Goes on with the first mount of a predecessor, and with those below it.
    fn succeed(
        connection: Connection,
        first: (Status, &Name, Arc<Venus>),
        plan: &MountPlan,
        below: Below,
        legacy: Option<Legacy>,
    ) -> Result<Mount, MountError> {
        plan.pool.iter().for_each(|pool| pool.hold());
        let left = plan.keeper.as_ref().map(Legacy::all_below).unwrap_or_default();
        let mut mounts = HashMap::new();
        for legacy in left {
            let number = legacy.number();
            match Self::succeed_below(plan, legacy.clone()) {
                Ok(mount) => drop(mounts.insert(number, mount)),
                Err(error) => {
                    tracing::error!(%error, number, "a volume that was mounted is lost");
                    legacy.end();
                }
            }
        }
        let mount = Self::serve(connection, first, plan.clone(), below, legacy, |dispatch| {
            dispatch.inherit(&mounts);
            let mut notifiers = vec![Arc::clone(&dispatch.first.notifier)];
            notifiers.extend(mounts.values().map(|volume| volume.mount.inherit(&mounts)));
            plan.volumes.cell().restored();
            // Before the first request is received: the kernel would send that again too.
            notifiers.iter().for_each(|notifier| notifier.resend());
        })?;
        plan.pool.iter().for_each(|pool| pool.go_on());
        let volumes = Arc::clone(&plan.volumes);
        let ending = std::thread::Builder::new().name("mount-takeover".into()).spawn(move || {
            volumes.begin_anew_unless_resumed();
            std::thread::sleep(TAKEOVER);
            volumes.cell().forget_orphans();
        });
        ending.map(drop).map_err(MountError::Threads)?;
        Ok(mount)
    }

    /// Goes on with a mount below the first.
    fn succeed_below(
        plan: &MountPlan,
        legacy: Legacy,
    ) -> Result<Arc<MountedVolume<Edges>>, MountError> {
        let lost = || MountError::Device(Errno::NODEV);
        let (device, record) = legacy.left().ok_or_else(lost)?;
        let anchor = legacy.anchor().ok_or_else(lost)?;
        let name = Name::new(&record.volume).map_err(|_| lost())?;
        let volume = plan.volumes.find(&Asked::of(&Caller::ROOT), &name)?;
        let venus = plan.volumes.open(&volume)?;
        let made = || {
            let root = venus.root(&Asked::of(&Caller::ROOT), &name)?.status;
            let place = MountLocation::Below(Mutex::default());
            let below = Below::Mounted(place, (volume.id(), volume.is_read_only()));
            let connection = Connection::Left(Device::single(device), record);
            let first = (root, &name, Arc::clone(&venus));
            Self::serve(connection, first, plan.clone(), below, Some(legacy.clone()), |_| {})
        };
        let mount = made().inspect_err(|_| plan.volumes.close(volume.id()))?;
        mount.learn_device(&anchor);
        Ok(plan.mounted.add(Box::new(mount), Anchor::new(anchor, Some(legacy))))
    }

    /// A volume in a mount of its own, which is attached nowhere yet, for a mount point.
    ///
    /// # Errors
    /// See [`MountError`].
    fn below(
        plan: &MountPlan,
        volume: &RemoteVolume,
        venus: Arc<Venus>,
        cancel: Option<&Cancel>,
    ) -> Result<(Mount, Anchor), MountError> {
        let asked = Asked { cancel, ..Asked::of(&Caller::ROOT) };
        let root = venus.root(&asked, volume.name())?.status;
        let name = String::from_utf8_lossy(volume.name().as_bytes());
        let target = MountTarget {
            path: PathBuf::from(&*name),
            source: format!("{}#{name}", plan.source),
            allow_other: plan.allow_other,
            read_only: volume.is_read_only(),
            options: plan.options.get(),
        };
        let (device, attached) = mounting::detached(&target)?;
        let place = MountLocation::Below(Mutex::default());
        let below = Below::Mounted(place, (volume.id(), volume.is_read_only()));
        let legacy = plan.keeper.as_ref().map(Legacy::below);
        let connection = Connection::new(device, legacy.as_ref());
        let first = (root, volume.name(), venus);
        let mount = Self::serve(connection, first, plan.clone(), below, legacy, |_| {})?;
        let attached = mount.shown(attached);
        // A mount inside it is to appear at all its places.
        mem::propagation::share(attached.as_fd()).map_err(MountError::Device)?;
        mounting::raise_read_ahead(Path::new(&format!("/proc/self/fd/{}", attached.as_raw_fd())));
        mount.lists_ahead(plan.forerunner.as_ref(), || Root::of(attached.as_fd()));
        mount.learn_device(&attached);
        let anchor = Anchor::new(attached, mount.legacy.clone());
        Ok((mount, anchor))
    }

    /// A mount below another knows its device, by which the table of mounts has its places.
    fn learn_device(&self, mount: &OwnedFd) {
        match mounting::number_of(mount.as_fd()) {
            Ok(number) => {
                // Once for each mount.
                let _ = self.dispatch.mount.device.set(number.parts().2.into());
            }
            Err(error) => {
                let consequence = "a program called rm removes what it meets in this volume";
                tracing::warn!(%error, consequence, "the device of a mount is not known");
            }
        }
    }

    fn lists_ahead(
        &self,
        forerunner: Option<&Arc<ReaddirHelper>>,
        root: impl FnOnce() -> Result<Root, Errno>,
    ) {
        let Some(forerunner) = forerunner else { return };
        match root() {
            Ok(root) => {
                self.notifier.list_ahead(forerunner, root);
                self.dispatch.mount.flat.iter().for_each(|flat| flat.lists_ahead(forerunner, root));
            }
            Err(error) => {
                tracing::warn!(%error, "the readdir helper is unusable: names are looked up");
            }
        }
    }

    /// Serves the kernel's requests in a volume, `first`: the status of its root, its name, and its
    /// cache manager. Calls `before` when all is there but the threads that receive.
    fn serve(
        connection: Connection,
        (root, name, venus): (Status, &Name, Arc<Venus>),
        plan: MountPlan,
        below: Below,
        legacy: Option<Legacy>,
        before: impl FnOnce(&Dispatch),
    ) -> Result<Mount, MountError> {
        let (config, transport, devices) = (plan.workers, plan.transport, plan.devices);
        let patience = plan.patience;
        let (device, left) = match connection {
            Connection::New(device) => (device, None),
            Connection::Left(device, record) => (device, Some(record)),
        };
        let descriptor = device.descriptor();
        let device: Arc<dyn Channel> = Arc::new(device);
        // Mounts below the first cost no thread, and so have no rings.
        let pool = match &below {
            Below::Mounted(MountLocation::Below(..), _) => plan.pool.clone(),
            _ => None,
        };
        // The kernel cannot give requests to a successor that it sent through rings.
        let wants_rings = pool.is_none()
            && legacy.is_none()
            && transport != KernelTransport::Device
            && rings::available(&descriptor);
        let wishes = Wishes {
            rings: wants_rings,
            shared: plan.allow_other,
            bounded: !venus.is_beside_server(),
            kept: legacy.is_some(),
        };
        let agreement = match &left {
            Some(record) => record.agreement,
            None => agree(&*device, wishes).map_err(MountError::Negotiation)?,
        };
        let legacy = legacy.filter(|legacy| {
            if !agreement.has_resend() {
                tracing::warn!("the mount ends with this process: Linux 6.9 or newer is needed");
                legacy.end();
            }
            agreement.has_resend()
        });
        let shows_root = left.as_ref().is_some_and(|record| record.shows_root);
        if let (Some(legacy), None) = (&legacy, &left) {
            let volume = name.as_bytes().to_vec();
            legacy.put_mount(&MountRecord { agreement, volume, shows_root });
        }
        tracing::info!(
            minor = agreement.minor,
            flags = format!("{:#x}", agreement.flags),
            "negotiated with the kernel"
        );
        let nodes = match below {
            Below::Shown(_) => KernelNodes::in_slot(root.fid, Slot::FIRST),
            Below::Mounted(..) => KernelNodes::new(root.fid),
        };
        let nodes = Arc::new(match &legacy {
            Some(legacy) => nodes.recorded(legacy.nodes()),
            None => nodes,
        });
        nodes.shows_root(shows_root);
        let notifying = device.another().map_err(MountError::Device)?;
        let notifier =
            Arc::new(Notifier::new(Arc::clone(&notifying), Arc::clone(&nodes), agreement));
        notifier.try_passthrough();
        if left.is_some() {
            notifier.drop_unknown();
        }
        venus.set_invalidate(Arc::clone(&notifier) as _);
        let (volumes, sysnames) = (Arc::clone(&plan.volumes), Arc::clone(&plan.sysnames));
        let (walks, removals) = (Arc::clone(&plan.walks), Arc::clone(&plan.removals));
        let (device_number, options) = (OnceLock::new(), plan.options.clone());
        let refuses_changes = matches!(&below, Below::Shown((_, read_only)) if *read_only);
        let (edges, flat) = match below {
            Below::Mounted(place, way) => {
                (Some(Edges::new(&venus, plan, place, way, &notifier, legacy.clone())), None)
            }
            Below::Shown(way) => {
                let left = legacy.clone();
                (None, Some(Flat::new(plan, &venus, way, &notifying, agreement, left)))
            }
        };
        let interrupts = flat.as_ref().map(|flat| Arc::clone(&flat.interrupts));
        let interrupts = interrupts.unwrap_or_else(|| Interrupts::with_patience(patience));
        let mount = MountShared {
            interrupts,
            agreement,
            edges,
            flat,
            sysnames,
            walks,
            removals,
            device: device_number,
            devices,
            options,
        };
        let notifies = Arc::clone(&notifier);
        let first = Arc::new(VolumeView::new(venus, nodes, notifies, volumes, refuses_changes));
        let dispatch = Arc::new(Dispatch { first, mount });
        before(&dispatch);
        let served = match pool {
            Some(pool) => Served::in_pool(Arc::clone(&dispatch), &pool, &device)?,
            None => Served::start(
                Arc::clone(&dispatch),
                config,
                agreement,
                transport,
                (&device, descriptor),
            )?,
        };
        let (mountpoint, forerunner, pool) = (None, None, None);
        Ok(Mount { mountpoint, forerunner, pool, notifier, dispatch, served, legacy })
    }

    /// The cache manager of its volume.
    pub fn venus(&self) -> &Arc<Venus> {
        &self.dispatch.first.venus
    }

    /// Volumes that are mounted or shown below.
    pub fn volumes_below(&self) -> usize {
        let mounted = self.dispatch.mount.edges.as_ref().map_or(0, |edges| edges.count());
        mounted + self.dispatch.mount.flat.as_ref().map_or(0, |flat| flat.count())
    }

    /// The transport in use: never [`KernelTransport::Auto`].
    pub fn transport(&self) -> KernelTransport {
        if self.served.rings.is_some() { KernelTransport::Uring } else { KernelTransport::Device }
    }

    /// The options that the kernel applies now.
    pub fn options(&self) -> MountOptions {
        self.dispatch.mount.options.get()
    }

    /// Changes the options, of all mounts below too and of those that are made later. The caller
    /// hands pending changes over if it becomes read-only: none is accepted after that.
    ///
    /// # Errors
    /// `EBUSY` if it becomes read-only while a file is open for writing: nothing is changed then.
    /// `EPERM` if it is not root's mount; `EINVAL` for labels, which are for ever.
    pub fn remount(&self, options: &MountOptions) -> Result<(), Errno> {
        let live = &self.dispatch.mount.options;
        let before = live.get();
        if options.labels != before.labels {
            return Err(Errno::INVAL);
        }
        let path = self.mountpoint.as_deref().ok_or(Errno::INVAL)?;
        if !rustix::process::geteuid().is_root() {
            return Err(Errno::PERM);
        }
        // Before the kernel's own flag: mounts that are made meanwhile have the new options.
        live.set(options.clone());
        let wanted = options.attributes(false);
        // Times of access are one value, which is cleared as a whole.
        let cleared = (!wanted & changeable()) | MountAttrFlags::MOUNT_ATTR__ATIME;
        let (on, off) = (u64::from(wanted.bits()), u64::from(cleared.bits()));
        mem::propagation::change_all(path, on, off).inspect_err(|_| live.set(before))?;
        if let Some(edges) = &self.dispatch.mount.edges {
            edges.plan.mounted.for_each_anchor(|anchor| {
                if let Err(error) = mem::propagation::change(anchor.as_fd(), on, off) {
                    tracing::warn!(%error, "a volume keeps its options until it is mounted anew");
                }
            });
        }
        Ok(())
    }

    /// The path of the mount.
    pub fn mountpoint(&self) -> &Path {
        self.mountpoint.as_deref().unwrap_or(Path::new(""))
    }

    /// Waits until it is unmounted and every request is handled.
    pub fn wait(&self) {
        self.served.wait();
        if let Some(edges) = &self.dispatch.mount.edges {
            edges.wait();
        }
        if let Some(flat) = &self.dispatch.mount.flat {
            flat.end();
        }
        self.pool.iter().for_each(|pool| pool.stop());
    }

    /// Unmounts, and waits for the end if it is not in use. Otherwise it leaves its path and serves
    /// its users until the last is gone: [`Self::wait`] waits for that.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unmount(&self) -> std::io::Result<()> {
        if let Some(forerunner) = &self.forerunner {
            forerunner.end();
        }
        self.dispatch.views().for_each(|volume| volume.notifier.stop_listing_ahead());
        if self.served.is_over() {
            return Ok(());
        }
        // Mounts below end with it.
        self.mountpoint.as_deref().map_or(Ok(()), mounting::unmount)
    }
}

impl Submount<Edges> for Mount {
    fn volumes(&self) -> &Arc<Volumes> {
        &self.dispatch.first.volumes
    }

    fn volume(&self) -> VolumeId {
        self.dispatch.first.nodes.root().volume
    }

    fn is_over(&self) -> bool {
        self.served.is_over()
    }

    fn was_used(&self) -> bool {
        self.dispatch.first.was_used()
    }

    fn edges(&self) -> Option<&Arc<Edges>> {
        self.dispatch.mount.edges.as_ref()
    }

    fn legacy(&self) -> Option<&Legacy> {
        self.legacy.as_ref()
    }

    fn inherit(&self, mounts: &HashMap<u64, Arc<MountedVolume<Edges>>>) -> Arc<Notifier> {
        self.dispatch.inherit(mounts);
        Arc::clone(&self.notifier)
    }

    fn wait(&self) {
        Mount::wait(self);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::warn!(%error, path = ?self.mountpoint, "cannot unmount");
        }
    }
}

/// The attributes that options decide.
fn changeable() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NODIRATIME
        | MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW
        | MountAttrFlags::MOUNT_ATTR__ATIME
}

fn start_helper(command: &[OsString]) -> Option<ReaddirHelper> {
    let started = ReaddirHelper::start(command);
    started
        .inspect_err(
            |error| tracing::warn!(%error, "cannot start the readdir helper: names are looked up"),
        )
        .ok()
}

/// Takes the kernel's first request, which is always `INIT`.
pub(crate) fn agree(channel: &dyn Channel, wishes: Wishes) -> Result<Agreement, Errno> {
    let mut bytes = buffer();
    loop {
        if channel.receive(&mut bytes)? == Received::End {
            return Err(Errno::NODEV);
        }
        let request = KernelRequest::decode(&bytes).map_err(|_| Errno::PROTO)?;
        let Operation::Init { of, flags2 } = request.operation else { return Err(Errno::PROTO) };
        let unique = request.header.unique;
        match negotiate(of, flags2, wishes) {
            Ok((out, agreement)) => {
                channel.reply(unique, Ok(&[std::io::IoSlice::new(out.as_bytes())]))?;
                if let Some(agreement) = agreement {
                    return Ok(agreement);
                }
            }
            Err(error) => {
                let _ = channel.reply(unique, Err(error));
                return Err(error);
            }
        }
    }
}
