//! The standbys of a group (`docs/spec/standby.md`): their sites, and how far they are.
//!
//! A standby is entered, or removed, by one change of the record; then its server is told, which
//! compares with the record and does the rest by itself, also after an interruption. So there is no
//! claim: what is missing after the change of the record, the same command does again.

use std::time::Duration;

use celldb::{CellDb, CellError};
use types::{
    Answer, Fault, LevelAct, PartitionNo, Revised, ServerId, Site, SiteKind, StandbyInfo, TaskInfo,
    TaskState, VolumeCall, VolumeGroup, VolumeId,
};

use crate::claim::need_free;
use crate::pulling::addresses;
use crate::servers::need_one_partition;
use crate::{Job, JobEvent, Servers, VosError, partition_no};

/// The interval between two questions how far a standby is.
const PAUSE: Duration = Duration::from_millis(500);
/// A server that has not answered for this long is away.
const SILENT: Duration = Duration::from_secs(120);
/// So often another writer may be faster. Servers change the record of a group with standbys when
/// one gets into step, and when it falls out.
const AGAIN_MAX: u32 = 16;

/// In the report of a partition on whose format volumes may have or be standbys.
const HAS_STANDBYS: &str = "\"standbys\":true";

/// The change of the record that [`add_standby`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyAdded {
    /// It is a new site.
    New,
    /// It was a standby of the other kind.
    OtherKind,
    /// It was one already.
    Nothing,
}

/// Makes the server a standby of the group, or changes the kind of a standby. Its server brings a
/// copy, and follows; [`wait_in_step`] waits for that.
///
/// # Errors
/// `Unfit` if it cannot be one; `Busy`; errors of the database and of the server. Repeating it
/// finishes it.
pub fn add_standby(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    server: ServerId,
    partition: &str,
    kind: SiteKind,
) -> Result<StandbyAdded, VosError> {
    debug_assert!(kind.is_standby());
    let no = partition_no(job.servers, server, partition)?;
    let tree = group.record.read_write;
    need_source(job, &group.record)?;
    need_level(job.servers.db())?;
    need_format(job.servers, server, partition)?;
    if let Some(home) = group.record.read_write_site() {
        need_format(job.servers, home.server, &home.partition)?;
    }
    let name = job.servers.name(server);
    let mut added = StandbyAdded::Nothing;
    let what = format!("database: {name} {partition} is a standby");
    change_record(job, &what, group, &mut |group| {
        added = enter(job.servers, group, server, partition, kind)?;
        Ok(added != StandbyAdded::Nothing)
    })?;
    tell(job, server, no, tree)?;
    Ok(added)
}

/// Enters the site, if it may be one.
fn enter(
    servers: &dyn Servers,
    group: &mut VolumeGroup,
    server: ServerId,
    partition: &str,
    kind: SiteKind,
) -> Result<StandbyAdded, VosError> {
    let unfit = |why: &str| Err(VosError::Unfit(format!("{} {why}", servers.name(server))));
    need_one_partition(servers, group, server, partition)?;
    for site in group.sites.iter_mut().filter(|site| site.server == server) {
        match site.kind {
            SiteKind::ReadWrite => {
                return unfit("has the read-write volume: name another server");
            }
            SiteKind::ReadOnly => {}
            known if known == kind => return Ok(StandbyAdded::Nothing),
            // Out of step until it has caught up in its new kind (SB-1).
            _ => {
                (site.kind, site.epoch) = (kind, 0);
                return Ok(StandbyAdded::OtherKind);
            }
        }
    }
    if group.sites.iter().any(|site| site.server == server) {
        return unfit("is a read-only site of it: name another server, or 'vos remove' that first");
    }
    group.sites.push(Site { server, partition: partition.to_owned(), kind, epoch: 0 });
    Ok(StandbyAdded::New)
}

/// Checks that the cell's level has standbys (VE-5); the change of the record is checked too.
fn need_level(db: &dyn CellDb) -> Result<(), VosError> {
    let level = match db.access().level(&LevelAct::Ask) {
        Ok(found) => found.level,
        // The server that has the database is older than levels.
        Err(CellError::Away(Fault::Unsupported)) => 1,
        Err(error) => return Err(error.into()),
    };
    Ok(celldb::need_standbys_level(level)?)
}

/// Checks that the format of a partition has the records of standbys (VE-6).
fn need_format(servers: &dyn Servers, server: ServerId, partition: &str) -> Result<(), VosError> {
    let no = partition_no(servers, server, partition)?;
    let text = match servers.call(server, VolumeCall::Format { partition: no, raise: false }) {
        Ok(Answer::Report(text)) => text,
        Ok(_) => return Err(VosError::Odd(servers.name(server))),
        Err(VosError::Refused { fault: Fault::Unsupported, server }) => {
            return Err(VosError::Unfit(format!(
                "{server} runs a version that has no standbys: it needs a newer one"
            )));
        }
        Err(error) => return Err(error),
    };
    if text.contains(HAS_STANDBYS) {
        return Ok(());
    }
    let name = servers.name(server);
    let word = partition.trim_start_matches('/');
    Err(VosError::Unfit(format!(
        "{name} {partition} has a format without standbys: 'rialto vos upgradepartition {name} \
         {word}' raises it"
    )))
}

/// Checks that there is something to follow, and that a standby can reach it.
fn need_source(job: &Job<'_>, group: &VolumeGroup) -> Result<(), VosError> {
    match group.read_write_site() {
        Some(site) => addresses(job.servers, site.server).map(drop),
        None => Err(VosError::Unfit("it has no read-write volume".to_owned())),
    }
}

/// Takes a standby out of the record, and tells its server, which drops its copy. A server that is
/// away does so when it is back. Returns true if it was a standby. `partition` is needed only for
/// one that the record does not have any more.
///
/// # Errors
/// `Busy`; the database's error. Repeating it finishes it.
pub fn remove_standby(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    server: ServerId,
    partition: Option<&str>,
) -> Result<bool, VosError> {
    let tree = group.record.read_write;
    let known = group.record.standbys().find(|site| site.server == server).cloned();
    let name = job.servers.name(server);
    if let (Some(known), Some(named)) = (&known, partition)
        && known.partition != named
    {
        return Err(VosError::Unfit(format!("{name} has its standby on {}", known.partition)));
    }
    if let Some(known) = &known {
        let what = format!("database: {name} {} is no standby any more", known.partition);
        change_record(job, &what, group, &mut |group| {
            let before = group.sites.len();
            group.sites.retain(|site| !(site.server == server && site.kind.is_standby()));
            Ok(group.sites.len() < before)
        })?;
    }
    let partition = known.as_ref().map(|site| site.partition.as_str()).or(partition);
    tell_or_note(job, server, partition, tree);
    Ok(known.is_some())
}

/// Tells a server that it is no standby any more, if it answers. Without a partition: for each of
/// them.
pub(crate) fn tell_or_note(
    job: &Job<'_>,
    server: ServerId,
    partition: Option<&str>,
    tree: VolumeId,
) {
    let told = partitions(job.servers, server, partition)
        .and_then(|all| all.into_iter().try_for_each(|no| tell(job, server, no, tree)));
    if let Err(error) = told {
        job.note(format_args!("{error}; it drops its copy when it is back"));
    }
}

fn partitions(
    servers: &dyn Servers,
    server: ServerId,
    partition: Option<&str>,
) -> Result<Vec<PartitionNo>, VosError> {
    if let Some(partition) = partition {
        return Ok(vec![partition_no(servers, server, partition)?]);
    }
    match servers.call(server, VolumeCall::Partitions)? {
        Answer::Partitions(all) => Ok(all.into_iter().map(|one| one.no).collect()),
        _ => Err(VosError::Odd(servers.name(server))),
    }
}

fn tell(
    job: &Job<'_>,
    server: ServerId,
    partition: PartitionNo,
    tree: VolumeId,
) -> Result<(), VosError> {
    let call = VolumeCall::StandBy { partition, tree };
    match job.call("compare with the record of the volume", server, call) {
        Err(VosError::Refused { fault: Fault::Unsupported, server }) => Err(VosError::Unfit(
            format!("{server} runs a version that has no standbys: it needs a newer one"),
        )),
        // It stands by, and clients trust what they had from it before for a while.
        Err(VosError::Refused { fault: Fault::Busy, .. }) => Ok(()),
        told => told.map(drop),
    }
}

/// Changes the record of a group, from what it is by then: `change` returns whether there is
/// something to change.
///
/// # Errors
/// `Busy` if an operation has claimed the group; errors of `change` and of the database.
fn change_record(
    job: &Job<'_>,
    what: &str,
    seen: Revised<VolumeGroup>,
    change: &mut dyn FnMut(&mut VolumeGroup) -> Result<bool, VosError>,
) -> Result<(), VosError> {
    let db = job.servers.db();
    let mut seen = seen;
    let mut attempts = 0;
    loop {
        need_free(job, &seen.record, None)?;
        let mut record = seen.record.clone();
        if !change(&mut record)? {
            return Ok(());
        }
        let put = job.step(what, || Ok(db.put_group(&record, seen.revision)));
        let Some(Err(error)) = put? else { return Ok(()) };
        if !matches!(error, CellError::Conflict { .. }) || attempts == AGAIN_MAX {
            return Err(error.into());
        }
        attempts += 1;
        seen = db.group_of(record.read_write)?.ok_or(VosError::NoVolume)?;
        // The answer to a first attempt was lost.
        if seen.record == record {
            return Ok(());
        }
    }
}

/// The standbys of a group as the volume's server sees them.
///
/// # Errors
/// `Unfit` if the server knows no standbys; otherwise the server's error.
pub fn standbys(
    servers: &dyn Servers,
    server: ServerId,
    id: VolumeId,
) -> Result<Vec<StandbyInfo>, VosError> {
    match servers.call(server, VolumeCall::Standbys { id }) {
        Ok(Answer::Standbys(all)) => Ok(all),
        Ok(_) => Err(VosError::Odd(servers.name(server))),
        Err(VosError::Refused { fault: Fault::Unsupported, server }) => Err(VosError::Unfit(
            format!("{server} runs a version that has no standbys: it needs a newer one"),
        )),
        Err(error) => Err(error),
    }
}

/// Waits until the database lists the standby as one in step, and reports how far it is.
///
/// # Errors
/// `Unfit` if it is no standby any more; errors of the database, and of servers that do not answer
/// for two minutes. The standby goes on by itself.
pub fn wait_in_step(job: &Job<'_>, id: VolumeId, server: ServerId) -> Result<(), VosError> {
    if job.dry_run {
        return Ok(());
    }
    let (mut silent, mut why) = (Duration::ZERO, String::new());
    loop {
        let group = job.servers.db().group_of(id)?.ok_or(VosError::NoVolume)?.record;
        let site = group.standbys().find(|site| site.server == server);
        let Some(site) = site else {
            let name = job.servers.name(server);
            return Err(VosError::Unfit(format!("{name} is no standby of it any more")));
        };
        if site.is_in_step() {
            return Ok(());
        }
        match look(job, &group, server, &mut why) {
            Ok(()) => silent = Duration::ZERO,
            Err(error @ VosError::Away { .. }) if silent >= SILENT => return Err(error),
            Err(VosError::Away { .. }) => silent += PAUSE,
            // The volume is moved, or its server starts.
            Err(VosError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        job.servers.pause(PAUSE);
    }
}

/// Reports how far a standby is; why a copy failed, each reason once.
fn look(
    job: &Job<'_>,
    group: &VolumeGroup,
    server: ServerId,
    why: &mut String,
) -> Result<(), VosError> {
    let name = job.servers.name(server);
    let Answer::Tasks(tasks) = job.servers.call(server, VolumeCall::Tasks)? else {
        return Err(VosError::Odd(name));
    };
    let of_tree = |task: &&TaskInfo| task.tree == group.read_write;
    match tasks.iter().filter(of_tree).max_by_key(|task| task.number) {
        Some(task) if task.state == TaskState::Runs => {
            job.progress(&name, task.bytes, task.total_bytes);
            return Ok(());
        }
        Some(task) if task.state == TaskState::Failed && task.text != *why => {
            why.clone_from(&task.text);
            job.note(format_args!("{name} tries again: {why}"));
        }
        _ => {}
    }
    let Some(source) = group.read_write_site() else { return Ok(()) };
    let all = standbys(job.servers, source.server, group.read_write)?;
    if let Some(one) = all.iter().find(|one| one.server == server) {
        (job.tell)(JobEvent::Behind {
            server: &name,
            changes: one.behind,
            bytes: one.behind_bytes,
        });
    }
    Ok(())
}

/// The read-write volume is at another place from now on, or is another one: its standbys have to
/// catch up with that, and none may take over before (SB-2). One at that place is none any more.
pub(crate) fn out_of_step(group: &mut VolumeGroup) {
    let server = group.read_write_site().map(|site| site.server);
    group.sites.retain(|site| !site.kind.is_standby() || Some(site.server) != server);
    group.sites.iter_mut().filter(|site| site.kind.is_standby()).for_each(|site| site.epoch = 0);
}
