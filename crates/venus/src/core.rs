//! A volume's components, wired together, with the operations that need several of them. The order
//! of the locks is at the head of `lib.rs`.

use std::sync::{Arc, Weak};

use client::Remote;

use crate::base::{VenusConfig, Workers};
use crate::cache::{Cache, Siblings};
use crate::calls::{Calls, Flusher, Journal, Sender, Space, Unstable};
use crate::data::{MountShared, VolumeLegacy};
use crate::delegation::{AccessRights, Changes, Delegations};
use crate::names::{Identity, Names};
use crate::ops::{FileLocks, Handles, OpenDirs, VolumeControl, Xattrs};
use crate::passthrough::{Blanks, CacheBodies, Loans, Passthrough, Preallocated};
use crate::reading::{Directories, ReadAhead, Reader, Snapshots};
use crate::session::{Chores, Ground, Server};
use crate::writeback::Writeback;

/// See the head of the file.
pub(crate) struct Core {
    pub ground: Ground,
    /// The volume is read-only, so locks exclude only this client's applications from each other:
    /// the client grants them itself.
    pub own_locks: bool,
    pub legacy: Option<Arc<VolumeLegacy>>,
    pub identity: Arc<Identity>,
    pub siblings: Arc<Siblings>,
    pub journal: Arc<Journal>,
    pub handles: Arc<Handles>,
    pub xattrs: Xattrs,
    pub control: VolumeControl,
    pub locks: FileLocks,
    pub dirs: OpenDirs,
    pub cache: Arc<Cache>,
    pub unstable: Arc<Unstable>,
    pub flusher: Arc<Flusher>,
    pub calls: Arc<Calls>,
    pub sender: Arc<Sender>,
    pub directories: Arc<Directories>,
    pub rights: Arc<AccessRights>,
    pub blanks: Arc<Blanks>,
    pub preallocated: Arc<Preallocated>,
    pub cache_bodies: Arc<CacheBodies>,
    pub passthrough: Arc<Passthrough>,
    pub writeback: Arc<Writeback>,
    pub reader: Arc<Reader>,
    pub snapshots: Arc<Snapshots>,
    pub changes: Arc<Changes>,
}

impl Core {
    /// Opens the disk cache if necessary.
    ///
    /// # Errors
    /// Why the disk cache cannot be opened.
    pub fn new(
        common: &Arc<MountShared>,
        remote: Arc<dyn Remote>,
        config: VenusConfig,
        own_locks: bool,
        legacy: Option<Arc<VolumeLegacy>>,
    ) -> std::io::Result<Self> {
        if !remote.passes_descriptors() {
            common.open_disk(&config)?;
        }
        let journal = Arc::new(Journal::default());
        let ground = Ground {
            server: Arc::new(Server::new(remote)),
            names: Arc::new(Names::new(&config, common, journal.counter())),
            kernel: Arc::default(),
            workers: Arc::new(Workers::new(&config, &common.threads)),
            chores: Arc::new(Chores::new(config.dirty_age)),
            config: Arc::new(config),
        };
        let identity = Arc::new(Identity::new(ground.config.tokens.clone()));
        let space = Arc::<Space>::default();
        let siblings = Arc::new(Siblings::new(&common.siblings));
        let handles = Arc::new(Handles::new(legacy.as_ref()));
        let cache = Arc::new(Cache::new(&ground, &siblings, common));
        let unstable = Arc::new(Unstable::new(&ground, common));
        let flusher = Arc::new(Flusher::new(&ground, &cache, &unstable, &journal, &identity));
        let calls = Arc::new(Calls::new(&ground, &unstable, &journal, &flusher));
        let sender = Arc::new(Sender::new(&ground, &cache, &unstable, &flusher, &calls, &space));
        let read_ahead = Arc::new(ReadAhead::new(&ground, &cache, &unstable, &calls));
        let directories =
            Arc::new(Directories::new(&ground, &cache, &siblings, &unstable, &journal, &calls));
        let rights = Arc::new(AccessRights::new(&ground, &identity, &calls));
        let blanks = Arc::new(Blanks::new(&ground, &cache));
        let delegations =
            Arc::new(Delegations::new(&ground, &flusher, &calls, &directories, &rights, &blanks));
        let loans = Arc::new(Loans::new(&ground, &cache, &calls, &blanks, legacy.as_ref()));
        let preallocated =
            Arc::new(Preallocated::new(&ground, &cache, &calls, &space, &blanks, &loans));
        let cache_bodies = Arc::new(CacheBodies::new(
            &ground,
            &cache,
            &unstable,
            &flusher,
            &calls,
            &sender,
            &read_ahead,
        ));
        let passthrough =
            Arc::new(Passthrough::new(&ground, &directories, &loans, &preallocated, &cache_bodies));
        let writeback = Arc::new(Writeback::new(
            &ground,
            &cache,
            &unstable,
            &flusher,
            &calls,
            &space,
            &sender,
            &loans,
            &preallocated,
            &cache_bodies,
            legacy.as_ref(),
        ));
        let reader = Arc::new(Reader::new(
            &ground,
            &flusher,
            &cache,
            &journal,
            &calls,
            &read_ahead,
            &directories,
        ));
        let snapshots = Arc::new(Snapshots::new(&ground, &calls, own_locks));
        let changes = Arc::new(Changes::new(
            &ground,
            &writeback,
            &cache,
            &flusher,
            &calls,
            &delegations,
            &preallocated,
        ));
        let xattrs = Xattrs::new(&ground, &calls, &writeback);
        let control =
            VolumeControl::new(&ground, &siblings, &cache, &flusher, &calls, &space, &writeback);
        let locks = FileLocks::new(&handles, &calls, &writeback, own_locks, legacy.as_ref());
        let dirs = OpenDirs::new(
            &handles,
            &unstable,
            &flusher,
            &calls,
            &directories,
            &delegations,
            &snapshots,
        );
        let duties: Weak<Writeback> = Arc::downgrade(&writeback);
        ground.chores.set_duties(duties);
        Ok(Core {
            xattrs,
            control,
            locks,
            dirs,
            ground,
            own_locks,
            legacy,
            identity,
            siblings,
            journal,
            handles,
            cache,
            unstable,
            flusher,
            calls,
            sender,
            directories,
            rights,
            blanks,
            preallocated,
            cache_bodies,
            passthrough,
            writeback,
            reader,
            snapshots,
            changes,
        })
    }
}
