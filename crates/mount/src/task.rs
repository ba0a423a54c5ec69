//! One request of the kernel in progress.

use std::sync::{Arc, OnceLock};

use client::Cancel;
use rustix::io::Errno;
use types::{Caller, Fid, Name};
use venus::Venus;

use crate::abi;
use crate::access_cache::KernelAccess;
use crate::attributes::Validity;
use crate::calling::RepeatedWalks;
use crate::channel::Requester;
use crate::errno::RequestRefusal;
use crate::flat_tree::Flat;
use crate::init::Agreement;
use crate::interrupts::Interrupts;
use crate::mount_options::LiveOptions;
use crate::nodes::Slot;
use crate::removals::Removals;
use crate::replier::Replier;
use crate::submounts::Edges;
use crate::sysname::Sysnames;
use crate::volume_view::VolumeView;
use crate::walk::Walk;

/// State that all requests of one mount share.
pub(crate) struct MountShared {
    /// The requests in progress.
    pub interrupts: Arc<Interrupts>,
    /// The kernel's abilities.
    pub agreement: Agreement,
    /// Volumes below, if they are mounted.
    pub edges: Option<Arc<Edges>>,
    /// All volumes of the mount but the first, if it shows them.
    pub flat: Option<Arc<Flat>>,
    /// The names for `@sys`, in all mounts of this client.
    pub sysnames: Arc<Sysnames>,
    /// Walks that the kernel repeats, in all mounts of this client.
    pub walks: Arc<RepeatedWalks>,
    /// Programs that remove trees, in all mounts of this client.
    pub removals: Arc<Removals>,
    /// The number of its device, if it is mounted below another.
    pub device: OnceLock<Arc<str>>,
    /// Whether device nodes have their numbers.
    pub devices: bool,
    /// Options that the kernel applies, in all mounts of this client.
    pub options: LiveOptions,
}

impl MountShared {
    /// The kernel returns references to a node of the volume.
    pub fn forget(&self, on: &VolumeView, node: u64, count: u64) {
        if let Some(fid) = on.nodes.forget(node, count) {
            let is_unknown = || on.nodes.fid(node).is_none();
            self.edges.iter().for_each(|edges| edges.forget(node, is_unknown));
            if is_unknown() {
                self.flat.iter().for_each(|flat| flat.forget(node));
            }
            on.venus.forget(fid, count);
        }
    }

    /// Whether the caller may remove a name here, which the rights do not decide: `removals.rs`.
    ///
    /// # Errors
    /// `XDEV` if it may not.
    pub fn check_removal(&self, header: &abi::InHeader, name: &[u8]) -> Result<(), Errno> {
        let Some(device) = self.device.get() else { return Ok(()) };
        let is_held_back = self.removals.holds_back(header.pid, device, header.nodeid, name);
        if is_held_back { Err(Errno::XDEV) } else { Ok(()) }
    }

    /// The error of a request in a volume, as the kernel gets it. If there is no such volume any
    /// more, its mount points become free for the one that has its name now, and the kernel repeats
    /// the walk.
    pub fn unless_removed(&self, task: &Task<'_>, errno: Errno) -> Errno {
        let on = task.on;
        if errno != Errno::NODEV || !self.was_removed(task) {
            return errno;
        }
        on.note_removed(|| {
            tracing::warn!(
                volume = on.nodes.root().volume.0,
                consequence = "its open files are stale, and its mount points are resolved anew",
                "a volume was removed while it was in use"
            );
            self.edges.iter().for_each(|edges| edges.give_way());
            self.flat.iter().for_each(|flat| flat.give_way(on));
        });
        self.walks.repeat(task.header.pid);
        Errno::STALE
    }

    fn was_removed(&self, task: &Task<'_>) -> bool {
        let on = task.on;
        // The first volume of a mount has no mount point.
        let is_below = match (&self.edges, &self.flat) {
            (Some(edges), _) => edges.is_below(),
            (None, Some(_)) => on.nodes.slot() != Slot::FIRST,
            (None, None) => false,
        };
        let asks = || on.volumes.is_removed(&task.request(), on.nodes.root().volume);
        is_below && (on.is_removed() || asks())
    }
}

/// One request in progress.
pub(crate) struct Task<'a> {
    /// The volume that the request is about.
    pub on: &'a VolumeView,
    pub mount: &'a MountShared,
    pub header: abi::InHeader,
    pub reply: Replier<'a>,
    caller: Caller,
    cancel: &'a Cancel,
    groups: &'a (dyn Fn() -> Box<[u32]> + Sync),
}

impl<'a> Task<'a> {
    pub fn new(
        mount: &'a MountShared,
        on: &'a VolumeView,
        header: abi::InHeader,
        requester: &'a dyn Requester,
        (cancel, groups): (&'a Cancel, &'a (dyn Fn() -> Box<[u32]> + Sync)),
    ) -> Self {
        let who = types::RequestIdentity::NAMED;
        let caller = Caller { uid: header.uid, gid: header.gid, groups: None, who };
        Task { on, mount, header, reply: Replier::new(&header, requester), caller, cancel, groups }
    }

    pub fn venus(&self) -> &'a Venus {
        &self.on.venus
    }

    pub fn request(&self) -> venus::RequestContext<'_> {
        venus::RequestContext {
            caller: &self.caller,
            cancel: Some(self.cancel),
            groups: Some(self.groups),
        }
    }

    /// The file that the request is about.
    pub(crate) fn fid(&self) -> Result<Fid, RequestRefusal> {
        self.fid_of(self.header.nodeid)
    }

    pub(crate) fn fid_of(&self, node: u64) -> Result<Fid, RequestRefusal> {
        self.on.nodes.fid(node).ok_or(RequestRefusal(Errno::STALE))
    }

    /// A second file of a request, which must be of the same volume.
    pub(crate) fn fid_beside(&self, node: u64) -> Result<Fid, RequestRefusal> {
        if self.on.nodes.has_number(node) {
            self.fid_of(node)
        } else {
            Err(RequestRefusal(Errno::XDEV))
        }
    }

    /// The same request, as one of another volume of the mount.
    pub fn in_volume<'b>(&'b self, on: &'b VolumeView) -> Task<'b> {
        Task { on, caller: self.caller.clone(), ..*self }
    }

    /// Whether all volumes on the way here are read-only, so that mount points prefer such.
    pub fn prefers_read_only(&self) -> bool {
        let flat =
            self.mount.flat.as_ref().is_some_and(|flat| flat.is_read_only(self.on.nodes.slot()));
        flat || self.mount.edges.as_ref().is_some_and(|edges| edges.is_read_only())
    }

    pub(crate) fn name(&self, bytes: &[u8]) -> Result<Name, RequestRefusal> {
        Ok(Name::new(bytes)?)
    }

    /// How long the kernel may cache the present answer, if it may.
    pub fn validity(&self, may: bool) -> Validity {
        if may { Validity::of(self.venus().kernel_keeps_for()) } else { Validity::NONE }
    }

    /// Takes back a reference to a node of its volume that the kernel does not get.
    pub fn forget(&self, node: u64) {
        self.mount.forget(self.on, node, 1);
    }

    /// The rights by which the kernel decides.
    pub fn access(&self) -> KernelAccess<'_> {
        KernelAccess {
            venus: self.venus(),
            volumes: &self.on.volumes,
            request: self.request(),
            shared: self.mount.agreement.is_shared(),
            devices: self.mount.devices,
        }
    }
}

/// Runs with the request as one that enters a volume.
pub(crate) fn walking<R>(task: &Task<'_>, run: impl FnOnce(&Walk<'_>) -> R) -> R {
    let (interrupts, unique) = (&task.mount.interrupts, task.header.unique);
    let asks = |venus: &Arc<Venus>, root| interrupts.asks(unique, venus, root);
    run(&Walk { request: task.request(), asks: &asks })
}
