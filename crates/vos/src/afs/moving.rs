//! Moves a read-write volume between two servers of which one or both are of AFS, while clients use
//! it.
//!
//! Steps of a move from A to B: (1) the group is claimed; (2) B makes the volume, out of service;
//! (3) A makes a clone, and sends it there; (4) A holds the volume: changes wait; A sends what
//! changed since the clone was made; (5) B's volume is kept, out of service, and a server of AFS A
//! takes its own out of service; (6) **the database records B as the site**; (7) B serves it; (8) A
//! removes it.
//!
//! An interruption before (6) moves nothing. A leader that sees it undoes what was done; after one
//! that was killed, A serves again when its transaction ends, and the next attempt removes what B
//! has. Between (5) and (6) A has the volume out of service, if it is a server of AFS: it would
//! serve again by itself, whatever the database says. A server of Rialto asks the database when
//! changes waited for too long, and its question makes step 6 fail. After (6) the next attempt
//! finds B in the database and does (7) and (8). So at most one of both takes changes.

use std::time::{Duration, Instant};

use afs3::volumes::{transaction_flag, volume_flag, volume_type};
use types::{Revised, ServerId, Site, SiteKind, VolumeGroup, VolumeKind};

use super::making::{arrived, arriving, arriving_cookie, is_arriving};
use super::places::{AfsPlace, PASSING};
use super::transactions::cookie;
use super::volume_server::VolumeServer;
use super::{is_afs, number, partition};
use crate::claim::Claim;
use crate::own_volumes::{all_of, remove_at};
use crate::standby::out_of_step;
use crate::{Job, VosError};

/// A server's clock has seconds, and a change may have been noted a second before the clone: a dump
/// of changes begins so much earlier. As OpenAFS's `vos`.
const CLOCK_SECONDS: i32 = 2;

/// From where to where.
pub(crate) struct AfsWay {
    /// The site that the database records now.
    pub from: Site,
    /// The site that it is to record.
    pub to: Site,
    /// An earlier attempt left its claim.
    pub is_resumed: bool,
}

/// Moves the volume of a claimed group; returns how long changes waited.
///
/// # Errors
/// `Unfit`; errors of the servers and of the database. Before step 6 everything is as before;
/// after it, repeating the move continues it.
pub(crate) fn move_volume(
    job: &Job<'_>,
    mut claim: Claim<'_, '_>,
    way: AfsWay,
) -> Result<Duration, VosError> {
    let is_there = (way.from.server, &way.from.partition) == (way.to.server, &way.to.partition);
    let moving = match AfsMove::of(job, &claim.group, way) {
        Ok(moving) => moving,
        Err(error) if is_there => return Err(error),
        Err(error) => return Err(claim.give_up(error)),
    };
    if is_there {
        moving.complete()?;
        return claim.done("the move is complete", |_| {}).map(|_| Duration::ZERO);
    }
    if job.dry_run {
        return moving.report(claim).map(|()| Duration::ZERO);
    }
    if let Err(error) = moving.clean(moving.way.is_resumed) {
        // Nothing was begun, and what an earlier attempt left may be complete.
        return Err(if moving.way.is_resumed { error } else { claim.give_up(error) });
    }
    match moving.run(&mut claim) {
        Ok(held) => claim.done("the move is complete", |_| {}).map(|_| held),
        Err(error) => Err(moving.undo(claim, error)),
    }
}

struct AfsMove<'j, 'a> {
    job: &'j Job<'a>,
    group: VolumeGroup,
    way: AfsWay,
    from: AfsPlace<'a>,
    to: AfsPlace<'a>,
    /// The name of the clone that is sent.
    clone_name: Vec<u8>,
}

impl<'j, 'a> AfsMove<'j, 'a> {
    /// # Errors
    /// `Unfit` if AFS has no words for the volume or a place, or a server does not answer.
    fn of(job: &'j Job<'a>, group: &VolumeGroup, way: AfsWay) -> Result<Self, VosError> {
        let volume = number(group.read_write)?;
        let place = |site: &Site| -> Result<AfsPlace<'a>, VosError> {
            let at = VolumeServer::of(job.servers, site.server)?;
            let partition = partition(job.servers, site.server, &site.partition)?;
            Ok(AfsPlace { at, partition, volume })
        };
        let (from, to) = (place(&way.from)?, place(&way.to)?);
        from.at.need_partition(from.partition)?;
        to.at.need_partition(to.partition)?;
        cookie(group.name.as_bytes(), volume_type::RW, volume)?;
        let has_it = |site: &Site| site.server == way.to.server && site.kind == SiteKind::ReadOnly;
        if !is_afs(job.servers, way.to.server)? && group.sites.iter().any(has_it) {
            return Err(VosError::Unfit(format!(
                "{} has a read-only site of it, which does not become a part of a volume that \
                 comes from a server of AFS: 'vos remove' that first, and add it again afterwards",
                to.at.name()
            )));
        }
        let clone_name = format!("moving.{volume}").into_bytes();
        Ok(AfsMove { job, group: group.clone(), way, from, to, clone_name })
    }

    /// The steps of `--dry-run`.
    fn report(&self, mut claim: Claim<'_, '_>) -> Result<(), VosError> {
        let (from, to) = (self.from.at.name(), self.to.at.name());
        for what in [
            format!("{to}: make the volume, out of service"),
            format!("{from}: clone its current state"),
            format!("{from}: send the clone to {to}"),
            format!("{from}: let changes wait"),
            format!("{from}: send what changed since"),
        ] {
            self.job.step(what, || Ok(()))?;
        }
        self.switch(&mut claim)?;
        for what in [format!("{to}: serve it"), format!("{from}: remove it")] {
            self.job.step(what, || Ok(()))?;
        }
        claim.done("the move is complete", |_| {}).map(drop)
    }

    /// Steps 2 to 8; returns how long changes waited.
    fn run(&self, claim: &mut Claim<'_, '_>) -> Result<Duration, VosError> {
        let job = self.job;
        let (from, to) = (self.from.at.name(), self.to.at.name());
        let step = |what: String, act: &dyn Fn() -> Result<(), VosError>| job.step(what, act);
        let cookie = arriving_cookie(self.to.volume)?;
        step(format!("{to}: make the volume, out of service"), &|| Ok(()))?;
        let made = arriving(self.to)?;
        let cloned =
            self.from.with_clone(job, &self.clone_name, volume_type::RO, |clone, status| {
                step(format!("{from}: send the clone to {to}"), &|| {
                    clone.forward(0, &made, cookie)?;
                    made.set_flags(PASSING)
                })?;
                Ok(status.created)
            })?;
        step(format!("{from}: let changes wait"), &|| Ok(()))?;
        let since = Instant::now();
        let held = self.from.hold(transaction_flag::BUSY)?;
        step(format!("{from}: send what changed since"), &|| {
            held.forward(cloned.wrapping_sub(CLOCK_SECONDS), &made, cookie)
        })?;
        // From here on it is not removed if this program ends.
        arrived(&made, self.group.name.as_bytes())?;
        if is_afs(job.servers, self.way.from.server)? {
            held.set_flags(volume_flag::OUT_OF_SERVICE)?;
        }
        self.switch(claim)?;
        step(format!("{to}: serve it"), &|| made.set_flags(0))?;
        made.end()?;
        let waited = since.elapsed();
        let others = self.others_at_source()?;
        step(format!("{from}: remove it"), &|| {
            // A server of Rialto lets changes wait until it has removed it.
            if is_afs(job.servers, self.way.from.server)? {
                held.set_flags(PASSING)?;
            }
            held.delete()
        })?;
        held.end()?;
        for other in others {
            remove_at(job, self.way.from.server, other)?;
        }
        Ok(waited)
    }

    /// The volumes of the group at A that go with the read-write volume.
    fn others_at_source(&self) -> Result<Vec<types::VolumeId>, VosError> {
        let server = self.way.from.server;
        if is_afs(self.job.servers, server)? {
            return Ok(self.group.backup.into_iter().collect());
        }
        let is_site = self
            .group
            .sites
            .iter()
            .any(|site| site.server == server && site.kind == SiteKind::ReadOnly);
        let stays = |kind: VolumeKind| {
            kind == VolumeKind::ReadWrite || kind == VolumeKind::ReadOnly && is_site
        };
        let all = all_of(self.job, &self.group, server)?;
        Ok(all.into_iter().filter(|one| !stays(one.kind)).map(|one| one.id).collect())
    }

    /// Step 6.
    fn switch(&self, claim: &mut Claim<'_, '_>) -> Result<(), VosError> {
        let to = &self.way.to;
        let says = claim.switch("it is there from now on", |group| {
            group.sites.retain(|site| site.kind != SiteKind::ReadWrite);
            group.sites.insert(0, to.clone());
            group.backup = None;
            out_of_step(group);
        });
        match says {
            // Only the database shows whether the record was written.
            Err(error) if !error.is_refusal() => {
                let seen = self.job.servers.db().group_of(self.group.read_write)?;
                let is_there = |seen: &Revised<VolumeGroup>| {
                    seen.record.read_write_site().is_some_and(|site| site == to)
                };
                if seen.as_ref().is_some_and(is_there) { Ok(()) } else { Err(error) }
            }
            says => says,
        }
    }

    fn twin(&self) -> VosError {
        let name = self.to.at.name();
        VosError::Unfit(format!(
            "{name} has a volume with its number, which serves: remove the wrong one with 'vos \
             zap', or let the database name it with 'vos changeloc'"
        ))
    }

    /// Removes what an attempt left at both servers, which moved nothing. `is_ours`: that attempt
    /// is over, and its claim is this one, so its transactions are, too.
    fn clean(&self, is_ours: bool) -> Result<(), VosError> {
        let (from, to, volume) = (&self.from, &self.to, self.from.volume);
        if is_ours {
            to.at.end_left(&[volume])?;
        }
        for partition in to.at.partitions()? {
            if (to.at.server, partition) == (from.at.server, from.partition) {
                continue;
            }
            match to.at.one(partition, volume)? {
                Some(left) if !is_arriving(&left) => return Err(self.twin()),
                Some(_) => AfsPlace { partition, ..*to }.remove()?,
                None => {}
            }
        }
        from.remove_clone(self.job, &self.clone_name, is_ours)?;
        if is_ours {
            from.at.end_left(&[volume])?;
        }
        let name = from.at.name();
        match from.at.one(from.partition, volume)? {
            None => Err(VosError::Unfit(format!(
                "{name} does not have it there: 'vos syncvldb' corrects the record"
            ))),
            Some(there) if there.in_use != 0 => Ok(()),
            Some(_) if is_ours => from.set_service(0),
            Some(_) => Err(VosError::Unfit(format!(
                "it is out of service at {name}, or held there: 'vos online' brings it back"
            ))),
        }
    }

    /// Undoes the move, if nothing was moved. If a server does not answer the claim stays, and the
    /// next attempt of the same move does it.
    fn undo(&self, claim: Claim<'_, '_>, error: VosError) -> VosError {
        let seen = self.job.servers.db().group_of(self.group.read_write);
        let is_here =
            |seen: &Revised<VolumeGroup>| seen.record.read_write_site() == Some(&self.way.from);
        if !matches!(&seen, Ok(Some(seen)) if is_here(seen)) {
            self.job.note("it may be at the new place already: repeat the move to complete it");
            return error;
        }
        match self.clean(true) {
            Ok(()) => claim.give_up(error),
            Err(also) => {
                self.job.note(format_args!("not all was undone, repeat the move: {also}"));
                error
            }
        }
    }

    /// Steps 7 and 8, when the database names B: the source is not recorded any more, so every
    /// other server is asked.
    fn complete(&self) -> Result<(), VosError> {
        let (job, to, volume) = (self.job, &self.to, self.to.volume);
        if job.step(format_args!("{}: serve it", to.at.name()), || Ok(()))?.is_none() {
            return Ok(());
        }
        to.at.end_left(&[volume])?;
        match to.at.one(to.partition, volume)? {
            None => {
                let why = format!("{} does not have it", to.at.name());
                return Err(VosError::Unfit(why));
            }
            Some(there) if there.in_use == 0 => to.set_service(0)?,
            Some(_) => {}
        }
        for seen in job.servers.db().servers()? {
            let server = seen.record.id;
            if is_afs(job.servers, server)? {
                self.leave(server)?;
            } else if server != self.way.to.server {
                self.leave_rialto(server)?;
            }
        }
        Ok(())
    }

    /// Removes what a server of AFS has of the volume, but at the new place.
    fn leave(&self, server: ServerId) -> Result<(), VosError> {
        let (to, volume) = (&self.to, self.to.volume);
        let at = VolumeServer::of(self.job.servers, server)?;
        let is_to = |partition| (server, partition) == (to.at.server, to.partition);
        for partition in at.partitions()?.into_iter().filter(|no| !is_to(*no)) {
            let Some(left) = at.one(partition, volume)? else { continue };
            at.end_left(&[volume])?;
            let place = AfsPlace { at, partition, volume };
            if left.backup != 0 {
                AfsPlace { volume: left.backup, ..place }.remove()?;
            }
            place.remove()?;
        }
        Ok(())
    }

    fn leave_rialto(&self, server: ServerId) -> Result<(), VosError> {
        let all = all_of(self.job, &self.group, server)?;
        let Some(left) = all.iter().find(|one| one.id == self.group.read_write) else {
            return Ok(());
        };
        if let Ok(at) = VolumeServer::of(self.job.servers, server) {
            at.end_left(&[self.to.volume])?;
        }
        remove_at(self.job, server, left.id)
    }
}
