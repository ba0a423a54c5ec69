//! A volume's components, wired together, with the operations that need several of them. The order
//! of the locks is at the head of `lib.rs`.

use std::sync::{Arc, Weak};

use client::Remote;

use crate::base::config::VenusConfig;
use crate::base::pool::Workers;
use crate::cache::cache::Cache;
use crate::cache::siblings::Siblings;
use crate::data::mount_shared::MountShared;
use crate::delegation::changes::Changes;
use crate::delegation::delegations::Delegations;
use crate::delegation::rights::RightsCache;
use crate::names::identity::Identity;
use crate::names::names::Names;
use crate::ops::handles::Handles;
use crate::passthrough::blanks::Blanks;
use crate::passthrough::cache_bodies::CacheBodies;
use crate::passthrough::loans::Loans;
use crate::passthrough::passthrough::Passthrough;
use crate::passthrough::preallocated::Preallocated;
use crate::prefetch::directories::Directories;
use crate::prefetch::read_ahead::ReadAhead;
use crate::reading::reader::Reader;
use crate::session::ground::Ground;
use crate::session::server::Server;
use crate::volumes::snapshots::Snapshots;
use crate::writeback::calls::Calls;
use crate::writeback::flusher::Flusher;
use crate::writeback::free_space::Space;
use crate::writeback::journal::Journal;
use crate::writeback::sender::Sender;
use crate::writeback::unstable::Unstable;
use crate::writeback::writeback::Writeback;

/// See the head of the file.
pub(crate) struct Core {
    pub ground: Ground,
    /// The volume is read-only, so locks exclude only this client's applications from each other:
    /// the client grants them itself.
    pub own_locks: bool,
    pub identity: Arc<Identity>,
    pub space: Arc<Space>,
    pub siblings: Arc<Siblings>,
    pub journal: Arc<Journal>,
    pub handles: Handles,
    pub cache: Arc<Cache>,
    pub unstable: Arc<Unstable>,
    pub flusher: Arc<Flusher>,
    pub calls: Arc<Calls>,
    pub sender: Arc<Sender>,
    pub directories: Arc<Directories>,
    pub rights: Arc<RightsCache>,
    pub blanks: Arc<Blanks>,
    pub delegations: Arc<Delegations>,
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
    ) -> std::io::Result<Self> {
        if !remote.passes_descriptors() {
            common.open_disk(&config)?;
        }
        let journal = Arc::new(Journal::default());
        let ground = Ground {
            server: Arc::new(Server::new(remote)),
            names: Arc::new(Names::new(&config, common, journal.counter())),
            kernel: Arc::default(),
            workers: Arc::new(Workers::new(&config)),
            chores: Arc::default(),
            config: Arc::new(config),
        };
        let identity = Arc::new(Identity::new(ground.config.tokens.clone()));
        let space = Arc::<Space>::default();
        let siblings = Arc::new(Siblings::new(&common.siblings));
        let cache = Arc::new(Cache::new(&ground, &siblings, common));
        let unstable = Arc::new(Unstable::new(&ground, common));
        let flusher = Arc::new(Flusher::new(&ground, &cache, &unstable, &journal, &identity));
        let calls = Arc::new(Calls::new(&ground, &unstable, &journal, &flusher));
        let sender = Arc::new(Sender::new(&ground, &cache, &unstable, &flusher, &calls, &space));
        let read_ahead = Arc::new(ReadAhead::new(&ground, &cache, &unstable, &calls));
        let directories =
            Arc::new(Directories::new(&ground, &cache, &siblings, &unstable, &journal, &calls));
        let rights = Arc::new(RightsCache::new(&ground, &calls));
        let blanks = Arc::new(Blanks::new(&ground, &cache));
        let delegations =
            Arc::new(Delegations::new(&ground, &flusher, &calls, &directories, &rights, &blanks));
        let loans = Arc::new(Loans::new(&ground, &cache, &calls, &blanks));
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
        let changes =
            Arc::new(Changes::new(&ground, &cache, &flusher, &calls, &delegations, &preallocated));
        let duties: Weak<Writeback> = Arc::downgrade(&writeback);
        ground.chores.set_duties(duties);
        let handles = Handles::default();
        Ok(Core {
            ground,
            own_locks,
            identity,
            space,
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
            delegations,
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
