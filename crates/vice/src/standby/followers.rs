//! The volumes elsewhere for which this server stands by: from the group's record to the takeover.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use store::{NewClone, Partition, StoreError};
use types::{
    Answer, Fault, PartitionNo, Revised, Site, SiteKind, Time, Timestamp, VolumeGroup, VolumeId,
    VolumeKind,
};

use super::follower::{Follower, Phase, Source, StandbyWork};
use super::names::surplus_name;
use super::trusted_for;
use crate::admin::Unanswered;
use crate::cell::CellLink;
use crate::files::Files;

/// The pause while removed records are swept.
const SWEPT: Duration = Duration::from_millis(100);
/// Groups that are read at a time at a start.
const GROUPS: usize = 256;

/// The driver's threads for standbys.
pub trait StandbyAgent: Send + Sync {
    /// Does the work for the standby of this tree, until it is over. Repeated calls do nothing.
    fn begin(&self, tree: VolumeId);
}

/// See the head of the file.
pub struct Followers {
    files: Arc<Files>,
    cell: Arc<CellLink>,
    /// The time of a client's lease.
    lease: Duration,
    agent: Option<Arc<dyn StandbyAgent>>,
    table: Mutex<HashMap<VolumeId, Arc<Mutex<Follower>>>>,
}

impl Followers {
    pub(crate) fn new(
        files: Arc<Files>,
        cell: Arc<CellLink>,
        lease: Duration,
        agent: Option<Arc<dyn StandbyAgent>>,
    ) -> Followers {
        Followers { files, cell, lease, agent, table: Mutex::default() }
    }

    fn partition(&self, no: PartitionNo) -> Result<&Partition, Fault> {
        self.files.volumes().partitions().get(no)
    }

    /// The partition stands by for the tree from now on, or no more: the record says which.
    pub(crate) fn stand_by(&self, no: PartitionNo, tree: VolumeId) -> Result<(), Fault> {
        self.partition(no)?.standbys().add(tree)?;
        self.begin(no, tree);
        Ok(())
    }

    fn begin(&self, no: PartitionNo, tree: VolumeId) {
        let mut table = self.table.lock();
        let is_there = table.get(&tree).is_some_and(|known| {
            // One that works at this moment is not over, or will be begun by the next call.
            known.try_lock().is_none_or(|known| !matches!(known.phase, Phase::Over))
        });
        if !is_there {
            table.insert(tree, Arc::new(Mutex::new(Follower::new(no, tree))));
        }
        drop(table);
        if let Some(agent) = &self.agent {
            agent.begin(tree);
        }
    }

    /// Begins for all trees for which a partition stands by. Call it once, at the start.
    pub fn begin_all(&self) {
        for (no, partition) in self.files.volumes().partitions().numbered() {
            match partition.standbys().list() {
                Ok(all) => all.iter().for_each(|one| self.begin(no, one.tree)),
                Err(error) => tracing::error!(%error, "the standbys of a partition are not known"),
            }
        }
    }

    /// Looks in the whole database for volumes that shall have a standby here: this server may have
    /// had one itself before it was away. Volumes here that have standbys are loaded, so that they
    /// ask whether one of these took over though no client calls. Once after the start.
    ///
    /// # Errors
    /// `CellAway`.
    pub fn find(&self) -> Result<(), Fault> {
        let Some(db) = self.cell.db()? else { return Ok(()) };
        let mut after = VolumeId(0);
        loop {
            let groups = db.groups(after, GROUPS)?;
            let Some(last) = groups.last() else { return Ok(()) };
            after = last.record.read_write;
            for group in &groups {
                self.look_at(&group.record);
                self.load(&group.record);
            }
        }
    }

    /// Loads the volume if it is here and has standbys: it is fenced then, and the database asked.
    fn load(&self, group: &VolumeGroup) {
        let is_here = group.read_write_site().is_some_and(|site| site.server == self.cell.me().id);
        if is_here
            && group.standbys().next().is_some()
            && let Err(fault) = self.files.volumes().any_volume(group.read_write)
        {
            tracing::warn!(volume = group.read_write.0, %fault, "a volume cannot be loaded");
        }
    }

    /// Stands by if the record lists this server.
    pub(crate) fn look_at(&self, group: &VolumeGroup) {
        let me = self.cell.me().id;
        let Some(site) = group.standbys().find(|site| site.server == me) else { return };
        let Some(no) = self.files.volumes().partitions().called(&site.partition) else { return };
        if let Err(fault) = self.stand_by(no, group.read_write) {
            tracing::warn!(volume = group.read_write.0, %fault, "a standby cannot begin");
        }
    }

    /// Whether this server stands by for the tree.
    pub fn has(&self, tree: VolumeId) -> bool {
        self.table.lock().contains_key(&tree)
    }

    fn get(&self, tree: VolumeId) -> Option<Arc<Mutex<Follower>>> {
        self.table.lock().get(&tree).cloned()
    }

    /// Does the next step for a standby. May wait for the disk and for the database.
    pub fn step(&self, tree: VolumeId, now: Time, wall: Timestamp) -> StandbyWork {
        let Some(known) = self.get(tree) else { return StandbyWork::Over };
        let mut follower = known.lock();
        if let Some(pause) = follower.rest() {
            return StandbyWork::Pause(pause);
        }
        let done = match &follower.phase {
            Phase::LookUp => self.look_up(&mut follower, wall),
            Phase::Begin(_) => self.begin_to_follow(&mut follower),
            Phase::Follow if follower.is_patience_over(now) => {
                // If the record cannot be changed now, the server may be there again.
                self.take_over((now, wall), &mut follower, false).or_else(|fault| {
                    tracing::debug!(tree = tree.0, %fault, "a standby cannot take over yet");
                    Ok(None)
                })
            }
            Phase::Pull(_) => self.make_room(&follower),
            _ => Ok(None),
        };
        match done {
            Ok(Some(pause)) => StandbyWork::Pause(pause),
            Ok(None) if matches!(follower.phase, Phase::Over) => {
                drop(follower);
                self.forget(tree, &known);
                StandbyWork::Over
            }
            Ok(None) => {
                follower.question(now, self.cell.me().id).unwrap_or(StandbyWork::Pause(SWEPT))
            }
            Err(fault) => {
                tracing::debug!(tree = tree.0, %fault, "a standby waits");
                follower.later();
                StandbyWork::Pause(Duration::ZERO)
            }
        }
    }

    fn forget(&self, tree: VolumeId, known: &Arc<Mutex<Follower>>) {
        let mut table = self.table.lock();
        if table.get(&tree).is_some_and(|present| Arc::ptr_eq(present, known)) {
            table.remove(&tree);
        }
    }

    /// The answer to the last question, which came at this time.
    pub fn answered(&self, tree: VolumeId, now: Time, answer: Result<Answer, Unanswered>) {
        let Some(known) = self.get(tree) else { return };
        let mut follower = known.lock();
        if let Ok(partition) = self.partition(follower.no) {
            follower.answered(now, answer, partition.standbys());
        }
    }

    /// Applies the entries of the last answer, if they wait. Call it once the question is sent.
    pub fn apply_waiting(&self, tree: VolumeId, now: Time) {
        let Some(known) = self.get(tree) else { return };
        let mut follower = known.lock();
        if let Ok(partition) = self.partition(follower.no) {
            follower.apply_waiting(now, partition.standbys());
        }
    }

    /// The last pull ended.
    pub fn pulled(&self, tree: VolumeId, result: Result<(), String>) {
        if let Some(known) = self.get(tree) {
            known.lock().pulled(result);
        }
    }

    /// # Errors
    /// `CellAway`; errors of the partition.
    fn look_up(&self, follower: &mut Follower, wall: Timestamp) -> Result<Option<Duration>, Fault> {
        let (me, tree) = (self.cell.me().id, follower.tree);
        let partition = self.partition(follower.no)?;
        let db = self.cell.db()?.ok_or(Fault::Unsupported)?;
        let group = db.group_of(tree)?.map(|group| group.record);
        let mine = |site: &&Site| {
            let no = self.files.volumes().partitions().called(&site.partition);
            site.server == me && no == Some(follower.no)
        };
        let source = group.as_ref().and_then(|group| group.read_write_site().cloned());
        let here = source.as_ref().filter(|source| source.server == me);
        if let (Some(group), Some(_)) = (&group, here) {
            return self.be_the_server(follower, group, wall);
        }
        let (Some(group), Some(source)) = (&group, source) else {
            return self.drop_standby(follower);
        };
        let Some(site) = group.standbys().find(mine) else {
            return self.drop_standby(follower);
        };
        if follower.has_lost_place {
            if site.is_in_step() {
                // The volume's server changes that. Until then the record may come to say that
                // this server took over.
                follower.later();
                return Ok(Some(Duration::ZERO));
            }
            partition.standbys().drop_applied(tree)?;
            follower.has_lost_place = false;
        }
        if partition.volumes().volume(tree)?.is_some() {
            self.put_aside(partition, group, wall)?;
        }
        partition.standbys().add(tree)?;
        let servers = db.servers()?;
        let server = servers.into_iter().find(|known| known.record.id == source.server);
        let at = server.map(|server| server.record.addresses).unwrap_or_default();
        follower.source = Some(Source { server: source.server, at, name: group.name.clone() });
        let state = partition.standbys().list()?.into_iter().find(|one| one.tree == tree);
        match state.filter(|state| state.base != 0) {
            Some(state) => follower.begin_to_follow(state.base, state.place),
            None => follower.phase = Phase::Feed,
        }
        Ok(None)
    }

    /// The record says that the volume is here: it is, or this server died before it took over.
    fn be_the_server(
        &self,
        follower: &mut Follower,
        group: &VolumeGroup,
        wall: Timestamp,
    ) -> Result<Option<Duration>, Fault> {
        let partition = self.partition(follower.no)?;
        let is_there = self.files.volumes().partitions().volume(follower.tree)?.is_some();
        if is_there {
            partition.standbys().end(follower.tree)?;
            follower.end();
            return Ok(None);
        }
        self.make_volume(follower, group, None, wall)?;
        Ok(None)
    }

    fn drop_standby(&self, follower: &mut Follower) -> Result<Option<Duration>, Fault> {
        let partition = self.partition(follower.no)?;
        partition.standbys().remove(follower.tree)?;
        self.remove_bases(partition, follower.tree, None)?;
        follower.end();
        Ok(None)
    }

    /// Removes the bases of this server's standby but that of an epoch.
    fn remove_bases(
        &self,
        partition: &Partition,
        tree: VolumeId,
        but: Option<u64>,
    ) -> Result<(), Fault> {
        let volumes = partition.volumes();
        let Some(epoch) = volumes.sealed_epochs(tree)?.pop() else { return Ok(()) };
        let Some(view) = volumes.view_of(tree, epoch)? else { return Ok(()) };
        let digits = &self.cell.me().id.to_string()[..8];
        let mark = [b".standby-", digits.as_bytes(), b"-"].concat();
        let is_base = |name: &[u8]| name.windows(mark.len()).any(|part| part == mark);
        for one in volumes.group(view)? {
            let is_old = one.kind == VolumeKind::Snapshot && Some(one.epoch) != but;
            if is_old && is_base(one.name.as_bytes()) {
                partition.remove_volume(one.id)?;
                self.files.volumes().forget(one.id);
            }
        }
        Ok(())
    }

    /// This server had the volume: what it has becomes a snapshot, since the last changes may be
    /// here alone.
    ///
    /// # Errors
    /// `Busy` while calls wait for the volume.
    fn put_aside(
        &self,
        partition: &Partition,
        group: &VolumeGroup,
        wall: Timestamp,
    ) -> Result<(), Fault> {
        let volumes = self.files.volumes();
        let tree = group.read_write;
        let volume = volumes.any_volume(tree)?;
        // The server gives the volume up first (`Feeds::settle`): calls that wait for it learn then
        // that it is elsewhere.
        if volumes.moves().while_unchanged(|waits| waits(tree)) {
            return Err(Fault::Busy);
        }
        volumes.moves().supersede(&volume);
        let db = self.cell.db()?.ok_or(Fault::Unsupported)?;
        let above = VolumeId(volumes.partitions().next_volume()?.0 - 1);
        let number = db.take_numbers(above, 1)?;
        let naming = volumes.begin_naming();
        let name = surplus_name(&group.name, wall)?;
        volumes.need_free_name(&name, VolumeKind::Snapshot)?;
        volumes.need_free_number(number)?;
        let (id, kind) = (Some(number), VolumeKind::Snapshot);
        let new = NewClone { id, name, kind, now: wall, replaces: None };
        let aside = partition.volumes().clone_volume(tree, &new)?;
        drop(naming);
        tracing::warn!(
            volume = tree.0,
            snapshot = %String::from_utf8_lossy(aside.name().as_bytes()),
            "a standby elsewhere took over; what this server had is kept as a snapshot"
        );
        partition.remove_volume(tree)?;
        volumes.forget(tree);
        volumes.moves().forget(tree);
        Ok(())
    }

    /// Drops what was applied before a base comes in.
    fn make_room(&self, follower: &Follower) -> Result<Option<Duration>, Fault> {
        let standbys = self.partition(follower.no)?.standbys();
        let state = standbys.list()?.into_iter().find(|one| one.tree == follower.tree);
        if state.is_some_and(|state| state.base != 0) {
            standbys.drop_applied(follower.tree)?;
        }
        Ok(None)
    }

    fn begin_to_follow(&self, follower: &mut Follower) -> Result<Option<Duration>, Fault> {
        let Phase::Begin(start) = &follower.phase else { return Ok(None) };
        let start = *start;
        let partition = self.partition(follower.no)?;
        match partition.standbys().begin(start.base, start.place) {
            Err(StoreError::Busy(_)) => return Ok(Some(SWEPT)),
            Err(error) => {
                tracing::warn!(tree = follower.tree.0, %error, "a base cannot be followed from");
                follower.phase = Phase::LookUp;
                return Err(error.into());
            }
            Ok(()) => {}
        }
        follower.begin_to_follow(start.epoch, start.place);
        self.remove_bases(partition, follower.tree, Some(start.epoch))?;
        Ok(None)
    }

    /// As [`types::VolumeCall::FailOver`].
    ///
    /// # Errors
    /// `NoVolume`, `Conflict`; `CellAway`.
    pub(crate) fn fail_over(
        &self,
        at: (Time, Timestamp),
        tree: VolumeId,
        force: bool,
    ) -> Result<(), Fault> {
        let known = self.get(tree).ok_or(Fault::NoVolume)?;
        let mut follower = known.lock();
        if !matches!(follower.phase, Phase::Follow) || !force && !follower.in_step {
            return Err(Fault::Conflict);
        }
        self.take_over(at, &mut follower, force)?;
        if matches!(follower.phase, Phase::Over) { Ok(()) } else { Err(Fault::Conflict) }
    }

    /// Takes over by the group's record (SB-2).
    fn take_over(
        &self,
        (now, wall): (Time, Timestamp),
        follower: &mut Follower,
        force: bool,
    ) -> Result<Option<Duration>, Fault> {
        let me = self.cell.me().id;
        follower.apply_waiting(now, self.partition(follower.no)?.standbys());
        let db = self.cell.db()?.ok_or(Fault::Unsupported)?;
        let Some(Revised { record, revision }) = db.group_of(follower.tree)? else {
            return Err(Fault::NoVolume);
        };
        let former = follower.source.as_ref().map(|source| source.server);
        let is_there = record.read_write_site().is_some_and(|site| Some(site.server) == former);
        let mine = record.standbys().find(|site| site.server == me);
        let may = |site: &Site| is_there && (force || site.is_in_step());
        let Some(mine) = mine.filter(|site| may(site)).cloned() else {
            // It was taken out of step, or another one took over.
            (follower.in_step, follower.phase) = (false, Phase::LookUp);
            return Ok(None);
        };
        let changed = taken_over(&record, &mine);
        db.put_group(&changed, revision)?;
        tracing::warn!(
            volume = follower.tree.0,
            former = ?former,
            force,
            "this server takes over as a standby of the volume"
        );
        let received = follower.received.or(force.then_some(now));
        let alone_at = received.map(|received| received + trusted_for(self.lease));
        self.make_volume(follower, &changed, alone_at, wall)?;
        Ok(None)
    }

    /// The record says that the volume is here: makes it. It serves once no client can trust the
    /// former server any more (SB-4), or as after any takeover.
    fn make_volume(
        &self,
        follower: &mut Follower,
        group: &VolumeGroup,
        alone_at: Option<Time>,
        wall: Timestamp,
    ) -> Result<(), Fault> {
        let volumes = self.files.volumes();
        let tree = follower.tree;
        let partition = self.partition(follower.no)?;
        // Should this fail the follower begins with a look-up, and goes on from the record.
        follower.phase = Phase::LookUp;
        let naming = volumes.begin_naming();
        partition.standbys().take_over(tree, &group.name, wall)?;
        drop(naming);
        volumes.moves().take_over(tree);
        if let Some(at) = alone_at {
            volumes.moves().be_alone_at(tree, at);
        }
        let volume = volumes.any_volume(tree)?;
        assert!(!volume.serves(), "VO-6: {tree:?} serves before the former server cannot");
        follower.end();
        self.remove_bases(partition, tree, None)
    }
}

/// The record after a standby took over: the former site is a standby of the same kind.
fn taken_over(group: &VolumeGroup, by: &Site) -> VolumeGroup {
    let mut changed = group.clone();
    changed.sites.retain(|site| site.server != by.server || !site.kind.is_standby());
    for site in &mut changed.sites {
        if site.kind == SiteKind::ReadWrite {
            (site.kind, site.epoch) = (by.kind, 0);
        } else if site.kind.is_standby() {
            site.epoch = 0;
        }
    }
    changed.sites.insert(0, Site { kind: SiteKind::ReadWrite, epoch: 0, ..by.clone() });
    changed
}
