//! Releases to and from servers of AFS.
//!
//! Model: a site of the other kind than the read-write volume's server, or of AFS, gets the release
//! by AFS's protocol: what changed since the state that it has, or everything. Its read-only volume
//! has the time of that state as its creation. A site of AFS is out of service until it has all; if
//! that breaks off it stays so, lags, and gets everything next time. A site of Rialto shows its old
//! state until it has the new one.
//!
//! A server of AFS releases from the read-only volume beside the read-write one, if that is a site,
//! and otherwise from a clone that goes afterwards. It tells no epoch: the group keeps the one of
//! its last release by Rialto, or has the first.

use afs3::volumes::{in_use, transaction_flag, volume_flag, volume_type};
use types::{ServerId, Site, SiteKind, VolumeGroup, VolumeId};

use super::places::{AfsPlace, PASSING};
use super::transactions::{AfsTransaction, NewAfsVolume, cookie};
use super::volume_server::VolumeServer;
use super::{is_afs, number, partition};
use crate::own_volumes::named;
use crate::{Job, VosError};

/// As for a move: clocks have seconds.
const CLOCK_SECONDS: i32 = 2;

/// The outcome at each site.
pub(crate) type AfsReleased = Vec<(ServerId, Result<(), VosError>)>;

/// The release of a group, as its sites are to show it.
struct Release<'r, 'a> {
    job: &'r Job<'a>,
    group: &'r VolumeGroup,
    read_only: u32,
    name: Vec<u8>,
}

impl Release<'_, '_> {
    fn of<'r, 'a>(
        job: &'r Job<'a>,
        group: &'r VolumeGroup,
        read_only: VolumeId,
    ) -> Result<Release<'r, 'a>, VosError> {
        let name = named(&group.name, ".readonly")?.as_bytes().to_vec();
        Ok(Release { job, group, read_only: number(read_only)?, name })
    }

    /// Sends it from a transaction to sites, one after the other.
    fn send(&self, from: &AfsTransaction<'_>, sites: &[Site]) -> AfsReleased {
        sites.iter().map(|site| (site.server, self.send_to(from, site))).collect()
    }

    fn send_to(&self, from: &AfsTransaction<'_>, site: &Site) -> Result<(), VosError> {
        let (job, volume, kind) = (self.job, self.read_only, volume_type::RO);
        let at = VolumeServer::of(job.servers, site.server)?;
        let partition = partition(job.servers, site.server, &site.partition)?;
        let parent = number(self.group.read_write)?;
        at.need_partition(partition)?;
        let cookie = cookie(&self.name, kind, parent)?;
        let name = at.name();
        // An earlier release may have been killed: its claim is this one's.
        at.end_left(&[volume])?;
        let there = at.one(partition, volume)?;
        let is_whole = there.is_some_and(|one| one.status == in_use::OK && one.in_use != 0);
        let since = match there {
            Some(one) if is_whole => one.created.wrapping_sub(CLOCK_SECONDS),
            _ => 0,
        };
        let what = if since == 0 { "all of it" } else { "what changed since its last release" };
        job.step(format_args!("{name}: gets {what}"), || {
            let (to, is_new) = match there {
                Some(_) => {
                    (AfsPlace { at, partition, volume }.hold(transaction_flag::OFFLINE)?, false)
                }
                None => {
                    let name = &self.name;
                    let new = NewAfsVolume { partition, name, kind, parent, volume };
                    (AfsTransaction::create(at, &new)?, true)
                }
            };
            if is_new {
                to.set_flags(PASSING)?;
            } else if is_afs(job.servers, site.server)? {
                to.set_flags(volume_flag::OUT_OF_SERVICE)?;
            }
            if let Err(error) = from.forward(since, &to, cookie) {
                if is_new {
                    // Otherwise it stays there, out of service.
                    let _ = to.delete();
                }
                return Err(error);
            }
            to.set_flags(0)?;
            to.end()
        })?;
        Ok(())
    }
}

/// Sends a sealed state of a volume of Rialto's server to sites of AFS.
///
/// # Errors
/// The source's. The failure of a site concerns that site alone.
pub(crate) fn send_sealed(
    job: &Job<'_>,
    group: &VolumeGroup,
    (source, sealed): (&Site, VolumeId),
    read_only: VolumeId,
    sites: &[Site],
) -> Result<AfsReleased, VosError> {
    if sites.is_empty() {
        return Ok(Vec::new());
    }
    let release = Release::of(job, group, read_only)?;
    let at = VolumeServer::of(job.servers, source.server)?;
    let partition = partition(job.servers, source.server, &source.partition)?;
    let place = AfsPlace { at, partition, volume: number(sealed)? };
    at.end_left(&[place.volume])?;
    let from = place.hold(transaction_flag::READ_ONLY)?;
    let sent = release.send(&from, sites);
    from.end()?;
    Ok(sent)
}

/// Releases a volume of a server of AFS to these sites.
///
/// # Errors
/// The source's. The failure of a site concerns that site alone.
pub(crate) fn release_from_afs(
    job: &Job<'_>,
    group: &VolumeGroup,
    source: &Site,
    read_only: VolumeId,
) -> Result<AfsReleased, VosError> {
    let release = Release::of(job, group, read_only)?;
    let at = VolumeServer::of(job.servers, source.server)?;
    let partition = partition(job.servers, source.server, &source.partition)?;
    let volume = number(group.read_write)?;
    let place = AfsPlace { at, partition, volume };
    at.end_left(&[volume, release.read_only])?;
    let is_site = |site: &&Site| site.kind == SiteKind::ReadOnly;
    let (beside, far): (Vec<Site>, Vec<Site>) = group
        .sites
        .iter()
        .filter(is_site)
        .cloned()
        .partition(|site| (site.server, &site.partition) == (source.server, &source.partition));
    if beside.is_empty() {
        let name = format!("releasing.{volume}").into_bytes();
        place.remove_clone(job, &name, true)?;
        return place
            .with_clone(job, &name, volume_type::RO, |clone, _| Ok(release.send(clone, &far)));
    }
    job.step(format_args!("{}: renew its read-only volume", at.name()), || {
        at.clone_at(partition, (volume, release.read_only), volume_type::RO, &release.name)?;
        AfsPlace { volume: release.read_only, ..place }.set_service(0)
    })?;
    let mut sent: AfsReleased = vec![(source.server, Ok(()))];
    if !far.is_empty() {
        let from = AfsPlace { volume: release.read_only, ..place };
        // Its readers go on.
        let from = from.hold(transaction_flag::READ_ONLY)?;
        sent.extend(release.send(&from, &far));
        from.end()?;
    }
    Ok(sent)
}
