//! A volume goes to another server, or to another partition of its server, while people use it.
//!
//! Steps of a move from A to B: (1) the group is claimed; (2) B fetches the last release, if there
//! is one, with the group also backup volume and snapshots, and then snapshots of A, each since the
//! one before, until little is left; (3) A *holds* the volume: clients hand in, changes wait; the
//! last snapshot is fetched; (4) B makes it a read-write volume that is *arriving*, and seals what
//! arrived; (5) **the database says that the site is B**: from here on it is there; (6) A removes
//! it, and then B serves it; what else A had of the group goes.
//!
//! Whoever is stopped before (5) has moved nothing: A serves, as soon as the hold is over, and the
//! next attempt begins with what B has. Whoever is stopped behind it finds that the database says
//! B, and does step 6. A volume that arrives serves nobody before the database says that it is
//! there, and one that is held asks it; so there is never more than one that takes changes.
//!
//! Between two partitions of one server the steps are the same. The server copies by itself what it
//! would fetch (`vice/volumes/beside.rs`): each volume gets a *twin* with the same number, which
//! nobody asks before the other one left. Read-only sites of that server go along, since a server
//! has a tree on one partition.

use std::cell::Cell;
use std::time::{Duration, Instant};

use types::{
    Beside, Fault, Finish, PartitionNo, Revised, ServerId, Site, SiteKind, VolumeCall, VolumeGroup,
    VolumeId, VolumeInfo, VolumeKind, VolumeState, WhichVolume,
};

use crate::beside;
use crate::claim::Claim;
use crate::find::of_kind;
use crate::pulling::{PullOrder, pull, wait_idle};
use crate::release::{have, named};
use crate::remove::remove_at;
use crate::servers::partition_no;
use crate::sites::need_one_partition;
use crate::{Job, Servers, VosError, examine};

/// How long A holds the volume at most; then it asks the database whose it is.
const HOLD: Duration = Duration::from_secs(10);
/// How long it is waited for files that are open for writing on A's machine, and how often A is
/// asked meanwhile.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
/// What is left for the hold is at most about so much, if that can be had.
const LITTLE_BYTES: u64 = 1 << 20;
/// Snapshots before the hold at most: who writes faster than we fetch is held longer.
const ROUNDS_MAX: u32 = 8;
/// Two names by turns, because the next difference is read from the one before.
pub(crate) const MOVING: [&str; 2] = [".moving", ".moving2"];

/// How a move ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Snapshots that were fetched before the hold.
    pub rounds: u32,
    /// Bytes that were fetched before the hold.
    pub bytes: u64,
    /// And during it.
    pub held_bytes: u64,
    /// How long changes waited: from the hold to the moment when the new server served.
    pub held: Duration,
}

/// Moves the read-write volume of a group. Its backup volume and its snapshots stay behind and are
/// removed.
///
/// # Errors
/// `Busy`, `Unfit`; the servers' and the database's: before step 5 everything is as it was, and
/// behind it the same move goes on.
pub fn move_volume(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    to: ServerId,
    partition: &str,
) -> Result<Moved, VosError> {
    move_with(job, group, to, partition, false)
}

/// The same, with the backup volume and the snapshots.
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
    let resumed = group.record.busy.as_ref().is_some_and(|busy| busy.operation == operation);
    let is_there = from.server == to && from.partition == partition;
    if is_there && !resumed {
        return Err(VosError::Unfit("it is there".to_owned()));
    }
    if from.server != to {
        need_one_partition(job.servers, &group.record, to, partition)?;
    }
    let mut claim = Claim::of(job, group, &operation)?;
    if is_there {
        return arrive(job, claim, None, (to, no), &|| {}).map(|()| Moved::default());
    }
    if !with_group {
        tell_what_stays(job, &claim.group, from.server)?;
    }
    let site =
        Site { server: to, partition: partition.to_owned(), kind: SiteKind::ReadWrite, epoch: 0 };
    let way = Way { job, group: claim.group.clone(), from: from.server, to, site, no, with_group };
    let served = Cell::new(Duration::ZERO);
    match way.go(&mut claim) {
        Ok((moved, since)) => {
            arrive(job, claim, Some(from.server), (to, no), &|| served.set(since.elapsed()))?;
            Ok(Moved { held: served.get(), ..moved })
        }
        Err(error) => Err(way.back(claim, error)),
    }
}

/// What is removed with a move.
fn tell_what_stays(job: &Job<'_>, group: &VolumeGroup, from: ServerId) -> Result<(), VosError> {
    let there = examine(job.servers, from, WhichVolume::Id(group.read_write))?.unwrap_or_default();
    for volume in
        there.iter().filter(|one| matches!(one.kind, VolumeKind::Backup | VolumeKind::Snapshot))
    {
        let name = String::from_utf8_lossy(volume.name.as_bytes()).into_owned();
        if !MOVING.iter().any(|ending| name.ends_with(ending)) {
            job.note(format_args!("{name} does not come along"));
        }
    }
    Ok(())
}

/// From where to where.
struct Way<'j, 'a> {
    job: &'j Job<'a>,
    group: VolumeGroup,
    from: ServerId,
    to: ServerId,
    /// What the database is to say.
    site: Site,
    no: PartitionNo,
    with_group: bool,
}

impl Way<'_, '_> {
    /// Between partitions of one server.
    fn is_beside(&self) -> bool {
        self.from == self.to
    }

    /// Steps 2 to 5.
    fn go(&self, claim: &mut Claim<'_, '_>) -> Result<(Moved, Instant), VosError> {
        let (job, id) = (self.job, self.group.read_write);
        if !job.dry_run {
            // What arrived at an attempt that was stopped is not what it would be now.
            wait_idle(job.servers, self.to, id)?;
            if !self.is_beside() {
                remove_arriving(job, self.to, id)?;
                // What a move between its partitions left there whose claim was taken off.
                for other in beside::partitions_but(job.servers, self.to, self.no)? {
                    beside::leave(job.servers, self.to, id, other)?;
                }
            }
        }
        let mut moved = Moved { bytes: self.fetch_others()?, ..Moved::default() };
        loop {
            let fetched = self.fetch(moved.rounds)?;
            moved.rounds += 1;
            moved.bytes += fetched;
            if fetched <= LITTLE_BYTES || moved.rounds == ROUNDS_MAX || job.dry_run {
                break;
            }
        }
        let since = self.hold()?;
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
        });
        match says {
            // Whether it was written is for the database to say.
            Err(error) if !error.is_refusal() => {
                let seen = job.servers.db().group_of(id)?;
                let there =
                    seen.is_some_and(|seen| seen.record.read_write_site() == Some(&self.site));
                if there { Ok((moved, since)) } else { Err(error) }
            }
            says => says.map(|()| (moved, since)),
        }
    }

    /// Step 3; when it began. A is not made to hold a volume while a kernel writes bodies of it,
    /// and lends no more of them for some time when it is asked to: those that a build has open are
    /// closed within moments.
    fn hold(&self) -> Result<Instant, VosError> {
        let (job, id) = (self.job, self.group.read_write);
        let millis = u32::try_from(HOLD.as_millis()).unwrap_or(u32::MAX);
        let (mut since, mut waited) = (Instant::now(), Duration::ZERO);
        job.step(format_args!("{}: hold it", job.servers.name(self.from)), || {
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

    /// What was released is the base of the next release, wherever that comes from; and the group,
    /// if it comes along. A tree takes its epochs in their order.
    fn fetch_others(&self) -> Result<u64, VosError> {
        let volumes = examine(self.job.servers, self.from, WhichVolume::Id(self.group.read_write))?
            .unwrap_or_default();
        let mut others: Vec<VolumeInfo> =
            volumes.into_iter().filter(|volume| self.comes_along(volume)).collect();
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
                // There is something newer at the other server, of a release.
                Err(VosError::Unfit(why)) if kind != VolumeKind::ReadOnly => {
                    self.job.note(format_args!("{called} does not come along: {why}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn comes_along(&self, volume: &VolumeInfo) -> bool {
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

    /// One snapshot.
    fn fetch(&self, round: u32) -> Result<u64, VosError> {
        let Some(sealed) = self.seal(round)? else { return Ok(0) };
        let finish =
            Finish::View { id: None, name: sealed.name, kind: VolumeKind::Snapshot, replace: true };
        self.pull("fetch it", sealed.id, finish)
    }

    /// The last snapshot, which becomes the volume.
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

    /// What B writes belongs to an epoch that A never had: what came in is sealed as at A, before
    /// anybody can write to it. Otherwise A's last snapshot, if it is left there, and B's next one
    /// would have one number and hold different things.
    fn seal_arrived(&self, round: u32) -> Result<(), VosError> {
        if self.is_beside() {
            // The server has done that.
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
        self.job.call_one("seal what it holds now", self.from, call)
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

    /// Undoes everything: neither server keeps a snapshot of the move. If a server does not answer,
    /// the claim stays, and the next attempt of the same move begins with what the servers have.
    fn back(&self, claim: Claim<'_, '_>, error: VosError) -> VosError {
        let (job, id) = (self.job, self.group.read_write);
        let seen = job.servers.db().group_of(id);
        let is_here = |seen: &Revised<VolumeGroup>| {
            seen.record.read_write_site() == self.group.read_write_site()
        };
        // Who does not know does nothing: the hold ends by itself, and nobody serves what arrived.
        if !matches!(&seen, Ok(Some(seen)) if is_here(seen)) {
            return error;
        }
        let undone = wait_idle(job.servers, self.to, id)
            .and_then(|()| self.remove_arrived())
            .and_then(|()| self.let_go())
            .and_then(|()| remove_snapshots(job, &self.group, self.from))
            .and_then(|()| {
                if self.is_beside() { Ok(()) } else { remove_snapshots(job, &self.group, self.to) }
            });
        match undone {
            Ok(()) => claim.give_up(error),
            Err(also) => {
                job.note(format_args!("not all was taken back: {also}"));
                error
            }
        }
    }

    fn remove_arrived(&self) -> Result<(), VosError> {
        let id = self.group.read_write;
        if self.is_beside() {
            return beside::leave(self.job.servers, self.to, id, self.no);
        }
        remove_arriving(self.job, self.to, id)
    }

    /// A volume that is not there, whatever the database says, holds nobody up.
    fn let_go(&self) -> Result<(), VosError> {
        let call = VolumeCall::Hold { id: self.group.read_write, millis: 0 };
        match self.job.call("hold it no longer", self.from, call) {
            Err(VosError::Refused { fault: Fault::NoVolume, .. }) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// Step 6: the database says B.
fn arrive(
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
        // Who it came from is not recorded: every other server is asked.
        None => job
            .servers
            .db()
            .servers()?
            .into_iter()
            .map(|seen| seen.record.id)
            .filter(|one| *one != to)
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
        let what = format!("{}: what another partition has of it leaves", job.servers.name(to));
        job.step(what, || beside::leave_first(job.servers, to, id, *partition))?;
    }
    job.call("serve it", to, VolumeCall::Serve { id })?;
    serves();
    for partition in beside.into_iter().filter(|_| !job.dry_run) {
        beside::leave(job.servers, to, id, partition)?;
    }
    // Nobody waits for the rest.
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
    claim.done("the move is through", |_| {}).map(drop)
}

/// What a server has of the group, whichever of it is left.
fn all_of(
    job: &Job<'_>,
    group: &VolumeGroup,
    server: ServerId,
) -> Result<Vec<VolumeInfo>, VosError> {
    let mut which = vec![WhichVolume::Id(group.read_write)];
    for ending in [MOVING[0], MOVING[1], ".backup", ".readonly"] {
        which.push(WhichVolume::Name(named(&group.name, ending)?));
    }
    for one in which {
        if let Some(volumes) = examine(job.servers, server, one)? {
            return Ok(volumes);
        }
    }
    Ok(Vec::new())
}

fn remove_snapshots(job: &Job<'_>, group: &VolumeGroup, server: ServerId) -> Result<(), VosError> {
    for ending in MOVING {
        if let Some(there) = have(job.servers, server, &named(&group.name, ending)?)? {
            remove_at(job, server, there.id)?;
        }
    }
    Ok(())
}

fn remove_arriving(job: &Job<'_>, server: ServerId, id: VolumeId) -> Result<(), VosError> {
    let there = examine(job.servers, server, WhichVolume::Id(id))?.unwrap_or_default();
    let arriving = there.iter().any(|one| one.id == id && one.state == VolumeState::Arriving);
    if arriving { remove_at(job, server, id) } else { Ok(()) }
}

/// Removes a volume that still arrives at a server, because a move was stopped before it was
/// decided and its claim was taken off: it has the volume's number there, and nothing of the tree
/// can come in. Only for the owner of a claim: the leader of that move cannot decide it any more,
/// because the record was written since.
///
/// # Errors
/// The server's and the database's.
pub(crate) fn remove_undecided(
    servers: &dyn Servers,
    group: &VolumeGroup,
    server: ServerId,
    here: &[VolumeInfo],
) -> Result<(), VosError> {
    let waits = |one: &VolumeInfo| one.id == group.read_write && one.state == VolumeState::Arriving;
    let is_its_site = group.read_write_site().is_some_and(|site| site.server == server);
    if is_its_site || !here.iter().any(waits) {
        return Ok(());
    }
    wait_idle(servers, server, group.read_write)?;
    let names = MOVING.iter().map(|ending| named(&group.name, ending));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let is_snapshot = |one: &VolumeInfo| one.kind == VolumeKind::Snapshot;
    let left = |one: &&VolumeInfo| waits(one) || is_snapshot(one) && names.contains(&one.name);
    for one in here.iter().filter(left) {
        match servers.call(server, VolumeCall::Remove { id: one.id }) {
            Ok(_) | Err(VosError::Refused { fault: Fault::NoVolume, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
