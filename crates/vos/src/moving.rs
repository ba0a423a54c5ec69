//! Moves a volume to another server, or to another partition of its server, while clients use it.
//!
//! Steps of a move from A to B: (1) the group is claimed; (2) B fetches the last release, if there
//! is one, with the group also backup volume and snapshots, and then snapshots of A, each since the
//! one before, until little is left; (3) A *freezes* the volume: clients hand in their changes, new
//! changes wait; B fetches the last snapshot; (4) B makes it a read-write volume that is
//! *arriving*, and seals it; (5) **the database records B as the site**: from here on B has the
//! volume; (6) A removes it, and then B serves it; A's other volumes of the group are removed.
//!
//! An interruption before (5) moves nothing: A serves again when the freeze ends, and the next
//! attempt begins with what B has. After (5) the next attempt finds B in the database and does step
//! 6. B does not serve an arriving volume before the database names B, and A asks the database
//! about a frozen one; so at most one of them takes changes.
//!
//! From or to a server of AFS it is moved by AFS's protocol (`afs/moving.rs`).
//!
//! Between two partitions of one server the steps are the same. The server copies locally instead
//! of fetching (`vice/admin/beside.rs`): each volume gets a *twin* with the same number, which
//! serves no calls before the old one is removed. Read-only sites of that server move too, since a
//! server has a tree on one partition.

use std::cell::Cell;
use std::time::{Duration, Instant};

use types::{
    Beside, Fault, Finish, PartitionNo, Revised, ServerId, ServerKind, Site, SiteKind, VolumeCall,
    VolumeGroup, VolumeId, VolumeInfo, VolumeKind, WhichVolume,
};

use crate::afs::{self, AfsWay, is_afs};
use crate::beside;
use crate::claim::{Claim, is_claimed_for};
use crate::find::of_kind;
use crate::job::is_half_restored;
use crate::own_volumes::{MOVING, all_of, have, is_left, named, remove_at};
use crate::pulling::{PullOrder, pull, wait_idle};
use crate::servers::{need_one_partition, partition_no};
use crate::standby::out_of_step;
use crate::{Job, VosError, examine};

/// Longest freeze at A; at its end A asks the database which server has the volume.
const FREEZE_MAX: Duration = Duration::from_secs(10);
/// How long a move waits for files that are open for writing on A's machine, and the interval at
/// which it asks A.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
/// A move freezes the volume when about this much is left, if it gets that far.
const REMAINDER_BYTES: u64 = 1 << 20;
/// Limit of snapshots before the freeze: clients that write faster than B fetches are frozen
/// longer.
const ROUNDS_MAX: u32 = 8;

/// Figures of a finished move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Snapshots that were fetched before the freeze.
    pub rounds: u32,
    /// Bytes that were fetched before the freeze.
    pub bytes: u64,
    /// Bytes that were fetched during the freeze.
    pub held_bytes: u64,
    /// How long changes waited: from the freeze until the new server served.
    pub held: Duration,
}

/// Moves the read-write volume of a group. Its backup volume and its snapshots are not moved but
/// removed.
///
/// # Errors
/// `Busy`, `Unfit`; errors of the servers and of the database. Before step 5 everything is as
/// before; after it, repeating the move continues it.
pub fn move_volume(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    to: ServerId,
    partition: &str,
) -> Result<Moved, VosError> {
    move_with(job, group, to, partition, false)
}

/// Moves the read-write volume with the backup volume and the snapshots.
///
/// # Errors
/// As [`move_volume`].
pub fn move_group(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    to: ServerId,
    partition: &str,
) -> Result<Moved, VosError> {
    move_with(job, group, to, partition, true)
}

fn move_with(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    to: ServerId,
    partition: &str,
    with_group: bool,
) -> Result<Moved, VosError> {
    let no = partition_no(job.servers, to, partition)?;
    let here = group.record.read_write_site().cloned();
    let from = here.ok_or_else(|| VosError::Unfit("it has no read-write volume".to_owned()))?;
    let operation = format!("move to {to} {partition}");
    let resumed = is_claimed_for(&group.record, &operation);
    let is_there = from.server == to && from.partition == partition;
    // The record does not tell the source of a move that is to be completed.
    let by_afs = format!("move by AFS to {to} {partition}");
    let is_afs_resumed = is_claimed_for(&group.record, &by_afs);
    if is_there && !resumed && !is_afs_resumed {
        return Err(VosError::Unfit("it is there".to_owned()));
    }
    if is_afs_resumed || is_afs(job.servers, from.server)? || is_afs(job.servers, to)? {
        if group.record.standbys().next().is_some() {
            return Err(VosError::Unfit(
                "it has standbys, which cannot follow a volume to or from a server of AFS: 'vos \
                 remstandby' removes them"
                    .to_owned(),
            ));
        }
        if with_group {
            job.note("its backup volume and its snapshots are not moved to or from AFS");
        }
        need_one_partition(job.servers, &group.record, to, partition)?;
        let to = Site { server: to, partition: partition.to_owned(), ..from.clone() };
        let claim = Claim::of(job, group, &by_afs)?;
        let way = AfsWay { from, to, is_resumed: is_afs_resumed };
        let held = afs::move_volume(job, claim, way)?;
        return Ok(Moved { held, ..Moved::default() });
    }
    if from.server != to {
        if group.record.standbys().any(|site| site.server == to) {
            let name = job.servers.name(to);
            return Err(VosError::Unfit(format!(
                "{name} is a standby of it: 'vos failover -toserver {name}' brings it there \
                 without a copy"
            )));
        }
        need_one_partition(job.servers, &group.record, to, partition)?;
    }
    let mut claim = Claim::of(job, group, &operation)?;
    if is_there {
        return complete(job, claim, None, (to, no), &|| {}).map(|()| Moved::default());
    }
    if !with_group {
        report_removed(job, &claim.group, from.server)?;
    }
    let site =
        Site { server: to, partition: partition.to_owned(), kind: SiteKind::ReadWrite, epoch: 0 };
    let way = Way { job, group: claim.group.clone(), from: from.server, to, site, no, with_group };
    let served = Cell::new(Duration::ZERO);
    match way.run(&mut claim) {
        Ok((moved, since)) => {
            complete(job, claim, Some(from.server), (to, no), &|| served.set(since.elapsed()))?;
            Ok(Moved { held: served.get(), ..moved })
        }
        Err(error) => Err(way.undo(claim, error)),
    }
}

/// Reports the volumes that the move will remove.
fn report_removed(job: &Job<'_>, group: &VolumeGroup, from: ServerId) -> Result<(), VosError> {
    let there = examine(job.servers, from, WhichVolume::Id(group.read_write))?.unwrap_or_default();
    for volume in
        there.iter().filter(|one| matches!(one.kind, VolumeKind::Backup | VolumeKind::Snapshot))
    {
        let name = String::from_utf8_lossy(volume.name.as_bytes()).into_owned();
        if !MOVING.iter().any(|ending| name.ends_with(ending)) {
            job.note(format_args!("{name} is not moved"));
        }
    }
    Ok(())
}

/// Source and destination of a move.
struct Way<'j, 'a> {
    job: &'j Job<'a>,
    group: VolumeGroup,
    from: ServerId,
    to: ServerId,
    /// The site that the database will record.
    site: Site,
    no: PartitionNo,
    with_group: bool,
}

impl Way<'_, '_> {
    /// Whether the move is between partitions of one server.
    fn is_beside(&self) -> bool {
        self.from == self.to
    }

    /// Steps 2 to 5.
    fn run(&self, claim: &mut Claim<'_, '_>) -> Result<(Moved, Instant), VosError> {
        let (job, id) = (self.job, self.group.read_write);
        if !job.dry_run {
            // Data that an interrupted attempt fetched does not match the current state.
            wait_idle(job.servers, self.to, id)?;
            if !self.is_beside() {
                remove_left(job, self.to, id)?;
                // Removes twins left by a move between partitions whose claim was removed.
                for other in beside::partitions_but(job.servers, self.to, self.no)? {
                    beside::remove_all(job.servers, self.to, id, other)?;
                }
            }
        }
        let mut moved = Moved { bytes: self.fetch_others()?, ..Moved::default() };
        loop {
            let fetched = self.fetch(moved.rounds)?;
            moved.rounds += 1;
            moved.bytes += fetched;
            if fetched <= REMAINDER_BYTES || moved.rounds == ROUNDS_MAX || job.dry_run {
                break;
            }
        }
        let since = self.freeze()?;
        moved.held_bytes = self.fetch_last(moved.rounds)?;
        self.seal_arrived(moved.rounds)?;
        let says = claim.switch("it is there from now on", |group| {
            group.sites.retain(|site| site.kind != SiteKind::ReadWrite);
            group.sites.insert(0, self.site.clone());
            for beside in
                group.sites.iter_mut().filter(|site| self.is_beside() && site.server == self.to)
            {
                beside.partition.clone_from(&self.site.partition);
            }
            group.backup = group.backup.filter(|_| self.with_group);
            out_of_step(group);
        });
        match says {
            // Only the database shows whether the record was written.
            Err(error) if !error.is_refusal() => {
                let seen = job.servers.db().group_of(id)?;
                let there =
                    seen.is_some_and(|seen| seen.record.read_write_site() == Some(&self.site));
                if there { Ok((moved, since)) } else { Err(error) }
            }
            says => {
                says?;
                let site = claim.group.read_write_site();
                assert_eq!(site, Some(&self.site), "VO-6: the record names the new site alone");
                Ok((moved, since))
            }
        }
    }

    /// Step 3; returns when it began. A does not freeze a volume while a kernel writes bodies of
    /// it, and stops lending bodies for some time when it is asked to: files that a build has open
    /// are closed within moments.
    fn freeze(&self) -> Result<Instant, VosError> {
        let (job, id) = (self.job, self.group.read_write);
        let millis = u32::try_from(FREEZE_MAX.as_millis()).unwrap_or(u32::MAX);
        let (mut since, mut waited) = (Instant::now(), Duration::ZERO);
        job.step(format_args!("{}: freeze it", job.servers.name(self.from)), || {
            loop {
                since = Instant::now();
                match job.servers.call(self.from, VolumeCall::Hold { id, millis }) {
                    Err(error) if error.fault() == Some(Fault::Busy) && waited < OPEN_WITHIN => {}
                    answer => return answer,
                }
                if waited.is_zero() {
                    job.note(
                        "it waits for files that are open for writing on the server's machine",
                    );
                }
                job.servers.pause(PAUSE);
                waited += PAUSE;
            }
        })?;
        Ok(since)
    }

    /// Fetches the release, which the next release starts from at any server; and the group, if it
    /// moves too. A tree must receive its epochs in their order.
    fn fetch_others(&self) -> Result<u64, VosError> {
        let volumes = examine(self.job.servers, self.from, WhichVolume::Id(self.group.read_write))?
            .unwrap_or_default();
        let mut others: Vec<VolumeInfo> =
            volumes.into_iter().filter(|volume| self.is_moved_along(volume)).collect();
        others.sort_by_key(|volume| volume.epoch);
        let mut bytes = 0;
        for volume in others {
            let there = if self.is_beside() {
                None
            } else {
                have(self.job.servers, self.to, &volume.name)?
            };
            if there.is_some_and(|there| there.epoch == volume.epoch) {
                continue;
            }
            let VolumeInfo { id, name, kind, .. } = volume;
            let called = String::from_utf8_lossy(name.as_bytes()).into_owned();
            let finish = Finish::View { id: Some(id), name, kind, replace: true };
            match self.pull(&format!("fetch {called}"), id, finish) {
                Ok(more) => bytes += more,
                // The other server has a newer epoch, from a release.
                Err(VosError::Unfit(why)) if kind != VolumeKind::ReadOnly => {
                    self.job.note(format_args!("{called} is not moved: {why}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn is_moved_along(&self, volume: &VolumeInfo) -> bool {
        match volume.kind {
            VolumeKind::ReadWrite => false,
            VolumeKind::ReadOnly => self.group.read_only == Some(volume.id),
            VolumeKind::Backup | VolumeKind::Snapshot => {
                self.with_group
                    && !MOVING
                        .iter()
                        .any(|ending| volume.name.as_bytes().ends_with(ending.as_bytes()))
            }
        }
    }

    /// Fetches one snapshot.
    fn fetch(&self, round: u32) -> Result<u64, VosError> {
        let Some(sealed) = self.seal(round)? else { return Ok(0) };
        let finish =
            Finish::View { id: None, name: sealed.name, kind: VolumeKind::Snapshot, replace: true };
        self.pull("fetch it", sealed.id, finish)
    }

    /// Fetches the last snapshot, which becomes the volume.
    fn fetch_last(&self, round: u32) -> Result<u64, VosError> {
        let Some(sealed) = self.seal(round)? else { return Ok(0) };
        let there = examine(self.job.servers, self.from, WhichVolume::Id(self.group.read_write))?
            .unwrap_or_default();
        let head = of_kind(&there, VolumeKind::ReadWrite)
            .ok_or_else(|| VosError::Odd(self.job.servers.name(self.from)))?;
        let finish = Finish::ReadWrite {
            name: head.name.clone(),
            quota_bytes: head.quota_bytes,
            quota_files: head.quota_files,
            created: head.created,
            arriving: true,
            updated: Some(head.updated),
        };
        self.pull("fetch the last of it", sealed.id, finish)
    }

    /// Seals the received state as A did, before any client can write at B: B's changes belong to
    /// an epoch that A never had. Otherwise A's last snapshot, if it stays there, and B's next one
    /// would have one number and different content.
    fn seal_arrived(&self, round: u32) -> Result<(), VosError> {
        if self.is_beside() {
            // The server has sealed it.
            return Ok(());
        }
        let ending = MOVING.get(round as usize % 2).copied().unwrap_or_default();
        let (of, name) = (self.group.read_write, named(&self.group.name, ending)?);
        let call =
            VolumeCall::Clone { id: None, of, name, kind: VolumeKind::Snapshot, replace: true };
        self.job.call_one("seal what arrived", self.to, call).map(drop)
    }

    fn seal(&self, round: u32) -> Result<Option<VolumeInfo>, VosError> {
        let ending = MOVING.get(round as usize % 2).copied().unwrap_or_default();
        let call = VolumeCall::Clone {
            id: None,
            of: self.group.read_write,
            name: named(&self.group.name, ending)?,
            kind: VolumeKind::Snapshot,
            replace: true,
        };
        self.job.call_one("seal its current state", self.from, call)
    }

    fn pull(&self, what: &str, id: VolumeId, finish: Finish) -> Result<u64, VosError> {
        let Way { job, from, to, no, .. } = *self;
        if self.is_beside() {
            let arrives = matches!(finish, Finish::ReadWrite { .. });
            let how = if arrives { Beside::Arrive } else { Beside::Show };
            let what = format!("{}: {what} to {}", job.servers.name(to), self.site.partition);
            return Ok(job.step(what, || beside::copy(job, to, id, no, how))?.unwrap_or(0));
        }
        let order = PullOrder {
            by: to,
            partition: Some(no),
            from,
            id,
            tree: self.group.read_write,
            finish,
        };
        let task = job.step(format_args!("{}: {what}", job.servers.name(to)), || {
            pull(job.servers, order, job.tell)
        })?;
        Ok(task.map_or(0, |task| task.bytes))
    }

    /// Undoes the move: both servers remove its snapshots. If a server does not answer, the claim
    /// stays, and the next attempt of the same move begins with what the servers have.
    fn undo(&self, claim: Claim<'_, '_>, error: VosError) -> VosError {
        let (job, id) = (self.job, self.group.read_write);
        let seen = job.servers.db().group_of(id);
        let is_here = |seen: &Revised<VolumeGroup>| {
            seen.record.read_write_site() == self.group.read_write_site()
        };
        // With an unknown site nothing is undone: the freeze ends by itself, and B does not serve
        // what arrived.
        if !matches!(&seen, Ok(Some(seen)) if is_here(seen)) {
            return error;
        }
        let undone = wait_idle(job.servers, self.to, id)
            .and_then(|()| self.remove_arrived())
            .and_then(|()| self.end_freeze())
            .and_then(|()| remove_snapshots(job, &self.group, self.from))
            .and_then(|()| {
                if self.is_beside() { Ok(()) } else { remove_snapshots(job, &self.group, self.to) }
            });
        match undone {
            Ok(()) => claim.give_up(error),
            Err(also) => {
                job.note(format_args!("not all was undone: {also}"));
                error
            }
        }
    }

    fn remove_arrived(&self) -> Result<(), VosError> {
        let id = self.group.read_write;
        if self.is_beside() {
            return beside::remove_all(self.job.servers, self.to, id, self.no);
        }
        remove_left(self.job, self.to, id)
    }

    /// Ends the freeze at A. A missing volume is no error, whatever the database records.
    fn end_freeze(&self) -> Result<(), VosError> {
        let id = self.group.read_write;
        let call = VolumeCall::Hold { id, millis: 0 };
        match self.job.call("end the freeze", self.from, call) {
            Err(VosError::Refused { fault: Fault::NoVolume, .. }) => Ok(()),
            // A move cannot have frozen it.
            Err(error) if is_half_restored(self.job.servers, self.from, id, &error) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// Step 6: the database names B.
fn complete(
    job: &Job<'_>,
    claim: Claim<'_, '_>,
    from: Option<ServerId>,
    (to, no): (ServerId, PartitionNo),
    serves: &dyn Fn(),
) -> Result<(), VosError> {
    let (id, group) = (claim.group.read_write, claim.group.clone());
    let beside = if from.is_none_or(|from| from == to) {
        beside::partitions_but(job.servers, to, no)?
    } else {
        Vec::new()
    };
    let behind = match from {
        Some(from) => Vec::from_iter(Some(from).filter(|from| *from != to)),
        // The source is not recorded: every other server is asked.
        None => job
            .servers
            .db()
            .servers()?
            .into_iter()
            .map(|seen| seen.record)
            .filter(|one| one.kind() == ServerKind::Rialto && one.id != to)
            .map(|one| one.id)
            .collect(),
    };
    let mut left: Vec<(ServerId, Vec<VolumeInfo>)> = Vec::new();
    for server in behind {
        left.push((server, all_of(job, &group, server)?));
    }
    let has_it = |volumes: &[VolumeInfo]| volumes.iter().any(|volume| volume.id == id);
    for (server, _) in left.iter().filter(|(_, volumes)| has_it(volumes)) {
        remove_at(job, *server, id)?;
    }
    for partition in &beside {
        let what = format!("{}: remove its volumes on another partition", job.servers.name(to));
        job.step(what, || beside::remove_first(job.servers, to, id, *partition))?;
    }
    job.call("serve it", to, VolumeCall::Serve { id })?;
    serves();
    for partition in beside.into_iter().filter(|_| !job.dry_run) {
        beside::remove_all(job.servers, to, id, partition)?;
    }
    // No client waits for the rest.
    for (server, volumes) in left {
        let is_site =
            group.sites.iter().any(|site| site.server == server && site.kind == SiteKind::ReadOnly);
        let stays =
            |volume: &VolumeInfo| volume.id == id || volume.kind == VolumeKind::ReadOnly && is_site;
        for volume in volumes.iter().filter(|volume| !stays(volume)) {
            remove_at(job, server, volume.id)?;
        }
    }
    remove_snapshots(job, &group, to)?;
    claim.done("the move is complete", |_| {}).map(drop)
}

fn remove_snapshots(job: &Job<'_>, group: &VolumeGroup, server: ServerId) -> Result<(), VosError> {
    for ending in MOVING {
        if let Some(there) = have(job.servers, server, &named(&group.name, ending)?)? {
            remove_at(job, server, there.id)?;
        }
    }
    Ok(())
}

/// Removes what a stopped move left at a server that is not the volume's site.
fn remove_left(job: &Job<'_>, server: ServerId, id: VolumeId) -> Result<(), VosError> {
    let there = examine(job.servers, server, WhichVolume::Id(id))?.unwrap_or_default();
    if there.iter().any(|one| is_left(one, id)) { remove_at(job, server, id) } else { Ok(()) }
}
