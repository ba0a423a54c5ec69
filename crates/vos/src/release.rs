//! Brings all read-only sites of a group to the current state of its read-write volume.
//!
//! Steps: (1) the group is claimed; (2) the source seals `NAME.releasing`; (3) every site fetches
//! it as `NAME.releasing`, from the source or from another site that has it; (4) the database
//! records the released epoch and the sites that have it; (5) the source and those sites show it as
//! `NAME.readonly` and remove `NAME.releasing`; (6) the claim is removed.
//!
//! Sites at servers of AFS, and all sites of a volume at one, get it by AFS's protocol
//! (`afs/releasing.rs`), one after the other, and show it at once.
//!
//! Sites fetch concurrently. With many sites the source serves a few, and each site that has the
//! release serves the next (*relay*): the time grows like the depth of a tree, and the source's
//! traffic does not grow. A site whose relay fails asks another one, and continues after the data
//! that it has. A site that fails lags: its volume stays, and readers are no longer sent there. An
//! interrupted release is completed first, with the epoch that it sealed, because some sites may
//! show that already; then the current state is released.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use types::{
    Finish, Name, PartitionNo, Revised, ServerId, Site, SiteKind, VolumeCall, VolumeGroup,
    VolumeId, VolumeInfo, VolumeKind, WhichVolume,
};

use crate::afs::{self, AfsReleased, afs_servers, is_afs};
use crate::beside;
use crate::claim::Claim;
use crate::own_volumes::{
    LAGGING, RELEASING, have, is_left, is_stored_for_lagging, named, remove_at,
    remove_left_by_force,
};
use crate::pulling::{PullOrder, pull};
use crate::servers::partition_no;
use crate::{Job, Servers, VosError, examine};

const OPERATION: &str = "release";
/// The epoch of a group that only servers of AFS released.
const FIRST_EPOCH: u64 = 1;
/// Sites that one server serves at the same time.
const SERVED_AT_ONCE: usize = 3;
/// Sites that the source serves while other sites could serve them.
const SERVED_BY_SOURCE: usize = 3;
/// Sites that are led concurrently: a thread each, which mostly sleeps. Fewer would turn the tree
/// into a line.
const AT_ONCE: usize = 256;
/// Relays that a site tries to fetch from.
const TRIED_MAX: usize = 8;
/// Interval between checks whether a relay is free.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(50);

/// How a release ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// The epoch that readers see now; 0: dry run.
    pub epoch: u64,
    /// Servers that have it, with the bytes that they fetched.
    pub sites: Vec<(ServerId, u64)>,
    /// Servers that lag, and why.
    pub lagging: Vec<(ServerId, VosError)>,
}

/// Releases the group.
///
/// # Errors
/// `Busy`; `Unfit` if there is nothing to release or no site; the first site's error if no site
/// could be served, after which everything is as before.
pub fn release(job: &Job<'_>, group: Revised<VolumeGroup>) -> Result<Released, VosError> {
    let source = group.record.read_write_site().cloned();
    let source = source.ok_or_else(|| VosError::Unfit("it has no read-write volume".to_owned()))?;
    if read_only_sites(&group.record).is_empty() {
        return Err(VosError::Unfit(
            "it has no read-only sites: 'vos addsite' adds them".to_owned(),
        ));
    }
    let mut claim = Claim::of(job, group, OPERATION)?;
    if is_afs(job.servers, source.server)? {
        return from_afs(job, claim, &source);
    }
    let releasing = named(&claim.group.name, RELEASING)?;
    let left = if job.dry_run { None } else { have(job.servers, source.server, &releasing)? };
    if let Some(sealed) = left {
        job.note(format_args!("a release was begun before: it comes first ({})", sealed.id.0));
        finish(job, &mut claim, &source, &sealed)?;
    }
    let of = claim.group.read_write;
    let call = VolumeCall::Clone {
        id: None,
        of,
        name: releasing,
        kind: VolumeKind::Snapshot,
        replace: true,
    };
    let sealed = match job.call_one("seal its current state", source.server, call) {
        Ok(sealed) => sealed,
        Err(error) if error.is_refusal() => return Err(claim.give_up(error)),
        Err(error) => return Err(error),
    };
    let Some(sealed) = sealed else { return report_dry_run(job, claim, &source) };
    let released = match finish(job, &mut claim, &source, &sealed) {
        // The database does not name the epoch yet.
        Err(error) if error.is_refusal() && claim.group.released_epoch != sealed.epoch => {
            remove_at(job, source.server, sealed.id)?;
            return Err(claim.give_up(error));
        }
        released => released?,
    };
    let lagging: Vec<ServerId> = released.lagging.iter().map(|(server, _)| *server).collect();
    claim.done("the release is complete", |group| {
        // A site that did not receive the call to show the epoch does not have it for readers.
        group
            .sites
            .iter_mut()
            .filter(|site| lagging.contains(&site.server) && is_read_only(site))
            .for_each(|site| {
                site.epoch = if site.epoch == group.released_epoch { 0 } else { site.epoch };
            });
    })?;
    Ok(released)
}

/// Reports the steps of `--dry-run`.
fn report_dry_run(
    job: &Job<'_>,
    claim: Claim<'_, '_>,
    source: &Site,
) -> Result<Released, VosError> {
    let sites = read_only_sites(&claim.group);
    for site in sites.iter().filter(|site| site.server != source.server) {
        job.step(
            format_args!(
                "{}: fetch what changed since epoch {}",
                job.servers.name(site.server),
                site.epoch
            ),
            || Ok(()),
        )?;
    }
    for site in &sites {
        job.step(format_args!("{}: show it", job.servers.name(site.server)), || Ok(()))?;
    }
    claim.done("the released epoch and its sites", |_| {})?;
    Ok(Released::default())
}

/// Steps 3 to 5 for a sealed epoch.
fn finish(
    job: &Job<'_>,
    claim: &mut Claim<'_, '_>,
    source: &Site,
    sealed: &VolumeInfo,
) -> Result<Released, VosError> {
    let sites = read_only_sites(&claim.group);
    let far: Vec<Site> =
        sites.iter().filter(|site| site.server != source.server).cloned().collect();
    let read_only = match claim.group.read_only {
        Some(number) => number,
        None => job.servers.db().take_numbers(VolumeId(0), 1)?,
    };
    let (afs, native) = by_kind(job, far.clone())?;
    let mut released = fetch_all(job, &claim.group, source, sealed, &native)?;
    match afs::send_sealed(job, &claim.group, (source, sealed.id), read_only, &afs) {
        Ok(sent) => released.add(sent),
        // Sites of Rialto have it nevertheless.
        Err(error) => {
            released.add(afs.iter().map(|site| (site.server, Err(error.clone()))).collect());
        }
    }
    if let (Some((_, error)), true) =
        (released.lagging.first(), released.sites.is_empty() && far.len() == sites.len())
    {
        return Err(VosError::Unfit(format!("no site could be served; the first: {error}")));
    }
    released.epoch = sealed.epoch;
    let has: Vec<ServerId> =
        released.sites.iter().map(|(server, _)| *server).chain([source.server]).collect();
    let epoch = sealed.epoch;
    debug_assert!(
        epoch >= claim.group.released_epoch,
        "VO-5: epoch {epoch} after {}",
        claim.group.released_epoch
    );
    claim.change(
        &format!("epoch {epoch} is released, and {} of {} sites have it", has.len() - 1, far.len()),
        |group| {
            group.released_epoch = epoch;
            group.read_only = Some(read_only);
            for site in group
                .sites
                .iter_mut()
                .filter(|site| is_read_only(site) && has.contains(&site.server))
            {
                site.epoch = epoch;
            }
        },
    )?;
    store_for_lagging(job, &claim.group, source, epoch)?;
    let shows: Vec<ServerId> = [source.server]
        .into_iter()
        .chain(released.sites.iter().map(|(server, _)| *server))
        .filter(|server| afs.iter().all(|site| site.server != *server))
        .collect();
    show_all(job, &claim.group, (source, &shows), sealed, &mut released)?;
    Ok(released)
}

/// Sites of AFS, and the others.
fn by_kind(job: &Job<'_>, sites: Vec<Site>) -> Result<(Vec<Site>, Vec<Site>), VosError> {
    let afs = afs_servers(job.servers)?;
    Ok(sites.into_iter().partition(|site| afs.contains(&site.server)))
}

/// The release of a volume of a server of AFS, to sites of any kind.
fn from_afs(job: &Job<'_>, mut claim: Claim<'_, '_>, source: &Site) -> Result<Released, VosError> {
    if job.dry_run {
        for site in read_only_sites(&claim.group) {
            job.step(format_args!("{}: gets it", job.servers.name(site.server)), || Ok(()))?;
        }
        claim.done("the released sites", |_| {})?;
        return Ok(Released::default());
    }
    let read_only = match claim.group.read_only {
        Some(number) => number,
        None => {
            let number = job.servers.db().take_numbers(VolumeId(0), 1)?;
            // A repeated release is to find the volumes that this one makes.
            claim.change("the number of the read-only volume", |group| {
                group.read_only = Some(number);
            })?;
            number
        }
    };
    let mut released = Released::default();
    match afs::release_from_afs(job, &claim.group, source, read_only) {
        Ok(sent) => released.add(sent),
        Err(error) if error.is_refusal() => return Err(claim.give_up(error)),
        Err(error) => return Err(error),
    }
    if let (Some((_, error)), true) = (released.lagging.first(), released.sites.is_empty()) {
        let why = format!("no site could be served; the first: {error}");
        return Err(claim.give_up(VosError::Unfit(why)));
    }
    released.epoch = claim.group.released_epoch.max(FIRST_EPOCH);
    let epoch = released.epoch;
    let has = |site: &Site| released.sites.iter().any(|(server, _)| *server == site.server);
    claim.done("the released sites", |group| {
        group.released_epoch = epoch;
        for site in group.sites.iter_mut().filter(|site| is_read_only(site)) {
            site.epoch = if has(site) { epoch } else { 0 };
        }
    })?;
    Ok(released)
}

impl Released {
    fn add(&mut self, sent: AfsReleased) {
        for (server, sent) in sent {
            match sent {
                // Servers of AFS do not tell how much was sent.
                Ok(()) => self.sites.push((server, 0)),
                Err(error) => self.lagging.push((server, error)),
            }
        }
    }
}

/// Stores the release that lagging sites have as `NAME.lagging`. The source shows only the last
/// release, so the next release would send all of the volume to a site that missed one. One is
/// stored: that of the sites that lag longest; other sites are sent everything.
fn store_for_lagging(
    job: &Job<'_>,
    group: &VolumeGroup,
    source: &Site,
    epoch: u64,
) -> Result<(), VosError> {
    let here =
        examine(job.servers, source.server, WhichVolume::Id(group.read_write))?.unwrap_or_default();
    let lags = |at: u64| {
        group.sites.iter().any(|site| is_read_only(site) && site.epoch == at && at < epoch)
    };
    let stored = here.iter().find(|volume| is_stored_for_lagging(volume));
    if stored.is_some_and(|stored| lags(stored.epoch)) {
        return Ok(());
    }
    let last = here.iter().find(|volume| volume.kind == VolumeKind::ReadOnly && lags(volume.epoch));
    match (last, stored) {
        (Some(last), _) => {
            let (of, name) = (last.id, named(&group.name, LAGGING)?);
            let call =
                VolumeCall::Clone { id: None, of, name, kind: VolumeKind::Snapshot, replace: true };
            job.call("store the epoch of lagging sites", source.server, call).map(drop)
        }
        (None, Some(stored)) => remove_at(job, source.server, stored.id),
        (None, None) => Ok(()),
    }
}

/// Step 3. The failure of a site concerns that site alone.
fn fetch_all(
    job: &Job<'_>,
    group: &VolumeGroup,
    source: &Site,
    sealed: &VolumeInfo,
    far: &[Site],
) -> Result<Released, VosError> {
    let numbers = match u32::try_from(far.len()) {
        Ok(count) if count > 0 => job.servers.db().take_numbers(VolumeId(0), count)?,
        _ => return Ok(Released::default()),
    };
    for site in far {
        job.step(
            format_args!("{}: fetch epoch {}", job.servers.name(site.server), sealed.epoch),
            || Ok(()),
        )?;
    }
    let here =
        examine(job.servers, source.server, WhichVolume::Id(group.read_write))?.unwrap_or_default();
    let shows = here
        .iter()
        .filter(|volume| volume.kind != VolumeKind::ReadWrite && volume.epoch < sealed.epoch);
    let relay = Relay::new(source.server, sealed.id, shows.map(|volume| volume.epoch).collect());
    let round = Round { servers: job.servers, tell: job.tell, group, sealed, relay };
    let orders = Mutex::new(
        (0..).map(VolumeId).zip(far).map(|(at, site)| (VolumeId(numbers.0 + at.0), site)),
    );
    let released = Mutex::new(Released::default());
    job.servers.together(far.len().min(AT_ONCE), &|_| {
        loop {
            let next = orders.lock().next();
            let Some((number, site)) = next else { return };
            let fetched = round.fetch(number, site);
            let mut released = released.lock();
            match fetched {
                Ok(bytes) => released.sites.push((site.server, bytes)),
                Err(error) => released.lagging.push((site.server, error)),
            }
        }
    });
    Ok(released.into_inner())
}

/// State that all sites of a release share while they fetch it.
struct Round<'r> {
    servers: &'r dyn Servers,
    tell: &'r (dyn Fn(crate::JobEvent<'_>) + Sync),
    group: &'r VolumeGroup,
    sealed: &'r VolumeInfo,
    relay: Relay,
}

impl Round<'_> {
    /// Makes one site fetch it; returns the bytes.
    fn fetch(&self, number: VolumeId, site: &Site) -> Result<u64, VosError> {
        let epoch = self.sealed.epoch;
        let (read_only, releasing) =
            (named(&self.group.name, ".readonly")?, named(&self.group.name, RELEASING)?);
        let here = self.all_of(site.server, [&read_only, &releasing])?;
        let called = |name: &Name| here.iter().find(|volume| volume.name == *name);
        let shows = called(&read_only).map_or(0, |volume| volume.epoch);
        if shows == epoch {
            return Ok(0);
        }
        let fetched = called(&releasing);
        if let Some(there) = fetched.filter(|there| there.epoch == epoch) {
            self.relay.add_holder(site.server, there.id, shows);
            return Ok(0);
        }
        remove_left_by_force(self.servers, self.group, site.server, &here)?;
        // The newest epoch that it has, possibly of a release that it was not ordered to show.
        let base = fetched.map_or(shows, |there| there.epoch.max(shows));
        let partition = partition_no(self.servers, site.server, &site.partition)?;
        if site.epoch == 0 {
            self.remove_beside(site.server, partition)?;
        }
        let (bytes, from) = self.fetch_from_some((number, base), site, partition, &releasing)?;
        let there = have(self.servers, site.server, &releasing);
        if let Some(there) =
            there.as_ref().ok().and_then(Option::as_ref).filter(|there| there.epoch == epoch)
        {
            self.relay.add_holder(site.server, there.id, shows);
        }
        // In this order: while a relay serves, other sites wait for the served site to join.
        self.relay.served(from, true);
        there?
            .filter(|there| there.epoch == epoch)
            .ok_or_else(|| VosError::Odd(self.servers.name(site.server)))?;
        Ok(bytes)
    }

    /// A server fetches a tree to one partition. Another one may have what was left of a former
    /// site, or of an operation whose claim was taken off. A read-write volume that no move left
    /// stays: then the database may be wrong.
    fn remove_beside(&self, server: ServerId, partition: PartitionNo) -> Result<(), VosError> {
        let tree = self.group.read_write;
        let others = beside::partitions_but(self.servers, server, partition)?;
        let written = examine(self.servers, server, WhichVolume::Id(tree))?.unwrap_or_default();
        if written.first().is_none_or(|one| is_left(one, tree)) {
            for other in others {
                beside::remove_all(self.servers, server, tree, other)?;
            }
        }
        Ok(())
    }

    /// The volumes of the group that a site has, found by any of its names or by the number of
    /// the read-write volume.
    fn all_of(&self, server: ServerId, names: [&Name; 2]) -> Result<Vec<VolumeInfo>, VosError> {
        let names = names.into_iter().cloned().map(WhichVolume::Name);
        for which in names.chain([WhichVolume::Id(self.group.read_write)]) {
            if let Some(here) = examine(self.servers, server, which)? {
                return Ok(here);
            }
        }
        Ok(Vec::new())
    }

    /// Fetches from one relay after the other until one has served it: a relay may fail by itself.
    /// Data from one is not sent again by the next. The successful relay counts as serving until
    /// the site has joined.
    fn fetch_from_some(
        &self,
        (number, base): (VolumeId, u64),
        site: &Site,
        partition: PartitionNo,
        releasing: &Name,
    ) -> Result<(u64, ServerId), VosError> {
        let mut tried = 1;
        loop {
            let from = self.relay.choose(base, self.servers);
            let fetched = self.fetch_from(from, number, site, partition, releasing);
            let error = match fetched {
                Ok(bytes) => return Ok((bytes, from.0)),
                Err(error) => error,
            };
            self.relay.served(from.0, false);
            match error {
                // The site itself does not answer.
                VosError::Away { .. } => return Err(error),
                _ if tried < TRIED_MAX && from.0 != self.relay.source.0 => tried += 1,
                _ => return Err(error),
            }
        }
    }

    fn fetch_from(
        &self,
        (from, id): (ServerId, VolumeId),
        number: VolumeId,
        site: &Site,
        partition: PartitionNo,
        releasing: &Name,
    ) -> Result<u64, VosError> {
        let finish = Finish::View {
            id: Some(number),
            name: releasing.clone(),
            kind: VolumeKind::Snapshot,
            replace: true,
        };
        let tree = self.group.read_write;
        let order =
            PullOrder { by: site.server, partition: Some(partition), from, id, tree, finish };
        pull(self.servers, order, self.tell).map(|task| task.bytes)
    }
}

/// The servers that have the release, and how many sites fetch from each.
///
/// A difference is available from a server that shows its starting epoch. So lagging sites get
/// theirs from the source, which stores that epoch, and then from each other.
struct Relay {
    source: (ServerId, VolumeId),
    holders: Mutex<Vec<Holder>>,
}

struct Holder {
    server: ServerId,
    id: VolumeId,
    /// Other epochs that it shows.
    shows: Vec<u64>,
    serving: usize,
    /// Count of served sites, by the epoch that they started from; 0: all of it.
    served: HashMap<u64, usize>,
    /// A site received nothing from it: others are preferred.
    failed: bool,
}

impl Holder {
    fn new(server: ServerId, id: VolumeId, shows: Vec<u64>) -> Self {
        Holder { server, id, shows, serving: 0, served: HashMap::new(), failed: false }
    }

    fn served_from(&self, base: u64) -> usize {
        self.served.get(&base).copied().unwrap_or(0)
    }
}

impl Relay {
    fn new(source: ServerId, id: VolumeId, shows: Vec<u64>) -> Self {
        Relay { source: (source, id), holders: Mutex::new(vec![Holder::new(source, id, shows)]) }
    }

    /// Waits until a server can serve a site that shows this epoch; 0: none.
    fn choose(&self, base: u64, servers: &dyn Servers) -> (ServerId, VolumeId) {
        let mut pause = POLL_INTERVAL;
        loop {
            if let Some(chosen) = self.choose_now(base) {
                return chosen;
            }
            servers.pause(pause);
            pause = (pause * 3 / 2).min(LOOK_MAX);
        }
    }

    /// The server with the fewest served sites among those that can serve. The source serves its
    /// share, and more only where no other server has the epoch.
    fn choose_now(&self, base: u64) -> Option<(ServerId, VolumeId)> {
        let mut holders = self.holders.lock();
        let known = holders.iter().any(|holder| holder.shows.contains(&base));
        let base = if known { base } else { 0 };
        let can = |holder: &&mut Holder| {
            let is_source = holder.server == self.source.0;
            let share = !is_source || holder.served_from(base) < SERVED_BY_SOURCE;
            share && holder.serving < SERVED_AT_ONCE && (base == 0 || holder.shows.contains(&base))
        };
        let idle = holders.iter().all(|holder| holder.serving == 0);
        let order = |holder: &&mut Holder| {
            (holder.failed, holder.served.values().sum::<usize>(), holder.serving)
        };
        let chosen = match holders.iter_mut().filter(can).min_by_key(order) {
            Some(best) => best,
            // Every relay failed its sites: the source serves after all.
            None if idle => holders.first_mut().expect("the source has the release"),
            None => return None,
        };
        chosen.serving += 1;
        *chosen.served.entry(base).or_default() += 1;
        Some((chosen.server, chosen.id))
    }

    /// Records the end of a fetch from `server`.
    fn served(&self, server: ServerId, well: bool) {
        if let Some(holder) = self.holders.lock().iter_mut().find(|holder| holder.server == server)
        {
            holder.serving -= 1;
            holder.failed |= !well;
        }
    }

    /// Records that a site has the release, and shows its old epoch until the end of the release.
    fn add_holder(&self, server: ServerId, id: VolumeId, shows: u64) {
        self.holders.lock().push(Holder::new(server, id, vec![shows]));
    }
}

/// Step 5, at all servers concurrently: readers' promises are broken, which may take a lease.
fn show_all(
    job: &Job<'_>,
    group: &VolumeGroup,
    (source, at): (&Site, &[ServerId]),
    sealed: &VolumeInfo,
    released: &mut Released,
) -> Result<(), VosError> {
    let servers = job.servers;
    let shown = Mutex::new(Vec::with_capacity(at.len()));
    servers.together(at.len(), &|one| {
        let result = show(servers, group, at[one], sealed.epoch);
        shown.lock().push((at[one], result));
    });
    for (server, result) in shown.into_inner() {
        match result {
            Ok(()) => {
                job.done(format_args!("{}: shows epoch {}", servers.name(server), sealed.epoch));
            }
            Err(error) if server == source.server => return Err(error),
            Err(error) => {
                released.sites.retain(|(site, _)| *site != server);
                released.lagging.push((server, error));
            }
        }
    }
    Ok(())
}

/// Makes `NAME.readonly` show what `NAME.releasing` shows, and removes the latter.
fn show(
    servers: &dyn Servers,
    group: &VolumeGroup,
    server: ServerId,
    epoch: u64,
) -> Result<(), VosError> {
    let (read_only, releasing) = (named(&group.name, ".readonly")?, named(&group.name, RELEASING)?);
    let sealed = have(servers, server, &releasing)?;
    let shows = have(servers, server, &read_only)?.is_some_and(|shown| shown.epoch == epoch);
    match &sealed {
        Some(sealed) if !shows => {
            let (id, of) = (group.read_only, sealed.id);
            servers.call(
                server,
                VolumeCall::Clone {
                    id,
                    of,
                    name: read_only,
                    kind: VolumeKind::ReadOnly,
                    replace: true,
                },
            )?;
        }
        None if !shows => {
            return Err(VosError::Unfit(format!(
                "{} has lost what it fetched",
                servers.name(server)
            )));
        }
        _ => {}
    }
    if let Some(sealed) = sealed {
        servers.call(server, VolumeCall::Remove { id: sealed.id })?;
    }
    Ok(())
}

fn is_read_only(site: &Site) -> bool {
    site.kind == SiteKind::ReadOnly
}

fn read_only_sites(group: &VolumeGroup) -> Vec<Site> {
    group.sites.iter().filter(|site| is_read_only(site)).cloned().collect()
}
