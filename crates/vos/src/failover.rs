//! A standby takes over on an administrator's order (`vos failover`).
//!
//! If the volume's server answers: (1) it *freezes* the volume; (2) the standby applies the rest;
//! (3) **the standby's server makes itself the read-write site** in the database
//! ([`VolumeCall::FailOver`]), and has all of it on disk; (4) the former server gives the volume up
//! as it finds in the database that it is a standby now, and answers when no client trusts it any
//! more; (5) the new server lets the volume serve. If clients have locks in the volume, or a server
//! does not answer, the new server waits for as long as clients may trust the former one, and then
//! lets the volume serve by itself.
//!
//! The leader changes no record, so an interruption leaves nothing behind: before (3) the freeze
//! ends by itself, and after it the servers go on.

use std::time::{Duration, Instant};

use types::{
    Fault, Revised, ServerId, Site, SiteKind, StandbyInfo, VolumeCall, VolumeGroup, VolumeId,
    WhichVolume,
};

use crate::claim::need_free;
use crate::standby::standbys;
use crate::take_over::wait_until_it_serves;
use crate::{Job, JobEvent, VosError, examine, partition_no};

/// The longest freeze at the former server.
const FREEZE_MAX: Duration = Duration::from_secs(10);
/// How long the standby may take for the rest; the freeze must last until its server has answered.
const CATCH_UP: Duration = Duration::from_secs(7);
/// How long it waits for files that are open for writing on the former server's machine.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A finished failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedOver {
    /// The former server.
    pub from: Option<ServerId>,
    /// The server that has the volume now.
    pub to: ServerId,
    /// The former server answered, so that nothing is lost.
    pub was_alive: bool,
    /// How long changes waited: from the freeze until the new server served.
    pub held: Duration,
}

/// Makes a standby the read-write site. `to`: its server; `None`: the one that is best. `force`:
/// one too that is not in step, and lacks the newest changes.
///
/// # Errors
/// `Unfit` if no standby can take over; `Busy`; errors of the servers and of the database.
/// Repeating it continues it.
pub fn fail_over(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    to: Option<ServerId>,
    force: bool,
) -> Result<FailedOver, VosError> {
    let (record, began) = (group.record, Instant::now());
    let id = record.read_write;
    let from = record.read_write_site().map(|site| site.server);
    if let Some(there) = is_over(job, &record, to)? {
        serve(job, there, id)?;
        let held = began.elapsed();
        return Ok(FailedOver { from: None, to: there, was_alive: true, held });
    }
    need_free(job, &record, None)?;
    let seen = from.map(|from| standbys(job.servers, from, id));
    let alive = match seen.transpose() {
        Ok(seen) => seen,
        Err(error @ (VosError::Away { .. } | VosError::Refused { .. })) => {
            job.note(format_args!("the volume's server does not take part: {error}"));
            None
        }
        Err(error) => return Err(error),
    };
    let site = choose(job, &record, to, force)?;
    let call = VolumeCall::FailOver { id, force };
    let (Some(seen), Some(from)) = (&alive, from) else {
        need_in_step(job, &site, None, force)?;
        order(job, &site, call)?;
        serve(job, site.server, id)?;
        let held = began.elapsed();
        return Ok(FailedOver { from, to: site.server, was_alive: false, held });
    };
    let its = seen.iter().find(|one| one.server == site.server);
    need_in_step(job, &site, its, force)?;
    let there = record.read_write_site().map(|site| site.partition.clone()).unwrap_or_default();
    let there = partition_no(job.servers, from, &there)?;
    let since = freeze(job, from, id)?;
    let done = catch_up(job, from, id, &site, force).and_then(|()| order(job, &site, call));
    if let Err(error) = done {
        let _ = job.call("end the freeze", from, VolumeCall::Hold { id, millis: 0 });
        return Err(error);
    }
    let give_up = VolumeCall::StandBy { partition: there, tree: id };
    let given_up = job
        .call("give it up", from, give_up)
        .and_then(|_| job.call("serve it", site.server, VolumeCall::Serve { id }));
    if let Err(error) = given_up {
        job.note(format_args!("clients may trust the former server for a while: {error}"));
    }
    serve(job, site.server, id)?;
    Ok(FailedOver { from: Some(from), to: site.server, was_alive: true, held: since.elapsed() })
}

/// The server to which an interrupted failover has brought the volume.
fn is_over(
    job: &Job<'_>,
    group: &VolumeGroup,
    to: Option<ServerId>,
) -> Result<Option<ServerId>, VosError> {
    let Some(site) = group.read_write_site() else { return Ok(None) };
    if to.is_some_and(|to| to != site.server) {
        return Ok(None);
    }
    let id = group.read_write;
    let arrives = match examine(job.servers, site.server, WhichVolume::Id(id)) {
        Ok(there) => {
            there.unwrap_or_default().first().is_some_and(|one| one.id == id && one.state.comes())
        }
        Err(VosError::Away { .. }) if to.is_none() => false,
        Err(error) => return Err(error),
    };
    Ok((arrives || to.is_some()).then_some(site.server))
}

/// The standby that takes over: one in step before others, and then one without loss.
fn choose(
    job: &Job<'_>,
    group: &VolumeGroup,
    to: Option<ServerId>,
    force: bool,
) -> Result<Site, VosError> {
    if let Some(to) = to {
        return group.standbys().find(|site| site.server == to).cloned().ok_or_else(|| {
            VosError::Unfit(format!(
                "{} is no standby of it: 'vos examine' shows them, 'vos addstandby' makes one",
                job.servers.name(to)
            ))
        });
    }
    let mut all: Vec<&Site> = group.standbys().collect();
    all.sort_by_key(|site| (!site.is_in_step(), site.kind != SiteKind::Standby));
    match all[..] {
        [] => Err(VosError::Unfit(
            "it has no standby: 'vos addstandby' makes one, 'vos convertROtoRW' takes a released \
             copy"
                .to_owned(),
        )),
        [best, ..] if best.is_in_step() || all.len() == 1 || !force => Ok(best.clone()),
        _ => Err(VosError::Unfit(
            "none of its standbys is in step: name with -toserver whose state it is to have"
                .to_owned(),
        )),
    }
}

/// Checks that the standby may take over. `seen`: as the volume's server sees it.
fn need_in_step(
    job: &Job<'_>,
    site: &Site,
    seen: Option<&StandbyInfo>,
    force: bool,
) -> Result<(), VosError> {
    if force || site.is_in_step() {
        return Ok(());
    }
    let name = job.servers.name(site.server);
    let lost = match seen {
        Some(one) => format!(
            "it lacks {} changes ({} bytes). 'vos addstandby' with the same words waits until it \
             has caught up",
            one.behind, one.behind_bytes
        ),
        None => "it lacks what was changed since it fell out of step, or has no copy yet, and the \
                 volume's server does not answer. Bring that server back"
            .to_owned(),
    };
    Err(VosError::Unfit(format!("{name} is not in step: {lost}; -force takes over without that")))
}

/// Step 1; returns when it began.
fn freeze(job: &Job<'_>, from: ServerId, id: VolumeId) -> Result<Instant, VosError> {
    let millis = u32::try_from(FREEZE_MAX.as_millis()).unwrap_or(u32::MAX);
    let (mut since, mut waited) = (Instant::now(), Duration::ZERO);
    job.step(format_args!("{}: freeze it", job.servers.name(from)), || {
        loop {
            since = Instant::now();
            match job.servers.call(from, VolumeCall::Hold { id, millis }) {
                Err(error) if error.fault() == Some(Fault::Busy) && waited < OPEN_WITHIN => {}
                answer => return answer,
            }
            job.servers.pause(PAUSE);
            waited += PAUSE;
        }
    })?;
    Ok(since)
}

/// Step 2.
fn catch_up(
    job: &Job<'_>,
    from: ServerId,
    id: VolumeId,
    site: &Site,
    force: bool,
) -> Result<(), VosError> {
    let name = job.servers.name(site.server);
    let caught_up = || {
        let mut waited = Duration::ZERO;
        loop {
            let all = standbys(job.servers, from, id)?;
            let one = all.iter().find(|one| one.server == site.server);
            let behind = one.map_or(u64::MAX, |one| one.behind);
            match one {
                Some(one) if one.behind == 0 && (one.in_step || force) => return Ok(()),
                _ if waited < CATCH_UP => {}
                _ if force => return Ok(()),
                _ => {
                    return Err(VosError::Unfit(format!(
                        "{name} did not catch up within {} s: nothing was changed, try again",
                        CATCH_UP.as_secs()
                    )));
                }
            }
            if let Some(one) = one {
                let (changes, bytes) = (behind, one.behind_bytes);
                (job.tell)(JobEvent::Behind { server: &name, changes, bytes });
            }
            job.servers.pause(PAUSE);
            waited += PAUSE;
        }
    };
    job.step(format_args!("{name}: apply the rest of it"), caught_up).map(drop)
}

/// Step 3.
fn order(job: &Job<'_>, site: &Site, call: VolumeCall) -> Result<(), VosError> {
    let VolumeCall::FailOver { id, .. } = call else { unreachable!("the caller made it") };
    match job.call("take over", site.server, call) {
        Ok(_) => Ok(()),
        Err(VosError::Refused { server, fault: Fault::Conflict }) => Err(VosError::Unfit(format!(
            "{server} is not in step, as the database says now: -force takes over without what it \
             lacks"
        ))),
        Err(error) => {
            // The answer was lost, or the server could not let it serve yet: the record decides.
            let seen = job.servers.db().group_of(id)?;
            let is_there = seen.is_some_and(|seen| {
                seen.record.read_write_site().is_some_and(|rw| rw.server == site.server)
            });
            if is_there { Ok(()) } else { Err(error) }
        }
    }
}

/// Step 5.
fn serve(job: &Job<'_>, server: ServerId, id: VolumeId) -> Result<(), VosError> {
    let what = format!(
        "{}: serve it, once no client trusts the former server any more",
        job.servers.name(server)
    );
    job.step(what, || wait_until_it_serves(job, server, id, PAUSE)).map(drop)
}
