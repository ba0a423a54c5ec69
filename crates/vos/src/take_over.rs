//! A copy of a volume becomes the read-write volume, because the former one is lost with its server
//! (`vos convertROtoRW`).
//!
//! Steps: (1) the group is claimed; (2) the server makes the read-write volume of the newest state
//! that it has, *arriving*; (3) **the database records that server as the site**, and the claim
//! ends; (4) the volume serves by itself once no client can trust the lost server any more, and the
//! leader waits for that.
//!
//! An interruption before (3) changes nothing for clients, and the next attempt goes on. The lost
//! server, if it comes back, asks the database before it serves the volume
//! (`vice/admin/freeze.rs`). A server that answers and has the volume is not lost: its volume is
//! moved.

use std::time::Duration;

use types::{
    Fault, PartitionNo, Revised, ServerId, Site, SiteKind, VolumeCall, VolumeGroup, VolumeId,
    VolumeInfo, VolumeKind, WhichVolume,
};

use crate::claim::Claim;
use crate::own_volumes::{named, remove_at};
use crate::standby::out_of_step;
use crate::{Job, VosError, examine, partition_no};

const PAUSE: Duration = Duration::from_millis(500);
/// A server that has not let the volume serve by then never will: a freeze, a lease and a margin
/// are half of it (`vice/admin/freeze.rs`).
const SERVES_WITHIN: Duration = Duration::from_secs(60);

/// Figures of a takeover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// The former server.
    pub from: Option<ServerId>,
    /// The state that the volume begins with: a volume of a sealed epoch.
    pub copy: VolumeInfo,
}

/// Makes the read-write volume of the server's copy. `accepts_older`: also of one that lacks the
/// last release.
///
/// # Errors
/// `Unfit` if the server has no copy, or an older one, or the volume is not lost; `Busy`; errors of
/// the server and of the database. Repeating it continues it.
pub fn take_over(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    server: ServerId,
    accepts_older: bool,
) -> Result<TakenOver, VosError> {
    let record = &group.record;
    let site = read_only_site(job, record, server)?;
    let no = partition_no(job.servers, server, &site.partition)?;
    let copies = Copies::of(job, record, server, no)?;
    let from = record.read_write_site().map(|site| site.server);
    if from == Some(server) && !copies.is_arriving {
        let name = job.servers.name(server);
        return Err(VosError::Unfit(format!("{name} has the read-write volume")));
    }
    need_lost(job, record, from.filter(|from| *from != server))?;
    if copies.newest.epoch < record.released_epoch && !accepts_older {
        let name = job.servers.name(server);
        return Err(VosError::Unfit(format!(
            "{name} does not have the last release: take another site ('vos examine' shows them), \
             or say -force to take what {name} has"
        )));
    }
    let taken = TakenOver { from, copy: copies.newest.clone() };
    let (id, name) = (record.read_write, record.name.clone());
    let above = record.released_epoch;
    let mut claim = Claim::of(job, group, &format!("convertROtoRW {server}"))?;
    if !copies.is_arriving {
        let call = VolumeCall::TakeOver { copy: copies.newest.id, name, above };
        match job.call_one("make the read-write volume of its copy", server, call) {
            Err(error) if error.is_refusal() => return Err(claim.give_up(error)),
            made => drop(made?),
        }
    }
    let is_there = Site { server, partition: site.partition, kind: SiteKind::ReadWrite, epoch: 0 };
    if claim.group.read_write_site() != Some(&is_there) {
        let switched = claim.switch("the read-write volume is there from now on", |group| {
            group.sites.retain(|site| site.kind != SiteKind::ReadWrite);
            group.sites.insert(0, is_there.clone());
            out_of_step(group);
        });
        match switched {
            Err(error) if error.is_refusal() => {
                remove_at(job, server, id)?;
                return Err(claim.give_up(error));
            }
            switched => switched?,
        }
    }
    claim.done("the claim ends", |_| {})?;
    job.step("wait until no client can trust the lost server any more", || {
        wait_until_it_serves(job, server, id, PAUSE)
    })?;
    Ok(taken)
}

/// The volumes of a group at a server.
struct Copies {
    /// The newest volume of a sealed epoch.
    newest: VolumeInfo,
    /// A takeover was begun.
    is_arriving: bool,
}

impl Copies {
    fn of(
        job: &Job<'_>,
        group: &VolumeGroup,
        server: ServerId,
        no: PartitionNo,
    ) -> Result<Copies, VosError> {
        let name = named(&group.name, ".readonly")?;
        let there = examine(job.servers, server, WhichVolume::Name(name))?.unwrap_or_default();
        let of_tree = |one: &&VolumeInfo| one.tree == group.read_write && one.partition == no;
        let newest = there
            .iter()
            .filter(of_tree)
            .filter(|one| one.kind != VolumeKind::ReadWrite)
            .max_by_key(|one| one.epoch)
            .cloned();
        let Some(newest) = newest else {
            let name = job.servers.name(server);
            return Err(VosError::Unfit(format!("nothing was released to {name} yet")));
        };
        let is_arriving = there.iter().any(|one| one.id == group.read_write && one.state.comes());
        Ok(Copies { newest, is_arriving })
    }
}

fn read_only_site(job: &Job<'_>, group: &VolumeGroup, server: ServerId) -> Result<Site, VosError> {
    let is_it = |site: &&Site| site.server == server && site.kind == SiteKind::ReadOnly;
    group.sites.iter().find(is_it).cloned().ok_or_else(|| {
        VosError::Unfit(format!("{} is no read-only site of it", job.servers.name(server)))
    })
}

/// Checks that the former server does not answer, or does not have the volume.
fn need_lost(job: &Job<'_>, group: &VolumeGroup, from: Option<ServerId>) -> Result<(), VosError> {
    let Some(from) = from else { return Ok(()) };
    match examine(job.servers, from, WhichVolume::Id(group.read_write)) {
        Ok(None) | Err(VosError::Away { .. }) => Ok(()),
        Ok(Some(_)) => Err(VosError::Unfit(format!(
            "{} answers and has the read-write volume: 'vos move' moves it",
            job.servers.name(from)
        ))),
        Err(error) => Err(error),
    }
}

/// Waits until a volume that took over serves.
///
/// # Errors
/// `Unfit` if it does not within a minute; the server's error.
pub(crate) fn wait_until_it_serves(
    job: &Job<'_>,
    server: ServerId,
    id: VolumeId,
    pause: Duration,
) -> Result<(), VosError> {
    let mut waited = Duration::ZERO;
    loop {
        let there = examine(job.servers, server, WhichVolume::Id(id))?.unwrap_or_default();
        match there.first().map(|volume| volume.state) {
            Some(state) if state.comes() && waited < SERVES_WITHIN => {}
            Some(state) if state.comes() => {
                return Err(VosError::Unfit(
                    "the volume is there, and does not serve yet: see the server's log".to_owned(),
                ));
            }
            Some(_) => return Ok(()),
            None => {
                let server = job.servers.name(server);
                return Err(VosError::Refused { server, fault: Fault::NoVolume });
            }
        }
        job.servers.pause(pause);
        waited += pause;
    }
}
